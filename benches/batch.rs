//! Reading and writing record batches of 1,000 records with 100-byte values, beside `kafka-protocol`'s record layer.
//!
//! `cargo bench --bench batch`; the throughput line counts records, so its inverse is the time a record.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{Criterion, Throughput};
use indexmap::IndexMap;
use kafka_harbor::protocol::batch::{BatchWriter, Closing, ReadOptions, batches};
use kafka_harbor::protocol::compression::{Codec, Compression, compress, inflate};
use kafka_harbor::record::{HeadersView, RecordView, Timestamp};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records;

const RECORDS: u64 = 1_000;
const NOW: i64 = 1_764_500_000_000;
type Headers = [(&'static [u8], Option<&'static [u8]>)];
const TWO_HEADERS: &Headers = &[(b"trace-id", Some(b"4bf92f3577b34da6")), (b"attempt", Some(b"1"))];

/// What the records of a run look like.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    key: bool,
    headers: &'static Headers,
}

const SHAPES: [Shape; 3] = [
    Shape { name: "no key", key: false, headers: &[] },
    Shape { name: "key", key: true, headers: &[] },
    Shape { name: "key, two headers", key: true, headers: TWO_HEADERS },
];

/// Keys of 10 and values of 100 bytes, each record's own.
fn payloads() -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..RECORDS)
        .map(|n| {
            let value =
                format!("{{\"order\":{n:08},\"customer\":\"c-{:06}\",\"items\":[{:05},{:05}],", n * 7, n * 3, n * 11);
            (format!("key-{n:06}").into_bytes(), format!("{value:<100}").into_bytes())
        })
        .collect()
}

fn write(buffer: Vec<u8>, shape: Shape, payloads: &[(Vec<u8>, Vec<u8>)]) -> Bytes {
    let mut writer = BatchWriter::with_buffer(Compression::NONE, buffer);
    for (n, (key, value)) in payloads.iter().enumerate() {
        let timestamp = Timestamp(NOW + n as i64 / 10);
        let key = shape.key.then_some(&key[..]);
        writer.append(timestamp, key, Some(value), shape.headers.iter().copied()).expect("within bounds");
    }
    writer.close(Closing::default()).expect("records").into_bytes()
}

fn sum(record: &RecordView<'_>) -> usize {
    record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len)
}

fn sum_headers(headers: HeadersView<'_>) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len)).sum()
}

fn read(c: &mut Criterion) {
    let payloads = payloads();
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Elements(RECORDS));
    for shape in SHAPES {
        let bytes = write(Vec::new(), shape, &payloads);
        group.bench_function(format!("crc alone, {}", shape.name), |b| {
            b.iter(|| crc32c::crc32c(black_box(&bytes[21..])))
        });
        group.bench_function(format!("ours, {}", shape.name), |b| {
            b.iter(|| {
                let mut total = 0;
                for batch in batches(black_box(&bytes).clone(), &ReadOptions::default()) {
                    for record in batch.expect("whole").records() {
                        let record = record.expect("whole");
                        total += sum(&record) + record.timestamp.0 as usize + record.offset.0 as usize;
                        if !shape.headers.is_empty() {
                            total += sum_headers(record.headers);
                        }
                    }
                }
                total
            });
        });
        group.bench_function(format!("kafka-protocol, {}", shape.name), |b| {
            b.iter(|| {
                let mut bytes = black_box(&bytes).clone();
                let set = records::RecordBatchDecoder::decode(&mut bytes).expect("whole");
                set.records.iter().map(|record| record.value.as_ref().map_or(0, Bytes::len)).sum::<usize>()
            });
        });
    }
    group.finish();
}

fn write_batches(c: &mut Criterion) {
    let payloads = payloads();
    let mut group = c.benchmark_group("write");
    group.throughput(Throughput::Elements(RECORDS));
    for shape in SHAPES {
        let mut spare = Vec::with_capacity(256 << 10);
        group.bench_function(format!("ours, {}", shape.name), |b| {
            b.iter(|| {
                let bytes = write(std::mem::take(&mut spare), shape, black_box(&payloads));
                spare = bytes.into();
            });
        });
        let owned: Vec<_> = payloads.iter().enumerate().map(|(n, pair)| theirs(n, pair, shape)).collect();
        let options = records::RecordEncodeOptions { version: 2, compression: records::Compression::None };
        let mut buffer = BytesMut::with_capacity(256 << 10);
        group.bench_function(format!("kafka-protocol, {}", shape.name), |b| {
            b.iter(|| {
                buffer.clear();
                records::RecordBatchEncoder::encode(&mut buffer, black_box(&owned).iter(), &options).expect("encodes");
            });
        });
    }
    group.finish();
}

fn theirs(n: usize, (key, value): &(Vec<u8>, Vec<u8>), shape: Shape) -> records::Record {
    let headers: IndexMap<_, _> = shape
        .headers
        .iter()
        .map(|(name, value)| {
            let name = String::from_utf8(name.to_vec()).expect("ASCII");
            (StrBytes::from_string(name), value.map(Bytes::from_static))
        })
        .collect();
    records::Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: -1,
        producer_epoch: -1,
        timestamp_type: records::TimestampType::Creation,
        offset: n as i64,
        sequence: n as i32,
        timestamp: NOW + n as i64 / 10,
        key: shape.key.then(|| Bytes::copy_from_slice(key)),
        value: Some(Bytes::copy_from_slice(value)),
        headers,
    }
}

/// In bytes a second of what is inflated.
fn codecs(c: &mut Criterion) {
    let plain = write(Vec::new(), SHAPES[1], &payloads());
    let plain = &plain[61..];
    let mut group = c.benchmark_group("codec");
    group.throughput(Throughput::Bytes(plain.len() as u64));
    for codec in Codec::ALL.into_iter().filter(|codec| *codec != Codec::None && codec.is_enabled()) {
        let mut packed = Vec::new();
        compress(codec.into(), plain, &mut packed).expect("compresses");
        group.bench_function(format!("{codec} compress"), |b| {
            let mut out = Vec::new();
            b.iter(|| {
                out.clear();
                compress(codec.into(), black_box(plain), &mut out).expect("compresses");
            });
        });
        group.bench_function(format!("{codec} inflate"), |b| {
            b.iter(|| inflate(codec, black_box(&packed), 100 << 20).expect("inflates"));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    read(&mut criterion);
    write_batches(&mut criterion);
    codecs(&mut criterion);
    criterion.final_summary();
}
