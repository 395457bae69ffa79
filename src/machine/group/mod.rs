//! One member of a classic group: joins, syncs, heartbeats, gives partitions back, leaves.
//!
//! ```text
//!              ┌───────────────────────── refused, moved, unreachable: after a wait ─────────────────────┐
//!              ▼                                                                                         │
//!          Unjoined ──JoinGroup──▶ Joining ──┬─ led by us ─▶ Leading ──topics known──▶ Syncing ──▶ Stable│
//!              ▲                             └─ led by another ───────────────────────▶ Syncing     │   │
//!              │                                                                                    │   │
//!              └── nothing to give back, or given back ◀── another rebalance, revoked, topics changed ──┘
//!
//!          any ──leave──▶ Leaving ──▶ Ended          any ──fenced, refused for good──▶ Ended
//! ```
//!
//! A coordinator may hold back its answer to a JoinGroup or SyncGroup for as long as the rebalance takes, and keeps the
//! member meanwhile. One that is silent for longer is looked for anew; what it held back proves nothing then, so the session
//! counts from the last answer before.
//!
//! Beside the state run three things of their own: the search for the coordinator, the heartbeat, and at most one
//! revocation. Partitions that are being revoked stay owned, and can be committed, until [`Group::released`] or the
//! revocation's deadline; only then does the member join again. Whatever asks for a rebalance meanwhile is the same
//! rejoin.
//!
//! A partition goes in one of two ways. *Revoked*: the group waits for us. *Lost*: it did not wait, another member may
//! have the partition already.

mod commit;
mod config;
mod consumer;
mod event;
mod jitter;
mod leader;
mod rebalance;
mod request;
mod transmit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::{HeartbeatResponse, LeaveGroupResponse, SyncGroupRequest};
use kafka_protocol::protocol::StrBytes;

use crate::machine::assignor::Assignor;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic, TopicPartition};
use crate::retry::{Backoff, ExponentialFullJitter};

pub(crate) use commit::{
    CommitFailure, CommitGate, CommitReaction, CommitRequest, CommitTarget, CommitTransmit, Commits, Committed,
};
pub(crate) use config::GroupConfig;
pub(crate) use consumer::ConsumerGroup;
pub(crate) use event::{EndReason, GroupEvent, GroupFault, LossCause, RejoinCause};
pub(crate) use jitter::Jitter;
pub(crate) use transmit::{Failure, GroupRequest, RequestId, Transmit};

use leader::Plan;

/// A member of a classic group.
#[derive(Debug)]
pub(crate) struct Group {
    config: GroupConfig,
    topics: BTreeSet<Topic>,
    /// Whether the coordinator was told of them.
    told_topics: bool,
    member_id: StrBytes,
    generation: i32,
    /// Which of the configuration's offers is made.
    offer: usize,
    /// Offers that the group refused in a row.
    refused_offers: usize,
    protocol: Option<Arc<dyn Assignor>>,
    /// What this member may work on, partitions under revocation included.
    owned: BTreeSet<TopicPartition>,
    /// What it was assigned last, and in which generation.
    last: Option<(i32, Vec<TopicPartition>)>,
    state: State,
    coordinator: Coordinator,
    heartbeat: Heartbeat,
    revocation: Option<Revocation>,
    rejoin: Option<RejoinCause>,
    /// As the leader of this generation: what the assignment was made from.
    led: Option<Led>,
    failures: u32,
    /// JoinGroups since the last assignment.
    joins: u32,
    /// When the next one may leave, once there were many.
    next_join: Option<Instant>,
    last_request: u64,
    jitter: Jitter,
    events: VecDeque<GroupEvent>,
}

#[derive(Debug)]
enum State {
    Unjoined { not_before: Instant },
    Joining { held: Held },
    Leading { plan: Plan },
    Syncing { held: Option<Held>, sync: Box<SyncGroupRequest> },
    Stable,
    Leaving { request: Option<RequestId> },
    Ended,
}

/// A request whose answer the coordinator may hold back until the rebalance is complete.
#[derive(Debug, Clone, Copy)]
struct Held {
    request: RequestId,
    node: NodeId,
    /// When a coordinator that lives has answered.
    by: Instant,
}

#[derive(Debug)]
enum Coordinator {
    Unknown { not_before: Instant, asked: Option<RequestId> },
    Known(NodeId),
}

