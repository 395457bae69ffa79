//! The client alone: producer and group member.
use bytes::Bytes;
use common::*;
use kafka_harbor::client::{
    Assigned, Client, CommitPosition, Consumer, ConsumerEvent, OffsetReset, PartitionBatch, Producer, Tls,
};
use kafka_harbor::protocol::compression::Codec;
use kafka_harbor::record::{Header, Offset, Record, RecordRef, Topic};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

const CLOSE: Duration = Duration::from_secs(30);

pub fn connect(a: &Args) -> Client {
    let client = Client::builder([a.bootstrap()]).client_id("bench");
    match a.get("tls") {
        Some(ca) => client.tls(tls(a, ca)),
        None => client,
    }
    .build()
    .unwrap()
}

/// `--tls CA`, by `--provider graviola` (default), `ring` or `aws-lc-rs`. The suite is the broker's, which has one alone.
fn tls(a: &Args, ca: &str) -> Tls {
    let provider = match a.str("provider", "graviola").as_str() {
        "graviola" => rustls_graviola::default_provider(),
        "ring" => rustls::crypto::ring::default_provider(),
        "aws-lc-rs" => rustls::crypto::aws_lc_rs::default_provider(),
        other => panic!("{other}"),
    };
    Tls::builder(provider).authorities_file(ca).build().unwrap()
}

fn producer(a: &Args, buffer_kib: u64) -> Producer {
    let p = connect(a)
        .producer()
        .linger(Duration::from_millis(a.num("linger-ms", 5)))
        .batch_bytes(a.num("batch-size", 131072) as usize)
        .buffer_bytes(a.num("buffer-kib", buffer_kib) as usize * 1024);
    match a.compression().as_str() {
        "lz4" => p.compression(Codec::Lz4),
        "zstd" => p.compression(Codec::Zstd),
        _ => p,
    }
    .build()
    .unwrap()
}

pub async fn produce_batches(a: &Args) {
    let (topic, n, h, vals) = (Topic::from(a.topic()), a.records(), a.num("headers", 0), Values::load(a));
    let p = producer(a, 4096);
    let call = a.num("call", n);
    let keys: Vec<[u8; 8]> = (0..n).map(u64::to_be_bytes).collect();
    let headers: &[(&[u8], Option<&[u8]>)] = &[(H1.0.as_bytes(), Some(H1.1)), (H2.0.as_bytes(), Some(H2.1))];
    let headers = &headers[..h as usize];
    let ph = Phase::new();
    let (mut errors, mut sent) = (0u64, 0);
    while sent < n {
        let upto = n.min(sent + call);
        let records =
            (sent..upto).map(|i| RecordRef::new(vals.get(i)).with_key(&keys[i as usize]).with_headers(headers));
        if let Err(e) = p.send_batch(topic.clone(), records).await {
            errors += e.failed() as u64;
        }
        sent = upto;
    }
    ph.done(n, n * (8 + vals.size as u64), errors, "");
    p.close(CLOSE).await.unwrap();
}

pub async fn produce_futures(a: &Args) {
    let (topic, n, h, vals) = (Topic::from(a.topic()), a.records(), a.num("headers", 0), Values::load(a));
    let all = Bytes::from(vals.data.clone());
    let p = producer(a, 32768);
    let ph = Phase::new();
    let mut errors = 0u64;
    let (mut q, window) = (VecDeque::new(), a.num("window", 20_000) as usize);
    for i in 0..n {
        let at = (i % vals.count as u64) as usize * vals.size;
        // A slice of a shared buffer, as krafka's program has it. The key is a fresh 8 bytes.
        let mut r = Record::new(topic.clone(), all.slice(at..at + vals.size)).with_key(i.to_be_bytes().to_vec());
        if h > 0 {
            r.headers = vec![header(H1), header(H2)];
        }
        q.push_back(p.enqueue(r).await.unwrap());
        if q.len() > window {
            errors += q.pop_front().unwrap().await.is_err() as u64;
        }
    }
    p.flush().await;
    for f in q {
        errors += f.await.is_err() as u64;
    }
    ph.done(n, n * (8 + vals.size as u64), errors, "");
    p.close(CLOSE).await.unwrap();
}

