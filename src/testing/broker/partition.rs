//! A partition: replicas, who leads them, and how far they agree.
//!
//! ```text
//!            append ──► leader's log ──replicate──► followers' logs that follow
//!                           │                            │
//!                           └── high watermark: what every in-sync replica has ──► consumers
//! ```
//!
//! Replication is immediate: where a follower runs and follows, it has what the leader has before the call returns. One
//! that does not stays in the in-sync set, and holds the high watermark, until it is late (`replica.lag.time.max.ms`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::node::Nodes;
use crate::memory::{Aborted, Appended, PartitionLog, StoredBatch, TopicConfig};
use crate::protocol::batch::{ControlKind, EncodedBatch, ProducerStamp};
use crate::protocol::error_code::ErrorCode;
use crate::record::{Offset, Timestamp};

/// One partition.
#[derive(Debug)]
pub(super) struct Partition {
    /// The nodes that hold it, the preferred leader first.
    pub(super) replicas: Vec<i32>,
    pub(super) in_sync: BTreeSet<i32>,
    /// `None` where no node can lead.
    pub(super) leader: Option<i32>,
    pub(super) leader_epoch: i32,
    logs: BTreeMap<i32, PartitionLog>,
    high_watermark: i64,
    /// Where each follower was when it followed this leader last. What it has from others says nothing before that.
    followed_to: BTreeMap<i32, Offset>,
    /// Since when each in-sync follower lacks something.
    behind_since: BTreeMap<i32, Instant>,
    moving: Option<Move>,
}

/// The way to other nodes.
#[derive(Debug)]
struct Move {
    /// Who held it before.
    from: Vec<i32>,
    /// Who is to hold it.
    to: Vec<i32>,
}

/// What a read brings.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) records: Bytes,
    pub(super) high_watermark: i64,
    pub(super) last_stable: i64,
    pub(super) log_start: i64,
    pub(super) aborted: Vec<Aborted>,
    /// Where the reader's log and this one part (KIP-595).
    pub(super) diverging: Option<(i32, i64)>,
}

/// What is asked of a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadFrom {
    pub(super) offset: i64,
    /// The epoch of the record before, if the reader knows it.
    pub(super) last_fetched_epoch: Option<i32>,
    pub(super) up_to: UpTo,
    pub(super) max_bytes: usize,
    pub(super) at_least_one: bool,
}

/// How far a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpTo {
    HighWatermark,
    LastStable,
    LogEnd,
}

impl Partition {
    /// A partition without records, led by the first of its replicas that runs.
    pub(super) fn new(replicas: Vec<i32>, nodes: &Nodes) -> Self {
        let up: BTreeSet<i32> = replicas.iter().copied().filter(|node| nodes.is_up(*node)).collect();
        let leader = replicas.iter().copied().find(|node| up.contains(node));
        let in_sync = if up.is_empty() { replicas.iter().copied().collect() } else { up };
        let logs = replicas.iter().map(|node| (*node, PartitionLog::default())).collect();
        let mut partition = Self {
            replicas,
            in_sync,
            leader,
            leader_epoch: 0,
            logs,
            high_watermark: 0,
            followed_to: BTreeMap::new(),
            behind_since: BTreeMap::new(),
            moving: None,
        };
        partition.begin_epoch(0);
        partition
    }

    pub(super) fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    pub(super) fn log(&self, node: i32) -> Option<&PartitionLog> {
        self.logs.get(&node)
    }

    /// The leader's log.
    pub(super) fn leader_log(&self) -> Option<&PartitionLog> {
        self.log(self.leader?)
    }

    /// The bytes of all its logs.
    pub(super) fn bytes(&self) -> usize {
        self.logs.values().map(PartitionLog::bytes).sum()
    }

