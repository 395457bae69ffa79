use std::collections::HashMap;
use std::time::Instant;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    BrokerId, GroupId, ListOffsetsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    OffsetFetchResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::retry::{Attempt, Try};
use super::topics::{by_topic, topic_name};
use super::{Admin, Outcomes, millis};
use crate::client::{ClientError, CoordinatorKind};
use crate::machine::fetch::IsolationLevel;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NodeId, Offset, Timestamp, Topic, TopicPartition};

/// Which offset of a partition is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OffsetSpec {
    /// The oldest record that is kept: the partition's log start offset.
    Earliest,
    /// The end: the offset that the next record will get, as far as it is replicated (the high watermark); of what is
    /// [committed](IsolationLevel::ReadCommitted), where the first open transaction begins (the last stable offset).
    Latest,
    /// The first record with this time or a later one.
    At(Timestamp),
    /// The record with the latest time, the first of several (KIP-734, Kafka 3.0). None where the partition is empty.
    Newest,
}

impl OffsetSpec {
    /// As `ListOffsets` has it: -2 and -1 are the ends, -3 the latest time.
    fn on_the_wire(self) -> i64 {
        match self {
            Self::Earliest => -2,
            Self::Latest => -1,
            Self::At(timestamp) => timestamp.0.max(0),
            Self::Newest => -3,
        }
    }
}

/// An offset that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedOffset {
    /// The offset; absent if no record has the time asked for, or a later one, or if there is none at all.
    pub offset: Option<Offset>,
    /// The record's time, where a time was asked for.
    pub timestamp: Option<Timestamp>,
    /// The leader's epoch when the record was written, where the broker tells.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What a group has committed on a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupOffset {
    /// The next offset to read.
    pub offset: Offset,
    /// The leader's epoch of the last record read, where the committer told.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The note beside it; empty where there is none.
    pub note: String,
}

impl GroupOffset {
    /// An offset without a note.
    pub fn new(offset: Offset) -> Self {
        Self { offset, leader_epoch: None, note: String::new() }
    }
}

