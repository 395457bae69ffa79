//! Sending: typed payloads, stamped, acknowledged.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tracing::Instrument;

use crate::adapter::{Acknowledged, AdapterError, PublishError, Publisher, PublisherOptions};
use crate::error::WriteOutcome;
use crate::harbor::core::Core;
use crate::harbor::error::{ConfigError, HarborError, Problems};
use crate::harbor::serializer::{self, Serializer};
use crate::harbor::{Harbor, Json};
use crate::observe::{ErrorReported, ErrorScope, MessageProduced, Observers, PossiblyWritten, ProduceKind, send_span};
use crate::record::{Header, Record, Timestamp, Topic, with_owned_parts, with_place};
use crate::retry::RetryPolicy;

/// Sends payloads. Made by [`Harbor::producer`]; cheap to clone.
///
/// Every record carries the harbor's headers: a correlation id, when it was sent, and by whom. A send is done when all
/// in-sync replicas have the record.
///
/// # Examples
/// ```
/// use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
/// use kafka_harbor::harbor::{Harbor, Message};
///
/// #[derive(serde::Serialize)]
/// struct Order {
///     sku: &'static str,
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let broker = MemoryBroker::new();
/// let harbor = Harbor::builder("shop", MemoryAdapter::new(&broker)).build()?;
/// let producer = harbor.producer().build()?;
/// let written = producer.send("orders", Message::new(Order { sku: "tea" }).with_key("customer-42")).await?;
/// assert_eq!(written.partition.topic, "orders");
/// assert_eq!(broker.records("orders")[0].value.as_deref(), Some(&br#"{"sku":"tea"}"#[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Producer<S = Json> {
    core: Arc<Core>,
    publisher: Arc<dyn Publisher>,
    serializer: Arc<S>,
}

impl<S: Send + Sync + 'static> Harbor<S> {
    /// Begins a producer.
    pub fn producer(&self) -> ProducerBuilder<S> {
        ProducerBuilder { core: self.core.clone(), serializer: self.serializer.clone(), retry: RetryPolicy::default() }
    }
}

impl<S: Send + Sync + 'static> Producer<S> {
    /// Sends one record and waits until it is acknowledged.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the record back: it may still be written.
    ///
    /// # Errors
    /// As [`send_batch`](Self::send_batch).
    pub async fn send<T: Send + Sync>(
        &self,
        topic: impl Into<Topic>,
        message: Message<T>,
    ) -> Result<Acknowledged, HarborError>
    where
        S: Serializer<T>,
    {
        let mut acknowledged = self.send_batch(topic, [message]).await?;
        acknowledged.pop().ok_or_else(|| {
            let why = "the adapter acknowledged a record and did not say where";
            AdapterError::new(self.core.adapter.name(), crate::adapter::AdapterErrorKind::Refused, why).into()
        })
    }

    /// Sends records and waits until all are acknowledged; their places come in the order given. Records of one
    /// partition keep their order. All carry the same instant.
    ///
    /// All payloads are serialized before anything leaves. No record: nothing happens.
    ///
    /// # Cancel safety
    /// Dropping the future does not take records back: they may still be written.
    ///
    /// # Errors
    /// - [`HarborError::Config`] when the topic's name is empty, [`HarborError::Closed`] after a shutdown;
    /// - [`HarborError::Serialization`] when any payload cannot be written: nothing was sent then;
    /// - [`HarborError::Adapter`] when the broker cannot be reached: nothing was sent;
    /// - [`HarborError::NotPublished`] after all tries, with the outcome of each record.
    pub async fn send_batch<T: Send + Sync>(
        &self,
        topic: impl Into<Topic>,
        messages: impl IntoIterator<Item = Message<T>, IntoIter: Send>,
    ) -> Result<Vec<Acknowledged>, HarborError>
    where
        S: Serializer<T>,
    {
        let topic = topic.into();
        if topic.is_empty() {
            return Err(ConfigError::one("topic", "must not be empty").into());
        }
        self.core.check_open()?;
        let mut records = Vec::new();
        for message in messages {
            records.push(self.record(&topic, message).await?);
        }
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let stamp = self.core.stamper.at(self.core.clock.now());
        records.iter_mut().for_each(|record| stamp.send(&mut record.headers));
        self.core.connect().await?;
        let sent = publish(&*self.publisher, records, ProduceKind::Send, &self.core.observers).await;
        sent.map_err(|error| {
            let error = HarborError::from(error);
            let text = error.text();
            self.core.observers.error(&ErrorReported {
                error: error.told(&text),
                scope: ErrorScope::Producer,
                group: None,
                topic: Some(&topic),
            });
            error
        })
    }

    /// Waits until everything that was handed over is acknowledged or has failed.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    ///
    /// # Errors
    /// When the adapter is closed before.
    pub async fn flush(&self) -> Result<(), HarborError> {
        Ok(self.publisher.flush().await?)
    }

    async fn record<T>(&self, topic: &Topic, message: Message<T>) -> Result<Record, HarborError>
    where
        S: Serializer<T>,
    {
        let Message { key, payload, headers, partition, timestamp } = message;
        let value = match &payload {
            Some(payload) => Some(serializer::write(&*self.serializer, topic, payload).await?),
            None => None,
        };
        Ok(Record { topic: topic.clone(), partition, key, value, headers, timestamp })
    }
}

