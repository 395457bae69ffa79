//! When and how much is asked for.

use super::*;

#[test]
fn paused_partitions_give_up_their_buffers_before_others_starve_and_read_them_again() {
    let config = FetchConfig { budget_bytes: 400 << 10, max_partition_bytes: 300 << 10, ..FetchConfig::default() };
    let mut rig = Rig::new(2, config);
    rig.append(0, 10, 20 << 10);
    rig.fetch();
    rig.fetcher.pause(&tp(0), 1);
    assert!(rig.fetcher.budget().used() > 200 << 10);
    rig.append(1, 1, 10);
    let plan = rig.ask(NODE);
    assert_eq!(rig.asked(&plan), [1].into());
    assert_eq!(rig.fetcher.budget().used(), 0);
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    assert_eq!(rig.take(), (1, 0..1));
    rig.fetcher.resume(&tp(0), 1);
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..10));
}

#[test]
fn what_is_handed_out_and_not_dropped_counts_against_the_budget() {
    let config = FetchConfig { budget_bytes: 1 << 20, max_partition_bytes: 400 << 10, ..FetchConfig::default() };
    let mut rig = Rig::new(1, config);
    for _ in 0..8 {
        rig.append(0, 3, 100 << 10);
    }
    let mut handed = Vec::new();
    while let NextFetch::Send(plan) = rig.fetcher.poll_request(rig.now, NODE) {
        let response = rig.response(&plan);
        rig.answer(&plan, response);
        handed.extend(rig.fetcher.poll_batch());
        assert!(rig.fetcher.budget().used() <= 1 << 20, "{:?}", rig.fetcher.budget());
    }
    assert!((2..8).contains(&handed.len()), "{}", handed.len());
    let next = handed.last().unwrap().chunk.next_offset;
    handed.clear();
    let plan = rig.ask(NODE);
    assert_eq!(of(&plan, 0).offset, next);
}

#[test]
fn a_slow_partition_does_not_use_up_the_others_share() {
    let config = FetchConfig { budget_bytes: 2 << 20, max_partition_bytes: 200 << 10, ..FetchConfig::default() };
    let mut rig = Rig::new(2, config);
    for _ in 0..50 {
        rig.append(0, 1, 100 << 10);
    }
    let mut slow = Vec::new();
    for round in 0..50 {
        rig.append(1, 1, 100);
        rig.fetch();
        let mut got_other = false;
        while let Some(fetched) = rig.fetcher.poll_batch() {
            match fetched.partition.partition {
                0 => slow.push(fetched),
                _ => got_other = true,
            }
        }
        assert!(got_other, "round {round}");
    }
    assert!(rig.fetcher.budget().used() <= 2 << 20);
    assert!(slow.len() > 2);
}

/// A member that commits each batch fell behind for good: what came in while it worked waited in answers of a record each, and was
/// handed over, and so committed, one by one.
#[test]
fn what_waits_of_a_partition_is_handed_over_together() {
    let mut rig = Rig::new(2, small());
    for _ in 0..50 {
        rig.append(0, 1, 10);
        rig.append(1, 1, 400);
        rig.fetch();
    }
    let mut taken = BTreeMap::<i32, Vec<_>>::new();
    while let Some(fetched) = rig.fetcher.poll_batch() {
        assert!(fetched.chunk.lease.bytes() <= small().max_partition_bytes, "as much as one answer may bring");
        assert!(fetched.chunk.batches.windows(2).all(|pair| pair[0].next_offset() == pair[1].header().base_offset));
        taken.entry(fetched.partition.partition).or_default().push(fetched);
    }
    let spans = |partition: i32| taken[&partition].iter().map(|fetched| span(fetched).1).collect::<Vec<_>>();
    assert_eq!((spans(0).len(), &spans(0)[0]), (1, &(0..50)));
    assert!(spans(1).len() <= 4 && spans(1).last().unwrap().end >= 20, "{:?}", spans(1));
    let used = rig.fetcher.budget().used();
    assert!(used > 50 * 70, "each answer is held: {used}");
    taken.clear();
    assert_eq!(rig.fetcher.budget().used(), 0);
    let plan = rig.ask(NODE);
    assert_eq!(rig.asked(&plan), [0, 1].into(), "nothing counts against a partition any more");
}

