use std::time::Instant;

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use kafka_protocol::messages::{
    DescribeClusterRequest, DescribeClusterResponse, DescribeLogDirsRequest, DescribeLogDirsResponse,
};

use super::acls::{AclOperation, operations};
use super::retry::{Attempt, Try, join_all};
use super::{Admin, Outcomes};
use crate::client::ClientError;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic, TopicPartition};

/// A cluster as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterDescription {
    /// Its id.
    pub cluster_id: String,
    /// The broker that administration goes to, if there is one. With KRaft any broker hands on to the controller, and this
    /// is any of them.
    pub controller: Option<NodeId>,
    /// Its brokers by id, those that are fenced among them (Kafka 4.0 and later tell them).
    pub brokers: Vec<BrokerDescription>,
    /// What the caller may do to the cluster; absent where that is not told.
    pub operations: Option<Vec<AclOperation>>,
}

/// A broker as the cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerDescription {
    /// Its id.
    pub node: NodeId,
    /// Where clients that came in by this listener find it.
    pub host: String,
    /// Its port there.
    pub port: i32,
    /// Its rack, if it has one.
    pub rack: Option<String>,
    /// Whether it is registered and serves nothing: it does not run, or has not caught up yet.
    pub fenced: bool,
}

/// A directory that a broker keeps logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogDir {
    /// Its path at the broker.
    pub path: String,
    /// Why the broker cannot use it; [`ErrorCode::KAFKA_STORAGE_ERROR`] for one that failed.
    pub error: Option<ErrorCode>,
    /// The size of its volume in bytes, where the broker tells (Kafka 3.3 and later).
    pub total_bytes: Option<u64>,
    /// What is left of it in bytes, where the broker tells.
    pub usable_bytes: Option<u64>,
    /// What lies in it.
    pub replicas: Vec<LogDirReplica>,
}

/// A replica of a partition in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogDirReplica {
    /// The partition.
    pub partition: TopicPartition,
    /// The size of its log in bytes.
    pub bytes: u64,
    /// By how many offsets it is behind the high watermark; for one that is being moved to this directory, behind the
    /// replica that it takes the place of.
    pub offset_lag: i64,
    /// Whether it is being moved to this directory and will take the place of the broker's present replica.
    pub future: bool,
}

impl Admin {
    /// The cluster's id, its brokers and its controller.
    ///
    /// # Errors
    /// When no broker answers in time, or it refuses.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, ClientError> {
        const WHAT: &str = "describe cluster";
        let deadline = self.deadline();
        let attempt = || async move {
            let build = |version| {
                DescribeClusterRequest::default()
                    .with_include_cluster_authorized_operations(true)
                    .with_include_fenced_brokers(version >= FIRST_WITH_FENCED)
            };
            let response = self.cluster.call_any(WHAT, deadline, build).await?;
            let refused = |code| ClientError::refused(WHAT, code, response.error_message.as_deref());
            ErrorCode(response.error_code).ok().map_err(refused)?;
            Ok(ClusterDescription::from_wire(response))
        };
        self.settle(WHAT, deadline).one(attempt).await
    }

    /// The directories that brokers keep their logs in, and what lies in each: of these brokers, or of every one that is
    /// registered.
    ///
    /// # Errors
    /// When brokers are not given and the cluster does not tell them; else for each broker apart, and for each directory in
    /// [`LogDir::error`].
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn describe_log_dirs(
        &self,
        brokers: Option<&[NodeId]>,
    ) -> Result<Outcomes<NodeId, Vec<LogDir>>, ClientError> {
        let deadline = self.deadline();
        let brokers = match brokers {
            Some(brokers) => brokers.to_vec(),
            None => self.cluster.refreshed(&[], deadline).await?.brokers.keys().copied().collect(),
        };
        let attempt = |open: Vec<NodeId>, _: Try| -> Attempt<'_, NodeId, Vec<LogDir>> {
            Box::pin(async move {
                let asked = open.into_iter().map(|node| async move { (node, self.try_log_dirs(node, deadline).await) });
                Ok(join_all(asked).await)
            })
        };
        Ok(self.settle(LOG_DIRS, deadline).run(brokers, attempt).await)
    }

    async fn try_log_dirs(&self, node: NodeId, deadline: Instant) -> Result<Vec<LogDir>, ClientError> {
        let what = format!("{LOG_DIRS} {node}");
        let request = DescribeLogDirsRequest::default().with_topics(None);
        let response: DescribeLogDirsResponse = self.call(node, request, &what, deadline).await?;
        ErrorCode(response.error_code).ok().map_err(|code| ClientError::refused(&what, code, None))?;
        Ok(response.results.into_iter().map(LogDir::from_wire).collect())
    }
}

impl ClusterDescription {
    fn from_wire(answer: DescribeClusterResponse) -> Self {
        let broker = |broker: DescribeClusterBroker| BrokerDescription {
            node: NodeId(broker.broker_id.0),
            host: broker.host.to_string(),
            port: broker.port,
            rack: broker.rack.map(|rack| rack.to_string()),
            fenced: broker.is_fenced,
        };
        let mut brokers: Vec<_> = answer.brokers.into_iter().map(broker).collect();
        brokers.sort_by_key(|broker| broker.node);
        Self {
            cluster_id: answer.cluster_id.to_string(),
            controller: (answer.controller_id.0 >= 0).then_some(NodeId(answer.controller_id.0)),
            brokers,
            operations: operations(answer.cluster_authorized_operations),
        }
    }
}

impl LogDir {
    fn from_wire(answer: DescribeLogDirsResult) -> Self {
        let replicas = answer.topics.into_iter().flat_map(|topic| {
            let name = Topic::from(topic.name.as_str());
            topic.partitions.into_iter().map(move |replica| LogDirReplica {
                partition: TopicPartition::new(&name, replica.partition_index),
                bytes: u64::try_from(replica.partition_size).unwrap_or(0),
                offset_lag: replica.offset_lag,
                future: replica.is_future_key,
            })
        });
        Self {
            path: answer.log_dir.to_string(),
            error: ErrorCode(answer.error_code).ok().err(),
            // -1: not told.
            total_bytes: u64::try_from(answer.total_bytes).ok(),
            usable_bytes: u64::try_from(answer.usable_bytes).ok(),
            replicas: replicas.collect(),
        }
    }
}

const LOG_DIRS: &str = "describe log dirs of broker";

/// KIP-1073.
const FIRST_WITH_FENCED: i16 = 2;
