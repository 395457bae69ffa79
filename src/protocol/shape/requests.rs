// Written by scripts/shape-table from the message schemas in kafka-clients-4.4.0.jar; not to be edited.
// The schemas are Apache Kafka's, under the Apache License 2.0; see NOTICE.
//! The fields of every request, in the order of the wire.

use super::{Field, Kind::*, Message, NEWEST, Struct};

const fn f(name: &'static str, since: i16, until: i16, kind: super::Kind) -> Field {
    Field::new(name, since, until, kind)
}

/// Every request, by API key.
pub(super) static REQUESTS: &[Message] = &[
    Message { api: 0, min: 3, max: 13, flexible: 9, body: &PRODUCE_REQUEST },
    Message { api: 1, min: 4, max: 18, flexible: 12, body: &FETCH_REQUEST },
    Message { api: 2, min: 1, max: 10, flexible: 6, body: &LIST_OFFSETS_REQUEST },
    Message { api: 3, min: 0, max: 13, flexible: 9, body: &METADATA_REQUEST },
    Message { api: 8, min: 2, max: 9, flexible: 8, body: &OFFSET_COMMIT_REQUEST },
    Message { api: 9, min: 1, max: 9, flexible: 6, body: &OFFSET_FETCH_REQUEST },
    Message { api: 10, min: 0, max: 6, flexible: 3, body: &FIND_COORDINATOR_REQUEST },
    Message { api: 11, min: 0, max: 9, flexible: 6, body: &JOIN_GROUP_REQUEST },
    Message { api: 12, min: 0, max: 4, flexible: 4, body: &HEARTBEAT_REQUEST },
    Message { api: 13, min: 0, max: 5, flexible: 4, body: &LEAVE_GROUP_REQUEST },
    Message { api: 14, min: 0, max: 5, flexible: 4, body: &SYNC_GROUP_REQUEST },
    Message { api: 15, min: 0, max: 6, flexible: 5, body: &DESCRIBE_GROUPS_REQUEST },
    Message { api: 16, min: 0, max: 5, flexible: 3, body: &LIST_GROUPS_REQUEST },
    Message { api: 17, min: 0, max: 1, flexible: NEWEST, body: &SASL_HANDSHAKE_REQUEST },
    Message { api: 18, min: 0, max: 4, flexible: 3, body: &API_VERSIONS_REQUEST },
    Message { api: 19, min: 2, max: 7, flexible: 5, body: &CREATE_TOPICS_REQUEST },
    Message { api: 20, min: 1, max: 6, flexible: 4, body: &DELETE_TOPICS_REQUEST },
    Message { api: 21, min: 0, max: 2, flexible: 2, body: &DELETE_RECORDS_REQUEST },
    Message { api: 22, min: 0, max: 5, flexible: 2, body: &INIT_PRODUCER_ID_REQUEST },
    Message { api: 23, min: 2, max: 4, flexible: 4, body: &OFFSET_FOR_LEADER_EPOCH_REQUEST },
    Message { api: 24, min: 0, max: 5, flexible: 3, body: &ADD_PARTITIONS_TO_TXN_REQUEST },
    Message { api: 25, min: 0, max: 4, flexible: 3, body: &ADD_OFFSETS_TO_TXN_REQUEST },
    Message { api: 26, min: 0, max: 5, flexible: 3, body: &END_TXN_REQUEST },
    Message { api: 28, min: 0, max: 5, flexible: 3, body: &TXN_OFFSET_COMMIT_REQUEST },
    Message { api: 29, min: 1, max: 3, flexible: 2, body: &DESCRIBE_ACLS_REQUEST },
    Message { api: 30, min: 1, max: 3, flexible: 2, body: &CREATE_ACLS_REQUEST },
    Message { api: 31, min: 1, max: 3, flexible: 2, body: &DELETE_ACLS_REQUEST },
    Message { api: 32, min: 1, max: 4, flexible: 4, body: &DESCRIBE_CONFIGS_REQUEST },
    Message { api: 35, min: 1, max: 4, flexible: 2, body: &DESCRIBE_LOG_DIRS_REQUEST },
    Message { api: 36, min: 0, max: 2, flexible: 2, body: &SASL_AUTHENTICATE_REQUEST },
    Message { api: 37, min: 0, max: 3, flexible: 2, body: &CREATE_PARTITIONS_REQUEST },
    Message { api: 42, min: 0, max: 2, flexible: 2, body: &DELETE_GROUPS_REQUEST },
    Message { api: 43, min: 0, max: 2, flexible: 2, body: &ELECT_LEADERS_REQUEST },
    Message { api: 44, min: 0, max: 1, flexible: 1, body: &INCREMENTAL_ALTER_CONFIGS_REQUEST },
    Message { api: 45, min: 0, max: 1, flexible: 0, body: &ALTER_PARTITION_REASSIGNMENTS_REQUEST },
    Message { api: 46, min: 0, max: 0, flexible: 0, body: &LIST_PARTITION_REASSIGNMENTS_REQUEST },
    Message { api: 47, min: 0, max: 0, flexible: NEWEST, body: &OFFSET_DELETE_REQUEST },
    Message { api: 60, min: 0, max: 2, flexible: 0, body: &DESCRIBE_CLUSTER_REQUEST },
    Message { api: 61, min: 0, max: 0, flexible: 0, body: &DESCRIBE_PRODUCERS_REQUEST },
    Message { api: 65, min: 0, max: 0, flexible: 0, body: &DESCRIBE_TRANSACTIONS_REQUEST },
    Message { api: 66, min: 0, max: 2, flexible: 0, body: &LIST_TRANSACTIONS_REQUEST },
    Message { api: 68, min: 0, max: 1, flexible: 0, body: &CONSUMER_GROUP_HEARTBEAT_REQUEST },
    Message { api: 69, min: 0, max: 1, flexible: 0, body: &CONSUMER_GROUP_DESCRIBE_REQUEST },
    Message { api: 71, min: 0, max: 0, flexible: 0, body: &GET_TELEMETRY_SUBSCRIPTIONS_REQUEST },
    Message { api: 72, min: 0, max: 0, flexible: 0, body: &PUSH_TELEMETRY_REQUEST },
    Message { api: 76, min: 1, max: 1, flexible: 0, body: &SHARE_GROUP_HEARTBEAT_REQUEST },
    Message { api: 77, min: 1, max: 1, flexible: 0, body: &SHARE_GROUP_DESCRIBE_REQUEST },
    Message { api: 78, min: 1, max: 2, flexible: 0, body: &SHARE_FETCH_REQUEST },
    Message { api: 79, min: 1, max: 2, flexible: 0, body: &SHARE_ACKNOWLEDGE_REQUEST },
];