impl<S> Clone for Producer<S> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), publisher: self.publisher.clone(), serializer: self.serializer.clone() }
    }
}

impl<S> fmt::Debug for Producer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("publisher", &self.publisher).finish_non_exhaustive()
    }
}

/// Builds a [`Producer`].
#[must_use = "a builder does nothing until `build`"]
pub struct ProducerBuilder<S> {
    core: Arc<Core>,
    serializer: Arc<S>,
    retry: RetryPolicy,
}

impl<S: Send + Sync + 'static> ProducerBuilder<S> {
    /// What writes the payloads. Default: the harbor's.
    pub fn serializer<S2: Send + Sync + 'static>(self, serializer: S2) -> ProducerBuilder<S2> {
        ProducerBuilder { core: self.core, serializer: Arc::new(serializer), retry: self.retry }
    }

    /// Tries, and the waits between them. Default: five tries, exponential waits with full jitter. A refusal that is
    /// final is not tried again.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// The producer. Nothing is connected yet.
    ///
    /// # Errors
    /// With every mistake by the name of its option, or when the harbor is closed.
    pub fn build(self) -> Result<Producer<S>, HarborError> {
        let mut problems = Problems::default();
        if self.retry.attempts == 0 {
            problems.add("retry.attempts", "must be at least 1");
        }
        problems.finish()?;
        self.core.check_open()?;
        let publisher = self.core.adapter.publisher(PublisherOptions::with_retry(self.retry))?;
        Ok(Producer { core: self.core, publisher, serializer: self.serializer })
    }
}

impl<S> fmt::Debug for ProducerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProducerBuilder").field("retry", &self.retry).finish_non_exhaustive()
    }
}

/// A payload to send, and what goes with it.
///
/// The harbor's own headers are written over those given, but for a correlation id that is not blank. A retry's wait
/// counts from the timestamp, where one is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<T> {
    key: Option<Bytes>,
    payload: Option<T>,
    headers: Vec<Header>,
    partition: Option<i32>,
    timestamp: Option<Timestamp>,
}

impl<T> Message<T> {
    /// A message with this payload, without key and headers.
    pub fn new(payload: T) -> Self {
        Self { payload: Some(payload), ..Self::nothing() }
    }

    /// A message whose value is null, without asking the serializer: on a compacted topic it deletes its key.
    pub fn tombstone(key: impl Into<Bytes>) -> Self {
        Self { key: Some(key.into()), ..Self::nothing() }
    }

    with_owned_parts!();
    with_place!();

    fn nothing() -> Self {
        Self { key: None, payload: None, headers: Vec::new(), partition: None, timestamp: None }
    }
}

/// Publishes records and tells the observers, topic by topic: of those acknowledged, and of those that may be in the
/// log all the same.
pub(crate) async fn publish(
    publisher: &dyn Publisher,
    records: Vec<Record>,
    kind: ProduceKind,
    observers: &Observers,
) -> Result<Vec<Acknowledged>, PublishError> {
    let topics: Vec<Topic> = records.iter().map(|record| record.topic.clone()).collect();
    let Some(first) = topics.first() else { return Ok(Vec::new()) };
    let span = send_span(first, kind, topics.len());
    let started = Instant::now();
    let result = publisher.publish(records).instrument(span).await;
    let duration = started.elapsed();
    match &result {
        Ok(_) => tell(observers, kind, duration, topics.iter().map(|topic| (topic, Fate::Acknowledged))),
        Err(error) => {
            let fates = error.outcomes.iter().map(|outcome| match outcome {
                Ok(_) => Fate::Acknowledged,
                Err(failure) if failure.outcome == WriteOutcome::PossiblyWritten => Fate::PossiblyWritten,
                Err(_) => Fate::NotWritten,
            });
            tell(observers, kind, duration, topics.iter().zip(fates));
        }
    }
    result
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Acknowledged,
    PossiblyWritten,
    NotWritten,
}

fn tell<'a>(
    observers: &Observers,
    kind: ProduceKind,
    duration: Duration,
    fates: impl Iterator<Item = (&'a Topic, Fate)>,
) {
    let mut counts: BTreeMap<(&Topic, Fate), usize> = BTreeMap::new();
    fates.for_each(|fate| *counts.entry(fate).or_default() += 1);
    for ((topic, fate), records) in counts {
        match fate {
            Fate::Acknowledged => observers.message_produced(&MessageProduced { topic, kind, records, duration }),
            Fate::PossiblyWritten => observers.possibly_written(&PossiblyWritten { topic, kind, records }),
            Fate::NotWritten => {}
        }
    }
}
