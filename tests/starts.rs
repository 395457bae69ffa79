//! Where reading begins on a partition without a commit, and what of that decision outlives a restart.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
use kafka_harbor::adapter::{
    Adapter, AdapterError, BoxFuture, CommittedOffset, Event, JoinOptions, Membership, Position, Start,
    TopicSubscription,
};
use kafka_harbor::harbor::{Consumer, Context, Failure, Harbor, Text};
use kafka_harbor::memory::{Effect, Fault, Operation};
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{Offset, Record, Topic};
use support::pass_on::{Answer, pass_on};
use support::{GROUP, Port, Seen, settle, until, within};

const SECOND: Duration = Duration::from_secs(1);

/// A consumer of `orders` with the default start, the end.
fn consumer(port: &Port, seen: &Seen) -> Consumer {
    let seen = seen.clone();
    let handler = move |order: String, context: Context| {
        seen.add(format!("{}-{} {order}", context.topic(), context.partition()));
        std::future::ready(Ok::<_, Failure>(()))
    };
    port.harbor.consumer(GROUP).auto_create_topics(true).subscribe("orders", handler).build().unwrap()
}

/// Runs one until the group has a position on every partition, and stops it.
async fn run_once(port: &Port, seen: &Seen) {
    let consumer = consumer(port, seen);
    consumer.start().await.unwrap();
    port.drained(&["orders"]).await;
    settle().await;
    consumer.stop(SECOND).await.unwrap();
}

fn to(partition: i32, value: &'static str) -> Record {
    Record::new("orders", value).with_partition(partition)
}

/// With the start at the end, records that were written to a new partition before it was discovered were skipped: by a
/// consumer that nobody had told yet, and by one that was started afterwards (KAFKA-12478).
#[tokio::test(start_paused = true)]
async fn a_partition_that_was_added_while_nobody_ran_is_read_from_its_first_record() {
    let (port, seen) = (Port::new(), Seen::default());
    port.send(to(0, "history")).await;
    run_once(&port, &seen).await;
    port.broker.add_partitions("orders", 3).unwrap();
    port.send(to(1, "tea")).await;
    port.send(to(2, "milk")).await;

    let second = consumer(&port, &seen);
    let lag = second.lag().await.unwrap();
    assert_eq!(lag.iter().map(|lag| lag.lag).collect::<Vec<_>>(), [0, 1, 1], "what is not read yet is behind");
    second.start().await.unwrap();
    port.drained(&["orders"]).await;
    let mut calls = seen.all();
    calls.sort();
    assert_eq!(calls, ["orders-1 tea", "orders-2 milk"]);
}

/// The first owner of a new partition died before its first commit; the next one has never seen the topic without it.
#[tokio::test(start_paused = true)]
async fn a_new_partition_whose_first_owner_died_uncommitted_is_still_read_from_its_first_record() {
    let (port, seen) = (Port::new(), Seen::default());
    run_once(&port, &seen).await;
    port.broker.add_partitions("orders", 2).unwrap();
    port.send(to(1, "tea")).await;
    // It commits on the old partition alone: what it knows by now must not become what the group began with.
    let first = consumer(&port, &seen);
    let refused = Effect::refuse(ErrorCode::INVALID_COMMIT_OFFSET_SIZE);
    port.broker.fault(Fault::new(Operation::Settle, refused).for_group(GROUP).times(1_000));
    first.start().await.unwrap();
    until("the delivery", || seen.len() == 1).await;
    port.broker.expire_session(GROUP, port.broker.members(GROUP)[0]);
    let _ = first.stop(Duration::ZERO).await;
    port.broker.clear_faults();
    port.send(to(0, "milk")).await;

    let again = Port::on(port.broker.clone());
    consumer(&again, &seen).start().await.unwrap();
    again.drained(&["orders"]).await;
    let mut calls = seen.all();
    calls.sort();
    assert_eq!(calls, ["orders-0 milk", "orders-1 tea", "orders-1 tea"]);
}