static PRODUCE_REQUEST: Struct = Struct {
    memory: 94,
    fields: &[
        f("TransactionalId", 3, NEWEST, Text).null(3, NEWEST),
        f("Acks", 0, NEWEST, Fixed(2)),
        f("TimeoutMs", 0, NEWEST, Fixed(4)),
        f("TopicData", 0, NEWEST, Array(&Nested(&PRODUCE_REQUEST_TOPIC_PRODUCE_DATA))),
    ],
};
static PRODUCE_REQUEST_TOPIC_PRODUCE_DATA: Struct = Struct {
    memory: 104,
    fields: &[
        f("Name", 0, 12, Text),
        f("TopicId", 13, NEWEST, Fixed(16)),
        f("PartitionData", 0, NEWEST, Array(&Nested(&PRODUCE_REQUEST_PARTITION_PRODUCE_DATA))),
    ],
};
static PRODUCE_REQUEST_PARTITION_PRODUCE_DATA: Struct =
    Struct { memory: 68, fields: &[f("Index", 0, NEWEST, Fixed(4)), f("Records", 0, NEWEST, Bytes).null(0, NEWEST)] };

static FETCH_REQUEST: Struct = Struct {
    memory: 221,
    fields: &[
        f("ClusterId", 12, NEWEST, Text).null(12, NEWEST).tag(0),
        f("ReplicaId", 0, 14, Fixed(4)),
        f("ReplicaState", 15, NEWEST, Nested(&FETCH_REQUEST_REPLICA_STATE)).tag(1),
        f("MaxWaitMs", 0, NEWEST, Fixed(4)),
        f("MinBytes", 0, NEWEST, Fixed(4)),
        f("MaxBytes", 3, NEWEST, Fixed(4)),
        f("IsolationLevel", 4, NEWEST, Fixed(1)),
        f("SessionId", 7, NEWEST, Fixed(4)),
        f("SessionEpoch", 7, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&FETCH_REQUEST_FETCH_TOPIC))),
        f("ForgottenTopicsData", 7, NEWEST, Array(&Nested(&FETCH_REQUEST_FORGOTTEN_TOPIC))),
        f("RackId", 11, NEWEST, Text),
    ],
};
static FETCH_REQUEST_REPLICA_STATE: Struct =
    Struct { memory: 44, fields: &[f("ReplicaId", 15, NEWEST, Fixed(4)), f("ReplicaEpoch", 15, NEWEST, Fixed(8))] };
static FETCH_REQUEST_FETCH_TOPIC: Struct = Struct {
    memory: 104,
    fields: &[
        f("Topic", 0, 12, Text),
        f("TopicId", 13, NEWEST, Fixed(16)),
        f("Partitions", 0, NEWEST, Array(&Nested(&FETCH_REQUEST_FETCH_PARTITION))),
    ],
};
static FETCH_REQUEST_FETCH_PARTITION: Struct = Struct {
    memory: 88,
    fields: &[
        f("Partition", 0, NEWEST, Fixed(4)),
        f("CurrentLeaderEpoch", 9, NEWEST, Fixed(4)),
        f("FetchOffset", 0, NEWEST, Fixed(8)),
        f("LastFetchedEpoch", 12, NEWEST, Fixed(4)),
        f("LogStartOffset", 5, NEWEST, Fixed(8)),
        f("PartitionMaxBytes", 0, NEWEST, Fixed(4)),
        f("ReplicaDirectoryId", 17, NEWEST, Fixed(16)).tag(0),
        f("HighWatermark", 18, NEWEST, Fixed(8)).tag(1),
    ],
};
static FETCH_REQUEST_FORGOTTEN_TOPIC: Struct = Struct {
    memory: 104,
    fields: &[
        f("Topic", 7, 12, Text),
        f("TopicId", 13, NEWEST, Fixed(16)),
        f("Partitions", 7, NEWEST, Array(&Fixed(4))),
    ],
};

static LIST_OFFSETS_REQUEST: Struct = Struct {
    memory: 65,
    fields: &[
        f("ReplicaId", 0, NEWEST, Fixed(4)),
        f("IsolationLevel", 2, NEWEST, Fixed(1)),
        f("Topics", 0, NEWEST, Array(&Nested(&LIST_OFFSETS_REQUEST_LIST_OFFSETS_TOPIC))),
        f("TimeoutMs", 10, NEWEST, Fixed(4)),
    ],
};
static LIST_OFFSETS_REQUEST_LIST_OFFSETS_TOPIC: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&LIST_OFFSETS_REQUEST_LIST_OFFSETS_PARTITION))),
    ],
};
static LIST_OFFSETS_REQUEST_LIST_OFFSETS_PARTITION: Struct = Struct {
    memory: 48,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("CurrentLeaderEpoch", 4, NEWEST, Fixed(4)),
        f("Timestamp", 0, NEWEST, Fixed(8)),
    ],
};

