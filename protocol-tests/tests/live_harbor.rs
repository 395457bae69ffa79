//! The harbor on a real Kafka: the ladder and its headers, restarts, groups that share a ladder, lag and health.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kafka_harbor::adapter::Event;
use kafka_harbor::adapter::kafka::{KafkaAdapter, KafkaAdapterBuilder};
use kafka_harbor::client::{Client, GroupProtocol};
use kafka_harbor::harbor::{
    BlockingRetries, CircuitBreaker, Consumer, ConsumerBuilder, ConsumerStatus, Context, Failure, Harbor,
    IdempotencyEngine, MemoryIdempotencyStore, Message, OnConflict, Text,
};
use kafka_harbor::observe::{CircuitState, MessageProcessed, MessageSkipped, Observer, StopReason};
use kafka_harbor::protocol::compression::Codec;
use kafka_harbor::record::{Header, Record};
use protocol_tests::{Cluster, Desk, Peer, Stored, Watched, kafka, kafka_with, unique};
use serde_json::Value;

const SECOND: Duration = Duration::from_secs(1);

/// A harbor, and how often a membership of it was given partitions or lost them.
struct Service {
    harbor: Harbor<Text>,
    memberships: Arc<Mutex<Vec<&'static str>>>,
    told: Told,
}

/// Events of single records: `processed topic/offset`.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Observer for Told {
    fn message_processed(&self, e: &MessageProcessed<'_>) {
        self.0.lock().unwrap().push(format!("processed {}/{}", e.topic, e.offset));
    }

    fn message_skipped(&self, e: &MessageSkipped<'_>) {
        let group = e.retry_group.unwrap_or("nobody");
        self.0.lock().unwrap().push(format!("skipped {}/{} of {group}", e.topic, e.offset));
    }
}

impl Service {
    fn new(cluster: &Cluster) -> Self {
        Self::with_session(cluster, 10 * SECOND)
    }

    fn with_session(cluster: &Cluster, session: Duration) -> Self {
        Self::with(cluster, |adapter| adapter.session_timeout(session).heartbeat_interval(session / 5))
    }

    fn with(cluster: &Cluster, set: impl FnOnce(KafkaAdapterBuilder) -> KafkaAdapterBuilder) -> Self {
        let adapter = set(KafkaAdapter::builder(cluster.bootstrap.split(',')).client_id("orders-service"));
        let memberships: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let adapter = Watched::new(adapter.build().unwrap(), {
            let memberships = memberships.clone();
            move |event| {
                let what = match event {
                    Event::Assigned(_) => "assigned",
                    Event::Revoked(..) => "revoked",
                    Event::Lost(_) => "lost",
                    _ => return,
                };
                memberships.lock().unwrap().push(what);
            }
        });
        let told = Told::default();
        let harbor = Harbor::builder("orders-service", adapter).serializer(Text).observer(told.clone());
        Self { harbor: harbor.build().unwrap(), memberships, told }
    }

    fn consumer(&self, group: &str) -> ConsumerBuilder<Text> {
        self.harbor.consumer(group).auto_create_topics(true)
    }

    /// Starts a consumer and waits until it has partitions.
    async fn start(&self, consumer: &Consumer) {
        let before = self.memberships().len();
        consumer.start().await.unwrap();
        until("an assignment", || self.memberships()[before..].contains(&"assigned")).await;
    }

    fn memberships(&self) -> Vec<&'static str> {
        self.memberships.lock().unwrap().clone()
    }

    fn told(&self) -> Vec<String> {
        self.told.0.lock().unwrap().clone()
    }

    async fn shutdown(&self) {
        self.harbor.shutdown(20 * SECOND).await.unwrap();
    }
}

/// What handlers saw: value and attempt, in order.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(String, u32)>>>);

impl Seen {
    fn note(&self, value: &str, context: &Context) {
        self.0.lock().unwrap().push((value.to_owned(), context.attempt()));
    }

