//! The coordinator of one classic group: members, generations, who is waited for.
//!
//! ```text
//!            join                    all joined, or time over           leader's sync
//!   Empty ─────────► Preparing ───────────────────────────► Completing ─────────────► Stable
//!     ▲               ▲   │ nobody is left                       │                      │
//!     └───────────────┼───┘                                      │                      │
//!                     └──────────── join, leave, expiry ◄────────┴──────────────────────┘
//! ```
//!
//! As `GroupMetadataManager` of Kafka 4 does it for classic groups: KIP-394 (ids before members), KIP-345 (static
//! members), KIP-559 (protocol named in answers), KIP-814 (a leader that came back assigns nothing).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::random::Random;
use crate::protocol::error_code::ErrorCode;

/// A group.
#[derive(Debug, Default)]
pub(super) struct ClassicGroup {
    state: State,
    generation: i32,
    protocol_type: Option<String>,
    protocol: Option<String>,
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    /// Member ids of static members, by instance id.
    instances: BTreeMap<String, String>,
    /// Ids that were given out and not joined with yet, until when.
    pending: BTreeMap<String, Instant>,
    /// Members that have not synced in this generation.
    unsynced: BTreeSet<String>,
    initial: Option<InitialDelay>,
    join_deadline: Option<Instant>,
    sync_deadline: Option<Instant>,
    next_ticket: u64,
    /// The last generation that was complete: what a new coordinator finds.
    persisted: Option<Box<Persisted>>,
}

/// What a group is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Empty,
    Preparing,
    Completing,
    Stable,
}

impl State {
    /// Kafka's name for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Preparing => "PreparingRebalance",
            Self::Completing => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// A member.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) instance_id: Option<String>,
    pub(super) client_id: String,
    session: Duration,
    rebalance: Duration,
    /// What it offers, the most wanted first, with what it says to each.
    protocols: Vec<(String, Bytes)>,
    pub(super) assignment: Bytes,
    /// The JoinGroup that waits.
    joining: Option<u64>,
    /// The answer to it, until it is taken.
    joined: Option<(u64, Joined)>,
    syncing: bool,
    expires: Instant,
    /// Whether it never was in a complete generation.
    is_new: bool,
}

#[derive(Debug, Clone)]
struct Persisted {
    generation: i32,
    protocol: Option<String>,
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    instances: BTreeMap<String, String>,
}

/// The wait of a group that was empty for more members.
#[derive(Debug)]
struct InitialDelay {
    until: Instant,
    left: Duration,
    more_came: bool,
}

/// A JoinGroup.
#[derive(Debug, Clone)]
pub(super) struct Join {
    pub(super) member_id: String,
    pub(super) instance_id: Option<String>,
    pub(super) client_id: String,
    pub(super) session: Duration,
    pub(super) rebalance: Duration,
    pub(super) protocol_type: String,
    pub(super) protocols: Vec<(String, Bytes)>,
    /// Whether a member has to know its id before it joins (KIP-394).
    pub(super) needs_id: bool,
    /// Whether the answer can say that a leader has nothing to assign (KIP-814).
    pub(super) may_skip: bool,
}

/// The answer to a JoinGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) generation: i32,
    pub(super) protocol_type: String,
    pub(super) protocol: String,
    pub(super) leader: String,
    pub(super) member_id: String,
    /// For the leader: member, instance and what it says to the protocol.
    pub(super) members: Vec<(String, Option<String>, Bytes)>,
    pub(super) skip_assignment: bool,
}

/// A JoinGroup that was taken in.
#[derive(Debug)]
pub(super) enum JoinStep {
    Done(Joined),
    /// Ask for it by these.
    Wait {
        member_id: String,
        ticket: u64,
    },
}

/// A JoinGroup that was refused: the code, and the member id to answer with.
pub(super) type JoinRefused = (ErrorCode, String);

/// Who a request is from.
#[derive(Debug, Clone)]
pub(super) struct Who {
    pub(super) member_id: String,
    pub(super) instance_id: Option<String>,
    pub(super) generation: i32,
}

/// Settings of the coordinator.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupLimits {
    pub(super) initial_delay: Duration,
    pub(super) max_members: usize,
}

