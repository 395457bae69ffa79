//! JoinGroup: into a generation of a classic group.

use std::time::Duration;

use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::classic_group::{Join, JoinRefused, JoinStep, Joined};
use crate::testing::broker::core::{Core, millis, text};

impl Serve for JoinGroupRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let version = call.version;
        let (group, instance) = (self.group_id.to_string(), self.group_instance_id.as_ref().map(ToString::to_string));
        let step = match join(core, call, self) {
            Ok(step) => step,
            Err((code, member_id)) => return Step::Answer(refused(version, code, &member_id)),
        };
        core.changed();
        match step {
            JoinStep::Done(joined) => Step::Answer(answer(version, joined)),
            JoinStep::Wait { member_id, ticket } => {
                let call = call.clone();
                Step::wait(core, call.now, None, move |core, _| {
                    let group = core.classic_group(&call, &group);
                    let joined = match group {
                        Ok(group) => group.poll_join(&member_id, instance.as_deref(), ticket)?,
                        Err(code) => Err(code),
                    };
                    Some(
                        joined.map_or_else(|code| refused(version, code, &member_id), |joined| answer(version, joined)),
                    )
                })
            }
        }
    }

    fn refuse(self, _core: &mut Core, call: &Call, code: ErrorCode) -> JoinGroupResponse {
        refused(call.version, code, &self.member_id)
    }

    fn throttle(answer: &mut JoinGroupResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn join(core: &mut Core, call: &Call, request: JoinGroupRequest) -> Result<JoinStep, JoinRefused> {
    let refused = |code| (code, request.member_id.to_string());
    core.check_named_group(call, &request.group_id).map_err(refused)?;
    let session = millis(request.session_timeout_ms);
    let allowed = core.settings.min_session_timeout..=core.settings.max_session_timeout;
    if !allowed.contains(&session) {
        return Err(refused(ErrorCode::INVALID_SESSION_TIMEOUT));
    }
    // A member that has an id has it from a group that is there.
    if !request.member_id.is_empty() && core.groups.get(&request.group_id).is_none() {
        return Err(refused(ErrorCode::UNKNOWN_MEMBER_ID));
    }
    let (limits, most) = (core.group_limits(), core.settings.max_groups);
    let join = join_of(call, &request, session);
    let group = core.groups.classic(&request.group_id, most);
    group.map_err(refused)?.join(join, limits, &mut core.random, call.now)
}

fn join_of(call: &Call, request: &JoinGroupRequest, session: Duration) -> Join {
    Join {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.as_ref().map(ToString::to_string),
        client_id: call.client_name().to_owned(),
        session,
        // Version 0 has one time for both.
        rebalance: if call.version == 0 { session } else { millis(request.rebalance_timeout_ms) },
        protocol_type: request.protocol_type.to_string(),
        protocols: request.protocols.iter().map(|offer| (offer.name.to_string(), offer.metadata.clone())).collect(),
        needs_id: call.version >= 4,
        may_skip: call.version >= 9,
    }
}

fn answer(version: i16, joined: Joined) -> JoinGroupResponse {
    let member = |(id, instance, says): (String, Option<String>, bytes::Bytes)| {
        let instance = instance.filter(|_| version >= 5).map(text);
        JoinGroupResponseMember::default().with_member_id(text(id)).with_group_instance_id(instance).with_metadata(says)
    };
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type((version >= 7).then(|| text(joined.protocol_type)))
        .with_protocol_name(Some(text(joined.protocol)))
        .with_leader(text(joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(text(joined.member_id))
        .with_members(joined.members.into_iter().map(member).collect())
}

fn refused(version: i16, code: ErrorCode, member_id: &str) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(code.0)
        .with_generation_id(-1)
        .with_protocol_type(None)
        .with_protocol_name(if version >= 7 { None } else { Some(text("")) })
        .with_member_id(text(member_id))
}
