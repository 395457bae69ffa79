//! `kafka-harbor redrive`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use kafka_harbor::harbor::{CancelSignal, DeadLetter, Harbor, Raw};
use kafka_harbor::observe::{ErrorReported, MessageRedriven, Observer};
use serde_json::json;

use crate::connect::ConnectArgs;
use crate::failure::{Failure, chain};
use crate::interrupt::interrupt;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct RedriveArgs {
    /// The dead-letter topic
    #[arg(long)]
    from: String,
    /// Bring everything to this topic; else each record to the one that its header names
    #[arg(long)]
    to: Option<String>,
    /// The group that keeps the place; else FROM-redrive
    #[arg(long)]
    group: Option<String>,
    /// End after this many records, skipped ones among them
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// End when nothing came for so long: 500ms, 5s, 1m
    #[arg(long, default_value = "5s", value_name = "DURATION")]
    idle_timeout: String,
    /// End when all that is there now is done, without waiting for more
    #[arg(long)]
    only_present: bool,
    /// Only records whose last error contains this text; the others are skipped and committed
    #[arg(long, value_name = "TEXT")]
    last_error: Option<String>,
    /// Prefix of the harbor's headers
    #[arg(long, default_value = "x-")]
    header_prefix: String,
}

pub(crate) async fn run(args: RedriveArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let (adapter, client_id) = connect.adapter()?;
    let adapter = adapter.build().map_err(|error| Failure::usage(chain(&error)))?;
    let told = Arc::new(Told { output, redriven: AtomicU64::new(0), begin: Instant::now() });
    let harbor = Harbor::builder(&client_id, adapter)
        .serializer(Raw)
        .header_prefix(&args.header_prefix)
        .observer(told.clone())
        .build()
        .map_err(|error| Failure::usage(chain(&error)))?;

    let cancel = CancelSignal::new();
    let mut redrive = harbor
        .redrive(args.from.as_str())
        .idle_timeout(args.idle_timeout.as_str())
        .only_present(args.only_present)
        .cancel(cancel.clone());
    if let Some(to) = args.to {
        redrive = redrive.to(to);
    }
    if let Some(group) = args.group {
        redrive = redrive.group(group);
    }
    if let Some(max) = args.max {
        redrive = redrive.max(max);
    }
    if let Some(text) = args.last_error {
        redrive = redrive.filter(move |letter: &DeadLetter| {
            letter.retry.as_ref().is_some_and(|retry| retry.last_error.contains(&text))
        });
    }

    let mut signals = interrupt()?;
    let mut run = std::pin::pin!(redrive.run());
    let outcome = tokio::select! {
        outcome = &mut run => outcome,
        _ = signals.next() => {
            cancel.cancel();
            run.await
        }
    };
    if let Err(error) = harbor.shutdown(SHUTDOWN_WITHIN).await {
        output.progress(|| format!("kafka-harbor: {}", chain(&error)));
    }
    let (report, failure) = match outcome {
        Ok(report) => (report, None),
        Err(error) => {
            let text = chain(&error.source);
            (error.report, Some(text))
        }
    };
    let reason = if report.cancelled { "cancelled" } else { "redriven" };
    let fields =
        json!({ "reason": reason, "from": args.from, "reprocessed": report.reprocessed, "skipped": report.skipped });
    output
        .event("done", fields, || Some(format!("{} brought back, {} skipped", report.reprocessed, report.skipped)))?;
    failure.map_or(Ok(()), |text| Err(Failure::refused(text)))
}

/// Tells of each record, and how far the run has come.
struct Told {
    output: Output,
    redriven: AtomicU64,
    begin: Instant,
}

impl Observer for Told {
    fn message_redriven(&self, event: &MessageRedriven<'_>) {
        let fields = json!({
            "from": event.from.as_str(), "to": event.to.as_str(), "partition": event.partition,
            "offset": event.offset.to_string(), "groupId": event.group, "correlationId": event.correlation_id,
        });
        // Nobody reads any more: the run ends by the signal, not by this.
        let _ = self.output.event("redriven", fields, || None);
        let count = self.redriven.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_multiple_of(PROGRESS_EVERY) {
            self.output.progress(|| format!("{count} brought back in {:.0?}", self.begin.elapsed()));
        }
    }

    fn error(&self, event: &ErrorReported<'_>) {
        let fields = json!({ "error": event.error.text, "code": event.error.code });
        let _ = self.output.event("error", fields, || None);
        self.output.progress(|| format!("kafka-harbor: {}", event.error.text));
    }
}

const PROGRESS_EVERY: u64 = 1_000;
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(10);
