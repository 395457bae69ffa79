//! The task that asks coordinators for what the machine wants, one request after the other.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, GroupId, InitProducerIdRequest, TopicName,
    TransactionalId, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::{Request, StrBytes};
use tokio::time::timeout_at;

use super::shared::Shared;
use crate::client::{ClientError, CoordinatorKind, deadline_in, now};
use crate::error::WriteOutcome;
use crate::machine::connection::RequestError;
use crate::machine::produce::ProducerId;
use crate::machine::transaction::{Ask, Call, NoReply, OffsetCommit, Reply, Version};
use crate::protocol::api::{ApiKey, VersionRange};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::request::EncodedRequest;
use crate::protocol::response::decode_body;
use crate::protocol::versions::{NegotiatedVersions, UnsupportedVersion};
use crate::record::TopicPartition;

/// Runs until the producer is closed and what was open is decided, or that takes too long.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut last_look = None;
    loop {
        if shared.is_closed() {
            let end = *last_look.get_or_insert_with(|| deadline_in(LINGER));
            if shared.cluster.is_closed() || shared.lock().is_at_rest() || now() >= end {
                return;
            }
        }
        let (call, timeout) = shared.change_quietly(|machine| (machine.poll_call(now()), machine.poll_timeout()));
        if let Some(call) = call {
            let answer = shared.ask(call).await;
            shared.change(|machine| match answer {
                Ok(reply) => machine.handle_reply(now(), reply),
                Err(why) => machine.handle_no_reply(now(), why),
            });
            continue;
        }
        let latest = now() + LOOK_AGAIN;
        let until = timeout.map_or(latest, |timeout| timeout.min(latest));
        // Whether it was woken or it is time: look again.
        let _ = timeout_at(until.into(), shared.wake.notified()).await;
    }
}

impl Shared {
    async fn ask(&self, call: Call) -> Result<Reply, NoReply> {
        let (kind, key) = match &call.ask {
            Ask::CommitOffsets(commit) => (CoordinatorKind::Group, commit.group.group.clone()),
            _ => (CoordinatorKind::Transaction, self.lock().id().to_owned()),
        };
        let node = match self.cluster.coordinator(kind, &key, deadline_in(self.request_timeout)).await {
            Ok(node) => node,
            Err(ClientError::Closed) => return Err(NoReply::Closed),
            Err(error) => {
                tracing::debug!(%error, "no coordinator");
                // A refusal of the lookup is as good as the coordinator's own.
                let refused = error.code().filter(|code| !code.is_retriable());
                return refused
                    .map(|code| Reply { seen: None, codes: vec![code], producer: None })
                    .ok_or(NoReply::NotSent);
            }
        };
        let answered = self.ask_at(node, call).await;
        answered.map_err(|error| {
            tracing::debug!(%error, "a coordinator's request got no answer");
            match error {
                RequestError::Unsupported(_) | RequestError::Encode(_) => NoReply::Unsupported,
                error if error.is_closed() => NoReply::Closed,
                error => match error.write_outcome() {
                    WriteOutcome::NotWritten => NoReply::NotSent,
                    WriteOutcome::PossiblyWritten => NoReply::Unanswered,
                },
            }
        })
    }

    async fn ask_at(&self, node: crate::record::NodeId, call: Call) -> Result<Reply, RequestError> {
        let ProducerId { id, epoch } = call.producer.unwrap_or(ProducerId { id: -1, epoch: -1 });
        let transactional_id = TransactionalId(text(self.lock().id()));
        let two = call.version == Version::Two;
        match call.ask {
            Ask::Init => {
                let request = InitProducerIdRequest::default()
                    .with_transactional_id(Some(transactional_id))
                    .with_transaction_timeout_ms(millis(self.timeout))
                    .with_producer_id(id.into())
                    .with_producer_epoch(epoch);
                let (seen, answer) = self.exchange(node, request, 3, i16::MAX).await?;
                let producer = ProducerId { id: answer.producer_id.0, epoch: answer.producer_epoch };
                let producer = Some(producer).filter(|producer| producer.id >= 0 && producer.epoch >= 0);
                let codes = match (answer.error_code, producer) {
                    // Success without an id says nothing.
                    (0, None) => Vec::new(),
                    (code, _) => vec![ErrorCode(code)],
                };
                Ok(Reply { seen: Some(seen), codes, producer })
            }
            Ask::AddPartitions(partitions) => {
                let asked = partitions.len();
                let topics = by_topic(partitions.values()).into_iter().map(|(topic, partitions)| {
                    AddPartitionsToTxnTopic::default().with_name(topic).with_partitions(partitions)
                });
                let request = AddPartitionsToTxnRequest::default()
                    .with_v3_and_below_transactional_id(transactional_id)
                    .with_v3_and_below_producer_id(id.into())
                    .with_v3_and_below_producer_epoch(epoch)
                    .with_v3_and_below_topics(topics.collect());
                // From version 4 on it is for brokers.
                let (seen, answer) = self.exchange(node, request, 0, 3).await?;
                let topics = answer.results_by_topic_v3_and_below.into_iter();
                let codes = topics.flat_map(|topic| topic.results_by_partition);
                let codes: Vec<_> = codes.map(|result| ErrorCode(result.partition_error_code)).collect();
                Ok(Reply { seen: Some(seen), codes: complete(codes, asked), producer: None })
            }
            Ask::AddOffsets { group } => {
                let request = AddOffsetsToTxnRequest::default()
                    .with_transactional_id(transactional_id)
                    .with_producer_id(id.into())
                    .with_producer_epoch(epoch)
                    .with_group_id(GroupId(text(&group)));
                let (seen, answer) = self.exchange(node, request, 0, i16::MAX).await?;
                Ok(Reply { seen: Some(seen), codes: vec![ErrorCode(answer.error_code)], producer: None })
            }
            Ask::CommitOffsets(commit) => {
                let asked = commit.offsets.len();
                let request = offsets_request(&commit)
                    .with_transactional_id(transactional_id)
                    .with_producer_id(id.into())
                    .with_producer_epoch(epoch);
                // Version 5 adds the group to the transaction by itself; before 3 a member cannot be told.
                let (min, max) = if two { (5, i16::MAX) } else { (3, 4) };
                let (_, answer) = self.exchange(node, request, min, max).await?;
                let codes = answer.topics.into_iter().flat_map(|topic| topic.partitions);
                let codes: Vec<_> = codes.map(|partition| ErrorCode(partition.error_code)).collect();
                Ok(Reply { seen: None, codes: complete(codes, asked), producer: None })
            }
            Ask::End { commit } => {
                let request = EndTxnRequest::default()
                    .with_transactional_id(transactional_id)
                    .with_producer_id(id.into())
                    .with_producer_epoch(epoch)
                    .with_committed(commit);
                let (min, max) = if two { (5, i16::MAX) } else { (0, 4) };
                let (seen, answer) = self.exchange(node, request, min, max).await?;
                let producer = ProducerId { id: answer.producer_id.0, epoch: answer.producer_epoch };
                let producer = Some(producer).filter(|producer| two && producer.id >= 0 && producer.epoch >= 0);
                Ok(Reply { seen: Some(seen), codes: vec![ErrorCode(answer.error_code)], producer })
            }
        }
    }

