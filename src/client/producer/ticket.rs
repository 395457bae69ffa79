//! How those who wait for a batch learn what became of their records.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::machine::produce::{ProduceError, Written};
use crate::record::{Offset, Timestamp, Topic};

/// One batch, as its records' waiters hold it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct Ticket(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    outcome: OnceLock<Outcome>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
enum Outcome {
    /// One verdict on all records.
    Whole(Verdict),
    /// Several, because the batch was split.
    Pieces(Vec<Piece>),
}

type Verdict = Result<Written, Arc<ProduceError>>;

/// Records of a batch, next to each other in it and in the log.
#[derive(Debug)]
struct Piece {
    records: Range<u32>,
    verdict: Verdict,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<Waker>,
    /// Verdicts so far, while some are missing.
    pieces: Vec<Piece>,
    settled: u32,
}

impl Ticket {
    /// Takes in the verdict on `spans`, of `of` records in all, and wakes all who wait once it is the last one.
    pub(super) fn settle(&self, spans: Vec<Range<u32>>, of: u32, verdict: Verdict) {
        let mut waiting = self.waiting();
        let outcome = match &spans[..] {
            [all] if all.len() == of as usize => Outcome::Whole(verdict),
            _ => {
                let mut before = 0;
                for records in spans {
                    let verdict = verdict.clone().map(|written| written.later_by(before));
                    before += records.len() as u32;
                    waiting.pieces.push(Piece { records, verdict });
                }
                waiting.settled += before;
                if waiting.settled < of {
                    return;
                }
                Outcome::Pieces(std::mem::take(&mut waiting.pieces))
            }
        };
        // The machine gives one verdict on each record, so there is no second outcome.
        let _ = self.0.outcome.set(outcome);
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether all records were written.
    pub(super) fn is_written(&self) -> bool {
        matches!(self.0.outcome.get(), Some(Outcome::Whole(Ok(_))))
    }

    /// What became of a record; `None` as long as that is not known of all.
    pub(super) fn verdict(&self, index: u32) -> Option<Verdict> {
        match self.0.outcome.get()? {
            Outcome::Whole(verdict) => Some(verdict.clone().map(|written| written.later_by(index))),
            Outcome::Pieces(pieces) => {
                let piece = pieces.iter().find(|piece| piece.records.contains(&index))?;
                Some(piece.verdict.clone().map(|written| written.later_by(index - piece.records.start)))
            }
        }
    }

    /// Ready once all verdicts are known. `slot` is the waiter's own; it starts out as `None`.
    pub(super) fn poll_settled(&self, cx: &mut Context<'_>, slot: &mut Option<usize>) -> Poll<()> {
        if self.0.outcome.get().is_some() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting();
        // The outcome is set under the lock, so no wake-up falls between this look and the waker.
        if self.0.outcome.get().is_some() {
            return Poll::Ready(());
        }
        match slot.and_then(|slot| waiting.wakers.get_mut(slot)) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => {
                *slot = Some(waiting.wakers.len());
                waiting.wakers.push(cx.waker().clone());
            }
        }
        Poll::Pending
    }

    /// Waits for all verdicts.
    pub(super) async fn settled(&self) {
        let mut slot = None;
        std::future::poll_fn(|cx| self.poll_settled(cx, &mut slot)).await;
    }

    /// Whether both are the same batch.
    #[inline]
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Wakers run after the lock is let go; nothing under it can panic half way.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Written {
    /// The same for the record that lies `records` behind the first.
    fn later_by(self, records: u32) -> Self {
        let base_offset = self.base_offset.map(|base| base.saturating_add(i64::from(records)));
        Self { base_offset, ..self }
    }
}

/// A record that is on its way: a future of its acknowledgement.
///
/// # Cancel safety
/// Dropping it does not take the record back: it is sent all the same.
#[derive(Debug)]
#[must_use = "without it nobody learns whether the record was written"]
pub struct Delivery {
    pub(super) ticket: Ticket,
    pub(super) index: u32,
    pub(super) partition: i32,
    pub(super) timestamp: Timestamp,
    pub(super) slot: Option<usize>,
}

impl Delivery {
    /// The partition that the record goes to.
    pub fn partition(&self) -> i32 {
        self.partition
    }
}

impl Future for Delivery {
    type Output = Result<RecordMetadata, Arc<ProduceError>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        std::task::ready!(this.ticket.poll_settled(cx, &mut this.slot));
        let verdict = this.ticket.verdict(this.index).expect("a settled ticket has a verdict on each of its records");
        Poll::Ready(verdict.map(|written| RecordMetadata {
            partition: this.partition,
            offset: written.base_offset.map(Offset),
            timestamp: written.log_append_time.map_or(this.timestamp, Timestamp),
        }))
    }
}

