//! A member of a share group, and a coordinator that says anything.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::ShareGroupHeartbeatResponse;
use kafka_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::machine::group::Failure;
use crate::machine::share::{MemberConfig, MemberEvent, MemberRequest, ShareMember};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::record::{NodeId, Topic, TopicPartition};

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
    machine: ShareMember,
    now: Instant,
    asked: Vec<(u64, Kind)>,
    /// What was told last.
    assigned: BTreeMap<TopicPartition, Uuid>,
    ended: bool,
    at_once: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Find,
    Heartbeat,
}

impl<'c, 'a> Member<'c, 'a> {
    fn new(choices: &'c mut Choices<'a>) -> Self {
        let now = Instant::now();
        let topics = [Topic::from("t"), Topic::from("u")].into();
        let config = MemberConfig { topics, session_timeout: Duration::from_secs(10), ..MemberConfig::new("g") };
        let machine = ShareMember::new(now, config, "m".to_owned(), u64::from(choices.below(9)));
        Self { choices, machine, now, asked: Vec::new(), assigned: BTreeMap::new(), ended: false, at_once: 0 }
    }

    fn act(&mut self, operation: u32) {
        match operation {
            0..=5 => self.answer(),
            6 => self.fail(),
            7 => {
                let time = self.choices.pick(&[1, 20, 3_000, 11_000, 200_000]);
                self.pass(Duration::from_millis(time));
            }
            8 | 9 => self.pass_to_the_next(),
            10 => {
                let known = self.choices.below(4);
                self.machine.handle_names(self.now, |topic| name(topic, known));
            }
            _ => {
                if self.choices.once_in(6) {
                    self.machine.leave();
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.at_once = 0;
        self.machine.handle_timeout(self.now);
    }

    fn pass_to_the_next(&mut self) {
        if let Some(at) = self.machine.poll_timeout() {
            self.pass(at.saturating_duration_since(self.now));
        }
    }

    fn answer(&mut self) {
        let Some(at) = self.choices.index(self.asked.len()) else { return };
        let (id, kind) = if self.choices.once_in(8) { self.asked[at] } else { self.asked.remove(at) };
        match kind {
            Kind::Find => {
                let node = NodeId(self.choices.below(3) as i32 - 1);
                self.machine.handle_coordinator(self.now, id, Ok(node));
            }
            Kind::Heartbeat => {
                let answer = self.heartbeat();
                let known = self.choices.below(4);
                self.machine.handle_heartbeat(self.now, id, &answer, |topic| name(topic, known));
            }
        }
    }

    fn heartbeat(&mut self) -> ShareGroupHeartbeatResponse {
        let assignment = self.choices.once_in(2).then(|| {
            let topics = (0..self.choices.below(3)).map(|_| {
                let partitions = (0..self.choices.below(3)).map(|_| self.choices.pick(&[0, 1, -1, i32::MAX]));
                let partitions = partitions.collect();
                let id = Uuid::from_u128(u128::from(self.choices.below(4)));
                TopicPartitions::default().with_topic_id(id).with_partitions(partitions)
            });
            let topics = topics.collect();
            Assignment::default().with_topic_partitions(topics)
        });
        let member = self.choices.pick(&[None, Some("m"), Some("n"), Some("")]);
        ShareGroupHeartbeatResponse::default()
            .with_error_code(self.choices.code().0)
            .with_member_id(member.map(StrBytes::from_static_str))
            .with_member_epoch(self.choices.number() as i32)
            .with_heartbeat_interval_ms(self.choices.number() as i32)
            .with_assignment(assignment)
    }

    fn fail(&mut self) {
        let Some(at) = self.choices.index(self.asked.len()) else { return };
        let (id, kind) = self.asked.remove(at);
        let failure =
            Failure { fatal: self.choices.once_in(12), silent: self.choices.once_in(2), what: "lost".to_owned() };
        match kind {
            Kind::Find => self.machine.handle_coordinator(self.now, id, Err(failure)),
            Kind::Heartbeat => self.machine.handle_failure(self.now, id, failure),
        }
    }

    fn told(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            assert!(!self.ended, "{event:?} after the end");
            match event {
                MemberEvent::Assigned(assigned) => {
                    assert!(assigned.keys().all(|at| at.partition >= 0), "{assigned:?} cannot be");
                    assert_ne!(assigned, self.assigned, "told, and nothing is new");
                    self.assigned = assigned;
                }
                MemberEvent::NeedTopics(topics) => assert!(!topics.is_empty()),
                MemberEvent::Ended(_) => self.ended = true,
                MemberEvent::Joined | MemberEvent::Unreachable { .. } | MemberEvent::Refused { .. } => {}
            }
        }
    }

    fn settle(&mut self) {
        self.machine.handle_timeout(self.now);
        loop {
            let transmit = self.machine.poll_transmit(self.now);
            self.told();
            let Some(transmit) = transmit else { break };
            self.at_once += 1;
            let kind = match transmit.request {
                MemberRequest::FindCoordinator => Kind::Find,
                MemberRequest::Heartbeat(_, request) => {
                    assert_eq!(request.member_id.as_str(), "m", "the id is its own for life");
                    assert!(request.member_epoch >= -1, "an epoch that cannot be");
                    Kind::Heartbeat
                }
            };
            self.asked.retain(|(_, asked)| *asked != kind);
            self.asked.push((transmit.id, kind));
            assert!(self.at_once < STORM, "asks and asks, and no time passes");
        }
        let next = self.machine.poll_timeout();
        if self.machine.is_ended() {
            assert!(self.ended && next.is_none(), "over, and not told or still waiting");
            return;
        }
        assert!(next.is_none_or(|at| at > self.now), "a wake-up that is past would spin: {:?}", self.machine);
        assert!(next.is_some() || !self.asked.is_empty(), "nothing will ever happen: {:?}", self.machine);
    }

    fn end(mut self) {
        self.machine.leave();
        for _ in 0..100 {
            self.settle();
            if self.machine.is_ended() {
                return;
            }
            match self.asked.pop() {
                Some((id, Kind::Find)) => self.machine.handle_coordinator(self.now, id, Ok(NodeId(1))),
                Some((id, Kind::Heartbeat)) => {
                    let failure = Failure { fatal: false, silent: true, what: "lost".to_owned() };
                    self.machine.handle_failure(self.now, id, failure);
                }
                None => self.pass_to_the_next(),
            }
        }
        panic!("it does not leave: {:?}", self.machine);
    }
}

/// The topics by their ids, as far as they are known. Two ids have one name, as after a topic was created anew.
fn name(id: Uuid, known: u32) -> Option<Topic> {
    let id = id.as_u128() as u32;
    (id < known).then(|| ["t", "u", "t", "v"][id as usize % 4].into())
}

const STORM: u32 = 64;
