//! DescribeCluster: the cluster's id, its controller, its nodes (KIP-700).

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};

impl Serve for DescribeClusterRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let endpoints = if call.version == 0 { BROKERS } else { self.endpoint_type };
        if endpoints != BROKERS {
            let code = if endpoints == CONTROLLERS {
                ErrorCode::MISMATCHED_ENDPOINT_TYPE
            } else {
                ErrorCode::UNSUPPORTED_ENDPOINT_TYPE
            };
            return Step::Answer(refused(code));
        }
        let told = core.nodes.all().filter(|node| node.is_up || self.include_fenced_brokers);
        let brokers = told.map(|node| {
            let address = node.address(call.listener);
            DescribeClusterBroker::default()
                .with_broker_id(BrokerId(node.id))
                .with_host(text(address.host()))
                .with_port(i32::from(address.port()))
                .with_rack(node.rack.as_deref().map(text))
                .with_is_fenced(!node.is_up)
        });
        let brokers = brokers.collect();
        let operations = if self.include_cluster_authorized_operations { CLUSTER_OPERATIONS } else { i32::MIN };
        Step::Answer(
            DescribeClusterResponse::default()
                .with_error_message(None)
                .with_cluster_id(text(&core.settings.cluster_id))
                .with_controller_id(BrokerId(core.nodes.controller()))
                .with_brokers(brokers)
                .with_cluster_authorized_operations(operations),
        )
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> DescribeClusterResponse {
        refused(code)
    }

    fn throttle(answer: &mut DescribeClusterResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn refused(code: ErrorCode) -> DescribeClusterResponse {
    DescribeClusterResponse::default().with_error_code(code.0).with_error_message(Some(text(code.meaning())))
}

/// `EndpointType`.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// A bit for each operation that the cluster has (`AclOperation`): create, alter, describe, among brokers, settings, idempotent
/// writes.
const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;
