//! Reads the partitions of a membership: what to ask of each broker, what its answers mean, and what to hand over next.
//!
//! ```text
//!   assigned ─positioned─▶ ┌─────────── Fetcher ────────────┐
//!                          │ cursor: position, leader, state │ ──poll_request(node)──▶ FetchPlan ──▶ broker
//!   pause, resume, seek ─▶ │ buffered chunks, in turn        │                                        │
//!                          └─────────────────────────────────┘ ◀──handle_answer── AnswerReader ◀──────┘
//!                                 │ poll_batch
//!                                 ▼
//!                              records, with a lease on the byte budget
//! ```
//!
//! One request a broker is on its way at a time; the next leaves while its answer is still being handled. What bounds
//! memory: everything fetched and not yet dropped counts against one budget, a request asks for no more than what is
//! left of it, and no partition takes more than its share. Partitions whose records wait to be handed over are left out of the
//! next request; so that they do not then wait for a long poll of the others, such a request waits only briefly.
//!
//! A cursor's position moves by what a batch *covers*, never by its records, so emptied batches cannot stall it. Every
//! repositioning gives it a new version, and an answer to an older one is dropped.

mod answer;
mod budget;
mod isolation;
mod plan;
mod position;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::protocol::batch::{BatchError, ReadOptions};
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NodeId, Offset, TopicPartition};
use crate::retry::{Backoff, ExponentialFullJitter};

pub(crate) use answer::AnswerReader;
use answer::Chunk;
pub(crate) use answer::PartitionOutcome;
pub(crate) use budget::{Budget, Lease};
pub use isolation::IsolationLevel;
pub(crate) use plan::FetchPlan;
use plan::PlannedFetch;
pub use position::OffsetReset;
pub(crate) use position::Positions;

/// How to fetch.
#[derive(Debug, Clone)]
pub(crate) struct FetchConfig {
    /// How long a broker may wait for `min_bytes`.
    pub(crate) max_wait: Duration,
    pub(crate) min_bytes: i32,
    /// The most that one answer may hold.
    pub(crate) max_bytes: usize,
    /// The most that one answer may hold of one partition.
    pub(crate) max_partition_bytes: usize,
    /// The most that may be held of all partitions.
    pub(crate) budget_bytes: usize,
    pub(crate) isolation: IsolationLevel,
    pub(crate) read: ReadOptions,
    pub(crate) backoff: ExponentialFullJitter,
}

impl Default for FetchConfig {
    /// Java's defaults, but committed records alone, and 64 MiB in memory.
    fn default() -> Self {
        Self {
            max_wait: Duration::from_millis(500),
            min_bytes: 1,
            max_bytes: 50 << 20,
            max_partition_bytes: 1 << 20,
            budget_bytes: 64 << 20,
            isolation: IsolationLevel::default(),
            read: ReadOptions::default(),
            backoff: ExponentialFullJitter { first: Duration::from_millis(100), max: Duration::from_secs(5) },
        }
    }
}

/// Reads a membership's partitions.
#[derive(Debug)]
pub(crate) struct Fetcher {
    config: FetchConfig,
    budget: Arc<Budget>,
    cursors: HashMap<TopicPartition, Cursor>,
    nodes: BTreeMap<NodeId, Node>,
    /// Partitions with something to hand over, the next one first. Each is in it at most once.
    ready: VecDeque<TopicPartition>,
    events: VecDeque<FetchEvent>,
    last_version: u64,
    last_request: u64,
    last_turn: u64,
}

