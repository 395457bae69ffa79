//! `kafka-harbor dlq ls`.

use std::collections::BTreeMap;

use clap::Args;
use kafka_harbor::client::OffsetSpec;
use kafka_harbor::record::{Timestamp, Topic};
use serde_json::{Value, json};

use super::{Part, SUFFIX, listed, parts};
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::when::shown;

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// These topics; else all whose names end in SUFFIX
    topics: Vec<String>,
    /// How the names of dead-letter topics end
    #[arg(long, default_value = SUFFIX)]
    suffix: String,
    /// The group that redrives; else TOPIC-redrive
    #[arg(long)]
    group: Option<String>,
    /// Topics without a letter too
    #[arg(long)]
    empty: bool,
}

/// What lies in a topic.
#[derive(Default)]
struct Found {
    partitions: usize,
    letters: i64,
    waiting: i64,
    oldest: Option<Timestamp>,
    newest: Option<Timestamp>,
}

pub(crate) async fn run(args: LsArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let admin = connect.client()?.admin().with_timeout(connect.timeout());
    let mut topics: Vec<Topic> = args.topics.iter().map(|name| Topic::from(name.as_str())).collect();
    if topics.is_empty() {
        let all = admin.list_topics().await?;
        topics = all.into_iter().map(|it| it.topic).filter(|name| name.as_str().ends_with(&args.suffix)).collect();
        topics.sort();
    }
    let parts = parts(&admin, &topics, args.group.as_deref()).await?;
    let filled: Vec<&Part> = parts.iter().filter(|part| part.letters() > 0).collect();
    let partitions: Vec<_> = filled.iter().map(|part| part.partition.clone()).collect();
    let oldest = listed(&admin, &partitions, OffsetSpec::At(Timestamp(0))).await?;
    let newest = listed(&admin, &partitions, OffsetSpec::Newest).await?;

    let mut found: BTreeMap<&Topic, Found> = BTreeMap::new();
    for part in &parts {
        let found = found.entry(&part.partition.topic).or_default();
        found.partitions += 1;
        found.letters += part.letters();
        found.waiting += part.waiting_before(part.high);
    }
    for (part, (oldest, newest)) in filled.into_iter().zip(oldest.iter().zip(&newest)) {
        let found = found.entry(&part.partition.topic).or_default();
        found.oldest = [found.oldest, oldest.timestamp].into_iter().flatten().min();
        found.newest = found.newest.max(newest.timestamp);
    }
    let asked = args.empty || !args.topics.is_empty();
    let shown_topics = found.iter().filter(|(_, found)| asked || found.letters > 0);
    let rows: Vec<Vec<Value>> = shown_topics.map(|(topic, found)| row(topic, found, output)).collect();
    output.table("dlq", &["topic", "partitions", "letters", "waiting", "oldest", "newest"], &rows)?;
    Ok(())
}

fn row(topic: &Topic, found: &Found, output: Output) -> Vec<Value> {
    vec![
        json!(topic.as_str()),
        json!(found.partitions),
        json!(found.letters),
        json!(found.waiting),
        shown(found.oldest, output),
        shown(found.newest, output),
    ]
}
