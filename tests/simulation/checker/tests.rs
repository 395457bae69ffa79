//! Hand-made histories: one that is good, and one for each thing that cannot be.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_harbor::client::Ended;

use super::*;
use crate::history::Event;
use crate::log::Fate;

fn stint(number: u64) -> Stint {
    Stint { group: Group::Classic, number }
}

fn value(producer: usize, number: u32) -> Value {
    Value { producer, number }
}

fn queued(number: u32) -> What {
    What::Queued { value: value(0, number), partition: 0, within: None }
}

fn acknowledged(number: u32, offset: i64) -> What {
    What::Acknowledged { value: value(0, number), partition: 0, offset: Some(offset) }
}

fn failed(number: u32, outcome: WriteOutcome) -> What {
    What::Failed { value: value(0, number), partition: 0, outcome }
}

fn assigned(number: u64, committed: Option<i64>) -> What {
    What::Assigned { stint: stint(number), partition: 0, committed, position: committed.unwrap_or(0) }
}

fn handed(number: u64, from: i64, numbers: &[u32]) -> What {
    let records: Vec<_> = (from..).zip(numbers).map(|(offset, number)| (offset, value(0, *number))).collect();
    What::Handed { stint: stint(number), partition: 0, from, next: from + numbers.len() as i64, records }
}

fn committed(number: u64, offset: i64) -> What {
    What::Committed { stint: stint(number), partition: 0, offset }
}

/// A history with one partition, whose log holds these numbers of producer 0.
fn history(whats: Vec<What>, log: &[u32], committed: i64) -> History {
    let events = whats.into_iter().map(|what| Event { at: Duration::ZERO, what }).collect();
    let plain = |(offset, number): (i64, &u32)| Logged { offset, holds: Holds::Record(value(0, *number), Fate::Plain) };
    History {
        events,
        groups: BTreeSet::from([Group::Classic]),
        logs: BTreeMap::from([(0, (0..).zip(log).map(plain).collect())]),
        committed: BTreeMap::from([((Group::Classic, 0), committed)]),
        ..History::default()
    }
}

/// Three records, read by two in turn.
fn good() -> Vec<What> {
    vec![
        queued(1),
        queued(2),
        queued(3),
        acknowledged(1, 0),
        assigned(1, None),
        acknowledged(2, 1),
        handed(1, 0, &[1, 2]),
        committed(1, 1),
        What::Gone { stint: stint(1), partition: 0, lost: false },
        failed(3, WriteOutcome::PossiblyWritten),
        assigned(2, Some(1)),
        handed(2, 1, &[2, 3]),
        committed(2, 3),
    ]
}

/// The good history with one event replaced.
fn with(at: usize, what: What) -> Vec<What> {
    let mut whats = good();
    whats[at] = what;
    whats
}

#[test]
fn a_good_history_is_good() {
    assert_eq!(check(&history(good(), &[1, 2, 3], 3)), []);
    // What may have been written need not have been.
    let mut shorter = with(11, handed(2, 1, &[2]));
    shorter[12] = committed(2, 2);
    assert_eq!(check(&history(shorter, &[1, 2], 2)), []);
}

#[test]
fn an_acknowledged_write_that_is_lost_is_seen() {
    let lost = |offset| Violation::Lost { value: value(0, 2), partition: 0, offset };
    assert!(check(&history(good(), &[1], 3)).contains(&lost(Some(1))));
    let without = What::Acknowledged { value: value(0, 2), partition: 0, offset: None };
    assert_eq!(check(&history(with(5, without.clone()), &[1, 2, 3], 3)), []);
    assert!(check(&history(with(5, without), &[1], 3)).contains(&lost(None)));
}

