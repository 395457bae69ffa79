//! Share groups (KIP-932): the membership, and a session with each broker that leads something of it.
//!
//! ```text
//!   assignment ─▶ ┌──────────────── Sessions ────────────────┐ ──poll(node)──▶ Plan: fetch, acknowledge, both ──▶ broker
//!   leaders ────▶ │ a broker: session, what is held,         │                                                    │
//!   acknowledge ▶ │           what waits to be acknowledged  │ ◀── fetched, acknowledged, failed ◀────────────────┘
//!                 └──────────────────────────────────────────┘
//!                     │ poll_batch          │ poll_outcome
//!                     ▼                     ▼
//!                  records, each locked   what became of each acknowledgement
//! ```
//!
//! A session with a broker:
//!
//! ```text
//!   None ──fetch, epoch 0──▶ Opening ──answered──▶ Open ──answered: epoch + 1──▶ Open ──closed, epoch -1──▶ Closed
//!    ▲                          │                    │
//!    └──────────────────────────┴────────────────────┴── not answered, forgotten, out of step: what is held is lost
//! ```
//!
//! A broker takes a session's requests in the order of their epochs, so one is under way at a time: what is acknowledged
//! meanwhile waits for it. A fetch waits briefly at the broker while anything is held, and not at all when it carries
//! acknowledgements. Records are fetched when they are asked for and none is buffered: their locks run from then on.
//!
//! A broker that leads nothing of the assignment any more has its session closed when nothing is held of it, and is forgotten.
//!
//! A broker refuses all that one request acknowledges of a partition if it refuses part of it. What is refused for the state of a
//! record is asked again in halves, so that a lost lock costs only its own record.

mod acknowledge;
mod answer;
mod config;
mod event;
mod member;
mod plan;
mod session;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::machine::fetch::{Budget, Leader, Lease};
use crate::protocol::batch::BatchView;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NodeId, Offset, TopicPartition};
use crate::retry::Backoff;

pub use answer::AcquiredRange;
pub(crate) use answer::{Opened, open};
pub use config::AcquireMode;
pub(crate) use config::SessionConfig;
pub(crate) use event::{Outcome, Refusal, SessionEvent};
pub(crate) use member::{MemberConfig, MemberEnd, MemberEvent, MemberRequest, MemberTransmit, ShareMember};
pub use plan::AcknowledgeType;
pub(crate) use plan::Plan;
use plan::{Piece, PlannedFetch, Word};
use session::{Held, Node, Session, next_session, pieces, take};

/// A partition by its topic's id.
pub(crate) type PartitionId = (Uuid, i32);

/// A member's sessions with the brokers that lead its partitions.
#[derive(Debug)]
pub(crate) struct Sessions {
    config: SessionConfig,
    group: String,
    member: StrBytes,
    budget: Arc<Budget>,
    assigned: BTreeMap<PartitionId, Part>,
    nodes: BTreeMap<NodeId, Node>,
    ready: VecDeque<Acquired>,
    outcomes: VecDeque<Outcome>,
    events: VecDeque<SessionEvent>,
    /// Whether somebody waits for records.
    wanted: bool,
    closing: bool,
    last_id: u64,
}

/// One partition of the assignment.
#[derive(Debug)]
struct Part {
    partition: TopicPartition,
    leader: Option<(NodeId, Option<LeaderEpoch>)>,
    not_before: Option<Instant>,
    failures: u32,
}

/// Records that were acquired together.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) lock: AcquisitionLock,
    pub(crate) batches: Vec<BatchView>,
    pub(crate) ranges: Vec<AcquiredRange>,
    pub(crate) deadline: Instant,
    pub(crate) lease: Option<Lease>,
}

/// Names what was acquired of a partition in one session, for acknowledging.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcquisitionLock {
    pub(crate) partition: TopicPartition,
    pub(crate) topic_id: Uuid,
    pub(crate) session: u64,
}

/// What to do for a broker now.
#[derive(Debug)]
pub(crate) enum Next {
    Send(Plan),
    /// Nothing until then, or until something changes.
    Wait(Option<Instant>),
    /// Nothing ever, unless [`Sessions::nodes`] names it again: it leads nothing of the assignment and holds no session. Nothing is
    /// known of it any more.
    Gone,
}

/// What an answer says of one partition.
#[derive(Debug)]
pub(crate) struct PartAnswer {
    pub(crate) id: PartitionId,
    /// Of fetching.
    pub(crate) fetch: ErrorCode,
    /// Of acknowledging.
    pub(crate) acknowledge: ErrorCode,
    pub(crate) opened: Option<Opened>,
}

