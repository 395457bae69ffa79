//! DescribeConfigs: settings of topics, nodes, groups, and subscriptions to clients' metrics.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::Serve;
use crate::memory::TopicConfig;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::configs::{
    CLIENT_METRICS_SETTINGS, GROUP_SETTINGS, Given, Kind, Known, NODE_SETTINGS, Resource, TOPIC, synonym_of, topic_kind,
};
use crate::testing::broker::core::{Core, Refusal, text};

impl Serve for DescribeConfigsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let synonyms = self.include_synonyms;
        let results = self.resources.into_iter().map(|asked| match settings(core, call, &asked) {
            Ok(settings) => described(asked, settings, synonyms, call.version),
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

/// A setting, and where a value of it is given: the first is in force.
struct Setting {
    name: String,
    kind: Kind,
    read_only: bool,
    /// Name there, value, source. Never empty.
    given: Vec<(String, String, i8)>,
}

fn settings(core: &Core, call: &Call, asked: &DescribeConfigsResource) -> Result<Vec<Setting>, Refusal> {
    match Resource::named(asked.resource_type, &asked.resource_name)? {
        Resource::Topic(name) => {
            if let Some(code) = call.failure_of(&name, -1) {
                return Err(code.into());
            }
            if !crate::memory::is_valid_name(&name) {
                return Err(ErrorCode::INVALID_TOPIC_EXCEPTION.into());
            }
            let unknown = || Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "");
            let (_, topic) = core.topics.get(&name).ok_or_else(unknown)?;
            Ok(of_topic(core, &topic.config))
        }
        Resource::Node(of) => {
            if let Some(of) = of.filter(|of| *of != call.node) {
                let why = format!("Unexpected broker id, expected {} or empty string, but received {of}", call.node);
                return Err(Refusal::new(ErrorCode::INVALID_REQUEST, why));
            }
            Ok(of_node(core, of))
        }
        Resource::ClientMetrics(name) => {
            Ok(of_given(CLIENT_METRICS_SETTINGS, core.configs.client_metrics.get(&name), OF_CLIENT_METRICS))
        }
        Resource::Group(name) => Ok(of_given(GROUP_SETTINGS, core.configs.groups.get(&name), OF_GROUP)),
    }
}

fn of_topic(core: &Core, config: &TopicConfig) -> Vec<Setting> {
    let least = || ("min.insync.replicas".to_owned(), core.settings.min_insync_replicas.to_string());
    let mut defaults = TopicConfig::default().settings();
    defaults.extend([least()]);
    let mut in_force = config.settings();
    for (name, value) in &defaults {
        in_force.entry(name.clone()).or_insert_with(|| value.clone());
    }
    let setting = |(name, value): (String, String)| {
        let mut given = Vec::new();
        if config.given.contains_key(&name) {
            given.push((name.clone(), value.clone(), OF_TOPIC));
        }
        match defaults.get(&name) {
            // At a node it has no default of its own: hours stand in for it.
            Some(_) if name == "retention.ms" && !given.is_empty() => {}
            Some(default) => given.push((synonym_of(&name), default.clone(), DEFAULT)),
            None if given.is_empty() => given.push((name.clone(), value, DEFAULT)),
            None => {}
        }
        Setting { kind: topic_kind(&name), name, read_only: false, given }
    };
    in_force.into_iter().map(setting).collect()
}

fn of_node(core: &Core, node: Option<i32>) -> Vec<Setting> {
    let given_to = |of: Option<i32>, name: &str| core.configs.nodes.get(&of).and_then(|given| given.get(name)).cloned();
    let dynamic = NODE_SETTINGS.iter().filter_map(|known| {
        let name = || known.name.to_owned();
        let own = node.and_then(|_| given_to(node, known.name)).map(|value| (name(), value, OF_NODE));
        let all = given_to(None, known.name).map(|value| (name(), value, OF_ALL_NODES));
        let default = node.map(|_| (name(), known.default.to_owned(), DEFAULT));
        let given: Vec<_> = [own, all, default].into_iter().flatten().collect();
        (!given.is_empty()).then(|| Setting { name: name(), kind: known.kind, read_only: false, given })
    });
    let mut all: Vec<Setting> = dynamic.collect();
    // Of all nodes only what was set for all is told.
    if node.is_some() {
        all.extend(fixed(core));
        all.sort_by(|a, b| a.name.cmp(&b.name));
    }
    all
}

/// What the cluster was built with.
fn fixed(core: &Core) -> impl Iterator<Item = Setting> {
    let own = &core.settings;
    let settings = [
        ("auto.create.topics.enable", own.auto_create_topics.to_string(), Kind::Boolean),
        ("default.replication.factor", own.default_replication_factor.to_string(), Kind::Int),
        ("fetch.max.bytes", own.max_fetch_bytes.to_string(), Kind::Int),
        ("group.initial.rebalance.delay.ms", own.initial_rebalance_delay.as_millis().to_string(), Kind::Int),
        ("group.max.session.timeout.ms", own.max_session_timeout.as_millis().to_string(), Kind::Int),
        ("group.max.size", own.max_group_members.to_string(), Kind::Int),
        ("group.min.session.timeout.ms", own.min_session_timeout.as_millis().to_string(), Kind::Int),
        ("max.incremental.fetch.session.cache.slots", own.max_fetch_sessions.to_string(), Kind::Int),
        ("message.max.bytes", TopicConfig::default().max_message_bytes.to_string(), Kind::Int),
        ("min.insync.replicas", own.min_insync_replicas.to_string(), Kind::Int),
        ("num.partitions", own.default_partitions.to_string(), Kind::Int),
        ("offset.metadata.max.bytes", own.max_offset_metadata_bytes.to_string(), Kind::Int),
        ("replica.lag.time.max.ms", own.replica_lag_time_max.as_millis().to_string(), Kind::Long),
        ("socket.request.max.bytes", own.max_request_bytes.to_string(), Kind::Int),
    ];
    settings.into_iter().map(|(name, value, kind)| Setting {
        name: name.to_owned(),
        kind,
        read_only: true,
        given: vec![(name.to_owned(), value, STATIC)],
    })
}

fn of_given(known: &[Known], given: Option<&Given>, source: i8) -> Vec<Setting> {
    let setting = |known: &Known| {
        let name = known.name.to_owned();
        let own = given.and_then(|given| given.get(known.name)).map(|value| (name.clone(), value.clone(), source));
        let default = (name.clone(), known.default.to_owned(), DEFAULT);
        Setting { name, kind: known.kind, read_only: false, given: own.into_iter().chain([default]).collect() }
    };
    known.iter().map(setting).collect()
}

fn described(asked: DescribeConfigsResource, settings: Vec<Setting>, all: bool, version: i16) -> DescribeConfigsResult {
    let wanted = |name: &str| match &asked.configuration_keys {
        None => true,
        Some(keys) => keys.iter().any(|key| key.as_str() == name),
    };
    let configs = settings.into_iter().filter(|setting| wanted(&setting.name)).map(|setting| {
        let synonym = |(name, value, source): &(String, String, i8)| {
            DescribeConfigsSynonym::default().with_name(text(name)).with_value(Some(text(value))).with_source(*source)
        };
        let synonyms = if all { setting.given.iter().map(synonym).collect() } else { Vec::new() };
        let (_, value, source) = setting.given.into_iter().next().unwrap_or_default();
        DescribeConfigsResourceResult::default()
            .with_name(text(setting.name))
            .with_value(Some(text(value)))
            .with_documentation(None)
            .with_read_only(setting.read_only)
            .with_config_source(source)
            .with_config_type(if version >= FIRST_WITH_KINDS { setting.kind as i8 } else { 0 })
            .with_synonyms(synonyms)
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

/// `DescribeConfigsResponse.ConfigSource`.
const OF_TOPIC: i8 = 1;
const OF_NODE: i8 = 2;
const OF_ALL_NODES: i8 = 3;
const STATIC: i8 = 4;
const DEFAULT: i8 = 5;
const OF_CLIENT_METRICS: i8 = 7;
const OF_GROUP: i8 = 8;

const FIRST_WITH_KINDS: i16 = 3;
