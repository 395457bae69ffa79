//! Writing, reading, and where things are.

use bytes::Bytes;
use kafka_harbor::protocol::batch::{Closing, ProducerStamp};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, DeleteRecordsRequest, FetchRequest, InitProducerIdRequest, ListOffsetsRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, ProducerId,
};
use uuid::Uuid;

use super::{NEWEST, Run, batch, made_at, now, numbered, plain, timed, topic};

pub(super) async fn run(run: &mut Run) {
    write(run).await;
    number(run).await;
    read(run).await;
    sessions(run).await;
    places(run).await;
    shorten(run).await;
}

impl Run {
    /// One batch for one partition, named in either way.
    pub(super) fn writing(&self, name: &str, partition: i32, records: Bytes) -> ProduceRequest {
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(records));
        let of = TopicProduceData::default()
            .with_name(topic(name))
            .with_topic_id(self.ids.get(name).copied().unwrap_or(Uuid::from_u128(7)))
            .with_partition_data(vec![data]);
        ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![of])
    }

    /// A read of one partition, without a session and without waiting.
    pub(super) fn reading(&self, name: &str, partition: i32, offset: i64) -> FetchRequest {
        let of = FetchTopic::default()
            .with_topic(topic(name))
            .with_topic_id(self.ids.get(name).copied().unwrap_or(Uuid::from_u128(7)))
            .with_partitions(vec![position(partition, offset)]);
        FetchRequest::default().with_max_bytes(1 << 20).with_min_bytes(1).with_session_epoch(-1).with_topics(vec![of])
    }
}

fn position(partition: i32, offset: i64) -> FetchPartition {
    FetchPartition::default()
        .with_partition(partition)
        .with_current_leader_epoch(-1)
        .with_last_fetched_epoch(-1)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20)
}

async fn write(run: &mut Run) {
    let three = plain(&["k0=a", "k1=b", "=c"]);
    run.ask("write", run.writing("plain", 0, three.clone())).await;
    run.ask_in(11, "write: by name", run.writing("plain", 0, three.clone())).await;
    run.ask_in(3, "write: version 3", run.writing("plain", 0, three.clone())).await;
    run.ask("write: to the leader alone", run.writing("plain", 0, three.clone()).with_acks(1)).await;
    run.ask("write: acks that cannot be", run.writing("plain", 0, three.clone()).with_acks(2)).await;
    run.ask("write: a topic that is not there", run.writing("missing", 0, three.clone())).await;
    run.ask_in(11, "write: a topic that is not there, by name", run.writing("missing", 0, three.clone())).await;
    run.ask("write: a partition that is not there", run.writing("plain", 9, three.clone())).await;
    run.ask("write: nothing", run.writing("plain", 0, Bytes::new())).await;
    let two = [three.clone(), three.clone()].concat();
    run.ask("write: two batches", run.writing("plain", 0, two.into())).await;
    run.ask("write: half a batch", run.writing("plain", 0, three.slice(..three.len() / 2))).await;
    run.ask("write: bytes that do not match their sum", run.writing("plain", 0, changed(&three, -1, 1))).await;
    run.ask("write: an older magic", run.writing("plain", 0, changed(&three, 16, 3))).await;
    run.ask("write: too large", run.writing("small", 0, plain(&[&format!("={}", "x".repeat(300))]))).await;
    run.ask("write: without a key", run.writing("compacted", 0, plain(&["k=a", "=b"]))).await;
    run.ask("write: with keys", run.writing("compacted", 0, plain(&["k=a", "k=b"]))).await;
    run.ask("write: with the broker's time", run.writing("stamped", 0, three.clone())).await;
    let late = timed(&["=a", "=b"], now() + 7_200_000, Closing::default());
    run.ask("write: from the future", run.writing("timely", 0, late.clone())).await;
    run.ask("write: from beyond the default future", run.writing("single", 0, late)).await;
    run.ask("write: from the past", run.writing("timely", 0, three.clone())).await;
    run.ask("write: from now", run.writing("timely", 0, timed(&["=a"], now(), Closing::default()))).await;
    let control = Closing { is_control: true, ..Closing::default() };
    run.ask("write: a control record", run.writing("plain", 0, batch(&["k=v"], control))).await;
}

