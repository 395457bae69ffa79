//! A fetcher, and brokers that answer anything.

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::Operated;
use crate::machine::fetch::{
    AnswerReader, FetchAnswer, FetchConfig, FetchEvent, FetchPlan, Fetched, Fetcher, IsolationLevel, Leader, NextFetch,
    PartitionOutcome, StartAt,
};
use crate::protocol::batch::{BatchWriter, Closing, ProducerStamp, ReadOptions};
use crate::protocol::choices::Choices;
use crate::protocol::compression::Compression;
use crate::protocol::shape::sample::Source;
use crate::record::{LeaderEpoch, NodeId, Offset, Timestamp, TopicPartition};

pub(super) struct Consumer {
    fetcher: Fetcher,
    now: Instant,
    assigned: BTreeMap<TopicPartition, Place>,
    plans: Vec<FetchPlan>,
    /// Handed over and not dropped.
    held: Vec<Fetched>,
    next_epoch: u64,
}

/// Where a partition is.
struct Place {
    epoch: u64,
    /// What comes next begins here.
    next: i64,
    paused: bool,
    resetting: bool,
}

impl Operated for Consumer {
    const OPERATIONS: u32 = 16;

    fn new(choices: &mut Choices<'_>) -> Self {
        let config = FetchConfig {
            max_bytes: 1 << 16,
            max_partition_bytes: 1 << 12,
            budget_bytes: 1 << 14,
            isolation: choices.pick(&[IsolationLevel::ReadCommitted, IsolationLevel::ReadUncommitted]),
            ..FetchConfig::default()
        };
        let fetcher = Fetcher::new(config);
        Self {
            fetcher,
            now: Instant::now(),
            assigned: BTreeMap::new(),
            plans: Vec::new(),
            held: Vec::new(),
            next_epoch: 0,
        }
    }

    fn act(&mut self, choices: &mut Choices<'_>, operation: u32) {
        let partition = partition(choices.below(PARTITIONS));
        match operation {
            0 => self.assign(choices, partition),
            1 => {
                self.assigned.remove(&partition);
                self.fetcher.revoke([&partition]);
            }
            2 | 3 => self.steer(&partition, operation == 2),
            4 => self.seek(choices, &partition),
            5 | 6 => self.lead(choices),
            7..=9 => self.answer(choices),
            10 => {
                if let Some(at) = choices.index(self.plans.len()) {
                    let plan = self.plans.remove(at);
                    self.fetcher.handle_failure(self.now, &plan);
                }
            }
            11 | 12 => self.take(choices),
            13 => {
                if let Some(at) = choices.index(self.held.len()) {
                    self.held.remove(at);
                }
            }
            14 => self.reset(choices),
            _ => {
                let time = choices.pick(&[1, 30, 500, 6_000, 31_000]);
                self.now += Duration::from_millis(time);
            }
        }
    }

    fn settle(&mut self, _: &mut Choices<'_>) {
        self.told();
        for node in [NodeId(0), NodeId(1)] {
            match self.fetcher.poll_request(self.now, node) {
                NextFetch::Send(plan) => {
                    assert!(plan.asked.fetches().next().is_some() && plan.max_bytes > 0);
                    assert!(self.plans.iter().all(|other| other.node != node || other.id != plan.id));
                    self.plans.push(plan);
                }
                NextFetch::Wait(next) => assert!(next.is_none_or(|at| at > self.now), "a wake-up that is past"),
            }
        }
    }

    /// Everything is given back and let go on, and the broker answers as it should: each partition is read.
    fn end(mut self, choices: &mut Choices<'_>) {
        self.held.clear();
        for plan in std::mem::take(&mut self.plans) {
            self.fetcher.handle_failure(self.now, &plan);
        }
        self.told();
        let partitions: Vec<_> = self.assigned.keys().cloned().collect();
        for at in &partitions {
            self.assign(choices, at.clone());
        }
        let topic_id = Uuid::from_u128(3);
        self.fetcher.update_leaders(|_| Some(Leader { node: NodeId(7), epoch: Some(LeaderEpoch(9)), topic_id }));
        let mut unread = partitions;
        for _ in 0..200 {
            while let Some(fetched) = self.fetcher.poll_batch() {
                self.handed(&fetched);
                unread.retain(|partition| *partition != fetched.partition);
            }
            if unread.is_empty() {
                break;
            }
            self.told();
            match self.fetcher.poll_request(self.now, NodeId(7)) {
                NextFetch::Send(plan) => {
                    let topics = plan.asked.fetches().map(|asked| {
                        let data = PartitionData::default()
                            .with_partition_index(asked.partition.partition)
                            .with_records(Some(batch(asked.offset.0, 9, None)));
                        FetchableTopicResponse::default().with_topic_id(topic_id).with_partitions(vec![data])
                    });
                    let response = FetchResponse::default().with_responses(topics.collect());
                    let mut reader = AnswerReader::new(response, ReadOptions::default(), self.fetcher.budget().clone());
                    let outcomes = std::iter::from_fn(|| reader.next(&plan)).filter_map(read).collect();
                    let answer =
                        FetchAnswer { throttle: Duration::ZERO, code: Default::default(), session: 0, outcomes };
                    self.fetcher.handle_answer(self.now, &plan, answer);
                }
                NextFetch::Wait(next) => self.now = next.unwrap_or(self.now + Duration::from_secs(1)),
            }
        }
        assert!(unread.is_empty(), "never read: {unread:?} {:?}", self.fetcher);
        self.fetcher.revoke(self.assigned.keys());
        assert_eq!(self.fetcher.budget().used(), 0, "memory that nobody holds is not given back");
    }
}

