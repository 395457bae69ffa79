//! What can go wrong in the harbor, each with the code that the Node package gives it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::{AdapterError, AdapterErrorKind, PublishError};
use crate::error::BoxError;
use crate::harbor::duration::{IntoPeriod, Period};
use crate::harbor::failure::{Failure, TextForm};
use crate::harbor::guard;
use crate::observe::ErrorInfo;
use crate::record::{Offset, Topic, TopicPartition};

/// The codes of errors. They are the contract; the texts are not.
pub mod code {
    /// The configuration is wrong.
    pub const CONFIG_INVALID: &str = "CONFIG_INVALID";
    /// A payload could not be turned into bytes, or bytes into a payload. Such a record goes to the dead letters.
    pub const SERIALIZATION: &str = "SERIALIZATION";
    /// The consumer is to stop and leave the record where it is.
    pub const ABORT_PROCESSING: &str = "ABORT_PROCESSING";
    /// A topic does not exist.
    pub const TOPIC_MISSING: &str = "TOPIC_MISSING";
    /// The broker refused, or could not be reached.
    pub const ADAPTER: &str = "ADAPTER";
    /// The harbor or the consumer is closed.
    pub const CLOSED: &str = "CLOSED";
    /// Handlers were still at work when a shutdown's time was up.
    pub const SHUTDOWN_TIMEOUT: &str = "SHUTDOWN_TIMEOUT";
    /// All tries to publish failed.
    pub const RETRY_EXHAUSTED: &str = "RETRY_EXHAUSTED";
    /// A handler took longer than `max_processing_time`.
    pub const PROCESSING_TIMEOUT: &str = "PROCESSING_TIMEOUT";
    /// A record was held by an open circuit for longer than it may be.
    pub const HOLD_EXPIRED: &str = "HOLD_EXPIRED";
    /// A handler or another callback panicked.
    pub const PANIC: &str = "PANIC";
    /// A failed record is too large for where it has to go next.
    pub const TOO_LARGE: &str = "TOO_LARGE";
    /// A group reads what is to be taken back.
    pub const STILL_READ: &str = "STILL_READ";
    /// Somebody is at the work of this idempotency key.
    pub const IDEMPOTENCY_IN_PROGRESS: &str = "IDEMPOTENCY_IN_PROGRESS";
    /// An idempotency key is empty or too long.
    pub const IDEMPOTENCY_KEY_INVALID: &str = "IDEMPOTENCY_KEY_INVALID";
    /// An idempotency key was used for other work.
    pub const IDEMPOTENCY_KEY_REUSE: &str = "IDEMPOTENCY_KEY_REUSE";
    /// Somebody was at the work of this idempotency key for longer than one waits.
    pub const IDEMPOTENCY_WAIT_TIMEOUT: &str = "IDEMPOTENCY_WAIT_TIMEOUT";
    /// The lease of an idempotency key ran out while its work was under way. The work has run.
    pub const IDEMPOTENCY_FENCING: &str = "IDEMPOTENCY_FENCING";
    /// What an idempotency store holds makes no sense.
    pub const IDEMPOTENCY_STORAGE_CORRUPT: &str = "IDEMPOTENCY_STORAGE_CORRUPT";
    /// An idempotency store could not be reached, or has no room.
    pub const IDEMPOTENCY_STORAGE_UNAVAILABLE: &str = "IDEMPOTENCY_STORAGE_UNAVAILABLE";
    /// A handler's error that gives no code of its own.
    pub const HANDLER: &str = "HANDLER";
}

