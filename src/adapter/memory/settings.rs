//! How an in-process broker behaves.

use std::sync::Arc;

use crate::clock::{Clock, TokioClock};

/// Settings of a [`MemoryBroker`](super::MemoryBroker).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemorySettings {
    /// Whether publishing to a topic that does not exist creates it. Default true, as Kafka's
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// Partitions of a topic created without a number of them, at least 1. Default 1 (`num.partitions`).
    pub default_partitions: i32,
    /// The most bytes of records that one membership hands over before some of them are dropped, at least 1. A single
    /// batch may be larger. Default 50 MiB.
    pub buffer_bytes: usize,
    /// The most records in one [`PartitionBatch`](crate::adapter::PartitionBatch), at least 1; batches are not cut, so
    /// one as it was published may hold more. Default 1,000.
    pub batch_records: usize,
    /// The most bytes in one [`PartitionBatch`](crate::adapter::PartitionBatch), in the same way. Default 1 MiB.
    pub batch_bytes: usize,
    /// How many of the newest calls [`calls`](super::MemoryBroker::calls) keeps. Default 10,000.
    pub calls_kept: usize,
    /// Where records get their time from. Default [`TokioClock`], which a paused runtime moves.
    pub clock: Arc<dyn Clock>,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            auto_create_topics: true,
            default_partitions: 1,
            buffer_bytes: 50 << 20,
            batch_records: 1_000,
            batch_bytes: 1 << 20,
            calls_kept: 10_000,
            clock: Arc::new(TokioClock),
        }
    }
}

impl MemorySettings {
    /// The same settings with this [`auto_create_topics`](Self::auto_create_topics).
    #[must_use]
    pub fn with_auto_create_topics(mut self, auto_create: bool) -> Self {
        self.auto_create_topics = auto_create;
        self
    }

    /// The same settings with this many [`default_partitions`](Self::default_partitions).
    #[must_use]
    pub fn with_default_partitions(mut self, partitions: i32) -> Self {
        self.default_partitions = partitions;
        self
    }

    /// The same settings with this many [`buffer_bytes`](Self::buffer_bytes).
    #[must_use]
    pub fn with_buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// The same settings with these bounds of one batch.
    #[must_use]
    pub fn with_batch_limits(mut self, records: usize, bytes: usize) -> Self {
        (self.batch_records, self.batch_bytes) = (records, bytes);
        self
    }

    /// The same settings with this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}
