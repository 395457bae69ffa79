//! What a handler may know of the delivery besides its payload.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use crate::harbor::cancel::CancelSignal;
use crate::harbor::headers::{HeaderNames, RetryBlock};
use crate::protocol::batch::BatchView;
use crate::record::{HeadersView, Offset, RecordView, Timestamp, Topic, TopicPartition};

/// The delivery that a handler is at: where the record comes from, what it carries beside the value, and a signal to
/// end early.
///
/// A handler that does not ask for it pays nothing for it. It shares the bytes of the batch it came in: a handler that
/// keeps one for long keeps that batch in memory.
#[derive(Debug, Clone)]
pub struct Context {
    source: Arc<Source>,
    offset: Offset,
    timestamp: Timestamp,
    key: Option<Bytes>,
    header_count: usize,
    headers: Bytes,
    attempt: u32,
    retry: Option<Box<RetryBlock>>,
    cancel: CancelSignal,
}

/// What is the same for every record of a partition.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) group: Arc<str>,
    pub(crate) partition: TopicPartition,
    pub(crate) names: HeaderNames,
}

impl Context {
    /// The context of a record.
    pub(crate) fn new(
        source: &Arc<Source>,
        batch: &BatchView,
        record: &RecordView<'_>,
        attempt: u32,
        retry: Option<RetryBlock>,
        cancel: &CancelSignal,
    ) -> Self {
        let headers = if record.headers.is_empty() { Bytes::new() } else { batch.share(record.headers.encoded()) };
        Self {
            source: source.clone(),
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(|key| batch.share(key)),
            header_count: record.headers.len(),
            headers,
            attempt,
            retry: retry.map(Box::new),
            cancel: cancel.clone(),
        }
    }

    /// The consumer's group.
    pub fn group(&self) -> &str {
        &self.source.group
    }

    /// The topic that the record was read from: on a retry, the retry topic.
    pub fn topic(&self) -> &Topic {
        &self.source.partition.topic
    }

    /// The partition that it was read from.
    pub fn partition(&self) -> i32 {
        self.source.partition.partition
    }

    /// Its offset there.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// Its timestamp: on a retry, of the hop.
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// The key, or null.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// The headers in order, repeats kept.
    pub fn headers(&self) -> HeadersView<'_> {
        HeadersView::take(self.header_count, &mut &self.headers[..]).unwrap_or_default()
    }

    /// The last value of a header as text; `None` when it is absent or null. What is no UTF-8 is replaced.
    pub fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        self.headers().last(name.as_bytes()).flatten().map(String::from_utf8_lossy)
    }

    /// The id that ties together what came of one send; `None` when the record carries none.
    pub fn correlation_id(&self) -> Option<Cow<'_, str>> {
        self.header(self.source.names.correlation_id())
    }

    /// Which try this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What the tries before this one left, if this is a retry and its headers make sense.
    pub fn retry(&self) -> Option<&RetryBlock> {
        self.retry.as_deref()
    }

    /// Fires when the handler is to end: its time is up, or nothing that it does counts any more.
    pub fn cancel(&self) -> &CancelSignal {
        &self.cancel
    }
}
