//! What cannot be, whatever happened.
//!
//! In the manner of Jepsen's checker for Kafka, for writes by idempotent producers and by transactional ones, groups that deliver at least
//! once, and one that copies exactly once: what may come again may not be missing. What a partition holds at the end is what
//! happened; the observations are held against it.

mod transactions;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_harbor::error::WriteOutcome;

use super::history::{Group, History, Stint, Txn, Value, What};
use super::log::{Holds, Logged};
use super::world::{COPIES, REQUEST_TIMEOUT};

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
    /// A log without anything at an offset before its end.
    Hole { partition: i32, offset: i64 },
    /// A consumer was led past a record.
    PassedOver { stint: Stint, partition: i32, offset: i64, value: Option<Value> },
    /// A consumer was given an offset again within one assignment, or out of order.
    Repeated { stint: Stint, partition: i32, offset: i64 },
    /// Records for one who does not have the partition.
    NotOurs { stint: Stint, partition: i32 },
    /// A position behind records that nobody was given.
    CommittedBeyond { group: Group, partition: i32, committed: i64, handed: i64 },
    /// A commit that was acknowledged, and was not there for a later owner whose commits were taken, too.
    CommitForgotten { group: Group, partition: i32, acknowledged: i64, found: Option<i64> },
    /// After the calm, records wait.
    Stuck { group: Group, partition: i32, committed: i64, end: i64 },
    /// After the calm, a producer has not said what became of a record.
    Unsettled { value: Value, partition: i32 },
    /// Where all is quiet, a record was not written.
    NotTaken { value: Value, partition: i32, outcome: WriteOutcome },
    /// Where all is quiet, a member lost a partition that nobody had asked it to give back.
    Expelled { stint: Stint, partition: i32 },
    /// One who reads what is committed was given what was taken back.
    AbortedRead { stint: Stint, partition: i32, offset: i64, value: Value },
    /// Of a transaction that was committed, or of which something is visible, this is not.
    CommittedInPart { txn: Txn, value: Value, partition: i32 },
    /// Its producer was told that it is aborted, and this is visible.
    NotAborted { txn: Txn, value: Value, partition: i32 },
    /// Written in a transaction, and not part of one, or the other way round.
    Outside { value: Value, partition: i32, offset: i64 },
    /// One end for records of two transactions.
    Mixed { partition: i32, marker: i64, one: Txn, other: Txn },
    /// After the calm, a transaction is not decided.
    Undecided { value: Value, partition: i32 },
    /// The ledger holds a position of a transaction that was not committed, or has lost that of one that was.
    Ledger { account: i32, found: Option<i64>, committed: Option<i64> },
    /// When a commit was known, the ledger held neither its position nor that of a later transaction.
    NotBooked { txn: Txn, account: i32, entered: i64, found: Option<i64> },
    /// A copy is another one, or has none, or has no original.
    Copied { partition: i32, place: usize, original: Option<Value>, copy: Option<Value> },
    /// The operator was told otherwise.
    Topic { name: &'static str, told: bool },
    /// A position that was set and acknowledged, and read as an older one.
    Unset { acknowledged: i64, found: Option<i64> },
}

/// Everything that is wrong with a history.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let logs = Logs::of(history);
    written(history, &logs, &mut found);
    logged(history, &logs, &mut found);
    transactions::check(history, &mut found);
    read(history, &logs, &mut found);
    drained(history, &mut found);
    administered(history, &mut found);
    quiet(history, &mut found);
    found
}

/// The logs, to look into.
struct Logs<'a>(&'a BTreeMap<i32, Vec<Logged>>);

impl<'a> Logs<'a> {
    fn of(history: &'a History) -> Self {
        Self(&history.logs)
    }

