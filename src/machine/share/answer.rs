//! From a ShareFetch answer to each partition's acquired records. Pure work on bytes, done outside of any lock.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::share_fetch_response::{AcquiredRecords, PartitionData};

use crate::machine::fetch::{Budget, Lease};
use crate::protocol::batch::{self, BatchError, BatchView, ReadOptions};
use crate::protocol::compression::Codec;
use crate::record::Offset;

/// Records next to each other that were acquired together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcquiredRange {
    /// The first.
    pub first: Offset,
    /// The last, included.
    pub last: Offset,
    /// How often they were delivered, this time included: 1 at first.
    pub delivery_count: u16,
}

/// What was acquired of one partition, opened.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) batches: Vec<BatchView>,
    /// Data records alone, in order.
    pub(crate) acquired: Vec<AcquiredRange>,
    /// Acquired offsets that hold no record, to be acknowledged as such.
    pub(crate) gaps: Vec<(i64, i64)>,
    /// Acquired, but not in the answer: to be released.
    pub(crate) missing: Vec<(i64, i64)>,
    /// What cannot be read, and from where on. Left alone: its lock ends by itself, and it is delivered again, until the
    /// broker has done so as often as it may.
    pub(crate) flaw: Option<(Offset, BatchError)>,
    /// Of what is held in memory.
    pub(crate) lease: Option<Lease>,
}

/// Opens what was acquired of one partition.
pub(crate) fn open(data: &mut PartitionData, options: &ReadOptions, budget: &Arc<Budget>) -> Opened {
    let wanted = sound_ranges(&data.acquired_records);
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Opened::default() };
    let (first, last) = (first.first.0, last.last.0);
    let records = data.records.take().unwrap_or_default();
    let mut opened = Opened::default();
    let mut present = Vec::new();
    let mut covered = first;
    let bytes = read(records, options, (first, last), &mut opened, &mut present, &mut covered);
    opened.lease = (bytes > 0).then(|| Lease::new(None, budget.take(bytes), bytes));
    let unread = opened.flaw.as_ref().map_or(i64::MAX, |(from, _)| from.0);
    for range in wanted {
        split(range, &present, covered, unread, &mut opened);
    }
    opened
}

/// Opens the batches that are asked for; returns how many bytes they keep.
fn read(
    records: Bytes,
    options: &ReadOptions,
    (first, last): (i64, i64),
    opened: &mut Opened,
    present: &mut Vec<(i64, i64)>,
    covered: &mut i64,
) -> usize {
    let (mut inflated, mut in_place, whole) = (0, false, records.len());
    for encoded in batch::encoded(records) {
        let encoded = match encoded {
            Ok(encoded) => encoded,
            Err(error) => {
                opened.flaw = Some((Offset(*covered), error));
                break;
            }
        };
        let header = *encoded.header();
        let next = header.next_offset().0;
        if next <= first || header.base_offset.0 > last || header.is_control {
            *covered = next.max(*covered);
            continue;
        }
        let view = match encoded.open(options) {
            Ok(view) => view,
            Err(error) => {
                opened.flaw = Some((header.base_offset, error));
                break;
            }
        };
        match header.codec {
            Codec::None => in_place = true,
            _ => inflated += view.records_bytes(),
        }
        let flaw = note_present(&view, present);
        opened.batches.push(view);
        if let Some(flaw) = flaw {
            opened.flaw = Some(flaw);
            break;
        }
        *covered = next.max(*covered);
    }
    inflated + if in_place { whole } else { 0 }
}

/// Which offsets have a record. All are read: one that cannot be must not be acknowledged with the others.
fn note_present(view: &BatchView, present: &mut Vec<(i64, i64)>) -> Option<(Offset, BatchError)> {
    let mut next = view.header().base_offset;
    for record in view.records() {
        match record {
            Ok(record) => {
                add(present, record.offset.0, record.offset.0);
                next = record.offset.next();
            }
            Err(error) => return Some((next, error)),
        }
    }
    None
}

fn add(present: &mut Vec<(i64, i64)>, first: i64, last: i64) {
    match present.last_mut() {
        Some((_, end)) if *end >= first.saturating_sub(1) => *end = last.max(*end),
        _ => present.push((first, last)),
    }
}

/// Takes a range apart: what has a record, what has none, and what the answer left out.
fn split(range: AcquiredRange, present: &[(i64, i64)], covered: i64, unread: i64, opened: &mut Opened) {
    let mut at = range.first.0;
    let end = range.last.0.min(unread.saturating_sub(1));
    while at <= end {
        let next = present.partition_point(|(_, last)| *last < at);
        let (first, last) = present.get(next).copied().unwrap_or((i64::MAX, i64::MAX));
        if first <= at {
            let last = last.min(end);
            opened.acquired.push(AcquiredRange { first: Offset(at), last: Offset(last), ..range });
            at = last.saturating_add(1);
            continue;
        }
        let until = end.min(first.saturating_sub(1));
        if at < covered {
            let until = until.min(covered - 1);
            opened.gaps.push((at, until));
            at = until.saturating_add(1);
        } else {
            opened.missing.push((at, until));
            at = until.saturating_add(1);
        }
        if at == i64::MAX {
            return;
        }
    }
}

