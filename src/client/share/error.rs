//! What can go wrong in a share group.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Acknowledgement;
use crate::machine::connection::RequestError;
use crate::machine::share::{MemberEnd, Refusal};
use crate::protocol::batch::BatchError;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Offset, Topic, TopicPartition};

/// Something went wrong in a member of a share group.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The group's coordinator did not answer. It is looked for and asked again.
    #[error("share group {group}: {what}")]
    Unreachable {
        /// The group.
        group: String,
        /// What was attempted and how it failed.
        what: String,
    },
    /// The coordinator refused, and is asked again.
    #[error("share group {group}: {code}{}", said(.message))]
    Refused {
        /// The group.
        group: String,
        /// The broker's error code.
        code: ErrorCode,
        /// The broker's own words, where it had any.
        message: Option<String>,
    },
    /// Topics that were subscribed to do not exist. They are looked for again.
    #[error("share group {group}: topic(s) {topics:?} do not exist")]
    TopicsMissing {
        /// The group.
        group: String,
        /// Their names.
        topics: Vec<Topic>,
    },
    /// A broker refuses to give a partition's records; it is asked again.
    #[error("{partition}: fetching for share group {group}: {code}")]
    FetchRefused {
        /// The group.
        group: String,
        /// The partition.
        partition: TopicPartition,
        /// The broker's error code.
        code: ErrorCode,
    },
    /// A broker refuses the session, and with it everything this member reads of it; it is asked again.
    #[error("share group {group}: session with broker {node}: {code}")]
    SessionRefused {
        /// The group.
        group: String,
        /// The broker.
        node: NodeId,
        /// The broker's error code.
        code: ErrorCode,
    },
    /// Records that were acquired cannot be read, and are not acknowledged: they are delivered again when their locks end, until
    /// that was done as often as the group allows. Others go on.
    #[error("{partition}: records at offset {offset} cannot be read: {source}")]
    Unreadable {
        /// The partition.
        partition: TopicPartition,
        /// The first of them.
        offset: Offset,
        /// What is wrong with them.
        source: Arc<BatchError>,
    },
    /// A broker did not answer several times in a row; it is asked again.
    #[error("share group {group}: broker {node}: {source}")]
    Unanswered {
        /// The group.
        group: String,
        /// The broker.
        node: NodeId,
        /// How the last request failed.
        source: RequestError,
    },
    /// The coordinator refused for good. The membership is over.
    #[error("share group {group}: {code}{}", said(.message))]
    Expelled {
        /// The group.
        group: String,
        /// The broker's error code.
        code: ErrorCode,
        /// The broker's own words, where it had any.
        message: Option<String>,
    },
    /// A request cannot be made at all. The membership is over.
    #[error("share group {group}: {what}")]
    Failed {
        /// The group.
        group: String,
        /// Why.
        what: String,
    },
    /// The membership has ended.
    #[error("share group {group}: the membership has ended")]
    Ended {
        /// The group.
        group: String,
    },
    /// The membership did not exist, or was not left, within the time given.
    #[error("share group {group}: {what} not within {after:?}")]
    NotInTime {
        /// The group.
        group: String,
        /// What was waited for.
        what: &'static str,
        /// The limit.
        after: Duration,
    },
}

impl ShareError {
    /// Whether the membership is over.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Expelled { .. } | Self::Failed { .. } | Self::Ended { .. })
    }

    /// The broker's error code, where one gave it.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. }
            | Self::FetchRefused { code, .. }
            | Self::SessionRefused { code, .. }
            | Self::Expelled { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// `None` where the caller left on purpose.
    pub(super) fn of_end(group: &str, end: MemberEnd) -> Option<Self> {
        let group = group.to_owned();
        match end {
            MemberEnd::Left => None,
            MemberEnd::Refused { code, message } => Some(Self::Expelled { group, code, message }),
            MemberEnd::Failed { what } => Some(Self::Failed { group, what }),
        }
    }
}

/// Some records were not acknowledged. Those that it does not name were.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} acknowledgement(s) failed: {}", self.failures.len(), self.first())]
#[non_exhaustive]
pub struct AcknowledgeError {
    /// Each with its records, which may be part of an acknowledgement that was asked for. Never empty.
    pub failures: Vec<AcknowledgeFailed>,
}

impl AcknowledgeError {
    fn first(&self) -> String {
        self.failures.first().map_or_else(String::new, ToString::to_string)
    }
}

/// Records that were not acknowledged.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AcknowledgeFailed {
    /// Which, and what was to become of them.
    pub acknowledgement: Acknowledgement,
    /// Why.
    pub cause: AcknowledgeCause,
}

impl AcknowledgeFailed {
    /// Whether this member's lock is gone, so that trying again is no use: another member may work on the records already.
    pub fn is_lost(&self) -> bool {
        matches!(self.cause, AcknowledgeCause::Lost)
    }
}

impl fmt::Display for AcknowledgeFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Acknowledgement { lock, first, last, kind } = &self.acknowledgement;
        write!(f, "{} offsets {first} to {last} ({kind:?}): {}", lock.partition, self.cause)
    }
}

/// Why records were not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcknowledgeCause {
    /// They are not locked for this member any more, or never were: the lock's time was over, the partition's leader changed, the
    /// session with it ended, or they were acknowledged before. Unless they were, they are delivered again.
    #[error("the records are not locked for this member any more")]
    Lost,
    /// The broker refused. The locks hold, and it can be tried again.
    #[error("{0}")]
    Refused(ErrorCode),
    /// The request was not answered, or refused by a broker that leads the partition no more, and may have written it before it heard
    /// of that: it may have happened, or the records are delivered again.
    #[error("it may have happened or not: {what}")]
    Unknown {
        /// How the request ended, or what it was refused with.
        what: String,
    },
    /// The broker does not know how to renew a lock, which needs Kafka 4.2. The lock holds until its end.
    #[error("the broker cannot renew locks")]
    CannotRenew,
    /// Too many acknowledgements wait already. The locks hold.
    #[error("too many acknowledgements wait")]
    TooMany,
}

impl From<Refusal> for AcknowledgeCause {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Lost => Self::Lost,
            Refusal::Refused(code) => Self::Refused(code),
            Refusal::Unknown { what } => Self::Unknown { what },
            Refusal::CannotRenew => Self::CannotRenew,
        }
    }
}

fn said(message: &Option<String>) -> String {
    message.as_ref().map_or_else(String::new, |message| format!(": {message}"))
}
