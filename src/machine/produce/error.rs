//! Why a record was not acknowledged.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Blame, WriteOutcome};
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;

/// A record was not acknowledged. Shared by all that failed together.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {kind}{doubt}", place = self.place(), doubt = self.doubt())]
#[non_exhaustive]
pub struct ProduceError {
    /// The topic it was for.
    pub topic: Topic,
    /// The partition, once it was chosen.
    pub partition: Option<i32>,
    /// Whether it may be in the log all the same.
    pub outcome: WriteOutcome,
    /// What happened.
    pub kind: ProduceErrorKind,
    /// The failure beneath.
    #[source]
    pub source: Option<SharedError>,
}

/// What kept a record from being acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProduceErrorKind {
    /// The broker refused it for good.
    #[error("broker refused: {code}{}", told(.message))]
    Refused {
        /// The broker's error code.
        code: ErrorCode,
        /// What the broker said besides, of this record or of its batch.
        message: Option<String>,
    },
    /// It is larger than a request, or the memory for what waits, may be.
    #[error("record of {bytes} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit: the least of maximum request size and buffer memory.
        limit: usize,
    },
    /// It was not acknowledged within the delivery timeout.
    #[error("not acknowledged within {timeout:?}{}", last(.code))]
    DeliveryTimeout {
        /// The delivery timeout.
        timeout: Duration,
        /// What the broker last answered, where it did.
        code: Option<ErrorCode>,
    },
    /// The broker's memory of this producer does not say whether an earlier try was written, so it is not sent again:
    /// that could write it twice.
    #[error("broker lost count of this producer's records{}", last(.code))]
    Unresolved {
        /// What the broker answered.
        code: Option<ErrorCode>,
    },
    /// There was no room for it, or its topic's partitions were not known, within the time a send may block.
    #[error("could not be queued within {timeout:?}: {wanting}")]
    Blocked {
        /// The time a send may block.
        timeout: Duration,
        /// What it waited for.
        wanting: &'static str,
    },
    /// The topic has no such partition.
    #[error("topic has {partitions} partition(s)")]
    UnknownPartition {
        /// How many partitions the topic has.
        partitions: i32,
    },
    /// The topic's partitions cannot be known.
    #[error("topic cannot be looked up")]
    Lookup,
    /// The broker does not let this client in: login or certificate are refused, or the listener is of another kind. What
    /// waits for such a broker fails at once; what is sent later is tried, so that a client whose credentials are good again
    /// goes on.
    #[error("broker does not let this client in")]
    LockedOut,
    /// It cannot be written in a batch.
    #[error("record cannot be encoded")]
    Encode,
    /// Its transaction was aborted, or had failed already, so it was not sent, or not to the end.
    #[error("transaction is aborted")]
    Aborted,
    /// The producer, or its client, was closed before it was acknowledged.
    #[error("producer is closed")]
    Closed,
}

impl ProduceError {
    /// The broker's error code, where it gave one.
    pub fn code(&self) -> Option<ErrorCode> {
        match &self.kind {
            ProduceErrorKind::Refused { code, .. } => Some(*code),
            ProduceErrorKind::DeliveryTimeout { code, .. } | ProduceErrorKind::Unresolved { code } => *code,
            _ => None,
        }
    }

    /// Whether sending the record again may succeed. After [`WriteOutcome::PossiblyWritten`] it may also write it
    /// twice: a new send has new numbers.
    pub fn is_retriable(&self) -> bool {
        matches!(
            self.kind,
            ProduceErrorKind::DeliveryTimeout { .. }
                | ProduceErrorKind::Unresolved { .. }
                | ProduceErrorKind::Blocked { .. }
                | ProduceErrorKind::Lookup
        )
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self.kind {
            ProduceErrorKind::Refused { .. }
            | ProduceErrorKind::Unresolved { .. }
            | ProduceErrorKind::Lookup
            | ProduceErrorKind::LockedOut => Blame::Broker,
            ProduceErrorKind::DeliveryTimeout { .. } | ProduceErrorKind::Blocked { .. } => Blame::Network,
            ProduceErrorKind::TooLarge { .. }
            | ProduceErrorKind::Aborted
            | ProduceErrorKind::UnknownPartition { .. }
            | ProduceErrorKind::Encode
            | ProduceErrorKind::Closed => Blame::Caller,
        }
    }

    fn place(&self) -> impl fmt::Display {
        fmt::from_fn(|f| match self.partition {
            Some(partition) => write!(f, "{}-{partition}", self.topic),
            None => write!(f, "{}", self.topic),
        })
    }

    fn doubt(&self) -> &'static str {
        match self.outcome {
            WriteOutcome::NotWritten => "",
            WriteOutcome::PossiblyWritten => " (it may have been written)",
        }
    }
}

/// A failure beneath that several records share.
#[derive(Debug, Clone)]
pub struct SharedError(Arc<dyn std::error::Error + Send + Sync>);

impl SharedError {
    /// `error`, to be shared.
    pub(crate) fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SharedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

fn told(message: &Option<String>) -> impl fmt::Display {
    fmt::from_fn(move |f| match message {
        Some(message) => write!(f, ": {message}"),
        None => Ok(()),
    })
}

fn last(code: &Option<ErrorCode>) -> impl fmt::Display {
    fmt::from_fn(move |f| match code {
        Some(code) => write!(f, ", last answer {code}"),
        None => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_where_what_and_whether_it_may_be_written() {
        let error = ProduceError {
            topic: "orders".into(),
            partition: Some(3),
            outcome: WriteOutcome::PossiblyWritten,
            kind: ProduceErrorKind::DeliveryTimeout {
                timeout: Duration::from_secs(120),
                code: Some(ErrorCode::REQUEST_TIMED_OUT),
            },
            source: None,
        };
        assert_eq!(
            error.to_string(),
            "orders-3: not acknowledged within 120s, last answer REQUEST_TIMED_OUT (7) (it may have been written)"
        );
        assert!(error.is_retriable());
        let refused = ProduceError {
            outcome: WriteOutcome::NotWritten,
            partition: None,
            kind: ProduceErrorKind::Refused { code: ErrorCode::INVALID_RECORD, message: Some("no key".into()) },
            ..error
        };
        assert_eq!(refused.to_string(), "orders: broker refused: INVALID_RECORD (87): no key");
        assert!(!refused.is_retriable());
    }
}