    /// One request and its answer, in a version from `min` to `max`, and what the cluster runs as that broker knows it.
    async fn exchange<R>(
        &self,
        node: crate::record::NodeId,
        request: R,
        min: i16,
        max: i16,
    ) -> Result<(Version, R::Response), RequestError>
    where
        R: Request + Send + 'static,
    {
        let api = ApiKey::of::<R>();
        let level = Arc::new(AtomicU8::new(0));
        let told = level.clone();
        let encode = move |versions: &NegotiatedVersions| {
            let version = versions.choose_up_to(api, max)?;
            if version < min {
                let ours = api.versions().map(|known| VersionRange { min, max: known.max.min(max) });
                return Err(UnsupportedVersion { api, ours, broker: versions.broker_range(api) }.into());
            }
            told.store(u8::from(runs_two(versions)), Ordering::Release);
            Ok(EncodedRequest::new(&request, version)?)
        };
        let connection = self.connections.to(node);
        let mut response = connection.send_late(api, self.request_timeout, encode);
        let answer = poll_fn(|cx| response.poll_answer(cx)).await?;
        let body = decode_body::<R>(answer.body, answer.version).inspect_err(|_| connection.distrust(api))?;
        let version = if level.load(Ordering::Acquire) == 1 { Version::Two } else { Version::One };
        Ok((version, body))
    }
}

/// Whether the cluster runs transactions by version 2 (feature `transaction.version`).
fn runs_two(versions: &NegotiatedVersions) -> bool {
    let mut features = versions.finalized_features().iter();
    versions.finalized_features_epoch().is_some()
        && features.any(|feature| feature.name == "transaction.version" && feature.levels.max >= 2)
}

fn offsets_request(commit: &OffsetCommit) -> TxnOffsetCommitRequest {
    let mut topics: Vec<TxnOffsetCommitRequestTopic> = Vec::new();
    for offset in commit.offsets.iter() {
        let partition = TxnOffsetCommitRequestPartition::default()
            .with_partition_index(offset.partition.partition)
            .with_committed_offset(offset.offset.0)
            .with_committed_leader_epoch(offset.leader_epoch.map_or(-1, |epoch| epoch.0))
            .with_committed_metadata(Some(text(&offset.note)));
        let topic = offset.partition.topic.as_str();
        match topics.iter_mut().find(|known| known.name.as_str() == topic) {
            Some(known) => known.partitions.push(partition),
            None => topics.push(
                TxnOffsetCommitRequestTopic::default()
                    .with_name(TopicName(text(topic)))
                    .with_partitions(vec![partition]),
            ),
        }
    }
    let group = &commit.group;
    TxnOffsetCommitRequest::default()
        .with_group_id(GroupId(text(&group.group)))
        .with_generation_id(group.generation)
        .with_member_id(text(&group.member_id))
        .with_group_instance_id(group.instance_id.as_deref().map(text))
        .with_topics(topics)
}

fn by_topic<'a>(partitions: impl Iterator<Item = &'a TopicPartition>) -> Vec<(TopicName, Vec<i32>)> {
    let mut topics: Vec<(TopicName, Vec<i32>)> = Vec::new();
    for partition in partitions {
        let topic = partition.topic.as_str();
        match topics.iter_mut().find(|(name, _)| name.as_str() == topic) {
            Some((_, numbers)) => numbers.push(partition.partition),
            None => topics.push((TopicName(text(topic)), vec![partition.partition])),
        }
    }
    topics
}

/// An answer that leaves something out says nothing of the whole, unless it refuses a part.
fn complete(codes: Vec<ErrorCode>, asked: usize) -> Vec<ErrorCode> {
    let refused = codes.iter().any(|code| !code.is_ok());
    if refused || codes.len() >= asked { codes } else { Vec::new() }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// A wake-up that was lost costs no more than this.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long a producer that was dropped goes on deciding what it had open.
const LINGER: Duration = Duration::from_secs(5);