impl Consumer {
    fn assign(&mut self, choices: &mut Choices<'_>, partition: TopicPartition) {
        self.next_epoch += 1;
        let (epoch, offset) = (self.next_epoch, i64::from(choices.below(20)));
        let place = Place { epoch, next: offset, paused: false, resetting: false };
        self.assigned.insert(partition.clone(), place);
        let leader_epoch = leader_epoch(choices);
        self.fetcher.assign(StartAt { partition, epoch, offset: Offset(offset), leader_epoch });
    }

    fn steer(&mut self, partition: &TopicPartition, pause: bool) {
        let Some(place) = self.assigned.get_mut(partition) else { return };
        place.paused = pause;
        match pause {
            true => self.fetcher.pause(partition, place.epoch),
            false => self.fetcher.resume(partition, place.epoch),
        }
    }

    fn seek(&mut self, choices: &mut Choices<'_>, partition: &TopicPartition) {
        let leader_epoch = leader_epoch(choices);
        let Some(place) = self.assigned.get_mut(partition) else { return };
        place.next = i64::from(choices.below(20));
        place.resetting = false;
        self.fetcher.seek(partition, place.epoch, Offset(place.next), leader_epoch);
    }

    fn reset(&mut self, choices: &mut Choices<'_>) {
        let leader_epoch = leader_epoch(choices);
        let Some((partition, place)) = self.assigned.iter_mut().find(|(_, place)| place.resetting) else { return };
        place.next = i64::from(choices.below(20));
        place.resetting = false;
        self.fetcher.reposition(partition, place.epoch, Offset(place.next), leader_epoch);
    }

    fn lead(&mut self, choices: &mut Choices<'_>) {
        let (node, epoch) = (NodeId(choices.below(2) as i32), leader_epoch(choices));
        let topic_id = Uuid::from_u128(u128::from(choices.pick(&[0_u32, 1, 1, 1, 2])));
        let only = choices.below(PARTITIONS + 1);
        self.fetcher.update_leaders(|asked| {
            (only == PARTITIONS || *asked == partition(only)).then_some(Leader { node, epoch, topic_id })
        });
    }

    fn answer(&mut self, choices: &mut Choices<'_>) {
        let Some(at) = choices.index(self.plans.len()) else { return };
        let plan = if choices.once_in(8) { None } else { Some(self.plans.remove(at)) };
        let Some(plan) = plan.as_ref().or(self.plans.get(at)) else { return };
        let topics = (0..=choices.below(3)).map(|_| topic(choices, plan)).collect();
        let response = FetchResponse::default().with_responses(topics);
        let mut reader = AnswerReader::new(response, ReadOptions::default(), self.fetcher.budget().clone());
        let outcomes = std::iter::from_fn(|| reader.next(plan)).filter_map(read).collect();
        let answer = FetchAnswer {
            throttle: Duration::from_millis(choices.pick(&[0, 0, 0, 50, 30_000])),
            code: if choices.once_in(6) { choices.code() } else { Default::default() },
            session: choices.pick(&[0, 0, 5, -1]),
            outcomes,
        };
        self.fetcher.handle_answer(self.now, plan, answer);
    }

    fn take(&mut self, choices: &mut Choices<'_>) {
        self.told();
        let Some(fetched) = self.fetcher.poll_batch() else { return };
        self.handed(&fetched);
        if choices.once_in(2) && self.held.len() < 4 {
            self.held.push(fetched);
        }
    }

    fn handed(&mut self, fetched: &Fetched) {
        let place = self.assigned.get_mut(&fetched.partition).expect("handed over, and not assigned");
        assert!(place.epoch == fetched.epoch && !place.paused, "handed over, and not wanted");
        assert_eq!(fetched.chunk.from.0, place.next, "skipped or repeated");
        assert!(fetched.chunk.next_offset.0 > place.next, "the position does not move forward");
        place.next = fetched.chunk.next_offset.0;
    }