/// A call on the harbor, a producer or a consumer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarborError {
    /// The configuration is wrong; every mistake is named.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A payload and its bytes do not fit.
    #[error(transparent)]
    Serialization(#[from] SerializationError),
    /// A topic that must exist does not.
    #[error("topic `{topic}` does not exist")]
    TopicMissing {
        /// Which one.
        topic: Topic,
    },
    /// The broker refused, or could not be reached. Shared by all who waited for the same call.
    #[error(transparent)]
    Adapter(#[from] Arc<AdapterError>),
    /// Records were not acknowledged, in spite of every try. [`PublishError::outcomes`] tells of each.
    #[error(transparent)]
    NotPublished(#[from] PublishError),
    /// What was called is closed, or closing.
    #[error("{what} is closed")]
    Closed {
        /// What was called.
        what: &'static str,
    },
    /// Handlers were still at work when the time for stopping was up. What they were at is not committed.
    #[error("{in_flight} handler(s) still at work after {waited:?}")]
    ShutdownTimeout {
        /// How many were given up.
        in_flight: usize,
        /// How long the shutdown waited.
        waited: Duration,
    },
    /// A failed record is too large for the topic that it has to go to next, also without the headers that only inform. It
    /// stays where it is, uncommitted, and its consumer stops: before it is started again, a topic that takes less than its
    /// source has to be mended (`max.message.bytes`), or an adapter that sends less than topics take.
    #[error(
        "the record of {partition} at {offset} is too large for `{to}`, even without headers that only inform: {source}"
    )]
    HopTooLarge {
        /// Where the record is.
        partition: TopicPartition,
        /// Its offset there.
        offset: Offset,
        /// The topic that refused it.
        to: Topic,
        /// What the broker said last.
        source: Box<PublishError>,
    },
    /// A group is at work on a topic that a redrive wrote to, so that nobody can tell what it has read: it has to be stopped
    /// before the redrive is undone.
    #[error("group `{group}` is at work on `{topic}` ({members} member(s) now): stop it first")]
    StillRead {
        /// The group.
        group: String,
        /// The topic.
        topic: Topic,
        /// How many members it has; none where it read meanwhile.
        members: usize,
    },
    /// Letters are taken back to their dead-letter topic, but a group could not be moved behind them: it reads them as well.
    #[error("group `{group}` was not moved to {offset} on {partition}, and reads what was taken back: {source}")]
    NotPassed {
        /// The group.
        group: String,
        /// Where.
        partition: TopicPartition,
        /// The place that it was to be moved to.
        offset: Offset,
        /// Why it was not.
        source: Box<AdapterError>,
    },
    /// A handler's failure ended the consumer: it aborted, or nothing was left to do with the record.
    #[error(transparent)]
    Handler(#[from] Failure),
}

impl From<AdapterError> for HarborError {
    fn from(error: AdapterError) -> Self {
        match error.kind {
            AdapterErrorKind::TopicMissing(topic) => Self::TopicMissing { topic },
            _ => Self::Adapter(Arc::new(error)),
        }
    }
}

impl HarborError {
    /// The error's code: one of [`code`], or what a handler's error says of itself.
    pub fn code(&self) -> &str {
        match self {
            Self::Config(_) => code::CONFIG_INVALID,
            Self::Serialization(_) => code::SERIALIZATION,
            Self::TopicMissing { .. } => code::TOPIC_MISSING,
            Self::Adapter(error) => match error.kind {
                AdapterErrorKind::TopicMissing(_) => code::TOPIC_MISSING,
                AdapterErrorKind::Closed => code::CLOSED,
                _ => code::ADAPTER,
            },
            Self::NotPublished(error) if error.is_retryable() => code::RETRY_EXHAUSTED,
            Self::NotPublished(_) => code::ADAPTER,
            Self::HopTooLarge { .. } => code::TOO_LARGE,
            Self::StillRead { .. } => code::STILL_READ,
            Self::NotPassed { .. } => code::ADAPTER,
            Self::Closed { .. } => code::CLOSED,
            Self::ShutdownTimeout { .. } => code::SHUTDOWN_TIMEOUT,
            Self::Handler(failure) => failure.code().unwrap_or(code::HANDLER),
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Config(_) | Self::Serialization(_) | Self::TopicMissing { .. } | Self::Closed { .. } => false,
            Self::HopTooLarge { .. } => false,
            Self::StillRead { .. } => true,
            Self::NotPassed { source, .. } => source.retryable,
            Self::Adapter(error) => error.retryable,
            Self::NotPublished(error) => error.is_retryable(),
            Self::ShutdownTimeout { .. } => true,
            Self::Handler(failure) => failure.is_retryable(),
        }
    }

    /// What events tell of it. `text` is its [`text`](Self::text).
    pub(crate) fn told<'a>(&'a self, text: &'a str) -> ErrorInfo<'a> {
        ErrorInfo { error: self, name: self.name(), code: self.code(), text, retryable: self.is_retryable() }
    }

    /// Its text for an event, bounded as a header's.
    pub(crate) fn text(&self) -> String {
        TextForm::Bytes.bounded(guard::text(self))
    }

    /// The name that the Node package gives the error, for texts that both write.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Config(_) => "ConfigError",
            Self::Serialization(_) => "SerializationError",
            Self::TopicMissing { .. } => "TopicMissingError",
            Self::Adapter(_) => "AdapterError",
            Self::NotPublished(error) if error.is_retryable() => "RetryExhaustedError",
            Self::NotPublished(_) | Self::HopTooLarge { .. } | Self::NotPassed { .. } => "AdapterError",
            Self::StillRead { .. } => "StillReadError",
            Self::Closed { .. } => "ClosedError",
            Self::ShutdownTimeout { .. } => "ShutdownTimeoutError",
            Self::Handler(failure) => failure.name(),
        }
    }

    /// Whether records of this call may be in the log although it failed.
    pub fn is_possibly_written(&self) -> bool {
        match self {
            Self::NotPublished(error) => error.is_possibly_written(),
            Self::HopTooLarge { source, .. } => source.is_possibly_written(),
            _ => false,
        }
    }
}

