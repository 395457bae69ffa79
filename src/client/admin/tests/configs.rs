use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use super::*;

const DESCRIBE_CONFIGS: ApiKey = ApiKey(32);
const ALTER_CONFIGS: ApiKey = ApiKey(44);

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Describes whatever is asked for by one secret setting.
fn secrets(exchange: &Exchange) -> Act {
    let asked = exchange.request::<DescribeConfigsRequest>();
    let synonym =
        DescribeConfigsSynonym::default().with_name(text("p")).with_value(Some(text("hunter2"))).with_source(4);
    let setting = DescribeConfigsResourceResult::default()
        .with_name(text("p"))
        .with_value(Some(text("hunter2")))
        .with_config_source(3)
        .with_is_sensitive(true)
        .with_synonyms(vec![synonym]);
    let results = asked.resources.into_iter().map(|resource| {
        DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
            .with_configs(vec![setting.clone()])
    });
    exchange.answer::<DescribeConfigsRequest>(&DescribeConfigsResponse::default().with_results(results.collect()))
}

#[tokio::test(start_paused = true)]
async fn a_broker_is_asked_for_its_own_settings_and_any_one_for_the_rest() {
    let brokers = Brokers::new();
    for (address, own) in [("a:1", "1"), ("b:1", "2")] {
        brokers.at(address, move |exchange| match exchange.api {
            METADATA => metadata(exchange, &BOTH, &[]),
            DESCRIBE_CONFIGS => {
                let asked = exchange.request::<DescribeConfigsRequest>().resources;
                let of_a_broker = asked.iter().filter(|resource| matches!(resource.resource_type, 4 | 8));
                for resource in of_a_broker.filter(|resource| !resource.resource_name.is_empty()) {
                    assert_eq!(resource.resource_name.as_str(), own);
                }
                secrets(exchange)
            }
            _ => Act::Usual,
        });
    }
    let asked = [
        ConfigResource::Broker(NodeId(2)),
        ConfigResource::Topic("t".into()),
        ConfigResource::AllBrokers,
        ConfigResource::Broker(NodeId(1)),
        ConfigResource::BrokerLogger(NodeId(2)),
        ConfigResource::Group("g".to_owned()),
        ConfigResource::ClientMetrics("m".to_owned()),
    ];
    let outcomes = admin(&brokers).describe_configs(&asked).await;
    let named: Vec<_> = outcomes.iter().map(|(resource, _)| resource.clone()).collect();
    assert_eq!(named, asked);
    for (resource, outcome) in &outcomes {
        assert_eq!(outcome.as_ref().unwrap_or_else(|error| panic!("{resource}: {error}")).len(), 1);
    }
    let asked = brokers.log().iter().filter(|entry| entry.ends_with("DescribeConfigs")).count();
    assert_eq!(asked, 3, "one for each broker's own, one for the rest");
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_dropped_though_the_broker_tells_it() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH[..1], &[]),
        DESCRIBE_CONFIGS => secrets(exchange),
        _ => Act::Usual,
    });
    let outcomes = admin(&brokers).describe_configs(&[ConfigResource::AllBrokers]).await;
    let entry = &outcomes[0].1.as_ref().unwrap()[0];
    assert_eq!((entry.value.as_deref(), entry.sensitive, entry.source), (None, true, ConfigSource::DynamicAllBrokers));
    assert_eq!(entry.synonyms[0].source, ConfigSource::StaticBroker);
    assert!(!format!("{outcomes:?}").contains("hunter2"));
    assert!(!format!("{:?}", ConfigChange::set("p", "hunter2")).contains("hunter2"));
}

