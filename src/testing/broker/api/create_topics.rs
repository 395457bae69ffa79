//! CreateTopics.

use std::collections::BTreeMap;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::Serve;
use crate::memory::TopicConfig;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, NewTopic, Refusal, text};

impl Serve for CreateTopicsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let mut times: BTreeMap<StrBytes, usize> = BTreeMap::new();
        self.topics.iter().for_each(|topic| *times.entry(topic.name.0.clone()).or_default() += 1);
        let mut results = Vec::new();
        for topic in self.topics {
            let count = times.remove(&topic.name.0);
            match count {
                Some(1) => results.push(one(core, call, topic, self.validate_only)),
                Some(_) => {
                    let twice = Refusal::new(ErrorCode::INVALID_REQUEST, "Duplicate topic name.");
                    results.push(refused(topic.name, &twice));
                }
                // Said once.
                None => {}
            }
        }
        Step::Answer(CreateTopicsResponse::default().with_topics(results))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> CreateTopicsResponse {
        let refused = self.topics.into_iter().map(|topic| refused(topic.name, &code.into()));
        CreateTopicsResponse::default().with_topics(refused.collect())
    }

    fn throttle(answer: &mut CreateTopicsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        self.topics.iter().map(|topic| (Topic::from(topic.name.as_str()), -1)).collect()
    }
}

fn one(core: &mut Core, call: &Call, topic: CreatableTopic, validate_only: bool) -> CreatableTopicResult {
    let name = topic.name.clone();
    let ordered = call.failure_of(&name, -1).map_or(Ok(()), |code| Err(Refusal::from(code)));
    match ordered.and_then(|()| create(core, topic, validate_only)) {
        Ok(Created { id, given, settings, partitions, factor }) => CreatableTopicResult::default()
            .with_name(name)
            .with_error_message(None)
            .with_topic_id(id)
            .with_num_partitions(partitions)
            .with_replication_factor(factor)
            .with_configs(Some(configs(settings, &given))),
        Err(refusal) => refused(name, &refusal),
    }
}

/// A topic as it is told to be.
struct Created {
    id: Uuid,
    given: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
    partitions: i32,
    factor: i16,
}

fn create(core: &mut Core, topic: CreatableTopic, validate_only: bool) -> Result<Created, Refusal> {
    let given = topic.configs.iter().map(|config| {
        let value = config.value.as_ref().map(ToString::to_string);
        value.map(|value| (config.name.to_string(), value)).ok_or_else(|| {
            Refusal::new(
                ErrorCode::INVALID_CONFIG,
                format!("Null value not supported for topic configs: {}", config.name),
            )
        })
    });
    let given: BTreeMap<String, String> = given.collect::<Result<_, _>>()?;
    let config = TopicConfig::from_settings(given).map_err(|code| {
        Refusal::new(code, "a setting has a name that topics do not have, or a value that it cannot have")
    })?;
    let replicas = replicas(core, &topic)?;
    let (partitions, factor) = (replicas.len() as i32, replicas.first().map_or(0, Vec::len) as i16);
    let (settings, given) = (config.settings(), config.given.clone());
    let new = NewTopic { name: Topic::from(topic.name.as_str()), replicas, config };
    let id = core.create_topic(new, validate_only)?;
    Ok(Created { id, given, settings, partitions, factor })
}

fn replicas(core: &mut Core, topic: &CreatableTopic) -> Result<Vec<Vec<i32>>, Refusal> {
    if topic.assignments.is_empty() {
        return core.place(topic.num_partitions, topic.replication_factor);
    }
    if topic.num_partitions != -1 || topic.replication_factor != -1 {
        let why = "with assignments, partitions and replication factor have to be -1";
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, why));
    }
    let mut by_partition: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for assignment in &topic.assignments {
        let nodes = assignment.broker_ids.iter().map(|node| node.0).collect();
        by_partition.insert(assignment.partition_index, nodes);
    }
    let consecutive = by_partition.keys().copied().eq(0..topic.assignments.len() as i32);
    if !consecutive {
        let why = "partitions should be a consecutive 0-based integer sequence";
        return Err(Refusal::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, why));
    }
    let replicas: Vec<Vec<i32>> = by_partition.into_values().collect();
    core.check_replicas(&replicas)?;
    Ok(replicas)
}

fn configs(settings: BTreeMap<String, String>, given: &BTreeMap<String, String>) -> Vec<CreatableTopicConfigs> {
    let config = |(name, value): (String, String)| {
        let source = if given.contains_key(&name) { TOPIC } else { DEFAULT };
        CreatableTopicConfigs::default().with_name(text(name)).with_value(Some(text(value))).with_config_source(source)
    };
    settings.into_iter().map(config).collect()
}

fn refused(name: TopicName, refusal: &Refusal) -> CreatableTopicResult {
    CreatableTopicResult::default()
        .with_name(name)
        .with_error_code(refusal.code.0)
        .with_error_message(Some(text(&refusal.why)))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_configs(Some(Vec::new()))
}

/// `ConfigSource.DYNAMIC_TOPIC_CONFIG`.
const TOPIC: i8 = 1;
/// `ConfigSource.DEFAULT_CONFIG`.
const DEFAULT: i8 = 5;
