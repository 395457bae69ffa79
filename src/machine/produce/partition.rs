//! One partition's batches in flight: numbers, order, and what happens when an answer is not the hoped one.

mod answer;
mod transaction;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::buffer::{PartitionBuffer, Spares, lock};
use super::error::{ProduceError, ProduceErrorKind, SharedError};
use super::flush::Flushes;
use super::identity::{Identity, ProducerId, Scope};
use super::settings::{Acks, ProduceSettings};
use super::{Event, Leader, RequestId, TopicId, Written};
use crate::error::WriteOutcome;
use crate::protocol::batch::ProducerStamp;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, TopicPartition};

/// One partition as the producer sends to it.
///
/// ```text
///   buffer ──► returned ──► window: numbered, sent, not settled ──► settled
///  (shared)   (had a number,    0 1 2 3 4  oldest first
///              or a flush)
/// ```
///
/// Order and no duplicates rest on three rules. Batches are numbered when they are first sent, one after another, here and
/// nowhere else. A numbered batch is only ever sent again as the same bytes. And numbers are given anew only to batches
/// that cannot be in the log, in a new epoch, when nothing of the partition is in flight.
#[derive(Debug)]
pub(super) struct Partition<T> {
    name: TopicPartition,
    topic_id: Option<TopicId>,
    leader: Option<Leader>,
    buffer: Arc<Mutex<PartitionBuffer<T>>>,
    /// What is known of the buffer without locking it: since when it holds records, and whether a batch is full.
    filled: Option<(Instant, bool)>,
    /// Go before the buffer's batches, under new numbers.
    returned: VecDeque<Batch<T>>,
    /// Numbered in this order.
    window: VecDeque<Sent<T>>,
    flow: Flow,
    /// Whose numbers these are; `None` before the first and when others are to be asked for.
    producer: Option<ProducerId>,
    next_sequence: i32,
    /// An id whose numbers the broker will not take.
    distrusted: Option<i64>,
    /// Renumberings in a row that the broker asked for.
    mismatches: u32,
    /// Tries in a row without success.
    failures: u32,
    retry_at: Option<Instant>,
    /// The leader may be another one; when to ask.
    stale: Option<Instant>,
    last_success: Option<Instant>,
    last_code: Option<ErrorCode>,
    last_error: Option<SharedError>,
    /// The transaction that it is part of, or is asked to become part of.
    enlisted: Enlisted,
    /// The first number that was taken back in this epoch, and is given again.
    rewind: Option<i32>,
    /// Whose list of active partitions this one is in.
    pub(super) listed: Option<Option<NodeId>>,
}

/// Whether a partition is part of the transaction, by its serial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enlisted {
    Asked(u64),
    In(u64),
}

/// A batch with a number.
#[derive(Debug)]
struct Sent<T> {
    /// `None` once its verdict is given and only its request's answer is still to come.
    batch: Option<Batch<T>>,
    /// The request that carries it now.
    request: Option<RequestId>,
    /// Whether a try of it may have been written.
    doubt: bool,
}

/// How many batches may be sent.
///
/// ```text
///             ┌────────────── acknowledged ──────────────┐
///             │                                          ▼
///         Probing ─── refused, unanswered ───┐        Flowing
///     (one in flight)                        ▼           │ refused, unanswered
///             ▲                          Gathering ◄─────┘
///             └── nothing in flight ─────────┘
/// ```
///
/// A broker that has no memory of a producer takes any number as its first. So as long as it is not known to have one (a new
/// epoch, a new leader, after a long silence) a single batch goes out: were the first of several refused, the second would be
/// written, and the first could then be neither written in order nor told from a duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// One batch at a time, until one is acknowledged.
    Probing,
    /// A whole window.
    Flowing,
    /// None, until all in flight are answered. Those behind a refused batch come back out of sequence.
    Gathering {
        /// What is left gets new numbers then.
        renumber: bool,
    },
}

/// Whether a partition has something to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Readiness {
    /// Nothing unsettled at all.
    Idle,
    /// Nothing that may be sent now.
    Blocked,
    /// A batch that may wait for company.
    Filling,
    /// A batch that has waited long enough.
    Lingered,
    /// A full batch, or one that was to be sent before.
    Ready,
}

/// What a step of a partition works with.
pub(super) struct Context<'a, T> {
    pub(super) now: Instant,
    pub(super) settings: &'a ProduceSettings,
    pub(super) random: &'a mut (dyn FnMut() -> f64 + Send),
    pub(super) events: &'a mut VecDeque<Event<T>>,
    pub(super) flushes: &'a mut Flushes,
    pub(super) spares: &'a Spares,
    /// Of a transactional producer, while it has a transaction.
    pub(super) scope: Option<Scope>,
}

