//! The coordinator of one share group, and what its members have locked of each partition (KIP-932).
//!
//! ```text
//!   Available ──acquired, count + 1──► Acquired ──accepted──► done       rejected, or no record there ──► done
//!      ▲                                  │
//!      └── released, lock over, session ended; done instead once it was delivered as often as it may
//! ```
//!
//! As `SharePartition`, `SharePartitionManager` and the `SimpleAssignor` of Kafka 4.2 do it. A partition's state is one for all
//! nodes, but its locks are those of its leader: they end when it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::call::{Call, ConnectionId};
use super::core::{Core, Refusal};
use super::groups::Kind;
use super::topics::Topics;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};

/// A share group.
#[derive(Debug, Default)]
pub(super) struct ShareGroup {
    epoch: i32,
    members: BTreeMap<String, Member>,
    /// How many partitions the topics had that were assigned last.
    known: BTreeMap<Topic, i32>,
    partitions: BTreeMap<PartitionId, SharePartition>,
    /// By node and member.
    sessions: BTreeMap<(i32, String), Session>,
}

/// A partition by its topic's id.
pub(super) type PartitionId = (Uuid, i32);

/// A member.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) epoch: i32,
    pub(super) rack_id: Option<String>,
    pub(super) client_id: String,
    pub(super) topics: BTreeSet<Topic>,
    pub(super) assigned: BTreeSet<TopicPartition>,
    /// Whether it has heard of what is assigned.
    told: bool,
    expires: Instant,
}

/// A heartbeat. What is `None` has not changed.
#[derive(Debug, Clone)]
pub(super) struct Beat {
    pub(super) member_id: String,
    pub(super) epoch: i32,
    pub(super) rack_id: Option<String>,
    pub(super) client_id: String,
    pub(super) topics: Option<BTreeSet<Topic>>,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beaten {
    pub(super) epoch: i32,
    /// What is assigned, where it is told.
    pub(super) assigned: Option<BTreeSet<TopicPartition>>,
}

/// Settings of share groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) session: Duration,
    pub(super) max_members: usize,
    pub(super) lock: Duration,
    pub(super) deliveries: u16,
    pub(super) max_locks: i64,
}

/// What a member fetches of one node.
#[derive(Debug)]
struct Session {
    /// Of the next request.
    epoch: i32,
    connection: ConnectionId,
    partitions: BTreeSet<PartitionId>,
}

/// What a partition's records are at.
#[derive(Debug)]
struct SharePartition {
    leader_epoch: i32,
    /// Everything before it is done.
    start: i64,
    /// Nothing from it on was ever delivered.
    end: i64,
    /// Those between that are not done.
    records: BTreeMap<i64, Record>,
}

#[derive(Debug, Clone)]
struct Record {
    deliveries: u16,
    lock: Option<Lock>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Lock {
    member: String,
    until: Instant,
}

/// Offsets next to each other, and what becomes of them: one type for all, or one for each.
#[derive(Debug, Clone)]
pub(super) struct Acknowledged {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) types: Vec<i8>,
}

/// Records next to each other that were acquired: first, last, how often delivered.
pub(super) type Run = (i64, i64, u16);

