use super::*;
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    SyncGroupRequest, SyncGroupResponse,
};

const SECOND: Duration = Duration::from_secs(1);

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn group() -> GroupId {
    GroupId(text("g"))
}

fn join(member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(Bytes::from_static(b"m"));
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(20_000)
        .with_member_id(text(member))
        .with_group_instance_id(None)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

fn sync(generation: i32, member: &str, assignments: &[(&str, &'static str)]) -> SyncGroupRequest {
    let assign = |(member, what): &(&str, &'static str)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(member))
            .with_assignment(Bytes::from_static(what.as_bytes()))
    };
    SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(generation)
        .with_member_id(text(member))
        .with_group_instance_id(None)
        .with_protocol_type(Some(text("consumer")))
        .with_protocol_name(Some(text("range")))
        .with_assignments(assignments.iter().map(assign).collect())
}

/// A member with a connection of its own.
struct Member {
    connection: ConnectionId,
    id: String,
    generation: i32,
}

impl Rig {
    /// Asks for an id and sends the JoinGroup.
    fn member(&mut self) -> Member {
        let connection = self.connect(1);
        let named = self.ask(connection, 9, &join(""));
        assert_eq!(code(named.error_code), ErrorCode::MEMBER_ID_REQUIRED);
        let member = Member { connection, id: named.member_id.to_string(), generation: -1 };
        self.send(connection, 9, &join(&member.id));
        member
    }

    fn joined(&mut self, member: &mut Member) -> JoinGroupResponse {
        let joined = self.answer::<JoinGroupRequest>(member.connection, 9).expect("the round is complete");
        member.generation = joined.generation_id;
        joined
    }

    fn synced(&mut self, member: &Member) -> SyncGroupResponse {
        self.answer::<SyncGroupRequest>(member.connection, 5).expect("the leader has assigned")
    }

    fn beat(&mut self, member: &Member) -> ErrorCode {
        let beat = HeartbeatRequest::default()
            .with_group_id(group())
            .with_generation_id(member.generation)
            .with_member_id(text(&member.id))
            .with_group_instance_id(None);
        code(self.ask_node(1, 4, &beat).error_code)
    }

    /// Two members in a stable group; the first leads.
    fn pair(&mut self) -> (Member, Member) {
        let mut first = self.member();
        self.joined(&mut first);
        let mut second = self.member();
        assert_eq!(self.beat(&first), ErrorCode::REBALANCE_IN_PROGRESS);
        self.send(first.connection, 9, &join(&first.id));
        let (led, followed) = (self.joined(&mut first), self.joined(&mut second));
        assert_eq!((led.members.len(), followed.members.len()), (2, 0), "the leader alone hears of all");
        assert_eq!(led.leader.as_str(), first.id);
        self.send(second.connection, 5, &sync(2, &second.id, &[]));
        assert_eq!(self.next(second.connection), None, "waits for the leader");
        self.send(first.connection, 5, &sync(2, &first.id, &[(&first.id, "one"), (&second.id, "two")]));
        assert_eq!(self.synced(&first).assignment, "one");
        assert_eq!(self.synced(&second).assignment, "two");
        (first, second)
    }

    fn described(&mut self) -> DescribedGroup {
        self.ask_node(1, 5, &DescribeGroupsRequest::default().with_groups(vec![group()])).groups[0].clone()
    }
}

#[test]
fn members_join_a_generation_and_get_what_the_leader_assigns() {
    let mut rig = Rig::new(1);
    let (first, second) = rig.pair();
    assert_eq!((rig.beat(&first), rig.beat(&second)), (ErrorCode::NONE, ErrorCode::NONE));
    let described = rig.described();
    assert_eq!((described.group_state.as_str(), described.protocol_data.as_str()), ("Stable", "range"));
    assert_eq!(described.members.len(), 2);
    assert_eq!(described.members[0].member_metadata, "m");
}

#[test]
fn a_silent_member_is_taken_out_when_its_session_ends_and_the_others_join_anew() {
    let mut rig = Rig::new(1);
    let (mut first, second) = rig.pair();
    for _ in 0..3 {
        rig.pass(3 * SECOND);
        assert_eq!(rig.beat(&first), ErrorCode::NONE);
    }
    rig.pass(SECOND);
    assert_eq!(rig.beat(&first), ErrorCode::REBALANCE_IN_PROGRESS);
    assert_eq!(rig.beat(&second), ErrorCode::UNKNOWN_MEMBER_ID);
    rig.send(first.connection, 9, &join(&first.id));
    assert_eq!(rig.joined(&mut first).members.len(), 1);
    assert_eq!(first.generation, 3);
}

#[test]
fn who_does_not_join_in_time_is_left_behind() {
    let mut rig = Rig::new(1);
    let (mut first, second) = rig.pair();
    let mut third = rig.member();
    rig.send(first.connection, 9, &join(&first.id));
    for _ in 0..4 {
        rig.pass(5 * SECOND - Duration::from_millis(1));
        assert_eq!(rig.beat(&second), ErrorCode::REBALANCE_IN_PROGRESS);
        assert_eq!(rig.next(first.connection), None);
    }
    rig.pass(4 * Duration::from_millis(1));
    assert_eq!((rig.joined(&mut first).members.len(), rig.joined(&mut third).generation_id), (2, 3));
    assert_eq!(rig.beat(&second), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn who_joins_and_never_syncs_is_taken_out() {
    let mut rig = Rig::new(1);
    let mut only = rig.member();
    rig.joined(&mut only);
    for _ in 0..4 {
        rig.pass(5 * SECOND - Duration::from_millis(1));
        assert_eq!(rig.beat(&only), ErrorCode::NONE, "alive, though it has not synced");
    }
    rig.pass(4 * Duration::from_millis(1));
    assert_eq!(rig.described().group_state.as_str(), "Empty");
}

#[test]
fn a_sync_that_waits_hears_of_the_next_rebalance() {
    let mut rig = Rig::new(1);
    let (mut first, second) = rig.pair();
    rig.send(first.connection, 9, &join(&first.id));
    rig.send(second.connection, 9, &join(&second.id));
    rig.joined(&mut first);
    let mut second = second;
    rig.joined(&mut second);
    rig.send(second.connection, 5, &sync(second.generation, &second.id, &[]));
    rig.member();
    assert_eq!(code(rig.synced(&second).error_code), ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn leaving_makes_room_at_once() {
    let mut rig = Rig::new(1);
    let (first, second) = rig.pair();
    let leave = |id: &str| MemberIdentity::default().with_member_id(text(id)).with_group_instance_id(None);
    let request =
        LeaveGroupRequest::default().with_group_id(group()).with_members(vec![leave(&second.id), leave("who")]);
    let left = rig.ask_node(1, 5, &request);
    assert_eq!((left.members[0].error_code, code(left.members[1].error_code)), (0, ErrorCode::UNKNOWN_MEMBER_ID));
    assert_eq!(rig.beat(&first), ErrorCode::REBALANCE_IN_PROGRESS);
    let old = LeaveGroupRequest::default().with_group_id(group()).with_member_id(text(&first.id));
    assert_eq!(rig.ask_node(1, 2, &old).error_code, 0);
    assert_eq!(rig.described().group_state.as_str(), "Empty");
}

#[test]
fn a_member_that_joins_again_unchanged_gets_its_generation_and_a_leader_a_new_one() {
    let mut rig = Rig::new(1);
    let (mut first, mut second) = rig.pair();
    rig.send(second.connection, 9, &join(&second.id));
    assert_eq!(rig.joined(&mut second).generation_id, 2);
    rig.send(first.connection, 9, &join(&first.id));
    assert_eq!(rig.next(first.connection), None);
    assert_eq!(rig.beat(&second), ErrorCode::REBALANCE_IN_PROGRESS);
    rig.send(second.connection, 9, &join(&second.id));
    assert_eq!((rig.joined(&mut first).generation_id, rig.joined(&mut second).generation_id), (3, 3));
}

#[test]
fn what_cannot_join_is_refused_by_its_code() {
    let mut rig = Rig::with(1, |settings| settings.max_group_members = 1);
    let mut only = rig.member();
    rig.joined(&mut only);
    let other = JoinGroupRequestProtocol::default().with_name(text("roundrobin"));
    for (request, expected) in [
        (join(""), ErrorCode::GROUP_MAX_SIZE_REACHED),
        (join("nobody"), ErrorCode::GROUP_MAX_SIZE_REACHED),
        (join(&only.id).with_protocols(vec![other]), ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        (join(&only.id).with_protocol_type(text("connect")), ErrorCode::INCONSISTENT_GROUP_PROTOCOL),
        (join("").with_session_timeout_ms(10), ErrorCode::INVALID_SESSION_TIMEOUT),
        (join("").with_group_id(GroupId(text(""))), ErrorCode::INVALID_GROUP_ID),
        (join("someone").with_group_id(GroupId(text("none"))), ErrorCode::UNKNOWN_MEMBER_ID),
    ] {
        assert_eq!(code(rig.ask_node(1, 9, &request).error_code), expected);
    }
}

#[test]
fn an_empty_group_waits_for_more_members_as_long_as_it_is_told() {
    let mut rig = Rig::with(1, |settings| settings.initial_rebalance_delay = 3 * SECOND);
    let mut first = rig.member();
    rig.pass(2 * SECOND);
    let mut second = rig.member();
    rig.pass(SECOND);
    assert_eq!(rig.next(first.connection), None, "one more came, so it waits once more");
    rig.pass(3 * SECOND);
    assert_eq!((rig.joined(&mut first).generation_id, rig.joined(&mut second).generation_id), (1, 1));
}

/// KIP-345 and KIP-814.
#[test]
fn a_static_member_that_comes_back_takes_its_place_and_fences_its_predecessor() {
    let mut rig = Rig::new(1);
    let fixed = |member: &str| join(member).with_group_instance_id(Some(text("i")));
    let connection = rig.connect(1);
    let first = rig.ask(connection, 9, &fixed(""));
    assert_eq!(first.generation_id, 1);
    let old = first.member_id.to_string();
    let own = sync(1, &old, &[(&old, "all")]).with_group_instance_id(Some(text("i")));
    assert_eq!(rig.ask(connection, 5, &own).assignment, "all");

    let second = rig.ask_node(1, 9, &fixed(""));
    assert_eq!((second.generation_id, second.skip_assignment), (1, true), "nothing changes for the others");
    assert_ne!(second.member_id.as_str(), old);
    assert_eq!(second.leader, second.member_id);
    assert_eq!(code(rig.ask(connection, 5, &own).error_code), ErrorCode::FENCED_INSTANCE_ID);
    let new = sync(1, &second.member_id, &[]).with_group_instance_id(Some(text("i")));
    assert_eq!(rig.ask_node(1, 5, &new).assignment, "all");
    // Before version 9 a leader cannot be told to skip, so it is not told that it leads.
    let third = rig.ask_node(1, 8, &fixed(""));
    assert_eq!((third.leader, third.members.len()), (second.member_id, 0));
    let gone = MemberIdentity::default().with_group_instance_id(Some(text("i")));
    let leave = LeaveGroupRequest::default().with_group_id(group()).with_members(vec![gone]);
    assert_eq!(rig.ask_node(1, 5, &leave).members[0].error_code, 0);
    assert_eq!(rig.described().members.len(), 0);
}

#[test]
fn the_oldest_and_every_other_version_joins() {
    for version in 0..=9 {
        let mut rig = Rig::new(1);
        let connection = rig.connect(1);
        let mut joined = rig.ask(connection, version, &join(""));
        if version >= 4 {
            joined = rig.ask(connection, version, &join(&joined.member_id));
        }
        assert_eq!((joined.error_code, joined.generation_id, joined.members.len()), (0, 1, 1), "version {version}");
        let sync_version = version.min(5);
        let synced = rig.ask(connection, sync_version, &sync(1, &joined.member_id, &[(&joined.member_id, "all")]));
        assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"all"[..]));
    }
}

fn commit(generation: i32, member: &str, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_committed_offset(offset)
        .with_committed_leader_epoch(4)
        .with_committed_metadata(Some(text("note")));
    let topic = OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(text(member))
        .with_group_instance_id(None)
        .with_topics(vec![topic])
}

fn commit_code(rig: &mut Rig, request: &OffsetCommitRequest) -> ErrorCode {
    code(rig.ask_node(1, 9, request).topics[0].partitions[0].error_code)
}

#[test]
fn commits_are_kept_by_whom_they_may_be_made() {
    let mut rig = Rig::new(1).topic("t", 1);
    assert_eq!(commit_code(&mut rig, &commit(-1, "", 3)), ErrorCode::NONE, "by hand");
    assert_eq!(rig.cluster.committed("g", &at("t", 0)), Some(crate::record::Offset(3)));
    let (first, _) = rig.pair();
    for (request, expected) in [
        (commit(-1, "", 5), ErrorCode::UNKNOWN_MEMBER_ID),
        (commit(1, &first.id, 5), ErrorCode::ILLEGAL_GENERATION),
        (commit(2, "who", 5), ErrorCode::UNKNOWN_MEMBER_ID),
        (commit(2, &first.id, 5), ErrorCode::NONE),
    ] {
        assert_eq!(commit_code(&mut rig, &request), expected);
    }
    let mut large = commit(2, &first.id, 6);
    large.topics[0].partitions[0].committed_metadata = Some(text(&"x".repeat(4097)));
    assert_eq!(commit_code(&mut rig, &large), ErrorCode::OFFSET_METADATA_TOO_LARGE);
    let mut unknown = commit(2, &first.id, 6);
    unknown.topics[0].partitions[0].partition_index = 9;
    assert_eq!(commit_code(&mut rig, &unknown), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);

    let wanted = OffsetFetchRequestTopics::default().with_name(name("t")).with_partition_indexes(vec![0, 7]);
    let asked = |topics| OffsetFetchRequestGroup::default().with_group_id(group()).with_topics(topics);
    let asked = OffsetFetchRequest::default().with_groups(vec![asked(Some(vec![wanted])), asked(None)]);
    let answer = rig.ask_node(1, 9, &asked);
    let places = |at: usize| -> Vec<_> {
        answer.groups[at].topics[0].partitions.iter().map(|it| (it.partition_index, it.committed_offset)).collect()
    };
    assert_eq!((places(0), places(1)), (vec![(0, 5), (7, -1)], vec![(0, 5)]));
    let place = &answer.groups[0].topics[0].partitions[0];
    assert_eq!((place.committed_leader_epoch, place.metadata.as_deref()), (4, Some("note")));
}

#[test]
fn groups_are_listed_and_deleted_with_their_offsets() {
    let mut rig = Rig::new(1).topic("t", 1);
    commit_code(&mut rig, &commit(-1, "", 3));
    let listed = rig.ask_node(1, 5, &ListGroupsRequest::default());
    assert_eq!((listed.groups[0].group_state.as_str(), listed.groups[0].group_type.as_str()), ("Empty", "classic"));
    let stable = ListGroupsRequest::default().with_states_filter(vec![text("Stable")]);
    assert_eq!(rig.ask_node(1, 5, &stable).groups.len(), 0);

    let forget = OffsetDeleteRequestTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![OffsetDeleteRequestPartition::default()]);
    let forget = OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![forget]);
    assert_eq!(rig.ask_node(1, 0, &forget).topics[0].partitions[0].error_code, 0);
    assert_eq!(rig.cluster.committed("g", &at("t", 0)), None);

    let mut member = rig.member();
    rig.joined(&mut member);
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![group(), GroupId(text("none"))]);
    let codes = |rig: &mut Rig| -> Vec<_> {
        rig.ask_node(1, 2, &delete).results.iter().map(|it| code(it.error_code)).collect()
    };
    assert_eq!(codes(&mut rig), [ErrorCode::NON_EMPTY_GROUP, ErrorCode::GROUP_ID_NOT_FOUND]);
    rig.cluster.expire_member("g", &member.id, rig.now).expect("a member");
    assert_eq!(codes(&mut rig), [ErrorCode::NONE, ErrorCode::GROUP_ID_NOT_FOUND]);
    assert_eq!(rig.described().group_state.as_str(), "Dead");
}

#[test]
fn a_new_coordinator_knows_the_last_complete_generation_and_the_old_one_says_so() {
    let mut rig = Rig::new(2);
    rig.cluster.move_coordinator("g", 1, rig.now).expect("runs");
    let (first, _) = rig.pair();
    let waiting = rig.member();
    rig.cluster.move_coordinator("g", 2, rig.now).expect("runs");
    let answer = rig.answer::<JoinGroupRequest>(waiting.connection, 9).expect("it does not wait any more");
    assert_eq!(code(answer.error_code), ErrorCode::NOT_COORDINATOR);
    assert_eq!(rig.beat(&first), ErrorCode::NOT_COORDINATOR);
    rig.cluster.move_coordinator("g", 1, rig.now).expect("runs");
    assert_eq!(rig.beat(&first), ErrorCode::NONE);
    assert_eq!(rig.cluster.members("g").len(), 2);
}
