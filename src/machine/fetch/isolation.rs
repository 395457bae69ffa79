//! What a reader sees of transactions (KIP-98).

use std::collections::HashSet;

use kafka_protocol::messages::fetch_response::AbortedTransaction;

use crate::protocol::batch::{BatchError, ControlKind, EncodedBatch, ReadOptions};

/// Which records are read of what transactions write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum IsolationLevel {
    /// Records that were written without a transaction, and those of committed ones. Reading ends where the first
    /// transaction begins that is still open (the last stable offset); it waits there until that one is decided, which
    /// takes a producer that is gone up to its transaction timeout.
    #[default]
    ReadCommitted,
    /// All records, those of open and of aborted transactions too: records that were never to be.
    ReadUncommitted,
}

impl IsolationLevel {
    /// As Fetch and ListOffsets have it.
    pub(crate) fn wire(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

/// Tells void batches, those of aborted transactions, by what an answer says of them. Asked batch by batch, in order.
///
/// The broker names each aborted transaction by its producer and its first offset, and does not say where it ends: at
/// that producer's next *abort* marker. A commit marker before it belongs to an earlier transaction and ends nothing
/// (brod#659).
#[derive(Debug, Default)]
pub(super) struct Aborted {
    /// Not begun yet, the next one last.
    ahead: Vec<AbortedTransaction>,
    /// The producers whose batches are void now.
    void: HashSet<i64>,
}

impl Aborted {
    pub(super) fn new(mut transactions: Vec<AbortedTransaction>) -> Self {
        // Brokers name them by where they end.
        transactions.sort_unstable_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        Self { ahead: transactions, void: HashSet::new() }
    }

    /// Whether the records of this batch count: data, and of no aborted transaction.
    pub(super) fn admits(&mut self, batch: &EncodedBatch, options: &ReadOptions) -> Result<bool, BatchError> {
        let header = batch.header();
        while let Some(begun) = self.ahead.pop_if(|ahead| ahead.first_offset < header.next_offset().0) {
            self.void.insert(begun.producer_id.0);
        }
        let producer = header.producer.map(|producer| producer.id);
        let Some(producer) = producer.filter(|id| self.void.contains(id)) else { return Ok(!header.is_control) };
        if header.is_control && batch.open(options)?.control_kind()? == Some(ControlKind::Abort) {
            self.void.remove(&producer);
        }
        Ok(!header.is_control && !header.is_transactional)
    }
}
