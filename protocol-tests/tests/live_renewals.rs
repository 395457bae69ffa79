//! Logins that are renewed under load, or refused under way, on a real Kafka that ends sessions after three seconds. Alone in its
//! binary: it listens to what connections log.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kafka_harbor::adapter::kafka::KafkaAdapter;
use kafka_harbor::client::{
    BearerToken, Client, ClientError, CommitPosition, ConnectionError, ConsumerError, ConsumerEvent, Login, LoginError,
    OffsetReset, OidcTokens, ProduceErrorKind, RequestError, Tls,
};
use kafka_harbor::harbor::{Context, Harbor, Raw};
use kafka_harbor::observe::{ErrorReported, Observer};
use kafka_harbor::record::{NewTopic, Record, RecordRef, Topic};
use protocol_tests::{Cluster, IdentityProvider, kafka_with, unique};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};

const SECOND: Duration = Duration::from_secs(1);

/// Counts what connections log, and looks for secrets in whatever is logged, down to the finest level.
#[derive(Clone, Default)]
struct Counts {
    logged: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    secrets: Arc<[String]>,
    leaks: Arc<Mutex<Vec<String>>>,
}

impl Counts {
    fn of(&self, message: &str) -> Vec<String> {
        self.logged.lock().unwrap().get(message).cloned().unwrap_or_default()
    }

    fn search(&self, text: &Text) {
        let all = format!("{}{}", text.message, text.fields);
        if self.secrets.iter().any(|secret| all.contains(secret)) {
            self.leaks.lock().unwrap().push(all);
        }
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields.push_str(&format!(" {field}={value:?}"));
        }
    }
}

impl<S: tracing::Subscriber> Layer<S> for Counts {
    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: tracing_subscriber::layer::Context<'_, S>,
    ) {
        let mut text = Text::default();
        attributes.record(&mut text);
        self.search(&text);
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.search(&text);
        if event.metadata().target().starts_with("kafka_harbor::client") {
            self.logged.lock().unwrap().entry(text.message).or_default().push(text.fields);
        }
    }
}

/// Held by each test: what one does to logins is not to be in the log of the other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A broker that ends sessions after three seconds, knows one mechanism alone where there is no TLS, and where there is checks
/// tokens by the keys of their issuer.
fn broker() -> Option<&'static (Cluster, IdentityProvider)> {
    static SHARED: OnceLock<Option<(Cluster, IdentityProvider)>> = OnceLock::new();
    let start = || {
        let issuer = IdentityProvider::start(include_bytes!("../../src/client/tls/testdata/client.key"));
        let bearer = "listener.name.sasl_ssl.oauthbearer";
        let handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler";
        let settings = [
            "connections.max.reauth.ms=3000".to_owned(),
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms=SCRAM-SHA-512".to_owned(),
            format!("{bearer}.sasl.server.callback.handler.class={handler}"),
            format!("{bearer}.sasl.oauthbearer.jwks.endpoint.url={}", issuer.keys_endpoint()),
            format!("{bearer}.sasl.oauthbearer.expected.issuer={}", issuer.issuer()),
            format!("{bearer}.sasl.oauthbearer.expected.audience={}", IdentityProvider::AUDIENCE),
            format!("-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={}", issuer.keys_endpoint()),
        ];
        let cluster = kafka_with(1, &settings.each_ref().map(String::as_str), None)?;
        (!cluster.env.is_empty()).then_some((cluster, issuer))
    };
    SHARED.get_or_init(start).as_ref()
}

