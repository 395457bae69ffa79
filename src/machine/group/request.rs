//! The requests of a member, as they are written.

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{GroupId, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest};
use kafka_protocol::protocol::StrBytes;

use super::leader::guarded;
use super::{Group, NO_GENERATION, RejoinCause};
use crate::protocol::subscription::{Assignment, Subscription};

impl Group {
    /// # Errors
    /// When the subscription cannot be written, or an assignor panics.
    pub(super) fn join_request(&self, cause: Option<RejoinCause>) -> Result<JoinGroupRequest, String> {
        let generation = Some(self.generation).filter(|generation| *generation != NO_GENERATION);
        let (version, owned) = match &self.config {
            config if config.plain_subscription => (PLAIN_VERSION, BTreeSet::new()),
            config if config.rack.is_some() => (RACK_VERSION, self.owned.clone()),
            _ => (VERSION, self.owned.clone()),
        };
        let mut protocols = Vec::new();
        for assignor in &self.config.offers[self.offer] {
            let subscription = Subscription {
                topics: self.topics.iter().cloned().collect(),
                user_data: guarded(&**assignor, "its user data", || assignor.user_data(self.last_assignment()))?,
                owned_partitions: Some(owned.iter().cloned().collect()),
                generation,
                rack: self.config.rack.as_ref().map(ToString::to_string),
            };
            protocols.push(
                JoinGroupRequestProtocol::default()
                    .with_name(StrBytes::from_string(assignor.name().to_owned()))
                    .with_metadata(subscription.encode(version).map_err(|error| error.to_string())?),
            );
        }
        Ok(JoinGroupRequest::default()
            .with_group_id(self.group_id())
            .with_session_timeout_ms(millis(self.config.session_timeout))
            .with_rebalance_timeout_ms(millis(self.config.revocation_timeout))
            .with_member_id(self.member_id.clone())
            .with_group_instance_id(self.config.instance_id.clone())
            .with_protocol_type(StrBytes::from_static_str(PROTOCOL_TYPE))
            .with_protocols(protocols)
            // Shown by the coordinator's log (KIP-800).
            .with_reason(cause.map(|cause| StrBytes::from_static_str(cause.text()))))
    }

    pub(super) fn sync_request(&self, assignments: Vec<SyncGroupRequestAssignment>) -> SyncGroupRequest {
        let name = self.protocol.as_ref().map(|protocol| StrBytes::from_string(protocol.name().to_owned()));
        SyncGroupRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(self.generation)
            .with_member_id(self.member_id.clone())
            .with_group_instance_id(self.config.instance_id.clone())
            .with_protocol_type(Some(StrBytes::from_static_str(PROTOCOL_TYPE)))
            .with_protocol_name(name)
            .with_assignments(assignments)
    }

    pub(super) fn heartbeat_request(&self) -> HeartbeatRequest {
        HeartbeatRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(self.generation)
            .with_member_id(self.member_id.clone())
            .with_group_instance_id(self.config.instance_id.clone())
    }

    pub(super) fn leave_request(&self) -> LeaveGroupRequest {
        let member = MemberIdentity::default()
            .with_member_id(self.member_id.clone())
            .with_group_instance_id(self.config.instance_id.clone())
            .with_reason(Some(StrBytes::from_static_str("the consumer was closed")));
        LeaveGroupRequest::default().with_group_id(self.group_id()).with_members(vec![member])
    }

    fn group_id(&self) -> GroupId {
        GroupId(StrBytes::from_string(self.config.group.clone()))
    }
}

/// A member's assignment, which may be empty bytes: so brokers answer a member that the leader left
/// out.
pub(super) fn decode_assignment(bytes: &Bytes) -> Result<Assignment, String> {
    let mut assignment = Assignment::decode(bytes).map_err(|error| error.to_string())?;
    assignment.partitions.retain(|partition| partition.partition >= 0);
    assignment.partitions.sort_unstable();
    assignment.partitions.dedup();
    Ok(assignment)
}

fn millis(time: std::time::Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

const PROTOCOL_TYPE: &str = "consumer";
/// The first that says who owned what, and since when (KIP-792).
const VERSION: i16 = 2;
/// The first that says where a member runs (KIP-881).
const RACK_VERSION: i16 = 3;
/// With owned partitions, always none: what eager members of all clients read.
const PLAIN_VERSION: i16 = 1;
