//! A member of a classic group, and a coordinator that says anything.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse};
use kafka_protocol::protocol::StrBytes;

use super::owned::Owned;
use crate::machine::group::{CommitGate, CommitReaction, Failure, Group, GroupConfig, GroupRequest, RequestId};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::protocol::subscription::{Assignment, Subscription};
use crate::record::{NodeId, TopicPartition};

pub(super) fn run(choices: &mut Choices<'_>) {
    let mut member = Member::new(choices);
    while let Some(operation) = member.choices.operation(12) {
        member.act(operation);
        member.settle();
    }
    member.end();
}

struct Member<'c, 'a> {
    choices: &'c mut Choices<'a>,
    group: Group,
    now: Instant,
    asked: Vec<(RequestId, Kind)>,
    owned: Owned,
    /// Requests since time passed.
    at_once: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Find,
    Join,
    Sync,
    Heartbeat,
    Leave,
}

impl<'c, 'a> Member<'c, 'a> {
    fn new(choices: &'c mut Choices<'a>) -> Self {
        let mut config = GroupConfig::new("g");
        if choices.once_in(4) {
            config.instance_id = Some(StrBytes::from_static_str("i"));
        }
        config.plain_subscription = choices.once_in(4);
        if choices.once_in(3) {
            config.offers.reverse();
        }
        let now = Instant::now();
        let topics = ["t".into(), "u".into()];
        let seed = u64::from(choices.below(9));
        let group = Group::new(now, config, topics, seed);
        let owned = Owned::default();
        Self { choices, group, now, asked: Vec::new(), owned, at_once: 0 }
    }

    fn act(&mut self, operation: u32) {
        match operation {
            0..=5 => self.answer(),
            6 => self.fail(),
            7 => {
                let time = self.choices.pick(&[1, 20, 3_000, 15_000, 46_000, 310_000]);
                self.pass(Duration::from_millis(time));
            }
            8 => self.pass_to_the_next(),
            9 => self.group.released(self.now),
            10 => self.tell(),
            _ => {
                if self.choices.once_in(6) {
                    self.leave();
                }
            }
        }
    }

    fn leave(&mut self) {
        self.group.leave();
        self.owned.leave();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.at_once = 0;
        self.group.handle_timeout(self.now);
    }

    fn pass_to_the_next(&mut self) {
        if let Some(at) = self.group.poll_timeout() {
            self.pass(at.saturating_duration_since(self.now));
        }
    }

    /// Something of what was asked, not always the first, is answered, not always once.
    fn answer(&mut self) {
        let Some(at) = self.choices.index(self.asked.len()) else { return };
        let (id, kind) = if self.choices.once_in(8) { self.asked[at] } else { self.asked.remove(at) };
        let code = self.choices.code().0;
        match kind {
            Kind::Find => {
                let node = NodeId(self.choices.below(3) as i32 - 1);
                self.group.handle_coordinator(self.now, id, Ok(node));
            }
            Kind::Join => {
                let answer = self.joined().with_error_code(code);
                self.group.handle_join(self.now, id, answer);
            }
            Kind::Sync => {
                let assignment = self.assignment();
                let answer = SyncGroupResponse::default().with_error_code(code).with_assignment(assignment);
                self.group.handle_sync(self.now, id, answer);
            }
            Kind::Heartbeat => {
                self.group.handle_heartbeat(self.now, id, &HeartbeatResponse::default().with_error_code(code));
            }
            Kind::Leave => self.group.handle_leave(id, &LeaveGroupResponse::default().with_error_code(code)),
        }
    }

    fn joined(&mut self) -> JoinGroupResponse {
        let id = |choices: &mut Choices<'_>| StrBytes::from_static_str(choices.pick(&["m", "m", "n", ""]));
        let protocol = self.choices.pick(&["cooperative-sticky", "range", "roundrobin", "sticky", "what"]);
        let members = (0..self.choices.below(3)).map(|_| {
            let metadata = self.subscription();
            JoinGroupResponseMember::default().with_member_id(id(self.choices)).with_metadata(metadata)
        });
        let members = members.collect();
        JoinGroupResponse::default()
            .with_generation_id(self.choices.number() as i32)
            .with_protocol_name(Some(StrBytes::from_static_str(protocol)))
            .with_leader(id(self.choices))
            .with_member_id(id(self.choices))
            .with_skip_assignment(self.choices.once_in(8))
            .with_members(members)
    }

    fn subscription(&mut self) -> Bytes {
        if self.choices.once_in(4) {
            return self.choices.bytes(24).into();
        }
        let owned = (0..self.choices.below(3)).map(|_| self.partition()).collect();
        let subscription = Subscription {
            topics: vec![self.choices.pick(&["t", "u", "v"]).into()],
            user_data: self.choices.once_in(2).then(|| self.choices.bytes(24).into()),
            owned_partitions: Some(owned),
            generation: Some(self.choices.number() as i32),
            rack: None,
        };
        subscription.encode(self.choices.below(4) as i16).expect("it is small")
    }

