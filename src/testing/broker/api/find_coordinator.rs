//! FindCoordinator: the node that keeps a group or a transaction.

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};

impl Serve for FindCoordinatorRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let known = (GROUP..=SHARE).contains(&self.key_type);
        let code = if known { ErrorCode::NONE } else { ErrorCode::INVALID_REQUEST };
        Step::Answer(self.answer(core, call, code))
    }

    fn refuse(self, core: &mut Core, call: &Call, code: ErrorCode) -> FindCoordinatorResponse {
        self.answer(core, call, code)
    }

    fn throttle(answer: &mut FindCoordinatorResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

trait Answer {
    fn answer(self, core: &Core, call: &Call, code: ErrorCode) -> FindCoordinatorResponse;
}

impl Answer for FindCoordinatorRequest {
    fn answer(self, core: &Core, call: &Call, code: ErrorCode) -> FindCoordinatorResponse {
        if call.version < FIRST_WITH_KEYS {
            let one = one(core, call, self.key, code);
            let message = if one.error_code == 0 { text("NONE") } else { text(ErrorCode(one.error_code).meaning()) };
            return FindCoordinatorResponse::default()
                .with_error_code(one.error_code)
                .with_error_message((call.version >= 1).then_some(message))
                .with_node_id(one.node_id)
                .with_host(one.host)
                .with_port(one.port);
        }
        let all = self.coordinator_keys.into_iter().map(|key| one(core, call, key, code));
        FindCoordinatorResponse::default().with_coordinators(all.collect())
    }
}

fn one(core: &Core, call: &Call, key: StrBytes, code: ErrorCode) -> Coordinator {
    let found = core.coordinator_of(&key).ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE);
    match code.ok().and(found) {
        Ok(node) => {
            let (host, port) = core.endpoint(node, call.listener);
            Coordinator::default().with_key(key).with_node_id(BrokerId(node)).with_host(host).with_port(port)
        }
        Err(code) => {
            let answer = Coordinator::default()
                .with_key(key)
                .with_error_code(code.0)
                .with_error_message(Some(text(code.meaning())));
            answer.with_node_id(BrokerId(-1)).with_port(-1)
        }
    }
}

const GROUP: i8 = 0;
const SHARE: i8 = 2;
/// KIP-699.
const FIRST_WITH_KEYS: i16 = 4;
