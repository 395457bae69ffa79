//! `kafka-harbor`: the operator's tool. One file a command; [`output`] has the two forms of what is printed.

mod acls;
mod cluster;
mod configs;
mod connect;
mod consume;
#[cfg(feature = "testing")]
mod dev_broker;
mod dlq;
mod door;
mod failure;
mod groups;
mod interrupt;
mod lag;
mod lines;
mod output;
mod partitions;
mod produce;
mod properties;
mod record;
mod records;
mod redrive;
mod reset;
mod topics;
mod when;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::connect::ConnectArgs;
use self::failure::Failure;
use self::output::Output;

/// Kafka from the command line: topics, groups, lag, records, settings, access, and what waits in dead-letter topics.
///
/// Exit status: 0 done, 1 refused or failed, 2 wrong usage, 3 no broker answered in time.
#[derive(Debug, Parser)]
#[command(name = "kafka-harbor", version, about, long_about, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print JSON, one object a line, instead of text for people
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List, create, describe and delete topics
    Topics(topics::TopicsArgs),
    /// Elect leaders, move partitions, add some
    Partitions(partitions::PartitionsArgs),
    /// Delete records
    Records(records::RecordsArgs),
    /// Settings of topics, brokers, groups
    Configs(configs::ConfigsArgs),
    /// Who may do what
    Acls(acls::AclsArgs),
    /// Brokers, and what lies in their directories
    Cluster(cluster::ClusterArgs),
    /// List, describe, reset and delete groups, send members away
    Groups(groups::GroupsArgs),
    /// How far a group is behind
    Lag(lag::LagArgs),
    /// Send records
    Produce(produce::ProduceArgs),
    /// Print records, as a member of a group or without one
    Consume(consume::ConsumeArgs),
    /// Bring dead letters back to where they came from
    Redrive(redrive::RedriveArgs),
    /// What lies in dead-letter topics: list, show, purge
    Dlq(dlq::DlqArgs),
    /// Run brokers in memory, for tests and demonstrations
    #[cfg(feature = "testing")]
    DevBroker(dev_broker::DevBrokerArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(cli.json);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::from(error).report(output),
    };
    match runtime.block_on(run(cli, output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(output),
    }
}

async fn run(cli: Cli, output: Output) -> Result<(), Failure> {
    match cli.command {
        Command::Topics(args) => topics::run(args, &cli.connect, output).await,
        Command::Partitions(args) => partitions::run(args, &cli.connect, output).await,
        Command::Records(args) => records::run(args, &cli.connect, output).await,
        Command::Configs(args) => configs::run(args, &cli.connect, output).await,
        Command::Acls(args) => acls::run(args, &cli.connect, output).await,
        Command::Cluster(args) => cluster::run(args, &cli.connect, output).await,
        Command::Groups(args) => groups::run(args, &cli.connect, output).await,
        Command::Lag(args) => lag::run(args, &cli.connect, output).await,
        Command::Produce(args) => produce::run(args, &cli.connect, output).await,
        Command::Consume(args) => consume::run(args, &cli.connect, output).await,
        Command::Redrive(args) => redrive::run(args, &cli.connect, output).await,
        Command::Dlq(args) => dlq::run(args, &cli.connect, output).await,
        #[cfg(feature = "testing")]
        Command::DevBroker(args) => dev_broker::run(args, output).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, CommandFactory as _};

    use super::*;

    /// Two arguments had one name, and the commands that had both ended in a panic.
    #[test]
    fn no_two_arguments_of_a_command_have_one_name() {
        let mut cli = Cli::command();
        cli.build();
        cli.clone().debug_assert();
        let everywhere = ConnectArgs::augment_args(clap::Command::new("everywhere"));
        let global: Vec<_> = everywhere.get_arguments().map(|argument| argument.get_id().clone()).collect();
        for command in commands(&cli) {
            for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
                assert!(!global.contains(argument.get_id()), "{} of {}", argument.get_id(), command.get_name());
            }
        }
    }

    fn commands(command: &clap::Command) -> Vec<&clap::Command> {
        let below = command.get_subcommands().flat_map(commands);
        std::iter::once(command).chain(below).collect()
    }
}
