//! `kafka-harbor topics`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use kafka_harbor::client::{ConfigSource, TopicCreation, TopicDescription};
use kafka_harbor::record::{NewTopic, NodeId, Topic};
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::{Failure, chain};
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct TopicsArgs {
    #[command(subcommand)]
    command: Option<Command>,
    /// List internal topics too
    #[arg(long)]
    internal: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List topics, as without a command
    List,
    /// Create topics; one that exists already is left as it is
    Create {
        #[arg(required = true)]
        topics: Vec<String>,
        /// Partitions of each; else the broker's default
        #[arg(long)]
        partitions: Option<i32>,
        /// Replicas of each partition; else the broker's default
        #[arg(long)]
        replication_factor: Option<i16>,
        /// A setting, repeatable: retention.ms=60000
        #[arg(long = "config", value_name = "NAME=VALUE", value_parser = setting)]
        configs: Vec<(String, String)>,
    },
    /// Partitions and settings of topics
    Describe {
        #[arg(required = true)]
        topics: Vec<String>,
    },
    /// Delete topics and all they hold
    Delete {
        #[arg(required = true)]
        topics: Vec<String>,
    },
}

pub(crate) async fn run(args: TopicsArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let admin = connect.client()?.admin().with_timeout(connect.timeout());
    match args.command {
        None | Some(Command::List) => {
            let mut topics = admin.list_topics().await?;
            topics.retain(|topic| args.internal || !topic.internal);
            topics.sort_by(|a, b| a.topic.cmp(&b.topic));
            let rows: Vec<Vec<Value>> = topics.iter().map(listed).collect();
            output.table("topic", &["topic", "partitions", "replicas", "leaderless"], &rows)?;
            Ok(())
        }
        Some(Command::Create { topics, partitions, replication_factor, configs }) => {
            let configs: BTreeMap<String, String> = configs.into_iter().collect();
            let new: Vec<NewTopic> = topics
                .iter()
                .map(|name| {
                    let mut topic = NewTopic::new(name.as_str());
                    topic.partitions = partitions;
                    topic.replication_factor = replication_factor;
                    topic.configs = configs.clone();
                    topic
                })
                .collect();
            settle(admin.create_topics(&new).await, output, "created", |creation| match creation {
                TopicCreation::Existed => json!({ "existed": true }),
                TopicCreation::Created => json!({ "existed": false }),
            })
        }
        Some(Command::Describe { topics }) => {
            let topics: Vec<Topic> = topics.iter().map(|name| Topic::from(name.as_str())).collect();
            let configs = admin.describe_topic_configs(&topics).await;
            let mut failed = Vec::new();
            for ((topic, description), (_, configs)) in admin.describe_topics(&topics).await.into_iter().zip(configs) {
                match (description, configs) {
                    (Ok(description), Ok(configs)) => {
                        let set = configs.iter().filter(|entry| matches!(entry.source, ConfigSource::Topic));
                        let set: BTreeMap<&str, &str> = set
                            .map(|entry| (entry.name.as_str(), entry.value.as_deref().unwrap_or("(hidden)")))
                            .collect();
                        describe(&description, &set, output)?;
                    }
                    (Err(error), _) | (_, Err(error)) => failed.push(format!("{topic}: {}", chain(&error))),
                }
            }
            all_done(failed)
        }
        Some(Command::Delete { topics }) => {
            let topics: Vec<Topic> = topics.iter().map(|name| Topic::from(name.as_str())).collect();
            settle(admin.delete_topics(&topics).await, output, "deleted", |()| json!({}))
        }
    }
}

fn listed(topic: &TopicDescription) -> Vec<Value> {
    let replicas = topic.partitions.iter().map(|partition| partition.replicas.len()).max().unwrap_or(0);
    let leaderless = topic.partitions.iter().filter(|partition| partition.leader.is_none()).count();
    vec![json!(topic.topic.as_str()), json!(topic.partitions.len()), json!(replicas), json!(leaderless)]
}

fn describe(topic: &TopicDescription, configs: &BTreeMap<&str, &str>, output: Output) -> Result<(), Failure> {
    output.event(
        "topic",
        json!({ "topic": topic.topic.as_str(), "partitions": topic.partitions.len(), "configs": configs }),
        || {
            let configs: Vec<String> = configs.iter().map(|(name, value)| format!("{name}={value}")).collect();
            Some(format!("{}  {}", topic.topic, configs.join(" ")))
        },
    )?;
    let rows: Vec<Vec<Value>> = topic
        .partitions
        .iter()
        .map(|partition| {
            vec![
                json!(topic.topic.as_str()),
                json!(partition.partition),
                partition.leader.map_or(Value::Null, |node| json!(node.0)),
                nodes(&partition.replicas, output),
                nodes(&partition.in_sync, output),
            ]
        })
        .collect();
    Ok(output.table("partition", &["topic", "partition", "leader", "replicas", "in_sync"], &rows)?)
}

fn nodes(nodes: &[NodeId], output: Output) -> Value {
    if output.is_json() {
        return json!(nodes.iter().map(|node| node.0).collect::<Vec<_>>());
    }
    json!(nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

/// Tells each outcome; fails if any failed, after all were told.
pub(crate) fn settle<K: AsRef<str>, T>(
    outcomes: Vec<(K, Result<T, kafka_harbor::client::ClientError>)>,
    output: Output,
    event: &str,
    fields: impl Fn(T) -> Value,
) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for (name, outcome) in outcomes {
        let name = name.as_ref();
        match outcome {
            Ok(done) => {
                let mut object = fields(done);
                object["name"] = json!(name);
                let existed = object["existed"] == json!(true);
                let text = if existed { format!("{name}: exists already") } else { format!("{name}: {event}") };
                output.event(event, object, || Some(text))?;
            }
            Err(error) => failed.push(format!("{name}: {}", chain(&error))),
        }
    }
    all_done(failed)
}

pub(crate) fn all_done(failed: Vec<String>) -> Result<(), Failure> {
    if failed.is_empty() { Ok(()) } else { Err(Failure::refused(failed.join("; "))) }
}

pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("not name=value")?;
    Ok((name.to_owned(), value.to_owned()))
}
