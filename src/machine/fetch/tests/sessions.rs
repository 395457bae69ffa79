//! What is said to a broker that remembers.

use super::*;

fn many(partitions: i32) -> Rig {
    let mut rig = Rig::new(partitions, FetchConfig::default());
    rig.fetch();
    rig.now += Duration::from_secs(1);
    rig
}

fn said(rig: &mut Rig) -> (i32, usize, usize, usize) {
    rig.now += Duration::from_secs(1);
    rig.fetch();
    let Traffic { epoch, said, forgotten, told } = *rig.traffic.last().unwrap();
    (epoch, said, forgotten, told)
}

#[test]
fn a_broker_that_remembers_is_told_what_changed_and_tells_what_is_new() {
    let mut rig = many(1_000);
    assert_eq!(rig.traffic, [Traffic { epoch: 0, said: 1_000, forgotten: 0, told: 1_000 }]);
    assert_eq!([said(&mut rig), said(&mut rig)], [(1, 0, 0, 0), (2, 0, 0, 0)]);
    rig.append(7, 3, 10);
    rig.append(8, 3, 10);
    assert_eq!(said(&mut rig), (3, 0, 0, 2));
    assert_eq!([rig.take().1, rig.take().1], [0..3, 0..3]);
    assert_eq!(said(&mut rig), (4, 2, 0, 0));
    assert_eq!(said(&mut rig), (5, 0, 0, 0));
}

#[test]
fn what_is_paused_or_given_back_is_forgotten_and_said_again_when_it_comes_back() {
    let mut rig = many(10);
    rig.fetcher.pause(&tp(3), 1);
    rig.fetcher.revoke([&tp(4), &tp(5)]);
    assert_eq!(said(&mut rig), (1, 0, 3, 0));
    rig.fetcher.resume(&tp(3), 1);
    rig.fetcher.assign(start(4, 0, None));
    rig.update();
    assert_eq!(said(&mut rig), (2, 2, 0, 2));
    rig.append(3, 1, 1);
    rig.append(4, 1, 1);
    rig.append(5, 1, 1);
    assert_eq!(said(&mut rig).3, 2);
}

/// The same partition at the same offset is another position: what comes for the one before must not be taken for it.
#[test]
fn a_position_that_is_the_same_again_is_read_without_being_said() {
    let mut rig = many(1);
    rig.fetcher.revoke([&tp(0)]);
    rig.fetcher.assign(StartAt { epoch: 2, ..start(0, 0, None) });
    rig.update();
    rig.append(0, 5, 10);
    assert_eq!(said(&mut rig), (1, 0, 0, 1));
    assert_eq!(rig.fetcher.poll_batch().map(|fetched| fetched.epoch), Some(2));
}

#[test]
fn each_broker_has_a_session_of_its_own_and_forgets_what_moved() {
    let mut rig = many(4);
    rig.lead(0, OTHER, 2);
    rig.update();
    let plan = rig.ask(OTHER);
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert_eq!((plan.asked.fetches().count(), rig.traffic.last().unwrap().epoch), (1, 0));
    assert_eq!(said(&mut rig), (1, 0, 1, 0));
}

#[test]
fn a_broker_that_keeps_no_session_is_told_everything_each_time() {
    let mut rig = Rig::new(5, FetchConfig::default());
    rig.keeps_sessions = false;
    assert_eq!([said(&mut rig), said(&mut rig), said(&mut rig)], [(0, 5, 0, 5); 3]);
    rig.keeps_sessions = true;
    assert_eq!([said(&mut rig), said(&mut rig)], [(0, 5, 0, 5), (1, 0, 0, 0)]);
}

/// A session that the broker evicted ended the reading (platformatic#316).
#[test]
fn a_session_that_is_refused_is_begun_anew_at_once_and_loses_nothing() {
    for code in SESSION_REFUSALS {
        let mut rig = many(3);
        rig.append(1, 4, 10);
        let plan = rig.ask(NODE);
        rig.answer(&plan, FetchResponse::default().with_error_code(code.0));
        rig.fetch();
        assert_eq!(rig.traffic.last(), Some(&Traffic { epoch: 0, said: 3, forgotten: 0, told: 3 }), "{code}");
        assert_eq!(rig.take(), (1, 0..4));
        assert!(rig.events().is_empty(), "{code}");
    }
}

#[test]
fn a_broker_that_refuses_even_a_whole_request_is_not_asked_in_a_loop() {
    let mut rig = many(1);
    for _ in 0..2 {
        let plan = rig.ask(NODE);
        rig.answer(&plan, FetchResponse::default().with_error_code(ErrorCode::INVALID_FETCH_SESSION_EPOCH.0));
    }
    assert!(rig.wait(NODE).is_some_and(|until| until > rig.now));
}

/// Whether it arrived decides what the broker remembers, and is not known.
#[test]
fn a_request_that_was_not_answered_ends_the_session_and_names_it() {
    for arrived in [false, true] {
        let mut rig = many(3);
        rig.append(0, 2, 10);
        rig.fetch();
        rig.take();
        let plan = rig.ask(NODE);
        if arrived {
            rig.response(&plan);
        }
        rig.fetcher.handle_failure(rig.now, &plan);
        rig.now += Duration::from_secs(10);
        let plan = rig.ask(NODE);
        let request = plan.request(17);
        assert_eq!((request.session_id, request.session_epoch), (1, 0));
        let response = rig.response(&plan);
        rig.answer(&plan, response);
        assert_eq!(rig.traffic.last().unwrap().said, 3);
        rig.append(0, 1, 10);
        assert_eq!(said(&mut rig), (1, 0, 0, 1));
        assert_eq!(rig.take(), (0, 2..3));
    }
}

