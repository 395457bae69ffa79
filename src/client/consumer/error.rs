//! What can go wrong in a membership.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::CommitPosition;
use crate::machine::connection::RequestError;
use crate::machine::group::{EndReason, GroupFault};
use crate::protocol::batch::BatchError;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Offset, Topic, TopicPartition};

/// Something went wrong in a membership.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// The group's coordinator did not answer. It is looked for and asked again.
    #[error("group {group}: {what}")]
    Unreachable {
        /// The group.
        group: String,
        /// What was attempted and how it failed.
        what: String,
    },
    /// A broker does not let this client in any more: login or certificate are refused. Told at once and again every ten
    /// seconds while it lasts. Brokers are asked on, so that a client whose credentials are good again goes on; the partitions
    /// are lost when the session ends meanwhile. A client that is not let in from the start ends with [`Failed`](Self::Failed).
    #[error("group {group}: locked out: {source}")]
    LockedOut {
        /// The group.
        group: String,
        /// What was attempted and how it failed.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The coordinator refused, and is asked again.
    #[error("group {group}: {what}: {code}")]
    Refused {
        /// The group.
        group: String,
        /// What was asked.
        what: String,
        /// The broker's error code.
        code: ErrorCode,
    },
    /// The group runs another assignor than the preferred one; this member joined with it.
    #[error("group {group} does not take {wanted:?}, joined with {used}")]
    OtherAssignor {
        /// The group.
        group: String,
        /// What was offered first.
        wanted: Vec<String>,
        /// What the group runs.
        used: String,
    },
    /// The coordinator chose an assignor that was not offered.
    #[error("group {group}: coordinator chose assignor {name:?}, which was not offered")]
    UnknownAssignor {
        /// The group.
        group: String,
        /// Its name.
        name: String,
    },
    /// The leader's assignment cannot be read, and is taken as none.
    #[error("group {group}: malformed assignment: {what}")]
    MalformedAssignment {
        /// The group.
        group: String,
        /// What is wrong with it.
        what: String,
    },
    /// As the leader: a member's subscription cannot be read, and it is assigned nothing.
    #[error("group {group}: malformed subscription of member {member}: {what}")]
    MalformedSubscription {
        /// The group.
        group: String,
        /// The member's id.
        member: String,
        /// What is wrong with it.
        what: String,
    },
    /// The leader assigned partitions of topics that this member did not subscribe to. They are left alone.
    #[error("group {group}: assigned {partitions:?}, whose topics were not subscribed to; left alone")]
    ForeignPartitions {
        /// The group.
        group: String,
        /// The partitions.
        partitions: Vec<TopicPartition>,
    },
    /// Topics that were subscribed to do not exist. They are looked for again.
    #[error("group {group}: topic(s) {topics:?} do not exist")]
    TopicsMissing {
        /// The group.
        group: String,
        /// Their names.
        topics: Vec<Topic>,
    },
    /// A revocation was not answered in time, and the partitions were let go of.
    #[error("group {group}: revocation of {partitions:?} was not answered within {after:?}")]
    RevocationTimedOut {
        /// The group.
        group: String,
        /// The partitions.
        partitions: Vec<TopicPartition>,
        /// The limit.
        after: Duration,
    },
    /// Where to begin could not be learned; it is asked again.
    #[error("{what}{}", with_code(.code))]
    Position {
        /// What was asked.
        what: String,
        /// The broker's error code, where it gave one.
        code: Option<ErrorCode>,
    },
    /// The position was outside of the log; reading goes on where the reset policy says.
    #[error("{partition}: offset {from} is out of range, going on at {to}")]
    OutOfRange {
        /// The partition.
        partition: TopicPartition,
        /// Where it stood.
        from: Offset,
        /// Where it goes on.
        to: Offset,
    },
    /// The topic was deleted and created anew; reading goes on at the beginning of the new one.
    #[error("{partition}: topic was created anew, offset {from} has no meaning any more, going on at {to}")]
    Recreated {
        /// The partition.
        partition: TopicPartition,
        /// Where it stood.
        from: Offset,
        /// Where it goes on.
        to: Offset,
    },
    /// The log was truncated below the position, by an unclean leader election; reading goes on where it diverged.
    #[error("{partition}: log was truncated below offset {from}, going on at {to}")]
    Truncated {
        /// The partition.
        partition: TopicPartition,
        /// Where it stood.
        from: Offset,
        /// Where it goes on.
        to: Offset,
    },
    /// Records cannot be read. They are asked for again and never skipped; other partitions go on.
    #[error("{partition}: records at offset {offset} cannot be read: {source}")]
    Malformed {
        /// The partition.
        partition: TopicPartition,
        /// The offset that was asked for.
        offset: Offset,
        /// What is wrong with them.
        source: Arc<BatchError>,
    },
    /// A broker refuses to give a partition's records; it is asked again.
    #[error("{partition}: fetching at offset {offset}: {code}")]
    FetchRefused {
        /// The partition.
        partition: TopicPartition,
        /// The offset that was asked for.
        offset: Offset,
        /// The broker's error code.
        code: ErrorCode,
    },
    /// A broker did not answer fetches several times in a row; it is asked again.
    #[error("fetching from broker {node}: {source}")]
    FetchUnanswered {
        /// The broker.
        node: NodeId,
        /// How the last one failed.
        source: RequestError,
    },
    /// Another member has this one's instance id. The membership is over.
    #[error("group {group}: fenced by another member with the same instance id")]
    Fenced {
        /// The group.
        group: String,
    },
    /// The group runs none of the assignors that were offered. The membership is over.
    #[error("group {group} runs none of the assignors {offered:?}")]
    NoCommonAssignor {
        /// The group.
        group: String,
        /// What was offered.
        offered: Vec<String>,
    },
    /// The coordinator refused for good. The membership is over.
    #[error("group {group}: {api}: {code}")]
    Expelled {
        /// The group.
        group: String,
        /// What was asked.
        api: &'static str,
        /// The broker's error code.
        code: ErrorCode,
    },
    /// A request cannot be made at all. The membership is over.
    #[error("group {group}: {what}")]
    Failed {
        /// The group.
        group: String,
        /// Why.
        what: String,
    },
    /// The membership has ended.
    #[error("group {group}: the membership has ended")]
    Ended {
        /// The group.
        group: String,
    },
    /// The membership did not exist, or was not left, within the time given.
    #[error("group {group}: {what} not within {after:?}")]
    NotInTime {
        /// The group.
        group: String,
        /// What was waited for.
        what: &'static str,
        /// The limit.
        after: Duration,
    },
}

