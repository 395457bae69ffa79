use std::collections::HashMap;

use super::*;
use crate::error::WriteOutcome;

/// A machine, and what a coordinator and a producer say to it, in virtual time.
struct Rig {
    now: Instant,
    machine: Transactions,
    orders: Vec<Order>,
    version: Version,
    next_epoch: i16,
}

impl Rig {
    fn new(version: Version) -> Self {
        let backoff = ExponentialFullJitter { first: Duration::from_millis(100), max: Duration::from_secs(1) };
        let machine = Transactions::new("transfers".to_owned(), backoff, Box::new(|| 1.0));
        Self { now: Instant::now(), machine, orders: Vec::new(), version, next_epoch: 0 }
    }

    /// One that has begun a transaction.
    fn open(version: Version) -> Self {
        let mut rig = Self::new(version);
        rig.init();
        rig.begin();
        rig
    }

    fn init(&mut self) {
        assert!(matches!(self.call().ask, Ask::Init));
        self.reply(ErrorCode::NONE);
    }

    fn begin(&mut self) {
        assert!(self.machine.begin().unwrap());
        self.take_orders();
    }

    fn call(&mut self) -> Call {
        self.maybe_call().expect("a request")
    }

    /// The next request, after the wait before it if there is one.
    fn maybe_call(&mut self) -> Option<Call> {
        if let Some(at) = self.machine.poll_timeout() {
            self.now = self.now.max(at);
        }
        self.machine.poll_call(self.now)
    }

    fn reply(&mut self, code: ErrorCode) {
        let init_or_two =
            code.is_ok() && !matches!(self.machine.asked, Some(Ask::End { .. }) if self.version == Version::One);
        let producer = init_or_two.then(|| {
            self.next_epoch += 1;
            ProducerId { id: 7, epoch: self.next_epoch - 1 }
        });
        let reply = Reply { seen: Some(self.version), codes: vec![code], producer };
        self.machine.handle_reply(self.now, reply);
        self.take_orders();
    }

    fn lose(&mut self) {
        self.machine.handle_no_reply(self.now, NoReply::Unanswered);
        self.take_orders();
    }

    fn take_orders(&mut self) {
        self.orders.extend(std::iter::from_fn(|| self.machine.poll_order()));
    }

    fn enlist(&mut self) {
        let name = TopicPartition::new("t", 0);
        self.machine.handle_wanted([(PartitionIndex(0), name)]);
        assert!(matches!(self.call().ask, Ask::AddPartitions(_)));
        self.reply(ErrorCode::NONE);
        assert!(self.orders.contains(&Order::Enlisted(vec![PartitionIndex(0)])));
    }

    /// Records of the transaction were sent, and are written.
    fn written(&mut self) {
        if self.version == Version::One {
            self.enlist();
        }
    }

    fn end(&mut self, commit: bool) {
        self.machine.end(commit);
        assert!(self.maybe_call().is_none(), "records are still on their way");
        self.machine.handle_quiet(true);
    }
}

fn offsets() -> Vec<TransactionOffset> {
    let partition = TopicPartition::new("in", 0);
    vec![TransactionOffset { partition, offset: Offset(3), leader_epoch: None, note: String::new() }]
}

fn not_written(code: ErrorCode) -> Arc<ProduceError> {
    let kind = ProduceErrorKind::Refused { code, message: None };
    let outcome = WriteOutcome::NotWritten;
    Arc::new(ProduceError { topic: "t".into(), partition: Some(0), outcome, kind, source: None })
}

const BOTH: [Version; 2] = [Version::One, Version::Two];

#[test]
fn a_transaction_is_committed_in_its_epoch_and_the_next_has_another_by_version_two() {
    for version in BOTH {
        let mut rig = Rig::open(version);
        rig.written();
        rig.end(true);
        let call = rig.call();
        assert!(matches!(call.ask, Ask::End { commit: true }));
        assert_eq!(call.producer, Some(ProducerId { id: 7, epoch: 0 }));
        rig.reply(ErrorCode::NONE);
        assert!(matches!(rig.machine.ended(), Some(Ok(Ended::Committed))));
        rig.orders.clear();
        rig.begin();
        let epoch = i16::from(version == Version::Two);
        let producer = ProducerId { id: 7, epoch };
        assert_eq!(rig.orders, [Order::Begin { serial: 2, producer, implicit: version == Version::Two }]);
    }
}

