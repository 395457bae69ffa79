//! A coordinator of KIP-848 groups, as Kafka's decides: a target for each member, and the way there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use uuid::Uuid;

use super::super::*;

pub(super) const ORDERS: Uuid = Uuid::from_u128(0xa11ce);
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
pub(super) const SESSION: Duration = Duration::from_secs(10);

type Partitions = BTreeSet<(Uuid, i32)>;

#[derive(Debug)]
pub(super) struct Scripted {
    pub(super) partitions: i32,
    pub(super) epoch: i32,
    pub(super) members: BTreeMap<String, Seat>,
    /// The next answers are these codes.
    pub(super) refuse: VecDeque<ErrorCode>,
    pub(super) seen: Vec<ConsumerGroupHeartbeatRequest>,
}

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) epoch: i32,
    previous: i32,
    /// What it may use.
    pub(super) assigned: Partitions,
    /// What it has to give back before it gets an epoch.
    revoking: Partitions,
    target: Partitions,
    heard: Instant,
    revoke_by: Option<Instant>,
    rebalance_timeout: Duration,
    instance: Option<String>,
}

impl Scripted {
    pub(super) fn new(partitions: i32) -> Self {
        Self { partitions, epoch: 0, members: BTreeMap::new(), refuse: VecDeque::new(), seen: Vec::new() }
    }

