use std::fmt;
use std::sync::Arc;

/// A text that is never shown.
#[derive(Clone)]
pub(crate) struct Secret(Arc<str>);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into().into())
    }

    /// The text, for whom it is meant.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
