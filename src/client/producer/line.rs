//! Senders that have to wait, in a line a topic.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::record::Topic;

/// Keeps the senders of a topic in the order in which they came, once one of them has to wait for the topic's partitions or for
/// memory: whoever comes after must not append before.
///
/// ```text
///   nobody waits   append at once
///   somebody does  stand in line ──► turn ──► wait for partitions, memory ──► append ──► the next one's turn
/// ```
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Senders in all lines. Usually none, which a sender learns by one load.
    senders: AtomicUsize,
    lines: Mutex<HashMap<Topic, Line>>,
}

#[derive(Debug)]
struct Line {
    senders: usize,
    /// Given in the order in which it was asked for.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Lines {
    /// Whether a sender of this topic is in line.
    #[inline]
    pub(super) fn is_standing(&self, topic: &Topic) -> bool {
        self.senders.load(Ordering::Acquire) > 0 && self.lines().contains_key(topic)
    }

    /// Takes a place at the end of the topic's line, and gives it up when dropped.
    pub(super) fn stand(&self, topic: &Topic) -> Place<'_> {
        let mut lines = self.lines();
        let line = lines.entry(topic.clone()).or_insert_with(|| Line { senders: 0, turn: Arc::default() });
        line.senders += 1;
        self.senders.fetch_add(1, Ordering::AcqRel);
        let turn = line.turn.clone();
        Place { lines: self, topic: topic.clone(), turn, held: None }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Topic, Line>> {
        // Counts alone change under the lock.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sender's place in a line.
#[derive(Debug)]
pub(super) struct Place<'a> {
    lines: &'a Lines,
    topic: Topic,
    turn: Arc<tokio::sync::Mutex<()>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Place<'_> {
    /// Waits until all who came before have gone.
    pub(super) async fn reached(&mut self) {
        if self.held.is_none() {
            self.held = Some(self.turn.clone().lock_owned().await);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.lines.lines();
        if let Some(line) = lines.get_mut(&self.topic) {
            line.senders -= 1;
            if line.senders == 0 {
                lines.remove(&self.topic);
            }
        }
        self.lines.senders.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_served_in_order_and_gone_when_nobody_is_left() {
        let lines = Arc::new(Lines::default());
        let (busy, quiet) = (Topic::from("busy"), Topic::from("quiet"));
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut first = lines.stand(&busy);
        first.reached().await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (lines, busy, served) = (lines.clone(), busy.clone(), served.clone());
            tasks.spawn(async move {
                let mut place = lines.stand(&busy);
                place.reached().await;
                served.lock().unwrap().push(number);
            });
            tokio::task::yield_now().await;
        }
        // One in the middle gives up.
        let mut given_up = Box::pin(async {
            let mut place = lines.stand(&busy);
            place.reached().await;
        });
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(given_up.as_mut().poll(cx).is_pending())).await);
        drop(given_up);
        assert!(lines.is_standing(&busy) && !lines.is_standing(&quiet));
        assert!(served.lock().unwrap().is_empty());
        drop(first);
        while tasks.join_next().await.is_some() {}
        assert_eq!(*served.lock().unwrap(), (0..20).collect::<Vec<_>>());
        assert!(!lines.is_standing(&busy));
        assert!(lines.lines().is_empty());
    }
}