#[test]
fn two_values_at_one_offset_are_seen() {
    let two = Violation::TwoValues { partition: 0, offset: 1, one: value(0, 3), other: value(0, 2) };
    let found = check(&history(good(), &[1, 3, 2], 3));
    assert_eq!(found.iter().filter(|found| **found == two).count(), 3, "one acknowledged, two read: {found:?}");
    let read = history(with(11, handed(2, 1, &[3, 3])), &[1, 2, 3], 3);
    assert_eq!(check(&read), [Violation::TwoValues { partition: 0, offset: 1, one: value(0, 2), other: value(0, 3) }]);
}

#[test]
fn a_value_that_is_twice_in_the_log_is_seen() {
    let mut whats = good();
    whats.push(handed(2, 3, &[3]));
    let places = vec![(0, 2), (0, 3)];
    assert_eq!(check(&history(whats, &[1, 2, 3, 3], 4)), [Violation::Twice { value: value(0, 3), places }]);
}

#[test]
fn another_order_than_it_was_queued_in_is_seen() {
    let mut whats = with(3, acknowledged(1, 1));
    whats[5] = acknowledged(2, 0);
    whats[6] = handed(1, 0, &[2, 1]);
    whats[11] = handed(2, 1, &[1, 3]);
    let inverted = Violation::Inverted { partition: 0, offset: 1, before: value(0, 2), after: value(0, 1) };
    assert_eq!(check(&history(whats, &[2, 1, 3], 3)), [inverted]);
}

#[test]
fn what_nobody_wrote_is_seen() {
    let phantom = Violation::Phantom { value: value(0, 3), partition: 0 };
    let told = history(with(9, failed(3, WriteOutcome::NotWritten)), &[1, 2, 3], 3);
    assert_eq!(check(&told), std::slice::from_ref(&phantom));
    let elsewhere = history(with(2, What::Queued { value: value(0, 3), partition: 1, within: None }), &[1, 2, 3], 3);
    let unsettled = Violation::Unsettled { value: value(0, 3), partition: 1 };
    assert_eq!(check(&elsewhere), [unsettled, phantom.clone()]);
    assert!(check(&history(good(), &[1, 2], 2)).contains(&phantom), "read, and not in the log");
}

#[test]
fn a_hole_in_a_log_is_seen() {
    let mut holed = history(good(), &[1, 2, 3], 3);
    holed.logs.get_mut(&0).unwrap()[2].offset = 3;
    assert!(check(&holed).contains(&Violation::Hole { partition: 0, offset: 2 }));
}

#[test]
fn a_record_that_is_passed_over_is_seen() {
    let passed = |number_of_stint, offset, number| Violation::PassedOver {
        stint: stint(number_of_stint),
        partition: 0,
        offset,
        value: Some(value(0, number)),
    };
    let between = history(with(11, handed(2, 2, &[3])), &[1, 2, 3], 3);
    assert_eq!(check(&between), [passed(2, 1, 2)], "between batches");
    let within = What::Handed { stint: stint(2), partition: 0, from: 1, next: 3, records: vec![(2, value(0, 3))] };
    assert_eq!(check(&history(with(11, within), &[1, 2, 3], 3)), [passed(2, 1, 2)], "within a batch");
    let behind = What::Handed { stint: stint(2), partition: 0, from: 1, next: 3, records: vec![(1, value(0, 2))] };
    assert_eq!(check(&history(with(11, behind), &[1, 2, 3], 3)), [passed(2, 2, 3)], "at a batch's end");
}

#[test]
fn what_is_given_again_within_an_assignment_is_seen() {
    let repeated = |offset| Violation::Repeated { stint: stint(2), partition: 0, offset };
    assert_eq!(check(&history(with(11, handed(2, 0, &[1, 2, 3])), &[1, 2, 3], 3)), [repeated(0)]);
    let backwards = vec![(1, value(0, 2)), (2, value(0, 3)), (1, value(0, 2))];
    let backwards = What::Handed { stint: stint(2), partition: 0, from: 1, next: 3, records: backwards };
    assert!(check(&history(with(11, backwards), &[1, 2, 3], 3)).contains(&repeated(1)));
}

