//! A member of a consumer group: records in, positions out.
//!
//! ```text
//!              ┌────────── State, under a lock never held across an await ──────────┐
//!  next ◄──────┤ events   Fetcher: buffered records    Positions    Commits         ├◄───── commit, pause, seek
//!              └──▲───────────▲──────────────────────────▲────────────▲─────────────┘
//!                 │           │ one task a broker        │            │
//!                 │       fetch loop: ask, wait, open    │            │
//!                 │           │ own connection           │            │
//!                 └─── membership task: Group, heartbeats, rebalances, offsets
//!                             │ two connections to the coordinator
//! ```
//!
//! Nothing depends on how often [`Consumer::next`] is called: heartbeats go on while a handler works for hours.
//!
//! A broker answers a connection in turn, so a JoinGroup that waits for slow members would hold up the commits of what
//! this member keeps: commits, and leaving, have a connection of their own. Fetched batches are checked and inflated
//! in the fetch loop of their broker, a partition at a time.

mod epochs;
mod error;
mod event;
mod fetch;
mod member;
mod membership;
mod options;
mod pattern;
mod state;
mod topics;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use super::{Cluster, deadline_in};
use crate::machine::fetch::FetchConfig;
use crate::machine::group::GroupConfig;
use crate::machine::transaction::GroupMetadata;
use crate::record::{Offset, Topic};

pub use crate::machine::fetch::{IsolationLevel, OffsetReset};
pub use error::{CommitCause, CommitError, CommitFailed, ConsumerError};
pub use event::{Assigned, Assignment, BatchLease, CommitPosition, ConsumerEvent, PartitionBatch, Release};
pub use options::{ConsumerBuilder, GroupProtocol};

use membership::Membership;
use state::{Phase, Shared};

/// What a consumer was built with.
#[derive(Debug, Clone)]
struct Settings {
    topics: Vec<(Topic, OffsetReset)>,
    patterns: pattern::Patterns,
    group: GroupConfig,
    protocol: GroupProtocol,
    fetch: FetchConfig,
    commit_timeout: Duration,
}

/// A member of a consumer group, made by [`Client::consumer`](super::Client::consumer).
///
/// It commits nothing by itself. Dropping it leaves the group in the background and waits for nothing;
/// [`close`](Self::close) waits. Handles that outlive it are told that everything is lost.
///
/// # Examples
/// ```no_run
/// use kafka_harbor::client::{Client, CommitPosition, ConsumerEvent, OffsetReset};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder(["localhost:9092"]).build()?;
/// let mut consumer = client.consumer("billing").topic("orders", OffsetReset::Earliest).build()?;
/// while let Some(event) = consumer.next().await {
///     match event {
///         ConsumerEvent::Batch(batch) => {
///             for record in batch.batches.iter().flat_map(|batch| batch.records()) {
///                 let record = record?;
///                 if record.offset >= batch.from {
///                     println!("{:?}", record.value);
///                 }
///             }
///             consumer.handle().commit(vec![CommitPosition::new(batch.assigned, batch.next_offset)]).await?;
///         }
///         ConsumerEvent::Revoked(_, release) => release.send(),
///         ConsumerEvent::Fault(error) => eprintln!("{error}"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Consumer {
    handle: ConsumerHandle,
}

impl Consumer {
    fn start(cluster: Cluster, settings: Settings) -> Self {
        let shared = Shared::new(cluster, settings);
        tokio::spawn(Membership::new(shared.clone()).run());
        Self { handle: ConsumerHandle { shared } }
    }

    /// What is said to the membership; may be shared among tasks.
    pub fn handle(&self) -> &ConsumerHandle {
        &self.handle
    }

