//! A topic that is not there yet.

use std::collections::BTreeMap;

use super::Topic;

/// A topic to create.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewTopic {
    /// Its name.
    pub topic: Topic,
    /// Partitions; the broker's `num.partitions` when absent (KIP-464).
    pub partitions: Option<i32>,
    /// Replicas of each; the broker's `default.replication.factor` when absent (KIP-464).
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

    /// The same topic with this many replicas of each partition.
    #[must_use]
    pub fn with_replication_factor(mut self, replicas: i16) -> Self {
        self.replication_factor = Some(replicas);
        self
    }

    /// The same topic with this setting.
    #[must_use]
    pub fn with_config(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.insert(name.into(), value.into());
        self
    }
}