static METADATA_REQUEST: Struct = Struct {
    memory: 59,
    fields: &[
        f("Topics", 0, NEWEST, Array(&Nested(&METADATA_REQUEST_METADATA_REQUEST_TOPIC))).null(1, NEWEST),
        f("AllowAutoTopicCreation", 4, NEWEST, Fixed(1)),
        f("IncludeClusterAuthorizedOperations", 8, 10, Fixed(1)),
        f("IncludeTopicAuthorizedOperations", 8, NEWEST, Fixed(1)),
    ],
};
static METADATA_REQUEST_METADATA_REQUEST_TOPIC: Struct =
    Struct { memory: 80, fields: &[f("TopicId", 10, NEWEST, Fixed(16)), f("Name", 0, NEWEST, Text).null(10, NEWEST)] };

static OFFSET_COMMIT_REQUEST: Struct = Struct {
    memory: 164,
    fields: &[
        f("GroupId", 0, NEWEST, Text),
        f("GenerationIdOrMemberEpoch", 1, NEWEST, Fixed(4)),
        f("MemberId", 1, NEWEST, Text),
        f("GroupInstanceId", 7, NEWEST, Text).null(7, NEWEST),
        f("RetentionTimeMs", 2, 4, Fixed(8)),
        f("Topics", 0, NEWEST, Array(&Nested(&OFFSET_COMMIT_REQUEST_OFFSET_COMMIT_REQUEST_TOPIC))),
    ],
};
static OFFSET_COMMIT_REQUEST_OFFSET_COMMIT_REQUEST_TOPIC: Struct = Struct {
    memory: 104,
    fields: &[
        f("Name", 0, 9, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&OFFSET_COMMIT_REQUEST_OFFSET_COMMIT_REQUEST_PARTITION))),
    ],
};
static OFFSET_COMMIT_REQUEST_OFFSET_COMMIT_REQUEST_PARTITION: Struct = Struct {
    memory: 80,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("CommittedOffset", 0, NEWEST, Fixed(8)),
        f("CommittedLeaderEpoch", 6, NEWEST, Fixed(4)),
        f("CommittedMetadata", 0, NEWEST, Text).null(0, NEWEST),
    ],
};

static OFFSET_FETCH_REQUEST: Struct = Struct {
    memory: 113,
    fields: &[
        f("GroupId", 0, 7, Text),
        f("Topics", 0, 7, Array(&Nested(&OFFSET_FETCH_REQUEST_OFFSET_FETCH_REQUEST_TOPIC))).null(2, 7),
        f("Groups", 8, NEWEST, Array(&Nested(&OFFSET_FETCH_REQUEST_OFFSET_FETCH_REQUEST_GROUP))),
        f("RequireStable", 7, NEWEST, Fixed(1)),
    ],
};
static OFFSET_FETCH_REQUEST_OFFSET_FETCH_REQUEST_TOPIC: Struct =
    Struct { memory: 88, fields: &[f("Name", 0, 7, Text), f("PartitionIndexes", 0, 7, Array(&Fixed(4)))] };
static OFFSET_FETCH_REQUEST_OFFSET_FETCH_REQUEST_GROUP: Struct = Struct {
    memory: 124,
    fields: &[
        f("GroupId", 8, NEWEST, Text),
        f("MemberId", 9, NEWEST, Text).null(9, NEWEST),
        f("MemberEpoch", 9, NEWEST, Fixed(4)),
        f("Topics", 8, NEWEST, Array(&Nested(&OFFSET_FETCH_REQUEST_OFFSET_FETCH_REQUEST_TOPICS))).null(8, NEWEST),
    ],
};
static OFFSET_FETCH_REQUEST_OFFSET_FETCH_REQUEST_TOPICS: Struct =
    Struct { memory: 104, fields: &[f("Name", 8, 9, Text), f("PartitionIndexes", 8, NEWEST, Array(&Fixed(4)))] };

static FIND_COORDINATOR_REQUEST: Struct = Struct {
    memory: 89,
    fields: &[f("Key", 0, 3, Text), f("KeyType", 1, NEWEST, Fixed(1)), f("CoordinatorKeys", 4, NEWEST, Array(&Text))],
};

static JOIN_GROUP_REQUEST: Struct = Struct {
    memory: 224,
    fields: &[
        f("GroupId", 0, NEWEST, Text),
        f("SessionTimeoutMs", 0, NEWEST, Fixed(4)),
        f("RebalanceTimeoutMs", 1, NEWEST, Fixed(4)),
        f("MemberId", 0, NEWEST, Text),
        f("GroupInstanceId", 5, NEWEST, Text).null(5, NEWEST),
        f("ProtocolType", 0, NEWEST, Text),
        f("Protocols", 0, NEWEST, Array(&Nested(&JOIN_GROUP_REQUEST_JOIN_GROUP_REQUEST_PROTOCOL))),
        f("Reason", 8, NEWEST, Text).null(8, NEWEST),
    ],
};
static JOIN_GROUP_REQUEST_JOIN_GROUP_REQUEST_PROTOCOL: Struct =
    Struct { memory: 96, fields: &[f("Name", 0, NEWEST, Text), f("Metadata", 0, NEWEST, Bytes)] };

static HEARTBEAT_REQUEST: Struct = Struct {
    memory: 132,
    fields: &[
        f("GroupId", 0, NEWEST, Text),
        f("GenerationId", 0, NEWEST, Fixed(4)),
        f("MemberId", 0, NEWEST, Text),
        f("GroupInstanceId", 3, NEWEST, Text).null(3, NEWEST),
    ],
};

static LEAVE_GROUP_REQUEST: Struct = Struct {
    memory: 120,
    fields: &[
        f("GroupId", 0, NEWEST, Text),
        f("MemberId", 0, 2, Text),
        f("Members", 3, NEWEST, Array(&Nested(&LEAVE_GROUP_REQUEST_MEMBER_IDENTITY))),
    ],
};
static LEAVE_GROUP_REQUEST_MEMBER_IDENTITY: Struct = Struct {
    memory: 128,
    fields: &[
        f("MemberId", 3, NEWEST, Text),
        f("GroupInstanceId", 3, NEWEST, Text).null(3, NEWEST),
        f("Reason", 5, NEWEST, Text).null(5, NEWEST),
    ],
};