impl<T: Clone> Partition<T> {
    pub(super) fn new(name: TopicPartition, buffer: Arc<Mutex<PartitionBuffer<T>>>) -> Self {
        let filled = lock(&buffer).filled();
        Self {
            name,
            topic_id: None,
            leader: None,
            buffer,
            filled,
            returned: VecDeque::new(),
            window: VecDeque::new(),
            flow: Flow::Probing,
            producer: None,
            next_sequence: 0,
            distrusted: None,
            mismatches: 0,
            failures: 0,
            retry_at: None,
            stale: None,
            last_success: None,
            last_code: None,
            last_error: None,
            enlisted: Enlisted::In(0),
            rewind: None,
            listed: None,
        }
    }

    pub(super) fn name(&self) -> &TopicPartition {
        &self.name
    }

    pub(super) fn topic_id(&self) -> Option<TopicId> {
        self.topic_id
    }

    pub(super) fn leader(&self) -> Option<Leader> {
        self.leader
    }

    /// The buffer has changed.
    pub(super) fn look(&mut self) {
        self.filled = lock(&self.buffer).filled();
    }

    #[cfg(test)]
    pub(super) fn set_next_sequence(&mut self, sequence: i32) {
        self.next_sequence = sequence;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.filled.is_none() && self.returned.is_empty() && self.window.is_empty()
    }

    /// Whether batches wait that cannot be numbered because no usable id is known.
    pub(super) fn wants_identity(&self, settings: &ProduceSettings) -> bool {
        settings.acks == Acks::All && self.producer.is_none() && (self.filled.is_some() || !self.returned.is_empty())
    }

    /// An id that this partition cannot use.
    pub(super) fn distrusted(&self) -> Option<i64> {
        self.distrusted
    }

    // ---- what may be sent

    pub(super) fn readiness(
        &self,
        now: Instant,
        settings: &ProduceSettings,
        identity: Identity,
        scope: Option<Scope>,
        hurry: bool,
    ) -> Readiness {
        if self.is_idle() {
            return Readiness::Idle;
        }
        if settings.transactional && !scope.is_some_and(|scope| self.may_write_in(scope)) {
            return Readiness::Blocked;
        }
        if self.leader.is_none() || self.retry_at.is_some_and(|at| at > now) || !self.may_send(now, settings) {
            return Readiness::Blocked;
        }
        if self.window.iter().any(|sent| sent.request.is_none()) {
            return Readiness::Ready;
        }
        if self.wants_identity(settings) && self.usable(identity).is_none() {
            return Readiness::Blocked;
        }
        match self.filled {
            _ if !self.returned.is_empty() => Readiness::Ready,
            Some((_, true)) => Readiness::Ready,
            Some((since, false)) if hurry || since + settings.linger <= now => Readiness::Lingered,
            Some((_, false)) => Readiness::Filling,
            // The window is on its way, and nothing else waits.
            None => Readiness::Blocked,
        }
    }

    fn may_send(&self, now: Instant, settings: &ProduceSettings) -> bool {
        match self.flow {
            Flow::Gathering { .. } => false,
            Flow::Probing => self.in_flight() == 0,
            // A long silence: the broker may have forgotten its producers by now, so only one goes first.
            Flow::Flowing if self.window.is_empty() => true,
            Flow::Flowing => {
                let silent = self.last_success.is_none_or(|at| now.saturating_duration_since(at) >= PROBE_AFTER);
                let resend = self.window.iter().any(|sent| sent.request.is_none());
                !silent && (resend || self.window.len() < settings.window())
            }
        }
    }

    /// At most the size of the next batch, unless a single record of it is larger.
    pub(super) fn next_bytes(&self, settings: &ProduceSettings) -> usize {
        let resend = self.window.iter().find(|sent| sent.request.is_none()).and_then(|sent| sent.batch.as_ref());
        resend.or(self.returned.front()).map_or(settings.batch_bytes, Batch::bytes)
    }