/// What `note` beside a commit on partition 0 makes of partition 1, which has a record and no commit.
async fn beside(note: Option<&str>) -> Vec<String> {
    let (port, seen) = (Port::new(), Seen::default());
    port.broker.add_partitions("orders", 2).unwrap();
    commit(&port.broker, 0, note).await;
    port.send(to(1, "history")).await;
    consumer(&port, &seen).start().await.unwrap();
    settle().await;
    port.send(to(1, "new")).await;
    port.drained(&["orders"]).await;
    seen.all()
}

/// Commits on one partition of `orders` by a member that is then gone.
async fn commit(broker: &MemoryBroker, partition: i32, note: Option<&str>) {
    let adapter = MemoryAdapter::new(broker);
    let topics = vec![TopicSubscription { topic: "orders".into(), start: Start::Latest }];
    let mut membership = adapter.join(JoinOptions::new(GROUP, topics)).await.unwrap();
    let assigned = loop {
        if let Some(Event::Assigned(assigned)) = membership.events.next().await {
            break assigned;
        }
    };
    let assigned = assigned.into_iter().map(|a| a.assigned).find(|a| a.partition.partition == partition).unwrap();
    let position = Position { assigned, offset: Offset(0), note: note.map(str::to_owned) };
    membership.handle.settle(vec![position]).await.unwrap();
    membership.handle.leave(SECOND).await.unwrap();
}

/// A new group's second member finds commits of the first on the same topic. They say with how many partitions the group
/// began: what is among them is no new partition, and its history is not replayed.
#[tokio::test(start_paused = true)]
async fn only_partitions_that_the_group_did_not_begin_with_are_read_from_their_first_record() {
    let whole = ["orders-1 history", "orders-1 new"];
    assert_eq!(beside(Some("kafka-harbor/1 partitions=1")).await, whole);
    assert_eq!(beside(Some("kafka-harbor/1 later=words partitions=1 x")).await, whole);
    for known in [
        Some("kafka-harbor/1 partitions=2"),
        // Nothing that this version reads: of another version, of Node, of anybody.
        Some("kafka-harbor/2 partitions=1"),
        Some("kafka-harbor/1 partitions=-1"),
        Some("kafka-harbor/1 partitions=99999999999999999999"),
        Some("kafka-harbor/1"),
        Some("partitions=1"),
        Some("{\"partitions\":1}"),
        Some("\u{e1}\u{0}"),
        None,
    ] {
        assert_eq!(beside(known).await, ["orders-1 new"], "{known:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_members_of_a_new_group_begin_at_the_end() {
    let (port, seen) = (Port::new(), Seen::default());
    port.broker.add_partitions("orders", 4).unwrap();
    for partition in 0..4 {
        port.send(to(partition, "history")).await;
    }
    let other = Port::on(port.broker.clone());
    let (first, second) = (consumer(&port, &seen), consumer(&other, &seen));
    tokio::try_join!(first.start(), second.start()).unwrap();
    settle().await;
    for partition in 0..4 {
        port.send(to(partition, "new")).await;
    }
    port.drained(&["orders"]).await;
    let mut calls = seen.all();
    calls.sort();
    assert_eq!(calls, ["orders-0 new", "orders-1 new", "orders-2 new", "orders-3 new"]);
}

/// Absent and failed are different things: a group whose commits cannot be read is not a new one.
#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_be_decided_is_decided_later_and_nothing_is_committed_before() {
    let (port, seen) = (Port::new(), Seen::default());
    run_once(&port, &seen).await;
    port.broker.add_partitions("orders", 2).unwrap();
    port.send(to(1, "tea")).await;
    let refused = Effect::refuse(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    port.broker.fault(Fault::new(Operation::Committed, refused).for_group(GROUP).times(3));
    let second = consumer(&port, &seen);
    second.start().await.unwrap();
    settle().await;
    assert_eq!(port.broker.committed(GROUP, "orders", 1), None);
    until("the delivery", || seen.len() == 1).await;
    port.drained(&["orders"]).await;
    assert_eq!(seen.all(), ["orders-1 tea"]);
    assert!(!port.told.of(&["error"]).is_empty(), "told meanwhile");
    // One that goes while it is undecided is let go at once.
    port.broker.add_partitions("orders", 3).unwrap();
    port.broker.fault(Fault::new(Operation::Committed, Effect::Hang).for_group(GROUP));
    port.broker.lose(GROUP, "orders", 2);
    port.broker.revoke(GROUP, "orders", 2);
    settle().await;
    within("stopping", second.stop(SECOND)).await.unwrap();
}

/// An adapter whose commits cannot be read without a panic, so many times.
#[derive(Debug)]
struct PanicsReading(MemoryAdapter, AtomicU32);

impl Adapter for PanicsReading {
    pass_on!(0: name capabilities connect close publisher create_topics describe_topics watermarks);

    fn join(&self, options: JoinOptions) -> BoxFuture<'_, Result<Membership, AdapterError>> {
        self.0.join(options)
    }

    fn committed<'a>(&'a self, group: &'a str, topics: &'a [Topic]) -> Answer<'a, Vec<CommittedOffset>> {
        let left = self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "a fault of its own");
        self.0.committed(group, topics)
    }
}

