//! What a membership tells, printed: assignments, and records as the client hands them over.

use std::sync::Mutex;

use kafka_harbor::adapter::{Assigned, Event, PartitionBatch};
use kafka_harbor::record::TopicPartition;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::output::{emit, show};

/// Prints the events of the one membership.
#[derive(Debug)]
pub(crate) struct Printer {
    records: bool,
    assigned: watch::Sender<bool>,
    owned: Mutex<Vec<TopicPartition>>,
}

impl Printer {
    /// Prints assignments, and records if `records`. The receiver turns true with the first assignment.
    pub(crate) fn new(records: bool) -> (Self, watch::Receiver<bool>) {
        let (assigned, is_assigned) = watch::channel(false);
        (Self { records, assigned, owned: Mutex::default() }, is_assigned)
    }

    pub(crate) fn tell(&self, event: &Event) {
        match event {
            Event::Assigned(assignments) => {
                let came = assignments.iter().map(|assignment| assignment.assigned.partition.clone());
                let positions: Vec<_> = assignments.iter().map(|assignment| assignment.position.to_string()).collect();
                self.changed("assigned", came.collect(), |owned, came| owned.extend_from_slice(came), &positions);
                self.assigned.send_replace(true);
            }
            Event::Revoked(partitions, _) => self.gone("revoked", partitions),
            Event::Lost(partitions) => self.gone("lost", partitions),
            Event::Batch(batch) if self.records => records(batch),
            _ => {}
        }
    }

    fn gone(&self, event: &str, partitions: &[Assigned]) {
        let gone = partitions.iter().map(|assigned| assigned.partition.clone()).collect();
        self.changed(event, gone, |owned, gone| owned.retain(|partition| !gone.contains(partition)), &[]);
    }

    fn changed(
        &self,
        event: &str,
        partitions: Vec<TopicPartition>,
        change: impl FnOnce(&mut Vec<TopicPartition>, &[TopicPartition]),
        positions: &[String],
    ) {
        let mut owned = self.owned.lock().expect("nothing panics while it is held");
        change(&mut owned, &partitions);
        owned.sort();
        let mut fields = json!({ "partitions": pairs(&partitions), "owned": pairs(&owned) });
        if !positions.is_empty() {
            fields["positions"] = positions.into();
        }
        emit(event, fields);
    }
}

fn pairs(partitions: &[TopicPartition]) -> Vec<Value> {
    partitions.iter().map(|partition| json!([partition.topic.as_str(), partition.partition])).collect()
}

fn records(batch: &PartitionBatch) {
    let partition = &batch.assigned.partition;
    for record in batch.records.iter().map_while(Result::ok) {
        let headers = record.headers.iter().map(|(name, value)| json!([show(Some(name)), show(value)]));
        emit(
            "record",
            json!({
                "topic": partition.topic.as_str(), "partition": partition.partition, "offset": record.offset.to_string(),
                "timestamp": record.timestamp.0, "key": show(record.key), "value": show(record.value),
                "headers": headers.collect::<Vec<_>>(),
            }),
        );
    }
}