/// Joining.
impl ClassicGroup {
    /// Takes in a JoinGroup.
    pub(super) fn join(
        &mut self,
        join: Join,
        limits: GroupLimits,
        random: &mut Random,
        now: Instant,
    ) -> Result<JoinStep, JoinRefused> {
        let refused = |code, join: &Join| Err((code, join.member_id.clone()));
        if !self.has_room(&join, limits) {
            return refused(ErrorCode::GROUP_MAX_SIZE_REACHED, &join);
        }
        if !self.supports(&join) {
            return refused(ErrorCode::INCONSISTENT_GROUP_PROTOCOL, &join);
        }
        if join.member_id.is_empty() {
            return self.join_new(join, limits, random, now);
        }
        if self.pending.contains_key(&join.member_id) {
            let member_id = join.member_id.clone();
            return Ok(self.add(member_id, join, limits, now));
        }
        if let Err(code) = self.check_member(&join.member_id, join.instance_id.as_deref()) {
            return refused(code, &join);
        }
        self.rejoin(join, limits, now)
    }

    /// The answer to a JoinGroup that waited.
    pub(super) fn poll_join(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        ticket: u64,
    ) -> Option<Result<Joined, ErrorCode>> {
        if let Err(code) = self.check_member(member_id, instance_id) {
            return Some(Err(code));
        }
        let member = self.members.get_mut(member_id)?;
        // One that was sent again on another connection is answered there alone.
        member.joined.take_if(|(of, _)| *of == ticket).map(|(_, joined)| Ok(joined))
    }

    fn join_new(
        &mut self,
        join: Join,
        limits: GroupLimits,
        random: &mut Random,
        now: Instant,
    ) -> Result<JoinStep, JoinRefused> {
        let front = join.instance_id.as_deref().unwrap_or(&join.client_id);
        let member_id = format!("{front}-{}", random.uuid());
        if let Some(instance) = &join.instance_id {
            if let Some(old) = self.instances.get(instance).cloned() {
                return Ok(self.replace_static(&old, member_id, join, limits, now));
            }
            return Ok(self.add(member_id, join, limits, now));
        }
        if join.needs_id {
            self.pending.insert(member_id.clone(), now + join.session);
            return Err((ErrorCode::MEMBER_ID_REQUIRED, member_id));
        }
        Ok(self.add(member_id, join, limits, now))
    }

