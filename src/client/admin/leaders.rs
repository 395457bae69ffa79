use std::collections::HashMap;
use std::time::Instant;

use kafka_protocol::messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, BrokerId, ElectLeadersRequest, ListPartitionReassignmentsRequest,
};

use super::retry::{Attempt, Try};
use super::topics::{by_topic, topic_name};
use super::{Admin, Outcomes};
use crate::client::{ClientError, Stale};
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic, TopicPartition};

/// Who may be elected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Election {
    /// The first of the partition's replicas, if it is in sync. Nothing is lost.
    Preferred,
    /// Any replica that runs, where no in-sync one does. What it lacks is lost, though it was acknowledged.
    DangerouslyUnclean,
}

/// What came of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Elected {
    /// There is a new leader.
    Elected,
    /// None was needed: the preferred replica leads, or there is a leader, perhaps by an earlier try of this call.
    NotNeeded,
}

/// A partition on its way to other brokers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reassignment {
    /// The brokers that hold it now, those that are to come and to go among them.
    pub replicas: Vec<NodeId>,
    /// Those that are to hold it and do not yet.
    pub adding: Vec<NodeId>,
    /// Those that are to hold it no more.
    pub removing: Vec<NodeId>,
}

type Checked = Result<Elected, ClientError>;