/// Where one partition stands.
#[derive(Debug)]
struct Cursor {
    /// The assignment that it belongs to.
    epoch: u64,
    /// Of the position: a new one for every repositioning.
    version: u64,
    fetch_offset: Offset,
    /// Of the last batch before `fetch_offset`, where it is known.
    last_fetched_epoch: Option<LeaderEpoch>,
    /// The same of what was handed over: where fetching goes on when the buffer is given up.
    handed_epoch: Option<LeaderEpoch>,
    /// Whether the log may have been truncated below `fetch_offset` since: the next request asks.
    validate: bool,
    leader: Option<Leader>,
    topic_id: Uuid,
    paused: bool,
    state: CursorState,
    failures: u32,
    /// Grown while nothing but cut batches comes.
    max_bytes: Option<usize>,
    buffered: VecDeque<Chunk>,
    buffered_bytes: usize,
    /// Bytes that were fetched and not yet dropped, wherever they are.
    held: Arc<AtomicUsize>,
    /// When it last had its turn: whoever waits longest comes first in a request.
    turn: u64,
    queued: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CursorState {
    /// To be fetched.
    Active,
    /// To be fetched again then, or when its leader changes.
    Waiting { until: Instant },
    /// Waits for [`Fetcher::reposition`].
    Resetting,
}

#[derive(Debug, Default)]
struct Node {
    in_flight: Option<u64>,
    /// What the request in flight may bring.
    reserved: usize,
    not_before: Option<Instant>,
    failures: u32,
    /// How long a request waits that leaves out partitions with records to hand over; grows while they are not.
    patience: Option<Duration>,
    /// The most that a request asks for, while the broker answers larger ones with nothing but a throttle.
    cap: Option<usize>,
}

/// A partition's leader, as metadata knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) node: NodeId,
    pub(crate) epoch: Option<LeaderEpoch>,
    /// Nil where brokers do not tell.
    pub(crate) topic_id: Uuid,
}

/// Where to begin with a partition.
#[derive(Debug, Clone)]
pub(crate) struct StartAt {
    pub(crate) partition: TopicPartition,
    pub(crate) epoch: u64,
    pub(crate) offset: Offset,
    /// Committed with the offset: the log is checked for truncation below it.
    pub(crate) leader_epoch: Option<LeaderEpoch>,
}

/// What to do for a broker now.
#[derive(Debug)]
pub(crate) enum NextFetch {
    Send(FetchPlan),
    /// Nothing until then, or until something changes.
    Wait(Option<Instant>),
}

/// Records to hand over.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) partition: TopicPartition,
    pub(crate) epoch: u64,
    pub(crate) chunk: Chunk,
    /// A broker that can be asked for more now.
    pub(crate) wake: Option<NodeId>,
}

/// What a fetcher tells.
#[derive(Debug)]
pub(crate) enum FetchEvent {
    /// Metadata of this partition's topic is old.
    Stale { partition: TopicPartition },
    /// Find a new position, and call [`Fetcher::reposition`].
    NeedsReset { partition: TopicPartition, epoch: u64, from: Offset, cause: ResetCause },
    /// The log was truncated: reading goes on at `to`.
    Truncated { partition: TopicPartition, from: Offset, to: Offset },
    /// The records at this offset cannot be read. They are asked for again, and not skipped.
    Malformed { partition: TopicPartition, offset: Offset, error: BatchError },
    /// The broker refuses the partition; it is asked again.
    Refused { partition: TopicPartition, offset: Offset, code: ErrorCode },
}

/// Why a position is no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResetCause {
    /// The log does not reach there.
    OutOfRange,
    /// The topic was deleted and created anew.
    Recreated,
}

impl Fetcher {
    pub(crate) fn new(config: FetchConfig) -> Self {
        Self {
            budget: Budget::new(config.budget_bytes),
            config,
            cursors: HashMap::new(),
            nodes: BTreeMap::new(),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            last_version: 0,
            last_request: 0,
            last_turn: 0,
        }
    }

    /// What everything that was fetched is held against.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Begins to read a partition. Its leader is to be told by [`Self::update_leaders`].
    pub(crate) fn assign(&mut self, start: StartAt) {
        self.last_version += 1;
        let cursor = Cursor {
            epoch: start.epoch,
            version: self.last_version,
            fetch_offset: start.offset,
            last_fetched_epoch: start.leader_epoch,
            handed_epoch: start.leader_epoch,
            validate: start.leader_epoch.is_some(),
            leader: None,
            topic_id: Uuid::nil(),
            paused: false,
            state: CursorState::Active,
            failures: 0,
            max_bytes: None,
            buffered: VecDeque::new(),
            buffered_bytes: 0,
            held: Arc::default(),
            turn: 0,
            queued: false,
        };
        self.ready.retain(|partition| *partition != start.partition);
        self.cursors.insert(start.partition, cursor);
    }

