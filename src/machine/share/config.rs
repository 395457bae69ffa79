//! How to fetch in share sessions.

use std::time::Duration;

use crate::protocol::batch::ReadOptions;
use crate::retry::ExponentialFullJitter;

/// How a broker counts what it acquires (KIP-1206).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AcquireMode {
    /// Whole batches as they were written: the limit of records may be passed by the last.
    #[default]
    Batches,
    /// Never more than the limit of records. Brokers before Kafka 4.2 pass over it.
    RecordLimit,
}

impl AcquireMode {
    pub(super) fn wire(self) -> i8 {
        match self {
            Self::Batches => 0,
            Self::RecordLimit => 1,
        }
    }
}

/// How to fetch.
#[derive(Debug, Clone)]
pub(crate) struct SessionConfig {
    pub(crate) max_wait: Duration,
    pub(crate) min_bytes: i32,
    pub(crate) max_bytes: usize,
    pub(crate) max_records: i32,
    pub(crate) mode: AcquireMode,
    /// The most that may be held of all partitions.
    pub(crate) budget_bytes: usize,
    pub(crate) read: ReadOptions,
    pub(crate) backoff: ExponentialFullJitter,
}

impl Default for SessionConfig {
    /// Java's defaults, and 64 MiB in memory.
    fn default() -> Self {
        Self {
            max_wait: Duration::from_millis(500),
            min_bytes: 1,
            max_bytes: 50 << 20,
            max_records: 500,
            mode: AcquireMode::default(),
            budget_bytes: 64 << 20,
            read: ReadOptions::default(),
            backoff: ExponentialFullJitter { first: Duration::from_millis(100), max: Duration::from_secs(5) },
        }
    }
}
