//! Who reads what: a sticky assignor over unequal subscriptions.

use std::collections::{BTreeMap, BTreeSet};

use crate::memory::MemberId;
use crate::record::{Topic, TopicPartition};

/// Gives every partition of a subscribed topic to one member that subscribes to it.
///
/// A member keeps what it `owned` unless that leaves the topic, or the whole, unbalanced by more than one among those
/// who could take it. Topics nobody subscribes to are left out.
pub(super) fn assign(
    subscriptions: &BTreeMap<MemberId, BTreeSet<Topic>>,
    partitions: &BTreeMap<Topic, i32>,
    owned: &BTreeMap<TopicPartition, MemberId>,
) -> BTreeMap<TopicPartition, MemberId> {
    let mut plan = Plan::default();
    for (topic, count) in partitions {
        let subscribers: Vec<MemberId> =
            subscriptions.iter().filter(|(_, topics)| topics.contains(topic)).map(|(member, _)| *member).collect();
        if subscribers.is_empty() {
            continue;
        }
        plan.subscribers.insert(topic.clone(), subscribers);
        for partition in 0..*count {
            let partition = TopicPartition::new(topic, partition);
            match owned.get(&partition) {
                Some(owner) if plan.subscribers[topic].contains(owner) => plan.give(partition, *owner),
                _ => plan.unowned.push(partition),
            }
        }
    }
    plan.place_unowned();
    plan.balance_topics();
    plan.balance_members();
    plan.owners
}

#[derive(Default)]
struct Plan {
    subscribers: BTreeMap<Topic, Vec<MemberId>>,
    unowned: Vec<TopicPartition>,
    owners: BTreeMap<TopicPartition, MemberId>,
    /// What each member has of each topic.
    held: BTreeMap<(Topic, MemberId), BTreeSet<i32>>,
    /// What each member has in all.
    load: BTreeMap<MemberId, usize>,
}

impl Plan {
    fn give(&mut self, partition: TopicPartition, member: MemberId) {
        self.held.entry((partition.topic.clone(), member)).or_default().insert(partition.partition);
        *self.load.entry(member).or_default() += 1;
        self.owners.insert(partition, member);
    }

    fn load(&self, member: MemberId) -> usize {
        self.load.get(&member).copied().unwrap_or(0)
    }

    fn share(&self, topic: &Topic, member: MemberId) -> usize {
        self.held.get(&(topic.clone(), member)).map_or(0, BTreeSet::len)
    }

    fn place_unowned(&mut self) {
        for partition in std::mem::take(&mut self.unowned) {
            let topic = &partition.topic;
            let least =
                self.subscribers[topic].iter().min_by_key(|member| (self.share(topic, **member), self.load(**member)));
            if let Some(member) = least.copied() {
                self.give(partition, member);
            }
        }
    }

    /// Moves within each topic until its subscribers differ by at most one. Each move lowers the sum of squares.
    fn balance_topics(&mut self) {
        let topics: Vec<Topic> = self.subscribers.keys().cloned().collect();
        for topic in topics {
            loop {
                let members = &self.subscribers[&topic];
                let most = members.iter().max_by_key(|member| (self.share(&topic, **member), self.load(**member)));
                let least = members.iter().min_by_key(|member| (self.share(&topic, **member), self.load(**member)));
                match (most.copied(), least.copied()) {
                    (Some(most), Some(least)) if self.share(&topic, most) > self.share(&topic, least) + 1 => {
                        self.shift(&topic, most, least);
                    }
                    _ => break,
                }
            }
        }
    }

    /// Evens out the totals with the odd partition of a topic, which may lie with either of two members.
    fn balance_members(&mut self) {
        while let Some((topic, from, to)) = self.uneven() {
            self.shift(&topic, from, to);
        }
    }

    fn uneven(&self) -> Option<(Topic, MemberId, MemberId)> {
        for (topic, members) in &self.subscribers {
            for from in members {
                for to in members {
                    if self.load(*from) > self.load(*to) + 1 && self.share(topic, *from) > self.share(topic, *to) {
                        return Some((topic.clone(), *from, *to));
                    }
                }
            }
        }
        None
    }

