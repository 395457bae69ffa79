//! Code of the application that panics where one does not look for it: in what an error says of itself, in the clock, in
//! names, waits and serializers. Nothing dies of it.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_harbor::adapter::memory::{MemoryBroker, StoredRecord};
use kafka_harbor::clock::Clock;
use kafka_harbor::error::BoxError;
use kafka_harbor::harbor::{Classify, ConsumerStatus, Failure, HarborError, Message, Serializer, Text, code};
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::Timestamp;
use kafka_harbor::retry::{Backoff, RetryPolicy};
use support::{Port, fails, within};

/// An error one of whose methods panics.
#[derive(Clone)]
struct Broken(String);

impl Broken {
    fn panics_in(&self, method: &str) {
        assert!(self.0 != method, "{method} panics");
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("half")?;
        self.panics_in("display");
        if self.0 == "display fails" {
            return Err(fmt::Error);
        }
        f.write_str(" told")
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.panics_in("debug");
        f.write_str("Broken")
    }
}

impl Error for Broken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.panics_in("source");
        None
    }
}

impl Classify for Broken {
    fn retryable(&self) -> Option<bool> {
        self.panics_in("retryable");
        None
    }

    fn name(&self) -> Cow<'static, str> {
        self.panics_in("name");
        "Broken".into()
    }

    fn code(&self) -> Option<Cow<'static, str>> {
        self.panics_in("code");
        None
    }
}

/// Makes what is broken a source.
#[derive(Debug, thiserror::Error)]
#[error("outer")]
struct Outer(#[source] Broken);

fn last_error(record: &StoredRecord) -> &str {
    let header = record.headers.iter().find(|header| header.name == "x-last-error").unwrap();
    std::str::from_utf8(header.value.as_ref().unwrap()).unwrap()
}

/// The worker died at the record, and did so again after each start.
#[tokio::test(start_paused = true)]
async fn an_error_that_panics_when_asked_is_a_failed_delivery() {
    let port = Port::new();
    let consumer = port
        .consumer()
        .retry_levels(["1s"])
        .classify::<Broken>()
        .subscribe("orders", async |order: String| match order.strip_prefix("beneath ") {
            Some(method) => Err::<(), _>(Failure::new(Outer(Broken(method.to_owned())))),
            None => Err(Failure::new(Broken(order))),
        })
        .build()
        .unwrap();
    consumer.start().await.unwrap();
    let methods = ["display", "display fails", "debug", "source", "retryable", "name", "code"];
    let beneath = methods.map(|method| format!("beneath {method}"));
    let orders: Vec<&str> = methods.into_iter().chain(beneath.iter().map(String::as_str)).collect();
    port.publish("orders", &orders).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(consumer.status(), ConsumerStatus::Running);
    assert_eq!(port.told.of(&["stopped"]), [""; 0]);
    let letters = port.broker.records("orders-dlq");
    let told: Vec<_> =
        letters.iter().map(|letter| format!("{} | {}", support::value(letter), last_error(letter))).collect();
    assert_eq!(
        told,
        [
            "display | Broken: half (its text panicked)",
            "display fails | Broken: half (its text cannot be had)",
            "debug | Broken: half told",
            "source | Broken: half told",
            "retryable | Broken: half told",
            "name | Broken: half told",
            "code | Broken: half told",
            "beneath display | Broken: outer: half (its text panicked)",
            "beneath display fails | Broken: outer: half (its text cannot be had)",
            "beneath debug | Broken: outer: half told",
            "beneath source | Broken: outer: half told",
            "beneath retryable | Broken: outer: half told",
            "beneath name | Outer: outer: half told",
            "beneath code | Broken: outer: half told",
        ]
    );
    port.harbor.shutdown(Duration::from_secs(5)).await.unwrap();
}

/// A failure is also an error that others print.
#[test]
fn a_failure_can_be_printed_whatever_its_cause_does() {
    for method in ["display", "debug", "source"] {
        let failure = Failure::new(Broken(method.into()));
        let _ = (failure.to_string(), format!("{failure:?}"), failure.source().is_some());
        let _ = failure.downcast_ref::<Outer>();
    }
}

/// A handler that is given up is dropped, and what it holds may panic then.
#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_when_it_is_dropped_has_failed_once() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("dropped");
            }
        }
    }
    let port = Port::new();
    let consumer = port
        .consumer()
        .max_processing_time("1s")
        .subscribe("orders", async |order: String| {
            let _bomb = (order == "bomb").then_some(Bomb);
            if order == "bomb" {
                std::future::pending::<()>().await;
            }
            fails()
        })
        .build()
        .unwrap();
    consumer.start().await.unwrap();
    port.publish("orders", &["bomb", "tea"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(consumer.status(), ConsumerStatus::Running);
    assert_eq!(port.values("orders-dlq"), ["bomb", "tea"]);
    port.harbor.shutdown(Duration::from_secs(5)).await.unwrap();
}

#[derive(Debug)]
struct BrokenClock;

impl Clock for BrokenClock {
    fn now(&self) -> Timestamp {
        panic!("no time")
    }
}

/// The time is asked for at each hop.
#[tokio::test(start_paused = true)]
async fn a_clock_that_panics_gives_way_to_the_systems() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 1).unwrap();
    let port = Port::with(broker, |builder| builder.clock(BrokenClock));
    let consumer = port.consumer().subscribe("orders", async |_: String| fails()).build().unwrap();
    consumer.start().await.unwrap();
    port.harbor.producer().build().unwrap().send("orders", Message::new("tea".to_owned())).await.unwrap();
    port.drained(&["orders"]).await;
    assert_eq!(port.values("orders-dlq"), ["tea"]);
    assert_eq!(consumer.status(), ConsumerStatus::Running);
    port.harbor.shutdown(Duration::from_secs(5)).await.unwrap();
}

