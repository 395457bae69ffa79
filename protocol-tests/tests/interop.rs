//! Groups that our members share with librdkafka, Java and Node, and records that each writes and each reads.
//!
//! The leader of a classic group is whoever came first, until it leaves: so the order of coming decides whose assignor
//! works. Every group is looked at three times over: at who has what, at what was handled, and at what it committed.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use kafka_harbor::client::Client;
use kafka_harbor::protocol::compression::Codec;
use kafka_harbor::record::{Record, Timestamp};
use protocol_tests::{Cluster, Desk, Mixed, Peer, Stored, interop, kafka, partitions, stored, tool, unique};
use serde_json::Value;
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);

/// Session timeout of all members that have one: a crash is noticed after it.
const SESSION_MS: &str = "6000";

/// One group on one topic, and the topics that our members derive from it.
struct Group {
    cluster: &'static Cluster,
    desk: Arc<Desk>,
    topic: String,
    group: String,
}

impl Group {
    async fn new(cluster: &'static Cluster, count: i32) -> Self {
        let group =
            Self { cluster, desk: Arc::new(Desk::at(cluster).await), topic: unique("orders"), group: unique("group") };
        group.desk.create(&group.topic, count).await;
        group
    }

    fn retry(&self, level: u32) -> String {
        format!("{}-retry-{level}", self.topic)
    }

    fn dead(&self) -> String {
        format!("{}-dlq", self.topic)
    }

    fn common(&self) -> [&str; 6] {
        ["--brokers", &self.cluster.bootstrap, "--topic", &self.topic, "--group", &self.group]
    }

    fn ours(&self, args: &[&str]) -> Peer {
        let mut command = Command::new(env!("CARGO_BIN_EXE_harbor-member"));
        command.arg("consume").args(self.common()).args(["--from-beginning", "--create-topics"]);
        command.args(["--session-ms", SESSION_MS]).args(args);
        Peer::spawn("ours", command)
    }

    /// Our tool, a plain member without a ladder.
    fn tool(&self) -> Peer {
        let mut command = tool();
        command.args(["--json", "consume"]).args(self.common()).args(["--session-ms", SESSION_MS, "--handler-ms", "2"]);
        Peer::spawn("kafka-harbor", command)
    }

    fn librdkafka(&self, assignor: &str) -> Option<Peer> {
        let own = ["--assignor", assignor, "--session-ms", SESSION_MS, "--handler-ms", "2"];
        interop("generic", &[&["consume"], &self.common()[..], &own].concat())
    }

    fn java(&self, assignor: &str) -> Option<Peer> {
        let own = ["--assignor", assignor, "--session-ms", SESSION_MS];
        interop("java", &[&["consume"], &self.common()[..], &own].concat())
    }

    fn node(&self, args: &[&str]) -> Option<Peer> {
        self.service(PLATFORMATIC, args)
    }

    /// A service of Node's package, over one of its clients.
    fn service(&self, name: &str, args: &[&str]) -> Option<Peer> {
        interop(name, &[&["consume", "--from-beginning"], &self.common()[..], args].concat())
    }

