//! A member of a share group.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::ShareGroupHeartbeatResponse;
use kafka_protocol::messages::share_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::member::{Asked, Membership, assignment, name};
use crate::machine::group::Failure;
use crate::machine::share::{MemberConfig, MemberEvent, MemberRequest, ShareMember};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::record::{NodeId, Topic, TopicPartition};

#[derive(Debug)]
pub(super) struct Sharing {
    machine: ShareMember,
    /// What was told last.
    assigned: BTreeMap<TopicPartition, Uuid>,
    ended: bool,
}

impl Membership for Sharing {
    type Id = u64;
    const TIMES: &'static [u64] = &[1, 20, 3_000, 11_000, 200_000];
    const GIVES_BACK: bool = false;

    fn new(choices: &mut Choices<'_>, now: Instant) -> Self {
        let topics = [Topic::from("t"), Topic::from("u")].into();
        let config = MemberConfig { topics, session_timeout: Duration::from_secs(10), ..MemberConfig::new("g") };
        let machine = ShareMember::new(now, config, "m".to_owned(), u64::from(choices.below(9)));
        Self { machine, assigned: BTreeMap::new(), ended: false }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(u64, Asked)> {
        let transmit = self.machine.poll_transmit(now)?;
        let asked = match transmit.request {
            MemberRequest::FindCoordinator => Asked::Find,
            MemberRequest::Heartbeat(_, request) => {
                assert_eq!(request.member_id.as_str(), "m", "the id is its own for life");
                assert!(request.member_epoch >= -1, "an epoch that cannot be");
                Asked::Heartbeat
            }
        };
        Some((transmit.id, asked))
    }

    fn hear(&mut self) {
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

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
    }

    fn handle_coordinator(&mut self, now: Instant, id: u64, found: Result<NodeId, Failure>) {
        self.machine.handle_coordinator(now, id, found);
    }

    fn handle_failure(&mut self, now: Instant, id: u64, failure: Failure) {
        self.machine.handle_failure(now, id, failure);
    }

    fn handle_answer(&mut self, choices: &mut Choices<'_>, now: Instant, id: u64, _: Asked) {
        let answer = heartbeat(choices);
        let known = choices.below(4);
        self.machine.handle_heartbeat(now, id, &answer, |topic| name(topic, known));
    }

    fn tell(&mut self, choices: &mut Choices<'_>, now: Instant) {
        let known = choices.below(4);
        self.machine.handle_names(now, |topic| name(topic, known));
    }

    fn leave(&mut self) {
        self.machine.leave();
    }

    fn is_ended(&self) -> bool {
        self.machine.is_ended()
    }

    fn has_told_its_end(&self) -> bool {
        self.ended
    }
}

fn heartbeat(choices: &mut Choices<'_>) -> ShareGroupHeartbeatResponse {
    let assignment = assignment(choices).map(|topics| {
        let topics = topics
            .into_iter()
            .map(|(id, partitions)| TopicPartitions::default().with_topic_id(id).with_partitions(partitions));
        Assignment::default().with_topic_partitions(topics.collect())
    });
    let member = choices.pick(&[None, Some("m"), Some("n"), Some("")]);
    ShareGroupHeartbeatResponse::default()
        .with_error_code(choices.code().0)
        .with_member_id(member.map(StrBytes::from_static_str))
        .with_member_epoch(choices.number() as i32)
        .with_heartbeat_interval_ms(choices.number() as i32)
        .with_assignment(assignment)
}
