//! One who writes numbered records.

use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::client::{Delivery, Producer};
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::record::{Record, Timestamp};
use tokio::task::JoinSet;

use super::history::{Recorder, Value, What};
use super::world::{Phase, SECOND, World, at};

/// Writes until the calm, then waits until it knows of every record. Once more where it is quiet, everywhere.
pub(crate) async fn live(world: World, index: usize, mut rng: Rng) {
    let client = world.client(&mut rng, format!("producer-{index}"));
    let is_hard = world.plan.is_hard;
    let delivery_timeout = SECOND * if is_hard { rng.u32(6..=30) } else { 30 };
    let producer = client.producer().delivery_timeout(delivery_timeout).max_block(10 * SECOND);
    let producer = producer.batch_bytes(1024).linger(Duration::from_millis(rng.u64(0..20))).build().unwrap();
    let padding = if is_hard { padding(&mut rng) } else { 0 };
    let mut writer = Writer { world, producer, index, padding, number: 0, deliveries: JoinSet::new() };
    while !writer.world.is(Phase::Calm) {
        for _ in 0..rng.u32(1..40) {
            writer.write(rng.i32(0..writer.world.partitions())).await;
        }
        writer.world.pause(Duration::from_millis(rng.u64(0..2_000)), Phase::Calm).await;
    }
    writer.settle().await;
    if writer.world.plan.is_long {
        writer.world.until(Phase::Quiet).await;
        // Until the operator has added a partition, most of the time.
        writer.world.pause(3 * SECOND, Phase::Over).await;
        for partition in 0..writer.world.partitions() {
            writer.write(partition).await;
        }
        writer.settle().await;
    }
    writer.producer.close(10 * SECOND).await.expect("nothing is left");
    client.close(10 * SECOND).await.expect("nothing is left");
}

struct Writer {
    world: World,
    producer: Producer,
    index: usize,
    padding: usize,
    number: u32,
    deliveries: JoinSet<()>,
}

impl Writer {
    async fn write(&mut self, partition: i32) {
        self.number += 1;
        let value = Value { producer: self.index, number: self.number };
        let recorder = self.world.recorder.clone();
        recorder.note(What::Queued { value, partition, within: None });
        match self.producer.enqueue(record(value, partition, self.padding)).await {
            Ok(delivery) => drop(self.deliveries.spawn(settle(recorder, value, partition, delivery))),
            Err(error) => recorder.note(What::Failed { value, partition, outcome: error.outcome }),
        }
    }

    /// Waits until all is known.
    async fn settle(&mut self) {
        while let Some(settled) = self.deliveries.join_next().await {
            settled.unwrap();
        }
    }
}

/// By how much the records of one who writes are longer than they need be: so that batches are soon full, and several are on their way.
pub(crate) fn padding(rng: &mut Rng) -> usize {
    *rng.choice(&[0, 100, 300]).expect("there are some")
}

/// A record that holds this.
pub(crate) fn record(value: Value, partition: i32, padding: usize) -> Record {
    let place = at(partition);
    // Without a time of its own it would have the machine's, and batches other sizes in each run. It is from before any time
    // that the clocks of brokers are set to: they refuse what comes from further ahead than an hour.
    let record = Record::new(place.topic, value.to_string())
        .with_partition(place.partition)
        .with_timestamp(Timestamp(1_699_800_000_000 + i64::from(value.number)));
    if padding > 0 { record.with_key(vec![b'.'; padding]) } else { record }
}

/// Notes what became of a record.
pub(crate) async fn settle(recorder: Recorder, value: Value, partition: i32, delivery: Delivery) {
    recorder.note(match delivery.await {
        Ok(written) => {
            assert_eq!(written.partition, at(partition).partition);
            What::Acknowledged { value, partition, offset: written.offset.map(|offset| offset.0) }
        }
        Err(error) => {
            if error.outcome == WriteOutcome::NotWritten {
                recorder.fault("not written", &*error);
            }
            What::Failed { value, partition, outcome: error.outcome }
        }
    });
}
