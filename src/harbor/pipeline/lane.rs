//! A partition while this member has it, as the driver and the partition's worker share it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::adapter::{Assigned, Assignment, MembershipHandle, PartitionBatch, ResumeFrom};
use crate::harbor::commit::Tracker;
use crate::harbor::context::Source;
use crate::harbor::pipeline::gate::Gate;
use crate::harbor::pipeline::note::{Note, Settled};
use crate::harbor::topology::Route;
use crate::record::{Offset, Topic};

/// Names one lane of a pipeline. A partition that goes and comes back gets a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LaneId(pub(crate) u64);

/// One assigned partition.
///
/// ```text
///   batches ─► inbox ─► worker ─┬─ finished ──┐
///                               └─ hops ──────┴─► ledger: what may be committed, what is told once it is
/// ```
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) assigned: Assigned,
    pub(crate) route: Route,
    /// What the contexts of its records share.
    pub(crate) source: Arc<Source>,
    pub(crate) gate: Gate,
    /// See [`Lane::with_unnamed_from`].
    unnamed_from: Option<Offset>,
    inbox: Mutex<Inbox>,
    /// Everything before it is over: done, passed over, or on its way as a hop. Written by the worker alone.
    finished: AtomicI64,
    /// Whether the driver knows that there is something to collect.
    touched: AtomicBool,
    ledger: Mutex<Ledger>,
    ledger_changed: Notify,
    notes: mpsc::UnboundedSender<Note>,
}

/// What came and was not looked at yet.
#[derive(Debug)]
struct Inbox {
    batches: VecDeque<PartitionBatch>,
    state: InboxState,
    /// Whether the partition is paused because the inbox is full.
    paused: bool,
    /// The record here has waited for its time already.
    due: Option<Offset>,
    /// The record that a circuit holds, and since when.
    held: Option<(Offset, Instant)>,
    /// Where the next batch begins.
    next: Offset,
}

/// ```text
///   idle ◄──────────────► working
///     ▲     push / empty     │ park, step_aside
///     └──unpark, call_in── parked
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InboxState {
    /// No worker.
    Idle,
    /// A worker is at it, or waits for its place.
    Working,
    /// Paused: waiting for a due time, or for room at its level. What comes is dropped: it is read again from where the
    /// wait began.
    Parked,
}

/// What is to be done after a batch came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// Nothing.
    Kept,
    /// A worker is to be started.
    Start,
    /// There is no room at the level: the partition stands aside until it is called in.
    Aside,
}

/// What is known of deliveries that ended.
#[derive(Debug)]
struct Ledger {
    tracker: Tracker,
    /// What is to be told once it is committed, in offset order.
    outcomes: VecDeque<(Offset, Settled)>,
    /// Commits up to here have ended, well or not.
    settled_to: Offset,
}

impl Lane {
    pub(crate) fn new(
        id: LaneId,
        assignment: &Assignment,
        route: Route,
        source: Arc<Source>,
        notes: mpsc::UnboundedSender<Note>,
    ) -> Self {
        let position = assignment.position;
        Self {
            id,
            assigned: assignment.assigned.clone(),
            route,
            source,
            gate: Gate::new(),
            unnamed_from: None,
            inbox: Mutex::new(Inbox {
                batches: VecDeque::new(),
                state: InboxState::Idle,
                paused: false,
                due: None,
                held: None,
                next: position,
            }),
            finished: AtomicI64::new(position.0),
            touched: AtomicBool::new(false),
            ledger: Mutex::new(Ledger {
                tracker: Tracker::new(position),
                outcomes: VecDeque::new(),
                settled_to: position,
            }),
            ledger_changed: Notify::new(),
            notes,
        }
    }

    /// Ladder records before this offset that name no group were there before this group read the topic, and are
    /// another's.
    pub(crate) fn with_unnamed_from(mut self, offset: Option<Offset>) -> Self {
        self.unnamed_from = offset;
        self
    }

    /// See [`Self::with_unnamed_from`].
    pub(crate) fn unnamed_from(&self) -> Option<Offset> {
        self.unnamed_from
    }

    /// Tells the driver something. It may have ended; then nobody is left to tell.
    pub(crate) fn tell(&self, note: Note) {
        let _ = self.notes.send(note);
    }

    // The driver's side.

