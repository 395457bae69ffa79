//! What an operator does, over the dev broker.

use kafka_harbor::client::{
    AclBinding, AclFilter, AclOperation, AclResource, AclResourceKind, Admin, ClientError, ConfigChange, ConfigEntry,
    ConfigKind, ConfigResource, ConfigSource, Elected, Election, GroupFilter, GroupKind, GroupOffset, MemberName,
    ResetTo,
};
use kafka_harbor::record::{NodeId, Timestamp};
use kafka_harbor::testing::broker::Settings;

use super::*;

fn admin(broker: &DevBroker) -> Admin {
    broker.client_config().build().unwrap().admin()
}

async fn setting(admin: &Admin, of: &ConfigResource, name: &str) -> ConfigEntry {
    let described = admin.describe_configs(std::slice::from_ref(of)).await.remove(0).1.unwrap();
    described.into_iter().find(|entry| entry.name == name).unwrap()
}

async fn alter(admin: &Admin, of: &ConfigResource, change: ConfigChange) -> Result<(), ClientError> {
    admin.alter_configs(&[(of.clone(), vec![change])]).await.remove(0).1
}

#[tokio::test(start_paused = true)]
async fn settings_of_a_topic_are_set_extended_and_taken_back() {
    let broker = three().await;
    let (admin, topic) = (admin(&broker), ConfigResource::Topic("orders".into()));
    alter(&admin, &topic, ConfigChange::set("retention.ms", "1000")).await.unwrap();
    alter(&admin, &topic, ConfigChange::append("cleanup.policy", "compact,delete")).await.unwrap();
    let retention = setting(&admin, &topic, "retention.ms").await;
    assert_eq!((retention.value.as_deref(), retention.source), (Some("1000"), ConfigSource::Topic));
    assert_eq!((retention.kind, retention.read_only, retention.sensitive), (ConfigKind::Long, false, false));
    let policy = setting(&admin, &topic, "cleanup.policy").await;
    let given: Vec<_> = policy.synonyms.iter().map(|given| (given.name.as_str(), given.source)).collect();
    assert_eq!(given, [("cleanup.policy", ConfigSource::Topic), ("log.cleanup.policy", ConfigSource::Default)]);
    assert_eq!(setting(&admin, &topic, "cleanup.policy").await.value.as_deref(), Some("compact,delete"));

    alter(&admin, &topic, ConfigChange::subtract("cleanup.policy", "delete")).await.unwrap();
    assert_eq!(setting(&admin, &topic, "cleanup.policy").await.value.as_deref(), Some("compact"));
    alter(&admin, &topic, ConfigChange::delete("retention.ms")).await.unwrap();
    assert_eq!(setting(&admin, &topic, "retention.ms").await.source, ConfigSource::Default);

    let refused = [
        (ConfigChange::append("retention.ms", "1"), ErrorCode::INVALID_CONFIG),
        (ConfigChange::set("retention.ms", "a week"), ErrorCode::INVALID_CONFIG),
        (ConfigChange::set("no.such", "1"), ErrorCode::INVALID_CONFIG),
    ];
    for (change, code) in refused {
        let error = alter(&admin, &topic, change.clone()).await.unwrap_err();
        assert_eq!(error.code(), Some(code), "{change:?}: {error}");
    }
    let missing = alter(&admin, &ConfigResource::Topic("missing".into()), ConfigChange::delete("retention.ms")).await;
    assert!(missing.unwrap_err().is_missing());
}

#[tokio::test(start_paused = true)]
async fn what_is_only_validated_changes_nothing_and_a_refused_change_takes_the_others_with_it() {
    let broker = three().await;
    let (admin, topic) = (admin(&broker), ConfigResource::Topic("orders".into()));
    let changes = |value: &str| vec![ConfigChange::set("segment.ms", "99"), ConfigChange::set("retention.ms", value)];
    admin.validate_configs(&[(topic.clone(), changes("5"))]).await.remove(0).1.unwrap();
    let refused = admin.alter_configs(&[(topic.clone(), changes("never"))]).await.remove(0).1;
    assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::INVALID_CONFIG));
    assert_eq!(setting(&admin, &topic, "retention.ms").await.source, ConfigSource::Default);
    let described = admin.describe_configs(std::slice::from_ref(&topic)).await.remove(0).1.unwrap();
    assert!(described.iter().all(|entry| entry.source != ConfigSource::Topic), "{described:?}");
}

