//! InitProducerId: an id for an idempotent producer (KIP-98, KIP-360).

use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;

impl Serve for InitProducerIdRequest {
    fn serve(self, core: &mut Core, _call: &Call) -> Step<Self> {
        if self.transactional_id.is_some() {
            return Step::Answer(failed(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        // One that asks again gets a new id, whatever it had (`TransactionCoordinator.handleInitProducerId`).
        let id = core.new_producer_id();
        Step::Answer(InitProducerIdResponse::default().with_producer_id(ProducerId(id)).with_producer_epoch(0))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> InitProducerIdResponse {
        failed(code)
    }

    fn throttle(answer: &mut InitProducerIdResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn failed(code: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse::default().with_error_code(code.0).with_producer_id(ProducerId(-1)).with_producer_epoch(-1)
}