/// The bytes with one changed, counted from the end where negative.
fn changed(bytes: &Bytes, at: i32, by: u8) -> Bytes {
    let mut changed = bytes.to_vec();
    let at = usize::try_from(at).unwrap_or_else(|_| changed.len() - at.unsigned_abs() as usize);
    changed[at] ^= by;
    changed.into()
}

/// Idempotent producers.
async fn number(run: &mut Run) {
    let init = || {
        InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
    };
    let known = |answer: &kafka_protocol::messages::InitProducerIdResponse| answer.error_code == 0;
    let id = run.until(NEWEST, "numbers: an id", init(), known).await.producer_id.0;
    run.ask_in(2, "numbers: an id, of old", init()).await;
    run.ask("numbers: an id again", init().with_producer_id(ProducerId(id)).with_producer_epoch(0)).await;
    let at = |run: &Run, records: &[&str], epoch: i16, sequence: i32| {
        run.writing("single", 0, numbered(records, id, epoch, sequence))
    };
    run.ask("numbers: the first", at(run, &["=a", "=b"], 0, 0)).await;
    run.ask("numbers: the next", at(run, &["=c"], 0, 2)).await;
    run.ask("numbers: the first again", at(run, &["=a", "=b"], 0, 0)).await;
    run.ask("numbers: other records under known numbers", at(run, &["=a"], 0, 0)).await;
    run.ask("numbers: a gap", at(run, &["=z"], 0, 9)).await;
    run.ask("numbers: a new epoch that begins behind 0", at(run, &["=z"], 1, 3)).await;
    run.ask("numbers: a new epoch", at(run, &["=d"], 1, 0)).await;
    run.ask("numbers: the old epoch", at(run, &["=z"], 0, 3)).await;
    for (sequence, step) in [
        (1, "numbers: 1 of 6"),
        (2, "numbers: 2 of 6"),
        (3, "numbers: 3 of 6"),
        (4, "numbers: 4 of 6"),
        (5, "numbers: 5 of 6"),
        (6, "numbers: 6 of 6"),
    ] {
        run.ask(step, at(run, &["=e"], 1, sequence)).await;
    }
    run.ask("numbers: the oldest of five again", at(run, &["=e"], 1, 2)).await;
    run.ask("numbers: one before the oldest of five", at(run, &["=e"], 1, 1)).await;
    let stranger = |sequence| numbered(&["=s"], 4_000_000, 0, sequence);
    run.ask("numbers: a producer that is unknown begins anywhere", run.writing("plain", 1, stranger(7))).await;
    run.ask("numbers: and goes on", run.writing("plain", 1, stranger(8))).await;
    let stamped = |run: &Run| run.writing("stamped", 0, numbered(&["=t"], id, 0, 0));
    run.ask("numbers: with the broker's time", stamped(run)).await;
    run.ask("numbers: with the broker's time, again", stamped(run)).await;
    let transactional = |id: i64| Closing {
        producer: Some(ProducerStamp { id, epoch: 0, base_sequence: 0 }),
        is_transactional: true,
        ..Closing::default()
    };
    let outside = run.writing("single", 0, batch(&["=x"], transactional(id)));
    run.ask("numbers: a transaction's batch without its id", outside).await;
}

