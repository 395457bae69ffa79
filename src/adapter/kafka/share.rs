//! A membership by a share consumer: record by record (KIP-932).
//!
//! [`KafkaAdapterBuilder::share_groups`](super::KafkaAdapterBuilder::share_groups) puts [`join`] behind a pointer, so that a program
//! without share groups does not carry them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uuid::Uuid;

use super::settings::KafkaSettings;
use super::{Joined, LeaveWithin, NAME};
use crate::adapter::{
    AdapterError, AdapterErrorKind, Assigned, BoxFuture, DeliveredBatch, DeliveredRange, Event, EventSource,
    JoinOptions, Membership, MembershipHandle, Position, Receipts, RecordSet, RecordSettleFailure, RecordSettlement,
    ResumeFrom, SettleError, SettleFailure, SettleRecordsError,
};
use crate::client::{
    AcknowledgeCause, AcknowledgeFailed, AcknowledgeType, Acknowledgement, AcquisitionLock, Client, ShareBatch,
    ShareConsumer, ShareError, ShareEvent, ShareHandle,
};
use crate::record::{Offset, TopicPartition};

/// Joins a share group.
pub(super) fn join<'a>(
    client: &'a Client,
    settings: &'a KafkaSettings,
    options: JoinOptions,
) -> BoxFuture<'a, Result<Joined, AdapterError>> {
    Box::pin(async move {
        let what = format!("joining share group {}", options.group);
        let consumer = settings.share_consumer(client, &options).build().map_err(|error| {
            AdapterError::new(NAME, AdapterErrorKind::Unsupported, format_args!("{what}: {error}")).with_source(error)
        })?;
        consumer.joined(settings.admin_timeout).await.map_err(share_error)?;
        let handle = Arc::new(ShareMembership { consumer: consumer.handle().clone(), group: options.group });
        let leaves: Arc<dyn LeaveWithin> = handle.clone();
        Ok((Membership { events: Box::new(ShareEvents(consumer)), handle }, leaves))
    })
}

/// What the consumer says, in the port's words. Dropped, it leaves the group.
struct ShareEvents(ShareConsumer);

impl EventSource for ShareEvents {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_next(cx).map(|event| {
            event.map(|event| match event {
                ShareEvent::Batch(batch) => Event::Delivered(delivered(batch)),
                ShareEvent::Fault(error) => Event::Fault(share_error(error)),
            })
        })
    }
}

fn delivered(batch: ShareBatch) -> DeliveredBatch {
    let ranges = batch.acquired.iter().map(|range| DeliveredRange {
        first: range.first,
        last: range.last,
        delivery_count: range.delivery_count.into(),
    });
    let from = batch.acquired.first().map_or(Offset(0), |range| range.first);
    DeliveredBatch {
        partition: batch.partition().clone(),
        records: RecordSet::new(batch.batches().to_vec(), from),
        delivered: ranges.collect(),
        until: Some(batch.locked_until),
        receipts: Arc::new(LockReceipts(batch.lock.clone())),
        hold: Some(Box::new(batch)),
    }
}

/// Receipts of what was acquired by one lock: session, topic's id, partition, offset, topic's name.
struct LockReceipts(AcquisitionLock);

impl Receipts for LockReceipts {
    fn receipt(&self, offset: Offset) -> Bytes {
        let AcquisitionLock { partition, topic_id, session } = &self.0;
        let mut receipt = BytesMut::with_capacity(FIXED_BYTES + partition.topic.len());
        receipt.put_u64(*session);
        receipt.put_slice(topic_id.as_bytes());
        receipt.put_i32(partition.partition);
        receipt.put_i64(offset.0);
        receipt.put_slice(partition.topic.as_bytes());
        receipt.freeze()
    }
}

/// The lock and the offset that a receipt names.
fn read_receipt(mut receipt: &[u8]) -> Option<(AcquisitionLock, Offset)> {
    if receipt.len() < FIXED_BYTES {
        return None;
    }
    let session = receipt.get_u64();
    let topic_id = Uuid::from_u128(receipt.get_u128());
    let (partition, offset) = (receipt.get_i32(), Offset(receipt.get_i64()));
    let partition = TopicPartition::new(std::str::from_utf8(receipt).ok()?, partition);
    Some((AcquisitionLock { partition, topic_id, session }, offset))
}

/// What is said to the consumer.
struct ShareMembership {
    consumer: ShareHandle,
    group: String,
}

