//! Groups of the new protocol (KIP-848).

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, DeleteGroupsRequest,
    DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest, ListGroupsRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::groups::{commit, committed};
use super::{NEWEST, Run, group, text, topic};

pub(super) async fn run(run: &mut Run) {
    refusals(run).await;
    let epoch = one_member(run).await;
    two_members(run, epoch).await;
    static_members(run).await;
    leaving(run).await;
    expressions(run).await;
}

/// The first heartbeat of a member: it joins, and has nothing.
fn joining(member: &str) -> ConsumerGroupHeartbeatRequest {
    beat(member, 0)
        .with_rebalance_timeout_ms(30_000)
        .with_subscribed_topic_names(Some(vec![topic("plain")]))
        .with_topic_partitions(Some(Vec::new()))
}

fn beat(member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group("c"))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_rebalance_timeout_ms(-1)
        .with_subscribed_topic_names(None)
        .with_topic_partitions(None)
}

fn owning(run: &Run, member: &str, epoch: i32, partitions: &[i32]) -> ConsumerGroupHeartbeatRequest {
    let owned = TopicPartitions::default().with_topic_id(run.ids["plain"]).with_partitions(partitions.to_vec());
    beat(member, epoch).with_topic_partitions(Some(vec![owned]))
}

fn describe(groups: &[&str]) -> ConsumerGroupDescribeRequest {
    ConsumerGroupDescribeRequest::default().with_group_ids(groups.iter().copied().map(group).collect())
}

async fn refusals(run: &mut Run) {
    run.forget_epochs();
    run.ask("new: no id", joining("")).await;
    run.ask("new: no group", joining(A).with_group_id(group(""))).await;
    run.ask("new: no topics", joining(A).with_subscribed_topic_names(None)).await;
    run.ask("new: no rebalance timeout", joining(A).with_rebalance_timeout_ms(-1)).await;
    run.ask("new: a rebalance timeout of nothing", joining(A).with_rebalance_timeout_ms(0)).await;
    run.ask("new: partitions from before", owning(run, A, 0, &[0]).with_rebalance_timeout_ms(30_000)).await;
    run.ask("new: an assignor that is not there", joining(A).with_server_assignor(Some(text("mine")))).await;
    run.ask("new: an instance without a name", joining(A).with_instance_id(Some(text("")))).await;
    run.ask("new: a rack without a name", joining(A).with_rack_id(Some(text("")))).await;
    run.ask("new: an epoch below all", joining(A).with_member_epoch(-3)).await;
    run.ask("new: an epoch that nobody gave", beat(A, 5)).await;
    run.ask("new: leaves what is not there", beat(A, -1)).await;
    run.ask("new: leaves for a while without an instance", beat(A, -2)).await;
    run.ask("new: a classic group's name", joining(A).with_group_id(group("offsets"))).await;
    run.ask("new: described when there is none", describe(&["c", "s"])).await;
}

fn assigned(answer: &ConsumerGroupHeartbeatResponse) -> bool {
    let assigned = answer.assignment.iter().flat_map(|of| &of.topic_partitions);
    assigned.map(|of| of.partitions.len()).sum::<usize>() > 0
}

