//! Why a transaction, or its producer, came to nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::error::WriteOutcome;
use crate::machine::produce::{ProduceError, SharedError};
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;

/// A transaction failed, or its producer did.
#[derive(Debug, Clone, thiserror::Error)]
#[error("transaction of {transactional_id}: {kind}{}", doubt(*.outcome))]
#[non_exhaustive]
pub struct TransactionError {
    /// Whose transaction it is.
    pub transactional_id: String,
    /// Whether it may be committed all the same. Anything but a commit that was on its way is not.
    pub outcome: WriteOutcome,
    /// What happened.
    pub kind: TransactionErrorKind,
    /// The failure beneath.
    #[source]
    pub source: Option<SharedError>,
}

/// What became of a transaction or its producer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionErrorKind {
    /// A newer producer with this transactional id took over, or the transaction took longer than its timeout and the
    /// coordinator aborted it; brokers do not tell which. This producer is over.
    #[error("producer is fenced: {code}")]
    Fenced {
        /// The broker's error code.
        code: ErrorCode,
    },
    /// A broker refused a request of the transaction.
    #[error("{api} was refused: {code}")]
    Refused {
        /// Which request.
        api: ApiKey,
        /// The broker's error code.
        code: ErrorCode,
        /// Whether the producer is over, too.
        is_fatal: bool,
    },
    /// A record of it was not written.
    #[error("a record was not written: {error}")]
    NotWritten {
        /// Which, and why.
        error: Arc<ProduceError>,
        /// Whether the producer is over, too.
        is_fatal: bool,
    },
    /// A call of it was dropped before its end, so that nobody knows what is part of it.
    #[error("a call of it was dropped before its end")]
    Dropped,
    /// It did not come to its end in time. Goes on in the background: the next transaction begins once it is decided.
    #[error("{what} took longer than {after:?}")]
    NotInTime {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// A broker cannot be asked what a transaction needs.
    #[error("broker cannot be asked for transactions")]
    Unsupported,
    /// Options cannot be used.
    #[error("options cannot be used")]
    Config,
    /// The producer, or its client, was closed.
    #[error("producer is closed")]
    Closed,
}

impl TransactionError {
    pub(crate) fn new(transactional_id: &str, kind: TransactionErrorKind) -> Self {
        let outcome = WriteOutcome::NotWritten;
        Self { transactional_id: transactional_id.to_owned(), outcome, kind, source: None }
    }

    pub(crate) fn because(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { source: Some(SharedError::new(source)), ..self }
    }

    pub(crate) fn with_outcome(self, outcome: WriteOutcome) -> Self {
        Self { outcome, ..self }
    }

    /// Whether the producer is over: it begins no further transaction, and another has to be made in its place.
    pub fn is_fatal(&self) -> bool {
        match &self.kind {
            TransactionErrorKind::Fenced { .. } | TransactionErrorKind::Unsupported => true,
            TransactionErrorKind::Config | TransactionErrorKind::Closed => true,
            TransactionErrorKind::Refused { is_fatal, .. } | TransactionErrorKind::NotWritten { is_fatal, .. } => {
                *is_fatal
            }
            TransactionErrorKind::Dropped | TransactionErrorKind::NotInTime { .. } => false,
        }
    }

    /// The broker's error code, where a broker refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match &self.kind {
            TransactionErrorKind::Fenced { code } | TransactionErrorKind::Refused { code, .. } => Some(*code),
            TransactionErrorKind::NotWritten { error, .. } => error.code(),
            _ => None,
        }
    }
}

fn doubt(outcome: WriteOutcome) -> &'static str {
    match outcome {
        WriteOutcome::NotWritten => "",
        WriteOutcome::PossiblyWritten => " (it may be committed)",
    }
}
