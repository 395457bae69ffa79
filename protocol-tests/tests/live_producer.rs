//! The producer against real brokers, read back by Kafka's own console consumer.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kafka_harbor::client::{Client, ProduceErrorKind, Producer};
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::protocol::compression::Codec;
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{HeadersRef, Record, RecordRef, Timestamp};
use protocol_tests::{Cluster, kafka, kafka_with, unique};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

fn client(broker: &Cluster) -> Client {
    // The first address is wrong on purpose: nothing listens there.
    Client::builder([format!("127.0.0.1:1,{}", broker.bootstrap)]).build().unwrap()
}

fn topic(broker: &Cluster, partitions: u32, settings: &[&str]) -> String {
    let (name, partitions) = (unique("producer"), partitions.to_string());
    let mut arguments = vec!["--create", "--topic", &name, "--partitions", &partitions];
    settings.iter().for_each(|setting| arguments.extend(["--config", setting]));
    broker.tool("topics", &arguments);
    name
}

/// Every record of a topic as `partition`, `value`, in the order of each partition.
fn read(broker: &Cluster, topic: &str, count: usize) -> BTreeMap<i32, Vec<String>> {
    let mut partitions: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for line in read_lines(broker, topic, count, &["print.partition=true"]) {
        let (partition, value) = line.split_once('\t').expect("partition and value");
        let partition = partition.trim_start_matches("Partition:").parse().expect("a number");
        partitions.entry(partition).or_default().push(value.to_owned());
    }
    partitions
}

fn read_lines(broker: &Cluster, topic: &str, count: usize, properties: &[&str]) -> Vec<String> {
    let count = count.to_string();
    let mut arguments = vec!["--topic", topic, "--from-beginning", "--max-messages", &count, "--timeout-ms", "20000"];
    properties.iter().for_each(|property| arguments.extend(["--formatter-property", property]));
    broker.tool("console-consumer", &arguments).lines().map(str::to_owned).collect()
}

/// How many records lie in all partitions.
fn end_offsets(broker: &Cluster, topic: &str) -> usize {
    let told = broker.tool("get-offsets", &["--topic", topic]);
    told.lines().filter_map(|line| line.rsplit(':').next()?.parse::<usize>().ok()).sum()
}

