use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Instant;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};
use kafka_protocol::protocol::{Request, StrBytes};

use super::retry::{Attempt, Try, join_all};
use super::{Admin, Outcomes};
use crate::client::ClientError;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic};

/// What has settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ConfigResource {
    /// A topic.
    Topic(Topic),
    /// One broker. It is asked itself.
    Broker(NodeId),
    /// What is set for every broker that has no value of its own.
    AllBrokers,
    /// The levels that one broker logs at, by logger. It is asked itself.
    BrokerLogger(NodeId),
    /// What clients are asked to push of their metrics, a subscription by its name (KIP-714).
    ClientMetrics(String),
    /// A group, which need not be there yet (KIP-848, KIP-932). From Kafka 4.0 on.
    Group(String),
}

/// One setting, as it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigEntry {
    /// Its name, such as `retention.ms`.
    pub name: String,
    /// Its value; absent where it has none, and where it is secret.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
    /// Whether it cannot be changed.
    pub read_only: bool,
    /// Whether its value is kept secret. Such a value is not in here, whatever the broker tells.
    pub sensitive: bool,
    /// What its value is.
    pub kind: ConfigKind,
    /// Every place where a value is given, in the order that they win in: the first is in force, the next one is once
    /// that is deleted. Empty where they were not asked for.
    pub synonyms: Vec<ConfigSynonym>,
}

/// A place where a setting's value is given.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigSynonym {
    /// The setting's name there: that of a topic's `retention.ms` is `log.retention.ms` at a broker.
    pub name: String,
    /// The value; absent where it is secret.
    pub value: Option<String>,
    /// Where it is given.
    pub source: ConfigSource,
}

/// Where a setting's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigSource {
    /// Set on the topic itself.
    Topic,
    /// Set for one broker while it runs.
    DynamicBroker,
    /// Set for all brokers while they run.
    DynamicAllBrokers,
    /// Set in the broker's file.
    StaticBroker,
    /// The default.
    Default,
    /// Set for a logger of a broker.
    BrokerLogger,
    /// Set on the subscription to clients' metrics.
    ClientMetrics,
    /// Set on the group.
    Group,
    /// Another, by Kafka's number for it.
    Other(i8),
}

/// What a setting's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigKind {
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// A whole number of 16 bits.
    Short,
    /// A whole number of 32 bits.
    Int,
    /// A whole number of 64 bits.
    Long,
    /// A number.
    Double,
    /// Elements with commas between. These alone can be appended to and subtracted from.
    List,
    /// The name of a Java class.
    Class,
    /// A secret.
    Password,
    /// Not told, or another.
    Unknown,
}

/// A change to one setting. Its value is not shown by `Debug`: it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigChange {
    name: String,
    act: i8,
    value: Option<String>,
}

impl ConfigChange {
    /// Sets a value.
    pub fn set(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), act: SET, value: Some(value.into()) }
    }

    /// Takes the value back, so that what it hid is in force: the cluster's value, or the default.
    pub fn delete(name: impl Into<String>) -> Self {
        Self { name: name.into(), act: DELETE, value: None }
    }

    /// Adds elements to a list, commas between several. Those that are in it already stay as they are.
    pub fn append(name: impl Into<String>, elements: impl Into<String>) -> Self {
        Self { name: name.into(), act: APPEND, value: Some(elements.into()) }
    }

    /// Takes elements out of a list, commas between several. Those that are not in it are passed over.
    pub fn subtract(name: impl Into<String>, elements: impl Into<String>) -> Self {
        Self { name: name.into(), act: SUBTRACT, value: Some(elements.into()) }
    }
}

