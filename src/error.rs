//! What every layer's errors share.
//!
//! Each layer has an error enum of its own; this module holds the few ideas that all of them use.

use std::fmt;

/// An error of any type, as it comes from a handler, a serializer or a callback.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// Who has to act for an error to go away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The peer broke the protocol: its bytes cannot be what they claim.
    Peer,
    /// The broker understood and refused, or could not answer in time.
    Broker,
    /// The caller misused the API or configured something impossible.
    Caller,
    /// The network or the machine: refused, reset, timed out.
    Network,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "peer",
            Self::Broker => "broker",
            Self::Caller => "caller",
            Self::Network => "network",
        })
    }
}

/// What is known of a write that did not succeed.
///
/// An outcome that may have been written is its own case: sending the record again may duplicate it,
/// giving up may or may not have lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteOutcome {
    /// The record is certainly not in the log.
    NotWritten,
    /// The request left and no answer came: the record may be in the log.
    PossiblyWritten,
}
