// Written by scripts/shape-table from the message schemas in kafka-clients-4.4.0.jar; not to be edited.
// The schemas are Apache Kafka's, under the Apache License 2.0; see NOTICE.
//! The fields of every response, in the order of the wire.

use super::{Field, Kind::*, Message, NEWEST, Struct};

const fn f(name: &'static str, since: i16, until: i16, kind: super::Kind) -> Field {
    Field::new(name, since, until, kind)
}

/// Every response, by API key.
pub(super) static RESPONSES: &[Message] = &[
    Message { api: 0, min: 3, max: 13, flexible: 9, body: &PRODUCE_RESPONSE },
    Message { api: 1, min: 4, max: 18, flexible: 12, body: &FETCH_RESPONSE },
    Message { api: 2, min: 1, max: 10, flexible: 6, body: &LIST_OFFSETS_RESPONSE },
    Message { api: 3, min: 0, max: 13, flexible: 9, body: &METADATA_RESPONSE },
    Message { api: 8, min: 2, max: 9, flexible: 8, body: &OFFSET_COMMIT_RESPONSE },
    Message { api: 9, min: 1, max: 9, flexible: 6, body: &OFFSET_FETCH_RESPONSE },
    Message { api: 10, min: 0, max: 6, flexible: 3, body: &FIND_COORDINATOR_RESPONSE },
    Message { api: 11, min: 0, max: 9, flexible: 6, body: &JOIN_GROUP_RESPONSE },
    Message { api: 12, min: 0, max: 4, flexible: 4, body: &HEARTBEAT_RESPONSE },
    Message { api: 13, min: 0, max: 5, flexible: 4, body: &LEAVE_GROUP_RESPONSE },
    Message { api: 14, min: 0, max: 5, flexible: 4, body: &SYNC_GROUP_RESPONSE },
    Message { api: 15, min: 0, max: 6, flexible: 5, body: &DESCRIBE_GROUPS_RESPONSE },
    Message { api: 16, min: 0, max: 5, flexible: 3, body: &LIST_GROUPS_RESPONSE },
    Message { api: 17, min: 0, max: 1, flexible: NEWEST, body: &SASL_HANDSHAKE_RESPONSE },
    Message { api: 18, min: 0, max: 4, flexible: 3, body: &API_VERSIONS_RESPONSE },
    Message { api: 19, min: 2, max: 7, flexible: 5, body: &CREATE_TOPICS_RESPONSE },
    Message { api: 20, min: 1, max: 6, flexible: 4, body: &DELETE_TOPICS_RESPONSE },
    Message { api: 21, min: 0, max: 2, flexible: 2, body: &DELETE_RECORDS_RESPONSE },
    Message { api: 22, min: 0, max: 5, flexible: 2, body: &INIT_PRODUCER_ID_RESPONSE },
    Message { api: 23, min: 2, max: 4, flexible: 4, body: &OFFSET_FOR_LEADER_EPOCH_RESPONSE },
    Message { api: 24, min: 0, max: 5, flexible: 3, body: &ADD_PARTITIONS_TO_TXN_RESPONSE },
    Message { api: 25, min: 0, max: 4, flexible: 3, body: &ADD_OFFSETS_TO_TXN_RESPONSE },
    Message { api: 26, min: 0, max: 5, flexible: 3, body: &END_TXN_RESPONSE },
    Message { api: 28, min: 0, max: 5, flexible: 3, body: &TXN_OFFSET_COMMIT_RESPONSE },
    Message { api: 29, min: 1, max: 3, flexible: 2, body: &DESCRIBE_ACLS_RESPONSE },
    Message { api: 30, min: 1, max: 3, flexible: 2, body: &CREATE_ACLS_RESPONSE },
    Message { api: 31, min: 1, max: 3, flexible: 2, body: &DELETE_ACLS_RESPONSE },
    Message { api: 32, min: 1, max: 4, flexible: 4, body: &DESCRIBE_CONFIGS_RESPONSE },
    Message { api: 35, min: 1, max: 4, flexible: 2, body: &DESCRIBE_LOG_DIRS_RESPONSE },
    Message { api: 36, min: 0, max: 2, flexible: 2, body: &SASL_AUTHENTICATE_RESPONSE },
    Message { api: 37, min: 0, max: 3, flexible: 2, body: &CREATE_PARTITIONS_RESPONSE },
    Message { api: 42, min: 0, max: 2, flexible: 2, body: &DELETE_GROUPS_RESPONSE },
    Message { api: 43, min: 0, max: 2, flexible: 2, body: &ELECT_LEADERS_RESPONSE },
    Message { api: 44, min: 0, max: 1, flexible: 1, body: &INCREMENTAL_ALTER_CONFIGS_RESPONSE },
    Message { api: 45, min: 0, max: 1, flexible: 0, body: &ALTER_PARTITION_REASSIGNMENTS_RESPONSE },
    Message { api: 46, min: 0, max: 0, flexible: 0, body: &LIST_PARTITION_REASSIGNMENTS_RESPONSE },
    Message { api: 47, min: 0, max: 0, flexible: NEWEST, body: &OFFSET_DELETE_RESPONSE },
    Message { api: 60, min: 0, max: 2, flexible: 0, body: &DESCRIBE_CLUSTER_RESPONSE },
    Message { api: 61, min: 0, max: 0, flexible: 0, body: &DESCRIBE_PRODUCERS_RESPONSE },
    Message { api: 65, min: 0, max: 0, flexible: 0, body: &DESCRIBE_TRANSACTIONS_RESPONSE },
    Message { api: 66, min: 0, max: 2, flexible: 0, body: &LIST_TRANSACTIONS_RESPONSE },
    Message { api: 68, min: 0, max: 1, flexible: 0, body: &CONSUMER_GROUP_HEARTBEAT_RESPONSE },
    Message { api: 69, min: 0, max: 1, flexible: 0, body: &CONSUMER_GROUP_DESCRIBE_RESPONSE },
    Message { api: 71, min: 0, max: 0, flexible: 0, body: &GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE },
    Message { api: 72, min: 0, max: 0, flexible: 0, body: &PUSH_TELEMETRY_RESPONSE },
    Message { api: 76, min: 1, max: 1, flexible: 0, body: &SHARE_GROUP_HEARTBEAT_RESPONSE },
    Message { api: 77, min: 1, max: 1, flexible: 0, body: &SHARE_GROUP_DESCRIBE_RESPONSE },
    Message { api: 78, min: 1, max: 2, flexible: 0, body: &SHARE_FETCH_RESPONSE },
    Message { api: 79, min: 1, max: 2, flexible: 0, body: &SHARE_ACKNOWLEDGE_RESPONSE },
];

