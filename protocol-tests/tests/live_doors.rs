//! TLS and logins against a real Kafka: every listener of the broker script, right and wrong.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kafka_harbor::client::{
    BearerToken, Client, ClientBuilder, ClientError, CommitPosition, ConnectionError, ConsumerEvent, Login, LoginError,
    OffsetReset, ProtocolViolation, RequestError, Tls, TlsBuilder, TlsFailure,
};
use kafka_harbor::error::Blame;
use kafka_harbor::record::{NewTopic, Record, RecordRef, Topic};
use protocol_tests::{Cluster, kafka, kafka_with, unique};
use tokio::net::{TcpListener, TcpStream};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};

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

/// Counts what connections log.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl Counts {
    fn of(&self, message: &str) -> Vec<String> {
        self.0.lock().unwrap().get(message).cloned().unwrap_or_default()
    }
}

impl<S: tracing::Subscriber> Layer<S> for Counts {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        struct Text(String, String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                } else {
                    self.1.push_str(&format!(" {field}={value:?}"));
                }
            }
        }
        let mut text = Text(String::new(), String::new());
        event.record(&mut text);
        if event.metadata().target().starts_with("kafka_harbor::client") {
            self.0.lock().unwrap().entry(text.0).or_default().push(text.1);
        }
    }
}

/// franz-go#1348, platformatic#211, librdkafka#4301: connections were cut at a re-authentication, because traffic went between
/// its frames or came too late.
#[tokio::test]
async fn logins_are_renewed_under_load_without_a_disconnect() {
    let seconds = std::env::var("KAFKA_HARBOR_RENEWALS_SECONDS").map_or(20, |text| text.parse().unwrap());
    let settings =
        ["connections.max.reauth.ms=3000", "listener.name.sasl_plaintext.sasl.enabled.mechanisms=SCRAM-SHA-512"];
    let Some(kafka) = kafka_with(1, &settings, None) else { return };
    if kafka.env.is_empty() {
        return;
    }
    let only_scram = Client::builder([&kafka.env["SASL_PLAINTEXT"]]).login(Login::plain("alice", "alice-secret"));
    let error = login_error(kept_out(only_scram).await).to_string();
    assert_eq!(error, "broker does not offer PLAIN here; it offers SCRAM-SHA-512");

    let counts = Counts::default();
    let _watching = tracing::subscriber::set_default(tracing_subscriber::registry().with(counts.clone()));
    let tls = Tls::builder(rustls_graviola::default_provider()).authorities_file(&kafka.env["CA"]).build().unwrap();
    let builders = [
        Client::builder([&kafka.env["SASL_SSL"]]).tls(tls.clone()).login(Login::scram_sha_512("alice", "alice-secret")),
        Client::builder([&kafka.env["SASL_SSL"]]).tls(tls).login(Login::oauth_bearer(token("bob", 3600))),
        Client::builder([&kafka.env["SASL_PLAINTEXT"]]).login(Login::scram_sha_512("bob", "bob-secret")),
    ];
    let loads = builders.map(|builder| load(builder.build().unwrap(), Duration::from_secs(seconds)));
    let [a, b, c] = loads;
    let (a, b, c) = tokio::join!(a, b, c);
    let logins = counts.of("logging in").len();
    eprintln!("{} records in {seconds} s, {logins} logins", a + b + c);
    assert_eq!(counts.of("connection failed"), Vec::<String>::new(), "no connection was cut");
    // Each client has four connections and more that are in use all the time, and renews twice in three seconds.
    assert!(logins > 3 * 4 * (seconds as usize / 3), "{logins} logins");
}

/// Writes and reads for so long; everything that was acknowledged is read once. Returns how much.
async fn load(client: Client, time: Duration) -> usize {
    let topic = Topic::from(unique("renewals"));
    client.admin().create_topics(&[NewTopic::new(&topic).with_partitions(3)]).await[0].1.as_ref().unwrap();
    let mut consumer = client.consumer(unique("renewals")).topic(&topic, OffsetReset::Earliest).build().unwrap();
    let producer = client.producer().build().unwrap();
    let end = Instant::now() + time;
    let writing = async {
        let mut written = 0;
        while Instant::now() < end {
            let texts: Vec<String> = (written..written + 100).map(|number| number.to_string()).collect();
            producer.send_batch(&topic, texts.iter().map(|text| RecordRef::new(text.as_bytes()))).await.unwrap();
            written += 100;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        written
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let reading = {
        let seen = seen.clone();
        tokio::spawn(async move {
            while let Some(event) = consumer.next().await {
                match event {
                    ConsumerEvent::Batch(batch) => {
                        let position = CommitPosition::new(batch.assigned.clone(), batch.next_offset);
                        let records =
                            batch.batches.iter().flat_map(|batch| batch.records()).map(|record| record.unwrap());
                        let values = records.filter(|record| record.offset >= batch.from).map(|record| {
                            std::str::from_utf8(record.value.unwrap()).unwrap().parse::<usize>().unwrap()
                        });
                        seen.lock().unwrap().extend(values);
                        drop(batch);
                        consumer.handle().commit(vec![position]).await.unwrap();
                    }
                    ConsumerEvent::Fault(error) => panic!("{error}"),
                    ConsumerEvent::Lost(_) => panic!("lost its partitions"),
                    _ => {}
                }
            }
        })
    };
    let written = writing.await;
    let all = async {
        while seen.lock().unwrap().len() < written {
            tokio::time::sleep(SECOND / 20).await;
        }
    };
    tokio::time::timeout(20 * SECOND, all).await.expect("everything that was written is read");
    assert!(!reading.is_finished());
    reading.abort();
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, (0..written).collect::<Vec<_>>());
    written
}
