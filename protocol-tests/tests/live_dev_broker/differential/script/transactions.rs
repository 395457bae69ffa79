//! Transactions, by both versions of their protocol (KIP-98, KIP-890).

use kafka_harbor::protocol::batch::{Closing, ProducerStamp};
use kafka_protocol::messages::add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, BrokerId, DescribeProducersRequest, DescribeTransactionsRequest,
    EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest, ListOffsetsRequest, ListTransactionsRequest,
    ProduceRequest, ProducerId, TxnOffsetCommitRequest,
};

use super::groups::committed;
use super::{NEWEST, Run, batch, group, numbered, plain, text, topic, transaction};

pub(super) async fn run(run: &mut Run) {
    refusals(run).await;
    first_version(run).await;
    second_version(run).await;
    fencing(run).await;
}

/// A transactional producer.
#[derive(Debug, Clone, Copy)]
struct Writer {
    name: &'static str,
    id: i64,
    epoch: i16,
}

fn init(name: &str, id: i64, epoch: i16) -> InitProducerIdRequest {
    InitProducerIdRequest::default()
        .with_transactional_id(Some(transaction(name)))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(epoch)
}

/// InitProducerId, as soon as what was before it is over.
async fn begin(run: &mut Run, step: &'static str, name: &'static str) -> Writer {
    let over = |answer: &kafka_protocol::messages::InitProducerIdResponse| !is_over_soon(answer.error_code);
    let answer = run.until(NEWEST, step, init(name, -1, -1), over).await;
    Writer { name, id: answer.producer_id.0, epoch: answer.producer_epoch }
}

/// CONCURRENT_TRANSACTIONS, and a coordinator that is coming up.
fn is_over_soon(code: i16) -> bool {
    matches!(code, 51 | 14 | 15 | 16)
}

impl Writer {
    fn add(self, name: &str, partition: i32) -> AddPartitionsToTxnRequest {
        let named = AddPartitionsToTxnTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
        AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(transaction(self.name))
            .with_v3_and_below_producer_id(ProducerId(self.id))
            .with_v3_and_below_producer_epoch(self.epoch)
            .with_v3_and_below_topics(vec![named])
    }

    fn write(self, run: &Run, name: &str, partition: i32, record: &str, sequence: i32) -> ProduceRequest {
        let producer = Some(ProducerStamp { id: self.id, epoch: self.epoch, base_sequence: sequence });
        let records = batch(&[record], Closing { producer, is_transactional: true, ..Closing::default() });
        run.writing(name, partition, records).with_transactional_id(Some(transaction(self.name)))
    }

    fn end(self, committed: bool) -> EndTxnRequest {
        EndTxnRequest::default()
            .with_transactional_id(transaction(self.name))
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_committed(committed)
    }

    fn add_group(self, of: &str) -> AddOffsetsToTxnRequest {
        AddOffsetsToTxnRequest::default()
            .with_transactional_id(transaction(self.name))
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_group_id(group(of))
    }

    fn commit(self, of: &str, offset: i64) -> TxnOffsetCommitRequest {
        let partition = TxnOffsetCommitRequestPartition::default()
            .with_committed_offset(offset)
            .with_committed_leader_epoch(-1)
            .with_committed_metadata(Some(text("note")));
        let named = TxnOffsetCommitRequestTopic::default().with_name(topic("plain")).with_partitions(vec![partition]);
        TxnOffsetCommitRequest::default()
            .with_transactional_id(transaction(self.name))
            .with_group_id(group(of))
            .with_producer_id(ProducerId(self.id))
            .with_producer_epoch(self.epoch)
            .with_generation_id(-1)
            .with_topics(vec![named])
    }
}

