//! Prints each step as it happens: an observer of the harbor's events.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_harbor::harbor::Context;
use kafka_harbor::observe::{MessageDeadLettered, MessageProcessed, MessageRedriven, MessageRetried, Observer};
use tokio::sync::watch;

use crate::service::Order;

#[derive(Debug, Clone)]
pub(crate) struct Narrator {
    begin: Instant,
    /// How many orders reached an end: reserved, or set aside.
    settled: Arc<watch::Sender<u32>>,
}

impl Narrator {
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), settled: Arc::new(watch::Sender::new(0)) }
    }

    pub(crate) fn chapter(&self, text: &str) {
        println!();
        self.say(text);
    }

    pub(crate) fn say(&self, text: &str) {
        println!("{:>6.2}s  {text}", self.begin.elapsed().as_secs_f32());
    }

    pub(crate) fn attempt(&self, order: &Order, context: &Context) {
        let key = String::from_utf8_lossy(context.key().unwrap_or_default()).into_owned();
        self.step(&key, &format!("attempt {}: {} {}", context.attempt(), order.quantity, order.sku));
    }

    /// Waits until this many more orders have reached an end, and counts anew from there.
    pub(crate) async fn settled(&self, orders: u32, limit: Duration) -> Result<(), Box<dyn Error>> {
        let mut settled = self.settled.subscribe();
        // What `wait_for` answers locks the count, so it is let go at once.
        let in_time = tokio::time::timeout(limit, settled.wait_for(|count| *count >= orders)).await.is_ok();
        if !in_time {
            return Err(format!("{orders} orders did not reach an end within {limit:?}").into());
        }
        self.settled.send_modify(|count| *count -= orders);
        Ok(())
    }

    fn step(&self, who: &str, text: &str) {
        self.say(&format!("  {who:<9} {text}"));
    }

    fn end(&self) {
        self.settled.send_modify(|count| *count += 1);
    }
}

impl Observer for Narrator {
    fn message_processed(&self, event: &MessageProcessed<'_>) {
        self.step("", &format!("reserved and committed ({}-{} @{})", event.topic, event.partition, event.offset));
        self.end();
    }

    fn message_retried(&self, event: &MessageRetried<'_>) {
        self.step("", &format!("failed: {}; waits on {}", event.error.text, event.retry_topic));
    }

    fn message_dead_lettered(&self, event: &MessageDeadLettered<'_>) {
        self.step(
            "",
            &format!("failed {} times: {}; set aside on {}", event.attempts, event.error.text, event.dead_letter_topic),
        );
        self.end();
    }

    fn message_redriven(&self, event: &MessageRedriven<'_>) {
        self.step("", &format!("put back: {} to {}", event.from, event.to));
    }
}
