//! One wound a test.

use super::broker::Fault;
use super::*;
use crate::protocol::batch::ReadOptions;

fn settings() -> ProduceSettings {
    ProduceSettings { batch_bytes: 400, ..ProduceSettings::default() }
}

fn sequence(bytes: &Bytes) -> (i64, i16, i32) {
    let batch = crate::protocol::batch::batches(bytes.clone(), &ReadOptions::default()).next().unwrap().unwrap();
    let stamp = batch.header().producer.unwrap();
    (stamp.id, stamp.epoch, stamp.base_sequence)
}

/// Acknowledges one record of each partition, so that whole windows may leave.
fn warmed_up(partitions: i32, settings: ProduceSettings) -> World {
    let mut world = World::new(partitions, settings);
    for partition in 0..partitions {
        world.send(partition as usize);
    }
    world.drain();
    (world.requests, world.sent) = (Vec::new(), Vec::new());
    world
}

/// Credentials were withdrawn under way, and what waited for the broker was tried until its delivery timeout: minutes of silence
/// for a caller who could have acted.
#[test]
fn what_waits_for_a_broker_that_lets_nobody_in_fails_at_once_and_what_comes_later_is_sent() {
    let mut world = warmed_up(2, settings());
    let mut sent = Vec::new();
    for _ in 0..200 {
        sent.push(world.send(0));
    }
    world.settle();
    assert_eq!(world.requests.len(), 5, "the rest waits");
    let elsewhere = world.send(1);
    world.lock_out(NodeId(1), false);
    world.settle();
    for (id, outcome) in [(sent[0], WriteOutcome::PossiblyWritten), (sent[199], WriteOutcome::NotWritten)] {
        let failure = world.failure(id);
        assert_eq!((&failure.kind, failure.outcome), (&ProduceErrorKind::LockedOut, outcome), "sent, and not yet");
    }
    assert!(sent.iter().all(|id| world.outcomes[id].is_err()));
    let after = world.send(0);
    world.drain();
    assert!(world.acknowledged(after) && world.acknowledged(elsewhere), "it is tried, and let in again");
    world.check();
}

/// Without a producer id nothing can be sent, and whoever is locked out gets none.
#[test]
fn what_waits_for_a_producer_id_fails_when_no_broker_lets_this_client_in() {
    let mut world = World::new(1, settings());
    let first = world.send(0);
    world.settle();
    assert!(matches!(world.wire.pop_first(), Some((_, Wire::ProducerId))));
    let error = SharedError::new(std::io::Error::other("login is refused"));
    world.produce.handle_producer_id_locked_out(world.now, &error);
    world.settle();
    let failed = world.outcomes[&first].as_ref().unwrap_err();
    assert_eq!((&failed.kind, failed.outcome), (&ProduceErrorKind::LockedOut, WriteOutcome::NotWritten));
    let second = world.send(0);
    world.drain();
    assert!(world.acknowledged(second));
}

#[test]
fn a_lone_record_leaves_when_its_linger_time_is_over() {
    let mut world = warmed_up(1, settings());
    let start = world.now;
    let id = world.send(0);
    world.run(Duration::from_micros(4_900));
    assert_eq!(world.requests.len(), 0);
    world.run(Duration::from_micros(200));
    assert_eq!(world.requests.len(), 1);
    world.drain();
    assert_eq!(world.now - start, Duration::from_millis(7), "linger, there and back");
    assert!(world.acknowledged(id));
}

#[test]
fn one_request_carries_a_batch_of_every_partition() {
    let mut world = warmed_up(6, settings());
    for _ in 0..5 {
        for partition in 0..6 {
            world.send(partition);
        }
    }
    world.drain();
    assert_eq!(world.requests, [(0..6).map(PartitionIndex).collect::<Vec<_>>()]);
    world.check();
}

#[test]
fn without_lingering_records_coalesce_while_an_answer_is_under_way() {
    let mut world = warmed_up(1, ProduceSettings { linger: Duration::ZERO, ..ProduceSettings::default() });
    for _ in 0..200 {
        world.send(0);
        world.run(Duration::from_micros(50));
    }
    world.drain();
    world.check();
    // 10 ms of records, and an answer takes 2 ms.
    assert!((5..=7).contains(&world.requests.len()), "{}", world.requests.len());
}

