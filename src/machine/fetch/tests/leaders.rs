//! Leaders that move, logs that were truncated, topics that were created anew.

use super::*;
use crate::machine::fetch::verdict::TELL_STALE_EVERY;

/// Out of range was never recovered from (platformatic#286), or asked of a follower (librdkafka#4616).
#[test]
fn out_of_range_asks_for_a_reset_once_and_goes_on_where_it_is_put() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 10, 10);
    rig.append(0, 10, 10);
    rig.logs.get_mut(&tp(0)).unwrap().start = 10;
    rig.fetch();
    assert_eq!(rig.events().len(), 1);
    let plan = rig.fetch();
    assert_eq!((rig.asked(&plan), rig.events().len()), ([1].into(), 0));
    rig.fetcher.reposition(&tp(0), 1, Offset(10), None);
    rig.now += Duration::from_millis(500);
    rig.fetch();
    assert_eq!(rig.take(), (0, 10..20));
    // Late answers of a second reset move nothing.
    rig.fetcher.reposition(&tp(0), 1, Offset(12), None);
    assert_eq!(of(&rig.ask(NODE), 0).offset, Offset(20));
}

/// Brokers say out of range, too, when they do not know the epoch that they are to check (KAFKA-9840).
#[test]
fn an_unknown_epoch_is_not_read_as_data_loss() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.assign(start(0, 5, Some(3)));
    rig.update();
    let plan = rig.ask(NODE);
    assert_eq!(of(&plan, 0).last_fetched_epoch, Some(LeaderEpoch(3)));
    rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(ErrorCode::OFFSET_OUT_OF_RANGE);
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert!(rig.events().is_empty());
    rig.logs.get_mut(&tp(0)).unwrap().refuse = None;
    let plan = rig.fetch();
    assert_eq!(of(&plan, 0).last_fetched_epoch, None);
    assert_eq!(rig.take(), (0, 5..10));
}

/// A committed position above a truncation was answered by a full reset (librdkafka#5158).
#[test]
fn a_truncated_log_is_read_from_where_it_diverged() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.assign(start(0, 9, Some(3)));
    rig.update();
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((2, 6));
    rig.fetch();
    let events = rig.events();
    assert!(events.len() == 1 && events[0].starts_with("Truncated"), "{events:?}");
    rig.fetch();
    assert_eq!(rig.take(), (0, 6..10));
}

/// Where it was truncated to was known, and its epoch thrown away: the next leader was not asked (librdkafka#5158).
#[test]
fn a_position_keeps_its_epoch_through_a_truncation_and_a_reset() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 10, 10);
    rig.fetcher.assign(start(0, 9, Some(3)));
    rig.update();
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((2, 6));
    rig.fetch();
    rig.fetcher.pause(&tp(0), 1);
    rig.logs.get_mut(&tp(1)).unwrap().refuse = Some(ErrorCode::OFFSET_OUT_OF_RANGE);
    rig.fetch();
    rig.fetcher.reposition(&tp(1), 1, Offset(40), Some(LeaderEpoch(2)));
    rig.fetcher.resume(&tp(0), 1);
    for partition in 0..2 {
        rig.lead(partition, OTHER, 4);
    }
    rig.update();
    let asked: Vec<_> = rig.ask(OTHER).asked.fetches().map(|asked| asked.last_fetched_epoch).collect();
    assert_eq!(asked, [Some(LeaderEpoch(2)); 2]);
}

/// A leader that changes while its answer is on its way: the answer was taken for the new leader's check, and what it had
/// lost was not found out (librdkafka#4261).
#[test]
fn records_of_the_leader_before_do_not_stand_for_the_new_ones_check() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.stamp(0, 1);
    let late = rig.ask(NODE);
    let response = rig.response(&late);
    rig.lead(0, OTHER, 2);
    rig.update();
    rig.answer(&late, response);
    assert_eq!(rig.take(), (0, 0..10));
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((1, 6));
    let plan = rig.ask(OTHER);
    assert_eq!(of(&plan, 0).last_fetched_epoch, Some(LeaderEpoch(1)));
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    let events = rig.events();
    assert!(events.len() == 1 && events[0].starts_with("Truncated"), "{events:?}");
    assert_eq!(of(&rig.ask(OTHER), 0).offset, Offset(6));
}