#[test]
fn whoever_waited_longest_is_asked_for_first() {
    // Room for one batch of one partition in each answer.
    let config = FetchConfig { max_bytes: 1_000, ..small() };
    let mut rig = Rig::new(3, config);
    for partition in 0..3 {
        for _ in 0..10 {
            rig.append(partition, 1, 900);
        }
    }
    let mut order = Vec::new();
    for _ in 0..9 {
        rig.fetch();
        order.push(rig.take().0);
    }
    for round in order.chunks(3) {
        assert_eq!(round.iter().copied().collect::<BTreeSet<_>>(), [0, 1, 2].into(), "{order:?}");
    }
}

/// A partition whose records are drained just after the request left would else wait for the others' long poll.
#[test]
fn a_request_that_leaves_out_buffered_partitions_waits_briefly() {
    let mut rig = Rig::new(2, small());
    rig.append(0, 1, 15_000);
    let plan = rig.fetch();
    assert_eq!(plan.max_wait, Duration::from_millis(500));
    let plan = rig.fetch();
    assert_eq!((rig.asked(&plan), plan.max_wait), ([1].into(), Duration::from_millis(5)));
    rig.now += Duration::from_millis(20);
    let plan = rig.fetch();
    assert_eq!((rig.asked(&plan), plan.max_wait), ([1].into(), Duration::from_millis(10)));
    rig.now += Duration::from_millis(20);
    rig.take();
    let plan = rig.fetch();
    assert_eq!((rig.asked(&plan), plan.max_wait), ([0, 1].into(), Duration::from_millis(500)));
}

#[test]
fn handing_over_says_whom_to_ask_for_more() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 1, 15_000);
    rig.fetch();
    assert_eq!(rig.wait(NODE), None);
    let fetched = rig.fetcher.poll_batch().unwrap();
    assert_eq!(fetched.wake, Some(NODE));
    rig.ask(NODE);
}

#[test]
fn a_broker_that_has_nothing_and_does_not_wait_is_not_asked_in_a_loop() {
    let mut rig = Rig::new(1, small());
    rig.fetch();
    assert_eq!(rig.wait(NODE), Some(rig.now + QUIET_PAUSE));
    rig.now += QUIET_PAUSE;
    let plan = rig.ask(NODE);
    rig.now += Duration::from_millis(500);
    let response = rig.response(&plan);
    rig.answer(&plan, response);
    rig.ask(NODE);
}

#[test]
fn a_throttled_broker_is_left_alone_for_as_long_as_it_says() {
    let mut rig = Rig::new(1, small());
    let plan = rig.ask(NODE);
    let throttle = Duration::from_secs(3);
    let answer = FetchAnswer { throttle, code: ErrorCode::NONE, session: 0, outcomes: Vec::new() };
    rig.fetcher.handle_answer(rig.now, &plan, answer);
    assert_eq!(rig.wait(NODE), Some(rig.now + throttle));
}

/// KAFKA-9677: a quota smaller than one answer, and a broker that then answers with nothing: the consumer starved.
#[test]
fn a_broker_that_answers_with_a_throttle_alone_is_asked_for_less() {
    let mut rig = Rig::new(1, FetchConfig::default());
    let mut asked = Vec::new();
    let empty = |throttle| FetchAnswer { throttle, code: ErrorCode::NONE, session: 0, outcomes: Vec::new() };
    for _ in 0..16 {
        let plan = rig.ask(NODE);
        asked.push(plan.max_bytes);
        assert!(of(&plan, 0).max_bytes <= plan.max_bytes);
        rig.fetcher.handle_answer(rig.now, &plan, empty(Duration::from_millis(100)));
        rig.now += Duration::from_millis(100);
    }
    assert_eq!(asked[..4], [50 << 20, 25 << 20, (25 << 20) / 2, (25 << 20) / 4]);
    assert_eq!(asked[15], MIN_THROTTLED_BYTES);
    // Once the quota allows it, more again.
    let mut grown = 0;
    for _ in 0..16 {
        let plan = rig.ask(NODE);
        grown = plan.max_bytes;
        rig.fetcher.handle_answer(rig.now, &plan, empty(Duration::ZERO));
        rig.now += QUIET_PAUSE;
    }
    assert_eq!(grown, 50 << 20);
}

