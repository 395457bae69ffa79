use super::*;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, GroupId,
    OffsetCommitRequest,
};

const SECOND: Duration = Duration::from_secs(1);

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A member, by hand: it has what it was told, and gives up what it is not told any more.
#[derive(Debug, Clone)]
struct Member {
    id: &'static str,
    epoch: i32,
    has: Vec<i32>,
}

impl Rig {
    fn heartbeat(&mut self, request: &ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
        self.ask_node(1, 1, request)
    }

    fn joins(&mut self, id: &'static str) -> Member {
        let mut member = Member { id, epoch: 0, has: Vec::new() };
        let answer = self.heartbeat(&joining(id));
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        member.take(&answer);
        member
    }

    fn goes_on(&mut self, member: &mut Member) {
        let request = self.owning(member);
        let answer = self.heartbeat(&request);
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        member.take(&answer);
    }

    /// A heartbeat that tells what the member has.
    fn owning(&self, member: &Member) -> ConsumerGroupHeartbeatRequest {
        let id = self.cluster.core.topics.get("t").expect("there").1.id;
        let owned = TopicPartitions::default().with_topic_id(id).with_partitions(member.has.clone());
        let owned = if member.has.is_empty() { Vec::new() } else { vec![owned] };
        quiet(member.id, member.epoch).with_topic_partitions(Some(owned))
    }
}

impl Member {
    fn take(&mut self, answer: &ConsumerGroupHeartbeatResponse) {
        self.epoch = answer.member_epoch;
        if let Some(assignment) = &answer.assignment {
            self.has = assignment.topic_partitions.iter().flat_map(|topic| topic.partitions.clone()).collect();
        }
    }
}

fn quiet(id: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_member_id(text(id))
        .with_member_epoch(epoch)
        .with_instance_id(None)
        .with_rack_id(None)
        .with_rebalance_timeout_ms(-1)
        .with_subscribed_topic_names(None)
        .with_subscribed_topic_regex(None)
        .with_server_assignor(None)
        .with_topic_partitions(None)
}

fn joining(id: &str) -> ConsumerGroupHeartbeatRequest {
    quiet(id, 0)
        .with_rebalance_timeout_ms(30_000)
        .with_subscribed_topic_names(Some(vec![name("t")]))
        .with_topic_partitions(Some(Vec::new()))
}

/// A partition goes to the next member only after the one before has said that it gave it up.
#[test]
fn partitions_move_only_once_they_are_given_up() {
    let mut rig = Rig::new(1).topic("t", 4);
    let mut first = rig.joins("one");
    assert_eq!((first.epoch, &first.has[..]), (1, &[0, 1, 2, 3][..]));
    let mut second = rig.joins("two");
    assert_eq!((second.epoch, second.has.len()), (2, 0), "what it is to get is not free yet");

    let told = first.clone();
    rig.goes_on(&mut first);
    assert_eq!((first.epoch, first.has.len()), (1, 2), "asked to give up two, in its old epoch");
    rig.goes_on(&mut second);
    assert_eq!(second.has.len(), 0, "the other has not said that they are gone");
    let mut still = told.clone();
    still.epoch = first.epoch;
    let request = rig.owning(&still);
    assert_eq!(rig.heartbeat(&request).member_epoch, 1, "it still has them");
    rig.goes_on(&mut first);
    assert_eq!(first.epoch, 2);
    rig.goes_on(&mut second);
    assert_eq!(second.has.len(), 2);
    let all: std::collections::BTreeSet<i32> = first.has.iter().chain(&second.has).copied().collect();
    assert_eq!(all.len(), 4);

    let group = ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text("g"))]);
    let group = rig.ask_node(1, 1, &group).groups[0].clone();
    assert_eq!((group.group_state.as_str(), group.group_epoch, group.assignment_epoch), ("Stable", 2, 2));
    assert_eq!((group.assignor_name.as_str(), group.members.len()), ("uniform", 2));
}

