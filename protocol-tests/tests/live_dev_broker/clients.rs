//! Other clients on the dev broker: each writes, reads as a group and commits, and nothing is lost or there twice.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kafka_harbor::client::{Client, IsolationLevel, OffsetSpec};
use kafka_harbor::record::TopicPartition;
use kafka_harbor::testing::broker::DevBroker;
use protocol_tests::{Peer, interop, skipped};

const SECOND: Duration = Duration::from_secs(1);
const RECORDS: i64 = 60;
const PARTITIONS: i32 = 3;

/// Three nodes on sockets, and a client of ours to look with.
async fn broker() -> (DevBroker, Client) {
    let builder = DevBroker::builder().nodes(3).topic("orders", PARTITIONS);
    let broker = builder.listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let client = Client::builder([broker.tcp_bootstrap()]).build().unwrap();
    (broker, client)
}

/// Everything was written, and the group has committed behind the last record of every partition.
async fn assert_all_is_done(client: &Client, group: &str) {
    let asked: Vec<_> =
        (0..PARTITIONS).map(|partition| (TopicPartition::new("orders", partition), OffsetSpec::Latest)).collect();
    let ends = client.admin().list_offsets(&asked, IsolationLevel::ReadCommitted).await;
    let ends: BTreeMap<_, _> = ends.into_iter().map(|(at, end)| (at, end.unwrap().offset.unwrap().0)).collect();
    assert_eq!(ends.values().sum::<i64>(), RECORDS, "{ends:?}");
    let deadline = Instant::now() + 30 * SECOND;
    loop {
        let offsets = client.admin().group_offsets(group, None).await.unwrap();
        let committed: BTreeMap<_, _> = offsets.into_iter().map(|(at, committed)| (at, committed.offset.0)).collect();
        let done = ends.iter().all(|(at, end)| committed.get(at).copied().unwrap_or(0) == *end);
        if done {
            return;
        }
        assert!(Instant::now() < deadline, "committed {committed:?} of {ends:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Lets a peer of `scripts/interop` write, and read as a member of a group.
async fn writes_and_reads(name: &str, produce: &[&str], consume: &[&str]) {
    let (broker, client) = broker().await;
    let (bootstrap, count) = (broker.tcp_bootstrap(), RECORDS.to_string());
    let common = ["--brokers", &bootstrap, "--topic", "orders"];
    let records = ["--key", "k{n}", "--value", "v{n}", "--count", &count];
    let Some(writer) = interop(name, &[&["produce"], &common[..], &records, produce].concat()) else { return };
    let writer = finished(writer).await;
    assert_eq!(writer.of("produced").count() as i64, RECORDS);
    let reads = ["--group", "billing", "--max", &count];
    let Some(reader) = interop(name, &[&["consume"], &common[..], &reads, consume].concat()) else { return };
    let reader = finished(reader).await;
    let values = reader.of("record").map(|record| record["value"].as_str().unwrap().to_owned());
    assert_is_each_once(values.collect());
    assert_eq!(reader.of("error").count(), 0, "{:?}", reader.events);
    assert_all_is_done(&client, "billing").await;
}

async fn finished(mut peer: Peer) -> Peer {
    tokio::task::spawn_blocking(move || {
        assert_eq!(peer.finish(90 * SECOND), Some(0), "{:?}", peer.events);
        peer
    })
    .await
    .unwrap()
}

fn assert_is_each_once(mut values: Vec<String>) {
    let mut expected: Vec<String> = (0..RECORDS).map(|n| format!("v{n}")).collect();
    values.sort();
    expected.sort();
    assert_eq!(values, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn librdkafka_writes_reads_and_commits() {
    writes_and_reads("generic", &[], &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn librdkafka_does_so_compressed_and_in_a_group_that_the_broker_assigns() {
    let of_the_broker = ["--protocol", "consumer"];
    writes_and_reads("generic", &["--compression", "lz4"], &of_the_broker).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_writes_reads_and_commits() {
    writes_and_reads("java", &["--compression", "gzip"], &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_does_so_in_a_group_that_the_broker_assigns() {
    writes_and_reads("java", &[], &["--protocol", "consumer"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn franz_go_writes_reads_and_commits() {
    writes_and_reads("go", &[], &[]).await;
}

/// A kcat on its way, or none, said aloud.
pub(crate) fn kcat(args: &[&str]) -> Option<Command> {
    if !Command::new("kcat").arg("-V").output().is_ok_and(|output| output.status.success()) {
        skipped("there is no kcat");
        return None;
    }
    let mut command = Command::new("kcat");
    command.args(args).stdin(Stdio::null()).stderr(Stdio::inherit());
    Some(command)
}

/// What it prints before it ends by itself.
pub(crate) async fn output(mut command: Command) -> String {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = tokio::time::timeout(90 * SECOND, output).await.expect("it ends in time").unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcat_writes_reads_and_commits() {
    let (broker, client) = broker().await;
    let bootstrap = broker.tcp_bootstrap();
    let Some(mut writer) = kcat(&["-b", &bootstrap, "-P", "-t", "orders", "-K", ":", "-X", "acks=all"]) else { return };
    let lines: String = (0..RECORDS).map(|n| format!("k{n}:v{n}\n")).collect();
    let mut child = writer.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap().success());
    let count = RECORDS.to_string();
    let reset = "auto.offset.reset=earliest";
    let reader = kcat(&["-b", &bootstrap, "-X", reset, "-c", &count, "-f", "%s\n", "-G", "billing", "orders"]).unwrap();
    assert_is_each_once(output(reader).await.lines().map(ToOwned::to_owned).collect());
    assert_all_is_done(&client, "billing").await;
}
