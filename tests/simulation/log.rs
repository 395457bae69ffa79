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

/// What is there, behind what was before it.
pub(crate) fn with_deleted(mut deleted: Vec<EncodedBatch>, there: Vec<EncodedBatch>) -> Vec<EncodedBatch> {
    if let Some(first) = there.first() {
        deleted.retain(|batch| batch.header().base_offset < first.header().base_offset);
    }
    deleted.extend(there);
    deleted
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

#[cfg(test)]
mod tests {
    use kafka_harbor::protocol::batch::{BatchWriter, Closing, ControlKind, ProducerStamp};
    use kafka_harbor::protocol::compression::Compression;
    use kafka_harbor::record::Timestamp;

    use super::*;

    const TRANSACTIONAL: i64 = 7;

    fn batch(at: i64, key: Option<&[u8]>, value: &[u8], closing: Closing) -> EncodedBatch {
        let mut writer = BatchWriter::new(Compression::NONE);
        writer.append(Timestamp(0), key, Some(value), []).unwrap();
        writer.close(closing).unwrap().with_base_offset(Offset(at)).unwrap()
    }

    fn of(is_transactional: bool, is_control: bool) -> Closing {
        let producer = ProducerStamp { id: TRANSACTIONAL, epoch: 0, base_sequence: if is_control { -1 } else { 0 } };
        Closing { producer: is_transactional.then_some(producer), is_transactional, is_control }
    }

    fn within(at: i64, value: &str) -> EncodedBatch {
        batch(at, None, value.as_bytes(), of(true, false))
    }

    fn plain(at: i64, value: &str) -> EncodedBatch {
        batch(at, None, value.as_bytes(), of(false, false))
    }

    fn marker(at: i64, kind: ControlKind) -> EncodedBatch {
        batch(at, Some(&kind.key()), &ControlKind::marker_value(0), of(true, true))
    }

    fn told(deleted: Vec<EncodedBatch>, there: Vec<EncodedBatch>) -> Vec<String> {
        read(&with_deleted(deleted, there)).iter().map(Logged::to_string).collect()
    }

    /// Seed 7315: who reads what is not committed had passed an open transaction, its records were deleted, and it was aborted
    /// behind them. They were taken to be open for ever.
    #[test]
    fn a_transaction_whose_records_were_deleted_is_decided_by_a_later_marker() {
        let deleted = vec![within(0, "1-1"), plain(1, "0-1")];
        let there = |kind| vec![plain(2, "0-2"), marker(3, kind)];
        let aborted = told(deleted.clone(), there(ControlKind::Abort));
        assert_eq!(aborted, ["0 1-1 Aborted(3)", "1 0-1 Plain", "2 0-2 Plain", "3 marker"]);
        let committed = told(deleted.clone(), there(ControlKind::Commit));
        assert_eq!(committed[0], "0 1-1 Committed(3)");
        assert_eq!(told(deleted, Vec::new()), ["0 1-1 Open", "1 0-1 Plain"], "nothing is left");
    }

    #[test]
    fn what_was_to_be_deleted_and_is_there_is_there_once() {
        let remembered = vec![plain(0, "0-1"), plain(1, "0-2"), plain(2, "0-3")];
        let there = vec![plain(1, "0-2"), plain(2, "0-4"), plain(3, "0-5")];
        assert_eq!(told(remembered, there), ["0 0-1 Plain", "1 0-2 Plain", "2 0-4 Plain", "3 0-5 Plain"]);
    }
}
