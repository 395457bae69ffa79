mod isolation;

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{EpochEndOffset, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use proptest::prelude::*;

use super::*;
use crate::protocol::batch::{BatchWriter, Closing, EncodedBatch};
use crate::protocol::compression::{Codec, Compression};
use crate::record::Timestamp;

const NODE: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

fn tp(partition: i32) -> TopicPartition {
    TopicPartition::new("orders", partition)
}

/// Brokers' logs, and a fetcher that reads them in virtual time.
struct Rig {
    now: Instant,
    fetcher: Fetcher,
    logs: HashMap<TopicPartition, Log>,
    leaders: HashMap<TopicPartition, Leader>,
}

#[derive(Default)]
struct Log {
    start: i64,
    batches: Vec<Bytes>,
    end: i64,
    refuse: Option<ErrorCode>,
    diverging: Option<(i32, i64)>,
}

impl Rig {
    fn new(partitions: i32, config: FetchConfig) -> Self {
        let mut rig =
            Self { now: Instant::now(), fetcher: Fetcher::new(config), logs: HashMap::new(), leaders: HashMap::new() };
        for partition in 0..partitions {
            rig.logs.insert(tp(partition), Log::default());
            rig.lead(partition, NODE, 1);
            rig.fetcher.assign(start(partition, 0, None));
        }
        rig.update();
        rig
    }

    fn lead(&mut self, partition: i32, node: NodeId, epoch: i32) {
        let leader = Leader { node, epoch: Some(LeaderEpoch(epoch)), topic_id: Uuid::from_u128(7) };
        self.leaders.insert(tp(partition), leader);
    }

    fn update(&mut self) {
        self.fetcher.update_leaders(|partition| self.leaders.get(partition).copied());
    }

    /// Appends a batch of `records` with values of `bytes`.
    fn append(&mut self, partition: i32, records: i64, bytes: usize) {
        self.append_as(partition, records, bytes, Codec::None);
    }

    fn append_as(&mut self, partition: i32, records: i64, bytes: usize, codec: Codec) {
        let log = self.logs.get_mut(&tp(partition)).unwrap();
        let mut writer = BatchWriter::new(Compression::new(codec));
        for _ in 0..records {
            let value = vec![b'v'; bytes];
            writer.append(Timestamp(1), None, Some(&value), std::iter::empty()).unwrap();
        }
        let batch = writer.close(Closing::default()).unwrap().with_base_offset(Offset(log.end)).unwrap();
        log.batches.push(batch.into_bytes());
        log.end += records;
    }

    /// As if all that the log holds had been written under this leader epoch.
    fn stamp(&mut self, partition: i32, epoch: i32) {
        for batch in &mut self.logs.get_mut(&tp(partition)).unwrap().batches {
            let mut stamped = BytesMut::from(&batch[..]);
            // No part of what the checksum covers: brokers write it.
            stamped[12..16].copy_from_slice(&epoch.to_be_bytes());
            *batch = stamped.freeze();
        }
    }

    /// Appends what compaction leaves of a batch whose records were all deleted.
    fn append_emptied(&mut self, partition: i32, offsets: i64) {
        let log = self.logs.get_mut(&tp(partition)).unwrap();
        log.batches.push(emptied(log.end, offsets));
        log.end += offsets;
    }

    fn ask(&mut self, node: NodeId) -> FetchPlan {
        match self.fetcher.poll_request(self.now, node) {
            NextFetch::Send(plan) => plan,
            NextFetch::Wait(until) => panic!("nothing to ask: {until:?}, {:?}", self.fetcher),
        }
    }

    fn wait(&mut self, node: NodeId) -> Option<Instant> {
        match self.fetcher.poll_request(self.now, node) {
            NextFetch::Send(plan) => panic!("asked: {plan:?}"),
            NextFetch::Wait(until) => until,
        }
    }

    /// Answers as Kafka does: whole batches within the limits, but always the first of all.
    fn response(&self, plan: &FetchPlan) -> FetchResponse {
        let mut left = plan.max_bytes;
        let mut topic = FetchableTopicResponse::default().with_topic_id(Uuid::from_u128(7));
        for asked in &plan.partitions {
            let mut data = PartitionData::default().with_partition_index(asked.partition.partition);
            let log = &self.logs[&asked.partition];
            data.error_code = self.refusal(plan.node, asked, log).0;
            if data.error_code == 0 {
                match (asked.last_fetched_epoch, log.diverging) {
                    (Some(_), Some((epoch, end))) => {
                        data.diverging_epoch = EpochEndOffset::default().with_epoch(epoch).with_end_offset(end);
                    }
                    _ => {
                        let records = log.read(asked.offset.0, asked.max_bytes.min(left), left == plan.max_bytes);
                        left = left.saturating_sub(records.len());
                        data.records = Some(records);
                    }
                }
            }
            topic.partitions.push(data);
        }
        FetchResponse::default().with_responses(vec![topic])
    }

    fn refusal(&self, node: NodeId, asked: &PlannedFetch, log: &Log) -> ErrorCode {
        let leader = self.leaders[&asked.partition];
        if let Some(code) = log.refuse {
            code
        } else if leader.node != node {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        } else if asked.offset.0 < log.start || asked.offset.0 > log.end {
            ErrorCode::OFFSET_OUT_OF_RANGE
        } else {
            ErrorCode::NONE
        }
    }

    fn answer(&mut self, plan: &FetchPlan, response: FetchResponse) {
        let mut reader = AnswerReader::new(response, ReadOptions::default(), self.fetcher.budget().clone());
        let mut outcomes = Vec::new();
        while let Some(outcome) = reader.next(plan) {
            outcomes.push(outcome);
        }
        drop(reader);
        let answer = FetchAnswer { throttle: Duration::ZERO, code: ErrorCode::NONE, outcomes };
        self.fetcher.handle_answer(self.now, plan, answer);
    }

    /// One request and its answer.
    fn fetch(&mut self) -> FetchPlan {
        let plan = self.ask(NODE);
        let response = self.response(&plan);
        self.answer(&plan, response);
        plan
    }

    fn asked(&self, plan: &FetchPlan) -> BTreeSet<i32> {
        plan.partitions.iter().map(|asked| asked.partition.partition).collect()
    }

    fn take(&mut self) -> (i32, std::ops::Range<i64>) {
        let fetched = self.fetcher.poll_batch().expect("something is buffered");
        span(&fetched)
    }

    fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.fetcher.poll_event()).map(|event| format!("{event:?}")).collect()
    }
}