static SYNC_GROUP_REQUEST: Struct = Struct {
    memory: 220,
    fields: &[
        f("GroupId", 0, NEWEST, Text),
        f("GenerationId", 0, NEWEST, Fixed(4)),
        f("MemberId", 0, NEWEST, Text),
        f("GroupInstanceId", 3, NEWEST, Text).null(3, NEWEST),
        f("ProtocolType", 5, NEWEST, Text).null(5, NEWEST),
        f("ProtocolName", 5, NEWEST, Text).null(5, NEWEST),
        f("Assignments", 0, NEWEST, Array(&Nested(&SYNC_GROUP_REQUEST_SYNC_GROUP_REQUEST_ASSIGNMENT))),
    ],
};
static SYNC_GROUP_REQUEST_SYNC_GROUP_REQUEST_ASSIGNMENT: Struct =
    Struct { memory: 96, fields: &[f("MemberId", 0, NEWEST, Text), f("Assignment", 0, NEWEST, Bytes)] };

static DESCRIBE_GROUPS_REQUEST: Struct = Struct {
    memory: 57,
    fields: &[f("Groups", 0, NEWEST, Array(&Text)), f("IncludeAuthorizedOperations", 3, NEWEST, Fixed(1))],
};

static LIST_GROUPS_REQUEST: Struct = Struct {
    memory: 80,
    fields: &[f("StatesFilter", 4, NEWEST, Array(&Text)), f("TypesFilter", 5, NEWEST, Array(&Text))],
};

static SASL_HANDSHAKE_REQUEST: Struct = Struct { memory: 64, fields: &[f("Mechanism", 0, NEWEST, Text)] };

static API_VERSIONS_REQUEST: Struct = Struct {
    memory: 132,
    fields: &[f("ClientSoftwareName", 3, NEWEST, Text), f("ClientSoftwareVersion", 3, NEWEST, Text)],
};

static CREATE_TOPICS_REQUEST: Struct = Struct {
    memory: 61,
    fields: &[
        f("Topics", 0, NEWEST, Array(&Nested(&CREATE_TOPICS_REQUEST_CREATABLE_TOPIC))),
        f("timeoutMs", 0, NEWEST, Fixed(4)),
        f("validateOnly", 1, NEWEST, Fixed(1)),
    ],
};
static CREATE_TOPICS_REQUEST_CREATABLE_TOPIC: Struct = Struct {
    memory: 118,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("NumPartitions", 0, NEWEST, Fixed(4)),
        f("ReplicationFactor", 0, NEWEST, Fixed(2)),
        f("Assignments", 0, NEWEST, Array(&Nested(&CREATE_TOPICS_REQUEST_CREATABLE_REPLICA_ASSIGNMENT))),
        f("Configs", 0, NEWEST, Array(&Nested(&CREATE_TOPICS_REQUEST_CREATABLE_TOPIC_CONFIG))),
    ],
};
static CREATE_TOPICS_REQUEST_CREATABLE_REPLICA_ASSIGNMENT: Struct = Struct {
    memory: 60,
    fields: &[f("PartitionIndex", 0, NEWEST, Fixed(4)), f("BrokerIds", 0, NEWEST, Array(&Fixed(4)))],
};
static CREATE_TOPICS_REQUEST_CREATABLE_TOPIC_CONFIG: Struct =
    Struct { memory: 96, fields: &[f("Name", 0, NEWEST, Text), f("Value", 0, NEWEST, Text).null(0, NEWEST)] };

static DELETE_TOPICS_REQUEST: Struct = Struct {
    memory: 84,
    fields: &[
        f("Topics", 6, NEWEST, Array(&Nested(&DELETE_TOPICS_REQUEST_DELETE_TOPIC_STATE))),
        f("TopicNames", 0, 5, Array(&Text)),
        f("TimeoutMs", 0, NEWEST, Fixed(4)),
    ],
};
static DELETE_TOPICS_REQUEST_DELETE_TOPIC_STATE: Struct =
    Struct { memory: 80, fields: &[f("Name", 6, NEWEST, Text).null(6, NEWEST), f("TopicId", 6, NEWEST, Fixed(16))] };

static DELETE_RECORDS_REQUEST: Struct = Struct {
    memory: 60,
    fields: &[
        f("Topics", 0, NEWEST, Array(&Nested(&DELETE_RECORDS_REQUEST_DELETE_RECORDS_TOPIC))),
        f("TimeoutMs", 0, NEWEST, Fixed(4)),
    ],
};
static DELETE_RECORDS_REQUEST_DELETE_RECORDS_TOPIC: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&DELETE_RECORDS_REQUEST_DELETE_RECORDS_PARTITION))),
    ],
};
static DELETE_RECORDS_REQUEST_DELETE_RECORDS_PARTITION: Struct =
    Struct { memory: 44, fields: &[f("PartitionIndex", 0, NEWEST, Fixed(4)), f("Offset", 0, NEWEST, Fixed(8))] };

static INIT_PRODUCER_ID_REQUEST: Struct = Struct {
    memory: 80,
    fields: &[
        f("TransactionalId", 0, NEWEST, Text).null(0, NEWEST),
        f("TransactionTimeoutMs", 0, NEWEST, Fixed(4)),
        f("ProducerId", 3, NEWEST, Fixed(8)),
        f("ProducerEpoch", 3, NEWEST, Fixed(2)),
    ],
};

