//! Kafka's error codes: one table with name, kind and meaning. Unknown codes keep their number.

use std::fmt;

/// An error code as a broker sends it.
///
/// Newer brokers have codes that are not in the table; they keep their number and are not retriable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ErrorCode(pub i16);

impl ErrorCode {
    /// Whether this is [`ErrorCode::NONE`].
    pub fn is_ok(self) -> bool {
        self == Self::NONE
    }

    /// `Ok` for [`ErrorCode::NONE`], the code itself as the error otherwise.
    ///
    /// # Errors
    /// Every code but 0.
    pub fn ok(self) -> Result<(), Self> {
        if self.is_ok() { Ok(()) } else { Err(self) }
    }

    /// Kafka's name; `UNKNOWN` for a code that is not in the table.
    pub fn name(self) -> &'static str {
        self.entry().map_or("UNKNOWN", |entry| entry.name)
    }

    /// What it means, in a few words.
    pub fn meaning(self) -> &'static str {
        self.entry().map_or("a code of a newer broker", |entry| entry.meaning)
    }

    /// Whether the same request may succeed later, as Java's client classes it (`RetriableException`).
    ///
    /// Only a first hint: what to do about it is the call site's to choose.
    pub fn is_retriable(self) -> bool {
        matches!(self.entry(), Some(Entry { kind: Kind::Retriable | Kind::StaleView, .. }))
    }

    /// Whether the client's view of the cluster is old: fetch metadata before trying again
    /// (Java's `InvalidMetadataException`). Implies [`is_retriable`](Self::is_retriable).
    pub fn invalidates_metadata(self) -> bool {
        matches!(self.entry(), Some(Entry { kind: Kind::StaleView, .. }))
    }

    /// Every code in the table, in ascending order.
    pub fn known() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|entry| entry.code)
    }

    fn entry(self) -> Option<&'static Entry> {
        // The table has no gaps and begins at -1.
        TABLE.get(usize::try_from(i32::from(self.0) + 1).ok()?)
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> Self {
        Self(code)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl std::error::Error for ErrorCode {}

struct Entry {
    code: ErrorCode,
    name: &'static str,
    kind: Kind,
    meaning: &'static str,
}

enum Kind {
    /// The request succeeded.
    Success,
    /// Trying the same again is no use.
    Terminal,
    /// The same request may succeed later.
    Retriable,
    /// The same request may succeed at another broker: the view of the cluster is old.
    StaleView,
}

macro_rules! error_codes {
    ($($code:literal, $name:ident, $kind:ident, $meaning:literal;)*) => {
        /// The codes by name.
        impl ErrorCode {
            $(#[doc = concat!("`", $code, "`: ", $meaning, ".")]
            pub const $name: Self = Self($code);)*
        }

        const TABLE: &[Entry] = &[
            $(Entry { code: ErrorCode::$name, name: stringify!($name), kind: Kind::$kind, meaning: $meaning },)*
        ];
    };
}

// Codes, names and kinds of Apache Kafka 4.4.0 (`org.apache.kafka.common.protocol.Errors`).
error_codes! {
    -1, UNKNOWN_SERVER_ERROR, Terminal, "the broker failed in a way that it has no code for";
    0, NONE, Success, "no error";
    1, OFFSET_OUT_OF_RANGE, Terminal, "the offset is before the start or past the end of the log";
    2, CORRUPT_MESSAGE, Retriable, "the records failed their checksum, lack a key on a compacted topic, or are otherwise corrupt";
    3, UNKNOWN_TOPIC_OR_PARTITION, StaleView, "this broker does not host the partition, or the topic does not exist";
    4, INVALID_FETCH_SIZE, Terminal, "the fetch size is invalid";
    5, LEADER_NOT_AVAILABLE, StaleView, "the partition has no leader at the moment";
    6, NOT_LEADER_OR_FOLLOWER, StaleView, "this broker is not the partition's leader, or holds no replica of it";
    7, REQUEST_TIMED_OUT, Retriable, "the broker could not finish in time; the work may still have been done";
    8, BROKER_NOT_AVAILABLE, Terminal, "the broker is not available";
    9, REPLICA_NOT_AVAILABLE, StaleView, "the replica is not available";
    10, MESSAGE_TOO_LARGE, Terminal, "the batch or record is larger than the topic allows";
    11, STALE_CONTROLLER_EPOCH, Terminal, "the controller has moved to another broker";
    12, OFFSET_METADATA_TOO_LARGE, Terminal, "the note beside the committed offset is too long";
    13, NETWORK_EXCEPTION, StaleView, "the broker lost its connection to another one";
    14, COORDINATOR_LOAD_IN_PROGRESS, Retriable, "the coordinator is still loading its state";
    15, COORDINATOR_NOT_AVAILABLE, Retriable, "there is no coordinator at the moment";
    16, NOT_COORDINATOR, Retriable, "this broker is not the coordinator";
    17, INVALID_TOPIC_EXCEPTION, Terminal, "the topic's name is invalid, or the topic may not be written";
    18, RECORD_LIST_TOO_LARGE, Terminal, "the batch is larger than a log segment";
    19, NOT_ENOUGH_REPLICAS, Retriable, "fewer replicas are in sync than the topic requires; nothing was written";
    20, NOT_ENOUGH_REPLICAS_AFTER_APPEND, Retriable, "written, but by fewer in-sync replicas than the topic requires";
    21, INVALID_REQUIRED_ACKS, Terminal, "the number of acknowledgements asked for is invalid";
    22, ILLEGAL_GENERATION, Terminal, "the group has moved on to another generation";
    23, INCONSISTENT_GROUP_PROTOCOL, Terminal, "the member and the group have no protocol in common";
    24, INVALID_GROUP_ID, Terminal, "the group id is invalid";
    25, UNKNOWN_MEMBER_ID, Terminal, "the coordinator does not know this member";
    26, INVALID_SESSION_TIMEOUT, Terminal, "the session timeout is outside the broker's bounds";
    27, REBALANCE_IN_PROGRESS, Terminal, "the group is rebalancing: join again";
    28, INVALID_COMMIT_OFFSET_SIZE, Terminal, "the commit is larger than the broker stores";
    29, TOPIC_AUTHORIZATION_FAILED, Terminal, "not allowed on this topic";
    30, GROUP_AUTHORIZATION_FAILED, Terminal, "not allowed on this group";
    31, CLUSTER_AUTHORIZATION_FAILED, Terminal, "not allowed on this cluster";
    32, INVALID_TIMESTAMP, Terminal, "the record's timestamp is outside what the topic accepts";
    33, UNSUPPORTED_SASL_MECHANISM, Terminal, "the broker does not offer this SASL mechanism";
    34, ILLEGAL_SASL_STATE, Terminal, "the request does not fit the state of the authentication";
    35, UNSUPPORTED_VERSION, Terminal, "the broker does not know this version of the API";
    36, TOPIC_ALREADY_EXISTS, Terminal, "the topic exists already";
    37, INVALID_PARTITIONS, Terminal, "the number of partitions is invalid";
    38, INVALID_REPLICATION_FACTOR, Terminal, "the replication factor is below one or above the number of brokers";
    39, INVALID_REPLICA_ASSIGNMENT, Terminal, "the assignment of replicas is invalid";
    40, INVALID_CONFIG, Terminal, "a configuration value is invalid";
    41, NOT_CONTROLLER, Retriable, "this broker is not the controller";
    42, INVALID_REQUEST, Terminal, "the request is malformed or does not fit this broker";
    43, UNSUPPORTED_FOR_MESSAGE_FORMAT, Terminal, "the log's message format cannot serve this request";
    44, POLICY_VIOLATION, Terminal, "a policy of the cluster forbids it";
    45, OUT_OF_ORDER_SEQUENCE_NUMBER, Terminal, "the batch's sequence number does not follow the last one";
    46, DUPLICATE_SEQUENCE_NUMBER, Terminal, "a batch with this sequence number was written before";
    47, INVALID_PRODUCER_EPOCH, Terminal, "the producer's epoch is old: another instance took over, or it was fenced";
    48, INVALID_TXN_STATE, Terminal, "the transaction is in a state that forbids this";
    49, INVALID_PRODUCER_ID_MAPPING, Terminal, "the transactional id belongs to another producer id";
    50, INVALID_TRANSACTION_TIMEOUT, Terminal, "the transaction timeout is above the broker's maximum";
    51, CONCURRENT_TRANSACTIONS, Retriable, "another operation on the same transaction is under way";
    52, TRANSACTION_COORDINATOR_FENCED, Terminal, "the sender is no longer the transaction's coordinator";
    53, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Terminal, "not allowed on this transactional id";
    54, SECURITY_DISABLED, Terminal, "the broker has no authorizer";
    55, OPERATION_NOT_ATTEMPTED, Terminal, "not attempted, because another part of the request failed";
    56, KAFKA_STORAGE_ERROR, StaleView, "the broker cannot access its log on disk";
    57, LOG_DIR_NOT_FOUND, Terminal, "the log directory is not one of the broker's";
    58, SASL_AUTHENTICATION_FAILED, Terminal, "the credentials were refused";
    59, UNKNOWN_PRODUCER_ID, Terminal, "the broker remembers nothing of this producer id";
    60, REASSIGNMENT_IN_PROGRESS, Terminal, "a reassignment of the partition is under way";
    61, DELEGATION_TOKEN_AUTH_DISABLED, Terminal, "the broker does not use delegation tokens";
    62, DELEGATION_TOKEN_NOT_FOUND, Terminal, "the delegation token does not exist";
    63, DELEGATION_TOKEN_OWNER_MISMATCH, Terminal, "the principal is not owner or renewer of the token";
    64, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, Terminal, "delegation tokens are not served on this kind of connection";
    65, DELEGATION_TOKEN_AUTHORIZATION_FAILED, Terminal, "not allowed on this delegation token";
    66, DELEGATION_TOKEN_EXPIRED, Terminal, "the delegation token has expired";
    67, INVALID_PRINCIPAL_TYPE, Terminal, "the type of principal is not supported";
    68, NON_EMPTY_GROUP, Terminal, "the group still has members";
    69, GROUP_ID_NOT_FOUND, Terminal, "the group does not exist";
    70, FETCH_SESSION_ID_NOT_FOUND, Retriable, "the broker forgot the fetch session";
    71, INVALID_FETCH_SESSION_EPOCH, Retriable, "the fetch session's epoch is out of step";
    72, LISTENER_NOT_FOUND, StaleView, "the leader has no listener of the name that was asked through";
    73, TOPIC_DELETION_DISABLED, Terminal, "the broker does not allow topics to be deleted";
    74, FENCED_LEADER_EPOCH, StaleView, "the leader epoch in the request is older than the broker's";
    75, UNKNOWN_LEADER_EPOCH, Retriable, "the leader epoch in the request is newer than the broker's";
    76, UNSUPPORTED_COMPRESSION_TYPE, Terminal, "the request's version cannot carry the partition's compression";
    77, STALE_BROKER_EPOCH, Terminal, "the broker epoch has changed";
    78, OFFSET_NOT_AVAILABLE, Retriable, "a new leader does not know yet how far it may serve";
    79, MEMBER_ID_REQUIRED, Terminal, "join again with the member id that was just given";
    80, PREFERRED_LEADER_NOT_AVAILABLE, StaleView, "the preferred leader is not available";
    81, GROUP_MAX_SIZE_REACHED, Terminal, "the group is full";
    82, FENCED_INSTANCE_ID, Terminal, "another member took over this group instance id";
    83, ELIGIBLE_LEADERS_NOT_AVAILABLE, StaleView, "no eligible leader is available";
    84, ELECTION_NOT_NEEDED, StaleView, "the preferred leader leads already";
    85, NO_REASSIGNMENT_IN_PROGRESS, Terminal, "no reassignment is under way";
    86, GROUP_SUBSCRIBED_TO_TOPIC, Terminal, "the group is subscribed to the topic";
    87, INVALID_RECORD, Terminal, "the broker's validation refused a record";
    88, UNSTABLE_OFFSET_COMMIT, Retriable, "a transaction that commits this offset is still open";
    89, THROTTLING_QUOTA_EXCEEDED, Retriable, "a quota is exceeded";
    90, PRODUCER_FENCED, Terminal, "a newer producer with this transactional id took over";
    91, RESOURCE_NOT_FOUND, Terminal, "what the request names does not exist";
    92, DUPLICATE_RESOURCE, Terminal, "the request names something twice";
    93, UNACCEPTABLE_CREDENTIAL, Terminal, "the credential does not meet the broker's criteria";
    94, INCONSISTENT_VOTER_SET, Terminal, "the set of voters is not the expected one";
    95, INVALID_UPDATE_VERSION, Terminal, "the version to update to is invalid";
    96, FEATURE_UPDATE_FAILED, Terminal, "the features could not be updated";
    97, PRINCIPAL_DESERIALIZATION_FAILURE, Terminal, "the forwarded principal could not be read";
    98, SNAPSHOT_NOT_FOUND, Terminal, "the snapshot does not exist";
    99, POSITION_OUT_OF_RANGE, Terminal, "the position is outside the snapshot";
    100, UNKNOWN_TOPIC_ID, StaleView, "this broker does not know the topic id";
    101, DUPLICATE_BROKER_REGISTRATION, Terminal, "another broker has this id";
    102, BROKER_ID_NOT_REGISTERED, Terminal, "no broker is registered under this id";
    103, INCONSISTENT_TOPIC_ID, StaleView, "the log belongs to another topic id: the topic was created anew";
    104, INCONSISTENT_CLUSTER_ID, Terminal, "the request is for another cluster";
    105, TRANSACTIONAL_ID_NOT_FOUND, Terminal, "the transactional id does not exist";
    106, FETCH_SESSION_TOPIC_ID_ERROR, Retriable, "the fetch session mixed topic names and ids";
    107, INELIGIBLE_REPLICA, Terminal, "a replica may not join the in-sync set";
    108, NEW_LEADER_ELECTED, Terminal, "the leader changed with this update";
    109, OFFSET_MOVED_TO_TIERED_STORAGE, Terminal, "the offset is in tiered storage";
    110, FENCED_MEMBER_EPOCH, Terminal, "the member epoch is fenced: give all partitions up and join again";
    111, UNRELEASED_INSTANCE_ID, Terminal, "another member still uses this group instance id";
    112, UNSUPPORTED_ASSIGNOR, Terminal, "the group does not have this assignor";
    113, STALE_MEMBER_EPOCH, Terminal, "the member epoch is old: wait for the next heartbeat's answer";
    114, MISMATCHED_ENDPOINT_TYPE, Terminal, "this kind of endpoint does not serve the request";
    115, UNSUPPORTED_ENDPOINT_TYPE, Terminal, "this type of endpoint is not supported yet";
    116, UNKNOWN_CONTROLLER_ID, Terminal, "the controller id is unknown";
    117, UNKNOWN_SUBSCRIPTION_ID, Terminal, "the telemetry subscription is unknown or old";
    118, TELEMETRY_TOO_LARGE, Terminal, "the telemetry is larger than the broker accepts";
    119, INVALID_REGISTRATION, Terminal, "the controller refused the broker's registration";
    120, TRANSACTION_ABORTABLE, Terminal, "the transaction failed; abort it and go on";
    121, INVALID_RECORD_STATE, Terminal, "the record is not in a state to be acknowledged this way";
    122, SHARE_SESSION_NOT_FOUND, Retriable, "the broker forgot the share session";
    123, INVALID_SHARE_SESSION_EPOCH, Retriable, "the share session's epoch is out of step";
    124, FENCED_STATE_EPOCH, Terminal, "the state epoch does not match the coordinator's";
    125, INVALID_VOTER_KEY, Terminal, "the voter's key is not the replica's";
    126, DUPLICATE_VOTER, Terminal, "the voter is in the set already";
    127, VOTER_NOT_FOUND, Terminal, "the voter is not in the set";
    128, INVALID_REGULAR_EXPRESSION, Terminal, "the regular expression is invalid";
    129, REBOOTSTRAP_REQUIRED, Terminal, "the client's view of the cluster is beyond repair: bootstrap again";
    130, STREAMS_INVALID_TOPOLOGY, Terminal, "the topology is invalid";
    131, STREAMS_INVALID_TOPOLOGY_EPOCH, Terminal, "the topology's epoch is invalid";
    132, STREAMS_TOPOLOGY_FENCED, Terminal, "the topology's epoch is old";
    133, SHARE_SESSION_LIMIT_REACHED, Retriable, "the broker holds as many share sessions as it may";
    134, GROUP_DELETION_FAILED, Terminal, "the group could not be deleted";
    135, STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, Terminal, "the description of the topology could not be updated";
    136, CONTROLLER_ID_NOT_REGISTERED, Terminal, "the controller id is not registered";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_no_gaps_so_that_a_code_indexes_it() {
        for (index, entry) in TABLE.iter().enumerate() {
            assert_eq!(i32::from(entry.code.0), index as i32 - 1, "{}", entry.name);
        }
        assert_eq!(ErrorCode::known().last(), Some(ErrorCode::CONTROLLER_ID_NOT_REGISTERED));
    }

    #[test]
    fn an_unknown_code_keeps_its_number_and_is_not_retriable() {
        for number in [-2, 137, i16::MIN, i16::MAX] {
            let code = ErrorCode::from(number);
            assert_eq!(i16::from(code), number);
            assert_eq!(code.to_string(), format!("UNKNOWN ({number})"));
            assert!(!code.is_retriable() && !code.invalidates_metadata() && !code.is_ok());
        }
    }

    #[test]
    fn a_code_prints_with_name_and_number() {
        assert_eq!(ErrorCode::from(6).to_string(), "NOT_LEADER_OR_FOLLOWER (6)");
        assert_eq!(format!("{:?}", ErrorCode::from(-1)), "UNKNOWN_SERVER_ERROR (-1)");
    }

    #[test]
    fn kinds_follow_javas_exception_classes() {
        for code in [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::UNKNOWN_TOPIC_ID, ErrorCode::FENCED_LEADER_EPOCH] {
            assert!(code.invalidates_metadata() && code.is_retriable(), "{code}");
        }
        for code in [ErrorCode::NOT_ENOUGH_REPLICAS, ErrorCode::REQUEST_TIMED_OUT, ErrorCode::UNSTABLE_OFFSET_COMMIT] {
            assert!(code.is_retriable() && !code.invalidates_metadata(), "{code}");
        }
        for code in [ErrorCode::MESSAGE_TOO_LARGE, ErrorCode::ILLEGAL_GENERATION, ErrorCode::UNKNOWN_SERVER_ERROR] {
            assert!(!code.is_retriable(), "{code}");
        }
        assert_eq!(ErrorCode::NONE.ok(), Ok(()));
        assert_eq!(ErrorCode::MESSAGE_TOO_LARGE.ok(), Err(ErrorCode::MESSAGE_TOO_LARGE));
        assert_eq!(ErrorCode::known().filter(|code| code.is_retriable()).count(), 32);
        assert_eq!(ErrorCode::known().filter(|code| code.invalidates_metadata()).count(), 13);
    }
}
