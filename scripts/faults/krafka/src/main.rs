//! krafka as a peer of `run`: produce BOOTSTRAP TOPIC COUNT, or consume BOOTSTRAP TOPIC GROUP COUNT SECONDS.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use krafka::consumer::{AutoOffsetReset, GroupProtocol, OffsetAndMetadata, TopicPartition};
use krafka::producer::Acks;
use krafka::{Kafka, Record};

const REQUEST: Duration = Duration::from_secs(5);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| a[at].parse().expect("a number");
    let kafka = Kafka::builder(a[1].as_str()).request_timeout(REQUEST).connect_timeout(REQUEST);
    let kafka = kafka.connect().await.expect("a broker");
    match a[0].as_str() {
        "produce" => produce(&kafka, &a[2], number(3)).await,
        _ => consume(&kafka, &a[2], &a[3], number(4) as usize, Duration::from_secs(number(5))).await,
    }
}

async fn produce(kafka: &Kafka, topic: &str, count: u64) {
    let producer = kafka.producer().acks(Acks::All).idempotent(true).linger(Duration::ZERO);
    let producer = producer.delivery_timeout(Duration::from_secs(30)).max_block(Duration::from_secs(30));
    let producer = match producer.build().await {
        Ok(producer) => producer,
        Err(error) => return (0..count).for_each(|number| println!("failed v{number} {error}")),
    };
    let mut told = tokio::task::JoinSet::new();
    for number in 0..count {
        match producer.enqueue(Record::new(topic, format!("v{number}"))).await {
            Ok(delivery) => {
                told.spawn(async move {
                    match delivery.await {
                        Ok(written) => println!("acked v{number} {}", written.offset),
                        Err(error) => println!("failed v{number} {error}"),
                    }
                });
            }
            Err(error) => println!("failed v{number} {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let all = async { while told.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(Duration::from_secs(40), all).await;
}

async fn consume(kafka: &Kafka, topic: &str, group: &str, count: usize, time: Duration) {
    let consumer = kafka
        .consumer(group)
        .group_protocol(GroupProtocol::Classic)
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .enable_auto_commit(false)
        .session_timeout(Duration::from_secs(6))
        .heartbeat_interval(Duration::from_secs(2))
        .fetch_max_wait(Duration::from_millis(500));
    let consumer = consumer.build().await.expect("a consumer");
    consumer.subscribe([topic]).await.expect("a subscription");
    let end = Instant::now() + time;
    let mut seen = HashSet::new();
    while Instant::now() < end && seen.len() < count {
        let records = match consumer.poll(Duration::from_millis(200)).await {
            Ok(records) => records,
            Err(error) => {
                println!("fault {error}");
                // An error that stays must not be asked for in a loop.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        for record in records {
            let value = String::from_utf8(record.value.unwrap_or_default().to_vec()).expect("text");
            println!("read {value} {}", record.offset);
            seen.insert(value);
            let partition = TopicPartition::new(&*record.topic, record.partition);
            if let Err(error) = consumer.commit_offsets([(partition, OffsetAndMetadata::new(record.offset + 1))]).await
            {
                println!("fault commit: {error}");
            }
        }
    }
    let _ = consumer.close().await;
}
