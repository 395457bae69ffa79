//! What waits to be sent to one partition, shared by those who send and the machine that drains it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::batch::Batch;
use crate::protocol::batch::{BatchWriter, WriteError};
use crate::protocol::compression::Compression;
use crate::record::{RecordRef, Timestamp};

/// Records that wait for their partition, encoded: one open batch, and full ones before it.
///
/// Callers append under a short lock, a chunk of records at a time; the machine takes batches from the front. An append
/// that changes what the machine has to know says so, and its caller passes it on; nothing is said twice.
#[derive(Debug)]
pub(crate) struct PartitionBuffer<T> {
    /// In order; all but the last are full.
    batches: VecDeque<Batch<T>>,
    /// Size at which a batch is full; shrinks when the topic proves to take less.
    batch_bytes: usize,
    compression: Compression,
    /// The size of the last batch that was taken: a guess of the next one's.
    last_bytes: usize,
    spares: Arc<Spares>,
    closed: bool,
}

/// A record was appended.
#[derive(Debug)]
pub(crate) struct Appended<'a, T> {
    /// The batch it is in.
    pub(crate) ticket: &'a T,
    /// Its place in the batch, from 0.
    pub(crate) index: u32,
    /// What the machine has to know of it.
    pub(crate) signal: Option<Signal>,
}

/// A change in a partition's buffer that the machine acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// It was empty: the linger time begins.
    Started,
    /// A batch is full.
    Filled,
}

/// A record was not appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppendError {
    /// The producer is closed.
    #[error("producer is closed")]
    Closed,
    /// The record cannot be encoded.
    #[error(transparent)]
    Encode(#[from] WriteError),
}

impl<T: Clone + Default> PartitionBuffer<T> {
    /// An empty buffer.
    pub(crate) fn new(batch_bytes: usize, compression: Compression, spares: Arc<Spares>) -> Self {
        Self { batches: VecDeque::new(), batch_bytes, compression, last_bytes: 0, spares, closed: false }
    }

    /// Appends a record and counts `reserved` bytes of buffer memory to its batch.
    ///
    /// `now` is asked when the record is the first of a batch, which then begins to linger.
    #[inline]
    pub(crate) fn append(
        &mut self,
        record: &RecordRef<'_>,
        timestamp: Timestamp,
        reserved: usize,
        now: impl FnOnce() -> Instant,
    ) -> Result<Appended<'_, T>, AppendError> {
        let mut signal = None;
        let index = match self.append_to_last(record, timestamp)? {
            Some(index) => index,
            None => {
                signal = self.open_batch(now())?;
                match self.append_to_last(record, timestamp) {
                    Ok(index) => index.unwrap_or_default(),
                    Err(error) => {
                        // An empty batch must not be sent.
                        self.batches.pop_back();
                        return Err(error.into());
                    }
                }
            }
        };
        let batch = self.batches.back_mut().expect("a record was appended to the last batch");
        batch.reserved += reserved;
        if batch.bytes() >= self.batch_bytes {
            signal = Some(Signal::Filled);
        }
        Ok(Appended { ticket: &batch.ticket, index, signal })
    }

    #[inline]
    fn append_to_last(&mut self, record: &RecordRef<'_>, timestamp: Timestamp) -> Result<Option<u32>, WriteError> {
        match self.batches.back_mut() {
            Some(batch) => batch.append(self.batch_bytes, record, timestamp),
            None => Ok(None),
        }
    }

    #[cold]
    fn open_batch(&mut self, now: Instant) -> Result<Option<Signal>, AppendError> {
        if self.closed {
            return Err(AppendError::Closed);
        }
        let signal = match self.batches.len() {
            0 => Some(Signal::Started),
            1 => Some(Signal::Filled),
            _ => None,
        };
        // A partition that gets few records would hold on to much memory for little: its batches grow by doubling.
        let writer = match self.last_bytes >= self.batch_bytes / 2 {
            true => match self.spares.take() {
                Some(buffer) => BatchWriter::with_buffer(self.compression, buffer),
                None => BatchWriter::with_capacity(self.compression, self.batch_bytes + WRITER_SLACK),
            },
            false => BatchWriter::with_capacity(self.compression, (2 * self.last_bytes).max(FIRST_BYTES)),
        };
        self.batches.push_back(Batch::open(writer, T::default(), now));
        Ok(signal)
    }
}

impl<T: Clone> PartitionBuffer<T> {
    /// Takes the oldest batch.
    pub(super) fn take(&mut self) -> Option<Batch<T>> {
        let batch = self.batches.pop_front()?;
        self.last_bytes = batch.bytes();
        Some(batch)
    }

    /// Takes the oldest batch if it was opened no later than at `limit`.
    pub(super) fn take_until(&mut self, limit: Instant) -> Option<Batch<T>> {
        (self.batches.front()?.opened <= limit).then(|| self.take())?
    }

    /// What is left: since when, and whether a full batch is among it. `None` when empty.
    pub(super) fn filled(&self) -> Option<(Instant, bool)> {
        let oldest = self.batches.front()?;
        Some((oldest.opened, self.batches.len() > 1 || oldest.bytes() >= self.batch_bytes))
    }

    /// Makes batches smaller from now on: at most `bytes`.
    pub(super) fn learn_limit(&mut self, bytes: usize) {
        self.batch_bytes = self.batch_bytes.min(bytes).max(1);
    }

    /// Refuses every record from now on.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// How many batches wait.
    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }
}

/// Emptied memory of earlier batches, shared by a producer's partitions: a new large buffer costs a page fault for every
/// 4 KiB of it.
#[derive(Debug, Default)]
pub(crate) struct Spares(Mutex<SpareBuffers>);

#[derive(Debug, Default)]
struct SpareBuffers {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    fn take(&self) -> Option<Vec<u8>> {
        let mut spares = lock(&self.0);
        let buffer = spares.buffers.pop()?;
        spares.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Keeps a batch's memory, unless there is enough of it.
    pub(super) fn put(&self, buffer: Vec<u8>) {
        let mut spares = lock(&self.0);
        let bytes = buffer.capacity();
        if bytes >= MIN_SPARE_BYTES && spares.bytes + bytes <= MAX_SPARE_BYTES {
            spares.bytes += bytes;
            spares.buffers.push(buffer);
        }
    }

    /// Lets go of all of it.
    pub(super) fn clear(&self) {
        *lock(&self.0) = SpareBuffers::default();
    }
}

/// Locks a buffer. A caller that panicked meanwhile left it whole: nothing of the caller's runs inside an append.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Smaller ones are cheap to allocate.
const MIN_SPARE_BYTES: usize = 16 * 1024;

/// The least memory of a batch.
const FIRST_BYTES: usize = 512;

/// As much as five requests of 1 MiB: what one broker has in flight.
const MAX_SPARE_BYTES: usize = 5 << 20;

/// The writer asks for a little more than a record takes.
const WRITER_SLACK: usize = 256;
