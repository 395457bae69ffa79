//! ListOffsets: where a partition begins, ends, and is at a time.

use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, Offset, Timestamp, Topic};
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;
use crate::testing::broker::partition::Partition;

impl Serve for ListOffsetsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        for (topic, partition) in self.names(core, call) {
            core.retain(Some(topic), partition, call.now);
        }
        let committed = self.isolation_level == READ_COMMITTED;
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let code = call.failure_of(&topic.name, asked.partition_index);
                match code.map_or_else(|| look_up(core, call, &topic.name, asked, committed), Err) {
                    Ok((offset, time, _)) if call.version < FIRST_WITH_EPOCHS => answer(asked, (offset, time, -1)),
                    Ok(found) => answer(asked, found),
                    Err(code) => failed(asked, code),
                }
            });
            let partitions = partitions.collect();
            ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions)
        });
        Step::Answer(ListOffsetsResponse::default().with_topics(topics.collect()))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ListOffsetsResponse {
        let topics = self.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| failed(asked, code)).collect();
            ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions)
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
    }

    fn throttle(answer: &mut ListOffsetsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.topics.iter().map(|topic| (Topic::from(topic.name.as_str()), &topic.partitions));
        topics.flat_map(|(name, of)| of.iter().map(move |asked| (name.clone(), asked.partition_index))).collect()
    }
}

/// Offset, time and epoch; -1 where there is none.
type Place = (i64, i64, i32);

fn look_up(
    core: &Core,
    call: &Call,
    topic: &str,
    asked: &ListOffsetsPartition,
    committed: bool,
) -> Result<Place, ErrorCode> {
    let partition = core.topics.partition(topic, asked.partition_index)?;
    partition.check(call.node, asked.current_leader_epoch, true)?;
    let log = partition.leader_log().ok_or(ErrorCode::NOT_LEADER_OR_FOLLOWER)?;
    let high_watermark = Offset(partition.high_watermark());
    let visible = if committed { log.last_stable(high_watermark) } else { high_watermark };
    let place = |found: Option<(Offset, Timestamp, Option<LeaderEpoch>)>| match found {
        Some((offset, time, epoch)) if offset < visible => (offset.0, time.0, epoch.map_or(-1, |epoch| epoch.0)),
        _ => NOWHERE,
    };
    Ok(match asked.timestamp {
        LATEST => (visible.0, -1, partition.leader_epoch),
        EARLIEST | EARLIEST_LOCAL => (log.start().0, -1, epoch_at_start(partition)),
        MAX_TIMESTAMP => place(log.latest()),
        // There is no second tier.
        LATEST_TIERED => NOWHERE,
        time if time >= 0 => place(log.first_at(Timestamp(time))),
        _ => return Err(ErrorCode::UNSUPPORTED_VERSION),
    })
}

fn epoch_at_start(partition: &Partition) -> i32 {
    let log = partition.leader_log();
    let first = log.and_then(|log| log.batches_from(Offset(0)).next());
    let written = first.and_then(|stored| stored.batch.header().leader_epoch);
    written.map_or(partition.leader_epoch, |epoch| epoch.0)
}

fn answer(asked: &ListOffsetsPartition, (offset, time, epoch): Place) -> ListOffsetsPartitionResponse {
    ListOffsetsPartitionResponse::default()
        .with_partition_index(asked.partition_index)
        .with_offset(offset)
        .with_timestamp(time)
        .with_leader_epoch(epoch)
}

fn failed(asked: &ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse {
    answer(asked, NOWHERE).with_error_code(code.0)
}

const NOWHERE: Place = (-1, -1, -1);
const READ_COMMITTED: i8 = 1;
/// KIP-320.
const FIRST_WITH_EPOCHS: i16 = 4;
/// The next offset to be written that a reader may see.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
/// KIP-734.
const MAX_TIMESTAMP: i64 = -3;
/// KIP-405.
const EARLIEST_LOCAL: i64 = -4;
/// KIP-1005.
const LATEST_TIERED: i64 = -5;