    fn all(&self) -> Vec<(String, u32)> {
        self.0.lock().unwrap().clone()
    }
}

async fn until(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + 30 * SECOND;
    while !so() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn bad_sku() -> Failure {
    Failure::new("bad sku é").named("ValidationError")
}

fn out_of_stock() -> Failure {
    Failure::new("out of stock").named("StockError")
}

// The ladder and what it writes.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ladder_is_walked_and_redriven_with_the_headers_of_the_node_package() {
    let Some(cluster) = kafka() else { return };
    walk(cluster, Service::new(cluster)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ladder_is_walked_and_redriven_in_groups_that_the_coordinator_assigns() {
    let Some(cluster) = kafka() else { return };
    walk(cluster, Service::with(cluster, |adapter| adapter.group_protocol(GroupProtocol::Consumer))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ladder_is_walked_and_redriven_on_kafka_4_0() {
    let Some(cluster) = kafka_with(1, &[], Some("4.0.2")) else { return };
    walk(&cluster, Service::new(&cluster)).await;
}

/// Two records: one as the harbor's producer sends it, one with headers that only bytes can hold.
async fn walk(cluster: &Cluster, service: Service) {
    let (orders, group) = (unique("orders"), unique("group"));
    let [retry, dead] = ["retry-1", "dlq"].map(|name| format!("{orders}-{name}"));
    let topics = [&*orders, &*retry];
    let desk = Desk::at(cluster).await;
    desk.create(&orders, 3).await;
    let (seen, healed) = (Seen::default(), Arc::new(AtomicBool::new(false)));
    let handler = {
        let (seen, healed) = (seen.clone(), healed.clone());
        move |order: String, context: Context| {
            seen.note(&order, &context);
            std::future::ready(if healed.load(Ordering::Relaxed) { Ok(()) } else { Err(bad_sku()) })
        }
    };
    let builder = service.consumer(&group).retry_levels(["300ms"]).from_beginning(true);
    service.start(&builder.subscribe(orders.as_str(), handler).build().unwrap()).await;

    let message = Message::new("tea".to_owned())
        .with_key("customer-42")
        .with_header("x-tenant", "acme")
        .with_header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    service.harbor.producer().build().unwrap().send(orders.as_str(), message).await.unwrap();
    let odd = [
        Header::new("repeated", "1"),
        Header::null("null"),
        Header::new(&[0xff, 0xfe][..], &[0xc3, 0x28][..]),
        Header::new("repeated", ""),
    ];
    let mut record = Record::new(orders.as_str(), "milk").with_key("customer-7");
    record.headers = odd.to_vec();
    desk.publish(vec![record]).await;
    until("two dead letters", || seen.all().len() == 4).await;
    desk.drained(&group, &topics, 30 * SECOND).await;
    healed.store(true, Ordering::Relaxed);
    let report = service.harbor.redrive(dead.as_str()).idle_timeout("1s").run().await.unwrap();
    assert_eq!((report.reprocessed, report.skipped), (2, 0));
    until("both handled", || seen.all().len() == 6).await;
    desk.drained(&group, &topics, 30 * SECOND).await;
    service.shutdown().await;

    for order in ["tea", "milk"] {
        let attempts: Vec<_> = seen.all().into_iter().filter(|(value, _)| value == order).map(|(_, n)| n).collect();
        assert_eq!(attempts, [1, 2, 1], "{order}");
    }
    let of = |stored: Vec<Stored>, order| stored.into_iter().filter(move |it| it.text() == order).collect::<Vec<_>>();
    let mut walks = BTreeMap::new();
    for order in ["tea", "milk"] {
        let [first, again] = of(desk.read(&orders).await, order).try_into().unwrap();
        let [retried] = of(desk.read(&retry).await, order).try_into().unwrap();
        let [letter] = of(desk.read(&dead).await, order).try_into().unwrap();
        for stored in [&retried, &letter, &again] {
            assert_eq!((&stored.key, &stored.value), (&first.key, &first.value));
        }
        assert!(letter.timestamp - retried.timestamp >= 300, "it waited");
        walks.insert(order, [first, retried, letter, again]);
    }
    check_headers(&walks["tea"], &orders, &group);
    check_golden_names(&walks["tea"]);
    for stored in &walks["milk"][1..] {
        assert_eq!(stored.headers[..4], odd, "what is no text survives");
    }
    check_by_java(cluster, &retry, &walks["tea"][1]);
    check_by_java(cluster, &dead, &walks["tea"][2]);
}

/// Every header of every stage, in order, by name and value.
fn check_headers([first, retried, letter, again]: &[Stored; 4], orders: &str, group: &str) {
    let id = first.header("x-correlation-id");
    assert!(id.len() == 36 && id.split('-').map(str::len).eq([8, 4, 4, 4, 12]), "{id} is a UUID");
    let failed_at = retried.header("x-first-failure-at");
    let dead_at = letter.header("x-dead-lettered-at");
    let redriven_at = again.header("x-redriven-at");
    let produced_at = [first, retried, letter, again].map(|stored| stored.header("x-produced-at"));
    let in_order = [produced_at[0], failed_at, produced_at[1], dead_at, redriven_at];
    assert!(in_order.is_sorted(), "{in_order:?}");
    for instant in in_order.into_iter().chain(produced_at) {
        let shape: String = instant.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!(shape, "9999-99-99T99:99:99.999Z");
    }
    let dead = format!("{orders}-dlq");
    let common = |produced_at| {
        vec![
            ("x-tenant", "acme"),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("x-correlation-id", id),
            ("x-produced-at", produced_at),
            ("x-producer", "orders-service"),
        ]
    };
    let block = |count| {
        vec![
            ("x-retry-count", count),
            ("x-original-topic", orders),
            ("x-first-failure-at", failed_at),
            ("x-last-error", "ValidationError: bad sku é"),
            ("x-retry-group", group),
        ]
    };
    let expected = [
        common(produced_at[0]),
        [common(produced_at[1]), block("1")].concat(),
        [common(produced_at[2]), block("2"), vec![("x-dead-lettered-at", dead_at)]].concat(),
        [
            common(produced_at[3]),
            vec![("x-redriven-from", &*dead), ("x-redriven-at", redriven_at), ("x-redrive-count", "1")],
        ]
        .concat(),
    ];
    assert_eq!(redriven_at, produced_at[3]);
    for (stored, expected) in [first, retried, letter, again].into_iter().zip(expected) {
        let expected: Vec<_> = expected.into_iter().map(|(name, value)| header(name, value)).collect();
        assert_eq!(stored.headers, expected);
    }
}

fn header(name: &str, value: &str) -> Header {
    Header::new(name.to_owned(), value.to_owned())
}

/// The same names in the same places as in the walk that the Node package made, but for the group and the count of redrives.
fn check_golden_names(walk: &[Stored; 4]) {
    let golden = include_str!("../../scripts/interop/golden/node-ladder.json");
    let golden: Value = serde_json::from_str(golden).unwrap();
    let records = golden["cases"][0]["records"].as_array().unwrap();
    assert_eq!(records.len(), 4);
    for (stored, record) in walk.iter().zip(records) {
        let ours = ["x-retry-group", "x-redrive-count"];
        let names: Vec<_> = stored.names().into_iter().filter(|name| !ours.contains(name)).collect();
        let golden: Vec<_> =
            record["headers"].as_array().unwrap().iter().map(|pair| pair[0].as_str().unwrap()).collect();
        assert_eq!(names, golden, "{}", record["stage"]);
    }
}

/// Java's own consumer reads the same.
fn check_by_java(cluster: &Cluster, topic: &str, stored: &Stored) {
    let properties = ["print.partition=true", "print.offset=true", "print.headers=true", "print.key=true"];
    let mut arguments = vec!["--topic", topic, "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"];
    properties.iter().for_each(|property| arguments.extend(["--formatter-property", property]));
    let printed = cluster.tool("console-consumer", &arguments);
    let headers: Vec<_> = stored.names().into_iter().map(|name| format!("{name}:{}", stored.header(name))).collect();
    let key = std::str::from_utf8(stored.key.as_deref().unwrap()).unwrap();
    let (partition, offset) = (stored.partition, stored.offset);
    let expected = format!("Partition:{partition}\tOffset:{offset}\t{}\t{key}\t{}", headers.join(","), stored.text());
    assert!(printed.lines().any(|line| line == expected), "{expected}\nis not in\n{printed}");
}

/// Every codec goes through the whole ladder, and what lies in the topics is compressed by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hops_are_compressed_by_every_codec_and_read_again() {
    let Some(cluster) = kafka() else { return };
    let desk = Desk::at(cluster).await;
    for codec in Codec::ALL {
        let (orders, group) = (unique("orders"), unique("group"));
        let dead = format!("{orders}-dlq");
        desk.create(&orders, 1).await;
        let adapter = KafkaAdapter::builder(cluster.bootstrap.split(',')).compression(codec).build().unwrap();
        let harbor = Harbor::builder("orders-service", adapter).serializer(Text).build().unwrap();
        let consumer = harbor
            .consumer(&group)
            .retry_levels(["10ms"])
            .auto_create_topics(true)
            .from_beginning(true)
            .subscribe(orders.as_str(), |_: String| std::future::ready(Err::<(), _>(out_of_stock())))
            .build()
            .unwrap();
        consumer.start().await.unwrap();
        let text = |n: usize| format!("{n}:{}", "compressible ".repeat(100));
        let messages = (0..50).map(|n| Message::new(text(n)));
        harbor.producer().build().unwrap().send_batch(orders.as_str(), messages).await.unwrap();
        let retry = format!("{orders}-retry-1");
        desk.drained(&group, &[&orders, &retry], 30 * SECOND).await;
        harbor.shutdown(20 * SECOND).await.unwrap();
        for topic in [&orders, &retry, &dead] {
            let values: Vec<_> = desk.read(topic).await.iter().map(|stored| stored.text().to_owned()).collect();
            assert_eq!(values, (0..50).map(text).collect::<Vec<_>>(), "{topic} by {}", codec.name());
            assert_eq!(desk.codecs(topic).await, [codec], "{topic}");
        }
    }
}

// Members.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_takes_three_session_timeouts_stays_in_the_group() {
    let Some(cluster) = kafka() else { return };
    let (orders, group, session) = (unique("orders"), unique("group"), 2 * SECOND);
    let desk = Desk::at(cluster).await;
    desk.create(&orders, 2).await;
    let service = Service::with_session(cluster, session);
    let seen = Seen::default();
    let handler = {
        let seen = seen.clone();
        move |order: String, context: Context| {
            seen.note(&order, &context);
            async move {
                if order == "slow" {
                    tokio::time::sleep(3 * session + SECOND).await;
                }
                Ok::<_, Failure>(())
            }
        }
    };
    let builder = service.consumer(&group).from_beginning(true);
    service.start(&builder.subscribe(orders.as_str(), handler).build().unwrap()).await;
    let admin = Client::builder(cluster.bootstrap.split(',')).build().unwrap().admin();
    let members = async || {
        let described = admin.describe_groups(std::slice::from_ref(&group)).await.remove(0).1.unwrap();
        let ids: Vec<_> = described.members.into_iter().map(|member| member.member_id).collect();
        (described.state, ids)
    };
    let before = members().await;
    assert_eq!((before.0.as_str(), before.1.len()), ("Stable", 1));
    desk.publish(vec![Record::new(orders.as_str(), "slow").with_partition(0)]).await;
    until("the slow one to begin", || !seen.all().is_empty()).await;
    tokio::time::sleep(3 * session).await;
    assert_eq!(service.told(), [""; 0], "it is still at work");
    assert_eq!(members().await, before, "the same member, three sessions on");
    desk.publish(vec![Record::new(orders.as_str(), "quick").with_partition(0)]).await;
    desk.drained(&group, &[&orders], 20 * SECOND).await;
    assert_eq!(seen.all(), [("slow".to_owned(), 1), ("quick".to_owned(), 1)]);
    assert_eq!(service.memberships(), ["assigned"]);
    service.shutdown().await;
    assert_eq!(members().await, ("Empty".to_owned(), Vec::new()), "it left");
}

/// The Node package loses this record and tells a lag of 0: nothing is committed on a retry partition before its first
/// record is done, and a start without a position begins at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_restart_loses_no_retry_that_waits() {
    let Some(cluster) = kafka() else { return };
    let (orders, group) = (unique("orders"), unique("group"));
    let retry = format!("{orders}-retry-1");
    let desk = Desk::at(cluster).await;
    desk.create(&orders, 1).await;
    let seen = Seen::default();
    let consumer = |service: &Service| {
        let seen = seen.clone();
        let handler = move |order: String, context: Context| {
            seen.note(&order, &context);
            std::future::ready(if context.attempt() == 1 { Err(out_of_stock()) } else { Ok(()) })
        };
        service.consumer(&group).retry_levels(["3s"]).subscribe(orders.as_str(), handler).build().unwrap()
    };
    let first = Service::new(cluster);
    first.start(&consumer(&first)).await;
    desk.publish(vec![Record::new(orders.as_str(), "tea")]).await;
    desk.drained(&group, &[&orders], 20 * SECOND).await;
    first.shutdown().await;
    assert_eq!(seen.all(), [("tea".to_owned(), 1)]);

    let second = Service::new(cluster);
    let waiting = consumer(&second);
    let lag: Vec<_> = waiting.lag().await.unwrap().into_iter().filter(|lag| lag.topic == retry.as_str()).collect();
    assert_eq!(lag.iter().map(|lag| lag.lag).sum::<u64>(), 1, "{lag:?}");
    second.start(&waiting).await;
    desk.drained(&group, &[&orders, &retry], 20 * SECOND).await;
    assert_eq!(seen.all(), [("tea".to_owned(), 1), ("tea".to_owned(), 2)]);
    second.shutdown().await;
}

/// With the start at the end, what was written to a new partition before it was discovered was skipped (KAFKA-12478); and
/// what is there before a consumer that starts later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_are_added_are_read_from_their_first_record_and_history_is_not_replayed() {
    let Some(cluster) = kafka() else { return };
    let (orders, group) = (unique("orders"), unique("group"));
    let seen = Seen::default();
    let consumer = |service: &Service| {
        let seen = seen.clone();
        let handler = move |order: String, context: Context| {
            seen.note(&format!("{}: {order}", context.partition()), &context);
            std::future::ready(Ok::<_, Failure>(()))
        };
        service.consumer(&group).subscribe(orders.as_str(), handler).build().unwrap()
    };
    // A desk of its own each time: none that holds the topic as it was.
    let publish = async |partition: i32, value: &'static str| {
        let record = Record::new(orders.as_str(), value).with_partition(partition);
        Desk::at(cluster).await.publish(vec![record]).await;
    };
    let admin = Client::builder([&cluster.bootstrap]).build().unwrap().admin();
    let grow = async |total: i32| {
        admin.create_partitions(&[(orders.as_str().into(), total)]).await[0].1.as_ref().unwrap();
    };
    let desk = Desk::at(cluster).await;
    desk.create(&orders, 1).await;
    publish(0, "history").await;

    let (first, second) = (late(cluster), late(cluster));
    first.start(&consumer(&first)).await;
    second.start(&consumer(&second)).await;
    grow(3).await;
    publish(1, "before its discovery").await;
    publish(2, "before its discovery").await;
    assert_eq!(seen.all(), [], "it is not discovered yet, or this shows nothing");
    until("the new partitions' records", || seen.all().len() == 2).await;
    desk.drained(&group, &[&orders], 20 * SECOND).await;
    first.shutdown().await;
    second.shutdown().await;

    grow(4).await;
    publish(3, "while nobody ran").await;
    let third = late(cluster);
    let consumer = consumer(&third);
    let lag: Vec<_> = consumer.lag().await.unwrap().into_iter().map(|lag| (lag.partition, lag.lag)).collect();
    assert_eq!(lag, [(0, 0), (1, 0), (2, 0), (3, 1)]);
    third.start(&consumer).await;
    until("the last partition's record", || seen.all().len() >= 3).await;
    desk.drained(&group, &[&orders], 20 * SECOND).await;
    third.shutdown().await;
    let mut values: Vec<_> = seen.all().into_iter().map(|(value, _)| value).collect();
    values.sort();
    assert_eq!(values, ["1: before its discovery", "2: before its discovery", "3: while nobody ran"]);
}

