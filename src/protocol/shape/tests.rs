use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, Request};
use proptest::prelude::*;

use super::sample::{self, Random};
use super::*;
use crate::protocol::api::{ApiKey, KNOWN_APIS, each_api};
use crate::protocol::response;

/// Decodes with kafka-protocol, and encodes what came of it.
struct Codec {
    api: ApiKey,
    request: fn(Bytes, i16) -> Result<Vec<u8>, String>,
    response: fn(Bytes, i16) -> Result<Vec<u8>, String>,
    /// Decodes a response and drops it.
    read_response: fn(Bytes, i16),
}

fn recode<M: Encodable + Decodable>(mut body: Bytes, version: i16) -> Result<Vec<u8>, String> {
    let message = M::decode(&mut body, version).map_err(|error| error.to_string())?;
    if !body.is_empty() {
        return Err(format!("{} bytes are left over", body.len()));
    }
    let mut out = Vec::new();
    message.encode(&mut out, version).map_err(|error| error.to_string())?;
    Ok(out)
}

fn read<M: Decodable>(mut body: Bytes, version: i16) {
    drop(M::decode(&mut body, version));
}

macro_rules! codecs {
    ($($name:ident: $request:ty,)*) => {
        &[$(Codec {
            api: ApiKey::of::<$request>(),
            request: recode::<$request>,
            response: recode::<<$request as Request>::Response>,
            read_response: read::<<$request as Request>::Response>,
        },)*]
    };
}

const CODECS: &[Codec] = each_api!(codecs);

fn each_version(mut check: impl FnMut(&Codec, i16)) {
    for (codec, known) in CODECS.iter().zip(KNOWN_APIS) {
        assert_eq!(codec.api, known.key);
        for version in known.versions.min..=known.versions.max {
            check(codec, version);
        }
    }
}

#[test]
fn the_tables_have_every_known_api_in_the_known_versions() {
    for table in [responses::RESPONSES, requests::REQUESTS] {
        let rows: Vec<_> = table.iter().map(|message| (message.api, message.min, message.max)).collect();
        let known: Vec<_> = KNOWN_APIS.iter().map(|api| (api.key.0, api.versions.min, api.versions.max)).collect();
        assert_eq!(rows, known);
    }
}

/// kafka-protocol was generated from the schemas of another Kafka: whatever the table says, it must agree to.
#[test]
fn what_the_table_describes_is_what_kafka_protocol_reads() {
    let mut messages = 0;
    each_version(|codec, version| {
        for seed in 0..40 {
            let mut random = Random::with_unknown_tags(seed);
            random.most_tags = (seed % 3) as u32;
            let of = format!("{} version {version} seed {seed}", codec.api);

            let body = sample::response(codec.api, version, &mut random);
            assert_eq!(check_response(codec.api, version, &body), Ok(body.len()), "response {of}");
            let again = (codec.response)(body.clone().into(), version).unwrap_or_else(|e| panic!("response {of}: {e}"));
            assert_eq!(check_response(codec.api, version, &again), Ok(again.len()), "response {of} encoded again");
            assert!(same_but_for_defaults(&body, &again), "response {of}");

            let body = sample::request(codec.api, version, &mut random);
            assert_eq!(check_request(codec.api, version, &body), Ok(body.len()), "request {of}");
            let again = (codec.request)(body.clone().into(), version).unwrap_or_else(|e| panic!("request {of}: {e}"));
            assert_eq!(check_request(codec.api, version, &again), Ok(again.len()), "request {of} encoded again");
            assert!(same_but_for_defaults(&body, &again), "request {of}");
            messages += 2;
        }
    });
    assert!(messages > 10_000, "only {messages} messages were looked at");
}

/// A tagged field that has its default is not written again.
fn same_but_for_defaults(body: &[u8], again: &[u8]) -> bool {
    body == again || again.len() < body.len()
}

/// No element of an array is empty on the wire, so a count cannot keep the walk busy beyond the body's length.
#[test]
fn every_element_takes_a_byte() {
    fn smallest(kind: &Kind, version: i16, flexible: bool) -> usize {
        match kind {
            Kind::Fixed(bytes) => *bytes,
            Kind::Text | Kind::Bytes | Kind::Array(_) => 1,
            Kind::Nested(structure) => {
                let fields = structure.fields.iter().filter(|field| field.tag < 0 && field.is_in(version));
                usize::from(flexible) + fields.map(|field| smallest(&field.kind, version, flexible)).sum::<usize>()
            }
        }
    }
    fn check(structure: &Struct, version: i16, flexible: bool) {
        for field in structure.fields.iter().filter(|field| field.is_in(version)) {
            let mut kind = &field.kind;
            while let Kind::Array(element) = kind {
                assert!(smallest(element, version, flexible) > 0, "{}", field.name);
                kind = element;
            }
            if let Kind::Nested(nested) = kind {
                check(nested, version, flexible);
            }
        }
    }
    for message in responses::RESPONSES.iter().chain(requests::REQUESTS) {
        for version in message.min..=message.max {
            check(message.body, version, version >= message.flexible);
        }
    }
}

