//! What is told of each event. Borrowed, so that telling costs no allocation.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::record::{NodeId, Offset, Topic, TopicPartition};

/// An error, as an event tells it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ErrorInfo<'a> {
    /// The error itself.
    pub error: &'a (dyn Error + 'static),
    /// Its name, such as its type's.
    pub name: &'a str,
    /// Its code.
    pub code: &'a str,
    /// Its text, bounded: what the `last-error` header would say.
    pub text: &'a str,
    /// Whether trying again may help.
    pub retryable: bool,
}

/// The broker was reached.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Connected<'a> {
    /// The adapter's name.
    pub adapter: &'a str,
}

/// Every connection was let go.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Disconnected<'a> {
    /// The adapter's name.
    pub adapter: &'a str,
}

/// A handler succeeded, and its record is committed.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MessageProcessed<'a> {
    /// The topic that the record was read from: a retry topic on the ladder.
    pub topic: &'a Topic,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: Offset,
    /// The consumer's group.
    pub group: &'a str,
    /// From reading the payload to the handler's end, without the wait of a retry.
    pub duration: Duration,
    /// The record's correlation id, if it is text.
    pub correlation_id: Option<&'a str>,
    /// Whether its handler did not run, because work of its idempotency key was done before.
    pub replayed: bool,
}

/// A handler failed.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MessageFailed<'a> {
    /// The topic that the record was read from.
    pub topic: &'a Topic,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: Offset,
    /// The consumer's group.
    pub group: &'a str,
    /// Why.
    pub error: ErrorInfo<'a>,
    /// From reading the payload to the handler's end; nothing where no handler ran.
    pub duration: Duration,
    /// What follows.
    pub outcome: FailureOutcome,
    /// The record's correlation id, if it is text.
    pub correlation_id: Option<&'a str>,
}

/// What follows a handler's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureOutcome {
    /// The record goes to the next level.
    Retry,
    /// The record goes to the dead letters.
    DeadLetter,
    /// The consumer stops because the handler says so.
    Abort,
    /// The consumer stops because nothing is left to do with the record.
    Crash,
}

impl FailureOutcome {
    /// The word for it in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::DeadLetter => "dead-letter",
            Self::Abort => "abort",
            Self::Crash => "crash",
        }
    }
}

/// A record was written to the next level of its ladder.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MessageRetried<'a> {
    /// The topic that the record was read from.
    pub topic: &'a Topic,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: Offset,
    /// The consumer's group.
    pub group: &'a str,
    /// Where it was written.
    pub retry_topic: &'a Topic,
    /// The level of that topic, from 1.
    pub level: u32,
    /// The attempt that failed, from 1.
    pub attempt: u32,
    /// Why it failed.
    pub error: ErrorInfo<'a>,
    /// The record's correlation id, if it is text.
    pub correlation_id: Option<&'a str>,
}

/// A record was set aside.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MessageDeadLettered<'a> {
    /// The topic that the record was read from.
    pub topic: &'a Topic,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: Offset,
    /// The consumer's group.
    pub group: &'a str,
    /// Where it was written.
    pub dead_letter_topic: &'a Topic,
    /// The attempt that failed, from 1.
    pub attempts: u32,
    /// Why it failed.
    pub error: ErrorInfo<'a>,
    /// The record's correlation id, if it is text.
    pub correlation_id: Option<&'a str>,
}

/// A retry that another group failed was passed over.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MessageSkipped<'a> {
    /// The retry topic.
    pub topic: &'a Topic,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: Offset,
    /// The consumer's group.
    pub group: &'a str,
    /// The group whose retry it is, if the record tells.
    pub retry_group: Option<&'a str>,
}

/// Records of one topic were acknowledged.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MessageProduced<'a> {
    /// The topic.
    pub topic: &'a Topic,
    /// What they were written for.
    pub kind: ProduceKind,
    /// How many.
    pub records: usize,
    /// From handing them over to the acknowledgement, all tries included.
    pub duration: Duration,
}

/// What records are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProduceKind {
    /// The application sends them.
    Send,
    /// They go to the next level of a ladder.
    Retry,
    /// They go to the dead letters.
    DeadLetter,
    /// They are brought back from the dead letters.
    Redrive,
}

impl ProduceKind {
    /// The word for it in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Retry => "retry",
            Self::DeadLetter => "dead-letter",
            Self::Redrive => "redrive",
        }
    }
}

/// Records were not acknowledged, but may be in the log.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PossiblyWritten<'a> {
    /// The topic.
    pub topic: &'a Topic,
    /// What they were written for.
    pub kind: ProduceKind,
    /// How many.
    pub records: usize,
}

