//! What cannot be, whatever happened.
//!
//! In the manner of Jepsen's checker for Kafka, for writes without transactions by idempotent producers, and a group that delivers at least once:
//! what may come again may not be missing. What a partition holds at the end is what happened; the observations are held against it.

use std::collections::{BTreeMap, BTreeSet};

use kafka_harbor::error::WriteOutcome;

use super::history::{History, Stint, Value, What};

/// What is wrong with a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Acknowledged, and not in the log.
    Lost { value: Value, partition: i32, offset: Option<i64> },
    /// Two who looked at one offset saw different values.
    TwoValues { partition: i32, offset: i64, one: Value, other: Value },
    /// Written once, in the logs more than once.
    Twice { value: Value, places: Vec<(i32, i64)> },
    /// Of one producer, in one partition, in another order than it was queued.
    Inverted { partition: i32, offset: i64, before: Value, after: Value },
    /// In a log or a consumer's hands; nobody wrote it there, or its writer was told that it is not written.
    Phantom { value: Value, partition: i32 },
    /// A log without a record at an offset before its end.
    Hole { partition: i32, offset: i64 },
    /// A consumer was led past a record.
    PassedOver { stint: Stint, partition: i32, offset: i64, value: Option<Value> },
    /// A consumer was given an offset again within one assignment, or out of order.
    Repeated { stint: Stint, partition: i32, offset: i64 },
    /// Records for one who does not have the partition.
    NotOurs { stint: Stint, partition: i32 },
    /// A position behind records that nobody was given.
    CommittedBeyond { partition: i32, committed: i64, handed: i64 },
    /// A commit that was acknowledged, and is not there for the next owner.
    CommitForgotten { partition: i32, acknowledged: i64, found: Option<i64> },
    /// After the calm, records wait.
    Stuck { partition: i32, committed: i64, end: i64 },
    /// After the calm, a producer has not said what became of a record.
    Unsettled { value: Value },
}

/// Everything that is wrong with a history.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let logs = Logs::of(history);
    written(history, &logs, &mut found);
    logged(history, &mut found);
    read(history, &logs, &mut found);
    drained(history, &mut found);
    found
}

/// The logs, to look into.
struct Logs(BTreeMap<(i32, i64), Value>);

impl Logs {
    fn of(history: &History) -> Self {
        let records = history
            .logs
            .iter()
            .flat_map(|(partition, log)| log.iter().map(move |(offset, value)| ((*partition, *offset), *value)));
        Self(records.collect())
    }

    /// Whoever saw `value` at this place saw what is there.
    fn agree(&self, partition: i32, offset: i64, value: Value) -> Result<(), Option<Violation>> {
        match self.0.get(&(partition, offset)) {
            Some(one) if *one == value => Ok(()),
            Some(one) => Err(Some(Violation::TwoValues { partition, offset, one: *one, other: value })),
            None => Err(None),
        }
    }

    fn has(&self, partition: i32, value: Value) -> bool {
        self.0.range((partition, 0)..(partition + 1, 0)).any(|(_, one)| *one == value)
    }
}

/// Producers against the logs.
fn written(history: &History, logs: &Logs, found: &mut Vec<Violation>) {
    let mut queued = BTreeMap::new();
    let mut settled = BTreeSet::new();
    let mut refused = BTreeSet::new();
    for event in &history.events {
        match &event.what {
            What::Queued { value, partition } => drop(queued.insert(*value, *partition)),
            What::Acknowledged { value, partition, offset } => {
                settled.insert(*value);
                let there = match offset {
                    Some(offset) => logs.agree(*partition, *offset, *value),
                    None => logs.has(*partition, *value).then_some(()).ok_or(None),
                };
                let lost = || Violation::Lost { value: *value, partition: *partition, offset: *offset };
                found.extend(there.err().map(|two| two.unwrap_or_else(lost)));
            }
            What::Failed { value, outcome } => {
                settled.insert(*value);
                if *outcome == WriteOutcome::NotWritten {
                    refused.insert(*value);
                }
            }
            _ => {}
        }
    }
    let unsettled = queued.keys().filter(|value| !settled.contains(value));
    found.extend(unsettled.map(|value| Violation::Unsettled { value: *value }));
    let phantom = |((partition, _), value): &(&(i32, i64), &Value)| {
        queued.get(value) != Some(partition) || refused.contains(value)
    };
    let phantoms = logs.0.iter().filter(phantom);
    found.extend(phantoms.map(|((partition, _), value)| Violation::Phantom { value: *value, partition: *partition }));
}

