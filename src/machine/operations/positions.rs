//! Partitions that wait for their beginning, and brokers that say anything of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{GroupId, ListOffsetsResponse, OffsetFetchResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::Operated;
use crate::machine::fetch::{IsolationLevel, Leader, OffsetReset, Positions};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::record::{LeaderEpoch, NodeId, TopicPartition};
use crate::retry::ExponentialFullJitter;

pub(super) struct Member {
    positions: Positions,
    now: Instant,
    /// What waits, and since which assignment.
    waiting: BTreeMap<TopicPartition, u64>,
    committed: Vec<u64>,
    resets: Vec<u64>,
    /// Who leads: partitions of one topic only, or all.
    led: u32,
    next_epoch: u64,
    at_once: u32,
}

impl Operated for Member {
    const OPERATIONS: u32 = 12;

    fn new(choices: &mut Choices<'_>) -> Self {
        let backoff = ExponentialFullJitter { first: Duration::from_millis(100), max: Duration::from_secs(1) };
        Self {
            positions: Positions::new("g", IsolationLevel::default(), backoff),
            now: Instant::now(),
            waiting: BTreeMap::new(),
            committed: Vec::new(),
            resets: Vec::new(),
            led: choices.below(4),
            next_epoch: 0,
            at_once: 0,
        }
    }

    fn act(&mut self, choices: &mut Choices<'_>, operation: u32) {
        let partition = TopicPartition::new(choices.pick(&["t", "u"]), choices.below(2) as i32);
        match operation {
            0..=2 => {
                self.next_epoch += 1;
                self.waiting.insert(partition.clone(), self.next_epoch);
                let policy = choices.pick(&[OffsetReset::Earliest, OffsetReset::Latest]);
                match operation {
                    0 | 1 => self.positions.assign(partition, self.next_epoch, policy),
                    _ => self.positions.reset(partition, self.next_epoch, policy),
                }
            }
            3 => {
                self.waiting.remove(&partition);
                self.positions.forget([&partition]);
            }
            4 => self.led = choices.below(4),
            5 | 6 => {
                let Some(id) = choices.index(self.committed.len()).map(|at| self.committed.remove(at)) else {
                    return;
                };
                let answer = offsets(choices);
                self.positions.handle_committed(self.now, id, &answer);
            }
            7 | 8 => {
                let Some(id) = choices.index(self.resets.len()).map(|at| self.resets.remove(at)) else { return };
                let answer = ends(choices);
                self.positions.handle_reset(self.now, id, &answer);
            }
            9 => {
                let id = self.committed.pop().or_else(|| self.resets.pop());
                id.into_iter().for_each(|id| self.positions.handle_failure(self.now, id));
            }
            _ => {
                let time = choices.pick(&[1, 100, 1_000, 6_000]);
                self.pass(Duration::from_millis(time));
            }
        }
    }

    fn settle(&mut self, _: &mut Choices<'_>) {
        self.positions.handle_timeout(self.now);
        if let Some((id, request)) = self.positions.poll_committed(self.now, None) {
            assert!(request.groups[0].topics.as_ref().is_some_and(|topics| !topics.is_empty()), "it asks for nothing");
            self.asked();
            self.committed.push(id);
        }
        let led = self.led;
        let leader_of = |partition: &TopicPartition| {
            let (node, epoch) = (NodeId(partition.partition), Some(LeaderEpoch(1)));
            let known = led > 1 || (led == 1 && partition.topic.as_str() == "t");
            known.then_some(Leader { node, epoch, topic_id: Uuid::from_u128(1) })
        };
        while let Some(asked) = self.positions.poll_reset(self.now, leader_of) {
            assert!(!asked.request.topics.is_empty(), "it asks for nothing");
            self.asked();
            self.resets.push(asked.id);
        }
        while self.positions.poll_stale().is_some() {}
        while self.positions.poll_fault().is_some() {}
        while let Some(done) = self.positions.poll_done() {
            assert!(done.offset.0 >= 0, "it begins nowhere");
            assert_eq!(self.waiting.remove(&done.partition), Some(done.epoch), "positioned, and nobody waits");
        }
        for partition in self.waiting.keys() {
            assert!(self.positions.is_waiting_for(partition), "{partition} is forgotten");
        }
        let next = self.positions.poll_timeout();
        assert!(next.is_none_or(|at| at > self.now), "a wake-up that is past would spin: {:?}", self.positions);
        let asks = !self.committed.is_empty() || !self.resets.is_empty();
        assert!(self.waiting.is_empty() || asks || next.is_some(), "nothing will ever happen: {:?}", self.positions);
    }