async fn refusals(run: &mut Run) {
    let coordinator = FindCoordinatorRequest::default()
        .with_key(text("one"))
        .with_key_type(1)
        .with_coordinator_keys(vec![text("one")]);
    let known = |answer: &kafka_protocol::messages::FindCoordinatorResponse| {
        answer.coordinators.iter().all(|of| of.error_code == 0)
    };
    run.until(NEWEST, "transaction: its coordinator", coordinator, known).await;
    run.ask("transaction: no id", init("", -1, -1)).await;
    run.ask("transaction: no time", init("one", -1, -1).with_transaction_timeout_ms(0)).await;
    run.ask("transaction: too much time", init("one", -1, -1).with_transaction_timeout_ms(i32::MAX)).await;
    run.ask("transaction: an id without an epoch", init("one", 7, -1)).await;
    run.ask("transaction: an epoch without an id", init("one", -1, 7)).await;
    run.ask("transaction: begins where nothing was", init("never", 7, 7)).await;
    let stranger = Writer { name: "stranger", id: 4_000_001, epoch: 0 };
    run.ask("transaction: a stranger ends", stranger.end(true)).await;
    run.ask("transaction: a stranger adds a group", stranger.add_group("tg")).await;
    run.ask_in(3, "transaction: a stranger adds a partition", stranger.add("plain", 0)).await;
    run.ask("transaction: a stranger writes", stranger.write(run, "plain", 1, "=s", 0)).await;
    run.ask_in(11, "transaction: a stranger writes, version 1", stranger.write(run, "plain", 1, "=s", 0)).await;
    run.ask("transaction: a stranger commits offsets", stranger.commit("tg", 1)).await;
    run.ask_in(4, "transaction: a stranger commits offsets, version 1", stranger.commit("tg", 1)).await;
}

/// An end that is repeated until the one before it is over.
async fn end(run: &mut Run, version: i16, step: &'static str, writer: Writer, committed: bool) -> Writer {
    let over = |answer: &kafka_protocol::messages::EndTxnResponse| !is_over_soon(answer.error_code);
    let answer = run.until(version, step, writer.end(committed), over).await;
    Writer { id: answer.producer_id.0, epoch: answer.producer_epoch, ..writer }
}

/// Adds a partition, once the transaction before is over.
async fn add(run: &mut Run, step: &'static str, writer: Writer, name: &str) {
    let over = |answer: &kafka_protocol::messages::AddPartitionsToTxnResponse| {
        let mut topics = answer.results_by_topic_v3_and_below.iter().flat_map(|of| &of.results_by_partition);
        topics.all(|of| !is_over_soon(of.partition_error_code))
    };
    run.until(3, step, writer.add(name, 0), over).await;
}

fn written(answer: &kafka_protocol::messages::ProduceResponse) -> bool {
    let mut partitions = answer.responses.iter().flat_map(|of| &of.partition_responses);
    partitions.all(|of| !is_over_soon(of.error_code))
}

fn places(name: &str, isolation: i8) -> ListOffsetsRequest {
    let partition = ListOffsetsPartition::default().with_current_leader_epoch(-1).with_timestamp(-1);
    let of = ListOffsetsTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
    ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation)
        .with_timeout_ms(10_000)
        .with_topics(vec![of])
}

/// Reads what is committed, once as much of it is decided.
async fn decided(run: &mut Run, step: &'static str, name: &str, end: i64) {
    let stable = |answer: &kafka_protocol::messages::FetchResponse| {
        answer.responses.iter().flat_map(|of| &of.partitions).all(|of| of.last_stable_offset >= end)
    };
    run.until(NEWEST, step, run.reading(name, 0, 0).with_isolation_level(1), stable).await;
}

