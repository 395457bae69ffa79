//! `kafka-harbor groups reset`: where a group is to go on.

use clap::{ArgGroup, Args};
use kafka_harbor::client::{Admin, GroupOffset, ResetTo};
use kafka_harbor::record::{Offset, Timestamp, Topic, TopicPartition};
use serde_json::{Value, json};

use crate::failure::{Failure, chain};
use crate::output::Output;
use crate::records::partition;
use crate::topics::all_done;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("where").required(true)), group(ArgGroup::new("what").required(true).multiple(true)))]
pub(crate) struct ResetArgs {
    /// The group. It must have no members
    group: String,
    /// Every partition of this topic, repeatable
    #[arg(long = "topic", group = "what")]
    topics: Vec<String>,
    /// This partition, repeatable
    #[arg(long = "partition", group = "what", value_name = "TOPIC:PARTITION", value_parser = partition)]
    partitions: Vec<TopicPartition>,
    /// Every partition where it has committed
    #[arg(long, group = "what")]
    committed: bool,
    /// To the oldest record
    #[arg(long, group = "where")]
    to_earliest: bool,
    /// To the end
    #[arg(long, group = "where")]
    to_latest: bool,
    /// To the first record with this time or a later one, in milliseconds since 1970
    #[arg(long, group = "where", value_name = "MILLISECONDS", value_parser = clap::value_parser!(i64).range(0..))]
    to_time: Option<i64>,
    /// To this offset
    #[arg(long, group = "where", value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    to_offset: Option<i64>,
    /// By so many records on, or back
    #[arg(long, group = "where", value_name = "RECORDS", allow_negative_numbers = true)]
    by: Option<i64>,
    /// Tell where it would be, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: ResetArgs, admin: &Admin, output: Output) -> Result<(), Failure> {
    let (partitions, mut failed) = partitions(&args, admin).await?;
    let to = args.to();
    let asked: Vec<_> = partitions.into_iter().map(|partition| (partition, to)).collect();
    let (mut rows, mut offsets): (Vec<Vec<Value>>, Vec<(TopicPartition, GroupOffset)>) = (Vec::new(), Vec::new());
    for (partition, planned) in admin.plan_group_reset(&args.group, &asked).await? {
        match planned {
            Ok(planned) => {
                let before = planned.before.map(|before| before.offset);
                rows.push(row(&partition, before, planned.after.offset, output));
                offsets.push((partition, planned.after));
            }
            Err(error) => failed.push(format!("{partition}: {}", chain(&error))),
        }
    }
    if !args.dry_run {
        for ((partition, outcome), at) in admin.set_group_offsets(&args.group, &offsets).await.into_iter().zip(0..) {
            if let Err(error) = outcome {
                failed.push(format!("{partition}: {}", chain(&error)));
                rows[at].clear();
            }
        }
        rows.retain(|row| !row.is_empty());
    }
    let event = if args.dry_run { "would-reset" } else { "reset" };
    output.table(event, &["topic", "partition", "before", "after"], &rows)?;
    all_done(failed)
}

/// The partitions that are meant, and topics that could not be asked for theirs.
async fn partitions(args: &ResetArgs, admin: &Admin) -> Result<(Vec<TopicPartition>, Vec<String>), Failure> {
    let (mut all, mut failed) = (args.partitions.clone(), Vec::new());
    let topics: Vec<Topic> = args.topics.iter().map(|name| Topic::from(name.as_str())).collect();
    for (topic, described) in admin.describe_topics(&topics).await {
        match described {
            Ok(described) => {
                all.extend(described.partitions.iter().map(|it| TopicPartition::new(&topic, it.partition)));
            }
            Err(error) => failed.push(format!("{topic}: {}", chain(&error))),
        }
    }
    if args.committed {
        let committed = admin.group_offsets(&args.group, None).await?;
        if committed.is_empty() {
            return Err(Failure::refused(format!(
                "group {} has committed nothing, or there is no such group",
                args.group
            )));
        }
        all.extend(committed.into_iter().map(|(partition, _)| partition));
    }
    all.sort();
    all.dedup();
    Ok((all, failed))
}

fn row(partition: &TopicPartition, before: Option<Offset>, after: Offset, output: Output) -> Vec<Value> {
    // Offsets are text for programs, as everywhere in the events, and numbers for people.
    let place = |offset: Offset| if output.is_json() { json!(offset.to_string()) } else { json!(offset.0) };
    let before = before.map_or(Value::Null, place);
    vec![json!(partition.topic.as_str()), json!(partition.partition), before, place(after)]
}

impl ResetArgs {
    fn to(&self) -> ResetTo {
        if self.to_earliest {
            ResetTo::Earliest
        } else if let Some(time) = self.to_time {
            ResetTo::At(Timestamp(time))
        } else if let Some(offset) = self.to_offset {
            ResetTo::Offset(Offset(offset))
        } else if let Some(records) = self.by {
            ResetTo::By(records)
        } else {
            ResetTo::Latest
        }
    }
}