/// What a broker answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: ErrorCode,
    pub(crate) lock_timeout: Duration,
    pub(crate) throttle: Duration,
    pub(crate) partitions: Vec<PartAnswer>,
}

/// How a request got no answer.
#[derive(Debug, Clone)]
pub(crate) enum NoAnswer {
    /// The broker does not know how to renew; nothing was sent.
    CannotRenew,
    /// Nothing was sent.
    NotSent,
    /// The broker may have acted on it.
    Unknown { what: String },
}

impl Sessions {
    pub(crate) fn new(config: SessionConfig, group: impl Into<String>, member: StrBytes) -> Self {
        Self {
            budget: Budget::new(config.budget_bytes),
            config,
            group: group.into(),
            member,
            assigned: BTreeMap::new(),
            nodes: BTreeMap::new(),
            ready: VecDeque::new(),
            outcomes: VecDeque::new(),
            events: VecDeque::new(),
            wanted: false,
            closing: false,
            last_id: 0,
        }
    }

    /// What everything that was fetched is held against.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// This is assigned now, and nothing else. What was acquired of the rest can still be acknowledged.
    pub(crate) fn assign(&mut self, assigned: &BTreeMap<TopicPartition, Uuid>) {
        let ids: BTreeMap<_, _> =
            assigned.iter().map(|(partition, topic)| ((*topic, partition.partition), partition)).collect();
        self.assigned.retain(|id, _| ids.contains_key(id));
        for (id, partition) in ids {
            self.assigned.entry(id).or_insert_with(|| Part {
                partition: partition.clone(),
                leader: None,
                not_before: None,
                failures: 0,
            });
        }
    }

    /// Takes in metadata.
    pub(crate) fn update_leaders(&mut self, leader_of: impl Fn(&TopicPartition) -> Option<Leader>) {
        for ((topic, _), part) in &mut self.assigned {
            let Some(leader) = leader_of(&part.partition).filter(|leader| leader.topic_id == *topic) else { continue };
            let outdated = part.leader.is_some_and(|(_, epoch)| leader.epoch < epoch);
            if !outdated && part.leader != Some((leader.node, leader.epoch)) {
                part.leader = Some((leader.node, leader.epoch));
                part.not_before = None;
            }
        }
    }

    /// The brokers that something is to be said to.
    pub(crate) fn nodes(&self) -> BTreeSet<NodeId> {
        let leaders = self.assigned.values().filter_map(|part| Some(part.leader?.0));
        leaders.chain(self.nodes.keys().copied()).collect()
    }

