//! Tries in place, before the ladder.

use std::time::Duration;

use crate::harbor::duration::IntoPeriod;
use crate::harbor::error::{ConfigError, Problems};

/// How often, and for how long, a record that failed is tried again where it is, before it takes the ladder.
///
/// For failures that are over in a moment: a connection that was reset, a row that was locked. The partition waits
/// meanwhile, with its place at the level, so both numbers are small. What outlasts them goes on as if it had failed once: to its retry level,
/// or to the dead letters. All tries are one delivery, and its [`attempt`](super::Context::attempt) is the same in each.
///
/// Not tried in place: what cannot be read, what [`retry_if`](super::ConsumerBuilder::retry_if) or the handler's
/// [`Outcome`](super::Outcome) does not want retried, and what asked for a wait of its own
/// ([`Outcome::retry_after`](super::Outcome::retry_after)).
///
/// ```
/// use kafka_harbor::harbor::BlockingRetries;
///
/// let three = BlockingRetries::new(3).backoff("50ms", "1s").within("5s");
/// # let _ = three;
/// ```
#[derive(Debug, Clone)]
#[must_use = "it does nothing until a consumer is given it"]
pub struct BlockingRetries {
    tries: u32,
    first: Duration,
    longest: Duration,
    within: Duration,
    problems: Problems,
}

impl BlockingRetries {
    /// This many further tries, from 1, within 10 seconds: after 100 ms, then after twice as long each time, at most 1 second.
    pub fn new(tries: u32) -> Self {
        let mut problems = Problems::default();
        if tries == 0 {
            problems.add("blocking_retries.tries", "must be at least 1");
        }
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        Self { tries, first, longest, within: Duration::from_secs(10), problems }
    }

    /// How long to wait before the first of them, and at most before each: every wait is twice the one before. Default: 100 ms, 1 second.
    pub fn backoff(mut self, first: impl IntoPeriod, longest: impl IntoPeriod) -> Self {
        self.first = self.problems.period("blocking_retries.backoff", first);
        self.longest = self.problems.period("blocking_retries.backoff", longest);
        self
    }

    /// How long after the first failure the last try may begin. Default: 10 seconds. One that begins in time may take its
    /// [`max_processing_time`](super::ConsumerBuilder::max_processing_time).
    pub fn within(mut self, time: impl IntoPeriod) -> Self {
        self.within = self.problems.period("blocking_retries.within", time);
        self
    }

    /// The wait before the next try, when this many have failed, and `spent` is gone since the first failure.
    pub(crate) fn wait(&self, failed: u32, spent: Duration) -> Option<Duration> {
        if failed == 0 || failed > self.tries {
            return None;
        }
        let wait = self.first.saturating_mul(1 << (failed - 1).min(30)).min(self.longest);
        (spent.saturating_add(wait) <= self.within).then_some(wait)
    }

    /// All is well, or every mistake.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.problems.clone().finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_twice_the_one_before_up_to_the_longest_and_within_the_time() {
        let retries = BlockingRetries::new(40).backoff("100ms", "1s").within("10s");
        let waits: Vec<_> = (1..=6).map(|failed| retries.wait(failed, Duration::ZERO).unwrap().as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(retries.wait(40, Duration::from_secs(9)), Some(Duration::from_secs(1)));
        assert_eq!(retries.wait(40, Duration::from_millis(9_001)), None, "too late");
        assert_eq!(retries.wait(41, Duration::ZERO), None, "often enough");
    }
}
