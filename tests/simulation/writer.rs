//! One who writes in transactions, under an id that it may share with another: who comes later fences who was before.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::client::{
    Client, Delivery, Ended, GroupMetadata, GroupOffset, ProduceError, Transaction, TransactionError,
    TransactionErrorKind, TransactionalProducer,
};
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::record::Offset;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::history::{Txn, Value, What};
use super::producer::{padding, record, settle};
use super::world::{LEDGER, Phase, SECOND, World, at};

/// Begins as a new producer again and again, until the calm.
pub(crate) async fn live(world: World, index: usize, rng: Rng) {
    let account = (index / 2) as i32;
    let mut writer =
        Writer { world, index, account, rng, number: 0, padding: 0, is_new: false, deliveries: JoinSet::new() };
    let mut life = 0;
    while !writer.world.is(Phase::Calm) {
        let wait = Duration::from_millis(writer.rng.u64(0..4_000));
        writer.world.pause(wait, Phase::Calm).await;
        life += 1;
        writer.write(format!("writer-{index}-{life}")).await;
    }
    // One of those who share an id: the other would fence it.
    if writer.world.plan.is_long && index.is_multiple_of(2) {
        writer.world.until(Phase::Quiet).await;
        writer.write_in_quiet(format!("writer-{index}-quiet")).await;
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
    padding: usize,
    /// Whether its producer has sent nothing yet.
    is_new: bool,
    deliveries: JoinSet<()>,
}

impl Writer {
    /// As one producer.
    async fn write(&mut self, name: String) {
        let client = self.world.client(&mut self.rng, name.clone());
        let max_block = SECOND * if self.world.plan.is_hard { self.rng.u32(1..=10) } else { 10 };
        match self.producer(&client, max_block).await {
            Ok(mut producer) => {
                if self.world.plan.is_hard {
                    (self.padding, self.is_new) = (padding(&mut self.rng), true);
                }
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

    /// Where nobody has a reason to fail, two transactions are committed one after the other.
    async fn write_in_quiet(&mut self, name: String) {
        let client = self.world.client(&mut self.rng, name.clone());
        let mut producer = self.producer(&client, 10 * SECOND).await.expect("all is quiet");
        for _ in 0..2 {
            let transaction = producer.begin().await.expect("all is quiet");
            let txn = self.world.transaction();
            for partition in 0..self.world.partitions() {
                self.send(&transaction, txn, partition).await.expect("all is quiet");
            }
            self.enter(&transaction, txn).await;
            transaction.commit().await.expect("all is quiet");
            self.book(txn);
            self.world.recorder.note(What::Ended { txn, end: Some(Ended::Committed) });
        }
        producer.close(10 * SECOND).await.expect("all is quiet");
        let _ = client.close(SECOND).await;
    }

    async fn producer(
        &mut self,
        client: &Client,
        max_block: Duration,
    ) -> Result<TransactionalProducer, TransactionError> {
        let delivery_timeout = SECOND * if self.world.plan.is_hard { self.rng.u32(6..=30) } else { 30 };
        let producer = client.producer().delivery_timeout(delivery_timeout).batch_bytes(1024);
        let producer = producer.max_block(max_block).linger(Duration::from_millis(self.rng.u64(0..20)));
        producer.transactional(format!("till-{}", self.account)).transaction_timeout(20 * SECOND).init().await
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
        if let Ok(Ended::Committed) = known {
            self.book(txn);
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
                let partition = self.rng.i32(0..self.world.partitions());
                if self.send(transaction, txn, partition).await.is_err() {
                    return;
                }
            }
            if self.rng.u8(0..3) == 0 {
                self.enter(transaction, txn).await;
            }
            // Sometimes longer than a transaction may take.
            let pause = if self.rng.u8(0..60) == 0 { 25_000 } else { 800 };
            if self.rng.u8(0..3) == 0 {
                self.world.pause(Duration::from_millis(self.rng.u64(0..pause)), Phase::Calm).await;
            }
        }
    }

    /// An error is that of a call which took nothing.
    async fn send(&mut self, transaction: &Transaction<'_>, txn: Txn, partition: i32) -> Result<(), Arc<ProduceError>> {
        self.number += 1;
        let value = Value { producer: FIRST + self.index, number: self.number };
        self.world.recorder.note(What::Queued { value, partition, within: Some(txn) });
        // The first call of a producer has to ask for leaders, so it can be dropped before it has queued anything.
        let odds = if std::mem::take(&mut self.is_new) { 3 } else { 40 };
        if self.rng.u8(0..odds) == 0 && !self.world.is(Phase::Quiet) {
            self.send_half(transaction, value, partition).await;
            return Ok(());
        }
        match transaction.enqueue(record(value, partition, self.padding)).await {
            Ok(delivery) => self.await_end(value, partition, delivery),
            Err(error) => {
                self.world.recorder.note(What::Failed { value, partition, outcome: error.outcome });
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes a position into the transaction. Those of later transactions are further.
    async fn enter(&mut self, transaction: &Transaction<'_>, txn: Txn) {
        let (account, offset) = (self.account, txn as i64 * 10 + self.rng.i64(0..10));
        self.world.recorder.note(What::Entered { within: txn, account, offset });
        let ledger = GroupMetadata::without_member(LEDGER);
        // What was not taken keeps the transaction from being committed.
        let _ = transaction.send_offsets(&ledger, [(at(account), GroupOffset::new(Offset(offset)))]).await;
    }

    /// Looks what the ledger holds behind a commit.
    fn book(&self, txn: Txn) {
        let account = self.account;
        let found = self.world.broker.act(|cluster, _| cluster.committed(LEDGER, &at(account)));
        self.world.recorder.note(What::Booked { within: txn, account, found: found.map(|offset| offset.0) });
    }

    /// A call that is dropped before its end, or not.
    async fn send_half(&mut self, transaction: &Transaction<'_>, value: Value, partition: i32) {
        let patience = Duration::from_millis(self.rng.u64(0..60));
        let outcome = match timeout(patience, transaction.send(record(value, partition, self.padding))).await {
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
