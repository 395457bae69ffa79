//! Any bytes into the batch reader, as an answer or as the records of a batch whose header is whole.

#![no_main]

use bytes::{BufMut, Bytes, BytesMut};
use kafka_harbor::protocol::batch::{BatchView, BatchWriter, Closing, ReadOptions, RecordCursor, batches, encoded};
use kafka_harbor::protocol::compression::{Codec, Compression};
use kafka_harbor_fuzz::{ceiling, within};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, rest)) = input.split_first() else { return };
    within(ceiling(64, input, CEILING), || match mode & 3 {
        0 => answer(Bytes::copy_from_slice(rest), true),
        1 => answer(Bytes::copy_from_slice(rest), false),
        2 => wrapped(Codec::None, rest),
        _ => wrapped(Codec::ALL[usize::from(mode >> 2) % Codec::ALL.len()], rest),
    });
});

/// A batch of 1 MiB inflated, what a codec holds meanwhile, and a copy of its records.
const CEILING: u64 = 24 << 20;

fn answer(bytes: Bytes, check_crc: bool) {
    let mut options = ReadOptions::default();
    options.max_inflated_bytes = 1 << 20;
    options.check_crc = check_crc;
    for batch in encoded(bytes.clone()).flatten() {
        if let Ok(Some((first, second))) = batch.split(Compression::NONE, &options) {
            assert_eq!(first.header().record_count + second.header().record_count, batch.header().record_count);
        }
    }
    for batch in batches(bytes, &options).flatten() {
        check(&batch);
    }
}

/// A batch of these records, whose count and last offset come from the first bytes.
fn wrapped(codec: Codec, input: &[u8]) {
    let Some(([count, delta], records)) = input.split_first_chunk() else { return };
    let mut bytes = BytesMut::zeroed(61);
    bytes[16] = 2;
    bytes[22] = codec.bits();
    bytes[26] = *delta;
    bytes[60] = *count;
    bytes.put_slice(records);
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    answer(bytes.freeze(), true);
}

fn check(batch: &BatchView) {
    let _ = batch.control_kind();
    let mut cursor = RecordCursor::default();
    let mut last = None;
    let mut writer = BatchWriter::new(Compression::NONE);
    for record in batch.records() {
        let again = batch.read_at(&mut cursor).expect("the cursor sees what the iterator sees");
        let Ok(record) = record else {
            assert!(again.is_err());
            return;
        };
        assert_eq!(again.expect("the same").value, record.value);
        assert!(last.is_none_or(|last| last < record.offset) && record.offset < batch.next_offset());
        last = Some(record.offset);
        assert_eq!(record.headers.iter().count(), record.headers.len());
        if writer.append(record.timestamp, record.key, record.value, record.headers).is_err() {
            return;
        }
    }
    assert!(batch.read_at(&mut cursor).is_none());
    if writer.is_empty() {
        return;
    }
    // What could be read can be written, and reads the same.
    let copy = writer.close(Closing::default()).expect("records that were read");
    let copy = copy.open(&ReadOptions::default()).expect("a batch that was written");
    assert_eq!(copy.len(), batch.len());
    for (one, other) in batch.records().flatten().zip(copy.records().flatten()) {
        assert_eq!((one.key, one.value, one.timestamp), (other.key, other.value, other.timestamp));
        assert!(one.headers.iter().eq(other.headers.iter()));
    }
}
