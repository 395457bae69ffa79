//! One request of a share session.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch as Acknowledged,
};
use kafka_protocol::messages::share_fetch_request::{
    AcknowledgementBatch as FetchAcknowledged, FetchPartition, FetchTopic, ForgottenTopic,
};
use kafka_protocol::messages::{GroupId, ShareAcknowledgeRequest, ShareFetchRequest};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{AcquireMode, PartitionId};
use crate::protocol::share::{ShareAcknowledge, ShareFetch};
use crate::record::{NodeId, TopicPartition};

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AcknowledgeType {
    /// Done.
    Accept,
    /// Not done: available to any member again at once, until it was delivered as often as the group allows.
    Release,
    /// Never to be delivered again.
    Reject,
    /// Still at work: its lock begins anew, and it is to be acknowledged later (KIP-1222; Kafka 4.2).
    Renew,
}

/// What the wire knows besides: offsets without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Gap,
    Of(AcknowledgeType),
}

impl Word {
    fn wire(self) -> i8 {
        match self {
            Self::Gap => 0,
            Self::Of(AcknowledgeType::Accept) => 1,
            Self::Of(AcknowledgeType::Release) => 2,
            Self::Of(AcknowledgeType::Reject) => 3,
            Self::Of(AcknowledgeType::Renew) => 4,
        }
    }
}

/// Records next to each other, and what becomes of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    /// Of the call; none waits for what this client acknowledges by itself.
    pub(super) ticket: Option<u64>,
    pub(super) id: PartitionId,
    pub(super) partition: TopicPartition,
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) word: Word,
    /// When the lock ends.
    pub(super) deadline: Instant,
    /// Whether it shares its partition in a request with no other: one that is refused takes all others with it.
    pub(super) alone: bool,
}

/// A request to a broker, as it was decided on.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) id: u64,
    pub(crate) node: NodeId,
    /// Which of this process's sessions.
    pub(crate) session: u64,
    /// 0 opens it, -1 closes it.
    pub(crate) epoch: i32,
    pub(crate) sent: Instant,
    /// Absent where nothing is fetched.
    pub(crate) fetch: Option<PlannedFetch>,
    pub(super) pieces: Vec<Piece>,
    group: String,
    member: StrBytes,
}

/// What is fetched with it.
#[derive(Debug)]
pub(crate) struct PlannedFetch {
    pub(crate) max_wait: Duration,
    pub(super) min_bytes: i32,
    pub(super) max_bytes: i32,
    pub(super) max_records: i32,
    pub(super) mode: AcquireMode,
    pub(super) added: Vec<PartitionId>,
    pub(super) forgotten: Vec<PartitionId>,
}

impl Plan {
    pub(super) fn new(
        (id, node, session, epoch): (u64, NodeId, u64, i32),
        sent: Instant,
        fetch: Option<PlannedFetch>,
        pieces: Vec<Piece>,
        (group, member): (&str, &StrBytes),
    ) -> Self {
        Self { id, node, session, epoch, sent, fetch, pieces, group: group.to_owned(), member: member.clone() }
    }

    /// Whether locks are renewed by it.
    pub(crate) fn renews(&self) -> bool {
        self.pieces.iter().any(|piece| piece.word == Word::Of(AcknowledgeType::Renew))
    }

    /// As a ShareFetch.
    pub(crate) fn fetch_request(&self, fetch: &PlannedFetch) -> ShareFetch {
        let mut topics: BTreeMap<Uuid, BTreeMap<i32, Vec<FetchAcknowledged>>> = BTreeMap::new();
        for (topic, partition) in &fetch.added {
            topics.entry(*topic).or_default().entry(*partition).or_default();
        }
        for ((topic, partition), runs) in self.runs() {
            let batches = runs.into_iter().map(|(first, last, word)| {
                FetchAcknowledged::default()
                    .with_first_offset(first)
                    .with_last_offset(last)
                    .with_acknowledge_types(vec![word.wire()])
            });
            topics.entry(topic).or_default().insert(partition, batches.collect());
        }
        let topics = topics.into_iter().map(|(topic, partitions)| {
            let partitions = partitions.into_iter().map(|(partition, batches)| {
                FetchPartition::default().with_partition_index(partition).with_acknowledgement_batches(batches)
            });
            FetchTopic::default().with_topic_id(topic).with_partitions(partitions.collect())
        });
        let mut forgotten: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in &fetch.forgotten {
            forgotten.entry(*topic).or_default().push(*partition);
        }
        let forgotten = forgotten
            .into_iter()
            .map(|(topic, partitions)| ForgottenTopic::default().with_topic_id(topic).with_partitions(partitions));
        let body = ShareFetchRequest::default()
            .with_group_id(Some(GroupId(StrBytes::from_string(self.group.clone()))))
            .with_member_id(Some(self.member.clone()))
            .with_share_session_epoch(self.epoch)
            .with_max_wait_ms(i32::try_from(fetch.max_wait.as_millis()).unwrap_or(i32::MAX))
            .with_min_bytes(fetch.min_bytes)
            .with_max_bytes(fetch.max_bytes)
            .with_max_records(fetch.max_records)
            .with_batch_size(fetch.max_records)
            .with_topics(topics.collect())
            .with_forgotten_topics_data(forgotten.collect());
        ShareFetch { body, acquire_mode: fetch.mode.wire(), is_renew: false }
    }

    /// As a ShareAcknowledge.
    pub(crate) fn acknowledge_request(&self) -> ShareAcknowledge {
        let mut topics: BTreeMap<Uuid, Vec<AcknowledgePartition>> = BTreeMap::new();
        for ((topic, partition), runs) in self.runs() {
            let batches = runs.into_iter().map(|(first, last, word)| {
                Acknowledged::default()
                    .with_first_offset(first)
                    .with_last_offset(last)
                    .with_acknowledge_types(vec![word.wire()])
            });
            topics.entry(topic).or_default().push(
                AcknowledgePartition::default()
                    .with_partition_index(partition)
                    .with_acknowledgement_batches(batches.collect()),
            );
        }
        let topics = topics
            .into_iter()
            .map(|(topic, partitions)| AcknowledgeTopic::default().with_topic_id(topic).with_partitions(partitions));
        let body = ShareAcknowledgeRequest::default()
            .with_group_id(Some(GroupId(StrBytes::from_string(self.group.clone()))))
            .with_member_id(Some(self.member.clone()))
            .with_share_session_epoch(self.epoch)
            .with_topics(topics.collect());
        ShareAcknowledge { body, is_renew: self.renews() }
    }

    /// What is acknowledged of each partition: in order, and as few ranges as can say it.
    fn runs(&self) -> BTreeMap<PartitionId, Vec<(i64, i64, Word)>> {
        let mut sorted: Vec<_> = self.pieces.iter().collect();
        sorted.sort_by_key(|piece| (piece.id, piece.first));
        let mut runs: BTreeMap<PartitionId, Vec<(i64, i64, Word)>> = BTreeMap::new();
        for piece in sorted {
            let of_it = runs.entry(piece.id).or_default();
            match of_it.last_mut() {
                Some((_, last, word)) if *word == piece.word && last.checked_add(1) == Some(piece.first) => {
                    *last = piece.last;
                }
                _ => of_it.push((piece.first, piece.last, piece.word)),
            }
        }
        runs
    }
}
