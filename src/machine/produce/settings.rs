//! How a producer batches, numbers and tries again.

use std::time::Duration;

use crate::protocol::compression::Compression;

/// The settings of [`Produce`](super::Produce). The client's builder documents and checks each.
#[derive(Debug, Clone)]
pub(crate) struct ProduceSettings {
    /// Whose acknowledgement counts; decides whether batches are numbered.
    pub(crate) acks: Acks,
    /// How long an open batch waits for company.
    pub(crate) linger: Duration,
    /// Encoded size, before compression, at which a batch is full.
    pub(crate) batch_bytes: usize,
    /// Size at which a request takes no further batch.
    pub(crate) max_request_bytes: usize,
    /// Requests in flight to one broker.
    pub(crate) requests_in_flight: usize,
    /// From a batch's first record to its verdict.
    pub(crate) delivery_timeout: Duration,
    /// Ceiling of the first wait after a failure.
    pub(crate) retry_backoff: Duration,
    /// Ceiling of any wait after a failure.
    pub(crate) retry_backoff_max: Duration,
    /// How batches are compressed.
    pub(crate) compression: Compression,
    /// Whether every record belongs to a transaction: then numbers come from outside, and nothing leaves without one.
    pub(crate) transactional: bool,
}

impl Default for ProduceSettings {
    fn default() -> Self {
        Self {
            acks: Acks::All,
            linger: Duration::from_millis(5),
            batch_bytes: 128 * 1024,
            max_request_bytes: 1024 * 1024,
            requests_in_flight: 5,
            delivery_timeout: Duration::from_secs(120),
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(1),
            compression: Compression::NONE,
            transactional: false,
        }
    }
}

impl ProduceSettings {
    /// Batches of one partition that may be in flight.
    ///
    /// Five is how many the broker remembers to tell duplicates by. Without numbers it cannot tell them at all, and
    /// with more than one in flight a retry would change the order.
    pub(super) fn window(&self) -> usize {
        match self.acks {
            Acks::All => 5,
            Acks::LeaderOnly => 1,
        }
    }

    /// The wait after the `failures`-th failure in a row, from 1: doubles up to the ceiling, a fifth more or less
    /// at random (KIP-580). `random` is uniform in `[0, 1)`.
    pub(super) fn backoff(&self, failures: u32, random: f64) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
        let wait = self.retry_backoff.saturating_mul(factor).min(self.retry_backoff_max);
        wait.mul_f64(0.8 + 0.4 * random.clamp(0.0, 1.0))
    }
}

/// Whose acknowledgement a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acks {
    /// All in-sync replicas; batches are numbered so that a resend is no duplicate.
    All,
    /// The leader alone; batches are not numbered. Can lose what was acknowledged, and write twice.
    LeaderOnly,
}

impl Acks {
    /// As a Produce request has it.
    pub(crate) fn wire(self) -> i16 {
        match self {
            Self::All => -1,
            Self::LeaderOnly => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_ceiling_and_differ_by_a_fifth_at_most() {
        let settings = ProduceSettings::default();
        let middle: Vec<_> = (1..=6).map(|n| settings.backoff(n, 0.5).as_millis()).collect();
        assert_eq!(middle, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(settings.backoff(1, 0.0).as_millis(), 80);
        assert_eq!(settings.backoff(u32::MAX, 1.0).as_millis(), 1200);
    }
}
