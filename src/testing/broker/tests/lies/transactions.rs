//! Lies to a transactional producer.

use std::time::Duration;

use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, TxnOffsetCommitRequest,
};

use super::fields::{NO_CODE, text};
use super::{Liar, Lie, frames, tell_while};
use crate::client::{Client, GroupMetadata, GroupOffset};
use crate::error::WriteOutcome;
use crate::record::{Offset, Record, TopicPartition};

/// What became of a transaction, by its name.
#[derive(Debug)]
enum Told {
    Committed(String),
    NotCommitted(String),
    Unknown(String),
}

/// Transactions of two records and an offset each, tried again as long as they were certainly not committed, each by a producer of its own.
async fn write(liar: &Liar) -> Result<(), String> {
    let client = liar.client();
    let mut all = Vec::new();
    let mut faults = Vec::new();
    let (transactions, tries) = if liar.ends() { (2, 4) } else { (1, 1) };
    for number in 0..transactions {
        let mut is_decided = false;
        for attempt in 0..tries {
            let name = format!("{number}.{attempt}");
            let told = match transaction(&client, &name).await {
                Ok(()) => Told::Committed(name),
                Err((outcome, error)) => {
                    faults.push(error);
                    if outcome == WriteOutcome::PossiblyWritten {
                        Told::Unknown(name)
                    } else {
                        Told::NotCommitted(name)
                    }
                }
            };
            is_decided = !matches!(told, Told::NotCommitted(_));
            all.push(told);
            if is_decided {
                break;
            }
        }
        if !is_decided && liar.must_recover() {
            return Err(format!("transaction {number} is not committed, and the broker is sound again: {faults:?}"));
        }
    }
    let _ = client.close(Duration::from_secs(5)).await;
    let visible = liar.committed().await;
    for told in &all {
        let (name, least, most) = match told {
            Told::Committed(name) => (name, 2, 2),
            Told::NotCommitted(name) => (name, 0, if liar.lie().repeats { 2 } else { 0 }),
            Told::Unknown(name) => (name, 0, 2),
        };
        let of_it = visible.iter().filter(|value| value.starts_with(&format!("{name}-"))).count();
        if !(least..=most).contains(&of_it) || of_it == 1 {
            return Err(format!("{told:?}, and {of_it} of its records can be read: {visible:?}, {faults:?}"));
        }
    }
    Ok(())
}

async fn transaction(client: &Client, name: &str) -> Result<(), (WriteOutcome, String)> {
    let failed = |error: crate::client::TransactionError| (error.outcome, error.to_string());
    let producer = client.producer().max_block(BLOCK).delivery_timeout(BLOCK).transactional("tx");
    let mut producer = producer.transaction_timeout(BLOCK).init().await.map_err(failed)?;
    let transaction = producer.begin().await.map_err(failed)?;
    for part in ["a", "b"] {
        let record = Record::new("t", format!("{name}-{part}")).with_partition(0);
        // The transaction can only be aborted then, and its drop does that.
        transaction.send(record).await.map_err(|error| (WriteOutcome::NotWritten, error.to_string()))?;
    }
    let offset = (TopicPartition::new("t", 0), GroupOffset::new(Offset(1)));
    transaction.send_offsets(&GroupMetadata::without_member("g"), [offset]).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    let _ = producer.close(Duration::from_secs(5)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ends_that_cannot_be_leave_transactions_whole() {
    type Of = EndTxnRequest;
    let code = |name: &str, code: i16| Lie::field::<Of>(name, move |answer| answer.error_code = code);
    let lies = vec![
        // Each says for certain that nothing was done.
        code("another transaction is under way", 51).repeats(),
        code("not the coordinator", 16).repeats(),
        code("it is loading", 14).repeats(),
        code("not in this state", 48).repeats(),
        code("fenced", 90).repeats(),
        code("a code that nobody knows", NO_CODE).repeats(),
        Lie::field::<Of>("a negative id and epoch", |answer| {
            (answer.producer_id, answer.producer_epoch) = ((-9).into(), -9);
        }),
        Lie::field::<Of>("the last epoch", |answer| answer.producer_epoch = i16::MAX),
        Lie::field::<Of>("a silence of 24 days", |answer| answer.throttle_time_ms = i32::MAX),
    ];
    tell_while(write, lies).await;
}

#[tokio::test(start_paused = true)]
async fn transactional_ids_that_cannot_be_write_nothing_wrong() {
    type Of = InitProducerIdRequest;
    let code = |name: &str, code: i16| Lie::field::<Of>(name, move |answer| answer.error_code = code);
    let lies = vec![
        Lie::field::<Of>("a negative id", |answer| answer.producer_id = (-1).into()),
        Lie::field::<Of>("a negative epoch", |answer| answer.producer_epoch = -1),
        Lie::field::<Of>("the last epoch", |answer| answer.producer_epoch = i16::MAX),
        Lie::field::<Of>("another producer's id", |answer| answer.producer_id = 7_777.into()),
        code("another transaction is under way", 51),
        code("not the coordinator", 16),
        code("fenced", 90),
        code("a code that nobody knows", NO_CODE),
    ];
    tell_while(write, lies).await;
}

#[tokio::test(start_paused = true)]
async fn members_of_a_transaction_that_cannot_be_leave_it_whole() {
    type Partitions = AddPartitionsToTxnRequest;
    type Group = AddOffsetsToTxnRequest;
    type Offsets = TxnOffsetCommitRequest;
    let partitions = |name: &str, code: i16| {
        let lie = Lie::field::<Partitions>(name, move |answer| {
            let topics = answer.results_by_topic_v3_and_below.iter_mut();
            let parts = topics.flat_map(|topic| &mut topic.results_by_partition);
            parts.for_each(|part| part.partition_error_code = code);
        });
        lie.in_the_first_version_of_transactions()
    };
    let group = |name: &str, code: i16| {
        Lie::field::<Group>(name, move |answer| answer.error_code = code).in_the_first_version_of_transactions()
    };
    let offsets = |name: &str, code: i16| {
        Lie::field::<Offsets>(name, move |answer| {
            let parts = answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
            parts.for_each(|part| part.error_code = code);
        })
    };
    let lies = vec![
        partitions("another transaction is under way", 51),
        partitions("fenced", 90),
        partitions("a code that nobody knows", NO_CODE),
        Lie::field::<Partitions>("nothing", |answer| answer.results_by_topic_v3_and_below.clear())
            .in_the_first_version_of_transactions(),
        Lie::field::<Partitions>("another topic", |answer| {
            let topics = answer.results_by_topic_v3_and_below.iter_mut();
            topics.for_each(|topic| topic.name = text("other").into());
        })
        .in_the_first_version_of_transactions(),
        group("another transaction is under way", 51),
        group("a code that nobody knows", NO_CODE),
        offsets("a member that is not known", 25),
        offsets("it is loading", 14),
        offsets("a code that nobody knows", NO_CODE),
        Lie::field::<Offsets>("nothing", |answer| answer.topics.clear()),
        Lie::field::<Offsets>("another topic", |answer| {
            answer.topics.iter_mut().for_each(|topic| topic.name = text("other").into());
        }),
    ];
    tell_while(write, lies).await;
}

#[tokio::test(start_paused = true)]
async fn frames_that_lie_to_a_transaction_leave_it_whole() {
    tell_while(write, frames::lies(&[22, 26, 28])).await;
    let first = frames::lies(&[24, 25]).into_iter().map(Lie::in_the_first_version_of_transactions);
    tell_while(write, first.collect()).await;
}

const BLOCK: Duration = Duration::from_secs(10);
