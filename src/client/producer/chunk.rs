//! Appending many records at once: one lock a partition, one look at the clock, nothing allocated a record.

use std::sync::Arc;
use std::time::Instant;

use super::table::TopicTable;
use super::ticket::{BatchError, RecordMetadata, Ticket};
use crate::client::partitioner::Partitioner;
use crate::machine::produce::{PartitionIndex, ProduceError, Signal};
use crate::record::{Offset, RecordRef, Timestamp};

/// Records that are appended together, and the partition of each.
#[derive(Debug)]
pub(super) struct Chunk<'a> {
    records: Vec<Queued<'a>>,
    /// Taken from the source and not among them: the next to come.
    held: Option<(RecordRef<'a>, usize)>,
    /// Their encoded size, at most.
    bytes: usize,
    /// By partition: its first and last record here.
    ends: Vec<(u32, u32)>,
    /// The partitions that have records here.
    touched: Vec<u32>,
}

#[derive(Debug)]
struct Queued<'a> {
    record: RecordRef<'a>,
    bytes: u32,
    /// Where it goes; [`ANY`] until that is chosen, [`NONE`] where it cannot go.
    partition: u32,
    /// The next one of the same partition.
    next: u32,
}

/// What became of the records of a call so far: in which batch each one is, or why it is in none.
#[derive(Debug, Default)]
pub(super) struct Progress {
    places: Vec<Place>,
    tickets: Vec<(Ticket, i32)>,
    errors: Vec<Arc<ProduceError>>,
    /// By partition: the last of its tickets.
    last: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// Which of the tickets; [`NONE`] for a record that was not appended.
    ticket: u32,
    /// The record's index in that batch; of the error, for one that was not appended.
    index: u32,
}

impl<'a> Chunk<'a> {
    pub(super) fn new() -> Self {
        Self { records: Vec::with_capacity(MAX_RECORDS), held: None, bytes: 0, ends: Vec::new(), touched: Vec::new() }
    }

    /// Takes records from `source` until it is full, needs more than `max_bytes`, or the source is at its end.
    pub(super) fn fill(&mut self, source: &mut impl Iterator<Item = RecordRef<'a>>, max_bytes: usize) {
        while self.records.len() < MAX_RECORDS && self.bytes < MAX_BYTES {
            let next =
                self.held.take().or_else(|| source.next().map(|record| (record, record.encoded_bytes_at_most())));
            let Some((record, bytes)) = next else { return };
            if self.bytes + bytes > max_bytes {
                self.held = Some((record, bytes));
                return;
            }
            // What is let in is below the 2 GiB that buffer memory may have.
            self.records.push(Queued { record, bytes: bytes as u32, partition: ANY, next: NONE });
            self.bytes += bytes;
        }
    }

    /// Takes out the next record if it alone is larger than the bound, and answers its size.
    pub(super) fn take_oversized(&mut self, max_bytes: usize) -> Option<usize> {
        self.held.take_if(|(_, bytes)| *bytes > max_bytes).map(|(_, bytes)| bytes)
    }

