//! TLS and logins against a real Kafka: every listener of the broker script, right and wrong.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kafka_harbor::client::{
    BearerToken, Client, ClientBuilder, ClientError, ConnectionError, Login, LoginError, OffsetReset,
    ProtocolViolation, RequestError, Tls, TlsBuilder, TlsFailure,
};
use kafka_harbor::error::Blame;
use kafka_harbor::record::Record;
use protocol_tests::{Cluster, kafka};
use tokio::net::{TcpListener, TcpStream};

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

#[tokio::test]
async fn scram_enters_with_the_right_password_alone() {
    let Some(_) = doors() else { return };
    work(at("SASL_PLAINTEXT").login(Login::scram_sha_256("alice", "alice-secret"))).await;
    work(at("SASL_PLAINTEXT").login(Login::scram_sha_512("bob", "bob-secret"))).await;
    work(at("SASL_SSL").tls(tls().build().unwrap()).login(Login::scram_sha_256("bob", "bob-secret"))).await;
    work(at("SASL_SSL").tls(tls().build().unwrap()).login(Login::scram_sha_512("alice", "alice-secret"))).await;
    for login in [
        Login::scram_sha_256("alice", "wrong"),
        Login::scram_sha_512("alice", "wrong"),
        Login::scram_sha_512("nobody", "alice-secret"),
        Login::scram_sha_256("a=b,c", "x"),
    ] {
        let error = login_error(kept_out(at("SASL_PLAINTEXT").login(login)).await).to_string();
        assert!(
            error.starts_with("login by SCRAM-SHA-") && error.contains("SASL_AUTHENTICATION_FAILED (58): "),
            "{error}"
        );
    }
}

