//! The APIs that this client speaks, and the versions it knows of each.

use std::fmt;

use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Message, Request};

/// One of Kafka's APIs, by the key that names it on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApiKey(pub i16);

impl ApiKey {
    /// The API that `R` is the request of.
    pub(crate) const fn of<R: Request>() -> Self {
        Self(R::KEY)
    }

    /// Kafka's name for it, where this client speaks it.
    pub fn name(self) -> Option<&'static str> {
        known(self).map(|api| api.name)
    }

    /// The versions that this client speaks.
    pub fn versions(self) -> Option<VersionRange> {
        known(self).map(|api| api.versions)
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "api {}", self.0),
        }
    }
}

/// Versions of an API, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionRange {
    /// The oldest.
    pub min: i16,
    /// The newest.
    pub max: i16,
}

impl VersionRange {
    /// Whether `version` is one of them.
    pub fn contains(self, version: i16) -> bool {
        (self.min..=self.max).contains(&version)
    }

    /// The newest version that both have.
    pub fn highest_common(self, other: Self) -> Option<i16> {
        let highest = self.max.min(other.max);
        (highest >= self.min.max(other.min)).then_some(highest)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

/// What is known of one API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownApi {
    pub(crate) key: ApiKey,
    pub(crate) name: &'static str,
    pub(crate) versions: VersionRange,
}

fn known(api: ApiKey) -> Option<&'static KnownApi> {
    KNOWN_APIS.binary_search_by_key(&api, |known| known.key).ok().map(|at| &KNOWN_APIS[at])
}

macro_rules! known_apis {
    ($($name:ident: $request:ty,)*) => {
        &[$(KnownApi {
            key: ApiKey::of::<$request>(),
            name: stringify!($name),
            versions: VersionRange {
                min: <$request as Message>::VERSIONS.min,
                max: <$request as Message>::VERSIONS.max,
            },
        },)*]
    };
}

/// Calls a macro with every API that the client uses and its request, by key. The one list of them.
macro_rules! each_api {
    ($with:ident) => {
        $with! {
            Produce: ProduceRequest,
            Fetch: FetchRequest,
            ListOffsets: ListOffsetsRequest,
            Metadata: MetadataRequest,
            OffsetCommit: OffsetCommitRequest,
            OffsetFetch: OffsetFetchRequest,
            FindCoordinator: FindCoordinatorRequest,
            JoinGroup: JoinGroupRequest,
            Heartbeat: HeartbeatRequest,
            LeaveGroup: LeaveGroupRequest,
            SyncGroup: SyncGroupRequest,
            DescribeGroups: DescribeGroupsRequest,
            ListGroups: ListGroupsRequest,
            SaslHandshake: SaslHandshakeRequest,
            ApiVersions: ApiVersionsRequest,
            CreateTopics: CreateTopicsRequest,
            DeleteTopics: DeleteTopicsRequest,
            DeleteRecords: DeleteRecordsRequest,
            InitProducerId: InitProducerIdRequest,
            OffsetForLeaderEpoch: OffsetForLeaderEpochRequest,
            AddPartitionsToTxn: AddPartitionsToTxnRequest,
            AddOffsetsToTxn: AddOffsetsToTxnRequest,
            EndTxn: EndTxnRequest,
            TxnOffsetCommit: TxnOffsetCommitRequest,
            DescribeAcls: DescribeAclsRequest,
            CreateAcls: CreateAclsRequest,
            DeleteAcls: DeleteAclsRequest,
            DescribeConfigs: DescribeConfigsRequest,
            DescribeLogDirs: DescribeLogDirsRequest,
            SaslAuthenticate: SaslAuthenticateRequest,
            CreatePartitions: CreatePartitionsRequest,
            DeleteGroups: DeleteGroupsRequest,
            ElectLeaders: ElectLeadersRequest,
            IncrementalAlterConfigs: IncrementalAlterConfigsRequest,
            AlterPartitionReassignments: AlterPartitionReassignmentsRequest,
            ListPartitionReassignments: ListPartitionReassignmentsRequest,
            OffsetDelete: OffsetDeleteRequest,
            DescribeCluster: DescribeClusterRequest,
            DescribeProducers: DescribeProducersRequest,
            DescribeTransactions: DescribeTransactionsRequest,
            ListTransactions: ListTransactionsRequest,
            ConsumerGroupHeartbeat: ConsumerGroupHeartbeatRequest,
            ConsumerGroupDescribe: ConsumerGroupDescribeRequest,
            GetTelemetrySubscriptions: GetTelemetrySubscriptionsRequest,
            PushTelemetry: PushTelemetryRequest,
            ShareGroupHeartbeat: ShareGroupHeartbeatRequest,
            ShareGroupDescribe: ShareGroupDescribeRequest,
            ShareFetch: crate::protocol::share::ShareFetch,
            ShareAcknowledge: crate::protocol::share::ShareAcknowledge,
        }
    };
}
#[cfg(any(test, fuzzing))]
pub(crate) use each_api;

/// Every API that the client uses, by key. The ranges are those of the request structs, Kafka 4.1's; none is lowered.
/// (Of `OffsetCommit` and `OffsetFetch` the structs know version 9, so offsets go by topic name.) `ShareFetch` and
/// `ShareAcknowledge` have structs of their own, Kafka 4.2's.
pub(crate) const KNOWN_APIS: &[KnownApi] = each_api!(known_apis);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_so_that_every_api_is_found() {
        assert!(KNOWN_APIS.is_sorted_by_key(|api| api.key));
        for api in KNOWN_APIS {
            assert_eq!(api.key.name(), Some(api.name));
            assert_eq!(api.key.versions(), Some(api.versions));
        }
        assert_eq!(ApiKey(7).name(), None);
        assert_eq!(ApiKey(7).to_string(), "api 7");
        assert_eq!(ApiKey(1).to_string(), "Fetch");
    }

    #[test]
    fn the_highest_common_version_is_in_both_ranges() {
        let range = |min, max| VersionRange { min, max };
        assert_eq!(range(4, 18).highest_common(range(0, 12)), Some(12));
        assert_eq!(range(4, 18).highest_common(range(4, 99)), Some(18));
        assert_eq!(range(4, 18).highest_common(range(0, 3)), None);
        assert_eq!(range(4, 18).highest_common(range(19, 20)), None);
        assert_eq!(range(4, 18).highest_common(range(9, 5)), None);
    }
}
