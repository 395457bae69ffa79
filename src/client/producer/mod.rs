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
mod table;
mod ticket;
mod transactional;
mod wire;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot, watch};

use self::chunk::{Chunk, Progress, Refusal};
use self::config::ProducerConfig;
use self::driver::Driver;
use self::line::{Lines, Place};
use self::table::{Slot, TopicTable};
use crate::client::{ClientError, Cluster, deadline_in, now};
use crate::error::WriteOutcome;
use crate::machine::produce::{
    AppendError, FlushId, PartitionBuffer, PartitionIndex, ProduceError, ProduceErrorKind, SharedError, Signal, Spares,
    is_definitive,
};
use crate::record::{Record, RecordRef, Timestamp, Topic, TopicPartition};

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
        let shared = Shared {
            budget: Semaphore::new(config.buffer_bytes),
            config,
            cluster,
            tables: RwLock::default(),
            waiting: AtomicUsize::new(0),
            lines: Lines::default(),
            inbox: Mutex::default(),
            ending: watch::Sender::new(false),
            wake: Notify::new(),
            spares: Arc::default(),
        };
        Self(Arc::new(Owner(Arc::new(shared))))
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
                        let code = found.map_or(UNKNOWN_TOPIC, |topic| topic.error);
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

/// What senders and the driver share.
struct Shared {
    cluster: Cluster,
    config: ProducerConfig,
    /// Buffer memory, in bytes.
    budget: Semaphore,
    tables: RwLock<HashMap<Topic, Arc<TopicTable>>>,
    /// Callers that wait for buffer memory.
    waiting: AtomicUsize,
    lines: Lines,
    inbox: Mutex<Inbox>,
    /// Whether the producer ends: nobody is to wait for room or for a topic any more.
    ending: watch::Sender<bool>,
    wake: Notify,
    spares: Arc<Spares>,
}

/// What the driver has not seen yet.
#[derive(Debug, Default)]
struct Inbox {
    /// Whether a driver was started.
    driven: bool,
    /// Partitions registered so far, those in `new` included.
    partitions: usize,
    new: Vec<(TopicPartition, Slot)>,
    signals: Vec<PartitionIndex>,
    flushes: Vec<(FlushId, oneshot::Sender<()>)>,
    next_flush: u64,
    ending: Option<Ending>,
    ended: Vec<oneshot::Sender<usize>>,
    /// No driver will look in here any more.
    closed: bool,
}

/// How the producer is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    /// Once all that waits is settled.
    Drain,
    /// At once.
    Now,
}

