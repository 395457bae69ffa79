//! Share groups (KIP-932).

use kafka_protocol::messages::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch as Acknowledged,
};
use kafka_protocol::messages::share_fetch_request::{AcknowledgementBatch, FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, DeleteGroupsRequest, DescribeGroupsRequest, GroupId,
    ListGroupsRequest, ShareAcknowledgeRequest, ShareFetchRequest, ShareFetchResponse, ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use kafka_protocol::protocol::Request as _;

use super::cluster::{SET, alteration};
use super::groups::{commit, committed};
use super::{NEWEST, Run, group, plain, text, topic};

pub(super) async fn run(run: &mut Run) {
    if !run.versions.contains_key(&ShareFetchRequest::KEY) {
        return;
    }
    refusals(run).await;
    let epoch = one_member(run).await;
    two_members(run, epoch).await;
    sessions(run).await;
    records(run).await;
    leaving(run).await;
}

fn beat(member: &str, epoch: i32) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest::default()
        .with_group_id(group("sh"))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_subscribed_topic_names(None)
}

fn joining(member: &str) -> ShareGroupHeartbeatRequest {
    beat(member, 0).with_subscribed_topic_names(Some(vec![topic("shared")]))
}

fn describe(groups: &[&str]) -> ShareGroupDescribeRequest {
    ShareGroupDescribeRequest::default().with_group_ids(groups.iter().copied().map(group).collect())
}

async fn refusals(run: &mut Run) {
    run.forget_epochs();
    run.ask("share: no id", joining("")).await;
    run.ask("share: no group", joining(A).with_group_id(group(""))).await;
    run.ask("share: no topics", joining(A).with_subscribed_topic_names(None)).await;
    run.ask("share: topics of none", joining(A).with_subscribed_topic_names(Some(Vec::new()))).await;
    run.ask("share: a rack without a name", joining(A).with_rack_id(Some(text("")))).await;
    run.ask("share: an epoch below all", joining(A).with_member_epoch(-3)).await;
    run.ask("share: an epoch of static members", joining(A).with_member_epoch(-2)).await;
    run.ask("share: an epoch that nobody gave", beat(A, 5)).await;
    run.ask("share: leaves what is not there", beat(A, -1)).await;
    run.ask("share: a classic group's name", joining(A).with_group_id(group("s"))).await;
    run.ask("share: described when there is none", describe(&["nothing", "s"])).await;
    run.until(NEWEST, "share: read without a group", fetch(run, "nothing", A, 0, &[0]), told).await;
}

fn assigned(answer: &ShareGroupHeartbeatResponse) -> bool {
    let assigned = answer.assignment.iter().flat_map(|of| &of.topic_partitions);
    assigned.map(|of| of.partitions.len()).sum::<usize>() > 0
}

async fn one_member(run: &mut Run) -> i32 {
    run.forget_epochs();
    run.ask(
        "share: begins at the oldest",
        alteration(GROUP, "sh", &[("share.auto.offset.reset", SET, Some("earliest"))]),
    )
    .await;
    let epoch = run.until(NEWEST, "share: joins", joining(A), assigned).await.member_epoch;
    run.ask("share: joins again", joining(A)).await;
    run.ask("share: beats", beat(A, epoch)).await;
    run.ask("share: beats in an epoch to come", beat(A, epoch + 9)).await;
    run.ask("share: another beats", beat("nobody", epoch)).await;
    run.ask("share: described", describe(&["sh"])).await;
    run.ask("share: described, allowed", describe(&["sh"]).with_include_authorized_operations(true)).await;
    run.ask("share: described as if classic", DescribeGroupsRequest::default().with_groups(vec![group("sh")])).await;
    let as_consumer = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group("sh")]);
    run.ask("share: described as if of consumers", as_consumer).await;
    run.ask("share: listed", ListGroupsRequest::default().with_types_filter(vec![text("share")])).await;
    run.ask("share: commits", commit("sh", A, epoch, "plain", 0, 2)).await;
    run.ask("share: commits from outside", commit("sh", "", -1, "plain", 0, 2)).await;
    run.ask("share: offsets", committed("sh", Some(&[("plain", &[0])]))).await;
    run.ask("share: deleted with a member", deletion()).await;
    let consumer = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group("sh"))
        .with_member_id(text(B))
        .with_rebalance_timeout_ms(10_000)
        .with_subscribed_topic_names(Some(vec![topic("plain")]))
        .with_topic_partitions(Some(Vec::new()));
    run.ask("share: joined by another kind of member", consumer).await;
    epoch
}

