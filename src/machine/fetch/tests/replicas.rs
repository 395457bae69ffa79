//! Reading from another replica than the leader (KIP-392).

use super::*;

const RACK: &str = "east";

fn rig() -> Rig {
    let rack = Some(StrBytes::from_static_str(RACK));
    let mut rig = Rig::new(2, FetchConfig { rack, replica_max_age: Duration::from_secs(300), ..small() });
    rig.append(0, 10, 10);
    rig
}

/// The leader names another replica for partition 0.
fn send_to(rig: &mut Rig, node: NodeId) {
    let plan = rig.ask(NODE);
    assert_eq!(&*plan.request(17).rack_id, RACK);
    let mut response = rig.response(&plan);
    for data in &mut response.responses[0].partitions {
        if data.partition_index == 0 {
            data.preferred_read_replica = node.0.into();
            data.records = None;
        }
    }
    rig.answer(&plan, response);
}

/// The other replica says this of partition 0.
fn answer(rig: &mut Rig, plan: &FetchPlan, data: PartitionData) {
    let topic = FetchableTopicResponse::default().with_topic_id(Uuid::from_u128(7)).with_partitions(vec![data]);
    rig.answer(plan, FetchResponse::default().with_responses(vec![topic]));
}

fn records(rig: &Rig) -> PartitionData {
    PartitionData::default().with_records(Some(rig.logs[&tp(0)].read(0, 10_000, true)))
}

/// The leader is asked, and with its word alone: no rack, or it would send there again.
fn asks_the_leader_alone(rig: &mut Rig) {
    let plan = rig.ask(NODE);
    assert_eq!(rig.asked(&plan), [0, 1].into());
    assert!(plan.request(17).rack_id.is_empty());
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert_eq!(rig.take(), (0, 0..10));
}

#[test]
fn the_replica_that_the_leader_names_is_read_until_its_word_is_old() {
    let mut rig = rig();
    send_to(&mut rig, OTHER);
    assert_eq!(rig.events(), ["Redirected"]);
    assert_eq!(rig.fetcher.nodes().collect::<Vec<_>>(), [NODE, OTHER]);
    let plan = rig.ask(OTHER);
    assert_eq!(rig.asked(&plan), [0].into());
    let data = records(&rig);
    answer(&mut rig, &plan, data);
    assert_eq!(rig.take(), (0, 0..10));
    rig.now += Duration::from_secs(299);
    let plan = rig.ask(OTHER);
    answer(&mut rig, &plan, PartitionData::default());
    rig.now += Duration::from_secs(1);
    assert_eq!((rig.wait(OTHER), rig.events()), (None, vec!["Redirected".to_owned()]));
    let plan = rig.ask(NODE);
    assert_eq!((rig.asked(&plan), &*plan.request(17).rack_id), ([0, 1].into(), RACK));
}

#[test]
fn without_a_rack_none_is_sent_and_old_versions_have_no_place_for_one() {
    let mut rig = Rig::new(1, small());
    assert!(rig.ask(NODE).request(17).rack_id.is_empty());
    let mut rig = self::rig();
    let plan = rig.ask(NODE);
    assert_eq!((&*plan.request(11).rack_id, plan.request(10).rack_id.is_empty()), (RACK, true));
}

/// A follower that lags is no reason to reset a position (librdkafka#4616).
#[test]
fn only_the_leader_decides_that_a_position_is_out_of_range() {
    let mut rig = rig();
    send_to(&mut rig, OTHER);
    rig.events();
    let plan = rig.ask(OTHER);
    answer(&mut rig, &plan, PartitionData::default().with_error_code(ErrorCode::OFFSET_OUT_OF_RANGE.0));
    assert_eq!(rig.events(), ["Redirected"]);
    asks_the_leader_alone(&mut rig);
    rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(ErrorCode::OFFSET_OUT_OF_RANGE);
    rig.now += Duration::from_secs(1);
    rig.fetch();
    assert!(rig.events()[0].contains("NeedsReset"));
}

/// A follower that has not all of the log yet would have it look truncated.
#[test]
fn only_the_leader_decides_that_a_log_was_truncated() {
    let mut rig = rig();
    send_to(&mut rig, OTHER);
    rig.events();
    rig.fetcher.seek(&tp(0), 1, Offset(9), Some(LeaderEpoch(1)));
    let plan = rig.ask(OTHER);
    let diverging = EpochEndOffset::default().with_epoch(0).with_end_offset(3);
    answer(&mut rig, &plan, PartitionData::default().with_diverging_epoch(diverging));
    assert_eq!(rig.events(), ["Redirected"]);
    let asked = of(&rig.ask(NODE), 0);
    assert_eq!((asked.offset, asked.last_fetched_epoch), (Offset(9), Some(LeaderEpoch(1))));
}

/// It sends who has a nearer replica there without a look at the position.
#[test]
fn a_position_is_checked_by_the_leader_before_it_is_read_nearby() {
    let mut rig = rig();
    rig.stamp(0, 1);
    rig.fetcher.assign(start(0, 9, Some(1)));
    rig.update();
    let plan = rig.fetch();
    assert_eq!((&*plan.request(17).rack_id, of(&plan, 0).last_fetched_epoch), ("", Some(LeaderEpoch(1))));
    assert_eq!(rig.take(), (0, 9..10));
    rig.append(0, 1, 1);
    send_to(&mut rig, OTHER);
    let plan = rig.ask(OTHER);
    assert_eq!(rig.asked(&plan), [0].into());
}

#[test]
fn whatever_a_replica_refuses_is_asked_of_the_leader_at_once() {
    for code in [
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
        ErrorCode::OFFSET_NOT_AVAILABLE,
        ErrorCode::REPLICA_NOT_AVAILABLE,
        ErrorCode::TOPIC_AUTHORIZATION_FAILED,
    ] {
        let mut rig = rig();
        send_to(&mut rig, OTHER);
        rig.events();
        let plan = rig.ask(OTHER);
        answer(&mut rig, &plan, PartitionData::default().with_error_code(code.0));
        asks_the_leader_alone(&mut rig);
    }
}

/// One that cannot be reached was asked for ever, as the leader sends no records to who has a nearer one.
#[test]
fn a_replica_that_does_not_answer_is_left_for_the_leader_and_tried_again_later() {
    let mut rig = rig();
    send_to(&mut rig, OTHER);
    rig.events();
    let plan = rig.ask(OTHER);
    rig.fetcher.handle_failure(rig.now, &plan);
    asks_the_leader_alone(&mut rig);
    rig.now += Duration::from_secs(30);
    let plan = rig.ask(NODE);
    assert_eq!(&*plan.request(17).rack_id, RACK);
}

#[test]
fn a_replica_that_is_not_known_or_is_the_leader_itself_is_not_waited_for() {
    let mut rig = rig();
    send_to(&mut rig, NODE);
    assert!(rig.events()[0].contains("Stale"));
    asks_the_leader_alone(&mut rig);
}

#[test]
fn a_new_leader_is_asked_itself() {
    let mut rig = rig();
    send_to(&mut rig, OTHER);
    rig.lead(0, NODE, 2);
    rig.update();
    let plan = rig.ask(NODE);
    assert_eq!((rig.asked(&plan), &*plan.request(17).rack_id), ([0, 1].into(), RACK));
}
