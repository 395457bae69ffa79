//! A consumer's pipeline: one task that drives a membership, and one a partition at work.
//!
//! ```text
//!   membership events ──► Pipeline ──batches──► Lane ──► Worker ──► handler
//!                            │ ▲                  ▲         │
//!            settle, pause,  │ │ notes            │         ├── finished ──► Lane's ledger
//!            resume, leave ◄─┘ └──────────────────┴─────────┴── hop ───────► publisher
//! ```
//!
//! What is decided is decided by machines without I/O: [`settle`](crate::harbor::settle) says what becomes of a failed
//! delivery, [`DelayQueue`] when a parked partition goes on, [`Committer`] what is committed when. The driver here and
//! the workers carry it out. The driver alone opens and closes lanes, so a timer that fires while its
//! partition goes finds no lane.

mod aside;
mod crossing;
mod deliver;
mod gate;
mod hop;
mod lane;
mod level;
mod note;
mod report;
mod setup;
mod start;
mod worker;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::adapter::{
    Adapter, AdapterError, AdapterErrorKind, Assigned, Assignment, BoxFuture, Event, EventSource, Membership,
    MembershipHandle, PartitionBatch, Position, Release, ResumeFrom, SettleError,
};
use crate::harbor::commit::Committer;
use crate::harbor::delay::DelayQueue;
use crate::harbor::error::HarborError;
use crate::harbor::guard;
use crate::harbor::lifecycle::{Ending, Lifecycle, StopRequest};
use crate::harbor::memo::Memo;
use crate::observe::StopReason;
use crate::record::{Offset, TopicPartition};

use aside::Aside;
pub(crate) use deliver::Subscription;
use lane::{Lane, LaneId, Pushed};
use note::{Note, Stop};
pub(crate) use setup::{Limits, Parts, RetryIf, Setup};
pub(crate) use start::begun_with_by;
use start::{Begin, Findings, Starts, survey};
pub(crate) use worker::Subscriber;
use worker::Worker;

/// Drives one membership until it is asked to stop, or has to.
pub(crate) struct Pipeline {
    setup: Arc<Setup>,
    life: Arc<Lifecycle>,
    adapter: Arc<dyn Adapter>,
    handle: Arc<dyn MembershipHandle>,
    events: Box<dyn EventSource>,
    events_ended: bool,
    /// The last fault of the membership, should it end by it.
    fault: Option<AdapterError>,
    notes: mpsc::UnboundedReceiver<Note>,
    tell: mpsc::UnboundedSender<Note>,
    lanes: HashMap<LaneId, Arc<Lane>>,
    by_partition: HashMap<TopicPartition, LaneId>,
    lanes_so_far: u64,
    /// Lanes whose gate is closed and that are waited for, with the commits of theirs that failed since.
    closing: HashMap<LaneId, u32>,
    /// Partitions that have no lane yet, because it is not decided where they begin.
    starts: Starts,
    survey: Option<BoxFuture<'static, Result<Findings, AdapterError>>>,
    delays: DelayQueue<LaneId>,
    /// Of each level, the lanes that stand aside.
    aside: Vec<Aside<LaneId>>,
    committer: Committer<LaneId>,
    /// Lanes that have something to collect.
    touched: BTreeSet<LaneId>,
    commit: Option<BoxFuture<'static, Result<(), SettleError>>>,
    revocations: Vec<Revocation>,
    stopping: Option<Stopping>,
    /// Whether somebody asked it to stop.
    was_asked: bool,
}

/// A revocation that waits for its lanes.
#[derive(Debug)]
struct Revocation {
    lanes: Vec<LaneId>,
    deadline: Instant,
    release: Release,
}

#[derive(Debug, Clone, Copy)]
struct Stopping {
    began: Instant,
    deadline: Instant,
}