/// A dead letter was brought back.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MessageRedriven<'a> {
    /// The dead-letter topic.
    pub from: &'a Topic,
    /// Where it was written.
    pub to: &'a Topic,
    /// Its partition among the dead letters.
    pub partition: i32,
    /// Its offset there.
    pub offset: Offset,
    /// The redrive's group.
    pub group: &'a str,
    /// The record's correlation id, if it is text.
    pub correlation_id: Option<&'a str>,
}

/// How far a redrive is.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RedriveProgress<'a> {
    /// The dead-letter topic.
    pub from: &'a Topic,
    /// The redrive's group.
    pub group: &'a str,
    /// Letters that were brought back.
    pub reprocessed: u64,
    /// Letters that its filter did not want.
    pub skipped: u64,
    /// Letters that were brought back too often before, and stay.
    pub exhausted: u64,
    /// How long it has been at work.
    pub elapsed: Duration,
    /// Whether it is over.
    pub done: bool,
}

/// Positions could not be committed.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CommitFailed<'a> {
    /// The consumer's group.
    pub group: &'a str,
    /// The partition.
    pub partition: &'a TopicPartition,
    /// The next offset to read that was to be committed.
    pub offset: Offset,
    /// How many records' events are withheld because of it.
    pub withheld: usize,
    /// Whether the partition is another member's now.
    pub lost: bool,
    /// Why.
    pub error: ErrorInfo<'a>,
}

/// A consumer stopped.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ConsumerStopped<'a> {
    /// Its group.
    pub group: &'a str,
    /// Why.
    pub reason: StopReason,
}

/// Why a consumer stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// It was told to.
    Shutdown,
    /// A handler told it to.
    Abort,
    /// A record had nowhere to go.
    Crash,
}

impl StopReason {
    /// The word for it in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Abort => "abort",
            Self::Crash => "crash",
        }
    }
}

/// The group runs another assignor than the one that was offered first.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AssignorChanged<'a> {
    /// The group.
    pub group: &'a str,
    /// What was offered first.
    pub offered: &'a [String],
    /// What the group runs.
    pub chosen: &'a str,
}

/// The group's leader gave us partitions of topics that we never asked for.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ForeignPartitions<'a> {
    /// The group.
    pub group: &'a str,
    /// Which.
    pub partitions: &'a [TopicPartition],
}

/// A failed record was refused by its next topic for its size.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct HopTooLarge<'a> {
    /// Where the record is.
    pub partition: &'a TopicPartition,
    /// Its offset there.
    pub offset: Offset,
    /// The consumer's group.
    pub group: &'a str,
    /// The topic that refused it.
    pub to: &'a Topic,
    /// What it was to be written for.
    pub kind: ProduceKind,
    /// What the broker said.
    pub error: ErrorInfo<'a>,
    /// What is done about it.
    pub remedy: HopRemedy,
}

/// What is done with a record that its next topic refused for its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HopRemedy {
    /// It is offered once more without the headers that only inform: why it failed, and who moved it when.
    WithoutTrail,
    /// It goes to the dead letters instead of the next level.
    DeadLetters,
    /// The consumer stops. The record stays where it is, uncommitted.
    Stop,
}

impl HopRemedy {
    /// The word for it in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WithoutTrail => "without-trail",
            Self::DeadLetters => "dead-letters",
            Self::Stop => "stop",
        }
    }
}

/// A topic's circuit opened, closed, or was opened for probes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CircuitStateChanged<'a> {
    /// The group.
    pub group: &'a str,
    /// The original topic.
    pub topic: &'a Topic,
    /// How it stood.
    pub from: CircuitState,
    /// How it stands.
    pub to: CircuitState,
}

/// How a circuit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitState {
    /// Everything is let through.
    Closed,
    /// Nothing is let through: too much failed.
    Open,
    /// A few probes are let through.
    HalfOpen,
    /// Nothing is let through, by hand.
    Isolated,
}

impl CircuitState {
    /// The word for it in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
            Self::Isolated => "isolated",
        }
    }
}

/// A topic is set up in a way that can lose records.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct TopicWarning<'a> {
    /// The topic.
    pub topic: &'a Topic,
    /// What is wrong with it.
    pub what: &'a str,
}

/// A broker asked this client for silence, because a quota is used up (KIP-219).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Throttled<'a> {
    /// The broker; absent for a bootstrap address whose broker is not known yet.
    pub broker: Option<NodeId>,
    /// The request that was answered, by Kafka's name.
    pub api: &'a str,
    /// How long nothing is written on that connection, from now on.
    pub silence: Duration,
}

/// Something went wrong.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ErrorReported<'a> {
    /// What.
    pub error: ErrorInfo<'a>,
    /// Where.
    pub scope: ErrorScope,
    /// The group, where there is one.
    pub group: Option<&'a str>,
    /// The topic, where there is one.
    pub topic: Option<&'a Topic>,
}

