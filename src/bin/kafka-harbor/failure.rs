//! How a command fails: a line for people, an event for programs, a status for scripts.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use kafka_harbor::client::{ClientError, ConfigError};
use kafka_harbor::error::Blame;
use serde_json::json;

use crate::output::Output;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    status: u8,
}

impl Failure {
    /// Refused, or done in part.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self { text: text.into(), status: 1 }
    }

    /// The arguments do not go together.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), status: 2 }
    }

    /// No broker answered in time.
    pub(crate) fn unreachable(text: impl Into<String>) -> Self {
        Self { text: text.into(), status: 3 }
    }

    /// An error with all its causes.
    pub(crate) fn of(error: &dyn Error) -> Self {
        Self::refused(chain(error))
    }

    pub(crate) fn report(self, output: Output) -> ExitCode {
        // A reader that has gone away, as `head` does, is no failure to tell of.
        if output.is_json() {
            let _ = output.event("error", json!({ "error": self.text }), || None);
        } else {
            eprintln!("kafka-harbor: {}", self.text);
        }
        ExitCode::from(self.status)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let text = chain(&error);
        if error.blame() == Blame::Network { Self::unreachable(text) } else { Self::refused(text) }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(chain(&error))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::of(&error)
    }
}

/// The error and its causes, without what a cause's text repeats.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            let _ = write!(text, ": {next}");
        }
        cause = error.source();
    }
    text
}
