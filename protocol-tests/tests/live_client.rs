//! The bare client against a real Kafka: connections, metadata, administration.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::time::Duration;

use kafka_harbor::client::{Client, GroupKind, GroupOffset, IsolationLevel, OffsetSpec, TopicCreation};
use kafka_harbor::record::{NewTopic, Offset, Timestamp, Topic, TopicPartition};
use protocol_tests::{kafka, kafka_with, unique};

const SECOND: Duration = Duration::from_secs(1);

fn client(bootstrap: &str) -> Client {
    // The first address is wrong on purpose: the list is tried in turn.
    Client::builder(["127.0.0.1:1", bootstrap]).client_id("live-client").build().unwrap()
}

fn topic(prefix: &str) -> Topic {
    Topic::from(unique(prefix))
}

#[tokio::test]
async fn topics_are_created_visible_described_enlarged_and_deleted() {
    let Some(kafka) = kafka() else { return };
    let admin = client(&kafka.bootstrap).admin();
    let (a, b) = (topic("a"), topic("b"));
    let new = [
        NewTopic::new(&a).with_partitions(3).with_config("retention.ms", "123456"),
        NewTopic::new(&b).with_partitions(1).with_replication_factor(1),
        NewTopic::new("no good name").with_partitions(1),
    ];
    let outcomes = admin.create_topics(&new).await;
    assert_eq!(outcomes[0].1.as_ref().unwrap(), &TopicCreation::Created);
    assert_eq!(outcomes[1].1.as_ref().unwrap(), &TopicCreation::Created);
    let refusal = outcomes[2].1.as_ref().unwrap_err();
    assert!(refusal.to_string().contains("create topic no good name: INVALID_TOPIC_EXCEPTION (17): "), "{refusal}");
    assert_eq!(admin.create_topics(&new[..1]).await[0].1.as_ref().unwrap(), &TopicCreation::Existed);

    let described = admin.describe_topics(&[a.clone(), "missing".into(), b.clone()]).await;
    let description = described[0].1.as_ref().unwrap();
    assert_eq!(description.partitions.len(), 3);
    assert!(description.partitions.iter().all(|partition| partition.leader.is_some() && partition.in_sync.len() == 1));
    assert!(described[1].1.as_ref().unwrap_err().is_missing());
    assert_eq!(described[2].0, b);

    let configs = admin.describe_topic_configs(&[a.clone(), "missing".into()]).await;
    let configs_of_a = configs[0].1.as_ref().unwrap();
    let retention = configs_of_a.iter().find(|entry| entry.name == "retention.ms").unwrap();
    assert_eq!(retention.value.as_deref(), Some("123456"));
    assert_eq!(retention.source, kafka_harbor::client::ConfigSource::Topic);
    assert!(configs[1].1.as_ref().unwrap_err().is_missing(), "{:?}", configs[1]);

    let grown = admin.create_partitions(&[(a.clone(), 5), (b.clone(), 1)]).await;
    grown[0].1.as_ref().unwrap();
    assert!(grown[1].1.as_ref().unwrap_err().to_string().contains("INVALID_PARTITIONS"), "{grown:?}");

    let names: Vec<_> = admin.list_topics().await.unwrap().into_iter().map(|described| described.topic).collect();
    assert!(names.contains(&a) && names.contains(&b));

    let deleted = admin.delete_topics(&[a.clone(), "missing".into(), b.clone()]).await;
    deleted[0].1.as_ref().unwrap();
    assert!(deleted[1].1.as_ref().unwrap_err().is_missing());
    deleted[2].1.as_ref().unwrap();
    let gone = async {
        while admin.describe_topics(std::slice::from_ref(&a)).await[0].1.is_ok() {
            tokio::time::sleep(SECOND / 20).await;
        }
    };
    tokio::time::timeout(20 * SECOND, gone).await.expect("the topic goes from the brokers' metadata");
}

#[tokio::test]
async fn ends_and_times_of_partitions_are_found_and_records_deleted() {
    let Some(kafka) = kafka() else { return };
    let admin = client(&kafka.bootstrap).admin();
    let name = topic("offsets");
    admin.create_topics(&[NewTopic::new(&name).with_partitions(2)]).await[0].1.as_ref().unwrap();
    let partition = |number| TopicPartition::new(&name, number);
    let asked = [
        (partition(0), OffsetSpec::Earliest),
        (partition(1), OffsetSpec::Latest),
        (partition(2), OffsetSpec::Latest),
        (TopicPartition::new("missing", 0), OffsetSpec::Latest),
    ];
    let listed = admin.list_offsets(&asked, IsolationLevel::ReadUncommitted).await;
    assert_eq!(listed[0].1.as_ref().unwrap().offset, Some(Offset(0)));
    assert_eq!(listed[1].1.as_ref().unwrap().offset, Some(Offset(0)));
    assert!(listed[2].1.as_ref().unwrap_err().is_missing());
    assert!(listed[3].1.as_ref().unwrap_err().is_missing());
    let at = admin.list_offsets(&[(partition(0), OffsetSpec::At(Timestamp(0)))], IsolationLevel::ReadCommitted).await;
    assert_eq!(at[0].1.as_ref().unwrap().offset, None, "no record is that new in an empty partition");
    let deleted = admin.delete_records(&[(partition(0), Offset(-1)), (partition(1), Offset(9))]).await;
    assert_eq!(deleted[0].1.as_ref().unwrap(), &Offset(0));
    assert!(deleted[1].1.as_ref().unwrap_err().to_string().contains("OFFSET_OUT_OF_RANGE"), "{deleted:?}");
}

