//! PushTelemetry: metrics of a client (KIP-714). They are kept for tests to look at.

use kafka_protocol::messages::{PushTelemetryRequest, PushTelemetryResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;
use crate::testing::broker::telemetry::Push;

impl Serve for PushTelemetryRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let push = Push {
            instance_id: self.client_instance_id,
            subscription: self.subscription_id,
            terminating: self.terminating,
            codec: self.compression_type,
            metrics: self.metrics,
        };
        let pushed = core.push_telemetry(push, call.client_name(), call.now);
        Step::Answer(outcome(pushed.err().unwrap_or(ErrorCode::NONE)))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> PushTelemetryResponse {
        outcome(code)
    }

    fn throttle(answer: &mut PushTelemetryResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn outcome(code: ErrorCode) -> PushTelemetryResponse {
    PushTelemetryResponse::default().with_error_code(code.0)
}
