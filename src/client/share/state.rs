//! What a share consumer's tasks and handles share.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use kafka_protocol::protocol::StrBytes;
use tokio::sync::{Notify, oneshot, watch};

use super::{
    AcknowledgeCause, AcknowledgeError, AcknowledgeFailed, Acknowledged, Acknowledgement, Settings, ShareBatch,
    ShareError, ShareEvent,
};
use crate::client::{Cluster, Stale, now};
use crate::machine::share::{Next, Outcome, SessionEvent, Sessions};
use crate::record::NodeId;

/// One member, as its tasks and handles share it.
pub(super) struct Shared {
    pub(super) cluster: Cluster,
    pub(super) settings: Settings,
    /// Wakes the membership task.
    pub(super) changed: Notify,
    phase: watch::Sender<Phase>,
    /// Wakes the loop of each broker.
    wakes: Arc<Wakes>,
    state: Mutex<State>,
}

/// How far a membership is.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Joining,
    Joined,
    /// With what ended it, unless the caller did.
    Ended(Option<ShareError>),
}

/// Wakes the loop of each broker.
#[derive(Debug, Default)]
struct Wakes(Mutex<BTreeMap<NodeId, Arc<Notify>>>);

pub(super) struct State {
    pub(super) sessions: Sessions,
    pub(super) leave_by: Option<Instant>,
    events: VecDeque<ShareEvent>,
    waiting: HashMap<u64, Waiting>,
    last_call: u64,
    wanted: bool,
    waker: Option<Waker>,
    ended: bool,
}

/// A call that waits for what becomes of its records.
struct Waiting {
    /// How many records it still waits for.
    left: u64,
    acknowledgements: Vec<Acknowledgement>,
    failures: Vec<AcknowledgeFailed>,
    locked_until: Option<Instant>,
    reply: oneshot::Sender<Result<Acknowledged, AcknowledgeError>>,
}

impl Shared {
    pub(super) fn new(cluster: Cluster, settings: Settings, member: StrBytes) -> Arc<Self> {
        let wakes = Arc::<Wakes>::default();
        let state = State {
            sessions: Sessions::new(settings.sessions.clone(), &*settings.member.group, member),
            leave_by: None,
            events: VecDeque::new(),
            waiting: HashMap::new(),
            last_call: 0,
            wanted: false,
            waker: None,
            ended: false,
        };
        let on_return = wakes.clone();
        state.sessions.budget().on_return(move || on_return.all());
        let (changed, phase) = (Notify::new(), watch::Sender::new(Phase::Joining));
        Arc::new(Self { cluster, settings, changed, phase, wakes, state: Mutex::new(state) })
    }

    pub(super) fn group(&self) -> &str {
        &self.settings.member.group
    }

    pub(super) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub(super) fn joined(&self) {
        self.phase.send_if_modified(|phase| {
            let joining = matches!(phase, Phase::Joining);
            if joining {
                *phase = Phase::Joined;
            }
            joining
        });
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Ended(_))
    }

    /// Nothing under the lock runs foreign code that could panic half way.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What wakes the loop of this broker; `true` if it is new, and so there is no loop.
    pub(super) fn wake_of(&self, node: NodeId) -> (Arc<Notify>, bool) {
        let mut wakes = self.wakes.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = !wakes.contains_key(&node);
        (wakes.entry(node).or_default().clone(), new)
    }

    /// What the loop of this broker is to do. Where that is to end, it has: the next to speak to the broker makes a new one.
    pub(super) fn poll_broker(&self, node: NodeId) -> Next {
        let mut state = self.lock();
        let next = state.sessions.poll(now(), node);
        if matches!(next, Next::Gone) {
            // Under both locks: whoever names the broker again after this finds no loop, and whoever did before it has one.
            self.wakes.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
        }
        next
    }

    pub(super) fn wake_all(&self) {
        self.wakes.all();
    }

    pub(super) fn tell(&self, error: ShareError) {
        let waker = {
            let mut state = self.lock();
            state.fault(error);
            state.waker.take()
        };
        wake(waker);
    }

    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<ShareEvent>> {
        {
            let mut state = self.lock();
            if let Some(event) = state.take_event(now()) {
                return Poll::Ready(Some(event));
            }
            if state.ended {
                return Poll::Ready(None);
            }
            if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            if std::mem::replace(&mut state.wanted, true) {
                return Poll::Pending;
            }
            state.sessions.want(true);
        }
        self.wake_all();
        Poll::Pending
    }

    pub(super) async fn acknowledge(
        &self,
        acknowledgements: Vec<Acknowledgement>,
    ) -> Result<Acknowledged, AcknowledgeError> {
        let waits = self.lock().acknowledge(acknowledgements);
        match waits {
            Ok(receiver) => {
                self.wake_all();
                // Every call is answered before the state goes.
                receiver.await.unwrap_or(Ok(Acknowledged::new(None)))
            }
            Err(failures) if failures.is_empty() => Ok(Acknowledged::new(None)),
            Err(failures) => Err(AcknowledgeError { failures }),
        }
    }

    /// Asks the membership to leave by then; the earliest of several deadlines counts.
    pub(super) fn leave(&self, by: Instant) {
        {
            let mut state = self.lock();
            state.leave_by = Some(state.leave_by.map_or(by, |earlier| earlier.min(by)));
        }
        self.changed.notify_one();
    }

    /// Hands on what the sessions tell, after anything that may make them tell.
    pub(super) fn sessions_told(&self) {
        let mut stale = Vec::new();
        let waker = {
            let mut state = self.lock();
            state.conclude();
            while let Some(event) = state.sessions.poll_event() {
                let group = self.group().to_owned();
                match event {
                    SessionEvent::Stale(partition) => stale.push(partition),
                    SessionEvent::Refused { partition, code } => {
                        state.fault(ShareError::FetchRefused { group, partition, code });
                    }
                    SessionEvent::SessionRefused { node, code } => {
                        state.fault(ShareError::SessionRefused { group, node, code });
                    }
                    SessionEvent::Unreadable { partition, offset, error } => {
                        state.fault(ShareError::Unreadable { partition, offset, source: Arc::new(error) });
                    }
                }
            }
            state.waker.take()
        };
        wake(waker);
        for partition in stale {
            self.cluster.invalidate(Stale::Leader(partition));
        }
        self.changed.notify_one();
    }

    /// The membership is over.
    pub(super) fn end(&self, error: Option<ShareError>) {
        let waker = {
            let mut state = self.lock();
            state.give_up();
            if let Some(error) = error.clone().filter(ShareError::is_fatal) {
                state.fault(error);
            }
            state.ended = true;
            state.waker.take()
        };
        wake(waker);
        self.phase.send_replace(Phase::Ended(error));
    }
}