#[test]
fn who_leaves_or_falls_silent_or_keeps_what_it_should_not_is_out() {
    let mut rig = Rig::new(1).topic("t", 4);
    let mut first = rig.joins("one");
    let second = rig.joins("two");
    assert_eq!(rig.heartbeat(&quiet("two", -1)).member_epoch, -1);
    assert_eq!(code(rig.heartbeat(&quiet("two", second.epoch)).error_code), ErrorCode::UNKNOWN_MEMBER_ID);
    rig.goes_on(&mut first);
    assert_eq!(first.has.len(), 4);

    rig.joins("three");
    rig.goes_on(&mut first);
    assert_eq!(first.has.len(), 2);
    // It beats, and never says that it gave up the two.
    for _ in 0..3 {
        rig.pass(10 * SECOND);
        rig.heartbeat(&quiet("one", first.epoch));
        rig.heartbeat(&quiet("three", 4));
    }
    assert_eq!(code(rig.heartbeat(&quiet("one", first.epoch)).error_code), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(rig.cluster.members("g"), ["three"]);
    rig.pass(45 * SECOND);
    assert_eq!(rig.cluster.members("g"), [""; 0]);
}

#[test]
fn epochs_fence_who_is_behind_or_ahead_but_not_who_lost_an_answer() {
    let mut rig = Rig::new(1).topic("t", 2);
    let first = rig.joins("one");
    let mut second = rig.joins("two");
    for epoch in [7, 1] {
        assert_eq!(code(rig.heartbeat(&quiet("two", epoch)).error_code), ErrorCode::FENCED_MEMBER_EPOCH);
    }
    // The answer that named the epoch was lost: it says the one before, and has nothing that it was not given.
    let before = Member { epoch: 0, ..second.clone() };
    assert_eq!(rig.heartbeat(&joining(before.id)).member_epoch, 2);
    rig.goes_on(&mut second);
    assert_eq!(code(rig.heartbeat(&quiet("nobody", 1)).error_code), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(first.epoch, 1);
}

#[test]
fn a_first_heartbeat_has_to_say_all() {
    let mut rig = Rig::new(1).topic("t", 2);
    for (request, expected) in [
        (quiet("m", 0), ErrorCode::INVALID_REQUEST),
        (joining("m").with_topic_partitions(None), ErrorCode::INVALID_REQUEST),
        (joining("").with_member_epoch(0), ErrorCode::INVALID_REQUEST),
        (joining("m").with_member_epoch(-3), ErrorCode::INVALID_REQUEST),
        (joining("m").with_server_assignor(Some(text("none"))), ErrorCode::UNSUPPORTED_ASSIGNOR),
        (joining("m").with_group_id(GroupId(text(""))), ErrorCode::INVALID_REQUEST),
        (quiet("m", 3).with_group_id(GroupId(text("none"))), ErrorCode::GROUP_ID_NOT_FOUND),
    ] {
        assert_eq!(code(rig.heartbeat(&request).error_code), expected);
    }
    let old = rig.ask_node(1, 0, &joining(""));
    assert_eq!(old.error_code, 0);
    assert!(old.member_id.is_some_and(|id| id.len() == 36), "in version 0 the broker makes the id");
}

#[test]
fn a_static_member_keeps_its_place_while_it_is_away() {
    let mut rig = Rig::new(1).topic("t", 2);
    let fixed = |id: &str| joining(id).with_instance_id(Some(text("i")));
    assert_eq!(rig.heartbeat(&fixed("old")).member_epoch, 1);
    assert_eq!(code(rig.heartbeat(&fixed("new")).error_code), ErrorCode::UNRELEASED_INSTANCE_ID);
    let away = quiet("old", -2).with_instance_id(Some(text("i")));
    assert_eq!(rig.heartbeat(&away).member_epoch, -2);
    let back = rig.heartbeat(&fixed("new"));
    assert_eq!(
        (back.member_epoch, back.assignment.map(|it| it.topic_partitions[0].partitions.clone())),
        (1, Some(vec![0, 1]))
    );
    let late = quiet("old", 1).with_instance_id(Some(text("i")));
    assert_eq!(code(rig.heartbeat(&late).error_code), ErrorCode::FENCED_INSTANCE_ID);
}

#[test]
fn new_partitions_reach_the_members_and_commits_go_by_epoch() {
    let mut rig = Rig::new(1).topic("t", 1);
    let mut only = rig.joins("one");
    rig.cluster.core.add_partitions("t", vec![vec![1]]).expect("grown");
    rig.goes_on(&mut only);
    assert_eq!((only.epoch, only.has.len()), (2, 2));
    let mut commit = |epoch: i32| {
        let partition = OffsetCommitRequestPartition::default().with_committed_offset(3);
        let topic = OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(text("g")))
            .with_generation_id_or_member_epoch(epoch)
            .with_member_id(text("one"))
            .with_group_instance_id(None)
            .with_topics(vec![topic]);
        code(rig.ask_node(1, 9, &request).topics[0].partitions[0].error_code)
    };
    assert_eq!([commit(1), commit(2)], [ErrorCode::STALE_MEMBER_EPOCH, ErrorCode::NONE]);
}

#[test]
fn ranges_are_given_where_members_want_them() {
    let mut rig = Rig::new(1).topic("t", 5);
    let ranged = |id: &str| joining(id).with_server_assignor(Some(text("range")));
    rig.heartbeat(&ranged("a"));
    rig.heartbeat(&ranged("b"));
    let group = ConsumerGroupDescribeRequest::default().with_group_ids(vec![GroupId(text("g"))]);
    let group = rig.ask_node(1, 0, &group).groups[0].clone();
    let targets: Vec<_> =
        group.members.iter().map(|it| it.target_assignment.topic_partitions[0].partitions.clone()).collect();
    assert_eq!((group.assignor_name.as_str(), targets), ("range", vec![vec![0, 1, 2], vec![3, 4]]));
}

/// KIP-848 lets the coordinator look topics up by a member's expression, those that come later too.
#[test]
fn topics_are_looked_up_by_a_members_expression() {
    let mut rig = Rig::new(1).topic("orders", 2).topic("other", 1);
    let by = |expression: &str| {
        joining("a").with_subscribed_topic_names(None).with_subscribed_topic_regex(Some(text(expression)))
    };
    assert_eq!(code(rig.heartbeat(&by("(")).error_code), ErrorCode::INVALID_REGULAR_EXPRESSION);
    let told = |answer: ConsumerGroupHeartbeatResponse| {
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        let topics = answer.assignment.map(|of| of.topic_partitions).unwrap_or_default();
        (answer.member_epoch, topics.iter().map(|of| of.partitions.len()).sum::<usize>())
    };
    let (epoch, count) = told(rig.heartbeat(&by("orders.*")));
    assert_eq!(count, 2);
    let mut rig = rig.topic("orders-late", 1);
    let (epoch, count) = told(rig.heartbeat(&quiet("a", epoch)));
    assert_eq!(count, 3, "the topic that came");
    let (_, count) = told(rig.heartbeat(&quiet("a", epoch).with_subscribed_topic_regex(Some(text("")))));
    assert_eq!(count, 0, "an empty one takes it back");
}
