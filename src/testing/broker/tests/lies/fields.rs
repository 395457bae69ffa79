//! Lies in what an answer says.

use kafka_protocol::messages::fetch_response::{AbortedTransaction, EpochEndOffset};
use kafka_protocol::messages::produce_response::BatchIndexAndErrorMessage;
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, FetchRequest, FindCoordinatorRequest, InitProducerIdRequest, JoinGroupRequest,
    LeaveGroupRequest, ListOffsetsRequest, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, ProduceRequest,
    SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::work::Groups;
use super::{Lie, tell};
use crate::protocol::subscription;
use crate::record::TopicPartition;

pub(super) fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

/// No code that anybody knows.
pub(super) const NO_CODE: i16 = 999;

#[tokio::test(start_paused = true)]
async fn versions_that_cannot_be_are_typed_errors() {
    type Of = ApiVersionsRequest;
    tell(
        Groups::Members,
        vec![
            Lie::field::<Of>("the lowest version is above the highest", |answer| {
                answer.api_keys.iter_mut().for_each(|api| (api.min_version, api.max_version) = (7, 3));
            }),
            Lie::field::<Of>("versions that nobody has", |answer| {
                answer.api_keys.iter_mut().for_each(|api| (api.min_version, api.max_version) = (900, i16::MAX));
            }),
            Lie::field::<Of>("negative versions", |answer| {
                answer.api_keys.iter_mut().for_each(|api| (api.min_version, api.max_version) = (-9, -1));
            }),
            Lie::field::<Of>("no API at all", |answer| answer.api_keys.clear()),
            Lie::field::<Of>("each API twice", |answer| {
                let again = answer.api_keys.clone();
                answer.api_keys.extend(again);
            }),
            Lie::field::<Of>("a code that nobody knows", |answer| answer.error_code = NO_CODE),
            Lie::field::<Of>("a silence of 24 days", |answer| answer.throttle_time_ms = i32::MAX),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_cannot_be_is_looked_at_again() {
    type Of = MetadataRequest;
    let leader = |name: &str, node: i32, epoch: i32| {
        Lie::field::<Of>(name, move |answer| {
            for partition in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                (partition.leader_id, partition.leader_epoch) = (BrokerId(node), epoch);
            }
        })
    };
    let place = |name: &str, host: StrBytes, port: i32| {
        Lie::field::<Of>(name, move |answer| {
            answer.brokers.iter_mut().for_each(|broker| (broker.host, broker.port) = (host.clone(), port));
        })
    };
    tell(
        Groups::Members,
        vec![
            Lie::field::<Of>("no brokers", |answer| answer.brokers.clear()),
            Lie::field::<Of>("one node in two places", |answer| {
                let mut other = answer.brokers[0].clone();
                other.host = text("nowhere");
                answer.brokers.push(other);
            }),
            Lie::field::<Of>("a negative node", |answer| answer.brokers[0].node_id = BrokerId(-1)),
            place("port 0", text("dev-broker-1"), 0),
            place("port 65536", text("dev-broker-1"), 65_536),
            place("a negative port", text("dev-broker-1"), -1),
            place("no host", text(""), 9092),
            place("a host of 32 KB", "h".repeat(32_000).into(), 9092),
            place("a host that is none", text("a b\r\n\u{1b}[2J"), 9092),
            leader("a leader that does not exist", 77, 0),
            leader("a negative leader", -7, 0),
            // An older epoch than one that was told is taken for that of a broker that lags behind.
            leader("a leader epoch of 2^31-1, then the true one", 1, i32::MAX).fatal(),
            leader("a negative leader epoch", 1, -9),
            Lie::field::<Of>("a topic that was not asked for", |answer| {
                let mut other = answer.topics[0].clone();
                other.name = Some(TopicName(text("other")));
                answer.topics.push(other);
            }),
            Lie::field::<Of>("the topic twice, with other partitions", |answer| {
                let mut again = answer.topics[0].clone();
                again.partitions.clear();
                answer.topics.push(again);
            }),
            Lie::field::<Of>("no topics", |answer| answer.topics.clear()),
            Lie::field::<Of>("a partition twice", |answer| {
                let again = answer.topics[0].partitions[0].clone();
                answer.topics[0].partitions.push(again);
            }),
            Lie::field::<Of>("a partition of number 2^31-1", |answer| {
                answer.topics[0].partitions[0].partition_index = i32::MAX;
            }),
            Lie::field::<Of>("a negative partition", |answer| answer.topics[0].partitions[0].partition_index = -1),
            Lie::field::<Of>("codes that nobody knows", |answer| {
                answer.topics[0].error_code = NO_CODE;
                answer.topics[0].partitions.iter_mut().for_each(|partition| partition.error_code = NO_CODE);
            }),
            Lie::field::<Of>("a silence of 24 days", |answer| answer.throttle_time_ms = i32::MAX),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_that_cannot_be_lose_and_repeat_nothing() {
    type Of = ProduceRequest;
    let partition = |name: &str, code: i16, offset: i64, errors: Vec<i32>| {
        Lie::field::<Of>(name, move |answer| {
            for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partition_responses) {
                (partition.error_code, partition.base_offset) = (code, offset);
                let error = |index: &i32| BatchIndexAndErrorMessage::default().with_batch_index(*index);
                partition.record_errors = errors.iter().map(error).collect();
            }
        })
    };
    tell(
        Groups::Members,
        vec![
            partition("a negative offset", 0, -9, vec![]),
            partition("the last offset of all", 0, i64::MAX, vec![]),
            partition("not here", 6, -1, vec![]),
            partition("a number out of order", 45, -1, vec![]).repeats(),
            partition("an unknown producer", 59, -1, vec![]).repeats(),
            partition("it has it already", 46, -1, vec![]),
            partition("too large", 10, -1, vec![]).repeats(),
            partition("records to blame that are not there", 87, -1, vec![-1, 7, i32::MAX]).repeats(),
            partition("no record to blame", 87, -1, vec![]).repeats(),
            // It does not say that nothing was written, so the record is not written again: its writer is told of the doubt.
            partition("a code that nobody knows", NO_CODE, -1, vec![]).fatal(),
            Lie::field::<Of>("nothing of what was written", |answer| answer.responses.clear()),
            Lie::field::<Of>("a topic that was not written", |answer| {
                let topic = &mut answer.responses[0];
                if topic.topic_id.is_nil() {
                    topic.name = TopicName(text("other"));
                } else {
                    topic.topic_id = Uuid::from_u128(9);
                }
            }),
            Lie::field::<Of>("another partition", |answer| answer.responses[0].partition_responses[0].index = 7),
            Lie::field::<Of>("the partition twice, refused and taken", |answer| {
                let mut again = answer.responses[0].partition_responses[0].clone();
                (again.error_code, again.base_offset) = (6, -1);
                answer.responses[0].partition_responses.push(again);
            }),
            Lie::field::<Of>("a silence of 24 days", |answer| answer.throttle_time_ms = i32::MAX),
            Lie::field::<Of>("a negative silence", |answer| answer.throttle_time_ms = -5),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn producer_ids_that_cannot_be_write_nothing_wrong() {
    type Of = InitProducerIdRequest;
    tell(
        Groups::Members,
        vec![
            Lie::field::<Of>("a negative id", |answer| answer.producer_id = (-1).into()),
            Lie::field::<Of>("a negative epoch", |answer| answer.producer_epoch = -1),
            Lie::field::<Of>("the last epoch", |answer| answer.producer_epoch = i16::MAX),
            Lie::field::<Of>("a code that nobody knows", |answer| answer.error_code = NO_CODE),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn records_that_cannot_be_are_read_again_and_not_skipped() {
    type Of = FetchRequest;
    let partition = |name: &str, change: fn(&mut kafka_protocol::messages::fetch_response::PartitionData)| {
        Lie::field::<Of>(name, move |answer| {
            answer.responses.iter_mut().flat_map(|topic| &mut topic.partitions).for_each(change);
        })
    };
    let records = |name: &str, change: fn(&mut Vec<u8>)| {
        Lie::field::<Of>(name, move |answer| {
            for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
                if let Some(records) = partition.records.as_mut().filter(|records| !records.is_empty()) {
                    let mut bytes = records.to_vec();
                    change(&mut bytes);
                    *records = bytes.into();
                }
            }
        })
    };
    tell(
        Groups::Members,
        vec![
            partition("another partition", |partition| partition.partition_index = 7),
            partition("a code that nobody knows", |partition| partition.error_code = NO_CODE),
            partition("another leads", |partition| partition.error_code = 6),
            partition("an epoch that is over", |partition| partition.error_code = 74),
            partition("no such topic id", |partition| partition.error_code = 100),
            partition("out of range, and it is not", |partition| partition.error_code = 1),
            partition("ends before its beginning", |partition| {
                (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset) =
                    (-9, -9, 1 << 40);
            }),
            partition("diverged at no epoch", |partition| {
                partition.diverging_epoch = EpochEndOffset::default().with_epoch(-1).with_end_offset(-1);
            }),
            partition("diverged behind its end", |partition| {
                partition.diverging_epoch = EpochEndOffset::default().with_epoch(i32::MAX).with_end_offset(i64::MAX);
            }),
            partition("aborted what nobody wrote", |partition| {
                let aborted =
                    |id: i64, first| AbortedTransaction::default().with_producer_id(id.into()).with_first_offset(first);
                partition.aborted_transactions = Some(vec![aborted(-7, -7), aborted(i64::MAX, i64::MAX)]);
            }),
            partition("no records", |partition| partition.records = None),
            records("a batch with a flipped bit", |bytes| {
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
            }),
            records("a batch that ends early", |bytes| bytes.truncate(bytes.len() - 1)),
            records("a batch of a negative length", |bytes| bytes[8..12].copy_from_slice(&[0xff; 4])),
            records("a batch of 2 GiB", |bytes| bytes[8..12].copy_from_slice(&i32::MAX.to_be_bytes())),
            records("a batch of an unknown format", |bytes| bytes[16] = 9),
            records("batches that begin before the beginning", |bytes| {
                bytes[..8].copy_from_slice(&(-100_i64).to_be_bytes());
            }),
            records("the same batch twice", |bytes| bytes.extend(bytes.clone())),
            records("no batch", |bytes| bytes.iter_mut().for_each(|byte| *byte = 0)),
            Lie::field::<Of>("a topic that was not asked for", |answer| {
                for topic in &mut answer.responses {
                    topic.topic_id = Uuid::from_u128(9);
                }
            }),
            Lie::field::<Of>("the partition twice", |answer| {
                for topic in &mut answer.responses {
                    let again = topic.partitions.clone();
                    topic.partitions.extend(again);
                }
            }),
            Lie::field::<Of>("a code that nobody knows for all of it", |answer| answer.error_code = NO_CODE),
            Lie::field::<Of>("a session that was not asked for", |answer| answer.session_id = 1 << 30),
            Lie::field::<Of>("a silence of 24 days", |answer| answer.throttle_time_ms = i32::MAX),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn positions_that_cannot_be_begin_nowhere_else() {
    type Listed = ListOffsetsRequest;
    type Committed = OffsetFetchRequest;
    type Commit = OffsetCommitRequest;
    let listed = |name: &str, code: i16, offset: i64| {
        Lie::field::<Listed>(name, move |answer| {
            for partition in answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                (partition.error_code, partition.offset) = (code, offset);
            }
        })
    };
    let committed = |name: &str, code: i16, offset: i64| {
        Lie::field::<Committed>(name, move |answer| {
            let topics = answer.groups.iter_mut().flat_map(|group| &mut group.topics);
            for partition in topics.flat_map(|topic| &mut topic.partitions) {
                (partition.error_code, partition.committed_offset) = (code, offset);
            }
        })
    };
    let commit = |name: &str, change: fn(&mut kafka_protocol::messages::OffsetCommitResponse)| {
        Lie::field::<Commit>(name, change)
    };
    tell(
        Groups::Members,
        vec![
            listed("a negative offset", 0, -9),
            listed("not known, without a code", 0, -1),
            listed("a code that nobody knows", NO_CODE, 0),
            Lie::field::<Listed>("nothing", |answer| answer.topics.clear()),
            Lie::field::<Listed>("another topic", |answer| answer.topics[0].name = TopicName(text("other"))),
            committed("a negative offset", 0, -9),
            committed("a code that nobody knows", NO_CODE, 3),
            committed("not stable yet", 88, -1),
            Lie::field::<Committed>("nothing", |answer| answer.groups.clear()),
            Lie::field::<Committed>("no topics", |answer| answer.groups[0].topics.clear()),
            Lie::field::<Committed>("another group", |answer| answer.groups[0].group_id = text("other").into()),
            Lie::field::<Committed>("a code that nobody knows for the group", |answer| {
                answer.groups[0].error_code = NO_CODE;
            }),
            commit("nothing", |answer| answer.topics.clear()),
            commit("another topic", |answer| answer.topics[0].name = TopicName(text("other"))),
            commit("a code that nobody knows", |answer| answer.topics[0].partitions[0].error_code = NO_CODE),
            commit("a member that is not known", |answer| answer.topics[0].partitions[0].error_code = 25),
            commit("twice, refused and taken", |answer| {
                let mut again = answer.topics[0].partitions[0].clone();
                again.error_code = 25;
                answer.topics[0].partitions.push(again);
            }),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn coordinators_that_cannot_be_are_looked_for_again() {
    type Of = FindCoordinatorRequest;
    let place = |name: &str, node: i32, host: &'static str, port: i32| {
        Lie::field::<Of>(name, move |answer| {
            for coordinator in &mut answer.coordinators {
                (coordinator.node_id, coordinator.host, coordinator.port) = (BrokerId(node), text(host), port);
            }
        })
    };
    tell(
        Groups::Members,
        vec![
            place("a node that is nowhere", 77, "nowhere", 9092),
            place("a negative node", -1, "", -1),
            place("port 0", 77, "dev-broker-1", 0),
            place("port 65536", 77, "dev-broker-1", 65_536),
            place("no host", 77, "", 9092),
            place("the right node in another place", 1, "nowhere", 9092),
            Lie::field::<Of>("none", |answer| answer.coordinators.clear()),
            Lie::field::<Of>("of another group", |answer| answer.coordinators[0].key = text("other")),
            // A search that is refused by a code that does not say that it passes ends the membership, as in Java.
            Lie::field::<Of>("a code that nobody knows", |answer| answer.coordinators[0].error_code = NO_CODE).fatal(),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_be_is_joined_again() {
    type Join = JoinGroupRequest;
    type Sync = SyncGroupRequest;
    type Leave = LeaveGroupRequest;
    let assigned = |name: &str, partitions: &[(&'static str, i32)]| {
        let partitions = partitions.iter().map(|(topic, partition)| TopicPartition::new(*topic, *partition)).collect();
        let assignment = subscription::Assignment { partitions, user_data: None };
        let bytes = assignment.encode(0).expect("it is small");
        Lie::field::<Sync>(name, move |answer| answer.assignment = bytes.clone())
    };
    tell(
        Groups::Members,
        vec![
            Lie::field::<Join>("a negative generation", |answer| answer.generation_id = -1),
            Lie::field::<Join>("a generation that is over", |answer| answer.generation_id = 0),
            Lie::field::<Join>("the last generation", |answer| answer.generation_id = i32::MAX),
            Lie::field::<Join>("another member's id", |answer| answer.member_id = text("other")),
            Lie::field::<Join>("no member's id", |answer| answer.member_id = text("")),
            Lie::field::<Join>("an assignor that was not offered", |answer| answer.protocol_name = Some(text("what"))),
            Lie::field::<Join>("no assignor", |answer| answer.protocol_name = None),
            // What nobody shares out is nobody's, until the group changes.
            Lie::field::<Join>("a leader that is not there", |answer| answer.leader = text("other")).fatal(),
            Lie::field::<Join>("each member twice", |answer| {
                let again = answer.members.clone();
                answer.members.extend(again);
            }),
            // Who asks for no topic gets none.
            Lie::field::<Join>("members that say nothing", |answer| {
                answer.members.iter_mut().for_each(|member| member.metadata = bytes::Bytes::new());
            })
            .fatal(),
            Lie::field::<Join>("an id is required", |answer| answer.error_code = 79),
            Lie::field::<Join>("it is rebalancing", |answer| answer.error_code = 27),
            Lie::field::<Join>("a code that nobody knows", |answer| answer.error_code = NO_CODE),
            Lie::field::<Sync>("it is rebalancing", |answer| answer.error_code = 27),
            Lie::field::<Sync>("it does not know the member", |answer| answer.error_code = 25),
            Lie::field::<Sync>("a code that nobody knows", |answer| answer.error_code = NO_CODE),
            // What a leader shared out is not said again before the group changes.
            Lie::field::<Sync>("no assignment", |answer| answer.assignment = bytes::Bytes::new()).fatal(),
            Lie::field::<Sync>("an assignment that is none", |answer| answer.assignment = vec![0x7f; 9].into()).fatal(),
            assigned("topics that were not asked for", &[("other", 0), ("", 0)]).fatal(),
            assigned("partitions that cannot be", &[("t", -1), ("t", i32::MAX)]).fatal(),
            assigned("a partition twice", &[("t", 0), ("t", 0)]),
            Lie::field::<Leave>("a code that nobody knows", |answer| answer.error_code = NO_CODE),
        ],
    )
    .await;
}
