use std::time::Instant;

use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment as MemberAssignment, DescribedGroup as DescribedConsumerGroup,
};
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::share_group_describe_response::{
    Assignment as SharedAssignment, DescribedGroup as DescribedShareGroup,
};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest,
    ShareGroupDescribeRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::offsets::group_id;
use super::retry::{Attempt, Try, join_all};
use super::{Admin, Outcomes};
use crate::client::{ClientError, CoordinatorKind};
use crate::machine::connection::RequestError;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::subscription::{Assignment, Subscription};
use crate::record::{NodeId, Topic, TopicPartition};

/// The groups of a cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GroupListing {
    /// Those that were told, by name.
    pub groups: Vec<ListedGroup>,
    /// Brokers that could not be asked: the groups that they coordinate are missing above.
    pub unreachable: Vec<(NodeId, ClientError)>,
}

/// A group, in few words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedGroup {
    /// Its id.
    pub group: String,
    /// Which protocol its members speak.
    pub kind: GroupKind,
    /// What its members are: `consumer`, `connect`; empty for a group that only commits.
    pub protocol_type: String,
    /// Its state by Kafka's name, such as `Stable` or `Empty`; empty where the broker does not tell.
    pub state: String,
    /// The broker that coordinates it.
    pub coordinator: NodeId,
}

/// The protocol that a group's members speak.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupKind {
    /// Members agree among themselves, by JoinGroup and SyncGroup.
    Classic,
    /// The coordinator assigns (KIP-848).
    Consumer,
    /// Members share partitions, record by record (KIP-932).
    Share,
    /// Another, by Kafka's name.
    Other(String),
}

/// Which groups are meant; where a part says nothing, it fits every group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupFilter {
    /// Those whose members speak one of these protocols. Brokers before Kafka 3.8 have classic groups alone.
    pub kinds: Vec<GroupKind>,
    /// Those in one of these states, by Kafka's names (`Stable`, `Empty`). Brokers before Kafka 2.6 do not tell states: of theirs
    /// no group fits.
    pub states: Vec<String>,
}

impl GroupFilter {
    /// Every group.
    pub fn any() -> Self {
        Self::default()
    }

    /// Those of this kind too.
    #[must_use]
    pub fn with_kind(mut self, kind: GroupKind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// Those in this state too.
    #[must_use]
    pub fn with_state(mut self, state: impl Into<String>) -> Self {
        self.states.push(state.into());
        self
    }

    fn fits(&self, group: &ListedGroup) -> bool {
        let of_kind = self.kinds.is_empty() || self.kinds.contains(&group.kind);
        of_kind && (self.states.is_empty() || self.states.iter().any(|state| state.eq_ignore_ascii_case(&group.state)))
    }
}

/// A group as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// Its id.
    pub group: String,
    /// Which protocol its members speak.
    pub kind: GroupKind,
    /// What its members are: `consumer`, `connect`; empty for a group that only commits.
    pub protocol_type: String,
    /// Its state by Kafka's name, such as `Stable` or `Empty`.
    pub state: String,
    /// The assignor in use; empty while there is none.
    pub assignor: String,
    /// The broker that coordinates it.
    pub coordinator: NodeId,
    /// Its members.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupMember {
    /// Its member id.
    pub member_id: String,
    /// Its static name (KIP-345), if it has one.
    pub instance_id: Option<String>,
    /// What it calls itself.
    pub client_id: String,
    /// Where it connects from.
    pub client_host: String,
    /// The topics it is subscribed to. Empty where it did not say so legibly.
    pub topics: Vec<Topic>,
    /// The partitions assigned to it. Empty where they are not told legibly, as for Kafka Connect.
    pub assigned: Vec<TopicPartition>,
}

