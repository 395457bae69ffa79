//! The in-process broker through its public face: what the adapter contract does not ask, and failures on order.

#![cfg(feature = "testing")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_harbor::adapter::memory::{Call, MemoryAdapter, MemoryBroker, MemorySettings};
use kafka_harbor::adapter::{
    Acknowledged, Adapter, AdapterErrorKind, Assigned, Assignment, Event, JoinOptions, Membership, PartitionBatch,
    Position, PublishError, Publisher, PublisherOptions, Release, ResumeFrom, Start, TopicSubscription,
};
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::memory::{Effect, Fault, Operation};
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{NewTopic, Offset, Record, Timestamp, Topic};
use kafka_harbor::retry::{ExponentialFullJitter, RetryPolicy};
use tokio::time::{Instant, timeout};

const GROUP: &str = "billing";
const TIMEOUT: Duration = Duration::from_secs(10);

fn publisher(broker: &MemoryBroker) -> Arc<dyn Publisher> {
    MemoryAdapter::new(broker).publisher(PublisherOptions::default()).expect("open")
}

async fn publish(broker: &MemoryBroker, topic: &str, values: &[&str]) {
    let records = values.iter().map(|value| Record::new(topic, value.to_string())).collect();
    publisher(broker).publish(records).await.expect("acknowledged");
}

fn options(topics: &[&str], start: Start) -> JoinOptions {
    let topics = topics.iter().map(|topic| TopicSubscription { topic: Topic::from(*topic), start });
    JoinOptions::new(GROUP, topics.collect())
}

async fn join(broker: &MemoryBroker, topics: &[&str]) -> Membership {
    MemoryAdapter::new(broker).join(options(topics, Start::Earliest)).await.expect("joined")
}

async fn next(membership: &mut Membership) -> Event {
    let event = timeout(Duration::from_secs(3600), membership.events.next()).await;
    event.expect("an event within the hour").expect("the membership goes on")
}

async fn assigned(membership: &mut Membership) -> Vec<Assignment> {
    match next(membership).await {
        Event::Assigned(assignments) => assignments,
        other => panic!("expected an assignment, got {other:?}"),
    }
}

async fn batch(membership: &mut Membership) -> PartitionBatch {
    match next(membership).await {
        Event::Batch(batch) => batch,
        other => panic!("expected a batch, got {other:?}"),
    }
}

async fn revoked(membership: &mut Membership) -> (Vec<Assigned>, Release) {
    match next(membership).await {
        Event::Revoked(going, release) => (going, release),
        other => panic!("expected a revocation, got {other:?}"),
    }
}

async fn lost(membership: &mut Membership) -> Vec<Assigned> {
    match next(membership).await {
        Event::Lost(gone) => gone,
        other => panic!("expected a loss, got {other:?}"),
    }
}

/// Asserts that nothing comes for a while.
async fn silent(membership: &mut Membership) {
    let event = timeout(Duration::from_secs(1), membership.events.next()).await;
    assert!(event.is_err(), "expected nothing, got {event:?}");
}

fn texts(batch: &PartitionBatch) -> Vec<String> {
    let value = |value: Option<&[u8]>| String::from_utf8(value.expect("a value").to_vec()).expect("text");
    batch.records.iter().map(|record| value(record.expect("whole").value)).collect()
}

fn values(broker: &MemoryBroker, topic: &str) -> Vec<String> {
    let value = |value: Option<bytes::Bytes>| String::from_utf8(value.expect("a value").to_vec()).expect("text");
    broker.records(topic).into_iter().map(|record| value(record.value)).collect()
}

fn position(assigned: &Assigned, offset: i64) -> Position {
    Position { assigned: assigned.clone(), offset: Offset(offset), note: None }
}

/// A paused runtime's clock reads.
async fn lasts<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let begin = Instant::now();
    (future.await, begin.elapsed())
}

// Publishing.

#[tokio::test(start_paused = true)]
async fn a_key_decides_the_partition_as_in_java_and_the_others_take_turns() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 12).expect("created");
    let publisher = publisher(&broker);
    let keyed = ["", "0", "key", "ol\u{e1}"].map(|key| Record::new("orders", "v").with_key(key));
    let partitions = |acknowledged: Vec<Acknowledged>| -> Vec<i32> {
        acknowledged.into_iter().map(|a| a.partition.partition).collect()
    };
    assert_eq!(partitions(publisher.publish(keyed.into()).await.expect("acknowledged")), [9, 8, 1, 11]);

    let unkeyed = || vec![Record::new("orders", "v"); 7];
    assert_eq!(partitions(publisher.publish(unkeyed()).await.expect("acknowledged")), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(partitions(publisher.publish(unkeyed()).await.expect("acknowledged")), [7, 8, 9, 10, 11, 0, 1]);
    let chosen = vec![Record::new("orders", "v").with_key("key").with_partition(5)];
    assert_eq!(partitions(publisher.publish(chosen).await.expect("acknowledged")), [5]);
}

