//! One who writes in transactions, under an id that it may share with another: who comes later fences who was before.

use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::client::{
    Delivery, Ended, GroupMetadata, GroupOffset, Transaction, TransactionError, TransactionErrorKind,
    TransactionalProducer,
};
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::record::Offset;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::history::{Txn, Value, What};
use super::producer::{record, settle};
use super::world::{LEDGER, Phase, SECOND, World, at};

/// Begins as a new producer again and again, until the calm.
pub(crate) async fn live(world: World, index: usize, rng: Rng) {
    let account = (index / 2) as i32;
    let mut writer = Writer { world, index, account, rng, number: 0, deliveries: JoinSet::new() };
    let mut life = 0;
    while !writer.world.is(Phase::Calm) {
        let wait = Duration::from_millis(writer.rng.u64(0..4_000));
        writer.world.pause(wait, Phase::Calm).await;
        life += 1;
        writer.write(format!("writer-{index}-{life}")).await;
    }
    while let Some(settled) = writer.deliveries.join_next().await {
        settled.unwrap();
    }
}

struct Writer {
    world: World,
    index: usize,
    account: i32,
    rng: Rng,
    number: u32,
    deliveries: JoinSet<()>,
}

impl Writer {
    /// As one producer.
    async fn write(&mut self, name: String) {
        let client = self.world.client(&mut self.rng, name.clone());
        let producer = client.producer().delivery_timeout(30 * SECOND).max_block(10 * SECOND).batch_bytes(1024);
        let producer = producer.linger(Duration::from_millis(self.rng.u64(0..20)));
        let producer = producer.transactional(format!("till-{}", self.account)).transaction_timeout(20 * SECOND);
        match producer.init().await {
            Ok(mut producer) => {
                let lives = self.rng.u32(1..30);
                for _ in 0..lives {
                    if self.world.is(Phase::Calm) {
                        break;
                    }
                    if let Err(error) = self.transact(&mut producer).await {
                        self.world.recorder.fault(&name, &error);
                        if error.is_fatal() {
                            break;
                        }
                    }
                }
                if self.rng.bool() {
                    // One that is fenced, or finds nobody, is not the worse for it.
                    let _ = producer.close(10 * SECOND).await;
                }
            }
            Err(error) => self.world.recorder.fault(&name, &error),
        }
        let _ = client.close(SECOND).await;
    }

    /// One transaction. An error is of the producer, or of its beginning.
    async fn transact(&mut self, producer: &mut TransactionalProducer) -> Result<(), TransactionError> {
        let transaction = producer.begin().await?;
        let txn = self.world.transaction();
        self.fill(&transaction, txn).await;
        let how = self.rng.u8(0..12);
        let mut known = match how {
            0..7 => ended(transaction.commit().await),
            7..9 => Ok(transaction.abort().await.map(|()| Ended::Aborted).unwrap_or(Ended::Aborted)),
            9 => {
                drop(transaction);
                Ok(Ended::Aborted)
            }
            _ => {
                let patience = Duration::from_millis(self.rng.u64(0..200));
                timeout(patience, transaction.commit()).await.map_or(Err(None), ended)
            }
        };
        // Or its end is not waited for, and the next one begun.
        if let Err(None) = known
            && self.rng.u8(0..3) > 0
        {
            while !self.world.is(Phase::Over) {
                known = match producer.resolve().await.expect("there was one") {
                    Ok(ended) => Ok(ended),
                    Err(error) if error.outcome == WriteOutcome::NotWritten => Ok(Ended::Aborted),
                    Err(error) if matches!(error.kind, TransactionErrorKind::NotInTime { .. }) => continue,
                    Err(error) => Err(error.is_fatal().then_some(error)),
                };
                break;
            }
        }
        self.world.recorder.note(What::Ended { txn, end: known.as_ref().ok().copied() });
        match known {
            Err(Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn fill(&mut self, transaction: &Transaction<'_>, txn: Txn) {
        for _ in 0..self.rng.u32(1..4) {
            for _ in 0..self.rng.u32(0..12) {
                self.number += 1;
                let value = Value { producer: FIRST + self.index, number: self.number };
                let partition = self.rng.i32(0..self.world.partitions());
                self.world.recorder.note(What::Queued { value, partition, within: Some(txn) });
                if self.rng.u8(0..40) == 0 {
                    self.send_half(transaction, value, partition).await;
                    continue;
                }
                match transaction.enqueue(record(value, partition)).await {
                    Ok(delivery) => self.await_end(value, partition, delivery),
                    Err(error) => {
                        self.world.recorder.note(What::Failed { value, partition, outcome: error.outcome });
                        return;
                    }
                }
            }
            if self.rng.u8(0..3) == 0 {
                let (account, offset) = (self.account, txn as i64 * 10 + self.rng.i64(0..10));
                self.world.recorder.note(What::Entered { within: txn, account, offset });
                let ledger = GroupMetadata::without_member(LEDGER);
                // What was not taken keeps the transaction from being committed.
                let _ = transaction.send_offsets(&ledger, [(at(account), GroupOffset::new(Offset(offset)))]).await;
            }
            // Sometimes longer than a transaction may take.
            let pause = if self.rng.u8(0..60) == 0 { 25_000 } else { 800 };
            if self.rng.u8(0..3) == 0 {
                self.world.pause(Duration::from_millis(self.rng.u64(0..pause)), Phase::Calm).await;
            }
        }
    }

    /// A call that is dropped before its end, or not.
    async fn send_half(&mut self, transaction: &Transaction<'_>, value: Value, partition: i32) {
        let patience = Duration::from_millis(self.rng.u64(0..60));
        let outcome = match timeout(patience, transaction.send(record(value, partition))).await {
            Ok(Ok(written)) => {
                let offset = written.offset.map(|offset| offset.0);
                return self.world.recorder.note(What::Acknowledged { value, partition, offset });
            }
            Ok(Err(error)) => error.outcome,
            Err(_) => WriteOutcome::PossiblyWritten,
        };
        self.world.recorder.note(What::Failed { value, partition, outcome });
    }

    fn await_end(&mut self, value: Value, partition: i32, delivery: Delivery) {
        while self.deliveries.try_join_next().is_some_and(|settled| settled.is_ok()) {}
        self.deliveries.spawn(settle(self.world.recorder.clone(), value, partition, delivery));
    }
}

/// What a commit came to, as far as it is known; an error is one of the producer.
fn ended(committed: Result<(), TransactionError>) -> Result<Ended, Option<TransactionError>> {
    match committed {
        Ok(()) => Ok(Ended::Committed),
        Err(error) if error.outcome == WriteOutcome::NotWritten => Ok(Ended::Aborted),
        Err(error) if error.is_fatal() => Err(Some(error)),
        Err(_) => Err(None),
    }
}

/// Writers' values are told from those of producers.
const FIRST: usize = 10;
