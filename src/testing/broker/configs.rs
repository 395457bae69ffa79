//! Settings that are changed while the cluster runs: of topics, nodes, groups, and subscriptions to clients' metrics.
//!
//! Those of a topic lie with the topic. Of the others the groups' and the subscriptions' have effect; those of nodes are
//! checked, kept and shown.

use std::collections::BTreeMap;
use std::time::Duration;

use super::core::{Core, Refusal};
use crate::memory::TopicConfig;
use crate::protocol::error_code::ErrorCode;

/// What was set, by what it is set on.
#[derive(Debug, Default)]
pub(super) struct Configs {
    /// By node; `None` for all of them.
    pub(super) nodes: BTreeMap<Option<i32>, Given>,
    pub(super) groups: BTreeMap<String, Given>,
    pub(super) client_metrics: BTreeMap<String, Given>,
}

/// Settings as they were given, by name.
pub(super) type Given = BTreeMap<String, String>;

/// What has settings, as a request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resource {
    Topic(String),
    Node(Option<i32>),
    ClientMetrics(String),
    Group(String),
}

/// A change to one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) name: String,
    pub(super) act: i8,
    pub(super) value: Option<String>,
}

/// A setting that a kind of resource may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) default: &'static str,
    pub(super) kind: Kind,
}

/// What a value has to be, and Kafka's number for that in `DescribeConfigsResponse`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Boolean = 1,
    String = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

impl Resource {
    /// By the numbers of `ConfigResource.Type`.
    pub(super) fn named(kind: i8, name: &str) -> Result<Self, Refusal> {
        let refused = |why: String| Err(Refusal::new(ErrorCode::INVALID_REQUEST, why));
        match kind {
            TOPIC => Ok(Self::Topic(name.to_owned())),
            NODE if name.is_empty() => Ok(Self::Node(None)),
            NODE => match name.parse() {
                Ok(node) => Ok(Self::Node(Some(node))),
                Err(_) => refused(format!("Node id must be an integer, but it is: {name}")),
            },
            CLIENT_METRICS if name.is_empty() => refused("Subscription name can't be empty".to_owned()),
            CLIENT_METRICS => Ok(Self::ClientMetrics(name.to_owned())),
            GROUP if name.is_empty() => refused("Default group resources are not allowed.".to_owned()),
            GROUP => Ok(Self::Group(name.to_owned())),
            other => refused(format!("Unsupported resource type: {other}")),
        }
    }
}