impl Admin {
    /// The offsets asked for, from each partition's leader, as a reader of this isolation sees them. Java:
    /// `ListOffsetsOptions`, there `READ_UNCOMMITTED` by default.
    ///
    /// # Errors
    /// For each partition apart.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn list_offsets(
        &self,
        asked: &[(TopicPartition, OffsetSpec)],
        isolation: IsolationLevel,
    ) -> Outcomes<TopicPartition, ListedOffset> {
        let deadline = self.deadline();
        let specs: HashMap<&TopicPartition, OffsetSpec> = asked.iter().map(|(partition, s)| (partition, *s)).collect();
        let specs = &specs;
        let attempt = |open: Vec<TopicPartition>, _: Try| -> Attempt<'_, TopicPartition, ListedOffset> {
            Box::pin(async move {
                self.at_leaders(LIST, &open, deadline, |node, partitions| async move {
                    self.try_list_offsets(node, &partitions, specs, isolation, deadline).await
                })
                .await
            })
        };
        let partitions = asked.iter().map(|(partition, _)| partition.clone());
        self.settle(LIST, deadline).run(partitions, attempt).await
    }

    /// What the group has committed: on these partitions, or on every one where it has. A partition without a commit is
    /// left out. Commits that a transaction has not settled yet are waited for, as far as the time allows.
    ///
    /// # Errors
    /// When the group's coordinator cannot be asked, or refuses.
    pub async fn group_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<Vec<(TopicPartition, GroupOffset)>, ClientError> {
        let deadline = self.deadline();
        self.settle(FETCH, deadline).one(|| self.try_group_offsets(group, partitions, deadline)).await
    }

    /// Sets what the group has committed; [`plan_group_reset`](Self::plan_group_reset) finds places by time and the like. The group
    /// must have no members, or the coordinator refuses.
    ///
    /// # Errors
    /// For each partition apart.
    pub async fn set_group_offsets(
        &self,
        group: &str,
        offsets: &[(TopicPartition, GroupOffset)],
    ) -> Outcomes<TopicPartition, ()> {
        let deadline = self.deadline();
        let by_partition: HashMap<&TopicPartition, &GroupOffset> = offsets.iter().map(|(p, o)| (p, o)).collect();
        let attempt = |open: Vec<TopicPartition>, _: Try| -> Attempt<'_, TopicPartition, ()> {
            let request = commit_request(group, &open, &by_partition);
            Box::pin(async move { self.try_set_group_offsets(group, request, deadline).await })
        };
        self.settle(SET, deadline).run(offsets.iter().map(|(partition, _)| partition.clone()), attempt).await
    }

    /// Takes back what the group has committed on these partitions. No member may be subscribed to their topics, or the
    /// coordinator refuses.
    ///
    /// # Errors
    /// For each partition apart.
    pub async fn delete_group_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Outcomes<TopicPartition, ()> {
        let deadline = self.deadline();
        let attempt = |open: Vec<TopicPartition>, _: Try| -> Attempt<'_, TopicPartition, ()> {
            let topics = by_topic(&open).into_iter().map(|(topic, partitions)| {
                let entry =
                    |p: &TopicPartition| OffsetDeleteRequestPartition::default().with_partition_index(p.partition);
                let entries = partitions.into_iter().map(entry).collect();
                OffsetDeleteRequestTopic::default().with_name(topic_name(topic)).with_partitions(entries)
            });
            let request = OffsetDeleteRequest::default().with_group_id(group_id(group)).with_topics(topics.collect());
            Box::pin(async move { self.try_delete_group_offsets(group, request, deadline).await })
        };
        self.settle(DELETE, deadline).run(partitions.iter().cloned(), attempt).await
    }

    async fn try_list_offsets(
        &self,
        node: NodeId,
        partitions: &[TopicPartition],
        specs: &HashMap<&TopicPartition, OffsetSpec>,
        isolation: IsolationLevel,
        deadline: Instant,
    ) -> Result<Outcomes<TopicPartition, ListedOffset>, ClientError> {
        let topics = by_topic(partitions).into_iter().map(|(topic, partitions)| {
            let entries = partitions.into_iter().map(|partition| {
                let spec = specs.get(partition).copied().unwrap_or(OffsetSpec::Latest);
                ListOffsetsPartition::default()
                    .with_partition_index(partition.partition)
                    .with_current_leader_epoch(-1)
                    .with_timestamp(spec.on_the_wire())
            });
            ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(entries.collect())
        });
        let timeout = self.a_try(deadline).ok_or_else(|| ClientError::timed_out(LIST, None))?;
        let request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_isolation_level(isolation.wire())
            .with_topics(topics.collect());
        let build = move |version| {
            // Version 10 tells how long the broker may look into remote storage (KIP-1075).
            if version >= 10 { request.with_timeout_ms(millis(timeout)) } else { request }
        };
        let answer = self.cluster.general().to(node).call_with(i16::MAX, timeout, build).await;
        let response = answer.map_err(|error| ClientError::request(LIST, error))?;
        let each = response.topics.into_iter().flat_map(|topic| {
            let name = Topic::from(topic.name.as_str());
            topic.partitions.into_iter().map(move |answer| (TopicPartition::new(&name, answer.partition_index), answer))
        });
        let outcomes = each.map(|(partition, answer)| {
            let listed = ListedOffset {
                offset: (answer.offset >= 0).then_some(Offset(answer.offset)),
                timestamp: (answer.timestamp >= 0).then_some(Timestamp(answer.timestamp)),
                leader_epoch: (answer.leader_epoch >= 0).then_some(LeaderEpoch(answer.leader_epoch)),
            };
            let outcome = outcome(LIST, &partition, answer.error_code).map(|()| listed);
            (partition, outcome)
        });
        Ok(outcomes.collect())
    }

    async fn try_group_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
        deadline: Instant,
    ) -> Result<Vec<(TopicPartition, GroupOffset)>, ClientError> {
        let what = format!("{FETCH} {group}");
        let kind = CoordinatorKind::Group;
        let node = self.cluster.coordinator(kind, group, deadline).await?;
        let timeout = self.a_try(deadline).ok_or_else(|| ClientError::timed_out(&what, None))?;
        let (asked, name) = (partitions.map(<[_]>::to_vec), group_id(group));
        let build = move |version| fetch_request(version, name, asked.as_deref());
        let answer = self.cluster.general().to(node).call_with(i16::MAX, timeout, build).await;
        let response = answer.map_err(|error| {
            self.cluster.forget_coordinator(kind, group);
            ClientError::request(&what, error)
        })?;
        let (code, answers) = committed(response, group).ok_or_else(|| ClientError::LeftOut { what: what.clone() })?;
        self.check_coordinator(group, &what, code)?;
        let mut offsets = Vec::with_capacity(answers.len());
        for (partition, code, offset) in answers {
            match ErrorCode(code) {
                ErrorCode::NONE => offsets.extend(offset.map(|offset| (partition, offset))),
                // Of a topic that is not there nothing is committed; asking for more than exists is no fault.
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {}
                code => return Err(ClientError::refused(format_args!("{what} on {partition}"), code, None)),
            }
        }
        Ok(offsets)
    }

    async fn try_set_group_offsets(
        &self,
        group: &str,
        request: OffsetCommitRequest,
        deadline: Instant,
    ) -> Result<Outcomes<TopicPartition, ()>, ClientError> {
        let node = self.cluster.coordinator(CoordinatorKind::Group, group, deadline).await?;
        let response = self.call(node, request, SET, deadline).await.inspect_err(|_| self.forget(group))?;
        let each = response.topics.into_iter().flat_map(|topic| {
            let name = Topic::from(topic.name.as_str());
            let code = |p: kafka_protocol::messages::offset_commit_response::OffsetCommitResponsePartition| {
                (p.partition_index, p.error_code)
            };
            topic.partitions.into_iter().map(code).map(move |(index, code)| (TopicPartition::new(&name, index), code))
        });
        let outcomes = each.map(|(partition, code)| match ErrorCode(code) {
            // What a coordinator says to a commit by nobody where there are members.
            code @ (ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::ILLEGAL_GENERATION | ErrorCode::STALE_MEMBER_EPOCH) => {
                let what = format!("{SET} {group} on {partition}");
                (partition, Err(ClientError::refused(what, code, Some("the group has members"))))
            }
            _ => self.group_outcome(SET, group, partition, code),
        });
        Ok(outcomes.collect())
    }

    async fn try_delete_group_offsets(
        &self,
        group: &str,
        request: OffsetDeleteRequest,
        deadline: Instant,
    ) -> Result<Outcomes<TopicPartition, ()>, ClientError> {
        let node = self.cluster.coordinator(CoordinatorKind::Group, group, deadline).await?;
        let response = self.call(node, request, DELETE, deadline).await.inspect_err(|_| self.forget(group))?;
        self.check_coordinator(group, &format!("{DELETE} {group}"), ErrorCode(response.error_code))?;
        let each = response.topics.into_iter().flat_map(|topic| {
            let name = Topic::from(topic.name.as_str());
            let code = |p: kafka_protocol::messages::offset_delete_response::OffsetDeleteResponsePartition| {
                (p.partition_index, p.error_code)
            };
            topic.partitions.into_iter().map(code).map(move |(index, code)| (TopicPartition::new(&name, index), code))
        });
        Ok(each.map(|(partition, code)| self.group_outcome(DELETE, group, partition, code)).collect())
    }

    fn group_outcome(
        &self,
        what: &str,
        group: &str,
        partition: TopicPartition,
        code: i16,
    ) -> (TopicPartition, Result<(), ClientError>) {
        let what = format!("{what} {group}");
        let outcome = match self.check_coordinator(group, &what, ErrorCode(code)) {
            Ok(()) => Ok(()),
            Err(_) => outcome(&format!("{what} on"), &partition, code),
        };
        (partition, outcome)
    }

    /// A code that is about the group as a whole. A coordinator that is none any more is forgotten.
    pub(super) fn check_coordinator(&self, group: &str, what: &str, code: ErrorCode) -> Result<(), ClientError> {
        match code {
            ErrorCode::NONE => Ok(()),
            ErrorCode::GROUP_ID_NOT_FOUND => Err(ClientError::Missing { what: what.to_owned() }),
            code => {
                if matches!(code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE) {
                    self.forget(group);
                }
                Err(ClientError::refused(what, code, None))
            }
        }
    }

    fn forget(&self, group: &str) {
        self.cluster.forget_coordinator(CoordinatorKind::Group, group);
    }
}

