//! The producer: batches, numbers, tries again, and never writes twice or out of order.
//!
//! ```text
//!  callers ──append──► PartitionBuffer ◄──take──┐              ┌── poll_transmit ──► one request a broker
//!                      (one a partition, shared) │   Produce   ├── poll_event ─────► verdicts
//!                                signal ────────►└─────────────┴── poll_timeout
//!                                                   ▲  ▲  ▲
//!                        leaders, producer id ──────┘  │  └── handle_timeout
//!                        answers, failures ────────────┘
//! ```
//!
//! Records are encoded by their caller, straight into the batch that will be sent. [`Produce`] decides what leaves and when:
//! one request carries a batch of each of a broker's partitions, and what becomes of a batch is decided in
//! [`partition`], a partition at a time. `T`, the ticket, is what a batch's waiters know it by; it is made when a batch opens
//! and comes back with the verdict.

mod batch;
mod buffer;
mod error;
mod flush;
mod identity;
mod partition;
mod settings;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;

use self::flush::Flushes;
use self::identity::{Identity, Scope};
use self::partition::{Context, Partition, Readiness};
use crate::error::WriteOutcome;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic, TopicPartition};

pub(crate) use self::buffer::{AppendError, PartitionBuffer, Signal, Spares, lock};
pub use self::error::{ProduceError, ProduceErrorKind, SharedError};
pub(crate) use self::flush::FlushId;
pub(crate) use self::identity::ProducerId;
pub(crate) use self::settings::{Acks, ProduceSettings};
pub(crate) use self::verdict::is_definitive;

/// The producer's machine. See the module.
pub(crate) struct Produce<T> {
    settings: ProduceSettings,
    identity: Identity,
    /// Of a transactional producer, while it has a transaction.
    scope: Option<Scope>,
    partitions: Vec<Partition<T>>,
    nodes: BTreeMap<NodeId, Node>,
    /// Active partitions without a known leader.
    leaderless: Vec<PartitionIndex>,
    requests: HashMap<RequestId, Sending>,
    next_request: u64,
    events: VecDeque<Event<T>>,
    flushes: Flushes,
    spares: Arc<Spares>,
    /// When the last batch was settled, while memory is kept for further ones.
    spares_since: Option<Instant>,
    /// Whether callers wait for buffer memory: nothing lingers then.
    hurry: bool,
    random: Box<dyn FnMut() -> f64 + Send>,
}

/// Which of a producer's partitions; they are numbered as they are registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartitionIndex(pub(crate) usize);

/// Names one Produce request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RequestId(pub(crate) u64);

/// A topic's id, as sixteen bytes (KIP-516).
pub(crate) type TopicId = [u8; 16];

/// Who leads a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    /// The broker.
    pub(crate) node: NodeId,
}

/// Something to send.
#[derive(Debug)]
pub(crate) enum Transmit {
    /// Ask any broker for a producer id.
    InitProducerId,
    /// Batches for one broker.
    Produce(ProduceRequest),
}

/// One Produce request: at most one batch a partition.
#[derive(Debug)]
pub(crate) struct ProduceRequest {
    /// Its answer's name.
    pub(crate) id: RequestId,
    /// Whom to send it to.
    pub(crate) node: NodeId,
    /// The batches.
    pub(crate) batches: Vec<PartitionBatch>,
}

/// One partition's part of a request.
#[derive(Debug)]
pub(crate) struct PartitionBatch {
    /// Which partition, for the answer.
    pub(crate) index: PartitionIndex,
    /// Its topic.
    pub(crate) topic: Topic,
    /// Its topic's id, where it is known.
    pub(crate) topic_id: Option<TopicId>,
    /// Its number in the topic.
    pub(crate) partition: i32,
    /// The encoded batch.
    pub(crate) bytes: Bytes,
}