/// An unsecured JWS, as the broker script's listeners take it.
fn token(subject: &str, valid: i64) -> BearerToken {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let claims = format!(r#"{{"sub":"{subject}","iat":{},"exp":{}}}"#, now - 10, now + valid);
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    BearerToken::new(format!("{}.{}.", part(r#"{"alg":"none"}"#), part(&claims))).unwrap()
}

#[tokio::test]
async fn a_token_enters_while_it_is_valid() {
    let Some(_) = doors() else { return };
    work(at("SASL_PLAINTEXT").login(Login::oauth_bearer(token("alice", 60)))).await;
    let with_extension = token("alice", 60).with_extension("traceId", "42").unwrap();
    work(at("SASL_SSL").tls(tls().build().unwrap()).login(Login::oauth_bearer(with_extension))).await;
    let error = login_error(kept_out(at("SASL_PLAINTEXT").login(Login::oauth_bearer(token("alice", -5)))).await);
    let LoginError::Refused { message: Some(message), .. } = &error else { panic!("{error:?}") };
    assert!(message.contains("invalid_token"), "{error}");
    let error =
        login_error(kept_out(at("SASL_PLAINTEXT").login(Login::oauth_bearer(BearerToken::new("x").unwrap()))).await);
    assert!(matches!(error, LoginError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn mutual_tls_enters_with_a_certificate_of_the_brokers_authority_alone() {
    let Some(kafka) = doors() else { return };
    let env = |name: &str| kafka.env[name].clone();
    work(at("MTLS").tls(tls().identity_files(env("CLIENT_CERT"), env("CLIENT_KEY")).build().unwrap())).await;
    let pem = |name: &str| std::fs::read(&kafka.env[name]).unwrap();
    work(at("MTLS").tls(tls().identity_pem(pem("CLIENT_CERT"), pem("CLIENT_KEY")).build().unwrap())).await;

    let rogue = tls().identity_files(env("ROGUE_CERT"), env("ROGUE_KEY")).build().unwrap();
    let failure = tls_failure(kept_out(at("MTLS").tls(rogue)).await);
    assert!(matches!(failure, TlsFailure::CertificateRefused { sent: true, .. }), "{failure:?}");
    let failure = tls_failure(kept_out(at("MTLS").tls(tls().build().unwrap())).await);
    assert!(matches!(failure, TlsFailure::CertificateRefused { sent: false, .. }), "{failure:?}");
    assert!(failure.to_string().ends_with("(none is configured)"), "{failure}");
}

/// Passes bytes on to the broker from an address that its certificate is not for.
async fn elsewhere(target: String) -> String {
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let target = target.clone();
            tokio::spawn(async move {
                let mut far = TcpStream::connect(target).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_certificate_has_to_be_for_the_name_unless_that_is_turned_off_dangerously() {
    let Some(kafka) = doors() else { return };
    let address = elsewhere(kafka.env["SSL"].clone()).await;
    let builder = |tls: TlsBuilder| Client::builder([&address]).setup_timeout(5 * SECOND).tls(tls.build().unwrap());
    let failure = tls_failure(kept_out(builder(tls())).await);
    let TlsFailure::WrongName { name, valid } = &failure else { panic!("{failure:?}") };
    assert_eq!(name, "127.0.0.2");
    assert!(valid.iter().any(|name| name.contains("localhost")), "{valid:?}");
    work(builder(tls().dangerous_without_host_names())).await;

    let rogue = Tls::builder(rustls_graviola::default_provider()).authorities_file(&kafka.env["ROGUE_CERT"]);
    let failure = tls_failure(kept_out(builder(rogue.dangerous_without_host_names())).await);
    assert!(matches!(failure, TlsFailure::UnknownAuthority), "the authority still counts: {failure:?}");
}

/// Behind TLS, and by every mechanism, as without.
#[tokio::test]
async fn who_is_refused_behind_tls_is_told_by_what_and_why() {
    let Some(kafka) = doors() else { return };
    let secret = "not-to-be-told";
    for (mechanism, login) in [
        ("PLAIN", Login::plain("alice", secret)),
        ("PLAIN", Login::plain("nobody", secret)),
        ("SCRAM-SHA-256", Login::scram_sha_256("alice", secret)),
        ("SCRAM-SHA-512", Login::scram_sha_512("nobody", secret)),
        ("OAUTHBEARER", Login::oauth_bearer(token("alice", -5))),
    ] {
        for builder in [at("SASL_PLAINTEXT"), at("SASL_SSL").tls(tls().build().unwrap())] {
            let error = login_error(kept_out(builder.login(login.clone())).await);
            let LoginError::Refused { mechanism: by, .. } = &error else { panic!("{mechanism}: {error:?}") };
            assert_eq!((*by, error.blame()), (mechanism, Blame::Broker));
            assert!(error.to_string().contains(&format!("login by {mechanism} was refused")), "{error}");
            assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
        }
    }
    let other = Tls::builder(rustls_graviola::default_provider()).authorities_file(&kafka.env["ROGUE_CERT"]);
    let builder = at("SASL_SSL").tls(other.build().unwrap()).login(Login::plain("alice", "alice-secret"));
    let failure = tls_failure(kept_out(builder).await);
    assert!(matches!(failure, TlsFailure::UnknownAuthority), "nothing of the login is told to a stranger: {failure:?}");
    let error = kept_out(at("SASL_SSL").login(Login::plain("alice", "alice-secret"))).await;
    assert_eq!(error, ConnectionError::Protocol(ProtocolViolation::SpeaksTls), "{error}");
}

#[tokio::test]
async fn doors_of_another_kind_say_so() {
    let Some(_) = doors() else { return };
    let error = login_error(kept_out(at("PLAINTEXT").login(Login::plain("alice", "alice-secret"))).await);
    assert!(matches!(error, LoginError::NotWanted { .. }), "{error}");

    let told = async |builder: ClientBuilder| {
        let client = builder.build().unwrap();
        client.ping(2 * SECOND).await.unwrap_err().to_string()
    };
    let text = told(at("PLAINTEXT").tls(tls().build().unwrap())).await;
    assert!(text.contains("a listener without TLS does that"), "{text}");
    let text = told(at("SASL_PLAINTEXT")).await;
    assert!(text.contains("a listener that wants a login does that"), "{text}");
}

#[tokio::test]
async fn producers_and_members_are_told_at_once_that_they_are_kept_out() {
    let Some(_) = doors() else { return };
    let client = || at("SASL_PLAINTEXT").login(Login::plain("alice", "wrong")).build().unwrap();
    let begin = Instant::now();
    let producer = client().producer().build().unwrap();
    let error = producer.send(Record::new("nowhere", "v")).await.unwrap_err();
    assert!(!error.is_retriable());
    let error = format!("{error}: {}", std::error::Error::source(&*error).unwrap());
    assert!(error.contains("SASL_AUTHENTICATION_FAILED"), "{error}");
    let consumer = client().consumer("kept-out").topic("nowhere", OffsetReset::Earliest).build().unwrap();
    let error = consumer.joined(30 * SECOND).await.unwrap_err().to_string();
    assert!(error.contains("SASL_AUTHENTICATION_FAILED"), "{error}");
    assert!(begin.elapsed() < 10 * SECOND, "took {:?}", begin.elapsed());
}

/// Status, and all that was printed.
fn run_tool(arguments: &[&str], secrets: &[(&str, &str)]) -> (i32, String) {
    let output = protocol_tests::tool().args(arguments).envs(secrets.iter().copied()).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(secrets.iter().all(|(_, secret)| !text.contains(secret)), "a secret is in the output: {text}");
    (output.status.code().unwrap(), text)
}

#[test]
fn the_tool_enters_by_javas_files_and_by_flags_and_prints_no_secret() {
    let Some(kafka) = doors() else { return };
    let at = |listener: &str| kafka.env[listener].as_str();
    for (file, listener) in [
        ("ssl", "SSL"),
        ("mtls", "MTLS"),
        ("sasl-ssl", "SASL_SSL"),
        ("sasl-plain", "SASL_PLAINTEXT"),
        ("sasl-scram-sha-256", "SASL_PLAINTEXT"),
        ("sasl-scram-sha-512", "SASL_PLAINTEXT"),
        ("sasl-oauthbearer", "SASL_PLAINTEXT"),
    ] {
        let path = format!("{}/client/{file}.properties", kafka.env["DIR"]);
        let (status, text) = run_tool(&["--command-config", &path, "--bootstrap", at(listener), "topics", "list"], &[]);
        assert_eq!(status, 0, "{file}: {text}");
        assert!(!text.contains("alice-secret"), "{text}");
    }
    let (tls_flags, scram) = (["--ca", at("CA")], ["--sasl", "scram-sha-512", "--user", "alice"]);
    let listed = |listener, flags: &[&str], secrets: &[_]| {
        run_tool(&[&["--bootstrap", at(listener)], flags, &["topics", "list"]].concat(), secrets)
    };
    let right = [("KAFKA_PASSWORD", "alice-secret")];
    assert_eq!(listed("SASL_SSL", &[&tls_flags[..], &scram].concat(), &right).0, 0);
    assert_eq!(
        listed(
            "MTLS",
            &[&tls_flags[..], &["--client-cert", at("CLIENT_CERT"), "--client-key", at("CLIENT_KEY")]].concat(),
            &[]
        )
        .0,
        0
    );
    let (status, text) = listed("SASL_PLAINTEXT", &scram, &[("KAFKA_PASSWORD", "wr0ng-secret")]);
    assert!(status == 1 && text.contains("SASL_AUTHENTICATION_FAILED"), "{status}: {text}");
    let (status, text) = listed("SSL", &["--tls"], &[]);
    assert!(status == 1 && text.contains("not signed by an authority that is trusted here"), "{status}: {text}");
    let (status, text) = listed("SASL_PLAINTEXT", &scram, &[]);
    assert!(status == 2 && text.contains("--password-file"), "{status}: {text}");
}
