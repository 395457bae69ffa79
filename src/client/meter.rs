//! Counts what is asked of brokers and how long they take, while somebody wants to know.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::api::ApiKey;

/// What one client has counted. A request costs two looks while nobody wants to know.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    on: AtomicBool,
    connections: AtomicU64,
    counts: Mutex<Counts>,
}

/// What was counted: sums since the beginning, times since the last [`Meter::take`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) connections: u64,
    pub(crate) answers: BTreeMap<ApiKey, Answers>,
}

/// The answers to one API.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answers {
    pub(crate) total: u64,
    pub(crate) times: Times,
    /// Silences that brokers asked for.
    pub(crate) throttled: Times,
}

/// Times that things took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    count: u32,
    sum: Duration,
    max: Duration,
}

impl Meter {
    /// Counts from now on.
    pub(crate) fn turn_on(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    /// Whether somebody wants to know how long requests take: it counts, or they are traced.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_on() || tracing::enabled!(tracing::Level::TRACE)
    }

    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// A connection was made. These are counted always: most are made before somebody wants to know.
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// A request was answered after this time, its wait to be sent included, by so many bytes.
    pub(crate) fn answered(&self, api: ApiKey, after: Duration, bytes: usize) {
        tracing::trace!(%api, after_us = after.as_micros() as u64, bytes, "answered");
        if !self.is_on() {
            return;
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = counts.answers.entry(api).or_default();
        answers.total += 1;
        answers.times.add(after);
    }

    /// A broker asked for this silence.
    pub(crate) fn throttled(&self, api: ApiKey, silence: Duration) {
        if self.is_on() {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.answers.entry(api).or_default().throttled.add(silence);
        }
    }

    /// What was counted; times begin anew.
    pub(crate) fn take(&self) -> Counts {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = Counts { connections: self.connections.load(Ordering::Relaxed), ..counts.clone() };
        counts.answers.values_mut().for_each(|it| (it.times, it.throttled) = (Times::default(), Times::default()));
        taken
    }
}

impl Counts {
    /// The answers to these APIs taken together; `None` where there was none.
    pub(crate) fn of(&self, apis: &[ApiKey]) -> Option<Answers> {
        let mut all = apis.iter().filter_map(|api| self.answers.get(api));
        let first = *all.next()?;
        Some(all.fold(first, |sum, next| Answers {
            total: sum.total + next.total,
            times: sum.times.and(&next.times),
            throttled: sum.throttled.and(&next.throttled),
        }))
    }
}

impl Times {
    fn and(&self, other: &Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            sum: self.sum.saturating_add(other.sum),
            max: self.max.max(other.max),
        }
    }

    /// Their mean in milliseconds, where there are any.
    pub(crate) fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum.as_secs_f64() * 1_000.0 / f64::from(self.count))
    }

    /// The longest in milliseconds, where there are any.
    pub(crate) fn max_ms(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max.as_secs_f64() * 1_000.0)
    }

    fn add(&mut self, time: Duration) {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(time);
        self.max = self.max.max(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_go_on_and_times_begin_anew() {
        let meter = Meter::default();
        meter.connected();
        meter.turn_on();
        meter.answered(ApiKey(1), Duration::from_millis(10), 0);
        meter.answered(ApiKey(1), Duration::from_millis(30), 0);
        let first = meter.take();
        let fetches = first.answers[&ApiKey(1)];
        assert_eq!((first.connections, fetches.total), (1, 2));
        assert_eq!((fetches.times.mean_ms(), fetches.times.max_ms()), (Some(20.0), Some(30.0)));
        assert_eq!(fetches.throttled.max_ms(), None);
        meter.throttled(ApiKey(1), Duration::from_secs(1));
        let second = meter.take();
        assert_eq!((second.answers[&ApiKey(1)].total, second.answers[&ApiKey(1)].times.mean_ms()), (2, None));
        let both = second.of(&[ApiKey(1), ApiKey(2)]).map(|both| both.total);
        assert_eq!((both, second.of(&[ApiKey(2)]).is_none()), (Some(2), true));
        assert_eq!(second.answers[&ApiKey(1)].throttled.max_ms(), Some(1_000.0));
    }

    #[test]
    fn nothing_is_counted_that_nobody_wants_to_know() {
        let meter = Meter::default();
        meter.answered(ApiKey(1), Duration::from_millis(10), 0);
        meter.throttled(ApiKey(1), Duration::from_secs(1));
        assert!(meter.take().answers.is_empty());
    }
}