/// The epoch that it is in then.
async fn one_member(run: &mut Run) -> i32 {
    run.forget_epochs();
    let epoch = run.until(NEWEST, "new: joins", joining(A), assigned).await.member_epoch;
    run.ask("new: joins again", joining(A)).await;
    run.ask("new: takes what it was given", owning(run, A, epoch, &[0, 1, 2])).await;
    run.ask("new: beats", beat(A, epoch)).await;
    run.ask("new: described", describe(&["c"])).await;
    run.ask("new: described, allowed", describe(&["c"]).with_include_authorized_operations(true)).await;
    run.ask("new: described as if classic", DescribeGroupsRequest::default().with_groups(vec![group("c")])).await;
    run.ask("new: listed", ListGroupsRequest::default().with_types_filter(vec![text("consumer")])).await;
    run.ask("new: an epoch to come", beat(A, epoch + 9)).await;
    run.ask("new: of another", beat("nobody", epoch)).await;
    run.ask("new: commits", commit("c", A, epoch, "plain", 0, 2)).await;
    run.ask("new: commits in an epoch that was", commit("c", A, 0, "plain", 0, 3)).await;
    run.ask("new: commits in an epoch to come", commit("c", A, epoch + 7, "plain", 0, 3)).await;
    run.ask("new: commits as nobody", commit("c", "nobody", epoch, "plain", 0, 3)).await;
    run.ask("new: commits from outside", commit("c", "", -1, "plain", 0, 3)).await;
    let mut asked = committed("c", Some(&[("plain", &[0])]));
    run.ask("new: offsets, asked from outside", asked.clone()).await;
    asked.groups[0].member_id = Some(text(A));
    for (told, step) in [
        (epoch, "new: offsets, asked by a member"),
        (0, "new: offsets, asked in an epoch that was"),
        (epoch + 7, "new: offsets, asked in an epoch to come"),
    ] {
        asked.groups[0].member_epoch = told;
        run.ask(step, asked.clone()).await;
    }
    asked.groups[0].member_id = Some(text("nobody"));
    run.ask("new: offsets, asked by nobody", asked).await;
    run.ask("new: deleted with a member", deletion()).await;
    let heartbeat =
        HeartbeatRequest::default().with_group_id(group("c")).with_member_id(text(A)).with_generation_id(epoch);
    run.ask("new: a classic heartbeat", heartbeat).await;
    let join = JoinGroupRequest::default()
        .with_group_id(group("c"))
        .with_session_timeout_ms(20_000)
        .with_rebalance_timeout_ms(20_000)
        .with_protocol_type(text("connect"));
    run.ask("new: a classic member of another kind", join).await;
    epoch
}

async fn two_members(run: &mut Run, epoch: i32) {
    let second = run.ask("pair: a second joins", joining(B)).await.member_epoch;
    let gives_back = |answer: &ConsumerGroupHeartbeatResponse| answer.assignment.is_some();
    run.until(NEWEST, "pair: the first is to give back", beat(A, epoch), gives_back).await;
    run.ask("pair: described meanwhile", describe(&["c"])).await;
    run.ask("pair: the second has nothing yet", beat(B, second)).await;
    let kept = run.ask("pair: the first gives back", owning(run, A, epoch, &[0, 1])).await;
    run.until(NEWEST, "pair: the second is given", beat(B, second), assigned).await;
    run.ask("pair: the first in the epoch before", owning(run, A, epoch, &[0, 1])).await;
    run.ask("pair: the first in the epoch before, with less", owning(run, A, epoch, &[0])).await;
    run.ask("pair: the first in the epoch before, with more", owning(run, A, epoch, &[0, 1, 2])).await;
    run.ask("pair: the first goes on", beat(A, kept.member_epoch)).await;
    run.ask("pair: the second takes", owning(run, B, second, &[2])).await;
    run.ask("pair: described", describe(&["c"])).await;
    let other = beat(B, second).with_subscribed_topic_names(Some(vec![topic("single"), topic("missing")]));
    run.ask("pair: the second wants another topic", other).await;
    run.ask("pair: the second leaves", beat(B, -1)).await;
    run.ask("pair: the second is gone", beat(B, second)).await;
    let all = |answer: &ConsumerGroupHeartbeatResponse| {
        answer.assignment.iter().flat_map(|of| &of.topic_partitions).map(|of| of.partitions.len()).sum::<usize>() == 3
    };
    run.until(NEWEST, "pair: the first has all", beat(A, kept.member_epoch), all).await;
}

