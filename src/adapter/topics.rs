//! Topics and offsets, as the port tells of them.

use std::collections::BTreeMap;

use crate::record::{Offset, Topic, TopicPartition};

/// A topic to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name.
    pub topic: Topic,
    /// Partitions; the broker's default when absent.
    pub partitions: Option<i32>,
    /// Replicas of each; the broker's default when absent.
    pub replication_factor: Option<i16>,
    /// Settings by the broker's names, such as `retention.ms`.
    pub configs: BTreeMap<String, String>,
}

impl NewTopic {
    /// A topic with the broker's defaults.
    pub fn new(topic: impl Into<Topic>) -> Self {
        Self { topic: topic.into(), partitions: None, replication_factor: None, configs: BTreeMap::new() }
    }

    /// The same topic with this many partitions.
    #[must_use]
    pub fn with_partitions(mut self, partitions: i32) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// The same topic with this setting.
    #[must_use]
    pub fn with_config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.insert(name.into(), value.into());
        self
    }
}

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
    /// The offset that the next record will get.
    pub high: Offset,
}

/// What a group has committed on a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// Which partition.
    pub partition: TopicPartition,
    /// The next offset to read.
    pub offset: Offset,
}
