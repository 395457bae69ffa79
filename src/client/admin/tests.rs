//! Admin calls against brokers that act by a script, in virtual time.

mod cluster;
mod configs;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, CreateTopicsResponse, DeleteGroupsRequest, DeleteGroupsResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, ListGroupsRequest, ListGroupsResponse, ListOffsetsRequest,
    ListOffsetsResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::*;
use crate::client::IsolationLevel;
use crate::client::scripted::{Act, Brokers, Exchange, metadata};
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NewTopic, Offset, Topic, TopicPartition};

const METADATA: ApiKey = ApiKey(3);
const LIST_OFFSETS: ApiKey = ApiKey(2);
const FIND_COORDINATOR: ApiKey = ApiKey(10);
const LIST_GROUPS: ApiKey = ApiKey(16);
const CREATE_TOPICS: ApiKey = ApiKey(19);
const DELETE_GROUPS: ApiKey = ApiKey(42);
const BOTH: [(i32, &str); 2] = [(1, "a:1"), (2, "b:1")];

fn created(exchange: &Exchange, codes: &[(&'static str, ErrorCode)]) -> Act {
    let asked = exchange.request::<CreateTopicsRequest>();
    let answers = asked.topics.into_iter().map(|topic| {
        let code =
            codes.iter().find(|(name, _)| *name == topic.name.as_str()).map_or(ErrorCode::NONE, |(_, code)| *code);
        CreatableTopicResult::default().with_name(topic.name).with_error_code(code.0)
    });
    exchange.answer::<CreateTopicsRequest>(&CreateTopicsResponse::default().with_topics(answers.collect()))
}

fn admin(brokers: &Brokers) -> Admin {
    brokers.client("a:1", |options| options).admin()
}

#[tokio::test(start_paused = true)]
async fn creating_asks_the_new_controller_when_the_old_one_says_no() {
    let controller = Arc::new(AtomicUsize::new(0));
    let brokers = Brokers::new();
    for (address, index) in [("a:1", 0), ("b:1", 1)] {
        let controller = controller.clone();
        brokers.at(address, move |exchange| match exchange.api {
            // The first in the list is told as the controller.
            METADATA if controller.load(Ordering::Relaxed) == 0 => metadata(exchange, &BOTH, &[("t", 7, &[1])]),
            METADATA => metadata(exchange, &[BOTH[1], BOTH[0]], &[("t", 7, &[1])]),
            CREATE_TOPICS if index == 0 => {
                controller.store(1, Ordering::Relaxed);
                created(exchange, &[("t", ErrorCode::NOT_CONTROLLER)])
            }
            CREATE_TOPICS => created(exchange, &[]),
            _ => Act::Usual,
        });
    }
    let outcomes = admin(&brokers).create_topics(&[NewTopic::new("t")]).await;
    assert_eq!(outcomes[0].1.as_ref().unwrap(), &TopicCreation::Created);
    assert_eq!(brokers.count("b:1 CreateTopics"), 1);
}

#[tokio::test(start_paused = true)]
async fn each_topic_has_its_outcome_and_only_what_may_succeed_is_tried_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let brokers = Brokers::new();
    brokers.at("a:1", move |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH[..1], &[("ok", 1, &[1]), ("old", 2, &[1]), ("slow", 3, &[1])]),
        CREATE_TOPICS if tries.fetch_add(1, Ordering::Relaxed) == 0 => {
            let codes = [
                ("old", ErrorCode::TOPIC_ALREADY_EXISTS),
                ("bad", ErrorCode::INVALID_REPLICATION_FACTOR),
                ("slow", ErrorCode::REQUEST_TIMED_OUT),
            ];
            created(exchange, &codes)
        }
        CREATE_TOPICS => {
            assert_eq!(exchange.request::<CreateTopicsRequest>().topics.len(), 1);
            // What timed out was made all the same.
            created(exchange, &[("slow", ErrorCode::TOPIC_ALREADY_EXISTS)])
        }
        _ => Act::Usual,
    });
    let new: Vec<_> = ["ok", "old", "bad", "slow"].into_iter().map(NewTopic::new).collect();
    let outcomes = admin(&brokers).create_topics(&new).await;
    assert_eq!(outcomes[0].1.as_ref().unwrap(), &TopicCreation::Created);
    assert_eq!(outcomes[1].1.as_ref().unwrap(), &TopicCreation::Existed);
    assert_eq!(outcomes[2].1.as_ref().unwrap_err().code(), Some(ErrorCode::INVALID_REPLICATION_FACTOR));
    assert_eq!(outcomes[3].1.as_ref().unwrap(), &TopicCreation::Created, "by the first try");
}

