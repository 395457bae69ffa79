//! Reliable handling of records: retry ladder, dead letters, redrive, over any broker behind [`crate::adapter`].
//!
//! A service writes a handler. The harbor brings it the records of a topic, one after another in each partition; retries
//! what fails on a ladder of delay topics; sets aside what cannot be handled; and commits a record only when it is done
//! or safely in its next topic.
//!
//! ```text
//!                    ┌──────────── 5 s ────────────┐┌──── 1 min ────┐
//!   orders ─► handler ─ Err ─► orders-retry-1 ─► handler ─ Err ─► orders-retry-2 ─► handler ─ Err ─► orders-dlq
//!                └─ Ok: commit                    └─ Ok: commit                      └─ Ok: commit
//! ```
//!
//! # Examples
//! ```
//! use std::time::Duration;
//!
//! use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
//! use kafka_harbor::harbor::{Failure, Harbor};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     sku: String,
//! }
//!
//! async fn reserve(order: Order) -> Result<(), Failure> {
//!     if order.sku.is_empty() { Err(Failure::permanent("an order of nothing")) } else { Ok(()) }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let broker = MemoryBroker::new();
//! broker.create_topic("orders", 3)?;
//! let harbor = Harbor::builder("orders-service", MemoryAdapter::new(&broker)).build()?;
//! let consumer = harbor
//!     .consumer("orders")
//!     .subscribe("orders", reserve)
//!     .retry_levels(["5s", "1m"])
//!     .auto_create_topics(true)
//!     .build()?;
//! consumer.start().await?;
//! harbor.shutdown(Duration::from_secs(30)).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocking;
mod cancel;
mod circuit;
mod commit;
mod consumer;
mod context;
mod core;
mod correlation;
mod delay;
mod duration;
mod error;
mod failure;
#[cfg(fuzzing)]
pub mod fuzzing;
mod guard;
mod handler;
mod headers;
mod health;
mod idempotency;
pub mod instant;
mod lag;
mod lifecycle;
mod memo;
mod outcome;
mod pipeline;
mod prepare;
mod producer;
mod redrive;
mod roster;
mod serializer;
mod settle;
mod signals;
mod text;
mod topology;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::Adapter;
use crate::clock::{Clock, SystemClock};
use crate::observe::{Observer, Observers};
use crate::retry::RetryPolicy;

pub use self::core::HarborStatus;
pub use blocking::BlockingRetries;
pub use cancel::CancelSignal;
pub use circuit::{Circuit, CircuitBreaker};
pub use consumer::{CommitMode, Consumer, ConsumerBuilder};
pub use context::Context;
pub use duration::{IntoPeriod, Period, PeriodError};
pub use error::{ConfigError, ConfigProblem, HarborError, SerializationError, code};
pub use failure::{Classify, Failure, IntoFailure, kind};
pub use handler::Handler;
pub use headers::{HeaderNames, RetryBlock};
pub use health::{ConsumerHealth, Health};
pub use idempotency::{
    Acquired, Execution, Idempotency, IdempotencyEngine, IdempotencyKey, IdempotencyRecord, IdempotencyStatus,
    IdempotencyStore, Lease, MemoryIdempotencyStore, OnConflict, StoreError,
};
pub use lag::PartitionLag;
pub use lifecycle::ConsumerStatus;
pub use outcome::{IntoOutcome, Outcome, answer};
pub use prepare::{TopicChecks, TopicDefaults};
pub use producer::{Message, Producer, ProducerBuilder};
pub use redrive::{
    DeadLetter, IntoVerdict, Redrive, RedriveError, RedriveReason, RedriveReport, UndoError, UndoLeft, UndoObstacle,
    UndoRedrive, UndoReport,
};
pub use serializer::{Deserializer, Json, Nullable, Raw, Serializer, Text};
pub use signals::SignalHandlers;

use self::core::Core;
use correlation::CorrelationIds;
use error::Problems;
use guard::GuardedClock;
use headers::Stamper;

/// One service's way to a broker: it makes consumers and producers, connects at the first need, and shuts all of it
/// down in order.
///
/// Cheap to clone; all clones are one harbor. `S` reads and writes payloads where nothing else is said: strict JSON
/// unless the builder was told otherwise.
pub struct Harbor<S = Json> {
    core: Arc<Core>,
    serializer: Arc<S>,
}

impl Harbor {
    /// Begins a harbor. The client id names the service to the broker and in the headers of what it writes.
    pub fn builder(client_id: impl Into<String>, adapter: impl IntoAdapter) -> HarborBuilder<Json> {
        HarborBuilder {
            client_id: client_id.into(),
            adapter: adapter.into_adapter(),
            serializer: Json::new(),
            names: HeaderNames::default(),
            correlation: CorrelationIds::default(),
            produce_retry: RetryPolicy::default(),
            observers: Vec::new(),
            clock: Arc::new(SystemClock),
        }
    }
}