/// A refusal that came late made the position be reset, or the new leader wait (librdkafka#4433).
#[test]
fn what_the_leader_before_says_of_the_log_is_asked_of_the_new_one() {
    let refusals = [ErrorCode::OFFSET_OUT_OF_RANGE, ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH];
    for refusal in refusals.map(Some).into_iter().chain([None]) {
        let mut rig = Rig::new(1, small());
        rig.append(0, 10, 10);
        rig.fetcher.assign(start(0, 5, Some(1)));
        rig.update();
        if refusal.is_none() {
            rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((1, 2));
        }
        rig.logs.get_mut(&tp(0)).unwrap().refuse = refusal;
        let late = rig.ask(NODE);
        let response = rig.response(&late);
        rig.lead(0, OTHER, 2);
        rig.update();
        rig.answer(&late, response);
        assert!(rig.events().is_empty(), "{refusal:?}");
        let plan = rig.ask(OTHER);
        let asked = &of(&plan, 0);
        assert_eq!((asked.offset, asked.last_fetched_epoch), (Offset(5), Some(LeaderEpoch(1))), "{refusal:?}");
    }
}

/// A position that was given by the caller was not checked (librdkafka#5158): behind a truncation it was out of range, and
/// reset from one end of the log to the other.
#[test]
fn a_seek_with_its_epoch_is_checked_for_truncation() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.seek(&tp(0), 1, Offset(9), Some(LeaderEpoch(3)));
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((2, 6));
    rig.fetch();
    let events = rig.events();
    assert!(events.len() == 1 && events[0].starts_with("Truncated"), "{events:?}");
    rig.fetch();
    assert_eq!(rig.take(), (0, 6..10));
}

#[test]
fn a_paused_partition_that_gave_up_its_buffer_is_still_checked_for_truncation() {
    let config = FetchConfig { budget_bytes: 400 << 10, max_partition_bytes: 300 << 10, ..FetchConfig::default() };
    let mut rig = Rig::new(2, config);
    for _ in 0..2 {
        rig.append(0, 10, 20 << 10);
        rig.stamp(0, 1);
    }
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..10));
    rig.fetch();
    rig.fetcher.pause(&tp(0), 1);
    rig.append(1, 1, 10);
    rig.lead(0, OTHER, 2);
    rig.update();
    rig.ask(NODE);
    assert_eq!(rig.fetcher.budget().used(), 0, "the buffer was given up");
    rig.fetcher.resume(&tp(0), 1);
    let asked = of(&rig.ask(OTHER), 0);
    assert_eq!((asked.offset, asked.last_fetched_epoch), (Offset(10), Some(LeaderEpoch(1))));
}

#[test]
fn an_undefined_diverging_epoch_changes_nothing() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.assign(start(0, 9, Some(3)));
    rig.update();
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((-1, -1));
    rig.fetch();
    rig.now += QUIET_PAUSE;
    rig.fetch();
    assert_eq!(rig.take(), (0, 9..10));
    assert!(rig.events().is_empty());
}

/// The old epoch was resent for ever (platformatic#250).
#[test]
fn a_moved_leader_makes_metadata_stale_without_a_loop_and_the_new_one_is_asked_at_once() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.lead(0, OTHER, 2);
    rig.fetch();
    let events = rig.events();
    assert!(events.len() == 1 && events[0].starts_with("Stale"), "{events:?}");
    let again = rig.wait(NODE).expect("tried again later");
    assert!(again >= rig.now + Duration::from_millis(100));
    rig.update();
    assert_eq!(rig.wait(NODE), None);
    let plan = rig.ask(OTHER);
    assert_eq!(of(&plan, 0).leader_epoch, Some(LeaderEpoch(2)));
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert_eq!(rig.take(), (0, 0..10));
}

