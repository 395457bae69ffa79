//! `kafka-harbor produce`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use kafka_harbor::client::{Delivery, ProduceError, RecordMetadata};
use kafka_harbor::error::{Blame, WriteOutcome};
use kafka_harbor::protocol::compression::Codec;
use serde_json::json;

use crate::connect::ConnectArgs;
use crate::failure::{Failure, chain};
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
    let mut waiting: VecDeque<Delivery> = VecDeque::new();
    for n in 0..args.record.count {
        match producer.enqueue(args.record.record(&args.topic, n)).await {
            Ok(delivery) => waiting.push_back(delivery),
            Err(error) => told.failure(&error)?,
        }
        if waiting.len() >= WINDOW
            && let Some(delivery) = waiting.pop_front()
        {
            told.outcome(delivery.await)?;
        }
        told.progress(args.record.count);
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
        (args.record.count > 1).then(|| format!("{written} written, {failed} failed"))
    })?;
    let text = format!("{failed} of {} records not acknowledged", args.record.count);
    match (failed, unreachable) {
        (0, _) => Ok(()),
        (_, true) => Err(Failure::unreachable(text)),
        (_, false) => Err(Failure::refused(text)),
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

    fn progress(&mut self, count: u64) {
        if self.last.elapsed() >= Duration::from_secs(1) {
            self.last = Instant::now();
            self.output.progress(|| format!("{} of {count} written", self.written));
        }
    }
}

/// Deliveries waited for at once.
const WINDOW: usize = 10_000;