#[test]
fn records_for_one_who_does_not_have_the_partition_are_seen() {
    let mut whats = good();
    whats.push(handed(1, 2, &[3]));
    assert_eq!(check(&history(whats, &[1, 2, 3], 3)), [Violation::NotOurs { stint: stint(1), partition: 0 }]);
}

#[test]
fn one_who_goes_back_is_given_what_is_there() {
    let back = |to, from, numbers: &[u32]| {
        let mut whats = good();
        whats.push(What::Sought { stint: stint(2), partition: 0, offset: to });
        whats.push(handed(2, from, numbers));
        check(&history(whats, &[1, 2, 3], 3))
    };
    assert_eq!(back(2, 2, &[3]), []);
    assert_eq!(back(3, 3, &[]), []);
    assert_eq!(back(2, 1, &[2, 3]), [Violation::Repeated { stint: stint(2), partition: 0, offset: 1 }], "too far");
    let value = Some(value(0, 2));
    let passed = [Violation::PassedOver { stint: stint(2), partition: 0, offset: 1, value }];
    assert_eq!(back(1, 2, &[3]), passed, "not far enough");
}

#[test]
fn what_fails_where_all_is_quiet_is_seen() {
    let with = |what: What| {
        let mut whats = good();
        whats.push(what.clone());
        assert_eq!(check(&history(whats.clone(), &[1, 2, 3], 3)), [], "before");
        whats.pop();
        whats.extend([What::Quiet, queued(4), what, failed(4, WriteOutcome::PossiblyWritten)]);
        check(&history(whats, &[1, 2, 3], 3))
    };
    let (value, outcome) = (value(0, 4), WriteOutcome::PossiblyWritten);
    let not_taken = Violation::NotTaken { value, partition: 0, outcome };
    let expelled = Violation::Expelled { stint: stint(2), partition: 0 };
    let gone = |lost| What::Gone { stint: stint(2), partition: 0, lost };
    assert_eq!(with(gone(false)), std::slice::from_ref(&not_taken), "it was asked to give it back");
    assert_eq!(with(gone(true)), [expelled, not_taken]);
    // What was queued before may fail late, and a copy whenever its group rebalances.
    let mut whats = good();
    let late = whats.remove(9);
    let copy = COPIES + 1;
    let copied = What::Queued { value, partition: copy, within: Some(1) };
    whats.extend([What::Quiet, late, copied, What::Failed { value, partition: copy, outcome }]);
    assert_eq!(check(&history(whats, &[1, 2, 3], 3)), []);
}

#[test]
fn a_commit_past_what_was_handed_over_is_seen() {
    let beyond =
        |committed, handed| Violation::CommittedBeyond { group: Group::Classic, partition: 0, committed, handed };
    let mut whats = good();
    whats.truncate(11);
    whats.push(assigned(2, Some(3)));
    assert_eq!(check(&history(whats.clone(), &[1, 2, 3], 3)), [beyond(3, 2), beyond(3, 2)], "found, and left");
    whats.pop();
    assert_eq!(check(&history(whats, &[1, 2, 3], 3)), [beyond(3, 2)], "left");
    let skipped = What::Assigned { stint: stint(2), partition: 0, committed: Some(1), position: 3 };
    assert!(check(&history(with(10, skipped), &[1, 2, 3], 3)).contains(&beyond(3, 2)), "begun behind the commit");
}

#[test]
fn a_commit_that_is_forgotten_is_seen() {
    let forgotten = |found| Violation::CommitForgotten { group: Group::Classic, partition: 0, acknowledged: 1, found };
    let mut whats = with(10, assigned(2, None));
    whats[11] = handed(2, 0, &[1, 2, 3]);
    assert_eq!(check(&history(whats.clone(), &[1, 2, 3], 3)), [forgotten(None)]);
    // Of one that was expelled meanwhile, and is told late, no commit is taken.
    let taken = |what: &What| matches!(what, What::Committed { stint: of, .. } if *of == stint(2));
    whats.retain(|what| !taken(what));
    assert_eq!(check(&history(whats, &[1, 2, 3], 3)), []);
}