    /// A static member came back under its instance id: it takes its predecessor's place.
    fn replace_static(
        &mut self,
        old: &str,
        member_id: String,
        join: Join,
        limits: GroupLimits,
        now: Instant,
    ) -> JoinStep {
        let Some(mut member) = self.members.remove(old) else { return self.add(member_id, join, limits, now) };
        let was_leader = self.leader.as_deref() == Some(old);
        member.joining = None;
        member.joined = None;
        member.syncing = false;
        self.unsynced.remove(old);
        self.members.insert(member_id.clone(), member);
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), member_id.clone());
        }
        if was_leader {
            self.leader = Some(member_id.clone());
        }
        let before = self.protocol.clone();
        let (may_skip, ticket) = (join.may_skip, self.update(&member_id, join, now));
        if self.state == State::Stable && self.select_protocol() == before {
            // Nothing changed for the others. A leader that cannot be told to skip the assignment is told of another leader.
            let mut joined = self.answer_for(&member_id, was_leader && may_skip);
            if was_leader && !may_skip {
                joined.leader = old.to_owned();
                joined.members.clear();
            }
            self.settle_join(&member_id, now);
            return JoinStep::Done(joined);
        }
        self.rebalance_or_complete(limits, now);
        JoinStep::Wait { member_id, ticket }
    }

    fn rejoin(&mut self, join: Join, limits: GroupLimits, now: Instant) -> Result<JoinStep, JoinRefused> {
        let member_id = join.member_id.clone();
        let same = self.members.get(&member_id).is_some_and(|member| member.protocols == join.protocols);
        let is_leader = self.leader.as_deref() == Some(&member_id);
        match self.state {
            State::Empty => return Err((ErrorCode::UNKNOWN_MEMBER_ID, member_id)),
            // It did not get the answer, so it gets it again.
            State::Completing if same => return Ok(JoinStep::Done(self.answer_for(&member_id, false))),
            // A leader that joins again wants a new assignment.
            State::Stable if same && !is_leader => return Ok(JoinStep::Done(self.answer_for(&member_id, false))),
            _ => {}
        }
        let ticket = self.update(&member_id, join, now);
        self.rebalance_or_complete(limits, now);
        Ok(JoinStep::Wait { member_id, ticket })
    }

    fn add(&mut self, member_id: String, join: Join, limits: GroupLimits, now: Instant) -> JoinStep {
        self.pending.remove(&member_id);
        if let Some(instance) = &join.instance_id {
            self.instances.insert(instance.clone(), member_id.clone());
        }
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        self.leader.get_or_insert_with(|| member_id.clone());
        let member = Member {
            instance_id: join.instance_id.clone(),
            client_id: join.client_id.clone(),
            session: join.session,
            rebalance: join.rebalance,
            protocols: Vec::new(),
            assignment: Bytes::new(),
            joining: None,
            joined: None,
            syncing: false,
            expires: now + NEW_MEMBER_JOIN_TIMEOUT,
            is_new: true,
        };
        self.members.insert(member_id.clone(), member);
        if let Some(initial) = &mut self.initial {
            initial.more_came = true;
        }
        let ticket = self.update(&member_id, join, now);
        self.rebalance_or_complete(limits, now);
        JoinStep::Wait { member_id, ticket }
    }

    /// Takes in what a member offers now; it waits for the next generation.
    fn update(&mut self, member_id: &str, join: Join, now: Instant) -> u64 {
        self.next_ticket += 1;
        if let Some(member) = self.members.get_mut(member_id) {
            member.protocols = join.protocols;
            member.session = join.session;
            member.rebalance = join.rebalance;
            member.client_id = join.client_id;
            member.joining = Some(self.next_ticket);
            member.joined = None;
            if !member.is_new {
                member.expires = now + member.session;
            }
        }
        self.next_ticket
    }

    fn has_room(&self, join: &Join, limits: GroupLimits) -> bool {
        let known = self.members.contains_key(&join.member_id);
        let returns = join.instance_id.as_ref().is_some_and(|instance| self.instances.contains_key(instance));
        known || returns || self.members.len() < limits.max_members
    }

    fn supports(&self, join: &Join) -> bool {
        if join.protocols.is_empty() || join.protocol_type.is_empty() {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        let by_all = |name: &String| {
            self.members.values().all(|member| member.protocols.iter().any(|(offered, _)| offered == name))
        };
        self.protocol_type.as_deref() == Some(&join.protocol_type)
            && join.protocols.iter().any(|(name, _)| by_all(name))
    }
}

/// Generations.
impl ClassicGroup {
    fn rebalance_or_complete(&mut self, limits: GroupLimits, now: Instant) {
        if self.state == State::Preparing {
            if self.initial.is_none() && self.all_have_joined() {
                self.complete_join(now);
            }
            return;
        }
        self.prepare(limits.initial_delay, now);
    }

    /// Everyone has to join again.
    fn prepare(&mut self, initial_delay: Duration, now: Instant) {
        let was_empty = self.state == State::Empty;
        self.state = State::Preparing;
        self.sync_deadline = None;
        for member in self.members.values_mut().filter(|member| member.syncing) {
            // Its SyncGroup is answered by the state.
            member.syncing = false;
            member.expires = now + member.session;
        }
        let longest = self.members.values().map(|member| member.rebalance).max().unwrap_or_default();
        if was_empty && !initial_delay.is_zero() {
            let first = initial_delay.min(longest);
            self.initial = Some(InitialDelay { until: now + first, left: longest - first, more_came: false });
            return;
        }
        self.join_deadline = Some(now + longest);
        if self.all_have_joined() {
            self.complete_join(now);
        }
    }

    fn all_have_joined(&self) -> bool {
        self.pending.is_empty() && self.members.values().all(|member| member.joining.is_some())
    }