fn header((name, value): (&'static str, &'static [u8])) -> Header {
    Header::new(Bytes::from_static(name.as_bytes()), Bytes::from_static(value))
}

pub async fn latency(a: &Args) {
    let (topic, n, vals) = (Topic::from(a.topic()), a.records(), Values::load(a));
    let all = Bytes::from(vals.data.clone());
    let p = producer(a, 32768);
    let warm = 200;
    let mut ns = Vec::with_capacity(n as usize);
    let mut ph = Phase::new();
    for i in 0..n + warm {
        if i == warm {
            ph = Phase::new();
        }
        let at = (i % vals.count as u64) as usize * vals.size;
        let t = Instant::now();
        p.send(Record::new(topic.clone(), all.slice(at..at + vals.size)).with_key(i.to_be_bytes().to_vec()))
            .await
            .unwrap();
        if i >= warm {
            ns.push(t.elapsed().as_nanos() as u64);
        }
    }
    ph.done(n, 0, 0, &percentiles(ns));
}

fn consumer(a: &Args) -> Consumer {
    let topics = a.topic();
    topics
        .split(',')
        .fold(connect(a).consumer(a.group()), |consumer, topic| consumer.topic(topic, OffsetReset::Earliest))
        .fetch_max_partition_bytes(a.num("partition-fetch", 1048576) as usize)
        .build()
        .unwrap()
}

/// Walks every record of a batch: how many there are, and the bytes of their keys and values.
fn walk(batch: &PartitionBatch) -> (u64, u64) {
    let (mut seen, mut bytes) = (0, 0);
    for view in batch.batches.iter().filter(|view| !view.is_control()) {
        for r in view.records() {
            let r = r.unwrap();
            if r.offset >= batch.from {
                seen += 1;
                bytes += (r.key.map_or(0, <[u8]>::len) + r.value.map_or(0, <[u8]>::len)) as u64;
            }
        }
    }
    (seen, bytes)
}

pub async fn consume(a: &Args) {
    let n = a.records();
    let mut c = consumer(a);
    let (mut seen, mut bytes) = (0u64, 0u64);
    let mut done = HashMap::new();
    let mut ph = None;
    let mut tick = Instant::now();
    while seen < n {
        match c.next().await.expect("a membership") {
            ConsumerEvent::Batch(batch) => {
                ph.get_or_insert_with(Phase::new);
                let (records, size) = walk(&batch);
                seen += records;
                bytes += size;
                done.insert(batch.assigned.clone(), batch.next_offset);
            }
            ConsumerEvent::Revoked(_, release) => release.send(),
            ConsumerEvent::Fault(error) => panic!("{error}"),
            _ => {}
        }
        if tick.elapsed() > Duration::from_secs(1) {
            tick = Instant::now();
            // As auto-commit does: in the background.
            let handle = c.handle().clone();
            let positions = positions(&mut done);
            tokio::spawn(async move { handle.commit(positions).await.unwrap() });
        }
    }
    ph.unwrap().done(seen, bytes, 0, "");
    c.handle().commit(positions(&mut done)).await.unwrap();
    c.close(CLOSE).await.unwrap();
}

fn positions(done: &mut HashMap<Assigned, Offset>) -> Vec<CommitPosition> {
    done.drain().map(|(assigned, offset)| CommitPosition::new(assigned, offset)).collect()
}

/// Tells on standard error how long it took to have all partitions.
pub async fn idle(a: &Args) {
    let began = Instant::now();
    let mut c = consumer(a);
    let (wanted, mut have) = (a.num("partitions", 100) as usize, 0);
    let waiting = async {
        while let Some(event) = c.next().await {
            match event {
                ConsumerEvent::Assigned(came) => {
                    have += came.len();
                    if have >= wanted {
                        println!("ready");
                        eprintln!("after {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
                    }
                }
                ConsumerEvent::Revoked(_, release) => release.send(),
                ConsumerEvent::Fault(error) => eprintln!("{error}"),
                _ => {}
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(a.num("seconds", 60)), waiting).await;
}
