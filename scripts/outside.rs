//! A crate outside the workspace that uses the packed crate: a record goes in, and its handler runs.

use std::time::Duration;

use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
use kafka_harbor::harbor::{Failure, Harbor, Message};

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    sku: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = MemoryBroker::new();
    broker.create_topic("orders", 1)?;
    let harbor = Harbor::builder("outside", MemoryAdapter::new(&broker)).build()?;
    let handler = |order: Order| async move { if order.sku == "tea" { Ok(()) } else { Err(Failure::permanent("no tea")) } };
    let consumer = harbor.consumer("outside").subscribe("orders", handler).auto_create_topics(true).from_beginning(true).build()?;
    consumer.start().await?;
    harbor.producer().build()?.send("orders", Message::new(Order { sku: "tea".into() })).await?;
    tokio::time::timeout(Duration::from_secs(10), broker.when_drained("outside", &["orders"])).await??;
    harbor.shutdown(Duration::from_secs(10)).await?;
    assert!(broker.records("orders-dlq").is_empty());
    Ok(())
}
