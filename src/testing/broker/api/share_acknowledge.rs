//! ShareAcknowledge: what becomes of records that are locked for a member of a share group (KIP-932, KIP-1222).

use std::collections::BTreeSet;

use kafka_protocol::messages::ShareAcknowledgeResponse;
use kafka_protocol::messages::share_acknowledge_response::{PartitionData, ShareAcknowledgeTopicResponse};

use super::Serve;
use super::share_fetch::id;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::share::{ShareAcknowledge, ShareAcknowledged};
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;
use crate::testing::broker::share_group::{Acknowledged, CLOSE, OPEN};

impl Serve for ShareAcknowledge {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let (group, member) =
            (id(self.body.group_id.as_ref().map(|id| id.as_str())), id(self.body.member_id.as_deref()));
        let epoch = self.body.share_session_epoch;
        // A session begins with a fetch.
        let entered = if epoch == OPEN {
            Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH)
        } else {
            core.groups.share(&group, false, 0).and_then(|group| {
                group.enter((call.node, &member, call.connection), epoch, std::iter::empty(), &BTreeSet::new())
            })
        };
        if let Err(code) = entered {
            return Step::Answer(above(code));
        }
        let renews = self.is_renew;
        let topics = self.body.topics.into_iter().map(|topic| {
            let parts = topic.partitions.into_iter().map(|partition| {
                let batches: Vec<_> = partition
                    .acknowledgement_batches
                    .into_iter()
                    .map(|batch| Acknowledged {
                        first: batch.first_offset,
                        last: batch.last_offset,
                        types: batch.acknowledge_types,
                    })
                    .collect();
                let at = (topic.topic_id, partition.partition_index);
                let done = core.share_acknowledge(call, (&group, &member), at, &batches, renews);
                let part = PartitionData::default().with_partition_index(partition.partition_index);
                match done {
                    Ok(()) => part,
                    Err(refusal) => part.with_error_code(refusal.code.0).with_error_message(refusal.words()),
                }
            });
            let parts = parts.collect();
            ShareAcknowledgeTopicResponse::default().with_topic_id(topic.topic_id).with_partitions(parts)
        });
        let topics = topics.collect();
        if epoch == CLOSE {
            core.share_close(&group, call.node, &member);
        }
        core.changed();
        let lock = core.settings.share_record_lock.as_millis();
        Step::Answer(ShareAcknowledged {
            body: ShareAcknowledgeResponse::default().with_responses(topics),
            lock_timeout_ms: i32::try_from(lock).unwrap_or(i32::MAX),
        })
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ShareAcknowledged {
        above(code)
    }

    fn throttle(answer: &mut ShareAcknowledged, ms: i32) {
        answer.body.throttle_time_ms = ms;
    }

    fn names(&self, core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        let all = self
            .body
            .topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id, partition.partition_index)));
        all.filter_map(|(topic, at)| Some((core.topics.name_of(topic)?.clone(), at))).collect()
    }
}

fn above(code: ErrorCode) -> ShareAcknowledged {
    let body = ShareAcknowledgeResponse::default().with_error_code(code.0).with_error_message(None);
    ShareAcknowledged { body, lock_timeout_ms: 0 }
}
