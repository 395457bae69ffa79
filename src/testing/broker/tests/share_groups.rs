use std::collections::BTreeMap;

use super::*;
use crate::protocol::share::{ShareAcknowledge, ShareFetch, ShareFetched};
use kafka_protocol::messages::share_fetch_request::{
    AcknowledgementBatch, FetchPartition as SharePartition, FetchTopic as ShareTopic,
};
use kafka_protocol::messages::{
    GroupId, ShareFetchRequest, ShareGroupDescribeRequest, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};

const SECOND: Duration = Duration::from_secs(1);

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn rig() -> Rig {
    Rig::with(1, |settings| settings.share_from_earliest = true).topic("t", 1)
}

fn beat(id: &str, epoch: i32) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_member_id(text(id))
        .with_member_epoch(epoch)
        .with_rack_id(None)
        .with_subscribed_topic_names((epoch == 0).then(|| vec![name("t")]))
}

/// A member that fetches by hand.
struct Member {
    id: &'static str,
    connection: ConnectionId,
    epoch: i32,
}

impl Rig {
    fn share_beat(&mut self, id: &str, epoch: i32) -> ShareGroupHeartbeatResponse {
        self.ask_node(1, 1, &beat(id, epoch))
    }

    fn share_member(&mut self, id: &'static str) -> Member {
        let answer = self.share_beat(id, 0);
        assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
        Member { id, connection: self.connect(1), epoch: 0 }
    }

    fn topic_id(&self) -> uuid::Uuid {
        self.cluster.core.topics.get("t").expect("there").1.id
    }

    /// Fetches, and says what becomes of these: first, last, type.
    fn share_fetch(&mut self, member: &mut Member, said: &[(i64, i64, i8)]) -> ShareFetched {
        let batches = said.iter().map(|(first, last, word)| {
            let batch = AcknowledgementBatch::default().with_first_offset(*first).with_last_offset(*last);
            batch.with_acknowledge_types(vec![*word])
        });
        let partition = SharePartition::default().with_acknowledgement_batches(batches.collect());
        let topic = ShareTopic::default().with_topic_id(self.topic_id()).with_partitions(vec![partition]);
        let body = ShareFetchRequest::default()
            .with_group_id(Some(GroupId(text("g"))))
            .with_member_id(Some(text(member.id)))
            .with_share_session_epoch(member.epoch)
            .with_max_records(100)
            .with_topics(vec![topic]);
        member.epoch += 1;
        self.ask(member.connection, 2, &ShareFetch { body, ..ShareFetch::default() })
    }
}

/// Delivery count of each offset, and the code of what was acknowledged.
fn told(answer: &ShareFetched) -> (BTreeMap<i64, i16>, ErrorCode) {
    assert_eq!(answer.0.error_code, 0);
    let Some(part) = answer.0.responses.first().and_then(|topic| topic.partitions.first()) else {
        return (BTreeMap::new(), ErrorCode::NONE);
    };
    let runs = part.acquired_records.iter();
    let counts = runs.flat_map(|run| (run.first_offset..=run.last_offset).map(|offset| (offset, run.delivery_count)));
    (counts.collect(), code(part.acknowledge_error_code))
}

