//! What is asked of one broker.

use std::time::{Duration, Instant};

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::FetchableTopicResponse;
use kafka_protocol::messages::{BrokerId, FetchRequest};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::IsolationLevel;
use crate::record::{LeaderEpoch, NodeId, Offset, TopicPartition};

/// One Fetch request, as it was decided on.
#[derive(Debug)]
pub(crate) struct FetchPlan {
    pub(crate) id: u64,
    pub(crate) node: NodeId,
    /// When it was decided on.
    pub(crate) sent: Instant,
    pub(crate) max_wait: Duration,
    pub(crate) min_bytes: i32,
    pub(crate) max_bytes: usize,
    pub(crate) isolation: IsolationLevel,
    pub(crate) partitions: Vec<PlannedFetch>,
}

/// One partition of it.
#[derive(Debug)]
pub(crate) struct PlannedFetch {
    pub(crate) partition: TopicPartition,
    pub(crate) topic_id: Uuid,
    pub(crate) offset: Offset,
    pub(crate) leader_epoch: Option<LeaderEpoch>,
    /// Set where the broker is to check for a truncation below the offset.
    pub(crate) last_fetched_epoch: Option<LeaderEpoch>,
    pub(crate) max_bytes: usize,
    /// Of the cursor's position.
    pub(crate) version: u64,
}

impl FetchPlan {
    /// The newest version that it can be written in: from 13 on topics go by id (KIP-516), which older metadata lacks.
    pub(crate) fn max_version(&self) -> i16 {
        if self.partitions.iter().any(|asked| asked.topic_id.is_nil()) { LAST_BY_NAME } else { i16::MAX }
    }

    /// The request in this version. No fetch session (KIP-227) and no rack (KIP-392).
    pub(crate) fn request(&self, version: i16) -> FetchRequest {
        let mut topics: Vec<FetchTopic> = Vec::new();
        let mut last: Option<&TopicPartition> = None;
        for asked in &self.partitions {
            let partition = asked.request(version);
            match topics.last_mut() {
                Some(topic) if last.is_some_and(|last| last.topic == asked.partition.topic) => {
                    topic.partitions.push(partition);
                }
                _ => {
                    let mut topic = FetchTopic::default().with_partitions(vec![partition]);
                    if version > LAST_BY_NAME {
                        topic.topic_id = asked.topic_id;
                    } else {
                        topic.topic = StrBytes::from_string(asked.partition.topic.as_str().to_owned()).into();
                    }
                    topics.push(topic);
                }
            }
            last = Some(&asked.partition);
        }
        FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(i32::try_from(self.max_wait.as_millis()).unwrap_or(i32::MAX))
            .with_min_bytes(self.min_bytes)
            .with_max_bytes(clamp(self.max_bytes))
            .with_isolation_level(self.isolation.wire())
            .with_session_id(0)
            .with_session_epoch(-1)
            .with_topics(topics)
    }

    /// The place of an answered partition in the plan. Answers come mostly in the order of the question, so the search
    /// begins at `hint`.
    pub(crate) fn find(&self, hint: usize, topic: &FetchableTopicResponse, partition: i32) -> Option<usize> {
        let is_it = |asked: &PlannedFetch| {
            asked.partition.partition == partition
                && if topic.topic_id.is_nil() {
                    asked.partition.topic.as_str() == topic.topic.as_str()
                } else {
                    asked.topic_id == topic.topic_id
                }
        };
        let hint = hint.min(self.partitions.len());
        let (before, after) = self.partitions.split_at(hint);
        after.iter().position(is_it).map(|at| at + hint).or_else(|| before.iter().position(is_it))
    }
}

impl PlannedFetch {
    fn request(&self, version: i16) -> FetchPartition {
        let request = FetchPartition::default()
            .with_partition(self.partition.partition)
            .with_current_leader_epoch(self.leader_epoch.map_or(-1, |epoch| epoch.0))
            .with_fetch_offset(self.offset.0)
            .with_log_start_offset(-1)
            .with_partition_max_bytes(clamp(self.max_bytes));
        match self.last_fetched_epoch {
            Some(epoch) if version >= FIRST_WITH_FETCHED_EPOCH => request.with_last_fetched_epoch(epoch.0),
            _ => request,
        }
    }
}

fn clamp(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

const LAST_BY_NAME: i16 = 12;
const FIRST_WITH_FETCHED_EPOCH: i16 = 12;