#[test]
fn at_most_five_batches_of_a_partition_are_in_flight() {
    let mut world = warmed_up(1, ProduceSettings { requests_in_flight: 100, ..settings() });
    for _ in 0..400 {
        world.send(0);
    }
    world.settle();
    assert_eq!(world.requests.len(), 5);
    world.drain();
    world.check();
    assert!(world.sent.len() > 10);
}

#[test]
fn a_request_stays_below_its_limit_and_the_others_are_first_next_time() {
    let settings = ProduceSettings { batch_bytes: 400, max_request_bytes: 1_000, ..settings() };
    let mut world = warmed_up(5, settings);
    for partition in 0..5 {
        for _ in 0..60 {
            world.send(partition);
        }
    }
    world.settle();
    let firsts: Vec<_> = world.requests.iter().map(|request| request[0].0).collect();
    assert!(world.requests.iter().all(|request| request.len() <= 2), "{:?}", world.requests);
    assert_eq!(firsts, [0, 2, 4, 1, 3]);
    world.drain();
    world.check();
}

/// kafkajs#598, platformatic/kafka#302: a sequence that passes 2^31 has to go on at 0.
#[test]
fn sequences_wrap_to_zero() {
    let mut world = warmed_up(1, settings());
    world.produce.partitions[0].set_next_sequence(i32::MAX - 3);
    world.cluster.partition(0).forget_producers();
    for _ in 0..10 {
        world.send(0);
    }
    world.drain();
    world.send(0);
    world.drain();
    world.check();
    let sequences: Vec<i32> = world.sent.iter().map(|(_, bytes)| sequence(bytes).2).collect();
    assert_eq!(sequences, [i32::MAX - 3, 6]);
}

/// librdkafka#4736, #4438: what was sent and not answered was rebuilt, or its number was given to the next batch.
#[test]
fn an_unanswered_batch_is_sent_again_as_the_same_bytes() {
    let mut world = warmed_up(1, settings());
    for _ in 0..3 {
        world.send(0);
    }
    world.run(Duration::from_micros(5_100));
    world.cut(NodeId(1), true);
    world.drain();
    world.check();
    assert_eq!(world.log(0).len(), 4);
    assert_eq!(world.sent.len(), 2);
    assert_eq!(world.sent[0], world.sent[1]);
}

/// platformatic/kafka#377: a dead leader gives a network error, and who leads was never asked again.
#[test]
fn a_network_error_makes_it_ask_who_leads() {
    let mut world = warmed_up(1, settings());
    let id = world.send(0);
    world.run(Duration::from_micros(5_100));
    world.cluster.move_leader(0, 2);
    world.cut(NodeId(1), false);
    world.drain();
    assert!(world.acknowledged(id));
    world.check();
}

#[test]
fn order_is_kept_when_the_first_of_a_window_is_refused() {
    let mut world = warmed_up(1, settings());
    world.cluster.partition(0).faults.push_back(Fault::Before(ErrorCode::NOT_ENOUGH_REPLICAS));
    let ids: Vec<u64> = (0..60).map(|_| world.send(0)).collect();
    world.drain();
    world.check();
    assert!(ids.iter().all(|id| world.acknowledged(*id)));
    let epochs: Vec<i16> = world.sent.iter().map(|(_, bytes)| sequence(bytes).1).collect();
    assert!(epochs.iter().all(|epoch| *epoch == 0), "no number had to be given anew: {epochs:?}");
}

#[test]
fn a_fresh_producer_sends_one_batch_until_the_broker_knows_it() {
    let mut world = World::new(1, settings());
    world.cluster.partition(0).faults.push_back(Fault::Before(ErrorCode::NOT_ENOUGH_REPLICAS));
    for _ in 0..60 {
        world.send(0);
    }
    world.run(Duration::from_millis(3));
    assert_eq!(world.requests.len(), 1);
    world.drain();
    world.check();
}

#[test]
fn batches_in_flight_at_the_old_leader_come_back_before_any_goes_to_the_new_one() {
    let mut world = warmed_up(1, settings());
    for _ in 0..60 {
        world.send(0);
    }
    world.run(Duration::from_micros(1_500));
    let before = world.requests.len();
    assert!(before > 1);
    world.cluster.move_leader(0, 2);
    world.produce.handle_leader(world.now, PartitionIndex(0), Some(Leader { node: NodeId(2) }), None);
    world.settle();
    assert_eq!(world.requests.len(), before, "nothing new while answers are under way");
    world.drain();
    world.check();
    assert!(world.outcomes.values().all(Result::is_ok));
}

