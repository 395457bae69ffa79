//! SaslAuthenticate: the messages of a mechanism (KIP-152), and how long the login counts (KIP-368).

use kafka_protocol::messages::{SaslAuthenticateRequest, SaslAuthenticateResponse};

use super::Serve;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};
use crate::testing::broker::logins::Then;

impl Serve for SaslAuthenticateRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        match core.hear_login(call, &self.auth_bytes) {
            Ok(said) => {
                let lifetime =
                    said.lifetime.map_or(0, |lifetime| i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX));
                let answer = SaslAuthenticateResponse::default().with_auth_bytes(said.bytes.into());
                // Before version 1 nobody asks for it.
                Step::Answer(answer.with_session_lifetime_ms(if call.version >= 1 { lifetime } else { 0 }))
            }
            Err(refused) => {
                let answer = answer(refused.code, &refused.why);
                match refused.then {
                    Then::Stays => Step::Answer(answer),
                    Then::Closes => Step::Last(answer),
                    Then::Breaks => Step::Close,
                }
            }
        }
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> SaslAuthenticateResponse {
        answer(code, code.meaning())
    }

    fn throttle(_answer: &mut SaslAuthenticateResponse, _ms: i32) {}
}

fn answer(code: ErrorCode, why: &str) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse::default().with_error_code(code.0).with_error_message(Some(text(why)))
}
