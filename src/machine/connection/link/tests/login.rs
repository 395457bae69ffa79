use kafka_protocol::messages::{SaslAuthenticateResponse, SaslHandshakeResponse};
use kafka_protocol::protocol::StrBytes;

use super::*;
use crate::machine::sasl::{Bearer, Plain};

const SASL_HANDSHAKE: i16 = 17;
const SASL_AUTHENTICATE: i16 = 36;

/// A link whose broker is logged in to by PLAIN.
fn with_login() -> Rig {
    let mut rig = Rig::new();
    rig.link = Link::new(ClientId::new("t").unwrap(), rig.link.limits.clone(), Some(Mechanism::Plain), rig.now);
    rig
}

fn give_credentials(rig: &mut Rig) {
    assert!(rig.link.poll_login(), "credentials are wanted");
    let exchange = Exchange::Plain(Plain::new("alice", "secret"));
    assert!(rig.link.handle_credentials(rig.now, Ok(exchange), 0.5).is_none());
}

fn answer_all_versions(rig: &mut Rig) {
    let version = rig.link.probe.version();
    let response = versions_response(0, &[(12, 0, 4), (18, 0, 4), (17, 0, 1), (36, 0, 2)]);
    let id = rig.link.in_flight[0].correlation_id;
    rig.link.handle_frame(rig.now, versions_frame(id, version, &response), 0.5).unwrap();
}

fn frame(rig: &Rig, flexible: bool, answer: &impl Encodable, version: i16) -> Bytes {
    let mut frame = BytesMut::from(&rig.link.in_flight[0].correlation_id.to_be_bytes()[..]);
    if flexible {
        frame.extend_from_slice(&[0]);
    }
    answer.encode(&mut frame, version).unwrap();
    frame.freeze()
}

fn answer_handshake(rig: &mut Rig, code: i16) -> Result<(), Arc<ConnectionError>> {
    let mechanisms = vec![StrBytes::from_static_str("PLAIN")];
    let answer = SaslHandshakeResponse::default().with_error_code(code).with_mechanisms(mechanisms);
    let frame = frame(rig, false, &answer, 1);
    rig.link.handle_frame(rig.now, frame, 0.5)
}

fn answer_authenticate(rig: &mut Rig, code: i16, lifetime_ms: i64) -> Result<(), Arc<ConnectionError>> {
    let answer = SaslAuthenticateResponse::default().with_error_code(code).with_session_lifetime_ms(lifetime_ms);
    let frame = frame(rig, true, &answer, 2);
    rig.link.handle_frame(rig.now, frame, 0.5)
}

fn apis(sent: &[Sent]) -> Vec<(i16, i16)> {
    sent.iter().map(|sent| (sent.api, sent.version)).collect()
}

/// Both requests of a login, answered.
fn log_in(rig: &mut Rig, lifetime_ms: i64) {
    assert_eq!(apis(&rig.transmit()), [(SASL_HANDSHAKE, 1)]);
    answer_handshake(rig, 0).unwrap();
    assert_eq!(apis(&rig.transmit()), [(SASL_AUTHENTICATE, 2)]);
    answer_authenticate(rig, 0, lifetime_ms).unwrap();
}

/// A link that is logged in, with nothing under way.
fn logged_in(lifetime_ms: i64) -> Rig {
    let mut rig = with_login();
    rig.call(0, 5);
    rig.connect();
    give_credentials(&mut rig);
    rig.transmit();
    answer_all_versions(&mut rig);
    log_in(&mut rig, lifetime_ms);
    let sent = rig.transmit();
    rig.answer(sent[0].correlation_id);
    assert_eq!(rig.done(), pairs(&[(0, "ok")]));
    rig
}

#[test]
fn requests_wait_for_versions_then_mechanism_then_proof() {
    let mut rig = with_login();
    rig.call(1, 5);
    rig.connect();
    assert_eq!(apis(&rig.transmit()), [(18, 4)]);
    answer_all_versions(&mut rig);
    assert_eq!(rig.transmit(), [], "nothing without credentials");
    assert!(matches!(rig.step(), Step::Serve { .. }));
    give_credentials(&mut rig);
    log_in(&mut rig, 0);
    assert_eq!(apis(&rig.transmit()), [(12, 4)]);
}

