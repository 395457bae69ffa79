//! What members of a KIP-848 group do when others come, go, die and are slow, and when the coordinator refuses.

use std::collections::BTreeSet;
use std::time::Duration;

use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use proptest::prelude::*;

use super::super::*;
use super::coordinator::{ORDERS, assignment};
use super::world::World;
use crate::machine::group::CommitReaction;

const SECOND: Duration = Duration::from_secs(1);

fn static_member(id: &'static str) -> GroupConfig {
    GroupConfig { instance_id: Some(StrBytes::from_static_str(id)), ..World::config() }
}

#[test]
fn a_member_joins_with_nothing_and_everything_said_and_then_says_only_what_changes() {
    let mut world = World::new(4);
    let config = GroupConfig { server_assignor: Some(StrBytes::from_static_str("range")), ..World::config() };
    world.join_with(config);
    world.settle();
    world.run(5 * SECOND);
    let seen = &world.coordinator.seen;
    let join = &seen[0];
    assert_eq!((join.member_id.as_str(), join.member_epoch, join.rebalance_timeout_ms), ("member-0", 0, 301_000));
    assert_eq!(join.topic_partitions.as_deref(), Some(&[][..]), "of one that owns nothing, an empty list");
    assert_eq!(join.server_assignor.as_deref(), Some("range"));
    assert_eq!(join.subscribed_topic_names.as_ref().unwrap()[0].as_str(), "orders");
    let owned = &seen[1].topic_partitions.as_ref().expect("what came is told at once")[0];
    assert_eq!((owned.topic_id, owned.partitions.as_slice()), (ORDERS, &[0, 1, 2, 3][..]));
    assert!(seen[1..].iter().all(|r| r.subscribed_topic_names.is_none() && r.rebalance_timeout_ms == -1));
    assert!(seen[2..].iter().all(|r| r.topic_partitions.is_none() && r.member_epoch == 1));
    assert!((6..=8).contains(&seen.len()), "at the interval that the coordinator says: {}", seen.len());
}

