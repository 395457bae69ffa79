//! Lies of a coordinator that assigns, in what it answers to heartbeats. Those of KIP-848 and of KIP-932 have the same fields.

use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ShareGroupHeartbeatRequest};
use uuid::Uuid;

use super::fields::{NO_CODE, text};
use super::work::Groups;
use super::{Lie, share, tell, tell_while};

macro_rules! lies {
    ($request:ty, $answer:ident) => {{
        use kafka_protocol::messages::$answer::{Assignment, TopicPartitions};

        type Of = $request;
        let code = |name: &str, code: i16| Lie::field::<Of>(name, move |answer| answer.error_code = code);
        let assigned = |name: &str, topics: &[(u128, &[i32])]| {
            let topics = topics.iter().map(|(id, partitions)| {
                TopicPartitions::default().with_topic_id(Uuid::from_u128(*id)).with_partitions(partitions.to_vec())
            });
            let assignment = Assignment::default().with_topic_partitions(topics.collect());
            // The coordinator does not say the right one once more.
            Lie::field::<Of>(name, move |answer| answer.assignment = Some(assignment.clone())).fatal()
        };
        vec![
            Lie::field::<Of>("another member's id", |answer| answer.member_id = Some(text("other"))),
            Lie::field::<Of>("no member's id", |answer| answer.member_id = Some(text(""))),
            Lie::field::<Of>("a negative epoch", |answer| answer.member_epoch = -9),
            Lie::field::<Of>("epoch zero", |answer| answer.member_epoch = 0),
            Lie::field::<Of>("the last epoch", |answer| answer.member_epoch = i32::MAX),
            Lie::field::<Of>("a negative interval", |answer| answer.heartbeat_interval_ms = -9),
            Lie::field::<Of>("no interval", |answer| answer.heartbeat_interval_ms = 0),
            Lie::field::<Of>("an interval of 24 days", |answer| answer.heartbeat_interval_ms = i32::MAX),
            code("a code that nobody knows", NO_CODE),
            code("a fenced epoch", 110),
            code("it does not know the member", 25),
            code("not the coordinator", 16),
            assigned("topics that nobody knows", &[(9, &[0]), (0, &[0])]),
            assigned("partitions that cannot be", &[(9, &[-1, i32::MIN, i32::MAX])]),
            assigned("no partitions", &[]),
        ]
    }};
}

#[tokio::test(start_paused = true)]
async fn a_coordinators_group_that_cannot_be_is_joined_again() {
    tell(Groups::Coordinator, lies!(ConsumerGroupHeartbeatRequest, consumer_group_heartbeat_response)).await;
}

#[tokio::test(start_paused = true)]
async fn a_share_group_that_cannot_be_is_joined_again() {
    tell_while(share::read, lies!(ShareGroupHeartbeatRequest, share_group_heartbeat_response)).await;
}
