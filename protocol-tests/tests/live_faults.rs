//! Faults of other clients that show on a real Kafka alone. `docs/faults.md` has all that were looked at.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kafka_harbor::client::{Client, ConsumerEvent, IsolationLevel, OffsetReset, OffsetSpec};
use kafka_harbor::observe::{Observer, Throttled};
use kafka_harbor::record::{NewTopic, RecordRef, Timestamp, Topic, TopicPartition};
use protocol_tests::{Cluster, kafka_with, unique};

const SECOND: Duration = Duration::from_secs(1);

/// A broker whose log cleaner does not rest, and whose quotas look back two seconds.
fn broker() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED.get_or_init(|| kafka_with(1, &["log.cleaner.backoff.ms=200", "quota.window.num=2"], None)).as_ref()
}

async fn topic(client: &Client, configs: &[(&str, &str)]) -> Topic {
    let topic = Topic::from(unique("faults"));
    let new = configs.iter().fold(NewTopic::new(&topic), |new, (name, value)| new.with_config(*name, *value));
    client.admin().create_topics(&[new]).await[0].1.as_ref().unwrap();
    topic
}

async fn send(client: &Client, topic: &Topic, records: &[RecordRef<'_>]) {
    let producer = client.producer().build().unwrap();
    producer.send_batch(topic, records.iter().copied()).await.unwrap();
    producer.close(10 * SECOND).await.unwrap();
}

/// A record as it was read.
#[derive(Debug)]
struct Read {
    offset: i64,
    timestamp: Timestamp,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

/// Partition 0 from its first record to its end of now.
async fn read(client: &Client, topic: &Topic) -> Vec<Read> {
    let asked = [(TopicPartition::new(topic, 0), OffsetSpec::Latest)];
    let end = match &client.admin().list_offsets(&asked, IsolationLevel::ReadUncommitted).await[0].1 {
        Ok(listed) => listed.offset.unwrap(),
        other => panic!("{other:?}"),
    };
    let group = unique("reader");
    let mut consumer = client.consumer(&group).topic(topic, OffsetReset::Earliest).build().unwrap();
    let mut found = Vec::new();
    loop {
        match tokio::time::timeout(30 * SECOND, consumer.next()).await.expect("an event").expect("not ended") {
            ConsumerEvent::Batch(batch) => {
                for record in batch.batches.iter().flat_map(|batch| batch.records()) {
                    let record = record.unwrap();
                    if record.offset >= batch.from {
                        found.push(Read {
                            offset: record.offset.0,
                            timestamp: record.timestamp,
                            key: record.key.map(<[u8]>::to_vec),
                            value: record.value.map(<[u8]>::to_vec),
                        });
                    }
                }
                if batch.next_offset >= end {
                    break;
                }
            }
            ConsumerEvent::Fault(error) => panic!("{error}"),
            _ => {}
        }
    }
    consumer.close(10 * SECOND).await.unwrap();
    found
}

/// A null value was written as an empty one, so that compaction never deleted its key (platformatic#216); and a log with gaps
/// where records had been was never read past them (kafkajs#562, kafka-go#813).
#[tokio::test]
async fn a_tombstone_deletes_its_key_an_empty_value_does_not_and_the_gaps_are_read_past() {
    let Some(broker) = broker() else { return };
    let client = Client::builder([&broker.bootstrap]).build().unwrap();
    let compacted = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("segment.ms", "500"),
        ("delete.retention.ms", "0"),
    ];
    let topic = topic(&client, &compacted).await;
    let keyed = |key, value| RecordRef::new(value).with_key(key);
    let tombstone = RecordRef { key: Some(b"gone"), ..RecordRef::default() };
    send(&client, &topic, &[keyed(b"gone", b"1"), keyed(b"empty", b"1"), keyed(b"gone", b"2")]).await;
    send(&client, &topic, &[tombstone, keyed(b"empty", b"")]).await;
    let end = Instant::now() + 120 * SECOND;
    let left = loop {
        // The newest segment is not cleaned, and a record is what begins the next.
        send(&client, &topic, &[keyed(b"filler", b"x")]).await;
        let left = read(&client, &topic).await;
        if left.iter().all(|record| record.key.as_deref() != Some(b"gone")) {
            break left;
        }
        assert!(Instant::now() < end, "the key is still there: {left:?}");
        tokio::time::sleep(SECOND).await;
    };
    let empty: Vec<_> = left.iter().filter(|record| record.key.as_deref() == Some(b"empty")).collect();
    assert!(empty.len() == 1 && empty[0].value.as_deref() == Some(b"") && empty[0].offset == 4, "{left:?}");
    let last = left.last().unwrap();
    assert!(last.offset >= i64::try_from(left.len()).unwrap(), "a log without gaps proves nothing: {left:?}");
}

/// The time of a record was made of the batch's first time and the record's delta, though under LogAppendTime the batch's
/// newest time is that of all (franz-go#206, kafkajs#838): a retry that waits from it came too early.
#[tokio::test]
async fn under_log_append_time_a_record_has_the_time_at_which_the_broker_took_it() {
    let Some(broker) = broker() else { return };
    let client = Client::builder([&broker.bootstrap]).build().unwrap();
    let topic = topic(&client, &[("message.timestamp.type", "LogAppendTime")]).await;
    let millis = || i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let before = millis();
    let hours_ago = |hours: i64| RecordRef::new(b"v").with_timestamp(Timestamp(before - hours * 3_600_000));
    send(&client, &topic, &[hours_ago(3), hours_ago(1), hours_ago(2)]).await;
    let times: Vec<i64> = read(&client, &topic).await.iter().map(|record| record.timestamp.0).collect();
    assert_eq!(times.len(), 3);
    assert!(times.iter().all(|time| (before..=millis()).contains(time)), "{times:?}, sent at {before}");
}

/// Adds up how often a broker asked for silence.
#[derive(Default)]
struct Throttles(AtomicUsize);

impl Observer for Throttles {
    fn throttled(&self, event: &Throttled<'_>) {
        if event.api == "Fetch" {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// With a quota below what one fetch brings a consumer starved (KAFKA-9677).
#[tokio::test]
async fn a_quota_below_one_fetch_slows_a_consumer_and_does_not_starve_it() {
    // Ten seconds of the quota; one fetch of the partition is two.
    const RECORDS: usize = 5_000;
    let Some(broker) = broker() else { return };
    let name = unique("slow");
    let quota = ["--alter", "--add-config", "consumer_byte_rate=524288", "--entity-type", "clients"];
    broker.tool("configs", &[&quota[..], &["--entity-name", &name]].concat());
    let throttles = Arc::new(Throttles::default());
    let writer = Client::builder([&broker.bootstrap]).build().unwrap();
    let topic = topic(&writer, &[]).await;
    let value = [7; 1_000];
    send(&writer, &topic, &vec![RecordRef::new(&value); RECORDS]).await;
    let reader = Client::builder([&broker.bootstrap]).client_id(&name).observer(throttles.clone()).build().unwrap();
    let begun = Instant::now();
    assert_eq!(read(&reader, &topic).await.len(), RECORDS);
    assert!(throttles.0.load(Ordering::Relaxed) > 0, "the quota did nothing");
    assert!(begun.elapsed() < 40 * SECOND, "{:?}", begun.elapsed());
}
