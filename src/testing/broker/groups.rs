//! All groups: what kind each is, and the offsets it has committed.
//!
//! The coordinator of each kind of group is a file of its own; a kind is a variant of [`Kind`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::call::Call;
use super::classic_group::{ClassicGroup, GroupLimits, Who};
use super::consumer_group::{self, ConsumerGroup};
use super::core::Core;
use super::share_group::{self, ShareGroup};
use super::transactions::PendingOffsets;
use crate::protocol::error_code::ErrorCode;
use crate::record::TopicPartition;

/// All groups, by id.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<String, Group>);

/// One group.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) kind: Kind,
    pub(super) offsets: BTreeMap<TopicPartition, Committed>,
    /// Those of open transactions.
    pub(super) pending: PendingOffsets,
}

/// Who coordinates a group, and how.
#[derive(Debug)]
pub(super) enum Kind {
    Classic(ClassicGroup),
    Consumer(ConsumerGroup),
    Share(ShareGroup),
}

impl Default for Kind {
    fn default() -> Self {
        Self::Classic(ClassicGroup::default())
    }
}

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) metadata: String,
}

impl Committed {
    /// What is asked to be committed, in a transaction or not, if it may be: offset and leader epoch, and what is kept beside.
    pub(super) fn take(
        core: &Core,
        call: &Call,
        partition: &TopicPartition,
        (offset, leader_epoch): (i64, i32),
        metadata: Option<&str>,
    ) -> Result<Self, ErrorCode> {
        if let Some(code) = call.failure_of(&partition.topic, partition.partition) {
            return Err(code);
        }
        core.topics.partition(&partition.topic, partition.partition)?;
        let metadata = metadata.unwrap_or_default().to_owned();
        if metadata.len() > core.settings.max_offset_metadata_bytes {
            return Err(ErrorCode::OFFSET_METADATA_TOO_LARGE);
        }
        Ok(Self { offset, leader_epoch, metadata })
    }
}

impl Group {
    /// `classic` or whatever else there is.
    pub(super) fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Classic(_) => "classic",
            Kind::Consumer(_) => "consumer",
            Kind::Share(_) => "share",
        }
    }

    pub(super) fn state_name(&self) -> &'static str {
        match &self.kind {
            Kind::Classic(group) => group.state().name(),
            Kind::Consumer(group) => group.state_name(),
            Kind::Share(group) => group.state_name(),
        }
    }

    pub(super) fn protocol_type(&self) -> &str {
        match &self.kind {
            Kind::Classic(group) => group.protocol_type(),
            Kind::Consumer(_) => "consumer",
            Kind::Share(_) => "share",
        }
    }

    /// Whether nobody is in it.
    pub(super) fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Classic(group) => group.is_empty(),
            Kind::Consumer(group) => group.is_empty(),
            Kind::Share(group) => group.is_empty(),
        }
    }

    /// Whether a commit by this member, of this generation or epoch, may be.
    pub(super) fn check_commit(&mut self, who: &Who, now: Instant) -> Result<(), ErrorCode> {
        match &mut self.kind {
            Kind::Classic(group) => group.check_commit(who, now),
            Kind::Consumer(group) => group.check_commit(&who.member_id, who.generation),
            Kind::Share(_) => Err(ErrorCode::GROUP_ID_NOT_FOUND),
        }
    }

    /// Whether a transaction may commit offsets for this member.
    pub(super) fn check_transactional_commit(&self, who: &Who) -> Result<(), ErrorCode> {
        match &self.kind {
            Kind::Classic(group) => group.check_transactional_commit(who),
            Kind::Share(_) => Err(ErrorCode::GROUP_ID_NOT_FOUND),
            Kind::Consumer(_) if who.generation < 0 && who.member_id.is_empty() => Ok(()),
            Kind::Consumer(group) => group.check_commit(&who.member_id, who.generation),
        }
    }

    /// The group as a classic one.
    ///
    /// # Errors
    /// `GROUP_ID_NOT_FOUND` for one of another kind.
    pub(super) fn classic(&mut self) -> Result<&mut ClassicGroup, ErrorCode> {
        match &mut self.kind {
            Kind::Classic(group) => Ok(group),
            Kind::Consumer(_) | Kind::Share(_) => Err(ErrorCode::GROUP_ID_NOT_FOUND),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Classic(group) => group.poll_timeout(),
            Kind::Consumer(group) => group.poll_timeout(),
            Kind::Share(group) => group.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, limits: GroupLimits, share: share_group::Limits, now: Instant) {
        match &mut self.kind {
            Kind::Classic(group) => group.handle_timeout(limits, now),
            Kind::Consumer(group) => group.handle_timeout(now),
            Kind::Share(group) => group.handle_timeout(share, now),
        }
    }

    fn reload(&mut self, limits: consumer_group::Limits, now: Instant) {
        match &mut self.kind {
            Kind::Classic(group) => group.reload(now),
            Kind::Consumer(group) => group.reload(limits, now),
            // Its members and locks are kept, as in Kafka: both are written down.
            Kind::Share(_) => {}
        }
    }
}