#[derive(Debug)]
struct BrokenBackoff;

impl Backoff for BrokenBackoff {
    fn delay(&self, _failures: u32, _random: f64) -> Duration {
        panic!("no patience")
    }
}

#[tokio::test(start_paused = true)]
async fn a_backoff_that_panics_gives_way_to_the_default() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 1).unwrap();
    let retry = RetryPolicy { attempts: 3, backoff: Arc::new(BrokenBackoff) };
    let port = Port::with(broker, |builder| builder.produce_retry(retry));
    let consumer = port.consumer().subscribe("orders", async |_: String| fails()).build().unwrap();
    consumer.start().await.unwrap();
    port.broker.fail_next_produce("orders-dlq", ErrorCode::NOT_LEADER_OR_FOLLOWER, true);
    port.publish("orders", &["tea"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(port.values("orders-dlq"), ["tea"]);
    assert_eq!(consumer.status(), ConsumerStatus::Running);
    port.harbor.shutdown(Duration::from_secs(5)).await.unwrap();
}

/// The panic came out of `build`.
#[tokio::test(start_paused = true)]
async fn names_that_panic_are_mistakes_of_the_configuration() {
    let port = Port::new();
    let build = |builder: kafka_harbor::harbor::ConsumerBuilder<Text>| {
        builder.retry_levels(["1s"]).subscribe("orders", async |_: String| fails()).build().unwrap_err().to_string()
    };
    let error = build(port.consumer().retry_topic(|_, _| panic!("no name")));
    assert_eq!(error, "topics[orders]: its retry and dead-letter topics cannot be named: no name");
    let error = build(port.consumer().dead_letter_topic(|_| panic!("no name")));
    assert_eq!(error, "topics[orders]: its retry and dead-letter topics cannot be named: no name");
}

struct BrokenSerializer;

impl Serializer<String> for BrokenSerializer {
    async fn serialize(&self, _topic: &str, payload: &String) -> Result<Bytes, BoxError> {
        if payload == "later" {
            tokio::task::yield_now().await;
        }
        panic!("no bytes")
    }
}

/// The panic came out of `send`, into whatever task that was.
#[tokio::test(start_paused = true)]
async fn a_serializer_that_panics_has_failed() {
    let port = Port::new();
    let producer = port.harbor.producer().serializer(BrokenSerializer).build().unwrap();
    for payload in ["now", "later"] {
        let sent = within("sending", producer.send("orders", Message::new(payload.to_owned()))).await;
        let error = sent.unwrap_err();
        assert!(matches!(error, HarborError::Serialization(_)), "{error:?}");
        assert_eq!(error.code(), code::SERIALIZATION);
        assert_eq!(error.to_string(), "cannot serialize a payload for `orders`: no bytes");
    }
    assert_eq!(port.values("orders"), [""; 0]);
}