/// One partition's part of an answer.
#[derive(Debug, Clone)]
pub(crate) struct PartitionAnswer {
    /// What became of the batch.
    pub(crate) code: ErrorCode,
    /// Its first offset; -1 when the broker does not tell.
    pub(crate) base_offset: i64,
    /// The broker's time, where the topic keeps that; else -1.
    pub(crate) log_append_time: i64,
    /// The log's first offset; -1 when the broker does not tell.
    pub(crate) log_start_offset: i64,
    /// The records to blame (KIP-467).
    pub(crate) record_errors: Vec<RecordError>,
    /// What the broker says besides.
    pub(crate) message: Option<String>,
}

/// A record that the broker refused.
#[derive(Debug, Clone)]
pub(crate) struct RecordError {
    /// Its place in the batch.
    pub(crate) batch_index: i32,
    /// What the broker says of it.
    pub(crate) message: Option<String>,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Event<T> {
    /// The verdict on a ticket's records, or on some of them.
    Settled {
        /// Whose records they are.
        ticket: T,
        /// Which of them, in order: the first one's offset is the base offset.
        spans: Vec<Range<u32>>,
        /// How many records the ticket has.
        of: u32,
        /// Buffer memory that is free again, in bytes.
        reserved: usize,
        /// The verdict.
        result: Result<Written, Arc<ProduceError>>,
    },
    /// It should be asked who leads this partition.
    LeaderWanted(PartitionIndex),
    /// All that was unsettled when this flush was called is settled.
    Flushed(FlushId),
}

/// Where a batch was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// The first record's offset; `None` where the broker did not tell (a resend that it already had).
    pub(crate) base_offset: Option<i64>,
    /// The broker's time, where the topic keeps that.
    pub(crate) log_append_time: Option<i64>,
}

#[derive(Debug, Default)]
struct Node {
    in_flight: usize,
    /// Partitions that it leads and that have something unsettled; the next to be served is the first.
    active: Vec<PartitionIndex>,
    /// Until when the broker asked for silence (KIP-219).
    muted_until: Option<Instant>,
}

#[derive(Debug)]
struct Sending {
    node: NodeId,
    partitions: Vec<PartitionIndex>,
}

impl<T: Clone> Produce<T> {
    /// A producer without partitions. `spares` is shared with every buffer; `random` is uniform in `[0, 1)`.
    pub(crate) fn new(settings: ProduceSettings, spares: Arc<Spares>, random: Box<dyn FnMut() -> f64 + Send>) -> Self {
        Self {
            settings,
            identity: Identity::NEW,
            scope: None,
            partitions: Vec::new(),
            nodes: BTreeMap::new(),
            leaderless: Vec::new(),
            requests: HashMap::new(),
            next_request: 0,
            events: VecDeque::new(),
            flushes: Flushes::default(),
            spares,
            spares_since: None,
            hurry: false,
            random,
        }
    }

    /// A partition to send to. Partitions are numbered in the order of these calls.
    pub(crate) fn register(&mut self, name: TopicPartition, buffer: Arc<Mutex<PartitionBuffer<T>>>) -> PartitionIndex {
        let index = PartitionIndex(self.partitions.len());
        self.partitions.push(Partition::new(name, buffer));
        self.list(index);
        index
    }

    /// A partition's name.
    pub(crate) fn name(&self, index: PartitionIndex) -> Option<&TopicPartition> {
        self.partitions.get(index.0).map(Partition::name)
    }

    /// Who leads a partition, as it was told last.
    pub(crate) fn leader(&self, index: PartitionIndex) -> Option<NodeId> {
        self.partitions.get(index.0)?.leader().map(|leader| leader.node)
    }

    /// A caller's append signalled.
    pub(crate) fn handle_signal(&mut self, now: Instant, index: PartitionIndex) {
        if let Some(partition) = self.partitions.get_mut(index.0) {
            partition.look();
            self.list(index);
        }
        if self.scope.is_some_and(|scope| scope.doomed) {
            // Appended before its sender could know.
            self.with(now, index, Partition::abandon);
        }
    }

    /// Whether callers wait for buffer memory.
    pub(crate) fn handle_pressure(&mut self, waiting: bool) {
        self.hurry = waiting;
    }

