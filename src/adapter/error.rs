//! Why a broker call failed, in words that mean the same for every broker.

use std::fmt;

use crate::error::BoxError;
use crate::record::{Topic, TopicPartition};

/// A call on the port failed.
#[derive(Debug, thiserror::Error)]
#[error("{adapter}: {what}")]
#[non_exhaustive]
pub struct AdapterError {
    /// The adapter's name.
    pub adapter: &'static str,
    /// What kind of failure it is.
    pub kind: AdapterErrorKind,
    /// Whether the same call may succeed later. True unless the broker or the configuration says no for good.
    pub retryable: bool,
    /// What was attempted and why it failed, with topic, partition and code where they are known.
    pub what: String,
    /// The failure beneath.
    #[source]
    pub source: Option<BoxError>,
}

/// Kinds of failure that a caller handles differently.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdapterErrorKind {
    /// No broker could be reached, or an answer did not come in time.
    Unavailable,
    /// The broker refused the request.
    Refused,
    /// No broker lets this client in: login or certificate are refused. A membership that tells it goes on trying.
    LockedOut,
    /// The adapter is closed.
    Closed,
    /// The options ask for what this broker cannot do, or contradict each other.
    Unsupported,
    /// A topic does not exist.
    TopicMissing(Topic),
    /// The membership is over: fenced, or expelled for good.
    Fenced,
    /// The adapter panicked: a fault of its own. The call may have been carried out.
    Panicked,
    /// No failure: the group runs another assignor than what was offered first, and the membership goes on with that one.
    OtherAssignor {
        /// What was offered first.
        offered: Vec<String>,
        /// What the group runs.
        chosen: String,
    },
    /// The group's leader assigned partitions of topics that were not asked for; they are left alone.
    ForeignPartitions(Vec<TopicPartition>),
}

impl AdapterError {
    /// A failure of this kind; retryable for [`AdapterErrorKind::Unavailable`] alone.
    pub fn new(adapter: &'static str, kind: AdapterErrorKind, what: impl fmt::Display) -> Self {
        let retryable = kind == AdapterErrorKind::Unavailable;
        Self { adapter, kind, retryable, what: what.to_string(), source: None }
    }

    /// The same failure with this verdict on trying again.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// The same failure with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}