impl Groups {
    pub(super) fn get(&self, id: &str) -> Option<&Group> {
        self.0.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut Group> {
        self.0.get_mut(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Group)> {
        self.0.iter()
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.0.remove(id);
    }

    /// The group, made if it is not there and there is room.
    pub(super) fn get_or_create(&mut self, id: &str, most: usize) -> Result<&mut Group, ErrorCode> {
        if self.0.len() >= most && !self.0.contains_key(id) {
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        Ok(self.0.entry(id.to_owned()).or_default())
    }

    /// The group as one of the new protocol. One of the classic protocol becomes one when nobody is in it; its offsets stay.
    ///
    /// # Errors
    /// `GROUP_ID_NOT_FOUND` where there is none, or one of another kind that has members.
    pub(super) fn consumer(&mut self, id: &str, create: bool, most: usize) -> Result<&mut ConsumerGroup, ErrorCode> {
        let group = if create {
            self.get_or_create(id, most)?
        } else {
            self.0.get_mut(id).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?
        };
        if create && matches!(group.kind, Kind::Classic(_)) && group.is_empty() {
            group.kind = Kind::Consumer(ConsumerGroup::default());
        }
        match &mut group.kind {
            Kind::Consumer(group) => Ok(group),
            Kind::Classic(_) | Kind::Share(_) => Err(ErrorCode::GROUP_ID_NOT_FOUND),
        }
    }

    /// The group as a share group.
    ///
    /// # Errors
    /// `GROUP_ID_NOT_FOUND` where there is none, or one of another kind, though nobody is in it.
    pub(super) fn share(&mut self, id: &str, create: bool, most: usize) -> Result<&mut ShareGroup, ErrorCode> {
        let is_new = create && !self.0.contains_key(id);
        let group = if create {
            self.get_or_create(id, most)?
        } else {
            self.0.get_mut(id).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?
        };
        if is_new {
            group.kind = Kind::Share(ShareGroup::default());
        }
        match &mut group.kind {
            Kind::Share(group) => Ok(group),
            Kind::Classic(_) | Kind::Consumer(_) => Err(ErrorCode::GROUP_ID_NOT_FOUND),
        }
    }

    /// The group as a classic one, which one of another kind becomes when nobody is in it.
    ///
    /// # Errors
    /// `INCONSISTENT_GROUP_PROTOCOL` for one of another kind that has members.
    pub(super) fn classic(&mut self, id: &str, most: usize) -> Result<&mut ClassicGroup, ErrorCode> {
        let group = self.get_or_create(id, most)?;
        if matches!(group.kind, Kind::Consumer(_)) && group.is_empty() {
            group.kind = Kind::Classic(ClassicGroup::default());
        }
        group.classic().map_err(|_| ErrorCode::INCONSISTENT_GROUP_PROTOCOL)
    }

    /// A topic is gone, and what was committed on it.
    pub(super) fn forget_topic(&mut self, topic: &str) {
        for group in self.0.values_mut() {
            group.offsets.retain(|partition, _| *partition.topic != *topic);
            group.pending.forget_topic(topic);
        }
    }

    /// A transaction that committed offsets of this group has ended.
    pub(super) fn end_transaction(&mut self, group: &str, producer_id: i64, committed: bool) {
        let Some(group) = self.0.get_mut(group) else { return };
        let pending = group.pending.take(producer_id);
        if committed {
            group.offsets.extend(pending);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.values().filter_map(Group::poll_timeout).min()
    }

    /// Does what is due; tells whether anything was.
    pub(super) fn handle_timeout(&mut self, limits: GroupLimits, share: share_group::Limits, now: Instant) -> bool {
        let mut any = false;
        for group in self.0.values_mut().filter(|group| group.poll_timeout().is_some_and(|at| at <= now)) {
            group.handle_timeout(limits, share, now);
            any = true;
        }
        any
    }

    /// These groups have a new coordinator.
    pub(super) fn reload(
        &mut self,
        moved: impl Fn(&str) -> bool,
        limits: impl Fn(&str) -> consumer_group::Limits,
        now: Instant,
    ) {
        self.0.iter_mut().filter(|(id, _)| moved(id)).for_each(|(id, group)| group.reload(limits(id), now));
    }
}

/// Groups, as requests reach them.
impl Core {
    /// Checks that this node coordinates the group.
    ///
    /// # Errors
    /// `NOT_COORDINATOR`.
    pub(super) fn check_coordinator(&self, call: &Call, group: &str) -> Result<(), ErrorCode> {
        match self.coordinator_of(group) {
            Some(node) if node == call.node => Ok(()),
            _ => Err(ErrorCode::NOT_COORDINATOR),
        }
    }

    /// Checks that this node coordinates a group that members may be in. The one without a name holds offsets alone, of
    /// clients from before there were groups.
    ///
    /// # Errors
    /// `INVALID_GROUP_ID` for that one, `NOT_COORDINATOR`.
    pub(super) fn check_named_group(&self, call: &Call, group: &str) -> Result<(), ErrorCode> {
        if group.is_empty() { Err(ErrorCode::INVALID_GROUP_ID) } else { self.check_coordinator(call, group) }
    }

    /// A group that this node coordinates.
    ///
    /// # Errors
    /// Those of [`check_coordinator`](Self::check_coordinator); `GROUP_ID_NOT_FOUND`.
    pub(super) fn group(&mut self, call: &Call, group: &str) -> Result<&mut Group, ErrorCode> {
        self.check_coordinator(call, group)?;
        self.groups.get_mut(group).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)
    }

    /// A classic group that this node coordinates.
    ///
    /// # Errors
    /// As [`group`](Self::group), but `UNKNOWN_MEMBER_ID` where there is none: what a member hears.
    pub(super) fn classic_group(&mut self, call: &Call, group: &str) -> Result<&mut ClassicGroup, ErrorCode> {
        self.check_named_group(call, group)?;
        let unknown = |code| if code == ErrorCode::GROUP_ID_NOT_FOUND { ErrorCode::UNKNOWN_MEMBER_ID } else { code };
        self.group(call, group).and_then(Group::classic).map_err(unknown)
    }

    /// What holds for each group of the new protocol: what is set on it, or the cluster's.
    pub(super) fn consumer_group_limits(&self) -> impl Fn(&str) -> consumer_group::Limits + use<> {
        const SESSION: &str = "consumer.session.timeout.ms";
        let given = self.configs.groups.keys();
        let own = given.filter_map(|group| Some((group.clone(), self.group_millis(group, SESSION)?)));
        let (own, cluster): (BTreeMap<String, Duration>, _) = (own.collect(), self.settings.consumer_group_session);
        let max_members = self.settings.max_group_members;
        move |group| consumer_group::Limits { session: own.get(group).copied().unwrap_or(cluster), max_members }
    }

    pub(super) fn group_limits(&self) -> GroupLimits {
        GroupLimits {
            initial_delay: self.settings.initial_rebalance_delay,
            max_members: self.settings.max_group_members,
        }
    }
}

/// A bit for each operation that a group has (`AclOperation`): read, delete, describe, and its settings.
pub(super) const GROUP_OPERATIONS: i32 = 0b1101_0100_1000;
