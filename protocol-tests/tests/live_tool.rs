//! The operator's tool against a real broker: what it prints, and the status it leaves with.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "live_tool/dlq.rs"]
mod dlq;

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

/// Runs until an answer fits: a broker answers before all of its parts know.
fn until(broker: &Cluster, args: &[&str], fits: impl Fn(&Run) -> bool) -> Run {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let last = run(broker, args);
        if fits(&last) {
            return last;
        }
        assert!(std::time::Instant::now() < deadline, "{args:?} within a minute: {last:?}");
    }
}

#[test]
fn settings_are_changed_and_a_dry_run_changes_nothing() {
    let Some(broker) = kafka() else { return };
    let name = topic(broker, "1");
    let dry = ["configs", "alter", "topic", &name, "--set", "retention.ms=1000", "--dry-run", "--json"];
    let dry = run(broker, &dry);
    assert_eq!((dry.status, dry.events("valid").len()), (0, 1), "{dry:?}");
    let alter = ["configs", "alter", "topic", &name, "--set", "segment.ms=99000", "--append", "cleanup.policy=compact"];
    let altered = run(broker, &alter);
    assert_eq!(altered.status, 0, "{altered:?}");
    let described = until(broker, &["configs", "describe", "topic", &name, "--json"], |run| {
        run.events("config").iter().any(|row| row["name"] == "cleanup.policy" && row["value"] == "delete,compact")
    });
    assert!(described.events("config").iter().all(|row| row["name"] != "retention.ms"), "{described:?}");
    let bad = run(broker, &["configs", "alter", "topic", &name, "--set", "retention.ms=soon"]);
    assert_eq!(bad.status, 1, "{bad:?}");
    assert!(bad.errors.contains("INVALID_CONFIG"), "{bad:?}");
    assert_eq!(run(broker, &["configs", "alter", "topic", &name]).status, 2);
    assert_eq!(run(broker, &["configs", "describe", "broker", "one"]).status, 2);
}

#[test]
fn a_group_is_reset_forgotten_and_its_records_deleted() {
    let Some(broker) = kafka() else { return };
    let (name, group) = (topic(broker, "1"), unique("tool"));
    run(broker, &["produce", "--topic", &name, "--value", "v{n}", "--count", "5"]);
    let reset =
        |where_to: &[&str]| run(broker, &[&["groups", "reset", &group, "--topic", &name, "--json"], where_to].concat());
    let dry = reset(&["--to-offset", "2", "--dry-run"]);
    assert_eq!((dry.status, &dry.events("would-reset")[0]["after"]), (0, &json!("2")), "{dry:?}");
    let first = reset(&["--to-offset", "2"]);
    assert_eq!((first.status, &first.events("reset")[0]["before"]), (0, &Value::Null), "{first:?}");
    let shifted = reset(&["--by", "-1"]);
    let row = shifted.events("reset")[0];
    assert_eq!((&row["before"], &row["after"]), (&json!("2"), &json!("1")), "{shifted:?}");
    assert_eq!(reset(&[]).status, 2, "no place is given");

    let cut = run(broker, &["records", "delete", &format!("{name}:0"), "--before", "4", "--json"]);
    assert_eq!((cut.status, &cut.events("deleted")[0]["low"]), (0, &json!("4")), "{cut:?}");
    let earliest = reset(&["--to-earliest"]);
    assert_eq!(earliest.events("reset")[0]["after"], "4", "{earliest:?}");
    let beyond = run(broker, &["records", "delete", &format!("{name}:0"), "--before", "99"]);
    assert_eq!(beyond.status, 1, "{beyond:?}");
    assert_eq!(run(broker, &["groups", "forget", &group, &name]).status, 0);
    assert_eq!(run(broker, &["groups", "forget", &group, &name]).status, 1, "nothing is left");
}

#[test]
fn partitions_are_added_and_the_cluster_tells_where_they_lie() {
    let Some(broker) = kafka() else { return };
    let name = topic(broker, "1");
    let grown = run(broker, &["partitions", "add", &name, "--total", "3", "--json"]);
    assert_eq!((grown.status, &grown.events("grown")[0]["partitions"]), (0, &json!(3)), "{grown:?}");
    let again = run(broker, &["partitions", "add", &name, "--total", "3"]);
    assert!(again.status == 1 && again.errors.contains("INVALID_PARTITIONS"), "{again:?}");
    until(broker, &["cluster", "log-dirs", "--replicas", "--json"], |run| {
        run.events("replica").iter().filter(|row| row["topic"] == json!(name)).count() == 3
    });
    let cluster = run(broker, &["cluster", "--json"]);
    assert!(cluster.status == 0 && cluster.events("broker").iter().any(|row| row["fenced"] == false), "{cluster:?}");
    let elected = run(broker, &["partitions", "elect", &format!("{name}:0"), "--json"]);
    assert_eq!((elected.status, &elected.events("elected")[0]["needed"]), (0, &json!(false)), "{elected:?}");
    let moved = run(broker, &["partitions", "move", &format!("{name}:0"), "--to", "99"]);
    assert_eq!(moved.status, 1, "{moved:?}");
    assert_eq!(run(broker, &["partitions", "moves"]).status, 0);
}

#[test]
fn rules_of_access_are_added_listed_and_removed_but_never_all_by_accident() {
    let Some(broker) = kafka() else { return };
    let (name, user) = (unique("acl"), format!("User:{}", unique("tool")));
    let add = ["acls", "add", "topic", &name, "--principal", &user, "--operation", "read", "--operation", "describe"];
    let added = run(broker, &add);
    assert_eq!(added.status, 0, "{added:?}");
    let list = ["acls", "list", "--principal", &user, "--json"];
    until(broker, &list, |run| run.events("acl").len() == 2);
    assert_eq!(run(broker, &["acls", "remove"]).status, 2);
    let dry = run(broker, &["acls", "remove", "--principal", &user, "--dry-run", "--json"]);
    assert_eq!((dry.status, dry.events("acl").len()), (0, 2), "{dry:?}");
    let removed = run(broker, &["acls", "remove", "--principal", &user, "--json"]);
    assert_eq!((removed.status, removed.events("removed").len()), (0, 2), "{removed:?}");
    until(broker, &list, |run| run.events("acl").is_empty());
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
fn dead_letters_are_looked_at_brought_back_and_deleted() {
    let Some(broker) = kafka() else { return };
    dlq::story(&broker.bootstrap);
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
