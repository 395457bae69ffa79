//! `kafka-harbor configs`.

use clap::{Args, Subcommand, ValueEnum};
use kafka_harbor::client::{ConfigChange, ConfigResource, ConfigSource};
use kafka_harbor::record::NodeId;
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::topics::{setting, settle};

#[derive(Debug, Args)]
pub(crate) struct ConfigsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Settings that are given; defaults are left out
    Describe {
        #[command(flatten)]
        of: Resource,
        /// Defaults too
        #[arg(long)]
        all: bool,
    },
    /// Change settings, those alone that are named
    Alter {
        #[command(flatten)]
        of: Resource,
        /// Set a value, repeatable
        #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
        set: Vec<(String, String)>,
        /// Take a value back, repeatable: the default holds
        #[arg(long, value_name = "NAME")]
        delete: Vec<String>,
        /// Add elements to a list, repeatable
        #[arg(long, value_name = "NAME=ELEMENTS", value_parser = setting)]
        append: Vec<(String, String)>,
        /// Take elements out of a list, repeatable
        #[arg(long, value_name = "NAME=ELEMENTS", value_parser = setting)]
        subtract: Vec<(String, String)>,
        /// Have the cluster check it, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// What has settings.
#[derive(Debug, Args)]
struct Resource {
    /// What it is
    kind: Kind,
    /// Its name; of brokers an id, or nothing for what holds for all
    #[arg(required_if_eq_any([("kind", "topic"), ("kind", "group"), ("kind", "metrics"), ("kind", "loggers")]))]
    name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Topic,
    Broker,
    /// What clients are asked to push of their metrics
    Metrics,
    Group,
    /// What a broker logs
    Loggers,
}

pub(crate) async fn run(args: ConfigsArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let admin = connect.client()?.admin().with_timeout(connect.timeout());
    match args.command {
        Command::Describe { of, all } => {
            let (_, described) = admin.describe_configs(&[of.resource()?]).await.remove(0);
            let told = described?.into_iter().filter(|entry| all || entry.source != ConfigSource::Default);
            let rows: Vec<Vec<Value>> = told
                .map(|entry| {
                    let value = if entry.sensitive { json!("(hidden)") } else { json!(entry.value) };
                    let source = format!("{:?}", entry.source);
                    vec![json!(entry.name), value, json!(source), json!(entry.read_only)]
                })
                .collect();
            Ok(output.table("config", &["name", "value", "source", "read_only"], &rows)?)
        }
        Command::Alter { of, set, delete, append, subtract, dry_run } => {
            let mut changes: Vec<ConfigChange> = Vec::new();
            changes.extend(set.into_iter().map(|(name, value)| ConfigChange::set(name, value)));
            changes.extend(delete.into_iter().map(ConfigChange::delete));
            changes.extend(append.into_iter().map(|(name, elements)| ConfigChange::append(name, elements)));
            changes.extend(subtract.into_iter().map(|(name, elements)| ConfigChange::subtract(name, elements)));
            if changes.is_empty() {
                return Err(Failure::usage("change what? give --set, --delete, --append or --subtract"));
            }
            let changes = [(of.resource()?, changes)];
            let outcomes =
                if dry_run { admin.validate_configs(&changes).await } else { admin.alter_configs(&changes).await };
            let named = outcomes.into_iter().map(|(resource, outcome)| (resource.to_string(), outcome)).collect();
            settle(named, output, if dry_run { "valid" } else { "altered" }, |()| json!({}))
        }
    }
}

impl Resource {
    fn resource(&self) -> Result<ConfigResource, Failure> {
        let name = self.name.clone().unwrap_or_default();
        let node = || name.parse().map(NodeId).map_err(|_| Failure::usage(format!("{name} is no broker's id")));
        Ok(match self.kind {
            Kind::Topic => ConfigResource::Topic(name.as_str().into()),
            Kind::Broker if name.is_empty() => ConfigResource::AllBrokers,
            Kind::Broker => ConfigResource::Broker(node()?),
            Kind::Metrics => ConfigResource::ClientMetrics(name),
            Kind::Group => ConfigResource::Group(name),
            Kind::Loggers => ConfigResource::BrokerLogger(node()?),
        })
    }
}
