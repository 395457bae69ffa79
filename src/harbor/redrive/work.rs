//! What all partitions of a run share: its plan, its counters, and whom it tells.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::adapter::Publisher;
use crate::harbor::core::Core;
use crate::harbor::error::HarborError;
use crate::harbor::redrive::Plan;
use crate::harbor::redrive::pace::Pace;
use crate::harbor::redrive::report::RedriveReport;
use crate::observe::{ErrorInfo, ErrorReported, ErrorScope, RedriveProgress};
use crate::record::Timestamp;

/// What all partitions of a run share.
pub(super) struct Work {
    pub(super) core: Arc<Core>,
    pub(super) plan: Plan,
    /// The group that reads.
    pub(super) group: String,
    pub(super) publisher: Arc<dyn Publisher>,
    pub(super) pace: Pace,
    /// When the run began.
    pub(super) began: Timestamp,
    /// Letters that `max` counts, those at hand among them.
    taken: AtomicU64,
    report: Mutex<RedriveReport>,
    started: Instant,
    told: Mutex<Instant>,
}

impl Work {
    pub(super) fn new(core: Arc<Core>, publisher: Arc<dyn Publisher>, plan: Plan, group: String) -> Self {
        let began = core.clock.now();
        let mut report = RedriveReport::of(&plan.from, began);
        report.dry_run = plan.dry_run;
        let now = Instant::now();
        Self {
            publisher,
            pace: Pace::new(plan.rate),
            began,
            taken: AtomicU64::new(0),
            report: Mutex::new(report),
            started: now,
            told: Mutex::new(now),
            core,
            plan,
            group,
        }
    }

    pub(super) fn report(&self) -> MutexGuard<'_, RedriveReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether as many letters are done, or at hand, as are wanted.
    pub(super) fn has_enough(&self) -> bool {
        self.plan.max.is_some_and(|max| self.taken.load(Ordering::Relaxed) >= max)
    }

    /// Counts a letter to be brought back or passed; `false` if there are enough.
    pub(super) fn takes_one(&self) -> bool {
        let max = self.plan.max.unwrap_or(u64::MAX);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < max).then(|| taken + 1)).is_ok()
    }

    pub(super) fn give_back(&self, letters: u64) {
        self.taken.fetch_sub(letters, Ordering::Relaxed);
    }

    /// Tells how far the run is, if it was not told within the last second.
    pub(super) fn progress(&self, at_last: bool) {
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if !at_last && told.elapsed() < PROGRESS_EVERY {
                return;
            }
            *told = Instant::now();
        }
        let report = self.report().clone();
        self.core.observers.redrive_progress(&RedriveProgress {
            from: &report.from,
            group: &self.plan.group,
            reprocessed: report.reprocessed,
            skipped: report.skipped,
            exhausted: report.exhausted,
            elapsed: self.started.elapsed(),
            done: at_last,
        });
    }

    pub(super) fn report_error(&self, error: &HarborError, scope: ErrorScope) {
        let text = error.text();
        self.tell_error(error.told(&text), scope);
    }

    pub(super) fn tell_error(&self, error: ErrorInfo<'_>, scope: ErrorScope) {
        let (group, topic) = (Some(self.group.as_str()), Some(&self.plan.from));
        self.core.observers.error(&ErrorReported { error, scope, group, topic });
    }
}

/// How often it is told how far a run is.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