    /// A batch came; `room` tells whether the level has room for one more partition.
    pub(crate) fn push(&self, batch: PartitionBatch, room: bool, handle: &dyn MembershipHandle) -> Pushed {
        let mut inbox = self.inbox();
        if !self.gate.is_open() || inbox.state == InboxState::Parked {
            return Pushed::Kept;
        }
        if inbox.state == InboxState::Idle && !room {
            inbox.step_aside(&self.assigned, handle);
            return Pushed::Aside;
        }
        inbox.next = batch.records.next_offset();
        inbox.batches.push_back(batch);
        if inbox.batches.len() >= INBOX_BATCHES && !inbox.paused {
            inbox.paused = true;
            handle.pause(&self.assigned);
        }
        if inbox.state != InboxState::Idle {
            return Pushed::Kept;
        }
        inbox.state = InboxState::Working;
        Pushed::Start
    }

    /// There is room again: reading goes on where it stood.
    pub(crate) fn call_in(&self, handle: &dyn MembershipHandle) {
        let mut inbox = self.inbox();
        if inbox.state == InboxState::Parked && self.gate.is_open() {
            inbox.state = InboxState::Idle;
            inbox.paused = false;
            let offset = Offset(self.finished.load(Ordering::Acquire));
            inbox.next = offset;
            handle.resume(&self.assigned, ResumeFrom::Offset(offset));
        }
    }

    /// Whether a batch that begins at `offset` says that the log went back under the lane.
    pub(crate) fn went_back(&self, offset: Offset) -> bool {
        let inbox = self.inbox();
        // What comes while it is parked is dropped anyway.
        inbox.state != InboxState::Parked && self.gate.is_open() && offset < inbox.next
    }

    /// The wait is over: reading goes on at `offset`, whose record has waited.
    pub(crate) fn unpark(&self, offset: Offset, handle: &dyn MembershipHandle) {
        let mut inbox = self.inbox();
        if inbox.state == InboxState::Parked && self.gate.is_open() {
            inbox.state = InboxState::Idle;
            inbox.paused = false;
            inbox.due = Some(offset);
            inbox.next = offset;
            handle.resume(&self.assigned, ResumeFrom::Offset(offset));
        }
    }

    /// Deliveries under way: one that a worker is at, and those whose hop was not answered.
    pub(crate) fn under_way(&self) -> usize {
        usize::from(self.inbox().state == InboxState::Working) + self.ledger().tracker.hops_under_way()
    }

    /// What may be committed now.
    pub(crate) fn collect(&self) -> Offset {
        self.touched.swap(false, Ordering::AcqRel);
        let mut ledger = self.ledger();
        ledger.tracker.finish_to(Offset(self.finished.load(Ordering::Acquire)));
        ledger.tracker.committable()
    }

    /// A commit up to `offset` ended. Returns what it covers and nobody was told of yet: to be told if it landed.
    pub(crate) fn commit_ended(&self, offset: Offset) -> Vec<(Offset, Settled)> {
        let mut ledger = self.ledger();
        ledger.settled_to = ledger.settled_to.max(offset);
        let covered = ledger.outcomes.partition_point(|(at, _)| *at < offset);
        let outcomes = ledger.outcomes.drain(..covered).collect();
        drop(ledger);
        self.ledger_changed.notify_waiters();
        outcomes
    }

    // The worker's side.

    /// Whether a ladder record at `offset` that names no group is this group's.
    pub(crate) fn counts_unnamed(&self, offset: Offset) -> bool {
        self.unnamed_from.is_none_or(|from| offset >= from)
    }

    /// The next batch, and the offset whose record has waited for its time. `None` ends the worker.
    pub(crate) fn take(&self, handle: &dyn MembershipHandle) -> Option<(PartitionBatch, Option<Offset>)> {
        let mut inbox = self.inbox();
        let next = if self.gate.is_open() { inbox.batches.pop_front() } else { None };
        let Some(batch) = next else {
            inbox.batches.clear();
            inbox.state = InboxState::Idle;
            return None;
        };
        if inbox.paused && inbox.batches.is_empty() {
            inbox.paused = false;
            handle.resume(&self.assigned, ResumeFrom::Here);
        }
        Some((batch, inbox.due.take()))
    }

    /// Whether another batch is there.
    pub(crate) fn has_more(&self) -> bool {
        !self.inbox().batches.is_empty()
    }

    /// The worker ends here and will not be started by what comes: the record at hand has to wait.
    pub(crate) fn park(&self) {
        let mut inbox = self.inbox();
        inbox.batches.clear();
        inbox.state = InboxState::Parked;
    }

    /// The worker ends for others to have its room. The record at `due`, which it may not have come to, has waited for its
    /// time already.
    pub(crate) fn step_aside(&self, due: Option<Offset>, handle: &dyn MembershipHandle) {
        let mut inbox = self.inbox();
        inbox.due = due.or(inbox.due);
        inbox.step_aside(&self.assigned, handle);
    }

