//! The producer.
//!
//! ```text
//!   send, send_batch ──► TopicTable ──► PartitionBuffer        (the caller's task; encoded at once)
//!                         partition        │ signal, when one begins or is full
//!                                          ▼
//!                        driver: Produce (machine) ──► one connection a broker
//!                                          │
//!   Delivery ◄── Ticket ◄─── verdict ──────┘
//! ```

mod chunk;
mod config;
mod driver;
mod line;
mod shared;
mod table;
#[cfg(test)]
mod tests;
mod ticket;
mod transactional;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::chunk::{Chunk, Progress};
use self::config::ProducerConfig;
use self::line::Place;
use self::shared::{Ending, Flush, Queued, Shared, not_written};
use self::table::TopicTable;
use crate::client::{ClientError, Cluster, deadline_in, now};
use crate::machine::produce::{ProduceError, ProduceErrorKind, SharedError, Signal, is_definitive};
use crate::protocol::error_code::ErrorCode;
use crate::record::{Record, RecordRef, Topic};

pub use self::config::ProducerBuilder;
pub(super) use self::ticket::Ticket;
pub use self::ticket::{BatchError, Delivery, RecordMetadata};
pub(super) use self::transactional::{TransactionHead, Transactional, Waker};

/// Writes records to Kafka. Cheap to clone; all clones share memory, connections and batches.
///
/// Records of one partition are written in the order in which they were queued, each once: batches are numbered, and what is
/// sent again after an unknown outcome is known to the broker by its number (idempotence, KIP-98). A failure says whether the
/// record may have been written all the same ([`ProduceError::outcome`]).
///
/// With the last clone the producer ends, without waiting: what was not sent fails as not written. To send what waits,
/// [`close`](Self::close) it, or [`flush`](Self::flush) before.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use kafka_harbor::client::Client;
/// use kafka_harbor::record::{Record, RecordRef};
///
/// let client = Client::builder(["localhost:9092"]).build()?;
/// let producer = client.producer().build()?;
///
/// // One record, and where it was written.
/// let written = producer.send(Record::new("orders", "created").with_key("order-1")).await?;
/// println!("partition {}, offset {:?}", written.partition, written.offset);
///
/// // Many: nothing is copied but into the batch that is sent.
/// let values = ["a", "b", "c"];
/// producer.send_batch("orders", values.iter().map(|value| RecordRef::new(value.as_bytes()))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Producer(Arc<Owner>);

impl Producer {
    fn new(cluster: Cluster, config: ProducerConfig) -> Self {
        Self(Arc::new(Owner(Arc::new(Shared::new(cluster, config)))))
    }

    /// Sends a record and waits for its acknowledgement.
    ///
    /// # Errors
    /// When it was not acknowledged. The error is shared with the other records of its batch.
    ///
    /// # Cancel safety
    /// Dropping the future before it was polled sends nothing. Later, the record may be queued and is then sent all the same.
    pub async fn send(&self, record: Record) -> Result<RecordMetadata, Arc<ProduceError>> {
        self.enqueue(record).await?.await
    }

    /// Queues a record and answers a future of its acknowledgement, so that many can be on their way.
    ///
    /// Waits only while its topic's partitions are not known, or buffer memory is used up.
    ///
    /// # Ordering
    /// Records of one partition are written in the order in which these calls return. Calls for one topic return in the order in
    /// which they were first polled, those that have to wait too.
    ///
    /// # Errors
    /// When it could not be queued. It is not written then.
    ///
    /// # Cancel safety
    /// A call that has not returned has not queued the record.
    pub async fn enqueue(&self, record: Record) -> Result<Delivery, Arc<ProduceError>> {
        self.enqueue_ref(&record.topic, RecordRef::from(&record)).await
    }

    /// As [`enqueue`](Self::enqueue) for a borrowed record, which costs its caller no allocation.
    ///
    /// # Errors
    /// When it could not be queued. It is not written then.
    ///
    /// # Cancel safety
    /// A call that has not returned has not queued the record.
    pub async fn enqueue_ref(&self, topic: &Topic, record: RecordRef<'_>) -> Result<Delivery, Arc<ProduceError>> {
        let shared = self.shared();
        let bytes = record.encoded_bytes_at_most();
        let appended = match shared.try_append(topic, &record, bytes) {
            Some(appended) => appended,
            None => self.append_later(topic, &record, bytes).await,
        };
        let (delivery, signal) = appended?;
        if signal == Some(Signal::Filled) {
            // A caller that never waits would keep the batch it has filled from leaving.
            tokio::task::yield_now().await;
        }
        Ok(delivery)
    }