    /// What is there in this range of offsets.
    fn range(&self, partition: i32, from: i64, to: i64) -> &'a [Logged] {
        let log = self.0.get(&partition).map_or(&[][..], |log| log);
        let place = |offset| log.partition_point(|logged| logged.offset < offset);
        &log[place(from)..place(to).max(place(from))]
    }

    fn at(&self, partition: i32, offset: i64) -> Option<(Value, &'a Logged)> {
        let logged = self.range(partition, offset, offset + 1).first()?;
        match logged.holds {
            Holds::Record(value, _) => Some((value, logged)),
            Holds::Marker => None,
        }
    }

    /// Whoever saw `value` at this place saw what is there.
    fn agree(&self, partition: i32, offset: i64, value: Value) -> Result<(), Option<Violation>> {
        match self.at(partition, offset) {
            Some((one, _)) if one == value => Ok(()),
            Some((one, _)) => Err(Some(Violation::TwoValues { partition, offset, one, other: value })),
            None => Err(None),
        }
    }

    fn has(&self, partition: i32, value: Value) -> bool {
        self.range(partition, 0, i64::MAX).iter().any(|logged| logged.value() == Some(value))
    }
}

/// Producers against the logs.
fn written(history: &History, logs: &Logs<'_>, found: &mut Vec<Violation>) {
    let mut queued = BTreeSet::new();
    let mut settled = BTreeSet::new();
    let mut refused = BTreeSet::new();
    for event in &history.events {
        match &event.what {
            What::Queued { value, partition, .. } => {
                queued.insert((*value, *partition));
                // What is copied again is settled again.
                settled.remove(&(*value, *partition));
            }
            What::Acknowledged { value, partition, offset } => {
                settled.insert((*value, *partition));
                let there = match offset {
                    Some(offset) => logs.agree(*partition, *offset, *value),
                    None => logs.has(*partition, *value).then_some(()).ok_or(None),
                };
                let lost = || Violation::Lost { value: *value, partition: *partition, offset: *offset };
                found.extend(there.err().map(|two| two.unwrap_or_else(lost)));
            }
            What::Failed { value, partition, outcome } => {
                settled.insert((*value, *partition));
                if *outcome == WriteOutcome::NotWritten {
                    refused.insert((*value, *partition));
                }
            }
            _ => {}
        }
    }
    let unsettled = queued.iter().filter(|place| place.1 < COPIES && !settled.contains(place));
    found.extend(unsettled.map(|(value, partition)| Violation::Unsettled { value: *value, partition: *partition }));
    for (partition, log) in originals(history) {
        for value in log.iter().filter_map(Logged::value) {
            if !queued.contains(&(value, partition)) || refused.contains(&(value, partition)) {
                found.push(Violation::Phantom { value, partition });
            }
        }
    }
}

/// The logs by themselves.
fn logged(history: &History, logs: &Logs<'_>, found: &mut Vec<Violation>) {
    for (partition, log) in &history.logs {
        if let Some((offset, _)) = (0..).zip(log).find(|(place, logged)| logged.offset != *place) {
            found.push(Violation::Hole { partition: *partition, offset });
        }
    }
    let excused = excused(history, logs);
    let mut places = BTreeMap::<Value, Vec<(i32, i64)>>::new();
    for (partition, log) in originals(history) {
        let mut last = BTreeMap::<usize, Value>::new();
        for (offset, value) in log.iter().filter_map(|logged| Some((logged.offset, logged.value()?))) {
            places.entry(value).or_default().push((partition, offset));
            if let Some(before) = last.insert(value.producer, value)
                && before > value
                && !excused.contains(&value)
            {
                found.push(Violation::Inverted { partition, offset, before, after: value });
            }
        }
    }
    let twice = places.into_iter().filter(|(value, places)| places.len() > 1 && !excused.contains(value));
    found.extend(twice.map(|(value, places)| Violation::Twice { value, places }));
}