async fn read(run: &mut Run) {
    let expected = 12;
    run.ask("read", run.reading("plain", 0, 0)).await;
    run.ask_in(12, "read: by name", run.reading("plain", 0, 0)).await;
    run.ask_in(4, "read: version 4", run.reading("plain", 0, 0)).await;
    run.ask("read: from within a batch", run.reading("plain", 0, 4)).await;
    run.ask("read: at the end", run.reading("plain", 0, expected)).await;
    run.ask("read: behind the end", run.reading("plain", 0, expected + 1)).await;
    run.ask("read: before the start", run.reading("plain", 0, -1)).await;
    run.ask("read: a partition that is not there", run.reading("plain", 9, 0)).await;
    run.ask("read: a topic that is not there", run.reading("missing", 0, 0)).await;
    run.ask_in(12, "read: a topic that is not there, by name", run.reading("missing", 0, 0)).await;
    run.ask("read: one byte", run.reading("plain", 0, 0).with_max_bytes(1)).await;
    let mut two = run.reading("plain", 0, 0);
    two.topics[0].partitions.push(position(1, 0));
    run.ask("read: one byte of two", two.clone().with_max_bytes(1)).await;
    two.topics[0].partitions.iter_mut().for_each(|of| of.partition_max_bytes = 1);
    run.ask("read: two", two).await;
    let mut cut = run.reading("plain", 0, 0);
    cut.topics[0].partitions[0].partition_max_bytes = 100;
    run.ask("read: a batch and a part of the next", cut).await;
    let waits = run.reading("plain", 0, expected).with_max_wait_ms(100);
    run.ask("read: nothing comes", waits).await;
    run.ask("read: what is stamped", run.reading("stamped", 0, 0)).await;
    run.ask("read: what is numbered", run.reading("single", 0, 0)).await;
    let mut epoch = run.reading("plain", 0, 0);
    for (current, last, step) in [
        (0, -1, "read: in the epoch that is"),
        (5, -1, "read: in an epoch to come"),
        (0, 0, "read: after a record of the epoch that is"),
        (0, 5, "read: after a record of an epoch to come"),
    ] {
        let of = &mut epoch.topics[0].partitions[0];
        (of.current_leader_epoch, of.last_fetched_epoch) = (current, last);
        run.ask(step, epoch.clone()).await;
    }
    let mut behind = run.reading("plain", 0, 99);
    behind.topics[0].partitions[0].last_fetched_epoch = 0;
    run.ask("read: behind the end of its epoch", behind).await;
}

/// KIP-227.
async fn sessions(run: &mut Run) {
    let begin = run.reading("plain", 2, 0).with_session_epoch(0);
    let session = run.ask("session: begins", begin).await.session_id;
    let goes_on = |epoch: i32| {
        FetchRequest::default()
            .with_max_bytes(1 << 20)
            .with_min_bytes(1)
            .with_session_id(session)
            .with_session_epoch(epoch)
    };
    run.ask("session: nothing new", goes_on(1)).await;
    run.ask("session: meanwhile", run.writing("plain", 2, plain(&["=s"]))).await;
    run.ask("session: something new", goes_on(2)).await;
    run.ask("session: and again, as it is not read on", goes_on(3)).await;
    let mut more = goes_on(4);
    more.topics = run.reading("plain", 2, 1).topics;
    more.topics.extend(run.reading("single", 0, 0).topics);
    run.ask("session: a topic more, read on", more).await;
    let forget =
        ForgottenTopic::default().with_topic(topic("single")).with_topic_id(run.ids["single"]).with_partitions(vec![0]);
    run.ask("session: a topic less", goes_on(5).with_forgotten_topics_data(vec![forget])).await;
    run.ask("session: an epoch too early", goes_on(5)).await;
    run.ask("session: an epoch too late", goes_on(9)).await;
    let mut wrong = goes_on(6);
    wrong.topics = run.reading("plain", 9, 0).topics;
    run.ask("session: a partition that is not there", wrong).await;
    run.ask("session: and still not", goes_on(7)).await;
    run.ask("session: of another", goes_on(1).with_session_id(session.wrapping_add(1).max(1))).await;
    run.ask("session: ends", goes_on(-1)).await;
    run.ask("session: after its end", goes_on(8)).await;
}

