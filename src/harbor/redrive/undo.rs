//! Taking a redrive back.
//!
//! ```text
//!    orders, partition 0
//!    ──────────────┬───────────────────────────────┬──────────────┬────────────►
//!      read by all │ brought back, read by nobody  │ of others    │ brought back
//!    ──────────────┴───────────────────────────────┴──────────────┴────────────►
//!                  ▲  1. copied to the dead letters  ▲              left: it cannot be
//!                  └── 2. every group is moved ──────┘              passed alone
//! ```
//!
//! A broker deletes no single record, so a letter that is only copied back would be handled as well. What can be done is to move the
//! groups behind it. So what is taken back is, on each partition, what comes next for every group that reads the topic, up to
//! the first record that is not the redrive's; and only while none of these groups has a member, since a member may have read
//! further than it has committed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::{AdapterError, GroupPositions};
use crate::harbor::Harbor;
use crate::harbor::cancel::CancelSignal;
use crate::harbor::core::Core;
use crate::harbor::duration::IntoPeriod;
use crate::harbor::error::{HarborError, Problems};
use crate::harbor::redrive::RedriveReport;
use crate::harbor::redrive::range::Span;
use crate::harbor::redrive::taking::Taking;
use crate::record::{Offset, Timestamp, Topic, TopicPartition};

/// A redrive to be taken back. Made by [`Harbor::undo_redrive`].
///
/// On each partition that the redrive wrote to, its letters are copied to the dead-letter topic, acknowledged, and then every group
/// that has a position on the topic is moved behind them. They stay in the log, so a reader that begins anew at the oldest record
/// still meets them. A crash repeats, and loses nothing: a letter may then be among the dead letters twice, or among them and
/// handled.
///
/// **What counts as unread.** A letter at or behind the committed position of every group that has committed anywhere on the topic; a
/// group without a position on this one partition stands at its oldest record. The groups are looked at before each step, and must have
/// no members. What this cannot know: readers that keep their positions elsewhere than at the broker, groups whose positions have
/// expired, share groups without members, what a member handled and died before it could commit, and a group that begins, reads
/// and ends between a look and the step after it.
///
/// **What is left**, and told by [`UndoReport::left`]: letters behind a record of somebody else, letters that some group has still other
/// records to read before, partitions where no group has a position at all, and where a group's position or note is not clear.
///
/// What a letter told of its failures before the redrive is not in its copy. The older letter says it, which lies among
/// the dead letters still, until they are deleted.
#[must_use = "nothing is taken back until `run`"]
pub struct UndoRedrive {
    core: Arc<Core>,
    positions: Arc<dyn GroupPositions>,
    plan: UndoPlan,
    problems: Problems,
}

/// What is taken back, and how.
pub(super) struct UndoPlan {
    pub(super) from: Topic,
    pub(super) topics: BTreeSet<Topic>,
    pub(super) times: Span,
    pub(super) dry_run: bool,
    pub(super) idle_timeout: Duration,
    pub(super) cancel: CancelSignal,
}

impl<S: Send + Sync + 'static> Harbor<S> {
    /// Begins to take back what a redrive of this dead-letter topic wrote, as far as nobody has read it. `positions` is the Kafka
    /// client's `Admin`, or the broker in memory.
    pub fn undo_redrive(&self, from: impl Into<Topic>, positions: impl GroupPositions) -> UndoRedrive {
        let plan = UndoPlan {
            from: from.into(),
            topics: BTreeSet::new(),
            times: Span::default(),
            dry_run: false,
            idle_timeout: Duration::from_secs(30),
            cancel: CancelSignal::new(),
        };
        UndoRedrive { core: self.core.clone(), positions: Arc::new(positions), plan, problems: Problems::default() }
    }
}

impl UndoRedrive {
    /// What this run wrote: its [targets](RedriveReport::targets), at its time.
    pub fn of(mut self, report: &RedriveReport) -> Self {
        self.plan.topics.extend(report.targets.iter().cloned());
        self.times(report.began..=report.ended)
    }

    /// A topic that letters were brought to; again for more. At least one is needed.
    pub fn topic(mut self, topic: impl Into<Topic>) -> Self {
        self.plan.topics.insert(topic.into());
        self
    }

    /// Only letters that were brought back within this time, as their `redriven-at` headers tell. Default: all.
    pub fn times(mut self, range: impl RangeBounds<Timestamp>) -> Self {
        self.plan.times = Span::of(range, |time| time.0);
        self
    }

