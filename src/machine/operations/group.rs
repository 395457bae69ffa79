//! A member of a classic group.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse};
use kafka_protocol::protocol::StrBytes;

use super::member::{Asked, Membership, reaction};
use super::owned::Owned;
use crate::machine::group::{CommitGate, Failure, Group, GroupConfig, GroupRequest, RequestId};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;
use crate::protocol::subscription::{Assignment, Subscription};
use crate::record::{NodeId, TopicPartition};

#[derive(Debug)]
pub(super) struct Classic {
    group: Group,
    owned: Owned,
}

impl Membership for Classic {
    type Id = RequestId;
    const TIMES: &'static [u64] = &[1, 20, 3_000, 15_000, 46_000, 310_000];
    const GIVES_BACK: bool = true;

    fn new(choices: &mut Choices<'_>, now: Instant) -> Self {
        let mut config = GroupConfig::new("g");
        if choices.once_in(4) {
            config.instance_id = Some(StrBytes::from_static_str("i"));
        }
        config.plain_subscription = choices.once_in(4);
        if choices.once_in(3) {
            config.offers.reverse();
        }
        let topics = ["t".into(), "u".into()];
        let group = Group::new(now, config, topics, u64::from(choices.below(9)));
        Self { group, owned: Owned::default() }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(RequestId, Asked)> {
        let transmit = self.group.poll_transmit(now)?;
        let asked = match transmit.request {
            GroupRequest::FindCoordinator => Asked::Find,
            GroupRequest::Join(..) => Asked::Join,
            GroupRequest::Sync(..) => Asked::Sync,
            GroupRequest::Heartbeat(..) => Asked::Heartbeat,
            GroupRequest::Leave(..) => Asked::Leave,
            other => panic!("{other:?} of a classic member"),
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
        let code = choices.code().0;
        match asked {
            Asked::Join => self.group.handle_join(now, id, joined(choices).with_error_code(code)),
            Asked::Sync => {
                let assignment = assignment(choices);
                let answer = SyncGroupResponse::default().with_error_code(code).with_assignment(assignment);
                self.group.handle_sync(now, id, answer);
            }
            Asked::Leave => self.group.handle_leave(id, &LeaveGroupResponse::default().with_error_code(code)),
            _ => self.group.handle_heartbeat(now, id, &HeartbeatResponse::default().with_error_code(code)),
        }
    }

    fn released(&mut self, now: Instant) {
        self.group.released(now);
    }

    fn tell(&mut self, choices: &mut Choices<'_>, now: Instant) {
        match choices.below(4) {
            0 => self.tell_of_topics(choices),
            1 => {
                let count = choices.below(3) as i32;
                self.group.handle_counts(now, |_| (count > 0).then_some(count));
            }
            2 => self.group.coordinator_moved(now, NodeId(choices.below(2) as i32)),
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

    fn waits_for_its_driver(&self) -> bool {
        self.owned.asked_for_topics
    }
}

impl Classic {
    fn tell_of_topics(&mut self, choices: &mut Choices<'_>) {
        let mut counts = BTreeMap::new();
        for topic in ["t", "u", "v"] {
            if choices.once_in(2) {
                counts.insert(topic.into(), choices.below(5) as i32);
            }
        }
        self.owned.asked_for_topics = false;
        self.group.handle_topics(counts);
    }
}

fn joined(choices: &mut Choices<'_>) -> JoinGroupResponse {
    let id = |choices: &mut Choices<'_>| StrBytes::from_static_str(choices.pick(&["m", "m", "n", ""]));
    let protocol = choices.pick(&["cooperative-sticky", "range", "roundrobin", "sticky", "what"]);
    let members = (0..choices.below(3)).map(|_| {
        let metadata = subscription(choices);
        JoinGroupResponseMember::default().with_member_id(id(choices)).with_metadata(metadata)
    });
    let members = members.collect();
    JoinGroupResponse::default()
        .with_generation_id(choices.number() as i32)
        .with_protocol_name(Some(StrBytes::from_static_str(protocol)))
        .with_leader(id(choices))
        .with_member_id(id(choices))
        .with_skip_assignment(choices.once_in(8))
        .with_members(members)
}

fn subscription(choices: &mut Choices<'_>) -> Bytes {
    if choices.once_in(4) {
        return choices.bytes(24).into();
    }
    let owned = (0..choices.below(3)).map(|_| partition(choices)).collect();
    let subscription = Subscription {
        topics: vec![choices.pick(&["t", "u", "v"]).into()],
        user_data: choices.once_in(2).then(|| choices.bytes(24).into()),
        owned_partitions: Some(owned),
        generation: Some(choices.number() as i32),
        rack: None,
    };
    subscription.encode(choices.below(4) as i16).expect("it is small")
}

fn assignment(choices: &mut Choices<'_>) -> Bytes {
    if choices.once_in(8) {
        return choices.bytes(24).into();
    }
    let partitions = (0..choices.below(4)).map(|_| partition(choices)).collect();
    Assignment { partitions, ..Assignment::default() }.encode(0).expect("it is small")
}

fn partition(choices: &mut Choices<'_>) -> TopicPartition {
    let topic = choices.pick(&["t", "t", "u", "v"]);
    TopicPartition::new(topic, choices.pick(&[0, 1, 2, -1, i32::MAX]))
}