    /// Sends records of one topic and waits until all are acknowledged.
    ///
    /// The way for many records: nothing is allocated, locked or timed a record, and key, value and headers are copied once, into
    /// the batch that is sent. `records` is asked for more as memory allows, so it may be longer than fits in there.
    ///
    /// # Ordering
    /// Records of one partition are written in the order given. Between two of them others' may come.
    ///
    /// # Errors
    /// If any record was not acknowledged, with an outcome for each.
    ///
    /// # Cancel safety
    /// Dropping the future leaves what was queued to be sent, and takes no further records.
    pub async fn send_batch<'a, I>(&self, topic: impl Into<Topic>, records: I) -> Result<(), BatchError>
    where
        I: IntoIterator<Item = RecordRef<'a>>,
    {
        let topic = topic.into();
        let mut records = records.into_iter();
        let mut progress = Progress::default();
        let mut chunk = Chunk::new();
        let failed = self.queue_all(&topic, &mut records, &mut chunk, &mut progress).await;
        if let Err(error) = failed {
            progress.push_failures(chunk.left() + records.count(), &error);
        }
        progress.finish().await
    }

    /// Sends records, of any topics, and waits for all of their acknowledgements, in the order given.
    ///
    /// # Errors
    /// If any record was not acknowledged, with an outcome for each.
    ///
    /// # Cancel safety
    /// Dropping the future leaves what was queued to be sent.
    pub async fn send_all(&self, records: Vec<Record>) -> Result<Vec<RecordMetadata>, BatchError> {
        let mut deliveries = Vec::with_capacity(records.len());
        for record in records {
            deliveries.push(self.enqueue(record).await);
        }
        let mut outcomes = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            outcomes.push(match delivery {
                Ok(delivery) => delivery.await,
                Err(error) => Err(error),
            });
        }
        if outcomes.iter().all(Result::is_ok) {
            return Ok(outcomes.into_iter().flatten().collect());
        }
        Err(BatchError { outcomes })
    }

    /// Sends what waits without lingering, and returns when every record that was queued before this call is acknowledged or
    /// has failed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the records are sent all the same.
    pub async fn flush(&self) {
        // A driver that ends has settled everything.
        let _ = self.flushed().await;
    }

    /// As [`flush`](Self::flush); false if the producer ended before.
    pub(crate) async fn flushed(&self) -> bool {
        match self.shared().request_flush() {
            Flush::Nothing => true,
            Flush::UnderWay(flushed) => flushed.await.is_ok(),
            Flush::Ended => false,
        }
    }

    /// Refuses further records, sends what waits, and ends the producer, for all its clones. Sends that have not queued their
    /// record, because its topic's partitions are not known or memory is used up, fail at once.
    ///
    /// # Errors
    /// When `timeout` was not enough: what was not acknowledged by then has failed as [`ProduceErrorKind::Closed`], and the error
    /// says how many records that are.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the producer closing, without the deadline.
    pub async fn close(&self, timeout: Duration) -> Result<(), Unfinished> {
        let shared = self.shared();
        let ended = shared.request_end(Ending::Drain);
        let Some(mut ended) = ended else { return Ok(()) };
        let records = match tokio::time::timeout(timeout, &mut ended).await {
            Ok(records) => records,
            Err(_) => {
                shared.end_now();
                ended.await
            }
        };
        match records.unwrap_or(0) {
            0 => Ok(()),
            records => Err(Unfinished { records }),
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Appends a record for which something has to be waited for.
    #[cold]
    async fn append_later(&self, topic: &Topic, record: &RecordRef<'_>, bytes: usize) -> Queued {
        let shared = self.shared();
        let limit = shared.record_limit();
        if bytes > limit {
            return Err(not_written(topic, None, ProduceErrorKind::TooLarge { bytes, limit }, None));
        }
        let mut place = shared.lines.stand(topic);
        shared.unless_ending(topic, self.append_in_turn(&mut place, topic, record, bytes)).await
    }

    async fn append_in_turn(
        &self,
        place: &mut Place<'_>,
        topic: &Topic,
        record: &RecordRef<'_>,
        bytes: usize,
    ) -> Queued {
        let shared = self.shared();
        let deadline = deadline_in(shared.config.max_block);
        if tokio::time::timeout_at(deadline.into(), place.reached()).await.is_err() {
            return Err(shared.blocked(topic, "its turn", None));
        }
        let mut table = match shared.table(topic) {
            Some(table) => table,
            None => self.lookup(topic, deadline).await?,
        };
        if let Some(partition) = record.partition.filter(|partition| *partition >= table.slots.len() as i32) {
            table = self.look_again(&table, partition, deadline).await?;
        }
        let permit = match shared.budget.try_acquire_many(bytes as u32) {
            Ok(permit) => permit,
            Err(_) => shared.room(topic, bytes, deadline).await?,
        };
        let queued = shared.append(&table, record, bytes)?;
        permit.forget();
        Ok(queued)
    }

    async fn queue_all<'a>(
        &self,
        topic: &Topic,
        records: &mut impl Iterator<Item = RecordRef<'a>>,
        chunk: &mut Chunk<'a>,
        progress: &mut Progress,
    ) -> Result<(), Arc<ProduceError>> {
        let shared = self.shared();
        let mut table: Option<Arc<TopicTable>> = None;
        let limit = shared.record_limit();
        loop {
            chunk.fill(records, limit);
            if chunk.is_empty() {
                let Some(bytes) = chunk.take_oversized(limit) else { return Ok(()) };
                let kind = ProduceErrorKind::TooLarge { bytes, limit };
                progress.push_failure(not_written(topic, None, kind, None));
                continue;
            }
            let table = match &table {
                Some(table) => table,
                None => table.insert(match shared.table(topic) {
                    Some(table) => table,
                    None => {
                        let lookup = self.lookup(topic, deadline_in(shared.config.max_block));
                        shared.unless_ending(topic, lookup).await?
                    }
                }),
            };
            let bytes = chunk.bytes();
            let permit = match shared.budget.try_acquire_many(bytes as u32) {
                Ok(permit) => permit,
                Err(_) => {
                    let room = shared.room(topic, bytes, deadline_in(shared.config.max_block));
                    shared.unless_ending(topic, room).await?
                }
            };
            permit.forget();
            if shared.append_chunk(table, chunk, progress) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Asks for a topic's partitions until they are known.
    async fn lookup(&self, topic: &Topic, deadline: Instant) -> Result<Arc<TopicTable>, Arc<ProduceError>> {
        let shared = self.shared();
        let topics = [topic.clone()];
        let mut answer = shared.cluster.topics(&topics, deadline).await;
        for failures in 1.. {
            let failure = match answer {
                Ok(view) => match view.topic(topic) {
                    Some(found) if !found.partitions.is_empty() => {
                        let partitions = found.partitions.len();
                        return shared.make_table(topic, partitions);
                    }
                    found => {
                        let code = found.map_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, |topic| topic.error);
                        if is_definitive(code) {
                            let kind = ProduceErrorKind::Refused { code, message: None };
                            return Err(not_written(topic, None, kind, None));
                        }
                        ClientError::refused(format_args!("metadata of {topic}"), code, None)
                    }
                },
                Err(error @ ClientError::Closed) => {
                    return Err(not_written(topic, None, ProduceErrorKind::Closed, Some(SharedError::new(error))));
                }
                Err(error @ ClientError::Misuse { .. }) => {
                    return Err(not_written(topic, None, ProduceErrorKind::Lookup, Some(SharedError::new(error))));
                }
                Err(error) if error.is_locked_out() => {
                    return Err(not_written(topic, None, ProduceErrorKind::LockedOut, Some(SharedError::new(error))));
                }
                Err(error) => error,
            };
            let wait = shared.cluster.config().retry_delay(failures);
            if now() + wait >= deadline {
                return Err(shared.blocked(topic, "its topic's partitions", Some(SharedError::new(failure))));
            }
            tokio::time::sleep(wait).await;
            answer = shared.cluster.refreshed(&topics, deadline).await;
        }
        unreachable!("the deadline ends the loop")
    }

    /// A partition that is not known may be new: asks once.
    async fn look_again(
        &self,
        table: &TopicTable,
        partition: i32,
        deadline: Instant,
    ) -> Result<Arc<TopicTable>, Arc<ProduceError>> {
        let shared = self.shared();
        let topic = &table.topic;
        let view = shared.cluster.refreshed(std::slice::from_ref(topic), deadline).await;
        let partitions = view.ok().and_then(|view| Some(view.topic(topic)?.partitions.len())).unwrap_or(0);
        if partition < partitions as i32 {
            return shared.make_table(topic, partitions);
        }
        let kind = ProduceErrorKind::UnknownPartition { partitions: table.slots.len() as i32 };
        Err(not_written(topic, Some(partition), kind, None))
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("config", &self.shared().config).finish_non_exhaustive()
    }
}

/// A producer was closed before all of its records were acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("producer was closed with {records} record(s) not acknowledged")]
#[non_exhaustive]
pub struct Unfinished {
    /// How many records failed by it.
    pub records: usize,
}

/// Ends the producer with its last handle.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.end_now();
    }
}
