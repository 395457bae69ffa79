//! Round trips, Java's bytes, and bytes that lie.

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::protocol::compression::{Codec, Compression, CompressionError};
use crate::record::{Header, LeaderEpoch, Offset, RecordView, Timestamp};

/// A record as tests compare it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plain {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<Header>,
}

impl From<RecordView<'_>> for Plain {
    fn from(view: RecordView<'_>) -> Self {
        let headers = view.headers.iter().map(|(name, value)| Header {
            name: Bytes::copy_from_slice(name),
            value: value.map(Bytes::copy_from_slice),
        });
        Self {
            offset: view.offset.0,
            timestamp: view.timestamp.0,
            key: view.key.map(<[u8]>::to_vec),
            value: view.value.map(<[u8]>::to_vec),
            headers: headers.collect(),
        }
    }
}

fn plain(offset: i64, timestamp: i64, key: Option<&str>, value: Option<&str>) -> Plain {
    let bytes = |text: &str| text.as_bytes().to_vec();
    Plain { offset, timestamp, key: key.map(bytes), value: value.map(bytes), headers: Vec::new() }
}

/// The records of every golden batch of data; the first is at this offset.
fn golden_records(first: i64) -> Vec<Plain> {
    let repeats = vec![Header::new("a", "1"), Header::null("a"), Header::new("b", "")];
    let long = ["no key"; 6].join(", ");
    vec![
        Plain { headers: repeats, ..plain(first, 1_700_000_000_000, Some("key"), Some("value")) },
        plain(first + 1, 1_700_000_000_250, None, Some(&long)),
        plain(first + 2, 1_699_999_999_999, Some("gone"), None),
        plain(first + 3, 1_700_000_000_001, Some(""), Some("")),
    ]
}

static GOLDEN: LazyLock<Vec<(&str, Bytes)>> = LazyLock::new(|| {
    let lines = include_str!("golden.txt").lines().filter(|line| !line.starts_with('#'));
    let parse = |line: &'static str| {
        let (name, hex) = line.split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (name, (0..hex.len()).step_by(2).map(byte).collect())
    };
    lines.map(parse).collect()
});

fn golden(name: &str) -> Bytes {
    GOLDEN.iter().find(|(n, _)| *n == name).unwrap().1.clone()
}

fn append(writer: &mut BatchWriter, record: &Plain) {
    let headers = record.headers.iter().map(|header| (&header.name[..], header.value.as_deref()));
    let (key, value) = (record.key.as_deref(), record.value.as_deref());
    writer.append(Timestamp(record.timestamp), key, value, headers).unwrap();
}

fn written(compression: impl Into<Compression>, records: &[Plain]) -> EncodedBatch {
    let mut writer = BatchWriter::new(compression.into());
    records.iter().for_each(|record| append(&mut writer, record));
    writer.close(Closing::default()).unwrap()
}

fn views(bytes: impl Into<Bytes>) -> Vec<BatchView> {
    batches(bytes.into(), &ReadOptions::default()).map(Result::unwrap).collect()
}

fn records(view: &BatchView) -> Vec<Plain> {
    view.records().map(|record| record.unwrap().into()).collect()
}

fn only(bytes: impl Into<Bytes>) -> BatchView {
    let mut all = views(bytes);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Some records and the batch of them with `change` made to its bytes; the checksum is made to fit.
fn tampered(change: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut bytes = BytesMut::from(&written(Codec::None, &golden_records(0)).into_bytes()[..]);
    change(&mut bytes);
    sealed(bytes)
}

/// The bytes with length and checksum that fit them.
fn sealed(mut bytes: BytesMut) -> Bytes {
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.freeze()
}

/// A batch whose header says `count` records up to `last_offset_delta`, and whose records are these bytes.
fn handmade(last_offset_delta: i32, count: i32, records: &[u8]) -> Bytes {
    let mut bytes = BytesMut::zeroed(61);
    bytes[16] = 2;
    bytes[23..27].copy_from_slice(&last_offset_delta.to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    bytes.extend_from_slice(records);
    sealed(bytes)
}

/// Whatever reading all of it first fails with, batch or record.
fn first_error(bytes: Bytes) -> BatchError {
    for batch in batches(bytes, &ReadOptions::default()) {
        match batch {
            Ok(batch) => {
                if let Some(Err(error)) = batch.records().find(Result::is_err) {
                    return error;
                }
            }
            Err(error) => return error,
        }
    }
    panic!("read without an error");
}

fn flaw(error: &BatchError) -> Flaw {
    match error {
        BatchError::Malformed { flaw, .. } | BatchError::MalformedRecord { flaw, .. } => *flaw,
        other => panic!("{other}"),
    }
}

#[test]
fn javas_batches_are_read_in_every_codec() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let view = only(golden(codec.name()));
        let first = if codec == Codec::None { 42 } else { 43 };
        assert_eq!(view.header().codec, codec);
        assert_eq!(records(&view), golden_records(first), "{codec}");
        assert_eq!(view.next_offset(), Offset(first + 4));
        assert_eq!(view.header().max_timestamp, Timestamp(1_700_000_000_250));
    }
}