/// Where a record was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordMetadata {
    /// The partition.
    pub partition: i32,
    /// Its offset; `None` where the broker did not tell (a resend of what it already had).
    pub offset: Option<Offset>,
    /// Its time: its own, or the broker's where the topic keeps that.
    pub timestamp: Timestamp,
}

/// Some records of a call were not acknowledged.
#[derive(thiserror::Error)]
#[error("{failed} of {total} records not acknowledged: {first}", failed = self.failed(), total = self.outcomes.len(), first = self.first())]
#[non_exhaustive]
pub struct BatchError {
    /// One outcome a record, in the order they were given. From a batch call, the timestamp of one that was written is -1
    /// unless the broker keeps its own.
    pub outcomes: Vec<Result<RecordMetadata, Arc<ProduceError>>>,
}

/// Without the outcomes, of which there may be a million.
impl fmt::Debug for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchError")
            .field("records", &self.outcomes.len())
            .field("failed", &self.failed())
            .field("first", &self.failures().next())
            .finish_non_exhaustive()
    }
}

impl BatchError {
    /// How many were not acknowledged.
    pub fn failed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.is_err()).count()
    }

    /// The topic of the first record that failed.
    pub fn topic(&self) -> Option<&Topic> {
        self.failures().next().map(|error| &error.topic)
    }

    /// Whether sending again may help for every record that failed.
    pub fn is_retriable(&self) -> bool {
        self.failures().all(|error| error.is_retriable())
    }

    fn failures(&self) -> impl Iterator<Item = &Arc<ProduceError>> {
        self.outcomes.iter().filter_map(|outcome| outcome.as_ref().err())
    }

    fn first(&self) -> String {
        self.failures().next().map_or_else(String::new, ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::WriteOutcome;
    use crate::machine::produce::ProduceErrorKind;

    fn written(base_offset: i64) -> Verdict {
        Ok(Written { base_offset: Some(base_offset), log_append_time: None })
    }

    fn closed() -> Verdict {
        let (topic, kind) = ("t".into(), ProduceErrorKind::Closed);
        Err(Arc::new(ProduceError { topic, partition: Some(0), outcome: WriteOutcome::NotWritten, kind, source: None }))
    }

    fn delivery(ticket: &Ticket, index: u32) -> Delivery {
        Delivery { ticket: ticket.clone(), index, partition: 0, timestamp: Timestamp(5), slot: None }
    }

    #[tokio::test]
    async fn each_record_gets_its_own_offset() {
        let ticket = Ticket::default();
        let waiting = tokio::spawn(delivery(&ticket, 2));
        tokio::task::yield_now().await;
        #[allow(clippy::single_range_in_vec_init, reason = "one span")]
        ticket.settle(vec![0..3], 3, written(40));
        assert_eq!(waiting.await.unwrap().unwrap().offset, Some(Offset(42)));
        assert_eq!(delivery(&ticket, 0).await.unwrap().offset, Some(Offset(40)));
        assert!(ticket.is_written());
    }

    #[tokio::test]
    async fn pieces_of_a_split_batch_have_their_own_verdicts_told_together() {
        let ticket = Ticket::default();
        let mut first = tokio_test_poll(delivery(&ticket, 0));
        ticket.settle(vec![0..1, 2..4], 5, written(7));
        assert!(first().is_none(), "one is missing");
        ticket.settle(vec![1..2, 4..5], 5, closed());
        assert_eq!(first().unwrap().unwrap().offset, Some(Offset(7)));
        assert_eq!(delivery(&ticket, 3).await.unwrap().offset, Some(Offset(9)));
        assert!(delivery(&ticket, 1).await.is_err());
        assert!(delivery(&ticket, 4).await.is_err());
        assert!(!ticket.is_written());
    }

    /// A future polled by hand.
    fn tokio_test_poll<F: Future + Unpin>(mut future: F) -> impl FnMut() -> Option<F::Output> {
        move || match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_waiter_polled_twice_keeps_one_waker() {
        let ticket = Ticket::default();
        let mut poll = tokio_test_poll(delivery(&ticket, 0));
        for _ in 0..3 {
            assert!(poll().is_none());
        }
        assert_eq!(ticket.waiting().wakers.len(), 1);
    }
}