impl Shared {
    fn table(&self, topic: &Topic) -> Option<Arc<TopicTable>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).get(topic).cloned()
    }

    /// The topic's table with at least so many partitions.
    fn make_table(self: &Arc<Self>, topic: &Topic, partitions: usize) -> Result<Arc<TopicTable>, Arc<ProduceError>> {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let before = tables.get(topic);
        let known = before.map_or(0, |table| table.slots.len());
        if let Some(table) = before.filter(|_| known >= partitions) {
            return Ok(table.clone());
        }
        let more = self.register(topic, known..partitions)?;
        let table = Arc::new(match before {
            Some(table) => table.grown(more),
            None => TopicTable::new(topic.clone(), more, self.config.produce.batch_bytes),
        });
        tables.insert(topic.clone(), table.clone());
        Ok(table)
    }

    fn register(
        self: &Arc<Self>,
        topic: &Topic,
        partitions: std::ops::Range<usize>,
    ) -> Result<Vec<Slot>, Arc<ProduceError>> {
        let produce = &self.config.produce;
        let mut inbox = self.inbox();
        if inbox.closed || inbox.ending.is_some() {
            return Err(not_written(topic, None, ProduceErrorKind::Closed, None));
        }
        let mut slots = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let buffer = PartitionBuffer::new(produce.batch_bytes, produce.compression, self.spares.clone());
            let slot = Slot::new(PartitionIndex(inbox.partitions), Arc::new(Mutex::new(buffer)));
            inbox.partitions += 1;
            inbox.new.push((TopicPartition::new(topic, partition as i32), slot.clone()));
            slots.push(slot);
        }
        if !std::mem::replace(&mut inbox.driven, true) {
            drop(tokio::spawn(Driver::new(self.clone()).run()));
        }
        drop(inbox);
        self.wake.notify_one();
        Ok(slots)
    }

    fn record_limit(&self) -> usize {
        // A batch's own header takes part in the request's limit.
        self.config.produce.max_request_bytes.min(self.config.buffer_bytes)
    }

    /// What the wait comes to, unless the producer or its client is closed meanwhile.
    async fn unless_ending<T>(
        &self,
        topic: &Topic,
        wait: impl Future<Output = Result<T, Arc<ProduceError>>>,
    ) -> Result<T, Arc<ProduceError>> {
        let mut ending = self.ending.subscribe();
        tokio::select! {
            biased;
            _ = ending.wait_for(|ending| *ending) => Err(not_written(topic, None, ProduceErrorKind::Closed, None)),
            () = self.cluster.when_closed() => {
                let source = SharedError::new(ClientError::Closed);
                Err(not_written(topic, None, ProduceErrorKind::Closed, Some(source)))
            }
            done = wait => done,
        }
    }

    /// Waits for buffer memory.
    async fn room(
        &self,
        topic: &Topic,
        bytes: usize,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'_>, Arc<ProduceError>> {
        let _waiting = WaitsForRoom::new(self);
        match tokio::time::timeout_at(deadline.into(), self.budget.acquire_many(bytes as u32)).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_closed)) => Err(not_written(topic, None, ProduceErrorKind::Closed, None)),
            Err(_elapsed) => Err(self.blocked(topic, "buffer memory", None)),
        }
    }

    /// The time that a send may block is up.
    fn blocked(&self, topic: &Topic, wanting: &'static str, source: Option<SharedError>) -> Arc<ProduceError> {
        let kind = ProduceErrorKind::Blocked { timeout: self.config.max_block, wanting };
        not_written(topic, None, kind, source)
    }

    /// Appends one record if nothing has to be waited for; `None` if something has.
    #[inline]
    fn try_append(&self, topic: &Topic, record: &RecordRef<'_>, bytes: usize) -> Option<Queued> {
        if bytes > self.record_limit() || self.lines.is_standing(topic) {
            return None;
        }
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let table = tables.get(topic)?;
        if record.partition.is_some_and(|partition| partition >= table.slots.len() as i32) {
            return None;
        }
        let permit = self.budget.try_acquire_many(bytes as u32).ok()?;
        let queued = self.append(table, record, bytes);
        if queued.is_ok() {
            permit.forget();
        }
        Some(queued)
    }

    /// Appends one record. Its memory is reserved.
    #[inline]
    fn append(&self, table: &TopicTable, record: &RecordRef<'_>, bytes: usize) -> Queued {
        let partition = match table.choose(record, &*self.config.partitioner) {
            Ok(Some(partition)) => partition,
            Ok(None) => table.anywhere().next(bytes),
            Err(missing) => return Err(self.refuse(table, Refusal::NoPartition(missing))),
        };
        let timestamp = record.timestamp.unwrap_or_else(Timestamp::now);
        let slot = &table.slots[partition];
        let appended = slot.lock().append(record, timestamp, bytes, now).map(|appended| {
            let ticket = appended.ticket.clone();
            (
                Delivery { ticket, index: appended.index, partition: partition as i32, timestamp, slot: None },
                appended.signal,
            )
        });
        let (delivery, signal) =
            appended.map_err(|error| self.refuse(table, Refusal::Append(partition as i32, error)))?;
        if signal.is_some() {
            self.signal(slot.index);
        }
        Ok((delivery, signal))
    }

    /// Appends a chunk of records. Answers whether the driver has something to do.
    fn append_chunk(&self, table: &TopicTable, chunk: &mut Chunk<'_>, progress: &mut Progress) -> bool {
        let (mut signals, mut released) = (0, 0);
        chunk.append(
            table,
            &*self.config.partitioner,
            now(),
            progress,
            |index| {
                signals += 1;
                self.signal(index);
            },
            |refusal| self.refuse(table, refusal),
            |bytes| released += bytes,
        );
        self.budget.add_permits(released);
        signals > 0
    }

    fn refuse(&self, table: &TopicTable, refusal: Refusal) -> Arc<ProduceError> {
        let (partition, kind, source) = match refusal {
            Refusal::NoPartition(partition) => {
                (partition, ProduceErrorKind::UnknownPartition { partitions: table.slots.len() as i32 }, None)
            }
            Refusal::Append(partition, AppendError::Closed) => (partition, ProduceErrorKind::Closed, None),
            Refusal::Append(partition, error @ AppendError::Encode(_)) => {
                (partition, ProduceErrorKind::Encode, Some(SharedError::new(error)))
            }
        };
        not_written(&table.topic, Some(partition), kind, source)
    }

    fn signal(&self, index: PartitionIndex) {
        self.inbox().signals.push(index);
        self.wake.notify_one();
    }

    fn request_flush(&self) -> Flush {
        let mut inbox = self.inbox();
        if inbox.closed {
            return Flush::Ended;
        }
        if !inbox.driven {
            return Flush::Nothing;
        }
        let (sender, receiver) = oneshot::channel();
        inbox.next_flush += 1;
        let id = FlushId(inbox.next_flush);
        inbox.flushes.push((id, sender));
        drop(inbox);
        self.wake.notify_one();
        Flush::UnderWay(receiver)
    }

    /// A channel that is told how many records failed by the producer's end; `None` if it has ended before.
    fn request_end(&self, ending: Ending) -> Option<oneshot::Receiver<usize>> {
        let mut inbox = self.inbox();
        if !inbox.driven {
            inbox.closed = true;
        }
        self.ending.send_replace(true);
        if inbox.closed {
            self.budget.close();
            return None;
        }
        inbox.ending = inbox.ending.max(Some(ending));
        let (sender, receiver) = oneshot::channel();
        inbox.ended.push(sender);
        drop(inbox);
        self.wake.notify_one();
        Some(receiver)
    }

    fn end_now(&self) {
        drop(self.request_end(Ending::Now));
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // Pushes alone happen under the lock; a panic leaves it whole.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a flush stands when it is asked for.
enum Flush {
    /// There is nothing to flush.
    Nothing,
    /// Told when it is done; dropped when the producer ends before.
    UnderWay(oneshot::Receiver<()>),
    /// The producer has ended.
    Ended,
}

/// A record that was queued, and what the machine has to know of it.
type Queued = Result<(Delivery, Option<Signal>), Arc<ProduceError>>;

/// A caller that waits for buffer memory: batches do not linger meanwhile.
struct WaitsForRoom<'a>(&'a Shared);