    /// The next generation begins, with those who are there.
    fn complete_join(&mut self, now: Instant) {
        (self.initial, self.join_deadline) = (None, None);
        let gone = self.members.iter().filter(|(_, member)| member.joining.is_none() && member.instance_id.is_none());
        let gone: Vec<String> = gone.map(|(id, _)| id.clone()).collect();
        gone.iter().for_each(|id| self.forget(id));
        if !self.elect_leader() && !self.members.is_empty() {
            // Static members alone, none of which is there: wait on.
            let longest = self.members.values().map(|member| member.rebalance).max().unwrap_or_default();
            self.join_deadline = Some(now + longest);
            return;
        }
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        if self.members.is_empty() {
            self.state = State::Empty;
            (self.protocol, self.leader) = (None, None);
            self.persist();
            return;
        }
        self.protocol = self.select_protocol();
        self.state = State::Completing;
        self.unsynced = self.members.keys().cloned().collect();
        let longest = self.members.values().map(|member| member.rebalance).max().unwrap_or_default();
        self.sync_deadline = Some(now + longest);
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let joined = self.answer_for(&id, false);
            if let Some(member) = self.members.get_mut(&id) {
                member.joined = member.joining.map(|ticket| (ticket, joined));
            }
            self.settle_join(&id, now);
        }
    }

    fn settle_join(&mut self, member_id: &str, now: Instant) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.joining = None;
            member.is_new = false;
            member.expires = now + member.session;
        }
    }

    /// Makes a member that is there the leader, if the leader is not.
    fn elect_leader(&mut self) -> bool {
        let is_there = |id: &String| self.members.get(id).is_some_and(|member| member.joining.is_some());
        if self.leader.as_ref().is_some_and(is_there) {
            return true;
        }
        let next = self.members.keys().find(|id| is_there(id)).cloned();
        let found = next.is_some();
        if found {
            self.leader = next;
        }
        found
    }

    /// The protocol that every member offers and most want first.
    fn select_protocol(&self) -> Option<String> {
        let by_all = |name: &String| {
            self.members.values().all(|member| member.protocols.iter().any(|(offered, _)| offered == name))
        };
        let mut votes: BTreeMap<&String, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| by_all(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(name, _)| name.clone())
    }

    fn answer_for(&self, member_id: &str, skip_assignment: bool) -> Joined {
        let protocol = self.protocol.clone().unwrap_or_default();
        let leader = self.leader.clone().unwrap_or_default();
        let say =
            |(id, member): (&String, &Member)| (id.clone(), member.instance_id.clone(), member.says_to(&protocol));
        let members = if leader == member_id { self.members.iter().map(say).collect() } else { Vec::new() };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol,
            leader,
            member_id: member_id.to_owned(),
            members,
            skip_assignment,
        }
    }
}

