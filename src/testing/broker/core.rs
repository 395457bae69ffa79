//! What the cluster knows, and every API acts on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::acls::Acls;
use super::configs::Configs;
use super::faults::Faults;
use super::groups::Groups;
use super::node::{Listener, Nodes};
use super::partition::{Around, Partition};
use super::random::Random;
use super::sessions::FetchSessions;
use super::settings::Settings;
use super::telemetry::Telemetry;
use super::topics::{TopicState, Topics, assign_replicas};
use super::transactions::Transactions;
use crate::memory::{Appended, TopicConfig, is_valid_name};
use crate::protocol::batch::EncodedBatch;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Timestamp, Topic, TopicPartition};

/// The state of a cluster, without its connections.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) nodes: Nodes,
    pub(super) topics: Topics,
    pub(super) sessions: FetchSessions,
    pub(super) groups: Groups,
    pub(super) transactions: Transactions,
    pub(super) acls: Acls,
    pub(super) configs: Configs,
    pub(super) telemetry: Telemetry,
    pub(super) faults: Faults,
    #[cfg(feature = "sasl")]
    pub(super) logins: super::logins::Logins,
    pub(super) random: Random,
    /// When the cluster began.
    began: Instant,
    /// Grows with every change that something may wait for.
    revision: u64,
    appends: u64,
    next_producer_id: i64,
    log_bytes: usize,
    /// Coordinators that were moved, by group or transaction.
    pub(super) coordinators: BTreeMap<String, i32>,
    /// When the first follower of a partition is late.
    late_at: BTreeMap<TopicPartition, Instant>,
}

impl Core {
    pub(super) fn new(settings: Settings, now: Instant) -> Self {
        Self {
            nodes: Nodes::new(&settings),
            topics: Topics::default(),
            sessions: FetchSessions::default(),
            groups: Groups::default(),
            transactions: Transactions::default(),
            acls: Acls::default(),
            configs: Configs::default(),
            telemetry: Telemetry::default(),
            faults: Faults::default(),
            #[cfg(feature = "sasl")]
            logins: super::logins::Logins::default(),
            random: Random::new(settings.seed),
            settings,
            began: now,
            revision: 0,
            appends: 0,
            next_producer_id: 0,
            log_bytes: 0,
            coordinators: BTreeMap::new(),
            late_at: BTreeMap::new(),
        }
    }