impl Admin {
    /// Every group of the cluster, by name. Each broker tells of those that it coordinates.
    ///
    /// # Errors
    /// When no broker can be asked. Single brokers that do not answer in time are told beside the groups.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn list_groups(&self) -> Result<GroupListing, ClientError> {
        self.list_groups_where(&GroupFilter::any()).await
    }

    /// As [`list_groups`](Self::list_groups), of the groups that are meant alone.
    ///
    /// # Errors
    /// Those of [`list_groups`](Self::list_groups).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn list_groups_where(&self, filter: &GroupFilter) -> Result<GroupListing, ClientError> {
        let deadline = self.deadline();
        let ask = |node| self.try_list_groups(node, filter, deadline);
        let (mut groups, unreachable) = self.at_every_broker(LIST, deadline, ask).await?;
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        // A group that moves while it is asked for is told by both.
        groups.dedup_by(|a, b| a.group == b.group);
        Ok(GroupListing { groups, unreachable })
    }

    /// State, members and assignment of each group, classic, consumer or share group.
    ///
    /// # Errors
    /// For each group apart, [`ClientError::Missing`] for one that does not exist.
    pub async fn describe_groups(&self, groups: &[String]) -> Outcomes<String, GroupDescription> {
        let deadline = self.deadline();
        let attempt = |open: Vec<String>, _: Try| -> Attempt<'_, String, GroupDescription> {
            Box::pin(async move {
                let asked = open.into_iter().map(|group| async move {
                    let outcome = self.try_describe_group(&group, deadline).await;
                    (group, outcome)
                });
                Ok(join_all(asked).await)
            })
        };
        self.settle(DESCRIBE, deadline).run(groups.iter().cloned(), attempt).await
    }

    /// Deletes groups and what they have committed. A group with members is refused with
    /// [`ErrorCode::NON_EMPTY_GROUP`].
    ///
    /// # Errors
    /// For each group apart, [`ClientError::Missing`] for one that does not exist.
    pub async fn delete_groups(&self, groups: &[String]) -> Outcomes<String, ()> {
        let deadline = self.deadline();
        let attempt = |open: Vec<String>, retry: Try| -> Attempt<'_, String, ()> {
            Box::pin(async move {
                let asked = open.into_iter().map(|group| async move {
                    let outcome = match self.try_delete_group(&group, deadline).await {
                        // A try whose answer was lost has deleted it.
                        Err(error) if error.is_missing() && retry.repeated => Ok(()),
                        outcome => outcome,
                    };
                    (group, outcome)
                });
                Ok(join_all(asked).await)
            })
        };
        self.settle(DELETE, deadline).run(groups.iter().cloned(), attempt).await
    }

    async fn try_list_groups(
        &self,
        node: NodeId,
        filter: &GroupFilter,
        deadline: Instant,
    ) -> Result<Vec<ListedGroup>, ClientError> {
        let what = format!("{LIST} {node}");
        let timeout = self.a_try(deadline).ok_or_else(|| ClientError::timed_out(&what, None))?;
        let asked = filter.clone();
        let build = move |version| {
            let texts = |names: Vec<String>| names.into_iter().map(StrBytes::from_string).collect();
            let mut request = ListGroupsRequest::default();
            if version >= FIRST_WITH_STATES {
                request = request.with_states_filter(texts(asked.states));
            }
            if version >= FIRST_WITH_KINDS {
                request = request.with_types_filter(texts(asked.kinds.iter().map(ToString::to_string).collect()));
            }
            request
        };
        let answer = self.cluster.general().to(node).call_with(i16::MAX, timeout, build).await;
        let response = answer.map_err(|error| ClientError::request(&what, error))?;
        ErrorCode(response.error_code).ok().map_err(|code| ClientError::refused(&what, code, None))?;
        let listed = response.groups.into_iter().map(|group| ListedGroup {
            group: group.group_id.0.to_string(),
            kind: GroupKind::named(&group.group_type),
            protocol_type: group.protocol_type.to_string(),
            state: group.group_state.to_string(),
            coordinator: node,
        });
        // Older brokers do not filter.
        Ok(listed.filter(|group| filter.fits(group)).collect())
    }

    async fn try_describe_group(&self, group: &str, deadline: Instant) -> Result<GroupDescription, ClientError> {
        let node = self.cluster.coordinator(CoordinatorKind::Group, group, deadline).await?;
        match self.try_describe_consumer_group(node, group, deadline).await {
            // Of the other protocol, or a broker that does not have this one (before Kafka 3.7).
            Ok(None) => {}
            Ok(Some(description)) => return Ok(description),
            Err(ClientError::Request { source: RequestError::Unsupported(_), .. }) => {}
            Err(error) => return Err(error),
        }
        let what = format!("{DESCRIBE} {group}");
        let request = DescribeGroupsRequest::default().with_groups(vec![group_id(group)]);
        let response = self.call_group(node, group, request, &what, deadline).await?;
        let found = response.groups.into_iter().find(|described| described.group_id.0.as_str() == group);
        let found = found.ok_or_else(|| ClientError::LeftOut { what: what.clone() })?;
        // Before version 6 a group that does not exist, or is of another kind, is told as dead (KIP-1043).
        if found.error_code == ErrorCode::GROUP_ID_NOT_FOUND.0 || found.group_state.as_str() == "Dead" {
            return match self.try_describe_share_group(node, group, deadline).await {
                Ok(Some(description)) => Ok(description),
                // No such group, or a broker that does not have this protocol (before Kafka 4.1).
                Ok(None) | Err(ClientError::Request { source: RequestError::Unsupported(_), .. }) => {
                    Err(ClientError::Missing { what })
                }
                Err(error) => Err(error),
            };
        }
        self.check_coordinator(group, &what, ErrorCode(found.error_code))?;
        Ok(GroupDescription::classic(found, node))
    }

    /// `None` if the coordinator knows no such group of the KIP-848 protocol.
    async fn try_describe_consumer_group(
        &self,
        node: NodeId,
        group: &str,
        deadline: Instant,
    ) -> Result<Option<GroupDescription>, ClientError> {
        let what = format!("{DESCRIBE} {group}");
        let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id(group)]);
        let response = self.call_group(node, group, request, &what, deadline).await?;
        let found = response.groups.into_iter().find(|described| described.group_id.0.as_str() == group);
        let found = found.ok_or_else(|| ClientError::LeftOut { what: what.clone() })?;
        match ErrorCode(found.error_code) {
            ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNSUPPORTED_VERSION => return Ok(None),
            code => self.check_coordinator(group, &what, code)?,
        }
        Ok(Some(GroupDescription::consumer(found, node)))
    }

    /// `None` if the coordinator knows no such share group.
    async fn try_describe_share_group(
        &self,
        node: NodeId,
        group: &str,
        deadline: Instant,
    ) -> Result<Option<GroupDescription>, ClientError> {
        let what = format!("{DESCRIBE} {group}");
        let request = ShareGroupDescribeRequest::default().with_group_ids(vec![group_id(group)]);
        let response = self.call_group(node, group, request, &what, deadline).await?;
        let found = response.groups.into_iter().find(|described| described.group_id.0.as_str() == group);
        let found = found.ok_or_else(|| ClientError::LeftOut { what: what.clone() })?;
        match ErrorCode(found.error_code) {
            ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNSUPPORTED_VERSION => return Ok(None),
            code => self.check_coordinator(group, &what, code)?,
        }
        Ok(Some(GroupDescription::share(found, node)))
    }

    async fn try_delete_group(&self, group: &str, deadline: Instant) -> Result<(), ClientError> {
        let what = format!("{DELETE} {group}");
        let node = self.cluster.coordinator(CoordinatorKind::Group, group, deadline).await?;
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(group)]);
        let response = self.call_group(node, group, request, &what, deadline).await?;
        let answer = response.results.into_iter().find(|answer| answer.group_id.0.as_str() == group);
        let answer = answer.ok_or_else(|| ClientError::LeftOut { what: what.clone() })?;
        self.check_coordinator(group, &what, ErrorCode(answer.error_code))
    }

    /// Sends a request to the group's coordinator, which is forgotten if it does not answer.
    async fn call_group<R>(
        &self,
        node: NodeId,
        group: &str,
        request: R,
        what: &str,
        deadline: Instant,
    ) -> Result<R::Response, ClientError>
    where
        R: kafka_protocol::protocol::Request + Send + 'static,
    {
        let answer = self.call(node, request, what, deadline).await;
        answer.inspect_err(|error| {
            if error.is_retriable() {
                self.cluster.forget_coordinator(CoordinatorKind::Group, group);
            }
        })
    }
}

