//! A fetcher and brokers' logs, in virtual time.

mod isolation;
mod leaders;
mod pace;
mod reading;
mod replicas;
mod schedules;
mod sessions;

use std::collections::BTreeSet;
use std::task::Poll;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::fetch_response::{EpochEndOffset, FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::plan::PlannedFetch;
use super::*;
use crate::protocol::batch::{BatchWriter, Closing, EncodedBatch, ReadOptions};
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
    /// What each broker remembers.
    sessions: HashMap<NodeId, Remembered>,
    last_session: i32,
    keeps_sessions: bool,
    version: i16,
    /// What was sent, and what came back.
    traffic: Vec<Traffic>,
}

/// A session, as a broker has it (`FetchSession`).
#[derive(Default)]
struct Remembered {
    id: i32,
    epoch: i32,
    /// Who was served longest ago comes first.
    partitions: Vec<Cached>,
}

#[derive(Clone)]
struct Cached {
    topic_id: Uuid,
    asked: FetchPartition,
    told: Option<i64>,
}

/// The partitions of a request and of its answer.
#[derive(Debug, PartialEq, Eq)]
struct Traffic {
    epoch: i32,
    said: usize,
    forgotten: usize,
    told: usize,
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
        let mut rig = Self {
            now: Instant::now(),
            fetcher: Fetcher::new(config),
            logs: HashMap::new(),
            leaders: HashMap::new(),
            sessions: HashMap::new(),
            last_session: 0,
            keeps_sessions: true,
            version: 17,
            traffic: Vec::new(),
        };
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

    /// Answers as Kafka does: whole batches within the limits, but always the first of all; within a session news alone.
    fn response(&mut self, plan: &FetchPlan) -> FetchResponse {
        let request = plan.request(self.version.min(plan.max_version()));
        let mut session = self.sessions.remove(&plan.node).unwrap_or_default();
        let whole = request.session_epoch == 0;
        if whole {
            self.last_session += 1;
            session =
                Remembered { id: if self.keeps_sessions { self.last_session } else { 0 }, ..Remembered::default() };
        } else if request.session_id != session.id {
            return FetchResponse::default().with_error_code(ErrorCode::FETCH_SESSION_ID_NOT_FOUND.0);
        } else if request.session_epoch != session.epoch {
            return FetchResponse::default().with_error_code(ErrorCode::INVALID_FETCH_SESSION_EPOCH.0);
        }
        session.epoch = if whole { 1 } else { session.epoch.wrapping_add(1).max(1) };
        session.update(&request);
        let mut left = plan.max_bytes;
        let mut topic = FetchableTopicResponse::default();
        let (mut kept, mut served) = (Vec::new(), Vec::new());
        for mut cached in session.partitions {
            let mut data = PartitionData::default().with_partition_index(cached.asked.partition);
            let log = &self.logs[&tp(cached.asked.partition)];
            data.error_code = self.refusal(plan.node, &cached.asked, log).0;
            let mut news = !data.error_code.eq(&0) || cached.told.replace(log.end) != Some(log.end);
            if data.error_code == 0 {
                data.high_watermark = log.end;
                match log.diverging {
                    Some((epoch, end)) if cached.asked.last_fetched_epoch >= 0 => {
                        data.diverging_epoch = EpochEndOffset::default().with_epoch(epoch).with_end_offset(end);
                        news = true;
                    }
                    _ => {
                        let limit = usize::try_from(cached.asked.partition_max_bytes).unwrap().min(left);
                        let records = log.read(cached.asked.fetch_offset, limit, left == plan.max_bytes);
                        left = left.saturating_sub(records.len());
                        data.records = Some(records);
                    }
                }
            } else {
                cached.told = None;
            }
            topic.topic_id = cached.topic_id;
            let brings = data.records.as_ref().is_some_and(|records| !records.is_empty());
            if whole || news || brings {
                topic.partitions.push(data);
            }
            if brings { served.push(cached) } else { kept.push(cached) }
        }
        kept.append(&mut served);
        session.partitions = kept;
        self.traffic.push(Traffic {
            epoch: request.session_epoch,
            said: request.topics.iter().map(|topic| topic.partitions.len()).sum(),
            forgotten: request.forgotten_topics_data.iter().map(|topic| topic.partitions.len()).sum(),
            told: topic.partitions.len(),
        });
        if topic.topic_id.is_nil() {
            topic.topic = TopicName(StrBytes::from_static_str("orders"));
        }
        let id = session.id;
        if id != 0 {
            self.sessions.insert(plan.node, session);
        }
        FetchResponse::default().with_responses(vec![topic]).with_session_id(id)
    }

    fn refusal(&self, node: NodeId, asked: &FetchPartition, log: &Log) -> ErrorCode {
        let leader = self.leaders[&tp(asked.partition)];
        if let Some(code) = log.refuse {
            code
        } else if leader.node != node {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        } else if asked.fetch_offset < log.start || asked.fetch_offset > log.end {
            ErrorCode::OFFSET_OUT_OF_RANGE
        } else {
            ErrorCode::NONE
        }
    }

    fn answer(&mut self, plan: &FetchPlan, response: FetchResponse) {
        let (code, session) = (ErrorCode(response.error_code), response.session_id);
        let mut reader = AnswerReader::new(response, ReadOptions::default(), self.fetcher.budget().clone());
        let mut outcomes = Vec::new();
        while let Some(read) = reader.next(plan) {
            if let Poll::Ready(outcome) = read {
                outcomes.push(outcome);
            }
        }
        drop(reader);
        let answer = FetchAnswer { throttle: Duration::ZERO, code, session, outcomes };
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
        plan.asked.fetches().map(|asked| asked.partition.partition).collect()
    }

    fn take(&mut self) -> (i32, std::ops::Range<i64>) {
        let fetched = self.fetcher.poll_batch().expect("something is buffered");
        span(&fetched)
    }

    fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.fetcher.poll_event()).map(|event| format!("{event:?}")).collect()
    }
}

impl Remembered {
    fn update(&mut self, request: &FetchRequest) {
        for topic in &request.topics {
            for asked in &topic.partitions {
                let is_it = |cached: &&mut Cached| {
                    cached.topic_id == topic.topic_id && cached.asked.partition == asked.partition
                };
                match self.partitions.iter_mut().find(is_it) {
                    Some(cached) => cached.asked = asked.clone(),
                    None => {
                        let cached = Cached { topic_id: topic.topic_id, asked: asked.clone(), told: None };
                        self.partitions.push(cached);
                    }
                }
            }
        }
        for topic in &request.forgotten_topics_data {
            self.partitions.retain(|cached| {
                cached.topic_id != topic.topic_id || !topic.partitions.contains(&cached.asked.partition)
            });
        }
    }
}

/// What a plan asks of a partition.
fn of(plan: &FetchPlan, partition: i32) -> PlannedFetch {
    plan.asked.fetches().find(|asked| asked.partition == tp(partition)).expect("it is asked for").clone()
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
