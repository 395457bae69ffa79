//! Partitions that go, and come back.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kafka_harbor::adapter::memory::MemoryBroker;
use kafka_harbor::harbor::{Context, Failure};
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::Record;
use support::{GROUP, Port, Seen, fails, send, settle, start, until};
use tokio::sync::Semaphore;
use tokio::time::Instant;

fn two_partitions() -> Port {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 2).unwrap();
    Port::on(broker)
}

/// A handler that notes each call and waits for a permit at `slow`.
fn gated(
    seen: &Seen,
    gate: &Arc<Semaphore>,
) -> impl Fn(String, Context) -> kafka_harbor::adapter::BoxFuture<'static, Result<(), Failure>> + use<> {
    let (seen, gate) = (seen.clone(), gate.clone());
    move |order, context| {
        let (seen, gate) = (seen.clone(), gate.clone());
        Box::pin(async move {
            seen.add(format!("{}/{} {order}", context.partition(), context.offset()));
            if order == "slow" {
                gate.acquire().await.unwrap().forget();
            }
            if order == "bad" && context.attempt() == 1 { fails() } else { Ok(()) }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_handler_is_awaited_and_committed_and_others_go_at_once() {
    let port = two_partitions();
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    start(port.consumer().concurrency(2).subscribe("orders", gated(&seen, &gate))).await;
    port.send(Record::new("orders", "slow").with_partition(0)).await;
    port.send(Record::new("orders", "behind").with_partition(0)).await;
    port.send(Record::new("orders", "tea").with_partition(1)).await;
    settle().await;

    let other = Port::on(port.broker.clone());
    let elsewhere = Seen::default();
    let second = other.consumer().subscribe("orders", gated(&elsewhere, &gate)).build().unwrap();
    // Partition 1 first: it is released although partition 0 is at work.
    let began = Instant::now();
    port.broker.revoke(GROUP, "orders", 1);
    settle().await;
    assert_eq!(port.broker.committed(GROUP, "orders", 1).unwrap().0, 1);
    port.broker.revoke(GROUP, "orders", 0);
    settle().await;
    second.start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(port.committed("orders"), None, "still at work");
    assert!(!elsewhere.all().iter().any(|call| call.starts_with("0/")), "nobody else has it: {:?}", elsewhere.all());
    gate.add_permits(10);
    port.drained(&["orders"]).await;
    assert!(began.elapsed() < Duration::from_secs(300));
    // What stood behind it was left to whoever has the partition next.
    let mut all = [seen.all(), elsewhere.all()].concat();
    all.sort();
    assert_eq!(all, ["0/0 slow", "0/1 behind", "1/0 tea"], "each once");
    assert!(port.told.outcomes().contains(&"processed orders/0".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_comes_back_is_served_from_its_position_and_not_paused() {
    let port = Port::new();
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    start(port.consumer().retry_levels(["60s"]).subscribe("orders", gated(&seen, &gate))).await;
    port.publish("orders", &["bad"]).await;
    settle().await;
    assert_eq!(port.broker.paused(GROUP).len(), 1);
    // It waits for its time; a revocation does not wait for it, and its timer dies with the assignment.
    let began = Instant::now();
    port.broker.revoke(GROUP, "orders-retry-1", 0);
    settle().await;
    assert!(began.elapsed() < Duration::from_secs(1));
    port.drained(&["orders", "orders-retry-1"]).await;
    assert_eq!(seen.all(), ["0/0 bad", "0/0 bad"], "once more, not twice more");
    assert_eq!(port.committed("orders-retry-1"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_fires_while_its_partition_goes_does_not_run_its_record() {
    // The other level's handler holds the revocation up past the due time of what waits.
    let port = Port::new();
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    start(port.consumer().retry_levels(["10s"]).subscribe("orders", gated(&seen, &gate))).await;
    port.publish("orders", &["bad", "slow"]).await;
    settle().await;
    assert_eq!(seen.len(), 2);
    let other = Port::on(port.broker.clone());
    let elsewhere = Seen::default();
    start(other.consumer().retry_levels(["10s"]).subscribe("orders", gated(&elsewhere, &gate))).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    gate.add_permits(10);
    port.drained(&["orders", "orders-retry-1"]).await;
    let runs = [seen.all(), elsewhere.all()].concat();
    assert_eq!(runs.iter().filter(|call| call.ends_with("bad")).count(), 2, "first try and one retry: {runs:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_is_cut_off_and_whatever_it_returns_is_ignored() {
    let port = Port::new();
    let seen = Seen::default();
    start(port.consumer().cancel_grace("5s").subscribe("orders", {
        let seen = seen.clone();
        move |order: String, context: Context| {
            let seen = seen.clone();
            async move {
                seen.add(format!("begins {order}"));
                if seen.len() == 1 {
                    context.cancel().cancelled().await;
                    seen.add("cancelled");
                    return fails();
                }
                Ok(())
            }
        }
    }))
    .await;
    port.publish("orders", &["tea"]).await;
    settle().await;
    port.broker.lose(GROUP, "orders", 0);
    port.drained(&["orders"]).await;
    let mut calls = seen.all();
    calls.sort();
    assert_eq!(calls, ["begins tea", "begins tea", "cancelled"]);
    assert_eq!(port.values("orders-dlq"), [""; 0], "the failure of the one that was cut off is nobody's");
    assert_eq!(port.told.outcomes(), ["processed orders/0"]);
}

#[tokio::test(start_paused = true)]
async fn a_revocation_waits_no_longer_than_a_delivery_may_take() {
    let port = Port::new();
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    start(port.consumer().max_processing_time("30s").cancel_grace("2s").subscribe("orders", gated(&seen, &gate))).await;
    port.publish("orders", &["slow"]).await;
    settle().await;
    let began = Instant::now();
    port.broker.revoke(GROUP, "orders", 0);
    until("the second delivery", || seen.len() == 2).await;
    assert!((30..=33).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    gate.add_permits(10);
    port.drained(&["orders"]).await;
    assert_eq!(port.committed("orders"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn work_moves_to_a_member_that_joins_and_nothing_is_lost_or_doubled() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 6).unwrap();
    let port = Port::on(broker);
    let seen = Seen::default();
    let build = |port: &Port| {
        let seen = seen.clone();
        port.consumer()
            .concurrency(2)
            .retry_levels(["2s"])
            .subscribe("orders", move |order: String, context: Context| {
                let seen = seen.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    seen.add(format!("{order} #{}", context.attempt()));
                    if order.ends_with('7') && context.attempt() == 1 { fails() } else { Ok(()) }
                }
            })
            .build()
            .unwrap()
    };
    let first = build(&port);
    first.start().await.unwrap();
    let mut others = Vec::new();
    for round in 0..5 {
        let records = (0..120).map(|n| Record::new("orders", format!("{round}-{n}")).with_key(format!("key-{n}")));
        send(&port.broker, records.collect()).await;
        settle().await;
        let other = Port::on(port.broker.clone());
        let consumer = build(&other);
        consumer.start().await.unwrap();
        others.push((other, consumer));
        tokio::time::sleep(Duration::from_millis(120)).await;
        if round % 2 == 1 {
            let (_, leaving) = others.remove(0);
            leaving.stop(Duration::from_secs(30)).await.unwrap();
        }
    }
    port.drained(&["orders", "orders-retry-1"]).await;
    let mut runs = seen.all();
    assert_eq!(runs.len(), 5 * 120 + 5 * 12, "every record once, every seventh once more");
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 5 * 120 + 5 * 12);
}

#[test]
fn whatever_happens_every_record_ends_in_its_place() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = MemoryBroker::new();
        broker.create_topic("orders", 6).unwrap();
        let port = Port::on(broker);
        let seen = Seen::default();
        let build = |port: &Port| {
            let seen = seen.clone();
            port.consumer()
                .concurrency(2)
                .max_processing_time("5s")
                .cancel_grace("50ms")
                .retry_levels(["30ms", "1ms", "1100ms"])
                .subscribe("orders", move |order: String, context: Context| {
                    let seen = seen.clone();
                    async move {
                        if order.ends_with('3') {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        if order.ends_with('7') || (order.ends_with('5') && context.attempt() == 1) {
                            return fails();
                        }
                        seen.add(order);
                        Ok(())
                    }
                })
                .build()
                .unwrap()
        };
        let topics = ["orders", "orders-retry-1", "orders-retry-2", "orders-retry-3"];
        let mut members = Vec::new();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut sent = 0;
        for round in 0..120 {
            if members.len() < 3 {
                let member = Port::on(port.broker.clone());
                let consumer = build(&member);
                consumer.start().await.unwrap();
                members.push((member, consumer));
            }
            let records = (sent..sent + 50).map(|n| Record::new("orders", n.to_string()).with_key(n.to_string()));
            send(&port.broker, records.collect()).await;
            sent += 50;
            let topic = topics[random.below(topics.len())];
            let partition = i32::try_from(random.below(6)).unwrap();
            match random.below(7) {
                0 => port.broker.revoke(GROUP, topic, partition),
                1 => port.broker.lose(GROUP, topic, partition),
                2 => {
                    let ids = port.broker.members(GROUP);
                    port.broker.expire_session(GROUP, ids[random.below(ids.len())]);
                }
                3 => port.broker.fail_commits(GROUP, 2, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, true),
                4 => port.broker.lose_next_acknowledgement("orders-retry-1"),
                5 => port.broker.slow_next_produce("orders-dlq", Duration::from_millis(20)),
                _ => {
                    let (_, leaving) = members.remove(random.below(members.len()));
                    leaving
                        .stop(Duration::from_secs(10))
                        .await
                        .unwrap_or_else(|error| panic!("round {round}: {error}"));
                }
            }
            tokio::time::sleep(Duration::from_millis(random.below(8) as u64)).await;
        }
        port.broker.clear_faults();
        let drained = tokio::time::timeout(Duration::from_secs(60), port.broker.when_drained(GROUP, &topics)).await;
        drained.expect("it comes to rest").unwrap();
        for (member, consumer) in members {
            assert_eq!(consumer.status(), kafka_harbor::harbor::ConsumerStatus::Running);
            member.harbor.shutdown(Duration::from_secs(10)).await.unwrap();
        }
        let handled: HashSet<_> = seen.all().into_iter().collect();
        let dead: HashSet<_> = port.values("orders-dlq").into_iter().collect();
        for n in 0..sent {
            let (n, fails) = (n.to_string(), n % 10 == 7);
            assert_eq!((handled.contains(&n), dead.contains(&n)), (!fails, fails), "record {n}");
        }
    });
}

/// Marsaglia's xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}
