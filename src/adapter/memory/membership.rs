//! A membership's two ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::adapter::memory::Call;
use crate::adapter::memory::seat::SeatKey;
use crate::adapter::memory::shared::{Shared, Verdict, lost_answer, refused};
use crate::adapter::{
    AdapterError, Assigned, BoxFuture, Event, EventSource, MembershipHandle, Position, ResumeFrom, SettleError,
    SettleFailure,
};
use crate::memory::{Commit, Committed, Owned};
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;

/// The end that events come in by. Dropped, it leaves the group.
#[derive(Debug)]
pub(super) struct MemoryEvents {
    shared: Arc<Shared>,
    key: SeatKey,
}

impl MemoryEvents {
    pub(super) fn new(shared: Arc<Shared>, key: SeatKey) -> Self {
        Self { shared, key }
    }
}

impl EventSource for MemoryEvents {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let now = self.shared.wall_clock();
        let mut state = self.shared.lock();
        let state = &mut *state;
        let Some(seat) = state.seats.get_mut(&self.key) else { return Poll::Ready(None) };
        if seat.ended {
            return Poll::Ready(None);
        }
        if let Some(event) = seat.next_event(&self.key, &mut state.broker, &self.shared, now) {
            return Poll::Ready(Some(event));
        }
        seat.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for MemoryEvents {
    fn drop(&mut self) {
        self.shared.with(|state| {
            state.leave(&self.key);
            state.seats.remove(&self.key);
        });
    }
}

/// The end that is spoken into.
#[derive(Debug)]
pub(super) struct MemoryHandle {
    shared: Arc<Shared>,
    key: SeatKey,
    /// Held by the settle that is under way.
    settling: tokio::sync::Mutex<()>,
}

impl MemoryHandle {
    pub(super) fn new(shared: Arc<Shared>, key: SeatKey) -> Self {
        Self { shared, key, settling: tokio::sync::Mutex::new(()) }
    }

    fn group(&self) -> String {
        self.key.group.to_string()
    }

    /// Commits, and tells of each position what came of it.
    fn commit(&self, positions: Vec<Position>) -> Vec<(Position, Result<(), ErrorCode>)> {
        self.shared.with(|state| {
            let commits = positions.iter().map(|position| {
                let Assigned { partition, epoch } = &position.assigned;
                let committed = Committed {
                    offset: position.offset,
                    leader_epoch: state.broker.leader_epoch(partition).ok(),
                    metadata: position.note.clone(),
                };
                Commit { owned: Owned { partition: partition.clone(), epoch: epoch.0 }, committed }
            });
            let commits = commits.collect();
            let outcomes = state.broker.commit(&self.key.group, self.key.member, commits);
            if let Some(seat) = state.seats.get_mut(&self.key) {
                for (position, _) in positions.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()) {
                    seat.settled(&position.assigned, position.offset);
                }
            }
            positions.into_iter().zip(outcomes).collect()
        })
    }
}

impl MembershipHandle for MemoryHandle {
    fn settle(&self, positions: Vec<Position>) -> BoxFuture<'_, Result<(), SettleError>> {
        Box::pin(async move {
            let _under_way = self.settling.lock().await;
            let told = positions.iter().map(|p| (p.assigned.partition.clone(), p.offset)).collect();
            let verdict = self.shared.begin(Call::Settle { group: self.group(), positions: told }).await;

            let affects = |limit: &Option<Topic>, position: &Position| {
                limit.as_ref().is_none_or(|topic| *topic == position.assigned.partition.topic)
            };
            let what = format!("commit of group {}", self.key.group);
            let mut failures = Vec::new();
            let (to_commit, unheard) = match verdict {
                Verdict::Proceed => (positions, None),
                Verdict::LoseAnswer { topic } => (positions, Some(topic)),
                Verdict::Refuse { code, retryable, topic } => {
                    let (hit, rest): (Vec<_>, Vec<_>) = positions.into_iter().partition(|p| affects(&topic, p));
                    let error = Arc::new(refused(code, &what).with_retryable(retryable));
                    let lost = means_lost(code);
                    failures.extend(hit.into_iter().map(|position| failure(position, error.clone(), lost)));
                    (rest, None)
                }
            };
            for (position, outcome) in self.commit(to_commit) {
                match outcome {
                    Err(code) => failures.push(failure(position, Arc::new(refused(code, &what)), means_lost(code))),
                    Ok(()) if unheard.as_ref().is_some_and(|topic| affects(topic, &position)) => {
                        failures.push(failure(position, Arc::new(lost_answer(&what)), false));
                    }
                    Ok(()) => {}
                }
            }
            if failures.is_empty() { Ok(()) } else { Err(SettleError::new(failures)) }
        })
    }

    fn pause(&self, assigned: &Assigned) {
        self.shared.note(Call::Pause { group: self.group(), partition: assigned.partition.clone() });
        self.shared.with(|state| {
            if let Some(seat) = state.seats.get_mut(&self.key) {
                seat.pause(assigned);
            }
        });
    }

    fn resume(&self, assigned: &Assigned, from: ResumeFrom) {
        let offset = match from {
            ResumeFrom::Here => None,
            ResumeFrom::Offset(offset) => Some(offset),
        };
        let partition = assigned.partition.clone();
        self.shared.note(Call::Resume { group: self.group(), partition, from: offset });
        self.shared.with(|state| {
            if let Some(seat) = state.seats.get_mut(&self.key) {
                seat.resume(assigned, from);
            }
        });
    }

    fn leave(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async move {
            let call = Call::Leave { group: self.group() };
            let what = format!("leaving group {}", self.key.group);
            let verdict = tokio::time::timeout(timeout, self.shared.begin(call)).await;
            // It is over in any case; a broker that was not told would find out by the session's end.
            self.shared.with(|state| state.leave(&self.key));
            match verdict {
                Ok(Verdict::Proceed) => Ok(()),
                Ok(Verdict::Refuse { code, retryable, .. }) => Err(refused(code, what).with_retryable(retryable)),
                Ok(Verdict::LoseAnswer { .. }) | Err(_) => Err(lost_answer(what)),
            }
        })
    }
}

/// The topics that are to be read.
pub(super) fn subscription(topics: &[crate::adapter::TopicSubscription]) -> BTreeSet<Topic> {
    topics.iter().map(|topic| topic.topic.clone()).collect()
}

fn failure(position: Position, error: Arc<AdapterError>, lost: bool) -> SettleFailure {
    SettleFailure { position, error, lost }
}

/// Codes that say: the partition, or the whole membership, is somebody else's now.
fn means_lost(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::STALE_MEMBER_EPOCH
            | ErrorCode::UNKNOWN_MEMBER_ID
            | ErrorCode::ILLEGAL_GENERATION
            | ErrorCode::FENCED_MEMBER_EPOCH
            | ErrorCode::FENCED_INSTANCE_ID
            | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    )
}
