//! What a consumer tells, and what is said back.

use std::fmt;

use tokio::sync::oneshot;

use super::ConsumerError;
use crate::machine::fetch::Lease;
use crate::protocol::batch::BatchView;
use crate::record::{LeaderEpoch, Offset, TopicPartition};

/// What happened to a membership.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConsumerEvent {
    /// Partitions came, and are positioned; batches of them follow. None at first means that the group has members enough.
    Assigned(Vec<Assignment>),
    /// Records of one partition.
    Batch(PartitionBatch),
    /// Partitions are to go. They can be committed until the [`Release`] is given, or the revocation timeout is over.
    Revoked(Vec<Assigned>, Release),
    /// Partitions are gone: another member may have them already, nothing can be committed any more.
    Lost(Vec<Assigned>),
    /// Something went wrong. The membership goes on unless the error [is fatal](ConsumerError::is_fatal).
    Fault(ConsumerError),
}

/// A partition as it was assigned. One that goes and comes back has another epoch, and what names the old one is refused.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Assigned {
    /// Which partition.
    pub partition: TopicPartition,
    /// Counts assignments, over all memberships of the process.
    pub epoch: u64,
}

impl fmt::Debug for Assigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.partition, self.epoch)
    }
}

/// A partition that came, and where its reading begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The partition and its epoch.
    pub assigned: Assigned,
    /// What the group had committed; `None` if it never had.
    pub committed: Option<Offset>,
    /// Where reading begins: the committed offset, or what the reset policy came to.
    pub position: Offset,
    /// The note that was committed with the offset, if any.
    pub note: Option<String>,
}

/// Records of one partition, in offset order. The next batch of the partition continues where this one ends.
///
/// What came in while the one before was worked on comes together, up to [`fetch_max_partition_bytes`].
///
/// May hold no record: what transaction markers, aborted transactions and deleted records covered can be committed past,
/// too. Until it is dropped, its memory counts against the consumer's byte budget.
///
/// [`fetch_max_partition_bytes`]: super::ConsumerBuilder::fetch_max_partition_bytes
pub struct PartitionBatch {
    /// Whose records these are.
    pub assigned: Assigned,
    /// The encoded batches, data alone. The first may begin before `from`.
    pub batches: Vec<BatchView>,
    /// Records before it are to be skipped.
    pub from: Offset,
    /// The offset after the last one that is covered.
    pub next_offset: Offset,
    /// What its memory is counted by.
    pub lease: BatchLease,
}

impl fmt::Debug for PartitionBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionBatch")
            .field("assigned", &self.assigned)
            .field("from", &self.from)
            .field("next_offset", &self.next_offset)
            .finish_non_exhaustive()
    }
}

/// A batch's share of the byte budget, given back when dropped.
#[derive(Debug)]
pub struct BatchLease(#[expect(dead_code, reason = "held for its drop")] pub(super) Lease);

/// The answer to a revocation: dropped or [sent](Self::send), it lets the partitions go.
#[derive(Debug)]
pub struct Release(Option<oneshot::Sender<()>>);

impl Release {
    pub(super) fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some(sender)), receiver)
    }

    /// What answers, for a release of another kind to take over.
    pub(crate) fn into_sender(self) -> Option<oneshot::Sender<()>> {
        self.0
    }

    /// Lets the partitions go, once what was committed of them before is decided.
    pub fn send(mut self) {
        if let Some(sender) = self.0.take() {
            // The membership may have stopped waiting; then there is nobody left to tell.
            let _ = sender.send(());
        }
    }
}

/// A position to commit: everything before `offset` is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitPosition {
    /// Which partition, by which assignment.
    pub assigned: Assigned,
    /// The next offset to read.
    pub offset: Offset,
    /// The leader epoch of the record before it; filled in from what was handed over when absent (KIP-320).
    pub leader_epoch: Option<LeaderEpoch>,
    /// Comes back with the next assignment; at most 4 KiB.
    pub note: Option<String>,
}

impl CommitPosition {
    /// A position without a note.
    pub fn new(assigned: Assigned, offset: Offset) -> Self {
        Self { assigned, offset, leader_epoch: None, note: None }
    }
}
