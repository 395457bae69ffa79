use std::time::{Duration, Instant};

use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::ProducerState;
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use super::retry::{Attempt, Try, join_all};
use super::topics::{by_topic, topic_name};
use super::{Admin, Outcomes, millis};
use crate::client::{ClientError, CoordinatorKind};
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Offset, Timestamp, Topic, TopicPartition};

/// A producer that a partition's leader remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActiveProducer {
    /// Its id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i32,
    /// The last sequence number that it wrote here, if it wrote any.
    pub last_sequence: Option<i32>,
    /// When it wrote last, if the broker tells.
    pub last_written: Option<Timestamp>,
    /// The epoch of the coordinator that last ended a transaction of it here.
    pub coordinator_epoch: Option<i32>,
    /// Where its open transaction begins, if one is open: readers of what is committed get no further.
    pub open_since: Option<Offset>,
}

/// The transactions of a cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TransactionListing {
    /// Those that were told, by transactional id.
    pub transactions: Vec<ListedTransaction>,
    /// Brokers that could not be asked: the transactions that they coordinate are missing above.
    pub unreachable: Vec<(NodeId, ClientError)>,
}

/// A transactional id, in few words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedTransaction {
    /// The transactional id.
    pub transactional_id: String,
    /// The id of the producer that has it now.
    pub producer_id: i64,
    /// Its state by Kafka's name, such as `Ongoing` or `CompleteCommit`.
    pub state: String,
    /// The broker that coordinates it.
    pub coordinator: NodeId,
}

/// A transactional id as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionDescription {
    /// The transactional id.
    pub transactional_id: String,
    /// The broker that coordinates it.
    pub coordinator: NodeId,
    /// Its state by Kafka's name, such as `Ongoing` or `CompleteCommit`.
    pub state: String,
    /// The id of the producer that has it now.
    pub producer_id: i64,
    /// That producer's epoch.
    pub epoch: i16,
    /// After what time the coordinator aborts a transaction of it.
    pub timeout: Duration,
    /// When its open transaction began, if one is open.
    pub began: Option<Timestamp>,
    /// The partitions of its open transaction.
    pub partitions: Vec<TopicPartition>,
}

