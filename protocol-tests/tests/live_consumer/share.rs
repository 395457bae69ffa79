//! Share groups: members that share a partition, record by record.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_harbor::client::{
    AcknowledgeCause, AcknowledgeType, Acknowledgement, AcquireMode, Client, ShareBatch, ShareConsumer, ShareEvent,
};
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{Offset, Topic};
use protocol_tests::{Cluster, kafka, unique};

use super::{SECOND, client, produce, topic};

/// A group that reads from the beginning, and whose locks hold so long.
fn group(cluster: &Cluster, lock: Duration) -> String {
    let group = unique("share");
    let settings = format!("share.auto.offset.reset=earliest,share.record.lock.duration.ms={}", lock.as_millis());
    let args = ["--alter", "--entity-type", "groups", "--entity-name", &group, "--add-config", &settings];
    tokio::task::block_in_place(|| cluster.tool("configs", &args));
    group
}

/// A topic with one partition and so many records, and a member of a group of its own.
async fn shared(cluster: &Cluster, records: usize, lock: Duration) -> (Client, Topic, String) {
    let client = client(cluster);
    let topic = topic(&client, 1).await;
    produce(&client, &topic, 0, records).await;
    let group = group(cluster, lock);
    (client, topic, group)
}

fn member(client: &Client, group: &str, topic: &Topic) -> ShareConsumer {
    client.share_consumer(group).topic(topic).build().unwrap()
}

async fn next(consumer: &mut ShareConsumer) -> ShareBatch {
    let deadline = Instant::now() + 40 * SECOND;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, consumer.next()).await.expect("records").expect("not ended") {
            ShareEvent::Batch(batch) => return batch,
            // The topic of the groups' state is made for the first of them.
            ShareEvent::Fault(error) if !error.is_fatal() => eprintln!("{error}"),
            event => panic!("{event:?}"),
        }
    }
}

/// Delivery count of each offset.
fn counts(batch: &ShareBatch) -> BTreeMap<i64, u16> {
    batch.records().map(|delivered| (delivered.record.offset.0, delivered.delivery_count)).collect()
}