#[test]
fn a_refused_login_fails_all_that_waits_for_good() {
    let mut rig = with_login();
    rig.call(1, 5);
    rig.connect();
    give_credentials(&mut rig);
    rig.transmit();
    answer_all_versions(&mut rig);
    rig.transmit();
    answer_handshake(&mut rig, 0).unwrap();
    rig.transmit();
    let error = answer_authenticate(&mut rig, 58, 0).unwrap_err();
    assert!(error.is_locked_out() && !error.is_retriable(), "{error}");
    assert_eq!(rig.done(), pairs(&[(1, "not sent: login")]));
}

/// A source had kept a token that its issuer withdrew meanwhile, and whoever waited was told that the login is refused for good.
#[test]
fn a_refused_token_is_asked_for_anew_once_before_what_waits_is_told() {
    let mut rig = with_login();
    let limits = rig.link.limits.clone();
    rig.link = Link::new(ClientId::new("t").unwrap(), limits, Some(Mechanism::OAuthBearer), rig.now);
    rig.call(1, 60);
    let offer_a_token = |rig: &mut Rig, code| {
        rig.connect();
        assert!(rig.link.poll_login(), "a token is asked for");
        let token = Exchange::Bearer(Bearer::new("t0ken", &[]));
        assert!(rig.link.handle_credentials(rig.now, Ok(token), 0.5).is_none());
        rig.transmit();
        answer_all_versions(rig);
        rig.transmit();
        answer_handshake(rig, 0).unwrap();
        rig.transmit();
        answer_authenticate(rig, code, 0)
    };
    assert!(offer_a_token(&mut rig, 58).unwrap_err().is_locked_out(), "and its source is told");
    assert_eq!(rig.done(), pairs(&[]), "what was not sent waits");
    rig.pass(1);
    offer_a_token(&mut rig, 0).unwrap();
    let sent = rig.transmit();
    assert_eq!(apis(&sent), [(12, 4)]);
    rig.answer(sent[0].correlation_id);
    assert_eq!(rig.done(), pairs(&[(1, "ok")]));

    rig.link.handle_lost(rig.now, broken(), 0.5);
    rig.call(2, 60);
    offer_a_token(&mut rig, 58).unwrap_err();
    assert_eq!(rig.done(), pairs(&[]));
    rig.pass(1);
    offer_a_token(&mut rig, 58).unwrap_err();
    assert_eq!(rig.done(), pairs(&[(2, "not sent: login")]), "a token that is refused twice is no token");
}

/// franz-go#1348, platformatic#211, librdkafka#4301: requests between the frames of a re-authentication, or before the answers
/// of what went ahead of it, and the broker closes the connection.
#[test]
fn a_login_is_renewed_between_requests_and_none_is_lost() {
    let mut rig = logged_in(10_000);
    rig.now += Duration::from_millis(4_500);
    rig.call(1, 60);
    rig.call(2, 60);
    let first = rig.transmit();
    assert_eq!(apis(&first), [(12, 4), (12, 4)], "the session is young enough");
    rig.now += Duration::from_millis(500);
    rig.call(3, 60);
    assert_eq!(apis(&rig.transmit()), [(12, 4)], "the session goes on until there are credentials");
    give_credentials(&mut rig);
    rig.call(4, 60);
    assert_eq!(rig.transmit(), [], "nothing new leaves");
    let id = first[0].correlation_id;
    rig.answer(id);
    rig.answer(id + 1);
    assert_eq!(rig.transmit(), [], "one is still under way");
    rig.answer(id + 2);
    assert_eq!(apis(&rig.transmit()), [(SASL_HANDSHAKE, 1)]);
    rig.call(5, 60);
    assert_eq!(rig.transmit(), []);
    answer_handshake(&mut rig, 0).unwrap();
    assert_eq!(apis(&rig.transmit()), [(SASL_AUTHENTICATE, 2)]);
    assert_eq!(rig.transmit(), []);
    answer_authenticate(&mut rig, 0, 10_000).unwrap();
    let rest = rig.transmit();
    assert_eq!(apis(&rest), [(12, 4), (12, 4)], "those that waited, in their order");
    rest.iter().for_each(|sent| rig.answer(sent.correlation_id));
    assert_eq!(rig.done(), pairs(&[(1, "ok"), (2, "ok"), (3, "ok"), (4, "ok"), (5, "ok")]));
    rig.now += Duration::from_millis(4_000);
    rig.call(6, 60);
    assert_eq!(apis(&rig.transmit()), [(12, 4)], "the new session counts from the new login");
}

#[test]
fn nothing_is_sent_after_the_sessions_end() {
    let mut rig = logged_in(10_000);
    rig.pass(9);
    rig.call(1, 60);
    assert_eq!(rig.transmit(), [], "the broker would close the connection at it");
    give_credentials(&mut rig);
    log_in(&mut rig, 10_000);
    assert_eq!(apis(&rig.transmit()), [(12, 4)]);
}

