use super::*;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, FindCoordinatorRequest,
    InitProducerIdRequest, MetadataRequest,
};

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn metadata_of(topics: &[&str]) -> MetadataRequest {
    let asked = |topic: &&str| MetadataRequestTopic::default().with_name(Some(name(topic)));
    MetadataRequest::default()
        .with_topics(Some(topics.iter().map(asked).collect()))
        .with_allow_auto_topic_creation(true)
}

#[test]
fn metadata_names_nodes_and_leaders_in_every_version() {
    let mut rig = Rig::new(3).topic("t", 3);
    for version in 0..=13 {
        let answer = rig.ask_node(1, version, &metadata_of(&["t"]));
        assert_eq!(answer.brokers.len(), 3, "version {version}");
        let leaders: Vec<_> = answer.topics[0].partitions.iter().map(|it| it.leader_id.0).collect();
        assert_eq!(leaders, [1, 2, 3]);
    }
    let all = rig.ask_node(1, 0, &MetadataRequest::default().with_topics(Some(Vec::new())));
    assert_eq!(all.topics.len(), 1, "in version 0 none means all");
    let none = rig.ask_node(1, 1, &MetadataRequest::default().with_topics(Some(Vec::new())));
    assert_eq!(none.topics.len(), 0);
    let all = rig.ask_node(1, 12, &MetadataRequest::default().with_topics(None));
    let by_id = MetadataRequestTopic::default().with_name(None).with_topic_id(all.topics[0].topic_id);
    let unknown = MetadataRequestTopic::default().with_name(None).with_topic_id(uuid::Uuid::from_u128(9));
    let answer = rig.ask_node(1, 12, &MetadataRequest::default().with_topics(Some(vec![by_id, unknown])));
    assert_eq!(answer.topics[0].name, Some(name("t")));
    assert_eq!(code(answer.topics[1].error_code), ErrorCode::UNKNOWN_TOPIC_ID);
}

#[test]
fn asking_for_a_topic_creates_it_only_where_that_is_on() {
    let mut rig = Rig::new(1);
    for _ in 0..2 {
        let answer = rig.ask_node(1, 9, &metadata_of(&["new", "not/valid"]));
        let codes: Vec<_> = answer.topics.iter().map(|topic| code(topic.error_code)).collect();
        assert_eq!(codes, [ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ErrorCode::INVALID_TOPIC_EXCEPTION]);
    }
    let mut rig = Rig::with(1, |settings| settings.auto_create_topics = true);
    rig.ask_node(1, 9, &metadata_of(&["unwanted"]).with_allow_auto_topic_creation(false));
    rig.ask_node(1, 9, &metadata_of(&["new"]));
    let all = rig.ask_node(1, 9, &MetadataRequest::default().with_topics(None));
    assert_eq!(all.topics.iter().map(|topic| topic.name.clone()).collect::<Vec<_>>(), [Some(name("new"))]);
}

