//! What a pipeline tells observers.

use std::time::Duration;

use tokio::time::Instant;

use crate::adapter::{AdapterError, PublishError, SettleFailure};
use crate::harbor::error::{ConfigError, HarborError, code};
use crate::harbor::failure::{Failure, TextForm};
use crate::harbor::headers::LadderHeaders;
use crate::harbor::pipeline::lane::Lane;
use crate::harbor::pipeline::note::{Halt, Settled, Stop};
use crate::harbor::pipeline::setup::Setup;
use crate::observe::{
    AssignorChanged, CommitFailed, ConsumerStopped, ErrorInfo, ErrorReported, ErrorScope, FailureOutcome,
    ForeignPartitions, HopRemedy, HopTooLarge, MessageDeadLettered, MessageFailed, MessageProcessed, MessageProduced,
    MessageRetried, MessageSkipped, PossiblyWritten, ProduceKind, StopReason,
};
use crate::protocol::batch::BatchError;
use crate::record::{Offset, RecordView, Topic, TopicPartition};

impl Setup {
    /// The record's correlation id, if it is text.
    pub(super) fn correlation_id<'a>(&self, record: &RecordView<'a>) -> Option<&'a str> {
        let id = self.stamper.names().correlation_of(record.headers)?;
        std::str::from_utf8(id).ok()
    }

    /// An error of the consumer.
    pub(super) fn report_error(&self, error: &HarborError, topic: Option<&Topic>) {
        self.observers.error(&ErrorReported {
            error: error.told(&error.text()),
            scope: ErrorScope::Consumer,
            group: Some(&self.group),
            topic,
        });
    }

    /// Something went wrong between us and the broker. The membership goes on.
    pub(super) fn report_fault(&self, error: &AdapterError) {
        let text = error.to_string();
        self.observers.error(&ErrorReported {
            error: told(error, &text),
            scope: ErrorScope::Adapter,
            group: Some(&self.group),
            topic: None,
        });
    }

    /// A position was not committed.
    pub(super) fn report_commit_failed(&self, failure: &SettleFailure, withheld: usize) {
        let text = failure.error.to_string();
        let partition = &failure.position.assigned.partition;
        self.observers.commit_failed(&CommitFailed {
            group: &self.group,
            partition,
            offset: failure.position.offset,
            withheld,
            lost: failure.lost,
            error: told(&failure.error, &text),
        });
        self.observers.error(&ErrorReported {
            error: told(&failure.error, &text),
            scope: ErrorScope::Consumer,
            group: Some(&self.group),
            topic: Some(&partition.topic),
        });
    }

    /// The group runs another assignor than the one that was offered first.
    pub(super) fn report_assignor(&self, offered: &[String], chosen: &str) {
        self.observers.assignor_changed(&AssignorChanged { group: &self.group, offered, chosen });
    }

    /// Partitions came whose topics were not asked for.
    pub(super) fn report_foreign(&self, partitions: &[TopicPartition]) {
        self.observers.foreign_partitions(&ForeignPartitions { group: &self.group, partitions });
    }

    /// The consumer's own task ended, by a panic or with its runtime.
    pub(crate) fn report_ended_early(&self) {
        let what = format!("the task of consumer {} ended early", self.group);
        self.report_error(&Failure::permanent(what).named("Panic").into(), None);
    }

    /// The consumer stopped.
    pub(crate) fn report_stopped(&self, reason: StopReason) {
        self.observers.consumer_stopped(&ConsumerStopped { group: &self.group, reason });
    }

    /// A hop was acknowledged.
    pub(super) fn report_produced(&self, topic: &Topic, kind: ProduceKind, started: Instant) {
        let duration = started.elapsed();
        self.observers.message_produced(&MessageProduced { topic, kind, records: 1, duration });
    }

    /// A hop was not acknowledged.
    pub(super) fn report_not_produced(&self, topic: &Topic, kind: ProduceKind, error: &PublishError) {
        if error.is_possibly_written() {
            self.observers.possibly_written(&PossiblyWritten { topic, kind, records: 1 });
        }
    }

    /// A hop was refused for its size.
    pub(super) fn report_hop_too_large(
        &self,
        lane: &Lane,
        offset: Offset,
        to: &Topic,
        kind: ProduceKind,
        error: &PublishError,
        remedy: HopRemedy,
    ) {
        let text = TextForm::Bytes.bounded(error.to_string());
        self.observers.hop_too_large(&HopTooLarge {
            partition: &lane.assigned.partition,
            offset,
            group: &self.group,
            to,
            kind,
            error: ErrorInfo { error, name: "AdapterError", code: code::TOO_LARGE, text: &text, retryable: false },
            remedy,
        });
    }

    /// A handler failed, and the consumer stops.
    pub(super) fn report_failed(
        &self,
        lane: &Lane,
        record: &RecordView<'_>,
        failure: &Failure,
        duration: Duration,
        outcome: FailureOutcome,
    ) {
        let TopicPartition { topic, partition } = &lane.assigned.partition;
        self.observers.message_failed(&MessageFailed {
            topic,
            partition: *partition,
            offset: record.offset,
            group: &self.group,
            error: failure.told(&failure.last_error(self.text_form)),
            duration,
            outcome,
            correlation_id: self.correlation_id(record),
        });
    }

    /// What became of a delivery, now that it is committed.
    pub(super) fn report_settled(&self, lane: &Lane, offset: Offset, outcome: &Settled) {
        let TopicPartition { topic, partition } = &lane.assigned.partition;
        let (partition, group) = (*partition, &*self.group);
        let moved = match outcome {
            Settled::Processed { took, correlation_id, replayed } => {
                return self.observers.message_processed(&MessageProcessed {
                    topic,
                    partition,
                    offset,
                    group,
                    duration: *took,
                    correlation_id: correlation_id.as_deref(),
                    replayed: *replayed,
                });
            }
            Settled::Skipped { group: other } => {
                let retry_group = other.as_deref();
                return self.observers.message_skipped(&MessageSkipped {
                    topic,
                    partition,
                    offset,
                    group,
                    retry_group,
                });
            }
            Settled::Moved(moved) => moved,
        };
        let text = moved.error.last_error(self.text_form);
        let error = moved.error.told(&text);
        let correlation_id = moved.correlation_id.as_deref();
        self.observers.message_failed(&MessageFailed {
            topic,
            partition,
            offset,
            group,
            error,
            duration: moved.took,
            outcome: if moved.level.is_some() { FailureOutcome::Retry } else { FailureOutcome::DeadLetter },
            correlation_id,
        });
        match moved.level {
            Some(level) => self.observers.message_retried(&MessageRetried {
                topic,
                partition,
                offset,
                group,
                retry_topic: &moved.to,
                level,
                attempt: moved.attempt,
                error,
                correlation_id,
            }),
            None => self.observers.message_dead_lettered(&MessageDeadLettered {
                topic,
                partition,
                offset,
                group,
                dead_letter_topic: &moved.to,
                attempts: moved.attempt,
                error,
                correlation_id,
            }),
        }
    }
}

