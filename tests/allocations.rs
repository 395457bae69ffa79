//! What reading and writing records allocates, counted.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use bytes::{BufMut, Bytes, BytesMut};
use kafka_harbor::protocol::batch::{BatchError, BatchWriter, Closing, ReadOptions, batches};
use kafka_harbor::protocol::compression::{Codec, Compression, CompressionError, compress, inflate};
use kafka_harbor::record::Timestamp;

const HEADERS: [(&[u8], Option<&[u8]>); 2] = [(b"trace-id", Some(b"4bf92f3577b34da6")), (b"attempt", None)];

fn write(buffer: Vec<u8>, compression: Compression, records: i64) -> Bytes {
    let mut writer = BatchWriter::with_buffer(compression, buffer);
    for n in 0..records {
        writer.append(Timestamp(n), Some(&n.to_be_bytes()), Some(&[7; 100]), HEADERS).unwrap();
    }
    writer.close(Closing::default()).unwrap().into_bytes()
}

fn read(bytes: Bytes) -> usize {
    let mut total = 0;
    for batch in batches(bytes, &ReadOptions::default()) {
        for record in batch.unwrap().records() {
            let record = record.unwrap();
            total += record.value.map_or(0, <[u8]>::len);
            total += record.headers.iter().map(|(name, _)| name.len()).sum::<usize>();
        }
    }
    total
}

#[test]
fn reading_allocates_nothing_a_record() {
    let bytes = write(Vec::new(), Compression::NONE, 1_000);
    let counted = allocation_counter::measure(|| assert_eq!(read(bytes.clone()), 1_000 * 115));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

#[test]
fn inflating_allocates_by_the_batch() {
    for codec in Codec::ALL.into_iter().skip(1).filter(|codec| codec.is_enabled()) {
        let few = write(Vec::new(), codec.into(), 500);
        let many = write(Vec::new(), codec.into(), 1_000);
        read(many.clone());
        let [few, many] = [few, many].map(|bytes| allocation_counter::measure(|| _ = read(bytes.clone())));
        assert!(many.count_total < 30 && many.count_total <= few.count_total + 8, "{codec}: {few:?} {many:?}");
    }
}

#[test]
fn writing_into_a_used_buffer_allocates_nothing_a_record() {
    // A buffer that held such a batch before, as a producer hands it back.
    let buffer = Vec::from(write(Vec::new(), Compression::NONE, 1_000));
    let mut batch = None;
    let counted = allocation_counter::measure(|| batch = Some(write(buffer, Compression::NONE, 1_000)));
    // One for the reference count of the bytes handed out.
    assert!(counted.count_total <= 1, "{counted:?}");
    assert_eq!(read(batch.unwrap()), 1_000 * 115);
}

#[test]
fn a_new_buffer_grows_by_doubling() {
    let counted = allocation_counter::measure(|| drop(write(Vec::new(), Compression::NONE, 1_000)));
    assert!(counted.count_total < 15, "{counted:?}");
}

/// A batch of 61 bytes that claims 2^31 - 1 records, and headers that claim as many: readers reserved for both.
#[test]
fn counts_that_lie_reserve_nothing() {
    let mut records = vec![20, 0, 0, 0, 1, 1];
    records.extend([0xfe, 0xff, 0xff, 0xff, 0x0f]); // 2^31 - 1 headers
    for (count, records) in [(i32::MAX, &[][..]), (1, &records)] {
        let mut bytes = BytesMut::zeroed(61);
        bytes.put_slice(records);
        let length = bytes.len() as i32 - 12;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[16] = 2;
        bytes[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let bytes = bytes.freeze();
        let counted = allocation_counter::measure(|| {
            let first = batches(bytes.clone(), &ReadOptions::default()).next().unwrap();
            assert!(first.is_err() || first.is_ok_and(|batch| batch.records().next().unwrap().is_err()));
        });
        assert!(counted.bytes_max < 1_024, "{counted:?}");
    }
}

/// A GB of zeros in one batch: gzip and zstd make a MB and less of it, and a reader without a ceiling dies.
#[test]
fn a_bomb_is_refused_within_a_ceiling_on_memory() {
    const CEILING: usize = 8 << 20;
    for codec in Codec::ALL.into_iter().skip(1).filter(|codec| codec.is_enabled()) {
        let bomb = bomb(codec);
        assert!(bomb.len() < 64 << 20, "{codec}");
        let counted = allocation_counter::measure(|| {
            let error = inflate(codec, &bomb, CEILING).unwrap_err();
            assert!(
                matches!(error, CompressionError::TooLarge { max_inflated_bytes: CEILING, .. }),
                "{codec}: {error}"
            );
        });
        // While a buffer grows, the old and the new one are there; beside them the codec's own tables.
        assert!(counted.bytes_max < 2 * CEILING as u64 + (1 << 20), "{codec}: {counted:?}");
    }
}

#[test]
fn a_bomb_in_a_batch_is_that_batchs_error() {
    for codec in Codec::ALL.into_iter().skip(1).filter(|codec| codec.is_enabled()) {
        let mut writer = BatchWriter::new(codec.into());
        writer.append(Timestamp(0), None, Some(&vec![0; 1 << 20]), []).unwrap();
        let batch = writer.close(Closing::default()).unwrap();
        let mut options = ReadOptions::default();
        options.max_inflated_bytes = 1 << 19;
        let error = batches(batch.into_bytes(), &options).next().unwrap().unwrap_err();
        assert!(
            matches!(error, BatchError::Compression { source: CompressionError::TooLarge { .. }, .. }),
            "{codec}: {error}"
        );
    }
}

/// A GB of zeros: a MiB, compressed, a thousand times over.
fn bomb(codec: Codec) -> Vec<u8> {
    let mut part = Vec::new();
    compress(codec.into(), &vec![0; 1 << 20], &mut part).unwrap();
    match codec {
        // One frame: its header, its blocks again and again, and its end.
        Codec::Lz4 => {
            let (header, rest) = part.split_at(7);
            let (blocks, end) = rest.split_at(rest.len() - 4);
            [header, &blocks.repeat(1_024), end].concat()
        }
        // One frame: no content size, a window of 128 KiB, and blocks that are one byte repeated 2^17 times.
        Codec::Zstd => {
            let block = |is_last: u32| ((1 << 17) << 3 | 1 << 1 | is_last).to_le_bytes();
            let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
            for n in 0..8_192 {
                frame.extend_from_slice(&block(u32::from(n == 8_191))[..3]);
                frame.push(0);
            }
            frame
        }
        // Members, or Java's streams, behind each other.
        _ => part.repeat(1_024),
    }
}
