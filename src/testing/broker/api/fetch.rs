//! Fetch: batches out of logs, with sessions (KIP-227) and long polls.

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::FetchTopic;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse, ProducerId, TopicName};
use uuid::Uuid;

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, millis, text};
use crate::testing::broker::partition::{Read, ReadFrom, UpTo};
use crate::testing::broker::sessions::{Asked, Context, Limits, Position, TopicRef, Wanted};

impl Serve for FetchRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let limits = Limits { sessions: core.settings.max_fetch_sessions, idle: core.settings.fetch_session_idle };
        let asked = asked(&self, call);
        let context = match core.sessions.enter(asked, limits, &mut core.random, call.now) {
            Ok(context) => context,
            Err(code) => return Step::Answer(FetchResponse::default().with_error_code(code.0)),
        };
        for (wanted, _) in &context.partitions {
            core.retain(name_of(core, &wanted.topic), wanted.partition, call.now);
        }
        let max_wait = millis(self.max_wait_ms);
        let poll = LongPoll::new(&self, call, context, core.settings.max_fetch_bytes);
        // What has nothing to wait for is answered at once (`ReplicaManager.fetchMessages`).
        let until = if poll.context.partitions.is_empty() { call.now } else { call.now + max_wait };
        Step::wait(core, call.now, Some(until), move |core, now| poll.ask(core, now >= until))
    }

    fn refuse(self, core: &mut Core, call: &Call, code: ErrorCode) -> FetchResponse {
        // A session's error stands above the partitions; any other belongs to each of them.
        if self.topics.is_empty() || SESSION_ERRORS.contains(&code) {
            return FetchResponse::default().with_error_code(code.0);
        }
        let wanted = asked(&self, call).partitions;
        let answers = wanted.into_iter().map(|(wanted, _)| (failed(wanted.partition, code), wanted));
        let answers: Vec<_> = answers.map(|(data, wanted)| (wanted, data)).collect();
        grouped(core, answers)
    }

    fn throttle(answer: &mut FetchResponse, ms: i32) {
        // As under a quota of request time, which keeps the records; one of bytes would send none.
        answer.throttle_time_ms = ms;
    }

    fn names(&self, core: &Core, call: &Call) -> Vec<(Topic, i32)> {
        let asked = asked(self, call).partitions;
        let known = core.sessions.partitions(self.session_id).cloned();
        let all = asked.into_iter().map(|(wanted, _)| wanted).chain(known);
        all.filter_map(|wanted| Some((name_of(core, &wanted.topic)?, wanted.partition))).collect()
    }
}

/// A Fetch that waits for enough to answer.
struct LongPoll {
    call: Call,
    context: Context,
    up_to: UpTo,
    min_bytes: usize,
    max_bytes: usize,
    only_leader: bool,
    rack: String,
}

impl LongPoll {
    fn new(request: &FetchRequest, call: &Call, context: Context, max_bytes: usize) -> Self {
        let is_follower = request.replica_id.0 >= 0 || request.replica_state.replica_id.0 >= 0;
        Self {
            call: call.clone(),
            context,
            up_to: match request.isolation_level {
                _ if is_follower => UpTo::LogEnd,
                READ_COMMITTED => UpTo::LastStable,
                _ => UpTo::HighWatermark,
            },
            min_bytes: usize::try_from(request.min_bytes).unwrap_or(0),
            max_bytes: usize::try_from(request.max_bytes).unwrap_or(0).min(max_bytes),
            // Before version 11 a client does not know that it may read elsewhere (KIP-392).
            only_leader: is_follower || call.version < 11,
            rack: request.rack_id.to_string(),
        }
    }

    /// The answer, if there is enough to tell or the time is over.
    fn ask(&self, core: &mut Core, over: bool) -> Option<FetchResponse> {
        let mut left = self.max_bytes;
        let (mut bytes, mut urgent, mut at_least_one) = (0, false, true);
        let mut answers = Vec::with_capacity(self.context.partitions.len());
        for (wanted, position) in &self.context.partitions {
            let data = self.partition(core, wanted, position, left, at_least_one);
            let read = data.records.as_ref().map_or(0, Bytes::len);
            (bytes, left) = (bytes + read, left.saturating_sub(read));
            at_least_one &= read == 0;
            urgent |=
                data.error_code != 0 || data.diverging_epoch.end_offset >= 0 || data.preferred_read_replica.0 >= 0;
            answers.push((wanted.clone(), data));
        }
        if !over && !urgent && bytes < self.min_bytes {
            return None;
        }
        let mut told = answers;
        told.retain(|(wanted, data)| self.is_news(core, wanted, data));
        Some(self.with_leaders(core, told))
    }

