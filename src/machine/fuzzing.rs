//! What the fuzz targets call: a peer's words into the machines. Built only for fuzzing.

use std::collections::BTreeSet;
use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::ApiVersion;

use super::assignor::{
    Assignor, CooperativeSticky, MemberSubscription, PartitionCounts, Range, Rebalance, RoundRobin, Sticky,
};
use super::sasl::{Authenticator, Bearer, Exchange, Hash, NONCE_BYTES, Plain, Reply, Scram};
use crate::protocol::subscription::Subscription;
use crate::protocol::versions::NegotiatedVersions;

/// Any sequence of what a driver does, into the machine that the first number chooses.
pub fn operations(choose: &mut dyn FnMut(u32) -> Option<u32>) {
    super::operations::any(choose);
}

/// Members that joined with these things, each with its length in two bytes before it, in a group that each assignor deals out for. The
/// first byte is how many partitions a topic has.
pub fn assignment(bytes: &[u8]) {
    let Some((&count, mut rest)) = bytes.split_first() else { return };
    let mut members = Vec::new();
    while let Some(metadata) = next(&mut rest) {
        // As a leader does: who cannot be read gets nothing.
        let subscription = Subscription::decode(&Bytes::copy_from_slice(metadata)).unwrap_or_default();
        members.push(MemberSubscription {
            member_id: format!("m{}", members.len()),
            group_instance_id: None,
            subscription,
        });
    }
    let topics = || members.iter().flat_map(|member| &member.subscription.topics);
    let counts: PartitionCounts = topics().map(|topic| (topic.clone(), i32::from(count % 8) - 1)).collect();
    let all: usize = counts.values().map(|count| usize::try_from(*count).unwrap_or(0)).sum();
    let assignors: [&dyn Assignor; 4] = [&Range, &RoundRobin, &CooperativeSticky, &Sticky];
    for assignor in assignors {
        let assigned = assignor.assign(&members, &counts);
        assert_eq!(assigned.len(), members.len(), "{}: a member is left out", assignor.name());
        let mut owners = BTreeSet::new();
        for member in &members {
            for partition in &assigned[&member.member_id] {
                assert!(owners.insert(partition), "{}: {partition} is given twice", assignor.name());
                assert!(member.subscription.topics.contains(&partition.topic), "given to who does not read it");
                assert!((0..counts[&partition.topic]).contains(&partition.partition), "{partition} does not exist");
            }
        }
        // What is to be taken from its owner first is given to nobody yet.
        let waits = assignor.rebalance() == Rebalance::Cooperative;
        assert!(owners.len() == all || waits, "{}: partitions without an owner", assignor.name());
    }
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
