use super::*;
use crate::protocol::shape::sample::{self, Random};
use crate::testing::broker::api::{APIS, Api};
use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::{ApiKey as Key, ApiVersionsRequest};

/// A request with this body.
pub(super) fn framed(api: &Api, version: i16, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i16(api.key.0);
    frame.put_i16(version);
    frame.put_i32(1);
    frame.put_i16(-1);
    if Key::try_from(api.key.0).expect("known").request_header_version(version) >= 2 {
        frame.put_u8(0);
    }
    frame.extend_from_slice(body);
    frame.freeze()
}

#[test]
fn what_no_client_sends_closes_the_connection() {
    for frame in [
        &b""[..],
        b"\0\x03\0\x01",
        b"\0\x03\0\x63\0\0\0\x01\xff\xff",
        b"\x7f\xff\0\0\0\0\0\x01\xff\xff",
        b"\0\x03\0\x01\0\0\0\x01\0\x05abc",
        b"\0\x03\0\x01\0\0\0\x01\0\x01\xff\0\0\0\0",
        // Nine bytes that ask for 412 GB.
        b"\0\x03\0\x0c\0\0\0\x01\xff\xff\0\xff\xff\xff\xff\x0f",
        // More than the version has.
        b"\0\x03\0\x01\0\0\0\x01\xff\xff\0\0\0\0\0",
    ] {
        let mut rig = Rig::new(1);
        let connection = rig.connect(1);
        rig.cluster.handle(connection, Bytes::from_static(frame), rig.now);
        assert!(rig.is_closed(connection), "{frame:?}");
        rig.cluster.handle(connection, Bytes::from_static(frame), rig.now);
    }
}

/// KIP-511.
#[test]
fn an_unknown_version_of_api_versions_is_answered_in_the_oldest_form() {
    let mut rig = Rig::new(1);
    let connection = rig.connect(1);
    rig.cluster.handle(connection, Bytes::from_static(b"\0\x12\0\x63\0\0\0\x07\xff\xff\0\x01\x02"), rig.now);
    let answer = rig.answer::<ApiVersionsRequest>(connection, 0).expect("an answer");
    assert_eq!(code(answer.error_code), ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!((answer.api_keys.len(), answer.api_keys[0].api_key), (1, 18));
    let named = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("x"))
        .with_client_software_version(StrBytes::from_static_str("1"));
    let answer = rig.ask(connection, 4, &named);
    assert_eq!(answer.api_keys.len(), APIS.len());
    let unnamed = rig.ask(connection, 3, &ApiVersionsRequest::default());
    assert_eq!(code(unnamed.error_code), ErrorCode::INVALID_REQUEST);
}

#[test]
fn the_table_is_ordered_and_every_version_has_a_shape() {
    assert!(APIS.is_sorted_by_key(|api| api.key));
    for api in APIS {
        for version in api.versions.min..=api.versions.max {
            let body = sample::request(api.key, version, &mut Random::new(1));
            assert!(crate::protocol::shape::check_request(api.key, version, &body).is_ok(), "{} {version}", api.key);
        }
    }
}

/// Sound requests with random content, whole, cut and with flipped bits: an answer, silence or a close, never a panic.
#[test]
fn random_requests_never_panic() {
    let mut rig = Rig::new(2).topic("t", 2);
    for seed in 0..60_u64 {
        for api in APIS {
            for version in api.versions.min..=api.versions.max {
                let mut random = Random::with_unknown_tags(seed);
                let body = sample::request(api.key, version, &mut random);
                let mut frame = framed(api, version, &body).to_vec();
                match seed % 3 {
                    0 => {}
                    1 => frame.truncate(random.below(frame.len() as u32 + 1) as usize),
                    _ => {
                        let at = random.below(frame.len() as u32) as usize;
                        frame[at] ^= 1 << random.below(8);
                    }
                }
                let connection = rig.connect(1 + (seed % 2) as i32);
                rig.cluster.handle(connection, frame.into(), rig.now);
                rig.cluster.disconnect(connection, rig.now);
            }
        }
        rig.pass(Duration::from_millis(100));
        rig.outputs.clear();
        while rig.cluster.poll_output().is_some() {}
    }
}

#[test]
fn connections_and_their_queues_are_bounded() {
    let mut rig = Rig::with(1, |settings| {
        settings.max_connections = 1;
        settings.max_queued_requests = 2;
    })
    .topic("t", 1);
    let connection = rig.connect(1);
    assert!(rig.cluster.connect(1, Listener::InProcess, rig.now).is_none());
    for _ in 0..3 {
        rig.send(connection, 12, &fetch("t", &[(0, 0)]).with_max_wait_ms(1_000));
        assert_eq!(rig.next(connection), None);
    }
    rig.send(connection, 12, &fetch("t", &[(0, 0)]).with_max_wait_ms(1_000));
    assert!(rig.is_closed(connection));
}