async fn first_version(run: &mut Run) {
    let writer = begin(run, "v1: begins", "one").await;
    let at = "of.defaults";
    run.ask_in(11, "v1: writes without having added", writer.write(run, at, 0, "=early", 0)).await;
    run.ask_in(3, "v1: adds a topic that is not there", writer.add("missing", 0)).await;
    run.ask_in(4, "v1: ends nothing", writer.end(true)).await;
    run.ask_in(4, "v1: aborts nothing", writer.end(false)).await;
    add(run, "v1: adds", writer, at).await;
    let some = AddPartitionsToTxnTopic::default().with_name(topic(at)).with_partitions(vec![0]);
    let only_asked = AddPartitionsToTxnTransaction::default()
        .with_transactional_id(transaction("one"))
        .with_producer_id(ProducerId(writer.id))
        .with_producer_epoch(writer.epoch)
        .with_verify_only(true)
        .with_topics(vec![some]);
    run.ask("v1: asks as a broker does", AddPartitionsToTxnRequest::default().with_transactions(vec![only_asked]))
        .await;
    run.ask_in(11, "v1: writes", writer.write(run, at, 0, "=a", 0)).await;
    run.ask_in(11, "v1: writes on", writer.write(run, at, 0, "=b", 1)).await;
    run.ask_in(11, "v1: writes again", writer.write(run, at, 0, "=b", 1)).await;
    let outside = run.writing(at, 0, numbered(&["=x"], writer.id, writer.epoch, 2));
    run.ask_in(11, "v1: writes outside of it", outside).await;
    run.ask("v1: another writes", run.writing(at, 0, plain(&["=other"]))).await;
    run.ask("v1: the end while open", places(at, 0)).await;
    run.ask("v1: the end of what is decided while open", places(at, 1)).await;
    run.ask("v1: read while open", run.reading(at, 0, 0)).await;
    run.ask("v1: what is decided while open", run.reading(at, 0, 0).with_isolation_level(1)).await;
    look(run, writer).await;
    run.ask_in(4, "v1: commits offsets without having added", writer.commit("tg", 1)).await;
    run.ask_in(3, "v1: adds a group", writer.add_group("tg")).await;
    run.ask_in(4, "v1: commits offsets", writer.commit("tg", 2)).await;
    run.ask("v1: offsets while open", committed("tg", Some(&[("plain", &[0])]))).await;
    let stable = committed("tg", Some(&[("plain", &[0])])).with_require_stable(true);
    run.ask("v1: decided offsets while open", stable.clone()).await;
    run.ask("v1: all decided offsets while open", committed("tg", None).with_require_stable(true)).await;
    end(run, 4, "v1: commits", writer, true).await;
    end(run, 4, "v1: commits again", writer, true).await;
    run.ask_in(4, "v1: aborts what is committed", writer.end(false)).await;
    decided(run, "v1: what is decided", at, 4).await;
    let known = |answer: &kafka_protocol::messages::OffsetFetchResponse| {
        let mut partitions = answer.groups.iter().flat_map(|of| &of.topics).flat_map(|of| &of.partitions);
        partitions.all(|of| of.error_code == 0 && of.committed_offset >= 0)
    };
    run.until(NEWEST, "v1: offsets", stable, known).await;

    add(run, "v1: adds once more", writer, at).await;
    run.ask_in(11, "v1: writes with a gap", writer.write(run, at, 0, "=z", 9)).await;
    run.ask_in(11, "v1: writes once more", writer.write(run, at, 0, "=void", 2)).await;
    end(run, 4, "v1: aborts", writer, false).await;
    decided(run, "v1: what is aborted", at, 6).await;
    run.ask_in(4, "v1: ends under another epoch", Writer { epoch: 7, ..writer }.end(true)).await;
    run.ask_in(4, "v1: ends under another id", Writer { id: writer.id + 1_000, ..writer }.end(true)).await;
}

/// What an operator sees of transactions (KIP-664).
async fn look(run: &mut Run, writer: Writer) {
    let producers = |name: &str, partitions: &[i32]| {
        let of = TopicRequest::default().with_name(topic(name)).with_partition_indexes(partitions.to_vec());
        DescribeProducersRequest::default().with_topics(vec![of])
    };
    run.ask("look: producers of a transaction", producers("of.defaults", &[0])).await;
    run.ask("look: producers without one", producers("single", &[0])).await;
    run.ask("look: producers of what is not there", producers("plain", &[9])).await;
    run.ask("look: producers of a topic that is not there", producers("missing", &[0])).await;
    let describe = |ids: &[&str]| {
        let ids = ids.iter().copied().map(transaction).collect();
        DescribeTransactionsRequest::default().with_transactional_ids(ids)
    };
    run.ask("look: an open one", describe(&["one"])).await;
    run.ask("look: one that is not there", describe(&["nobody"])).await;
    run.ask("look: one without a name", describe(&[""])).await;
    let list = ListTransactionsRequest::default;
    run.ask("look: all", list()).await;
    run.ask("look: the open ones", list().with_state_filters(vec![text("Ongoing")])).await;
    run.ask("look: the empty ones", list().with_state_filters(vec![text("Empty"), text("PrepareCommit")])).await;
    run.ask("look: those in a state that is none", list().with_state_filters(vec![text("Asleep"), text("Ongoing")]))
        .await;
    run.ask("look: those in other letters", list().with_state_filters(vec![text("ongoing")])).await;
    run.ask("look: a producer's", list().with_producer_id_filters(vec![ProducerId(writer.id)])).await;
    run.ask("look: nobody's", list().with_producer_id_filters(vec![ProducerId(writer.id + 1_000)])).await;
    run.ask("look: those that are old", list().with_duration_filter(3_600_000)).await;
    if run.version::<ListTransactionsRequest>(NEWEST) >= FIRST_WITH_PATTERNS {
        for (pattern, step) in [
            ("on.*", "look: by a pattern"),
            ("o", "look: by a pattern that is a part"),
            ("(", "look: by what is no pattern"),
            ("", "look: by an empty pattern"),
        ] {
            run.ask(step, list().with_transactional_id_pattern(Some(text(pattern)))).await;
        }
    }
}

