//! Produce: batches into logs.

use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{BrokerId, ProduceRequest, ProduceResponse};

use super::Serve;
use crate::protocol::batch::{self, BatchError, EncodedBatch, Flaw};
use crate::protocol::compression::Codec;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Offset, Topic, TopicPartition};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, Refusal, millis, text};
use crate::testing::broker::transactions::{Producer, abortable, before_fencing};

impl Serve for ProduceRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let (acks, deadline) = (self.acks, call.now + millis(self.timeout_ms));
        if !matches!(acks, -1..=1) {
            let refused = self.refuse(core, call, ErrorCode::INVALID_REQUIRED_ACKS);
            return Step::Answer(refused);
        }
        let transactional_id = self.transactional_id.as_ref().map(|id| id.to_string());
        let mut written = Written { call: call.clone(), transactional_id, topics: Vec::new(), waiting: Vec::new() };
        for topic in self.topic_data {
            written.topic(core, topic, acks);
        }
        if acks == 0 {
            // There is no answer to say it in (`KafkaApis.handleProduceRequest`).
            return if written.has_failed() { Step::Close } else { Step::Nothing };
        }
        Step::wait(core, call.now, Some(deadline), move |core, now| written.poll(core, now, deadline))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ProduceResponse {
        let topics = self.topic_data.into_iter().map(|topic| {
            let partitions = topic.partition_data.iter().map(|data| failed(data.index, &Refusal::new(code, "")));
            TopicProduceResponse::default()
                .with_name(topic.name)
                .with_topic_id(topic.topic_id)
                .with_partition_responses(partitions.collect())
        });
        ProduceResponse::default().with_responses(topics.collect())
    }

    fn throttle(answer: &mut ProduceResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, core: &Core, call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.topic_data.iter().filter_map(|topic| Some((name_of(core, call, topic).ok()?, topic)));
        topics
            .flat_map(|(name, topic)| topic.partition_data.iter().map(move |data| (name.clone(), data.index)))
            .collect()
    }
}

/// What was appended, and is waited for until every in-sync replica has it.
struct Written {
    call: Call,
    transactional_id: Option<String>,
    topics: Vec<TopicProduceResponse>,
    waiting: Vec<Waiting>,
}

struct Waiting {
    topic: Topic,
    partition: i32,
    /// Where its answer stands.
    at: (usize, usize),
    end: Offset,
    epoch: i32,
}

impl Written {
    fn topic(&mut self, core: &mut Core, topic: TopicProduceData, acks: i16) {
        let name = name_of(core, &self.call, &topic);
        let mut answers = Vec::with_capacity(topic.partition_data.len());
        for data in topic.partition_data {
            let (index, at) = (data.index, (self.topics.len(), answers.len()));
            let appended = name.clone().map_err(Refusal::from);
            let appended = appended.and_then(|name| Ok((self.append(core, &name, data, acks)?, name)));
            match appended {
                Ok((appended, name)) => {
                    if acks == -1 {
                        let (end, epoch) = (appended.end, appended.epoch);
                        self.waiting.push(Waiting { topic: name, partition: index, at, end, epoch });
                    }
                    answers.push(appended.answer);
                }
                Err(refusal) => {
                    let start = name.as_deref().map_or(-1, |name| told_start(core, name, index, &refusal));
                    answers.push(failed(index, &refusal).with_log_start_offset(start));
                }
            }
        }
        let topic = TopicProduceResponse::default().with_name(topic.name).with_topic_id(topic.topic_id);
        self.topics.push(topic.with_partition_responses(answers));
    }

    fn append(
        &self,
        core: &mut Core,
        topic: &Topic,
        data: PartitionProduceData,
        acks: i16,
    ) -> Result<AppendedTo, Refusal> {
        let call = &self.call;
        if let Some(code) = call.failure_of(topic, data.index) {
            return Err(code.into());
        }
        let batch = only_batch(data.records.unwrap_or_default(), call.version)?;
        let partition = core.topics.partition(topic, data.index)?;
        partition.check(call.node, -1, true)?;
        let in_sync = partition.in_sync.len();
        if acks == -1 && in_sync < least_in_sync(core, topic) {
            return Err(ErrorCode::NOT_ENOUGH_REPLICAS.into());
        }
        let checked = self.check_transaction(core, topic, data.index, &batch);
        checked.map_err(|code| Refusal::new(code, OF_REQUEST))?;
        if batch.header().is_control {
            return Err(Refusal::new(ErrorCode::INVALID_RECORD, ""));
        }
        self.check_start(core, topic, data.index, &batch)?;
        let records = i64::from(batch.header().last_offset_delta) + 1;
        let appended = core.append(topic, data.index, batch, call.now)?;
        let partition = core.topics.partition(topic, data.index)?;
        let start = partition.leader_log().map_or(-1, |log| log.start().0);
        let answer = PartitionProduceResponse::default()
            .with_index(data.index)
            .with_base_offset(appended.base_offset.0)
            .with_log_append_time_ms(appended.log_append_time.map_or(-1, |time| time.0))
            .with_log_start_offset(start);
        let end = Offset(appended.base_offset.0 + records);
        Ok(AppendedTo { answer, end, epoch: partition.leader_epoch })
    }

