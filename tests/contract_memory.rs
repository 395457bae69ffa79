//! The adapter contract on the in-process broker, in paused time.

#![cfg(feature = "testing")]

use std::sync::Arc;

use kafka_harbor::adapter::Adapter;
use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
use kafka_harbor::testing::contract::Fixture;

#[derive(Debug, Default)]
struct InMemory(MemoryBroker);

impl Fixture for InMemory {
    fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::new(MemoryAdapter::new(&self.0))
    }

    fn lose_next_answer(&self, topic: &str) -> bool {
        self.0.lose_next_acknowledgement(topic);
        true
    }
}

kafka_harbor::adapter_contract!(
    #[tokio::test(start_paused = true)]
    InMemory::default()
);
