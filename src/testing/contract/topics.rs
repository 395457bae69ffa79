//! Checks of what is asked about topics and groups, and of the adapter's end.

use crate::adapter::{AdapterErrorKind, JoinOptions, PublisherOptions, Start, TopicSubscription};
use crate::record::{NewTopic, Offset, Record, Topic};
use crate::testing::contract::Fixture;
use crate::testing::contract::fixture::{connected, new_topic, skip, unique, within};
use crate::testing::contract::publishing::{counted, publish};
use crate::testing::contract::reader::Reader;

/// Creating topics is idempotent, also where only some of them exist; a description is truthful. Needs
/// [`topic_creation`](crate::adapter::Capabilities::topic_creation).
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topics behind.
pub async fn topics_are_created_once(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    if !adapter.capabilities().topic_creation {
        return skip("topics_are_created_once", "the adapter creates no topics");
    }
    let [old, new, missing] = ["old", "new", "missing"].map(unique);
    let old_topic = NewTopic::new(old.as_str()).with_partitions(3).with_config("retention.ms", "86400000");
    let create = |topics: Vec<NewTopic>| {
        let adapter = adapter.clone();
        async move { within(fixture, "creating topics", adapter.create_topics(&topics)).await }
    };
    create(vec![old_topic.clone()]).await.expect("created");
    create(vec![old_topic.clone()]).await.expect("one that exists is a success");
    let mixed = vec![NewTopic::new(old.as_str()).with_partitions(9), NewTopic::new(new.as_str()).with_partitions(2)];
    create(mixed).await.expect("old and new together are a success");

    let names = [old.as_str(), new.as_str(), missing.as_str()].map(Topic::from);
    let told = within(fixture, "describing topics", adapter.describe_topics(&names)).await.expect("described");
    let partitions: Vec<_> = told.iter().map(|topic| topic.as_ref().map(|topic| topic.partitions)).collect();
    assert_eq!(partitions, [Some(3), Some(2), None], "what exists is left as it is");
    let configs = &told[0].as_ref().expect("exists").configs;
    assert_eq!(configs.get("retention.ms").map(String::as_str), Some("86400000"));

    let mut refused = NewTopic::new("contract: no topic's name");
    refused.partitions = Some(1);
    let error = create(vec![refused]).await.expect_err("a name that no broker takes");
    assert!(!error.retryable, "{error}");
}

/// Watermarks and settled positions are read back; a group that settled nothing has none. Needs
/// [`offsets`](crate::adapter::Capabilities::offsets).
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn offsets_are_read_back(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    if !adapter.capabilities().offsets {
        return skip("offsets_are_read_back", "the adapter tells no offsets");
    }
    let topic = new_topic(fixture, &adapter, 2).await;
    let group = unique("group");
    publish(fixture, &adapter, counted(&topic, 1, 0..5)).await;
    let mut reader = Reader::alone(fixture, &adapter, &group, &topic, 2).await;
    reader.records(5).await;
    reader.settle(1, 3, None).await;

    let topics = [Topic::from(topic.as_str())];
    let mut watermarks = within(fixture, "reading watermarks", adapter.watermarks(&topics)).await.expect("told");
    watermarks.sort_by(|a, b| a.partition.cmp(&b.partition));
    let told: Vec<_> = watermarks.iter().map(|w| (w.partition.partition, w.low, w.high)).collect();
    assert_eq!(told, [(0, Offset(0), Offset(0)), (1, Offset(0), Offset(5))]);
    let committed = within(fixture, "reading offsets", adapter.committed(&group, &topics)).await.expect("told");
    let told: Vec<_> = committed.iter().map(|c| (c.partition.partition, c.offset)).collect();
    assert_eq!(told, [(1, Offset(3))]);
    let nobody = unique("group");
    assert_eq!(within(fixture, "reading offsets", adapter.committed(&nobody, &topics)).await.expect("told"), []);
}

/// A closed adapter has ended its memberships, and refuses what comes.
///
/// # Panics
/// When the adapter does otherwise.
///
/// # Cancel safety
/// Dropping the future leaves the check's topic and group behind.
pub async fn closed_adapter_refuses(fixture: &dyn Fixture) {
    let adapter = connected(fixture).await;
    let topic = new_topic(fixture, &adapter, 1).await;
    let group = unique("group");
    let mut reader = Reader::alone(fixture, &adapter, &group, &topic, 1).await;
    let publisher = adapter.publisher(PublisherOptions::default()).expect("a publisher");
    within(fixture, "closing", adapter.close(fixture.patience())).await.expect("closed");

    reader.until_ended().await;
    let record = vec![Record::new(topic.as_str(), "late")];
    let error = within(fixture, "publishing", publisher.publish(record)).await.expect_err("closed");
    assert!(!error.is_retryable(), "{error}");
    let subscription = TopicSubscription { topic: topic.as_str().into(), start: Start::Earliest };
    let joined = within(fixture, "joining", adapter.join(JoinOptions::new(group.as_str(), vec![subscription]))).await;
    assert_eq!(joined.expect_err("closed").kind, AdapterErrorKind::Closed);

    let other = connected(fixture).await;
    let mut next = Reader::alone(fixture, &other, &group, &topic, 1).await;
    assert_eq!(next.during_quiet().await, [], "nothing was written");
}
