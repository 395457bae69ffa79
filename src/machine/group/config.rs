//! How a member of a group behaves.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::protocol::StrBytes;

use super::GROUP_BACKOFF;
use crate::machine::assignor::{Assignor, CooperativeSticky, Range, RoundRobin, Sticky};
use crate::retry::ExponentialFullJitter;

/// Settings of a [`Group`](super::Group) or a [`ConsumerGroup`](super::ConsumerGroup). Offers and heartbeats are the
/// coordinator's there.
#[derive(Debug, Clone)]
pub(crate) struct GroupConfig {
    pub(crate) group: String,
    /// Assignors to offer. The members of one offer are offered together, so they are either all cooperative or all
    /// eager; the next offer is made when the group refuses one. Never empty.
    pub(crate) offers: Vec<Vec<Arc<dyn Assignor>>>,
    pub(crate) session_timeout: Duration,
    pub(crate) heartbeat_interval: Duration,
    /// How long a revocation may take; for the broker, the rebalance timeout.
    pub(crate) revocation_timeout: Duration,
    pub(crate) request_timeout: Duration,
    /// The place of a static member (KIP-345).
    pub(crate) instance_id: Option<StrBytes>,
    /// Subscription version 1 without owned partitions, as `@platformatic/kafka` and older clients read it.
    pub(crate) plain_subscription: bool,
    /// The coordinator's assignor to ask for; its first where absent (KIP-848).
    pub(crate) server_assignor: Option<StrBytes>,
    /// Where the member runs (KIP-881).
    pub(crate) rack: Option<StrBytes>,
    pub(crate) backoff: ExponentialFullJitter,
}

impl GroupConfig {
    /// A member with Java's defaults that offers the cooperative assignor first and the eager ones to a group that runs
    /// one of these.
    pub(crate) fn new(group: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            offers: vec![
                vec![Arc::new(CooperativeSticky)],
                vec![Arc::new(Range), Arc::new(RoundRobin), Arc::new(Sticky)],
            ],
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            revocation_timeout: Duration::from_secs(300),
            request_timeout: Duration::from_secs(30),
            instance_id: None,
            plain_subscription: false,
            server_assignor: None,
            rack: None,
            backoff: GROUP_BACKOFF,
        }
    }
}