#[test]
fn every_field_of_javas_header_is_read() {
    let view = only(golden("none"));
    let header = view.header();
    assert_eq!(header.base_offset, Offset(42));
    assert_eq!(header.last_offset_delta, 3);
    assert_eq!(header.leader_epoch, Some(LeaderEpoch(5)));
    assert_eq!(header.timestamp_type, TimestampType::CreateTime);
    assert_eq!(header.base_timestamp, Timestamp(1_700_000_000_000));
    assert_eq!(header.producer, Some(ProducerStamp { id: 7, epoch: 3, base_sequence: 11 }));
    assert!(header.is_transactional && !header.is_control);
    assert_eq!(header.record_count, 4);

    let unknown = *only(golden("append-time")).header();
    assert_eq!((unknown.producer, unknown.is_transactional), (None, false));
}

#[test]
fn what_is_written_is_javas_byte_for_byte() {
    let mut writer = BatchWriter::new(Compression::NONE);
    golden_records(42).iter().for_each(|record| append(&mut writer, record));
    let producer = Some(ProducerStamp { id: 7, epoch: 3, base_sequence: 11 });
    let batch = writer.close(Closing { producer, is_transactional: true, is_control: false }).unwrap();
    let batch = batch.with_base_offset(Offset(42)).unwrap().with_leader_epoch(Some(LeaderEpoch(5)));
    assert_eq!(batch.bytes(), &golden("none"));
}

/// A consumer that took the transaction marker's bytes for a control record's found "control version 8192" in it on
/// any transactional topic: the record's own envelope comes first.
#[test]
fn the_kind_of_a_control_batch_is_read_from_its_records_key() {
    for (name, kind) in [("commit", ControlKind::Commit), ("abort", ControlKind::Abort)] {
        let view = only(golden(name));
        assert!(view.is_control());
        assert_eq!(view.control_kind().unwrap(), Some(kind));
        assert_eq!(view.len(), 1);

        // The same, written here.
        let mut writer = BatchWriter::new(Compression::NONE);
        let value = ControlKind::marker_value(4);
        writer.append(Timestamp(1_700_000_000_000), Some(&kind.key()), Some(&value), []).unwrap();
        let producer = Some(ProducerStamp { id: 7, epoch: 3, base_sequence: -1 });
        let marker = writer.close(Closing { producer, is_transactional: true, is_control: true }).unwrap();
        let offset = view.header().base_offset;
        let marker = marker.with_leader_epoch(Some(LeaderEpoch(5))).with_base_offset(offset).unwrap();
        assert_eq!(marker.bytes(), &golden(name));
    }
    assert_eq!(only(golden("none")).control_kind().unwrap(), None);
}

#[test]
fn other_control_kinds_keep_their_number_and_a_short_key_is_refused() {
    let control = |key: Option<&[u8]>| {
        let mut writer = BatchWriter::new(Compression::NONE);
        writer.append(Timestamp(0), key, None, []).unwrap();
        let batch = writer.close(Closing { is_control: true, ..Closing::default() }).unwrap();
        only(batch.into_bytes()).control_kind()
    };
    assert_eq!(control(Some(&[0, 0, 0, 2])).unwrap(), Some(ControlKind::Other(2)));
    assert_eq!(control(Some(&[0, 1, 0, 1, 9, 9])).unwrap(), Some(ControlKind::Commit));
    for short in [None, Some(&[][..]), Some(&[0, 0, 0])] {
        assert_eq!(flaw(&control(short).unwrap_err()), Flaw::ControlKey);
    }
}

