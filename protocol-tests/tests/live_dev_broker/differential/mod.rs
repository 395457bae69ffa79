//! The dev broker answers as Kafka does: one script, asked of both, compared field by field.
//!
//! What differs and stays so stands in the table of `docs/dev-broker.md`. A difference that is not there fails the test, and
//! so does a row that nothing differs by any more.

mod answer;
mod script;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kafka_harbor::testing::broker::{DevBroker, Sasl, SaslMechanism};
use protocol_tests::{Cluster, kafka_with};

use self::script::Run;
use self::wire::{Versions, versions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dev_broker_answers_as_kafka_does_but_for_what_is_explained() {
    let start = |settings: &'static [&'static str], version: Option<&'static str>| {
        tokio::task::spawn_blocking(move || kafka_with(1, settings, version))
    };
    let (newest, oldest) = (start(&ASSIGN_AT_ONCE, None), start(&[], Some("4.0.2")));
    let (Some(newest), Some(oldest)) = (newest.await.unwrap(), oldest.await.unwrap()) else { return };
    let (newest, oldest) = tokio::join!(differences("4.4", &newest), differences("4.0", &oldest));
    let table = Table::read();
    let mut unused: BTreeSet<(usize, &str)> = table.rows.iter().flat_map(Row::uses).collect();
    let mut unexplained = Vec::new();
    for (kafka, differences) in [("4.4", newest), ("4.0", oldest)] {
        for difference in differences {
            let rows: Vec<&Row> = table.rows.iter().filter(|row| row.explains(kafka, &difference)).collect();
            rows.iter().for_each(|row| _ = unused.remove(&(row.line, kafka)));
            if rows.is_empty() {
                unexplained.push(format!("Kafka {kafka}: {difference}"));
            }
        }
    }
    let unexplained = unexplained.join("\n");
    assert!(unexplained.is_empty(), "not in the table of docs/dev-broker.md:\n{unexplained}");
    assert!(unused.is_empty(), "rows of docs/dev-broker.md (line, Kafka) that nothing differs by: {unused:?}");
}

/// From 4.3 on Kafka assigns behind its answers (KIP-1263), and what is answered meanwhile depends on the time it takes.
const ASSIGN_AT_ONCE: [&str; 4] = [
    "group.consumer.assignment.interval.ms=0",
    "group.consumer.assignor.offload.enable=false",
    "group.share.assignment.interval.ms=0",
    "group.share.assignor.offload.enable=false",
];

/// What the dev broker answers otherwise than this cluster.
async fn differences(version: &'static str, kafka: &Cluster) -> Vec<Difference> {
    let (open, guarded) = tokio::join!(dev_broker(None), dev_broker(Some(logins())));
    let served = versions(&open.tcp_bootstrap()).await;
    let both = shared(&versions(&kafka.bootstrap).await, &served);
    let run = |address: &str| Run::new(address.to_owned(), both.clone());
    let pair = |kafka: &str, dev: &DevBroker| (run(&dev.tcp_bootstrap()), run(kafka));
    let (mut dev_open, mut kafka_open) = pair(&kafka.bootstrap, &open);
    // A container has no listener that asks for logins.
    let mut doors = kafka.env.get("SASL_PLAINTEXT").map(|address| pair(address, &guarded));
    let enter = async {
        if let Some((dev, kafka)) = &mut doors {
            tokio::join!(dev.doors(), kafka.doors());
        }
    };
    tokio::join!(dev_open.all(), kafka_open.all(), enter);
    let runs: Vec<(Run, Run)> = [(dev_open, kafka_open)].into_iter().chain(doors).collect();
    let asked: BTreeSet<i16> = runs.iter().flat_map(|(dev, _)| &dev.asked).copied().collect();
    let excepted = |api: &i16| UNASKED.iter().any(|(key, of, _)| key == api && (*of == version || *of == "both"));
    let unasked: Vec<i16> = served.into_keys().filter(|api| !asked.contains(api) && !excepted(api)).collect();
    assert!(unasked.is_empty(), "APIs that the dev broker announces and the script does not ask: {unasked:?}");
    let differ = |(dev, kafka): &(Run, Run)| {
        let steps: BTreeSet<&str> = kafka.answers.keys().chain(dev.answers.keys()).copied().collect();
        let differ = steps.into_iter().flat_map(|step| compare(step, dev.answers.get(step), kafka.answers.get(step)));
        differ.collect::<Vec<_>>()
    };
    runs.iter().flat_map(differ).collect()
}

