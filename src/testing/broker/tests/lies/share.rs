//! Lies to a member of a share group.

use std::collections::BTreeSet;
use std::time::Duration;

use kafka_protocol::messages::share_fetch_response::{AcquiredRecords, PartitionData};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::fields::NO_CODE;
use super::{Liar, Lie, frames, tell_while};
use crate::client::{AcknowledgeType, ShareEvent};
use crate::protocol::share::{ShareAcknowledge, ShareFetch};

/// Reads what stands in the log and accepts all of it. What a lie takes away comes again when its lock ends.
pub(super) async fn read(liar: &Liar) -> Result<(), String> {
    let written = liar.write(RECORDS).await;
    let client = liar.client();
    let consumer = client.share_consumer("s").topic("t").fetch_max_wait(Duration::from_millis(100));
    let mut consumer = consumer.build().expect("sound options");
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    let deadline = Instant::now() + if liar.ends() { PATIENCE } else { PATIENCE / 40 };
    while seen.len() < written.len() {
        match timeout_at(deadline, consumer.next()).await {
            Ok(Some(ShareEvent::Batch(batch))) => {
                for delivered in batch.records() {
                    let value = String::from_utf8(delivered.record.value.expect("a value").to_vec()).expect("text");
                    if !written.contains(&value) {
                        return Err(format!("{value} was never written"));
                    }
                    seen.insert(value);
                }
                let all = batch.acknowledge_all(AcknowledgeType::Accept);
                if let Err(error) = consumer.handle().acknowledge(all).await {
                    faults.push(error.to_string());
                }
            }
            Ok(Some(ShareEvent::Fault(error))) => {
                faults.push(error.to_string());
                if error.is_fatal() {
                    break;
                }
            }
            Ok(None) | Err(_) => break,
        }
    }
    let _ = consumer.close(Duration::from_secs(10)).await;
    let _ = client.close(Duration::from_secs(5)).await;
    match seen.len() == written.len() || !liar.must_recover() {
        true => Ok(()),
        false => Err(format!("{seen:?} of {written:?} was delivered: {faults:?}")),
    }
}

#[tokio::test(start_paused = true)]
async fn records_that_cannot_be_acquired_are_delivered_again() {
    let answer = |name: &str, change: fn(&mut kafka_protocol::messages::ShareFetchResponse)| {
        Lie::field::<ShareFetch>(name, move |answer| change(&mut answer.0))
    };
    let partition = |name: &str, change: fn(&mut PartitionData)| {
        Lie::field::<ShareFetch>(name, move |answer| {
            answer.0.responses.iter_mut().flat_map(|topic| &mut topic.partitions).for_each(change);
        })
    };
    let acquired = |name: &str, ranges: &'static [(i64, i64)]| {
        Lie::field::<ShareFetch>(name, move |answer| {
            for partition in answer.0.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
                let ranges = ranges.iter().map(|(first, last)| {
                    AcquiredRecords::default().with_first_offset(*first).with_last_offset(*last).with_delivery_count(1)
                });
                partition.acquired_records = ranges.collect();
            }
        })
    };
    let lies = vec![
        answer("a code that nobody knows for all of it", |answer| answer.error_code = NO_CODE),
        answer("no such session", |answer| answer.error_code = 122),
        answer("another epoch of the session", |answer| answer.error_code = 123),
        answer("nothing", |answer| answer.responses.clear()),
        answer("a lock that has ended", |answer| answer.acquisition_lock_timeout_ms = 0),
        answer("a negative lock", |answer| answer.acquisition_lock_timeout_ms = -9),
        answer("a lock of 24 days", |answer| answer.acquisition_lock_timeout_ms = i32::MAX),
        answer("a silence of 24 days", |answer| answer.throttle_time_ms = i32::MAX),
        answer("a topic that was not asked for", |answer| {
            answer.responses.iter_mut().for_each(|topic| topic.topic_id = Uuid::from_u128(9));
        }),
        answer("the partition twice", |answer| {
            for topic in &mut answer.responses {
                let again = topic.partitions.clone();
                topic.partitions.extend(again);
            }
        }),
        partition("another partition", |partition| partition.partition_index = 7),
        partition("a code that nobody knows", |partition| partition.error_code = NO_CODE),
        partition("another leads", |partition| partition.error_code = 6),
        partition("no such topic id", |partition| partition.error_code = 100),
        partition("nothing of what was acknowledged is locked", |partition| partition.acknowledge_error_code = 121),
        partition("a negative count of deliveries", |partition| {
            partition.acquired_records.iter_mut().for_each(|range| range.delivery_count = -7);
        }),
        partition("no records", |partition| partition.records = None),
        partition("a batch with a flipped bit", |partition| {
            if let Some(records) = partition.records.as_mut().filter(|records| !records.is_empty()) {
                let mut bytes = records.to_vec();
                *bytes.last_mut().expect("it is not empty") ^= 1;
                *records = bytes.into();
            }
        }),
        acquired("nothing is acquired", &[]),
        acquired("acquired backwards", &[(5, 0)]),
        acquired("acquired before the beginning", &[(-9, -1), (i64::MIN, i64::MAX)]),
        acquired("acquired without an end", &[(0, 1 << 62)]),
        acquired("acquired to the last offset of all", &[(0, i64::MAX)]),
        acquired("acquired twice", &[(0, 3), (2, 5), (0, 5)]),
    ];
    tell_while(read, lies).await;
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_of_locks_that_cannot_be_end() {
    type Of = ShareAcknowledge;
    let lies = vec![
        Lie::field::<Of>("a code that nobody knows for all of it", |answer| answer.body.error_code = NO_CODE),
        Lie::field::<Of>("no such session", |answer| answer.body.error_code = 122),
        Lie::field::<Of>("nothing", |answer| answer.body.responses.clear()),
        Lie::field::<Of>("a negative lock", |answer| answer.lock_timeout_ms = -9),
        Lie::field::<Of>("none of it is locked", |answer| {
            let partitions = answer.body.responses.iter_mut().flat_map(|topic| &mut topic.partitions);
            partitions.for_each(|partition| partition.error_code = 121);
        }),
        Lie::field::<Of>("a topic that was not acknowledged", |answer| {
            answer.body.responses.iter_mut().for_each(|topic| topic.topic_id = Uuid::from_u128(9));
        }),
    ];
    tell_while(read, lies).await;
}

#[tokio::test(start_paused = true)]
async fn frames_that_lie_to_a_member_of_a_share_group_cost_time_and_no_record() {
    tell_while(read, frames::lies(&[76, 78, 79])).await;
}

const RECORDS: usize = 4;
/// Locks last 30 s.
const PATIENCE: Duration = Duration::from_secs(600);
