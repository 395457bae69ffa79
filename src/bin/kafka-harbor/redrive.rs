//! `kafka-harbor redrive`.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kafka_harbor::harbor::{
    CancelSignal, DeadLetter, Harbor, Period, Raw, Redrive, RedriveReport, UndoError, UndoReport,
};
use kafka_harbor::observe::{ErrorReported, MessageRedriven, Observer, RedriveProgress};
use kafka_harbor::record::{Offset, Timestamp, Topic};
use serde_json::{Value, json};

use crate::connect::ConnectArgs;
use crate::failure::{Failure, chain};
use crate::interrupt::interrupt;
use crate::output::Output;
use crate::when::when;

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
    /// Only this partition of FROM, repeatable; the others are left for later
    #[arg(long = "partition", value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    partitions: Vec<i32>,
    /// Only records at this offset or behind it, in each partition; the others are left for later
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    from_offset: Option<i64>,
    /// Only records before this offset
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(1..))]
    before_offset: Option<i64>,
    /// Only records that were set aside then or later: 2026-12-01T09:30:00Z, milliseconds since 1970, or how long ago (2h)
    #[arg(long, value_name = "INSTANT", value_parser = when)]
    since: Option<Timestamp>,
    /// Only records that were set aside before then
    #[arg(long, value_name = "INSTANT", value_parser = when)]
    until: Option<Timestamp>,
    /// At most so many records in so long: 100 (a second), 5000/1m
    #[arg(long, value_name = "COUNT[/DURATION]", value_parser = rate)]
    rate: Option<(u64, Period)>,
    /// Work on so many partitions at once
    #[arg(long, default_value_t = 4, value_name = "PARTITIONS", value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,
    /// Leave records where they are that were brought back so often before
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max_redrives: u32,
    /// Tell what would be brought back, and why it had failed; write and commit nothing
    #[arg(long)]
    dry_run: bool,
    /// Take back what a redrive wrote to these topics and nobody has read: their groups must have no members, and are moved behind
    /// it. With --since and --until only what was brought back then. See `done` of that redrive for its topics and its time
    #[arg(long, value_name = "TOPIC", conflicts_with_all = NOT_FOR_UNDO)]
    undo: Vec<String>,
    /// Prefix of the harbor's headers
    #[arg(long, default_value = "x-")]
    header_prefix: String,
}

/// What says how letters are brought back, and nothing of how that is undone.
const NOT_FOR_UNDO: [&str; 8] =
    ["to", "group", "max", "only_present", "last_error", "partitions", "from_offset", "before_offset"];

pub(crate) async fn run(args: RedriveArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let (adapter, client_id) = connect.adapter()?;
    let adapter = adapter.build().map_err(|error| Failure::usage(chain(&error)))?;
    let harbor = Harbor::builder(&client_id, adapter)
        .serializer(Raw)
        .header_prefix(&args.header_prefix)
        .observer(Arc::new(Told { output }))
        .build()
        .map_err(|error| Failure::usage(chain(&error)))?;
    if !args.undo.is_empty() {
        let admin = connect.client()?.admin().with_timeout(connect.timeout());
        let mut undo = harbor.undo_redrive(args.from.as_str(), admin).times(range(args.since, args.until));
        let cancel = CancelSignal::new();
        undo = undo.dry_run(args.dry_run).cancel(cancel.clone());
        undo = args.undo.iter().fold(undo, |undo, topic| undo.topic(topic.as_str()));
        let outcome = until_interrupted(undo.run(), &cancel).await?;
        close(&harbor, output).await;
        return tell_undone(outcome, output);
    }

    let cancel = CancelSignal::new();
    let redrive = args.apply(harbor.redrive(args.from.as_str()).cancel(cancel.clone()));
    let outcome = until_interrupted(redrive.run(), &cancel).await?;
    close(&harbor, output).await;
    let (report, failure) = match outcome {
        Ok(report) => (report, None),
        Err(error) => {
            let text = chain(&error.source);
            (error.report, Some(text))
        }
    };
    tell(&report, output)?;
    failure.map_or(Ok(()), |text| Err(Failure::refused(text)))
}

impl RedriveArgs {
    fn apply(&self, mut redrive: Redrive<Raw>) -> Redrive<Raw> {
        let offset = |offset: Option<i64>| offset.map(Offset);
        redrive = redrive
            .idle_timeout(self.idle_timeout.as_str())
            .only_present(self.only_present)
            .offsets(range(offset(self.from_offset), offset(self.before_offset)))
            .times(range(self.since, self.until))
            .parallel(self.parallel.into())
            .max_redrives(self.max_redrives)
            .dry_run(self.dry_run);
        redrive = self.partitions.iter().fold(redrive, |redrive, partition| redrive.partition(*partition));
        if let Some(to) = &self.to {
            redrive = redrive.to(to.as_str());
        }
        if let Some(group) = &self.group {
            redrive = redrive.group(group);
        }
        if let Some(max) = self.max {
            redrive = redrive.max(max);
        }
        if let Some((letters, per)) = self.rate {
            redrive = redrive.rate(letters, per);
        }
        if let Some(text) = self.last_error.clone() {
            redrive = redrive.filter(move |letter: &DeadLetter| {
                letter.retry.as_ref().is_some_and(|retry| retry.last_error.contains(&text))
            });
        }
        redrive
    }
}

/// What a run comes to, which a signal tells to end in order.
async fn until_interrupted<T>(run: impl Future<Output = T>, cancel: &CancelSignal) -> std::io::Result<T> {
    let mut signals = interrupt()?;
    let mut run = std::pin::pin!(run);
    Ok(tokio::select! {
        outcome = &mut run => outcome,
        _ = signals.next() => {
            cancel.cancel();
            run.await
        }
    })
}

