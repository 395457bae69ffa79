//! Logins: what is said on a connection between the version handshake and the first request (KIP-43, KIP-152), and
//! again before the session ends (KIP-368).
//!
//! ```text
//!   Authenticator ─ SaslHandshake(mechanism) ─► broker
//!         │        ◄─ mechanisms it offers ────
//!         ├─ Exchange: PLAIN | SCRAM | OAUTHBEARER
//!         │        ── SaslAuthenticate(message) ─► broker
//!         │        ◄─ challenge, or the session's lifetime
//!         ▼
//!      Session: when to do it again, when to be silent
//! ```
//!
//! Credentials come from outside, since fetching a token takes I/O: the authenticator says when it wants them. Without
//! the feature `sasl` there is no [`Mechanism`], hence no authenticator, and all of this is compiled away.

#![cfg_attr(
    not(feature = "sasl"),
    allow(dead_code, unreachable_code, reason = "what cannot be made is not reached either")
)]

#[cfg(not(feature = "sasl"))]
mod absent;
mod authenticator;
#[cfg(feature = "sasl")]
mod bearer;
mod error;
#[cfg(feature = "sasl")]
mod exchange;
#[cfg(feature = "sasl")]
mod plain;
mod reply;
#[cfg(feature = "sasl")]
mod scram;

#[cfg(not(feature = "sasl"))]
pub(crate) use absent::{Exchange, Mechanism};
pub(crate) use authenticator::{AnswerError, Authenticator, Outcome};
#[cfg(feature = "sasl")]
pub(crate) use bearer::{Bearer, check_extension, check_token};
pub use error::{LoginError, SaslViolation};
#[cfg(feature = "sasl")]
pub(crate) use exchange::{Exchange, Mechanism};
#[cfg(feature = "sasl")]
pub(crate) use plain::Plain;
pub(crate) use reply::Reply;
#[cfg(all(feature = "sasl", feature = "testing"))]
pub(crate) use scram::{Answered, SALT_BYTES, ScramServer};
#[cfg(feature = "sasl")]
pub(crate) use scram::{Hash, NONCE_BYTES, Scram};
