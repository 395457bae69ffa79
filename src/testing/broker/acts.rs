//! What can be done to a cluster from outside the protocol: misfortunes, and looks at what it holds.

use std::collections::BTreeSet;
use std::time::Instant;

use super::cluster::Cluster;
use super::core::NewTopic;
use super::groups::Kind;
use super::partition::Partition;
use super::telemetry::PushedMetrics;
use crate::memory::TopicConfig;
use crate::protocol::batch::EncodedBatch;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, Offset, Timestamp, Topic, TopicPartition};

/// Topics and partitions.
impl Cluster {
    /// Creates a topic, its partitions round the nodes.
    ///
    /// # Errors
    /// Kafka's code for a name, a count or a replication factor that cannot be.
    pub fn create_topic(
        &mut self,
        name: impl Into<Topic>,
        partitions: i32,
        replication_factor: i16,
        config: TopicConfig,
        now: Instant,
    ) -> Result<(), ErrorCode> {
        let placed = self.core.place(partitions, replication_factor);
        let new = placed.map(|replicas| NewTopic { name: name.into(), replicas, config });
        let created = new.and_then(|new| self.core.create_topic(new, false));
        self.settle(now);
        created.map(drop).map_err(|refusal| refusal.code)
    }

    /// Hides a topic from every request, or shows it again: as a broker that has not heard of it yet.
    pub fn hide_topic(&mut self, topic: impl Into<Topic>, hidden: bool, now: Instant) {
        self.core.topics.hide(topic.into(), hidden);
        self.core.changed();
        self.settle(now);
    }

    /// Makes a node the leader of a partition, in a new epoch. If it is not in sync, what the others have beyond it is lost
    /// (unclean election).
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`, or `REPLICA_NOT_AVAILABLE` where the node holds no replica or does not run.
    pub fn move_leader(&mut self, partition: &TopicPartition, node: i32, now: Instant) -> Result<(), ErrorCode> {
        self.act(partition, now, |partition, around| partition.elect(node, around))?
    }

    /// The leader of a partition stays, its epoch grows by one.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`.
    pub fn bump_leader_epoch(&mut self, partition: &TopicPartition, now: Instant) -> Result<(), ErrorCode> {
        self.act(partition, now, |partition, _| partition.bump_epoch())
    }

    /// Makes a partition forget its idempotent producers, as one whose producers' state expired.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`.
    pub fn lose_producer_state(&mut self, partition: &TopicPartition, now: Instant) -> Result<(), ErrorCode> {
        self.act(partition, now, |partition, _| partition.forget_producers())
    }

    /// Deletes the records before `offset`; tells where the partition begins then.
    ///
    /// # Errors
    /// `UNKNOWN_TOPIC_OR_PARTITION`, or `OFFSET_OUT_OF_RANGE`.
    pub fn delete_records(
        &mut self,
        partition: &TopicPartition,
        offset: Offset,
        now: Instant,
    ) -> Result<Offset, ErrorCode> {
        self.act(partition, now, |partition, _| partition.delete_before(offset.0))?.map(Offset)
    }

    /// How a partition stands; `None` for one that does not exist.
    pub fn partition(&self, partition: &TopicPartition) -> Option<PartitionState> {
        let found = self.core.topics.partition(&partition.topic, partition.partition).ok()?;
        let ends = found.replicas.iter().map(|node| (*node, Offset(found.log(*node).map_or(0, |log| log.end().0))));
        Some(PartitionState {
            leader: found.leader,
            leader_epoch: LeaderEpoch(found.leader_epoch),
            in_sync: found.in_sync.iter().copied().collect(),
            log_start: Offset(found.leader_log().map_or(0, |log| log.start().0)),
            high_watermark: Offset(found.high_watermark()),
            log_ends: ends.collect(),
        })
    }

    /// The batches of a partition as a node has them; nothing for a partition or a replica that does not exist.
    pub fn batches(&self, partition: &TopicPartition, node: i32) -> Vec<EncodedBatch> {
        let found = self.core.topics.partition(&partition.topic, partition.partition);
        let log = found.ok().and_then(|found| found.log(node));
        log.map(|log| log.batches().map(|stored| stored.batch.clone()).collect()).unwrap_or_default()
    }

    fn act<T>(
        &mut self,
        partition: &TopicPartition,
        now: Instant,
        act: impl FnOnce(&mut Partition, &super::partition::Around<'_>) -> T,
    ) -> Result<T, ErrorCode> {
        let (topic, index) = (&partition.topic, partition.partition);
        let done = self.core.with_partition(topic, index, now, |partition, _, around| act(partition, around));
        self.settle(now);
        done
    }
}

/// Nodes.
impl Cluster {
    /// A node ends: its connections close, its partitions and groups go to others. Its logs stay.
    pub fn crash(&mut self, node: i32, now: Instant) {
        let moved = self.coordinated_by(node);
        if let Some(node) = self.core.nodes.get_mut(node) {
            (node.is_up, node.is_paused) = (false, false);
        }
        self.core.sessions.forget_node(node);
        for (connection, of) in self.connections() {
            if of == node {
                self.close(connection);
            }
        }
        self.core.nodes_changed(now);
        let limits = self.core.consumer_group_limits();
        self.core.groups.reload(|id| moved.contains(id), limits, now);
        self.settle(now);
    }

