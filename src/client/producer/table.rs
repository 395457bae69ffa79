//! A topic's partitions, as senders see them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::ticket::Ticket;
use crate::client::partitioner::{Choice, Partitioner, Sticky, Turn};
use crate::machine::produce::{PartitionBuffer, PartitionIndex, lock};
use crate::record::{RecordRef, Topic};

/// A topic's partitions by number, and where its next records without a key go. Replaced by a longer one when the topic
/// grows.
#[derive(Debug)]
pub(super) struct TopicTable {
    pub(super) topic: Topic,
    pub(super) slots: Vec<Slot>,
    sticky: Arc<Sticky>,
    stint_bytes: usize,
}

/// One partition's place to put records.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) index: PartitionIndex,
    pub(super) buffer: Arc<Mutex<PartitionBuffer<Ticket>>>,
    has_leader: Arc<AtomicBool>,
}

impl TopicTable {
    /// The topic's first partitions. `stint_bytes`: how much goes to one of them before another is chosen.
    pub(super) fn new(topic: Topic, slots: Vec<Slot>, stint_bytes: usize) -> Self {
        Self { topic, slots, sticky: Arc::default(), stint_bytes }
    }

    /// The same topic with these partitions behind the others.
    pub(super) fn grown(&self, more: Vec<Slot>) -> Self {
        let slots = self.slots.iter().cloned().chain(more).collect();
        Self { topic: self.topic.clone(), slots, sticky: self.sticky.clone(), stint_bytes: self.stint_bytes }
    }

    /// The partition that a record goes to; `None` if any will do. `Err` with the number of one that does not exist.
    #[inline]
    pub(super) fn choose(&self, record: &RecordRef<'_>, by: &dyn Partitioner) -> Result<Option<usize>, i32> {
        let partition = match record.partition {
            Some(partition) => partition,
            None => match by.choose(&self.topic, record, self.slots.len() as i32) {
                Choice::Partition(partition) => partition,
                Choice::Any => return Ok(None),
            },
        };
        match usize::try_from(partition) {
            Ok(at) if at < self.slots.len() => Ok(Some(at)),
            _ => Err(partition),
        }
    }

    /// Partitions for records that may go anywhere, one after another; nothing else takes turns meanwhile.
    pub(super) fn anywhere(&self) -> Anywhere<'_> {
        Anywhere { table: self, turn: self.sticky.turn() }
    }
}

/// Chooses partitions for records that may go anywhere.
pub(super) struct Anywhere<'a> {
    table: &'a TopicTable,
    turn: Turn<'a>,
}

impl Anywhere<'_> {
    /// The partition for a record of this size.
    #[inline]
    pub(super) fn next(&mut self, bytes: usize) -> usize {
        let slots = &self.table.slots;
        let waiting = |at: usize| {
            let slot: &Slot = &slots[at];
            slot.has_leader.load(Ordering::Relaxed).then(|| slot.lock().len())
        };
        let random = |total: usize| fastrand::usize(..total.max(1));
        self.turn.next(bytes, slots.len(), self.table.stint_bytes, waiting, random)
    }
}

impl Slot {
    pub(super) fn new(index: PartitionIndex, buffer: Arc<Mutex<PartitionBuffer<Ticket>>>) -> Self {
        Self { index, buffer, has_leader: Arc::new(AtomicBool::new(true)) }
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, PartitionBuffer<Ticket>> {
        lock(&self.buffer)
    }

    /// Whether records that may go anywhere may go here.
    pub(super) fn set_leader(&self, has_leader: bool) {
        self.has_leader.store(has_leader, Ordering::Relaxed);
    }
}
