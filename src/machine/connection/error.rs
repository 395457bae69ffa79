//! Why a connection ended, and what that means for a request.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::TlsFailure;
use crate::error::{Blame, WriteOutcome};
use crate::machine::sasl::LoginError;
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::frame::FrameError;
use crate::protocol::versions::UnsupportedVersion;
use crate::protocol::{DecodeError, EncodeError};

/// A request got no usable answer.
///
/// Cheap to clone: requests that fail together share their cause.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Not a byte of it left this machine.
    #[error("{api} was not sent: {cause}")]
    NotSent {
        /// Which request.
        api: ApiKey,
        /// What stood in the way.
        #[source]
        cause: Arc<ConnectionError>,
    },
    /// It left, at least in part, and no answer came: the broker may have acted on it.
    #[error("{api} was sent, but not answered: {cause}")]
    Unanswered {
        /// Which request.
        api: ApiKey,
        /// How the connection ended.
        #[source]
        cause: Arc<ConnectionError>,
    },
    /// The broker knows no version of this request that this client knows too.
    #[error("broker cannot be asked: {0}")]
    Unsupported(#[from] UnsupportedVersion),
    /// The request cannot be written in the version that was agreed on.
    #[error("request cannot be written: {0}")]
    Encode(#[source] Arc<EncodeError>),
    /// The answer cannot be read as what it claims to be. The broker acted on the request.
    #[error("answer cannot be read: {0}")]
    Decode(#[source] Arc<DecodeError>),
}

impl RequestError {
    /// Whether the broker may have acted on the request.
    pub fn write_outcome(&self) -> WriteOutcome {
        match self {
            Self::NotSent { .. } | Self::Unsupported(_) | Self::Encode(_) => WriteOutcome::NotWritten,
            Self::Unanswered { .. } | Self::Decode(_) => WriteOutcome::PossiblyWritten,
        }
    }

    /// Whether the same request may succeed on another connection.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::NotSent { cause, .. } | Self::Unanswered { cause, .. } => cause.is_retriable(),
            Self::Unsupported(_) | Self::Encode(_) | Self::Decode(_) => false,
        }
    }

    /// Whether the broker does not let this client in, and would not the next time: see
    /// [`ConnectionError::is_locked_out`].
    pub fn is_locked_out(&self) -> bool {
        matches!(self, Self::NotSent { cause, .. } | Self::Unanswered { cause, .. } if cause.is_locked_out())
    }

    /// Whether it failed because the client was closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::NotSent { cause, .. } | Self::Unanswered { cause, .. } if **cause == ConnectionError::Closed)
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotSent { cause, .. } | Self::Unanswered { cause, .. } => cause.blame(),
            Self::Unsupported(_) => Blame::Broker,
            Self::Encode(_) => Blame::Caller,
            Self::Decode(_) => Blame::Peer,
        }
    }
}

