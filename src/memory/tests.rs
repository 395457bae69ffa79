//! The broker as a whole, and what its parts' tests share.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::protocol::batch::{BatchWriter, Closing, ProducerStamp, ReadOptions};
use crate::protocol::compression::Compression;

/// A batch of records with these values and this time.
pub(super) fn batch(values: &[&str], time: i64) -> EncodedBatch {
    closed(values, time, Closing::default())
}

/// A batch of an idempotent producer, from `base_sequence` on.
pub(super) fn numbered(values: &[&str], id: i64, base_sequence: i32) -> EncodedBatch {
    let producer = Some(ProducerStamp { id, epoch: 0, base_sequence });
    closed(values, 5, Closing { producer, ..Closing::default() })
}

/// The values of all records in these batches.
pub(super) fn values(batches: &[EncodedBatch]) -> Vec<String> {
    let mut all = Vec::new();
    for batch in batches {
        let view = batch.open(&ReadOptions::default()).expect("whole");
        for record in view.records() {
            let value = record.expect("whole").value.expect("a value");
            all.push(String::from_utf8(value.to_vec()).expect("text"));
        }
    }
    all
}

fn closed(values: &[&str], time: i64, closing: Closing) -> EncodedBatch {
    let mut writer = BatchWriter::new(Compression::NONE);
    for value in values {
        writer.append(Timestamp(time), None, Some(value.as_bytes()), []).expect("fits");
    }
    writer.close(closing).expect("has records")
}

struct Rig {
    broker: Broker,
    now: Instant,
}

const GROUP: &str = "billing";
const TIMEOUT: Duration = Duration::from_secs(30);

impl Rig {
    fn new(topics: &[(&str, i32)]) -> Self {
        let mut broker = Broker::default();
        let now = Instant::now();
        for (topic, partitions) in topics {
            broker.create_topic(&Topic::from(*topic), *partitions, TopicConfig::default(), now).expect("created");
        }
        Self { broker, now }
    }

    fn join(&mut self, topics: &[&str]) -> MemberId {
        let topics = topics.iter().map(|topic| Topic::from(*topic)).collect();
        self.broker.join(GROUP, topics, TIMEOUT, self.now)
    }

    fn events(&mut self, member: MemberId) -> Vec<MemberEvent> {
        self.broker.take_events(GROUP, member).into()
    }

    /// What a member's next event assigns; panics if that is another kind or none.
    fn assigned(&mut self, member: MemberId) -> Vec<Owned> {
        match self.events(member).as_slice() {
            [MemberEvent::Assigned(owned)] => owned.clone(),
            other => panic!("expected an assignment, got {other:?}"),
        }
    }

    fn revoking(&mut self, member: MemberId) -> Vec<Owned> {
        match self.events(member).as_slice() {
            [MemberEvent::Revoking(owned, deadline)] => {
                assert_eq!(*deadline, self.now + TIMEOUT);
                owned.clone()
            }
            other => panic!("expected a revocation, got {other:?}"),
        }
    }

    fn commit(&mut self, member: MemberId, owned: &Owned, offset: i64) -> Result<(), ErrorCode> {
        let committed = Committed { offset: Offset(offset), leader_epoch: None, metadata: None };
        self.broker.commit(GROUP, member, vec![Commit { owned: owned.clone(), committed }])[0]
    }

    /// Every partition has one owner, and nobody owns what the others own too.
    fn assert_exclusive(&self, partitions: usize) {
        let members = self.broker.members(GROUP).expect("a group");
        let mut owners = BTreeMap::new();
        for member in members {
            for owned in self.broker.owned_by(GROUP, member) {
                assert_eq!(owners.insert(owned.partition.clone(), member), None, "{:?} has two owners", owned);
            }
        }
        assert_eq!(owners.len(), partitions);
    }
}

