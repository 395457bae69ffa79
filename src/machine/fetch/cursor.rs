//! Where the reading of one partition stands.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use uuid::Uuid;

use super::answer::Chunk;
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
    pub(super) leader: Option<Leader>,
    pub(super) topic_id: Uuid,
    pub(super) paused: bool,
    pub(super) state: CursorState,
    pub(super) failures: u32,
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
    pub(super) fn is_led_by(&self, node: NodeId) -> bool {
        self.leader.is_some_and(|leader| leader.node == node)
    }

    pub(super) fn accept(&mut self, mut chunk: Chunk, turn: u64) {
        self.fetch_offset = chunk.next_offset;
        self.last_fetched_epoch = chunk.leader_epoch;
        self.failures = 0;
        self.max_bytes = None;
        self.turn = turn;
        if chunk.batches.is_empty()
            && let Some(last) = self.buffered.back_mut()
        {
            // It takes no memory that would bound how many of its kind are kept.
            return last.cover(chunk);
        }
        self.buffered_bytes += chunk.lease.bytes();
        chunk.lease.charge(&self.held);
        self.buffered.push_back(chunk);
    }
}