async fn two_members(run: &mut Run, epoch: i32) {
    // Which of two partitions a member gets is not the same in each run of Kafka.
    let wants =
        |request: ShareGroupHeartbeatRequest, name: &str| request.with_subscribed_topic_names(Some(vec![topic(name)]));
    let next = |answer: &ShareGroupHeartbeatResponse| answer.member_epoch != epoch && assigned(answer);
    let first = wants(beat(A, epoch), "stamped");
    let epoch = run.until(NEWEST, "share: the first wants another topic", first, next).await.member_epoch;
    let second = run.ask("share: a second joins", wants(joining(B), "stamped")).await.member_epoch;
    let told = |answer: &ShareGroupHeartbeatResponse| answer.member_epoch != epoch;
    run.until(NEWEST, "share: the first hears of it", beat(A, epoch), told).await;
    run.ask("share: the first in the epoch before", beat(A, epoch)).await;
    run.ask("share: the second goes on", beat(B, second)).await;
    run.ask("share: described with two", describe(&["sh"])).await;
    run.ask("share: the second wants another topic", wants(beat(B, second), "missing")).await;
    run.ask("share: the second leaves", beat(B, -1)).await;
    run.ask("share: the second is gone", beat(B, second)).await;
    let all = |answer: &ShareGroupHeartbeatResponse| {
        answer.assignment.iter().flat_map(|of| &of.topic_partitions).map(|of| of.partitions.len()).sum::<usize>() == 2
    };
    run.until(NEWEST, "share: the first has all", joining(A), all).await;
}

/// A fetch of these partitions of `shared`, for a member of a group.
fn fetch(run: &Run, of: &str, member: &str, epoch: i32, partitions: &[i32]) -> ShareFetchRequest {
    let partitions: Vec<_> =
        partitions.iter().map(|partition| FetchPartition::default().with_partition_index(*partition)).collect();
    let topics = FetchTopic::default().with_topic_id(run.ids["shared"]).with_partitions(partitions.clone());
    ShareFetchRequest::default()
        .with_group_id(Some(group(of)))
        .with_member_id(Some(text(member)))
        .with_share_session_epoch(epoch)
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_max_records(100)
        .with_batch_size(100)
        .with_topics(if partitions.is_empty() { Vec::new() } else { vec![topics] })
}

/// Whether a partition is told of: one that nobody fetched before is looked up behind the answer.
fn told(answer: &ShareFetchResponse) -> bool {
    answer.error_code != 0 || !answer.responses.is_empty()
}

/// Acknowledges records of a partition of `shared` in the fetch.
fn acknowledging(
    mut fetch: ShareFetchRequest,
    run: &Run,
    partition: i32,
    of: &[(i64, i64, &[i8])],
) -> ShareFetchRequest {
    let batch = |(first, last, types): &(i64, i64, &[i8])| {
        AcknowledgementBatch::default()
            .with_first_offset(*first)
            .with_last_offset(*last)
            .with_acknowledge_types(types.to_vec())
    };
    let partition = FetchPartition::default()
        .with_partition_index(partition)
        .with_acknowledgement_batches(of.iter().map(batch).collect());
    fetch.topics = vec![FetchTopic::default().with_topic_id(run.ids["shared"]).with_partitions(vec![partition])];
    fetch
}

fn acknowledge(
    run: &Run,
    member: &str,
    epoch: i32,
    partition: i32,
    of: &[(i64, i64, &[i8])],
) -> ShareAcknowledgeRequest {
    let batch = |(first, last, types): &(i64, i64, &[i8])| {
        Acknowledged::default().with_first_offset(*first).with_last_offset(*last).with_acknowledge_types(types.to_vec())
    };
    let partition = AcknowledgePartition::default()
        .with_partition_index(partition)
        .with_acknowledgement_batches(of.iter().map(batch).collect());
    let topics = AcknowledgeTopic::default().with_topic_id(run.ids["shared"]).with_partitions(vec![partition]);
    ShareAcknowledgeRequest::default()
        .with_group_id(Some(GroupId(text("sh"))))
        .with_member_id(Some(text(member)))
        .with_share_session_epoch(epoch)
        .with_topics(vec![topics])
}

async fn sessions(run: &mut Run) {
    run.ask("share session: none is there", fetch(run, "sh", A, 1, &[0])).await;
    run.ask("share session: none is closed", fetch(run, "sh", A, -1, &[])).await;
    run.ask("share session: acknowledged in none", acknowledge(run, A, 1, 0, &[(0, 0, &[1])])).await;
    run.ask("share session: begun by acknowledging", acknowledge(run, A, 0, 0, &[(0, 0, &[1])])).await;
    run.ask("share session: without a member", fetch(run, "sh", "", 0, &[0])).await;
    run.ask(
        "share session: begun with something acknowledged",
        acknowledging(fetch(run, "sh", A, 0, &[]), run, 0, &[(0, 0, &[1])]),
    )
    .await;
    let both = |answer: &ShareFetchResponse| answer.responses.iter().flat_map(|of| &of.partitions).count() == 2;
    run.until(NEWEST, "share session: begins with two", fetch(run, "sh", A, 0, &[0, 1]), both).await;
    run.until(NEWEST, "share session: begins", fetch(run, "sh", A, 0, &[0]), told).await;
    run.ask("share session: goes on", fetch(run, "sh", A, 1, &[])).await;
    run.ask("share session: in an epoch that was", fetch(run, "sh", A, 1, &[])).await;
    run.ask("share session: in an epoch to come", fetch(run, "sh", A, 9, &[])).await;
    run.ask("share session: with one more", fetch(run, "sh", A, 2, &[1])).await;
    run.ask("share session: with one that is not there", fetch(run, "sh", A, 3, &[9])).await;
    let forgotten = ForgottenTopic::default().with_topic_id(run.ids["shared"]).with_partitions(vec![9, 1]);
    run.ask("share session: with less", fetch(run, "sh", A, 4, &[]).with_forgotten_topics_data(vec![forgotten])).await;
    run.ask("share session: closed", fetch(run, "sh", A, -1, &[])).await;
    run.ask("share session: closed again", fetch(run, "sh", A, -1, &[])).await;
    run.until(NEWEST, "share session: of who is no member", fetch(run, "sh", "nobody", 0, &[0]), told).await;
    run.ask("share session: of who is no member, closed", fetch(run, "sh", "nobody", -1, &[])).await;
}