static PRODUCE_RESPONSE: Struct = Struct {
    memory: 84,
    fields: &[
        f("Responses", 0, NEWEST, Array(&Nested(&PRODUCE_RESPONSE_TOPIC_PRODUCE_RESPONSE))),
        f("ThrottleTimeMs", 1, NEWEST, Fixed(4)),
        f("NodeEndpoints", 10, NEWEST, Array(&Nested(&PRODUCE_RESPONSE_NODE_ENDPOINT))).tag(0),
    ],
};
static PRODUCE_RESPONSE_TOPIC_PRODUCE_RESPONSE: Struct = Struct {
    memory: 104,
    fields: &[
        f("Name", 0, 12, Text),
        f("TopicId", 13, NEWEST, Fixed(16)),
        f("PartitionResponses", 0, NEWEST, Array(&Nested(&PRODUCE_RESPONSE_PARTITION_PRODUCE_RESPONSE))),
    ],
};
static PRODUCE_RESPONSE_PARTITION_PRODUCE_RESPONSE: Struct = Struct {
    memory: 166,
    fields: &[
        f("Index", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("BaseOffset", 0, NEWEST, Fixed(8)),
        f("LogAppendTimeMs", 2, NEWEST, Fixed(8)),
        f("LogStartOffset", 5, NEWEST, Fixed(8)),
        f("RecordErrors", 8, NEWEST, Array(&Nested(&PRODUCE_RESPONSE_BATCH_INDEX_AND_ERROR_MESSAGE))),
        f("ErrorMessage", 8, NEWEST, Text).null(8, NEWEST),
        f("CurrentLeader", 10, NEWEST, Nested(&PRODUCE_RESPONSE_LEADER_ID_AND_EPOCH)).tag(0),
    ],
};
static PRODUCE_RESPONSE_BATCH_INDEX_AND_ERROR_MESSAGE: Struct = Struct {
    memory: 68,
    fields: &[f("BatchIndex", 8, NEWEST, Fixed(4)), f("BatchIndexErrorMessage", 8, NEWEST, Text).null(8, NEWEST)],
};
static PRODUCE_RESPONSE_LEADER_ID_AND_EPOCH: Struct =
    Struct { memory: 40, fields: &[f("LeaderId", 10, NEWEST, Fixed(4)), f("LeaderEpoch", 10, NEWEST, Fixed(4))] };
static PRODUCE_RESPONSE_NODE_ENDPOINT: Struct = Struct {
    memory: 104,
    fields: &[
        f("NodeId", 10, NEWEST, Fixed(4)),
        f("Host", 10, NEWEST, Text),
        f("Port", 10, NEWEST, Fixed(4)),
        f("Rack", 10, NEWEST, Text).null(10, NEWEST),
    ],
};

static FETCH_RESPONSE: Struct = Struct {
    memory: 90,
    fields: &[
        f("ThrottleTimeMs", 1, NEWEST, Fixed(4)),
        f("ErrorCode", 7, NEWEST, Fixed(2)),
        f("SessionId", 7, NEWEST, Fixed(4)),
        f("Responses", 0, NEWEST, Array(&Nested(&FETCH_RESPONSE_FETCHABLE_TOPIC_RESPONSE))),
        f("NodeEndpoints", 16, NEWEST, Array(&Nested(&FETCH_RESPONSE_NODE_ENDPOINT))).tag(0),
    ],
};
static FETCH_RESPONSE_FETCHABLE_TOPIC_RESPONSE: Struct = Struct {
    memory: 104,
    fields: &[
        f("Topic", 0, 12, Text),
        f("TopicId", 13, NEWEST, Fixed(16)),
        f("Partitions", 0, NEWEST, Array(&Nested(&FETCH_RESPONSE_PARTITION_DATA))),
    ],
};
static FETCH_RESPONSE_PARTITION_DATA: Struct = Struct {
    memory: 274,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("HighWatermark", 0, NEWEST, Fixed(8)),
        f("LastStableOffset", 4, NEWEST, Fixed(8)),
        f("LogStartOffset", 5, NEWEST, Fixed(8)),
        f("DivergingEpoch", 12, NEWEST, Nested(&FETCH_RESPONSE_EPOCH_END_OFFSET)).tag(0),
        f("CurrentLeader", 12, NEWEST, Nested(&FETCH_RESPONSE_LEADER_ID_AND_EPOCH)).tag(1),
        f("SnapshotId", 12, NEWEST, Nested(&FETCH_RESPONSE_SNAPSHOT_ID)).tag(2),
        f("AbortedTransactions", 4, NEWEST, Array(&Nested(&FETCH_RESPONSE_ABORTED_TRANSACTION))).null(4, NEWEST),
        f("PreferredReadReplica", 11, NEWEST, Fixed(4)),
        f("Records", 0, NEWEST, Bytes).null(0, NEWEST),
    ],
};
static FETCH_RESPONSE_EPOCH_END_OFFSET: Struct =
    Struct { memory: 44, fields: &[f("Epoch", 12, NEWEST, Fixed(4)), f("EndOffset", 12, NEWEST, Fixed(8))] };
static FETCH_RESPONSE_LEADER_ID_AND_EPOCH: Struct =
    Struct { memory: 40, fields: &[f("LeaderId", 12, NEWEST, Fixed(4)), f("LeaderEpoch", 12, NEWEST, Fixed(4))] };
static FETCH_RESPONSE_SNAPSHOT_ID: Struct =
    Struct { memory: 44, fields: &[f("EndOffset", 0, NEWEST, Fixed(8)), f("Epoch", 0, NEWEST, Fixed(4))] };
static FETCH_RESPONSE_ABORTED_TRANSACTION: Struct =
    Struct { memory: 48, fields: &[f("ProducerId", 4, NEWEST, Fixed(8)), f("FirstOffset", 4, NEWEST, Fixed(8))] };
static FETCH_RESPONSE_NODE_ENDPOINT: Struct = Struct {
    memory: 104,
    fields: &[
        f("NodeId", 16, NEWEST, Fixed(4)),
        f("Host", 16, NEWEST, Text),
        f("Port", 16, NEWEST, Fixed(4)),
        f("Rack", 16, NEWEST, Text).null(16, NEWEST),
    ],
};

static LIST_OFFSETS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 2, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&LIST_OFFSETS_RESPONSE_LIST_OFFSETS_TOPIC_RESPONSE))),
    ],
};
static LIST_OFFSETS_RESPONSE_LIST_OFFSETS_TOPIC_RESPONSE: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&LIST_OFFSETS_RESPONSE_LIST_OFFSETS_PARTITION_RESPONSE))),
    ],
};
static LIST_OFFSETS_RESPONSE_LIST_OFFSETS_PARTITION_RESPONSE: Struct = Struct {
    memory: 58,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("Timestamp", 1, NEWEST, Fixed(8)),
        f("Offset", 1, NEWEST, Fixed(8)),
        f("LeaderEpoch", 4, NEWEST, Fixed(4)),
    ],
};

static METADATA_RESPONSE: Struct = Struct {
    memory: 126,
    fields: &[
        f("ThrottleTimeMs", 3, NEWEST, Fixed(4)),
        f("Brokers", 0, NEWEST, Array(&Nested(&METADATA_RESPONSE_METADATA_RESPONSE_BROKER))),
        f("ClusterId", 2, NEWEST, Text).null(2, NEWEST),
        f("ControllerId", 1, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&METADATA_RESPONSE_METADATA_RESPONSE_TOPIC))),
        f("ClusterAuthorizedOperations", 8, 10, Fixed(4)),
        f("ErrorCode", 13, NEWEST, Fixed(2)),
    ],
};
static METADATA_RESPONSE_METADATA_RESPONSE_BROKER: Struct = Struct {
    memory: 104,
    fields: &[
        f("NodeId", 0, NEWEST, Fixed(4)),
        f("Host", 0, NEWEST, Text),
        f("Port", 0, NEWEST, Fixed(4)),
        f("Rack", 1, NEWEST, Text).null(1, NEWEST),
    ],
};
static METADATA_RESPONSE_METADATA_RESPONSE_TOPIC: Struct = Struct {
    memory: 111,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("Name", 0, NEWEST, Text).null(12, NEWEST),
        f("TopicId", 10, NEWEST, Fixed(16)),
        f("IsInternal", 1, NEWEST, Fixed(1)),
        f("Partitions", 0, NEWEST, Array(&Nested(&METADATA_RESPONSE_METADATA_RESPONSE_PARTITION))),
        f("TopicAuthorizedOperations", 8, NEWEST, Fixed(4)),
    ],
};
static METADATA_RESPONSE_METADATA_RESPONSE_PARTITION: Struct = Struct {
    memory: 118,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("LeaderId", 0, NEWEST, Fixed(4)),
        f("LeaderEpoch", 7, NEWEST, Fixed(4)),
        f("ReplicaNodes", 0, NEWEST, Array(&Fixed(4))),
        f("IsrNodes", 0, NEWEST, Array(&Fixed(4))),
        f("OfflineReplicas", 5, NEWEST, Array(&Fixed(4))),
    ],
};

