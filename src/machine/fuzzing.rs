//! What the fuzz targets call: a peer's words into the machines. Built only for fuzzing.

use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::ApiVersion;

use super::sasl::{Authenticator, Bearer, Exchange, Hash, NONCE_BYTES, Plain, Reply, Scram};
use crate::protocol::versions::NegotiatedVersions;

/// Any sequence of what a driver does, into the machine that the first number chooses.
pub fn operations(choose: &mut dyn FnMut(u32) -> Option<u32>) {
    super::operations::any(choose);
}

/// A login whose peer says these things: the first byte chooses the mechanism and what is spoken to, then each message has its
/// length in two bytes before it.
pub fn sasl(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    if choice & 0x80 == 0 { exchange(choice, rest) } else { requests(choice, rest) }
}

/// Messages of the mechanism itself.
fn exchange(choice: u8, mut rest: &[u8]) {
    let mut exchange = run(choice);
    let (mut sent, mut over) = (exchange.first().len(), false);
    while let Some(message) = next(&mut rest) {
        match exchange.handle(message) {
            Ok(Reply::Send(reply)) => sent += reply.len(),
            Ok(Reply::Done) => {
                assert!(!over || matches!(exchange, Exchange::Plain(_) | Exchange::Bearer(_)), "done twice");
                over = true;
            }
            Ok(Reply::Refused(words)) => assert!(!words.chars().any(char::is_control), "words that steer a terminal"),
            Err(violation) => {
                let _ = violation.to_string();
                return;
            }
        }
        assert!(sent < bytes_bound(rest.len() + message.len()), "it says more than it heard");
    }
}

/// Bodies of answers to the requests that carry them.
fn requests(choice: u8, mut rest: &[u8]) {
    let api = |key, max| ApiVersion::default().with_api_key(key).with_max_version(max);
    let versions =
        ApiVersionsResponse::default().with_api_keys(vec![api(17, 1), api(36, i16::from(choice >> 4 & 1) + 1)]);
    let versions = NegotiatedVersions::new(&versions);
    let now = Instant::now();
    let exchange = run(choice);
    let mut login = Authenticator::new(exchange.mechanism());
    assert!(login.check(&versions).is_ok() && login.poll_wanted());
    login.handle_credentials(exchange);
    while let Some(request) = login.poll_request(now, &versions) {
        let Some(body) = next(&mut rest) else {
            let _ = login.complaint();
            return;
        };
        if login.handle_answer(now, request.version(), Bytes::copy_from_slice(body), 0.5).is_err() {
            return;
        }
    }
    let _ = login.is_silent(now);
    login.renew(now);
}

fn run(choice: u8) -> Exchange {
    let scram = |hash| Exchange::Scram(Box::new(Scram::new(hash, "u=,", "password", [0; NONCE_BYTES])));
    match choice & 3 {
        0 => Exchange::Plain(Plain::new("user", "password")),
        1 => scram(Hash::Sha256),
        2 => scram(Hash::Sha512),
        _ => Exchange::Bearer(Bearer::new("token", &[])),
    }
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, tail) = rest.split_first_chunk::<2>()?;
    let (message, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    *rest = tail;
    Some(message)
}

/// What a login says at most about so many bytes of its peer's.
fn bytes_bound(heard: usize) -> usize {
    (1 << 18) + 4 * heard
}
