//! What senders and the driver share: the topics' tables, buffer memory, and what the driver has not seen yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot, watch};

use super::Delivery;
use super::chunk::{Chunk, Progress, Refusal};
use super::config::ProducerConfig;
use super::driver::Driver;
use super::line::Lines;
use super::table::{Slot, TopicTable};
use crate::client::{ClientError, Cluster, now};
use crate::error::WriteOutcome;
use crate::machine::produce::{
    AppendError, FlushId, PartitionBuffer, PartitionIndex, ProduceError, ProduceErrorKind, SharedError, Signal, Spares,
};
use crate::record::{RecordRef, Timestamp, Topic, TopicPartition};

/// One producer, for its senders and its driver.
pub(super) struct Shared {
    pub(super) cluster: Cluster,
    pub(super) config: ProducerConfig,
    /// Buffer memory, in bytes.
    pub(super) budget: Semaphore,
    pub(super) tables: RwLock<HashMap<Topic, Arc<TopicTable>>>,
    /// Callers that wait for buffer memory.
    pub(super) waiting: AtomicUsize,
    pub(super) lines: Lines,
    pub(super) inbox: Mutex<Inbox>,
    /// Whether the producer ends: nobody is to wait for room or for a topic any more.
    pub(super) ending: watch::Sender<bool>,
    pub(super) wake: Notify,
    pub(super) spares: Arc<Spares>,
}

/// What the driver has not seen yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Whether a driver was started.
    pub(super) driven: bool,
    /// Partitions registered so far, those in `new` included.
    pub(super) partitions: usize,
    pub(super) new: Vec<(TopicPartition, Slot)>,
    pub(super) signals: Vec<PartitionIndex>,
    pub(super) flushes: Vec<(FlushId, oneshot::Sender<()>)>,
    pub(super) next_flush: u64,
    pub(super) ending: Option<Ending>,
    pub(super) ended: Vec<oneshot::Sender<usize>>,
    /// No driver will look in here any more.
    pub(super) closed: bool,
}

/// How the producer is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    /// Once all that waits is settled.
    Drain,
    /// At once.
    Now,
}

impl Shared {
    pub(super) fn new(cluster: Cluster, config: ProducerConfig) -> Self {
        Self {
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
        }
    }

    pub(super) fn table(&self, topic: &Topic) -> Option<Arc<TopicTable>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).get(topic).cloned()
    }

    /// The topic's table with at least so many partitions.
    pub(super) fn make_table(
        self: &Arc<Self>,
        topic: &Topic,
        partitions: usize,
    ) -> Result<Arc<TopicTable>, Arc<ProduceError>> {
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

    pub(super) fn record_limit(&self) -> usize {
        // A batch's own header takes part in the request's limit.
        self.config.produce.max_request_bytes.min(self.config.buffer_bytes)
    }

    /// What the wait comes to, unless the producer or its client is closed meanwhile.
    pub(super) async fn unless_ending<T>(
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
    pub(super) async fn room(
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
    pub(super) fn blocked(
        &self,
        topic: &Topic,
        wanting: &'static str,
        source: Option<SharedError>,
    ) -> Arc<ProduceError> {
        let kind = ProduceErrorKind::Blocked { timeout: self.config.max_block, wanting };
        not_written(topic, None, kind, source)
    }

    /// Appends one record if nothing has to be waited for; `None` if something has.
    #[inline]
    pub(super) fn try_append(&self, topic: &Topic, record: &RecordRef<'_>, bytes: usize) -> Option<Queued> {
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
    pub(super) fn append(&self, table: &TopicTable, record: &RecordRef<'_>, bytes: usize) -> Queued {
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
    pub(super) fn append_chunk(&self, table: &TopicTable, chunk: &mut Chunk<'_>, progress: &mut Progress) -> bool {
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

    pub(super) fn request_flush(&self) -> Flush {
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
    pub(super) fn request_end(&self, ending: Ending) -> Option<oneshot::Receiver<usize>> {
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

    pub(super) fn end_now(&self) {
        drop(self.request_end(Ending::Now));
    }

    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // Pushes alone happen under the lock; a panic leaves it whole.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a flush stands when it is asked for.
pub(super) enum Flush {
    /// There is nothing to flush.
    Nothing,
    /// Told when it is done; dropped when the producer ends before.
    UnderWay(oneshot::Receiver<()>),
    /// The producer has ended.
    Ended,
}

/// A record that was queued, and what the machine has to know of it.
pub(super) type Queued = Result<(Delivery, Option<Signal>), Arc<ProduceError>>;

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

pub(super) fn not_written(
    topic: &Topic,
    partition: Option<i32>,
    kind: ProduceErrorKind,
    source: Option<SharedError>,
) -> Arc<ProduceError> {
    let outcome = WriteOutcome::NotWritten;
    Arc::new(ProduceError { topic: topic.clone(), partition, outcome, kind, source })
}