static OFFSET_COMMIT_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 3, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&OFFSET_COMMIT_RESPONSE_OFFSET_COMMIT_RESPONSE_TOPIC))),
    ],
};
static OFFSET_COMMIT_RESPONSE_OFFSET_COMMIT_RESPONSE_TOPIC: Struct = Struct {
    memory: 104,
    fields: &[
        f("Name", 0, 9, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&OFFSET_COMMIT_RESPONSE_OFFSET_COMMIT_RESPONSE_PARTITION))),
    ],
};
static OFFSET_COMMIT_RESPONSE_OFFSET_COMMIT_RESPONSE_PARTITION: Struct =
    Struct { memory: 38, fields: &[f("PartitionIndex", 0, NEWEST, Fixed(4)), f("ErrorCode", 0, NEWEST, Fixed(2))] };

static OFFSET_FETCH_RESPONSE: Struct = Struct {
    memory: 86,
    fields: &[
        f("ThrottleTimeMs", 3, NEWEST, Fixed(4)),
        f("Topics", 0, 7, Array(&Nested(&OFFSET_FETCH_RESPONSE_OFFSET_FETCH_RESPONSE_TOPIC))),
        f("ErrorCode", 2, 7, Fixed(2)),
        f("Groups", 8, NEWEST, Array(&Nested(&OFFSET_FETCH_RESPONSE_OFFSET_FETCH_RESPONSE_GROUP))),
    ],
};
static OFFSET_FETCH_RESPONSE_OFFSET_FETCH_RESPONSE_TOPIC: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, 7, Text),
        f("Partitions", 0, 7, Array(&Nested(&OFFSET_FETCH_RESPONSE_OFFSET_FETCH_RESPONSE_PARTITION))),
    ],
};
static OFFSET_FETCH_RESPONSE_OFFSET_FETCH_RESPONSE_PARTITION: Struct = Struct {
    memory: 82,
    fields: &[
        f("PartitionIndex", 0, 7, Fixed(4)),
        f("CommittedOffset", 0, 7, Fixed(8)),
        f("CommittedLeaderEpoch", 5, 7, Fixed(4)),
        f("Metadata", 0, 7, Text).null(0, 7),
        f("ErrorCode", 0, 7, Fixed(2)),
    ],
};
static OFFSET_FETCH_RESPONSE_OFFSET_FETCH_RESPONSE_GROUP: Struct = Struct {
    memory: 90,
    fields: &[
        f("GroupId", 8, NEWEST, Text),
        f("Topics", 8, NEWEST, Array(&Nested(&OFFSET_FETCH_RESPONSE_OFFSET_FETCH_RESPONSE_TOPICS))),
        f("ErrorCode", 8, NEWEST, Fixed(2)),
    ],
};
static OFFSET_FETCH_RESPONSE_OFFSET_FETCH_RESPONSE_TOPICS: Struct = Struct {
    memory: 104,
    fields: &[
        f("Name", 8, 9, Text),
        f("Partitions", 8, NEWEST, Array(&Nested(&OFFSET_FETCH_RESPONSE_OFFSET_FETCH_RESPONSE_PARTITIONS))),
    ],
};
static OFFSET_FETCH_RESPONSE_OFFSET_FETCH_RESPONSE_PARTITIONS: Struct = Struct {
    memory: 82,
    fields: &[
        f("PartitionIndex", 8, NEWEST, Fixed(4)),
        f("CommittedOffset", 8, NEWEST, Fixed(8)),
        f("CommittedLeaderEpoch", 8, NEWEST, Fixed(4)),
        f("Metadata", 8, NEWEST, Text).null(8, NEWEST),
        f("ErrorCode", 8, NEWEST, Fixed(2)),
    ],
};

static FIND_COORDINATOR_RESPONSE: Struct = Struct {
    memory: 134,
    fields: &[
        f("ThrottleTimeMs", 1, NEWEST, Fixed(4)),
        f("ErrorCode", 0, 3, Fixed(2)),
        f("ErrorMessage", 1, 3, Text).null(1, 3),
        f("NodeId", 0, 3, Fixed(4)),
        f("Host", 0, 3, Text),
        f("Port", 0, 3, Fixed(4)),
        f("Coordinators", 4, NEWEST, Array(&Nested(&FIND_COORDINATOR_RESPONSE_COORDINATOR))),
    ],
};
static FIND_COORDINATOR_RESPONSE_COORDINATOR: Struct = Struct {
    memory: 138,
    fields: &[
        f("Key", 4, NEWEST, Text),
        f("NodeId", 4, NEWEST, Fixed(4)),
        f("Host", 4, NEWEST, Text),
        f("Port", 4, NEWEST, Fixed(4)),
        f("ErrorCode", 4, NEWEST, Fixed(2)),
        f("ErrorMessage", 4, NEWEST, Text).null(4, NEWEST),
    ],
};

static JOIN_GROUP_RESPONSE: Struct = Struct {
    memory: 195,
    fields: &[
        f("ThrottleTimeMs", 2, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("GenerationId", 0, NEWEST, Fixed(4)),
        f("ProtocolType", 7, NEWEST, Text).null(7, NEWEST),
        f("ProtocolName", 0, NEWEST, Text).null(7, NEWEST),
        f("Leader", 0, NEWEST, Text),
        f("SkipAssignment", 9, NEWEST, Fixed(1)),
        f("MemberId", 0, NEWEST, Text),
        f("Members", 0, NEWEST, Array(&Nested(&JOIN_GROUP_RESPONSE_JOIN_GROUP_RESPONSE_MEMBER))),
    ],
};
static JOIN_GROUP_RESPONSE_JOIN_GROUP_RESPONSE_MEMBER: Struct = Struct {
    memory: 128,
    fields: &[
        f("MemberId", 0, NEWEST, Text),
        f("GroupInstanceId", 5, NEWEST, Text).null(5, NEWEST),
        f("Metadata", 0, NEWEST, Bytes),
    ],
};

static HEARTBEAT_RESPONSE: Struct =
    Struct { memory: 38, fields: &[f("ThrottleTimeMs", 1, NEWEST, Fixed(4)), f("ErrorCode", 0, NEWEST, Fixed(2))] };

static LEAVE_GROUP_RESPONSE: Struct = Struct {
    memory: 62,
    fields: &[
        f("ThrottleTimeMs", 1, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("Members", 3, NEWEST, Array(&Nested(&LEAVE_GROUP_RESPONSE_MEMBER_RESPONSE))),
    ],
};
static LEAVE_GROUP_RESPONSE_MEMBER_RESPONSE: Struct = Struct {
    memory: 98,
    fields: &[
        f("MemberId", 3, NEWEST, Text),
        f("GroupInstanceId", 3, NEWEST, Text).null(3, NEWEST),
        f("ErrorCode", 3, NEWEST, Fixed(2)),
    ],
};

static SYNC_GROUP_RESPONSE: Struct = Struct {
    memory: 134,
    fields: &[
        f("ThrottleTimeMs", 1, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ProtocolType", 5, NEWEST, Text).null(5, NEWEST),
        f("ProtocolName", 5, NEWEST, Text).null(5, NEWEST),
        f("Assignment", 0, NEWEST, Bytes),
    ],
};

static DESCRIBE_GROUPS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 1, NEWEST, Fixed(4)),
        f("Groups", 0, NEWEST, Array(&Nested(&DESCRIBE_GROUPS_RESPONSE_DESCRIBED_GROUP))),
    ],
};
static DESCRIBE_GROUPS_RESPONSE_DESCRIBED_GROUP: Struct = Struct {
    memory: 222,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 6, NEWEST, Text).null(6, NEWEST),
        f("GroupId", 0, NEWEST, Text),
        f("GroupState", 0, NEWEST, Text),
        f("ProtocolType", 0, NEWEST, Text),
        f("ProtocolData", 0, NEWEST, Text),
        f("Members", 0, NEWEST, Array(&Nested(&DESCRIBE_GROUPS_RESPONSE_DESCRIBED_GROUP_MEMBER))),
        f("AuthorizedOperations", 3, NEWEST, Fixed(4)),
    ],
};
static DESCRIBE_GROUPS_RESPONSE_DESCRIBED_GROUP_MEMBER: Struct = Struct {
    memory: 224,
    fields: &[
        f("MemberId", 0, NEWEST, Text),
        f("GroupInstanceId", 4, NEWEST, Text).null(4, NEWEST),
        f("ClientId", 0, NEWEST, Text),
        f("ClientHost", 0, NEWEST, Text),
        f("MemberMetadata", 0, NEWEST, Bytes),
        f("MemberAssignment", 0, NEWEST, Bytes),
    ],
};

