//! `kafka-harbor dev-broker`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kafka_harbor::testing::broker::{DevBroker, Sasl, SaslMechanism};
use serde_json::json;

use crate::failure::Failure;
use crate::interrupt::interrupt;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct DevBrokerArgs {
    /// Nodes, each on a port of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=100))]
    nodes: i32,
    /// The first node's address; each further one has the next port. Port 0 takes free ones
    #[arg(long, default_value = "127.0.0.1:9092")]
    listen: SocketAddr,
    /// Take orders here, one JSON object a line: {"act":"crash","node":2}
    #[arg(long)]
    control: Option<SocketAddr>,
    /// The host that clients are sent to; else the address that is listened on
    #[arg(long)]
    advertised_host: Option<String>,
    /// A topic that is there from the start, repeatable: orders:6
    #[arg(long = "topic", value_name = "NAME[:PARTITIONS]", value_parser = topic)]
    topics: Vec<(String, i32)>,
    /// Create topics that are asked for
    #[arg(long)]
    auto_create_topics: bool,
    /// Ask for logins by this mechanism, repeatable: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
    #[arg(long = "require-sasl", value_name = "MECHANISM", value_parser = mechanism)]
    require_sasl: Vec<SaslMechanism>,
    /// Who may log in by PLAIN and SCRAM: a file with a line NAME=PASSWORD for each
    #[arg(long, value_name = "FILE", requires = "require_sasl")]
    sasl_users: Option<PathBuf>,
    /// Let a login count so long, in milliseconds; then it has to be renewed
    #[arg(long, value_name = "MS", requires = "require_sasl", value_parser = clap::value_parser!(u64).range(1..))]
    sasl_session_ms: Option<u64>,
    /// What every random choice comes from
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Listen on an address that others than this machine reach: they can read, write and delete everything
    #[arg(long)]
    dangerously_beyond_loopback: bool,
}

pub(crate) async fn run(args: DevBrokerArgs, output: Output) -> Result<(), Failure> {
    let mut signals = interrupt()?;
    let mut builder = DevBroker::builder().nodes(args.nodes).seed(args.seed).listen(args.listen);
    builder = builder.settings(|settings| settings.auto_create_topics = args.auto_create_topics);
    if !args.require_sasl.is_empty() {
        let mut sasl = Sasl::new(args.require_sasl);
        for (name, password) in args.sasl_users.as_deref().map(users).transpose()?.into_iter().flatten() {
            sasl = sasl.user(name, password);
        }
        sasl.session = args.sasl_session_ms.map(Duration::from_millis);
        builder = builder.settings(|settings| settings.sasl = Some(sasl));
    }
    for (name, partitions) in args.topics {
        builder = builder.topic(name, partitions);
    }
    if let Some(control) = args.control {
        builder = builder.control(control);
    }
    if let Some(host) = args.advertised_host {
        builder = builder.advertised_host(host);
    }
    if args.dangerously_beyond_loopback {
        builder = builder.dangerously_beyond_loopback();
    }
    let broker = builder.start().await.map_err(|error| Failure::of(&error))?;
    let bootstrap = broker.tcp_bootstrap();
    let control = broker.control_address().map(|address| address.to_string());
    output.event("started", json!({ "bootstrap": bootstrap, "control": control }), || {
        let control = control.as_ref().map(|address| format!(", orders at {address}")).unwrap_or_default();
        Some(format!("brokers at {bootstrap}{control}; nothing is kept, everyone may do everything"))
    })?;
    signals.next().await;
    Ok(())
}

fn mechanism(name: &str) -> Result<SaslMechanism, String> {
    SaslMechanism::from_name(name).ok_or_else(|| format!("{name:?} is no mechanism that there is"))
}

fn users(file: &Path) -> Result<Vec<(String, String)>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    parse_users(&text).map_err(|line| Failure::usage(format!("{}: line {line} is not NAME=PASSWORD", file.display())))
}

/// Users and passwords; the number of a line that is neither, empty nor a comment.
fn parse_users(text: &str) -> Result<Vec<(String, String)>, usize> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let user = |(number, line): (usize, &str)| match line.split_once('=') {
        Some((name, password)) if !name.is_empty() => Ok((name.to_owned(), password.to_owned())),
        _ => Err(number),
    };
    lines.map(user).collect()
}

fn topic(text: &str) -> Result<(String, i32), String> {
    let Some((name, partitions)) = text.split_once(':') else { return Ok((text.to_owned(), 1)) };
    let partitions = partitions.parse().map_err(|_| format!("{partitions:?} is no number of partitions"))?;
    Ok((name.to_owned(), partitions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_lines_and_a_password_may_hold_anything() {
        let users = parse_users("# people\nalice=a=b#c\n\nbob=\n");
        let expected = [("alice", "a=b#c"), ("bob", "")].map(|(name, password)| (name.to_owned(), password.to_owned()));
        assert_eq!(users, Ok(expected.to_vec()));
        assert_eq!(parse_users("alice=a\nbob"), Err(2));
        assert_eq!(parse_users("=a"), Err(1));
    }

    #[test]
    fn a_topic_is_a_name_with_its_partitions_or_one() {
        assert_eq!(topic("orders:6"), Ok(("orders".to_owned(), 6)));
        assert_eq!(topic("orders"), Ok(("orders".to_owned(), 1)));
        assert_eq!(topic("orders:many"), Err("\"many\" is no number of partitions".to_owned()));
    }
}
