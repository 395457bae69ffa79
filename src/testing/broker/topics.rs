//! The topics of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::node::Nodes;
use super::partition::Partition;
use crate::memory::TopicConfig;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};

/// One topic.
#[derive(Debug)]
pub(super) struct TopicState {
    pub(super) id: Uuid,
    pub(super) config: TopicConfig,
    pub(super) partitions: Vec<Partition>,
}

impl TopicState {
    /// `min.insync.replicas`, or the cluster's.
    pub(super) fn min_insync(&self, default: usize) -> usize {
        self.config.given.get("min.insync.replicas").and_then(|text| text.trim().parse().ok()).unwrap_or(default)
    }
}

/// All topics, by name and by id.
#[derive(Debug, Default)]
pub(super) struct Topics {
    by_name: BTreeMap<Topic, TopicState>,
    by_id: BTreeMap<Uuid, Topic>,
    /// Those that are there and not shown.
    hidden: BTreeSet<Topic>,
}

impl Topics {
    pub(super) fn insert(&mut self, name: Topic, topic: TopicState) {
        self.by_id.insert(topic.id, name.clone());
        self.by_name.insert(name, topic);
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<TopicState> {
        let topic = self.by_name.remove(name)?;
        self.by_id.remove(&topic.id);
        self.hidden.remove(name);
        Some(topic)
    }

    /// A topic that is there, shown or not.
    pub(super) fn exists(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn hide(&mut self, name: Topic, hidden: bool) {
        if hidden {
            self.hidden.insert(name);
        } else {
            self.hidden.remove(&name);
        }
    }

    /// A topic by its name; none that is hidden.
    pub(super) fn get(&self, name: &str) -> Option<(&Topic, &TopicState)> {
        self.by_name.get_key_value(name).filter(|(name, _)| !self.hidden.contains(*name))
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut TopicState> {
        if self.hidden.contains(name) {
            return None;
        }
        self.by_name.get_mut(name)
    }

    /// The name of the topic with this id; none that is hidden.
    pub(super) fn name_of(&self, id: Uuid) -> Option<&Topic> {
        self.by_id.get(&id).filter(|name| !self.hidden.contains(*name))
    }

    /// Partitions by their topics, with their ids; those of topics that are not there are left out.
    pub(super) fn by_topic<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
    ) -> impl Iterator<Item = (&'a Topic, Uuid, Vec<i32>)> {
        let mut by_topic: BTreeMap<&Topic, Vec<i32>> = BTreeMap::new();
        partitions.into_iter().for_each(|at| by_topic.entry(&at.topic).or_default().push(at.partition));
        by_topic.into_iter().filter_map(|(name, partitions)| Some((name, self.get(name)?.1.id, partitions)))
    }

    /// A partition by its topic's name.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`.
    pub(super) fn partition(&self, name: &str, partition: i32) -> Result<&Partition, ErrorCode> {
        let (_, topic) = self.get(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let partition = usize::try_from(partition).ok().and_then(|index| topic.partitions.get(index));
        partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    }

    /// A partition and its topic's settings.
    pub(super) fn partition_mut(
        &mut self,
        name: &str,
        partition: i32,
    ) -> Result<(&mut Partition, &TopicConfig), ErrorCode> {
        let topic = self.get_mut(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let partition = usize::try_from(partition).ok().and_then(|index| topic.partitions.get_mut(index));
        Ok((partition.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?, &topic.config))
    }

    /// Those that are shown, in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Topic, &TopicState)> {
        self.by_name.iter().filter(|(name, _)| !self.hidden.contains(*name))
    }

    /// Every partition, of hidden topics too.
    pub(super) fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.by_name.values().flat_map(|topic| &topic.partitions)
    }

    pub(super) fn partitions_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.by_name.values_mut().flat_map(|topic| &mut topic.partitions)
    }
}

/// Where the partitions of a topic go: round the nodes, each partition beginning one further.
pub(super) fn assign_replicas(nodes: &Nodes, first: usize, partitions: i32, factor: i16) -> Vec<Vec<i32>> {
    let ids = nodes.ids();
    let replicas = |partition: usize| {
        (0..factor.max(1) as usize).map(|replica| ids[(first + partition + replica) % ids.len()]).collect()
    };
    (0..partitions.max(0) as usize).map(replicas).collect()
}
