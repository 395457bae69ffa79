//! ShareGroupDescribe: members of share groups and what is assigned to them (KIP-932).

use kafka_protocol::messages::share_group_describe_response::{Assignment, DescribedGroup, Member, TopicPartitions};
use kafka_protocol::messages::{GroupId, ShareGroupDescribeRequest, ShareGroupDescribeResponse, TopicName};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};
use crate::testing::broker::groups::{GROUP_OPERATIONS, Kind};
use crate::testing::broker::share_group::{self, ShareGroup};

impl Serve for ShareGroupDescribeRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let operations = if self.include_authorized_operations { GROUP_OPERATIONS } else { i32::MIN };
        let mut groups = Vec::new();
        for id in self.group_ids {
            groups.push(match core.check_coordinator(call, &id) {
                Err(code) => failed(id, code),
                Ok(()) => match core.groups.get(&id).map(|group| &group.kind) {
                    Some(Kind::Share(group)) => described(core, id, group).with_authorized_operations(operations),
                    _ => failed(id, ErrorCode::GROUP_ID_NOT_FOUND),
                },
            });
        }
        Step::Answer(ShareGroupDescribeResponse::default().with_groups(groups))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ShareGroupDescribeResponse {
        let groups = self.group_ids.into_iter().map(|id| failed(id, code));
        ShareGroupDescribeResponse::default().with_groups(groups.collect())
    }

    fn throttle(answer: &mut ShareGroupDescribeResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn described(core: &Core, id: GroupId, group: &ShareGroup) -> DescribedGroup {
    let members = group.members().map(|(member_id, member)| {
        Member::default()
            .with_member_id(text(member_id))
            .with_rack_id(member.rack_id.as_deref().map(text))
            .with_member_epoch(member.epoch)
            .with_client_id(text(&member.client_id))
            .with_client_host(text("/127.0.0.1"))
            .with_subscribed_topic_names(member.topics.iter().map(|name| TopicName(text(name.as_str()))).collect())
            .with_assignment(assignment(core, member))
    });
    DescribedGroup::default()
        .with_group_id(id)
        .with_group_state(text(group.state_name()))
        .with_group_epoch(group.epoch())
        .with_assignment_epoch(group.epoch())
        .with_assignor_name(text("simple"))
        .with_members(members.collect())
}

fn assignment(core: &Core, member: &share_group::Member) -> Assignment {
    let topics = core.topics.by_topic(&member.assigned).map(|(name, id, partitions)| {
        let of = TopicPartitions::default().with_topic_id(id).with_topic_name(TopicName(text(name.as_str())));
        of.with_partitions(partitions)
    });
    Assignment::default().with_topic_partitions(topics.collect())
}

fn failed(id: GroupId, code: ErrorCode) -> DescribedGroup {
    DescribedGroup::default().with_group_id(id).with_error_code(code.0).with_error_message(Some(text(code.meaning())))
}
