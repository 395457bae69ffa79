//! One who writes numbered records.

use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::client::Delivery;
use kafka_harbor::error::WriteOutcome;
use kafka_harbor::record::{Record, Timestamp};
use tokio::task::JoinSet;

use super::history::{Recorder, Value, What};
use super::world::{PARTITIONS, Phase, SECOND, TOPIC, World};

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
            let (value, partition) = (Value { producer: index, number }, rng.i32(0..PARTITIONS));
            // Without a time of its own it would have the machine's, and batches other sizes in each run.
            let record = Record::new(TOPIC, value.to_string())
                .with_partition(partition)
                .with_timestamp(Timestamp(1_700_000_000_000 + i64::from(number)));
            world.recorder.note(What::Queued { value, partition });
            match producer.enqueue(record).await {
                Ok(delivery) => drop(deliveries.spawn(settle(world.recorder.clone(), value, partition, delivery))),
                Err(error) => world.recorder.note(What::Failed { value, outcome: error.outcome }),
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

async fn settle(recorder: Recorder, value: Value, partition: i32, delivery: Delivery) {
    recorder.note(match delivery.await {
        Ok(written) => {
            assert_eq!(written.partition, partition);
            What::Acknowledged { value, partition, offset: written.offset.map(|offset| offset.0) }
        }
        Err(error) => {
            if error.outcome == WriteOutcome::NotWritten {
                recorder.note(super::world::fault("not written", &*error));
            }
            What::Failed { value, outcome: error.outcome }
        }
    });
}
