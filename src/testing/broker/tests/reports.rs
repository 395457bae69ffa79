//! What users of other clients reported, with our client over the cluster: each names the report.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::client::{Client, CommitPosition, Consumer, ConsumerEvent, GroupProtocol, OffsetReset};
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Record, TopicPartition};
use crate::testing::broker::{DevBroker, Effect, Rule};

const SECOND: Duration = Duration::from_secs(1);
const PRODUCE: ApiKey = ApiKey(0);
const METADATA: ApiKey = ApiKey(3);

async fn broker() -> (DevBroker, Client) {
    let broker = DevBroker::builder().nodes(3).topic("orders", 4).start().await.unwrap();
    let client = broker.client_config().build().unwrap();
    (broker, client)
}

async fn produce(client: &Client, from: usize, to: usize) {
    let producer = client.producer().build().unwrap();
    let record = |number: usize| Record::new("orders", number.to_string()).with_partition(number as i32 % 4);
    producer.send_all((from..to).map(record).collect()).await.unwrap();
    producer.close(10 * SECOND).await.unwrap();
}

fn member(client: &Client) -> Consumer {
    let builder = client.consumer("g").topic("orders", OffsetReset::Earliest);
    builder.group_protocol(GroupProtocol::Consumer).revocation_timeout(5 * SECOND).build().unwrap()
}

/// What a member has, and what it has read.
#[derive(Default)]
struct Holds {
    partitions: BTreeSet<TopicPartition>,
    seen: BTreeSet<usize>,
    lost: usize,
}

impl Holds {
    /// Takes in an event; gives back at once what is to be given back.
    async fn take(&mut self, consumer: &Consumer, event: ConsumerEvent) {
        match event {
            ConsumerEvent::Assigned(assigned) => {
                self.partitions.extend(assigned.into_iter().map(|assignment| assignment.assigned.partition));
            }
            ConsumerEvent::Revoked(revoked, release) => {
                revoked.iter().for_each(|assigned| _ = self.partitions.remove(&assigned.partition));
                release.send();
            }
            ConsumerEvent::Lost(lost) => {
                self.lost += 1;
                lost.iter().for_each(|assigned| _ = self.partitions.remove(&assigned.partition));
            }
            ConsumerEvent::Batch(batch) => {
                for record in batch.batches.iter().flat_map(|view| view.records()).map(|record| record.unwrap()) {
                    self.seen.insert(std::str::from_utf8(record.value.unwrap()).unwrap().parse().unwrap());
                }
                // A commit may meet a rebalance; what it would have covered is read again.
                let _ = consumer
                    .handle()
                    .commit(vec![CommitPosition::new(batch.assigned.clone(), batch.next_offset)])
                    .await;
            }
            ConsumerEvent::Fault(fault) => assert!(!fault.is_fatal(), "{fault}"),
        }
    }
}

/// librdkafka#5541: a member of a KIP-848 group that was too slow was refused for good. It leaves, joins with epoch 0 and goes on.
#[tokio::test(start_paused = true)]
async fn a_member_that_was_too_slow_loses_all_joins_anew_and_reads_on() {
    let (_broker, client) = broker().await;
    produce(&client, 0, 40).await;
    let (mut slow, mut first) = (member(&client), Holds::default());
    let run = async {
        while first.seen.len() < 40 {
            let event = slow.next().await.expect("it goes on");
            first.take(&slow, event).await;
        }
        let (mut other, mut second) = (member(&client), Holds::default());
        let mut kept = Vec::new();
        // Its handlers take longer than it may take: what it is to give back it keeps.
        while first.lost == 0 {
            tokio::select! {
                Some(event) = slow.next() => match event {
                    ConsumerEvent::Revoked(_, release) => kept.push(release),
                    event => first.take(&slow, event).await,
                },
                Some(event) = other.next() => second.take(&other, event).await,
            }
        }
        drop(kept);
        while (first.partitions.len(), second.partitions.len()) != (2, 2) {
            tokio::select! {
                Some(event) = slow.next() => first.take(&slow, event).await,
                Some(event) = other.next() => second.take(&other, event).await,
            }
        }
        assert!(first.partitions.is_disjoint(&second.partitions));
        produce(&client, 40, 80).await;
        while first.seen.union(&second.seen).count() < 80 {
            tokio::select! {
                Some(event) = slow.next() => first.take(&slow, event).await,
                Some(event) = other.next() => second.take(&other, event).await,
            }
        }
        assert!(first.seen.iter().any(|number| *number >= 40), "it reads on itself");
    };
    tokio::time::timeout(300 * SECOND, run).await.expect("all is read in time");
}

/// franz-go 1.21.6: a topic that was assigned before metadata knew of it was dropped, and the coordinator does not say it twice.
#[tokio::test(start_paused = true)]
async fn an_assigned_topic_that_metadata_does_not_know_yet_is_read_once_it_does() {
    let (broker, client) = broker().await;
    produce(&client, 0, 20).await;
    let reader = broker.client_config().client_id("reader").build().unwrap();
    let unknown = Effect::Fail(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let rule = broker.order(Rule::new(METADATA, unknown).topic("orders").client_id("reader").times(6));
    let (mut consumer, mut holds) = (member(&reader), Holds::default());
    let run = async {
        while holds.seen.len() < 20 {
            let event = consumer.next().await.expect("it goes on");
            holds.take(&consumer, event).await;
        }
    };
    tokio::time::timeout(120 * SECOND, run).await.expect("all is read in time");
    assert_eq!(broker.withdraw(rule), None, "metadata did not know it, six times");
}

/// librdkafka#3575: a new epoch within a transaction began another one, and a commit without its first records succeeded.
#[tokio::test(start_paused = true)]
async fn a_transaction_whose_numbers_are_refused_is_aborted_whole_and_the_next_is_sound() {
    for code in [ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode::UNKNOWN_PRODUCER_ID] {
        let (broker, client) = broker().await;
        let mut producer = client.producer().transactional("x").init().await.unwrap();
        let record = |value: &'static str| Record::new("orders", value).with_partition(0);
        let transaction = producer.begin().await.unwrap();
        transaction.send(record("1")).await.unwrap();
        let rule = broker.order(Rule::new(PRODUCE, Effect::Fail(code)).topic("orders"));
        transaction.send(record("2")).await.expect_err("its numbers were refused");
        assert_eq!(broker.withdraw(rule), None, "the fault was met");
        transaction.commit().await.expect_err("a part of it is missing");
        let transaction = producer.begin().await.unwrap();
        transaction.send(record("3")).await.unwrap();
        transaction.commit().await.unwrap();
        producer.close(10 * SECOND).await.unwrap();

        let (mut consumer, mut holds) = (member(&client), Holds::default());
        let run = async {
            while !holds.seen.contains(&3) {
                let event = consumer.next().await.expect("it goes on");
                holds.take(&consumer, event).await;
            }
        };
        tokio::time::timeout(120 * SECOND, run).await.expect("it is read in time");
        assert_eq!(holds.seen, [3].into(), "{code}: nothing of what was aborted");
    }
}