/// Dekaf#2263: the mute was lost on a rebalance.
#[test]
fn a_throttle_outlives_the_assignment_that_met_it() {
    let mut rig = Rig::new(1, small());
    let plan = rig.ask(NODE);
    let throttle = Duration::from_secs(3);
    rig.fetcher.handle_answer(
        rig.now,
        &plan,
        FetchAnswer { throttle, code: ErrorCode::NONE, session: 0, outcomes: Vec::new() },
    );
    rig.fetcher.revoke([&tp(0)]);
    rig.fetcher.assign(start(0, 0, None));
    rig.update();
    assert_eq!(rig.wait(NODE), Some(rig.now + throttle));
}

#[test]
fn an_unanswered_request_is_repeated_after_a_growing_wait() {
    let mut rig = Rig::new(1, small());
    let mut waits = Vec::new();
    for _ in 0..3 {
        let plan = rig.ask(NODE);
        rig.fetcher.handle_failure(rig.now, &plan);
        let until = rig.wait(NODE).unwrap();
        waits.push(until - rig.now);
        rig.now = until;
        assert_eq!(rig.events().len(), 1);
    }
    assert!(waits.is_sorted() && waits[0] < waits[2], "{waits:?}");
}

#[test]
fn a_small_slice_of_a_large_answer_does_not_keep_it_in_memory() {
    let config = FetchConfig { max_partition_bytes: 4 << 20, ..FetchConfig::default() };
    let mut rig = Rig::new(2, config);
    rig.append(0, 20, 100 << 10);
    rig.append(1, 1, 10);
    rig.fetch();
    let mut small = None;
    while let Some(fetched) = rig.fetcher.poll_batch() {
        if fetched.partition == tp(1) {
            small = Some(fetched);
        }
    }
    assert!(small.is_some());
    assert!(rig.fetcher.budget().used() < 1_000, "{:?}", rig.fetcher.budget());
}

/// A broker that refuses where its own answer sent the reader was asked by its round trips, three hundred times a second.
#[test]
fn a_position_that_stays_out_of_range_is_asked_for_ever_more_slowly() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(ErrorCode::OFFSET_OUT_OF_RANGE);
    let (begun, mut asked) = (rig.now, 0);
    while rig.now < begun + Duration::from_secs(60) {
        match rig.fetcher.poll_request(rig.now, NODE) {
            NextFetch::Send(plan) => {
                asked += 1;
                let response = rig.response(&plan);
                rig.answer(&plan, response);
                rig.fetcher.reposition(&tp(0), 1, Offset(0), None);
            }
            NextFetch::Wait(next) => rig.now = next.expect("it is asked for again"),
        }
    }
    assert!((5..30).contains(&asked), "{asked} times in a minute");
    rig.logs.get_mut(&tp(0)).unwrap().refuse = None;
    rig.now += Duration::from_secs(30);
    rig.fetch();
    assert_eq!(rig.take(), (0, 0..10));
}

/// A reader was refused ten times while a leader was elected, the old one in the end, and asked it again after twenty-six seconds: what
/// doubled up to five seconds was meant for refusals that stay.
#[test]
fn a_leader_that_has_to_be_waited_for_is_asked_each_second() {
    let mut rig = Rig::new(1, small());
    rig.append(0, 10, 10);
    rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(ErrorCode::NOT_LEADER_OR_FOLLOWER);
    let (begun, mut asked) = (rig.now, Vec::new());
    while rig.now < begun + Duration::from_secs(60) {
        rig.fetch();
        asked.push(rig.now - begun);
        rig.now = rig.wait(NODE).unwrap();
    }
    assert!(asked[10] < Duration::from_secs(8), "after ten refusals: {:?}", asked[10]);
    assert!(asked.len() < 65, "{} times in a minute", asked.len());
    rig.logs.get_mut(&tp(0)).unwrap().refuse = Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    let (begun, mut asked) = (rig.now, 0);
    while rig.now < begun + Duration::from_secs(60) {
        rig.fetch();
        asked += 1;
        rig.now = rig.wait(NODE).unwrap();
    }
    assert!(asked < 15, "{asked} times in a minute, and no leader would say otherwise");
}
