use kafka_protocol::messages::BrokerId;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};

use super::*;
use crate::record::{LeaderEpoch, TopicPartition};

const MS: Duration = Duration::from_millis(1);

struct Rig {
    metadata: Metadata,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        let pace = Pace { max_age: 300_000 * MS, max_idle: 900_000 * MS, backoff: 100 * MS, backoff_max: 1_000 * MS };
        Self { metadata: Metadata::new(pace), now: Instant::now() }
    }

    /// A rig whose view has the topic `t` with leader 1 in epoch 5.
    fn with_topic() -> Self {
        let mut rig = Self::new();
        rig.metadata.want(rig.now, &["t".into()]);
        rig.asked().unwrap();
        rig.answer(vec![topic("t", 1, 0, &[(1, 5, 0)])]);
        rig
    }

    fn asked(&mut self) -> Option<Vec<String>> {
        let request = self.metadata.poll_request(self.now)?;
        assert!(!request.allow_auto_topic_creation);
        let mut names: Vec<_> = request.topics.unwrap().into_iter().map(|t| t.name.unwrap().to_string()).collect();
        names.sort();
        Some(names)
    }

    fn answer(&mut self, topics: Vec<MetadataResponseTopic>) -> Vec<Event> {
        let broker = MetadataResponseBroker::default().with_node_id(BrokerId(1)).with_port(9092);
        let response = MetadataResponse::default().with_brokers(vec![broker]).with_topics(topics);
        self.metadata.handle_response(self.now, response, 0.5)
    }

    fn due_in(&self) -> u128 {
        (self.metadata.poll_timeout().unwrap() - self.now).as_millis()
    }

    fn leader(&self) -> (Option<i32>, Option<i32>) {
        let view = *self.metadata.view().partition(&TopicPartition::new("t", 0)).unwrap();
        (view.leader.map(|node| node.0), view.leader_epoch.map(|LeaderEpoch(epoch)| epoch))
    }
}

/// Partitions are leader, epoch and error code, in order.
fn topic(name: &'static str, id: u128, error: i16, partitions: &[(i32, i32, i16)]) -> MetadataResponseTopic {
    let partitions = (0..).zip(partitions).map(|(index, &(leader, epoch, error))| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(BrokerId(leader))
            .with_leader_epoch(epoch)
            .with_error_code(error)
    });
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_static_str(name))))
        .with_topic_id(Uuid::from_u128(id))
        .with_error_code(error)
        .with_partitions(partitions.collect())
}

#[test]
fn a_demand_is_met_by_one_request_and_then_by_the_view() {
    let mut rig = Rig::new();
    assert_eq!(rig.asked(), None, "nobody wants anything");
    let round = rig.metadata.want(rig.now, &["t".into()]).unwrap();
    assert_eq!(rig.asked().unwrap(), ["t"]);
    assert_eq!(rig.asked(), None, "one at a time");
    assert!(!rig.metadata.is_over(round));
    rig.answer(vec![topic("t", 1, 0, &[(1, 5, 0)])]);
    assert!(rig.metadata.is_over(round));
    assert_eq!(rig.leader(), (Some(1), Some(5)));
    assert_eq!(rig.metadata.want(rig.now, &["t".into()]), None);
    assert_eq!(rig.asked(), None);
}

#[test]
fn demands_during_a_request_share_the_next_one() {
    let mut rig = Rig::new();
    rig.metadata.want(rig.now, &["a".into()]);
    rig.asked().unwrap();
    let b = rig.metadata.want(rig.now, &["b".into()]).unwrap();
    let c = rig.metadata.want(rig.now, &["c".into()]).unwrap();
    rig.answer(vec![topic("a", 1, 0, &[(1, 0, 0)])]);
    assert!(!rig.metadata.is_over(b));
    assert_eq!(rig.asked().unwrap(), ["a", "b", "c"]);
    rig.answer(vec![]);
    assert!(rig.metadata.is_over(b) && rig.metadata.is_over(c));
}

