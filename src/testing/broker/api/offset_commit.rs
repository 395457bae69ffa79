//! OffsetCommit: how far a group has come.

use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::classic_group::Who;
use crate::testing::broker::core::Core;
use crate::testing::broker::groups::{Committed, Kind};

impl Serve for OffsetCommitRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        if let Err(code) = check(core, call, &self) {
            let refused = self.refuse(core, call, code);
            return Step::Answer(refused);
        }
        let group = self.group_id;
        let mut topics = Vec::new();
        for topic in self.topics {
            let name = Topic::from(topic.name.as_str());
            let partitions = topic.partitions.into_iter().map(|asked| {
                let index = asked.partition_index;
                let committed = commit(core, call, &group, TopicPartition::new(&name, index), asked);
                outcome(index, committed.err().unwrap_or(ErrorCode::NONE))
            });
            let partitions = partitions.collect();
            topics.push(OffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions));
        }
        Step::Answer(OffsetCommitResponse::default().with_topics(topics))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> OffsetCommitResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| outcome(asked.partition_index, code)).collect();
            OffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions)
        });
        OffsetCommitResponse::default().with_topics(topics.collect())
    }

    fn throttle(answer: &mut OffsetCommitResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.topics.iter().map(|topic| (Topic::from(topic.name.as_str()), &topic.partitions));
        topics.flat_map(|(name, of)| of.iter().map(move |asked| (name.clone(), asked.partition_index))).collect()
    }
}

fn check(core: &mut Core, call: &Call, request: &OffsetCommitRequest) -> Result<(), ErrorCode> {
    core.check_coordinator(call, &request.group_id)?;
    let who = Who {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.as_ref().map(ToString::to_string),
        generation: request.generation_id_or_member_epoch,
    };
    // Who commits without a membership makes the group.
    if who.generation < 0 {
        core.groups.get_or_create(&request.group_id, core.settings.max_groups)?;
    }
    let group = core.groups.get_mut(&request.group_id).ok_or(ErrorCode::ILLEGAL_GENERATION)?;
    // Members of the new protocol are told by the version that knows their epochs.
    if call.version < FIRST_WITH_MEMBER_EPOCHS && matches!(group.kind, Kind::Consumer(_)) && who.generation >= 0 {
        return Err(ErrorCode::UNSUPPORTED_VERSION);
    }
    group.check_commit(&who, call.now)
}

fn commit(
    core: &mut Core,
    call: &Call,
    group: &str,
    partition: TopicPartition,
    asked: OffsetCommitRequestPartition,
) -> Result<(), ErrorCode> {
    let (at, metadata) = ((asked.committed_offset, asked.committed_leader_epoch), asked.committed_metadata.as_deref());
    let committed = Committed::take(core, call, &partition, at, metadata)?;
    let group = core.groups.get_mut(group).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
    group.offsets.insert(partition, committed);
    Ok(())
}

fn outcome(partition: i32, code: ErrorCode) -> OffsetCommitResponsePartition {
    OffsetCommitResponsePartition::default().with_partition_index(partition).with_error_code(code.0)
}

/// KIP-848.
const FIRST_WITH_MEMBER_EPOCHS: i16 = 9;