fn outcome(what: &str, partition: &TopicPartition, code: i16) -> Result<(), ClientError> {
    ErrorCode(code).ok().map_err(|code| ClientError::refused(format_args!("{what} {partition}"), code, None))
}

pub(super) fn group_id(group: &str) -> GroupId {
    GroupId(StrBytes::from_string(group.to_owned()))
}

fn commit_request(
    group: &str,
    partitions: &[TopicPartition],
    offsets: &HashMap<&TopicPartition, &GroupOffset>,
) -> OffsetCommitRequest {
    let topics = by_topic(partitions).into_iter().map(|(topic, partitions)| {
        let entries = partitions.into_iter().filter_map(|partition| {
            let offset = offsets.get(partition)?;
            let entry = OffsetCommitRequestPartition::default()
                .with_partition_index(partition.partition)
                .with_committed_offset(offset.offset.0)
                .with_committed_leader_epoch(offset.leader_epoch.map_or(-1, |epoch| epoch.0))
                .with_committed_metadata(Some(StrBytes::from_string(offset.note.clone())));
            Some(entry)
        });
        OffsetCommitRequestTopic::default().with_name(topic_name(topic)).with_partitions(entries.collect())
    });
    // No member, no generation: the coordinator takes it while the group has no members.
    OffsetCommitRequest::default()
        .with_group_id(group_id(group))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(topics.collect())
}