    /// Stops reading these. What was buffered of them is dropped, and nothing more is handed over.
    pub(crate) fn revoke<'a>(&mut self, partitions: impl IntoIterator<Item = &'a TopicPartition>) {
        for partition in partitions {
            if self.cursors.remove(partition).is_some_and(|cursor| cursor.queued) {
                self.ready.retain(|ready| ready != partition);
            }
        }
    }

    /// Stops handing over, and keeps what is buffered as long as others do not need the memory.
    pub(crate) fn pause(&mut self, partition: &TopicPartition, epoch: u64) {
        if let Some(cursor) = self.cursor(partition, epoch) {
            cursor.paused = true;
            if std::mem::take(&mut cursor.queued) {
                self.ready.retain(|ready| ready != partition);
            }
        }
    }

    /// Goes on with a paused partition where it stood.
    pub(crate) fn resume(&mut self, partition: &TopicPartition, epoch: u64) {
        if let Some(cursor) = self.cursor(partition, epoch) {
            cursor.paused = false;
            self.enqueue(partition);
        }
    }

    /// Goes on at another offset. What was buffered is dropped. With the leader epoch of what is before the offset, where it
    /// is known, the log is checked for truncation below it.
    pub(crate) fn seek(
        &mut self,
        partition: &TopicPartition,
        epoch: u64,
        offset: Offset,
        leader_epoch: Option<LeaderEpoch>,
    ) {
        self.move_to(partition, epoch, offset, leader_epoch);
        if let Some(cursor) = self.cursor(partition, epoch) {
            cursor.validate = leader_epoch.is_some();
        }
    }

    /// The answer to [`FetchEvent::NeedsReset`]. Ignored if the partition was repositioned otherwise meanwhile.
    pub(crate) fn reposition(
        &mut self,
        partition: &TopicPartition,
        epoch: u64,
        offset: Offset,
        leader_epoch: Option<LeaderEpoch>,
    ) {
        if self.cursor(partition, epoch).is_some_and(|cursor| cursor.state == CursorState::Resetting) {
            self.move_to(partition, epoch, offset, leader_epoch);
        }
    }

    /// Takes in metadata. A partition whose leader changed is asked of the new one at once.
    pub(crate) fn update_leaders(&mut self, leader_of: impl Fn(&TopicPartition) -> Option<Leader>) {
        for (partition, cursor) in &mut self.cursors {
            // What metadata does not know now is kept: it may be in between two states.
            let Some(leader) = leader_of(partition) else { continue };
            if !leader.topic_id.is_nil() && std::mem::replace(&mut cursor.topic_id, leader.topic_id) != leader.topic_id
            {
                let known_before = cursor.leader.is_some_and(|leader| !leader.topic_id.is_nil());
                if known_before && cursor.state != CursorState::Resetting {
                    cursor.state = CursorState::Resetting;
                    self.events.push_back(FetchEvent::NeedsReset {
                        partition: partition.clone(),
                        epoch: cursor.epoch,
                        from: cursor.fetch_offset,
                        cause: ResetCause::Recreated,
                    });
                }
            }
            // An older view than what is known already has nothing to say (KIP-320).
            let outdated = cursor.leader.is_some_and(|known| leader.epoch < known.epoch)
                && cursor.leader.is_some_and(|known| known.topic_id == leader.topic_id);
            if outdated || cursor.leader == Some(leader) {
                continue;
            }
            cursor.validate = cursor.last_fetched_epoch.is_some();
            cursor.leader = Some(leader);
            if matches!(cursor.state, CursorState::Waiting { .. }) {
                cursor.state = CursorState::Active;
            }
        }
    }

    /// The brokers that lead a partition of this membership.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let mut nodes: Vec<_> = self.cursors.values().filter_map(|cursor| Some(cursor.leader?.node)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.into_iter()
    }

    /// The next request to a broker. Ask after everything that may change the answer.
    pub(crate) fn poll_request(&mut self, now: Instant, node: NodeId) -> NextFetch {
        let state = self.nodes.entry(node).or_default();
        if state.in_flight.is_some() {
            return NextFetch::Wait(None);
        }
        if let Some(not_before) = state.not_before.filter(|not_before| now < *not_before) {
            return NextFetch::Wait(Some(not_before));
        }
        state.not_before = None;
        let share = self.share();
        let due = self.due(now, node, share);
        if due.partitions.is_empty() {
            return NextFetch::Wait(due.next);
        }
        let Some(room) = self.room(node) else {
            self.budget.want();
            return NextFetch::Wait(due.next);
        };
        NextFetch::Send(self.plan(now, node, due, room, share))
    }

    /// A broker answered. `outcomes` are those of [`AnswerReader`].
    pub(crate) fn handle_answer(&mut self, now: Instant, plan: &FetchPlan, answer: FetchAnswer) {
        let Some(node) = self.nodes.get_mut(&plan.node).filter(|node| node.in_flight == Some(plan.id)) else { return };
        *node = Node { patience: node.patience, cap: node.cap, ..Node::default() };
        if !answer.throttle.is_zero() {
            node.not_before = Some(now + answer.throttle);
        }
        if !answer.code.is_ok() {
            return self.node_failed(now, plan.node);
        }
        let mut useful = false;
        let mut answered = vec![false; plan.partitions.len()];
        for (index, outcome) in answer.outcomes {
            // A partition that is named twice counts once (franz-go#1348).
            if !std::mem::replace(&mut answered[index], true) {
                useful |= self.apply(now, plan.node, &plan.partitions[index], outcome);
            }
        }
        self.adapt(plan, answer.throttle, useful);
        if !useful && now.saturating_duration_since(plan.sent) < plan.max_wait / 2 {
            // A broker that has nothing and does not wait either would be asked in a loop.
            let node = self.nodes.entry(plan.node).or_default();
            let pause = now + QUIET_PAUSE;
            node.not_before = Some(node.not_before.map_or(pause, |not_before| not_before.max(pause)));
        }
    }

    /// Brokers before Kafka 2.6 answer a request that is larger than what is left of a quota with nothing, and the next one of
    /// that size again: its reader starves (KAFKA-9677). So less is asked for, until something comes.
    fn adapt(&mut self, plan: &FetchPlan, throttle: Duration, useful: bool) {
        let max_bytes = self.config.max_bytes;
        let Some(node) = self.nodes.get_mut(&plan.node) else { return };
        if throttle.is_zero() {
            node.cap = node.cap.map(|cap| cap.saturating_mul(2)).filter(|cap| *cap < max_bytes);
        } else if !useful {
            node.cap = Some((plan.max_bytes / 2).max(MIN_THROTTLED_BYTES.min(plan.max_bytes)));
        }
    }

    /// A request was not answered. Its partitions' leaders may be gone.
    pub(crate) fn handle_failure(&mut self, now: Instant, plan: &FetchPlan) {
        let Some(node) = self.nodes.get_mut(&plan.node).filter(|node| node.in_flight == Some(plan.id)) else { return };
        node.in_flight = None;
        node.reserved = 0;
        self.node_failed(now, plan.node);
        if let Some(first) = plan.partitions.first() {
            self.events.push_back(FetchEvent::Stale { partition: first.partition.clone() });
        }
    }

    /// Records of the partition whose turn it is.
    pub(crate) fn poll_batch(&mut self) -> Option<Fetched> {
        loop {
            let partition = self.ready.pop_front()?;
            let Some(cursor) = self.cursors.get_mut(&partition) else { continue };
            cursor.queued = false;
            let Some(chunk) = cursor.buffered.pop_front() else { continue };
            cursor.buffered_bytes -= chunk.lease.bytes();
            cursor.handed_epoch = chunk.leader_epoch;
            let epoch = cursor.epoch;
            let mut wake = None;
            if let Some(leader) = cursor.leader
                && let Some(node) = self.nodes.get_mut(&leader.node)
            {
                node.patience = None;
                wake = node.in_flight.is_none().then_some(leader.node);
            }
            self.enqueue(&partition);
            return Some(Fetched { partition, epoch, chunk, wake });
        }
    }

    /// The next thing to tell. Ask again until there is none.
    pub(crate) fn poll_event(&mut self) -> Option<FetchEvent> {
        self.events.pop_front()
    }

    fn cursor(&mut self, partition: &TopicPartition, epoch: u64) -> Option<&mut Cursor> {
        self.cursors.get_mut(partition).filter(|cursor| cursor.epoch == epoch)
    }

    fn enqueue(&mut self, partition: &TopicPartition) {
        if let Some(cursor) = self.cursors.get_mut(partition)
            && !cursor.queued
            && !cursor.paused
            && !cursor.buffered.is_empty()
        {
            cursor.queued = true;
            self.ready.push_back(partition.clone());
        }
    }

    fn move_to(&mut self, partition: &TopicPartition, epoch: u64, offset: Offset, at: Option<LeaderEpoch>) {
        self.last_version += 1;
        let version = self.last_version;
        let Some(cursor) = self.cursor(partition, epoch) else { return };
        cursor.version = version;
        cursor.fetch_offset = offset;
        cursor.last_fetched_epoch = at;
        cursor.handed_epoch = at;
        cursor.validate = false;
        cursor.state = CursorState::Active;
        cursor.failures = 0;
        cursor.buffered.clear();
        cursor.buffered_bytes = 0;
        if std::mem::take(&mut cursor.queued) {
            self.ready.retain(|ready| ready != partition);
        }
    }

    /// What one partition may hold: an equal part of the budget.
    fn share(&self) -> usize {
        (self.config.budget_bytes / self.cursors.len().max(1)).max(MIN_SHARE)
    }

    /// The partitions of a broker that can be asked for, the one that waits longest first.
    fn due(&mut self, now: Instant, node: NodeId, share: usize) -> Due {
        let ahead = self.config.max_partition_bytes.min(share / 2);
        let mut due = Due { partitions: Vec::new(), buffered: false, next: None };
        let mut full = false;
        for (partition, cursor) in &mut self.cursors {
            if cursor.paused || !cursor.is_led_by(node) {
                continue;
            }
            match cursor.state {
                CursorState::Resetting => continue,
                CursorState::Waiting { until } if now < until => {
                    due.next = Some(due.next.map_or(until, |next| next.min(until)));
                    continue;
                }
                CursorState::Waiting { .. } => cursor.state = CursorState::Active,
                CursorState::Active => {}
            }
            if cursor.buffered_bytes > ahead {
                due.buffered = true;
            } else if cursor.held.load(Ordering::Acquire) > share / 2 {
                full = true;
            } else {
                due.partitions.push((cursor.turn, partition.clone()));
            }
        }
        if full {
            due.buffered = true;
            self.budget.want();
        }
        due.partitions.sort_unstable();
        due
    }

    /// What an answer of this broker may bring; `None` while the budget is used up.
    fn room(&mut self, node: NodeId) -> Option<usize> {
        let fair = self.config.budget_bytes / self.nodes().count().max(1);
        let reserved: usize = self.nodes.iter().filter(|(n, _)| **n != node).map(|(_, n)| n.reserved).sum();
        let mut free = self.budget.available().saturating_sub(reserved);
        if free < MIN_ROOM.min(fair) {
            self.evict_paused();
            free = self.budget.available().saturating_sub(reserved);
        }
        // Against the smallest budgets: one partition at a time always gets through once all was dropped.
        let enough = free >= MIN_ROOM.min(fair) || self.budget.used() == 0;
        enough.then(|| free.min(fair).min(self.config.max_bytes).max(1))
    }

    /// Drops what paused partitions have buffered: they can fetch it again, others cannot go on without the memory.
    fn evict_paused(&mut self) {
        for cursor in self.cursors.values_mut().filter(|cursor| cursor.paused) {
            if let Some(first) = cursor.buffered.front() {
                cursor.fetch_offset = first.from;
                // Where a new leader was to check this, it still has to.
                cursor.last_fetched_epoch = cursor.handed_epoch;
                cursor.buffered.clear();
                cursor.buffered_bytes = 0;
            }
        }
    }

    fn plan(&mut self, now: Instant, node: NodeId, due: Due, room: usize, share: usize) -> FetchPlan {
        self.last_request += 1;
        let id = self.last_request;
        let state = self.nodes.entry(node).or_default();
        let room = room.min(state.cap.unwrap_or(room));
        state.in_flight = Some(id);
        state.reserved = room;
        let max_wait = if due.buffered {
            let patience = state.patience.map_or(FIRST_PATIENCE, |patience| patience * 2).min(self.config.max_wait);
            state.patience = Some(patience);
            patience
        } else {
            state.patience = None;
            // Whoever is resumed has to wait for the request that is on its way then.
            let paused = self.cursors.values().any(|cursor| cursor.paused && cursor.is_led_by(node));
            if paused { self.config.max_wait.min(WAIT_BESIDE_PAUSED) } else { self.config.max_wait }
        };
        let partitions = due
            .partitions
            .into_iter()
            .filter_map(|(_, partition)| {
                let cursor = self.cursors.get(&partition)?;
                let limit = self.config.max_partition_bytes.min(share / 2).min(room);
                Some(PlannedFetch {
                    topic_id: cursor.topic_id,
                    offset: cursor.fetch_offset,
                    leader_epoch: cursor.leader.and_then(|leader| leader.epoch),
                    last_fetched_epoch: cursor.last_fetched_epoch.filter(|_| cursor.validate),
                    max_bytes: cursor.max_bytes.unwrap_or(limit),
                    version: cursor.version,
                    partition,
                })
            })
            .collect();
        let (min_bytes, isolation) = (self.config.min_bytes, self.config.isolation);
        FetchPlan { id, node, sent: now, max_wait, min_bytes, max_bytes: room, isolation, partitions }
    }

    /// Takes in what an answer says of one partition. Whether it brought anything.
    fn apply(&mut self, now: Instant, node: NodeId, asked: &PlannedFetch, outcome: PartitionOutcome) -> bool {
        let partition = &asked.partition;
        let Some(cursor) = self.cursors.get_mut(partition) else { return true };
        // While a new position is looked for, an answer to the old one may neither move nor end the wait for it.
        let resetting = cursor.state == CursorState::Resetting;
        if resetting || cursor.version != asked.version || cursor.fetch_offset != asked.offset {
            return true;
        }
        // The leader moved while the request was on its way: records are records, but whether the log still reaches there is
        // for the new leader to say (librdkafka#4433, #4261).
        let outdated = cursor.leader.is_some_and(|leader| leader.node != node || leader.epoch != asked.leader_epoch);
        match outcome {
            PartitionOutcome::Diverged { .. } | PartitionOutcome::Refused(_) | PartitionOutcome::Moved if outdated => {
                true
            }
            PartitionOutcome::Records { chunk, flaw, cut } => {
                cursor.validate = outdated;
                let came = chunk.is_some();
                if let Some(chunk) = chunk {
                    self.last_turn += 1;
                    cursor.accept(chunk, self.last_turn);
                    self.enqueue(partition);
                } else if let Some(cut) = cut {
                    // Brokers before fetch version 3 cut a batch that is larger than was asked for.
                    let wanted = cut.claimed_bytes.unwrap_or(0).max(asked.max_bytes.saturating_mul(2));
                    cursor.max_bytes = Some(wanted.min(self.config.max_bytes));
                }
                if let Some(error) = flaw {
                    self.malformed(now, partition, error);
                }
                came
            }
            PartitionOutcome::Diverged { end_offset, epoch } => {
                self.truncated(partition, end_offset, epoch);
                true
            }
            PartitionOutcome::Refused(code) => {
                self.refused(now, asked, code);
                true
            }
            PartitionOutcome::Moved => {
                // Until the leader is told; should it not be, the broker is asked again, and says so again.
                cursor.failures += 1;
                let wait = self.config.backoff.delay(cursor.failures, 1.0);
                cursor.state = CursorState::Waiting { until: now + wait };
                true
            }
        }
    }

    fn truncated(&mut self, partition: &TopicPartition, end_offset: Offset, at: LeaderEpoch) {
        let Some(cursor) = self.cursors.get_mut(partition) else { return };
        let from = cursor.fetch_offset;
        let first = cursor.buffered.front().map_or(from, |chunk| chunk.from);
        cursor.validate = false;
        if end_offset >= from {
            return;
        }
        let (to, at) = if first < end_offset { (first, cursor.handed_epoch) } else { (end_offset, Some(at)) };
        let epoch = cursor.epoch;
        self.move_to(partition, epoch, to, at);
        self.events.push_back(FetchEvent::Truncated { partition: partition.clone(), from, to });
    }

    fn malformed(&mut self, now: Instant, partition: &TopicPartition, error: BatchError) {
        let Some(cursor) = self.cursors.get_mut(partition) else { return };
        cursor.failures += 1;
        let wait = POISON_BACKOFF.delay(cursor.failures, 1.0);
        cursor.state = CursorState::Waiting { until: now + wait };
        self.events.push_back(FetchEvent::Malformed {
            partition: partition.clone(),
            offset: cursor.fetch_offset,
            error,
        });
    }

    fn refused(&mut self, now: Instant, asked: &PlannedFetch, code: ErrorCode) {
        let partition = &asked.partition;
        let Some(cursor) = self.cursors.get_mut(partition) else { return };
        if code == ErrorCode::OFFSET_OUT_OF_RANGE {
            if asked.last_fetched_epoch.is_some() {
                // The broker also says so when it does not know the epoch: ask for the offset alone.
                cursor.validate = false;
                return;
            }
            cursor.state = CursorState::Resetting;
            let (epoch, from) = (cursor.epoch, cursor.fetch_offset);
            let cause = ResetCause::OutOfRange;
            self.events.push_back(FetchEvent::NeedsReset { partition: partition.clone(), epoch, from, cause });
            return;
        }
        cursor.failures += 1;
        let wait = self.config.backoff.delay(cursor.failures, 1.0);
        cursor.state = CursorState::Waiting { until: now + wait };
        let stale = code.invalidates_metadata() || STALE.contains(&code);
        let tell = !stale || cursor.failures.is_multiple_of(TELL_STALE_EVERY);
        if stale {
            self.events.push_back(FetchEvent::Stale { partition: partition.clone() });
        }
        if tell {
            let offset = cursor.fetch_offset;
            self.events.push_back(FetchEvent::Refused { partition: partition.clone(), offset, code });
        }
    }

    fn node_failed(&mut self, now: Instant, node: NodeId) {
        let node = self.nodes.entry(node).or_default();
        node.failures += 1;
        let wait = self.config.backoff.delay(node.failures, 1.0);
        node.not_before = Some(now + wait);
    }
}

