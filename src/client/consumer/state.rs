//! What a membership's tasks and handles share.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot, watch};

use super::epochs::Epochs;
use super::event::BatchLease;
use super::{
    Assigned, Assignment, CommitCause, CommitError, CommitFailed, CommitPosition, ConsumerError, ConsumerEvent,
    OffsetReset, PartitionBatch, Settings,
};
use crate::client::{Cluster, Stale, now};
use crate::machine::fetch::{FetchEvent, Fetched, Fetcher, Leader, Positions, ResetCause, StartAt};
use crate::machine::group::{CommitFailure, CommitGate, CommitRequest, Commits, Committed, GROUP_BACKOFF};
use crate::machine::metadata::ClusterView;
use crate::machine::transaction::GroupMetadata;
use crate::record::{NodeId, Offset, Topic, TopicPartition};

/// One membership, as its tasks and handles share it.
pub(super) struct Shared {
    pub(super) cluster: Cluster,
    pub(super) settings: Settings,
    /// Wakes the membership task.
    pub(super) changed: Notify,
    phase: watch::Sender<Phase>,
    wakes: Arc<Wakes>,
    state: Mutex<State>,
}

/// How far a membership is.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Joining,
    Joined,
    /// With what ended it, unless the caller did.
    Ended(Option<ConsumerError>),
}

/// Wakes the fetch loop of each broker.
#[derive(Debug, Default)]
pub(super) struct Wakes(Mutex<BTreeMap<NodeId, Arc<Notify>>>);

pub(super) struct State {
    pub(super) fetcher: Fetcher,
    pub(super) positions: Positions,
    pub(super) commits: Commits,
    /// What is assigned, partitions under revocation included.
    pub(super) held: HashMap<TopicPartition, Held>,
    /// This member, as it may commit now.
    member: Option<GroupMetadata>,
    pub(super) leave_by: Option<Instant>,
    /// Partitions that are positioned and not told yet.
    arriving: Vec<Assignment>,
    /// When [`Self::arriving`] is told although others of the assignment still wait.
    arrive_by: Option<Instant>,
    told_any: bool,
    resets: HashMap<TopicPartition, (Offset, ResetCause)>,
    events: VecDeque<ConsumerEvent>,
    waiting: HashMap<u64, Waiting>,
    last_call: u64,
    /// When it was last told that a broker does not let this client in.
    locked_out_told: Option<Instant>,
    waker: Option<Waker>,
    ended: bool,
}

/// One assigned partition.
pub(super) struct Held {
    pub(super) epoch: u64,
    /// Whether its `Assigned` event was taken.
    told: bool,
    epochs: Epochs,
}

/// A call of commit that waits for its outcomes.
struct Waiting {
    left: usize,
    positions: Vec<CommitPosition>,
    failures: Vec<CommitFailed>,
    reply: oneshot::Sender<Vec<CommitFailed>>,
}

impl Shared {
    pub(super) fn new(cluster: Cluster, settings: Settings) -> Arc<Self> {
        let wakes = Arc::<Wakes>::default();
        let group = &settings.group.group;
        let state = State {
            fetcher: Fetcher::new(settings.fetch.clone()),
            positions: Positions::new(group, settings.fetch.isolation, settings.fetch.backoff),
            commits: Commits::new(
                group,
                settings.commit_timeout,
                settings.group.request_timeout,
                GROUP_BACKOFF,
                fastrand::u64(..),
            ),
            held: HashMap::new(),
            member: None,
            leave_by: None,
            arriving: Vec::new(),
            arrive_by: None,
            told_any: false,
            resets: HashMap::new(),
            events: VecDeque::new(),
            waiting: HashMap::new(),
            last_call: 0,
            locked_out_told: None,
            waker: None,
            ended: false,
        };
        let on_return = wakes.clone();
        state.fetcher.budget().on_return(move || on_return.all());
        let (changed, phase) = (Notify::new(), watch::Sender::new(Phase::Joining));
        Arc::new(Self { cluster, settings, changed, phase, wakes, state: Mutex::new(state) })
    }

    pub(super) fn group(&self) -> &str {
        &self.settings.group.group
    }

