//! Members, their handlers and a coordinator, with latency between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::super::*;
use super::coordinator::{Coordinator, Phase, Reply, ReplyTo};
use crate::machine::group::commit::CommitTransmit;
use crate::record::Offset;

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) start: Instant,
    pub(super) coordinator: Coordinator,
    pub(super) nodes: Vec<Node>,
    pub(super) counts: BTreeMap<Topic, i32>,
    pub(super) latency: Duration,
    /// How far each partition was handled, without a gap.
    pub(super) handled: BTreeMap<TopicPartition, i64>,
    /// How often a record was handled again.
    pub(super) repeats: u64,
    /// Between two records of a member.
    pub(super) work_every: Duration,
    wire: BTreeMap<(Instant, u64), Packet>,
    packets: u64,
    next_work: Instant,
}

/// One member, and the application above it.
pub(super) struct Node {
    pub(super) group: Group,
    pub(super) commits: Commits,
    /// What the application works on, and where it stands.
    pub(super) owns: BTreeMap<TopicPartition, Offset>,
    pub(super) revoking: BTreeSet<TopicPartition>,
    /// How long its handlers take to let go.
    pub(super) handler: Duration,
    pub(super) told: Vec<GroupEvent>,
    pub(super) outcomes: Vec<Committed>,
    pub(super) dead: bool,
    /// Whether its packets are lost.
    pub(super) cut: bool,
    pub(super) commits_while_revoking: bool,
    release_at: Option<Instant>,
    ticket: u64,
}

enum Packet {
    Request(ReplyTo, Ask),
    Reply(ReplyTo, Reply),
    Found(usize, RequestId),
    NotFound(usize, RequestId),
    Topics(usize),
    TimedOut(ReplyTo, bool),
}

enum Ask {
    Group(GroupRequest),
    Commit(CommitTransmit),
}

impl World {
    pub(super) fn new(partitions: i32) -> Self {
        let now = Instant::now();
        Self {
            now,
            start: now,
            coordinator: Coordinator::new(),
            nodes: Vec::new(),
            counts: [(Topic::from("orders"), partitions)].into(),
            latency: Duration::from_millis(3),
            handled: BTreeMap::new(),
            repeats: 0,
            work_every: Duration::from_millis(50),
            wire: BTreeMap::new(),
            packets: 0,
            next_work: now,
        }
    }

    pub(super) fn config() -> GroupConfig {
        GroupConfig { session_timeout: Duration::from_secs(10), ..GroupConfig::new("g") }
    }

    pub(super) fn join(&mut self) -> usize {
        self.join_with(Self::config(), &["orders"])
    }

    pub(super) fn join_with(&mut self, config: GroupConfig, topics: &[&str]) -> usize {
        let seed = self.nodes.len() as u64 + 7;
        let group = Group::new(self.now, config, topics.iter().map(|topic| Topic::from(*topic)), seed);
        self.nodes.push(Node {
            group,
            commits: Commits::new("g", Duration::from_secs(60), Duration::from_secs(30), GROUP_BACKOFF, seed),
            owns: BTreeMap::new(),
            revoking: BTreeSet::new(),
            handler: Duration::ZERO,
            told: Vec::new(),
            outcomes: Vec::new(),
            dead: false,
            cut: false,
            commits_while_revoking: true,
            release_at: None,
            ticket: 0,
        });
        self.nodes.len() - 1
    }

