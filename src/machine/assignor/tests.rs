use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn member(id: &str, topics: &[&str]) -> MemberSubscription {
    let topics = topics.iter().map(|topic| Topic::from(*topic)).collect();
    let subscription = Subscription { topics, owned_partitions: Some(Vec::new()), ..Default::default() };
    MemberSubscription { member_id: id.to_owned(), group_instance_id: None, subscription }
}

fn instance(id: &str, instance: &str, topics: &[&str]) -> MemberSubscription {
    MemberSubscription { group_instance_id: Some(instance.to_owned()), ..member(id, topics) }
}

fn owning(mut member: MemberSubscription, generation: i32, owned: &str) -> MemberSubscription {
    member.subscription.generation = Some(generation);
    member.subscription.owned_partitions = Some(parse(owned));
    member
}

fn counts(list: &[(&str, i32)]) -> PartitionCounts {
    list.iter().map(|(topic, count)| (Topic::from(*topic), *count)).collect()
}

/// `a0 a1 b0`.
fn parse(text: &str) -> Vec<TopicPartition> {
    let words = text.split_whitespace();
    words.map(|word| TopicPartition::new(&word[..1], word[1..].parse().unwrap())).collect()
}

/// `c1: a0 a1 | c2: b0`.
fn show(assignment: &GroupAssignment) -> String {
    let members = assignment.iter().map(|(member, partitions)| {
        let words: Vec<String> =
            partitions.iter().map(|partition| format!("{}{}", partition.topic, partition.partition)).collect();
        format!("{member}: {}", words.join(" "))
    });
    members.collect::<Vec<_>>().join(" | ")
}

/// The examples in the documentation of Java's `RangeAssignor`.
#[test]
fn range_gives_neighbours_and_the_same_numbers_of_each_topic() {
    let members = [member("c0", &["a", "b"]), member("c1", &["a", "b"])];
    let assigned = Range.assign(&members, &counts(&[("a", 3), ("b", 3)]));
    assert_eq!(show(&assigned), "c0: a0 a1 b0 b1 | c1: a2 b2");
    let assigned = Range.assign(&members, &counts(&[("a", 4), ("b", 4)]));
    assert_eq!(show(&assigned), "c0: a0 a1 b0 b1 | c1: a2 a3 b2 b3");
}

#[test]
fn range_counts_only_a_topics_subscribers() {
    let members = [member("c0", &["a"]), member("c1", &["b", "a"]), member("c2", &["b", "gone"])];
    let assigned = Range.assign(&members, &counts(&[("a", 3), ("b", 1), ("unwanted", 5)]));
    assert_eq!(show(&assigned), "c0: a0 a1 | c1: a2 b0 | c2: ");
}

/// As in Java: static members first by their instance id, so that a restart with a new member id changes nothing.
#[test]
fn static_members_are_served_by_their_instance_id() {
    let members = [member("a", &["t"]), instance("z", "i2", &["t"]), instance("b", "i1", &["t"])];
    let assigned = Range.assign(&members, &counts(&[("t", 3)]));
    assert_eq!(show(&assigned), "a: t2 | b: t0 | z: t1");
    let assigned = RoundRobin.assign(&members, &counts(&[("t", 3)]));
    assert_eq!(show(&assigned), "a: t2 | b: t0 | z: t1");
}

/// The examples in the documentation of Java's `RoundRobinAssignor`.
#[test]
fn round_robin_takes_turns_over_all_topics() {
    let members = [member("c0", &["a", "b"]), member("c1", &["a", "b"])];
    let assigned = RoundRobin.assign(&members, &counts(&[("a", 3), ("b", 3)]));
    assert_eq!(show(&assigned), "c0: a0 a2 b1 | c1: a1 b0 b2");

    let members = [member("c0", &["a"]), member("c1", &["a", "b"]), member("c2", &["a", "b", "c"])];
    let assigned = RoundRobin.assign(&members, &counts(&[("a", 1), ("b", 2), ("c", 3)]));
    assert_eq!(show(&assigned), "c0: a0 | c1: b0 | c2: b1 c0 c1 c2");
}

/// A ladder of one-partition topics would all fall to the first member if each topic began anew.
#[test]
fn round_robin_spreads_topics_of_one_partition() {
    let members = [member("c0", &["a", "b", "c", "d"]), member("c1", &["a", "b", "c", "d"])];
    let assigned = RoundRobin.assign(&members, &counts(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]));
    assert_eq!(show(&assigned), "c0: a0 c0 | c1: b0 d0");
}

