//! A record as it lies in the log, owned.

use bytes::Bytes;

use crate::protocol::batch::BatchView;
use crate::record::{Header, Offset, RecordView, Timestamp, TopicPartition};

/// A record as it was written, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredRecord {
    /// Where it lies.
    pub partition: TopicPartition,
    /// Its place in the partition.
    pub offset: Offset,
    /// Creation time, or the broker's append time where the topic keeps that.
    pub timestamp: Timestamp,
    /// The key, or null.
    pub key: Option<Bytes>,
    /// The value, or null for a tombstone.
    pub value: Option<Bytes>,
    /// Headers in order, repeats kept.
    pub headers: Vec<Header>,
}

impl StoredRecord {
    /// The last value under this header name, if there is one and it is not null.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().rev().find(|header| header.name == name.as_bytes())?.value.as_deref()
    }

    /// A record of `batch`, sharing its bytes.
    pub(super) fn shared(partition: &TopicPartition, batch: &BatchView, record: &RecordView<'_>) -> Self {
        Self {
            partition: partition.clone(),
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(|key| batch.share(key)),
            value: record.value.map(|value| batch.share(value)),
            headers: record
                .headers
                .iter()
                .map(|(name, value)| Header { name: batch.share(name), value: value.map(|value| batch.share(value)) })
                .collect(),
        }
    }
}
