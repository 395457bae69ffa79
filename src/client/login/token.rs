use std::fmt;
use std::time::SystemTime;

use crate::client::secret::Secret;
use crate::error::BoxError;
use crate::machine::sasl::{check_extension, check_token};

/// Where bearer tokens come from.
///
/// Asked at each login of each connection, so a source that fetches keeps its token while it is good.
pub trait TokenSource: fmt::Debug + Send + Sync + 'static {
    /// A token that is good now. The login fails when it takes longer than the client's
    /// [`setup_timeout`](crate::client::ClientBuilder::setup_timeout); a connection whose session goes on asks again.
    fn token(&self) -> Fetching<'_>;

    /// A broker refused the last token: what is kept of it is of no use.
    fn refused(&self) {}
}

/// A token on its way.
pub type Fetching<'a> = std::pin::Pin<Box<dyn Future<Output = Result<BearerToken, BoxError>> + Send + 'a>>;

/// A bearer token, and what is to be told with it. `Debug` does not show it.
#[derive(Clone, Debug)]
pub struct BearerToken {
    token: Secret,
    extensions: Vec<(String, String)>,
    expires_at: Option<SystemTime>,
}

impl BearerToken {
    /// A token, mostly a signed JWT.
    ///
    /// # Errors
    /// When it is empty, longer than 512 KiB, or holds what no bearer token does (RFC 6750, section 2.1).
    pub fn new(token: impl Into<String>) -> Result<Self, InvalidToken> {
        let token = token.into();
        check_token(&token).map_err(InvalidToken)?;
        Ok(Self { token: Secret::new(token), extensions: Vec::new(), expires_at: None })
    }

    /// Tells the broker this beside the token (KIP-342), as some hosted brokers want it.
    ///
    /// # Errors
    /// When the name is not made of letters or is `auth`, or the value is empty, longer than 4,096 bytes or not of visible
    /// ASCII characters.
    pub fn with_extension(mut self, name: impl Into<String>, value: impl Into<String>) -> Result<Self, InvalidToken> {
        let (name, value) = (name.into(), value.into());
        check_extension(&name, &value).map_err(InvalidToken)?;
        self.extensions.push((name, value));
        Ok(self)
    }

    /// When it ends, as far as its source knows. The broker knows by itself; a source that keeps tokens goes by this.
    #[must_use]
    pub fn with_expiry(mut self, at: SystemTime) -> Self {
        self.expires_at = Some(at);
        self
    }

    /// When it ends, if its source said so.
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.expires_at
    }

    pub(super) fn reveal(&self) -> &str {
        self.token.reveal()
    }

    pub(super) fn extensions(&self) -> &[(String, String)] {
        &self.extensions
    }
}

/// The same token each time.
impl TokenSource for BearerToken {
    fn token(&self) -> Fetching<'_> {
        Box::pin(std::future::ready(Ok(self.clone())))
    }
}

/// A text that is no bearer token, or no extension. The text is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidToken(&'static str);
