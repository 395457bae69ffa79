//! What becomes of a batch by its request's answer, or without one.

use std::collections::VecDeque;

use super::{Context, Flow, Partition, Sent, outcome};
use crate::error::WriteOutcome;
use crate::machine::produce::batch::Batch;
use crate::machine::produce::buffer::lock;
use crate::machine::produce::error::{ProduceErrorKind, SharedError};
use crate::machine::produce::identity::ProducerId;
use crate::machine::produce::settings::Acks;
use crate::machine::produce::verdict::Verdict;
use crate::machine::produce::{PartitionAnswer, RequestId, Written};
use crate::protocol::error_code::ErrorCode;

impl<T: Clone> Partition<T> {
    /// The broker's answer to a batch.
    pub(crate) fn on_answer(&mut self, cx: &mut Context<'_, T>, request: RequestId, answer: PartitionAnswer) {
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
    pub(crate) fn on_unanswered(
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
    pub(crate) fn on_locked_out(
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
    pub(crate) fn lock_out(&mut self, cx: &mut Context<'_, T>, error: &SharedError) {
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
    pub(super) fn take_out(&mut self, at: usize) -> Option<(Batch<T>, bool)> {
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
    pub(super) fn gathered(&mut self, cx: &mut Context<'_, T>) {
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
}