/// Seed 46909: a request that the network had held came behind a later commit, in the moment before its member left.
#[test]
fn a_commit_that_one_astray_sets_back_is_excused_where_its_member_went() {
    let forgotten = Violation::CommitForgotten { group: Group::Classic, partition: 0, acknowledged: 2, found: Some(1) };
    let committing = What::Committing { stint: stint(1), partition: 0, offset: 1 };
    let mut whats = good();
    whats.splice(7..=7, [committing, committed(1, 1), committed(1, 2)]);
    let mut set_back = history(whats, &[1, 2, 3], 3);
    let forgotten = std::slice::from_ref(&forgotten);
    assert_eq!(check(&set_back), forgotten, "it was answered at once");
    set_back.events[8..].iter_mut().for_each(|event| event.at = REQUEST_TIMEOUT);
    assert_eq!(check(&set_back), []);
    set_back.events[10..].iter_mut().for_each(|event| event.at = 3 * REQUEST_TIMEOUT);
    assert_eq!(check(&set_back), forgotten, "it stayed");
    set_back.events[10..].iter_mut().for_each(|event| event.at = REQUEST_TIMEOUT);
    set_back.events[7].what = What::Committing { stint: stint(1), partition: 0, offset: 0 };
    assert_eq!(check(&set_back), forgotten, "another one was astray");
}

#[test]
fn what_waits_after_the_calm_is_seen() {
    let stuck = Violation::Stuck { group: Group::Classic, partition: 0, committed: 2, end: 3 };
    assert_eq!(check(&history(good(), &[1, 2, 3], 2)), [stuck]);
    let never = History { committed: BTreeMap::new(), ..history(good(), &[1, 2, 3], 0) };
    assert_eq!(check(&never), [Violation::Stuck { group: Group::Classic, partition: 0, committed: 0, end: 3 }]);
    let mut whats = good();
    whats.remove(9);
    assert_eq!(check(&history(whats, &[1, 2, 3], 3)), [Violation::Unsettled { value: value(0, 3), partition: 0 }]);
}

#[test]
fn what_a_forgetful_broker_takes_twice_is_excused_and_nothing_else() {
    let log = [1, 2, 3, 2];
    let mut whats = good();
    whats.push(handed(2, 3, &[2]));
    let twice = |number, places| Violation::Twice { value: value(0, number), places };
    let inverted = Violation::Inverted { partition: 0, offset: 3, before: value(0, 3), after: value(0, 2) };
    let all = [inverted, twice(2, vec![(0, 1), (0, 3)])];
    assert_eq!(check(&history(whats.clone(), &log, 4)), all);
    // Before its acknowledgement, in its partition.
    whats.insert(4, What::ForgotProducers { partition: 1 });
    assert_eq!(check(&history(whats.clone(), &log, 4)), all);
    whats[4] = What::ForgotProducers { partition: 0 };
    assert_eq!(check(&history(whats.clone(), &log, 4)), []);
    let forgot = whats.remove(4);
    whats.insert(6, forgot);
    let mut late = history(whats, &log, 4);
    assert_eq!(check(&late), all, "it was acknowledged");
    // An earlier try of it may come yet.
    late.events[5..].iter_mut().for_each(|event| event.at = REQUEST_TIMEOUT);
    assert_eq!(late.events[5].what, acknowledged(2, 1));
    assert_eq!(check(&late), []);
}

/// Seed 145707: a follower came back when the batch was deleted, and led when it was sent again.
#[test]
fn what_was_deleted_before_its_acknowledgement_may_come_again() {
    let log = [1, 2, 3, 2];
    let mut whats = good();
    whats.push(handed(2, 3, &[2]));
    let inverted = Violation::Inverted { partition: 0, offset: 3, before: value(0, 3), after: value(0, 2) };
    let all = [inverted, Violation::Twice { value: value(0, 2), places: vec![(0, 1), (0, 3)] }];
    whats.insert(5, What::Deleting { partition: 0, before: 1 });
    assert_eq!(check(&history(whats.clone(), &log, 4)), all, "it was not deleted");
    whats[5] = What::Deleting { partition: 0, before: 2 };
    assert_eq!(check(&history(whats.clone(), &log, 4)), []);
    whats.swap(5, 6);
    assert_eq!(check(&history(whats, &log, 4)), all, "it was acknowledged");
}

