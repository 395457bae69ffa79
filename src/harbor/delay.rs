//! The partitions that wait until the record at hand is due.
//!
//! A record that is not due parks its partition: the partition is paused, its offset and the due time are
//! remembered, and reading goes on at that offset when the time has come. Nobody sleeps meanwhile, and memory does not
//! grow with what waits.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Instant;

use crate::record::Offset;

/// The partitions that wait, by the time at which each is due.
///
/// ```text
///            park                     poll_due, once its time has come
///   running ──────► parked(offset) ───────────────────────────────────► running, from offset
///                      │ forget (revoked, lost, stopping)
///                      ▼
///                    gone
/// ```
#[derive(Debug)]
pub(crate) struct DelayQueue<K> {
    parked: HashMap<K, Parked>,
    by_due: BTreeMap<(Instant, u64), K>,
    parked_so_far: u64,
}

#[derive(Debug, Clone, Copy)]
struct Parked {
    offset: Offset,
    slot: (Instant, u64),
}

impl<K: Copy + Eq + Hash> DelayQueue<K> {
    pub(crate) fn new() -> Self {
        Self { parked: HashMap::new(), by_due: BTreeMap::new(), parked_so_far: 0 }
    }

    /// Parks a partition until `due`; reading goes on at `offset`. A partition parked already is parked anew.
    pub(crate) fn park(&mut self, partition: K, offset: Offset, due: Instant) {
        self.forget(partition);
        let slot = (due, self.parked_so_far);
        self.parked_so_far += 1;
        self.parked.insert(partition, Parked { offset, slot });
        self.by_due.insert(slot, partition);
    }

    /// Forgets a partition that goes: its timer will not fire.
    pub(crate) fn forget(&mut self, partition: K) {
        if let Some(parked) = self.parked.remove(&partition) {
            self.by_due.remove(&parked.slot);
        }
    }

    /// The next partition that is due and where it goes on. Call until it returns `None`.
    pub(crate) fn poll_due(&mut self, now: Instant) -> Option<(K, Offset)> {
        let entry = self.by_due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let partition = entry.remove();
        let parked = self.parked.remove(&partition)?;
        Some((partition, parked.offset))
    }

    /// When to call [`Self::poll_due`] next. Changes with every other call.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.by_due.first_key_value().map(|((due, _), _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn partitions_come_back_in_the_order_they_are_due_and_each_once() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut queue = DelayQueue::new();
        queue.park('a', Offset(7), at(9));
        queue.park('b', Offset(3), at(4));
        queue.park('c', Offset(1), at(4));
        assert_eq!(queue.poll_timeout(), Some(at(4)));
        assert_eq!(queue.poll_due(at(3)), None);
        assert_eq!(queue.poll_due(at(4)), Some(('b', Offset(3))));
        assert_eq!(queue.poll_due(at(4)), Some(('c', Offset(1))), "first parked, first out");
        assert_eq!(queue.poll_due(at(4)), None);
        assert_eq!(queue.poll_timeout(), Some(at(9)));
        queue.forget('a');
        assert_eq!(queue.poll_timeout(), None);
        assert_eq!(queue.poll_due(at(100)), None, "what was revoked does not come back");
    }

    proptest! {
        #[test]
        fn nothing_is_early_forgotten_or_doubled(
            steps in prop::collection::vec((0_u8..4, 0_u8..6, 0_u64..50), 1..80),
        ) {
            let start = Instant::now();
            let mut now = start;
            let mut queue = DelayQueue::new();
            let mut model: HashMap<u8, (Offset, Instant)> = HashMap::new();
            for (index, (step, partition, millis)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        let (offset, due) = (Offset(index as i64), now + Duration::from_millis(millis));
                        queue.park(partition, offset, due);
                        model.insert(partition, (offset, due));
                    }
                    2 => {
                        queue.forget(partition);
                        model.remove(&partition);
                    }
                    _ => {
                        now += Duration::from_millis(millis);
                        while let Some((partition, offset)) = queue.poll_due(now) {
                            let (expected, due) = model.remove(&partition).expect("only what is parked comes back");
                            prop_assert_eq!(offset, expected);
                            prop_assert!(due <= now, "early by {:?}", due - now);
                        }
                        prop_assert!(model.values().all(|(_, due)| *due > now), "due and not returned");
                    }
                }
                prop_assert_eq!(queue.poll_timeout(), model.values().map(|(_, due)| *due).min());
            }
        }
    }
}
