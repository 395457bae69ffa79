//! The waits of retry levels.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod support;

use std::time::Duration;

use kafka_harbor::adapter::memory::MemoryBroker;
use kafka_harbor::harbor::{Context, Failure};
use kafka_harbor::record::{Record, Timestamp, TopicPartition};
use support::{GROUP, Port, Seen, fails, now, send, settle, start, until};
use tokio::time::Instant;

/// Handlers that note when they are called, in seconds since the start, and fail the first time.
fn timed(seen: &Seen) -> impl Fn(String, Context) -> std::future::Ready<Result<(), Failure>> + use<> {
    let (seen, start) = (seen.clone(), Instant::now());
    move |order, context| {
        let millis = start.elapsed().as_millis();
        seen.add(format!("{} {order} {}.{:03}", context.topic(), millis / 1000, millis % 1000));
        std::future::ready(if context.retry().is_none() && context.attempt() == 1 { fails() } else { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_counts_from_the_timestamp_and_is_capped() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["5s"]).subscribe("orders", timed(&seen))).await;
    settle().await;
    let retry = |value: &'static str, timestamp: Timestamp| {
        Record::new("orders-retry-1", value).with_timestamp(timestamp).with_header("x-retry-group", GROUP)
    };
    let began = now();
    port.send(retry("ahead", Timestamp(began.0 + 600_000))).await;
    port.send(retry("behind", Timestamp(began.0 + 5_000 - 2_000))).await;
    port.send(Record::new("orders", "future").with_timestamp(Timestamp(began.0 + 600_000))).await;
    until("three", || seen.len() >= 3).await;
    // An original never waits; ten minutes ahead is five seconds; two seconds behind is three.
    assert_eq!(seen.all()[..3], ["orders future 0.050", "orders-retry-1 ahead 5.050", "orders-retry-1 behind 8.050"]);
}

#[tokio::test(start_paused = true)]
async fn a_level_without_delay_does_not_wait() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["0s"]).subscribe("orders", timed(&seen))).await;
    port.publish("orders", &["tea"]).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(seen.all()[1], "orders-retry-1 tea 0.000");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_waits_starves_nobody() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["60s"]).subscribe("orders", timed(&seen))).await;
    port.publish("orders", &["bad"]).await;
    settle().await;
    assert_eq!(port.broker.paused(GROUP), [TopicPartition::new("orders-retry-1", 0)]);
    port.publish("orders", &["good"]).await;
    settle().await;
    assert_eq!(port.committed("orders"), Some(2), "handled and committed meanwhile");
    assert_eq!(port.committed("orders-retry-1"), Some(0), "a first commit, and no more");
    port.drained(&["orders", "orders-retry-1"]).await;
    assert!(seen.all()[2].starts_with("orders-retry-1 bad 60.0"), "{:?}", seen.all());
}

#[tokio::test(start_paused = true)]
async fn partitions_that_are_due_together_take_turns() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 3).unwrap();
    let port = Port::on(broker);
    let seen = Seen::default();
    start(port.consumer().retry_levels(["10s"]).subscribe("orders", {
        let seen = seen.clone();
        move |_: String, context: Context| {
            let seen = seen.clone();
            async move {
                if context.attempt() == 1 {
                    return fails();
                }
                seen.add("begins");
                tokio::time::sleep(Duration::from_secs(1)).await;
                seen.add("ends");
                Ok(())
            }
        }
    }))
    .await;
    for partition in 0..3 {
        port.send(Record::new("orders", "tea").with_partition(partition).with_key(partition.to_string())).await;
    }
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(seen.all(), ["begins", "ends"].repeat(3), "never two at once");
}

#[tokio::test(start_paused = true)]
async fn only_what_is_not_due_waits_and_order_holds() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["10s"]).subscribe("orders", timed(&seen))).await;
    port.publish("orders", &["first"]).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    port.publish("orders", &["second"]).await;
    tokio::time::sleep(Duration::from_millis(5_500)).await;
    port.publish("orders", &["third"]).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    let retries: Vec<_> = seen.all().into_iter().filter(|call| call.starts_with("orders-retry")).collect();
    // Each by its own hop's time; short waits included.
    let seconds: Vec<_> =
        retries.iter().map(|call| call.rsplit(' ').next().unwrap()[..4].trim_end_matches('.')).collect();
    assert_eq!(seconds, ["10.0", "14.0", "19.5"]);
    let values: Vec<_> = retries.iter().map(|call| call.split(' ').nth(1).unwrap()).collect();
    assert_eq!(values, ["first", "second", "third"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_may_be_longer_than_a_delivery() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().max_processing_time("30s").retry_levels(["3d"]).subscribe("orders", timed(&seen))).await;
    port.publish("orders", &["tea"]).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    assert!(seen.all()[1].starts_with("orders-retry-1 tea 259200.0"), "{:?}", seen.all());
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_not_kept_in_memory() {
    let broker =
        MemoryBroker::with_settings(kafka_harbor::adapter::memory::MemorySettings::default().with_buffer_bytes(40_000));
    broker.create_topic("orders", 1).unwrap();
    let port = Port::on(broker);
    let seen = Seen::default();
    start(port.consumer().retry_levels(["1h"]).subscribe("orders", timed(&seen))).await;
    // More waits on the ladder than the whole budget; what comes on the original is handled all the same.
    let big = "x".repeat(10_000);
    for _ in 0..20 {
        port.publish("orders", &[&big]).await;
        settle().await;
    }
    port.publish("orders", &["good"]).await;
    settle().await;
    assert_eq!(port.committed("orders"), Some(21));
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(seen.len(), 42);
}

#[tokio::test(start_paused = true)]
async fn a_busy_retry_topic_reads_each_record_about_once() {
    // A thousand records whose times come one every ten milliseconds: parking for each would fetch each anew.
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["5s"]).subscribe("orders", timed(&seen))).await;
    settle().await;
    let began = now();
    let records = (0..1_000).map(|n| {
        Record::new("orders-retry-1", n.to_string())
            .with_timestamp(Timestamp(began.0 + n * 10))
            .with_header("x-retry-group", GROUP)
    });
    send(&port.broker, records.collect()).await;
    port.broker.clear_calls();
    port.drained(&["orders-retry-1"]).await;
    assert_eq!(seen.len(), 1_000);
    let resumes = port
        .broker
        .calls()
        .iter()
        .filter(|call| matches!(call, kafka_harbor::adapter::memory::Call::Resume { .. }))
        .count();
    assert!(resumes < 20, "{resumes} resumes");
}

#[tokio::test(start_paused = true)]
async fn a_stop_forgets_what_waits_and_a_restart_remembers_it() {
    let port = Port::new();
    let seen = Seen::default();
    let build = |port: &Port| port.consumer().retry_levels(["60s"]).subscribe("orders", timed(&seen)).build().unwrap();
    let consumer = build(&port);
    consumer.start().await.unwrap();
    port.publish("orders", &["tea"]).await;
    settle().await;
    let began = Instant::now();
    consumer.stop(Duration::from_secs(30)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "a stop does not wait for what waits");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(seen.len(), 1, "its timer is gone");
    assert_eq!(port.committed("orders-retry-1"), Some(0));
    let consumer = build(&port);
    consumer.start().await.unwrap();
    port.drained(&["orders-retry-1"]).await;
    assert_eq!(seen.len(), 2);
}
