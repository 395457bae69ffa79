//! Which part of a dead-letter topic a run is about.

use std::collections::{BTreeSet, HashMap};
use std::ops::{Bound, RangeBounds};

use crate::adapter::PartitionWatermarks;
use crate::harbor::error::{ConfigError, Problems};
use crate::record::{Offset, RecordView, Timestamp, Topic, TopicPartition};

/// Partitions, offsets and times. What it leaves out is left as it is.
#[derive(Debug, Clone, Default)]
pub(super) struct Selection {
    partitions: BTreeSet<i32>,
    offsets: Span,
    times: Span,
}

impl Selection {
    pub(super) fn add_partition(&mut self, partition: i32) {
        self.partitions.insert(partition);
    }

    pub(super) fn set_offsets(&mut self, range: impl RangeBounds<Offset>) {
        self.offsets = Span::of(range, |offset| offset.0);
    }

    pub(super) fn set_times(&mut self, range: impl RangeBounds<Timestamp>) {
        self.times = Span::of(range, |time| time.0);
    }

    pub(super) fn check(&self, problems: &mut Problems) {
        for (option, span) in [("offsets", self.offsets), ("times", self.times)] {
            if span.is_empty() {
                problems.add(option, "is an empty range");
            }
        }
    }

    /// Whether ends of partitions have to be known for it.
    pub(super) fn needs_offsets(&self) -> bool {
        !self.partitions.is_empty() || self.offsets != Span::default()
    }

    /// Refuses partitions that the topic does not have.
    pub(super) fn check_partitions(&self, topic: &Topic, known: &Ends) -> Result<(), ConfigError> {
        let missing = self.partitions.iter().find(|at| !known.contains_key(&TopicPartition::new(topic, **at)));
        missing.map_or(Ok(()), |partition| {
            let why = format_args!("{topic} has no partition {partition}, or it has no leader");
            Err(ConfigError::one("partition", why))
        })
    }

    pub(super) fn has_partition(&self, partition: i32) -> bool {
        self.partitions.is_empty() || self.partitions.contains(&partition)
    }

    /// The first offset that is meant.
    pub(super) fn first(&self) -> Offset {
        Offset(self.offsets.from.max(0))
    }

    /// The offset where it ends, if it does.
    pub(super) fn end(&self) -> Option<Offset> {
        (self.offsets.to != i64::MAX).then_some(Offset(self.offsets.to))
    }

    /// Whether the letter is meant, be it before the end of the offsets or not.
    pub(super) fn has(&self, record: &RecordView<'_>) -> bool {
        self.offsets.has(record.offset.0) && self.times.has(record.timestamp.0)
    }
}

/// Watermarks by partition.
pub(super) type Ends = HashMap<TopicPartition, PartitionWatermarks>;

/// A half-open range. The last number of all is never in one, as no record has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    from: i64,
    to: i64,
}

impl Span {
    pub(super) fn of<T>(range: impl RangeBounds<T>, number: impl Fn(&T) -> i64) -> Self {
        let from = match range.start_bound() {
            Bound::Included(from) => number(from),
            Bound::Excluded(from) => number(from).saturating_add(1),
            Bound::Unbounded => i64::MIN,
        };
        let to = match range.end_bound() {
            Bound::Included(to) => number(to).saturating_add(1),
            Bound::Excluded(to) => number(to),
            Bound::Unbounded => i64::MAX,
        };
        Self { from, to }
    }

    pub(super) fn is_empty(self) -> bool {
        self.from >= self.to
    }

    pub(super) fn has(self, number: i64) -> bool {
        (self.from..self.to).contains(&number)
    }
}

impl Default for Span {
    fn default() -> Self {
        Self { from: i64::MIN, to: i64::MAX }
    }
}
