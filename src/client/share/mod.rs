//! A member of a share group (KIP-932): records in, each acknowledged by itself.
//!
//! ```text
//!             ┌───────── State, under a lock never held across an await ─────────┐
//!   next ◄────┤ events    Sessions: acquired records, locks, acknowledgements    ├◄──── acknowledge
//!             └──▲────────────────────▲──────────────────────────────────────────┘
//!                │                    │ one task a broker: fetch, acknowledge; own connection
//!                └─── membership task: ShareMember, heartbeats, assignment
//! ```
//!
//! Members share partitions: each record is locked for the member that it was delivered to, for a time, and delivered again to
//! any if it was released or its lock ended. Order is not kept, and no position is committed.

mod broker;
mod error;
mod event;
mod membership;
mod options;
mod state;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use super::{Cluster, deadline_in, now};
use crate::machine::share::{MemberConfig, SessionConfig, ShareMember};

pub use crate::machine::share::{AcknowledgeType, AcquireMode, AcquiredRange, AcquisitionLock};
pub use error::{AcknowledgeCause, AcknowledgeError, AcknowledgeFailed, ShareError};
pub use event::{Acknowledged, Acknowledgement, ShareBatch, ShareEvent, ShareRecord, ShareRecords};
pub use options::ShareConsumerBuilder;

use membership::Membership;
use state::{Phase, Shared};

/// What a share consumer was built with.
#[derive(Debug, Clone)]
struct Settings {
    member: MemberConfig,
    sessions: SessionConfig,
}

/// A member of a share group, made by [`Client::share_consumer`](super::Client::share_consumer). Needs Kafka 4.1 with share groups
/// switched on, as Kafka 4.2 has them; renewing a lock needs 4.2. Java: `KafkaShareConsumer`.
///
/// It acknowledges no record by itself. What is not acknowledged is delivered again when its lock ends, or at once when this
/// member closes. Dropping it leaves the group in the background and waits for nothing; [`close`](Self::close) waits.
///
/// Records are fetched when [`next`](Self::next) is waited for and there are none: nothing is locked ahead of time.
///
/// # Examples
/// ```no_run
/// use kafka_harbor::client::{AcknowledgeType, Client, ShareEvent};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder(["localhost:9092"]).build()?;
/// let mut consumer = client.share_consumer("mailers").topic("letters").build()?;
/// while let Some(event) = consumer.next().await {
///     match event {
///         ShareEvent::Batch(batch) => {
///             for delivered in batch.records() {
///                 println!("{:?}, delivery {}", delivered.record.value, delivered.delivery_count);
///             }
///             consumer.handle().acknowledge(batch.acknowledge_all(AcknowledgeType::Accept)).await?;
///         }
///         ShareEvent::Fault(error) => eprintln!("{error}"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct ShareConsumer {
    handle: ShareHandle,
}

impl ShareConsumer {
    fn start(cluster: Cluster, settings: Settings) -> Self {
        // Java's form of an id: the members of a group are told apart by it, and sessions with brokers go by it.
        let id = uuid::Uuid::from_u128(fastrand::u128(..)).to_string();
        let member = ShareMember::new(now(), settings.member.clone(), id, fastrand::u64(..));
        let shared = Shared::new(cluster, settings, member.id().clone());
        tokio::spawn(Membership::new(shared.clone(), member).run());
        Self { handle: ShareHandle { shared } }
    }

    /// What is said to the membership; may be shared among tasks.
    pub fn handle(&self) -> &ShareHandle {
        &self.handle
    }

    /// The next event; `None` after the membership has ended. While it waits, records are fetched.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event. Records that come nevertheless wait for the next call, and are left out of it if their
    /// locks have ended by then.
    pub async fn next(&mut self) -> Option<ShareEvent> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for one who polls.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ShareEvent>> {
        self.handle.shared.poll_next(cx)
    }

    /// Waits until the group has taken this member in, which is not yet to have partitions.
    ///
    /// # Errors
    /// When that did not happen within `limit`, or the membership ended instead.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn joined(&self, limit: Duration) -> Result<(), ShareError> {
        let mut phase = self.handle.shared.phase();
        let reached = timeout(limit, phase.wait_for(|phase| !matches!(phase, Phase::Joining))).await;
        let group = || self.handle.shared.group().to_owned();
        match reached.map(|phase| phase.map(|phase| phase.clone())) {
            Ok(Ok(Phase::Ended(Some(error)))) => Err(error),
            Ok(Ok(Phase::Ended(None)) | Err(_)) => Err(ShareError::Ended { group: group() }),
            Ok(Ok(_)) => Ok(()),
            Err(_) => Err(ShareError::NotInTime { group: group(), what: "joined", after: limit }),
        }
    }

    /// As [`ShareHandle::leave`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// Dropping the future goes on leaving in the background.
    pub async fn close(self, limit: Duration) -> Result<(), ShareError> {
        self.handle.leave(limit).await
    }
}

impl Drop for ShareConsumer {
    fn drop(&mut self) {
        self.handle.shared.leave(deadline_in(DROP_LEAVES_WITHIN));
    }
}

impl fmt::Debug for ShareConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareConsumer").field("group", &self.handle.shared.group()).finish_non_exhaustive()
    }
}

/// What is said to a member of a share group. Cheap to clone.
#[derive(Clone)]
pub struct ShareHandle {
    shared: Arc<Shared>,
}

impl ShareHandle {
    /// Says what becomes of records, and waits until the broker has taken it. Of each record once, except that one which was
    /// renewed is still to be acknowledged.
    ///
    /// One request to a broker is under way at a time, and the next carries all that came meanwhile. None takes longer than the
    /// request timeout and the wait of a fetch.
    ///
    /// # Errors
    /// Naming the records that were not acknowledged, and whether their locks are lost.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the acknowledgements back: they may still be made.
    pub async fn acknowledge(&self, acknowledgements: Vec<Acknowledgement>) -> Result<Acknowledged, AcknowledgeError> {
        self.shared.acknowledge(acknowledgements).await
    }

    /// Leaves the group, within `limit`: what waits is acknowledged, everything else that is locked is released, and delivered to
    /// others at once. The consumer's events end. Idempotent.
    ///
    /// # Errors
    /// When the brokers could not be told in time: locks and session will end by themselves.
    ///
    /// # Cancel safety
    /// Dropping the future goes on leaving in the background.
    pub async fn leave(&self, limit: Duration) -> Result<(), ShareError> {
        let mut phase = self.shared.phase();
        self.shared.leave(deadline_in(limit));
        let ended = timeout(limit, phase.wait_for(|phase| matches!(phase, Phase::Ended(_)))).await;
        match ended.map(|phase| phase.map(|phase| phase.clone())) {
            Ok(Ok(Phase::Ended(Some(error @ ShareError::NotInTime { .. })))) => Err(error),
            Ok(_) => Ok(()),
            Err(_) => {
                let group = self.shared.group().to_owned();
                Err(ShareError::NotInTime { group, what: "left", after: limit })
            }
        }
    }
}

impl fmt::Debug for ShareHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareHandle").field("group", &self.shared.group()).finish_non_exhaustive()
    }
}

/// How long a consumer that was dropped tries to leave.
const DROP_LEAVES_WITHIN: Duration = Duration::from_secs(5);
