//! What a request says in one version and not in another: the same meant, as each version says it.

use std::any::Any;

use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, DeleteTopicsRequest, FetchRequest, FindCoordinatorRequest, LeaveGroupRequest,
    ListOffsetsRequest, OffsetFetchRequest, ProduceRequest,
};
use uuid::Uuid;

/// Takes out what this version has no words for, where other words of the request mean the same.
pub(super) fn fit<R: Any>(request: &mut R, version: i16) {
    let request: &mut dyn Any = request;
    if let Some(produce) = request.downcast_mut::<ProduceRequest>() {
        for topic in &mut produce.topic_data {
            if version >= 13 { topic.name = Default::default() } else { topic.topic_id = Uuid::nil() }
        }
    } else if let Some(fetch) = request.downcast_mut::<FetchRequest>() {
        for topic in &mut fetch.topics {
            if version >= 13 { topic.topic = Default::default() } else { topic.topic_id = Uuid::nil() }
        }
        for topic in &mut fetch.forgotten_topics_data {
            if version >= 13 { topic.topic = Default::default() } else { topic.topic_id = Uuid::nil() }
        }
    } else if let Some(find) = request.downcast_mut::<FindCoordinatorRequest>() {
        if version >= 4 { find.key = Default::default() } else { find.coordinator_keys.clear() }
    } else if let Some(offsets) = request.downcast_mut::<OffsetFetchRequest>() {
        if version >= 8 {
            let plain = OffsetFetchRequest::default();
            (offsets.group_id, offsets.topics) = (plain.group_id, plain.topics);
        } else {
            offsets.groups.clear();
        }
    } else if let Some(leave) = request.downcast_mut::<LeaveGroupRequest>() {
        if version >= 3 { leave.member_id = Default::default() } else { leave.members.clear() }
    } else if let Some(delete) = request.downcast_mut::<DeleteTopicsRequest>() {
        if version >= 6 { delete.topic_names.clear() } else { delete.topics.clear() }
    } else if let Some(add) = request.downcast_mut::<AddPartitionsToTxnRequest>() {
        if version >= 4 {
            *add = AddPartitionsToTxnRequest::default().with_transactions(std::mem::take(&mut add.transactions));
        } else {
            add.transactions.clear();
        }
    } else if let Some(places) = request.downcast_mut::<ListOffsetsRequest>()
        && version < 10
    {
        places.timeout_ms = 0;
    }
}
