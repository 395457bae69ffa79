//! Transactions of one producer: who it is, what is part of the open one, how it ends.
//!
//! ```text
//!                  ┌──────────── needs another epoch ◄──────────┐
//!                  ▼                                            │
//!   new ──► Initializing ──► Ready ──begin──► Open ──end──► Draining ──► Ending ──► Ready
//!                  │                           │     all sends and offsets │ EndTxn
//!                  │                           │     answered              │
//!                  └──────── fenced, refused ──┴──────────► Over ◄─────────┘
//! ```
//!
//! One request to a coordinator is on its way at a time. Three rules keep transactions whole:
//!
//! - The state changes first: from `Draining` on nothing is added, and EndTxn leaves when every batch and every offset that
//!   was added is answered (the barrier that krafka 0.17.0 lacked).
//! - What was asked of EndTxn once is never asked otherwise: after a commit that was not answered comes the same commit
//!   again, until the coordinator says what became of it (KAFKA-17754).
//! - A request that is still somewhere on its way must not meet the next transaction: not an EndTxn, and nothing that adds
//!   to one, or the next would commit the offsets of the one before. By transaction version 2 (KIP-890) each has its own
//!   epoch. By version 1 the epoch is bumped before the next one begins, wherever an answer is missing.

mod error;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, TxnOffsetCommitRequest,
};

use self::verdict::{Asked, Verdict, ends_producer, verdict};
use crate::error::WriteOutcome;
use crate::machine::produce::{PartitionIndex, ProduceError, ProduceErrorKind, ProducerId};
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, Offset, TopicPartition};
use crate::retry::{Backoff, ExponentialFullJitter};

pub use self::error::{TransactionError, TransactionErrorKind};

/// The transactions of one transactional id, by one producer.
pub(crate) struct Transactions {
    id: String,
    backoff: ExponentialFullJitter,
    random: Box<dyn FnMut() -> f64 + Send>,
    state: State,
    /// Given out by the coordinator. Before the first, and for the first, there is none.
    producer: Option<ProducerId>,
    /// What the cluster runs, as the coordinator said last.
    seen: Version,
    /// What this epoch's transactions are written by.
    version: Version,
    asked: Option<Ask>,
    failures: u32,
    not_before: Option<Instant>,
    /// Counts transactions.
    serial: u64,
    open: Contents,
    last: Option<Result<Ended, TransactionError>>,
    orders: VecDeque<Order>,
    next_ticket: u64,
}

#[derive(Debug, Clone)]
enum State {
    /// An id and epoch are asked for; with the old ones, if there are any.
    Initializing,
    /// A transaction can begin.
    Ready,
    /// Records and offsets are added.
    Open,
    /// Nothing is added any more; what was is waited for.
    Draining { commit: bool },
    /// EndTxn. `doubt`: a try of it was not answered.
    Ending { commit: bool, doubt: bool },
    /// There will be no further transaction.
    Over(TransactionError),
}

/// What the open transaction consists of.
#[derive(Debug, Default)]
struct Contents {
    /// It can only be aborted.
    failure: Option<TransactionError>,
    /// Whether the coordinator may know of it.
    begun: bool,
    /// Whether a request that adds to it was not answered, so that it may still arrive.
    astray: bool,
    /// Partitions that wait to become part of it.
    wanted: BTreeMap<PartitionIndex, TopicPartition>,
    offsets: VecDeque<OffsetCommit>,
    /// Groups whose offsets are part of it.
    groups: BTreeSet<String>,
    /// Once everything of it that the producer had is answered: whether it sent any of it.
    quiet: Option<bool>,
}

/// How transactions are written (feature `transaction.version`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// Partitions and groups are added by requests of their own (KIP-98).
    One,
    /// They are added by what is written to them, and each transaction has its epoch (KIP-890).
    Two,
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// All of it is visible.
    Committed,
    /// None of it is, and none will be.
    Aborted,
}

