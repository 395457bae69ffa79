//! Versions, topics, settings.

use kafka_protocol::messages::create_partitions_request::{CreatePartitionsAssignment, CreatePartitionsTopic};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest,
    DescribeConfigsRequest, MetadataRequest, MetadataResponse,
};
use uuid::Uuid;

use super::{NEWEST, Run, text, topic};

pub(super) async fn run(run: &mut Run) {
    versions(run).await;
    create(run).await;
    describe(run).await;
    settings(run).await;
    grow(run).await;
    delete(run).await;
}

async fn versions(run: &mut Run) {
    let software = |name: &str| {
        ApiVersionsRequest::default().with_client_software_name(text(name)).with_client_software_version(text("1.0"))
    };
    run.ask("versions", software("differential")).await;
    run.ask_in(0, "versions: the oldest", ApiVersionsRequest::default()).await;
    run.ask("versions: a name that software cannot have", software("-")).await;
    run.ask("versions: without a name", ApiVersionsRequest::default()).await;
    run.ask_from_the_future("versions: from the future").await;
}

fn new(name: &str, partitions: i32) -> CreatableTopic {
    CreatableTopic::default().with_name(topic(name)).with_num_partitions(partitions).with_replication_factor(1)
}

fn set(topic: CreatableTopic, settings: &[(&str, Option<&str>)]) -> CreatableTopic {
    let setting = |(name, value): &(&str, Option<&str>)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(value.map(text))
    };
    topic.with_configs(settings.iter().map(setting).collect())
}

fn assigned(name: &str, replicas: &[(i32, &[i32])]) -> CreatableTopic {
    let assignment = |(partition, nodes): &(i32, &[i32])| {
        CreatableReplicaAssignment::default()
            .with_partition_index(*partition)
            .with_broker_ids(nodes.iter().copied().map(BrokerId).collect())
    };
    new(name, -1).with_replication_factor(-1).with_assignments(replicas.iter().map(assignment).collect())
}

fn creation(topics: impl IntoIterator<Item = CreatableTopic>) -> CreateTopicsRequest {
    CreateTopicsRequest::default().with_timeout_ms(20_000).with_topics(topics.into_iter().collect())
}

async fn create(run: &mut Run) {
    let first = [
        new("plain", 3),
        new("single", 1),
        set(new("stamped", 1), &[("message.timestamp.type", Some("LogAppendTime"))]),
        set(new("compacted", 1), &[("cleanup.policy", Some("compact"))]),
        set(new("small", 1), &[("max.message.bytes", Some("200"))]),
        set(
            new("timely", 1),
            &[("message.timestamp.after.max.ms", Some("60000")), ("message.timestamp.before.max.ms", Some("60000"))],
        ),
        new("shared", 2),
        new("of-defaults", -1).with_replication_factor(-1),
        assigned("assigned", &[(0, &[1]), (1, &[1])]),
    ];
    run.ask("create", creation(first)).await;
    run.ask_in(4, "create: an old answer", creation([new("older", 2)])).await;
    run.ask("create: again", creation([new("plain", 3)])).await;
    let names = ["", ".", "..", "a b", &"x".repeat(250)];
    run.ask("create: names that cannot be", creation(names.map(|name| new(name, 1)))).await;
    run.ask("create: a name that nearly collides", creation([new("of.defaults", 1)])).await;
    run.ask("create: another that collides", creation([new("a.b", 1)])).await;
    run.ask("create: the other that collides", creation([new("a_b", 1)])).await;
    run.ask("create: no partitions", creation([new("none", 0), new("negative", -2)])).await;
    let too_many = new("replicated", 1).with_replication_factor(2);
    let none = new("unreplicated", 1).with_replication_factor(0);
    run.ask("create: replicas that cannot be", creation([too_many, none])).await;
    let wrong = [
        set(new("wrong-name", 1), &[("retention", Some("1"))]),
        set(new("wrong-value", 1), &[("retention.ms", Some("a week"))]),
        set(new("wrong-least", 1), &[("retention.ms", Some("-2"))]),
        set(new("wrong-policy", 1), &[("cleanup.policy", Some("keep"))]),
        set(new("wrong-null", 1), &[("retention.ms", None)]),
    ];
    run.ask("create: settings that cannot be", creation(wrong)).await;
    run.ask("create: one twice", creation([new("twice", 1), new("twice", 2)])).await;
    run.ask("create: only tried", creation([new("tried", 2)]).with_validate_only(true)).await;
    run.ask("create: only tried, and there", creation([new("plain", 2)]).with_validate_only(true)).await;
    let wrong = [
        assigned("on-no-node", &[(0, &[9])]),
        assigned("on-none", &[(0, &[])]),
        assigned("on-one-twice", &[(0, &[1, 1])]),
        assigned("with-gaps", &[(1, &[1])]),
        assigned("counted", &[(0, &[1])]).with_num_partitions(1),
    ];
    run.ask("create: assignments that cannot be", creation(wrong)).await;
    run.ask("create: nothing", creation([])).await;
}