/// franz-go#1348, platformatic#211, librdkafka#4301: connections were cut at a re-authentication, because traffic went between
/// its frames or came too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_are_renewed_under_load_without_a_disconnect() {
    let _alone = ALONE.lock().await;
    let seconds = std::env::var("KAFKA_HARBOR_RENEWALS_SECONDS").map_or(20, |text| text.parse().unwrap());
    let Some((kafka, issuer)) = broker() else { return };
    let only_scram = Client::builder([&kafka.env["SASL_PLAINTEXT"]]).login(Login::plain("alice", "alice-secret"));
    let error = only_scram.build().unwrap().ping(20 * SECOND).await.unwrap_err();
    assert!(error.is_locked_out() && !error.is_retriable());
    let told = error.to_string();
    assert!(told.ends_with("broker does not offer PLAIN here; it offers SCRAM-SHA-512"), "{told}");
    let ClientError::Request { source: RequestError::NotSent { cause, .. }, .. } = error else { panic!("{error:?}") };
    let ConnectionError::Login(LoginError::MechanismNotOffered { mechanism, offered }) = &*cause else {
        panic!("{cause:?}")
    };
    assert_eq!((*mechanism, &offered[..]), ("PLAIN", &["SCRAM-SHA-512".to_owned()][..]));

    let (id, secret) = IdentityProvider::CLIENT;
    let token = issuer.token(IdentityProvider::AUDIENCE);
    // Of a token its head, which all of them have.
    let secrets = ["alice-secret", "bob-secret", secret, token.split('.').next().unwrap()].map(str::to_owned);
    let secrets = secrets.into_iter().chain([STANDARD.encode(format!("{id}:{secret}"))]).collect();
    let counts = Counts { secrets, ..Counts::default() };
    // For all threads: a callsite that another thread meets first may else be taken for one that nobody listens to.
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(counts.clone())).unwrap();
    let tls = Tls::builder(rustls_graviola::default_provider()).authorities_file(&kafka.env["CA"]).build().unwrap();
    let tokens = OidcTokens::builder(issuer.token_endpoint(), id, secret).build().unwrap();
    let fetched = issuer.given_out();
    let secure = |login| Client::builder([&kafka.env["SASL_SSL"]]).tls(tls.clone()).login(login);
    let builders = [
        secure(Login::scram_sha_512("alice", "alice-secret")),
        secure(Login::scram_sha_256("bob", "bob-secret")),
        secure(Login::plain("bob", "bob-secret")),
        secure(Login::oauth_bearer(tokens)),
        Client::builder([&kafka.env["SASL_PLAINTEXT"]]).login(Login::scram_sha_512("bob", "bob-secret")),
    ];
    let loads = builders.map(|builder| load(builder.build().unwrap(), Duration::from_secs(seconds)));
    let [a, b, c, d, e] = loads;
    let (a, b, c, d, e) = tokio::join!(a, b, c, d, e);
    let logins = counts.of("logging in");
    eprintln!("{} records in {seconds} s, {} logins", a + b + c + d + e, logins.len());
    assert_eq!(counts.of("connection failed"), Vec::<String>::new(), "no connection was cut");
    assert!(logins.iter().any(|login| login.contains("alice")), "what is no secret is logged: {logins:?}");
    assert_eq!(*counts.leaks.lock().unwrap(), Vec::<String>::new(), "secrets are in the log");
    // Each client has four connections and more in use, and renews those that are busy twice in three seconds.
    for (mechanism, clients) in [("SCRAM-SHA-512", 2), ("SCRAM-SHA-256", 1), ("PLAIN", 1), ("OAUTHBEARER", 1)] {
        let made = logins.iter().filter(|login| login.contains(&format!("{mechanism:?}"))).count();
        eprintln!("{mechanism}: {made} logins of {clients} client(s)");
        assert!(made > clients * 2 * (seconds as usize / 3), "{mechanism}: {made} logins");
    }
    // A token is kept for four fifths of its life, whatever sessions do.
    let fetched = issuer.given_out() - fetched;
    assert!((1..=2 + seconds as usize / 10).contains(&fetched), "{fetched} tokens in {seconds} s");
}