impl Pipeline {
    pub(crate) fn new(
        setup: Arc<Setup>,
        life: Arc<Lifecycle>,
        adapter: Arc<dyn Adapter>,
        membership: Membership,
    ) -> Self {
        let (tell, notes) = mpsc::unbounded_channel();
        Self {
            committer: Committer::new(setup.limits.commit_gap),
            aside: setup.rooms.iter().map(|_| Aside::new()).collect(),
            setup,
            life,
            adapter,
            handle: membership.handle,
            events: membership.events,
            events_ended: false,
            fault: None,
            notes,
            tell,
            lanes: HashMap::new(),
            by_partition: HashMap::new(),
            lanes_so_far: 0,
            closing: HashMap::new(),
            starts: Starts::default(),
            survey: None,
            delays: DelayQueue::new(),
            touched: BTreeSet::new(),
            commit: None,
            revocations: Vec::new(),
            stopping: None,
            was_asked: false,
        }
    }

    /// Runs until everything has stopped and the group was left.
    pub(crate) async fn run(mut self) -> Ending {
        loop {
            let now = Instant::now();
            self.advance(now);
            if let Some(stopping) = self.stopping {
                if self.lanes.is_empty() {
                    return self.leave(0).await;
                }
                if now >= stopping.deadline {
                    let in_flight = self.give_up();
                    return self.leave(in_flight).await;
                }
            }
            let wake = self.next_wake();
            tokio::select! {
                biased;
                request = self.life.asked_to_stop(), if !self.was_asked => self.asked_to_stop(request),
                result = ended(&mut self.commit) => self.commit_ended(result),
                result = ended(&mut self.survey) => self.survey_ended(result),
                note = self.notes.recv() => self.take_notes(note),
                event = self.events.next(), if !self.events_ended => self.take_event(event),
                () = until(wake) => {}
            }
        }
    }

    /// Does what is due: parked partitions go on, quiet lanes that close go, a commit starts.
    fn advance(&mut self, now: Instant) {
        while let Some((id, offset)) = self.delays.poll_due(now.into_std()) {
            if let Some(lane) = self.lanes.get(&id) {
                lane.unpark(offset, &*self.handle);
            }
        }
        self.let_go_of_quiet();
        self.finish_revocations(now);
        self.call_in(now);
        self.start_survey(now);
        if self.committer.may_start(now.into_std()) {
            for id in std::mem::take(&mut self.touched) {
                if let Some(lane) = self.lanes.get(&id) {
                    self.committer.mark(id, lane.collect());
                }
            }
            self.start_commit(now);
        }
    }

    /// Calls in lanes that stand aside, where there is room.
    fn call_in(&mut self, now: Instant) {
        for (aside, room) in self.aside.iter_mut().zip(&self.setup.rooms) {
            while let Some(id) = aside.poll_call(now.into_std(), room.room_left()) {
                if let Some(lane) = self.lanes.get(&id) {
                    lane.call_in(&*self.handle);
                }
            }
            room.set_aside(aside.len());
        }
    }

    /// A lane stands aside.
    fn step_aside(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get(&id).filter(|lane| lane.gate.is_open()) else { return };
        let level = lane.route.level as usize;
        self.aside[level].push(id);
        self.setup.rooms[level].set_aside(self.aside[level].len());
    }

    fn start_commit(&mut self, now: Instant) {
        let Some(offsets) = self.committer.poll_commit(now.into_std()) else { return };
        let positions = offsets.into_iter().filter_map(|(id, offset)| {
            let lane = self.lanes.get(&id)?;
            Some(Position { assigned: lane.assigned.clone(), offset, note: self.memo(lane, offset).note() })
        });
        let positions = positions.collect();
        let handle = self.handle.clone();
        self.commit = Some(Box::pin(async move { handle.settle(positions).await }));
    }

    /// What is to be remembered of a partition beside its position.
    fn memo(&self, lane: &Lane, offset: Offset) -> Memo {
        if lane.route.level > 0 {
            return Memo { unnamed_from: lane.unnamed_from().filter(|from| offset < *from), ..Memo::default() };
        }
        Memo { partitions: self.starts.begun_with(&lane.assigned.partition.topic), ..Memo::default() }
    }

