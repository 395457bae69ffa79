//! The adapter contract against a real Kafka, and what is Kafka's own in the adapter.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kafka_harbor::adapter::kafka::{KafkaAdapter, KafkaAdapterBuilder};
use kafka_harbor::adapter::{
    Adapter, AdapterErrorKind, Event, JoinOptions, Publisher, PublisherOptions, Start, TopicSubscription,
};
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::protocol::compression::Codec;
use kafka_harbor::record::{NewTopic, Record, Topic};
use kafka_harbor::retry::{ExponentialFullJitter, RetryPolicy};
use kafka_harbor::testing::contract::Fixture;
use protocol_tests::{Cluster, kafka, unique};

/// Runs a check of the contract on the shared broker, with these options.
macro_rules! contract {
    ($module:ident, $options:expr) => {
        mod $module {
            use super::*;
            kafka_harbor::adapter_contract!(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                match kafka() {
                    Some(kafka) => LiveKafka::new(kafka, $options),
                    None => return,
                }
            );
        }
    };
}

contract!(plain, |options| options);
contract!(zstd_without_linger, |options: KafkaAdapterBuilder| {
    options.compression(Codec::Zstd).linger(Duration::ZERO)
});

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn share_groups_settle_record_by_record() {
    let Some(kafka) = kafka() else { return };
    let fixture = LiveKafka::new(kafka, KafkaAdapterBuilder::share_groups);
    kafka_harbor::testing::contract::records_are_settled_one_by_one(&fixture).await;
}

#[derive(Debug)]
struct LiveKafka {
    bootstrap: String,
    options: fn(KafkaAdapterBuilder) -> KafkaAdapterBuilder,
    proxy: Option<&'static Proxy>,
}

impl LiveKafka {
    fn new(kafka: &Cluster, options: fn(KafkaAdapterBuilder) -> KafkaAdapterBuilder) -> Self {
        let proxy = Proxy::of(kafka);
        let bootstrap = proxy.map_or(kafka.bootstrap.clone(), |proxy| proxy.address.clone());
        Self { bootstrap, options, proxy }
    }
}

impl Fixture for LiveKafka {
    fn adapter(&self) -> Arc<dyn Adapter> {
        let options = KafkaAdapter::builder([self.bootstrap.as_str()]).client_id("contract");
        let options = options.session_timeout(Duration::from_secs(10)).heartbeat_interval(Duration::from_secs(1));
        Arc::new((self.options)(options).build().unwrap())
    }

    fn lose_next_answer(&self, topic: &str) -> bool {
        let Some(proxy) = self.proxy else { return false };
        *proxy.lose.lock().unwrap() = Some(topic.to_owned());
        true
    }
}

/// Stands between clients and the broker, which advertises the proxy's address. Loses an answer when told to.
#[derive(Debug)]
struct Proxy {
    address: String,
    /// The next Produce request that names this topic is passed on, and its connection closed instead of answered.
    lose: std::sync::Mutex<Option<String>>,
}

impl Proxy {
    fn of(kafka: &Cluster) -> Option<&'static Self> {
        static PROXY: OnceLock<Option<Proxy>> = OnceLock::new();
        static STARTED: AtomicBool = AtomicBool::new(false);
        let proxy = PROXY.get_or_init(|| {
            let address = kafka.env.get("PROXIED")?.clone();
            Some(Self { address, lose: std::sync::Mutex::default() })
        });
        let proxy = proxy.as_ref()?;
        if !STARTED.swap(true, Ordering::SeqCst) {
            let listener = TcpListener::bind(&proxy.address).unwrap();
            let target = kafka.env["PROXY_TARGET"].clone();
            std::thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    let broker = TcpStream::connect(&target).unwrap();
                    client.set_nodelay(true).unwrap();
                    broker.set_nodelay(true).unwrap();
                    let (from_broker, to_client) = (broker.try_clone().unwrap(), client.try_clone().unwrap());
                    let losing = Arc::new(AtomicBool::new(false));
                    let lost = losing.clone();
                    std::thread::spawn(move || proxy.requests(client, broker, &losing));
                    std::thread::spawn(move || answers(from_broker, to_client, &lost));
                }
            });
        }
        Some(proxy)
    }

    fn requests(&self, mut client: TcpStream, mut broker: TcpStream, losing: &AtomicBool) {
        while let Some(frame) = read_frame(&mut client) {
            // Produce names the topic from version 13 on by its id, so any Produce after the order is taken.
            let produce = frame[4..6] == [0, 0];
            if produce && self.lose.lock().unwrap().take().is_some() {
                losing.store(true, Ordering::SeqCst);
            }
            if broker.write_all(&frame).is_err() {
                break;
            }
        }
        let _ = broker.shutdown(Shutdown::Both);
    }
}

fn answers(mut broker: TcpStream, mut client: TcpStream, losing: &AtomicBool) {
    while let Some(frame) = read_frame(&mut broker) {
        if losing.load(Ordering::SeqCst) || client.write_all(&frame).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = broker.shutdown(Shutdown::Both);
}

fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = length.to_vec();
    frame.resize(4 + u32::from_be_bytes(length) as usize, 0);
    stream.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}

