//! The cluster: nodes, settings, rules of access, log directories, leaders, moves.

use kafka_protocol::messages::alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, BrokerId, CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest,
    DescribeAclsResponse, DescribeClusterRequest, DescribeConfigsRequest, DescribeConfigsResponse,
    DescribeLogDirsRequest, ElectLeadersRequest, IncrementalAlterConfigsRequest, ListPartitionReassignmentsRequest,
};

use super::{NEWEST, Run, text, topic};

pub(super) async fn run(run: &mut Run) {
    nodes(run).await;
    settings(run).await;
    access(run).await;
    directories(run).await;
    leaders(run).await;
    moves(run).await;
}

async fn nodes(run: &mut Run) {
    let ask = DescribeClusterRequest::default;
    run.ask("cluster", ask()).await;
    run.ask("cluster: what is allowed", ask().with_include_cluster_authorized_operations(true)).await;
    run.ask_in(0, "cluster: version 0", ask()).await;
    run.ask("cluster: its controllers", ask().with_endpoint_type(2)).await;
    run.ask("cluster: of no kind that there is", ask().with_endpoint_type(7)).await;
    run.ask("cluster: with those that are kept out", ask().with_include_fenced_brokers(true)).await;
}

fn altered(kind: i8, name: &str, changes: &[(&str, i8, Option<&str>)]) -> AlterConfigsResource {
    let change = |(name, act, value): &(&str, i8, Option<&str>)| {
        AlterableConfig::default().with_name(text(name)).with_config_operation(*act).with_value(value.map(text))
    };
    AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(changes.iter().map(change).collect())
}

pub(super) fn alteration(kind: i8, name: &str, changes: &[(&str, i8, Option<&str>)]) -> IncrementalAlterConfigsRequest {
    IncrementalAlterConfigsRequest::default().with_resources(vec![altered(kind, name, changes)])
}

async fn settings(run: &mut Run) {
    let of_topic = |changes: &[(&str, i8, Option<&str>)]| alteration(TOPIC, "timely", changes);
    run.ask("change", of_topic(&[("retention.ms", SET, Some("123456")), ("cleanup.policy", SET, Some("delete"))]))
        .await;
    run.ask("change: only tried", of_topic(&[("retention.ms", SET, Some("7"))]).with_validate_only(true)).await;
    run.ask("change: a value that cannot be", of_topic(&[("retention.ms", SET, Some("soon"))])).await;
    run.ask("change: no value", of_topic(&[("retention.ms", SET, None)])).await;
    run.ask("change: a setting that is none", of_topic(&[("no.such.setting", SET, Some("1"))])).await;
    run.ask("change: an act that is none", of_topic(&[("retention.ms", 9, Some("1"))])).await;
    run.ask("change: appended to what is no list", of_topic(&[("retention.ms", APPEND, Some("1"))])).await;
    run.ask("change: appended", of_topic(&[("cleanup.policy", APPEND, Some("compact"))])).await;
    run.ask("change: taken away", of_topic(&[("cleanup.policy", SUBTRACT, Some("delete"))])).await;
    run.ask("change: one twice", of_topic(&[("retention.ms", SET, Some("1")), ("retention.ms", SET, Some("2"))])).await;
    run.ask("change: of nothing that has any", alteration(77, "x", &[("a", SET, Some("b"))])).await;
    run.ask("change: of a topic that is not there", alteration(TOPIC, "missing", &[("retention.ms", SET, Some("1"))]))
        .await;
    run.ask("change: of another node", alteration(BROKER, "9", &[("log.retention.ms", SET, Some("1"))])).await;
    run.ask("change: of a node that has no number", alteration(BROKER, "x", &[("log.retention.ms", SET, Some("1"))]))
        .await;
    let both = IncrementalAlterConfigsRequest::default()
        .with_resources(vec![altered(TOPIC, "timely", &[]), altered(TOPIC, "timely", &[])]);
    run.ask("change: a topic twice", both).await;
    let asked = DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text("timely"))
        .with_configuration_keys(Some(vec![text("retention.ms"), text("cleanup.policy")]));
    let told = |answer: &DescribeConfigsResponse| {
        let mut values = answer.results.iter().flat_map(|of| &of.configs).filter_map(|of| of.value.as_deref());
        values.any(|value| value == "compact")
    };
    run.until(NEWEST, "change: seen", DescribeConfigsRequest::default().with_resources(vec![asked]), told).await;
    run.ask("change: taken back", of_topic(&[("retention.ms", DELETE, None), ("cleanup.policy", DELETE, None)])).await;
}

