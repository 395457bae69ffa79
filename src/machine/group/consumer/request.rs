//! The requests of a member of a KIP-848 group.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, DescribeGroupsRequest, GroupId, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{ConsumerGroup, State};

impl ConsumerGroup {
    /// The next heartbeat, and notes what it says as said.
    pub(super) fn heartbeat_request(&mut self) -> ConsumerGroupHeartbeatRequest {
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(self.group_id())
            .with_member_id(self.member_id.clone())
            .with_instance_id(self.config.instance_id.clone())
            .with_rebalance_timeout_ms(UNCHANGED);
        if let State::Leaving { again } = self.state {
            // A static member comes back, so its partitions wait for it. One that was too slow must not be waited for.
            let is_static = self.config.instance_id.is_some() && !again;
            return request.with_member_epoch(if is_static { LEAVE_STATIC } else { LEAVE });
        }
        self.announced = true;
        let mut request = request.with_member_epoch(self.epoch);
        if self.full || self.untold_topics {
            let topics = self.topics.iter().map(|topic| TopicName(StrBytes::from_string(topic.as_str().to_owned())));
            request = request.with_subscribed_topic_names(Some(topics.collect()));
        }
        if self.full {
            let timeout = self.config.revocation_timeout + RELEASE_SLACK;
            let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
            request = request
                .with_rebalance_timeout_ms(timeout)
                .with_rack_id(self.config.rack.clone())
                .with_server_assignor(self.config.server_assignor.clone());
        }
        if self.full || self.untold {
            request = request.with_topic_partitions(Some(self.owned_by_id()));
        }
        // Until it is answered, the next one says everything; so nothing is said too little if this is lost.
        (self.untold, self.untold_topics) = (false, false);
        request
    }

    pub(super) fn describe_request(&self) -> DescribeGroupsRequest {
        DescribeGroupsRequest::default().with_groups(vec![self.group_id()])
    }

    fn owned_by_id(&self) -> Vec<TopicPartitions> {
        let mut topics: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        for (partition, id) in &self.owned {
            topics.entry(*id).or_default().push(partition.partition);
        }
        let topics = topics.into_iter();
        topics.map(|(id, list)| TopicPartitions::default().with_topic_id(id).with_partitions(list)).collect()
    }

    fn group_id(&self) -> GroupId {
        GroupId(StrBytes::from_string(self.config.group.clone()))
    }
}

/// The coordinator waits this much longer, so that the member is the first to know that it was too slow.
const RELEASE_SLACK: Duration = Duration::from_secs(1);
/// Of a field that is not said again.
const UNCHANGED: i32 = -1;
const LEAVE: i32 = -1;
const LEAVE_STATIC: i32 = -2;