impl Log {
    fn read(&self, offset: i64, max_bytes: usize, at_least_one: bool) -> Bytes {
        let mut records = BytesMut::new();
        for batch in &self.batches {
            let base = i64::from_be_bytes(*batch.first_chunk().unwrap());
            let delta = i32::from_be_bytes(*batch[23..].first_chunk().unwrap());
            if base + i64::from(delta) < offset {
                continue;
            }
            if records.len() + batch.len() > max_bytes && !(records.is_empty() && at_least_one) {
                break;
            }
            records.put_slice(batch);
        }
        records.freeze()
    }
}

fn start(partition: i32, offset: i64, leader_epoch: Option<i32>) -> StartAt {
    let leader_epoch = leader_epoch.map(LeaderEpoch);
    StartAt { partition: tp(partition), epoch: 1, offset: Offset(offset), leader_epoch }
}

fn span(fetched: &Fetched) -> (i32, std::ops::Range<i64>) {
    (fetched.partition.partition, fetched.chunk.from.0..fetched.chunk.next_offset.0)
}

fn emptied(base: i64, offsets: i64) -> Bytes {
    let mut tail = BytesMut::new();
    tail.put_i16(0);
    tail.put_i32(i32::try_from(offsets - 1).unwrap());
    tail.put_i64(0);
    tail.put_i64(0);
    tail.put_i64(-1);
    tail.put_i16(-1);
    tail.put_i32(-1);
    tail.put_i32(0);
    let mut batch = BytesMut::new();
    batch.put_i64(base);
    batch.put_i32(i32::try_from(9 + tail.len()).unwrap());
    batch.put_i32(0);
    batch.put_i8(2);
    batch.put_u32(crc32c::crc32c(&tail));
    batch.put(tail);
    batch.freeze()
}

fn small() -> FetchConfig {
    FetchConfig { max_partition_bytes: 10_000, budget_bytes: 1 << 20, ..FetchConfig::default() }
}

#[test]
fn every_partition_is_read_in_order_and_in_turn() {
    let mut rig = Rig::new(2, small());
    for _ in 0..3 {
        rig.append(0, 10, 10);
        rig.append(1, 5, 10);
    }
    let plan = rig.fetch();
    assert_eq!(rig.asked(&plan), [0, 1].into());
    let mut got = [rig.take(), rig.take()];
    got.sort_by_key(|(partition, _)| *partition);
    assert_eq!(got, [(0, 0..30), (1, 0..15)]);
    assert!(rig.fetcher.poll_batch().is_none());
    rig.append(1, 1, 1);
    rig.fetch();
    assert_eq!(rig.take(), (1, 15..16));
}

/// Clients that took the next offset from the last record asked for a compacted batch for ever (kafkajs#562).
#[test]
fn an_emptied_batch_moves_the_position_and_can_be_committed_past() {
    let mut rig = Rig::new(1, small());
    rig.append_emptied(0, 10);
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..10));
    let plan = rig.ask(NODE);
    assert_eq!(plan.partitions[0].offset, Offset(10));
}

#[test]
fn an_answer_with_whole_batches_begins_before_what_was_asked_for() {
    let mut rig = Rig::new(1, small());
    rig.append_as(0, 10, 10, if Codec::Lz4.is_enabled() { Codec::Lz4 } else { Codec::None });
    rig.fetcher.seek(&tp(0), 1, Offset(4), None);
    rig.fetch();
    let fetched = rig.fetcher.poll_batch().unwrap();
    assert_eq!(span(&fetched), (0, 4..10));
    assert_eq!(fetched.chunk.batches[0].header().base_offset, Offset(0));
}

/// Old buffered data after a seek moved a commit backwards (librdkafka#4686, #3471).
#[test]
fn a_seek_drops_what_was_buffered_and_what_is_on_its_way() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetch();
    rig.append(0, 10, 10);
    let plan = rig.ask(NODE);
    rig.fetcher.seek(&tp(0), 1, Offset(15), None);
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert!(rig.fetcher.poll_batch().is_none());
    assert_eq!(rig.fetcher.budget().used(), 0);
    rig.fetch();
    assert_eq!(rig.take(), (0, 15..20));
}

