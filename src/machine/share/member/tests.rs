//! A member of a share group, and a coordinator that answers as the test says.

use super::*;
use kafka_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};

const SECOND: Duration = Duration::from_secs(1);
const ORDERS: Uuid = Uuid::from_u128(7);

fn member(now: Instant) -> ShareMember {
    let config = MemberConfig {
        topics: [Topic::from("orders")].into(),
        rack: Some("r1".to_owned()),
        session_timeout: 10 * SECOND,
        ..MemberConfig::new("g")
    };
    let mut member = ShareMember::new(now, config, "me".to_owned(), 7);
    let asked = member.poll_transmit(now).unwrap();
    assert!(matches!(asked.request, MemberRequest::FindCoordinator));
    member.handle_coordinator(now, asked.id, Ok(NodeId(1)));
    member
}

fn heartbeat(member: &mut ShareMember, now: Instant) -> (u64, ShareGroupHeartbeatRequest) {
    let transmit = member.poll_transmit(now).expect("a heartbeat is due");
    let MemberRequest::Heartbeat(NodeId(1), request) = transmit.request else { panic!("{transmit:?}") };
    (transmit.id, request)
}

fn answer(epoch: i32, partitions: Option<&[i32]>) -> ShareGroupHeartbeatResponse {
    let assignment = partitions.map(|partitions| {
        let topic = TopicPartitions::default().with_topic_id(ORDERS).with_partitions(partitions.to_vec());
        Assignment::default().with_topic_partitions(vec![topic])
    });
    ShareGroupHeartbeatResponse::default()
        .with_member_epoch(epoch)
        .with_heartbeat_interval_ms(3_000)
        .with_assignment(assignment)
}

fn refusal(code: ErrorCode) -> ShareGroupHeartbeatResponse {
    ShareGroupHeartbeatResponse::default().with_error_code(code.0)
}

fn names(id: Uuid) -> Option<Topic> {
    (id == ORDERS).then(|| Topic::from("orders"))
}

fn assigned(partitions: &[i32]) -> MemberEvent {
    let all = partitions.iter().map(|partition| (TopicPartition::new("orders", *partition), ORDERS));
    MemberEvent::Assigned(all.collect())
}

fn events(member: &mut ShareMember) -> Vec<MemberEvent> {
    std::iter::from_fn(|| member.poll_event()).collect()
}

/// A member that has these partitions.
fn stable(now: Instant, partitions: &[i32]) -> ShareMember {
    let mut member = member(now);
    let (id, _) = heartbeat(&mut member, now);
    member.handle_heartbeat(now, id, &answer(1, Some(partitions)), names);
    events(&mut member);
    member
}

#[test]
fn the_first_heartbeat_says_everything_and_the_next_ones_only_who_it_is() {
    let now = Instant::now();
    let mut member = member(now);
    let (id, first) = heartbeat(&mut member, now);
    assert_eq!((first.member_id.as_str(), first.member_epoch, first.rack_id.as_deref()), ("me", 0, Some("r1")));
    assert_eq!(first.subscribed_topic_names.unwrap()[0].as_str(), "orders");
    member.handle_heartbeat(now, id, &answer(1, Some(&[0, 1])), names);
    assert_eq!(events(&mut member), [MemberEvent::Joined, assigned(&[0, 1])]);
    assert_eq!(member.poll_timeout(), Some(now + 3 * SECOND));
    assert!(member.poll_transmit(now + 2 * SECOND).is_none());
    let (id, next) = heartbeat(&mut member, now + 3 * SECOND);
    assert_eq!((next.member_epoch, next.rack_id, next.subscribed_topic_names), (1, None, None));
    member.handle_heartbeat(now + 3 * SECOND, id, &answer(2, Some(&[1])), names);
    assert_eq!(events(&mut member), [assigned(&[1])]);
}

#[test]
fn one_that_is_fenced_has_nothing_and_joins_at_once_by_the_same_id() {
    for code in [ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::FENCED_MEMBER_EPOCH, ErrorCode::GROUP_ID_NOT_FOUND] {
        let now = Instant::now();
        let mut member = stable(now, &[0]);
        let (id, _) = heartbeat(&mut member, now + 3 * SECOND);
        member.handle_heartbeat(now + 3 * SECOND, id, &refusal(code), names);
        assert_eq!(events(&mut member), [assigned(&[])]);
        let (_, again) = heartbeat(&mut member, now + 3 * SECOND);
        assert_eq!((again.member_id.as_str(), again.member_epoch), ("me", 0));
        assert!(again.subscribed_topic_names.is_some());
    }
}

