//! A mechanism's messages, apart from the requests that carry them.

use std::fmt;

use super::{Bearer, Hash, Plain, Reply, SaslViolation, Scram};

/// How a login is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// RFC 4616.
    Plain,
    /// RFC 7677.
    ScramSha256,
    /// RFC 5802, with SHA-512.
    ScramSha512,
    /// RFC 7628.
    OAuthBearer,
}

impl Mechanism {
    /// The name in SaslHandshake.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OAuthBearer => "OAUTHBEARER",
        }
    }

    /// Whether each login may have other credentials than the last.
    pub(crate) fn is_asked_anew(self) -> bool {
        match self {
            Self::Plain | Self::ScramSha256 | Self::ScramSha512 => false,
            Self::OAuthBearer => true,
        }
    }
}

/// One run of a mechanism, with the credentials for it.
pub(crate) enum Exchange {
    Plain(Plain),
    Scram(Box<Scram>),
    Bearer(Bearer),
}

impl Exchange {
    /// The mechanism that it is a run of.
    pub(crate) fn mechanism(&self) -> Mechanism {
        match self {
            Self::Plain(_) => Mechanism::Plain,
            Self::Scram(scram) if scram.hash() == Hash::Sha256 => Mechanism::ScramSha256,
            Self::Scram(_) => Mechanism::ScramSha512,
            Self::Bearer(_) => Mechanism::OAuthBearer,
        }
    }

    /// The client's first message.
    pub(crate) fn first(&mut self) -> Vec<u8> {
        match self {
            Self::Plain(plain) => plain.first(),
            Self::Scram(scram) => scram.first(),
            Self::Bearer(bearer) => bearer.first(),
        }
    }

    /// What the peer said against the credentials before it came to fail the login.
    pub(crate) fn complaint(&self) -> Option<&str> {
        match self {
            Self::Bearer(bearer) => bearer.complaint(),
            Self::Plain(_) | Self::Scram(_) => None,
        }
    }

    /// Takes in the peer's message.
    pub(crate) fn handle(&mut self, message: &[u8]) -> Result<Reply, SaslViolation> {
        if message.len() > LONGEST_MESSAGE {
            return Err(SaslViolation::TooLong { bytes: message.len() });
        }
        match self {
            Self::Plain(plain) => plain.handle(message),
            Self::Scram(scram) => scram.handle(message),
            Self::Bearer(bearer) => bearer.handle(message),
        }
    }
}

/// No secrets.
impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exchange").field(&self.mechanism()).finish()
    }
}

/// Far beyond any message of a mechanism that we speak.
const LONGEST_MESSAGE: usize = 64 << 10;