#[test]
fn a_seek_of_an_earlier_assignment_does_nothing() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.revoke([&tp(0)]);
    rig.fetcher.assign(StartAt { epoch: 2, ..start(0, 3, None) });
    rig.update();
    rig.fetcher.seek(&tp(0), 1, Offset(9), None);
    rig.fetcher.pause(&tp(0), 1);
    rig.fetch();
    assert_eq!(rig.take(), (0, 3..10));
}

#[test]
fn a_partition_that_went_and_came_back_takes_no_answer_of_its_earlier_assignment() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    let plan = rig.ask(NODE);
    rig.fetcher.revoke([&tp(0)]);
    rig.fetcher.assign(StartAt { epoch: 2, ..start(0, 0, None) });
    rig.update();
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert!(rig.fetcher.poll_batch().is_none());
}

#[test]
fn a_pause_keeps_what_is_buffered_and_asks_for_no_more() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 10, 10);
    rig.fetch();
    rig.fetcher.pause(&tp(0), 1);
    assert!(rig.fetcher.poll_batch().is_none());
    let plan = rig.ask(NODE);
    // Briefly: the other may be resumed at any moment, and then has to wait for this request.
    assert_eq!((rig.asked(&plan), plan.max_wait), ([1].into(), WAIT_BESIDE_PAUSED));
    rig.fetcher.resume(&tp(0), 1);
    assert_eq!(rig.take(), (0, 0..10));
}

#[test]
fn paused_partitions_give_up_their_buffers_before_others_starve_and_read_them_again() {
    let config = FetchConfig { budget_bytes: 400 << 10, max_partition_bytes: 300 << 10, ..FetchConfig::default() };
    let mut rig = Rig::new(2, config);
    rig.append(0, 10, 20 << 10);
    rig.fetch();
    rig.fetcher.pause(&tp(0), 1);
    assert!(rig.fetcher.budget().used() > 200 << 10);
    rig.append(1, 1, 10);
    let plan = rig.ask(NODE);
    assert_eq!(rig.asked(&plan), [1].into());
    assert_eq!(rig.fetcher.budget().used(), 0);
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert_eq!(rig.take(), (1, 0..1));
    rig.fetcher.resume(&tp(0), 1);
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..10));
}

#[test]
fn what_is_handed_out_and_not_dropped_counts_against_the_budget() {
    let config = FetchConfig { budget_bytes: 1 << 20, max_partition_bytes: 400 << 10, ..FetchConfig::default() };
    let mut rig = Rig::new(1, config);
    for _ in 0..8 {
        rig.append(0, 3, 100 << 10);
    }
    let mut handed = Vec::new();
    while let NextFetch::Send(plan) = rig.fetcher.poll_request(rig.now, NODE) {
        let response = rig.response(&plan);
        rig.answer(&plan, response);
        handed.extend(rig.fetcher.poll_batch());
        assert!(rig.fetcher.budget().used() <= 1 << 20, "{:?}", rig.fetcher.budget());
    }
    assert!((2..8).contains(&handed.len()), "{}", handed.len());
    let next = handed.last().unwrap().chunk.next_offset;
    handed.clear();
    let plan = rig.ask(NODE);
    assert_eq!(plan.partitions[0].offset, next);
}

#[test]
fn a_slow_partition_does_not_use_up_the_others_share() {
    let config = FetchConfig { budget_bytes: 2 << 20, max_partition_bytes: 200 << 10, ..FetchConfig::default() };
    let mut rig = Rig::new(2, config);
    for _ in 0..50 {
        rig.append(0, 1, 100 << 10);
    }
    let mut slow = Vec::new();
    for round in 0..50 {
        rig.append(1, 1, 100);
        rig.fetch();
        let mut got_other = false;
        while let Some(fetched) = rig.fetcher.poll_batch() {
            match fetched.partition.partition {
                0 => slow.push(fetched),
                _ => got_other = true,
            }
        }
        assert!(got_other, "round {round}");
    }
    assert!(rig.fetcher.budget().used() <= 2 << 20);
    assert!(slow.len() > 2);
}

#[test]
fn whoever_waited_longest_is_asked_for_first() {
    // Room for one batch of one partition in each answer.
    let config = FetchConfig { max_bytes: 1_000, ..small() };
    let mut rig = Rig::new(3, config);
    for partition in 0..3 {
        for _ in 0..10 {
            rig.append(partition, 1, 900);
        }
    }
    let mut order = Vec::new();
    for _ in 0..9 {
        rig.fetch();
        order.push(rig.take().0);
    }
    for round in order.chunks(3) {
        assert_eq!(round.iter().copied().collect::<BTreeSet<_>>(), [0, 1, 2].into(), "{order:?}");
    }
}

/// A partition whose records are drained just after the request left would else wait for the others' long poll.
#[test]
fn a_request_that_leaves_out_buffered_partitions_waits_briefly() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 1, 15_000);
    let plan = rig.fetch();
    assert_eq!(plan.max_wait, Duration::from_millis(500));
    let plan = rig.fetch();
    assert_eq!((rig.asked(&plan), plan.max_wait), ([1].into(), Duration::from_millis(5)));
    rig.now += Duration::from_millis(20);
    let plan = rig.fetch();
    assert_eq!((rig.asked(&plan), plan.max_wait), ([1].into(), Duration::from_millis(10)));
    rig.now += Duration::from_millis(20);
    rig.take();
    let plan = rig.fetch();
    assert_eq!((rig.asked(&plan), plan.max_wait), ([0, 1].into(), Duration::from_millis(500)));
}

