//! When calls are let through, and when not: a machine without a clock.

use std::time::{Duration, Instant};

use crate::harbor::circuit::window::Window;
use crate::observe::CircuitState;

/// A circuit of one topic.
///
/// ```text
///            too many failures              half_open_after            probes succeed
///   closed ──────────────────────► open ──────────────────► half-open ────────────────► closed
///                                   ▲                           │ one fails
///                                   └───────────────────────────┘
///   any ──isolate──► isolated ──close──► closed
/// ```
///
/// Every call that is let through has a [`Ticket`], and what it tells after the circuit has changed counts for nothing.
#[derive(Debug)]
pub(crate) struct Breaker {
    rules: Rules,
    state: State,
    /// How often the circuit changed.
    epoch: u64,
}

/// When it trips, and how it recovers.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) trip: Trip,
    pub(crate) half_open_after: Duration,
    pub(crate) half_open_calls: u32,
}

/// What opens a circuit.
#[derive(Debug, Clone)]
pub(crate) enum Trip {
    /// This share of the calls of a while, if they are enough.
    Rate { threshold: f64, window: Duration, minimum_calls: u32 },
    /// So many in a row.
    Consecutive(u32),
}

#[derive(Debug)]
enum State {
    Closed(Counts),
    Open { until: Instant },
    HalfOpen { admitted: u32, succeeded: u32 },
    Isolated,
}

#[derive(Debug)]
enum Counts {
    Rate(Window),
    Row(u32),
}

/// Leave for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Succeeded,
    Failed,
    /// It tells nothing of what the circuit guards.
    Neither,
}

impl Breaker {
    /// A closed circuit.
    pub(crate) fn new(rules: Rules, now: Instant) -> Self {
        let state = State::Closed(Counts::of(&rules.trip, now));
        Self { rules, state, epoch: 0 }
    }

    pub(crate) fn state(&self) -> CircuitState {
        match self.state {
            State::Closed(_) => CircuitState::Closed,
            State::Open { .. } => CircuitState::Open,
            State::HalfOpen { .. } => CircuitState::HalfOpen,
            State::Isolated => CircuitState::Isolated,
        }
    }

    /// Leave for a call, if one may be made now. What becomes of it is to be told to [`Self::settle`].
    pub(crate) fn admit(&mut self, now: Instant) -> Option<Ticket> {
        if let State::Open { until } = self.state
            && now >= until
        {
            self.change(State::HalfOpen { admitted: 0, succeeded: 0 });
        }
        match &mut self.state {
            State::Closed(_) => {}
            State::HalfOpen { admitted, .. } if *admitted < self.rules.half_open_calls => *admitted += 1,
            State::Open { .. } | State::HalfOpen { .. } | State::Isolated => return None,
        }
        Some(Ticket(self.epoch))
    }

    /// A call ended.
    pub(crate) fn settle(&mut self, now: Instant, ticket: Ticket, verdict: Verdict) {
        if ticket.0 != self.epoch {
            return;
        }
        match (&mut self.state, verdict) {
            (State::Closed(counts), Verdict::Succeeded) => counts.succeed(now),
            (State::Closed(counts), Verdict::Failed) => {
                if counts.fail(now, &self.rules.trip) {
                    self.open(now);
                }
            }
            (State::HalfOpen { admitted, .. }, Verdict::Neither) => *admitted -= 1,
            (State::HalfOpen { .. }, Verdict::Failed) => self.open(now),
            (State::HalfOpen { succeeded, .. }, Verdict::Succeeded) => {
                *succeeded += 1;
                // More than half of the probes.
                if *succeeded > self.rules.half_open_calls / 2 {
                    self.close(now);
                }
            }
            (State::Closed(_), Verdict::Neither) | (State::Open { .. } | State::Isolated, _) => {}
        }
    }

    /// Nothing is let through until [`Self::close`].
    pub(crate) fn isolate(&mut self) {
        self.change(State::Isolated);
    }

    /// Everything is let through again, and what was counted is forgotten.
    pub(crate) fn close(&mut self, now: Instant) {
        self.change(State::Closed(Counts::of(&self.rules.trip, now)));
    }

    fn open(&mut self, now: Instant) {
        self.change(State::Open { until: now + self.rules.half_open_after });
    }

    fn change(&mut self, state: State) {
        self.state = state;
        self.epoch += 1;
    }
}

impl Counts {
    fn of(trip: &Trip, now: Instant) -> Self {
        match trip {
            Trip::Rate { window, .. } => Self::Rate(Window::new(*window, now)),
            Trip::Consecutive(_) => Self::Row(0),
        }
    }

    fn succeed(&mut self, now: Instant) {
        match self {
            Self::Rate(window) => window.count(now, false),
            Self::Row(failures) => *failures = 0,
        }
    }

