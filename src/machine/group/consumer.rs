//! One member of a KIP-848 group: the coordinator assigns, and heartbeats carry everything.
//!
//! ```text
//!               ┌────────────────────── not known: all is lost ───────────────────────────────┐
//!               ▼                                                                              │
//!  Probing ─▶ Joining ──epoch given──▶ Stable ──assignment takes away──▶ Revoking ─────────────┤
//!     │         ▲                        ▲                                 │                   │
//!     ▼         │                        └── given back: acknowledged ─────┘   fenced, silent  │
//!  a classic    └──── known to be gone ───── Leaving ◀──── for a session, not given back in time
//!  group in use:
//!  Ended            any ──leave──▶ Leaving ──▶ Ended      any ──fenced, refused for good──▶ Ended
//! ```
//!
//! A member tells what it owns whenever that has changed, and everything after a request whose answer it does not know: by that
//! the coordinator takes a member with the epoch before, whose answer was lost, for what it is. What is taken away is given back
//! first and acknowledged by the next heartbeat, which is sent at once; only then does the coordinator give it to others, and
//! give this member more.
//!
//! A member that has lost all joins anew by another id, and one that lets go by itself leaves first, until the coordinator has
//! heard it. By its old id it would be the same member, and in the same epoch where the coordinator still has it (KAFKA-19233) or
//! counts from the beginning, as one does whose group was empty and has become another; and what the member sent before it let go
//! would be taken: offsets of a transaction, behind the position that was read since.
//!
//! Assignments name topics by id. One whose name metadata does not have yet is kept and asked for until it does: the coordinator
//! does not say it twice.

mod request;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kafka_protocol::messages::consumer_group_heartbeat_response::Assignment;
use kafka_protocol::messages::{ConsumerGroupHeartbeatResponse, DescribeGroupsResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{
    CommitGate, CommitReaction, CommitTarget, Coordinator, EndReason, Failure, GroupConfig, GroupEvent, GroupFault,
    GroupRequest, Jitter, LossCause, MIN_WAIT, RequestId, Revocation, Transmit,
};
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic, TopicPartition};
use crate::retry::Backoff;

/// A member of a KIP-848 group.
#[derive(Debug)]
pub(crate) struct ConsumerGroup {
    config: GroupConfig,
    topics: BTreeSet<Topic>,
    /// Whether they are others than the coordinator was told of.
    untold_topics: bool,
    /// What each of its ids begins with.
    base_id: StrBytes,
    /// Its own from the time that it joins until all is lost.
    member_id: StrBytes,
    /// How often it has joined anew.
    renewals: u64,
    /// Zero while this is no member.
    epoch: i32,
    /// Whether a classic membership is the better one where the group or the broker is not for this one.
    or_classic: bool,
    state: State,
    coordinator: Coordinator,
    in_flight: Option<RequestId>,
    /// When the next request is due.
    due: Instant,
    /// When the coordinator was last heard of; the session ends its timeout later.
    heard: Instant,
    interval: Duration,
    /// Whether the next heartbeat says everything.
    full: bool,
    /// Whether what is owned has changed since it was said.
    untold: bool,
    /// Whether the coordinator may know this member.
    announced: bool,
    /// Until when a predecessor with the same instance id may be waited for.
    unreleased_until: Option<Instant>,
    /// What this member may work on, partitions under revocation included.
    owned: BTreeMap<TopicPartition, Uuid>,
    target: BTreeSet<(Uuid, i32)>,
    /// Whether the last answer said the assignment that was known.
    repeated: bool,
    names: BTreeMap<Uuid, Topic>,
    lookup: Option<Lookup>,
    failures: u32,
    /// How often all was lost since the coordinator last took more from this member than that it joins.
    losses: u32,
    last_request: u64,
    jitter: Jitter,
    events: VecDeque<GroupEvent>,
}

#[derive(Debug)]
enum State {
    Probing,
    Joining,
    Stable,
    Revoking(Revocation),
    Leaving {
        /// To join anew.
        again: bool,
    },
    Ended,
}

/// Topics of an assignment whose names are not known yet.
#[derive(Debug)]
struct Lookup {
    again_at: Instant,
    tries: u32,
}

