//! Members of groups against a real Kafka.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kafka_harbor::client::{
    Client, CommitPosition, Consumer, ConsumerError, ConsumerEvent, GroupKind, GroupProtocol, OffsetReset,
    PartitionBatch,
};
use kafka_harbor::record::{NewTopic, Offset, Record, RecordRef, Topic, TopicPartition};
use protocol_tests::{Cluster, kafka, kafka_with, unique};
use tokio::task::JoinHandle;

#[path = "live_consumer/assignors.rs"]
mod assignors;
#[path = "live_consumer/share.rs"]
mod share;

const SECOND: Duration = Duration::from_secs(1);

fn client(broker: &Cluster) -> Client {
    // The first address is wrong on purpose: the list is tried in turn.
    Client::builder([format!("127.0.0.1:1,{}", broker.bootstrap)]).build().unwrap()
}

async fn topic(client: &Client, partitions: i32) -> Topic {
    let topic = Topic::from(unique("consumer"));
    let created = client.admin().create_topics(&[NewTopic::new(&topic).with_partitions(partitions)]).await;
    created[0].1.as_ref().unwrap();
    topic
}

/// Numbers from `from` to `to` as values, the number's last digit as key.
async fn produce(client: &Client, topic: &Topic, from: usize, to: usize) {
    let producer = client.producer().build().unwrap();
    let texts: Vec<String> = (from..to).map(|number| number.to_string()).collect();
    let records = texts.iter().map(|text| RecordRef::new(text.as_bytes()).with_key(text.as_bytes()));
    producer.send_batch(topic, records).await.unwrap();
    producer.close(10 * SECOND).await.unwrap();
}

fn values(batch: &PartitionBatch) -> Vec<(i64, usize)> {
    let records = batch.batches.iter().flat_map(|batch| batch.records());
    records
        .map(|record| record.unwrap())
        .filter(|record| record.offset >= batch.from)
        .map(|record| (record.offset.0, std::str::from_utf8(record.value.unwrap()).unwrap().parse().unwrap()))
        .collect()
}

/// What all members of a test saw.
#[derive(Debug, Default)]
struct Seen {
    /// Each partition's values, by offset, as they were handed over.
    partitions: BTreeMap<TopicPartition, Vec<(i64, usize)>>,
    faults: Vec<String>,
    lost: usize,
    revoked: usize,
}

type Shared = Arc<Mutex<Seen>>;

impl Seen {
    fn numbers(&self) -> BTreeSet<usize> {
        self.partitions.values().flatten().map(|(_, number)| *number).collect()
    }

    fn count(&self) -> usize {
        self.partitions.values().map(Vec::len).sum()
    }
}

/// A member that handles and commits whatever comes, until it is aborted.
fn member(consumer: Consumer, seen: Shared) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut consumer = consumer;
        while let Some(event) = consumer.next().await {
            match event {
                ConsumerEvent::Batch(batch) => {
                    let position = CommitPosition::new(batch.assigned.clone(), batch.next_offset);
                    {
                        let mut seen = seen.lock().unwrap();
                        let partition = seen.partitions.entry(batch.assigned.partition.clone()).or_default();
                        partition.extend(values(&batch));
                    }
                    drop(batch);
                    // Lost is no failure here: another member does it again.
                    let _ = consumer.handle().commit(vec![position]).await;
                }
                ConsumerEvent::Revoked(_, release) => {
                    seen.lock().unwrap().revoked += 1;
                    release.send();
                }
                ConsumerEvent::Lost(_) => seen.lock().unwrap().lost += 1,
                ConsumerEvent::Fault(error) => seen.lock().unwrap().faults.push(error.to_string()),
                _ => {}
            }
        }
    })
}

