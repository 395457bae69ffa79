//! What a fetcher tells.

use crate::protocol::batch::BatchError;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Offset, TopicPartition};

/// What a fetcher tells.
#[derive(Debug)]
pub(crate) enum FetchEvent {
    /// Metadata of this partition's topic is old.
    Stale { partition: TopicPartition },
    /// Find a new position, and call [`Fetcher::reposition`].
    NeedsReset { partition: TopicPartition, epoch: u64, from: Offset, cause: ResetCause },
    /// The log was truncated: reading goes on at `to`.
    Truncated { partition: TopicPartition, from: Offset, to: Offset },
    /// The records at this offset cannot be read. They are asked for again, and not skipped.
    Malformed { partition: TopicPartition, offset: Offset, error: BatchError },
    /// A partition is read from another broker now, which may not be asked yet.
    Redirected,
    /// The broker refuses the partition; it is asked again.
    Refused { partition: TopicPartition, offset: Offset, code: ErrorCode },
}

/// Why a position is no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResetCause {
    /// The log does not reach there.
    OutOfRange,
    /// The topic was deleted and created anew.
    Recreated,
}
