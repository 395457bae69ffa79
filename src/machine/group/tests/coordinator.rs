//! A group coordinator as Kafka has it, for one classic group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    OffsetCommitRequest, OffsetCommitResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::protocol::error_code::ErrorCode;
use crate::record::{Offset, TopicPartition};

/// Whom an answer is for: a member's place in the world, and its request.
pub(super) type ReplyTo = (usize, u64);

#[derive(Debug)]
pub(super) enum Reply {
    Join(JoinGroupResponse),
    Sync(SyncGroupResponse),
    Heartbeat(HeartbeatResponse),
    Leave(LeaveGroupResponse),
    Commit(OffsetCommitResponse),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Empty,
    Joining { until: Instant },
    Syncing { until: Instant },
    Stable,
}

#[derive(Debug)]
pub(super) struct Coordinator {
    pub(super) phase: Phase,
    pub(super) generation: i32,
    pub(super) protocol: String,
    pub(super) members: BTreeMap<String, Member>,
    pub(super) committed: BTreeMap<TopicPartition, Offset>,
    /// Refuses everything with this code.
    pub(super) refuse: Option<ErrorCode>,
    /// Completed rebalances.
    pub(super) rebalances: u32,
    pub(super) joins: u32,
    leader: String,
    /// Ids that were handed out and have not joined yet.
    pending: BTreeSet<String>,
    last_member: u32,
    replies: Vec<(ReplyTo, Reply)>,
}

#[derive(Debug)]
pub(super) struct Member {
    protocols: Vec<(String, Bytes)>,
    session: Duration,
    rebalance: Duration,
    alive_until: Instant,
    joining: Option<ReplyTo>,
    syncing: Option<ReplyTo>,
    assignment: Bytes,
}

impl Member {
    /// Whether its request is held here, so that it is known to live.
    fn waits(&self) -> bool {
        self.joining.is_some() || self.syncing.is_some()
    }
}

