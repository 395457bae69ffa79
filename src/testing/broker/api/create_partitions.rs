//! CreatePartitions: more partitions for topics that are there.

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse, TopicName};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, Refusal, text};
use crate::testing::broker::topics::assign_replicas;

impl Serve for CreatePartitionsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let one = |topic: CreatePartitionsTopic| {
            let ordered = call.failure_of(&topic.name, -1).map_or(Ok(()), |code| Err(Refusal::from(code)));
            let grown = ordered.and_then(|()| grow(core, &topic, self.validate_only));
            result(topic.name, grown.err())
        };
        let names: Vec<TopicName> = self.topics.iter().map(|topic| topic.name.clone()).collect();
        let (once, twice): (Vec<_>, Vec<_>) =
            self.topics.into_iter().partition(|topic| names.iter().filter(|name| **name == topic.name).count() == 1);
        let mut results: Vec<CreatePartitionsTopicResult> = Vec::new();
        for topic in twice {
            if results.iter().all(|told| told.name != topic.name) {
                let refusal = Refusal::new(ErrorCode::INVALID_REQUEST, "Duplicate topic in request.");
                results.push(result(topic.name, Some(refusal)));
            }
        }
        results.extend(once.into_iter().map(one));
        Step::Answer(CreatePartitionsResponse::default().with_results(results))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> CreatePartitionsResponse {
        let refused = self.topics.into_iter().map(|topic| result(topic.name, Some(code.into())));
        CreatePartitionsResponse::default().with_results(refused.collect())
    }

    fn throttle(answer: &mut CreatePartitionsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        self.topics.iter().map(|topic| (Topic::from(topic.name.as_str()), -1)).collect()
    }
}

fn grow(core: &mut Core, asked: &CreatePartitionsTopic, validate_only: bool) -> Result<(), Refusal> {
    let (_, topic) = core.topics.get(&asked.name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    let (now, wanted) = (topic.partitions.len(), usize::try_from(asked.count).unwrap_or(0));
    let factor = topic.partitions.first().map_or(1, |first| first.replicas.len());
    if wanted <= now {
        let why = format!(
            "The topic {} currently has {now} partition(s); {} would not be an increase.",
            *asked.name, asked.count
        );
        return Err(Refusal::new(ErrorCode::INVALID_PARTITIONS, why));
    }
    let more = wanted - now;
    let replicas: Vec<Vec<i32>> = match &asked.assignments {
        None => assign_replicas(&core.nodes, now, i32::try_from(more).unwrap_or(i32::MAX).min(MOST), factor as i16),
        Some(assignments) => {
            let nodes = |ids: &[kafka_protocol::messages::BrokerId]| ids.iter().map(|id| id.0).collect();
            assignments.iter().map(|assignment| nodes(&assignment.broker_ids)).collect()
        }
    };
    if replicas.len() != more || wanted > MOST as usize {
        let why = format!("{more} more partition(s) are wanted, {} are placed", replicas.len());
        return Err(Refusal::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, why));
    }
    core.check_replicas(&replicas)?;
    if !validate_only {
        core.add_partitions(&asked.name, replicas)?;
    }
    Ok(())
}

fn result(name: TopicName, refusal: Option<Refusal>) -> CreatePartitionsTopicResult {
    let answer = CreatePartitionsTopicResult::default().with_name(name);
    match refusal {
        None => answer,
        Some(Refusal { code, .. }) if code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => answer.with_error_code(code.0),
        Some(refusal) => answer.with_error_code(refusal.code.0).with_error_message(Some(text(refusal.why))),
    }
}

/// A bound on memory, far above what a topic of a real cluster has.
const MOST: i32 = crate::testing::broker::core::MAX_PARTITIONS as i32;
