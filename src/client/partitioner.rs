//! Which partition a record goes to when its caller does not say.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::protocol::murmur2::partition_for_key;
use crate::record::{RecordRef, Topic};

/// Chooses partitions. Runs in the caller's task, for every record that names no partition itself.
pub trait Partitioner: fmt::Debug + Send + Sync + 'static {
    /// The choice for this record, of `partitions` partitions, at least one.
    ///
    /// A number outside of them fails the record.
    fn choose(&self, topic: &Topic, record: &RecordRef<'_>, partitions: i32) -> Choice;
}

/// A partitioner's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choice {
    /// This one.
    Partition(i32),
    /// Any: the producer keeps to one until a batch is full, then goes to another, the sooner to those with less waiting
    /// (KIP-794).
    Any,
}

/// The default: the key's murmur2 hash, as in Java's client and librdkafka's `murmur2_random`; records without a key go to any.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyHash;

impl Partitioner for KeyHash {
    #[inline]
    fn choose(&self, _: &Topic, record: &RecordRef<'_>, partitions: i32) -> Choice {
        match record.key {
            Some(key) => Choice::Partition(partition_for_key(key, partitions)),
            None => Choice::Any,
        }
    }
}

/// Where a topic's records go that may go anywhere (KIP-794).
///
/// Filling one batch rather than one of each partition makes few large batches of many small ones. How likely a
/// partition is the next falls with the batches that wait for it, so a slow broker gets less.
#[derive(Debug, Default)]
pub(super) struct Sticky(Mutex<Stuck>);

#[derive(Debug, Default)]
pub(super) struct Stuck {
    partition: Option<usize>,
    bytes: usize,
}

impl Sticky {
    /// Takes the turn, until it is dropped.
    pub(super) fn turn(&self) -> Turn<'_> {
        // Two numbers that any panic leaves usable.
        Turn(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The right to choose where the next records go.
pub(super) struct Turn<'a>(MutexGuard<'a, Stuck>);

impl Turn<'_> {
    /// The partition for a record of this size, of `partitions`. Every `stint_bytes` another is chosen: `waiting` tells the
    /// batches that wait for one, `None` if it has no leader; `random` is below its argument.
    #[inline]
    pub(super) fn next(
        &mut self,
        bytes: usize,
        partitions: usize,
        stint_bytes: usize,
        waiting: impl Fn(usize) -> Option<usize>,
        random: impl FnOnce(usize) -> usize,
    ) -> usize {
        let stuck = &mut *self.0;
        let stays = stuck.bytes < stint_bytes;
        let partition = match stuck.partition {
            Some(partition) if stays && partition < partitions => partition,
            _ => {
                stuck.bytes = 0;
                choose(partitions, waiting, random)
            }
        };
        stuck.partition = Some(partition);
        stuck.bytes += bytes;
        partition
    }
}

/// Weighs each partition that has a leader by how much less waits for it than for the fullest one.
fn choose(partitions: usize, waiting: impl Fn(usize) -> Option<usize>, random: impl FnOnce(usize) -> usize) -> usize {
    let queues: Vec<Option<usize>> = (0..partitions).map(waiting).collect();
    let fullest = queues.iter().flatten().max();
    let Some(fullest) = fullest else { return random(partitions.max(1)) };
    let weight = |queue: &Option<usize>| queue.map_or(0, |queue| fullest + 1 - queue);
    let total = queues.iter().map(weight).sum();
    let mut at = random(total);
    for (partition, queue) in queues.iter().enumerate() {
        match at.checked_sub(weight(queue)) {
            Some(left) => at = left,
            None => return partition,
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The delivery rules' vectors: a Java producer and this one send a key to the same partition.
    #[test]
    fn keyed_records_go_where_javas_go() {
        let choose = |key: &[u8], n| KeyHash.choose(&"t".into(), &RecordRef::new(b"").with_key(key), n);
        for (key, partition) in [("", 9), ("0", 8), ("key", 1), ("olá", 11)] {
            assert_eq!(choose(key.as_bytes(), 12), Choice::Partition(partition), "{key:?}");
        }
        // platformatic/kafka#121 takes the hash as unsigned: 9 of 12 and 0 of 3.
        assert_eq!(choose(b"key", 3), Choice::Partition(1));
        assert_eq!(KeyHash.choose(&"t".into(), &RecordRef::new(b""), 12), Choice::Any);
    }

    #[test]
    fn a_partition_is_kept_for_a_stint_of_bytes() {
        let sticky = Sticky::default();
        let mut turn = 0;
        let mut next = |bytes| {
            turn += 1;
            sticky.turn().next(bytes, 4, 100, |_| Some(0), move |total| turn % total)
        };
        let partitions: Vec<_> = (0..9).map(|_| next(40)).collect();
        for stint in partitions.chunks(3) {
            assert_eq!(stint[0], stint[1]);
            assert_eq!(stint[1], stint[2]);
        }
        assert_ne!(partitions[0], partitions[3]);
    }

    #[test]
    fn what_is_full_or_leaderless_is_chosen_less_or_not_at_all() {
        let waiting = |partition| [Some(3), None, Some(0), Some(3)][partition];
        // Weights 1, 0, 4, 1.
        let chosen: Vec<_> = (0..6).map(|at| choose(4, waiting, |total| at % total)).collect();
        assert_eq!(chosen, [0, 2, 2, 2, 2, 3]);
        assert_eq!(choose(4, |_| None, |total| total - 1), 3, "without any leader all are alike");
    }

    #[test]
    fn fewer_partitions_than_before_end_the_stint() {
        let sticky = Sticky::default();
        assert_eq!(sticky.turn().next(1, 8, 100, |_| Some(0), |_| 7), 7);
        assert_eq!(sticky.turn().next(1, 4, 100, |_| Some(0), |_| 2), 2);
    }
}
