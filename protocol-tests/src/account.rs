//! Whether a ledger shows that every record was handled, in order, and again only where a crash explains it.

use std::collections::{BTreeMap, BTreeSet};

use kafka_harbor::record::{Offset, TopicPartition};

use crate::{Entry, Stored, What};

/// A ledger, and what may have made deliveries begin anew.
#[derive(Debug, Default)]
pub struct Account {
    /// What the handlers wrote.
    pub entries: Vec<Entry>,
    /// In the order they happened.
    pub interruptions: Vec<Interruption>,
}

/// Something that ends deliveries before they are committed: a killed process, or partitions that were lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interruption {
    /// The process that it happened to.
    pub pid: u32,
    /// How many entries the ledger had then.
    pub after: usize,
    /// What the group had committed, at least, once it had happened. What is missing had no position.
    pub committed: BTreeMap<TopicPartition, Offset>,
}

/// What an [`Account`] comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// Deliveries.
    pub runs: usize,
    /// Records.
    pub records: usize,
    /// The most that could have been repeated: what had begun and was not committed at each interruption.
    pub window: usize,
    /// Interruptions at which there was any such.
    pub at_work: usize,
}

impl Account {
    /// Goes through the ledger partition by partition.
    ///
    /// Each partition was handled from its first offset up to `ends`, one record after the other, without a gap. A delivery
    /// began anew only where the process that had the partition was interrupted since, and no earlier than at what was
    /// committed then. Every delivery ended, but those that were under way at an interruption.
    ///
    /// # Errors
    /// With the first thing that is otherwise.
    pub fn balance(&self, ends: &BTreeMap<TopicPartition, Offset>) -> Result<Balance, String> {
        let mut partitions: BTreeMap<TopicPartition, Vec<(usize, &Entry)>> = BTreeMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let partition = TopicPartition::new(entry.topic.as_str(), entry.partition);
            partitions.entry(partition).or_default().push((index, entry));
        }
        let mut balance = Balance::default();
        let mut at_work = BTreeSet::new();
        for (partition, entries) in &partitions {
            let end = ends.get(partition).ok_or_else(|| format!("{partition} was handled and does not exist"))?;
            self.walk(partition, entries, *end, &mut balance, &mut at_work)?;
        }
        for (partition, end) in ends {
            if end.0 > 0 && !partitions.contains_key(partition) {
                return Err(format!("{partition} has {end} records, and none was handled"));
            }
        }
        balance.at_work = at_work.len();
        if balance.runs - balance.records > balance.window {
            return Err(format!("more was repeated than was under way: {balance:?}"));
        }
        Ok(balance)
    }

    fn walk(
        &self,
        partition: &TopicPartition,
        entries: &[(usize, &Entry)],
        end: Offset,
        balance: &mut Balance,
        at_work: &mut BTreeSet<usize>,
    ) -> Result<(), String> {
        let mut next = 0;
        // The delivery that began last, and whether it ended.
        let mut last: Option<(usize, &Entry, bool)> = None;
        for (index, entry) in entries {
            let told = |what: &str| format!("{partition} at line {}: {what}: {entry:?}, after {last:?}", index + 1);
            if entry.what != What::Begin {
                let begun = last
                    .filter(|(_, begun, ended)| (begun.pid, begun.offset, *ended) == (entry.pid, entry.offset, false));
                let Some((since, begun, _)) = begun else { return Err(told("an end without a beginning")) };
                last = Some((since, begun, true));
                continue;
            }
            let between = |pid: u32, since: usize| {
                let found = self.interruptions.iter().enumerate();
                found.filter(move |(_, it)| it.pid == pid && since < it.after && it.after <= *index)
            };
            if let Some((since, begun, ended)) = last {
                let mut interrupted = between(begun.pid, since).peekable();
                if !ended && interrupted.peek().is_none() {
                    return Err(told("the delivery before did not end"));
                }
                if entry.offset != next {
                    let lowest =
                        interrupted.map(|(_, it)| it.committed.get(partition).map_or(0, |offset| offset.0)).min();
                    match lowest {
                        None => return Err(told("out of order, and nobody was interrupted")),
                        Some(lowest) if entry.offset < lowest => {
                            return Err(told(&format!("begins anew before {lowest}, which was committed")));
                        }
                        Some(_) if entry.offset > next => return Err(told(&format!("{next} was passed over"))),
                        Some(_) => {}
                    }
                }
            } else if entry.offset != 0 {
                return Err(told("does not begin with the first record"));
            }
            next = entry.offset + 1;
            balance.runs += 1;
            last = Some((*index, entry, false));
        }
        match last {
            Some((_, _, true)) if next == end.0 => {}
            _ => return Err(format!("{partition} ends at {end}, and the last delivery was {last:?}")),
        }
        balance.records += next as usize;
        for (at, interruption) in self.interruptions.iter().enumerate() {
            let begun = entries.iter().take_while(|(index, _)| *index < interruption.after);
            let begun = begun.filter(|(_, entry)| entry.what == What::Begin).last();
            let Some((_, begun)) = begun.filter(|(_, entry)| entry.pid == interruption.pid) else { continue };
            let committed = interruption.committed.get(partition).map_or(0, |offset| offset.0);
            let window = (begun.offset + 1 - committed).max(0) as usize;
            if window > 0 {
                balance.window += window;
                at_work.insert(at);
            }
        }
        Ok(())
    }

    /// Compares a topic with what failed before: `from` are the topics whose failures lead there.
    ///
    /// Every record whose last delivery failed is there, and none more often than it failed.
    ///
    /// # Errors
    /// With the first record that is otherwise.
    pub fn hops(&self, from: &str, to: &[Stored]) -> Result<(), String> {
        let mut failures: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.topic == from) {
            let (failed, last) = failures.entry(&entry.value).or_default();
            match entry.what {
                What::Begin => {}
                What::Done => *last = false,
                What::Failed => (*failed, *last) = (*failed + 1, true),
            }
        }
        let mut copies: BTreeMap<&str, usize> = BTreeMap::new();
        to.iter().for_each(|stored| *copies.entry(stored.text()).or_default() += 1);
        for (value, copies) in &copies {
            let failed = failures.get(value).map_or(0, |(failed, _)| *failed);
            if *copies > failed {
                return Err(format!("{value} failed {failed} times on {from} and went on {copies} times"));
            }
        }
        let lost = failures.iter().find(|(value, (_, last))| *last && !copies.contains_key(*value));
        lost.map_or(Ok(()), |(value, _)| Err(format!("{value} failed on {from} and never went on")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process, how many entries the ledger had, and what was committed.
    type Kill = (u32, usize, i64);

    fn entries(text: &str) -> Vec<Entry> {
        let entry = |word: &str| {
            let (what, rest) = word.split_at(1);
            let (pid, offset) = rest.split_once('/').unwrap();
            let what = match what {
                "b" => What::Begin,
                "d" => What::Done,
                _ => What::Failed,
            };
            Entry {
                what,
                pid: pid.parse().unwrap(),
                topic: "t".to_owned(),
                partition: 0,
                offset: offset.parse().unwrap(),
                attempt: 1,
                value: format!("v{offset}"),
            }
        };
        text.split_whitespace().map(entry).collect()
    }

    fn balance(text: &str, kills: &[Kill], end: i64) -> Result<Balance, String> {
        let partition = TopicPartition::new("t", 0);
        let interruptions = kills.iter().map(|(pid, after, committed)| Interruption {
            pid: *pid,
            after: *after,
            committed: BTreeMap::from([(partition.clone(), Offset(*committed))]),
        });
        let account = Account { entries: entries(text), interruptions: interruptions.collect() };
        account.balance(&BTreeMap::from([(partition, Offset(end))]))
    }

    #[test]
    fn what_a_crash_explains_balances() {
        let balanced = Balance { runs: 2, records: 2, window: 0, at_work: 0 };
        assert_eq!(balance("b1/0 d1/0 b2/1 f2/1", &[], 2), Ok(balanced));
        // Killed with one delivery finished and uncommitted and one under way.
        let killed = balance("b1/0 d1/0 b1/1 d1/1 b1/2 b2/1 d2/1 b2/2 d2/2", &[(1, 5, 1)], 3);
        assert_eq!(killed, Ok(Balance { runs: 5, records: 3, window: 2, at_work: 1 }));
        let idle = balance("b1/0 d1/0 b2/1 d2/1", &[(1, 2, 1)], 2);
        assert_eq!(idle, Ok(Balance { runs: 2, records: 2, window: 0, at_work: 0 }));
    }

    #[test]
    fn what_nothing_explains_does_not() {
        let table: [(&str, &[Kill], i64, &str); 9] = [
            ("b1/0 d1/0 b1/0 d1/0", &[], 1, "nobody was interrupted"),
            ("b1/0 d1/0 b1/2 d1/2", &[], 3, "nobody was interrupted"),
            ("b1/0 d1/0 b1/2 d1/2", &[(1, 2, 0)], 3, "1 was passed over"),
            ("b1/0 d1/0 b2/0 d2/0", &[(2, 2, 0)], 1, "nobody was interrupted"),
            ("b1/0 d1/0 b1/1 b2/0 d2/0 b2/1 d2/1", &[(1, 3, 1)], 2, "before 1, which was committed"),
            ("b1/1 d1/1", &[], 2, "the first record"),
            ("b1/0 d1/0", &[], 2, "ends at 2"),
            ("b1/0", &[], 1, "ends at 1"),
            ("b1/0 b1/1 d1/1", &[], 2, "did not end"),
        ];
        for (text, kills, end, why) in table {
            let error = balance(text, kills, end).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(balance("", &[], 1).unwrap_err().contains("none was handled"));
    }

    #[test]
    fn a_hop_is_there_and_not_more_often_than_it_failed() {
        let account = Account { entries: entries("b1/0 f1/0 b1/1 d1/1 b2/0 f2/0"), interruptions: Vec::new() };
        let stored = |values: &[&str]| -> Vec<Stored> {
            let stored = |value: &&str| Stored {
                partition: 0,
                offset: 0,
                timestamp: 0,
                key: None,
                value: Some(value.to_string().into()),
                headers: Vec::new(),
            };
            values.iter().map(stored).collect()
        };
        assert_eq!(account.hops("t", &stored(&["v0"])), Ok(()));
        assert_eq!(account.hops("t", &stored(&["v0", "v0"])), Ok(()));
        assert!(account.hops("t", &stored(&["v0", "v0", "v0"])).unwrap_err().contains("3 times"));
        assert!(account.hops("t", &stored(&[])).unwrap_err().contains("never went on"));
        assert!(account.hops("t", &stored(&["v0", "v1"])).unwrap_err().contains("v1 failed 0 times"));
    }
}