#[test]
fn handing_over_says_whom_to_ask_for_more() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 1, 15_000);
    rig.fetch();
    assert_eq!(rig.wait(NODE), None);
    let fetched = rig.fetcher.poll_batch().unwrap();
    assert_eq!(fetched.wake, Some(NODE));
    rig.ask(NODE);
}

/// Out of range was never recovered from (platformatic#286), or asked of a follower (librdkafka#4616).
#[test]
fn out_of_range_asks_for_a_reset_once_and_goes_on_where_it_is_put() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 10, 10);
    rig.append(0, 10, 10);
    rig.logs.get_mut(&tp(0)).unwrap().start = 10;
    rig.fetch();
    assert_eq!(rig.events().len(), 1);
    let plan = rig.fetch();
    assert_eq!((rig.asked(&plan), rig.events().len()), ([1].into(), 0));
    rig.fetcher.reposition(&tp(0), 1, Offset(10), None);
    rig.now += Duration::from_millis(500);
    rig.fetch();
    assert_eq!(rig.take(), (0, 10..20));
    // Late answers of a second reset move nothing.
    rig.fetcher.reposition(&tp(0), 1, Offset(12), None);
    assert_eq!(rig.ask(NODE).partitions.iter().find(|p| p.partition == tp(0)).unwrap().offset, Offset(20));
}

/// Brokers say out of range, too, when they do not know the epoch that they are to check (KAFKA-9840).
#[test]
fn an_unknown_epoch_is_not_read_as_data_loss() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.assign(start(0, 5, Some(3)));
    rig.update();
    let plan = rig.ask(NODE);
    assert_eq!(plan.partitions[0].last_fetched_epoch, Some(LeaderEpoch(3)));
    rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(ErrorCode::OFFSET_OUT_OF_RANGE);
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert!(rig.events().is_empty());
    rig.logs.get_mut(&tp(0)).unwrap().refuse = None;
    let plan = rig.fetch();
    assert_eq!(plan.partitions[0].last_fetched_epoch, None);
    assert_eq!(rig.take(), (0, 5..10));
}

/// A committed position above a truncation was answered by a full reset (librdkafka#5158).
#[test]
fn a_truncated_log_is_read_from_where_it_diverged() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.assign(start(0, 9, Some(3)));
    rig.update();
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((2, 6));
    rig.fetch();
    let events = rig.events();
    assert!(events.len() == 1 && events[0].starts_with("Truncated"), "{events:?}");
    rig.fetch();
    assert_eq!(rig.take(), (0, 6..10));
}

/// Where it was truncated to was known, and its epoch thrown away: the next leader was not asked (librdkafka#5158).
#[test]
fn a_position_keeps_its_epoch_through_a_truncation_and_a_reset() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 10, 10);
    rig.fetcher.assign(start(0, 9, Some(3)));
    rig.update();
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((2, 6));
    rig.fetch();
    rig.fetcher.pause(&tp(0), 1);
    rig.logs.get_mut(&tp(1)).unwrap().refuse = Some(ErrorCode::OFFSET_OUT_OF_RANGE);
    rig.fetch();
    rig.fetcher.reposition(&tp(1), 1, Offset(40), Some(LeaderEpoch(2)));
    rig.fetcher.resume(&tp(0), 1);
    for partition in 0..2 {
        rig.lead(partition, OTHER, 4);
    }
    rig.update();
    let asked: Vec<_> = rig.ask(OTHER).partitions.iter().map(|asked| asked.last_fetched_epoch).collect();
    assert_eq!(asked, [Some(LeaderEpoch(2)); 2]);
}

/// A leader that changes while its answer is on its way: the answer was taken for the new leader's check, and what it had
/// lost was not found out (librdkafka#4261).
#[test]
fn records_of_the_leader_before_do_not_stand_for_the_new_ones_check() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.stamp(0, 1);
    let late = rig.ask(NODE);
    let response = rig.response(&late);
    rig.lead(0, OTHER, 2);
    rig.update();
    rig.answer(&late, response);
    assert_eq!(rig.take(), (0, 0..10));
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((1, 6));
    let plan = rig.ask(OTHER);
    assert_eq!(plan.partitions[0].last_fetched_epoch, Some(LeaderEpoch(1)));
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    let events = rig.events();
    assert!(events.len() == 1 && events[0].starts_with("Truncated"), "{events:?}");
    assert_eq!(rig.ask(OTHER).partitions[0].offset, Offset(6));
}

/// A refusal that came late made the position be reset, or the new leader wait (librdkafka#4433).
#[test]
fn what_the_leader_before_says_of_the_log_is_asked_of_the_new_one() {
    let refusals = [ErrorCode::OFFSET_OUT_OF_RANGE, ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH];
    for refusal in refusals.map(Some).into_iter().chain([None]) {
        let mut rig = Rig::new(1, small());
        rig.append(0, 10, 10);
        rig.fetcher.assign(start(0, 5, Some(1)));
        rig.update();
        if refusal.is_none() {
            rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((1, 2));
        }
        rig.logs.get_mut(&tp(0)).unwrap().refuse = refusal;
        let late = rig.ask(NODE);
        let response = rig.response(&late);
        rig.lead(0, OTHER, 2);
        rig.update();
        rig.answer(&late, response);
        assert!(rig.events().is_empty(), "{refusal:?}");
        let plan = rig.ask(OTHER);
        let asked = &plan.partitions[0];
        assert_eq!((asked.offset, asked.last_fetched_epoch), (Offset(5), Some(LeaderEpoch(1))), "{refusal:?}");
    }
}

