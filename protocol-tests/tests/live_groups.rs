//! Members that come, go and die, each a process of its own.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use kafka_harbor::record::Record;
use protocol_tests::{Account, Cluster, Desk, Interruption, Ledger, Peer, TempPath, What, kafka, unique};
use serde_json::Value;

const SECOND: Duration = Duration::from_secs(1);
const RECORDS: usize = 12_000;
/// Of a hundred keys so many fail once, and so many for ever.
const KEYS_OF_EACH: usize = 5;

fn record(topic: &str, n: usize) -> Record {
    let key = match n % 100 {
        key if key < KEYS_OF_EACH => format!("k{key}"),
        key if key < 2 * KEYS_OF_EACH => format!("p{}", key - KEYS_OF_EACH),
        key => format!("good{key}"),
    };
    Record::new(topic, format!("v{n}")).with_key(key)
}

/// A member that fails some keys once and others for ever.
fn member(cluster: &Cluster, topic: &str, group: &str, ledger: &Path) -> Peer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_harbor-member"));
    command.args(["consume", "--brokers", &cluster.bootstrap, "--topic", topic, "--group", group]);
    command.args([
        "--levels",
        "300ms",
        "--create-topics",
        "--from-beginning",
        "--concurrency",
        "3",
        "--handler-ms",
        "1",
    ]);
    command.args(["--session-ms", "2000", "--quiet", "--fail-first", "1"]);
    (0..KEYS_OF_EACH)
        .for_each(|n| _ = command.args(["--fail-key", &format!("k{n}"), "--poison-key", &format!("p{n}")]));
    command.arg("--ledger").arg(ledger);
    Peer::spawn("harbor-member", command)
}

/// Partitions of the topic that the member has, as its last event told.
fn owned(event: &Value, topic: &str) -> BTreeSet<i64> {
    let owned = event["owned"].as_array().into_iter().flatten();
    owned.filter(|pair| pair[0] == topic).filter_map(|pair| pair[1].as_i64()).collect()
}

fn wait_until_owns(member: &mut Peer, topic: &str, count: usize) -> BTreeSet<i64> {
    let is_so = |event: &Value| !event["owned"].is_null() && owned(event, topic).len() == count;
    if let Some(last) = member.events.iter().rfind(|event| !event["owned"].is_null()).filter(|event| is_so(event)) {
        return owned(last, topic);
    }
    owned(&member.wait_until(&format!("{count} partitions of {topic}"), 30 * SECOND, is_so), topic)
}

async fn wait_for_lines(ledger: &Path, lines: usize) {
    let deadline = Instant::now() + 60 * SECOND;
    while Ledger::read(ledger).len() < lines {
        assert!(Instant::now() < deadline, "the handlers stand still");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_members_one_is_killed_and_another_joins_and_every_record_is_handled_in_order() {
    let Some(cluster) = kafka() else { return };
    let (topic, group, ledger) = (unique("orders"), unique("group"), TempPath::new("ledger"));
    let (retry, dead) = (format!("{topic}-retry-1"), format!("{topic}-dlq"));
    let topics = [&*topic, &*retry];
    let desk = Desk::at(cluster).await;
    desk.create(&topic, 6).await;
    let mut first = member(cluster, &topic, &group, &ledger);
    first.wait_for("ready", 30 * SECOND);
    let mut second = member(cluster, &topic, &group, &ledger);
    let halves = [wait_until_owns(&mut second, &topic, 3), wait_until_owns(&mut first, &topic, 3)];
    assert!(halves[0].is_disjoint(&halves[1]), "{halves:?}");

    for chunk in 0..RECORDS / 100 {
        let numbers = chunk * 100..(chunk + 1) * 100;
        desk.publish(numbers.map(|n| record(&topic, n)).collect()).await;
    }
    wait_for_lines(&ledger, RECORDS / 2).await;
    let pid = first.pid();
    first.kill();
    let after = Ledger::read(&ledger).len();
    let committed = desk.committed(&group, &topics).await;
    let killed = Interruption { pid, after, committed };

    let mut third = member(cluster, &topic, &group, &ledger);
    let halves = [wait_until_owns(&mut third, &topic, 3), wait_until_owns(&mut second, &topic, 3)];
    assert!(halves[0].is_disjoint(&halves[1]), "{halves:?}");
    desk.drained(&group, &topics, 60 * SECOND).await;
    for member in [&mut second, &mut third] {
        member.terminate();
        assert_eq!(member.finish(15 * SECOND), Some(0));
        assert_eq!(member.of("lost").count() + member.of("error").count(), 0, "{:?}", member.events);
    }

    let account = Account { entries: Ledger::read(&ledger), interruptions: vec![killed] };
    let balance = account.balance(&desk.ends(&topics).await).unwrap();
    eprintln!("{balance:?}");
    assert_eq!(balance.at_work, 1, "the first member was killed at work");
    account.hops(&topic, &desk.read(&retry).await).unwrap();
    let letters = desk.read(&dead).await;
    account.hops(&retry, &letters).unwrap();

    let done = account.entries.iter().filter(|entry| entry.what == What::Done).map(|entry| entry.value.as_str());
    let done: BTreeSet<&str> = done.collect();
    let set_aside: BTreeSet<&str> = letters.iter().map(|letter| letter.text()).collect();
    assert_eq!(done.len() + set_aside.len(), RECORDS, "every record is done or set aside");
    assert!(done.is_disjoint(&set_aside));
    assert_eq!(set_aside.len(), RECORDS / 100 * KEYS_OF_EACH);
    assert!(letters.iter().all(|letter| letter.key.as_deref().is_some_and(|key| key.starts_with(b"p"))));
}