async fn until(limit: Duration, what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn next(consumer: &mut Consumer) -> ConsumerEvent {
    tokio::time::timeout(20 * SECOND, consumer.next()).await.expect("an event").expect("not ended")
}

async fn next_batch(consumer: &mut Consumer) -> PartitionBatch {
    loop {
        match next(consumer).await {
            ConsumerEvent::Batch(batch) => return batch,
            ConsumerEvent::Fault(error) => panic!("{error}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn every_record_is_read_once_and_in_order_and_committed_with_its_note_and_epoch() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 3).await;
    produce(&client, &topic, 0, 20_000).await;
    let group = unique("group");
    let build = || client.consumer(&group).topic(&topic, OffsetReset::Earliest).build().unwrap();
    let mut consumer = build();
    consumer.joined(20 * SECOND).await.unwrap();
    let ConsumerEvent::Assigned(assigned) = next(&mut consumer).await else { panic!("not assigned first") };
    assert_eq!(assigned.len(), 3);
    assert!(assigned.iter().all(|a| a.committed.is_none() && a.position == Offset(0) && a.note.is_none()));
    let mut seen = Seen::default();
    let mut ends = BTreeMap::new();
    while seen.count() < 20_000 {
        let batch = next_batch(&mut consumer).await;
        seen.partitions.entry(batch.assigned.partition.clone()).or_default().extend(values(&batch));
        ends.insert(batch.assigned.partition.clone(), (batch.assigned.clone(), batch.next_offset));
    }
    assert_eq!(seen.numbers().len(), 20_000);
    for partition in seen.partitions.values() {
        assert!(partition.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0), "a gap or a repeat");
        assert!(partition.windows(2).all(|pair| pair[0].1 < pair[1].1), "out of order");
    }
    let positions = ends.values().map(|(assigned, offset)| CommitPosition {
        note: Some(format!("note of {assigned:?}")),
        ..CommitPosition::new(assigned.clone(), *offset)
    });
    consumer.handle().commit(positions.collect()).await.unwrap();
    let long =
        CommitPosition { note: Some("n".repeat(4097)), ..CommitPosition::new(assigned[0].assigned.clone(), Offset(1)) };
    let refused = consumer.handle().commit(vec![long]).await.unwrap_err();
    assert!(refused.to_string().contains("note of 4097 bytes"), "{refused}");
    consumer.close(10 * SECOND).await.unwrap();

    let mut consumer = build();
    let ConsumerEvent::Assigned(assigned) = next(&mut consumer).await else { panic!("not assigned first") };
    for assignment in assigned {
        let (_, offset) = &ends[&assignment.assigned.partition];
        assert_eq!((assignment.committed, assignment.position), (Some(*offset), *offset));
        assert!(assignment.note.unwrap().starts_with("note of "));
    }
    produce(&client, &topic, 20_000, 20_010).await;
    assert!(!values(&next_batch(&mut consumer).await).is_empty());
    consumer.close(10 * SECOND).await.unwrap();
}

#[tokio::test]
async fn two_members_share_one_goes_without_a_word_and_one_comes_and_nothing_is_missed() {
    two_share_one_goes_without_a_word_and_one_comes(GroupProtocol::Classic).await;
}

#[tokio::test]
async fn with_a_group_that_the_coordinator_assigns_nothing_is_missed_either() {
    two_share_one_goes_without_a_word_and_one_comes(GroupProtocol::Consumer).await;
}

async fn two_share_one_goes_without_a_word_and_one_comes(protocol: GroupProtocol) {
    const RECORDS: usize = 60_000;
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 6).await;
    let group = unique("group");
    let seen = Shared::default();
    let join = |cluster: &Client| {
        let builder = cluster.consumer(&group).topic(&topic, OffsetReset::Earliest);
        let builder = builder.group_protocol(protocol);
        builder.session_timeout(6 * SECOND).heartbeat_interval(SECOND).build().unwrap()
    };
    let first = member(join(&client), seen.clone());
    // A client of its own, closed at once below: the nearest to a process that dies.
    let doomed_client = Client::builder([&broker.bootstrap]).build().unwrap();
    let doomed = member(join(&doomed_client), seen.clone());
    produce(&client, &topic, 0, RECORDS / 2).await;
    until(30 * SECOND, "half", || seen.lock().unwrap().numbers().len() == RECORDS / 2).await;
    doomed.abort();
    let _ = doomed_client.close(Duration::ZERO).await;
    let third = member(join(&client), seen.clone());
    produce(&client, &topic, RECORDS / 2, RECORDS).await;
    until(60 * SECOND, "all", || seen.lock().unwrap().numbers().len() == RECORDS).await;
    let described = client.admin().describe_groups(std::slice::from_ref(&group)).await;
    let kind = &described[0].1.as_ref().unwrap().kind;
    assert_eq!(*kind == GroupKind::Consumer, protocol == GroupProtocol::Consumer, "{kind:?}");
    first.abort();
    third.abort();
    let seen = seen.lock().unwrap();
    in_order(&seen);
}

fn in_order(seen: &Seen) {
    for partition in seen.partitions.values() {
        // Order is kept: a partition steps back only to what was committed, never over what was not seen.
        let mut reached = 0;
        for (offset, _) in partition {
            assert!(*offset <= reached, "a gap before {offset}");
            reached = reached.max(offset + 1);
        }
    }
}

#[tokio::test]
async fn a_handler_of_three_session_timeouts_keeps_its_membership() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 1).await;
    produce(&client, &topic, 0, 10).await;
    let builder = client.consumer(unique("group")).topic(&topic, OffsetReset::Earliest);
    let mut consumer = builder.session_timeout(6 * SECOND).heartbeat_interval(SECOND).build().unwrap();
    let batch = next_batch(&mut consumer).await;
    tokio::time::sleep(18 * SECOND).await;
    let position = CommitPosition::new(batch.assigned.clone(), batch.next_offset);
    consumer.handle().commit(vec![position]).await.unwrap();
    produce(&client, &topic, 10, 11).await;
    let next = next_batch(&mut consumer).await;
    assert_eq!((next.assigned, next.from), (batch.assigned, batch.next_offset));
    consumer.close(10 * SECOND).await.unwrap();
}

