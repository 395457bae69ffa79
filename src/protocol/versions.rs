//! Which version of each API a connection speaks.
//!
//! ```text
//!            v4 ──UNSUPPORTED_VERSION: the broker's own range──▶ v3 … v0 ──answer──▶ NegotiatedVersions
//!             └──the connection is reset──▶ v3 ──▶ v0
//! ```
//!
//! A client asks with `ApiVersions` in its newest version. A broker that does not know that version answers in the form of
//! version 0 and says which it knows (KIP-511). Azure Event Hubs resets the connection instead, so after a reset the
//! next connection asks in an older version (franz-go 1.19.4).

use bytes::Bytes;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Request, StrBytes};

use super::api::{ApiKey, KNOWN_APIS, VersionRange};
use super::error_code::ErrorCode;
use super::response::{self, DecodeError};

/// What a broker said it can do, and the version of each API that follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegotiatedVersions {
    /// The broker's range for each API of [`KNOWN_APIS`], in that order.
    broker: Vec<Option<VersionRange>>,
    supported_features: Vec<SupportedFeature>,
    finalized_features: Vec<FinalizedFeature>,
    finalized_features_epoch: Option<i64>,
}

impl NegotiatedVersions {
    /// Takes in a successful answer.
    pub(crate) fn new(response: &ApiVersionsResponse) -> Self {
        let broker = KNOWN_APIS
            .iter()
            .map(|known| response.api_keys.iter().find(|api| api.api_key == known.key.0))
            .map(|found| found.map(|api| VersionRange { min: api.min_version, max: api.max_version }))
            .collect();
        Self {
            broker,
            supported_features: response.supported_features.iter().map(SupportedFeature::from).collect(),
            finalized_features: response.finalized_features.iter().map(FinalizedFeature::from).collect(),
            finalized_features_epoch: (response.finalized_features_epoch >= 0)
                .then_some(response.finalized_features_epoch),
        }
    }

    /// The version to speak: the highest that both sides know.
    ///
    /// # Errors
    ///
    /// When there is none, naming both ranges.
    pub fn choose(&self, api: ApiKey) -> Result<i16, UnsupportedVersion> {
        self.choose_up_to(api, i16::MAX)
    }

    /// The version to speak where the caller cannot use those above `max`.
    ///
    /// # Errors
    ///
    /// As [`choose`](Self::choose); the range that is named as ours ends at `max`.
    pub fn choose_up_to(&self, api: ApiKey, max: i16) -> Result<i16, UnsupportedVersion> {
        let ours = api.versions().map(|known| VersionRange { max: known.max.min(max), ..known });
        let broker = self.broker_range(api);
        ours.zip(broker).and_then(|(ours, broker)| ours.highest_common(broker)).ok_or(UnsupportedVersion {
            api,
            ours,
            broker,
        })
    }

    /// The range that the broker named for `api`, of those that this client speaks.
    pub fn broker_range(&self, api: ApiKey) -> Option<VersionRange> {
        let at = KNOWN_APIS.binary_search_by_key(&api, |known| known.key).ok()?;
        self.broker[at]
    }

    /// Features that the broker is able to run.
    pub fn supported_features(&self) -> &[SupportedFeature] {
        &self.supported_features
    }

    /// Features that the cluster has switched on, and the levels they run at.
    pub fn finalized_features(&self) -> &[FinalizedFeature] {
        &self.finalized_features
    }

    /// How new the finalized features are; they are unknown without it.
    pub fn finalized_features_epoch(&self) -> Option<i64> {
        self.finalized_features_epoch
    }
}

/// A feature that a broker is able to run (KIP-584).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupportedFeature {
    /// Its name, such as `transaction.version`.
    pub name: String,
    /// The levels it can run at.
    pub levels: VersionRange,
}

impl From<&kafka_protocol::messages::api_versions_response::SupportedFeatureKey> for SupportedFeature {
    fn from(key: &kafka_protocol::messages::api_versions_response::SupportedFeatureKey) -> Self {
        Self { name: key.name.to_string(), levels: VersionRange { min: key.min_version, max: key.max_version } }
    }
}

/// A feature that a cluster has switched on (KIP-584).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalizedFeature {
    /// Its name, such as `transaction.version`.
    pub name: String,
    /// The levels that every broker of the cluster runs it at.
    pub levels: VersionRange,
}

impl From<&kafka_protocol::messages::api_versions_response::FinalizedFeatureKey> for FinalizedFeature {
    fn from(key: &kafka_protocol::messages::api_versions_response::FinalizedFeatureKey) -> Self {
        let levels = VersionRange { min: key.min_version_level, max: key.max_version_level };
        Self { name: key.name.to_string(), levels }
    }
}

