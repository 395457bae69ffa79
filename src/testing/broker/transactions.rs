//! The transaction coordinator: who writes atomically, to what, and how it ends (KIP-98, KIP-447, KIP-890).
//!
//! ```text
//!            first partition or offset            EndTxn              every marker written
//!   Empty ─────────────────────────────► Ongoing ────────► Preparing ─────────────────────► Complete
//!     ▲                                     │ │ InitProducerId, or time over: fence, abort     │ │
//!     │                                     │ └─────────────────────► Preparing                │ │
//!     └── InitProducerId ───────────────────┼──────────────────────────────────────────────────┘ │
//!                                           └────────────────────────────────────────────────────┘
//! ```
//!
//! Markers are written as the end is decided, where partitions have leaders whose in-sync replicas all follow; what has none gets its
//! marker when it has one again, and until then the transaction is [preparing](State::Preparing) and answers `CONCURRENT_TRANSACTIONS`.
//! The second version (KIP-890 part 2) is told by EndTxn from version 5 on: each end bumps the epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::call::Call;
use super::core::Core;
use super::groups::Committed;
use crate::protocol::batch::{ControlKind, ProducerStamp};
use crate::protocol::error_code::ErrorCode;
use crate::record::TopicPartition;

/// All transactional ids.
#[derive(Debug, Default)]
pub(super) struct Transactions(BTreeMap<String, Transaction>);

/// One transactional id.
#[derive(Debug)]
pub(super) struct Transaction {
    producer_id: i64,
    epoch: i16,
    /// The epoch before the last bump, for requests that are sent again.
    last_epoch: i16,
    /// The id before this one, whose epochs were used up.
    previous_id: i64,
    /// The id that wrote what is being decided.
    wrote_as: i64,
    timeout: Duration,
    state: State,
    partitions: BTreeSet<TopicPartition>,
    groups: BTreeSet<String>,
    /// When it is aborted.
    expires: Option<Instant>,
}

/// What a transaction is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Empty,
    Ongoing,
    /// Decided; markers are missing.
    Preparing(Outcome),
    Complete(Outcome),
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Commit,
    Abort,
}

/// A producer of transactions, as a request names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) id: i64,
    pub(super) epoch: i16,
}

impl Transactions {
    /// When the next transaction is out of time, or a missing marker is tried again.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.values().filter_map(|transaction| transaction.expires).min()
    }

    /// What is known of an id: its producer, and what it is at.
    pub(super) fn get(&self, id: &str) -> Option<(Producer, State)> {
        self.0.get(id).map(|it| (Producer { id: it.producer_id, epoch: it.epoch }, it.state))
    }

    /// Every transactional id, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Transaction)> {
        self.0.iter()
    }

    fn of_producer(&mut self, id: &str, producer: Producer) -> Result<&mut Transaction, ErrorCode> {
        let transaction = self.0.get_mut(id).ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
        if transaction.producer_id != producer.id {
            return Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
        }
        if transaction.epoch != producer.epoch {
            return Err(ErrorCode::PRODUCER_FENCED);
        }
        match transaction.state {
            State::Preparing(_) => Err(ErrorCode::CONCURRENT_TRANSACTIONS),
            _ => Ok(transaction),
        }
    }
}

impl Transaction {
    /// The producer that has the id now.
    pub(super) fn producer(&self) -> Producer {
        Producer { id: self.producer_id, epoch: self.epoch }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The partitions of its open transaction.
    pub(super) fn partitions(&self) -> impl Iterator<Item = &TopicPartition> {
        self.partitions.iter()
    }

    /// When its open transaction began.
    pub(super) fn began(&self) -> Option<Instant> {
        self.expires.filter(|_| self.state == State::Ongoing).and_then(|expires| expires.checked_sub(self.timeout))
    }

    /// Its state by Kafka's name.
    pub(super) fn state_name(&self) -> &'static str {
        match self.state {
            State::Empty => "Empty",
            State::Ongoing => "Ongoing",
            State::Preparing(Outcome::Commit) => "PrepareCommit",
            State::Preparing(Outcome::Abort) => "PrepareAbort",
            State::Complete(Outcome::Commit) => "CompleteCommit",
            State::Complete(Outcome::Abort) => "CompleteAbort",
        }
    }

