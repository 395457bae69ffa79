//! The client, the consumer group and the harbor over the dev broker: in process in virtual time, and over TCP.

#![cfg(all(feature = "kafka", feature = "testing"))]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "dev_broker/admin.rs"]
mod admin;
#[path = "dev_broker/telemetry.rs"]
mod telemetry;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kafka_harbor::adapter::Adapter;
use kafka_harbor::client::{
    BrokerAddress, Client, CommitPosition, Consumer, ConsumerEvent, IsolationLevel, OffsetReset, OffsetSpec,
    PartitionBatch,
};
use kafka_harbor::harbor::{Context, Failure, Harbor, Message, Text};
use kafka_harbor::protocol::api::ApiKey;
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{NewTopic, Offset, Record, Topic, TopicPartition};
use kafka_harbor::testing::broker::{DevBroker, Effect, Listener, Rule, StartError};
use kafka_harbor::testing::contract::{Fixture, records_are_settled_one_by_one};
use kafka_protocol::messages::{FetchRequest, RequestHeader};
use kafka_protocol::protocol::Decodable;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECOND: Duration = Duration::from_secs(1);
const PRODUCE: ApiKey = ApiKey(0);
const FETCH: ApiKey = ApiKey(1);

async fn three() -> DevBroker {
    DevBroker::builder().nodes(3).topic("orders", 6).start().await.unwrap()
}

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new("orders", partition)
}

async fn produce(client: &Client, from: usize, to: usize) {
    let producer = client.producer().build().unwrap();
    let record = |number: usize| Record::new("orders", number.to_string()).with_key(number.to_string());
    producer.send_all((from..to).map(record).collect()).await.unwrap();
    producer.close(10 * SECOND).await.unwrap();
}

fn numbers(batch: &PartitionBatch) -> Vec<usize> {
    let records = batch.batches.iter().filter(|batch| !batch.is_control()).flat_map(|batch| batch.records());
    let records = records.map(|record| record.unwrap()).filter(|record| record.offset >= batch.from);
    records.map(|record| std::str::from_utf8(record.value.unwrap()).unwrap().parse().unwrap()).collect()
}

async fn consumer(client: &Client, group: &str) -> Consumer {
    client.consumer(group).topic("orders", OffsetReset::Earliest).build().unwrap()
}