/// What may be written again because its leader forgot its producer while a request with it may have been under way: before the producer had
/// its answer, or after, where that took so long that a try of it may have gone unanswered. That try comes when the network lets it through,
/// and to a broker that remembers nothing it is new. No client can help it. A follower that comes back when what it lacks is deleted has
/// forgotten, too: it begins anew where the leader's log begins.
fn excused(history: &History, logs: &Logs<'_>) -> BTreeSet<Value> {
    let mut waiting = BTreeMap::<i32, BTreeMap<Value, Duration>>::new();
    let mut astray = BTreeMap::<i32, BTreeSet<Value>>::new();
    let mut excused = BTreeSet::new();
    for event in &history.events {
        match &event.what {
            What::Queued { value, partition, .. } => {
                waiting.entry(*partition).or_default().insert(*value, event.at);
            }
            What::Acknowledged { value, partition, .. } | What::Failed { value, partition, .. } => {
                let since = waiting.entry(*partition).or_default().remove(value);
                if since.is_some_and(|since| event.at.saturating_sub(since) >= REQUEST_TIMEOUT) {
                    astray.entry(*partition).or_default().insert(*value);
                }
            }
            What::ForgotProducers { partition } => {
                excused.extend(waiting.get(partition).into_iter().flat_map(BTreeMap::keys));
                excused.extend(astray.get(partition).into_iter().flatten());
            }
            What::Deleting { partition, before } => {
                let waiting = waiting.entry(*partition).or_default();
                let astray = astray.entry(*partition).or_default();
                let deleted = logs.range(*partition, 0, *before).iter().filter_map(Logged::value);
                excused.extend(deleted.filter(|value| waiting.contains_key(value) || astray.contains(value)));
            }
            _ => {}
        }
    }
    excused
}

fn originals(history: &History) -> impl Iterator<Item = (i32, &Vec<Logged>)> {
    history.logs.range(..COPIES).map(|(partition, log)| (*partition, log))
}

/// What is known of a partition's readers in a group, as the history goes on.
#[derive(Default)]
struct Readers {
    /// Where each who has it goes on.
    next: BTreeMap<Stint, i64>,
    /// Everything before it was given to somebody, or covered by a batch.
    handed: i64,
    /// The furthest commit that was acknowledged, with whose it was and when.
    acknowledged: Option<(i64, Stint, Duration)>,
    commits: Commits,
    /// Who began behind it, with what was acknowledged and what each found. One that was expelled since it had asked is told its beginning
    /// late, when a successor has committed: nothing of it is taken any more. Any other commits.
    behind: BTreeMap<Stint, (i64, Option<i64>)>,
}

impl Readers {
    /// Takes in a batch.
    fn hand(&mut self, from: i64, next: i64, deleted: i64) {
        if from <= self.handed.max(deleted) {
            self.handed = self.handed.max(next);
        }
    }
}

/// Commits of which a request may have gone astray, and come when the network lets it through.
///
/// It sets a group back behind later commits, and no answer tells that. A member that stays commits once more when none can come any more; one
/// that goes before does not, and the next one reads again what it had read.
#[derive(Default)]
struct Commits {
    tried: BTreeMap<(Stint, i64), Duration>,
    astray: BTreeSet<(Stint, i64)>,
    gone: BTreeMap<Stint, Duration>,
}

impl Commits {
    fn decide(&mut self, stint: Stint, offset: i64, at: Duration) {
        let since = self.tried.remove(&(stint, offset));
        if since.is_some_and(|since| at.saturating_sub(since) >= REQUEST_TIMEOUT) {
            self.astray.insert((stint, offset));
        }
    }

    /// Whether a request for `offset` may have come behind the commit that was acknowledged, of one who did not stay.
    fn may_have_set_back(&self, offset: i64, (_, stint, at): (i64, Stint, Duration)) -> bool {
        let went = self.gone.get(&stint).is_some_and(|gone| *gone < at + 2 * REQUEST_TIMEOUT);
        went && (self.astray.contains(&(stint, offset)) || self.tried.contains_key(&(stint, offset)))
    }
}

