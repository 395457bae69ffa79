//! Assignors of the caller's own: what members say to the leader, what it decides, and what it says to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kafka_harbor::client::{Consumer, ConsumerError, ConsumerEvent, OffsetReset};
use kafka_harbor::machine::assignor::{
    Assignor, GroupAssignment, LastAssignment, MemberSubscription, PartitionCounts, Range,
};
use kafka_harbor::record::TopicPartition;
use protocol_tests::{kafka, unique};
use tokio::task::JoinHandle;

use super::{SECOND, client, produce, topic, until};

/// Partitions by weight: each member says its own, and hears from the leader that of the whole group. What the leader deals out is
/// what no assignor of Kafka's would.
#[derive(Debug)]
struct ByWeight {
    own: u8,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    partitions: BTreeSet<TopicPartition>,
    weight_of_all: Option<Bytes>,
}

impl ByWeight {
    fn new(own: u8) -> Arc<Self> {
        Arc::new(Self { own, heard: Mutex::default() })
    }

    /// How many partitions it was assigned last, and the weight of all as the leader told it.
    fn heard(&self) -> (usize, Option<u8>) {
        let heard = self.heard.lock().unwrap();
        (heard.partitions.len(), heard.weight_of_all.as_ref().map(|data| data[0]))
    }
}

fn weight(member: &MemberSubscription) -> usize {
    usize::from(member.subscription.user_data.as_ref().map_or(0, |data| data[0]))
}

impl Assignor for ByWeight {
    fn name(&self) -> &str {
        "by-weight"
    }

    fn user_data(&self, _: Option<LastAssignment<'_>>) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(&[self.own]))
    }

    fn assign(&self, members: &[MemberSubscription], partitions: &PartitionCounts) -> GroupAssignment {
        // The whole is known to `assignment_data` by the leader alone.
        let all: usize = members.iter().map(weight).sum();
        self.heard.lock().unwrap().weight_of_all = Some(Bytes::copy_from_slice(&[all as u8]));
        let mut left: Vec<_> = partitions
            .iter()
            .flat_map(|(topic, count)| (0..*count).map(|number| TopicPartition::new(topic.clone(), number)))
            .collect();
        let share = left.len() / all.max(1);
        let dealt = members.iter().map(|member| {
            let many = (weight(member) * share).min(left.len());
            (member.member_id.clone(), left.drain(..many).collect())
        });
        dealt.collect()
    }

    fn assignment_data(&self, _: &MemberSubscription, _: &[TopicPartition]) -> Option<Bytes> {
        self.heard.lock().unwrap().weight_of_all.clone()
    }

    fn assigned(&self, assignment: LastAssignment<'_>, data: Option<&Bytes>) {
        let mut heard = self.heard.lock().unwrap();
        *heard = Heard { partitions: assignment.partitions.iter().cloned().collect(), weight_of_all: data.cloned() };
    }
}

type Owned = Arc<Mutex<BTreeSet<TopicPartition>>>;

/// A member that follows its assignment until it is aborted, and counts what it reads.
fn follow(mut consumer: Consumer, owned: Owned, read: Arc<Mutex<BTreeMap<usize, usize>>>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while let Some(event) = consumer.next().await {
            match event {
                ConsumerEvent::Assigned(came) => {
                    owned.lock().unwrap().extend(came.into_iter().map(|it| it.assigned.partition));
                }
                ConsumerEvent::Revoked(gone, release) => {
                    owned.lock().unwrap().retain(|partition| gone.iter().all(|it| it.partition != *partition));
                    release.send();
                }
                ConsumerEvent::Batch(batch) => {
                    let mut read = read.lock().unwrap();
                    super::values(&batch).into_iter().for_each(|(_, number)| *read.entry(number).or_default() += 1);
                }
                ConsumerEvent::Lost(gone) => panic!("lost {gone:?}"),
                ConsumerEvent::Fault(error) => panic!("{error}"),
                _ => {}
            }
        }
    })
}

#[tokio::test]
async fn an_assignor_of_the_callers_own_decides_and_who_offers_another_is_refused() {
    let Some(broker) = kafka() else { return };
    let client = client(broker);
    let topic = topic(&client, 6).await;
    let group = unique("assignors");
    let build = |assignor: Arc<dyn Assignor>| {
        let builder = client.consumer(&group).topic(&topic, OffsetReset::Earliest);
        builder.assignors(vec![assignor]).build().unwrap()
    };
    let (light, heavy) = (ByWeight::new(1), ByWeight::new(2));
    let (owned, read) = (<[Owned; 2]>::default(), Arc::default());
    let first = follow(build(light.clone()), owned[0].clone(), Arc::clone(&read));
    until(60 * SECOND, "the first member has all", || owned[0].lock().unwrap().len() == 6).await;
    assert_eq!(light.heard(), (6, Some(1)));
    let second = follow(build(heavy.clone()), owned[1].clone(), Arc::clone(&read));
    let sizes = || owned.each_ref().map(|owned| owned.lock().unwrap().len());
    until(60 * SECOND, "a third and two thirds", || sizes() == [2, 4]).await;
    assert_eq!((light.heard(), heavy.heard()), ((2, Some(3)), (4, Some(3))));
    {
        let [one, other] = owned.each_ref().map(|owned| owned.lock().unwrap().clone());
        assert!(one.is_disjoint(&other), "{one:?} {other:?}");
        assert_eq!((&light.heard.lock().unwrap().partitions, &heavy.heard.lock().unwrap().partitions), (&one, &other));
    }

    let stranger = build(Arc::new(Range));
    let refused: ConsumerError = stranger.joined(60 * SECOND).await.unwrap_err();
    assert!(
        matches!(&refused, ConsumerError::NoCommonAssignor { offered, .. } if offered == &["range"]),
        "{refused:?}"
    );
    assert!(refused.is_fatal());
    assert_eq!(refused.to_string(), format!("group {group} runs none of the assignors [\"range\"]"));

    produce(&client, &topic, 0, 300).await;
    until(60 * SECOND, "all is read", || read.lock().unwrap().len() == 300).await;
    assert!(read.lock().unwrap().values().all(|times| *times == 1), "{read:?}");
    assert_eq!(sizes(), [2, 4], "the refusal moved nothing");
    for member in [first, second] {
        assert!(!member.is_finished());
        member.abort();
    }
}
