//! LeaveGroup: members go, or are sent away (KIP-345).

use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;

impl Serve for LeaveGroupRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        if let Err(code) = core.check_named_group(call, &self.group_id) {
            return Step::Answer(LeaveGroupResponse::default().with_error_code(code.0));
        }
        let single = call.version < FIRST_WITH_SEVERAL;
        let members = match single {
            true => vec![MemberIdentity::default().with_member_id(self.member_id.clone())],
            false => self.members,
        };
        let limits = core.group_limits();
        let mut outcomes = Vec::new();
        for member in members {
            let group = core.classic_group(call, &self.group_id);
            let instance = member.group_instance_id.as_deref();
            let left = group.and_then(|group| group.leave(&member.member_id, instance, limits, call.now));
            let code = left.err().unwrap_or(ErrorCode::NONE);
            outcomes.push(
                MemberResponse::default()
                    .with_member_id(member.member_id)
                    .with_group_instance_id(member.group_instance_id)
                    .with_error_code(code.0),
            );
        }
        core.changed();
        Step::Answer(if single {
            LeaveGroupResponse::default().with_error_code(outcomes.first().map_or(0, |outcome| outcome.error_code))
        } else {
            LeaveGroupResponse::default().with_members(outcomes)
        })
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> LeaveGroupResponse {
        LeaveGroupResponse::default().with_error_code(code.0)
    }

    fn throttle(answer: &mut LeaveGroupResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

const FIRST_WITH_SEVERAL: i16 = 3;
