//! Broker behaviour in memory: a log of encoded batches, groups, and failures to order.
//!
//! Nothing here waits, listens or looks at a clock. Whoever drives it says what time it is, hands over batches as they
//! would come from a socket, and gets Kafka's error codes.
//!
//! ```text
//!   Broker ─┬─ topics ──► partitions ──► log of encoded batches ── producer state: known batches
//!           ├─ groups ──► members, owners, committed offsets
//!           └─ faults ──► what the next call of a kind suffers
//! ```
//!
//! The log cleaner of compacted topics never runs, as Kafka promises no time for it either; retention is applied
//! whenever a partition is written or read.

mod assign;
mod epochs;
mod faults;
mod group;
mod log;
mod producer_state;
#[cfg(test)]
mod tests;
mod topic;
mod transactions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::protocol::batch::EncodedBatch;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, Offset, Timestamp, Topic, TopicPartition};

pub use faults::{Effect, Fault, Faults, Operation};
pub use group::{Commit, Committed, MemberEvent, MemberId, Owned};
pub use log::Appended;
pub use topic::TopicConfig;

pub(crate) use log::PartitionLog;
#[cfg(feature = "testing")]
pub(crate) use producer_state::KnownProducer;
pub(crate) use topic::is_valid_name;
#[cfg(feature = "testing")]
pub(crate) use {log::StoredBatch, transactions::Aborted};

use group::{Group, Surroundings};
use topic::TopicState;

/// A broker, without a way to reach it.
#[derive(Debug, Default)]
pub struct Broker {
    topics: BTreeMap<Topic, TopicState>,
    groups: BTreeMap<String, Group>,
    /// Failures to come. Whoever drives the broker asks before each call.
    pub faults: Faults,
    /// How many partitions each topic has: what the groups assign.
    partition_counts: BTreeMap<Topic, i32>,
    next_topic_id: u128,
    next_producer_id: i64,
    next_member: u64,
    next_epoch: u64,
    appends: u64,
}

/// What is known of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicInfo {
    /// Told apart from a topic of the same name that was deleted.
    pub id: u128,
    /// How many partitions it has.
    pub partitions: i32,
    /// Its settings.
    pub config: TopicConfig,
}

/// Topics.
impl Broker {
    /// Creates a topic.
    ///
    /// # Errors
    /// `INVALID_TOPIC_EXCEPTION`, `INVALID_PARTITIONS`, or `TOPIC_ALREADY_EXISTS`.
    pub fn create_topic(
        &mut self,
        name: &Topic,
        partitions: i32,
        config: TopicConfig,
        now: Instant,
    ) -> Result<(), ErrorCode> {
        if !is_valid_name(name) {
            return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
        }
        if !(1..=MAX_PARTITIONS).contains(&partitions) {
            return Err(ErrorCode::INVALID_PARTITIONS);
        }
        if self.topics.contains_key(name) {
            return Err(ErrorCode::TOPIC_ALREADY_EXISTS);
        }
        self.next_topic_id += 1;
        let logs = (0..partitions).map(|_| PartitionLog::default()).collect();
        self.topics.insert(name.clone(), TopicState { config, partitions: logs, id: self.next_topic_id });
        self.partitions_changed(name, now);
        Ok(())
    }

