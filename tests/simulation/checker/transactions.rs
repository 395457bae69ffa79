//! Transactions against the logs: whole, apart from each other, and copies once.

use std::collections::BTreeMap;

use kafka_harbor::client::Ended;

use super::{Violation, originals};
use crate::history::{History, Txn, Value, What};
use crate::log::{Fate, Holds, Logged};
use crate::world::COPIES;

/// Everything that is wrong with transactions.
pub(super) fn check(history: &History, found: &mut Vec<Violation>) {
    let transactions = Transactions::of(history);
    whole(history, &transactions, found);
    apart(history, &transactions, found);
    ledger(history, &transactions, found);
    booked(history, found);
    copied(history, found);
}

/// What is known of a transaction.
#[derive(Default)]
struct Transaction {
    records: Vec<(Value, i32)>,
    /// The last position that it entered, by account.
    entered: Option<(i32, i64)>,
    end: Option<Ended>,
}

struct Transactions {
    /// In the order in which they began.
    all: BTreeMap<Txn, Transaction>,
}

impl Transactions {
    fn of(history: &History) -> Self {
        let mut all = BTreeMap::<Txn, Transaction>::new();
        for event in &history.events {
            match &event.what {
                What::Queued { value, partition, within: Some(txn) } => {
                    all.entry(*txn).or_default().records.push((*value, *partition));
                }
                What::Entered { within, account, offset } => {
                    all.entry(*within).or_default().entered = Some((*account, *offset));
                }
                What::Ended { txn, end } => all.entry(*txn).or_default().end = *end,
                _ => {}
            }
        }
        Self { all }
    }
}

/// The places of each value in a partition, with what became of it there.
type Places = BTreeMap<(i32, Value), Vec<(i64, Fate)>>;

/// All of a transaction is visible, or nothing.
fn whole(history: &History, transactions: &Transactions, found: &mut Vec<Violation>) {
    let mut places = Places::new();
    for (partition, log) in originals(history) {
        for logged in log {
            if let Holds::Record(value, fate) = logged.holds {
                places.entry((partition, value)).or_default().push((logged.offset, fate));
            }
        }
    }
    for (txn, transaction) in &transactions.all {
        let records = transaction.records.iter().filter(|(_, partition)| *partition < COPIES);
        let fates = |value: Value, partition: i32| places.get(&(partition, value)).map_or(&[][..], |places| places);
        let is_visible =
            |value, partition| fates(value, partition).iter().any(|(_, fate)| matches!(fate, Fate::Committed(_)));
        let any = records.clone().any(|(value, partition)| is_visible(*value, *partition));
        for (value, partition) in records {
            let (value, partition) = (*value, *partition);
            for (offset, fate) in fates(value, partition) {
                match fate {
                    Fate::Plain => found.push(Violation::Outside { value, partition, offset: *offset }),
                    Fate::Open => found.push(Violation::Undecided { value, partition }),
                    Fate::Committed(_) if transaction.end == Some(Ended::Aborted) => {
                        found.push(Violation::NotAborted { txn: *txn, value, partition });
                    }
                    Fate::Committed(_) | Fate::Aborted(_) => {}
                }
            }
            let visible = any || transaction.end == Some(Ended::Committed);
            if visible && !is_visible(value, partition) {
                found.push(Violation::CommittedInPart { txn: *txn, value, partition });
            }
        }
    }
}

/// No end is that of two transactions, and nothing is in one that was written without.
fn apart(history: &History, transactions: &Transactions, found: &mut Vec<Violation>) {
    let of: BTreeMap<(Value, i32), Txn> = transactions
        .all
        .iter()
        .flat_map(|(txn, transaction)| transaction.records.iter().map(move |record| (*record, *txn)))
        .collect();
    for (partition, log) in originals(history) {
        let mut markers = BTreeMap::<i64, Txn>::new();
        for logged in log {
            let Holds::Record(value, Fate::Committed(marker) | Fate::Aborted(marker)) = logged.holds else { continue };
            let Some(txn) = of.get(&(value, partition)) else {
                found.push(Violation::Outside { value, partition, offset: logged.offset });
                continue;
            };
            let one = *markers.entry(marker).or_insert(*txn);
            if one != *txn {
                found.push(Violation::Mixed { partition, marker, one, other: *txn });
            }
        }
    }
}

/// Positions are committed with their transactions. Those of an account come from one transactional id, one after the other.
fn ledger(history: &History, transactions: &Transactions, found: &mut Vec<Violation>) {
    // What each account may hold.
    let mut may = BTreeMap::<i32, Vec<Option<i64>>>::new();
    for transaction in transactions.all.values() {
        let Some((account, offset)) = transaction.entered else { continue };
        let may = may.entry(account).or_insert_with(|| vec![None]);
        match transaction.end {
            Some(Ended::Committed) => *may = vec![Some(offset)],
            Some(Ended::Aborted) => {}
            // It may be committed, and by when is not known.
            None => may.push(Some(offset)),
        }
    }
    for (account, may) in may {
        let held = history.ledger.get(&account).copied();
        if !may.contains(&held) {
            found.push(Violation::Ledger { account, found: held, committed: may.into_iter().flatten().max() });
        }
    }
}

/// A commit that is known is known to whoever asks. Positions tell their transactions: they are ten times its number and something.
fn booked(history: &History, found: &mut Vec<Violation>) {
    let mut entered = BTreeMap::<Txn, i64>::new();
    for event in &history.events {
        match &event.what {
            What::Entered { within, offset, .. } => drop(entered.insert(*within, *offset)),
            What::Booked { within, account, found: held } => {
                let Some(entered) = entered.get(within).copied() else { continue };
                let later = held.is_some_and(|held| held / 10 > *within as i64);
                if *held != Some(entered) && !later {
                    let (txn, account, held) = (*within, *account, *held);
                    found.push(Violation::NotBooked { txn, account, entered, found: held });
                }
            }
            _ => {}
        }
    }
}

/// The copies of a partition are what may be read of it, each once and in its order.
fn copied(history: &History, found: &mut Vec<Violation>) {
    if !history.groups.contains(&crate::history::Group::Copiers) {
        return;
    }
    let visible = |partition: i32| -> Vec<Value> {
        let log = history.logs.get(&partition).map_or(&[][..], |log| log);
        log.iter().filter_map(|logged| logged.visible(false)).collect()
    };
    for (partition, _) in originals(history) {
        let (originals, copies) = (visible(partition), visible(COPIES + partition));
        let place = originals.iter().zip(&copies).take_while(|(original, copy)| original == copy).count();
        let (original, copy) = (originals.get(place).copied(), copies.get(place).copied());
        if original.is_some() || copy.is_some() {
            found.push(Violation::Copied { partition, place, original, copy });
        }
        let undecided = history.logs.get(&(COPIES + partition)).into_iter().flatten();
        let undecided = undecided.filter(|logged| matches!(logged.holds, Holds::Record(_, Fate::Open)));
        found.extend(
            undecided
                .filter_map(Logged::value)
                .map(|value| Violation::Undecided { value, partition: COPIES + partition }),
        );
    }
}
