//! The APIs, one file each, and the table of them.
//!
//! To add one: a file with an `impl Serve for XRequest`, and a line in [`APIS`]. What it acts on is [`Core`]; an answer that
//! has to wait is a [`Step::wait`] that is asked again whenever [`Core::changed`] was called.

mod add_offsets_to_txn;
mod add_partitions_to_txn;
mod alter_partition_reassignments;
mod api_versions;
mod consumer_group_describe;
mod consumer_group_heartbeat;
mod create_acls;
mod create_partitions;
mod create_topics;
mod delete_acls;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_acls;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_transactions;
mod elect_leaders;
mod end_txn;
mod fetch;
mod find_coordinator;
mod get_telemetry_subscriptions;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
mod list_transactions;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod push_telemetry;
#[cfg(feature = "sasl")]
mod sasl_authenticate;
#[cfg(feature = "sasl")]
mod sasl_handshake;
mod share_acknowledge;
mod share_fetch;
mod share_group_describe;
mod share_group_heartbeat;
mod sync_group;
mod txn_offset_commit;

use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, AlterPartitionReassignmentsRequest, ApiVersionsRequest,
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, CreateAclsRequest, CreatePartitionsRequest,
    CreateTopicsRequest, DeleteAclsRequest, DeleteGroupsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    DescribeAclsRequest, DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest, DescribeLogDirsRequest,
    DescribeProducersRequest, DescribeTransactionsRequest, ElectLeadersRequest, EndTxnRequest, FetchRequest,
    FindCoordinatorRequest, GetTelemetrySubscriptionsRequest, HeartbeatRequest, IncrementalAlterConfigsRequest,
    InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, ListOffsetsRequest,
    ListPartitionReassignmentsRequest, ListTransactionsRequest, MetadataRequest, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest, ProduceRequest, PushTelemetryRequest,
    ShareGroupDescribeRequest, ShareGroupHeartbeatRequest, SyncGroupRequest, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::{HeaderVersion, Request};

use super::call::{Call, Head, Hostile, Step, Wait, decode, encode};
use super::core::Core;
use crate::protocol::api::{ApiKey, VersionRange};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::share::{ShareAcknowledge, ShareFetch};
use crate::record::Topic;

/// Every API that is served, by key.
pub(super) const APIS: &[Api] = &[
    Api::of::<ProduceRequest>(),
    Api::of::<FetchRequest>(),
    Api::of::<ListOffsetsRequest>(),
    Api::of::<MetadataRequest>(),
    Api::of::<OffsetCommitRequest>(),
    Api::of::<OffsetFetchRequest>(),
    Api::of::<FindCoordinatorRequest>(),
    Api::of::<JoinGroupRequest>(),
    Api::of::<HeartbeatRequest>(),
    Api::of::<LeaveGroupRequest>(),
    Api::of::<SyncGroupRequest>(),
    Api::of::<DescribeGroupsRequest>(),
    Api::of::<ListGroupsRequest>(),
    #[cfg(feature = "sasl")]
    Api::of::<kafka_protocol::messages::SaslHandshakeRequest>(),
    Api::of::<ApiVersionsRequest>(),
    Api::of::<CreateTopicsRequest>(),
    Api::of::<DeleteTopicsRequest>(),
    Api::of::<DeleteRecordsRequest>(),
    Api::of::<InitProducerIdRequest>(),
    Api::of::<OffsetForLeaderEpochRequest>(),
    Api::of::<AddPartitionsToTxnRequest>(),
    Api::of::<AddOffsetsToTxnRequest>(),
    Api::of::<EndTxnRequest>(),
    Api::of::<TxnOffsetCommitRequest>(),
    Api::of::<DescribeAclsRequest>(),
    Api::of::<CreateAclsRequest>(),
    Api::of::<DeleteAclsRequest>(),
    Api::of::<DescribeConfigsRequest>(),
    Api::of::<DescribeLogDirsRequest>(),
    #[cfg(feature = "sasl")]
    Api::of::<kafka_protocol::messages::SaslAuthenticateRequest>(),
    Api::of::<CreatePartitionsRequest>(),
    Api::of::<DeleteGroupsRequest>(),
    Api::of::<ElectLeadersRequest>(),
    Api::of::<IncrementalAlterConfigsRequest>(),
    Api::of::<AlterPartitionReassignmentsRequest>(),
    Api::of::<ListPartitionReassignmentsRequest>(),
    Api::of::<OffsetDeleteRequest>(),
    Api::of::<DescribeClusterRequest>(),
    Api::of::<DescribeProducersRequest>(),
    Api::of::<DescribeTransactionsRequest>(),
    Api::of::<ListTransactionsRequest>(),
    Api::of::<ConsumerGroupHeartbeatRequest>(),
    Api::of::<ConsumerGroupDescribeRequest>(),
    Api::of::<GetTelemetrySubscriptionsRequest>(),
    Api::of::<PushTelemetryRequest>(),
    Api::of::<ShareGroupHeartbeatRequest>(),
    Api::of::<ShareGroupDescribeRequest>(),
    Api::of::<ShareFetch>(),
    Api::of::<ShareAcknowledge>(),
];