    pub(super) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    pub(super) fn is_joining(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Joining)
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Ended(_))
    }

    pub(super) fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    /// Nothing under the lock runs foreign code that could panic half way.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reset_policy(&self, topic: &Topic) -> OffsetReset {
        let known = self.settings.topics.iter().find(|(name, _)| name == topic);
        known.map(|(_, reset)| *reset).or_else(|| self.settings.patterns.reset_of(topic)).unwrap_or_default()
    }

    /// Tells the consumer. Faults that nobody takes do not pile up.
    pub(super) fn tell(&self, event: ConsumerEvent) {
        let waker = self.lock().tell(event);
        wake(waker);
    }

    /// Tells that a broker does not let this client in, unless that was told just now.
    pub(super) fn tell_locked_out(&self, error: impl std::error::Error + Send + Sync + 'static) {
        let now = now();
        let waker = {
            let mut state = self.lock();
            if state.locked_out_told.is_some_and(|told| now < told + LOCKED_OUT_TOLD_EVERY) {
                return;
            }
            state.locked_out_told = Some(now);
            let (group, source) = (self.group().to_owned(), Arc::new(error));
            state.tell(ConsumerEvent::Fault(ConsumerError::LockedOut { group, source }))
        };
        wake(waker);
    }

    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<ConsumerEvent>> {
        let (event, node) = {
            let mut state = self.lock();
            match state.take_event() {
                Some(taken) => taken,
                None if state.ended => return Poll::Ready(None),
                None => {
                    if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                        state.waker = Some(cx.waker().clone());
                    }
                    return Poll::Pending;
                }
            }
        };
        if let Some(node) = node {
            self.wakes.one(node);
        }
        Poll::Ready(Some(event))
    }

    pub(super) async fn commit(&self, positions: Vec<CommitPosition>) -> Result<(), CommitError> {
        let waits = {
            let mut state = self.lock();
            state.commit(now(), positions)
        };
        let failures = match waits {
            Ok(receiver) => {
                self.changed.notify_one();
                // Every call is answered before the state goes.
                receiver.await.unwrap_or_default()
            }
            Err(failures) => failures,
        };
        if failures.is_empty() { Ok(()) } else { Err(CommitError { failures }) }
    }

    pub(super) fn pause(&self, assigned: &Assigned) {
        self.lock().fetcher.pause(&assigned.partition, assigned.epoch);
    }

    pub(super) fn resume(&self, assigned: &Assigned) {
        let waker = {
            let mut state = self.lock();
            state.fetcher.resume(&assigned.partition, assigned.epoch);
            state.waker.take()
        };
        wake(waker);
        self.wakes.all();
    }

    pub(super) fn seek(&self, assigned: &Assigned, offset: Offset) {
        {
            let mut state = self.lock();
            let held = state.held.get(&assigned.partition).filter(|held| held.epoch == assigned.epoch);
            let leader_epoch = held.and_then(|held| held.epochs.before(offset));
            state.fetcher.seek(&assigned.partition, assigned.epoch, offset, leader_epoch);
        }
        self.wakes.all();
    }

    /// Asks the membership to leave by then; the earliest of several deadlines counts.
    pub(super) fn leave(&self, by: Instant) {
        {
            let mut state = self.lock();
            state.leave_by = Some(state.leave_by.map_or(by, |earlier| earlier.min(by)));
        }
        self.changed.notify_one();
    }

    /// Acts on what the fetcher tells, after anything that may make it tell.
    pub(super) fn fetcher_told(&self) {
        let mut stale = Vec::new();
        let (mut reset, mut redirected) = (false, false);
        let waker = {
            let mut state = self.lock();
            while let Some(event) = state.fetcher.poll_event() {
                match event {
                    FetchEvent::Stale { partition } => stale.push(partition),
                    FetchEvent::Redirected => redirected = true,
                    FetchEvent::NeedsReset { partition, epoch, from, cause } => {
                        reset = true;
                        let policy = match cause {
                            ResetCause::OutOfRange => self.reset_policy(&partition.topic),
                            // Nothing of the new topic was ever read.
                            ResetCause::Recreated => OffsetReset::Earliest,
                        };
                        state.resets.insert(partition.clone(), (from, cause));
                        state.positions.reset(partition, epoch, policy);
                    }
                    FetchEvent::Truncated { partition, from, to } => {
                        if let Some(held) = state.held.get_mut(&partition) {
                            held.epochs.cut(to);
                        }
                        state.fault(ConsumerError::Truncated { partition, from, to });
                    }
                    FetchEvent::Malformed { partition, offset, error } => {
                        let source = Arc::new(error);
                        state.fault(ConsumerError::Malformed { partition, offset, source });
                    }
                    FetchEvent::Refused { partition, offset, code } => {
                        state.fault(ConsumerError::FetchRefused { partition, offset, code });
                    }
                }
            }
            state.waker.take()
        };
        wake(waker);
        if reset || redirected {
            self.changed.notify_one();
        }
        for partition in stale {
            self.cluster.invalidate(Stale::Leader(partition));
        }
    }

    /// The membership is over.
    pub(super) fn end(&self, error: Option<ConsumerError>) {
        let waker = {
            let mut state = self.lock();
            let mut gone: Vec<_> = state.held.keys().cloned().collect();
            gone.sort_unstable();
            state.fetcher.revoke(&gone);
            state.positions.forget(&gone);
            state.held.clear();
            state.arriving.clear();
            state.commits.close();
            state.member = None;
            state.conclude();
            if let Some(error) = error.clone().filter(ConsumerError::is_fatal) {
                state.fault(error);
            }
            state.ended = true;
            state.waker.take()
        };
        wake(waker);
        self.set_phase(Phase::Ended(error));
    }
}