impl Admin {
    /// Every setting of each topic, in the order that the broker tells them, without synonyms.
    ///
    /// # Errors
    /// For each topic apart.
    pub async fn describe_topic_configs(&self, topics: &[Topic]) -> Outcomes<Topic, Vec<ConfigEntry>> {
        let deadline = self.deadline();
        let attempt = |open: Vec<Topic>, _: Try| -> Attempt<'_, Topic, Vec<ConfigEntry>> {
            let resources: Vec<_> = open.into_iter().map(ConfigResource::Topic).collect();
            Box::pin(async move {
                let described = self.try_describe_configs(None, &resources, false, deadline).await?;
                let topic = |(resource, outcome)| match resource {
                    ConfigResource::Topic(topic) => Some((topic, outcome)),
                    _ => None,
                };
                Ok(described.into_iter().filter_map(topic).collect())
            })
        };
        self.settle(DESCRIBE, deadline).run(topics.iter().cloned(), attempt).await
    }

    /// Every setting of each resource, in the order that the broker tells them, with every place where its value is given.
    /// Java: `describeConfigs`.
    ///
    /// # Errors
    /// For each resource apart, [`ClientError::Missing`] for a topic that does not exist.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn describe_configs(&self, resources: &[ConfigResource]) -> Outcomes<ConfigResource, Vec<ConfigEntry>> {
        let deadline = self.deadline();
        let attempt = |open: Vec<ConfigResource>, _: Try| -> Attempt<'_, ConfigResource, Vec<ConfigEntry>> {
            Box::pin(async move {
                let ask = |node, resources: Vec<ConfigResource>| async move {
                    self.try_describe_configs(node, &resources, true, deadline).await
                };
                Ok(at_owners(open, ask).await)
            })
        };
        self.settle(DESCRIBE, deadline).run(resources.iter().cloned(), attempt).await
    }

    /// Changes settings, those that are named alone. All changes of one resource are made, or none. Brokers may act by the old
    /// value for a moment still. Java: `incrementalAlterConfigs`.
    ///
    /// # Errors
    /// For each resource apart, [`ClientError::Missing`] for a topic that does not exist.
    pub async fn alter_configs(&self, changes: &[(ConfigResource, Vec<ConfigChange>)]) -> Outcomes<ConfigResource, ()> {
        self.alter_or_validate(changes, false).await
    }

    /// As [`alter_configs`](Self::alter_configs), but nothing is changed: tells whether it would be.
    ///
    /// # Errors
    /// Those of [`alter_configs`](Self::alter_configs).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn validate_configs(
        &self,
        changes: &[(ConfigResource, Vec<ConfigChange>)],
    ) -> Outcomes<ConfigResource, ()> {
        self.alter_or_validate(changes, true).await
    }

    async fn alter_or_validate(
        &self,
        changes: &[(ConfigResource, Vec<ConfigChange>)],
        validate_only: bool,
    ) -> Outcomes<ConfigResource, ()> {
        let deadline = self.deadline();
        // Of a resource that is named twice both changes are meant; a broker would refuse it.
        let mut resources = Vec::with_capacity(changes.len());
        let mut by_resource: HashMap<&ConfigResource, Vec<&ConfigChange>> = HashMap::new();
        for (resource, changes) in changes {
            let known = by_resource.entry(resource).or_insert_with(|| {
                resources.push(resource.clone());
                Vec::new()
            });
            known.extend(changes);
        }
        let by_resource = &by_resource;
        let attempt = |open: Vec<ConfigResource>, _: Try| -> Attempt<'_, ConfigResource, ()> {
            Box::pin(async move {
                let ask = |node, resources: Vec<ConfigResource>| async move {
                    let alter = |resource| alteration(resource, by_resource.get(resource).map_or(&[], Vec::as_slice));
                    let request = IncrementalAlterConfigsRequest::default()
                        .with_resources(resources.iter().map(alter).collect())
                        .with_validate_only(validate_only);
                    self.try_alter_configs(node, request, deadline).await
                };
                Ok(at_owners(open, ask).await)
            })
        };
        self.settle(ALTER, deadline).run(resources, attempt).await
    }

    async fn try_describe_configs(
        &self,
        node: Option<NodeId>,
        resources: &[ConfigResource],
        synonyms: bool,
        deadline: Instant,
    ) -> Result<Outcomes<ConfigResource, Vec<ConfigEntry>>, ClientError> {
        let asked = resources.iter().map(|resource| {
            DescribeConfigsResource::default()
                .with_resource_type(resource.kind())
                .with_resource_name(StrBytes::from_string(resource.name()))
                .with_configuration_keys(None)
        });
        let request = DescribeConfigsRequest::default().with_resources(asked.collect()).with_include_synonyms(synonyms);
        let response = self.call_owner(node, request, DESCRIBE, deadline).await?;
        Ok(response.results.into_iter().filter_map(described).collect())
    }

    async fn try_alter_configs(
        &self,
        node: Option<NodeId>,
        request: IncrementalAlterConfigsRequest,
        deadline: Instant,
    ) -> Result<Outcomes<ConfigResource, ()>, ClientError> {
        let response = self.call_owner(node, request, ALTER, deadline).await?;
        let outcomes = response.responses.into_iter().filter_map(|answer| {
            let resource = ConfigResource::named(answer.resource_type, &answer.resource_name)?;
            let outcome = checked(ALTER, &resource, answer.error_code, answer.error_message.as_deref());
            Some((resource, outcome))
        });
        Ok(outcomes.collect())
    }

    /// Asks this broker, or any, which hands on what is the controller's.
    async fn call_owner<R>(
        &self,
        node: Option<NodeId>,
        request: R,
        what: &str,
        deadline: Instant,
    ) -> Result<R::Response, ClientError>
    where
        R: Request + Clone + Send + Sync + 'static,
    {
        match node {
            Some(node) => self.call(node, request, what, deadline).await,
            None => self.cluster.call_any(what, deadline, move |_| request.clone()).await,
        }
    }
}

