//! What to ask a broker for next, within the byte budget.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::cursor::CursorState;
use super::plan::PlannedFetch;
use super::{FetchPlan, Fetcher};
use crate::record::{NodeId, TopicPartition};

/// Partitions of a broker that can be asked for.
pub(super) struct Due {
    pub(super) partitions: Vec<(u64, TopicPartition)>,
    /// Some were left out because their records wait to be handed over or to be dropped.
    pub(super) buffered: bool,
    pub(super) next: Option<Instant>,
}

impl Fetcher {
    /// What one partition may hold: an equal part of the budget.
    pub(super) fn share(&self) -> usize {
        (self.config.budget_bytes / self.cursors.len().max(1)).max(MIN_SHARE)
    }

    /// The partitions of a broker that can be asked for, the one that waits longest first.
    pub(super) fn due(&mut self, now: Instant, node: NodeId, share: usize) -> Due {
        let ahead = self.config.max_partition_bytes.min(share / 2);
        let mut due = Due { partitions: Vec::new(), buffered: false, next: None };
        let mut full = false;
        for (partition, cursor) in &mut self.cursors {
            if cursor.paused || !cursor.is_led_by(node) {
                continue;
            }
            match cursor.state {
                CursorState::Resetting => continue,
                CursorState::Waiting { until } if now < until => {
                    due.next = Some(due.next.map_or(until, |next| next.min(until)));
                    continue;
                }
                CursorState::Waiting { .. } => cursor.state = CursorState::Active,
                CursorState::Active => {}
            }
            if cursor.buffered_bytes > ahead {
                due.buffered = true;
            } else if cursor.held.load(Ordering::Acquire) > share / 2 {
                full = true;
            } else {
                due.partitions.push((cursor.turn, partition.clone()));
            }
        }
        if full {
            due.buffered = true;
            self.budget.want();
        }
        due.partitions.sort_unstable();
        due
    }

    /// What an answer of this broker may bring; `None` while the budget is used up.
    pub(super) fn room(&mut self, node: NodeId) -> Option<usize> {
        let fair = self.config.budget_bytes / self.nodes().count().max(1);
        let reserved: usize = self.nodes.iter().filter(|(n, _)| **n != node).map(|(_, n)| n.reserved).sum();
        let mut free = self.budget.available().saturating_sub(reserved);
        if free < MIN_ROOM.min(fair) {
            self.evict_paused();
            free = self.budget.available().saturating_sub(reserved);
        }
        // Against the smallest budgets: one partition at a time always gets through once all was dropped.
        let enough = free >= MIN_ROOM.min(fair) || self.budget.used() == 0;
        enough.then(|| free.min(fair).min(self.config.max_bytes).max(1))
    }

    /// Drops what paused partitions have buffered: they can fetch it again, others cannot go on without the memory.
    fn evict_paused(&mut self) {
        for cursor in self.cursors.values_mut().filter(|cursor| cursor.paused) {
            if let Some(first) = cursor.buffered.front() {
                cursor.fetch_offset = first.from;
                // Where a new leader was to check this, it still has to.
                cursor.last_fetched_epoch = cursor.handed_epoch;
                cursor.buffered.clear();
                cursor.buffered_bytes = 0;
            }
        }
    }

    pub(super) fn plan(&mut self, now: Instant, node: NodeId, due: Due, room: usize, share: usize) -> FetchPlan {
        self.last_request += 1;
        let id = self.last_request;
        let state = self.nodes.entry(node).or_default();
        let room = room.min(state.cap.unwrap_or(room));
        state.in_flight = Some(id);
        state.reserved = room;
        let max_wait = if due.buffered {
            let patience = state.patience.map_or(FIRST_PATIENCE, |patience| patience * 2).min(self.config.max_wait);
            state.patience = Some(patience);
            patience
        } else {
            state.patience = None;
            // Whoever is resumed has to wait for the request that is on its way then.
            let paused = self.cursors.values().any(|cursor| cursor.paused && cursor.is_led_by(node));
            if paused { self.config.max_wait.min(WAIT_BESIDE_PAUSED) } else { self.config.max_wait }
        };
        let partitions = due
            .partitions
            .into_iter()
            .filter_map(|(_, partition)| {
                let cursor = self.cursors.get(&partition)?;
                let limit = self.config.max_partition_bytes.min(share / 2).min(room);
                Some(PlannedFetch {
                    topic_id: cursor.topic_id,
                    offset: cursor.fetch_offset,
                    leader_epoch: cursor.leader.and_then(|leader| leader.epoch),
                    last_fetched_epoch: cursor.last_fetched_epoch.filter(|_| cursor.validate),
                    max_bytes: cursor.max_bytes.unwrap_or(limit),
                    version: cursor.version,
                    partition,
                })
            })
            .collect();
        let (min_bytes, isolation) = (self.config.min_bytes, self.config.isolation);
        FetchPlan { id, node, sent: now, max_wait, min_bytes, max_bytes: room, isolation, partitions }
    }
}

/// A partition's least share, however many there are.
const MIN_SHARE: usize = 64 << 10;
/// A request for less is not worth its round trip.
const MIN_ROOM: usize = 256 << 10;
const FIRST_PATIENCE: Duration = Duration::from_millis(5);
/// How long a request waits that leaves out paused partitions: the most that a resumed one comes late.
pub(super) const WAIT_BESIDE_PAUSED: Duration = Duration::from_millis(100);