#[test]
fn a_new_member_gets_what_another_lets_go_of_and_only_then() {
    let partitions = counts(&[("a", 4)]);
    let old = owning(member("c0", &["a"]), 1, "a0 a1 a2 a3");
    let first = CooperativeSticky.assign(&[old.clone(), member("c1", &["a"])], &partitions);
    assert_eq!(show(&first), "c0: a0 a1 | c1: ");
    let members = [owning(member("c0", &["a"]), 2, "a0 a1"), owning(member("c1", &["a"]), 2, "")];
    let second = CooperativeSticky.assign(&members, &partitions);
    assert_eq!(show(&second), "c0: a0 a1 | c1: a2 a3");
}

/// Even by number alone, one of two members had all of a busy topic, and the other all of its retry topic.
#[test]
fn a_new_member_gets_its_part_of_every_topic() {
    let topics = ["a", "b", "c"];
    let counts = counts(&[("a", 6), ("b", 6), ("c", 2)]);
    let all = "a0 a1 a2 a3 a4 a5 b0 b1 b2 b3 b4 b5 c0 c1";
    let mut members = vec![owning(member("c1", &topics), 1, all)];
    for (id, expected) in [("c2", [3..=3, 3..=3, 1..=1]), ("c3", [2..=2, 2..=2, 0..=1])] {
        members.push(member(id, &topics));
        members = converge(&CooperativeSticky, members, &counts, 2);
        for member in &members {
            let owned = owned(member);
            for (topic, expected) in topics.iter().zip(&expected) {
                let count = owned.iter().filter(|partition| partition.topic == *topic).count();
                assert!(expected.contains(&count), "{owned:?}");
            }
        }
    }
}

#[test]
fn a_member_that_leaves_moves_nothing_between_those_that_stay() {
    let members = [owning(member("c0", &["a"]), 5, "a0 a3"), owning(member("c2", &["a"]), 5, "a2 a5")];
    let assigned = CooperativeSticky.assign(&members, &counts(&[("a", 6)]));
    assert_eq!(show(&assigned), "c0: a0 a1 a3 | c2: a2 a4 a5");
}

/// KIP-792: a member that was away still claims what others were given meanwhile.
#[test]
fn a_claim_of_an_older_generation_loses_and_one_of_the_same_cancels() {
    let partitions = counts(&[("a", 2)]);
    let members = [owning(member("c0", &["a"]), 3, "a0 a1"), owning(member("c1", &["a"]), 4, "a0 a1")];
    let assigned = CooperativeSticky.assign(&members, &partitions);
    assert_eq!(show(&assigned), "c0:  | c1: a0", "c1 owns both, and has to let go of one before c0 has it");

    let members = [
        owning(member("c0", &["a"]), 4, "a0"),
        owning(member("c1", &["a"]), 4, "a0"),
        owning(member("c2", &["a"]), 4, "a0"),
    ];
    let assigned = CooperativeSticky.assign(&members, &partitions);
    assert_eq!(show(&assigned), "c0:  | c1: a1 | c2: ", "three may be reading it");
}

/// Java writes the generation as the whole user data, librdkafka at its end: there a version 1 has it.
#[test]
fn the_generation_is_found_in_the_user_data_of_old_versions() {
    let with_user_data = |id: &str, user_data: &'static [u8]| {
        let mut member = owning(member(id, &["a"]), 0, "a0 a1 a2 a3");
        member.subscription.generation = None;
        member.subscription.user_data = Some(Bytes::from_static(user_data));
        member
    };
    let members = [with_user_data("c0", b"\0\0\0\x02"), with_user_data("c1", b"\0\0\0\0\0\0\0\x03")];
    let assigned = CooperativeSticky.assign(&members, &counts(&[("a", 4)]));
    assert_eq!(show(&assigned), "c0:  | c1: a0 a1", "the newer claim is the valid one");
    let last = LastAssignment { generation: 2, partitions: &[] };
    assert_eq!(CooperativeSticky.user_data(Some(last)).unwrap(), &b"\0\0\0\x02"[..]);
    assert_eq!(CooperativeSticky.user_data(None).unwrap(), &b"\xff\xff\xff\xff"[..]);
}

/// As an eager member says it: in its user data alone.
fn having(mut member: MemberSubscription, generation: i32, had: &str) -> MemberSubscription {
    let partitions = parse(had);
    member.subscription.user_data = Sticky.user_data(Some(LastAssignment { generation, partitions: &partitions }));
    member
}