/// Reads and commits until so many different numbers were seen.
async fn read(consumer: &mut Consumer, seen: &mut BTreeSet<usize>, until: usize) {
    let reading = async {
        while seen.len() < until {
            match consumer.next().await.expect("goes on") {
                ConsumerEvent::Batch(batch) => {
                    seen.extend(numbers(&batch));
                    let position = CommitPosition::new(batch.assigned.clone(), batch.next_offset);
                    // A commit may meet a rebalance; what it would have covered is read again.
                    let _ = consumer.handle().commit(vec![position]).await;
                }
                ConsumerEvent::Fault(fault) if fault.is_fatal() => panic!("{fault}"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(120 * SECOND, reading).await.expect("everything is read in time");
}

/// What the client does with every API it has, on any dev broker.
async fn everything(client: Client) {
    client.ping(10 * SECOND).await.unwrap();
    let admin = client.admin();
    let made = Topic::from("made");
    let created = admin.create_topics(&[NewTopic::new(&made).with_partitions(2)]).await;
    created[0].1.as_ref().unwrap();
    assert_eq!(admin.describe_topics(std::slice::from_ref(&made)).await[0].1.as_ref().unwrap().partitions.len(), 2);
    admin.create_partitions(&[(made.clone(), 3)]).await[0].1.as_ref().unwrap();
    assert!(admin.describe_topic_configs(std::slice::from_ref(&made)).await[0].1.as_ref().unwrap().len() > 3);

    produce(&client, 0, 500).await;
    let asked: Vec<_> = (0..6).map(|partition| (at(partition), OffsetSpec::Latest)).collect();
    let ends = admin.list_offsets(&asked, IsolationLevel::ReadCommitted).await;
    let ends: Vec<i64> = ends.into_iter().map(|(_, end)| end.unwrap().offset.unwrap().0).collect();
    assert_eq!(ends.iter().sum::<i64>(), 500);

    let mut reader = consumer(&client, "billing").await;
    let mut seen = BTreeSet::new();
    read(&mut reader, &mut seen, 500).await;
    let groups = admin.list_groups().await.unwrap();
    assert!(groups.groups.iter().any(|group| group.group == "billing"), "{groups:?}");
    reader.close(10 * SECOND).await.unwrap();
    admin.delete_records(&[(at(0), Offset(1))]).await[0].1.as_ref().unwrap();
    admin.delete_groups(&["billing".to_owned()]).await[0].1.as_ref().unwrap();
    admin.delete_topics(&[made]).await[0].1.as_ref().unwrap();
    client.close(10 * SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_client_runs_in_process_in_virtual_time() {
    let broker = three().await;
    everything(broker.client_config().build().unwrap()).await;
}

/// A broker has room for a thousand sessions, and keeps one that is not ended for two minutes: readers that came and went left later ones
/// without.
#[tokio::test(start_paused = true)]
async fn readers_that_go_end_their_fetch_sessions_and_wait_for_nobody() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    produce(&client, 0, 60).await;
    let sessions = || broker.act(|cluster, _| cluster.fetch_sessions());
    let until = async |wanted: usize| {
        let looks = async {
            while sessions() != wanted {
                tokio::time::sleep(SECOND / 100).await;
            }
        };
        tokio::time::timeout(10 * SECOND, looks).await.unwrap_or_else(|_| panic!("{} sessions", sessions()));
    };
    let mut dropped = consumer(&client, "dropped").await;
    read(&mut dropped, &mut BTreeSet::new(), 60).await;
    until(3).await;
    drop(dropped);
    until(0).await;

    let mut closed = consumer(&client, "closed").await;
    read(&mut closed, &mut BTreeSet::new(), 60).await;
    until(3).await;
    // One broker does not answer any more, and its long poll is not over.
    let begun = tokio::time::Instant::now();
    broker.order(Rule::new(FETCH, Effect::Silence).node(1).always());
    closed.close(10 * SECOND).await.unwrap();
    assert!(begun.elapsed() < SECOND / 10, "held up for {:?}", begun.elapsed());
    until(1).await;
    client.close(2 * SECOND).await.unwrap_err();
    assert!(begun.elapsed() < 4 * SECOND, "held up for {:?}", begun.elapsed());
}

#[tokio::test]
async fn the_client_runs_over_tcp() {
    let builder = DevBroker::builder().nodes(3).topic("orders", 6);
    let broker = builder.listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let bootstrap = broker.tcp_bootstrap();
    assert_eq!(bootstrap.split(',').collect::<BTreeSet<_>>().len(), 3, "each node has a port of its own: {bootstrap}");
    everything(Client::builder([bootstrap]).build().unwrap()).await;
}

/// A client that is told "connection refused" asks elsewhere at once; one whose connection is taken and closed looks for
/// another cause.
#[tokio::test]
async fn a_node_that_does_not_run_refuses_connections_until_it_runs_again() {
    let builder = DevBroker::builder().nodes(2);
    let broker = builder.listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let bootstrap = broker.tcp_bootstrap();
    let second = bootstrap.split(',').nth(1).unwrap();
    let connects = |wanted: bool| async move {
        let wait = async {
            loop {
                match tokio::net::TcpStream::connect(second).await {
                    Ok(_) if wanted => return,
                    Err(error) if !wanted && error.kind() == std::io::ErrorKind::ConnectionRefused => return,
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        tokio::time::timeout(30 * SECOND, wait).await.unwrap_or_else(|_| panic!("connects: not {wanted} in time"));
    };
    connects(true).await;
    broker.act(|cluster, now| cluster.crash(2, now));
    connects(false).await;
    broker.act(|cluster, now| cluster.restart(2, now));
    connects(true).await;
    assert_eq!(broker.tcp_bootstrap(), bootstrap, "on the same port");
    let client = Client::builder([second]).build().unwrap();
    client.ping(30 * SECOND).await.unwrap();
}

#[cfg(feature = "sasl")]
mod logins {
    use super::*;
    use kafka_harbor::client::{BearerToken, Fetching, Login, TokenSource};
    use kafka_harbor::testing::broker::{Sasl, SaslMechanism};

    #[derive(Debug)]
    struct Always;

    impl TokenSource for Always {
        fn token(&self) -> Fetching<'_> {
            Box::pin(async { Ok(BearerToken::new("any-token")?) })
        }
    }

    fn sasl() -> Sasl {
        use SaslMechanism::{OAuthBearer, Plain, ScramSha256, ScramSha512};
        Sasl::new([Plain, ScramSha256, ScramSha512, OAuthBearer]).user("alice", "a-secret")
    }

    fn every_login() -> [Login; 4] {
        [
            Login::plain("alice", "a-secret"),
            Login::scram_sha_256("alice", "a-secret"),
            Login::scram_sha_512("alice", "a-secret"),
            Login::oauth_bearer(Always),
        ]
    }

    #[tokio::test(start_paused = true)]
    async fn our_client_logs_in_by_every_mechanism_in_process() {
        let builder = DevBroker::builder().nodes(3).topic("orders", 6);
        let broker = builder.settings(|settings| settings.sasl = Some(sasl())).start().await.unwrap();
        for login in every_login() {
            produce(&broker.client_config().login(login).build().unwrap(), 0, 20).await;
        }
        let without = broker.client_config().build().unwrap();
        assert!(without.ping(5 * SECOND).await.is_err());
        for wrong in [Login::plain("alice", "wrong"), Login::scram_sha_256("alice", "wrong")] {
            let client = broker.client_config().login(wrong).build().unwrap();
            let error = client.ping(5 * SECOND).await.unwrap_err();
            let mut told = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                told = format!("{told}: {cause}");
                source = cause.source();
            }
            assert!(told.contains("invalid credentials") || told.contains("Invalid username"), "{told}");
        }
    }

    #[tokio::test]
    async fn our_client_logs_in_over_tcp() {
        let builder = DevBroker::builder().topic("orders", 6).listen("127.0.0.1:0".parse().unwrap());
        let broker = builder.settings(|settings| settings.sasl = Some(sasl())).start().await.unwrap();
        for login in every_login() {
            produce(&Client::builder([broker.tcp_bootstrap()]).login(login).build().unwrap(), 0, 20).await;
        }
    }

    /// KIP-368: a session is renewed on the connection that it is on, under load, and no request is lost by it.
    #[tokio::test(start_paused = true)]
    async fn sessions_are_renewed_on_the_connections_that_are_there() {
        let sasl = sasl().session(3 * SECOND);
        let builder = DevBroker::builder().topic("orders", 6);
        let broker = builder.settings(|settings| settings.sasl = Some(sasl)).start().await.unwrap();
        let client = broker.client_config().login(Login::plain("alice", "a-secret")).build().unwrap();
        let producer = client.producer().build().unwrap();
        let connections = || broker.act(|cluster, _| cluster.connections());
        let mut first = None;
        for number in 0..300 {
            producer.send(Record::new("orders", number.to_string())).await.unwrap();
            tokio::time::sleep(SECOND / 10).await;
            if number == 10 {
                first = Some(connections());
            }
        }
        assert_eq!(Some(connections()), first, "thirty seconds later they are the same");
    }
}

#[tokio::test]
async fn an_address_beyond_this_machine_has_to_be_asked_for_twice() {
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let refused = DevBroker::builder().listen(everywhere).start().await.unwrap_err();
    assert!(matches!(refused, StartError::BeyondLoopback { .. }), "{refused}");
    let broker = DevBroker::builder().listen(everywhere).dangerously_beyond_loopback().start().await.unwrap();
    assert!(broker.tcp_bootstrap().starts_with("127.0.0.1:"), "an address that can be connected to");
}

#[tokio::test(start_paused = true)]
async fn members_share_partitions_and_survive_each_other() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    let (mut first, mut second) = (consumer(&client, "g").await, consumer(&client, "g").await);
    let (mut of_first, mut of_second) = (BTreeSet::new(), BTreeSet::new());
    let joined = tokio::time::timeout(60 * SECOND, async {
        let mut halves = (0, 0);
        while halves != (3, 3) {
            tokio::select! {
                Some(event) = first.next() => count(&mut halves.0, event),
                Some(event) = second.next() => count(&mut halves.1, event),
            }
        }
    });
    joined.await.expect("three each");
    produce(&client, 0, 300).await;
    let both = async {
        loop {
            tokio::select! {
                Some(event) = first.next() => take(&mut of_first, event),
                Some(event) = second.next() => take(&mut of_second, event),
            }
            if of_first.len() + of_second.len() == 300 {
                break;
            }
        }
    };
    tokio::time::timeout(60 * SECOND, both).await.expect("all is read");
    assert!(!of_first.is_empty() && !of_second.is_empty());
    second.close(10 * SECOND).await.unwrap();
    produce(&client, 300, 400).await;
    // What was never committed comes again with what is new.
    read(&mut first, &mut of_first, 400).await;
}

fn count(partitions: &mut i64, event: ConsumerEvent) {
    match event {
        ConsumerEvent::Assigned(assigned) => *partitions += assigned.len() as i64,
        ConsumerEvent::Revoked(revoked, release) => {
            *partitions -= revoked.len() as i64;
            release.send();
        }
        ConsumerEvent::Lost(lost) => *partitions -= lost.len() as i64,
        _ => {}
    }
}

fn take(seen: &mut BTreeSet<usize>, event: ConsumerEvent) {
    if let ConsumerEvent::Batch(batch) = event {
        seen.extend(numbers(&batch));
    }
}

/// Java KAFKA-5494 and its kin: a resend after an answer that never came is a duplicate to the broker, and none to a reader.
#[tokio::test(start_paused = true)]
async fn what_was_written_and_not_answered_is_written_once() {
    for effect in [Effect::DropAnswer, Effect::CloseAfter, Effect::Cut(9), Effect::Cut(0)] {
        let broker = three().await;
        let client = broker.client_config().request_timeout(2 * SECOND).build().unwrap();
        let rule = broker.order(Rule::new(PRODUCE, effect.clone()).times(2));
        produce(&client, 0, 60).await;
        assert_eq!(broker.withdraw(rule), None, "the fault was met twice: {effect:?}");
        let ends = broker.act(|cluster, _| {
            (0..6).map(|partition| cluster.partition(&at(partition)).unwrap().high_watermark.0).collect::<Vec<_>>()
        });
        assert_eq!(ends.iter().sum::<i64>(), 60, "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn leaders_and_nodes_come_and_go_under_a_producer_and_a_group() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    let mut reader = consumer(&client, "g").await;
    let mut seen = BTreeSet::new();
    for round in 0..6 {
        let node = round % 3 + 1;
        match round {
            0..3 => broker.act(|cluster, now| {
                for partition in 0..6 {
                    cluster.move_leader(&at(partition), node, now).unwrap();
                }
            }),
            _ => broker.act(|cluster, now| cluster.crash(node, now)),
        }
        produce(&client, round as usize * 100, round as usize * 100 + 100).await;
        read(&mut reader, &mut seen, round as usize * 100 + 100).await;
        broker.act(|cluster, now| cluster.restart(node, now));
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_client_goes_on_and_loses_nothing() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    broker.order(Rule::any(Effect::Throttle(SECOND)).skip(3).times(10));
    produce(&client, 0, 100).await;
    let mut reader = consumer(&client, "g").await;
    read(&mut reader, &mut BTreeSet::new(), 100).await;
}

/// The harbor's own story: a handler that fails, the ladder, the dead letter, the redrive.
async fn orders(broker: &DevBroker, adapter: kafka_harbor::adapter::kafka::KafkaAdapterBuilder) {
    let harbor = Harbor::builder("orders-service", adapter.build().unwrap()).serializer(Text).build().unwrap();
    let seen: Arc<Mutex<Vec<(String, u32)>>> = Arc::default();
    let handler = {
        let seen = Arc::clone(&seen);
        move |order: String, context: Context| {
            let attempt = context.attempt();
            let mut seen = seen.lock().unwrap();
            seen.push((order.clone(), attempt));
            let healed = seen.iter().filter(|(value, _)| *value == order).count() > 2;
            let fails = order == "bad" && !healed;
            std::future::ready(if fails { Err(Failure::new("bad sku").named("ValidationError")) } else { Ok(()) })
        }
    };
    let consumer = harbor.consumer("billing").auto_create_topics(true).retry_levels(["300ms"]).from_beginning(true);
    consumer.subscribe("orders", handler).build().unwrap().start().await.unwrap();
    let producer = harbor.producer().build().unwrap();
    for order in ["good", "bad"] {
        producer.send("orders", Message::new(order.to_owned()).with_key(order)).await.unwrap();
    }
    let dead = TopicPartition::new("orders-dlq", 0);
    let letters = || {
        broker.act(|cluster, _| {
            (0..6)
                .filter_map(|index| cluster.partition(&TopicPartition::new(dead.topic.clone(), index)))
                .map(|partition| partition.high_watermark.0)
                .sum::<i64>()
        })
    };
    let wait = async {
        while letters() < 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(60 * SECOND, wait).await.expect("a dead letter");
    let report = harbor.redrive("orders-dlq").idle_timeout("1s").run().await.unwrap();
    assert_eq!((report.reprocessed, report.skipped), (1, 0));
    let wait = async {
        while seen.lock().unwrap().len() < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(60 * SECOND, wait).await.expect("it is handled at last");
    harbor.shutdown(20 * SECOND).await.unwrap();
    let attempts: Vec<u32> = seen.lock().unwrap().iter().filter(|(order, _)| order == "bad").map(|(_, n)| *n).collect();
    assert_eq!(attempts, [1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_orders_story_runs_in_process() {
    let broker = three().await;
    orders(&broker, broker.adapter_config()).await;
}

#[tokio::test]
async fn the_orders_story_runs_over_tcp() {
    let builder = DevBroker::builder().nodes(3).topic("orders", 6);
    let broker = builder.listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let bootstrap = broker.tcp_bootstrap();
    orders(&broker, kafka_harbor::adapter::kafka::KafkaAdapter::builder(bootstrap.split(','))).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_told_with_its_code() {
    let broker = three().await;
    let client = broker.client_config().build().unwrap();
    broker.order(Rule::new(PRODUCE, Effect::Fail(ErrorCode::MESSAGE_TOO_LARGE)).topic("orders"));
    let producer = client.producer().build().unwrap();
    let error = producer.send(Record::new("orders", "x").with_partition(0)).await.unwrap_err();
    assert!(error.to_string().contains("MESSAGE_TOO_LARGE"), "{error}");
}

/// One line to the control port, and the line that comes back.
async fn ordered(broker: &DevBroker, line: &str) -> serde_json::Value {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let stream = tokio::net::TcpStream::connect(broker.control_address().unwrap()).await.unwrap();
    let mut stream = BufReader::new(stream);
    stream.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).await.unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[tokio::test]
async fn faults_are_ordered_over_the_control_port() {
    let loopback = "127.0.0.1:0".parse().unwrap();
    let outside = DevBroker::builder().control("0.0.0.0:0".parse().unwrap()).start().await.unwrap_err();
    assert!(matches!(outside, StartError::BeyondLoopback { .. }), "{outside}");
    let builder = DevBroker::builder().topic("orders", 6).listen(loopback).control(loopback);
    let broker = builder.start().await.unwrap();
    let fault = r#"{"act":"fault","api":"Produce","topic":"orders","effect":"fail","code":"MESSAGE_TOO_LARGE"}"#;
    assert_eq!(ordered(&broker, fault).await, serde_json::json!({ "ok": true, "rule": 1 }));
    let client = Client::builder([broker.tcp_bootstrap()]).build().unwrap();
    let producer = client.producer().build().unwrap();
    let error = producer.send(Record::new("orders", "x").with_partition(0)).await.unwrap_err();
    assert!(error.to_string().contains("MESSAGE_TOO_LARGE"), "{error}");
    producer.send(Record::new("orders", "y").with_partition(0)).await.unwrap();
    let state = ordered(&broker, r#"{"act":"partition","topic":"orders","partition":0}"#).await;
    assert_eq!(state["high_watermark"], 1);
}

/// What went over the wire of each Fetch: its bytes, and how many partitions it said and forgot.
type Fetches = Arc<Mutex<Vec<(usize, usize, usize)>>>;

/// Stands before the only node and takes notes of what is fetched.
async fn overheard(broker: &DevBroker) -> (Fetches, String) {
    let fetches = Fetches::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, target) = (listener.local_addr().unwrap().port(), broker.tcp_bootstrap());
    broker.act(|cluster, _| cluster.advertise(1, Listener::Tcp, BrokerAddress::new("127.0.0.1", port)));
    let notes = fetches.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let node = tokio::net::TcpStream::connect(&target).await.unwrap();
            let ((mut from_client, mut to_client), (mut from_node, mut to_node)) =
                (client.into_split(), node.into_split());
            let notes = notes.clone();
            tokio::spawn(async move { tokio::io::copy(&mut from_node, &mut to_client).await });
            tokio::spawn(async move {
                while let Ok(length) = from_client.read_u32().await {
                    let mut frame = vec![0; length as usize];
                    from_client.read_exact(&mut frame).await.unwrap();
                    note(&notes, &frame);
                    to_node.write_u32(length).await.unwrap();
                    to_node.write_all(&frame).await.unwrap();
                }
            });
        }
    });
    (fetches, format!("127.0.0.1:{port}"))
}

fn note(fetches: &Fetches, mut frame: &[u8]) {
    let (api, version) = (i16::from_be_bytes([frame[0], frame[1]]), i16::from_be_bytes([frame[2], frame[3]]));
    if api != FETCH.0 {
        return;
    }
    let bytes = frame.len();
    let header = if version >= 12 { 2 } else { 1 };
    RequestHeader::decode(&mut frame, header).unwrap();
    let request = FetchRequest::decode(&mut frame, version).unwrap();
    let said = request.topics.iter().map(|topic| topic.partitions.len()).sum();
    let forgotten = request.forgotten_topics_data.iter().map(|topic| topic.partitions.len()).sum();
    fetches.lock().unwrap().push((bytes, said, forgotten));
}

/// Waits until the notes are so.
async fn until(fetches: &Fetches, what: &str, holds: impl Fn(&[(usize, usize, usize)]) -> bool) {
    let end = tokio::time::Instant::now() + 60 * SECOND;
    while !holds(&fetches.lock().unwrap()) {
        assert!(tokio::time::Instant::now() < end, "{what}: {:?}", fetches.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn of_a_thousand_idle_partitions_a_fetch_says_only_what_changed() {
    let builder = DevBroker::builder().topic("orders", 1_000);
    let broker = builder.listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let (fetches, address) = overheard(&broker).await;
    let client = Client::builder([address]).build().unwrap();
    let builder = client.consumer("idle").topic("orders", OffsetReset::Earliest);
    let mut consumer = builder.fetch_max_wait(Duration::from_millis(20)).build().unwrap();
    let said = |notes: &[(usize, usize, usize)]| notes.iter().map(|(_, said, _)| said).sum::<usize>();
    until(&fetches, "all are said, and five requests come after", |notes| {
        said(notes) >= 1_000 && notes.iter().rev().take(5).all(|(_, said, _)| *said == 0)
    })
    .await;
    let idle = fetches.lock().unwrap().clone();
    assert_eq!((said(&idle), idle.iter().map(|(_, _, forgotten)| forgotten).sum::<usize>()), (1_000, 0));
    let (bytes, first) = (idle.last().unwrap().0, idle.iter().map(|(bytes, ..)| *bytes).max().unwrap());
    assert!(bytes < 100 && first > 25_000, "{bytes} bytes, and {first} at first");

    client.producer().build().unwrap().send(Record::new("orders", "x").with_partition(7)).await.unwrap();
    let read = async {
        while let Some(event) = consumer.next().await {
            if let ConsumerEvent::Batch(batch) = event {
                return batch.assigned.partition;
            }
        }
        panic!("the membership ended");
    };
    assert_eq!(tokio::time::timeout(60 * SECOND, read).await.unwrap(), at(7));
    until(&fetches, "its new position is said", |notes| said(notes) == 1_001).await;
}

/// A cluster of two racks, and a consumer in the second, which does not lead.
async fn two_racks() -> (DevBroker, Client, Consumer) {
    let builder = DevBroker::builder().nodes(2).topic("orders", 1).settings(|settings| {
        settings.racks = vec!["east".to_owned(), "west".to_owned()];
        settings.rack_aware_reads = true;
    });
    let broker = builder.start().await.unwrap();
    broker.act(|cluster, now| cluster.move_leader(&at(0), 1, now)).unwrap();
    let client = broker.client_config().build().unwrap();
    let consumer = client.consumer("west").topic("orders", OffsetReset::Earliest).rack("west").build().unwrap();
    (broker, client, consumer)
}

#[tokio::test(start_paused = true)]
async fn a_consumer_reads_from_the_replica_in_its_rack() {
    let (broker, client, mut consumer) = two_racks().await;
    let mut seen = BTreeSet::new();
    // The leader checks the position first, and serves what is there; then it sends the reader away.
    for number in 0..2 {
        produce(&client, number * 5, number * 5 + 5).await;
        read(&mut consumer, &mut seen, number * 5 + 5).await;
    }
    let count = |node| broker.order(Rule::new(FETCH, Effect::Delay(Duration::ZERO)).node(node).always());
    let (leader, other) = (count(1), count(2));
    produce(&client, 10, 20).await;
    read(&mut consumer, &mut seen, 20).await;
    assert_eq!(broker.withdraw(leader), Some(0));
    assert!(broker.withdraw(other).is_some_and(|fetches| fetches > 0));
}

/// The leader would send it there again and again, and no records with it.
#[tokio::test(start_paused = true)]
async fn a_consumer_goes_on_at_the_leader_when_the_replica_in_its_rack_refuses_or_is_gone() {
    for effect in
        [Effect::Fail(ErrorCode::OFFSET_OUT_OF_RANGE), Effect::Fail(ErrorCode::NOT_LEADER_OR_FOLLOWER), Effect::Close]
    {
        let (broker, client, mut consumer) = two_racks().await;
        let mut seen = BTreeSet::new();
        for number in 0..2 {
            produce(&client, number * 5, number * 5 + 5).await;
            read(&mut consumer, &mut seen, number * 5 + 5).await;
        }
        broker.order(Rule::new(FETCH, effect).node(2).always());
        produce(&client, 10, 20).await;
        read(&mut consumer, &mut seen, 20).await;
        assert_eq!(seen.len(), 20);
    }
}

/// The topics of records until so many came.
#[cfg(feature = "regex")]
async fn topics_of(consumer: &mut Consumer, records: usize) -> Vec<(String, usize)> {
    let mut seen = Vec::new();
    let reading = async {
        while seen.len() < records {
            match consumer.next().await.expect("goes on") {
                ConsumerEvent::Batch(batch) => {
                    let topic = batch.assigned.partition.topic.to_string();
                    seen.extend(numbers(&batch).into_iter().map(|number| (topic.clone(), number)));
                }
                ConsumerEvent::Revoked(_, release) => release.send(),
                ConsumerEvent::Fault(fault) if fault.is_fatal() => panic!("{fault}"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(1_000 * SECOND, reading).await.expect("everything is read in time");
    seen.sort();
    seen
}

#[cfg(feature = "regex")]
async fn a_pattern_is_read(protocol: kafka_harbor::client::GroupProtocol) {
    let builder = DevBroker::builder().topic("orders-eu", 2).topic("orders-eu-dlq", 1).topic("bills", 1);
    let broker = builder.start().await.unwrap();
    let client = broker.client_config().build().unwrap();
    let producer = client.producer().build().unwrap();
    let send = async |topic: &str, number: usize| {
        producer.send(Record::new(topic, number.to_string())).await.unwrap();
    };
    for (number, topic) in ["orders-eu", "orders-eu-dlq", "bills"].into_iter().enumerate() {
        send(topic, number).await;
    }
    let builder = client.consumer("all").group_protocol(protocol);
    let builder = builder.topic_pattern("orders-.*", OffsetReset::Earliest).exclude_pattern(".*-dlq");
    let mut consumer = builder.build().unwrap();
    assert_eq!(topics_of(&mut consumer, 1).await, [("orders-eu".to_owned(), 0)]);

    // One that comes is read from its first record, though that was written before it was found.
    client.admin().create_topics(&[NewTopic::new("orders-us").with_partitions(1)]).await[0].1.as_ref().unwrap();
    send("orders-us", 3).await;
    send("bills", 4).await;
    assert_eq!(topics_of(&mut consumer, 1).await, [("orders-us".to_owned(), 3)]);

    // One that goes is left, and nothing else is disturbed by what is left of it.
    client.admin().delete_topics(&["orders-us".into()]).await[0].1.as_ref().unwrap();
    let held = async |consumer: &mut Consumer| loop {
        match consumer.next().await.expect("goes on") {
            ConsumerEvent::Revoked(gone, release) => {
                release.send();
                if gone.iter().any(|gone| gone.partition.topic == "orders-us") {
                    break;
                }
            }
            ConsumerEvent::Fault(fault) if fault.is_fatal() => panic!("{fault}"),
            _ => {}
        }
    };
    tokio::time::timeout(1_000 * SECOND, held(&mut consumer)).await.expect("it is given back");
    send("orders-eu", 5).await;
    assert_eq!(topics_of(&mut consumer, 1).await, [("orders-eu".to_owned(), 5)]);
    consumer.close(10 * SECOND).await.unwrap();
}

#[cfg(feature = "regex")]
#[tokio::test(start_paused = true)]
async fn topics_of_a_pattern_come_and_go() {
    a_pattern_is_read(kafka_harbor::client::GroupProtocol::Classic).await;
}

#[cfg(feature = "regex")]
#[tokio::test(start_paused = true)]
async fn topics_of_a_pattern_come_and_go_in_a_group_that_the_coordinator_assigns() {
    a_pattern_is_read(kafka_harbor::client::GroupProtocol::Consumer).await;
}

#[cfg(feature = "regex")]
#[tokio::test(start_paused = true)]
async fn a_pattern_that_matches_nothing_yet_is_waited_for_and_can_be_closed() {
    let broker = DevBroker::builder().start().await.unwrap();
    let client = broker.client_config().build().unwrap();
    let mut consumer = client.consumer("none").topic_pattern("o.*", OffsetReset::Latest).build().unwrap();
    consumer.joined(10 * SECOND).await.unwrap();
    assert!(matches!(consumer.next().await, Some(ConsumerEvent::Assigned(none)) if none.is_empty()));
    consumer.close(10 * SECOND).await.unwrap();
    let away = broker.client_config().build().unwrap();
    broker.act(|cluster, now| cluster.pause(1, now));
    let consumer = away.consumer("none").topic_pattern("o.*", OffsetReset::Latest).build().unwrap();
    tokio::time::timeout(20 * SECOND, consumer.close(SECOND)).await.expect("it waits for nobody").ok();
}

/// A dev broker whose groups are share groups.
#[derive(Debug)]
struct Shared(DevBroker);

impl Fixture for Shared {
    fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::new(self.0.adapter_config().share_groups().build().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn share_groups_settle_record_by_record_through_the_port() {
    let shared = Shared(three().await);
    records_are_settled_one_by_one(&shared).await;
}

#[tokio::test(start_paused = true)]
async fn a_harbor_over_share_groups_is_refused_when_it_is_built_with_the_reason() {
    let shared = Shared(three().await);
    let harbor = Harbor::builder("orders-service", shared.adapter()).serializer(Text).build().unwrap();
    let handler = |_: String, _: Context| std::future::ready(Ok::<(), Failure>(()));
    let consumer = harbor.consumer("orders").subscribe("orders", handler).build().unwrap_err().to_string();
    assert!(consumer.contains("kafka keeps no positions, by which consumers commit"), "{consumer}");
    let redrive = harbor.redrive("orders-dlq").run().await.unwrap_err().to_string();
    assert!(redrive.contains("kafka keeps no positions, by which a redrive commits"), "{redrive}");
}