impl<'a> WaitsForRoom<'a> {
    fn new(shared: &'a Shared) -> Self {
        if shared.waiting.fetch_add(1, Ordering::Relaxed) == 0 {
            shared.wake.notify_one();
        }
        Self(shared)
    }
}

impl Drop for WaitsForRoom<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn not_written(
    topic: &Topic,
    partition: Option<i32>,
    kind: ProduceErrorKind,
    source: Option<SharedError>,
) -> Arc<ProduceError> {
    let outcome = WriteOutcome::NotWritten;
    Arc::new(ProduceError { topic: topic.clone(), partition, outcome, kind, source })
}

const UNKNOWN_TOPIC: crate::protocol::error_code::ErrorCode =
    crate::protocol::error_code::ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;
    use crate::client::scripted::{Act, Brokers, Exchange, metadata};
    use crate::protocol::api::ApiKey;

    const METADATA: ApiKey = ApiKey(3);

    type Calls<T> = Vec<std::pin::Pin<Box<dyn Future<Output = T> + Send>>>;

    fn one_topic(exchange: &Exchange) -> Act {
        match exchange.api {
            METADATA => metadata(exchange, &[(1, "a:1")], &[("t", 7, &[1])]),
            _ => Act::Usual,
        }
    }

    /// KIP-951: the broker that refused said who leads, and metadata was asked all the same, by way of a wait.
    #[tokio::test(start_paused = true)]
    async fn a_leader_that_an_answer_tells_is_written_to_without_asking_for_metadata() {
        use kafka_protocol::messages::produce_response::{
            LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
        };
        use kafka_protocol::messages::{
            InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse, ProducerId,
        };
        use kafka_protocol::protocol::StrBytes;
        use uuid::Uuid;

        let answer = |exchange: &Exchange, partition: PartitionProduceResponse| {
            let topic = TopicProduceResponse::default()
                .with_topic_id(Uuid::from_u128(7))
                .with_partition_responses(vec![partition]);
            let endpoint = NodeEndpoint::default().with_node_id(2.into()).with_host(StrBytes::from_static_str("b"));
            let response =
                ProduceResponse::default().with_responses(vec![topic]).with_node_endpoints(vec![endpoint.with_port(2)]);
            exchange.answer::<ProduceRequest>(&response)
        };
        let brokers = Brokers::new();
        brokers.at("a:1", move |exchange| match exchange.api.name().unwrap() {
            "InitProducerId" => exchange
                .answer::<InitProducerIdRequest>(&InitProducerIdResponse::default().with_producer_id(ProducerId(1))),
            "Produce" => {
                let leader = LeaderIdAndEpoch::default().with_leader_id(2.into()).with_leader_epoch(5);
                answer(exchange, PartitionProduceResponse::default().with_error_code(6).with_current_leader(leader))
            }
            _ => one_topic(exchange),
        });
        brokers.at("b:2", move |exchange| match exchange.api.name().unwrap() {
            "Produce" => answer(exchange, PartitionProduceResponse::default().with_base_offset(3)),
            _ => Act::Usual,
        });
        let client = brokers.client("a:1", |options| options);
        let producer = client.producer().build().unwrap();
        let written = producer.send(Record::new("t", "value")).await.unwrap();
        assert_eq!(written.offset.map(|offset| offset.0), Some(3));
        assert_eq!((brokers.count("a:1 Produce"), brokers.count("b:2 Produce")), (1, 1));
        assert_eq!(brokers.count("a:1 Metadata"), 1);
    }

    /// Fifty hops of one partition, handed over in order before the topic's partitions were known, were in the log in any.
    #[tokio::test(start_paused = true)]
    async fn sends_that_wait_for_a_topic_are_queued_in_order() {
        let brokers = Brokers::new();
        brokers.at("a:1", one_topic);
        let producer =
            brokers.client("a:1", |options| options).producer().linger(Duration::from_secs(30)).build().unwrap();
        let enqueue = |number: usize| Box::pin(producer.enqueue(Record::new("t", number.to_string())));
        let mut calls: Vec<_> = (0..50).map(enqueue).collect();
        let mut places = vec![None; calls.len()];
        let mut is_first = true;
        poll_fn(|cx| {
            // Each is polled first in its turn, and woken in any order.
            let forward = std::mem::take(&mut is_first);
            for at in 0..calls.len() {
                let at = if forward { at } else { calls.len() - 1 - at };
                if places[at].is_none()
                    && let Poll::Ready(delivery) = calls[at].as_mut().poll(cx)
                {
                    places[at] = Some(delivery.unwrap().index);
                }
            }
            if places.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!(places, (0..50).map(Some).collect::<Vec<_>>());
        assert!(!producer.shared().lines.is_standing(&"t".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_for_a_topic_that_does_not_come_ends_for_all_at_once() {
        let brokers = Brokers::new();
        brokers.at("a:1", one_topic);
        let client = brokers.client("a:1", |options| options);
        let producer = client.producer().max_block(Duration::from_secs(10)).build().unwrap();
        let began = now();
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let producer = producer.clone();
            calls.spawn(async move { producer.enqueue(Record::new("missing", "x")).await.map(drop).unwrap_err() });
        }
        while let Some(error) = calls.join_next().await {
            let error = error.unwrap();
            assert!(matches!(error.kind, ProduceErrorKind::Blocked { .. }), "{error}");
            assert_eq!(error.outcome, WriteOutcome::NotWritten);
        }
        assert!(now() - began <= Duration::from_secs(10));
    }

    /// How long a close, and each of these, took to end.
    async fn ended_by_close<T: Send + 'static>(producer: &Producer, calls: Calls<T>) -> (Duration, Vec<T>) {
        let calls: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(calls.iter().all(|call| !call.is_finished()), "they wait");
        let began = now();
        let closer = producer.clone();
        let closing = tokio::spawn(async move { closer.close(Duration::from_secs(30)).await });
        let mut errors = Vec::new();
        for call in calls {
            errors.push(call.await.unwrap());
        }
        let took = now() - began;
        let _ = closing.await.unwrap();
        (took, errors)
    }

    /// Sends whose topic was not known waited out their time, a minute by default, for a producer that had been closed.
    #[tokio::test(start_paused = true)]
    async fn a_close_ends_sends_whose_topic_is_not_known() {
        let brokers = Brokers::new();
        brokers.at("a:1", one_topic);
        let producer = brokers.client("a:1", |options| options).producer().build().unwrap();
        let mut calls: Calls<Arc<ProduceError>> = Vec::new();
        for _ in 0..3 {
            // The first asks for the topic, the others stand in line behind it.
            let producer = producer.clone();
            calls.push(Box::pin(
                async move { producer.enqueue(Record::new("missing", "x")).await.map(drop).unwrap_err() },
            ));
        }
        let batches = producer.clone();
        calls.push(Box::pin(async move {
            let error = batches.send_batch("missing", [RecordRef::new(b"x"), RecordRef::new(b"y")]).await.unwrap_err();
            assert_eq!(error.outcomes.len(), 2);
            error.outcomes.into_iter().find_map(Result::err).unwrap()
        }));
        let (took, errors) = ended_by_close(&producer, calls).await;
        assert!(took < Duration::from_millis(100), "{took:?}");
        for error in errors {
            assert_eq!((&error.kind, error.outcome), (&ProduceErrorKind::Closed, WriteOutcome::NotWritten), "{error}");
        }
        let late = producer.enqueue(Record::new("missing", "x")).await.map(drop).unwrap_err();
        assert_eq!(late.kind, ProduceErrorKind::Closed);
    }

    /// The same where brokers are silent: about a partition that is not known yet, and about what fills the memory.
    #[tokio::test(start_paused = true)]
    async fn a_close_ends_sends_that_wait_for_a_partition_or_for_memory() {
        let brokers = Brokers::new();
        let metadata_asked = AtomicUsize::new(0);
        brokers.at("a:1", move |exchange: &Exchange| match exchange.api {
            METADATA if metadata_asked.fetch_add(1, Ordering::Relaxed) == 0 => one_topic(exchange),
            ApiKey(18) => Act::Usual,
            _ => Act::Silence,
        });
        let options = brokers.client("a:1", |options| options).producer();
        let options = options.max_request_bytes(64 << 10).batch_bytes(64 << 10).buffer_bytes(64 << 10);
        let producer = options.build().unwrap();
        let full = producer.enqueue(Record::new("t", vec![0; 60 << 10])).await.unwrap();
        let mut calls: Calls<Arc<ProduceError>> = Vec::new();
        let one = producer.clone();
        calls.push(Box::pin(async move {
            one.enqueue(Record::new("t", "x").with_partition(9)).await.map(drop).unwrap_err()
        }));
        let batch = producer.clone();
        calls.push(Box::pin(async move {
            let value = vec![0; 30 << 10];
            let error = batch.send_batch("t", [RecordRef::new(&value)]).await.unwrap_err();
            error.outcomes.into_iter().find_map(Result::err).unwrap()
        }));
        let (took, errors) = ended_by_close(&producer, calls).await;
        assert!(took < Duration::from_millis(100), "{took:?}");
        for error in errors {
            assert_eq!((&error.kind, error.outcome), (&ProduceErrorKind::Closed, WriteOutcome::NotWritten), "{error}");
        }
        assert!(full.await.is_err(), "it is given up at the end of the close's own time");
    }

    /// A client that was closed looked as if trying again could help.
    #[tokio::test(start_paused = true)]
    async fn a_closed_client_is_told_as_closed() {
        let brokers = Brokers::new();
        brokers.at("a:1", one_topic);
        let client = brokers.client("a:1", |options| options);
        let producer = client.producer().build().unwrap();
        let waiting = producer.clone();
        let waiting = tokio::spawn(async move { waiting.enqueue(Record::new("missing", "x")).await.map(drop) });
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.close(Duration::ZERO).await.unwrap();
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind, ProduceErrorKind::Closed, "{error}");
        assert!(!error.is_retriable());
    }
}