static OFFSET_FOR_LEADER_EPOCH_REQUEST: Struct = Struct {
    memory: 60,
    fields: &[
        f("ReplicaId", 3, NEWEST, Fixed(4)),
        f("Topics", 0, NEWEST, Array(&Nested(&OFFSET_FOR_LEADER_EPOCH_REQUEST_OFFSET_FOR_LEADER_TOPIC))),
    ],
};
static OFFSET_FOR_LEADER_EPOCH_REQUEST_OFFSET_FOR_LEADER_TOPIC: Struct = Struct {
    memory: 88,
    fields: &[
        f("Topic", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&OFFSET_FOR_LEADER_EPOCH_REQUEST_OFFSET_FOR_LEADER_PARTITION))),
    ],
};
static OFFSET_FOR_LEADER_EPOCH_REQUEST_OFFSET_FOR_LEADER_PARTITION: Struct = Struct {
    memory: 44,
    fields: &[
        f("Partition", 0, NEWEST, Fixed(4)),
        f("CurrentLeaderEpoch", 2, NEWEST, Fixed(4)),
        f("LeaderEpoch", 0, NEWEST, Fixed(4)),
    ],
};

static ADD_PARTITIONS_TO_TXN_REQUEST: Struct = Struct {
    memory: 122,
    fields: &[
        f("Transactions", 4, NEWEST, Array(&Nested(&ADD_PARTITIONS_TO_TXN_REQUEST_ADD_PARTITIONS_TO_TXN_TRANSACTION))),
        f("V3AndBelowTransactionalId", 0, 3, Text),
        f("V3AndBelowProducerId", 0, 3, Fixed(8)),
        f("V3AndBelowProducerEpoch", 0, 3, Fixed(2)),
        f("V3AndBelowTopics", 0, 3, Array(&Nested(&ADD_PARTITIONS_TO_TXN_REQUEST_ADD_PARTITIONS_TO_TXN_TOPIC))),
    ],
};
static ADD_PARTITIONS_TO_TXN_REQUEST_ADD_PARTITIONS_TO_TXN_TRANSACTION: Struct = Struct {
    memory: 99,
    fields: &[
        f("TransactionalId", 4, NEWEST, Text),
        f("ProducerId", 4, NEWEST, Fixed(8)),
        f("ProducerEpoch", 4, NEWEST, Fixed(2)),
        f("VerifyOnly", 4, NEWEST, Fixed(1)),
        f("Topics", 4, NEWEST, Array(&Nested(&ADD_PARTITIONS_TO_TXN_REQUEST_ADD_PARTITIONS_TO_TXN_TOPIC))),
    ],
};
static ADD_PARTITIONS_TO_TXN_REQUEST_ADD_PARTITIONS_TO_TXN_TOPIC: Struct =
    Struct { memory: 88, fields: &[f("Name", 0, NEWEST, Text), f("Partitions", 0, NEWEST, Array(&Fixed(4)))] };

static ADD_OFFSETS_TO_TXN_REQUEST: Struct = Struct {
    memory: 106,
    fields: &[
        f("TransactionalId", 0, NEWEST, Text),
        f("ProducerId", 0, NEWEST, Fixed(8)),
        f("ProducerEpoch", 0, NEWEST, Fixed(2)),
        f("GroupId", 0, NEWEST, Text),
    ],
};

static END_TXN_REQUEST: Struct = Struct {
    memory: 75,
    fields: &[
        f("TransactionalId", 0, NEWEST, Text),
        f("ProducerId", 0, NEWEST, Fixed(8)),
        f("ProducerEpoch", 0, NEWEST, Fixed(2)),
        f("Committed", 0, NEWEST, Fixed(1)),
    ],
};

static TXN_OFFSET_COMMIT_REQUEST: Struct = Struct {
    memory: 198,
    fields: &[
        f("TransactionalId", 0, NEWEST, Text),
        f("GroupId", 0, NEWEST, Text),
        f("ProducerId", 0, NEWEST, Fixed(8)),
        f("ProducerEpoch", 0, NEWEST, Fixed(2)),
        f("GenerationIdOrMemberEpoch", 3, NEWEST, Fixed(4)),
        f("MemberId", 3, NEWEST, Text),
        f("GroupInstanceId", 3, NEWEST, Text).null(3, NEWEST),
        f("Topics", 0, NEWEST, Array(&Nested(&TXN_OFFSET_COMMIT_REQUEST_TXN_OFFSET_COMMIT_REQUEST_TOPIC))),
    ],
};
static TXN_OFFSET_COMMIT_REQUEST_TXN_OFFSET_COMMIT_REQUEST_TOPIC: Struct = Struct {
    memory: 104,
    fields: &[
        f("Name", 0, 5, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&TXN_OFFSET_COMMIT_REQUEST_TXN_OFFSET_COMMIT_REQUEST_PARTITION))),
    ],
};
static TXN_OFFSET_COMMIT_REQUEST_TXN_OFFSET_COMMIT_REQUEST_PARTITION: Struct = Struct {
    memory: 80,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("CommittedOffset", 0, NEWEST, Fixed(8)),
        f("CommittedLeaderEpoch", 2, NEWEST, Fixed(4)),
        f("CommittedMetadata", 0, NEWEST, Text).null(0, NEWEST),
    ],
};

static DESCRIBE_ACLS_REQUEST: Struct = Struct {
    memory: 132,
    fields: &[
        f("ResourceTypeFilter", 0, NEWEST, Fixed(1)),
        f("ResourceNameFilter", 0, NEWEST, Text).null(0, NEWEST),
        f("PatternTypeFilter", 1, NEWEST, Fixed(1)),
        f("PrincipalFilter", 0, NEWEST, Text).null(0, NEWEST),
        f("HostFilter", 0, NEWEST, Text).null(0, NEWEST),
        f("Operation", 0, NEWEST, Fixed(1)),
        f("PermissionType", 0, NEWEST, Fixed(1)),
    ],
};

static CREATE_ACLS_REQUEST: Struct =
    Struct { memory: 56, fields: &[f("Creations", 0, NEWEST, Array(&Nested(&CREATE_ACLS_REQUEST_ACL_CREATION)))] };
static CREATE_ACLS_REQUEST_ACL_CREATION: Struct = Struct {
    memory: 132,
    fields: &[
        f("ResourceType", 0, NEWEST, Fixed(1)),
        f("ResourceName", 0, NEWEST, Text),
        f("ResourcePatternType", 1, NEWEST, Fixed(1)),
        f("Principal", 0, NEWEST, Text),
        f("Host", 0, NEWEST, Text),
        f("Operation", 0, NEWEST, Fixed(1)),
        f("PermissionType", 0, NEWEST, Fixed(1)),
    ],
};