fn rule(kind: i8, name: &str, pattern: i8, principal: &str, operation: i8, permission: i8) -> AclCreation {
    AclCreation::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_resource_pattern_type(pattern)
        .with_principal(text(principal))
        .with_host(text("*"))
        .with_operation(operation)
        .with_permission_type(permission)
}

/// Everything of a name that the script made.
fn rules(name: Option<&str>, pattern: i8) -> DescribeAclsRequest {
    DescribeAclsRequest::default()
        .with_resource_type_filter(ANY)
        .with_resource_name_filter(name.map(text))
        .with_pattern_type_filter(pattern)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(ANY)
        .with_permission_type(ANY)
}

fn gone(name: Option<&str>, pattern: i8, operation: i8) -> DeleteAclsFilter {
    DeleteAclsFilter::default()
        .with_resource_type_filter(ANY)
        .with_resource_name_filter(name.map(text))
        .with_pattern_type_filter(pattern)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(operation)
        .with_permission_type(ANY)
}

async fn access(run: &mut Run) {
    let create = |rules: Vec<AclCreation>| CreateAclsRequest::default().with_creations(rules);
    let alice = |name: &str, pattern: i8| rule(TOPIC, name, pattern, "User:alice", READ, ALLOW);
    let first = vec![
        alice("acl-a", LITERAL),
        alice("acl-", PREFIXED),
        alice("*", LITERAL).with_operation(DESCRIBE),
        rule(GROUP, "acl-g", LITERAL, "User:bob", ALL, DENY).with_host(text("10.0.0.1")),
        rule(CLUSTER, "kafka-cluster", LITERAL, "User:bob", ALTER, ALLOW),
        rule(TRANSACTION, "acl-t", LITERAL, "User:bob", WRITE, ALLOW),
    ];
    run.ask("access: made", create(first)).await;
    run.ask("access: made again", create(vec![alice("acl-a", LITERAL)])).await;
    let wrong = vec![
        alice("acl-b", ANY),
        alice("acl-b", MATCH),
        alice("", LITERAL),
        rule(ANY, "acl-b", LITERAL, "User:alice", READ, ALLOW),
        rule(TOPIC, "acl-b", LITERAL, "User:alice", ANY, ALLOW),
        rule(TOPIC, "acl-b", LITERAL, "User:alice", READ, ANY),
        rule(TOPIC, "acl-b", LITERAL, "alice", READ, ALLOW),
        rule(TOPIC, "acl-b", LITERAL, "User:", READ, ALLOW),
        rule(CLUSTER, "other", LITERAL, "User:bob", ALTER, ALLOW),
        rule(TOPIC, "acl-b", LITERAL, "User:alice", IDEMPOTENT_WRITE, ALLOW),
        rule(TOPIC, "a b", LITERAL, "User:alice", READ, ALLOW),
    ];
    for (wrong, step) in wrong.into_iter().zip(WRONG) {
        run.ask(step, create(vec![wrong])).await;
    }
    run.ask("access: none made", create(Vec::new())).await;
    let made = |answer: &DescribeAclsResponse| answer.resources.iter().map(|of| of.acls.len()).sum::<usize>() == 9;
    run.until(NEWEST, "access: all", rules(None, ANY), made).await;
    run.ask("access: of a name", rules(Some("acl-a"), ANY)).await;
    run.ask("access: of a name, as written", rules(Some("acl-a"), LITERAL)).await;
    run.ask("access: of a name, by its beginning", rules(Some("acl-"), PREFIXED)).await;
    run.ask("access: that bears on a name", rules(Some("acl-a"), MATCH)).await;
    run.ask("access: of a kind", rules(None, ANY).with_resource_type_filter(GROUP)).await;
    run.ask("access: of somebody", rules(None, ANY).with_principal_filter(Some(text("User:alice")))).await;
    run.ask("access: from somewhere", rules(None, ANY).with_host_filter(Some(text("10.0.0.1")))).await;
    run.ask("access: to do something", rules(None, ANY).with_operation(READ)).await;
    run.ask("access: that is denied", rules(None, ANY).with_permission_type(DENY)).await;
    run.ask("access: of a kind that is none", rules(None, ANY).with_resource_type_filter(UNKNOWN)).await;
    run.ask("access: of a pattern that is none", rules(None, UNKNOWN)).await;
    run.ask_in(1, "access: version 1", rules(None, ANY)).await;
    let delete = |filters: Vec<DeleteAclsFilter>| DeleteAclsRequest::default().with_filters(filters);
    run.ask("access: taken back", delete(vec![gone(Some("acl-a"), LITERAL, READ), gone(Some("nothing"), ANY, ANY)]))
        .await;
    run.ask("access: taken back by what is no filter", delete(vec![gone(None, UNKNOWN, ANY)])).await;
    run.ask("access: taken back by none", delete(Vec::new())).await;
    run.ask("access: all taken back", delete(vec![gone(None, ANY, ANY)])).await;
    let none = |answer: &DescribeAclsResponse| answer.resources.is_empty();
    run.until(NEWEST, "access: what is left", rules(None, ANY), none).await;
}