impl State {
    /// A partition came. Returns its epoch.
    pub(super) fn hold(&mut self, partition: TopicPartition) -> u64 {
        // Over all memberships of the process: an assignment of one that ended is not taken for one of the next.
        static LAST_EPOCH: AtomicU64 = AtomicU64::new(0);
        let epoch = LAST_EPOCH.fetch_add(1, Ordering::Relaxed) + 1;
        self.held.insert(partition, Held { epoch, told: false, epochs: Epochs::default() });
        epoch
    }

    /// Stops reading these, and returns those that the consumer knows of.
    pub(super) fn stop_reading(&mut self, partitions: &[TopicPartition]) -> Vec<Assigned> {
        self.fetcher.revoke(partitions);
        self.positions.forget(partitions);
        self.arriving.retain(|arriving| !partitions.contains(&arriving.assigned.partition));
        if self.arriving.is_empty() {
            // A time that is over and that nothing answers to would keep the membership's task awake.
            self.arrive_by = None;
        }
        self.events.retain_mut(|event| {
            let ConsumerEvent::Assigned(assigned) = event else { return true };
            // Never told: it is as if it had not been.
            let before = assigned.len();
            assigned.retain(|assigned| !partitions.contains(&assigned.assigned.partition));
            !assigned.is_empty() || before == 0
        });
        let known = partitions.iter().filter_map(|partition| {
            let held = self.held.get(partition)?;
            held.told.then(|| Assigned { partition: partition.clone(), epoch: held.epoch })
        });
        known.collect()
    }

    /// These are not ours any more: nothing of them can be committed.
    pub(super) fn let_go(&mut self, partitions: &[TopicPartition]) {
        self.commits.forget(partitions);
        for partition in partitions {
            self.held.remove(partition);
            self.resets.remove(partition);
        }
        self.conclude();
    }

    /// Begins to read what was positioned, and tells of it.
    pub(super) fn arrive(&mut self, now: Instant) -> Option<Waker> {
        let mut waker = None;
        while let Some(done) = self.positions.poll_done() {
            if let Some(held) = self.held.get_mut(&done.partition) {
                if done.again {
                    held.epochs = Epochs::default();
                }
                held.epochs.start(done.offset, done.leader_epoch);
            }
            if done.again {
                self.fetcher.reposition(&done.partition, done.epoch, done.offset, done.leader_epoch);
                if let Some((from, cause)) = self.resets.remove(&done.partition) {
                    let (partition, to) = (done.partition, done.offset);
                    waker = self.tell(ConsumerEvent::Fault(match cause {
                        ResetCause::OutOfRange => ConsumerError::OutOfRange { partition, from, to },
                        ResetCause::Recreated => ConsumerError::Recreated { partition, from, to },
                    }));
                }
                continue;
            }
            let committed = done.committed.as_ref();
            self.fetcher.assign(StartAt {
                partition: done.partition.clone(),
                epoch: done.epoch,
                offset: done.offset,
                leader_epoch: done.leader_epoch,
            });
            self.arriving.push(Assignment {
                assigned: Assigned { partition: done.partition, epoch: done.epoch },
                committed: committed.map(|committed| committed.offset),
                position: done.offset,
                note: done.committed.and_then(|committed| committed.note),
            });
            self.arrive_by.get_or_insert(now + ARRIVE_TOGETHER);
        }
        let complete =
            !self.held.iter().any(|(partition, held)| !held.told && self.positions.is_waiting_for(partition));
        if !self.arriving.is_empty() && (complete || self.arrive_by.is_some_and(|by| now >= by)) {
            let assigned = std::mem::take(&mut self.arriving);
            self.arrive_by = None;
            self.told_any = true;
            waker = self.tell(ConsumerEvent::Assigned(assigned)).or(waker);
        }
        waker
    }

