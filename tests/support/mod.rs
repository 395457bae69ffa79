//! What the framework's tests share: a harbor over the broker in memory, and ears for its events.

#![allow(dead_code, reason = "each test binary uses its part of this")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

pub(crate) mod pass_on;

use std::future::{Future, Ready, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker, StoredRecord};
use kafka_harbor::adapter::{Adapter, PublisherOptions};
use kafka_harbor::clock::TokioClock;
use kafka_harbor::harbor::{Consumer, ConsumerBuilder, Context, Failure, Harbor, HarborBuilder, Text};
use kafka_harbor::observe::{
    CommitFailed, Connected, ConsumerStopped, Disconnected, ErrorReported, HopTooLarge, MessageDeadLettered,
    MessageFailed, MessageProcessed, MessageProduced, MessageRetried, MessageSkipped, Observer,
};
use kafka_harbor::record::{Offset, Record, Timestamp};

/// The group of most tests.
pub(crate) const GROUP: &str = "shipping";

/// A broker, a harbor on it whose payloads are text, and what it told.
pub(crate) struct Port {
    pub(crate) broker: MemoryBroker,
    pub(crate) harbor: Harbor<Text>,
    pub(crate) told: Told,
}

impl Port {
    /// With a topic `orders` of one partition.
    pub(crate) fn new() -> Self {
        let broker = MemoryBroker::new();
        broker.create_topic("orders", 1).unwrap();
        Self::on(broker)
    }

    pub(crate) fn on(broker: MemoryBroker) -> Self {
        Self::with(broker, |builder| builder)
    }

    pub(crate) fn with(broker: MemoryBroker, build: impl FnOnce(HarborBuilder<Text>) -> HarborBuilder<Text>) -> Self {
        let told = Told::default();
        let builder = Harbor::builder("orders-service", MemoryAdapter::new(&broker))
            .serializer(Text)
            .clock(TokioClock)
            .observer(told.clone());
        Self { harbor: build(builder).build().unwrap(), broker, told }
    }

    /// A consumer of [`GROUP`] that reads from the beginning and creates what topics it derives.
    pub(crate) fn consumer(&self) -> ConsumerBuilder<Text> {
        self.harbor.consumer(GROUP).from_beginning(true).auto_create_topics(true)
    }

    /// Publishes values to a topic, each in a batch of its own.
    pub(crate) async fn publish(&self, topic: &str, values: &[&str]) {
        for value in values {
            self.send(Record::new(topic, value.to_string())).await;
        }
    }

    pub(crate) async fn send(&self, record: Record) {
        send(&self.broker, vec![record]).await;
    }

    pub(crate) fn committed(&self, topic: &str) -> Option<i64> {
        self.broker.committed(GROUP, topic, 0).map(|Offset(offset)| offset)
    }

    /// The values on a topic.
    pub(crate) fn values(&self, topic: &str) -> Vec<String> {
        self.broker.records(topic).iter().map(value).collect()
    }

    pub(crate) async fn drained(&self, topics: &[&str]) {
        within("draining", self.broker.when_drained(GROUP, topics)).await.unwrap();
    }
}

/// Publishes in one call by an adapter of its own.
pub(crate) async fn send(broker: &MemoryBroker, records: Vec<Record>) {
    let adapter = MemoryAdapter::new(broker);
    adapter.publisher(PublisherOptions::default()).unwrap().publish(records).await.unwrap();
}

pub(crate) fn value(record: &StoredRecord) -> String {
    record.value.as_ref().map_or_else(|| "null".into(), |value| String::from_utf8_lossy(value).into_owned())
}

/// Fails a test that waits for what does not come. Ten days: under paused time that is nothing, and longer than any
/// delay in the tests.
pub(crate) async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(864_000), wait).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: did not happen"),
    }
}

/// Waits until something is so, for at most ten minutes.
pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..120_000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}: did not happen");
}