impl ShareGroup {
    /// Takes in a heartbeat.
    pub(super) fn beat(
        &mut self,
        beat: Beat,
        limits: Limits,
        topics: &Topics,
        now: Instant,
    ) -> Result<Beaten, ErrorCode> {
        match (beat.epoch, self.members.get(&beat.member_id)) {
            (LEAVE, None) => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            (LEAVE, Some(_)) => {
                self.members.remove(&beat.member_id);
                self.assign();
                return Ok(Beaten { epoch: LEAVE, assigned: None });
            }
            (0, None) if self.members.len() >= limits.max_members => return Err(ErrorCode::GROUP_MAX_SIZE_REACHED),
            (0, _) if beat.topics.is_none() => return Err(ErrorCode::INVALID_REQUEST),
            (0, None) => {
                let member = Member {
                    epoch: 0,
                    rack_id: None,
                    client_id: beat.client_id.clone(),
                    topics: BTreeSet::new(),
                    assigned: BTreeSet::new(),
                    told: false,
                    expires: now,
                };
                self.members.insert(beat.member_id.clone(), member);
            }
            (0, Some(_)) => {}
            (epoch, _) if epoch < LEAVE => return Err(ErrorCode::INVALID_REQUEST),
            (_, None) => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            // A member may be one epoch behind: the answer that told the next one may be lost.
            (epoch, Some(member)) if epoch > member.epoch => return Err(ErrorCode::FENCED_MEMBER_EPOCH),
            _ => {}
        }
        let joins = beat.epoch == 0;
        if let Some(member) = self.members.get_mut(&beat.member_id) {
            member.expires = now + limits.session;
            member.told &= !joins;
            member.rack_id = beat.rack_id.or(member.rack_id.take());
            let other = beat.topics.as_ref().is_some_and(|topics| *topics != member.topics);
            if let Some(wanted) = beat.topics.filter(|_| other) {
                member.topics = wanted;
                self.known.clear();
            }
        }
        self.refresh(topics);
        let epoch = self.epoch;
        let member = self.members.get_mut(&beat.member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        member.epoch = epoch;
        let tells = !std::mem::replace(&mut member.told, true);
        Ok(Beaten { epoch, assigned: tells.then(|| member.assigned.clone()) })
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&String, &Member)> {
        self.members.iter()
    }

    pub(super) fn epoch(&self) -> i32 {
        self.epoch
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn state_name(&self) -> &'static str {
        if self.is_empty() { "Empty" } else { "Stable" }
    }

    /// The member is forgotten, as if its session were over; `false` if there is none.
    pub(super) fn expire(&mut self, member: &str) -> bool {
        let known = self.members.remove(member).is_some();
        if known {
            self.assign();
        }
        known
    }

    /// Assigns anew where members, topics or partitions changed.
    fn refresh(&mut self, topics: &Topics) {
        let wanted: BTreeSet<&Topic> = self.members.values().flat_map(|member| &member.topics).collect();
        let counts = wanted.into_iter().filter_map(|name| {
            let (_, topic) = topics.get(name)?;
            Some((name.clone(), i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX)))
        });
        let counts: BTreeMap<Topic, i32> = counts.collect();
        if counts != self.known || self.epoch == 0 {
            self.known = counts;
            self.assign();
        }
    }

    /// Each partition has a member, and each member a partition: where members are more, they share.
    fn assign(&mut self) {
        self.epoch += 1;
        let mut assigned: BTreeMap<String, BTreeSet<TopicPartition>> = BTreeMap::new();
        for (topic, count) in &self.known {
            let members: Vec<&String> =
                self.members.iter().filter(|(_, it)| it.topics.contains(topic)).map(|(id, _)| id).collect();
            let count = usize::try_from(*count).unwrap_or(0);
            if members.is_empty() || count == 0 {
                continue;
            }
            for turn in 0..count.max(members.len()) {
                let partition = TopicPartition::new(topic, (turn % count) as i32);
                assigned.entry(members[turn % members.len()].clone()).or_default().insert(partition);
            }
        }
        for (id, member) in &mut self.members {
            let assigned = assigned.remove(id).unwrap_or_default();
            if assigned != member.assigned {
                member.assigned = assigned;
                member.told = false;
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let members = self.members.values().map(|member| member.expires);
        let locks = self.partitions.values().flat_map(|partition| partition.records.values());
        members.chain(locks.filter_map(|record| Some(record.lock.as_ref()?.until))).min()
    }

    pub(super) fn handle_timeout(&mut self, limits: Limits, now: Instant) {
        let before = self.members.len();
        self.members.retain(|_, member| member.expires > now);
        if self.members.len() < before {
            self.assign();
        }
        for partition in self.partitions.values_mut() {
            partition.unlock(limits.deliveries, |lock| lock.until <= now);
        }
    }
}

/// Sessions.
impl ShareGroup {
    /// A request of a session: checks its epoch, and takes in which partitions it adds and forgets. Returns those of the
    /// session, and whether each is new in it.
    pub(super) fn enter(
        &mut self,
        (node, member, connection): (i32, &str, ConnectionId),
        epoch: i32,
        added: impl Iterator<Item = PartitionId>,
        forgotten: &BTreeSet<PartitionId>,
    ) -> Result<BTreeMap<PartitionId, bool>, ErrorCode> {
        let key = (node, member.to_owned());
        if epoch == OPEN {
            self.sessions.insert(key.clone(), Session { epoch: OPEN, connection, partitions: BTreeSet::new() });
        }
        let session = self.sessions.get_mut(&key).ok_or(ErrorCode::SHARE_SESSION_NOT_FOUND)?;
        if epoch == CLOSE {
            return Ok(BTreeMap::new());
        }
        if epoch != session.epoch {
            return Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH);
        }
        session.epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        let before = session.partitions.clone();
        session.partitions.extend(added);
        session.partitions.retain(|partition| !forgotten.contains(partition));
        Ok(session.partitions.iter().map(|partition| (*partition, !before.contains(partition))).collect())
    }

    /// The session ends, and with it the member's locks on what this node leads.
    pub(super) fn close(&mut self, node: i32, member: &str, leads: impl Fn(PartitionId) -> bool, limits: Limits) {
        self.sessions.remove(&(node, member.to_owned()));
        for (_, partition) in self.partitions.iter_mut().filter(|(id, _)| leads(**id)) {
            partition.unlock(limits.deliveries, |lock| lock.member == member);
        }
    }

    /// The sessions that this connection made: node and member.
    pub(super) fn sessions_of(&self, connection: ConnectionId) -> Vec<(i32, String)> {
        let of_it = self.sessions.iter().filter(|(_, session)| session.connection == connection);
        of_it.map(|(key, _)| key.clone()).collect()
    }
}

/// Records.
impl ShareGroup {
    /// From where on there may be something to acquire; `first` is where a partition begins that was never read.
    pub(super) fn begin(&mut self, id: PartitionId, leader_epoch: i32, log_start: i64, first: i64, most: u16) -> i64 {
        let fresh = || SharePartition { leader_epoch, start: first, end: first, records: BTreeMap::new() };
        let partition = self.partitions.entry(id).or_insert_with(fresh);
        if partition.leader_epoch != leader_epoch {
            partition.leader_epoch = leader_epoch;
            partition.unlock(most, |_| true);
        }
        if partition.start < log_start {
            // Deleted before anybody could read it.
            partition.records.retain(|offset, _| *offset >= log_start);
            (partition.start, partition.end) = (log_start, partition.end.max(log_start));
        }
        let available = partition.records.iter().find(|(_, record)| record.lock.is_none());
        available.map_or(partition.end, |(offset, _)| *offset)
    }