    fn commit_ended(&mut self, result: Result<(), SettleError>) {
        self.commit = None;
        let failures = result.map_or_else(|error| error.failures, |()| Vec::new());
        let failures = failures.into_iter().filter_map(|failure| {
            let id = self.lane_of(&failure.position.assigned)?.id;
            Some((id, failure))
        });
        let failures: HashMap<_, _> = failures.collect();
        let failed: Vec<_> = failures.keys().copied().collect();
        for committed in self.committer.handle_commit(Instant::now().into_std(), &failed) {
            let Some(lane) = self.lanes.get(&committed.partition) else { continue };
            let outcomes = lane.commit_ended(committed.offset);
            if let Some(failure) = failures.get(&committed.partition) {
                self.setup.report_commit_failed(failure, outcomes.len());
            } else {
                for (offset, outcome) in outcomes {
                    self.setup.report_settled(lane, offset, &outcome);
                }
            }
        }
        for (id, failure) in failures {
            if failure.lost {
                self.cut(id);
            } else if let Some(tries) = self.closing.get_mut(&id)
                && self.lanes.get(&id).is_some_and(|lane| lane.under_way() == 0)
            {
                // Not while something is under way: what waits for a commit would wait for one that nobody makes.
                *tries += 1;
                if *tries >= CLOSING_TRIES || !failure.error.retryable {
                    // It stays uncommitted: whoever has the partition next delivers again what finished since.
                    self.committer.close(id);
                }
            }
        }
    }

    fn take_notes(&mut self, first: Option<Note>) {
        let mut next = first;
        while let Some(note) = next {
            match note {
                Note::Progress(id) => {
                    self.touched.insert(id);
                }
                // What it left is looked at in `advance`.
                Note::Ended => {}
                Note::Parked(id, offset, wait) => self.park(id, offset, wait),
                Note::Aside(id) => self.step_aside(id),
                Note::Stop(stop) => self.fail(*stop),
            }
            next = self.notes.try_recv().ok();
        }
    }

    fn park(&mut self, id: LaneId, offset: Offset, wait: Duration) {
        let Some(lane) = self.lanes.get(&id).filter(|lane| lane.gate.is_open()) else { return };
        self.handle.pause(&lane.assigned);
        self.delays.park(id, offset, (Instant::now() + wait).into_std());
    }

    fn take_event(&mut self, event: Option<Event>) {
        match event {
            Some(Event::Assigned(assignments)) => self.assign(&assignments),
            Some(Event::Batch(batch)) => self.take_batch(batch),
            Some(Event::Revoked(partitions, release)) => self.revoke(&partitions, release),
            Some(Event::Lost(partitions)) => {
                for assigned in &partitions {
                    self.starts.forget(assigned);
                    if let Some(id) = self.lane_of(assigned).map(|lane| lane.id) {
                        self.cut(id);
                    }
                }
            }
            // Of an adapter that declares to keep positions. Nobody settles these, so they are delivered again.
            Some(Event::Delivered(batch)) => tracing::error!(?batch, "the adapter delivers records one by one"),
            Some(Event::Fault(error)) => match &error.kind {
                AdapterErrorKind::OtherAssignor { offered, chosen } => self.setup.report_assignor(offered, chosen),
                AdapterErrorKind::ForeignPartitions(partitions) => self.setup.report_foreign(partitions),
                kind => {
                    self.setup.report_fault(&error);
                    if *kind == AdapterErrorKind::LockedOut {
                        self.life.locked_out();
                    }
                    // One that the membership survived is not what it ends by.
                    if matches!(kind, AdapterErrorKind::Fenced | AdapterErrorKind::Closed) {
                        self.fault = Some(error);
                    }
                }
            },
            None => {
                self.events_ended = true;
                if self.stopping.is_none() {
                    let error = self.fault.take().map_or(HarborError::Closed { what: "the membership" }, Into::into);
                    self.fail(Stop { reason: StopReason::Crash, error, topic: None });
                }
            }
        }
    }