async fn directories(run: &mut Run) {
    let of = |name: &str, partitions: &[i32]| {
        DescribableLogDirTopic::default().with_topic(topic(name)).with_partitions(partitions.to_vec())
    };
    let ask = |topics: Vec<DescribableLogDirTopic>| DescribeLogDirsRequest::default().with_topics(Some(topics));
    run.ask("directories: of one partition", ask(vec![of("plain", &[1])])).await;
    run.ask("directories: of more", ask(vec![of("plain", &[1, 2]), of("stamped", &[0])])).await;
    run.ask("directories: where records were deleted", ask(vec![of("plain", &[0])])).await;
    run.ask("directories: of what is not there", ask(vec![of("missing", &[0]), of("plain", &[9])])).await;
    run.ask("directories: of nothing", ask(Vec::new())).await;
    run.ask_in(1, "directories: version 1", ask(vec![of("stamped", &[0])])).await;
    run.ask("directories: of all", DescribeLogDirsRequest::default().with_topics(None)).await;
}

async fn leaders(run: &mut Run) {
    let of = |name: &str, partitions: &[i32]| {
        TopicPartitions::default().with_topic(topic(name)).with_partitions(partitions.to_vec())
    };
    let ask = |kind: i8, topics: Option<Vec<TopicPartitions>>| {
        ElectLeadersRequest::default().with_election_type(kind).with_topic_partitions(topics).with_timeout_ms(20_000)
    };
    run.ask("leaders: the preferred one leads", ask(0, Some(vec![of("plain", &[0, 1])]))).await;
    run.ask("leaders: one leads", ask(1, Some(vec![of("plain", &[0])]))).await;
    run.ask("leaders: of what is not there", ask(0, Some(vec![of("missing", &[0]), of("plain", &[9])]))).await;
    run.ask("leaders: of what is not there, unclean", ask(1, Some(vec![of("plain", &[9])]))).await;
    run.ask("leaders: of a kind that is none", ask(7, Some(vec![of("plain", &[0])]))).await;
    run.ask("leaders: of nothing", ask(0, Some(Vec::new()))).await;
    run.ask("leaders: of all", ask(0, None)).await;
    run.ask("leaders: of all, unclean", ask(1, None)).await;
    run.ask_in(0, "leaders: version 0", ask(0, Some(vec![of("plain", &[0, 9])]))).await;
}

