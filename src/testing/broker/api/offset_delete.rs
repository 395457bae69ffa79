//! OffsetDelete: a group forgets offsets (KIP-496).

use kafka_protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::subscription::Subscription;
use crate::record::{Topic, TopicPartition};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;
use crate::testing::broker::groups::Kind;

impl Serve for OffsetDeleteRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        if let Err(code) = check(core, call, &self.group_id) {
            return Step::Answer(OffsetDeleteResponse::default().with_error_code(code.0));
        }
        let mut topics = Vec::new();
        for topic in self.topics {
            let name = Topic::from(topic.name.as_str());
            let partitions = topic.partitions.iter().map(|asked| {
                let deleted = delete(core, call, &self.group_id, &TopicPartition::new(&name, asked.partition_index));
                outcome(asked.partition_index, deleted.err().unwrap_or(ErrorCode::NONE))
            });
            let partitions = partitions.collect();
            topics.push(OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions));
        }
        Step::Answer(OffsetDeleteResponse::default().with_topics(topics))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> OffsetDeleteResponse {
        OffsetDeleteResponse::default().with_error_code(code.0)
    }

    fn throttle(answer: &mut OffsetDeleteResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.topics.iter().map(|topic| (Topic::from(topic.name.as_str()), &topic.partitions));
        topics.flat_map(|(name, of)| of.iter().map(move |asked| (name.clone(), asked.partition_index))).collect()
    }
}

/// A group with members that are no consumers keeps its offsets: nobody can say what they read.
fn check(core: &mut Core, call: &Call, group: &str) -> Result<(), ErrorCode> {
    let group = core.group(call, group)?;
    let opaque = !group.is_empty() && group.protocol_type() != "consumer";
    if opaque { Err(ErrorCode::NON_EMPTY_GROUP) } else { Ok(()) }
}

fn delete(core: &mut Core, call: &Call, group: &str, partition: &TopicPartition) -> Result<(), ErrorCode> {
    if let Some(code) = call.failure_of(&partition.topic, partition.partition) {
        return Err(code);
    }
    core.topics.partition(&partition.topic, partition.partition)?;
    let group = core.group(call, group)?;
    let subscribed = match &group.kind {
        Kind::Classic(group) => group
            .subscriptions()
            .any(|says| Subscription::decode(&says).is_ok_and(|says| says.topics.contains(&partition.topic))),
        Kind::Consumer(group) => group.reads(&partition.topic),
        Kind::Share(_) => return Err(ErrorCode::GROUP_ID_NOT_FOUND),
    };
    if subscribed {
        return Err(ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC);
    }
    group.offsets.remove(partition);
    Ok(())
}

fn outcome(partition: i32, code: ErrorCode) -> OffsetDeleteResponsePartition {
    OffsetDeleteResponsePartition::default().with_partition_index(partition).with_error_code(code.0)
}