/// A service that learns of new partitions late.
fn late(cluster: &Cluster) -> Service {
    Service::with(cluster, |adapter| adapter.metadata_max_age(10 * SECOND))
}

/// The same for a process that is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_crash_loses_no_retry_that_waits() {
    let Some(cluster) = kafka() else { return };
    let (orders, group) = (unique("orders"), unique("group"));
    let retry = format!("{orders}-retry-1");
    let desk = Desk::at(cluster).await;
    desk.create(&orders, 1).await;
    let member = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_harbor-member"));
        command.args(["consume", "--brokers", &cluster.bootstrap, "--topic", &orders, "--group", &group]);
        command.args(["--levels", "3s", "--create-topics", "--fail-first", "1", "--session-ms", "2000"]);
        Peer::spawn("harbor-member", command)
    };
    let mut first = member();
    first.wait_for("ready", 30 * SECOND);
    desk.publish(vec![Record::new(orders.as_str(), "tea")]).await;
    first.wait_for("retried", 20 * SECOND);
    first.kill();
    assert_eq!(desk.lag(&group, &[&retry]).await, 1);
    let mut second = member();
    let attempt = second.wait_for("attempt", 30 * SECOND);
    assert_eq!((attempt["value"].as_str(), attempt["attempt"].as_i64()), (Some("tea"), Some(2)));
    second.wait_for("processed", 20 * SECOND);
    desk.drained(&group, &[&orders, &retry], 20 * SECOND).await;
    second.terminate();
    assert_eq!(second.finish(15 * SECOND), Some(0));
    assert_eq!(second.of("attempt").count(), 1);
}

