//! Work that is done once for each key.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod support;

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kafka_harbor::adapter::memory::MemoryBroker;
use kafka_harbor::adapter::{BoxFuture, CommittedOffset, GroupPositions};
use kafka_harbor::clock::TokioClock;
use kafka_harbor::harbor::{
    Acquired, Circuit, CircuitBreaker, Context, Execution, Failure, Idempotency, IdempotencyEngine, IdempotencyKey,
    IdempotencyStatus, IdempotencyStore, Lease, MemoryIdempotencyStore, OnConflict, Outcome, StoreError, code,
};
use kafka_harbor::observe::{CircuitState, MessageProcessed, Observer};
use kafka_harbor::record::{Offset, Timestamp, TopicPartition};
use support::{GROUP, Port, Seen, settle, start};
use tokio::time::{Instant, sleep};

type Engine<S = MemoryIdempotencyStore> = IdempotencyEngine<S>;

fn engine() -> Engine {
    IdempotencyEngine::new(MemoryIdempotencyStore::new()).clock(TokioClock)
}

/// Work that counts its runs.
#[derive(Clone, Default)]
struct Work(Arc<AtomicUsize>);

impl Work {
    fn runs(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn taking(&self, time: Duration, ended: Result<(), Failure>) -> BoxFuture<'static, Result<(), Failure>> {
        let runs = self.0.clone();
        Box::pin(async move {
            runs.fetch_add(1, Ordering::Relaxed);
            sleep(time).await;
            ended
        })
    }

    fn done(&self) -> BoxFuture<'static, Result<(), Failure>> {
        self.taking(Duration::ZERO, Ok(()))
    }
}

async fn code_of(engine: &impl Idempotency, key: impl Into<IdempotencyKey>, work: &Work) -> String {
    let refused = engine.execute(key.into(), work.done()).await.unwrap_err();
    assert!(refused.is_retryable(), "the ladder may mend it");
    refused.code().unwrap_or("none").to_owned()
}

