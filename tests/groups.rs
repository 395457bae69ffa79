//! Ladders that are shared, and ladders that are new.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod support;

use std::time::Duration;

use kafka_harbor::harbor::{Consumer, Context, Failure};
use kafka_harbor::record::Record;
use support::{GROUP, Port, Seen, fails, settle, start, until};

/// A consumer that fails the first delivery if it is told to.
fn consumer(port: &Port, group: &str, seen: &Seen, fail: bool) -> Consumer {
    let (seen, name) = (seen.clone(), group.to_owned());
    port.harbor
        .consumer(group)
        .auto_create_topics(true)
        .from_beginning(true)
        .retry_levels(["5s"])
        .subscribe("orders", move |order: String, context: Context| {
            seen.add(format!("{name}: {} {order} #{}", context.topic(), context.attempt()));
            std::future::ready(if fail && context.attempt() == 1 { fails() } else { Ok(()) })
        })
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_group_passes_over_what_another_group_failed() {
    let port = Port::new();
    let seen = Seen::default();
    let failing = consumer(&port, "billing", &seen, true);
    let healthy = consumer(&port, "shipping", &seen, false);
    failing.start().await.unwrap();
    healthy.start().await.unwrap();
    settle().await;
    port.publish("orders", &["tea"]).await;
    settle().await;
    // Before its time: there is nothing to wait for in another's retry.
    assert_eq!(port.committed("orders-retry-1"), Some(1));
    port.broker.when_drained("billing", &["orders", "orders-retry-1"]).await.unwrap();
    let mut calls = seen.all();
    calls.sort();
    assert_eq!(calls, ["billing: orders tea #1", "billing: orders-retry-1 tea #2", "shipping: orders tea #1"]);
    assert!(port.told.outcomes().contains(&"skipped orders-retry-1/0 of billing".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_retry_without_a_group_counts_where_the_group_had_read_before() {
    let port = Port::new();
    port.broker.create_topic("orders-retry-1", 1).unwrap();
    let unnamed = |value: &'static str| {
        Record::new("orders-retry-1", value)
            .with_header("x-retry-count", "1")
            .with_header("x-original-topic", "orders")
            .with_header("x-first-failure-at", "2026-01-01T00:00:00.000Z")
    };
    // It was there before this group ever read the topic: whoever wrote it was no member of the group.
    port.send(unnamed("before")).await;
    let seen = Seen::default();
    let first = consumer(&port, GROUP, &seen, false);
    first.start().await.unwrap();
    settle().await;
    assert_eq!(port.committed("orders-retry-1"), Some(1), "passed over at once");
    assert_eq!(port.told.outcomes(), ["skipped orders-retry-1/0 of nobody"]);
    // From then on it may be a member's that does not know the header.
    port.send(unnamed("since")).await;
    settle().await;
    first.stop(Duration::from_secs(1)).await.unwrap();
    port.send(unnamed("while stopped")).await;
    let second = consumer(&port, GROUP, &seen, false);
    second.start().await.unwrap();
    port.drained(&["orders-retry-1"]).await;
    assert_eq!(seen.all(), ["shipping: orders-retry-1 since #2", "shipping: orders-retry-1 while stopped #2"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_retry_ever_survives_a_restart_with_the_default_start() {
    // With the start at the end, and nothing committed on the ladder, a restart would begin behind the record that
    // waits: never handled, not in the dead letters, and no lag to show.
    for hard in [false, true] {
        let port = Port::new();
        let seen = Seen::default();
        let build = |port: &Port| {
            let seen = seen.clone();
            port.harbor
                .consumer(GROUP)
                .auto_create_topics(true)
                .retry_levels(["60s"])
                .subscribe("orders", move |order: String, context: Context| {
                    seen.note(&order, &context);
                    std::future::ready(if context.attempt() == 1 { fails() } else { Ok::<_, Failure>(()) })
                })
                .build()
                .unwrap()
        };
        let first = build(&port);
        first.start().await.unwrap();
        settle().await;
        port.publish("orders", &["tea"]).await;
        settle().await;
        assert_eq!(seen.len(), 1);
        assert_eq!(port.committed("orders-retry-1"), Some(0), "one record behind");
        if hard {
            // Its process ends: the membership is gone, and nothing was committed by it.
            port.broker.expire_session(GROUP, port.broker.members(GROUP)[0]);
            let _ = first.stop(Duration::ZERO).await;
        } else {
            first.stop(Duration::from_secs(1)).await.unwrap();
        }
        let again = Port::on(port.broker.clone());
        let second = build(&again);
        second.start().await.unwrap();
        again.drained(&["orders", "orders-retry-1"]).await;
        assert_eq!(seen.all(), ["orders/0 tea #1", "orders-retry-1/0 tea #2"], "hard: {hard}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_was_there_before_its_reader_is_handled_also_on_a_new_partition() {
    let port = Port::new();
    port.broker.create_topic("orders-retry-1", 1).unwrap();
    let retry = |value: &'static str, partition| {
        Record::new("orders-retry-1", value).with_partition(partition).with_header("x-retry-group", GROUP)
    };
    port.send(retry("early", 0)).await;
    let seen = Seen::default();
    start(port.harbor.consumer(GROUP).auto_create_topics(true).retry_levels(["5s"]).subscribe("orders", {
        let seen = seen.clone();
        move |order: String, context: Context| {
            seen.note(&order, &context);
            std::future::ready(Ok::<_, Failure>(()))
        }
    }))
    .await;
    port.broker.add_partitions("orders-retry-1", 2).unwrap();
    port.send(retry("on the new one", 1)).await;
    until("both", || seen.len() == 2).await;
    let mut calls = seen.all();
    calls.sort();
    assert_eq!(calls, ["orders-retry-1/0 early #2", "orders-retry-1/0 on the new one #2"]);
}
