//! ConsumerGroupHeartbeat: all that a member of a group of the new protocol says and hears (KIP-848).

use std::collections::BTreeSet;
use std::time::Duration;

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions as Owned;
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::consumer_group::{Beat, Beaten};
use crate::testing::broker::core::{Core, Refusal, millis, text};
use crate::testing::broker::expression::Expression;

impl Serve for ConsumerGroupHeartbeatRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let group = self.group_id.clone();
        let beaten = beat(core, call, self);
        core.changed();
        Step::Answer(match beaten {
            Ok(beaten) => answer(core, &group, beaten),
            Err(refusal) => refused(&refusal),
        })
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ConsumerGroupHeartbeatResponse {
        refused(&code.into())
    }

    fn throttle(answer: &mut ConsumerGroupHeartbeatResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let names = self.subscribed_topic_names.iter().flatten();
        names.map(|name| (Topic::from(name.as_str()), -1)).collect()
    }
}

fn beat(core: &mut Core, call: &Call, request: ConsumerGroupHeartbeatRequest) -> Result<Beaten, Refusal> {
    if request.group_id.is_empty() {
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, "GroupId can't be empty."));
    }
    core.check_coordinator(call, &request.group_id)?;
    if request.instance_id.as_deref() == Some("") || request.rack_id.as_deref() == Some("") {
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, "InstanceId and RackId can't be empty."));
    }
    if request.member_epoch == LEAVES_FOR_A_WHILE && request.instance_id.is_none() {
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, "InstanceId can't be null."));
    }
    let expression = expression(request.subscribed_topic_regex.as_deref())?;
    let mut member_id = request.member_id.to_string();
    if member_id.is_empty() {
        if call.version >= FIRST_WITH_OWN_IDS || request.member_epoch != 0 {
            return Err(Refusal::new(ErrorCode::INVALID_REQUEST, "MemberId can't be empty."));
        }
        member_id = core.random.uuid().to_string();
    }
    let owned = request.topic_partitions.as_ref().map(|owned| named(core, owned));
    let beat = Beat {
        member_id,
        epoch: request.member_epoch,
        instance_id: request.instance_id.as_ref().map(ToString::to_string),
        rack_id: request.rack_id.as_ref().map(ToString::to_string),
        client_id: call.client_name().to_owned(),
        rebalance_timeout: (request.rebalance_timeout_ms >= 0).then(|| millis(request.rebalance_timeout_ms)),
        topics: request
            .subscribed_topic_names
            .as_ref()
            .map(|names| names.iter().map(|name| Topic::from(name.as_str())).collect()),
        expression,
        assignor: request.server_assignor.as_ref().map(ToString::to_string).filter(|name| !name.is_empty()),
        owned,
    };
    let (limits, most) = (core.consumer_group_limits()(&request.group_id), core.settings.max_groups);
    let group = core.groups.consumer(&request.group_id, beat.epoch == 0, most)?;
    Ok(group.beat(beat, limits, &core.topics, call.now)?)
}

/// What a member says of its expression; an empty one takes back the one before.
fn expression(said: Option<&str>) -> Result<Option<Option<Expression>>, Refusal> {
    match said {
        None => Ok(None),
        Some("") => Ok(Some(None)),
        Some(text) => match Expression::new(text) {
            Ok(expression) => Ok(Some(Some(expression))),
            Err(why) => Err(Refusal::new(ErrorCode::INVALID_REGULAR_EXPRESSION, why.to_string())),
        },
    }
}

/// What a member says that it has; topics that are gone are nobody's.
fn named(core: &Core, owned: &[Owned]) -> BTreeSet<TopicPartition> {
    let named = owned.iter().filter_map(|of| Some((core.topics.name_of(of.topic_id)?, &of.partitions)));
    named.flat_map(|(name, of)| of.iter().map(move |partition| TopicPartition::new(name, *partition))).collect()
}

fn answer(core: &Core, group: &str, beaten: Beaten) -> ConsumerGroupHeartbeatResponse {
    let assignment = beaten.assigned.map(|assigned| {
        let by_topic = core.topics.by_topic(&assigned);
        let topics = by_topic
            .map(|(_, id, partitions)| TopicPartitions::default().with_topic_id(id).with_partitions(partitions));
        Assignment::default().with_topic_partitions(topics.collect())
    });
    let own = core.group_millis(group, "consumer.heartbeat.interval.ms");
    let interval = own.unwrap_or(core.settings.consumer_group_heartbeat_interval);
    // Who leaves does not beat again.
    let interval = if beaten.epoch < 0 { Duration::ZERO } else { interval }.as_millis();
    ConsumerGroupHeartbeatResponse::default()
        .with_member_id(Some(text(beaten.member_id)))
        .with_member_epoch(beaten.epoch)
        .with_heartbeat_interval_ms(i32::try_from(interval).unwrap_or(i32::MAX))
        .with_assignment(assignment)
}

fn refused(refusal: &Refusal) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse::default()
        .with_error_code(refusal.code.0)
        .with_error_message(Some(text(&refusal.why)))
        .with_member_id(None)
        .with_assignment(None)
}

/// A static member that will be back.
const LEAVES_FOR_A_WHILE: i32 = -2;
/// KIP-1082: from version 1 on a member makes its id itself.
const FIRST_WITH_OWN_IDS: i16 = 1;