/// A member of a consumer group, as it is told with offsets that are committed in a transaction (KIP-447): the group takes
/// them only from who has the partitions now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupMetadata {
    /// The group.
    pub group: String,
    /// The generation; of a group of the new protocol (KIP-848) the member's epoch.
    pub generation: i32,
    /// The member's id.
    pub member_id: String,
    /// The member's own name in the group, if it has one.
    pub instance_id: Option<String>,
}

/// An offset to commit in a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransactionOffset {
    pub(crate) partition: TopicPartition,
    pub(crate) offset: Offset,
    pub(crate) leader_epoch: Option<LeaderEpoch>,
    pub(crate) note: String,
}

/// Offsets of one call.
#[derive(Debug, Clone)]
pub(crate) struct OffsetCommit {
    ticket: u64,
    pub(crate) group: GroupMetadata,
    pub(crate) offsets: Arc<[TransactionOffset]>,
}

/// One request to a coordinator.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) ask: Ask,
    /// By whom. Absent for the first InitProducerId, which fences whoever came before.
    pub(crate) producer: Option<ProducerId>,
    pub(crate) version: Version,
}

/// What is asked.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    Init,
    AddPartitions(BTreeMap<PartitionIndex, TopicPartition>),
    AddOffsets {
        group: String,
    },
    /// Of the group's coordinator; everything else is of the transaction's.
    CommitOffsets(OffsetCommit),
    End {
        commit: bool,
    },
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// What the cluster runs, where the broker that answered told.
    pub(crate) seen: Option<Version>,
    /// One a partition, where there are several.
    pub(crate) codes: Vec<ErrorCode>,
    /// Of InitProducerId, and of EndTxn by version 2.
    pub(crate) producer: Option<ProducerId>,
}

/// Why no answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// It was not sent, and may be later.
    NotSent,
    /// The coordinator may have acted.
    Unanswered,
    /// Brokers cannot be asked it.
    Unsupported,
    /// The client is closed.
    Closed,
}

/// What the driver does beside sending a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// To the producer: a transaction begins.
    Begin { serial: u64, producer: ProducerId, implicit: bool },
    /// To the producer: these are part of it.
    Enlisted(Vec<PartitionIndex>),
    /// To the producer: nothing more is added.
    End { abort: bool },
    /// To the producer: it can only be aborted.
    Doom,
    /// The coordinator that was asked is none any more. `group`: the group's.
    Forget { group: Option<String> },
}