    /// Acquires what is available of these offsets, at most `room`.
    pub(super) fn acquire(
        &mut self,
        id: PartitionId,
        member: &str,
        (first, last): (i64, i64),
        room: usize,
        (limits, now): (Limits, Instant),
    ) -> Vec<Run> {
        let Some(partition) = self.partitions.get_mut(&id) else { return Vec::new() };
        let mut runs: Vec<Run> = Vec::new();
        let until = now + limits.lock;
        for offset in first.max(partition.start)..=last.min(partition.start + limits.max_locks - 1) {
            let taken: i64 = runs.iter().map(|(first, last, _)| last - first + 1).sum();
            if usize::try_from(taken).unwrap_or(usize::MAX) >= room {
                break;
            }
            if offset >= partition.end {
                partition.end = offset + 1;
                partition.records.insert(offset, Record { deliveries: 0, lock: None });
            }
            let Some(record) = partition.records.get_mut(&offset).filter(|record| record.lock.is_none()) else {
                continue;
            };
            record.deliveries += 1;
            record.lock = Some(Lock { member: member.to_owned(), until });
            match runs.last_mut() {
                Some((_, last, count)) if *last + 1 == offset && *count == record.deliveries => *last = offset,
                _ => runs.push((offset, offset, record.deliveries)),
            }
        }
        runs
    }

    /// Takes in what becomes of records, all of it or nothing.
    pub(super) fn acknowledge(
        &mut self,
        id: PartitionId,
        member: &str,
        batches: &[Acknowledged],
        renews: bool,
        (limits, now): (Limits, Instant),
    ) -> Result<(), Refusal> {
        let mut words = Vec::new();
        let mut behind = -1;
        for batch in batches {
            let count = batch.last.checked_sub(batch.first).filter(|_| batch.first >= behind).unwrap_or(-1);
            let one = batch.types.len() == 1;
            let sound = (0..MAX_ACKNOWLEDGED).contains(&count)
                && (one || i64::try_from(batch.types.len()).is_ok_and(|types| types == count + 1))
                && batch.types.iter().all(|word| (GAP..=RENEW).contains(word) && (*word != RENEW || renews));
            if !sound {
                return Err(Refusal::without_words(ErrorCode::INVALID_REQUEST));
            }
            behind = batch.last;
            let types = batch.types.iter().copied().cycle();
            words.extend((batch.first..=batch.last).zip(types));
        }
        let partition = self.partitions.get_mut(&id).ok_or(ErrorCode::INVALID_RECORD_STATE)?;
        // What the group has passed is done, whatever is said of it now.
        words.retain(|(offset, _)| *offset >= partition.start);
        if words.iter().any(|(offset, _)| *offset >= partition.end) {
            let code = match partition.records.is_empty() {
                true => ErrorCode::INVALID_RECORD_STATE,
                false => ErrorCode::INVALID_REQUEST,
            };
            return Err(code.into());
        }
        let twice = words.windows(2).any(|pair| pair[0].0 == pair[1].0);
        let held = |offset: &i64| {
            let lock = partition.records.get(offset).and_then(|record| record.lock.as_ref());
            lock.is_some_and(|lock| lock.member == member && lock.until > now)
        };
        if twice || !words.iter().all(|(offset, _)| held(offset)) {
            return Err(ErrorCode::INVALID_RECORD_STATE.into());
        }
        for (offset, word) in words {
            match word {
                RELEASE => partition.release(offset, limits.deliveries),
                RENEW => {
                    if let Some(lock) = partition.records.get_mut(&offset).and_then(|record| record.lock.as_mut()) {
                        lock.until = now + limits.lock;
                    }
                }
                _ => _ = partition.records.remove(&offset),
            }
        }
        partition.advance();
        Ok(())
    }
}

/// Share groups, as requests reach them.
impl Core {
    pub(super) fn share_limits(&self) -> Limits {
        Limits {
            session: self.settings.consumer_group_session,
            max_members: self.settings.max_group_members,
            lock: self.settings.share_record_lock,
            deliveries: self.settings.share_delivery_limit,
            max_locks: MAX_LOCKS,
        }
    }