#[derive(Debug)]
struct Heartbeat {
    due: Instant,
    in_flight: Option<RequestId>,
    /// When the coordinator was last heard of; the session ends its timeout later.
    heard: Instant,
}

#[derive(Debug)]
struct Revocation {
    partitions: BTreeSet<TopicPartition>,
    deadline: Instant,
}

/// All members' topics, and the partition counts of those that existed.
#[derive(Debug)]
struct Led {
    topics: BTreeSet<Topic>,
    counts: BTreeMap<Topic, i32>,
}

impl Group {
    /// A member that will join `topics` at once. `seed` spreads its retries.
    pub(crate) fn new(now: Instant, config: GroupConfig, topics: impl IntoIterator<Item = Topic>, seed: u64) -> Self {
        Self {
            config,
            topics: topics.into_iter().collect(),
            told_topics: false,
            member_id: StrBytes::new(),
            generation: NO_GENERATION,
            offer: 0,
            refused_offers: 0,
            protocol: None,
            owned: BTreeSet::new(),
            last: None,
            state: State::Unjoined { not_before: now },
            coordinator: Coordinator::Unknown { not_before: now, asked: None },
            heartbeat: Heartbeat { due: now, in_flight: None, heard: now },
            revocation: None,
            rejoin: None,
            led: None,
            failures: 0,
            joins: 0,
            next_join: None,
            last_request: 0,
            jitter: Jitter::new(seed),
            events: VecDeque::new(),
        }
    }

    /// The coordinator, where it is known.
    pub(crate) fn coordinator(&self) -> Option<NodeId> {
        match self.coordinator {
            Coordinator::Known(node) => Some(node),
            Coordinator::Unknown { .. } => None,
        }
    }

    /// Whether the membership is over.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Whether it is between an assignment and the next rebalance.
    pub(crate) fn is_stable(&self) -> bool {
        matches!(self.state, State::Stable)
    }

