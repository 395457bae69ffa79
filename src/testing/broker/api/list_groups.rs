//! ListGroups: the groups that a node coordinates.

use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{GroupId, ListGroupsRequest, ListGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};

impl Serve for ListGroupsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let wanted = |filter: &[StrBytes], name: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        let own = core.groups.iter().filter(|(id, _)| core.coordinator_of(id) == Some(call.node));
        let groups = own
            .filter(|(_, group)| wanted(&self.states_filter, group.state_name()))
            .filter(|(_, group)| wanted(&self.types_filter, group.type_name()))
            .map(|(id, group)| {
                ListedGroup::default()
                    .with_group_id(GroupId(text(id)))
                    .with_protocol_type(text(group.protocol_type()))
                    .with_group_state(text(if call.version >= 4 { group.state_name() } else { "" }))
                    .with_group_type(text(if call.version >= 5 { group.type_name() } else { "" }))
            });
        Step::Answer(ListGroupsResponse::default().with_groups(groups.collect()))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ListGroupsResponse {
        ListGroupsResponse::default().with_error_code(code.0)
    }

    fn throttle(answer: &mut ListGroupsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}
