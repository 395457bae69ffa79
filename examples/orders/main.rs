//! An order service from end to end: a success, a retry that then succeeds, an order that ends in the dead-letter topic,
//! and an operator who puts it back.
//!
//! ```sh
//! cargo run --example orders                                     # on the in-process broker
//! cargo run --example orders -- --bootstrap 127.0.0.1:9092       # on a Kafka
//! ```

mod cluster;
mod narrator;
mod service;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use kafka_harbor::harbor::{Harbor, Message};

use self::narrator::Narrator;
use self::service::{Order, Warehouse};

// One thread is plenty: a handler that waits costs nothing.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match story().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orders: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn story() -> Result<(), Box<dyn Error>> {
    let cluster = cluster::from_arguments()?;
    let narrator = Narrator::new();
    narrator.say(&format!("an order service on {}", cluster.name));

    // Topics of this run alone, so that it can be repeated.
    let orders = cluster.topic("orders");
    cluster.create(&orders, 3).await?;
    let dead_letters = format!("{orders}-dlq");

    let harbor = Harbor::builder("orders-service", cluster.adapter).observer(narrator.clone()).build()?;
    let warehouse = Warehouse::new(narrator.clone());
    let handler = warehouse.clone();
    let consumer = harbor
        .consumer(format!("{orders}-group"))
        .subscribe(orders.as_str(), move |order: Order, context| handler.clone().reserve(order, context))
        .retry_levels(["400ms", "800ms"])
        .auto_create_topics(true)
        .from_beginning(true)
        .build()?;
    consumer.start().await?;

    narrator.chapter(
        "Three orders come in. One is fine, one meets a busy warehouse, one asks for what the catalogue lacks.",
    );
    let producer = harbor.producer().build()?;
    for (key, order) in [
        ("order-1", Order::new("tea", 2)),
        ("order-2", Order::new("coffee", 1)),
        ("order-3", Order::new("moon rock", 1)),
    ] {
        producer.send(orders.as_str(), Message::new(order).with_key(key)).await?;
    }
    narrator.settled(3, Duration::from_secs(30)).await?;

    narrator.chapter("The catalogue learns of moon rock, and an operator redrives the dead letters.");
    warehouse.stock("moon rock");
    let report = harbor.redrive(dead_letters.as_str()).idle_timeout("500ms").run().await?;
    narrator.say(&format!("redrive done: {} put back, {} skipped", report.reprocessed, report.skipped));
    narrator.settled(1, Duration::from_secs(30)).await?;

    let lag: u64 = harbor.lag().await?.iter().map(|entry| entry.lag).sum();
    narrator.chapter(&format!("Every order is reserved, and nothing is left to do: the group's lag is {lag}."));
    harbor.shutdown(Duration::from_secs(10)).await?;
    if lag == 0 { Ok(()) } else { Err(format!("{lag} records are still waiting").into()) }
}