    /// The next batch for `request`, numbered. `None` when nothing may be sent.
    pub(super) fn next(
        &mut self,
        cx: &mut Context<'_, T>,
        request: RequestId,
        identity: Identity,
    ) -> Option<bytes::Bytes> {
        if let Some(sent) = self.window.iter_mut().find(|sent| sent.request.is_none()) {
            let bytes = sent.batch.as_ref()?.encoded()?.bytes().clone();
            sent.request = Some(request);
            return Some(bytes);
        }
        loop {
            let mut batch = self.take_unnumbered()?;
            let stamp = match cx.settings.acks {
                Acks::LeaderOnly => None,
                Acks::All => {
                    if cx.settings.transactional && self.producer != identity.known() {
                        self.begin_epoch();
                    }
                    Some(self.stamp(identity)?)
                }
            };
            let records = batch.record_count();
            match batch.number(stamp, cx.settings.transactional) {
                Ok(encoded) => {
                    let bytes = encoded.bytes().clone();
                    if let Some(stamp) = stamp {
                        self.next_sequence = stamp.advanced_by(records).base_sequence;
                    }
                    self.window.push_back(Sent { batch: Some(batch), request: Some(request), doubt: false });
                    return Some(bytes);
                }
                Err(error) => {
                    let error =
                        self.error(ProduceErrorKind::Encode, WriteOutcome::NotWritten, Some(SharedError::new(error)));
                    self.settle(cx, batch, Err(error));
                }
            }
        }
    }

    fn take_unnumbered(&mut self) -> Option<Batch<T>> {
        if let Some(batch) = self.returned.pop_front() {
            return Some(batch);
        }
        let mut buffer = lock(&self.buffer);
        let batch = buffer.take();
        self.filled = buffer.filled();
        batch
    }

    /// The id to number by: the partition's own, else the producer's unless it failed here.
    fn usable(&self, identity: Identity) -> Option<ProducerId> {
        self.producer.or_else(|| identity.known().filter(|producer| Some(producer.id) != self.distrusted))
    }

    fn stamp(&mut self, identity: Identity) -> Option<ProducerStamp> {
        if self.producer.is_none() {
            self.producer = self.usable(identity);
            self.next_sequence = 0;
            self.flow = Flow::Probing;
        }
        self.producer.map(|ProducerId { id, epoch }| ProducerStamp { id, epoch, base_sequence: self.next_sequence })
    }

    fn in_flight(&self) -> usize {
        self.window.iter().filter(|sent| sent.request.is_some()).count()
    }

    /// Of two numbers the one that was given first.
    fn earlier(&self, a: Option<i32>, b: Option<i32>) -> Option<i32> {
        let back = |number: i32| self.next_sequence.wrapping_sub(number) & i32::MAX;
        a.into_iter().chain(b).max_by_key(|number| back(*number))
    }

    // ---- the cluster changes

    /// Who leads now, and the topic's id.
    pub(super) fn on_leader(&mut self, cx: &mut Context<'_, T>, leader: Option<Leader>, topic_id: Option<TopicId>) {
        if self.leader.map(|l| l.node) != leader.map(|l| l.node) && self.flow == Flow::Flowing {
            // What is in flight at the old leader has to come back first.
            self.flow = match self.in_flight() {
                0 => Flow::Probing,
                _ => Flow::Gathering { renumber: false },
            };
        }
        if leader.is_some() && self.leader != leader {
            // The wait was for the broker that refused.
            self.retry_at = None;
        }
        self.leader = leader;
        self.stale = leader.is_none().then(|| cx.now + REFRESH_AFTER);
        if topic_id.is_some() && self.topic_id.is_some() && topic_id != self.topic_id {
            // Another topic of the same name: another log, to which no earlier number means anything.
            if cx.scope.is_some() {
                self.abandon(cx);
            }
            self.flow = Flow::Gathering { renumber: true };
            self.gathered(cx);
        }
        if topic_id.is_some() {
            self.topic_id = topic_id;
        }
    }

    /// Whether to ask who leads, at most once in a while.
    pub(super) fn poll_stale(&mut self, now: Instant) -> bool {
        let due = match self.stale {
            Some(at) => at <= now,
            None => self.leader.is_none(),
        };
        if due {
            self.stale = Some(now + REFRESH_AFTER);
        }
        due
    }

    // ---- time

    /// Fails what is past its delivery timeout.
    pub(super) fn expire(&mut self, cx: &mut Context<'_, T>) {
        let Some(limit) = cx.now.checked_sub(cx.settings.delivery_timeout) else { return };
        if self.oldest().is_none_or(|opened| opened > limit) {
            return;
        }
        let timeout = cx.settings.delivery_timeout;
        let late = |this: &Self, doubt: bool| {
            let kind = ProduceErrorKind::DeliveryTimeout { timeout, code: this.last_code };
            this.error(kind, outcome(doubt), this.last_error.clone())
        };
        for at in 0..self.window.len() {
            let sent = &mut self.window[at];
            let Some(batch) = sent.batch.take_if(|batch| batch.opened <= limit) else { continue };
            let doubt = sent.doubt || sent.request.is_some();
            self.flow = Flow::Gathering { renumber: true };
            let error = late(self, doubt);
            self.settle(cx, batch, Err(error));
        }
        // Where an answer is still to come, what is behind waits for it.
        self.window.retain(|sent| sent.batch.is_some() || sent.request.is_some());
        self.gathered(cx);
        while let Some(at) = self.returned.iter().position(|batch| batch.opened <= limit) {
            let error = late(self, false);
            if let Some(batch) = self.returned.remove(at) {
                self.settle(cx, batch, Err(error));
            }
        }
        loop {
            let mut buffer = lock(&self.buffer);
            let batch = buffer.take_until(limit);
            self.filled = buffer.filled();
            drop(buffer);
            let Some(batch) = batch else { break };
            let error = late(self, false);
            self.settle(cx, batch, Err(error));
        }
    }