    /// A load that goes on until it is ended.
    fn load(&self) -> Load {
        let (desk, topic, goes_on) = (self.desk.clone(), self.topic.clone(), Arc::new(AtomicBool::new(true)));
        let watched = goes_on.clone();
        let task = tokio::spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_millis(50));
            let mut sent = 0;
            while watched.load(Ordering::Relaxed) {
                pace.tick().await;
                let record = |n: usize| Record::new(topic.as_str(), format!("v{n}")).with_key(format!("k{}", n % 40));
                desk.publish((sent..sent + 8).map(record).collect()).await;
                sent += 8;
            }
            sent
        });
        Load { goes_on, task }
    }

    /// Waits until everything on the topic is committed.
    ///
    /// But for what a plain client was done with when a rebalance refused its commit: it says so and commits again only
    /// with its next record.
    async fn committed_by_all(&self, members: &mut Mixed, patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            let committed = self.desk.committed(&self.group, &[&self.topic]).await;
            let mut left = self.desk.ends(&[&self.topic]).await;
            left.retain(|partition, end| end.0 > committed.get(partition).map_or(0, |committed| committed.0));
            left.retain(|partition, end| !members.was_refused_last(partition, *end));
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "not committed within {patience:?}: {left:?}, only {committed:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Everything was handled, nothing passed over, and all members go in order.
    /// How many retries there were.
    async fn ends_well(&self, mut members: Mixed, load: Load) -> i64 {
        let sent = load.end().await;
        let retry = self.retry(1);
        self.committed_by_all(&mut members, 60 * SECOND).await;
        self.desk.drained(&self.group, &[&retry], 60 * SECOND).await;
        for name in members.names() {
            assert_eq!(members.leave(name), Some(0), "{name}");
        }
        let ends = self.desk.ends(&[&self.topic]).await;
        assert_eq!(ends.values().map(|end| end.0).sum::<i64>(), sent as i64);
        members.assert_all_done(&self.topic, &ends);
        // A plain client's commit may come too late, in a rebalance: then the next owner has the record again.
        let is_fault = |(_, e): &(_, &Value)| {
            let late = e["error"].as_str().is_some_and(|error| error.starts_with("commit: "));
            e["event"] == "lost" || e["event"] == "foreign" || e["event"] == "error" && !late
        };
        let faults: Vec<_> = members.events().filter(is_fault).collect();
        assert!(faults.is_empty(), "{faults:#?}");
        let retried = self.desk.ends(&[&retry]).await;
        members.assert_all_done(&retry, &retried);
        retried.values().map(|end| end.0).sum()
    }
}

struct Load {
    goes_on: Arc<AtomicBool>,
    task: JoinHandle<usize>,
}

