//! Numbered records that come in while nodes go and come.

use kafka_harbor::client::Producer;
use kafka_harbor::record::{Record, Topic};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::SECOND;
use super::memberships::PATIENCE;

/// A producer at work, every record of which has to be acknowledged.
pub(super) struct Feed {
    stop: watch::Sender<bool>,
    task: JoinHandle<usize>,
}

impl Feed {
    /// A hundred a second, acknowledged by two nodes at least.
    pub(super) fn start(producer: Producer, topic: Topic) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut deliveries = Vec::new();
            let mut tick = tokio::time::interval(SECOND / 20);
            while !*stopped.borrow() {
                tick.tick().await;
                for _ in 0..5 {
                    let value = deliveries.len().to_string();
                    let record = Record::new(&topic, value.clone()).with_key(value);
                    deliveries.push(producer.enqueue(record).await.unwrap());
                }
            }
            let fed = deliveries.len();
            for delivery in deliveries {
                delivery.await.expect("two nodes of three take every record");
            }
            fed
        });
        Self { stop, task }
    }

    /// How many there were: the numbers below it.
    pub(super) async fn end(self) -> usize {
        self.stop.send(true).unwrap();
        tokio::time::timeout(2 * PATIENCE, self.task).await.expect("every send ends").unwrap()
    }
}
