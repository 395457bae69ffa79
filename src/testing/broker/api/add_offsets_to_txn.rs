//! AddOffsetsToTxn: a group whose offsets a transaction commits (KIP-98).

use kafka_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;
use crate::testing::broker::transactions::{Producer, before_fencing};

impl Serve for AddOffsetsToTxnRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let producer = Producer { id: self.producer_id.0, epoch: self.producer_epoch };
        let added = core
            .check_transaction_coordinator(call, &self.transactional_id)
            .and_then(|()| core.add_group_to_transaction(&self.transactional_id, producer, &self.group_id, call.now));
        Step::Answer(answer(before_fencing(added.err().unwrap_or(ErrorCode::NONE), call.version >= 2)))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> AddOffsetsToTxnResponse {
        answer(code)
    }

    fn throttle(answer: &mut AddOffsetsToTxnResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn answer(code: ErrorCode) -> AddOffsetsToTxnResponse {
    AddOffsetsToTxnResponse::default().with_error_code(code.0)
}