/// Clients that took the next offset from the last record never passed a batch that compaction had emptied.
#[test]
fn an_emptied_batch_advances_the_position() {
    let view = only(golden("empty"));
    assert!(view.is_empty());
    assert_eq!(view.records().count(), 0);
    assert_eq!(view.header().base_offset, Offset(100));
    assert_eq!(view.next_offset(), Offset(110));
    assert_eq!(view.header().producer, Some(ProducerStamp { id: 7, epoch: 3, base_sequence: 11 }));
}

#[test]
fn a_compacted_batch_covers_the_offsets_of_what_was_removed() {
    // Offsets 1 and 4 of 0 to 9 are left.
    let record = |delta: u8| [12, 0, 0, delta << 1, 1, 1, 0];
    let bytes = [record(1), record(4)].concat();
    let view = only(handmade(9, 2, &bytes));
    assert_eq!(view.records().map(|record| record.unwrap().offset.0).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(view.next_offset(), Offset(10));
}

/// The retry delay is counted from the record's time: base plus delta is the producer's, which such a topic does not
/// keep.
#[test]
fn under_log_append_time_every_record_has_the_batchs_time() {
    let view = only(golden("append-time"));
    assert_eq!(view.header().timestamp_type, TimestampType::LogAppendTime);
    let times: Vec<_> = view.records().map(|record| record.unwrap().timestamp.0).collect();
    assert_eq!(times, [1_700_000_009_999; 4]);

    let made = written(Codec::None, &golden_records(0)).with_log_append_time(Timestamp(77));
    assert!(only(made.into_bytes()).records().all(|record| record.unwrap().timestamp == Timestamp(77)));
}

/// Only the first of several compressed batches in one answer was decoded, or the offsets of the others were wrong.
#[test]
fn batches_of_different_codecs_in_one_answer_are_all_read() {
    let mut answer = BytesMut::new();
    let mut expected = Vec::new();
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let first = expected.len() as i64;
        answer.extend_from_slice(written(codec, &golden_records(0)).with_base_offset(Offset(first)).unwrap().bytes());
        expected.extend(golden_records(first));
    }
    let read: Vec<_> = views(answer.clone()).iter().flat_map(records).collect();
    assert_eq!(read, expected);

    let offsets: Vec<_> = encoded(answer.freeze()).map(|batch| batch.unwrap().header().base_offset.0).collect();
    assert_eq!(offsets, (0..offsets.len() as i64).map(|n| n * 4).collect::<Vec<_>>());
}

#[test]
fn a_cut_last_batch_is_a_normal_end() {
    let whole = golden("none");
    for cut in 0..whole.len() {
        let mut answer = BytesMut::from(&whole[..]);
        answer.extend_from_slice(&whole[..cut]);
        let mut all = batches(answer.freeze(), &ReadOptions::default());
        assert_eq!(records(&all.next().unwrap().unwrap()), golden_records(42));
        assert!(all.next().is_none(), "cut at {cut}");
        let claimed_bytes = (cut > 16).then_some(whole.len());
        let expected = (cut > 0).then_some(CutBatch { present_bytes: cut, claimed_bytes });
        assert_eq!(all.cut(), expected, "cut at {cut}");
    }
}

#[test]
fn formats_before_version_2_are_refused_by_name() {
    let error = first_error(golden("magic1"));
    assert!(matches!(error, BatchError::UnsupportedMagic { base_offset: 42, magic: 1 }), "{error}");
    let mut future = BytesMut::from(&golden("none")[..]);
    future[16] = 0xff;
    assert!(matches!(first_error(future.freeze()), BatchError::UnsupportedMagic { magic: -1, .. }));
}