    /// Only looks: nothing is written or moved. Default: false.
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.plan.dry_run = dry_run;
        self
    }

    /// Gives up when nothing could be read for so long. Default: 30 seconds.
    pub fn idle_timeout(mut self, timeout: impl IntoPeriod) -> Self {
        self.plan.idle_timeout = self.problems.period("idle_timeout", timeout);
        if self.plan.idle_timeout.is_zero() {
            self.problems.add("idle_timeout", "must be longer than nothing");
        }
        self
    }

    /// Ends early when this fires, or the harbor shuts down: the step at hand is done whole.
    pub fn cancel(mut self, signal: CancelSignal) -> Self {
        self.plan.cancel = signal;
        self
    }

    /// Takes back what can be.
    ///
    /// # Cancel safety
    /// Dropping the future leaves each partition as the last step left it, or within one: letters are among the dead letters then,
    /// and not passed by every group.
    ///
    /// # Errors
    /// With what was done before: when options make no sense, the broker refuses, a group is at work
    /// ([`HarborError::StillRead`]), or one could not be moved ([`HarborError::NotPassed`]).
    pub async fn run(self) -> Result<UndoReport, UndoError> {
        let report = UndoReport::of(&self.plan);
        let failed = |source| UndoError { report: report.clone(), source };
        self.check().map_err(failed)?;
        let _guest = self.core.guest();
        self.core.connect().await.map_err(failed)?;
        Taking::new(self.core.clone(), self.positions.clone(), self.plan).map_err(failed)?.through().await
    }

    fn check(&self) -> Result<(), HarborError> {
        let mut problems = self.problems.clone();
        problems.require("from", &self.plan.from);
        if self.plan.topics.is_empty() {
            problems.add("topic", "at least one that letters were brought to");
        }
        if self.plan.topics.contains(&self.plan.from) {
            problems.add("topic", "is the dead-letter topic itself");
        }
        if self.plan.times.is_empty() {
            problems.add("times", "is an empty range");
        }
        if !self.core.adapter.capabilities().offsets {
            problems.add("adapter", format_args!("{} keeps no offsets", self.core.adapter.name()));
        }
        problems.finish()?;
        self.core.check_open()
    }
}

impl fmt::Debug for UndoRedrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndoRedrive")
            .field("from", &self.plan.from)
            .field("topics", &self.plan.topics)
            .finish_non_exhaustive()
    }
}

/// What was taken back, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UndoReport {
    /// The dead-letter topic.
    pub from: Topic,
    /// Letters that are among the dead letters again, and passed by every group.
    pub taken_back: u64,
    /// Partitions where letters may be left, and why.
    pub left: BTreeMap<TopicPartition, UndoLeft>,
    /// Whether it only looked.
    pub dry_run: bool,
    /// Whether it was [told to end](UndoRedrive::cancel), or its harbor shut down, before it was through.
    pub cancelled: bool,
}

impl UndoReport {
    pub(super) fn of(plan: &UndoPlan) -> Self {
        let (from, dry_run) = (plan.from.clone(), plan.dry_run);
        Self { from, taken_back: 0, left: BTreeMap::new(), dry_run, cancelled: false }
    }
}

/// What is left of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UndoLeft {
    /// How many letters of the redrive are unread by some group and not taken back; `None` where they were not counted.
    pub letters: Option<u64>,
    /// Why.
    pub why: UndoObstacle,
}

/// Why letters could not be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UndoObstacle {
    /// Before them lies a record that the redrive did not write, and that is to be read.
    Others {
        /// Its offset.
        offset: Offset,
    },
    /// A group has a record to read that other groups have read already.
    Behind {
        /// The group.
        group: String,
        /// The record's offset.
        offset: Offset,
    },
    /// The partition has no leader now.
    NoLeader,
    /// No group has a position on the topic: whoever reads it first reads them.
    NoGroup,
    /// What a group has committed does not tell what it has read: its place does not exist any more, or a note beside it says
    /// more than is known here.
    Unclear {
        /// The group.
        group: String,
    },
}

impl fmt::Display for UndoObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Others { offset } => write!(f, "the record at {offset} is not of the redrive, and to be read first"),
            Self::Behind { group, offset } => {
                write!(f, "group {group} has still to read the record at {offset}, which others have read")
            }
            Self::NoLeader => f.write_str("it has no leader"),
            Self::NoGroup => f.write_str("no group has a position on the topic, so none can be moved"),
            Self::Unclear { group } => write!(f, "it is not clear what group {group} has read"),
        }
    }
}

/// Taking a redrive back failed.
#[derive(Debug, thiserror::Error)]
#[error("{} taken back, then: {source}", self.report.taken_back)]
#[non_exhaustive]
pub struct UndoError {
    /// What was done before.
    pub report: UndoReport,
    /// Why it ended.
    pub source: HarborError,
}

impl From<UndoError> for HarborError {
    fn from(error: UndoError) -> Self {
        error.source
    }
}

/// The group was not moved.
pub(super) fn not_passed(group: &str, partition: &TopicPartition, offset: Offset, error: AdapterError) -> HarborError {
    let (group, partition) = (group.to_owned(), partition.clone());
    HarborError::NotPassed { group, partition, offset, source: Box::new(error) }
}
