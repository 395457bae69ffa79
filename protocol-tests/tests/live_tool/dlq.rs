//! What an operator does with dead letters, by the tool alone, on any broker.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use protocol_tests::{Peer, tool, unique};
use serde_json::{Value, json};

/// A run of the tool: its status, its events, all that it printed.
struct Run {
    status: Option<i32>,
    events: Vec<Value>,
    text: String,
}

impl Run {
    fn events(&self, name: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["event"] == name).collect()
    }

    fn done(&self) -> &Value {
        self.events("done").first().copied().unwrap_or_else(|| panic!("{}", self.text))
    }
}

struct Operator<'a> {
    bootstrap: &'a str,
}

impl Operator<'_> {
    fn runs(&self, args: &[&str], stdin: &str) -> Run {
        let mut command = tool();
        command.env("KAFKA_BOOTSTRAP", self.bootstrap).args(args).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A run that reads nothing may be over by now.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let events = told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let text = format!("{args:?}\n{told}{}", String::from_utf8_lossy(&output.stderr));
        Run { status: output.status.code(), events, text }
    }

    fn ok(&self, args: &[&str]) -> Run {
        let run = self.runs(args, "");
        assert_eq!(run.status, Some(0), "{}", run.text);
        run
    }

    /// Asks until the dead letters are so many, and so many of them waiting: a broker answers before all of its parts know.
    fn letters(&self, dead: &str, letters: i64, waiting: i64) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let listed = self.ok(&["dlq", "ls", dead, "--json"]);
            let row = listed.events("dlq")[0].clone();
            if (&row["letters"], &row["waiting"]) == (&json!(letters), &json!(waiting)) {
                return row;
            }
            assert!(
                Instant::now() < deadline,
                "{letters} letters, {waiting} waiting, within a minute: {}",
                listed.text
            );
        }
    }

    /// Does something while a member of the group reads the topic, and commits nothing.
    fn with_a_member(&self, topic: &str, group: &str, act: impl FnOnce()) {
        let mut command = tool();
        command.env("KAFKA_BOOTSTRAP", self.bootstrap);
        command.args(["consume", "--topic", topic, "--group", group, "--no-commit", "--json"]);
        let mut member = Peer::spawn("member", command);
        member.wait_for("ready", Duration::from_secs(60));
        act();
        member.terminate();
        assert_eq!(member.finish(Duration::from_secs(30)), Some(0));
    }

    fn letter(&self, dead: &str, partition: &str, time: &str, error: &str, value: &[&str]) {
        let origin = format!("x-original-topic={}", dead.strip_suffix("-dlq").unwrap());
        let error = format!("x-last-error={error}");
        let place = ["produce", "--topic", dead, "--partition", partition, "--timestamp", time];
        let headers = ["x-retry-count=1", &origin, "x-first-failure-at=2026-11-30T13:27:02.495Z", &error];
        let headers: Vec<&str> = headers.iter().flat_map(|header| ["--header", *header]).collect();
        self.ok(&[&place[..], &headers, value].concat());
    }
}

/// Four letters are looked at, brought back in two runs, some once more, which is undone, and deleted.
pub(crate) fn story(bootstrap: &str) {
    let operator = Operator { bootstrap };
    let orders = unique("orders");
    let dead = format!("{orders}-dlq");
    operator.ok(&["topics", "create", &orders, "--partitions", "1"]);
    operator.ok(&["topics", "create", &dead, "--partitions", "2", "--config", "retention.ms=-1"]);
    operator.letter(&dead, "0", "1700000000000", "TimeoutError: 5 s", &["--value", "a"]);
    operator.letter(&dead, "0", "1700000001000", "TimeoutError: 7 s", &["--value", "b"]);
    operator.letter(&dead, "0", "1700000002000", "order 17 is gone", &["--value", "c"]);
    operator.letter(&dead, "1", "1700000003000", "order 4711 is gone", &["--value-base64", "/wA="]);

    let row = operator.letters(&dead, 4, 4);
    assert_eq!((&row["oldest"], &row["newest"]), (&json!(1_700_000_000_000_i64), &json!(1_700_000_003_000_i64)));
    let people = operator.ok(&["dlq", "ls", &dead]);
    assert!(people.text.contains("2023-11-14T22:13:20.000Z"), "{}", people.text);
    look(&operator, &dead);
    bring_back(&operator, &orders, &dead);
    take_back(&operator, &orders, &dead);
    purge(&operator, &orders, &dead);
}

fn look(operator: &Operator<'_>, dead: &str) {
    let shown = operator.ok(&["dlq", "show", dead, "--max", "3", "--json"]);
    assert_eq!((shown.events("letter").len(), &shown.done()["shown"]), (3, &json!(3)), "{}", shown.text);
    let one = operator.ok(&["dlq", "show", dead, "--partition", "0", "--from-offset", "2", "--json"]);
    let letters = one.events("letter");
    assert_eq!((letters.len(), &letters[0]["value"], &letters[0]["offset"]), (1, &json!("c"), &json!("2")));
    let gone = operator.ok(&["dlq", "show", dead, "--last-error", "is gone"]);
    for part in ["hex:ff00", "x-last-error: order 4711 is gone", "2 letters", "2023-11-14T22:13:22.000Z"] {
        assert!(gone.text.contains(part), "{part} is not in {}", gone.text);
    }
    assert_eq!(operator.runs(&["dlq", "show", dead, "--partition", "7"], "").status, Some(1));
}

