//! TxnOffsetCommit: offsets that count if their transaction commits (KIP-98, KIP-447).

use kafka_protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequestPartition;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::classic_group::Who;
use crate::testing::broker::core::Core;
use crate::testing::broker::groups::Committed;
use crate::testing::broker::transactions::{Producer, abortable, before_fencing};

impl Serve for TxnOffsetCommitRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        if let Err(code) = check(core, call, &self) {
            let refused = self.refuse(core, call, code);
            return Step::Answer(refused);
        }
        let (group, producer_id) = (self.group_id, self.producer_id.0);
        let mut topics = Vec::new();
        for topic in self.topics {
            let name = Topic::from(topic.name.as_str());
            let partitions = topic.partitions.into_iter().map(|asked| {
                let (index, at) = (asked.partition_index, TopicPartition::new(&name, asked.partition_index));
                let held = hold(core, call, &group, producer_id, at, asked);
                outcome(index, held.err().unwrap_or(ErrorCode::NONE))
            });
            let partitions = partitions.collect();
            topics.push(TxnOffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions));
        }
        Step::Answer(TxnOffsetCommitResponse::default().with_topics(topics))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> TxnOffsetCommitResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| outcome(asked.partition_index, code)).collect();
            TxnOffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions)
        });
        TxnOffsetCommitResponse::default().with_topics(topics.collect())
    }

    fn throttle(answer: &mut TxnOffsetCommitResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.topics.iter().map(|topic| (Topic::from(topic.name.as_str()), &topic.partitions));
        topics.flat_map(|(name, of)| of.iter().map(move |asked| (name.clone(), asked.partition_index))).collect()
    }
}

fn check(core: &mut Core, call: &Call, request: &TxnOffsetCommitRequest) -> Result<(), ErrorCode> {
    core.check_named_group(call, &request.group_id)?;
    // Before version 3 a request does not say which member it is from.
    let (generation, member_id) = match call.version {
        ..3 => (-1, String::new()),
        _ => (request.generation_id, request.member_id.to_string()),
    };
    let instance_id = request.group_instance_id.as_ref().map(ToString::to_string);
    if generation < 0 {
        core.groups.get_or_create(&request.group_id, core.settings.max_groups)?;
    }
    let who = Who { member_id, instance_id, generation };
    let group = core.groups.get(&request.group_id).ok_or(ErrorCode::ILLEGAL_GENERATION)?;
    group.check_transactional_commit(&who)?;
    let producer = Producer { id: request.producer_id.0, epoch: request.producer_epoch };
    if call.version >= FIRST_THAT_ADDS {
        let added = core.add_group_to_transaction(&request.transactional_id, producer, &request.group_id, call.now);
        return added.map_err(|code| before_fencing(code, false));
    }
    let verified = core.verify_group(&request.transactional_id, producer, &request.group_id);
    verified.map_err(|code| abortable(code, call.version >= FIRST_WITH_ABORTABLE))
}

fn hold(
    core: &mut Core,
    call: &Call,
    group: &str,
    producer_id: i64,
    partition: TopicPartition,
    asked: TxnOffsetCommitRequestPartition,
) -> Result<(), ErrorCode> {
    let (at, metadata) = ((asked.committed_offset, asked.committed_leader_epoch), asked.committed_metadata.as_deref());
    let committed = Committed::take(core, call, &partition, at, metadata)?;
    let group = core.groups.get_mut(group).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
    group.pending.insert(producer_id, partition, committed);
    Ok(())
}

fn outcome(partition: i32, code: ErrorCode) -> TxnOffsetCommitResponsePartition {
    TxnOffsetCommitResponsePartition::default().with_partition_index(partition).with_error_code(code.0)
}

/// KIP-890, part 1.
const FIRST_WITH_ABORTABLE: i16 = 4;
/// KIP-890, part 2: the group is added by its first commit.
const FIRST_THAT_ADDS: i16 = 5;
