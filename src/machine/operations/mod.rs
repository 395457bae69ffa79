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
mod member;
mod metadata;
mod owned;
mod positions;
mod produce;
mod share;
mod share_member;
mod telemetry;
mod transaction;

use crate::protocol::choices::Choices;

/// A machine, its driver, and peers that do anything.
trait Operated {
    /// How many kinds of things are done to it.
    const OPERATIONS: u32;

    fn new(choices: &mut Choices<'_>) -> Self;

    /// Does one of these.
    fn act(&mut self, choices: &mut Choices<'_>, operation: u32);

    /// What the driver does until it waits; it looks whether it may.
    fn settle(&mut self, choices: &mut Choices<'_>);

    /// Nothing is done to it any more: all that it has to do ends.
    fn end(self, choices: &mut Choices<'_>);
}

fn run<M: Operated>(choices: &mut Choices<'_>) {
    let mut machine = M::new(choices);
    while let Some(operation) = choices.operation(M::OPERATIONS) {
        machine.act(choices, operation);
        machine.settle(choices);
    }
    machine.end(choices);
}

/// A run of the machine that the first number chooses.
#[cfg(fuzzing)]
pub(super) fn any(choose: &mut dyn FnMut(u32) -> Option<u32>) {
    let machine = choose(MACHINES.len() as u32).unwrap_or_default();
    let (_, run) = MACHINES[machine as usize];
    run(&mut Choices::new(choose));
}

type Named = (&'static str, fn(&mut Choices<'_>));

/// Every machine that is driven by operations. Appended to only, as the fuzzer's inputs choose by place. One that is not
/// here is code that nobody calls, which the build refuses.
const MACHINES: &[Named] = &[
    ("link", run::<link::Connection>),
    ("produce", run::<produce::Producer>),
    ("group", run::<member::Member<group::Classic>>),
    ("consumer group", run::<member::Member<consumer_group::Assigned>>),
    ("transaction", run::<transaction::Producer>),
    ("fetch", run::<fetch::Consumer>),
    ("metadata", run::<metadata::Client>),
    ("share sessions", run::<share::Consumer>),
    ("share member", run::<member::Member<share_member::Sharing>>),
    ("commits", run::<commits::Member>),
    ("positions", run::<positions::Member>),
    ("telemetry", run::<telemetry::Pusher>),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::choices::seeded;

    fn hold(machine: &str) {
        let (_, run) = MACHINES.iter().find(|(name, _)| *name == machine).expect("a machine of this name");
        for seed in 0..1_500 {
            run(&mut Choices::new(&mut seeded(seed, 60 + (seed as u32 % 7) * 100)));
        }
    }

    #[test]
    fn whatever_becomes_of_a_connection_every_request_has_one_verdict() {
        hold("link");
    }

    #[test]
    fn whatever_is_answered_every_record_has_one_verdict_and_memory_is_given_back() {
        hold("produce");
    }

    #[test]
    fn whatever_a_coordinator_says_a_member_goes_on_or_ends_and_knows_what_it_owns() {
        hold("group");
    }

    #[test]
    fn whatever_an_assigning_coordinator_says_a_member_goes_on_or_ends_and_knows_what_it_owns() {
        hold("consumer group");
    }

    #[test]
    fn whatever_is_answered_a_transactions_end_is_not_asked_otherwise_and_comes() {
        hold("transaction");
    }

    #[test]
    fn whatever_is_fetched_positions_move_forward_and_memory_is_given_back() {
        hold("fetch");
    }

    #[test]
    fn whatever_metadata_says_the_view_stays_small_and_is_asked_for_again() {
        hold("metadata");
    }

    #[test]
    fn whatever_is_acquired_every_acknowledgement_has_one_verdict_and_memory_is_given_back() {
        hold("share sessions");
    }

    #[test]
    fn whatever_a_share_coordinator_says_a_member_goes_on_or_ends() {
        hold("share member");
    }

    #[test]
    fn whatever_is_answered_every_commit_has_one_outcome_in_its_time() {
        hold("commits");
    }

    #[test]
    fn whatever_is_answered_a_partition_begins_where_it_was_told_once() {
        hold("positions");
    }

    #[test]
    fn whatever_is_wanted_metrics_are_pushed_at_intervals() {
        hold("telemetry");
    }
}
