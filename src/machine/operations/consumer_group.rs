//! A member of a KIP-848 group, and a coordinator that says anything.

use std::time::{Duration, Instant};

use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::{ConsumerGroupHeartbeatResponse, DescribeGroupsResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::owned::Owned;
use crate::machine::group::{CommitGate, CommitReaction, ConsumerGroup, Failure, GroupConfig, GroupRequest, RequestId};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::record::{NodeId, Topic};

pub(super) fn run(choices: &mut Choices<'_>) {
    let mut member = Member::new(choices);
    while let Some(operation) = member.choices.operation(12) {
        member.act(operation);
        member.settle();
    }
    member.end();
}

struct Member<'c, 'a> {
    choices: &'c mut Choices<'a>,
    group: ConsumerGroup,
    now: Instant,
    asked: Vec<(RequestId, Kind)>,
    owned: Owned,
    at_once: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Find,
    Describe,
    Heartbeat,
}

impl<'c, 'a> Member<'c, 'a> {
    fn new(choices: &'c mut Choices<'a>) -> Self {
        let mut config = GroupConfig::new("g");
        if choices.once_in(4) {
            config.instance_id = Some(StrBytes::from_static_str("i"));
        }
        let now = Instant::now();
        let topics = ["t".into(), "u".into()];
        let mut group = ConsumerGroup::new(now, config, topics, "m".to_owned(), u64::from(choices.below(9)));
        if choices.once_in(3) {
            group = group.or_classic();
        }
        Self { choices, group, now, asked: Vec::new(), owned: Owned::default(), at_once: 0 }
    }

    fn act(&mut self, operation: u32) {
        match operation {
            0..=5 => self.answer(),
            6 => self.fail(),
            7 => {
                let time = self.choices.pick(&[1, 20, 3_000, 15_000, 46_000, 310_000]);
                self.pass(Duration::from_millis(time));
            }
            8 => self.pass_to_the_next(),
            9 => self.group.released(self.now),
            10 => self.tell(),
            _ => {
                if self.choices.once_in(6) {
                    self.leave();
                }
            }
        }
    }

    fn leave(&mut self) {
        self.group.leave();
        self.owned.leave();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.at_once = 0;
        self.group.handle_timeout(self.now);
    }

    fn pass_to_the_next(&mut self) {
        if let Some(at) = self.group.poll_timeout() {
            self.pass(at.saturating_duration_since(self.now));
        }
    }

    fn answer(&mut self) {
        let Some(at) = self.choices.index(self.asked.len()) else { return };
        let (id, kind) = if self.choices.once_in(8) { self.asked[at] } else { self.asked.remove(at) };
        match kind {
            Kind::Find => {
                let node = NodeId(self.choices.below(3) as i32 - 1);
                self.group.handle_coordinator(self.now, id, Ok(node));
            }
            Kind::Describe => {
                let answer = self.description();
                self.group.handle_description(self.now, id, &answer);
            }
            Kind::Heartbeat => {
                let answer = self.heartbeat();
                let known = self.choices.below(4);
                self.group.handle_heartbeat(self.now, id, &answer, |topic| name(topic, known));
            }
        }
    }

    fn description(&mut self) -> DescribeGroupsResponse {
        let groups = (0..self.choices.below(3)).map(|_| {
            let state = self.choices.pick(&["Stable", "Empty", "Dead", "PreparingRebalance", "what"]);
            let code = self.choices.code().0;
            DescribedGroup::default().with_error_code(code).with_group_state(StrBytes::from_static_str(state))
        });
        let groups = groups.collect();
        DescribeGroupsResponse::default().with_groups(groups)
    }

    fn heartbeat(&mut self) -> ConsumerGroupHeartbeatResponse {
        let member = self.choices.pick(&[None, Some("m"), Some("n"), Some("")]);
        let assignment = self.choices.once_in(2).then(|| {
            let topics = (0..self.choices.below(3)).map(|_| {
                let partitions = (0..self.choices.below(3)).map(|_| self.choices.pick(&[0, 1, -1, i32::MAX]));
                let partitions = partitions.collect();
                let id = Uuid::from_u128(u128::from(self.choices.below(4)));
                TopicPartitions::default().with_topic_id(id).with_partitions(partitions)
            });
            let topics = topics.collect();
            Assignment::default().with_topic_partitions(topics)
        });
        ConsumerGroupHeartbeatResponse::default()
            .with_error_code(self.choices.code().0)
            .with_member_id(member.map(StrBytes::from_static_str))
            .with_member_epoch(self.choices.number() as i32)
            .with_heartbeat_interval_ms(self.choices.number() as i32)
            .with_assignment(assignment)
    }

    fn fail(&mut self) {
        let Some(at) = self.choices.index(self.asked.len()) else { return };
        let (id, kind) = self.asked.remove(at);
        let failure =
            Failure { fatal: self.choices.once_in(12), silent: self.choices.once_in(2), what: "lost".to_owned() };
        match kind {
            Kind::Find => self.group.handle_coordinator(self.now, id, Err(failure)),
            _ => self.group.handle_failure(self.now, id, failure),
        }
    }

    fn tell(&mut self) {
        match self.choices.below(3) {
            0 => {
                let known = self.choices.below(4);
                self.group.handle_names(self.now, |topic| name(topic, known));
            }
            1 => self.group.coordinator_moved(self.now, NodeId(self.choices.below(2) as i32)),
            _ => {
                let CommitGate::Open(mut target) = self.group.commit_gate() else { return };
                if self.choices.once_in(3) {
                    target.generation = self.choices.number() as i32;
                }
                let reaction = CommitReaction {
                    moved: self.choices.once_in(3),
                    rebalance: self.choices.once_in(3),
                    fenced: Some(self.choices.code()).filter(|code| !code.is_ok()),
                    target: Some(target),
                };
                self.group.handle_commit_reaction(self.now, &reaction);
            }
        }
    }

    fn settle(&mut self) {
        self.group.handle_timeout(self.now);
        loop {
            let transmit = self.group.poll_transmit(self.now);
            while let Some(event) = self.group.poll_event() {
                self.owned.take(event);
            }
            let Some(transmit) = transmit else { break };
            self.at_once += 1;
            let kind = match transmit.request {
                GroupRequest::FindCoordinator => Kind::Find,
                GroupRequest::Describe(..) => Kind::Describe,
                GroupRequest::ConsumerHeartbeat(_, request) => {
                    assert!(!request.member_id.is_empty(), "a member without an id");
                    Kind::Heartbeat
                }
                other => panic!("{other:?} of a member of the new protocol"),
            };
            self.asked.retain(|(_, asked)| *asked != kind);
            self.asked.push((transmit.id, kind));
            assert!(self.at_once < STORM, "asks and asks, and no time passes");
        }
        let next = self.group.poll_timeout();
        if self.group.is_ended() {
            assert!(self.owned.ended && next.is_none(), "over, and not told or still waiting");
            return;
        }
        assert!(next.is_none_or(|at| at > self.now), "a wake-up that is past would spin: {:?}", self.group);
        assert!(next.is_some() || !self.asked.is_empty(), "nothing will ever happen: {:?}", self.group);
    }

    fn end(mut self) {
        if self.group.is_ended() {
            return;
        }
        self.leave();
        for _ in 0..100 {
            self.settle();
            if self.group.is_ended() {
                return;
            }
            match self.asked.pop() {
                Some((id, Kind::Find)) => self.group.handle_coordinator(self.now, id, Ok(NodeId(1))),
                Some((id, _)) => {
                    let failure = Failure { fatal: false, silent: true, what: "lost".to_owned() };
                    self.group.handle_failure(self.now, id, failure);
                }
                None => self.pass_to_the_next(),
            }
        }
        panic!("it does not leave: {:?}", self.group);
    }
}

/// The topics by their ids, as far as they are known. Two ids have one name, as after a topic was created anew.
fn name(id: Uuid, known: u32) -> Option<Topic> {
    let id = id.as_u128() as u32;
    (id < known).then(|| ["t", "u", "t", "v"][id as usize % 4].into())
}

const STORM: u32 = 64;