impl Load {
    async fn end(self) -> usize {
        self.goes_on.store(false, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Whether the group was told to have refused what we offer first, and what we joined with.
fn assert_fell_back(ours: &mut Peer, assignor: &str) {
    let told = ours.wait_for("assignor", 20 * SECOND);
    assert_eq!((&told["offered"], &told["chosen"]), (&"cooperative-sticky".into(), &assignor.into()));
}

// librdkafka and Java. Our members read a ladder besides, so that subscriptions are unequal.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn librdkafka_leads_with_roundrobin_and_we_fall_back_to_it() {
    let Some(cluster) = kafka() else { return };
    let group = Group::new(cluster, 6).await;
    let (topic, retry) = (&*group.topic, &*group.retry(1));
    let (alone, all) = (partitions(&[(topic, 6)]), partitions(&[(topic, 6), (retry, 6)]));
    let mut members = Mixed::default();
    for name in ["librdkafka 1", "librdkafka 2"] {
        let Some(peer) = group.librdkafka("roundrobin") else { return };
        members.join(name, peer).wait_for("ready", 30 * SECOND);
    }
    members.settled(&alone, 30 * SECOND).await;
    let load = group.load();
    let failing =
        ["--levels", "300ms", "--fail-key", "k1", "--fail-key", "k2", "--fail-key", "k3", "--fail-first", "1"];
    assert_fell_back(members.join("ours 1", group.ours(&failing)), "roundrobin");
    members.settled(&all, 30 * SECOND).await;
    // The leader goes: another member, whoever it is, leads from here on.
    assert_eq!(members.leave("librdkafka 1"), Some(0));
    members.settled(&all, 30 * SECOND).await;
    assert_fell_back(members.join("ours 2", group.ours(&failing)), "roundrobin");
    members.settled(&all, 30 * SECOND).await;
    assert_eq!(members.leave("librdkafka 2"), Some(0));
    members.settled(&all, 30 * SECOND).await;
    let Some(peer) = group.librdkafka("roundrobin") else { return };
    members.join("librdkafka 3", peer);
    members.settled(&all, 30 * SECOND).await;
    let retried = group.ends_well(members, load).await;
    assert!(retried > 0, "something of ours failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_lead_librdkafka_with_cooperative_sticky_and_it_leads_us() {
    let Some(cluster) = kafka() else { return };
    let group = Group::new(cluster, 6).await;
    let (topic, retry) = (&*group.topic, &*group.retry(1));
    let all = partitions(&[(topic, 6), (retry, 6)]);
    let mut members = Mixed::default();
    members.join("ours 1", group.ours(&["--levels", "300ms"])).wait_for("ready", 30 * SECOND);
    let load = group.load();
    for name in ["librdkafka 1", "librdkafka 2"] {
        let Some(peer) = group.librdkafka("cooperative-sticky") else { return };
        members.join(name, peer);
        members.settled(&all, 30 * SECOND).await;
    }
    members.crash("librdkafka 1");
    members.settled(&all, 30 * SECOND).await;
    members.join("tool", group.tool());
    members.settled(&all, 30 * SECOND).await;
    for name in ["ours 1", "tool"] {
        assert_eq!(members.leave(name), Some(0));
    }
    // Alone and so the leader, until we come again.
    members.settled(&partitions(&[(topic, 6)]), 30 * SECOND).await;
    members.join("ours 2", group.ours(&["--levels", "300ms"]));
    members.settled(&all, 30 * SECOND).await;
    assert_eq!(members.events().filter(|(_, e)| e["event"] == "assignor").count(), 0, "nobody falls back");
    group.ends_well(members, load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_lead_java_with_cooperative_sticky_and_it_leads_us() {
    let Some(cluster) = kafka() else { return };
    let group = Group::new(cluster, 6).await;
    let (topic, retry) = (&*group.topic, &*group.retry(1));
    let all = partitions(&[(topic, 6), (retry, 6)]);
    let mut members = Mixed::default();
    members.join("ours 1", group.ours(&["--levels", "300ms"])).wait_for("ready", 30 * SECOND);
    let load = group.load();
    let Some(peer) = group.java("cooperative-sticky") else { return };
    members.join("java", peer);
    members.settled(&all, 60 * SECOND).await;
    assert_eq!(members.leave("ours 1"), Some(0));
    members.settled(&partitions(&[(topic, 6)]), 30 * SECOND).await;
    members.join("ours 2", group.ours(&["--levels", "300ms"]));
    members.settled(&all, 30 * SECOND).await;
    assert_eq!(members.events().filter(|(_, e)| e["event"] == "assignor").count(), 0);
    group.ends_well(members, load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_leads_with_sticky_and_we_lead_it_and_both_read_what_the_other_had() {
    let Some(cluster) = kafka() else { return };
    let group = Group::new(cluster, 6).await;
    let (topic, retry) = (&*group.topic, &*group.retry(1));
    let all = partitions(&[(topic, 6), (retry, 6)]);
    let mut members = Mixed::default();
    let Some(peer) = group.java("sticky") else { return };
    members.join("java 1", peer).wait_for("ready", 60 * SECOND);
    let load = group.load();
    assert_fell_back(members.join("ours", group.ours(&["--levels", "300ms"])), "sticky");
    members.settled(&all, 60 * SECOND).await;
    // Now ours leads, and reads what Java says that it had.
    assert_eq!(members.leave("java 1"), Some(0));
    members.settled(&all, 60 * SECOND).await;
    let Some(peer) = group.java("sticky") else { return };
    members.join("java 2", peer);
    members.settled(&all, 60 * SECOND).await;
    group.ends_well(members, load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_leads_with_range_and_we_fall_back_to_it() {
    let Some(cluster) = kafka() else { return };
    let group = Group::new(cluster, 6).await;
    let (topic, retry) = (&*group.topic, &*group.retry(1));
    let all = partitions(&[(topic, 6), (retry, 6)]);
    let mut members = Mixed::default();
    let Some(peer) = group.java("range") else { return };
    members.join("java", peer).wait_for("ready", 60 * SECOND);
    let load = group.load();
    assert_fell_back(members.join("ours", group.ours(&["--levels", "300ms"])), "range");
    members.settled(&all, 30 * SECOND).await;
    // We lead with range from here on.
    assert_eq!(members.leave("java"), Some(0));
    members.settled(&all, 30 * SECOND).await;
    let Some(peer) = group.java("range") else { return };
    members.join("java again", peer);
    members.settled(&all, 60 * SECOND).await;
    group.ends_well(members, load).await;
}

// Node's kafka-harbor, over either of the clients that it has adapters for.

/// Writes a version 1 subscription, and has an assignor of its own.
const PLATFORMATIC: &str = "node";
/// librdkafka, which offers `roundrobin` alone here.
const CONFLUENT: &str = "node-confluent";

/// Keys of which some fall on every pair of a partition of four and one of three, by Kafka's rule and by the peer's own
/// (it takes the hash for unsigned where it partitions).
const KEYS: usize = 40;

/// Four partitions and ladders of three: so that a retry changes hands whoever has what.
async fn node_group(cluster: &'static Cluster) -> Group {
    let group = Group::new(cluster, 4).await;
    for (topic, count) in [(group.retry(1), 3), (group.retry(2), 3), (group.dead(), 1)] {
        group.desk.create(&topic, count).await;
    }
    group
}

impl Group {
    fn ladder(&self) -> BTreeSet<kafka_harbor::record::TopicPartition> {
        partitions(&[(&self.topic, 4), (&self.retry(1), 3), (&self.retry(2), 3)])
    }

    async fn publish(&self, prefix: &str) {
        let record = |n: usize| {
            Record::new(self.topic.as_str(), format!("value {n}"))
                .with_key(format!("{prefix}{n}"))
                .with_header("x-tenant", "t")
        };
        self.desk.publish((0..KEYS).map(record).collect()).await;
    }

    async fn ladder_drained(&self) {
        self.desk.drained(&self.group, &[&self.topic, &self.retry(1), &self.retry(2)], 90 * SECOND).await;
    }
}

/// Who made which attempt of a record, by key.
fn attempts(members: &mut Mixed) -> BTreeMap<String, Vec<(u64, &'static str)>> {
    let mut attempts: BTreeMap<String, Vec<(u64, &'static str)>> = BTreeMap::new();
    for (name, event) in members.events().filter(|(_, event)| event["event"] == "attempt") {
        let key = event["key"].as_str().unwrap().to_owned();
        attempts.entry(key).or_default().push((event["attempt"].as_u64().unwrap(), name));
    }
    attempts.values_mut().for_each(|attempts| attempts.sort_unstable());
    attempts
}

/// That retries went both ways: failed by one and tried again by the other.
fn assert_shared(attempts: &BTreeMap<String, Vec<(u64, &'static str)>>) {
    for (from, to) in [("node", "ours"), ("ours", "node")] {
        let went = |tries: &Vec<(u64, &'static str)>| {
            tries.windows(2).any(|pair| pair[0].0 + 1 == pair[1].0 && (pair[0].1, pair[1].1) == (from, to))
        };
        assert!(attempts.values().any(went), "nothing went from {from} to {to}: {attempts:?}");
    }
}

/// What a dead letter of three attempts carries, whoever made them.
fn check_letter(group: &Group, letter: &Stored, tries: &[(u64, &str)]) {
    let names = letter.names();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    let told = ["x-tenant", "x-retry-count", "x-original-topic", "x-last-error"].map(|name| letter.header(name));
    assert_eq!(told, ["t", "3", &group.topic, "HandlerError: asked to fail"]);
    assert_eq!(letter.header("x-producer"), if tries[2].1 == "ours" { "harbor-member" } else { "node-peer" });
    let [first, dead, produced] =
        ["x-first-failure-at", "x-dead-lettered-at", "x-produced-at"].map(|name| letter.header(name));
    assert!(first.len() == 24 && first < dead && dead <= produced, "{first} {dead} {produced}");
    assert_eq!(letter.header("x-correlation-id").len(), 36);
    let has_group = names.contains(&"x-retry-group");
    assert_eq!(has_group, tries.iter().any(|(_, name)| *name == "ours"), "the group is told from our first hop on");
    assert!(!has_group || letter.header("x-retry-group") == group.group);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_lead_node_and_what_fails_for_ever_is_one_dead_letter_each() {
    we_lead(PLATFORMATIC).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_lead_node_over_confluents_client_and_what_fails_for_ever_is_one_dead_letter_each() {
    we_lead(CONFLUENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_leads_us_and_a_retry_succeeds_wherever_it_comes() {
    node_leads(PLATFORMATIC).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_leads_us_over_confluents_client_and_a_retry_succeeds_wherever_it_comes() {
    node_leads(CONFLUENT).await;
}

async fn we_lead(client: &str) {
    let Some(cluster) = kafka() else { return };
    let group = node_group(cluster).await;
    let mut args = vec!["--levels", "300ms,600ms", "--concurrency", "2"];
    let bad: Vec<String> = (0..KEYS).step_by(2).map(|n| format!("k{n}")).collect();
    bad.iter().for_each(|key| args.extend(["--fail-key", key]));
    let mut members = Mixed::default();
    members.join("ours", group.ours(&[&args[..], &["--interop-node"]].concat())).wait_for("ready", 30 * SECOND);
    let Some(node) = group.service(client, &args) else { return };
    members.join("node", node).wait_for("ready", 120 * SECOND);
    members.settled(&group.ladder(), 60 * SECOND).await;
    let leads = |members: &mut Mixed| members.events().filter(|(_, e)| e["leader"] == true).count();
    assert_eq!(leads(&mut members), 0, "we came first");

    group.publish("k").await;
    group.ladder_drained().await;
    let attempts = attempts(&mut members);
    assert_eq!(attempts.len(), KEYS);
    for (key, tries) in &attempts {
        let numbers: Vec<_> = tries.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, if bad.contains(key) { vec![1, 2, 3] } else { vec![1] }, "{key}");
    }
    assert_shared(&attempts);
    let letters = group.desk.read(&group.dead()).await;
    let keys: Vec<_> =
        letters.iter().map(|letter| std::str::from_utf8(letter.key.as_ref().unwrap()).unwrap()).collect();
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{keys:?}");
    assert_eq!(keys.len(), bad.len());
    for (key, letter) in keys.iter().zip(&letters) {
        assert_eq!(letter.text(), format!("value {}", &key[1..]));
        check_letter(&group, letter, &attempts[*key]);
    }
    // Node goes while a load runs: all that was its is ours.
    let load = group.load();
    members.leave("node");
    members.settled(&group.ladder(), 60 * SECOND).await;
    load.end().await;
    group.ladder_drained().await;
    assert_eq!(members.leave("ours"), Some(0));
    members.assert_all_done(&group.topic, &group.desk.ends(&[&group.topic]).await);
    assert_eq!(members.events().filter(|(name, e)| *name == "ours" && e["event"] == "error").count(), 0);
}

async fn node_leads(client: &str) {
    let Some(cluster) = kafka() else { return };
    let group = node_group(cluster).await;
    let args = ["--levels", "300ms,600ms", "--concurrency", "2", "--fail-first", "1"];
    let mut members = Mixed::default();
    // Without --fixed-assigner a leader whose commit meets a rebalance deals partitions to members that did not subscribe.
    let Some(node) = group.service(client, &[&args[..], &["--fixed-assigner"]].concat()) else { return };
    members.join("node", node).wait_for("ready", 120 * SECOND);
    members.join("ours", group.ours(&[&args[..], &["--interop-node"]].concat()));
    members.settled(&group.ladder(), 60 * SECOND).await;
    // Confluent's client does not tell who leads; there it is that Node came first.
    if client == PLATFORMATIC {
        let generation = |e: &Value| e["generation"].as_u64();
        let last = members.events().filter_map(|(_, e)| generation(e)).max().unwrap();
        let leads = members.events().filter(|(_, e)| generation(e) == Some(last) && e["leader"] == true).count();
        assert_eq!(leads, 1, "one of Node's members leads");
    }

    group.publish("k").await;
    group.ladder_drained().await;
    let attempts = attempts(&mut members);
    assert_eq!(attempts.len(), KEYS);
    for (key, tries) in &attempts {
        assert_eq!(tries.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2], "{key}");
    }
    assert_shared(&attempts);
    for (name, event) in members.events().filter(|(_, e)| e["event"] == "attempt" && e["attempt"] == 2) {
        let retry = &event["retry"];
        assert_eq!((&retry["count"], &retry["originalTopic"]), (&1.into(), &group.topic.as_str().into()), "{name}");
        assert_eq!(retry["lastError"], "HandlerError: asked to fail", "{name}");
    }
    assert_eq!(group.desk.read(&group.dead()).await, []);
    assert_eq!(members.leave("ours"), Some(0));
    assert_eq!(members.events().filter(|(name, e)| *name == "ours" && e["event"] == "error").count(), 0);
}

/// A Node member names no group on its retries and commits nothing on a ladder partition before its first retry there is
/// done. A service that moved from Node to us lost the retries that waited then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_waits_when_node_goes_is_ours_to_make() {
    let Some(cluster) = kafka() else { return };
    let group = node_group(cluster).await;
    let args = ["--levels", "4s,4s", "--fail-first", "1"];
    let mut members = Mixed::default();
    let Some(node) = group.node(&args) else { return };
    members.join("node", node).wait_for("ready", 120 * SECOND);
    group.publish("k").await;
    (0..KEYS).for_each(|_| _ = members.member("node").wait_for("retried", 30 * SECOND));
    members.leave("node");
    let retry = group.retry(1);
    assert_eq!(group.desk.committed(&group.group, &[&retry]).await, BTreeMap::new(), "nothing was done there yet");
    members.join("ours", group.ours(&args));
    group.ladder_drained().await;
    let attempts = attempts(&mut members);
    assert_eq!(attempts.len(), KEYS);
    for (key, tries) in &attempts {
        assert_eq!(tries[..], [(1, "node"), (2, "ours")], "{key}");
    }
    assert_eq!(members.leave("ours"), Some(0));
}

/// Groups that share a ladder by its names, as Node's package leaves them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_service_of_another_group_on_the_same_ladder_takes_nothing_from_us() {
    let Some(cluster) = kafka() else { return };
    let theirs = node_group(cluster).await;
    let ours = Group { cluster, desk: theirs.desk.clone(), topic: theirs.topic.clone(), group: unique("shipping") };
    let [both_fail, it_fails, we_fail] = ["both", "node", "ours"];
    let levels = ["--levels", "300ms,600ms", "--fail-first", "1", "--fail-key", both_fail];
    let Some(node) = theirs.node(&[&levels[..], &["--fail-key", it_fails]].concat()) else { return };
    let mut members = Mixed::default();
    members.join("node", node).wait_for("ready", 120 * SECOND);
    let publish = async |key: &str, value: &str| {
        let record = Record::new(ours.topic.as_str(), value.to_owned()).with_key(key.to_owned());
        ours.desk.publish(vec![record]).await;
    };
    // Failed and done by Node before our group is: none of our business.
    publish(it_fails, "before").await;
    theirs.ladder_drained().await;
    members.join("ours", ours.ours(&[&levels[..], &["--fail-key", we_fail]].concat())).wait_for("ready", 30 * SECOND);
    ours.ladder_drained().await;
    for key in [both_fail, it_fails, we_fail] {
        publish(key, "after").await;
    }
    for _ in 0..2 {
        // Either group's hops may come after the other's lag was nothing.
        theirs.ladder_drained().await;
        ours.ladder_drained().await;
    }
    assert_eq!(members.leave("ours"), Some(0));
    let tries = |name: &str, value: &str, key: &str, members: &mut Mixed| -> Vec<u64> {
        let of = |(who, e): &(&str, &Value)| {
            *who == name && e["event"] == "attempt" && e["key"] == key && e["value"] == value
        };
        let mut tries: Vec<_> = members.events().filter(of).map(|(_, e)| e["attempt"].as_u64().unwrap()).collect();
        tries.sort_unstable();
        tries
    };
    assert_eq!(tries("ours", "before", it_fails, &mut members), [1], "its retry was there before our group");
    let skipped: Vec<_> = members.events().filter(|(_, e)| e["event"] == "skipped").collect();
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!(skipped[0].1["retryGroup"].is_null());
    // Each group makes its own second attempt. Those that name no group might be anybody's, and Node takes all.
    assert_eq!(tries("ours", "after", we_fail, &mut members), [1, 2]);
    assert_eq!(tries("ours", "after", it_fails, &mut members), [1, 2], "a retry that names no group");
    assert_eq!(tries("ours", "after", both_fail, &mut members), [1, 2, 2]);
    assert_eq!(tries("node", "after", we_fail, &mut members), [1, 2], "Node does not read whose it is");
    assert_eq!(tries("node", "after", it_fails, &mut members), [1, 2]);
    assert_eq!(tries("node", "after", both_fail, &mut members), [1, 2, 2]);
    assert_eq!(ours.desk.read(&ours.dead()).await, []);
}

// Produced by each, consumed by each.

const RAW: &[u8] = &[0xff, 0xfe, 0x00, 0x80];
const RAW_BASE64: &str = "//4AgA==";
/// Of a batch: enough of the same for every codec to be used, and not only named.
const COUNT: usize = 30;

/// What is given as the time of records. Not longer ago than brokers keep records by default.
static TIMESTAMP: LazyLock<i64> = LazyLock::new(|| Timestamp::now().0 - 3_600_000);

/// What every client writes: key and value; the value of the batches has the number of the record in it.
struct Sample {
    key: Option<&'static [u8]>,
    value: Option<&'static [u8]>,
    headers: &'static [(&'static str, Option<&'static [u8]>)],
    count: usize,
}

const HEADERS: &[(&str, Option<&[u8]>)] = &[
    ("trace", Some(b"1")),
    ("trace", Some(b"2")),
    ("nothing", None),
    ("empty", Some(b"")),
    ("raw", Some(RAW)),
    ("na\u{ef}ve", Some("\u{e9}".as_bytes())),
];

const SAMPLES: [Sample; 4] = [
    Sample {
        key: Some(b"k{n}"),
        value: Some(b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa {n}"),
        headers: HEADERS,
        count: COUNT,
    },
    Sample { key: Some(b"tombstone"), value: None, headers: &[], count: 1 },
    Sample { key: Some(b""), value: Some(b""), headers: &[], count: 1 },
    Sample { key: None, value: Some(RAW), headers: HEADERS, count: 1 },
];

fn filled(bytes: Option<&[u8]>, n: usize, count: usize) -> Option<Vec<u8>> {
    let bytes = bytes?;
    if count == 1 {
        return Some(bytes.to_vec());
    }
    Some(std::str::from_utf8(bytes).unwrap().replace("{n}", &n.to_string()).into_bytes())
}

/// The samples that a topic gets: the batch by every codec, the single ones by one.
fn samples(codec: Codec) -> &'static [Sample] {
    if codec == Codec::None { &SAMPLES } else { &SAMPLES[..1] }
}

fn options(sample: &Sample) -> Vec<String> {
    let mut options = Vec::new();
    let mut bytes = |name: &str, bytes: Option<&[u8]>| match bytes {
        None => {}
        Some(RAW) => options.extend([format!("--{name}-base64"), RAW_BASE64.to_owned()]),
        Some(text) => options.extend([format!("--{name}"), String::from_utf8(text.to_vec()).unwrap()]),
    };
    bytes("key", sample.key);
    bytes("value", sample.value);
    for (name, value) in sample.headers {
        let text = match value {
            None => (*name).to_owned(),
            Some(RAW) => format!("{name}:={RAW_BASE64}"),
            Some(text) => format!("{name}={}", std::str::from_utf8(text).unwrap()),
        };
        options.extend(["--header".to_owned(), text]);
    }
    options.extend(["--count".to_owned(), sample.count.to_string()]);
    options
}

async fn produce_ours(client: &Client, topic: &str, codec: Codec) {
    let producer = client.producer().compression(codec).build().unwrap();
    for sample in samples(codec) {
        let record = |n: usize| {
            let mut record = match filled(sample.value, n, sample.count) {
                Some(value) => Record::new(topic, value),
                None => Record::tombstone(topic),
            };
            if let Some(key) = filled(sample.key, n, sample.count) {
                record = record.with_key(key);
            }
            let header = |(name, value): &(&'static str, Option<&'static [u8]>)| match value {
                Some(value) => kafka_harbor::record::Header::new(*name, *value),
                None => kafka_harbor::record::Header::null(*name),
            };
            record.headers = sample.headers.iter().map(header).collect();
            record.with_timestamp(Timestamp(*TIMESTAMP))
        };
        let records: Vec<Record> = (0..sample.count).map(record).collect();
        let sends: Vec<_> = records.into_iter().map(|record| producer.send(record)).collect();
        for send in sends {
            send.await.unwrap();
        }
    }
    producer.close(10 * SECOND).await.unwrap();
}

/// By a peer's program; `None` where it is not installed.
fn produce(peer: &str, cluster: &Cluster, topic: &str, codec: Codec) -> Option<()> {
    for sample in samples(codec) {
        let options = options(sample);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut args = vec!["produce", "--brokers", &cluster.bootstrap, "--topic", topic];
        // So that a batch is one batch.
        args.extend(["--compression", codec.name(), "--linger-ms", "100"]);
        let timestamp = TIMESTAMP.to_string();
        if peer == "generic" {
            args.extend(["--timestamp", &timestamp]);
        }
        let mut child = interop(peer, &[&args[..], &options].concat())?;
        assert_eq!(child.finish(60 * SECOND), Some(0), "{peer} {codec:?}");
        assert_eq!(child.of("produced").count(), sample.count, "{peer} {codec:?}");
    }
    Some(())
}

/// Records as a peer's program shows them, by topic.
fn read(mut peer: Peer) -> BTreeMap<String, Vec<Stored>> {
    assert_eq!(peer.finish(60 * SECOND), Some(0));
    let mut topics: BTreeMap<String, Vec<Stored>> = BTreeMap::new();
    for (topic, record) in peer.of("record").map(stored) {
        topics.entry(topic).or_default().push(record);
    }
    topics.values_mut().for_each(|records| records.sort_by_key(|record| (record.partition, record.offset)));
    topics
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_codec_of_any_client_is_read_alike_by_all() {
    let Some(cluster) = kafka() else { return };
    let desk = Desk::at(cluster).await;
    let client = Client::builder([&cluster.bootstrap]).build().unwrap();
    let mut topics = BTreeMap::new();
    for writer in ["ours", "generic", "java"] {
        for codec in Codec::ALL {
            let topic = unique(writer);
            desk.create(&topic, 1).await;
            if writer == "ours" {
                produce_ours(&client, &topic, codec).await;
            } else if produce(writer, cluster, &topic, codec).is_none() {
                return;
            }
            topics.insert(topic, (writer, codec));
        }
    }

    let names: Vec<&str> = topics.keys().flat_map(|topic| ["--topic", topic]).collect();
    let total: usize = topics.values().flat_map(|(_, codec)| samples(*codec)).map(|sample| sample.count).sum();
    let (total, group) = (total.to_string(), unique("matrix"));
    let common = ["--brokers", &cluster.bootstrap];
    let Some(librdkafka) = interop("generic", &[&["read"], &common[..], &names].concat()) else { return };
    let java = [&["consume", "--group", &group, "--max", &total, "--no-commit"], &common[..], &names].concat();
    let Some(java) = interop("java", &java) else { return };
    let (librdkafka, java) = (read(librdkafka), read(java));
    for (topic, (writer, codec)) in &topics {
        let read = desk.read(topic).await;
        check_samples(writer, *codec, &read);
        assert_eq!(librdkafka[topic], read, "by {writer} with {codec:?}, read by librdkafka and by us");
        assert_eq!(java[topic], read, "by {writer} with {codec:?}, read by Java and by us");
        assert!(desk.codecs(topic).await.contains(codec), "{writer} did not use {codec:?}");
    }
}

/// That a topic holds the samples and nothing else.
fn check_samples(writer: &str, codec: Codec, read: &[Stored]) {
    let mut left = read.iter();
    for sample in samples(codec) {
        for n in 0..sample.count {
            let record = left.next().unwrap_or_else(|| panic!("{writer} {codec:?}: a record is missing"));
            assert_eq!(record.key.as_deref(), filled(sample.key, n, sample.count).as_deref(), "{writer} {codec:?}");
            assert_eq!(record.value.as_deref(), filled(sample.value, n, sample.count).as_deref(), "{writer} {codec:?}");
            let headers: Vec<_> = record.headers.iter().map(|h| (&h.name[..], h.value.as_deref())).collect();
            let expected: Vec<_> = sample.headers.iter().map(|(name, value)| (name.as_bytes(), *value)).collect();
            assert_eq!(headers, expected, "{writer} {codec:?}");
            // The Java program gives no time; its client takes the clock's.
            assert_eq!(record.timestamp == *TIMESTAMP, writer != "java", "{writer} {codec:?}: {}", record.timestamp);
            assert!(record.timestamp >= *TIMESTAMP);
        }
    }
    assert_eq!(left.count(), 0, "{writer} {codec:?}");
}
