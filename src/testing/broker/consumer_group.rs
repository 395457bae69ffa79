//! The coordinator of one group of the new protocol: the broker assigns, members reconcile one by one (KIP-848).
//!
//! ```text
//!               target has another epoch                 what is to go is gone
//!   Stable ──────────────────────────► Unrevoked ─────────────────────────────► Unreleased or Stable
//!     ▲  └──── nothing to give up ────────────────────► Unreleased                │
//!     └──────────────────────── others gave up what it is to get ◄────────────────┘
//! ```
//!
//! As `CurrentAssignmentBuilder` and `GroupMetadataManager` of Kafka 4 do it. A member never gets a partition that another
//! one still has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::expression::Expression;
use super::topics::Topics;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};

/// A group.
#[derive(Debug, Default)]
pub(super) struct ConsumerGroup {
    epoch: i32,
    target_epoch: i32,
    members: BTreeMap<String, Member>,
    /// Member ids of static members, by instance id.
    instances: BTreeMap<String, String>,
    /// How many partitions the topics had that the target was made for.
    known: BTreeMap<Topic, i32>,
}

/// A member.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) epoch: i32,
    previous_epoch: i32,
    pub(super) instance_id: Option<String>,
    pub(super) rack_id: Option<String>,
    pub(super) client_id: String,
    /// What it names.
    pub(super) topics: BTreeSet<Topic>,
    /// What else it wants, by a regular expression.
    pub(super) expression: Option<Expression>,
    /// The topics that the expression is for.
    described: BTreeSet<Topic>,
    assignor: Option<String>,
    rebalance_timeout: Duration,
    state: State,
    pub(super) assigned: BTreeSet<TopicPartition>,
    /// What it is asked to give up.
    revoking: BTreeSet<TopicPartition>,
    pub(super) target: BTreeSet<TopicPartition>,
    expires: Option<Instant>,
    /// When it has to have given up what it is asked to.
    revokes_by: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Stable,
    Unrevoked,
    Unreleased,
}

/// A heartbeat. What is `None` has not changed.
#[derive(Debug, Clone)]
pub(super) struct Beat {
    pub(super) member_id: String,
    pub(super) epoch: i32,
    pub(super) instance_id: Option<String>,
    pub(super) rack_id: Option<String>,
    pub(super) client_id: String,
    pub(super) rebalance_timeout: Option<Duration>,
    pub(super) topics: Option<BTreeSet<Topic>>,
    /// `Some(None)` takes back the one before.
    pub(super) expression: Option<Option<Expression>>,
    pub(super) assignor: Option<String>,
    pub(super) owned: Option<BTreeSet<TopicPartition>>,
}

impl Beat {
    /// Whether it says what the member wants.
    fn subscribes(&self) -> bool {
        self.topics.is_some() || self.expression.is_some()
    }
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beaten {
    pub(super) member_id: String,
    pub(super) epoch: i32,
    /// What it has, where it is told.
    pub(super) assigned: Option<BTreeSet<TopicPartition>>,
}

/// Settings of the coordinator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) session: Duration,
    pub(super) max_members: usize,
}

