//! The `roundrobin` assignor.

use super::{Assignor, GroupAssignment, MemberSubscription, PartitionCounts, by_member_id, in_order, subscribers};
use crate::record::TopicPartition;

/// Topic by topic and partition by partition, each to the next member that subscribed to the topic. As Java's
/// `RoundRobinAssignor`: the turn goes on from topic to topic, so that a ladder of topics with few partitions does not
/// all fall to the first member.
///
/// Other clients' rule of this name begins each topic anew. Both are valid to every member: it takes what the leader gives.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoundRobin;

impl Assignor for RoundRobin {
    fn name(&self) -> &str {
        "roundrobin"
    }

    fn assign(&self, members: &[MemberSubscription], partitions: &PartitionCounts) -> GroupAssignment {
        let members = in_order(members);
        let mut assigned = vec![Vec::new(); members.len()];
        // The place whose turn it is.
        let mut turn = 0;
        for (topic, subscribers) in subscribers(&members, partitions) {
            // Members between two subscribers are passed over without losing more than this turn, as in Java.
            let mut next = subscribers.partition_point(|place| *place < turn) % subscribers.len();
            for number in 0..partitions[topic] {
                assigned[subscribers[next]].push(TopicPartition::new(topic, number));
                turn = (subscribers[next] + 1) % members.len();
                next = (next + 1) % subscribers.len();
            }
        }
        by_member_id(&members, assigned)
    }
}
