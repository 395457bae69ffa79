//! What a delivery allocates, counted: between batch and handler nothing.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
use kafka_harbor::adapter::{Adapter, PublisherOptions};
use kafka_harbor::error::BoxError;
use kafka_harbor::harbor::{Context, Deserializer, Failure, Harbor};
use kafka_harbor::record::Record;
use tokio::runtime::{Builder, Runtime};

/// A payload that needs no memory of its own.
struct Length;

impl Deserializer<usize> for Length {
    async fn deserialize(&self, _topic: &str, value: &[u8]) -> Result<usize, BoxError> {
        Ok(value.len())
    }
}

/// Batches of a thousand records each, waiting to be handled.
struct Backlog {
    runtime: Runtime,
    broker: MemoryBroker,
    records: usize,
}

impl Backlog {
    fn of(batches: usize) -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let broker = MemoryBroker::new();
        broker.create_topic("orders", 1).unwrap();
        runtime.block_on(async {
            let publisher = MemoryAdapter::new(&broker).publisher(PublisherOptions::default()).unwrap();
            for _ in 0..batches {
                let record = Record::new("orders", vec![7; 100]).with_key("customer").with_header("trace", "4bf92f35");
                publisher.publish(vec![record; 1_000]).await.unwrap();
            }
        });
        Self { runtime, broker, records: batches * 1_000 }
    }

    fn handle(&self, with_context: bool) {
        let total = Arc::new(AtomicUsize::new(0));
        let sum = total.clone();
        let harbor = Harbor::builder("counted", MemoryAdapter::new(&self.broker)).serializer(Length).build().unwrap();
        let builder = harbor.consumer("counted").from_beginning(true).dead_letters(false);
        let builder = if with_context {
            builder.subscribe("orders", move |length: usize, context: Context| {
                sum.fetch_add(length + context.key().map_or(0, <[u8]>::len), Ordering::Relaxed);
                std::future::ready(Ok::<_, Failure>(()))
            })
        } else {
            builder.subscribe("orders", move |length: usize| {
                sum.fetch_add(length + 8, Ordering::Relaxed);
                std::future::ready(Ok::<_, Failure>(()))
            })
        };
        let consumer = builder.build().unwrap();
        self.runtime.block_on(async {
            consumer.start().await.unwrap();
            self.broker.when_drained("counted", &["orders"]).await.unwrap();
            harbor.shutdown(Duration::from_secs(1)).await.unwrap();
        });
        assert_eq!(total.load(Ordering::Relaxed), self.records * 108);
    }
}

#[test]
fn handling_allocates_by_the_batch_and_nothing_a_record() {
    for with_context in [false, true] {
        let [few, many] = [5, 25].map(|batches| {
            let backlog = Backlog::of(batches);
            allocation_counter::measure(|| backlog.handle(with_context)).count_total
        });
        let each = many.saturating_sub(few) as f64 / 20.0;
        println!("{each} allocations a batch of a thousand records, context: {with_context}");
        assert!(each < 50.0, "{each} allocations a batch of a thousand records, context: {with_context}");
    }
}