/// Both read each other's retries, for the names of ladders hold no group; with the Node package the failures of one run
/// in both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_groups_share_a_ladder_and_each_gets_its_own_failures_alone() {
    let Some(cluster) = kafka() else { return };
    let orders = unique("orders");
    let groups = [unique("shipping"), unique("billing")];
    let [retry, dead] = ["retry-1", "dlq"].map(|name| format!("{orders}-{name}"));
    let desk = Desk::at(cluster).await;
    desk.create(&orders, 1).await;
    let services = [Service::new(cluster), Service::new(cluster)];
    let seen = [Seen::default(), Seen::default()];
    for at in [0, 1] {
        let seen = seen[at].clone();
        let handler = move |order: String, context: Context| {
            seen.note(&order, &context);
            let fails = match order.as_str() {
                "one fails" => at == 0 && context.attempt() == 1,
                "both fail" => true,
                _ => false,
            };
            std::future::ready(if fails { Err(out_of_stock()) } else { Ok(()) })
        };
        let builder = services[at].consumer(&groups[at]).retry_levels(["200ms"]).from_beginning(true);
        services[at].start(&builder.subscribe(orders.as_str(), handler).build().unwrap()).await;
    }
    for order in ["one fails", "both fail"] {
        desk.publish(vec![Record::new(orders.as_str(), order)]).await;
    }
    // Only after both are through the orders are all retries written.
    for group in groups.iter().chain(&groups) {
        desk.drained(group, &[&orders, &retry], 30 * SECOND).await;
    }
    let count = |at: usize, order: &str| seen[at].all().iter().filter(|(value, _)| value == order).count();
    assert_eq!([count(0, "one fails"), count(0, "both fail")], [2, 2]);
    assert_eq!([count(1, "one fails"), count(1, "both fail")], [1, 2]);
    let retried = desk.read(&retry).await;
    assert_eq!(retried.len(), 3);
    for (at, other) in [(0, 1), (1, 0)] {
        let theirs = retried.iter().filter(|stored| stored.header("x-retry-group") == groups[other]);
        let skipped: Vec<_> =
            theirs.map(|stored| format!("skipped {retry}/{} of {}", stored.offset, groups[other])).collect();
        let told = || services[at].told().into_iter().filter(|told| told.starts_with("skipped")).collect::<Vec<_>>();
        until("what was skipped to be told", || told().len() >= skipped.len()).await;
        assert_eq!(told(), skipped);
    }
    let mut letters: Vec<_> =
        desk.read(&dead).await.iter().map(|stored| stored.header("x-retry-group").to_owned()).collect();
    letters.sort();
    let mut expected = groups.to_vec();
    expected.sort();
    assert_eq!(letters, expected, "one letter a group");
    for service in &services {
        service.shutdown().await;
    }
}

