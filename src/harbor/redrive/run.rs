//! One run of a redrive: the loop from the group's events to the end.
//!
//! ```text
//!   events ─► Run ─┬─► queue of partition 0 ─► Lane at work ──┐
//!                  ├─► queue of partition 1 ─► Lane at work ──┼─► Finished ─► the next batch, or nothing more
//!                  └─► queue of partition 2   (waits: `parallel` are at work)
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::adapter::{
    AdapterError, AdapterErrorKind, Assigned, Assignment, CommittedOffset, Event, EventSource, JoinOptions, Membership,
    MembershipHandle, PartitionBatch, Publisher, Release, ResumeFrom, Start, TopicSubscription,
};
use crate::harbor::cancel::CancelSignal;
use crate::harbor::core::Core;
use crate::harbor::correlation::uuid_v4;
use crate::harbor::error::HarborError;
use crate::harbor::redrive::lane::{Finished, Lane, Then};
use crate::harbor::redrive::leaving::LeaveOnDrop;
use crate::harbor::redrive::place::Place;
use crate::harbor::redrive::range::Ends;
use crate::harbor::redrive::work::Work;
use crate::harbor::redrive::{Plan, RedriveError, RedriveReport};
use crate::observe::ErrorScope;
use crate::record::{Offset, TopicPartition};

/// A run under way.
pub(super) struct Run {
    work: Arc<Work>,
    /// Where the partitions ended when it began, if it has to know.
    ends: Option<Ends>,
    /// Where the group stood, if it is not the one that reads.
    stood: HashMap<TopicPartition, CommittedOffset>,
    parts: HashMap<Assigned, Part>,
    /// Those that have a batch and are not at work, the one that waits longest first.
    ready: VecDeque<Assigned>,
    tasks: JoinSet<Finished>,
    /// Revocations that wait for partitions at work.
    releases: Vec<(Vec<Assigned>, Release)>,
    /// When it ends if nothing comes.
    deadline: Instant,
    was_assigned: bool,
    /// The last that the membership complained of.
    fault: Option<HarborError>,
    /// Nothing new is begun; with why, if it failed.
    ending: Option<Result<(), HarborError>>,
}

/// A partition of this member.
struct Part {
    /// `None` while it is at work.
    place: Option<Place>,
    read: Offset,
    end: Option<Offset>,
    queue: VecDeque<PartitionBatch>,
    stop: CancelSignal,
    /// Nothing is left there for this run.
    through: bool,
    /// It is to go as soon as it is not at work.
    going: bool,
}

impl Run {
    pub(super) fn new(core: Arc<Core>, publisher: Arc<dyn Publisher>, plan: Plan) -> Self {
        // Who only looks must not take partitions from a run that is at work.
        let group = if plan.dry_run { format!("{}-dry-run-{}", plan.group, uuid_v4()) } else { plan.group.clone() };
        Self {
            ends: None,
            stood: HashMap::new(),
            parts: HashMap::new(),
            ready: VecDeque::new(),
            tasks: JoinSet::new(),
            releases: Vec::new(),
            deadline: Instant::now() + plan.assignment_timeout,
            was_assigned: false,
            fault: None,
            ending: None,
            work: Arc::new(Work::new(core, publisher, plan, group)),
        }
    }

    /// Runs, and leaves the group whatever happened.
    pub(super) async fn through(mut self) -> Result<RedriveReport, RedriveError> {
        let outcome = self.join_and_drive().await;
        self.work.progress(true);
        let report = self.work.report().clone().at_the_end(self.work.core.clock.now());
        outcome.map(|()| report.clone()).map_err(|source| RedriveError { report, source })
    }

    async fn join_and_drive(&mut self) -> Result<(), HarborError> {
        let work = self.work.clone();
        let joined = tokio::select! {
            biased;
            () = work.plan.cancel.cancelled() => None,
            () = work.core.closing() => None,
            joined = self.join() => Some(joined?),
        };
        // A join that comes late leaves by itself.
        let Some(Membership { mut events, handle }) = joined else {
            self.cancelled();
            return Ok(());
        };
        let leaving = LeaveOnDrop(Some(handle.clone()));
        let result = self.drive(&mut *events, &handle).await;
        leaving.now().await;
        result
    }