static DELETE_ACLS_REQUEST: Struct =
    Struct { memory: 56, fields: &[f("Filters", 0, NEWEST, Array(&Nested(&DELETE_ACLS_REQUEST_DELETE_ACLS_FILTER)))] };
static DELETE_ACLS_REQUEST_DELETE_ACLS_FILTER: Struct = Struct {
    memory: 132,
    fields: &[
        f("ResourceTypeFilter", 0, NEWEST, Fixed(1)),
        f("ResourceNameFilter", 0, NEWEST, Text).null(0, NEWEST),
        f("PatternTypeFilter", 1, NEWEST, Fixed(1)),
        f("PrincipalFilter", 0, NEWEST, Text).null(0, NEWEST),
        f("HostFilter", 0, NEWEST, Text).null(0, NEWEST),
        f("Operation", 0, NEWEST, Fixed(1)),
        f("PermissionType", 0, NEWEST, Fixed(1)),
    ],
};

static DESCRIBE_CONFIGS_REQUEST: Struct = Struct {
    memory: 58,
    fields: &[
        f("Resources", 0, NEWEST, Array(&Nested(&DESCRIBE_CONFIGS_REQUEST_DESCRIBE_CONFIGS_RESOURCE))),
        f("IncludeSynonyms", 1, NEWEST, Fixed(1)),
        f("IncludeDocumentation", 3, NEWEST, Fixed(1)),
    ],
};
static DESCRIBE_CONFIGS_REQUEST_DESCRIBE_CONFIGS_RESOURCE: Struct = Struct {
    memory: 89,
    fields: &[
        f("ResourceType", 0, NEWEST, Fixed(1)),
        f("ResourceName", 0, NEWEST, Text),
        f("ConfigurationKeys", 0, NEWEST, Array(&Text)).null(0, NEWEST),
    ],
};

static DESCRIBE_LOG_DIRS_REQUEST: Struct = Struct {
    memory: 56,
    fields: &[
        f("Topics", 0, NEWEST, Array(&Nested(&DESCRIBE_LOG_DIRS_REQUEST_DESCRIBABLE_LOG_DIR_TOPIC))).null(0, NEWEST)
    ],
};
static DESCRIBE_LOG_DIRS_REQUEST_DESCRIBABLE_LOG_DIR_TOPIC: Struct =
    Struct { memory: 88, fields: &[f("Topic", 0, NEWEST, Text), f("Partitions", 0, NEWEST, Array(&Fixed(4)))] };

static SASL_AUTHENTICATE_REQUEST: Struct = Struct { memory: 64, fields: &[f("AuthBytes", 0, NEWEST, Bytes)] };

static CREATE_PARTITIONS_REQUEST: Struct = Struct {
    memory: 61,
    fields: &[
        f("Topics", 0, NEWEST, Array(&Nested(&CREATE_PARTITIONS_REQUEST_CREATE_PARTITIONS_TOPIC))),
        f("TimeoutMs", 0, NEWEST, Fixed(4)),
        f("ValidateOnly", 0, NEWEST, Fixed(1)),
    ],
};
static CREATE_PARTITIONS_REQUEST_CREATE_PARTITIONS_TOPIC: Struct = Struct {
    memory: 92,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Count", 0, NEWEST, Fixed(4)),
        f("Assignments", 0, NEWEST, Array(&Nested(&CREATE_PARTITIONS_REQUEST_CREATE_PARTITIONS_ASSIGNMENT)))
            .null(0, NEWEST),
    ],
};
static CREATE_PARTITIONS_REQUEST_CREATE_PARTITIONS_ASSIGNMENT: Struct =
    Struct { memory: 56, fields: &[f("BrokerIds", 0, NEWEST, Array(&Fixed(4)))] };

static DELETE_GROUPS_REQUEST: Struct = Struct { memory: 56, fields: &[f("GroupsNames", 0, NEWEST, Array(&Text))] };

static ELECT_LEADERS_REQUEST: Struct = Struct {
    memory: 61,
    fields: &[
        f("ElectionType", 1, NEWEST, Fixed(1)),
        f("TopicPartitions", 0, NEWEST, Array(&Nested(&ELECT_LEADERS_REQUEST_TOPIC_PARTITIONS))).null(0, NEWEST),
        f("TimeoutMs", 0, NEWEST, Fixed(4)),
    ],
};
static ELECT_LEADERS_REQUEST_TOPIC_PARTITIONS: Struct =
    Struct { memory: 88, fields: &[f("Topic", 0, NEWEST, Text), f("Partitions", 0, NEWEST, Array(&Fixed(4)))] };

static INCREMENTAL_ALTER_CONFIGS_REQUEST: Struct = Struct {
    memory: 57,
    fields: &[
        f("Resources", 0, NEWEST, Array(&Nested(&INCREMENTAL_ALTER_CONFIGS_REQUEST_ALTER_CONFIGS_RESOURCE))),
        f("ValidateOnly", 0, NEWEST, Fixed(1)),
    ],
};
static INCREMENTAL_ALTER_CONFIGS_REQUEST_ALTER_CONFIGS_RESOURCE: Struct = Struct {
    memory: 89,
    fields: &[
        f("ResourceType", 0, NEWEST, Fixed(1)),
        f("ResourceName", 0, NEWEST, Text),
        f("Configs", 0, NEWEST, Array(&Nested(&INCREMENTAL_ALTER_CONFIGS_REQUEST_ALTERABLE_CONFIG))),
    ],
};
static INCREMENTAL_ALTER_CONFIGS_REQUEST_ALTERABLE_CONFIG: Struct = Struct {
    memory: 97,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("ConfigOperation", 0, NEWEST, Fixed(1)),
        f("Value", 0, NEWEST, Text).null(0, NEWEST),
    ],
};

