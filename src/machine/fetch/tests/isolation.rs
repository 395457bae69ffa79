//! What is read of transactions.

use kafka_protocol::messages::ProducerId;
use kafka_protocol::messages::fetch_response::AbortedTransaction;

use proptest::prelude::*;

use super::*;
use crate::protocol::batch::{ControlKind, ProducerStamp};

const A: i64 = 100;
const B: i64 = 200;

/// One partition with a log of transactions, whose broker tells of the aborted ones as Kafka does.
struct Ledger {
    rig: Rig,
    /// Where each open transaction begins.
    open: HashMap<i64, i64>,
    aborted: Vec<Ended>,
}

#[derive(Debug, Clone, Copy)]
struct Ended {
    producer: i64,
    first: i64,
    marker: i64,
}

impl Ledger {
    fn new(isolation: IsolationLevel) -> Self {
        let config = FetchConfig { isolation, ..small() };
        Self { rig: Rig::new(1, config), open: HashMap::new(), aborted: Vec::new() }
    }

    fn put(&mut self, batch: EncodedBatch, epoch: i32) -> i64 {
        let log = self.rig.logs.get_mut(&tp(0)).unwrap();
        let at = log.end;
        let batch = batch.with_base_offset(Offset(at)).unwrap().with_leader_epoch(Some(LeaderEpoch(epoch)));
        log.end = batch.header().next_offset().0;
        log.batches.push(batch.into_bytes());
        at
    }

    /// A batch of this producer; without a transaction where `begun` is false.
    fn write(&mut self, producer: i64, value: &str, count: usize, codec: Codec, begun: bool) {
        let mut writer = BatchWriter::new(Compression::new(codec));
        for _ in 0..count {
            writer.append(Timestamp(1), None, Some(value.as_bytes()), std::iter::empty()).unwrap();
        }
        let producer_stamp = Some(ProducerStamp { id: producer, epoch: 0, base_sequence: 0 });
        let closing = Closing { producer: producer_stamp, is_transactional: begun, is_control: false };
        let at = self.put(writer.close(closing).unwrap(), 1);
        if begun {
            self.open.entry(producer).or_insert(at);
        }
    }

    fn send(&mut self, producer: i64, value: &str) {
        self.write(producer, value, 2, Codec::None, true);
    }

    fn end(&mut self, producer: i64, kind: ControlKind) {
        self.end_in_epoch(producer, kind, 1);
    }

    fn end_in_epoch(&mut self, producer: i64, kind: ControlKind, epoch: i32) {
        let mut writer = BatchWriter::new(Compression::NONE);
        let value = ControlKind::marker_value(0);
        writer.append(Timestamp(1), Some(&kind.key()), Some(&value), std::iter::empty()).unwrap();
        let producer_stamp = Some(ProducerStamp { id: producer, epoch: 0, base_sequence: -1 });
        let closing = Closing { producer: producer_stamp, is_transactional: true, is_control: true };
        let marker = self.put(writer.close(closing).unwrap(), epoch);
        let first = self.open.remove(&producer);
        if let Some(first) = first.filter(|_| kind == ControlKind::Abort) {
            self.aborted.push(Ended { producer, first, marker });
        }
    }

    fn response(&mut self, plan: &FetchPlan) -> FetchResponse {
        let mut response = self.rig.response(plan);
        for data in response.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
            let records = data.records.clone().unwrap_or_default();
            let reached = crate::protocol::batch::encoded(records).map(|batch| batch.unwrap().header().next_offset().0);
            let reached = reached.max().unwrap_or(0);
            let asked = of(plan, 0).offset.0;
            let told = self.aborted.iter().filter(|ended| ended.marker >= asked && ended.first < reached);
            let told = told.map(|ended| {
                AbortedTransaction::default()
                    .with_producer_id(ProducerId(ended.producer))
                    .with_first_offset(ended.first)
            });
            data.aborted_transactions = Some(told.collect());
        }
        response
    }

    /// Reads to the end. The values, and how far was covered.
    fn read(&mut self) -> (Vec<String>, i64) {
        let (mut values, mut covered) = (Vec::new(), 0);
        loop {
            let plan = self.rig.ask(NODE);
            let done = of(&plan, 0).offset.0 >= self.rig.logs[&tp(0)].end;
            let response = self.response(&plan);
            self.rig.now += Duration::from_secs(1);
            self.rig.answer(&plan, response);
            while let Some(fetched) = self.rig.fetcher.poll_batch() {
                assert!(fetched.chunk.batches.iter().all(|batch| !batch.is_control()));
                let from = fetched.chunk.from;
                for record in fetched.chunk.batches.iter().flat_map(|batch| batch.records()) {
                    let record = record.unwrap();
                    if record.offset >= from {
                        values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
                    }
                }
                covered = fetched.chunk.next_offset.0;
            }
            if done {
                return (values, covered);
            }
        }
    }
}

