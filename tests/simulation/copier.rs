//! One who reads in a group and writes what it reads, each batch with its position in a transaction: exactly once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::client::{
    Assigned, Client, Consumer, ConsumerEvent, Ended, GroupOffset, GroupProtocol, OffsetReset, PartitionBatch,
    TransactionalProducer,
};
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::record::Offset;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::history::{Group, Stint, What};
use super::log::values;
use super::producer::{record, settle};
use super::world::{COPIES, Phase, SECOND, TOPIC, World, at};

/// Begins anew again and again, until all is over.
pub(crate) async fn live(world: World, index: usize, mut rng: Rng) {
    // Told apart over all members, and the same in each run.
    let stints = AtomicU64::new(index as u64 * 1_000_000);
    let is_modern = rng.bool();
    let mut lives = 0;
    while !world.is(Phase::Over) {
        world.pause(Duration::from_millis(rng.u64(0..5_000)), Phase::Calm).await;
        lives += 1;
        let name = format!("copier-{index}-{lives}");
        let client = world.client(&mut rng, name.clone());
        let deliveries = JoinSet::new();
        let mut copier =
            Copier { world: &world, name, rng: rng.fork(), stints: &stints, held: BTreeMap::new(), deliveries };
        if let Some(producer) = copier.producer(&client, index).await {
            let consumer = copier.consumer(&client, is_modern);
            copier.serve(consumer, producer).await;
        }
        copier.lose_all();
        // What a coordinator that is away cannot be told, it finds out.
        let _ = client.close(SECOND).await;
        while let Some(settled) = copier.deliveries.join_next().await {
            settled.unwrap();
        }
    }
}

struct Copier<'a> {
    world: &'a World,
    name: String,
    rng: Rng,
    stints: &'a AtomicU64,
    held: BTreeMap<i32, (Stint, Assigned)>,
    deliveries: JoinSet<()>,
}

