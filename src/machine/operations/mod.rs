//! Any sequence of what a driver does, into each machine: requests, answers of any kind in any order, losses, time.
//! Built for fuzzing and tests.
//!
//! A machine is held to what its driver rests on: it never panics, whatever is answered; while work is pending, an action or a wake-up
//! is too, and no wake-up is in the past; every piece of work has one verdict; when nothing more comes, all of it ends; and
//! what it keeps is bounded.

mod consumer_group;
mod fetch;
mod group;
mod link;
mod metadata;
mod owned;
mod produce;
mod transaction;

use crate::protocol::choices::Choices;

/// A run of the machine that the first number chooses.
#[cfg(fuzzing)]
pub(super) fn any(choose: &mut dyn FnMut(u32) -> Option<u32>) {
    let machine = choose(MACHINES.len() as u32).unwrap_or_default();
    MACHINES[machine as usize](&mut Choices::new(choose));
}

type Machine = fn(&mut Choices<'_>);

/// Every machine that is driven by operations. Appended to only, as the fuzzer's inputs choose by place.
#[cfg(fuzzing)]
const MACHINES: &[Machine] =
    &[link::run, produce::run, group::run, consumer_group::run, transaction::run, fetch::run, metadata::run];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::choices::seeded;

    fn hold(machine: Machine) {
        for seed in 0..1_500 {
            machine(&mut Choices::new(&mut seeded(seed, 60 + (seed as u32 % 7) * 100)));
        }
    }

    #[test]
    fn whatever_becomes_of_a_connection_every_request_has_one_verdict() {
        hold(link::run);
    }

    #[test]
    fn whatever_is_answered_every_record_has_one_verdict_and_memory_is_given_back() {
        hold(produce::run);
    }

    #[test]
    fn whatever_a_coordinator_says_a_member_goes_on_or_ends_and_knows_what_it_owns() {
        hold(group::run);
    }

    #[test]
    fn whatever_an_assigning_coordinator_says_a_member_goes_on_or_ends_and_knows_what_it_owns() {
        hold(consumer_group::run);
    }

    #[test]
    fn whatever_is_answered_a_transactions_end_is_not_asked_otherwise_and_comes() {
        hold(transaction::run);
    }

    #[test]
    fn whatever_is_fetched_positions_move_forward_and_memory_is_given_back() {
        hold(fetch::run);
    }

    #[test]
    fn whatever_metadata_says_the_view_stays_small_and_is_asked_for_again() {
        hold(metadata::run);
    }
}
