//! The harbor over the client: an empty handler, its default commits. The counterpart of `node/harbor.mjs`.
use bytes::Bytes;
use common::*;
use kafka_harbor::adapter::kafka::KafkaAdapter;
use kafka_harbor::harbor::{Failure, Harbor, Raw};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Default)]
struct Count {
    seen: AtomicU64,
    retried: AtomicU64,
    phase: OnceLock<Phase>,
    all: Notify,
}

pub async fn consume(a: &Args) {
    let (n, every) = (a.records(), a.num("fail-one-in", 0));
    let adapter = KafkaAdapter::builder([a.bootstrap()]).build().unwrap();
    let harbor = Harbor::builder("bench", adapter).serializer(Raw).build().unwrap();
    let count = Arc::new(Count::default());
    let counted = count.clone();
    let consumer = harbor.consumer(a.group()).concurrency(a.num("concurrency", 6) as usize).from_beginning(true);
    let consumer = if every == 0 {
        let handler = move |payload: Bytes| {
            handled(&counted, n, &payload);
            std::future::ready(Ok::<(), Failure>(()))
        };
        consumer.dead_letters(false).subscribe(a.topic(), handler)
    } else {
        let handler = move |payload: Bytes, context: kafka_harbor::harbor::Context| {
            let tries = &counted.retried;
            let outcome = if context.retry().is_none() && context.offset().0 as u64 % every == 0 {
                tries.fetch_add(1, Relaxed);
                Err(Failure::retryable("once"))
            } else {
                handled(&counted, n, &payload);
                Ok(())
            };
            std::future::ready(outcome)
        };
        consumer.auto_create_topics(true).retry_levels([Duration::ZERO]).subscribe(a.topic(), handler)
    };
    let consumer = consumer.build().unwrap();
    consumer.start().await.unwrap();
    count.all.notified().await;
    let retried = count.retried.load(Relaxed);
    count.phase.get().unwrap().done(n, 0, 0, &format!("\"retried\":{retried}"));
    harbor.shutdown(Duration::from_secs(10)).await.unwrap();
}

fn handled(count: &Count, n: u64, _payload: &[u8]) {
    count.phase.get_or_init(Phase::new);
    if count.seen.fetch_add(1, Relaxed) + 1 == n {
        count.all.notify_one();
    }
}
