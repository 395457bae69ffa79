//! What members do when others come, go, die and are slow.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use proptest::prelude::*;

use super::super::*;
use super::coordinator::Phase;
use super::world::World;
use crate::machine::assignor::{
    GroupAssignment, LastAssignment, MemberSubscription, PartitionCounts, Range, RoundRobin, Sticky,
};
use crate::protocol::subscription::Assignment;

const SECOND: Duration = Duration::from_secs(1);

fn eager() -> GroupConfig {
    GroupConfig { offers: vec![vec![Arc::new(RoundRobin)]], ..World::config() }
}

#[test]
fn a_member_alone_gets_everything() {
    let mut world = World::new(6);
    world.join();
    world.settle();
    assert_eq!(world.shares(), [6]);
    // One for the id, one to join.
    assert_eq!(world.coordinator.joins, 2);
    world.run(60 * SECOND);
    assert_eq!((world.coordinator.rebalances, world.repeats), (1, 0));
}

#[test]
fn members_that_come_share_and_what_stays_is_never_taken_away() {
    let mut world = World::new(6);
    let first = world.join();
    world.settle();
    let second = world.join();
    world.settle();
    world.run(SECOND);
    world.settle();
    assert_eq!(world.shares(), [3, 3]);
    assert_eq!(world.nodes[first].revoked(), 1);
    let third = world.join();
    world.run(SECOND);
    world.settle();
    assert_eq!(world.shares(), [2, 2, 2]);
    assert_eq!([first, second, third].map(|node| world.nodes[node].lost()), [0, 0, 0]);
    assert_eq!(world.repeats, 0);
    world.run(10 * SECOND);
    assert!(world.handled.values().all(|handled| *handled > 100), "{:?}", world.handled);
}

#[test]
fn a_static_member_goes_without_saying_so_and_its_partitions_wait_for_it() {
    let mut world = World::new(4);
    let config = GroupConfig { instance_id: Some(StrBytes::from_static_str("one")), ..World::config() };
    let first = world.join_with(config, &["orders"]);
    world.settle();
    let members = world.coordinator.members.len();
    world.leave(first);
    world.run(5 * SECOND);
    assert_eq!(world.nodes[first].end(), Some(&EndReason::Left));
    assert_eq!(world.coordinator.members.len(), members, "it was told");
    world.run(10 * SECOND);
    assert_eq!(world.coordinator.members.len(), 0, "kept until its session's end");
}

#[test]
fn eager_members_give_everything_back_before_they_join() {
    let mut world = World::new(6);
    let first = world.join_with(eager(), &["orders"]);
    world.settle();
    world.join_with(eager(), &["orders"]);
    world.run(5 * SECOND);
    world.settle();
    assert_eq!(world.shares(), [3, 3]);
    let revoked = world.nodes[first].told.iter().find_map(|event| match event {
        GroupEvent::Revoked { partitions } => Some(partitions.len()),
        _ => None,
    });
    assert_eq!((revoked, world.repeats), (Some(6), 0));
}

#[test]
fn what_a_member_leaves_goes_to_the_others_at_once() {
    let mut world = World::new(6);
    world.join();
    let second = world.join();
    world.run(SECOND);
    world.settle();
    world.leave(second);
    world.run_until(5 * SECOND, "taken over", |world| world.shares() == [6, 0]);
    assert_eq!(world.nodes[second].end(), Some(&EndReason::Left));
    assert_eq!(world.nodes[0].lost(), 0);
}

#[test]
fn what_a_dead_member_had_goes_to_the_others_after_its_session() {
    let mut world = World::new(6);
    world.join();
    let second = world.join();
    world.run(SECOND);
    world.settle();
    world.kill(second);
    let died = world.now;
    world.run_until(20 * SECOND, "taken over", |world| world.nodes[0].owns.len() == 6);
    assert!(world.now - died >= 7 * SECOND);
    assert!(world.repeats <= 6, "only what was uncommitted runs again: {}", world.repeats);
}

/// Heartbeats between messages alone cost a slow handler its membership (kafkajs#1083).
#[test]
fn a_handler_of_three_session_timeouts_keeps_its_membership() {
    let mut world = World::new(2);
    world.join();
    world.settle();
    world.work_every = 35 * SECOND;
    world.run(120 * SECOND);
    assert_eq!((world.nodes[0].lost(), world.coordinator.rebalances), (0, 1));
}

#[test]
fn a_revocation_is_waited_for_and_what_it_commits_is_seen_by_the_next_owner() {
    let mut world = World::new(2);
    world.join();
    world.settle();
    world.nodes[0].handler = 20 * SECOND;
    let second = world.join();
    world.run(15 * SECOND);
    assert_eq!(world.nodes[second].owns.len(), 0);
    world.run_until(20 * SECOND, "handed over", |world| world.nodes[second].owns.len() == 1);
    world.run(SECOND);
    assert_eq!((world.repeats, world.nodes[0].lost()), (0, 0));
}

