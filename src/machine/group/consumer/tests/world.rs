//! Members and their coordinator in virtual time, with latency and loss between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::super::*;
use super::coordinator::{ORDERS, Scripted};

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) coordinator: Scripted,
    pub(super) nodes: Vec<Node>,
    /// Whether metadata has the topic yet.
    pub(super) named: bool,
    /// Answers that are lost before the next that arrives.
    pub(super) lose: usize,
    wire: BTreeMap<(Instant, u64), Packet>,
    packets: u64,
}

pub(super) struct Node {
    pub(super) group: ConsumerGroup,
    pub(super) owns: BTreeSet<TopicPartition>,
    pub(super) told: Vec<GroupEvent>,
    pub(super) handler: Duration,
    pub(super) dead: bool,
    release_at: Option<Instant>,
}

enum Packet {
    Found(usize, RequestId),
    Request(usize, RequestId, kafka_protocol::messages::ConsumerGroupHeartbeatRequest),
    Answer(usize, RequestId, ConsumerGroupHeartbeatResponse),
    Late(usize, RequestId),
    Names(usize),
}

impl World {
    pub(super) fn new(partitions: i32) -> Self {
        Self {
            now: Instant::now(),
            coordinator: Scripted::new(partitions),
            nodes: Vec::new(),
            named: true,
            lose: 0,
            wire: BTreeMap::new(),
            packets: 0,
        }
    }

    pub(super) fn config() -> GroupConfig {
        GroupConfig { session_timeout: Duration::from_secs(10), ..GroupConfig::new("g") }
    }

    pub(super) fn join(&mut self) -> usize {
        self.join_with(Self::config())
    }

    pub(super) fn join_with(&mut self, config: GroupConfig) -> usize {
        let at = self.nodes.len();
        let group = ConsumerGroup::new(self.now, config, [Topic::from("orders")], format!("member-{at}"), at as u64);
        self.nodes.push(Node {
            group,
            owns: BTreeSet::new(),
            told: Vec::new(),
            handler: Duration::ZERO,
            dead: false,
            release_at: None,
        });
        at
    }

    pub(super) fn leave(&mut self, at: usize) {
        self.nodes[at].group.leave();
        self.nodes[at].owns.clear();
        self.nodes[at].release_at = None;
    }

