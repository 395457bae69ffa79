//! A Kafka client: tokio drivers over the machines of [`crate::machine`].
//!
//! ```text
//!   Client ─┬─ Admin ─────► Cluster ─► Connections ─► Connection ─► Stream
//!           ├─ Producer ──►    │  metadata, coordinators
//!           └─ Consumer ──►    ▼
//!                           ClusterView
//! ```

mod admin;
mod cluster;
mod config;
mod connection;
mod consumer;
mod error;
mod login;
mod meter;
mod partitioner;
mod producer;
#[cfg(any(feature = "sasl", feature = "tls"))]
mod secret;
mod share;
mod telemetry;
#[cfg(feature = "tls")]
mod tls;
mod transaction;
pub(crate) mod transport;

#[cfg(test)]
pub(crate) mod scripted;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

pub use self::admin::{
    AclBinding, AclFilter, AclOperation, AclPattern, AclPatternFilter, AclPermission, AclResource, AclResourceKind,
    AclsDeleted, ActiveProducer, Admin, BrokerDescription, ClusterDescription, ConfigChange, ConfigEntry, ConfigKind,
    ConfigResource, ConfigSource, ConfigSynonym, Elected, Election, GroupDescription, GroupFilter, GroupKind,
    GroupListing, GroupMember, GroupOffset, ListedGroup, ListedOffset, ListedTransaction, LogDir, LogDirReplica,
    MemberName, OffsetSpec, Outcomes, PartitionDescription, PlannedReset, Reassignment, ResetTo, TopicCreation,
    TopicDescription, TransactionDescription, TransactionListing,
};
pub use self::config::ClientBuilder;
pub use self::consumer::{
    Assigned, Assignment, BatchLease, CommitCause, CommitError, CommitFailed, CommitPosition, Consumer,
    ConsumerBuilder, ConsumerError, ConsumerEvent, ConsumerHandle, GroupProtocol, IsolationLevel, OffsetReset,
    PartitionBatch, Release,
};
pub use self::error::{ClientError, ConfigError, ConfigProblem};
#[cfg(feature = "sasl")]
pub use self::login::{BearerToken, Fetching, InvalidToken, Login, TokenSource};
#[cfg(feature = "oidc")]
pub use self::login::{OidcTokens, OidcTokensBuilder};
pub use self::partitioner::{Choice, KeyHash, Partitioner};
pub use self::producer::{BatchError, Delivery, Producer, ProducerBuilder, RecordMetadata, Unfinished};
pub use self::share::{
    AcknowledgeCause, AcknowledgeError, AcknowledgeFailed, AcknowledgeType, Acknowledged, Acknowledgement, AcquireMode,
    AcquiredRange, AcquisitionLock, ShareBatch, ShareConsumer, ShareConsumerBuilder, ShareError, ShareEvent,
    ShareHandle, ShareRecord, ShareRecords,
};
pub use self::telemetry::Telemetry;
#[cfg(feature = "tls")]
pub use self::tls::{Tls, TlsBuilder};
pub use self::transaction::{Transaction, TransactionalBuilder, TransactionalProducer};
pub use crate::machine::connection::{ConnectionError, ProtocolViolation, RequestError, TlsFailure};
pub use crate::machine::metadata::{BrokerAddress, InvalidAddress};
pub use crate::machine::produce::{ProduceError, ProduceErrorKind, SharedError};
pub use crate::machine::sasl::{LoginError, SaslViolation};
pub use crate::machine::transaction::{Ended, GroupMetadata, TransactionError, TransactionErrorKind};

pub(crate) use self::admin::join_all;
pub(crate) use self::cluster::{Cluster, CoordinatorKind, Stale};
pub(crate) use self::connection::{Connection, Connections, RawResponse, deadline_in, now};
pub(crate) use self::error::Problems;

/// A Kafka cluster, as this process talks to it. Cheap to clone; all clones share what is known of the cluster.
///
/// Nothing is connected to before it is needed. With the last clone, and the last producer, consumer and admin handle made from it, every
/// connection is closed, without waiting for anything.
#[derive(Clone)]
pub struct Client {
    cluster: Cluster,
}

impl Client {
    /// Options of a client of the cluster that these brokers (`host:port`) belong to. One that answers is enough; they
    /// are tried in turn.
    pub fn builder<A: Into<String>>(bootstrap: impl IntoIterator<Item = A>) -> ClientBuilder {
        ClientBuilder::new(bootstrap)
    }

    pub(crate) fn over(cluster: Cluster) -> Self {
        Self { cluster }
    }

    /// Options of a producer. Writes are idempotent and acknowledged by all in-sync replicas.
    pub fn producer(&self) -> ProducerBuilder {
        ProducerBuilder::new(self)
    }

    /// Options of a member of this group. It reads nothing before it is built.
    pub fn consumer(&self, group: impl Into<String>) -> ConsumerBuilder {
        ConsumerBuilder::new(self.cluster.clone(), group)
    }

    /// Options of a member of this share group, whose members share partitions and acknowledge each record (KIP-932).
    pub fn share_consumer(&self, group: impl Into<String>) -> ShareConsumerBuilder {
        ShareConsumerBuilder::new(self.cluster.clone(), group)
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Asks the cluster for its brokers, to learn whether one answers.
    ///
    /// # Errors
    /// When none does within `timeout`, with what the last one failed with.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn ping(&self, timeout: Duration) -> Result<(), ClientError> {
        self.cluster.refreshed(&[], deadline_in(timeout)).await.map(drop)
    }

    /// Closes every connection of this client and of everything made from it, once what is under way is answered, or after
    /// `timeout`; zero does not wait. Every later call fails.
    ///
    /// Producers and consumers have something to finish and are closed before: a consumer's long poll is always
    /// under way, and a producer's next batch would find no connection.
    ///
    /// # Errors
    /// When something was still under way at `timeout`: it has failed, and the broker may have acted on it.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the client open.
    pub async fn close(&self, timeout: Duration) -> Result<(), ClientError> {
        let quiet = tokio::time::timeout(timeout, self.cluster.quiet()).await;
        self.cluster.close();
        quiet.map_err(|_| ClientError::timed_out("close: answers that were under way", None))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = self.cluster.config();
        f.debug_struct("Client")
            .field("bootstrap", &config.bootstrap)
            .field("client_id", &config.client_id)
            .finish_non_exhaustive()
    }
}