#[test]
fn a_topic_that_was_created_anew_takes_the_place_of_the_old_one() {
    for by_id in [true, false] {
        let mut rig = many(2);
        rig.version = if by_id { 17 } else { 12 };
        for partition in 0..2 {
            let leader = Leader { node: NODE, epoch: Some(LeaderEpoch(0)), topic_id: Uuid::from_u128(9) };
            rig.leaders.insert(tp(partition), leader);
        }
        rig.update();
        for partition in 0..2 {
            rig.fetcher.reposition(&tp(partition), 1, Offset(0), None);
        }
        rig.now += Duration::from_secs(1);
        let plan = rig.ask(NODE);
        let request = plan.request(rig.version);
        let gone: Vec<_> = request.forgotten_topics_data.iter().map(|topic| topic.topic_id.as_u128()).collect();
        assert_eq!(gone, if by_id { vec![7] } else { vec![] });
        assert_eq!(request.topics.iter().map(|topic| topic.partitions.len()).sum::<usize>(), 2);
        assert_eq!(request.topics[0].topic_id.as_u128(), if by_id { 9 } else { 0 });
    }
}

#[test]
fn an_epoch_that_was_checked_is_not_taken_back_by_saying_all_again() {
    let mut rig = Rig::new(2, FetchConfig::default());
    for partition in 0..2 {
        rig.fetcher.assign(start(partition, 0, Some(1)));
    }
    rig.update();
    assert_eq!([said(&mut rig), said(&mut rig)], [(0, 2, 0, 2), (1, 0, 0, 0)]);
    // Said anew, and not told of, because all is as it was.
    rig.fetcher.seek(&tp(0), 1, Offset(0), Some(LeaderEpoch(0)));
    assert_eq!([said(&mut rig), said(&mut rig)], [(2, 1, 0, 0), (3, 0, 0, 0)]);
    // A broker that does not know it says so, and must not be asked with it again.
    rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(said(&mut rig), (4, 0, 0, 1));
    rig.logs.get_mut(&tp(0)).unwrap().refuse = None;
    let plan = rig.ask(NODE);
    assert_eq!((of(&plan, 0).last_fetched_epoch, rig.events().len()), (None, 0));
}

/// A broker that goes on naming a refused partition in every answer would be asked without end.
#[test]
fn a_partition_that_waits_after_a_refusal_is_forgotten_meanwhile() {
    let mut rig = many(2);
    rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(ErrorCode::OFFSET_NOT_AVAILABLE);
    rig.append(0, 1, 1);
    assert_eq!(said(&mut rig), (1, 0, 0, 1));
    rig.fetch();
    assert_eq!((rig.traffic.last().unwrap().forgotten, rig.traffic.last().unwrap().told), (1, 0));
    rig.logs.get_mut(&tp(0)).unwrap().refuse = None;
    rig.now += Duration::from_secs(10);
    assert_eq!(said(&mut rig), (3, 1, 0, 1));
    assert_eq!(rig.take(), (0, 0..1));
}

#[test]
fn a_limit_that_does_not_change_is_not_said_again_however_the_budget_does() {
    let config = FetchConfig { budget_bytes: 8 << 20, ..FetchConfig::default() };
    let mut rig = Rig::new(20, config);
    rig.fetch();
    rig.now += Duration::from_secs(1);
    for partition in 0..20 {
        rig.append(partition, 1, 150 << 10);
    }
    rig.fetch();
    let held: Vec<_> = std::iter::from_fn(|| rig.fetcher.poll_batch()).take(5).collect();
    assert!(!held.is_empty() && rig.fetcher.budget().available() < 8 << 20);
    rig.now += Duration::from_secs(1);
    let plan = rig.ask(NODE);
    let moved =
        plan.request(17).topics.iter().flat_map(|topic| &topic.partitions).filter(|p| p.fetch_offset == 0).count();
    assert_eq!(moved, 0);
}

/// A reader that went left its sessions with the brokers, which have room for a thousand and keep each for two minutes.
#[test]
fn who_reads_no_more_ends_the_sessions_that_it_knows_of() {
    let mut rig = many(4);
    rig.lead(0, OTHER, 2);
    rig.update();
    said(&mut rig);
    let whole = rig.ask(OTHER);
    let response = rig.response(&whole);
    rig.answer(&whole, response);
    // A long poll is under way, as always.
    rig.now += Duration::from_secs(1);
    rig.ask(OTHER);
    let ended = rig.fetcher.end();
    assert_eq!(ended.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [NODE, OTHER]);
    for (_, request) in &ended {
        assert!(request.session_id > 0 && request.session_epoch == -1, "{request:?}");
        assert!(request.topics.is_empty() && request.max_wait_ms == 0, "{request:?}");
    }
    assert_ne!(ended[0].1.session_id, ended[1].1.session_id);
    assert!(rig.fetcher.end().is_empty(), "once");
    assert_eq!(rig.wait(NODE), None, "nothing is asked any more");

    let mut doubtful = many(2);
    let plan = doubtful.ask(NODE);
    doubtful.fetcher.handle_failure(doubtful.now, &plan);
    assert!(doubtful.fetcher.end().is_empty(), "a broker that does not answer is not asked once more");
    let mut without = Rig::new(2, FetchConfig::default());
    without.keeps_sessions = false;
    said(&mut without);
    assert!(without.fetcher.end().is_empty());
}
