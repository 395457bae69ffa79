//! What a share consumer tells, and what is said back.

use std::fmt;
use std::time::Instant;

use super::ShareError;
use crate::machine::fetch::Lease;
use crate::machine::share::{AcknowledgeType, Acquired, AcquiredRange, AcquisitionLock};
use crate::protocol::batch::{BatchView, RecordCursor};
use crate::record::{Offset, RecordView, TopicPartition};

/// What happened to a member of a share group.
#[derive(Debug)]
#[non_exhaustive]
pub enum ShareEvent {
    /// Records of one partition, locked for this member.
    Batch(ShareBatch),
    /// Something went wrong. The membership goes on unless the error [is fatal](ShareError::is_fatal).
    Fault(ShareError),
}

/// Records of one partition that are locked for this member until they are acknowledged, or [`locked_until`](Self::locked_until).
///
/// Never empty. Until it is dropped, its memory counts against the consumer's byte budget.
pub struct ShareBatch {
    /// Names what was acquired, for acknowledging.
    pub lock: AcquisitionLock,
    /// Which records, in order; each of these offsets has one.
    pub acquired: Vec<AcquiredRange>,
    /// Until when the locks hold, unless they are renewed. A moment early: it counts from when the records were asked for.
    pub locked_until: Instant,
    batches: Vec<BatchView>,
    #[expect(dead_code, reason = "held for its drop")]
    lease: Option<Lease>,
}

impl ShareBatch {
    pub(super) fn new(acquired: Acquired) -> Self {
        Self {
            lock: acquired.lock,
            acquired: acquired.ranges,
            locked_until: acquired.deadline,
            batches: acquired.batches,
            lease: acquired.lease,
        }
    }

    /// Whose records these are.
    pub fn partition(&self) -> &TopicPartition {
        &self.lock.partition
    }

    /// The records, in offset order, each with its delivery count.
    pub fn records(&self) -> ShareRecords<'_> {
        ShareRecords { batch: self, at: 0, cursor: RecordCursor::default(), range: 0 }
    }

    /// The encoded batches that the records are read from, to [share](BatchView::share) their bytes. They hold others, too, which
    /// were not acquired.
    pub fn batches(&self) -> &[BatchView] {
        &self.batches
    }

    /// What is to become of the record at this offset.
    pub fn acknowledgement(&self, offset: Offset, kind: AcknowledgeType) -> Acknowledgement {
        Acknowledgement { lock: self.lock.clone(), first: offset, last: offset, kind }
    }

    /// The same for all of its records.
    pub fn acknowledge_all(&self, kind: AcknowledgeType) -> Vec<Acknowledgement> {
        let ranges = self.acquired.iter();
        ranges
            .map(|range| Acknowledgement { lock: self.lock.clone(), first: range.first, last: range.last, kind })
            .collect()
    }
}

impl fmt::Debug for ShareBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareBatch")
            .field("lock", &self.lock)
            .field("acquired", &self.acquired)
            .field("locked_until", &self.locked_until)
            .finish_non_exhaustive()
    }
}

/// A record that is locked for this member.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ShareRecord<'a> {
    /// The record.
    pub record: RecordView<'a>,
    /// How often it was delivered, this time included: 1 at first.
    pub delivery_count: u16,
}

/// Iterator of [`ShareBatch::records`].
#[derive(Debug, Clone)]
pub struct ShareRecords<'a> {
    batch: &'a ShareBatch,
    at: usize,
    cursor: RecordCursor,
    range: usize,
}

impl<'a> Iterator for ShareRecords<'a> {
    type Item = ShareRecord<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let view = self.batch.batches.get(self.at)?;
            // What cannot be read was not taken for acquired, and is behind all that was.
            let Some(Ok(record)) = view.read_at(&mut self.cursor) else {
                (self.at, self.cursor) = (self.at + 1, RecordCursor::default());
                continue;
            };
            while self.batch.acquired.get(self.range)?.last < record.offset {
                self.range += 1;
            }
            let range = &self.batch.acquired[self.range];
            if range.first <= record.offset {
                return Some(ShareRecord { record, delivery_count: range.delivery_count });
            }
        }
    }
}

impl std::iter::FusedIterator for ShareRecords<'_> {}

/// What is to become of records next to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    /// By which they were acquired.
    pub lock: AcquisitionLock,
    /// The first.
    pub first: Offset,
    /// The last, included.
    pub last: Offset,
    /// What becomes of them.
    pub kind: AcknowledgeType,
}

/// Everything was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acknowledged {
    /// Until when the locks hold that were renewed by it, the earliest of them.
    pub locked_until: Option<Instant>,
}

impl Acknowledged {
    pub(super) fn new(locked_until: Option<Instant>) -> Self {
        Self { locked_until }
    }
}
