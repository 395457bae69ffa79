//! Starting, stopping, shutting down: at every moment.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use kafka_harbor::adapter::Adapter;
use kafka_harbor::adapter::memory::{Call, MemoryAdapter, MemoryBroker};
use kafka_harbor::harbor::{ConsumerStatus, Context, Failure, Harbor, HarborError, HarborStatus, Text, code};
use kafka_harbor::memory::{Effect, Fault, Operation};
use kafka_harbor::observe::StopReason;
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::Record;
use support::{GROUP, Port, Seen, fails, send, settle, start, until, within};
use tokio::time::Instant;

async fn nothing(_: String) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_start_leaves_nothing_behind() {
    let steps = [Operation::Connect, Operation::DescribeTopics, Operation::CreateTopics, Operation::Join];
    for step in steps {
        for effect in [Effect::Delay(Duration::from_secs(20)), Effect::Hang] {
            let port = Port::new();
            port.broker.fault(Fault::new(step, effect.clone()));
            let consumer = port.consumer().subscribe("orders", nothing).build().unwrap();
            let starting = tokio::spawn({
                let consumer = consumer.clone();
                async move { consumer.start().await }
            });
            settle().await;
            assert_eq!(consumer.status(), ConsumerStatus::Starting, "{step:?}");
            let began = Instant::now();
            port.harbor.shutdown(Duration::from_secs(10)).await.unwrap();
            assert!(began.elapsed() <= Duration::from_secs(10), "{step:?} {effect:?}: within its time");
            let error = within("the start", starting).await.unwrap().unwrap_err();
            assert!(matches!(error, HarborError::Closed { .. }), "{step:?} {effect:?}: {error}");
            assert_eq!((consumer.status(), port.harbor.status()), (ConsumerStatus::Stopped, HarborStatus::Closed));
            // What came late was let go by itself.
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(port.broker.members(GROUP).is_empty(), "{step:?} {effect:?}: no member left");
            assert_eq!(port.committed("orders"), None);
            assert_eq!(port.told.of(&["stopped"]), ["stopped shipping shutdown"], "{step:?} {effect:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_over_and_says_why() {
    for (step, expected) in [(Operation::Connect, code::ADAPTER), (Operation::Join, code::ADAPTER)] {
        let port = Port::new();
        port.broker.fault(Fault::new(step, Effect::refuse(ErrorCode::GROUP_AUTHORIZATION_FAILED)));
        let consumer = port.consumer().subscribe("orders", nothing).build().unwrap();
        let error = consumer.start().await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), (expected, false), "{step:?}");
        assert_eq!(consumer.status(), ConsumerStatus::Stopped);
        assert_eq!(port.told.of(&["stopped"]), [""; 0], "it never ran");
        assert_eq!(consumer.start().await.unwrap_err().code(), code::CONFIG_INVALID, "no second start");
    }
    let port = Port::new();
    let consumer = port.harbor.consumer(GROUP).retry_levels(["5s"]).subscribe("orders", nothing).build().unwrap();
    let error = consumer.start().await.unwrap_err();
    assert!(matches!(&error, HarborError::TopicMissing { topic } if *topic == "orders-retry-1"), "{error}");
    assert!(!port.broker.calls().iter().any(|call| matches!(call, Call::Join { .. })), "nothing joined");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_not_there_yet_is_tried_again_by_the_next() {
    let port = Port::new();
    port.broker
        .fault(Fault::new(Operation::Connect, Effect::Refuse { code: ErrorCode::NETWORK_EXCEPTION, retryable: true }));
    let (first, second) = tokio::join!(port.harbor.connect(), port.harbor.connect());
    assert!(first.is_err() && second.is_err());
    assert_eq!(port.told.all(), ["error adapter ADAPTER"], "one attempt, one event");
    assert_eq!(port.harbor.status(), HarborStatus::Idle);
    port.harbor.connect().await.unwrap();
    port.harbor.connect().await.unwrap();
    assert_eq!(port.broker.calls().iter().filter(|call| **call == Call::Connect).count(), 2);
    port.harbor.shutdown(Duration::ZERO).await.unwrap();
    assert!(matches!(port.harbor.connect().await, Err(HarborError::Closed { .. })));
    assert_eq!(port.told.all(), ["error adapter ADAPTER", "connected memory", "disconnected memory"]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_harbor_never_touches_the_adapter() {
    let port = Port::new();
    let consumer = port.consumer().subscribe("orders", nothing).build().unwrap();
    port.harbor.shutdown(Duration::from_secs(1)).await.unwrap();
    assert_eq!(port.broker.calls(), []);
    assert_eq!(port.told.all(), [""; 0]);
    assert_eq!((consumer.status(), consumer.stopped().await), (ConsumerStatus::Stopped, None));
    assert!(matches!(consumer.start().await, Err(HarborError::Closed { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_stop_one_tick_after_a_delivery_abandons_nothing() {
    // Whatever the tick: the record is handled and committed, or neither, and never is anything given up.
    let mut handled = [0; 2];
    for ticks in 0..60 {
        let port = Port::new();
        let seen = Seen::default();
        let consumer = start(port.consumer().subscribe("orders", {
            let seen = seen.clone();
            move |order: String| {
                let seen = seen.clone();
                async move {
                    // Long enough for a stop to come in between.
                    for _ in 0..5 {
                        tokio::task::yield_now().await;
                    }
                    seen.add(order);
                    Ok::<_, Failure>(())
                }
            }
        }))
        .await;
        settle().await;
        send(&port.broker, vec![Record::new("orders", "tea")]).await;
        for _ in 0..ticks {
            tokio::task::yield_now().await;
        }
        consumer.stop(Duration::from_secs(30)).await.unwrap_or_else(|error| panic!("after {ticks} ticks: {error}"));
        let expected = (seen.len() == 1).then_some(1);
        assert_eq!(port.committed("orders"), expected, "after {ticks} ticks");
        assert_eq!(port.told.of(&["processed"]).len(), seen.len());
        handled[seen.len()] += 1;
    }
    assert!(handled[0] > 0 && handled[1] > 0, "stopped before and after it began: {handled:?}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_outlives_the_shutdown_is_given_up() {
    for outcome in ["well", "badly"] {
        let port = Port::new();
        let seen = Seen::default();
        let consumer = start(port.consumer().concurrency(3).cancel_grace("20s").subscribe("orders", {
            let seen = seen.clone();
            move |order: String, context: Context| {
                let seen = seen.clone();
                async move {
                    context.cancel().cancelled().await;
                    seen.add("cancelled");
                    // It ends while the group is being left.
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    seen.add("ended");
                    if order == "well" { Ok(()) } else { fails() }
                }
            }
        }))
        .await;
        port.publish("orders", &[outcome, "next"]).await;
        settle().await;
        port.broker.fault(Fault::new(Operation::Leave, Effect::Delay(Duration::from_millis(900))));
        let error = port.harbor.shutdown(Duration::from_secs(5)).await.unwrap_err();
        assert!(
            matches!(error, HarborError::ShutdownTimeout { in_flight: 1, waited } if waited.as_secs() == 5),
            "{error}"
        );
        // The first call's outcome is everyone's.
        assert!(matches!(consumer.stop(Duration::ZERO).await, Err(HarborError::ShutdownTimeout { .. })));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(seen.all(), ["cancelled", "ended"]);
        assert_eq!(port.committed("orders"), None);
        assert_eq!(port.values("orders-dlq"), [""; 0]);
        assert_eq!(port.told.outcomes(), [""; 0]);
        assert_eq!(port.told.of(&["stopped", "error"]), ["stopped shipping shutdown"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_what_runs_and_commits_it() {
    let port = Port::new();
    let consumer = start(port.consumer().subscribe("orders", async |order: String| {
        tokio::time::sleep(Duration::from_secs(3)).await;
        if order == "bad" { fails() } else { Ok(()) }
    }))
    .await;
    port.publish("orders", &["bad", "next"]).await;
    settle().await;
    // Its hop is slow too: the stop waits for the acknowledgement.
    port.broker.slow_next_produce("orders-dlq", Duration::from_secs(4));
    let began = Instant::now();
    consumer.stop(Duration::from_secs(30)).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 6);
    assert_eq!(port.committed("orders"), Some(1), "the next one never began");
    assert_eq!(port.values("orders-dlq"), ["bad"]);
    assert!(port.broker.members(GROUP).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_stops_it_first_is_why_it_stopped() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 3).unwrap();
    let port = Port::on(broker);
    let builder = port.consumer().concurrency(3).dead_letters(false);
    let consumer = start(builder.subscribe("orders", async |order: String| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if order == "first" {
            return Err(Failure::abort("the database is gone"));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        fails()
    }))
    .await;
    for (partition, order) in ["tea", "first", "milk"].into_iter().enumerate() {
        port.send(Record::new("orders", order).with_partition(i32::try_from(partition).unwrap())).await;
    }
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Abort));
    assert_eq!(port.told.of(&["stopped"]), ["stopped shipping abort"]);
    assert_eq!(port.told.of(&["failed"]).len(), 3);
    assert!((0..3).all(|partition| port.broker.committed(GROUP, "orders", partition).is_none()));
}

#[tokio::test(start_paused = true)]
async fn mistakes_are_all_told_when_building_and_by_name() {
    let port = Port::new();
    let error = port
        .consumer()
        .concurrency(0)
        .hops_in_flight(0)
        .max_processing_time("soon")
        .retry_levels(["5s", "5 parsecs", "25d"])
        .subscribe("orders", nothing)
        .subscribe("orders", nothing)
        .subscribe("a b", nothing)
        .build()
        .unwrap_err();
    let options: Vec<_> = error.problems().iter().map(|problem| problem.option.as_str()).collect();
    for option in [
        "concurrency",
        "hops_in_flight",
        "max_processing_time",
        "retry.levels[1]",
        "retry.levels[2]",
        "topics[orders]",
        "topics[a b]",
    ] {
        assert!(options.contains(&option), "{option} is not among {options:?}");
    }
    let error = port.harbor.consumer("").build().unwrap_err();
    let options: Vec<_> = error.problems().iter().map(|problem| problem.option.as_str()).collect();
    assert_eq!(options, ["group", "topics"]);
}

#[tokio::test(start_paused = true)]
async fn a_membership_that_ends_by_itself_is_a_crash() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 1).unwrap();
    let adapter: Arc<dyn Adapter> = Arc::new(MemoryAdapter::new(&broker));
    let harbor = Harbor::builder("orders-service", adapter.clone()).serializer(Text).build().unwrap();
    let consumer =
        harbor.consumer(GROUP).dead_letters(false).from_beginning(true).subscribe("orders", nothing).build().unwrap();
    consumer.start().await.unwrap();
    send(&broker, vec![Record::new("orders", "tea")]).await;
    settle().await;
    // Somebody closes the adapter beneath.
    adapter.close(Duration::from_secs(1)).await.unwrap();
    assert_eq!(within("the crash", consumer.stopped()).await, Some(StopReason::Crash));
    assert_eq!(broker.committed(GROUP, "orders", 0).unwrap().0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_clean_shutdown_leaves_no_task_and_so_no_timer() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let port = Port::new();
    start(port.consumer().retry_levels(["60s"]).subscribe("orders", async |order: String| {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if order == "bad" { fails() } else { Ok(()) }
    }))
    .await;
    port.publish("orders", &["bad", "good"]).await;
    settle().await;
    port.harbor.enable_signal_handlers("5s").unwrap();
    assert!(tasks() > before);
    port.harbor.shutdown(Duration::from_secs(30)).await.unwrap();
    settle().await;
    assert_eq!(tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_goes_is_not_the_end() {
    let port = Port::new();
    let consumer = start(port.consumer().subscribe("orders", nothing)).await;
    port.publish("orders", &["tea"]).await;
    port.drained(&["orders"]).await;
    port.broker.delete_topic("orders").unwrap();
    settle().await;
    assert_eq!(consumer.status(), ConsumerStatus::Running);
    assert_eq!(port.told.of(&["error", "stopped"]), [""; 0]);
    // One of the same name may come, and is read.
    port.broker.create_topic("orders", 1).unwrap();
    port.publish("orders", &["milk"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(port.told.outcomes(), ["processed orders/0", "processed orders/0"]);
    consumer.stop(Duration::from_secs(1)).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_signal_shuts_the_harbor_down_and_the_process_goes_on() {
    let port = Port::new();
    assert_eq!(port.harbor.enable_signal_handlers("soon").unwrap_err().code(), code::CONFIG_INVALID);
    let removed = port.harbor.enable_signal_handlers("1s").unwrap();
    removed.remove();
    let consumer = start(port.consumer().subscribe("orders", nothing)).await;
    let raise = |signal: &str| {
        let status = std::process::Command::new("kill").args([signal, &std::process::id().to_string()]).status();
        assert!(status.unwrap().success());
    };
    raise("-TERM");
    settle().await;
    assert_eq!(consumer.status(), ConsumerStatus::Running, "its handlers were removed");
    port.harbor.enable_signal_handlers(Duration::from_secs(1)).unwrap();
    settle().await;
    raise("-INT");
    // In real time, of which `until` would take ten minutes.
    let closed = until("the shutdown", || port.harbor.status() == HarborStatus::Closed);
    tokio::time::timeout(Duration::from_secs(30), closed).await.expect("the shutdown");
    assert_eq!(consumer.status(), ConsumerStatus::Stopped);
}

/// A harbor kept every consumer that was ever built on it, with its handlers: a service that builds another one after each
/// crash grew.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_over_is_let_go_of_and_what_it_ended_by_is_remembered() {
    let port = Port::new();
    let held = Arc::new(());
    let build = |fails_on: &'static str| {
        let held = held.clone();
        let handler = move |order: String| {
            let _held = &held;
            std::future::ready(if order == fails_on { fails() } else { Ok(()) })
        };
        port.consumer().dead_letters(false).subscribe("orders", handler).build().unwrap()
    };
    port.publish("orders", &["poison"]).await;
    for _ in 0..3 {
        let consumer = build("poison");
        consumer.start().await.unwrap();
        assert_eq!(within("the crash", consumer.stopped()).await, Some(StopReason::Crash));
    }
    // Neither started nor kept; stopped on purpose; started and not kept.
    drop(build(""));
    let stopped = build("");
    stopped.start().await.unwrap();
    stopped.stop(Duration::from_secs(1)).await.unwrap();
    drop(stopped);
    build("").start().await.unwrap();
    settle().await;
    assert_eq!(Arc::strong_count(&held), 2, "this one, and the one that runs");
    let health = port.harbor.health();
    let told: Vec<_> = health.consumers.iter().map(|c| (c.status, c.stopped_because)).collect();
    let expected = [(ConsumerStatus::Stopped, Some(StopReason::Crash)), (ConsumerStatus::Running, None)];
    assert_eq!((health.healthy, told.as_slice()), (false, &expected[..]), "unwell for good");
    port.harbor.shutdown(Duration::from_secs(1)).await.unwrap();
    settle().await;
    assert_eq!(Arc::strong_count(&held), 1, "the shutdown stopped it");
}

/// Consumers and their harbor held each other.
#[tokio::test(start_paused = true)]
async fn a_harbor_that_is_dropped_takes_its_consumers_along() {
    let port = Port::new();
    let held = Arc::new(());
    let handler = {
        let held = held.clone();
        move |_: String| {
            let _held = &held;
            std::future::ready(Ok::<_, Failure>(()))
        }
    };
    let consumer = port.consumer().subscribe("orders", handler).build().unwrap();
    drop((consumer, port));
    assert_eq!(Arc::strong_count(&held), 1);
}
