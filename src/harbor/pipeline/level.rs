//! A level's room: how many of its partitions are handled at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::harbor::pipeline::gate::Gate;

/// The room of one level. Every level has its own, so that none can starve another.
///
/// ```text
///   aside ──called in──► waiting ──enter──► at a place
///     ▲  reads nothing     holds batches      handles them
///     └──────────────── its turn is over ───────┘
/// ```
///
/// A partition that waits for a place holds what was read of it, and that is taken from the bytes that the other levels
/// could be read into. So only a few may wait; the others stand aside, paused, and are called in turn.
#[derive(Debug)]
pub(crate) struct Level {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Partitions with a worker, waiting or at a place.
    inside: AtomicUsize,
    most_inside: usize,
    aside: AtomicUsize,
}

impl Level {
    /// A level that handles this many partitions at once.
    pub(crate) fn new(concurrency: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(concurrency)),
            waiting: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            most_inside: concurrency.saturating_add(MOST_WAITING),
            aside: AtomicUsize::new(0),
        }
    }

    /// How many more partitions may hold what was read of them.
    pub(crate) fn room_left(&self) -> usize {
        self.most_inside.saturating_sub(self.inside.load(Ordering::Acquire))
    }

    /// A partition got a worker.
    pub(crate) fn came_in(&self) {
        self.inside.fetch_add(1, Ordering::AcqRel);
    }

    /// Its worker ended.
    pub(crate) fn went_out(&self) {
        self.inside.fetch_sub(1, Ordering::AcqRel);
    }

    /// This many partitions stand aside.
    pub(crate) fn set_aside(&self, partitions: usize) {
        self.aside.store(partitions, Ordering::Release);
    }

    /// Whether a partition stands aside.
    pub(crate) fn is_crowded(&self) -> bool {
        self.aside.load(Ordering::Acquire) > 0
    }

    /// Waits for a place, first come, first served. `None` when the partition's gate closed first.
    pub(crate) async fn enter(&self, gate: &Gate) -> Option<OwnedSemaphorePermit> {
        let place = match self.places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                let _waiting = Waiting::new(&self.waiting);
                tokio::select! {
                    biased;
                    () = gate.closed() => return None,
                    place = self.places.clone().acquire_owned() => place.ok()?,
                }
            }
        };
        // The gate may have closed while this one waited for its turn.
        gate.is_open().then_some(place)
    }

    /// Whether a partition waits for a place.
    pub(crate) fn is_contended(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// Counts one that waits, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Partitions that may wait for a place with what was read of them in hand: enough that the next begins at once.
const MOST_WAITING: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_given_in_turn_and_a_closing_partition_stops_waiting() {
        let level = Arc::new(Level::new(1));
        let gates: Vec<_> = (0..3).map(|_| Arc::new(Gate::new())).collect();
        let held = level.enter(&gates[0]).await.unwrap();
        let wait = |index: usize| {
            let (level, gate) = (level.clone(), gates[index].clone());
            tokio::spawn(async move { level.enter(&gate).await })
        };
        let (first, second) = (wait(1), wait(2));
        tokio::task::yield_now().await;
        assert!(level.is_contended());
        gates[1].close();
        assert!(first.await.unwrap().is_none());
        drop(held);
        assert!(second.await.unwrap().is_some());
        assert!(!level.is_contended());
    }
}
