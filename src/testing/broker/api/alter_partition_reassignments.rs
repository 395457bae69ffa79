//! AlterPartitionReassignments: partitions go to other nodes (KIP-455).

use kafka_protocol::messages::alter_partition_reassignments_request::ReassignablePartition;
use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::{AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, Refusal, text};

impl Serve for AlterPartitionReassignmentsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let sizes = self.allow_replication_factor_change;
        let message = self.topics.is_empty().then(|| text(""));
        let mut topics = Vec::new();
        for topic in self.topics {
            let moved = topic.partitions.iter().map(|asked| {
                let moved = reassign(core, call, &topic.name, asked, sizes);
                outcome(asked.partition_index, moved.err())
            });
            let moved = moved.collect();
            topics.push(ReassignableTopicResponse::default().with_name(topic.name).with_partitions(moved));
        }
        Step::Answer(
            AlterPartitionReassignmentsResponse::default()
                .with_allow_replication_factor_change(sizes)
                .with_error_message(message)
                .with_responses(topics),
        )
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> AlterPartitionReassignmentsResponse {
        AlterPartitionReassignmentsResponse::default()
            .with_error_code(code.0)
            .with_error_message(Some(text(code.meaning())))
    }

    fn throttle(answer: &mut AlterPartitionReassignmentsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.topics.iter().map(|topic| (Topic::from(topic.name.as_str()), &topic.partitions));
        topics.flat_map(|(name, of)| of.iter().map(move |asked| (name.clone(), asked.partition_index))).collect()
    }
}

fn reassign(
    core: &mut Core,
    call: &Call,
    topic: &str,
    asked: &ReassignablePartition,
    sizes: bool,
) -> Result<(), Refusal> {
    let index = asked.partition_index;
    if let Some(code) = call.failure_of(topic, index) {
        return Err(code.into());
    }
    let before = core.topics.partition(topic, index)?.replicas.len();
    let Some(replicas) = &asked.replicas else {
        let taken_back =
            core.with_partition(topic, index, call.now, |partition, _, around| partition.cancel_move(around));
        return taken_back?.map_err(Refusal::without_words);
    };
    let target: Vec<i32> = replicas.iter().map(|node| node.0).collect();
    core.check_replicas(std::slice::from_ref(&target))?;
    if !sizes && target.len() != before {
        let why = format!("The replication factor is {before} and would be {}", target.len());
        return Err(Refusal::new(ErrorCode::INVALID_REPLICATION_FACTOR, why));
    }
    core.with_partition(topic, index, call.now, |partition, _, around| partition.move_to(target, around))?;
    Ok(())
}

fn outcome(partition: i32, refusal: Option<Refusal>) -> ReassignablePartitionResponse {
    let answer = ReassignablePartitionResponse::default().with_partition_index(partition);
    match refusal {
        None => answer.with_error_message(None),
        Some(refusal) => answer.with_error_code(refusal.code.0).with_error_message(refusal.words()),
    }
}
