//! TLS and logins against a real Kafka: every listener of the broker script, right and wrong.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::time::{Duration, Instant};

use kafka_harbor::client::{
    Client, ClientBuilder, ClientError, ConnectionError, Login, LoginError, ProtocolViolation, RequestError, Tls,
    TlsBuilder, TlsFailure,
};
use kafka_harbor::error::Blame;
use protocol_tests::{Cluster, kafka};

const SECOND: Duration = Duration::from_secs(1);

/// A broker with every kind of listener; a container has one alone.
fn doors() -> Option<&'static Cluster> {
    let kafka = kafka()?;
    if kafka.env.is_empty() {
        protocol_tests::skipped("this broker has no listeners with TLS and SASL");
        return None;
    }
    Some(kafka)
}

fn at(listener: &str) -> ClientBuilder {
    Client::builder([&doors().unwrap().env[listener]]).client_id("live-doors").setup_timeout(5 * SECOND)
}

fn tls() -> TlsBuilder {
    Tls::builder(rustls_graviola::default_provider()).authorities_file(&doors().unwrap().env["CA"])
}

async fn enter(builder: ClientBuilder) -> Result<Client, ClientError> {
    let client = builder.build().unwrap();
    client.ping(20 * SECOND).await.map(|()| client)
}

/// Enters, and does something behind the door.
async fn work(builder: ClientBuilder) {
    let client = enter(builder).await.unwrap();
    client.admin().list_topics().await.unwrap();
    client.close(SECOND).await.unwrap();
}

/// What keeps the client out. It has to be told at once, and not when the time is up.
async fn kept_out(builder: ClientBuilder) -> ConnectionError {
    let begin = Instant::now();
    let error = enter(builder).await.unwrap_err();
    assert!(begin.elapsed() < 8 * SECOND, "took {:?}: {error}", begin.elapsed());
    assert!(error.is_locked_out() && !error.is_retriable(), "{error:?}");
    cause(&error)
}

fn cause(error: &ClientError) -> ConnectionError {
    match error {
        ClientError::Request {
            source: RequestError::NotSent { cause, .. } | RequestError::Unanswered { cause, .. },
            ..
        } => (**cause).clone(),
        ClientError::TimedOut { last: Some(last), .. } => cause(last),
        other => panic!("{other:?}"),
    }
}

fn login_error(error: ConnectionError) -> LoginError {
    let ConnectionError::Login(error) = error else { panic!("{error:?}") };
    error
}

fn tls_failure(error: ConnectionError) -> TlsFailure {
    let ConnectionError::Tls { failure, .. } = error else { panic!("{error:?}") };
    failure
}

#[tokio::test]
async fn plain_enters_with_the_right_password_alone() {
    let Some(_) = doors() else { return };
    work(at("SASL_PLAINTEXT").login(Login::plain("alice", "alice-secret"))).await;
    work(at("SASL_SSL").tls(tls().build().unwrap()).login(Login::plain("bob", "bob-secret"))).await;
    let error = kept_out(at("SASL_PLAINTEXT").login(Login::plain("alice", "wrong"))).await;
    let error = login_error(error);
    assert_eq!(error.blame(), Blame::Broker);
    assert_eq!(
        error.to_string(),
        "login by PLAIN was refused: SASL_AUTHENTICATION_FAILED (58): Authentication failed: Invalid username or password"
    );
}

#[tokio::test]
async fn tls_enters_with_the_right_authority_alone() {
    let Some(kafka) = doors() else { return };
    work(at("SSL").tls(tls().build().unwrap())).await;
    let other = Tls::builder(rustls_graviola::default_provider()).authorities_file(&kafka.env["ROGUE_CERT"]);
    let failure = tls_failure(kept_out(at("SSL").tls(other.build().unwrap())).await);
    assert!(matches!(failure, TlsFailure::UnknownAuthority), "{failure:?}");
}

#[tokio::test]
async fn plain_text_at_a_tls_door_is_told_so() {
    let Some(_) = doors() else { return };
    let error = kept_out(at("SSL")).await;
    assert_eq!(error, ConnectionError::Protocol(ProtocolViolation::SpeaksTls), "{error}");
}