#[test]
fn a_partition_moves_only_once_its_owner_has_let_go_and_the_others_stay() {
    let mut rig = Rig::new(&[("orders", 6)]);
    let first = rig.join(&["orders"]);
    let all = rig.assigned(first);
    assert_eq!(all.len(), 6);

    let second = rig.join(&["orders"]);
    let going = rig.revoking(first);
    assert_eq!(going.len(), 3);
    assert!(rig.events(second).is_empty(), "nothing is handed over before it is released");
    assert_eq!(rig.commit(first, &going[0], 4), Ok(()), "until then its owner commits");

    rig.broker.release(GROUP, first, &going, rig.now);
    let got = rig.assigned(second);
    let names = |owned: &[Owned]| owned.iter().map(|o| o.partition.clone()).collect::<Vec<_>>();
    assert_eq!(names(&got), names(&going));
    assert!(got.iter().all(|new| going.iter().all(|old| new.epoch > old.epoch)), "by assignments of their own");
    assert_eq!(rig.commit(first, &going[0], 5), Err(ErrorCode::STALE_MEMBER_EPOCH));
    assert_eq!(rig.broker.committed(GROUP, &going[0].partition).expect("committed").offset, Offset(4));
    rig.assert_exclusive(6);

    let third = rig.join(&["orders"]);
    let (from_first, from_second) = (rig.revoking(first), rig.revoking(second));
    rig.broker.release(GROUP, first, &from_first, rig.now);
    assert_eq!(rig.assigned(third).len(), 1, "each release frees what it covers");
    rig.broker.release(GROUP, second, &from_second, rig.now);
    assert_eq!(rig.assigned(third).len(), 1);
    rig.assert_exclusive(6);
}

#[test]
fn members_get_only_partitions_of_topics_they_subscribe_to() {
    let mut rig = Rig::new(&[("orders", 4), ("orders.retry", 2)]);
    let original = rig.join(&["orders"]);
    let ladder = rig.join(&["orders.retry"]);
    assert!(rig.assigned(original).iter().all(|owned| owned.partition.topic == "orders"));
    assert!(rig.assigned(ladder).iter().all(|owned| owned.partition.topic == "orders.retry"));
    rig.assert_exclusive(6);
}

#[test]
fn what_is_not_released_in_time_is_taken_away() {
    let mut rig = Rig::new(&[("orders", 2)]);
    let first = rig.join(&["orders"]);
    rig.assigned(first);
    let second = rig.join(&["orders"]);
    let going = rig.revoking(first);

    assert_eq!(rig.broker.poll_timeout(), Some(rig.now + TIMEOUT));
    rig.now += TIMEOUT - Duration::from_millis(1);
    rig.broker.handle_timeout(rig.now);
    assert!(rig.events(second).is_empty());
    rig.now += Duration::from_millis(1);
    rig.broker.handle_timeout(rig.now);
    assert_eq!(rig.events(first), [MemberEvent::Lost(going.clone())]);
    assert_eq!(rig.assigned(second).len(), 1);
    assert_eq!(rig.broker.poll_timeout(), None);

    rig.broker.release(GROUP, first, &going, rig.now);
    rig.assert_exclusive(2);
}

