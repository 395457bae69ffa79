//! One adapter's dealings with the broker: whether it is open, and what is still under way.

use tokio::sync::watch;

#[derive(Debug)]
pub(super) struct Session {
    /// Told apart from the broker's other adapters.
    pub(super) id: u64,
    stage: watch::Sender<Stage>,
    publishing: watch::Sender<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// Nothing new is taken; what is under way goes on.
    Closing,
    Closed,
}

impl Session {
    pub(super) fn new(id: u64) -> Self {
        Self { id, stage: watch::Sender::new(Stage::Open), publishing: watch::Sender::new(0) }
    }

    pub(super) fn is_open(&self) -> bool {
        *self.stage.borrow() == Stage::Open
    }

    /// Counts a publish until what this gives is dropped; `None` if none is taken any more.
    pub(super) fn begin_publish(&self) -> Option<UnderWay> {
        self.publishing.send_modify(|count| *count += 1);
        // Counted first, so that a close that begins meanwhile waits for it.
        let under_way = UnderWay(self.publishing.clone());
        self.is_open().then_some(under_way)
    }

    /// Waits until nothing is being published; `false` if the adapter closed before.
    pub(super) async fn published(&self) -> bool {
        if *self.stage.borrow() == Stage::Closed {
            return false;
        }
        let mut publishing = self.publishing.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as `self`.
            idle = publishing.wait_for(|count| *count == 0) => idle.is_ok(),
            () = self.closed() => false,
        }
    }

    /// Takes nothing new from now on; `false` if that was so already.
    pub(super) fn begin_close(&self) -> bool {
        self.stage.send_if_modified(|stage| {
            let was_open = *stage == Stage::Open;
            if was_open {
                *stage = Stage::Closing;
            }
            was_open
        })
    }

    /// Stops what is still under way.
    pub(super) fn end(&self) {
        self.stage.send_replace(Stage::Closed);
    }

    /// Waits until [`end`](Self::end).
    pub(super) async fn closed(&self) {
        // The sender lives as long as `self`.
        let _ = self.stage.subscribe().wait_for(|stage| *stage == Stage::Closed).await;
    }
}

/// A publish that is not done.
#[derive(Debug)]
pub(super) struct UnderWay(watch::Sender<usize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
