//! Whether a partition's deliveries may begin, and whether what ends still counts.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// A partition's gate. It only ever closes.
///
/// ```text
///   open ──close──► closing ──cut──► cut
///    │   revoked,     a delivery that runs may end and is committed;     lost, or given up by a shutdown:
///    │   stopping     none begins                                        whatever ends is ignored
///    └───────────────────────cut─────────────────────────►
/// ```
///
/// The worker asks before each delivery, and the driver waits for the worker after it has closed the gate: there
/// is no moment at which a delivery is neither refused nor waited for.
#[derive(Debug)]
pub(crate) struct Gate {
    state: AtomicU8,
    changed: Notify,
}

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CUT: u8 = 2;

impl Gate {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(OPEN), changed: Notify::new() }
    }

    /// Whether a delivery may begin.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Whether what ends is ignored.
    pub(crate) fn is_cut(&self) -> bool {
        self.state.load(Ordering::Acquire) == CUT
    }

    /// No delivery begins any more.
    pub(crate) fn close(&self) {
        self.move_to(CLOSING);
    }

    /// What ends from now on is ignored.
    pub(crate) fn cut(&self) {
        self.move_to(CUT);
    }

    /// Waits until no delivery may begin.
    pub(crate) async fn closed(&self) {
        self.reached(CLOSING).await;
    }

    /// Waits until what ends is ignored.
    pub(crate) async fn was_cut(&self) {
        self.reached(CUT).await;
    }

    fn move_to(&self, state: u8) {
        if self.state.fetch_max(state, Ordering::AcqRel) < state {
            self.changed.notify_waiters();
        }
    }

    async fn reached(&self, state: u8) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the state is read, so that a change in between is not missed.
            changed.as_mut().enable();
            if self.state.load(Ordering::Acquire) >= state {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn it_only_ever_closes_and_wakes_those_who_wait() {
        let gate = Arc::new(Gate::new());
        let wait = |cut: bool| {
            let gate = gate.clone();
            tokio::spawn(async move { if cut { gate.was_cut().await } else { gate.closed().await } })
        };
        let (closed, cut) = (wait(false), wait(true));
        tokio::task::yield_now().await;
        assert!(gate.is_open() && !closed.is_finished());
        gate.close();
        closed.await.unwrap();
        tokio::task::yield_now().await;
        assert!(!gate.is_open() && !gate.is_cut() && !cut.is_finished());
        gate.cut();
        cut.await.unwrap();
        gate.close();
        assert!(gate.is_cut(), "a cut is not taken back");
    }
}