/// APIs of the dev broker that a Kafka is not asked, and why.
const UNASKED: [(i16, &str, &str); 6] = [
    (71, "both", "GetTelemetrySubscriptions: Kafka serves it only with a plugin that takes the metrics"),
    (72, "both", "PushTelemetry: as above"),
    (76, "4.0", "ShareGroupHeartbeat: Kafka 4.0 has share groups of an earlier protocol alone, version 0"),
    (77, "4.0", "ShareGroupDescribe: as above"),
    (78, "4.0", "ShareFetch: as above"),
    (79, "4.0", "ShareAcknowledge: as above"),
];

/// A dev broker with the settings of the script that starts Kafka.
async fn dev_broker(sasl: Option<Sasl>) -> DevBroker {
    let builder = DevBroker::builder().settings(|settings| {
        settings.min_session_timeout = Duration::from_secs(1);
        settings.consumer_group_session = Duration::from_secs(10);
        settings.consumer_group_heartbeat_interval = Duration::from_secs(1);
        settings.racks = vec!["rack-1".to_owned()];
        settings.authorizer = true;
        settings.sasl = sasl;
    });
    builder.listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap()
}

fn logins() -> Sasl {
    let mechanisms =
        [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512, SaslMechanism::OAuthBearer];
    Sasl::new(mechanisms).user("alice", "alice-secret").user("bob", "bob-secret")
}

fn shared(one: &Versions, other: &Versions) -> Versions {
    let both = one.iter().filter_map(|(api, (min, max))| {
        let (of_min, of_max) = other.get(api)?;
        Some((*api, (*min.max(of_min), *max.min(of_max))))
    });
    both.filter(|(_, (min, max))| min <= max).collect()
}

type Fields = BTreeMap<String, String>;

fn compare(step: &'static str, dev: Option<&Fields>, kafka: Option<&Fields>) -> Vec<Difference> {
    let (none, missing) = (Fields::new(), "not there".to_owned());
    let (dev, kafka) = (dev.unwrap_or(&none), kafka.unwrap_or(&none));
    let paths: BTreeSet<&String> = dev.keys().chain(kafka.keys()).collect();
    let differ = paths.into_iter().filter(|path| dev.get(*path) != kafka.get(*path));
    let value = |of: &Fields, path: &String| of.get(path).unwrap_or(&missing).clone();
    differ
        .map(|path| Difference { step, path: path.clone(), dev: value(dev, path), kafka: value(kafka, path) })
        .collect()
}

/// A field that two brokers answer differently.
struct Difference {
    step: &'static str,
    path: String,
    dev: String,
    kafka: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} | {} | it says {}, we say {}", self.step, self.path, self.kafka, self.dev)
    }
}

/// The table of what differs.
struct Table {
    rows: Vec<Row>,
}

/// Steps, fields and versions of Kafka that differ, `*` for any text in either; and why.
struct Row {
    line: usize,
    step: String,
    field: String,
    kafka: Vec<&'static str>,
}

impl Table {
    fn read() -> Self {
        let page = include_str!("../../../../docs/dev-broker.md");
        let lines = (1..).zip(page.lines()).skip_while(|(_, line)| !line.starts_with("| step |")).skip(2);
        let rows = lines.take_while(|(_, line)| line.starts_with('|')).map(|(line, text)| {
            let cells: Vec<&str> =
                text.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
            let [step, field, kafka, why] = cells[..] else { panic!("line {line} has other cells: {text}") };
            assert!(!why.is_empty(), "line {line} explains nothing");
            let kafka = match kafka {
                "both" => vec!["4.4", "4.0"],
                "4.4" => vec!["4.4"],
                "4.0" => vec!["4.0"],
                other => panic!("line {line}: {other:?} is no version of Kafka"),
            };
            Row { line, step: step.to_owned(), field: field.to_owned(), kafka }
        });
        Self { rows: rows.collect() }
    }
}

impl Row {
    fn uses(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.kafka.iter().map(|kafka| (self.line, *kafka))
    }

    fn explains(&self, kafka: &str, difference: &Difference) -> bool {
        let path: String =
            difference.path.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect();
        self.kafka.contains(&kafka) && fits(&self.step, difference.step) && fits(&self.field, &path)
    }
}

/// Whether a text is the pattern's, whose `*` stands for anything.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, "")) => text.starts_with(start),
        Some((start, rest)) => {
            let Some(text) = text.strip_prefix(start) else { return false };
            (0..=text.len()).any(|at| text.is_char_boundary(at) && fits(rest, &text[at..]))
        }
    }
}

#[test]
fn a_row_fits_by_its_stars() {
    let cases =
        [("a", "a", true), ("a", "ab", false), ("a*", "ab", true), ("*: v1", "x: v1", true), ("*b*d", "abcd", true)];
    for (pattern, text, expected) in cases {
        assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
    }
}
