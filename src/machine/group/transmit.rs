//! What a member asks its driver to send, and how that fails.

use std::time::Duration;

use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    SyncGroupRequest,
};

use crate::record::NodeId;

/// Names a request; an answer to one that is not waited for any more is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RequestId(pub(super) u64);

/// A request to be sent.
#[derive(Debug)]
pub(crate) struct Transmit {
    pub(crate) id: RequestId,
    pub(crate) request: GroupRequest,
    /// How long the answer may take.
    pub(crate) timeout: Duration,
}

/// What to ask, and whom.
#[derive(Debug)]
pub(crate) enum GroupRequest {
    /// Find the group's coordinator.
    FindCoordinator,
    Join(NodeId, JoinGroupRequest),
    Sync(NodeId, SyncGroupRequest),
    Heartbeat(NodeId, HeartbeatRequest),
    Leave(NodeId, LeaveGroupRequest),
    Describe(NodeId, DescribeGroupsRequest),
    /// All that a member of the consumer protocol says.
    ConsumerHeartbeat(NodeId, ConsumerGroupHeartbeatRequest),
}

/// A request was not answered.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Whether trying again, here or elsewhere, is no use.
    pub(crate) fatal: bool,
    /// Whether nothing was heard of the broker since the request was sent. One that closed the connection had it until
    /// then, and kept the member of a join that it held back.
    pub(crate) silent: bool,
    pub(crate) what: String,
}
