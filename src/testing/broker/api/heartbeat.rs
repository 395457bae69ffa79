//! Heartbeat: a member of a classic group is alive.

use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::classic_group::Who;
use crate::testing::broker::core::Core;

impl Serve for HeartbeatRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let who = Who {
            member_id: self.member_id.to_string(),
            instance_id: self.group_instance_id.as_ref().map(ToString::to_string),
            generation: self.generation_id,
        };
        let alive = core.classic_group(call, &self.group_id).and_then(|group| group.heartbeat(&who, call.now));
        Step::Answer(answer(alive.err().unwrap_or(ErrorCode::NONE)))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> HeartbeatResponse {
        answer(code)
    }

    fn throttle(answer: &mut HeartbeatResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn answer(code: ErrorCode) -> HeartbeatResponse {
    HeartbeatResponse::default().with_error_code(code.0)
}
