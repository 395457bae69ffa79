//! The partitions of a level that stand aside, and whose turn it is.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Partitions without room at their level, first come, first called.
///
/// Room is kept for one that was called until something of it comes: else others would take it meanwhile, again and
/// again. But not for ever: its records may be gone, and then nothing comes.
#[derive(Debug)]
pub(crate) struct Aside<K> {
    waiting: VecDeque<K>,
    called: HashMap<K, Instant>,
}

impl<K: Copy + Eq + Hash> Aside<K> {
    pub(crate) fn new() -> Self {
        Self { waiting: VecDeque::new(), called: HashMap::new() }
    }

    /// A partition stands aside.
    pub(crate) fn push(&mut self, partition: K) {
        self.waiting.push_back(partition);
    }

    /// A partition goes.
    pub(crate) fn forget(&mut self, partition: K) {
        self.waiting.retain(|other| *other != partition);
        self.called.remove(&partition);
    }

    /// Something of a partition came. Whether there is room for it, of what the level has left.
    pub(crate) fn has_room(&mut self, partition: K, room_left: usize) -> bool {
        self.called.remove(&partition);
        room_left > self.called.len()
    }

    /// The next to call, of what room the level has left. Call until it returns `None`.
    pub(crate) fn poll_call(&mut self, now: Instant, room_left: usize) -> Option<K> {
        self.called.retain(|_, until| now < *until);
        if room_left <= self.called.len() {
            return None;
        }
        let partition = self.waiting.pop_front()?;
        self.called.insert(partition, now + ROOM_KEPT);
        Some(partition)
    }

    /// When to call [`Self::poll_call`] next, if not when room is left. Changes with every other call.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.waiting.is_empty() { None } else { self.called.values().copied().min() }
    }

    /// How many stand aside.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// How long room is kept for a partition that was called: a few round trips.
const ROOM_KEPT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_called_in_turn_and_room_is_kept_for_them() {
        let now = Instant::now();
        let mut aside = Aside::new();
        "abc".chars().for_each(|partition| aside.push(partition));
        assert_eq!(aside.poll_call(now, 0), None);
        assert_eq!(aside.poll_call(now, 1), Some('a'));
        assert_eq!(aside.poll_call(now, 1), None, "the room is a's");
        assert!(!aside.has_room('x', 1), "not a newcomer's");
        assert!(aside.has_room('a', 1));
        assert_eq!((aside.poll_call(now, 1), aside.len()), (Some('b'), 1));
        assert_eq!(aside.poll_timeout(), Some(now + ROOM_KEPT));
        assert_eq!(aside.poll_call(now + ROOM_KEPT, 1), Some('c'), "nothing of b came");
        assert_eq!(aside.poll_timeout(), None, "nobody waits");
    }

    #[test]
    fn one_that_goes_is_not_called_and_keeps_no_room() {
        let now = Instant::now();
        let mut aside = Aside::new();
        "abc".chars().for_each(|partition| aside.push(partition));
        assert_eq!(aside.poll_call(now, 1), Some('a'));
        aside.forget('a');
        aside.forget('b');
        assert_eq!(aside.poll_call(now, 1), Some('c'));
    }
}