#[test]
fn an_error_comes_behind_the_whole_batches_before_it_and_nothing_behind_the_error() {
    let answer = [golden("none"), golden("magic1"), golden("none")].concat();
    let mut all = batches(answer.into(), &ReadOptions::default());
    assert!(all.next().unwrap().is_ok());
    assert!(all.next().unwrap().is_err());
    assert!(all.next().is_none());
    assert_eq!(all.cut(), None);

    let damaged = tampered(|bytes| bytes[30] ^= 1);
    let mut wrong_crc = BytesMut::from(&damaged[..]);
    wrong_crc[17] ^= 1;
    let answer = [&golden("none")[..], &wrong_crc, &golden("none")].concat();
    let read: Vec<_> = batches(answer.into(), &ReadOptions::default()).map(|batch| batch.is_ok()).collect();
    assert_eq!(read, [true, false]);
}

#[test]
fn a_flipped_bit_is_a_checksum_error_and_can_be_let_through() {
    let whole = golden("none");
    for at in (21..whole.len()).chain(17..21) {
        let mut bytes = BytesMut::from(&whole[..]);
        bytes[at] ^= 0x10;
        let mut all = encoded(bytes.freeze());
        // The header's own contradictions are found first.
        let Some(Ok(batch)) = all.next() else { continue };
        assert!(matches!(batch.open(&ReadOptions::default()), Err(BatchError::Checksum { .. })), "at {at}");
    }
    let mut bytes = BytesMut::from(&whole[..]);
    bytes[17] ^= 1;
    let unchecked = ReadOptions { check_crc: false, ..ReadOptions::default() };
    let view = batches(bytes.freeze(), &unchecked).next().unwrap().unwrap();
    assert_eq!(records(&view), golden_records(42));
}

/// A 61-byte batch that claimed 2^31 - 1 records made a reader reserve hundreds of gigabytes.
#[test]
fn a_count_that_the_bytes_cannot_hold_is_refused() {
    let error = first_error(handmade(i32::MAX - 1, i32::MAX, &[]));
    assert_eq!(flaw(&error), Flaw::RecordCount);
    // More records than offsets, and a negative count.
    let two = [[12, 0, 0, 0, 1, 1, 0], [12, 0, 0, 2, 1, 1, 0]].concat();
    assert_eq!(flaw(&first_error(handmade(0, 2, &two))), Flaw::RecordCount);
    assert_eq!(flaw(&first_error(handmade(1, -1, &two))), Flaw::RecordCount);
    // One less than there are, and one more.
    assert_eq!(flaw(&first_error(handmade(1, 1, &two))), Flaw::TrailingBytes);
    assert_eq!(flaw(&first_error(handmade(9, 3, &two))), Flaw::RecordCount);
    assert_eq!(flaw(&first_error(handmade(9, 0, &two))), Flaw::TrailingBytes);
}

#[test]
fn batch_lengths_that_cannot_be_are_refused() {
    for length in [-1, i32::MIN, 0, 48] {
        let mut bytes = BytesMut::from(&golden("none")[..]);
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        let error = first_error(bytes.freeze());
        assert!(matches!(error, BatchError::Malformed { flaw: Flaw::BatchLength(l), .. } if l == length), "{error}");
    }
}

#[test]
fn offsets_that_overflow_or_go_back_are_refused() {
    for (base, delta) in [(-1_i64, 3_i32), (i64::MIN, 3), (i64::MAX, 3), (i64::MAX - 3, 3), (0, -1), (0, i32::MIN)] {
        let bytes = tampered(|bytes| {
            bytes[..8].copy_from_slice(&base.to_be_bytes());
            bytes[23..27].copy_from_slice(&delta.to_be_bytes());
        });
        assert_eq!(flaw(&first_error(bytes)), Flaw::Offset, "{base} {delta}");
    }
    let last = tampered(|bytes| bytes[..8].copy_from_slice(&(i64::MAX - 4).to_be_bytes()));
    assert_eq!(only(last).next_offset(), Offset(i64::MAX));

    let record = |delta: u8| [12, 0, 0, delta, 1, 1, 0];
    for deltas in [[2, 0], [2, 2], [0, 1], [0, 20]] {
        let bytes = deltas.map(record).concat();
        let view = only(handmade(9, 2, &bytes));
        let read: Vec<_> = view.records().map(|record| record.map_err(|error| flaw(&error))).collect();
        let [first, second] = &read[..] else { panic!("{read:?}") };
        assert!(first.is_ok() && matches!(second, Err(Flaw::Offset)), "{deltas:?}");
    }
}