fn altered(exchange: &Exchange, outcome: impl Fn(&str) -> Option<(ErrorCode, &'static str)>) -> Act {
    let asked = exchange.request::<IncrementalAlterConfigsRequest>();
    let responses = asked.resources.into_iter().filter_map(|resource| {
        let (code, why) = outcome(&resource.resource_name)?;
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
            .with_error_code(code.0)
            .with_error_message(Some(text(why)));
        Some(response)
    });
    let response = IncrementalAlterConfigsResponse::default().with_responses(responses.collect());
    exchange.answer::<IncrementalAlterConfigsRequest>(&response)
}

#[tokio::test(start_paused = true)]
async fn each_resource_has_its_outcome_and_only_what_may_succeed_is_changed_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let brokers = Brokers::new();
    brokers.at("a:1", move |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH[..1], &[]),
        ALTER_CONFIGS if tries.fetch_add(1, Ordering::Relaxed) == 0 => altered(exchange, |name| match name {
            "bad" => Some((ErrorCode::INVALID_CONFIG, "no such setting")),
            "gone" => Some((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "")),
            "left out" => None,
            "slow" => Some((ErrorCode::REQUEST_TIMED_OUT, "")),
            _ => Some((ErrorCode::NONE, "")),
        }),
        ALTER_CONFIGS => {
            let asked = exchange.request::<IncrementalAlterConfigsRequest>();
            assert_eq!(asked.resources.len(), 1, "{asked:?}");
            altered(exchange, |_| Some((ErrorCode::NONE, "")))
        }
        _ => Act::Usual,
    });
    let change = |topic: &str| (ConfigResource::Topic(topic.into()), vec![ConfigChange::delete("retention.ms")]);
    let changes = ["ok", "bad", "gone", "left out", "slow"].map(change);
    let outcomes = admin(&brokers).alter_configs(&changes).await;
    assert!(outcomes[0].1.is_ok() && outcomes[4].1.is_ok(), "{outcomes:?}");
    let bad = outcomes[1].1.as_ref().unwrap_err().to_string();
    assert_eq!(bad, "alter settings of topic bad: INVALID_CONFIG (40): no such setting");
    assert!(outcomes[2].1.as_ref().unwrap_err().is_missing());
    assert!(matches!(outcomes[3].1, Err(ClientError::LeftOut { .. })), "{outcomes:?}");
}

/// Of two entries with one name the first was forgotten, and told as done.
#[tokio::test(start_paused = true)]
async fn changes_of_a_resource_that_is_named_twice_go_together() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH[..1], &[]),
        ALTER_CONFIGS => {
            let asked = exchange.request::<IncrementalAlterConfigsRequest>();
            assert!(asked.validate_only);
            let changes = asked.resources.iter().flat_map(|resource| &resource.configs);
            let changes: Vec<_> = changes
                .map(|change| (change.name.to_string(), change.config_operation, change.value.is_some()))
                .collect();
            let expected = [("a", 0, true), ("b", 1, false), ("c", 2, true), ("d", 3, true)];
            assert_eq!(changes, expected.map(|(name, act, valued)| (name.to_owned(), act, valued)));
            altered(exchange, |_| Some((ErrorCode::NONE, "")))
        }
        _ => Act::Usual,
    });
    let group = ConfigResource::Group("g".to_owned());
    let changes = [
        (group.clone(), vec![ConfigChange::set("a", "1"), ConfigChange::delete("b")]),
        (group.clone(), vec![ConfigChange::append("c", "x"), ConfigChange::subtract("d", "y")]),
    ];
    let outcomes = admin(&brokers).validate_configs(&changes).await;
    assert_eq!(outcomes.len(), 1);
    outcomes[0].1.as_ref().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_gone_fails_its_own_settings_alone() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &BOTH, &[]),
        DESCRIBE_CONFIGS => secrets(exchange),
        _ => Act::Usual,
    });
    let asked =
        [ConfigResource::Broker(NodeId(2)), ConfigResource::Topic("t".into()), ConfigResource::Broker(NodeId(9))];
    let start = Instant::now();
    let outcomes = admin(&brokers).with_timeout(Duration::from_secs(5)).describe_configs(&asked).await;
    assert!(start.elapsed() <= Duration::from_secs(5));
    outcomes[1].1.as_ref().unwrap();
    for at in [0, 2] {
        let error = outcomes[at].1.as_ref().unwrap_err();
        assert!(error.is_retriable(), "{error}");
    }
}