impl ConsumerError {
    /// Whether the membership is over.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::Fenced { .. }
                | Self::NoCommonAssignor { .. }
                | Self::Expelled { .. }
                | Self::Failed { .. }
                | Self::Ended { .. }
        )
    }

    /// The broker's error code, where one gave it.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } | Self::FetchRefused { code, .. } | Self::Expelled { code, .. } => Some(*code),
            Self::Position { code, .. } => *code,
            _ => None,
        }
    }

    pub(super) fn of_group(group: &str, revocation_timeout: Duration, fault: GroupFault) -> Self {
        let group = group.to_owned();
        match fault {
            GroupFault::Unreachable { what } => Self::Unreachable { group, what },
            GroupFault::Refused { api, code } => Self::Refused { group, what: api.to_owned(), code },
            GroupFault::OtherAssignor { wanted, used } => Self::OtherAssignor { group, wanted, used },
            GroupFault::UnknownAssignor { name } => Self::UnknownAssignor { group, name },
            GroupFault::MalformedAssignment { what } => Self::MalformedAssignment { group, what },
            GroupFault::MalformedSubscription { member, what } => Self::MalformedSubscription { group, member, what },
            GroupFault::ForeignPartitions { partitions } => Self::ForeignPartitions { group, partitions },
            GroupFault::TopicsMissing { topics } => Self::TopicsMissing { group, topics },
            GroupFault::RevocationTimedOut { partitions } => {
                Self::RevocationTimedOut { group, partitions, after: revocation_timeout }
            }
        }
    }

    /// `None` where the caller left on purpose.
    pub(super) fn of_end(group: &str, reason: EndReason) -> Option<Self> {
        let group = group.to_owned();
        match reason {
            EndReason::Left => None,
            EndReason::Fenced => Some(Self::Fenced { group }),
            EndReason::Refused { api, code } => Some(Self::Expelled { group, api, code }),
            EndReason::NoCommonAssignor { offered } => Some(Self::NoCommonAssignor { group, offered }),
            EndReason::Failed { what } => Some(Self::Failed { group, what }),
        }
    }
}

/// Some positions were not committed. Those that it does not name were.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} position(s) not committed: {}", self.failures.len(), self.first())]
#[non_exhaustive]
pub struct CommitError {
    /// One a position. Never empty.
    pub failures: Vec<CommitFailed>,
}

impl CommitError {
    fn first(&self) -> String {
        self.failures.first().map_or_else(String::new, ToString::to_string)
    }
}

/// One position that was not committed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CommitFailed {
    /// The position.
    pub position: CommitPosition,
    /// Why.
    pub cause: CommitCause,
}

impl CommitFailed {
    /// Whether the partition is another member's now, so that trying again is no use.
    pub fn is_lost(&self) -> bool {
        matches!(self.cause, CommitCause::Lost)
    }
}

impl fmt::Display for CommitFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at offset {}: {}", self.position.assigned, self.position.offset, self.cause)
    }
}

/// Why a position was not committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitCause {
    /// The partition went, even if it came back.
    #[error("the partition is not assigned any more")]
    Lost,
    /// The coordinator refused.
    #[error("{0}")]
    Refused(ErrorCode),
    /// There was no success in time. The position may have been committed.
    #[error("not in time{}", with_last(.last))]
    TimedOut {
        /// What the last try failed with.
        last: Option<String>,
    },
    /// The note is too long to be kept.
    #[error("note of {bytes} bytes, at most {max} are kept")]
    NoteTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Too many commits wait already.
    #[error("too many commits wait")]
    TooMany,
}

fn with_code(code: &Option<ErrorCode>) -> String {
    code.map_or_else(String::new, |code| format!(": {code}"))
}

fn with_last(last: &Option<String>) -> String {
    last.as_ref().map_or_else(String::new, |last| format!("; last: {last}"))
}