#[test]
fn age_and_invalidation_ask_again_but_not_in_a_row() {
    let mut rig = Rig::with_topic();
    assert_eq!(rig.due_in(), 300_000);
    rig.metadata.invalidate(rig.now, None);
    rig.metadata.invalidate(rig.now, None);
    assert_eq!(rig.due_in(), 100);
    rig.now += 100 * MS;
    assert!(rig.asked().is_some());
    assert_eq!(rig.metadata.poll_timeout(), None, "the answer is awaited");
    rig.metadata.invalidate(rig.now, None);
    rig.now += 20 * MS;
    rig.answer(vec![topic("t", 1, 0, &[(1, 5, 0)])]);
    assert!(rig.asked().is_some(), "what came during the request may be newer than its answer");
}

#[test]
fn a_refresh_asks_at_once_whatever_is_known() {
    let mut rig = Rig::with_topic();
    let round = rig.metadata.refresh(rig.now, &["t".into()]);
    assert!(!rig.metadata.is_over(round));
    assert!(rig.asked().is_some());
}

#[test]
fn failures_wait_ever_longer_and_keep_the_view() {
    let mut rig = Rig::with_topic();
    rig.metadata.invalidate(rig.now, None);
    rig.now += 100 * MS;
    let mut waits = Vec::new();
    for _ in 0..6 {
        rig.asked().unwrap();
        rig.metadata.handle_failure(rig.now, 0.5);
        // Neither an invalidation nor a demand makes it sooner: there is no broker to ask.
        rig.metadata.invalidate(rig.now, None);
        rig.metadata.want(rig.now, &["other".into()]);
        waits.push(rig.due_in());
        rig.now += 1_000 * MS;
    }
    assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
    assert_eq!(rig.leader(), (Some(1), Some(5)));
}

/// platformatic#377 and its like: an error about a topic must not take its last good leaders away.
#[test]
fn an_error_about_a_topic_keeps_its_partitions() {
    let mut rig = Rig::with_topic();
    rig.metadata.refresh(rig.now, &[]);
    rig.asked().unwrap();
    rig.answer(vec![topic("t", 0, ErrorCode::LEADER_NOT_AVAILABLE.0, &[])]);
    assert_eq!(rig.leader(), (Some(1), Some(5)));
    let view = rig.metadata.view().topic("t").unwrap();
    assert_eq!(view.error, ErrorCode::LEADER_NOT_AVAILABLE);
    assert!(!view.id.is_nil());
}

#[test]
fn an_answer_without_brokers_keeps_those_that_are_known() {
    let mut rig = Rig::with_topic();
    rig.metadata.refresh(rig.now, &[]);
    rig.asked().unwrap();
    rig.metadata.handle_response(rig.now, MetadataResponse::default(), 0.5);
    assert_eq!(rig.metadata.view().brokers.len(), 1);
}

/// A broker that has just started knows of none, and its answer was kept until it was old: for five minutes nothing could be asked of anybody.
#[test]
fn an_answer_without_brokers_is_followed_by_another_request_soon() {
    let mut rig = Rig::new();
    rig.metadata.want(rig.now, &["t".into()]);
    rig.asked().unwrap();
    let answer = MetadataResponse::default().with_topics(vec![topic("t", 1, 0, &[(1, 5, 0)])]);
    rig.metadata.handle_response(rig.now, answer, 0.5);
    assert_eq!(rig.due_in(), 100);
    rig.now = rig.metadata.poll_timeout().unwrap();
    rig.asked().unwrap();
    rig.answer(vec![topic("t", 1, 0, &[(1, 5, 0)])]);
    assert_eq!(rig.due_in(), 300_000);
}

/// KIP-320: a broker that lags behind tells of a leader that was.
#[test]
fn leader_epochs_never_go_back_for_the_same_topic_id() {
    let mut rig = Rig::with_topic();
    for (id, partition, expected) in [
        (1, (2, 4, 0), (Some(1), Some(5))),
        (1, (2, 6, 0), (Some(2), Some(6))),
        (1, (3, -1, 0), (Some(3), None)),
        (1, (2, 6, 0), (Some(2), Some(6))),
        (2, (3, 0, 0), (Some(3), Some(0))),
    ] {
        rig.metadata.refresh(rig.now, &[]);
        rig.asked().unwrap();
        let events = rig.answer(vec![topic("t", id, 0, &[partition])]);
        assert_eq!(rig.leader(), expected, "{partition:?}");
        let recreated = Event::Recreated { topic: "t".into(), old: Uuid::from_u128(1), new: Uuid::from_u128(2) };
        assert_eq!(events, if id == 2 { vec![recreated] } else { vec![] });
    }
}