    pub(super) fn kill(&mut self, at: usize) {
        self.nodes[at].dead = true;
        self.nodes[at].owns.clear();
    }

    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        let mut still = 0;
        loop {
            self.pump();
            self.check();
            let next = self.next_event().min(end);
            still = if next > self.now { 0 } else { still + 1 };
            assert!(still < 1_000, "a loop");
            self.now = next.max(self.now);
            if next >= end {
                return;
            }
            self.coordinator.tick(self.now);
            while let Some(next) = self.wire.first_entry().filter(|next| next.key().0 <= self.now) {
                let packet = next.remove();
                self.deliver(packet);
            }
            for node in self.nodes.iter_mut().filter(|node| !node.dead) {
                node.group.handle_timeout(self.now);
            }
        }
    }

    pub(super) fn run_until(&mut self, limit: Duration, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = self.now + limit;
        while !holds(self) {
            let shares: Vec<_> = self.nodes.iter().map(|n| (&n.owns, &n.group)).collect();
            assert!(self.now < end, "not within {limit:?}: {what}\n{shares:#?}\n{:#?}", self.coordinator.members);
            self.run(Duration::from_millis(10));
        }
    }

    /// Until all partitions have an owner, and all members what the coordinator wants them to have.
    pub(super) fn settle(&mut self) {
        self.run_until(Duration::from_secs(120), "settled", |world| {
            let living = || world.nodes.iter().filter(|node| !node.dead && !node.group.is_ended());
            living().map(|node| node.owns.len()).sum::<usize>() == world.coordinator.partitions as usize
                && living().all(|node| {
                    matches!(node.group.state, State::Stable) && node.group.epoch == world.coordinator.epoch
                })
                && world.coordinator.members.len() == living().count()
        });
    }

    pub(super) fn shares(&self) -> Vec<usize> {
        self.nodes.iter().map(|node| node.owns.len()).collect()
    }

    fn next_event(&self) -> Instant {
        let wire = self.wire.keys().next().map(|(at, _)| *at).into_iter();
        let timers = self
            .nodes
            .iter()
            .filter(|node| !node.dead)
            .flat_map(|node| [node.group.poll_timeout(), node.release_at].into_iter().flatten());
        wire.chain(timers).chain([self.now + Duration::from_millis(500)]).min().expect("at least the tick")
    }

    fn pump(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].dead {
                continue;
            }
            loop {
                self.events(at);
                let (now, node) = (self.now, &mut self.nodes[at]);
                if node.release_at.take_if(|release| now >= *release).is_some() {
                    node.group.released(now);
                    continue;
                }
                let Some(Transmit { id, request, timeout }) = node.group.poll_transmit(now) else { break };
                match request {
                    GroupRequest::FindCoordinator => self.send(LATENCY, Packet::Found(at, id)),
                    GroupRequest::ConsumerHeartbeat(_, request) => {
                        self.send(timeout, Packet::Late(at, id));
                        self.send(LATENCY, Packet::Request(at, id, request));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn send(&mut self, after: Duration, packet: Packet) {
        self.packets += 1;
        self.wire.insert((self.now + after, self.packets), packet);
    }

    fn deliver(&mut self, packet: Packet) {
        let (now, named) = (self.now, self.named);
        let name = |id: Uuid| (named && id == ORDERS).then(|| Topic::from("orders"));
        match packet {
            Packet::Found(at, id) => self.nodes[at].group.handle_coordinator(now, id, Ok(NodeId(1))),
            Packet::Request(at, id, request) => {
                let response = self.coordinator.answer(now, &request);
                if self.lose > 0 {
                    self.lose -= 1;
                } else {
                    self.send(LATENCY, Packet::Answer(at, id, response));
                }
            }
            Packet::Answer(at, id, response) => self.nodes[at].group.handle_heartbeat(now, id, &response, name),
            Packet::Late(at, id) => {
                let failure = Failure { fatal: false, silent: true, what: "late".into() };
                self.nodes[at].group.handle_failure(now, id, failure);
            }
            Packet::Names(at) => self.nodes[at].group.handle_names(now, name),
        }
    }

    fn events(&mut self, at: usize) {
        while let Some(event) = self.nodes[at].group.poll_event() {
            let (now, node) = (self.now, &mut self.nodes[at]);
            match &event {
                GroupEvent::NeedTopics { .. } => self.send(LATENCY, Packet::Names(at)),
                GroupEvent::Assigned { added, .. } => {
                    for partition in added {
                        assert!(node.owns.insert(partition.clone()), "{partition} came twice");
                    }
                }
                GroupEvent::Revoked { .. } => node.release_at = Some(now + node.handler),
                GroupEvent::Released { partitions } | GroupEvent::Lost { partitions, .. } => {
                    node.release_at = None;
                    for partition in partitions {
                        assert!(node.owns.remove(partition), "{partition} was not ours");
                    }
                }
                GroupEvent::Fault(_) | GroupEvent::UseClassic { .. } | GroupEvent::Ended { .. } => {}
            }
            self.nodes[at].told.push(event);
        }
    }

    /// A partition that two members may commit on would be the end of all order.
    fn check(&self) {
        let mut owners: BTreeMap<&TopicPartition, usize> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let seat = self.coordinator.members.get(node.group.member_id.as_str());
            // Commits of any other epoch are refused.
            if node.dead || !node.group.is_member() || seat.is_none_or(|seat| seat.epoch != node.group.epoch) {
                continue;
            }
            for partition in &node.owns {
                assert!(owners.insert(partition, at).is_none(), "{partition} has two owners");
            }
        }
    }
}

impl Node {
    /// Whether it has left, or is about to.
    pub(super) fn is_going(&self) -> bool {
        matches!(self.group.state, State::Leaving { again: false } | State::Ended)
    }

    pub(super) fn count(&self, of: impl Fn(&GroupEvent) -> bool) -> usize {
        self.told.iter().filter(|event| of(event)).count()
    }

    pub(super) fn lost(&self) -> usize {
        self.count(|event| matches!(event, GroupEvent::Lost { .. }))
    }

    pub(super) fn revoked(&self) -> usize {
        self.count(|event| matches!(event, GroupEvent::Revoked { .. }))
    }

    pub(super) fn end(&self) -> Option<&EndReason> {
        self.told.iter().find_map(|event| if let GroupEvent::Ended { reason } = event { Some(reason) } else { None })
    }
}

const LATENCY: Duration = Duration::from_millis(3);