/// A record's bytes are not what they claim. Nothing may be committed past it.
pub(super) fn unreadable(lane: &Lane, error: BatchError) -> Halt {
    let what = format_args!("{}: {error}", lane.assigned.partition);
    let error = AdapterError::new("harbor", crate::adapter::AdapterErrorKind::Refused, what).with_source(error);
    crash(error.into(), Some(&lane.assigned.partition.topic))
}

/// A record names none of the subscriptions that share its topic.
pub(super) fn no_owner(lane: &Lane, record: &RecordView<'_>, headers: &LadderHeaders<'_>) -> Failure {
    let TopicPartition { topic, partition } = &lane.assigned.partition;
    let whose = headers.block.as_ref().map_or_else(
        || "carries no valid retry headers".to_owned(),
        |block| format!("names `{}`, which is not among those that share it", block.original_topic),
    );
    Failure::permanent(format!("the record of `{topic}` at {partition}/{} {whose}", record.offset))
        .named("RoutingError")
}

/// A batch came of a topic that nothing was subscribed to.
pub(super) fn unknown_route(topic: &Topic) -> Stop {
    let error = ConfigError::one(format!("topics[{topic}]"), "is delivered, but nothing was subscribed to it").into();
    Stop { reason: StopReason::Crash, error, topic: Some(topic.clone()) }
}

/// A hop's task ended by a panic: whether the record was written is not known.
pub(super) fn hop_died(lane: &Lane, offset: Offset) -> Box<Stop> {
    let what = format!("the hop of {} at {offset} panicked", lane.assigned.partition);
    let failure = Failure::permanent(what).named("Panic");
    Box::new(Stop { reason: StopReason::Crash, error: failure.into(), topic: None })
}

/// A worker ended by a panic that was not a handler's.
pub(super) fn worker_died(lane: &Lane) -> Box<Stop> {
    let failure = Failure::permanent(format!("the worker of {} panicked", lane.assigned.partition)).named("Panic");
    Box::new(Stop { reason: StopReason::Crash, error: failure.into(), topic: None })
}

/// The consumer has to stop; the record at hand stays where it is.
pub(super) fn crash(error: HarborError, topic: Option<&Topic>) -> Halt {
    Halt::Stop(Box::new(Stop { reason: StopReason::Crash, error, topic: topic.cloned() }))
}

fn told<'a>(error: &'a AdapterError, text: &'a str) -> ErrorInfo<'a> {
    ErrorInfo { error, name: "AdapterError", code: code::ADAPTER, text, retryable: error.retryable }
}