impl Core {
    /// Changes settings of a resource: all of them, or none.
    pub(super) fn alter_configs(
        &mut self,
        node: i32,
        resource: &Resource,
        changes: &[Change],
        validate_only: bool,
    ) -> Result<(), Refusal> {
        match resource {
            Resource::Topic(name) => {
                let (_, topic) = self.topics.get(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
                let in_force = topic.config.settings();
                let given = changed(&topic.config.given, changes, |name| {
                    Ok((topic_kind(name), in_force.get(name).cloned().unwrap_or_default()))
                })?;
                let config = TopicConfig::from_settings(given).map_err(|code| Refusal::new(code, BAD_TOPIC_SETTING))?;
                if !validate_only && let Some(topic) = self.topics.get_mut(name) {
                    topic.config = config;
                }
            }
            Resource::Node(of) => {
                if of.is_some_and(|of| of != node) {
                    let why = format!("Unexpected broker id, expected {node} or empty string, but received another");
                    return Err(Refusal::new(ErrorCode::INVALID_REQUEST, why));
                }
                let given = self.configs.nodes.get(of).cloned().unwrap_or_default();
                let given = changed(&given, changes, |name| known(NODE_SETTINGS, name))?;
                if !validate_only {
                    keep(&mut self.configs.nodes, *of, given, MAX_SUBSCRIPTIONS)?;
                }
            }
            Resource::ClientMetrics(name) => {
                let given = self.configs.client_metrics.get(name).cloned().unwrap_or_default();
                let given = changed(&given, changes, |name| known(CLIENT_METRICS_SETTINGS, name))?;
                check_interval(&given)?;
                if !validate_only {
                    keep(&mut self.configs.client_metrics, name.clone(), given, MAX_SUBSCRIPTIONS)?;
                }
            }
            Resource::Group(name) => {
                let given = self.configs.groups.get(name).cloned().unwrap_or_default();
                let given = changed(&given, changes, |name| known(GROUP_SETTINGS, name))?;
                if !validate_only {
                    keep(&mut self.configs.groups, name.clone(), given, self.settings.max_groups)?;
                }
            }
        }
        if !validate_only {
            self.changed();
        }
        Ok(())
    }

    /// What a setting of a group says, where it is given.
    pub(super) fn group_setting(&self, group: &str, name: &str) -> Option<&str> {
        self.configs.groups.get(group)?.get(name).map(String::as_str)
    }

    /// A time in milliseconds that a setting of a group says, where it is given.
    pub(super) fn group_millis(&self, group: &str, name: &str) -> Option<Duration> {
        self.group_setting(group, name)?.trim().parse().ok().map(Duration::from_millis)
    }
}

/// The settings after the changes. `lookup` tells what a setting's value has to be, and its default.
fn changed(
    given: &Given,
    changes: &[Change],
    lookup: impl Fn(&str) -> Result<(Kind, String), Refusal>,
) -> Result<Given, Refusal> {
    let mut after = given.clone();
    for (at, change) in changes.iter().enumerate() {
        let name = change.name.as_str();
        let request = |why: String| Err(Refusal::new(ErrorCode::INVALID_REQUEST, why));
        if changes[..at].iter().any(|earlier| earlier.name == change.name) {
            return request("Error due to duplicate config keys".to_owned());
        }
        if !(SET..=SUBTRACT).contains(&change.act) {
            return Err(Refusal::without_words(ErrorCode::UNKNOWN_SERVER_ERROR));
        }
        if change.act == DELETE {
            after.remove(name);
            continue;
        }
        let Some(value) = &change.value else {
            return request(format!("Null value not supported for : {name}"));
        };
        let (kind, default) = lookup(name)?;
        let value = match change.act {
            SET => value.clone(),
            act if kind == Kind::List => edited(after.get(name).unwrap_or(&default), value, act == APPEND),
            act => {
                let verb = if act == APPEND { "APPEND" } else { "SUBTRACT" };
                let why = format!("Can't {verb} to key {name} because its type is not LIST.");
                return Err(Refusal::new(ErrorCode::INVALID_CONFIG, why));
            }
        };
        if !kind.takes(&value) {
            let why = format!("Invalid value {value} for configuration {name}");
            return Err(Refusal::new(ErrorCode::INVALID_CONFIG, why));
        }
        after.insert(name.to_owned(), value);
    }
    Ok(after)
}

/// A list with elements added, each once, or taken out.
fn edited(list: &str, elements: &str, add: bool) -> String {
    let elements: Vec<&str> = elements.split(',').map(str::trim).collect();
    let mut kept: Vec<&str> = list.split(',').map(str::trim).filter(|element| !element.is_empty()).collect();
    if add {
        for element in elements {
            if !kept.contains(&element) {
                kept.push(element);
            }
        }
    } else {
        kept.retain(|element| !elements.contains(element));
    }
    kept.join(",")
}

/// Keeps what is given of one; nothing where nothing is.
fn keep<K: Ord>(of: &mut BTreeMap<K, Given>, name: K, given: Given, most: usize) -> Result<(), Refusal> {
    if given.is_empty() {
        of.remove(&name);
    } else if of.len() >= most && !of.contains_key(&name) {
        return Err(Refusal::new(ErrorCode::POLICY_VIOLATION, "as many have settings as may have"));
    } else {
        of.insert(name, given);
    }
    Ok(())
}

fn known(settings: &[Known], name: &str) -> Result<(Kind, String), Refusal> {
    let known = settings.iter().find(|known| known.name == name);
    known
        .map(|known| (known.kind, known.default.to_owned()))
        .ok_or_else(|| Refusal::new(ErrorCode::INVALID_CONFIG, format!("Unknown configuration {name}")))
}

/// `ClientMetricsConfigs.validateInterval`.
fn check_interval(given: &Given) -> Result<(), Refusal> {
    let Some(interval) = given.get(PUSH_INTERVAL) else { return Ok(()) };
    if interval.trim().parse().is_ok_and(|interval: i32| (100..=3_600_000).contains(&interval)) {
        return Ok(());
    }
    let why = format!("Invalid value {interval} for interval.ms, interval must be between 100 and 3600000");
    Err(Refusal::new(ErrorCode::INVALID_CONFIG, why))
}

impl Kind {
    fn takes(self, value: &str) -> bool {
        let value = value.trim();
        match self {
            Self::Boolean => value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false"),
            Self::Int => value.parse::<i32>().is_ok(),
            Self::Long => value.parse::<i64>().is_ok(),
            Self::Double => value.parse::<f64>().is_ok(),
            Self::String | Self::List => true,
        }
    }
}

/// What a topic's setting has to be.
pub(super) fn topic_kind(name: &str) -> Kind {
    match name {
        "cleanup.policy" | "follower.replication.throttled.replicas" | "leader.replication.throttled.replicas" => {
            Kind::List
        }
        "compression.type" | "message.timestamp.type" => Kind::String,
        "compression.gzip.level"
        | "compression.lz4.level"
        | "compression.zstd.level"
        | "index.interval.bytes"
        | "max.message.bytes"
        | "min.insync.replicas"
        | "segment.bytes"
        | "segment.index.bytes" => Kind::Int,
        "min.cleanable.dirty.ratio" => Kind::Double,
        "preallocate"
        | "remote.log.copy.disable"
        | "remote.log.delete.on.disable"
        | "remote.storage.enable"
        | "unclean.leader.election.enable" => Kind::Boolean,
        _ => Kind::Long,
    }
}

/// What a topic's setting is called at a node.
pub(super) fn synonym_of(name: &str) -> String {
    match name {
        "max.message.bytes" => "message.max.bytes".to_owned(),
        "compression.type" | "min.insync.replicas" | "unclean.leader.election.enable" => name.to_owned(),
        other => format!("log.{other}"),
    }
}

/// What a node may be told while it runs.
pub(super) const NODE_SETTINGS: &[Known] = &[
    Known { name: "background.threads", default: "10", kind: Kind::Int },
    Known { name: "log.cleaner.threads", default: "1", kind: Kind::Int },
    Known { name: "log.retention.ms", default: "604800000", kind: Kind::Long },
    Known { name: "max.connections", default: "2147483647", kind: Kind::Int },
    Known { name: "max.connections.per.ip", default: "2147483647", kind: Kind::Int },
    Known { name: "metric.reporters", default: "", kind: Kind::List },
    Known { name: "num.io.threads", default: "8", kind: Kind::Int },
    Known { name: "num.network.threads", default: "3", kind: Kind::Int },
];

/// What a group may be told. The two of consumer groups, and those of share groups that are served, have effect.
pub(super) const GROUP_SETTINGS: &[Known] = &[
    Known { name: "consumer.heartbeat.interval.ms", default: "5000", kind: Kind::Int },
    Known { name: "consumer.session.timeout.ms", default: "45000", kind: Kind::Int },
    Known { name: "share.auto.offset.reset", default: "latest", kind: Kind::String },
    Known { name: "share.heartbeat.interval.ms", default: "5000", kind: Kind::Int },
    Known { name: "share.isolation.level", default: "read_uncommitted", kind: Kind::String },
    Known { name: "share.record.lock.duration.ms", default: "30000", kind: Kind::Int },
    Known { name: "share.session.timeout.ms", default: "45000", kind: Kind::Int },
    Known { name: "streams.heartbeat.interval.ms", default: "5000", kind: Kind::Int },
    Known { name: "streams.num.standby.replicas", default: "0", kind: Kind::Int },
    Known { name: "streams.session.timeout.ms", default: "45000", kind: Kind::Int },
];

/// What a subscription to clients' metrics says (KIP-714).
pub(super) const CLIENT_METRICS_SETTINGS: &[Known] = &[
    Known { name: PUSH_INTERVAL, default: "300000", kind: Kind::Int },
    Known { name: "match", default: "", kind: Kind::List },
    Known { name: "metrics", default: "", kind: Kind::List },
];

const PUSH_INTERVAL: &str = "interval.ms";
const BAD_TOPIC_SETTING: &str = "a setting has a name that topics do not have, or a value that it cannot have";

/// A bound on memory.
const MAX_SUBSCRIPTIONS: usize = 1_000;

/// `ConfigResource.Type`.
pub(super) const TOPIC: i8 = 2;
const NODE: i8 = 4;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// `AlterConfigOp.OpType`.
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;
