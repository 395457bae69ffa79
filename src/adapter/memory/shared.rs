//! What all handles on one in-process broker share: its state under one lock, and who waits for a change of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use tokio::sync::watch;

use crate::adapter::memory::seat::{Seat, SeatKey};
use crate::adapter::memory::{Call, MemorySettings, NAME};
use crate::adapter::{AdapterError, AdapterErrorKind};
use crate::memory::{Broker, Effect, TopicConfig};
use crate::protocol::error_code::ErrorCode;
use crate::record::{Timestamp, Topic};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: MemorySettings,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) broker: Broker,
    pub(super) seats: BTreeMap<SeatKey, Seat>,
    pub(super) calls: VecDeque<Call>,
    pub(super) next_session: u64,
}

/// What an ordered failure makes of a call.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nothing: it goes ahead.
    Proceed,
    /// It is refused, or its part on this topic is.
    Refuse { code: ErrorCode, retryable: bool, topic: Option<Topic> },
    /// It is done, or its part on this topic is, and nobody hears of it.
    LoseAnswer { topic: Option<Topic> },
}

impl Shared {
    pub(super) fn new(settings: MemorySettings) -> Self {
        Self { settings, state: Mutex::default(), changed: watch::Sender::new(()) }
    }

    /// The state, to be looked at. What changes it goes through [`with`](Self::with).
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done by a panic that would make the state unusable, and a test's panic is reported there.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, passes on what members are to know, and wakes whoever waits.
    pub(super) fn with<T>(self: &Arc<Self>, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = act(&mut state);
        let wakers = state.pass_on(self);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        self.changed.send_replace(());
        result
    }

    /// Sees every change of the state from now on.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The records' time.
    pub(super) fn wall_clock(&self) -> Timestamp {
        self.settings.clock.now()
    }

    /// Notes a call and lets it suffer what was ordered for it.
    pub(super) async fn begin(&self, call: Call) -> Verdict {
        match self.note(call) {
            None => Verdict::Proceed,
            Some((Effect::Refuse { code, retryable }, topic)) => Verdict::Refuse { code, retryable, topic },
            Some((Effect::LoseAnswer, topic)) => Verdict::LoseAnswer { topic },
            Some((Effect::Delay(wait), _)) => {
                tokio::time::sleep(wait).await;
                Verdict::Proceed
            }
            Some((Effect::Hang, _)) => std::future::pending().await,
        }
    }

    /// Notes a call and takes what was ordered for it.
    pub(super) fn note(&self, call: Call) -> Option<(Effect, Option<Topic>)> {
        let mut state = self.lock();
        let fault =
            call.operation().and_then(|operation| state.broker.faults.take(operation, call.group(), &call.topics()));
        if state.calls.len() >= self.settings.calls_kept {
            state.calls.pop_front();
        }
        if self.settings.calls_kept > 0 {
            state.calls.push_back(call);
        }
        fault
    }
}

impl State {
    /// Makes sure that a topic exists, if it may be made by using it.
    pub(super) fn ensure_topic(&mut self, topic: &Topic, settings: &MemorySettings) -> Result<i32, ErrorCode> {
        if let Some(count) = self.broker.partition_count(topic) {
            return Ok(count);
        }
        if !settings.auto_create_topics {
            return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        let partitions = settings.default_partitions.max(1);
        self.broker.create_topic(topic, partitions, TopicConfig::default(), now())?;
        Ok(partitions)
    }

    /// Ends a membership. Does nothing if it ended already.
    pub(super) fn leave(&mut self, key: &SeatKey) {
        if let Some(seat) = self.seats.get_mut(key).filter(|seat| !seat.ended) {
            seat.end();
            // It may have been the broker that ended it.
            let _ = self.broker.leave(&key.group, key.member, now());
        }
    }

    /// Gives every seat the events of its member, and takes the wakers of those that have something to do.
    fn pass_on(&mut self, shared: &Arc<Shared>) -> Vec<Waker> {
        let Self { broker, seats, .. } = self;
        let mut wakers = Vec::new();
        for (key, seat) in seats {
            for event in broker.take_events(&key.group, key.member) {
                seat.handle_event(key, event, broker, shared);
            }
            if seat.is_ready(broker, &shared.settings) {
                wakers.extend(seat.waker.take());
            }
        }
        wakers
    }
}

/// Time as tokio has it, so that a paused runtime moves deadlines.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The broker refused.
pub(super) fn refused(code: ErrorCode, what: impl std::fmt::Display) -> AdapterError {
    AdapterError::new(NAME, AdapterErrorKind::Refused, format_args!("{what}: {code}, {}", code.meaning()))
        .with_retryable(code.is_retriable())
        .with_source(code)
}

/// The answer was lost.
pub(super) fn lost_answer(what: impl std::fmt::Display) -> AdapterError {
    AdapterError::new(NAME, AdapterErrorKind::Unavailable, format_args!("{what}: no answer came"))
        .with_source(ErrorCode::REQUEST_TIMED_OUT)
}