    /// Since when the record at `offset` is held by its circuit.
    pub(crate) fn held_since(&self, offset: Offset, now: Instant) -> Instant {
        let mut inbox = self.inbox();
        let held = inbox.held.filter(|(at, _)| *at == offset);
        inbox.held.insert(held.unwrap_or((offset, now))).1
    }

    /// The worker ends, whatever waits.
    pub(crate) fn stand_down(&self) {
        let mut inbox = self.inbox();
        inbox.batches.clear();
        inbox.state = InboxState::Idle;
    }

    /// Every delivery before `next` is over.
    pub(crate) fn finish(&self, next: Offset) {
        self.finished.store(next.0, Ordering::Release);
        self.touch();
    }

    /// What is to be told once the record at `offset` is committed. To be called before [`Self::finish`] passes it.
    /// Returns how many such wait.
    pub(crate) fn record(&self, offset: Offset, outcome: Settled) -> usize {
        let mut ledger = self.ledger();
        ledger.outcomes.push_back((offset, outcome));
        ledger.outcomes.len()
    }

    /// The record at `offset` leaves for another topic. To be called before [`Self::finish`] passes it. Returns how
    /// many outcomes wait to be told.
    pub(crate) fn hop_left(&self, offset: Offset, outcome: Settled) -> usize {
        let mut ledger = self.ledger();
        ledger.tracker.hop_left(offset);
        ledger.outcomes.push_back((offset, outcome));
        ledger.outcomes.len()
    }

    /// The hop of the record at `offset` goes to the dead letters instead.
    pub(crate) fn hop_set_aside(&self, offset: Offset, to: &Topic) {
        let mut ledger = self.ledger();
        if let Ok(at) = ledger.outcomes.binary_search_by_key(&offset, |(at, _)| *at)
            && let Settled::Moved(moved) = &mut ledger.outcomes[at].1
        {
            (moved.to, moved.level) = (to.clone(), None);
        }
    }

    /// The hop of the record at `offset` was acknowledged.
    pub(crate) fn hop_acknowledged(&self, offset: Offset) {
        self.ledger().tracker.hop_acknowledged(offset);
        self.ledger_changed.notify_waiters();
        self.touch();
    }

    /// The hop of the record at `offset` was given up.
    pub(crate) fn hop_failed(&self, offset: Offset) {
        self.ledger().tracker.hop_failed(offset);
        self.ledger_changed.notify_waiters();
    }

    /// Waits until fewer than `bound` hops are open. False when the gate was cut first, or a hop failed: then nothing
    /// from there on is ever committed, and the consumer stops.
    pub(crate) async fn hops_below(&self, bound: usize) -> bool {
        self.ledger_reaches(|ledger| ledger.tracker.hops_open() < bound).await
    }

    /// Waits until fewer than `bound` outcomes wait to be told. False as for [`Self::hops_below`].
    pub(crate) async fn outcomes_below(&self, bound: usize) -> bool {
        self.ledger_reaches(|ledger| ledger.outcomes.len() < bound).await
    }

    /// Waits until a commit up to `offset` has ended, well or not. False as for [`Self::hops_below`].
    pub(crate) async fn settled(&self, offset: Offset) -> bool {
        self.ledger_reaches(|ledger| ledger.settled_to >= offset).await
    }

    async fn ledger_reaches(&self, reached: impl Fn(&Ledger) -> bool) -> bool {
        loop {
            let changed = self.ledger_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let ledger = self.ledger();
                if reached(&ledger) {
                    return true;
                }
                if ledger.tracker.has_failed() {
                    return false;
                }
            }
            tokio::select! {
                biased;
                () = self.gate.was_cut() => return false,
                () = changed => {}
            }
        }
    }

    /// Tells the driver once that there is something to collect.
    fn touch(&self) {
        // Both sides exchange the flag: if this one finds it set, the driver's next exchange comes after it and
        // sees what was stored before.
        if !self.touched.swap(true, Ordering::AcqRel) {
            self.tell(Note::Progress(self.id));
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    fn step_aside(&mut self, assigned: &Assigned, handle: &dyn MembershipHandle) {
        self.batches.clear();
        self.state = InboxState::Parked;
        self.paused = false;
        handle.pause(assigned);
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("id", &self.id).field("assigned", &self.assigned).finish_non_exhaustive()
    }
}

/// Batches that wait in an inbox before their partition is paused: one to go on with, one on its way.
const INBOX_BATCHES: usize = 2;

#[cfg(test)]
mod tests;