impl Transactions {
    /// Asks for an id and epoch at once, and so fences whoever had the transactional id. `random` is uniform in `[0, 1)`.
    pub(crate) fn new(id: String, backoff: ExponentialFullJitter, random: Box<dyn FnMut() -> f64 + Send>) -> Self {
        Self {
            id,
            backoff,
            random,
            state: State::Initializing,
            producer: None,
            seen: Version::One,
            version: Version::One,
            asked: None,
            failures: 0,
            not_before: None,
            serial: 0,
            open: Contents::default(),
            last: None,
            orders: VecDeque::new(),
            next_ticket: 0,
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    // ---- what callers want

    /// Whether an id and epoch are known, so that a transaction can begin.
    ///
    /// # Errors
    /// When the producer is over.
    pub(crate) fn is_ready(&self) -> Result<bool, TransactionError> {
        match &self.state {
            State::Over(error) => Err(error.clone()),
            State::Ready => Ok(true),
            _ => Ok(false),
        }
    }

    /// Begins a transaction; `false` as long as the one before is not decided.
    ///
    /// # Errors
    /// When the producer is over.
    pub(crate) fn begin(&mut self) -> Result<bool, TransactionError> {
        if !self.is_ready()? {
            return Ok(false);
        }
        let Some(producer) = self.producer.filter(|_| self.seen == self.version) else {
            // The cluster runs another version now: the first transaction of that has an epoch of its own.
            self.state = State::Initializing;
            return Ok(false);
        };
        self.serial += 1;
        self.open = Contents::default();
        self.last = None;
        self.state = State::Open;
        let implicit = self.version == Version::Two;
        self.orders.push_back(Order::Begin { serial: self.serial, producer, implicit });
        Ok(true)
    }

    /// Why the open transaction can only be aborted, if it can.
    pub(crate) fn failure(&self) -> Option<TransactionError> {
        match &self.state {
            State::Over(error) => Some(error.clone()),
            _ => self.open.failure.clone(),
        }
    }

    /// The open transaction can only be aborted from here on.
    pub(crate) fn fail(&mut self, kind: TransactionErrorKind) {
        if matches!(self.state, State::Open | State::Draining { .. }) && self.open.failure.is_none() {
            self.open.failure = Some(TransactionError::new(&self.id, kind));
            self.open.wanted.clear();
            self.open.offsets.clear();
            self.orders.push_back(Order::Doom);
        }
    }

    /// A record of the transaction was not written.
    pub(crate) fn handle_send_failed(&mut self, error: &Arc<ProduceError>) {
        // What fails because the transaction had failed before says nothing new.
        if error.kind == ProduceErrorKind::Aborted {
            return;
        }
        let is_fatal = error.code().is_some_and(ends_producer);
        let kind = match error.code() {
            Some(code @ ErrorCode::PRODUCER_FENCED) => TransactionErrorKind::Fenced { code },
            _ => TransactionErrorKind::NotWritten { error: error.clone(), is_fatal },
        };
        if is_fatal && !matches!(self.state, State::Over(_)) {
            self.over(kind);
        } else {
            self.fail(kind);
        }
    }

    /// Adds offsets. A ticket for [`has_offsets`](Self::has_offsets).
    ///
    /// # Errors
    /// When the transaction can only be aborted.
    pub(crate) fn add_offsets(
        &mut self,
        group: GroupMetadata,
        offsets: Vec<TransactionOffset>,
    ) -> Result<u64, TransactionError> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        self.open.offsets.push_back(OffsetCommit { ticket, group, offsets: offsets.into() });
        Ok(ticket)
    }

    /// Whether these offsets are not answered yet.
    pub(crate) fn has_offsets(&self, ticket: u64) -> bool {
        self.open.offsets.iter().any(|commit| commit.ticket == ticket)
            || matches!(&self.asked, Some(Ask::CommitOffsets(commit)) if commit.ticket == ticket)
    }

    /// Ends the open transaction; [`ended`](Self::ended) says how. One that has failed is aborted.
    pub(crate) fn end(&mut self, commit: bool) {
        if !matches!(self.state, State::Open) {
            return;
        }
        let commit = commit && self.open.failure.is_none();
        if !commit {
            self.open.wanted.clear();
            self.open.offsets.clear();
        }
        self.state = State::Draining { commit };
        self.orders.push_back(Order::End { abort: !commit });
    }

    /// How the last transaction ended; `None` as long as it is not decided.
    ///
    /// # Errors
    /// When it could not be committed though that was asked, or its end will not be known.
    pub(crate) fn ended(&self) -> Option<Result<Ended, TransactionError>> {
        match &self.state {
            State::Open | State::Draining { .. } | State::Ending { .. } => None,
            State::Over(error) => Some(self.last.clone().unwrap_or_else(|| Err(error.clone()))),
            State::Initializing | State::Ready => self.last.clone(),
        }
    }

    /// The caller's time is up. A commit that has not left becomes an abort; one that has goes on.
    pub(crate) fn give_up(&mut self, what: &'static str, after: Duration) -> TransactionError {
        let error = TransactionError::new(&self.id, TransactionErrorKind::NotInTime { what, after });
        match self.state.clone() {
            State::Draining { commit: true } => {
                self.fail(error.kind.clone());
                error
            }
            State::Ending { commit: true, doubt } => {
                if doubt || self.asked.is_some() {
                    return error.with_outcome(WriteOutcome::PossiblyWritten);
                }
                self.open.failure = Some(error.clone());
                self.state = State::Ending { commit: false, doubt: false };
                error
            }
            _ => error,
        }
    }

    // ---- what the producer tells

    /// These partitions have records and are not part of the transaction.
    pub(crate) fn handle_wanted(&mut self, partitions: impl IntoIterator<Item = (PartitionIndex, TopicPartition)>) {
        if self.open.failure.is_none() && matches!(self.state, State::Open | State::Draining { commit: true }) {
            self.open.wanted.extend(partitions);
        }
    }

    /// Everything of the transaction that the producer had is answered. `sent`: some of it was sent.
    pub(crate) fn handle_quiet(&mut self, sent: bool) {
        self.open.quiet = Some(sent);
    }

    // ---- requests and answers

    /// The next request, if one is to leave now. To be called after everything else.
    pub(crate) fn poll_call(&mut self, now: Instant) -> Option<Call> {
        if self.asked.is_some() || self.not_before.is_some_and(|at| at > now) {
            return None;
        }
        // A wait that is over wakes nobody again, whether or not there is something to ask.
        self.not_before = None;
        self.drained();
        let ask = match &self.state {
            State::Initializing => Ask::Init,
            State::Open | State::Draining { .. } => self.next_addition()?,
            State::Ending { commit, .. } => Ask::End { commit: *commit },
            State::Ready | State::Over(_) => return None,
        };
        self.asked = Some(ask.clone());
        Some(Call { ask, producer: self.producer, version: self.version })
    }

    /// What to do beside. To be called until `None` after everything else.
    pub(crate) fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// When to ask [`poll_call`](Self::poll_call) again, if nothing else happens.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.not_before
    }

