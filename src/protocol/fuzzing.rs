//! What the fuzz targets call: bytes into the decoders. Built only for fuzzing.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::*;

use super::api::{ApiKey, KNOWN_APIS, each_api};
use super::frame;
use super::response;
use super::shape::sample::{self, Random};
use super::sticky::StickyUserData;
use super::subscription::{Assignment, Subscription};

/// A stream that arrives in pieces: frames come out whole, and none is larger than the limit.
pub fn frame(bytes: &[u8]) {
    const MAX_FRAME_BYTES: usize = 1 << 12;
    let Some((&piece, stream)) = bytes.split_first() else { return };
    let mut buffer = BytesMut::new();
    let mut taken = 0;
    for piece in stream.chunks(usize::from(piece).max(1)) {
        buffer.extend_from_slice(piece);
        loop {
            match frame::take_message(&mut buffer, MAX_FRAME_BYTES) {
                Ok(Some(message)) => {
                    assert!(message.len() <= MAX_FRAME_BYTES);
                    taken += frame::PREFIX_BYTES + message.len();
                    let _ = response::correlation_id(&message);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    assert_eq!(taken + buffer.len(), stream.len(), "bytes were lost or made up");
}

/// An answer of an API and version that the first bytes choose. The rest is the message, or, where they choose so,
/// patches to a sound one.
pub fn message(bytes: &[u8]) -> (ApiKey, i16, Bytes) {
    let (choices, rest) = bytes.split_first_chunk().unwrap_or((&[0; 3], &[]));
    let [api, version, mode] = *choices;
    let known = &KNOWN_APIS[usize::from(api) % KNOWN_APIS.len()];
    let versions = known.versions;
    let version = versions.min + i16::from(version) % (versions.max - versions.min + 1);
    let message = match mode {
        0..=127 => rest.to_vec(),
        _ => patched(known.key, version, rest),
    };
    (known.key, version, message.into())
}

/// The answer as the client reads it.
pub fn response(api: ApiKey, version: i16, message: Bytes) {
    decode(api, version, message);
}

/// What members of a group send each other.
pub fn membership(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    if let Ok(subscription) = Subscription::decode(&bytes) {
        let again = subscription.encode(Subscription::NEWEST_VERSION).expect("what was read can be written");
        let topics = Subscription::decode(&again).expect("what was written can be read").topics;
        assert_eq!(topics, subscription.topics);
    }
    if let Ok(assignment) = Assignment::decode(&bytes) {
        let again = assignment.encode(Assignment::NEWEST_VERSION).expect("what was read can be written");
        let again = Assignment::decode(&again).expect("what was written can be read");
        assert_eq!(again.partitions.len(), assignment.partitions.len());
    }
    if let Ok(held) = StickyUserData::decode(&bytes) {
        let again = StickyUserData::encode(&held.partitions, held.generation.unwrap_or(-1));
        let again = StickyUserData::decode(&again).expect("what was written can be read");
        assert_eq!((again.partitions.len(), again.generation), (held.partitions.len(), held.generation));
    }
}

/// A sound message with a few of its bytes overwritten: eight bytes choose the message, then each four say where and what.
fn patched(api: ApiKey, version: i16, choices: &[u8]) -> Vec<u8> {
    let (seed, patches) =
        choices.split_first_chunk().map_or((0, choices), |(seed, rest)| (u64::from_be_bytes(*seed), rest));
    let mut message = vec![0; 4];
    if tags_in_header(api, version) {
        message.push(0);
    }
    message.extend(sample::response(api, version, &mut Random::with_unknown_tags(seed)));
    for patch in patches.chunks_exact(4) {
        let at = usize::from(u16::from_be_bytes([patch[0], patch[1]])) % message.len();
        match patch[2] % 4 {
            0 => message[at] = patch[3],
            1 => message.truncate(at.max(4)),
            2 => message.insert(at, patch[3]),
            _ => message[at] ^= 1 << (patch[3] % 8),
        }
    }
    message
}

macro_rules! by_key {
    ($($name:ident: $request:ty,)*) => {
        fn decode(api: ApiKey, version: i16, message: Bytes) {
            $(if api == ApiKey::of::<$request>() {
                if let Err(error) = response::decode_response::<$request>(&message, version) {
                    // The walk and the decoder must agree: what the one lets pass the other can read.
                    assert!(!matches!(error, response::DecodeError::Undecodable { .. }), "{error}");
                    let _ = error.to_string();
                }
                return;
            })*
        }

        fn tags_in_header(api: ApiKey, version: i16) -> bool {
            use kafka_protocol::protocol::{HeaderVersion, Request};
            $(if api == ApiKey::of::<$request>() {
                return <<$request as Request>::Response as HeaderVersion>::header_version(version) > 0;
            })*
            false
        }
    };
}
each_api!(by_key);
