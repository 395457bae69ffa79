use std::collections::{BTreeMap, HashMap, HashSet};

use kafka_protocol::messages::MetadataResponse;
use kafka_protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use uuid::Uuid;

use super::BrokerAddress;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NodeId, Topic, TopicPartition};

/// The cluster as the last answers told it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterView {
    /// How many answers went into it. One that is larger is newer.
    pub(crate) generation: u64,
    pub(crate) cluster_id: Option<String>,
    pub(crate) controller: Option<NodeId>,
    pub(crate) brokers: BTreeMap<NodeId, Broker>,
    pub(crate) topics: HashMap<Topic, TopicView>,
}

/// One broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broker {
    pub(crate) address: BrokerAddress,
    pub(crate) rack: Option<String>,
}

/// One topic. Partitions are those of the last answer that had them, whatever `error` says since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicView {
    /// Nil where the broker keeps none (before Kafka 2.8), or the topic was never seen.
    pub(crate) id: Uuid,
    /// By their number, without gaps.
    pub(crate) partitions: Vec<PartitionView>,
    /// What the last answer said of the topic.
    pub(crate) error: ErrorCode,
}

/// One partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartitionView {
    pub(crate) leader: Option<NodeId>,
    pub(crate) leader_epoch: Option<LeaderEpoch>,
    pub(crate) error: ErrorCode,
}

/// What another answer than metadata's says of a partition's leader (KIP-951).
#[derive(Debug, Clone)]
pub(crate) struct LeaderHint {
    pub(crate) partition: TopicPartition,
    /// Of the topic that it is about; nil where it goes by name.
    pub(crate) topic_id: Uuid,
    pub(crate) leader: NodeId,
    pub(crate) epoch: LeaderEpoch,
    /// Where the leader is, if the answer tells.
    pub(crate) address: Option<BrokerAddress>,
}

impl ClusterView {
    /// What is known of a topic, if it was ever asked for.
    pub(crate) fn topic(&self, topic: &str) -> Option<&TopicView> {
        self.topics.get(topic)
    }

    /// What is known of a partition.
    pub(crate) fn partition(&self, partition: &TopicPartition) -> Option<&PartitionView> {
        let number = usize::try_from(partition.partition).ok()?;
        self.topics.get(&partition.topic)?.partitions.get(number)
    }

    /// The partition's leader, if it has one.
    pub(crate) fn leader(&self, partition: &TopicPartition) -> Option<NodeId> {
        self.partition(partition)?.leader
    }

    /// Takes in an answer to a request for `asked`; returns the topics that were created anew, with both ids.
    pub(super) fn merge(&mut self, asked: &HashSet<Topic>, response: MetadataResponse) -> Vec<(Topic, Uuid, Uuid)> {
        self.generation += 1;
        if let Some(id) = response.cluster_id {
            self.cluster_id = Some(id.to_string());
        }
        self.controller = (response.controller_id.0 >= 0).then_some(NodeId(response.controller_id.0));
        let brokers = response.brokers.into_iter().filter_map(|broker| {
            let address = BrokerAddress::new(&*broker.host, u16::try_from(broker.port).ok()?);
            Some((NodeId(broker.node_id.0), Broker { address, rack: broker.rack.map(|rack| rack.to_string()) }))
        });
        let brokers: BTreeMap<_, _> = brokers.collect();
        // A broker that has just started may not know the others yet, nor itself.
        if !brokers.is_empty() {
            self.brokers = brokers;
        }
        let mut recreated = Vec::new();
        for answer in response.topics {
            let Some(topic) = answer.name.as_ref().map(|name| Topic::from(name.as_str())) else { continue };
            // What was not asked for is not tracked: an answer must not make the view grow.
            if !asked.contains(&topic) {
                continue;
            }
            let old = self.topics.get(&topic);
            let new = TopicView::merged(old, &answer);
            if let Some(old) = old.filter(|old| old.id != new.id && !old.id.is_nil()) {
                recreated.push((topic.clone(), old.id, new.id));
            }
            self.topics.insert(topic, new);
        }
        recreated
    }

    /// Whether the hint tells more than is known.
    pub(super) fn would_learn(&self, hint: &LeaderHint) -> bool {
        let Some(known) = self.of_hint(hint) else { return false };
        let newer = known.leader_epoch.is_none_or(|epoch| hint.epoch > epoch);
        newer && (hint.address.is_some() || self.brokers.contains_key(&hint.leader))
    }

