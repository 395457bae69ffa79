//! The operator's tool against a real broker: what it prints, and the status it leaves with.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use protocol_tests::{Cluster, Peer, kafka, tool, unique};
use serde_json::{Value, json};

/// What a run of the tool came to.
#[derive(Debug)]
struct Run {
    status: i32,
    events: Vec<Value>,
    text: String,
    errors: String,
}

impl Run {
    fn of(broker: &Cluster, args: &[&str], stdin: &[u8]) -> Self {
        let mut child = command(broker, args).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(stdin).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        Self {
            status: output.status.code().expect("not killed"),
            events: text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
            text,
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn events(&self, name: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["event"] == name).collect()
    }
}

fn command(broker: &Cluster, args: &[&str]) -> Command {
    let mut command = tool();
    command.env("KAFKA_BOOTSTRAP", &broker.bootstrap).args(args).stdout(Stdio::piped());
    command
}

fn run(broker: &Cluster, args: &[&str]) -> Run {
    Run::of(broker, args, b"")
}

fn topic(broker: &Cluster, partitions: &str) -> String {
    let name = unique("tool");
    let made = run(broker, &["topics", "create", &name, "--partitions", partitions]);
    assert_eq!(made.status, 0, "{made:?}");
    name
}

#[test]
fn a_topic_is_made_once_listed_described_and_deleted() {
    let Some(broker) = kafka() else { return };
    let name = topic(broker, "3");
    let again = run(broker, &["topics", "create", &name, "--json"]);
    assert_eq!((again.status, &again.events("created")[0]["existed"]), (0, &json!(true)), "{again:?}");
    for list in [&["topics", "--json"][..], &["topics", "list", "--json"]] {
        let listed = run(broker, list);
        assert!(listed.events.iter().any(|row| row["topic"] == json!(name) && row["partitions"] == 3), "{listed:?}");
    }
    let described = run(broker, &["topics", "describe", &name, "--json"]);
    assert_eq!(described.events("partition").len(), 3, "{described:?}");
    assert_eq!(run(broker, &["topics", "delete", &name]).status, 0);
    let gone = run(broker, &["topics", "describe", &name]);
    assert_eq!(gone.status, 1, "{gone:?}");
    assert!(gone.errors.contains("does not exist"), "{gone:?}");
}

#[test]
fn a_record_comes_out_whole_as_it_was_given() {
    let Some(broker) = kafka() else { return };
    let name = topic(broker, "2");
    let given = [
        &["--key-base64", "/w==", "--value", "", "--header", "a=1", "--header", "a:=/w==", "--header", "n"][..],
        &["--key", "k", "--partition", "1", "--timestamp", "77", "--compression", "zstd"],
    ];
    for args in given {
        let sent = run(broker, &[&["produce", "--topic", &name], args].concat());
        assert_eq!(sent.status, 0, "{sent:?}");
    }
    let read = run(broker, &["consume", "--topic", &name, "--max", "2", "--idle", "10000", "--json"]);
    let records = read.events("record");
    let whole = records.iter().find(|record| record["key"] != "k").unwrap();
    assert_eq!((&whole["key"], &whole["value"]), (&json!({ "base64": "/w==" }), &json!("")));
    assert_eq!(whole["headers"], json!([["a", "1"], ["a", { "base64": "/w==" }], ["n", null]]));
    let tombstone = records.iter().find(|record| record["key"] == "k").unwrap();
    assert_eq!((&tombstone["value"], &tombstone["partition"]), (&Value::Null, &json!(1)));
    assert_eq!(tombstone["timestamp"], 77);
}

/// Piped lines were ignored, and one record of nothing was sent in their place.
#[test]
fn lines_of_standard_input_are_values_and_nothing_is_not_sent() {
    let Some(broker) = kafka() else { return };
    let name = topic(broker, "1");
    let nothing = Run::of(broker, &["produce", "--topic", &name], b"one\ntwo\n");
    assert_eq!(nothing.status, 2, "{nothing:?}");
    assert!(nothing.errors.contains("--stdin"), "{nothing:?}");
    let sent = Run::of(broker, &["produce", "--topic", &name, "--stdin", "--key", "k"], b"one\n\ntwo");
    assert_eq!(sent.status, 0, "{sent:?}");
    let read = run(broker, &["consume", "--topic", &name, "--max", "3", "--idle", "10000", "--json"]);
    let values: Vec<_> = read.events("record").iter().map(|record| (&record["key"], &record["value"])).collect();
    let key = &json!("k");
    assert_eq!(values, [(key, &json!("one")), (key, &json!("")), (key, &json!("two"))]);
}

#[test]
fn lag_counts_from_the_commit_and_a_mistyped_group_is_no_group_without_lag() {
    let Some(broker) = kafka() else { return };
    let (name, group) = (topic(broker, "1"), unique("tool"));
    run(broker, &["produce", "--topic", &name, "--value", "v{n}", "--count", "5"]);
    let read = run(broker, &["consume", "--topic", &name, "--group", &group, "--max", "2", "--idle", "10000"]);
    assert_eq!(read.status, 0, "{read:?}");
    let lag = run(broker, &["lag", "--group", &group, "--json"]);
    assert_eq!((lag.status, &lag.events("done")[0]["lag"]), (0, &json!(3)), "{lag:?}");
    let mistyped = run(broker, &["lag", "--group", &unique("nobody")]);
    assert_eq!((mistyped.status, mistyped.text.as_str()), (1, ""), "{mistyped:?}");
    assert!(mistyped.errors.contains("no such group"), "{mistyped:?}");
    let counted =
        run(broker, &["lag", "--group", &unique("nobody"), "--topic", &name, "--start", "earliest", "--json"]);
    assert_eq!(counted.events("done")[0]["lag"], 5, "{counted:?}");
}

/// It went away without leaving, and the group waited for its whole session, again at each such try.
#[test]
fn a_member_that_could_not_join_in_time_leaves_the_group() {
    let Some(broker) = kafka() else { return };
    let (name, group) = (topic(broker, "1"), unique("tool"));
    let stuck = ["consume", "--topic", &name, "--group", &group, "--session-ms", "30000", "--json"];
    let mut stuck = Peer::spawn("stuck", command(broker, &stuck));
    stuck.wait_for("ready", Duration::from_secs(30));
    stuck.signal("STOP");
    let late = ["consume", "--topic", &name, "--group", &group, "--session-ms", "6000", "--timeout", "2", "--json"];
    let late = run(broker, &late);
    assert_eq!(late.status, 3, "{late:?}");
    assert!(late.text.contains("not joined within 8s"), "{late:?}");
    let described = run(broker, &["groups", "describe", &group, "--json"]);
    assert_eq!(described.events("group")[0]["members"], 1, "{described:?}");
    stuck.signal("KILL");
}

#[test]
fn each_kind_of_failure_has_its_status() {
    let Some(broker) = kafka() else { return };
    let refused = run(broker, &["redrive", "--from", &unique("nowhere"), "--only-present"]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert_eq!(run(broker, &["produce", "--topic", "t", "--count", "0", "--value", "v"]).status, 2);
    let alone = run(broker, &["topics", "--bootstrap", "127.0.0.1:1", "--timeout", "1"]);
    assert_eq!(alone.status, 3, "{alone:?}");
    assert!(alone.errors.contains("127.0.0.1:1"), "{alone:?}");
}