#[tokio::test(start_paused = true)]
async fn topics_come_into_being_by_being_published_to() {
    let broker = MemoryBroker::with_settings(MemorySettings::default().with_default_partitions(3));
    publish(&broker, "orders", &["a", "b", "c", "d"]).await;
    assert_eq!(values(&broker, "orders"), ["a", "d", "b", "c"], "as they were appended: partition by partition");
    assert_eq!(broker.topics(), ["orders"].map(Topic::from));
    assert_eq!(broker.add_partitions("orders", 4), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn where_topics_are_not_created_a_missing_one_is_waited_for_as_long_as_there_are_tries() {
    let broker = MemoryBroker::with_settings(MemorySettings::default().with_auto_create_topics(false));
    let publisher = publisher(&broker);
    let record = || vec![Record::new("orders", "v")];
    let error = publisher.publish(record()).await.expect_err("no such topic");
    let failure = error.outcomes[0].as_ref().expect_err("refused");
    assert_eq!((failure.code, failure.outcome), (Some(3), WriteOutcome::NotWritten));
    assert_eq!((error.attempts, error.is_retryable()), (5, true));
    let nowhere = Record::new("orders", "v").with_partition(1);

    let waiting = tokio::spawn({
        let publisher = publisher.clone();
        async move { publisher.publish(vec![Record::new("orders", "v"), nowhere]).await }
    });
    tokio::task::yield_now().await;
    broker.create_topic("orders", 1).expect("created");
    let error = waiting.await.expect("no panic").expect_err("there is no partition 1");
    assert!(error.outcomes[0].is_ok());
    assert_eq!(error.outcomes[1].as_ref().expect_err("refused").code, Some(3));
    assert_eq!(values(&broker, "orders"), ["v"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_may_pass_is_tried_again_and_order_holds() {
    let broker = MemoryBroker::new();
    let publisher = publisher(&broker);
    broker.fault(
        Fault::new(Operation::Publish, Effect::refuse(ErrorCode::NOT_ENOUGH_REPLICAS)).on_topic("orders").times(2),
    );
    let record = |value: &'static str| vec![Record::new("orders", value), Record::new("other", value)];
    let (first, second) = tokio::join!(publisher.publish(record("1")), publisher.publish(record("2")));
    first.expect("acknowledged");
    second.expect("acknowledged");
    assert_eq!(values(&broker, "orders"), ["1", "2"], "the second waits behind the first");
    assert_eq!(values(&broker, "other"), ["1", "2"]);
    let tries = broker.calls().into_iter().filter(|call| matches!(call, Call::Publish { .. })).count();
    assert_eq!(tries, 4);
    assert_eq!(broker.faults_pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_good_is_not_tried_again_and_spares_the_others() {
    let broker = MemoryBroker::new();
    let publisher = publisher(&broker);
    broker.fail_next_produce("orders", ErrorCode::TOPIC_AUTHORIZATION_FAILED, false);
    let error =
        publisher.publish(vec![Record::new("orders", "1"), Record::new("other", "1")]).await.expect_err("refused");
    assert_eq!((error.attempts, error.is_retryable()), (1, false));
    assert_eq!(error.outcomes[0].as_ref().expect_err("refused").code, Some(29));
    assert!(error.outcomes[1].is_ok());
    publish(&broker, "orders", &["2"]).await;
    publisher.publish(vec![Record::new("orders", "3")]).await.expect("the number given back is used again");
    assert_eq!(values(&broker, "orders"), ["2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn when_the_tries_run_out_nothing_was_written_and_the_next_publish_succeeds() {
    let broker = MemoryBroker::new();
    let publisher = publisher(&broker);
    broker.fault(Fault::new(Operation::Publish, Effect::refuse(ErrorCode::NOT_ENOUGH_REPLICAS)).times(5));
    let (result, waited) = lasts(publisher.publish(vec![Record::new("orders", "1"); 3])).await;
    let error = result.expect_err("refused five times");
    assert_eq!((error.attempts, error.is_retryable()), (5, true));
    assert!(error.outcomes.iter().all(|o| o.as_ref().is_err_and(|f| f.outcome == WriteOutcome::NotWritten)));
    assert!(waited <= Duration::from_millis(1504), "waits of at most 100, 200, 400 and 800 ms, took {waited:?}");
    publisher.publish(vec![Record::new("orders", "2")]).await.expect("acknowledged");
    assert_eq!(values(&broker, "orders"), ["2"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_answers_are_all_lost_is_written_once_and_reported_as_possibly_written() {
    let broker = MemoryBroker::new();
    let publisher = publisher(&broker);
    broker.fault(Fault::new(Operation::Publish, Effect::LoseAnswer).on_topic("orders").times(5));
    let error = publisher.publish(vec![Record::new("orders", "1")]).await.expect_err("no answer ever came");
    let failure = error.outcomes[0].as_ref().expect_err("unknown");
    assert_eq!((failure.outcome, failure.retryable), (WriteOutcome::PossiblyWritten, true));
    for value in ["2", "3"] {
        publisher.publish(vec![Record::new("orders", value)]).await.expect("with numbers of its own");
    }
    assert_eq!(values(&broker, "orders"), ["1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_lost_answer_does_not_say_that_nothing_was_written() {
    let broker = MemoryBroker::new();
    let publisher = publisher(&broker);
    broker.lose_next_acknowledgement("orders");
    broker.fail_next_produce("orders", ErrorCode::TOPIC_AUTHORIZATION_FAILED, false);
    let error = publisher.publish(vec![Record::new("orders", "1")]).await.expect_err("refused the second time");
    assert_eq!(error.outcomes[0].as_ref().expect_err("refused").outcome, WriteOutcome::PossiblyWritten);
    publisher.publish(vec![Record::new("orders", "2")]).await.expect("acknowledged");
    assert_eq!(values(&broker, "orders"), ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_handed_over_is_sent_though_the_caller_is_gone() {
    let broker = MemoryBroker::new();
    let publisher = publisher(&broker);
    broker.slow_next_produce("orders", Duration::from_secs(60));
    let gone = timeout(Duration::from_secs(1), publisher.publish(vec![Record::new("orders", "1")])).await;
    assert!(gone.is_err());
    assert_eq!(values(&broker, "orders"), Vec::<String>::new());
    let (flushed, waited) = lasts(publisher.flush()).await;
    flushed.expect("still open");
    assert_eq!(waited.as_secs(), 59);
    assert_eq!(values(&broker, "orders"), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn a_publish_is_cut_into_batches_that_the_topic_takes() {
    let broker = MemoryBroker::new();
    broker.create_topic_with("orders", 1, [("max.message.bytes", "1000")]).expect("created");
    let publisher = publisher(&broker);
    let mut records: Vec<_> = (0..50).map(|n| Record::new("orders", format!("{n:0100}"))).collect();
    records[20].value = Some(vec![b'x'; 2000].into());
    let error: PublishError = publisher.publish(records).await.expect_err("one is too large by itself");
    for (index, outcome) in error.outcomes.iter().enumerate() {
        assert_eq!(outcome.is_err(), index == 20, "{index}: {outcome:?}");
    }
    assert_eq!(error.outcomes[20].as_ref().expect_err("refused").code, Some(10));
    assert_eq!(broker.records("orders").len(), 49);
}

#[tokio::test(start_paused = true)]
async fn records_of_a_compacted_topic_need_a_key() {
    let broker = MemoryBroker::new();
    broker.create_topic_with("state", 1, [("cleanup.policy", "compact")]).expect("created");
    let error = publisher(&broker).publish(vec![Record::new("state", "v")]).await.expect_err("no key");
    assert_eq!((error.is_retryable(), error.outcomes[0].as_ref().expect_err("refused").code), (false, Some(87)));
}

#[tokio::test(start_paused = true)]
async fn timestamps_move_with_tokios_time_and_follow_the_topics_setting() {
    let broker = MemoryBroker::new();
    broker.create_topic_with("stamped", 1, [("message.timestamp.type", "LogAppendTime")]).expect("created");
    let publisher = publisher(&broker);
    for _ in 0..2 {
        let old = |topic: &str| Record::new(topic, "v").with_timestamp(Timestamp(5));
        publisher.publish(vec![Record::new("orders", "v"), old("orders"), old("stamped")]).await.expect("written");
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let times = |topic| broker.records(topic).iter().map(|record| record.timestamp.0).collect::<Vec<_>>();
    let orders = times("orders");
    assert_eq!((orders[1], orders[3]), (5, 5));
    assert_eq!(orders[2] - orders[0], 3_600_000);
    assert_eq!(times("stamped"), [orders[0], orders[2]]);
}

// Reading.

#[tokio::test(start_paused = true)]
async fn partitions_take_turns() {
    let broker = MemoryBroker::with_settings(MemorySettings::default().with_batch_limits(2, 1 << 20));
    broker.create_topic("orders", 3).expect("created");
    for _ in 0..4 {
        publish(&broker, "orders", &["v"; 3]).await;
    }
    let mut membership = join(&broker, &["orders"]).await;
    assigned(&mut membership).await;
    let mut turns = Vec::new();
    for _ in 0..6 {
        let batch = batch(&mut membership).await;
        assert_eq!(batch.records.iter().count(), 2);
        turns.push(batch.assigned.partition.partition);
    }
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_bounded_in_bytes() {
    let broker = MemoryBroker::with_settings(MemorySettings::default().with_buffer_bytes(300).with_batch_limits(1, 1));
    for _ in 0..4 {
        publish(&broker, "orders", &[&"x".repeat(200)]).await;
    }
    let mut membership = join(&broker, &["orders"]).await;
    assigned(&mut membership).await;
    let first = batch(&mut membership).await;
    let _second = batch(&mut membership).await;
    silent(&mut membership).await;
    // What happens to the assignment is told all the same.
    broker.revoke(GROUP, "orders", 0);
    let (_, release) = revoked(&mut membership).await;
    release.send();
    let assignment = assigned(&mut membership).await;
    assert_eq!(assignment[0].position, Offset(0));
    silent(&mut membership).await;

    drop(first);
    batch(&mut membership).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_let_go_wakes_who_waits_for_room() {
    let broker = MemoryBroker::with_settings(MemorySettings::default().with_buffer_bytes(1).with_batch_limits(1, 1));
    publish(&broker, "orders", &["1"]).await;
    publish(&broker, "orders", &["2"]).await;
    let mut membership = join(&broker, &["orders"]).await;
    assigned(&mut membership).await;
    let first = batch(&mut membership).await;
    let waiting = tokio::spawn(async move { texts(&batch(&mut membership).await) });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    drop(first);
    assert_eq!(waiting.await.expect("no panic"), ["2"]);
}

#[tokio::test(start_paused = true)]
async fn topics_and_partitions_that_come_later_are_read() {
    let broker = MemoryBroker::new();
    let mut membership = join(&broker, &["orders", "payments"]).await;
    silent(&mut membership).await;
    publish(&broker, "orders", &["1"]).await;
    assert_eq!(assigned(&mut membership).await[0].assigned.partition.topic, "orders");
    assert_eq!(texts(&batch(&mut membership).await), ["1"]);
    broker.add_partitions("orders", 2).expect("added");
    assert_eq!(assigned(&mut membership).await[0].assigned.partition.partition, 1);
    let adapter = MemoryAdapter::new(&broker);
    adapter.create_topics(&[NewTopic::new("payments").with_partitions(2)]).await.expect("created");
    assert_eq!(assigned(&mut membership).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_position_that_was_deleted_is_reset_aloud() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["0", "1", "2", "3"]).await;
    let mut membership = join(&broker, &["orders"]).await;
    let assignment = assigned(&mut membership).await;
    broker.delete_records("orders", 0, Offset(3)).expect("deleted");
    assert!(matches!(next(&mut membership).await, Event::Fault(error) if error.what.contains("orders-0")));
    assert_eq!(texts(&batch(&mut membership).await), ["3"]);
    membership.handle.resume(&assignment[0].assigned, ResumeFrom::Offset(Offset(9)));
    assert!(matches!(next(&mut membership).await, Event::Fault(_)), "beyond the end is out of range too");
    assert_eq!(texts(&batch(&mut membership).await), ["3"]);
    assert_eq!(values(&broker, "orders"), ["3"]);
}

#[tokio::test(start_paused = true)]
async fn a_committed_offset_out_of_range_gives_way_to_the_start() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["0", "1", "2"]).await;
    let mut membership = join(&broker, &["orders"]).await;
    let assignment = assigned(&mut membership).await;
    membership.handle.settle(vec![position(&assignment[0].assigned, 1)]).await.expect("settled");
    drop(membership);
    broker.delete_records("orders", 0, Offset(2)).expect("deleted");
    let mut membership = join(&broker, &["orders"]).await;
    let assignment = assigned(&mut membership).await;
    assert_eq!((assignment[0].committed, assignment[0].position), (Some(Offset(1)), Offset(2)));
}

#[tokio::test(start_paused = true)]
async fn retention_deletes_what_is_too_old() {
    let broker = MemoryBroker::new();
    broker.create_topic_with("orders", 1, [("retention.ms", "60000")]).expect("created");
    publish(&broker, "orders", &["old"]).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    publish(&broker, "orders", &["new"]).await;
    assert_eq!(values(&broker, "orders"), ["new"]);
    let mut membership = join(&broker, &["orders"]).await;
    assert_eq!(assigned(&mut membership).await[0].position, Offset(1));
}

// Assignments.

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_dropped_releases_too() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 2).expect("created");
    let mut first = join(&broker, &["orders"]).await;
    assert_eq!(assigned(&mut first).await.len(), 2);
    let mut second = join(&broker, &["orders"]).await;
    let (going, release) = revoked(&mut first).await;
    silent(&mut second).await;
    drop(release);
    assert_eq!(assigned(&mut second).await[0].assigned.partition, going[0].partition);
}

#[tokio::test(start_paused = true)]
async fn a_revocation_that_is_not_answered_in_time_becomes_a_loss() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 2).expect("created");
    let mut options = options(&["orders"], Start::Earliest);
    options.revocation_timeout = Duration::from_secs(40);
    let mut first = MemoryAdapter::new(&broker).join(options).await.expect("joined");
    assigned(&mut first).await;
    let mut second = join(&broker, &["orders"]).await;
    let (going, release) = revoked(&mut first).await;
    let (assignments, waited) = lasts(assigned(&mut second)).await;
    assert_eq!((assignments.len(), waited.as_secs()), (1, 40));
    assert_eq!(lost(&mut first).await, going);
    let error = first.handle.settle(vec![position(&going[0], 1)]).await.expect_err("it is another's");
    assert!(error.failures[0].lost);
    release.send();
    silent(&mut second).await;
}

#[tokio::test(start_paused = true)]
async fn a_revoked_partition_hands_over_nothing_more_and_comes_back_at_its_settled_position() {
    let broker = MemoryBroker::with_settings(MemorySettings::default().with_batch_limits(1, 1));
    for value in ["0", "1", "2"] {
        publish(&broker, "orders", &[value]).await;
    }
    let mut membership = join(&broker, &["orders"]).await;
    let old = assigned(&mut membership).await.remove(0).assigned;
    let held = batch(&mut membership).await;
    broker.revoke(GROUP, "orders", 0);
    let (going, release) = revoked(&mut membership).await;
    assert_eq!(going, std::slice::from_ref(&old));
    silent(&mut membership).await;
    membership.handle.pause(&old);
    membership.handle.settle(vec![position(&held.assigned, 1)]).await.expect("until its release");
    release.send();

    let new = assigned(&mut membership).await.remove(0);
    assert_eq!((new.committed, new.position), (Some(Offset(1)), Offset(1)));
    assert!(new.assigned.epoch > old.epoch);
    assert_eq!(broker.paused(GROUP), [], "the pause ended with its assignment");
    for stale in [position(&old, 2), position(&held.assigned, 3)] {
        let error = membership.handle.settle(vec![stale]).await.expect_err("its assignment is over");
        assert!(error.failures[0].lost);
    }
    assert_eq!(texts(&batch(&mut membership).await), ["1"]);
    assert_eq!(broker.committed(GROUP, "orders", 0), Some(Offset(1)));
}

#[tokio::test(start_paused = true)]
async fn a_lost_partition_is_gone_at_once() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["0"]).await;
    let mut membership = join(&broker, &["orders"]).await;
    let old = assigned(&mut membership).await.remove(0).assigned;
    let held = batch(&mut membership).await;
    broker.lose(GROUP, "orders", 0);
    let error = membership.handle.settle(vec![position(&held.assigned, 1)]).await.expect_err("lost");
    assert!(error.failures[0].lost, "before the event is even taken");
    assert_eq!(lost(&mut membership).await, [old]);
    assert_eq!(assigned(&mut membership).await[0].committed, None);
    assert_eq!(texts(&batch(&mut membership).await), ["0"], "nothing was settled, so it comes again");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_gives_all_to_the_others() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 4).expect("created");
    let mut first = join(&broker, &["orders"]).await;
    assigned(&mut first).await;
    let mut second = join(&broker, &["orders"]).await;
    let (_, release) = revoked(&mut first).await;
    release.send();
    assigned(&mut second).await;

    let members = broker.members(GROUP);
    broker.expire_session(GROUP, members[0]);
    assert_eq!(lost(&mut first).await.len(), 2);
    assert_eq!(assigned(&mut second).await.len(), 2);
    let (going, release) = revoked(&mut second).await;
    release.send();
    assert_eq!(assigned(&mut first).await.len(), going.len());
    let shares = members.iter().map(|member| broker.assignment(GROUP, *member).len()).collect::<Vec<_>>();
    assert_eq!(shares, [2, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_is_lost_to_its_readers() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["0"]).await;
    let mut membership = join(&broker, &["orders"]).await;
    let old = assigned(&mut membership).await.remove(0).assigned;
    broker.delete_topic("orders").expect("deleted");
    assert_eq!(lost(&mut membership).await, std::slice::from_ref(&old));
    let error = membership.handle.settle(vec![position(&old, 1)]).await.expect_err("gone");
    assert!(error.failures[0].lost);
    publish(&broker, "orders", &["new"]).await;
    assert_eq!(assigned(&mut membership).await[0].position, Offset(0));
    assert_eq!(texts(&batch(&mut membership).await), ["new"]);
}

#[tokio::test(start_paused = true)]
async fn leaving_is_idempotent_and_drops_what_was_not_told() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["0"]).await;
    let mut membership = join(&broker, &["orders"]).await;
    let held = assigned(&mut membership).await.remove(0).assigned;
    membership.handle.leave(TIMEOUT).await.expect("left");
    membership.handle.leave(TIMEOUT).await.expect("left already");
    assert!(membership.events.next().await.is_none());
    assert!(broker.members(GROUP).is_empty());
    let error = membership.handle.settle(vec![position(&held, 1)]).await.expect_err("no member any more");
    assert!(error.failures[0].lost);
    membership.handle.pause(&held);
    membership.handle.resume(&held, ResumeFrom::Here);
}

#[tokio::test(start_paused = true)]
async fn leaving_is_bounded_in_time_and_frees_the_partitions() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 1).expect("created");
    let mut first = join(&broker, &["orders"]).await;
    assigned(&mut first).await;
    broker.fault(Fault::new(Operation::Leave, Effect::Hang));
    let (left, waited) = lasts(first.handle.leave(TIMEOUT)).await;
    assert!(left.expect_err("no answer").retryable);
    assert_eq!(waited, TIMEOUT);
    let mut second = join(&broker, &["orders"]).await;
    assert_eq!(assigned(&mut second).await.len(), 1);
}

// Settling.

#[tokio::test(start_paused = true)]
async fn ordered_failures_of_commits_settle_nothing() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["0", "1"]).await;
    let mut membership = join(&broker, &["orders"]).await;
    let held = assigned(&mut membership).await.remove(0).assigned;
    broker.fail_commits(GROUP, 2, ErrorCode::COORDINATOR_NOT_AVAILABLE, true);
    for _ in 0..2 {
        let error = membership.handle.settle(vec![position(&held, 1)]).await.expect_err("refused");
        let failure = &error.failures[0];
        assert!(failure.error.retryable && !failure.lost, "{error}");
        assert!(error.to_string().contains("COORDINATOR_NOT_AVAILABLE"), "{error}");
    }
    assert_eq!(broker.committed(GROUP, "orders", 0), None);
    membership.handle.settle(vec![position(&held, 2)]).await.expect("settled");
    assert_eq!(broker.committed(GROUP, "orders", 0), Some(Offset(2)));
}

#[tokio::test(start_paused = true)]
async fn a_commit_may_fail_on_one_topic_or_lose_its_answer() {
    let broker = MemoryBroker::new();
    for topic in ["orders", "payments"] {
        broker.create_topic(topic, 1).expect("created");
    }
    let mut membership = join(&broker, &["orders", "payments"]).await;
    let held = assigned(&mut membership).await;
    let held: BTreeMap<_, _> = held.into_iter().map(|a| (a.assigned.partition.topic.to_string(), a.assigned)).collect();
    let both = |offset| vec![position(&held["orders"], offset), position(&held["payments"], offset)];
    let committed = || ["orders", "payments"].map(|topic| broker.committed(GROUP, topic, 0).map(|offset| offset.0));

    broker.fault(Fault::new(Operation::Settle, Effect::refuse(ErrorCode::NOT_COORDINATOR)).on_topic("payments"));
    let error = membership.handle.settle(both(1)).await.expect_err("in part");
    assert_eq!(error.failures.len(), 1);
    assert_eq!(error.failures[0].position, position(&held["payments"], 1));
    assert_eq!(committed(), [Some(1), None]);

    broker.fault(Fault::new(Operation::Settle, Effect::LoseAnswer));
    let error = membership.handle.settle(both(2)).await.expect_err("nobody knows");
    assert_eq!(error.failures.len(), 2);
    assert!(error.failures.iter().all(|failure| failure.error.kind == AdapterErrorKind::Unavailable));
    assert_eq!(committed(), [Some(2), Some(2)]);
}

#[tokio::test(start_paused = true)]
async fn one_commit_is_under_way_at_a_time() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 1).expect("created");
    let mut membership = join(&broker, &["orders"]).await;
    let held = assigned(&mut membership).await.remove(0).assigned;
    broker.fault(Fault::new(Operation::Settle, Effect::Delay(Duration::from_secs(5))));
    let slow = membership.handle.settle(vec![position(&held, 1)]);
    let quick = membership.handle.settle(vec![position(&held, 2)]);
    let ((slow, quick), waited) = lasts(async { tokio::join!(slow, quick) }).await;
    slow.and(quick).expect("both settled");
    assert_eq!(waited.as_secs(), 5);
    assert_eq!(broker.committed(GROUP, "orders", 0), Some(Offset(2)), "the later one is not overtaken");
}

// Waiting until all is done.

#[tokio::test(start_paused = true)]
async fn drained_means_settled_to_the_end_and_nothing_paused() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["0", "1"]).await;
    broker.create_topic("orders.retry", 1).expect("created");
    let topics = ["orders", "orders.retry"];
    let drained = tokio::spawn({
        let broker = broker.clone();
        async move { broker.when_drained(GROUP, &["orders", "orders.retry"]).await }
    });
    let mut membership = join(&broker, &topics).await;
    let held = assigned(&mut membership).await;
    let [orders, retry] = held.as_slice() else { panic!("{held:?}") };
    batch(&mut membership).await;
    let is_drained = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drained.is_finished()
    };
    membership.handle.settle(vec![position(&orders.assigned, 1)]).await.expect("settled");
    assert!(!is_drained().await);
    publish(&broker, "orders.retry", &["0"]).await;
    membership.handle.settle(vec![position(&orders.assigned, 2)]).await.expect("settled");
    assert!(!is_drained().await);
    membership.handle.pause(&retry.assigned);
    membership.handle.settle(vec![position(&retry.assigned, 1)]).await.expect("settled");
    assert!(!is_drained().await);
    assert_eq!(broker.paused(GROUP), std::slice::from_ref(&retry.assigned.partition));
    membership.handle.resume(&retry.assigned, ResumeFrom::Here);
    assert!(is_drained().await);
    drained.await.expect("no panic").expect("drained");
    assert!(
        timeout(TIMEOUT, broker.when_drained(GROUP, &["missing"])).await.is_err(),
        "a missing topic is not drained"
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_group_that_stopped_is_refused() {
    let broker = MemoryBroker::new();
    publish(&broker, "orders", &["0"]).await;
    let membership = join(&broker, &["orders"]).await;
    let stopped = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        drop(membership);
    };
    let (drained, ()) = tokio::join!(broker.when_drained(GROUP, &["orders"]), stopped);
    let error = drained.expect_err("it stopped");
    assert_eq!(error.to_string(), "group billing has no member left, and has not settled orders-0");
    broker.when_drained(GROUP, &["orders"]).await.expect_err("it had stopped already");
}

// Adapters.

#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_is_under_way_and_ends_only_its_own() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 2).expect("created");
    let (adapter, other) = (MemoryAdapter::new(&broker), MemoryAdapter::new(&broker));
    let publisher = adapter.publisher(PublisherOptions::default()).expect("open");
    let mut mine = adapter.join(options(&["orders"], Start::Earliest)).await.expect("joined");
    let mut others = other.join(options(&["orders"], Start::Earliest)).await.expect("joined");
    broker.slow_next_produce("orders", Duration::from_secs(3));
    let ((published, closed), waited) =
        lasts(async { tokio::join!(publisher.publish(vec![Record::new("orders", "0")]), adapter.close(TIMEOUT)) })
            .await;
    published.expect("it was under way");
    closed.expect("in time");
    assert_eq!(waited.as_secs(), 3);
    assert!(mine.events.next().await.is_none());
    assert_eq!(assigned(&mut others).await.len(), 2);
    assert_eq!(adapter.connect().await.expect_err("closed").kind, AdapterErrorKind::Closed);
    assert_eq!(publisher.flush().await.expect_err("closed").kind, AdapterErrorKind::Closed);
    other.connect().await.expect("open");
}

#[tokio::test(start_paused = true)]
async fn closing_is_bounded_in_time() {
    let broker = MemoryBroker::new();
    let adapter = MemoryAdapter::new(&broker);
    let publisher = adapter.publisher(PublisherOptions::default()).expect("open");
    broker.fault(Fault::new(Operation::Publish, Effect::Hang));
    let ((published, closed), waited) =
        lasts(async { tokio::join!(publisher.publish(vec![Record::new("orders", "0")]), adapter.close(TIMEOUT)) })
            .await;
    closed.expect_err("not in time");
    published.expect_err("given up with the adapter");
    assert_eq!(waited, TIMEOUT);
    assert_eq!(values(&broker, "orders"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn each_call_can_be_made_to_fail() {
    let broker = MemoryBroker::new();
    let adapter = MemoryAdapter::new(&broker);
    let code = ErrorCode::CLUSTER_AUTHORIZATION_FAILED;
    let topics = [Topic::from("orders")];
    for operation in [
        Operation::Connect,
        Operation::CreateTopics,
        Operation::DescribeTopics,
        Operation::Watermarks,
        Operation::Committed,
        Operation::Join,
    ] {
        broker.fault(Fault::new(operation, Effect::refuse(code)));
    }
    let errors = [
        adapter.connect().await.expect_err("ordered"),
        adapter.create_topics(&[NewTopic::new("orders")]).await.expect_err("ordered"),
        adapter.describe_topics(&topics).await.expect_err("ordered"),
        adapter.watermarks(&topics).await.expect_err("ordered"),
        adapter.committed(GROUP, &topics).await.expect_err("ordered"),
        adapter.join(options(&["orders"], Start::Latest)).await.expect_err("ordered"),
    ];
    for error in errors {
        assert!(!error.retryable && error.kind == AdapterErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("CLUSTER_AUTHORIZATION_FAILED"), "{error}");
    }
    assert!(broker.topics().is_empty());
    adapter.connect().await.expect("each was for one call");
    assert_eq!(broker.calls().len(), 7);
    broker.clear_calls();
    assert_eq!(broker.calls(), []);
}

#[tokio::test(start_paused = true)]
async fn a_join_that_fails_or_is_given_up_leaves_no_member() {
    let broker = MemoryBroker::new();
    let adapter = MemoryAdapter::new(&broker);
    broker.fault(Fault::new(Operation::Join, Effect::LoseAnswer));
    let error = adapter.join(options(&["orders"], Start::Latest)).await.expect_err("ordered");
    assert!(error.retryable);
    assert!(broker.members(GROUP).is_empty());
    broker.fault(Fault::new(Operation::Join, Effect::Hang));
    assert!(timeout(TIMEOUT, adapter.join(options(&["orders"], Start::Latest))).await.is_err());
    assert!(broker.members(GROUP).is_empty());
}

#[tokio::test(start_paused = true)]
async fn missing_topics_are_named() {
    let broker = MemoryBroker::new();
    let adapter = MemoryAdapter::new(&broker);
    let error = adapter.watermarks(&["orders".into()]).await.expect_err("missing");
    assert_eq!(error.kind, AdapterErrorKind::TopicMissing("orders".into()));
    let bad = NewTopic::new("orders").with_config("retention", "1");
    let error = adapter.create_topics(&[bad, NewTopic::new("payments")]).await.expect_err("no such setting");
    assert!(error.to_string().contains("creating topics orders: INVALID_CONFIG"), "{error}");
    assert_eq!(broker.topics(), ["payments"].map(Topic::from), "the others are created");
}

#[tokio::test(start_paused = true)]
async fn the_list_of_calls_is_bounded() {
    let mut settings = MemorySettings::default();
    settings.calls_kept = 2;
    let broker = MemoryBroker::with_settings(settings);
    for topic in ["a", "b", "c"] {
        publish(&broker, topic, &["v"]).await;
    }
    let told: Vec<_> = broker.calls();
    let expected = ["b", "c"].map(|topic| Call::Publish { topics: vec![topic.into()], records: 1 });
    assert_eq!(told, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_publishers_at_once_lose_and_repeat_nothing() {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 3).expect("created");
    for _ in 0..10 {
        broker.fault(Fault::new(Operation::Publish, Effect::LoseAnswer).times(2));
        broker.fault(Fault::new(Operation::Publish, Effect::refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER)));
    }
    let (first, max) = (Duration::from_millis(1), Duration::from_millis(2));
    let retry = RetryPolicy { attempts: 50, backoff: Arc::new(ExponentialFullJitter { first, max }) };
    let publisher = MemoryAdapter::new(&broker).publisher(PublisherOptions::with_retry(retry)).expect("open");
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..50 {
        let publisher = publisher.clone();
        tasks.spawn(async move {
            for n in 0..4 {
                let records = (0..3).map(|p| Record::new("orders", format!("{task}-{n}")).with_partition(p));
                publisher.publish(records.collect()).await.expect("acknowledged");
            }
        });
    }
    tasks.join_all().await;
    let mut by_partition: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for record in broker.records("orders") {
        let value = String::from_utf8(record.value.expect("a value").to_vec()).expect("text");
        by_partition.entry(record.partition.partition).or_default().push(value);
    }
    for (partition, values) in by_partition {
        assert_eq!(values.len(), 200, "partition {partition}");
        for task in 0..50 {
            let prefix = format!("{task}-");
            let mine: Vec<_> = values.iter().filter(|value| value.starts_with(&prefix)).cloned().collect();
            assert_eq!(mine, (0..4).map(|n| format!("{task}-{n}")).collect::<Vec<_>>(), "in order, each once");
        }
    }
}
