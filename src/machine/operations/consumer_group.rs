//! A member of a KIP-848 group.

use std::time::Instant;

use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::{ConsumerGroupHeartbeatResponse, DescribeGroupsResponse};
use kafka_protocol::protocol::StrBytes;

use super::member::{Asked, Membership, assignment, name, reaction};
use super::owned::Owned;
use crate::machine::group::{CommitGate, ConsumerGroup, Failure, GroupConfig, GroupRequest, RequestId};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::record::NodeId;

#[derive(Debug)]
pub(super) struct Assigned {
    group: ConsumerGroup,
    owned: Owned,
}

impl Membership for Assigned {
    type Id = RequestId;
    const TIMES: &'static [u64] = &[1, 20, 3_000, 15_000, 46_000, 310_000];
    const GIVES_BACK: bool = true;

    fn new(choices: &mut Choices<'_>, now: Instant) -> Self {
        let mut config = GroupConfig::new("g");
        if choices.once_in(4) {
            config.instance_id = Some(StrBytes::from_static_str("i"));
        }
        let topics = ["t".into(), "u".into()];
        let mut group = ConsumerGroup::new(now, config, topics, "m".to_owned(), u64::from(choices.below(9)));
        if choices.once_in(3) {
            group = group.or_classic();
        }
        Self { group, owned: Owned::default() }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(RequestId, Asked)> {
        let transmit = self.group.poll_transmit(now)?;
        let asked = match transmit.request {
            GroupRequest::FindCoordinator => Asked::Find,
            GroupRequest::Describe(..) => Asked::Describe,
            GroupRequest::ConsumerHeartbeat(_, request) => {
                assert!(!request.member_id.is_empty(), "a member without an id");
                Asked::Heartbeat
            }
            other => panic!("{other:?} of a member of the new protocol"),
        };
        Some((transmit.id, asked))
    }

    fn hear(&mut self) {
        while let Some(event) = self.group.poll_event() {
            self.owned.take(event);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.group.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.group.handle_timeout(now);
    }

    fn handle_coordinator(&mut self, now: Instant, id: RequestId, found: Result<NodeId, Failure>) {
        self.group.handle_coordinator(now, id, found);
    }

    fn handle_failure(&mut self, now: Instant, id: RequestId, failure: Failure) {
        self.group.handle_failure(now, id, failure);
    }

    fn handle_answer(&mut self, choices: &mut Choices<'_>, now: Instant, id: RequestId, asked: Asked) {
        match asked {
            Asked::Describe => self.group.handle_description(now, id, &description(choices)),
            _ => {
                let answer = heartbeat(choices);
                let known = choices.below(4);
                self.group.handle_heartbeat(now, id, &answer, |topic| name(topic, known));
            }
        }
    }

    fn released(&mut self, now: Instant) {
        self.group.released(now);
    }

    fn tell(&mut self, choices: &mut Choices<'_>, now: Instant) {
        match choices.below(3) {
            0 => {
                let known = choices.below(4);
                self.group.handle_names(now, |topic| name(topic, known));
            }
            1 => self.group.coordinator_moved(now, NodeId(choices.below(2) as i32)),
            _ => {
                let CommitGate::Open(target) = self.group.commit_gate() else { return };
                self.group.handle_commit_reaction(now, &reaction(choices, target));
            }
        }
    }

    fn leave(&mut self) {
        self.group.leave();
        self.owned.leave();
    }

    fn is_ended(&self) -> bool {
        self.group.is_ended()
    }

    fn has_told_its_end(&self) -> bool {
        self.owned.ended
    }
}

fn description(choices: &mut Choices<'_>) -> DescribeGroupsResponse {
    let groups = (0..choices.below(3)).map(|_| {
        let state = choices.pick(&["Stable", "Empty", "Dead", "PreparingRebalance", "what"]);
        let code = choices.code().0;
        DescribedGroup::default().with_error_code(code).with_group_state(StrBytes::from_static_str(state))
    });
    DescribeGroupsResponse::default().with_groups(groups.collect())
}

fn heartbeat(choices: &mut Choices<'_>) -> ConsumerGroupHeartbeatResponse {
    let member = choices.pick(&[None, Some("m"), Some("n"), Some("")]);
    let assignment = assignment(choices).map(|topics| {
        let topics = topics
            .into_iter()
            .map(|(id, partitions)| TopicPartitions::default().with_topic_id(id).with_partitions(partitions));
        Assignment::default().with_topic_partitions(topics.collect())
    });
    ConsumerGroupHeartbeatResponse::default()
        .with_error_code(choices.code().0)
        .with_member_id(member.map(StrBytes::from_static_str))
        .with_member_epoch(choices.number() as i32)
        .with_heartbeat_interval_ms(choices.number() as i32)
        .with_assignment(assignment)
}
