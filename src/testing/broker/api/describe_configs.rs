//! DescribeConfigs: settings of topics and of nodes.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, Refusal, text};

impl Serve for DescribeConfigsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let results = self.resources.into_iter().map(|asked| match settings(core, call, &asked) {
            Ok(settings) => described(asked, settings),
            Err(refusal) => refused(asked, &refusal),
        });
        Step::Answer(DescribeConfigsResponse::default().with_results(results.collect()))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> DescribeConfigsResponse {
        let results = self.resources.into_iter().map(|asked| refused(asked, &code.into()));
        DescribeConfigsResponse::default().with_results(results.collect())
    }

    fn throttle(answer: &mut DescribeConfigsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let topics = self.resources.iter().filter(|asked| asked.resource_type == TOPIC);
        topics.map(|asked| (Topic::from(asked.resource_name.as_str()), -1)).collect()
    }
}

/// A setting's value, and where it comes from.
type Settings = BTreeMap<String, (String, i8)>;

fn settings(core: &Core, call: &Call, asked: &DescribeConfigsResource) -> Result<Settings, Refusal> {
    match asked.resource_type {
        TOPIC => {
            if let Some(code) = call.failure_of(&asked.resource_name, -1) {
                return Err(code.into());
            }
            let (_, topic) = core.topics.get(&asked.resource_name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
            let source = |name: &str| if topic.config.given.contains_key(name) { OF_TOPIC } else { DEFAULT };
            let mut all = topic.config.settings();
            let least = core.settings.min_insync_replicas.to_string();
            all.entry("min.insync.replicas".to_owned()).or_insert(least);
            Ok(all.into_iter().map(|(name, value)| (name.clone(), (value, source(&name)))).collect())
        }
        BROKER => {
            let exists = asked.resource_name.parse().ok().is_some_and(|node| core.nodes.get(node).is_some());
            let of_node =
                if exists || asked.resource_name.is_empty() { Ok(()) } else { Err(ErrorCode::INVALID_REQUEST) };
            of_node.map_err(|code| Refusal::new(code, format!("there is no node {}", asked.resource_name)))?;
            Ok(of_broker(core))
        }
        other => {
            let why = format!("Unsupported resource type: {other}");
            Err(Refusal::new(ErrorCode::INVALID_REQUEST, why))
        }
    }
}

fn of_broker(core: &Core) -> Settings {
    let own = &core.settings;
    let settings = [
        ("auto.create.topics.enable", own.auto_create_topics.to_string()),
        ("default.replication.factor", own.default_replication_factor.to_string()),
        ("fetch.max.bytes", own.max_fetch_bytes.to_string()),
        ("group.initial.rebalance.delay.ms", own.initial_rebalance_delay.as_millis().to_string()),
        ("group.max.session.timeout.ms", own.max_session_timeout.as_millis().to_string()),
        ("group.max.size", own.max_group_members.to_string()),
        ("group.min.session.timeout.ms", own.min_session_timeout.as_millis().to_string()),
        ("max.incremental.fetch.session.cache.slots", own.max_fetch_sessions.to_string()),
        ("message.max.bytes", crate::memory::TopicConfig::default().max_message_bytes.to_string()),
        ("min.insync.replicas", own.min_insync_replicas.to_string()),
        ("num.partitions", own.default_partitions.to_string()),
        ("offset.metadata.max.bytes", own.max_offset_metadata_bytes.to_string()),
        ("replica.lag.time.max.ms", own.replica_lag_time_max.as_millis().to_string()),
        ("socket.request.max.bytes", own.max_request_bytes.to_string()),
    ];
    settings.into_iter().map(|(name, value)| (name.to_owned(), (value, STATIC))).collect()
}

fn described(asked: DescribeConfigsResource, settings: Settings) -> DescribeConfigsResult {
    let wanted = |name: &str| match &asked.configuration_keys {
        None => true,
        Some(keys) => keys.iter().any(|key| key.as_str() == name),
    };
    let configs = settings.into_iter().filter(|(name, _)| wanted(name)).map(|(name, (value, source))| {
        DescribeConfigsResourceResult::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
            .with_read_only(source == STATIC)
            .with_config_source(source)
    });
    let configs = configs.collect();
    DescribeConfigsResult::default()
        .with_resource_type(asked.resource_type)
        .with_resource_name(asked.resource_name)
        .with_error_message(Some(text("")))
        .with_configs(configs)
}

fn refused(asked: DescribeConfigsResource, refusal: &Refusal) -> DescribeConfigsResult {
    DescribeConfigsResult::default()
        .with_error_code(refusal.code.0)
        .with_error_message(Some(text(&refusal.why)))
        .with_resource_type(asked.resource_type)
        .with_resource_name(asked.resource_name)
}

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
/// `ConfigSource.DYNAMIC_TOPIC_CONFIG`.
const OF_TOPIC: i8 = 1;
/// `ConfigSource.STATIC_BROKER_CONFIG`.
const STATIC: i8 = 4;
/// `ConfigSource.DEFAULT_CONFIG`.
const DEFAULT: i8 = 5;
