//! OffsetFetch: how far groups have come.

use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{GroupId, OffsetFetchRequest, OffsetFetchResponse, TopicName};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};
use crate::testing::broker::groups::Kind;

impl Serve for OffsetFetchRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let stable = self.require_stable;
        let groups = asked(&self, call).into_iter().map(|asked| one(core, call, asked, stable)).collect();
        Step::Answer(answer(call, groups))
    }

    fn refuse(self, _core: &mut Core, call: &Call, code: ErrorCode) -> OffsetFetchResponse {
        let groups = asked(&self, call).into_iter().map(|asked| refused(call, asked, code));
        answer(call, groups.collect())
    }

    fn throttle(answer: &mut OffsetFetchResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, call: &Call) -> Vec<(Topic, i32)> {
        let topics = asked(self, call).into_iter().flat_map(|group| group.topics.unwrap_or_default());
        topics
            .flat_map(|topic| {
                let name = Topic::from(topic.name.as_str());
                topic.partition_indexes.into_iter().map(move |partition| (name.clone(), partition))
            })
            .collect()
    }
}

/// The groups that are asked for; before version 8 there is one.
fn asked(request: &OffsetFetchRequest, call: &Call) -> Vec<OffsetFetchRequestGroup> {
    if call.version >= FIRST_WITH_GROUPS {
        return request.groups.clone();
    }
    let topics = request.topics.as_ref().map(|topics| {
        let topic = |topic: &kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic| {
            OffsetFetchRequestTopics::default()
                .with_name(topic.name.clone())
                .with_partition_indexes(topic.partition_indexes.clone())
        };
        topics.iter().map(topic).collect()
    });
    vec![OffsetFetchRequestGroup::default().with_group_id(request.group_id.clone()).with_topics(topics)]
}

fn one(core: &mut Core, call: &Call, asked: OffsetFetchRequestGroup, stable: bool) -> OffsetFetchResponseGroup {
    if let Err(code) = core.check_coordinator(call, &asked.group_id) {
        return refused(call, asked, code);
    }
    let group = core.groups.get(&asked.group_id);
    // A member of the new protocol says which it is (KIP-848).
    if let (Some(member), Some(Kind::Consumer(group))) = (&asked.member_id, group.map(|group| &group.kind))
        && asked.member_epoch >= 0
        && let Err(code) = group.check_commit(member, asked.member_epoch)
    {
        return refused(call, asked, code);
    }
    let topics = asked.topics.unwrap_or_else(|| {
        let known = group.into_iter().flat_map(|group| group.offsets.keys());
        let mut topics: Vec<OffsetFetchRequestTopics> = Vec::new();
        for partition in known {
            match topics.last_mut() {
                Some(topic) if *topic.name.as_str() == *partition.topic => {
                    topic.partition_indexes.push(partition.partition);
                }
                _ => topics.push(
                    OffsetFetchRequestTopics::default()
                        .with_name(TopicName(text(partition.topic.as_str())))
                        .with_partition_indexes(vec![partition.partition]),
                ),
            }
        }
        topics
    });
    let topics = topics.into_iter().map(|topic| {
        let name = Topic::from(topic.name.as_str());
        let place = |partition: i32| {
            let at = TopicPartition::new(&name, partition);
            let committed = group.and_then(|group| group.offsets.get(&at));
            // A transaction that is open may change it yet (KIP-447).
            let unstable = stable && group.is_some_and(|group| group.pending.holds(&at));
            let code = if unstable { ErrorCode::UNSTABLE_OFFSET_COMMIT } else { ErrorCode::NONE };
            let answer = nowhere(partition, call.failure_of(&name, partition).unwrap_or(code));
            match committed.filter(|_| answer.error_code == 0) {
                Some(committed) => answer
                    .with_committed_offset(committed.offset)
                    .with_committed_leader_epoch(committed.leader_epoch)
                    .with_metadata(Some(text(&committed.metadata))),
                None => answer,
            }
        };
        let partitions = topic.partition_indexes.into_iter().map(place).collect();
        OffsetFetchResponseTopics::default().with_name(topic.name).with_partitions(partitions)
    });
    OffsetFetchResponseGroup::default().with_group_id(asked.group_id).with_topics(topics.collect())
}

fn refused(call: &Call, asked: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup {
    let answer = OffsetFetchResponseGroup::default().with_group_id(asked.group_id).with_error_code(code.0);
    if call.version >= FIRST_WITH_CODE {
        return answer;
    }
    // The oldest version can say it of partitions alone.
    let topics = asked.topics.unwrap_or_default().into_iter().map(|topic| {
        let partitions = topic.partition_indexes.into_iter().map(|partition| nowhere(partition, code)).collect();
        OffsetFetchResponseTopics::default().with_name(topic.name).with_partitions(partitions)
    });
    answer.with_topics(topics.collect())
}

fn nowhere(partition: i32, code: ErrorCode) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions::default()
        .with_partition_index(partition)
        .with_committed_offset(-1)
        .with_committed_leader_epoch(-1)
        .with_metadata(Some(text("")))
        .with_error_code(code.0)
}

fn answer(call: &Call, mut groups: Vec<OffsetFetchResponseGroup>) -> OffsetFetchResponse {
    if call.version >= FIRST_WITH_GROUPS {
        return OffsetFetchResponse::default().with_groups(groups);
    }
    let only = groups.pop().unwrap_or_else(|| OffsetFetchResponseGroup::default().with_group_id(GroupId::default()));
    let partition = |of: OffsetFetchResponsePartitions| {
        OffsetFetchResponsePartition::default()
            .with_partition_index(of.partition_index)
            .with_committed_offset(of.committed_offset)
            .with_committed_leader_epoch(of.committed_leader_epoch)
            .with_metadata(of.metadata)
            .with_error_code(of.error_code)
    };
    let topics = only.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(partition).collect();
        OffsetFetchResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    OffsetFetchResponse::default().with_topics(topics.collect()).with_error_code(only.error_code)
}

const FIRST_WITH_CODE: i16 = 2;
/// KIP-709.
const FIRST_WITH_GROUPS: i16 = 8;
