//! The driver against coordinators that act by a script, in virtual time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI16, Ordering};

use kafka_protocol::messages::api_versions_response::FinalizedFeatureKey;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, EndTxnRequest, EndTxnResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    InitProducerIdRequest, InitProducerIdResponse, ProducerId, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::*;
use crate::client::scripted::{Act, Brokers, Exchange, every_version, metadata};
use crate::protocol::api::ApiKey;
use crate::record::Offset;

const METADATA: ApiKey = ApiKey(3);
const FIND_COORDINATOR: ApiKey = ApiKey(10);
const API_VERSIONS: ApiKey = ApiKey(18);
const INIT: ApiKey = ApiKey(22);
const END: ApiKey = ApiKey(26);
const COMMIT_OFFSETS: ApiKey = ApiKey(28);

/// One broker that coordinates everything by version 2; `end` acts on EndTxn.
fn coordinator(end: impl Fn(&Exchange) -> Option<Act> + Send + Sync + 'static) -> (Brokers, Arc<Mutex<Vec<String>>>) {
    let brokers = Brokers::new();
    let (epoch, seen) = (AtomicI16::new(0), Arc::new(Mutex::new(Vec::new())));
    let log = seen.clone();
    brokers.at("a:1", move |exchange| match exchange.api {
        METADATA => metadata(exchange, &[(1, "a:1")], &[("t", 7, &[1])]),
        API_VERSIONS => {
            let feature = FinalizedFeatureKey::default()
                .with_name(StrBytes::from_static_str("transaction.version"))
                .with_max_version_level(2);
            let versions = every_version().with_finalized_features_epoch(1).with_finalized_features(vec![feature]);
            exchange.answer::<ApiVersionsRequest>(&versions)
        }
        FIND_COORDINATOR => {
            let asked = exchange.request::<FindCoordinatorRequest>();
            log.lock().unwrap().push(format!("find {}", asked.key_type));
            let found = Coordinator::default()
                .with_key(asked.coordinator_keys[0].clone())
                .with_node_id(BrokerId(1))
                .with_host(StrBytes::from_static_str("a"))
                .with_port(1);
            exchange
                .answer::<FindCoordinatorRequest>(&FindCoordinatorResponse::default().with_coordinators(vec![found]))
        }
        INIT => {
            let asked = exchange.request::<InitProducerIdRequest>();
            log.lock().unwrap().push(format!("init {} {}", asked.producer_id.0, asked.transaction_timeout_ms));
            let answer = InitProducerIdResponse::default()
                .with_producer_id(ProducerId(5))
                .with_producer_epoch(epoch.fetch_add(1, Ordering::Relaxed));
            exchange.answer::<InitProducerIdRequest>(&answer)
        }
        COMMIT_OFFSETS => {
            let asked = exchange.request::<TxnOffsetCommitRequest>();
            log.lock().unwrap().push(format!("offsets {} {}", asked.generation_id, asked.producer_epoch));
            let topics = asked.topics.iter().map(|topic| {
                let partitions = topic.partitions.iter().map(|partition| {
                    TxnOffsetCommitResponsePartition::default().with_partition_index(partition.partition_index)
                });
                TxnOffsetCommitResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(partitions.collect())
            });
            exchange.answer::<TxnOffsetCommitRequest>(&TxnOffsetCommitResponse::default().with_topics(topics.collect()))
        }
        END => {
            let asked = exchange.request::<EndTxnRequest>();
            log.lock().unwrap().push(format!("end {} {}", asked.committed, asked.producer_epoch));
            end(exchange).unwrap_or_else(|| {
                let next = epoch.fetch_max(asked.producer_epoch + 1, Ordering::Relaxed).max(asked.producer_epoch + 1);
                let answer = EndTxnResponse::default().with_producer_id(ProducerId(5)).with_producer_epoch(next);
                exchange.answer::<EndTxnRequest>(&answer)
            })
        }
        _ => Act::Usual,
    });
    (brokers, seen)
}

async fn init(brokers: &Brokers) -> TransactionalProducer {
    let client = brokers.client("a:1", |options| options.request_timeout(Duration::from_secs(5)));
    let producer = client.producer().max_block(Duration::from_secs(20)).delivery_timeout(Duration::from_secs(30));
    producer.transactional("transfers").init().await.unwrap()
}