/// Records of aborted transactions were delivered when they were compressed (librdkafka#3020).
#[test]
fn aborted_records_are_left_out_whatever_their_codec_and_the_position_passes_them() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        if !codec.is_enabled() {
            continue;
        }
        let mut ledger = Ledger::new(IsolationLevel::ReadCommitted);
        ledger.write(A, "committed", 1, codec, true);
        ledger.write(B, "aborted", 3, codec, true);
        ledger.write(A, "committed too", 1, codec, true);
        ledger.end(A, ControlKind::Commit);
        ledger.write(B, "aborted too", 1, codec, true);
        ledger.end(B, ControlKind::Abort);
        ledger.write(B, "without", 1, codec, false);
        assert_eq!(ledger.read(), (vec!["committed".into(), "committed too".into(), "without".into()], 9), "{codec}");
    }
}

/// A filter that ended at the producer's first marker took a *commit* for the end of the aborted one (brod#659).
#[test]
fn only_an_abort_marker_ends_an_aborted_transaction() {
    let mut ledger = Ledger::new(IsolationLevel::ReadCommitted);
    ledger.send(A, "1");
    ledger.end(A, ControlKind::Commit);
    ledger.send(A, "2 void");
    ledger.end(A, ControlKind::Abort);
    ledger.send(A, "3");
    ledger.end(A, ControlKind::Commit);
    ledger.send(A, "4 void");
    ledger.end(A, ControlKind::Abort);
    ledger.send(A, "5 void");
    ledger.end(A, ControlKind::Abort);
    ledger.send(A, "6");
    assert_eq!(ledger.read().0, ["1", "1", "3", "3", "6", "6"]);

    // Nor does a commit marker that lies behind the first offset told.
    let mut ledger = Ledger::new(IsolationLevel::ReadCommitted);
    ledger.open.insert(A, 0);
    ledger.send(B, "b");
    ledger.end(A, ControlKind::Commit);
    ledger.open.insert(A, 0);
    ledger.send(A, "void");
    ledger.end(A, ControlKind::Abort);
    ledger.send(A, "a");
    assert_eq!(ledger.read().0, ["b", "b", "a", "a"]);
}

#[test]
fn a_transaction_that_began_before_the_position_is_void_from_there_on() {
    let mut ledger = Ledger::new(IsolationLevel::ReadCommitted);
    ledger.send(A, "void");
    ledger.send(A, "void");
    ledger.send(B, "b");
    ledger.end(B, ControlKind::Commit);
    ledger.send(A, "void");
    ledger.end(A, ControlKind::Abort);
    for from in 0..ledger.rig.logs[&tp(0)].end {
        ledger.rig.fetcher.seek(&tp(0), 1, Offset(from), None);
        let values = ledger.read().0;
        assert!(values.iter().all(|value| value == "b"), "from {from}: {values:?}");
    }
}

#[test]
fn who_reads_everything_reads_aborted_records_and_yet_no_marker() {
    let mut ledger = Ledger::new(IsolationLevel::ReadUncommitted);
    ledger.send(A, "void");
    ledger.end(A, ControlKind::Abort);
    ledger.send(B, "open");
    assert_eq!(ledger.read(), (vec!["void".into(), "void".into(), "open".into(), "open".into()], 5));
    for (isolation, wire) in [(IsolationLevel::ReadUncommitted, 0), (IsolationLevel::ReadCommitted, 1)] {
        let mut ledger = Ledger::new(isolation);
        let plan = ledger.rig.ask(NODE);
        assert_eq!(plan.request(12).isolation_level, wire);
    }
}

/// What nobody takes has no bytes to be bounded by: a partition full of it would fill memory with notes of it.
#[test]
fn a_log_of_nothing_but_aborted_records_is_passed_and_held_in_one_piece() {
    let mut ledger = Ledger::new(IsolationLevel::ReadCommitted);
    for _ in 0..50 {
        ledger.send(A, "void");
        ledger.end(A, ControlKind::Abort);
        let plan = ledger.rig.ask(NODE);
        let response = ledger.response(&plan);
        ledger.rig.answer(&plan, response);
    }
    assert_eq!(ledger.rig.fetcher.budget().used(), 0);
    let fetched = ledger.rig.fetcher.poll_batch().unwrap();
    assert!(fetched.chunk.batches.is_empty());
    assert_eq!(span(&fetched), (0, 0..150));
    assert!(ledger.rig.fetcher.poll_batch().is_none());
}

