//! The example `orders` on the dev broker of the command line, and what another client finds there.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol_tests::{Peer, example, tool};

use crate::clients::{kcat, output};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_runs_on_the_dev_broker_and_kcat_reads_what_it_wrote() {
    let mut command = tokio::task::spawn_blocking(tool).await.unwrap();
    command.args(["--json", "dev-broker", "--nodes", "3", "--listen", "127.0.0.1:0"]);
    let mut broker = Peer::spawn("dev-broker", command);
    let started = broker.wait_for("started", 60 * SECOND);
    let bootstrap = started["bootstrap"].as_str().unwrap().to_owned();

    let mut orders = tokio::task::spawn_blocking(|| example("orders")).await.unwrap();
    orders.args(["--bootstrap", &bootstrap]);
    let told = output(orders).await;
    assert!(told.contains("the group's lag is 0"), "{told}");

    let Some(list) = kcat(&["-b", &bootstrap, "-L", "-J"]) else { return };
    let list: serde_json::Value = serde_json::from_str(&output(list).await).unwrap();
    let topics = list["topics"].as_array().unwrap().iter().map(|topic| topic["topic"].as_str().unwrap().to_owned());
    let topics: Vec<String> = topics.filter(|name| name.starts_with("orders-")).collect();
    let read = async |ending: &str| {
        let is_original = |name: &&String| name.matches('-').count() == 1;
        let found = match ending {
            "" => topics.iter().find(is_original),
            ending => topics.iter().find(|name| name.ends_with(ending)),
        };
        let topic = found.unwrap_or_else(|| panic!("no topic {ending:?} among {topics:?}"));
        let reader = kcat(&["-b", &bootstrap, "-C", "-t", topic, "-e", "-q", "-f", "%k %h\n"]).unwrap();
        let mut counts = BTreeMap::new();
        for line in output(reader).await.lines() {
            let (key, headers) = line.split_once(' ').unwrap();
            let (times, last) = counts.entry(key.to_owned()).or_insert((0, String::new()));
            (*times, *last) = (*times + 1, headers.to_owned());
        }
        counts
    };
    let originals = read("").await;
    let times: Vec<_> = originals.iter().map(|(key, (times, _))| (key.as_str(), *times)).collect();
    assert_eq!(times, [("order-1", 1), ("order-2", 1), ("order-3", 2)], "the last was redriven");
    let dead = read("-dlq").await;
    assert_eq!(dead.keys().collect::<Vec<_>>(), ["order-3"]);
    assert!(dead["order-3"].1.contains("x-last-error="), "{dead:?}");
    let retried = read("-retry-1").await;
    assert!(retried.contains_key("order-2"), "{retried:?}");
    broker.terminate();
    assert_eq!(tokio::task::spawn_blocking(move || broker.finish(30 * SECOND)).await.unwrap(), Some(0));
}

#[test]
fn dead_letters_are_looked_at_brought_back_and_deleted_on_the_dev_broker() {
    let mut command = tool();
    command.args(["--json", "dev-broker", "--nodes", "2", "--listen", "127.0.0.1:0"]);
    let mut broker = Peer::spawn("dev-broker", command);
    let started = broker.wait_for("started", 60 * SECOND);
    crate::dlq::story(started["bootstrap"].as_str().unwrap());
    broker.terminate();
    assert_eq!(broker.finish(30 * SECOND), Some(0));
}
