//! What is asked of one broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{BrokerId, FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::IsolationLevel;
use super::session::{Forgotten, Known};
use crate::record::{LeaderEpoch, NodeId, Offset, Topic, TopicPartition};

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
    /// Where the broker is to be nearer than the leader, if it can.
    pub(crate) rack: Option<StrBytes>,
    /// All that is asked of the broker, said now or before.
    pub(crate) asked: Arc<Known>,
    /// As which request of which session it goes.
    pub(super) step: (i32, i32),
    /// Places of what is said now, in the order in which it is to be served.
    pub(super) said: Vec<usize>,
    pub(super) forgotten: Vec<Forgotten>,
}

/// One partition of it.
#[derive(Debug, Clone)]
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
        if self.asked.is_by_name() { LAST_BY_NAME } else { i16::MAX }
    }

    /// Whether it says everything, and so depends on nothing that the broker remembers.
    pub(super) fn is_whole(&self) -> bool {
        self.step.1 == 0
    }

    /// The request in this version.
    pub(crate) fn request(&self, version: i16) -> FetchRequest {
        let mut topics: Vec<FetchTopic> = Vec::new();
        let mut last: Option<&PlannedFetch> = None;
        for asked in self.said.iter().filter_map(|at| self.asked.get(*at)) {
            let partition = asked.request(version);
            match topics.last_mut() {
                Some(topic) if last.is_some_and(|last| last.is_of_the_topic_of(asked)) => {
                    topic.partitions.push(partition);
                }
                _ => {
                    let (id, name) = reference(version, asked.topic_id, &asked.partition.topic);
                    let topic = FetchTopic::default().with_topic(name).with_topic_id(id);
                    topics.push(topic.with_partitions(vec![partition]));
                }
            }
            last = Some(asked);
        }
        let (session, epoch) = self.step;
        FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(i32::try_from(self.max_wait.as_millis()).unwrap_or(i32::MAX))
            .with_min_bytes(self.min_bytes)
            .with_max_bytes(clamp(self.max_bytes))
            .with_isolation_level(self.isolation.wire())
            .with_session_id(session)
            .with_session_epoch(epoch)
            .with_topics(topics)
            .with_forgotten_topics_data(self.forgotten(version))
            .with_rack_id(self.rack.clone().filter(|_| version >= FIRST_WITH_RACK).unwrap_or_default())
    }

    fn forgotten(&self, version: i16) -> Vec<ForgottenTopic> {
        let mut topics: Vec<ForgottenTopic> = Vec::new();
        if version < FIRST_WITH_SESSIONS {
            return topics;
        }
        let mut last: Option<&Forgotten> = None;
        // By names a topic that was created anew is the one that is read: it must not be forgotten.
        for gone in self.forgotten.iter().filter(|gone| version > LAST_BY_NAME || !gone.replaced) {
            let of_it =
                |last: &Forgotten| last.topic_id == gone.topic_id && last.partition.topic == gone.partition.topic;
            match topics.last_mut() {
                Some(topic) if last.is_some_and(of_it) => topic.partitions.push(gone.partition.partition),
                _ => {
                    let (id, name) = reference(version, gone.topic_id, &gone.partition.topic);
                    let topic = ForgottenTopic::default().with_topic(name).with_topic_id(id);
                    topics.push(topic.with_partitions(vec![gone.partition.partition]));
                }
            }
            last = Some(gone);
        }
        topics
    }
}

/// The request that ends a session and reads nothing. Only who has the session's id sends it, so in a version that has sessions.
pub(super) fn ending(session: i32) -> FetchRequest {
    FetchRequest::default().with_replica_id(BrokerId(-1)).with_session_id(session).with_session_epoch(FINAL_EPOCH)
}

impl PlannedFetch {
    /// Whether a broker that was told the other knows this one.
    pub(super) fn says_the_same_as(&self, other: &Self) -> bool {
        let said = |it: &Self| (it.topic_id, it.offset, it.leader_epoch, it.last_fetched_epoch, it.max_bytes);
        said(self) == said(other)
    }

    fn is_of_the_topic_of(&self, other: &Self) -> bool {
        self.topic_id == other.topic_id && self.partition.topic == other.partition.topic
    }

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

/// A topic as this version names it: the other is left empty.
fn reference(version: i16, id: Uuid, name: &Topic) -> (Uuid, TopicName) {
    if version > LAST_BY_NAME {
        (id, TopicName::default())
    } else {
        (Uuid::nil(), StrBytes::from_string(name.as_str().to_owned()).into())
    }
}

fn clamp(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// KIP-227.
const FIRST_WITH_SESSIONS: i16 = 7;
/// Of a session's last request.
const FINAL_EPOCH: i32 = -1;
/// KIP-392.
const FIRST_WITH_RACK: i16 = 11;
const LAST_BY_NAME: i16 = 12;
const FIRST_WITH_FETCHED_EPOCH: i16 = 12;