    /// The next event; `None` after the membership has ended. Events of an assignment come before the batches of its
    /// partitions, and none of those comes after the event that takes them away.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<ConsumerEvent> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for one who polls.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConsumerEvent>> {
        self.handle.shared.poll_next(cx)
    }

    /// Waits until the group has taken this member in, which is not yet to have partitions.
    ///
    /// # Errors
    /// When that did not happen within `limit`, or the membership ended instead.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn joined(&self, limit: Duration) -> Result<(), ConsumerError> {
        let mut phase = self.handle.shared.phase();
        let reached = timeout(limit, phase.wait_for(|phase| !matches!(phase, Phase::Joining))).await;
        let group = || self.handle.shared.group().to_owned();
        match reached.map(|phase| phase.map(|phase| phase.clone())) {
            Ok(Ok(Phase::Ended(Some(error)))) => Err(error),
            Ok(Ok(Phase::Ended(None)) | Err(_)) => Err(ConsumerError::Ended { group: group() }),
            Ok(Ok(_)) => Ok(()),
            Err(_) => Err(ConsumerError::NotInTime { group: group(), what: "joined", after: limit }),
        }
    }

    /// Leaves the group and closes the connections, within `limit`. Commits that are under way are waited for; nothing
    /// else is committed.
    ///
    /// # Errors
    /// When the coordinator could not be told in time: the group will notice by the session's end.
    ///
    /// # Cancel safety
    /// Dropping the future goes on leaving in the background.
    pub async fn close(self, limit: Duration) -> Result<(), ConsumerError> {
        self.handle.leave(limit).await
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.handle.shared.leave(deadline_in(DROP_LEAVES_WITHIN));
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("group", &self.handle.shared.group()).finish_non_exhaustive()
    }
}

/// What is said to a membership. Cheap to clone.
///
/// Every call names assignments, and is refused for those that went meanwhile, even if the partition came back.
#[derive(Clone)]
pub struct ConsumerHandle {
    shared: Arc<Shared>,
}

impl ConsumerHandle {
    /// Commits positions. One request is in flight at a time, and the next carries all that came meanwhile; of one
    /// partition the latest position alone.
    ///
    /// During a rebalance it waits until commits are taken again, at most the commit timeout.
    ///
    /// # Errors
    /// Naming each position that was not committed, and whether its partition is lost.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the positions back: they may still be committed.
    pub async fn commit(&self, positions: Vec<CommitPosition>) -> Result<(), CommitError> {
        self.shared.commit(positions).await
    }

    /// This member of the group, for offsets that are committed in a [`Transaction`](crate::client::Transaction); `None` while it
    /// owns nothing, and from a loss until [`ConsumerEvent::Lost`] is taken: what was handed over before is not this member's any more.
    /// Changes with every rebalance, so it is asked for anew with each batch that is handed over.
    pub fn group_metadata(&self) -> Option<GroupMetadata> {
        self.shared.lock().member().cloned()
    }

    /// Stops handing over batches of the partition; one that was taken already is not affected. What is buffered
    /// is kept as long as other partitions do not need the memory. Does nothing if it is not assigned any more.
    pub fn pause(&self, assigned: &Assigned) {
        self.shared.pause(assigned);
    }

    /// Goes on with a paused partition where it stood. Does nothing if it is not assigned any more.
    pub fn resume(&self, assigned: &Assigned) {
        self.shared.resume(assigned);
    }

    /// Goes on at `offset`, and drops what was buffered. A paused partition stays paused. Does nothing if it is not
    /// assigned any more.
    pub fn seek(&self, assigned: &Assigned, offset: Offset) {
        self.shared.seek(assigned, offset);
    }

    /// Leaves the group, within `limit`. Commits that are under way are waited for; nothing else is committed. The
    /// consumer's events end. Idempotent.
    ///
    /// # Errors
    /// When the coordinator could not be told in time: the group will notice by the session's end.
    ///
    /// # Cancel safety
    /// Dropping the future goes on leaving in the background.
    pub async fn leave(&self, limit: Duration) -> Result<(), ConsumerError> {
        let mut phase = self.shared.phase();
        self.shared.leave(deadline_in(limit));
        let ended = timeout(limit, phase.wait_for(|phase| matches!(phase, Phase::Ended(_)))).await;
        match ended.map(|phase| phase.map(|phase| phase.clone())) {
            Ok(Ok(Phase::Ended(Some(error @ ConsumerError::NotInTime { .. })))) => Err(error),
            Ok(_) => Ok(()),
            Err(_) => {
                let group = self.shared.group().to_owned();
                Err(ConsumerError::NotInTime { group, what: "left", after: limit })
            }
        }
    }
}

impl fmt::Debug for ConsumerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerHandle").field("group", &self.shared.group()).finish_non_exhaustive()
    }
}

/// How long a consumer that was dropped tries to leave.
const DROP_LEAVES_WITHIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