// What operators look at.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_what_handlers_need_is_sat_out_and_nothing_is_done_twice() {
    let Some(cluster) = kafka() else { return };
    let (orders, group) = (unique("orders"), unique("group"));
    let [retry, dead] = ["retry-1", "dlq"].map(|name| format!("{orders}-{name}"));
    let desk = Desk::at(cluster).await;
    desk.create(&orders, 3).await;
    let service = Service::new(cluster);
    let (seen, is_up, calls) = (Seen::default(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (seen, is_up, calls) = (seen.clone(), is_up.clone(), calls.clone());
        move |order: String, context: Context| {
            calls.fetch_add(1, Ordering::Relaxed);
            let is_up = is_up.load(Ordering::Relaxed);
            if is_up {
                seen.note(&order, &context);
            }
            std::future::ready(if is_up { Ok(()) } else { Err(out_of_stock()) })
        }
    };
    let breaker = CircuitBreaker::new().consecutive_failures(3).half_open_after("1s").half_open_calls(1);
    let builder = service
        .consumer(&group)
        .from_beginning(true)
        .concurrency(3)
        .retry_levels(["300ms"])
        .blocking_retries(BlockingRetries::new(1).backoff("10ms", "10ms"))
        .circuit_breaker(breaker)
        .idempotency(IdempotencyEngine::new(MemoryIdempotencyStore::new()).on_conflict(OnConflict::Wait));
    let key = |order: &String, _: &Context| format!("order:{order}");
    let consumer = builder.subscribe_once(orders.as_str(), key, handler).build().unwrap();
    service.start(&consumer).await;
    // Each is sent twice.
    let records = (0..60).map(|n| Record::new(orders.as_str(), format!("order-{}", n % 30)).with_partition(n % 3));
    desk.publish(records.collect()).await;
    let circuit = consumer.circuit(&orders).unwrap();
    until("an open circuit", || circuit.state() == CircuitState::Open).await;
    let before = calls.load(Ordering::Relaxed);
    tokio::time::sleep(3 * SECOND).await;
    let probes = calls.load(Ordering::Relaxed) - before;
    assert!(probes <= 6, "{probes} calls in three seconds of outage");
    is_up.store(true, Ordering::Relaxed);
    desk.drained(&group, &[&*orders, &*retry], 60 * SECOND).await;
    assert_eq!(circuit.state(), CircuitState::Closed);
    service.shutdown().await;

    let mut handled: Vec<_> = seen.all().into_iter().map(|(order, _)| order).collect();
    assert_eq!(handled.len(), 30, "{handled:?}");
    handled.sort();
    handled.dedup();
    assert_eq!(handled.len(), 30, "each once");
    assert!(desk.read(&dead).await.is_empty(), "an outage is no reason to set a record aside");
    assert!(desk.read(&retry).await.len() <= 6, "nor to walk them all down the ladder");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_and_health_tell_what_is() {
    let Some(cluster) = kafka() else { return };
    let (orders, group) = (unique("orders"), unique("group"));
    let desk = Desk::at(cluster).await;
    desk.create(&orders, 2).await;
    let service = Service::new(cluster);
    let (open, gate) = tokio::sync::watch::channel(false);
    let handler = move |order: String| {
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await.map_err(Failure::new)?;
            if order == "abort" { Err(Failure::abort("database gone")) } else { Ok(()) }
        }
    };
    let consumer = service.consumer(&group).subscribe(orders.as_str(), handler).build().unwrap();
    assert!(service.harbor.health().healthy);
    assert_eq!(service.harbor.lag().await.unwrap(), [], "nothing runs");
    service.start(&consumer).await;
    let lag = async || -> Vec<u64> {
        let lag = service.harbor.lag().await.unwrap();
        assert!(lag.iter().all(|lag| lag.group == group && lag.topic == orders.as_str()), "{lag:?}");
        lag.iter().map(|lag| lag.lag).collect()
    };
    assert_eq!(lag().await, [0, 0]);
    let record = |partition: i32, order: &str| Record::new(orders.as_str(), order.to_owned()).with_partition(partition);
    desk.publish(vec![record(0, "a"), record(0, "b"), record(1, "c"), record(0, "d")]).await;
    assert_eq!(lag().await, [3, 1]);
    open.send(true).unwrap();
    desk.drained(&group, &[&orders], 20 * SECOND).await;
    assert_eq!(lag().await, [0, 0]);

    desk.publish(vec![record(1, "abort")]).await;
    assert_eq!(tokio::time::timeout(20 * SECOND, consumer.stopped()).await, Ok(Some(StopReason::Abort)));
    let health = service.harbor.health();
    assert!(!health.healthy);
    let of_consumer = &health.consumers[0];
    assert_eq!((of_consumer.status, of_consumer.stopped_because), (ConsumerStatus::Stopped, Some(StopReason::Abort)));
    let left: Vec<_> = consumer.lag().await.unwrap().iter().map(|lag| lag.lag).collect();
    assert_eq!(left, [0, 1], "the record that aborted is still there");
    service.shutdown().await;
}

/// A restart in place whose old member was not closed: fenced, and then silence (jitsu#1491, confluent-kafka-go#494).
#[tokio::test]
async fn a_consumer_whose_instance_id_is_taken_over_stops_loudly_and_the_harbor_is_unwell() {
    let Some(cluster) = kafka() else { return };
    let (first, second) = (Service::new(cluster), Service::new(cluster));
    let (group, topic) = (unique("static"), unique("orders"));
    Desk::at(cluster).await.create(&topic, 2).await;
    let consumer = |service: &Service| {
        let handler = |_: String, _: Context| std::future::ready(Ok::<(), Failure>(()));
        let builder = service.consumer(&group).subscribe(topic.as_str(), handler);
        builder.instance_id("worker-1").build().unwrap()
    };
    let [older, newer] = [consumer(&first), consumer(&second)];
    first.start(&older).await;
    assert!(first.harbor.health().healthy);
    second.start(&newer).await;
    until("the older one stops", || older.status() == ConsumerStatus::Stopped).await;
    let health = first.harbor.health();
    assert!(!health.healthy);
    assert_eq!(health.consumers[0].stopped_because, Some(StopReason::Crash));
    assert!(second.harbor.health().healthy);
    second.shutdown().await;
}