/// A position that was given by the caller was not checked (librdkafka#5158): behind a truncation it was out of range, and
/// reset from one end of the log to the other.
#[test]
fn a_seek_with_its_epoch_is_checked_for_truncation() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.seek(&tp(0), 1, Offset(9), Some(LeaderEpoch(3)));
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((2, 6));
    rig.fetch();
    let events = rig.events();
    assert!(events.len() == 1 && events[0].starts_with("Truncated"), "{events:?}");
    rig.fetch();
    assert_eq!(rig.take(), (0, 6..10));
}

#[test]
fn a_paused_partition_that_gave_up_its_buffer_is_still_checked_for_truncation() {
    let config = FetchConfig { budget_bytes: 400 << 10, max_partition_bytes: 300 << 10, ..FetchConfig::default() };
    let mut rig = Rig::new(2, config);
    for _ in 0..2 {
        rig.append(0, 10, 20 << 10);
        rig.stamp(0, 1);
    }
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..10));
    rig.fetch();
    rig.fetcher.pause(&tp(0), 1);
    rig.append(1, 1, 10);
    rig.lead(0, OTHER, 2);
    rig.update();
    rig.ask(NODE);
    assert_eq!(rig.fetcher.budget().used(), 0, "the buffer was given up");
    rig.fetcher.resume(&tp(0), 1);
    let asked = rig.ask(OTHER).partitions.remove(0);
    assert_eq!((asked.offset, asked.last_fetched_epoch), (Offset(10), Some(LeaderEpoch(1))));
}

#[test]
fn an_undefined_diverging_epoch_changes_nothing() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.assign(start(0, 9, Some(3)));
    rig.update();
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((-1, -1));
    rig.fetch();
    rig.now += QUIET_PAUSE;
    rig.fetch();
    assert_eq!(rig.take(), (0, 9..10));
    assert!(rig.events().is_empty());
}

/// The old epoch was resent for ever (platformatic#250).
#[test]
fn a_moved_leader_makes_metadata_stale_without_a_loop_and_the_new_one_is_asked_at_once() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.lead(0, OTHER, 2);
    rig.fetch();
    let events = rig.events();
    assert!(events.len() == 1 && events[0].starts_with("Stale"), "{events:?}");
    let again = rig.wait(NODE).expect("tried again later");
    assert!(again >= rig.now + Duration::from_millis(100));
    rig.update();
    assert_eq!(rig.wait(NODE), None);
    let plan = rig.ask(OTHER);
    assert_eq!(plan.partitions[0].leader_epoch, Some(LeaderEpoch(2)));
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert_eq!(rig.take(), (0, 0..10));
}

/// A code that was not known to mean old metadata had the old epoch sent for ever (platformatic#250).
#[test]
fn whatever_says_that_the_leader_is_another_has_metadata_looked_at() {
    let codes = [
        ErrorCode::FENCED_LEADER_EPOCH,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::LEADER_NOT_AVAILABLE,
        ErrorCode::REPLICA_NOT_AVAILABLE,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::UNKNOWN_TOPIC_ID,
        ErrorCode::INCONSISTENT_TOPIC_ID,
        ErrorCode::OFFSET_NOT_AVAILABLE,
        ErrorCode::KAFKA_STORAGE_ERROR,
    ];
    for code in codes {
        let mut rig = Rig::new(1, small());
        rig.append(0, 10, 10);
        rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(code);
        rig.fetch();
        let events = rig.events();
        assert!(events.len() == 1 && events[0].starts_with("Stale"), "{code}: {events:?}");
        assert!(rig.wait(NODE).expect("tried again later") > rig.now, "{code}");
        rig.logs.get_mut(&tp(0)).unwrap().refuse = None;
        rig.lead(0, NODE, 2);
        rig.update();
        assert_eq!(rig.fetch().partitions[0].leader_epoch, Some(LeaderEpoch(2)), "{code}");
        assert_eq!(rig.take(), (0, 0..10), "{code}");
    }
}

#[test]
fn older_metadata_does_not_bring_the_old_leader_back() {
    let mut rig = Rig::new(1, small());
    rig.lead(0, OTHER, 5);
    rig.update();
    rig.lead(0, NODE, 4);
    rig.update();
    assert_eq!(rig.fetcher.nodes().collect::<Vec<_>>(), [OTHER]);
}

#[test]
fn a_leader_that_is_not_found_for_long_is_told() {
    let mut rig = Rig::new(1, small());
    rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(ErrorCode::LEADER_NOT_AVAILABLE);
    let mut told = 0;
    for _ in 0..TELL_STALE_EVERY * 2 {
        rig.fetch();
        told += rig.events().iter().filter(|event| event.starts_with("Refused")).count();
        rig.now = rig.wait(NODE).unwrap();
    }
    assert_eq!(told, 2);
}