async fn send_offsets(transaction: &Transaction<'_>) {
    let member = GroupMetadata { generation: 4, ..GroupMetadata::without_member("g") };
    let offsets = [(TopicPartition::new("in", 0), GroupOffset::new(Offset(3)))];
    transaction.send_offsets(&member, offsets).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn offsets_are_told_with_the_members_generation_and_ended_in_their_epoch() {
    let (brokers, seen) = coordinator(|_| None);
    let mut producer = init(&brokers).await;
    for _ in 0..2 {
        let transaction = producer.begin().await.unwrap();
        send_offsets(&transaction).await;
        transaction.commit().await.unwrap();
    }
    let expected = ["find 1", "init -1 60000", "find 0", "offsets 4 0", "end true 0", "offsets 4 1", "end true 1"];
    assert_eq!(*seen.lock().unwrap(), expected);
    producer.close(Duration::from_secs(5)).await.unwrap();
}

/// The commit's answers are lost for longer than the caller waits: nothing but the same commit follows (KAFKA-17754).
#[tokio::test(start_paused = true)]
async fn a_commit_without_an_answer_stays_one_until_it_is_decided() {
    let tries = AtomicI16::new(0);
    let (brokers, seen) = coordinator(move |_| (tries.fetch_add(1, Ordering::Relaxed) < 6).then_some(Act::Silence));
    let mut producer = init(&brokers).await;
    let transaction = producer.begin().await.unwrap();
    send_offsets(&transaction).await;
    let error = transaction.commit().await.unwrap_err();
    assert_eq!(error.outcome, WriteOutcome::PossiblyWritten);
    assert!(matches!(error.kind, TransactionErrorKind::NotInTime { .. }) && !error.is_fatal());
    assert!(matches!(producer.resolve().await, Some(Ok(Ended::Committed))));
    producer.begin().await.unwrap().abort().await.unwrap();
    let seen = seen.lock().unwrap();
    let ends: Vec<_> = seen.iter().filter(|entry| entry.starts_with("end")).collect();
    assert_eq!(ends, ["end true 0"; 7]);
}

/// Whoever asked and waited in vain was told that nothing is committed, while the commit was still being asked for.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_not_known_in_time_is_told_as_open() {
    let (brokers, _) = coordinator(|_| Some(Act::Silence));
    let mut producer = init(&brokers).await;
    let transaction = producer.begin().await.unwrap();
    send_offsets(&transaction).await;
    let dropped = tokio::time::timeout(Duration::from_secs(1), transaction.commit()).await;
    assert!(dropped.is_err(), "nobody answers");
    let error = producer.resolve().await.expect("there was one").unwrap_err();
    assert!(matches!(error.kind, TransactionErrorKind::NotInTime { .. }));
    assert_eq!(error.outcome, WriteOutcome::PossiblyWritten);
    let error = producer.close(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.outcome, WriteOutcome::PossiblyWritten);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_dropped_is_aborted_without_being_asked() {
    let (brokers, seen) = coordinator(|_| None);
    let mut producer = init(&brokers).await;
    let transaction = producer.begin().await.unwrap();
    send_offsets(&transaction).await;
    drop(transaction);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(seen.lock().unwrap().last().unwrap(), "end false 0");
    assert!(matches!(producer.resolve().await, Some(Ok(Ended::Aborted))));
}

/// A call that nobody waits for any more leaves it open what is part of the transaction.
#[tokio::test(start_paused = true)]
async fn a_send_that_is_dropped_before_its_end_forbids_the_commit() {
    let (brokers, _) = coordinator(|_| None);
    let mut producer = init(&brokers).await;
    let transaction = producer.begin().await.unwrap();
    let send = transaction.send(Record::new("missing", "x"));
    assert!(tokio::time::timeout(Duration::from_millis(100), send).await.is_err());
    let error = transaction.commit().await.unwrap_err();
    assert!(matches!(error.kind, TransactionErrorKind::Dropped), "{error}");
    assert_eq!(error.outcome, WriteOutcome::NotWritten);
}

#[tokio::test(start_paused = true)]
async fn options_that_cannot_be_are_named_together() {
    let (brokers, _) = coordinator(|_| None);
    let producer = brokers.client("a:1", |options| options).producer().dangerous_acks_leader_only();
    let error = producer.transactional("").transaction_timeout(Duration::ZERO).init().await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    for option in ["transactional", "transaction_timeout", "dangerous_acks_leader_only"] {
        assert!(source.contains(option), "{source}");
    }
}