#[test]
fn what_is_kept_is_committed_while_others_are_waited_for() {
    let mut world = World::new(6);
    world.join();
    world.join();
    world.run(SECOND);
    world.settle();
    // The third member makes the second give something back, slowly; the first waits in its JoinGroup.
    world.nodes[1].handler = 30 * SECOND;
    world.join();
    world.run(10 * SECOND);
    let before = world.coordinator.committed.clone();
    assert!(matches!(world.coordinator.phase, Phase::Joining { .. }), "{:?}", world.coordinator.phase);
    world.run(5 * SECOND);
    let moved = world.nodes[0].owns.keys().filter(|p| world.coordinator.committed.get(p) > before.get(p)).count();
    assert!(moved > 0, "{}", world.picture());
    world.run(30 * SECOND);
    world.settle();
    assert_eq!(world.repeats, 0);
}

#[test]
fn a_revocation_that_is_never_answered_ends_at_its_deadline_and_says_so() {
    let mut world = World::new(2);
    let config = GroupConfig { revocation_timeout: 5 * SECOND, ..World::config() };
    world.join_with(config.clone(), &["orders"]);
    world.settle();
    world.nodes[0].handler = 3600 * SECOND;
    world.join_with(config, &["orders"]);
    world.run_until(10 * SECOND, "let go", |world| world.shares() == [1, 1]);
    assert!(matches!(world.nodes[0].faults()[..], [GroupFault::RevocationTimedOut { .. }]));
}

/// A member that went on after UNKNOWN_MEMBER_ID worked as a zombie (kafkajs#1474, franz-go 1.21.3).
#[test]
fn an_expelled_member_loses_everything_at_once_and_joins_again() {
    let mut world = World::new(2);
    world.join();
    world.settle();
    world.run(SECOND);
    let id = world.nodes[0].group.member_id.to_string();
    world.coordinator.expel(world.now, &id);
    // The next commit says so, long before the next heartbeat.
    world.run_until(SECOND, "lost", |world| world.nodes[0].lost() == 1);
    world.settle();
    assert_ne!(world.nodes[0].group.member_id.to_string(), id);
    assert_eq!(world.nodes[0].revoked(), 0);
}

#[test]
fn a_member_that_is_cut_off_gives_up_when_its_session_is_over() {
    let mut world = World::new(2);
    world.join();
    let second = world.join();
    world.run(SECOND);
    world.settle();
    world.nodes[second].cut = true;
    world.run_until(14 * SECOND, "gave up", |world| world.nodes[second].owns.is_empty());
    world.run(5 * SECOND);
    assert_eq!(world.nodes[0].owns.len(), 2);
    world.nodes[second].cut = false;
    world.run(60 * SECOND);
    world.settle();
    assert_eq!(world.shares(), [1, 1]);
}

/// A coordinator that still has the member finds that nothing about it has changed and lets it into the same generation, where
/// it takes what was sent before the member let go.
#[test]
fn one_that_gave_up_and_says_the_same_as_ever_comes_again_as_another_member() {
    for plain_subscription in [true, false] {
        let mut world = World::new(2);
        world.join_with(GroupConfig { plain_subscription, ..eager() }, &["orders"]);
        world.settle();
        let id = world.nodes[0].group.member_id.clone();
        world.nodes[0].cut = true;
        world.run_until(14 * SECOND, "gave up", |world| world.nodes[0].owns.is_empty());
        let again = world.nodes[0].group.member_id.clone();
        // A subscription that says its generation has changed by that.
        assert_eq!(again, if plain_subscription { StrBytes::new() } else { id });
        world.nodes[0].cut = false;
        world.run(30 * SECOND);
        world.settle();
    }
}

