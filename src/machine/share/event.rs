//! What share sessions tell.

use std::time::Instant;

use super::AcknowledgeType;
use crate::protocol::batch::BatchError;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Offset, TopicPartition};

/// What became of records that were to be acknowledged.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) ticket: u64,
    pub(crate) partition: TopicPartition,
    pub(crate) first: Offset,
    pub(crate) last: Offset,
    pub(crate) kind: AcknowledgeType,
    /// For a renewal, until when the lock holds.
    pub(crate) result: Result<Option<Instant>, Refusal>,
}

/// Why records were not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// They are locked for this member no more, and will be delivered again, unless another one's accepted them.
    Lost,
    /// The broker refused. They are still held, and can be acknowledged again.
    Refused(ErrorCode),
    /// No answer came, or one of a broker that leads the partition no more: it may have happened or not.
    Unknown { what: String },
    /// The broker has no renewal. They are still held.
    CannotRenew,
}

/// What sessions tell.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// Metadata of this partition's topic is old.
    Stale(TopicPartition),
    /// A broker refuses to give a partition's records; it is asked again.
    Refused { partition: TopicPartition, code: ErrorCode },
    /// A broker refuses the session; it is asked again.
    SessionRefused { node: NodeId, code: ErrorCode },
    /// Records that were acquired cannot be read. Their lock ends by itself.
    Unreadable { partition: TopicPartition, offset: Offset, error: BatchError },
}
