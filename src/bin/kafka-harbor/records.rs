//! `kafka-harbor records`.

use clap::{Args, Subcommand};
use kafka_harbor::record::{Offset, TopicPartition};
use serde_json::json;

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::topics::settle;

#[derive(Debug, Args)]
pub(crate) struct RecordsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Delete the oldest records of partitions, for good
    Delete {
        /// The partitions, repeatable
        #[arg(required = true, value_name = "TOPIC:PARTITION", value_parser = partition)]
        partitions: Vec<TopicPartition>,
        /// Delete what lies before this offset, or all that is there: `end`
        #[arg(long, value_name = "OFFSET|end", value_parser = before)]
        before: Offset,
    },
}

pub(crate) async fn run(args: RecordsArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let admin = connect.client()?.admin().with_timeout(connect.timeout());
    let Command::Delete { partitions, before } = args.command;
    let asked: Vec<_> = partitions.into_iter().map(|partition| (partition, before)).collect();
    let outcomes = admin.delete_records(&asked).await;
    let named = outcomes.into_iter().map(|(partition, outcome)| (partition.to_string(), outcome)).collect();
    settle(named, output, "deleted", |low: Offset| json!({ "low": low.to_string() }))
}

/// `TOPIC:PARTITION`; a topic's name has no colon.
pub(crate) fn partition(text: &str) -> Result<TopicPartition, String> {
    let (topic, number) = text.rsplit_once(':').ok_or("not TOPIC:PARTITION")?;
    let number: i32 = number.parse().map_err(|_| "not TOPIC:PARTITION".to_owned())?;
    if topic.is_empty() || number < 0 {
        return Err("not TOPIC:PARTITION".to_owned());
    }
    Ok(TopicPartition::new(topic, number))
}

fn before(text: &str) -> Result<Offset, String> {
    match text {
        "end" => Ok(Offset(-1)),
        text => text
            .parse()
            .ok()
            .filter(|offset| *offset >= 0)
            .map(Offset)
            .ok_or_else(|| "not an offset, or end".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_read_and_what_is_none_refused() {
        assert_eq!(partition("orders-1:3"), Ok(TopicPartition::new("orders-1", 3)));
        for wrong in ["orders", "orders:", ":1", "orders:-1", "orders:x"] {
            assert!(partition(wrong).is_err(), "{wrong}");
        }
        assert_eq!((before("end"), before("7")), (Ok(Offset(-1)), Ok(Offset(7))));
        assert!(before("-1").is_err() && before("now").is_err());
    }
}