    /// The wall clock at this time.
    pub(super) fn wall(&self, now: Instant) -> Timestamp {
        let since = now.saturating_duration_since(self.began);
        Timestamp(self.settings.wall.0.saturating_add(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
    }

    /// It is this time now.
    pub(super) fn set_wall(&mut self, wall: Timestamp, now: Instant) {
        let ahead = wall.0.saturating_sub(self.wall(now).0);
        self.settings.wall = Timestamp(self.settings.wall.0.saturating_add(ahead));
    }

    /// Something happened that an answer may wait for.
    pub(super) fn changed(&mut self) {
        self.revision += 1;
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// A producer id that nobody has.
    pub(super) fn new_producer_id(&mut self) -> i64 {
        self.next_producer_id += 1;
        self.next_producer_id - 1
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let late = self.late_at.values().min().copied();
        [late, self.groups.poll_timeout(), self.transactions.poll_timeout()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let lag = self.settings.replica_lag_time_max;
        let due = self.late_at.iter().filter(|(_, at)| **at <= now);
        let due: Vec<TopicPartition> = due.map(|(partition, _)| partition.clone()).collect();
        self.handle_transaction_timeout(now);
        if self.groups.handle_timeout(self.group_limits(), self.share_limits(), now) {
            self.changed();
        }
        for partition in due {
            // A topic that is hidden is looked at when it is shown again.
            let _ = self.with_partition(&partition.topic, partition.partition, now, |it, _, _| it.shrink(now, lag));
        }
    }
}

/// Topics.
impl Core {
    /// Creates a topic. Replicas as given, or round the nodes.
    ///
    /// # Errors
    /// Kafka's code, and why.
    pub(super) fn create_topic(&mut self, new: NewTopic, validate_only: bool) -> Result<Uuid, Refusal> {
        self.check_new_topic(&new)?;
        let id = self.random.uuid();
        if validate_only {
            return Ok(id);
        }
        let partitions = new.replicas.into_iter().map(|replicas| Partition::new(replicas, &self.nodes)).collect();
        self.topics.insert(new.name, TopicState { id, config: new.config, partitions });
        self.changed();
        Ok(id)
    }

    fn check_new_topic(&self, new: &NewTopic) -> Result<(), Refusal> {
        let name = &new.name;
        if !is_valid_name(name) {
            let why = "the name is empty, too long, or has other characters than a-z, A-Z, 0-9, '.', '_' and '-'";
            return Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, why));
        }
        if self.topics.exists(name) {
            return Err(Refusal::new(ErrorCode::TOPIC_ALREADY_EXISTS, format!("Topic '{name}' already exists.")));
        }
        // Names of metrics do not tell '.' and '_' apart.
        let folded = |name: &str| name.replace('.', "_");
        if let Some((other, _)) = self.topics.iter().find(|(other, _)| folded(other) == folded(name)) {
            let why = format!("Topic '{name}' collides with existing topic: {other}");
            return Err(Refusal::new(ErrorCode::INVALID_TOPIC_EXCEPTION, why));
        }
        if self.topics.len() >= self.settings.max_topics {
            return Err(Refusal::new(ErrorCode::POLICY_VIOLATION, "there are as many topics as there may be"));
        }
        self.check_replicas(&new.replicas)
    }

    /// Checks who is to hold a topic's partitions.
    pub(super) fn check_replicas(&self, partitions: &[Vec<i32>]) -> Result<(), Refusal> {
        if partitions.is_empty() || partitions.len() > MAX_PARTITIONS {
            let why = "Number of partitions must be larger than 0.";
            return Err(Refusal::new(ErrorCode::INVALID_PARTITIONS, why));
        }
        let sound = |replicas: &Vec<i32>| {
            let distinct = replicas.iter().all(|node| replicas.iter().filter(|other| *other == node).count() == 1);
            !replicas.is_empty() && distinct && replicas.iter().all(|node| self.nodes.get(*node).is_some())
        };
        if !partitions.iter().all(sound) {
            let why = "a partition has no replica, one twice, or one on a node that does not exist";
            return Err(Refusal::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, why));
        }
        Ok(())
    }

    /// Who is to hold the partitions of a new topic; -1 stands for the cluster's defaults.
    pub(super) fn place(&mut self, partitions: i32, factor: i16) -> Result<Vec<Vec<i32>>, Refusal> {
        let partitions = if partitions == -1 { self.settings.default_partitions } else { partitions };
        if partitions <= 0 || partitions as usize > MAX_PARTITIONS {
            let why = "Number of partitions must be larger than 0.";
            return Err(Refusal::new(ErrorCode::INVALID_PARTITIONS, why));
        }
        let nodes = self.nodes.ids().len();
        let default = self.settings.default_replication_factor.min(nodes as i16);
        let factor = if factor == -1 { default } else { factor };
        if factor <= 0 || factor as usize > nodes {
            let why = format!(
                "Unable to replicate the partition {factor} time(s): the target replication factor cannot be larger \
                 than the {nodes} broker(s), or below 1."
            );
            return Err(Refusal::new(ErrorCode::INVALID_REPLICATION_FACTOR, why));
        }
        let first = self.topics.len();
        Ok(assign_replicas(&self.nodes, first, partitions, factor))
    }

    /// Deletes a topic.
    pub(super) fn delete_topic(&mut self, name: &str) -> Result<(), ErrorCode> {
        self.topics.get(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let removed = self.topics.remove(name);
        self.late_at.retain(|partition, _| *partition.topic != *name);
        let bytes: usize = removed.iter().flat_map(|topic| &topic.partitions).map(Partition::bytes).sum();
        self.log_bytes = self.log_bytes.saturating_sub(bytes);
        self.groups.forget_topic(name);
        self.changed();
        Ok(())
    }

    /// Gives a topic the partitions that these replicas hold, besides those it has.
    pub(super) fn add_partitions(&mut self, name: &str, replicas: Vec<Vec<i32>>) -> Result<(), ErrorCode> {
        let nodes = &self.nodes;
        let topic = self.topics.get_mut(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        topic.partitions.extend(replicas.into_iter().map(|replicas| Partition::new(replicas, nodes)));
        self.changed();
        Ok(())
    }
}

/// Partitions.
impl Core {
    /// Appends a batch to a partition.
    pub(super) fn append(
        &mut self,
        topic: &str,
        partition: i32,
        batch: EncodedBatch,
        now: Instant,
    ) -> Result<Appended, ErrorCode> {
        if self.log_bytes.saturating_add(batch.bytes().len()) > self.settings.max_log_bytes {
            return Err(ErrorCode::KAFKA_STORAGE_ERROR);
        }
        let appended = self.with_partition(topic, partition, now, |partition, config, around| {
            partition.append(batch, config, around)
        })??;
        self.appends += 1;
        Ok(appended)
    }

    /// Changes a partition, and lets those know who wait for a change.
    pub(super) fn with_partition<T>(
        &mut self,
        topic: &str,
        index: i32,
        now: Instant,
        act: impl FnOnce(&mut Partition, &TopicConfig, &Around<'_>) -> T,
    ) -> Result<T, ErrorCode> {
        let around = Around { nodes: &self.nodes, now, wall: self.wall(now), order: self.appends };
        let (partition, config) = self.topics.partition_mut(topic, index)?;
        let before = partition.bytes();
        let done = act(partition, config, &around);
        self.log_bytes = (self.log_bytes + partition.bytes()).saturating_sub(before);
        self.revision += 1;
        match partition.shrinks_at(self.settings.replica_lag_time_max) {
            Some(at) => self.late_at.insert(TopicPartition::new(topic, index), at),
            None if self.late_at.is_empty() => None,
            None => self.late_at.remove(&TopicPartition::new(topic, index)),
        };
        Ok(done)
    }

    /// Lets go what a partition's topic does not keep. Done whenever it is written or read.
    pub(super) fn retain(&mut self, topic: Option<Topic>, partition: i32, now: Instant) {
        let wall = self.wall(now);
        let found = topic.as_deref().and_then(|topic| self.topics.partition_mut(topic, partition).ok());
        if let Some((partition, config)) = found {
            let before = partition.bytes();
            partition.apply_retention(config, wall);
            self.log_bytes = (self.log_bytes + partition.bytes()).saturating_sub(before);
        }
    }

    /// After a node came, went, or follows again.
    pub(super) fn nodes_changed(&mut self, now: Instant) {
        let around = Around { nodes: &self.nodes, now, wall: self.wall(now), order: self.appends };
        for partition in self.topics.partitions_mut() {
            partition.nodes_changed(&around);
        }
        self.log_bytes = self.topics.partitions().map(Partition::bytes).sum();
        let lag = self.settings.replica_lag_time_max;
        let late = self.topics.iter().flat_map(|(name, topic)| {
            let late = (0..).zip(&topic.partitions).filter_map(move |(index, it)| Some((index, it.shrinks_at(lag)?)));
            late.map(move |(index, at)| (TopicPartition::new(name, index), at))
        });
        self.late_at = late.collect();
        self.revision += 1;
    }
}

/// Places.
impl Core {
    /// Host and port of a node, for who came in this way; nothing and -1 for none.
    pub(super) fn endpoint(&self, node: i32, listener: Listener) -> (StrBytes, i32) {
        match self.nodes.get(node) {
            Some(node) => {
                let address = node.address(listener);
                (text(address.host()), i32::from(address.port()))
            }
            None => (StrBytes::default(), -1),
        }
    }

    /// The node that coordinates the group or transaction of this name: the one that was told to, or a hash of the name
    /// over the nodes; the next one where that does not run.
    pub(super) fn coordinator_of(&self, key: &str) -> Option<i32> {
        if let Some(told) = self.coordinators.get(key).filter(|node| self.nodes.is_up(**node)) {
            return Some(*told);
        }
        let ids = self.nodes.ids();
        let first = key.bytes().fold(0_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(usize::from(byte)));
        (0..ids.len()).map(|step| ids[(first + step) % ids.len()]).find(|id| self.nodes.is_up(*id))
    }
}

/// A topic to be made.
#[derive(Debug)]
pub(super) struct NewTopic {
    pub(super) name: Topic,
    /// Who holds each partition.
    pub(super) replicas: Vec<Vec<i32>>,
    pub(super) config: TopicConfig,
}

/// A code, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: ErrorCode,
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn new(code: ErrorCode, why: impl Into<String>) -> Self {
        Self { code, why: why.into() }
    }

    /// As Kafka refuses what it did not think of a wording for.
    pub(super) fn without_words(code: ErrorCode) -> Self {
        Self::new(code, "")
    }

    /// The wording, as an answer has it.
    pub(super) fn words(&self) -> Option<StrBytes> {
        (!self.why.is_empty()).then(|| text(&self.why))
    }
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Self {
        Self::new(code, code.meaning())
    }
}

/// A text for the wire.
pub(super) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// A time that a request gives in milliseconds; none for a negative one.
pub(super) fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// A bound on memory, far above what a topic of a real cluster has.
pub(super) const MAX_PARTITIONS: usize = 10_000;