#[tokio::test(start_paused = true)]
async fn what_succeeded_is_not_done_again_until_it_is_forgotten() {
    let (engine, work) = (engine().result_ttl("1h"), Work::default());
    let run = || engine.execute("order-7".into(), work.done());
    assert_eq!(run().await.unwrap(), Execution::Ran);
    sleep(Duration::from_secs(3_590)).await;
    assert_eq!(run().await.unwrap(), Execution::Replayed);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(run().await.unwrap(), Execution::Ran, "from its end, not from the last time it was asked for");
    let short = IdempotencyKey::new("order-8").with_result_ttl(Duration::from_secs(1));
    assert_eq!(engine.execute(short.clone(), work.done()).await.unwrap(), Execution::Ran);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(engine.execute(short, work.done()).await.unwrap(), Execution::Ran);
    assert_eq!(work.runs(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_failure_frees_the_key_unless_it_is_kept() {
    let work = Work::default();
    let permanent = || work.taking(Duration::ZERO, Err(Failure::permanent("no such product").named("StockError")));
    for (engine, runs) in [(engine(), 2), (engine().persist_failures(true), 1)] {
        let before = work.runs();
        for _ in 0..2 {
            let failed = engine.execute("order-7".into(), permanent()).await.unwrap_err();
            assert_eq!((failed.name(), failed.to_string().as_str()), ("StockError", "no such product"));
            assert!(!failed.is_retryable());
        }
        assert_eq!(work.runs() - before, runs);
    }
    // What may be mended is never kept.
    let engine = engine().persist_failures(true);
    let fails = work.taking(Duration::ZERO, Err(Failure::new("timeout")));
    engine.execute("order-7".into(), fails).await.unwrap_err();
    assert_eq!(engine.execute("order-7".into(), work.done()).await.unwrap(), Execution::Ran);
}

#[tokio::test(start_paused = true)]
async fn of_two_at_once_one_is_refused_or_waits() {
    let (refusing, work) = (Arc::new(engine()), Work::default());
    let slow = |engine: &Arc<Engine>| {
        let (engine, work) = (engine.clone(), work.taking(Duration::from_secs(5), Ok(())));
        tokio::spawn(async move { engine.execute("order-7".into(), work).await })
    };
    let first = slow(&refusing);
    settle().await;
    assert_eq!(code_of(&*refusing, "order-7", &work).await, code::IDEMPOTENCY_IN_PROGRESS);
    assert_eq!(first.await.unwrap().unwrap(), Execution::Ran);

    let waiting = Arc::new(engine().on_conflict(OnConflict::Wait));
    let first = slow(&waiting);
    settle().await;
    let second = waiting.execute("order-7".into(), work.done());
    assert_eq!(second.await.unwrap(), Execution::Replayed);
    assert_eq!(first.await.unwrap().unwrap(), Execution::Ran);

    let impatient = Arc::new(engine().on_conflict(OnConflict::Wait).wait_timeout("2s"));
    let first = slow(&impatient);
    settle().await;
    let began = Instant::now();
    assert_eq!(code_of(&*impatient, "order-7", &work).await, code::IDEMPOTENCY_WAIT_TIMEOUT);
    assert!(began.elapsed() < Duration::from_millis(3_100), "{:?}", began.elapsed());
    first.await.unwrap().unwrap();
    assert_eq!(work.runs(), 3);
}

#[tokio::test(start_paused = true)]
async fn work_that_outlives_its_lease_has_run_and_says_so() {
    let (engine, work) = (Arc::new(engine().lock_ttl("2s")), Work::default());
    let (other, slow) = (engine.clone(), work.taking(Duration::from_secs(5), Ok(())));
    let first = tokio::spawn(async move { other.execute("order-7".into(), slow).await });
    sleep(Duration::from_secs(3)).await;
    assert_eq!(engine.execute("order-7".into(), work.done()).await.unwrap(), Execution::Ran, "taken over");
    let late = first.await.unwrap().unwrap_err();
    assert_eq!(late.code(), Some(code::IDEMPOTENCY_FENCING));
    assert_eq!(engine.execute("order-7".into(), work.done()).await.unwrap(), Execution::Replayed);
    assert_eq!(work.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_dropped_frees_its_key_at_once() {
    let (engine, work) = (Arc::new(engine()), Work::default());
    let (other, never) = (engine.clone(), work.taking(Duration::from_secs(86_400), Ok(())));
    let given_up = tokio::spawn(async move { other.execute("order-7".into(), never).await });
    settle().await;
    given_up.abort();
    settle().await;
    assert_eq!(engine.execute("order-7".into(), work.done()).await.unwrap(), Execution::Ran);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_for_one_piece_of_work_and_never_cut() {
    let (engine, work) = (engine().max_key_length(10), Work::default());
    let key = |fingerprint: &str| IdempotencyKey::new("order-7").with_fingerprint(fingerprint);
    engine.execute(key("tea"), work.done()).await.unwrap();
    assert_eq!(engine.execute(key("tea"), work.done()).await.unwrap(), Execution::Replayed);
    assert_eq!(code_of(&engine, key("milk"), &work).await, code::IDEMPOTENCY_KEY_REUSE);
    assert_eq!(code_of(&engine, "order-7", &work).await, code::IDEMPOTENCY_KEY_REUSE, "one side has none");
    assert_eq!(code_of(&engine, "", &work).await, code::IDEMPOTENCY_KEY_INVALID);
    assert_eq!(code_of(&engine, "order-12345", &work).await, code::IDEMPOTENCY_KEY_INVALID);
    assert_eq!(work.runs(), 1);
}

/// A store that cannot be reached, or what it holds cannot be read.
struct Away {
    is_corrupt: bool,
}

impl Away {
    fn error(&self) -> StoreError {
        if self.is_corrupt { StoreError::Corrupt("no JSON".into()) } else { StoreError::Unavailable("refused".into()) }
    }
}

impl IdempotencyStore for Away {
    fn acquire<'a>(&'a self, _: &'a str, _: Lease) -> BoxFuture<'a, Result<Acquired, StoreError>> {
        Box::pin(ready(Err(self.error())))
    }

    fn complete<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: IdempotencyStatus,
        _: Timestamp,
        _: Timestamp,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(ready(Err(self.error())))
    }

    fn release<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(ready(Err(self.error())))
    }
}

#[tokio::test(start_paused = true)]
async fn without_its_store_nothing_runs_unless_it_was_asked_for() {
    let work = Work::default();
    let engine = |is_corrupt| IdempotencyEngine::new(Away { is_corrupt });
    assert_eq!(code_of(&engine(false), "order-7", &work).await, code::IDEMPOTENCY_STORAGE_UNAVAILABLE);
    assert_eq!(code_of(&engine(true), "order-7", &work).await, code::IDEMPOTENCY_STORAGE_CORRUPT);
    assert_eq!(work.runs(), 0);
    let open = engine(false).run_unguarded_without_store(true);
    assert_eq!(open.execute("order-7".into(), work.done()).await.unwrap(), Execution::Ran);
    let open = engine(true).run_unguarded_without_store(true);
    assert_eq!(code_of(&open, "order-7", &work).await, code::IDEMPOTENCY_STORAGE_CORRUPT, "that is no outage");
}

/// Which records were told as replayed.
#[derive(Clone, Default)]
struct Replays(Seen);

impl Observer for Replays {
    fn message_processed(&self, event: &MessageProcessed<'_>) {
        self.0.add(format!("{}/{} {}", event.topic, event.offset, if event.replayed { "replayed" } else { "ran" }));
    }
}

fn told() -> (Port, Replays) {
    let (broker, replays) = (MemoryBroker::new(), Replays::default());
    broker.create_topic("orders", 1).unwrap();
    (Port::with(broker, |builder| builder.observer(replays.clone())), replays)
}

#[tokio::test(start_paused = true)]
async fn what_was_produced_twice_is_handled_once_also_on_the_ladder() {
    let (port, replays) = told();
    let seen = Seen::default();
    let consumer = port.consumer().retry_levels(["5s"]).idempotency(engine());
    let consumer = consumer.subscribe_once("orders", |order: &String, _: &Context| format!("order:{order}"), {
        let seen = seen.clone();
        move |order: String, context: Context| {
            seen.note(&order, &context);
            ready(if order == "milk" && context.attempt() == 1 {
                Outcome::retry("out of stock")
            } else {
                Outcome::Done
            })
        }
    });
    start(consumer).await;
    port.publish("orders", &["tea", "milk", "tea", "milk"]).await;
    port.drained(&["orders", "orders-retry-1"]).await;
    // Each failure of milk frees its key; the first retry does it, and the second one need not.
    let calls = ["orders/0 tea #1", "orders/1 milk #1", "orders/3 milk #1", "orders-retry-1/0 milk #2"];
    assert_eq!(seen.all(), calls);
    let events = ["orders/0 ran", "orders/2 replayed", "orders-retry-1/0 ran", "orders-retry-1/1 replayed"];
    assert_eq!(replays.0.all(), events);
    assert_eq!(port.committed("orders"), Some(4));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_delivered_again_is_not_handled_again() {
    let (port, replays) = told();
    let (seen, store) = (Seen::default(), Arc::new(MemoryIdempotencyStore::new()));
    let consumer = || {
        let engine = IdempotencyEngine::shared(store.clone()).clock(TokioClock);
        port.consumer().idempotency(engine).subscribe("orders", support::noting(&seen))
    };
    let first = start(consumer()).await;
    port.publish("orders", &["tea", "milk"]).await;
    port.drained(&["orders"]).await;
    first.stop(Duration::from_secs(30)).await.unwrap();
    // As if the commit had been lost.
    let back = CommittedOffset { partition: TopicPartition::new("orders", 0), offset: Offset(1), note: None };
    port.broker.set_committed(GROUP, &[back]).await.unwrap();
    start(consumer()).await;
    settle().await;
    assert_eq!(port.committed("orders"), Some(2));
    assert_eq!(seen.all(), ["orders/0 tea #1", "orders/1 milk #1"]);
    assert_eq!(replays.0.all(), ["orders/0 ran", "orders/1 ran", "orders/1 replayed"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_replayed_is_no_probe() {
    let (port, replays) = told();
    let breaker = CircuitBreaker::new().consecutive_failures(1).half_open_after("10s").half_open_calls(1);
    let (circuit, states) = (Arc::new(OnceLock::<Circuit>::new()), Seen::default());
    let consumer = port.consumer().idempotency(engine()).circuit_breaker(breaker);
    let consumer = consumer.subscribe_once("orders", |order: &String, _: &Context| order.clone(), {
        let (circuit, states) = (circuit.clone(), states.clone());
        move |order: String| {
            states.add(format!("{order} {}", circuit.get().unwrap().state()));
            ready(if order == "bad" { Err(Failure::new("no connection")) } else { Ok(()) })
        }
    });
    let consumer = consumer.build().unwrap();
    circuit.set(consumer.circuit("orders").unwrap()).unwrap();
    consumer.start().await.unwrap();
    port.publish("orders", &["tea", "bad", "tea", "milk"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(replays.0.all(), ["orders/0 ran", "orders/2 replayed", "orders/3 ran"]);
    assert_eq!(states.all(), ["tea closed", "bad closed", "milk half-open"], "only what ran can close it");
    assert_eq!(consumer.circuit("orders").unwrap().state(), CircuitState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_had_is_a_failure() {
    let (port, _) = told();
    let key = |_: &String, _: &Context| -> IdempotencyKey { panic!("no id") };
    let handler = |_: String| ready(Ok::<(), Failure>(()));
    start(port.consumer().idempotency(engine()).subscribe_once("orders", key, handler)).await;
    port.publish("orders", &["tea"]).await;
    port.drained(&["orders"]).await;
    assert_eq!(port.values("orders-dlq"), ["tea"]);
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let port = Port::new();
    let handler = |_: String| ready(Outcome::Done);
    let key = |order: &String, _: &Context| order.clone();
    let error = port.consumer().subscribe_once("orders", key, handler).build().unwrap_err().to_string();
    assert!(error.contains("topics[orders]") && error.contains("no idempotency"), "{error}");
    let engine = engine().result_ttl("0s").lock_ttl("soon");
    let error = port.consumer().idempotency(engine).subscribe("orders", handler).build().unwrap_err().to_string();
    assert!(error.contains("result_ttl") && error.contains("lock_ttl"), "{error}");
}
