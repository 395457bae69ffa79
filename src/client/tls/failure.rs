//! What rustls says, in this crate's words.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

use crate::machine::connection::TlsFailure;

/// How far a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Handshake,
    Data,
}

/// The failure in an error of a TLS stream; `None` if TLS has no part in it.
pub(super) fn failure(error: &io::Error, stage: Stage, name: &str, certificate_sent: bool) -> Option<TlsFailure> {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(error) => Some(translate(error, stage, name, certificate_sent)),
        None if stage == Stage::Handshake && is_end(error.kind()) => Some(TlsFailure::ClosedEarly),
        None => None,
    }
}

fn translate(error: &Error, stage: Stage, name: &str, sent: bool) -> TlsFailure {
    match error {
        Error::InvalidCertificate(error) => certificate(error, name),
        Error::AlertReceived(alert) => {
            let text = format!("{alert:?}");
            if is_about_certificate(*alert) {
                TlsFailure::CertificateRefused { alert: text, sent }
            } else {
                TlsFailure::Alert { alert: text }
            }
        }
        Error::InvalidMessage(_) if stage == Stage::Handshake => TlsFailure::NotTls,
        other => TlsFailure::Other { reason: other.to_string() },
    }
}

fn certificate(error: &CertificateError, name: &str) -> TlsFailure {
    let wrong = |valid| TlsFailure::WrongName { name: name.to_owned(), valid };
    match error {
        CertificateError::UnknownIssuer => TlsFailure::UnknownAuthority,
        CertificateError::NotValidForName => wrong(Vec::new()),
        CertificateError::NotValidForNameContext { presented, .. } => {
            wrong(presented.iter().take(MOST_NAMES).cloned().collect())
        }
        other => TlsFailure::BadCertificate { reason: other.to_string() },
    }
}

fn is_about_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
    )
}

/// A peer that closes with something unread resets.
fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// Names of a certificate that are listed.
const MOST_NAMES: usize = 16;
