//! Writing: a batch goes out whole, and its outcome is known record by record.

use std::fmt;
use std::sync::Arc;

use crate::adapter::{AdapterError, BoxFuture};
use crate::error::{BoxError, WriteOutcome};
use crate::record::{Offset, Record, TopicPartition};
use crate::retry::RetryPolicy;

/// How a publisher behaves.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PublisherOptions {
    /// Tries and the waits between them. All tries are made on the same batch; where the broker numbers
    /// batches, with the same producer id and sequence, so that a resend after an unknown outcome is no duplicate.
    pub retry: RetryPolicy,
}

impl PublisherOptions {
    /// Options with this retry policy.
    pub fn with_retry(retry: RetryPolicy) -> Self {
        Self { retry }
    }
}

/// Writes records, acknowledged by all in-sync replicas or their like.
pub trait Publisher: fmt::Debug + Send + Sync + 'static {
    /// Sends the records and waits until all are acknowledged. Records of one partition keep their order, those of several
    /// calls too: calls that are under way at once go in the order in which their futures were first polled.
    ///
    /// # Cancel safety
    /// Dropping the future does not take records back: they may still be written.
    ///
    /// # Errors
    /// With an outcome for each record, in the order given, if any was not acknowledged.
    fn publish(&self, records: Vec<Record>) -> BoxFuture<'_, Result<Vec<Acknowledged>, PublishError>>;

    /// Waits until everything handed over is acknowledged or failed.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    ///
    /// # Errors
    /// [`Closed`](crate::adapter::AdapterErrorKind::Closed) when the adapter is closed before, or was when it was called.
    fn flush(&self) -> BoxFuture<'_, Result<(), AdapterError>>;
}

/// Where a record was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// The partition it went to.
    pub partition: TopicPartition,
    /// Its offset; `None` where the broker did not tell (a resend that it already had).
    pub offset: Option<Offset>,
}

/// Some records of a batch were not acknowledged.
#[derive(Debug, thiserror::Error)]
#[error("{failed} of {total} records not acknowledged after {attempts} attempt(s): {first}",
    failed = self.outcomes.iter().filter(|o| o.is_err()).count(), total = self.outcomes.len(), first = self.first())]
#[non_exhaustive]
pub struct PublishError {
    /// One outcome a record, in the order they were given.
    pub outcomes: Vec<RecordOutcome>,
    /// Tries that were made.
    pub attempts: u32,
}

/// What became of one record.
pub type RecordOutcome = Result<Acknowledged, Arc<RecordFailure>>;

/// Why one record was not acknowledged. Shared by the records of a batch that failed together.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
#[non_exhaustive]
pub struct RecordFailure {
    /// Whether it may be in the log all the same.
    pub outcome: WriteOutcome,
    /// Whether a later try may succeed; false when the broker refused for good.
    pub retryable: bool,
    /// Whether it was refused for its size: with less in it, it may be taken.
    pub too_large: bool,
    /// The broker's error code, where it gave one.
    pub code: Option<i16>,
    /// What happened, with topic and partition.
    pub what: String,
    /// The failure beneath.
    #[source]
    pub source: Option<BoxError>,
}

impl RecordFailure {
    /// A failure with its facts.
    pub fn new(outcome: WriteOutcome, retryable: bool, what: impl fmt::Display) -> Self {
        Self { outcome, retryable, too_large: false, code: None, what: what.to_string(), source: None }
    }

    /// The same failure, for the record's size.
    #[must_use]
    pub fn with_too_large(mut self) -> Self {
        self.too_large = true;
        self
    }

    /// The same failure with the broker's code.
    #[must_use]
    pub fn with_code(mut self, code: i16) -> Self {
        self.code = Some(code);
        self
    }

    /// The same failure with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl PublishError {
    /// An error from outcomes of which at least one is a failure.
    pub fn new(outcomes: Vec<RecordOutcome>, attempts: u32) -> Self {
        Self { outcomes, attempts }
    }

    /// All `records` failed for one reason.
    pub fn all(records: usize, failure: RecordFailure, attempts: u32) -> Self {
        let failure = Arc::new(failure);
        Self { outcomes: (0..records).map(|_| Err(failure.clone())).collect(), attempts }
    }

    /// Whether a later try may succeed: every record that failed says so.
    pub fn is_retryable(&self) -> bool {
        self.outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).all(|failure| failure.retryable)
    }

    /// Whether records may be in the log although the publish failed.
    pub fn is_possibly_written(&self) -> bool {
        self.outcomes.iter().any(|outcome| match outcome {
            Ok(_) => true,
            Err(failure) => failure.outcome == WriteOutcome::PossiblyWritten,
        })
    }

    /// Whether every record that failed was refused for its size.
    pub fn is_too_large(&self) -> bool {
        self.outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).all(|failure| failure.too_large)
    }

    fn first(&self) -> String {
        self.outcomes.iter().find_map(|o| o.as_ref().err()).map_or_else(String::new, ToString::to_string)
    }
}