    /// How many records were taken from the source and not appended.
    pub(super) fn left(&self) -> usize {
        self.records.len() + usize::from(self.held.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How much buffer memory it needs.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn clear(&mut self) {
        self.records.clear();
        self.bytes = 0;
    }

    /// Appends all records to their partitions. `signal` is told what the machine has to know, `refuse` makes the error
    /// of a record that cannot be appended; what was reserved for it is given back by `release`.
    #[expect(clippy::too_many_arguments, reason = "the callbacks borrow different parts of the caller")]
    pub(super) fn append(
        &mut self,
        table: &TopicTable,
        by: &dyn Partitioner,
        now: Instant,
        progress: &mut Progress,
        mut signal: impl FnMut(PartitionIndex),
        refuse: impl Fn(Refusal) -> Arc<ProduceError>,
        mut release: impl FnMut(usize),
    ) {
        let base = progress.places.len();
        progress.places.resize(base + self.records.len(), Place { ticket: NONE, index: 0 });
        self.ends.resize(table.slots.len(), (NONE, NONE));
        progress.last.resize(table.slots.len(), NONE);
        // The partitioner may be anybody's code, so it runs under no lock.
        for at in 0..self.records.len() {
            let Queued { record, bytes, partition, .. } = &mut self.records[at];
            *partition = match table.choose(record, by) {
                Ok(chosen) => chosen.map_or(ANY, |partition| partition as u32),
                Err(missing) => {
                    release(*bytes as usize);
                    progress.fail(base + at, refuse(Refusal::NoPartition(missing)));
                    NONE
                }
            };
        }
        let mut anywhere = None;
        for at in 0..self.records.len() {
            let Queued { bytes, partition, .. } = self.records[at];
            match partition {
                NONE => {}
                ANY => {
                    let partition = anywhere.get_or_insert_with(|| table.anywhere()).next(bytes as usize);
                    self.link(at as u32, partition);
                }
                partition => self.link(at as u32, partition as usize),
            }
        }
        drop(anywhere);
        // The clock is read once, and only for records that bring no time.
        let mut default_timestamp = None;
        for partition in std::mem::take(&mut self.touched) {
            let slot = &table.slots[partition as usize];
            let mut at = std::mem::replace(&mut self.ends[partition as usize], (NONE, NONE)).0;
            let (mut started, mut last) = (false, progress.last[partition as usize]);
            let mut buffer = slot.lock();
            while let Some(Queued { record, bytes, next, .. }) = self.records.get(at as usize) {
                let timestamp =
                    record.timestamp.unwrap_or_else(|| *default_timestamp.get_or_insert_with(Timestamp::now));
                match buffer.append(record, timestamp, *bytes as usize, || now) {
                    Ok(appended) => {
                        // Between two chunks another caller may have begun a batch: an index alone does not tell.
                        let known = progress.tickets.get(last as usize).is_some_and(|(t, _)| t.is(appended.ticket));
                        if !known {
                            last = progress.tickets.len() as u32;
                            progress.tickets.push((appended.ticket.clone(), partition as i32));
                        }
                        progress.places[base + at as usize] = Place { ticket: last, index: appended.index };
                        started |= appended.signal == Some(Signal::Started) || appended.signal == Some(Signal::Filled);
                    }
                    Err(error) => {
                        release(*bytes as usize);
                        progress.fail(base + at as usize, refuse(Refusal::Append(partition as i32, error)));
                    }
                }
                at = *next;
            }
            drop(buffer);
            progress.last[partition as usize] = last;
            if started {
                signal(slot.index);
            }
        }
        self.clear();
    }

    /// Adds a record to its partition's list.
    #[inline]
    fn link(&mut self, at: u32, partition: usize) {
        let ends = &mut self.ends[partition];
        match ends.1 {
            NONE => {
                *ends = (at, at);
                self.touched.push(partition as u32);
            }
            last => {
                ends.1 = at;
                self.records[last as usize].next = at;
            }
        }
    }
}

/// Why a record is in no batch.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The topic has no such partition.
    NoPartition(i32),
    /// Its partition's buffer did not take it.
    Append(i32, crate::machine::produce::AppendError),
}

impl Progress {
    /// A record failed before it could be appended.
    pub(super) fn push_failure(&mut self, error: Arc<ProduceError>) {
        self.places.push(Place { ticket: NONE, index: 0 });
        self.fail(self.places.len() - 1, error);
    }

    /// As many records failed, for one reason.
    pub(super) fn push_failures(&mut self, count: usize, error: &Arc<ProduceError>) {
        if count > 0 {
            self.errors.push(error.clone());
            let place = Place { ticket: NONE, index: self.errors.len() as u32 - 1 };
            self.places.extend(std::iter::repeat_n(place, count));
        }
    }

    fn fail(&mut self, at: usize, error: Arc<ProduceError>) {
        self.errors.push(error);
        self.places[at] = Place { ticket: NONE, index: self.errors.len() as u32 - 1 };
    }

    /// Waits for every record's verdict.
    pub(super) async fn finish(self) -> Result<(), BatchError> {
        let mut written = self.errors.is_empty();
        for (ticket, _) in &self.tickets {
            ticket.settled().await;
            written &= ticket.is_written();
        }
        if written {
            return Ok(());
        }
        let outcomes: Vec<_> = self.places.iter().map(|place| self.outcome(*place)).collect();
        match outcomes.iter().all(Result::is_ok) {
            true => Ok(()),
            false => Err(BatchError { outcomes }),
        }
    }

    fn outcome(&self, place: Place) -> Result<RecordMetadata, Arc<ProduceError>> {
        match self.tickets.get(place.ticket as usize) {
            Some((ticket, partition)) => {
                let verdict = ticket.verdict(place.index).expect("every ticket is settled before outcomes are told");
                verdict.map(|written| RecordMetadata {
                    partition: *partition,
                    offset: written.base_offset.map(Offset),
                    // The record's own time is not kept.
                    timestamp: Timestamp(written.log_append_time.unwrap_or(-1)),
                })
            }
            None => Err(self.errors[place.index as usize].clone()),
        }
    }
}

/// No record, no ticket, no partition.
const NONE: u32 = u32::MAX;

/// Any partition.
const ANY: u32 = u32::MAX - 1;

/// Records that are appended together. Enough that a lock and a look at the clock cost nothing a record, few enough to
/// stay in the cache and to let others in.
const MAX_RECORDS: usize = 256;

/// Bytes that are appended together: no more are asked of buffer memory at once.
const MAX_BYTES: usize = 32 * 1024;
