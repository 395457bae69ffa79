//! How long a broker asks its client to be silent after an answer (KIP-219).
//!
//! Brokers before Kafka 2.0 held back the answer of a client that had used up its quota, and told how long they had
//! done so. Later ones answer at once, leave the connection unread for that time, and expect the client to send nothing on it.
//! Which of the two a `throttle_time_ms` means is told by the version of the API alone.

use std::time::Duration;

use super::api::ApiKey;
use super::shape;

/// The silence that an answer asks for; nothing where the broker has kept it itself.
///
/// Reads no further than to the field. A body that cannot be what it claims asks for nothing; whoever decodes it says so.
pub(crate) fn throttle(api: ApiKey, version: i16, body: &[u8]) -> Duration {
    if !is_kept_by_client(api, version) {
        return Duration::ZERO;
    }
    let millis = shape::throttle_time_ms(api, version, body).unwrap_or(0);
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// Whether a broker that speaks this version answers first, and leaves the waiting to the client.
fn is_kept_by_client(api: ApiKey, version: i16) -> bool {
    let at = FIRST_KEPT_BY_CLIENT.binary_search_by_key(&api.0, |(api, _)| *api);
    at.is_ok_and(|at| version >= FIRST_KEPT_BY_CLIENT[at].1)
}

/// By API, the first version of brokers that answer before they throttle.
///
/// From `shouldClientThrottle` of Kafka's response classes. OffsetForLeaderEpoch, DescribeCluster, elections, reassignments, the
/// descriptions of producers and transactions, telemetry, and the consumer and share group APIs have none there, although their throttle
/// time is younger than KIP-219: Java sends on, into a socket that the broker does not read. Here they count with the rest. The
/// SASL APIs are never throttled.
const FIRST_KEPT_BY_CLIENT: &[(i16, i16)] = &[
    (0, 6),  // Produce
    (1, 8),  // Fetch
    (2, 3),  // ListOffsets
    (3, 6),  // Metadata
    (8, 4),  // OffsetCommit
    (9, 4),  // OffsetFetch
    (10, 2), // FindCoordinator
    (11, 3), // JoinGroup
    (12, 2), // Heartbeat
    (13, 2), // LeaveGroup
    (14, 2), // SyncGroup
    (15, 2), // DescribeGroups
    (16, 2), // ListGroups
    (18, 2), // ApiVersions
    (19, 3), // CreateTopics
    (20, 2), // DeleteTopics
    (21, 1), // DeleteRecords
    (22, 1), // InitProducerId
    (23, 2), // OffsetForLeaderEpoch
    (24, 1), // AddPartitionsToTxn
    (25, 1), // AddOffsetsToTxn
    (26, 1), // EndTxn
    (28, 1), // TxnOffsetCommit
    (29, 1), // DescribeAcls
    (30, 1), // CreateAcls
    (31, 1), // DeleteAcls
    (32, 2), // DescribeConfigs
    (35, 1), // DescribeLogDirs
    (37, 1), // CreatePartitions
    (42, 1), // DeleteGroups
    (43, 0), // ElectLeaders
    (44, 0), // IncrementalAlterConfigs
    (45, 0), // AlterPartitionReassignments
    (46, 0), // ListPartitionReassignments
    (47, 0), // OffsetDelete
    (60, 0), // DescribeCluster
    (61, 0), // DescribeProducers
    (65, 0), // DescribeTransactions
    (66, 0), // ListTransactions
    (68, 0), // ConsumerGroupHeartbeat
    (69, 0), // ConsumerGroupDescribe
    (71, 0), // GetTelemetrySubscriptions
    (72, 0), // PushTelemetry
    (76, 0), // ShareGroupHeartbeat
    (77, 0), // ShareGroupDescribe
    (78, 0), // ShareFetch
    (79, 0), // ShareAcknowledge
];

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use kafka_protocol::messages::produce_response::{
        LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
    };
    use kafka_protocol::messages::{FetchResponse, HeartbeatResponse, OffsetDeleteResponse, ProduceResponse};
    use kafka_protocol::protocol::Encodable;

    use super::*;
    use crate::protocol::api::KNOWN_APIS;

    fn encoded(response: &impl Encodable, version: i16) -> Bytes {
        let mut body = BytesMut::new();
        response.encode(&mut body, version).unwrap();
        body.freeze()
    }

    #[test]
    fn every_api_is_in_the_table_but_those_that_are_never_throttled() {
        assert!(FIRST_KEPT_BY_CLIENT.is_sorted());
        let missing: Vec<_> =
            KNOWN_APIS.iter().filter(|known| !is_kept_by_client(known.key, i16::MAX)).map(|known| known.name).collect();
        assert_eq!(missing, ["SaslHandshake", "SaslAuthenticate"]);
    }

    #[test]
    fn the_field_is_found_at_the_front_behind_a_code_and_at_the_end() {
        let second = Duration::from_secs(1);
        let body = encoded(&HeartbeatResponse::default().with_throttle_time_ms(1000), 4);
        assert_eq!(throttle(ApiKey(12), 4, &body), second);
        let body = encoded(&FetchResponse::default().with_throttle_time_ms(1000), 16);
        assert_eq!(throttle(ApiKey(1), 16, &body), second);
        let body = encoded(&OffsetDeleteResponse::default().with_error_code(15).with_throttle_time_ms(1000), 0);
        assert_eq!(throttle(ApiKey(47), 0, &body), second);
        for version in 6..=13 {
            let mut partition = PartitionProduceResponse::default().with_index(3);
            let mut response = ProduceResponse::default().with_throttle_time_ms(1000);
            if version >= 10 {
                partition = partition.with_current_leader(LeaderIdAndEpoch::default().with_leader_id(2.into()));
                response = response.with_node_endpoints(vec![NodeEndpoint::default()]);
            }
            let topic = TopicProduceResponse::default().with_partition_responses(vec![partition; 3]);
            let body = encoded(&response.with_responses(vec![topic; 2]), version);
            assert_eq!(throttle(ApiKey(0), version, &body), second, "version {version}");
        }
    }

    #[test]
    fn what_an_old_broker_has_waited_itself_is_not_waited_again() {
        for version in 0..=4 {
            let response = HeartbeatResponse::default().with_throttle_time_ms(i32::from(version > 0) * 1000);
            let asked = throttle(ApiKey(12), version, &encoded(&response, version));
            assert_eq!(asked > Duration::ZERO, version >= 2, "version {version}");
        }
    }

    #[test]
    fn neither_a_negative_time_nor_a_body_that_lies_asks_for_anything() {
        let body = encoded(&HeartbeatResponse::default().with_throttle_time_ms(-1), 4);
        assert_eq!(throttle(ApiKey(12), 4, &body), Duration::ZERO);
        for body in [&b""[..], b"\0\0\0", b"\xff\xff\xff\xff\x0f"] {
            assert_eq!(throttle(ApiKey(0), 12, body), Duration::ZERO);
        }
        assert_eq!(throttle(ApiKey(900), 0, b"\0\0\0\x01"), Duration::ZERO);
    }
}