fn by_name(names: &[&str]) -> MetadataRequest {
    let asked = |name: &&str| MetadataRequestTopic::default().with_name(Some(topic(name)));
    metadata(Some(names.iter().map(asked).collect()))
}

fn by_id(ids: &[Uuid]) -> MetadataRequest {
    let asked = |id: &Uuid| MetadataRequestTopic::default().with_name(None).with_topic_id(*id);
    metadata(Some(ids.iter().map(asked).collect()))
}

fn metadata(topics: Option<Vec<MetadataRequestTopic>>) -> MetadataRequest {
    MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false)
}

async fn describe(run: &mut Run) {
    let all = [
        "plain",
        "single",
        "stamped",
        "compacted",
        "small",
        "timely",
        "shared",
        "of-defaults",
        "assigned",
        "older",
        "a.b",
        "of.defaults",
    ];
    let known = |answer: &MetadataResponse| answer.topics.iter().all(|topic| topic.error_code == 0);
    let told = run.until(NEWEST, "metadata: by name", by_name(&all), known).await;
    for of in &told.topics {
        let name = of.name.as_ref().map(|name| name.to_string()).unwrap_or_default();
        run.ids.insert(name, of.topic_id);
    }
    run.ask("metadata: all", metadata(None)).await;
    run.ask("metadata: none", metadata(Some(Vec::new()))).await;
    run.ask("metadata: by id", by_id(&[run.ids["plain"]])).await;
    run.ask("metadata: an id that is unknown", by_id(&[Uuid::from_u128(7)])).await;
    run.ask("metadata: names that are not there", by_name(&["missing", "a b", ""])).await;
    run.ask("metadata: one twice", by_name(&["single", "single"])).await;
    let operations = by_name(&["single"]).with_include_topic_authorized_operations(true);
    run.ask("metadata: what is allowed", operations.clone()).await;
    let operations = operations.with_include_cluster_authorized_operations(true);
    run.ask_in(10, "metadata: what is allowed on the cluster", operations).await;
    for (version, step) in [(0, "metadata: version 0"), (1, "metadata: version 1"), (7, "metadata: version 7")] {
        run.ask_in(version, step, by_name(&["single", "missing"]).with_allow_auto_topic_creation(true)).await;
    }
}