async fn close(harbor: &Harbor<Raw>, output: Output) {
    if let Err(error) = harbor.shutdown(SHUTDOWN_WITHIN).await {
        output.progress(|| format!("kafka-harbor: {}", chain(&error)));
    }
}

/// What was taken back, what was not, and why.
fn tell_undone(outcome: Result<UndoReport, UndoError>, output: Output) -> Result<(), Failure> {
    let (report, failure) = match outcome {
        Ok(report) => (report, None),
        Err(error) => {
            let text = chain(&error.source);
            (error.report, Some(text))
        }
    };
    for (partition, left) in &report.left {
        let why = left.why.to_string();
        let fields = json!({
            "topic": partition.topic.as_str(), "partition": partition.partition, "letters": left.letters, "why": why,
        });
        let letters = left.letters.map_or_else(|| "what is there".to_owned(), |letters| format!("{letters} letters"));
        output.event("left", fields, || Some(format!("{partition}: {letters} left: {why}")))?;
    }
    let reason = match (report.dry_run, report.cancelled) {
        (_, true) => "cancelled",
        (true, false) => "dry-run",
        (false, false) => "undone",
    };
    let fields = json!({ "reason": reason, "from": report.from.as_str(), "takenBack": report.taken_back });
    let done = if report.dry_run { "would be taken back" } else { "taken back" };
    output.event("done", fields, || Some(format!("{} {done}", report.taken_back)))?;
    failure.map_or(Ok(()), |text| Err(Failure::refused(text)))
}

/// What was done, or would be, and the reasons.
fn tell(report: &RedriveReport, output: Output) -> Result<(), Failure> {
    let mut rows: Vec<Vec<Value>> =
        report.reasons.iter().map(|reason| vec![json!(reason.reason), json!(reason.letters)]).collect();
    if report.other_reasons > 0 {
        rows.push(vec![Value::Null, json!(report.other_reasons)]);
    }
    if report.dry_run && !rows.is_empty() {
        output.table("reason", &["reason", "letters"], &rows)?;
    }
    let reason = match (report.dry_run, report.cancelled) {
        (_, true) => "cancelled",
        (true, false) => "dry-run",
        (false, false) => "redriven",
    };
    let fields = json!({
        "reason": reason, "from": report.from.as_str(), "reprocessed": report.reprocessed, "skipped": report.skipped,
        "exhausted": report.exhausted, "withoutTarget": report.without_target, "began": report.began.0,
        "ended": report.ended.0, "targets": report.targets.iter().map(Topic::as_str).collect::<Vec<_>>(),
    });
    output.event("done", fields, || Some(summary(report)))?;
    Ok(())
}

fn summary(report: &RedriveReport) -> String {
    let done = if report.dry_run { "would be brought back" } else { "brought back" };
    let mut text = format!("{} {done}, {} skipped", report.reprocessed, report.skipped);
    if report.exhausted > 0 {
        text.push_str(&format!(", {} left: brought back too often before", report.exhausted));
    }
    if report.without_target > 0 {
        text.push_str(&format!(", {} without a target: a run would end there, give --to", report.without_target));
    }
    text
}

fn range<T>(from: Option<T>, to: Option<T>) -> (Bound<T>, Bound<T>) {
    (from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded))
}

/// `COUNT`, a second, or `COUNT/DURATION`.
fn rate(text: &str) -> Result<(u64, Period), String> {
    let (count, per) = text.split_once('/').unwrap_or((text, "1s"));
    let count = count.parse().ok().filter(|count| *count > 0).ok_or("not COUNT or COUNT/DURATION")?;
    let per: Period = per.parse().map_err(|error| format!("{error}"))?;
    if per.as_duration().is_zero() {
        return Err("in no time at all".to_owned());
    }
    Ok((count, per))
}

/// Tells of each record, and how far the run has come.
struct Told {
    output: Output,
}

impl Observer for Told {
    fn message_redriven(&self, event: &MessageRedriven<'_>) {
        let fields = json!({
            "from": event.from.as_str(), "to": event.to.as_str(), "partition": event.partition,
            "offset": event.offset.to_string(), "groupId": event.group, "correlationId": event.correlation_id,
        });
        // Nobody reads any more: the run ends by the signal, not by this.
        let _ = self.output.event("redriven", fields, || None);
    }

    fn redrive_progress(&self, event: &RedriveProgress<'_>) {
        if event.done {
            return;
        }
        let millis = u64::try_from(event.elapsed.as_millis()).unwrap_or(u64::MAX);
        let fields = json!({
            "from": event.from.as_str(), "reprocessed": event.reprocessed, "skipped": event.skipped,
            "exhausted": event.exhausted, "elapsedMs": millis,
        });
        let _ = self.output.event("progress", fields, || None);
        let (back, skipped) = (event.reprocessed, event.skipped);
        self.output.progress(|| format!("{back} brought back, {skipped} skipped in {:.0?}", event.elapsed));
    }

    fn error(&self, event: &ErrorReported<'_>) {
        let fields = json!({ "error": event.error.text, "code": event.error.code });
        let _ = self.output.event("error", fields, || None);
        self.output.progress(|| format!("kafka-harbor: {}", event.error.text));
    }
}

const SHUTDOWN_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_so_many_a_second_or_in_the_time_that_is_told() {
        let read = |text| rate(text).map(|(count, per)| (count, per.as_duration()));
        assert_eq!(read("100"), Ok((100, Duration::from_secs(1))));
        assert_eq!(read("5000/1m"), Ok((5_000, Duration::from_secs(60))));
        for wrong in ["", "0", "x", "1/", "1/0s", "1/5"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
