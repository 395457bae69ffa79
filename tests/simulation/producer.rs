//! One who writes numbered records.

use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::client::Delivery;
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::record::{Record, Timestamp};
use tokio::task::JoinSet;

use super::history::{Recorder, Value, What};
use super::world::{Phase, SECOND, World, at};

/// Writes until the calm, then waits until it knows of every record.
pub(crate) async fn live(world: World, index: usize, mut rng: Rng) {
    let client = world.client(&mut rng, format!("producer-{index}"));
    let producer = client.producer().delivery_timeout(30 * SECOND).max_block(10 * SECOND).batch_bytes(1024);
    let producer = producer.linger(Duration::from_millis(rng.u64(0..20))).build().unwrap();
    let mut deliveries = JoinSet::new();
    let mut number = 0;
    while !world.is(Phase::Calm) {
        for _ in 0..rng.u32(1..40) {
            number += 1;
            let (value, partition) = (Value { producer: index, number }, rng.i32(0..world.partitions()));
            world.recorder.note(What::Queued { value, partition, within: None });
            match producer.enqueue(record(value, partition)).await {
                Ok(delivery) => drop(deliveries.spawn(settle(world.recorder.clone(), value, partition, delivery))),
                Err(error) => world.recorder.note(What::Failed { value, partition, outcome: error.outcome }),
            }
        }
        world.pause(Duration::from_millis(rng.u64(0..2_000)), Phase::Calm).await;
    }
    while let Some(settled) = deliveries.join_next().await {
        settled.unwrap();
    }
    producer.close(10 * SECOND).await.expect("nothing is left");
    client.close(10 * SECOND).await.expect("nothing is left");
}

/// A record that holds this.
pub(crate) fn record(value: Value, partition: i32) -> Record {
    let place = at(partition);
    // Without a time of its own it would have the machine's, and batches other sizes in each run. It is from before any time
    // that the clocks of brokers are set to: they refuse what comes from further ahead than an hour.
    Record::new(place.topic, value.to_string())
        .with_partition(place.partition)
        .with_timestamp(Timestamp(1_699_800_000_000 + i64::from(value.number)))
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
