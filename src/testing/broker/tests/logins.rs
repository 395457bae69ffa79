use kafka_protocol::messages::{
    MetadataRequest, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use super::*;
use crate::testing::broker::{Sasl, SaslMechanism};

const LIFETIME: Duration = Duration::from_secs(3);

fn rig(session: Option<Duration>) -> Rig {
    let mut sasl = Sasl::new([SaslMechanism::Plain, SaslMechanism::OAuthBearer]).user("alice", "a-secret");
    sasl = sasl.user("bob", "b-secret");
    sasl.session = session;
    Rig::with(1, |settings| settings.sasl = Some(sasl)).topic("t", 1)
}

fn named(rig: &mut Rig, connection: ConnectionId, mechanism: &str) -> SaslHandshakeResponse {
    let request = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_string(mechanism.to_owned()));
    rig.ask(connection, 1, &request)
}

fn said(rig: &mut Rig, connection: ConnectionId, message: &str) -> SaslAuthenticateResponse {
    let bytes = Bytes::copy_from_slice(message.as_bytes());
    rig.ask(connection, 2, &SaslAuthenticateRequest::default().with_auth_bytes(bytes))
}

fn logged_in(rig: &mut Rig) -> ConnectionId {
    let connection = rig.connect(1);
    assert_eq!(named(rig, connection, "PLAIN").error_code, 0);
    let answer = said(rig, connection, "\0alice\0a-secret");
    assert_eq!(answer.error_code, 0, "{answer:?}");
    connection
}

fn serves(rig: &mut Rig, connection: ConnectionId) -> bool {
    rig.send(connection, 9, &MetadataRequest::default().with_topics(None));
    match rig.next(connection).expect("an answer or the end") {
        Output::Send { .. } => true,
        Output::Close { .. } => false,
    }
}

#[test]
fn nothing_is_served_before_a_login() {
    let mut rig = rig(None);
    let connection = rig.connect(1);
    assert!(!serves(&mut rig, connection));
    let connection = rig.connect(1);
    rig.ask(connection, 0, &kafka_protocol::messages::ApiVersionsRequest::default());
    rig.send(connection, 2, &SaslAuthenticateRequest::default());
    assert!(rig.is_closed(connection), "no mechanism was named");
    let connection = logged_in(&mut rig);
    assert!(serves(&mut rig, connection));
}

#[test]
fn refusals_have_kafkas_codes_and_end_the_connection() {
    let mut rig = rig(None);
    let connection = rig.connect(1);
    let answer = named(&mut rig, connection, "SCRAM-SHA-256");
    assert_eq!(code(answer.error_code), ErrorCode::UNSUPPORTED_SASL_MECHANISM);
    assert_eq!(answer.mechanisms.iter().map(|it| it.as_str()).collect::<Vec<_>>(), ["PLAIN", "OAUTHBEARER"]);
    assert!(rig.is_closed(connection));
    for wrong in ["\0alice\0wrong", "\0nobody\0a-secret", "bob\0alice\0a-secret", "alice", "\0alice\0a-secret\0"] {
        let connection = rig.connect(1);
        named(&mut rig, connection, "PLAIN");
        let answer = said(&mut rig, connection, wrong);
        assert_eq!(code(answer.error_code), ErrorCode::SASL_AUTHENTICATION_FAILED, "{wrong:?}");
        assert!(rig.is_closed(connection));
    }
}

#[test]
fn without_an_end_a_login_is_made_once() {
    let mut rig = rig(None);
    let connection = logged_in(&mut rig);
    assert_eq!(code(named(&mut rig, connection, "PLAIN").error_code), ErrorCode::ILLEGAL_SASL_STATE);
    assert_eq!(code(said(&mut rig, connection, "").error_code), ErrorCode::ILLEGAL_SASL_STATE);
    assert!(serves(&mut rig, connection), "the login counts as before");
}

