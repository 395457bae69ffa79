//! Tries, and the waits between them. Used by every layer that repeats something.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before the next try.
pub trait Backoff: fmt::Debug + Send + Sync + 'static {
    /// The wait after the `failures`-th failure in a row, from 1. `random` is uniform in `[0, 1)`.
    fn delay(&self, failures: u32, random: f64) -> Duration;
}

/// Doubles from `first` up to `max`, then takes a uniformly random part of it: exponential backoff, full jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExponentialFullJitter {
    /// The ceiling of the first wait.
    pub first: Duration,
    /// The ceiling of any wait.
    pub max: Duration,
}

impl Default for ExponentialFullJitter {
    /// 100 ms, doubling, at most 5 s.
    fn default() -> Self {
        Self { first: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

impl Backoff for ExponentialFullJitter {
    fn delay(&self, failures: u32, random: f64) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1).min(31));
        self.first.saturating_mul(factor).min(self.max).mul_f64(random.clamp(0.0, 1.0))
    }
}

/// How often to try, and how long to wait in between.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    /// Tries in all, the first included; at least 1.
    pub attempts: u32,
    /// The waits.
    pub backoff: Arc<dyn Backoff>,
}

impl Default for RetryPolicy {
    /// Five tries with [`ExponentialFullJitter`]'s defaults.
    fn default() -> Self {
        Self { attempts: 5, backoff: Arc::new(ExponentialFullJitter::default()) }
    }
}

#[cfg(feature = "harbor")]
impl RetryPolicy {
    /// The wait after the `failures`-th failure in a row. A backoff that panics gives way to the default one.
    pub(crate) fn wait(&self, failures: u32, random: f64) -> Duration {
        let delay = || self.backoff.delay(failures, random);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(delay)).unwrap_or_else(|_| {
            tracing::error!("a backoff panicked; the default one is used");
            ExponentialFullJitter::default().delay(failures, random)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_ceiling_and_never_exceed_it() {
        let backoff = ExponentialFullJitter::default();
        let ceilings: Vec<_> = (1..=9).map(|n| backoff.delay(n, 1.0).as_millis()).collect();
        assert_eq!(ceilings, [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
        assert_eq!(backoff.delay(3, 0.0), Duration::ZERO);
        assert_eq!(backoff.delay(u32::MAX, 0.5).as_millis(), 2500);
    }
}
