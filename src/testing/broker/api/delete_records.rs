//! DeleteRecords: partitions begin later (KIP-107).

use kafka_protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;

impl Serve for DeleteRecordsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let mut topics = Vec::new();
        for topic in self.topics {
            let partitions = topic.partitions.iter().map(|asked| {
                match delete(core, call, &topic.name, asked.partition_index, asked.offset) {
                    Ok(start) => outcome(asked.partition_index, ErrorCode::NONE).with_low_watermark(start),
                    Err(code) => outcome(asked.partition_index, code),
                }
            });
            let partitions = partitions.collect();
            topics.push(DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions));
        }
        Step::Answer(DeleteRecordsResponse::default().with_topics(topics))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> DeleteRecordsResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| outcome(asked.partition_index, code)).collect();
            DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions)
        });
        DeleteRecordsResponse::default().with_topics(topics.collect())
    }

    fn throttle(answer: &mut DeleteRecordsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.topics.iter().map(|topic| (Topic::from(topic.name.as_str()), &topic.partitions));
        topics.flat_map(|(name, of)| of.iter().map(move |asked| (name.clone(), asked.partition_index))).collect()
    }
}

fn delete(core: &mut Core, call: &Call, topic: &str, partition: i32, offset: i64) -> Result<i64, ErrorCode> {
    if let Some(code) = call.failure_of(topic, partition) {
        return Err(code);
    }
    core.topics.partition(topic, partition)?.check(call.node, -1, true)?;
    let (_, state) = core.topics.get(topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    if !state.config.deleted {
        // A topic that is compacted only deletes by key.
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    core.with_partition(topic, partition, call.now, |partition, _, _| partition.delete_before(offset))?
}

fn outcome(partition: i32, code: ErrorCode) -> DeleteRecordsPartitionResult {
    DeleteRecordsPartitionResult::default()
        .with_partition_index(partition)
        .with_low_watermark(-1)
        .with_error_code(code.0)
}