    fn told(&mut self) {
        while let Some(event) = self.fetcher.poll_event() {
            match event {
                FetchEvent::NeedsReset { partition, epoch, .. } => {
                    if let Some(place) = self.assigned.get_mut(&partition).filter(|place| place.epoch == epoch) {
                        place.resetting = true;
                    }
                }
                FetchEvent::Truncated { partition, from, to } => {
                    assert!(to < from, "a truncation that takes nothing away");
                    if let Some(place) = self.assigned.get_mut(&partition) {
                        place.next = to.0;
                    }
                }
                _ => {}
            }
        }
    }
}

fn leader_epoch(choices: &mut Choices<'_>) -> Option<LeaderEpoch> {
    choices.once_in(2).then(|| LeaderEpoch(choices.below(4) as i32))
}

/// A partition that was read, where it is not only another's turn.
fn read(read: Poll<(usize, PartitionOutcome)>) -> Option<(usize, PartitionOutcome)> {
    match read {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

fn topic(choices: &mut Choices<'_>, plan: &FetchPlan) -> FetchableTopicResponse {
    // Not by places, which are a hash map's: a seed would not be the same run again.
    let mut all: Vec<_> = plan.asked.fetches().collect();
    all.sort_by(|a, b| a.partition.cmp(&b.partition));
    let asked = choices.index(all.len()).map(|at| all[at]);
    let partitions = (0..=choices.below(2)).map(|_| {
        let number = asked.filter(|_| !choices.once_in(6)).map_or(choices.number() as i32, |at| at.partition.partition);
        data(choices, number, asked.map_or(0, |asked| asked.offset.0))
    });
    let partitions = partitions.collect();
    let (name, id) = asked.map_or(("t", Uuid::nil()), |asked| (asked.partition.topic.as_str(), asked.topic_id));
    let name = StrBytes::from_string(name.to_owned());
    FetchableTopicResponse::default().with_topic(name.into()).with_topic_id(id).with_partitions(partitions)
}

fn data(choices: &mut Choices<'_>, number: i32, offset: i64) -> PartitionData {
    let diverging = EpochEndOffset::default()
        .with_epoch(choices.pick(&[-1, -1, -1, 0, 1, i32::MAX]))
        .with_end_offset(choices.pick(&[-1, 0, offset - 1, offset + 1, i64::MAX]));
    let aborted = (0..choices.below(3)).map(|_| {
        let first = choices.pick(&[offset, offset - 3, -1, i64::MAX]);
        AbortedTransaction::default().with_producer_id(7.into()).with_first_offset(first)
    });
    let aborted = aborted.collect();
    let records = (0..choices.below(3)).flat_map(|_| records(choices, offset)).collect::<Vec<u8>>();
    PartitionData::default()
        .with_partition_index(number)
        .with_error_code(if choices.once_in(4) { choices.code().0 } else { 0 })
        .with_high_watermark(choices.number())
        .with_last_stable_offset(choices.number())
        .with_diverging_epoch(diverging)
        .with_preferred_read_replica(choices.pick(&[-1, -1, -1, 0, 1]).into())
        .with_aborted_transactions(choices.once_in(2).then_some(aborted))
        .with_records(choices.once_in(8).then_some(Bytes::new()).or(Some(records.into())))
}

/// A batch somewhere around the offset, mostly whole.
pub(super) fn records(choices: &mut Choices<'_>, offset: i64) -> Vec<u8> {
    let base = choices.pick(&[offset, offset, offset, offset + 2, offset - 1, 0, -1, i64::MAX, i64::MAX - 1]);
    let producer = choices.once_in(2).then_some(ProducerStamp { id: 7, epoch: 0, base_sequence: 0 });
    let mut bytes = batch(base, choices.number() as i32, producer).to_vec();
    match choices.below(12) {
        0 => {
            let length = choices.below(bytes.len() as u32) as usize;
            bytes.truncate(length);
        }
        1 => {
            if let Some(at) = choices.index(bytes.len()) {
                bytes[at] ^= 1 << choices.below(8);
            }
        }
        _ => {}
    }
    bytes
}

fn batch(base_offset: i64, leader_epoch: i32, producer: Option<ProducerStamp>) -> Bytes {
    let mut writer = BatchWriter::new(Compression::NONE);
    for _ in 0..2 {
        writer.append(Timestamp(0), None, Some(b"value"), []).expect("it is small");
    }
    let closing = Closing { producer, is_transactional: producer.is_some(), is_control: false };
    let mut bytes = writer.close(closing).expect("it has records").into_bytes().to_vec();
    // Neither is covered by the checksum: brokers set them.
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
    bytes.into()
}

fn partition(number: u32) -> TopicPartition {
    TopicPartition::new(if number < 2 { "t" } else { "u" }, (number % 2) as i32)
}

const PARTITIONS: u32 = 3;