#[test]
fn a_transaction_of_nothing_is_not_told_to_the_coordinator() {
    for (version, commit) in BOTH.into_iter().flat_map(|version| [(version, true), (version, false)]) {
        let mut rig = Rig::open(version);
        rig.machine.end(commit);
        rig.machine.handle_quiet(false);
        assert!(rig.maybe_call().is_none());
        let ended = if commit { Ended::Committed } else { Ended::Aborted };
        assert_eq!(rig.machine.ended().unwrap().unwrap(), ended);
    }
}

#[test]
fn by_version_one_groups_are_added_once_and_by_version_two_by_their_offsets() {
    for version in BOTH {
        let mut rig = Rig::open(version);
        for round in 0..2 {
            let ticket = rig.machine.add_offsets(GroupMetadata::without_member("g"), offsets()).unwrap();
            if version == Version::One && round == 0 {
                assert!(matches!(rig.call().ask, Ask::AddOffsets { .. }));
                rig.reply(ErrorCode::NONE);
            }
            assert!(matches!(rig.call().ask, Ask::CommitOffsets(_)));
            assert!(rig.machine.has_offsets(ticket));
            rig.reply(ErrorCode::NONE);
            assert!(!rig.machine.has_offsets(ticket));
        }
        rig.machine.end(true);
        rig.machine.handle_quiet(false);
        assert!(matches!(rig.call().ask, Ask::End { commit: true }), "offsets alone are a transaction");
    }
}

