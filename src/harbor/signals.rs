//! Shutting down when the process is told to end.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::harbor::core::Core;

/// Takes the signal handlers of a harbor away again. Dropping it leaves them in place.
#[derive(Debug)]
pub struct SignalHandlers(AbortHandle);

impl SignalHandlers {
    /// Signals do not shut the harbor down any more. Does nothing if newer handlers have replaced these.
    ///
    /// The signals' default meaning does not come back: tokio keeps its handlers once they are set.
    pub fn remove(self) {
        self.0.abort();
    }
}

/// The task that waits for signals. Dropped, it waits no longer.
#[derive(Debug)]
pub(crate) struct SignalTask(AbortHandle);

impl Drop for SignalTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for the process to be told to end, then shuts the harbor down.
pub(crate) fn listen(core: &Arc<Core>, timeout: Duration) -> io::Result<(SignalTask, SignalHandlers)> {
    let mut told = Told::listen()?;
    let harbor: Weak<Core> = Arc::downgrade(core);
    let task = tokio::spawn(async move {
        let signal = told.next().await;
        let Some(core) = harbor.upgrade() else { return };
        tracing::info!(signal, "shutting down");
        // On its own: the shutdown ends this task.
        tokio::spawn(async move {
            if let Err(error) = core.shutdown(timeout).await {
                tracing::error!(%error, "the shutdown left something behind");
            }
        });
    });
    Ok((SignalTask(task.abort_handle()), SignalHandlers(task.abort_handle())))
}

#[cfg(unix)]
struct Told {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Told {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(not(unix))]
struct Told;

#[cfg(not(unix))]
impl Told {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            Err(_) => std::future::pending().await,
        }
    }
}