    /// Whether the last transaction is to be committed and that is not decided.
    pub(crate) fn may_commit(&self) -> bool {
        matches!(self.state, State::Draining { commit: true } | State::Ending { commit: true, .. })
    }

    /// Whether the last transaction is decided.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.state, State::Initializing | State::Ready | State::Over(_))
    }

    /// Nothing is to be decided, and no request is on its way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.asked.is_none() && matches!(self.state, State::Ready | State::Over(_))
    }

    /// The answer to the call.
    pub(crate) fn handle_reply(&mut self, now: Instant, reply: Reply) {
        let Some(ask) = self.asked.take() else { return };
        if let Some(seen) = reply.seen {
            self.seen = seen;
        }
        let asked = ask.kind();
        let Some(code) = worst(asked, &reply.codes) else { return self.again(now, ask, WriteOutcome::PossiblyWritten) };
        match verdict(asked, code) {
            Verdict::Done => self.done(ask, reply.producer),
            Verdict::Again => self.again(now, ask, WriteOutcome::PossiblyWritten),
            Verdict::Soon => {
                self.again(now, ask, WriteOutcome::NotWritten);
                self.not_before = Some(now + SOON);
            }
            Verdict::Elsewhere => {
                let group = match &ask {
                    Ask::CommitOffsets(commit) => Some(commit.group.group.clone()),
                    _ => None,
                };
                self.orders.push_back(Order::Forget { group });
                // Also a coordinator that lost its place after it had written says that it is none.
                self.again(now, ask, WriteOutcome::PossiblyWritten);
            }
            // A try that is still on its way may commit it yet: it is not asked otherwise.
            Verdict::Abort if self.is_commit_in_doubt() => self.again(now, ask, WriteOutcome::NotWritten),
            Verdict::Abort => self.refused(ask, code),
            Verdict::Renew => self.unknown_to_coordinator(ask, code),
            Verdict::Fenced => self.over(TransactionErrorKind::Fenced { code }),
            Verdict::Over => self.over(TransactionErrorKind::Refused { api: asked.api(), code, is_fatal: true }),
        }
    }

    /// No answer came to the call.
    pub(crate) fn handle_no_reply(&mut self, now: Instant, why: NoReply) {
        let Some(ask) = self.asked.take() else { return };
        match why {
            NoReply::NotSent | NoReply::Unanswered => {
                let group = match &ask {
                    Ask::CommitOffsets(commit) => Some(commit.group.group.clone()),
                    _ => None,
                };
                // A dead coordinator answers nothing, and soon nothing can be sent to it either: another has taken its place.
                self.orders.push_back(Order::Forget { group });
                let written = why == NoReply::Unanswered;
                let outcome = if written { WriteOutcome::PossiblyWritten } else { WriteOutcome::NotWritten };
                self.again(now, ask, outcome);
            }
            NoReply::Unsupported => self.over(TransactionErrorKind::Unsupported),
            NoReply::Closed => self.over(TransactionErrorKind::Closed),
        }
    }

    // ---- steps

    fn is_commit_in_doubt(&self) -> bool {
        matches!(self.state, State::Ending { commit: true, doubt: true })
    }

    /// The next thing to add to the transaction.
    fn next_addition(&mut self) -> Option<Ask> {
        if !self.open.wanted.is_empty() {
            self.open.begun = true;
            return Some(Ask::AddPartitions(std::mem::take(&mut self.open.wanted)));
        }
        let group = self.open.offsets.front()?.group.group.clone();
        self.open.begun = true;
        if self.version == Version::One && !self.open.groups.contains(&group) {
            return Some(Ask::AddOffsets { group });
        }
        self.open.offsets.pop_front().map(Ask::CommitOffsets)
    }

    /// Leaves `Draining` once nothing is left to wait for.
    fn drained(&mut self) {
        let (State::Draining { commit }, Some(sent)) = (&self.state, self.open.quiet) else { return };
        let commit = *commit && self.open.failure.is_none();
        if commit && !(self.open.wanted.is_empty() && self.open.offsets.is_empty()) {
            return;
        }
        if self.open.begun || sent {
            self.state = State::Ending { commit, doubt: false };
        } else {
            self.finish(commit, false);
        }
    }

    fn done(&mut self, ask: Ask, producer: Option<ProducerId>) {
        self.failures = 0;
        match ask {
            Ask::Init => {
                self.producer = producer.or(self.producer);
                self.version = self.seen;
                self.state = State::Ready;
            }
            Ask::AddPartitions(partitions) => {
                self.orders.push_back(Order::Enlisted(partitions.into_keys().collect()));
            }
            Ask::AddOffsets { group } => {
                self.open.groups.insert(group);
            }
            Ask::CommitOffsets(_) => {}
            Ask::End { commit } => {
                let doubt = matches!(self.state, State::Ending { doubt: true, .. });
                if self.version == Version::Two {
                    self.producer = producer.or(self.producer);
                }
                // By version 1 what is still on its way, and numbers that were given and not written, belong to this
                // epoch. By version 2 an answer without an epoch leaves the old one.
                let renew = match self.version {
                    Version::One => doubt || self.open.astray || !commit,
                    Version::Two => producer.is_none(),
                };
                self.finish(commit, renew);
            }
        }
    }

    fn finish(&mut self, commit: bool, renew: bool) {
        self.last = Some(match self.open.failure.clone() {
            _ if commit => Ok(Ended::Committed),
            Some(failure) => Err(failure),
            None => Ok(Ended::Aborted),
        });
        self.state = if renew { State::Initializing } else { State::Ready };
    }

    fn again(&mut self, now: Instant, ask: Ask, outcome: WriteOutcome) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + self.backoff.delay(self.failures, (self.random)()));
        if outcome == WriteOutcome::PossiblyWritten {
            match (&ask, &mut self.state) {
                (Ask::Init, _) => {}
                (Ask::End { .. }, State::Ending { doubt, .. }) => *doubt = true,
                _ => self.open.astray = true,
            }
        }
        // A transaction that will be aborted is added nothing more.
        if self.open.failure.is_some() || matches!(self.state, State::Draining { commit: false }) {
            return;
        }
        match ask {
            Ask::AddPartitions(partitions) => self.open.wanted.extend(partitions),
            Ask::CommitOffsets(commit) => self.open.offsets.push_front(commit),
            Ask::Init | Ask::AddOffsets { .. } | Ask::End { .. } => {}
        }
    }

    /// The transaction can only be aborted.
    fn refused(&mut self, ask: Ask, code: ErrorCode) {
        let kind = TransactionErrorKind::Refused { api: ask.kind().api(), code, is_fatal: false };
        match (&ask, &self.state) {
            (Ask::End { commit: true }, State::Ending { .. }) => {
                self.open.failure = Some(TransactionError::new(&self.id, kind));
                self.state = State::Ending { commit: false, doubt: false };
            }
            // An abort that cannot be: there is nothing of it that another epoch would not leave behind.
            (Ask::End { .. }, _) => self.finish(false, true),
            _ => self.fail(kind),
        }
    }

    /// The coordinator knows nothing of the transaction: it is not committed, nor will it be.
    fn unknown_to_coordinator(&mut self, ask: Ask, code: ErrorCode) {
        let Ask::End { commit } = ask else { return self.refused(ask, code) };
        let doubt = matches!(self.state, State::Ending { doubt: true, .. });
        if commit {
            let kind = TransactionErrorKind::Refused { api: Asked::End.api(), code, is_fatal: false };
            let outcome = if doubt { WriteOutcome::PossiblyWritten } else { WriteOutcome::NotWritten };
            self.open.failure = Some(TransactionError::new(&self.id, kind).with_outcome(outcome));
        }
        self.finish(false, true);
    }

    fn over(&mut self, kind: TransactionErrorKind) {
        let doubt = match &self.state {
            State::Ending { commit: true, doubt } => *doubt,
            _ => false,
        };
        let error = TransactionError::new(&self.id, kind);
        let deciding = matches!(self.state, State::Open | State::Draining { .. } | State::Ending { .. });
        if deciding {
            let outcome = if doubt { WriteOutcome::PossiblyWritten } else { WriteOutcome::NotWritten };
            self.last = Some(Err(error.clone().with_outcome(outcome)));
            self.orders.push_back(Order::Doom);
        }
        self.not_before = None;
        self.state = State::Over(error);
    }
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions")
            .field("id", &self.id)
            .field("state", &self.state)
            .field("producer", &self.producer)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Ask {
    fn kind(&self) -> Asked {
        match self {
            Self::Init => Asked::Init,
            Self::AddPartitions(_) => Asked::AddPartitions,
            Self::AddOffsets { .. } => Asked::AddOffsets,
            Self::CommitOffsets(_) => Asked::CommitOffsets,
            Self::End { .. } => Asked::End,
        }
    }
}