#[test]
fn topics_are_created_grown_described_and_deleted() {
    let mut rig = Rig::new(3);
    let config = CreatableTopicConfig::default().with_name(text("retention.ms")).with_value(Some(text("1000")));
    let topic = CreatableTopic::default()
        .with_name(name("t"))
        .with_num_partitions(2)
        .with_replication_factor(3)
        .with_configs(vec![config]);
    let create = CreateTopicsRequest::default().with_topics(vec![topic]);
    let tried = rig.ask_node(2, 7, &create.clone().with_validate_only(true));
    assert_eq!((tried.topics[0].error_code, tried.topics[0].topic_id.is_nil()), (0, false));
    let created = rig.ask_node(2, 7, &create);
    assert_eq!((created.topics[0].num_partitions, created.topics[0].replication_factor), (2, 3));
    let again = rig.ask_node(2, 7, &create);
    assert_eq!(code(again.topics[0].error_code), ErrorCode::TOPIC_ALREADY_EXISTS);

    let grow = |count| CreatePartitionsTopic::default().with_name(name("t")).with_count(count).with_assignments(None);
    let grow = |count| CreatePartitionsRequest::default().with_topics(vec![grow(count)]);
    assert_eq!(rig.ask_node(1, 3, &grow(4)).results[0].error_code, 0);
    assert_eq!(code(rig.ask_node(1, 3, &grow(4)).results[0].error_code), ErrorCode::INVALID_PARTITIONS);
    assert_eq!(rig.ask_node(1, 9, &metadata_of(&["t"])).topics[0].partitions.len(), 4);

    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configuration_keys(None);
    let describe = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let described = rig.ask_node(1, 4, &describe);
    let retention = described.results[0].configs.iter().find(|it| it.name.as_str() == "retention.ms").expect("there");
    assert_eq!((retention.value.as_deref(), retention.config_source), (Some("1000"), 1));

    let delete = DeleteTopicState::default().with_name(None).with_topic_id(created.topics[0].topic_id);
    let delete = DeleteTopicsRequest::default().with_topics(vec![delete]);
    assert_eq!(rig.ask_node(1, 6, &delete).responses[0].name, Some(name("t")));
    assert_eq!(code(rig.ask_node(1, 6, &delete).responses[0].error_code), ErrorCode::UNKNOWN_TOPIC_ID);
}

#[test]
fn what_cannot_be_a_topic_is_refused_by_its_code() {
    let mut rig = Rig::new(1).topic("a.b", 1);
    let topic = |name_of: &str| {
        CreatableTopic::default().with_name(name(name_of)).with_num_partitions(1).with_replication_factor(1)
    };
    let bad = CreatableTopicConfig::default().with_name(text("no.such.setting")).with_value(Some(text("1")));
    for (topics, expected) in [
        (vec![topic("a/b")], ErrorCode::INVALID_TOPIC_EXCEPTION),
        (vec![topic("a_b")], ErrorCode::INVALID_TOPIC_EXCEPTION),
        (vec![topic("c").with_num_partitions(0)], ErrorCode::INVALID_PARTITIONS),
        (vec![topic("c").with_num_partitions(i32::MAX)], ErrorCode::INVALID_PARTITIONS),
        (vec![topic("c").with_replication_factor(2)], ErrorCode::INVALID_REPLICATION_FACTOR),
        (vec![topic("c").with_configs(vec![bad])], ErrorCode::INVALID_CONFIG),
        (vec![topic("c"), topic("c")], ErrorCode::INVALID_REQUEST),
    ] {
        let answer = rig.ask_node(1, 7, &CreateTopicsRequest::default().with_topics(topics));
        assert_eq!(answer.topics.iter().map(|it| code(it.error_code)).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn a_hidden_topic_is_unknown_until_it_is_shown() {
    let mut rig = Rig::new(1).topic("t", 1);
    rig.produce(1, "t", 0, batch_of(&["a"]));
    rig.cluster.hide_topic("t", true, rig.now);
    assert_eq!(code(rig.fetch(1, "t", 0, 0).error_code), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    rig.cluster.hide_topic("t", false, rig.now);
    assert_eq!(values(&rig.fetch(1, "t", 0, 0)), ["a"]);
}

#[test]
fn a_coordinator_is_the_same_whoever_is_asked_and_moves_when_its_node_ends() {
    let mut rig = Rig::new(3);
    let old = FindCoordinatorRequest::default().with_key(text("billing"));
    let new = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("billing")]);
    let coordinator = rig.ask_node(1, 3, &old).node_id;
    assert_eq!(rig.ask_node(2, 6, &new).coordinators[0].node_id, coordinator);
    let other = if coordinator.0 == 1 { 2 } else { 1 };
    rig.cluster.crash(coordinator.0, rig.now);
    assert_ne!(rig.ask_node(other, 6, &new).coordinators[0].node_id, coordinator);
}

#[test]
fn every_idempotent_producer_gets_its_own_id() {
    let mut rig = Rig::new(1);
    let request = InitProducerIdRequest::default().with_transactional_id(None);
    let ids: Vec<_> = (0..=5).map(|version| rig.ask_node(1, version, &request).producer_id.0).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
}
