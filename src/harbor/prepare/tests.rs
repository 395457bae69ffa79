use std::sync::{Arc, Mutex};

use super::*;
use crate::adapter::{
    AdapterError, AdapterErrorKind, BoxFuture, Capabilities, CommittedOffset, JoinOptions, Membership,
    PartitionWatermarks, Publisher, PublisherOptions,
};
use crate::harbor::topology::{NameRules, Plan, TopicNaming};

/// A broker that only knows topics.
#[derive(Debug, Default)]
struct Topics {
    existing: Mutex<BTreeMap<Topic, TopicDescription>>,
    created: Mutex<Vec<NewTopic>>,
    described: Mutex<usize>,
    no_admin: bool,
}

impl Topics {
    fn with(self, topic: &str, partitions: i32, configs: &[(&str, &str)]) -> Self {
        let configs = configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let description = TopicDescription { topic: topic.into(), partitions, configs };
        self.existing.lock().unwrap().insert(topic.into(), description);
        self
    }

    fn created(&self, topic: &str) -> NewTopic {
        let created = self.created.lock().unwrap();
        created.iter().find(|new| new.topic == topic).unwrap_or_else(|| panic!("{topic} was not created")).clone()
    }
}

fn out_of_scope() -> AdapterError {
    AdapterError::new("topics", AdapterErrorKind::Unsupported, "only topics here")
}

impl Adapter for Topics {
    fn name(&self) -> &'static str {
        "topics"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { topic_creation: !self.no_admin, ..Capabilities::NONE }
    }

    fn connect(&self) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async { Ok(()) })
    }

    fn close(&self, _timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async { Ok(()) })
    }

    fn publisher(&self, _options: PublisherOptions) -> Result<Arc<dyn Publisher>, AdapterError> {
        Err(out_of_scope())
    }

    fn join(&self, _options: JoinOptions) -> BoxFuture<'_, Result<Membership, AdapterError>> {
        Box::pin(async { Err(out_of_scope()) })
    }

    fn create_topics<'a>(&'a self, topics: &'a [NewTopic]) -> BoxFuture<'a, Result<(), AdapterError>> {
        self.created.lock().unwrap().extend_from_slice(topics);
        Box::pin(async { Ok(()) })
    }

    fn describe_topics<'a>(
        &'a self,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<Option<TopicDescription>>, AdapterError>> {
        *self.described.lock().unwrap() += 1;
        let existing = self.existing.lock().unwrap();
        let described = topics.iter().map(|topic| existing.get(topic).cloned()).collect();
        Box::pin(async { Ok(described) })
    }

    fn watermarks<'a>(&'a self, _topics: &'a [Topic]) -> BoxFuture<'a, Result<Vec<PartitionWatermarks>, AdapterError>> {
        Box::pin(async { Err(out_of_scope()) })
    }

    fn committed<'a>(
        &'a self,
        _group: &'a str,
        _topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<CommittedOffset>, AdapterError>> {
        Box::pin(async { Err(out_of_scope()) })
    }
}

const DELAY: Duration = Duration::from_secs(60);

fn topology(topics: &[&str], levels: u32, dead_letters: bool) -> Topology {
    let naming = TopicNaming::default().with_dead_letter(|_| "dlq".into());
    let plans = topics.iter().map(|topic| Plan::new((*topic).into(), levels, dead_letters, &naming)).collect();
    Topology::new(plans, vec![DELAY; levels as usize], NameRules::Kafka).unwrap()
}

const CREATE: Preparation = Preparation {
    create: true,
    defaults: TopicDefaults { partitions: None, replication_factor: None },
    checks: TopicChecks::Refuse,
};

const KEEP: Preparation = Preparation { create: false, ..CREATE };

fn words(warnings: &[Warning]) -> Vec<&str> {
    warnings.iter().map(|warning| warning.topic.as_str()).collect()
}

#[tokio::test]
async fn nothing_derived_asks_the_broker_nothing() {
    let topics = Topics::default();
    assert_eq!(CREATE.run(&topics, &topology(&["orders"], 0, false)).await.unwrap(), []);
    assert_eq!(*topics.described.lock().unwrap(), 0);
}

#[tokio::test]
async fn the_first_missing_topic_is_named_and_nothing_is_created() {
    let topics = Topics::default().with("orders-retry-1", 1, &[]);
    match KEEP.run(&topics, &topology(&["orders"], 2, true)).await.unwrap_err() {
        HarborError::TopicMissing { topic } => assert_eq!(topic, "orders-retry-2"),
        other => panic!("{other}"),
    }
    assert!(topics.created.lock().unwrap().is_empty());
    assert_eq!(*topics.described.lock().unwrap(), 1, "one question for all");
}

