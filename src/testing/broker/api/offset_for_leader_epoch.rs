//! OffsetForLeaderEpoch: where an epoch ends in the leader's log (KIP-101, KIP-320).

use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;

impl Serve for OffsetForLeaderEpochRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let code = call.failure_of(&topic.topic, asked.partition);
                match code.map_or_else(|| look_up(core, call, &topic.topic, asked), Err) {
                    Ok((epoch, end)) => answer(asked, ErrorCode::NONE, epoch, end),
                    Err(code) => answer(asked, code, -1, -1),
                }
            });
            let partitions = partitions.collect();
            OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(partitions)
        });
        Step::Answer(OffsetForLeaderEpochResponse::default().with_topics(topics.collect()))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> OffsetForLeaderEpochResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| answer(asked, code, -1, -1)).collect();
            OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(partitions)
        });
        OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
    }

    fn throttle(answer: &mut OffsetForLeaderEpochResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.topics.iter().map(|topic| (Topic::from(topic.topic.as_str()), &topic.partitions));
        topics.flat_map(|(name, of)| of.iter().map(move |asked| (name.clone(), asked.partition))).collect()
    }
}

/// Epoch and end; -1 and -1 for an epoch above all that are known.
fn look_up(core: &Core, call: &Call, topic: &str, asked: &OffsetForLeaderPartition) -> Result<(i32, i64), ErrorCode> {
    let partition = core.topics.partition(topic, asked.partition)?;
    partition.check(call.node, asked.current_leader_epoch, true)?;
    let log = partition.leader_log().ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
    if asked.leader_epoch < 0 {
        return Ok((-1, -1));
    }
    Ok(log.end_of_epoch(asked.leader_epoch).map_or((-1, -1), |(epoch, end)| (epoch, end.0)))
}

fn answer(asked: &OffsetForLeaderPartition, code: ErrorCode, epoch: i32, end: i64) -> EpochEndOffset {
    EpochEndOffset::default()
        .with_partition(asked.partition)
        .with_error_code(code.0)
        .with_leader_epoch(epoch)
        .with_end_offset(end)
}
