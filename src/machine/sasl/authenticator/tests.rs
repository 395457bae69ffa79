#![cfg(feature = "sasl")]

use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::SaslHandshakeResponse;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::protocol::Encodable;

use super::*;
use crate::machine::sasl::{Bearer, Plain};

const SECOND: Duration = Duration::from_secs(1);

fn versions(ranges: &[(i16, i16, i16)]) -> NegotiatedVersions {
    let api = |&(key, min, max): &(i16, i16, i16)| {
        ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
    };
    NegotiatedVersions::new(&ApiVersionsResponse::default().with_api_keys(ranges.iter().map(api).collect()))
}

fn modern() -> NegotiatedVersions {
    versions(&[(17, 0, 1), (36, 0, 2)])
}

fn bytes(answer: &impl Encodable, version: i16) -> Bytes {
    let mut body = bytes::BytesMut::new();
    answer.encode(&mut body, version).unwrap();
    body.freeze()
}

fn consent(code: i16, mechanisms: &[&'static str]) -> Bytes {
    let mechanisms = mechanisms.iter().map(|name| StrBytes::from_static_str(name)).collect();
    bytes(&SaslHandshakeResponse::default().with_error_code(code).with_mechanisms(mechanisms), 1)
}

fn verdict(code: i16, message: Option<&'static str>, challenge: &'static [u8], lifetime_ms: i64) -> Bytes {
    let answer = SaslAuthenticateResponse::default()
        .with_error_code(code)
        .with_error_message(message.map(StrBytes::from_static_str))
        .with_auth_bytes(challenge.into())
        .with_session_lifetime_ms(lifetime_ms);
    bytes(&answer, 2)
}

/// An authenticator that has named its mechanism.
fn offered(exchange: Exchange, now: Instant) -> Authenticator {
    let mut login = Authenticator::new(exchange.mechanism());
    assert!(login.poll_wanted());
    assert!(!login.poll_wanted(), "credentials are asked for once");
    assert!(login.poll_request(now, &modern()).is_none(), "nothing to say without them");
    login.handle_credentials(exchange);
    assert_eq!(login.poll_request(now, &modern()).unwrap().api(), HANDSHAKE);
    assert!(login.poll_request(now, &modern()).is_none());
    login
}

fn plain() -> Exchange {
    Exchange::Plain(Plain::new("alice", "secret"))
}

fn bearer() -> Exchange {
    Exchange::Bearer(Bearer::new("token", &[]))
}

/// An authenticator that has sent its first message.
fn proving(exchange: Exchange, now: Instant) -> Authenticator {
    let mut login = offered(exchange, now);
    assert_eq!(login.handle_answer(now, 1, consent(0, &["PLAIN"]), 0.5).unwrap(), Outcome::GoOn);
    assert_eq!(login.poll_request(now, &modern()).unwrap().api(), AUTHENTICATE);
    login
}

fn in_for(lifetime: Duration, now: Instant) -> Authenticator {
    let mut login = proving(plain(), now);
    let lifetime_ms = lifetime.as_millis() as i64;
    assert_eq!(login.handle_answer(now, 2, verdict(0, None, b"", lifetime_ms), 0.5).unwrap(), Outcome::LoggedIn);
    login
}

fn refused(result: Result<Outcome, AnswerError>) -> LoginError {
    match result {
        Err(AnswerError::Login(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_is_final_and_keeps_the_brokers_words() {
    let now = Instant::now();
    let answer = verdict(58, Some("Invalid\u{1b}[2J username"), b"", 0);
    let error = refused(proving(plain(), now).handle_answer(now, 2, answer, 0.5));
    let text = "login by PLAIN was refused: SASL_AUTHENTICATION_FAILED (58): Invalid [2J username";
    assert_eq!(error.to_string(), text, "and they cannot steer a terminal");
    assert!(!error.is_retriable());
}

#[test]
fn what_the_broker_offers_instead_is_told() {
    let now = Instant::now();
    let error = refused(offered(plain(), now).handle_answer(now, 1, consent(33, &["SCRAM-SHA-512", "GSSAPI"]), 0.5));
    assert_eq!(error.to_string(), "broker does not offer PLAIN here; it offers SCRAM-SHA-512, GSSAPI");
    assert!(!error.is_retriable());
}

#[test]
fn a_listener_without_logins_is_told_apart() {
    let now = Instant::now();
    let error = refused(offered(plain(), now).handle_answer(now, 1, consent(34, &[]), 0.5));
    assert!(matches!(error, LoginError::NotWanted { .. }), "{error}");
}

#[test]
fn a_broker_without_framed_logins_is_refused_before_a_secret_is_sent() {
    let login = Authenticator::new(Mechanism::Plain);
    assert!(login.check(&modern()).is_ok());
    for ranges in [&[(17, 0, 0), (36, 0, 0)][..], &[(17, 0, 1)], &[(36, 0, 2)], &[]] {
        let error = login.check(&versions(ranges)).unwrap_err();
        assert!(matches!(error, LoginError::Unsupported { .. }), "{ranges:?}: {error}");
    }
}

/// KIP-255: the broker says why in a challenge, wants one byte, and only then fails the login.
#[test]
fn a_refused_token_is_answered_by_one_byte() {
    let now = Instant::now();
    let mut login = proving(bearer(), now);
    let challenge = verdict(0, None, br#"{"status":"invalid_token"}"#, 0);
    assert_eq!(login.handle_answer(now, 2, challenge, 0.5).unwrap(), Outcome::GoOn);
    let request = login.poll_request(now, &modern()).unwrap();
    assert_eq!(request.into_segments().concat(), [2, 1, 0], "a length plus one, the byte, no tags");
    let complaint = login.complaint().unwrap().to_string();
    assert!(complaint.contains(r#"{"status":"invalid_token"}"#), "told also if the broker just goes away: {complaint}");
    let error = refused(login.handle_answer(now, 2, verdict(58, Some("bad token"), b"", 0), 0.5));
    assert!(error.to_string().ends_with("SASL_AUTHENTICATION_FAILED (58): bad token"), "{error}");
}

#[test]
fn a_session_is_renewed_early_and_ends_in_silence() {
    let now = Instant::now();
    for (lifetime, renewed_within) in [
        // Half of a short one is left for what waits at the broker behind other requests.
        (3 * SECOND, 1.2..=1.5),
        (60 * SECOND, 42.0..=48.0),
        (3600 * SECOND, 2520.0..=2880.0),
    ] {
        for random in [0.0, 0.5, 1.0] {
            let session = Session::lasting(now, now, lifetime.as_millis() as i64, random).unwrap();
            let renewed = (session.renew_at - now).as_secs_f64();
            assert!(renewed_within.contains(&renewed), "{lifetime:?}: {renewed}");
            assert_eq!(session.silent_at - now, lifetime.mul_f64(0.9));
        }
    }
}

#[test]
fn sessions_without_an_end_are_not_renewed() {
    let now = Instant::now();
    for lifetime_ms in [0, -1, i64::MIN, i64::MAX] {
        assert!(Session::lasting(now, now, lifetime_ms, 0.5).is_none(), "{lifetime_ms}");
    }
    let mut login = proving(plain(), now);
    login.handle_answer(now, 2, verdict(0, None, b"", 0), 0.5).unwrap();
    login.renew(now + 1_000_000 * SECOND);
    assert!(!login.poll_wanted() && !login.is_silent(now + 1_000_000 * SECOND));
}

/// KIP-368: a broker takes a login within a second after the last one for a mistake and closes.
#[test]
fn a_session_of_a_moment_is_not_renewed_within_a_second() {
    let now = Instant::now();
    let session = Session::lasting(now, now, 500, 0.5).unwrap();
    assert_eq!(session.renew_at - now, LEAST_BETWEEN_LOGINS);
}

#[test]
fn the_session_goes_on_while_credentials_are_prepared_and_without_them() {
    let now = Instant::now();
    let mut login = in_for(60 * SECOND, now);
    login.renew(now + 40 * SECOND);
    assert!(!login.poll_wanted(), "not yet");
    login.renew(now + 48 * SECOND);
    assert!(login.poll_wanted());
    assert!(!login.is_silent(now + 50 * SECOND) && !login.is_prepared());
    assert!(login.handle_none(now + 50 * SECOND), "it goes on");
    login.renew(now + 50 * SECOND);
    assert!(!login.poll_wanted(), "a moment passes before the next try");
    login.renew(now + 51 * SECOND);
    assert!(login.poll_wanted());
    assert!(login.is_silent(now + 54 * SECOND));
    assert!(!login.handle_none(now + 54 * SECOND), "now it is over");
}

#[test]
fn an_answer_that_cannot_be_read_is_no_login() {
    let now = Instant::now();
    let cut = consent(0, &["PLAIN"]).slice(..5);
    let result = offered(plain(), now).handle_answer(now, 1, cut, 0.5);
    assert!(matches!(result, Err(AnswerError::Malformed(_))), "{result:?}");
}

#[test]
fn nothing_of_a_login_shows_its_secrets() {
    let now = Instant::now();
    for login in [proving(plain(), now), proving(bearer(), now)] {
        let shown = format!("{login:?}");
        assert!(!shown.contains("secret") && !shown.contains("token"), "{shown}");
    }
    let mut login = offered(plain(), now);
    login.handle_answer(now, 1, consent(0, &[]), 0.5).unwrap();
    let shown = format!("{login:?}");
    assert!(!shown.contains("115, 101, 99"), "not as bytes either, while the message waits: {shown}");
}