    /// Tells of an assignment of nothing, if it is the first.
    pub(super) fn arrive_empty(&mut self) -> Option<Waker> {
        if std::mem::replace(&mut self.told_any, true) {
            return None;
        }
        self.tell(ConsumerEvent::Assigned(Vec::new()))
    }

    /// When [`Self::arrive`] has something to do though nothing happens.
    pub(super) fn arrive_timeout(&self) -> Option<Instant> {
        self.arrive_by
    }

    pub(super) fn update_leaders(&mut self, view: &ClusterView) {
        self.fetcher.update_leaders(|partition| leader(view, partition));
    }

    /// Hands outcomes to the calls that wait for them.
    pub(super) fn conclude(&mut self) {
        while let Some(Committed { ticket, partition, result, .. }) = self.commits.poll_outcome() {
            let Some(call) = self.waiting.get_mut(&ticket) else { continue };
            call.left -= 1;
            if let Err(failure) = result {
                let cause = match failure {
                    CommitFailure::Lost => CommitCause::Lost,
                    CommitFailure::Refused(code) => CommitCause::Refused(code),
                    CommitFailure::TimedOut { last } => CommitCause::TimedOut { last },
                };
                let of_it = |position: &&CommitPosition| position.assigned.partition == partition;
                if let Some(position) = call.positions.iter().rfind(of_it).cloned() {
                    call.failures.push(CommitFailed { position, cause });
                }
            }
            if call.left == 0
                && let Some(call) = self.waiting.remove(&ticket)
            {
                // A caller that stopped waiting misses nothing.
                let _ = call.reply.send(call.failures);
            }
        }
    }

    pub(super) fn tell(&mut self, event: ConsumerEvent) -> Option<Waker> {
        match event {
            ConsumerEvent::Fault(error) => self.fault(error),
            event => self.events.push_back(event),
        }
        self.waker.take()
    }

    fn fault(&mut self, error: ConsumerError) {
        let faults = self.events.iter().filter(|event| matches!(event, ConsumerEvent::Fault(_))).count();
        if faults >= MAX_FAULTS
            && let Some(oldest) = self.events.iter().position(|event| matches!(event, ConsumerEvent::Fault(_)))
        {
            self.events.remove(oldest);
        }
        self.events.push_back(ConsumerEvent::Fault(error));
    }

    /// The next event, and a broker that can be asked for more because of it.
    fn take_event(&mut self) -> Option<(ConsumerEvent, Option<NodeId>)> {
        if let Some(event) = self.events.pop_front() {
            if let ConsumerEvent::Assigned(assignments) = &event {
                for assignment in assignments {
                    if let Some(held) = self.held.get_mut(&assignment.assigned.partition) {
                        held.told = true;
                    }
                }
            }
            return Some((event, None));
        }
        if !self.arriving.is_empty() {
            return None;
        }
        self.fetcher.poll_batch().map(|fetched| {
            let wake = fetched.wake;
            (ConsumerEvent::Batch(self.hand_over(fetched)), wake)
        })
    }

    fn hand_over(&mut self, fetched: Fetched) -> PartitionBatch {
        let Fetched { partition, epoch, chunk, .. } = fetched;
        if let Some(held) = self.held.get_mut(&partition) {
            held.epochs.start(chunk.from, None);
            for (from, epoch) in &chunk.epochs {
                held.epochs.remember(*from, Some(*epoch));
            }
            held.epochs.cover(chunk.next_offset);
        }
        PartitionBatch {
            assigned: Assigned { partition, epoch },
            batches: chunk.batches,
            from: chunk.from,
            next_offset: chunk.next_offset,
            lease: BatchLease(chunk.lease),
        }
    }

