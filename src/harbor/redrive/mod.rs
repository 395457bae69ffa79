//! Bringing dead letters back.
//!
//! ```text
//!   orders-dlq ──► filter ──┬─ yes ──► written to where it was first, acknowledged ──┐
//!   (group orders-dlq-redrive)                                                       ├──► committed
//!                           └─ no: skipped ──────────────────────────────────────────┘
//! ```
//!
//! A run ends when nothing came for a while, and the next one goes on where it stood: its group keeps the place. What it
//! could not bring back it leaves uncommitted. A letter that this very run brought back and that failed again is left
//! for the next run, so a run ends even where its letters keep failing.
//!
//! A run over a range of offsets or times leaves the letters outside of it, also for later runs: what it has done above the
//! first that is left stands in a note beside the group's commit. A crash repeats what was not committed, at most a hundred
//! letters in each partition at work, and loses nothing.

mod filter;
mod lane;
mod leaving;
mod pace;
mod place;
mod range;
mod report;
mod run;
mod taking;
mod undo;
mod work;

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::adapter::PublisherOptions;
use crate::harbor::cancel::CancelSignal;
use crate::harbor::core::Core;
use crate::harbor::duration::IntoPeriod;
use crate::harbor::error::{HarborError, Problems};
use crate::harbor::headers::RetryBlock;
use crate::harbor::serializer::Deserializer;
use crate::harbor::{Harbor, Json};
use crate::record::{Header, Offset, Timestamp, Topic, TopicPartition};

use filter::Filter;
pub use filter::IntoVerdict;
use pace::Rate;
use range::Selection;
pub use report::{RedriveError, RedriveReason, RedriveReport};
pub use undo::{UndoError, UndoLeft, UndoObstacle, UndoRedrive, UndoReport};

/// A redrive to be made: what is brought back, and where to. Made by [`Harbor::redrive`].
///
/// # Examples
/// ```
/// use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
/// use kafka_harbor::harbor::{DeadLetter, Harbor};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
/// let broker = MemoryBroker::new();
/// broker.create_topic("orders-dlq", 1)?;
/// let harbor = Harbor::builder("orders-service", MemoryAdapter::new(&broker)).build()?;
/// let report = harbor
///     .redrive("orders-dlq")
///     .filter(|letter: &DeadLetter| letter.retry.as_ref().is_some_and(|retry| retry.last_error.contains("timed out")))
///     .max(1_000)
///     .run()
///     .await?;
/// println!("{} brought back, {} skipped", report.reprocessed, report.skipped);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a redrive does nothing until `run`"]
pub struct Redrive<S = Json> {
    core: Arc<Core>,
    serializer: Arc<S>,
    plan: Plan,
    problems: Problems,
}

/// What a run works by.
pub(super) struct Plan {
    from: Topic,
    to: Option<Topic>,
    group: String,
    max: Option<u64>,
    idle_timeout: Duration,
    assignment_timeout: Duration,
    only_present: bool,
    selection: Selection,
    rate: Option<Rate>,
    parallel: usize,
    max_redrives: u32,
    dry_run: bool,
    filter: Filter,
    cancel: CancelSignal,
}

impl<S: Send + Sync + 'static> Harbor<S> {
    /// Begins a redrive of this dead-letter topic.
    pub fn redrive(&self, from: impl Into<Topic>) -> Redrive<S> {
        let from = from.into();
        let plan = Plan {
            group: format!("{from}-redrive"),
            from,
            to: None,
            max: None,
            idle_timeout: Duration::from_secs(5),
            assignment_timeout: Duration::from_secs(120),
            only_present: false,
            selection: Selection::default(),
            rate: None,
            parallel: PARALLEL,
            max_redrives: MAX_REDRIVES,
            dry_run: false,
            filter: Filter::default(),
            cancel: CancelSignal::new(),
        };
        Redrive { core: self.core.clone(), serializer: self.serializer.clone(), plan, problems: Problems::default() }
    }
}