#[test]
fn a_malformed_batch_stops_its_partition_alone_and_is_never_skipped() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 10, 10);
    rig.append(0, 10, 10);
    rig.append(0, 10, 10);
    let whole = rig.logs[&tp(0)].batches[1].clone();
    let mut broken = BytesMut::from(&whole[..]);
    *broken.last_mut().unwrap() ^= 1;
    rig.logs.get_mut(&tp(0)).unwrap().batches[1] = broken.freeze();
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..10));
    let events = rig.events();
    assert!(events.len() == 1 && events[0].contains("offset: Offset(10)"), "{events:?}");

    rig.append(1, 1, 1);
    let plan = rig.fetch();
    assert_eq!(rig.asked(&plan), [1].into());
    assert_eq!(rig.take(), (1, 0..1));

    rig.now += Duration::from_secs(2);
    rig.fetch();
    assert!(rig.fetcher.poll_batch().is_none());
    assert_eq!(rig.events().len(), 1);

    rig.logs.get_mut(&tp(0)).unwrap().batches[1] = whole;
    rig.now += Duration::from_secs(60);
    rig.fetch();
    assert_eq!(rig.take(), (0, 10..30));
}

/// Answers with partitions that nobody asked for, twice, or not at all crashed clients (franz-go#1348).
#[test]
fn what_was_not_asked_for_is_passed_over_and_what_came_twice_counts_once() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 10, 10);
    let plan = rig.ask(NODE);
    let mut response = rig.response(&plan);
    let mut partitions = response.responses[0].partitions.clone();
    partitions.retain(|data| data.partition_index == 0);
    let twice = partitions[0].clone();
    let unknown = twice.clone().with_partition_index(77);
    let negative = twice.clone().with_partition_index(-1);
    response.responses[0].partitions = vec![unknown, twice.clone(), twice.clone(), negative];
    let foreign = FetchableTopicResponse::default()
        .with_topic(TopicName(StrBytes::from_static_str("else")))
        .with_topic_id(Uuid::from_u128(8))
        .with_partitions(vec![twice]);
    response.responses.push(foreign);
    rig.answer(&plan, response);
    assert_eq!(rig.take(), (0, 0..10));
    assert!(rig.fetcher.poll_batch().is_none());
    assert!(rig.events().is_empty());
    let plan = rig.ask(NODE);
    assert_eq!(rig.asked(&plan), [0, 1].into());
}

#[test]
fn answers_by_name_are_matched_too() {
    let mut rig = Rig::new(2, small());
    rig.append(1, 10, 10);
    let plan = rig.ask(NODE);
    let mut response = rig.response(&plan);
    response.responses[0].topic_id = Uuid::nil();
    response.responses[0].topic = TopicName(StrBytes::from_static_str("orders"));
    rig.answer(&plan, response);
    assert_eq!(rig.take(), (1, 0..10));
}

#[test]
fn a_topic_that_was_created_anew_is_repositioned() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    let leader = Leader { node: NODE, epoch: Some(LeaderEpoch(0)), topic_id: Uuid::from_u128(9) };
    rig.leaders.insert(tp(0), leader);
    rig.update();
    rig.update();
    let events = rig.events();
    assert!(events.len() == 1 && events[0].contains("Recreated"), "{events:?}");
    assert_eq!(rig.wait(NODE), None);
    rig.fetcher.reposition(&tp(0), 1, Offset(0), None);
    assert_eq!(rig.ask(NODE).partitions[0].topic_id, Uuid::from_u128(9));
}

/// The answer that was on its way for the old topic took the partition out of its reset: it went on at the old offset,
/// was out of range there, and with the policy "latest" all that the new topic held was passed over.
#[test]
fn a_late_answer_of_the_old_topic_does_not_end_the_reset_of_the_new_one() {
    for late in [ErrorCode::UNKNOWN_TOPIC_ID, ErrorCode::OFFSET_OUT_OF_RANGE] {
        let mut rig = Rig::new(1, small());
        rig.append(0, 10, 10);
        rig.fetch();
        rig.take();
        let on_its_way = rig.ask(NODE);
        let leader = Leader { node: NODE, epoch: Some(LeaderEpoch(0)), topic_id: Uuid::from_u128(9) };
        rig.leaders.insert(tp(0), leader);
        rig.update();
        let events = rig.events();
        assert!(events.len() == 1 && events[0].contains("Recreated"), "{events:?}");
        rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(late);
        let response = rig.response(&on_its_way);
        rig.answer(&on_its_way, response);
        assert!(rig.events().is_empty(), "one reset at a time");
        rig.logs.get_mut(&tp(0)).unwrap().refuse = None;
        rig.fetcher.reposition(&tp(0), 1, Offset(0), None);
        rig.now += Duration::from_secs(10);
        assert_eq!(rig.ask(NODE).partitions[0].offset, Offset(0));
    }
}

#[test]
fn a_batch_larger_than_the_partition_limit_comes_through() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 1, 50_000);
    rig.append(0, 1, 10);
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..1));
    rig.fetch();
    assert_eq!(rig.take(), (0, 1..2));
}

#[test]
fn an_answer_of_a_cut_batch_alone_asks_for_more_next_time() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 1, 50_000);
    let plan = rig.ask(NODE);
    let mut response = rig.response(&plan);
    let records = response.responses[0].partitions[0].records.as_mut().unwrap();
    *records = records.slice(..10_000);
    rig.answer(&plan, response);
    assert!(rig.fetcher.poll_batch().is_none());
    rig.now += QUIET_PAUSE;
    assert!(rig.ask(NODE).partitions[0].max_bytes > 50_000);
}

