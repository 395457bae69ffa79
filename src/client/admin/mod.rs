//! Administration: topics, partitions, settings, offsets, groups, transactions, rules of access, the cluster.
//!
//! ```text
//!   call ─► what is still open ─► controller │ leaders │ coordinator │ any ─► outcome of each
//!               ▲                                                               │
//!               └──────────────── wait, where it may succeed later ◄────────────┘
//! ```
//!
//! Each call speaks of many things (topics, partitions, groups) and tells an outcome for each: one that fails takes no
//! other with it. What may succeed later is tried again until the call's time is up.

mod acls;
mod cluster;
mod configs;
mod groups;
mod leaders;
mod members;
mod offsets;
mod reset;
mod retry;
#[cfg(test)]
mod tests;
mod topics;
mod transactions;

use std::time::{Duration, Instant};

use kafka_protocol::protocol::Request;

pub(crate) use self::retry::join_all;

use self::retry::{Attempt, Settle, Try};
use super::cluster::left_until;
use super::{Client, ClientError, Cluster, Stale, deadline_in};
use crate::protocol::error_code::ErrorCode;
use crate::record::NodeId;

pub use acls::{
    AclBinding, AclFilter, AclOperation, AclPattern, AclPatternFilter, AclPermission, AclResource, AclResourceKind,
    AclsDeleted,
};
pub use cluster::{BrokerDescription, ClusterDescription, LogDir, LogDirReplica};
pub use configs::{ConfigChange, ConfigEntry, ConfigKind, ConfigResource, ConfigSource, ConfigSynonym};
pub use groups::{GroupDescription, GroupFilter, GroupKind, GroupListing, GroupMember, ListedGroup};
pub use leaders::{Elected, Election, Reassignment};
pub use members::MemberName;
pub use offsets::{GroupOffset, ListedOffset, OffsetSpec};
pub use reset::{PlannedReset, ResetTo};
pub use topics::{PartitionDescription, TopicCreation, TopicDescription};
pub use transactions::{ActiveProducer, ListedTransaction, TransactionDescription, TransactionListing};

/// What became of each thing that a call was about, in the order given.
pub type Outcomes<K, T> = Vec<(K, Result<T, ClientError>)>;

/// Administers a cluster. Cheap to clone.
///
/// # Cancel safety
/// Dropping the future of any call does not take back what was asked: brokers may still act on it.
#[derive(Debug, Clone)]
pub struct Admin {
    cluster: Cluster,
    timeout: Duration,
}

impl Client {
    /// Administers the cluster over this client. Each call takes 30 s at most, or as
    /// [`Admin::with_timeout`] says.
    pub fn admin(&self) -> Admin {
        Admin { cluster: self.cluster().clone(), timeout: DEFAULT_TIMEOUT }
    }
}

impl Admin {
    /// The same with another bound on how long a call may take, tries and waits included. Default 30 s; zero makes every call
    /// fail. Java: `default.api.timeout.ms`.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn deadline(&self) -> Instant {
        deadline_in(self.timeout)
    }

    /// How long one broker may take, and what to tell it that it may take.
    fn a_try(&self, deadline: Instant) -> Option<Duration> {
        left_until(deadline).map(|left| left.min(self.cluster.config().request_timeout))
    }

    fn settle(&self, what: &'static str, deadline: Instant) -> Settle<'_> {
        Settle { cluster: &self.cluster, what, deadline }
    }

    async fn call<R>(&self, node: NodeId, request: R, what: &str, deadline: Instant) -> Result<R::Response, ClientError>
    where
        R: Request + Send + 'static,
    {
        let timeout = self.a_try(deadline).ok_or_else(|| ClientError::timed_out(what, None))?;
        let connection = self.cluster.general().to(node);
        connection.call(request, timeout).await.map_err(|error| ClientError::request(what, error))
    }

    /// Sends a request to the controller, or, where none is known, to any broker, which hands it on.
    async fn call_controller<R>(&self, request: R, what: &str, deadline: Instant) -> Result<R::Response, ClientError>
    where
        R: Request + Send + 'static,
    {
        let view = self.cluster.topics(&[], deadline).await?;
        let node = view.controller.or_else(|| view.brokers.keys().next().copied());
        let node = node.ok_or_else(|| ClientError::timed_out(what, None))?;
        self.call(node, request, what, deadline).await
    }

    /// Asks every broker, side by side. Those that do not answer in time are told beside the answers.
    async fn at_every_broker<T, F>(
        &self,
        what: &'static str,
        deadline: Instant,
        ask: impl Fn(NodeId) -> F + Sync,
    ) -> Result<(Vec<T>, Vec<(NodeId, ClientError)>), ClientError>
    where
        T: Clone + Send,
        F: Future<Output = Result<Vec<T>, ClientError>> + Send,
    {
        let view = self.cluster.refreshed(&[], deadline).await?;
        let ask = &ask;
        let attempt = |open: Vec<NodeId>, _: Try| -> Attempt<'_, NodeId, Vec<T>> {
            Box::pin(async move {
                let asked = open.into_iter().map(|node| async move { (node, ask(node).await) });
                Ok(join_all(asked).await)
            })
        };
        let (mut all, mut unreachable) = (Vec::new(), Vec::new());
        for (node, outcome) in self.settle(what, deadline).run(view.brokers.keys().copied(), attempt).await {
            match outcome {
                Ok(told) => all.extend(told),
                Err(error) => unreachable.push((node, error)),
            }
        }
        if unreachable.len() == view.brokers.len()
            && let Some((_, error)) = unreachable.pop()
        {
            return Err(error);
        }
        Ok((all, unreachable))
    }

    /// A code of what should be the controller that is about the request as a whole.
    fn controller_outcome(&self, what: &str, code: i16, message: Option<&str>) -> Result<(), ClientError> {
        let code = ErrorCode(code);
        self.note_controller(code);
        code.ok().map_err(|code| ClientError::refused(what, code, message))
    }

    /// Where what should be the controller is none any more, the next try finds the new one.
    fn note_controller(&self, code: ErrorCode) {
        if code == ErrorCode::NOT_CONTROLLER {
            self.cluster.invalidate(Stale::Admin("the controller has moved"));
        }
    }

    /// What a broker is told that it may take, of the time that is left.
    fn millis_left(&self, deadline: Instant) -> i32 {
        self.a_try(deadline).map_or(0, millis)
    }
}

/// What a broker is told that it may take, in its own unit.
fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
