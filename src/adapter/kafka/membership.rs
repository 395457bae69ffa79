//! A membership by a consumer of its own.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::error::consumer_error;
use super::{LeaveWithin, NAME};
use crate::adapter::{
    AdapterError, AdapterErrorKind, Assigned, Assignment, AssignmentEpoch, BoxFuture, Event, EventSource,
    MembershipHandle, PartitionBatch, Position, RecordSet, Release, ResumeFrom, SettleError, SettleFailure,
};
use crate::client::{self, CommitCause, CommitFailed, CommitPosition, Consumer, ConsumerEvent, ConsumerHandle};

/// What the consumer says, in the port's words. Dropped, it leaves the group.
pub(super) struct KafkaEvents(pub(super) Consumer);

impl EventSource for KafkaEvents {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_next(cx).map(|event| event.map(Event::from))
    }
}

impl From<ConsumerEvent> for Event {
    fn from(event: ConsumerEvent) -> Self {
        match event {
            ConsumerEvent::Assigned(assignments) => {
                Self::Assigned(assignments.into_iter().map(Assignment::from).collect())
            }
            ConsumerEvent::Batch(batch) => Self::Batch(PartitionBatch::from(batch)),
            ConsumerEvent::Revoked(partitions, release) => Self::Revoked(
                partitions.into_iter().map(Assigned::from).collect(),
                Release::over(release.into_sender()),
            ),
            ConsumerEvent::Lost(partitions) => Self::Lost(partitions.into_iter().map(Assigned::from).collect()),
            ConsumerEvent::Fault(error) => Self::Fault(consumer_error(error)),
        }
    }
}

impl From<client::Assignment> for Assignment {
    fn from(assignment: client::Assignment) -> Self {
        let client::Assignment { assigned, committed, position, note } = assignment;
        Self { assigned: assigned.into(), committed, position, note }
    }
}

impl From<client::PartitionBatch> for PartitionBatch {
    fn from(batch: client::PartitionBatch) -> Self {
        let records = RecordSet::new(batch.batches, batch.from).covering(batch.next_offset);
        Self { assigned: batch.assigned.into(), records, hold: Some(Box::new(batch.lease)) }
    }
}

impl From<client::Assigned> for Assigned {
    fn from(assigned: client::Assigned) -> Self {
        Self { partition: assigned.partition, epoch: AssignmentEpoch(assigned.epoch) }
    }
}

impl From<&Assigned> for client::Assigned {
    fn from(assigned: &Assigned) -> Self {
        Self { partition: assigned.partition.clone(), epoch: assigned.epoch.0 }
    }
}

/// What is said to the consumer.
pub(super) struct KafkaHandle {
    consumer: ConsumerHandle,
    group: String,
}

impl KafkaHandle {
    pub(super) fn new(consumer: ConsumerHandle, group: String) -> Self {
        Self { consumer, group }
    }

    fn failure(&self, failed: CommitFailed) -> SettleFailure {
        let (kind, retryable) = match &failed.cause {
            CommitCause::Lost => (AdapterErrorKind::Refused, false),
            CommitCause::Refused(code) => (AdapterErrorKind::Refused, code.is_retriable()),
            CommitCause::NoteTooLong { .. } => (AdapterErrorKind::Unsupported, false),
            // Not in time, or too many wait.
            _ => (AdapterErrorKind::Unavailable, true),
        };
        let lost = failed.is_lost();
        let what = format_args!("commit of group {}: {failed}", self.group);
        let error = Arc::new(AdapterError::new(NAME, kind, what).with_retryable(retryable));
        let position = failed.position;
        let position = Position { assigned: position.assigned.into(), offset: position.offset, note: position.note };
        SettleFailure { position, error, lost }
    }
}

impl MembershipHandle for KafkaHandle {
    fn settle(&self, positions: Vec<Position>) -> BoxFuture<'_, Result<(), SettleError>> {
        Box::pin(async move {
            let commits = positions.iter().map(|position| {
                let commit = CommitPosition::new((&position.assigned).into(), position.offset);
                CommitPosition { note: position.note.clone(), ..commit }
            });
            let committed = self.consumer.commit(commits.collect()).await;
            committed.map_err(|error| {
                SettleError::new(error.failures.into_iter().map(|failed| self.failure(failed)).collect())
            })
        })
    }

    fn pause(&self, assigned: &Assigned) {
        self.consumer.pause(&assigned.into());
    }

    fn resume(&self, assigned: &Assigned, from: ResumeFrom) {
        let assigned = assigned.into();
        if let ResumeFrom::Offset(offset) = from {
            // Before it goes on: nothing that was buffered may come in between.
            self.consumer.seek(&assigned, offset);
        }
        self.consumer.resume(&assigned);
    }

    fn leave(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        self.leave_within(timeout)
    }
}

impl LeaveWithin for KafkaHandle {
    fn leave_within(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async move { self.consumer.leave(timeout).await.map_err(consumer_error) })
    }
}

impl fmt::Debug for KafkaHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaHandle").field("group", &self.group).finish_non_exhaustive()
    }
}