impl<S: Send + Sync + 'static> Harbor<S> {
    /// Begins a consumer of this group.
    pub fn consumer(&self, group: impl Into<String>) -> ConsumerBuilder<S> {
        ConsumerBuilder::new(self.core.clone(), self.serializer.clone(), group.into())
    }

    /// Reaches the broker. Not necessary: what needs it does so. Once for all who ask; a failed attempt leaves the harbor
    /// as it was, and the next call tries again.
    ///
    /// # Cancel safety
    /// Dropping the future does not end the attempt.
    ///
    /// # Errors
    /// What the adapter says, or [`HarborError::Closed`].
    pub async fn connect(&self) -> Result<(), HarborError> {
        self.core.connect().await
    }

    /// Where it stands.
    pub fn status(&self) -> HarborStatus {
        self.core.status()
    }

    /// The names of the headers that it reads and writes.
    pub fn header_names(&self) -> &HeaderNames {
        self.core.stamper.names()
    }

    /// Shuts down: consumers stop as by [`Consumer::stop`], all at once, then the broker is let go of. The first call
    /// counts; later ones wait for it. A harbor that never connected does not touch the adapter.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the shutdown back.
    ///
    /// # Errors
    /// The first consumer's that did not stop cleanly, or why the connections were not closed in order. The harbor is
    /// closed all the same.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), HarborError> {
        self.core.shutdown(timeout).await
    }

    /// Shuts down with this timeout when the process gets SIGTERM or SIGINT (elsewhere than on Unix, Ctrl-C). A failure of
    /// that is logged; the process does not exit by it. Calling it anew replaces the handlers before. To be called
    /// within a runtime.
    ///
    /// # Errors
    /// When the timeout is none, or the process may not listen to signals.
    pub fn enable_signal_handlers(&self, timeout: impl IntoPeriod) -> Result<SignalHandlers, HarborError> {
        let mut problems = Problems::default();
        let timeout = problems.period("signals.timeout", timeout);
        problems.finish()?;
        self.core.check_open()?;
        let (task, remover) =
            signals::listen(&self.core, timeout).map_err(|error| ConfigError::one("signals", error))?;
        self.core.set_signals(Some(task));
        Ok(remover)
    }
}

impl<S> Clone for Harbor<S> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), serializer: self.serializer.clone() }
    }
}

impl<S> fmt::Debug for Harbor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Harbor").field(&self.core).finish()
    }
}

/// Builds a [`Harbor`].
#[must_use = "a builder does nothing until `build`"]
pub struct HarborBuilder<S> {
    client_id: String,
    adapter: Arc<dyn Adapter>,
    serializer: S,
    names: HeaderNames,
    correlation: CorrelationIds,
    produce_retry: RetryPolicy,
    observers: Vec<Arc<dyn Observer>>,
    clock: Arc<dyn Clock>,
}

impl<S: Send + Sync + 'static> HarborBuilder<S> {
    /// What reads and writes payloads where nothing else is said. Default: strict [`Json`].
    pub fn serializer<S2: Send + Sync + 'static>(self, serializer: S2) -> HarborBuilder<S2> {
        HarborBuilder {
            client_id: self.client_id,
            adapter: self.adapter,
            serializer,
            names: self.names,
            correlation: self.correlation,
            produce_retry: self.produce_retry,
            observers: self.observers,
            clock: self.clock,
        }
    }

    /// What the names of the harbor's headers begin with; may be empty. Default: `x-`. All services that share a ladder
    /// need the same.
    pub fn header_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.names = HeaderNames::with_prefix(prefix);
        self
    }

    /// Where the correlation id of a record comes from that has none. Default, and where the callback has none to
    /// give: a UUID v4.
    pub fn correlation_ids(mut self, ids: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.correlation = CorrelationIds::from_fn(ids);
        self
    }

    /// How often, and with which waits, a record on its way to a retry level, to the dead letters or back from there is
    /// offered to the broker. Default: five tries, exponential waits with full jitter. When all fail its consumer stops.
    pub fn produce_retry(mut self, retry: RetryPolicy) -> Self {
        self.produce_retry = retry;
        self
    }

    /// Tells this observer what happens. May be called several times.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// What tells the time that records' timestamps are compared with. Default: the system's clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The harbor. Nothing is connected yet.
    ///
    /// # Errors
    /// With every mistake by the name of its option.
    pub fn build(self) -> Result<Harbor<S>, ConfigError> {
        let mut problems = Problems::default();
        problems.require("client_id", &self.client_id);
        if self.produce_retry.attempts == 0 {
            problems.add("produce_retry.attempts", "must be at least 1");
        }
        problems.finish()?;
        let stamper = Stamper::new(self.names, &self.client_id, self.correlation);
        let observers = Observers::new(self.observers);
        let clock = Arc::new(GuardedClock::new(self.clock));
        let core = Core::new(self.client_id.into(), self.adapter, stamper, clock, observers, self.produce_retry);
        Ok(Harbor { core: Arc::new(core), serializer: Arc::new(self.serializer) })
    }
}

impl<S> fmt::Debug for HarborBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarborBuilder")
            .field("client_id", &self.client_id)
            .field("adapter", &self.adapter)
            .finish_non_exhaustive()
    }
}

/// What a harbor can be built on: an adapter, or one that is shared.
pub trait IntoAdapter {
    /// The adapter, shared.
    fn into_adapter(self) -> Arc<dyn Adapter>;
}

impl<A: Adapter> IntoAdapter for A {
    fn into_adapter(self) -> Arc<dyn Adapter> {
        Arc::new(self)
    }
}

impl IntoAdapter for Arc<dyn Adapter> {
    fn into_adapter(self) -> Arc<dyn Adapter> {
        self
    }
}
