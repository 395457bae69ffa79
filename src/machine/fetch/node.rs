//! What is known of one broker that is read from.

use std::time::{Duration, Instant};

use super::session::Session;

/// A broker, as a fetcher knows it.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) in_flight: Option<u64>,
    /// What the request in flight may bring.
    pub(super) reserved: usize,
    pub(super) not_before: Option<Instant>,
    pub(super) failures: u32,
    /// How long a request waits that leaves out partitions with records to hand over; grows while they are not.
    pub(super) patience: Option<Duration>,
    /// The most that a request asks for, while the broker answers larger ones with nothing but a throttle.
    pub(super) cap: Option<usize>,
    pub(super) session: Session,
}