    fn assignment(&mut self) -> Bytes {
        if self.choices.once_in(8) {
            return self.choices.bytes(24).into();
        }
        let partitions = (0..self.choices.below(4)).map(|_| self.partition()).collect();
        Assignment { partitions, ..Assignment::default() }.encode(0).expect("it is small")
    }

    fn partition(&mut self) -> TopicPartition {
        let topic = self.choices.pick(&["t", "t", "u", "v"]);
        TopicPartition::new(topic, self.choices.pick(&[0, 1, 2, -1, i32::MAX]))
    }

    fn fail(&mut self) {
        let Some(at) = self.choices.index(self.asked.len()) else { return };
        let (id, kind) = self.asked.remove(at);
        let failure =
            Failure { fatal: self.choices.once_in(12), silent: self.choices.once_in(2), what: "lost".to_owned() };
        match kind {
            Kind::Find => self.group.handle_coordinator(self.now, id, Err(failure)),
            _ => self.group.handle_failure(self.now, id, failure),
        }
    }

    /// What others than the coordinator have to say.
    fn tell(&mut self) {
        match self.choices.below(4) {
            0 => self.topics(),
            1 => {
                let count = self.choices.below(3) as i32;
                self.group.handle_counts(self.now, |_| (count > 0).then_some(count));
            }
            2 => self.group.coordinator_moved(self.now, NodeId(self.choices.below(2) as i32)),
            _ => {
                let CommitGate::Open(mut target) = self.group.commit_gate() else { return };
                if self.choices.once_in(3) {
                    target.generation = self.choices.number() as i32;
                }
                let reaction = CommitReaction {
                    moved: self.choices.once_in(3),
                    rebalance: self.choices.once_in(3),
                    fenced: Some(self.choices.code()).filter(|code| !code.is_ok()),
                    target: Some(target),
                };
                self.group.handle_commit_reaction(self.now, &reaction);
            }
        }
    }

    fn topics(&mut self) {
        let mut counts = BTreeMap::new();
        for topic in ["t", "u", "v"] {
            if self.choices.once_in(2) {
                counts.insert(topic.into(), self.choices.below(5) as i32);
            }
        }
        self.owned.asked_for_topics = false;
        self.group.handle_topics(counts);
    }

    /// Sends what is to be sent, hears what is told, and looks whether somebody is left waiting.
    fn settle(&mut self) {
        self.group.handle_timeout(self.now);
        loop {
            let transmit = self.group.poll_transmit(self.now);
            while let Some(event) = self.group.poll_event() {
                self.owned.take(event);
            }
            let Some(transmit) = transmit else { break };
            self.at_once += 1;
            let kind = match transmit.request {
                GroupRequest::FindCoordinator => Kind::Find,
                GroupRequest::Join(..) => Kind::Join,
                GroupRequest::Sync(..) => Kind::Sync,
                GroupRequest::Heartbeat(..) => Kind::Heartbeat,
                GroupRequest::Leave(..) => Kind::Leave,
                other => panic!("{other:?} of a classic member"),
            };
            // A second one of a kind means that the first is given up.
            self.asked.retain(|(_, asked)| *asked != kind);
            self.asked.push((transmit.id, kind));
            assert!(self.at_once < STORM, "asks and asks, and no time passes");
        }
        let next = self.group.poll_timeout();
        if self.group.is_ended() {
            assert!(self.owned.ended && next.is_none(), "over, and not told or still waiting");
            return;
        }
        assert!(next.is_none_or(|at| at > self.now), "a wake-up that is past would spin: {:?}", self.group);
        let waits = !self.asked.is_empty() || self.owned.asked_for_topics;
        assert!(next.is_some() || waits, "nothing will ever happen: {:?}", self.group);
    }

    /// It leaves, and nothing is answered any more.
    fn end(mut self) {
        if self.group.is_ended() {
            return;
        }
        self.leave();
        for _ in 0..100 {
            self.settle();
            if self.group.is_ended() {
                return;
            }
            match self.asked.pop() {
                Some((id, Kind::Find)) => self.group.handle_coordinator(self.now, id, Ok(NodeId(1))),
                Some((id, _)) => {
                    let failure = Failure { fatal: false, silent: true, what: "lost".to_owned() };
                    self.group.handle_failure(self.now, id, failure);
                }
                None => self.pass_to_the_next(),
            }
        }
        panic!("it does not leave: {:?}", self.group);
    }
}

/// More requests than a member has reason for while no time passes, however its coordinator answers.
const STORM: u32 = 64;
