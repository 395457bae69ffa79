//! A process that is killed again and again, at any moment, and what it leaves behind.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kafka_harbor::record::Record;
use protocol_tests::{Account, Cluster, Desk, Interruption, Ledger, Peer, TempPath, What, kafka, unique};

const SECOND: Duration = Duration::from_secs(1);
const KILLS: usize = 50;
const RECORDS: usize = 10_000;

/// Of a hundred keys so many fail once, and so many for ever.
const KEYS_OF_EACH: usize = 10;
const SESSION_MS: &str = "1500";

fn record(topic: &str, n: usize) -> Record {
    let key = match n % 100 {
        key if key < KEYS_OF_EACH => format!("k{key}"),
        key if key < 2 * KEYS_OF_EACH => format!("p{}", key - KEYS_OF_EACH),
        key => format!("good{key}"),
    };
    Record::new(topic, format!("v{n}")).with_key(key)
}

fn member(cluster: &Cluster, topic: &str, group: &str, ledger: &Path) -> Peer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_harbor-member"));
    command.args(["consume", "--brokers", &cluster.bootstrap, "--topic", topic, "--group", group]);
    command.args(["--levels", "200ms,500ms", "--create-topics", "--from-beginning", "--concurrency", "3"]);
    // As slow as makes the work of a life last about as long as the life.
    command.args(["--handler-ms", "6", "--session-ms", SESSION_MS, "--quiet"]);
    command.args(["--fail-first", "1"]);
    (0..KEYS_OF_EACH)
        .for_each(|n| _ = command.args(["--fail-key", &format!("k{n}"), "--poison-key", &format!("p{n}")]));
    command.arg("--ledger").arg(ledger);
    Peer::spawn("harbor-member", command)
}

/// A generator whose numbers are told by its seed (SplitMix64).
struct Chance(u64);

impl Chance {
    /// Seeded by `KILLS_SEED`, else by the time; says so.
    fn new() -> Self {
        let by_time = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let seed = std::env::var("KILLS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(by_time);
        eprintln!("KILLS_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_fifty_times_loses_no_record_and_repeats_only_what_was_under_way() {
    let Some(cluster) = kafka() else { return };
    let mut chance = Chance::new();
    let (topic, group, ledger) = (unique("orders"), unique("group"), TempPath::new("ledger"));
    let [retry_1, retry_2, dead] = ["retry-1", "retry-2", "dlq"].map(|name| format!("{topic}-{name}"));
    let topics = [&*topic, &*retry_1, &*retry_2];
    let desk = Desk::at(cluster).await;
    desk.create(&topic, 6).await;

    let mut account = Account::default();
    for kill in 0..KILLS {
        // Kept busy to the last: every life finds something new besides what the one before left.
        let numbers = kill * RECORDS / KILLS..(kill + 1) * RECORDS / KILLS;
        desk.publish(numbers.map(|n| record(&topic, n)).collect()).await;
        let mut member = member(cluster, &topic, &group, &ledger);
        // Most die at work, some as they start, join, or wait for the one before to be given up.
        let moment = if chance.below(5) == 0 {
            chance.below(1_500)
        } else {
            member.wait_for("ready", 30 * SECOND);
            chance.below(1_000)
        };
        tokio::time::sleep(Duration::from_millis(moment)).await;
        let pid = member.pid();
        member.kill();
        member.drain();
        assert_eq!(member.of("lost").count() + member.of("stopped").count(), 0, "{:?}", member.events);
        let after = Ledger::read(&ledger).len();
        let committed = desk.committed(&group, &topics).await;
        account.interruptions.push(Interruption { pid, after, committed });
    }

    let mut last = member(cluster, &topic, &group, &ledger);
    last.wait_for("ready", 30 * SECOND);
    desk.drained(&group, &topics, 60 * SECOND).await;
    last.terminate();
    assert_eq!(last.finish(15 * SECOND), Some(0));

    account.entries = Ledger::read(&ledger);
    let balance = account.balance(&desk.ends(&topics).await).unwrap();
    eprintln!("{balance:?}");
    assert!(balance.at_work >= KILLS / 2, "too few were killed at work: {balance:?}");
    account.hops(&topic, &desk.read(&retry_1).await).unwrap();
    account.hops(&retry_1, &desk.read(&retry_2).await).unwrap();
    let letters = desk.read(&dead).await;
    account.hops(&retry_2, &letters).unwrap();

    let done = account.entries.iter().filter(|entry| entry.what == What::Done).map(|entry| entry.value.as_str());
    let done: BTreeSet<&str> = done.collect();
    let set_aside: BTreeSet<&str> = letters.iter().map(|letter| letter.text()).collect();
    assert_eq!(done.len() + set_aside.len(), RECORDS, "every record is in its final place");
    assert!(done.is_disjoint(&set_aside));
    assert_eq!(set_aside.len(), RECORDS / 100 * KEYS_OF_EACH);
    assert!(letters.iter().all(|letter| letter.key.as_deref().is_some_and(|key| key.starts_with(b"p"))));
}
