//! ConsumerGroupDescribe: members of groups of the new protocol, what they have and are to have (KIP-848).

use std::collections::BTreeSet;

use kafka_protocol::messages::consumer_group_describe_response::{Assignment, DescribedGroup, Member, TopicPartitions};
use kafka_protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, GroupId, TopicName};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::record::TopicPartition;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::consumer_group::ConsumerGroup;
use crate::testing::broker::core::{Core, text};
use crate::testing::broker::expression::Expression;
use crate::testing::broker::groups::{GROUP_OPERATIONS, Kind};

impl Serve for ConsumerGroupDescribeRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let operations = if self.include_authorized_operations { GROUP_OPERATIONS } else { i32::MIN };
        let mut groups = Vec::new();
        for id in self.group_ids {
            if let Err(code) = core.check_coordinator(call, &id) {
                groups.push(failed(id, code));
                continue;
            }
            groups.push(match core.groups.get(&id).map(|group| &group.kind) {
                Some(Kind::Consumer(group)) => described(core, call, id, group).with_authorized_operations(operations),
                _ => failed(id, ErrorCode::GROUP_ID_NOT_FOUND),
            });
        }
        Step::Answer(ConsumerGroupDescribeResponse::default().with_groups(groups))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ConsumerGroupDescribeResponse {
        let groups = self.group_ids.into_iter().map(|id| failed(id, code));
        ConsumerGroupDescribeResponse::default().with_groups(groups.collect())
    }

    fn throttle(answer: &mut ConsumerGroupDescribeResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn described(core: &Core, call: &Call, id: GroupId, group: &ConsumerGroup) -> DescribedGroup {
    let members = group.members().map(|(member_id, member)| {
        let described = Member::default()
            .with_member_id(text(member_id))
            .with_instance_id(member.instance_id.as_deref().map(text))
            .with_rack_id(member.rack_id.as_deref().map(text))
            .with_member_epoch(member.epoch)
            .with_client_id(text(&member.client_id))
            .with_client_host(text("/127.0.0.1"))
            .with_subscribed_topic_names(member.topics.iter().map(|name| TopicName(text(name.as_str()))).collect())
            .with_subscribed_topic_regex(Some(text(member.expression.as_ref().map_or("", Expression::text))))
            .with_assignment(assignment(core, &member.assigned))
            .with_target_assignment(assignment(core, &member.target));
        // -1: not known before KIP-1099.
        described.with_member_type(if call.version >= 1 { CONSUMER } else { -1 })
    });
    let (epoch, target_epoch) = group.epochs();
    DescribedGroup::default()
        .with_group_id(id)
        .with_group_state(text(group.state_name()))
        .with_group_epoch(epoch)
        .with_assignment_epoch(target_epoch)
        .with_assignor_name(text(group.assignor()))
        .with_members(members.collect())
}

fn assignment(core: &Core, partitions: &BTreeSet<TopicPartition>) -> Assignment {
    let topics = core.topics.by_topic(partitions).map(|(name, id, partitions)| {
        let of = TopicPartitions::default().with_topic_id(id).with_topic_name(TopicName(text(name.as_str())));
        of.with_partitions(partitions)
    });
    Assignment::default().with_topic_partitions(topics.collect())
}

fn failed(id: GroupId, code: ErrorCode) -> DescribedGroup {
    DescribedGroup::default().with_group_id(id).with_error_code(code.0).with_error_message(Some(text(code.meaning())))
}

/// A member that speaks the new protocol; 0 is one that speaks the classic one.
const CONSUMER: i8 = 1;