    /// Who leads a partition now, and its topic's id, both where known.
    pub(crate) fn handle_leader(
        &mut self,
        now: Instant,
        index: PartitionIndex,
        leader: Option<Leader>,
        topic_id: Option<TopicId>,
    ) {
        self.with(now, index, |partition, cx| partition.on_leader(cx, leader, topic_id));
    }

    /// The topic of a partition is refused for good: what waits for it fails.
    pub(crate) fn handle_topic_refused(&mut self, now: Instant, index: PartitionIndex, code: ErrorCode) {
        let kind = ProduceErrorKind::Refused { code, message: None };
        self.with(now, index, |partition, cx| partition.fail_unnumbered(cx, &kind));
    }

    /// The answer to [`Transmit::InitProducerId`].
    pub(crate) fn handle_producer_id(&mut self, now: Instant, answer: Result<ProducerId, ErrorCode>) {
        match answer {
            Ok(producer) => self.identity = Identity::Known(producer),
            Err(code) => {
                self.identity_failed(now);
                if is_definitive(code) {
                    let kind = ProduceErrorKind::Refused { code, message: Some("no producer id".into()) };
                    for index in (0..self.partitions.len()).map(PartitionIndex) {
                        if self.partitions[index.0].wants_identity(&self.settings) {
                            self.with(now, index, |partition, cx| partition.fail_unnumbered(cx, &kind));
                        }
                    }
                }
            }
        }
    }

    /// No answer came to [`Transmit::InitProducerId`].
    pub(crate) fn handle_producer_id_unanswered(&mut self, now: Instant) {
        self.identity_failed(now);
    }

    /// No answer came to [`Transmit::InitProducerId`], because no broker lets this client in. Fails what cannot be sent for want
    /// of an id; it is asked for again when more comes.
    pub(crate) fn handle_producer_id_locked_out(&mut self, now: Instant, error: &SharedError) {
        self.identity_failed(now);
        for index in self.active() {
            if self.partitions[index.0].wants_identity(&self.settings) {
                self.with(now, index, |partition, cx| partition.lock_out(cx, error));
            }
        }
    }

    fn identity_failed(&mut self, now: Instant) {
        if let Identity::Asked { failures } = self.identity {
            let failures = failures.saturating_add(1);
            let from = Some(now + self.settings.backoff(failures, (self.random)()));
            self.identity = Identity::Unknown { from, failures };
        }
    }

    /// The answer to a request. Partitions that it does not mention count as unanswered; what was not asked is ignored.
    pub(crate) fn handle_answer(
        &mut self,
        now: Instant,
        request: RequestId,
        throttle: Duration,
        answers: impl IntoIterator<Item = (PartitionIndex, PartitionAnswer)>,
    ) {
        let Some(sending) = self.requests.remove(&request) else { return };
        self.landed(now, sending.node, throttle);
        for (index, answer) in answers {
            self.with(now, index, |partition, cx| partition.on_answer(cx, request, answer));
        }
        for index in sending.partitions {
            self.with(now, index, |partition, cx| {
                partition.on_unanswered(cx, request, WriteOutcome::PossiblyWritten, None);
            });
        }
    }

    /// No answer came to a request, and whether the broker may have acted on it.
    pub(crate) fn handle_unanswered(
        &mut self,
        now: Instant,
        request: RequestId,
        outcome: WriteOutcome,
        error: Option<&SharedError>,
    ) {
        let Some(sending) = self.requests.remove(&request) else { return };
        self.landed(now, sending.node, Duration::ZERO);
        for index in sending.partitions {
            self.with(now, index, |partition, cx| partition.on_unanswered(cx, request, outcome, error));
        }
    }

    /// No answer came to a request, because its broker does not let this client in. Fails all that waits for the partitions
    /// in it; what is sent later is tried again.
    pub(crate) fn handle_locked_out(
        &mut self,
        now: Instant,
        request: RequestId,
        outcome: WriteOutcome,
        error: &SharedError,
    ) {
        let Some(sending) = self.requests.remove(&request) else { return };
        self.landed(now, sending.node, Duration::ZERO);
        for index in sending.partitions {
            self.with(now, index, |partition, cx| partition.on_locked_out(cx, request, outcome, error));
        }
    }

