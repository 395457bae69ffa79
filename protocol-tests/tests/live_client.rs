//! The bare client against a real Kafka: connections, metadata, administration.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kafka_harbor::client::{
    AclBinding, AclFilter, AclOperation, AclResource, AclResourceKind, Admin, Client, ConfigChange, ConfigEntry,
    ConfigResource, ConfigSource, ConsumerEvent, Elected, Election, GroupFilter, GroupKind, GroupOffset,
    IsolationLevel, MemberName, OffsetReset, OffsetSpec, ResetTo, TopicCreation,
};
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{NewTopic, NodeId, Offset, Record, Timestamp, Topic, TopicPartition};
use protocol_tests::{Cluster, Measure, Push, kafka, kafka_with, pushes, unique};

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
    assert_eq!(retention.source, ConfigSource::Topic);
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

/// What a look at the cluster finds, once it does: a broker answers before all of its parts know.
async fn found<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looks = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(SECOND / 20).await;
        }
    };
    tokio::time::timeout(60 * SECOND, looks).await.unwrap_or_else(|_| panic!("not within a minute: {what}"))
}

async fn entry(admin: &Admin, of: &ConfigResource, name: &str) -> ConfigEntry {
    let described = admin.describe_configs(std::slice::from_ref(of)).await.remove(0).1;
    let described = described.unwrap_or_else(|error| panic!("{of}: {error}"));
    described.into_iter().find(|entry| entry.name == name).unwrap_or_else(|| panic!("{of} has no {name}"))
}

