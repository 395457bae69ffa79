//! DescribeGroups: members of classic groups, and what they have.

use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::classic_group::{ClassicGroup, State};
use crate::testing::broker::core::{Core, text};
use crate::testing::broker::groups::GROUP_OPERATIONS;

impl Serve for DescribeGroupsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let operations = if self.include_authorized_operations { GROUP_OPERATIONS } else { i32::MIN };
        let one = |id: GroupId| {
            let found = core.group(call, &id).and_then(|group| group.classic());
            match found {
                Ok(group) => described(id, group).with_authorized_operations(operations),
                Err(ErrorCode::GROUP_ID_NOT_FOUND) => unknown(call, id).with_authorized_operations(operations),
                Err(code) => failed(id, code),
            }
        };
        Step::Answer(DescribeGroupsResponse::default().with_groups(self.groups.into_iter().map(one).collect()))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> DescribeGroupsResponse {
        let groups = self.groups.into_iter().map(|id| failed(id, code));
        DescribeGroupsResponse::default().with_groups(groups.collect())
    }

    fn throttle(answer: &mut DescribeGroupsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn described(id: GroupId, group: &ClassicGroup) -> DescribedGroup {
    // Until all agree on a protocol nothing is said to it; what members were assigned last they have yet.
    let stable = group.state() == State::Stable;
    let members = group.members().map(|(member_id, member)| {
        let described = DescribedGroupMember::default()
            .with_member_id(text(member_id))
            .with_group_instance_id(member.instance_id.as_deref().map(text))
            .with_client_id(text(&member.client_id))
            .with_client_host(text(CLIENT_HOST))
            .with_member_assignment(member.assignment.clone());
        if stable { described.with_member_metadata(member.says_to(group.protocol())) } else { described }
    });
    DescribedGroup::default()
        .with_group_id(id)
        .with_group_state(text(group.state().name()))
        .with_protocol_type(text(group.protocol_type()))
        .with_protocol_data(text(if stable { group.protocol() } else { "" }))
        .with_members(members.collect())
}

/// A group that is not there is dead; from version 6 on it is unknown.
fn unknown(call: &Call, id: GroupId) -> DescribedGroup {
    let dead = DescribedGroup::default().with_group_state(text("Dead"));
    if call.version < 6 {
        return dead.with_group_id(id);
    }
    let message = format!("Group {} not found.", *id);
    dead.with_group_id(id).with_error_code(ErrorCode::GROUP_ID_NOT_FOUND.0).with_error_message(Some(text(message)))
}

fn failed(id: GroupId, code: ErrorCode) -> DescribedGroup {
    DescribedGroup::default().with_group_id(id).with_error_code(code.0)
}

/// Every client is on this machine, or is said to be.
const CLIENT_HOST: &str = "/127.0.0.1";
