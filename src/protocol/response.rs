//! Responses from bytes.
//!
//! ```text
//! | correlation id | tags (header v1) | body |
//! ```
//!
//! A body is decoded only after [`shape`](super::shape) has walked it: the decoder of `kafka-protocol` trusts the counts
//! and lengths that it reads.

use bytes::Bytes;
use kafka_protocol::protocol::{Decodable, HeaderVersion, Request};

use super::api::ApiKey;
use super::shape::{self, ShapeError};
use crate::error::BoxError;

/// The correlation id of a response: the first thing in it, whatever its API.
pub(crate) fn correlation_id(message: &[u8]) -> Result<i32, ResponseTooShort> {
    match message.first_chunk() {
        Some(id) => Ok(i32::from_be_bytes(*id)),
        None => Err(ResponseTooShort { bytes: message.len() }),
    }
}

/// Takes the header off a response to an `R` of this version: correlation id and body.
pub(crate) fn split_header<R: Request>(message: &Bytes, version: i16) -> Result<(i32, Bytes), DecodeError> {
    let api = ApiKey::of::<R>();
    let id =
        correlation_id(message).map_err(|short| DecodeError::NoCorrelationId { api, version, bytes: short.bytes })?;
    let body = message.slice(CORRELATION_ID_BYTES..);
    // ApiVersions answers with header version 0 always, so that a client which asked in a version that the broker does
    // not know can read the answer (KIP-511).
    if <R::Response as HeaderVersion>::header_version(version) == 0 {
        return Ok((id, body));
    }
    let tags = shape::tags_length(&body).map_err(|source| DecodeError::Malformed { api, version, source })?;
    Ok((id, body.slice(tags..)))
}

/// Decodes the body of a response to an `R` of this version.
pub(crate) fn decode_body<R: Request>(mut body: Bytes, version: i16) -> Result<R::Response, DecodeError> {
    let api = ApiKey::of::<R>();
    let walked =
        shape::check_response(api, version, &body).map_err(|source| DecodeError::Malformed { api, version, source })?;
    if walked < body.len() {
        return Err(DecodeError::TrailingBytes { api, version, position: walked, left_over: body.len() - walked });
    }
    let response = <R::Response as Decodable>::decode(&mut body, version)
        .map_err(|error| DecodeError::Undecodable { api, version, source: error.into() })?;
    if !body.is_empty() {
        let (position, left_over) = (walked - body.len(), body.len());
        return Err(DecodeError::TrailingBytes { api, version, position, left_over });
    }
    Ok(response)
}

/// Decodes a whole response to an `R` of this version: correlation id and body.
#[cfg(any(test, fuzzing))]
pub(crate) fn decode_response<R: Request>(message: &Bytes, version: i16) -> Result<(i32, R::Response), DecodeError> {
    let (id, body) = split_header::<R>(message, version)?;
    Ok((id, decode_body::<R>(body, version)?))
}

/// A message that is too short to be a response of any API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("response of {bytes} bytes has no correlation id")]
pub struct ResponseTooShort {
    /// Its length.
    pub bytes: usize,
}

/// A response whose bytes cannot be what they claim. The connection that brought it must be closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It ends within the correlation id.
    #[error("{api} response of version {version} has {bytes} bytes, no correlation id")]
    NoCorrelationId {
        /// The API that was asked.
        api: ApiKey,
        /// The version that was asked for.
        version: i16,
        /// Its length.
        bytes: usize,
    },
    /// A length or a count in it cannot be.
    #[error("malformed {api} response of version {version}: {source}")]
    Malformed {
        /// The API that was asked.
        api: ApiKey,
        /// The version that was asked for.
        version: i16,
        /// Where in the body, and what.
        source: ShapeError,
    },
    /// Its lengths are sound and yet the decoder refused it.
    #[error("cannot decode {api} response of version {version}: {source}")]
    Undecodable {
        /// The API that was asked.
        api: ApiKey,
        /// The version that was asked for.
        version: i16,
        /// What the decoder says.
        source: BoxError,
    },
    /// It goes on after its last field, so it is not of the version that was asked for.
    #[error("{api} response of version {version} ends at byte {position} of its body, {left_over} bytes are left")]
    TrailingBytes {
        /// The API that was asked.
        api: ApiKey,
        /// The version that was asked for.
        version: i16,
        /// Where the last field ends, from the start of the body.
        position: usize,
        /// How many bytes follow.
        left_over: usize,
    },
}

const CORRELATION_ID_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::{ApiVersionsRequest, HeartbeatRequest, MetadataRequest};

    #[test]
    fn header_tags_are_skipped_exactly() {
        let message = Bytes::from_static(b"\0\0\0\x09\x02\x00\x03abc\x81\x01\x00\0\0\0\x05\0\x1b\0");
        let (id, response) = decode_response::<HeartbeatRequest>(&message, 4).unwrap();
        assert_eq!((id, response.throttle_time_ms, response.error_code), (9, 5, 27));
    }

    #[test]
    fn api_versions_has_no_header_tags_in_any_version() {
        let message = Bytes::from_static(b"\0\0\0\x09\0\0\x01\0\0\0\0\0");
        let (id, response) = decode_response::<ApiVersionsRequest>(&message, 3).unwrap();
        assert_eq!((id, response.error_code, response.api_keys.len()), (9, 0, 0));
    }

    #[test]
    fn what_is_short_or_long_names_api_and_version() {
        let error = decode_response::<HeartbeatRequest>(&Bytes::from_static(b"\0\0"), 4).unwrap_err();
        assert_eq!(error.to_string(), "Heartbeat response of version 4 has 2 bytes, no correlation id");
        let error = decode_response::<HeartbeatRequest>(&Bytes::from_static(b"\0\0\0\x01\0\0\0"), 0).unwrap_err();
        assert_eq!(error.to_string(), "Heartbeat response of version 0 ends at byte 2 of its body, 1 bytes are left");
    }

    /// The nine bytes (after the correlation id and an empty tag section) with which a Metadata answer made the
    /// decoder ask for 412 GB, and the process abort.
    #[test]
    fn a_count_that_lies_is_an_error_and_not_an_allocation() {
        let message = Bytes::from_static(b"\0\0\0\x01\0\0\0\0\0\xff\xff\xff\xff\x0f");
        let error = decode_response::<MetadataRequest>(&message, 12).unwrap_err();
        assert!(error.to_string().contains("Brokers"), "{error}");
    }
}