#[test]
fn records_that_were_deleted_may_be_passed_over_by_one_who_is_behind() {
    let mut whats = good();
    whats.push(assigned(3, Some(1)));
    whats.push(handed(3, 2, &[3]));
    whats.push(committed(3, 3));
    let mut bad = history(whats.clone(), &[1, 2, 3], 3);
    let forgotten = Violation::CommitForgotten { group: Group::Classic, partition: 0, acknowledged: 3, found: Some(1) };
    let passed = Violation::PassedOver { stint: stint(3), partition: 0, offset: 1, value: Some(value(0, 2)) };
    assert_eq!(check(&bad), [passed, forgotten.clone()]);
    whats.insert(13, What::Deleting { partition: 0, before: 2 });
    bad = history(whats, &[1, 2, 3], 3);
    assert_eq!(check(&bad), [forgotten]);
}

/// Two transactions in one partition, the first aborted, the second committed, and who read them.
///
/// ```text
/// 0: 1   1: 2   2: abort   3: 3   4: 4   5: commit
/// ```
fn transactional(changes: impl FnOnce(&mut History)) -> Vec<Violation> {
    let within = |number, txn| What::Queued { value: value(0, number), partition: 0, within: Some(txn) };
    let records = vec![(3, value(0, 3)), (4, value(0, 4))];
    let whats = vec![
        within(1, 7),
        within(2, 7),
        What::Entered { within: 7, account: 0, offset: 70 },
        acknowledged(1, 0),
        acknowledged(2, 1),
        What::Ended { txn: 7, end: Some(Ended::Aborted) },
        within(3, 8),
        What::Entered { within: 8, account: 0, offset: 80 },
        within(4, 8),
        acknowledged(3, 3),
        acknowledged(4, 4),
        What::Ended { txn: 8, end: Some(Ended::Committed) },
        assigned(1, None),
        What::Handed { stint: stint(1), partition: 0, from: 0, next: 6, records },
        committed(1, 6),
    ];
    let mut history = history(whats, &[], 6);
    let record = |offset, number, fate| Logged { offset, holds: Holds::Record(value(0, number), fate) };
    let marker = |offset| Logged { offset, holds: Holds::Marker };
    let log = vec![
        record(0, 1, Fate::Aborted(2)),
        record(1, 2, Fate::Aborted(2)),
        marker(2),
        record(3, 3, Fate::Committed(5)),
        record(4, 4, Fate::Committed(5)),
        marker(5),
    ];
    history.logs.insert(0, log);
    history.ledger.insert(0, 80);
    changes(&mut history);
    check(&history)
}

fn change_fate(history: &mut History, place: usize, fate: Fate) {
    let logged = &mut history.logs.get_mut(&0).unwrap()[place];
    logged.holds = Holds::Record(logged.value().unwrap(), fate);
}

/// Gives the reader these records.
fn change_read(history: &mut History, records: &[(i64, u32)]) {
    let What::Handed { records: read, .. } = &mut history.events[13].what else { panic!("it is handed over") };
    *read = records.iter().map(|(offset, number)| (*offset, value(0, *number))).collect();
}

#[test]
fn whole_transactions_are_good() {
    assert_eq!(transactional(|_| ()), []);
    assert_eq!(transactional(|history| history.events[11].what = What::Ended { txn: 8, end: None }), [], "not known");
    let uncommitted = transactional(|history| {
        history.uncommitted.insert(Group::Classic);
        change_read(history, &[(0, 1), (1, 2), (3, 3), (4, 4)]);
    });
    assert_eq!(uncommitted, []);
}

