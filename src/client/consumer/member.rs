//! The machine of a membership, of one protocol or the other.

use std::collections::BTreeSet;
use std::time::Instant;

use kafka_protocol::protocol::StrBytes;

use super::{GroupProtocol, Settings};
use crate::client::now;
use crate::machine::group::{
    CommitGate, CommitReaction, ConsumerGroup, Failure, Group, GroupEvent, RequestId, Transmit,
};
use crate::record::{NodeId, Topic};

/// A member of a group.
pub(super) enum Member {
    /// It and the other members assign.
    Classic(Box<Group>),
    /// The coordinator assigns (KIP-848).
    Consumer(Box<ConsumerGroup>),
}

/// Hands a call to the machine, whichever it is.
macro_rules! either {
    ($member:expr, $machine:ident => $call:expr) => {
        match $member {
            Member::Classic($machine) => $call,
            Member::Consumer($machine) => $call,
        }
    };
}

impl Member {
    pub(super) fn new(settings: &Settings, topics: BTreeSet<Topic>) -> Self {
        if settings.protocol == GroupProtocol::Classic {
            return Self::classic(settings, topics);
        }
        let id = uuid::Uuid::from_u128(fastrand::u128(..)).to_string();
        let group = ConsumerGroup::new(now(), settings.group.clone(), topics, id, fastrand::u64(..));
        let auto = settings.protocol == GroupProtocol::Auto;
        Self::Consumer(Box::new(if auto { group.or_classic() } else { group }))
    }

    pub(super) fn classic(settings: &Settings, topics: BTreeSet<Topic>) -> Self {
        Self::Classic(Box::new(Group::new(now(), settings.group.clone(), topics, fastrand::u64(..))))
    }

    /// Subscribes to these topics from now on.
    pub(super) fn subscribe(&mut self, now: Instant, topics: BTreeSet<Topic>) {
        either!(self, group => group.subscribe(now, topics));
    }

    pub(super) fn as_classic(&mut self) -> Option<&mut Group> {
        match self {
            Self::Classic(group) => Some(group),
            Self::Consumer(_) => None,
        }
    }

    pub(super) fn as_consumer(&mut self) -> Option<&mut ConsumerGroup> {
        match self {
            Self::Consumer(group) => Some(group),
            Self::Classic(_) => None,
        }
    }

    pub(super) fn coordinator(&self) -> Option<NodeId> {
        either!(self, group => group.coordinator())
    }

    pub(super) fn is_ended(&self) -> bool {
        either!(self, group => group.is_ended())
    }

    /// As whom to ask for committed positions, where that matters.
    pub(super) fn identity(&self) -> Option<(StrBytes, i32)> {
        match self {
            Self::Classic(_) => None,
            Self::Consumer(group) => group.identity(),
        }
    }

    pub(super) fn watched_topics(&self) -> BTreeSet<Topic> {
        match self {
            Self::Classic(group) => group.watched_topics(),
            Self::Consumer(group) => group.topics().clone(),
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        either!(self, group => group.poll_transmit(now))
    }

    pub(super) fn poll_event(&mut self) -> Option<GroupEvent> {
        either!(self, group => group.poll_event())
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        either!(self, group => group.poll_timeout())
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        either!(self, group => group.handle_timeout(now));
    }

    pub(super) fn handle_coordinator(&mut self, now: Instant, id: RequestId, found: Result<NodeId, Failure>) {
        either!(self, group => group.handle_coordinator(now, id, found));
    }

    pub(super) fn handle_failure(&mut self, now: Instant, id: RequestId, failure: Failure) {
        either!(self, group => group.handle_failure(now, id, failure));
    }

    pub(super) fn coordinator_moved(&mut self, now: Instant, node: NodeId) {
        either!(self, group => group.coordinator_moved(now, node));
    }

    pub(super) fn handle_commit_reaction(&mut self, now: Instant, reaction: &CommitReaction) {
        either!(self, group => group.handle_commit_reaction(now, reaction));
    }

    pub(super) fn released(&mut self, now: Instant) {
        either!(self, group => group.released(now));
    }

    pub(super) fn leave(&mut self) {
        either!(self, group => group.leave());
    }

    pub(super) fn commit_gate(&self) -> CommitGate {
        either!(self, group => group.commit_gate())
    }
}