#[tokio::test(start_paused = true)]
async fn creating_returns_when_every_broker_sees_the_topic() {
    let looks = Arc::new(AtomicUsize::new(0));
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH, &[("t", 7, &[1, 2])]),
        CREATE_TOPICS => created(exchange, &[]),
        _ => Act::Usual,
    });
    let seen = looks.clone();
    brokers.at("b:1", move |exchange| match exchange.api {
        METADATA => match seen.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => metadata(exchange, &BOTH, &[]),
            2 => metadata(exchange, &BOTH, &[("t", 7, &[1, -1])]),
            _ => metadata(exchange, &BOTH, &[("t", 7, &[1, 2])]),
        },
        _ => Act::Usual,
    });
    let start = Instant::now();
    admin(&brokers).create_topics(&[NewTopic::new("t")]).await[0].1.as_ref().unwrap();
    assert_eq!(looks.load(Ordering::Relaxed), 4);
    assert_eq!(start.elapsed(), Duration::from_millis(50 + 100 + 200));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_stays_invisible_is_told_at_the_deadline() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH[..1], &[("seen", 1, &[1])]),
        CREATE_TOPICS => created(exchange, &[]),
        _ => Act::Usual,
    });
    let start = Instant::now();
    let admin = admin(&brokers).with_timeout(Duration::from_secs(5));
    let outcomes = admin.create_topics(&[NewTopic::new("seen"), NewTopic::new("unseen")]).await;
    outcomes[0].1.as_ref().unwrap();
    let error = outcomes[1].1.as_ref().unwrap_err();
    assert!(error.is_retriable() && error.to_string().contains("unseen was created but is not visible"), "{error}");
    assert!(start.elapsed() <= Duration::from_secs(5));
}

fn listed(exchange: &Exchange, code: ErrorCode) -> Act {
    let asked = exchange.request::<ListOffsetsRequest>();
    let topics = asked.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|asked| {
            ListOffsetsPartitionResponse::default()
                .with_partition_index(asked.partition_index)
                .with_error_code(code.0)
                .with_offset(40 + i64::from(asked.partition_index))
        });
        ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions.collect())
    });
    exchange.answer::<ListOffsetsRequest>(&ListOffsetsResponse::default().with_topics(topics.collect()))
}