    async fn join(&mut self) -> Result<Membership, HarborError> {
        let Work { core, plan, group, .. } = &*self.work;
        let topics = std::slice::from_ref(&plan.from);
        if plan.only_present || plan.dry_run || plan.selection.needs_offsets() {
            let watermarks = core.adapter.watermarks(topics).await?;
            let ends: Ends = watermarks.into_iter().map(|found| (found.partition.clone(), found)).collect();
            plan.selection.check_partitions(&plan.from, &ends)?;
            self.ends = Some(ends);
        }
        if plan.dry_run {
            let stood = core.adapter.committed(&plan.group, topics).await?;
            self.stood = stood.into_iter().map(|found| (found.partition.clone(), found)).collect();
        }
        let subscription = TopicSubscription { topic: plan.from.clone(), start: Start::Earliest };
        Ok(core.adapter.join(JoinOptions::new(group.clone(), vec![subscription])).await?)
    }

    async fn drive(
        &mut self,
        events: &mut dyn EventSource,
        handle: &Arc<dyn MembershipHandle>,
    ) -> Result<(), HarborError> {
        let work = self.work.clone();
        loop {
            self.begin_work(handle);
            if self.tasks.is_empty() {
                if let Some(outcome) = self.ending.take() {
                    return outcome;
                }
                if self.is_through() {
                    return Ok(());
                }
            }
            let (idle, open) = (self.tasks.is_empty(), self.ending.is_none());
            tokio::select! {
                biased;
                () = work.plan.cancel.cancelled(), if open => self.cancelled(),
                () = work.core.closing(), if open => self.cancelled(),
                Some(finished) = self.tasks.join_next(), if !idle => self.finished(finished),
                event = events.next(), if open => self.told(event, handle),
                () = sleep_until(self.deadline), if idle => return self.nothing_came(),
            }
        }
    }

    fn told(&mut self, event: Option<Event>, handle: &Arc<dyn MembershipHandle>) {
        match event {
            // While others have all partitions, nothing is assigned; that is not the assignment that is waited for.
            Some(Event::Assigned(assignments)) if assignments.is_empty() => {}
            Some(Event::Assigned(assignments)) => {
                self.assigned(assignments, &**handle);
                self.active();
            }
            Some(Event::Batch(batch)) => {
                self.came(batch);
                self.active();
            }
            Some(Event::Revoked(gone, release)) => {
                self.forget(&gone);
                self.releases.push((gone, release));
                self.let_go();
            }
            Some(Event::Lost(gone)) => self.forget(&gone),
            // Of an adapter that declares to keep positions. Nobody settles these, so they are delivered again.
            Some(Event::Delivered(batch)) => tracing::error!(?batch, "the adapter delivers records one by one"),
            Some(Event::Fault(error)) => self.faulted(error),
            None => {
                let error = self.fault.take().unwrap_or(HarborError::Closed { what: "the membership" });
                self.end(Err(error));
            }
        }
    }

    /// Whether there is nothing left to wait for.
    fn is_through(&self) -> bool {
        self.work.has_enough() || (!self.parts.is_empty() && self.parts.values().all(|part| part.through))
    }

    fn assigned(&mut self, assignments: Vec<Assignment>, handle: &dyn MembershipHandle) {
        self.was_assigned = true;
        for assignment in assignments {
            let assigned = assignment.assigned.clone();
            let part = self.part(assignment, handle);
            if part.through {
                handle.pause(&assigned);
            }
            self.parts.insert(assigned, part);
        }
    }

    /// Where the run begins and ends on a partition.
    fn part(&self, assignment: Assignment, handle: &dyn MembershipHandle) -> Part {
        let plan = &self.work.plan;
        let Assignment { assigned, committed, position: begun, mut note } = assignment;
        let mut position = begun;
        let known = self.ends.as_ref().and_then(|ends| ends.get(&assigned.partition));
        let mut since = committed;
        if plan.dry_run {
            let stood = self.stood.get(&assigned.partition);
            since = stood.map(|stood| stood.offset);
            note = stood.and_then(|stood| stood.note.clone());
            let within = |offset: &Offset| known.is_some_and(|known| (known.low..=known.high).contains(offset));
            position = since.filter(within).unwrap_or(position);
        }
        // Beside a commit behind the end, as of a topic that was made anew, a note speaks of other letters.
        let place = Place::new(position, note.as_deref().filter(|_| since.is_some_and(|since| since <= position)));
        let mut read = place.next();
        // A place that does not exist would be out of range, and reading begin anew.
        let first = plan.selection.first();
        if first > read && known.is_some_and(|known| first <= known.high) {
            read = first;
        }
        if read != begun {
            handle.resume(&assigned, ResumeFrom::Offset(read));
        }
        // A partition that was not there when the run began, or had no leader, is left alone.
        let present = (plan.only_present || plan.dry_run).then(|| known.map_or(Offset(0), |known| known.high));
        let end = [plan.selection.end(), present].into_iter().flatten().min();
        let through = !plan.selection.has_partition(assigned.partition.partition) || end.is_some_and(|end| read >= end);
        let (queue, stop) = (VecDeque::new(), CancelSignal::new());
        Part { place: Some(place), read, end, queue, stop, through, going: false }
    }