    /// The next request to send. Ask again until there is none, after every `handle_*`, [`Self::released`] and
    /// [`Self::leave`].
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if let Coordinator::Unknown { not_before, asked: None } = self.coordinator
            && now >= not_before
            && !self.is_ended()
        {
            let id = self.next_request();
            self.coordinator = Coordinator::Unknown { not_before, asked: Some(id) };
            return Some(Transmit { id, request: GroupRequest::FindCoordinator, timeout: self.config.request_timeout });
        }
        let node = self.coordinator()?;
        self.transmit_step(now, node).or_else(|| self.transmit_heartbeat(now, node))
    }

    /// The next thing to tell. Ask again until there is none.
    pub(crate) fn poll_event(&mut self) -> Option<GroupEvent> {
        self.events.pop_front()
    }

    /// When to call [`Self::handle_timeout`], unless something else happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let mut at = |time: Instant| next = Some(next.map_or(time, |n| n.min(time)));
        if self.is_ended() {
            return None;
        }
        if let Coordinator::Unknown { not_before, asked: None } = self.coordinator {
            at(not_before);
        }
        if let State::Unjoined { not_before } = self.state
            && self.coordinator().is_some()
            && self.revocation.is_none()
        {
            at(not_before);
        }
        if let Some((held, _)) = self.held() {
            at(held.by);
        }
        if self.beats() {
            if self.heartbeat.in_flight.is_none() && self.coordinator().is_some() {
                at(self.heartbeat.due);
            }
            at(self.session_end());
        }
        if let Some(revocation) = &self.revocation {
            at(revocation.deadline);
        }
        next
    }

    /// Acts on what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Some((held, api)) = self.held()
            && now >= held.by
        {
            let what = format!("{api} was not answered within the rebalance timeout by broker {}", held.node);
            self.handle_failure(now, held.request, Failure { fatal: false, silent: true, what });
        }
        self.check_session(now);
        if let Some(revocation) = &self.revocation
            && now >= revocation.deadline
        {
            let partitions = revocation.partitions.iter().cloned().collect();
            self.events.push_back(GroupEvent::Fault(GroupFault::RevocationTimedOut { partitions }));
            self.released(now);
        }
    }

    /// The coordinator was found, or asking for it failed.
    pub(crate) fn handle_coordinator(&mut self, now: Instant, id: RequestId, found: Result<NodeId, Failure>) {
        let Coordinator::Unknown { asked: Some(asked), .. } = self.coordinator else { return };
        if asked != id || self.is_ended() {
            return;
        }
        match found {
            Ok(node) => {
                self.coordinator = Coordinator::Known(node);
                if self.held().is_some_and(|(held, _)| held.node != node) {
                    // What another broker holds back it will not answer as the coordinator.
                    self.state = State::Unjoined { not_before: now };
                }
            }
            Err(failure) if failure.fatal => self.end(EndReason::Failed { what: failure.what }),
            Err(failure) => {
                let not_before = now + self.wait();
                self.coordinator = Coordinator::Unknown { not_before, asked: None };
                self.events.push_back(GroupEvent::Fault(GroupFault::Unreachable { what: failure.what }));
            }
        }
    }

    /// A request was not answered: the coordinator may be gone.
    pub(crate) fn handle_failure(&mut self, now: Instant, id: RequestId, failure: Failure) {
        if !self.take(id) {
            return;
        }
        if failure.fatal {
            return self.end(EndReason::Failed { what: failure.what });
        }
        self.events.push_back(GroupEvent::Fault(GroupFault::Unreachable { what: failure.what }));
        let not_before = now + self.wait();
        self.coordinator = Coordinator::Unknown { not_before, asked: None };
        match self.state {
            State::Joining { .. } | State::Syncing { .. } => {
                if !failure.silent {
                    // Until now the broker held our request, which keeps a member alive.
                    self.heartbeat.heard = now;
                }
                self.state = State::Unjoined { not_before };
                self.check_session(now);
            }
            State::Leaving { .. } => self.end(EndReason::Left),
            _ => {}
        }
    }

    /// The coordinator is elsewhere, as another request learned.
    pub(crate) fn coordinator_moved(&mut self, now: Instant, node: NodeId) {
        if self.coordinator() == Some(node) {
            let not_before = now + self.wait();
            self.coordinator = Coordinator::Unknown { not_before, asked: None };
        }
    }

    /// The answer to a heartbeat.
    pub(crate) fn handle_heartbeat(&mut self, now: Instant, id: RequestId, response: &HeartbeatResponse) {
        if self.heartbeat.in_flight != Some(id) {
            return;
        }
        self.heartbeat.in_flight = None;
        match ErrorCode(response.error_code) {
            ErrorCode::NONE => {
                self.heartbeat.heard = now;
                self.failures = 0;
            }
            ErrorCode::REBALANCE_IN_PROGRESS => {
                self.heartbeat.heard = now;
                self.join_again(now, RejoinCause::Rebalance);
            }
            code => self.refused(now, "Heartbeat", code),
        }
    }

    /// The answer to a LeaveGroup, whatever it is: there is nothing left to do.
    pub(crate) fn handle_leave(&mut self, id: RequestId, _response: &LeaveGroupResponse) {
        if matches!(self.state, State::Leaving { request: Some(request) } if request == id) {
            self.end(EndReason::Left);
        }
    }

    /// What an answer to a commit says of the group.
    pub(crate) fn handle_commit_reaction(&mut self, now: Instant, reaction: &CommitReaction) {
        let Some(target) = &reaction.target else { return };
        if reaction.moved {
            self.coordinator_moved(now, target.node);
        }
        if reaction.rebalance {
            self.join_again(now, RejoinCause::Rebalance);
        }
        if let Some(code) = reaction.fenced {
            // A member that has moved on since is not meant: the commit is made again in its new name.
            let meant = target.member_id == self.member_id && target.generation == self.generation;
            if meant && (self.is_stable() || code == ErrorCode::FENCED_INSTANCE_ID) {
                self.refused(now, "OffsetCommit", code);
            }
        }
    }

    /// Whether and as whom to commit now.
    ///
    /// Brokers take commits of the last generation while members are joining, and refuse them only while an
    /// assignment is being made: so a member that waits for slower ones can go on with what it keeps.
    pub(crate) fn commit_gate(&self) -> CommitGate {
        if self.generation == NO_GENERATION || self.owned.is_empty() {
            return CommitGate::Closed;
        }
        match (&self.state, self.coordinator()) {
            (State::Leaving { .. } | State::Ended, _) => CommitGate::Closed,
            (State::Stable | State::Unjoined { .. } | State::Joining { .. }, Some(node)) => {
                CommitGate::Open(CommitTarget {
                    node,
                    member_id: self.member_id.clone(),
                    generation: self.generation,
                    instance_id: self.config.instance_id.clone(),
                })
            }
            _ => CommitGate::Held,
        }
    }

    /// Subscribes to these topics from now on, by another join where there was one. What is owned of others is given back by its
    /// rebalance.
    pub(crate) fn subscribe(&mut self, now: Instant, topics: BTreeSet<Topic>) {
        if self.topics != topics {
            self.topics = topics;
            self.told_topics = false;
            self.join_again(now, RejoinCause::Subscribed);
        }
    }

    /// Leaves the group. What is owned is let go of without an event.
    pub(crate) fn leave(&mut self) {
        if self.is_ended() || matches!(self.state, State::Leaving { .. }) {
            return;
        }
        self.revocation = None;
        self.rejoin = None;
        self.owned.clear();
        self.heartbeat.in_flight = None;
        // A static member does not say that it goes: its partitions wait for it until the session's end (KIP-345).
        if self.member_id.is_empty() || self.config.instance_id.is_some() {
            return self.end(EndReason::Left);
        }
        self.state = State::Leaving { request: None };
    }

    fn transmit_step(&mut self, now: Instant, node: NodeId) -> Option<Transmit> {
        let id = RequestId(self.last_request + 1);
        let patient = self.config.revocation_timeout + JOIN_SLACK;
        let held = Held { request: id, node, by: now + patient };
        let (request, timeout) = match &mut self.state {
            State::Unjoined { not_before } if now >= *not_before && self.revocation.is_none() => {
                if let Some(next) = self.next_join.take_if(|next| now < *next) {
                    *not_before = next;
                    return None;
                }
                if self.must_give_back_first() {
                    self.revoke(now, self.owned.clone());
                    return None;
                }
                let cause = self.rejoin.take();
                let join = match self.join_request(cause) {
                    Ok(join) => join,
                    Err(error) => {
                        self.end(EndReason::Failed { what: error });
                        return None;
                    }
                };
                self.told_topics = true;
                self.state = State::Joining { held };
                self.heartbeat.in_flight = None;
                self.pace_joins(now);
                (GroupRequest::Join(node, join), patient)
            }
            State::Syncing { held: waiting @ None, sync } => {
                *waiting = Some(held);
                (GroupRequest::Sync(node, (**sync).clone()), patient)
            }
            State::Leaving { request: request @ None } => {
                *request = Some(id);
                (GroupRequest::Leave(node, self.leave_request()), self.config.request_timeout)
            }
            _ => return None,
        };
        self.last_request += 1;
        Some(Transmit { id, request, timeout })
    }

    fn transmit_heartbeat(&mut self, now: Instant, node: NodeId) -> Option<Transmit> {
        if !self.beats() || self.heartbeat.in_flight.is_some() || now < self.heartbeat.due {
            return None;
        }
        let id = self.next_request();
        self.heartbeat.in_flight = Some(id);
        self.heartbeat.due = now + self.config.heartbeat_interval;
        // A coordinator that is silent is left while there is still time to find another one.
        let timeout = self.config.request_timeout.min(self.config.session_timeout / 3);
        Some(Transmit { id, request: GroupRequest::Heartbeat(node, self.heartbeat_request()), timeout })
    }

    /// The request that the coordinator may hold back now, and what it asks.
    fn held(&self) -> Option<(Held, &'static str)> {
        match self.state {
            State::Joining { held } => Some((held, "JoinGroup")),
            State::Syncing { held: Some(held), .. } => Some((held, "SyncGroup")),
            _ => None,
        }
    }

    /// Gives up what is owned once the session is over: another member may have it.
    fn check_session(&mut self, now: Instant) {
        if self.beats() && now >= self.session_end() {
            self.lose(LossCause::SessionExpired);
            if self.config.plain_subscription {
                // A coordinator that still has this member would find that nothing about it has changed, and let it into the same
                // generation: what it sent before would be taken. Other subscriptions say a generation, and so differ.
                self.member_id = StrBytes::new();
            }
            self.join_again(now, RejoinCause::Lost);
        }
    }

    /// Whether heartbeats are due: in JoinGroup and SyncGroup the broker holds our request and knows that we live.
    fn beats(&self) -> bool {
        match self.state {
            State::Stable | State::Leading { .. } => true,
            // Between two joins, for what is still owned.
            State::Unjoined { .. } => self.generation != NO_GENERATION && !self.owned.is_empty(),
            _ => false,
        }
    }

    fn session_end(&self) -> Instant {
        self.heartbeat.heard + self.config.session_timeout
    }

    /// All that is owned is gone: another member may have it already.
    fn lose(&mut self, cause: LossCause) {
        self.revocation = None;
        self.led = None;
        let partitions: Vec<_> = std::mem::take(&mut self.owned).into_iter().collect();
        if !partitions.is_empty() {
            self.events.push_back(GroupEvent::Lost { partitions, cause });
        }
    }

    /// A broker's refusal, the same for every request of the group protocol.
    fn refused(&mut self, now: Instant, api: &'static str, code: ErrorCode) {
        match code {
            ErrorCode::UNKNOWN_MEMBER_ID => {
                self.member_id = StrBytes::new();
                self.expelled(now, api, code);
            }
            ErrorCode::ILLEGAL_GENERATION => self.expelled(now, api, code),
            ErrorCode::REBALANCE_IN_PROGRESS => self.again_after(now, Duration::ZERO),
            ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => {
                let wait = self.wait();
                self.coordinator = Coordinator::Unknown { not_before: now + wait, asked: None };
                self.again_after(now, wait);
            }
            ErrorCode::FENCED_INSTANCE_ID => {
                self.lose(LossCause::Refused { api, code });
                self.end(EndReason::Fenced);
            }
            ErrorCode::GROUP_MAX_SIZE_REACHED
            | ErrorCode::INVALID_SESSION_TIMEOUT
            | ErrorCode::INVALID_GROUP_ID
            | ErrorCode::GROUP_AUTHORIZATION_FAILED
            | ErrorCode::UNSUPPORTED_VERSION
            | ErrorCode::INVALID_REQUEST => {
                self.lose(LossCause::Refused { api, code });
                self.end(EndReason::Refused { api, code });
            }
            code => {
                let wait = self.wait();
                if code != ErrorCode::COORDINATOR_LOAD_IN_PROGRESS {
                    self.events.push_back(GroupEvent::Fault(GroupFault::Refused { api, code }));
                }
                self.again_after(now, wait);
            }
        }
    }

    /// The member or its generation is not known any more.
    fn expelled(&mut self, now: Instant, api: &'static str, code: ErrorCode) {
        self.generation = NO_GENERATION;
        self.lose(LossCause::Refused { api, code });
        self.rejoin = None;
        self.heartbeat.in_flight = None;
        // The first time at once; a group that keeps saying so is asked more slowly.
        let wait = if self.failures == 0 { Duration::ZERO } else { self.wait() };
        self.failures += 1;
        if !matches!(self.state, State::Leaving { .. } | State::Ended) {
            self.state = State::Unjoined { not_before: now + wait };
        }
    }

    /// Repeats the step of the join that was refused. A stable member stays what it is; its heartbeat comes again.
    fn again_after(&mut self, now: Instant, wait: Duration) {
        if matches!(self.state, State::Joining { .. } | State::Syncing { .. }) {
            self.state = State::Unjoined { not_before: now + wait };
        }
    }

    /// Ends the wait for this request; `false` if nobody waits for it.
    fn take(&mut self, id: RequestId) -> bool {
        if self.heartbeat.in_flight == Some(id) {
            self.heartbeat.in_flight = None;
            return true;
        }
        match self.state {
            State::Leaving { request: Some(request) } => request == id,
            _ => self.held().is_some_and(|(held, _)| held.request == id),
        }
    }

    fn end(&mut self, reason: EndReason) {
        self.lose(LossCause::Ended);
        self.state = State::Ended;
        self.heartbeat.in_flight = None;
        self.events.push_back(GroupEvent::Ended { reason });
    }

    fn wait(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        // Never nothing: a broker that refuses at once would be asked in a loop.
        self.config.backoff.delay(self.failures, self.jitter.next()).max(MIN_WAIT)
    }

    fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
    }
}

/// Waits between attempts to reach or join a group: 100 ms doubling to 5 s.
pub(crate) const GROUP_BACKOFF: ExponentialFullJitter =
    ExponentialFullJitter { first: Duration::from_millis(100), max: Duration::from_secs(5) };
const MIN_WAIT: Duration = Duration::from_millis(20);
/// The broker answers a join at the rebalance timeout at the latest; the answer needs a moment more (as in Java).
const JOIN_SLACK: Duration = Duration::from_secs(5);
/// Joins in a row that leave without a wait: for an id, for each offer of assignors, and for some rounds of others who join meanwhile.
const JOINS_AT_ONCE: u32 = 8;
/// Of a member that has not been given one.
const NO_GENERATION: i32 = -1;

#[cfg(test)]
mod tests;