static ALTER_PARTITION_REASSIGNMENTS_REQUEST: Struct = Struct {
    memory: 61,
    fields: &[
        f("TimeoutMs", 0, NEWEST, Fixed(4)),
        f("AllowReplicationFactorChange", 1, NEWEST, Fixed(1)),
        f("Topics", 0, NEWEST, Array(&Nested(&ALTER_PARTITION_REASSIGNMENTS_REQUEST_REASSIGNABLE_TOPIC))),
    ],
};
static ALTER_PARTITION_REASSIGNMENTS_REQUEST_REASSIGNABLE_TOPIC: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&ALTER_PARTITION_REASSIGNMENTS_REQUEST_REASSIGNABLE_PARTITION))),
    ],
};
static ALTER_PARTITION_REASSIGNMENTS_REQUEST_REASSIGNABLE_PARTITION: Struct = Struct {
    memory: 60,
    fields: &[f("PartitionIndex", 0, NEWEST, Fixed(4)), f("Replicas", 0, NEWEST, Array(&Fixed(4))).null(0, NEWEST)],
};

static LIST_PARTITION_REASSIGNMENTS_REQUEST: Struct = Struct {
    memory: 60,
    fields: &[
        f("TimeoutMs", 0, NEWEST, Fixed(4)),
        f(
            "Topics",
            0,
            NEWEST,
            Array(&Nested(&LIST_PARTITION_REASSIGNMENTS_REQUEST_LIST_PARTITION_REASSIGNMENTS_TOPICS)),
        )
        .null(0, NEWEST),
    ],
};
static LIST_PARTITION_REASSIGNMENTS_REQUEST_LIST_PARTITION_REASSIGNMENTS_TOPICS: Struct =
    Struct { memory: 88, fields: &[f("Name", 0, NEWEST, Text), f("PartitionIndexes", 0, NEWEST, Array(&Fixed(4)))] };

static OFFSET_DELETE_REQUEST: Struct = Struct {
    memory: 88,
    fields: &[
        f("GroupId", 0, NEWEST, Text),
        f("Topics", 0, NEWEST, Array(&Nested(&OFFSET_DELETE_REQUEST_OFFSET_DELETE_REQUEST_TOPIC))),
    ],
};
static OFFSET_DELETE_REQUEST_OFFSET_DELETE_REQUEST_TOPIC: Struct = Struct {
    memory: 88,
    fields: &[
        f("Name", 0, NEWEST, Text),
        f("Partitions", 0, NEWEST, Array(&Nested(&OFFSET_DELETE_REQUEST_OFFSET_DELETE_REQUEST_PARTITION))),
    ],
};
static OFFSET_DELETE_REQUEST_OFFSET_DELETE_REQUEST_PARTITION: Struct =
    Struct { memory: 36, fields: &[f("PartitionIndex", 0, NEWEST, Fixed(4))] };

static DESCRIBE_CLUSTER_REQUEST: Struct = Struct {
    memory: 35,
    fields: &[
        f("IncludeClusterAuthorizedOperations", 0, NEWEST, Fixed(1)),
        f("EndpointType", 1, NEWEST, Fixed(1)),
        f("IncludeFencedBrokers", 2, NEWEST, Fixed(1)),
    ],
};

static DESCRIBE_PRODUCERS_REQUEST: Struct =
    Struct { memory: 56, fields: &[f("Topics", 0, NEWEST, Array(&Nested(&DESCRIBE_PRODUCERS_REQUEST_TOPIC_REQUEST)))] };
static DESCRIBE_PRODUCERS_REQUEST_TOPIC_REQUEST: Struct =
    Struct { memory: 88, fields: &[f("Name", 0, NEWEST, Text), f("PartitionIndexes", 0, NEWEST, Array(&Fixed(4)))] };

static DESCRIBE_TRANSACTIONS_REQUEST: Struct =
    Struct { memory: 56, fields: &[f("TransactionalIds", 0, NEWEST, Array(&Text))] };

static LIST_TRANSACTIONS_REQUEST: Struct = Struct {
    memory: 120,
    fields: &[
        f("StateFilters", 0, NEWEST, Array(&Text)),
        f("ProducerIdFilters", 0, NEWEST, Array(&Fixed(8))),
        f("DurationFilter", 1, NEWEST, Fixed(8)),
        f("TransactionalIdPattern", 2, NEWEST, Text).null(2, NEWEST),
    ],
};

static CONSUMER_GROUP_HEARTBEAT_REQUEST: Struct = Struct {
    memory: 280,
    fields: &[
        f("GroupId", 0, NEWEST, Text),
        f("MemberId", 0, NEWEST, Text),
        f("MemberEpoch", 0, NEWEST, Fixed(4)),
        f("InstanceId", 0, NEWEST, Text).null(0, NEWEST),
        f("RackId", 0, NEWEST, Text).null(0, NEWEST),
        f("RebalanceTimeoutMs", 0, NEWEST, Fixed(4)),
        f("SubscribedTopicNames", 0, NEWEST, Array(&Text)).null(0, NEWEST),
        f("SubscribedTopicRegex", 1, NEWEST, Text).null(1, NEWEST),
        f("ServerAssignor", 0, NEWEST, Text).null(0, NEWEST),
        f("TopicPartitions", 0, NEWEST, Array(&Nested(&CONSUMER_GROUP_HEARTBEAT_REQUEST_TOPIC_PARTITIONS)))
            .null(0, NEWEST),
    ],
};
static CONSUMER_GROUP_HEARTBEAT_REQUEST_TOPIC_PARTITIONS: Struct =
    Struct { memory: 72, fields: &[f("TopicId", 0, NEWEST, Fixed(16)), f("Partitions", 0, NEWEST, Array(&Fixed(4)))] };