async fn records(run: &mut Run) {
    run.ask("share: written", run.writing("shared", 0, plain(&["=a", "=b", "=c"]))).await;
    run.ask("share: written on", run.writing("shared", 0, plain(&["=d", "=e"]))).await;
    let has = |answer: &ShareFetchResponse| {
        answer.responses.iter().flat_map(|of| &of.partitions).any(|of| !of.acquired_records.is_empty())
    };
    run.until(NEWEST, "share: read", fetch(run, "sh", A, 0, &[0]).with_max_records(3), has).await;
    run.ask("share: read on", fetch(run, "sh", A, 1, &[])).await;
    run.ask("share: read when all is taken", fetch(run, "sh", A, 2, &[])).await;
    run.ask("share: accepted", acknowledge(run, A, 3, 0, &[(0, 0, &[1])])).await;
    run.ask("share: accepted again", acknowledge(run, A, 4, 0, &[(0, 0, &[1])])).await;
    run.ask("share: released", acknowledge(run, A, 5, 0, &[(1, 1, &[2])])).await;
    run.ask("share: rejected", acknowledge(run, A, 6, 0, &[(2, 2, &[3])])).await;
    run.ask("share: an answer that is none", acknowledge(run, A, 7, 0, &[(3, 3, &[9])])).await;
    run.ask("share: a range that ends before it begins", acknowledge(run, A, 8, 0, &[(4, 3, &[1])])).await;
    run.ask("share: more answers than records", acknowledge(run, A, 9, 0, &[(3, 4, &[1, 1, 1])])).await;
    run.ask("share: no answers", acknowledge(run, A, 10, 0, &[(3, 4, &[])])).await;
    run.ask("share: ranges that overlap", acknowledge(run, A, 11, 0, &[(3, 4, &[1]), (4, 4, &[2])])).await;
    run.ask("share: records that are not there", acknowledge(run, A, 12, 0, &[(40, 41, &[1])])).await;
    run.ask("share: a partition that was not read", acknowledge(run, A, 13, 1, &[(0, 0, &[1])])).await;
    run.ask("share: a partition that is not there", acknowledge(run, A, 14, 9, &[(0, 0, &[1])])).await;
    run.ask("share: one each", acknowledge(run, A, 15, 0, &[(3, 4, &[1, 2])])).await;
    let again = acknowledging(fetch(run, "sh", A, 16, &[]), run, 0, &[(3, 3, &[1])]);
    run.ask("share: read what was released", again).await;
    run.ask("share: by another", fetch(run, "sh", B, 0, &[0])).await;
    run.ask("share: accepted by another", acknowledge(run, B, 1, 0, &[(1, 1, &[1])])).await;
    run.ask("share: accepted at the close", acknowledge(run, A, -1, 0, &[(1, 1, &[1])])).await;
    // It is given back behind the answer.
    run.until(NEWEST, "share: what the close gave back", fetch(run, "sh", B, 0, &[0]), has).await;
    let last = acknowledging(fetch(run, "sh", B, -1, &[]), run, 0, &[(4, 4, &[1])]);
    run.ask("share: accepted by a fetch that closes", last).await;
}

fn deletion() -> DeleteGroupsRequest {
    DeleteGroupsRequest::default().with_groups_names(vec![group("sh")])
}

async fn leaving(run: &mut Run) {
    run.forget_epochs();
    // Its session may be over.
    run.once_more(joining(A), |answer| answer.error_code == 0).await;
    run.ask("share: leaves", beat(A, -1)).await;
    run.ask("share: described when empty", describe(&["sh"])).await;
    run.ask("share: deleted", deletion()).await;
    run.ask("share: described when gone", describe(&["sh"])).await;
}

/// Members, as they name themselves.
const A: &str = "AAAAAAAAAAAAAAAAAAAAAA";
const B: &str = "BBBBBBBBBBBBBBBBBBBBBB";
/// `ConfigResource.Type`.
const GROUP: i8 = 32;