#[test]
fn times_are_added_with_care() {
    let delta = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]; // i64::MAX
    let record = [&[30, 0][..], &delta, &[0, 1, 1, 0]].concat();
    assert_eq!(only(handmade(0, 1, &record)).records().next().unwrap().unwrap().timestamp, Timestamp(i64::MAX));
    let late = |base: i64| {
        let mut bytes = BytesMut::from(&handmade(0, 1, &record)[..]);
        bytes[27..35].copy_from_slice(&base.to_be_bytes());
        first_error(sealed(bytes))
    };
    assert_eq!(flaw(&late(1)), Flaw::Timestamp);

    let mut writer = BatchWriter::new(Compression::NONE);
    writer.append(Timestamp(i64::MIN), None, None, []).unwrap();
    writer.append(Timestamp(-1), None, None, []).unwrap();
    assert!(matches!(writer.append(Timestamp(0), None, None, []), Err(WriteError::Timestamp)));
    let view = only(writer.close(Closing::default()).unwrap().into_bytes());
    let times: Vec<_> = view.records().map(|record| record.unwrap().timestamp.0).collect();
    assert_eq!(times, [i64::MIN, -1]);
}

#[test]
fn records_that_contradict_themselves_are_refused_at_their_place() {
    let whole = [12, 0, 0, 0, 1, 1, 0];
    let cases: &[(&str, &[u8], Flaw)] = &[
        ("longer than the batch", &[14, 0, 0, 2, 1, 1, 0], Flaw::RecordLength),
        ("negative length", &[1, 0, 0, 2, 1, 1, 0], Flaw::RecordLength),
        ("overlong length", &[0x8c, 0x80, 0x80, 0x80, 0x80, 0, 0], Flaw::RecordLength),
        ("no attributes", &[0, 0, 0, 2, 1, 1, 0], Flaw::Field),
        ("length ends within a field", &[8, 0, 0, 2, 1, 1, 0], Flaw::Field),
        ("bytes behind the headers", &[14, 0, 0, 2, 1, 1, 0, 0], Flaw::RecordLength),
        ("key past the record", &[12, 0, 0, 2, 4, 1, 0], Flaw::Field),
        ("key length below null", &[12, 0, 0, 2, 3, 1, 0], Flaw::Field),
        ("value past the record", &[12, 0, 0, 2, 1, 4, 0], Flaw::Field),
        ("negative header count", &[12, 0, 0, 2, 1, 1, 1], Flaw::Headers),
        ("headers that are not there", &[12, 0, 0, 2, 1, 1, 2], Flaw::Headers),
        ("two billion headers", &[20, 0, 0, 2, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f], Flaw::Headers),
        ("null header name", &[16, 0, 0, 2, 1, 1, 2, 1, 1], Flaw::Headers),
        ("header value past the record", &[16, 0, 0, 2, 1, 1, 2, 0, 2], Flaw::Headers),
        ("overlong offset delta", &[24, 0, 0, 0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 1, 1, 0], Flaw::Field),
    ];
    for (name, malformed, expected) in cases {
        let bytes = [&whole[..], malformed].concat();
        let view = only(handmade(9, 2, &bytes));
        let mut all = view.records();
        assert!(all.next().unwrap().is_ok(), "{name}");
        let error = all.next().unwrap().unwrap_err();
        assert!(matches!(error, BatchError::MalformedRecord { index: 1, .. }), "{name}: {error}");
        assert_eq!(flaw(&error), *expected, "{name}");
        assert!(all.next().is_none(), "{name}");
    }
}

#[test]
fn codecs_that_do_not_exist_and_bytes_they_did_not_write_are_refused() {
    for bits in 5..8 {
        let error = first_error(tampered(|bytes| bytes[22] = bits));
        assert_eq!(flaw(&error), Flaw::UnknownCodec(bits));
    }
    for codec in Codec::ALL.into_iter().skip(1) {
        let error = first_error(tampered(|bytes| bytes[22] = codec.bits()));
        let BatchError::Compression { source, base_offset: 0 } = error else { panic!("{error}") };
        match source {
            CompressionError::Malformed { .. } => assert!(codec.is_enabled()),
            CompressionError::Disabled { .. } => assert!(!codec.is_enabled()),
            other => panic!("{codec}: {other}"),
        }
    }
}