#[test]
fn a_coordinator_that_moves_costs_nothing_but_time() {
    let mut world = World::new(4);
    world.join();
    world.join();
    world.run(SECOND);
    world.settle();
    let rebalances = world.coordinator.rebalances;
    world.coordinator.refuse = Some(ErrorCode::NOT_COORDINATOR);
    world.run(3 * SECOND);
    world.coordinator.refuse = Some(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    world.run(2 * SECOND);
    world.coordinator.refuse = None;
    world.run(10 * SECOND);
    world.settle();
    assert_eq!(world.coordinator.rebalances, rebalances);
    assert_eq!((world.nodes[0].lost(), world.nodes[1].lost(), world.repeats), (0, 0, 0));
    assert!(world.nodes.iter().all(|node| node.outcomes.iter().all(|outcome| outcome.result.is_ok())));
}

#[test]
fn a_coordinator_that_restarts_in_the_middle_of_a_join_is_joined_again() {
    let mut world = World::new(4);
    world.join();
    world.settle();
    world.nodes[0].handler = 3 * SECOND;
    world.join();
    world.run(SECOND);
    world.coordinator.restart(world.now);
    world.run(400 * SECOND);
    world.settle();
    assert_eq!(world.shares(), [2, 2]);
}

/// A commit in the middle of a rebalance made members join again and again (platformatic#268, #370).
#[test]
fn twenty_members_that_commit_all_the_time_rebalance_no_more_than_needed() {
    let mut world = World::new(40);
    world.work_every = Duration::from_millis(20);
    for _ in 0..20 {
        world.join();
    }
    world.run(10 * SECOND);
    world.settle();
    assert_eq!(world.shares(), [2; 20]);
    world.run(10 * SECOND);
    // Each needs an id, a join, and at most one more for each of a few rounds.
    assert!(world.coordinator.joins <= 20 * 6, "{}", world.coordinator.joins);
    assert_eq!(world.repeats, 0);
}

#[test]
fn new_partitions_make_the_leader_ask_for_a_rebalance_once() {
    let mut world = World::new(2);
    world.join();
    world.join();
    world.run(SECOND);
    world.settle();
    let before = world.coordinator.rebalances;
    world.counts.insert("orders".into(), 6);
    for node in 0..2 {
        let (now, counts) = (world.now, world.counts.clone());
        world.nodes[node].group.handle_counts(now, |topic| counts.get(topic).copied());
    }
    world.run(SECOND);
    world.settle();
    assert_eq!(world.shares(), [3, 3]);
    assert_eq!(world.coordinator.rebalances, before + 1);
    let (now, counts) = (world.now, world.counts.clone());
    world.nodes[0].group.handle_counts(now, |topic| counts.get(topic).copied());
    world.run(SECOND);
    assert_eq!(world.coordinator.rebalances, before + 1);
}

#[test]
fn a_topic_that_appears_later_is_assigned() {
    let mut world = World::new(2);
    world.join_with(World::config(), &["orders", "orders-retry-1"]);
    world.settle();
    assert!(matches!(world.nodes[0].faults()[..], [GroupFault::TopicsMissing { .. }]));
    world.counts.insert("orders-retry-1".into(), 2);
    let (now, counts) = (world.now, world.counts.clone());
    world.nodes[0].group.handle_counts(now, |topic| counts.get(topic).copied());
    world.settle();
    assert_eq!(world.shares(), [4]);
}

fn subscribe(world: &mut World, topics: &[&str]) {
    let topics = topics.iter().map(|topic| Topic::from(*topic)).collect();
    world.nodes[0].group.subscribe(world.now, topics);
}

#[test]
fn another_subscription_is_joined_with_and_what_is_not_wanted_is_given_back() {
    for config in [World::config(), eager()] {
        let mut world = World::new(2);
        world.counts.insert("bills".into(), 3);
        world.join_with(config, &["orders"]);
        world.run(SECOND);
        assert_eq!(world.shares(), [2]);
        subscribe(&mut world, &["bills", "orders"]);
        world.settle();
        assert_eq!(world.shares(), [5]);
        subscribe(&mut world, &["bills"]);
        world.run(SECOND);
        assert!(world.nodes[0].owns.keys().all(|partition| partition.topic == "bills"));
        assert_eq!((world.shares(), world.nodes[0].faults().len()), (vec![3], 0));
        let rebalances = world.coordinator.rebalances;
        subscribe(&mut world, &["bills"]);
        world.run(SECOND);
        assert_eq!(world.coordinator.rebalances, rebalances, "the same is no reason to join");
    }
}

/// The join that is under way has the old topics: without another one the new ones were never read.
#[test]
fn a_subscription_that_changes_during_a_join_is_joined_with_after_it() {
    for wait in 0..12 {
        let mut world = World::new(2);
        world.counts.insert("bills".into(), 3);
        world.join_with(World::config(), &["orders"]);
        world.run(Duration::from_millis(3 * wait));
        subscribe(&mut world, &["bills"]);
        world.run(2 * SECOND);
        assert_eq!(world.shares(), [3], "after {wait} hops");
        assert!(world.nodes[0].faults().is_empty());
    }
}

#[test]
fn eager_sticky_members_get_back_what_they_had() {
    let sticky = || GroupConfig { offers: vec![vec![Arc::new(Sticky)]], ..World::config() };
    let mut world = World::new(6);
    for _ in 0..2 {
        world.join_with(sticky(), &["orders"]);
        world.settle();
    }
    let had: Vec<BTreeSet<_>> = world.nodes.iter().map(|node| node.owns.keys().cloned().collect()).collect();
    world.join_with(sticky(), &["orders"]);
    world.run(SECOND);
    world.settle();
    assert_eq!(world.shares(), [2, 2, 2]);
    for (node, had) in world.nodes.iter().zip(&had) {
        assert!(node.owns.keys().all(|partition| had.contains(partition)));
    }
}

/// An assignor of the caller's own, which tells its members how many partitions there are.
#[derive(Debug, Default)]
struct Own {
    panics_in: &'static str,
    gives_twice: bool,
    heard: std::sync::Mutex<Vec<Bytes>>,
}

impl Assignor for Own {
    fn name(&self) -> &str {
        "own"
    }

    fn user_data(&self, last: Option<LastAssignment<'_>>) -> Option<Bytes> {
        assert_ne!(self.panics_in, "user_data");
        last.map(|last| Bytes::from(last.partitions.len().to_string()))
    }

    fn assign(&self, members: &[MemberSubscription], partitions: &PartitionCounts) -> GroupAssignment {
        assert_ne!(self.panics_in, "assign");
        let mut assignment = RoundRobin.assign(members, partitions);
        if self.gives_twice {
            let all = assignment.values().flatten().cloned().collect::<Vec<_>>();
            assignment.values_mut().for_each(|partitions| partitions.clone_from(&all));
        }
        assignment
    }

    fn assignment_data(&self, member: &MemberSubscription, partitions: &[TopicPartition]) -> Option<Bytes> {
        let before = member.subscription.user_data.as_deref().unwrap_or(b"none");
        Some(Bytes::from(format!("{} after {}", partitions.len(), String::from_utf8_lossy(before))))
    }

    fn assigned(&self, _: LastAssignment<'_>, data: Option<&Bytes>) {
        assert_ne!(self.panics_in, "assigned");
        self.heard.lock().unwrap().extend(data.cloned());
    }
}

#[test]
fn an_assignor_of_the_callers_own_deals_out_and_talks_to_itself() {
    let own = Arc::new(Own::default());
    let config = || GroupConfig { offers: vec![vec![own.clone()]], ..World::config() };
    let mut world = World::new(4);
    for _ in 0..2 {
        world.join_with(config(), &["orders"]);
        world.run(SECOND);
        world.settle();
    }
    assert_eq!(world.shares(), [2, 2]);
    let mut heard: Vec<_> =
        own.heard.lock().unwrap().iter().map(|data| String::from_utf8(data.to_vec()).unwrap()).collect();
    heard.sort();
    assert_eq!(heard, ["2 after 4", "2 after none", "4 after none"]);
}

#[test]
fn an_assignor_that_panics_or_gives_a_partition_twice_ends_the_membership_and_says_so() {
    for (panics_in, gives_twice, says) in [
        ("assign", false, "panicked in assigning"),
        ("user_data", false, "panicked in its user data"),
        ("assigned", false, "panicked in hearing its assignment"),
        ("", true, "twice"),
    ] {
        let own = Arc::new(Own { panics_in, gives_twice, ..Own::default() });
        let mut world = World::new(2);
        for _ in 0..2 {
            world.join_with(GroupConfig { offers: vec![vec![own.clone()]], ..World::config() }, &["orders"]);
        }
        world.run(SECOND);
        let ended = world.nodes.iter().flat_map(|node| &node.told).filter_map(|event| match event {
            GroupEvent::Ended { reason: EndReason::Failed { what } } => Some(what.as_str()),
            _ => None,
        });
        let ended: Vec<_> = ended.collect();
        assert!(!ended.is_empty() && ended.iter().all(|what| what.contains(says)), "{panics_in}: {ended:?}");
    }
}

/// Node has a member for each level of a ladder, so subscriptions differ within a group.
#[test]
fn members_with_different_topics_get_their_own_alone() {
    let mut world = World::new(3);
    world.counts.insert("retry".into(), 3);
    world.join_with(eager(), &["orders"]);
    world.join_with(eager(), &["retry"]);
    world.join_with(eager(), &["orders", "retry"]);
    world.run(SECOND);
    world.settle();
    for (node, topics) in [(0, "orders"), (1, "retry")] {
        assert!(world.nodes[node].owns.keys().all(|partition| partition.topic == topics));
    }
}

#[test]
fn a_group_that_runs_another_assignor_is_joined_with_that() {
    let mut world = World::new(4);
    let node_like = GroupConfig { plain_subscription: true, ..eager() };
    world.join_with(node_like, &["orders"]);
    world.settle();
    let ours = world.join();
    world.run(5 * SECOND);
    world.settle();
    assert_eq!(world.shares(), [2, 2]);
    let expected = GroupFault::OtherAssignor { wanted: vec!["cooperative-sticky".into()], used: "roundrobin".into() };
    assert_eq!(world.nodes[ours].faults(), [&expected]);
}

#[test]
fn a_group_with_no_assignor_in_common_is_not_joined() {
    let mut world = World::new(4);
    world.join_with(eager(), &["orders"]);
    world.settle();
    let config = GroupConfig { offers: vec![vec![Arc::new(Range)]], ..World::config() };
    let ours = world.join_with(config, &["orders"]);
    world.run(5 * SECOND);
    assert_eq!(world.nodes[ours].end(), Some(&EndReason::NoCommonAssignor { offered: vec!["range".into()] }));
    assert_eq!(world.shares(), [4, 0]);
}

/// A fixed id used twice: one fences the other, and silence followed (jitsu#1491).
#[test]
fn a_fenced_member_ends_loudly() {
    let mut world = World::new(2);
    world.join();
    world.settle();
    world.coordinator.refuse = Some(ErrorCode::FENCED_INSTANCE_ID);
    world.run(5 * SECOND);
    assert_eq!(world.nodes[0].end(), Some(&EndReason::Fenced));
    assert_eq!((world.nodes[0].lost(), world.shares()), (1, vec![0]));
}

/// The heartbeat's timer was not set again after an error that is not the group's (platformatic#376).
#[test]
fn an_error_that_means_nothing_to_the_group_does_not_stop_heartbeats() {
    let mut world = World::new(2);
    world.join();
    world.settle();
    world.coordinator.refuse = Some(ErrorCode::UNKNOWN_SERVER_ERROR);
    world.run(5 * SECOND);
    world.coordinator.refuse = None;
    world.run(60 * SECOND);
    assert_eq!((world.nodes[0].lost(), world.coordinator.rebalances), (0, 1));
}

/// A member of a platformatic leader got partitions of topics that it never asked for.
#[test]
fn foreign_partitions_are_reported_and_left_alone() {
    let now = Instant::now();
    let mut group = Group::new(now, World::config(), [Topic::from("orders")], 1);
    let (id, _) = joined(&mut group, now, "somebody else");
    let partitions = vec![TopicPartition::new("orders", 1), TopicPartition::new("payments", 0)];
    let assignment = Assignment { partitions, user_data: None }.encode(0).unwrap();
    group.handle_sync(now, id, SyncGroupResponse::default().with_assignment(assignment));
    let events: Vec<_> = std::iter::from_fn(|| group.poll_event()).collect();
    let foreign = GroupFault::ForeignPartitions { partitions: vec![TopicPartition::new("payments", 0)] };
    let added = vec![TopicPartition::new("orders", 1)];
    assert_eq!(events, [GroupEvent::Fault(foreign), GroupEvent::Assigned { generation: 4, added }]);
}

#[test]
fn an_empty_or_malformed_assignment_is_an_assignment_of_nothing() {
    for (bytes, faults) in [(&b""[..], 0), (&b"\x00\x00\xff"[..], 1)] {
        let now = Instant::now();
        let mut group = Group::new(now, World::config(), [Topic::from("orders")], 1);
        let (id, _) = joined(&mut group, now, "somebody else");
        group.handle_sync(now, id, SyncGroupResponse::default().with_assignment(Bytes::from_static(bytes)));
        let events: Vec<_> = std::iter::from_fn(|| group.poll_event()).collect();
        assert_eq!(events.len(), faults + 1);
        assert_eq!(events.last(), Some(&GroupEvent::Assigned { generation: 4, added: vec![] }));
        assert!(group.is_stable());
    }
}

/// A strict leader throws over, or assigns nothing to, a member that writes version 1 without owned partitions.
#[test]
fn a_leader_reads_subscriptions_that_end_early_and_serves_the_union_of_topics() {
    use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;

    let now = Instant::now();
    let mut group = Group::new(now, eager(), [Topic::from("orders")], 1);
    join(&mut group, now);
    let id = transmit(&mut group, now).id;
    let early = Bytes::from_static(b"\x00\x01\x00\x00\x00\x01\x00\x05retry\xff\xff\xff\xff");
    let mut ours = Bytes::from_static(b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff");
    let members = [("me", &mut ours), ("node", &mut early.clone()), ("broken", &mut Bytes::from_static(b"\xff"))].map(
        |(id, metadata)| {
            JoinGroupResponseMember::default()
                .with_member_id(StrBytes::from_static_str(id))
                .with_metadata(std::mem::take(metadata))
        },
    );
    let response = join_response("me").with_protocol_name(Some(StrBytes::from_static_str("roundrobin")));
    group.handle_join(now, id, response.with_members(members.to_vec()));
    let events: Vec<_> = std::iter::from_fn(|| group.poll_event()).collect();
    assert!(
        matches!(&events[0], GroupEvent::Fault(GroupFault::MalformedSubscription { member, .. }) if member == "broken")
    );
    assert_eq!(events[1], GroupEvent::NeedTopics { topics: vec!["orders".into(), "retry".into()] });
    group.handle_topics([("orders".into(), 1), ("retry".into(), 2)].into());
    let GroupRequest::Sync(_, sync) = transmit(&mut group, now).request else { panic!("not a sync") };
    let mut given: Vec<_> = sync
        .assignments
        .iter()
        .map(|a| (a.member_id.to_string(), request::decode_assignment(&a.assignment).unwrap().partitions.len()))
        .collect();
    given.sort();
    assert_eq!(given, [("broken".into(), 0), ("me".into(), 1), ("node".into(), 2)]);
}

#[test]
fn answers_that_nobody_waits_for_any_more_are_ignored() {
    let now = Instant::now();
    let mut group = Group::new(now, World::config(), [Topic::from("orders")], 1);
    let (sync, join) = joined(&mut group, now, "somebody else");
    group.handle_join(now, join, join_response("me"));
    group.handle_heartbeat(now, join, &HeartbeatResponse::default().with_error_code(25));
    group.handle_failure(now, join, Failure { fatal: true, silent: true, what: "late".into() });
    group.handle_sync(now, sync, SyncGroupResponse::default());
    group.handle_sync(now, sync, SyncGroupResponse::default().with_error_code(25));
    assert!(group.is_stable());
    assert_eq!(group.poll_event(), Some(GroupEvent::Assigned { generation: 4, added: vec![] }));
    assert_eq!(group.poll_event(), None);
}

/// A member that owns `orders-0` and has just asked to join again; also that request.
fn rejoining(config: GroupConfig, now: Instant) -> (Group, RequestId) {
    let mut group = Group::new(now, config, [Topic::from("orders")], 1);
    let (sync, _) = joined(&mut group, now, "somebody else");
    let partitions = vec![TopicPartition::new("orders", 0)];
    let assignment = Assignment { partitions, user_data: None }.encode(0).unwrap();
    group.handle_sync(now, sync, SyncGroupResponse::default().with_assignment(assignment));
    let heartbeat = transmit(&mut group, now + 3 * SECOND).id;
    let rebalance = HeartbeatResponse::default().with_error_code(ErrorCode::REBALANCE_IN_PROGRESS.0);
    group.handle_heartbeat(now + 3 * SECOND, heartbeat, &rebalance);
    let join = transmit(&mut group, now + 3 * SECOND);
    assert!(matches!(join.request, GroupRequest::Join(..)));
    while group.poll_event().is_some() {}
    (group, join.id)
}

fn lost(group: &mut Group) -> usize {
    std::iter::from_fn(|| group.poll_event())
        .filter_map(|event| if let GroupEvent::Lost { partitions, .. } = event { Some(partitions.len()) } else { None })
        .sum()
}

/// A coordinator that never answered a JoinGroup was waited for as long as the caller's timers let it, and what the
/// member kept was still taken for its own when the group had long given it away.
#[test]
fn a_coordinator_that_is_silent_in_a_join_is_looked_for_anew_and_what_its_session_held_is_lost() {
    let start = Instant::now();
    let (mut group, _) = rejoining(World::config(), start);
    // Java's defaults: rebalance timeout 300 s, five more for the answer.
    let by = start + 308 * SECOND;
    assert_eq!(group.poll_timeout(), Some(by));
    group.handle_timeout(by - Duration::from_millis(1));
    assert!(group.poll_transmit(by - Duration::from_millis(1)).is_none() && lost(&mut group) == 0);
    group.handle_timeout(by);
    assert_eq!((group.coordinator(), lost(&mut group)), (None, 1));
    let search = transmit(&mut group, by + SECOND);
    assert!(matches!(search.request, GroupRequest::FindCoordinator));
    group.handle_coordinator(by + SECOND, search.id, Ok(NodeId(2)));
    assert!(matches!(transmit(&mut group, by + SECOND).request, GroupRequest::Join(NodeId(2), _)));
}

#[test]
fn a_coordinator_that_is_silent_in_a_sync_is_looked_for_anew() {
    let start = Instant::now();
    let mut group = Group::new(start, World::config(), [Topic::from("orders")], 1);
    joined(&mut group, start, "somebody else");
    let by = start + 305 * SECOND;
    assert_eq!(group.poll_timeout(), Some(by));
    group.handle_timeout(by);
    assert!(matches!(transmit(&mut group, by + SECOND).request, GroupRequest::FindCoordinator));
}

#[test]
fn what_is_kept_is_not_lost_by_a_silent_join_before_the_session_is_over() {
    let start = Instant::now();
    let short = GroupConfig { revocation_timeout: 10 * SECOND, session_timeout: 45 * SECOND, ..GroupConfig::new("g") };
    let (mut group, _) = rejoining(short, start);
    group.handle_timeout(start + 18 * SECOND);
    assert_eq!((group.coordinator(), lost(&mut group)), (None, 0));
    // No other coordinator is found: the session goes on from the last heartbeat, not from the join.
    group.handle_timeout(start + 48 * SECOND);
    assert_eq!(lost(&mut group), 1);
}

/// Each try that could not even be sent counted as a sign of life, so that a member that reached nobody kept its
/// partitions for ever.
#[test]
fn joins_that_never_reach_the_coordinator_do_not_keep_a_session_alive() {
    let start = Instant::now();
    let (mut group, mut join) = rejoining(World::config(), start);
    let mut now = start + 3 * SECOND;
    let mut gone = 0;
    while now < start + 14 * SECOND {
        now += SECOND;
        group.handle_failure(now, join, Failure { fatal: false, silent: true, what: "not sent".into() });
        gone += lost(&mut group);
        now += 5 * SECOND;
        group.handle_timeout(now);
        gone += lost(&mut group);
        let search = transmit(&mut group, now).id;
        group.handle_coordinator(now, search, Ok(NodeId(1)));
        join = transmit(&mut group, now).id;
    }
    assert_eq!(gone, 1);
}

#[test]
fn a_broker_that_closes_on_a_held_join_kept_the_member_until_then() {
    let start = Instant::now();
    let (mut group, join) = rejoining(World::config(), start);
    let closed = start + 200 * SECOND;
    group.handle_failure(closed, join, Failure { fatal: false, silent: false, what: "closed".into() });
    assert_eq!(lost(&mut group), 0);
    group.handle_timeout(closed + 10 * SECOND);
    assert_eq!(lost(&mut group), 1);
}

#[test]
fn a_join_at_a_broker_that_is_not_the_coordinator_any_more_is_not_waited_for() {
    let start = Instant::now();
    let (mut group, join) = rejoining(World::config(), start);
    let now = start + 10 * SECOND;
    // As a commit learned that was not answered.
    group.coordinator_moved(now, NodeId(1));
    let search = transmit(&mut group, now + SECOND).id;
    group.handle_coordinator(now + SECOND, search, Ok(NodeId(2)));
    assert!(matches!(transmit(&mut group, now + SECOND).request, GroupRequest::Join(NodeId(2), _)));
    group.handle_join(now + SECOND, join, join_response("me"));
    assert_eq!(lost(&mut group), 0);
}

fn join(group: &mut Group, now: Instant) {
    let Transmit { id, .. } = transmit(group, now);
    group.handle_coordinator(now, id, Ok(NodeId(1)));
}

fn join_response(leader: &'static str) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_generation_id(4)
        .with_protocol_name(Some(StrBytes::from_static_str("cooperative-sticky")))
        .with_leader(StrBytes::from_static_str(leader))
        .with_member_id(StrBytes::from_static_str("me"))
}

/// Up to the SyncGroup that waits for its answer; also the id of the join before it.
fn joined(group: &mut Group, now: Instant, leader: &'static str) -> (RequestId, RequestId) {
    join(group, now);
    let join = transmit(group, now).id;
    group.handle_join(now, join, join_response(leader));
    (transmit(group, now).id, join)
}

fn transmit(group: &mut Group, now: Instant) -> Transmit {
    group.poll_transmit(now).expect("something to send")
}

/// What may happen to a group.
#[derive(Debug, Clone)]
enum Op {
    Join { eager: bool },
    Leave(u8),
    Kill(u8),
    Expel(u8),
    Cut(u8),
    Heal,
    Slow { node: u8, seconds: u8 },
    Refuse(u8),
    Restart,
    Grow,
    Pass { ms: u16 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => any::<bool>().prop_map(|eager| Op::Join { eager }),
        1 => any::<u8>().prop_map(Op::Leave),
        1 => any::<u8>().prop_map(Op::Kill),
        1 => any::<u8>().prop_map(Op::Expel),
        1 => any::<u8>().prop_map(Op::Cut),
        2 => Just(Op::Heal),
        1 => (any::<u8>(), 0..15_u8).prop_map(|(node, seconds)| Op::Slow { node, seconds }),
        1 => any::<u8>().prop_map(Op::Refuse),
        1 => Just(Op::Restart),
        1 => Just(Op::Grow),
        8 => (0..6_000_u16).prop_map(|ms| Op::Pass { ms }),
    ]
}

fn chaos(eager_group: bool, ops: Vec<Op>) {
    let mut world = World::new(5);
    world.work_every = Duration::from_millis(300);
    let config = |_eager: bool| {
        let config = if eager_group { eager() } else { World::config() };
        GroupConfig { revocation_timeout: 20 * SECOND, ..config }
    };
    world.join_with(config(false), &["orders"]);
    for op in ops {
        let pick = |node: u8| usize::from(node) % world.nodes.len();
        match op {
            Op::Join { eager } if world.living().count() < 5 => {
                world.join_with(config(eager), &["orders"]);
            }
            Op::Join { .. } => {}
            Op::Leave(node) => world.leave(pick(node)),
            Op::Kill(node) => world.kill(pick(node)),
            Op::Expel(node) => {
                let id = world.nodes[pick(node)].group.member_id.to_string();
                world.coordinator.expel(world.now, &id);
            }
            Op::Cut(node) => {
                let node = pick(node);
                world.nodes[node].cut = true;
            }
            Op::Heal => {
                world.coordinator.refuse = None;
                world.nodes.iter_mut().for_each(|node| node.cut = false);
            }
            Op::Slow { node, seconds } => {
                let node = pick(node);
                world.nodes[node].handler = u32::from(seconds) * SECOND;
            }
            Op::Refuse(code) => {
                let codes = [
                    ErrorCode::NOT_COORDINATOR,
                    ErrorCode::COORDINATOR_NOT_AVAILABLE,
                    ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
                    ErrorCode::UNKNOWN_SERVER_ERROR,
                    ErrorCode::REQUEST_TIMED_OUT,
                ];
                world.coordinator.refuse = Some(codes[usize::from(code) % codes.len()]);
            }
            Op::Restart => world.coordinator.restart(world.now),
            Op::Grow => {
                let count = world.counts["orders"];
                if count < 9 {
                    world.counts.insert("orders".into(), count + 1);
                }
                let (now, counts) = (world.now, world.counts.clone());
                for node in world.nodes.iter_mut().filter(|node| !node.dead) {
                    node.group.handle_counts(now, |topic| counts.get(topic).copied());
                }
            }
            Op::Pass { ms } => world.run(Duration::from_millis(ms.into())),
        }
    }
    // Calm: every partition finds an owner, and all goes on.
    world.coordinator.refuse = None;
    world.nodes.iter_mut().for_each(|node| node.cut = false);
    world.join_with(config(false), &["orders"]);
    world.run(60 * SECOND);
    let (now, counts) = (world.now, world.counts.clone());
    for node in world.nodes.iter_mut().filter(|node| !node.dead) {
        node.group.handle_counts(now, |topic| counts.get(topic).copied());
    }
    world.run(30 * SECOND);
    world.settle();
    let before = world.coordinator.committed.clone();
    world.run(5 * SECOND);
    for partition in 0..world.counts["orders"] {
        let partition = TopicPartition::new("orders", partition);
        assert!(world.coordinator.committed.get(&partition) > before.get(&partition), "{partition} stands still");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// No partition has two owners in one generation, nothing is committed that was not handled, nothing is skipped,
    /// and after calm every partition is owned and moves.
    #[test]
    fn a_cooperative_group_survives_whatever_happens(ops in prop::collection::vec(op(), 1..25)) {
        chaos(false, ops);
    }

    #[test]
    fn an_eager_group_survives_whatever_happens(ops in prop::collection::vec(op(), 1..25)) {
        chaos(true, ops);
    }
}

/// A member that left before its coordinator was found ended twice, and told of faults behind its end.
#[test]
fn what_is_answered_after_the_end_tells_nothing() {
    let now = Instant::now();
    for fatal in [true, false] {
        let mut group = Group::new(now, World::config(), ["t".into()], 1);
        let asked = group.poll_transmit(now).expect("the coordinator is looked for").id;
        group.leave();
        assert!(matches!(group.poll_event(), Some(GroupEvent::Ended { reason: EndReason::Left })));
        group.handle_coordinator(now, asked, Err(Failure { fatal, silent: true, what: String::new() }));
        assert_eq!(group.poll_event(), None);
    }
}

/// A coordinator that took each join and then knew nothing of the member was asked by its round trips, three hundred times a second.
#[test]
fn a_coordinator_that_takes_joins_and_no_members_is_asked_ever_more_slowly() {
    let begun = Instant::now();
    let (mut now, mut joins) = (begun, 0);
    let mut group = Group::new(now, World::config(), ["t".into()], 1);
    while now < begun + 60 * SECOND {
        group.handle_timeout(now);
        while group.poll_event().is_some() {}
        let Some(Transmit { id, request, .. }) = group.poll_transmit(now) else {
            now = group.poll_timeout().expect("it goes on");
            continue;
        };
        match request {
            GroupRequest::FindCoordinator => group.handle_coordinator(now, id, Ok(NodeId(1))),
            GroupRequest::Join(..) => {
                joins += 1;
                let answer = JoinGroupResponse::default()
                    .with_member_id(StrBytes::from_static_str("m"))
                    .with_leader(StrBytes::from_static_str("other"))
                    .with_protocol_name(Some(StrBytes::from_static_str("cooperative-sticky")))
                    .with_generation_id(joins);
                group.handle_join(now, id, answer);
            }
            GroupRequest::Sync(..) => {
                let refused = SyncGroupResponse::default().with_error_code(ErrorCode::UNKNOWN_MEMBER_ID.0);
                group.handle_sync(now, id, refused);
            }
            _ => {}
        }
    }
    assert!((15..80).contains(&joins), "{joins} joins in a minute");
}