    /// Whether what is known is just what the hint says.
    pub(super) fn agrees(&self, hint: &LeaderHint) -> bool {
        let known = self.of_hint(hint);
        known.is_some_and(|known| known.leader == Some(hint.leader) && known.leader_epoch == Some(hint.epoch))
    }

    /// Takes the hint in, if it tells more than is known. Whether the view is now as it says.
    pub(super) fn learn_leader(&mut self, hint: &LeaderHint) -> bool {
        if !self.would_learn(hint) {
            return self.agrees(hint);
        }
        if let Some(address) = &hint.address {
            self.learn(hint.leader, address.clone());
        }
        let number = usize::try_from(hint.partition.partition).ok();
        let topic = self.topics.get_mut(&hint.partition.topic);
        if let Some(known) = topic.zip(number).and_then(|(topic, number)| topic.partitions.get_mut(number)) {
            let (leader, leader_epoch) = (Some(hint.leader), Some(hint.epoch));
            *known = PartitionView { leader, leader_epoch, error: ErrorCode::NONE };
        }
        true
    }

    /// What is known of the partition of a hint. Nothing where it speaks of another topic of the same name.
    fn of_hint(&self, hint: &LeaderHint) -> Option<&PartitionView> {
        let topic = self.topics.get(&hint.partition.topic)?;
        let other = !hint.topic_id.is_nil() && !topic.id.is_nil() && hint.topic_id != topic.id;
        if other { None } else { self.partition(&hint.partition) }
    }

    pub(super) fn forget(&mut self, topic: &Topic) {
        self.topics.remove(topic);
    }

    pub(super) fn learn(&mut self, node: NodeId, address: BrokerAddress) {
        self.brokers
            .entry(node)
            .and_modify(|broker| broker.address = address.clone())
            .or_insert(Broker { address, rack: None });
    }
}

impl TopicView {
    /// Whether requests can be sent to all its partitions.
    pub(crate) fn is_settled(&self) -> bool {
        self.error.is_ok() && self.partitions.iter().all(|partition| partition.leader.is_some())
    }

    fn merged(old: Option<&Self>, answer: &MetadataResponseTopic) -> Self {
        let error = ErrorCode(answer.error_code);
        if !error.is_ok() {
            let old = old.cloned();
            return Self { error, ..old.unwrap_or(Self { id: answer.topic_id, partitions: Vec::new(), error }) };
        }
        let old = old.filter(|old| old.id == answer.topic_id);
        // Of one id a topic only grows: what a broker leaves out that has not heard of it yet stays as it was known.
        let known = old.filter(|old| !old.id.is_nil()).map(|old| &old.partitions[..]).unwrap_or_default();
        // Numbers have no gaps: one that is not below the count of entries is a lie, and sizes nothing.
        let mut partitions = known.to_vec();
        partitions.resize(answer.partitions.len().max(known.len()), PartitionView::ABSENT);
        for partition in &answer.partitions {
            let number = usize::try_from(partition.partition_index).ok();
            if let Some((number, slot)) = number.and_then(|number| Some((number, partitions.get_mut(number)?))) {
                let before = old.and_then(|old| old.partitions.get(number));
                *slot = PartitionView::merged(before, partition);
            }
        }
        Self { id: answer.topic_id, partitions, error }
    }
}

impl PartitionView {
    const ABSENT: Self = Self { leader: None, leader_epoch: None, error: ErrorCode::LEADER_NOT_AVAILABLE };

    /// A broker that lags behind may tell of an earlier leader: of one topic id, the later epoch wins (KIP-320).
    fn merged(old: Option<&Self>, answer: &MetadataResponsePartition) -> Self {
        let leader_epoch = (answer.leader_epoch >= 0).then_some(LeaderEpoch(answer.leader_epoch));
        if let Some(old) = old
            && leader_epoch.is_some()
            && old.leader_epoch > leader_epoch
        {
            return *old;
        }
        Self {
            leader: (answer.leader_id.0 >= 0).then_some(NodeId(answer.leader_id.0)),
            leader_epoch,
            error: ErrorCode(answer.error_code),
        }
    }
}