/// platformatic/kafka#309: once the broker had forgotten the producer, every later send failed.
#[test]
fn a_broker_that_forgets_the_producer_gets_a_new_epoch_and_only_unwritten_records() {
    let mut world = warmed_up(1, settings());
    world.cluster.partition(0).strict = true;
    for _ in 0..60 {
        world.send(0);
    }
    world.run(Duration::from_micros(500));
    world.cluster.partition(0).forget_producers();
    world.drain();
    world.check();
    assert!(world.outcomes.values().all(Result::is_ok));
    let last = sequence(&world.sent.last().unwrap().1);
    assert_eq!((last.0, last.1), (1, 1));
}

#[test]
fn what_may_have_been_written_is_not_renumbered_when_the_broker_has_lost_count() {
    let mut world = warmed_up(1, settings());
    for _ in 0..3 {
        world.send(0);
    }
    world.drain();
    let doubtful = world.send(0);
    world.run(Duration::from_micros(5_500));
    // The request gets lost, and so does the log's end.
    world.cut(NodeId(1), false);
    world.cluster.partition(0).truncate(2);
    world.run(Duration::from_millis(20));
    let behind = world.send(0);
    world.drain();
    let failure = world.failure(doubtful);
    assert_eq!(failure.outcome, WriteOutcome::PossiblyWritten);
    assert!(matches!(failure.kind, ProduceErrorKind::Unresolved { .. }), "{failure}");
    assert!(world.acknowledged(behind));
    assert_eq!(world.log(0).last(), Some(&behind));
}

#[test]
fn after_three_mismatches_in_a_row_another_id_is_asked_for() {
    let mut world = warmed_up(1, settings());
    let code = ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
    world.cluster.partition(0).faults.extend([Fault::Before(code); 3]);
    let id = world.send(0);
    world.drain();
    world.check();
    assert!(world.acknowledged(id));
    let stamps: Vec<_> = world.sent.iter().map(|(_, bytes)| sequence(bytes)).collect();
    assert_eq!(stamps, [(1, 0, 1), (1, 1, 0), (1, 2, 0), (2, 0, 0)]);
}

/// franz-go#1217: REQUEST_TIMED_OUT was taken for "not written".
#[test]
fn an_answer_after_the_write_is_in_doubt_and_the_resend_is_no_duplicate() {
    for code in [ErrorCode::REQUEST_TIMED_OUT, ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND] {
        let mut world = warmed_up(1, settings());
        world.cluster.partition(0).faults.push_back(Fault::After(code));
        let id = world.send(0);
        world.drain();
        world.check();
        assert!(world.acknowledged(id));
        assert_eq!(world.log(0).len(), 2);
    }
}

#[test]
fn a_late_delivery_says_whether_it_may_have_been_written() {
    let timeout = Duration::from_secs(2);
    let mut world = warmed_up(1, ProduceSettings { delivery_timeout: timeout, ..settings() });
    // The broker always refuses before it writes.
    world.cluster.partition(0).faults.extend([Fault::Before(ErrorCode::NOT_ENOUGH_REPLICAS); 100]);
    let start = world.now;
    let certain = world.send(0);
    world.drain();
    assert_eq!(world.failure(certain).outcome, WriteOutcome::NotWritten);
    assert_eq!(world.failure(certain).code(), Some(ErrorCode::NOT_ENOUGH_REPLICAS));
    assert_eq!(world.now - start, timeout);
    // It never answers so that one could know.
    world.cluster.partition(0).faults = [Fault::After(ErrorCode::REQUEST_TIMED_OUT); 100].into();
    let doubtful = world.send(0);
    world.drain();
    assert_eq!(world.failure(doubtful).outcome, WriteOutcome::PossiblyWritten);
    // And what follows is neither swallowed as a duplicate nor refused.
    world.cluster.partition(0).faults.clear();
    let after = world.send(0);
    world.drain();
    world.check();
    assert!(world.acknowledged(after));
}

#[test]
fn a_record_that_was_never_sent_times_out_as_not_written() {
    let timeout = Duration::from_secs(1);
    let mut world = World::new(1, ProduceSettings { delivery_timeout: timeout, ..settings() });
    world.metadata = false;
    world.produce.handle_leader(world.now, PartitionIndex(0), None, None);
    let id = world.send(0);
    world.drain();
    assert_eq!(world.failure(id).outcome, WriteOutcome::NotWritten);
    assert!(matches!(world.failure(id).kind, ProduceErrorKind::DeliveryTimeout { .. }));
}