    /// Whether an incremental answer holds this partition (`FetchSession.CachedPartition.maybeUpdateResponseData`).
    fn is_news(&self, core: &mut Core, wanted: &Wanted, data: &PartitionData) -> bool {
        let brings = data.records.as_ref().is_some_and(|records| !records.is_empty());
        let news =
            core.sessions.tell(self.context.session, wanted, (data.high_watermark, data.log_start_offset), brings);
        let redirects = data.diverging_epoch.end_offset >= 0 || data.preferred_read_replica.0 >= 0;
        if data.error_code != 0 {
            core.sessions.forget_told(self.context.session, wanted);
        }
        !self.context.incremental || news || redirects || data.error_code != 0
    }

    fn partition(&self, core: &Core, wanted: &Wanted, position: &Position, left: usize, one: bool) -> PartitionData {
        match self.read(core, wanted, position, left, one) {
            Ok(Found::Here(read)) => found(wanted.partition, read, self.up_to),
            Ok(Found::Nearer(node)) => {
                let elsewhere = failed(wanted.partition, ErrorCode::NONE);
                elsewhere.with_preferred_read_replica(BrokerId(node)).with_high_watermark(self.mark(core, wanted))
            }
            Err(code) => failed(wanted.partition, code),
        }
    }

    fn mark(&self, core: &Core, wanted: &Wanted) -> i64 {
        let name = name_of(core, &wanted.topic);
        let partition = name.and_then(|name| core.topics.partition(&name, wanted.partition).ok());
        partition.map_or(-1, |partition| partition.high_watermark())
    }

    fn read(
        &self,
        core: &Core,
        wanted: &Wanted,
        position: &Position,
        left: usize,
        at_least_one: bool,
    ) -> Result<Found, ErrorCode> {
        let name = name_of(core, &wanted.topic).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
        if let Some(code) = self.call.failure_of(&name, wanted.partition) {
            return Err(code);
        }
        let partition = core.topics.partition(&name, wanted.partition)?;
        partition.check(self.call.node, position.current_leader_epoch, self.only_leader)?;
        if partition.leader == Some(self.call.node)
            && let Some(nearer) = self.nearer(core, partition, position.fetch_offset)
        {
            return Ok(Found::Nearer(nearer));
        }
        let from = ReadFrom {
            offset: position.fetch_offset,
            last_fetched_epoch: Some(position.last_fetched_epoch).filter(|epoch| *epoch >= 0),
            up_to: self.up_to,
            max_bytes: usize::try_from(position.max_bytes).unwrap_or(0).min(left),
            at_least_one,
        };
        partition.read(self.call.node, from).map(Found::Here)
    }

    /// A replica in the client's rack that has what it wants (`RackAwareReplicaSelector`).
    fn nearer(&self, core: &Core, partition: &super::super::partition::Partition, offset: i64) -> Option<i32> {
        if !core.settings.rack_aware_reads || self.rack.is_empty() || self.only_leader {
            return None;
        }
        let rack_of = |node: i32| core.nodes.get(node).and_then(|node| node.rack.as_deref());
        if rack_of(self.call.node) == Some(self.rack.as_str()) {
            return None;
        }
        let in_rack = partition.in_sync.iter().copied().filter(|node| rack_of(*node) == Some(self.rack.as_str()));
        let mut has = in_rack.filter(|node| {
            let log = partition.log(*node);
            core.nodes.is_up(*node) && log.is_some_and(|log| (log.start().0..=log.end().0).contains(&offset))
        });
        has.next()
    }

    /// The answer, with the leaders of those that came to the wrong node (KIP-951).
    fn with_leaders(&self, core: &Core, mut answers: Vec<(Wanted, PartitionData)>) -> FetchResponse {
        let mut leaders = Vec::new();
        for (wanted, data) in &mut answers {
            let stale = [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH];
            if self.call.version < 12 || !stale.contains(&ErrorCode(data.error_code)) {
                continue;
            }
            let name = name_of(core, &wanted.topic);
            let partition = name.and_then(|name| core.topics.partition(&name, wanted.partition).ok());
            let Some((partition, leader)) = partition.and_then(|it| Some((it, it.leader?))) else { continue };
            data.current_leader =
                LeaderIdAndEpoch::default().with_leader_id(BrokerId(leader)).with_leader_epoch(partition.leader_epoch);
            leaders.push(leader);
        }
        leaders.sort_unstable();
        leaders.dedup();
        let mut answer = grouped(core, answers).with_session_id(self.context.session);
        if self.call.version >= 16 {
            let endpoint = |leader: i32| {
                let (host, port) = core.endpoint(leader, self.call.listener);
                let rack = core.nodes.get(leader).and_then(|node| node.rack.as_deref()).map(text);
                NodeEndpoint::default().with_node_id(BrokerId(leader)).with_host(host).with_port(port).with_rack(rack)
            };
            answer.node_endpoints = leaders.into_iter().map(endpoint).collect();
        }
        answer
    }
}

