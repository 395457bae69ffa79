//! What a partition holds, record by record, and what became of each.

use std::collections::BTreeMap;
use std::fmt;

use kafka_harbor::protocol::batch::{BatchView, EncodedBatch, ReadOptions};
use kafka_harbor::record::Offset;

use super::history::Value;

/// What is at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) offset: i64,
    pub(crate) holds: Holds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// The end of a transaction.
    Marker,
    Record(Value, Fate),
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Written without a transaction.
    Plain,
    /// By the marker at this offset.
    Committed(i64),
    Aborted(i64),
    /// Its transaction is not decided.
    Open,
}

impl Logged {
    /// The record there, whatever became of it.
    pub(crate) fn value(&self) -> Option<Value> {
        match self.holds {
            Holds::Record(value, _) => Some(value),
            Holds::Marker => None,
        }
    }

    /// The record there, if one may be read.
    pub(crate) fn visible(&self, uncommitted: bool) -> Option<Value> {
        match self.holds {
            Holds::Record(value, Fate::Plain | Fate::Committed(_)) => Some(value),
            Holds::Record(value, _) if uncommitted => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.holds {
            Holds::Marker => write!(f, "{} marker", self.offset),
            Holds::Record(value, fate) => write!(f, "{} {value} {fate:?}", self.offset),
        }
    }
}

/// What the batches of a log hold.
pub(crate) fn read(batches: &[EncodedBatch]) -> Vec<Logged> {
    let mut log: Vec<Logged> = Vec::new();
    // Of each producer, the places of what is not decided yet.
    let mut open = BTreeMap::<i64, Vec<usize>>::new();
    for batch in batches {
        let view = batch.open(&ReadOptions::default()).unwrap();
        let header = *batch.header();
        let producer = header.producer.map(|producer| producer.id);
        if header.is_control {
            let offset = header.base_offset.0;
            let fate = if commits(&view) { Fate::Committed(offset) } else { Fate::Aborted(offset) };
            for place in open.remove(&producer.unwrap()).unwrap_or_default() {
                let Holds::Record(value, _) = log[place].holds else { unreachable!("a marker is decided") };
                log[place].holds = Holds::Record(value, fate);
            }
            log.push(Logged { offset, holds: Holds::Marker });
            continue;
        }
        for (offset, value) in values(&view, Offset(0)) {
            let fate = if header.is_transactional { Fate::Open } else { Fate::Plain };
            if header.is_transactional {
                open.entry(producer.unwrap()).or_default().push(log.len());
            }
            log.push(Logged { offset, holds: Holds::Record(value, fate) });
        }
    }
    log
}

/// The records of a batch from this offset on.
pub(crate) fn values(view: &BatchView, from: Offset) -> Vec<(i64, Value)> {
    let records = view.records().map(|record| record.unwrap()).filter(|record| record.offset >= from);
    let value = |bytes: Option<&[u8]>| std::str::from_utf8(bytes.unwrap()).unwrap().parse().unwrap();
    records.map(|record| (record.offset.0, value(record.value))).collect()
}

/// Whether a control batch is a commit: the key of its record is a version and a kind, of 16 bits each.
fn commits(view: &BatchView) -> bool {
    let record = view.records().next().unwrap().unwrap();
    record.key.unwrap()[2..4] == [0, 1]
}
