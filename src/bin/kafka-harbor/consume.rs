//! `kafka-harbor consume`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use kafka_harbor::client::{
    Assigned, Assignment, CommitPosition, Consumer, ConsumerEvent, IsolationLevel, OffsetReset, PartitionBatch,
};
use kafka_harbor::protocol::batch::BatchView;
use kafka_harbor::record::RecordView;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::connect::ConnectArgs;
use crate::failure::{Failure, chain};
use crate::interrupt::{Interrupt, interrupt};
use crate::output::{Output, record, record_text};

#[derive(Debug, Args)]
pub(crate) struct ConsumeArgs {
    /// Topics to read, repeatable
    #[arg(long = "topic", required_unless_present = "matching")]
    topics: Vec<String>,
    /// Read all topics whose whole name matches this regular expression, repeatable
    #[arg(long, value_name = "REGEX")]
    matching: Vec<String>,
    /// But none whose whole name matches this one, repeatable
    #[arg(long, value_name = "REGEX", requires = "matching")]
    except: Vec<String>,
    /// Join this group and commit what was printed; without it nothing is committed
    #[arg(long)]
    group: Option<String>,
    /// Where to begin on a partition that the group has no position on
    #[arg(long, value_enum, default_value_t = Reset::Earliest)]
    reset: Reset,
    /// End after this many records
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// End when nothing came for this long, in milliseconds, counted from the first assignment
    #[arg(long, value_name = "MS")]
    idle: Option<u64>,
    /// End after this long, in milliseconds
    #[arg(long = "for", value_name = "MS")]
    for_ms: Option<u64>,
    /// Join the group, and commit nothing
    #[arg(long)]
    no_commit: bool,
    /// Offer what members on Node can join with
    #[arg(long)]
    interop_node: bool,
    /// The group takes this member for dead after this long without a heartbeat, in milliseconds
    #[arg(long, default_value_t = 45_000, value_name = "MS")]
    session_ms: u64,
    /// Wait this long on each record, in milliseconds
    #[arg(long, value_name = "MS")]
    handler_ms: Option<u64>,
    /// Leave out what aborted transactions wrote and wait for open ones, or print all that is there
    #[arg(long, value_enum, default_value_t = Isolation::ReadCommitted)]
    isolation: Isolation,
}

/// What is seen of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Isolation {
    ReadCommitted,
    ReadUncommitted,
}

