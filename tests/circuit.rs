//! Circuit breakers: records that are held where they are while their handler's world is down.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod support;

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kafka_harbor::adapter::memory::MemoryBroker;
use kafka_harbor::harbor::{CircuitBreaker, Context, Failure, Outcome};
use kafka_harbor::observe::{CircuitState, CircuitStateChanged, Observer};
use kafka_harbor::record::{Record, TopicPartition};
use support::{GROUP, Port, Seen, settle, start, within};
use tokio::time::{Instant, sleep};

/// What a handler needs, which can be down.
#[derive(Clone)]
struct World {
    is_up: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    seen: Seen,
}

impl World {
    fn down() -> Self {
        Self { is_up: Arc::default(), calls: Arc::default(), seen: Seen::default() }
    }

    fn up(&self) {
        self.is_up.store(true, Ordering::Relaxed);
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn handler(&self) -> impl Fn(String, Context) -> Ready<Result<(), Failure>> + use<> {
        let world = self.clone();
        move |order, context| {
            world.calls.fetch_add(1, Ordering::Relaxed);
            if !world.is_up.load(Ordering::Relaxed) {
                return ready(Err(Failure::new("no connection")));
            }
            world.seen.note(&order, &context);
            ready(Ok(()))
        }
    }
}

/// The changes of circuits, in order.
#[derive(Clone, Default)]
struct Changes(Seen);

impl Observer for Changes {
    fn circuit_state_changed(&self, event: &CircuitStateChanged<'_>) {
        self.0.add(format!("{} {} {} to {}", event.group, event.topic, event.from, event.to));
    }
}

fn two_in_a_row() -> CircuitBreaker {
    CircuitBreaker::new().consecutive_failures(2).half_open_after("10s").half_open_calls(1)
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_holds_records_where_they_are_and_probes_when_it_may() {
    let (world, changes) = (World::down(), Changes::default());
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 1).unwrap();
    broker.create_topic("mail", 1).unwrap();
    let port = Port::with(broker, |builder| builder.observer(changes.clone()));
    let mail = Seen::default();
    let consumer =
        port.consumer().retry_levels(["1h"]).circuit_breaker(two_in_a_row()).circuit_breaker_of("mail", None);
    let consumer = consumer.subscribe("orders", world.handler()).subscribe("mail", support::noting(&mail));
    let consumer = start(consumer).await;
    port.publish("orders", &["a", "b", "c", "d"]).await;
    settle().await;

    assert_eq!(consumer.circuit("orders").unwrap().state(), CircuitState::Open);
    assert!(consumer.circuit("mail").is_none() && consumer.circuit("orders-retry-1").is_none());
    assert_eq!(port.values("orders-retry-1"), ["a", "b"], "what opened it");
    assert_eq!((world.calls(), port.committed("orders")), (2, Some(2)));
    assert_eq!(port.broker.paused(GROUP), [TopicPartition::new("orders", 0), TopicPartition::new("orders-retry-1", 0)]);
    // One place for all partitions of a level, and the one that is held does not take it.
    port.publish("mail", &["hello"]).await;
    settle().await;
    assert_eq!(mail.all(), ["mail/0 hello #1"]);

    sleep(Duration::from_secs(12)).await;
    assert_eq!(world.calls(), 3, "one probe, which failed, and nothing else");
    assert_eq!(port.values("orders-retry-1"), ["a", "b", "c"]);
    world.up();
    sleep(Duration::from_secs(12)).await;
    assert_eq!(world.seen.all(), ["orders/3 d #1"]);
    assert_eq!(port.committed("orders"), Some(4));
    assert_eq!(
        changes.0.all(),
        [
            "shipping orders closed to open",
            "shipping orders open to half-open",
            "shipping orders half-open to open",
            "shipping orders open to half-open",
            "shipping orders half-open to closed",
        ]
    );
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(world.seen.len(), 4, "everything in the end");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_over_takes_the_ladder() {
    let world = World::down();
    let port = Port::new();
    let breaker = CircuitBreaker::new().consecutive_failures(1).half_open_after("1d").hold("2500ms");
    let consumer = port.consumer().retry_levels(["1h"]).circuit_breaker(breaker);
    let consumer = start(consumer.subscribe("orders", world.handler())).await;
    port.publish("orders", &["a"]).await;
    settle().await;
    let began = Instant::now();
    port.publish("orders", &["b", "c"]).await;
    while port.committed("orders") < Some(2) {
        sleep(Duration::from_millis(50)).await;
    }
    let took = began.elapsed();
    assert!(Duration::from_millis(2_450) < took && took < Duration::from_millis(2_700), "{took:?}");
    assert_eq!(world.calls(), 1, "a held record is not handled");
    let moved = &port.broker.records("orders-retry-1")[1];
    let header = |name: &str| {
        let header = moved.headers.iter().find(|header| header.name == name).unwrap();
        String::from_utf8(header.value.clone().unwrap().to_vec()).unwrap()
    };
    assert_eq!(header("x-last-error"), "HoldExpiredError: circuit for \"orders\" stayed open for 2500ms");
    assert_eq!(header("x-retry-count"), "1");
    // The next is held anew, for as long; closed by hand it goes on within a second.
    consumer.circuit("orders").unwrap().close();
    world.up();
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(world.seen.all(), ["orders/2 c #1"]);
}

#[tokio::test(start_paused = true)]
async fn retry_topics_share_the_circuit_of_the_original() {
    let world = World::down();
    let port = Port::new();
    let breaker = CircuitBreaker::new().consecutive_failures(2).half_open_after("1m").half_open_calls(1);
    let consumer = port.consumer().retry_levels(["5s", "5s"]).circuit_breaker(breaker);
    let consumer = start(consumer.subscribe("orders", world.handler())).await;
    port.publish("orders", &["a"]).await;
    sleep(Duration::from_secs(6)).await;
    assert_eq!(consumer.circuit("orders").unwrap().state(), CircuitState::Open, "one of each topic, two in a row");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(world.calls(), 2, "the third waits on its retry topic");
    world.up();
    port.drained(&["orders", "orders-retry-1", "orders-retry-2"]).await;
    assert_eq!(world.seen.all(), ["orders-retry-2/0 a #3"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_stays_uncommitted_when_its_partition_goes() {
    let world = World::down();
    let port = Port::new();
    let first = start(port.consumer().circuit_breaker(two_in_a_row()).subscribe("orders", world.handler())).await;
    port.publish("orders", &["a", "b", "c"]).await;
    settle().await;
    let began = Instant::now();
    first.stop(Duration::from_secs(30)).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(100), "nobody waits for it");
    assert_eq!(port.committed("orders"), Some(2));
    let seen = Seen::default();
    start(port.consumer().subscribe("orders", support::noting(&seen))).await;
    port.drained(&["orders"]).await;
    assert_eq!(seen.all(), ["orders/2 c #1"]);
}

#[tokio::test(start_paused = true)]
async fn only_failures_of_what_it_guards_open_it() {
    let port = Port::new();
    let breaker = CircuitBreaker::new().consecutive_failures(1);
    let consumer = port.consumer().circuit_breaker(breaker).subscribe("orders", |order: String| {
        ready(match order.as_str() {
            "permanent" => Outcome::dead_letter(Failure::permanent("no such product")),
            _ => Outcome::Done,
        })
    });
    let consumer = start(consumer).await;
    port.publish("orders", &["permanent"]).await;
    port.send(Record::new("orders", &b"\xff\xfe"[..])).await;
    port.publish("orders", &["tea"]).await;
    within("draining", port.broker.when_drained(GROUP, &["orders"])).await.unwrap();
    assert_eq!(port.broker.records("orders-dlq").len(), 2);
    assert_eq!(consumer.circuit("orders").unwrap().state(), CircuitState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_predicate_decides_and_one_that_panics_changes_nothing() {
    for (panics, state) in [(false, CircuitState::Closed), (true, CircuitState::Open)] {
        let world = World::down();
        let port = Port::new();
        let breaker = two_in_a_row().failure_if(move |failure| {
            assert!(!panics, "as told");
            failure.to_string().contains("timeout")
        });
        let consumer = start(port.consumer().circuit_breaker(breaker).subscribe("orders", world.handler())).await;
        port.publish("orders", &["a", "b", "c"]).await;
        settle().await;
        assert_eq!(consumer.circuit("orders").unwrap().state(), state);
    }
}

#[test]
fn circuits_that_make_no_sense_are_refused_by_name() {
    let port = Port::new();
    let breaker = CircuitBreaker::new().failure_rate(f64::NAN).minimum_calls(0).half_open_calls(0).hold("6m");
    let none = CircuitBreaker::new().consecutive_failures(0).window("soon");
    let consumer = port.consumer().circuit_breaker(breaker).circuit_breaker_of("mail", Some(none));
    let error = consumer.subscribe("orders", |_: String| ready(Outcome::Done)).build().unwrap_err().to_string();
    for option in
        ["failure_rate", "minimum_calls", "half_open_calls", "hold", "consecutive_failures", "window", "_of(mail)"]
    {
        assert!(error.contains(option), "{option}: {error}");
    }
}