    fn came(&mut self, batch: PartitionBatch) {
        let Some(part) = self.parts.get_mut(&batch.assigned).filter(|part| !part.through && !part.going) else {
            return;
        };
        let waits = !part.queue.is_empty();
        let assigned = batch.assigned.clone();
        part.queue.push_back(batch);
        if !waits && part.place.is_some() {
            self.ready.push_back(assigned);
        }
    }

    /// Puts partitions to work, as many as may be.
    fn begin_work(&mut self, handle: &Arc<dyn MembershipHandle>) {
        while self.ending.is_none() && self.tasks.len() < self.work.plan.parallel && !self.work.has_enough() {
            let Some(assigned) = self.ready.pop_front() else { return };
            let Some(part) = self.parts.get_mut(&assigned) else { continue };
            let (Some(batch), Some(place)) = (part.queue.pop_front(), part.place.take()) else { continue };
            let lane = Lane {
                work: self.work.clone(),
                handle: handle.clone(),
                assigned,
                place,
                read: part.read,
                end: part.end,
                stop: part.stop.clone(),
            };
            self.tasks.spawn(lane.batch(batch));
        }
    }

    fn finished(&mut self, finished: Result<Finished, JoinError>) {
        self.active();
        let Finished { assigned, place, read, then } = match finished {
            Ok(finished) => finished,
            Err(error) => return self.end(Err(self.panicked(error))),
        };
        if let Some(part) = self.parts.get_mut(&assigned) {
            (part.place, part.read) = (Some(place), read);
            part.through |= matches!(then, Ok(Then::Through));
            if part.through || part.going {
                part.queue.clear();
            } else if matches!(then, Ok(Then::GoOn)) && !part.queue.is_empty() {
                self.ready.push_back(assigned);
            }
        }
        self.let_go();
        if let Err(error) = then {
            self.end(Err(error));
        }
    }

    fn panicked(&self, error: JoinError) -> HarborError {
        let what = format_args!("redriving {}: {error}", self.work.plan.from);
        AdapterError::new(self.work.core.adapter.name(), AdapterErrorKind::Panicked, what).into()
    }

    fn active(&mut self) {
        self.deadline = Instant::now() + self.work.plan.idle_timeout;
    }

    /// Partitions are to go, or gone.
    fn forget(&mut self, gone: &[Assigned]) {
        for assigned in gone {
            if let Some(part) = self.parts.get_mut(assigned) {
                part.going = true;
                part.stop.cancel();
                part.queue.clear();
            }
            self.ready.retain(|ready| ready != assigned);
        }
        self.let_go();
    }

    /// Lets partitions go that are not at work any more.
    fn let_go(&mut self) {
        self.parts.retain(|_, part| !part.going || part.place.is_none());
        for (gone, release) in std::mem::take(&mut self.releases) {
            if gone.iter().any(|assigned| self.parts.contains_key(assigned)) {
                self.releases.push((gone, release));
            } else {
                release.send();
            }
        }
    }

    fn cancelled(&mut self) {
        self.work.report().cancelled = true;
        self.end(Ok(()));
    }

    /// Begins nothing new, and waits for what is at work. The first reason counts.
    fn end(&mut self, why: Result<(), HarborError>) {
        self.parts.values().for_each(|part| part.stop.cancel());
        self.ready.clear();
        self.ending.get_or_insert(why);
    }

    fn nothing_came(&mut self) -> Result<(), HarborError> {
        if self.was_assigned {
            return Ok(());
        }
        let Work { core, plan, .. } = &*self.work;
        let waited = plan.assignment_timeout;
        let what = format_args!(
            "group {} was given no partition of {} within {waited:?}; another redrive may have them all",
            self.work.group, plan.from
        );
        Err(AdapterError::new(core.adapter.name(), AdapterErrorKind::Unavailable, what).into())
    }

    fn faulted(&mut self, error: AdapterError) {
        let error = HarborError::from(error);
        self.work.report_error(&error, ErrorScope::Adapter);
        self.fault = Some(error);
    }
}