impl GroupKind {
    /// By Kafka's name; brokers before 3.8 tell none and have classic groups alone.
    fn named(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "" | "classic" => Self::Classic,
            "consumer" => Self::Consumer,
            "share" => Self::Share,
            _ => Self::Other(name.to_owned()),
        }
    }
}

impl std::fmt::Display for GroupKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Classic => "classic",
            Self::Consumer => "consumer",
            Self::Share => "share",
            Self::Other(name) => name,
        })
    }
}

impl GroupDescription {
    fn share(described: DescribedShareGroup, coordinator: NodeId) -> Self {
        let members = described.members.into_iter().map(|member| GroupMember {
            member_id: member.member_id.to_string(),
            instance_id: None,
            client_id: member.client_id.to_string(),
            client_host: member.client_host.to_string(),
            topics: member.subscribed_topic_names.iter().map(|name| Topic::from(name.as_str())).collect(),
            assigned: shared_by(member.assignment),
        });
        Self {
            group: described.group_id.0.to_string(),
            kind: GroupKind::Share,
            protocol_type: "share".to_owned(),
            state: described.group_state.to_string(),
            assignor: described.assignor_name.to_string(),
            coordinator,
            members: members.collect(),
        }
    }

    fn classic(described: DescribedGroup, coordinator: NodeId) -> Self {
        Self {
            group: described.group_id.0.to_string(),
            kind: GroupKind::Classic,
            protocol_type: described.protocol_type.to_string(),
            state: described.group_state.to_string(),
            assignor: described.protocol_data.to_string(),
            coordinator,
            members: described.members.into_iter().map(GroupMember::from).collect(),
        }
    }

