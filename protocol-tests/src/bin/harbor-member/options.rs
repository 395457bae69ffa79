//! The command line: that of the Node peer's `consume`, and a few options of our own.

use std::path::PathBuf;

/// A service on kafka-harbor, driven by the command line: see scripts/interop/README.md.
#[derive(Debug, clap::Parser)]
#[command(name = "harbor-member")]
pub(crate) enum Command {
    /// Handles the records of some topics as a member of a group, until it is told to end.
    Consume(Consume),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Consume {
    /// Brokers to begin with.
    #[arg(long, env = "KAFKA_TEST_PLAINTEXT", value_delimiter = ',', required = true)]
    pub(crate) brokers: Vec<String>,
    #[arg(long, default_value = "harbor-member")]
    pub(crate) client_id: String,
    #[arg(long)]
    pub(crate) header_prefix: Option<String>,
    #[arg(long, value_delimiter = ',', required = true)]
    pub(crate) topic: Vec<String>,
    #[arg(long)]
    pub(crate) group: String,
    /// Delays of the retry levels.
    #[arg(long, value_delimiter = ',')]
    pub(crate) levels: Vec<String>,
    /// The default; for symmetry.
    #[arg(long)]
    pub(crate) dlq: bool,
    #[arg(long, conflicts_with = "dlq")]
    pub(crate) no_dlq: bool,
    /// Partitions at once, on each level.
    #[arg(long, default_value_t = 1)]
    pub(crate) concurrency: usize,
    /// Makes retry and dead-letter topics.
    #[arg(long)]
    pub(crate) create_topics: bool,
    /// Partitions of the topics that are made; those of the source without.
    #[arg(long)]
    pub(crate) partitions: Option<i32>,
    #[arg(long)]
    pub(crate) from_beginning: bool,
    /// The longest that a delivery may take.
    #[arg(long)]
    pub(crate) max_processing: Option<String>,
    /// Offers what members on Node can join with.
    #[arg(long)]
    pub(crate) interop_node: bool,
    /// Commits each record before the next.
    #[arg(long)]
    pub(crate) commit_each: bool,
    #[arg(long)]
    pub(crate) session_ms: Option<u64>,

    /// Attempts up to this one fail; without, all.
    #[arg(long)]
    pub(crate) fail_first: Option<u32>,
    /// Keys that fail; without, all if `--fail-first` is given.
    #[arg(long)]
    pub(crate) fail_key: Vec<String>,
    /// Keys that fail whatever `--fail-first` says.
    #[arg(long)]
    pub(crate) poison_key: Vec<String>,
    /// `Name:text`.
    #[arg(long, default_value = "HandlerError:asked to fail")]
    pub(crate) fail_error: String,
    /// Failures say that trying again does not help.
    #[arg(long)]
    pub(crate) permanent: bool,
    /// Failures stop the consumer.
    #[arg(long)]
    pub(crate) abort: bool,
    /// How long a delivery takes.
    #[arg(long, default_value_t = 0)]
    pub(crate) handler_ms: u64,

    /// Ends after so many records that were processed or set aside.
    #[arg(long)]
    pub(crate) max: Option<u64>,
    /// Ends after so many milliseconds without an event.
    #[arg(long)]
    pub(crate) idle: Option<u64>,
    /// Ends after so many milliseconds.
    #[arg(long = "for")]
    pub(crate) for_ms: Option<u64>,

    /// Appends what the handler does to this file.
    #[arg(long)]
    pub(crate) ledger: Option<PathBuf>,
    /// No events of single records.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Log lines on stderr.
    #[arg(long)]
    pub(crate) verbose: bool,
}