#[test]
fn a_partition_without_a_leader_is_looked_at_again_ever_more_slowly() {
    let mut rig = Rig::new();
    rig.metadata.want(rig.now, &["t".into()]);
    let mut waits = Vec::new();
    for _ in 0..8 {
        rig.asked().unwrap();
        rig.answer(vec![topic("t", 1, 0, &[(-1, 5, ErrorCode::LEADER_NOT_AVAILABLE.0)])]);
        waits.push(rig.due_in());
        rig.now = rig.metadata.poll_timeout().unwrap();
    }
    assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    rig.asked().unwrap();
    rig.answer(vec![topic("t", 1, 0, &[(1, 6, 0)])]);
    assert_eq!(rig.due_in(), 300_000);
}

/// franz-go#1348: answers that lie about their partitions.
#[test]
fn hostile_answers_neither_grow_the_view_nor_size_anything() {
    let mut rig = Rig::with_topic();
    rig.metadata.refresh(rig.now, &[]);
    rig.asked().unwrap();
    let mut lying = topic("t", 1, 0, &[(1, 6, 0), (1, 6, 0)]);
    lying.partitions[0].partition_index = i32::MAX;
    lying.partitions[1].partition_index = -1;
    rig.answer(vec![lying, topic("unasked", 9, 0, &[(1, 0, 0)]), MetadataResponseTopic::default().with_name(None)]);
    let view = rig.metadata.view();
    assert_eq!(view.topics.len(), 1);
    assert_eq!(view.topic("t").unwrap().partitions.len(), 2);
    assert_eq!(view.leader(&TopicPartition::new("t", 0)), Some(NodeId(1)), "what is left out stays as it was");
    assert_eq!(view.leader(&TopicPartition::new("t", 1)), None);
}

/// A broker that lags behind a topic's growth took the new partitions away again, with the epochs of their leaders; and a group's leader asked for a
/// rebalance each way.
#[test]
fn a_broker_that_has_not_heard_of_new_partitions_takes_none_away() {
    let mut rig = Rig::with_topic();
    for (id, answer, partitions, second) in [
        (1, &[(1, 5, 0), (1, 9, 0)][..], 2, Some(9)),
        (1, &[(1, 5, 0)], 2, Some(9)),
        (1, &[(1, 5, 0), (2, 3, 0)], 2, Some(9)),
        // Of a new id it is another topic.
        (2, &[(1, 0, 0)], 1, None),
    ] {
        rig.metadata.refresh(rig.now, &[]);
        rig.asked().unwrap();
        rig.answer(vec![topic("t", id, 0, answer)]);
        let view = rig.metadata.view().topic("t").unwrap().clone();
        let epoch = view.partitions.get(1).and_then(|partition| partition.leader_epoch);
        assert_eq!((view.partitions.len(), epoch), (partitions, second.map(LeaderEpoch)), "{answer:?}");
    }
}