    /// When something changes by the clock alone.
    pub(super) fn wake_at(&self, now: Instant, settings: &ProduceSettings) -> Option<Instant> {
        let expiry = self.oldest().map(|opened| opened + settings.delivery_timeout);
        let lingered = match self.filled {
            Some((since, false)) if self.returned.is_empty() => Some(since + settings.linger),
            _ => None,
        };
        let ask = if self.is_idle() { None } else { self.stale };
        // What is past and still stands waits for something else than the clock.
        [expiry, lingered, self.retry_at, ask].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// The time of the oldest batch that is not settled.
    fn oldest(&self) -> Option<Instant> {
        let window = self.window.iter().filter_map(|sent| sent.batch.as_ref()).map(|batch| batch.opened);
        let returned = self.returned.iter().map(|batch| batch.opened);
        window.chain(returned).chain(self.filled.map(|(since, _)| since)).min()
    }

    // ---- the end

    /// Marks everything unsettled for this flush, and sends what waits without lingering. Answers how many it marked.
    pub(super) fn flush(&mut self, id: super::FlushId) -> usize {
        {
            let mut buffer = lock(&self.buffer);
            self.returned.extend(std::iter::from_fn(|| buffer.take()));
            self.filled = buffer.filled();
        }
        let window = self.window.iter_mut().filter_map(|sent| sent.batch.as_mut());
        let mut marked = 0;
        for batch in window.chain(&mut self.returned) {
            if batch.flush.is_none() {
                batch.flush = Some(id);
                marked += 1;
            }
        }
        marked
    }

    /// Fails everything that waits without a number, for `error`'s reason.
    pub(super) fn fail_unnumbered(&mut self, cx: &mut Context<'_, T>, kind: &ProduceErrorKind) {
        while let Some(batch) = self.take_unnumbered() {
            let error = self.error(kind.clone(), WriteOutcome::NotWritten, None);
            self.settle(cx, batch, Err(error));
        }
    }

    /// Refuses further records and fails all that is not settled.
    pub(super) fn close(&mut self, cx: &mut Context<'_, T>) {
        lock(&self.buffer).close();
        for sent in std::mem::take(&mut self.window) {
            let outcome = outcome(sent.doubt || sent.request.is_some());
            if let Some(batch) = sent.batch {
                let error = self.error(ProduceErrorKind::Closed, outcome, None);
                self.settle(cx, batch, Err(error));
            }
        }
        self.fail_unnumbered(cx, &ProduceErrorKind::Closed);
    }

    /// Refuses further records; those that wait are still sent.
    pub(super) fn refuse_more(&mut self) {
        lock(&self.buffer).close();
    }

    fn settle(&self, cx: &mut Context<'_, T>, batch: Batch<T>, result: Result<Written, Arc<ProduceError>>) {
        cx.flushes.became(batch.flush, 0);
        let (reserved, ticket) = (batch.reserved, batch.ticket.clone());
        let (spans, of) = batch.spans();
        if let Some(buffer) = batch.into_buffer() {
            cx.spares.put(buffer);
        }
        cx.events.push_back(Event::Settled { ticket, spans, of, reserved, result });
    }

    fn error(&self, kind: ProduceErrorKind, outcome: WriteOutcome, source: Option<SharedError>) -> Arc<ProduceError> {
        let TopicPartition { topic, partition } = self.name.clone();
        Arc::new(ProduceError { topic, partition: Some(partition), outcome, kind, source })
    }
}

impl<T: Clone> Sent<T> {
    /// Its first record's number.
    fn number(&self) -> Option<i32> {
        Some(self.batch.as_ref()?.encoded()?.header().producer?.base_sequence)
    }
}

fn outcome(doubt: bool) -> WriteOutcome {
    if doubt { WriteOutcome::PossiblyWritten } else { WriteOutcome::NotWritten }
}

/// A leader that is not known, or did not answer, is asked for again after this.
const REFRESH_AFTER: Duration = Duration::from_millis(250);

/// Brokers look for producers to forget every ten minutes (`producer.id.expiration.check.interval.ms`).
const PROBE_AFTER: Duration = Duration::from_secs(300);