impl ShareMembership {
    async fn settle_each(&self, receipts: Vec<(Bytes, RecordSettlement)>) -> Result<(), SettleRecordsError> {
        let mut failures = Vec::new();
        let mut asked = HashMap::new();
        let mut acknowledgements = Vec::new();
        for (receipt, settlement) in receipts {
            let entry = acknowledgement(&receipt, settlement).map_err(|what| {
                let what = format_args!("share group {}: {what}", self.group);
                AdapterError::new(NAME, AdapterErrorKind::Unsupported, what)
            });
            match entry {
                Ok(entry) => {
                    asked.insert((entry.lock.clone(), entry.first), (receipt, settlement));
                    acknowledgements.push(entry);
                }
                Err(error) => {
                    let error = Arc::new(error);
                    failures.push(RecordSettleFailure { receipt, settlement, error, lost: false });
                }
            }
        }
        if let Err(error) = self.consumer.acknowledge(acknowledgements).await {
            for failed in error.failures {
                let of_it = asked.remove(&(failed.acknowledgement.lock.clone(), failed.acknowledgement.first));
                let Some((receipt, settlement)) = of_it else { continue };
                let (error, lost) = (Arc::new(self.error(&failed)), failed.is_lost());
                failures.push(RecordSettleFailure { receipt, settlement, error, lost });
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(SettleRecordsError::new(failures)) }
    }

    fn error(&self, failed: &AcknowledgeFailed) -> AdapterError {
        let (kind, retryable) = match &failed.cause {
            AcknowledgeCause::Lost => (AdapterErrorKind::Refused, false),
            AcknowledgeCause::Refused(code) => (AdapterErrorKind::Refused, code.is_retriable()),
            AcknowledgeCause::CannotRenew => (AdapterErrorKind::Unsupported, false),
            // It may have happened; trying again tells.
            AcknowledgeCause::Unknown { .. } | AcknowledgeCause::TooMany => (AdapterErrorKind::Unavailable, true),
        };
        let what = format_args!("share group {}: {failed}", self.group);
        AdapterError::new(NAME, kind, what).with_retryable(retryable)
    }
}

fn acknowledgement(receipt: &[u8], settlement: RecordSettlement) -> Result<Acknowledgement, &'static str> {
    let kind = match settlement {
        RecordSettlement::Accept => AcknowledgeType::Accept,
        RecordSettlement::Release(None) => AcknowledgeType::Release,
        RecordSettlement::Release(Some(_)) => return Err("a record cannot be released for later"),
        RecordSettlement::Reject => AcknowledgeType::Reject,
        RecordSettlement::Renew => AcknowledgeType::Renew,
    };
    let (lock, offset) = read_receipt(receipt).ok_or("this is no receipt of a share group")?;
    Ok(Acknowledgement { lock, first: offset, last: offset, kind })
}

impl MembershipHandle for ShareMembership {
    fn settle(&self, positions: Vec<Position>) -> BoxFuture<'_, Result<(), SettleError>> {
        let what = format_args!("share group {}: it keeps records, not positions", self.group);
        let error = Arc::new(AdapterError::new(NAME, AdapterErrorKind::Unsupported, what));
        let failed = |position| SettleFailure { position, error: error.clone(), lost: false };
        let error = SettleError::new(positions.into_iter().map(failed).collect());
        Box::pin(async move { if error.failures.is_empty() { Ok(()) } else { Err(error) } })
    }

    fn settle_records(
        &self,
        receipts: Vec<(Bytes, RecordSettlement)>,
    ) -> BoxFuture<'_, Result<(), SettleRecordsError>> {
        Box::pin(self.settle_each(receipts))
    }

    /// Nothing is assigned, and nothing is fetched that nobody waits for.
    fn pause(&self, _assigned: &Assigned) {}

    fn resume(&self, _assigned: &Assigned, _from: ResumeFrom) {}

    fn leave(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        self.leave_within(timeout)
    }
}

impl LeaveWithin for ShareMembership {
    fn leave_within(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async move { self.consumer.leave(timeout).await.map_err(share_error) })
    }
}

impl fmt::Debug for ShareMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareMembership").field("group", &self.group).finish_non_exhaustive()
    }
}

/// A failure of a membership in the port's words.
fn share_error(error: ShareError) -> AdapterError {
    let kind = match &error {
        ShareError::Unreachable { .. } | ShareError::Unanswered { .. } | ShareError::NotInTime { .. } => {
            AdapterErrorKind::Unavailable
        }
        ShareError::TopicsMissing { topics, .. } => match topics.first() {
            Some(topic) => AdapterErrorKind::TopicMissing(topic.clone()),
            None => AdapterErrorKind::Refused,
        },
        ShareError::Ended { .. } => AdapterErrorKind::Closed,
        error if error.is_fatal() => AdapterErrorKind::Fenced,
        _ => AdapterErrorKind::Refused,
    };
    let retryable = !error.is_fatal();
    AdapterError::new(NAME, kind, &error).with_retryable(retryable).with_source(error)
}

/// Of a receipt without the topic's name.
const FIXED_BYTES: usize = 8 + 16 + 4 + 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_says_which_record_of_which_session_it_is() {
        let partition = TopicPartition::new("orders", 3);
        let lock = AcquisitionLock { partition, topic_id: Uuid::from_u128(7), session: 9 };
        let receipt = LockReceipts(lock.clone()).receipt(Offset(42));
        assert_eq!(read_receipt(&receipt), Some((lock, Offset(42))));
        assert_eq!(read_receipt(&receipt[..20]), None);
        assert_eq!(acknowledgement(b"x", RecordSettlement::Accept), Err("this is no receipt of a share group"));
        let later = RecordSettlement::Release(Some(Duration::from_secs(1)));
        assert_eq!(acknowledgement(&receipt, later), Err("a record cannot be released for later"));
    }
}
