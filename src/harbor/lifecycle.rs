//! The life of a consumer, from idle to stopped, and how it is asked to stop.
//!
//! ```text
//!            start            joined             stop, abort, crash          left the group
//!   idle ──────────► starting ──────► running ──────────────────► stopping ────────────────► stopped
//!    │                  └── start failed, or stopped meanwhile ────────────────────────────────►│
//!    └── stop ───────────────────────────────────────────────────────────────────────────────────►│
//! ```
//!
//! A consumer that has stopped does not start again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::adapter::AdapterError;
use crate::harbor::error::HarborError;
use crate::observe::StopReason;

/// Where a consumer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConsumerStatus {
    /// Not started.
    Idle,
    /// Connecting, preparing topics, joining the group.
    Starting,
    /// A member of its group, handling what comes.
    Running,
    /// Waiting for what is being handled; nothing new begins.
    Stopping,
    /// Over for good.
    Stopped,
}

/// A consumer's state, shared by its handle and its pipeline. The pipeline alone moves it on from `Starting`.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    standing: watch::Sender<Standing>,
    request: watch::Sender<Option<StopRequest>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Standing {
    pub(crate) status: ConsumerStatus,
    /// Why it stops or stopped; `None` also for one that never began.
    pub(crate) because: Option<StopReason>,
    /// How stopping ended.
    ending: Option<Ending>,
    /// When it was last told that no broker lets it in.
    locked_out_at: Option<Instant>,
}

/// How stopping ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending {
    /// Deliveries that were given up.
    pub(crate) in_flight: usize,
    /// How long was waited for them.
    pub(crate) waited: Duration,
    /// Why the group could not be left.
    pub(crate) leaving: Option<Arc<AdapterError>>,
}

impl Ending {
    /// What whoever asked to stop is told.
    ///
    /// # Errors
    /// When deliveries were given up, or the group could not be left.
    pub(crate) fn result(&self) -> Result<(), HarborError> {
        if self.in_flight > 0 {
            return Err(HarborError::ShutdownTimeout { in_flight: self.in_flight, waited: self.waited });
        }
        self.leaving.clone().map_or(Ok(()), |error| Err(HarborError::Adapter(error)))
    }
}

/// What a pipeline is asked to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StopRequest {
    /// When to give up what is still being handled.
    pub(crate) deadline: Instant,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        let idle = Standing { status: ConsumerStatus::Idle, because: None, ending: None, locked_out_at: None };
        Self { standing: watch::Sender::new(idle), request: watch::Sender::new(None) }
    }

    pub(crate) fn status(&self) -> ConsumerStatus {
        self.standing.borrow().status
    }

    /// Why it stops or stopped.
    pub(crate) fn because(&self) -> Option<StopReason> {
        self.standing.borrow().because
    }

    /// Whether no broker lets it in, by what was told last: that is told again and again while it lasts.
    pub(crate) fn is_locked_out(&self) -> bool {
        self.standing.borrow().locked_out_at.is_some_and(|at| at.elapsed() < LOCKED_OUT_FOR)
    }

    /// It was told that no broker lets it in.
    pub(crate) fn locked_out(&self) {
        self.standing.send_modify(|standing| standing.locked_out_at = Some(Instant::now()));
    }

    /// From idle to starting. False when it is not idle.
    pub(crate) fn begin(&self) -> bool {
        self.standing.send_if_modified(|standing| {
            let idle = standing.status == ConsumerStatus::Idle;
            if idle {
                standing.status = ConsumerStatus::Starting;
            }
            idle
        })
    }

    /// From starting to running.
    pub(crate) fn run(&self) {
        self.standing.send_modify(|standing| standing.status = ConsumerStatus::Running);
    }

    /// To stopping. The reason is known from here on.
    pub(crate) fn stopping(&self, because: StopReason) {
        self.standing.send_modify(|standing| {
            standing.status = ConsumerStatus::Stopping;
            standing.because = Some(because);
        });
    }

    /// To stopped.
    pub(crate) fn stopped(&self, ending: Ending) {
        self.standing.send_modify(|standing| {
            standing.status = ConsumerStatus::Stopped;
            standing.ending = Some(ending);
        });
    }

    /// Asks the pipeline to stop. The first request counts; an idle consumer stops at once.
    pub(crate) fn ask_to_stop(&self, timeout: Duration) {
        let idle = self.standing.send_if_modified(|standing| {
            let idle = standing.status == ConsumerStatus::Idle;
            if idle {
                standing.status = ConsumerStatus::Stopped;
                standing.ending = Some(Ending::default());
            }
            idle
        });
        if !idle {
            let deadline = Instant::now() + timeout;
            self.request.send_if_modified(|request| {
                let first = request.is_none();
                request.get_or_insert(StopRequest { deadline });
                first
            });
        }
    }

    /// Waits until the pipeline is asked to stop.
    pub(crate) async fn asked_to_stop(&self) -> StopRequest {
        let mut asked = self.request.subscribe();
        let request = asked.wait_for(Option::is_some).await.ok().and_then(|request| *request);
        match request {
            Some(request) => request,
            // The sender is `self`, so this is not reached; waiting is what a pipeline that nobody asks does.
            None => std::future::pending().await,
        }
    }

    /// Waits until it has stopped, and how that ended.
    pub(crate) async fn ended(&self) -> Ending {
        self.wait().await.ending.unwrap_or_default()
    }

    async fn wait(&self) -> Standing {
        let mut standing = self.standing.subscribe();
        let stopped = standing.wait_for(|standing| standing.status == ConsumerStatus::Stopped).await;
        let stopped = stopped.map(|standing| standing.clone());
        match stopped {
            Ok(standing) => standing,
            // The sender is `self`.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Half again as long as an adapter takes to tell it anew.
const LOCKED_OUT_FOR: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_once() {
        let life = Lifecycle::new();
        assert!(life.begin());
        assert!(!life.begin());
        life.run();
        assert_eq!(life.status(), ConsumerStatus::Running);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_consumer_stops_at_once_and_for_no_reason() {
        let life = Lifecycle::new();
        life.ask_to_stop(Duration::ZERO);
        assert!(life.ended().await.result().is_ok());
        assert_eq!(life.because(), None);
        assert!(!life.begin(), "stopped for good");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_request_to_stop_counts() {
        let life = Lifecycle::new();
        life.begin();
        let first = Instant::now() + Duration::from_secs(5);
        life.ask_to_stop(Duration::from_secs(5));
        life.ask_to_stop(Duration::from_secs(60));
        assert_eq!(life.asked_to_stop().await.deadline, first);
    }

    #[tokio::test]
    async fn what_was_given_up_is_reported() {
        let life = Lifecycle::new();
        life.begin();
        life.stopping(StopReason::Shutdown);
        life.stopped(Ending { in_flight: 2, ..Ending::default() });
        let ended = life.ended().await.result();
        assert!(matches!(ended, Err(HarborError::ShutdownTimeout { in_flight: 2, .. })));
    }
}
