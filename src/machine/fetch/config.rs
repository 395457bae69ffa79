//! How to fetch.

use std::time::Duration;

use kafka_protocol::protocol::StrBytes;

use super::IsolationLevel;
use crate::protocol::batch::ReadOptions;
use crate::retry::ExponentialFullJitter;

/// How to fetch.
#[derive(Debug, Clone)]
pub(crate) struct FetchConfig {
    /// How long a broker may wait for `min_bytes`.
    pub(crate) max_wait: Duration,
    pub(crate) min_bytes: i32,
    /// The most that one answer may hold.
    pub(crate) max_bytes: usize,
    /// The most that one answer may hold of one partition.
    pub(crate) max_partition_bytes: usize,
    /// The most that may be held of all partitions.
    pub(crate) budget_bytes: usize,
    pub(crate) isolation: IsolationLevel,
    pub(crate) read: ReadOptions,
    pub(crate) backoff: ExponentialFullJitter,
    /// After refusals that another leader would not give. Metadata is asked meanwhile, and a new leader ends the wait; but an election
    /// may end with the old one.
    pub(crate) leader_backoff: ExponentialFullJitter,
    /// Where this reader runs (KIP-392).
    pub(crate) rack: Option<StrBytes>,
    /// How long the leader's word for another replica counts.
    pub(crate) replica_max_age: Duration,
}

impl Default for FetchConfig {
    /// Java's defaults, but committed records alone, and 64 MiB in memory.
    fn default() -> Self {
        Self {
            max_wait: Duration::from_millis(500),
            min_bytes: 1,
            max_bytes: 50 << 20,
            max_partition_bytes: 1 << 20,
            budget_bytes: 64 << 20,
            isolation: IsolationLevel::default(),
            read: ReadOptions::default(),
            backoff: ExponentialFullJitter { first: Duration::from_millis(100), max: Duration::from_secs(5) },
            // `retry.backoff.ms` and `retry.backoff.max.ms`.
            leader_backoff: ExponentialFullJitter { first: Duration::from_millis(100), max: Duration::from_secs(1) },
            rack: None,
            replica_max_age: Duration::from_secs(300),
        }
    }
}