/// Takes batches until these offsets were delivered, accepts the others, and returns the last batch of each.
async fn until_delivered(consumer: &mut ShareConsumer, offsets: &[i64]) -> BTreeMap<i64, (u16, Acknowledgement)> {
    let mut seen = BTreeMap::new();
    while !offsets.iter().all(|offset| seen.contains_key(offset)) {
        let batch = next(consumer).await;
        let mut others = Vec::new();
        for delivered in batch.records() {
            let offset = delivered.record.offset;
            let accept = batch.acknowledgement(offset, AcknowledgeType::Accept);
            if offsets.contains(&offset.0) {
                seen.insert(offset.0, (delivered.delivery_count, accept));
            } else {
                others.push(accept);
            }
        }
        consumer.handle().acknowledge(others).await.unwrap();
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_is_accepted_released_or_rejected_by_itself() {
    let Some(cluster) = kafka() else { return };
    let (client, topic, group) = shared(cluster, 6, 30 * SECOND).await;
    let mut consumer = member(&client, &group, &topic);
    let batch = next(&mut consumer).await;
    assert_eq!(counts(&batch), (0..6).map(|offset| (offset, 1)).collect());
    let values: Vec<_> = batch.records().map(|delivered| delivered.record.value.unwrap().to_vec()).collect();
    assert_eq!(values, ["0", "1", "2", "3", "4", "5"].map(|value| value.as_bytes().to_vec()));
    let of = |offset, kind| batch.acknowledgement(Offset(offset), kind);
    let kinds = [
        of(0, AcknowledgeType::Accept),
        of(1, AcknowledgeType::Release),
        of(2, AcknowledgeType::Reject),
        of(3, AcknowledgeType::Accept),
    ];
    consumer.handle().acknowledge(kinds.to_vec()).await.unwrap();
    let again = consumer.handle().acknowledge(vec![of(0, AcknowledgeType::Accept)]).await.unwrap_err();
    assert_eq!(again.failures[0].cause, AcknowledgeCause::Lost, "each is acknowledged once");

    let again = next(&mut consumer).await;
    assert_eq!(counts(&again), [(1, 2)].into(), "released, and nothing else");
    consumer.handle().acknowledge(again.acknowledge_all(AcknowledgeType::Accept)).await.unwrap();
    // What is not acknowledged is released by leaving.
    consumer.close(20 * SECOND).await.unwrap();
    let mut other = member(&client, &group, &topic);
    let rest = until_delivered(&mut other, &[4, 5]).await;
    assert_eq!(rest.len(), 2);
    other.handle().acknowledge(rest.into_values().map(|(_, accept)| accept).collect()).await.unwrap();
    produce(&client, &topic, 6, 7).await;
    assert_eq!(counts(&next(&mut other).await), [(6, 1)].into(), "all before is done");
    other.close(20 * SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_share_one_partition_and_each_record_goes_to_one() {
    let Some(cluster) = kafka() else { return };
    let (client, topic, group) = shared(cluster, 400, 30 * SECOND).await;
    let build = || {
        let builder = client.share_consumer(&group).topic(&topic).max_records(10);
        builder.acquire_mode(AcquireMode::RecordLimit).build().unwrap()
    };
    let mut members = [build(), build()];
    let (mut seen, mut of_each) = (BTreeMap::new(), [0; 2]);
    let [first, second] = &mut members;
    for at in (0..).map(|turn| turn % 2) {
        let consumer = if at == 0 { &mut *first } else { &mut *second };
        let batch = next(consumer).await;
        let counts = counts(&batch);
        assert!(counts.len() <= 10, "{counts:?}");
        of_each[at] += counts.len();
        for (offset, count) in counts {
            assert_eq!((count, seen.insert(offset, at)), (1, None), "offset {offset}");
        }
        consumer.handle().acknowledge(batch.acknowledge_all(AcknowledgeType::Accept)).await.unwrap();
        if seen.len() == 400 {
            break;
        }
    }
    assert!(of_each.iter().all(|records| *records > 0), "{of_each:?}");
    for member in members {
        member.close(20 * SECOND).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_whose_lock_has_ended_goes_to_another_and_its_first_holder_is_told() {
    let Some(cluster) = kafka() else { return };
    let (client, topic, group) = shared(cluster, 3, 5 * SECOND).await;
    let mut slow = member(&client, &group, &topic);
    let held = next(&mut slow).await;
    assert_eq!(counts(&held), [(0, 1), (1, 1), (2, 1)].into());
    // One of the three is done in time or is not: a slow machine may be slower than the lock.
    let first = slow.handle().acknowledge(vec![held.acknowledgement(Offset(0), AcknowledgeType::Accept)]).await;
    let mut other = member(&client, &group, &topic);
    let again = until_delivered(&mut other, &[1, 2]).await;
    assert!(again.values().all(|(count, _)| *count >= 2), "{again:?}");
    let late = [1, 2].map(|offset| held.acknowledgement(Offset(offset), AcknowledgeType::Accept));
    let late = slow.handle().acknowledge(late.to_vec()).await.unwrap_err();
    assert_eq!(late.failures.len(), 2, "{late}");
    assert!(late.failures.iter().all(|failed| failed.is_lost()), "{late}");
    if first.is_ok() {
        produce(&client, &topic, 3, 4).await;
        assert!(!until_delivered(&mut other, &[3]).await.contains_key(&0));
    }
    drop(slow);
    other.close(20 * SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_dies_has_its_records_delivered_again() {
    let Some(cluster) = kafka() else { return };
    let (client, topic, group) = shared(cluster, 5, 5 * SECOND).await;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (bootstrap, of_group, of_topic) = (cluster.bootstrap.clone(), group.clone(), topic.clone());
    let held = runtime.spawn(async move {
        let client = Client::builder([bootstrap]).build().unwrap();
        let mut consumer = member(&client, &of_group, &of_topic);
        let batch = next(&mut consumer).await;
        let held = counts(&batch).len();
        // Never dropped: nothing of it says good-bye.
        std::mem::forget((consumer, batch));
        held
    });
    assert_eq!(held.await.unwrap(), 5);
    runtime.shutdown_background();
    let mut other = member(&client, &group, &topic);
    let again = until_delivered(&mut other, &[0, 1, 2, 3, 4]).await;
    assert_eq!(again.len(), 5);
    other.handle().acknowledge(again.into_values().map(|(_, accept)| accept).collect()).await.unwrap();
    other.close(20 * SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_lock_outlives_its_first_time() {
    let Some(cluster) = kafka() else { return };
    let (client, topic, group) = shared(cluster, 2, 12 * SECOND).await;
    let mut consumer = member(&client, &group, &topic);
    let batch = next(&mut consumer).await;
    tokio::time::sleep_until((batch.locked_until - 6 * SECOND).into()).await;
    let renew = vec![batch.acknowledgement(Offset(0), AcknowledgeType::Renew)];
    let renewed = consumer.handle().acknowledge(renew).await.unwrap().locked_until.expect("a lock");
    assert!(renewed >= batch.locked_until + 5 * SECOND, "{:?}", renewed - batch.locked_until);
    let mut other = member(&client, &group, &topic);
    let passed_on = until_delivered(&mut other, &[1]).await;
    assert_eq!(passed_on[&1].0, 2, "the other's lock has ended");
    let done = vec![batch.acknowledgement(Offset(0), AcknowledgeType::Accept)];
    consumer.handle().acknowledge(done).await.unwrap();
    consumer.close(20 * SECOND).await.unwrap();
    other.close(20 * SECOND).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_another_kind_refuses_a_share_member() {
    let Some(cluster) = kafka() else { return };
    let client = client(cluster);
    let topic = topic(&client, 1).await;
    let group = unique("classic");
    let consumer = client.consumer(&group).topic(&topic, kafka_harbor::client::OffsetReset::Earliest).build().unwrap();
    consumer.joined(40 * SECOND).await.unwrap();
    let error = member(&client, &group, &topic).joined(40 * SECOND).await.unwrap_err();
    assert!(error.is_fatal(), "{error}");
    assert_eq!(error.code(), Some(ErrorCode::GROUP_ID_NOT_FOUND), "{error}");
    consumer.close(20 * SECOND).await.unwrap();
}
