//! One partition's batches in flight: numbers, order, and what happens when an answer is not the hoped one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::buffer::{PartitionBuffer, Spares, lock};
use super::error::{ProduceError, ProduceErrorKind, SharedError};
use super::flush::Flushes;
use super::identity::{Identity, ProducerId, Scope};
use super::settings::{Acks, ProduceSettings};
use super::verdict::Verdict;
use super::{Event, Leader, PartitionAnswer, RequestId, TopicId, Written};
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

    // ---- what comes back

    /// The broker's answer to a batch.
    pub(super) fn on_answer(&mut self, cx: &mut Context<'_, T>, request: RequestId, answer: PartitionAnswer) {
        let Some(at) = self.window.iter().position(|sent| sent.request == Some(request)) else { return };
        self.window[at].request = None;
        self.last_code = (!answer.code.is_ok()).then_some(answer.code);
        self.last_error = None;
        match Verdict::of(answer.code) {
            Verdict::Written => self.on_written(cx, at, &answer),
            _ if self.window[at].batch.is_none() => self.drop_number(at),
            verdict if cx.scope.is_some_and(|scope| self.ends_transaction(scope, at, verdict, &answer)) => {
                self.fail_in_transaction(cx, at, verdict, answer);
            }
            Verdict::Refused => self.on_refused(cx, at, answer),
            Verdict::TooLarge => self.on_too_large(cx, at, answer),
            // Without the log's start it cannot be told yet what was lost (KIP-360): ask again.
            Verdict::OutOfSequence if answer.code == ErrorCode::UNKNOWN_PRODUCER_ID && answer.log_start_offset < 0 => {
                self.try_again(cx, at, WriteOutcome::NotWritten);
            }
            Verdict::OutOfSequence => self.on_out_of_sequence(cx, at),
            Verdict::Again(outcome) => {
                if answer.code.invalidates_metadata() || answer.code == ErrorCode::INCONSISTENT_TOPIC_ID {
                    self.stale = Some(cx.now);
                }
                self.try_again(cx, at, outcome);
            }
        }
        self.gathered(cx);
    }

    /// No answer came to a batch's request.
    pub(super) fn on_unanswered(
        &mut self,
        cx: &mut Context<'_, T>,
        request: RequestId,
        outcome: WriteOutcome,
        error: Option<&SharedError>,
    ) {
        let Some(at) = self.window.iter().position(|sent| sent.request == Some(request)) else { return };
        self.window[at].request = None;
        self.last_error = error.cloned();
        // A dead leader answers nothing: who leads now is not known (platformatic/kafka#377).
        self.stale = Some(cx.now);
        match self.window[at].batch.is_none() {
            true => self.drop_number(at),
            false => self.try_again(cx, at, outcome),
        }
        if cx.scope.is_some_and(|scope| scope.doomed) {
            self.abandon(cx);
        }
        self.gathered(cx);
    }

    /// The broker of a request does not let this client in, and would not the next time. What waits for it fails at once.
    pub(super) fn on_locked_out(
        &mut self,
        cx: &mut Context<'_, T>,
        request: RequestId,
        outcome: WriteOutcome,
        error: &SharedError,
    ) {
        let Some(at) = self.window.iter().position(|sent| sent.request == Some(request)) else { return };
        let sent = &mut self.window[at];
        sent.request = None;
        sent.doubt |= outcome == WriteOutcome::PossiblyWritten;
        self.last_error = Some(error.clone());
        self.stale = Some(cx.now);
        match cx.scope {
            Some(_) => {
                if let Some((batch, doubt)) = self.take_out(at) {
                    self.settle_locked_out(cx, batch, doubt);
                }
            }
            None => {
                self.flow = Flow::Gathering { renumber: true };
                for sent in std::mem::take(&mut self.window) {
                    if sent.request.is_some() {
                        self.window.push_back(sent);
                    } else if let Some(batch) = sent.batch {
                        self.settle_locked_out(cx, batch, sent.doubt);
                    }
                }
            }
        }
        self.lock_out(cx, error);
        self.gathered(cx);
    }

    /// Fails what has no number yet, because no broker lets this client in.
    pub(super) fn lock_out(&mut self, cx: &mut Context<'_, T>, error: &SharedError) {
        self.last_error = Some(error.clone());
        while let Some(batch) = self.take_unnumbered() {
            self.settle_locked_out(cx, batch, false);
        }
    }

    fn settle_locked_out(&mut self, cx: &mut Context<'_, T>, batch: Batch<T>, doubt: bool) {
        let error = self.error(ProduceErrorKind::LockedOut, outcome(doubt), self.last_error.clone());
        self.settle(cx, batch, Err(error));
    }

    fn on_written(&mut self, cx: &mut Context<'_, T>, at: usize, answer: &PartitionAnswer) {
        let Some(sent) = self.window.remove(at) else { return };
        (self.failures, self.mismatches) = (0, 0);
        (self.retry_at, self.last_success) = (None, Some(cx.now));
        // An earlier one was refused and this one taken: the earlier one's number is behind the broker's count for good.
        if self.window.iter().take(at).any(|earlier| earlier.request.is_none()) {
            self.flow = Flow::Gathering { renumber: true };
            if cx.scope.is_some() {
                self.fail_before(cx, at);
            }
        }
        if self.flow == Flow::Probing {
            self.flow = Flow::Flowing;
        }
        if let Some(batch) = sent.batch {
            let written = Written {
                base_offset: (answer.base_offset >= 0).then_some(answer.base_offset),
                log_append_time: (answer.log_append_time >= 0).then_some(answer.log_append_time),
            };
            self.settle(cx, batch, Ok(written));
        }
    }

    fn on_refused(&mut self, cx: &mut Context<'_, T>, at: usize, answer: PartitionAnswer) {
        let Some((batch, doubt)) = self.take_out(at) else { return };
        let outcome = outcome(doubt);
        let culprits: Vec<u32> =
            answer.record_errors.iter().filter_map(|error| u32::try_from(error.batch_index).ok()).collect();
        // KIP-467: only these are to blame, the others may go once they are out. In doubt they may not.
        let parted = match doubt {
            false if !culprits.is_empty() => batch.without(&culprits),
            _ => None,
        };
        let message = |own: Option<String>| own.or_else(|| answer.message.clone());
        match parted {
            Some([rest, blamed]) if rest.record_count() > 0 && blamed.record_count() > 0 => {
                let told = answer.record_errors.iter().find_map(|error| error.message.clone());
                cx.flushes.became(batch.flush, 2);
                let kind = ProduceErrorKind::Refused { code: answer.code, message: message(told) };
                let error = self.error(kind, outcome, None);
                self.settle(cx, blamed, Err(error));
                self.put_back(at, rest);
            }
            _ => {
                let told = answer.record_errors.into_iter().find_map(|error| error.message);
                let kind = ProduceErrorKind::Refused { code: answer.code, message: message(told) };
                let error = self.error(kind, outcome, None);
                self.settle(cx, batch, Err(error));
            }
        }
    }

    fn on_too_large(&mut self, cx: &mut Context<'_, T>, at: usize, answer: PartitionAnswer) {
        let Some((batch, doubt)) = self.take_out(at) else { return };
        let (bytes, flush) = (batch.bytes(), batch.flush);
        let halves = if doubt { Err(batch) } else { batch.halve() };
        match halves {
            Ok((first, second)) => {
                lock(&self.buffer).learn_limit(bytes / 2);
                cx.flushes.became(flush, 2);
                self.put_back(at, second);
                self.put_back(at, first);
            }
            Err(whole) => {
                let kind = ProduceErrorKind::Refused { code: answer.code, message: answer.message };
                let error = self.error(kind, outcome(doubt), None);
                self.settle(cx, whole, Err(error));
            }
        }
    }

    fn on_out_of_sequence(&mut self, cx: &mut Context<'_, T>, at: usize) {
        // Behind a batch that was refused, this is no news. At the head it says that the broker's count is another
        // than ours.
        let behind = at > 0 || matches!(self.flow, Flow::Gathering { .. });
        if behind {
            if !matches!(self.flow, Flow::Gathering { .. }) {
                self.flow = Flow::Gathering { renumber: false };
            }
            return;
        }
        self.mismatches += 1;
        self.flow = Flow::Gathering { renumber: true };
        if self.mismatches > 1 {
            self.back_off(cx);
        }
    }

    fn try_again(&mut self, cx: &mut Context<'_, T>, at: usize, outcome: WriteOutcome) {
        self.window[at].doubt |= outcome == WriteOutcome::PossiblyWritten;
        if !matches!(self.flow, Flow::Gathering { .. }) {
            self.flow = Flow::Gathering { renumber: false };
            self.back_off(cx);
        }
    }

    fn back_off(&mut self, cx: &mut Context<'_, T>) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(cx.now + cx.settings.backoff(self.failures, (cx.random)()));
    }

    /// Removes a batch whose number will not be used: what is behind it needs another one.
    fn take_out(&mut self, at: usize) -> Option<(Batch<T>, bool)> {
        self.flow = Flow::Gathering { renumber: true };
        self.rewind = self.earlier(self.rewind, self.window.get(at).and_then(Sent::number));
        let sent = self.window.remove(at)?;
        Some((sent.batch?, sent.doubt))
    }

    /// Puts a batch without a number where one was taken out.
    fn put_back(&mut self, at: usize, batch: Batch<T>) {
        self.window.insert(at, Sent { batch: Some(batch), request: None, doubt: false });
    }

    /// Drops the entry of a batch that was settled before its answer came.
    fn drop_number(&mut self, at: usize) {
        let _settled_before = self.take_out(at);
    }

    /// Ends [`Flow::Gathering`] once nothing is in flight.
    fn gathered(&mut self, cx: &mut Context<'_, T>) {
        let Flow::Gathering { renumber } = self.flow else { return };
        if self.in_flight() > 0 {
            return;
        }
        self.flow = Flow::Probing;
        if renumber {
            self.renumber(cx);
        }
    }

    /// Takes back every number given out. What may have been written keeps none: it fails, as that.
    fn renumber(&mut self, cx: &mut Context<'_, T>) {
        let numbered = cx.settings.acks == Acks::All;
        let first = self.window.iter().find_map(Sent::number);
        let mut kept = VecDeque::with_capacity(self.window.len());
        for sent in std::mem::take(&mut self.window) {
            let Some(batch) = sent.batch else { continue };
            if sent.doubt && numbered {
                let kind = ProduceErrorKind::Unresolved { code: self.last_code };
                let error = self.error(kind, WriteOutcome::PossiblyWritten, self.last_error.clone());
                self.settle(cx, batch, Err(error));
            } else {
                kept.push_back(batch);
            }
        }
        while let Some(batch) = kept.pop_back() {
            self.returned.push_front(batch);
        }
        self.flow = Flow::Probing;
        let rewind = self.rewind.take();
        if cx.settings.transactional {
            // Within a transaction the epoch stays (librdkafka#3575). Nothing behind these numbers is in the log.
            self.next_sequence = self.earlier(rewind, first).unwrap_or(self.next_sequence);
            return;
        }
        self.next_sequence = 0;
        self.producer = match self.producer {
            // A new epoch did not help: the broker has another idea of this id.
            Some(producer) if producer.epoch < i16::MAX && self.mismatches < 3 => {
                Some(ProducerId { epoch: producer.epoch + 1, ..producer })
            }
            Some(producer) => {
                self.distrusted = Some(producer.id);
                None
            }
            None => None,
        };
    }

    // ---- transactions

    fn may_write_in(&self, scope: Scope) -> bool {
        !scope.doomed && (scope.implicit || self.enlisted == Enlisted::In(scope.serial))
    }

    /// Whether it waits to become part of the transaction, and nobody was asked yet.
    pub(super) fn poll_enlist(&mut self, scope: Scope) -> bool {
        let serial = scope.serial;
        let known = matches!(self.enlisted, Enlisted::Asked(of) | Enlisted::In(of) if of == serial);
        let wants = !scope.implicit && !scope.doomed && !known && !self.is_idle();
        if wants {
            self.enlisted = Enlisted::Asked(serial);
        }
        wants
    }

    /// It is part of the transaction that it asked for.
    pub(super) fn enlist(&mut self) {
        if let Enlisted::Asked(serial) = self.enlisted {
            self.enlisted = Enlisted::In(serial);
        }
    }

    /// Numbers begin anew: the producer has a new epoch, and nothing is under way.
    fn begin_epoch(&mut self) {
        self.producer = None;
        self.rewind = None;
        (self.failures, self.mismatches) = (0, 0);
        self.retry_at = None;
        self.flow = Flow::Probing;
    }

    /// Whether the transaction cannot be committed after this answer. A batch that is only too large is split, one that
    /// comes back because of another before it waits for that, and what may succeed is sent again.
    fn ends_transaction(&self, scope: Scope, at: usize, verdict: Verdict, answer: &PartitionAnswer) -> bool {
        let behind = at > 0 || matches!(self.flow, Flow::Gathering { .. });
        match verdict {
            Verdict::Written => false,
            _ if scope.doomed => true,
            // The leader has asked the coordinator (KIP-890).
            Verdict::Again(_) => matches!(
                answer.code,
                ErrorCode::TRANSACTION_ABORTABLE
                    | ErrorCode::INVALID_TXN_STATE
                    | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            ),
            Verdict::TooLarge => self.window[at].doubt,
            Verdict::OutOfSequence => !(behind && answer.code == ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER),
            Verdict::Refused => true,
        }
    }

    fn fail_in_transaction(&mut self, cx: &mut Context<'_, T>, at: usize, verdict: Verdict, answer: PartitionAnswer) {
        let Some((batch, doubt)) = self.take_out(at) else { return };
        let doubt = doubt || matches!(verdict, Verdict::Again(WriteOutcome::PossiblyWritten));
        let told = answer.record_errors.into_iter().find_map(|error| error.message);
        let kind = match cx.scope {
            Some(Scope { doomed: true, .. }) => ProduceErrorKind::Aborted,
            _ => ProduceErrorKind::Refused { code: answer.code, message: told.or(answer.message) },
        };
        let error = self.error(kind, outcome(doubt), None);
        self.settle(cx, batch, Err(error));
    }

    /// Fails the batches before this place that came back: what was written behind them has taken their numbers.
    fn fail_before(&mut self, cx: &mut Context<'_, T>, at: usize) {
        for place in (0..at.min(self.window.len())).rev() {
            if self.window[place].request.is_some() {
                continue;
            }
            let Some(Sent { batch: Some(batch), doubt, .. }) = self.window.remove(place) else { continue };
            let kind = ProduceErrorKind::Unresolved { code: self.last_code };
            let error = self.error(kind, outcome(doubt), self.last_error.clone());
            self.settle(cx, batch, Err(error));
        }
    }

    /// Fails everything that is not on its way, which is all of a transaction that will be aborted. Answers that are still
    /// to come are waited for.
    pub(super) fn abandon(&mut self, cx: &mut Context<'_, T>) {
        for sent in std::mem::take(&mut self.window) {
            if sent.request.is_some() {
                self.window.push_back(sent);
            } else if let Some(batch) = sent.batch {
                let error = self.error(ProduceErrorKind::Aborted, outcome(sent.doubt), self.last_error.clone());
                self.settle(cx, batch, Err(error));
            }
        }
        self.fail_unnumbered(cx, &ProduceErrorKind::Aborted);
        self.retry_at = None;
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
