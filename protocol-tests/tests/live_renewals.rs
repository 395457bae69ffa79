//! Logins that are renewed under load, on a real Kafka that ends sessions after three seconds. Alone in its binary: it listens to
//! what connections log.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kafka_harbor::client::{Client, CommitPosition, ConsumerEvent, Login, OffsetReset, Tls};
use kafka_harbor::record::{NewTopic, RecordRef, Topic};
use protocol_tests::{kafka_with, unique};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};

const SECOND: Duration = Duration::from_secs(1);

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
    let error = only_scram.build().unwrap().ping(20 * SECOND).await.unwrap_err();
    assert!(error.is_locked_out());
    assert!(error.to_string().ends_with("broker does not offer PLAIN here; it offers SCRAM-SHA-512"), "{error}");

    let counts = Counts::default();
    // For all threads: a callsite that another thread meets first may else be taken for one that nobody listens to.
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(counts.clone())).unwrap();
    let tls = Tls::builder(rustls_graviola::default_provider()).authorities_file(&kafka.env["CA"]).build().unwrap();
    let builders = [
        Client::builder([&kafka.env["SASL_SSL"]]).tls(tls.clone()).login(Login::scram_sha_512("alice", "alice-secret")),
        Client::builder([&kafka.env["SASL_SSL"]]).tls(tls).login(Login::plain("bob", "bob-secret")),
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