/// Every mistake of a configuration, each with the option's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<ConfigProblem>,
}

impl ConfigError {
    /// The mistakes, in the order of the options. There is at least one.
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }

    /// An error of one mistake.
    pub(crate) fn one(option: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { problems: vec![ConfigProblem { option: option.into(), why: why.to_string() }] }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// One mistake of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {why}")]
#[non_exhaustive]
pub struct ConfigProblem {
    /// The option, as the builder names it, such as `retry.levels[1]`.
    pub option: String,
    /// What is wrong with it.
    pub why: String,
}

/// Gathers the mistakes of a builder, so that all are reported at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Problems(Vec<ConfigProblem>);

impl Problems {
    /// One more mistake.
    pub(crate) fn add(&mut self, option: impl Into<String>, why: impl fmt::Display) {
        self.0.push(ConfigProblem { option: option.into(), why: why.to_string() });
    }

    /// The period as a duration; a mistake is noted, and the period taken for nothing.
    pub(crate) fn period(&mut self, option: impl Into<String>, period: impl IntoPeriod) -> Duration {
        period.into_period().map(Period::as_duration).unwrap_or_else(|error| {
            self.add(option, error);
            Duration::ZERO
        })
    }

    /// Notes a text that says nothing.
    pub(crate) fn require(&mut self, option: impl Into<String>, text: &str) {
        if text.is_empty() {
            self.add(option, "must not be empty");
        }
    }

    /// What another part of the configuration found.
    pub(crate) fn extend(&mut self, error: ConfigError) {
        self.0.extend(error.problems);
    }

    /// All is well, or every mistake.
    pub(crate) fn finish(self) -> Result<(), ConfigError> {
        if self.0.is_empty() { Ok(()) } else { Err(ConfigError { problems: self.0 }) }
    }
}

/// A payload could not be turned into bytes, or bytes into a payload.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
#[non_exhaustive]
pub struct SerializationError {
    /// What was attempted, with the topic.
    pub what: String,
    /// What the serializer said.
    pub source: BoxError,
}

impl SerializationError {
    /// `source` came of turning a payload for `topic` into bytes.
    pub(crate) fn serializing(topic: &str, source: impl Into<BoxError>) -> Self {
        Self { what: format!("cannot serialize a payload for `{topic}`"), source: source.into() }
    }

    /// `source` came of reading the value of a record of `topic`.
    pub(crate) fn deserializing(topic: &str, source: impl Into<BoxError>) -> Self {
        Self { what: format!("cannot deserialize a value of `{topic}`"), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::RecordFailure;
    use crate::error::WriteOutcome;

    #[test]
    fn every_mistake_is_reported_by_name() {
        let mut problems = Problems::default();
        problems.require("group", "");
        assert_eq!(problems.period("retry.levels[0]", "5s"), Duration::from_secs(5));
        problems.period("retry.levels[1]", "5 parsecs");
        problems.extend(ConfigError::one("dead_letter", "is also consumed"));
        let error = problems.finish().unwrap_err();
        let options: Vec<_> = error.problems().iter().map(|problem| problem.option.as_str()).collect();
        assert_eq!(options, ["group", "retry.levels[1]", "dead_letter"]);
        assert_eq!(
            error.to_string(),
            "group: must not be empty; retry.levels[1]: `5 parsecs` is no length of time: an amount and one of ms, s, \
             m, h, d, such as `30s`; dead_letter: is also consumed"
        );
        assert!(Problems::default().finish().is_ok());
    }

    #[test]
    fn codes_and_verdicts_are_those_of_the_table() {
        let publish = |retryable| {
            let failure = RecordFailure::new(WriteOutcome::PossiblyWritten, retryable, "orders-0: timed out");
            HarborError::from(PublishError::all(2, failure, 5))
        };
        let table: [(HarborError, &str, bool); 8] = [
            (ConfigError::one("group", "must not be empty").into(), code::CONFIG_INVALID, false),
            (SerializationError::serializing("orders", "no").into(), code::SERIALIZATION, false),
            (HarborError::TopicMissing { topic: "orders".into() }, code::TOPIC_MISSING, false),
            (AdapterError::new("memory", AdapterErrorKind::Unavailable, "down").into(), code::ADAPTER, true),
            (publish(true), code::RETRY_EXHAUSTED, true),
            (publish(false), code::ADAPTER, false),
            (HarborError::Closed { what: "the harbor" }, code::CLOSED, false),
            (
                HarborError::ShutdownTimeout { in_flight: 2, waited: Duration::from_secs(30) },
                code::SHUTDOWN_TIMEOUT,
                true,
            ),
        ];
        for (error, code, retryable) in table {
            assert_eq!((error.code(), error.is_retryable()), (code, retryable), "{error}");
        }
        assert!(publish(true).is_possibly_written());
    }
}