fn resource(kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResource {
    DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(keys.map(|keys| keys.iter().copied().map(text).collect()))
}

async fn settings(run: &mut Run) {
    let ask = |resources: Vec<DescribeConfigsResource>| DescribeConfigsRequest::default().with_resources(resources);
    run.ask("settings: of a topic", ask(vec![resource(TOPIC, "stamped", None)])).await;
    let keys: &[&str] = &["cleanup.policy", "retention.ms", "min.insync.replicas", "no.such.setting"];
    run.ask("settings: some", ask(vec![resource(TOPIC, "compacted", Some(keys))])).await;
    let synonyms = ask(vec![resource(TOPIC, "compacted", Some(&["cleanup.policy", "max.message.bytes"]))]);
    run.ask("settings: with synonyms", synonyms.with_include_synonyms(true)).await;
    run.ask("settings: of a topic that is not there", ask(vec![resource(TOPIC, "missing", None)])).await;
    run.ask("settings: of a name that cannot be", ask(vec![resource(TOPIC, "a b", None)])).await;
    let keys: &[&str] =
        &["num.partitions", "auto.create.topics.enable", "offset.metadata.max.bytes", "message.max.bytes"];
    run.ask("settings: of a node", ask(vec![resource(BROKER, "1", Some(keys))])).await;
    run.ask("settings: of another node", ask(vec![resource(BROKER, "9", Some(keys))])).await;
    run.ask("settings: of nothing that has any", ask(vec![resource(77, "x", None)])).await;
}

fn growth(name: &str, count: i32) -> CreatePartitionsTopic {
    CreatePartitionsTopic::default().with_name(topic(name)).with_count(count).with_assignments(None)
}

async fn grow(run: &mut Run) {
    let ask = |topics: Vec<CreatePartitionsTopic>| {
        CreatePartitionsRequest::default().with_timeout_ms(20_000).with_topics(topics)
    };
    run.ask("grow", ask(vec![growth("older", 4)])).await;
    let grown = |answer: &MetadataResponse| answer.topics.iter().all(|topic| topic.partitions.len() == 4);
    run.until(NEWEST, "grow: seen", by_name(&["older"]), grown).await;
    run.ask("grow: to what it has", ask(vec![growth("older", 4)])).await;
    run.ask("grow: to less", ask(vec![growth("older", 2), growth("plain", 0), growth("single", -1)])).await;
    run.ask("grow: what is not there", ask(vec![growth("missing", 2)])).await;
    run.ask("grow: one twice", ask(vec![growth("older", 5), growth("older", 6)])).await;
    run.ask("grow: only tried", ask(vec![growth("older", 9)]).with_validate_only(true)).await;
    let placed = |nodes: &[&[i32]]| {
        let one = |nodes: &&[i32]| {
            CreatePartitionsAssignment::default().with_broker_ids(nodes.iter().copied().map(BrokerId).collect())
        };
        growth("older", 5).with_assignments(Some(nodes.iter().map(one).collect()))
    };
    run.ask("grow: more assigned than asked", ask(vec![placed(&[&[1], &[1]])])).await;
    run.ask("grow: assigned to no node", ask(vec![placed(&[&[9]])])).await;
    run.ask("grow: assigned to none", ask(vec![placed(&[&[]])])).await;
    run.ask("grow: other replicas than the rest", ask(vec![placed(&[&[1, 1]])])).await;
    run.ask("grow: assigned", ask(vec![placed(&[&[1]])])).await;
}

async fn delete(run: &mut Run) {
    let name = |name: &str| DeleteTopicState::default().with_name(Some(topic(name)));
    let id = |id: Uuid| DeleteTopicState::default().with_name(None).with_topic_id(id);
    let ask = |topics: Vec<DeleteTopicState>| {
        let names = topics.iter().filter_map(|topic| topic.name.clone()).collect();
        DeleteTopicsRequest::default().with_timeout_ms(20_000).with_topics(topics).with_topic_names(names)
    };
    run.ask("delete", ask(vec![name("older")])).await;
    let gone = |answer: &MetadataResponse| answer.topics.iter().all(|topic| topic.error_code != 0);
    run.until(NEWEST, "delete: seen", by_name(&["older"]), gone).await;
    run.ask("delete: again", ask(vec![name("older")])).await;
    run.ask_in(3, "delete: again, of old", ask(vec![name("older"), name("a b")])).await;
    run.ask("delete: by id", ask(vec![id(run.ids["a.b"])])).await;
    run.until(NEWEST, "delete: by id, seen", by_name(&["a.b"]), gone).await;
    run.ask("delete: an id that is unknown", ask(vec![id(Uuid::from_u128(7))])).await;
    run.ask("delete: nothing named", ask(vec![id(Uuid::nil())])).await;
    let both = DeleteTopicState::default().with_name(Some(topic("assigned"))).with_topic_id(run.ids["assigned"]);
    run.ask("delete: by name and id", ask(vec![both])).await;
    run.ask("delete: one twice", ask(vec![name("of-defaults"), name("of-defaults")])).await;
}

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