#[test]
fn members_share_partitions_and_one_that_is_silent_goes() {
    let mut rig = rig();
    assert_eq!(rig.share_beat("a", 0).assignment.unwrap().topic_partitions[0].partitions, [0]);
    let second = rig.share_beat("b", 0);
    assert_eq!((second.member_epoch, second.assignment.is_some()), (2, true), "each has the only partition");
    assert_eq!(rig.share_beat("a", 1).assignment, None, "nothing new");
    let request = ShareGroupDescribeRequest::default().with_group_ids(vec![GroupId(text("g"))]);
    let described = rig.ask_node(1, 1, &request).groups.remove(0);
    assert_eq!((described.error_code, described.members.len(), described.group_state.as_str()), (0, 2, "Stable"));
    rig.pass(30 * SECOND);
    rig.share_beat("b", 2);
    rig.pass(20 * SECOND);
    assert_eq!(code(rig.share_beat("a", 2).error_code), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(rig.share_beat("b", -1).member_epoch, -1);
    assert_eq!(code(rig.share_beat("b", 2).error_code), ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_record_is_locked_for_one_member_until_it_is_acknowledged_released_or_the_time_is_over() {
    let mut rig = rig();
    rig.produce(1, "t", 0, batch_of(&["0", "1", "2", "3"]));
    let (mut a, mut b) = (rig.share_member("a"), rig.share_member("b"));
    let (counts, _) = told(&rig.share_fetch(&mut a, &[]));
    assert_eq!(counts, (0..4).map(|offset| (offset, 1)).collect());
    assert_eq!(told(&rig.share_fetch(&mut b, &[])).0.len(), 0, "all are locked");
    // Accepted, released, rejected; the last stays locked.
    let (again, code) = told(&rig.share_fetch(&mut a, &[(0, 0, 1), (1, 1, 2), (2, 2, 3)]));
    assert_eq!((again, code), ([(1, 2)].into(), ErrorCode::NONE));
    assert_eq!(told(&rig.share_fetch(&mut a, &[(0, 0, 1)])).1, ErrorCode::NONE, "the group is past it");
    assert_eq!(told(&rig.share_fetch(&mut a, &[(2, 2, 1)])).1, ErrorCode::INVALID_RECORD_STATE);
    assert_eq!(told(&rig.share_fetch(&mut a, &[(4, 4, 1)])).1, ErrorCode::INVALID_REQUEST, "never delivered");
    rig.pass(30 * SECOND);
    assert_eq!(told(&rig.share_fetch(&mut b, &[])).0, [(1, 3), (3, 2)].into());
    assert_eq!(told(&rig.share_fetch(&mut a, &[(3, 3, 1)])).1, ErrorCode::INVALID_RECORD_STATE, "b's now");
}

#[test]
fn a_record_is_delivered_as_often_as_it_may_and_no_more() {
    let mut rig = rig();
    rig.produce(1, "t", 0, batch_of(&["0", "1"]));
    let mut a = rig.share_member("a");
    rig.share_fetch(&mut a, &[]);
    for count in 2..=5 {
        assert_eq!(told(&rig.share_fetch(&mut a, &[(0, 0, 2)])).0, [(0, count)].into());
    }
    assert_eq!(told(&rig.share_fetch(&mut a, &[(0, 0, 2)])).0.len(), 0);
}

#[test]
fn a_session_counts_its_requests_and_ends_with_its_connection() {
    let mut rig = rig();
    rig.produce(1, "t", 0, batch_of(&["0"]));
    let (mut a, mut b) = (rig.share_member("a"), rig.share_member("b"));
    rig.share_fetch(&mut a, &[]);
    a.epoch = 7;
    let answer = rig.share_fetch(&mut a, &[]);
    assert_eq!(code(answer.0.error_code), ErrorCode::INVALID_SHARE_SESSION_EPOCH);
    assert_eq!(told(&rig.share_fetch(&mut b, &[])).0.len(), 0);
    rig.cluster.disconnect(a.connection, rig.now);
    assert_eq!(told(&rig.share_fetch(&mut b, &[])).0.len(), 1, "what was locked is released");
    a.connection = rig.connect(1);
    let answer = rig.share_fetch(&mut a, &[]);
    assert_eq!(code(answer.0.error_code), ErrorCode::SHARE_SESSION_NOT_FOUND);
    let acknowledge = ShareAcknowledge::default();
    let answer = rig.ask(a.connection, 2, &acknowledge);
    assert_eq!(code(answer.body.error_code), ErrorCode::INVALID_SHARE_SESSION_EPOCH, "a session begins with a fetch");
}

#[cfg(feature = "kafka")]
mod by_the_client {
    use super::*;
    use crate::client::{
        AcknowledgeCause, AcknowledgeType, AcquireMode, Client, ShareBatch, ShareConsumer, ShareEvent,
    };
    use crate::record::{Offset, RecordRef, Topic};
    use crate::testing::broker::DevBroker;

    async fn broker(nodes: i32) -> (DevBroker, Client) {
        let builder = DevBroker::builder().nodes(nodes).settings(|settings| {
            settings.share_from_earliest = true;
            settings.default_replication_factor = nodes as i16;
        });
        let broker = builder.topic("t", 1).start().await.unwrap();
        let client = broker.client_config().build().unwrap();
        (broker, client)
    }

    async fn produce(client: &Client, values: &[&str]) {
        let producer = client.producer().build().unwrap();
        let records = values.iter().map(|value| RecordRef::new(value.as_bytes()));
        producer.send_batch(&Topic::from("t"), records).await.unwrap();
        producer.close(10 * SECOND).await.unwrap();
    }

    fn member(client: &Client) -> ShareConsumer {
        client.share_consumer("g").topic("t").build().unwrap()
    }

    async fn next(consumer: &mut ShareConsumer) -> ShareBatch {
        loop {
            match tokio::time::timeout(600 * SECOND, consumer.next()).await.expect("in time").expect("goes on") {
                ShareEvent::Batch(batch) => return batch,
                ShareEvent::Fault(error) => assert!(!error.is_fatal(), "{error}"),
            }
        }
    }

    fn counts(batch: &ShareBatch) -> Vec<(i64, u16)> {
        batch.records().map(|delivered| (delivered.record.offset.0, delivered.delivery_count)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn records_are_accepted_released_rejected_and_renewed_one_by_one() {
        let (_broker, client) = broker(1).await;
        produce(&client, &["0", "1", "2", "3"]).await;
        let mut consumer = member(&client);
        let batch = next(&mut consumer).await;
        assert_eq!(counts(&batch), [(0, 1), (1, 1), (2, 1), (3, 1)]);
        let of = |offset, kind| batch.acknowledgement(Offset(offset), kind);
        let said =
            vec![of(0, AcknowledgeType::Accept), of(1, AcknowledgeType::Release), of(2, AcknowledgeType::Reject)];
        assert_eq!(consumer.handle().acknowledge(said).await.unwrap().locked_until, None);
        assert_eq!(counts(&next(&mut consumer).await), [(1, 2)]);
        tokio::time::sleep(20 * SECOND).await;
        let renewed = consumer.handle().acknowledge(vec![of(3, AcknowledgeType::Renew)]).await.unwrap();
        let gained = renewed.locked_until.unwrap() - batch.locked_until;
        assert!(gained > 15 * SECOND, "{gained:?}");
        tokio::time::sleep(20 * SECOND).await;
        consumer.handle().acknowledge(vec![of(3, AcknowledgeType::Accept)]).await.unwrap();
        let late = consumer.handle().acknowledge(vec![of(1, AcknowledgeType::Accept)]).await.unwrap_err();
        assert_eq!(late.failures[0].cause, AcknowledgeCause::Lost, "its lock was over after 30 s");
        consumer.close(10 * SECOND).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_of_records_is_kept_where_it_is_strict() {
        let (_broker, client) = broker(1).await;
        produce(&client, &["0", "1", "2"]).await;
        let builder = client.share_consumer("g").topic("t").max_records(2);
        let mut consumer = builder.acquire_mode(AcquireMode::RecordLimit).build().unwrap();
        for expected in [&[(0, 1), (1, 1)][..], &[(2, 1)]] {
            let batch = next(&mut consumer).await;
            assert_eq!(counts(&batch), expected);
            consumer.handle().acknowledge(batch.acknowledge_all(AcknowledgeType::Accept)).await.unwrap();
        }
        consumer.close(10 * SECOND).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_released_by_closing_and_by_dying() {
        let (broker, client) = broker(1).await;
        produce(&client, &["0"]).await;
        let mut first = member(&client);
        assert_eq!(counts(&next(&mut first).await), [(0, 1)]);
        first.close(10 * SECOND).await.unwrap();
        let other = broker.client_config().build().unwrap();
        let mut second = member(&other);
        assert_eq!(counts(&next(&mut second).await), [(0, 2)]);
        // Its connections go, whatever was under way.
        let _ = other.close(Duration::ZERO).await;
        let mut third = member(&client);
        let batch = next(&mut third).await;
        assert_eq!(counts(&batch), [(0, 3)]);
        third.handle().acknowledge(batch.acknowledge_all(AcknowledgeType::Accept)).await.unwrap();
        third.close(10 * SECOND).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_delivers_what_the_old_one_had_locked() {
        let (broker, client) = broker(2).await;
        produce(&client, &["0"]).await;
        let mut consumer = member(&client);
        let batch = next(&mut consumer).await;
        let at = TopicPartition::new("t", 0);
        let leader = broker.act(|cluster, _| cluster.partition(&at)).and_then(|state| state.leader).unwrap();
        let to = 3 - leader;
        broker.act(|cluster, now| cluster.move_leader(&at, to, now)).unwrap();
        let again = next(&mut consumer).await;
        assert_eq!(counts(&again), [(0, 2)]);
        let late = consumer.handle().acknowledge(batch.acknowledge_all(AcknowledgeType::Accept)).await.unwrap_err();
        assert!(late.failures[0].is_lost(), "{late}");
        consumer.handle().acknowledge(again.acknowledge_all(AcknowledgeType::Accept)).await.unwrap();
        consumer.close(10 * SECOND).await.unwrap();
    }
}
