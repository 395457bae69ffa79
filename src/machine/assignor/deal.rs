//! Dealing partitions out evenly, with as few as possible changing hands: what both sticky assignors do.
//!
//! ```text
//!  what members say they own ──▶ valid claims ──▶ deal out what is free ──▶ even out, free ones first
//!  (generation decides)                           (least loaded first)      (then owned ones)
//! ```
//!
//! Evening out moves one partition at a time along the shortest chain of members from one that has too many to one that
//! has at least two fewer. Each move lowers the sum of squared loads, so it ends; and when no chain is left the loads are
//! as even as the subscriptions allow. (Swapping partitions until nothing improves, as the first sticky assignors did,
//! ran for ever over unequal subscriptions: librdkafka#4783.)
//!
//! Where there is a choice, a topic goes to who has least of it, and a member gives of what it has most above its part:
//! else one member may end with all of a busy topic and another with all of its quiet retry topic, and both are loaded
//! evenly by number alone.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{MemberSubscription, PartitionCounts, subscribers};
use crate::record::{Topic, TopicPartition};

/// Partitions on their way to members. Topics and members go by number.
pub(super) struct Deal<'a> {
    topics: Vec<TopicShare<'a>>,
    /// The topics that each member subscribed to.
    topics_of: Vec<Vec<usize>>,
    /// How many partitions each member has.
    load: Vec<usize>,
}

/// One topic's partitions.
struct TopicShare<'a> {
    topic: &'a Topic,
    count: usize,
    /// Members that subscribed to it, in order.
    subscribers: Vec<usize>,
    /// Partitions without an owner and not dealt out yet.
    free: Vec<i32>,
    /// What each member holds.
    held: BTreeMap<usize, Holding>,
}

/// What a member holds of a topic.
#[derive(Default)]
struct Holding {
    /// It owned them before.
    kept: Vec<i32>,
    /// They come to it now: the number, and the member that owned it before.
    gained: Vec<(i32, Option<usize>)>,
}

/// Which partitions may be moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Movable {
    /// Those that change hands anyhow.
    Free,
    All,
}

impl<'a> Deal<'a> {
    /// Members in order, and all partitions with them.
    pub(super) fn dealt_out(members: &[&MemberSubscription], partitions: &'a PartitionCounts) -> Self {
        let mut deal = Self::new(members, partitions);
        deal.hand_out_free();
        deal.even_out(Movable::Free);
        deal.even_out(Movable::All);
        deal.return_to_owners();
        deal
    }

    fn new(members: &[&MemberSubscription], partitions: &'a PartitionCounts) -> Self {
        let mut owners = claims(members);
        let mut deal =
            Self { topics: Vec::new(), topics_of: vec![Vec::new(); members.len()], load: vec![0; members.len()] };
        for (topic, subscribers) in subscribers(members, partitions) {
            let count = usize::try_from(partitions[topic]).unwrap_or(0);
            let mut share = TopicShare { topic, count, subscribers, free: Vec::new(), held: BTreeMap::new() };
            let mut owners = owners.remove(topic).unwrap_or_default();
            for number in 0..partitions[topic] {
                let owner = owners.remove(&number).filter(|owner| share.subscribers.binary_search(owner).is_ok());
                match owner {
                    Some(owner) => {
                        share.held.entry(owner).or_default().kept.push(number);
                        deal.load[owner] += 1;
                    }
                    None => share.free.push(number),
                }
            }
            for subscriber in &share.subscribers {
                deal.topics_of[*subscriber].push(deal.topics.len());
            }
            deal.topics.push(share);
        }
        deal
    }

    /// Each free partition to the least loaded subscriber; topics with the fewest subscribers first, as they have the
    /// least choice.
    fn hand_out_free(&mut self) {
        let mut order: Vec<usize> = (0..self.topics.len()).collect();
        order.sort_by_key(|topic| self.topics[*topic].subscribers.len());
        for topic in order {
            let share = &mut self.topics[topic];
            let mut by_load: BTreeSet<(usize, usize, usize)> =
                share.subscribers.iter().map(|member| (self.load[*member], share.held_by(*member), *member)).collect();
            for number in std::mem::take(&mut share.free) {
                let (load, held, member) = by_load.pop_first().expect("a topic in the deal has subscribers");
                by_load.insert((load + 1, held + 1, member));
                share.held.entry(member).or_default().gained.push((number, None));
                self.load[member] = load + 1;
            }
        }
    }