#[test]
fn the_ceiling_on_inflated_bytes_holds_for_each_batch() {
    for codec in Codec::ALL.into_iter().skip(1).filter(|codec| codec.is_enabled()) {
        let zeros = Plain { value: Some(vec![0; 100_000]), ..plain(0, 0, None, None) };
        let batch = written(codec, &[zeros]);
        assert!(batch.bytes().len() < 20_000, "{codec}");
        let low = ReadOptions { max_inflated_bytes: 99_999, ..ReadOptions::default() };
        let error = batch.open(&low).unwrap_err();
        let BatchError::Compression { source: CompressionError::TooLarge { .. }, .. } = error else {
            panic!("{error}")
        };
        assert!(batch.open(&ReadOptions::default()).is_ok());
    }
}

#[test]
fn a_cursor_goes_on_where_it_stood_and_stays_before_an_error() {
    let view = only(golden("none"));
    let mut cursor = RecordCursor::default();
    let mut read = Vec::new();
    while let Some(record) = view.clone().read_at(&mut cursor) {
        read.push(Plain::from(record.unwrap()));
    }
    assert_eq!(read, golden_records(42));
    assert!(view.read_at(&mut cursor).is_none());

    let view = only(handmade(9, 2, &[12, 0, 0, 0, 1, 1, 0, 14, 0, 0, 2, 1, 1, 0]));
    let mut cursor = RecordCursor::default();
    view.read_at(&mut cursor).unwrap().unwrap();
    let before = cursor;
    for _ in 0..2 {
        assert!(view.read_at(&mut cursor).unwrap().is_err());
        assert_eq!(cursor, before);
    }
}

#[test]
fn shared_bytes_are_the_batchs_own_and_foreign_ones_are_copied() {
    let view = only(golden("none"));
    let record = view.records().next().unwrap().unwrap();
    let value = view.share(record.value.unwrap());
    assert_eq!(value, "value");
    assert_eq!(value.as_ptr(), record.value.unwrap().as_ptr());
    assert_eq!(view.share(b""), "");
    assert_eq!(view.share(b"elsewhere"), "elsewhere");
}

#[test]
fn a_record_that_does_not_fit_leaves_the_batch_as_it_was() {
    let mut writer = BatchWriter::new(Compression::NONE);
    let mut sizes = vec![writer.encoded_bytes()];
    for n in 0..100 {
        writer.append(Timestamp(n), Some(b"key"), Some(&[0; 10]), []).unwrap();
        sizes.push(writer.encoded_bytes());
    }
    let mut bounded = BatchWriter::new(Compression::NONE);
    let limit = sizes[50];
    let mut taken = 0;
    while bounded.append_within(limit, Timestamp(taken), Some(b"key"), Some(&[0; 10]), []).unwrap().is_some() {
        taken += 1;
    }
    assert_eq!((taken, bounded.encoded_bytes(), bounded.record_count()), (50, limit, 50));
    // A smaller one still fits, and what was refused left nothing behind.
    assert_eq!(bounded.append_within(limit + 8, Timestamp(50), None, None, []).unwrap(), Some(50));
    let batch = bounded.close(Closing::default()).unwrap();
    assert_eq!(batch.bytes().len(), limit + 7);
    assert_eq!(only(batch.into_bytes()).len(), 51);
}

#[test]
fn a_batch_without_records_is_not_written() {
    assert!(matches!(BatchWriter::new(Compression::NONE).close(Closing::default()), Err(WriteError::Empty)));
}

#[test]
fn a_used_buffer_leaves_nothing_of_what_it_held() {
    let clean = written(Codec::None, &golden_records(0));
    let mut writer = BatchWriter::with_buffer(Compression::NONE, vec![0xee; 500]);
    golden_records(0).iter().for_each(|record| append(&mut writer, record));
    assert_eq!(writer.close(Closing::default()).unwrap(), clean);
}

