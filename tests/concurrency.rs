//! Who is handled when: partitions at once, levels apart, turns.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kafka_harbor::adapter::memory::{MemoryBroker, MemorySettings};
use kafka_harbor::harbor::{Context, Failure};
use kafka_harbor::observe::{MessageProcessed, Observer};
use kafka_harbor::record::Record;
use support::{GROUP, Port, Seen, send, settle, start, within};
use tokio::time::Instant;

fn port(partitions: i32) -> Port {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", partitions).unwrap();
    Port::on(broker)
}

fn spread(partitions: i32, each: usize) -> Vec<Record> {
    let records = (0..each).flat_map(|n| (0..partitions).map(move |partition| (n, partition)));
    records.map(|(n, partition)| Record::new("orders", n.to_string()).with_partition(partition)).collect()
}

#[tokio::test(start_paused = true)]
async fn as_many_partitions_are_handled_at_once_as_was_asked_for_and_each_in_order() {
    let port = port(5);
    let seen = Seen::default();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let consumer = port
        .consumer()
        .concurrency(3)
        .subscribe("orders", {
            let (seen, running, most) = (seen.clone(), running.clone(), most.clone());
            move |order: String, context: Context| {
                let (seen, running, most) = (seen.clone(), running.clone(), most.clone());
                async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    seen.add(format!("{} {order}", context.partition()));
                    Ok::<_, Failure>(())
                }
            }
        })
        .build()
        .unwrap();
    send(&port.broker, spread(5, 40)).await;
    let began = Instant::now();
    consumer.start().await.unwrap();
    port.drained(&["orders"]).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    let elapsed = began.elapsed().as_millis();
    assert!((660..1_000).contains(&elapsed), "200 records of 10 ms on three places: {elapsed} ms");
    for partition in 0..5 {
        let of: Vec<_> = seen.all().into_iter().filter(|call| call.starts_with(&format!("{partition} "))).collect();
        assert_eq!(of, (0..40).map(|n| format!("{partition} {n}")).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_with_much_to_do_lets_others_have_their_turn() {
    for (pause, bound) in [(Duration::ZERO, 600), (Duration::from_millis(10), 20)] {
        let port = port(2);
        let seen = Seen::default();
        start(port.consumer().subscribe("orders", {
            let seen = seen.clone();
            move |_: String, context: Context| {
                let seen = seen.clone();
                async move {
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                    seen.add(context.partition().to_string());
                    Ok::<_, Failure>(())
                }
            }
        }))
        .await;
        send(&port.broker, (0..1_000).map(|n| Record::new("orders", n.to_string()).with_partition(0)).collect()).await;
        send(&port.broker, vec![Record::new("orders", "small").with_partition(1)]).await;
        port.drained(&["orders"]).await;
        let at = seen.all().iter().position(|call| call == "1").unwrap();
        assert!(at < bound, "the other partition's record came {at}th");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_of_originals_does_not_keep_retries_waiting() {
    // Much more waits on the originals than the adapter may hold at once, and every handler takes its time.
    let broker = MemoryBroker::with_settings(MemorySettings::default().with_buffer_bytes(1_000_000));
    broker.create_topic("orders", 40).unwrap();
    let port = Port::on(broker);
    let seen = Seen::default();
    let start = Instant::now();
    let consumer = port
        .consumer()
        .retry_levels(["1s"])
        .subscribe("orders", {
            let seen = seen.clone();
            move |order: String, context: Context| {
                let seen = seen.clone();
                async move {
                    if context.topic().ends_with("retry-1") {
                        seen.add(format!("{order} after {:?}", start.elapsed()));
                        return Ok::<_, Failure>(());
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    Ok(())
                }
            }
        })
        .build()
        .unwrap();
    let big = "x".repeat(1_000);
    for partition in 0..40 {
        let records = (0..50).map(|_| Record::new("orders", big.clone()).with_partition(partition));
        send(&port.broker, records.collect()).await;
    }
    port.broker.create_topic("orders-retry-1", 1).unwrap();
    port.send(Record::new("orders-retry-1", "retry").with_header("x-retry-group", GROUP)).await;
    consumer.start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(seen.len(), 1, "the originals need two hundred seconds: {:?}", seen.all());
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(port.told.of(&["processed"]).len(), 2_001);
}

#[tokio::test]
async fn a_handler_that_never_waits_lets_the_runtime_breathe() {
    let port = port(1);
    let ticks = Arc::new(AtomicUsize::new(0));
    let consumer = port.consumer().subscribe("orders", async |_: String| Ok::<_, Failure>(())).build().unwrap();
    send(&port.broker, spread(1, 5_000)).await;
    let other = tokio::spawn({
        let ticks = ticks.clone();
        async move {
            loop {
                ticks.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    consumer.start().await.unwrap();
    port.drained(&["orders"]).await;
    other.abort();
    assert!(ticks.load(Ordering::Relaxed) > 10, "{ticks:?}");
}

#[tokio::test(start_paused = true)]
async fn observers_cannot_decide() {
    struct Panicking;
    impl Observer for Panicking {
        fn message_processed(&self, _: &MessageProcessed<'_>) {
            panic!("an observer that throws");
        }
    }
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 1).unwrap();
    let port = Port::with(broker, |builder| builder.observer(Panicking));
    let seen = Seen::default();
    let consumer = start(port.consumer().subscribe("orders", {
        let seen = seen.clone();
        move |order: String| {
            seen.add(order);
            async { Ok::<_, Failure>(()) }
        }
    }))
    .await;
    port.publish("orders", &["tea", "milk"]).await;
    port.drained(&["orders"]).await;
    settle().await;
    assert_eq!(seen.all(), ["tea", "milk"], "handled once each");
    assert_eq!(port.told.outcomes(), ["processed orders/0", "processed orders/1"], "the others are told");
    within("the stop", consumer.stop(Duration::from_secs(1))).await.unwrap();
}

#[test]
fn it_works_on_a_runtime_of_many_threads_as_well() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let port = port(8);
        let handled = Arc::new(AtomicUsize::new(0));
        start(port.consumer().concurrency(4).retry_levels(["20ms"]).subscribe("orders", {
            let handled = handled.clone();
            move |order: String, context: Context| {
                let handled = handled.clone();
                async move {
                    if order.ends_with('3') && context.attempt() == 1 {
                        return Err(Failure::new("again"));
                    }
                    if order.ends_with('5') {
                        tokio::task::yield_now().await;
                    }
                    handled.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }
            }
        }))
        .await;
        for _ in 0..10 {
            send(&port.broker, spread(8, 100)).await;
        }
        port.drained(&["orders", "orders-retry-1"]).await;
        assert_eq!(handled.load(Ordering::Relaxed), 8_000);
        port.harbor.shutdown(Duration::from_secs(10)).await.unwrap();
        assert_eq!(port.told.of(&["processed"]).len(), 8_000);
        assert_eq!(port.told.of(&["retried"]).len(), 800);
        assert_eq!(port.told.of(&["error", "commit-failed"]), [""; 0]);
    });
}