impl Coordinator {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Empty,
            generation: 0,
            protocol: String::new(),
            members: BTreeMap::new(),
            committed: BTreeMap::new(),
            refuse: None,
            rebalances: 0,
            joins: 0,
            leader: String::new(),
            pending: BTreeSet::new(),
            last_member: 0,
            replies: Vec::new(),
        }
    }

    pub(super) fn take_replies(&mut self) -> Vec<(ReplyTo, Reply)> {
        std::mem::take(&mut self.replies)
    }

    /// When [`Self::tick`] has something to do.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Joining { until } | Phase::Syncing { until } => Some(until),
            _ => None,
        };
        let sessions = self.members.values().filter(|m| !m.waits()).map(|m| m.alive_until);
        sessions.chain(phase).min()
    }

    pub(super) fn tick(&mut self, now: Instant) {
        let dead: Vec<_> =
            self.members.iter().filter(|(_, m)| !m.waits() && now >= m.alive_until).map(|(id, _)| id.clone()).collect();
        for id in dead {
            self.remove(now, &id);
        }
        match self.phase {
            Phase::Joining { until } if now >= until => self.complete_join(now),
            Phase::Syncing { until } if now >= until => {
                // Whoever has not synced by now is gone.
                let late: Vec<_> =
                    self.members.iter().filter(|(_, m)| m.syncing.is_none()).map(|(id, _)| id.clone()).collect();
                for id in late {
                    self.remove(now, &id);
                }
                if matches!(self.phase, Phase::Syncing { .. }) {
                    self.rebalance(now);
                }
            }
            _ => {}
        }
    }

    pub(super) fn join(&mut self, now: Instant, to: ReplyTo, request: &JoinGroupRequest) {
        self.joins += 1;
        let refuse = |code: ErrorCode| Reply::Join(JoinGroupResponse::default().with_error_code(code.0));
        if let Some(code) = self.refuse {
            return self.replies.push((to, refuse(code)));
        }
        let id = request.member_id.to_string();
        if id.is_empty() {
            self.last_member += 1;
            let id = format!("member-{}", self.last_member);
            self.pending.insert(id.clone());
            let reply = JoinGroupResponse::default()
                .with_error_code(ErrorCode::MEMBER_ID_REQUIRED.0)
                .with_member_id(StrBytes::from_string(id));
            return self.replies.push((to, Reply::Join(reply)));
        }
        let protocols: Vec<_> = request.protocols.iter().map(|p| (p.name.to_string(), p.metadata.clone())).collect();
        let known_to_others = |name: &str| {
            self.members
                .iter()
                .filter(|(other, _)| **other != id)
                .all(|(_, m)| m.protocols.iter().any(|(n, _)| n == name))
        };
        if !protocols.iter().any(|(name, _)| known_to_others(name)) {
            return self.replies.push((to, refuse(ErrorCode::INCONSISTENT_GROUP_PROTOCOL)));
        }
        if !self.members.contains_key(&id) && !self.pending.remove(&id) {
            return self.replies.push((to, refuse(ErrorCode::UNKNOWN_MEMBER_ID)));
        }
        let session = Duration::from_millis(request.session_timeout_ms as u64);
        let rebalance = Duration::from_millis(request.rebalance_timeout_ms as u64);
        let member = self.members.entry(id.clone()).or_insert_with(|| Member {
            protocols: Vec::new(),
            session,
            rebalance,
            alive_until: now + session,
            joining: None,
            syncing: None,
            assignment: Bytes::new(),
        });
        member.protocols = protocols;
        member.alive_until = now + session;
        member.joining = Some(to);
        if self.leader.is_empty() {
            self.leader = id;
        }
        if !matches!(self.phase, Phase::Joining { .. }) {
            self.rebalance(now);
        }
        self.join_if_all_are_here(now);
    }

    pub(super) fn sync(&mut self, now: Instant, to: ReplyTo, request: &SyncGroupRequest) {
        let code = self.check(now, &request.member_id, request.generation_id).unwrap_or(match self.phase {
            Phase::Joining { .. } => ErrorCode::REBALANCE_IN_PROGRESS,
            Phase::Empty => ErrorCode::UNKNOWN_MEMBER_ID,
            Phase::Syncing { .. } | Phase::Stable => ErrorCode::NONE,
        });
        if !code.is_ok() {
            return self.replies.push((to, Reply::Sync(SyncGroupResponse::default().with_error_code(code.0))));
        }
        let id = request.member_id.to_string();
        self.members.get_mut(&id).unwrap().syncing = Some(to);
        if id == self.leader && matches!(self.phase, Phase::Syncing { .. }) {
            for given in &request.assignments {
                if let Some(member) = self.members.get_mut(given.member_id.as_str()) {
                    member.assignment = given.assignment.clone();
                }
            }
            self.phase = Phase::Stable;
            self.rebalances += 1;
        }
        if self.phase == Phase::Stable {
            for member in self.members.values_mut() {
                if let Some(to) = member.syncing.take() {
                    member.alive_until = now + member.session;
                    let reply = SyncGroupResponse::default().with_assignment(member.assignment.clone());
                    self.replies.push((to, Reply::Sync(reply)));
                }
            }
        }
    }

    pub(super) fn heartbeat(&mut self, now: Instant, to: ReplyTo, request: &HeartbeatRequest) {
        let code = self.check(now, &request.member_id, request.generation_id).unwrap_or(match self.phase {
            Phase::Joining { .. } => ErrorCode::REBALANCE_IN_PROGRESS,
            _ => ErrorCode::NONE,
        });
        self.replies.push((to, Reply::Heartbeat(HeartbeatResponse::default().with_error_code(code.0))));
    }

    pub(super) fn leave(&mut self, now: Instant, to: ReplyTo, request: &LeaveGroupRequest) {
        for member in &request.members {
            self.remove(now, member.member_id.as_str());
        }
        self.replies.push((to, Reply::Leave(LeaveGroupResponse::default())));
    }

    pub(super) fn commit(&mut self, now: Instant, to: ReplyTo, request: &OffsetCommitRequest) {
        let code =
            self.check(now, &request.member_id, request.generation_id_or_member_epoch).unwrap_or(match self.phase {
                Phase::Syncing { .. } => ErrorCode::REBALANCE_IN_PROGRESS,
                _ => ErrorCode::NONE,
            });
        let topics = request
            .topics
            .iter()
            .map(|topic| {
                let partitions = topic.partitions.iter().map(|p| {
                    if code.is_ok() {
                        let partition = TopicPartition::new(topic.name.as_str(), p.partition_index);
                        self.committed.insert(partition, Offset(p.committed_offset));
                    }
                    OffsetCommitResponsePartition::default()
                        .with_partition_index(p.partition_index)
                        .with_error_code(code.0)
                });
                OffsetCommitResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
            })
            .collect();
        self.replies.push((to, Reply::Commit(OffsetCommitResponse::default().with_topics(topics))));
    }

    /// Forgets the member, as after its session.
    pub(super) fn expel(&mut self, now: Instant, id: &str) {
        self.remove(now, id);
    }

    /// Drops what is parked, as a coordinator that stops.
    pub(super) fn restart(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            member.joining = None;
            member.syncing = None;
            member.alive_until = now + member.session;
        }
        self.replies.clear();
    }

    fn check(&mut self, now: Instant, id: &str, generation: i32) -> Option<ErrorCode> {
        if let Some(code) = self.refuse {
            return Some(code);
        }
        let Some(member) = self.members.get_mut(id) else { return Some(ErrorCode::UNKNOWN_MEMBER_ID) };
        if generation != self.generation {
            return Some(ErrorCode::ILLEGAL_GENERATION);
        }
        member.alive_until = now + member.session;
        None
    }

    fn remove(&mut self, now: Instant, id: &str) {
        self.pending.remove(id);
        let Some(gone) = self.members.remove(id) else { return };
        if let Some(to) = gone.joining {
            let reply = JoinGroupResponse::default().with_error_code(ErrorCode::UNKNOWN_MEMBER_ID.0);
            self.replies.push((to, Reply::Join(reply)));
        }
        if let Some(to) = gone.syncing {
            let reply = SyncGroupResponse::default().with_error_code(ErrorCode::UNKNOWN_MEMBER_ID.0);
            self.replies.push((to, Reply::Sync(reply)));
        }
        if self.leader == id {
            self.leader = self.members.keys().next().cloned().unwrap_or_default();
        }
        if self.members.is_empty() {
            self.phase = Phase::Empty;
            self.generation += 1;
            return;
        }
        if !matches!(self.phase, Phase::Joining { .. }) {
            self.rebalance(now);
        }
        self.join_if_all_are_here(now);
    }

    fn rebalance(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            if let Some(to) = member.syncing.take() {
                let reply = SyncGroupResponse::default().with_error_code(ErrorCode::REBALANCE_IN_PROGRESS.0);
                self.replies.push((to, Reply::Sync(reply)));
            }
        }
        let longest = self.members.values().map(|m| m.rebalance).max().unwrap_or_default();
        self.phase = Phase::Joining { until: now + longest };
    }

    fn join_if_all_are_here(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Joining { .. }) && self.members.values().all(|m| m.joining.is_some()) {
            self.complete_join(now);
        }
    }

    fn complete_join(&mut self, now: Instant) {
        let late: Vec<_> = self.members.iter().filter(|(_, m)| m.joining.is_none()).map(|(id, _)| id.clone()).collect();
        for id in late {
            // Not `remove`: the rebalance goes on without them.
            self.members.remove(&id);
        }
        self.generation += 1;
        if self.members.is_empty() {
            self.phase = Phase::Empty;
            self.leader.clear();
            return;
        }
        if !self.members.contains_key(&self.leader) {
            self.leader = self.members.keys().next().cloned().unwrap_or_default();
        }
        let everybody_has =
            |name: &String| self.members.values().all(|m| m.protocols.iter().any(|(offered, _)| offered == name));
        let first = &self.members[&self.leader];
        self.protocol = first.protocols.iter().map(|(n, _)| n).find(|n| everybody_has(n)).cloned().unwrap_or_default();
        let metadata_of = |m: &Member| {
            m.protocols
                .iter()
                .find(|(name, _)| *name == self.protocol)
                .map(|(_, bytes)| bytes.clone())
                .unwrap_or_default()
        };
        let everybody: Vec<_> = self
            .members
            .iter()
            .map(|(id, m)| {
                JoinGroupResponseMember::default()
                    .with_member_id(StrBytes::from_string(id.clone()))
                    .with_metadata(metadata_of(m))
            })
            .collect();
        let longest = self.members.values().map(|m| m.rebalance).max().unwrap_or_default();
        for (id, member) in &mut self.members {
            member.assignment = Bytes::new();
            member.alive_until = now + member.session;
            let Some(to) = member.joining.take() else { continue };
            let members = if *id == self.leader { everybody.clone() } else { Vec::new() };
            let reply = JoinGroupResponse::default()
                .with_generation_id(self.generation)
                .with_protocol_name(Some(StrBytes::from_string(self.protocol.clone())))
                .with_leader(StrBytes::from_string(self.leader.clone()))
                .with_member_id(StrBytes::from_string(id.clone()))
                .with_members(members);
            self.replies.push((to, Reply::Join(reply)));
        }
        self.phase = Phase::Syncing { until: now + longest };
    }
}