fn bring_back(operator: &Operator<'_>, orders: &str, dead: &str) {
    let dry = operator.ok(&["redrive", "--from", dead, "--dry-run", "--json"]);
    let reasons: Vec<_> =
        dry.events("reason").iter().map(|row| (row["reason"].clone(), row["letters"].clone())).collect();
    let expected = [(json!("TimeoutError"), json!(2)), (json!("order # is gone"), json!(2))];
    assert_eq!((reasons.as_slice(), &dry.done()["reprocessed"]), (&expected[..], &json!(4)), "{}", dry.text);
    operator.letters(dead, 4, 4);

    let range = ["redrive", "--from", dead, "--since", "1700000001000", "--until", "1700000002000", "--json"];
    let first = operator.ok(&[&range[..], &["--only-present", "--rate", "50", "--partition", "0"]].concat());
    let redriven = first.events("redriven");
    assert_eq!((redriven.len(), &redriven[0]["offset"]), (1, &json!("1")), "{}", first.text);
    // What was not meant is there for the next run, and what was done is not brought back again.
    let rest = operator.ok(&["redrive", "--from", dead, "--only-present", "--json"]);
    assert_eq!(rest.done()["reprocessed"], 3, "{}", rest.text);
    let back = operator.ok(&["consume", "--topic", orders, "--max", "4", "--idle", "30000", "--json"]);
    let mut values: Vec<String> = back.events("record").iter().map(|record| record["value"].to_string()).collect();
    values.sort();
    assert_eq!(values, [r#""a""#, r#""b""#, r#""c""#, r#"{"base64":"/wA="}"#]);
    let counted = back
        .events("record")
        .iter()
        .all(|record| record["headers"].as_array().unwrap().contains(&json!(["x-redrive-count", "1"])));
    assert!(counted, "{}", back.text);
}

/// A redrive into a topic that a group has read to its end is undone, and the group does not meet what was taken back.
fn take_back(operator: &Operator<'_>, orders: &str, dead: &str) {
    let group = unique("shipping");
    let read = |most, idle| {
        operator.ok(&["consume", "--topic", orders, "--group", &group, "--max", most, "--idle", idle, "--json"])
    };
    assert_eq!(read("4", "30000").events("record").len(), 4);
    let again = ["redrive", "--from", dead, "--group", &group, "--only-present", "--partition", "0", "--json"];
    let again = operator.ok(&again);
    let (began, ended) = (again.done()["began"].to_string(), again.done()["ended"].as_i64().unwrap() + 1);
    assert_eq!(
        (&again.done()["reprocessed"], &again.done()["targets"]),
        (&json!(3), &json!([orders])),
        "{}",
        again.text
    );

    let ended = ended.to_string();
    let undo = ["redrive", "--from", dead, "--undo", orders, "--since", &began, "--until", &ended, "--json"];
    operator.with_a_member(orders, &group, || {
        let refused = operator.runs(&undo, "");
        assert_eq!((refused.status, &refused.done()["takenBack"]), (Some(1), &json!(0)), "{}", refused.text);
        assert!(refused.text.contains(&format!("group `{group}` is at work on `{orders}`")), "{}", refused.text);
    });
    let dry = operator.ok(&[&undo[..], &["--dry-run"]].concat());
    assert_eq!((&dry.done()["takenBack"], dry.events("left").len()), (&json!(3), 0), "{}", dry.text);
    let undone = operator.ok(&undo);
    assert_eq!(undone.done()["takenBack"], 3, "{}", undone.text);
    let nothing = read("1", "2000");
    assert_eq!(nothing.events("record").len(), 0, "{}", nothing.text);
    let shown = operator.ok(&["dlq", "show", dead, "--last-error", "RedriveUndone", "--json"]);
    assert_eq!(shown.events("letter").len(), 3, "{}", shown.text);
    // Its group brings them back as any others, and the story goes on where it was.
    let back = operator.ok(&["redrive", "--from", dead, "--only-present", "--json"]);
    assert_eq!(back.done()["reprocessed"], 3, "{}", back.text);
    assert_eq!(read("3", "30000").events("record").len(), 3);
}

fn purge(operator: &Operator<'_>, orders: &str, dead: &str) {
    let other = operator.runs(&["dlq", "purge", orders, "--all", "--yes"], "");
    assert_eq!(other.status, Some(2), "what is no dead-letter topic is refused: {}", other.text);
    assert_eq!(operator.runs(&["dlq", "purge", dead, "--yes"], "").status, Some(2), "up to where?");
    let dry = operator.ok(&["dlq", "purge", dead, "--all", "--json"]);
    assert_eq!((&dry.done()["letters"], &dry.done()["purged"]), (&json!(7), &json!(false)), "{}", dry.text);
    let refused = operator.runs(&["dlq", "purge", dead, "--all", "--confirm"], &format!("{orders}\n"));
    assert_eq!(refused.status, Some(1), "another name was typed: {}", refused.text);
    operator.letters(dead, 7, 0);

    let young = ["dlq", "purge", dead, "--before", "1700000001000", "--yes", "--json"];
    let purged = operator.ok(&young);
    // All of partition 0 before its second letter; of partition 1 the only letter is younger.
    assert_eq!((&purged.done()["letters"], purged.events("purged").len()), (&json!(1), 1), "{}", purged.text);
    operator.letters(dead, 6, 0);
    let all = operator.runs(&["dlq", "purge", dead, "--all", "--confirm", "--json"], &format!("{dead}\n"));
    assert_eq!((all.status, &all.done()["purged"]), (Some(0), &json!(true)), "{}", all.text);
    let row = operator.letters(dead, 0, 0);
    assert_eq!((&row["oldest"], &row["newest"]), (&Value::Null, &Value::Null));
}
