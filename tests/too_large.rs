//! Records that are too large for where a hop takes them: its headers do not fit, or the topic takes less than the
//! source.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::time::Duration;

use kafka_harbor::adapter::memory::{Call, MemoryBroker, StoredRecord};
use kafka_harbor::harbor::Failure;
use kafka_harbor::observe::StopReason;
use kafka_harbor::record::Record;
use support::{GROUP, Port, fails, settle, start, until, within};

/// What each topic of the long ladder takes, in bytes.
const LIMIT: usize = 100 * 1_024;

/// A port with these topics, each of one partition and with its limit in bytes.
fn port(topics: &[(&str, &'static str)]) -> Port {
    let broker = MemoryBroker::new();
    for (topic, limit) in topics {
        broker.create_topic_with(*topic, 1, [("max.message.bytes", *limit)]).unwrap();
    }
    Port::on(broker)
}

fn header<'a>(record: &'a StoredRecord, name: &str) -> Option<&'a str> {
    let header = record.headers.iter().find(|header| header.name == name)?;
    Some(std::str::from_utf8(header.value.as_ref()?).unwrap())
}

/// Publishes that were tried to this topic.
fn tries(port: &Port, topic: &str) -> usize {
    let to = |call: &&Call| matches!(call, Call::Publish { topics, .. } if topics.iter().any(|one| one == topic));
    port.broker.calls().iter().filter(to).count()
}

/// Headers grew with each hop until the dead letter was too large, and the consumer met its record for ever
/// (spring-kafka#1994).
#[tokio::test(start_paused = true)]
async fn a_hundred_hops_with_long_errors_end_in_the_dead_letters() {
    let broker = MemoryBroker::new();
    let names = (1..=99).map(|level| format!("orders-retry-{level}")).chain(["orders".into(), "orders-dlq".into()]);
    for name in names {
        broker.create_topic_with(name, 1, [("max.message.bytes", "102400")]).unwrap();
    }
    let port = Port::on(broker);
    let failing = async |_: String| Err::<(), _>(Failure::new("no stock ".repeat(7_300)));
    start(port.consumer().retry_levels(vec!["1ms"; 99]).subscribe("orders", failing)).await;
    // With all that a hop writes the one fits, the other does not.
    let small = "tea".to_owned();
    let large = "t".repeat(LIMIT - 500);
    for order in [&small, &large] {
        let order = Record::new("orders", order.clone()).with_header("traceparent", "00-ab-cd-01");
        port.send(order.with_header("x-correlation-id", "b7f4c1d2-0000-4000-8000-000000000000")).await;
    }
    within("the dead letters", until("both", || port.values("orders-dlq").len() == 2)).await;
    settle().await;

    let letters = port.broker.records("orders-dlq");
    let letter = |value: &String| letters.iter().find(|letter| support::value(letter) == *value).unwrap();
    for letter in [letter(&small), letter(&large)] {
        assert_eq!(header(letter, "x-retry-count"), Some("100"));
        assert_eq!(header(letter, "x-original-topic"), Some("orders"));
        assert_eq!(header(letter, "x-retry-group"), Some(GROUP));
        assert_eq!(header(letter, "traceparent"), Some("00-ab-cd-01"));
        assert!(header(letter, "x-first-failure-at").is_some());
        let bytes: usize = letter.headers.iter().map(|one| one.name.len() + one.value.as_ref().unwrap().len()).sum();
        assert!(bytes < 1_500, "{bytes} bytes of headers");
    }
    assert_eq!(header(letter(&small), "x-last-error").map(str::len), Some(1_024));
    assert_eq!(header(letter(&large), "x-last-error"), None, "it does not fit");
    assert_eq!(port.told.of(&["stopped", "error"]), [""; 0]);
    assert_eq!(port.committed("orders"), Some(2));
    assert_eq!(tries(&port, "orders-retry-50"), 3, "the large one is offered twice");
    port.harbor.shutdown(Duration::from_secs(5)).await.unwrap();
}

/// A retry topic that takes less than its source stopped the consumer at the same record again and again.
#[tokio::test(start_paused = true)]
async fn what_no_retry_topic_takes_goes_to_the_dead_letters() {
    let port = port(&[("orders", "1000000"), ("orders-retry-1", "1000"), ("orders-dlq", "1000000")]);
    let failing = port.consumer().retry_levels(["1s"]).subscribe("orders", async |_: String| fails());
    start(failing).await;
    port.publish("orders", &[&"t".repeat(2_000), "tea"]).await;
    port.drained(&["orders", "orders-retry-1"]).await;

    let letters = port.broker.records("orders-dlq");
    assert_eq!(letters.iter().map(|letter| support::value(letter).len()).collect::<Vec<_>>(), [2_000, 3]);
    assert_eq!(header(&letters[0], "x-retry-count"), Some("1"));
    assert_eq!(header(&letters[0], "x-last-error"), Some("StockError: out of stock"), "there is room for it");
    assert!(header(&letters[0], "x-dead-lettered-at").is_some());
    let of_the_first: Vec<_> = port.told.outcomes().into_iter().filter(|event| event.contains("orders/0")).collect();
    assert_eq!(
        of_the_first,
        ["failed orders/0 dead-letter: StockError: out of stock", "dead-lettered orders/0 to orders-dlq #1"]
    );
    assert_eq!(port.told.of(&["stopped", "error"]), [""; 0]);
    assert_eq!(
        port.told.of(&["too-large"]),
        [
            "too-large orders-0/0 to orders-retry-1 for retry: without-trail",
            "too-large orders-0/0 to orders-retry-1 for retry: dead-letters",
        ]
    );
    assert_eq!(tries(&port, "orders-retry-1"), 3);
    port.harbor.shutdown(Duration::from_secs(5)).await.unwrap();
}

/// Nothing takes it: it is not lost, it is not offered without end, and what happened is told by name.
#[tokio::test(start_paused = true)]
async fn what_nothing_takes_stays_where_it_is_and_stops_the_consumer_once() {
    let port = port(&[("orders", "1000000"), ("orders-retry-1", "1000"), ("orders-dlq", "1000")]);
    let failing = port.consumer().retry_levels(["1s"]).subscribe("orders", async |_: String| fails());
    let consumer = start(failing).await;
    port.publish("orders", &[&"t".repeat(2_000)]).await;
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Crash));
    assert_eq!(port.committed("orders"), None);
    assert_eq!((tries(&port, "orders-retry-1"), tries(&port, "orders-dlq")), (2, 2));
    assert_eq!(port.values("orders-dlq"), [""; 0]);
    assert_eq!(port.told.of(&["error", "stopped"]), ["error consumer TOO_LARGE", "stopped shipping crash"]);
    assert_eq!(port.told.outcomes(), [""; 0]);
    assert_eq!(
        port.told.of(&["too-large"]),
        [
            "too-large orders-0/0 to orders-retry-1 for retry: without-trail",
            "too-large orders-0/0 to orders-retry-1 for retry: dead-letters",
            "too-large orders-0/0 to orders-dlq for dead-letter: without-trail",
            "too-large orders-0/0 to orders-dlq for dead-letter: stop",
        ]
    );
}