    /// Whether somebody waits for records.
    pub(crate) fn want(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// From now on nothing is fetched: what waits is acknowledged, and each session closed, by which the broker releases the rest.
    /// `false` where that was said before.
    pub(crate) fn close(&mut self) -> bool {
        self.ready.clear();
        !std::mem::replace(&mut self.closing, true)
    }

    /// Whether something waits to be handed over.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// After [`Self::close`]: whether there is nothing left to say.
    pub(crate) fn is_closed(&self) -> bool {
        self.nodes.values().all(|node| node.in_flight.is_none() && node.session.id().is_none())
    }

    /// Acknowledges records that were acquired together. What becomes of them comes as outcomes with this ticket, of all of
    /// these offsets.
    ///
    /// # Errors
    /// When one of them is not held; then nothing is acknowledged.
    pub(crate) fn acknowledge(
        &mut self,
        ticket: u64,
        lock: &AcquisitionLock,
        (first, last): (Offset, Offset),
        kind: AcknowledgeType,
    ) -> Result<(), Refusal> {
        let node = self.nodes.values_mut().find(|node| node.session.id() == Some(lock.session)).ok_or(Refusal::Lost)?;
        let id = (lock.topic_id, lock.partition.partition);
        let held = node.held.get_mut(&id).ok_or(Refusal::Lost)?;
        let taken = take(held, first.0, last.0).ok_or(Refusal::Lost)?;
        if held.is_empty() {
            node.held.remove(&id);
        }
        node.waiting.extend(taken.into_iter().map(|(first, range)| Piece {
            ticket: Some(ticket),
            id,
            partition: range.partition,
            first,
            last: range.last,
            word: Word::Of(kind),
            deadline: range.deadline,
            alone: false,
        }));
        Ok(())
    }

    /// Records to hand over, whose locks still hold.
    pub(crate) fn poll_batch(&mut self, now: Instant) -> Option<Acquired> {
        while let Some(acquired) = self.ready.pop_front() {
            if acquired.deadline > now {
                self.wanted = false;
                return Some(acquired);
            }
            // Another member may have them by now.
            self.forget(&acquired);
        }
        None
    }

    pub(crate) fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    pub(crate) fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// The next request to a broker. Ask after everything that may change the answer.
    pub(crate) fn poll(&mut self, now: Instant, at: NodeId) -> Next {
        let node = self.nodes.entry(at).or_default();
        if node.in_flight.is_some() {
            return Next::Wait(None);
        }
        for held in node.held.values_mut() {
            held.retain(|_, range| now < range.forget);
        }
        node.held.retain(|_, held| !held.is_empty());
        if let Some(not_before) = node.not_before.filter(|not_before| now < *not_before && !self.closing) {
            return Next::Wait(Some(not_before));
        }
        let leads = self.leads(at);
        let node = self.nodes.get_mut(&at).expect("it was just there");
        node.not_before = None;
        if self.closing {
            return self.closing(now, at);
        }
        if !leads && node.held.is_empty() && node.waiting.is_empty() {
            return self.retire(now, at);
        }
        let (due, next) = self.due(now, at);
        let wanted = self.wanted && self.ready.is_empty() && !due.is_empty();
        let room = self.budget.available().min(self.config.max_bytes);
        if wanted && room == 0 {
            self.budget.want();
        }
        let node = self.nodes.get_mut(&at).expect("it was just there");
        let pieces = pieces(&mut node.waiting);
        let may_fetch = wanted && room > 0;
        let renews = pieces.iter().any(|piece| piece.word == Word::Of(AcknowledgeType::Renew));
        // A partition that is acknowledged by a fetch becomes part of the session.
        let foreign = pieces.iter().any(|piece| !due.contains(&piece.id));
        if !pieces.is_empty() && (!may_fetch || renews || foreign) {
            return Next::Send(self.plan(now, at, None, pieces, false));
        }
        if !may_fetch {
            return Next::Wait(if self.wanted { next } else { None });
        }
        let fetch = self.fetch(at, &due, room, !pieces.is_empty());
        Next::Send(self.plan(now, at, Some(fetch), pieces, false))
    }

    /// The answer to a request.
    pub(crate) fn handle_answer(&mut self, now: Instant, plan: &Plan, answer: Answer) {
        let Some(node) = self.nodes.get_mut(&plan.node).filter(|node| node.in_flight == Some(plan.id)) else { return };
        node.in_flight = None;
        if !answer.throttle.is_zero() {
            node.not_before = Some(now + answer.throttle);
        }
        if !answer.code.is_ok() {
            return self.session_refused(now, plan, answer.code);
        }
        node.failures = 0;
        if plan.epoch == CLOSE {
            node.session = Session::Closed;
            node.held.clear();
        } else if let Session::Open { epoch, partitions, .. } = &mut node.session {
            *epoch = if plan.epoch == i32::MAX { 1 } else { plan.epoch + 1 };
            if let Some(fetch) = &plan.fetch {
                partitions.extend(&fetch.added);
                partitions.retain(|id| !fetch.forgotten.contains(id));
            }
        }
        let mut codes = BTreeMap::new();
        for part in answer.partitions {
            codes.entry(part.id).or_insert(part.acknowledge);
            if plan.fetch.is_some() {
                self.fetched(now, plan, answer.lock_timeout, part);
            }
        }
        let mut pieces: BTreeMap<PartitionId, Vec<Piece>> = BTreeMap::new();
        for piece in &plan.pieces {
            pieces.entry(piece.id).or_default().push(piece.clone());
        }
        for (id, pieces) in pieces {
            self.acknowledged(now, plan, answer.lock_timeout, codes.get(&id).copied(), pieces);
        }
    }

    /// A request got no answer.
    pub(crate) fn handle_failure(&mut self, now: Instant, plan: &Plan, failure: &NoAnswer) {
        let Some(node) = self.nodes.get_mut(&plan.node).filter(|node| node.in_flight == Some(plan.id)) else { return };
        node.in_flight = None;
        if matches!(failure, NoAnswer::CannotRenew) {
            // Nothing was sent, and the session goes on.
            let (renewals, others): (Vec<_>, Vec<_>) =
                plan.pieces.iter().cloned().partition(|piece| piece.word == Word::Of(AcknowledgeType::Renew));
            others.into_iter().rev().for_each(|piece| node.waiting.push_front(piece));
            for piece in renewals {
                self.conclude_held(plan, piece, Refusal::CannotRenew);
            }
            return;
        }
        let refusal = match failure {
            NoAnswer::Unknown { what } => Refusal::Unknown { what: what.clone() },
            _ => Refusal::Lost,
        };
        for piece in plan.pieces.iter().cloned() {
            self.conclude(piece, Err(refusal.clone()));
        }
        self.lose(now, plan);
        let of_it = self.assigned.values().find(|part| part.leader.is_some_and(|(node, _)| node == plan.node));
        if let Some(part) = of_it {
            self.events.push_back(SessionEvent::Stale(part.partition.clone()));
        }
    }

    /// The partitions to fetch of this broker now, and when there may be more.
    fn due(&self, now: Instant, at: NodeId) -> (BTreeSet<PartitionId>, Option<Instant>) {
        let led = self.assigned.iter().filter(|(_, part)| part.leader.is_some_and(|(node, _)| node == at));
        let (due, later): (Vec<_>, Vec<_>) = led.partition(|(_, part)| part.not_before.is_none_or(|at| now >= at));
        let next = later.iter().filter_map(|(_, part)| part.not_before).min();
        (due.into_iter().map(|(id, _)| *id).collect(), next)
    }

    /// Whether it leads anything of the assignment.
    fn leads(&self, at: NodeId) -> bool {
        self.assigned.values().any(|part| part.leader.is_some_and(|(node, _)| node == at))
    }

    /// Ends the session with a broker that nothing is asked of any more, and then forgets the broker: nodes come and go for as long
    /// as a cluster lives.
    fn retire(&mut self, now: Instant, at: NodeId) -> Next {
        if self.is_known_to(at) {
            return Next::Send(self.plan(now, at, None, Vec::new(), true));
        }
        self.nodes.remove(&at);
        Next::Gone
    }

    /// Whether the broker has a session of this member, which needs an end: one that was never answered is not known to be there.
    fn is_known_to(&self, at: NodeId) -> bool {
        let session = self.nodes.get(&at).map(|node| &node.session);
        matches!(session, Some(Session::Open { epoch, .. }) if *epoch != OPEN)
    }

    /// What to ask for, and how the session changes by it.
    fn fetch(&mut self, at: NodeId, due: &BTreeSet<PartitionId>, room: usize, acknowledges: bool) -> PlannedFetch {
        let node = self.nodes.get_mut(&at).expect("a request is made of a broker that is there");
        if node.session.id().is_none() {
            node.session = Session::Open { id: next_session(), epoch: OPEN, partitions: BTreeSet::new() };
        }
        let none = BTreeSet::new();
        let known = match &node.session {
            Session::Open { partitions, .. } => partitions,
            _ => &none,
        };
        let max_wait = if acknowledges {
            Duration::ZERO
        } else if node.held.is_empty() {
            self.config.max_wait
        } else {
            self.config.max_wait.min(PATIENCE)
        };
        PlannedFetch {
            max_wait,
            min_bytes: self.config.min_bytes,
            max_bytes: i32::try_from(room).unwrap_or(i32::MAX),
            max_records: self.config.max_records,
            mode: self.config.mode,
            added: due.difference(known).copied().collect(),
            forgotten: known.difference(due).copied().collect(),
        }
    }

    fn plan(&mut self, now: Instant, at: NodeId, fetch: Option<PlannedFetch>, pieces: Vec<Piece>, ends: bool) -> Plan {
        self.last_id += 1;
        let node = self.nodes.get_mut(&at).expect("a request is made of a broker that is there");
        node.in_flight = Some(self.last_id);
        let (session, epoch) = match &node.session {
            Session::Open { id, epoch, .. } => (*id, *epoch),
            // What is acknowledged belongs to a session, and a fetch opens one.
            Session::None | Session::Closed => (0, OPEN),
        };
        let epoch = if ends { CLOSE } else { epoch };
        Plan::new((self.last_id, at, session, epoch), now, fetch, pieces, (&self.group, &self.member))
    }

    fn closing(&mut self, now: Instant, at: NodeId) -> Next {
        let known = self.is_known_to(at);
        let node = self.nodes.get_mut(&at).expect("a request is made of a broker that is there");
        if !known {
            node.session = Session::Closed;
            return Next::Wait(None);
        }
        // All of it, even what was to share its partition with nothing: there is no second time.
        let pieces = node.waiting.drain(..).collect();
        Next::Send(self.plan(now, at, None, pieces, true))
    }

    fn fetched(&mut self, now: Instant, plan: &Plan, lock_timeout: Duration, part: PartAnswer) {
        let Some(known) = self.assigned.get_mut(&part.id) else { return };
        let partition = known.partition.clone();
        if part.fetch.is_ok() {
            known.failures = 0;
        } else {
            known.failures = known.failures.saturating_add(1);
            let wait = self.config.backoff.delay(known.failures, 1.0).max(SHORTEST_BACKOFF);
            known.not_before = Some(now + wait);
            self.events.push_back(SessionEvent::Stale(partition.clone()));
            if !MOVED.contains(&part.fetch) {
                self.events.push_back(SessionEvent::Refused { partition, code: part.fetch });
            } else if let Some(node) = self.nodes.get_mut(&plan.node) {
                // Who acquires is known to the leader alone: the next one gives them to anybody.
                node.held.remove(&part.id);
            }
            return;
        }
        let Some(opened) = part.opened else { return };
        // From when it was asked for: the broker's clock began later, so this is over first.
        let deadline = plan.sent + lock_timeout;
        self.hold(plan, part.id, partition, deadline, lock_timeout, opened);
    }

    /// Takes in what was acquired.
    fn hold(
        &mut self,
        plan: &Plan,
        id: PartitionId,
        partition: TopicPartition,
        deadline: Instant,
        lock_timeout: Duration,
        opened: Opened,
    ) {
        let Some(node) = self.nodes.get_mut(&plan.node) else { return };
        let own = |(first, last): (i64, i64), word| Piece {
            ticket: None,
            id,
            partition: partition.clone(),
            first,
            last,
            word,
            deadline,
            alone: false,
        };
        node.waiting.extend(opened.gaps.into_iter().map(|gap| own(gap, Word::Gap)));
        let release = Word::Of(AcknowledgeType::Release);
        node.waiting.extend(opened.missing.into_iter().map(|missing| own(missing, release)));
        if let Some((offset, error)) = opened.flaw {
            self.events.push_back(SessionEvent::Unreadable { partition: partition.clone(), offset, error });
        }
        if opened.acquired.is_empty() || self.closing {
            return;
        }
        let held = node.held.entry(id).or_default();
        for range in &opened.acquired {
            let (last, partition) = (range.last.0, partition.clone());
            held.insert(range.first.0, Held { last, deadline, forget: deadline + lock_timeout, partition });
        }
        self.ready.push_back(Acquired {
            lock: AcquisitionLock { partition, topic_id: id.0, session: plan.session },
            batches: opened.batches,
            ranges: opened.acquired,
            deadline,
            lease: opened.lease,
        });
    }

    /// The broker refuses the whole request.
    fn session_refused(&mut self, now: Instant, plan: &Plan, code: ErrorCode) {
        let forgotten = [ErrorCode::SHARE_SESSION_NOT_FOUND, ErrorCode::INVALID_SHARE_SESSION_EPOCH].contains(&code);
        for piece in plan.pieces.iter().cloned() {
            let refusal = if forgotten { Refusal::Lost } else { Refusal::Refused(code) };
            self.conclude(piece, Err(refusal));
        }
        self.lose(now, plan);
        if !forgotten {
            self.events.push_back(SessionEvent::SessionRefused { node: plan.node, code });
        }
    }

    /// The session is over, and with it every lock.
    fn lose(&mut self, now: Instant, plan: &Plan) {
        self.ready.retain(|acquired| acquired.lock.session != plan.session);
        let Some(node) = self.nodes.get_mut(&plan.node) else { return };
        node.session = if self.closing { Session::Closed } else { Session::None };
        node.held.clear();
        node.failures = node.failures.saturating_add(1);
        let wait = self.config.backoff.delay(node.failures, 1.0).max(SHORTEST_BACKOFF);
        let until = now + wait;
        node.not_before = Some(node.not_before.map_or(until, |at| at.max(until)));
        for piece in std::mem::take(&mut node.waiting) {
            self.conclude(piece, Err(Refusal::Lost));
        }
    }

    /// Nobody will acknowledge these.
    fn forget(&mut self, acquired: &Acquired) {
        let id = (acquired.lock.topic_id, acquired.lock.partition.partition);
        let of_it = self.nodes.values_mut().find(|node| node.session.id() == Some(acquired.lock.session));
        if let Some(held) = of_it.and_then(|node| node.held.get_mut(&id)) {
            for range in &acquired.ranges {
                held.remove(&range.first.0);
            }
        }
    }
}

const OPEN: i32 = 0;
const CLOSE: i32 = -1;
/// How long a fetch waits for records while others are being handled: no longer do their acknowledgements.
const PATIENCE: Duration = Duration::from_millis(100);
const SHORTEST_BACKOFF: Duration = Duration::from_millis(20);
/// Refusals of a broker that does not lead the partition any more, or not this topic's.
const MOVED: [ErrorCode; 5] = [
    ErrorCode::NOT_LEADER_OR_FOLLOWER,
    ErrorCode::FENCED_LEADER_EPOCH,
    ErrorCode::UNKNOWN_TOPIC_ID,
    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode::KAFKA_STORAGE_ERROR,
];