/// KAFKA-8350, KAFKA-8202: a split that never got below the topic's limit, for ever.
#[test]
fn a_batch_too_large_is_halved_until_it_fits_and_later_ones_are_smaller() {
    let mut world = warmed_up(1, ProduceSettings { batch_bytes: 100_000, ..settings() });
    world.cluster.partition(0).max_batch_bytes = Some(1_000);
    let ids: Vec<u64> = (0..800).map(|_| world.send_padded(0, 50)).collect();
    world.drain();
    world.check();
    assert!(ids.iter().all(|id| world.acknowledged(*id)));
    let sent = world.sent.len();
    for _ in 0..100 {
        world.send_padded(0, 50);
    }
    world.drain();
    world.check();
    assert!(world.sent[sent..].iter().all(|(_, bytes)| bytes.len() <= 1_000), "the limit was learned");
}

#[test]
fn a_single_record_too_large_fails_alone() {
    let mut world = warmed_up(1, ProduceSettings { batch_bytes: 100_000, ..settings() });
    world.cluster.partition(0).max_batch_bytes = Some(1_000);
    let before: Vec<u64> = (0..10).map(|_| world.send(0)).collect();
    let large = world.send_padded(0, 5_000);
    let after: Vec<u64> = (0..10).map(|_| world.send(0)).collect();
    world.drain();
    world.check();
    assert!(before.iter().chain(&after).all(|id| world.acknowledged(*id)));
    assert_eq!(world.failure(large).code(), Some(ErrorCode::MESSAGE_TOO_LARGE));
    assert_eq!(world.failure(large).outcome, WriteOutcome::NotWritten);
}

/// librdkafka#4583, KIP-467: one invalid record failed its whole batch.
#[test]
fn an_invalid_record_fails_alone_and_the_others_go_on() {
    let mut world = warmed_up(1, settings());
    let ids: Vec<u64> = (0..10).map(|_| world.send(0)).collect();
    world.cluster.partition(0).poison.extend([ids[3], ids[7]]);
    world.drain();
    world.check();
    for id in &ids {
        assert_eq!(world.acknowledged(*id), *id != ids[3] && *id != ids[7]);
    }
    let failure = world.failure(ids[3]);
    assert_eq!(failure.to_string(), "t-0: broker refused: INVALID_RECORD (87): poison");
}