/// A commit behind a marker that carried the epoch of the records before it would look truncated to the next owner.
#[test]
fn the_leader_epoch_of_what_was_left_out_is_known_too() {
    let mut ledger = Ledger::new(IsolationLevel::ReadCommitted);
    ledger.send(A, "a");
    ledger.end_in_epoch(A, ControlKind::Commit, 4);
    let plan = ledger.rig.ask(NODE);
    let response = ledger.response(&plan);
    ledger.rig.answer(&plan, response);
    ledger.end_in_epoch(B, ControlKind::Commit, 4);
    ledger.end_in_epoch(B, ControlKind::Commit, 6);
    let plan = ledger.rig.ask(NODE);
    let response = ledger.response(&plan);
    ledger.rig.answer(&plan, response);
    let chunk = ledger.rig.fetcher.poll_batch().unwrap().chunk;
    let epochs: Vec<_> = chunk.epochs.iter().map(|(from, epoch)| (from.0, epoch.0)).collect();
    assert_eq!((epochs, chunk.leader_epoch), (vec![(0, 1), (2, 4), (4, 6)], Some(LeaderEpoch(6))));
}

#[test]
fn damage_in_what_is_left_out_is_damage_all_the_same() {
    for damaged in [0, 1] {
        let mut ledger = Ledger::new(IsolationLevel::ReadCommitted);
        ledger.send(A, "void");
        ledger.end(A, ControlKind::Abort);
        ledger.send(A, "a");
        let mut bytes = BytesMut::from(&ledger.rig.logs[&tp(0)].batches[damaged][..]);
        *bytes.last_mut().unwrap() ^= 1;
        ledger.rig.logs.get_mut(&tp(0)).unwrap().batches[damaged] = bytes.freeze();
        let plan = ledger.rig.ask(NODE);
        let response = ledger.response(&plan);
        ledger.rig.answer(&plan, response);
        let events = ledger.rig.events();
        assert!(events.len() == 1 && events[0].starts_with("Malformed"), "{events:?}");
    }
}

/// Transactions at random, read from anywhere in requests of any size.
#[derive(Debug, Clone)]
enum Step {
    Write { producer: i64, begun: bool },
    End { producer: i64, commit: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let producer = 1..4_i64;
    prop_oneof![
        3 => (producer.clone(), prop::bool::weighted(0.8)).prop_map(|(producer, begun)| Step::Write { producer, begun }),
        2 => (producer, any::<bool>()).prop_map(|(producer, commit)| Step::End { producer, commit }),
    ]
}

proptest! {
    #[test]
    fn exactly_the_decided_and_committed_is_read(
        steps in prop::collection::vec(step(), 1..60),
        from in 0..100_usize,
        request in 100..1_000_usize,
    ) {
        let mut ledger = Ledger::new(IsolationLevel::ReadCommitted);
        ledger.rig.fetcher = Fetcher::new(FetchConfig { max_partition_bytes: request, ..small() });
        // Each record's offset, and whether it counts once its producer's transaction is decided.
        let mut records: Vec<(i64, Option<bool>)> = Vec::new();
        let mut pending: HashMap<i64, Vec<usize>> = HashMap::new();
        let end_all = (1..4).map(|producer| Step::End { producer, commit: producer % 2 == 0 });
        for step in steps.into_iter().chain(end_all) {
            match step {
                Step::Write { producer, begun } => {
                    // Kafka does not mix both within a transaction.
                    let begun = begun || pending.contains_key(&producer);
                    let at = ledger.rig.logs[&tp(0)].end;
                    ledger.write(producer, &at.to_string(), 1, Codec::None, begun);
                    if begun {
                        pending.entry(producer).or_default().push(records.len());
                    }
                    records.push((at, (!begun).then_some(true)));
                }
                Step::End { producer, commit } => {
                    for index in pending.remove(&producer).unwrap_or_default() {
                        records[index].1 = Some(commit);
                    }
                    ledger.end(producer, if commit { ControlKind::Commit } else { ControlKind::Abort });
                }
            }
        }
        let end = ledger.rig.logs[&tp(0)].end;
        let from = end * from as i64 / 100;
        ledger.rig.fetcher.assign(start(0, from, None));
        ledger.rig.update();
        let expected: Vec<_> = records
            .iter()
            .filter(|(at, counts)| *at >= from && counts.unwrap())
            .map(|(at, _)| at.to_string())
            .collect();
        prop_assert_eq!(ledger.read(), (expected, end));
    }
}
