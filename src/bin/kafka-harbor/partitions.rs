//! `kafka-harbor partitions`.

use clap::{Args, Subcommand};
use kafka_harbor::client::{Admin, Elected, Election};
use kafka_harbor::record::{NodeId, Topic, TopicPartition};
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::{Failure, chain};
use crate::output::Output;
use crate::records::partition;
use crate::topics::{all_done, settle};

#[derive(Debug, Args)]
pub(crate) struct PartitionsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Give topics more partitions. Records with a key may go to another one from then on
    Add {
        #[arg(required = true)]
        topics: Vec<String>,
        /// How many each is to have in all
        #[arg(long, value_name = "COUNT")]
        total: i32,
    },
    /// Have the preferred replica of partitions lead again
    Elect {
        /// The partitions; else all that are led by another one than they prefer
        #[arg(value_name = "TOPIC:PARTITION", value_parser = partition)]
        partitions: Vec<TopicPartition>,
        /// Any replica that runs, where no in-sync one does: what it lacks is lost
        #[arg(long, requires = "partitions")]
        dangerously_unclean: bool,
    },
    /// Move partitions to these brokers, the preferred leader first
    Move {
        #[arg(required = true, value_name = "TOPIC:PARTITION", value_parser = partition)]
        partitions: Vec<TopicPartition>,
        #[arg(long, value_name = "ID,...", value_delimiter = ',', required_unless_present = "cancel")]
        to: Vec<i32>,
        /// Take the move back that is under way
        #[arg(long, conflicts_with = "to")]
        cancel: bool,
    },
    /// Partitions that are being moved
    Moves,
}

pub(crate) async fn run(args: PartitionsArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let admin = connect.client()?.admin().with_timeout(connect.timeout());
    match args.command {
        Command::Add { topics, total } => {
            let totals: Vec<(Topic, i32)> = topics.iter().map(|name| (Topic::from(name.as_str()), total)).collect();
            settle(admin.create_partitions(&totals).await, output, "grown", |()| json!({ "partitions": total }))
        }
        Command::Elect { partitions, dangerously_unclean } => {
            let election = if dangerously_unclean { Election::DangerouslyUnclean } else { Election::Preferred };
            let partitions = if partitions.is_empty() { led_by_others(&admin).await? } else { partitions };
            let outcomes = admin.elect_leaders(election, &partitions).await;
            let mut failed = Vec::new();
            for (partition, outcome) in outcomes {
                match outcome {
                    Ok(elected) => {
                        let needed = elected == Elected::Elected;
                        let fields = json!({ "name": partition.to_string(), "needed": needed });
                        let text = if needed { "elected" } else { "not needed" };
                        output.event("elected", fields, || Some(format!("{partition}: {text}")))?;
                    }
                    Err(error) => failed.push(format!("{partition}: {}", chain(&error))),
                }
            }
            all_done(failed)
        }
        Command::Move { partitions, to, cancel } => {
            let nodes = (!cancel).then(|| to.into_iter().map(NodeId).collect::<Vec<_>>());
            let moves: Vec<_> = partitions.into_iter().map(|partition| (partition, nodes.clone())).collect();
            let outcomes = admin.reassign_partitions(&moves).await;
            let named = outcomes.into_iter().map(|(partition, outcome)| (partition.to_string(), outcome)).collect();
            settle(named, output, if cancel { "cancelled" } else { "moving" }, |()| json!({}))
        }
        Command::Moves => {
            let moves = admin.list_reassignments(None).await?;
            let rows: Vec<Vec<Value>> = moves
                .iter()
                .map(|(partition, moving)| {
                    vec![
                        json!(partition.topic.as_str()),
                        json!(partition.partition),
                        nodes(&moving.replicas),
                        nodes(&moving.adding),
                        nodes(&moving.removing),
                    ]
                })
                .collect();
            Ok(output.table("move", &["topic", "partition", "replicas", "adding", "removing"], &rows)?)
        }
    }
}

async fn led_by_others(admin: &Admin) -> Result<Vec<TopicPartition>, Failure> {
    let topics = admin.list_topics().await?;
    let others = topics.iter().flat_map(|topic| {
        let other = topic.partitions.iter().filter(|partition| partition.leader != partition.replicas.first().copied());
        other.map(|partition| TopicPartition::new(&topic.topic, partition.partition))
    });
    Ok(others.collect())
}

fn nodes(nodes: &[NodeId]) -> Value {
    json!(nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}
