use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::ConnectionError;
use crate::error::Blame;

/// Why TLS failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFailure {
    /// No authority that this client trusts signed the broker's certificate.
    #[error("broker's certificate is not signed by an authority that is trusted here")]
    UnknownAuthority,
    /// The broker's certificate is for other names than the one that was connected to.
    #[error("broker's certificate is not for {name:?}{}", names(.valid))]
    WrongName {
        /// The name, or the address, that was connected to.
        name: String,
        /// Those that it is for.
        valid: Vec<String>,
    },
    /// The broker's certificate cannot be used, for another reason.
    #[error("broker's certificate cannot be used: {reason}")]
    BadCertificate {
        /// In words.
        reason: String,
    },
    /// The broker refused the client's certificate, or that there is none.
    #[error("broker refused this client's certificate: alert {alert}{}", hint(*.sent))]
    CertificateRefused {
        /// Its alert (RFC 8446, section 6).
        alert: String,
        /// Whether there was one.
        sent: bool,
    },
    /// The broker ended the handshake by an alert.
    #[error("broker sent alert {alert}")]
    Alert {
        /// Its name (RFC 8446, section 6).
        alert: String,
    },
    /// What came is no TLS: the listener speaks plain text, or is no Kafka broker.
    #[error("listener does not speak TLS")]
    NotTls,
    /// The peer closed the connection during the handshake.
    #[error("broker closed the connection during the handshake; a listener without TLS does that")]
    ClosedEarly,
    /// The name that was connected to is none that a certificate could be for.
    #[error("{name:?} is no name that a certificate can be for")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// Certificates or keys could not be used or read anew.
    #[error("certificates cannot be used: {source}")]
    Setup {
        /// What is wrong with them.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// Something else, told in words.
    #[error("{reason}")]
    Other {
        /// In words.
        reason: String,
    },
}

impl TlsFailure {
    /// Whether another connection may do better, with nothing changed on either side.
    pub fn is_retriable(&self) -> bool {
        // A broker that is stopped during a handshake closes too.
        matches!(self, Self::ClosedEarly | Self::Other { .. } | Self::Setup { .. })
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::UnknownAuthority | Self::WrongName { .. } | Self::BadCertificate { .. } | Self::NotTls => Blame::Peer,
            Self::CertificateRefused { .. } | Self::Alert { .. } => Blame::Broker,
            Self::ClosedEarly | Self::Other { .. } => Blame::Network,
            Self::InvalidName { .. } | Self::Setup { .. } => Blame::Caller,
        }
    }
}

/// A failure of TLS as a stream tells it: within an [`io::Error`].
#[derive(Debug, Clone, thiserror::Error)]
#[error("TLS with {address} failed: {failure}")]
pub(crate) struct TlsFault {
    pub(crate) address: String,
    pub(crate) failure: TlsFailure,
}

impl TlsFault {
    /// The failure within, if it is one of TLS.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<TlsFault> for ConnectionError {
    fn from(TlsFault { address, failure }: TlsFault) -> Self {
        Self::Tls { address, failure }
    }
}

impl From<TlsFault> for io::Error {
    fn from(fault: TlsFault) -> Self {
        Self::other(fault)
    }
}

fn names(valid: &[String]) -> impl fmt::Display {
    if valid.is_empty() { String::new() } else { format!(", only for {}", valid.join(", ")) }
}

fn hint(sent: bool) -> &'static str {
    if sent { "" } else { " (none is configured)" }
}