#[tokio::test]
async fn a_token_is_taken_if_its_issuer_signed_it_for_this_broker_alone() {
    let _alone = ALONE.lock().await;
    let Some((kafka, issuer)) = broker() else { return };
    let tls = Tls::builder(rustls_graviola::default_provider()).authorities_file(&kafka.env["CA"]).build().unwrap();
    let enter = async |login: Login| {
        let client = Client::builder([&kafka.env["SASL_SSL"]]).tls(tls.clone()).login(login).build().unwrap();
        client.ping(20 * SECOND).await
    };
    let (id, secret) = IdentityProvider::CLIENT;
    let by =
        |secret: &str| Login::oauth_bearer(OidcTokens::builder(issuer.token_endpoint(), id, secret).build().unwrap());
    enter(by(secret)).await.unwrap();
    let held = |token: String| Login::oauth_bearer(BearerToken::new(token).unwrap());
    enter(held(issuer.token(IdentityProvider::AUDIENCE))).await.unwrap();

    let stranger = IdentityProvider::start(include_bytes!("../../src/client/tls/testdata/client-2.key"));
    for token in [issuer.token("another"), stranger.token(IdentityProvider::AUDIENCE)] {
        let begun = Instant::now();
        let error = enter(held(token.clone())).await.unwrap_err();
        assert!(error.is_locked_out() && begun.elapsed() < 10 * SECOND, "{error}");
        let text = error.to_string();
        assert!(text.contains("OAUTHBEARER was refused") && !text.contains(&token), "{text}");
    }
    let client = Client::builder([&kafka.env["SASL_SSL"]]).tls(tls.clone()).login(by("wr0ng")).build().unwrap();
    let text = client.ping(3 * SECOND).await.unwrap_err().to_string();
    assert!(text.contains("token endpoint answered with status 401: invalid_client"), "{text}");
    assert!(!text.contains("wr0ng"), "{text}");
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
            tokio::time::sleep(Duration::from_millis(10)).await;
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

/// Takes note of refusals.
#[derive(Default)]
struct Refusals(Mutex<Vec<String>>);

impl Observer for Refusals {
    fn error(&self, event: &ErrorReported<'_>) {
        if event.error.code == "LOCKED_OUT" {
            self.0.lock().unwrap().push(event.error.text.to_owned());
        }
    }
}

fn set_password(kafka: &Cluster, user: &str, password: &str) {
    let credential = format!("SCRAM-SHA-512=[password={password}]");
    kafka.tool("configs", &["--alter", "--entity-type", "users", "--entity-name", user, "--add-config", &credential]);
}

async fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(SECOND / 20).await;
    }
}

