//! What a handler says is to become of its record, and the tries in place before the ladder.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod support;

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kafka_harbor::harbor::{BlockingRetries, ConsumerStatus, Context, Failure, Json, Outcome};
use kafka_harbor::observe::StopReason;
use support::{GROUP, Port, Seen, fails, settle, start, within};
use tokio::time::Instant;

/// A handler that does as its payload says.
fn obeying(seen: &Seen) -> impl Fn(String, Context) -> Ready<Outcome> + use<> {
    let seen = seen.clone();
    move |order, context| {
        seen.note(&order, &context);
        ready(match (order.as_str(), context.attempt()) {
            ("retry", 1) => Outcome::retry(Failure::permanent("not in stock yet")),
            ("later", 1) => Outcome::retry_after(Duration::from_secs(30), "asked too often"),
            ("much later", _) => Outcome::retry_after(Duration::from_secs(3_600), "asked too often"),
            ("dead", _) => Outcome::dead_letter("an order of nothing"),
            ("abort", _) => Outcome::abort("the shop is closed"),
            _ => Outcome::Done,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_decides_whatever_the_predicate_says() {
    let port = Port::new();
    let seen = Seen::default();
    let consumer = port.consumer().retry_levels(["5s", "1m"]).retry_if(|_| false);
    start(consumer.subscribe("orders", obeying(&seen))).await;
    port.publish("orders", &["done", "retry", "dead", "later", "much later"]).await;
    port.drained(&["orders", "orders-retry-1", "orders-retry-2"]).await;
    assert_eq!(port.values("orders-retry-1"), ["retry"]);
    assert_eq!(port.values("orders-retry-2"), ["later", "much later"], "the first that waits as long, or the last");
    assert_eq!(port.values("orders-dlq"), ["dead", "much later"]);
    let attempts = seen.all().into_iter().filter(|call| call.contains("-retry-"));
    assert_eq!(
        attempts.collect::<Vec<_>>(),
        ["orders-retry-1/0 retry #2", "orders-retry-2/0 later #2", "orders-retry-2/1 much later #2"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_abort_leaves_the_record_and_stops() {
    let port = Port::new();
    let consumer = start(port.consumer().subscribe("orders", obeying(&Seen::default()))).await;
    port.publish("orders", &["abort"]).await;
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Abort));
    assert_eq!(port.committed("orders"), None, "it stays uncommitted");
}

/// A handler that fails its first `failures` calls, and notes when each was.
fn failing_first(seen: &Seen, failures: usize) -> impl Fn(String, Context) -> Ready<Result<(), Failure>> + use<> {
    let (seen, calls, began) = (seen.clone(), Arc::new(AtomicUsize::new(0)), Instant::now());
    move |order, context| {
        seen.add(format!("{}/{order} #{} {}", context.topic(), context.attempt(), began.elapsed().as_millis()));
        ready(if calls.fetch_add(1, Ordering::Relaxed) < failures { fails() } else { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_moment_mends_never_sees_the_ladder() {
    let port = Port::new();
    let seen = Seen::default();
    let retries = BlockingRetries::new(3).backoff("100ms", "150ms");
    let consumer = port.consumer().retry_levels(["5s"]).blocking_retries(retries);
    start(consumer.subscribe("orders", failing_first(&seen, 3))).await;
    port.publish("orders", &["tea", "milk"]).await;
    port.drained(&["orders"]).await;
    // The tries are one delivery, and what is behind waits for them.
    let calls =
        ["orders/tea #1 0", "orders/tea #1 100", "orders/tea #1 250", "orders/tea #1 400", "orders/milk #1 400"];
    assert_eq!(seen.all(), calls);
    assert!(port.values("orders-retry-1").is_empty());
    assert_eq!(port.told.outcomes(), ["processed orders/0", "processed orders/1"]);
}

#[tokio::test(start_paused = true)]
async fn what_outlasts_the_tries_takes_the_ladder_as_one_failure() {
    let port = Port::new();
    let seen = Seen::default();
    let consumer = port.consumer().retry_levels(["5s"]).blocking_retries(BlockingRetries::new(2));
    start(consumer.subscribe("orders", failing_first(&seen, 5))).await;
    port.publish("orders", &["tea"]).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    let attempts: Vec<_> = seen.all().iter().map(|call| call.rsplit_once(' ').unwrap().0.to_owned()).collect();
    let (first, second) = ("orders/tea #1", "orders-retry-1/tea #2");
    assert_eq!(attempts, [first, first, first, second, second, second]);
    let retry = &port.broker.records("orders-retry-1")[0];
    let count = retry.headers.iter().find(|header| header.name == "x-retry-count").unwrap();
    assert_eq!(count.value.as_deref(), Some(&b"1"[..]));
}

#[tokio::test(start_paused = true)]
async fn the_tries_end_with_their_time() {
    let port = Port::new();
    let seen = Seen::default();
    let retries = BlockingRetries::new(100).backoff("1s", "1s").within("3s");
    start(port.consumer().blocking_retries(retries).subscribe("orders", failing_first(&seen, 100))).await;
    port.publish("orders", &["tea"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(seen.len(), 4);
    assert_eq!(port.values("orders-dlq"), ["tea"]);
}

#[tokio::test(start_paused = true)]
async fn only_what_is_worth_it_is_tried_in_place() {
    let port = Port::new();
    let seen = Seen::default();
    let retries = || BlockingRetries::new(5);
    let consumer = port.consumer().blocking_retries(retries()).subscribe("orders", {
        let seen = seen.clone();
        move |order: String| {
            seen.add(order.clone());
            assert_ne!(order, "panic", "as told");
            ready(match order.as_str() {
                "permanent" => Err(Failure::permanent("no such product")),
                "asks to wait" => Err(Failure::new("asked too often").not_before(Duration::from_secs(1))),
                _ => Ok(()),
            })
        }
    });
    start(consumer).await;
    port.publish("orders", &["permanent", "asks to wait", "panic"]).await;
    port.drained(&["orders"]).await;
    let calls = seen.all();
    assert_eq!(calls[..2], ["permanent", "asks to wait"]);
    assert_eq!(calls[2..], ["panic"; 6], "a panic may be over in a moment, too");

    let port = Port::new();
    let consumer =
        port.harbor.consumer(GROUP).serializer(Json::default()).from_beginning(true).auto_create_topics(true);
    let began = Instant::now();
    start(consumer.blocking_retries(retries()).subscribe("orders", |_: u32| ready(Ok::<_, Failure>(())))).await;
    port.publish("orders", &["no number"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(port.values("orders-dlq"), ["no number"]);
    assert!(began.elapsed() < Duration::from_millis(100), "what cannot be read is not read again");
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_place_ends_at_once_when_the_partition_goes() {
    let port = Port::new();
    let seen = Seen::default();
    let retries = || BlockingRetries::new(1).backoff("1h", "1h").within("2h");
    let consumer = || port.consumer().blocking_retries(retries()).subscribe("orders", failing_first(&seen, 1));
    let first = start(consumer()).await;
    port.publish("orders", &["tea"]).await;
    settle().await;
    assert_eq!(seen.len(), 1);
    let began = Instant::now();
    first.stop(Duration::from_secs(30)).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(100), "nobody waits for it");
    assert_eq!(first.status(), ConsumerStatus::Stopped);
    assert_eq!(port.committed("orders"), None, "it stays uncommitted");
    assert!(port.told.of(&["failed", "error"]).is_empty(), "nor has it failed");

    // The next one delivers it again, as the same attempt.
    start(port.consumer().subscribe("orders", support::noting(&seen))).await;
    port.drained(&["orders"]).await;
    assert_eq!(seen.all()[1..], ["orders/0 tea #1"]);
}

#[test]
fn tries_that_make_no_sense_are_refused_by_name() {
    let port = Port::new();
    let retries = BlockingRetries::new(0).backoff("soon", "1s");
    let built = port.consumer().blocking_retries(retries).subscribe("orders", |_: String| ready(Outcome::Done)).build();
    let error = built.unwrap_err().to_string();
    assert!(error.contains("blocking_retries.tries") && error.contains("blocking_retries.backoff"), "{error}");
}
