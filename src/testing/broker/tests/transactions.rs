use super::*;
use crate::record::Offset;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, GroupId, InitProducerIdRequest,
    OffsetFetchRequest, ProducerId, TransactionalId, TxnOffsetCommitRequest,
};

/// A transactional producer, by hand. The transaction version 1 or 2 decides what is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Writer {
    id: i64,
    epoch: i16,
    version: i16,
}

fn id() -> TransactionalId {
    TransactionalId(StrBytes::from_static_str("tx"))
}

fn init(rig: &mut Rig, version: i16, expected: Option<Writer>) -> Result<Writer, ErrorCode> {
    let (of, epoch) = expected.map_or((-1, -1), |writer| (writer.id, writer.epoch));
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(id()))
        .with_transaction_timeout_ms(10_000)
        .with_producer_id(ProducerId(of))
        .with_producer_epoch(epoch);
    let answer = rig.ask_node(1, 5, &request);
    code(answer.error_code).ok().map(|()| Writer { id: answer.producer_id.0, epoch: answer.producer_epoch, version })
}

impl Writer {
    fn add(self, rig: &mut Rig, partition: i32) -> ErrorCode {
        let topic = AddPartitionsToTxnTopic::default().with_name(name("t")).with_partitions(vec![partition]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(id())
            .with_v3_and_below_producer_id(ProducerId(self.id))
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![topic]);
        let answer = rig.ask_node(1, 3, &request);
        code(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    }

    fn write(self, rig: &mut Rig, partition: i32, value: &str, sequence: i32) -> ErrorCode {
        let producer = Some(ProducerStamp { id: self.id, epoch: self.epoch, base_sequence: sequence });
        let batch = closed(&[value], Closing { producer, is_transactional: true, ..Closing::default() });
        let request = produce("t", partition, batch.into_bytes(), -1).with_transactional_id(Some(id()));
        let version = if self.version == 2 { 12 } else { 11 };
        code(rig.ask_node(1, version, &request).responses[0].partition_responses[0].error_code)
    }

    fn end(self, rig: &mut Rig, commit: bool) -> Result<Self, ErrorCode> {
        let request = EndTxnRequest::default()
            .with_transactional_id(id())
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_committed(commit);
        let answer = rig.ask_node(1, if self.version == 2 { 5 } else { 4 }, &request);
        code(answer.error_code).ok().map(|()| match self.version {
            2 => Self { id: answer.producer_id.0, epoch: answer.producer_epoch, ..self },
            _ => self,
        })
    }
}

/// What a reader of committed records sees, and where it may read up to.
fn committed(rig: &mut Rig, partition: i32) -> (Vec<String>, i64, Vec<(i64, i64)>) {
    let data = only(rig.ask_node(1, 12, &fetch("t", &[(partition, 0)]).with_isolation_level(1)));
    let aborted = data.aborted_transactions.iter().flatten().map(|it| (it.producer_id.0, it.first_offset)).collect();
    (values(&data), data.last_stable_offset, aborted)
}

#[test]
fn what_is_open_is_not_read_and_what_is_aborted_is_named() {
    for version in [1, 2] {
        let mut rig = Rig::new(1).topic("t", 1);
        let mut writer = init(&mut rig, version, None).expect("an id");
        if version == 1 {
            assert_eq!(writer.write(&mut rig, 0, "early", 0), ErrorCode::TRANSACTION_ABORTABLE, "it was not added");
            assert_eq!(writer.add(&mut rig, 0), ErrorCode::NONE);
        }
        assert_eq!(writer.write(&mut rig, 0, "a", 0), ErrorCode::NONE);
        assert_eq!(committed(&mut rig, 0), (vec![], 0, vec![]));
        let first = writer.id;
        writer = writer.end(&mut rig, true).expect("ended");
        assert_eq!(committed(&mut rig, 0), (vec!["a".to_owned()], 2, vec![]));
        assert_eq!(writer.epoch, version - 1, "the second version bumps the epoch with each end");

        if version == 1 {
            writer.add(&mut rig, 0);
        }
        let next = if version == 1 { 1 } else { 0 };
        assert_eq!(writer.write(&mut rig, 0, "b", next), ErrorCode::NONE);
        writer.end(&mut rig, false).expect("ended");
        let (_, stable, aborted) = committed(&mut rig, 0);
        assert_eq!((stable, aborted), (4, vec![(first, 2)]));
    }
}

/// Records of an open transaction may be deleted, by one who reads what is not committed. Until it ends the rest of it may not be
/// read, but what may begins where the log does: who is sent to an offset before that is told that it is out of range, for ever.
#[test]
fn what_may_be_read_begins_with_the_log_where_records_of_an_open_transaction_were_deleted() {
    let mut rig = Rig::new(1).topic("t", 1);
    let writer = init(&mut rig, 2, None).expect("an id");
    for (sequence, value) in (0..).zip(["a", "b", "c"]) {
        assert_eq!(writer.write(&mut rig, 0, value, sequence), ErrorCode::NONE);
    }
    rig.cluster.delete_records(&at("t", 0), Offset(2), rig.now).expect("deleted");
    let read = |rig: &mut Rig| only(rig.ask_node(1, 12, &fetch("t", &[(0, 2)]).with_isolation_level(1)));
    let open = read(&mut rig);
    assert_eq!((code(open.error_code), values(&open), open.log_start_offset), (ErrorCode::NONE, vec![], 2));
    assert_eq!(open.last_stable_offset, 2);
    writer.end(&mut rig, false).expect("ended");
    let ended = read(&mut rig);
    let aborted: Vec<_> = ended.aborted_transactions.iter().flatten().map(|it| it.first_offset).collect();
    assert_eq!((ended.last_stable_offset, aborted), (4, vec![0]), "it began before the log does");
}

#[test]
fn a_producer_that_begins_again_fences_the_one_before_and_aborts_what_it_left() {
    for version in [1, 2] {
        let mut rig = Rig::new(1).topic("t", 1);
        let old = init(&mut rig, version, None).expect("an id");
        old.add(&mut rig, 0);
        old.write(&mut rig, 0, "left", 0);
        assert_eq!(init(&mut rig, version, None), Err(ErrorCode::CONCURRENT_TRANSACTIONS), "it is aborted first");
        let new = init(&mut rig, version, None).expect("the abort is done");
        assert_eq!((new.id, new.epoch), (old.id, old.epoch + 2));
        assert_eq!(old.write(&mut rig, 0, "late", 1), ErrorCode::INVALID_PRODUCER_EPOCH);
        assert_eq!(old.add(&mut rig, 0), ErrorCode::PRODUCER_FENCED);
        assert_eq!(old.end(&mut rig, true), Err(ErrorCode::PRODUCER_FENCED));
        assert_eq!(init(&mut rig, version, Some(old)), Err(ErrorCode::PRODUCER_FENCED));
        assert_eq!(committed(&mut rig, 0).2, [(old.id, 0)]);
    }
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted() {
    let mut rig = Rig::new(1).topic("t", 1);
    let writer = init(&mut rig, 2, None).expect("an id");
    writer.write(&mut rig, 0, "slow", 0);
    rig.pass(Duration::from_millis(9_999));
    assert_eq!(committed(&mut rig, 0).1, 0);
    rig.pass(Duration::from_millis(1));
    assert_eq!(committed(&mut rig, 0).2, [(writer.id, 0)]);
    assert_eq!(writer.write(&mut rig, 0, "later", 1), ErrorCode::INVALID_PRODUCER_EPOCH);
}

/// KIP-890: an EndTxn that is sent again is told the same; the other outcome is refused.
#[test]
fn an_end_that_is_sent_again_has_the_same_answer() {
    for version in [1, 2] {
        let mut rig = Rig::new(1).topic("t", 1);
        let writer = init(&mut rig, version, None).expect("an id");
        writer.add(&mut rig, 0);
        writer.write(&mut rig, 0, "a", 0);
        let ended = writer.end(&mut rig, true);
        assert_eq!(writer.end(&mut rig, true), ended);
        assert_eq!(writer.end(&mut rig, false), Err(ErrorCode::INVALID_TXN_STATE));
        assert_eq!(rig.cluster.partition(&at("t", 0)).expect("there").high_watermark, Offset(2), "one marker");
    }
}

#[test]
fn an_abort_of_nothing_bumps_the_epoch_in_the_second_version_alone() {
    let mut rig = Rig::new(1);
    let first = init(&mut rig, 1, None).expect("an id");
    assert_eq!(first.end(&mut rig, false), Err(ErrorCode::INVALID_TXN_STATE));
    let second = Writer { version: 2, ..first };
    assert_eq!(second.end(&mut rig, false).map(|it| it.epoch), Ok(1));
}

/// Until a partition without a leader has its marker, the transaction is not over.
#[test]
fn a_marker_that_cannot_be_written_is_written_when_there_is_a_leader() {
    let mut rig = Rig::new(2);
    rig.cluster.create_topic("t", 2, 1, TopicConfig::default(), rig.now).expect("created");
    rig.cluster.move_coordinator("tx", 1, rig.now).expect("runs");
    let writer = init(&mut rig, 1, None).expect("an id");
    writer.add(&mut rig, 0);
    assert_eq!(writer.add(&mut rig, 1), ErrorCode::NONE);
    rig.cluster.crash(2, rig.now);
    assert!(writer.end(&mut rig, true).is_ok());
    assert_eq!(writer.end(&mut rig, true), Err(ErrorCode::CONCURRENT_TRANSACTIONS));
    assert_eq!(writer.add(&mut rig, 0), ErrorCode::CONCURRENT_TRANSACTIONS);
    rig.cluster.restart(2, rig.now);
    rig.pass(Duration::from_millis(100));
    assert!(writer.end(&mut rig, true).is_ok());
    for partition in 0..2 {
        assert_eq!(rig.cluster.partition(&at("t", partition)).expect("there").high_watermark, Offset(1));
    }
}

fn commit_offset(rig: &mut Rig, writer: Writer, offset: i64) -> ErrorCode {
    let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(offset);
    let topic = TxnOffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
    let request = TxnOffsetCommitRequest::default()
        .with_transactional_id(id())
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_producer_id(ProducerId(writer.id))
        .with_producer_epoch(writer.epoch)
        .with_generation_id(-1)
        .with_group_instance_id(None)
        .with_topics(vec![topic]);
    code(rig.ask_node(1, if writer.version == 2 { 5 } else { 4 }, &request).topics[0].partitions[0].error_code)
}

fn offset_of(rig: &mut Rig, stable: bool) -> (i64, ErrorCode) {
    let topic = OffsetFetchRequestTopics::default().with_name(name("t")).with_partition_indexes(vec![0]);
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_topics(Some(vec![topic]));
    let request = OffsetFetchRequest::default().with_groups(vec![group]).with_require_stable(stable);
    let place = rig.ask_node(1, 8, &request).groups[0].topics[0].partitions[0].clone();
    (place.committed_offset, code(place.error_code))
}

#[test]
fn offsets_of_a_transaction_count_once_it_commits() {
    for version in [1, 2] {
        let mut rig = Rig::new(1).topic("t", 1);
        let mut writer = init(&mut rig, version, None).expect("an id");
        for (offset, commit, expected) in [(5, true, 5), (9, false, 5)] {
            if version == 1 {
                assert_eq!(
                    commit_offset(&mut rig, writer, 1),
                    ErrorCode::TRANSACTION_ABORTABLE,
                    "the group was not added"
                );
                let add = AddOffsetsToTxnRequest::default()
                    .with_transactional_id(id())
                    .with_producer_id(ProducerId(writer.id))
                    .with_producer_epoch(writer.epoch)
                    .with_group_id(GroupId(StrBytes::from_static_str("g")));
                assert_eq!(rig.ask_node(1, 3, &add).error_code, 0);
            }
            assert_eq!(commit_offset(&mut rig, writer, offset), ErrorCode::NONE);
            assert_eq!(offset_of(&mut rig, true).1, ErrorCode::UNSTABLE_OFFSET_COMMIT);
            assert_eq!(offset_of(&mut rig, false).1, ErrorCode::NONE);
            writer = writer.end(&mut rig, commit).expect("ended");
            assert_eq!(offset_of(&mut rig, true), (expected, ErrorCode::NONE));
        }
    }
}

/// What a producer wrote in the second version cannot have expired: a first batch that does not begin at 0 has lost one before
/// it (KIP-890).
#[test]
fn a_producer_of_the_second_version_begins_at_zero() {
    let mut rig = Rig::new(1).topic("t", 1);
    let writer = init(&mut rig, 2, None).expect("an id");
    assert_eq!(writer.write(&mut rig, 0, "lost one before", 1), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(writer.write(&mut rig, 0, "a", 0), ErrorCode::NONE);
    let next = writer.end(&mut rig, true).expect("ended");
    assert_eq!(next.write(&mut rig, 0, "lost one before", 1), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(next.write(&mut rig, 0, "b", 0), ErrorCode::NONE);
    let mut rig = Rig::new(1).topic("t", 1);
    let first = init(&mut rig, 1, None).expect("an id");
    first.add(&mut rig, 0);
    assert_eq!(first.write(&mut rig, 0, "its state may have expired", 1), ErrorCode::NONE);
}

/// A batch outside would be read while what was written before it is undecided, and be numbered as part of it.
#[test]
fn a_producer_writes_nothing_outside_while_its_transaction_is_open() {
    let mut rig = Rig::new(1).topic("t", 2);
    let writer = init(&mut rig, 2, None).expect("an id");
    writer.write(&mut rig, 0, "a", 0);
    let outside = numbered(&["x"], writer.id, writer.epoch, 1);
    assert_eq!(code(rig.produce(1, "t", 0, outside.clone()).error_code), ErrorCode::INVALID_TXN_STATE);
    let elsewhere = numbered(&["y"], writer.id, writer.epoch, 0);
    assert_eq!(rig.produce(1, "t", 1, elsewhere).error_code, 0, "the transaction is not open there");
}

#[test]
fn what_is_asked_of_the_wrong_node_or_of_nobody_is_refused() {
    let mut rig = Rig::new(2).topic("t", 1);
    rig.cluster.move_coordinator("tx", 2, rig.now).expect("runs");
    assert_eq!(init(&mut rig, 1, None), Err(ErrorCode::NOT_COORDINATOR));
    rig.cluster.move_coordinator("tx", 1, rig.now).expect("runs");
    let nobody = Writer { id: 7, epoch: 0, version: 1 };
    assert_eq!(nobody.add(&mut rig, 0), ErrorCode::INVALID_PRODUCER_ID_MAPPING);
    let writer = init(&mut rig, 1, None).expect("an id");
    assert_eq!(writer.add(&mut rig, 9), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let batch = closed(
        &["x"],
        Closing {
            is_transactional: true,
            producer: Some(ProducerStamp { id: 1, epoch: 0, base_sequence: 0 }),
            ..Closing::default()
        },
    );
    let unnamed = rig.produce(1, "t", 0, batch);
    assert_eq!(code(unnamed.error_code), ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
}

/// Found by the simulation: a marker was lost with the leader that alone had it, and the next transaction's end became this one's, too.
#[test]
fn a_marker_is_written_once_every_in_sync_replica_takes_it() {
    let mut rig = Rig::new(2).topic("t", 1);
    rig.cluster.move_coordinator("tx", 1, rig.now).expect("runs");
    let writer = init(&mut rig, 1, None).expect("an id");
    writer.add(&mut rig, 0);
    assert_eq!(writer.write(&mut rig, 0, "a", 0), ErrorCode::NONE);
    rig.cluster.set_following(2, false, rig.now);
    writer.end(&mut rig, true).expect("decided");
    assert_eq!(writer.end(&mut rig, true), Err(ErrorCode::CONCURRENT_TRANSACTIONS));
    let end = |rig: &Rig| rig.cluster.partition(&TopicPartition::new("t", 0)).expect("exists").log_ends[0].1;
    assert_eq!(end(&rig), Offset(1), "no marker that could be lost");
    rig.cluster.set_following(2, true, rig.now);
    rig.pass(Duration::from_millis(200));
    assert_eq!(committed(&mut rig, 0), (vec!["a".to_owned()], 2, vec![]));
    writer.end(&mut rig, true).expect("it is ended");
}

/// Found by the simulation: one that wanted another epoch was taken for its successor that asks again, and both wrote in one epoch.
#[test]
fn who_was_before_is_not_given_the_epoch_of_its_successor() {
    let mut rig = Rig::new(1).topic("t", 1);
    let old = init(&mut rig, 1, None).expect("an id");
    let new = init(&mut rig, 1, None).expect("the next epoch");
    assert_eq!(init(&mut rig, 1, Some(old)), Err(ErrorCode::PRODUCER_FENCED));
    let newer = init(&mut rig, 1, Some(new)).expect("its own next epoch");
    assert_eq!(init(&mut rig, 1, Some(new)), Ok(newer), "the answer was lost");
}
