//! Ladders that others write to: retries that name no group, as members of the Node package leave them.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::time::Duration;

use kafka_harbor::harbor::Consumer;
use kafka_harbor::memory::{Effect, Fault, Operation};
use kafka_harbor::protocol::error_code::ErrorCode;
use support::{Port, Seen, noting, settle};

/// A consumer whose handler succeeds, with one retry level or none.
fn consumer(port: &Port, levels: &[&str], seen: &Seen) -> Consumer {
    port.consumer().retry_levels(levels.iter().copied()).subscribe("orders", noting(seen)).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_new_group_passes_over_what_was_on_the_ladder_before_it() {
    let (port, seen) = (Port::new(), Seen::default());
    port.broker.create_topic("orders-retry-1", 1).unwrap();
    port.publish("orders-retry-1", &["another group's"]).await;
    consumer(&port, &["5s"], &seen).start().await.unwrap();
    port.drained(&["orders-retry-1"]).await;
    port.publish("orders-retry-1", &["anybody's"]).await;
    port.drained(&["orders-retry-1"]).await;
    assert_eq!(seen.all(), ["orders-retry-1/1 anybody's #2"]);
    assert_eq!(port.told.outcomes(), ["skipped orders-retry-1/0 of nobody", "processed orders-retry-1/1"]);
}

/// A member of the Node package names no group on its retries, and commits nothing on a ladder partition before its first
/// retry is done. One that waited when such members went was passed over: lost.
#[tokio::test(start_paused = true)]
async fn a_group_that_read_the_originals_before_takes_over_the_retries_that_wait() {
    let (port, seen) = (Port::new(), Seen::default());
    let before = consumer(&port, &[], &seen);
    before.start().await.unwrap();
    port.publish("orders", &["tea"]).await;
    port.drained(&["orders"]).await;
    before.stop(Duration::from_secs(30)).await.unwrap();
    port.broker.create_topic("orders-retry-1", 1).unwrap();
    port.publish("orders-retry-1", &["milk"]).await;
    assert_eq!(port.committed("orders-retry-1"), None);

    consumer(&port, &["5s"], &seen).start().await.unwrap();
    port.drained(&["orders-retry-1"]).await;
    assert_eq!(seen.all(), ["orders/0 tea #1", "orders-retry-1/0 milk #2"]);
    assert_eq!(port.told.outcomes(), ["processed orders/0", "processed orders-retry-1/0"]);
}

/// It is asked of the broker whose they are; what began before the answer ran another group's retry.
#[tokio::test(start_paused = true)]
async fn nothing_on_the_ladder_begins_before_it_is_known_whose_it_is() {
    let (port, seen) = (Port::new(), Seen::default());
    port.broker.create_topic("orders-retry-1", 1).unwrap();
    port.publish("orders-retry-1", &["another group's"]).await;
    port.broker.fault(Fault::new(Operation::Committed, Effect::Delay(Duration::from_secs(20))));
    consumer(&port, &["5s"], &seen).start().await.unwrap();
    settle().await;
    assert_eq!(port.told.outcomes(), [""; 0]);
    port.drained(&["orders-retry-1"]).await;
    assert_eq!(seen.all(), [""; 0]);
    assert_eq!(port.told.outcomes(), ["skipped orders-retry-1/0 of nobody"]);
}

/// An answer that failed was taken for one that said "of ours": a new group then handled another's retries.
#[tokio::test(start_paused = true)]
async fn while_it_cannot_be_known_whose_they_are_it_is_asked_again() {
    for question in [Operation::Committed, Operation::Watermarks] {
        let (port, seen) = (Port::new(), Seen::default());
        port.broker.create_topic("orders-retry-1", 1).unwrap();
        port.publish("orders-retry-1", &["anybody's"]).await;
        port.broker.fault(Fault::new(question, Effect::refuse(ErrorCode::GROUP_AUTHORIZATION_FAILED)).times(2));
        consumer(&port, &["5s"], &seen).start().await.unwrap();
        port.drained(&["orders-retry-1"]).await;
        assert_eq!(port.told.outcomes(), ["skipped orders-retry-1/0 of nobody"], "{question:?}");
        assert_eq!(port.told.of(&["error"]).len(), 2, "{question:?}: each failure is told");
        assert_eq!(seen.all(), [""; 0], "{question:?}");
    }
}