impl State {
    fn take_event(&mut self, now: Instant) -> Option<ShareEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if self.ended {
            return None;
        }
        let was_ready = self.sessions.is_ready();
        let acquired = self.sessions.poll_batch(now);
        if was_ready {
            // Taken, or over before it was: either way the next who waits has the loops woken.
            self.wanted = false;
        }
        let acquired = acquired?;
        Some(ShareEvent::Batch(ShareBatch::new(acquired)))
    }

    /// Faults that nobody takes do not pile up.
    fn fault(&mut self, error: ShareError) {
        if self.events.len() >= MAX_FAULTS {
            self.events.pop_front();
        }
        self.events.push_back(ShareEvent::Fault(error));
    }

    /// Takes acknowledgements in; what cannot be taken fails at once.
    fn acknowledge(
        &mut self,
        acknowledgements: Vec<Acknowledgement>,
    ) -> Result<oneshot::Receiver<Result<Acknowledged, AcknowledgeError>>, Vec<AcknowledgeFailed>> {
        let mut failures = Vec::new();
        let mut taken = Vec::new();
        let mut left = 0;
        self.last_call += 1;
        let ticket = self.last_call;
        let refused = if self.ended {
            Some(AcknowledgeCause::Lost)
        } else {
            (self.waiting.len() >= MAX_WAITING).then_some(AcknowledgeCause::TooMany)
        };
        for acknowledgement in acknowledgements {
            let Acknowledgement { lock, first, last, kind } = &acknowledgement;
            let entered = match &refused {
                Some(cause) => Err(cause.clone()),
                None => self.sessions.acknowledge(ticket, lock, (*first, *last), *kind).map_err(Into::into),
            };
            match entered {
                Ok(()) => {
                    left += records(first.0, last.0);
                    taken.push(acknowledgement);
                }
                Err(cause) => failures.push(AcknowledgeFailed { acknowledgement, cause }),
            }
        }
        if taken.is_empty() {
            return Err(failures);
        }
        let (reply, receiver) = oneshot::channel();
        let waiting = Waiting { left, acknowledgements: taken, failures, locked_until: None, reply };
        self.waiting.insert(ticket, waiting);
        Ok(receiver)
    }

    /// Hands outcomes to the calls that wait for them.
    fn conclude(&mut self) {
        while let Some(outcome) = self.sessions.poll_outcome() {
            let Outcome { ticket, first, last, kind, result, partition } = outcome;
            let Some(call) = self.waiting.get_mut(&ticket) else { continue };
            call.left = call.left.saturating_sub(records(first.0, last.0));
            match result {
                Ok(locked_until) => {
                    call.locked_until = [call.locked_until, locked_until].into_iter().flatten().min();
                }
                Err(refusal) => {
                    let of_it = |asked: &&Acknowledgement| {
                        asked.lock.partition == partition && asked.first <= first && last <= asked.last
                    };
                    if let Some(asked) = call.acknowledgements.iter().find(of_it) {
                        let acknowledgement = Acknowledgement { lock: asked.lock.clone(), first, last, kind };
                        call.failures.push(AcknowledgeFailed { acknowledgement, cause: refusal.into() });
                    }
                }
            }
            if call.left == 0
                && let Some(call) = self.waiting.remove(&ticket)
            {
                call.answer();
            }
        }
    }

    /// What was not acknowledged by now never will be known to have been.
    fn give_up(&mut self) {
        self.conclude();
        for (_, mut call) in std::mem::take(&mut self.waiting) {
            let what = "the membership has ended".to_owned();
            call.failures.extend(call.acknowledgements.drain(..).map(|acknowledgement| AcknowledgeFailed {
                acknowledgement,
                cause: AcknowledgeCause::Unknown { what: what.clone() },
            }));
            call.answer();
        }
    }
}

impl Waiting {
    fn answer(self) {
        let result = if self.failures.is_empty() {
            Ok(Acknowledged::new(self.locked_until))
        } else {
            Err(AcknowledgeError { failures: self.failures })
        };
        // A caller that stopped waiting misses nothing.
        let _ = self.reply.send(result);
    }
}

impl Wakes {
    fn all(&self) {
        for wake in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            wake.notify_one();
        }
    }
}

/// How many offsets these are; what was held is in order.
fn records(first: i64, last: i64) -> u64 {
    last.saturating_sub(first).unsigned_abs().saturating_add(1)
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Faults that are kept for a consumer that does not ask; the oldest go first.
const MAX_FAULTS: usize = 64;
/// Calls of acknowledge that may wait at a time.
const MAX_WAITING: usize = 65_536;