    fn assign(&mut self, assignments: &[Assignment]) {
        if self.stopping.is_some() {
            return;
        }
        self.starts.handle_assignment();
        for assignment in assignments {
            let partition = &assignment.assigned.partition;
            let Some(level) = self.setup.topology.route(&partition.topic).map(|route| route.level) else {
                self.setup.report_foreign(std::slice::from_ref(partition));
                continue;
            };
            if let Some(old) = self.by_partition.get(partition).copied() {
                // It came back before its last assignment was let go; nothing of that one counts any more.
                self.cut(old);
            }
            let memo = Memo::read(assignment.note.as_deref());
            if let Some(partitions) = memo.partitions {
                self.starts.learn(&partition.topic, partitions);
            }
            if assignment.committed.is_none() {
                self.starts.is_new(partition);
            }
            let is_open = assignment.committed.is_none() && (level > 0 || self.setup.starts_at_the_end);
            if is_open && self.adapter.capabilities().offsets {
                self.starts.decide(assignment, level > 0);
                continue;
            }
            if level == 0 && self.setup.starts_at_the_end && self.adapter.capabilities().offsets {
                self.starts.want(&partition.topic);
            }
            self.open(assignment, memo.unnamed_from);
        }
    }

    /// Begins to handle a partition.
    fn open(&mut self, assignment: &Assignment, unnamed_from: Option<Offset>) {
        let partition = &assignment.assigned.partition;
        let Some(route) = self.setup.topology.route(&partition.topic).cloned() else { return };
        let id = self.next_lane();
        let lane = Lane::new(id, assignment, route, self.setup.source(partition), self.tell.clone());
        let lane = Arc::new(lane.with_unnamed_from(unnamed_from));
        if assignment.committed.is_none() && (lane.route.level > 0 || self.setup.starts_at_the_end) {
            // Without a first commit, what waits or fails here across a restart would be passed over by it.
            self.committer.open(id, None);
            self.committer.mark(id, assignment.position);
        } else {
            self.committer.open(id, Some(assignment.position));
        }
        self.by_partition.insert(partition.clone(), id);
        self.lanes.insert(id, lane);
    }

    fn start_survey(&mut self, now: Instant) {
        if self.survey.is_some() || self.stopping.is_some() {
            return;
        }
        let Some(question) = self.starts.poll_question(now.into_std()) else { return };
        let originals = self.setup.topology.plans().iter().map(|plan| plan.topic.clone()).collect();
        let (group, adapter) = (self.setup.group.clone(), self.adapter.clone());
        self.survey = Some(Box::pin(async move {
            let of = adapter.clone();
            guard::port(&*adapter, "reading a group's commits", |_| Box::pin(survey(group, originals, of, question)))
                .await
        }));
    }

    /// It is known of some partitions where they begin.
    fn survey_ended(&mut self, result: Result<Findings, AdapterError>) {
        self.survey = None;
        let findings = result.map_err(|error| self.setup.report_fault(&error)).ok();
        for Begin { assignment, unnamed_from, moves } in self.starts.handle(Instant::now().into_std(), findings) {
            if moves {
                self.handle.resume(&assignment.assigned, ResumeFrom::Offset(assignment.position));
            }
            self.open(&assignment, unnamed_from);
        }
    }

    fn take_batch(&mut self, batch: PartitionBatch) {
        let partition = &batch.assigned.partition;
        if self.setup.topology.route(&partition.topic).is_none() {
            let stop = report::unknown_route(&partition.topic);
            return self.fail(stop);
        }
        if self.starts.is_undecided(&batch.assigned) {
            if self.starts.pass_over(&batch.assigned) {
                self.handle.pause(&batch.assigned);
            }
            return;
        }
        // What belongs to an earlier assignment is dropped: its records come again.
        let Some(mut lane) = self.lane_of(&batch.assigned).cloned() else { return };
        if lane.went_back(batch.records.begins_at()) {
            let Some(new) = self.start_over(&lane, batch.records.begins_at()) else { return };
            lane = new;
        }
        let level = lane.route.level as usize;
        let room = self.aside[level].has_room(lane.id, self.setup.rooms[level].room_left());
        match lane.push(batch, room, &*self.handle) {
            Pushed::Kept => {}
            Pushed::Start => Worker::start(&self.setup, &self.handle, lane),
            Pushed::Aside => self.step_aside(lane.id),
        }
    }