fn adapter(kafka: &Cluster) -> KafkaAdapter {
    KafkaAdapter::builder(["127.0.0.1:1", &kafka.bootstrap]).client_id("live-adapter").build().unwrap()
}

fn one_try() -> PublisherOptions {
    PublisherOptions::with_retry(RetryPolicy { attempts: 1, backoff: Arc::new(ExponentialFullJitter::default()) })
}

#[tokio::test]
async fn settings_of_a_topic_are_told_and_those_of_a_missing_one_are_not() {
    let Some(kafka) = kafka() else { return };
    let adapter = adapter(kafka);
    let name = Topic::from(unique("described"));
    let new = NewTopic::new(&name).with_partitions(2).with_config("retention.ms", "99000");
    adapter.create_topics(&[new]).await.unwrap();
    let described = adapter.describe_topics(&[name.clone(), "missing".into()]).await.unwrap();
    let description = described[0].as_ref().unwrap();
    assert_eq!((description.partitions, description.configs["retention.ms"].as_str()), (2, "99000"));
    assert!(description.configs.contains_key("max.message.bytes"), "what is not set is told as well");
    assert_eq!(described[1], None);
    let error = adapter.watermarks(&["missing".into()]).await.unwrap_err();
    assert_eq!((&error.kind, error.retryable), (&AdapterErrorKind::TopicMissing("missing".into()), true));
}

#[tokio::test]
async fn a_record_for_a_topic_that_does_not_exist_fails_as_not_written() {
    let Some(kafka) = kafka() else { return };
    let adapter = KafkaAdapter::builder([kafka.bootstrap.as_str()])
        .request_timeout(Duration::from_secs(1))
        .delivery_timeout(Duration::from_secs(2))
        .build()
        .unwrap();
    let publisher = adapter.publisher(one_try()).unwrap();
    let (missing, there) = (unique("missing"), unique("there"));
    adapter.create_topics(&[NewTopic::new(there.as_str())]).await.unwrap();
    let records =
        vec![Record::new(missing.as_str(), "1"), Record::new(there.as_str(), "2"), Record::new(missing.as_str(), "3")];
    let error = publisher.publish(records).await.unwrap_err();
    assert_eq!(error.attempts, 1);
    for index in [0, 2] {
        let failure = error.outcomes[index].as_ref().unwrap_err();
        assert_eq!((failure.outcome, failure.retryable), (WriteOutcome::NotWritten, true), "{failure}");
    }
    assert!(error.outcomes[1].is_ok(), "another topic's record is written: {error}");
}

#[tokio::test]
async fn without_a_broker_every_call_ends_in_time_and_may_be_made_again() {
    let adapter = KafkaAdapter::builder(["127.0.0.1:1"])
        .admin_timeout(Duration::from_secs(1))
        .request_timeout(Duration::from_millis(500))
        .delivery_timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    let started = std::time::Instant::now();
    let error = adapter.connect().await.unwrap_err();
    assert_eq!((&error.kind, error.retryable), (&AdapterErrorKind::Unavailable, true), "{error}");
    let error = adapter.committed("g", &["t".into()]).await.unwrap_err();
    assert_eq!((&error.kind, error.retryable), (&AdapterErrorKind::Unavailable, true), "{error}");
    let publisher = adapter.publisher(one_try()).unwrap();
    let error = publisher.publish(vec![Record::new("t", "v")]).await.unwrap_err();
    let failure = error.outcomes[0].as_ref().unwrap_err();
    assert_eq!((failure.outcome, failure.retryable), (WriteOutcome::NotWritten, true), "{failure}");
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
}

#[tokio::test]
async fn closing_sends_what_waits_and_ends_memberships() {
    let Some(kafka) = kafka() else { return };
    let adapter = KafkaAdapter::builder([kafka.bootstrap.as_str()]).linger(Duration::from_secs(20)).build().unwrap();
    let name = unique("closing");
    adapter.create_topics(&[NewTopic::new(name.as_str()).with_partitions(1)]).await.unwrap();
    let publisher: Arc<dyn Publisher> = adapter.publisher(one_try()).unwrap();
    let record = Record::new(name.as_str(), "waits");
    let waits = tokio::spawn(async move { publisher.publish(vec![record]).await });
    let subscription = TopicSubscription { topic: name.as_str().into(), start: Start::Earliest };
    let mut membership = adapter.join(JoinOptions::new(unique("group"), vec![subscription])).await.unwrap();
    // By then the record, too, is with the client; it would linger there for long.
    let joined = tokio::time::timeout(Duration::from_secs(20), async {
        while !matches!(membership.events.next().await, Some(Event::Assigned(_))) {}
    });
    joined.await.expect("an assignment");
    assert!(!waits.is_finished(), "it lingers");
    adapter.close(Duration::from_secs(10)).await.unwrap();
    assert_eq!(waits.await.unwrap().unwrap()[0].partition.topic, name.as_str());
    while let Some(event) = membership.events.next().await {
        assert!(!matches!(event, Event::Fault(_)), "{event:?}");
    }
    assert_eq!(adapter.connect().await.unwrap_err().kind, AdapterErrorKind::Closed);
}