#[tokio::test]
async fn a_batch_call_writes_every_record_once_and_in_order() {
    const RECORDS: usize = 300_000;
    let Some(broker) = kafka() else { return };
    let topic = topic(broker, 6, &[]);
    let producer = client(broker).producer().build().unwrap();
    let texts: Vec<String> = (0..RECORDS).map(|i| i.to_string()).collect();
    let records = texts.iter().map(|text| RecordRef::new(text.as_bytes()).with_key(text.as_bytes()));
    producer.send_batch(&*topic, records).await.unwrap();
    assert_eq!(end_offsets(broker, &topic), RECORDS);
    let partitions = read(broker, &topic, RECORDS);
    assert_eq!(partitions.len(), 6);
    let mut seen = BTreeSet::new();
    for values in partitions.values() {
        let numbers: Vec<usize> = values.iter().map(|value| value.parse().unwrap()).collect();
        assert!(numbers.is_sorted());
        seen.extend(numbers);
    }
    assert_eq!(seen.len(), RECORDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_of_single_records_tell_where_each_was_written() {
    let Some(broker) = kafka() else { return };
    let topic = topic(broker, 3, &[]);
    let producer = client(broker).producer().build().unwrap();
    let mut deliveries = Vec::new();
    for i in 0..20_000 {
        deliveries.push(producer.enqueue(Record::new(&*topic, i.to_string())).await.unwrap());
    }
    let mut expected: BTreeMap<i32, BTreeMap<i64, String>> = BTreeMap::new();
    for (i, delivery) in deliveries.into_iter().enumerate() {
        let written = delivery.await.unwrap();
        let offset = written.offset.unwrap().0;
        expected.entry(written.partition).or_default().insert(offset, i.to_string());
    }
    assert!(expected.len() > 1, "records without a key go to several partitions");
    for (partition, values) in read(broker, &topic, 20_000) {
        assert_eq!(values, expected[&partition].values().cloned().collect::<Vec<_>>());
        assert!(expected[&partition].keys().copied().eq(0..values.len() as i64));
    }
}

#[tokio::test]
async fn concurrent_senders_share_batches_and_none_is_out_of_sequence() {
    let Some(broker) = kafka() else { return };
    let topic = topic(broker, 2, &[]);
    let producer = client(broker).producer().linger(Duration::ZERO).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..200 {
        let (producer, topic) = (producer.clone(), topic.clone());
        tasks.spawn(async move {
            for i in 0..20 {
                producer.send(Record::new(&*topic, format!("{task}.{i}")).with_key(format!("{task}"))).await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let mut next = BTreeMap::new();
    for value in read(broker, &topic, 4_000).into_values().flatten() {
        let (task, i) = value.split_once('.').unwrap();
        let expected = next.entry(task.to_owned()).or_insert(0);
        assert_eq!(i.parse::<i32>().unwrap(), *expected);
        *expected += 1;
    }
    assert_eq!(next.len(), 200);
}

#[tokio::test]
async fn a_record_keeps_null_and_empty_parts_repeated_headers_and_its_time() {
    let Some(broker) = kafka() else { return };
    let topic = topic(broker, 1, &[]);
    let producer = client(broker).producer().build().unwrap();
    let headers = [(&b"a"[..], Some(&b"1"[..])), (b"a", None), (b"b", Some(b""))];
    let whole = RecordRef::new(b"")
        .with_key(b"k")
        .with_headers(HeadersRef::Slices(&headers))
        .with_timestamp(Timestamp(1_234_567_890_123));
    let tombstone = RecordRef { key: Some(b""), ..RecordRef::default() };
    producer.send_batch(&*topic, [whole, tombstone]).await.unwrap();
    let properties = ["print.key=true", "print.headers=true", "print.timestamp=true", "null.literal=NULL"];
    let lines = read_lines(broker, &topic, 2, &properties);
    assert_eq!(lines[0], "CreateTime:1234567890123\ta:1,a:NULL,b:\tk\t");
    assert!(lines[1].ends_with("\tNO_HEADERS\t\tNULL"), "{}", lines[1]);
}

#[tokio::test]
async fn every_codec_is_read_by_the_java_client() {
    let Some(broker) = kafka() else { return };
    for codec in Codec::ALL {
        let topic = topic(broker, 1, &[]);
        let producer = client(broker).producer().compression(codec).build().unwrap();
        let texts: Vec<String> = (0..5_000).map(|i| format!("value {i} of many that look alike")).collect();
        producer.send_batch(&*topic, texts.iter().map(|text| RecordRef::new(text.as_bytes()))).await.unwrap();
        assert_eq!(read(broker, &topic, 5_000)[&0], texts, "{codec}");
    }
}

#[tokio::test]
async fn a_batch_above_the_topics_limit_is_split_and_a_record_above_it_fails_alone() {
    let Some(broker) = kafka() else { return };
    let topic = topic(broker, 1, &["max.message.bytes=5000"]);
    let producer = client(broker).producer().build().unwrap();
    let mut texts: Vec<String> = (0..2_000).map(|i| format!("{i:040}")).collect();
    texts[1_000] = "x".repeat(6_000);
    let error = producer.send_batch(&*topic, texts.iter().map(|t| RecordRef::new(t.as_bytes()))).await.unwrap_err();
    assert_eq!(error.failed(), 1);
    let failure = error.outcomes[1_000].as_ref().unwrap_err();
    assert_eq!((failure.code(), failure.outcome), (Some(ErrorCode::MESSAGE_TOO_LARGE), WriteOutcome::NotWritten));
    texts.remove(1_000);
    assert_eq!(read(broker, &topic, 1_999)[&0], texts);
}

#[tokio::test]
async fn an_invalid_record_fails_alone() {
    let Some(broker) = kafka() else { return };
    // A compacted topic refuses records without a key, and names them (KIP-467).
    let topic = topic(broker, 1, &["cleanup.policy=compact"]);
    let producer = client(broker).producer().build().unwrap();
    let keys: Vec<String> = (0..10).map(|i| i.to_string()).collect();
    let records = keys.iter().enumerate().map(|(i, key)| match i {
        3 | 7 => RecordRef::new(key.as_bytes()),
        _ => RecordRef::new(key.as_bytes()).with_key(key.as_bytes()),
    });
    let error = producer.send_batch(&*topic, records).await.unwrap_err();
    let failed: Vec<usize> = (0..10).filter(|i| error.outcomes[*i].is_err()).collect();
    assert_eq!(failed, [3, 7]);
    assert_eq!(error.outcomes[3].as_ref().unwrap_err().code(), Some(ErrorCode::INVALID_RECORD));
    assert_eq!(read(broker, &topic, 8)[&0], ["0", "1", "2", "4", "5", "6", "8", "9"]);
}

#[tokio::test]
async fn what_does_not_exist_is_told_by_name() {
    let Some(broker) = kafka() else { return };
    let existing = topic(broker, 2, &[]);
    let producer = client(broker).producer().max_block(Duration::from_millis(300)).build().unwrap();
    let error = producer.send(Record::new(&*existing, "x").with_partition(2)).await.unwrap_err();
    assert_eq!(error.kind, ProduceErrorKind::UnknownPartition { partitions: 2 });
    let missing = unique("missing");
    let error = producer.send(Record::new(&*missing, "x")).await.unwrap_err();
    assert!(matches!(error.kind, ProduceErrorKind::Blocked { .. }), "{error}");
    assert_eq!((error.topic.as_str(), error.outcome), (&*missing, WriteOutcome::NotWritten));
    // A partition that is added later is found.
    broker.tool("topics", &["--alter", "--topic", &existing, "--partitions", "3"]);
    producer.send(Record::new(&*existing, "x").with_partition(2)).await.unwrap();
}

#[tokio::test]
async fn a_topic_that_is_created_anew_is_written_to() {
    let Some(broker) = kafka() else { return };
    let topic = topic(broker, 1, &[]);
    let producer = client(broker).producer().build().unwrap();
    producer.send(Record::new(&*topic, "old")).await.unwrap();
    broker.tool("topics", &["--delete", "--topic", &topic]);
    broker.tool("topics", &["--create", "--topic", &topic]);
    let written = producer.send(Record::new(&*topic, "new")).await.unwrap();
    assert_eq!(written.offset.map(|offset| offset.0), Some(0));
    assert_eq!(read(broker, &topic, 1)[&0], ["new"]);
}

#[tokio::test]
async fn flush_and_close_send_what_waits_and_later_records_are_refused() {
    let Some(broker) = kafka() else { return };
    let topic = topic(broker, 1, &[]);
    let slow = |producer: kafka_harbor::client::ProducerBuilder| producer.linger(Duration::from_secs(60));
    let builder = slow(client(broker).producer()).delivery_timeout(Duration::from_secs(120));
    let producer = builder.build().unwrap();
    let first = producer.enqueue(Record::new(&*topic, "1")).await.unwrap();
    producer.flush().await;
    first.await.unwrap();
    let second = producer.enqueue(Record::new(&*topic, "2")).await.unwrap();
    producer.close(Duration::from_secs(10)).await.unwrap();
    second.await.unwrap();
    let error = producer.send(Record::new(&*topic, "3")).await.unwrap_err();
    assert_eq!(error.kind, ProduceErrorKind::Closed);
    producer.close(Duration::from_secs(10)).await.unwrap();
    assert_eq!(read(broker, &topic, 2)[&0], ["1", "2"]);
}

#[tokio::test]
async fn dropping_the_producer_does_not_wait_and_fails_what_was_not_sent() {
    let Some(broker) = kafka() else { return };
    let topic = topic(broker, 1, &[]);
    let producer = client(broker).producer().linger(Duration::from_secs(60)).build().unwrap();
    let delivery = producer.enqueue(Record::new(&*topic, "1")).await.unwrap();
    let start = Instant::now();
    drop(producer);
    assert!(start.elapsed() < Duration::from_millis(50));
    let error = tokio::time::timeout(Duration::from_secs(5), delivery).await.unwrap().unwrap_err();
    assert_eq!((error.kind.clone(), error.outcome), (ProduceErrorKind::Closed, WriteOutcome::NotWritten));
}

#[tokio::test]
async fn the_leaders_acknowledgement_alone_works_too() {
    let Some(broker) = kafka() else { return };
    let topic = topic(broker, 3, &[]);
    let producer = client(broker).producer().dangerous_acks_leader_only().build().unwrap();
    let texts: Vec<String> = (0..20_000).map(|i| i.to_string()).collect();
    producer
        .send_batch(&*topic, texts.iter().map(|t| RecordRef::new(t.as_bytes()).with_key(t.as_bytes())))
        .await
        .unwrap();
    assert_eq!(end_offsets(broker, &topic), 20_000);
}

#[tokio::test]
async fn memory_that_is_used_up_holds_senders_back() {
    let Some(broker) = kafka() else { return };
    let topic = topic(broker, 1, &[]);
    let builder = client(broker).producer().linger(Duration::from_secs(60)).delivery_timeout(Duration::from_secs(120));
    let builder = builder.batch_bytes(64 * 1024).max_request_bytes(64 * 1024).buffer_bytes(64 * 1024);
    let producer = builder.build().unwrap();
    // Far more than fits, and nothing would leave for a minute but for those who wait.
    let text = "x".repeat(1_000);
    let mut deliveries = Vec::new();
    for _ in 0..1_000 {
        deliveries.push(producer.enqueue(Record::new(&*topic, text.clone())).await.unwrap());
    }
    producer.close(Duration::from_secs(10)).await.unwrap();
    for delivery in deliveries {
        delivery.await.unwrap();
    }
    assert_eq!(end_offsets(broker, &topic), 1_000);
}

/// Numbered records, sent without end until it is ended.
struct Load {
    acknowledged: Arc<AtomicUsize>,
    stop: watch::Sender<bool>,
    outcomes: JoinHandle<(Vec<usize>, Vec<usize>)>,
}

impl Load {
    fn start(producer: Producer, topic: String) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let (tell, mut sent) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for i in 0.. {
                if *stopped.borrow_and_update() {
                    break;
                }
                let record = Record::new(&*topic, i.to_string()).with_key((i % 100).to_string());
                let _ = tell.send((i, producer.enqueue(record).await.unwrap()));
                if i % 50 == 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            // Dropped, a producer gives up what waits. How each ended its delivery tells.
            producer.flush().await;
        });
        let acknowledged = Arc::<AtomicUsize>::default();
        let counted = acknowledged.clone();
        let outcomes = tokio::spawn(async move {
            let (mut written, mut doubtful) = (Vec::new(), Vec::new());
            while let Some((i, delivery)) = sent.recv().await {
                match delivery.await {
                    Ok(_) => written.push(i),
                    Err(error) if error.outcome == WriteOutcome::PossiblyWritten => doubtful.push(i),
                    Err(error) => panic!("record {i}: {error}"),
                }
                counted.store(written.len(), Ordering::Relaxed);
            }
            (written, doubtful)
        });
        Self { acknowledged, stop, outcomes }
    }

    /// Waits until so many more are acknowledged.
    async fn goes_on(&self, records: usize) {
        let wanted = self.acknowledged.load(Ordering::Relaxed) + records;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.acknowledged.load(Ordering::Relaxed) < wanted {
            assert!(Instant::now() < deadline, "not {records} more in a minute");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What was acknowledged, and what may have been written.
    async fn end(self) -> (Vec<usize>, Vec<usize>) {
        self.stop.send(true).unwrap();
        self.outcomes.await.unwrap()
    }
}

/// Each acknowledged record once, in order of each partition; beyond those only doubtful ones.
fn check(broker: &Cluster, topic: &str, acknowledged: &[usize], doubtful: &[usize]) {
    let count = end_offsets(broker, topic);
    let mut seen = BTreeSet::new();
    for values in read(broker, topic, count).into_values() {
        let numbers: Vec<usize> = values.iter().map(|value| value.parse().unwrap()).collect();
        assert!(numbers.is_sorted(), "out of order");
        for number in numbers {
            assert!(seen.insert(number), "record {number} is written twice");
        }
    }
    let lost: Vec<_> = acknowledged.iter().filter(|number| !seen.contains(number)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(seen.len() <= acknowledged.len() + doubtful.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_and_restarted_under_load_loses_repeats_and_reorders_nothing() {
    let Some(broker) = kafka_with(1, &[], None) else { return };
    let topic = topic(&broker, 6, &[]);
    let producer = client(&broker).producer().build().unwrap();
    let load = Load::start(producer, topic.clone());
    for _ in 0..2 {
        load.goes_on(5_000).await;
        tokio::task::block_in_place(|| {
            broker.kill(1);
            broker.start(1);
        });
    }
    load.goes_on(5_000).await;
    let (acknowledged, doubtful) = load.end().await;
    assert!(doubtful.is_empty(), "the broker came back in time for every record");
    check(&broker, &topic, &acknowledged, &doubtful);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_killed_in_a_cluster_of_three_under_load_loses_repeats_and_reorders_nothing() {
    let Some(broker) = kafka_with(3, &[], None) else { return };
    let topic = unique("producer");
    let arguments = [
        "--create",
        "--topic",
        &topic,
        "--partitions",
        "6",
        "--replication-factor",
        "3",
        "--config",
        "min.insync.replicas=2",
    ];
    broker.tool("topics", &arguments);
    let producer = client(&broker).producer().build().unwrap();
    let load = Load::start(producer, topic.clone());
    for node in [1, 2] {
        load.goes_on(5_000).await;
        tokio::task::block_in_place(|| broker.kill(node));
        // Without the node: those that it led have another leader by then.
        load.goes_on(5_000).await;
        tokio::task::block_in_place(|| broker.start(node));
    }
    load.goes_on(5_000).await;
    let (acknowledged, doubtful) = load.end().await;
    check(&broker, &topic, &acknowledged, &doubtful);
}
