//! Calls and failures of the last while.

use std::time::{Duration, Instant};

/// Ten buckets; the oldest goes when a new one begins. So what counts is between nine and ten tenths of the window.
#[derive(Debug)]
pub(crate) struct Window {
    began: Instant,
    width: Duration,
    /// The number of the newest bucket since it began.
    newest: u64,
    buckets: [Bucket; BUCKETS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    calls: u64,
    failures: u64,
}

impl Window {
    /// An empty one of this length.
    pub(crate) fn new(length: Duration, now: Instant) -> Self {
        let width = (length / BUCKETS as u32).max(Duration::from_millis(1));
        Self { began: now, width, newest: 0, buckets: [Bucket::default(); BUCKETS] }
    }

    /// A call ended.
    pub(crate) fn count(&mut self, now: Instant, failed: bool) {
        self.turn_to(now);
        let bucket = &mut self.buckets[place(self.newest)];
        bucket.calls += 1;
        bucket.failures += u64::from(failed);
    }

    /// Calls, and how many of them failed.
    pub(crate) fn totals(&mut self, now: Instant) -> (u64, u64) {
        self.turn_to(now);
        let sum = |of: fn(&Bucket) -> u64| self.buckets.iter().map(of).sum();
        (sum(|bucket| bucket.calls), sum(|bucket| bucket.failures))
    }

    fn turn_to(&mut self, now: Instant) {
        let number = now.saturating_duration_since(self.began).as_nanos() / self.width.as_nanos();
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        let passed = number.saturating_sub(self.newest).min(BUCKETS as u64);
        for step in 0..passed {
            self.buckets[place(number - step)] = Bucket::default();
        }
        self.newest = self.newest.max(number);
    }
}

fn place(number: u64) -> usize {
    // Less than ten.
    (number % BUCKETS as u64) as usize
}

const BUCKETS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_goes_when_its_tenth_is_over() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut window = Window::new(10 * second, now);
        window.count(now, true);
        window.count(now + second, false);
        assert_eq!(window.totals(now + 9 * second), (2, 1));
        assert_eq!(window.totals(now + 10 * second), (1, 0));
        assert_eq!(window.totals(now + 11 * second), (0, 0));
        window.count(now + 3 * second, true);
        assert_eq!(window.totals(now + 11 * second), (1, 1), "a clock that went back writes to the newest");
        assert_eq!(window.totals(now + 1_000_000 * second), (0, 0));
        let none = Window::new(Duration::ZERO, now).totals(now);
        assert_eq!(none, (0, 0), "one of no length has millisecond buckets");
    }
}
