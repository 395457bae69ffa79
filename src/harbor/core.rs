//! What all parts of one harbor share: the adapter and its connection, names, clocks, listeners.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::adapter::{Adapter, AdapterError, AdapterErrorKind};
use crate::clock::Clock;
use crate::harbor::error::{HarborError, code};
use crate::harbor::guard;
use crate::harbor::headers::Stamper;
use crate::harbor::lag::{self, SingleFlight};
use crate::harbor::lifecycle::Ending;
use crate::harbor::roster::Roster;
use crate::harbor::signals::SignalTask;
use crate::observe::{Connected, Disconnected, ErrorInfo, ErrorReported, ErrorScope, Observers};
use crate::retry::RetryPolicy;

/// What all parts of one harbor share.
pub(crate) struct Core {
    pub(crate) client_id: Arc<str>,
    pub(crate) adapter: Arc<dyn Adapter>,
    pub(crate) stamper: Stamper,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Observers,
    /// For hops and redrives.
    pub(crate) produce_retry: RetryPolicy,
    /// The round of lags under way.
    pub(crate) lag: SingleFlight<lag::Round>,
    pub(crate) consumers: Roster,
    state: watch::Sender<State>,
    guests: watch::Sender<usize>,
    signals: Mutex<Option<SignalTask>>,
}

/// Where a harbor stands.
///
/// ```text
///           connect               reached
///   idle ────────────► connecting ───────► connected
///    │ ◄──── failed ────────┘                  │
///    └──────────────── shutdown ───────────────┴──► closing ──► closed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HarborStatus {
    /// Not connected: the broker is reached at the first need.
    Idle,
    /// Reaching the broker.
    Connecting,
    /// The broker was reached. What becomes of the connection later is the adapter's to mend.
    Connected,
    /// Shutting down.
    Closing,
    /// Over for good.
    Closed,
}

#[derive(Debug)]
enum State {
    /// With how the last attempt failed, for those who waited for it.
    Idle(Option<Arc<AdapterError>>),
    Connecting,
    Connected,
    Closing,
    Closed(Ending),
}

impl State {
    fn status(&self) -> HarborStatus {
        match self {
            Self::Idle(_) => HarborStatus::Idle,
            Self::Connecting => HarborStatus::Connecting,
            Self::Connected => HarborStatus::Connected,
            Self::Closing => HarborStatus::Closing,
            Self::Closed(_) => HarborStatus::Closed,
        }
    }
}

impl Core {
    pub(crate) fn new(
        client_id: Arc<str>,
        adapter: Arc<dyn Adapter>,
        stamper: Stamper,
        clock: Arc<dyn Clock>,
        observers: Observers,
        produce_retry: RetryPolicy,
    ) -> Self {
        Self {
            client_id,
            adapter,
            stamper,
            clock,
            observers,
            produce_retry,
            lag: SingleFlight::default(),
            consumers: Roster::default(),
            state: watch::Sender::new(State::Idle(None)),
            guests: watch::Sender::new(0),
            signals: Mutex::default(),
        }
    }

    /// Where it stands.
    pub(crate) fn status(&self) -> HarborStatus {
        self.state.borrow().status()
    }

    /// Refuses once a shutdown has begun.
    ///
    /// # Errors
    /// [`HarborError::Closed`].
    pub(crate) fn check_open(&self) -> Result<(), HarborError> {
        match self.status() {
            HarborStatus::Closing | HarborStatus::Closed => Err(closed()),
            _ => Ok(()),
        }
    }

    /// Waits until a shutdown begins.
    pub(crate) async fn closing(&self) {
        let mut state = self.state.subscribe();
        let begun = |state: &State| matches!(state, State::Closing | State::Closed(_));
        // The sender lives as long as this.
        let _ = state.wait_for(begun).await;
    }

    /// Counts work that is no consumer's: a shutdown waits, within its time, until the guest is dropped. The work is
    /// to end once [`closing`](Self::closing) does.
    pub(crate) fn guest(self: &Arc<Self>) -> Guest {
        self.guests.send_modify(|guests| *guests += 1);
        Guest(self.clone())
    }

    /// Has this task, and no other, wait for signals.
    pub(super) fn set_signals(&self, task: Option<SignalTask>) {
        *lock(&self.signals) = task;
    }

    /// Reaches the broker, once for all who ask. A failed attempt leaves the harbor idle: the next one tries again.
    ///
    /// # Cancel safety
    /// Dropping the future does not end the attempt.
    ///
    /// # Errors
    /// What the adapter said, or that it panicked; [`HarborError::Closed`].
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<(), HarborError> {
        let mut state = self.state.subscribe();
        self.state.send_if_modified(|state| {
            let idle = matches!(state, State::Idle(_));
            if idle {
                *state = State::Connecting;
                tokio::spawn(self.clone().attempt());
            }
            idle
        });
        let Ok(state) = state.wait_for(|state| !matches!(state, State::Connecting)).await else {
            return Err(closed());
        };
        match &*state {
            State::Connected => Ok(()),
            State::Idle(Some(error)) => Err(HarborError::Adapter(error.clone())),
            _ => Err(closed()),
        }
    }

