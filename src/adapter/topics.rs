//! Topics and offsets, as the port tells of them.

use std::collections::BTreeMap;

use crate::record::{Offset, Topic, TopicPartition};

/// A topic as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDescription {
    /// Its name.
    pub topic: Topic,
    /// How many partitions it has.
    pub partitions: i32,
    /// Settings in force, by the broker's names. Empty where they could not be read.
    pub configs: BTreeMap<String, String>,
}

/// First and next offset of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionWatermarks {
    /// Which partition.
    pub partition: TopicPartition,
    /// The oldest offset still kept.
    pub low: Offset,
    /// The end of what can be read: the offset that the next record will get, or where the first transaction begins that
    /// is still open.
    pub high: Offset,
}

/// What a group has committed on a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// Which partition.
    pub partition: TopicPartition,
    /// The next offset to read.
    pub offset: Offset,
    /// The note that was settled with it, if any.
    pub note: Option<String>,
}