#[tokio::test]
async fn a_revocation_is_waited_for_and_its_commit_seen_by_the_next_owner() {
    a_revocation_is_waited_for(GroupProtocol::Classic).await;
}

#[tokio::test]
async fn a_coordinator_that_assigns_waits_for_a_revocation_too() {
    a_revocation_is_waited_for(GroupProtocol::Consumer).await;
}

async fn a_revocation_is_waited_for(protocol: GroupProtocol) {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 2).await;
    produce(&client, &topic, 0, 100).await;
    let group = unique("group");
    let builder = || client.consumer(&group).topic(&topic, OffsetReset::Earliest).group_protocol(protocol);
    let join = || builder().build().unwrap();
    let mut first = join();
    let mut ends = BTreeMap::new();
    while ends.len() < 2 {
        let batch = next_batch(&mut first).await;
        ends.insert(batch.assigned.partition.clone(), batch.next_offset);
    }
    let mut second = join();
    let (revoked, release) = loop {
        if let ConsumerEvent::Revoked(revoked, release) = next(&mut first).await {
            break (revoked, release);
        }
    };
    assert_eq!(revoked.len(), 1);
    let too_early = async {
        loop {
            match next(&mut second).await {
                ConsumerEvent::Assigned(assigned) if assigned.is_empty() => {}
                other => break other,
            }
        }
    };
    let too_early = tokio::time::timeout(2 * SECOND, too_early).await;
    assert!(too_early.is_err(), "the other owner did not wait: {too_early:?}");
    let offset = ends[&revoked[0].partition];
    first.handle().commit(vec![CommitPosition::new(revoked[0].clone(), offset)]).await.unwrap();
    release.send();
    let assigned = loop {
        match next(&mut second).await {
            ConsumerEvent::Assigned(assigned) if !assigned.is_empty() => break assigned,
            ConsumerEvent::Assigned(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(assigned[0].assigned.partition, revoked[0].partition);
    assert_eq!(assigned[0].committed, Some(offset));
    let late = first.handle().commit(vec![CommitPosition::new(revoked[0].clone(), offset)]).await.unwrap_err();
    assert!(late.failures[0].is_lost());
    first.close(10 * SECOND).await.unwrap();
    second.close(10 * SECOND).await.unwrap();
}

#[tokio::test]
async fn pause_resume_and_seek_do_what_they_say() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 1).await;
    produce(&client, &topic, 0, 1000).await;
    let mut consumer = client.consumer(unique("group")).topic(&topic, OffsetReset::Earliest).build().unwrap();
    let batch = next_batch(&mut consumer).await;
    let handle = consumer.handle().clone();
    handle.pause(&batch.assigned);
    produce(&client, &topic, 1000, 1010).await;
    assert!(
        tokio::time::timeout(SECOND, next_batch(&mut consumer)).await.is_err(),
        "a paused partition was handed over"
    );
    handle.resume(&batch.assigned);
    assert_eq!(next_batch(&mut consumer).await.from, batch.next_offset);
    handle.seek(&batch.assigned, Offset(500));
    let again = next_batch(&mut consumer).await;
    assert_eq!((again.from, values(&again)[0]), (Offset(500), (500, 500)));
    consumer.close(10 * SECOND).await.unwrap();
}