#[test]
fn a_definitive_refusal_is_not_tried_again_and_the_next_batch_goes() {
    let mut world = warmed_up(1, settings());
    world.cluster.partition(0).faults.push_back(Fault::Before(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    let refused = world.send(0);
    world.drain();
    let next = world.send(0);
    world.drain();
    world.check();
    assert_eq!(world.failure(refused).code(), Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED));
    assert!(world.acknowledged(next));
    assert_eq!(world.sent.len(), 2);
}

/// platformatic/kafka#318: a broker that is silent about the producer id hung the producer.
#[test]
fn an_unanswered_question_for_the_producer_id_is_asked_again() {
    let mut world = World::new(1, settings());
    world.silent_ids = 3;
    let id = world.send(0);
    world.drain();
    assert!(world.acknowledged(id));
}

#[test]
fn a_refused_producer_id_fails_what_waits_and_is_asked_again_for_later_records() {
    let mut world = World::new(1, settings());
    let id = world.send(0);
    world.settle();
    world.wire.clear();
    world.produce.handle_producer_id(world.now, Err(ErrorCode::CLUSTER_AUTHORIZATION_FAILED));
    world.settle();
    assert_eq!(world.failure(id).code(), Some(ErrorCode::CLUSTER_AUTHORIZATION_FAILED));
    let id = world.send(0);
    world.drain();
    assert!(world.acknowledged(id));
}

#[test]
fn a_topic_created_anew_gets_what_was_not_written_to_the_old_one() {
    let mut world = warmed_up(1, settings());
    world.cluster.partition(0).faults.extend([Fault::Before(ErrorCode::UNKNOWN_TOPIC_ID); 2]);
    let id = world.send(0);
    world.run(Duration::from_millis(8));
    world.topic_id = [2; 16];
    world.drain();
    world.check();
    assert!(world.acknowledged(id));
    assert_eq!(sequence(&world.sent.last().unwrap().1), (1, 1, 0));
}

#[test]
fn an_answer_that_leaves_a_partition_out_counts_as_none() {
    let mut world = warmed_up(2, settings());
    world.cluster.partition(0).faults.push_back(Fault::Unmentioned);
    let (first, second) = (world.send(0), world.send(1));
    world.drain();
    world.check();
    assert!(world.acknowledged(first) && world.acknowledged(second));
    assert_eq!(world.sent.len(), 3);
}

#[test]
fn a_flush_does_not_linger_and_ends_with_the_last_verdict() {
    let mut world = warmed_up(2, ProduceSettings { linger: Duration::from_secs(10), ..settings() });
    let ids = [world.send(0), world.send(0), world.send(1)];
    world.produce.handle_flush(FlushId(1));
    let later = world.send(0);
    world.run(Duration::from_millis(1));
    assert!(world.flushed.is_empty());
    world.run(Duration::from_millis(2));
    assert_eq!(world.flushed, [FlushId(1)]);
    assert!(ids.iter().all(|id| world.acknowledged(*id)));
    assert!(!world.acknowledged(later), "sent after the call");
    world.produce.handle_flush(FlushId(2));
    world.drain();
    world.produce.handle_flush(FlushId(3));
    world.settle();
    assert_eq!(world.flushed, [FlushId(1), FlushId(2), FlushId(3)]);
}

#[test]
fn a_flush_waits_for_the_halves_of_a_split_batch() {
    let mut world = warmed_up(1, ProduceSettings { batch_bytes: 10_000, ..settings() });
    world.cluster.partition(0).max_batch_bytes = Some(300);
    let ids: Vec<u64> = (0..100).map(|_| world.send(0)).collect();
    world.produce.handle_flush(FlushId(1));
    while world.flushed.is_empty() {
        world.step(world.now + Duration::from_secs(1));
    }
    assert!(ids.iter().all(|id| world.acknowledged(*id)));
}

#[test]
fn closing_tells_what_may_have_been_written_from_what_was_not() {
    let mut world = warmed_up(1, settings());
    let sent = world.send(0);
    world.run(Duration::from_micros(5_100));
    let waiting = world.send(0);
    world.produce.close(world.now);
    world.settle();
    assert_eq!(world.failure(sent).outcome, WriteOutcome::PossiblyWritten);
    assert_eq!(world.failure(waiting).outcome, WriteOutcome::NotWritten);
    let record = RecordRef::new(b"late");
    let refused = lock(&world.buffers[0]).append(&record, Timestamp(0), 0, || world.now).map(|_| ());
    assert!(matches!(refused, Err(AppendError::Closed)));
}

#[test]
fn callers_that_wait_for_memory_end_the_lingering() {
    let mut world = warmed_up(1, ProduceSettings { linger: Duration::from_secs(10), ..settings() });
    let id = world.send(0);
    world.run(Duration::from_millis(5));
    assert!(world.requests.is_empty());
    world.produce.handle_pressure(true);
    world.run(Duration::from_millis(5));
    assert!(world.acknowledged(id));
}

#[test]
fn a_throttled_broker_is_left_alone_as_long_as_it_asked() {
    let mut world = warmed_up(1, settings());
    world.send(0);
    world.run(Duration::from_micros(5_100));
    let id = RequestId(world.produce.next_request - 1);
    world.wire.clear();
    let answer = world.cluster.produce(NodeId(1), 0, &world.sent[0].1.clone()).unwrap();
    world.produce.handle_answer(world.now, id, Duration::from_millis(500), [(PartitionIndex(0), answer)]);
    world.open.clear();
    let next = world.send(0);
    world.run(Duration::from_millis(490));
    assert_eq!(world.requests.len(), 1);
    world.run(Duration::from_millis(20));
    assert!(world.acknowledged(next));
}

#[test]
fn with_the_leaders_acknowledgement_alone_batches_carry_no_numbers_and_go_one_by_one() {
    let mut world = World::new(1, ProduceSettings { acks: Acks::LeaderOnly, ..settings() });
    for _ in 0..60 {
        world.send(0);
    }
    world.settle();
    assert_eq!(world.requests.len(), 1);
    world.drain();
    world.check();
    assert_eq!(world.ids_given, 0);
}
