//! What a cluster is built with.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::record::Timestamp;

/// Settings of a [`Cluster`](super::Cluster). Those of Kafka's brokers have Kafka's defaults unless said otherwise.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// How many nodes there are, with ids from 1. Default 1, at most 100.
    pub nodes: i32,
    /// The rack of each node, in order (`broker.rack`). Nodes without one have none. Default none.
    pub racks: Vec<String>,
    /// What every random choice of the cluster comes from: topic ids, member ids. Default 0.
    pub seed: u64,
    /// The cluster's id. Default `dev-broker`.
    pub cluster_id: String,
    /// The wall clock's time when the cluster begins; it goes on as the `now` that is handed in does. Default: now.
    pub wall: Timestamp,
    /// Whether asking for a topic creates it (`auto.create.topics.enable`). Default false; Kafka's is true.
    pub auto_create_topics: bool,
    /// Partitions of a topic that is created without saying (`num.partitions`). Default 1.
    pub default_partitions: i32,
    /// Replicas of a topic that is created without saying (`default.replication.factor`). Default 1; at most as many as
    /// there are nodes.
    pub default_replication_factor: i16,
    /// `min.insync.replicas` of topics that do not set it. Default 1.
    pub min_insync_replicas: usize,
    /// How long a replica may fail to follow before it is taken out of the in-sync set (`replica.lag.time.max.ms`).
    /// Default 30 s.
    pub replica_lag_time_max: Duration,
    /// Whether consumers are sent to a replica in their own rack (KIP-392; `replica.selector.class` with the
    /// `RackAwareReplicaSelector`). Default false.
    pub rack_aware_reads: bool,
    /// How long a group that was empty waits for more members before its first assignment
    /// (`group.initial.rebalance.delay.ms`). Default 0; Kafka's is 3 s.
    pub initial_rebalance_delay: Duration,
    /// The shortest session that a member may ask for (`group.min.session.timeout.ms`). Default 6 s.
    pub min_session_timeout: Duration,
    /// The longest session that a member may ask for (`group.max.session.timeout.ms`). Default 30 min.
    pub max_session_timeout: Duration,
    /// The session of members of the new protocol (`group.consumer.session.timeout.ms`). Default 45 s.
    pub consumer_group_session: Duration,
    /// How often members of the new protocol are asked to beat (`group.consumer.heartbeat.interval.ms`). Default 5 s.
    pub consumer_group_heartbeat_interval: Duration,
    /// How long a record of a share group is locked for a member (`share.record.lock.duration.ms`). Default 30 s.
    pub share_record_lock: Duration,
    /// How often a record of a share group is delivered at most (`share.delivery.count.limit`). Default 5.
    pub share_delivery_limit: u16,
    /// Whether share groups begin at the oldest record (`share.auto.offset.reset=earliest`). Default false, as in Kafka.
    pub share_from_earliest: bool,
    /// Members that a group may have (`group.max.size`). Default 10,000; Kafka's is without end.
    pub max_group_members: usize,
    /// The largest note on a committed offset, in bytes (`offset.metadata.max.bytes`). Default 4,096.
    pub max_offset_metadata_bytes: usize,
    /// Fetch sessions that a node keeps (`max.incremental.fetch.session.cache.slots`). Default 1,000.
    pub max_fetch_sessions: usize,
    /// After how much quiet a fetch session may be given up for another (two minutes in Kafka). Default 2 min.
    pub fetch_session_idle: Duration,
    /// The largest answer to a Fetch, in bytes of records (`fetch.max.bytes`). Default 55 MiB.
    pub max_fetch_bytes: usize,
    /// The largest request, in bytes (`socket.request.max.bytes`). Default 100 MiB.
    pub max_request_bytes: usize,
    /// Connections that may be open at once; more are refused. Default 10,000.
    pub max_connections: usize,
    /// Requests of one connection that may wait for their turn; one more closes it. Default 1,000.
    pub max_queued_requests: usize,
    /// Bytes of records that all logs may hold together; what comes then is refused with `KAFKA_STORAGE_ERROR`. Default
    /// 1 GiB.
    pub max_log_bytes: usize,
    /// Topics that may exist. Default 10,000.
    pub max_topics: usize,
    /// The longest time that a transaction may ask for (`transaction.max.timeout.ms`). Default 15 min.
    pub max_transaction_timeout: Duration,
    /// Transactional ids that may exist. Default 10,000.
    pub max_transactional_ids: usize,
    /// Groups that may exist. Default 10,000.
    pub max_groups: usize,
    /// Whether rules of access are kept (`authorizer.class.name`). They are told, and keep nobody out. Default false: whoever asks
    /// for them hears `SECURITY_DISABLED`, as from a Kafka without an authorizer.
    pub authorizer: bool,
    /// Levels of the features that the cluster has switched on (KIP-584). Default `metadata.version` of Kafka 4.0,
    /// `group.version` 1, `share.version` 1 and `transaction.version` 2; at 1 clients speak the first version of transactions.
    pub features: BTreeMap<String, i16>,
    /// The logins that are asked for. Default: none.
    #[cfg(feature = "sasl")]
    pub sasl: Option<super::Sasl>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: 1,
            racks: Vec::new(),
            seed: 0,
            cluster_id: "dev-broker".to_owned(),
            wall: Timestamp::now(),
            auto_create_topics: false,
            default_partitions: 1,
            default_replication_factor: 1,
            min_insync_replicas: 1,
            replica_lag_time_max: Duration::from_secs(30),
            rack_aware_reads: false,
            initial_rebalance_delay: Duration::ZERO,
            min_session_timeout: Duration::from_secs(6),
            max_session_timeout: Duration::from_secs(1800),
            consumer_group_session: Duration::from_secs(45),
            consumer_group_heartbeat_interval: Duration::from_secs(5),
            share_record_lock: Duration::from_secs(30),
            share_delivery_limit: 5,
            share_from_earliest: false,
            max_group_members: 10_000,
            max_offset_metadata_bytes: 4096,
            max_fetch_sessions: 1_000,
            fetch_session_idle: Duration::from_secs(120),
            max_fetch_bytes: 55 << 20,
            max_request_bytes: crate::protocol::frame::DEFAULT_MAX_FRAME_BYTES,
            max_connections: 10_000,
            max_queued_requests: 1_000,
            max_log_bytes: 1 << 30,
            max_topics: 10_000,
            max_transaction_timeout: Duration::from_secs(900),
            max_transactional_ids: 10_000,
            max_groups: 10_000,
            authorizer: false,
            features: BTreeMap::from([
                ("metadata.version".to_owned(), METADATA_VERSION),
                ("group.version".to_owned(), GROUP_VERSION),
                ("transaction.version".to_owned(), TRANSACTION_VERSION),
                ("share.version".to_owned(), SHARE_VERSION),
            ]),
            #[cfg(feature = "sasl")]
            sasl: None,
        }
    }
}

/// The level that Kafka 4.0 writes its metadata in (`MetadataVersion.IBP_4_0_IV3`).
const METADATA_VERSION: i16 = 25;
/// KIP-848.
const GROUP_VERSION: i16 = 1;
/// KIP-932.
const SHARE_VERSION: i16 = 1;
/// KIP-890, part 2.
const TRANSACTION_VERSION: i16 = 2;