#[test]
fn an_aborted_read_is_seen() {
    let read = transactional(|history| change_read(history, &[(1, 2), (3, 3), (4, 4)]));
    assert_eq!(read, [Violation::AbortedRead { stint: stint(1), partition: 0, offset: 1, value: value(0, 2) }]);
    let passed = transactional(|history| change_read(history, &[(4, 4)]));
    let value = Some(value(0, 3));
    assert_eq!(passed, [Violation::PassedOver { stint: stint(1), partition: 0, offset: 3, value }]);
    let uncommitted = transactional(|history| history.uncommitted = BTreeSet::from([Group::Classic]));
    assert_eq!(uncommitted.len(), 1, "who reads everything is to be given it: {uncommitted:?}");
}

#[test]
fn a_transaction_that_is_committed_in_part_is_seen() {
    let part = Violation::CommittedInPart { txn: 8, value: value(0, 4), partition: 0 };
    let aborted = transactional(|history| {
        change_fate(history, 4, Fate::Aborted(5));
        change_read(history, &[(3, 3)]);
    });
    assert_eq!(aborted, std::slice::from_ref(&part));
    let unknown = transactional(|history| {
        history.events[11].what = What::Ended { txn: 8, end: None };
        change_fate(history, 4, Fate::Aborted(5));
        change_read(history, &[(3, 3)]);
    });
    assert_eq!(unknown, [part]);
    let none = transactional(|history| {
        for place in [3, 4] {
            change_fate(history, place, Fate::Aborted(5));
        }
        change_read(history, &[]);
    });
    assert_eq!(none.len(), 2, "it was told that it is committed: {none:?}");
}

#[test]
fn a_transaction_that_was_to_be_aborted_and_is_visible_is_seen() {
    let visible = transactional(|history| {
        for place in [0, 1] {
            change_fate(history, place, Fate::Committed(2));
        }
        change_read(history, &[(0, 1), (1, 2), (3, 3), (4, 4)]);
    });
    let not = |number| Violation::NotAborted { txn: 7, value: value(0, number), partition: 0 };
    assert_eq!(visible, [not(1), not(2)]);
}

/// KAFKA-17754: what was written in the next transaction landed in the one before.
#[test]
fn one_end_for_records_of_two_transactions_is_seen() {
    let mixed = transactional(|history| {
        history.events[5].what = What::Ended { txn: 7, end: None };
        for place in [0, 1] {
            change_fate(history, place, Fate::Committed(5));
        }
        change_read(history, &[(0, 1), (1, 2), (3, 3), (4, 4)]);
    });
    let mixed_at = Violation::Mixed { partition: 0, marker: 5, one: 7, other: 8 };
    assert_eq!(mixed, [mixed_at.clone(), mixed_at]);
}

#[test]
fn what_is_written_outside_of_its_transaction_is_seen() {
    let outside = |number, offset| Violation::Outside { value: value(0, number), partition: 0, offset };
    let plain = transactional(|history| change_fate(history, 3, Fate::Plain));
    assert!(plain.contains(&outside(3, 3)), "{plain:?}");
    let within = transactional(|history| history.events[8].what = queued(4));
    assert_eq!(within, [outside(4, 4)]);
}

#[test]
fn a_transaction_that_nobody_decides_is_seen() {
    let open = transactional(|history| {
        history.events[11].what = What::Ended { txn: 8, end: None };
        for place in [3, 4] {
            change_fate(history, place, Fate::Open);
        }
        change_read(history, &[]);
    });
    let undecided = |number| Violation::Undecided { value: value(0, number), partition: 0 };
    assert_eq!(open, [undecided(3), undecided(4)]);
}

#[test]
fn positions_that_are_not_committed_with_their_transaction_are_seen() {
    let with = |held: Option<i64>| {
        transactional(|history| {
            history.ledger.clear();
            history.ledger.extend(held.map(|held| (0, held)));
        })
    };
    let wrong = |found| [Violation::Ledger { account: 0, found, committed: Some(80) }];
    assert_eq!(with(Some(80)), []);
    assert_eq!(with(Some(70)), wrong(Some(70)), "of an aborted one");
    assert_eq!(with(None), wrong(None), "lost");
}

