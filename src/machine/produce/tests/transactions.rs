//! Records in transactions: what fails one, and what does not.

use super::broker::Fault;
use super::*;

const PRODUCER: ProducerId = ProducerId { id: 9, epoch: 3 };

impl World {
    /// A producer that has begun a transaction.
    fn in_transaction(partitions: i32, implicit: bool) -> Self {
        let mut world = Self::new(partitions, ProduceSettings { transactional: true, ..ProduceSettings::default() });
        world.produce.begin_transaction(1, PRODUCER, implicit);
        world
    }

    fn for_a_while(&mut self) {
        self.run(Duration::from_secs(20));
    }

    fn codes(&mut self, partition: usize, faults: impl IntoIterator<Item = Fault>) {
        self.cluster.partition(partition).faults.extend(faults);
    }
}

#[test]
fn batches_say_that_they_are_of_a_transaction_and_by_whom() {
    let mut world = World::in_transaction(1, true);
    for _ in 0..3 {
        world.send(0);
        world.for_a_while();
    }
    world.check();
    assert_eq!((world.log(0), world.ids_given), (vec![0, 1, 2], 0), "nobody else is asked for an id");
    for ((_, bytes), sequence) in world.sent.iter().zip(0..) {
        let header = *crate::protocol::batch::encoded(bytes.clone()).next().unwrap().unwrap().header();
        let stamp = header.producer.unwrap();
        assert!(header.is_transactional);
        assert_eq!((stamp.id, stamp.epoch, stamp.base_sequence), (9, 3, sequence));
    }
}

#[test]
fn nothing_leaves_for_a_partition_before_it_is_part_of_the_transaction() {
    let mut world = World::in_transaction(2, false);
    world.send(0);
    world.settle();
    assert_eq!(world.produce.poll_enlist(), Some(PartitionIndex(0)));
    assert_eq!(world.produce.poll_enlist(), None, "once");
    world.for_a_while();
    assert!(world.sent.is_empty());
    world.produce.handle_enlisted(PartitionIndex(0));
    world.for_a_while();
    assert_eq!(world.log(0), [0]);
    world.produce.end_transaction(world.now, false);
    assert_eq!(world.produce.poll_quiet(), Some(true));
    world.produce.begin_transaction(2, PRODUCER, false);
    world.send(0);
    world.for_a_while();
    assert_eq!(world.log(0), [0], "of the next it is not part yet");
    assert_eq!(world.produce.poll_enlist(), Some(PartitionIndex(0)));
}

/// An epoch bump within a transaction began another one, and what was written before vanished (librdkafka#3575).
#[test]
fn out_of_sequence_fails_the_transaction_and_never_bumps_its_epoch() {
    for code in [
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode::INVALID_PRODUCER_EPOCH,
        ErrorCode::INVALID_TXN_STATE,
        ErrorCode::TRANSACTION_ABORTABLE,
    ] {
        let mut world = World::in_transaction(2, true);
        world.send(0);
        world.send(1);
        world.for_a_while();
        world.codes(0, [Fault::Before(code)]);
        let failed = world.send(0);
        world.send(1);
        world.produce.end_transaction(world.now, false);
        world.for_a_while();
        assert_eq!(world.failure(failed).code(), Some(code));
        assert_eq!(world.produce.poll_quiet(), Some(true));
        for (_, bytes) in &world.sent {
            let header = *crate::protocol::batch::encoded(bytes.clone()).next().unwrap().unwrap().header();
            assert_eq!(header.producer.unwrap().epoch, PRODUCER.epoch);
        }
        world.produce.begin_transaction(2, ProducerId { epoch: 4, ..PRODUCER }, true);
        let next = world.send(0);
        world.for_a_while();
        assert!(world.acknowledged(next));
        world.check();
    }
}

#[test]
fn a_failed_record_takes_what_waits_with_it_and_the_end_waits_for_what_is_on_its_way() {
    let mut world = World::in_transaction(2, true);
    world.metadata = false;
    world.produce.handle_leader(world.now, PartitionIndex(1), None, None);
    world.codes(0, [Fault::Before(ErrorCode::INVALID_RECORD)]);
    let (failed, waits) = (world.send(0), world.send(1));
    world.run(Duration::from_millis(5));
    assert!(world.outcomes.is_empty());
    world.produce.end_transaction(world.now, false);
    world.settle();
    assert_eq!(world.produce.poll_quiet(), None, "a request is on its way");
    world.for_a_while();
    assert_eq!(world.failure(failed).code(), Some(ErrorCode::INVALID_RECORD));
    assert_eq!(world.failure(waits).kind, ProduceErrorKind::Aborted);
    assert_eq!(world.produce.poll_quiet(), Some(true));
    assert_eq!(world.reserved, 0);
}

#[test]
fn an_abort_sends_nothing_more_and_what_is_appended_late_fails() {
    let mut world = World::in_transaction(1, true);
    let first = world.send(0);
    world.produce.end_transaction(world.now, true);
    let late = world.send(0);
    world.settle();
    assert_eq!(world.produce.poll_quiet(), Some(false));
    for id in [first, late] {
        assert_eq!(world.failure(id).kind, ProduceErrorKind::Aborted);
    }
    assert!(world.sent.is_empty());
}

#[test]
fn a_batch_that_is_too_large_is_split_within_the_epoch() {
    let mut world = World::in_transaction(1, true);
    world.send(0);
    world.for_a_while();
    world.cluster.partition(0).max_batch_bytes = Some(400);
    for _ in 0..12 {
        world.send_padded(0, 100);
    }
    for _ in 0..3 {
        world.for_a_while();
    }
    assert!((0..13).all(|id| world.acknowledged(id)), "{:?}", world.outcomes);
    world.check();
    let epochs = world.sent.iter().map(|(_, bytes)| {
        crate::protocol::batch::encoded(bytes.clone()).next().unwrap().unwrap().header().producer.unwrap().epoch
    });
    assert!(epochs.into_iter().all(|epoch| epoch == PRODUCER.epoch));
}

#[test]
fn lost_answers_are_no_failure() {
    let mut world = World::in_transaction(1, true);
    let id = world.send(0);
    world.codes(0, [Fault::Unmentioned, Fault::After(ErrorCode::REQUEST_TIMED_OUT)]);
    world.produce.end_transaction(world.now, false);
    world.for_a_while();
    assert!(world.acknowledged(id));
    assert_eq!(world.produce.poll_quiet(), Some(true));
    world.check();
}

/// A leader that stepped down after it had appended: what it had was told as not written once its transaction was doomed.
#[test]
fn an_abort_tells_what_may_have_been_written_as_such() {
    let after = (Fault::After(ErrorCode::NOT_LEADER_OR_FOLLOWER), WriteOutcome::PossiblyWritten);
    let before = (Fault::Before(ErrorCode::NOT_ENOUGH_REPLICAS), WriteOutcome::NotWritten);
    for (fault, outcome) in [after, before] {
        let mut world = World::in_transaction(1, true);
        world.codes(0, [fault]);
        let id = world.send(0);
        world.run(Duration::from_millis(5));
        assert!(world.sent.len() == 1 && world.outcomes.is_empty(), "its request is on its way");
        world.produce.end_transaction(world.now, true);
        world.for_a_while();
        let failure = world.failure(id);
        assert_eq!((&failure.kind, failure.outcome), (&ProduceErrorKind::Aborted, outcome));
        assert_eq!(world.produce.poll_quiet(), Some(true));
    }
}