impl ConsumerGroup {
    /// A member that will join `topics` at once by the id `member`, which is its own, and anew by `member-1`, `member-2` and so
    /// on. `seed` spreads its retries.
    pub(crate) fn new(
        now: Instant,
        config: GroupConfig,
        topics: impl IntoIterator<Item = Topic>,
        member: String,
        seed: u64,
    ) -> Self {
        let member_id = StrBytes::from_string(member);
        Self {
            interval: config.heartbeat_interval,
            config,
            topics: topics.into_iter().collect(),
            untold_topics: false,
            base_id: member_id.clone(),
            member_id,
            renewals: 0,
            epoch: NO_EPOCH,
            or_classic: false,
            state: State::Joining,
            coordinator: Coordinator::Unknown { not_before: now, asked: None },
            in_flight: None,
            due: now,
            heard: now,
            full: true,
            untold: false,
            announced: false,
            unreleased_until: None,
            owned: BTreeMap::new(),
            target: BTreeSet::new(),
            repeated: false,
            names: BTreeMap::new(),
            lookup: None,
            failures: 0,
            losses: 0,
            last_request: 0,
            jitter: Jitter::new(seed),
            events: VecDeque::new(),
        }
    }

    /// A member that leaves the group to a classic one, by [`GroupEvent::UseClassic`], where the group is a classic one in use or
    /// the broker does not have this protocol.
    pub(crate) fn or_classic(mut self) -> Self {
        self.or_classic = true;
        self.state = State::Probing;
        self
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

    /// The topics that this member subscribed to.
    pub(crate) fn topics(&self) -> &BTreeSet<Topic> {
        &self.topics
    }

    /// Subscribes to these topics from now on.
    pub(crate) fn subscribe(&mut self, now: Instant, topics: BTreeSet<Topic>) {
        if self.topics != topics {
            self.topics = topics;
            self.untold_topics = true;
            if self.is_member() && self.in_flight.is_none() && self.failures == 0 {
                self.due = now;
            }
        }
    }

    /// The next request to send. Ask again until there is none, after every `handle_*`, [`Self::released`] and
    /// [`Self::leave`].
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if self.is_ended() {
            return None;
        }
        let node = match self.coordinator {
            Coordinator::Known(node) => node,
            Coordinator::Unknown { not_before, asked: None } if now >= not_before => {
                let id = self.next_request();
                self.coordinator = Coordinator::Unknown { not_before, asked: Some(id) };
                let timeout = self.config.request_timeout;
                return Some(Transmit { id, request: GroupRequest::FindCoordinator, timeout });
            }
            Coordinator::Unknown { .. } => return None,
        };
        if self.in_flight.is_some() || now < self.due {
            return None;
        }
        let id = self.next_request();
        self.in_flight = Some(id);
        self.due = now + self.interval;
        let (request, timeout) = match self.state {
            State::Probing => (GroupRequest::Describe(node, self.describe_request()), self.config.request_timeout),
            // A coordinator that is silent is left while there is still time to find another one.
            _ => (
                GroupRequest::ConsumerHeartbeat(node, self.heartbeat_request()),
                self.config.request_timeout.min(self.config.session_timeout / 3),
            ),
        };
        Some(Transmit { id, request, timeout })
    }

    /// The next thing to tell. Ask again until there is none.
    pub(crate) fn poll_event(&mut self) -> Option<GroupEvent> {
        self.events.pop_front()
    }

