//! DescribeLogDirs: how large the logs of a node are (KIP-113). Each node has one directory.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};

impl Serve for DescribeLogDirsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let wanted = |topic: &Topic, partition: i32| match &self.topics {
            None => true,
            Some(asked) => {
                asked.iter().any(|of| of.topic.as_str() == topic.as_str() && of.partitions.contains(&partition))
            }
        };
        let mut topics: BTreeMap<&Topic, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
        let mut used = 0;
        for (name, topic) in core.topics.iter() {
            for (index, partition) in (0..).zip(&topic.partitions) {
                let Some(log) = partition.log(call.node).filter(|_| wanted(name, index)) else { continue };
                used += log.bytes();
                let replica = DescribeLogDirsPartition::default()
                    .with_partition_index(index)
                    .with_partition_size(i64::try_from(log.bytes()).unwrap_or(i64::MAX))
                    .with_offset_lag((partition.high_watermark() - log.end().0).max(0));
                topics.entry(name).or_default().push(replica);
            }
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            DescribeLogDirsTopic::default().with_name(TopicName(text(name.as_str()))).with_partitions(partitions)
        });
        let mut directory = DescribeLogDirsResult::default()
            .with_log_dir(text(format!("/dev-broker/node-{}", call.node)))
            .with_topics(topics.collect());
        if call.version >= FIRST_WITH_VOLUMES {
            let whole = core.settings.max_log_bytes;
            let bytes = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
            directory = directory.with_total_bytes(bytes(whole)).with_usable_bytes(bytes(whole.saturating_sub(used)));
        }
        Step::Answer(DescribeLogDirsResponse::default().with_results(vec![directory]))
    }

    fn refuse(self, _core: &mut Core, call: &Call, code: ErrorCode) -> DescribeLogDirsResponse {
        // Before version 3 there is no place for a code but a directory's.
        if call.version >= FIRST_WITH_CODE {
            return DescribeLogDirsResponse::default().with_error_code(code.0);
        }
        let directory = DescribeLogDirsResult::default().with_error_code(code.0);
        DescribeLogDirsResponse::default().with_results(vec![directory])
    }

    fn throttle(answer: &mut DescribeLogDirsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

const FIRST_WITH_CODE: i16 = 3;
/// KIP-827.
const FIRST_WITH_VOLUMES: i16 = 4;
