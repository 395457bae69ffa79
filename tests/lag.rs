//! Lag and health through the public face, on the broker in memory.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_harbor::adapter::memory::{Call, MemoryAdapter, MemoryBroker};
use kafka_harbor::adapter::{Adapter, PublisherOptions};
use kafka_harbor::clock::TokioClock;
use kafka_harbor::harbor::{Consumer, ConsumerStatus, Failure, Harbor, Text, code};
use kafka_harbor::memory::{Effect, Fault, Operation};
use kafka_harbor::observe::{ErrorReported, Observer, StopReason};
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{Offset, Record};

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Observer for Told {
    fn error(&self, event: &ErrorReported<'_>) {
        self.0.lock().unwrap().push(format!("{} {}", event.scope, event.group.unwrap_or("-")));
    }
}

struct Scene {
    broker: MemoryBroker,
    harbor: Harbor<Text>,
    told: Told,
}

fn scene() -> Scene {
    let (broker, told) = (MemoryBroker::new(), Told::default());
    broker.create_topic("orders", 1).unwrap();
    let builder = Harbor::builder("shop", MemoryAdapter::new(&broker)).serializer(Text);
    let harbor = builder.clock(TokioClock).observer(told.clone()).build().unwrap();
    Scene { broker, harbor, told }
}

impl Scene {
    /// Fails what says so; others succeed.
    fn consumer(&self, group: &str) -> Consumer {
        let handler = |order: String| async move {
            match order.as_str() {
                "fail" => Err(Failure::new("as told")),
                "abort" => Err(Failure::abort("as told")),
                _ => Ok(()),
            }
        };
        let builder = self.harbor.consumer(group).subscribe("orders", handler).auto_create_topics(true);
        builder.from_beginning(true).retry_levels(["1h"]).build().unwrap()
    }

    async fn put(&self, values: &[&str]) {
        let records = values.iter().map(|value| Record::new("orders", value.to_string())).collect();
        let publisher = MemoryAdapter::new(&self.broker).publisher(PublisherOptions::default()).unwrap();
        publisher.publish(records).await.unwrap();
    }

    fn rounds(&self) -> usize {
        self.broker.calls().iter().filter(|call| matches!(call, Call::Watermarks { .. })).count()
    }
}

async fn a_while() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn lag_counts_what_waits_on_the_ladder() {
    let scene = scene();
    scene.put(&["ok", "fail"]).await;
    let consumer = scene.consumer("g");
    let idle = consumer.lag().await.unwrap();
    assert_eq!(idle.iter().map(|lag| (lag.topic.as_str(), lag.lag)).collect::<Vec<_>>(), [("orders", 2)]);

    consumer.start().await.unwrap();
    a_while().await;
    let mut lags = scene.harbor.lag().await.unwrap();
    lags.sort_by(|a, b| a.topic.cmp(&b.topic));
    let seen: Vec<_> =
        lags.iter().map(|lag| (lag.topic.as_str(), lag.committed.is_some(), lag.high.0, lag.lag)).collect();
    assert_eq!(seen, [("orders", true, 2, 0), ("orders-retry-1", true, 1, 1)]);
    assert_eq!(lags[0].group, "g");

    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(scene.harbor.lag().await.unwrap().iter().all(|lag| lag.lag == 0));
    assert_eq!(lags[1].low, Offset(0));
    scene.harbor.shutdown(Duration::from_secs(1)).await.unwrap();
    assert_eq!(consumer.lag().await.unwrap_err().code(), code::CLOSED);
    assert_eq!(scene.harbor.lag().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_at_once_share_a_round() {
    let scene = scene();
    let consumer = scene.consumer("g");
    assert_eq!(scene.harbor.lag().await.unwrap(), [], "no consumer runs");
    consumer.start().await.unwrap();
    a_while().await;
    scene.broker.clear_calls();
    let (a, b, c) = tokio::join!(scene.harbor.lag(), scene.harbor.lag(), scene.harbor.lag());
    assert_eq!(a.unwrap(), b.unwrap());
    assert_eq!((c.unwrap().len(), scene.rounds()), (2, 1));
    scene.harbor.lag().await.unwrap();
    assert_eq!(scene.rounds(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_whose_lag_cannot_be_had_is_left_out_and_told() {
    let scene = scene();
    for group in ["a", "b"] {
        scene.consumer(group).start().await.unwrap();
    }
    a_while().await;
    let refuse = |group: &str| {
        scene.broker.fault(Fault::new(Operation::Committed, Effect::refuse(ErrorCode(15))).for_group(group));
    };
    refuse("a");
    let groups: Vec<_> = scene.harbor.lag().await.unwrap().into_iter().map(|lag| lag.group).collect();
    assert_eq!(groups, ["b", "b"]);
    assert_eq!(*scene.told.0.lock().unwrap(), ["adapter a"]);

    refuse("a");
    refuse("b");
    let (first, second) = tokio::join!(scene.harbor.lag(), scene.harbor.lag());
    assert_eq!((first.unwrap_err().code(), second.unwrap_err().code()), (code::ADAPTER, code::ADAPTER));
}

#[tokio::test(start_paused = true)]
async fn health_is_lost_by_an_abort_and_by_a_shutdown() {
    let scene = scene();
    assert!(scene.harbor.health().healthy, "one that never connected is well");
    let (kept, stopped) = (scene.consumer("kept"), scene.consumer("stopped"));
    for consumer in [&kept, &stopped] {
        consumer.start().await.unwrap();
    }
    stopped.stop(Duration::from_secs(1)).await.unwrap();
    let health = scene.harbor.health();
    assert!(health.healthy, "one that was stopped on purpose does not count");
    assert_eq!((health.adapter, health.consumers[1].stopped_because), ("memory", Some(StopReason::Shutdown)));

    scene.put(&["abort"]).await;
    assert_eq!(kept.stopped().await, Some(StopReason::Abort));
    let health = scene.harbor.health();
    assert!(!health.healthy);
    assert_eq!(health.consumers[0].group, "kept");
    assert_eq!(
        (health.consumers[0].status, health.consumers[0].stopped_because),
        (ConsumerStatus::Stopped, Some(StopReason::Abort))
    );
    scene.harbor.shutdown(Duration::from_secs(1)).await.unwrap();
    assert!(!scene.harbor.health().healthy);
}