impl Cursor {
    fn is_led_by(&self, node: NodeId) -> bool {
        self.leader.is_some_and(|leader| leader.node == node)
    }

    fn accept(&mut self, mut chunk: Chunk, turn: u64) {
        self.fetch_offset = chunk.next_offset;
        self.last_fetched_epoch = chunk.leader_epoch;
        self.failures = 0;
        self.max_bytes = None;
        self.turn = turn;
        if chunk.batches.is_empty()
            && let Some(last) = self.buffered.back_mut()
        {
            // It takes no memory that would bound how many of its kind are kept.
            return last.cover(chunk);
        }
        self.buffered_bytes += chunk.lease.bytes();
        chunk.lease.charge(&self.held);
        self.buffered.push_back(chunk);
    }
}

/// What came back for a [`FetchPlan`].
#[derive(Debug)]
pub(crate) struct FetchAnswer {
    pub(crate) throttle: Duration,
    /// Of the whole request.
    pub(crate) code: ErrorCode,
    pub(crate) outcomes: Vec<(usize, PartitionOutcome)>,
}

struct Due {
    partitions: Vec<(u64, TopicPartition)>,
    /// Some were left out because their records wait to be handed over or to be dropped.
    buffered: bool,
    next: Option<Instant>,
}

/// Refusals, beside those that the table says, that another broker may not give.
const STALE: [ErrorCode; 4] = [
    ErrorCode::UNKNOWN_TOPIC_ID,
    ErrorCode::INCONSISTENT_TOPIC_ID,
    ErrorCode::OFFSET_NOT_AVAILABLE,
    ErrorCode::UNKNOWN_LEADER_EPOCH,
];
/// A moved leader is daily business; one that is not found for this many tries is told.
const TELL_STALE_EVERY: u32 = 8;
/// Between two tries at records that cannot be read.
const POISON_BACKOFF: ExponentialFullJitter =
    ExponentialFullJitter { first: Duration::from_secs(1), max: Duration::from_secs(30) };
/// A partition's least share, however many there are.
const MIN_SHARE: usize = 64 << 10;
/// A request for less is not worth its round trip.
const MIN_ROOM: usize = 256 << 10;
const FIRST_PATIENCE: Duration = Duration::from_millis(5);
/// How long a request waits that leaves out paused partitions: the most that a resumed one comes late.
const WAIT_BESIDE_PAUSED: Duration = Duration::from_millis(100);
const QUIET_PAUSE: Duration = Duration::from_millis(20);
/// What a throttled broker is asked for at least. The first batch always comes whole, whatever its size.
const MIN_THROTTLED_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests;
