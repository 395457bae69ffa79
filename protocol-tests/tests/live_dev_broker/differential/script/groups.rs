//! Groups of the classic protocol, and their offsets.

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest,
    JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest,
    OffsetFetchRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::{NEWEST, Run, group, text, topic};

pub(super) async fn run(run: &mut Run) {
    coordinators(run).await;
    offsets_without_members(run).await;
    let member = one_member(run).await;
    refusals(run, &member).await;
    two_members(run, &member).await;
    static_members(run).await;
    administration(run).await;
}

fn coordinator(kind: i8, key: &str) -> FindCoordinatorRequest {
    FindCoordinatorRequest::default().with_key(text(key)).with_key_type(kind).with_coordinator_keys(vec![text(key)])
}

async fn coordinators(run: &mut Run) {
    let known = |answer: &FindCoordinatorResponse| {
        answer.error_code == 0 && answer.coordinators.iter().all(|of| of.error_code == 0)
    };
    run.until(NEWEST, "coordinator: of a group", coordinator(0, "g"), known).await;
    run.until(NEWEST, "coordinator: of a transaction", coordinator(1, "t"), known).await;
    run.until(3, "coordinator: version 3", coordinator(0, "g"), known).await;
    run.ask("coordinator: of nothing known", coordinator(7, "g")).await;
    run.ask_in(3, "coordinator: of nothing known, version 3", coordinator(7, "g")).await;
    let several = coordinator(0, "g").with_coordinator_keys(vec![text("g"), text("h")]);
    run.ask("coordinator: of several", several).await;
    let none = coordinator(0, "g").with_coordinator_keys(Vec::new());
    run.ask("coordinator: of none", none).await;
}

/// A commit of one partition.
pub(super) fn commit(
    of: &str,
    member: &str,
    generation: i32,
    name: &str,
    partition: i32,
    offset: i64,
) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(offset)
        .with_committed_leader_epoch(-1)
        .with_committed_metadata(Some(text("note")));
    let named = OffsetCommitRequestTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group(of))
        .with_member_id(text(member))
        .with_generation_id_or_member_epoch(generation)
        .with_topics(vec![named])
}

/// Asks for the offsets of these partitions, or for all.
pub(super) fn committed(of: &str, topics: Option<&[(&str, &[i32])]>) -> OffsetFetchRequest {
    let old = |(name, partitions): &(&str, &[i32])| {
        OffsetFetchRequestTopic::default().with_name(topic(name)).with_partition_indexes(partitions.to_vec())
    };
    let new = |(name, partitions): &(&str, &[i32])| {
        OffsetFetchRequestTopics::default().with_name(topic(name)).with_partition_indexes(partitions.to_vec())
    };
    let asked = OffsetFetchRequestGroup::default()
        .with_group_id(group(of))
        .with_member_id(None)
        .with_member_epoch(-1)
        .with_topics(topics.map(|topics| topics.iter().map(new).collect()));
    OffsetFetchRequest::default()
        .with_group_id(group(of))
        .with_topics(topics.map(|topics| topics.iter().map(old).collect()))
        .with_groups(vec![asked])
}

