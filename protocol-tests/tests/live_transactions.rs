//! Transactions on a real Kafka.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::time::Duration;

use kafka_harbor::adapter::Adapter as _;
use kafka_harbor::adapter::kafka::KafkaAdapter;
use kafka_harbor::client::{
    Client, Consumer, ConsumerEvent, Ended, GroupOffset, GroupProtocol, IsolationLevel, OffsetReset, OffsetSpec,
    PartitionBatch, ProduceErrorKind, TransactionErrorKind, TransactionalProducer,
};
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{NewTopic, Offset, Record, RecordRef, Topic, TopicPartition};
use protocol_tests::{Cluster, interop, kafka, kafka_with, unique};

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

/// The end once every transaction is decided and its markers are written, which the coordinator does after it answered.
async fn settled_end(client: &Client, topic: &Topic) -> Offset {
    for _ in 0..200 {
        let all = end(client, topic, IsolationLevel::ReadUncommitted).await;
        if end(client, topic, IsolationLevel::ReadCommitted).await == all {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("a transaction is left open");
}

/// What a group's commit is once its coordinator has applied the transaction.
///
/// The broker answers EndTxn before it writes the markers, and its coordinator counts a transaction as ended from the
/// moment that it appends the marker, while offsets are read as of the last replicated record (`OffsetMetadataManager`
/// of Kafka 4.4): between the two even an OffsetFetch that requires stable offsets is told what was before.
async fn applied(committed: &impl AsyncFn() -> Option<GroupOffset>) -> Option<GroupOffset> {
    for _ in 0..200 {
        if let Some(offset) = committed().await {
            return Some(offset);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
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

/// Transactions of ours, by both versions of the protocol (KIP-890), on a cluster of its own for the older one.
fn versions() -> Vec<(&'static str, Source)> {
    let older = kafka_with(1, &[], None).inspect(|cluster| {
        let downgrade = ["downgrade", "--feature", "transaction.version=1"];
        cluster.tool("features", &downgrade);
        let told = cluster.tool("features", &["describe"]);
        let level = told.lines().find(|line| line.contains("transaction.version")).unwrap();
        assert!(level.contains("FinalizedVersionLevel: 1"), "{level}");
    });
    let newer = kafka().map(|cluster| ("version 2", Source::Shared(cluster)));
    newer.into_iter().chain(older.map(|cluster| ("version 1", Source::Own(cluster)))).collect()
}

enum Source {
    Shared(&'static Cluster),
    Own(Cluster),
}

impl std::ops::Deref for Source {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        match self {
            Self::Shared(cluster) => cluster,
            Self::Own(cluster) => cluster,
        }
    }
}

async fn producer(client: &Client, id: &str) -> TransactionalProducer {
    client.producer().transactional(id).init().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_committed_is_read_and_what_is_aborted_or_dropped_is_not() {
    for (version, broker) in versions() {
        let client = client(&broker);
        let topic = topic(&client, 1).await;
        let id = unique("ours");
        let mut producer = producer(&client, &id).await;
        let mut expected = Vec::new();
        for round in 0..20 {
            let transaction = producer.begin().await.unwrap();
            let values: Vec<String> = (0..50).map(|n| format!("{round}.{n}")).collect();
            let records = values.iter().map(|value| RecordRef::new(value.as_bytes()));
            transaction.send_batch(&topic, records).await.unwrap();
            let delivery = transaction.enqueue(Record::new(&topic, format!("{round}.last"))).await.unwrap();
            match round % 4 {
                1 => transaction.abort().await.unwrap(),
                2 => drop(transaction),
                _ => {
                    transaction.commit().await.unwrap();
                    assert!(delivery.await.unwrap().offset.is_some(), "a commit waits for what was queued");
                    expected.extend(values);
                    expected.push(format!("{round}.last"));
                }
            }
        }
        producer.begin().await.unwrap().commit().await.unwrap();
        producer.begin().await.unwrap().abort().await.unwrap();
        assert!(matches!(producer.resolve().await, Some(Ok(Ended::Aborted))));
        producer.close(10 * SECOND).await.unwrap();
        let last = settled_end(&client, &topic).await;
        assert_eq!(read(&client, &topic, IsolationLevel::ReadCommitted, last).await, expected, "{version}");
        let args = ["consume", "--brokers", &broker.bootstrap, "--topic", &topic, "--idle", "30000"];
        let (group, max) = (unique("java"), expected.len().to_string());
        let Some(mut java) = interop("java", &[&args[..], &["--group", &group, "--max", &max]].concat()) else {
            continue;
        };
        java.finish(60 * SECOND);
        let values: Vec<_> = java.of("record").map(|record| record["value"].as_str().unwrap().to_owned()).collect();
        assert_eq!(values, expected, "{version}: as Java reads it");
    }
}

#[tokio::test]
async fn a_second_producer_fences_the_first_and_aborts_what_it_had_open() {
    for (version, broker) in versions() {
        let client = client(&broker);
        let topic = topic(&client, 1).await;
        let id = unique("ours");
        let mut first = producer(&client, &id).await;
        let transaction = first.begin().await.unwrap();
        transaction.send(Record::new(&topic, "of the first")).await.unwrap();
        let mut second = producer(&client, &id).await;
        let open = second.begin().await.unwrap();
        open.send(Record::new(&topic, "of the second")).await.unwrap();
        let error = transaction.commit().await.unwrap_err();
        assert!(matches!(error.kind, TransactionErrorKind::Fenced { .. }) && error.is_fatal(), "{version}: {error}");
        assert_eq!(error.outcome, WriteOutcome::NotWritten);
        assert!(first.begin().await.unwrap_err().is_fatal());
        open.commit().await.unwrap();
        let last = settled_end(&client, &topic).await;
        assert_eq!(read(&client, &topic, IsolationLevel::ReadCommitted, last).await, ["of the second"], "{version}");
    }
}

#[tokio::test]
async fn a_producer_that_crashed_leaves_nothing_behind_once_its_id_is_taken_over() {
    for (version, broker) in versions() {
        let crashed = client(&broker);
        let topic = topic(&crashed, 1).await;
        let id = unique("ours");
        let mut producer_before = producer(&crashed, &id).await;
        let transaction = producer_before.begin().await.unwrap();
        transaction.send(Record::new(&topic, "lost")).await.unwrap();
        std::mem::forget(transaction);
        crashed.close(Duration::ZERO).await.ok();
        drop(producer_before);
        let client = client(&broker);
        assert_eq!(end(&client, &topic, IsolationLevel::ReadCommitted).await, Offset(0), "{version}: still open");
        let mut after = producer(&client, &id).await;
        let transaction = after.begin().await.unwrap();
        transaction.send(Record::new(&topic, "kept")).await.unwrap();
        transaction.commit().await.unwrap();
        let last = settled_end(&client, &topic).await;
        assert_eq!(read(&client, &topic, IsolationLevel::ReadCommitted, last).await, ["kept"], "{version}");
    }
}

#[tokio::test]
async fn offsets_are_committed_with_the_records_or_not_at_all() {
    for (version, broker) in versions() {
        offsets_are_committed_with_the_records(&broker, version, GroupProtocol::Classic).await;
    }
}

/// Its generation is the member's epoch (KIP-848).
#[tokio::test]
async fn offsets_of_a_group_that_the_coordinator_assigns_are_committed_with_the_records_too() {
    let Some(broker) = kafka() else { return };
    offsets_are_committed_with_the_records(broker, "KIP-848", GroupProtocol::Consumer).await;
}

async fn offsets_are_committed_with_the_records(broker: &Cluster, version: &str, protocol: GroupProtocol) {
    let client = client(broker);
    let (from, to) = (topic(&client, 1).await, topic(&client, 1).await);
    let plain = client.producer().build().unwrap();
    for n in 0..10 {
        plain.send(Record::new(&from, n.to_string())).await.unwrap();
    }
    let group = unique("group");
    let builder = client.consumer(&group).group_protocol(protocol).topic(&from, OffsetReset::Earliest);
    let mut consumer = builder.build().unwrap();
    let batch = next_batch(&mut consumer).await;
    let member = consumer.handle().group_metadata().expect("it owns a partition");
    let mut producer = producer(&client, &unique("ours")).await;
    let partition = TopicPartition::new(&from, 0);
    let committed = async || {
        let offsets = client.admin().group_offsets(&group, None).await.unwrap();
        offsets.into_iter().find(|(of, _)| *of == partition).map(|(_, committed)| committed)
    };

    let transaction = producer.begin().await.unwrap();
    transaction.send(Record::new(&to, "void")).await.unwrap();
    transaction.send_offsets(&member, [(partition.clone(), GroupOffset::new(Offset(3)))]).await.unwrap();
    transaction.abort().await.unwrap();
    assert_eq!(committed().await, None, "{version}");

    let transaction = producer.begin().await.unwrap();
    transaction.send(Record::new(&to, "kept")).await.unwrap();
    let mut offset = GroupOffset::new(batch.next_offset);
    offset.note = "with a note".to_owned();
    transaction.send_offsets(&member, [(partition.clone(), offset.clone())]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(applied(&committed).await, Some(offset), "{version}");

    // A member that the group does not know any more commits nothing (KIP-447).
    let mut old = member.clone();
    old.generation -= 1;
    let transaction = producer.begin().await.unwrap();
    transaction.send(Record::new(&to, "void")).await.unwrap();
    let error = transaction.send_offsets(&old, [(partition.clone(), GroupOffset::new(Offset(1)))]).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::ILLEGAL_GENERATION), "{version}: {error}");
    assert!(!transaction.commit().await.unwrap_err().is_fatal());
    assert_eq!(committed().await.unwrap().offset, batch.next_offset, "{version}");
    consumer.close(10 * SECOND).await.unwrap();
    let last = settled_end(&client, &to).await;
    assert_eq!(read(&client, &to, IsolationLevel::ReadCommitted, last).await, ["kept"], "{version}");
}

/// A record that failed and a commit that succeeded without it (librdkafka 1.5.2, 1.7.0).
#[tokio::test]
async fn a_record_that_was_not_written_takes_its_transaction_with_it() {
    for (version, broker) in versions() {
        let client = client(&broker);
        let topic = topic(&client, 1).await;
        let mut producer = producer(&client, &unique("ours")).await;
        let transaction = producer.begin().await.unwrap();
        transaction.send(Record::new(&topic, "void")).await.unwrap();
        let missing = RecordRef { partition: Some(7), ..RecordRef::new(b"nowhere") };
        transaction.enqueue_ref(&topic, missing).await.unwrap_err();
        let refused = transaction.send(Record::new(&topic, "void")).await.unwrap_err();
        assert_eq!(refused.kind, ProduceErrorKind::Aborted);
        let error = transaction.commit().await.unwrap_err();
        assert!(
            matches!(error.kind, TransactionErrorKind::NotWritten { .. }) && !error.is_fatal(),
            "{version}: {error}"
        );
        let transaction = producer.begin().await.unwrap();
        transaction.send(Record::new(&topic, "kept")).await.unwrap();
        transaction.commit().await.unwrap();
        let last = settled_end(&client, &topic).await;
        assert_eq!(read(&client, &topic, IsolationLevel::ReadCommitted, last).await, ["kept"], "{version}");
    }
}

#[tokio::test]
async fn a_broker_that_restarts_within_a_transaction_costs_it_nothing() {
    let Some(broker) = kafka_with(1, &[], None) else { return };
    let client = client(&broker);
    let topic = topic(&client, 1).await;
    let mut producer = producer(&client, &unique("ours")).await;
    let transaction = producer.begin().await.unwrap();
    transaction.send(Record::new(&topic, "before")).await.unwrap();
    broker.terminate(1);
    let delivery = transaction.enqueue(Record::new(&topic, "meanwhile")).await.unwrap();
    broker.start(1);
    transaction.send(Record::new(&topic, "after")).await.unwrap();
    transaction.commit().await.unwrap();
    delivery.await.unwrap();
    let last = settled_end(&client, &topic).await;
    let read = read(&client, &topic, IsolationLevel::ReadCommitted, last).await;
    assert_eq!(read, ["before", "meanwhile", "after"]);
}
