//! Circuit breakers: what to do with records whose handler fails because something behind it is down.
//!
//! Each original topic has a circuit, which its retry topics share. While it is open its records are held: their partition is paused, no worker
//! waits, nothing is committed, and nothing moves to the ladder, until the circuit lets a call through or the hold is over.

mod breaker;
mod window;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::harbor::circuit::breaker::{Breaker, Rules, Ticket, Trip, Verdict};
use crate::harbor::duration::IntoPeriod;
use crate::harbor::error::{ConfigError, Problems};
use crate::harbor::failure::Failure;
use crate::harbor::guard;
use crate::observe::{CircuitState, CircuitStateChanged, Observers};
use crate::record::Topic;

/// When the records of a topic are held back, because handling them fails too often.
///
/// A handler that fails because a database is down fails for every record, and each would walk the ladder for nothing. With a circuit
/// breaker the first failures open the topic's circuit, and from then on its records wait where they are: their partitions are paused, other
/// topics go on, and a few probes find out when it is over. A record that is held for longer than [`hold`](Self::hold) takes the ladder, as
/// `HOLD_EXPIRED`.
///
/// Its retry topics share the circuit of the original. Records that cannot be read, and failures that are not worth a
/// retry, count neither way. [`Consumer::circuit`](super::Consumer::circuit) looks at a circuit, and opens or closes it by hand.
///
/// ```
/// use kafka_harbor::harbor::CircuitBreaker;
///
/// let half_of_twenty = CircuitBreaker::new().failure_rate(0.5).minimum_calls(20).window("1m");
/// let five_in_a_row = CircuitBreaker::new().consecutive_failures(5).half_open_after("10s").hold("2m");
/// # let _ = (half_of_twenty, five_in_a_row);
/// ```
#[derive(Clone)]
#[must_use = "it does nothing until a consumer is given it"]
pub struct CircuitBreaker {
    failure_rate: f64,
    window: Duration,
    minimum_calls: u32,
    consecutive_failures: Option<u32>,
    half_open_after: Duration,
    half_open_calls: u32,
    hold: Option<Duration>,
    counts: Option<Counts>,
    problems: Problems,
}

/// Says of a failure whether it is the circuit's.
type Counts = Arc<dyn Fn(&Failure) -> bool + Send + Sync>;

impl CircuitBreaker {
    /// One that opens when half of at least 10 calls within 30 seconds failed, probes after 30 seconds by 3 calls, and holds a record for
    /// as long as a delivery may take.
    pub fn new() -> Self {
        Self {
            failure_rate: 0.5,
            window: Duration::from_secs(30),
            minimum_calls: 10,
            consecutive_failures: None,
            half_open_after: Duration::from_secs(30),
            half_open_calls: 3,
            hold: None,
            counts: None,
            problems: Problems::default(),
        }
    }

    /// The share of calls that opens it. Default: 0.5; above 0 and at most 1.
    pub fn failure_rate(mut self, rate: f64) -> Self {
        self.failure_rate = rate;
        self
    }

    /// Of how long a while the share is taken. Default: 30 seconds. It moves in tenths.
    pub fn window(mut self, window: impl IntoPeriod) -> Self {
        self.window = self.problems.period("circuit_breaker.window", window);
        self
    }

    /// How many calls there have to be in the while. Default: 10; at least 1.
    pub fn minimum_calls(mut self, calls: u32) -> Self {
        self.minimum_calls = calls;
        self
    }

    /// Opens it after this many failures in a row instead, whenever they were; at least 1.
    pub fn consecutive_failures(mut self, failures: u32) -> Self {
        self.consecutive_failures = Some(failures);
        self
    }

    /// How long after it opened the first probe is let through. Default: 30 seconds.
    pub fn half_open_after(mut self, time: impl IntoPeriod) -> Self {
        self.half_open_after = self.problems.period("circuit_breaker.half_open_after", time);
        self
    }

    /// How many probes are let through. Default: 3; at least 1. It closes when more than half of them succeeded, and opens again when
    /// one fails.
    pub fn half_open_calls(mut self, calls: u32) -> Self {
        self.half_open_calls = calls;
        self
    }

    /// How long a record is held before it takes the ladder. Default, and at most:
    /// [`max_processing_time`](super::ConsumerBuilder::max_processing_time).
    pub fn hold(mut self, time: impl IntoPeriod) -> Self {
        self.hold = Some(self.problems.period("circuit_breaker.hold", time));
        self
    }

    /// Which failures count. Default: those that are worth a retry ([`Failure::is_retryable`]). It is not asked about payloads that
    /// cannot be read, nor about an abort. One that panics is logged, and the default stands in.
    pub fn failure_if(mut self, counts: impl Fn(&Failure) -> bool + Send + Sync + 'static) -> Self {
        self.counts = Some(Arc::new(counts));
        self
    }

