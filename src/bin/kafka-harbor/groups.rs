//! `kafka-harbor groups`.

use clap::{Args, Subcommand};
use kafka_harbor::client::MemberName;
use kafka_harbor::record::TopicPartition;
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::{Failure, chain};
use crate::output::Output;
use crate::reset::{self, ResetArgs};
use crate::topics::{all_done, settle};

#[derive(Debug, Args)]
pub(crate) struct GroupsArgs {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List groups, as without a command
    List,
    /// Members of groups and what they are assigned
    Describe {
        #[arg(required = true)]
        groups: Vec<String>,
    },
    /// Delete groups without members, and the offsets they committed
    Delete {
        #[arg(required = true)]
        groups: Vec<String>,
    },
    /// Set where a group goes on
    Reset(ResetArgs),
    /// Take back what a group has committed on topics that it does not read any more
    Forget {
        group: String,
        #[arg(required = true)]
        topics: Vec<String>,
    },
    /// Send members away, as if they left
    Remove {
        group: String,
        /// By member id, repeatable
        #[arg(long = "member", value_name = "ID", required_unless_present = "instances")]
        members: Vec<String>,
        /// By static name, repeatable
        #[arg(long = "instance", value_name = "NAME")]
        instances: Vec<String>,
    },
}

pub(crate) async fn run(args: GroupsArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let admin = connect.client()?.admin().with_timeout(connect.timeout());
    match args.command {
        None | Some(Command::List) => {
            let listing = admin.list_groups().await?;
            let mut rows: Vec<Vec<Value>> = listing
                .groups
                .iter()
                .map(|group| {
                    let kind = group.kind.to_string();
                    vec![json!(group.group), json!(kind), json!(group.state), json!(group.coordinator.0)]
                })
                .collect();
            rows.sort_by_key(|row| row[0].to_string());
            output.table("group", &["group", "kind", "state", "coordinator"], &rows)?;
            all_done(listing.unreachable.iter().map(|(node, error)| format!("node {node}: {}", chain(error))).collect())
        }
        Some(Command::Describe { groups }) => {
            let mut failed = Vec::new();
            for (group, description) in admin.describe_groups(&groups).await {
                let description = match description {
                    Ok(description) => description,
                    Err(error) => {
                        failed.push(format!("{group}: {}", chain(&error)));
                        continue;
                    }
                };
                let fields = json!({
                    "group": group, "state": description.state, "assignor": description.assignor,
                    "coordinator": description.coordinator.0, "members": description.members.len(),
                });
                output.event("group", fields, || {
                    let members = description.members.len();
                    Some(format!("{group}  {}  {}  {members} member(s)", description.state, description.assignor))
                })?;
                let rows: Vec<Vec<Value>> = description
                    .members
                    .iter()
                    .map(|member| {
                        let assigned: Vec<String> = member.assigned.iter().map(ToString::to_string).collect();
                        let assigned = if output.is_json() { json!(assigned) } else { json!(assigned.join(" ")) };
                        vec![
                            json!(group),
                            json!(member.member_id),
                            json!(member.client_id),
                            json!(member.client_host),
                            assigned,
                        ]
                    })
                    .collect();
                output.table("member", &["group", "member", "client", "host", "assigned"], &rows)?;
            }
            all_done(failed)
        }
        Some(Command::Delete { groups }) => {
            settle(admin.delete_groups(&groups).await, output, "deleted", |()| json!({}))
        }
        Some(Command::Reset(args)) => reset::run(args, &admin, output).await,
        Some(Command::Forget { group, topics }) => {
            let committed = admin.group_offsets(&group, None).await?.into_iter().map(|(partition, _)| partition);
            let of_topics = |partition: &TopicPartition| topics.iter().any(|topic| topic == partition.topic.as_str());
            let partitions: Vec<_> = committed.filter(of_topics).collect();
            if partitions.is_empty() {
                return Err(Failure::refused(format!("group {group} has committed nothing there")));
            }
            let outcomes = admin.delete_group_offsets(&group, &partitions).await;
            let named = outcomes.into_iter().map(|(partition, outcome)| (partition.to_string(), outcome)).collect();
            settle(named, output, "forgotten", |()| json!({}))
        }
        Some(Command::Remove { group, members, instances }) => {
            let members = members.into_iter().map(MemberName::Id);
            let members: Vec<_> = members.chain(instances.into_iter().map(MemberName::Instance)).collect();
            let outcomes = admin.remove_members(&group, &members, "removed by an operator").await;
            let named = outcomes.into_iter().map(|(member, outcome)| (member.to_string(), outcome)).collect();
            settle(named, output, "removed", |()| json!({}))
        }
    }
}