impl Copier<'_> {
    async fn producer(&mut self, client: &Client, index: usize) -> Option<TransactionalProducer> {
        let producer = client.producer().delivery_timeout(30 * SECOND).max_block(10 * SECOND).batch_bytes(1024);
        let producer = producer.transactional(format!("copier-{index}")).transaction_timeout(20 * SECOND);
        let made = producer.init().await;
        made.map_err(|error| self.world.recorder.fault(&self.name, &error)).ok()
    }

    fn consumer(&mut self, client: &Client, is_modern: bool) -> Consumer {
        let protocol = if is_modern { GroupProtocol::Auto } else { GroupProtocol::Classic };
        let consumer =
            client.consumer(Group::Copiers.id()).topic(TOPIC, OffsetReset::Earliest).group_protocol(protocol);
        let consumer = consumer.session_timeout(6 * SECOND).heartbeat_interval(SECOND).revocation_timeout(10 * SECOND);
        let consumer = match self.world.rack(&mut self.rng) {
            Some(rack) => consumer.rack(rack),
            None => consumer,
        };
        self.world.recorder.misfortune(format_args!("{} joins", self.name));
        consumer.fetch_max_partition_bytes(self.rng.usize(1_024..8_192)).build().unwrap()
    }

    /// Copies until something goes wrong, or it leaves.
    async fn serve(&mut self, mut consumer: Consumer, mut producer: TransactionalProducer) {
        loop {
            tokio::select! {
                biased;
                () = self.world.until(Phase::Over) => break,
                event = consumer.next() => {
                    let Some(event) = event else { return };
                    if !self.take(&consumer, &mut producer, event).await {
                        break;
                    }
                }
                () = sleep(SECOND) => {}
            }
            if !self.world.is(Phase::Calm) && self.rng.u8(0..100) < 2 {
                break;
            }
        }
        self.world.recorder.misfortune(format_args!("{} ends", self.name));
        if self.rng.bool() {
            let _ = consumer.close(SECOND).await;
        }
    }

    /// `false` where all has to begin anew.
    async fn take(&mut self, consumer: &Consumer, producer: &mut TransactionalProducer, event: ConsumerEvent) -> bool {
        match event {
            ConsumerEvent::Assigned(assignments) => {
                for assignment in assignments {
                    let stint = Stint { group: Group::Copiers, number: self.stints.fetch_add(1, Ordering::Relaxed) };
                    let partition = assignment.assigned.partition.partition;
                    let committed = assignment.committed.map(|offset| offset.0);
                    let position = assignment.position.0;
                    self.world.recorder.note(What::Assigned { stint, partition, committed, position });
                    self.held.insert(partition, (stint, assignment.assigned));
                }
            }
            ConsumerEvent::Batch(batch) => return self.copy(consumer, producer, &batch).await,
            ConsumerEvent::Revoked(gone, release) => {
                gone.iter().for_each(|assigned| self.gone(assigned, false));
                release.send();
            }
            ConsumerEvent::Lost(gone) => gone.iter().for_each(|assigned| self.gone(assigned, true)),
            ConsumerEvent::Fault(error) => self.world.recorder.fault(&self.name, &error),
            _ => {}
        }
        true
    }

    async fn copy(
        &mut self,
        consumer: &Consumer,
        producer: &mut TransactionalProducer,
        batch: &PartitionBatch,
    ) -> bool {
        // As it is with the records in hand: who has rejoined since may have lost the partition.
        let member = consumer.handle().group_metadata();
        let partition = batch.assigned.partition.partition;
        let stint = self.held[&partition].0;
        let records: Vec<_> = batch.batches.iter().flat_map(|view| values(view, batch.from)).collect();
        let (from, next) = (batch.from.0, batch.next_offset.0);
        self.world.recorder.note(What::Handed { stint, partition, from, next, records: records.clone() });
        let Some(member) = member else { return false };
        let transaction = match producer.begin().await {
            Ok(transaction) => transaction,
            Err(error) => {
                self.world.recorder.fault(&self.name, &error);
                return false;
            }
        };
        let txn = self.world.transaction();
        let copy = COPIES + partition;
        for (_, value) in records {
            self.world.recorder.note(What::Queued { value, partition: copy, within: Some(txn) });
            match transaction.enqueue(record(value, copy, 0)).await {
                Ok(delivery) => {
                    self.deliveries.spawn(settle(self.world.recorder.clone(), value, copy, delivery));
                }
                Err(error) => {
                    self.world.recorder.note(What::Failed { value, partition: copy, outcome: error.outcome });
                    break;
                }
            }
        }
        if self.rng.u8(0..10) == 0 {
            self.world.pause(Duration::from_millis(self.rng.u64(0..12_000)), Phase::Calm).await;
        }
        let position = [(at(partition), GroupOffset::new(Offset(next)))];
        // What was not taken keeps the transaction from being committed.
        let _ = transaction.send_offsets(&member, position).await;
        if self.world.plan.is_hard && !self.world.is(Phase::Calm) && self.rng.u8(0..10) == 0 {
            // Meanwhile another may get the partition, and has to wait for what becomes of the position.
            self.world.pause(Duration::from_millis(self.rng.u64(0..15_000)), Phase::Calm).await;
            if self.rng.u8(0..4) == 0 {
                return false;
            }
        }
        let committed = transaction.commit().await;
        let end = match &committed {
            Ok(()) => Some(Ended::Committed),
            Err(error) if error.outcome == WriteOutcome::NotWritten => Some(Ended::Aborted),
            Err(_) => None,
        };
        self.world.recorder.note(What::Ended { txn, end });
        match committed {
            Ok(()) => self.world.recorder.note(What::Committed { stint, partition, offset: next }),
            Err(error) => self.world.recorder.fault(&self.name, &error),
        }
        while self.deliveries.try_join_next().is_some_and(|settled| settled.is_ok()) {}
        end == Some(Ended::Committed)
    }

    fn gone(&mut self, assigned: &Assigned, lost: bool) {
        let partition = assigned.partition.partition;
        let Some((stint, held)) = self.held.remove(&partition) else { return };
        assert_eq!(held, *assigned, "of this assignment");
        self.world.recorder.note(What::Gone { stint, partition, lost });
    }

    fn lose_all(&mut self) {
        for (partition, (stint, _)) in std::mem::take(&mut self.held) {
            self.world.recorder.note(What::Gone { stint, partition, lost: false });
        }
    }
}