impl<S: Send + Sync + 'static> Redrive<S> {
    /// Brings everything back to this topic. Default: each letter to the topic that its `original-topic` header names.
    pub fn to(mut self, topic: impl Into<Topic>) -> Self {
        self.plan.to = Some(topic.into());
        self
    }

    /// The group that keeps the place. Default: `<from>-redrive`.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.plan.group = group.into();
        self
    }

    /// Ends after this many letters, skipped and [exhausted](RedriveReport::exhausted) ones among them; at least 1. Default: no
    /// end.
    pub fn max(mut self, letters: u64) -> Self {
        self.plan.max = Some(letters);
        self
    }

    /// Ends when nothing came for so long. Default: 5 seconds. The time counts from when the group has assigned
    /// partitions and they are positioned, and anew from each letter.
    pub fn idle_timeout(mut self, timeout: impl IntoPeriod) -> Self {
        self.plan.idle_timeout = self.problems.period("idle_timeout", timeout);
        if self.plan.idle_timeout.is_zero() {
            self.problems.add("idle_timeout", "must be longer than nothing");
        }
        self
    }

    /// The longest wait for the group's first assignment. Default: 2 minutes. It is not given while another member
    /// holds up the group's rebalance, or while other redrives have all partitions.
    pub fn assignment_timeout(mut self, timeout: impl IntoPeriod) -> Self {
        self.plan.assignment_timeout = self.problems.period("assignment_timeout", timeout);
        self
    }

    /// Takes only what is there when the run begins, and ends as soon as that is done, without waiting for more.
    /// Default: false, what arrives meanwhile is brought back too. Needs a broker that keeps offsets.
    pub fn only_present(mut self, only_present: bool) -> Self {
        self.plan.only_present = only_present;
        self
    }

    /// Only letters of this partition of the dead-letter topic; given again, of these. Default: of all.
    pub fn partition(mut self, partition: i32) -> Self {
        self.plan.selection.add_partition(partition);
        self
    }

    /// Only letters with these offsets, in each partition. Default: all. The others are left, also for later runs of the
    /// group: a note beside its commit tells what is done. Needs a broker that keeps offsets.
    pub fn offsets(mut self, range: impl RangeBounds<Offset>) -> Self {
        self.plan.selection.set_offsets(range);
        self
    }

    /// Only letters that were set aside within this time, by the broker's record of it. Default: all. The others are left, as
    /// by [`offsets`](Self::offsets).
    ///
    /// All letters from the group's place on are read, as times need not be in order. Where letters within and without the time
    /// alternate more than 64 times in a partition, a group cannot remember which are done: the run ends with an error.
    pub fn times(mut self, range: impl RangeBounds<Timestamp>) -> Self {
        self.plan.selection.set_times(range);
        self
    }

    /// Brings back at most so many letters, at least 1, in so long, evenly: `rate(100, "1s")`. Default: as fast as it goes.
    pub fn rate(mut self, letters: u64, per: impl IntoPeriod) -> Self {
        let per = self.problems.period("rate", per);
        if letters == 0 || per.is_zero() {
            self.problems.add("rate", "must be at least one letter, in more than no time");
        }
        self.plan.rate = Some(Rate { letters, per });
        self
    }

    /// Works on at most so many partitions at once, at least 1. Default: 4. Within a partition the order is kept.
    pub fn parallel(mut self, partitions: usize) -> Self {
        self.plan.parallel = partitions;
        self
    }

    /// Passes letters that were brought back so often before, at least 1. Default: 5. They stay in the topic and are counted as
    /// [exhausted](RedriveReport::exhausted); a run with a higher ceiling, in a group of its own, brings them back.
    ///
    /// Each redrive writes its number in the header `redrive-count`, with the harbor's prefix. The Node package copies it and
    /// counts nothing: a letter that only it brought back counts as brought back once.
    pub fn max_redrives(mut self, redrives: u32) -> Self {
        self.plan.max_redrives = redrives;
        self
    }

    /// Only looks: nothing is written or committed, and the report tells what a run would do with what is there now, with
    /// [why](RedriveReport::reasons) the letters had failed. Default: false.
    ///
    /// It begins where the group stands, and reads in a group of its own that commits nothing, named `<group>-dry-run-` and a
    /// random id: where groups are granted by name, its prefix has to be. Needs a broker that keeps offsets.
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.plan.dry_run = dry_run;
        self
    }

    /// Brings back only the letters for which this is true; the others are skipped and committed. It may answer with a
    /// `bool` or a `Result`; an error, or a panic, ends the run and leaves its letter uncommitted.
    pub fn filter<V, Kind>(mut self, wanted: impl Fn(&DeadLetter) -> V + Send + Sync + 'static) -> Self
    where
        V: IntoVerdict<Kind>,
    {
        self.plan.filter = Filter::new(move |letter| std::future::ready(wanted(&letter).into_verdict()));
        self
    }

    /// The same with a function that waits.
    pub fn filter_async<F, V, Kind>(mut self, wanted: impl Fn(DeadLetter) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = V> + Send + 'static,
        V: IntoVerdict<Kind>,
    {
        self.plan.filter = Filter::new(move |letter| {
            let verdict = wanted(letter);
            async move { verdict.await.into_verdict() }
        });
        self
    }

    /// The same with the payload, as the harbor's serializer reads it: `Option<T>` where letters may be tombstones.
    ///
    /// A letter that cannot be read is reported and skipped, unless the serializer says that trying again may help:
    /// that ends the run, as a failing filter does.
    pub fn filter_payload<T, F, V, Kind>(mut self, wanted: impl Fn(T, DeadLetter) -> F + Send + Sync + 'static) -> Self
    where
        S: Deserializer<T>,
        T: Send + 'static,
        F: Future<Output = V> + Send + 'static,
        V: IntoVerdict<Kind>,
    {
        self.plan.filter = Filter::of_payload(self.serializer.clone(), wanted);
        self
    }

    /// Ends the run early when this fires: the letter at hand is brought back and committed, then the group is left.
    pub fn cancel(mut self, signal: CancelSignal) -> Self {
        self.plan.cancel = signal;
        self
    }

    /// Brings letters back until nothing is left to do.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the group in the background. Letters that were written and not yet committed are
    /// brought back again by the next run.
    ///
    /// # Errors
    /// With what was done before: when the options make no sense, the broker refuses, a filter fails, or a letter does
    /// not say where it was first, or came from the very topic that is redriven. That letter stays uncommitted, so the
    /// next run meets it again: give it a target by [`to`](Self::to).
    pub async fn run(self) -> Result<RedriveReport, RedriveError> {
        let report = RedriveReport::of(&self.plan.from, self.core.clock.now());
        let failed = |source| RedriveError { report: report.clone(), source };
        self.check().map_err(failed)?;
        // A shutdown waits until the group is left.
        let _guest = self.core.guest();
        self.core.connect().await.map_err(failed)?;
        let retry = PublisherOptions::with_retry(self.core.produce_retry.clone());
        let publisher = self.core.adapter.publisher(retry).map_err(|error| failed(error.into()))?;
        run::Run::new(self.core, publisher, self.plan).through().await
    }

    fn check(&self) -> Result<(), HarborError> {
        let mut problems = self.problems.clone();
        let plan = &self.plan;
        problems.require("from", &plan.from);
        problems.require("group", &plan.group);
        if let Some(to) = &plan.to {
            problems.require("to", to);
            if to == &plan.from {
                problems.add("to", "is the topic that is redriven: its letters would never end");
            }
        }
        if plan.max == Some(0) {
            problems.add("max", "must be at least 1");
        }
        if !self.core.adapter.capabilities().settle_by_position {
            let why = format_args!("{} keeps no positions, by which a redrive commits", self.core.adapter.name());
            problems.add("adapter", why);
        }
        for (option, count) in [("parallel", plan.parallel), ("max_redrives", plan.max_redrives as usize)] {
            if count == 0 {
                problems.add(option, "must be at least 1");
            }
        }
        plan.selection.check(&mut problems);
        if !self.core.adapter.capabilities().offsets {
            let needs = [
                ("only_present", plan.only_present),
                ("offsets", plan.selection.needs_offsets()),
                ("dry_run", plan.dry_run),
            ];
            for (option, _) in needs.into_iter().filter(|(_, needed)| *needed) {
                problems.add(option, format_args!("the {} adapter keeps no offsets", self.core.adapter.name()));
            }
        }
        problems.finish()?;
        self.core.check_open()
    }
}

impl<S> fmt::Debug for Redrive<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redrive")
            .field("from", &self.plan.from)
            .field("to", &self.plan.to)
            .field("group", &self.plan.group)
            .finish_non_exhaustive()
    }
}

/// A dead letter, as a filter sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Where it lies.
    pub partition: TopicPartition,
    /// Its offset there.
    pub offset: Offset,
    /// When it was set aside, by the broker's record.
    pub timestamp: Timestamp,
    /// Its key, or null.
    pub key: Option<Bytes>,
    /// Its value, or null for a tombstone.
    pub value: Option<Bytes>,
    /// Its headers, the harbor's among them.
    pub headers: Vec<Header>,
    /// What it tells of its failures, if that is whole and makes sense.
    pub retry: Option<RetryBlock>,
    /// How often it was brought back before.
    pub redrives: u32,
}

impl DeadLetter {
    /// The last value under this name, if there is one and it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().rev().find(|header| header.name == name)?;
        std::str::from_utf8(header.value.as_ref()?).ok()
    }
}

/// How often a letter is brought back, unless it is said otherwise.
const MAX_REDRIVES: u32 = 5;

/// Partitions at work at once, unless it is said otherwise.
const PARALLEL: usize = 4;
