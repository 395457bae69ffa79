//! SaslHandshake: how a client logs in (KIP-43).

use kafka_protocol::messages::{SaslHandshakeRequest, SaslHandshakeResponse};

use super::Serve;
use crate::protocol::api::VersionRange;
use crate::protocol::error_code::ErrorCode;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, text};
use crate::testing::broker::logins::{Refused, Then};

impl Serve for SaslHandshakeRequest {
    /// Behind version 0 the mechanism's messages come without a header (before KIP-152); that is not served.
    const VERSIONS: VersionRange = VersionRange { min: 1, max: 1 };

    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let named = core.name_mechanism(call, &self.mechanism);
        match named {
            Ok(()) => Step::Answer(offered(core)),
            // The mechanisms are told to who named another, and to nobody else.
            Err(Refused { then: Then::Closes, code, .. }) => Step::Last(offered(core).with_error_code(code.0)),
            Err(Refused { then: Then::Stays, code, .. }) => Step::Answer(refused(code)),
            Err(Refused { then: Then::Breaks, .. }) => Step::Close,
        }
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> SaslHandshakeResponse {
        refused(code)
    }

    fn throttle(_answer: &mut SaslHandshakeResponse, _ms: i32) {}
}

fn refused(code: ErrorCode) -> SaslHandshakeResponse {
    SaslHandshakeResponse::default().with_error_code(code.0)
}

fn offered(core: &Core) -> SaslHandshakeResponse {
    let mechanisms = core.settings.sasl.iter().flat_map(|sasl| &sasl.mechanisms);
    SaslHandshakeResponse::default().with_mechanisms(mechanisms.map(|it| text(it.name())).collect())
}