static LIST_GROUPS_RESPONSE: Struct = Struct {
    memory: 62,
    fields: &[
        f("ThrottleTimeMs", 1, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("Groups", 0, NEWEST, Array(&Nested(&LIST_GROUPS_RESPONSE_LISTED_GROUP))),
    ],
};
static LIST_GROUPS_RESPONSE_LISTED_GROUP: Struct = Struct {
    memory: 160,
    fields: &[
        f("GroupId", 0, NEWEST, Text),
        f("ProtocolType", 0, NEWEST, Text),
        f("GroupState", 4, NEWEST, Text),
        f("GroupType", 5, NEWEST, Text),
    ],
};

static SASL_HANDSHAKE_RESPONSE: Struct =
    Struct { memory: 58, fields: &[f("ErrorCode", 0, NEWEST, Fixed(2)), f("Mechanisms", 0, NEWEST, Array(&Text))] };

static API_VERSIONS_RESPONSE: Struct = Struct {
    memory: 119,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ApiKeys", 0, NEWEST, Array(&Nested(&API_VERSIONS_RESPONSE_API_VERSION))),
        f("ThrottleTimeMs", 1, NEWEST, Fixed(4)),
        f("SupportedFeatures", 3, NEWEST, Array(&Nested(&API_VERSIONS_RESPONSE_SUPPORTED_FEATURE_KEY))).tag(0),
        f("FinalizedFeaturesEpoch", 3, NEWEST, Fixed(8)).tag(1),
        f("FinalizedFeatures", 3, NEWEST, Array(&Nested(&API_VERSIONS_RESPONSE_FINALIZED_FEATURE_KEY))).tag(2),
        f("ZkMigrationReady", 3, NEWEST, Fixed(1)).tag(3),
    ],
};
static API_VERSIONS_RESPONSE_API_VERSION: Struct = Struct {
    memory: 38,
    fields: &[
        f("ApiKey", 0, NEWEST, Fixed(2)),
        f("MinVersion", 0, NEWEST, Fixed(2)),
        f("MaxVersion", 0, NEWEST, Fixed(2)),
    ],
};
static API_VERSIONS_RESPONSE_SUPPORTED_FEATURE_KEY: Struct = Struct {
    memory: 68,
    fields: &[f("Name", 3, NEWEST, Text), f("MinVersion", 3, NEWEST, Fixed(2)), f("MaxVersion", 3, NEWEST, Fixed(2))],
};
static API_VERSIONS_RESPONSE_FINALIZED_FEATURE_KEY: Struct = Struct {
    memory: 68,
    fields: &[
        f("Name", 3, NEWEST, Text),
        f("MaxVersionLevel", 3, NEWEST, Fixed(2)),
        f("MinVersionLevel", 3, NEWEST, Fixed(2)),
    ],
};

static CREATE_TOPICS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 2, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&CREATE_TOPICS_RESPONSE_CREATABLE_TOPIC_RESULT))),
    ],
};
static CREATE_TOPICS_RESPONSE_CREATABLE_TOPIC_RESULT: Struct = Struct {
    memory: 146,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("TopicId", 7, NEWEST, Fixed(16)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 1, NEWEST, Text).null(0, NEWEST),
        f("TopicConfigErrorCode", 5, NEWEST, Fixed(2)).tag(0),
        f("NumPartitions", 5, NEWEST, Fixed(4)),
        f("ReplicationFactor", 5, NEWEST, Fixed(2)),
        f("Configs", 5, NEWEST, Array(&Nested(&CREATE_TOPICS_RESPONSE_CREATABLE_TOPIC_CONFIGS))).null(5, NEWEST),
    ],
};
static CREATE_TOPICS_RESPONSE_CREATABLE_TOPIC_CONFIGS: Struct = Struct {
    memory: 99,
    fields: &[
        f("Name", 5, NEWEST, Text),
        f("Value", 5, NEWEST, Text).null(5, NEWEST),
        f("ReadOnly", 5, NEWEST, Fixed(1)),
        f("ConfigSource", 5, NEWEST, Fixed(1)),
        f("IsSensitive", 5, NEWEST, Fixed(1)),
    ],
};

static DELETE_TOPICS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 1, NEWEST, Fixed(4)),
        f("Responses", 0, NEWEST, Array(&Nested(&DELETE_TOPICS_RESPONSE_DELETABLE_TOPIC_RESULT))),
    ],
};
static DELETE_TOPICS_RESPONSE_DELETABLE_TOPIC_RESULT: Struct = Struct {
    memory: 114,
    fields: &[
        f("Name", 0, NEWEST, Text).null(6, NEWEST),
        f("TopicId", 6, NEWEST, Fixed(16)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 5, NEWEST, Text).null(5, NEWEST),
    ],
};

static DELETE_RECORDS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&DELETE_RECORDS_RESPONSE_DELETE_RECORDS_TOPIC_RESULT))),
    ],
};
static DELETE_RECORDS_RESPONSE_DELETE_RECORDS_TOPIC_RESULT: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&DELETE_RECORDS_RESPONSE_DELETE_RECORDS_PARTITION_RESULT))),
    ],
};
static DELETE_RECORDS_RESPONSE_DELETE_RECORDS_PARTITION_RESULT: Struct = Struct {
    memory: 46,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("LowWatermark", 0, NEWEST, Fixed(8)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
    ],
};

static INIT_PRODUCER_ID_RESPONSE: Struct = Struct {
    memory: 58,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ProducerId", 0, NEWEST, Fixed(8)),
        f("ProducerEpoch", 0, NEWEST, Fixed(2)),
    ],
};

static OFFSET_FOR_LEADER_EPOCH_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 2, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&OFFSET_FOR_LEADER_EPOCH_RESPONSE_OFFSET_FOR_LEADER_TOPIC_RESULT))),
    ],
};
static OFFSET_FOR_LEADER_EPOCH_RESPONSE_OFFSET_FOR_LEADER_TOPIC_RESULT: Struct = Struct {
    memory: 88,
    fields: &[
        f("Topic", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&OFFSET_FOR_LEADER_EPOCH_RESPONSE_EPOCH_END_OFFSET))),
    ],
};
static OFFSET_FOR_LEADER_EPOCH_RESPONSE_EPOCH_END_OFFSET: Struct = Struct {
    memory: 50,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("Partition", 0, NEWEST, Fixed(4)),
        f("LeaderEpoch", 1, NEWEST, Fixed(4)),
        f("EndOffset", 0, NEWEST, Fixed(8)),
    ],
};