    fn consumer(described: DescribedConsumerGroup, coordinator: NodeId) -> Self {
        let members = described.members.into_iter().map(|member| GroupMember {
            member_id: member.member_id.to_string(),
            instance_id: member.instance_id.map(|id| id.to_string()),
            client_id: member.client_id.to_string(),
            client_host: member.client_host.to_string(),
            topics: member.subscribed_topic_names.iter().map(|name| Topic::from(name.as_str())).collect(),
            assigned: partitions_of(member.assignment),
        });
        Self {
            group: described.group_id.0.to_string(),
            kind: GroupKind::Consumer,
            protocol_type: "consumer".to_owned(),
            state: described.group_state.to_string(),
            assignor: described.assignor_name.to_string(),
            coordinator,
            members: members.collect(),
        }
    }
}

impl From<DescribedGroupMember> for GroupMember {
    fn from(member: DescribedGroupMember) -> Self {
        // Members write these bytes and the coordinator keeps them as they are: what is illegible is no fault of the call.
        let topics = Subscription::decode(&member.member_metadata).map(|subscription| subscription.topics);
        let assigned = Assignment::decode(&member.member_assignment).map(|assignment| assignment.partitions);
        Self {
            member_id: member.member_id.to_string(),
            instance_id: member.group_instance_id.map(|id| id.to_string()),
            client_id: member.client_id.to_string(),
            client_host: member.client_host.to_string(),
            topics: topics.unwrap_or_default(),
            assigned: assigned.unwrap_or_default(),
        }
    }
}

fn partitions_of(assignment: MemberAssignment) -> Vec<TopicPartition> {
    let each = assignment.topic_partitions.into_iter().flat_map(|topic| {
        let name = Topic::from(topic.topic_name.as_str());
        topic.partitions.into_iter().map(move |partition| TopicPartition::new(&name, partition))
    });
    each.collect()
}

fn shared_by(assignment: SharedAssignment) -> Vec<TopicPartition> {
    let each = assignment.topic_partitions.into_iter().flat_map(|topic| {
        let name = Topic::from(topic.topic_name.as_str());
        topic.partitions.into_iter().map(move |partition| TopicPartition::new(&name, partition))
    });
    each.collect()
}

const LIST: &str = "list groups of broker";
const DESCRIBE: &str = "describe group";
const DELETE: &str = "delete group";

/// KIP-518.
const FIRST_WITH_STATES: i16 = 4;
/// KIP-848.
const FIRST_WITH_KINDS: i16 = 5;