impl ConsumerGroup {
    /// Takes in a heartbeat.
    pub(super) fn beat(
        &mut self,
        beat: Beat,
        limits: Limits,
        topics: &Topics,
        now: Instant,
    ) -> Result<Beaten, ErrorCode> {
        match beat.epoch {
            LEAVE | LEAVE_STATIC => return self.leave(&beat, topics, limits, now),
            epoch if epoch < LEAVE_STATIC => return Err(ErrorCode::INVALID_REQUEST),
            _ => {}
        }
        self.enter(&beat, limits)?;
        let full = beat.rebalance_timeout.is_some() && beat.subscribes() && beat.owned.is_some();
        let (joins, owned, member_id) = (beat.epoch == 0, beat.owned.clone(), beat.member_id.clone());
        let before = self.members.get(&member_id).map(|member| member.assigned.clone());
        if self.update(beat) {
            self.outdate();
        }
        self.refresh(topics);
        self.reconcile(&member_id, owned.as_ref(), now);
        let member = self.members.get_mut(&member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        member.expires = Some(now + limits.session);
        let tells = joins || full || before.as_ref() != Some(&member.assigned);
        Ok(Beaten { member_id, epoch: member.epoch, assigned: tells.then(|| member.assigned.clone()) })
    }

    /// Checks that the member may beat in this epoch; makes it where it is new.
    fn enter(&mut self, beat: &Beat, limits: Limits) -> Result<(), ErrorCode> {
        if beat.epoch == 0 && (beat.rebalance_timeout.is_none() || !beat.subscribes()) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if beat.epoch == 0 && beat.owned.as_ref().is_none_or(|owned| !owned.is_empty()) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if beat.assignor.as_deref().is_some_and(|assignor| !ASSIGNORS.contains(&assignor)) {
            return Err(ErrorCode::UNSUPPORTED_ASSIGNOR);
        }
        if let Some(instance) = &beat.instance_id {
            self.enter_static(instance, beat)?;
        }
        match self.members.get(&beat.member_id) {
            Some(member) => member.check_epoch(beat),
            None if beat.epoch != 0 => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            None if self.members.len() >= limits.max_members => Err(ErrorCode::GROUP_MAX_SIZE_REACHED),
            None => {
                self.members.insert(beat.member_id.clone(), Member::new(beat));
                if let Some(instance) = &beat.instance_id {
                    self.instances.insert(instance.clone(), beat.member_id.clone());
                }
                self.outdate();
                Ok(())
            }
        }
    }

    /// A static member that said it would be back gives its place to its successor.
    fn enter_static(&mut self, instance: &str, beat: &Beat) -> Result<(), ErrorCode> {
        let Some(holder) = self.instances.get(instance).cloned() else {
            return if beat.epoch == 0 { Ok(()) } else { Err(ErrorCode::UNKNOWN_MEMBER_ID) };
        };
        if holder == beat.member_id {
            return Ok(());
        }
        if beat.epoch != 0 {
            return Err(ErrorCode::FENCED_INSTANCE_ID);
        }
        if self.members.get(&holder).is_some_and(|member| member.epoch != LEAVE_STATIC) {
            return Err(ErrorCode::UNRELEASED_INSTANCE_ID);
        }
        if let Some(member) = self.members.remove(&holder) {
            let back = Member { epoch: 0, previous_epoch: 0, client_id: beat.client_id.clone(), ..member };
            self.members.insert(beat.member_id.clone(), back);
        }
        self.instances.insert(instance.to_owned(), beat.member_id.clone());
        Ok(())
    }

    /// Takes in what a member says of itself; whether the target has to be made anew for it.
    fn update(&mut self, beat: Beat) -> bool {
        let Some(member) = self.members.get_mut(&beat.member_id) else { return false };
        if let Some(timeout) = beat.rebalance_timeout {
            member.rebalance_timeout = timeout;
        }
        member.rack_id = beat.rack_id.or(member.rack_id.take());
        let other_assignor = beat.assignor.is_some() && beat.assignor != member.assignor;
        if beat.assignor.is_some() {
            member.assignor = beat.assignor;
        }
        let other_topics = beat.topics.as_ref().is_some_and(|topics| *topics != member.topics);
        if let Some(topics) = beat.topics {
            member.topics = topics;
        }
        let other_expression = beat.expression.as_ref().is_some_and(|expression| *expression != member.expression);
        if let Some(expression) = beat.expression {
            member.expression = expression;
        }
        other_topics || other_expression || other_assignor
    }

    /// The target has to be made anew.
    fn outdate(&mut self) {
        self.epoch = self.target_epoch.saturating_add(1);
    }

    /// Makes a new target where members or topics changed.
    fn refresh(&mut self, topics: &Topics) {
        let mut other = false;
        for member in self.members.values_mut() {
            other |= member.describe(topics);
        }
        if other {
            self.outdate();
        }
        let wanted: BTreeSet<&Topic> = self.members.values().flat_map(Member::wanted).collect();
        let counts = wanted.into_iter().filter_map(|name| {
            let (_, topic) = topics.get(name)?;
            Some((name.clone(), i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX)))
        });
        let counts: BTreeMap<Topic, i32> = counts.collect();
        if counts != self.known {
            self.known = counts;
            self.outdate();
        }
        if self.target_epoch < self.epoch {
            self.assign();
            self.target_epoch = self.epoch;
        }
    }

    /// The target: as even as can be, and as little moved (`UniformAssignor`); by ranges of each topic where members want that.
    fn assign(&mut self) {
        let by_range = self.assignor() == RANGE;
        for member in self.members.values_mut() {
            let known = &self.known;
            let (topics, described) = (&member.topics, &member.described);
            member.target.retain(|at| {
                !by_range
                    && (topics.contains(&at.topic) || described.contains(&at.topic))
                    && known.get(&at.topic).is_some_and(|count| at.partition < *count)
            });
        }
        for (topic, count) in self.known.clone() {
            let of_topic: Vec<String> =
                self.members.iter().filter(|(_, it)| it.wants(&topic)).map(|(id, _)| id.clone()).collect();
            if by_range {
                self.assign_range(&topic, count, &of_topic);
            } else {
                self.assign_evenly(&topic, count, &of_topic);
            }
        }
    }