/// Where something went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorScope {
    /// A consumer: its handlers, commits, hops.
    Consumer,
    /// A producer.
    Producer,
    /// Between us and the broker.
    Adapter,
}

impl ErrorScope {
    /// The word for it in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Consumer => "consumer",
            Self::Producer => "producer",
            Self::Adapter => "adapter",
        }
    }
}

macro_rules! displayed {
    ($($word:ident),*) => {
        $(impl fmt::Display for $word {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        })*
    };
}

displayed!(FailureOutcome, HopRemedy, ProduceKind, StopReason, ErrorScope, CircuitState);

macro_rules! logged {
    ($($event:ident: $level:ident $message:literal, $this:ident { $($field:tt)* };)*) => {
        $(impl $event<'_> {
            pub(super) fn log(&self) {
                let $this = self;
                tracing::$level!($($field)* $message);
            }
        })*
    };
}

logged! {
    Connected: info "connected", e { adapter = e.adapter, };
    Disconnected: info "disconnected", e { adapter = e.adapter, };
    MessageProcessed: trace "processed", e {
        group = e.group, topic = %e.topic, partition = e.partition, offset = e.offset.0, duration = ?e.duration,
        correlation_id = e.correlation_id, replayed = e.replayed,
    };
    MessageFailed: warn "failed", e {
        group = e.group, topic = %e.topic, partition = e.partition, offset = e.offset.0, outcome = %e.outcome,
        error = e.error.text, code = e.error.code, duration = ?e.duration, correlation_id = e.correlation_id,
    };
    MessageRetried: info "to the next level", e {
        group = e.group, topic = %e.topic, partition = e.partition, offset = e.offset.0, retry_topic = %e.retry_topic,
        level = e.level, attempt = e.attempt, correlation_id = e.correlation_id,
    };
    MessageDeadLettered: warn "to the dead letters", e {
        group = e.group, topic = %e.topic, partition = e.partition, offset = e.offset.0,
        dead_letter_topic = %e.dead_letter_topic, attempts = e.attempts, error = e.error.text,
        correlation_id = e.correlation_id,
    };
    MessageSkipped: debug "another group's retry", e {
        group = e.group, topic = %e.topic, partition = e.partition, offset = e.offset.0, retry_group = e.retry_group,
    };
    MessageProduced: trace "acknowledged", e {
        topic = %e.topic, kind = %e.kind, records = e.records, duration = ?e.duration,
    };
    PossiblyWritten: warn "no acknowledgement: the records may be in the log", e {
        topic = %e.topic, kind = %e.kind, records = e.records,
    };
    MessageRedriven: debug "redriven", e {
        from = %e.from, to = %e.to, partition = e.partition, offset = e.offset.0, group = e.group,
        correlation_id = e.correlation_id,
    };
    RedriveProgress: debug "redrive", e {
        from = %e.from, group = e.group, reprocessed = e.reprocessed, skipped = e.skipped, exhausted = e.exhausted,
        elapsed = ?e.elapsed, done = e.done,
    };
    CommitFailed: warn "not committed: handled again if the process ends now", e {
        group = e.group, partition = %e.partition, offset = e.offset.0, withheld = e.withheld, lost = e.lost,
        error = e.error.text,
    };
    ConsumerStopped: info "consumer stopped", e { group = e.group, reason = %e.reason, };
    AssignorChanged: info "the group runs another assignor", e {
        group = e.group, offered = ?e.offered, chosen = e.chosen,
    };
    ForeignPartitions: warn "partitions of topics that were not asked for; left alone", e {
        group = e.group, partitions = ?e.partitions,
    };
    HopTooLarge: warn "too large for its next topic", e {
        group = e.group, partition = %e.partition, offset = e.offset.0, to = %e.to, kind = %e.kind,
        error = e.error.text, remedy = %e.remedy,
    };
    TopicWarning: warn "topic set-up can lose records", e { topic = %e.topic, what = e.what, };
    Throttled: debug "broker asked for silence", e {
        broker = e.broker.map(|node| node.0), api = e.api, silence = ?e.silence,
    };
    ErrorReported: error "error", e {
        scope = %e.scope, error = e.error.text, code = e.error.code, retryable = e.error.retryable, group = e.group,
        topic = e.topic.map(Topic::as_str),
    };
}

impl CircuitStateChanged<'_> {
    pub(super) fn log(&self) {
        let Self { group, topic, from, to } = self;
        match to {
            CircuitState::Open | CircuitState::Isolated => tracing::warn!(group, %topic, %from, %to, "circuit"),
            CircuitState::Closed | CircuitState::HalfOpen => tracing::info!(group, %topic, %from, %to, "circuit"),
        }
    }
}
