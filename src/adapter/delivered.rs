//! Reading record by record: what a broker that keeps the state of each delivers, and what is said back.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::adapter::{AdapterError, RecordSet, RecordSettlement};
use crate::protocol::batch::BatchError;
use crate::record::{Offset, RecordView, TopicPartition};

/// Records of one partition, each of them this membership's until it is settled by its receipt, or its time is over.
///
/// Others may be delivered records of the same partition at the same time, so there is no order to rely on, and no position.
pub struct DeliveredBatch {
    /// Whose records these are.
    pub partition: TopicPartition,
    /// The records, and others between them, which are not this membership's.
    pub records: RecordSet,
    /// Which of them were delivered, in order.
    pub delivered: Vec<DeliveredRange>,
    /// Until when they are this membership's unless they are renewed, where the broker tells.
    pub until: Option<Instant>,
    /// Makes the receipts.
    pub receipts: Arc<dyn Receipts>,
    /// Keeps the records' share of the adapter's byte budget; dropped with the batch.
    pub hold: Option<Box<dyn Send + Sync>>,
}

impl DeliveredBatch {
    /// Every record that was delivered, in offset order. Ends behind the first error.
    pub fn iter(&self) -> impl Iterator<Item = Result<DeliveredRecord<'_>, BatchError>> + '_ {
        self.records.iter().filter_map(|record| {
            let record = match record {
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            let at = self.delivered.partition_point(|range| range.last < record.offset);
            let range = self.delivered.get(at).filter(|range| range.first <= record.offset)?;
            Some(Ok(DeliveredRecord { record, delivery_count: range.delivery_count }))
        })
    }

    /// What the record at this offset is settled by.
    pub fn receipt(&self, offset: Offset) -> Bytes {
        self.receipts.receipt(offset)
    }
}

impl fmt::Debug for DeliveredBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveredBatch")
            .field("partition", &self.partition)
            .field("delivered", &self.delivered)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

/// Records next to each other that were delivered equally often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveredRange {
    /// The first.
    pub first: Offset,
    /// The last, included.
    pub last: Offset,
    /// How often, this time included: 1 at first, 0 where the broker does not count.
    pub delivery_count: u32,
}

/// A record that is to be settled.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DeliveredRecord<'a> {
    /// The record.
    pub record: RecordView<'a>,
    /// How often it was delivered, this time included: 1 at first, 0 where the broker does not count.
    pub delivery_count: u32,
}

/// Makes the receipts of a batch. One is made for a record when it is settled, not before.
pub trait Receipts: Send + Sync {
    /// What the record at this offset is settled by. May be kept, sent to another task, and used once.
    fn receipt(&self, offset: Offset) -> Bytes;
}

/// Some records were not settled. Those that it does not name were.
#[derive(Debug, thiserror::Error)]
#[error("{} record(s) not settled: {}", self.failures.len(), self.first())]
#[non_exhaustive]
pub struct SettleRecordsError {
    /// One a record. Never empty.
    pub failures: Vec<RecordSettleFailure>,
}

impl SettleRecordsError {
    /// An error from at least one failure.
    pub fn new(failures: Vec<RecordSettleFailure>) -> Self {
        Self { failures }
    }

    /// The same of every record.
    pub fn of_all(receipts: Vec<(Bytes, RecordSettlement)>, error: AdapterError) -> Self {
        let error = Arc::new(error);
        let failed =
            |(receipt, settlement)| RecordSettleFailure { receipt, settlement, error: error.clone(), lost: false };
        Self { failures: receipts.into_iter().map(failed).collect() }
    }

    fn first(&self) -> String {
        self.failures.first().map_or_else(String::new, |failure| failure.error.to_string())
    }
}

/// One record that was not settled.
#[derive(Debug, Clone)]
pub struct RecordSettleFailure {
    /// The record's receipt.
    pub receipt: Bytes,
    /// What was to become of it.
    pub settlement: RecordSettlement,
    /// Why.
    pub error: Arc<AdapterError>,
    /// Whether the record is not this membership's any more, so that trying again is no use: unless it was settled before, it is
    /// delivered again.
    pub lost: bool,
}