#[test]
fn a_renumbered_batch_differs_in_its_producer_alone() {
    let batch = written(Codec::None, &golden_records(0));
    let stamp = ProducerStamp { id: 9, epoch: 1, base_sequence: i32::MAX - 1 };
    let shared = batch.clone();
    let renumbered = batch.with_producer(Some(stamp));
    assert_eq!(renumbered.header().producer, Some(stamp));
    let view = only(renumbered.bytes().clone());
    assert_eq!(records(&view), golden_records(0));
    // Those who held the bytes before still hold them as they were.
    assert_eq!(shared.header().producer, None);
    shared.check_crc().unwrap();
    assert_eq!(renumbered.with_producer(None), shared);
}

#[test]
fn sequences_wrap_to_zero_behind_the_largest() {
    let stamp = |base_sequence| ProducerStamp { id: 1, epoch: 0, base_sequence };
    assert_eq!(stamp(0).advanced_by(5), stamp(5));
    assert_eq!(stamp(i32::MAX).advanced_by(1), stamp(0));
    assert_eq!(stamp(i32::MAX - 2).advanced_by(5), stamp(2));
}

/// A batch that was split never became smaller than the topic's limit, or lost its order: halves do, down to one
/// record.
#[test]
fn splitting_keeps_every_record_in_order_and_follows_the_sequence() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let records_in: Vec<_> = (0..5).flat_map(|n| golden_records(n * 4)).take(17).collect();
        let stamp = ProducerStamp { id: 1, epoch: 2, base_sequence: i32::MAX - 3 };
        let mut pending = vec![written(codec, &records_in).with_producer(Some(stamp))];
        let mut done = Vec::new();
        let mut next = stamp;
        while let Some(batch) = pending.pop() {
            match batch.split(codec.into(), &ReadOptions::default()).unwrap() {
                Some((first, second)) => {
                    assert!(first.header().record_count.abs_diff(second.header().record_count) <= 1);
                    pending.extend([second, first]);
                }
                None => {
                    assert_eq!(batch.header().producer, Some(next));
                    next = next.advanced_by(1);
                    done.extend(records(&only(batch.into_bytes())));
                }
            }
        }
        let done: Vec<_> = (0..).zip(done).map(|(offset, record)| Plain { offset, ..record }).collect();
        assert_eq!(done, records_in);
    }
}

fn any_record() -> impl Strategy<Value = Plain> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max);
    let field = move |max| prop::option::of(bytes(max));
    let header =
        (bytes(40), field(40)).prop_map(|(name, value)| Header { name: name.into(), value: value.map(Bytes::from) });
    (-4_000_000_000_000_i64..4_000_000_000_000, field(80), field(300), prop::collection::vec(header, 0..4))
        .prop_map(|(timestamp, key, value, headers)| Plain { offset: 0, timestamp, key, value, headers })
}

proptest! {
    #[test]
    fn what_is_written_is_read_in_every_codec(records_in in prop::collection::vec(any_record(), 1..40)) {
        let records_in: Vec<_> = (0..).zip(records_in).map(|(offset, record)| Plain { offset, ..record }).collect();
        for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
            let batch = written(codec, &records_in);
            let header = *batch.header();
            let view = only(batch.into_bytes());
            prop_assert_eq!(view.header(), &header);
            prop_assert_eq!(&records(&view), &records_in);
            prop_assert_eq!(header.max_timestamp.0, records_in.iter().map(|record| record.timestamp).max().unwrap());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for batch in batches(bytes.into(), &ReadOptions::default()).flatten() {
            let _ = (batch.records().count(), batch.control_kind());
        }
    }

    #[test]
    fn damaged_batches_never_panic(at: prop::sample::Index, byte: u8, which in 0..10_usize) {
        let mut bytes = BytesMut::from(&GOLDEN[which].1[..]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let unchecked = ReadOptions { check_crc: false, ..ReadOptions::default() };
        for batch in batches(bytes.freeze(), &unchecked).flatten() {
            let last = batch.records().filter_map(Result::ok).last().map(|record| record.offset);
            prop_assert!(last.is_none_or(|last| last < batch.next_offset()));
            let _ = batch.control_kind();
        }
    }
}