/// The logs by themselves.
fn logged(history: &History, found: &mut Vec<Violation>) {
    let mut places = BTreeMap::<Value, Vec<(i32, i64)>>::new();
    for (partition, log) in &history.logs {
        let partition = *partition;
        let mut last = BTreeMap::<usize, Value>::new();
        for (place, (offset, value)) in (0..).zip(log) {
            if *offset != place {
                found.push(Violation::Hole { partition, offset: place });
                break;
            }
            places.entry(*value).or_default().push((partition, *offset));
            if let Some(before) = last.insert(value.producer, *value)
                && before > *value
            {
                found.push(Violation::Inverted { partition, offset: *offset, before, after: *value });
            }
        }
    }
    let twice = places.into_iter().filter(|(_, places)| places.len() > 1);
    found.extend(twice.map(|(value, places)| Violation::Twice { value, places }));
}

/// What is known of a partition's readers, as the history goes on.
#[derive(Default)]
struct Readers {
    /// Where each who has it goes on.
    next: BTreeMap<Stint, i64>,
    /// Everything before it was given to somebody, or covered by a batch.
    handed: i64,
    /// The furthest commit that was acknowledged.
    acknowledged: Option<i64>,
}

impl Readers {
    /// Takes in a batch.
    fn hand(&mut self, from: i64, next: i64) {
        if from <= self.handed {
            self.handed = self.handed.max(next);
        }
    }
}

/// Consumers against the logs.
fn read(history: &History, logs: &Logs, found: &mut Vec<Violation>) {
    let mut partitions = BTreeMap::<i32, Readers>::new();
    for event in &history.events {
        match &event.what {
            What::Assigned { stint, partition, committed, position } => {
                let readers = partitions.entry(*partition).or_default();
                readers.next.insert(*stint, *position);
                assigned(*partition, readers, *committed, *position, found);
            }
            What::Handed { stint, partition, from, next, records } => {
                let readers = partitions.entry(*partition).or_default();
                handed((*stint, *partition), readers, (*from, *next), records, logs, found);
            }
            What::Gone { stint, partition } => {
                partitions.entry(*partition).or_default().next.remove(stint);
            }
            What::Committed { partition, offset, .. } => {
                let readers = partitions.entry(*partition).or_default();
                readers.acknowledged = readers.acknowledged.max(Some(*offset));
            }
            _ => {}
        }
    }
    for (partition, committed) in &history.committed {
        let handed = partitions.get(partition).map_or(0, |readers| readers.handed);
        if *committed > handed {
            found.push(Violation::CommittedBeyond { partition: *partition, committed: *committed, handed });
        }
    }
}

fn assigned(partition: i32, readers: &Readers, committed: Option<i64>, position: i64, found: &mut Vec<Violation>) {
    let handed = readers.handed;
    if let Some(committed) = committed.filter(|committed| *committed > handed) {
        found.push(Violation::CommittedBeyond { partition, committed, handed });
    } else if position > handed {
        // Without a commit it begins at the oldest record.
        found.push(Violation::CommittedBeyond { partition, committed: position, handed });
    }
    if let Some(acknowledged) = readers.acknowledged.filter(|acknowledged| Some(*acknowledged) > committed) {
        found.push(Violation::CommitForgotten { partition, acknowledged, found: committed });
    }
}