#[tokio::test(start_paused = true)]
async fn brokers_groups_and_metrics_subscriptions_have_settings_too() {
    let broker = three().await;
    let admin = admin(&broker);
    let group = ConfigResource::Group("g".to_owned());
    alter(&admin, &group, ConfigChange::set("share.auto.offset.reset", "earliest")).await.unwrap();
    let reset = setting(&admin, &group, "share.auto.offset.reset").await;
    assert_eq!((reset.value.as_deref(), reset.source), (Some("earliest"), ConfigSource::Group));

    let metrics = ConfigResource::ClientMetrics("m".to_owned());
    alter(&admin, &metrics, ConfigChange::set("interval.ms", "1000")).await.unwrap();
    assert_eq!(setting(&admin, &metrics, "interval.ms").await.source, ConfigSource::ClientMetrics);
    let hasty = alter(&admin, &metrics, ConfigChange::set("interval.ms", "99")).await;
    assert_eq!(hasty.unwrap_err().code(), Some(ErrorCode::INVALID_CONFIG));

    let (own, all) = (ConfigResource::Broker(NodeId(2)), ConfigResource::AllBrokers);
    alter(&admin, &all, ConfigChange::set("num.io.threads", "4")).await.unwrap();
    assert_eq!(setting(&admin, &own, "num.io.threads").await.source, ConfigSource::DynamicAllBrokers);
    alter(&admin, &own, ConfigChange::set("num.io.threads", "5")).await.unwrap();
    let threads = setting(&admin, &own, "num.io.threads").await;
    assert_eq!((threads.value.as_deref(), threads.source), (Some("5"), ConfigSource::DynamicBroker));
    assert_eq!(threads.synonyms.len(), 3, "{threads:?}");
    let fixed = alter(&admin, &own, ConfigChange::set("num.partitions", "3")).await;
    assert_eq!(fixed.unwrap_err().code(), Some(ErrorCode::INVALID_CONFIG));
    assert!(setting(&admin, &own, "num.partitions").await.read_only);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_tells_its_brokers_with_racks_and_those_that_do_not_run() {
    let settings = |settings: &mut Settings| settings.racks = vec!["north".to_owned()];
    let broker = DevBroker::builder().nodes(3).settings(settings).start().await.unwrap();
    let admin = admin(&broker);
    broker.act(|cluster, now| cluster.crash(3, now));
    let cluster = admin.describe_cluster().await.unwrap();
    assert_eq!((cluster.cluster_id.as_str(), cluster.controller), ("dev-broker", Some(NodeId(1))));
    let brokers: Vec<_> = cluster.brokers.iter().map(|it| (it.node.0, it.rack.as_deref(), it.fenced)).collect();
    assert_eq!(brokers, [(1, Some("north"), false), (2, None, false), (3, None, true)]);
    assert!(cluster.operations.unwrap().contains(&AclOperation::AlterConfigs));
}

#[tokio::test(start_paused = true)]
async fn log_dirs_tell_the_size_of_each_replica_and_a_broker_that_is_gone_fails_alone() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    produce(&client, 0, 100).await;
    let admin = client.admin().with_timeout(5 * SECOND);
    let dirs = admin.describe_log_dirs(None).await.unwrap();
    assert_eq!(dirs.len(), 3);
    for (node, dirs) in &dirs {
        let dirs = dirs.as_ref().unwrap();
        assert_eq!((dirs.len(), dirs[0].error, dirs[0].replicas.len()), (1, None, 6), "{node}");
        assert!(dirs[0].replicas.iter().map(|replica| replica.bytes).sum::<u64>() > 0);
        assert!(dirs[0].total_bytes > dirs[0].usable_bytes, "{dirs:?}");
    }
    broker.act(|cluster, now| cluster.crash(2, now));
    let dirs = admin.describe_log_dirs(Some(&[NodeId(1), NodeId(2), NodeId(9)])).await.unwrap();
    let answered: Vec<_> = dirs.iter().map(|(node, dirs)| (node.0, dirs.is_ok())).collect();
    assert_eq!(answered, [(1, true), (2, false), (9, false)]);
}

