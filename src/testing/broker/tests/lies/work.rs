//! What is done while the broker lies.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::liar::Liar;
use crate::client::{CommitPosition, ConsumerEvent, GroupProtocol, OffsetReset, PartitionBatch, Producer};
use crate::error::WriteOutcome;
use crate::record::Record;

/// Who shares the partitions out.
#[derive(Debug, Clone, Copy)]
pub(super) enum Groups {
    Members,
    Coordinator,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Ran {
    pub(super) acknowledged: Vec<String>,
    /// What could not be sent at all.
    pub(super) unsent: Vec<String>,
    /// In order, without what came again.
    pub(super) read: Vec<String>,
    pub(super) faults: Vec<String>,
}

/// Writes, reads in a group, commits, leaves.
pub(super) async fn work(liar: &Liar, groups: Groups) -> Ran {
    let mut ran = Ran::default();
    let client = liar.client();
    // How long a lie that does not end is borne shows nothing more.
    let (records, timeout) = if liar.ends() { (RECORDS, 20) } else { (1, 8) };
    let producer = client.producer().delivery_timeout(Duration::from_secs(timeout)).build().expect("sound options");
    for number in 0..records {
        send(liar, &producer, format!("value-{number}"), &mut ran).await;
    }
    let _ = producer.close(Duration::from_secs(5)).await;
    read(liar, groups, &mut ran).await;
    let _ = client.close(Duration::from_secs(5)).await;
    ran
}

/// An application that tries again what certainly was not written.
async fn send(liar: &Liar, producer: &Producer, value: String, ran: &mut Ran) {
    for _ in 0..if liar.ends() { TRIES } else { 1 } {
        match producer.send(Record::new("t", value.clone()).with_partition(0)).await {
            Ok(_) => return ran.acknowledged.push(value),
            Err(error) => {
                ran.faults.push(error.to_string());
                if error.outcome == WriteOutcome::PossiblyWritten {
                    break;
                }
            }
        }
    }
    ran.unsent.push(value);
}

async fn read(liar: &Liar, groups: Groups, ran: &mut Ran) {
    let client = liar.client();
    let protocol = match groups {
        Groups::Members => GroupProtocol::Classic,
        Groups::Coordinator => GroupProtocol::Consumer,
    };
    let consumer = client.consumer("g").topic("t", OffsetReset::Earliest).group_protocol(protocol);
    let consumer = consumer.commit_timeout(Duration::from_secs(20)).fetch_max_wait(Duration::from_millis(100));
    let mut consumer = consumer.build().expect("sound options");
    // What is there twice comes once.
    let all = liar.log().into_iter().collect::<BTreeSet<_>>().len();
    let deadline = Instant::now() + if liar.ends() { PATIENCE } else { PATIENCE / 60 };
    while ran.read.len() < all {
        match timeout_at(deadline, consumer.next()).await {
            Ok(Some(ConsumerEvent::Batch(batch))) => {
                take(&batch, ran);
                let position = CommitPosition::new(batch.assigned.clone(), batch.next_offset);
                if let Err(error) = consumer.handle().commit(vec![position]).await {
                    ran.faults.push(error.to_string());
                }
            }
            Ok(Some(ConsumerEvent::Revoked(_, release))) => release.send(),
            Ok(Some(ConsumerEvent::Fault(error))) => {
                ran.faults.push(error.to_string());
                if error.is_fatal() {
                    break;
                }
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    let _ = consumer.close(Duration::from_secs(10)).await;
    let _ = client.close(Duration::from_secs(5)).await;
}

fn take(batch: &PartitionBatch, ran: &mut Ran) {
    for record in batch.batches.iter().flat_map(|view| view.records()) {
        let record = record.expect("its checksum is right");
        let value = String::from_utf8(record.value.expect("a value").to_vec()).expect("text");
        if record.offset >= batch.from && !ran.read.contains(&value) {
            ran.read.push(value);
        }
    }
}

const RECORDS: usize = 6;
const TRIES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(900);