#[tokio::test]
async fn a_position_out_of_range_is_reset_once_and_told() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 1).await;
    produce(&client, &topic, 0, 10).await;
    let mut consumer = client.consumer(unique("group")).topic(&topic, OffsetReset::Earliest).build().unwrap();
    let batch = next_batch(&mut consumer).await;
    consumer.handle().seek(&batch.assigned, Offset(5_000));
    let fault = loop {
        if let ConsumerEvent::Fault(fault) = next(&mut consumer).await {
            break fault;
        }
    };
    assert!(matches!(fault, ConsumerError::OutOfRange { from: Offset(5_000), to: Offset(0), .. }), "{fault}");
    assert_eq!(next_batch(&mut consumer).await.from, Offset(0));
    consumer.close(10 * SECOND).await.unwrap();
}

#[tokio::test]
async fn compressed_batches_of_all_codecs_come_through() {
    use kafka_harbor::protocol::compression::Codec;

    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 1).await;
    for (at, codec) in Codec::ALL.into_iter().enumerate() {
        let producer = client.producer().compression(codec).build().unwrap();
        for number in at * 10..at * 10 + 10 {
            producer.send(Record::new(&topic, number.to_string())).await.unwrap();
        }
    }
    let mut consumer = client.consumer(unique("group")).topic(&topic, OffsetReset::Earliest).build().unwrap();
    let mut numbers = Vec::new();
    while numbers.len() < 50 {
        numbers.extend(values(&next_batch(&mut consumer).await).into_iter().map(|(_, number)| number));
    }
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
}