/// Consumers against the logs.
fn read(history: &History, logs: &Logs<'_>, found: &mut Vec<Violation>) {
    let mut partitions = BTreeMap::<(Group, i32), Readers>::new();
    let mut deleted = BTreeMap::<i32, i64>::new();
    for event in &history.events {
        match &event.what {
            What::Assigned { stint, partition, committed, position } => {
                let readers = partitions.entry((stint.group, *partition)).or_default();
                readers.next.insert(*stint, *position);
                assigned((*stint, *partition), readers, *committed, *position, found);
            }
            What::Handed { stint, partition, from, next, records } => {
                let readers = partitions.entry((stint.group, *partition)).or_default();
                let deleted = deleted.get(partition).copied().unwrap_or(0);
                let uncommitted = history.uncommitted.contains(&stint.group);
                let reader = Reader { stint: *stint, partition: *partition, uncommitted, deleted };
                reader.handed(readers, (*from, *next), records, logs, found);
            }
            What::Sought { stint, partition, offset } => {
                let readers = partitions.entry((stint.group, *partition)).or_default();
                readers.next.entry(*stint).and_modify(|next| *next = *offset);
            }
            What::Gone { stint, partition, .. } => {
                let readers = partitions.entry((stint.group, *partition)).or_default();
                readers.next.remove(stint);
                readers.commits.gone.insert(*stint, event.at);
            }
            What::Committing { stint, partition, offset } => {
                let readers = partitions.entry((stint.group, *partition)).or_default();
                readers.commits.tried.entry((*stint, *offset)).or_insert(event.at);
            }
            What::NotCommitted { stint, partition, offset } => {
                let readers = partitions.entry((stint.group, *partition)).or_default();
                readers.commits.decide(*stint, *offset, event.at);
            }
            What::Committed { stint, partition, offset } => {
                let readers = partitions.entry((stint.group, *partition)).or_default();
                readers.commits.decide(*stint, *offset, event.at);
                if let Some((acknowledged, found_there)) = readers.behind.remove(stint) {
                    let (group, partition) = (stint.group, *partition);
                    found.push(Violation::CommitForgotten { group, partition, acknowledged, found: found_there });
                }
                if readers.acknowledged.is_none_or(|(furthest, ..)| *offset > furthest) {
                    readers.acknowledged = Some((*offset, *stint, event.at));
                }
            }
            What::Deleting { partition, before } => {
                let deleted = deleted.entry(*partition).or_default();
                *deleted = (*before).max(*deleted);
            }
            _ => {}
        }
    }
    for ((group, partition), committed) in &history.committed {
        let handed = partitions.get(&(*group, *partition)).map_or(0, |readers| readers.handed);
        if *committed > handed {
            let (group, partition, committed) = (*group, *partition, *committed);
            found.push(Violation::CommittedBeyond { group, partition, committed, handed });
        }
    }
}

fn assigned(
    (stint, partition): (Stint, i32),
    readers: &mut Readers,
    committed: Option<i64>,
    position: i64,
    found: &mut Vec<Violation>,
) {
    let (group, handed) = (stint.group, readers.handed);
    if let Some(committed) = committed.filter(|committed| *committed > handed) {
        found.push(Violation::CommittedBeyond { group, partition, committed, handed });
    } else if position > handed {
        // Without a commit it begins at the oldest record, of which none is deleted before it is committed.
        found.push(Violation::CommittedBeyond { group, partition, committed: position, handed });
    }
    if let Some(acknowledged) = readers.acknowledged.filter(|(offset, ..)| Some(*offset) > committed)
        && !committed.is_some_and(|found| readers.commits.may_have_set_back(found, acknowledged))
    {
        readers.behind.insert(stint, (acknowledged.0, committed));
    }
}

/// Who was handed something.
struct Reader {
    stint: Stint,
    partition: i32,
    uncommitted: bool,
    /// What is before it may be deleted.
    deleted: i64,
}