    fn assign_range(&mut self, topic: &Topic, count: i32, members: &[String]) {
        let mut next = 0;
        for (index, id) in members.iter().enumerate() {
            let share = count as usize / members.len() + usize::from(index < count as usize % members.len());
            let Some(member) = self.members.get_mut(id) else { continue };
            member.target.extend((next..next + share as i32).map(|partition| TopicPartition::new(topic, partition)));
            next += share as i32;
        }
    }

    fn assign_evenly(&mut self, topic: &Topic, count: i32, members: &[String]) {
        if members.is_empty() {
            return;
        }
        // Who has more than a share gives up the rest.
        let (share, extra) = (count as usize / members.len(), count as usize % members.len());
        let mut larger = extra;
        let mut free: BTreeSet<i32> = (0..count).collect();
        for id in members {
            let Some(member) = self.members.get_mut(id) else { continue };
            let own: Vec<i32> = member.target.iter().filter(|at| at.topic == *topic).map(|at| at.partition).collect();
            let keeps = if own.len() > share && larger > 0 { share + 1 } else { share };
            larger -= usize::from(own.len() >= keeps && keeps > share);
            for partition in &own[..own.len().min(keeps)] {
                free.remove(partition);
            }
            for partition in own.iter().skip(keeps) {
                member.target.remove(&TopicPartition::new(topic, *partition));
            }
        }
        for partition in free {
            let load = |id: &&String| {
                let target = self.members.get(*id).map(|member| &member.target);
                let of_topic = target.map_or(0, |target| target.iter().filter(|at| at.topic == *topic).count());
                (of_topic, target.map_or(0, BTreeSet::len))
            };
            let least = members.iter().min_by_key(load).cloned();
            if let Some(member) = least.and_then(|id| self.members.get_mut(&id)) {
                member.target.insert(TopicPartition::new(topic, partition));
            }
        }
    }

    /// The assignor that most members want; uniform where they do not say.
    pub(super) fn assignor(&self) -> &'static str {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        self.members
            .values()
            .filter_map(|member| member.assignor.as_deref())
            .for_each(|it| *votes.entry(it).or_default() += 1);
        let most = votes.into_iter().max_by_key(|(_, votes)| *votes).map_or(UNIFORM, |(name, _)| name);
        if most == RANGE { RANGE } else { UNIFORM }
    }

    /// Brings a member nearer to its target.
    fn reconcile(&mut self, member_id: &str, owned: Option<&BTreeSet<TopicPartition>>, now: Instant) {
        let target_epoch = self.target_epoch;
        let of_others: BTreeSet<TopicPartition> = self
            .members
            .iter()
            .filter(|(id, _)| *id != member_id)
            .flat_map(|(_, member)| member.assigned.iter().chain(&member.revoking))
            .cloned()
            .collect();
        let Some(member) = self.members.get_mut(member_id) else { return };
        match member.state {
            State::Stable if member.epoch == target_epoch => return,
            State::Unrevoked => {
                let still_has = owned.is_none_or(|owned| member.revoking.iter().any(|at| owned.contains(at)));
                if still_has {
                    return;
                }
            }
            State::Stable | State::Unreleased => {}
        }
        (member.revoking, member.revokes_by) = (BTreeSet::new(), None);
        let to_revoke: BTreeSet<TopicPartition> = member.assigned.difference(&member.target).cloned().collect();
        member.assigned = member.assigned.intersection(&member.target).cloned().collect();
        // What the member has told that it does not have needs no revocation.
        let has = |at: &TopicPartition| owned.is_none_or(|owned| owned.contains(at));
        if to_revoke.iter().any(has) {
            member.revoking = to_revoke;
            member.state = State::Unrevoked;
            member.revokes_by = Some(now + member.rebalance_timeout);
            return;
        }
        let (held, free): (Vec<_>, Vec<_>) =
            member.target.difference(&member.assigned).cloned().partition(|at| of_others.contains(at));
        member.assigned.extend(free);
        member.state = if held.is_empty() { State::Stable } else { State::Unreleased };
        if member.epoch != target_epoch {
            member.previous_epoch = member.epoch;
            member.epoch = target_epoch;
        }
    }

    fn leave(&mut self, beat: &Beat, topics: &Topics, limits: Limits, now: Instant) -> Result<Beaten, ErrorCode> {
        let id = &beat.member_id;
        if let Some(instance) = &beat.instance_id {
            let holder = self.instances.get(instance).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            if holder != id {
                return Err(ErrorCode::FENCED_INSTANCE_ID);
            }
        }
        let member = self.members.get_mut(id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if beat.epoch == LEAVE_STATIC {
            // It keeps its place until its session is over.
            member.epoch = LEAVE_STATIC;
            member.expires = Some(now + limits.session);
            member.assigned.extend(std::mem::take(&mut member.revoking));
            member.state = State::Stable;
        } else {
            self.remove(id);
            self.refresh(topics);
        }
        Ok(Beaten { member_id: id.clone(), epoch: beat.epoch, assigned: None })
    }

    fn remove(&mut self, member_id: &str) {
        if let Some(member) = self.members.remove(member_id) {
            if let Some(instance) = member.instance_id {
                self.instances.remove(&instance);
            }
            self.outdate();
        }
    }
}

