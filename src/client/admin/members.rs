use std::fmt;
use std::time::Instant;

use kafka_protocol::messages::LeaveGroupRequest;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::protocol::StrBytes;

use super::offsets::group_id;
use super::retry::{Attempt, Try};
use super::{Admin, Outcomes};
use crate::client::{ClientError, CoordinatorKind};
use crate::protocol::error_code::ErrorCode;

/// How a member is named that is to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MemberName {
    /// By its member id.
    Id(String),
    /// By its static name (KIP-345), whatever its member id is.
    Instance(String),
}

impl Admin {
    /// Sends members away, as if they left. A member that still runs joins again, unless it was stopped before. Java:
    /// `removeMembersFromConsumerGroup`. From Kafka 2.4 on.
    ///
    /// # Errors
    /// For each member apart, [`ErrorCode::UNKNOWN_MEMBER_ID`] for one that is not in the group.
    pub async fn remove_members(&self, group: &str, members: &[MemberName], reason: &str) -> Outcomes<MemberName, ()> {
        let deadline = self.deadline();
        let attempt = |open: Vec<MemberName>, retry: Try| -> Attempt<'_, MemberName, ()> {
            Box::pin(async move { self.try_remove_members(group, &open, reason, retry, deadline).await })
        };
        self.settle(REMOVE, deadline).run(members.iter().cloned(), attempt).await
    }

    async fn try_remove_members(
        &self,
        group: &str,
        members: &[MemberName],
        reason: &str,
        retry: Try,
        deadline: Instant,
    ) -> Result<Outcomes<MemberName, ()>, ClientError> {
        let what = format!("{REMOVE} of group {group}");
        let node = self.cluster.coordinator(CoordinatorKind::Group, group, deadline).await?;
        let timeout = self.a_try(deadline).ok_or_else(|| ClientError::timed_out(&what, None))?;
        let (name, members) = (group_id(group), members.to_vec());
        let reason: String = reason.chars().take(LONGEST_REASON).collect();
        let build = move |version| {
            let reason = (version >= FIRST_WITH_REASON).then(|| StrBytes::from_string(reason));
            let members = members.iter().map(|member| member.on_the_wire(reason.clone()));
            LeaveGroupRequest::default().with_group_id(name).with_members(members.collect())
        };
        let answer = self.cluster.general().to(node).call_with(i16::MAX, timeout, build).await;
        let response = answer.map_err(|error| {
            self.cluster.forget_coordinator(CoordinatorKind::Group, group);
            ClientError::request(&what, error)
        })?;
        self.check_coordinator(group, &what, ErrorCode(response.error_code))?;
        let outcomes = response.members.into_iter().map(|answer| {
            let member = match answer.group_instance_id {
                Some(instance) => MemberName::Instance(instance.to_string()),
                None => MemberName::Id(answer.member_id.to_string()),
            };
            let outcome = match ErrorCode(answer.error_code) {
                ErrorCode::NONE => Ok(()),
                // A try whose answer was lost has sent it away.
                ErrorCode::UNKNOWN_MEMBER_ID if retry.repeated => Ok(()),
                code => Err(ClientError::refused(format_args!("{REMOVE} {member} of group {group}"), code, None)),
            };
            (member, outcome)
        });
        Ok(outcomes.collect())
    }
}

impl MemberName {
    fn on_the_wire(&self, reason: Option<StrBytes>) -> MemberIdentity {
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        let identity = MemberIdentity::default().with_reason(reason);
        match self {
            Self::Id(id) => identity.with_member_id(text(id)).with_group_instance_id(None),
            // Without an id: whoever has the name.
            Self::Instance(instance) => identity.with_group_instance_id(Some(text(instance))),
        }
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => f.write_str(id),
            Self::Instance(instance) => write!(f, "instance {instance}"),
        }
    }
}

const REMOVE: &str = "remove member";

/// KIP-800, and the length that Java cuts a reason to.
const FIRST_WITH_REASON: i16 = 5;
const LONGEST_REASON: usize = 255;