#[test]
fn sticky_gives_back_what_members_had_and_takes_no_more_than_evenness_needs() {
    let partitions = counts(&[("a", 6)]);
    let members = [having(member("c0", &["a"]), 5, "a0 a3 a4"), having(member("c1", &["a"]), 5, "a1 a2 a5")];
    assert_eq!(show(&Sticky.assign(&members, &partitions)), "c0: a0 a3 a4 | c1: a1 a2 a5");
    let members = [members[0].clone(), members[1].clone(), member("c2", &["a"])];
    let assigned = Sticky.assign(&members, &partitions);
    assert!(assigned.values().all(|partitions| partitions.len() == 2), "{}", show(&assigned));
    assert!(assigned["c0"].iter().all(|partition| parse("a0 a3 a4").contains(partition)));
    assert!(assigned["c1"].iter().all(|partition| parse("a1 a2 a5").contains(partition)));
}

#[test]
fn sticky_believes_the_newest_claim_and_nothing_that_cannot_be_read() {
    let partitions = counts(&[("a", 2)]);
    let members = [having(member("c0", &["a"]), 3, "a0 a1"), having(member("c1", &["a"]), 4, "a1")];
    assert_eq!(show(&Sticky.assign(&members, &partitions)), "c0: a0 | c1: a1");
    let mut liar = member("c0", &["a"]);
    liar.subscription.user_data = Some(Bytes::from_static(b"\x7f\xff\xff\xff"));
    // What it says to own in the subscription is of another protocol.
    liar.subscription.owned_partitions = Some(parse("a1"));
    let members = [liar, having(member("c1", &["a"]), 4, "a0")];
    assert_eq!(show(&Sticky.assign(&members, &partitions)), "c0: a1 | c1: a0");
}

fn cooperative_sticky_loads(members: &[MemberSubscription], partitions: &PartitionCounts) -> Vec<usize> {
    CooperativeSticky.assign(members, partitions).values().map(Vec::len).collect()
}

/// A member of a client that does not say what it owns gets its share all the same.
#[test]
fn a_member_without_owned_partitions_is_served() {
    let mut silent = member("c1", &["a"]);
    silent.subscription.owned_partitions = None;
    let members = [member("c0", &["a"]), silent];
    assert_eq!(cooperative_sticky_loads(&members, &counts(&[("a", 5)])), [3, 2]);
}

/// A chain of moves: c0 has too much and shares no topic with c2, which has too little.
#[test]
fn loads_even_out_along_chains_of_members() {
    let members = [
        owning(member("c0", &["a"]), 1, "a0 a1 a2 a3"),
        owning(member("c1", &["a", "b"]), 1, "b0 b1"),
        owning(member("c2", &["b"]), 1, ""),
    ];
    let partitions = counts(&[("a", 4), ("b", 2)]);
    let settled = converge(&CooperativeSticky, members.to_vec(), &partitions, 2);
    let loads: Vec<usize> = settled.iter().map(|member| owned(member).len()).collect();
    assert_eq!(loads, [2, 2, 2]);
}