/// The walk's sum is what the decoder takes from the allocator, or more.
#[test]
fn the_decoder_takes_no_more_memory_than_the_walk_says() {
    each_version(|codec, version| {
        for seed in 0..20 {
            let mut random = Random::with_unknown_tags(seed);
            let body = sample::response(codec.api, version, &mut random);
            let walked = walk(responses::RESPONSES, codec.api, version, &body).unwrap().memory;
            let body = Bytes::from(body);
            let taken = decoding_takes(codec, &body, version);
            assert!(taken <= walked, "{} version {version}: {taken} bytes, {walked} walked", codec.api);
        }
    });
}

fn decoding_takes(codec: &Codec, body: &Bytes, version: i16) -> usize {
    let body = body.clone();
    let taken = allocation_counter::measure(|| (codec.read_response)(body, version));
    usize::try_from(taken.bytes_max).unwrap()
}

/// Each offset of each message in turn is overwritten with a length that lies. Whatever comes of it, the decoder is not
/// asked to read it unless it is sound, and then takes no more than the limit.
#[test]
fn no_lie_makes_the_decoder_take_more_than_the_limit() {
    let mut accepted = 0;
    each_version(|codec, version| {
        let body = sample::response(codec.api, version, &mut Random::new(7));
        for lie in
            [&b"\x7f\xff\xff\xff"[..], b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\xff", b"\x00\xff", b"\x80"]
        {
            for at in 0..=body.len() {
                let mut bytes = body[..at].to_vec();
                bytes.extend_from_slice(lie);
                bytes.extend(body.iter().skip(at + lie.len()));
                if check_response(codec.api, version, &bytes) != Ok(bytes.len()) {
                    continue;
                }
                accepted += 1;
                let limit = memory_limit(bytes.len());
                let bytes = Bytes::from(bytes);
                let taken = decoding_takes(codec, &bytes, version);
                assert!(taken <= limit, "{} version {version} at {at}: {taken} bytes", codec.api);
                (codec.response)(bytes, version).unwrap_or_else(|e| panic!("{} {version} at {at}: {e}", codec.api));
            }
        }
    });
    assert!(accepted > 1000, "only {accepted} of the lies were sound");
}

/// A sound answer of many small elements: each becomes a struct, and its unknown tag a tree node of 400 bytes.
#[test]
fn a_sound_body_that_expands_too_far_is_refused() {
    let api_versions = ApiKey::of::<ApiVersionsRequest>();
    let elements = |tags: &[u8]| {
        // 12,900 elements, as a varint of one more.
        let mut body = vec![0, 0, 0x80 | 0x65, 100];
        body.extend([&[0, 1, 0, 0, 0, 9], tags].concat().repeat(12_900));
        body.extend([0, 0, 0, 0, 0]);
        body
    };
    let plain = elements(&[0]);
    assert_eq!(check_response(api_versions, 3, &plain), Ok(plain.len()));
    let error = check_response(api_versions, 3, &elements(&[1, 0, 0])).unwrap_err();
    assert!(matches!(error.fault(), Fault::Expands { .. }), "{error}");
    assert!(error.field().starts_with("ApiKeys["), "{error}");
    // A count that is refused before its elements are looked at.
    let body = [&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x01][..], &[0; 5 << 20]].concat();
    let error = check_response(ApiKey::of::<MetadataRequest>(), 9, &body).unwrap_err();
    assert!(matches!(error.fault(), Fault::Expands { limit, .. } if limit > 4 << 25), "{error}");
    assert_eq!((error.field().as_str(), error.position()), ("Topics", 10));
}

#[test]
fn large_bodies_may_grow_less_than_small_ones() {
    assert_eq!(memory_limit(0), SMALL_BODY_MEMORY);
    assert_eq!(memory_limit(1 << 20), (1 << 20) * MAX_EXPANSION + SMALL_BODY_MEMORY);
    assert_eq!(memory_limit(16 << 20), LARGE_BODY_MEMORY);
    assert_eq!(memory_limit(100 << 20), 400 << 20);
    assert_eq!(memory_limit(usize::MAX), usize::MAX);
}

