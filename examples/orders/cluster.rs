//! Which broker the story runs on.

use std::error::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kafka_harbor::adapter::Adapter;
use kafka_harbor::adapter::kafka::KafkaAdapter;
use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
use kafka_harbor::record::NewTopic;

pub(crate) struct Cluster {
    /// For people.
    pub(crate) name: String,
    pub(crate) adapter: Arc<dyn Adapter>,
    suffix: String,
}

/// The in-process broker, or the Kafka that `--bootstrap HOST:PORT` names.
pub(crate) fn from_arguments() -> Result<Cluster, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(Cluster {
            name: "the in-process broker".to_owned(),
            adapter: Arc::new(MemoryAdapter::new(&MemoryBroker::new())),
            suffix: String::new(),
        }),
        ["--bootstrap" | "--brokers", bootstrap] => {
            let millis = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
            Ok(Cluster {
                name: format!("Kafka at {bootstrap}"),
                adapter: Arc::new(KafkaAdapter::builder(bootstrap.split(',')).build()?),
                suffix: format!("-{millis}"),
            })
        }
        _ => Err("usage: orders [--bootstrap HOST:PORT]".into()),
    }
}

impl Cluster {
    pub(crate) fn topic(&self, name: &str) -> String {
        format!("{name}{}", self.suffix)
    }

    pub(crate) async fn create(&self, topic: &str, partitions: i32) -> Result<(), Box<dyn Error>> {
        Ok(self.adapter.create_topics(&[NewTopic::new(topic).with_partitions(partitions)]).await?)
    }
}
