//! `kafka-harbor dlq`: what lies in dead-letter topics.

mod ls;
mod purge;
mod show;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use kafka_harbor::client::{Admin, IsolationLevel, ListedOffset, OffsetSpec};
use kafka_harbor::record::{Offset, Topic, TopicPartition};

use crate::connect::ConnectArgs;
use crate::failure::{Failure, chain};
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Dead-letter topics: how many letters, how many of them wait for a redrive, the oldest, the newest. What a redrive over a range
    /// brought back counts as waiting until what lies before it is brought back, too
    Ls(ls::LsArgs),
    /// Print letters: headers and value, text or else hex
    Show(show::ShowArgs),
    /// Delete the oldest letters, for good. Without --yes or --confirm it only tells what it would delete
    Purge(purge::PurgeArgs),
}

pub(crate) async fn run(args: DlqArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    match args.command {
        Command::Ls(args) => ls::run(args, connect, output).await,
        Command::Show(args) => show::run(args, connect, output).await,
        Command::Purge(args) => purge::run(args, connect, output).await,
    }
}

/// A partition of a dead-letter topic. What aborted transactions wrote, and markers, count as letters: a broker does not tell
/// them apart.
#[derive(Debug)]
struct Part {
    partition: TopicPartition,
    low: Offset,
    high: Offset,
    /// Where the redrive's group stands, if it ever committed.
    redriven: Option<Offset>,
}

impl Part {
    fn letters(&self) -> i64 {
        self.high.0 - self.low.0
    }

    /// Letters before `end` that the redrive's group has not passed.
    fn waiting_before(&self, end: Offset) -> i64 {
        let from = self.redriven.map_or(self.low, |at| at.max(self.low));
        (end.0.min(self.high.0) - from.0).max(0)
    }
}

/// The partitions of these topics, and where their redrives stand.
async fn parts(admin: &Admin, topics: &[Topic], group: Option<&str>) -> Result<Vec<Part>, Failure> {
    let mut all = Vec::new();
    let mut redriven = BTreeMap::new();
    for (topic, described) in admin.describe_topics(topics).await {
        let described = described.map_err(|error| Failure::refused(format!("{topic}: {}", chain(&error))))?;
        let of_topic: Vec<_> =
            described.partitions.iter().map(|it| TopicPartition::new(&topic, it.partition)).collect();
        let group = group.map_or_else(|| format!("{topic}-redrive"), str::to_owned);
        let committed = admin.group_offsets(&group, Some(&of_topic)).await?;
        redriven.extend(committed.into_iter().map(|(partition, committed)| (partition, committed.offset)));
        all.extend(of_topic);
    }
    let (low, high) =
        (listed(admin, &all, OffsetSpec::Earliest).await?, listed(admin, &all, OffsetSpec::Latest).await?);
    let offset = |listed: &ListedOffset| listed.offset.unwrap_or_default();
    let parts = all.into_iter().zip(low.iter().zip(&high)).map(|(partition, (low, high))| {
        let redriven = redriven.get(&partition).copied();
        Part { partition, low: offset(low), high: offset(high), redriven }
    });
    Ok(parts.collect())
}

/// An offset of each partition, in the order asked.
async fn listed(admin: &Admin, partitions: &[TopicPartition], spec: OffsetSpec) -> Result<Vec<ListedOffset>, Failure> {
    let asked: Vec<_> = partitions.iter().map(|partition| (partition.clone(), spec)).collect();
    let mut listed = Vec::with_capacity(asked.len());
    for (partition, outcome) in admin.list_offsets(&asked, IsolationLevel::ReadCommitted).await {
        listed.push(outcome.map_err(|error| Failure::refused(format!("{partition}: {}", chain(&error))))?);
    }
    Ok(listed)
}

/// How the names of dead-letter topics end, unless it is said otherwise.
const SUFFIX: &str = "-dlq";
