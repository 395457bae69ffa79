//! What becomes of a delivery that failed: a pure decision.

use crate::harbor::failure::Failure;

/// Where a delivery stands, as far as it decides what comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The level of the topic it was read from; 0 for an original. The topic decides, never a header.
    pub(crate) level: u32,
    /// How many retry levels there are.
    pub(crate) levels: u32,
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
/// failure that a retry could mend.
pub(crate) fn settle(failure: &Failure, place: Place, retry_wanted: impl FnOnce(&Failure) -> bool) -> Disposition {
    if failure.is_abort() {
        return Disposition::Abort;
    }
    // Bytes that cannot be read will not become readable: they skip the ladder whatever the predicate says.
    if place.level < place.levels && !failure.is_serialization() && retry_wanted(failure) {
        return Disposition::Retry { level: place.level + 1 };
    }
    if place.dead_letters { Disposition::DeadLetter } else { Disposition::Crash }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harbor::error::code;

    fn place(level: u32, levels: u32, dead_letters: bool) -> Place {
        Place { level, levels, dead_letters }
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
}