impl Admin {
    /// Elects leaders of partitions. Java: `electLeaders`.
    ///
    /// # Errors
    /// For each partition apart, [`ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE`] or
    /// [`ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE`] where nobody can be elected now, without another try.
    pub async fn elect_leaders(
        &self,
        election: Election,
        partitions: &[TopicPartition],
    ) -> Outcomes<TopicPartition, Elected> {
        let deadline = self.deadline();
        let attempt = |open: Vec<TopicPartition>, _: Try| -> Attempt<'_, TopicPartition, Checked> {
            Box::pin(async move { self.try_elect(election, &open, deadline).await })
        };
        let outcomes = self.settle(ELECT, deadline).run(partitions.iter().cloned(), attempt).await;
        self.cluster.invalidate(Stale::Admin("leaders were elected"));
        outcomes.into_iter().map(|(partition, outcome)| (partition, outcome.and_then(|checked| checked))).collect()
    }

    /// Has partitions moved to these brokers, the preferred leader first; `None` takes back a move that is under way. Returns
    /// when the move has begun: [`list_reassignments`](Self::list_reassignments) tells how it goes. Java: `alterPartitionReassignments`.
    ///
    /// # Errors
    /// For each partition apart, [`ErrorCode::NO_REASSIGNMENT_IN_PROGRESS`] where there is none to take back.
    pub async fn reassign_partitions(
        &self,
        moves: &[(TopicPartition, Option<Vec<NodeId>>)],
    ) -> Outcomes<TopicPartition, ()> {
        let deadline = self.deadline();
        let by_partition: HashMap<&TopicPartition, &Option<Vec<NodeId>>> =
            moves.iter().map(|(p, to)| (p, to)).collect();
        let by_partition = &by_partition;
        let attempt = |open: Vec<TopicPartition>, retry: Try| -> Attempt<'_, TopicPartition, ()> {
            Box::pin(async move {
                let replicas = |nodes: &Vec<NodeId>| nodes.iter().map(|node| BrokerId(node.0)).collect();
                let topics = by_topic(&open).into_iter().map(|(topic, partitions)| {
                    let entry = |partition: &TopicPartition| {
                        let to = by_partition.get(partition).and_then(|to| to.as_ref());
                        ReassignablePartition::default()
                            .with_partition_index(partition.partition)
                            .with_replicas(to.map(replicas))
                    };
                    let entries = partitions.into_iter().map(entry).collect();
                    ReassignableTopic::default().with_name(topic_name(topic)).with_partitions(entries)
                });
                let request = AlterPartitionReassignmentsRequest::default()
                    .with_topics(topics.collect())
                    .with_timeout_ms(self.millis_left(deadline));
                self.try_reassign(request, retry, deadline).await
            })
        };
        let outcomes = self.settle(REASSIGN, deadline).run(moves.iter().map(|(p, _)| p.clone()), attempt).await;
        self.cluster.invalidate(Stale::Admin("partitions are moved"));
        outcomes
    }

    /// The moves that are under way: of these partitions, or of all. A partition that is not being moved is left out.
    ///
    /// # Errors
    /// When the controller cannot be asked, or refuses.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn list_reassignments(
        &self,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<Vec<(TopicPartition, Reassignment)>, ClientError> {
        const WHAT: &str = "list reassignments";
        let deadline = self.deadline();
        let attempt = || async move {
            let topics = partitions.map(|partitions| {
                let topics = by_topic(partitions).into_iter().map(|(topic, partitions)| {
                    ListPartitionReassignmentsTopics::default()
                        .with_name(topic_name(topic))
                        .with_partition_indexes(partitions.iter().map(|partition| partition.partition).collect())
                });
                topics.collect()
            });
            let request = ListPartitionReassignmentsRequest::default()
                .with_topics(topics)
                .with_timeout_ms(self.millis_left(deadline));
            let response = self.call_controller(request, WHAT, deadline).await?;
            self.controller_outcome(WHAT, response.error_code, response.error_message.as_deref())?;
            let nodes = |ids: &[BrokerId]| ids.iter().map(|id| NodeId(id.0)).collect();
            let moves = response.topics.into_iter().flat_map(|topic| {
                let name = Topic::from(topic.name.as_str());
                topic.partitions.into_iter().map(move |answer| {
                    let reassignment = Reassignment {
                        replicas: nodes(&answer.replicas),
                        adding: nodes(&answer.adding_replicas),
                        removing: nodes(&answer.removing_replicas),
                    };
                    (TopicPartition::new(&name, answer.partition_index), reassignment)
                })
            });
            Ok(moves.collect())
        };
        self.settle(WHAT, deadline).one(attempt).await
    }

    async fn try_elect(
        &self,
        election: Election,
        partitions: &[TopicPartition],
        deadline: Instant,
    ) -> Result<Outcomes<TopicPartition, Checked>, ClientError> {
        let topics = by_topic(partitions).into_iter().map(|(topic, partitions)| {
            TopicPartitions::default()
                .with_topic(topic_name(topic))
                .with_partitions(partitions.iter().map(|partition| partition.partition).collect())
        });
        let request = ElectLeadersRequest::default()
            .with_election_type(election.on_the_wire())
            .with_topic_partitions(Some(topics.collect()))
            .with_timeout_ms(self.millis_left(deadline));
        let response = self.call_controller(request, ELECT, deadline).await?;
        self.controller_outcome(ELECT, response.error_code, None)?;
        let each = response.replica_election_results.into_iter().flat_map(|topic| {
            let name = Topic::from(topic.topic.as_str());
            topic
                .partition_result
                .into_iter()
                .map(move |answer| (TopicPartition::new(&name, answer.partition_id), answer))
        });
        let outcomes = each.map(|(partition, answer)| {
            let what = || format!("{ELECT} {partition}");
            let refused = |code| ClientError::refused(what(), code, answer.error_message.as_deref());
            let outcome = match ErrorCode(answer.error_code) {
                ErrorCode::NONE => Ok(Ok(Elected::Elected)),
                ErrorCode::ELECTION_NOT_NEEDED => Ok(Ok(Elected::NotNeeded)),
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Err(ClientError::Missing { what: what() }),
                // As classed they may pass; but whoever is to lead does not run, and the caller waits for an answer.
                code @ (ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE | ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE) => {
                    Ok(Err(refused(code)))
                }
                code => {
                    self.note_controller(code);
                    Err(refused(code))
                }
            };
            (partition, outcome)
        });
        Ok(outcomes.collect())
    }

    async fn try_reassign(
        &self,
        request: AlterPartitionReassignmentsRequest,
        retry: Try,
        deadline: Instant,
    ) -> Result<Outcomes<TopicPartition, ()>, ClientError> {
        let response = self.call_controller(request, REASSIGN, deadline).await?;
        self.controller_outcome(REASSIGN, response.error_code, response.error_message.as_deref())?;
        let each = response.responses.into_iter().flat_map(|topic| {
            let name = Topic::from(topic.name.as_str());
            topic.partitions.into_iter().map(move |answer| (TopicPartition::new(&name, answer.partition_index), answer))
        });
        let outcomes = each.map(|(partition, answer)| {
            let what = || format!("{REASSIGN} {partition}");
            let outcome = match ErrorCode(answer.error_code) {
                ErrorCode::NONE => Ok(()),
                // A try whose answer was lost has taken it back.
                ErrorCode::NO_REASSIGNMENT_IN_PROGRESS if retry.repeated => Ok(()),
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Err(ClientError::Missing { what: what() }),
                code => {
                    self.note_controller(code);
                    Err(ClientError::refused(what(), code, answer.error_message.as_deref()))
                }
            };
            (partition, outcome)
        });
        Ok(outcomes.collect())
    }
}

impl Election {
    fn on_the_wire(self) -> i8 {
        match self {
            Self::Preferred => 0,
            Self::DangerouslyUnclean => 1,
        }
    }
}

const ELECT: &str = "elect leader of";
const REASSIGN: &str = "reassign";