#[test]
fn names_that_do_not_exist_are_forgotten_when_nobody_asks_for_them() {
    let mut rig = Rig::with_topic();
    rig.metadata.want(rig.now, &["typo".into()]);
    let answer =
        || vec![topic("typo", 0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0, &[]), topic("t", 1, 0, &[(1, 5, 0)])];
    assert_eq!(rig.asked().unwrap(), ["t", "typo"]);
    rig.answer(answer());
    assert_eq!(rig.metadata.view().topic("typo").unwrap().error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(rig.due_in(), 300_000, "a missing topic alone makes no haste");
    rig.now += 300_000 * MS;
    assert_eq!(rig.asked().unwrap(), ["t", "typo"]);
    rig.answer(answer());
    assert!(rig.metadata.view().topic("typo").is_none());
    rig.now += 300_000 * MS;
    assert_eq!(rig.asked().unwrap(), ["t"]);
}

/// A client that once wrote to many topics asked for all of them until it ended.
#[test]
fn topics_that_nobody_uses_are_forgotten_and_asked_for_again_by_their_next_use() {
    let mut rig = Rig::with_topic();
    rig.metadata.want(rig.now, &["quiet".into()]);
    rig.asked().unwrap();
    rig.answer(vec![topic("t", 1, 0, &[(1, 5, 0)]), topic("quiet", 2, 0, &[(1, 0, 0)])]);
    let used = Topic::from("t");
    for _ in 0..3 {
        rig.now += 300_000 * MS;
        assert!(!rig.metadata.keep(rig.now, [&used]), "it is known");
        rig.asked().unwrap();
        rig.answer(vec![topic("t", 1, 0, &[(1, 5, 0)])]);
    }
    let view = rig.metadata.view();
    assert!(view.topic("t").is_some() && view.topic("quiet").is_none());
    rig.now += 300_000 * MS;
    assert_eq!(rig.asked().unwrap(), ["t"]);
    rig.answer(vec![topic("t", 1, 0, &[(1, 5, 0)])]);
    rig.now += 200 * MS;
    assert!(rig.metadata.keep(rig.now, [&Topic::from("quiet")]));
    assert_eq!(rig.asked().unwrap(), ["quiet", "t"]);
    rig.answer(vec![topic("t", 1, 0, &[(1, 5, 0)])]);
    // Nor is one lost whose leader is doubted while nobody kept it.
    rig.now += 900_000 * MS;
    rig.metadata.invalidate(rig.now, Some(&used));
    assert_eq!(rig.asked().unwrap(), ["t"]);
}

/// KIP-951.
#[test]
fn a_later_epoch_that_an_answer_tells_moves_the_leader_and_an_older_one_never() {
    let mut rig = Rig::with_topic();
    let hint = |leader, epoch, id, partition, address: Option<&str>| LeaderHint {
        partition: TopicPartition::new("t", partition),
        topic_id: Uuid::from_u128(id),
        leader: NodeId(leader),
        epoch: LeaderEpoch(epoch),
        address: address.map(|address| address.parse().unwrap()),
    };
    let at = Some("b:2");
    // The same epoch, an older one, one of another topic of that name, of no such partition, at a broker that nobody knows.
    for useless in
        [hint(2, 5, 1, 0, at), hint(2, 4, 1, 0, at), hint(2, 6, 9, 0, at), hint(2, 6, 1, 7, at), hint(2, 6, 1, 0, None)]
    {
        let before = rig.metadata.view().clone();
        assert_eq!(rig.metadata.learn_leaders(&[useless]), []);
        assert!(Arc::ptr_eq(&before, rig.metadata.view()));
    }
    assert_eq!(rig.leader(), (Some(1), Some(5)));
    let moved = [TopicPartition::new("t", 0)];
    assert_eq!(rig.metadata.learn_leaders(&[hint(2, 6, 1, 0, at)]), moved);
    assert_eq!(rig.leader(), (Some(2), Some(6)));
    assert_eq!(rig.metadata.view().brokers[&NodeId(2)].address.to_string(), "b:2");
    assert_eq!(rig.metadata.learn_leaders(&[hint(2, 6, 1, 0, None)]), moved, "known already");
    // A broker that lags behind does not bring the old one back.
    rig.metadata.refresh(rig.now, &[]);
    rig.asked().unwrap();
    rig.answer(vec![topic("t", 1, 0, &[(1, 5, 0)])]);
    assert_eq!(rig.leader(), (Some(2), Some(6)));
}

#[test]
fn a_request_whose_sender_died_is_due_again() {
    let mut rig = Rig::new();
    let round = rig.metadata.want(rig.now, &["t".into()]).unwrap();
    rig.asked().unwrap();
    rig.metadata.abandon(rig.now);
    assert_eq!(rig.asked().unwrap(), ["t"]);
    assert!(!rig.metadata.is_over(round));
    rig.answer(vec![topic("t", 1, 0, &[(1, 5, 0)])]);
    assert!(rig.metadata.is_over(round));
}
