//! ApiVersions: what is served, in which versions (KIP-35, KIP-511, KIP-584).

use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::{APIS, Api, Prepared, Serve, Served};
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;
use crate::testing::broker::call::{Call, Hostile, Step, encode};
use crate::testing::broker::core::{Core, text};

impl Serve for ApiVersionsRequest {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let named = [&self.client_software_name, &self.client_software_version];
        if call.version >= 3 && !named.iter().all(|name| is_software_name(name)) {
            return Step::Answer(refusal(ErrorCode::INVALID_REQUEST));
        }
        Step::Answer(answer(core))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ApiVersionsResponse {
        refusal(code)
    }

    fn throttle(answer: &mut ApiVersionsResponse, ms: i32) {
        answer.throttle_time_ms = ms;
    }
}

/// A version that is not served. The answer has the form of version 0, whatever was asked (KIP-511).
pub(super) struct UnknownVersion;

impl Prepared for UnknownVersion {
    fn names(&self, _core: &Core, _call: &Call) -> Vec<(Topic, i32)> {
        Vec::new()
    }

    fn serve(self: Box<Self>, core: &mut Core, call: Call) -> Result<Served, Hostile> {
        self.refuse(core, &call, ErrorCode::UNSUPPORTED_VERSION)
    }

    fn serve_and_refuse(self: Box<Self>, core: &mut Core, call: Call, _code: ErrorCode) -> Result<Served, Hostile> {
        self.serve(core, call)
    }

    fn refuse(self: Box<Self>, _core: &mut Core, call: &Call, code: ErrorCode) -> Result<Served, Hostile> {
        let own = APIS.iter().filter(|api| api.key == ApiKey::of::<ApiVersionsRequest>()).map(range);
        let answer = refusal(code).with_api_keys(own.collect());
        let frame = encode::<ApiVersionsRequest>(0, call.correlation_id, &answer);
        Ok(Served::Frame(frame.map_err(Hostile::Unencodable)?))
    }
}

fn answer(core: &Core) -> ApiVersionsResponse {
    let features = &core.settings.features;
    let supported = features.iter().map(|(name, level)| {
        SupportedFeatureKey::default().with_name(text(name)).with_min_version(0).with_max_version(*level)
    });
    let finalized = features.iter().map(|(name, level)| {
        FinalizedFeatureKey::default()
            .with_name(text(name))
            .with_min_version_level(*level)
            .with_max_version_level(*level)
    });
    ApiVersionsResponse::default()
        .with_api_keys(APIS.iter().map(range).collect())
        .with_supported_features(supported.collect())
        .with_finalized_features_epoch(1)
        .with_finalized_features(finalized.collect())
}

fn refusal(code: ErrorCode) -> ApiVersionsResponse {
    ApiVersionsResponse::default().with_error_code(code.0)
}

fn range(api: &Api) -> ApiVersion {
    ApiVersion::default().with_api_key(api.key.0).with_min_version(api.versions.min).with_max_version(api.versions.max)
}

/// `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?` (`ApiVersionsRequest.isValid`).
fn is_software_name(name: &str) -> bool {
    let inner = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    let ends = [name.bytes().next(), name.bytes().last()];
    inner && ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}