impl From<Isolation> for IsolationLevel {
    fn from(isolation: Isolation) -> Self {
        match isolation {
            Isolation::ReadCommitted => Self::ReadCommitted,
            Isolation::ReadUncommitted => Self::ReadUncommitted,
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Reset {
    Earliest,
    Latest,
}

impl From<Reset> for OffsetReset {
    fn from(reset: Reset) -> Self {
        match reset {
            Reset::Earliest => Self::Earliest,
            Reset::Latest => Self::Latest,
        }
    }
}

pub(crate) async fn run(args: ConsumeArgs, connect: &ConnectArgs, output: Output) -> Result<(), Failure> {
    let client = connect.client()?;
    let session = Duration::from_millis(args.session_ms);
    let throw_away = args.group.is_none().then(throw_away_group);
    let mut builder = client
        .consumer(throw_away.as_ref().or(args.group.as_ref()).map(String::as_str).unwrap_or_default())
        .session_timeout(session)
        .heartbeat_interval((session / 3).min(Duration::from_secs(3)))
        .isolation_level(args.isolation.into())
        .interop_node(args.interop_node);
    for topic in &args.topics {
        builder = builder.topic(topic.as_str(), args.reset.into());
    }
    for pattern in &args.matching {
        builder = builder.topic_pattern(pattern, args.reset.into());
    }
    for pattern in &args.except {
        builder = builder.exclude_pattern(pattern);
    }
    let consumer = builder.build()?;
    let mut printer = Printer {
        output,
        commit: args.group.is_some() && !args.no_commit,
        left: args.max,
        idle: args.idle.map(Duration::from_millis),
        handler: args.handler_ms.map(Duration::from_millis),
        last: None,
        end: args.for_ms.map(|ms| Instant::now() + Duration::from_millis(ms)),
        interrupt: interrupt()?,
        ready: false,
        owned: Vec::new(),
    };
    // A member that died holds up a join until its session ends.
    let ended = printer.run(consumer, connect.timeout() + session).await;
    if let Some(group) = throw_away {
        // Left behind it would only be listed until the broker forgets it, so a failure is not told.
        drop(client.admin().with_timeout(connect.timeout()).delete_groups(&[group]).await);
    }
    let reason = ended?;
    output.event("done", json!({ "reason": reason }), || None)?;
    Ok(())
}

/// Prints what a membership brings, until something ends it.
struct Printer {
    output: Output,
    commit: bool,
    left: Option<u64>,
    idle: Option<Duration>,
    handler: Option<Duration>,
    /// When something last came; nothing before the first assignment.
    last: Option<Instant>,
    end: Option<Instant>,
    interrupt: Interrupt,
    ready: bool,
    owned: Vec<Assigned>,
}

impl Printer {
    /// Leaves the group however it ends: a member that only goes away holds the others up for its session.
    async fn run(&mut self, mut consumer: Consumer, limit: Duration) -> Result<&'static str, Failure> {
        let ended = self.print(&mut consumer, limit).await;
        if let Err(error) = consumer.close(CLOSE_WITHIN).await {
            self.error(&chain(&error))?;
        }
        ended
    }

    async fn print(&mut self, consumer: &mut Consumer, limit: Duration) -> Result<&'static str, Failure> {
        let joined = Instant::now() + limit;
        loop {
            let alarm = self.alarm(joined);
            let event = tokio::select! {
                biased;
                name = self.interrupt.next() => return Ok(name),
                () = sleep_until(alarm) => match self.rang() {
                    Some(reason) => return Ok(reason),
                    None => return Err(Failure::unreachable(format!("not joined within {limit:?}"))),
                },
                event = consumer.next() => event,
            };
            match event {
                None => return Err(Failure::refused("the membership ended")),
                Some(ConsumerEvent::Assigned(assignments)) => self.assigned(&assignments)?,
                Some(ConsumerEvent::Revoked(partitions, release)) => {
                    self.gone("revoked", &partitions)?;
                    release.send();
                }
                Some(ConsumerEvent::Lost(partitions)) => self.gone("lost", &partitions)?,
                Some(ConsumerEvent::Fault(error)) => {
                    self.error(&chain(&error))?;
                    if error.is_fatal() {
                        return Err(Failure::refused(chain(&error)));
                    }
                }
                Some(ConsumerEvent::Batch(batch)) => {
                    if let Some(reason) = self.batch(consumer, batch).await? {
                        return Ok(reason);
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Prints the records and commits past those that were printed.
    async fn batch(&mut self, consumer: &Consumer, batch: PartitionBatch) -> Result<Option<&'static str>, Failure> {
        let mut position = batch.from;
        let mut ended = None;
        for view in batch.batches.iter().flat_map(BatchView::records) {
            let view = view.map_err(|error| Failure::of(&error))?;
            if view.offset < batch.from {
                continue;
            }
            self.record(&batch.assigned, &view)?;
            position = view.offset.next();
            if let Some(pause) = self.handler {
                tokio::select! {
                    () = sleep(pause) => {}
                    name = self.interrupt.next() => ended = Some(name),
                }
            }
            if let Some(left) = &mut self.left {
                *left -= 1;
                if *left == 0 {
                    ended = Some("max");
                }
            }
            if ended.is_some() {
                break;
            }
        }
        if ended.is_none() {
            position = batch.next_offset;
        }
        if self.commit && position > batch.from {
            let position = CommitPosition::new(batch.assigned.clone(), position);
            if let Err(error) = consumer.handle().commit(vec![position]).await {
                self.error(&format!("commit: {}", chain(&error)))?;
            }
        }
        Ok(ended)
    }

    fn record(&mut self, assigned: &Assigned, view: &RecordView<'_>) -> Result<(), Failure> {
        self.last = Some(Instant::now());
        let partition = &assigned.partition;
        // Only the form that is printed is made.
        let fields = if self.output.is_json() { record(partition, view) } else { Value::Null };
        Ok(self.output.event("record", fields, || Some(record_text(partition, view)))?)
    }

    fn assigned(&mut self, assignments: &[Assignment]) -> Result<(), Failure> {
        self.last = Some(Instant::now());
        let partitions: Vec<Assigned> = assignments.iter().map(|assignment| assignment.assigned.clone()).collect();
        self.owned.extend(partitions.iter().cloned());
        self.told("assigned", &partitions)?;
        if !self.ready {
            self.ready = true;
            self.output.event("ready", json!({}), || None)?;
        }
        Ok(())
    }

    fn gone(&mut self, event: &str, partitions: &[Assigned]) -> Result<(), Failure> {
        self.owned.retain(|owned| !partitions.contains(owned));
        self.told(event, partitions)
    }

    fn told(&self, event: &str, partitions: &[Assigned]) -> Result<(), Failure> {
        let fields = json!({ "partitions": pairs(partitions), "owned": pairs(&self.owned) });
        self.output.event(event, fields, || None)?;
        self.output.progress(|| {
            let names: Vec<String> = partitions.iter().map(|assigned| assigned.partition.to_string()).collect();
            format!("{event}: {}", names.join(" "))
        });
        Ok(())
    }

    fn error(&self, text: &str) -> Result<(), Failure> {
        self.output.progress(|| format!("kafka-harbor: {text}"));
        Ok(self.output.event("error", json!({ "error": text }), || None)?)
    }

    /// When to look up although nothing came.
    fn alarm(&self, joined: Instant) -> Instant {
        let idle = self.idle.and_then(|idle| Some(self.last? + idle));
        let join = (!self.ready).then_some(joined);
        [idle, join, self.end].into_iter().flatten().min().unwrap_or_else(|| Instant::now() + LOOK_UP)
    }

    /// Why it rang; `None` when the group was not joined in time.
    fn rang(&self) -> Option<&'static str> {
        if self.end.is_some_and(|end| end <= Instant::now()) {
            return Some("for");
        }
        self.ready.then_some("idle")
    }
}

fn pairs(partitions: &[Assigned]) -> Vec<Value> {
    let mut pairs: Vec<_> =
        partitions.iter().map(|assigned| (assigned.partition.topic.as_str(), assigned.partition.partition)).collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|(topic, partition)| json!([topic, partition])).collect()
}

/// A group that nobody else is in, and that the broker forgets: nothing is committed.
pub(crate) fn throw_away_group() -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos());
    format!("kafka-harbor-tool-{}-{nanos}", std::process::id())
}

const CLOSE_WITHIN: Duration = Duration::from_secs(10);
/// No alarm is set: the loop sleeps for so long at a time.
const LOOK_UP: Duration = Duration::from_secs(24 * 60 * 60);