async fn leader(admin: &Admin, partition: i32) -> Option<i32> {
    let described = admin.describe_topics(&["orders".into()]).await.remove(0).1.unwrap();
    described.partitions[partition as usize].leader.map(|node| node.0)
}

#[tokio::test(start_paused = true)]
async fn a_preferred_leader_is_elected_once_it_runs_and_nobody_waits_for_one_that_does_not() {
    let broker = three().await;
    let admin = admin(&broker);
    let preferred = leader(&admin, 0).await.unwrap();
    broker.act(|cluster, now| cluster.crash(preferred, now));
    let start = tokio::time::Instant::now();
    let elect = async || admin.elect_leaders(Election::Preferred, &[at(0)]).await.remove(0).1;
    let error = elect().await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE), "{error}");
    assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());
    broker.act(|cluster, now| cluster.restart(preferred, now));
    assert_ne!(leader(&admin, 0).await, Some(preferred));
    assert_eq!(elect().await.unwrap(), Elected::Elected);
    assert_eq!(leader(&admin, 0).await, Some(preferred));
    assert_eq!(elect().await.unwrap(), Elected::NotNeeded);
    let missing = admin.elect_leaders(Election::Preferred, &[at(99)]).await.remove(0).1;
    assert!(missing.unwrap_err().is_missing());
    let unclean = admin.elect_leaders(Election::DangerouslyUnclean, &[at(0)]).await.remove(0).1;
    assert_eq!(unclean.unwrap(), Elected::NotNeeded);
}

#[tokio::test(start_paused = true)]
async fn a_partition_moves_once_its_new_replicas_have_it_and_stays_where_the_move_is_taken_back() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    let admin = client.admin();
    let moved = async |to: Option<Vec<i32>>| {
        let to = to.map(|to| to.into_iter().map(NodeId).collect());
        admin.reassign_partitions(&[(at(0), to)]).await.remove(0).1
    };
    let held = async || {
        let described = admin.describe_topics(&["orders".into()]).await.remove(0).1.unwrap();
        described.partitions[0].replicas.iter().map(|node| node.0).collect::<Vec<_>>()
    };
    moved(Some(vec![2])).await.unwrap();
    assert_eq!((held().await, leader(&admin, 0).await), (vec![2], Some(2)));
    produce(&client, 0, 60).await;

    broker.act(|cluster, now| cluster.set_following(3, false, now));
    moved(Some(vec![3])).await.unwrap();
    let moves = admin.list_reassignments(None).await.unwrap();
    assert_eq!(moves.len(), 1);
    assert_eq!((moves[0].1.adding.as_slice(), moves[0].1.removing.as_slice()), (&[NodeId(3)][..], &[NodeId(2)][..]));
    assert_eq!(admin.list_reassignments(Some(&[at(1)])).await.unwrap(), []);
    moved(None).await.unwrap();
    assert_eq!(held().await, [2]);
    assert_eq!(moved(None).await.unwrap_err().code(), Some(ErrorCode::NO_REASSIGNMENT_IN_PROGRESS));

    moved(Some(vec![3, 1])).await.unwrap();
    broker.act(|cluster, now| cluster.set_following(3, true, now));
    assert_eq!((held().await, leader(&admin, 0).await), (vec![3, 1], Some(3)));
    let ends = admin.list_offsets(&[(at(0), OffsetSpec::Latest)], IsolationLevel::ReadCommitted).await;
    assert!(ends[0].1.as_ref().unwrap().offset.unwrap().0 > 0, "the records moved too");
    let nobody = moved(Some(Vec::new())).await.unwrap_err();
    assert_eq!(nobody.code(), Some(ErrorCode::INVALID_REPLICA_ASSIGNMENT));
}