async fn static_members(run: &mut Run) {
    let of = |request: ConsumerGroupHeartbeatRequest| {
        request.with_group_id(group("cs")).with_instance_id(Some(StrBytes::from_static_str("i")))
    };
    run.forget_epochs();
    let epoch = run.until(NEWEST, "instance: joins", of(joining(A)), assigned).await.member_epoch;
    run.ask("instance: takes", of(owning(run, A, epoch, &[0, 1, 2]))).await;
    run.ask("instance: another takes its name", of(joining(B))).await;
    run.ask("instance: leaves for a while", of(beat(A, -2))).await;
    run.ask("instance: described while away", describe(&["cs"])).await;
    let epoch = run.ask("instance: comes back as another", of(joining(B))).await.member_epoch;
    run.ask("instance: takes again", of(owning(run, B, epoch, &[0, 1, 2]))).await;
    run.ask("instance: the one before is fenced", of(beat(A, epoch))).await;
    run.ask("instance: one that is unknown", of(beat(B, epoch)).with_instance_id(Some(text("j")))).await;
    run.ask("instance: leaves", of(beat(B, -1))).await;
    run.ask("instance: described when empty", describe(&["cs"])).await;
}

/// Topics by a regular expression that the broker looks up.
async fn expressions(run: &mut Run) {
    run.forget_epochs();
    let of = |expression: &str| {
        joining(A)
            .with_group_id(group("cr"))
            .with_subscribed_topic_names(None)
            .with_subscribed_topic_regex(Some(text(expression)))
    };
    run.ask("expression: none", of("(")).await;
    let epoch = run.until(NEWEST, "expression: joins", of("pla.*|no-such"), assigned).await.member_epoch;
    run.ask("expression: described", describe(&["cr"])).await;
    let beat = |epoch: i32| beat(A, epoch).with_group_id(group("cr"));
    let partitions = |count: usize| {
        move |answer: &ConsumerGroupHeartbeatResponse| {
            let assigned = answer.assignment.iter().flat_map(|of| &of.topic_partitions);
            assigned.map(|of| of.partitions.len()).sum::<usize>() == count
        }
    };
    run.ask("expression: changed to none that is one", beat(epoch).with_subscribed_topic_regex(Some(text("*")))).await;
    // Beside names, and more than before.
    run.ask("expression: leaves", beat(-1)).await;
    run.forget_epochs();
    // A group of its own: Kafka looks a group's expressions up every ten seconds at most.
    let both = of("s.ngle|sta.*").with_group_id(group("cr2")).with_subscribed_topic_names(Some(vec![topic("plain")]));
    let epoch = run.until(NEWEST, "expression: beside a name", both, partitions(5)).await.member_epoch;
    run.ask("expression: described beside a name", describe(&["cr2"])).await;
    let beat = |epoch: i32| beat(epoch).with_group_id(group("cr2"));
    let owned = |name: &str, run: &Run, partitions: &[i32]| {
        TopicPartitions::default().with_topic_id(run.ids[name]).with_partitions(partitions.to_vec())
    };
    let all = vec![owned("plain", run, &[0, 1, 2]), owned("single", run, &[0]), owned("stamped", run, &[0])];
    run.ask("expression: takes", beat(epoch).with_topic_partitions(Some(all))).await;
    run.ask("expression: leaves with names", beat(-1)).await;
}

fn deletion() -> DeleteGroupsRequest {
    DeleteGroupsRequest::default().with_groups_names(vec![group("c")])
}

async fn leaving(run: &mut Run) {
    run.forget_epochs();
    // Its session may be over.
    run.once_more(joining(A), |answer| answer.error_code == 0).await;
    run.ask("new: leaves", beat(A, -1)).await;
    run.ask("new: described when empty", describe(&["c"])).await;
    run.ask("new: commits from outside when empty", commit("c", "", -1, "plain", 0, 4)).await;
    run.ask("new: offsets at last", committed("c", None)).await;
    run.ask("new: deleted", deletion()).await;
    run.ask("new: described when gone", describe(&["c"])).await;
}

/// Members, as they name themselves.
const A: &str = "AAAAAAAAAAAAAAAAAAAAAA";
const B: &str = "BBBBBBBBBBBBBBBBBBBBBB";