    /// A batch of a transaction belongs to one that is open; from version 12 on it opens it (KIP-890).
    fn check_transaction(
        &self,
        core: &mut Core,
        topic: &Topic,
        partition: i32,
        batch: &EncodedBatch,
    ) -> Result<(), ErrorCode> {
        let Some(stamp) = batch.header().producer.filter(|_| batch.header().is_transactional) else { return Ok(()) };
        let id = self.transactional_id.as_deref().ok_or(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED)?;
        let (producer, at) = (Producer { id: stamp.id, epoch: stamp.epoch }, TopicPartition::new(topic, partition));
        if self.call.version < FIRST_THAT_ADDS {
            // Clients of that time try again on this code alone.
            return core.verify_partition(id, producer, &at).map_err(|code| match code {
                ErrorCode::CONCURRENT_TRANSACTIONS => ErrorCode::NOT_ENOUGH_REPLICAS,
                code => abortable(code, self.call.version >= FIRST_WITH_ABORTABLE),
            });
        }
        let added = core.add_to_transaction(id, producer, [at], self.call.now);
        added.map_err(|code| before_fencing(code, false))
    }

    /// In a transaction that its first batch opens a producer that is not known begins at 0: what it wrote cannot have
    /// expired (KIP-890).
    fn check_start(&self, core: &Core, topic: &Topic, partition: i32, batch: &EncodedBatch) -> Result<(), ErrorCode> {
        let transactional = self.call.version >= FIRST_THAT_ADDS && batch.header().is_transactional;
        let stamp = batch.header().producer.filter(|stamp| transactional && stamp.base_sequence != 0);
        let log = core.topics.partition(topic, partition)?.leader_log();
        let unknown = stamp.zip(log).is_some_and(|(stamp, log)| log.has_no_batch_of(stamp.id));
        if unknown { Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER) } else { Ok(()) }
    }

    fn has_failed(&self) -> bool {
        self.topics.iter().flat_map(|topic| &topic.partition_responses).any(|answer| answer.error_code != 0)
    }

    fn poll(&mut self, core: &mut Core, now: Instant, deadline: Instant) -> Option<ProduceResponse> {
        let node = self.call.node;
        let topics = &mut self.topics;
        self.waiting.retain(|waiting| {
            let least = least_in_sync(core, &waiting.topic);
            let partition = core.topics.partition(&waiting.topic, waiting.partition);
            let replicated =
                partition.and_then(|partition| partition.is_replicated(waiting.end.0, node, waiting.epoch, least));
            let code = match replicated {
                Ok(true) => return false,
                Ok(false) if now < deadline => return true,
                Ok(false) => ErrorCode::REQUEST_TIMED_OUT,
                Err(code) => code,
            };
            let answer = &mut topics[waiting.at.0].partition_responses[waiting.at.1];
            *answer = failed(waiting.partition, &Refusal::new(code, ""));
            false
        });
        self.waiting.is_empty().then(|| self.answer(core))
    }

    /// The answer, with the leaders of those that came to the wrong node (KIP-951).
    fn answer(&mut self, core: &Core) -> ProduceResponse {
        let mut leaders = Vec::new();
        for topic in &mut self.topics {
            let name = match self.call.version {
                ..=12 => Some(Topic::from(topic.name.as_str())),
                _ => core.topics.name_of(topic.topic_id).cloned(),
            };
            for answer in &mut topic.partition_responses {
                let stale = answer.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER.0;
                let partition = name.as_deref().filter(|_| stale && self.call.version >= 10);
                let partition = partition.and_then(|name| core.topics.partition(name, answer.index).ok());
                let Some((partition, leader)) = partition.and_then(|it| Some((it, it.leader?))) else { continue };
                answer.current_leader = LeaderIdAndEpoch::default()
                    .with_leader_id(BrokerId(leader))
                    .with_leader_epoch(partition.leader_epoch);
                leaders.push(leader);
            }
        }
        leaders.sort_unstable();
        leaders.dedup();
        let endpoints = leaders.into_iter().map(|leader| {
            let (host, port) = core.endpoint(leader, self.call.listener);
            let rack = core.nodes.get(leader).and_then(|node| node.rack.as_deref()).map(text);
            NodeEndpoint::default().with_node_id(BrokerId(leader)).with_host(host).with_port(port).with_rack(rack)
        });
        ProduceResponse::default()
            .with_responses(std::mem::take(&mut self.topics))
            .with_node_endpoints(endpoints.collect())
    }
}

