//! SyncGroup: what a member of a generation is assigned.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::classic_group::Who;
use crate::testing::broker::core::{Core, text};

impl Serve for SyncGroupRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let (group_id, call) = (self.group_id.to_string(), call.clone());
        let who = Who {
            member_id: self.member_id.to_string(),
            instance_id: self.group_instance_id.as_ref().map(ToString::to_string),
            generation: self.generation_id,
        };
        if call.version >= 5 && (self.protocol_type.is_none() || self.protocol_name.is_none()) {
            return Step::Answer(refused(ErrorCode::INCONSISTENT_GROUP_PROTOCOL));
        }
        let said = (self.protocol_type.as_deref(), self.protocol_name.as_deref());
        let assignments: BTreeMap<String, Bytes> =
            self.assignments.iter().map(|it| (it.member_id.to_string(), it.assignment.clone())).collect();
        let synced =
            core.classic_group(&call, &group_id).and_then(|group| group.sync(&who, said, assignments, call.now));
        if let Err(code) = synced {
            return Step::Answer(refused(code));
        }
        core.changed();
        Step::wait(core, call.now, None, move |core, now| {
            let group = match core.classic_group(&call, &group_id) {
                Ok(group) => group,
                Err(code) => return Some(refused(code)),
            };
            let assigned = group.poll_sync(&who, now)?;
            let answer = |assignment: Bytes| {
                let named = |name: &str| (call.version >= 5).then(|| text(name));
                SyncGroupResponse::default()
                    .with_protocol_type(named(group.protocol_type()))
                    .with_protocol_name(named(group.protocol()))
                    .with_assignment(assignment)
            };
            Some(assigned.map_or_else(refused, answer))
        })
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> SyncGroupResponse {
        refused(code)
    }

    fn throttle(answer: &mut SyncGroupResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn refused(code: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse::default().with_error_code(code.0).with_protocol_type(None).with_protocol_name(None)
}