#[tokio::test(start_paused = true)]
async fn each_leader_is_asked_for_its_partitions_and_a_moved_one_is_found() {
    let moved = Arc::new(AtomicUsize::new(0));
    let brokers = Brokers::new();
    for (address, code) in [("a:1", ErrorCode::NOT_LEADER_OR_FOLLOWER), ("b:1", ErrorCode::NONE)] {
        let moved = moved.clone();
        brokers.at(address, move |exchange| match exchange.api {
            METADATA if moved.load(Ordering::Relaxed) == 0 => metadata(exchange, &BOTH, &[("t", 7, &[1, 1, 2])]),
            METADATA => metadata(exchange, &BOTH, &[("t", 7, &[2, 2, 2])]),
            LIST_OFFSETS => {
                // Seen from the first request on, and told by both brokers.
                moved.store(1, Ordering::Relaxed);
                listed(exchange, code)
            }
            _ => Act::Usual,
        });
    }
    let asked: Vec<_> = (0..3).map(|number| (TopicPartition::new("t", number), OffsetSpec::Latest)).collect();
    let outcomes = admin(&brokers).list_offsets(&asked, IsolationLevel::ReadUncommitted).await;
    let offsets: Vec<_> = outcomes.into_iter().map(|(_, outcome)| outcome.unwrap().offset.unwrap()).collect();
    assert_eq!(offsets, [Offset(40), Offset(41), Offset(42)]);
    assert_eq!((brokers.count("a:1 ListOffsets"), brokers.count("b:1 ListOffsets")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn what_an_answer_leaves_out_is_told() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH[..1], &[("t", 7, &[1])]),
        LIST_OFFSETS => exchange.answer::<ListOffsetsRequest>(&ListOffsetsResponse::default()),
        _ => Act::Usual,
    });
    let outcomes = admin(&brokers)
        .list_offsets(&[(TopicPartition::new("t", 0), OffsetSpec::Earliest)], IsolationLevel::ReadCommitted)
        .await;
    let error = outcomes[0].1.as_ref().unwrap_err();
    assert_eq!(error.to_string(), "list offsets of t-0: the answer leaves it out");
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_that_moved_is_looked_for_again() {
    let brokers = Brokers::new();
    let lookups = Arc::new(AtomicUsize::new(0));
    let find = move |exchange: &Exchange| {
        let (node, host) = if lookups.fetch_add(1, Ordering::Relaxed) == 0 { (1, "a") } else { (2, "b") };
        let found = Coordinator::default()
            .with_key(StrBytes::from_static_str("g"))
            .with_node_id(BrokerId(node))
            .with_host(StrBytes::from_static_str(host))
            .with_port(1);
        let response = FindCoordinatorResponse::default().with_coordinators(vec![found]);
        exchange.answer::<FindCoordinatorRequest>(&response)
    };
    let deleted = |exchange: &Exchange, code: ErrorCode| {
        let group = exchange.request::<DeleteGroupsRequest>().groups_names.remove(0);
        let result = DeletableGroupResult::default().with_group_id(group).with_error_code(code.0);
        exchange.answer::<DeleteGroupsRequest>(&DeleteGroupsResponse::default().with_results(vec![result]))
    };
    let find = Arc::new(find);
    for (address, code) in [("a:1", ErrorCode::NOT_COORDINATOR), ("b:1", ErrorCode::NONE)] {
        let find = find.clone();
        brokers.at(address, move |exchange| match exchange.api {
            METADATA => metadata(exchange, &BOTH, &[]),
            FIND_COORDINATOR => find(exchange),
            DELETE_GROUPS => deleted(exchange, code),
            _ => Act::Usual,
        });
    }
    admin(&brokers).delete_groups(&["g".to_owned()]).await[0].1.as_ref().unwrap();
    assert_eq!((brokers.count("a:1 DeleteGroups"), brokers.count("b:1 DeleteGroups")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn groups_of_the_brokers_that_answer_are_listed_beside_those_that_do_not() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH, &[]),
        LIST_GROUPS => exchange.answer::<ListGroupsRequest>(&ListGroupsResponse::default()),
        _ => Act::Usual,
    });
    let listing = admin(&brokers).with_timeout(Duration::from_secs(5)).list_groups().await.unwrap();
    assert_eq!(listing.groups, []);
    let unreachable: Vec<_> = listing.unreachable.iter().map(|(node, _)| node.0).collect();
    assert_eq!(unreachable, [2]);
}

#[tokio::test(start_paused = true)]
async fn without_a_broker_each_outcome_tells_why_and_the_deadline_holds() {
    let brokers = Brokers::new();
    let start = Instant::now();
    let admin = admin(&brokers).with_timeout(Duration::from_secs(3));
    let outcomes = admin.describe_topics(&[Topic::from("a"), Topic::from("b")]).await;
    assert!(start.elapsed() <= Duration::from_secs(3));
    for (_, outcome) in outcomes {
        let error = outcome.unwrap_err();
        assert!(error.is_retriable() && error.to_string().contains("cannot connect to a:1"), "{error}");
    }
}