    async fn attempt(self: Arc<Self>) {
        let attempt = Attempt(Some(self.clone()));
        let result = guard::port(&*self.adapter, "connecting", |adapter| adapter.connect()).await.map_err(Arc::new);
        let in_time = attempt.came_to(&result);
        match result {
            Ok(()) if in_time => self.observers.connected(&Connected { adapter: self.adapter.name() }),
            // A shutdown did not wait for it: what it opened is let go.
            Ok(()) => {
                if let Err(error) = self.close_adapter(SHORTEST_CLOSE).await {
                    tracing::warn!(%error, "a connection that came too late was not closed in order");
                }
            }
            Err(error) => self.report_adapter(&error),
        }
    }

    /// Stops every consumer, then lets go of the broker. Once for all who ask.
    pub(crate) async fn shutdown(self: &Arc<Self>, timeout: Duration) -> Result<(), HarborError> {
        let mut state = self.state.subscribe();
        self.state.send_if_modified(|state| {
            let was = state.status();
            if matches!(was, HarborStatus::Closing | HarborStatus::Closed) {
                return false;
            }
            *state = State::Closing;
            tokio::spawn(self.clone().close(was, timeout));
            true
        });
        let ended = state.wait_for(|state| matches!(state, State::Closed(_))).await;
        match ended.as_deref() {
            Ok(State::Closed(ending)) => ending.result(),
            _ => Ok(()),
        }
    }

    /// An attempt to connect is over. Tells whether that was still waited for.
    fn attempted(&self, result: &Result<(), Arc<AdapterError>>) -> bool {
        self.state.send_if_modified(|state| {
            let in_time = matches!(state, State::Connecting);
            if in_time {
                *state = match result {
                    Ok(()) => State::Connected,
                    Err(error) => State::Idle(Some(error.clone())),
                };
            }
            in_time
        })
    }

    async fn close_adapter(&self, timeout: Duration) -> Result<(), AdapterError> {
        guard::port(&*self.adapter, "closing", |adapter| adapter.close(timeout)).await
    }

    async fn close(self: Arc<Self>, was: HarborStatus, timeout: Duration) {
        let closing = Closing(self.clone());
        let deadline = Instant::now() + timeout;
        self.set_signals(None);
        let consumers = self.consumers.consumers();
        for consumer in &consumers {
            consumer.life.ask_to_stop(timeout);
        }
        let mut ending = Ending::default();
        for consumer in &consumers {
            let ended = consumer.life.ended().await;
            if ending.result().is_ok() {
                ending = ended;
            }
        }
        let mut guests = self.guests.subscribe();
        if tokio::time::timeout_at(deadline, guests.wait_for(|guests| *guests == 0)).await.is_err() {
            tracing::warn!("a redrive was still at work when the shutdown's time was up");
        }
        if matches!(was, HarborStatus::Connecting | HarborStatus::Connected) {
            let left = deadline.saturating_duration_since(Instant::now()).max(SHORTEST_CLOSE);
            if let Err(error) = self.close_adapter(left).await {
                self.report_adapter(&error);
                ending.leaving.get_or_insert_with(|| Arc::new(error));
            }
        }
        if was == HarborStatus::Connected {
            self.observers.disconnected(&Disconnected { adapter: self.adapter.name() });
        }
        closing.came_to(ending);
    }

    /// Something went wrong between us and the broker.
    pub(crate) fn report_adapter(&self, error: &AdapterError) {
        let text = error.to_string();
        let error =
            ErrorInfo { error, name: "AdapterError", code: code::ADAPTER, text: &text, retryable: error.retryable };
        self.observers.error(&ErrorReported { error, scope: ErrorScope::Adapter, group: None, topic: None });
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("client_id", &self.client_id)
            .field("adapter", &self.adapter)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// An attempt to connect. One that ends with its runtime would leave the harbor connecting for ever.
struct Attempt(Option<Arc<Core>>);

impl Attempt {
    fn came_to(mut self, result: &Result<(), Arc<AdapterError>>) -> bool {
        self.0.take().is_some_and(|core| core.attempted(result))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            let what = "connecting: its runtime ended first";
            let error = AdapterError::new(core.adapter.name(), AdapterErrorKind::Unavailable, what);
            core.attempted(&Err(Arc::new(error)));
        }
    }
}

/// A shutdown under way. One that ends with its runtime would leave the harbor closing for ever.
struct Closing(Arc<Core>);

impl Closing {
    fn came_to(self, ending: Ending) {
        self.0.state.send_replace(State::Closed(ending));
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.state.send_if_modified(|state| {
            let unfinished = !matches!(state, State::Closed(_));
            if unfinished {
                *state = State::Closed(Ending::default());
            }
            unfinished
        });
    }
}

/// See [`Core::guest`].
#[derive(Debug)]
pub(crate) struct Guest(Arc<Core>);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.guests.send_modify(|guests| *guests -= 1);
    }
}

fn closed() -> HarborError {
    HarborError::Closed { what: "the harbor" }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Even a shutdown whose time is up closes its connections in order.
const SHORTEST_CLOSE: Duration = Duration::from_secs(1);