#[tokio::test]
async fn offsets_of_a_group_are_set_read_and_deleted_and_the_group_with_them() {
    let Some(kafka) = kafka() else { return };
    let admin = client(&kafka.bootstrap).admin();
    let (name, group) = (topic("group"), unique("group"));
    admin.create_topics(&[NewTopic::new(&name).with_partitions(2)]).await[0].1.as_ref().unwrap();
    let (zero, one) = (TopicPartition::new(&name, 0), TopicPartition::new(&name, 1));
    assert_eq!(admin.group_offsets(&group, None).await.unwrap(), []);

    let mut noted = GroupOffset::new(Offset(7));
    noted.note = "note".to_owned();
    let offsets = [(zero.clone(), noted), (one.clone(), GroupOffset::new(Offset(0)))];
    for (partition, outcome) in admin.set_group_offsets(&group, &offsets).await {
        outcome.unwrap_or_else(|error| panic!("{partition}: {error}"));
    }
    let mut all = admin.group_offsets(&group, None).await.unwrap();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(all, offsets);
    let asked = [one.clone(), TopicPartition::new(&name, 9)];
    assert_eq!(admin.group_offsets(&group, Some(&asked)).await.unwrap(), offsets[1..]);

    let listing = admin.list_groups().await.unwrap();
    let listed = listing.groups.iter().find(|listed| listed.group == group).unwrap();
    assert_eq!((&listed.kind, listed.state.as_str()), (&GroupKind::Classic, "Empty"));
    let described = admin.describe_groups(&[group.clone(), unique("missing")]).await;
    let description = described[0].1.as_ref().unwrap();
    assert_eq!((description.state.as_str(), description.members.len()), ("Empty", 0));
    assert!(described[1].1.as_ref().unwrap_err().is_missing(), "{described:?}");

    admin.delete_group_offsets(&group, std::slice::from_ref(&zero)).await[0].1.as_ref().unwrap();
    assert_eq!(admin.group_offsets(&group, None).await.unwrap(), offsets[1..]);
    admin.delete_groups(std::slice::from_ref(&group)).await[0].1.as_ref().unwrap();
    let again = admin.delete_groups(&[group]).await;
    assert!(again[0].1.as_ref().unwrap_err().is_missing(), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_at_once_share_the_connections() {
    let Some(kafka) = kafka() else { return };
    let admin = client(&kafka.bootstrap).admin();
    let name = topic("many");
    admin.create_topics(&[NewTopic::new(&name).with_partitions(1)]).await[0].1.as_ref().unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (admin, name) = (admin.clone(), name.clone());
        calls.spawn(async move { admin.describe_topics(&[name]).await.remove(0).1.map(drop) });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap().unwrap();
    }
}

/// librdkafka#2845, sarama#760: the first request after the broker reaped an idle connection failed.
#[tokio::test]
async fn a_connection_that_the_broker_reaped_is_made_again_without_an_error() {
    let Some(kafka) = kafka_with(1, &["connections.max.idle.ms=1500"], None) else { return };
    let client = client(&kafka.bootstrap);
    for _ in 0..3 {
        client.ping(5 * SECOND).await.unwrap();
        client.admin().with_timeout(5 * SECOND).list_groups().await.unwrap();
        tokio::time::sleep(3 * SECOND).await;
    }
}

#[tokio::test]
async fn topics_are_visible_on_every_node_and_a_dead_node_is_passed_over() {
    let Some(kafka) = kafka_with(3, &[], None) else { return };
    let client = client(&kafka.bootstrap);
    let admin = client.admin();
    let name = topic("three");
    let new = NewTopic::new(&name).with_partitions(6).with_replication_factor(3);
    admin.create_topics(&[new]).await[0].1.as_ref().unwrap();
    for node in kafka.bootstrap.split(',') {
        let one = Client::builder([node]).build().unwrap();
        let described = one.admin().describe_topics(std::slice::from_ref(&name)).await;
        assert_eq!(described[0].1.as_ref().unwrap().partitions.len(), 6, "{node}");
    }
    kafka.kill(2);
    let partitions: Vec<_> = (0..6).map(|number| (TopicPartition::new(&name, number), OffsetSpec::Latest)).collect();
    for (partition, outcome) in admin.list_offsets(&partitions, IsolationLevel::ReadCommitted).await {
        assert_eq!(outcome.unwrap_or_else(|error| panic!("{partition}: {error}")).offset, Some(Offset(0)));
    }
    let other = NewTopic::new(topic("after")).with_partitions(3).with_replication_factor(2);
    admin.create_topics(&[other]).await[0].1.as_ref().unwrap();
}