/// In order, and without what cannot be.
fn sound_ranges(acquired: &[AcquiredRecords]) -> Vec<AcquiredRange> {
    let mut ranges: Vec<_> = acquired
        .iter()
        .filter(|range| 0 <= range.first_offset && range.first_offset <= range.last_offset)
        .filter(|range| range.last_offset < i64::MAX)
        .map(|range| AcquiredRange {
            first: Offset(range.first_offset),
            last: Offset(range.last_offset),
            delivery_count: u16::try_from(range.delivery_count).unwrap_or(0),
        })
        .collect();
    ranges.sort_by_key(|range| range.first);
    let mut end = -1;
    ranges.retain(|range| {
        let sound = range.first.0 > end;
        if sound {
            end = range.last.0;
        }
        sound
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::batch::{BatchWriter, Closing, ControlKind};
    use crate::protocol::compression::Compression;
    use crate::record::Timestamp;

    fn batch(base: i64, values: &[&str], is_control: bool) -> Vec<u8> {
        let mut writer = BatchWriter::new(Compression::NONE);
        let key = is_control.then(|| ControlKind::Commit.key());
        for value in values {
            writer.append(Timestamp(0), key.as_deref(), Some(value.as_bytes()), []).unwrap();
        }
        let closed = writer.close(Closing { is_control, ..Closing::default() }).unwrap();
        closed.with_base_offset(Offset(base)).unwrap().bytes().to_vec()
    }

    fn opened(records: Vec<u8>, acquired: &[(i64, i64, i16)]) -> Opened {
        let acquired = acquired.iter().map(|(first, last, count)| {
            AcquiredRecords::default().with_first_offset(*first).with_last_offset(*last).with_delivery_count(*count)
        });
        let mut data =
            PartitionData::default().with_records(Some(records.into())).with_acquired_records(acquired.collect());
        open(&mut data, &ReadOptions::default(), &Budget::new(1 << 20))
    }

    fn ranges(opened: &Opened) -> Vec<(i64, i64, u16)> {
        opened.acquired.iter().map(|range| (range.first.0, range.last.0, range.delivery_count)).collect()
    }

    #[test]
    fn what_was_acquired_is_told_with_its_count_and_nothing_else() {
        let records = [batch(0, &["a", "b", "c"], false), batch(3, &["d"], false)].concat();
        let opened = opened(records, &[(1, 1, 2), (2, 2, 1)]);
        assert_eq!(ranges(&opened), [(1, 1, 2), (2, 2, 1)]);
        assert_eq!(opened.batches.len(), 1, "the other holds nothing that was acquired");
        assert_eq!((opened.gaps, opened.missing), (vec![], vec![]));
        assert!(opened.flaw.is_none() && opened.lease.is_some());
    }

    #[test]
    fn offsets_without_a_record_are_gaps_and_those_behind_the_answer_are_missing() {
        let records = [batch(0, &["a"], false), batch(1, &["marker"], true), batch(4, &["b"], false)].concat();
        let opened = opened(records, &[(0, 6, 1)]);
        assert_eq!(ranges(&opened), [(0, 0, 1), (4, 4, 1)]);
        assert_eq!((opened.gaps, opened.missing), (vec![(1, 3)], vec![(5, 6)]));
    }

    #[test]
    fn records_that_cannot_be_read_are_neither_handed_over_nor_acknowledged() {
        let mut second = batch(2, &["c"], false);
        *second.last_mut().unwrap() ^= 1;
        let opened = opened([batch(0, &["a", "b"], false), second].concat(), &[(0, 9, 1)]);
        assert_eq!(ranges(&opened), [(0, 1, 1)]);
        assert_eq!(opened.flaw.as_ref().map(|(from, _)| *from), Some(Offset(2)));
        assert_eq!((opened.gaps, opened.missing), (vec![], vec![]));
    }

    #[test]
    fn ranges_that_cannot_be_are_passed_over() {
        let acquired = [(5, 4, 1), (-1, 0, 1), (0, i64::MAX, 1), (1, 1, 1), (0, 1, -7), (1, 2, 1)];
        let opened = opened(batch(0, &["a", "b"], false), &acquired);
        assert_eq!(ranges(&opened), [(0, 1, 0)]);
        assert_eq!(self::opened(Vec::new(), &[(3, 4, 1)]).missing, [(3, 4)]);
    }
}