impl ConfigResource {
    /// The broker that alone can answer, if it has to be a certain one.
    fn owner(&self) -> Option<NodeId> {
        match self {
            Self::Broker(node) | Self::BrokerLogger(node) => Some(*node),
            Self::Topic(_) | Self::AllBrokers | Self::ClientMetrics(_) | Self::Group(_) => None,
        }
    }

    fn kind(&self) -> i8 {
        match self {
            Self::Topic(_) => TOPIC,
            Self::Broker(_) | Self::AllBrokers => BROKER,
            Self::BrokerLogger(_) => BROKER_LOGGER,
            Self::ClientMetrics(_) => CLIENT_METRICS,
            Self::Group(_) => GROUP,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Topic(topic) => topic.as_str().to_owned(),
            Self::Broker(node) | Self::BrokerLogger(node) => node.0.to_string(),
            Self::AllBrokers => String::new(),
            Self::ClientMetrics(name) | Self::Group(name) => name.clone(),
        }
    }

    /// As an answer names it; `None` for what nobody can have asked for.
    fn named(kind: i8, name: &str) -> Option<Self> {
        let node = || name.parse().ok().map(NodeId);
        match kind {
            TOPIC => Some(Self::Topic(Topic::from(name))),
            BROKER if name.is_empty() => Some(Self::AllBrokers),
            BROKER => node().map(Self::Broker),
            BROKER_LOGGER => node().map(Self::BrokerLogger),
            CLIENT_METRICS => Some(Self::ClientMetrics(name.to_owned())),
            GROUP => Some(Self::Group(name.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for ConfigResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(topic) => write!(f, "topic {topic}"),
            Self::Broker(node) => write!(f, "broker {node}"),
            Self::AllBrokers => f.write_str("all brokers"),
            Self::BrokerLogger(node) => write!(f, "the loggers of broker {node}"),
            Self::ClientMetrics(name) => write!(f, "client metrics subscription {name}"),
            Self::Group(group) => write!(f, "group {group}"),
        }
    }
}

impl fmt::Debug for ConfigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = match self.act {
            SET => "set",
            DELETE => "delete",
            APPEND => "append to",
            _ => "subtract from",
        };
        write!(f, "ConfigChange({act} {})", self.name)
    }
}

impl ConfigEntry {
    fn from_wire(answer: DescribeConfigsResourceResult) -> Self {
        let kind = ConfigKind::from_wire(answer.config_type);
        let sensitive = answer.is_sensitive || kind == ConfigKind::Password;
        let shown = |value: Option<StrBytes>| value.filter(|_| !sensitive).map(|value| value.to_string());
        let synonym = |synonym: DescribeConfigsSynonym| ConfigSynonym {
            name: synonym.name.to_string(),
            value: shown(synonym.value),
            source: synonym.source.into(),
        };
        Self {
            name: answer.name.to_string(),
            value: shown(answer.value),
            source: answer.config_source.into(),
            read_only: answer.read_only,
            sensitive,
            kind,
            synonyms: answer.synonyms.into_iter().map(synonym).collect(),
        }
    }
}

