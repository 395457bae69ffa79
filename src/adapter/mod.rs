//! The port: what [`crate::harbor`] asks of a broker, and all it may ask.
//!
//! Small, batch-wise and the same for every broker. An adapter carries no policy: it never settles by itself,
//! never retries a handler, never decides where a record goes.
//!
//! ```text
//!              ┌─ publisher(..) ─► Publisher::publish(records) ─► acknowledged, or an outcome for each
//!   Adapter ───┼─ join(..) ──────► Membership ─┬─ events:  Assigned, Batch, Revoked, Lost, Fault
//!              └─ topics, offsets              └─ handle:  settle, pause, resume, leave
//! ```
//!
//! Where the broker keeps the state of each record, a membership has another life: [`Event::Delivered`] instead of assignments and
//! batches, and [`settle_records`](MembershipHandle::settle_records) instead of positions.

mod delivered;
mod error;
#[cfg(feature = "kafka")]
pub mod kafka;
mod membership;
pub mod memory;
mod positions;
mod publish;
mod topics;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::record::{NewTopic, Topic};

pub use delivered::{
    DeliveredBatch, DeliveredRange, DeliveredRecord, Receipts, RecordSettleFailure, SettleRecordsError,
};
pub use error::{AdapterError, AdapterErrorKind};
pub use membership::{
    Assigned, Assignment, AssignmentEpoch, Event, EventSource, JoinOptions, Membership, MembershipHandle,
    PartitionBatch, Position, RecordSet, RecordSetCursor, RecordSetIter, RecordSettlement, Release, ResumeFrom,
    SettleError, SettleFailure, Start, TopicSubscription,
};
pub use positions::{GroupPositions, ReadingGroup};
pub use publish::{Acknowledged, PublishError, Publisher, PublisherOptions, RecordFailure, RecordOutcome};
pub use topics::{CommittedOffset, PartitionWatermarks, TopicDescription};

/// A future behind a pointer, so that the port can be a trait object. One is made a batch, never a record.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A broker, as the framework sees it.
///
/// Implementations are cheap to share and hold their connections inside. Every call is bounded in time by the
/// adapter's own settings unless it takes a timeout.
pub trait Adapter: fmt::Debug + Send + Sync + 'static {
    /// A short lower-case name for events and logs: `kafka`, `memory`.
    fn name(&self) -> &'static str;

    /// What this broker can do. Declared, never probed by failing.
    fn capabilities(&self) -> Capabilities;

    /// Reaches the broker. Idempotent; a failure leaves the adapter as it was, so that a later call tries again.
    ///
    /// # Errors
    /// When no broker answers in time, or the one that does refuses.
    fn connect(&self) -> BoxFuture<'_, Result<(), AdapterError>>;

    /// Lets go of every connection, after sending what waits, within `timeout`.
    ///
    /// # Errors
    /// When something could not be sent or closed in time. The adapter is closed all the same.
    fn close(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>>;

    /// A publisher with its own retry policy. Cheap: it opens nothing until it publishes.
    ///
    /// # Errors
    /// When the options ask for what the broker cannot do.
    fn publisher(&self, options: PublisherOptions) -> Result<Arc<dyn Publisher>, AdapterError>;

    /// Joins a group for a set of topics and returns once the membership exists; the assignment comes as an event.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the group in the background.
    ///
    /// # Errors
    /// When the group cannot be joined, or the options ask for what the broker cannot do.
    fn join(&self, options: JoinOptions) -> BoxFuture<'_, Result<Membership, AdapterError>>;

    /// Creates topics and returns once all are visible in metadata. One that exists already is a success.
    ///
    /// # Errors
    /// On any refusal other than "exists already", and, as retryable, when a topic is not visible in time.
    fn create_topics<'a>(&'a self, topics: &'a [NewTopic]) -> BoxFuture<'a, Result<(), AdapterError>>;

    /// What is known of each topic, in the order asked; `None` for one that does not exist.
    ///
    /// # Errors
    /// When the broker cannot be asked.
    fn describe_topics<'a>(
        &'a self,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<Option<TopicDescription>>, AdapterError>>;

    /// First and next offset of every partition of the topics. Partitions without a leader are left out.
    ///
    /// # Errors
    /// When the broker cannot be asked, or keeps no offsets (see [`Capabilities::offsets`]).
    fn watermarks<'a>(&'a self, topics: &'a [Topic]) -> BoxFuture<'a, Result<Vec<PartitionWatermarks>, AdapterError>>;

    /// What the group has committed, for every partition of the topics where it has.
    ///
    /// # Errors
    /// As [`Adapter::watermarks`].
    fn committed<'a>(
        &'a self,
        group: &'a str,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<CommittedOffset>, AdapterError>>;
}

/// What a broker can do. A policy that needs what is missing is refused when it is built, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A group keeps one position a partition, and settling moves it.
    pub settle_by_position: bool,
    /// The broker keeps the state of each record: accept, release, reject, renew.
    pub settle_by_record: bool,
    /// Writes and positions can be made one atomic step.
    pub transactions: bool,
    /// The broker itself can hold a published record back for a time.
    pub publish_delay: bool,
    /// Records carry how often they were delivered.
    pub delivery_count: bool,
    /// Header names and values are bytes, repeat, and may be null.
    pub headers_as_bytes: bool,
    /// Watermarks and committed offsets can be read, so that lag is known.
    pub offsets: bool,
    /// Topics can be created and described.
    pub topic_creation: bool,
}

impl Capabilities {
    /// None of them, to start from.
    pub const NONE: Self = Self {
        settle_by_position: false,
        settle_by_record: false,
        transactions: false,
        publish_delay: false,
        delivery_count: false,
        headers_as_bytes: false,
        offsets: false,
        topic_creation: false,
    };
}
