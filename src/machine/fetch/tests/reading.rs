//! Records, in order, once.

use super::*;
use crate::machine::fetch::schedule::WAIT_BESIDE_PAUSED;

#[test]
fn every_partition_is_read_in_order_and_in_turn() {
    let mut rig = Rig::new(2, small());
    for _ in 0..3 {
        rig.append(0, 10, 10);
        rig.append(1, 5, 10);
    }
    let plan = rig.fetch();
    assert_eq!(rig.asked(&plan), [0, 1].into());
    let mut got = [rig.take(), rig.take()];
    got.sort_by_key(|(partition, _)| *partition);
    assert_eq!(got, [(0, 0..30), (1, 0..15)]);
    assert!(rig.fetcher.poll_batch().is_none());
    rig.append(1, 1, 1);
    rig.fetch();
    assert_eq!(rig.take(), (1, 15..16));
}

/// A heartbeat on the same thread waited for the checksums of a whole answer.
#[test]
fn a_large_answer_is_read_in_turns_be_it_of_one_partition_or_of_many() {
    for (partitions, batches) in [(1, 40), (40, 1)] {
        let mut rig = Rig::new(partitions, FetchConfig { max_partition_bytes: 8 << 20, ..FetchConfig::default() });
        for partition in 0..partitions {
            (0..batches).for_each(|_| rig.append(partition, 1, 100_000));
        }
        let plan = rig.ask(NODE);
        let response = rig.response(&plan);
        let mut reader = AnswerReader::new(response, ReadOptions::default(), rig.fetcher.budget().clone());
        let turns = std::iter::from_fn(|| reader.next(&plan)).filter(Poll::is_pending).count();
        assert!((6..=8).contains(&turns), "{turns} turns for 4 MB of {partitions} partitions");
    }
}

/// Clients that took the next offset from the last record asked for a compacted batch for ever (kafkajs#562).
#[test]
fn an_emptied_batch_moves_the_position_and_can_be_committed_past() {
    let mut rig = Rig::new(1, small());
    rig.append_emptied(0, 10);
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..10));
    let plan = rig.ask(NODE);
    assert_eq!(of(&plan, 0).offset, Offset(10));
}

#[test]
fn an_answer_with_whole_batches_begins_before_what_was_asked_for() {
    let mut rig = Rig::new(1, small());
    rig.append_as(0, 10, 10, if Codec::Lz4.is_enabled() { Codec::Lz4 } else { Codec::None });
    rig.fetcher.seek(&tp(0), 1, Offset(4), None);
    rig.fetch();
    let fetched = rig.fetcher.poll_batch().unwrap();
    assert_eq!(span(&fetched), (0, 4..10));
    assert_eq!(fetched.chunk.batches[0].header().base_offset, Offset(0));
}

/// Old buffered data after a seek moved a commit backwards (librdkafka#4686, #3471).
#[test]
fn a_seek_drops_what_was_buffered_and_what_is_on_its_way() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetch();
    rig.append(0, 10, 10);
    let plan = rig.ask(NODE);
    rig.fetcher.seek(&tp(0), 1, Offset(15), None);
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert!(rig.fetcher.poll_batch().is_none());
    assert_eq!(rig.fetcher.budget().used(), 0);
    rig.fetch();
    assert_eq!(rig.take(), (0, 15..20));
}

#[test]
fn a_seek_of_an_earlier_assignment_does_nothing() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.fetcher.revoke([&tp(0)]);
    rig.fetcher.assign(StartAt { epoch: 2, ..start(0, 3, None) });
    rig.update();
    rig.fetcher.seek(&tp(0), 1, Offset(9), None);
    rig.fetcher.pause(&tp(0), 1);
    rig.fetch();
    assert_eq!(rig.take(), (0, 3..10));
}

#[test]
fn a_partition_that_went_and_came_back_takes_no_answer_of_its_earlier_assignment() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    let plan = rig.ask(NODE);
    rig.fetcher.revoke([&tp(0)]);
    rig.fetcher.assign(StartAt { epoch: 2, ..start(0, 0, None) });
    rig.update();
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert!(rig.fetcher.poll_batch().is_none());
}