/// EndTxn overtook a TxnOffsetCommit that was still on its way (krafka 0.17.0).
#[test]
fn the_end_waits_for_offsets_on_their_way_and_for_records() {
    for version in BOTH {
        let mut rig = Rig::open(version);
        rig.written();
        rig.machine.add_offsets(GroupMetadata::without_member("g"), offsets()).unwrap();
        if version == Version::One {
            rig.call();
            rig.reply(ErrorCode::NONE);
        }
        assert!(matches!(rig.call().ask, Ask::CommitOffsets(_)));
        rig.machine.end(true);
        rig.machine.handle_quiet(true);
        assert!(rig.maybe_call().is_none());
        rig.reply(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
        assert!(matches!(rig.call().ask, Ask::CommitOffsets(_)), "again, and still before the end");
        rig.reply(ErrorCode::NONE);
        assert!(matches!(rig.call().ask, Ask::End { commit: true }));
    }
}

/// A commit that was not answered was followed by an abort, or by the next transaction, and met that (KAFKA-17754).
#[test]
fn a_commit_that_was_not_answered_is_only_ever_followed_by_the_same_commit() {
    for version in BOTH {
        let mut rig = Rig::open(version);
        rig.written();
        rig.end(true);
        for _ in 0..5 {
            assert!(matches!(rig.call().ask, Ask::End { commit: true }));
            rig.lose();
            let told = rig.machine.give_up("the commit", Duration::from_secs(60));
            assert_eq!(told.outcome, WriteOutcome::PossiblyWritten);
            assert!(!rig.machine.begin().unwrap() && rig.machine.ended().is_none());
        }
        assert!(matches!(rig.call().ask, Ask::End { commit: true }));
        rig.reply(ErrorCode::CONCURRENT_TRANSACTIONS);
        rig.call();
        rig.reply(ErrorCode::NONE);
        assert!(matches!(rig.machine.ended(), Some(Ok(Ended::Committed))));
        // By version 1 the tries that are still on their way belong to this epoch.
        assert_eq!(rig.machine.begin().unwrap(), version == Version::Two);
        if version == Version::One {
            let call = rig.call();
            assert!(matches!(call.ask, Ask::Init) && call.producer.is_some(), "{call:?}");
            rig.reply(ErrorCode::NONE);
            rig.begin();
        }
    }
}

/// A coordinator that loses its partition while it waits for the replicas of an end that is written answers as one that never was, or as
/// one that loads again (Kafka's `TransactionStateManager.appendTransactionToLog`): a commit was then aborted, and told as not made.
#[test]
fn a_commit_that_a_coordinator_refused_as_it_lost_its_place_may_have_been_made() {
    for code in
        [ErrorCode::NOT_COORDINATOR, ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS]
    {
        let mut rig = Rig::open(Version::Two);
        rig.written();
        rig.end(true);
        assert!(matches!(rig.call().ask, Ask::End { commit: true }));
        rig.reply(code);
        let told = rig.machine.give_up("the commit", Duration::from_secs(60));
        assert_eq!(told.outcome, WriteOutcome::PossiblyWritten, "{code:?}");
        assert!(matches!(rig.call().ask, Ask::End { commit: true }), "{code:?}");
    }
}

#[test]
fn a_commit_that_has_not_left_becomes_an_abort_when_its_time_is_up() {
    let mut rig = Rig::open(Version::Two);
    rig.machine.end(true);
    let told = rig.machine.give_up("the commit", Duration::from_secs(60));
    assert_eq!(told.outcome, WriteOutcome::NotWritten);
    rig.take_orders();
    assert!(rig.orders.contains(&Order::Doom));
    rig.machine.handle_quiet(true);
    assert!(matches!(rig.call().ask, Ask::End { commit: false }));
}

/// Records that timed out locally did not fail their transaction (librdkafka 1.5.2, 1.7.0).
#[test]
fn a_record_that_was_not_written_makes_the_commit_an_abort() {
    for late in [false, true] {
        for version in BOTH {
            let mut rig = Rig::open(version);
            rig.written();
            if late {
                rig.machine.end(true);
            }
            rig.machine.handle_send_failed(&not_written(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
            rig.take_orders();
            assert!(rig.orders.contains(&Order::Doom));
            rig.machine.end(true);
            rig.machine.handle_quiet(true);
            assert!(matches!(rig.call().ask, Ask::End { commit: false }));
            rig.reply(ErrorCode::NONE);
            let error = rig.machine.ended().unwrap().unwrap_err();
            assert!(matches!(error.kind, TransactionErrorKind::NotWritten { .. }) && !error.is_fatal());
            // Numbers that were given and not written belong to the old epoch (librdkafka#3575: never bumped within).
            if version == Version::One {
                let call = rig.call();
                assert!(matches!(call.ask, Ask::Init) && call.producer.is_some());
                rig.reply(ErrorCode::NONE);
            }
            rig.begin();
        }
    }
}

#[test]
fn a_leader_that_says_fenced_ends_the_producer_and_one_that_says_old_epoch_the_transaction() {
    let mut rig = Rig::open(Version::Two);
    rig.machine.handle_send_failed(&not_written(ErrorCode::INVALID_PRODUCER_EPOCH));
    assert!(!rig.machine.failure().unwrap().is_fatal());
    let mut rig = Rig::open(Version::Two);
    rig.machine.handle_send_failed(&not_written(ErrorCode::PRODUCER_FENCED));
    assert!(matches!(rig.machine.failure().unwrap().kind, TransactionErrorKind::Fenced { .. }));
    assert!(rig.machine.begin().is_err());
}

#[test]
fn a_coordinator_that_says_fenced_ends_the_producer_whatever_was_asked() {
    for code in [ErrorCode::PRODUCER_FENCED, ErrorCode::INVALID_PRODUCER_EPOCH] {
        let mut rig = Rig::new(Version::Two);
        rig.call();
        rig.reply(code);
        assert!(rig.machine.is_ready().unwrap_err().is_fatal());

        for doubt in [false, true] {
            let mut rig = Rig::open(Version::Two);
            rig.end(true);
            rig.call();
            if doubt {
                rig.lose();
                rig.call();
            }
            rig.reply(code);
            let error = rig.machine.ended().unwrap().unwrap_err();
            assert!(error.is_fatal());
            let expected = if doubt { WriteOutcome::PossiblyWritten } else { WriteOutcome::NotWritten };
            assert_eq!(error.outcome, expected, "the lost try may have committed it");
            assert!(rig.maybe_call().is_none());
        }
    }
}

/// Offsets whose first try arrived late were committed with the next transaction, behind those that it had committed.
#[test]
fn an_offset_commit_that_may_still_arrive_meets_no_other_transaction() {
    for (version, lost, renewed) in
        [(Version::One, true, true), (Version::One, false, false), (Version::Two, true, false)]
    {
        let mut rig = Rig::open(version);
        rig.machine.add_offsets(GroupMetadata::without_member("g"), offsets()).unwrap();
        if version == Version::One {
            assert!(matches!(rig.call().ask, Ask::AddOffsets { .. }));
            rig.reply(ErrorCode::NONE);
        }
        assert!(matches!(rig.call().ask, Ask::CommitOffsets(_)));
        if lost {
            rig.lose();
            assert!(matches!(rig.call().ask, Ask::CommitOffsets(_)));
        }
        rig.reply(ErrorCode::NONE);
        rig.machine.end(true);
        rig.machine.handle_quiet(false);
        let end = rig.call();
        assert!(matches!(end.ask, Ask::End { commit: true }));
        rig.reply(ErrorCode::NONE);
        assert!(matches!(rig.machine.ended(), Some(Ok(Ended::Committed))));
        let next = rig.maybe_call();
        assert_eq!(
            next.map(|call| matches!(call.ask, Ask::Init)).unwrap_or(false),
            renewed,
            "{version:?}, lost: {lost}"
        );
        if version == Version::Two {
            assert_ne!(rig.machine.producer, end.producer, "each transaction has its epoch");
        }
    }
}

#[test]
fn a_refused_commit_is_aborted_and_the_next_transaction_begins() {
    let mut rig = Rig::open(Version::Two);
    rig.end(true);
    rig.call();
    rig.reply(ErrorCode::TRANSACTION_ABORTABLE);
    assert!(matches!(rig.call().ask, Ask::End { commit: false }));
    rig.reply(ErrorCode::NONE);
    assert_eq!(rig.machine.ended().unwrap().unwrap_err().code(), Some(ErrorCode::TRANSACTION_ABORTABLE));
    rig.begin();
}

#[test]
fn a_coordinator_that_knows_nothing_of_the_transaction_has_not_committed_it() {
    for code in [ErrorCode::INVALID_TXN_STATE, ErrorCode::INVALID_PRODUCER_ID_MAPPING] {
        for version in BOTH {
            let mut rig = Rig::open(version);
            rig.written();
            rig.end(true);
            rig.call();
            rig.reply(code);
            assert_eq!(rig.machine.ended().unwrap().unwrap_err().outcome, WriteOutcome::NotWritten);
            assert!(matches!(rig.call().ask, Ask::Init), "with another epoch");
            rig.reply(ErrorCode::NONE);
            rig.begin();
        }
    }
}

#[test]
fn a_coordinator_that_moved_or_died_is_looked_for_again() {
    let mut rig = Rig::new(Version::Two);
    rig.call();
    rig.reply(ErrorCode::NOT_COORDINATOR);
    assert_eq!(std::mem::take(&mut rig.orders), [Order::Forget { group: None }]);
    rig.call();
    rig.lose();
    assert_eq!(std::mem::take(&mut rig.orders), [Order::Forget { group: None }]);
    rig.init();
    rig.begin();
    rig.machine.add_offsets(GroupMetadata::without_member("g"), offsets()).unwrap();
    rig.orders.clear();
    rig.call();
    rig.reply(ErrorCode::NOT_COORDINATOR);
    assert_eq!(rig.orders, [Order::Forget { group: Some("g".to_owned()) }]);
}

/// A coordinator was killed, the first request to it had no answer, and those after it could not even be sent: the transaction asked
/// the dead one until it came back, though another had long taken its place.
#[test]
fn a_coordinator_that_nothing_can_be_sent_to_is_looked_for_again() {
    for version in BOTH {
        let mut rig = Rig::open(version);
        rig.written();
        rig.end(true);
        rig.take_orders();
        rig.orders.clear();
        for round in 0..3 {
            assert!(matches!(rig.call().ask, Ask::End { commit: true }), "{round}");
            rig.machine.handle_no_reply(rig.now, NoReply::NotSent);
            rig.take_orders();
            assert_eq!(std::mem::take(&mut rig.orders), [Order::Forget { group: None }], "{round}");
        }
        rig.call();
        rig.reply(ErrorCode::NONE);
        assert!(matches!(rig.machine.ended(), Some(Ok(Ended::Committed))));
    }
}

#[test]
fn a_cluster_that_runs_another_version_gets_another_epoch_before_the_next_transaction() {
    let mut rig = Rig::open(Version::One);
    rig.written();
    rig.end(true);
    rig.call();
    rig.version = Version::Two;
    let reply = Reply { seen: Some(Version::Two), codes: vec![ErrorCode::NONE], producer: None };
    rig.machine.handle_reply(rig.now, reply);
    assert!(matches!(rig.machine.ended(), Some(Ok(Ended::Committed))));
    assert!(!rig.machine.begin().unwrap());
    assert!(matches!(rig.call().ask, Ask::Init));
    rig.reply(ErrorCode::NONE);
    rig.begin();
}

/// Whatever answers come in whatever order: an EndTxn is never followed by the other kind while it may still be under way,
/// and nothing is added behind it.
#[test]
fn random_answers_never_change_an_end_in_doubt_nor_add_behind_it() {
    let codes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 14, 15, 16, 51, 90, 48, 49, 120, 7, -1, 53];
    for seed in 0..5_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let version = BOTH[random.usize(..2)];
        let mut rig = Rig::new(version);
        // By epoch: what was asked of EndTxn and may still be on its way.
        let mut in_doubt: HashMap<Option<i16>, bool> = HashMap::new();
        // By epoch: of which transaction an addition may still be on its way.
        let mut astray: HashMap<Option<i16>, u64> = HashMap::new();
        let mut ended = false;
        for _ in 0..100 {
            match random.u8(..8) {
                0 if rig.machine.is_decided() => ended &= !rig.machine.begin().unwrap_or(false),
                1 => rig.machine.handle_wanted([(PartitionIndex(random.usize(..3)), TopicPartition::new("t", 0))]),
                2 => drop(rig.machine.add_offsets(GroupMetadata::without_member("g"), offsets())),
                3 => {
                    ended |= matches!(rig.machine.state, State::Open);
                    rig.machine.end(random.bool());
                }
                4 if ended => rig.machine.handle_quiet(random.bool()),
                5 if random.u8(..4) == 0 => {
                    rig.machine.handle_send_failed(&not_written(ErrorCode::UNKNOWN_SERVER_ERROR))
                }
                6 if ended && random.u8(..4) == 0 => drop(rig.machine.give_up("it", Duration::ZERO)),
                _ => {
                    let Some(call) = rig.maybe_call() else { continue };
                    let epoch = call.producer.map(|producer| producer.epoch);
                    let serial = rig.machine.serial;
                    if !matches!(call.ask, Ask::Init) {
                        let of = astray.get(&epoch).copied().unwrap_or(serial);
                        assert_eq!(of, serial, "seed {seed}: an addition to the one before may arrive in this one");
                    }
                    if let Ask::End { commit } = call.ask {
                        assert!(ended);
                        let before = in_doubt.get(&epoch).copied().unwrap_or(commit);
                        assert_eq!(before, commit, "seed {seed}: an end that may be under way is asked otherwise");
                    } else if !matches!(call.ask, Ask::Init) {
                        assert!(!in_doubt.contains_key(&epoch), "seed {seed}: a transaction under a doubtful epoch");
                    }
                    match (random.u8(..5), &call.ask) {
                        (0, ask) => {
                            match ask {
                                Ask::Init => {}
                                Ask::End { commit } => drop(in_doubt.insert(epoch, *commit)),
                                _ => drop(astray.insert(epoch, serial)),
                            }
                            rig.lose();
                        }
                        (1, _) => rig.machine.handle_no_reply(rig.now, NoReply::NotSent),
                        _ => rig.reply(ErrorCode(codes[random.usize(..codes.len())])),
                    }
                }
            }
        }
    }
}

/// Found by the simulation: what was to be asked again was given up meanwhile, and the wait for it, long over, kept its task awake.
#[test]
fn a_wait_that_is_over_wakes_nobody_again() {
    let mut rig = Rig::open(Version::One);
    rig.machine.handle_wanted([(PartitionIndex(0), TopicPartition::new("t", 0))]);
    assert!(matches!(rig.call().ask, Ask::AddPartitions(_)));
    rig.reply(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    rig.machine.fail(TransactionErrorKind::Dropped);
    let over = rig.machine.poll_timeout().expect("a wait");
    assert!(rig.machine.poll_call(over - Duration::from_millis(1)).is_none());
    assert_eq!(rig.machine.poll_timeout(), Some(over), "not before it is over");
    assert!(rig.machine.poll_call(over).is_none(), "there is nothing to ask");
    assert_eq!(rig.machine.poll_timeout(), None);
}
