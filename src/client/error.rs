//! Why a call on the client failed.

use std::fmt;
use std::sync::Arc;

use crate::error::{Blame, WriteOutcome};
use crate::machine::connection::RequestError;
use crate::protocol::error_code::ErrorCode;

/// A call on the client failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A request got no usable answer.
    #[error("{what}: {source}")]
    Request {
        /// What was attempted.
        what: String,
        /// What became of the request.
        source: RequestError,
    },
    /// The broker understood and refused.
    #[error("{what}: {code}{}", said(.message))]
    Refused {
        /// What was attempted, with the topic, partition or group where there is one.
        what: String,
        /// The broker's error code.
        code: ErrorCode,
        /// The broker's own words, where it had any.
        message: Option<String>,
    },
    /// The topic, partition or group does not exist.
    #[error("{what}: it does not exist")]
    Missing {
        /// What was attempted, and on what.
        what: String,
    },
    /// The answer does not speak of what was asked for.
    #[error("{what}: the answer leaves it out")]
    LeftOut {
        /// What was asked for.
        what: String,
    },
    /// It did not succeed in time.
    #[error("{what}: not in time{}", tried(.last))]
    TimedOut {
        /// What was attempted.
        what: String,
        /// What the last try failed with, if a try came to an end.
        #[source]
        last: Option<Arc<ClientError>>,
    },
    /// The caller asked for what cannot be.
    #[error("{what}")]
    Misuse {
        /// What is wrong with it.
        what: String,
    },
    /// The client was closed.
    #[error("client is closed")]
    Closed,
}

impl ClientError {
    pub(crate) fn request(what: impl fmt::Display, source: RequestError) -> Self {
        if source.is_closed() { Self::Closed } else { Self::Request { what: what.to_string(), source } }
    }

    pub(crate) fn refused(what: impl fmt::Display, code: ErrorCode, message: Option<&str>) -> Self {
        // Brokers send an empty text where they have nothing to say.
        let message = message.filter(|message| !message.is_empty()).map(str::to_owned);
        Self::Refused { what: what.to_string(), code, message }
    }

    pub(crate) fn timed_out(what: impl fmt::Display, last: Option<Self>) -> Self {
        Self::TimedOut { what: what.to_string(), last: last.map(Arc::new) }
    }

    /// The broker's error code, where a broker refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::TimedOut { last, .. } => last.as_ref()?.code(),
            _ => None,
        }
    }

    /// Whether every broker would end the call like this until somebody changes something: a login or a certificate is
    /// refused, or the listeners are of another kind.
    pub fn is_locked_out(&self) -> bool {
        match self {
            Self::Request { source, .. } => source.is_locked_out(),
            Self::TimedOut { last, .. } => last.as_ref().is_some_and(|last| last.is_locked_out()),
            _ => false,
        }
    }

    /// Whether what the call is about does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    /// Whether the same call may succeed later.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Request { source, .. } => source.is_retriable(),
            Self::Refused { code, .. } => code.is_retriable(),
            Self::TimedOut { .. } => true,
            Self::Missing { .. } | Self::LeftOut { .. } | Self::Misuse { .. } | Self::Closed => false,
        }
    }

    /// Whether the broker may have acted on the call all the same.
    pub fn write_outcome(&self) -> WriteOutcome {
        match self {
            Self::Request { source, .. } => source.write_outcome(),
            Self::TimedOut { last: Some(last), .. } => last.write_outcome(),
            Self::LeftOut { .. } | Self::TimedOut { last: None, .. } => WriteOutcome::PossiblyWritten,
            // REQUEST_TIMED_OUT says that the broker stopped waiting, not that nothing was done.
            Self::Refused { code: ErrorCode::REQUEST_TIMED_OUT, .. } => WriteOutcome::PossiblyWritten,
            Self::Refused { .. } | Self::Missing { .. } | Self::Misuse { .. } | Self::Closed => {
                WriteOutcome::NotWritten
            }
        }
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Request { source, .. } => source.blame(),
            Self::Refused { .. } => Blame::Broker,
            Self::Missing { .. } => Blame::Caller,
            Self::TimedOut { last, .. } => last.as_ref().map_or(Blame::Network, |last| last.blame()),
            Self::LeftOut { .. } => Blame::Peer,
            Self::Misuse { .. } | Self::Closed => Blame::Caller,
        }
    }
}

/// Options that cannot be, all of them at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} option(s) cannot be used: {}", .problems.len(), list(.problems))]
#[non_exhaustive]
pub struct ConfigError {
    /// One an option. Never empty.
    pub problems: Vec<ConfigProblem>,
}

/// One option that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigProblem {
    /// The option's name: that of its setter.
    pub option: &'static str,
    /// What is wrong with its value.
    pub problem: String,
}

/// Collects what is wrong with a set of options.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<ConfigProblem>);

impl Problems {
    /// Notes a problem with the option.
    pub(crate) fn add(&mut self, option: &'static str, problem: impl fmt::Display) {
        self.0.push(ConfigProblem { option, problem: problem.to_string() });
    }

    /// Notes all problems of another set.
    pub(crate) fn extend(&mut self, error: ConfigError) {
        self.0.extend(error.problems);
    }

    /// Notes a problem unless `holds`.
    pub(crate) fn require(&mut self, holds: bool, option: &'static str, problem: impl fmt::Display) {
        if !holds {
            self.add(option, problem);
        }
    }

    /// Notes a value outside of its bounds.
    pub(crate) fn require_within<T: PartialOrd + fmt::Debug>(
        &mut self,
        option: &'static str,
        value: T,
        bounds: std::ops::RangeInclusive<T>,
    ) {
        if !bounds.contains(&value) {
            self.add(option, format_args!("{value:?} is not from {:?} to {:?}", bounds.start(), bounds.end()));
        }
    }

    /// # Errors
    /// With all that was noted, if anything was.
    pub(crate) fn finish(self) -> Result<(), ConfigError> {
        if self.0.is_empty() { Ok(()) } else { Err(ConfigError { problems: self.0 }) }
    }
}

fn said(message: &Option<String>) -> String {
    message.as_ref().map_or_else(String::new, |message| format!(": {message}"))
}

fn tried(last: &Option<Arc<ClientError>>) -> String {
    last.as_ref().map_or_else(String::new, |last| format!("; last: {last}"))
}

fn list(problems: &[ConfigProblem]) -> String {
    let each: Vec<_> = problems.iter().map(|p| format!("{}: {}", p.option, p.problem)).collect();
    each.join("; ")
}