async fn second_version(run: &mut Run) {
    let writer = begin(run, "v2: begins", "two").await;
    let at = "assigned";
    let middle = begin(run, "v2: another begins", "middle").await;
    run.until(NEWEST, "v2: another begins in the middle", middle.write(run, "single", 0, "=m", 5), written).await;
    end(run, NEWEST, "v2: another gives up", middle, false).await;
    run.until(NEWEST, "v2: writes", writer.write(run, at, 0, "=a", 0), written).await;
    run.ask("v2: writes on", writer.write(run, at, 0, "=b", 1)).await;
    run.ask("v2: writes again", writer.write(run, at, 0, "=b", 1)).await;
    run.ask("v2: writes outside of it", run.writing(at, 0, numbered(&["=x"], writer.id, writer.epoch, 2))).await;
    run.ask("v2: commits offsets", writer.commit("tg2", 3)).await;
    let next = end(run, NEWEST, "v2: commits", writer, true).await;
    end(run, NEWEST, "v2: commits again", writer, true).await;
    end(run, NEWEST, "v2: aborts what is committed", writer, false).await;
    decided(run, "v2: what is decided", at, 3).await;
    run.ask("v2: writes in the epoch that was", writer.write(run, at, 0, "=late", 2)).await;
    run.ask("v2: commits nothing", next.end(true)).await;
    run.until(NEWEST, "v2: writes in the new epoch", next.write(run, at, 0, "=c", 0), written).await;
    let last = end(run, NEWEST, "v2: aborts", next, false).await;
    end(run, NEWEST, "v2: aborts again", next, false).await;
    decided(run, "v2: what is aborted", at, 5).await;
    end(run, NEWEST, "v2: aborts nothing", last, false).await;
}

async fn fencing(run: &mut Run) {
    let at = "small";
    let first = begin(run, "fence: the first begins", "three").await;
    run.until(NEWEST, "fence: the first writes", first.write(run, at, 0, "=f", 0), written).await;
    let second = begin(run, "fence: the second begins", "three").await;
    run.ask("fence: the first writes on", first.write(run, at, 0, "=late", 1)).await;
    run.ask_in(11, "fence: the first writes on, version 1", first.write(run, at, 0, "=late", 1)).await;
    run.ask("fence: the first commits", first.end(true)).await;
    run.ask_in(1, "fence: the first commits, of old", first.end(true)).await;
    run.ask_in(3, "fence: the first adds", first.add(at, 0)).await;
    run.ask("fence: the first adds a group", first.add_group("tg")).await;
    run.ask("fence: the first commits offsets", first.commit("tg", 9)).await;
    run.ask("fence: the first begins again", init("three", first.id, first.epoch)).await;
    run.ask_in(2, "fence: the first begins again, of old", init("three", -1, -1).with_transaction_timeout_ms(0)).await;
    decided(run, "fence: what the first wrote", at, 2).await;
    let again = run.ask("fence: the second begins again as itself", init("three", second.id, second.epoch)).await;
    run.ask("fence: and once more, as its answer was lost", init("three", second.id, second.epoch)).await;
    let second = Writer { epoch: again.producer_epoch, ..second };
    run.until(NEWEST, "fence: the second writes", second.write(run, at, 0, "=g", 0), written).await;
    end(run, NEWEST, "fence: the second commits", second, true).await;
    decided(run, "fence: what the second wrote", at, 4).await;
}

/// KIP-1152.
const FIRST_WITH_PATTERNS: i16 = 2;