    /// What becomes of records of a partition that this node leads.
    pub(super) fn share_acknowledge(
        &mut self,
        call: &Call,
        (group, member): (&str, &str),
        at: PartitionId,
        batches: &[Acknowledged],
        renews: bool,
    ) -> Result<(), Refusal> {
        let limits = self.share_limits();
        let mute = Refusal::without_words;
        let name = self.topics.name_of(at.0).ok_or(mute(ErrorCode::UNKNOWN_TOPIC_ID))?;
        if let Some(code) = call.failure_of(name, at.1) {
            return Err(mute(code));
        }
        let partition = self.topics.partition(name, at.1).map_err(mute)?;
        partition.check(call.node, -1, true).map_err(mute)?;
        let log_start = partition.leader_log().map_or(0, |log| log.start().0);
        let group = self.groups.share(group, false, 0).map_err(mute)?;
        if !group.partitions.contains_key(&at) {
            return Err(ErrorCode::INVALID_RECORD_STATE.into());
        }
        // A leader that came since has none of the locks.
        group.begin(at, partition.leader_epoch, log_start, log_start, limits.deliveries);
        group.acknowledge(at, member, batches, renews, (limits, call.now))
    }

    /// A member's session with a node is over.
    pub(super) fn share_close(&mut self, group: &str, node: i32, member: &str) {
        let (limits, topics) = (self.share_limits(), &self.topics);
        let leads = |at: PartitionId| {
            let partition = topics.name_of(at.0).and_then(|name| topics.partition(name, at.1).ok());
            partition.is_some_and(|partition| partition.leader == Some(node))
        };
        if let Ok(group) = self.groups.share(group, false, 0) {
            group.close(node, member, leads, limits);
        }
        self.changed();
    }

    /// A connection is gone, and with it the sessions that it made.
    pub(super) fn share_disconnected(&mut self, connection: ConnectionId) {
        let mut over = Vec::new();
        for (id, group) in self.groups.iter() {
            if let Kind::Share(group) = &group.kind {
                over.extend(group.sessions_of(connection).into_iter().map(|(node, member)| (id.clone(), node, member)));
            }
        }
        for (group, node, member) in over {
            self.share_close(&group, node, &member);
        }
    }

    /// The partitions of a session.
    pub(super) fn share_session(&self, group: &str, node: i32, member: &str) -> Vec<PartitionId> {
        let Some(Kind::Share(group)) = self.groups.get(group).map(|group| &group.kind) else {
            return Vec::new();
        };
        let session = group.sessions.get(&(node, member.to_owned()));
        session.map_or_else(Vec::new, |session| session.partitions.iter().copied().collect())
    }
}

impl SharePartition {
    /// Ends the locks that are meant.
    fn unlock(&mut self, most: u16, ends: impl Fn(&Lock) -> bool) {
        let ended = self.records.iter().filter(|(_, record)| record.lock.as_ref().is_some_and(&ends));
        let ended: Vec<i64> = ended.map(|(offset, _)| *offset).collect();
        for offset in ended {
            self.release(offset, most);
        }
        self.advance();
    }

    fn release(&mut self, offset: i64, most: u16) {
        match self.records.get_mut(&offset) {
            Some(record) if record.deliveries < most => record.lock = None,
            _ => _ = self.records.remove(&offset),
        }
    }

    fn advance(&mut self) {
        self.start = self.records.keys().next().copied().unwrap_or(self.end);
    }
}

const LEAVE: i32 = -1;
/// Records of a partition that may be locked at once (`group.share.partition.max.record.locks`).
const MAX_LOCKS: i64 = 2_000;
/// Epochs of sessions.
pub(super) const OPEN: i32 = 0;
pub(super) const CLOSE: i32 = -1;
/// What becomes of a record: there is none; 1 is accepted, 3 rejected.
const GAP: i8 = 0;
const RELEASE: i8 = 2;
const RENEW: i8 = 4;
/// Offsets that one range may have; no member can hold more.
const MAX_ACKNOWLEDGED: i64 = 1_000_000;
