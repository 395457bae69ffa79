//! What a partition does otherwise within a transaction.

use super::{Context, Enlisted, Flow, Partition, Sent, outcome};
use crate::error::WriteOutcome;
use crate::machine::produce::PartitionAnswer;
use crate::machine::produce::error::ProduceErrorKind;
use crate::machine::produce::identity::Scope;
use crate::machine::produce::verdict::Verdict;
use crate::protocol::error_code::ErrorCode;

impl<T: Clone> Partition<T> {
    pub(super) fn may_write_in(&self, scope: Scope) -> bool {
        !scope.doomed && (scope.implicit || self.enlisted == Enlisted::In(scope.serial))
    }

    /// Whether it waits to become part of the transaction, and nobody was asked yet.
    pub(crate) fn poll_enlist(&mut self, scope: Scope) -> bool {
        let serial = scope.serial;
        let known = matches!(self.enlisted, Enlisted::Asked(of) | Enlisted::In(of) if of == serial);
        let wants = !scope.implicit && !scope.doomed && !known && !self.is_idle();
        if wants {
            self.enlisted = Enlisted::Asked(serial);
        }
        wants
    }

    /// It is part of the transaction that it asked for.
    pub(crate) fn enlist(&mut self) {
        if let Enlisted::Asked(serial) = self.enlisted {
            self.enlisted = Enlisted::In(serial);
        }
    }

    /// Numbers begin anew: the producer has a new epoch, and nothing is under way.
    pub(super) fn begin_epoch(&mut self) {
        self.producer = None;
        self.rewind = None;
        (self.failures, self.mismatches) = (0, 0);
        self.retry_at = None;
        self.flow = Flow::Probing;
    }

    /// Whether the transaction cannot be committed after this answer. A batch that is only too large is split, one that
    /// comes back because of another before it waits for that, and what may succeed is sent again.
    pub(super) fn ends_transaction(&self, scope: Scope, at: usize, verdict: Verdict, answer: &PartitionAnswer) -> bool {
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

    pub(super) fn fail_in_transaction(
        &mut self,
        cx: &mut Context<'_, T>,
        at: usize,
        verdict: Verdict,
        answer: PartitionAnswer,
    ) {
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
    pub(super) fn fail_before(&mut self, cx: &mut Context<'_, T>, at: usize) {
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
    pub(crate) fn abandon(&mut self, cx: &mut Context<'_, T>) {
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
}
