//! `kafka-harbor lag`.

use std::collections::BTreeMap;

use clap::Args;
use kafka_harbor::client::{IsolationLevel, OffsetSpec};
use kafka_harbor::record::{Offset, TopicPartition};
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::consume::Isolation;
use crate::failure::{Failure, chain};
use crate::output::Output;
use crate::topics::all_done;

#[derive(Debug, Args)]
pub(crate) struct LagArgs {
    /// The group
    #[arg(long)]
    group: String,
    /// Topics, repeatable; else all where the group has committed
    #[arg(long = "topic")]
    topics: Vec<String>,
    /// Where the group would begin on a partition without a commit: count its lag from there
    #[arg(long, value_enum, default_value_t = Start::Latest)]
    start: Start,
    /// Count up to the first open transaction, or up to the last record that is there
    #[arg(long, value_enum, default_value_t = Isolation::ReadCommitted)]
    isolation: Isolation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Start {
    Earliest,
    Latest,
}

pub(crate) async fn run(args: LagArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let admin = connect.client()?.admin().with_timeout(connect.timeout());
    let committed = admin.group_offsets(&args.group, None).await?;
    if committed.is_empty() && args.topics.is_empty() {
        let group = &args.group;
        return Err(Failure::refused(format!(
            "group {group} has committed nothing, or there is no such group; with --topic its lag counts from where it would begin"
        )));
    }
    let mut failed = Vec::new();
    let mut offsets: BTreeMap<TopicPartition, Option<Offset>> =
        committed.into_iter().map(|(partition, committed)| (partition, Some(committed.offset))).collect();
    if !args.topics.is_empty() {
        let topics: Vec<_> = args.topics.iter().map(|name| name.as_str().into()).collect();
        offsets.retain(|partition, _| topics.contains(&partition.topic));
        for (topic, description) in admin.describe_topics(&topics).await {
            match description {
                Ok(description) => {
                    for partition in description.partitions {
                        offsets.entry(TopicPartition::new(&topic, partition.partition)).or_insert(None);
                    }
                }
                Err(error) => failed.push(format!("{topic}: {}", chain(&error))),
            }
        }
    }

    let partitions: Vec<TopicPartition> = offsets.keys().cloned().collect();
    let ends = |spec| partitions.iter().map(|partition| (partition.clone(), spec)).collect::<Vec<_>>();
    let isolation = IsolationLevel::from(args.isolation);
    let low = admin.list_offsets(&ends(OffsetSpec::Earliest), isolation).await;
    let high = admin.list_offsets(&ends(OffsetSpec::Latest), isolation).await;
    let mut rows = Vec::new();
    let mut total = 0;
    for (((partition, committed), (_, low)), (_, high)) in offsets.iter().zip(low).zip(high) {
        let (low, high) = match (low, high) {
            (Ok(low), Ok(high)) => (low.offset.unwrap_or_default(), high.offset.unwrap_or_default()),
            (Err(error), _) | (_, Err(error)) => {
                failed.push(format!("{partition}: {}", chain(&error)));
                continue;
            }
        };
        let lag = lag(*committed, low, high, args.start);
        total += lag;
        rows.push(vec![
            json!(partition.topic.as_str()),
            json!(partition.partition),
            committed.map_or(Value::Null, |offset| place(offset, output)),
            place(low, output),
            place(high, output),
            json!(lag),
        ]);
    }
    output.table("lag", &["topic", "partition", "committed", "low", "high", "lag"], &rows)?;
    output.event("done", json!({ "reason": "lag", "group": args.group, "lag": total }), || {
        Some(format!("total lag {total}"))
    })?;
    all_done(failed)
}

/// From the committed offset where it is in range, else from where the group would begin.
fn lag(committed: Option<Offset>, low: Offset, high: Offset, start: Start) -> i64 {
    let position = match committed.filter(|offset| (low..=high).contains(offset)) {
        Some(offset) => offset,
        None if start == Start::Earliest => low,
        None => high,
    };
    high.0 - position.0
}

/// Offsets are text for programs, as everywhere in the events, and numbers for people.
fn place(offset: Offset, output: Output) -> Value {
    if output.is_json() { json!(offset.to_string()) } else { json!(offset.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_out_of_range_counts_from_where_the_group_would_begin() {
        let (low, high) = (Offset(10), Offset(30));
        assert_eq!(lag(Some(Offset(12)), low, high, Start::Latest), 18);
        assert_eq!(lag(Some(Offset(30)), low, high, Start::Earliest), 0);
        assert_eq!(lag(Some(Offset(3)), low, high, Start::Earliest), 20);
        assert_eq!(lag(Some(Offset(31)), low, high, Start::Latest), 0);
        assert_eq!(lag(None, low, high, Start::Latest), 0);
        assert_eq!(lag(None, low, high, Start::Earliest), 20);
    }
}
