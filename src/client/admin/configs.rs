use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult};
use kafka_protocol::protocol::StrBytes;

use super::retry::{Attempt, Try};
use super::{Admin, Outcomes};
use crate::client::ClientError;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;

/// One setting of a topic, as it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigEntry {
    /// Its name, such as `retention.ms`.
    pub name: String,
    /// Its value; absent where the broker keeps it secret.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
    /// Whether it cannot be changed.
    pub read_only: bool,
    /// Whether its value is kept secret.
    pub sensitive: bool,
}

/// Where a setting's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigSource {
    /// Set on the topic itself.
    Topic,
    /// Set for one broker, or for all, while they run.
    DynamicBroker,
    /// Set in the broker's file.
    StaticBroker,
    /// The default.
    Default,
    /// Another, by Kafka's number for it.
    Other(i8),
}

impl Admin {
    /// Every setting of each topic, in the order that the broker tells them.
    ///
    /// # Errors
    /// For each topic apart.
    pub async fn describe_topic_configs(&self, topics: &[Topic]) -> Outcomes<Topic, Vec<ConfigEntry>> {
        let deadline = self.deadline();
        let attempt = |open: Vec<Topic>, _: Try| -> Attempt<'_, Topic, Vec<ConfigEntry>> {
            let resources: Vec<_> = open.iter().map(resource).collect();
            Box::pin(async move {
                let build = move |_| DescribeConfigsRequest::default().with_resources(resources.clone());
                let response = self.cluster.call_any(WHAT, deadline, build).await?;
                Ok(response.results.into_iter().map(outcome).collect())
            })
        };
        self.settle(WHAT, deadline).run(topics.iter().cloned(), attempt).await
    }
}

impl From<DescribeConfigsResourceResult> for ConfigEntry {
    fn from(answer: DescribeConfigsResourceResult) -> Self {
        Self {
            name: answer.name.to_string(),
            value: answer.value.map(|value| value.to_string()),
            source: answer.config_source.into(),
            read_only: answer.read_only,
            sensitive: answer.is_sensitive,
        }
    }
}

/// By the numbers of `DescribeConfigsResponse`, version 1 and later.
impl From<i8> for ConfigSource {
    fn from(source: i8) -> Self {
        match source {
            1 => Self::Topic,
            2 | 3 => Self::DynamicBroker,
            4 => Self::StaticBroker,
            5 => Self::Default,
            other => Self::Other(other),
        }
    }
}

fn resource(topic: &Topic) -> DescribeConfigsResource {
    DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(StrBytes::from_string(topic.as_str().to_owned()))
        .with_configuration_keys(None)
}

fn outcome(answer: DescribeConfigsResult) -> (Topic, Result<Vec<ConfigEntry>, ClientError>) {
    let topic = Topic::from(answer.resource_name.as_str());
    let what = format!("{WHAT} {topic}");
    let outcome = match ErrorCode(answer.error_code) {
        ErrorCode::NONE => Ok(answer.configs.into_iter().map(ConfigEntry::from).collect()),
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Err(ClientError::Missing { what }),
        code => Err(ClientError::refused(what, code, answer.error_message.as_deref())),
    };
    (topic, outcome)
}

const WHAT: &str = "describe settings of topic";

/// The number of topics among the kinds of resource.
const TOPIC: i8 = 2;