    fn landed(&mut self, now: Instant, node: NodeId, throttle: Duration) {
        let node = self.nodes.entry(node).or_default();
        node.in_flight = node.in_flight.saturating_sub(1);
        if !throttle.is_zero() {
            node.muted_until = Some(now + throttle);
        }
    }

    /// Does what is due by the clock. To be called whenever [`poll_timeout`](Self::poll_timeout)'s time has come.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for index in self.active() {
            self.with(now, index, |partition, cx| partition.expire(cx));
            let partition = &mut self.partitions[index.0];
            if !partition.is_idle() && partition.poll_stale(now) {
                self.events.push_back(Event::LeaderWanted(index));
            }
        }
        if self.spares_since.is_some_and(|since| now.saturating_duration_since(since) >= SPARES_FOR) {
            self.spares_since = None;
            self.spares.clear();
        }
    }

    /// Sends what waits without lingering, and says so when all of it is settled.
    pub(crate) fn handle_flush(&mut self, id: FlushId) {
        let marked = self.partitions.iter_mut().map(|partition| partition.flush(id)).sum();
        self.flushes.begin(id, marked);
        for index in 0..self.partitions.len() {
            self.list(PartitionIndex(index));
        }
    }

    /// Refuses further records; those that wait are still sent.
    pub(crate) fn refuse_more(&mut self) {
        self.partitions.iter_mut().for_each(Partition::refuse_more);
    }

    /// Refuses further records and fails all that is not settled, each with what is known of it.
    pub(crate) fn close(&mut self, now: Instant) {
        for index in (0..self.partitions.len()).map(PartitionIndex) {
            self.with(now, index, |partition, cx| partition.close(cx));
        }
    }

    /// The next thing to send. To be called until `None` after every `handle_*`.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if self.wants_identity(now) {
            let failures = if let Identity::Unknown { failures, .. } = self.identity { failures } else { 0 };
            self.identity = Identity::Asked { failures };
            return Some(Transmit::InitProducerId);
        }
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        nodes.into_iter().find_map(|node| self.request_to(now, node)).map(Transmit::Produce)
    }

    /// The next thing that happened. To be called until `None` after every `handle_*` and `poll_transmit`.
    pub(crate) fn poll_event(&mut self) -> Option<Event<T>> {
        self.events.pop_front().or_else(|| self.flushes.poll().map(Event::Flushed))
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing else happens. Ask again after every step.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let identity = match self.identity {
            Identity::Unknown { from, .. } => from,
            Identity::Asked { .. } | Identity::Known(_) => None,
        };
        let spares = self.spares_since.map(|since| since + SPARES_FOR);
        let muted = self.nodes.values().filter(|node| !node.active.is_empty()).filter_map(|node| node.muted_until);
        let own = identity.into_iter().chain(spares).chain(muted).filter(|at| *at > now).min();
        let partitions = self.listed().filter_map(|index| self.partitions[index.0].wake_at(now, &self.settings));
        partitions.chain(own).min()
    }

    /// Whether nothing waits and nothing is in flight.
    #[cfg(test)]
    fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.partitions.iter().all(Partition::is_idle)
    }

    fn wants_identity(&mut self, now: Instant) -> bool {
        if self.settings.transactional {
            return false;
        }
        if let Identity::Known(known) = self.identity {
            let distrusted = |partition: &Partition<T>| {
                partition.distrusted() == Some(known.id) && partition.wants_identity(&self.settings)
            };
            if self.listed().any(|index| distrusted(&self.partitions[index.0])) {
                self.identity = Identity::NEW;
            }
        }
        matches!(self.identity, Identity::Unknown { from, .. } if from.is_none_or(|from| from <= now))
            && self.listed().any(|index| self.partitions[index.0].wants_identity(&self.settings))
    }

    fn request_to(&mut self, now: Instant, id: NodeId) -> Option<ProduceRequest> {
        let node = self.nodes.get_mut(&id)?;
        if node.in_flight >= self.settings.requests_in_flight || node.muted_until.is_some_and(|until| until > now) {
            return None;
        }
        if self.drop_inactive(id, now) < self.threshold(id) {
            return None;
        }
        let (request, scope) = (RequestId(self.next_request), self.scope);
        let hurry = self.hurry || scope.is_some_and(|scope| scope.ending);
        let active = std::mem::take(&mut self.nodes.get_mut(&id)?.active);
        let (mut batches, mut bytes, mut served) = (Vec::with_capacity(active.len()), 0, active.len());
        for (place, &index) in active.iter().enumerate() {
            let (partition, identity) = (&self.partitions[index.0], self.identity);
            if partition.readiness(now, &self.settings, identity, scope, hurry) < Readiness::Filling {
                continue;
            }
            if !batches.is_empty() && bytes + partition.next_bytes(&self.settings) > self.settings.max_request_bytes {
                // The others are first next time.
                served = place;
                break;
            }
            let Some(batch) = self.with(now, index, |partition, cx| partition.next(cx, request, identity)).flatten()
            else {
                continue;
            };
            bytes += batch.len();
            let partition = &self.partitions[index.0];
            let TopicPartition { topic, partition: number } = partition.name().clone();
            let topic_id = partition.topic_id();
            batches.push(PartitionBatch { index, topic, topic_id, partition: number, bytes: batch });
        }
        let node = self.nodes.get_mut(&id)?;
        node.active = active;
        let places = node.active.len();
        node.active.rotate_left(served % places.max(1));
        if batches.is_empty() {
            return None;
        }
        node.in_flight += 1;
        self.next_request += 1;
        if let Some(scope) = &mut self.scope {
            scope.sent = true;
        }
        let partitions = batches.iter().map(|batch| batch.index).collect();
        self.requests.insert(request, Sending { node: id, partitions });
        Some(ProduceRequest { id: request, node: id, batches })
    }

    /// How ready a broker's readiest partition must be for a request to leave.
    ///
    /// A broker works on one request of a connection at a time, so a batch that may still grow loses nothing by waiting for the
    /// answer before it. That is how records coalesce without lingering.
    fn threshold(&self, id: NodeId) -> Readiness {
        match self.nodes.get(&id) {
            Some(node) if node.in_flight > 0 => Readiness::Ready,
            _ => Readiness::Lingered,
        }
    }

    /// Strikes a broker's partitions that are idle or led elsewhere off its list. Answers how ready the readiest is.
    fn drop_inactive(&mut self, id: NodeId, now: Instant) -> Readiness {
        let Some(node) = self.nodes.get_mut(&id) else { return Readiness::Idle };
        let hurry = self.hurry || self.scope.is_some_and(|scope| scope.ending);
        let mut readiest = Readiness::Idle;
        node.active.retain(|index| {
            let partition = &mut self.partitions[index.0];
            let readiness = partition.readiness(now, &self.settings, self.identity, self.scope, hurry);
            let stays = readiness > Readiness::Idle && partition.leader().map(|leader| leader.node) == Some(id);
            if !stays {
                partition.listed = None;
            } else {
                readiest = readiest.max(readiness);
            }
            stays
        });
        readiest
    }

    /// Puts a partition on the list of its leader, if it has anything unsettled.
    fn list(&mut self, index: PartitionIndex) {
        let partition = &mut self.partitions[index.0];
        let leader = partition.leader().map(|leader| leader.node);
        if partition.is_idle() || partition.listed == Some(leader) {
            return;
        }
        if let Some(before) = partition.listed {
            let list = match before {
                Some(node) => self.nodes.get_mut(&node).map(|node| &mut node.active),
                None => Some(&mut self.leaderless),
            };
            if let Some(list) = list {
                list.retain(|listed| *listed != index);
            }
        }
        partition.listed = Some(leader);
        match leader {
            Some(node) => self.nodes.entry(node).or_default().active.push(index),
            None => self.leaderless.push(index),
        }
    }

    fn listed(&self) -> impl Iterator<Item = PartitionIndex> {
        self.nodes.values().flat_map(|node| &node.active).chain(&self.leaderless).copied()
    }

    fn active(&self) -> Vec<PartitionIndex> {
        self.listed().collect()
    }

    /// One step of one partition.
    fn with<R>(
        &mut self,
        now: Instant,
        index: PartitionIndex,
        step: impl FnOnce(&mut Partition<T>, &mut Context<'_, T>) -> R,
    ) -> Option<R> {
        let partition = self.partitions.get_mut(index.0)?;
        let events = self.events.len();
        let mut cx = Context {
            now,
            settings: &self.settings,
            random: &mut *self.random,
            events: &mut self.events,
            flushes: &mut self.flushes,
            spares: &self.spares,
            scope: self.scope,
        };
        let result = step(partition, &mut cx);
        if self.events.len() > events {
            self.spares_since = Some(now);
        }
        self.list(index);
        if self.scope.is_some() {
            self.doom_after(now, events);
        }
        Some(result)
    }
}