/// A client and a broker that have no version of an API in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedVersion {
    /// The API.
    pub api: ApiKey,
    /// What this client speaks, or can use here.
    pub ours: Option<VersionRange>,
    /// What the broker speaks; nothing where it does not have the API at all.
    pub broker: Option<VersionRange>,
}

impl std::error::Error for UnsupportedVersion {}

impl std::fmt::Display for UnsupportedVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.ours, self.broker) {
            (Some(ours), Some(broker)) => {
                write!(f, "no common version of {}: client {ours}, broker {broker}", self.api)
            }
            (Some(ours), None) => write!(f, "the broker does not have {} (client speaks {ours})", self.api),
            (None, _) => write!(f, "the client does not speak {}", self.api),
        }
    }
}

/// Finds the version in which a broker answers `ApiVersions`. Kept over reconnects to the same broker.
#[derive(Debug, Clone)]
pub(crate) struct VersionProbe {
    version: i16,
}

impl VersionProbe {
    /// Starts with the newest version.
    pub(crate) fn new() -> Self {
        Self { version: newest_probe() }
    }

    /// The version to ask in now.
    pub(crate) fn version(&self) -> i16 {
        self.version
    }

    /// What to ask. Names this client and its version, which brokers log and count (KIP-511).
    pub(crate) fn request(&self) -> ApiVersionsRequest {
        let request = ApiVersionsRequest::default();
        if self.version < FIRST_WITH_SOFTWARE_NAME {
            return request;
        }
        request
            .with_client_software_name(StrBytes::from_static_str(SOFTWARE_NAME))
            .with_client_software_version(StrBytes::from_static_str(SOFTWARE_VERSION))
    }

    /// Takes in the answer to the last request.
    pub(crate) fn handle_response(&mut self, message: &Bytes) -> Result<ProbeAnswer, DecodeError> {
        let (_, body) = response::split_header::<ApiVersionsRequest>(message, self.version)?;
        // Every version starts with the error code.
        let code = body.first_chunk().map_or(ErrorCode::NONE, |code| ErrorCode(i16::from_be_bytes(*code)));
        if code == ErrorCode::UNSUPPORTED_VERSION && self.version > 0 {
            let answer = response::decode_body::<ApiVersionsRequest>(body, 0)?;
            self.version = self.older_version(&answer);
            return Ok(ProbeAnswer::AskAgain);
        }
        let answer = response::decode_body::<ApiVersionsRequest>(body, self.version)?;
        Ok(match ErrorCode(answer.error_code).ok() {
            Ok(()) => ProbeAnswer::Negotiated(NegotiatedVersions::new(&answer)),
            Err(code) => ProbeAnswer::Refused { code },
        })
    }

    /// Steps down because the broker closed the connection instead of answering; `false` when there is no older form
    /// of the request left, and the closing has another cause.
    pub(crate) fn step_down_after_reset(&mut self) -> bool {
        // Below the flexible versions the requests are all alike, so there is nothing to gain from 2 and 1.
        let next = if self.version > FIRST_WITH_SOFTWARE_NAME { self.version - 1 } else { 0 };
        let stepped = next < self.version;
        self.version = next;
        stepped
    }

    /// The version to ask in next, from an answer in the form of version 0. Strictly older, so that asking ends.
    fn older_version(&self, answer: &ApiVersionsResponse) -> i16 {
        let named = answer.api_keys.iter().find(|api| api.api_key == ApiVersionsRequest::KEY);
        named.map_or(0, |api| api.max_version).clamp(0, self.version - 1)
    }
}

/// What became of a request for versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeAnswer {
    /// The broker answered; requests can be sent.
    Negotiated(NegotiatedVersions),
    /// The broker wants an older version: send [`VersionProbe::request`] again, on the same connection.
    AskAgain,
    /// The broker refused with this error code.
    Refused {
        /// The code.
        code: ErrorCode,
    },
}

fn newest_probe() -> i16 {
    ApiKey::of::<ApiVersionsRequest>().versions().expect("ApiVersions is in the table of known APIs").max
}