    /// Gives a topic more partitions, `total` in all.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`, or `INVALID_PARTITIONS` where that is not more than it has.
    pub fn add_partitions(&mut self, name: &Topic, total: i32, now: Instant) -> Result<(), ErrorCode> {
        let topic = self.topics.get_mut(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if total <= topic.partition_count() || total > MAX_PARTITIONS {
            return Err(ErrorCode::INVALID_PARTITIONS);
        }
        topic.partitions.resize_with(total as usize, PartitionLog::default);
        self.partitions_changed(name, now);
        Ok(())
    }

    /// Deletes a topic, its records and what groups committed on it. Its readers lose their partitions.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`.
    pub fn delete_topic(&mut self, name: &Topic, now: Instant) -> Result<(), ErrorCode> {
        self.topics.remove(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        for group in self.groups.values_mut() {
            group.forget_topic(name);
        }
        self.partitions_changed(name, now);
        Ok(())
    }

    /// What is known of a topic; `None` if there is none of this name.
    pub fn topic(&self, name: &Topic) -> Option<TopicInfo> {
        let topic = self.topics.get(name)?;
        Some(TopicInfo { id: topic.id, partitions: topic.partition_count(), config: topic.config.clone() })
    }

    /// A topic's settings; `None` if there is none of this name.
    pub fn topic_config(&self, name: &Topic) -> Option<&TopicConfig> {
        self.topics.get(name).map(|topic| &topic.config)
    }

    /// How many partitions a topic has; `None` if there is none of this name.
    pub fn partition_count(&self, name: &Topic) -> Option<i32> {
        self.partition_counts.get(name).copied()
    }

    /// The names of all topics, in order.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.topics.keys()
    }

    fn partitions_changed(&mut self, name: &Topic, now: Instant) {
        match self.topics.get(name) {
            Some(topic) => self.partition_counts.insert(name.clone(), topic.partition_count()),
            None => self.partition_counts.remove(name),
        };
        let mut around = Surroundings { partitions: &self.partition_counts, now, next_epoch: &mut self.next_epoch };
        for group in self.groups.values_mut() {
            group.reconcile(&mut around);
        }
    }
}

/// Records.
impl Broker {
    /// A producer id that nobody has (InitProducerId).
    pub fn new_producer_id(&mut self) -> i64 {
        self.next_producer_id += 1;
        self.next_producer_id
    }