impl Reader {
    fn handed(
        &self,
        readers: &mut Readers,
        (from, next): (i64, i64),
        records: &[(i64, Value)],
        logs: &Logs<'_>,
        found: &mut Vec<Violation>,
    ) {
        let (stint, partition) = (self.stint, self.partition);
        let Some(expected) = readers.next.insert(stint, next) else {
            readers.next.remove(&stint);
            found.push(Violation::NotOurs { stint, partition });
            return;
        };
        if from > expected && from > self.deleted {
            found.push(self.passed(expected, logs));
        }
        if from < expected {
            found.push(Violation::Repeated { stint, partition, offset: from });
        }
        let mut at = from;
        for (offset, value) in records {
            if *offset < at || *offset >= next {
                found.push(Violation::Repeated { stint, partition, offset: *offset });
            }
            found.extend(self.left_out(at, *offset, logs));
            match logs.agree(partition, *offset, *value) {
                Ok(()) => {}
                Err(Some(two)) => found.push(two),
                Err(None) => found.push(Violation::Phantom { value: *value, partition }),
            }
            let taken_back = logs.at(partition, *offset).filter(|(_, there)| there.visible(self.uncommitted).is_none());
            if taken_back.is_some() {
                found.push(Violation::AbortedRead { stint, partition, offset: *offset, value: *value });
            }
            at = offset + 1;
        }
        found.extend(self.left_out(at, next, logs));
        readers.hand(from, next, self.deleted);
    }

    /// The first record in this range that should have been handed over.
    fn left_out(&self, from: i64, to: i64, logs: &Logs<'_>) -> Option<Violation> {
        let range = logs.range(self.partition, from, to);
        let first = range.iter().find(|logged| logged.visible(self.uncommitted).is_some());
        match first {
            Some(logged) => Some(self.passed(logged.offset, logs)),
            // Nothing is there at all.
            None if from < to && range.is_empty() => Some(self.passed(from, logs)),
            None => None,
        }
    }

    fn passed(&self, offset: i64, logs: &Logs<'_>) -> Violation {
        let value = logs.at(self.partition, offset).map(|(value, _)| value);
        Violation::PassedOver { stint: self.stint, partition: self.partition, offset, value }
    }
}

/// The end against the logs.
fn drained(history: &History, found: &mut Vec<Violation>) {
    for group in &history.groups {
        for (partition, log) in originals(history) {
            let end = log.last().map_or(0, |last| last.offset + 1);
            let committed = history.committed.get(&(*group, partition)).copied().unwrap_or(0);
            if committed < end {
                found.push(Violation::Stuck { group: *group, partition, committed, end });
            }
        }
    }
}

/// What the operator was told against what is.
fn administered(history: &History, found: &mut Vec<Violation>) {
    let mut topics = BTreeMap::new();
    let mut acknowledged = None;
    for event in &history.events {
        match &event.what {
            What::Topic { name, exists, really } => {
                topics.insert(*name, *exists);
                let told = exists.filter(|told| told != really);
                found.extend(told.map(|told| Violation::Topic { name, told }));
            }
            What::Set { offset, acknowledged: true } => acknowledged = Some(*offset),
            What::Read { offset } if *offset < acknowledged => {
                let acknowledged = acknowledged.expect("more than something");
                found.push(Violation::Unset { acknowledged, found: *offset });
            }
            _ => {}
        }
    }
    for (name, told) in topics {
        if let Some(told) = told
            && told != history.topics.contains(name)
        {
            found.push(Violation::Topic { name, told });
        }
    }
}

/// What nobody has a reason for any more. Copies are left out: one who copies starts over when its group rebalances.
fn quiet(history: &History, found: &mut Vec<Violation>) {
    let mut written = BTreeSet::new();
    for event in history.events.iter().skip_while(|event| event.what != What::Quiet) {
        match &event.what {
            What::Queued { value, partition, .. } if *partition < COPIES => drop(written.insert((*value, *partition))),
            What::Failed { value, partition, outcome } if written.contains(&(*value, *partition)) => {
                found.push(Violation::NotTaken { value: *value, partition: *partition, outcome: *outcome });
            }
            What::Gone { stint, partition, lost: true } => {
                found.push(Violation::Expelled { stint: *stint, partition: *partition });
            }
            _ => {}
        }
    }
}