#[test]
fn a_broker_that_has_nothing_and_does_not_wait_is_not_asked_in_a_loop() {
    let mut rig = Rig::new(1, small());
    rig.fetch();
    assert_eq!(rig.wait(NODE), Some(rig.now + QUIET_PAUSE));
    rig.now += QUIET_PAUSE;
    let plan = rig.ask(NODE);
    rig.now += Duration::from_millis(500);
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    rig.ask(NODE);
}

#[test]
fn a_throttled_broker_is_left_alone_for_as_long_as_it_says() {
    let mut rig = Rig::new(1, small());
    let plan = rig.ask(NODE);
    let throttle = Duration::from_secs(3);
    let answer = FetchAnswer { throttle, code: ErrorCode::NONE, outcomes: Vec::new() };
    rig.fetcher.handle_answer(rig.now, &plan, answer);
    assert_eq!(rig.wait(NODE), Some(rig.now + throttle));
}

/// KAFKA-9677: a quota smaller than one answer, and a broker that then answers with nothing: the consumer starved.
#[test]
fn a_broker_that_answers_with_a_throttle_alone_is_asked_for_less() {
    let mut rig = Rig::new(1, FetchConfig::default());
    let mut asked = Vec::new();
    let empty = |throttle| FetchAnswer { throttle, code: ErrorCode::NONE, outcomes: Vec::new() };
    for _ in 0..16 {
        let plan = rig.ask(NODE);
        asked.push(plan.max_bytes);
        assert!(plan.partitions[0].max_bytes <= plan.max_bytes);
        rig.fetcher.handle_answer(rig.now, &plan, empty(Duration::from_millis(100)));
        rig.now += Duration::from_millis(100);
    }
    assert_eq!(asked[..4], [50 << 20, 25 << 20, (25 << 20) / 2, (25 << 20) / 4]);
    assert_eq!(asked[15], MIN_THROTTLED_BYTES);
    // Once the quota allows it, more again.
    let mut grown = 0;
    for _ in 0..16 {
        let plan = rig.ask(NODE);
        grown = plan.max_bytes;
        rig.fetcher.handle_answer(rig.now, &plan, empty(Duration::ZERO));
        rig.now += QUIET_PAUSE;
    }
    assert_eq!(grown, 50 << 20);
}

/// Dekaf#2263: the mute was lost on a rebalance.
#[test]
fn a_throttle_outlives_the_assignment_that_met_it() {
    let mut rig = Rig::new(1, small());
    let plan = rig.ask(NODE);
    let throttle = Duration::from_secs(3);
    rig.fetcher.handle_answer(rig.now, &plan, FetchAnswer { throttle, code: ErrorCode::NONE, outcomes: Vec::new() });
    rig.fetcher.revoke([&tp(0)]);
    rig.fetcher.assign(start(0, 0, None));
    rig.update();
    assert_eq!(rig.wait(NODE), Some(rig.now + throttle));
}

#[test]
fn an_unanswered_request_is_repeated_after_a_growing_wait() {
    let mut rig = Rig::new(1, small());
    let mut waits = Vec::new();
    for _ in 0..3 {
        let plan = rig.ask(NODE);
        rig.fetcher.handle_failure(rig.now, &plan);
        let until = rig.wait(NODE).unwrap();
        waits.push(until - rig.now);
        rig.now = until;
        assert_eq!(rig.events().len(), 1);
    }
    assert!(waits.is_sorted() && waits[0] < waits[2], "{waits:?}");
}

#[test]
fn a_small_slice_of_a_large_answer_does_not_keep_it_in_memory() {
    let config = FetchConfig { max_partition_bytes: 4 << 20, ..FetchConfig::default() };
    let mut rig = Rig::new(2, config);
    rig.append(0, 20, 100 << 10);
    rig.append(1, 1, 10);
    rig.fetch();
    let mut small = None;
    while let Some(fetched) = rig.fetcher.poll_batch() {
        if fetched.partition == tp(1) {
            small = Some(fetched);
        }
    }
    assert!(small.is_some());
    assert!(rig.fetcher.budget().used() < 1_000, "{:?}", rig.fetcher.budget());
}

/// What may happen to a fetcher.
#[derive(Debug, Clone)]
enum Op {
    Append { partition: i32, records: i64 },
    Emptied { partition: i32 },
    Ask { node: bool },
    Answer { newest: bool },
    Fail,
    Take { keep: bool },
    Drop,
    Pause(i32),
    Resume(i32),
    Seek { partition: i32, part: u8 },
    Move(i32),
    Update,
    Trim(i32),
    Reassign(i32),
    Pass(u16),
}