/// Why a connection could not be made, or ended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The connection could not be made.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where to.
        address: String,
        /// What the system said of the last address that was tried.
        source: Arc<io::Error>,
    },
    /// Connecting or the version handshake took too long.
    #[error("connection was not ready after {after:?}")]
    SetupTimeout {
        /// The limit.
        after: Duration,
    },
    /// The peer or the network ended the connection.
    #[error("connection lost: {source}")]
    Lost {
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// A request's answer did not come in time, and the connection was closed for it.
    #[error("{api} was not answered in time")]
    TimedOut {
        /// The request that ran out of time. Others on the connection failed with it.
        api: ApiKey,
    },
    /// The peer broke the protocol.
    #[error("peer broke the protocol: {0}")]
    Protocol(ProtocolViolation),
    /// The broker refused the version handshake.
    #[error("version handshake was refused: {code}")]
    HandshakeRefused {
        /// The broker's error code.
        code: ErrorCode,
    },
    /// TLS could not be agreed on, or ended by a fault.
    #[error("TLS with {address} failed: {failure}")]
    Tls {
        /// With whom.
        address: String,
        /// What stood in the way.
        failure: TlsFailure,
    },
    /// The login failed.
    #[error("{0}")]
    Login(#[source] LoginError),
    /// Too many requests wait for this connection.
    #[error("{queued} requests wait for the connection already")]
    QueueFull {
        /// How many.
        queued: usize,
    },
    /// The request is larger than a frame may be.
    #[error("request of {bytes} bytes does not fit in a frame")]
    RequestTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The cluster's metadata knows no such broker.
    #[error("broker {node} is not in the cluster's metadata")]
    UnknownBroker {
        /// Its node id.
        node: i32,
    },
    /// The client was closed.
    #[error("client is closed")]
    Closed,
}

impl ConnectionError {
    /// Whether another connection may do better.
    pub fn is_retriable(&self) -> bool {
        !self.is_locked_out() && !matches!(self, Self::Closed | Self::RequestTooLarge { .. })
    }

    /// Whether the broker does not let this client in, and would not the next time: login or certificate are refused, on
    /// either side, or the listener is of another kind.
    pub fn is_locked_out(&self) -> bool {
        match self {
            Self::Tls { failure, .. } => !failure.is_retriable(),
            Self::Login(error) => !error.is_retriable(),
            Self::Protocol(violation) => violation.is_wrong_door(),
            _ => false,
        }
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Connect { .. } | Self::SetupTimeout { .. } | Self::Lost { .. } | Self::TimedOut { .. } => {
                Blame::Network
            }
            Self::Protocol(_) => Blame::Peer,
            Self::Tls { failure, .. } => failure.blame(),
            Self::Login(error) => error.blame(),
            Self::HandshakeRefused { .. } | Self::UnknownBroker { .. } => Blame::Broker,
            Self::QueueFull { .. } | Self::RequestTooLarge { .. } | Self::Closed => Blame::Caller,
        }
    }
}

/// Only the kinds are compared; what the system said has no equality.
impl PartialEq for ConnectionError {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Protocol(a), Self::Protocol(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// How a peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolViolation {
    /// A frame's length cannot be.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// Its first bytes are those of TLS: the listener wants TLS, and was spoken to in plain text.
    #[error("listener speaks TLS, and this client was told not to")]
    SpeaksTls,
    /// Its first bytes are those of HTTP.
    #[error("peer speaks HTTP, so it is no Kafka broker")]
    SpeaksHttp,
    /// An answer has no correlation id.
    #[error("answer of {bytes} bytes has no correlation id")]
    TooShort {
        /// Its length.
        bytes: usize,
    },
    /// An answer came to another request than the one whose turn it was.
    #[error("answer has correlation id {actual}, expected {expected}")]
    CorrelationId {
        /// Of the request whose turn it was.
        expected: i32,
        /// Of the answer.
        actual: i32,
    },
    /// An answer came and nothing was asked.
    #[error("answer with correlation id {actual} to no request")]
    Unsolicited {
        /// Of the answer.
        actual: i32,
    },
    /// An answer's header or body cannot be read.
    #[error("malformed answer to {api}")]
    Malformed {
        /// What was asked.
        api: ApiKey,
    },
}

impl ProtocolViolation {
    /// The same, of the first bytes that came: what cannot be a frame's length may be another protocol's beginning.
    pub(super) fn at_first_sight(self) -> Self {
        let Self::Frame(FrameError::TooLarge { length, .. }) = self else { return self };
        match u32::try_from(length).map(u32::to_be_bytes) {
            // A record of TLS: an alert or a handshake, and the major version.
            Ok([0x15 | 0x16, 0x03, ..]) => Self::SpeaksTls,
            Ok([b'H', b'T', b'T', b'P']) => Self::SpeaksHttp,
            _ => self,
        }
    }

    /// Whether something else than a broker for this kind of connection listens there: trying again changes nothing.
    fn is_wrong_door(self) -> bool {
        matches!(self, Self::SpeaksTls | Self::SpeaksHttp)
    }
}

impl From<EncodeError> for RequestError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(Arc::new(error))
    }
}

impl From<DecodeError> for RequestError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(Arc::new(error))
    }
}