static ADD_PARTITIONS_TO_TXN_RESPONSE: Struct = Struct {
    memory: 86,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 4, NEWEST, Fixed(2)),
        f(
            "ResultsByTransaction",
            4,
            NEWEST,
            Array(&Nested(&ADD_PARTITIONS_TO_TXN_RESPONSE_ADD_PARTITIONS_TO_TXN_RESULT)),
        ),
        f(
            "ResultsByTopicV3AndBelow",
            0,
            3,
            Array(&Nested(&ADD_PARTITIONS_TO_TXN_RESPONSE_ADD_PARTITIONS_TO_TXN_TOPIC_RESULT)),
        ),
    ],
};
static ADD_PARTITIONS_TO_TXN_RESPONSE_ADD_PARTITIONS_TO_TXN_RESULT: Struct = Struct {
    memory: 88,
    fields: &[
        f("TransactionalId", 4, NEWEST, Text),
        f(
            "TopicResults",
            4,
            NEWEST,
            Array(&Nested(&ADD_PARTITIONS_TO_TXN_RESPONSE_ADD_PARTITIONS_TO_TXN_TOPIC_RESULT)),
        ),
    ],
};
static ADD_PARTITIONS_TO_TXN_RESPONSE_ADD_PARTITIONS_TO_TXN_TOPIC_RESULT: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f(
            "ResultsByPartition",
            0,
            NEWEST,
            Array(&Nested(&ADD_PARTITIONS_TO_TXN_RESPONSE_ADD_PARTITIONS_TO_TXN_PARTITION_RESULT)),
        ),
    ],
};
static ADD_PARTITIONS_TO_TXN_RESPONSE_ADD_PARTITIONS_TO_TXN_PARTITION_RESULT: Struct = Struct {
    memory: 38,
    fields: &[f("PartitionIndex", 0, NEWEST, Fixed(4)), f("PartitionErrorCode", 0, NEWEST, Fixed(2))],
};

static ADD_OFFSETS_TO_TXN_RESPONSE: Struct =
    Struct { memory: 38, fields: &[f("ThrottleTimeMs", 0, NEWEST, Fixed(4)), f("ErrorCode", 0, NEWEST, Fixed(2))] };

static END_TXN_RESPONSE: Struct = Struct {
    memory: 48,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ProducerId", 5, NEWEST, Fixed(8)),
        f("ProducerEpoch", 5, NEWEST, Fixed(2)),
    ],
};

static TXN_OFFSET_COMMIT_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&TXN_OFFSET_COMMIT_RESPONSE_TXN_OFFSET_COMMIT_RESPONSE_TOPIC))),
    ],
};
static TXN_OFFSET_COMMIT_RESPONSE_TXN_OFFSET_COMMIT_RESPONSE_TOPIC: Struct = Struct {
    memory: 104,
    fields: &[
        f("Name", 0, 5, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&TXN_OFFSET_COMMIT_RESPONSE_TXN_OFFSET_COMMIT_RESPONSE_PARTITION))),
    ],
};
static TXN_OFFSET_COMMIT_RESPONSE_TXN_OFFSET_COMMIT_RESPONSE_PARTITION: Struct =
    Struct { memory: 38, fields: &[f("PartitionIndex", 0, NEWEST, Fixed(4)), f("ErrorCode", 0, NEWEST, Fixed(2))] };

static DESCRIBE_ACLS_RESPONSE: Struct = Struct {
    memory: 94,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("Resources", 0, NEWEST, Array(&Nested(&DESCRIBE_ACLS_RESPONSE_DESCRIBE_ACLS_RESOURCE))),
    ],
};
static DESCRIBE_ACLS_RESPONSE_DESCRIBE_ACLS_RESOURCE: Struct = Struct {
    memory: 90,
    fields: &[
        f("ResourceType", 0, NEWEST, Fixed(1)),
        f("ResourceName", 0, NEWEST, Text),
        f("PatternType", 1, NEWEST, Fixed(1)),
        f("Acls", 0, NEWEST, Array(&Nested(&DESCRIBE_ACLS_RESPONSE_ACL_DESCRIPTION))),
    ],
};
static DESCRIBE_ACLS_RESPONSE_ACL_DESCRIPTION: Struct = Struct {
    memory: 98,
    fields: &[
        f("Principal", 0, NEWEST, Text),
        f("Host", 0, NEWEST, Text),
        f("Operation", 0, NEWEST, Fixed(1)),
        f("PermissionType", 0, NEWEST, Fixed(1)),
    ],
};

static CREATE_ACLS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Results", 0, NEWEST, Array(&Nested(&CREATE_ACLS_RESPONSE_ACL_CREATION_RESULT))),
    ],
};
static CREATE_ACLS_RESPONSE_ACL_CREATION_RESULT: Struct = Struct {
    memory: 66,
    fields: &[f("ErrorCode", 0, NEWEST, Fixed(2)), f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST)],
};

static DELETE_ACLS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("FilterResults", 0, NEWEST, Array(&Nested(&DELETE_ACLS_RESPONSE_DELETE_ACLS_FILTER_RESULT))),
    ],
};
static DELETE_ACLS_RESPONSE_DELETE_ACLS_FILTER_RESULT: Struct = Struct {
    memory: 90,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("MatchingAcls", 0, NEWEST, Array(&Nested(&DELETE_ACLS_RESPONSE_DELETE_ACLS_MATCHING_ACL))),
    ],
};
static DELETE_ACLS_RESPONSE_DELETE_ACLS_MATCHING_ACL: Struct = Struct {
    memory: 166,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("ResourceType", 0, NEWEST, Fixed(1)),
        f("ResourceName", 0, NEWEST, Text),
        f("PatternType", 1, NEWEST, Fixed(1)),
        f("Principal", 0, NEWEST, Text),
        f("Host", 0, NEWEST, Text),
        f("Operation", 0, NEWEST, Fixed(1)),
        f("PermissionType", 0, NEWEST, Fixed(1)),
    ],
};

static DESCRIBE_CONFIGS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Results", 0, NEWEST, Array(&Nested(&DESCRIBE_CONFIGS_RESPONSE_DESCRIBE_CONFIGS_RESULT))),
    ],
};
static DESCRIBE_CONFIGS_RESPONSE_DESCRIBE_CONFIGS_RESULT: Struct = Struct {
    memory: 123,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("ResourceType", 0, NEWEST, Fixed(1)),
        f("ResourceName", 0, NEWEST, Text),
        f("Configs", 0, NEWEST, Array(&Nested(&DESCRIBE_CONFIGS_RESPONSE_DESCRIBE_CONFIGS_RESOURCE_RESULT))),
    ],
};
static DESCRIBE_CONFIGS_RESPONSE_DESCRIBE_CONFIGS_RESOURCE_RESULT: Struct = Struct {
    memory: 156,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Value", 0, NEWEST, Text).null(0, NEWEST),
        f("ReadOnly", 0, NEWEST, Fixed(1)),
        f("ConfigSource", 1, NEWEST, Fixed(1)),
        f("IsSensitive", 0, NEWEST, Fixed(1)),
        f("Synonyms", 1, NEWEST, Array(&Nested(&DESCRIBE_CONFIGS_RESPONSE_DESCRIBE_CONFIGS_SYNONYM))),
        f("ConfigType", 3, NEWEST, Fixed(1)),
        f("Documentation", 3, NEWEST, Text).null(0, NEWEST),
    ],
};
static DESCRIBE_CONFIGS_RESPONSE_DESCRIBE_CONFIGS_SYNONYM: Struct = Struct {
    memory: 97,
    fields: &[
        f("Name", 1, NEWEST, Text),
        f("Value", 1, NEWEST, Text).null(0, NEWEST),
        f("Source", 1, NEWEST, Fixed(1)),
    ],
};