/// A request that the cluster serves.
pub(super) trait Serve: Request + Clone + Send + 'static {
    /// The versions that are served, and advertised.
    const VERSIONS: VersionRange =
        VersionRange { min: Self::VERSIONS_OF_STRUCT.min, max: Self::VERSIONS_OF_STRUCT.max };

    /// The versions that the struct knows.
    const VERSIONS_OF_STRUCT: kafka_protocol::protocol::VersionRange =
        <Self as kafka_protocol::protocol::Message>::VERSIONS;

    /// Acts on it.
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self>;

    /// The answer that says this code of everything that was asked.
    fn refuse(self, core: &mut Core, call: &Call, code: ErrorCode) -> Self::Response;

    /// Says in an answer for how long the client is throttled.
    fn throttle(answer: &mut Self::Response, ms: i32);

    /// The partitions that it names; -1 stands for all of a topic.
    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        Vec::new()
    }
}

/// One row of the table.
pub(super) struct Api {
    pub(super) key: ApiKey,
    pub(super) versions: VersionRange,
    prepare: Prepare,
}

impl Api {
    const fn of<R: Serve>() -> Self {
        Self { key: ApiKey::of::<R>(), versions: <R as Serve>::VERSIONS, prepare: prepare_of::<R> }
    }
}

type Prepare = fn(&mut Call, &Head) -> Result<Box<dyn Prepared>, Hostile>;

/// A decoded request of some API.
pub(super) trait Prepared: Send {
    fn names(&self, core: &Core, call: &Call) -> Vec<(Topic, i32)>;
    fn serve(self: Box<Self>, core: &mut Core, call: Call) -> Result<Served, Hostile>;
    fn refuse(self: Box<Self>, core: &mut Core, call: &Call, code: ErrorCode) -> Result<Served, Hostile>;
    /// Acts on it, and answers with the code what would have been answered otherwise, when it would have been.
    fn serve_and_refuse(self: Box<Self>, core: &mut Core, call: Call, code: ErrorCode) -> Result<Served, Hostile>;
}

/// How a request was answered.
pub(super) enum Served {
    /// With this frame.
    Frame(Bytes),
    /// Not yet.
    Waits { until: Option<Instant>, poll: Pending },
    /// Not at all.
    Nothing,
    /// By closing the connection.
    Close,
    /// With this frame, and the connection closes behind it.
    #[cfg(feature = "sasl")]
    Last(Bytes),
}

/// Gives the frame of the answer once there is one.
pub(super) type Pending = Box<dyn FnMut(&mut Core, Instant) -> Option<Result<Bytes, Hostile>> + Send>;

/// Decodes a request. Fills in what the call did not know yet.
pub(super) fn prepare(call: &mut Call, head: &Head) -> Result<Box<dyn Prepared>, Hostile> {
    let found = APIS.binary_search_by_key(&head.api, |api| api.key);
    let api = &APIS[found.map_err(|_| Hostile::UnknownApi(head.api.0))?];
    if api.versions.contains(head.version) {
        return (api.prepare)(call, head);
    }
    if api.key == ApiKey::of::<ApiVersionsRequest>() {
        return Ok(Box::new(api_versions::UnknownVersion));
    }
    Err(Hostile::UnknownVersion { api: head.api, version: head.version })
}

fn prepare_of<R: Serve>(call: &mut Call, head: &Head) -> Result<Box<dyn Prepared>, Hostile> {
    let (client_id, body) = head.split(<R as HeaderVersion>::header_version(head.version))?;
    call.client_id = client_id;
    Ok(Box::new(Decoded(decode::<R>(head.version, body)?)))
}

struct Decoded<R>(R);

impl<R: Serve> Prepared for Decoded<R> {
    fn names(&self, core: &Core, call: &Call) -> Vec<(Topic, i32)> {
        self.0.names(core, call)
    }

    fn serve(self: Box<Self>, core: &mut Core, call: Call) -> Result<Served, Hostile> {
        match self.0.serve(core, &call) {
            Step::Answer(answer) => Ok(Served::Frame(frame::<R>(&call, answer)?)),
            Step::Wait(Wait { until, mut poll }) => {
                let poll = move |core: &mut Core, now: Instant| Some(frame::<R>(&call, poll(core, now)?));
                Ok(Served::Waits { until, poll: Box::new(poll) })
            }
            Step::Nothing => Ok(Served::Nothing),
            Step::Close => Ok(Served::Close),
            #[cfg(feature = "sasl")]
            Step::Last(answer) => Ok(Served::Last(frame::<R>(&call, answer)?)),
        }
    }

    fn refuse(self: Box<Self>, core: &mut Core, call: &Call, code: ErrorCode) -> Result<Served, Hostile> {
        Ok(Served::Frame(frame::<R>(call, self.0.refuse(core, call, code))?))
    }

    fn serve_and_refuse(self: Box<Self>, core: &mut Core, call: Call, code: ErrorCode) -> Result<Served, Hostile> {
        let refused = frame::<R>(&call, self.0.clone().refuse(core, &call, code))?;
        Ok(match self.serve(core, call)? {
            Served::Frame(_) => Served::Frame(refused),
            Served::Waits { until, mut poll } => {
                let poll = move |core: &mut Core, now: Instant| Some(poll(core, now)?.map(|_| refused.clone()));
                Served::Waits { until, poll: Box::new(poll) }
            }
            otherwise => otherwise,
        })
    }
}

fn frame<R: Serve>(call: &Call, mut answer: R::Response) -> Result<Bytes, Hostile> {
    if !call.throttle.is_zero() {
        R::throttle(&mut answer, i32::try_from(call.throttle.as_millis()).unwrap_or(i32::MAX));
    }
    encode::<R>(call.version, call.correlation_id, &answer).map_err(Hostile::Unencodable)
}
