//! Where the reading of one partition stands.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::answer::Chunk;
use super::schedule::Limits;
use crate::record::{LeaderEpoch, NodeId, Offset, TopicPartition};

/// Where one partition stands.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The assignment that it belongs to.
    pub(super) epoch: u64,
    /// Of the position: a new one for every repositioning.
    pub(super) version: u64,
    pub(super) fetch_offset: Offset,
    /// Of the last batch before `fetch_offset`, where it is known.
    pub(super) last_fetched_epoch: Option<LeaderEpoch>,
    /// The same of what was handed over: where fetching goes on when the buffer is given up.
    pub(super) handed_epoch: Option<LeaderEpoch>,
    /// Whether the log may have been truncated below `fetch_offset` since: the next request asks.
    pub(super) validate: bool,
    /// Whether the leader does not know `last_fetched_epoch`, so that it cannot be asked.
    pub(super) epoch_unknown: bool,
    pub(super) leader: Option<Leader>,
    /// Read instead of the leader.
    pub(super) replica: Option<Replica>,
    /// Until when no other replica than the leader is to be read.
    pub(super) leader_until: Option<Instant>,
    /// Where it was in the session of its broker.
    pub(super) place: Option<usize>,
    pub(super) topic_id: Uuid,
    pub(super) paused: bool,
    pub(super) state: CursorState,
    pub(super) failures: u32,
    /// How often the position was out of range since records came.
    pub(super) resets: u32,
    /// When it is asked for after the next reset, as it was out of range again and again.
    pub(super) not_before: Option<Instant>,
    /// Grown while nothing but cut batches comes.
    pub(super) max_bytes: Option<usize>,
    pub(super) buffered: VecDeque<Chunk>,
    pub(super) buffered_bytes: usize,
    /// Bytes that were fetched and not yet dropped, wherever they are.
    pub(super) held: Arc<AtomicUsize>,
    /// When it last had its turn: whoever waits longest comes first in a request.
    pub(super) turn: u64,
    pub(super) queued: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CursorState {
    /// To be fetched.
    Active,
    /// To be fetched again then, or when its leader changes.
    Waiting { until: Instant },
    /// Waits for [`Fetcher::reposition`].
    Resetting,
}

/// A replica that the leader prefers for this reader (KIP-392).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) node: NodeId,
    /// When the leader is asked anew.
    pub(super) until: Instant,
}

/// A partition's leader, as metadata knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) node: NodeId,
    pub(crate) epoch: Option<LeaderEpoch>,
    /// Nil where brokers do not tell.
    pub(crate) topic_id: Uuid,
}

/// Where to begin with a partition.
#[derive(Debug, Clone)]
pub(crate) struct StartAt {
    pub(crate) partition: TopicPartition,
    pub(crate) epoch: u64,
    pub(crate) offset: Offset,
    /// Committed with the offset: the log is checked for truncation below it.
    pub(crate) leader_epoch: Option<LeaderEpoch>,
}

impl Cursor {
    /// The broker that it is read from.
    pub(super) fn source(&self) -> Option<NodeId> {
        let leader = self.leader?.node;
        Some(self.replica.map_or(leader, |replica| replica.node))
    }

    /// Whether this broker can be asked for it.
    pub(super) fn is_due(&self, node: NodeId, limits: Limits) -> bool {
        self.source() == Some(node)
            && !self.paused
            && self.state == CursorState::Active
            && self.buffered_bytes <= limits.ahead
            && !self.holds_too_much(limits)
    }

    /// Whether what was handed over and is not dropped yet is more than its share.
    pub(super) fn holds_too_much(&self, limits: Limits) -> bool {
        self.held.load(Ordering::Acquire) > limits.share / 2
    }

    /// Whether this broker is asked although it does not lead.
    pub(super) fn follows(&self, node: NodeId) -> bool {
        self.replica.is_some_and(|replica| replica.node == node)
    }

    /// Goes back to the leader for a while.
    pub(super) fn leave_replica(&mut self, now: Instant) {
        self.replica = None;
        self.leader_until = Some(now + LEADER_AFTER_FAILURE);
    }

    /// Takes in what an answer brought, to be handed over with what waits already as long as that is no more than `limit` bytes.
    pub(super) fn accept(&mut self, mut chunk: Chunk, turn: u64, limit: usize) {
        self.fetch_offset = chunk.next_offset;
        self.last_fetched_epoch = chunk.leader_epoch;
        self.epoch_unknown = false;
        self.failures = 0;
        (self.resets, self.not_before) = (0, None);
        self.max_bytes = None;
        self.turn = turn;
        self.buffered_bytes += chunk.lease.bytes();
        chunk.lease.charge(&self.held);
        let left = match self.buffered.back_mut() {
            Some(last) => last.join(chunk, limit),
            None => Some(chunk),
        };
        self.buffered.extend(left);
    }
}

/// How long the leader is read after another replica failed: it may not know, and would send there again.
const LEADER_AFTER_FAILURE: Duration = Duration::from_secs(30);