#[test]
fn a_coordinator_that_is_silent_for_a_session_has_given_the_partitions_up() {
    let now = Instant::now();
    let mut member = stable(now, &[0]);
    let (id, _) = heartbeat(&mut member, now + 3 * SECOND);
    let failure = Failure { fatal: false, silent: true, what: "gone".to_owned() };
    member.handle_failure(now + 6 * SECOND, id, failure);
    assert_eq!(events(&mut member), [MemberEvent::Unreachable { what: "gone".to_owned() }]);
    member.handle_timeout(now + 9 * SECOND);
    assert_eq!(events(&mut member), []);
    member.handle_timeout(now + 10 * SECOND);
    assert_eq!(events(&mut member), [assigned(&[])]);
}

#[test]
fn an_assignment_waits_for_the_names_of_its_topics() {
    let now = Instant::now();
    let mut member = member(now);
    let (id, _) = heartbeat(&mut member, now);
    member.handle_heartbeat(now, id, &answer(1, Some(&[0])), |_| None);
    assert_eq!(events(&mut member), [MemberEvent::Joined, MemberEvent::NeedTopics(vec!["orders".into()])]);
    let again = member.poll_timeout().unwrap();
    member.handle_timeout(again);
    assert_eq!(events(&mut member), [MemberEvent::NeedTopics(vec!["orders".into()])]);
    member.handle_names(again, names);
    assert_eq!(events(&mut member), [assigned(&[0])]);
    assert_eq!(member.poll_timeout(), Some(now + 3 * SECOND), "nothing is looked up any more");
}

#[test]
fn a_group_of_another_kind_and_a_broker_without_share_groups_end_it() {
    for code in [ErrorCode::GROUP_ID_NOT_FOUND, ErrorCode::UNSUPPORTED_VERSION] {
        let now = Instant::now();
        let mut member = member(now);
        let (id, _) = heartbeat(&mut member, now);
        member.handle_heartbeat(now, id, &refusal(code), names);
        assert_eq!(events(&mut member), [MemberEvent::Ended(MemberEnd::Refused { code, message: None })]);
        assert!(member.is_ended() && member.poll_transmit(now).is_none() && member.poll_timeout().is_none());
    }
}

#[test]
fn a_coordinator_that_moved_is_looked_for_and_told_everything() {
    let now = Instant::now();
    let mut member = stable(now, &[0]);
    let (id, _) = heartbeat(&mut member, now + 3 * SECOND);
    member.handle_heartbeat(now + 3 * SECOND, id, &refusal(ErrorCode::NOT_COORDINATOR), names);
    assert!(member.poll_transmit(now + 3 * SECOND).is_none(), "not at once");
    let at = member.poll_timeout().unwrap();
    let asked = member.poll_transmit(at).unwrap();
    assert!(matches!(asked.request, MemberRequest::FindCoordinator));
    member.handle_coordinator(at, asked.id, Ok(NodeId(1)));
    let (_, again) = heartbeat(&mut member, at);
    assert_eq!(again.member_epoch, 1);
    assert!(again.subscribed_topic_names.is_some());
    assert_eq!(events(&mut member), [], "what it has it keeps");
}

#[test]
fn leaving_is_said_once_and_ends_whether_or_not_it_is_answered() {
    let now = Instant::now();
    let mut member = stable(now, &[0]);
    member.leave();
    let (id, leave) = heartbeat(&mut member, now);
    assert_eq!(leave.member_epoch, -1);
    let failure = Failure { fatal: false, silent: true, what: "gone".to_owned() };
    member.handle_failure(now, id, failure);
    assert_eq!(events(&mut member), [MemberEvent::Ended(MemberEnd::Left)]);
    let mut never = self::member(now);
    never.leave();
    assert_eq!(events(&mut never), [MemberEvent::Ended(MemberEnd::Left)]);
}

#[test]
fn one_that_has_ended_tells_nothing_of_the_coordinator_that_it_asked_for() {
    let now = Instant::now();
    let mut member = ShareMember::new(now, MemberConfig::new("g"), "me".to_owned(), 7);
    let asked = member.poll_transmit(now).unwrap();
    member.leave();
    assert_eq!(events(&mut member), [MemberEvent::Ended(MemberEnd::Left)]);
    let failure = Failure { fatal: true, silent: false, what: "gone".to_owned() };
    member.handle_coordinator(now, asked.id, Err(failure));
    assert_eq!(events(&mut member), []);
}