/// A login that was refused under way left a producer trying until its delivery timeout, two minutes of silence, and ended a
/// consumer for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_is_refused_under_way_is_told_at_once_and_one_that_is_good_again_goes_on() {
    let _alone = ALONE.lock().await;
    let Some((kafka, _)) = broker() else { return };
    let user = unique("carol");
    tokio::task::block_in_place(|| set_password(kafka, &user, "right"));
    let (refusals, login) = (Arc::new(Refusals::default()), Login::scram_sha_512(&user, "right"));
    let address = &kafka.env["SASL_PLAINTEXT"];
    let client = Client::builder([address]).login(login.clone()).observer(refusals.clone()).build().unwrap();
    // The broker answers before it knows the new user itself.
    let end = Instant::now() + 30 * SECOND;
    while let Err(error) = client.ping(10 * SECOND).await {
        assert!(Instant::now() < end, "{error}");
    }
    refusals.0.lock().unwrap().clear();
    let topic = Topic::from(unique("refused"));
    client.admin().create_topics(&[NewTopic::new(&topic)]).await[0].1.as_ref().unwrap();
    let producer = client.producer().build().unwrap();
    let mut consumer = client.consumer(unique("refused")).topic(&topic, OffsetReset::Earliest).build().unwrap();
    let (read, faults) = <(Arc<Mutex<BTreeSet<String>>>, Arc<Mutex<Vec<ConsumerError>>>)>::default();
    let reading = tokio::spawn({
        let (read, faults) = (read.clone(), faults.clone());
        async move {
            while let Some(event) = consumer.next().await {
                match event {
                    ConsumerEvent::Batch(batch) => {
                        let records =
                            batch.batches.iter().flat_map(|batch| batch.records()).map(|record| record.unwrap());
                        let texts = records.map(|record| String::from_utf8(record.value.unwrap().to_vec()).unwrap());
                        read.lock().unwrap().extend(texts);
                    }
                    ConsumerEvent::Fault(error) => faults.lock().unwrap().push(error),
                    _ => {}
                }
            }
        }
    });
    let handled = Arc::new(Mutex::new(BTreeSet::new()));
    let adapter = KafkaAdapter::builder([address]).login(login).build().unwrap();
    let harbor = Harbor::builder("refused", adapter).serializer(Raw).build().unwrap();
    let handle = {
        let handled = handled.clone();
        move |value: Bytes, _: Context| {
            handled.lock().unwrap().insert(String::from_utf8(value.to_vec()).unwrap());
            std::future::ready(Ok::<(), kafka_harbor::harbor::Failure>(()))
        }
    };
    let service = harbor
        .consumer(unique("refused-service"))
        .from_beginning(true)
        .auto_create_topics(true)
        .subscribe(topic.as_str(), handle)
        .build();
    service.unwrap().start().await.unwrap();

    let mut acknowledged = BTreeSet::new();
    let mut send = async |number: usize| {
        let sent = producer.send(Record::new(&topic, number.to_string())).await;
        sent.map(|_| acknowledged.insert(number.to_string()))
    };
    for number in 0..20 {
        send(number).await.unwrap();
    }
    until("all is read", 30 * SECOND, || read.lock().unwrap().len() == 20 && handled.lock().unwrap().len() == 20).await;

    tokio::task::block_in_place(|| set_password(kafka, &user, "another"));
    let (begun, mut number) = (Instant::now(), 20);
    let error = loop {
        match send(number).await {
            Ok(_) => assert!(begun.elapsed() < 20 * SECOND, "still let in"),
            Err(error) => break error,
        }
        number += 1;
        tokio::time::sleep(SECOND / 20).await;
    };
    eprintln!("told {:?} after the password had changed: {error}", begun.elapsed());
    assert_eq!(error.kind, ProduceErrorKind::LockedOut);
    let why = std::error::Error::source(&*error).unwrap().to_string();
    assert!(why.contains("SASL_AUTHENTICATION_FAILED (58)"), "{why}");
    let locked_out = || faults.lock().unwrap().iter().any(|fault| matches!(fault, ConsumerError::LockedOut { .. }));
    until("the consumer is told", 20 * SECOND, locked_out).await;
    until("the service is unwell", 20 * SECOND, || harbor.health().consumers[0].locked_out && !harbor.health().healthy)
        .await;
    let told = refusals.0.lock().unwrap().clone();
    assert!(told.iter().any(|text| text.contains("SASL_AUTHENTICATION_FAILED (58)")), "{told:?}");
    let begun = Instant::now();
    send(1_000_000).await.unwrap_err();
    assert!(begun.elapsed() < 10 * SECOND, "took {:?}", begun.elapsed());

    tokio::task::block_in_place(|| set_password(kafka, &user, "right"));
    let begun = Instant::now();
    while send(number).await.is_err() {
        assert!(begun.elapsed() < 30 * SECOND, "not let in again");
    }
    send(number + 1).await.unwrap();
    until("all that was acknowledged is read", 60 * SECOND, || acknowledged.is_subset(&read.lock().unwrap())).await;
    until("and handled", 60 * SECOND, || acknowledged.is_subset(&handled.lock().unwrap())).await;
    until("the service is well again", 30 * SECOND, || harbor.health().healthy).await;
    assert!(!reading.is_finished() && !faults.lock().unwrap().iter().any(ConsumerError::is_fatal), "{faults:?}");
    reading.abort();
    harbor.shutdown(30 * SECOND).await.unwrap();
}
