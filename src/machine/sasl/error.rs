//! Why a login failed.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::error::Blame;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::versions::UnsupportedVersion;

/// A login that did not come to an end, or came to a bad one.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The broker refused the credentials. Final: it would refuse them again.
    #[error("login by {mechanism} was refused: {code}{}", said(.message))]
    Refused {
        /// How the login was made.
        mechanism: &'static str,
        /// The broker's error code.
        code: ErrorCode,
        /// The broker's own words, where it had any.
        message: Option<String>,
    },
    /// The broker does not offer the mechanism on this listener.
    #[error("broker does not offer {mechanism} here; it offers {}", list(.offered))]
    MechanismNotOffered {
        /// The mechanism that was wanted.
        mechanism: &'static str,
        /// Those that it offers.
        offered: Vec<String>,
    },
    /// The listener takes no login.
    #[error("this listener takes no login, so none by {mechanism}: {code}")]
    NotWanted {
        /// The mechanism that was wanted.
        mechanism: &'static str,
        /// The broker's error code.
        code: ErrorCode,
    },
    /// The broker is too old for a login whose messages are requests of their own (KIP-152, Kafka 1.0).
    #[error("login by {mechanism} is not possible: {source}")]
    Unsupported {
        /// The mechanism that was wanted.
        mechanism: &'static str,
        /// Which request it lacks.
        source: UnsupportedVersion,
    },
    /// The peer's part of the exchange is not what the mechanism asks for: it may not be the broker.
    #[error("peer broke {mechanism}: {violation}")]
    Violation {
        /// How the login was made.
        mechanism: &'static str,
        /// What it did.
        violation: SaslViolation,
    },
    /// There were no credentials to log in with.
    #[error("no credentials for {mechanism}: {source}")]
    NoCredentials {
        /// How the login was to be made.
        mechanism: &'static str,
        /// What their source said.
        source: Arc<dyn Error + Send + Sync>,
    },
}

impl LoginError {
    /// Whether the same login may succeed later.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Refused { code, .. } => code.is_retriable(),
            Self::NoCredentials { .. } => true,
            Self::MechanismNotOffered { .. }
            | Self::NotWanted { .. }
            | Self::Unsupported { .. }
            | Self::Violation { .. } => false,
        }
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Refused { .. }
            | Self::MechanismNotOffered { .. }
            | Self::NotWanted { .. }
            | Self::Unsupported { .. } => Blame::Broker,
            Self::Violation { .. } => Blame::Peer,
            Self::NoCredentials { .. } => Blame::Caller,
        }
    }
}

/// How a peer broke a mechanism.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SaslViolation {
    /// A message is not of the mechanism's form.
    #[error("{0}")]
    Malformed(&'static str),
    /// A message is longer than any of the mechanism.
    #[error("message of {bytes} bytes")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The nonce does not continue ours (RFC 5802, section 5.1): the message belongs to another exchange.
    #[error("nonce does not continue the client's")]
    Nonce,
    /// Too few rounds of hashing to protect the password, or more than can be meant.
    #[error("{rounds} iterations are not from {min} to {max}")]
    Iterations {
        /// What it asked for.
        rounds: u64,
        /// The fewest that are safe (RFC 7677, section 4).
        min: u32,
        /// The most that are done for a peer that proved nothing yet.
        max: u32,
    },
    /// The peer does not know the password's keys: it is not the broker that the password belongs to.
    #[error("server signature is wrong: the peer does not know the password")]
    ServerSignature,
    /// It went on after the exchange was over, or ended it early.
    #[error("message out of turn")]
    OutOfTurn,
}

/// A peer's words, cut and without what would steer a terminal.
pub(super) fn legible(text: &str) -> Option<String> {
    let cut = text.chars().take(LONGEST_MESSAGE).map(|c| if c.is_control() { ' ' } else { c });
    let text = cut.collect::<String>().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn said(message: &Option<String>) -> String {
    message.as_ref().map_or_else(String::new, |message| format!(": {message}"))
}

fn list(offered: &[String]) -> impl fmt::Display {
    if offered.is_empty() { "none".to_owned() } else { offered.join(", ") }
}

/// Characters of a peer's message that are kept.
const LONGEST_MESSAGE: usize = 1024;