    /// The partition went back to `offset`: its log was truncated, or its topic created anew. What is known of the offsets
    /// from there on is of another log, and would keep those of this one from being committed, so a lane of its own
    /// begins; there, or where the old one was not finished yet. `None` if what is at hand comes too late for that.
    fn start_over(&mut self, old: &Lane, offset: Offset) -> Option<Arc<Lane>> {
        let assigned = old.assigned.clone();
        let position = old.collect().min(offset);
        tracing::warn!(group = &*self.setup.group, partition = %assigned.partition, %position, "the log went back");
        self.cut(old.id);
        let from = if position < offset { ResumeFrom::Offset(position) } else { ResumeFrom::Here };
        self.handle.resume(&assigned, from);
        let id = self.next_lane();
        let assignment = Assignment { assigned, committed: None, position, note: None };
        let lane = Arc::new(Lane::new(id, &assignment, old.route.clone(), old.source.clone(), self.tell.clone()));
        self.committer.open(id, None);
        self.committer.mark(id, position);
        self.by_partition.insert(lane.assigned.partition.clone(), id);
        self.lanes.insert(id, lane.clone());
        (position == offset).then_some(lane)
    }

    fn next_lane(&mut self) -> LaneId {
        let id = LaneId(self.lanes_so_far);
        self.lanes_so_far += 1;
        id
    }

    fn revoke(&mut self, partitions: &[Assigned], release: Release) {
        partitions.iter().for_each(|assigned| self.starts.forget(assigned));
        let lanes: Vec<_> = partitions.iter().filter_map(|assigned| Some(self.lane_of(assigned)?.id)).collect();
        for id in &lanes {
            self.close(*id);
        }
        let deadline = Instant::now() + self.setup.limits.max_processing_time;
        self.revocations.push(Revocation { lanes, deadline, release });
    }

    /// A worker, a hop or the membership found that the consumer has to stop.
    fn fail(&mut self, stop: Stop) {
        self.setup.report_error(&stop.error, stop.topic.as_ref());
        let deadline = Instant::now() + CRASH_TIMEOUT;
        self.stop(stop.reason, StopRequest { deadline });
    }

    /// Whoever asks while it stops by itself may have less time to wait.
    fn asked_to_stop(&mut self, request: StopRequest) {
        self.was_asked = true;
        match &mut self.stopping {
            Some(stopping) => stopping.deadline = stopping.deadline.min(request.deadline),
            None => self.stop(StopReason::Shutdown, request),
        }
    }