enum Found {
    Here(Read),
    /// Better read at this node.
    Nearer(i32),
}

fn asked(request: &FetchRequest, call: &Call) -> Asked {
    let by_id = call.version >= FIRST_WITH_IDS;
    let reference = |name: &TopicName, id: Uuid| match by_id {
        true => TopicRef::Id(id),
        false => TopicRef::Name(Topic::from(name.as_str())),
    };
    let partitions = request.topics.iter().flat_map(|topic| positions(&reference(&topic.topic, topic.topic_id), topic));
    let forgotten = request.forgotten_topics_data.iter().flat_map(|topic| {
        let of = reference(&topic.topic, topic.topic_id);
        topic.partitions.iter().map(move |partition| Wanted { topic: of.clone(), partition: *partition })
    });
    Asked {
        node: call.node,
        // Versions before 7 have no sessions.
        session: if call.version < 7 { 0 } else { request.session_id },
        epoch: if call.version < 7 { -1 } else { request.session_epoch },
        by_id,
        partitions: partitions.collect(),
        forgotten: forgotten.collect(),
    }
}

fn positions(of: &TopicRef, topic: &FetchTopic) -> Vec<(Wanted, Position)> {
    let position = |asked: &kafka_protocol::messages::fetch_request::FetchPartition| {
        let wanted = Wanted { topic: of.clone(), partition: asked.partition };
        let (epoch, last) = (asked.current_leader_epoch, asked.last_fetched_epoch);
        (wanted, Position::new(asked.fetch_offset, epoch, last, asked.partition_max_bytes))
    };
    topic.partitions.iter().map(position).collect()
}

fn name_of(core: &Core, topic: &TopicRef) -> Option<Topic> {
    match topic {
        TopicRef::Name(name) => Some(name.clone()),
        TopicRef::Id(id) => core.topics.name_of(*id).cloned(),
    }
}

fn found(partition: i32, read: Read, up_to: UpTo) -> PartitionData {
    let aborted = read.aborted.iter().map(|aborted| {
        AbortedTransaction::default()
            .with_producer_id(ProducerId(aborted.producer_id))
            .with_first_offset(aborted.first.0)
    });
    let mut data = PartitionData::default()
        .with_partition_index(partition)
        .with_high_watermark(read.high_watermark)
        .with_last_stable_offset(read.last_stable)
        .with_log_start_offset(read.log_start)
        .with_aborted_transactions((up_to == UpTo::LastStable).then(|| aborted.collect()))
        .with_records(Some(read.records));
    if let Some((epoch, end)) = read.diverging {
        data.diverging_epoch = EpochEndOffset::default().with_epoch(epoch).with_end_offset(end);
    }
    data
}

fn failed(partition: i32, code: ErrorCode) -> PartitionData {
    // Kafka's own: an empty list where there is nothing to read from, none where it cannot be read.
    let unknown = matches!(code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID);
    PartitionData::default()
        .with_partition_index(partition)
        .with_error_code(code.0)
        .with_high_watermark(-1)
        .with_last_stable_offset(-1)
        .with_log_start_offset(-1)
        .with_aborted_transactions(unknown.then(Vec::new))
        .with_records(Some(Bytes::new()))
}

/// Partitions that follow each other go under one topic.
fn grouped(_core: &Core, answers: Vec<(Wanted, PartitionData)>) -> FetchResponse {
    let mut topics: Vec<FetchableTopicResponse> = Vec::new();
    let mut last: Option<TopicRef> = None;
    for (wanted, data) in answers {
        match topics.last_mut() {
            Some(topic) if last.as_ref() == Some(&wanted.topic) => topic.partitions.push(data),
            _ => {
                let topic = match &wanted.topic {
                    TopicRef::Name(name) => {
                        FetchableTopicResponse::default().with_topic(TopicName(text(name.as_str())))
                    }
                    TopicRef::Id(id) => FetchableTopicResponse::default().with_topic_id(*id),
                };
                topics.push(topic.with_partitions(vec![data]));
                last = Some(wanted.topic);
            }
        }
    }
    FetchResponse::default().with_responses(topics)
}

const READ_COMMITTED: i8 = 1;
/// KIP-516.
const FIRST_WITH_IDS: i16 = 13;
const SESSION_ERRORS: [ErrorCode; 3] = [
    ErrorCode::FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode::INVALID_FETCH_SESSION_EPOCH,
    ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR,
];