#[tokio::test]
async fn topics_and_partitions_that_appear_later_are_read() {
    let Some(broker) = kafka() else { return };
    let client = Client::builder([&broker.bootstrap]).metadata_max_age(SECOND).build().unwrap();
    let topic = topic(&client, 1).await;
    let later = Topic::from(unique("later"));
    let builder = client.consumer(unique("group")).topic(&topic, OffsetReset::Earliest);
    let mut consumer = builder.topic(&later, OffsetReset::Earliest).build().unwrap();
    let mut assigned = BTreeSet::new();
    let mut missing = false;
    while assigned.is_empty() || !missing {
        match next(&mut consumer).await {
            ConsumerEvent::Assigned(came) => assigned.extend(came.into_iter().map(|a| a.assigned.partition)),
            ConsumerEvent::Fault(ConsumerError::TopicsMissing { topics, .. }) => missing = topics == [later.clone()],
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(assigned, [TopicPartition::new(&topic, 0)].into());
    client.admin().create_partitions(&[(topic.clone(), 2)]).await[0].1.as_ref().unwrap();
    client.admin().create_topics(&[NewTopic::new(&later).with_partitions(1)]).await[0].1.as_ref().unwrap();
    while assigned.len() < 3 {
        if let ConsumerEvent::Assigned(came) = next(&mut consumer).await {
            assigned.extend(came.into_iter().map(|a| a.assigned.partition));
        }
    }
    consumer.close(10 * SECOND).await.unwrap();
}

async fn topics_of_a_pattern_come_and_go(protocol: GroupProtocol) {
    let Some(broker) = kafka() else { return };
    let client = Client::builder([&broker.bootstrap]).metadata_max_age(SECOND).build().unwrap();
    let (prefix, admin) = (unique("pattern"), client.admin());
    let name = |what: &str| Topic::from(format!("{prefix}-{what}"));
    let create = async |what: &str| {
        admin.create_topics(&[NewTopic::new(name(what)).with_partitions(1)]).await[0].1.as_ref().unwrap();
        produce(&client, &name(what), 0, 3).await;
    };
    create("eu").await;
    create("eu-dlq").await;
    let builder = client.consumer(unique("group")).group_protocol(protocol);
    let pattern = builder.topic_pattern(format!("{prefix}-.*"), OffsetReset::Earliest).exclude_pattern(".*-dlq");
    let seen = Shared::default();
    let member = member(pattern.build().unwrap(), seen.clone());
    let read =
        |what: &str| seen.lock().unwrap().partitions.get(&TopicPartition::new(name(what), 0)).map_or(0, Vec::len);
    until(60 * SECOND, "the first topic is read", || read("eu") == 3).await;
    create("us").await;
    until(60 * SECOND, "a topic that came is read from its first record", || read("us") == 3).await;
    admin.delete_topics(&[name("us")]).await[0].1.as_ref().unwrap();
    until(60 * SECOND, "a topic that went is given back", || seen.lock().unwrap().revoked > 0).await;
    produce(&client, &name("eu"), 3, 4).await;
    until(60 * SECOND, "the other is read on", || read("eu") == 4).await;
    assert_eq!(read("eu-dlq"), 0);
    member.abort();
}

#[tokio::test]
async fn topics_of_a_pattern_are_read_as_they_come_and_left_as_they_go() {
    topics_of_a_pattern_come_and_go(GroupProtocol::Classic).await;
}

#[tokio::test]
async fn topics_of_a_pattern_are_read_in_a_group_that_the_coordinator_assigns_too() {
    topics_of_a_pattern_come_and_go(GroupProtocol::Consumer).await;
}

/// A consumer's drop blocked for the session timeout (rust-rdkafka#509, #453, #611).
#[tokio::test]
async fn drop_never_blocks_and_the_group_is_left_all_the_same() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 1).await;
    let group = unique("group");
    let join = || client.consumer(&group).topic(&topic, OffsetReset::Earliest).build().unwrap();
    let first = join();
    first.joined(20 * SECOND).await.unwrap();
    let begun = Instant::now();
    drop(first);
    assert!(begun.elapsed() < Duration::from_millis(100));
    let mut second = join();
    let begun = Instant::now();
    loop {
        if let ConsumerEvent::Assigned(assigned) = next(&mut second).await
            && !assigned.is_empty()
        {
            break;
        }
    }
    assert!(begun.elapsed() < 10 * SECOND, "the session had to end first: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_broker_that_restarts_costs_nothing_but_time() {
    const RECORDS: usize = 20_000;
    let Some(broker) = kafka_with(1, &[], None) else { return };
    let client = client(&broker);
    let topic = topic(&client, 2).await;
    let seen = Shared::default();
    let builder = client.consumer(unique("group")).topic(&topic, OffsetReset::Earliest);
    let member = member(builder.build().unwrap(), seen.clone());
    produce(&client, &topic, 0, RECORDS / 2).await;
    until(30 * SECOND, "half", || seen.lock().unwrap().numbers().len() == RECORDS / 2).await;
    broker.kill(1);
    // Long enough for several attempts to reach it.
    tokio::time::sleep(2 * SECOND).await;
    broker.start(1);
    produce(&client, &topic, RECORDS / 2, RECORDS).await;
    until(60 * SECOND, "all", || seen.lock().unwrap().numbers().len() == RECORDS).await;
    member.abort();
    let seen = seen.lock().unwrap();
    assert_eq!((seen.lost, seen.revoked), (0, 0), "{:?}", seen.faults);
    for partition in seen.partitions.values() {
        assert!(partition.windows(2).all(|pair| pair[0].0 < pair[1].0), "something came twice");
    }
}

async fn kind_of(client: &Client, group: &str) -> GroupKind {
    client.admin().describe_groups(&[group.to_owned()]).await[0].1.as_ref().unwrap().kind.clone()
}

/// Until its first assignment that is not empty.
async fn first_assignment(consumer: &mut Consumer) -> usize {
    loop {
        match next(consumer).await {
            ConsumerEvent::Assigned(assigned) if !assigned.is_empty() => return assigned.len(),
            ConsumerEvent::Fault(error) => panic!("{error}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_group_in_use_goes_over_to_the_coordinators_protocol_and_back_and_nothing_is_missed() {
    const RECORDS: usize = 40_000;
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 6).await;
    let group = unique("group");
    let seen = Shared::default();
    let join = |protocol| {
        let builder = client.consumer(&group).topic(&topic, OffsetReset::Earliest).group_protocol(protocol);
        builder.heartbeat_interval(SECOND).build().unwrap()
    };
    let step = RECORDS / 4;
    let all = |steps: usize| {
        let seen = seen.clone();
        async move { until(60 * SECOND, "all", || seen.lock().unwrap().numbers().len() == steps * step).await }
    };
    let old = join(GroupProtocol::Classic);
    let old_handle = old.handle().clone();
    let old = member(old, seen.clone());
    produce(&client, &topic, 0, step).await;
    all(1).await;
    assert_eq!(kind_of(&client, &group).await, GroupKind::Classic);
    let new = join(GroupProtocol::Consumer);
    let new_handle = new.handle().clone();
    let new = member(new, seen.clone());
    produce(&client, &topic, step, 2 * step).await;
    all(2).await;
    assert_eq!(kind_of(&client, &group).await, GroupKind::Consumer);
    // A classic member joins what the coordinator assigns, and the one that began it goes.
    let late = join(GroupProtocol::Classic);
    let late_handle = late.handle().clone();
    let late = member(late, seen.clone());
    old_handle.leave(10 * SECOND).await.unwrap();
    produce(&client, &topic, 2 * step, 3 * step).await;
    all(3).await;
    // The last one of the new protocol goes: the group is a classic one again.
    new_handle.leave(10 * SECOND).await.unwrap();
    produce(&client, &topic, 3 * step, RECORDS).await;
    all(4).await;
    late_handle.leave(10 * SECOND).await.unwrap();
    for member in [old, new, late] {
        member.await.unwrap();
    }
    in_order(&seen.lock().unwrap());
}

#[tokio::test]
async fn auto_takes_the_coordinators_protocol_unless_the_group_has_classic_members() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 2).await;
    let [fresh, used] = [unique("fresh"), unique("used")];
    let join = |group: &str, protocol| {
        client.consumer(group).topic(&topic, OffsetReset::Earliest).group_protocol(protocol).build().unwrap()
    };
    let mut first = join(&fresh, GroupProtocol::Auto);
    assert_eq!(first_assignment(&mut first).await, 2);
    assert_eq!(kind_of(&client, &fresh).await, GroupKind::Consumer);
    first.close(10 * SECOND).await.unwrap();

    let mut classic = join(&used, GroupProtocol::Classic);
    first_assignment(&mut classic).await;
    let auto = join(&used, GroupProtocol::Auto);
    let (classic, auto) = (member(classic, Shared::default()), member(auto, Shared::default()));
    let joined = || async {
        let described = client.admin().describe_groups(std::slice::from_ref(&used)).await;
        described[0].1.as_ref().unwrap().members.len() == 2
    };
    let end = Instant::now() + 20 * SECOND;
    while !joined().await {
        assert!(Instant::now() < end, "it did not join");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(kind_of(&client, &used).await, GroupKind::Classic);
    classic.abort();
    auto.abort();
}

#[tokio::test]
async fn the_coordinators_assignor_is_the_one_that_was_asked_for_and_an_unknown_one_ends_the_membership() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 2).await;
    for assignor in ["range", "uniform"] {
        let builder = client.consumer(unique("group")).topic(&topic, OffsetReset::Earliest);
        let builder = builder.group_protocol(GroupProtocol::Consumer).server_assignor(assignor);
        let mut consumer = builder.build().unwrap();
        assert_eq!(first_assignment(&mut consumer).await, 2);
        consumer.close(10 * SECOND).await.unwrap();
    }
    let builder = client.consumer(unique("group")).topic(&topic, OffsetReset::Earliest);
    let mut consumer = builder.group_protocol(GroupProtocol::Auto).server_assignor("nonesuch").build().unwrap();
    let ConsumerEvent::Fault(error) = next(&mut consumer).await else { panic!("taken") };
    assert!(error.is_fatal() && error.to_string().contains("UNSUPPORTED_ASSIGNOR"), "{error}");
    assert!(consumer.next().await.is_none());
}