struct AppendedTo {
    answer: PartitionProduceResponse,
    end: Offset,
    epoch: i32,
}

fn name_of(core: &Core, call: &Call, topic: &TopicProduceData) -> Result<Topic, ErrorCode> {
    if call.version < FIRST_WITH_IDS {
        return Ok(Topic::from(topic.name.as_str()));
    }
    core.topics.name_of(topic.topic_id).cloned().ok_or(ErrorCode::UNKNOWN_TOPIC_ID)
}

fn least_in_sync(core: &Core, topic: &str) -> usize {
    let default = core.settings.min_insync_replicas;
    core.topics.get(topic).map_or(default, |(_, topic)| topic.min_insync(default))
}

/// The one batch that a partition's records have to be (`ProduceRequest.validateRecords`).
fn only_batch(records: Bytes, version: i16) -> Result<EncodedBatch, Refusal> {
    let mut batches = batch::encoded(records);
    let first = match batches.next() {
        Some(Ok(batch)) => batch,
        Some(Err(error)) => return Err(unreadable(&error)),
        None => return Err(Refusal::new(ErrorCode::INVALID_RECORD, OF_REQUEST)),
    };
    if batches.next().is_some() || batches.cut().is_some() {
        return Err(Refusal::new(ErrorCode::INVALID_RECORD, OF_REQUEST));
    }
    if first.header().codec == Codec::Zstd && version < FIRST_WITH_ZSTD {
        let why = "Produce requests before version 7 have no zstd";
        return Err(Refusal::new(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, why));
    }
    if first.header().base_offset != Offset(0) {
        return Err(Refusal::new(ErrorCode::INVALID_RECORD, "the batch does not begin at offset 0"));
    }
    Ok(first)
}

/// Kafka says no more of these than their code.
fn unreadable(error: &BatchError) -> Refusal {
    let code = match error {
        BatchError::UnsupportedMagic { .. } | BatchError::Malformed { flaw: Flaw::RecordCount, .. } => {
            ErrorCode::INVALID_RECORD
        }
        _ => ErrorCode::CORRUPT_MESSAGE,
    };
    Refusal::new(code, OF_REQUEST)
}

/// Where the partition begins, with a refusal that its log made and not whoever asked it.
fn told_start(core: &Core, topic: &str, partition: i32, refusal: &Refusal) -> i64 {
    let of_log = OF_LOG.contains(&refusal.code) && refusal.why != OF_REQUEST;
    let partition = core.topics.partition(topic, partition).ok().filter(|_| of_log);
    partition.and_then(|partition| partition.leader_log()).map_or(-1, |log| log.start().0)
}

fn failed(partition: i32, refusal: &Refusal) -> PartitionProduceResponse {
    let told = matches!(refusal.code, ErrorCode::INVALID_RECORD | ErrorCode::INVALID_TIMESTAMP);
    let message = Some(refusal.why.as_str()).filter(|why| told && !why.is_empty() && *why != OF_REQUEST);
    PartitionProduceResponse::default()
        .with_index(partition)
        .with_error_code(refusal.code.0)
        .with_base_offset(-1)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(-1)
        .with_error_message(message.map(text))
}

/// What a log refuses, and tells where it begins.
const OF_LOG: [ErrorCode; 5] = [
    ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode::INVALID_PRODUCER_EPOCH,
    ErrorCode::INVALID_TXN_STATE,
    ErrorCode::INVALID_TIMESTAMP,
    ErrorCode::INVALID_RECORD,
];
/// The reason of a refusal before a log was asked.
const OF_REQUEST: &str = "malformed";
/// KIP-516.
const FIRST_WITH_IDS: i16 = 13;
/// KIP-890, part 1.
const FIRST_WITH_ABORTABLE: i16 = 11;
/// KIP-890, part 2.
const FIRST_THAT_ADDS: i16 = 12;
/// KIP-110.
const FIRST_WITH_ZSTD: i16 = 7;