    /// It has written something.
    fn go_on(&mut self, now: Instant) {
        if self.state != State::Ongoing {
            self.state = State::Ongoing;
            self.expires = Some(now + self.timeout);
        }
    }

    fn check_expected(&self, expected: Producer) -> Result<(), ErrorCode> {
        let exhausted = expected.id == self.previous_id && expected.epoch >= EPOCHS - 1;
        if expected.id != self.producer_id && !exhausted { Err(ErrorCode::PRODUCER_FENCED) } else { Ok(()) }
    }
}

/// What requests do.
impl Core {
    /// Checks that this node coordinates the transactional id.
    ///
    /// # Errors
    /// `INVALID_REQUEST` for an empty one, `NOT_COORDINATOR`.
    pub(super) fn check_transaction_coordinator(&self, call: &Call, id: &str) -> Result<(), ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if self.coordinator_of(id) == Some(call.node) { Ok(()) } else { Err(ErrorCode::NOT_COORDINATOR) }
    }

    /// InitProducerId of a transactional producer: fences what went before, and aborts what it left open.
    pub(super) fn init_transactions(
        &mut self,
        id: &str,
        timeout: Duration,
        expected: Option<Producer>,
        now: Instant,
    ) -> Result<Producer, ErrorCode> {
        if timeout.is_zero() || timeout > self.settings.max_transaction_timeout {
            return Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT);
        }
        let Some(transaction) = self.transactions.0.get_mut(id) else { return self.new_transactional_id(id, timeout) };
        if let Some(expected) = expected {
            transaction.check_expected(expected)?;
        }
        match transaction.state {
            State::Preparing(_) => return Err(ErrorCode::CONCURRENT_TRANSACTIONS),
            State::Ongoing => {
                if expected.is_some_and(|expected| expected.epoch != transaction.epoch) {
                    return Err(ErrorCode::PRODUCER_FENCED);
                }
                self.fence_and_abort(id, now);
                return Err(ErrorCode::CONCURRENT_TRANSACTIONS);
            }
            State::Empty | State::Complete(_) => {}
        }
        transaction.timeout = timeout;
        match expected.map(|expected| expected.epoch) {
            // Asked again: the answer was lost.
            Some(epoch) if epoch != transaction.epoch && epoch == transaction.last_epoch => {}
            Some(epoch) if epoch != transaction.epoch && transaction.producer_id == expected.map_or(-1, |it| it.id) => {
                return Err(ErrorCode::PRODUCER_FENCED);
            }
            Some(_) => self.bump(id),
            None => self.bump_for_another(id),
        }
        let transaction = self.transactions.0.get_mut(id).ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
        (transaction.state, transaction.expires) = (State::Empty, None);
        Ok(Producer { id: transaction.producer_id, epoch: transaction.epoch })
    }

    fn new_transactional_id(&mut self, id: &str, timeout: Duration) -> Result<Producer, ErrorCode> {
        if self.transactions.0.len() >= self.settings.max_transactional_ids {
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        let producer_id = self.new_producer_id();
        let transaction = Transaction {
            producer_id,
            epoch: 0,
            last_epoch: -1,
            previous_id: -1,
            wrote_as: -1,
            timeout,
            state: State::Empty,
            partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
            expires: None,
        };
        self.transactions.0.insert(id.to_owned(), transaction);
        Ok(Producer { id: producer_id, epoch: 0 })
    }

    /// The next epoch, or a new producer id once they are used up.
    fn bump(&mut self, id: &str) {
        let fresh = self.new_producer_id();
        let Some(transaction) = self.transactions.0.get_mut(id) else { return };
        if transaction.epoch >= EPOCHS - 1 {
            transaction.previous_id = transaction.producer_id;
            transaction.producer_id = fresh;
            (transaction.epoch, transaction.last_epoch) = (0, -1);
        } else {
            transaction.last_epoch = transaction.epoch;
            transaction.epoch += 1;
        }
    }

    /// The next epoch, for who did not have the one before: who had it does not get the new one by asking again.
    fn bump_for_another(&mut self, id: &str) {
        self.bump(id);
        if let Some(transaction) = self.transactions.0.get_mut(id) {
            transaction.last_epoch = -1;
        }
    }

    /// AddPartitionsToTxn: these partitions may be written to.
    pub(super) fn add_to_transaction(
        &mut self,
        id: &str,
        producer: Producer,
        partitions: impl IntoIterator<Item = TopicPartition>,
        now: Instant,
    ) -> Result<(), ErrorCode> {
        let transaction = self.transactions.of_producer(id, producer)?;
        transaction.go_on(now);
        transaction.partitions.extend(partitions);
        Ok(())
    }

    /// AddOffsetsToTxn: offsets of this group may be committed.
    pub(super) fn add_group_to_transaction(
        &mut self,
        id: &str,
        producer: Producer,
        group: &str,
        now: Instant,
    ) -> Result<(), ErrorCode> {
        let transaction = self.transactions.of_producer(id, producer)?;
        transaction.go_on(now);
        transaction.groups.insert(group.to_owned());
        Ok(())
    }

    /// Whether a partition was added to the producer's open transaction: what a leader asks before it appends.
    pub(super) fn verify_partition(
        &mut self,
        id: &str,
        producer: Producer,
        partition: &TopicPartition,
    ) -> Result<(), ErrorCode> {
        let transaction = self.transactions.of_producer(id, producer).map_err(as_a_leader_says)?;
        let added = transaction.state == State::Ongoing && transaction.partitions.contains(partition);
        if added { Ok(()) } else { Err(ErrorCode::INVALID_TXN_STATE) }
    }

    /// The same of a group.
    pub(super) fn verify_group(&mut self, id: &str, producer: Producer, group: &str) -> Result<(), ErrorCode> {
        let transaction = self.transactions.of_producer(id, producer).map_err(as_a_leader_says)?;
        let added = transaction.state == State::Ongoing && transaction.groups.contains(group);
        if added { Ok(()) } else { Err(ErrorCode::INVALID_TXN_STATE) }
    }

    /// EndTxn. `bumps` is the second version: the producer goes on with what is answered.
    pub(super) fn end_transaction(
        &mut self,
        id: &str,
        producer: Producer,
        outcome: Outcome,
        bumps: bool,
        now: Instant,
    ) -> Result<Producer, ErrorCode> {
        let transaction = self.transactions.0.get(id).ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
        let again = bumps
            && (producer.id == transaction.producer_id && transaction.epoch == producer.epoch.saturating_add(1)
                || producer.id == transaction.previous_id && producer.epoch >= EPOCHS - 1 && transaction.epoch == 0);
        if producer.id != transaction.producer_id && !again {
            return Err(ErrorCode::INVALID_PRODUCER_ID_MAPPING);
        }
        if producer.epoch != transaction.epoch && !again {
            return Err(ErrorCode::PRODUCER_FENCED);
        }
        let own = Producer { id: transaction.producer_id, epoch: transaction.epoch };
        match transaction.state {
            State::Ongoing if again => return Err(ErrorCode::PRODUCER_FENCED),
            State::Ongoing => {}
            State::Preparing(decided) if decided == outcome => return Err(ErrorCode::CONCURRENT_TRANSACTIONS),
            State::Complete(decided) if decided == outcome && (again || !bumps) => return Ok(own),
            // Nothing was written, as far as is known: an abort makes sure of it by a new epoch.
            State::Empty | State::Complete(_) if bumps && !again && outcome == Outcome::Abort => {}
            _ => return Err(ErrorCode::INVALID_TXN_STATE),
        }
        if bumps {
            self.bump(id);
        }
        self.decide(id, own, outcome, now);
        let (ended, _) = self.transactions.get(id).ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
        Ok(ended)
    }

    /// A transaction whose producer is gone: a new epoch, and what it wrote is void.
    fn fence_and_abort(&mut self, id: &str, now: Instant) {
        let Some((before, _)) = self.transactions.get(id) else { return };
        self.bump_for_another(id);
        self.decide(id, before, Outcome::Abort, now);
    }

    fn decide(&mut self, id: &str, before: Producer, outcome: Outcome, now: Instant) {
        if let Some(transaction) = self.transactions.0.get_mut(id) {
            transaction.state = State::Preparing(outcome);
            transaction.wrote_as = before.id;
            transaction.expires = None;
        }
        self.write_markers(id, now);
    }

    /// Writes the markers that are missing where it can.
    fn write_markers(&mut self, id: &str, now: Instant) {
        let Some(transaction) = self.transactions.0.get_mut(id) else { return };
        let State::Preparing(outcome) = transaction.state else { return };
        let producer_id = transaction.wrote_as;
        let epoch = if transaction.producer_id == producer_id { transaction.epoch } else { EPOCHS };
        let (partitions, groups) =
            (std::mem::take(&mut transaction.partitions), std::mem::take(&mut transaction.groups));
        let stamp = ProducerStamp { id: producer_id, epoch, base_sequence: -1 };
        let kind = if outcome == Outcome::Commit { ControlKind::Commit } else { ControlKind::Abort };
        let missing = partitions.into_iter().filter(|partition| !self.write_marker(partition, stamp, kind, now));
        let missing: BTreeSet<TopicPartition> = missing.collect();
        for group in groups {
            self.groups.end_transaction(&group, producer_id, outcome == Outcome::Commit);
        }
        if let Some(transaction) = self.transactions.0.get_mut(id) {
            if missing.is_empty() {
                (transaction.state, transaction.expires) = (State::Complete(outcome), None);
            } else {
                (transaction.partitions, transaction.expires) = (missing, Some(now + MARKER_RETRY));
            }
        }
        self.changed();
    }

    /// Whether a partition needs no marker any more.
    fn write_marker(&mut self, at: &TopicPartition, stamp: ProducerStamp, kind: ControlKind, now: Instant) -> bool {
        let written = self.with_partition(&at.topic, at.partition, now, |partition, _, around| {
            partition.append_marker(stamp, kind, COORDINATOR_EPOCH, around)
        });
        // A topic that is gone needs none, and a newer epoch has its own.
        !matches!(written, Ok(Err(ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::NOT_ENOUGH_REPLICAS)))
    }

    /// Aborts what is out of time, and writes the markers that were missing.
    pub(super) fn handle_transaction_timeout(&mut self, now: Instant) {
        let due = self.transactions.0.iter().filter(|(_, it)| it.expires.is_some_and(|at| at <= now));
        let due: Vec<(String, State)> = due.map(|(id, it)| (id.clone(), it.state)).collect();
        for (id, state) in due {
            match state {
                State::Ongoing => self.fence_and_abort(&id, now),
                _ => self.write_markers(&id, now),
            }
        }
    }
}

