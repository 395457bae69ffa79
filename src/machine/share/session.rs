//! One broker as a member of a share group knows it: the session, what is held, and what waits to be said.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::PartitionId;
use super::plan::Piece;
use crate::record::TopicPartition;

/// One broker.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) session: Session,
    pub(super) in_flight: Option<u64>,
    /// By partition and first offset: what was acquired and not acknowledged, nor is about to be.
    pub(super) held: BTreeMap<PartitionId, BTreeMap<i64, Held>>,
    pub(super) waiting: VecDeque<Piece>,
    pub(super) not_before: Option<Instant>,
    pub(super) failures: u32,
}

#[derive(Debug, Default)]
pub(super) enum Session {
    #[default]
    None,
    Open {
        id: u64,
        /// Of the next request; 0 until the first is answered.
        epoch: i32,
        /// What the broker fetches of.
        partitions: BTreeSet<PartitionId>,
    },
    Closed,
}

impl Session {
    pub(super) fn id(&self) -> Option<u64> {
        match self {
            Self::Open { id, .. } => Some(*id),
            Self::None | Self::Closed => None,
        }
    }
}

/// Records next to each other that are locked for this member.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) last: i64,
    pub(super) deadline: Instant,
    /// How long after the deadline it may still be tried: the broker's clock decides.
    pub(super) forget: Instant,
    pub(super) partition: TopicPartition,
}

/// Takes these offsets out of what is held, if all of them are.
pub(super) fn take(held: &mut BTreeMap<i64, Held>, first: i64, last: i64) -> Option<Vec<(i64, Held)>> {
    let mut at = first;
    let mut parts = Vec::new();
    while at <= last {
        let (begin, range) = held.range(..=at).next_back()?;
        if range.last < at {
            return None;
        }
        parts.push((*begin, range.clone()));
        at = range.last.checked_add(1)?;
    }
    let mut taken = Vec::with_capacity(parts.len());
    for (begin, range) in parts {
        held.remove(&begin);
        if begin < first {
            held.insert(begin, Held { last: first - 1, ..range.clone() });
        }
        if range.last > last {
            held.insert(last + 1, range.clone());
        }
        taken.push((begin.max(first), Held { last: range.last.min(last), ..range }));
    }
    (!taken.is_empty()).then_some(taken)
}

/// Takes what can share a request, in the order it came.
pub(super) fn pieces(waiting: &mut VecDeque<Piece>) -> Vec<Piece> {
    let mut taken: Vec<Piece> = Vec::new();
    // Whether a partition has one that is alone.
    let mut partitions: BTreeMap<PartitionId, bool> = BTreeMap::new();
    waiting.retain(|piece| {
        let fits = match partitions.get(&piece.id) {
            None => true,
            Some(alone) => !alone && !piece.alone,
        };
        // What comes later of a partition does not pass what stays.
        let alone = piece.alone || !fits;
        *partitions.entry(piece.id).or_insert(alone) |= alone;
        if fits {
            taken.push(piece.clone());
        }
        !fits
    });
    taken
}

/// Over all members of the process: a lock of one is not taken for one of another.
pub(super) fn next_session() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