    /// What is asked is lost, then brokers answer as they should: everything begins somewhere.
    fn end(mut self, choices: &mut Choices<'_>) {
        self.led = 3;
        for id in self.committed.drain(..).chain(self.resets.drain(..)) {
            self.positions.handle_failure(self.now, id);
        }
        for _ in 0..50 {
            self.settle(choices);
            if self.waiting.is_empty() {
                return;
            }
            let next = self.positions.poll_timeout().unwrap_or(self.now);
            self.pass(next.saturating_duration_since(self.now));
            for id in std::mem::take(&mut self.committed) {
                self.positions.handle_committed(self.now, id, &none_committed());
            }
            for id in std::mem::take(&mut self.resets) {
                self.positions.handle_reset(self.now, id, &ends_at_seven());
            }
        }
        panic!("it begins nowhere: {:?}", self.positions);
    }
}

impl Member {
    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.at_once = 0;
    }

    fn asked(&mut self) {
        self.at_once += 1;
        assert!(self.at_once < STORM, "asks and asks, and no time passes");
    }
}

fn topic(choices: &mut Choices<'_>) -> StrBytes {
    StrBytes::from_static_str(choices.pick(&["t", "u", "v"]))
}

fn number(choices: &mut Choices<'_>) -> i32 {
    if choices.once_in(6) { choices.number() as i32 } else { choices.below(2) as i32 }
}

fn offsets(choices: &mut Choices<'_>) -> OffsetFetchResponse {
    let groups = (0..choices.below(3)).map(|_| {
        let topics = (0..choices.below(3)).map(|_| {
            let partitions = (0..choices.below(4)).map(|_| {
                let number = number(choices);
                let note = choices.pick(&[None, Some(""), Some("note")]);
                OffsetFetchResponsePartitions::default()
                    .with_partition_index(number)
                    .with_committed_offset(choices.number())
                    .with_committed_leader_epoch(choices.number() as i32)
                    .with_metadata(note.map(StrBytes::from_static_str))
                    .with_error_code(choices.code().0)
            });
            let partitions = partitions.collect();
            OffsetFetchResponseTopics::default().with_name(topic(choices).into()).with_partitions(partitions)
        });
        let topics = topics.collect();
        let group = StrBytes::from_static_str(choices.pick(&["g", "g", "h"]));
        let code = if choices.once_in(4) { choices.code().0 } else { 0 };
        OffsetFetchResponseGroup::default().with_group_id(GroupId(group)).with_error_code(code).with_topics(topics)
    });
    let groups = groups.collect();
    OffsetFetchResponse::default().with_groups(groups)
}

fn ends(choices: &mut Choices<'_>) -> ListOffsetsResponse {
    let topics = (0..choices.below(3)).map(|_| {
        let partitions = (0..choices.below(4)).map(|_| {
            let number = number(choices);
            ListOffsetsPartitionResponse::default()
                .with_partition_index(number)
                .with_offset(choices.number())
                .with_leader_epoch(choices.number() as i32)
                .with_error_code(choices.code().0)
        });
        let partitions = partitions.collect();
        ListOffsetsTopicResponse::default().with_name(topic(choices).into()).with_partitions(partitions)
    });
    let topics = topics.collect();
    ListOffsetsResponse::default().with_topics(topics)
}

fn none_committed() -> OffsetFetchResponse {
    let topics = ["t", "u"].map(|name| {
        let partitions = [0, 1].map(|number| {
            OffsetFetchResponsePartitions::default().with_partition_index(number).with_committed_offset(-1)
        });
        let name = StrBytes::from_static_str(name).into();
        OffsetFetchResponseTopics::default().with_name(name).with_partitions(partitions.to_vec())
    });
    let group = GroupId(StrBytes::from_static_str("g"));
    let group = OffsetFetchResponseGroup::default().with_group_id(group).with_topics(topics.to_vec());
    OffsetFetchResponse::default().with_groups(vec![group])
}

fn ends_at_seven() -> ListOffsetsResponse {
    let topics = ["t", "u"].map(|name| {
        let partitions =
            [0, 1].map(|number| ListOffsetsPartitionResponse::default().with_partition_index(number).with_offset(7));
        let name = StrBytes::from_static_str(name).into();
        ListOffsetsTopicResponse::default().with_name(name).with_partitions(partitions.to_vec())
    });
    ListOffsetsResponse::default().with_topics(topics.to_vec())
}

/// Two leaders and a coordinator for each assignment that comes at one instant, and their answers.
const STORM: u32 = 2_000;