/// It ended the consumer; an adapter that panics has failed like one that says so.
#[tokio::test(start_paused = true)]
async fn an_adapter_that_panics_while_the_start_is_decided_is_asked_again() {
    let (port, seen) = (Port::new(), Seen::default());
    run_once(&port, &seen).await;
    port.broker.add_partitions("orders", 2).unwrap();
    port.send(to(1, "tea")).await;
    let adapter = PanicsReading(MemoryAdapter::new(&port.broker), AtomicU32::new(2));
    let harbor =
        Harbor::builder("orders-service", adapter).serializer(Text).observer(port.told.clone()).build().unwrap();
    let second = Port { broker: port.broker.clone(), harbor, told: port.told.clone() };
    consumer(&second, &seen).start().await.unwrap();
    until("the delivery", || seen.len() == 1).await;
    port.drained(&["orders"]).await;
    assert_eq!(seen.all(), ["orders-1 tea"]);
    assert_eq!(port.told.of(&["error"]).len(), 2, "each is told");
}

/// A topic that does not exist when its reader joins has no end to begin at.
#[tokio::test(start_paused = true)]
async fn the_record_that_creates_a_topic_is_read() {
    let (port, seen) = (Port::on(MemoryBroker::new()), Seen::default());
    consumer(&port, &seen).start().await.unwrap();
    settle().await;
    port.send(Record::new("orders", "tea")).await;
    port.drained(&["orders"]).await;
    assert_eq!(seen.all(), ["orders-0 tea"]);
}

/// Retries without a group that were there before a new group are another's. That was known until the first commit, and
/// forgotten by a restart after it: then they were handled.
#[tokio::test(start_paused = true)]
async fn what_was_on_the_ladder_before_a_group_is_not_its_own_after_a_restart_either() {
    let (port, seen) = (Port::new(), Seen::default());
    let ladder = |port: &Port| {
        let seen = seen.clone();
        let handler = move |order: String, context: Context| {
            seen.note(&order, &context);
            std::future::ready(Ok::<_, Failure>(()))
        };
        port.harbor
            .consumer(GROUP)
            .auto_create_topics(true)
            .retry_levels(["1h"])
            .subscribe("orders", handler)
            .build()
            .unwrap()
    };
    port.broker.create_topic("orders-retry-1", 1).unwrap();
    // It waits, and what is behind it with it.
    port.send(Record::new("orders-retry-1", "ours").with_header("x-retry-group", GROUP)).await;
    port.publish("orders-retry-1", &["another's"]).await;
    let first = ladder(&port);
    first.start().await.unwrap();
    settle().await;
    assert_eq!(port.committed("orders-retry-1"), Some(0), "the first commit");
    first.stop(SECOND).await.unwrap();
    port.publish("orders-retry-1", &["anybody's"]).await;

    let again = Port::on(port.broker.clone());
    ladder(&again).start().await.unwrap();
    again.drained(&["orders-retry-1"]).await;
    assert_eq!(seen.all(), ["orders-retry-1/0 ours #2", "orders-retry-1/2 anybody's #2"]);
    assert_eq!(again.told.of(&["skipped"]), ["skipped orders-retry-1/1 of nobody"]);
}