#[tokio::test]
async fn created_topics_hold_what_their_sources_can_send() {
    let topics = Topics::default().with("orders", 6, &[("max.message.bytes", "1048588")]).with(
        "bills",
        12,
        &[("max.message.bytes", "5000000"), ("retention.ms", "1000")],
    );
    CREATE.run(&topics, &topology(&["orders", "bills"], 1, true)).await.unwrap();

    let retry = topics.created("orders-retry-1");
    assert_eq!((retry.partitions, retry.replication_factor), (Some(6), None));
    assert_eq!(retry.configs["retention.ms"], (60_000 + 7 * 86_400_000).to_string());
    assert_eq!(retry.configs["max.message.bytes"], (1_048_588 + 65_536).to_string());
    assert_eq!(retry.configs["cleanup.policy"], "delete");

    // Shared dead letters take the records of both.
    let dead = topics.created("dlq");
    assert_eq!(dead.partitions, Some(12));
    assert_eq!(dead.configs["retention.ms"], "-1");
    assert_eq!(dead.configs["retention.bytes"], "-1");
    assert_eq!(dead.configs["max.message.bytes"], (5_000_000 + 65_536).to_string());

    let created: Vec<_> = topics.created.lock().unwrap().iter().map(|new| new.topic.to_string()).collect();
    assert_eq!(created, ["orders-retry-1", "dlq", "bills-retry-1"], "originals are left to their owners");
}

#[tokio::test]
async fn defaults_go_before_the_source_and_an_unknown_source_leaves_it_to_the_broker() {
    let topics = Topics::default().with("orders", 6, &[("max.message.bytes", "2147483647")]);
    let defaults = TopicDefaults::new().with_partitions(3).with_replication_factor(2);
    Preparation { defaults, ..CREATE }.run(&topics, &topology(&["orders"], 1, false)).await.unwrap();
    let retry = topics.created("orders-retry-1");
    assert_eq!((retry.partitions, retry.replication_factor), (Some(3), Some(2)));
    assert_eq!(retry.configs["max.message.bytes"], "2147483647");

    let nothing = Topics::default();
    CREATE.run(&nothing, &topology(&["orders"], 1, false)).await.unwrap();
    let retry = nothing.created("orders-retry-1");
    assert_eq!((retry.partitions, retry.configs.get("max.message.bytes")), (None, None));
}

#[tokio::test]
async fn topics_that_lose_what_waits_are_refused_by_name() {
    let topics = || {
        Topics::default()
            .with("orders-retry-1", 1, &[("retention.ms", "60000")])
            .with("orders-retry-2", 1, &[("cleanup.policy", "compact,delete"), ("retention.ms", "60001")])
            .with("dlq", 1, &[("cleanup.policy", "compact")])
    };
    let topology = topology(&["orders"], 2, true);
    let Err(HarborError::Config(error)) = KEEP.run(&topics(), &topology).await else { panic!("not refused") };
    let options: Vec<_> = error.problems().iter().map(|problem| problem.option.as_str()).collect();
    assert_eq!(options, ["topic `orders-retry-1`", "topic `orders-retry-2`", "topic `dlq`"]);

    let warned = Preparation { checks: TopicChecks::Warn, ..KEEP }.run(&topics(), &topology).await.unwrap();
    assert_eq!(words(&warned), ["orders-retry-1", "orders-retry-2", "dlq"]);
}

#[tokio::test]
async fn what_may_be_meant_is_warned_of() {
    let topics = Topics::default()
        .with("orders", 1, &[("max.message.bytes", "2000000")])
        .with("orders-retry-1", 1, &[("retention.bytes", "1000"), ("max.message.bytes", "1000000")])
        .with("dlq", 1, &[("retention.ms", "604800000"), ("cleanup.policy", "delete")]);
    let warnings = KEEP.run(&topics, &topology(&["orders"], 1, true)).await.unwrap();
    assert_eq!(words(&warnings), ["orders-retry-1", "orders-retry-1", "dlq"]);
}

#[tokio::test]
async fn sound_topics_and_unreadable_settings_pass() {
    let topics = Topics::default()
        .with("orders-retry-1", 1, &[("retention.ms", "60001"), ("cleanup.policy", "delete")])
        .with("orders-retry-2", 1, &[("retention.ms", "-1"), ("retention.bytes", "-1")])
        .with("dlq", 1, &[("retention.ms", "-1")]);
    assert_eq!(KEEP.run(&topics, &topology(&["orders"], 2, true)).await.unwrap(), []);
    let unread = Topics::default().with("orders-retry-1", 1, &[]).with("dlq", 1, &[]);
    assert_eq!(CREATE.run(&unread, &topology(&["orders"], 1, true)).await.unwrap(), []);
    assert!(unread.created.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_refusal_creates_nothing() {
    let topics = Topics::default().with("orders-retry-1", 1, &[("cleanup.policy", "compact")]);
    assert!(CREATE.run(&topics, &topology(&["orders"], 2, true)).await.is_err());
    assert!(topics.created.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_broker_without_topic_admin_is_not_asked() {
    let topics = Topics { no_admin: true, ..Topics::default() };
    assert_eq!(KEEP.run(&topics, &topology(&["orders"], 1, true)).await.unwrap(), []);
    assert!(matches!(CREATE.run(&topics, &topology(&["orders"], 1, true)).await, Err(HarborError::Config(_))));
    assert_eq!(*topics.described.lock().unwrap(), 0);
}
