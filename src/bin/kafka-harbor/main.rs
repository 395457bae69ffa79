//! `kafka-harbor`: the operator's tool. One file a command; [`output`] has the two forms of what is printed.

mod connect;
mod consume;
#[cfg(feature = "testing")]
mod dev_broker;
mod door;
mod failure;
mod groups;
mod interrupt;
mod lag;
mod lines;
mod output;
mod produce;
mod properties;
mod record;
mod redrive;
mod topics;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::connect::ConnectArgs;
use self::failure::Failure;
use self::output::Output;

/// Kafka from the command line: topics, groups, lag, records, and what waits in dead-letter topics.
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
    /// List, describe and delete groups
    Groups(groups::GroupsArgs),
    /// How far a group is behind
    Lag(lag::LagArgs),
    /// Send records
    Produce(produce::ProduceArgs),
    /// Print records, as a member of a group or without one
    Consume(consume::ConsumeArgs),
    /// Bring dead letters back to where they came from
    Redrive(redrive::RedriveArgs),
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
        Command::Groups(args) => groups::run(args, &cli.connect, output).await,
        Command::Lag(args) => lag::run(args, &cli.connect, output).await,
        Command::Produce(args) => produce::run(args, &cli.connect, output).await,
        Command::Consume(args) => consume::run(args, &cli.connect, output).await,
        Command::Redrive(args) => redrive::run(args, &cli.connect, output).await,
        #[cfg(feature = "testing")]
        Command::DevBroker(args) => dev_broker::run(args, output).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Two arguments had one name, and the command that had both ended in a panic (seen in debug builds alone).
    #[test]
    fn no_two_arguments_of_a_command_have_one_name() {
        Cli::command().debug_assert();
    }
}
