//! DescribeProducers: the producers that a partition's leader remembers (KIP-664).

use kafka_protocol::messages::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use kafka_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse, ProducerId};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};
use crate::testing::broker::transactions::COORDINATOR_EPOCH;

impl Serve for DescribeProducersRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let mut topics = Vec::new();
        for topic in self.topics {
            let partitions =
                topic.partition_indexes.iter().map(|index| match producers(core, call, &topic.name, *index) {
                    Ok(producers) => outcome(*index, None).with_active_producers(producers),
                    // A topic that is there has no words for a partition that is not.
                    Err(code) if core.topics.get(&topic.name).is_some() => {
                        outcome(*index, None).with_error_code(code.0)
                    }
                    Err(code) => outcome(*index, Some(code)),
                });
            let partitions = partitions.collect();
            topics.push(TopicResponse::default().with_name(topic.name).with_partitions(partitions));
        }
        Step::Answer(DescribeProducersResponse::default().with_topics(topics))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> DescribeProducersResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partition_indexes.iter().map(|index| outcome(*index, Some(code))).collect();
            TopicResponse::default().with_name(topic.name).with_partitions(partitions)
        });
        DescribeProducersResponse::default().with_topics(topics.collect())
    }

    fn throttle(answer: &mut DescribeProducersResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.topics.iter().map(|topic| (Topic::from(topic.name.as_str()), &topic.partition_indexes));
        topics.flat_map(|(name, of)| of.iter().map(move |index| (name.clone(), *index))).collect()
    }
}

fn producers(core: &Core, call: &Call, topic: &str, index: i32) -> Result<Vec<ProducerState>, ErrorCode> {
    if let Some(code) = call.failure_of(topic, index) {
        return Err(code);
    }
    let partition = core.topics.partition(topic, index)?;
    partition.check(call.node, -1, true)?;
    let log = partition.log(call.node).ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
    let state = |known: crate::memory::KnownProducer| {
        ProducerState::default()
            .with_producer_id(ProducerId(known.producer_id))
            .with_producer_epoch(i32::from(known.epoch))
            .with_last_sequence(known.last_sequence)
            .with_last_timestamp(known.last_timestamp.0)
            .with_coordinator_epoch(if known.is_marked { COORDINATOR_EPOCH } else { -1 })
            .with_current_txn_start_offset(known.open_since.map_or(-1, |offset| offset.0))
    };
    Ok(log.known_producers().into_iter().map(state).collect())
}

fn outcome(partition: i32, code: Option<ErrorCode>) -> PartitionResponse {
    PartitionResponse::default()
        .with_partition_index(partition)
        .with_error_code(code.map_or(0, |code| code.0))
        .with_error_message(code.map(|code| text(code.meaning())))
}