#[test]
fn another_subscription_is_said_once_with_the_next_heartbeat_and_again_if_that_was_lost() {
    let mut world = World::new(4);
    world.join();
    world.settle();
    let said = |world: &World| {
        let names = world.coordinator.seen.iter().filter_map(|request| request.subscribed_topic_names.as_ref());
        names.map(|names| names.iter().map(|name| name.to_string()).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let topics = |names: &[&str]| names.iter().map(|name| Topic::from(*name)).collect::<BTreeSet<_>>();
    let now = world.now;
    world.nodes[0].group.subscribe(now, topics(&["bills", "orders"]));
    world.run(SECOND);
    assert_eq!(said(&world), ["orders", "bills orders"], "at once, and not again");
    let now = world.now;
    world.nodes[0].group.subscribe(now, topics(&["orders"]));
    let lost = world.nodes[0].group.poll_transmit(now).expect("it is due");
    let failure = Failure { fatal: false, silent: true, what: "lost".to_owned() };
    world.nodes[0].group.handle_failure(now, lost.id, failure);
    world.run(10 * SECOND);
    assert_eq!(said(&world), ["orders", "bills orders", "orders"]);
}

#[test]
fn what_goes_is_given_back_and_acknowledged_before_another_gets_it() {
    let mut world = World::new(6);
    let first = world.join();
    world.settle();
    world.nodes[first].handler = 3 * SECOND;
    world.join();
    world.run(2 * SECOND);
    assert_eq!(world.shares(), [6, 0], "the second waits for the first's handlers");
    assert!(matches!(world.nodes[first].group.commit_gate(), CommitGate::Open(_)), "which can commit meanwhile");
    world.settle();
    assert_eq!(world.shares(), [3, 3]);
    world.join();
    world.settle();
    assert_eq!(world.shares(), [2, 2, 2]);
    assert!(world.nodes.iter().all(|node| node.lost() == 0));
    assert_eq!(world.nodes[first].revoked(), 2, "and nothing else was disturbed");
}

#[test]
fn one_that_dies_or_leaves_is_followed_by_the_others() {
    let mut world = World::new(6);
    let [first, second, third] = [world.join(), world.join(), world.join()];
    world.settle();
    world.kill(first);
    world.settle();
    assert_eq!(world.shares(), [0, 3, 3]);
    world.leave(second);
    world.run(2 * SECOND);
    assert_eq!(world.shares(), [0, 0, 6], "without waiting for a session's end");
    assert_eq!(world.coordinator.seen.iter().filter(|r| r.member_epoch == -1).count(), 1);
    assert_eq!(world.nodes[second].end(), Some(&EndReason::Left));
    assert_eq!(world.nodes[third].lost(), 0);
}

#[test]
fn a_member_that_is_fenced_or_forgotten_loses_all_and_joins_anew_by_another_id() {
    for code in [ErrorCode::FENCED_MEMBER_EPOCH, ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::GROUP_ID_NOT_FOUND] {
        let mut world = World::new(4);
        let at = world.join();
        world.settle();
        world.coordinator.remove("member-0");
        world.coordinator.refuse.push_back(code);
        world.run(2 * SECOND);
        world.settle();
        assert_eq!((world.nodes[at].lost(), world.shares()[at]), (1, 4));
        let joins = world.coordinator.seen.iter().filter(|r| r.member_epoch == 0);
        assert_eq!(joins.map(|join| join.member_id.as_str()).collect::<Vec<_>>(), ["member-0", "member-0-1"], "{code}");
    }
}

/// Its group was empty, became another one, and counted from the beginning: offsets of a transaction that the member had sent before it
/// lost all were taken by the same id and the same epoch, behind the position that it had read since.
#[test]
fn what_was_sent_before_a_loss_is_nothing_that_the_member_could_have_sent_after_it() {
    let mut world = World::new(4);
    let at = world.join();
    world.settle();
    let CommitGate::Open(before) = world.nodes[at].group.commit_gate() else { panic!("closed") };
    world.coordinator.members.clear();
    world.coordinator.epoch = 0;
    world.coordinator.refuse.push_back(ErrorCode::GROUP_ID_NOT_FOUND);
    world.run(2 * SECOND);
    world.settle();
    let CommitGate::Open(after) = world.nodes[at].group.commit_gate() else { panic!("closed") };
    assert_eq!((before.generation, after.generation), (1, 1));
    assert_ne!(before.member_id, after.member_id);
}

/// The answer that carried the new epoch is lost: the coordinator fences the old epoch unless the member says what it owns
/// (platformatic#376: the timer was not armed again after an error).
#[test]
fn after_a_lost_answer_the_next_heartbeat_says_everything_and_nothing_is_lost() {
    let mut world = World::new(6);
    world.join();
    world.settle();
    world.join();
    world.lose = 2;
    world.settle();
    assert_eq!(world.shares(), [3, 3]);
    assert!(world.nodes.iter().all(|node| node.lost() == 0));
    let full = world.coordinator.seen.iter().filter(|r| r.member_epoch > 0 && r.subscribed_topic_names.is_some());
    assert!(full.count() >= 1);
}

/// A partition came in an answer that was lost and was taken away by the next, which so changed nothing here. The coordinator
/// waited to hear that it was given back, and another member for the partition, until the rebalance timeout.
#[test]
fn an_assignment_that_changes_nothing_is_acknowledged_all_the_same() {
    let now = Instant::now();
    let mut group = ConsumerGroup::new(now, World::config(), [Topic::from("orders")], "m".to_owned(), 1);
    let search = group.poll_transmit(now).unwrap();
    group.handle_coordinator(now, search.id, Ok(NodeId(1)));
    let response = ConsumerGroupHeartbeatResponse::default()
        .with_member_epoch(1)
        .with_heartbeat_interval_ms(5_000)
        .with_assignment(Some(assignment(&[(ORDERS, 0)].into())));
    for _ in 0..2 {
        let told = group.poll_transmit(now).expect("at once");
        let GroupRequest::ConsumerHeartbeat(_, request) = told.request else { panic!("{told:?}") };
        assert!(request.topic_partitions.is_some());
        group.handle_heartbeat(now, told.id, &response, |_| Some(Topic::from("orders")));
    }
    let told = group.poll_transmit(now).expect("at once");
    group.handle_heartbeat(now, told.id, &response.with_assignment(None), |_| None);
    assert!(group.poll_transmit(now).is_none(), "and that is all there is to say");
}

#[test]
fn after_a_refusal_of_another_kind_it_is_told_and_the_next_heartbeat_says_everything() {
    let mut world = World::new(4);
    let at = world.join();
    world.settle();
    world.run(3 * SECOND);
    let before = world.coordinator.seen.len();
    world.coordinator.refuse.push_back(ErrorCode::UNKNOWN_SERVER_ERROR);
    world.run(3 * SECOND);
    let after = &world.coordinator.seen[before + 1];
    assert!(after.subscribed_topic_names.is_some() && after.topic_partitions.is_some() && after.member_epoch == 1);
    let refused = |event: &GroupEvent| matches!(event, GroupEvent::Fault(GroupFault::Refused { .. }));
    assert_eq!((world.nodes[at].count(refused), world.nodes[at].lost(), world.shares()[at]), (1, 0, 4));
}

#[test]
fn a_member_that_is_silent_for_a_session_lets_go_by_itself() {
    let mut world = World::new(4);
    let at = world.join();
    world.settle();
    world.lose = usize::MAX;
    world.run(9 * SECOND);
    assert_eq!(world.nodes[at].lost(), 0);
    world.run(3 * SECOND);
    assert_eq!((world.nodes[at].lost(), world.shares()[at]), (1, 0));
    assert_eq!(world.nodes[at].group.commit_gate(), CommitGate::Closed);
    world.lose = 0;
    world.settle();
}

/// The coordinator had heard the member all along and only its answers were lost: it let the member join in the epoch that it had
/// had, and took the offsets of a transaction that was sent before the loss, behind the position that was read after it.
#[test]
fn a_member_that_let_go_by_itself_joins_only_after_it_has_left_and_so_in_a_later_epoch() {
    let mut world = World::new(4);
    let at = world.join();
    world.settle();
    let before = world.nodes[at].group.epoch;
    world.lose = usize::MAX;
    world.run(20 * SECOND);
    assert_eq!(world.nodes[at].lost(), 1);
    let left = world.coordinator.seen.iter().filter(|request| request.member_epoch == -1).count();
    assert!(left > 1, "until it is known to be gone: {left}");
    let joins = |world: &World| world.coordinator.seen.iter().filter(|request| request.member_epoch == 0).count();
    assert_eq!(joins(&world), 1, "and before that it does not come again");
    world.lose = 0;
    world.settle();
    assert_eq!(joins(&world), 2);
    assert!(world.nodes[at].group.epoch > before);
}

/// Kafka before 4.2 refuses a member that it still has to join anew (KAFKA-19233): it was kept out until its session's end.
#[test]
fn one_that_is_fenced_and_still_known_leaves_before_it_joins_anew() {
    let mut world = World::new(4);
    let at = world.join();
    world.settle();
    let before = world.nodes[at].group.epoch;
    world.coordinator.refuse.push_back(ErrorCode::FENCED_MEMBER_EPOCH);
    world.run(4 * SECOND);
    let epochs: Vec<_> = world.coordinator.seen.iter().map(|request| request.member_epoch).collect();
    let left = epochs.iter().position(|epoch| *epoch == -1).expect("it left");
    assert_eq!(epochs[left + 1], 0);
    assert_eq!((world.nodes[at].lost(), world.shares()[at]), (1, 4));
    assert!(world.nodes[at].group.epoch > before);
}

/// librdkafka#5541: a member that had exceeded its interval joined with what it owned, was refused with INVALID_REQUEST and
/// never came back.
#[test]
fn one_that_does_not_give_back_in_time_leaves_and_joins_anew_with_nothing() {
    let mut world = World::new(4);
    let at = world.join_with(GroupConfig { revocation_timeout: 2 * SECOND, ..World::config() });
    world.settle();
    world.nodes[at].handler = 60 * SECOND;
    world.join();
    world.run(4 * SECOND);
    let timed_out = |event: &GroupEvent| matches!(event, GroupEvent::Fault(GroupFault::RevocationTimedOut { .. }));
    assert_eq!((world.nodes[at].count(timed_out), world.nodes[at].lost()), (1, 1));
    world.nodes[at].handler = Duration::ZERO;
    world.settle();
    assert_eq!(world.shares(), [2, 2]);
    let mine = world.coordinator.seen.iter().filter(|r| r.member_id.as_str().starts_with("member-0"));
    let mine: Vec<_> = mine.collect();
    let left = mine.iter().position(|r| r.member_epoch == -1).expect("it left");
    assert_eq!((mine[left].member_id.as_str(), mine[left + 1].member_id.as_str()), ("member-0", "member-0-1"));
    assert_eq!(mine[left + 1].member_epoch, 0);
    assert_eq!(mine[left + 1].topic_partitions.as_deref(), Some(&[][..]));
    assert_eq!(world.nodes[at].end(), None);
}

/// franz-go 1.21.6: a topic that metadata did not have was dropped from the assignment, and the coordinator never says it
/// twice.
#[test]
fn an_assigned_topic_that_is_not_known_is_kept_and_asked_for_until_it_is() {
    let mut world = World::new(4);
    world.named = false;
    let at = world.join();
    world.run(8 * SECOND);
    assert_eq!(world.shares()[at], 0);
    let asked = world.nodes[at].count(|event| matches!(event, GroupEvent::NeedTopics { .. }));
    assert!((3..20).contains(&asked), "again and again, with a wait: {asked}");
    world.named = true;
    world.settle();
    let asked = world.nodes[at].count(|event| matches!(event, GroupEvent::NeedTopics { .. }));
    world.run(20 * SECOND);
    assert_eq!(world.nodes[at].count(|event| matches!(event, GroupEvent::NeedTopics { .. })), asked, "and no more");
    assert_eq!(world.shares()[at], 4);
}

/// platformatic#267 read a stale epoch as "no commit".
#[test]
fn a_commit_of_a_stale_epoch_asks_for_the_new_one_at_once_and_loses_nothing() {
    let mut world = World::new(4);
    let at = world.join();
    world.settle();
    world.run(Duration::from_millis(3_400));
    let group = &mut world.nodes[at].group;
    let CommitGate::Open(target) = group.commit_gate() else { panic!("closed") };
    assert_eq!(group.identity(), Some((target.member_id.clone(), target.generation)));
    let due = group.poll_timeout().unwrap();
    assert!(due > world.now + Duration::from_millis(100));
    let stale = CommitReaction { rebalance: true, target: Some(target.clone()), ..CommitReaction::default() };
    group.handle_commit_reaction(world.now, &stale);
    assert!(matches!(group.poll_transmit(world.now).unwrap().request, GroupRequest::ConsumerHeartbeat(..)));
    // Of an epoch that is over: the commit is made again, and nobody else is meant.
    let old = CommitTarget { generation: target.generation - 1, ..target };
    let fenced =
        CommitReaction { fenced: Some(ErrorCode::UNKNOWN_MEMBER_ID), target: Some(old), ..CommitReaction::default() };
    group.handle_commit_reaction(world.now, &fenced);
    assert!(group.is_member());
}

#[test]
fn a_static_member_that_leaves_gets_its_partitions_back_when_it_returns() {
    let mut world = World::new(4);
    let first = world.join_with(static_member("one"));
    let second = world.join_with(static_member("two"));
    world.settle();
    let before = world.nodes[first].owns.clone();
    world.leave(first);
    world.run(3 * SECOND);
    assert_eq!(world.nodes[first].end(), Some(&EndReason::Left));
    assert_eq!(world.nodes[second].owns.len(), 2, "nobody took them");
    let again = world.join_with(static_member("one"));
    world.settle();
    assert_eq!(world.nodes[again].owns, before);
    assert_eq!(world.nodes[second].revoked() + world.nodes[second].lost(), 0);
}

#[test]
fn the_successor_of_a_static_member_that_died_waits_for_its_session_to_end() {
    let mut world = World::new(4);
    let first = world.join_with(static_member("one"));
    world.settle();
    world.kill(first);
    let second = world.join_with(static_member("one"));
    world.settle();
    assert_eq!(world.shares(), [0, 4]);
    let waited = |event: &GroupEvent| matches!(event, GroupEvent::Fault(GroupFault::Refused { .. }));
    assert!(world.nodes[second].count(waited) > 0, "not in silence");
}

/// jitsu#1491, franz-go#931: of two with one id, one was silent for ever.
#[test]
fn of_two_that_live_with_one_instance_id_the_second_ends_fenced_and_the_first_goes_on() {
    let mut world = World::new(4);
    world.join_with(static_member("one"));
    world.settle();
    let second = world.join_with(static_member("one"));
    world.run(40 * SECOND);
    assert_eq!(world.nodes[second].end(), Some(&EndReason::Fenced));
    assert_eq!(world.shares(), [4, 0]);
}

#[test]
fn a_member_whose_instance_id_was_taken_over_ends_fenced_and_loses_all() {
    let mut world = World::new(4);
    let at = world.join_with(static_member("one"));
    world.settle();
    world.coordinator.refuse.push_back(ErrorCode::FENCED_INSTANCE_ID);
    world.run(2 * SECOND);
    assert_eq!(world.nodes[at].end(), Some(&EndReason::Fenced));
    assert_eq!(world.nodes[at].lost(), 1);
}

#[test]
fn what_will_never_be_taken_ends_the_membership() {
    for code in [
        ErrorCode::UNSUPPORTED_ASSIGNOR,
        ErrorCode::GROUP_AUTHORIZATION_FAILED,
        ErrorCode::GROUP_MAX_SIZE_REACHED,
        ErrorCode::UNSUPPORTED_VERSION,
        ErrorCode::GROUP_ID_NOT_FOUND,
    ] {
        let mut world = World::new(4);
        let at = world.join();
        world.coordinator.refuse.push_back(code);
        world.run(2 * SECOND);
        let expected = EndReason::Refused { api: "ConsumerGroupHeartbeat", code };
        assert_eq!(world.nodes[at].end(), Some(&expected));
    }
}

#[test]
fn a_coordinator_that_moved_is_looked_for_and_nothing_is_lost() {
    for code in [ErrorCode::NOT_COORDINATOR, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS] {
        let mut world = World::new(4);
        let at = world.join();
        world.settle();
        world.coordinator.refuse.extend([code, code]);
        world.run(4 * SECOND);
        world.settle();
        assert_eq!((world.nodes[at].lost(), world.shares()[at]), (0, 4));
    }
}

/// The machine of `Auto` that has asked what kind of group it is, and was answered so.
fn described(state: &'static str, code: ErrorCode) -> (Instant, ConsumerGroup) {
    let now = Instant::now();
    let topics = [Topic::from("orders")];
    let mut group = ConsumerGroup::new(now, World::config(), topics, "m".to_owned(), 1).or_classic();
    let search = group.poll_transmit(now).unwrap();
    group.handle_coordinator(now, search.id, Ok(NodeId(1)));
    let asked = group.poll_transmit(now).unwrap();
    assert!(matches!(asked.request, GroupRequest::Describe(..)));
    let group_described =
        DescribedGroup::default().with_error_code(code.0).with_group_state(StrBytes::from_static_str(state));
    let response = DescribeGroupsResponse::default().with_groups(vec![group_described]);
    group.handle_description(now, asked.id, &response);
    (now, group)
}

#[test]
fn auto_leaves_a_classic_group_in_use_as_it_is() {
    for state in ["Stable", "PreparingRebalance", "CompletingRebalance"] {
        let (now, mut group) = described(state, ErrorCode::NONE);
        assert!(matches!(group.poll_event(), Some(GroupEvent::UseClassic { .. })), "{state}");
        assert!(group.poll_transmit(now).is_none() && group.poll_event().is_none());
    }
}

#[test]
fn auto_joins_any_other_group_and_falls_back_where_the_broker_does_not_have_the_protocol() {
    for (state, code) in
        [("Empty", ErrorCode::NONE), ("Dead", ErrorCode::NONE), ("Dead", ErrorCode::GROUP_ID_NOT_FOUND)]
    {
        let (now, mut group) = described(state, code);
        let join = group.poll_transmit(now).unwrap();
        assert!(matches!(join.request, GroupRequest::ConsumerHeartbeat(..)), "{state}");
        let refusal = ConsumerGroupHeartbeatResponse::default().with_error_code(ErrorCode::UNSUPPORTED_VERSION.0);
        group.handle_heartbeat(now, join.id, &refusal, |_| None);
        assert!(matches!(group.poll_event(), Some(GroupEvent::UseClassic { .. })));
    }
    let (now, mut group) = described("Dead", ErrorCode::NONE);
    let join = group.poll_transmit(now).unwrap();
    group.handle_failure(now, join.id, Failure { fatal: true, silent: true, what: "no version".into() });
    assert!(matches!(group.poll_event(), Some(GroupEvent::UseClassic { .. })));
}

#[derive(Debug, Clone)]
enum Misfortune {
    Join,
    Leave(usize),
    Kill(usize),
    LoseAnswers(usize),
    Forget(usize),
    Slow(usize),
    Refuse(ErrorCode),
}

fn misfortune() -> impl Strategy<Value = Misfortune> {
    prop_oneof![
        Just(Misfortune::Join),
        (0..4_usize).prop_map(Misfortune::Leave),
        (0..4_usize).prop_map(Misfortune::Kill),
        (1..4_usize).prop_map(Misfortune::LoseAnswers),
        (0..4_usize).prop_map(Misfortune::Forget),
        (0..4_usize).prop_map(Misfortune::Slow),
        prop_oneof![
            Just(ErrorCode::NOT_COORDINATOR),
            Just(ErrorCode::FENCED_MEMBER_EPOCH),
            Just(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
            Just(ErrorCode::UNKNOWN_SERVER_ERROR),
        ]
        .prop_map(Misfortune::Refuse),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// No partition ever has two owners (checked at every step), and in the end each has one.
    #[test]
    fn whatever_happens_every_partition_finds_one_owner(
        schedule in prop::collection::vec((misfortune(), 0..4_000_u64), 1..14)
    ) {
        let mut world = World::new(7);
        world.join();
        for (what, wait) in schedule {
            let living: Vec<_> = (0..world.nodes.len())
                .filter(|at| !world.nodes[*at].dead && !world.nodes[*at].is_going())
                .collect();
            let pick = |at: usize| living.get(at % living.len().max(1)).copied();
            match what {
                Misfortune::Join if living.len() < 5 => { world.join(); }
                Misfortune::Leave(at) if living.len() > 1 => world.leave(pick(at).unwrap()),
                Misfortune::Kill(at) if living.len() > 1 => world.kill(pick(at).unwrap()),
                Misfortune::LoseAnswers(count) => world.lose += count,
                Misfortune::Forget(at) => {
                    if let Some(at) = pick(at) {
                        let id = world.nodes[at].group.member_id.to_string();
                        world.coordinator.remove(&id);
                    }
                }
                Misfortune::Slow(at) => {
                    if let Some(at) = pick(at) {
                        world.nodes[at].handler = 5 * SECOND;
                    }
                }
                Misfortune::Refuse(code) => world.coordinator.refuse.push_back(code),
                _ => {}
            }
            world.run(Duration::from_millis(wait));
        }
        world.settle();
    }
}

/// A member that left before its coordinator was found ended twice, and told of faults behind its end.
#[test]
fn what_is_answered_after_the_end_tells_nothing() {
    let now = Instant::now();
    for fatal in [true, false] {
        let mut group = ConsumerGroup::new(now, World::config(), ["t".into()], "m".to_owned(), 1);
        let asked = group.poll_transmit(now).expect("the coordinator is looked for").id;
        group.leave();
        assert!(matches!(group.poll_event(), Some(GroupEvent::Ended { reason: EndReason::Left })));
        group.handle_coordinator(now, asked, Err(Failure { fatal, silent: true, what: String::new() }));
        assert_eq!(group.poll_event(), None);
    }
}

/// A coordinator that took each join and then fenced the member was asked by its round trips, three hundred times a second.
#[test]
fn a_coordinator_that_takes_joins_and_no_members_is_asked_ever_more_slowly() {
    let begun = Instant::now();
    let (mut now, mut joins) = (begun, 0);
    let mut group = ConsumerGroup::new(now, World::config(), ["t".into()], "m".to_owned(), 1);
    while now < begun + 60 * SECOND {
        group.handle_timeout(now);
        while group.poll_event().is_some() {}
        let Some(Transmit { id, request, .. }) = group.poll_transmit(now) else {
            now = group.poll_timeout().expect("it goes on");
            continue;
        };
        match request {
            GroupRequest::FindCoordinator => group.handle_coordinator(now, id, Ok(NodeId(1))),
            GroupRequest::ConsumerHeartbeat(_, beat) if beat.member_epoch == 0 => {
                joins += 1;
                let assigned = Assignment::default();
                let answer = ConsumerGroupHeartbeatResponse::default()
                    .with_member_epoch(joins)
                    .with_heartbeat_interval_ms(5_000)
                    .with_assignment(Some(assigned));
                group.handle_heartbeat(now, id, &answer, |_| None);
            }
            GroupRequest::ConsumerHeartbeat(..) => {
                let code = ErrorCode::FENCED_MEMBER_EPOCH.0;
                group.handle_heartbeat(
                    now,
                    id,
                    &ConsumerGroupHeartbeatResponse::default().with_error_code(code),
                    |_| None,
                );
            }
            _ => {}
        }
    }
    assert!((5..60).contains(&joins), "{joins} joins in a minute");
}

/// A coordinator that said the assignment with each answer was told what is owned by its round trips, a thousand times a second.
#[test]
fn an_assignment_that_is_said_with_each_answer_is_answered_at_the_interval() {
    let begun = Instant::now();
    let (mut now, mut beats) = (begun, 0);
    let mut group = ConsumerGroup::new(now, World::config(), ["t".into()], "m".to_owned(), 1);
    while now < begun + 60 * SECOND {
        group.handle_timeout(now);
        while group.poll_event().is_some() {}
        let Some(Transmit { id, request, .. }) = group.poll_transmit(now) else {
            now = group.poll_timeout().expect("it goes on");
            continue;
        };
        match request {
            GroupRequest::FindCoordinator => group.handle_coordinator(now, id, Ok(NodeId(1))),
            _ => {
                beats += 1;
                let answer = ConsumerGroupHeartbeatResponse::default()
                    .with_member_epoch(1)
                    .with_heartbeat_interval_ms(5_000)
                    .with_assignment(Some(assignment(&[(ORDERS, 0), (ORDERS, 1)].into())));
                group.handle_heartbeat(now, id, &answer, |_| Some("t".into()));
            }
        }
    }
    assert!((12..=15).contains(&beats), "{beats} heartbeats in a minute");
}