#[test]
fn a_quiet_connection_is_not_kept_alive_by_logins() {
    let mut rig = logged_in(10_000);
    rig.pass(30);
    assert!(!rig.link.poll_login());
    assert_eq!(rig.hand_out(), []);
    assert_eq!(rig.step(), Step::Serve { timeout: Some(rig.now + Duration::from_secs(30)) }, "its quiet time runs on");
}

#[test]
fn credentials_that_cannot_be_had_end_the_first_login_and_not_a_session() {
    let missing = || {
        let source = Arc::from(crate::error::BoxError::from("the token endpoint is away"));
        Err(LoginError::NoCredentials { mechanism: "PLAIN", source })
    };
    let mut rig = with_login();
    rig.call(1, 5);
    rig.connect();
    assert!(rig.link.poll_login());
    let error = rig.link.handle_credentials(rig.now, missing(), 0.5).unwrap();
    assert!(error.is_retriable(), "{error}");
    assert_eq!(rig.done(), pairs(&[(1, "not sent: login")]));

    let mut rig = logged_in(60_000);
    rig.pass(48);
    rig.call(1, 60);
    let sent = rig.transmit();
    assert!(rig.link.poll_login());
    assert!(rig.link.handle_credentials(rig.now, missing(), 0.5).is_none());
    rig.answer(sent[0].correlation_id);
    rig.pass(1);
    rig.call(2, 60);
    let sent = rig.transmit();
    assert_eq!(apis(&sent), [(12, 4)]);
    rig.answer(sent[0].correlation_id);
    rig.pass(6);
    rig.call(3, 60);
    assert_eq!(rig.transmit(), [], "the session is at its end");
    assert!(rig.link.poll_login());
    assert!(rig.link.handle_credentials(rig.now, missing(), 0.5).is_some());
    assert_eq!(rig.done(), pairs(&[(1, "ok"), (2, "ok"), (3, "not sent: login")]));
}

#[test]
fn a_late_answer_is_noticed_while_the_connection_drains() {
    let mut rig = logged_in(10_000);
    rig.pass(5);
    rig.call(1, 2);
    rig.transmit();
    give_credentials(&mut rig);
    rig.call(2, 60);
    assert_eq!(rig.transmit(), []);
    assert!(matches!(rig.step(), Step::Serve { timeout: Some(at) } if at <= rig.now + Duration::from_secs(2)));
    rig.pass(2);
    assert_eq!(*rig.link.handle_timeout(rig.now, 0.5).unwrap(), ConnectionError::TimedOut { api: HEARTBEAT });
    assert_eq!(rig.done(), pairs(&[(1, "unanswered: late"), (2, "not sent: late")]));
}

#[test]
fn a_login_that_is_never_answered_has_a_deadline() {
    let mut rig = logged_in(10_000);
    rig.pass(9);
    rig.call(1, 60);
    rig.transmit();
    give_credentials(&mut rig);
    assert_eq!(apis(&rig.transmit()), [(SASL_HANDSHAKE, 1)]);
    rig.pass(10);
    assert!(matches!(*rig.link.handle_timeout(rig.now, 0.5).unwrap(), ConnectionError::SetupTimeout { .. }));
    assert_eq!(rig.done(), pairs(&[(1, "not sent: setup")]));
}

#[test]
fn the_next_transport_logs_in_anew() {
    let mut rig = logged_in(60_000);
    rig.call(1, 60);
    rig.transmit();
    rig.link.handle_lost(rig.now, broken(), 1.0).unwrap();
    rig.call(2, 60);
    rig.pass(1);
    rig.connect();
    give_credentials(&mut rig);
    assert_eq!(apis(&rig.transmit()), [(18, 4)]);
    answer_all_versions(&mut rig);
    log_in(&mut rig, 0);
    assert_eq!(apis(&rig.transmit()), [(12, 4)]);
}

#[test]
fn a_transport_that_ends_during_the_login_is_a_fault() {
    let mut rig = with_login();
    rig.call(1, 5);
    rig.connect();
    give_credentials(&mut rig);
    rig.transmit();
    answer_all_versions(&mut rig);
    rig.transmit();
    assert!(rig.link.handle_lost(rig.now, broken(), 1.0).is_some(), "and no reason to try an older version");
    assert_eq!(rig.done(), pairs(&[(1, "not sent: lost")]));
}