/// Commits, time and looks.
impl ConsumerGroup {
    /// Whether a commit of this member in this epoch may be.
    pub(super) fn check_commit(&self, member_id: &str, epoch: i32) -> Result<(), ErrorCode> {
        if epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if member.epoch == epoch { Ok(()) } else { Err(ErrorCode::STALE_MEMBER_EPOCH) }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.members.values().filter_map(Member::due).min()
    }

    /// Removes who is silent, and who does not give up what it is asked to.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let late = self.members.iter().filter(|(_, member)| member.due().is_some_and(|at| at <= now));
        let late: Vec<String> = late.map(|(id, _)| id.clone()).collect();
        late.iter().for_each(|id| self.remove(id));
    }

    /// Ends a member's session now.
    pub(super) fn expire(&mut self, member_id: &str) -> bool {
        let known = self.members.contains_key(member_id);
        self.remove(member_id);
        known
    }

    /// A new coordinator counts sessions from now.
    pub(super) fn reload(&mut self, limits: Limits, now: Instant) {
        for member in self.members.values_mut() {
            member.expires = Some(now + limits.session);
            member.revokes_by = member.revokes_by.map(|_| now + member.rebalance_timeout);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&String, &Member)> {
        self.members.iter()
    }

    /// Group epoch and the target's.
    pub(super) fn epochs(&self) -> (i32, i32) {
        (self.epoch, self.target_epoch)
    }

    /// Kafka's name for what it is at.
    pub(super) fn state_name(&self) -> &'static str {
        let settled = |member: &Member| member.state == State::Stable && member.epoch == self.target_epoch;
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > self.target_epoch {
            "Assigning"
        } else if self.members.values().all(settled) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// Whether a member reads this topic.
    pub(super) fn reads(&self, topic: &str) -> bool {
        self.members.values().any(|member| member.wants(topic))
    }
}

impl Member {
    fn new(beat: &Beat) -> Self {
        Self {
            epoch: 0,
            previous_epoch: 0,
            instance_id: beat.instance_id.clone(),
            rack_id: None,
            client_id: beat.client_id.clone(),
            topics: BTreeSet::new(),
            expression: None,
            described: BTreeSet::new(),
            assignor: None,
            rebalance_timeout: Duration::ZERO,
            state: State::Stable,
            assigned: BTreeSet::new(),
            revoking: BTreeSet::new(),
            target: BTreeSet::new(),
            expires: None,
            revokes_by: None,
        }
    }

    /// One epoch back is allowed to who has not got the answer, if it has nothing that it was not given.
    fn check_epoch(&self, beat: &Beat) -> Result<(), ErrorCode> {
        if beat.epoch == self.epoch || beat.epoch == 0 {
            return Ok(());
        }
        let has_its_own = beat.owned.as_ref().is_some_and(|owned| owned.is_subset(&self.assigned));
        let lost_answer = beat.epoch == self.previous_epoch && has_its_own;
        if beat.epoch < self.epoch && lost_answer { Ok(()) } else { Err(ErrorCode::FENCED_MEMBER_EPOCH) }
    }

    /// Looks its expression up; whether other topics are found than before.
    fn describe(&mut self, topics: &Topics) -> bool {
        let found = self
            .expression
            .iter()
            .flat_map(|expression| topics.iter().map(|(name, _)| name).filter(|name| expression.fits(name)).cloned());
        let found: BTreeSet<Topic> = found.collect();
        let other = found != self.described;
        self.described = found;
        other
    }

    fn wanted(&self) -> impl Iterator<Item = &Topic> {
        self.topics.iter().chain(&self.described)
    }

    fn wants(&self, topic: &str) -> bool {
        self.topics.contains(topic) || self.described.contains(topic)
    }

    fn due(&self) -> Option<Instant> {
        [self.expires, self.revokes_by].into_iter().flatten().min()
    }
}

/// A member goes for good.
const LEAVE: i32 = -1;
/// A static member will be back.
const LEAVE_STATIC: i32 = -2;
const UNIFORM: &str = "uniform";
const RANGE: &str = "range";
const ASSIGNORS: [&str; 2] = [UNIFORM, RANGE];
