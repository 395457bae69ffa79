//! What is committed and when, and what is told of it.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kafka_harbor::adapter::memory::{Call, MemoryBroker};
use kafka_harbor::harbor::{CommitMode, Failure};
use kafka_harbor::memory::{Effect, Fault, Operation};
use kafka_harbor::observe::StopReason;
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::Record;
use kafka_harbor::retry::RetryPolicy;
use support::{GROUP, Port, Seen, fails, noting, send, settle, start, until, within};
use tokio::sync::Semaphore;

#[tokio::test(start_paused = true)]
async fn a_hop_that_is_refused_stops_the_consumer_with_its_record_uncommitted() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 2).unwrap();
    let port = Port::on(broker);
    let gate = Arc::new(Semaphore::new(0));
    let consumer = start(port.consumer().concurrency(2).retry_levels(["5s"]).subscribe("orders", {
        let gate = gate.clone();
        move |order: String| {
            let gate = gate.clone();
            async move {
                if order == "bad" {
                    return fails();
                }
                gate.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    }))
    .await;
    port.broker.fail_next_produce("orders-retry-1", ErrorCode::TOPIC_AUTHORIZATION_FAILED, false);
    port.send(Record::new("orders", "slow").with_partition(1)).await;
    settle().await;
    port.send(Record::new("orders", "bad").with_partition(0)).await;
    until("the crash", || consumer.status() == kafka_harbor::harbor::ConsumerStatus::Stopping).await;
    // The other partition's handler may end, and is committed.
    gate.add_permits(1);
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Crash));
    assert_eq!(port.committed("orders"), None);
    assert_eq!(port.broker.committed(GROUP, "orders", 1).unwrap().0, 1);
    assert_eq!(
        port.told.of(&["processed", "failed", "retried", "error", "stopped"]),
        ["error consumer ADAPTER", "processed orders/0", "stopped shipping crash"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_hop_is_offered_five_times_before_the_consumer_gives_up() {
    let port = Port::new();
    let consumer = start(port.consumer().subscribe("orders", async |_: String| fails())).await;
    for _ in 0..4 {
        port.broker.lose_next_acknowledgement("orders-dlq");
    }
    port.publish("orders", &["tea"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(port.values("orders-dlq"), ["tea"], "a resend after a lost answer is no duplicate");

    for _ in 0..5 {
        port.broker.fail_next_produce("orders-dlq", ErrorCode::NOT_LEADER_OR_FOLLOWER, true);
    }
    port.publish("orders", &["milk"]).await;
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Crash));
    assert_eq!(port.committed("orders"), Some(1));
    assert_eq!(port.told.of(&["error"]), ["error consumer RETRY_EXHAUSTED"]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_stops_nothing_and_withholds_what_it_covers() {
    let port = Port::new();
    let consumer = start(port.consumer().subscribe("orders", async |_: String| Ok::<_, Failure>(()))).await;
    port.broker.fail_commits(GROUP, 1, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, true);
    port.publish("orders", &["tea"]).await;
    until("the failure", || !port.told.of(&["error"]).is_empty()).await;
    assert_eq!(consumer.status(), kafka_harbor::harbor::ConsumerStatus::Running);
    port.publish("orders", &["milk"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(port.committed("orders"), Some(2), "the next success covers it");
    assert_eq!(
        port.told.of(&["processed", "commit-failed", "error"]),
        ["commit-failed orders-0 1, 1 withheld", "error consumer ADAPTER", "processed orders/1"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_position_of_a_quiet_topic_is_not_left_uncommitted() {
    let port = Port::new();
    start(port.consumer().subscribe("orders", async |_: String| Ok::<_, Failure>(()))).await;
    port.broker.fail_commits(GROUP, 3, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, true);
    port.publish("orders", &["tea"]).await;
    // Nothing else ever finishes; the commit is made again all the same.
    until("the commit", || port.committed("orders") == Some(1)).await;
    assert_eq!(port.told.outcomes(), [""; 0]);
    assert_eq!(port.told.of(&["commit-failed"]).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_after_a_hop_withholds_the_hops_events() {
    let port = Port::new();
    start(port.consumer().retry_levels(["5s"]).subscribe("orders", async |_: String| fails())).await;
    settle().await;
    port.broker.fail_commits(GROUP, 1, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, true);
    port.publish("orders", &["tea"]).await;
    until("the failure", || !port.told.of(&["commit-failed orders-0"]).is_empty()).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(
        port.told.outcomes(),
        [
            "failed orders-retry-1/0 dead-letter: StockError: out of stock",
            "dead-lettered orders-retry-1/0 to orders-dlq #2"
        ]
    );
    assert_eq!(port.told.of(&["produced"]), ["produced orders-retry-1 retry", "produced orders-dlq dead-letter"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_committed_past_a_hop_that_is_not_acknowledged() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().retry_levels(["5s"]).subscribe("orders", {
        let seen = seen.clone();
        move |order: String| {
            seen.add(&*order);
            async move { if order == "bad" { fails() } else { Ok(()) } }
        }
    }))
    .await;
    port.broker.slow_next_produce("orders-retry-1", Duration::from_secs(7));
    port.publish("orders", &["tea", "bad", "milk", "rice"]).await;
    settle().await;
    assert_eq!(seen.all(), ["tea", "bad", "milk", "rice"], "the partition goes on meanwhile");
    assert_eq!(port.committed("orders"), Some(1));
    assert_eq!(port.told.outcomes(), ["processed orders/0"]);
    tokio::time::sleep(Duration::from_secs(7)).await;
    settle().await;
    assert_eq!(port.committed("orders"), Some(4));
    assert_eq!(
        port.told.outcomes()[..5],
        [
            "processed orders/0",
            "failed orders/1 retry: StockError: out of stock",
            "retried orders/1 to orders-retry-1 level 1 #1",
            "processed orders/2",
            "processed orders/3",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn only_so_many_hops_of_a_partition_are_open_at_once() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().hops_in_flight(2).subscribe("orders", {
        let seen = seen.clone();
        move |order: String| {
            seen.add(order);
            async { fails() }
        }
    }))
    .await;
    port.broker
        .fault(Fault::new(Operation::Publish, Effect::Delay(Duration::from_secs(3))).on_topic("orders-dlq").times(2));
    send(&port.broker, ["a", "b", "c", "d"].map(|value| Record::new("orders", value)).to_vec()).await;
    settle().await;
    // The third has failed as well, and waits for room to leave.
    assert_eq!(seen.len(), 3);
    port.drained(&["orders"]).await;
    assert_eq!(port.values("orders-dlq"), ["a", "b", "c", "d"], "in order");
}

#[tokio::test(start_paused = true)]
async fn commits_are_gathered_and_one_is_under_way_at_a_time() {
    let port = Port::new();
    start(port.consumer().subscribe("orders", async |_: String| {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok::<_, Failure>(())
    }))
    .await;
    send(&port.broker, (0..200).map(|n| Record::new("orders", n.to_string())).collect()).await;
    port.drained(&["orders"]).await;
    let commits = settles(&port.broker);
    assert!((10..=40).contains(&commits.len()), "200 records in 200 ms, a commit every 10: {}", commits.len());
    assert!(commits.windows(2).all(|pair| pair[0] < pair[1]), "each carries more than the last: {commits:?}");
    assert_eq!(port.told.outcomes().len(), 200);
}

#[tokio::test(start_paused = true)]
async fn commit_each_waits_before_the_next_delivery() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().commit(CommitMode::Each).subscribe("orders", {
        let seen = seen.clone();
        let broker = port.broker.clone();
        move |order: String| {
            let committed = broker.committed(GROUP, "orders", 0).map_or(0, |offset| offset.0);
            seen.add(format!("{order} after {committed}"));
            async move { if order == "bad" { fails() } else { Ok(()) } }
        }
    }))
    .await;
    port.broker.fault(Fault::new(Operation::Settle, Effect::Delay(Duration::from_secs(2))).times(1));
    send(&port.broker, ["a", "bad", "c"].map(|value| Record::new("orders", value)).to_vec()).await;
    port.drained(&["orders"]).await;
    assert_eq!(seen.all(), ["a after 0", "bad after 1", "c after 2"]);
    assert_eq!(settles(&port.broker), [1, 2, 3]);

    // One that fails is no reason to stand still.
    port.broker.fail_commits(GROUP, 1, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, true);
    send(&port.broker, ["d", "e"].map(|value| Record::new("orders", value)).to_vec()).await;
    port.drained(&["orders"]).await;
    assert_eq!(seen.all()[3..], ["d after 3", "e after 3"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_record_after_the_start_survives_a_hard_end() {
    // With the default start a group without a position would begin at the end again, behind the record that was
    // under way: the position is committed before anything is read.
    let port = Port::new();
    port.publish("orders", &["old"]).await;
    let first = start(
        port.harbor
            .consumer(GROUP)
            .dead_letters(false)
            .subscribe("orders", async |_: String| std::future::pending::<Result<(), Failure>>().await),
    )
    .await;
    settle().await;
    assert_eq!(port.committed("orders"), Some(1));
    port.publish("orders", &["tea"]).await;
    settle().await;
    port.broker.expire_session(GROUP, port.broker.members(GROUP)[0]);
    let seen = Seen::default();
    let other = Port::on(port.broker.clone());
    let second = other.harbor.consumer(GROUP).dead_letters(false).subscribe("orders", noting(&seen)).build().unwrap();
    let _ = first.stop(Duration::ZERO).await;
    second.start().await.unwrap();
    other.drained(&["orders"]).await;
    assert_eq!(seen.all(), ["orders/1 tea #1"]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_is_slow_to_be_told_holds_up_no_more_than_its_bound() {
    let port = Port::new();
    let handled = Arc::new(AtomicUsize::new(0));
    start(port.consumer().outcomes_in_flight(10).subscribe("orders", {
        let handled = handled.clone();
        move |_: String| {
            handled.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Failure>(()) }
        }
    }))
    .await;
    port.broker.fault(Fault::new(Operation::Settle, Effect::Delay(Duration::from_secs(60))));
    port.publish("orders", &["first"]).await;
    settle().await;
    send(&port.broker, (0..50).map(|n| Record::new("orders", n.to_string())).collect()).await;
    settle().await;
    assert_eq!(handled.load(Ordering::Relaxed), 10, "one under way to be told, nine behind it");
    port.drained(&["orders"]).await;
    assert_eq!(port.told.outcomes().len(), 51);
}

#[tokio::test(start_paused = true)]
async fn hops_use_the_harbors_retry_policy() {
    let port = Port::with(MemoryBroker::new(), |builder| {
        builder.produce_retry(RetryPolicy { attempts: 1, ..RetryPolicy::default() })
    });
    port.broker.create_topic("orders", 1).unwrap();
    let consumer = start(port.consumer().subscribe("orders", async |_: String| fails())).await;
    port.broker.fail_next_produce("orders-dlq", ErrorCode::NOT_LEADER_OR_FOLLOWER, true);
    port.publish("orders", &["tea"]).await;
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Crash));
}

/// The offsets of `orders` that were settled, in the order of the calls.
fn settles(broker: &MemoryBroker) -> Vec<i64> {
    let positions = broker.calls().into_iter().filter_map(|call| match call {
        Call::Settle { positions, .. } => Some(positions),
        _ => None,
    });
    positions.flatten().filter(|(partition, _)| partition.topic == "orders").map(|(_, offset)| offset.0).collect()
}

/// The worker waited for a commit, or for room, that a failed hop keeps from ever coming: a crash took the whole 30 s.
#[tokio::test(start_paused = true)]
async fn a_hop_that_fails_lets_the_consumer_stop_at_once_whatever_its_worker_waits_for() {
    for mode in [CommitMode::Each, CommitMode::Together] {
        let port = Port::new();
        let consumer =
            start(port.consumer().commit(mode).hops_in_flight(1).subscribe("orders", async |_: String| fails())).await;
        settle().await;
        port.broker.fail_next_produce("orders-dlq", ErrorCode::TOPIC_AUTHORIZATION_FAILED, false);
        send(&port.broker, ["tea", "milk", "rice"].map(|value| Record::new("orders", value)).to_vec()).await;
        let before = tokio::time::Instant::now();
        assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Crash), "{mode:?}");
        assert!(before.elapsed() < Duration::from_secs(5), "{mode:?}: {:?}", before.elapsed());
        assert_eq!(port.committed("orders"), None, "{mode:?}");
    }
}