/// Offsets that a transaction may yet take back.
#[derive(Debug, Default)]
pub(super) struct PendingOffsets(BTreeMap<i64, BTreeMap<TopicPartition, Committed>>);

impl PendingOffsets {
    pub(super) fn insert(&mut self, producer_id: i64, partition: TopicPartition, committed: Committed) {
        self.0.entry(producer_id).or_default().insert(partition, committed);
    }

    /// Whether an open transaction has an offset of this partition.
    pub(super) fn holds(&self, partition: &TopicPartition) -> bool {
        self.0.values().any(|of| of.contains_key(partition))
    }

    pub(super) fn take(&mut self, producer_id: i64) -> BTreeMap<TopicPartition, Committed> {
        self.0.remove(&producer_id).unwrap_or_default()
    }

    pub(super) fn forget_topic(&mut self, topic: &str) {
        for of in self.0.values_mut() {
            of.retain(|partition, _| *partition.topic != *topic);
        }
    }
}

/// A leader tells a fenced producer with its older code (KIP-588).
fn as_a_leader_says(code: ErrorCode) -> ErrorCode {
    if code == ErrorCode::PRODUCER_FENCED { ErrorCode::INVALID_PRODUCER_EPOCH } else { code }
}

/// What APIs before KIP-588 say of a fenced producer.
pub(super) fn before_fencing(code: ErrorCode, knows_fencing: bool) -> ErrorCode {
    if knows_fencing { code } else { as_a_leader_says(code) }
}

/// What is said of a transaction that does not hold what is written, to clients that know to abort then (KIP-890).
pub(super) fn abortable(code: ErrorCode, knows: bool) -> ErrorCode {
    if knows && code == ErrorCode::INVALID_TXN_STATE { ErrorCode::TRANSACTION_ABORTABLE } else { code }
}

/// The last epoch of a producer id, kept for fencing: a client gets none beyond the one before.
const EPOCHS: i16 = i16::MAX;
/// There is one coordinator, ever.
pub(super) const COORDINATOR_EPOCH: i32 = 0;
const MARKER_RETRY: Duration = Duration::from_millis(100);

/// Every name of a state that Kafka has.
pub(super) const STATE_NAMES: &[&str] = &[
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];
