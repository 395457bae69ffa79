//! How brokers are logged in to.

#[cfg(not(feature = "sasl"))]
mod absent;
#[cfg(feature = "oidc")]
mod http;
#[cfg(feature = "sasl")]
mod method;
#[cfg(feature = "oidc")]
mod oidc;
#[cfg(feature = "sasl")]
mod token;

use std::pin::Pin;

use crate::machine::sasl::{Exchange, LoginError};

#[cfg(not(feature = "sasl"))]
pub(crate) use absent::Login;
#[cfg(feature = "sasl")]
pub use method::Login;
#[cfg(feature = "oidc")]
pub use oidc::{OidcTokens, OidcTokensBuilder};
#[cfg(feature = "sasl")]
pub use token::{BearerToken, Fetching, InvalidToken, TokenSource};

/// Credentials on their way.
pub(crate) type Preparing = Pin<Box<dyn Future<Output = Prepared> + Send>>;

/// Credentials for one login.
pub(crate) type Prepared = Result<Exchange, LoginError>;
