//! The `range` assignor.

use super::{Assignor, GroupAssignment, MemberSubscription, PartitionCounts, by_member_id, in_order, subscribers};
use crate::record::TopicPartition;

/// Topic by topic, a run of neighbouring partitions to each subscriber; the first ones get one more where it does not come
/// out even. As Java's `RangeAssignor` without racks.
///
/// Members that subscribe to the same topics with equal partition counts get the same partition numbers of each, so
/// records with equal keys meet in one member. The price is balance: the first members get the extra of every topic.
#[derive(Debug, Clone, Copy, Default)]
pub struct Range;

impl Assignor for Range {
    fn name(&self) -> &str {
        "range"
    }

    fn assign(&self, members: &[MemberSubscription], partitions: &PartitionCounts) -> GroupAssignment {
        let members = in_order(members);
        let mut assigned = vec![Vec::new(); members.len()];
        for (topic, subscribers) in subscribers(&members, partitions) {
            let count = usize::try_from(partitions[topic]).expect("only topics with partitions have subscribers here");
            let (each, extra) = (count / subscribers.len(), count % subscribers.len());
            let mut numbers = 0..partitions[topic];
            for (rank, place) in subscribers.into_iter().enumerate() {
                let run = numbers.by_ref().take(each + usize::from(rank < extra));
                assigned[place].extend(run.map(|number| TopicPartition::new(topic, number)));
            }
        }
        by_member_id(&members, assigned)
    }
}