/// KIP-368.
#[test]
fn a_session_ends_unless_it_is_renewed_by_the_same_user_in_the_same_way() {
    let mut rig = rig(Some(LIFETIME));
    let connection = rig.connect(1);
    named(&mut rig, connection, "PLAIN");
    assert_eq!(said(&mut rig, connection, "\0alice\0a-secret").session_lifetime_ms, 3_000);
    rig.pass(LIFETIME / 2);
    assert_eq!(named(&mut rig, connection, "PLAIN").error_code, 0);
    assert_eq!(said(&mut rig, connection, "\0alice\0a-secret").error_code, 0);
    rig.pass(LIFETIME - Duration::from_millis(1));
    assert!(serves(&mut rig, connection), "it was renewed");
    rig.pass(Duration::from_millis(1));
    assert!(!serves(&mut rig, connection));

    let connection = logged_in(&mut rig);
    rig.pass(2 * LIFETIME);
    assert_eq!(named(&mut rig, connection, "PLAIN").error_code, 0, "late, but before any other request");
    let other = said(&mut rig, connection, "\0bob\0b-secret");
    assert_eq!(code(other.error_code), ErrorCode::SASL_AUTHENTICATION_FAILED);
    assert!(rig.is_closed(connection));
    let connection = logged_in(&mut rig);
    assert_eq!(named(&mut rig, connection, "OAUTHBEARER").error_code, 0);
    let other = Bytes::from_static(b"n,,\x01auth=Bearer alice\x01\x01");
    rig.send(connection, 2, &SaslAuthenticateRequest::default().with_auth_bytes(other));
    assert!(rig.is_closed(connection), "by another mechanism: without a word, as Kafka");

    let connection = logged_in(&mut rig);
    assert_eq!(named(&mut rig, connection, "PLAIN").error_code, 0);
    assert_eq!(said(&mut rig, connection, "\0alice\0a-secret").error_code, 0);
    assert_eq!(code(named(&mut rig, connection, "PLAIN").error_code), ErrorCode::ILLEGAL_SASL_STATE, "too soon");
    assert!(serves(&mut rig, connection), "the login counts as before");
}

/// Kafka tells what is asked in the middle of a login that it is out of place; nothing else was said before.
#[test]
fn what_is_asked_in_the_middle_of_a_login_is_told_so() {
    let mut rig = rig(None);
    let connection = rig.connect(1);
    named(&mut rig, connection, "PLAIN");
    let answer = rig.ask(connection, 13, &MetadataRequest::default().with_topics(None));
    assert_eq!(code(answer.error_code), ErrorCode::ILLEGAL_SASL_STATE);
    assert!(rig.is_closed(connection));
}

#[test]
fn a_token_is_taken_and_its_session_ends_with_it() {
    // {"alg":"none"} . {"sub":"alice","exp":1700000002}, {"sub":"alice","exp":1699999999}
    let valid = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImV4cCI6MTcwMDAwMDAwMn0.";
    let expired = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImV4cCI6MTY5OTk5OTk5OX0.";
    let mut rig = rig(None);
    for (token, lifetime) in [("any-token", 0), (valid, 2_000)] {
        let connection = rig.connect(1);
        named(&mut rig, connection, "OAUTHBEARER");
        let answer = said(&mut rig, connection, &format!("n,,\x01auth=Bearer {token}\x01\x01"));
        assert_eq!((answer.error_code, answer.session_lifetime_ms), (0, lifetime), "{answer:?}");
    }
    let connection = rig.connect(1);
    named(&mut rig, connection, "OAUTHBEARER");
    let answer = said(&mut rig, connection, &format!("n,,\x01auth=Bearer {expired}\x01\x01"));
    assert_eq!((answer.error_code, &answer.auth_bytes[..]), (0, &br#"{"status":"invalid_token"}"#[..]));
    let answer = said(&mut rig, connection, "\x01");
    assert_eq!(code(answer.error_code), ErrorCode::SASL_AUTHENTICATION_FAILED);
    assert!(rig.is_closed(connection));
}

#[test]
fn no_password_is_shown() {
    let shown = format!("{:?}", Sasl::new([SaslMechanism::Plain]).user("alice", "a-secret"));
    assert!(shown.contains("alice") && !shown.contains("a-secret"), "{shown}");
}
