//! Assignors of classic groups: the leader's decision, who reads which partition.
//!
//! Each is a pure function from members and partition counts to an assignment. The broker picks an assignor that every
//! member offers, and hands everybody's subscriptions to the leader; only the leader computes.
//!
//! Members of one group may be subscribed to different topics: a Node consumer has one member for each level of its
//! ladder. So no assignor here hands a partition to a member that did not subscribe to its topic, and none leaves a
//! partition without an owner while a member subscribed to its topic.

mod cooperative_sticky;
mod deal;
mod range;
mod round_robin;
mod sticky;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;

use crate::protocol::subscription::Subscription;
use crate::record::{Topic, TopicPartition};

pub use cooperative_sticky::CooperativeSticky;
pub use range::Range;
pub use round_robin::RoundRobin;
pub use sticky::Sticky;

/// A rule by which a group's leader deals out partitions.
///
/// One of the caller's own is given to [`ConsumerBuilder::assignors`](crate::client::ConsumerBuilder::assignors) by every member of
/// the group. Its code runs on the membership's task and must not block. A panic in it, or an assignment that gives a
/// partition twice, ends the membership of the member it happened to, and says so: the group cannot be led by such a rule.
/// A rule that changes incompatibly needs another name, as a member has no other way to tell versions apart than its user data.
///
/// # Examples
/// ```
/// use kafka_harbor::machine::assignor::{Assignor, GroupAssignment, MemberSubscription, PartitionCounts};
/// use kafka_harbor::record::TopicPartition;
///
/// /// Everything to the first member; the others wait to take over.
/// #[derive(Debug)]
/// struct OneReads;
///
/// impl Assignor for OneReads {
///     fn name(&self) -> &str {
///         "one-reads"
///     }
///
///     fn assign(&self, members: &[MemberSubscription], partitions: &PartitionCounts) -> GroupAssignment {
///         let mut assignment: GroupAssignment =
///             members.iter().map(|member| (member.member_id.clone(), Vec::new())).collect();
///         for (topic, count) in partitions {
///             let mut readers = members.iter().filter(|member| member.subscription.topics.contains(topic));
///             if let Some(first) = readers.next() {
///                 let all = (0..*count).map(|partition| TopicPartition::new(topic.clone(), partition));
///                 assignment.entry(first.member_id.clone()).or_default().extend(all);
///             }
///         }
///         assignment
///     }
/// }
/// ```
pub trait Assignor: fmt::Debug + Send + Sync {
    /// The protocol name by which members offer it. Members with the same name must agree about user data.
    fn name(&self) -> &str;

    /// Whether members keep what they hold while they join.
    fn rebalance(&self) -> Rebalance {
        Rebalance::Eager
    }

    /// What a member says in its subscription for the assignor alone, given what it was assigned last.
    fn user_data(&self, last: Option<LastAssignment<'_>>) -> Option<Bytes> {
        let _ = last;
        None
    }

    /// What the leader says to a member beside its partitions, for the assignor alone.
    fn assignment_data(&self, member: &MemberSubscription, partitions: &[TopicPartition]) -> Option<Bytes> {
        let _ = (member, partitions);
        None
    }

    /// Hears what this member was assigned, and what the leader said to it beside.
    fn assigned(&self, assignment: LastAssignment<'_>, data: Option<&Bytes>) {
        let _ = (assignment, data);
    }

    /// Deals the partitions out. Every member is in the answer, with nothing where nothing is left for it.
    ///
    /// Topics that nobody subscribed to are ignored, and so are subscriptions to topics without a count.
    fn assign(&self, members: &[MemberSubscription], partitions: &PartitionCounts) -> GroupAssignment;
}

/// What a member was assigned, whether or not it still has it.
#[derive(Debug, Clone, Copy)]
pub struct LastAssignment<'a> {
    /// The group's generation then.
    pub generation: i32,
    /// All of its partitions, in order.
    pub partitions: &'a [TopicPartition],
}

/// What members do with their partitions while they join (KIP-429).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rebalance {
    /// Let go of everything before joining; the assignment is complete at once.
    Eager,
    /// Keep reading. A partition that changes hands is first taken from its owner, who joins again once it has let go,
    /// and is given to the new owner by the rebalance that this brings about.
    Cooperative,
}

/// A member as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSubscription {
    /// The id that the coordinator gave it.
    pub member_id: String,
    /// The id that it chose itself, where membership is static (KIP-345).
    pub group_instance_id: Option<String>,
    /// With what it joined.
    pub subscription: Subscription,
}

impl MemberSubscription {
    /// The order in which members are served: static ones first, by the id that survives their restarts, so that they get
    /// the same partitions again. As Java's `MemberInfo`.
    fn order(&self) -> (bool, &str) {
        match &self.group_instance_id {
            Some(instance) => (false, instance),
            None => (true, &self.member_id),
        }
    }
}

/// How many partitions each topic has.
pub type PartitionCounts = BTreeMap<Topic, i32>;

/// The partitions of each member, by member id.
pub type GroupAssignment = BTreeMap<String, Vec<TopicPartition>>;

/// Members in the order in which they are served.
fn in_order(members: &[MemberSubscription]) -> Vec<&MemberSubscription> {
    let mut ordered: Vec<_> = members.iter().collect();
    ordered.sort_by_key(|member| member.order());
    ordered
}

/// For each topic that has partitions and subscribers, the subscribers' places in `members`, in order.
fn subscribers<'a>(
    members: &[&MemberSubscription],
    partitions: &'a PartitionCounts,
) -> BTreeMap<&'a Topic, Vec<usize>> {
    let mut by_topic = BTreeMap::<&Topic, Vec<usize>>::new();
    for (place, member) in members.iter().enumerate() {
        let topics: BTreeSet<&Topic> = member.subscription.topics.iter().collect();
        for topic in topics {
            if let Some((topic, count)) = partitions.get_key_value(topic)
                && *count > 0
            {
                by_topic.entry(topic).or_default().push(place);
            }
        }
    }
    by_topic
}

/// The answer, from what each place in `members` got.
fn by_member_id(members: &[&MemberSubscription], assigned: Vec<Vec<TopicPartition>>) -> GroupAssignment {
    members.iter().map(|member| member.member_id.clone()).zip(assigned).collect()
}