#[tokio::test]
async fn a_static_member_that_restarts_gets_its_partitions_back_and_disturbs_nobody() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let topic = topic(&client, 4).await;
        let group = unique("group");
        let join = |name: &str| {
            let builder = client.consumer(&group).topic(&topic, OffsetReset::Earliest).group_protocol(protocol);
            builder.instance_id(name).heartbeat_interval(SECOND).build().unwrap()
        };
        let seen = Shared::default();
        let mut stays = join("stays");
        assert_eq!(first_assignment(&mut stays).await, 4);
        let stays = member(stays, seen.clone());
        let mut goes = join("goes");
        assert_eq!(first_assignment(&mut goes).await, 2);
        let disturbed = || {
            let seen = seen.lock().unwrap();
            seen.revoked + seen.lost
        };
        let before = disturbed();
        goes.close(10 * SECOND).await.unwrap();
        tokio::time::sleep(3 * SECOND).await;
        let mut back = join("goes");
        assert_eq!(first_assignment(&mut back).await, 2);
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(disturbed(), before, "{protocol:?}");
        stays.abort();
    }
}

/// jitsu#1491, confluent-kafka-go#494, franz-go#931: of two with one id, one was silent for ever.
#[tokio::test]
async fn of_two_static_members_with_one_name_one_ends_and_says_so() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let topic = topic(&client, 2).await;
        let group = unique("group");
        let join = || {
            let builder = client.consumer(&group).topic(&topic, OffsetReset::Earliest).group_protocol(protocol);
            let builder = builder.instance_id("one").session_timeout(6 * SECOND).heartbeat_interval(SECOND);
            builder.build().unwrap()
        };
        let mut first = join();
        first_assignment(&mut first).await;
        let mut second = join();
        // The classic coordinator fences the older one, the other the newer one.
        let fenced = if protocol == GroupProtocol::Classic { &mut first } else { &mut second };
        let ended = async {
            loop {
                match fenced.next().await {
                    Some(ConsumerEvent::Fault(error)) if error.is_fatal() => break error,
                    Some(_) => {}
                    None => panic!("it ended in silence"),
                }
            }
        };
        let error = tokio::time::timeout(30 * SECOND, ended).await.expect("it ends");
        assert!(matches!(error, ConsumerError::Fenced { .. }), "{protocol:?}: {error}");
    }
}