#[tokio::test(start_paused = true)]
async fn rules_are_made_found_by_filters_and_deleted() {
    let broker = DevBroker::builder().settings(|settings| settings.authorizer = true).start().await.unwrap();
    let admin = admin(&broker);
    let read = AclBinding::allow("User:alice", AclOperation::Read, AclResource::topic("orders"));
    let prefix = AclBinding::allow("User:bob", AclOperation::Write, AclResource::topic("ord").prefixed());
    let all = AclBinding::deny("User:eve", AclOperation::All, AclResource::topic("*")).from_host("10.0.0.1");
    let group = AclBinding::allow("User:alice", AclOperation::Read, AclResource::group("billing"));
    let nobody = AclBinding::allow("alice", AclOperation::Read, AclResource::cluster());
    let rules = [read.clone(), prefix.clone(), all.clone(), group.clone(), nobody];
    let made = admin.create_acls(&rules).await;
    let refused = made[4].1.as_ref().unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::INVALID_REQUEST), "{refused}");
    assert!(made[..4].iter().all(|(_, outcome)| outcome.is_ok()), "{made:?}");
    admin.create_acls(&rules[..1]).await.remove(0).1.expect("it is there already");

    let found = async |filter: AclFilter| admin.describe_acls(&filter).await.unwrap();
    assert_eq!(found(AclFilter::any()).await.len(), 4);
    let mut applying = vec![read.clone(), prefix.clone(), all.clone()];
    applying.sort();
    assert_eq!(found(AclFilter::any().applying_to(AclResourceKind::Topic, "orders")).await, applying);
    assert_eq!(found(AclFilter::any().with_resource(&prefix.resource)).await, std::slice::from_ref(&prefix));
    assert_eq!(found(AclFilter::exactly(&all)).await, [all]);
    assert_eq!(found(AclFilter::any().with_principal("User:bob").with_operation(AclOperation::Read)).await, []);

    let filters = [AclFilter::any().with_principal("User:alice"), AclFilter::any().with_host("10.9.9.9")];
    let deleted = admin.delete_acls(&filters).await;
    let mut gone: Vec<_> =
        deleted[0].1.as_ref().unwrap().iter().map(|(rule, outcome)| (rule, outcome.is_ok())).collect();
    gone.sort();
    let mut expected = [(&read, true), (&group, true)];
    expected.sort();
    assert_eq!(gone, expected);
    assert_eq!(deleted[1].1.as_ref().unwrap().len(), 0);
    assert_eq!(found(AclFilter::any()).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_keeps_no_rules_says_so() {
    let broker = three().await;
    let admin = admin(&broker);
    let rule = AclBinding::allow("User:alice", AclOperation::Read, AclResource::topic("orders"));
    let made = admin.create_acls(std::slice::from_ref(&rule)).await.remove(0).1.unwrap_err();
    let listed = admin.describe_acls(&AclFilter::any()).await.unwrap_err();
    let deleted = admin.delete_acls(&[AclFilter::exactly(&rule)]).await.remove(0).1.unwrap_err();
    for error in [made, listed, deleted] {
        assert_eq!(error.code(), Some(ErrorCode::SECURITY_DISABLED), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn whose_transaction_holds_up_the_readers_is_found() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    let admin = client.admin();
    let mut producer = client.producer().transactional("billing-1").init().await.unwrap();
    let transaction = producer.begin().await.unwrap();
    transaction.send(Record::new("orders", "1").with_partition(2)).await.unwrap();

    let described = admin.describe_producers(&[at(2), at(3), at(99)]).await;
    let active = &described[0].1.as_ref().unwrap()[0];
    assert_eq!((active.open_since, active.last_sequence), (Some(Offset(0)), Some(0)));
    assert_eq!(described[1].1.as_ref().unwrap().len(), 0);
    assert!(described[2].1.as_ref().unwrap_err().is_missing());

    let listed = admin.list_transactions(None).await.unwrap();
    let of_producer = listed.transactions.iter().find(|listed| listed.producer_id == active.producer_id).unwrap();
    assert_eq!((of_producer.transactional_id.as_str(), of_producer.state.as_str()), ("billing-1", "Ongoing"));
    assert_eq!(admin.list_transactions(Some(10 * SECOND)).await.unwrap().transactions, []);
    tokio::time::sleep(11 * SECOND).await;
    assert_eq!(admin.list_transactions(Some(10 * SECOND)).await.unwrap().transactions.len(), 1);

    let ids = ["billing-1".to_owned(), "nobody".to_owned()];
    let described = admin.describe_transactions(&ids).await;
    let open = described[0].1.as_ref().unwrap();
    assert_eq!((open.partitions.as_slice(), open.began.is_some()), (&[at(2)][..], true));
    assert!(described[1].1.as_ref().unwrap_err().is_missing());
    transaction.abort().await.unwrap();
    assert_eq!(admin.describe_producers(&[at(2)]).await[0].1.as_ref().unwrap()[0].open_since, None);
}

#[tokio::test(start_paused = true)]
async fn a_group_is_reset_by_time_place_and_shift_within_what_is_there() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    let producer = client.producer().build().unwrap();
    let record = |n: i64| {
        let record = Record::new("orders", n.to_string()).with_partition(0);
        record.with_timestamp(Timestamp(1_000 * (n + 1)))
    };
    producer.send_all((0..10).map(record).collect()).await.unwrap();
    producer.close(10 * SECOND).await.unwrap();
    let admin = client.admin();
    admin.delete_records(&[(at(0), Offset(2))]).await.remove(0).1.unwrap();

    let plan = async |to: ResetTo| admin.plan_group_reset("g", &[(at(0), to)]).await.unwrap().remove(0).1;
    let nothing = plan(ResetTo::By(1)).await.unwrap_err();
    assert!(matches!(nothing, ClientError::Misuse { .. }), "{nothing}");
    let committed = GroupOffset::new(Offset(5));
    admin.set_group_offsets("g", &[(at(0), committed.clone())]).await.remove(0).1.unwrap();
    let expected = [
        (ResetTo::Earliest, 2),
        (ResetTo::Latest, 10),
        (ResetTo::At(Timestamp(6_500)), 6),
        (ResetTo::At(Timestamp(99_000)), 10),
        (ResetTo::Offset(Offset(0)), 2),
        (ResetTo::Offset(Offset(7)), 7),
        (ResetTo::Offset(Offset(99)), 10),
        (ResetTo::By(2), 7),
        (ResetTo::By(-2), 3),
        (ResetTo::By(-9), 2),
        (ResetTo::By(i64::MAX), 10),
    ];
    for (to, offset) in expected {
        let planned = plan(to).await.unwrap();
        assert_eq!((planned.before, planned.after.offset), (Some(committed.clone()), Offset(offset)), "{to:?}");
    }
    let missing = admin.plan_group_reset("g", &[(at(99), ResetTo::Latest)]).await.unwrap().remove(0).1;
    assert!(missing.unwrap_err().is_missing());
}

#[tokio::test(start_paused = true)]
async fn groups_are_listed_by_kind_and_state_and_members_sent_away() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    let admin = client.admin();
    admin.set_group_offsets("idle", &[(at(0), GroupOffset::new(Offset(0)))]).await.remove(0).1.unwrap();
    let mut member = client.consumer("busy").topic("orders", OffsetReset::Earliest).instance_id("one").build().unwrap();
    let joined = async { while !matches!(member.next().await, Some(ConsumerEvent::Assigned(_))) {} };
    tokio::time::timeout(60 * SECOND, joined).await.expect("it joins");

    let listed = async |filter: GroupFilter| {
        let listing = admin.list_groups_where(&filter).await.unwrap();
        listing.groups.into_iter().map(|group| group.group).collect::<Vec<_>>()
    };
    assert_eq!(listed(GroupFilter::any()).await, ["busy", "idle"]);
    assert_eq!(listed(GroupFilter::any().with_state("empty")).await, ["idle"]);
    assert_eq!(listed(GroupFilter::any().with_kind(GroupKind::Consumer)).await.len(), 0);
    assert_eq!(listed(GroupFilter::any().with_kind(GroupKind::Classic).with_state("Stable")).await, ["busy"]);

    let refused = admin.set_group_offsets("busy", &[(at(0), GroupOffset::new(Offset(0)))]).await.remove(0).1;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("the group has members"), "{refused}");
    let names = [MemberName::Instance("one".to_owned()), MemberName::Id("nobody".to_owned())];
    let removed = admin.remove_members("busy", &names, "a test").await;
    removed[0].1.as_ref().unwrap();
    assert_eq!(removed[1].1.as_ref().unwrap_err().code(), Some(ErrorCode::UNKNOWN_MEMBER_ID));
    drop(member);
}