    /// Counts a failure. Whether it is one too many.
    fn fail(&mut self, now: Instant, trip: &Trip) -> bool {
        match (self, trip) {
            (Self::Rate(window), Trip::Rate { threshold, minimum_calls, .. }) => {
                window.count(now, true);
                let (calls, failures) = window.totals(now);
                calls >= u64::from(*minimum_calls) && failures as f64 >= threshold * calls as f64
            }
            (Self::Row(failures), Trip::Consecutive(most)) => {
                *failures += 1;
                *failures >= *most
            }
            // The counts are made of the rule.
            (Self::Rate(_), Trip::Consecutive(_)) | (Self::Row(_), Trip::Rate { .. }) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rules(trip: Trip) -> Rules {
        Rules { trip, half_open_after: 30 * SECOND, half_open_calls: 3 }
    }

    fn call(breaker: &mut Breaker, now: Instant, verdict: Verdict) {
        let ticket = breaker.admit(now).expect("it is let through");
        breaker.settle(now, ticket, verdict);
    }

    #[test]
    fn it_opens_at_the_rate_and_not_before_there_are_enough_calls() {
        let now = Instant::now();
        let trip = Trip::Rate { threshold: 0.5, window: 30 * SECOND, minimum_calls: 10 };
        let mut breaker = Breaker::new(rules(trip), now);
        (0..9).for_each(|_| call(&mut breaker, now, Verdict::Failed));
        assert_eq!(breaker.state(), CircuitState::Closed, "nine are too few");
        call(&mut breaker, now, Verdict::Failed);
        assert_eq!((breaker.state(), breaker.admit(now)), (CircuitState::Open, None));

        let trip = Trip::Rate { threshold: 0.5, window: 30 * SECOND, minimum_calls: 10 };
        let mut breaker = Breaker::new(rules(trip), now);
        (0..20).for_each(|_| call(&mut breaker, now, Verdict::Succeeded));
        (0..50).for_each(|_| call(&mut breaker, now, Verdict::Neither));
        (0..19).for_each(|_| call(&mut breaker, now, Verdict::Failed));
        assert_eq!(breaker.state(), CircuitState::Closed, "less than half");
        call(&mut breaker, now, Verdict::Failed);
        assert_eq!(breaker.state(), CircuitState::Open);
    }

    #[test]
    fn what_is_long_ago_does_not_count() {
        let now = Instant::now();
        let trip = Trip::Rate { threshold: 0.5, window: 10 * SECOND, minimum_calls: 4 };
        let mut breaker = Breaker::new(rules(trip), now);
        (0..3).for_each(|_| call(&mut breaker, now, Verdict::Failed));
        (0..3).for_each(|_| call(&mut breaker, now + 11 * SECOND, Verdict::Failed));
        assert_eq!(breaker.state(), CircuitState::Closed);
        call(&mut breaker, now + 20 * SECOND, Verdict::Failed);
        assert_eq!(breaker.state(), CircuitState::Open, "nine seconds are not long ago");
    }

    #[test]
    fn so_many_in_a_row_open_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(rules(Trip::Consecutive(3)), now);
        let (failed, succeeded) = (Verdict::Failed, Verdict::Succeeded);
        for verdict in [failed, failed, succeeded, failed, failed] {
            call(&mut breaker, now, verdict);
        }
        assert_eq!(breaker.state(), CircuitState::Closed);
        call(&mut breaker, now, failed);
        assert_eq!(breaker.state(), CircuitState::Open);
    }

    #[test]
    fn probes_close_it_by_more_than_half_and_one_failure_opens_it_again() {
        let (now, later) = (Instant::now(), Instant::now() + 30 * SECOND);
        let mut breaker = Breaker::new(rules(Trip::Consecutive(1)), now);
        call(&mut breaker, now, Verdict::Failed);
        assert_eq!(breaker.admit(later - SECOND), None);
        let probes: Vec<_> = (0..3).map(|_| breaker.admit(later).expect("a probe")).collect();
        assert_eq!((breaker.state(), breaker.admit(later)), (CircuitState::HalfOpen, None), "three and no more");
        breaker.settle(later, probes[0], Verdict::Neither);
        let fourth = breaker.admit(later).expect("one told nothing");
        breaker.settle(later, fourth, Verdict::Succeeded);
        assert_eq!(breaker.state(), CircuitState::HalfOpen);
        breaker.settle(later, probes[1], Verdict::Succeeded);
        assert_eq!(breaker.state(), CircuitState::Closed);
        breaker.settle(later, probes[2], Verdict::Failed);
        assert_eq!(breaker.state(), CircuitState::Closed, "it comes too late to count");

        call(&mut breaker, later, Verdict::Failed);
        let probe = breaker.admit(later + 30 * SECOND).expect("a probe");
        breaker.settle(later + 30 * SECOND, probe, Verdict::Failed);
        assert_eq!(breaker.state(), CircuitState::Open);
    }

    #[test]
    fn one_that_is_isolated_stays_so_until_it_is_closed() {
        let now = Instant::now();
        let mut breaker = Breaker::new(rules(Trip::Consecutive(1)), now);
        breaker.isolate();
        assert_eq!(breaker.admit(now + 86_400 * SECOND), None);
        breaker.close(now);
        assert_eq!(breaker.state(), CircuitState::Closed);
        assert!(breaker.admit(now).is_some());
    }
}
