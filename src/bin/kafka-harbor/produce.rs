//! `kafka-harbor produce`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use kafka_harbor::client::{Delivery, ProduceError, RecordMetadata};
use kafka_harbor::error::{Blame, WriteOutcome};
use kafka_harbor::protocol::compression::Codec;
use kafka_harbor::record::Record;
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use crate::connect::ConnectArgs;
use crate::failure::{Failure, chain};
use crate::lines::lines;
use crate::output::Output;
use crate::record::RecordArgs;

#[derive(Debug, Args)]
pub(crate) struct ProduceArgs {
    /// Where the records go
    #[arg(long)]
    topic: String,
    #[command(flatten)]
    record: RecordArgs,
    /// Codec of the batches
    #[arg(long, value_enum, default_value_t = Compression::None)]
    compression: Compression,
    /// How long a batch waits for more records, in milliseconds
    #[arg(long, default_value_t = 5, value_name = "MS")]
    linger_ms: u64,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl From<Compression> for Codec {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::None,
            Compression::Gzip => Self::Gzip,
            Compression::Snappy => Self::Snappy,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd,
        }
    }
}

pub(crate) async fn run(args: ProduceArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    if args.record.is_blank() {
        return Err(Failure::usage("nothing to send: give --value, --key (a tombstone) or --stdin"));
    }
    let client = connect.client()?;
    let linger = Duration::from_millis(args.linger_ms);
    let producer = client
        .producer()
        .linger(linger)
        .compression(Codec::from(args.compression))
        .delivery_timeout(connect.timeout() + linger)
        .max_block(connect.timeout())
        .build()?;
    let mut told = Told { topic: &args.topic, output, written: 0, failed: 0, unreachable: false, last: Instant::now() };
    let mut records = Records::of(&args);
    let mut broken = None;
    let mut waiting: VecDeque<Delivery> = VecDeque::new();
    loop {
        let record = match records.next().await {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(error) => {
                broken = Some(error);
                break;
            }
        };
        match producer.enqueue(record).await {
            Ok(delivery) => waiting.push_back(delivery),
            Err(error) => told.failure(&error)?,
        }
        if waiting.len() >= WINDOW
            && let Some(delivery) = waiting.pop_front()
        {
            told.outcome(delivery.await)?;
        }
        told.progress(&args.record);
    }
    for delivery in waiting {
        told.outcome(delivery.await)?;
    }
    let (written, failed) = (told.written, told.failed);
    let unreachable = told.unreachable;
    if let Err(unfinished) = producer.close(connect.timeout()).await {
        return Err(Failure::refused(chain(&unfinished)));
    }
    output.event("done", json!({ "reason": "produced", "written": written, "failed": failed }), || {
        (args.record.stdin || args.record.count > 1).then(|| format!("{written} written, {failed} failed"))
    })?;
    if let Some(error) = broken {
        return Err(Failure::refused(format!("standard input: {error}; {written} records written before")));
    }
    let text = format!("{failed} of {} records not acknowledged", written + failed);
    match (failed, unreachable) {
        (0, _) => Ok(()),
        (_, true) => Err(Failure::unreachable(text)),
        (_, false) => Err(Failure::refused(text)),
    }
}

/// The records that the arguments ask for.
enum Records<'a> {
    Counted { args: &'a ProduceArgs, next: u64 },
    Lines { args: &'a ProduceArgs, lines: Receiver<io::Result<Vec<u8>>> },
}

impl<'a> Records<'a> {
    fn of(args: &'a ProduceArgs) -> Self {
        if args.record.stdin {
            return Self::Lines { args, lines: lines(io::BufReader::new(io::stdin())) };
        }
        Self::Counted { args, next: 0 }
    }

    async fn next(&mut self) -> io::Result<Option<Record>> {
        match self {
            Self::Counted { args, next } if *next < args.record.count => {
                *next += 1;
                Ok(Some(args.record.record(&args.topic, *next - 1)))
            }
            Self::Counted { .. } => Ok(None),
            Self::Lines { args, lines } => {
                let line = lines.recv().await.transpose()?;
                Ok(line.map(|value| args.record.with_value(&args.topic, value)))
            }
        }
    }
}

/// What was said of the records so far.
struct Told<'a> {
    topic: &'a str,
    output: Output,
    written: u64,
    failed: u64,
    unreachable: bool,
    last: Instant,
}

impl Told<'_> {
    fn outcome(&mut self, outcome: Result<RecordMetadata, Arc<ProduceError>>) -> Result<(), Failure> {
        let written = match outcome {
            Ok(written) => written,
            Err(error) => return self.failure(&error),
        };
        self.written += 1;
        let offset = written.offset.map(|offset| offset.to_string());
        let fields = json!({ "topic": self.topic, "partition": written.partition, "offset": offset });
        let text = format!("{}-{} @{}", self.topic, written.partition, offset.as_deref().unwrap_or("?"));
        Ok(self.output.event("produced", fields, || Some(text))?)
    }

    fn failure(&mut self, error: &ProduceError) -> Result<(), Failure> {
        self.failed += 1;
        self.unreachable |= error.blame() == Blame::Network;
        let text = chain(error);
        if !self.output.is_json() {
            eprintln!("kafka-harbor: {text}");
        }
        let possibly_written = error.outcome == WriteOutcome::PossiblyWritten;
        Ok(self.output.event("error", json!({ "error": text, "possiblyWritten": possibly_written }), || None)?)
    }

    fn progress(&mut self, asked: &RecordArgs) {
        if self.last.elapsed() >= Duration::from_secs(1) {
            self.last = Instant::now();
            self.output.progress(|| match asked.stdin {
                true => format!("{} written", self.written),
                false => format!("{} of {} written", self.written, asked.count),
            });
        }
    }
}

/// Deliveries waited for at once.
const WINDOW: usize = 10_000;