/// Lets everything that can go on do so, without time passing to speak of.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// What handlers saw: `topic/offset value #attempt`.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub(crate) fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub(crate) fn note(&self, payload: &str, context: &Context) {
        self.add(format!("{}/{} {payload} #{}", context.topic(), context.offset(), context.attempt()));
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// The events of a harbor in a short form.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn add(&self, event: String) {
        self.0.lock().unwrap().push(event);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Those that begin with one of these words.
    pub(crate) fn of(&self, words: &[&str]) -> Vec<String> {
        self.all().into_iter().filter(|event| words.iter().any(|word| event.starts_with(word))).collect()
    }

    /// Those about records: processed, failed, retried, dead-lettered, skipped.
    pub(crate) fn outcomes(&self) -> Vec<String> {
        self.of(&["processed", "failed", "retried", "dead-lettered", "skipped"])
    }
}

impl Observer for Told {
    fn connected(&self, event: &Connected<'_>) {
        self.add(format!("connected {}", event.adapter));
    }

    fn disconnected(&self, event: &Disconnected<'_>) {
        self.add(format!("disconnected {}", event.adapter));
    }

    fn message_processed(&self, e: &MessageProcessed<'_>) {
        self.add(format!("processed {}/{}", e.topic, e.offset));
    }

    fn message_failed(&self, e: &MessageFailed<'_>) {
        self.add(format!("failed {}/{} {}: {}", e.topic, e.offset, e.outcome, e.error.text));
    }

    fn message_retried(&self, e: &MessageRetried<'_>) {
        self.add(format!("retried {}/{} to {} level {} #{}", e.topic, e.offset, e.retry_topic, e.level, e.attempt));
    }

    fn message_dead_lettered(&self, e: &MessageDeadLettered<'_>) {
        self.add(format!("dead-lettered {}/{} to {} #{}", e.topic, e.offset, e.dead_letter_topic, e.attempts));
    }

    fn message_skipped(&self, e: &MessageSkipped<'_>) {
        self.add(format!("skipped {}/{} of {}", e.topic, e.offset, e.retry_group.unwrap_or("nobody")));
    }

    fn message_produced(&self, e: &MessageProduced<'_>) {
        self.add(format!("produced {} {}", e.topic, e.kind));
    }

    fn commit_failed(&self, e: &CommitFailed<'_>) {
        self.add(format!("commit-failed {} {}, {} withheld", e.partition, e.offset, e.withheld));
    }

    fn hop_too_large(&self, e: &HopTooLarge<'_>) {
        self.add(format!("too-large {}/{} to {} for {}: {}", e.partition, e.offset, e.to, e.kind, e.remedy));
    }

    fn consumer_stopped(&self, e: &ConsumerStopped<'_>) {
        self.add(format!("stopped {} {}", e.group, e.reason));
    }

    fn error(&self, e: &ErrorReported<'_>) {
        self.add(format!("error {} {}", e.scope, e.error.code));
    }
}

/// Builds a consumer and starts it.
pub(crate) async fn start<S: Send + Sync + 'static>(builder: ConsumerBuilder<S>) -> Consumer {
    let consumer = builder.build().unwrap();
    consumer.start().await.unwrap();
    consumer
}

/// A handler that notes each call and succeeds.
pub(crate) fn noting(seen: &Seen) -> impl Fn(String, Context) -> Ready<Result<(), Failure>> + use<> {
    noting_with(seen, || Ok(()))
}

/// A handler that notes each call and [`fails`].
pub(crate) fn failing(seen: &Seen) -> impl Fn(String, Context) -> Ready<Result<(), Failure>> + use<> {
    noting_with(seen, fails)
}

fn noting_with<F: Fn() -> Result<(), Failure>>(
    seen: &Seen,
    outcome: F,
) -> impl Fn(String, Context) -> Ready<Result<(), Failure>> + use<F> {
    let seen = seen.clone();
    move |order, context| {
        seen.note(&order, &context);
        ready(outcome())
    }
}

/// The error that most handlers fail with.
pub(crate) fn fails() -> Result<(), Failure> {
    Err(Failure::new("out of stock").named("StockError"))
}

pub(crate) fn now() -> Timestamp {
    kafka_harbor::clock::Clock::now(&TokioClock)
}
