//! Requests to bytes.
//!
//! ```text
//! | length | api key | api version | correlation id | client id | tags (header v2) | body |
//! '------------------------------- head --------------------------------------------'
//! ```
//!
//! Body and head are made apart: the body by whoever asks, the head by the connection, which alone knows the next
//! correlation id when the bytes leave. A body may consist of segments that were encoded elsewhere (record batches),
//! so that they are not copied again.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{HeaderVersion, Request};

use super::api::ApiKey;
use super::frame::PREFIX_BYTES;
use crate::error::BoxError;

/// A request's body, encoded, and what its head must say.
#[derive(Debug, Clone)]
pub(crate) struct EncodedRequest {
    api: ApiKey,
    version: i16,
    header_version: i16,
    segments: Vec<Bytes>,
    body_bytes: usize,
}

impl EncodedRequest {
    /// Encodes `request` in this version.
    ///
    /// # Errors
    ///
    /// When the version has no place for a field that is set, or a field is too long for the wire.
    pub(crate) fn new<R: Request>(request: &R, version: i16) -> Result<Self, EncodeError> {
        let refused = |source: BoxError| EncodeError::Field { api: ApiKey::of::<R>(), version, source };
        let size = request.compute_size(version).map_err(|error| refused(error.into()))?;
        let mut body = BytesMut::with_capacity(size);
        request.encode(&mut body, version).map_err(|error| refused(error.into()))?;
        Self::from_segments::<R>(version, vec![body.freeze()])
    }

    /// A body that was encoded by hand: the segments, one after the other, are the body of `R` in this version.
    pub(crate) fn from_segments<R: Request>(version: i16, segments: Vec<Bytes>) -> Result<Self, EncodeError> {
        let api = ApiKey::of::<R>();
        let body_bytes = segments.iter().map(Bytes::len).sum();
        if body_bytes > MAX_BODY_BYTES {
            return Err(EncodeError::TooLarge { api, version, body_bytes });
        }
        let header_version = <R as HeaderVersion>::header_version(version);
        Ok(Self { api, version, header_version, segments, body_bytes })
    }

    /// The API it belongs to.
    pub(crate) fn api(&self) -> ApiKey {
        self.api
    }

    /// The version it is encoded in; its response comes in the same.
    pub(crate) fn version(&self) -> i16 {
        self.version
    }

    /// The length of the body.
    pub(crate) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// The body, in pieces to be written one after the other.
    pub(crate) fn into_segments(self) -> Vec<Bytes> {
        self.segments
    }

    /// Writes frame length and request header; the body's segments follow it on the wire.
    pub(crate) fn put_head(&self, head: &mut BytesMut, correlation_id: i32, client_id: &ClientId) {
        let tags = usize::from(self.header_version >= 2);
        let length = FIXED_HEADER_BYTES + client_id.encoded.len() + tags + self.body_bytes;
        head.reserve(PREFIX_BYTES + FIXED_HEADER_BYTES + client_id.encoded.len() + tags);
        head.put_i32(i32::try_from(length).expect("body and client id are bounded so that the sum fits"));
        head.put_i16(self.api.0);
        head.put_i16(self.version);
        head.put_i32(correlation_id);
        head.put_slice(&client_id.encoded);
        head.put_bytes(0, tags);
    }
}

/// Encodes a whole frame: length, header, body.
#[cfg(test)]
pub(crate) fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: &ClientId,
) -> Result<Bytes, EncodeError> {
    let request = EncodedRequest::new(request, version)?;
    let mut frame = BytesMut::new();
    request.put_head(&mut frame, correlation_id, client_id);
    for segment in &request.segments {
        frame.extend_from_slice(segment);
    }
    Ok(frame.freeze())
}

/// The name a client gives itself in each request, in the form of the header: nullable, its length in 16 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientId {
    encoded: Bytes,
}

impl ClientId {
    /// No name; brokers log an empty one.
    pub(crate) fn none() -> Self {
        Self { encoded: Bytes::from_static(&[0xff, 0xff]) }
    }