#[test]
fn a_pause_keeps_what_is_buffered_and_asks_for_no_more() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 10, 10);
    rig.fetch();
    rig.fetcher.pause(&tp(0), 1);
    assert!(rig.fetcher.poll_batch().is_none());
    let plan = rig.ask(NODE);
    // Briefly: the other may be resumed at any moment, and then has to wait for this request.
    assert_eq!((rig.asked(&plan), plan.max_wait), ([1].into(), WAIT_BESIDE_PAUSED));
    rig.fetcher.resume(&tp(0), 1);
    assert_eq!(rig.take(), (0, 0..10));
}

#[test]
fn a_malformed_batch_stops_its_partition_alone_and_is_never_skipped() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 10, 10);
    rig.append(0, 10, 10);
    rig.append(0, 10, 10);
    let whole = rig.logs[&tp(0)].batches[1].clone();
    let mut broken = BytesMut::from(&whole[..]);
    *broken.last_mut().unwrap() ^= 1;
    rig.logs.get_mut(&tp(0)).unwrap().batches[1] = broken.freeze();
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..10));
    let events = rig.events();
    assert!(events.len() == 1 && events[0].contains("offset: Offset(10)"), "{events:?}");

    rig.append(1, 1, 1);
    let plan = rig.fetch();
    assert_eq!(rig.asked(&plan), [1].into());
    assert_eq!(rig.take(), (1, 0..1));

    rig.now += Duration::from_secs(2);
    rig.fetch();
    assert!(rig.fetcher.poll_batch().is_none());
    assert_eq!(rig.events().len(), 1);

    rig.logs.get_mut(&tp(0)).unwrap().batches[1] = whole;
    rig.now += Duration::from_secs(60);
    rig.fetch();
    assert_eq!(rig.take(), (0, 10..30));
}

/// Answers with partitions that nobody asked for, twice, or not at all crashed clients (franz-go#1348).
#[test]
fn what_was_not_asked_for_is_passed_over_and_what_came_twice_counts_once() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 10, 10);
    let plan = rig.ask(NODE);
    let mut response = rig.response(&plan);
    let mut partitions = response.responses[0].partitions.clone();
    partitions.retain(|data| data.partition_index == 0);
    let twice = partitions[0].clone();
    let unknown = twice.clone().with_partition_index(77);
    let negative = twice.clone().with_partition_index(-1);
    response.responses[0].partitions = vec![unknown, twice.clone(), twice.clone(), negative];
    let foreign = FetchableTopicResponse::default()
        .with_topic(TopicName(StrBytes::from_static_str("else")))
        .with_topic_id(Uuid::from_u128(8))
        .with_partitions(vec![twice]);
    response.responses.push(foreign);
    rig.answer(&plan, response);
    assert_eq!(rig.take(), (0, 0..10));
    assert!(rig.fetcher.poll_batch().is_none());
    assert!(rig.events().is_empty());
    let plan = rig.ask(NODE);
    assert_eq!(rig.asked(&plan), [0, 1].into());
}

#[test]
fn answers_by_name_are_matched_too() {
    let mut rig = Rig::new(2, small());
    rig.append(1, 10, 10);
    let plan = rig.ask(NODE);
    let mut response = rig.response(&plan);
    response.responses[0].topic_id = Uuid::nil();
    response.responses[0].topic = TopicName(StrBytes::from_static_str("orders"));
    rig.answer(&plan, response);
    assert_eq!(rig.take(), (1, 0..10));
}

#[test]
fn a_batch_larger_than_the_partition_limit_comes_through() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 1, 50_000);
    rig.append(0, 1, 10);
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..1));
    rig.fetch();
    assert_eq!(rig.take(), (0, 1..2));
}

#[test]
fn an_answer_of_a_cut_batch_alone_asks_for_more_next_time() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 1, 50_000);
    let plan = rig.ask(NODE);
    let mut response = rig.response(&plan);
    let records = response.responses[0].partitions[0].records.as_mut().unwrap();
    *records = records.slice(..10_000);
    rig.answer(&plan, response);
    assert!(rig.fetcher.poll_batch().is_none());
    rig.now += QUIET_PAUSE;
    assert!(of(&rig.ask(NODE), 0).max_bytes > 50_000);
}