    /// Moves partitions from loaded members to less loaded ones until no move makes the loads more even.
    fn even_out(&mut self, movable: Movable) {
        // A member from which no chain leads to one with two fewer is done with, and so is whoever a chain reaches.
        let mut settled = vec![false; self.load.len()];
        let mut by_load: BTreeSet<(usize, usize)> =
            self.load.iter().enumerate().map(|(member, load)| (*load, member)).collect();
        while let Some((load, member)) = by_load.pop_last() {
            if settled[member] {
                continue;
            }
            match self.chain_from(member, movable, &settled) {
                Chain::Found(steps) => {
                    let last = steps.last().expect("a chain has a step").to;
                    by_load.remove(&(self.load[last], last));
                    self.shift(member, &steps);
                    by_load.insert((load - 1, member));
                    by_load.insert((self.load[last], last));
                }
                Chain::None { reached } => {
                    for member in reached {
                        settled[member] = true;
                    }
                }
            }
        }
    }

    /// Looks for the shortest chain of moves from `start` to a member with at least two partitions fewer.
    fn chain_from(&self, start: usize, movable: Movable, settled: &[bool]) -> Chain {
        let mut came_by: Vec<Option<Step>> = vec![None; self.load.len()];
        let mut topics_seen = vec![false; self.topics.len()];
        let mut reached = vec![start];
        let mut next = 0;
        while let Some(&from) = reached.get(next) {
            next += 1;
            let mut topics = self.topics_of[from].clone();
            topics.sort_by_key(|topic| self.topics[*topic].room_of(from));
            for topic in topics {
                let share = &self.topics[topic];
                // Whoever holds of a topic can give it to all its subscribers: its first holder reached them all.
                if topics_seen[topic] || !share.can_give(from, movable) {
                    continue;
                }
                topics_seen[topic] = true;
                let first_new = reached.len();
                for &to in &share.subscribers {
                    if to != start && !settled[to] && came_by[to].is_none() {
                        came_by[to] = Some(Step { from, topic, to });
                        reached.push(to);
                    }
                }
                let by_load = |member: &&usize| (self.load[**member], share.held_by(**member), **member);
                let least = reached[first_new..].iter().min_by_key(by_load);
                if let Some(&end) = least.filter(|member| self.load[**member] + 2 <= self.load[start]) {
                    return Chain::Found(steps_to(end, &came_by));
                }
            }
        }
        Chain::None { reached }
    }

    fn shift(&mut self, start: usize, steps: &[Step]) {
        for step in steps {
            let share = &mut self.topics[step.topic];
            let moved = share.give(step.from).expect("a chain goes by partitions that are held");
            share.take(step.to, moved);
        }
        self.load[start] -= 1;
        self.load[steps[steps.len() - 1].to] += 1;
    }

    /// Where a member gains a partition of a topic of which it loses another, it keeps its own instead. Loads stay.
    fn return_to_owners(&mut self) {
        for share in &mut self.topics {
            share.return_to_owners();
        }
    }

    /// The assignment, with nobody waiting for anybody.
    pub(super) fn whole(self) -> Vec<Vec<TopicPartition>> {
        let mut assigned = vec![Vec::new(); self.load.len()];
        for share in self.topics {
            for (member, holding) in share.held {
                let numbers = holding.kept.into_iter().chain(holding.gained.into_iter().map(|(number, _)| number));
                assigned[member].extend(numbers.map(|number| TopicPartition::new(share.topic, number)));
            }
        }
        for partitions in &mut assigned {
            partitions.sort_unstable();
        }
        assigned
    }

    /// The assignment, without what another member still holds: that one has to let go first.
    pub(super) fn without_held_by_others(self, members: &[&MemberSubscription]) -> Vec<Vec<TopicPartition>> {
        // Claims that lost count too: whoever makes one may still be reading.
        let mut claimed = HashMap::<&TopicPartition, Vec<usize>>::new();
        for (place, member) in members.iter().enumerate() {
            for owned in member.subscription.owned_partitions.iter().flatten() {
                claimed.entry(owned).or_default().push(place);
            }
        }
        let mut assigned = vec![Vec::new(); members.len()];
        for share in self.topics {
            for (member, holding) in share.held {
                let place = |number| TopicPartition::new(share.topic, number);
                assigned[member].extend(holding.kept.into_iter().map(place));
                let is_held = |partition: &TopicPartition| {
                    claimed.get(partition).is_some_and(|claimants| claimants.iter().any(|other| *other != member))
                };
                let gained = holding.gained.into_iter().map(|(number, _)| place(number));
                assigned[member].extend(gained.filter(|partition| !is_held(partition)));
            }
        }
        for partitions in &mut assigned {
            partitions.sort_unstable();
        }
        assigned
    }
}

