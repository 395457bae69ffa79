//! Topics as tests make, read and compare them, by an adapter of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_harbor::adapter::kafka::KafkaAdapter;
use kafka_harbor::adapter::{
    Adapter, Event, JoinOptions, PartitionBatch, Publisher, PublisherOptions, Start, TopicSubscription,
};
use kafka_harbor::protocol::compression::Codec;
use kafka_harbor::record::{Header, NewTopic, Offset, Record, RecordView, Topic, TopicPartition};

use crate::Cluster;

/// A record as it lies in a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// The key, or null.
    pub key: Option<Bytes>,
    /// The value, or null.
    pub value: Option<Bytes>,
    /// Headers in order, repeats kept.
    pub headers: Vec<Header>,
}

impl Stored {
    fn new(partition: i32, record: &RecordView<'_>) -> Self {
        let owned = |(name, value): (&[u8], Option<&[u8]>)| Header {
            name: Bytes::copy_from_slice(name),
            value: value.map(Bytes::copy_from_slice),
        };
        Self {
            partition,
            offset: record.offset.0,
            timestamp: record.timestamp.0,
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            headers: record.headers.iter().map(owned).collect(),
        }
    }

    /// The value as text.
    ///
    /// # Panics
    /// When it is none.
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.value.as_deref().expect("a value")).expect("text")
    }

    /// The names of the headers, in order.
    pub fn names(&self) -> Vec<&str> {
        self.headers.iter().map(|header| std::str::from_utf8(&header.name).expect("a name that is text")).collect()
    }

    /// The last value under this name, as text.
    ///
    /// # Panics
    /// When there is none.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().rev().find(|header| header.name == name);
        let value = found.and_then(|header| header.value.as_deref()).unwrap_or_else(|| panic!("no header {name}"));
        std::str::from_utf8(value).expect("text")
    }
}

/// A cluster as a test looks at it.
#[derive(Debug)]
pub struct Desk {
    adapter: Arc<dyn Adapter>,
    publisher: Arc<dyn Publisher>,
}

impl Desk {
    /// Reaches the cluster.
    ///
    /// # Panics
    /// When it cannot.
    pub async fn at(cluster: &Cluster) -> Self {
        let adapter: Arc<dyn Adapter> =
            Arc::new(KafkaAdapter::builder(cluster.bootstrap.split(',')).client_id("desk").build().expect("settings"));
        adapter.connect().await.expect("the cluster can be reached");
        let publisher = adapter.publisher(PublisherOptions::default()).expect("settings");
        Self { adapter, publisher }
    }

    /// Makes a topic with the broker's replication.
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn create(&self, topic: &str, partitions: i32) {
        let new = NewTopic::new(topic).with_partitions(partitions);
        self.adapter.create_topics(&[new]).await.expect("the topic is created");
    }

    /// Writes records, all acknowledged.
    ///
    /// # Panics
    /// When one is not.
    pub async fn publish(&self, records: Vec<Record>) {
        self.publisher.publish(records).await.expect("all records are acknowledged");
    }

    /// Every record of a topic, partition by partition.
    ///
    /// # Panics
    /// When they cannot be read within a minute.
    pub async fn read(&self, topic: &str) -> Vec<Stored> {
        let mut stored = Vec::new();
        self.read_batches(topic, |batch| {
            let partition = batch.assigned.partition.partition;
            let records = batch.records.iter().map(|record| record.expect("a record that can be read"));
            stored.extend(records.map(|record| Stored::new(partition, &record)));
        })
        .await;
        stored.sort_by_key(|stored| (stored.partition, stored.offset));
        stored
    }

    /// Hands every batch of a topic to `take`.
    async fn read_batches(&self, topic: &str, mut take: impl FnMut(&PartitionBatch)) {
        let marks = self.adapter.watermarks(&[topic.into()]).await.expect("watermarks");
        let written = marks.iter().filter(|mark| mark.low < mark.high);
        let mut left: BTreeMap<_, _> = written.map(|mark| (mark.partition.clone(), mark.high)).collect();
        if left.is_empty() {
            return;
        }
        let subscription = TopicSubscription { topic: topic.into(), start: Start::Earliest };
        let options = JoinOptions::new(crate::unique("desk"), vec![subscription]);
        let mut membership = self.adapter.join(options).await.expect("the reader joins its group");
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while !left.is_empty() {
            let event = tokio::time::timeout_at(deadline, membership.events.next()).await;
            let event = event.unwrap_or_else(|_| panic!("{topic} is not read within a minute: {left:?} are missing"));
            let Event::Batch(batch) = event.expect("the membership goes on") else { continue };
            take(&batch);
            let partition = &batch.assigned.partition;
            if left.get(partition).is_some_and(|end| batch.records.next_offset() >= *end) {
                left.remove(partition);
            }
        }
        membership.handle.leave(Duration::from_secs(10)).await.expect("the reader leaves its group");
    }

    /// What the group has committed on these topics.
    ///
    /// # Panics
    /// When the cluster does not tell.
    pub async fn committed(&self, group: &str, topics: &[&str]) -> BTreeMap<TopicPartition, Offset> {
        let committed = self.adapter.committed(group, &names(topics)).await.expect("committed offsets");
        committed.into_iter().map(|committed| (committed.partition, committed.offset)).collect()
    }

    /// The next offset of every partition of these topics.
    ///
    /// # Panics
    /// When the cluster does not tell.
    pub async fn ends(&self, topics: &[&str]) -> BTreeMap<TopicPartition, Offset> {
        let marks = self.adapter.watermarks(&names(topics)).await.expect("watermarks");
        marks.into_iter().map(|mark| (mark.partition, mark.high)).collect()
    }

    /// How many records of these topics the group has not committed; those without a position count whole.
    ///
    /// # Panics
    /// When the cluster does not tell.
    pub async fn lag(&self, group: &str, topics: &[&str]) -> i64 {
        let committed = self.committed(group, topics).await;
        let marks = self.adapter.watermarks(&names(topics)).await.expect("watermarks");
        let left = marks.iter().map(|mark| mark.high.0 - committed.get(&mark.partition).unwrap_or(&mark.low).0);
        left.sum()
    }

    /// Waits until the group has committed everything in these topics. They stand in the order of the ladder: a hop is
    /// acknowledged before its record is committed, so each is looked at after the one before is empty.
    ///
    /// # Panics
    /// When that does not come to pass in time.
    pub async fn drained(&self, group: &str, topics: &[&str], patience: Duration) {
        let deadline = Instant::now() + patience;
        for topic in topics {
            loop {
                let lag = self.lag(group, &[topic]).await;
                if lag == 0 {
                    break;
                }
                assert!(Instant::now() < deadline, "{group}: {lag} records of {topic} left after {patience:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// The codecs that the batches of a topic are compressed by, each once.
    ///
    /// # Panics
    /// When they cannot be read within a minute.
    pub async fn codecs(&self, topic: &str) -> Vec<Codec> {
        let mut codecs = Vec::new();
        self.read_batches(topic, |batch| {
            codecs.extend(batch.records.batches().iter().map(|batch| batch.header().codec));
        })
        .await;
        codecs.sort_by_key(|codec| codec.bits());
        codecs.dedup();
        codecs
    }
}

fn names(topics: &[&str]) -> Vec<Topic> {
    topics.iter().map(|topic| Topic::from(*topic)).collect()
}
