//! ElectLeaders: the preferred replica leads again, or any that runs (KIP-460).

use std::collections::BTreeMap;

use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse, TopicName};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};

impl Serve for ElectLeadersRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let clean = match self.election_type {
            PREFERRED => true,
            UNCLEAN => false,
            _ => {
                let code = ErrorCode::INVALID_REQUEST;
                let above = if call.version >= FIRST_WITH_CODE { code.0 } else { 0 };
                return Step::Answer(each_refused(&self, core, code).with_error_code(above));
            }
        };
        let all = self.topic_partitions.is_none();
        let mut results: BTreeMap<Topic, Vec<PartitionResult>> = BTreeMap::new();
        for partition in asked(&self, core) {
            let elected = elect(core, call, &partition, clean);
            // Of all partitions only those are told that needed it.
            let of_topic = results.entry(partition.topic).or_default();
            if all && elected == Err(ErrorCode::ELECTION_NOT_NEEDED) {
                continue;
            }
            of_topic.push(outcome(partition.partition, elected.err()));
        }
        Step::Answer(told(results))
    }

    fn refuse(self, core: &mut Core, call: &Call, code: ErrorCode) -> ElectLeadersResponse {
        // Before version 1 there is no place for a code but a partition's.
        if call.version >= FIRST_WITH_CODE {
            return ElectLeadersResponse::default().with_error_code(code.0);
        }
        each_refused(&self, core, code)
    }

    fn throttle(answer: &mut ElectLeadersResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        asked(self, core).into_iter().map(|partition| (partition.topic, partition.partition)).collect()
    }
}

/// The code for each partition that is asked for.
fn each_refused(request: &ElectLeadersRequest, core: &Core, code: ErrorCode) -> ElectLeadersResponse {
    let mut results: BTreeMap<Topic, Vec<PartitionResult>> = BTreeMap::new();
    for partition in asked(request, core) {
        results.entry(partition.topic).or_default().push(outcome(partition.partition, Some(code)));
    }
    told(results)
}

fn told(results: BTreeMap<Topic, Vec<PartitionResult>>) -> ElectLeadersResponse {
    let results = results.into_iter().map(|(name, outcomes)| {
        ReplicaElectionResult::default().with_topic(TopicName(text(name.as_str()))).with_partition_result(outcomes)
    });
    ElectLeadersResponse::default().with_replica_election_results(results.collect())
}

fn asked(request: &ElectLeadersRequest, core: &Core) -> Vec<TopicPartition> {
    let Some(topics) = &request.topic_partitions else {
        let all = core.topics.iter().flat_map(|(name, topic)| {
            (0..).zip(&topic.partitions).map(move |(index, _)| TopicPartition::new(name, index))
        });
        return all.collect();
    };
    let each = topics.iter().flat_map(|of| {
        let name = Topic::from(of.topic.as_str());
        of.partitions.iter().map(move |index| TopicPartition::new(&name, *index))
    });
    each.collect()
}

fn elect(core: &mut Core, call: &Call, at: &TopicPartition, clean: bool) -> Result<(), ErrorCode> {
    if let Some(code) = call.failure_of(&at.topic, at.partition) {
        return Err(code);
    }
    core.with_partition(&at.topic, at.partition, call.now, |partition, _, around| {
        let runs = |node: &&i32| around.nodes.is_up(**node);
        let next = if clean {
            let preferred = partition.replicas.first().filter(runs).copied();
            if preferred.is_some() && partition.leader == preferred {
                return Err(ErrorCode::ELECTION_NOT_NEEDED);
            }
            let in_sync = preferred.filter(|node| partition.in_sync.contains(node));
            in_sync.ok_or(ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE)?
        } else {
            if partition.leader.is_some() {
                return Err(ErrorCode::ELECTION_NOT_NEEDED);
            }
            let any = partition.replicas.iter().find(runs).copied();
            any.ok_or(ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE)?
        };
        partition.elect(next, around)
    })?
}

fn outcome(partition: i32, code: Option<ErrorCode>) -> PartitionResult {
    PartitionResult::default()
        .with_partition_id(partition)
        .with_error_code(code.map_or(0, |code| code.0))
        .with_error_message(code.map(|code| text(code.meaning())))
}

/// `ElectionType`.
const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

const FIRST_WITH_CODE: i16 = 1;
