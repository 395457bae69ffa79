//! What to ask a broker for next, within the byte budget.

use std::time::{Duration, Instant};

use super::cursor::CursorState;
use super::plan::PlannedFetch;
use super::{FetchEvent, FetchPlan, Fetcher};
use crate::record::NodeId;

/// What of a broker's partitions can be asked for.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) any: bool,
    /// Some were left out because their records wait to be handed over or to be dropped.
    buffered: bool,
    /// Some are paused.
    paused: bool,
    /// Some have a topic whose id is not known.
    by_name: bool,
    /// Some are to be read from the leader, whatever is nearer.
    at_leader: bool,
    pub(super) next: Option<Instant>,
}

/// What one partition may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Of the budget.
    pub(super) share: usize,
    /// Waiting to be handed over, and yet more is asked for.
    pub(super) ahead: usize,
    /// In one answer.
    answer: usize,
}

impl Fetcher {
    /// What one partition may hold: an equal part of the budget.
    pub(super) fn limits(&self) -> Limits {
        let share = (self.config.budget_bytes / self.cursors.len().max(1)).max(MIN_SHARE);
        let most = self.config.max_partition_bytes;
        // In steps, so that not every partition that comes has the broker told new limits of all others.
        let answer = most.min(1 << (share / 2).ilog2());
        Limits { share, ahead: most.min(share / 2), answer }
    }

    /// What of a broker's partitions can be asked for now.
    pub(super) fn due(&mut self, now: Instant, node: NodeId, limits: Limits) -> Due {
        let mut due = Due::default();
        let (mut full, mut redirected) = (false, false);
        for cursor in self.cursors.values_mut() {
            if cursor.replica.take_if(|replica| replica.node == node && now >= replica.until).is_some() {
                redirected = true;
            }
            if cursor.source() != Some(node) {
                continue;
            }
            if cursor.paused {
                due.paused = true;
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
            if cursor.buffered_bytes > limits.ahead {
                due.buffered = true;
            } else if cursor.holds_too_much(limits) {
                full = true;
            } else {
                cursor.leader_until.take_if(|until| now >= *until);
                due.any = true;
                due.by_name |= cursor.topic_id.is_nil();
                // Nobody but the leader checks a position, and it does not for who is sent elsewhere.
                due.at_leader |= cursor.leader_until.is_some() || cursor.validate;
            }
        }
        if full {
            due.buffered = true;
            self.budget.want();
        }
        if redirected {
            self.events.push_back(FetchEvent::Redirected);
        }
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

    pub(super) fn plan(&mut self, now: Instant, node: NodeId, due: &Due, room: usize, limits: Limits) -> FetchPlan {
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
            if due.paused { self.config.max_wait.min(WAIT_BESIDE_PAUSED) } else { self.config.max_wait }
        };
        // What is left of the budget changes with every request, and is no limit of each partition: the broker would have to be
        // told of all of them again.
        let limit = limits.answer.min(state.cap.unwrap_or(limits.answer));
        let known = state.session.begin(due.by_name);
        let (mut said, mut forgotten) = (Vec::new(), Vec::new());
        for (partition, cursor) in &mut self.cursors {
            if !cursor.is_due(node, limits) {
                continue;
            }
            let fetch = PlannedFetch {
                partition: partition.clone(),
                topic_id: cursor.topic_id,
                offset: cursor.fetch_offset,
                leader_epoch: cursor.leader.and_then(|leader| leader.epoch),
                last_fetched_epoch: cursor.last_fetched_epoch.filter(|epoch| {
                    // Once said it may stay: not to say it any more would be one more thing to say.
                    let said = |asked: &PlannedFetch| {
                        asked.partition == *partition
                            && asked.offset == cursor.fetch_offset
                            && asked.last_fetched_epoch == Some(*epoch)
                    };
                    let said = || cursor.place.and_then(|place| known.get(place)).is_some_and(said);
                    cursor.validate || (!cursor.epoch_unknown && said())
                }),
                max_bytes: cursor.max_bytes.unwrap_or(limit),
                version: cursor.version,
            };
            let (place, is_new) = known.want(id, cursor.place, fetch, &mut forgotten);
            cursor.place = Some(place);
            if is_new {
                said.push((cursor.turn, place));
            }
        }
        known.finish(id, &mut forgotten);
        forgotten.sort_unstable_by(|a, b| (&a.partition, a.topic_id).cmp(&(&b.partition, b.topic_id)));
        // Whoever waits longest comes first, also in what the broker remembers.
        let order = |(turn, place): &(u64, usize)| (*turn, known.get(*place).map(|fetch| fetch.partition.clone()));
        said.sort_by_cached_key(order);
        let rack = self.config.rack.clone().filter(|_| !due.at_leader);
        let (min_bytes, isolation) = (self.config.min_bytes, self.config.isolation);
        FetchPlan {
            id,
            node,
            sent: now,
            max_wait,
            min_bytes,
            max_bytes: room,
            isolation,
            rack,
            asked: state.session.known(),
            step: state.session.step(),
            said: said.into_iter().map(|(_, place)| place).collect(),
            forgotten,
        }
    }
}

/// A partition's least share, however many there are.
const MIN_SHARE: usize = 64 << 10;
/// A request for less is not worth its round trip.
const MIN_ROOM: usize = 256 << 10;
const FIRST_PATIENCE: Duration = Duration::from_millis(5);
/// How long a request waits that leaves out paused partitions: the most that a resumed one comes late.
pub(super) const WAIT_BESIDE_PAUSED: Duration = Duration::from_millis(100);
