//! InitProducerId: an id for an idempotent producer (KIP-98, KIP-360).

use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, millis};
use crate::testing::broker::transactions::{Producer, before_fencing};

impl Serve for InitProducerIdRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        // Both, or neither (KIP-360).
        if (self.producer_id.0 < 0) != (self.producer_epoch < 0) {
            return Step::Answer(failed(ErrorCode::INVALID_REQUEST));
        }
        if let Some(id) = &self.transactional_id {
            let known = (self.producer_id.0 >= 0 && self.producer_epoch >= 0)
                .then_some(Producer { id: self.producer_id.0, epoch: self.producer_epoch });
            let timeout = millis(self.transaction_timeout_ms);
            let begun = core
                .check_transaction_coordinator(call, id)
                .and_then(|()| core.init_transactions(id, timeout, known, call.now));
            return Step::Answer(match begun {
                Ok(producer) => InitProducerIdResponse::default()
                    .with_producer_id(ProducerId(producer.id))
                    .with_producer_epoch(producer.epoch),
                Err(code) => failed(before_fencing(code, call.version >= 4)),
            });
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