async fn places(run: &mut Run) {
    let ask = |name: &str, partition: i32, time: i64| {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(partition)
            .with_current_leader_epoch(-1)
            .with_timestamp(time);
        let of = ListOffsetsTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
        ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_timeout_ms(10_000).with_topics(vec![of])
    };
    run.ask("place: the end", ask("plain", 0, -1)).await;
    run.ask_in(1, "place: the end, version 1", ask("plain", 0, -1)).await;
    run.ask("place: the end of what is committed", ask("plain", 0, -1).with_isolation_level(1)).await;
    run.ask("place: the start", ask("plain", 0, -2)).await;
    run.ask("place: the latest time", ask("plain", 0, -3)).await;
    run.ask("place: the local start", ask("plain", 0, -4)).await;
    run.ask("place: the end of a second tier", ask("plain", 0, -5)).await;
    run.ask("place: what waits for a second tier", ask("plain", 0, -6)).await;
    run.ask("place: a time that is none", ask("plain", 0, -9)).await;
    run.ask("place: a time before all", ask("plain", 0, 5)).await;
    run.ask("place: a time between", ask("plain", 0, made_at() + 1)).await;
    run.ask("place: a time after all", ask("plain", 0, made_at() + 1_000)).await;
    run.ask("place: the end of nothing", ask("of.defaults", 0, -1)).await;
    run.ask("place: the start of nothing", ask("of.defaults", 0, -2)).await;
    run.ask("place: the latest time of nothing", ask("of.defaults", 0, -3)).await;
    run.ask("place: a partition that is not there", ask("plain", 9, -1)).await;
    run.ask("place: a topic that is not there", ask("missing", 0, -1)).await;
    let mut epoch = ask("plain", 0, -1);
    epoch.topics[0].partitions[0].current_leader_epoch = 5;
    run.ask("place: in an epoch to come", epoch).await;

    let ask = |name: &str, current: i32, epoch: i32| {
        let partition = OffsetForLeaderPartition::default().with_current_leader_epoch(current).with_leader_epoch(epoch);
        let of = OffsetForLeaderTopic::default().with_topic(topic(name)).with_partitions(vec![partition]);
        OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![of])
    };
    run.ask("epoch: the first", ask("plain", -1, 0)).await;
    run.ask("epoch: of nothing", ask("of.defaults", -1, 0)).await;
    run.ask("epoch: one to come", ask("plain", -1, 5)).await;
    run.ask("epoch: before the first", ask("plain", -1, -1)).await;
    run.ask("epoch: told in one to come", ask("plain", 5, 0)).await;
    run.ask("epoch: a topic that is not there", ask("missing", -1, 0)).await;
}

async fn shorten(run: &mut Run) {
    let ask = |name: &str, partition: i32, offset: i64| {
        let partition = DeleteRecordsPartition::default().with_partition_index(partition).with_offset(offset);
        let of = DeleteRecordsTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
        DeleteRecordsRequest::default().with_timeout_ms(10_000).with_topics(vec![of])
    };
    run.ask("shorten", ask("plain", 0, 4)).await;
    run.ask("shorten: to before the start", ask("plain", 0, 2)).await;
    run.ask("shorten: beyond the end", ask("plain", 0, 99)).await;
    run.ask("shorten: to less than nothing", ask("plain", 0, -2)).await;
    run.ask("shorten: a partition that is not there", ask("plain", 9, 1)).await;
    run.ask("shorten: a topic that is not there", ask("missing", 0, 1)).await;
    run.ask("shorten: what is compacted", ask("compacted", 0, 1)).await;
    run.ask("shorten: read from before", run.reading("plain", 0, 3)).await;
    run.ask("shorten: read from the start", run.reading("plain", 0, 4)).await;
    run.ask("shorten: written to", run.writing("plain", 0, plain(&["=w"]))).await;
    run.ask("shorten: all", ask("plain", 0, -1)).await;
    run.ask_in(NEWEST, "shorten: read at the end", run.reading("plain", 0, 13)).await;
}