/// Of a transactional producer. Its numbers come with each transaction, and nothing leaves outside of one.
impl<T: Clone> Produce<T> {
    /// Records from here on belong to this transaction, under this id and epoch. `implicit`: a Produce request adds its
    /// partitions to it by itself; else they are told by [`poll_enlist`](Self::poll_enlist).
    pub(crate) fn begin_transaction(&mut self, serial: u64, producer: ProducerId, implicit: bool) {
        self.identity = Identity::Known(producer);
        self.scope = Some(Scope { serial, implicit, doomed: false, ending: false, sent: false });
    }

    /// Nothing more is added: what waits leaves at once, or fails if the transaction is to be aborted.
    pub(crate) fn end_transaction(&mut self, now: Instant, abort: bool) {
        if let Some(scope) = &mut self.scope {
            scope.ending = true;
        }
        if abort {
            self.doom(now);
        }
    }

    /// The transaction cannot be committed: everything that is not on its way fails, and so does what is yet appended.
    pub(crate) fn doom(&mut self, now: Instant) {
        match &mut self.scope {
            Some(scope) if !scope.doomed => scope.doomed = true,
            _ => return,
        }
        for index in self.active() {
            self.with(now, index, Partition::abandon);
        }
    }

    /// The next partition that has to become part of the transaction before its records can leave.
    pub(crate) fn poll_enlist(&mut self) -> Option<PartitionIndex> {
        let scope = self.scope.filter(|scope| !scope.implicit && !scope.doomed)?;
        let waiting = self.active();
        waiting.into_iter().find(|index| self.partitions[index.0].poll_enlist(scope))
    }