static DESCRIBE_LOG_DIRS_RESPONSE: Struct = Struct {
    memory: 62,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 3, NEWEST, Fixed(2)),
        f("Results", 0, NEWEST, Array(&Nested(&DESCRIBE_LOG_DIRS_RESPONSE_DESCRIBE_LOG_DIRS_RESULT))),
    ],
};
static DESCRIBE_LOG_DIRS_RESPONSE_DESCRIBE_LOG_DIRS_RESULT: Struct = Struct {
    memory: 107,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("LogDir", 0, NEWEST, Text),
        f("Topics", 0, NEWEST, Array(&Nested(&DESCRIBE_LOG_DIRS_RESPONSE_DESCRIBE_LOG_DIRS_TOPIC))),
        f("TotalBytes", 4, NEWEST, Fixed(8)),
        f("UsableBytes", 4, NEWEST, Fixed(8)),
    ],
};
static DESCRIBE_LOG_DIRS_RESPONSE_DESCRIBE_LOG_DIRS_TOPIC: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&DESCRIBE_LOG_DIRS_RESPONSE_DESCRIBE_LOG_DIRS_PARTITION))),
    ],
};
static DESCRIBE_LOG_DIRS_RESPONSE_DESCRIBE_LOG_DIRS_PARTITION: Struct = Struct {
    memory: 53,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("PartitionSize", 0, NEWEST, Fixed(8)),
        f("OffsetLag", 0, NEWEST, Fixed(8)),
        f("IsFutureKey", 0, NEWEST, Fixed(1)),
    ],
};

static SASL_AUTHENTICATE_RESPONSE: Struct = Struct {
    memory: 106,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("AuthBytes", 0, NEWEST, Bytes),
        f("SessionLifetimeMs", 1, NEWEST, Fixed(8)),
    ],
};

static CREATE_PARTITIONS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Results", 0, NEWEST, Array(&Nested(&CREATE_PARTITIONS_RESPONSE_CREATE_PARTITIONS_TOPIC_RESULT))),
    ],
};
static CREATE_PARTITIONS_RESPONSE_CREATE_PARTITIONS_TOPIC_RESULT: Struct = Struct {
    memory: 98,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
    ],
};

static DELETE_GROUPS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Results", 0, NEWEST, Array(&Nested(&DELETE_GROUPS_RESPONSE_DELETABLE_GROUP_RESULT))),
    ],
};
static DELETE_GROUPS_RESPONSE_DELETABLE_GROUP_RESULT: Struct =
    Struct { memory: 98, fields: &[f("GroupId", 0, NEWEST, Text), f("ErrorCode", 0, NEWEST, Fixed(2))] };

static ELECT_LEADERS_RESPONSE: Struct = Struct {
    memory: 62,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 1, NEWEST, Fixed(2)),
        f("ReplicaElectionResults", 0, NEWEST, Array(&Nested(&ELECT_LEADERS_RESPONSE_REPLICA_ELECTION_RESULT))),
    ],
};
static ELECT_LEADERS_RESPONSE_REPLICA_ELECTION_RESULT: Struct = Struct {
    memory: 88,
    fields: &[
        f("Topic", 0, NEWEST, Text),
        f("PartitionResult", 0, NEWEST, Array(&Nested(&ELECT_LEADERS_RESPONSE_PARTITION_RESULT))),
    ],
};
static ELECT_LEADERS_RESPONSE_PARTITION_RESULT: Struct = Struct {
    memory: 70,
    fields: &[
        f("PartitionId", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
    ],
};

static INCREMENTAL_ALTER_CONFIGS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Responses", 0, NEWEST, Array(&Nested(&INCREMENTAL_ALTER_CONFIGS_RESPONSE_ALTER_CONFIGS_RESOURCE_RESPONSE))),
    ],
};
static INCREMENTAL_ALTER_CONFIGS_RESPONSE_ALTER_CONFIGS_RESOURCE_RESPONSE: Struct = Struct {
    memory: 99,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("ResourceType", 0, NEWEST, Fixed(1)),
        f("ResourceName", 0, NEWEST, Text),
    ],
};

static ALTER_PARTITION_REASSIGNMENTS_RESPONSE: Struct = Struct {
    memory: 95,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("AllowReplicationFactorChange", 1, NEWEST, Fixed(1)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("Responses", 0, NEWEST, Array(&Nested(&ALTER_PARTITION_REASSIGNMENTS_RESPONSE_REASSIGNABLE_TOPIC_RESPONSE))),
    ],
};
static ALTER_PARTITION_REASSIGNMENTS_RESPONSE_REASSIGNABLE_TOPIC_RESPONSE: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f(
            "Partitions",
            0,
            NEWEST,
            Array(&Nested(&ALTER_PARTITION_REASSIGNMENTS_RESPONSE_REASSIGNABLE_PARTITION_RESPONSE)),
        ),
    ],
};
static ALTER_PARTITION_REASSIGNMENTS_RESPONSE_REASSIGNABLE_PARTITION_RESPONSE: Struct = Struct {
    memory: 70,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
    ],
};

static LIST_PARTITION_REASSIGNMENTS_RESPONSE: Struct = Struct {
    memory: 94,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("Topics", 0, NEWEST, Array(&Nested(&LIST_PARTITION_REASSIGNMENTS_RESPONSE_ONGOING_TOPIC_REASSIGNMENT))),
    ],
};
static LIST_PARTITION_REASSIGNMENTS_RESPONSE_ONGOING_TOPIC_REASSIGNMENT: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f(
            "Partitions",
            0,
            NEWEST,
            Array(&Nested(&LIST_PARTITION_REASSIGNMENTS_RESPONSE_ONGOING_PARTITION_REASSIGNMENT)),
        ),
    ],
};
static LIST_PARTITION_REASSIGNMENTS_RESPONSE_ONGOING_PARTITION_REASSIGNMENT: Struct = Struct {
    memory: 108,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("Replicas", 0, NEWEST, Array(&Fixed(4))),
        f("AddingReplicas", 0, NEWEST, Array(&Fixed(4))),
        f("RemovingReplicas", 0, NEWEST, Array(&Fixed(4))),
    ],
};

static OFFSET_DELETE_RESPONSE: Struct = Struct {
    memory: 62,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&OFFSET_DELETE_RESPONSE_OFFSET_DELETE_RESPONSE_TOPIC))),
    ],
};
static OFFSET_DELETE_RESPONSE_OFFSET_DELETE_RESPONSE_TOPIC: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&OFFSET_DELETE_RESPONSE_OFFSET_DELETE_RESPONSE_PARTITION))),
    ],
};
static OFFSET_DELETE_RESPONSE_OFFSET_DELETE_RESPONSE_PARTITION: Struct =
    Struct { memory: 38, fields: &[f("PartitionIndex", 0, NEWEST, Fixed(4)), f("ErrorCode", 0, NEWEST, Fixed(2))] };

static DESCRIBE_CLUSTER_RESPONSE: Struct = Struct {
    memory: 135,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("EndpointType", 1, NEWEST, Fixed(1)),
        f("ClusterId", 0, NEWEST, Text),
        f("ControllerId", 0, NEWEST, Fixed(4)),
        f("Brokers", 0, NEWEST, Array(&Nested(&DESCRIBE_CLUSTER_RESPONSE_DESCRIBE_CLUSTER_BROKER))),
        f("ClusterAuthorizedOperations", 0, NEWEST, Fixed(4)),
    ],
};
static DESCRIBE_CLUSTER_RESPONSE_DESCRIBE_CLUSTER_BROKER: Struct = Struct {
    memory: 105,
    fields: &[
        f("BrokerId", 0, NEWEST, Fixed(4)),
        f("Host", 0, NEWEST, Text),
        f("Port", 0, NEWEST, Fixed(4)),
        f("Rack", 0, NEWEST, Text).null(0, NEWEST),
        f("IsFenced", 2, NEWEST, Fixed(1)),
    ],
};