/// The name that this client gives itself.
pub(crate) const SOFTWARE_NAME: &str = "kafka-harbor";
/// The version that this client gives itself.
pub(crate) const SOFTWARE_VERSION: &str = env!("CARGO_PKG_VERSION");
const FIRST_WITH_SOFTWARE_NAME: i16 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{BufMut, BytesMut};
    use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey};
    use kafka_protocol::protocol::Encodable;

    fn answer(version: i16, response: &ApiVersionsResponse) -> Bytes {
        let mut message = BytesMut::new();
        message.put_i32(1);
        response.encode(&mut message, version).unwrap();
        message.freeze()
    }

    fn range(api_key: i16, min_version: i16, max_version: i16) -> ApiVersion {
        ApiVersion::default().with_api_key(api_key).with_min_version(min_version).with_max_version(max_version)
    }

    #[test]
    fn the_highest_version_that_both_know_is_spoken() {
        let response = ApiVersionsResponse::default()
            .with_api_keys(vec![range(0, 0, 9), range(1, 4, 99), range(3, 90, 99), range(900, 0, 1)])
            .with_finalized_features_epoch(3)
            .with_finalized_features(vec![
                FinalizedFeatureKey::default()
                    .with_name(StrBytes::from_static_str("transaction.version"))
                    .with_max_version_level(2),
            ]);
        let ProbeAnswer::Negotiated(versions) = VersionProbe::new().handle_response(&answer(4, &response)).unwrap()
        else {
            panic!("expected versions")
        };
        assert_eq!(versions.choose(ApiKey(0)), Ok(9));
        assert_eq!(versions.choose(ApiKey(1)), Ok(18));
        assert_eq!(versions.choose_up_to(ApiKey(1), 12), Ok(12));
        assert_eq!(
            versions.choose(ApiKey(3)).unwrap_err().to_string(),
            "no common version of Metadata: client 0 to 13, broker 90 to 99"
        );
        assert_eq!(
            versions.choose(ApiKey(8)).unwrap_err().to_string(),
            "the broker does not have OffsetCommit (client speaks 2 to 9)"
        );
        assert_eq!(versions.choose(ApiKey(900)).unwrap_err().to_string(), "the client does not speak api 900");
        assert_eq!(versions.finalized_features()[0].levels, VersionRange { min: 0, max: 2 });
        assert_eq!(versions.finalized_features_epoch(), Some(3));
    }

    #[test]
    fn an_unsupported_version_is_answered_in_the_oldest_form_and_asked_again_in_the_brokers() {
        let mut probe = VersionProbe::new();
        let refusal = ApiVersionsResponse::default().with_error_code(35).with_api_keys(vec![range(18, 0, 3)]);
        assert_eq!(probe.handle_response(&answer(0, &refusal)).unwrap(), ProbeAnswer::AskAgain);
        assert_eq!(probe.version(), 3);

        let bare = ApiVersionsResponse::default().with_error_code(35);
        assert_eq!(probe.handle_response(&answer(0, &bare)).unwrap(), ProbeAnswer::AskAgain);
        assert_eq!(probe.version(), 0);
        assert_eq!(probe.request(), ApiVersionsRequest::default());

        let refused = probe.handle_response(&answer(0, &bare)).unwrap();
        assert_eq!(refused, ProbeAnswer::Refused { code: ErrorCode::UNSUPPORTED_VERSION });
    }

    /// A broker that refuses a version and names it as its newest must not be asked for ever.
    #[test]
    fn asking_ends_with_a_broker_that_contradicts_itself() {
        let mut probe = VersionProbe::new();
        let refusal = ApiVersionsResponse::default().with_error_code(35).with_api_keys(vec![range(18, 0, 4)]);
        let asked =
            (0..10).take_while(|_| probe.handle_response(&answer(0, &refusal)).unwrap() == ProbeAnswer::AskAgain);
        assert_eq!(asked.count(), 4);
    }

    /// Azure Event Hubs closes the connection on version 4 and answers version 3.
    #[test]
    fn a_reset_steps_down_until_nothing_older_is_left() {
        let mut probe = VersionProbe::new();
        let mut versions = vec![probe.version()];
        while probe.step_down_after_reset() {
            versions.push(probe.version());
        }
        assert_eq!(versions, [4, 3, 0]);
        assert!(!probe.step_down_after_reset());
    }

    #[test]
    fn other_refusals_keep_their_code() {
        let refusal = ApiVersionsResponse::default().with_error_code(42);
        let answer = VersionProbe::new().handle_response(&answer(4, &refusal)).unwrap();
        assert_eq!(answer, ProbeAnswer::Refused { code: ErrorCode(42) });
    }

    /// Brokers refuse a name or version that does not match `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?`.
    #[test]
    fn brokers_accept_what_the_client_calls_itself() {
        for text in [SOFTWARE_NAME, SOFTWARE_VERSION] {
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')), "{text}");
            let ends = [text.bytes().next().unwrap(), text.bytes().last().unwrap()];
            assert!(ends.iter().all(u8::is_ascii_alphanumeric), "{text}");
        }
    }
}