static CONSUMER_GROUP_DESCRIBE_REQUEST: Struct = Struct {
    memory: 57,
    fields: &[f("GroupIds", 0, NEWEST, Array(&Text)), f("IncludeAuthorizedOperations", 0, NEWEST, Fixed(1))],
};

static GET_TELEMETRY_SUBSCRIPTIONS_REQUEST: Struct =
    Struct { memory: 48, fields: &[f("ClientInstanceId", 0, NEWEST, Fixed(16))] };

static PUSH_TELEMETRY_REQUEST: Struct = Struct {
    memory: 86,
    fields: &[
        f("ClientInstanceId", 0, NEWEST, Fixed(16)),
        f("SubscriptionId", 0, NEWEST, Fixed(4)),
        f("Terminating", 0, NEWEST, Fixed(1)),
        f("CompressionType", 0, NEWEST, Fixed(1)),
        f("Metrics", 0, NEWEST, Bytes),
    ],
};

static SHARE_GROUP_HEARTBEAT_REQUEST: Struct = Struct {
    memory: 156,
    fields: &[
        f("GroupId", 0, NEWEST, Text),
        f("MemberId", 0, NEWEST, Text),
        f("MemberEpoch", 0, NEWEST, Fixed(4)),
        f("RackId", 0, NEWEST, Text).null(0, NEWEST),
        f("SubscribedTopicNames", 0, NEWEST, Array(&Text)).null(0, NEWEST),
    ],
};

static SHARE_GROUP_DESCRIBE_REQUEST: Struct = Struct {
    memory: 57,
    fields: &[f("GroupIds", 0, NEWEST, Array(&Text)), f("IncludeAuthorizedOperations", 0, NEWEST, Fixed(1))],
};

static SHARE_FETCH_REQUEST: Struct = Struct {
    memory: 170,
    fields: &[
        f("GroupId", 0, NEWEST, Text).null(0, NEWEST),
        f("MemberId", 0, NEWEST, Text).null(0, NEWEST),
        f("ShareSessionEpoch", 0, NEWEST, Fixed(4)),
        f("MaxWaitMs", 0, NEWEST, Fixed(4)),
        f("MinBytes", 0, NEWEST, Fixed(4)),
        f("MaxBytes", 0, NEWEST, Fixed(4)),
        f("MaxRecords", 1, NEWEST, Fixed(4)),
        f("BatchSize", 1, NEWEST, Fixed(4)),
        f("ShareAcquireMode", 2, NEWEST, Fixed(1)),
        f("IsRenewAck", 2, NEWEST, Fixed(1)),
        f("Topics", 0, NEWEST, Array(&Nested(&SHARE_FETCH_REQUEST_FETCH_TOPIC))),
        f("ForgottenTopicsData", 0, NEWEST, Array(&Nested(&SHARE_FETCH_REQUEST_FORGOTTEN_TOPIC))),
    ],
};
static SHARE_FETCH_REQUEST_FETCH_TOPIC: Struct = Struct {
    memory: 72,
    fields: &[
        f("TopicId", 0, NEWEST, Fixed(16)),
        f("Partitions", 0, NEWEST, Array(&Nested(&SHARE_FETCH_REQUEST_FETCH_PARTITION))),
    ],
};
static SHARE_FETCH_REQUEST_FETCH_PARTITION: Struct = Struct {
    memory: 64,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("AcknowledgementBatches", 0, NEWEST, Array(&Nested(&SHARE_FETCH_REQUEST_ACKNOWLEDGEMENT_BATCH))),
    ],
};
static SHARE_FETCH_REQUEST_ACKNOWLEDGEMENT_BATCH: Struct = Struct {
    memory: 72,
    fields: &[
        f("FirstOffset", 0, NEWEST, Fixed(8)),
        f("LastOffset", 0, NEWEST, Fixed(8)),
        f("AcknowledgeTypes", 0, NEWEST, Array(&Fixed(1))),
    ],
};
static SHARE_FETCH_REQUEST_FORGOTTEN_TOPIC: Struct =
    Struct { memory: 72, fields: &[f("TopicId", 0, NEWEST, Fixed(16)), f("Partitions", 0, NEWEST, Array(&Fixed(4)))] };

static SHARE_ACKNOWLEDGE_REQUEST: Struct = Struct {
    memory: 125,
    fields: &[
        f("GroupId", 0, NEWEST, Text).null(0, NEWEST),
        f("MemberId", 0, NEWEST, Text).null(0, NEWEST),
        f("ShareSessionEpoch", 0, NEWEST, Fixed(4)),
        f("IsRenewAck", 2, NEWEST, Fixed(1)),
        f("Topics", 0, NEWEST, Array(&Nested(&SHARE_ACKNOWLEDGE_REQUEST_ACKNOWLEDGE_TOPIC))),
    ],
};
static SHARE_ACKNOWLEDGE_REQUEST_ACKNOWLEDGE_TOPIC: Struct = Struct {
    memory: 72,
    fields: &[
        f("TopicId", 0, NEWEST, Fixed(16)),
        f("Partitions", 0, NEWEST, Array(&Nested(&SHARE_ACKNOWLEDGE_REQUEST_ACKNOWLEDGE_PARTITION))),
    ],
};
static SHARE_ACKNOWLEDGE_REQUEST_ACKNOWLEDGE_PARTITION: Struct = Struct {
    memory: 60,
    fields: &[
        f("PartitionIndex", 0, NEWEST, Fixed(4)),
        f("AcknowledgementBatches", 0, NEWEST, Array(&Nested(&SHARE_ACKNOWLEDGE_REQUEST_ACKNOWLEDGEMENT_BATCH))),
    ],
};
static SHARE_ACKNOWLEDGE_REQUEST_ACKNOWLEDGEMENT_BATCH: Struct = Struct {
    memory: 72,
    fields: &[
        f("FirstOffset", 0, NEWEST, Fixed(8)),
        f("LastOffset", 0, NEWEST, Fixed(8)),
        f("AcknowledgeTypes", 0, NEWEST, Array(&Fixed(1))),
    ],
};
