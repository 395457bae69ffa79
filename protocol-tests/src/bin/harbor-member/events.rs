//! The harbor's own events, printed.

use kafka_harbor::observe::{
    AssignorChanged, CommitFailed, ConsumerStopped, ErrorReported, ForeignPartitions, MessageDeadLettered,
    MessageFailed, MessageProcessed, MessageRetried, MessageSkipped, Observer, StopReason, TopicWarning,
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::output::emit;

/// Prints what a harbor tells, and notices when the consumer is to end by it.
#[derive(Debug)]
pub(crate) struct Printer {
    quiet: bool,
    settled: mpsc::UnboundedSender<Noticed>,
}

/// What decides about the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noticed {
    /// A record was processed or set aside.
    Settled,
    /// The consumer stopped by itself.
    Stopped(StopReason),
}

impl Printer {
    pub(crate) fn new(quiet: bool) -> (Self, mpsc::UnboundedReceiver<Noticed>) {
        let (settled, noticed) = mpsc::unbounded_channel();
        (Self { quiet, settled }, noticed)
    }

    fn record(&self, event: &str, fields: impl FnOnce() -> serde_json::Value) {
        if !self.quiet {
            emit(event, fields());
        }
    }

    fn notice(&self, what: Noticed) {
        // The end has begun; nobody counts any more.
        let _ = self.settled.send(what);
    }
}

impl Observer for Printer {
    fn message_processed(&self, e: &MessageProcessed<'_>) {
        self.record("processed", || {
            json!({
                "topic": e.topic.as_str(), "partition": e.partition, "offset": e.offset.to_string(), "group": e.group,
                "correlationId": e.correlation_id,
            })
        });
        self.notice(Noticed::Settled);
    }

    fn message_failed(&self, e: &MessageFailed<'_>) {
        self.record("failed", || {
            json!({
                "topic": e.topic.as_str(), "partition": e.partition, "offset": e.offset.to_string(), "group": e.group,
                "outcome": e.outcome.as_str(), "error": e.error.text, "code": e.error.code,
                "correlationId": e.correlation_id,
            })
        });
    }

    fn message_retried(&self, e: &MessageRetried<'_>) {
        self.record("retried", || {
            json!({
                "topic": e.topic.as_str(), "partition": e.partition, "offset": e.offset.to_string(), "group": e.group,
                "retryTopic": e.retry_topic.as_str(), "level": e.level, "attempt": e.attempt,
                "correlationId": e.correlation_id,
            })
        });
    }

    fn message_dead_lettered(&self, e: &MessageDeadLettered<'_>) {
        self.record("deadLettered", || {
            json!({
                "topic": e.topic.as_str(), "partition": e.partition, "offset": e.offset.to_string(), "group": e.group,
                "dlqTopic": e.dead_letter_topic.as_str(), "attempts": e.attempts, "correlationId": e.correlation_id,
            })
        });
        self.notice(Noticed::Settled);
    }

    fn message_skipped(&self, e: &MessageSkipped<'_>) {
        self.record("skipped", || {
            json!({
                "topic": e.topic.as_str(), "partition": e.partition, "offset": e.offset.to_string(), "group": e.group,
                "retryGroup": e.retry_group,
            })
        });
    }

    fn commit_failed(&self, e: &CommitFailed<'_>) {
        emit(
            "commitFailed",
            json!({
                "topic": e.partition.topic.as_str(), "partition": e.partition.partition, "offset": e.offset.to_string(),
                "group": e.group, "withheld": e.withheld, "lost": e.lost, "error": e.error.text,
            }),
        );
    }

    fn consumer_stopped(&self, e: &ConsumerStopped<'_>) {
        emit("stopped", json!({ "group": e.group, "reason": e.reason.as_str() }));
        if e.reason != StopReason::Shutdown {
            self.notice(Noticed::Stopped(e.reason));
        }
    }

    fn assignor_changed(&self, e: &AssignorChanged<'_>) {
        emit("assignor", json!({ "group": e.group, "offered": e.offered.join(","), "chosen": e.chosen }));
    }

    fn foreign_partitions(&self, e: &ForeignPartitions<'_>) {
        let partitions: Vec<_> =
            e.partitions.iter().map(|partition| json!([partition.topic.as_str(), partition.partition])).collect();
        emit("foreign", json!({ "group": e.group, "partitions": partitions }));
    }

    fn topic_warning(&self, e: &TopicWarning<'_>) {
        emit("log", json!({ "level": "warn", "topic": e.topic.as_str(), "message": e.what }));
    }

    fn error(&self, e: &ErrorReported<'_>) {
        emit(
            "error",
            json!({
                "scope": e.scope.as_str(), "group": e.group, "topic": e.topic.map(|topic| topic.as_str()),
                "code": e.error.code, "error": e.error.text,
            }),
        );
    }
}