    /// When to call [`Self::handle_timeout`], unless something else happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.is_ended() {
            return None;
        }
        let request = match self.coordinator {
            Coordinator::Unknown { not_before, asked: None } => Some(not_before),
            Coordinator::Known(_) if self.in_flight.is_none() => Some(self.due),
            _ => None,
        };
        let revocation = match &self.state {
            State::Revoking(revocation) => Some(revocation.deadline),
            _ => None,
        };
        let session = self.is_member().then(|| self.session_end());
        let lookup = self.lookup.as_ref().map(|lookup| lookup.again_at);
        [request, revocation, session, lookup].into_iter().flatten().min()
    }

    /// Acts on what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.is_member() && now >= self.session_end() {
            self.leave_and_join_anew(now, LossCause::SessionExpired);
        }
        if let State::Revoking(revocation) = &self.state
            && now >= revocation.deadline
        {
            // The coordinator is about to take this member for dead: it goes by itself, and comes again with nothing.
            let partitions = revocation.partitions.iter().cloned().collect();
            self.events.push_back(GroupEvent::Fault(GroupFault::RevocationTimedOut { partitions }));
            self.leave_and_join_anew(now, LossCause::RevocationTimedOut);
        }
        if self.lookup.as_ref().is_some_and(|lookup| now >= lookup.again_at) {
            self.look_up(now);
        }
    }

    /// The coordinator was found, or asking for it failed.
    pub(crate) fn handle_coordinator(&mut self, now: Instant, id: RequestId, found: Result<NodeId, Failure>) {
        let asked = matches!(self.coordinator, Coordinator::Unknown { asked: Some(asked), .. } if asked == id);
        if !asked || self.is_ended() {
            return;
        }
        match found {
            Ok(node) => self.coordinator = Coordinator::Known(node),
            Err(failure) if failure.fatal => self.end(EndReason::Failed { what: failure.what }),
            Err(failure) => {
                self.search(now);
                self.events.push_back(GroupEvent::Fault(GroupFault::Unreachable { what: failure.what }));
            }
        }
    }

    /// A request was not answered: the coordinator may be gone.
    pub(crate) fn handle_failure(&mut self, now: Instant, id: RequestId, failure: Failure) {
        if self.in_flight.take_if(|asked| *asked == id).is_none() {
            return;
        }
        if failure.fatal && self.may_be_classic() {
            return self.give_way("the broker does not have the consumer protocol");
        }
        if failure.fatal {
            return self.end(EndReason::Failed { what: failure.what });
        }
        self.search(now);
        if let State::Leaving { again: false } = self.state {
            return self.end(EndReason::Left);
        }
        self.events.push_back(GroupEvent::Fault(GroupFault::Unreachable { what: failure.what }));
    }

    /// The coordinator is elsewhere, as another request learned.
    pub(crate) fn coordinator_moved(&mut self, now: Instant, node: NodeId) {
        if self.coordinator() == Some(node) {
            self.search(now);
        }
    }

    /// What kind of group it is.
    pub(crate) fn handle_description(&mut self, now: Instant, id: RequestId, response: &DescribeGroupsResponse) {
        if self.in_flight.take_if(|asked| *asked == id).is_none() || !matches!(self.state, State::Probing) {
            return;
        }
        let Some(group) = response.groups.first() else {
            return self.refused(now, "DescribeGroups", ErrorCode::UNKNOWN_SERVER_ERROR);
        };
        let code = ErrorCode(group.error_code);
        if code.is_retriable() {
            return self.refused(now, "DescribeGroups", code);
        }
        if matches!(group.group_state.as_str(), "Stable" | "PreparingRebalance" | "CompletingRebalance") {
            return self.give_way("the group has members of the classic protocol");
        }
        // Whatever else there is to say against joining, the coordinator says to the one who joins.
        self.state = State::Joining;
        self.due = now;
    }

    /// The answer to a heartbeat, and the names of topics, by id, as metadata has them now.
    pub(crate) fn handle_heartbeat(
        &mut self,
        now: Instant,
        id: RequestId,
        response: &ConsumerGroupHeartbeatResponse,
        name_of: impl Fn(Uuid) -> Option<Topic>,
    ) {
        if self.in_flight.take_if(|asked| *asked == id).is_none() {
            return;
        }
        match ErrorCode(response.error_code) {
            _ if matches!(self.state, State::Leaving { again: false }) => self.end(EndReason::Left),
            code if matches!(self.state, State::Leaving { .. }) && !may_have_stayed(code) => {
                self.renew();
                self.due = now;
            }
            ErrorCode::NONE if response.member_epoch > NO_EPOCH => self.accepted(now, response, name_of),
            ErrorCode::NONE => self.refused(now, HEARTBEAT, ErrorCode::UNKNOWN_SERVER_ERROR),
            code => self.refused(now, HEARTBEAT, code),
        }
    }

    /// The names of topics, by id, as metadata has them now.
    pub(crate) fn handle_names(&mut self, now: Instant, name_of: impl Fn(Uuid) -> Option<Topic>) {
        if self.lookup.is_none() {
            return;
        }
        if self.name(name_of) {
            self.reconcile(now);
        }
    }

    /// The partitions under revocation are let go of.
    pub(crate) fn released(&mut self, now: Instant) {
        let State::Revoking(revocation) = &mut self.state else { return };
        let partitions = std::mem::take(&mut revocation.partitions);
        self.owned.retain(|partition, _| !partitions.contains(partition));
        self.events.push_back(GroupEvent::Released { partitions: partitions.into_iter().collect() });
        self.state = State::Stable;
        self.changed(now);
        self.reconcile(now);
    }

    /// What an answer to a commit says of the group.
    pub(crate) fn handle_commit_reaction(&mut self, now: Instant, reaction: &CommitReaction) {
        let Some(target) = &reaction.target else { return };
        if reaction.moved {
            self.coordinator_moved(now, target.node);
        }
        // A member that has moved on since is not meant: the commit is made again with its new epoch.
        if target.generation != self.epoch || !self.is_member() {
            return;
        }
        if reaction.rebalance {
            self.due = self.due.min(now);
        }
        if let Some(code) = reaction.fenced {
            self.refused(now, "OffsetCommit", code);
        }
    }

    /// Whether and as whom to commit now.
    pub(crate) fn commit_gate(&self) -> CommitGate {
        if !self.is_member() || self.owned.is_empty() {
            return CommitGate::Closed;
        }
        self.coordinator().map_or(CommitGate::Held, |node| {
            CommitGate::Open(CommitTarget {
                node,
                member_id: self.member_id.clone(),
                generation: self.epoch,
                instance_id: self.config.instance_id.clone(),
            })
        })
    }

    /// As whom to ask for committed positions, so that one that is no member any more is told so (KIP-848).
    pub(crate) fn identity(&self) -> Option<(StrBytes, i32)> {
        self.is_member().then(|| (self.member_id.clone(), self.epoch))
    }

    /// Leaves the group, a static member for a while. What is owned is let go of without an event.
    pub(crate) fn leave(&mut self) {
        if matches!(self.state, State::Ended | State::Leaving { again: false }) {
            return;
        }
        self.owned.clear();
        self.lookup = None;
        if !self.announced {
            return self.end(EndReason::Left);
        }
        // On the same connection as a heartbeat that is under way, and so after it.
        self.in_flight = None;
        self.due = self.heard;
        self.state = State::Leaving { again: false };
    }

    fn accepted(
        &mut self,
        now: Instant,
        response: &ConsumerGroupHeartbeatResponse,
        name_of: impl Fn(Uuid) -> Option<Topic>,
    ) {
        let joined = matches!(self.state, State::Joining);
        if joined {
            self.state = State::Stable;
        }
        self.heard = now;
        self.failures = 0;
        if !joined {
            self.losses = 0;
        }
        self.full = false;
        self.unreleased_until = None;
        self.epoch = response.member_epoch;
        let interval = u64::try_from(response.heartbeat_interval_ms).unwrap_or_default();
        self.interval = Duration::from_millis(interval).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        self.due = if self.untold || self.untold_topics { now } else { now + self.interval };
        // Version 0 let coordinators choose.
        if let Some(id) = response.member_id.as_ref().filter(|id| !id.is_empty()) {
            self.member_id = id.clone();
        }
        let before = response.assignment.as_ref().map(|_| self.target.clone());
        if let Some(assignment) = &response.assignment {
            self.aim(assignment);
            self.name(name_of);
            self.lookup = None;
        }
        let told = self.events.len();
        self.reconcile(now);
        self.repeated &= response.assignment.is_some();
        if response.assignment.is_some() && matches!(self.state, State::Stable) {
            // Even one that changes nothing: it may take away what came in an answer that was lost. One that is said once more in
            // answer to that is acknowledged at the interval: a coordinator that always says it would be asked by its round trips.
            let again = before.as_ref() == Some(&self.target);
            if std::mem::replace(&mut self.repeated, again) && again { self.untold = true } else { self.changed(now) }
        }
        let assigned = self.events.iter().skip(told).any(|event| matches!(event, GroupEvent::Assigned { .. }));
        if joined && !assigned {
            self.events.push_back(GroupEvent::Assigned { generation: self.epoch, added: Vec::new() });
        }
    }

    /// Takes in where the coordinator wants this member to be.
    fn aim(&mut self, assignment: &Assignment) {
        let partitions = assignment.topic_partitions.iter();
        self.target = partitions
            .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id, *partition)))
            .collect();
        self.target.retain(|(_, partition)| *partition >= 0);
        let wanted: BTreeSet<_> = self.target.iter().map(|(id, _)| *id).chain(self.owned.values().copied()).collect();
        self.names.retain(|id, _| wanted.contains(id));
    }

    /// The next step from what is owned to what is assigned: first give back, then take.
    fn reconcile(&mut self, now: Instant) {
        if !matches!(self.state, State::Stable) {
            return;
        }
        let kept = |(partition, id): (&TopicPartition, &Uuid)| self.target.contains(&(*id, partition.partition));
        let gone: BTreeSet<_> = self.owned.iter().filter(|owned| !kept(*owned)).map(|(p, _)| p.clone()).collect();
        if !gone.is_empty() {
            let partitions = gone.iter().cloned().collect();
            let deadline = now + self.config.revocation_timeout;
            self.state = State::Revoking(Revocation { partitions: gone, deadline });
            self.events.push_back(GroupEvent::Revoked { partitions });
            return;
        }
        let mut added = Vec::new();
        for (id, partition) in &self.target {
            let Some(topic) = self.names.get(id) else { continue };
            let partition = TopicPartition::new(topic.clone(), *partition);
            if !self.owned.contains_key(&partition) {
                self.owned.insert(partition.clone(), *id);
                added.push(partition);
            }
        }
        if !added.is_empty() {
            self.events.push_back(GroupEvent::Assigned { generation: self.epoch, added });
            self.changed(now);
        }
        if self.unnamed().next().is_none() {
            self.lookup = None;
        } else if self.lookup.is_none() {
            self.look_up(now);
        }
    }

    /// Takes in names that were missing; `false` if none was found.
    fn name(&mut self, name_of: impl Fn(Uuid) -> Option<Topic>) -> bool {
        let missing: BTreeSet<_> = self.unnamed().collect();
        let found: Vec<_> = missing.into_iter().filter_map(|id| Some((id, name_of(id)?))).collect();
        let any = !found.is_empty();
        self.names.extend(found);
        any
    }

    /// Topics of the assignment that have no name yet.
    fn unnamed(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.target.iter().map(|(id, _)| *id).filter(|id| !self.names.contains_key(id))
    }

    fn look_up(&mut self, now: Instant) {
        let tries = self.lookup.as_ref().map_or(0, |lookup| lookup.tries) + 1;
        let again_at = now + self.config.backoff.delay(tries, 1.0).max(MIN_WAIT);
        self.lookup = Some(Lookup { again_at, tries });
        self.events.push_back(GroupEvent::NeedTopics { topics: self.topics.iter().cloned().collect() });
    }

    /// What is owned has changed: the coordinator waits to hear it.
    fn changed(&mut self, now: Instant) {
        self.untold = true;
        if self.in_flight.is_none() && self.failures == 0 {
            self.due = now;
        }
    }

    /// A coordinator's refusal.
    fn refused(&mut self, now: Instant, api: &'static str, code: ErrorCode) {
        let joining = matches!(self.state, State::Joining);
        self.full = true;
        match code {
            ErrorCode::UNKNOWN_MEMBER_ID => self.join_anew(now, LossCause::Refused { api, code }),
            ErrorCode::FENCED_MEMBER_EPOCH => self.leave_and_join_anew(now, LossCause::Refused { api, code }),
            ErrorCode::GROUP_ID_NOT_FOUND if !joining => self.join_anew(now, LossCause::Refused { api, code }),
            ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNSUPPORTED_VERSION if self.may_be_classic() => {
                self.give_way("the coordinator refuses the consumer protocol");
            }
            ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => self.search(now),
            // A predecessor that died is released by the end of its session; one that lives keeps the id.
            ErrorCode::UNRELEASED_INSTANCE_ID
                if joining && now < *self.unreleased_until.get_or_insert(now + 2 * self.config.session_timeout) =>
            {
                self.again(now, api, code);
            }
            ErrorCode::FENCED_INSTANCE_ID | ErrorCode::UNRELEASED_INSTANCE_ID => {
                self.lose(LossCause::Refused { api, code });
                self.end(EndReason::Fenced);
            }
            ErrorCode::GROUP_ID_NOT_FOUND
            | ErrorCode::GROUP_MAX_SIZE_REACHED
            | ErrorCode::GROUP_AUTHORIZATION_FAILED
            | ErrorCode::UNSUPPORTED_ASSIGNOR
            | ErrorCode::UNSUPPORTED_VERSION
            | ErrorCode::INVALID_GROUP_ID
            | ErrorCode::INVALID_REGULAR_EXPRESSION
            | ErrorCode::INVALID_REQUEST => {
                self.lose(LossCause::Refused { api, code });
                self.end(EndReason::Refused { api, code });
            }
            code => self.again(now, api, code),
        }
    }

    /// Asks again after a wait.
    fn again(&mut self, now: Instant, api: &'static str, code: ErrorCode) {
        self.due = now + self.wait();
        if code != ErrorCode::COORDINATOR_LOAD_IN_PROGRESS {
            self.events.push_back(GroupEvent::Fault(GroupFault::Refused { api, code }));
        }
    }

    /// Loses everything and joins with nothing.
    fn join_anew(&mut self, now: Instant, cause: LossCause) {
        self.let_go(now, cause);
        self.renew();
    }

    /// The same where the coordinator may still have this member.
    fn leave_and_join_anew(&mut self, now: Instant, cause: LossCause) {
        self.let_go(now, cause);
        self.state = State::Leaving { again: true };
    }

    /// Goes on as a member that the coordinator has never heard of.
    fn renew(&mut self) {
        self.renewals += 1;
        self.member_id = StrBytes::from_string(format!("{}-{}", self.base_id, self.renewals));
        self.state = State::Joining;
        self.announced = false;
    }

    fn let_go(&mut self, now: Instant, cause: LossCause) {
        self.lose(cause);
        self.in_flight = None;
        // The first time at once; a coordinator that keeps saying so is asked more slowly, also if it lets the member join in between.
        let again = self.losses.max(self.failures);
        self.due = match again {
            0 => now,
            _ => now + self.config.backoff.delay(again, self.jitter.next()).max(MIN_WAIT),
        };
        self.losses += 1;
        self.failures += 1;
    }

    /// All that is owned is gone: another member may have it already.
    fn lose(&mut self, cause: LossCause) {
        self.epoch = NO_EPOCH;
        (self.full, self.untold) = (true, false);
        self.target.clear();
        self.lookup = None;
        let partitions: Vec<_> = std::mem::take(&mut self.owned).into_keys().collect();
        if !partitions.is_empty() {
            self.events.push_back(GroupEvent::Lost { partitions, cause });
        }
    }

    /// Ends in favour of a classic membership.
    fn give_way(&mut self, why: &'static str) {
        self.state = State::Ended;
        self.events.push_back(GroupEvent::UseClassic { why });
    }

    fn end(&mut self, reason: EndReason) {
        self.lose(LossCause::Ended);
        self.state = State::Ended;
        self.in_flight = None;
        self.events.push_back(GroupEvent::Ended { reason });
    }

    /// Looks for the coordinator, after a wait.
    fn search(&mut self, now: Instant) {
        let not_before = now + self.wait();
        self.coordinator = Coordinator::Unknown { not_before, asked: None };
        self.in_flight = None;
        self.full = true;
        self.due = not_before;
    }

    fn is_member(&self) -> bool {
        matches!(self.state, State::Stable | State::Revoking(_))
    }

    fn may_be_classic(&self) -> bool {
        self.or_classic && matches!(self.state, State::Probing | State::Joining)
    }

    fn session_end(&self) -> Instant {
        self.heard + self.config.session_timeout.max(3 * self.interval)
    }

    fn wait(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.config.backoff.delay(self.failures, self.jitter.next()).max(MIN_WAIT)
    }

    fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
    }
}

/// Whether a member that was answered so when it left may still be one.
fn may_have_stayed(code: ErrorCode) -> bool {
    code.is_retriable() || code == ErrorCode::UNKNOWN_SERVER_ERROR
}

const HEARTBEAT: &str = "ConsumerGroupHeartbeat";
const NO_EPOCH: i32 = 0;
/// Bounds of what a coordinator may ask for (`group.consumer.heartbeat.interval.ms`, 5 s by default).
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
