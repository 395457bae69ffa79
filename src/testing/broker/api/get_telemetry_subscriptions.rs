//! GetTelemetrySubscriptions: what a client is to push of its metrics (KIP-714).

use kafka_protocol::messages::{GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};
use crate::testing::broker::telemetry::MAX_BYTES;

impl Serve for GetTelemetrySubscriptionsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let wanted = match core.subscribe(self.client_instance_id, call.client_name(), call.now) {
            Ok(wanted) => wanted,
            Err(code) => return Step::Answer(refused(code)),
        };
        let interval = i32::try_from(wanted.interval.as_millis()).unwrap_or(i32::MAX);
        Step::Answer(
            GetTelemetrySubscriptionsResponse::default()
                .with_client_instance_id(wanted.instance_id)
                .with_subscription_id(wanted.subscription)
                .with_accepted_compression_types(ACCEPTED.to_vec())
                .with_push_interval_ms(interval)
                .with_telemetry_max_bytes(MAX_BYTES as i32)
                .with_delta_temporality(true)
                .with_requested_metrics(wanted.metrics.into_iter().map(text).collect()),
        )
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> GetTelemetrySubscriptionsResponse {
        refused(code)
    }

    fn throttle(answer: &mut GetTelemetrySubscriptionsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn refused(code: ErrorCode) -> GetTelemetrySubscriptionsResponse {
    GetTelemetrySubscriptionsResponse::default().with_error_code(code.0)
}

/// zstd, lz4, gzip, snappy: Kafka's order.
const ACCEPTED: [i8; 4] = [4, 3, 1, 2];