impl Admin {
    /// The idempotent and transactional producers that each partition's leader remembers: whose transaction holds up those
    /// who read what is committed. Java: `describeProducers`.
    ///
    /// # Errors
    /// For each partition apart, [`ClientError::Missing`] for one that does not exist.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn describe_producers(
        &self,
        partitions: &[TopicPartition],
    ) -> Outcomes<TopicPartition, Vec<ActiveProducer>> {
        let deadline = self.deadline();
        let attempt = |open: Vec<TopicPartition>, _: Try| -> Attempt<'_, TopicPartition, Vec<ActiveProducer>> {
            Box::pin(async move {
                self.at_leaders(PRODUCERS, &open, deadline, |node, partitions| async move {
                    self.try_describe_producers(node, &partitions, deadline).await
                })
                .await
            })
        };
        self.settle(PRODUCERS, deadline).run(partitions.iter().cloned(), attempt).await
    }

    /// Every transactional id of the cluster, or those alone with a transaction that has been open for longer than
    /// `open_for` (by brokers before Kafka 3.8 all are told). Each broker tells of those that it coordinates. Java: `listTransactions`.
    ///
    /// # Errors
    /// When no broker can be asked. Single brokers that do not answer are told beside the transactions.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn list_transactions(&self, open_for: Option<Duration>) -> Result<TransactionListing, ClientError> {
        let deadline = self.deadline();
        let ask = |node| self.try_list_transactions(node, open_for, deadline);
        let (mut transactions, unreachable) = self.at_every_broker(LIST, deadline, ask).await?;
        transactions.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        // One that moves while it is asked for is told by both.
        transactions.dedup_by(|a, b| a.transactional_id == b.transactional_id);
        Ok(TransactionListing { transactions, unreachable })
    }

    /// State, producer and partitions of each transactional id. Java: `describeTransactions`.
    ///
    /// # Errors
    /// For each id apart, [`ClientError::Missing`] for one that its coordinator does not know.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn describe_transactions(&self, ids: &[String]) -> Outcomes<String, TransactionDescription> {
        let deadline = self.deadline();
        let attempt = |open: Vec<String>, _: Try| -> Attempt<'_, String, TransactionDescription> {
            Box::pin(async move {
                let asked = open.into_iter().map(|id| async move {
                    let outcome = self.try_describe_transaction(&id, deadline).await;
                    (id, outcome)
                });
                Ok(join_all(asked).await)
            })
        };
        self.settle(DESCRIBE, deadline).run(ids.iter().cloned(), attempt).await
    }

    async fn try_describe_producers(
        &self,
        node: NodeId,
        partitions: &[TopicPartition],
        deadline: Instant,
    ) -> Result<Outcomes<TopicPartition, Vec<ActiveProducer>>, ClientError> {
        let topics = by_topic(partitions).into_iter().map(|(topic, partitions)| {
            TopicRequest::default()
                .with_name(topic_name(topic))
                .with_partition_indexes(partitions.iter().map(|partition| partition.partition).collect())
        });
        let request = DescribeProducersRequest::default().with_topics(topics.collect());
        let response = self.call(node, request, PRODUCERS, deadline).await?;
        let each = response.topics.into_iter().flat_map(|topic| {
            let name = Topic::from(topic.name.as_str());
            topic.partitions.into_iter().map(move |answer| (TopicPartition::new(&name, answer.partition_index), answer))
        });
        let outcomes = each.map(|(partition, answer)| {
            let what = format!("{PRODUCERS} {partition}");
            let refused = |code| ClientError::refused(what, code, answer.error_message.as_deref());
            let outcome = ErrorCode(answer.error_code).ok().map_err(refused);
            let producers = || answer.active_producers.into_iter().map(ActiveProducer::from_wire).collect();
            (partition, outcome.map(|()| producers()))
        });
        Ok(outcomes.collect())
    }

    async fn try_list_transactions(
        &self,
        node: NodeId,
        open_for: Option<Duration>,
        deadline: Instant,
    ) -> Result<Vec<ListedTransaction>, ClientError> {
        let what = format!("{LIST} {node}");
        let timeout = self.a_try(deadline).ok_or_else(|| ClientError::timed_out(&what, None))?;
        let build = move |version| {
            let open_for = open_for.filter(|_| version >= FIRST_WITH_DURATION);
            ListTransactionsRequest::default()
                .with_duration_filter(open_for.map_or(-1, |time| i64::from(millis(time))))
                .with_transactional_id_pattern(None)
        };
        let answer = self.cluster.general().to(node).call_with(i16::MAX, timeout, build).await;
        let response = answer.map_err(|error| ClientError::request(&what, error))?;
        ErrorCode(response.error_code).ok().map_err(|code| ClientError::refused(&what, code, None))?;
        let listed = response.transaction_states.into_iter().map(|state| ListedTransaction {
            transactional_id: state.transactional_id.0.to_string(),
            producer_id: state.producer_id.0,
            state: state.transaction_state.to_string(),
            coordinator: node,
        });
        Ok(listed.collect())
    }

    async fn try_describe_transaction(
        &self,
        id: &str,
        deadline: Instant,
    ) -> Result<TransactionDescription, ClientError> {
        const KIND: CoordinatorKind = CoordinatorKind::Transaction;
        let what = format!("{DESCRIBE} {id}");
        let node = self.cluster.coordinator(KIND, id, deadline).await?;
        let forget = || self.cluster.forget_coordinator(KIND, id);
        let ids = vec![TransactionalId(StrBytes::from_string(id.to_owned()))];
        let request = DescribeTransactionsRequest::default().with_transactional_ids(ids);
        let response = self.call(node, request, &what, deadline).await.inspect_err(|_| forget())?;
        let found = response.transaction_states.into_iter().find(|state| state.transactional_id.0.as_str() == id);
        let found = found.ok_or_else(|| ClientError::LeftOut { what: what.clone() })?;
        match ErrorCode(found.error_code) {
            ErrorCode::NONE => Ok(TransactionDescription::from_wire(found, node)),
            ErrorCode::TRANSACTIONAL_ID_NOT_FOUND => Err(ClientError::Missing { what }),
            code => {
                if matches!(code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE) {
                    forget();
                }
                Err(ClientError::refused(what, code, None))
            }
        }
    }
}

impl ActiveProducer {
    fn from_wire(state: ProducerState) -> Self {
        Self {
            producer_id: state.producer_id.0,
            epoch: state.producer_epoch,
            last_sequence: (state.last_sequence >= 0).then_some(state.last_sequence),
            last_written: (state.last_timestamp >= 0).then_some(Timestamp(state.last_timestamp)),
            coordinator_epoch: (state.coordinator_epoch >= 0).then_some(state.coordinator_epoch),
            open_since: (state.current_txn_start_offset >= 0).then_some(Offset(state.current_txn_start_offset)),
        }
    }
}

impl TransactionDescription {
    fn from_wire(state: TransactionState, coordinator: NodeId) -> Self {
        let partitions = state.topics.into_iter().flat_map(|topic| {
            let name = Topic::from(topic.topic.as_str());
            topic.partitions.into_iter().map(move |partition| TopicPartition::new(&name, partition))
        });
        Self {
            transactional_id: state.transactional_id.0.to_string(),
            coordinator,
            state: state.transaction_state.to_string(),
            producer_id: state.producer_id.0,
            epoch: state.producer_epoch,
            timeout: Duration::from_millis(u64::try_from(state.transaction_timeout_ms).unwrap_or(0)),
            began: (state.transaction_start_time_ms >= 0).then_some(Timestamp(state.transaction_start_time_ms)),
            partitions: partitions.collect(),
        }
    }
}

const PRODUCERS: &str = "describe producers of";
const LIST: &str = "list transactions of broker";
const DESCRIBE: &str = "describe transaction";

/// KIP-994.
const FIRST_WITH_DURATION: i16 = 1;
