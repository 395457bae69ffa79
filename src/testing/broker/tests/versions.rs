//! What older clients ask in: every version is answered with what it can say.

use super::*;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::{
    CreateTopicsRequest, DescribeGroupsRequest, GroupId, ListGroupsRequest, ListOffsetsRequest, OffsetCommitRequest,
    OffsetFetchRequest, OffsetForLeaderEpochRequest,
};

fn rig() -> Rig {
    let mut rig = Rig::new(1).topic("t", 1);
    rig.produce(1, "t", 0, batch_of(&["a"]));
    rig
}

/// kafkajs asks in version 3, which has no leader epoch in the answer: the connection was closed.
#[test]
fn offsets_are_listed_in_every_version() {
    let mut rig = rig();
    for version in 1..=10 {
        for time in [-1, -2, WALL.0] {
            let asked = ListOffsetsPartition::default().with_timestamp(time).with_current_leader_epoch(-1);
            let topic = ListOffsetsTopic::default().with_name(name("t")).with_partitions(vec![asked]);
            let answer = rig.ask_node(1, version, &ListOffsetsRequest::default().with_topics(vec![topic]));
            let place = &answer.topics[0].partitions[0];
            assert_eq!((place.error_code, place.offset), (0, i64::from(time == -1)), "version {version}");
        }
    }
}

#[test]
fn records_are_fetched_in_every_version_that_goes_by_name() {
    let mut rig = rig();
    for version in 4..=12 {
        let answer = rig.ask_node(1, version, &fetch("t", &[(0, 0)]));
        assert_eq!(values(&only(answer)), ["a"], "version {version}");
        let beyond = only(rig.ask_node(1, version, &fetch("t", &[(0, 9)])));
        assert_eq!(code(beyond.error_code), ErrorCode::OFFSET_OUT_OF_RANGE);
    }
}

#[test]
fn epochs_topics_and_groups_are_told_in_every_version() {
    let mut rig = rig();
    for version in 2..=4 {
        let asked = OffsetForLeaderPartition::default().with_current_leader_epoch(-1);
        let topic = OffsetForLeaderTopic::default().with_topic(name("t")).with_partitions(vec![asked]);
        let answer = rig.ask_node(1, version, &OffsetForLeaderEpochRequest::default().with_topics(vec![topic]));
        assert_eq!(answer.topics[0].partitions[0].end_offset, 1, "version {version}");
    }
    for version in 2..=7 {
        let named = name(&format!("made{version}"));
        let topic = CreatableTopic::default().with_name(named).with_num_partitions(1).with_replication_factor(1);
        let answer = rig.ask_node(1, version, &CreateTopicsRequest::default().with_topics(vec![topic]));
        assert_eq!(answer.topics[0].error_code, 0, "version {version}");
    }
    let group = GroupId(StrBytes::from_static_str("g"));
    for version in 2..=9 {
        let partition = OffsetCommitRequestPartition::default().with_committed_offset(i64::from(version));
        let topic = OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
        let commit = OffsetCommitRequest::default()
            .with_group_id(group.clone())
            .with_group_instance_id(None)
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic]);
        assert_eq!(rig.ask_node(1, version, &commit).topics[0].partitions[0].error_code, 0, "version {version}");
    }
    for version in 1..=7 {
        let topic = OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(vec![0]);
        let request = OffsetFetchRequest::default().with_group_id(group.clone()).with_topics(Some(vec![topic]));
        assert_eq!(rig.ask_node(1, version, &request).topics[0].partitions[0].committed_offset, 9);
    }
    for version in 8..=9 {
        let topic = OffsetFetchRequestTopics::default().with_name(name("t")).with_partition_indexes(vec![0]);
        let asked = OffsetFetchRequestGroup::default().with_group_id(group.clone()).with_topics(Some(vec![topic]));
        let answer = rig.ask_node(1, version, &OffsetFetchRequest::default().with_groups(vec![asked]));
        assert_eq!(answer.groups[0].topics[0].partitions[0].committed_offset, 9);
    }
    for version in 0..=6 {
        let answer = rig.ask_node(1, version, &DescribeGroupsRequest::default().with_groups(vec![group.clone()]));
        assert_eq!(answer.groups[0].group_state.as_str(), "Empty", "version {version}");
    }
    for version in 0..=5 {
        assert_eq!(rig.ask_node(1, version, &ListGroupsRequest::default()).groups.len(), 1, "version {version}");
    }
}

/// A client that speaks a version in earnest has to find it here: what it asks for is otherwise never tried.
#[cfg(feature = "sasl")]
#[test]
fn every_version_that_the_client_can_speak_is_served() {
    use crate::protocol::api::KNOWN_APIS;
    use crate::testing::broker::api::APIS;
    for known in KNOWN_APIS {
        let served = APIS.iter().find(|api| api.key == known.key).map(|api| api.versions);
        // Behind version 0 of SaslHandshake bytes come without a header (before KIP-152): no client of ours logs in that way.
        let least = if known.name == "SaslHandshake" { 1 } else { known.versions.min };
        let all = served.is_some_and(|served| served.contains(least) && served.contains(known.versions.max));
        assert!(all, "{}: the client speaks {}, served is {served:?}", known.key, known.versions);
    }
}