/// By the numbers of `DescribeConfigsResponse`, version 1 and later.
impl From<i8> for ConfigSource {
    fn from(source: i8) -> Self {
        match source {
            1 => Self::Topic,
            2 => Self::DynamicBroker,
            3 => Self::DynamicAllBrokers,
            4 => Self::StaticBroker,
            5 => Self::Default,
            6 => Self::BrokerLogger,
            7 => Self::ClientMetrics,
            8 => Self::Group,
            other => Self::Other(other),
        }
    }
}

impl ConfigKind {
    /// By the numbers of `DescribeConfigsResponse`, version 3 and later; 0 in those before.
    fn from_wire(kind: i8) -> Self {
        match kind {
            1 => Self::Boolean,
            2 => Self::String,
            3 => Self::Int,
            4 => Self::Short,
            5 => Self::Long,
            6 => Self::Double,
            7 => Self::List,
            8 => Self::Class,
            9 => Self::Password,
            _ => Self::Unknown,
        }
    }
}

/// Asks each owner for its resources, side by side.
async fn at_owners<T, F>(
    resources: Vec<ConfigResource>,
    ask: impl Fn(Option<NodeId>, Vec<ConfigResource>) -> F,
) -> Outcomes<ConfigResource, T>
where
    F: Future<Output = Result<Outcomes<ConfigResource, T>, ClientError>>,
{
    let mut by_owner: BTreeMap<Option<NodeId>, Vec<ConfigResource>> = BTreeMap::new();
    for resource in resources {
        by_owner.entry(resource.owner()).or_default().push(resource);
    }
    let asked = by_owner.into_iter().map(|(owner, resources)| {
        let answer = ask(owner, resources.clone());
        async move { (resources, answer.await) }
    });
    let mut outcomes = Vec::new();
    for (resources, answer) in join_all(asked).await {
        match answer {
            Ok(answer) => outcomes.extend(answer),
            Err(error) => outcomes.extend(resources.into_iter().map(|resource| (resource, Err(error.clone())))),
        }
    }
    outcomes
}

fn alteration(resource: &ConfigResource, changes: &[&ConfigChange]) -> AlterConfigsResource {
    let change = |change: &&ConfigChange| {
        AlterableConfig::default()
            .with_name(StrBytes::from_string(change.name.clone()))
            .with_config_operation(change.act)
            .with_value(change.value.clone().map(StrBytes::from_string))
    };
    AlterConfigsResource::default()
        .with_resource_type(resource.kind())
        .with_resource_name(StrBytes::from_string(resource.name()))
        .with_configs(changes.iter().map(change).collect())
}

type Described = (ConfigResource, Result<Vec<ConfigEntry>, ClientError>);

fn described(answer: DescribeConfigsResult) -> Option<Described> {
    let resource = ConfigResource::named(answer.resource_type, &answer.resource_name)?;
    let checked = checked(DESCRIBE, &resource, answer.error_code, answer.error_message.as_deref());
    let outcome = checked.map(|()| answer.configs.into_iter().map(ConfigEntry::from_wire).collect());
    Some((resource, outcome))
}

fn checked(what: &str, resource: &ConfigResource, code: i16, message: Option<&str>) -> Result<(), ClientError> {
    let what = || format!("{what} {resource}");
    match ErrorCode(code) {
        ErrorCode::NONE => Ok(()),
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Err(ClientError::Missing { what: what() }),
        code => Err(ClientError::refused(what(), code, message)),
    }
}

const DESCRIBE: &str = "describe settings of";
const ALTER: &str = "alter settings of";

/// Kinds of resource, by Kafka's numbers (`ConfigResource.Type`).
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// What a change does, by Kafka's numbers (`AlterConfigOp.OpType`).
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;