    /// Takes positions in; what cannot be taken fails at once.
    fn commit(
        &mut self,
        now: Instant,
        positions: Vec<CommitPosition>,
    ) -> Result<oneshot::Receiver<Vec<CommitFailed>>, Vec<CommitFailed>> {
        let mut failures = Vec::new();
        let mut taken = Vec::new();
        for position in positions {
            let held = self.held.get(&position.assigned.partition);
            let note_bytes = position.note.as_ref().map_or(0, String::len);
            let cause = if self.ended || held.is_none_or(|held| held.epoch != position.assigned.epoch) {
                Some(CommitCause::Lost)
            } else if note_bytes > MAX_NOTE_BYTES {
                Some(CommitCause::NoteTooLong { bytes: note_bytes, max: MAX_NOTE_BYTES })
            } else if self.waiting.len() >= MAX_WAITING {
                Some(CommitCause::TooMany)
            } else {
                None
            };
            match cause {
                Some(cause) => failures.push(CommitFailed { position, cause }),
                None => taken.push(position),
            }
        }
        if taken.is_empty() {
            return Err(failures);
        }
        self.last_call += 1;
        let ticket = self.last_call;
        for position in &taken {
            let partition = position.assigned.partition.clone();
            let known = || self.held.get(&partition).and_then(|held| held.epochs.before(position.offset));
            let leader_epoch = position.leader_epoch.or_else(known);
            let request =
                CommitRequest { partition, offset: position.offset, leader_epoch, note: position.note.clone() };
            self.commits.commit(now, ticket, request);
        }
        let (reply, receiver) = oneshot::channel();
        self.waiting.insert(ticket, Waiting { left: taken.len(), positions: taken, failures, reply });
        Ok(receiver)
    }
}

impl State {
    /// This member, for whoever has batches of it in hand. Until a loss is heard of they are from before it, and in the name of a
    /// member that has joined anew since a group would take their offsets, behind the position that it has read.
    pub(super) fn member(&self) -> Option<&GroupMetadata> {
        let unheard = self.events.iter().any(|event| matches!(event, ConsumerEvent::Lost(_)));
        self.member.as_ref().filter(|_| !unheard)
    }

    /// As whom offsets can be committed now.
    pub(super) fn note_member(&mut self, group: &str, gate: &CommitGate) {
        match gate {
            CommitGate::Open(target) => {
                let known = self.member.as_ref();
                let same = known.is_some_and(|known| {
                    known.generation == target.generation && known.member_id == target.member_id.as_str()
                });
                if !same {
                    self.member = Some(GroupMetadata {
                        group: group.to_owned(),
                        generation: target.generation,
                        member_id: target.member_id.to_string(),
                        instance_id: target.instance_id.as_ref().map(ToString::to_string),
                    });
                }
            }
            // It may be let in again as the same.
            CommitGate::Held => {}
            CommitGate::Closed => self.member = None,
        }
    }
}

impl Wakes {
    /// What wakes the loop of this broker; `true` if it is new, and so there is no loop.
    pub(super) fn of(&self, node: NodeId) -> (Arc<Notify>, bool) {
        let mut wakes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = !wakes.contains_key(&node);
        (wakes.entry(node).or_default().clone(), new)
    }

    pub(super) fn one(&self, node: NodeId) {
        if let Some(wake) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&node) {
            wake.notify_one();
        }
    }

    pub(super) fn all(&self) {
        for wake in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            wake.notify_one();
        }
    }
}

/// A partition's leader in this view.
pub(super) fn leader(view: &ClusterView, partition: &TopicPartition) -> Option<Leader> {
    let topic = view.topic(&partition.topic)?;
    let known = topic.partitions.get(usize::try_from(partition.partition).ok()?)?;
    Some(Leader { node: known.leader?, epoch: known.leader_epoch, topic_id: topic.id })
}

pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// How long partitions that are positioned wait for the rest of their assignment, to be told of together.
const ARRIVE_TOGETHER: Duration = Duration::from_secs(1);
/// What brokers keep of a note (`offset.metadata.max.bytes`).
const MAX_NOTE_BYTES: usize = 4096;
/// Faults that are kept for a consumer that does not ask; the oldest go first.
const MAX_FAULTS: usize = 64;
/// A client that is kept out tries often; that often is it told.
const LOCKED_OUT_TOLD_EVERY: Duration = Duration::from_secs(10);
/// Calls of commit that may wait at a time.
const MAX_WAITING: usize = 65_536;
