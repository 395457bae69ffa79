//! The way of a record that fails: retry levels, dead letters, and what it carries along.

mod support;

use std::time::Duration;

use kafka_harbor::adapter::memory::StoredRecord;
use kafka_harbor::harbor::{Context, Failure};
use kafka_harbor::record::{Header, Record};
use support::{Port, Seen, fails, settle, within};

#[tokio::test(start_paused = true)]
async fn a_record_that_is_handled_is_committed_and_told_of() {
    let port = Port::new();
    let seen = Seen::default();
    let consumer = port
        .consumer()
        .subscribe("orders", {
            let seen = seen.clone();
            move |order: String, context: Context| {
                seen.note(&order, &context);
                async { Ok::<_, Failure>(()) }
            }
        })
        .build()
        .unwrap();
    consumer.start().await.unwrap();
    port.publish("orders", &["tea", "milk"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(seen.all(), ["orders/0 tea #1", "orders/1 milk #1"]);
    assert_eq!(port.committed("orders"), Some(2));
    assert_eq!(port.told.outcomes(), ["processed orders/0", "processed orders/1"]);
    port.harbor.shutdown(Duration::from_secs(30)).await.unwrap();
    assert_eq!(
        port.told.of(&["conn", "stop", "disc", "error"]),
        ["connected memory", "stopped shipping shutdown", "disconnected memory"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_golden_trail_is_walked_with_its_headers() {
    let port = Port::new();
    let seen = Seen::default();
    let consumer = port
        .consumer()
        .retry_levels(["5s"])
        .subscribe("orders", {
            let seen = seen.clone();
            move |order: String, context: Context| {
                seen.note(&order, &context);
                async { Err(Failure::new("bad sku é").named("ValidationError")) }
            }
        })
        .build()
        .unwrap();
    consumer.start().await.unwrap();
    let record = Record::new("orders", "tea")
        .with_key("customer-42")
        .with_header("x-tenant", "acme")
        .with_header("traceparent", "00-01")
        .with_header("x-correlation-id", "c-1")
        .with_header("x-produced-at", "2026-01-01T00:00:00.000Z")
        .with_header("x-producer", "shop");
    port.send(record).await;
    port.drained(&["orders", "orders-retry-1"]).await;

    assert_eq!(seen.all(), ["orders/0 tea #1", "orders-retry-1/0 tea #2"]);
    let common = ["x-tenant", "traceparent", "x-correlation-id", "x-produced-at", "x-producer"];
    let block = ["x-retry-count", "x-original-topic", "x-first-failure-at", "x-last-error"];
    let retry = &port.broker.records("orders-retry-1")[0];
    assert_eq!(names(retry), [&common[..], &block, &["x-retry-group"]].concat());
    let dead = &port.broker.records("orders-dlq")[0];
    assert_eq!(names(dead), [&common[..], &block, &["x-retry-group", "x-dead-lettered-at"]].concat());
    for (record, count) in [(retry, "1"), (dead, "2")] {
        assert_eq!(record.key.as_deref(), Some(&b"customer-42"[..]));
        assert_eq!(record.value.as_deref(), Some(&b"tea"[..]));
        assert_eq!(text(record, "x-correlation-id"), "c-1");
        assert_eq!(text(record, "x-producer"), "orders-service");
        assert_ne!(text(record, "x-produced-at"), "2026-01-01T00:00:00.000Z");
        assert_eq!(text(record, "x-retry-count"), count);
        assert_eq!(text(record, "x-original-topic"), "orders");
        assert_eq!(text(record, "x-last-error"), "ValidationError: bad sku é");
        assert_eq!(text(record, "x-retry-group"), support::GROUP);
    }
    assert_eq!(text(retry, "x-first-failure-at"), text(dead, "x-first-failure-at"));
    assert!(dead.timestamp.0 - retry.timestamp.0 >= 5_000, "it waited its five seconds");
    assert_eq!(
        port.told.outcomes(),
        [
            "failed orders/0 retry: ValidationError: bad sku é",
            "retried orders/0 to orders-retry-1 level 1 #1",
            "failed orders-retry-1/0 dead-letter: ValidationError: bad sku é",
            "dead-lettered orders-retry-1/0 to orders-dlq #2",
        ]
    );
}

fn names(record: &StoredRecord) -> Vec<&str> {
    record.headers.iter().map(|header| std::str::from_utf8(&header.name).unwrap()).collect()
}

fn text<'a>(record: &'a StoredRecord, name: &str) -> &'a str {
    std::str::from_utf8(record.header(name).unwrap_or_else(|| panic!("no header {name}"))).unwrap()
}