/// Changes a setting, and waits until it is told with this value and source.
async fn alter(
    admin: &Admin,
    of: &ConfigResource,
    name: &str,
    change: ConfigChange,
    told: (Option<&str>, ConfigSource),
) {
    admin
        .alter_configs(&[(of.clone(), vec![change])])
        .await
        .remove(0)
        .1
        .unwrap_or_else(|error| panic!("{of}: {error}"));
    found(&format!("{name} of {of} is {told:?}"), async || {
        let entry = entry(admin, of, name).await;
        (entry.source == told.1 && told.0.is_none_or(|value| entry.value.as_deref() == Some(value))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn settings_of_every_kind_of_resource_are_changed_and_taken_back() {
    let Some(kafka) = kafka() else { return };
    let admin = client(&kafka.bootstrap).admin();
    let name = topic("settings");
    admin.create_topics(&[NewTopic::new(&name).with_partitions(1)]).await[0].1.as_ref().unwrap();
    let of_topic = ConfigResource::Topic(name.clone());
    let set = ConfigChange::set("retention.ms", "123456");
    alter(&admin, &of_topic, "retention.ms", set, (Some("123456"), ConfigSource::Topic)).await;
    for (change, value) in [
        (ConfigChange::append("cleanup.policy", "compact"), "delete,compact"),
        (ConfigChange::subtract("cleanup.policy", "delete"), "compact"),
    ] {
        alter(&admin, &of_topic, "cleanup.policy", change, (Some(value), ConfigSource::Topic)).await;
    }
    let synonyms = entry(&admin, &of_topic, "cleanup.policy").await.synonyms;
    let given: Vec<_> = synonyms.iter().map(|given| (given.name.as_str(), given.source)).collect();
    assert_eq!(given, [("cleanup.policy", ConfigSource::Topic), ("log.cleanup.policy", ConfigSource::Default)]);
    let back = (None, ConfigSource::Default);
    alter(&admin, &of_topic, "cleanup.policy", ConfigChange::delete("cleanup.policy"), back).await;

    let bad = (of_topic.clone(), vec![ConfigChange::set("retention.ms", "a week")]);
    let fine = (ConfigResource::Group(unique("g")), vec![ConfigChange::set("share.auto.offset.reset", "earliest")]);
    let missing = (ConfigResource::Topic(topic("missing")), vec![ConfigChange::delete("retention.ms")]);
    for outcomes in [
        admin.validate_configs(&[bad.clone(), fine.clone(), missing.clone()]).await,
        admin.alter_configs(&[bad, fine.clone(), missing]).await,
    ] {
        let refused = outcomes[0].1.as_ref().unwrap_err().to_string();
        assert!(refused.contains("INVALID_CONFIG"), "{refused}");
        outcomes[1].1.as_ref().unwrap();
        assert!(outcomes[2].1.as_ref().unwrap_err().is_missing(), "{outcomes:?}");
    }
    found("the group's setting", async || {
        let reset = entry(&admin, &fine.0, "share.auto.offset.reset").await;
        (reset.source == ConfigSource::Group && reset.value.as_deref() == Some("earliest")).then_some(())
    })
    .await;

    let metrics = ConfigResource::ClientMetrics(unique("m"));
    let set = ConfigChange::set("interval.ms", "60000");
    alter(&admin, &metrics, "interval.ms", set, (Some("60000"), ConfigSource::ClientMetrics)).await;
    alter(&admin, &metrics, "interval.ms", ConfigChange::delete("interval.ms"), back).await;

    let described = admin.describe_topics(&[name]).await.remove(0).1.unwrap();
    let broker = ConfigResource::Broker(described.partitions[0].leader.unwrap());
    let before = entry(&admin, &broker, "background.threads").await.source;
    let set = ConfigChange::set("background.threads", "5");
    alter(&admin, &broker, "background.threads", set, (Some("5"), ConfigSource::DynamicBroker)).await;
    alter(&admin, &broker, "background.threads", ConfigChange::delete("background.threads"), (None, before)).await;
    let secret = entry(&admin, &broker, "ssl.keystore.password").await;
    assert!(secret.sensitive && secret.value.is_none(), "{secret:?}");
    let loggers = ConfigResource::BrokerLogger(described.partitions[0].leader.unwrap());
    let loggers = admin.describe_configs(&[loggers]).await.remove(0).1.unwrap();
    assert!(loggers.iter().any(|logger| logger.source == ConfigSource::BrokerLogger), "{loggers:?}");
    let elsewhere = admin.with_timeout(2 * SECOND).describe_configs(&[ConfigResource::Broker(NodeId(99))]).await;
    assert!(elsewhere[0].1.is_err(), "{elsewhere:?}");
}

#[tokio::test]
async fn a_cluster_tells_its_brokers_what_lies_in_their_directories_and_who_leads() {
    let Some(kafka) = kafka() else { return };
    let client = client(&kafka.bootstrap);
    let admin = client.admin();
    let name = topic("cluster");
    admin.create_topics(&[NewTopic::new(&name).with_partitions(1)]).await[0].1.as_ref().unwrap();
    let at = TopicPartition::new(&name, 0);
    let producer = client.producer().build().unwrap();
    producer.send(Record::new(&name, "v")).await.unwrap();
    producer.close(10 * SECOND).await.unwrap();

    let cluster = admin.describe_cluster().await.unwrap();
    assert!(!cluster.cluster_id.is_empty() && cluster.controller.is_some(), "{cluster:?}");
    assert!(cluster.brokers.iter().any(|broker| !broker.fenced && broker.port > 0), "{cluster:?}");
    assert!(cluster.operations.is_none_or(|may| may.contains(&AclOperation::AlterConfigs)));
    let node = cluster.brokers[0].node;
    let dirs = admin.describe_log_dirs(None).await.unwrap();
    let dirs: Vec<_> = dirs.into_iter().flat_map(|(_, dirs)| dirs.unwrap()).collect();
    assert!(dirs.iter().all(|dir| dir.error.is_none() && dir.total_bytes > dir.usable_bytes), "{dirs:?}");
    let replica = dirs.iter().flat_map(|dir| &dir.replicas).find(|replica| replica.partition == at).unwrap();
    assert!(replica.bytes > 0 && !replica.future, "{replica:?}");

    let elected = admin.elect_leaders(Election::Preferred, &[at.clone(), TopicPartition::new(&name, 9)]).await;
    assert_eq!(elected[0].1.as_ref().unwrap(), &Elected::NotNeeded);
    assert!(elected[1].1.as_ref().unwrap_err().is_missing(), "{elected:?}");
    let nowhere = admin.reassign_partitions(&[(at.clone(), Some(vec![NodeId(99)]))]).await.remove(0).1.unwrap_err();
    assert_eq!(nowhere.code(), Some(ErrorCode::INVALID_REPLICA_ASSIGNMENT), "{nowhere}");
    admin.reassign_partitions(&[(at.clone(), Some(vec![node]))]).await.remove(0).1.unwrap();
    found("the move is over", async || admin.list_reassignments(None).await.unwrap().is_empty().then_some(())).await;
    let back = admin.reassign_partitions(&[(at, None)]).await.remove(0).1.unwrap_err();
    assert_eq!(back.code(), Some(ErrorCode::NO_REASSIGNMENT_IN_PROGRESS));
}

#[tokio::test]
async fn whose_transaction_holds_up_the_readers_is_found() {
    let Some(kafka) = kafka() else { return };
    let client = client(&kafka.bootstrap);
    let admin = client.admin();
    let (name, id) = (topic("hanging"), unique("hanging"));
    admin.create_topics(&[NewTopic::new(&name).with_partitions(1)]).await[0].1.as_ref().unwrap();
    let at = TopicPartition::new(&name, 0);
    let mut producer = client.producer().transactional(&id).init().await.unwrap();
    let transaction = producer.begin().await.unwrap();
    transaction.send(Record::new(&name, "v")).await.unwrap();

    let described = admin.describe_producers(&[at.clone(), TopicPartition::new(&name, 9)]).await;
    let active = &described[0].1.as_ref().unwrap()[0];
    assert_eq!((active.open_since, active.last_sequence), (Some(Offset(0)), Some(0)));
    assert!(described[1].1.as_ref().unwrap_err().is_missing(), "{described:?}");
    let listed = admin.list_transactions(None).await.unwrap();
    let found_by = listed.transactions.iter().find(|listed| listed.producer_id == active.producer_id).unwrap();
    assert_eq!((found_by.transactional_id.as_str(), found_by.state.as_str()), (id.as_str(), "Ongoing"));
    let long = admin.list_transactions(Some(3600 * SECOND)).await.unwrap();
    assert!(long.transactions.iter().all(|listed| listed.transactional_id != id), "{long:?}");
    let described = admin.describe_transactions(&[id, unique("nobody")]).await;
    let open = described[0].1.as_ref().unwrap();
    assert_eq!((open.partitions.as_slice(), open.began.is_some()), (&[at][..], true));
    assert!(described[1].1.as_ref().unwrap_err().is_missing(), "{described:?}");
    transaction.abort().await.unwrap();
}

#[tokio::test]
async fn rules_of_access_are_made_found_and_deleted() {
    let Some(kafka) = kafka() else { return };
    let admin = client(&kafka.bootstrap).admin();
    // A name of its own: rules bite, and other tests share the broker.
    let (name, user) = (unique("acl"), format!("User:{}", unique("alice")));
    let read = AclBinding::allow(&user, AclOperation::Read, AclResource::topic(&name));
    let prefix = AclBinding::deny(&user, AclOperation::Write, AclResource::topic(&name[..name.len() - 1]).prefixed());
    let nameless = AclBinding::allow(&user, AclOperation::Read, AclResource::topic(""));
    let made = admin.create_acls(&[read.clone(), prefix.clone(), nameless]).await;
    assert!(made[0].1.is_ok() && made[1].1.is_ok(), "{made:?}");
    assert_eq!(made[2].1.as_ref().unwrap_err().code(), Some(ErrorCode::INVALID_REQUEST), "{made:?}");
    let mine = AclFilter::any().with_principal(&user);
    let mut both = vec![read.clone(), prefix.clone()];
    both.sort();
    found("both rules", async || (admin.describe_acls(&mine).await.unwrap() == both).then_some(())).await;
    let applying = AclFilter::any().applying_to(AclResourceKind::Topic, &name).with_principal(&user);
    assert_eq!(admin.describe_acls(&applying).await.unwrap(), both);
    assert_eq!(admin.describe_acls(&AclFilter::exactly(&prefix)).await.unwrap(), std::slice::from_ref(&prefix));
    let deleted = admin.delete_acls(&[AclFilter::exactly(&prefix), mine.clone()]).await;
    let gone = |at: usize| deleted[at].1.as_ref().unwrap().iter().map(|(rule, _)| rule.clone()).collect::<Vec<_>>();
    assert_eq!(gone(0), [prefix]);
    assert!(gone(1).contains(&read), "{deleted:?}");
    found("no rule", async || admin.describe_acls(&mine).await.unwrap().is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_group_is_reset_by_time_and_place_and_a_member_is_sent_away() {
    let Some(kafka) = kafka() else { return };
    let client = client(&kafka.bootstrap);
    let admin = client.admin();
    let (name, group) = (topic("reset"), unique("reset"));
    admin.create_topics(&[NewTopic::new(&name).with_partitions(1)]).await[0].1.as_ref().unwrap();
    let at = TopicPartition::new(&name, 0);
    let producer = client.producer().build().unwrap();
    let record = |n: i64| Record::new(&name, n.to_string()).with_timestamp(Timestamp(1_000_000 * (n + 1)));
    // Each in a batch of its own.
    for n in 0..5 {
        producer.send(record(n)).await.unwrap();
    }
    producer.close(10 * SECOND).await.unwrap();

    let plan = async |to: ResetTo| {
        let planned = admin.plan_group_reset(&group, &[(at.clone(), to)]).await.unwrap().remove(0).1.unwrap();
        planned.after
    };
    admin.set_group_offsets(&group, &[(at.clone(), GroupOffset::new(Offset(2)))]).await.remove(0).1.unwrap();
    let expected = [
        (ResetTo::Earliest, 0),
        (ResetTo::Latest, 5),
        (ResetTo::At(Timestamp(3_500_000)), 3),
        (ResetTo::By(-1), 1),
        (ResetTo::By(99), 5),
        (ResetTo::Offset(Offset(4)), 4),
    ];
    for (to, offset) in expected {
        assert_eq!(plan(to).await.offset, Offset(offset), "{to:?}");
    }
    let mut member = client.consumer(&group).topic(&name, OffsetReset::Earliest).instance_id("one").build().unwrap();
    let joined = async { while !matches!(member.next().await, Some(ConsumerEvent::Assigned(_))) {} };
    tokio::time::timeout(60 * SECOND, joined).await.expect("it joins");
    let kinds = GroupFilter::any().with_kind(GroupKind::Classic).with_state("Stable");
    let listed = admin.list_groups_where(&kinds).await.unwrap();
    assert!(listed.groups.iter().any(|listed| listed.group == group), "{listed:?}");
    assert!(listed.groups.iter().all(|listed| listed.state == "Stable"), "{listed:?}");
    let after = plan(ResetTo::Earliest).await;
    let refused = admin.set_group_offsets(&group, &[(at.clone(), after.clone())]).await.remove(0).1.unwrap_err();
    assert!(refused.to_string().contains("the group has members"), "{refused}");
    let names = [MemberName::Instance("one".to_owned()), MemberName::Id("nobody".to_owned())];
    let removed = admin.remove_members(&group, &names, "a test").await;
    removed[0].1.as_ref().unwrap();
    assert_eq!(removed[1].1.as_ref().unwrap_err().code(), Some(ErrorCode::UNKNOWN_MEMBER_ID));
    // It joins again, or has heard that it is fenced; either way it stops before its group is reset.
    drop(member);
    found("the group is empty", async || {
        let described = admin.describe_groups(std::slice::from_ref(&group)).await.remove(0).1.unwrap();
        if let Some(member) = described.members.first() {
            admin.remove_members(&group, &[MemberName::Id(member.member_id.clone())], "a test").await;
        }
        described.members.is_empty().then_some(())
    })
    .await;
    admin.set_group_offsets(&group, &[(at, after)]).await.remove(0).1.unwrap();
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

/// A broker that ends idle connections early and writes down what clients push of their metrics.
fn strict() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED.get_or_init(|| kafka_with(1, &["connections.max.idle.ms=1500", "--telemetry"], None)).as_ref()
}

#[tokio::test]
async fn metrics_are_pushed_as_the_broker_subscribes_to_them_and_once_more_at_the_end() {
    let Some(kafka) = strict() else { return };
    let Some(file) = kafka.env.get("TELEMETRY") else {
        return protocol_tests::skipped("no javac for the broker's plugin that takes client metrics");
    };
    let (name, id) = (topic("telemetry"), unique("telemetry"));
    let client = Client::builder([&kafka.bootstrap]).client_id(&id).build().unwrap();
    let admin = client.admin();
    admin.create_topics(&[NewTopic::new(&name).with_partitions(1)]).await[0].1.as_ref().unwrap();
    let producer = client.producer().build().unwrap();
    producer.send(Record::new(&name, "before")).await.unwrap();
    let pushed = |instance: &str| {
        let all = pushes(file.as_ref()).into_iter();
        all.filter(|push| push.instance_id == instance).collect::<Vec<_>>()
    };

    let of_client = ConfigResource::ClientMetrics(unique("m"));
    let subscribe = async |metrics: &str| {
        let settings =
            [("match", format!("client_id={id}")), ("interval.ms", "300".to_owned()), ("metrics", metrics.to_owned())];
        let changes = settings.map(|(name, value)| ConfigChange::set(name, value)).to_vec();
        admin.alter_configs(&[(of_client.clone(), changes)]).await.remove(0).1.unwrap();
    };
    subscribe("org.apache.kafka.producer.request").await;
    // A broker that does not know of it yet says that nothing is wanted for five minutes.
    let (telemetry, instance) = found("a client that is to push", async || {
        let telemetry = client.push_telemetry();
        let instance = found("its id", async || telemetry.instance_id()).await.to_string();
        let begun = Instant::now();
        while pushed(&instance).is_empty() {
            if begun.elapsed() > 10 * SECOND {
                return None;
            }
            tokio::time::sleep(SECOND / 20).await;
        }
        Some((telemetry, instance))
    })
    .await;
    for n in 0..3 {
        producer.send(Record::new(&name, n.to_string())).await.unwrap();
    }
    let prefix = "org.apache.kafka.producer";
    let (total, latency) = (format!("{prefix}.request.total"), format!("{prefix}.request.latency.avg"));
    let counted = |pushed: &[Push]| -> i64 {
        let sums = pushed.iter().filter_map(|push| push.metrics.get(&total)).map(|measure| match measure {
            Measure::Sum { value, delta: true } => *value,
            other => panic!("Kafka asks for differences: {other:?}"),
        });
        sums.sum()
    };
    let first = found("three requests", async || Some(pushed(&instance)).filter(|all| counted(all) == 3)).await;
    for push in &first {
        assert!(!push.terminating && push.client_id == id && push.content_type == "OTLP", "{push:?}");
        assert_eq!(push.resource["client_instance_id"], instance);
        assert!(push.metrics.keys().all(|name| name.starts_with("org.apache.kafka.producer.request")), "{push:?}");
    }
    assert!(
        first.iter().any(|push| matches!(push.metrics.get(&latency), Some(Measure::Gauge(ms)) if *ms > 0.0)),
        "{first:?}"
    );

    // Another subscription: a push under the one before is refused, and what it would have told comes with the next.
    let connections = format!("{prefix}.connection.creation.total");
    subscribe(&format!("{total},{connections}")).await;
    producer.send(Record::new(&name, "3")).await.unwrap();
    found("what is wanted now", async || {
        pushed(&instance).iter().any(|push| push.metrics.contains_key(&connections)).then_some(())
    })
    .await;
    producer.send(Record::new(&name, "4")).await.unwrap();
    telemetry.close(30 * SECOND).await.unwrap();
    let all = pushed(&instance);
    assert_eq!(
        all.iter().map(|push| push.terminating).collect::<Vec<_>>().split_last(),
        Some((&true, &vec![false; all.len() - 1][..]))
    );
    assert_eq!(counted(&all), 5, "each request is told once: {all:?}");
}

/// librdkafka#2845, sarama#760: the first request after the broker reaped an idle connection failed.
#[tokio::test]
async fn a_connection_that_the_broker_reaped_is_made_again_without_an_error() {
    let Some(kafka) = strict() else { return };
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