async fn offsets_without_members(run: &mut Run) {
    run.ask("offsets: of a group that is not there", committed("offsets", Some(&[("plain", &[0])]))).await;
    run.ask("offsets: all of a group that is not there", committed("offsets", None)).await;
    run.ask("offsets: committed by nobody", commit("offsets", "", -1, "plain", 0, 3)).await;
    run.ask("offsets: committed by nobody, elsewhere", commit("offsets", "", -1, "plain", 1, 1)).await;
    run.ask_in(2, "offsets: version 2", commit("offsets", "", -1, "single", 0, 2)).await;
    run.ask("offsets: by nobody with a generation", commit("offsets", "", 3, "plain", 0, 4)).await;
    run.ask("offsets: by somebody", commit("offsets", "me", 1, "plain", 0, 4)).await;
    run.ask("offsets: of no group", commit("", "", -1, "plain", 0, 4)).await;
    run.ask("offsets: of a topic that is not there", commit("offsets", "", -1, "missing", 0, 4)).await;
    run.ask("offsets: of a partition that is not there", commit("offsets", "", -1, "plain", 9, 4)).await;
    let mut large = commit("offsets", "", -1, "plain", 0, 4);
    large.topics[0].partitions[0].committed_metadata = Some(text(&"x".repeat(4097)));
    run.ask("offsets: a note that is too large", large).await;
    let mut bare = commit("offsets", "", -1, "plain", 2, 4);
    bare.topics[0].partitions[0].committed_metadata = None;
    bare.topics[0].partitions[0].committed_leader_epoch = 0;
    run.ask("offsets: without a note", bare).await;
    run.ask("offsets: read", committed("offsets", Some(&[("plain", &[0, 1, 2, 9]), ("missing", &[0])]))).await;
    run.ask("offsets: all", committed("offsets", None)).await;
    run.ask_in(5, "offsets: all, version 5", committed("offsets", None)).await;
    run.ask_in(1, "offsets: version 1", committed("offsets", Some(&[("plain", &[0, 9])]))).await;
    run.ask("offsets: where they are decided", committed("offsets", None).with_require_stable(true)).await;
    let mut two = committed("offsets", Some(&[("plain", &[0])]));
    two.groups.extend(committed("nobody", Some(&[("plain", &[0])])).groups);
    run.ask("offsets: of two groups", two).await;
}

fn join(of: &str, member: &str, instance: Option<&str>) -> JoinGroupRequest {
    JoinGroupRequest::default()
        .with_group_id(group(of))
        .with_session_timeout_ms(20_000)
        .with_rebalance_timeout_ms(20_000)
        .with_member_id(text(member))
        .with_group_instance_id(instance.map(text))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol("range"), protocol("roundrobin")])
}

fn protocol(name: &str) -> JoinGroupRequestProtocol {
    JoinGroupRequestProtocol::default().with_name(text(name)).with_metadata(subscription())
}

/// A subscription to the topic `plain`, version 0 of the consumers' protocol.
fn subscription() -> Bytes {
    Bytes::from_static(b"\0\0\0\0\0\x01\0\x05plain\xff\xff\xff\xff")
}