#[test]
fn a_late_release_does_not_free_a_partition_that_came_back() {
    let mut rig = Rig::new(&[("orders", 1)]);
    let member = rig.join(&["orders"]);
    let old = rig.assigned(member);
    rig.broker.lose(GROUP, &[TopicPartition::new("orders", 0)], rig.now);
    let events = rig.events(member);
    let [MemberEvent::Lost(lost), MemberEvent::Assigned(new)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(*lost, old);

    rig.broker.release(GROUP, member, &old, rig.now);
    assert_eq!(rig.broker.owned_by(GROUP, member), *new);
    assert_eq!(rig.commit(member, &old[0], 1), Err(ErrorCode::STALE_MEMBER_EPOCH));
    assert_eq!(rig.commit(member, &new[0], 1), Ok(()));
}

#[test]
fn an_ordered_revocation_gives_the_partition_back_by_a_new_assignment() {
    let mut rig = Rig::new(&[("orders", 2)]);
    let member = rig.join(&["orders"]);
    rig.assigned(member);
    rig.broker.revoke(GROUP, &[TopicPartition::new("orders", 1)], rig.now);
    let going = rig.revoking(member);
    rig.broker.revoke(GROUP, &[TopicPartition::new("orders", 1)], rig.now);
    assert!(rig.events(member).is_empty(), "it is asked once");
    rig.broker.release(GROUP, member, &going, rig.now);
    let back = rig.assigned(member);
    assert_eq!(back[0].partition, going[0].partition);
    assert!(back[0].epoch > going[0].epoch);
}

#[test]
fn a_session_that_ends_hands_everything_to_the_others_and_joins_anew() {
    let mut rig = Rig::new(&[("orders", 4)]);
    let first = rig.join(&["orders"]);
    rig.assigned(first);
    let second = rig.join(&["orders"]);
    let going = rig.revoking(first);
    rig.broker.release(GROUP, first, &going, rig.now);
    rig.assigned(second);

    rig.broker.expire_session(GROUP, first, rig.now).expect("a member");
    assert!(matches!(rig.events(first).as_slice(), [MemberEvent::Lost(lost)] if lost.len() == 2));
    let events = rig.events(second);
    let [MemberEvent::Assigned(got), MemberEvent::Revoking(back, _)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((got.len(), back.len()), (2, 2));
    rig.broker.release(GROUP, second, back, rig.now);
    assert_eq!(rig.assigned(first).len(), 2);
    rig.assert_exclusive(4);
    assert_eq!(rig.broker.expire_session(GROUP, MemberId(99), rig.now), Err(ErrorCode::UNKNOWN_MEMBER_ID));
}

#[test]
fn one_who_leaves_commits_no_more_and_what_was_committed_stays() {
    let mut rig = Rig::new(&[("orders", 1)]);
    let first = rig.join(&["orders"]);
    let owned = rig.assigned(first);
    rig.commit(first, &owned[0], 3).expect("committed");
    rig.broker.leave(GROUP, first, rig.now).expect("a member");
    assert_eq!(rig.commit(first, &owned[0], 4), Err(ErrorCode::UNKNOWN_MEMBER_ID));
    assert_eq!(rig.broker.leave(GROUP, first, rig.now), Err(ErrorCode::UNKNOWN_MEMBER_ID));
    assert_eq!(rig.broker.members(GROUP), Some(vec![]));
    assert_eq!(rig.broker.committed(GROUP, &owned[0].partition).expect("kept").offset, Offset(3));
    assert_eq!(rig.broker.members("nobody"), None);
}

#[test]
fn a_commit_answers_partition_by_partition() {
    let mut rig = Rig::new(&[("orders", 2)]);
    let member = rig.join(&["orders"]);
    let owned = rig.assigned(member);
    let commit = |owned: &Owned, note: usize| Commit {
        owned: owned.clone(),
        committed: Committed {
            offset: Offset(1),
            leader_epoch: Some(LeaderEpoch(0)),
            metadata: Some("n".repeat(note)),
        },
    };
    let stale = Owned { epoch: owned[0].epoch + 100, ..owned[0].clone() };
    let commits = vec![commit(&owned[0], 4096), commit(&owned[1], 4097), commit(&stale, 0)];
    assert_eq!(
        rig.broker.commit(GROUP, member, commits),
        [Ok(()), Err(ErrorCode::OFFSET_METADATA_TOO_LARGE), Err(ErrorCode::STALE_MEMBER_EPOCH)]
    );
    let kept = rig.broker.committed(GROUP, &owned[0].partition).expect("committed");
    assert_eq!(kept.metadata.as_ref().map(String::len), Some(4096));
}

#[test]
fn topics_and_partitions_that_come_later_are_assigned_and_deleted_ones_lost() {
    let mut rig = Rig::new(&[]);
    let member = rig.join(&["orders"]);
    assert!(rig.events(member).is_empty());
    let orders = Topic::from("orders");
    rig.broker.create_topic(&orders, 1, TopicConfig::default(), rig.now).expect("created");
    let first = rig.assigned(member);
    rig.broker.add_partitions(&orders, 3, rig.now).expect("added");
    assert_eq!(rig.assigned(member).len(), 2);
    assert_eq!(rig.broker.add_partitions(&orders, 3, rig.now), Err(ErrorCode::INVALID_PARTITIONS));
    rig.commit(member, &first[0], 1).expect("committed");

    let id = rig.broker.topic(&orders).expect("exists").id;
    rig.broker.delete_topic(&orders, rig.now).expect("deleted");
    assert!(matches!(rig.events(member).as_slice(), [MemberEvent::Lost(lost)] if lost.len() == 3));
    assert_eq!(rig.commit(member, &first[0], 2), Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    assert_eq!(rig.broker.committed(GROUP, &first[0].partition), None);
    rig.broker.create_topic(&orders, 1, TopicConfig::default(), rig.now).expect("created");
    assert_ne!(rig.broker.topic(&orders).expect("exists").id, id);
}

#[test]
fn batches_of_a_topic_come_in_the_order_they_were_appended() {
    let mut rig = Rig::new(&[("orders", 2)]);
    for (partition, value) in [(1, "a"), (0, "b"), (1, "c")] {
        let to = TopicPartition::new("orders", partition);
        rig.broker.append(&to, batch(&[value], 1), Timestamp(1)).expect("appended");
    }
    let all: Vec<_> = rig.broker.batches(&Topic::from("orders")).into_iter().map(|(_, batch)| batch).collect();
    assert_eq!(values(&all), ["a", "b", "c"]);
    let nowhere = TopicPartition::new("orders", 2);
    let refused = rig.broker.append(&nowhere, batch(&["x"], 1), Timestamp(1));
    assert_eq!(refused, Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
}

#[test]
fn topics_are_created_within_kafkas_rules() {
    let mut rig = Rig::new(&[("orders", 1)]);
    let mut create = |name: &str, partitions| {
        rig.broker.create_topic(&Topic::from(name), partitions, TopicConfig::default(), rig.now)
    };
    assert_eq!(create("orders", 1), Err(ErrorCode::TOPIC_ALREADY_EXISTS));
    assert_eq!(create("or ders", 1), Err(ErrorCode::INVALID_TOPIC_EXCEPTION));
    assert_eq!(create("payments", 0), Err(ErrorCode::INVALID_PARTITIONS));
    assert_eq!(create("payments", i32::MAX), Err(ErrorCode::INVALID_PARTITIONS));
}

/// What a test does to a group in one step. Numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Join(BTreeSet<usize>),
    Leave(usize),
    Release(usize),
    Revoke(usize, i32),
    Lose(usize, i32),
    Expire(usize),
    Grow(usize),
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::btree_set(0_usize..3, 1..=3).prop_map(Step::Join),
        2 => (0_usize..6).prop_map(Step::Leave),
        6 => (0_usize..6).prop_map(Step::Release),
        1 => (0_usize..3, 0_i32..6).prop_map(|(topic, partition)| Step::Revoke(topic, partition)),
        1 => (0_usize..3, 0_i32..6).prop_map(|(topic, partition)| Step::Lose(topic, partition)),
        1 => (0_usize..6).prop_map(Step::Expire),
        1 => (0_usize..3).prop_map(Step::Grow),
        1 => Just(Step::Wait),
    ]
}

/// A group, and what its members believe by what they were told.
struct Believers {
    rig: Rig,
    believed: BTreeMap<MemberId, BTreeMap<TopicPartition, u64>>,
    asked: BTreeMap<MemberId, Vec<Owned>>,
    subscriptions: BTreeMap<MemberId, BTreeSet<usize>>,
}

const TOPICS: [&str; 3] = ["a", "b", "c"];

impl Believers {
    fn new() -> Self {
        let rig = Rig::new(&[("a", 1), ("b", 3), ("c", 4)]);
        Self { rig, believed: BTreeMap::new(), asked: BTreeMap::new(), subscriptions: BTreeMap::new() }
    }

    fn member(&self, chosen: usize) -> Option<MemberId> {
        let members = self.rig.broker.members(GROUP).unwrap_or_default();
        members.get(chosen % members.len().max(1)).copied()
    }

    fn take(&mut self, step: Step) {
        let now = self.rig.now;
        match step {
            Step::Join(topics) => {
                let names: Vec<_> = topics.iter().map(|topic| TOPICS[*topic]).collect();
                let member = self.rig.join(&names);
                self.believed.insert(member, BTreeMap::new());
                self.subscriptions.insert(member, topics);
            }
            Step::Leave(chosen) => {
                if let Some(member) = self.member(chosen) {
                    self.rig.broker.leave(GROUP, member, now).expect("a member");
                    self.believed.remove(&member);
                    self.asked.remove(&member);
                    self.subscriptions.remove(&member);
                }
            }
            Step::Release(chosen) => {
                if let Some(member) = self.member(chosen) {
                    self.release(member);
                }
            }
            Step::Revoke(topic, partition) => {
                self.rig.broker.revoke(GROUP, &[TopicPartition::new(TOPICS[topic], partition)], now);
            }
            Step::Lose(topic, partition) => {
                self.rig.broker.lose(GROUP, &[TopicPartition::new(TOPICS[topic], partition)], now);
            }
            Step::Expire(chosen) => {
                if let Some(member) = self.member(chosen) {
                    self.rig.broker.expire_session(GROUP, member, now).expect("a member");
                }
            }
            Step::Grow(topic) => {
                let topic = Topic::from(TOPICS[topic]);
                let more = self.rig.broker.partition_count(&topic).expect("exists") + 1;
                self.rig.broker.add_partitions(&topic, more, now).expect("added");
            }
            Step::Wait => {
                self.rig.now += TIMEOUT;
                self.rig.broker.handle_timeout(self.rig.now);
            }
        }
        self.listen();
    }

    fn release(&mut self, member: MemberId) {
        let released = self.asked.remove(&member).unwrap_or_default();
        for owned in &released {
            self.forget(member, owned);
        }
        self.rig.broker.release(GROUP, member, &released, self.rig.now);
    }

    fn forget(&mut self, member: MemberId, owned: &Owned) {
        let believed = self.believed.get_mut(&member).expect("a member");
        if believed.get(&owned.partition) == Some(&owned.epoch) {
            believed.remove(&owned.partition);
        }
    }

    /// Takes in all events, and checks that nobody believes to have what another believes to have.
    fn listen(&mut self) {
        // What is lost is lost before somebody else has it, so losses are heard first.
        let mut gained = Vec::new();
        for member in self.rig.broker.members(GROUP).unwrap_or_default() {
            for event in self.rig.events(member) {
                match event {
                    MemberEvent::Assigned(owned) => gained.extend(owned.into_iter().map(|owned| (member, owned))),
                    MemberEvent::Revoking(owned, _) => self.asked.entry(member).or_default().extend(owned),
                    MemberEvent::Lost(lost) => {
                        for owned in lost {
                            gained.retain(|(_, given)| *given != owned);
                            self.forget(member, &owned);
                        }
                    }
                }
            }
        }
        for (member, owned) in gained {
            let topic = TOPICS.iter().position(|topic| owned.partition.topic == **topic).expect("one of the topics");
            assert!(self.subscriptions[&member].contains(&topic), "{member} does not read {owned:?}");
            let others = self.believed.iter().filter(|(_, believed)| believed.contains_key(&owned.partition));
            assert_eq!(others.map(|(other, _)| *other).collect::<Vec<_>>(), [], "{owned:?} given to {member}");
            self.believed.get_mut(&member).expect("a member").insert(owned.partition, owned.epoch);
        }
    }

    /// Everybody answers until nobody is asked any more; then all is assigned, evenly.
    fn settle_down(&mut self) {
        for _ in 0..100 {
            let asked: Vec<_> = self.asked.keys().copied().collect();
            if asked.is_empty() {
                break;
            }
            asked.into_iter().for_each(|member| self.release(member));
            self.listen();
        }
        assert!(self.asked.is_empty(), "the group never comes to rest");
        for (index, topic) in TOPICS.iter().enumerate() {
            let count = self.rig.broker.partition_count(&Topic::from(*topic)).expect("exists") as usize;
            let shares: Vec<_> = self
                .subscriptions
                .iter()
                .filter(|(_, topics)| topics.contains(&index))
                .map(|(member, _)| self.believed[member].keys().filter(|p| p.topic == **topic).count())
                .collect();
            if shares.is_empty() {
                continue;
            }
            assert_eq!(shares.iter().sum::<usize>(), count, "every partition of {topic} has an owner");
            let (least, most) = (shares.iter().min().unwrap_or(&0), shares.iter().max().unwrap_or(&0));
            assert!(most - least <= 1, "{topic}: {shares:?}");
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_a_partition_has_one_owner_and_in_the_end_every_partition_has(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut group = Believers::new();
        for step in steps {
            group.take(step);
        }
        group.settle_down();
    }
}