    /// A node that ended runs again. Its replicas follow; it leads what nobody else can.
    pub fn restart(&mut self, node: i32, now: Instant) {
        if let Some(node) = self.core.nodes.get_mut(node) {
            node.is_up = true;
        }
        let moved = self.coordinated_by(node);
        let limits = self.core.consumer_group_limits();
        self.core.groups.reload(|id| moved.contains(id), limits, now);
        self.core.nodes_changed(now);
        self.settle(now);
    }

    /// A node hangs: connections stay open, nothing is read or answered, its replicas do not follow. It keeps what it leads.
    pub fn pause(&mut self, node: i32, _now: Instant) {
        if let Some(node) = self.core.nodes.get_mut(node) {
            node.is_paused = true;
        }
    }

    /// A node that hung goes on where it was.
    pub fn resume(&mut self, node: i32, now: Instant) {
        if let Some(node) = self.core.nodes.get_mut(node) {
            node.is_paused = false;
        }
        self.core.nodes_changed(now);
        for (connection, of) in self.connections() {
            if of == node {
                self.advance(connection, now);
            }
        }
        self.settle(now);
    }

    /// Whether a node's replicas follow their leaders. One whose do not holds the high watermark until it is taken out of
    /// the in-sync set; made the leader, it lacks what it did not follow.
    pub fn set_following(&mut self, node: i32, follows: bool, now: Instant) {
        if let Some(node) = self.core.nodes.get_mut(node) {
            node.follows = follows;
        }
        self.core.nodes_changed(now);
        self.settle(now);
    }

    /// Sets the wall clock of all nodes, forward or back, as one that is corrected. What was written keeps its time; timers do not
    /// notice.
    pub fn set_wall(&mut self, wall: Timestamp, now: Instant) {
        self.core.set_wall(wall, now);
    }

    /// Whether a node runs.
    pub fn is_up(&self, node: i32) -> bool {
        self.core.nodes.is_up(node)
    }

    fn coordinated_by(&self, node: i32) -> BTreeSet<String> {
        let groups = self.core.groups.iter().map(|(id, _)| id);
        groups.filter(|id| self.core.coordinator_of(id) == Some(node)).cloned().collect()
    }

    /// The node that coordinates the group or the transaction of this name.
    pub fn coordinator_of(&self, key: &str) -> Option<i32> {
        self.core.coordinator_of(key)
    }
}

/// Sessions of readers.
impl Cluster {
    /// How many fetch sessions (KIP-227) the nodes keep.
    pub fn fetch_sessions(&self) -> usize {
        self.core.sessions.len()
    }
}

/// Clients' metrics.
impl Cluster {
    /// What clients pushed of their metrics (KIP-714), the oldest first; the last hundred pushes are kept.
    pub fn pushed_metrics(&self) -> Vec<PushedMetrics> {
        self.core.telemetry.pushed().cloned().collect()
    }
}

/// Groups.
impl Cluster {
    /// Makes a node the coordinator of a group, or of a transaction, of this name. It knows the group's last complete
    /// generation and nothing of joins that were under way.
    ///
    /// # Errors
    /// `COORDINATOR_NOT_AVAILABLE` where the node does not run.
    pub fn move_coordinator(&mut self, key: &str, node: i32, now: Instant) -> Result<(), ErrorCode> {
        if !self.core.nodes.is_up(node) {
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        self.core.coordinators.insert(key.to_owned(), node);
        let limits = self.core.consumer_group_limits();
        self.core.groups.reload(|id| id == key, limits, now);
        self.core.changed();
        self.settle(now);
        Ok(())
    }

    /// Ends a member's session, as if its heartbeats had not come.
    ///
    /// # Errors
    /// `GROUP_ID_NOT_FOUND`, `UNKNOWN_MEMBER_ID`.
    pub fn expire_member(&mut self, group: &str, member: &str, now: Instant) -> Result<(), ErrorCode> {
        let limits = self.core.group_limits();
        let found = self.core.groups.get_mut(group).ok_or(ErrorCode::GROUP_ID_NOT_FOUND)?;
        let known = match &mut found.kind {
            Kind::Classic(group) => group.expire(member, limits, now),
            Kind::Consumer(group) => group.expire(member),
            Kind::Share(group) => group.expire(member),
        };
        self.core.changed();
        self.settle(now);
        if known { Ok(()) } else { Err(ErrorCode::UNKNOWN_MEMBER_ID) }
    }

    /// The members of a group, by id; nothing for a group that does not exist.
    pub fn members(&self, group: &str) -> Vec<String> {
        match self.core.groups.get(group).map(|group| &group.kind) {
            Some(Kind::Classic(group)) => group.members().map(|(id, _)| id.clone()).collect(),
            Some(Kind::Consumer(group)) => group.members().map(|(id, _)| id.clone()).collect(),
            Some(Kind::Share(group)) => group.members().map(|(id, _)| id.clone()).collect(),
            None => Vec::new(),
        }
    }

    /// What a group has committed on a partition.
    pub fn committed(&self, group: &str, partition: &TopicPartition) -> Option<Offset> {
        let committed = self.core.groups.get(group)?.offsets.get(partition)?;
        Some(Offset(committed.offset))
    }
}

/// How a partition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionState {
    /// The node that leads it; `None` where none can.
    pub leader: Option<i32>,
    /// Counts its leaders.
    pub leader_epoch: LeaderEpoch,
    /// The replicas that have all that the leader has, or may yet get it in time.
    pub in_sync: Vec<i32>,
    /// The oldest offset kept.
    pub log_start: Offset,
    /// The offset up to which consumers see.
    pub high_watermark: Offset,
    /// Where each replica's log ends, the preferred leader first.
    pub log_ends: Vec<(i32, Offset)>,
}