static DESCRIBE_PRODUCERS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&DESCRIBE_PRODUCERS_RESPONSE_TOPIC_RESPONSE))),
    ],
};
static DESCRIBE_PRODUCERS_RESPONSE_TOPIC_RESPONSE: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&DESCRIBE_PRODUCERS_RESPONSE_PARTITION_RESPONSE))),
    ],
};
static DESCRIBE_PRODUCERS_RESPONSE_PARTITION_RESPONSE: Struct = Struct {
    memory: 94,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("ActiveProducers", 0, NEWEST, Array(&Nested(&DESCRIBE_PRODUCERS_RESPONSE_PRODUCER_STATE))),
    ],
};
static DESCRIBE_PRODUCERS_RESPONSE_PRODUCER_STATE: Struct = Struct {
    memory: 68,
    fields: &[
        f("ProducerId", 0, NEWEST, Fixed(8)),
        f("ProducerEpoch", 0, NEWEST, Fixed(4)),
        f("LastSequence", 0, NEWEST, Fixed(4)),
        f("LastTimestamp", 0, NEWEST, Fixed(8)),
        f("CoordinatorEpoch", 0, NEWEST, Fixed(4)),
        f("CurrentTxnStartOffset", 0, NEWEST, Fixed(8)),
    ],
};

static DESCRIBE_TRANSACTIONS_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("TransactionStates", 0, NEWEST, Array(&Nested(&DESCRIBE_TRANSACTIONS_RESPONSE_TRANSACTION_STATE))),
    ],
};
static DESCRIBE_TRANSACTIONS_RESPONSE_TRANSACTION_STATE: Struct = Struct {
    memory: 144,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("TransactionalId", 0, NEWEST, Text),
        f("TransactionState", 0, NEWEST, Text),
        f("TransactionTimeoutMs", 0, NEWEST, Fixed(4)),
        f("TransactionStartTimeMs", 0, NEWEST, Fixed(8)),
        f("ProducerId", 0, NEWEST, Fixed(8)),
        f("ProducerEpoch", 0, NEWEST, Fixed(2)),
        f("Topics", 0, NEWEST, Array(&Nested(&DESCRIBE_TRANSACTIONS_RESPONSE_TOPIC_DATA))),
    ],
};
static DESCRIBE_TRANSACTIONS_RESPONSE_TOPIC_DATA: Struct =
    Struct { memory: 88, fields: &[f("Topic", 0, NEWEST, Text), f("Partitions", 0, NEWEST, Array(&Fixed(4)))] };

static LIST_TRANSACTIONS_RESPONSE: Struct = Struct {
    memory: 86,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("UnknownStateFilters", 0, NEWEST, Array(&Text)),
        f("TransactionStates", 0, NEWEST, Array(&Nested(&LIST_TRANSACTIONS_RESPONSE_TRANSACTION_STATE))),
    ],
};
static LIST_TRANSACTIONS_RESPONSE_TRANSACTION_STATE: Struct = Struct {
    memory: 104,
    fields: &[
        f("TransactionalId", 0, NEWEST, Text),
        f("ProducerId", 0, NEWEST, Fixed(8)),
        f("TransactionState", 0, NEWEST, Text),
    ],
};

static CONSUMER_GROUP_HEARTBEAT_RESPONSE: Struct = Struct {
    memory: 174,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("MemberId", 0, NEWEST, Text).null(0, NEWEST),
        f("MemberEpoch", 0, NEWEST, Fixed(4)),
        f("HeartbeatIntervalMs", 0, NEWEST, Fixed(4)),
        f("Assignment", 0, NEWEST, Nested(&CONSUMER_GROUP_HEARTBEAT_RESPONSE_ASSIGNMENT)).null(0, NEWEST),
    ],
};
static CONSUMER_GROUP_HEARTBEAT_RESPONSE_ASSIGNMENT: Struct = Struct {
    memory: 56,
    fields: &[f("TopicPartitions", 0, NEWEST, Array(&Nested(&CONSUMER_GROUP_HEARTBEAT_RESPONSE_TOPIC_PARTITIONS)))],
};
static CONSUMER_GROUP_HEARTBEAT_RESPONSE_TOPIC_PARTITIONS: Struct =
    Struct { memory: 72, fields: &[f("TopicId", 0, NEWEST, Fixed(16)), f("Partitions", 0, NEWEST, Array(&Fixed(4)))] };

static CONSUMER_GROUP_DESCRIBE_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Groups", 0, NEWEST, Array(&Nested(&CONSUMER_GROUP_DESCRIBE_RESPONSE_DESCRIBED_GROUP))),
    ],
};
static CONSUMER_GROUP_DESCRIBE_RESPONSE_DESCRIBED_GROUP: Struct = Struct {
    memory: 198,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("GroupId", 0, NEWEST, Text),
        f("GroupState", 0, NEWEST, Text),
        f("GroupEpoch", 0, NEWEST, Fixed(4)),
        f("AssignmentEpoch", 0, NEWEST, Fixed(4)),
        f("AssignorName", 0, NEWEST, Text),
        f("Members", 0, NEWEST, Array(&Nested(&CONSUMER_GROUP_DESCRIBE_RESPONSE_MEMBER))),
        f("AuthorizedOperations", 0, NEWEST, Fixed(4)),
    ],
};
static CONSUMER_GROUP_DESCRIBE_RESPONSE_MEMBER: Struct = Struct {
    memory: 381,
    fields: &[
        f("MemberId", 0, NEWEST, Text),
        f("InstanceId", 0, NEWEST, Text).null(0, NEWEST),
        f("RackId", 0, NEWEST, Text).null(0, NEWEST),
        f("MemberEpoch", 0, NEWEST, Fixed(4)),
        f("ClientId", 0, NEWEST, Text),
        f("ClientHost", 0, NEWEST, Text),
        f("SubscribedTopicNames", 0, NEWEST, Array(&Text)),
        f("SubscribedTopicRegex", 0, NEWEST, Text).null(0, NEWEST),
        f("Assignment", 0, NEWEST, Nested(&CONSUMER_GROUP_DESCRIBE_RESPONSE_ASSIGNMENT)),
        f("TargetAssignment", 0, NEWEST, Nested(&CONSUMER_GROUP_DESCRIBE_RESPONSE_ASSIGNMENT)),
        f("MemberType", 1, NEWEST, Fixed(1)),
    ],
};
static CONSUMER_GROUP_DESCRIBE_RESPONSE_ASSIGNMENT: Struct = Struct {
    memory: 56,
    fields: &[f("TopicPartitions", 0, NEWEST, Array(&Nested(&CONSUMER_GROUP_DESCRIBE_RESPONSE_TOPIC_PARTITIONS)))],
};
static CONSUMER_GROUP_DESCRIBE_RESPONSE_TOPIC_PARTITIONS: Struct = Struct {
    memory: 104,
    fields: &[
        f("TopicId", 0, NEWEST, Fixed(16)),
        f("TopicName", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Fixed(4))),
    ],
};

static GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE: Struct = Struct {
    memory: 115,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ClientInstanceId", 0, NEWEST, Fixed(16)),
        f("SubscriptionId", 0, NEWEST, Fixed(4)),
        f("AcceptedCompressionTypes", 0, NEWEST, Array(&Fixed(1))),
        f("PushIntervalMs", 0, NEWEST, Fixed(4)),
        f("TelemetryMaxBytes", 0, NEWEST, Fixed(4)),
        f("DeltaTemporality", 0, NEWEST, Fixed(1)),
        f("RequestedMetrics", 0, NEWEST, Array(&Text)),
    ],
};

static PUSH_TELEMETRY_RESPONSE: Struct =
    Struct { memory: 38, fields: &[f("ThrottleTimeMs", 0, NEWEST, Fixed(4)), f("ErrorCode", 0, NEWEST, Fixed(2))] };

