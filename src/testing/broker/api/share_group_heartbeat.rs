//! ShareGroupHeartbeat: all that a member of a share group says and hears (KIP-932).

use kafka_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, Refusal};
use crate::testing::broker::share_group::{Beat, Beaten};

impl Serve for ShareGroupHeartbeatRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let member = self.member_id.clone();
        let beaten = beat(core, call, self);
        core.changed();
        Step::Answer(match beaten {
            Ok(beaten) => answer(core, beaten).with_member_id(Some(member)),
            Err(refusal) => refused(&refusal),
        })
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ShareGroupHeartbeatResponse {
        refused(&code.into())
    }

    fn throttle(answer: &mut ShareGroupHeartbeatResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let names = self.subscribed_topic_names.iter().flatten();
        names.map(|name| (Topic::from(name.as_str()), -1)).collect()
    }
}

fn beat(core: &mut Core, call: &Call, request: ShareGroupHeartbeatRequest) -> Result<Beaten, Refusal> {
    if request.group_id.is_empty() {
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, "GroupId can't be empty."));
    }
    if request.member_id.is_empty() {
        return Err(Refusal::without_words(ErrorCode::INVALID_REQUEST));
    }
    core.check_coordinator(call, &request.group_id)?;
    if request.member_epoch < LEAVES {
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, "MemberEpoch is invalid."));
    }
    let names = request.subscribed_topic_names.as_ref();
    if request.rack_id.as_deref() == Some("") {
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, "RackId can't be empty."));
    }
    if request.member_epoch == 0 && names.is_none_or(Vec::is_empty) {
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, "SubscribedTopicNames must be set in first request."));
    }
    let beat = Beat {
        member_id: request.member_id.to_string(),
        epoch: request.member_epoch,
        rack_id: request.rack_id.as_ref().map(ToString::to_string),
        client_id: call.client_name().to_owned(),
        topics: names.map(|names| names.iter().map(|name| Topic::from(name.as_str())).collect()),
    };
    let (limits, most) = (core.share_limits(), core.settings.max_groups);
    let group = core.groups.share(&request.group_id, beat.epoch == 0, most)?;
    Ok(group.beat(beat, limits, &core.topics, call.now)?)
}

fn answer(core: &Core, beaten: Beaten) -> ShareGroupHeartbeatResponse {
    let assignment = beaten.assigned.map(|assigned| {
        let by_topic = core.topics.by_topic(&assigned);
        let topics = by_topic
            .map(|(_, id, partitions)| TopicPartitions::default().with_topic_id(id).with_partitions(partitions));
        Assignment::default().with_topic_partitions(topics.collect())
    });
    // Who leaves does not beat again.
    let interval = if beaten.epoch < 0 { 0 } else { core.settings.consumer_group_heartbeat_interval.as_millis() };
    ShareGroupHeartbeatResponse::default()
        .with_member_epoch(beaten.epoch)
        .with_heartbeat_interval_ms(i32::try_from(interval).unwrap_or(i32::MAX))
        .with_assignment(assignment)
}

fn refused(refusal: &Refusal) -> ShareGroupHeartbeatResponse {
    ShareGroupHeartbeatResponse::default()
        .with_error_code(refusal.code.0)
        .with_error_message(refusal.words())
        .with_member_id(None)
        .with_assignment(None)
}

/// A member goes.
const LEAVES: i32 = -1;