/// Syncing, beating, leaving.
impl ClassicGroup {
    /// Takes in a SyncGroup; its answer comes by [`poll_sync`](Self::poll_sync).
    pub(super) fn sync(
        &mut self,
        who: &Who,
        protocol: (Option<&str>, Option<&str>),
        assignments: BTreeMap<String, Bytes>,
        now: Instant,
    ) -> Result<(), ErrorCode> {
        self.check(who)?;
        let differs = |said: Option<&str>, own: &Option<String>| said.is_some_and(|said| own.as_deref() != Some(said));
        if differs(protocol.0, &self.protocol_type) || differs(protocol.1, &self.protocol) {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        match self.state {
            State::Empty => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            State::Preparing => return Err(ErrorCode::REBALANCE_IN_PROGRESS),
            State::Completing | State::Stable => {}
        }
        self.unsynced.remove(&who.member_id);
        if let Some(member) = self.members.get_mut(&who.member_id) {
            member.syncing = true;
        }
        if self.state == State::Completing && self.leader.as_deref() == Some(&who.member_id) {
            self.assign(assignments, now);
        }
        if self.unsynced.is_empty() {
            self.sync_deadline = None;
        }
        Ok(())
    }

    fn assign(&mut self, mut assignments: BTreeMap<String, Bytes>, now: Instant) {
        for (id, member) in &mut self.members {
            member.assignment = assignments.remove(id).unwrap_or_default();
            member.expires = now + member.session;
        }
        self.state = State::Stable;
        self.persist();
    }

    /// The answer to a SyncGroup, once there is one: what the member gets.
    pub(super) fn poll_sync(&mut self, who: &Who, now: Instant) -> Option<Result<Bytes, ErrorCode>> {
        if let Err(code) = self.check_member(&who.member_id, who.instance_id.as_deref()) {
            return Some(Err(code));
        }
        if self.generation != who.generation || matches!(self.state, State::Preparing | State::Empty) {
            return Some(Err(ErrorCode::REBALANCE_IN_PROGRESS));
        }
        let member = self.members.get_mut(&who.member_id).filter(|_| self.state == State::Stable)?;
        member.syncing = false;
        member.expires = now + member.session;
        Some(Ok(member.assignment.clone()))
    }

    /// A member is alive.
    pub(super) fn heartbeat(&mut self, who: &Who, now: Instant) -> Result<(), ErrorCode> {
        self.check(who)?;
        if self.state == State::Empty {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.touch(&who.member_id, now);
        if self.state == State::Preparing { Err(ErrorCode::REBALANCE_IN_PROGRESS) } else { Ok(()) }
    }

    /// A member goes. A static one may be named by its instance alone.
    pub(super) fn leave(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
        limits: GroupLimits,
        now: Instant,
    ) -> Result<(), ErrorCode> {
        if self.pending.remove(member_id).is_some() {
            self.someone_went(limits, now);
            return Ok(());
        }
        let member_id = match instance_id {
            Some(instance) => {
                let known = self.instances.get(instance).cloned().ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
                if !member_id.is_empty() && member_id != known {
                    return Err(ErrorCode::FENCED_INSTANCE_ID);
                }
                known
            }
            None => member_id.to_owned(),
        };
        if !self.members.contains_key(&member_id) {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.remove(&member_id, limits, now);
        Ok(())
    }

    /// Whether a commit by this member may be.
    pub(super) fn check_commit(&mut self, who: &Who, now: Instant) -> Result<(), ErrorCode> {
        if who.generation < 0 && who.member_id.is_empty() && who.instance_id.is_none() {
            // By hand: allowed while nobody is in the group.
            return if self.state == State::Empty { Ok(()) } else { Err(ErrorCode::UNKNOWN_MEMBER_ID) };
        }
        self.check(who)?;
        if self.state == State::Completing {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        self.touch(&who.member_id, now);
        Ok(())
    }

    /// Whether a transaction may commit for this member; one that names none is let through (KIP-447).
    pub(super) fn check_transactional_commit(&self, who: &Who) -> Result<(), ErrorCode> {
        if who.generation < 0 && who.member_id.is_empty() && who.instance_id.is_none() {
            return Ok(());
        }
        self.check(who)
    }

    fn touch(&mut self, member_id: &str, now: Instant) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.expires = now + member.session;
        }
    }

    fn check(&self, who: &Who) -> Result<(), ErrorCode> {
        self.check_member(&who.member_id, who.instance_id.as_deref())?;
        if who.generation == self.generation { Ok(()) } else { Err(ErrorCode::ILLEGAL_GENERATION) }
    }

    fn check_member(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance) = instance_id {
            let known = self.instances.get(instance).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            if known != member_id {
                return Err(ErrorCode::FENCED_INSTANCE_ID);
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorCode::UNKNOWN_MEMBER_ID) }
    }

    fn remove(&mut self, member_id: &str, limits: GroupLimits, now: Instant) {
        self.forget(member_id);
        self.someone_went(limits, now);
    }

    fn forget(&mut self, member_id: &str) {
        let Some(member) = self.members.remove(member_id) else { return };
        self.unsynced.remove(member_id);
        if let Some(instance) = member.instance_id {
            self.instances.remove(&instance);
        }
        if self.leader.as_deref() == Some(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    fn someone_went(&mut self, limits: GroupLimits, now: Instant) {
        match self.state {
            State::Empty => {}
            State::Stable | State::Completing => self.prepare(limits.initial_delay, now),
            State::Preparing if self.initial.is_none() && self.all_have_joined() => self.complete_join(now),
            State::Preparing => {}
        }
    }
}

/// Time, and what coordinators lose.
impl ClassicGroup {
    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let members = self.members.values().filter(|member| member.can_expire()).map(|member| member.expires);
        let timers = [self.initial.as_ref().map(|initial| initial.until), self.join_deadline, self.sync_deadline];
        members.chain(self.pending.values().copied()).chain(timers.into_iter().flatten()).min()
    }

    /// Removes who is late, and goes on without those who are waited for.
    pub(super) fn handle_timeout(&mut self, limits: GroupLimits, now: Instant) {
        let before = self.pending.len();
        self.pending.retain(|_, until| *until > now);
        if self.pending.len() < before {
            self.someone_went(limits, now);
        }
        let late = self.members.iter().filter(|(_, member)| member.can_expire() && member.expires <= now);
        let late: Vec<String> = late.map(|(id, _)| id.clone()).collect();
        late.iter().for_each(|id| self.remove(id, limits, now));
        self.initial_delay_over(limits, now);
        if self.join_deadline.take_if(|at| *at <= now).is_some() {
            self.complete_join(now);
        }
        if self.sync_deadline.take_if(|at| *at <= now).is_some() {
            let late = std::mem::take(&mut self.unsynced);
            late.iter().for_each(|id| self.forget(id));
            if !late.is_empty() {
                self.someone_went(limits, now);
            }
        }
    }

    fn initial_delay_over(&mut self, limits: GroupLimits, now: Instant) {
        let Some(initial) = self.initial.as_mut().filter(|initial| initial.until <= now) else { return };
        if initial.more_came && !initial.left.is_zero() {
            let next = limits.initial_delay.min(initial.left);
            *initial = InitialDelay { until: now + next, left: initial.left - next, more_came: false };
            return;
        }
        self.complete_join(now);
    }

    /// Ends a member's session now.
    pub(super) fn expire(&mut self, member_id: &str, limits: GroupLimits, now: Instant) -> bool {
        let known = self.members.contains_key(member_id);
        if known {
            self.remove(member_id, limits, now);
        }
        known
    }

    /// Another coordinator takes over: it knows the last complete generation and nothing of joins under way.
    pub(super) fn reload(&mut self, now: Instant) {
        let Some(persisted) = self.persisted.clone() else {
            *self = Self::default();
            return;
        };
        *self = Self {
            state: if persisted.members.is_empty() { State::Empty } else { State::Stable },
            generation: persisted.generation,
            protocol_type: self.protocol_type.take(),
            protocol: persisted.protocol.clone(),
            leader: persisted.leader.clone(),
            members: persisted.members.clone(),
            instances: persisted.instances.clone(),
            next_ticket: self.next_ticket,
            persisted: Some(persisted),
            ..Self::default()
        };
        self.members.values_mut().for_each(|member| member.expires = now + member.session);
    }

    fn persist(&mut self) {
        let calm = |member: &Member| Member { joining: None, joined: None, syncing: false, ..member.clone() };
        self.persisted = Some(Box::new(Persisted {
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members: self.members.iter().map(|(id, member)| (id.clone(), calm(member))).collect(),
            instances: self.instances.clone(),
        }));
    }
}

/// Looks.
impl ClassicGroup {
    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn protocol_type(&self) -> &str {
        self.protocol_type.as_deref().unwrap_or_default()
    }

    pub(super) fn protocol(&self) -> &str {
        self.protocol.as_deref().unwrap_or_default()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&String, &Member)> {
        self.members.iter()
    }

    /// Whether nobody is in it or on the way into it.
    pub(super) fn is_empty(&self) -> bool {
        self.state == State::Empty
    }

    /// What the members say that they read, as clients of the consumer protocol say it.
    pub(super) fn subscriptions(&self) -> impl Iterator<Item = Bytes> {
        let protocol = self.protocol.clone().unwrap_or_default();
        self.members.values().map(move |member| member.says_to(&protocol))
    }
}

impl Member {
    /// What it says to a protocol.
    pub(super) fn says_to(&self, protocol: &str) -> Bytes {
        self.protocols.iter().find(|(name, _)| name == protocol).map(|(_, says)| says.clone()).unwrap_or_default()
    }

    /// Who waits for an answer is alive, but for one that never was a full member.
    fn can_expire(&self) -> bool {
        self.is_new || (self.joining.is_none() && !self.syncing)
    }
}

/// How long a member that never was in a generation may wait for its first (`GroupMetadataManager`).
const NEW_MEMBER_JOIN_TIMEOUT: Duration = Duration::from_secs(300);