impl Asked {
    fn api(self) -> ApiKey {
        match self {
            Self::Init => ApiKey::of::<InitProducerIdRequest>(),
            Self::AddPartitions => ApiKey::of::<AddPartitionsToTxnRequest>(),
            Self::AddOffsets => ApiKey::of::<AddOffsetsToTxnRequest>(),
            Self::CommitOffsets => ApiKey::of::<TxnOffsetCommitRequest>(),
            Self::End => ApiKey::of::<EndTxnRequest>(),
        }
    }
}

impl GroupMetadata {
    /// A group without members of its own: offsets are taken from whoever sends them.
    pub fn without_member(group: impl Into<String>) -> Self {
        Self { group: group.into(), generation: -1, member_id: String::new(), instance_id: None }
    }
}

/// Of several codes the one that decides; `None` for an answer that says nothing.
fn worst(asked: Asked, codes: &[ErrorCode]) -> Option<ErrorCode> {
    let rank = |code: &ErrorCode| match verdict(asked, *code) {
        Verdict::Done => 0,
        // Because of another partition's refusal.
        Verdict::Again if *code == ErrorCode::OPERATION_NOT_ATTEMPTED => 1,
        Verdict::Soon => 2,
        Verdict::Again => 3,
        Verdict::Elsewhere => 4,
        Verdict::Abort => 5,
        Verdict::Renew => 6,
        Verdict::Over => 7,
        Verdict::Fenced => 8,
    };
    codes.iter().copied().max_by_key(rank)
}

/// The end of a transaction is written to all its partitions within milliseconds.
const SOON: Duration = Duration::from_millis(20);