    /// Nothing new begins from here on; what runs is waited for. Only the first time counts.
    fn stop(&mut self, reason: StopReason, request: StopRequest) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(Stopping { began: Instant::now(), deadline: request.deadline });
        self.life.stopping(reason);
        self.starts.clear();
        self.survey = None;
        let lanes: Vec<_> = self.lanes.keys().copied().collect();
        for id in lanes {
            self.close(id);
        }
    }

    /// No delivery of the lane begins any more. It goes once it is quiet and committed.
    fn close(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get(&id) {
            lane.gate.close();
            self.delays.forget(id);
            self.aside[lane.route.level as usize].forget(id);
            self.closing.entry(id).or_default();
        }
    }

    /// Nothing that the lane does counts any more.
    fn cut(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.remove(&id) {
            lane.gate.cut();
            self.aside[lane.route.level as usize].forget(id);
            if self.by_partition.get(&lane.assigned.partition) == Some(&id) {
                self.by_partition.remove(&lane.assigned.partition);
            }
        }
        self.delays.forget(id);
        self.committer.close(id);
        self.closing.remove(&id);
    }

    /// Lets go of the closing lanes that are quiet and committed.
    fn let_go_of_quiet(&mut self) {
        let mut done = Vec::new();
        for id in self.closing.keys() {
            let Some(lane) = self.lanes.get(id) else { continue };
            // Asked first: what ends after this is collected the next time.
            let quiet = lane.under_way() == 0;
            self.committer.mark(*id, lane.collect());
            if quiet && self.committer.is_settled(*id) {
                done.push(*id);
            }
        }
        for id in done {
            self.cut(id);
        }
    }

    fn finish_revocations(&mut self, now: Instant) {
        let (done, waiting) = std::mem::take(&mut self.revocations).into_iter().partition(|revocation| {
            now >= revocation.deadline || revocation.lanes.iter().all(|id| !self.lanes.contains_key(id))
        });
        self.revocations = waiting;
        let done: Vec<Revocation> = done;
        for Revocation { lanes, release, .. } in done {
            // Those that are left at the deadline are lost.
            lanes.into_iter().for_each(|id| self.cut(id));
            release.send();
        }
    }

    /// Gives up what did not end in time. Returns how many deliveries that are.
    fn give_up(&mut self) -> usize {
        let lanes: Vec<_> = self.lanes.values().cloned().collect();
        let mut in_flight = 0;
        for lane in lanes {
            // A lane without any still has finished work whose commit did not end.
            in_flight += lane.under_way().max(1);
            self.cut(lane.id);
        }
        in_flight
    }

    /// Leaves the group. Its events are read meanwhile, so that nothing there waits for an answer.
    async fn leave(mut self, in_flight: usize) -> Ending {
        let (began, deadline) = match self.stopping {
            Some(stopping) => (stopping.began, stopping.deadline),
            None => (Instant::now(), Instant::now()),
        };
        let waited = began.elapsed();
        self.commit = None;
        self.revocations.drain(..).for_each(|revocation| revocation.release.send());
        let timeout = deadline.saturating_duration_since(Instant::now()).max(SHORTEST_LEAVE);
        let handle = self.handle.clone();
        let mut leaving = handle.leave(timeout);
        let left = loop {
            tokio::select! {
                biased;
                left = &mut leaving => break left,
                event = self.events.next(), if !self.events_ended => self.events_ended = event.is_none(),
            }
        };
        Ending { in_flight, waited, leaving: left.err().map(Arc::new) }
    }

    fn lane_of(&self, assigned: &Assigned) -> Option<&Arc<Lane>> {
        let id = self.by_partition.get(&assigned.partition)?;
        self.lanes.get(id).filter(|lane| lane.assigned.epoch == assigned.epoch)
    }

    fn next_wake(&self) -> Option<Instant> {
        let machines = [self.delays.poll_timeout(), self.committer.poll_timeout(!self.touched.is_empty())];
        let starts = if self.survey.is_none() { self.starts.poll_timeout() } else { None };
        let deadlines = self.revocations.iter().map(|revocation| revocation.deadline);
        let stopping = self.stopping.map(|stopping| stopping.deadline);
        let aside = self.aside.iter().filter_map(Aside::poll_timeout);
        let machines = machines.into_iter().flatten().chain(aside).chain(starts).map(Instant::from_std);
        machines.chain(deadlines).chain(stopping).min()
    }
}

/// However it ends, also by a panic: nothing that its lanes do counts any more.
impl Drop for Pipeline {
    fn drop(&mut self) {
        self.lanes.values().for_each(|lane| lane.gate.cut());
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("setup", &self.setup).field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

async fn ended<T>(under_way: &mut Option<BoxFuture<'static, T>>) -> T {
    match under_way {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(wake) => sleep_until(wake).await,
        None => pending().await,
    }
}

/// How long a consumer that crashed or aborted waits for what is still being handled.
const CRASH_TIMEOUT: Duration = Duration::from_secs(30);
/// Failed commits after which a partition that goes is let go uncommitted.
const CLOSING_TRIES: u32 = 3;
/// Even a stop whose time is up tells the group that it goes: the others would wait a whole session for it.
const SHORTEST_LEAVE: Duration = Duration::from_secs(1);
