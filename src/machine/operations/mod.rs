//! Any sequence of what a driver does, into each machine: requests, answers of any kind in any order, losses, time.
//! Built for fuzzing and tests.
//!
//! A machine is held to what its driver rests on: it never panics, whatever is answered; while work is pending, an action or a wake-up
//! is too, and no wake-up is in the past; every piece of work has one verdict; when nothing more comes, all of it ends; and
//! what it keeps is bounded.

mod commits;
mod consumer_group;
mod fetch;
mod group;
mod link;
mod metadata;
mod owned;
mod positions;
mod produce;
mod share;
mod share_member;
mod telemetry;
mod transaction;

use crate::protocol::choices::Choices;

/// A run of the machine that the first number chooses.
#[cfg(fuzzing)]
pub(super) fn any(choose: &mut dyn FnMut(u32) -> Option<u32>) {
    let machine = choose(MACHINES.len() as u32).unwrap_or_default();
    MACHINES[machine as usize](&mut Choices::new(choose));
}

type Machine = fn(&mut Choices<'_>);

/// Every machine that is driven by operations. Appended to only, as the fuzzer's inputs choose by place. One that is not here is code
/// that nobody calls, which the build refuses.
const MACHINES: &[Machine] = &[
    link::run,
    produce::run,
    group::run,
    consumer_group::run,
    transaction::run,
    fetch::run,
    metadata::run,
    share::run,
    share_member::run,
    commits::run,
    positions::run,
    telemetry::run,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::choices::seeded;

    fn hold(machine: usize) {
        for seed in 0..1_500 {
            MACHINES[machine](&mut Choices::new(&mut seeded(seed, 60 + (seed as u32 % 7) * 100)));
        }
    }

    #[test]
    fn whatever_becomes_of_a_connection_every_request_has_one_verdict() {
        hold(0);
    }

    #[test]
    fn whatever_is_answered_every_record_has_one_verdict_and_memory_is_given_back() {
        hold(1);
    }

    #[test]
    fn whatever_a_coordinator_says_a_member_goes_on_or_ends_and_knows_what_it_owns() {
        hold(2);
    }

    #[test]
    fn whatever_an_assigning_coordinator_says_a_member_goes_on_or_ends_and_knows_what_it_owns() {
        hold(3);
    }

    #[test]
    fn whatever_is_answered_a_transactions_end_is_not_asked_otherwise_and_comes() {
        hold(4);
    }

    #[test]
    fn whatever_is_fetched_positions_move_forward_and_memory_is_given_back() {
        hold(5);
    }

    #[test]
    fn whatever_metadata_says_the_view_stays_small_and_is_asked_for_again() {
        hold(6);
    }

    #[test]
    fn whatever_is_acquired_every_acknowledgement_has_one_verdict_and_memory_is_given_back() {
        hold(7);
    }

    #[test]
    fn whatever_a_share_coordinator_says_a_member_goes_on_or_ends() {
        hold(8);
    }

    #[test]
    fn whatever_is_answered_every_commit_has_one_outcome_in_its_time() {
        hold(9);
    }

    #[test]
    fn whatever_is_answered_a_partition_begins_where_it_was_told_once() {
        hold(10);
    }

    #[test]
    fn whatever_is_wanted_metrics_are_pushed_at_intervals() {
        hold(11);
    }
}
