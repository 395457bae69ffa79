//! Transactions on a real Kafka.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::time::Duration;

use kafka_harbor::adapter::Adapter as _;
use kafka_harbor::adapter::kafka::KafkaAdapter;
use kafka_harbor::client::{Client, Consumer, ConsumerEvent, IsolationLevel, OffsetReset, OffsetSpec, PartitionBatch};
use kafka_harbor::record::{NewTopic, Offset, Record, Topic, TopicPartition};
use protocol_tests::{Cluster, interop, kafka, unique};

const SECOND: Duration = Duration::from_secs(1);

fn client(broker: &Cluster) -> Client {
    Client::builder([&broker.bootstrap]).build().unwrap()
}

async fn topic(client: &Client, partitions: i32) -> Topic {
    let topic = Topic::from(unique("transactions"));
    let created = client.admin().create_topics(&[NewTopic::new(&topic).with_partitions(partitions)]).await;
    created[0].1.as_ref().unwrap();
    topic
}

/// What lies in a topic of one partition, as a reader of this isolation sees it, up to `end`.
async fn read(client: &Client, topic: &Topic, isolation: IsolationLevel, end: Offset) -> Vec<String> {
    let builder = client.consumer(unique("reader")).topic(topic, OffsetReset::Earliest).isolation_level(isolation);
    let mut consumer = builder.build().unwrap();
    let mut values = Vec::new();
    let mut next = Offset(0);
    while next < end {
        let batch = next_batch(&mut consumer).await;
        assert_eq!(batch.from, next, "no gap");
        values.extend(texts(&batch));
        next = batch.next_offset;
    }
    assert_eq!(next, end);
    consumer.close(10 * SECOND).await.unwrap();
    values
}

fn texts(batch: &PartitionBatch) -> Vec<String> {
    let records = batch.batches.iter().flat_map(|batch| batch.records()).map(|record| record.unwrap());
    let records = records.filter(|record| record.offset >= batch.from);
    records.map(|record| String::from_utf8(record.value.unwrap().to_vec()).unwrap()).collect()
}

async fn next_batch(consumer: &mut Consumer) -> PartitionBatch {
    loop {
        let event = tokio::time::timeout(20 * SECOND, consumer.next()).await.expect("an event");
        match event.expect("not ended") {
            ConsumerEvent::Batch(batch) => return batch,
            ConsumerEvent::Fault(error) => panic!("{error}"),
            _ => {}
        }
    }
}

async fn end(client: &Client, topic: &Topic, isolation: IsolationLevel) -> Offset {
    let asked = [(TopicPartition::new(topic, 0), OffsetSpec::Latest)];
    client.admin().list_offsets(&asked, isolation).await.remove(0).1.unwrap().offset.unwrap()
}

/// Records of a transaction by another client.
fn foreign(
    peer: &str,
    broker: &Cluster,
    topic: &Topic,
    codec: &str,
    outcome: &str,
    id: &str,
    value: &str,
) -> Option<()> {
    let args = ["produce", "--brokers", &broker.bootstrap, "--topic", topic, "--compression", codec, "--count", "20"];
    let transaction = ["--transaction", outcome, "--transactional-id", id, "--value", value];
    let mut peer = interop(peer, &[&args[..], &transaction[..]].concat())?;
    peer.wait_for("done", 60 * SECOND);
    Some(())
}

/// Aborted records were delivered where they were compressed (librdkafka#3020), and from the second transaction of a
/// producer on where a commit marker was taken for an abort's (brod#659).
#[tokio::test]
async fn what_other_clients_abort_is_not_read_with_any_codec() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    for (peer, codec) in
        [("java", "none"), ("java", "gzip"), ("java", "snappy"), ("generic", "lz4"), ("generic", "zstd")]
    {
        let topic = topic(&client, 1).await;
        let id = unique("foreign");
        for (outcome, value) in [("commit", "a{n}"), ("abort", "void"), ("commit", "b{n}"), ("abort", "void")] {
            let Some(()) = foreign(peer, broker, &topic, codec, outcome, &id, value) else { return };
        }
        client.producer().build().unwrap().send(Record::new(&topic, "without")).await.unwrap();
        let last = end(&client, &topic, IsolationLevel::ReadCommitted).await;
        assert_eq!(last, Offset(4 * 21 + 1), "20 records and a marker each");
        let expected: Vec<_> = ["a", "b"]
            .iter()
            .flat_map(|name| (0..20).map(move |n| format!("{name}{n}")))
            .chain(["without".into()])
            .collect();
        assert_eq!(read(&client, &topic, IsolationLevel::ReadCommitted, last).await, expected, "{peer} {codec}");
        assert_eq!(read(&client, &topic, IsolationLevel::ReadUncommitted, last).await.len(), 81, "{peer} {codec}");
    }
}

#[tokio::test]
async fn an_open_transaction_ends_what_is_read_and_what_counts_as_lag() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 1).await;
    let producer = client.producer().build().unwrap();
    producer.send(Record::new(&topic, "before")).await.unwrap();
    let id = unique("foreign");
    let args = ["produce", "--brokers", &broker.bootstrap, "--topic", &topic, "--value", "open", "--count", "3"];
    let transaction = ["--transaction", "open", "--transactional-id", &id];
    let Some(mut peer) = interop("generic", &[&args[..], &transaction[..]].concat()) else { return };
    peer.wait_for("open", 60 * SECOND);
    producer.send(Record::new(&topic, "after")).await.unwrap();

    assert_eq!(end(&client, &topic, IsolationLevel::ReadCommitted).await, Offset(1));
    assert_eq!(end(&client, &topic, IsolationLevel::ReadUncommitted).await, Offset(5));
    let adapter = KafkaAdapter::builder([broker.bootstrap.clone()]).build().unwrap();
    let marks = adapter.watermarks(std::slice::from_ref(&topic)).await.unwrap();
    assert_eq!((marks[0].low, marks[0].high), (Offset(0), Offset(1)), "what nobody can read is no lag");

    let builder = client.consumer(unique("reader")).topic(&topic, OffsetReset::Earliest);
    let mut consumer = builder.build().unwrap();
    assert_eq!(texts(&next_batch(&mut consumer).await), ["before"]);
    let more = tokio::time::timeout(2 * SECOND, next_batch(&mut consumer)).await;
    assert!(more.is_err(), "{more:?}");
    peer.kill();
    // The next owner of the id ends what the crashed one left open.
    let Some(()) = foreign("generic", broker, &topic, "none", "commit", &id, "next") else { return };
    let mut values = Vec::new();
    while values.len() < 21 {
        values.extend(texts(&next_batch(&mut consumer).await));
    }
    assert_eq!(values[0], "after");
    assert!(values[1..].iter().all(|value| value == "next"), "{values:?}");
    consumer.close(10 * SECOND).await.unwrap();
}