    pub(super) fn answer(
        &mut self,
        now: Instant,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> ConsumerGroupHeartbeatResponse {
        self.seen.push(request.clone());
        let refusal = |code: ErrorCode| ConsumerGroupHeartbeatResponse::default().with_error_code(code.0);
        if let Some(code) = self.refuse.pop_front() {
            return refusal(code);
        }
        match self.heartbeat(now, request) {
            Ok(response) => response,
            Err(code) => refusal(code),
        }
    }

    fn heartbeat(
        &mut self,
        now: Instant,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> Result<ConsumerGroupHeartbeatResponse, ErrorCode> {
        let (id, epoch) = (request.member_id.to_string(), request.member_epoch);
        assert!(!id.is_empty(), "version 1 wants an id of the member's");
        let owned = request.topic_partitions.as_ref().map(|topics| {
            topics.iter().flat_map(|t| t.partitions.iter().map(move |p| (t.topic_id, *p))).collect::<Partitions>()
        });
        if epoch < 0 {
            let seat = self.members.get_mut(&id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
            if epoch == -2 {
                seat.epoch = -2;
            } else {
                self.remove(&id);
            }
            return Ok(ConsumerGroupHeartbeatResponse::default().with_member_epoch(epoch));
        }
        if epoch == 0 {
            let whole = request.rebalance_timeout_ms > 0 && request.subscribed_topic_names.is_some();
            if !whole || owned.as_ref().is_none_or(|owned| !owned.is_empty()) {
                return Err(ErrorCode::INVALID_REQUEST);
            }
            self.admit(now, &id, request)?;
        }
        let seat = self.members.get_mut(&id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        // A member whose answer was lost may come with the epoch before, if it says what it owns.
        let behind = epoch == seat.previous && owned.as_ref().is_some_and(|owned| owned.is_subset(&seat.assigned));
        if epoch != 0 && epoch != seat.epoch && !behind {
            return Err(ErrorCode::FENCED_MEMBER_EPOCH);
        }
        seat.heard = now;
        let before = (seat.epoch, seat.assigned.clone());
        if owned.as_ref().is_some_and(|owned| owned.is_disjoint(&seat.revoking)) {
            seat.revoking.clear();
        }
        self.step(now, &id);
        let seat = &self.members[&id];
        let assignment = (request.subscribed_topic_names.is_some() || before != (seat.epoch, seat.assigned.clone()))
            .then(|| assignment(&seat.assigned));
        Ok(ConsumerGroupHeartbeatResponse::default()
            .with_member_id(Some(request.member_id.clone()))
            .with_member_epoch(seat.epoch)
            .with_heartbeat_interval_ms(INTERVAL.as_millis() as i32)
            .with_assignment(assignment))
    }

    fn admit(&mut self, now: Instant, id: &str, request: &ConsumerGroupHeartbeatRequest) -> Result<(), ErrorCode> {
        let instance = request.instance_id.as_ref().map(ToString::to_string);
        let rebalance_timeout = Duration::from_millis(request.rebalance_timeout_ms as u64);
        let mut seat = Seat {
            epoch: 0,
            previous: 0,
            assigned: Partitions::new(),
            revoking: Partitions::new(),
            target: Partitions::new(),
            heard: now,
            revoke_by: None,
            rebalance_timeout,
            instance: instance.clone(),
        };
        let same = |seat: &Seat| instance.is_some() && seat.instance == instance;
        if let Some(other) =
            self.members.iter().find(|(other, seat)| *other != id && same(seat)).map(|(o, _)| o.clone())
        {
            if self.members[&other].epoch != -2 {
                return Err(ErrorCode::UNRELEASED_INSTANCE_ID);
            }
            seat.target = self.members.remove(&other).expect("just found").target;
            self.members.insert(id.to_owned(), seat);
            return Ok(());
        }
        self.members.insert(id.to_owned(), seat);
        self.rebalance();
        Ok(())
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.members.remove(id);
        self.rebalance();
    }

    pub(super) fn tick(&mut self, now: Instant) {
        let dead = |seat: &Seat| now >= seat.heard + SESSION || seat.revoke_by.is_some_and(|by| now >= by);
        while let Some(id) = self.members.iter().find(|(_, seat)| dead(seat)).map(|(id, _)| id.clone()) {
            self.remove(&id);
        }
    }

    /// Sticky and even.
    fn rebalance(&mut self) {
        self.epoch += 1;
        let count = self.members.len().max(1);
        let mut free: Partitions = (0..self.partitions).map(|partition| (ORDERS, partition)).collect();
        for (at, seat) in self.members.values_mut().enumerate() {
            let quota = self.partitions as usize / count + usize::from(at < self.partitions as usize % count);
            seat.target = seat.target.iter().filter(|p| free.contains(*p)).take(quota).copied().collect();
            free.retain(|partition| !seat.target.contains(partition));
        }
        for (at, seat) in self.members.values_mut().enumerate() {
            let quota = self.partitions as usize / count + usize::from(at < self.partitions as usize % count);
            while seat.target.len() < quota
                && let Some(partition) = free.pop_first()
            {
                seat.target.insert(partition);
            }
        }
    }

    /// The member's way to its target: what is too much first, then its epoch, then what nobody else still has.
    fn step(&mut self, now: Instant, id: &str) {
        let taken: Partitions = (self.members.iter())
            .filter(|(other, _)| *other != id)
            .flat_map(|(_, seat)| seat.assigned.union(&seat.revoking))
            .copied()
            .collect();
        let epoch = self.epoch;
        let seat = self.members.get_mut(id).expect("looked up before");
        if !seat.revoking.is_empty() {
            return;
        }
        seat.revoke_by = None;
        let surplus: Partitions = seat.assigned.difference(&seat.target).copied().collect();
        if !surplus.is_empty() && seat.epoch > 0 {
            seat.assigned.retain(|partition| !surplus.contains(partition));
            seat.revoking = surplus;
            seat.revoke_by = Some(now + seat.rebalance_timeout);
            return;
        }
        (seat.previous, seat.epoch) = (if seat.epoch == epoch { seat.previous } else { seat.epoch }, epoch);
        seat.assigned = seat.target.difference(&taken).copied().collect();
    }
}

pub(super) fn assignment(partitions: &Partitions) -> Assignment {
    let mut topics: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for (id, partition) in partitions {
        topics.entry(*id).or_default().push(*partition);
    }
    let topics = topics.into_iter().map(|(id, p)| TopicPartitions::default().with_topic_id(id).with_partitions(p));
    Assignment::default().with_topic_partitions(topics.collect())
}