    /// Checks that `node` may serve a request that takes the leader's epoch for this.
    ///
    /// # Errors
    /// `NOT_LEADER_OR_FOLLOWER`, `FENCED_LEADER_EPOCH` or `UNKNOWN_LEADER_EPOCH`.
    pub(super) fn check(&self, node: i32, epoch: i32, only_leader: bool) -> Result<(), ErrorCode> {
        if !self.logs.contains_key(&node) {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        if epoch >= 0 && epoch < self.leader_epoch {
            return Err(ErrorCode::FENCED_LEADER_EPOCH);
        }
        if epoch > self.leader_epoch {
            return Err(ErrorCode::UNKNOWN_LEADER_EPOCH);
        }
        if only_leader && self.leader != Some(node) {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        Ok(())
    }

    /// Appends a batch at the leader, and at the followers that follow.
    pub(super) fn append(
        &mut self,
        batch: EncodedBatch,
        config: &TopicConfig,
        around: &Around<'_>,
    ) -> Result<Appended, ErrorCode> {
        let log = self.leader_mut()?;
        let appended = log.append(batch, config, around.wall, around.order)?;
        log.apply_retention(config, around.wall);
        self.replicate(around);
        Ok(appended)
    }

    /// Whether what is appended now is on every in-sync replica at once: all that a leader of `acks=all` has to wait for.
    pub(super) fn replicates_at_once(&self, around: &Around<'_>) -> bool {
        let runs = |node: &i32| around.nodes.get(*node).is_some_and(|node| node.is_up && !node.is_paused);
        let follows = |node: &i32| around.nodes.get(*node).is_some_and(|node| node.follows);
        self.in_sync.iter().all(|node| runs(node) && (self.leader == Some(*node) || follows(node)))
    }

    /// Appends a coordinator's marker. Coordinators write them with `acks=all`, and go on only then: one that is not on every
    /// in-sync replica could be lost with its leader.
    pub(super) fn append_marker(
        &mut self,
        producer: ProducerStamp,
        kind: ControlKind,
        coordinator_epoch: i32,
        around: &Around<'_>,
    ) -> Result<Offset, ErrorCode> {
        if self.leader.is_some() && !self.replicates_at_once(around) {
            return Err(ErrorCode::NOT_ENOUGH_REPLICAS);
        }
        let log = self.leader_mut()?;
        let at = log.append_marker(producer, kind, coordinator_epoch, around.wall, around.order)?;
        self.replicate(around);
        Ok(at)
    }

    /// Reads at one of the replicas.
    pub(super) fn read(&self, node: i32, from: ReadFrom) -> Result<Read, ErrorCode> {
        let log = self.log(node).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        let (start, end) = (log.start().0, log.end().0);
        let high_watermark = self.high_watermark.min(end);
        let last_stable = log.last_stable(Offset(high_watermark)).0;
        let mut read = Read { high_watermark, last_stable, log_start: start, ..Read::default() };
        if let Some(epoch) = from.last_fetched_epoch {
            let (known, known_end) = log.end_of_epoch(epoch).ok_or(ErrorCode::OFFSET_OUT_OF_RANGE)?;
            if known < epoch || known_end.0 < from.offset {
                read.diverging = Some((known, known_end.0));
                return Ok(read);
            }
        }
        if from.offset < start || from.offset > end {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        let limit = Offset(match from.up_to {
            UpTo::HighWatermark => high_watermark,
            UpTo::LastStable => last_stable,
            UpTo::LogEnd => end,
        });
        read.records = cut_records(log, from, limit);
        if from.up_to == UpTo::LastStable {
            let to = crate::protocol::batch::encoded(read.records.clone()).filter_map(Result::ok).last();
            let to = to.map_or(Offset(from.offset), |last| last.header().next_offset());
            read.aborted = log.aborted_in(Offset(from.offset), to);
        }
        Ok(read)
    }

    /// Whether every in-sync replica has what lies before `offset`, and there are enough of them.
    ///
    /// # Errors
    /// `NOT_ENOUGH_REPLICAS_AFTER_APPEND`, or `NOT_LEADER_OR_FOLLOWER` where the leader changed meanwhile.
    pub(super) fn is_replicated(&self, offset: i64, node: i32, epoch: i32, least: usize) -> Result<bool, ErrorCode> {
        if self.leader != Some(node) || self.leader_epoch != epoch {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        if self.high_watermark < offset {
            return Ok(false);
        }
        if self.in_sync.len() < least { Err(ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND) } else { Ok(true) }
    }

    /// Deletes the records before `offset` (-1: before the high watermark) on every replica.
    pub(super) fn delete_before(&mut self, offset: i64) -> Result<i64, ErrorCode> {
        let offset = if offset == -1 { self.high_watermark } else { offset };
        if offset < 0 || offset > self.high_watermark {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        self.leader_mut()?;
        for log in self.logs.values_mut() {
            if log.end().0 >= offset {
                log.delete_before(Offset(offset))?;
            }
        }
        self.leader_log().map(|log| log.start().0).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)
    }

    /// Forgets the idempotent producers, on every replica.
    pub(super) fn forget_producers(&mut self) {
        self.logs.values_mut().for_each(PartitionLog::forget_producers);
    }

    /// Lets go what the topic's settings do not keep.
    pub(super) fn apply_retention(&mut self, config: &TopicConfig, wall: Timestamp) {
        self.logs.values_mut().for_each(|log| log.apply_retention(config, wall));
    }

    /// Makes `node` the leader in a new epoch. One that is not in sync takes what the others have beyond it away
    /// (unclean election).
    pub(super) fn elect(&mut self, node: i32, around: &Around<'_>) -> Result<(), ErrorCode> {
        if !self.logs.contains_key(&node) || !around.nodes.is_up(node) {
            return Err(ErrorCode::REPLICA_NOT_AVAILABLE);
        }
        if !self.in_sync.contains(&node) {
            self.in_sync = BTreeSet::from([node]);
        }
        self.lead(node, around);
        Ok(())
    }

    /// Goes to these nodes: those that come are in sync before those that go are let go. One that was on its way somewhere
    /// else goes here instead.
    pub(super) fn move_to(&mut self, to: Vec<i32>, around: &Around<'_>) {
        let from = self.moving.take().map_or_else(|| self.replicas.clone(), |earlier| earlier.from);
        let mut replicas = to.clone();
        replicas.extend(from.iter().filter(|node| !to.contains(node)));
        self.hold_at(replicas, around);
        self.moving = Some(Move { from, to });
        self.replicate(around);
        self.arrive(around);
    }

    /// Stays where it was.
    ///
    /// # Errors
    /// `NO_REASSIGNMENT_IN_PROGRESS`.
    pub(super) fn cancel_move(&mut self, around: &Around<'_>) -> Result<(), ErrorCode> {
        let moving = self.moving.take().ok_or(ErrorCode::NO_REASSIGNMENT_IN_PROGRESS)?;
        self.hold_at(moving.from, around);
        Ok(())
    }

    /// The nodes that are to hold it and do not yet, and those that are to hold it no more, while it is on its way.
    pub(super) fn moving(&self) -> Option<(Vec<i32>, Vec<i32>)> {
        let moving = self.moving.as_ref()?;
        let without = |of: &[i32], other: &[i32]| of.iter().copied().filter(|node| !other.contains(node)).collect();
        Some((without(&moving.to, &moving.from), without(&moving.from, &moving.to)))
    }

    /// Ends the move once everybody is in sync who is to hold it.
    fn arrive(&mut self, around: &Around<'_>) {
        if let Some(moving) = self.moving.take_if(|moving| moving.to.iter().all(|node| self.in_sync.contains(node))) {
            self.hold_at(moving.to, around);
        }
    }

    /// These nodes hold it and no others. A leader that holds it no more is followed by the first in sync.
    fn hold_at(&mut self, replicas: Vec<i32>, around: &Around<'_>) {
        for node in &replicas {
            self.logs.entry(*node).or_default();
        }
        self.logs.retain(|node, _| replicas.contains(node));
        self.in_sync.retain(|node| replicas.contains(node));
        self.followed_to.retain(|node, _| replicas.contains(node));
        self.behind_since.retain(|node, _| replicas.contains(node));
        self.replicas = replicas;
        if self.leader.is_some_and(|leader| !self.replicas.contains(&leader)) {
            let next = self.replicas.iter().copied().find(|node| self.in_sync.contains(node));
            match next {
                Some(next) => self.lead(next, around),
                None => self.leader = None,
            }
        }
    }

    /// The leader's epoch grows by one, the leader stays.
    pub(super) fn bump_epoch(&mut self) {
        self.begin_epoch(self.leader_epoch.saturating_add(1));
    }

    /// After a node came or went: who leads, who is in sync.
    pub(super) fn nodes_changed(&mut self, around: &Around<'_>) {
        let alive: BTreeSet<i32> = self.in_sync.iter().copied().filter(|node| around.nodes.is_up(*node)).collect();
        if alive.is_empty() {
            // The last in-sync replicas keep their place: nobody else may lead without losing records.
            if self.leader.take().is_some() {
                self.bump_epoch();
            }
            return;
        }
        self.in_sync = alive;
        match self.leader {
            Some(leader) if self.in_sync.contains(&leader) => self.replicate(around),
            _ => {
                let next = self.replicas.iter().copied().find(|node| self.in_sync.contains(node));
                if let Some(next) = next {
                    self.lead(next, around);
                }
            }
        }
        self.arrive(around);
    }

    /// Brings the followers that follow to where the leader is, and moves the high watermark.
    pub(super) fn replicate(&mut self, around: &Around<'_>) {
        let Some(leader) = self.leader else { return };
        let Some(source) = self.logs.remove(&leader) else { return };
        for (node, log) in &mut self.logs {
            if around.nodes.get(*node).is_some_and(|node| node.is_up && node.follows && !node.is_paused) {
                follow(log, &source, around.wall);
                self.followed_to.insert(*node, log.end());
                self.in_sync.insert(*node);
            }
            match self.followed_to.get(node) == Some(&source.end()) {
                true => self.behind_since.remove(node),
                false => Some(*self.behind_since.entry(*node).or_insert(around.now)),
            };
        }
        self.logs.insert(leader, source);
        self.move_high_watermark();
    }

    /// Takes followers out of the in-sync set that are late by now.
    pub(super) fn shrink(&mut self, now: Instant, lag: Duration) {
        let late = |node: &i32| self.behind_since.get(node).is_some_and(|since| now >= *since + lag);
        let gone: Vec<i32> =
            self.in_sync.iter().copied().filter(|node| Some(*node) != self.leader && late(node)).collect();
        for node in &gone {
            self.in_sync.remove(node);
        }
        self.move_high_watermark();
    }

    /// When the next in-sync follower is late.
    pub(super) fn shrinks_at(&self, lag: Duration) -> Option<Instant> {
        let behind = self.behind_since.iter().filter(|(node, _)| self.in_sync.contains(node));
        behind.filter(|(node, _)| Some(**node) != self.leader).map(|(_, since)| *since + lag).min()
    }

    fn lead(&mut self, node: i32, around: &Around<'_>) {
        self.leader = Some(node);
        self.followed_to.clear();
        self.behind_since.clear();
        self.begin_epoch(self.leader_epoch.saturating_add(1));
        let end = self.logs.get(&node).map_or(0, |log| log.end().0);
        self.high_watermark = self.high_watermark.min(end);
        self.replicate(around);
    }

    fn begin_epoch(&mut self, epoch: i32) {
        self.leader_epoch = epoch;
        if let Ok(log) = self.leader_mut() {
            log.begin_epoch(epoch);
        }
    }

    fn move_high_watermark(&mut self) {
        let Some(end) = self.leader_log().map(PartitionLog::end) else { return };
        let followers = self.in_sync.iter().filter(|node| Some(**node) != self.leader);
        // One that has not followed this leader yet holds it where it is.
        let followed_to: Option<Vec<Offset>> = followers.map(|node| self.followed_to.get(node).copied()).collect();
        if let Some(followed_to) = followed_to {
            self.high_watermark = followed_to.into_iter().fold(end, Offset::min).0.max(self.high_watermark);
        }
    }

    fn leader_mut(&mut self) -> Result<&mut PartitionLog, ErrorCode> {
        let leader = self.leader.ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
        self.logs.get_mut(&leader).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)
    }
}

/// What a partition needs to know of the rest of the cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) now: Instant,
    pub(super) wall: Timestamp,
    /// Counts appends over all partitions.
    pub(super) order: u64,
}

/// A follower's fetch: what its log has beyond the leader's goes, what it lacks comes.
fn follow(log: &mut PartitionLog, leader: &PartitionLog, wall: Timestamp) {
    // Each round drops an epoch that the leader does not have, so this ends.
    while let Some(epoch) = log.latest_epoch() {
        let agreed = match leader.end_of_epoch(epoch) {
            Some((known, end)) if known == epoch => end,
            // What was written here since the epoch that both know is not there, however long that one is.
            Some((known, end)) => end.min(log.end_of_epoch(known).map_or(Offset(0), |(_, own)| own)),
            None => Offset(0),
        };
        if agreed >= log.end() {
            break;
        }
        log.truncate_to(agreed.max(log.start()));
        if log.start() >= log.end() {
            break;
        }
    }
    if log.end() < leader.start() || log.end() > leader.end() {
        log.restart_at(leader.start());
    }
    let missing: Vec<StoredBatch> = leader.batches_from(log.end()).cloned().collect();
    missing.iter().for_each(|stored| log.replicate(stored, wall));
    if log.start() < leader.start() {
        // Cannot fail: the follower's end is the leader's.
        let _ = log.delete_before(leader.start());
    }
}

/// The bytes that a read brings. The last batch is cut where the bytes end, as Kafka cuts it, but never the first.
fn cut_records(log: &PartitionLog, from: ReadFrom, limit: Offset) -> Bytes {
    let batches = log.read_below(Offset(from.offset), limit, from.max_bytes, from.at_least_one);
    let Some(last) = batches.last() else { return Bytes::new() };
    let whole: usize = batches.iter().map(|batch| batch.bytes().len()).sum();
    let room = from.max_bytes.saturating_sub(whole);
    let next = log.read_below(last.header().next_offset(), limit, 0, room > 0);
    if let ([only], []) = (&batches[..], &next[..]) {
        return only.bytes().clone();
    }
    let mut records = BytesMut::with_capacity(whole + room.min(next.first().map_or(0, |next| next.bytes().len())));
    for batch in batches.iter() {
        records.extend_from_slice(batch.bytes());
    }
    if let Some(next) = next.first() {
        records.extend_from_slice(&next.bytes()[..room.min(next.bytes().len())]);
    }
    records.freeze()
}