async fn moves(run: &mut Run) {
    let of = |name: &str, partition: i32, nodes: Option<&[i32]>| {
        let nodes = nodes.map(|nodes| nodes.iter().copied().map(BrokerId).collect());
        let moved = ReassignablePartition::default().with_partition_index(partition).with_replicas(nodes);
        ReassignableTopic::default().with_name(topic(name)).with_partitions(vec![moved])
    };
    let ask = |topics: Vec<ReassignableTopic>| {
        AlterPartitionReassignmentsRequest::default().with_timeout_ms(20_000).with_topics(topics)
    };
    run.ask("moves: to where it is", ask(vec![of("plain", 0, Some(&[1]))])).await;
    run.ask("moves: to a node that is not there", ask(vec![of("plain", 0, Some(&[9]))])).await;
    run.ask("moves: to no node", ask(vec![of("plain", 0, Some(&[]))])).await;
    run.ask("moves: to one twice", ask(vec![of("plain", 0, Some(&[1, 1]))])).await;
    run.ask("moves: to a node below all", ask(vec![of("plain", 0, Some(&[-1]))])).await;
    run.ask("moves: none is under way", ask(vec![of("plain", 0, None)])).await;
    run.ask("moves: what is not there", ask(vec![of("missing", 0, Some(&[1])), of("plain", 9, Some(&[1]))])).await;
    run.ask("moves: what is not there is taken back", ask(vec![of("missing", 0, None), of("plain", 9, None)])).await;
    run.ask("moves: nothing", ask(Vec::new())).await;
    if run.version::<AlterPartitionReassignmentsRequest>(NEWEST) >= FIRST_WITH_SIZES {
        let sizes = |nodes: &[i32]| ask(vec![of("plain", 0, Some(nodes))]).with_allow_replication_factor_change(false);
        run.ask("moves: in the same number", sizes(&[1])).await;
        run.ask("moves: in another number", sizes(&[])).await;
    }
    let list = |topics: Option<Vec<ListPartitionReassignmentsTopics>>| {
        ListPartitionReassignmentsRequest::default().with_timeout_ms(20_000).with_topics(topics)
    };
    let asked =
        |name: &str| ListPartitionReassignmentsTopics::default().with_name(topic(name)).with_partition_indexes(vec![0]);
    run.ask("moves: all that are under way", list(None)).await;
    run.ask("moves: some that are under way", list(Some(vec![asked("plain"), asked("missing")]))).await;
}

/// KIP-860.
const FIRST_WITH_SIZES: i16 = 1;

/// `AlterConfigOp`.
pub(super) const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// `ResourceType`, `PatternType`, `AclOperation`, `AclPermissionType`.
const UNKNOWN: i8 = 0;
const ANY: i8 = 1;
const TOPIC: i8 = 2;
const GROUP: i8 = 3;
const CLUSTER: i8 = 4;
const BROKER: i8 = 4;
const TRANSACTION: i8 = 5;
const MATCH: i8 = 2;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const ALL: i8 = 2;
const READ: i8 = 3;
const WRITE: i8 = 4;
const ALTER: i8 = 7;
const DESCRIBE: i8 = 8;
const IDEMPOTENT_WRITE: i8 = 12;
const DENY: i8 = 2;
const ALLOW: i8 = 3;

/// The rules that cannot be.
const WRONG: [&str; 11] = [
    "access: a pattern of any kind",
    "access: a pattern that matches",
    "access: without a name",
    "access: to any kind",
    "access: to do anything",
    "access: neither allowed nor denied",
    "access: a principal without a kind",
    "access: a principal without a name",
    "access: a cluster of another name",
    "access: what is not done with topics",
    "access: a topic that cannot be",
];
