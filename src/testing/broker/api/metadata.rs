//! Metadata: nodes, topics, who leads what.

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use uuid::Uuid;

use super::Serve;
use crate::memory::{TopicConfig, is_valid_name};
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, NewTopic, text};
use crate::testing::broker::partition::Partition;
use crate::testing::broker::topics::TopicState;

impl Serve for MetadataRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        if self.goes_by_id_too_early(call) {
            return Step::Close;
        }
        let mut answer = cluster(core, call);
        answer.topics = match self.asked(call) {
            None => {
                let all = core.topics.iter();
                all.map(|(name, topic)| described(core, call, name, topic)).collect()
            }
            Some(asked) => {
                let mut once: Vec<MetadataRequestTopic> = Vec::new();
                asked.into_iter().for_each(|asked| {
                    if !once.contains(&asked) {
                        once.push(asked)
                    }
                });
                once.into_iter().map(|asked| self.one(core, call, asked)).collect()
            }
        };
        if self.include_topic_authorized_operations {
            let known = |topic: &&mut MetadataResponseTopic| topic.error_code == 0;
            answer
                .topics
                .iter_mut()
                .filter(known)
                .for_each(|topic| topic.topic_authorized_operations = TOPIC_OPERATIONS);
        }
        if self.include_cluster_authorized_operations {
            answer.cluster_authorized_operations = CLUSTER_OPERATIONS;
        }
        Step::Answer(answer)
    }

    fn refuse(self, core: &mut Core, call: &Call, code: ErrorCode) -> MetadataResponse {
        let asked = self.asked(call).unwrap_or_default();
        let refused = |asked: MetadataRequestTopic| unknown(asked.name, asked.topic_id, code);
        let mut answer = cluster(core, call).with_topics(asked.into_iter().map(refused).collect());
        if call.version >= 13 {
            answer.error_code = code.0;
        }
        answer
    }

    fn throttle(answer: &mut MetadataResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }

    fn names(&self, core: &Core, call: &Call) -> Vec<(Topic, i32)> {
        match self.asked(call) {
            None => core.topics.iter().map(|(name, _)| (name.clone(), -1)).collect(),
            Some(asked) => asked.iter().filter_map(|asked| name_of(core, asked)).map(|name| (name, -1)).collect(),
        }
    }
}

trait Asked {
    /// The topics that are asked for; `None` for all.
    fn asked(&self, call: &Call) -> Option<Vec<MetadataRequestTopic>>;
    fn one(&self, core: &mut Core, call: &Call, asked: MetadataRequestTopic) -> MetadataResponseTopic;
    /// Whether a topic has no name in a version whose answer cannot be without one.
    fn goes_by_id_too_early(&self, call: &Call) -> bool;
}

impl Asked for MetadataRequest {
    fn asked(&self, call: &Call) -> Option<Vec<MetadataRequestTopic>> {
        // In version 0 none means all.
        self.topics.clone().filter(|topics| call.version > 0 || !topics.is_empty())
    }

    fn goes_by_id_too_early(&self, call: &Call) -> bool {
        let by_id = self.topics.iter().flatten().any(|topic| topic.name.is_none());
        by_id && call.version < FIRST_BY_ID
    }

    fn one(&self, core: &mut Core, call: &Call, asked: MetadataRequestTopic) -> MetadataResponseTopic {
        let Some(name) = name_of(core, &asked) else {
            return unknown(None, asked.topic_id, ErrorCode::UNKNOWN_TOPIC_ID);
        };
        if let Some(code) = call.failure_of(&name, -1) {
            return unknown(Some(TopicName(text(name.as_str()))), asked.topic_id, code);
        }
        if let Some((name, topic)) = core.topics.get(&name) {
            return described(core, call, name, topic);
        }
        // Versions before 4 cannot say that they do not want it.
        let creates = call.version < 4 || self.allow_auto_topic_creation;
        let code = if !is_valid_name(&name) {
            ErrorCode::INVALID_TOPIC_EXCEPTION
        } else {
            if creates && core.settings.auto_create_topics {
                create(core, &name);
            }
            // As Kafka, which answers before the topic is there.
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        };
        unknown(Some(TopicName(text(name.as_str()))), Uuid::nil(), code)
    }
}

/// KIP-516.
const FIRST_BY_ID: i16 = 12;

fn name_of(core: &Core, asked: &MetadataRequestTopic) -> Option<Topic> {
    match &asked.name {
        Some(name) => Some(Topic::from(name.as_str())),
        None => core.topics.name_of(asked.topic_id).cloned(),
    }
}

fn create(core: &mut Core, name: &Topic) {
    let placed = core.place(-1, -1);
    let new = placed.map(|replicas| NewTopic { name: name.clone(), replicas, config: TopicConfig::default() });
    if let Err(refusal) = new.and_then(|new| core.create_topic(new, false)) {
        tracing::debug!(topic = %name, code = %refusal.code, "a topic is not created by being asked for");
    }
}

fn cluster(core: &Core, call: &Call) -> MetadataResponse {
    let brokers = core.nodes.up().map(|node| {
        let (host, port) = core.endpoint(node.id, call.listener);
        let broker = MetadataResponseBroker::default().with_node_id(BrokerId(node.id)).with_host(host).with_port(port);
        broker.with_rack(node.rack.as_deref().map(text))
    });
    MetadataResponse::default()
        .with_brokers(brokers.collect())
        .with_cluster_id(Some(text(&core.settings.cluster_id)))
        .with_controller_id(BrokerId(core.nodes.controller()))
}

fn described(core: &Core, _call: &Call, name: &Topic, topic: &TopicState) -> MetadataResponseTopic {
    let partitions = (0..).zip(&topic.partitions).map(|(index, state)| partition(core, index, state));
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(text(name.as_str()))))
        .with_topic_id(topic.id)
        .with_partitions(partitions.collect())
}

fn partition(core: &Core, index: i32, state: &Partition) -> MetadataResponsePartition {
    let code = if state.leader.is_some() { ErrorCode::NONE } else { ErrorCode::LEADER_NOT_AVAILABLE };
    let offline = state.replicas.iter().copied().filter(|node| !core.nodes.is_up(*node));
    MetadataResponsePartition::default()
        .with_error_code(code.0)
        .with_partition_index(index)
        .with_leader_id(BrokerId(state.leader.unwrap_or(-1)))
        .with_leader_epoch(state.leader_epoch)
        .with_replica_nodes(state.replicas.iter().copied().map(BrokerId).collect())
        .with_isr_nodes(state.in_sync.iter().copied().map(BrokerId).collect())
        .with_offline_replicas(offline.map(BrokerId).collect())
}

fn unknown(name: Option<TopicName>, id: Uuid, code: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic::default().with_error_code(code.0).with_name(name).with_topic_id(id)
}

/// A bit for each operation that a topic has (`AclOperation`), all allowed: there is no authorizer.
const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// The same of the cluster.
const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;
