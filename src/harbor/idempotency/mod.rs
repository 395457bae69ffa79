//! Handlers that run once for each key: the seam, and an engine for it.

mod engine;
mod memory;
mod store;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::BoxFuture;
use crate::harbor::context::Context;
use crate::harbor::error::ConfigError;
use crate::harbor::failure::Failure;

pub use engine::{IdempotencyEngine, OnConflict};
pub use memory::MemoryIdempotencyStore;
pub use store::{Acquired, IdempotencyRecord, IdempotencyStatus, IdempotencyStore, Lease, StoreError};

/// Runs work once for each key.
///
/// A consumer asks it before each delivery ([`ConsumerBuilder::idempotency`](super::ConsumerBuilder::idempotency)). What it
/// refuses is a handler's failure, and goes the way of one.
pub trait Idempotency: Send + Sync + 'static {
    /// Runs `work`, unless work of this key is done, or under way elsewhere. It is dropped where the delivery is given up; what it had
    /// begun must not keep the key for longer than it has to.
    fn execute<'a>(
        &'a self,
        key: IdempotencyKey,
        work: BoxFuture<'a, Result<(), Failure>>,
    ) -> BoxFuture<'a, Result<Execution, Failure>>;

    /// Whether it is set up well. Asked once, when a consumer is built with it.
    ///
    /// # Errors
    /// With every mistake.
    fn check(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// What became of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    /// It ran, and succeeded.
    Ran,
    /// Work of this key had succeeded before. It did not run.
    Replayed,
}

/// What is to be done once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdempotencyKey {
    /// The key.
    pub key: String,
    /// What the work is about. The same key with another one is a mistake, and refused.
    pub fingerprint: Option<String>,
    /// For how long success is remembered, if not for as long as the engine remembers others.
    pub result_ttl: Option<Duration>,
}

impl IdempotencyKey {
    /// The key alone.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), fingerprint: None, result_ttl: None }
    }

    /// What the work is about, such as a hash of its payload.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// For how long success is remembered.
    #[must_use]
    pub fn with_result_ttl(mut self, ttl: Duration) -> Self {
        self.result_ttl = Some(ttl);
        self
    }

    /// The place that a record was read from: what is delivered again from there is the same work. A retry is read from another
    /// topic, and is other work.
    pub(crate) fn of_place(context: &Context) -> Self {
        let (group, topic) = (context.group(), context.topic());
        Self::new(format!("{group}:{topic}:{}:{}", context.partition(), context.offset()))
    }
}

impl From<String> for IdempotencyKey {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}

impl From<&str> for IdempotencyKey {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

/// A consumer's idempotency, as its pipeline holds it.
#[derive(Clone)]
pub(crate) struct Guarded(pub(crate) Arc<dyn Idempotency>);

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guarded")
    }
}