/// From version 8 several groups may be asked for at once, so the request has another form (KIP-709).
fn fetch_request(version: i16, group: GroupId, partitions: Option<&[TopicPartition]>) -> OffsetFetchRequest {
    let numbers = |partitions: Vec<&TopicPartition>| partitions.into_iter().map(|p| p.partition).collect();
    // Offsets of an open transaction may come to nothing: the answer waits for its end (KIP-447).
    let request = OffsetFetchRequest::default().with_require_stable(version >= 7);
    if version >= 8 {
        let topics = partitions.map(|partitions| {
            let topics = by_topic(partitions).into_iter().map(|(topic, partitions)| {
                OffsetFetchRequestTopics::default()
                    .with_name(topic_name(topic))
                    .with_partition_indexes(numbers(partitions))
            });
            topics.collect()
        });
        let asked = OffsetFetchRequestGroup::default().with_group_id(group).with_topics(topics).with_member_epoch(-1);
        return request.with_groups(vec![asked]);
    }
    let topics = partitions.map(|partitions| {
        let topics = by_topic(partitions).into_iter().map(|(topic, partitions)| {
            OffsetFetchRequestTopic::default().with_name(topic_name(topic)).with_partition_indexes(numbers(partitions))
        });
        topics.collect()
    });
    request.with_group_id(group).with_topics(topics)
}

type Committed = (TopicPartition, i16, Option<GroupOffset>);

/// What an answer says of the group: its code, and what it has committed.
fn committed(response: OffsetFetchResponse, group: &str) -> Option<(ErrorCode, Vec<Committed>)> {
    let entry = |topic: &Topic, partition, code, offset, epoch: i32, note: Option<StrBytes>| {
        // -1: nothing is committed.
        let committed = (offset >= 0).then(|| GroupOffset {
            offset: Offset(offset),
            leader_epoch: (epoch >= 0).then_some(LeaderEpoch(epoch)),
            note: note.map_or_else(String::new, |note| note.to_string()),
        });
        (TopicPartition::new(topic, partition), code, committed)
    };
    let mut all = Vec::new();
    if let Some(answer) = response.groups.into_iter().find(|answer| answer.group_id.0.as_str() == group) {
        for topic in answer.topics {
            let name = Topic::from(topic.name.as_str());
            all.extend(topic.partitions.into_iter().map(|p| {
                entry(&name, p.partition_index, p.error_code, p.committed_offset, p.committed_leader_epoch, p.metadata)
            }));
        }
        return Some((ErrorCode(answer.error_code), all));
    }
    for topic in response.topics {
        let name = Topic::from(topic.name.as_str());
        all.extend(topic.partitions.into_iter().map(|p| {
            entry(&name, p.partition_index, p.error_code, p.committed_offset, p.committed_leader_epoch, p.metadata)
        }));
    }
    Some((ErrorCode(response.error_code), all))
}

const LIST: &str = "list offsets of";
const FETCH: &str = "fetch offsets of group";
const SET: &str = "set offsets of group";
const DELETE: &str = "delete offsets of group";
