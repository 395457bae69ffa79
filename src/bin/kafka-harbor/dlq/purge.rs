//! `kafka-harbor dlq purge`.

use std::io::{self, BufRead as _};

use clap::{ArgGroup, Args};
use kafka_harbor::client::{Admin, OffsetSpec};
use kafka_harbor::record::{Offset, Timestamp, Topic, TopicPartition};
use serde_json::{Value, json};

use super::{Part, SUFFIX, listed, parts};
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::topics::settle;
use crate::when::when;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true)))]
pub(crate) struct PurgeArgs {
    /// The dead-letter topic
    topic: String,
    /// Letters before this offset
    #[arg(long, group = "what", value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    before_offset: Option<i64>,
    /// Letters before the first one of this instant or a later one: 2026-12-01T09:30:00Z, milliseconds since 1970, or how long ago (7d)
    #[arg(long, group = "what", value_name = "INSTANT", value_parser = when)]
    before: Option<Timestamp>,
    /// All that are there now
    #[arg(long, group = "what")]
    all: bool,
    /// Of this partition alone, repeatable
    #[arg(long = "partition", value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    partitions: Vec<i32>,
    /// Delete them
    #[arg(long, conflicts_with = "confirm")]
    yes: bool,
    /// Delete them once the topic's name was typed
    #[arg(long)]
    confirm: bool,
    /// How the names of dead-letter topics end; another topic is refused
    #[arg(long, default_value = SUFFIX)]
    suffix: String,
    /// The group that redrives, to tell how many letters it has not passed; else TOPIC-redrive
    #[arg(long)]
    group: Option<String>,
}

pub(crate) async fn run(args: PurgeArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    if !args.topic.ends_with(&args.suffix) {
        let (topic, suffix) = (&args.topic, &args.suffix);
        return Err(Failure::usage(format!(
            "{topic} does not end in {suffix}, as dead-letter topics do: give --suffix, or see `records delete`"
        )));
    }
    let admin = connect.client()?.admin().with_timeout(connect.timeout());
    let topic = Topic::from(args.topic.as_str());
    let mut parts = parts(&admin, std::slice::from_ref(&topic), args.group.as_deref()).await?;
    if let Some(missing) = args.partitions.iter().find(|at| !parts.iter().any(|part| part.partition.partition == **at))
    {
        return Err(Failure::refused(format!("{topic} has no partition {missing}")));
    }
    parts.retain(|part| args.partitions.is_empty() || args.partitions.contains(&part.partition.partition));
    let plan: Vec<(Part, Offset)> = plan(&args, &admin, parts).await?;
    let letters: i64 = plan.iter().map(|(part, before)| before.0 - part.low.0).sum();
    let waiting: i64 = plan.iter().map(|(part, before)| part.waiting_before(*before)).sum();
    let rows: Vec<Vec<Value>> = plan.iter().map(|(part, before)| row(part, *before, output)).collect();
    output.table("would-purge", &["topic", "partition", "from", "before", "letters", "waiting"], &rows)?;

    let fields = |purged| json!({ "topic": topic.as_str(), "letters": letters, "waiting": waiting, "purged": purged });
    if letters == 0 {
        output.event("done", fields(false), || Some("nothing to delete".to_owned()))?;
        return Ok(());
    }
    let agreed = args.yes || (args.confirm && confirmed(&topic, letters, waiting)?);
    if !agreed {
        let how = if args.confirm { "the topic's name was not typed" } else { "--yes deletes, --confirm asks first" };
        output.event("done", fields(false), || {
            Some(format!("{letters} letters, {waiting} of them waiting for a redrive; nothing was deleted: {how}"))
        })?;
        return if args.confirm { Err(Failure::refused("not confirmed")) } else { Ok(()) };
    }
    let asked: Vec<(TopicPartition, Offset)> =
        plan.into_iter().map(|(part, before)| (part.partition, before)).collect();
    let outcomes = admin.delete_records(&asked).await;
    let named = outcomes.into_iter().map(|(partition, outcome)| (partition.to_string(), outcome)).collect();
    settle(named, output, "purged", |low: Offset| json!({ "low": low.to_string() }))?;
    output.event("done", fields(true), || Some(format!("{letters} letters deleted")))?;
    Ok(())
}

/// Up to where each partition is deleted. Those where nothing is are left out.
async fn plan(args: &PurgeArgs, admin: &Admin, parts: Vec<Part>) -> Result<Vec<(Part, Offset)>, Failure> {
    let before: Vec<Offset> = match (args.before, args.before_offset) {
        (Some(time), _) => {
            let partitions: Vec<_> = parts.iter().map(|part| part.partition.clone()).collect();
            let first = listed(admin, &partitions, OffsetSpec::At(time)).await?;
            // Where no letter is as young, all are older.
            first.iter().zip(&parts).map(|(first, part)| first.offset.unwrap_or(part.high)).collect()
        }
        (None, Some(offset)) => vec![Offset(offset); parts.len()],
        (None, None) => parts.iter().map(|part| part.high).collect(),
    };
    let plan = parts.into_iter().zip(before).map(|(part, before)| {
        let before = before.clamp(part.low, part.high);
        (part, before)
    });
    Ok(plan.filter(|(part, before)| *before > part.low).collect())
}

fn row(part: &Part, before: Offset, output: Output) -> Vec<Value> {
    let place = |offset: Offset| if output.is_json() { json!(offset.to_string()) } else { json!(offset.0) };
    vec![
        json!(part.partition.topic.as_str()),
        json!(part.partition.partition),
        place(part.low),
        place(before),
        json!(before.0 - part.low.0),
        json!(part.waiting_before(before)),
    ]
}

fn confirmed(topic: &Topic, letters: i64, waiting: i64) -> io::Result<bool> {
    eprintln!(
        "{letters} letters of {topic} go for good, {waiting} of them waiting for a redrive. Type the topic's name:"
    );
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim() == topic.as_str())
}
