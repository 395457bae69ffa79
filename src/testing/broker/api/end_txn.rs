//! EndTxn: commit or abort (KIP-98); from version 5 on with a new epoch (KIP-890).

use kafka_protocol::messages::{EndTxnRequest, EndTxnResponse, ProducerId};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::Core;
use crate::testing::broker::transactions::{Outcome, Producer, before_fencing};

impl Serve for EndTxnRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let producer = Producer { id: self.producer_id.0, epoch: self.producer_epoch };
        let outcome = if self.committed { Outcome::Commit } else { Outcome::Abort };
        let bumps = call.version >= FIRST_WITH_BUMP;
        let ended = core
            .check_transaction_coordinator(call, &self.transactional_id)
            .and_then(|()| core.end_transaction(&self.transactional_id, producer, outcome, bumps, call.now));
        Step::Answer(match ended {
            Ok(next) if bumps => {
                EndTxnResponse::default().with_producer_id(ProducerId(next.id)).with_producer_epoch(next.epoch)
            }
            Ok(_) => EndTxnResponse::default(),
            Err(code) => refused(before_fencing(code, call.version >= 2)),
        })
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> EndTxnResponse {
        refused(code)
    }

    fn throttle(answer: &mut EndTxnResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

fn refused(code: ErrorCode) -> EndTxnResponse {
    EndTxnResponse::default().with_error_code(code.0)
}

const FIRST_WITH_BUMP: i16 = 5;
