//! A signal that a delivery is to end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Tells a handler to end: its time is up, its partition was lost, or a shutdown gave it up. Whatever it returns
/// afterwards, its record is not committed by it (a handler that succeeds within the grace after its time was up counts
/// as done). Cheap to clone; fires once.
///
/// ```
/// # use kafka_harbor::harbor::{CancelSignal, Failure};
/// # async fn query() -> Result<(), Failure> { Ok(()) }
/// async fn handle(cancel: CancelSignal) -> Result<(), Failure> {
///     tokio::select! {
///         answer = query() => answer,
///         () = cancel.cancelled() => Err(Failure::new("given up")),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct CancelSignal(Arc<Inner>);

struct Inner {
    fired: AtomicBool,
    notify: Notify,
}

impl CancelSignal {
    /// A signal that has not fired, for calling a handler without a harbor.
    pub fn new() -> Self {
        Self(Arc::new(Inner { fired: AtomicBool::new(false), notify: Notify::new() }))
    }

    /// Whether it has fired.
    pub fn is_cancelled(&self) -> bool {
        self.0.fired.load(Ordering::Acquire)
    }

    /// Waits until it fires.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn cancelled(&self) {
        let notified = self.0.notify.notified();
        tokio::pin!(notified);
        // Registered before the flag is read, so that firing in between is not missed.
        notified.as_mut().enable();
        if !self.is_cancelled() {
            notified.await;
        }
    }

    /// Fires it.
    pub fn cancel(&self) {
        self.0.fired.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }
}

impl Default for CancelSignal {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancelSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelSignal").field("cancelled", &self.is_cancelled()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_wakes_those_who_wait_and_those_who_come_later() {
        let signal = CancelSignal::new();
        let waiting = tokio::spawn({
            let signal = signal.clone();
            async move { signal.cancelled().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && !signal.is_cancelled());
        signal.cancel();
        waiting.await.unwrap();
        signal.cancelled().await;
        assert!(signal.is_cancelled());
    }
}