    /// A partition is part of the transaction now.
    pub(crate) fn handle_enlisted(&mut self, index: PartitionIndex) {
        if let Some(partition) = self.partitions.get_mut(index.0) {
            partition.enlist();
        }
    }

    /// Once, when nothing of the ending transaction is left, neither waiting nor on its way: whether any of it was sent.
    pub(crate) fn poll_quiet(&mut self) -> Option<bool> {
        let scope = self.scope.filter(|scope| scope.ending)?;
        let quiet = self.requests.is_empty() && self.listed().all(|index| self.partitions[index.0].is_idle());
        quiet.then(|| {
            self.scope = None;
            scope.sent
        })
    }

    /// A record that was not written takes its transaction with it.
    fn doom_after(&mut self, now: Instant, events: usize) {
        let failed = |event: &Event<T>| matches!(event, Event::Settled { result: Err(_), .. });
        if self.events.iter().skip(events).any(failed) {
            self.doom(now);
        }
    }
}

impl<T> fmt::Debug for Produce<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Produce")
            .field("identity", &self.identity)
            .field("partitions", &self.partitions.len())
            .field("requests", &self.requests.len())
            .finish_non_exhaustive()
    }
}

/// After this long without a verdict, memory kept for further batches is let go.
const SPARES_FOR: Duration = Duration::from_secs(5);