/// A code that was not known to mean old metadata had the old epoch sent for ever (platformatic#250).
#[test]
fn whatever_says_that_the_leader_is_another_has_metadata_looked_at() {
    let codes = [
        ErrorCode::FENCED_LEADER_EPOCH,
        ErrorCode::UNKNOWN_LEADER_EPOCH,
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::LEADER_NOT_AVAILABLE,
        ErrorCode::REPLICA_NOT_AVAILABLE,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode::UNKNOWN_TOPIC_ID,
        ErrorCode::INCONSISTENT_TOPIC_ID,
        ErrorCode::OFFSET_NOT_AVAILABLE,
        ErrorCode::KAFKA_STORAGE_ERROR,
    ];
    for code in codes {
        let mut rig = Rig::new(1, small());
        rig.append(0, 10, 10);
        rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(code);
        rig.fetch();
        let events = rig.events();
        assert!(events.len() == 1 && events[0].starts_with("Stale"), "{code}: {events:?}");
        assert!(rig.wait(NODE).expect("tried again later") > rig.now, "{code}");
        rig.logs.get_mut(&tp(0)).unwrap().refuse = None;
        rig.lead(0, NODE, 2);
        rig.update();
        assert_eq!(of(&rig.fetch(), 0).leader_epoch, Some(LeaderEpoch(2)), "{code}");
        assert_eq!(rig.take(), (0, 0..10), "{code}");
    }
}

#[test]
fn older_metadata_does_not_bring_the_old_leader_back() {
    let mut rig = Rig::new(1, small());
    rig.lead(0, OTHER, 5);
    rig.update();
    rig.lead(0, NODE, 4);
    rig.update();
    assert_eq!(rig.fetcher.nodes().collect::<Vec<_>>(), [OTHER]);
}

#[test]
fn a_leader_that_is_not_found_for_long_is_told() {
    let mut rig = Rig::new(1, small());
    rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(ErrorCode::LEADER_NOT_AVAILABLE);
    let mut told = 0;
    for _ in 0..TELL_STALE_EVERY * 2 {
        rig.fetch();
        told += rig.events().iter().filter(|event| event.starts_with("Refused")).count();
        rig.now = rig.wait(NODE).unwrap();
    }
    assert_eq!(told, 2);
}

#[test]
fn a_topic_that_was_created_anew_is_repositioned() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    let leader = Leader { node: NODE, epoch: Some(LeaderEpoch(0)), topic_id: Uuid::from_u128(9) };
    rig.leaders.insert(tp(0), leader);
    rig.update();
    rig.update();
    let events = rig.events();
    assert!(events.len() == 1 && events[0].contains("Recreated"), "{events:?}");
    assert_eq!(rig.wait(NODE), None);
    rig.fetcher.reposition(&tp(0), 1, Offset(0), None);
    assert_eq!(of(&rig.ask(NODE), 0).topic_id, Uuid::from_u128(9));
}

/// The answer that was on its way for the old topic took the partition out of its reset: it went on at the old offset,
/// was out of range there, and with the policy "latest" all that the new topic held was passed over.
#[test]
fn a_late_answer_of_the_old_topic_does_not_end_the_reset_of_the_new_one() {
    for late in [ErrorCode::UNKNOWN_TOPIC_ID, ErrorCode::OFFSET_OUT_OF_RANGE] {
        let mut rig = Rig::new(1, small());
        rig.append(0, 10, 10);
        rig.fetch();
        rig.take();
        let on_its_way = rig.ask(NODE);
        let leader = Leader { node: NODE, epoch: Some(LeaderEpoch(0)), topic_id: Uuid::from_u128(9) };
        rig.leaders.insert(tp(0), leader);
        rig.update();
        let events = rig.events();
        assert!(events.len() == 1 && events[0].contains("Recreated"), "{events:?}");
        rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(late);
        let response = rig.response(&on_its_way);
        rig.answer(&on_its_way, response);
        assert!(rig.events().is_empty(), "one reset at a time");
        rig.logs.get_mut(&tp(0)).unwrap().refuse = None;
        rig.fetcher.reposition(&tp(0), 1, Offset(0), None);
        rig.now += Duration::from_secs(10);
        assert_eq!(of(&rig.ask(NODE), 0).offset, Offset(0));
    }
}

/// A leader that told of a divergence behind the position was asked by its round trips, a thousand times a second, and nothing was read.
#[test]
fn a_divergence_behind_the_position_is_none_and_is_not_asked_for_again() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.assign(start(0, 5, Some(3)));
    rig.update();
    rig.logs.get_mut(&tp(0)).unwrap().diverging = Some((9, 50));
    let plan = rig.fetch();
    assert_eq!(of(&plan, 0).last_fetched_epoch, Some(LeaderEpoch(3)));
    let plan = rig.fetch();
    assert_eq!(of(&plan, 0).last_fetched_epoch, None);
    assert_eq!(rig.take(), (0, 5..10));
    assert!(rig.events().is_empty());
}
