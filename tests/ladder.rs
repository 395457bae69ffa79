//! The way of a record that fails: retry levels, dead letters, and what it carries along.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kafka_harbor::adapter::memory::StoredRecord;
use kafka_harbor::error::BoxError;
use kafka_harbor::harbor::{Context, Deserializer, Failure};
use kafka_harbor::observe::StopReason;
use kafka_harbor::record::{Header, Record};
use support::{Port, Seen, failing, fails, noting, settle, start, within};

#[tokio::test(start_paused = true)]
async fn a_record_that_is_handled_is_committed_and_told_of() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().subscribe("orders", noting(&seen))).await;
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
    start(port.consumer().retry_levels(["5s"]).subscribe("orders", {
        let seen = seen.clone();
        move |order: String, context: Context| {
            seen.note(&order, &context);
            async { Err(Failure::new("bad sku é").named("ValidationError")) }
        }
    }))
    .await;
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

#[tokio::test(start_paused = true)]
async fn a_corrupt_block_neither_loops_nor_skips() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["5s", "5s"]).subscribe("orders", failing(&seen))).await;
    // Tracking headers on an original topic mean nothing: no retry info, first attempt.
    let record =
        Record::new("orders", "tea").with_header("x-retry-count", "7").with_header("x-original-topic", "other");
    port.send(record).await;
    port.drained(&["orders", "orders-retry-1", "orders-retry-2"]).await;
    assert_eq!(seen.all(), ["orders/0 tea #1", "orders-retry-1/0 tea #2", "orders-retry-2/0 tea #3"]);
    assert_eq!(text(&port.broker.records("orders-retry-1")[0], "x-retry-count"), "1");
    assert_eq!(text(&port.broker.records("orders-retry-1")[0], "x-original-topic"), "orders");

    // On level 1 of 2 a count that makes no sense counts as none: attempt by the level, next hop from 1, and upwards.
    let record = Record::new("orders-retry-1", "milk")
        .with_header("x-retry-count", "abc")
        .with_header("x-original-topic", "orders")
        .with_header("x-first-failure-at", "2026-01-01T00:00:00.000Z")
        .with_header("x-retry-group", support::GROUP);
    port.send(record).await;
    port.drained(&["orders", "orders-retry-1", "orders-retry-2"]).await;
    assert_eq!(seen.all()[3..], ["orders-retry-1/1 milk #2", "orders-retry-2/1 milk #2"]);
    assert_eq!(text(&port.broker.records("orders-retry-2")[1], "x-retry-count"), "1");
    let dead = &port.broker.records("orders-dlq")[1];
    assert_eq!((support::value(dead).as_str(), text(dead, "x-retry-count")), ("milk", "2"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_no_retry_can_mend_goes_to_the_dead_letters_at_once() {
    let port = Port::new();
    start(
        port.consumer()
            .retry_levels(["5s"])
            .subscribe("orders", async |_: String| Err(Failure::permanent("no such product").named("ValidationError"))),
    )
    .await;
    port.publish("orders", &["tea"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(port.values("orders-retry-1"), [""; 0]);
    assert_eq!(text(&port.broker.records("orders-dlq")[0], "x-retry-count"), "1");
}

#[tokio::test(start_paused = true)]
async fn the_predicate_replaces_the_default_and_one_that_panics_is_no_dead_consumer() {
    let port = Port::new();
    start(
        port.consumer()
            .retry_levels(["5s"])
            .retry_if(|failure| match failure.to_string().as_str() {
                "panic" => panic!("a predicate that throws"),
                text => text == "again",
            })
            .subscribe("orders", async |order: String| Err(Failure::permanent(order))),
    )
    .await;
    port.publish("orders", &["never", "again", "panic"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(port.values("orders-retry-1"), ["again"]);
    // What the failure says of itself stood in: it is permanent.
    assert_eq!(port.values("orders-dlq"), ["never", "panic"]);
    assert_eq!(port.told.of(&["error"]), ["error consumer PANIC"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_its_delivery_alone() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["5s"]).subscribe("orders", {
        let seen = seen.clone();
        move |order: String, context: Context| {
            seen.note(&order, &context);
            assert_ne!((order.as_str(), context.attempt()), ("early", 1), "before the first await");
            async move {
                tokio::task::yield_now().await;
                assert_ne!((order.as_str(), context.attempt()), ("late", 1), "after an await");
                Ok::<_, Failure>(())
            }
        }
    }))
    .await;
    port.publish("orders", &["early", "late", "fine"]).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(port.values("orders-retry-1"), ["early", "late"]);
    assert!(text(&port.broker.records("orders-retry-1")[0], "x-last-error").starts_with("Panic: "));
    assert_eq!(seen.all()[3..], ["orders-retry-1/0 early #2", "orders-retry-1/1 late #2"]);
    assert_eq!(port.values("orders-dlq"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_abort_stops_the_consumer_and_leaves_the_record() {
    let port = Port::new();
    let consumer =
        start(port.consumer().retry_levels(["5s"]).subscribe("orders", async |order: String| match order.as_str() {
            "stop" => Err(Failure::abort("the database is gone")),
            _ => Ok(()),
        }))
        .await;
    port.publish("orders", &["tea", "stop", "milk"]).await;
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Abort));
    assert_eq!(port.committed("orders"), Some(1));
    assert_eq!(
        port.told.of(&["processed", "failed", "error", "stopped"]),
        [
            "failed orders/1 abort: the database is gone",
            "error consumer ABORT_PROCESSING",
            "processed orders/0",
            "stopped shipping abort",
        ]
    );
    assert!(port.broker.members(support::GROUP).is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_dead_letters_a_record_with_nowhere_to_go_stops_the_consumer() {
    let port = Port::new();
    let consumer = start(port.consumer().dead_letters(false).subscribe("orders", async |_: String| fails())).await;
    port.publish("orders", &["tea"]).await;
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Crash));
    assert_eq!(port.committed("orders"), None);
    assert_eq!(port.told.of(&["failed"]), ["failed orders/0 crash: StockError: out of stock"]);
    // A stop that nobody asked for is not anybody's error.
    consumer.stop(Duration::from_secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn headers_that_are_null_repeated_or_no_text_survive_every_hop() {
    let port = Port::new();
    start(port.consumer().retry_levels(["5s"]).subscribe("orders", async |_: String| fails())).await;
    let mut record = Record::new("orders", "tea")
        .with_header("trace", "one")
        .with_header("trace", "two")
        .with_header(&b"\xff\xfe"[..], &b"\x80\x00"[..]);
    record.headers.push(Header::null("x-correlation-id"));
    record.headers.push(Header::null("empty"));
    let given = record.headers.clone();
    port.send(record).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    let retry = &port.broker.records("orders-retry-1")[0];
    let dead = &port.broker.records("orders-dlq")[0];
    for (place, kept) in [0, 1, 2, 4].map(|index| (index, &given[index])) {
        assert_eq!(&retry.headers[place], kept);
        assert_eq!(&dead.headers[place], kept);
    }
    assert_eq!(text(retry, "x-correlation-id").len(), 36, "minted in the place of the null");
    assert_eq!(text(dead, "x-correlation-id"), text(retry, "x-correlation-id"));
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_stays_null_and_an_empty_value_empty() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["5s"]).subscribe("orders", {
        let seen = seen.clone();
        move |order: Option<String>| {
            seen.add(format!("{order:?}"));
            async { fails() }
        }
    }))
    .await;
    port.send(Record::tombstone("orders").with_key("a")).await;
    port.send(Record::new("orders", "").with_key("b")).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(seen.all(), ["None", "Some(\"\")", "None", "Some(\"\")"]);
    let values: Vec<_> = port.broker.records("orders-dlq").into_iter().map(|record| record.value).collect();
    assert_eq!(values, [None, Some(Default::default())]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_skips_the_ladder_unless_its_error_says_that_it_may_help() {
    struct Registry;
    impl Deserializer<String> for Registry {
        async fn deserialize(&self, topic: &str, value: &[u8]) -> Result<String, BoxError> {
            assert_eq!(topic, "orders", "the original topic, whatever topic the bytes came from");
            static ASKED: AtomicUsize = AtomicUsize::new(0);
            match value {
                b"bad" => Err("no such schema".into()),
                b"later" if ASKED.fetch_add(1, Ordering::Relaxed) == 0 => {
                    Err(Failure::retryable("registry down").into())
                }
                value => Ok(String::from_utf8(value.to_vec())?),
            }
        }
    }
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["5s"]).retry_if(|_| true).subscribe_with("orders", Registry, noting(&seen)))
        .await;
    port.publish("orders", &["bad", "later"]).await;
    port.send(Record::tombstone("orders")).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(seen.all(), ["orders-retry-1/0 later #2"]);
    assert_eq!(port.values("orders-retry-1"), ["later"]);
    assert_eq!(port.values("orders-dlq"), ["bad", "null"], "a tombstone is no text either");
    assert!(text(&port.broker.records("orders-dlq")[0], "x-last-error").contains("no such schema"));
}

#[tokio::test(start_paused = true)]
async fn a_shared_retry_topic_brings_each_record_to_its_own_handler() {
    let port = Port::new();
    port.broker.create_topic("refunds", 1).unwrap();
    let seen = Seen::default();
    let build = |split: bool| {
        port.consumer()
            .retry_levels(["5s"])
            .retry_topic(|_, level| format!("shared-retry-{level}"))
            .dead_letter_topic(move |topic| if split { format!("{topic}-dlq") } else { "dead".into() })
            .subscribe("orders", named_failing(&seen, "orders"))
            .subscribe("refunds", named_failing(&seen, "refunds"))
            .build()
            .unwrap()
    };
    let consumer = build(false);
    consumer.start().await.unwrap();
    port.publish("orders", &["tea"]).await;
    port.publish("refunds", &["milk"]).await;
    port.drained(&["orders", "refunds", "shared-retry-1"]).await;
    let mut calls = seen.all();
    calls.sort();
    assert_eq!(calls, ["orders: tea #1", "orders: tea #2", "refunds: milk #1", "refunds: milk #2"]);

    // What names none of them is set aside as it is, without a wait.
    let lost = Record::new("shared-retry-1", "lost").with_header("x-retry-group", support::GROUP);
    port.send(lost).await;
    settle().await;
    let records = port.broker.records("dead");
    let dead = records.iter().find(|record| support::value(record) == "lost").expect("set aside at once");
    assert_eq!(dead.header("x-retry-count"), None);
    assert!(text(dead, "x-last-error").starts_with("RoutingError: ") && dead.header("x-dead-lettered-at").is_some());
    assert_eq!(port.told.outcomes().last().unwrap(), "dead-lettered shared-retry-1/2 to dead #1");
    consumer.stop(Duration::from_secs(1)).await.unwrap();

    // Where they do not share their dead letters there is no one place to put it.
    let consumer = build(true);
    consumer.start().await.unwrap();
    port.send(Record::new("shared-retry-1", "lost").with_header("x-retry-group", support::GROUP)).await;
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Crash));
    assert_eq!(port.committed("shared-retry-1"), Some(3), "the record stays uncommitted");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_takes_too_long_is_cancelled_and_retried() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["5s"]).max_processing_time("1m").cancel_grace("2s").subscribe("orders", {
        let seen = seen.clone();
        move |order: String, context: Context| {
            let seen = seen.clone();
            async move {
                if context.attempt() > 1 {
                    return Ok::<_, Failure>(());
                }
                let _dropped = OnDrop(seen.clone(), format!("{order} dropped"));
                match order.as_str() {
                    "deaf" => std::future::pending().await,
                    "polite" => {
                        context.cancel().cancelled().await;
                        seen.add("polite cancelled");
                        Err(Failure::permanent("given up"))
                    }
                    "just" => {
                        context.cancel().cancelled().await;
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
        }
    }))
    .await;
    let began = tokio::time::Instant::now();
    port.publish("orders", &["deaf", "polite", "just", "quick"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(began.elapsed().as_secs(), 60 + 2 + 60 + 60);
    assert_eq!(seen.all(), ["deaf dropped", "polite cancelled", "polite dropped", "just dropped", "quick dropped"]);
    // Whoever ends well within the grace has done its work; whatever else it returns is the timeout.
    assert_eq!(port.values("orders-retry-1"), ["deaf", "polite"]);
    for record in port.broker.records("orders-retry-1") {
        assert!(text(&record, "x-last-error").contains("1m") || text(&record, "x-last-error").contains("60s"));
    }
    port.drained(&["orders-retry-1"]).await;
    assert_eq!(port.values("orders-dlq"), [""; 0]);
}

struct OnDrop(Seen, String);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.add(self.1.clone());
    }
}

fn named_failing(
    seen: &Seen,
    name: &'static str,
) -> impl Fn(String, Context) -> std::future::Ready<Result<(), Failure>> + use<> {
    let seen = seen.clone();
    move |order, context| {
        seen.add(format!("{name}: {order} #{}", context.attempt()));
        std::future::ready(fails())
    }
}