/// Sticky assignors ran for ever over unequal subscriptions (librdkafka#4783).
#[test]
fn a_large_group_over_unequal_subscriptions_is_dealt_out_in_time() {
    let topics: Vec<String> = (0..100).map(|number| format!("t{number}")).collect();
    let partitions: PartitionCounts = topics.iter().map(|topic| (Topic::from(topic.as_str()), 40)).collect();
    let members: Vec<MemberSubscription> = (0..300)
        .map(|place: usize| {
            let wanted = (0..100).filter(|topic| (topic * 7 + place * 13) % 5 < 1 + place % 4);
            let names: Vec<&str> = wanted.map(|topic| topics[topic].as_str()).collect();
            let mut member = member(&format!("m{place:03}"), &names);
            // The first members hold everything, the worst start there is.
            let topics = member.subscription.topics.iter();
            if place < 5 {
                let all = topics.flat_map(|topic| (0..40).map(move |number| TopicPartition::new(topic, number)));
                member.subscription.owned_partitions =
                    Some(all.filter(|partition| partition.partition % 5 == place as i32).collect());
                member.subscription.generation = Some(1);
            }
            member
        })
        .collect();
    let started = Instant::now();
    let settled = converge(&CooperativeSticky, members, &partitions, 2);
    assert!(started.elapsed() < Duration::from_secs(20), "took {:?}", started.elapsed());
    assert_eq!(settled.iter().map(|member| owned(member).len()).sum::<usize>(), 4000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_partition_with_a_subscriber_has_one_owner_that_wants_it(
        (members, partitions) in groups(8, 6, 12),
    ) {
        for assignor in [&Range as &dyn Assignor, &RoundRobin, &Sticky] {
            let assigned = assignor.assign(&members, &partitions);
            prop_assert_eq!(assigned.len(), members.len());
            check_whole(&members, &partitions, &assigned)?;
            prop_assert_eq!(&assignor.assign(&members, &partitions), &assigned, "not a function of its input");
        }
        let settled = converge(&CooperativeSticky, members.clone(), &partitions, 1);
        let assigned = settled.iter().map(|member| (member.member_id.clone(), owned(member))).collect();
        check_whole(&members, &partitions, &assigned)?;
    }

    #[test]
    fn equal_subscriptions_are_balanced_within_one(
        members in 1..9_usize,
        partitions in proptest::collection::vec(0..9, 1..5),
        previous in proptest::collection::vec(0..12_usize, 36),
    ) {
        let names = ["a", "b", "c", "d"];
        let partitions: PartitionCounts =
            names.iter().zip(partitions).map(|(name, count)| (Topic::from(*name), count)).collect();
        let mut members: Vec<_> = (0..members).map(|number| member(&format!("c{number}"), &names)).collect();
        own_at_random(&mut members, &partitions, &previous);
        let round_robin: Vec<usize> = RoundRobin.assign(&members, &partitions).values().map(Vec::len).collect();
        prop_assert!(spread(&round_robin) <= 1, "{:?}", round_robin);
        let settled = converge(&CooperativeSticky, members, &partitions, 2);
        let loads: Vec<usize> = settled.iter().map(|member| owned(member).len()).collect();
        prop_assert!(spread(&loads) <= 1, "{:?}", loads);
    }

    /// What is as even as it can be stays; and a rebalance takes no more than two rounds (give up, take over).
    #[test]
    fn cooperative_assignments_are_sticky_and_settle_in_two_rounds(
        (mut members, partitions) in groups(8, 6, 12),
        previous in proptest::collection::vec(0..12_usize, 72),
    ) {
        own_at_random(&mut members, &partitions, &previous);
        let settled = converge(&CooperativeSticky, members, &partitions, 2);
        let again = CooperativeSticky.assign(&settled, &partitions);
        for member in &settled {
            prop_assert_eq!(&again[&member.member_id], &owned(member));
        }
        // No member has two more than another that could take one of its partitions.
        for giver in &settled {
            for taker in &settled {
                let could_give = owned(giver).iter().any(|held| taker.subscription.topics.contains(&held.topic));
                prop_assert!(!could_give || owned(giver).len() <= owned(taker).len() + 1);
            }
        }
    }

    #[test]
    fn a_member_that_joins_or_leaves_moves_no_partition_between_the_others(
        members in 2..8_usize,
        partitions in proptest::collection::vec(1..12, 1..4),
        leaves in any::<bool>(),
    ) {
        let names = ["a", "b", "c"];
        let partitions: PartitionCounts =
            names.iter().zip(partitions).map(|(name, count)| (Topic::from(*name), count)).collect();
        let group = (0..members).map(|number| member(&format!("c{number}"), &names)).collect();
        let mut before = converge(&CooperativeSticky, group, &partitions, 1);
        if leaves {
            before.remove(0);
        } else {
            before.push(member("c9", &names));
        }
        let after = converge(&CooperativeSticky, before.clone(), &partitions, 2);
        for (before, after) in before.iter().zip(&after) {
            let (had, has) = (owned(before), owned(after));
            let (kept, gained) = (had.iter().filter(|one| has.contains(one)).count(), has.len());
            if leaves {
                prop_assert_eq!(kept, had.len(), "{} lost something", before.member_id);
            } else if before.member_id != "c9" {
                prop_assert_eq!(kept, gained, "{} gained something", before.member_id);
            }
        }
    }

    #[test]
    fn range_gives_equal_subscribers_equal_numbers(members in 1..6_usize, count in 1..20) {
        let members: Vec<_> = (0..members).map(|number| member(&format!("c{number}"), &["a", "b"])).collect();
        for partitions in Range.assign(&members, &counts(&[("a", count), ("b", count)])).values() {
            let numbers = |topic: &str| -> Vec<i32> {
                partitions.iter().filter(|one| one.topic == *topic).map(|one| one.partition).collect()
            };
            prop_assert_eq!(numbers("a"), numbers("b"));
        }
    }
}

/// Groups over random, unequal subscriptions; some members say nothing of what they own.
fn groups(
    members: usize,
    topics: usize,
    most_partitions: i32,
) -> impl Strategy<Value = (Vec<MemberSubscription>, PartitionCounts)> {
    let subscriptions = proptest::collection::vec(proptest::collection::vec(any::<bool>(), topics), 1..=members);
    (subscriptions, proptest::collection::vec(0..=most_partitions, topics)).prop_map(|(wanted, partitions)| {
        let name = |topic: usize| char::from(b'a' + topic as u8).to_string();
        let members = wanted.iter().enumerate().map(|(place, wanted)| {
            let names: Vec<String> =
                wanted.iter().enumerate().filter(|(_, wants)| **wants).map(|(topic, _)| name(topic)).collect();
            member(&format!("c{place}"), &names.iter().map(String::as_str).collect::<Vec<_>>())
        });
        let counts = partitions.iter().enumerate().map(|(topic, count)| (Topic::from(name(topic)), *count));
        (members.collect(), counts.collect())
    })
}

/// Hands partitions to members of an earlier generation, without regard for balance; beyond the members, to nobody.
fn own_at_random(members: &mut [MemberSubscription], partitions: &PartitionCounts, choices: &[usize]) {
    let all = partitions.iter().flat_map(|(topic, count)| (0..*count).map(move |number| (topic, number)));
    for ((topic, number), choice) in all.zip(choices) {
        if let Some(member) = members.get_mut(*choice)
            && member.subscription.topics.contains(topic)
        {
            member.subscription.generation = Some(1);
            member.subscription.owned_partitions.get_or_insert_default().push(TopicPartition::new(topic, number));
        }
    }
}

/// Plays rebalances as members carry them out, until one changes nothing; the first `rounds` may change something.
fn converge(
    assignor: &dyn Assignor,
    mut members: Vec<MemberSubscription>,
    partitions: &PartitionCounts,
    rounds: i32,
) -> Vec<MemberSubscription> {
    for round in 0.. {
        let assigned = assignor.assign(&members, partitions);
        let holders: Vec<&TopicPartition> = members
            .iter()
            .flat_map(|member| {
                member
                    .subscription
                    .owned_partitions
                    .iter()
                    .flatten()
                    .filter(|held| !assigned[&member.member_id].contains(held))
            })
            .collect();
        for given in assigned.values() {
            for partition in given {
                assert!(!holders.contains(&partition), "{partition} is given away while its owner holds it");
            }
        }
        let unchanged = holders.is_empty() && members.iter().all(|member| owned(member) == assigned[&member.member_id]);
        if unchanged {
            return members;
        }
        assert!(round < rounds, "no end after {round} rounds");
        for member in &mut members {
            member.subscription.generation = Some(round + 2);
            member.subscription.owned_partitions = Some(assigned[&member.member_id].clone());
        }
    }
    unreachable!("the loop ends by returning")
}

fn owned(member: &MemberSubscription) -> Vec<TopicPartition> {
    let mut owned = member.subscription.owned_partitions.clone().unwrap_or_default();
    owned.sort_unstable();
    owned
}

fn spread(loads: &[usize]) -> usize {
    loads.iter().max().unwrap() - loads.iter().min().unwrap()
}

fn check_whole(
    members: &[MemberSubscription],
    partitions: &PartitionCounts,
    assigned: &GroupAssignment,
) -> Result<(), TestCaseError> {
    let mut owners = BTreeMap::<&TopicPartition, &str>::new();
    for member in members {
        for partition in &assigned[&member.member_id] {
            prop_assert!(member.subscription.topics.contains(&partition.topic), "{} is not wanted", partition);
            prop_assert!(partition.partition < partitions[&partition.topic]);
            prop_assert_eq!(owners.insert(partition, &member.member_id), None, "{} has two owners", partition);
        }
    }
    let wanted = partitions.iter().filter(|(topic, _)| members.iter().any(|m| m.subscription.topics.contains(topic)));
    let expected: i32 = wanted.map(|(_, count)| *count).sum();
    prop_assert_eq!(owners.len(), usize::try_from(expected).unwrap(), "partitions without an owner");
    Ok(())
}