    pub(super) fn leave(&mut self, node: usize) {
        self.nodes[node].group.leave();
        self.nodes[node].owns.clear();
        self.nodes[node].revoking.clear();
        self.nodes[node].release_at = None;
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].dead = true;
        self.nodes[node].owns.clear();
    }

    /// Lets time pass, event by event.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut still = 0;
        loop {
            self.pump();
            self.check();
            let next = self.next_event().min(end);
            // Events without time passing come to an end, or somebody asks in a loop.
            still = if next > self.now { 0 } else { still + 1 };
            assert!(still < 1_000, "a loop at {:?}\n{}", self.now - self.start, self.picture());
            if next >= end {
                self.now = end;
                return;
            }
            self.now = next.max(self.now);
            self.step();
        }
    }

    /// Runs until it holds, and fails after `limit`.
    pub(super) fn run_until(&mut self, limit: Duration, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = self.now + limit;
        while !holds(self) {
            assert!(self.now < end, "not within {limit:?}: {what}\n{}", self.picture());
            self.run(Duration::from_millis(10));
        }
    }

    /// Until every living member is stable and all partitions have an owner.
    pub(super) fn settle(&mut self) {
        let all: i32 = self.counts.values().sum();
        self.run_until(Duration::from_secs(60), "settled", |world| {
            world.coordinator.phase == Phase::Stable
                && world.living().all(|node| node.group.is_stable() && node.revoking.is_empty())
                && world.living().map(|node| node.owns.len()).sum::<usize>() == all as usize
        });
    }

    pub(super) fn shares(&self) -> Vec<usize> {
        self.nodes.iter().map(|node| node.owns.len()).collect()
    }

    pub(super) fn living(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.dead && !node.group.is_ended())
    }

    pub(super) fn picture(&self) -> String {
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|n| format!("{:?} dead {} owns {:?} revoking {:?}", n.group.state, n.dead, n.owns, n.revoking))
            .collect();
        format!("{:?} {}\n{:#?}", self.coordinator.phase, self.coordinator.generation, nodes)
    }

    fn next_event(&self) -> Instant {
        let wire = self.wire.keys().next().map(|(at, _)| *at).into_iter();
        let timers = self.nodes.iter().filter(|node| !node.dead).flat_map(|node| {
            // A release that is due waits for its commits.
            let release = node.release_at.filter(|release| *release > self.now);
            [node.group.poll_timeout(), node.commits.poll_timeout(), release].into_iter().flatten()
        });
        let times = wire.chain(timers).chain(self.coordinator.next_tick()).chain([self.next_work]);
        times.min().expect("work never ends")
    }

    fn step(&mut self) {
        self.coordinator.tick(self.now);
        while let Some(next) = self.wire.first_entry().filter(|next| next.key().0 <= self.now) {
            let packet = next.remove();
            self.deliver(packet);
        }
        for node in self.nodes.iter_mut().filter(|node| !node.dead) {
            node.group.handle_timeout(self.now);
            node.commits.handle_timeout(self.now);
        }
        if self.now >= self.next_work {
            self.next_work = self.now + self.work_every;
            self.work();
        }
    }

    fn pump(&mut self) {
        for (to, reply) in self.coordinator.take_replies() {
            self.send(Packet::Reply(to, reply));
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].dead {
                continue;
            }
            loop {
                self.events(at);
                self.release(at);
                let node = &mut self.nodes[at];
                if let Some(Transmit { id, request, timeout }) = node.group.poll_transmit(self.now) {
                    match request {
                        GroupRequest::FindCoordinator => {
                            self.alarm(timeout, Packet::NotFound(at, id));
                            self.send(Packet::Found(at, id));
                        }
                        request => {
                            self.alarm(timeout, Packet::TimedOut((at, id.0), false));
                            self.send(Packet::Request((at, id.0), Ask::Group(request)));
                        }
                    }
                    continue;
                }
                let gate = node.group.commit_gate();
                if let Some(commit) = node.commits.poll_transmit(self.now, &gate) {
                    let timeout = Duration::from_secs(30);
                    self.alarm(timeout, Packet::TimedOut((at, commit.id), true));
                    self.send(Packet::Request((at, commit.id), Ask::Commit(commit)));
                    continue;
                }
                node.outcomes.extend(std::iter::from_fn(|| node.commits.poll_outcome()));
                break;
            }
        }
    }

    fn send(&mut self, packet: Packet) {
        let at = match &packet {
            Packet::Request(to, _) | Packet::Reply(to, _) | Packet::TimedOut(to, _) => to.0,
            Packet::Found(at, _) | Packet::NotFound(at, _) | Packet::Topics(at) => *at,
        };
        self.packets += 1;
        if !self.nodes[at].cut {
            self.wire.insert((self.now + self.latency, self.packets), packet);
        }
    }

    fn alarm(&mut self, after: Duration, packet: Packet) {
        self.packets += 1;
        self.wire.insert((self.now + after, self.packets), packet);
    }

    fn deliver(&mut self, packet: Packet) {
        let now = self.now;
        match packet {
            Packet::Found(at, id) => self.nodes[at].group.handle_coordinator(now, id, Ok(NodeId(1))),
            Packet::NotFound(at, id) => {
                let late = Failure { fatal: false, silent: true, what: "late".into() };
                self.nodes[at].group.handle_coordinator(now, id, Err(late));
            }
            Packet::Topics(at) => {
                let counts = self.counts.clone();
                self.nodes[at].group.handle_topics(counts);
            }
            Packet::TimedOut((at, id), commit) => {
                let node = &mut self.nodes[at];
                if commit {
                    self.react_to_failure(at, id);
                } else {
                    node.group.handle_failure(
                        now,
                        RequestId(id),
                        Failure { fatal: false, silent: true, what: "late".into() },
                    );
                }
            }
            Packet::Request((at, id), ask) => self.ask((at, id), ask),
            Packet::Reply((at, id), reply) => {
                if !self.nodes[at].dead {
                    self.reply(at, id, reply);
                }
            }
        }
    }

    fn ask(&mut self, to: ReplyTo, ask: Ask) {
        let now = self.now;
        match ask {
            Ask::Group(
                GroupRequest::FindCoordinator | GroupRequest::Describe(..) | GroupRequest::ConsumerHeartbeat(..),
            ) => {}
            Ask::Group(GroupRequest::Join(_, request)) => self.coordinator.join(now, to, &request),
            Ask::Group(GroupRequest::Sync(_, request)) => self.coordinator.sync(now, to, &request),
            Ask::Group(GroupRequest::Heartbeat(_, request)) => self.coordinator.heartbeat(now, to, &request),
            Ask::Group(GroupRequest::Leave(_, request)) => self.coordinator.leave(now, to, &request),
            Ask::Commit(commit) => self.coordinator.commit(now, to, &commit.request),
        }
    }

    fn reply(&mut self, at: usize, id: u64, reply: Reply) {
        let (now, node) = (self.now, &mut self.nodes[at]);
        let request = RequestId(id);
        match reply {
            Reply::Join(response) => node.group.handle_join(now, request, response),
            Reply::Sync(response) => node.group.handle_sync(now, request, response),
            Reply::Heartbeat(response) => node.group.handle_heartbeat(now, request, &response),
            Reply::Leave(response) => node.group.handle_leave(request, &response),
            Reply::Commit(response) => {
                let reaction = node.commits.handle_response(now, id, &response);
                node.group.handle_commit_reaction(now, &reaction);
            }
        }
    }

    fn react_to_failure(&mut self, at: usize, id: u64) {
        let node = &mut self.nodes[at];
        let reaction = node.commits.handle_failure(self.now, id, false, "late".into());
        node.group.handle_commit_reaction(self.now, &reaction);
    }

    fn events(&mut self, at: usize) {
        while let Some(event) = self.nodes[at].group.poll_event() {
            match &event {
                GroupEvent::NeedTopics { .. } => self.send(Packet::Topics(at)),
                GroupEvent::Assigned { added, .. } => {
                    for partition in added {
                        let position = self.coordinator.committed.get(partition).copied().unwrap_or_default();
                        let before = self.nodes[at].owns.insert(partition.clone(), position);
                        assert!(before.is_none(), "{partition} came twice");
                    }
                }
                GroupEvent::Revoked { partitions } => {
                    let node = &mut self.nodes[at];
                    node.revoking.extend(partitions.iter().cloned());
                    node.release_at = Some(self.now + node.handler);
                }
                GroupEvent::Released { partitions } => {
                    let node = &mut self.nodes[at];
                    node.release_at = None;
                    node.commits.forget(partitions);
                    for partition in partitions {
                        node.revoking.remove(partition);
                        assert!(node.owns.remove(partition).is_some(), "{partition} was not ours");
                    }
                }
                GroupEvent::Lost { partitions, .. } => {
                    let node = &mut self.nodes[at];
                    node.release_at = None;
                    node.commits.forget(partitions);
                    for partition in partitions {
                        node.revoking.remove(partition);
                        assert!(node.owns.remove(partition).is_some(), "{partition} was not ours");
                    }
                }
                GroupEvent::Fault(_) | GroupEvent::UseClassic { .. } | GroupEvent::Ended { .. } => {}
            }
            self.nodes[at].told.push(event);
        }
    }

    fn release(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.release_at.is_some_and(|release| self.now >= release) && !node.commits.is_busy_with(&node.revoking) {
            node.group.released(self.now);
        }
    }

    /// Every member handles one record of each of its partitions, and commits.
    fn work(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| !node.dead) {
            let mut done = Vec::new();
            for (partition, position) in &mut node.owns {
                if node.revoking.contains(partition) && !node.commits_while_revoking {
                    continue;
                }
                let handled = self.handled.entry(partition.clone()).or_default();
                assert!(position.0 <= *handled, "{partition}: {position} was never reached, {handled} was");
                self.repeats += u64::from(position.0 < *handled);
                *position = position.next();
                *handled = (*handled).max(position.0);
                done.push((partition.clone(), *position));
            }
            for (partition, offset) in done {
                node.ticket += 1;
                let request = CommitRequest { partition, offset, leader_epoch: None, note: None };
                node.commits.commit(self.now, node.ticket, request);
            }
        }
    }

    /// What must hold at any moment.
    fn check(&self) {
        let mut owners: BTreeMap<&TopicPartition, usize> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let current = node.group.generation == self.coordinator.generation
                && self.coordinator.members.contains_key(node.group.member_id.as_str());
            if node.dead || !current || !node.group.is_stable() {
                continue;
            }
            for partition in node.owns.keys() {
                let other = owners.insert(partition, at);
                assert!(other.is_none(), "{partition} has two owners in one generation\n{}", self.picture());
            }
        }
        for (partition, committed) in &self.coordinator.committed {
            let handled = self.handled.get(partition).copied().unwrap_or_default();
            assert!(committed.0 <= handled, "{partition}: committed past what was handled");
        }
    }
}

impl Node {
    pub(super) fn lost(&self) -> usize {
        self.told.iter().filter(|event| matches!(event, GroupEvent::Lost { .. })).count()
    }

    pub(super) fn revoked(&self) -> usize {
        self.told.iter().filter(|event| matches!(event, GroupEvent::Revoked { .. })).count()
    }

    pub(super) fn faults(&self) -> Vec<&GroupFault> {
        self.told
            .iter()
            .filter_map(|event| if let GroupEvent::Fault(fault) = event { Some(fault) } else { None })
            .collect()
    }

    pub(super) fn end(&self) -> Option<&EndReason> {
        self.told.iter().find_map(|event| if let GroupEvent::Ended { reason } = event { Some(reason) } else { None })
    }
}
