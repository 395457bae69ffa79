//! What becomes of a delivery that failed: a pure decision.

use std::time::Duration;

use crate::harbor::failure::{Failure, Verdict};

/// Where a delivery stands, as far as it decides what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    /// The level of the topic it was read from; 0 for an original. The topic decides, never a header.
    pub(crate) level: u32,
    /// How long each retry level waits; the first is level 1.
    pub(crate) delays: &'a [Duration],
    /// Whether there are dead letters.
    pub(crate) dead_letters: bool,
}

/// What is done with a record whose handler failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Written to the topic of this retry level, then committed.
    Retry {
        /// The level that it goes to, from 1.
        level: u32,
    },
    /// Written to the dead letters, then committed.
    DeadLetter,
    /// Left where it is; the consumer stops because the handler said so.
    Abort,
    /// Left where it is; the consumer stops because nothing else may be done.
    Crash,
}

/// Decides about a failure. `retry_wanted` is what the consumer's `retry_if` says of it; it is asked only of a
/// failure that a retry could mend, and of which the handler has not decided by itself.
pub(crate) fn settle(failure: &Failure, place: Place<'_>, retry_wanted: impl FnOnce(&Failure) -> bool) -> Disposition {
    if failure.is_abort() {
        return Disposition::Abort;
    }
    if let Some(level) = place.next(failure.retry_not_before())
        && is_to_be_retried(failure, retry_wanted)
    {
        return Disposition::Retry { level };
    }
    if place.dead_letters { Disposition::DeadLetter } else { Disposition::Crash }
}

/// Whether a failure is tried again where it is, if that is left to try.
pub(crate) fn is_tried_in_place(failure: &Failure, retry_wanted: impl FnOnce(&Failure) -> bool) -> bool {
    !failure.is_abort() && failure.retry_not_before().is_none() && is_to_be_retried(failure, retry_wanted)
}

fn is_to_be_retried(failure: &Failure, retry_wanted: impl FnOnce(&Failure) -> bool) -> bool {
    // Bytes that cannot be read will not become readable: they skip the ladder whatever the predicate says.
    !failure.is_serialization()
        && failure.verdict().map_or_else(|| retry_wanted(failure), |verdict| verdict == Verdict::Retry)
}

impl Place<'_> {
    /// The level that comes next: the first that waits at least `not_before`, or the last one.
    fn next(self, not_before: Option<Duration>) -> Option<u32> {
        let later = (1..).zip(self.delays).skip(self.level as usize);
        let long = |(_, delay): &(u32, &Duration)| not_before.is_none_or(|least| **delay >= least);
        later.clone().find(long).or_else(|| later.last()).map(|(level, _)| level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harbor::error::code;

    const DELAYS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];

    fn place(level: u32, levels: usize, dead_letters: bool) -> Place<'static> {
        Place { level, delays: &DELAYS[..levels], dead_letters }
    }

    #[test]
    fn a_failure_climbs_one_level_at_a_time_and_ends_in_the_dead_letters() {
        let failure = || Failure::new("out of stock");
        let walk: Vec<_> = (0..=2).map(|level| settle(&failure(), place(level, 2, true), |_| true)).collect();
        assert_eq!(walk, [Disposition::Retry { level: 1 }, Disposition::Retry { level: 2 }, Disposition::DeadLetter]);
        assert_eq!(settle(&failure(), place(0, 0, true), |_| true), Disposition::DeadLetter);
        assert_eq!(settle(&failure(), place(2, 2, false), |_| true), Disposition::Crash, "nothing is left");
        assert_eq!(settle(&failure(), place(0, 2, true), |_| false), Disposition::DeadLetter, "no retry wanted");
        assert_eq!(settle(&failure(), place(0, 2, false), |_| false), Disposition::Crash);
    }

    #[test]
    fn what_cannot_be_read_skips_the_ladder_without_asking() {
        let failure = Failure::new("not JSON").with_code(code::SERIALIZATION);
        let never = |_: &Failure| unreachable!("asked although no retry can help");
        assert_eq!(settle(&failure, place(0, 2, true), never), Disposition::DeadLetter);
        assert_eq!(settle(&failure, place(1, 2, false), never), Disposition::Crash);
    }

    #[test]
    fn an_abort_goes_before_everything() {
        let never = |_: &Failure| unreachable!("asked about an abort");
        for place in [place(0, 2, true), place(2, 2, true), place(0, 0, false)] {
            assert_eq!(settle(&Failure::abort("database gone"), place, never), Disposition::Abort);
        }
    }

    #[test]
    fn what_the_handler_decides_nobody_else_is_asked_about() {
        let never = |_: &Failure| unreachable!("asked although it is decided");
        let judged = |verdict| Failure::permanent("out of stock").judged(verdict);
        let retried = settle(&judged(Verdict::Retry), place(0, 2, true), never);
        assert_eq!(retried, Disposition::Retry { level: 1 });
        assert_eq!(settle(&judged(Verdict::Retry), place(2, 2, true), never), Disposition::DeadLetter);
        assert_eq!(settle(&judged(Verdict::DeadLetter), place(0, 2, true), never), Disposition::DeadLetter);
        assert_eq!(settle(&judged(Verdict::DeadLetter), place(0, 2, false), never), Disposition::Crash);
    }

    #[test]
    fn what_a_moment_may_mend_is_tried_in_place() {
        let tried = |failure: Failure, wanted| is_tried_in_place(&failure, |_| wanted);
        assert!(tried(Failure::new("reset by peer"), true));
        assert!(!tried(Failure::new("reset by peer"), false));
        assert!(tried(Failure::new("busy").judged(Verdict::Retry), false));
        assert!(!tried(Failure::new("no").judged(Verdict::DeadLetter), true));
        assert!(!tried(Failure::abort("database gone"), true));
        assert!(!tried(Failure::new("not JSON").with_code(code::SERIALIZATION), true));
        assert!(!tried(Failure::new("asked too often").not_before(Duration::from_secs(1)), true), "it asked to wait");
    }

    #[test]
    fn a_wait_that_is_asked_for_is_that_of_the_first_later_level_that_is_as_long() {
        let after = |seconds| Failure::new("asked too often").not_before(Duration::from_secs(seconds));
        let level = |level, seconds| settle(&after(seconds), place(level, 2, true), |_| true);
        assert_eq!(level(0, 5), Disposition::Retry { level: 1 });
        assert_eq!(level(0, 6), Disposition::Retry { level: 2 });
        assert_eq!(level(0, 3_600), Disposition::Retry { level: 2 }, "as long as there is");
        assert_eq!(level(1, 1), Disposition::Retry { level: 2 }, "never back, nor the same");
        assert_eq!(level(2, 1), Disposition::DeadLetter);
    }
}