impl TopicShare<'_> {
    /// How many partitions the member has of it.
    fn held_by(&self, member: usize) -> usize {
        self.held.get(&member).map_or(0, |holding| holding.kept.len() + holding.gained.len())
    }

    /// How far the member is below its even part of the topic, in 1024ths of a partition; negative above.
    fn room_of(&self, member: usize) -> i64 {
        (self.count * 1024 / self.subscribers.len().max(1)) as i64 - self.held_by(member) as i64 * 1024
    }

    fn can_give(&self, member: usize, movable: Movable) -> bool {
        self.held
            .get(&member)
            .is_some_and(|holding| !holding.gained.is_empty() || (movable == Movable::All && !holding.kept.is_empty()))
    }

    /// Takes one partition from `member`, if possible one that changes hands anyhow.
    fn give(&mut self, member: usize) -> Option<(i32, Option<usize>)> {
        let holding = self.held.get_mut(&member)?;
        holding.gained.pop().or_else(|| Some((holding.kept.pop()?, Some(member))))
    }

    fn take(&mut self, member: usize, (number, owner): (i32, Option<usize>)) {
        let holding = self.held.entry(member).or_default();
        if owner == Some(member) {
            holding.kept.push(number);
        } else {
            holding.gained.push((number, owner));
        }
    }

    fn return_to_owners(&mut self) {
        let mut pool = Vec::new();
        let mut wanted = BTreeMap::new();
        for (member, holding) in &mut self.held {
            wanted.insert(*member, holding.gained.len());
            pool.append(&mut holding.gained);
        }
        for moved in std::mem::take(&mut pool) {
            let owner = moved.1.filter(|owner| wanted.get(owner).is_some_and(|wanted| *wanted > 0));
            match owner {
                Some(owner) => {
                    wanted.entry(owner).and_modify(|wanted| *wanted -= 1);
                    self.take(owner, moved);
                }
                None => pool.push(moved),
            }
        }
        pool.sort_unstable();
        let mut pool = pool.into_iter();
        for (member, wanted) in wanted {
            for moved in pool.by_ref().take(wanted) {
                self.take(member, moved);
            }
        }
    }
}

/// One move of a chain.
#[derive(Clone, Copy)]
struct Step {
    from: usize,
    topic: usize,
    to: usize,
}

enum Chain {
    /// The moves, from the loaded member on.
    Found(Vec<Step>),
    /// There is none; these members were looked at, and none of them has a chain either.
    None { reached: Vec<usize> },
}

fn steps_to(end: usize, came_by: &[Option<Step>]) -> Vec<Step> {
    let mut steps: Vec<Step> = std::iter::successors(came_by[end], |step| came_by[step.from]).collect();
    steps.reverse();
    steps
}

/// The owner of each partition that is validly claimed: of several claims the one of the newest generation, none where
/// two are of the same.
fn claims(members: &[&MemberSubscription]) -> BTreeMap<Topic, HashMap<i32, usize>> {
    let mut claims = HashMap::<&TopicPartition, Claim>::new();
    for (place, member) in members.iter().enumerate() {
        let generation = generation_of(member);
        let owned: BTreeSet<&TopicPartition> = member.subscription.owned_partitions.iter().flatten().collect();
        for partition in owned {
            let claim = Claim { generation, owner: Some(place) };
            claims.entry(partition).and_modify(|other| other.meet(claim)).or_insert(claim);
        }
    }
    let mut by_topic = BTreeMap::<Topic, HashMap<i32, usize>>::new();
    for (partition, claim) in claims {
        if let Some(owner) = claim.owner {
            by_topic.entry(partition.topic.clone()).or_default().insert(partition.partition, owner);
        }
    }
    by_topic
}

/// What is claimed of a partition so far.
#[derive(Clone, Copy)]
struct Claim {
    generation: Option<i32>,
    /// Nobody, where two claims of one generation met.
    owner: Option<usize>,
}

impl Claim {
    fn meet(&mut self, other: Self) {
        match other.generation.cmp(&self.generation) {
            Ordering::Greater => *self = other,
            Ordering::Equal => self.owner = None,
            Ordering::Less => {}
        }
    }
}

/// The generation in which a member came to hold what it claims: its own field from version 2 on, before that the end of
/// the user data, where both Java and librdkafka write it.
fn generation_of(member: &MemberSubscription) -> Option<i32> {
    let subscription = &member.subscription;
    let in_user_data =
        || subscription.user_data.as_ref().and_then(|data| data.last_chunk()).map(|end| i32::from_be_bytes(*end));
    subscription.generation.or_else(in_user_data).filter(|generation| *generation >= 0)
}