    /// Appends a batch as a producer sends it. One that an idempotent producer sent before is found, not appended.
    ///
    /// # Errors
    /// Kafka's code for what it refuses. Nothing was appended then.
    pub fn append(&mut self, to: &TopicPartition, batch: EncodedBatch, now: Timestamp) -> Result<Appended, ErrorCode> {
        let topic = self.topics.get_mut(&to.topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let (log, config) = topic.partition_mut(to.partition)?;
        let appended = log.append(batch, config, now, self.appends)?;
        log.apply_retention(config, now);
        self.appends += 1;
        Ok(appended)
    }

    /// Reads whole batches from the one that holds `from` on: at least one if there is any, then as many as fit.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`, or `OFFSET_OUT_OF_RANGE`.
    pub fn read(
        &mut self,
        partition: &TopicPartition,
        from: Offset,
        max_records: usize,
        max_bytes: usize,
        now: Timestamp,
    ) -> Result<Vec<EncodedBatch>, ErrorCode> {
        let topic = self.topics.get_mut(&partition.topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let (log, config) = topic.partition_mut(partition.partition)?;
        log.apply_retention(config, now);
        log.read(from, max_records, max_bytes)
    }

    /// The oldest offset kept and the next one to be written.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`.
    pub fn watermarks(&self, partition: &TopicPartition) -> Result<(Offset, Offset), ErrorCode> {
        let log = self.log(partition)?;
        Ok((log.start(), log.end()))
    }

    /// The leader's epoch of a partition.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`.
    pub fn leader_epoch(&self, partition: &TopicPartition) -> Result<LeaderEpoch, ErrorCode> {
        Ok(self.log(partition)?.leader_epoch())
    }

    /// Every batch of a topic that is still kept, with its partition, in the order they were appended.
    pub fn batches(&self, name: &Topic) -> Vec<(TopicPartition, EncodedBatch)> {
        let Some(topic) = self.topics.get(name) else { return Vec::new() };
        let mut all: Vec<_> = (0_i32..)
            .zip(&topic.partitions)
            .flat_map(|(partition, log)| log.batches().map(move |stored| (partition, stored)))
            .collect();
        all.sort_by_key(|(_, stored)| stored.order);
        all.into_iter()
            .map(|(partition, stored)| (TopicPartition::new(name, partition), stored.batch.clone()))
            .collect()
    }

    /// Deletes the records before `offset` and tells where the partition begins now.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`, or `OFFSET_OUT_OF_RANGE`.
    pub fn delete_records(&mut self, partition: &TopicPartition, before: Offset) -> Result<Offset, ErrorCode> {
        self.log_mut(partition)?.delete_before(before)
    }

    /// Counts a change of leader: batches appended from now on carry the new epoch.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`.
    pub fn bump_leader_epoch(&mut self, partition: &TopicPartition) -> Result<(), ErrorCode> {
        self.log_mut(partition)?.bump_leader_epoch();
        Ok(())
    }

    /// Makes a partition forget its idempotent producers, as one whose producer state expired.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`.
    pub fn forget_producers(&mut self, partition: &TopicPartition) -> Result<(), ErrorCode> {
        self.log_mut(partition)?.forget_producers();
        Ok(())
    }

    fn log(&self, partition: &TopicPartition) -> Result<&PartitionLog, ErrorCode> {
        let topic = self.topics.get(&partition.topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        topic.partition(partition.partition)
    }

    fn log_mut(&mut self, partition: &TopicPartition) -> Result<&mut PartitionLog, ErrorCode> {
        let topic = self.topics.get_mut(&partition.topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        Ok(topic.partition_mut(partition.partition)?.0)
    }
}

/// Groups.
impl Broker {
    /// A new member of a group. What it gets comes by [`take_events`](Self::take_events); topics that do not exist yet
    /// follow once they do.
    pub fn join(
        &mut self,
        group: &str,
        topics: BTreeSet<Topic>,
        revocation_timeout: Duration,
        now: Instant,
    ) -> MemberId {
        self.next_member += 1;
        let id = MemberId(self.next_member);
        let mut around = Surroundings { partitions: &self.partition_counts, now, next_epoch: &mut self.next_epoch };
        let group = self.groups.entry(group.to_owned()).or_default();
        group.join(id, topics, revocation_timeout, &mut around);
        id
    }

    /// A member goes; the others get what it had.
    ///
    /// # Errors
    /// `UNKNOWN_MEMBER_ID`.
    pub fn leave(&mut self, group: &str, member: MemberId, now: Instant) -> Result<(), ErrorCode> {
        self.with_group(group, now, |group, around| group.leave(member, around)).unwrap_or(Err(UNKNOWN_MEMBER))
    }

    /// A member answers a revocation. What it does not have any more by these assignments is passed over.
    pub fn release(&mut self, group: &str, member: MemberId, released: &[Owned], now: Instant) {
        self.with_group(group, now, |group, around| group.release(member, released, around));
    }

    /// Asks the owners of these partitions to release them. They are assigned anew afterwards, maybe to the same member.
    pub fn revoke(&mut self, group: &str, partitions: &[TopicPartition], now: Instant) {
        self.with_group(group, now, |group, around| group.revoke(partitions, around.now));
    }

    /// Takes these partitions from their owners at once, and assigns them anew.
    pub fn lose(&mut self, group: &str, partitions: &[TopicPartition], now: Instant) {
        self.with_group(group, now, |group, around| group.lose(partitions, around));
    }

    /// Ends a member's session: it loses all it has, the others get that, then it joins anew.
    ///
    /// # Errors
    /// `UNKNOWN_MEMBER_ID`.
    pub fn expire_session(&mut self, group: &str, member: MemberId, now: Instant) -> Result<(), ErrorCode> {
        self.with_group(group, now, |group, around| group.expire_session(member, around)).unwrap_or(Err(UNKNOWN_MEMBER))
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due next. Ask again after every call on groups or topics.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.groups.values().filter_map(Group::poll_timeout).min()
    }

    /// Takes away what was to be released by now and was not.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut around = Surroundings { partitions: &self.partition_counts, now, next_epoch: &mut self.next_epoch };
        for group in self.groups.values_mut() {
            if group.poll_timeout().is_some_and(|deadline| deadline <= now) {
                group.handle_timeout(&mut around);
            }
        }
    }

    /// What a member is to know, in order. Any call on groups or topics may give any member something.
    pub fn take_events(&mut self, group: &str, member: MemberId) -> VecDeque<MemberEvent> {
        self.groups.get_mut(group).map(|group| group.take_events(member)).unwrap_or_default()
    }

    /// Commits, with an outcome for each in the order given.
    pub fn commit(&mut self, group: &str, member: MemberId, commits: Vec<Commit>) -> Vec<Result<(), ErrorCode>> {
        let topics = &self.partition_counts;
        let exists = |partition: &TopicPartition| {
            topics.get(&partition.topic).is_some_and(|count| (0..*count).contains(&partition.partition))
        };
        let known: Vec<bool> = commits.iter().map(|commit| exists(&commit.owned.partition)).collect();
        let Some(group) = self.groups.get_mut(group) else {
            return vec![Err(UNKNOWN_MEMBER); commits.len()];
        };
        let mut outcomes = group.commit(member, commits);
        for (outcome, known) in outcomes.iter_mut().zip(known) {
            // A member that lost its partitions with the topic hears the nearer reason.
            if !known && *outcome == Err(ErrorCode::STALE_MEMBER_EPOCH) {
                *outcome = Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            }
        }
        outcomes
    }

    /// What a group has committed on a partition.
    pub fn committed(&self, group: &str, partition: &TopicPartition) -> Option<&Committed> {
        self.groups.get(group)?.committed(partition)
    }

    /// Sets what a group has committed on a partition, without being a member.
    ///
    /// # Errors
    /// `UNKNOWN_MEMBER_ID` where it has members, as Kafka says it; `UNKNOWN_TOPIC_OR_PARTITION`.
    pub fn set_committed(
        &mut self,
        group: &str,
        partition: &TopicPartition,
        committed: Committed,
    ) -> Result<(), ErrorCode> {
        self.log(partition)?;
        self.groups.entry(group.to_owned()).or_default().set_committed(partition, committed)
    }

    /// The names of all groups.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str)
    }

    /// Whether a member of the group wants to read the topic.
    pub fn is_subscribed(&self, group: &str, topic: &Topic) -> bool {
        self.groups.get(group).is_some_and(|group| group.is_subscribed(topic))
    }

    /// The members of a group, oldest first. `None` for a group that never had one.
    pub fn members(&self, group: &str) -> Option<Vec<MemberId>> {
        let group = self.groups.get(group).filter(|group| group.had_members())?;
        Some(group.members().collect())
    }

    /// What a member has, what it is asked to release included.
    pub fn owned_by(&self, group: &str, member: MemberId) -> Vec<Owned> {
        self.groups.get(group).map(|group| group.owned_by(member)).unwrap_or_default()
    }

    /// How often the group's members changed; 0 for one that never had a member.
    pub fn generation(&self, group: &str) -> i32 {
        self.groups.get(group).map_or(0, Group::generation)
    }

    fn with_group<T>(
        &mut self,
        group: &str,
        now: Instant,
        act: impl FnOnce(&mut Group, &mut Surroundings<'_>) -> T,
    ) -> Option<T> {
        let mut around = Surroundings { partitions: &self.partition_counts, now, next_epoch: &mut self.next_epoch };
        Some(act(self.groups.get_mut(group)?, &mut around))
    }
}

const UNKNOWN_MEMBER: ErrorCode = ErrorCode::UNKNOWN_MEMBER_ID;

/// A bound on memory, far above what a topic of a real cluster has.
const MAX_PARTITIONS: i32 = 10_000;
