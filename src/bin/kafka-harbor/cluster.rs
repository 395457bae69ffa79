//! `kafka-harbor cluster`.

use clap::{Args, Subcommand};
use kafka_harbor::record::NodeId;
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::{Failure, chain};
use crate::output::Output;
use crate::topics::all_done;

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The cluster's id and its brokers, as without a command
    Describe,
    /// What lies in the directories of brokers, and how large it is
    LogDirs {
        /// Brokers, repeatable; else all
        #[arg(long = "broker", value_name = "ID")]
        brokers: Vec<i32>,
        /// Each replica, not the sums alone
        #[arg(long)]
        replicas: bool,
    },
}

pub(crate) async fn run(args: ClusterArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let admin = connect.client()?.admin().with_timeout(connect.timeout());
    match args.command {
        None | Some(Command::Describe) => {
            let cluster = admin.describe_cluster().await?;
            let controller = cluster.controller.map(|node| node.0);
            let fields = json!({ "cluster": cluster.cluster_id, "controller": controller });
            output.event("cluster", fields, || {
                let controller = controller.map_or_else(|| "-".to_owned(), |node| node.to_string());
                Some(format!("{}  controller {controller}", cluster.cluster_id))
            })?;
            let rows: Vec<Vec<Value>> = cluster
                .brokers
                .iter()
                .map(|broker| {
                    let rack = json!(broker.rack);
                    vec![json!(broker.node.0), json!(broker.host), json!(broker.port), rack, json!(broker.fenced)]
                })
                .collect();
            Ok(output.table("broker", &["broker", "host", "port", "rack", "fenced"], &rows)?)
        }
        Some(Command::LogDirs { brokers, replicas }) => {
            let brokers: Vec<NodeId> = brokers.into_iter().map(NodeId).collect();
            let brokers = (!brokers.is_empty()).then_some(brokers.as_slice());
            let (mut failed, mut dirs, mut held) = (Vec::new(), Vec::new(), Vec::new());
            for (node, described) in admin.describe_log_dirs(brokers).await? {
                let described = match described {
                    Ok(described) => described,
                    Err(error) => {
                        failed.push(format!("broker {node}: {}", chain(&error)));
                        continue;
                    }
                };
                for dir in described {
                    let bytes: u64 = dir.replicas.iter().map(|replica| replica.bytes).sum();
                    let (count, error) = (dir.replicas.len(), dir.error.map(|code| code.to_string()));
                    failed.extend(error.as_ref().map(|error| format!("broker {node}: {}: {error}", dir.path)));
                    let left = json!(dir.usable_bytes);
                    dirs.push(vec![json!(node.0), json!(dir.path), json!(count), json!(bytes), left, json!(error)]);
                    for replica in dir.replicas {
                        let (at, future) = (replica.partition, json!(replica.future));
                        let place = [json!(node.0), json!(at.topic.as_str()), json!(at.partition)];
                        held.push([&place[..], &[json!(replica.bytes), json!(replica.offset_lag), future]].concat());
                    }
                }
            }
            output.table("log_dir", &["broker", "path", "replicas", "bytes", "usable_bytes", "error"], &dirs)?;
            if replicas {
                output.table("replica", &["broker", "topic", "partition", "bytes", "offset_lag", "future"], &held)?;
            }
            all_done(failed)
        }
    }
}