fn sync(of: &str, member: &str, generation: i32, given: &[(&str, &'static str)]) -> SyncGroupRequest {
    let assignment = |(member, bytes): &(&str, &'static str)| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(member))
            .with_assignment(Bytes::from_static(bytes.as_bytes()))
    };
    SyncGroupRequest::default()
        .with_group_id(group(of))
        .with_generation_id(generation)
        .with_member_id(text(member))
        .with_protocol_type(Some(text("consumer")))
        .with_protocol_name(Some(text("range")))
        .with_assignments(given.iter().map(assignment).collect())
}

fn beat(of: &str, member: &str, generation: i32) -> HeartbeatRequest {
    HeartbeatRequest::default().with_group_id(group(of)).with_generation_id(generation).with_member_id(text(member))
}

fn leave(of: &str, members: &[(&str, Option<&str>)]) -> LeaveGroupRequest {
    let identity = |(member, instance): &(&str, Option<&str>)| {
        MemberIdentity::default().with_member_id(text(member)).with_group_instance_id(instance.map(text))
    };
    LeaveGroupRequest::default()
        .with_group_id(group(of))
        .with_member_id(members.first().map(|(member, _)| text(member)).unwrap_or_default())
        .with_members(members.iter().map(identity).collect())
}

fn describe(groups: &[&str]) -> DescribeGroupsRequest {
    DescribeGroupsRequest::default().with_groups(groups.iter().copied().map(group).collect())
}

async fn one_member(run: &mut Run) -> StrBytes {
    let told = run.ask("join: without an id", join("g", "", None)).await;
    let member = told.member_id;
    let joined = run.ask("join: with the id", join("g", &member, None)).await;
    run.ask("join: before the leader has assigned", beat("g", &member, joined.generation_id)).await;
    run.ask("join: described in between", describe(&["g"])).await;
    run.ask("join: assigned", sync("g", &member, joined.generation_id, &[(&member, "all")])).await;
    run.ask("join: assigned again", sync("g", &member, joined.generation_id, &[])).await;
    run.ask("join: a heartbeat", beat("g", &member, 1)).await;
    run.ask("join: a commit", commit("g", &member, 1, "plain", 0, 2)).await;
    run.ask("join: described", describe(&["g"])).await;
    run.ask_in(0, "join: described, version 0", describe(&["g"])).await;
    run.ask("join: what is allowed", describe(&["g"]).with_include_authorized_operations(true)).await;
    member
}

async fn refusals(run: &mut Run, member: &str) {
    run.ask("refused: a heartbeat of a generation that was", beat("g", member, 0)).await;
    run.ask("refused: a heartbeat of a generation to come", beat("g", member, 7)).await;
    run.ask("refused: a heartbeat of nobody", beat("g", "nobody", 1)).await;
    run.ask("refused: a heartbeat to no group", beat("nothing", member, 1)).await;
    run.ask("refused: a heartbeat to a group without a name", beat("", member, 1)).await;
    run.ask("refused: a sync of a generation that was", sync("g", member, 0, &[])).await;
    run.ask("refused: a sync of nobody", sync("g", "nobody", 1, &[])).await;
    let other = sync("g", member, 1, &[]).with_protocol_name(Some(text("roundrobin")));
    run.ask("refused: a sync by another protocol", other).await;
    run.ask("refused: a commit of a generation that was", commit("g", member, 0, "plain", 0, 3)).await;
    run.ask("refused: a commit of nobody", commit("g", "nobody", 1, "plain", 0, 3)).await;
    run.ask("refused: a commit from outside", commit("g", "", -1, "plain", 0, 3)).await;
    run.ask("refused: a join of nobody", join("g", "nobody", None)).await;
    run.ask("refused: a join to a group without a name", join("", "", None)).await;
    run.ask("refused: a session that is too short", join("g", "", None).with_session_timeout_ms(1)).await;
    run.ask("refused: a session that is too long", join("g", "", None).with_session_timeout_ms(i32::MAX)).await;
    let other = join("g", "", None).with_protocol_type(text("connect"));
    run.ask("refused: another kind of group", other).await;
    let none = join("g", "", None).with_protocols(vec![protocol("sticky")]);
    run.ask("refused: no protocol in common", none).await;
    run.ask("refused: no protocol at all", join("h", "", None).with_protocols(Vec::new())).await;
    run.ask("refused: no kind at all", join("h", "", None).with_protocol_type(text(""))).await;
    run.ask("refused: nobody leaves", leave("g", &[("nobody", None)])).await;
    run.ask_in(2, "refused: nobody leaves, version 2", leave("g", &[("nobody", None)])).await;
    run.ask("refused: nobody leaves nothing", leave("nothing", &[("nobody", None)])).await;
    run.ask("refused: the group is deleted", deletion(&["g"])).await;
    run.ask("refused: offsets that are in use are deleted", offset_deletion("g", "plain", 0)).await;
}

async fn two_members(run: &mut Run, first: &str) {
    let second = run.ask("two: a second comes", join("g", "", None)).await.member_id;
    run.send_in("second", NEWEST, &join("g", &second, None)).await;
    let asked_to_join = |answer: &kafka_protocol::messages::HeartbeatResponse| answer.error_code != 0;
    run.until(NEWEST, "two: the first is asked to join", beat("g", first, 1), asked_to_join).await;
    run.ask("two: the first commits meanwhile", commit("g", first, 1, "plain", 0, 3)).await;
    run.ask("two: the first syncs too late", sync("g", first, 1, &[])).await;
    run.ask("two: described while it joins", describe(&["g"])).await;
    let joined = run.ask("two: the first joins", join("g", first, None)).await;
    run.receive::<JoinGroupRequest>("second", NEWEST, "two: the second has joined").await;
    let generation = joined.generation_id;
    run.send_in("second", NEWEST, &sync("g", &second, generation, &[])).await;
    let given = [(first, "one"), (&*second, "two")];
    run.ask("two: the first assigns", sync("g", first, generation, &given)).await;
    run.receive::<SyncGroupRequest>("second", NEWEST, "two: the second is assigned to").await;
    run.ask("two: described", describe(&["g"])).await;
    run.ask("two: the second's heartbeat", beat("g", &second, generation)).await;
    run.ask("two: the second leaves", leave("g", &[(&second, None)])).await;
    run.ask("two: the second is gone", beat("g", &second, generation)).await;
    run.ask("two: the first is asked again", beat("g", first, generation)).await;
    let joined = run.ask("two: the first joins alone", join("g", first, None)).await;
    run.ask("two: the first is alone", sync("g", first, joined.generation_id, &[(first, "all")])).await;
    run.ask("two: the first leaves", leave("g", &[(first, None)])).await;
    run.ask("two: described when empty", describe(&["g"])).await;
    run.ask("two: a commit after all", commit("g", "", -1, "plain", 0, 5)).await;
}

async fn static_members(run: &mut Run) {
    let joined = run.ask("static: joins", join("s", "", Some("i"))).await;
    let (member, generation) = (joined.member_id, joined.generation_id);
    let mut assigned = sync("s", &member, generation, &[(&member, "all")]);
    assigned.group_instance_id = Some(text("i"));
    run.ask("static: assigned", assigned).await;
    let beat = |member: &str| beat("s", member, 1).with_group_instance_id(Some(text("i")));
    run.ask("static: a heartbeat", beat(&member)).await;
    run.ask("static: a heartbeat under another id", beat("other")).await;
    run.ask("static: described", describe(&["s"])).await;
    let again = run.ask("static: comes back", join("s", "", Some("i"))).await;
    run.ask("static: the one before is fenced", beat(&member)).await;
    let mut late = commit("s", &member, 1, "plain", 0, 1);
    late.group_instance_id = Some(text("i"));
    run.ask("static: the one before commits", late).await;
    run.ask("static: the one before joins", join("s", &member, Some("i"))).await;
    let mut synced = sync("s", &again.member_id, again.generation_id, &[]);
    synced.group_instance_id = Some(text("i"));
    run.ask("static: has what it had", synced).await;
    run.ask("static: an instance that is unknown leaves", leave("s", &[("", Some("unknown"))])).await;
    run.ask("static: the one before leaves", leave("s", &[(&member, Some("i"))])).await;
    run.ask("static: leaves by its instance", leave("s", &[("", Some("i"))])).await;
}

fn deletion(groups: &[&str]) -> DeleteGroupsRequest {
    DeleteGroupsRequest::default().with_groups_names(groups.iter().copied().map(group).collect())
}

fn offset_deletion(of: &str, name: &str, partition: i32) -> OffsetDeleteRequest {
    let partition = OffsetDeleteRequestPartition::default().with_partition_index(partition);
    let named = OffsetDeleteRequestTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
    OffsetDeleteRequest::default().with_group_id(group(of)).with_topics(vec![named])
}

async fn administration(run: &mut Run) {
    run.ask("groups: all", ListGroupsRequest::default()).await;
    run.ask_in(0, "groups: version 0", ListGroupsRequest::default()).await;
    let states =
        |states: &[&str]| ListGroupsRequest::default().with_states_filter(states.iter().copied().map(text).collect());
    run.ask("groups: those that are empty", states(&["Empty"])).await;
    run.ask("groups: those that are stable", states(&["Stable"])).await;
    run.ask("groups: in other letters", states(&["eMPTY"])).await;
    run.ask("groups: of a state that is none", states(&["Asleep"])).await;
    let types = |name: &str| ListGroupsRequest::default().with_types_filter(vec![text(name)]);
    run.ask("groups: the classic ones", types("classic")).await;
    run.ask("groups: of a type that is none", types("modern")).await;
    run.ask("groups: described", describe(&["g", "offsets", "nothing"])).await;
    run.ask_in(5, "groups: described, version 5", describe(&["nothing"])).await;
    run.ask("groups: one without a name", describe(&[""])).await;
    run.ask("groups: an offset deleted", offset_deletion("offsets", "plain", 1)).await;
    run.ask("groups: an offset deleted that is not there", offset_deletion("offsets", "compacted", 0)).await;
    run.ask("groups: an offset deleted of no topic", offset_deletion("offsets", "missing", 0)).await;
    run.ask("groups: an offset deleted of no group", offset_deletion("nothing", "plain", 0)).await;
    run.ask("groups: what is left", committed("offsets", None)).await;
    run.ask("groups: deleted", deletion(&["g", "nothing", "offsets"])).await;
    run.ask("groups: deleted without a name", deletion(&[""])).await;
    run.ask("groups: after", committed("g", Some(&[("plain", &[0])]))).await;
}