    fn shift(&mut self, topic: &Topic, from: MemberId, to: MemberId) {
        let last = self.held.get_mut(&(topic.clone(), from)).and_then(BTreeSet::pop_last);
        if let Some(partition) = last {
            if let Some(load) = self.load.get_mut(&from) {
                *load -= 1;
            }
            self.give(TopicPartition::new(topic, partition), to);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subscriptions(members: &[&[&str]]) -> BTreeMap<MemberId, BTreeSet<Topic>> {
        members
            .iter()
            .enumerate()
            .map(|(id, topics)| (MemberId(id as u64), topics.iter().map(|t| Topic::from(*t)).collect()))
            .collect()
    }

    fn counts(partitions: &[(&str, i32)]) -> BTreeMap<Topic, i32> {
        partitions.iter().map(|(topic, count)| (Topic::from(*topic), *count)).collect()
    }

    #[test]
    fn a_second_member_takes_half_of_each_topic_and_the_first_keeps_the_rest() {
        let topics = counts(&[("orders", 6), ("orders.retry", 6)]);
        let alone = assign(&subscriptions(&[&["orders", "orders.retry"]]), &topics, &BTreeMap::new());
        let both = assign(&subscriptions(&[&["orders", "orders.retry"], &["orders", "orders.retry"]]), &topics, &alone);
        for topic in topics.keys() {
            let first = both.iter().filter(|(p, m)| p.topic == *topic && m.0 == 0).count();
            assert_eq!(first, 3, "{topic}");
        }
    }

    #[test]
    fn topics_of_one_partition_are_spread_over_the_members() {
        let topics = counts(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        let all: &[&str] = &["a", "b", "c", "d"];
        let alone = assign(&subscriptions(&[all]), &topics, &BTreeMap::new());
        let both = assign(&subscriptions(&[all, all]), &topics, &alone);
        assert_eq!(both.values().filter(|member| member.0 == 1).count(), 2);
    }

    proptest! {
        #[test]
        fn every_partition_has_one_owner_who_subscribes_and_shares_differ_by_one(
            members in prop::collection::vec(prop::collection::btree_set(0_usize..5, 0..5), 1..6),
            sizes in prop::collection::vec(0_i32..9, 5),
            before in prop::collection::vec(0_u64..6, 45),
        ) {
            let topic = |index: usize| Topic::from(format!("t{index}"));
            let subscriptions: BTreeMap<_, BTreeSet<_>> = members
                .iter()
                .enumerate()
                .map(|(id, topics)| (MemberId(id as u64), topics.iter().map(|t| topic(*t)).collect()))
                .collect();
            let partitions: BTreeMap<_, _> = sizes.iter().enumerate().map(|(i, n)| (topic(i), *n)).collect();
            let owned: BTreeMap<_, _> = partitions
                .iter()
                .flat_map(|(t, n)| (0..*n).map(move |p| TopicPartition::new(t, p)))
                .zip(before.into_iter().map(MemberId))
                .collect();

            let plan = assign(&subscriptions, &partitions, &owned);
            for (name, count) in &partitions {
                let subscribers: Vec<_> =
                    subscriptions.iter().filter(|(_, topics)| topics.contains(name)).map(|(id, _)| *id).collect();
                let given = plan.iter().filter(|(p, _)| p.topic == *name).count() as i32;
                prop_assert_eq!(given, if subscribers.is_empty() { 0 } else { *count });
                let shares: Vec<_> = subscribers
                    .iter()
                    .map(|id| plan.iter().filter(|(p, owner)| p.topic == *name && *owner == id).count())
                    .collect();
                let spread = shares.iter().max().unwrap_or(&0) - shares.iter().min().unwrap_or(&0);
                prop_assert!(spread <= 1, "{:?} of {}", shares, name);
            }
            for (partition, owner) in &plan {
                prop_assert!(subscriptions[owner].contains(&partition.topic));
            }
            prop_assert_eq!(assign(&subscriptions, &partitions, &plan), plan, "a balanced plan is kept");
        }
    }
}
