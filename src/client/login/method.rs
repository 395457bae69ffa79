//! A login that can be made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::token::TokenSource;
use super::{Prepared, Preparing};
use crate::client::Problems;
use crate::client::secret::Secret;
use crate::error::BoxError;
use crate::machine::sasl::{Bearer, Exchange, Hash, LoginError, Mechanism, NONCE_BYTES, Plain, Scram};

/// A login: mechanism and credentials (SASL). Kerberos (GSSAPI) is not among them: nobody has it in pure Rust.
///
/// Every connection logs in by itself, and does so again before the broker's session ends (KIP-368,
/// `connections.max.reauth.ms`), on the same connection and without losing a request.
///
/// `Debug` shows the mechanism and the user, nothing else.
#[derive(Clone)]
pub struct Login(Method);

#[derive(Clone)]
enum Method {
    Plain { user: String, password: Secret },
    Scram { hash: Hash, user: String, password: Secret, delegation_token: bool },
    Bearer(Arc<dyn TokenSource>),
}

impl Login {
    /// User and password as they are (`PLAIN`). Java: `PlainLoginModule`.
    pub fn plain(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self(Method::Plain { user: user.into(), password: Secret::new(password) })
    }

    /// User and password, proven without being sent (`SCRAM-SHA-256`). Java: `ScramLoginModule`.
    pub fn scram_sha_256(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self::scram(Hash::Sha256, user.into(), Secret::new(password))
    }

    /// User and password, proven without being sent (`SCRAM-SHA-512`). Java: `ScramLoginModule`.
    pub fn scram_sha_512(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self::scram(Hash::Sha512, user.into(), Secret::new(password))
    }

    /// A token (`OAUTHBEARER`, KIP-255), asked for at each login. Java: `OAuthBearerLoginModule`.
    pub fn oauth_bearer(source: impl TokenSource) -> Self {
        Self(Method::Bearer(Arc::new(source)))
    }

    /// User and password are the id and the HMAC of a delegation token (KIP-48). Of a login by SCRAM alone; changes no
    /// other. Java: `tokenauth=true`.
    #[must_use]
    pub fn with_delegation_token(mut self) -> Self {
        if let Method::Scram { delegation_token, .. } = &mut self.0 {
            *delegation_token = true;
        }
        self
    }

    fn scram(hash: Hash, user: String, password: Secret) -> Self {
        Self(Method::Scram { hash, user, password, delegation_token: false })
    }

    pub(crate) fn mechanism(&self) -> Mechanism {
        match &self.0 {
            Method::Plain { .. } => Mechanism::Plain,
            Method::Scram { hash: Hash::Sha256, .. } => Mechanism::ScramSha256,
            Method::Scram { hash: Hash::Sha512, .. } => Mechanism::ScramSha512,
            Method::Bearer(_) => Mechanism::OAuthBearer,
        }
    }

    /// Warns if who reads a connection without TLS could log in with what was sent.
    pub(crate) fn warn_if_bare(&self) {
        match &self.0 {
            Method::Plain { .. } | Method::Bearer(_) => {
                let mechanism = self.mechanism().name();
                tracing::warn!(mechanism, "secrets go over the network as they are, because there is no TLS");
            }
            Method::Scram { .. } => {}
        }
    }

    /// Notes what no broker would take.
    pub(crate) fn check(&self, problems: &mut Problems) {
        match &self.0 {
            Method::Plain { user, password } | Method::Scram { user, password, .. } => {
                let (user, password) = (user.as_str(), password.reveal());
                problems.require(!user.is_empty(), "login", "the user is empty");
                problems.require(!password.is_empty(), "login", "the password is empty");
                problems.require(
                    user.len() <= LONGEST && password.len() <= LONGEST,
                    "login",
                    "user or password is longer than 64 KiB",
                );
                let parted = |text: &str| text.contains('\0');
                problems.require(!parted(user) && !parted(password), "login", "user or password holds a NUL character");
            }
            Method::Bearer(_) => {}
        }
    }

    /// Gets the credentials for one login, within this time.
    pub(crate) fn prepare(&self, limit: Duration) -> Preparing {
        match &self.0 {
            Method::Plain { user, password } => ready(Ok(Exchange::Plain(Plain::new(user, password.reveal())))),
            Method::Scram { hash, user, password, delegation_token } => ready(nonce(self.mechanism()).map(|nonce| {
                let scram = Scram::new(*hash, user, password.reveal(), nonce);
                Exchange::Scram(Box::new(scram.with_delegation_token(*delegation_token)))
            })),
            Method::Bearer(source) => Box::pin(bearer(source.clone(), limit)),
        }
    }

    /// A broker refused the credentials.
    pub(crate) fn handle_refused(&self) {
        match &self.0 {
            Method::Bearer(source) => source.refused(),
            Method::Plain { .. } | Method::Scram { .. } => {}
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Login");
        match &self.0 {
            Method::Plain { user, .. } | Method::Scram { user, .. } => {
                shown.field("mechanism", &self.mechanism().name()).field("user", user).finish_non_exhaustive()
            }
            Method::Bearer(_) => shown.field("mechanism", &self.mechanism().name()).finish_non_exhaustive(),
        }
    }
}

fn ready(prepared: Prepared) -> Preparing {
    Box::pin(std::future::ready(prepared))
}

fn nonce(mechanism: Mechanism) -> Result<[u8; NONCE_BYTES], LoginError> {
    let mut nonce = [0; NONCE_BYTES];
    match getrandom::fill(&mut nonce) {
        Ok(()) => Ok(nonce),
        Err(error) => Err(no_credentials(mechanism, format!("the system has no randomness: {error}").into())),
    }
}

async fn bearer(source: Arc<dyn TokenSource>, limit: Duration) -> Prepared {
    let refuse = |error| no_credentials(Mechanism::OAuthBearer, error);
    let late = |_| refuse(format!("no token came within {limit:?}").into());
    let token = tokio::time::timeout(limit, source.token()).await.map_err(late)?.map_err(refuse)?;
    Ok(Exchange::Bearer(Bearer::new(token.reveal(), token.extensions())))
}

fn no_credentials(mechanism: Mechanism, source: BoxError) -> LoginError {
    LoginError::NoCredentials { mechanism: mechanism.name(), source: source.into() }
}

/// Far beyond any user or password.
const LONGEST: usize = 64 << 10;
