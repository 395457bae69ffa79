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
//! next request; so that they do not then wait for a long poll of the others, such a request waits only briefly. What waits of a
//! partition is handed over together, up to what one answer may bring of it: who is slow gets larger pieces, and catches up.
//!
//! A cursor's position moves by what a batch *covers*, never by its records, so emptied batches cannot stall it. Every
//! repositioning gives it a new version, and an answer to an older one is dropped.

mod answer;
mod budget;
mod config;
mod cursor;
mod event;
mod isolation;
mod node;
mod plan;
mod position;
mod schedule;
mod session;
mod verdict;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::FetchRequest;
use uuid::Uuid;

use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NodeId, Offset, TopicPartition};
use crate::retry::Backoff;

pub(crate) use answer::AnswerReader;
use answer::Chunk;
pub(crate) use answer::PartitionOutcome;
pub(crate) use budget::{Budget, Lease};
pub(crate) use config::FetchConfig;
use cursor::{Cursor, CursorState};
pub(crate) use cursor::{Leader, StartAt};
pub(crate) use event::{FetchEvent, ResetCause};
pub use isolation::IsolationLevel;
use node::Node;
pub(crate) use plan::FetchPlan;
pub use position::OffsetReset;
pub(crate) use position::Positions;

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

/// What came back for a [`FetchPlan`].
#[derive(Debug)]
pub(crate) struct FetchAnswer {
    pub(crate) throttle: Duration,
    /// Of the whole request.
    pub(crate) code: ErrorCode,
    /// The session that the broker keeps, 0 for none.
    pub(crate) session: i32,
    pub(crate) outcomes: Vec<(usize, PartitionOutcome)>,
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
            epoch_unknown: false,
            leader: None,
            replica: None,
            leader_until: None,
            place: None,
            topic_id: Uuid::nil(),
            paused: false,
            state: CursorState::Active,
            failures: 0,
            resets: 0,
            not_before: None,
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
            if let Some(cursor) = self.cursor(partition, epoch)
                && let Some(until) = cursor.not_before
            {
                cursor.state = CursorState::Waiting { until };
            }
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
            cursor.epoch_unknown = false;
            cursor.leader = Some(leader);
            (cursor.replica, cursor.leader_until) = (None, None);
            if matches!(cursor.state, CursorState::Waiting { .. }) {
                cursor.state = CursorState::Active;
            }
        }
    }

    /// The brokers that a partition of this membership is read from.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let nodes: BTreeSet<_> = self.cursors.values().filter_map(Cursor::source).collect();
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
        let limits = self.limits();
        let due = self.due(now, node, limits);
        if !due.any {
            return NextFetch::Wait(due.next);
        }
        let Some(room) = self.room(node) else {
            self.budget.want();
            return NextFetch::Wait(due.next);
        };
        NextFetch::Send(self.plan(now, node, &due, room, limits))
    }

    /// A broker answered. `outcomes` are those of [`AnswerReader`].
    pub(crate) fn handle_answer(&mut self, now: Instant, plan: &FetchPlan, answer: FetchAnswer) {
        let Some(node) = self.nodes.get_mut(&plan.node).filter(|node| node.in_flight == Some(plan.id)) else { return };
        node.in_flight = None;
        node.reserved = 0;
        node.not_before = None;
        node.session.answered(plan.step, answer.session, answer.code);
        if !answer.throttle.is_zero() {
            node.not_before = Some(now + answer.throttle);
        }
        // Only a whole request is no use at once after the session was refused.
        if SESSION_REFUSALS.contains(&answer.code) && !plan.is_whole() {
            return;
        }
        if !answer.code.is_ok() {
            return self.node_failed(now, plan.node);
        }
        node.failures = 0;
        let mut useful = false;
        let mut answered = vec![false; plan.asked.places()];
        for (index, outcome) in answer.outcomes {
            // A partition that is named twice counts once (franz-go#1348).
            if let Some(asked) = plan.asked.get(index)
                && !std::mem::replace(&mut answered[index], true)
            {
                useful |= self.apply(now, plan.node, asked, outcome);
            }
        }
        // What is not told although it was just said was found to be as it was said.
        for at in plan.said.iter().filter(|at| !plan.is_whole() && !answered[**at]) {
            if let Some(asked) = plan.asked.get(*at) {
                self.apply(now, plan.node, asked, PartitionOutcome::Records { chunk: None, flaw: None, cut: None });
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
        node.session.in_doubt();
        self.node_failed(now, plan.node);
        if let Some(first) = plan.asked.fetches().next() {
            self.events.push_back(FetchEvent::Stale { partition: first.partition.clone() });
        }
        let mut redirected = false;
        for cursor in self.cursors.values_mut().filter(|cursor| cursor.follows(plan.node)) {
            cursor.leave_replica(now);
            redirected = true;
        }
        if redirected {
            self.events.push_back(FetchEvent::Redirected);
        }
    }

    /// Nothing is read any more. What is to be sent to brokers that keep a session, so that they need not.
    pub(crate) fn end(&mut self) -> Vec<(NodeId, FetchRequest)> {
        self.cursors.clear();
        self.ready.clear();
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        nodes.filter_map(|(id, mut node)| Some((id, plan::ending(node.session.end()?)))).collect()
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
            if let Some(source) = cursor.source()
                && let Some(node) = self.nodes.get_mut(&source)
            {
                node.patience = None;
                wake = node.in_flight.is_none().then_some(source);
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
        cursor.epoch_unknown = false;
        cursor.state = CursorState::Active;
        cursor.failures = 0;
        cursor.buffered.clear();
        cursor.buffered_bytes = 0;
        if std::mem::take(&mut cursor.queued) {
            self.ready.retain(|ready| ready != partition);
        }
    }

    fn node_failed(&mut self, now: Instant, node: NodeId) {
        let node = self.nodes.entry(node).or_default();
        node.failures += 1;
        let wait = self.config.backoff.delay(node.failures, 1.0);
        node.not_before = Some(now + wait);
    }
}

/// What a broker says that does not know, or not so, the session that a request names.
const SESSION_REFUSALS: [ErrorCode; 3] = [
    ErrorCode::FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode::INVALID_FETCH_SESSION_EPOCH,
    ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR,
];
const QUIET_PAUSE: Duration = Duration::from_millis(20);
/// What a throttled broker is asked for at least. The first batch always comes whole, whatever its size.
const MIN_THROTTLED_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests;
