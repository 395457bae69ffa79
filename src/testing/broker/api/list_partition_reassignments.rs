//! ListPartitionReassignments: which partitions are on their way to other nodes (KIP-455).

use std::collections::BTreeMap;

use kafka_protocol::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use kafka_protocol::messages::{
    BrokerId, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, TopicName,
};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};

impl Serve for ListPartitionReassignmentsRequest {
    fn serve(self, core: &mut Core, _call: &Call) -> Step<Self> {
        let wanted = |topic: &Topic, partition: i32| match &self.topics {
            None => true,
            Some(asked) => {
                asked.iter().any(|of| of.name.as_str() == topic.as_str() && of.partition_indexes.contains(&partition))
            }
        };
        let nodes = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect();
        let mut topics: BTreeMap<&Topic, Vec<OngoingPartitionReassignment>> = BTreeMap::new();
        for (name, topic) in core.topics.iter() {
            for (index, partition) in (0..).zip(&topic.partitions).filter(|(index, _)| wanted(name, *index)) {
                let Some((adding, removing)) = partition.moving() else { continue };
                let ongoing = OngoingPartitionReassignment::default()
                    .with_partition_index(index)
                    .with_replicas(nodes(partition.replicas.clone()))
                    .with_adding_replicas(nodes(adding))
                    .with_removing_replicas(nodes(removing));
                topics.entry(name).or_default().push(ongoing);
            }
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            OngoingTopicReassignment::default().with_name(TopicName(text(name.as_str()))).with_partitions(partitions)
        });
        let topics = topics.collect();
        Step::Answer(ListPartitionReassignmentsResponse::default().with_error_message(None).with_topics(topics))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ListPartitionReassignmentsResponse {
        ListPartitionReassignmentsResponse::default()
            .with_error_code(code.0)
            .with_error_message(Some(text(code.meaning())))
    }

    fn throttle(answer: &mut ListPartitionReassignmentsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}