    /// All is well, or every mistake.
    pub(crate) fn check(&self, max_processing_time: Duration) -> Result<(), ConfigError> {
        let mut problems = self.problems.clone();
        if !(self.failure_rate > 0.0 && self.failure_rate <= 1.0) {
            problems.add("circuit_breaker.failure_rate", "must be above 0 and at most 1");
        }
        let failures = self.consecutive_failures.unwrap_or(1);
        for (option, number) in [
            ("minimum_calls", self.minimum_calls),
            ("consecutive_failures", failures),
            ("half_open_calls", self.half_open_calls),
        ] {
            if number == 0 {
                problems.add(format!("circuit_breaker.{option}"), "must be at least 1");
            }
        }
        if self.hold.is_some_and(|hold| hold > max_processing_time) {
            problems.add("circuit_breaker.hold", "must not be longer than max_processing_time");
        }
        problems.finish()
    }

    /// The circuit of a topic.
    pub(crate) fn circuit(&self, group: Arc<str>, topic: Topic, observers: Observers) -> Circuit {
        let trip = match self.consecutive_failures {
            Some(failures) => Trip::Consecutive(failures),
            None => Trip::Rate { threshold: self.failure_rate, window: self.window, minimum_calls: self.minimum_calls },
        };
        let rules = Rules { trip, half_open_after: self.half_open_after, half_open_calls: self.half_open_calls };
        let inner = Inner {
            group,
            topic,
            hold: self.hold,
            counts: self.counts.clone(),
            breaker: Mutex::new(Breaker::new(rules, Instant::now().into_std())),
            observers,
        };
        Circuit { inner: Arc::new(inner) }
    }
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CircuitBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CircuitBreaker");
        match self.consecutive_failures {
            Some(failures) => shown.field("consecutive_failures", &failures),
            None => shown.field("failure_rate", &self.failure_rate).field("window", &self.window),
        };
        shown.field("half_open_after", &self.half_open_after).field("hold", &self.hold).finish_non_exhaustive()
    }
}

/// The circuit of one of a consumer's topics. Cheap to clone.
#[derive(Clone)]
pub struct Circuit {
    inner: Arc<Inner>,
}

struct Inner {
    group: Arc<str>,
    topic: Topic,
    hold: Option<Duration>,
    counts: Option<Counts>,
    breaker: Mutex<Breaker>,
    observers: Observers,
}

impl Circuit {
    /// The original topic that it guards.
    pub fn topic(&self) -> &Topic {
        &self.inner.topic
    }

    /// How it stands.
    pub fn state(&self) -> CircuitState {
        self.inner.breaker.lock().unwrap_or_else(PoisonError::into_inner).state()
    }

    /// Lets nothing through until [`close`](Self::close), for work on what the handlers need. Records are held no longer than otherwise.
    pub fn isolate(&self) {
        self.change(Breaker::isolate);
    }

    /// Lets everything through again, and forgets what was counted. What is held goes on within a second.
    pub fn close(&self) {
        self.change(|breaker| breaker.close(Instant::now().into_std()));
    }

    /// Leave for a delivery, if the circuit lets one through now.
    pub(crate) fn admit(&self) -> Option<Pass<'_>> {
        let ticket = self.change(|breaker| breaker.admit(Instant::now().into_std()))?;
        Some(Pass { circuit: self, ticket: Some(ticket) })
    }

    /// How long a record is held.
    pub(crate) fn hold(&self) -> Option<Duration> {
        self.inner.hold
    }

    /// Does something with the breaker, and tells what it changed.
    fn change<T>(&self, act: impl FnOnce(&mut Breaker) -> T) -> T {
        let Inner { group, topic, breaker, observers, .. } = &*self.inner;
        let (from, done, to) = {
            let mut breaker = breaker.lock().unwrap_or_else(PoisonError::into_inner);
            let from = breaker.state();
            let done = act(&mut breaker);
            (from, done, breaker.state())
        };
        if from != to {
            observers.circuit_state_changed(&CircuitStateChanged { group, topic, from, to });
        }
        done
    }

    fn verdict(&self, failure: &Failure) -> Verdict {
        if failure.is_abort() || failure.is_serialization() {
            return Verdict::Neither;
        }
        let counts = match &self.inner.counts {
            Some(counts) => {
                guard::call_or("the circuit breaker's failure_if", failure.is_retryable(), || counts(failure))
            }
            None => failure.is_retryable(),
        };
        if counts { Verdict::Failed } else { Verdict::Neither }
    }
}

impl fmt::Debug for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuit")
            .field("topic", &self.inner.topic)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Leave for one delivery. One that is dropped told nothing.
pub(crate) struct Pass<'a> {
    circuit: &'a Circuit,
    ticket: Option<Ticket>,
}

impl Pass<'_> {
    /// The delivery succeeded.
    pub(crate) fn succeeded(mut self) {
        self.settle(Verdict::Succeeded);
    }

    /// The delivery failed.
    pub(crate) fn failed(mut self, failure: &Failure) {
        self.settle(self.circuit.verdict(failure));
    }

    fn settle(&mut self, verdict: Verdict) {
        if let Some(ticket) = self.ticket.take() {
            self.circuit.change(|breaker| breaker.settle(Instant::now().into_std(), ticket, verdict));
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.settle(Verdict::Neither);
    }
}