    /// # Errors
    ///
    /// When the name is longer than the 32,767 bytes that a header can say.
    pub(crate) fn new(name: &str) -> Result<Self, EncodeError> {
        let length = i16::try_from(name.len()).map_err(|_| EncodeError::ClientIdTooLong { bytes: name.len() })?;
        let mut encoded = BytesMut::with_capacity(2 + name.len());
        encoded.put_i16(length);
        encoded.put_slice(name.as_bytes());
        Ok(Self { encoded: encoded.freeze() })
    }
}

/// A request that cannot be put on the wire.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A field does not fit the version, or the wire.
    #[error("cannot encode {api} request in version {version}: {source}")]
    Field {
        /// The API.
        api: ApiKey,
        /// The version that was asked for.
        version: i16,
        /// What the encoder says of the field.
        source: BoxError,
    },
    /// The body is larger than a frame can be.
    #[error("{api} request in version {version} has a body of {body_bytes} bytes, more than a frame holds")]
    TooLarge {
        /// The API.
        api: ApiKey,
        /// The version that was asked for.
        version: i16,
        /// The body's length.
        body_bytes: usize,
    },
    /// The client id is longer than a header can say.
    #[error("client id of {bytes} bytes is longer than 32767")]
    ClientIdTooLong {
        /// Its length.
        bytes: usize,
    },
}

/// Key, version and correlation id.
const FIXED_HEADER_BYTES: usize = 2 + 2 + 4;
/// The longest head: fixed part, the longest client id with its length, an empty tag section.
const MAX_HEAD_BYTES: usize = FIXED_HEADER_BYTES + 2 + i16::MAX as usize + 1;
/// The frame's length is a positive 32-bit number.
const MAX_BODY_BYTES: usize = i32::MAX as usize - MAX_HEAD_BYTES;

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::{ApiVersionsRequest, FindCoordinatorRequest, HeartbeatRequest, ProduceRequest};
    use kafka_protocol::protocol::StrBytes;

    #[test]
    fn header_version_follows_the_api_and_its_version() {
        let client = ClientId::new("me").unwrap();
        let old = encode_request(&HeartbeatRequest::default(), 3, 7, &client).unwrap();
        assert_eq!(&old[..16], b"\0\0\0\x16\0\x0c\0\x03\0\0\0\x07\0\x02me", "no tags before the flexible versions");
        assert_eq!(old.len(), 4 + 0x16);
        let new = encode_request(&HeartbeatRequest::default(), 4, -1, &client).unwrap();
        assert_eq!(&new[4..17], b"\0\x0c\0\x04\xff\xff\xff\xff\0\x02me\0", "one empty tag section");
    }

    #[test]
    fn a_missing_client_id_is_null_and_the_api_versions_header_is_flexible_from_three() {
        let frame = encode_request(&ApiVersionsRequest::default(), 0, 1, &ClientId::none()).unwrap();
        assert_eq!(&frame[..], b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff");
        let frame = encode_request(&ApiVersionsRequest::default(), 3, 1, &ClientId::none()).unwrap();
        assert_eq!(&frame[..], b"\0\0\0\x0e\0\x12\0\x03\0\0\0\x01\xff\xff\0\x01\x01\0");
    }

    #[test]
    fn segments_count_towards_the_frame_without_a_copy() {
        let body = [Bytes::from_static(b"front"), Bytes::from(vec![7; 300])];
        let request = EncodedRequest::from_segments::<ProduceRequest>(9, body.to_vec()).unwrap();
        let mut head = BytesMut::new();
        request.put_head(&mut head, 2, &ClientId::none());
        assert_eq!(&head[..], [&[0, 0, 1, 60][..], &[0, 0, 0, 9, 0, 0, 0, 2, 0xff, 0xff, 0]].concat());
        assert_eq!(request.body_bytes(), 305);
        let segments = request.into_segments();
        assert_eq!(segments[1].as_ptr(), body[1].as_ptr());
    }

    #[test]
    fn what_a_version_cannot_say_is_refused_with_its_name() {
        let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![StrBytes::from_static_str("g")]);
        let error = encode_request(&request, 3, 1, &ClientId::none()).unwrap_err();
        assert!(error.to_string().starts_with("cannot encode FindCoordinator request in version 3: "), "{error}");
        let error = ClientId::new(&"x".repeat(40_000)).unwrap_err();
        assert_eq!(error.to_string(), "client id of 40000 bytes is longer than 32767");
    }
}