static SHARE_GROUP_HEARTBEAT_RESPONSE: Struct = Struct {
    memory: 174,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("MemberId", 0, NEWEST, Text).null(0, NEWEST),
        f("MemberEpoch", 0, NEWEST, Fixed(4)),
        f("HeartbeatIntervalMs", 0, NEWEST, Fixed(4)),
        f("Assignment", 0, NEWEST, Nested(&SHARE_GROUP_HEARTBEAT_RESPONSE_ASSIGNMENT)).null(0, NEWEST),
    ],
};
static SHARE_GROUP_HEARTBEAT_RESPONSE_ASSIGNMENT: Struct = Struct {
    memory: 56,
    fields: &[f("TopicPartitions", 0, NEWEST, Array(&Nested(&SHARE_GROUP_HEARTBEAT_RESPONSE_TOPIC_PARTITIONS)))],
};
static SHARE_GROUP_HEARTBEAT_RESPONSE_TOPIC_PARTITIONS: Struct =
    Struct { memory: 72, fields: &[f("TopicId", 0, NEWEST, Fixed(16)), f("Partitions", 0, NEWEST, Array(&Fixed(4)))] };

static SHARE_GROUP_DESCRIBE_RESPONSE: Struct = Struct {
    memory: 60,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("Groups", 0, NEWEST, Array(&Nested(&SHARE_GROUP_DESCRIBE_RESPONSE_DESCRIBED_GROUP))),
    ],
};
static SHARE_GROUP_DESCRIBE_RESPONSE_DESCRIBED_GROUP: Struct = Struct {
    memory: 198,
    fields: &[
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("GroupId", 0, NEWEST, Text),
        f("GroupState", 0, NEWEST, Text),
        f("GroupEpoch", 0, NEWEST, Fixed(4)),
        f("AssignmentEpoch", 0, NEWEST, Fixed(4)),
        f("AssignorName", 0, NEWEST, Text),
        f("Members", 0, NEWEST, Array(&Nested(&SHARE_GROUP_DESCRIBE_RESPONSE_MEMBER))),
        f("AuthorizedOperations", 0, NEWEST, Fixed(4)),
    ],
};
static SHARE_GROUP_DESCRIBE_RESPONSE_MEMBER: Struct = Struct {
    memory: 252,
    fields: &[
        f("MemberId", 0, NEWEST, Text),
        f("RackId", 0, NEWEST, Text).null(0, NEWEST),
        f("MemberEpoch", 0, NEWEST, Fixed(4)),
        f("ClientId", 0, NEWEST, Text),
        f("ClientHost", 0, NEWEST, Text),
        f("SubscribedTopicNames", 0, NEWEST, Array(&Text)),
        f("Assignment", 0, NEWEST, Nested(&SHARE_GROUP_DESCRIBE_RESPONSE_ASSIGNMENT)),
    ],
};
static SHARE_GROUP_DESCRIBE_RESPONSE_ASSIGNMENT: Struct = Struct {
    memory: 56,
    fields: &[f("TopicPartitions", 0, NEWEST, Array(&Nested(&SHARE_GROUP_DESCRIBE_RESPONSE_TOPIC_PARTITIONS)))],
};
static SHARE_GROUP_DESCRIBE_RESPONSE_TOPIC_PARTITIONS: Struct = Struct {
    memory: 104,
    fields: &[
        f("TopicId", 0, NEWEST, Fixed(16)),
        f("TopicName", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Fixed(4))),
    ],
};

static SHARE_FETCH_RESPONSE: Struct = Struct {
    memory: 122,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("AcquisitionLockTimeoutMs", 1, NEWEST, Fixed(4)),
        f("Responses", 0, NEWEST, Array(&Nested(&SHARE_FETCH_RESPONSE_SHARE_FETCHABLE_TOPIC_RESPONSE))),
        f("NodeEndpoints", 0, NEWEST, Array(&Nested(&SHARE_FETCH_RESPONSE_NODE_ENDPOINT))),
    ],
};
static SHARE_FETCH_RESPONSE_SHARE_FETCHABLE_TOPIC_RESPONSE: Struct = Struct {
    memory: 72,
    fields: &[
        f("TopicId", 0, NEWEST, Fixed(16)),
        f("Partitions", 0, NEWEST, Array(&Nested(&SHARE_FETCH_RESPONSE_PARTITION_DATA))),
    ],
};
static SHARE_FETCH_RESPONSE_PARTITION_DATA: Struct = Struct {
    memory: 208,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("AcknowledgeErrorCode", 0, NEWEST, Fixed(2)),
        f("AcknowledgeErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("CurrentLeader", 0, NEWEST, Nested(&SHARE_FETCH_RESPONSE_LEADER_ID_AND_EPOCH)),
        f("Records", 0, NEWEST, Bytes).null(0, 0),
        f("AcquiredRecords", 0, NEWEST, Array(&Nested(&SHARE_FETCH_RESPONSE_ACQUIRED_RECORDS))),
    ],
};
static SHARE_FETCH_RESPONSE_LEADER_ID_AND_EPOCH: Struct =
    Struct { memory: 40, fields: &[f("LeaderId", 0, NEWEST, Fixed(4)), f("LeaderEpoch", 0, NEWEST, Fixed(4))] };
static SHARE_FETCH_RESPONSE_ACQUIRED_RECORDS: Struct = Struct {
    memory: 50,
    fields: &[
        f("FirstOffset", 0, NEWEST, Fixed(8)),
        f("LastOffset", 0, NEWEST, Fixed(8)),
        f("DeliveryCount", 0, NEWEST, Fixed(2)),
    ],
};
static SHARE_FETCH_RESPONSE_NODE_ENDPOINT: Struct = Struct {
    memory: 104,
    fields: &[
        f("NodeId", 0, NEWEST, Fixed(4)),
        f("Host", 0, NEWEST, Text),
        f("Port", 0, NEWEST, Fixed(4)),
        f("Rack", 0, NEWEST, Text).null(0, NEWEST),
    ],
};

static SHARE_ACKNOWLEDGE_RESPONSE: Struct = Struct {
    memory: 122,
    fields: &[
        f("ThrottleTimeMs", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("AcquisitionLockTimeoutMs", 2, NEWEST, Fixed(4)),
        f("Responses", 0, NEWEST, Array(&Nested(&SHARE_ACKNOWLEDGE_RESPONSE_SHARE_ACKNOWLEDGE_TOPIC_RESPONSE))),
        f("NodeEndpoints", 0, NEWEST, Array(&Nested(&SHARE_ACKNOWLEDGE_RESPONSE_NODE_ENDPOINT))),
    ],
};
static SHARE_ACKNOWLEDGE_RESPONSE_SHARE_ACKNOWLEDGE_TOPIC_RESPONSE: Struct = Struct {
    memory: 72,
    fields: &[
        f("TopicId", 0, NEWEST, Fixed(16)),
        f("Partitions", 0, NEWEST, Array(&Nested(&SHARE_ACKNOWLEDGE_RESPONSE_PARTITION_DATA))),
    ],
};
static SHARE_ACKNOWLEDGE_RESPONSE_PARTITION_DATA: Struct = Struct {
    memory: 118,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("ErrorCode", 0, NEWEST, Fixed(2)),
        f("ErrorMessage", 0, NEWEST, Text).null(0, NEWEST),
        f("CurrentLeader", 0, NEWEST, Nested(&SHARE_ACKNOWLEDGE_RESPONSE_LEADER_ID_AND_EPOCH)),
    ],
};
static SHARE_ACKNOWLEDGE_RESPONSE_LEADER_ID_AND_EPOCH: Struct =
    Struct { memory: 40, fields: &[f("LeaderId", 0, NEWEST, Fixed(4)), f("LeaderEpoch", 0, NEWEST, Fixed(4))] };
static SHARE_ACKNOWLEDGE_RESPONSE_NODE_ENDPOINT: Struct = Struct {
    memory: 104,
    fields: &[
        f("NodeId", 0, NEWEST, Fixed(4)),
        f("Host", 0, NEWEST, Text),
        f("Port", 0, NEWEST, Fixed(4)),
        f("Rack", 0, NEWEST, Text).null(0, NEWEST),
    ],
};