fn op() -> impl Strategy<Value = Op> {
    let partition = 0..3_i32;
    prop_oneof![
        3 => (partition.clone(), 1..20_i64).prop_map(|(partition, records)| Op::Append { partition, records }),
        1 => partition.clone().prop_map(|partition| Op::Emptied { partition }),
        6 => any::<bool>().prop_map(|node| Op::Ask { node }),
        6 => any::<bool>().prop_map(|newest| Op::Answer { newest }),
        1 => Just(Op::Fail),
        6 => any::<bool>().prop_map(|keep| Op::Take { keep }),
        2 => Just(Op::Drop),
        1 => partition.clone().prop_map(Op::Pause),
        2 => partition.clone().prop_map(Op::Resume),
        1 => (partition.clone(), any::<u8>()).prop_map(|(partition, part)| Op::Seek { partition, part }),
        1 => partition.clone().prop_map(Op::Move),
        2 => Just(Op::Update),
        1 => partition.clone().prop_map(Op::Trim),
        1 => partition.prop_map(Op::Reassign),
        3 => (0..2_000_u16).prop_map(Op::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever happens, each partition's records are handed over without a gap and without going back, except where
    /// somebody said so; memory stays within the budget and one oversized batch; and after calm all was read.
    #[test]
    fn nothing_is_skipped_and_nothing_comes_twice(ops in prop::collection::vec(op(), 1..200)) {
        let budget = 300 << 10;
        let config = FetchConfig { max_partition_bytes: 4_000, budget_bytes: budget, ..FetchConfig::default() };
        let mut rig = Rig::new(3, config);
        let mut expected = [0_i64; 3];
        let mut epochs = [1_u64; 3];
        let mut in_flight: Vec<FetchPlan> = Vec::new();
        let mut kept = Vec::new();

        for op in ops {
            match op {
                Op::Append { partition, records } => rig.append(partition, records, 300),
                Op::Emptied { partition } => rig.append_emptied(partition, 5),
                Op::Ask { node } => {
                    let node = if node { NODE } else { OTHER };
                    if let NextFetch::Send(plan) = rig.fetcher.poll_request(rig.now, node) {
                        in_flight.push(plan);
                    }
                }
                Op::Answer { newest } => {
                    if let Some(plan) = if newest { in_flight.pop() } else { (!in_flight.is_empty()).then(|| in_flight.remove(0)) } {
                        let response = rig.response(&plan);
                        rig.answer(&plan, response);
                    }
                }
                Op::Fail => {
                    if let Some(plan) = in_flight.pop() {
                        rig.fetcher.handle_failure(rig.now, &plan);
                    }
                }
                Op::Take { keep } => {
                    if let Some(fetched) = rig.fetcher.poll_batch() {
                        let (partition, offsets) = span(&fetched);
                        prop_assert_eq!(fetched.epoch, epochs[partition as usize]);
                        prop_assert_eq!(offsets.start, expected[partition as usize]);
                        prop_assert!(offsets.end > offsets.start);
                        expected[partition as usize] = offsets.end;
                        if keep {
                            kept.push(fetched);
                        }
                    }
                }
                Op::Drop => drop(kept.pop()),
                Op::Pause(partition) => rig.fetcher.pause(&tp(partition), epochs[partition as usize]),
                Op::Resume(partition) => rig.fetcher.resume(&tp(partition), epochs[partition as usize]),
                Op::Seek { partition, part } => {
                    let log = &rig.logs[&tp(partition)];
                    let offset = log.start + (log.end - log.start) * i64::from(part) / 256;
                    rig.fetcher.seek(&tp(partition), epochs[partition as usize], Offset(offset), None);
                    expected[partition as usize] = offset;
                }
                Op::Move(partition) => {
                    let leader = rig.leaders[&tp(partition)];
                    let node = if leader.node == NODE { OTHER } else { NODE };
                    rig.lead(partition, node, leader.epoch.unwrap().0 + 1);
                }
                Op::Update => rig.update(),
                Op::Trim(partition) => {
                    // Up to where it was handed over: trimming more is a gap that the log itself has.
                    let log = rig.logs.get_mut(&tp(partition)).unwrap();
                    log.start = log.start.max(expected[partition as usize]);
                }
                Op::Reassign(partition) => {
                    rig.fetcher.revoke([&tp(partition)]);
                    epochs[partition as usize] += 1;
                    let offset = rig.logs[&tp(partition)].start.max(expected[partition as usize]);
                    expected[partition as usize] = offset;
                    let epoch = epochs[partition as usize];
                    rig.fetcher.assign(StartAt { epoch, ..start(partition, offset, Some(0)) });
                    rig.update();
                }
                Op::Pass(ms) => rig.now += Duration::from_millis(ms.into()),
            }
            prop_assert!(rig.fetcher.budget().used() <= budget + 10_000);
            for event in std::iter::from_fn(|| rig.fetcher.poll_event()) {
                prop_assert!(matches!(event, FetchEvent::Stale { .. } | FetchEvent::Refused { .. }), "{:?}", event);
            }
        }

        // Calm: everything that is in the logs comes.
        kept.clear();
        for plan in in_flight {
            rig.fetcher.handle_failure(rig.now, &plan);
        }
        rig.update();
        for partition in 0..3 {
            rig.fetcher.resume(&tp(partition), epochs[partition as usize]);
        }
        for _ in 0..200 {
            rig.now += Duration::from_secs(6);
            for node in [NODE, OTHER] {
                if let NextFetch::Send(plan) = rig.fetcher.poll_request(rig.now, node) {
                    let response = rig.response(&plan);
                    rig.answer(&plan, response);
                }
            }
            while let Some(fetched) = rig.fetcher.poll_batch() {
                let (partition, offsets) = span(&fetched);
                prop_assert_eq!(offsets.start, expected[partition as usize]);
                expected[partition as usize] = offsets.end;
            }
        }
        for partition in 0..3 {
            prop_assert_eq!(expected[partition as usize], rig.logs[&tp(partition)].end);
        }
        prop_assert_eq!(rig.fetcher.budget().used(), 0);
    }
}