fn handed(
    (stint, partition): (Stint, i32),
    readers: &mut Readers,
    (from, next): (i64, i64),
    records: &[(i64, Value)],
    logs: &Logs,
    found: &mut Vec<Violation>,
) {
    let Some(expected) = readers.next.insert(stint, next) else {
        readers.next.remove(&stint);
        found.push(Violation::NotOurs { stint, partition });
        return;
    };
    let passed = |offset| {
        let value = logs.0.get(&(partition, offset)).copied();
        Violation::PassedOver { stint, partition, offset, value }
    };
    if from > expected {
        found.push(passed(expected));
    }
    if from < expected {
        found.push(Violation::Repeated { stint, partition, offset: from });
    }
    let mut at = from;
    for (offset, value) in records {
        if *offset < at || *offset >= next {
            found.push(Violation::Repeated { stint, partition, offset: *offset });
        } else if *offset > at {
            found.push(passed(at));
        }
        match logs.agree(partition, *offset, *value) {
            Ok(()) => {}
            Err(Some(two)) => found.push(two),
            Err(None) => found.push(Violation::Phantom { value: *value, partition }),
        }
        at = offset + 1;
    }
    if at < next {
        found.push(passed(at));
    }
    readers.hand(from, next);
}

/// The end against the logs.
fn drained(history: &History, found: &mut Vec<Violation>) {
    for (partition, log) in &history.logs {
        let end = log.len() as i64;
        let committed = history.committed.get(partition).copied().unwrap_or(0);
        if committed < end {
            found.push(Violation::Stuck { partition: *partition, committed, end });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::Event;

    fn value(producer: usize, number: u32) -> Value {
        Value { producer, number }
    }

    fn queued(number: u32) -> What {
        What::Queued { value: value(0, number), partition: 0 }
    }

    fn acknowledged(number: u32, offset: i64) -> What {
        What::Acknowledged { value: value(0, number), partition: 0, offset: Some(offset) }
    }

    fn failed(number: u32, outcome: WriteOutcome) -> What {
        What::Failed { value: value(0, number), outcome }
    }

    fn assigned(stint: Stint, committed: Option<i64>) -> What {
        What::Assigned { stint, partition: 0, committed, position: committed.unwrap_or(0) }
    }

    fn handed(stint: Stint, from: i64, numbers: &[u32]) -> What {
        let records: Vec<_> = (from..).zip(numbers).map(|(offset, number)| (offset, value(0, *number))).collect();
        What::Handed { stint, partition: 0, from, next: from + numbers.len() as i64, records }
    }

    fn committed(stint: Stint, offset: i64) -> What {
        What::Committed { stint, partition: 0, offset }
    }

    /// A history with one partition, whose log holds these numbers of producer 0.
    fn history(whats: Vec<What>, log: &[u32], committed: i64) -> History {
        let events = whats.into_iter().map(|what| Event { at: Duration::ZERO, what }).collect();
        let log = (0..).zip(log).map(|(offset, number)| (offset, value(0, *number))).collect();
        History { events, logs: BTreeMap::from([(0, log)]), committed: BTreeMap::from([(0, committed)]) }
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
            What::Gone { stint: 1, partition: 0 },
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
        assert_eq!(
            check(&read),
            [Violation::TwoValues { partition: 0, offset: 1, one: value(0, 2), other: value(0, 3) }]
        );
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
        let elsewhere = history(with(2, What::Queued { value: value(0, 3), partition: 1 }), &[1, 2, 3], 3);
        assert_eq!(check(&elsewhere), std::slice::from_ref(&phantom));
        assert!(check(&history(good(), &[1, 2], 2)).contains(&phantom), "read, and not in the log");
    }

    #[test]
    fn a_hole_in_a_log_is_seen() {
        let mut holed = history(good(), &[1, 2, 3], 3);
        holed.logs.get_mut(&0).unwrap()[2].0 = 3;
        assert!(check(&holed).contains(&Violation::Hole { partition: 0, offset: 2 }));
    }

    #[test]
    fn a_record_that_is_passed_over_is_seen() {
        let passed = |stint, offset, number| Violation::PassedOver {
            stint,
            partition: 0,
            offset,
            value: Some(value(0, number)),
        };
        let between = history(with(11, handed(2, 2, &[3])), &[1, 2, 3], 3);
        assert_eq!(check(&between), [passed(2, 1, 2)], "between batches");
        let within = What::Handed { stint: 2, partition: 0, from: 1, next: 3, records: vec![(2, value(0, 3))] };
        assert_eq!(check(&history(with(11, within), &[1, 2, 3], 3)), [passed(2, 1, 2)], "within a batch");
        let behind = What::Handed { stint: 2, partition: 0, from: 1, next: 3, records: vec![(1, value(0, 2))] };
        assert_eq!(check(&history(with(11, behind), &[1, 2, 3], 3)), [passed(2, 2, 3)], "at a batch's end");
    }

    #[test]
    fn what_is_given_again_within_an_assignment_is_seen() {
        let repeated = |offset| Violation::Repeated { stint: 2, partition: 0, offset };
        assert_eq!(check(&history(with(11, handed(2, 0, &[1, 2, 3])), &[1, 2, 3], 3)), [repeated(0)]);
        let backwards = vec![(1, value(0, 2)), (2, value(0, 3)), (1, value(0, 2))];
        let backwards = What::Handed { stint: 2, partition: 0, from: 1, next: 3, records: backwards };
        assert!(check(&history(with(11, backwards), &[1, 2, 3], 3)).contains(&repeated(1)));
    }

    #[test]
    fn records_for_one_who_does_not_have_the_partition_are_seen() {
        let mut whats = good();
        whats.push(handed(1, 2, &[3]));
        assert_eq!(check(&history(whats, &[1, 2, 3], 3)), [Violation::NotOurs { stint: 1, partition: 0 }]);
    }

    #[test]
    fn a_commit_past_what_was_handed_over_is_seen() {
        let beyond = |committed, handed| Violation::CommittedBeyond { partition: 0, committed, handed };
        let mut whats = good();
        whats.truncate(11);
        whats.push(assigned(2, Some(3)));
        assert_eq!(check(&history(whats.clone(), &[1, 2, 3], 3)), [beyond(3, 2), beyond(3, 2)], "found, and left");
        whats.pop();
        assert_eq!(check(&history(whats, &[1, 2, 3], 3)), [beyond(3, 2)], "left");
        let skipped = What::Assigned { stint: 2, partition: 0, committed: Some(1), position: 3 };
        assert!(check(&history(with(10, skipped), &[1, 2, 3], 3)).contains(&beyond(3, 2)), "begun behind the commit");
    }

    #[test]
    fn a_commit_that_is_forgotten_is_seen() {
        let forgotten = |found| Violation::CommitForgotten { partition: 0, acknowledged: 1, found };
        let mut whats = with(10, assigned(2, None));
        whats[11] = handed(2, 0, &[1, 2, 3]);
        assert_eq!(check(&history(whats, &[1, 2, 3], 3)), [forgotten(None)]);
    }

    #[test]
    fn what_waits_after_the_calm_is_seen() {
        let stuck = Violation::Stuck { partition: 0, committed: 2, end: 3 };
        assert_eq!(check(&history(good(), &[1, 2, 3], 2)), [stuck]);
        let never = History { committed: BTreeMap::new(), ..history(good(), &[1, 2, 3], 0) };
        assert_eq!(check(&never), [Violation::Stuck { partition: 0, committed: 0, end: 3 }]);
        let mut whats = good();
        whats.remove(9);
        assert_eq!(check(&history(whats, &[1, 2, 3], 3)), [Violation::Unsettled { value: value(0, 3) }]);
    }
}