#[test]
fn a_position_that_is_not_there_when_its_commit_is_known_is_seen() {
    let with = |found| {
        transactional(|history| {
            let booked = What::Booked { within: 8, account: 0, found };
            history.events.push(Event { at: Duration::ZERO, what: booked });
        })
    };
    let not = |found| [Violation::NotBooked { txn: 8, account: 0, entered: 80, found }];
    assert_eq!(with(Some(80)), []);
    assert_eq!(with(Some(93)), [], "of a later one");
    assert_eq!(with(Some(81)), not(Some(81)), "of the same, that was not the last");
    assert_eq!(with(Some(70)), not(Some(70)));
    assert_eq!(with(None), not(None));
}

#[test]
fn copies_that_are_not_what_was_read_are_seen() {
    let copied = |copies: &[u32]| {
        transactional(|history| {
            history.groups = BTreeSet::from([Group::Copiers]);
            for event in &mut history.events {
                if let What::Assigned { stint, .. } | What::Handed { stint, .. } | What::Committed { stint, .. } =
                    &mut event.what
                {
                    stint.group = Group::Copiers;
                }
            }
            history.committed = BTreeMap::from([((Group::Copiers, 0), 6)]);
            let record = |(offset, number): (i64, &u32)| Logged {
                offset,
                holds: Holds::Record(value(0, *number), Fate::Committed(9)),
            };
            history.logs.insert(COPIES, (0..).zip(copies).map(record).collect());
        })
    };
    let wrong = |place, original: Option<u32>, copy: Option<u32>| {
        let value = |number: Option<u32>| number.map(|number| value(0, number));
        [Violation::Copied { partition: 0, place, original: value(original), copy: value(copy) }]
    };
    assert_eq!(copied(&[3, 4]), []);
    assert_eq!(copied(&[3]), wrong(1, Some(4), None), "left out");
    assert_eq!(copied(&[3, 3, 4]), wrong(1, Some(4), Some(3)), "twice");
    assert_eq!(copied(&[3, 4, 4]), wrong(2, None, Some(4)), "twice at the end");
    assert_eq!(copied(&[1, 3, 4]), wrong(0, Some(3), Some(1)), "of an aborted one");
}

#[test]
fn what_the_operator_was_told_and_is_not_so_is_seen() {
    let with = |event: What| {
        let mut whats = good();
        whats.push(What::Set { offset: 5, acknowledged: true });
        whats.push(What::Set { offset: 6, acknowledged: false });
        whats.push(event);
        let mut history = history(whats, &[1, 2, 3], 3);
        history.topics.insert("scratch-1");
        check(&history)
    };
    let topic = |name, exists, really| What::Topic { name, exists, really };
    assert_eq!(with(topic("scratch-1", Some(true), true)), []);
    assert_eq!(with(topic("scratch-2", None, true)), []);
    let gone = Violation::Topic { name: "scratch-2", told: true };
    assert_eq!(with(topic("scratch-2", Some(true), true)), std::slice::from_ref(&gone), "in the end");
    assert_eq!(with(topic("scratch-2", Some(true), false)), [gone.clone(), gone], "at once");
    let stays = Violation::Topic { name: "scratch-1", told: false };
    assert_eq!(with(topic("scratch-1", Some(false), false)), std::slice::from_ref(&stays), "in the end");
    assert_eq!(with(topic("scratch-1", Some(false), true)), [stays.clone(), stays], "at once");
    assert_eq!(with(What::Read { offset: Some(5) }), []);
    assert_eq!(with(What::Read { offset: Some(6) }), [], "not acknowledged is not refused");
    let unset = |found| [Violation::Unset { acknowledged: 5, found }];
    assert_eq!(with(What::Read { offset: Some(4) }), unset(Some(4)));
    assert_eq!(with(What::Read { offset: None }), unset(None));
}