#[test]
fn an_error_names_position_and_field() {
    let metadata = ApiKey::of::<MetadataRequest>();
    let refused = |version, body: &[u8]| check_response(metadata, version, body).unwrap_err().to_string();
    let broker: &[u8] = b"\0\0\0\x01\0\0\0\x01\0\x01h\0\0";
    assert_eq!(refused(0, broker), "4 bytes are needed and 2 are left, at byte 11 in Brokers[0].Port");
    assert_eq!(refused(0, b"\xff\xff\xff\xff"), "null is not allowed, at byte 0 in Brokers");
    assert_eq!(refused(0, b"\x80\0\0\0"), "the length is -2147483648, at byte 0 in Brokers");
    assert_eq!(refused(0, b"\0\0\0\x01\0\0\0\x01\0\x01\xff"), "the string is not UTF-8, at byte 8 in Brokers[0].Host");
    assert_eq!(refused(9, b"\0\0\0\0\0"), "null is not allowed, at byte 4 in Brokers");
    assert_eq!(refused(9, b"\0\0\0\0\xff\xff\xff\xff\x10"), "the varint is too long, at byte 4 in Brokers");
    assert_eq!(refused(9, b"\0\0\0\0\x80\x80\x80\x80\x80\x01"), "the varint is too long, at byte 4 in Brokers");
    assert_eq!(refused(14, b""), "the client does not speak this version, at byte 0");
    let unknown = check_response(ApiKey(999), 0, b"").unwrap_err();
    assert_eq!((unknown.fault(), unknown.field()), (Fault::NotInTable, String::new()));
}

/// kafka-protocol reads a tagged field that it knows without a look at its size, and what follows from wherever it ended.
#[test]
fn a_known_tagged_field_must_have_its_stated_size() {
    let fetch = ApiKey::of::<FetchRequest>();
    let mut body = b"\0\0\0\0\0\0\0\0\0\0\x01\x01\x00\x02\x01\0".to_vec();
    let error = check_response(fetch, 16, &body).unwrap_err();
    assert_eq!(error.to_string(), "the tagged field says 2 bytes and holds 1, at byte 14 in NodeEndpoints");
    body[13] = 1;
    body.truncate(15);
    assert_eq!(check_response(fetch, 16, &body), Ok(15));
}

#[test]
fn a_struct_that_may_be_missing_says_so_in_its_first_byte() {
    let heartbeat = ApiKey::of::<ConsumerGroupHeartbeatRequest>();
    let front: &[u8] = &[0; 4 + 2 + 1 + 1 + 4 + 4];
    let with = |tail: &[u8]| check_response(heartbeat, 0, &[front, tail].concat());
    assert_eq!(with(b"\xff\0"), Ok(front.len() + 2));
    assert_eq!(with(b"\x01\x01\0\0"), Ok(front.len() + 4));
    assert_eq!(with(b"\x02\0").unwrap_err().fault(), Fault::NotAPresence { byte: 2 });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Skipping unknown tagged fields moved the cursor wrongly in librdkafka#4278 and elsewhere.
    #[test]
    fn unknown_tagged_fields_anywhere_are_skipped_exactly(place in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let flexible: Vec<&Message> =
            responses::RESPONSES.iter().filter(|message| message.flexible <= message.max).collect();
        let message = place.get(&flexible);
        let oldest = message.flexible.max(message.min);
        let version = oldest + (seed % (message.max - oldest + 1) as u64) as i16;
        let api = ApiKey(message.api);
        let body = sample::response(api, version, &mut Random::with_unknown_tags(seed));
        prop_assert_eq!(check_response(api, version, &body), Ok(body.len()));
        let codec = CODECS.iter().find(|codec| codec.api == api).unwrap();
        let again = (codec.response)(body.clone().into(), version).map_err(TestCaseError::fail)?;
        prop_assert!(same_but_for_defaults(&body, &again));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(
        place in any::<prop::sample::Index>(),
        version in 0..20_i16,
        bytes in prop::collection::vec(prop_oneof![Just(0), Just(1), Just(2), Just(255), any::<u8>()], 0..80),
    ) {
        let codec = place.get(CODECS);
        if check_response(codec.api, version, &bytes) == Ok(bytes.len()) {
            (codec.response)(bytes.into(), version).map_err(TestCaseError::fail)?;
        }
    }

    #[test]
    fn a_cut_message_is_refused_and_never_read_past_its_end(seed in any::<u64>(), place in any::<prop::sample::Index>()) {
        let known = place.get(KNOWN_APIS);
        let version = known.versions.max;
        let body = sample::response(known.key, version, &mut Random::new(seed));
        for end in 0..body.len() {
            prop_assert!(check_response(known.key, version, &body[..end]).is_err(), "{} at {}", known.name, end);
        }
    }
}

#[test]
fn a_header_with_many_tags_is_bounded() {
    let mut header = vec![0x80, 0x80, 0x40];
    header.extend((0..1 << 20).flat_map(|_| [0, 0]));
    assert!(matches!(tags_length(&header).unwrap_err().fault(), Fault::Expands { .. }));
    let message = Bytes::from([&[0; 4][..], &header].concat());
    assert!(response::split_header::<MetadataRequest>(&message, 9).is_err());
}
