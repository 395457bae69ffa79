//! What may be committed, and when.
//!
//! Two machines. A [`Tracker`] a partition knows which offset everything before is finished; a record that is on its
//! way to another topic holds it back until it is acknowledged. One [`Committer`] a membership gathers those
//! offsets: one commit is under way at a time, and the next carries all that finished meanwhile.
//!
//! ```text
//!   Tracker (a partition)                Committer (a membership)
//!   finish_to ──┐                        mark ──► wanted ──poll_commit──► under way ──handle_commit──► committed
//!   hop acked ──┴─► committable ───────►            ▲                         │ failed: later, with
//!                                                   └─────────────────────────┘ what finished since
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::record::Offset;

/// What is finished on one partition.
///
/// Deliveries of a partition run in order, so all that is known of them is one offset. Hops may be acknowledged in
/// any order; the first that is not holds back everything after it.
#[derive(Debug)]
pub(crate) struct Tracker {
    finished: Offset,
    /// Hops that left, oldest first. The first is never acknowledged.
    hops: VecDeque<(Offset, HopState)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HopState {
    UnderWay,
    Acknowledged,
    /// Not to be acknowledged any more: nothing from here on is committed.
    Failed,
}

impl Tracker {
    /// A partition on which everything before `position` is finished.
    pub(crate) fn new(position: Offset) -> Self {
        Self { finished: position, hops: VecDeque::new() }
    }

    /// The record at `offset` left for another topic. To be called before [`Self::finish_to`] passes it.
    pub(crate) fn hop_left(&mut self, offset: Offset) {
        self.hops.push_back((offset, HopState::UnderWay));
    }

    /// The hop of the record at `offset` was acknowledged.
    pub(crate) fn hop_acknowledged(&mut self, offset: Offset) {
        self.end_hop(offset, HopState::Acknowledged);
        while self.hops.front().is_some_and(|(_, state)| *state == HopState::Acknowledged) {
            self.hops.pop_front();
        }
    }

    /// The hop of the record at `offset` was given up: it stays in the way of every commit.
    pub(crate) fn hop_failed(&mut self, offset: Offset) {
        self.end_hop(offset, HopState::Failed);
    }

    /// Whether a hop was given up, so that nothing from it on will be committed.
    pub(crate) fn has_failed(&self) -> bool {
        self.hops.iter().any(|(_, state)| *state == HopState::Failed)
    }

    fn end_hop(&mut self, offset: Offset, state: HopState) {
        if let Some(hop) = self.hops.iter_mut().find(|(at, _)| *at == offset) {
            hop.1 = state;
        }
    }

    /// Every delivery before `next` is over: done, passed over, or on its way as a hop.
    pub(crate) fn finish_to(&mut self, next: Offset) {
        self.finished = self.finished.max(next);
    }

    /// The offset that may be committed: nothing before it is unfinished.
    pub(crate) fn committable(&self) -> Offset {
        self.hops.front().map_or(self.finished, |(offset, _)| self.finished.min(*offset))
    }

    /// Hops that hold something back: those not acknowledged, and those acknowledged that stand behind one.
    pub(crate) fn hops_open(&self) -> usize {
        self.hops.len()
    }

    /// Hops whose answer is still to come.
    pub(crate) fn hops_under_way(&self) -> usize {
        self.hops.iter().filter(|(_, state)| *state == HopState::UnderWay).count()
    }
}

/// Gathers what the partitions of a membership have finished into commits.
#[derive(Debug)]
pub(crate) struct Committer<K> {
    partitions: BTreeMap<K, Standing>,
    /// Partitions with something wanted that is not under way.
    waiting: usize,
    under_way: bool,
    /// Not before this time: the pause between two commits, or after one that failed.
    not_before: Option<Instant>,
    gap: Duration,
    failures: u32,
}

#[derive(Debug, Clone, Copy)]
struct Standing {
    committed: Option<Offset>,
    wanted: Option<Offset>,
    under_way: Option<Offset>,
}

/// What became of one partition's part of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Committed<K> {
    pub(crate) partition: K,
    /// The offset that was to be committed.
    pub(crate) offset: Offset,
    pub(crate) landed: bool,
}

impl<K: Copy + Ord> Committer<K> {
    /// Commits start at least `gap` apart.
    pub(crate) fn new(gap: Duration) -> Self {
        Self { partitions: BTreeMap::new(), waiting: 0, under_way: false, not_before: None, gap, failures: 0 }
    }

    /// A partition came. Offsets up to `committed` are not worth a commit.
    pub(crate) fn open(&mut self, partition: K, committed: Option<Offset>) {
        self.close(partition);
        self.partitions.insert(partition, Standing { committed, wanted: None, under_way: None });
    }

    /// A partition went: nothing of it will be committed any more, beyond what is under way.
    pub(crate) fn close(&mut self, partition: K) {
        if self.partitions.remove(&partition).is_some_and(|standing| standing.wanted.is_some()) {
            self.waiting -= 1;
        }
    }

    /// Everything before `offset` is finished. What is committed or wanted already is no news.
    pub(crate) fn mark(&mut self, partition: K, offset: Offset) {
        let Some(standing) = self.partitions.get_mut(&partition) else { return };
        let known = standing.committed.max(standing.wanted).max(standing.under_way);
        if known.is_some_and(|known| offset <= known) {
            return;
        }
        if standing.wanted.replace(offset).is_none() {
            self.waiting += 1;
        }
    }

    /// Whether a commit may start now. What finished is best marked just before, all at once.
    pub(crate) fn may_start(&self, now: Instant) -> bool {
        !self.under_way && self.not_before.is_none_or(|time| now >= time)
    }

    /// The next commit, if one may start now. Its result is to be told to [`Self::handle_commit`].
    pub(crate) fn poll_commit(&mut self, now: Instant) -> Option<Vec<(K, Offset)>> {
        if self.waiting == 0 || !self.may_start(now) {
            return None;
        }
        let positions = self.partitions.iter_mut().filter_map(|(partition, standing)| {
            standing.under_way = standing.wanted.take();
            Some((*partition, standing.under_way?))
        });
        let positions: Vec<_> = positions.collect();
        self.waiting = 0;
        self.under_way = true;
        self.not_before = Some(now + self.gap);
        Some(positions)
    }

    /// The commit that was under way ended; `failed` names the partitions whose position did not land.
    /// Those are wanted again, after a pause that doubles with each failure in a row.
    pub(crate) fn handle_commit(&mut self, now: Instant, failed: &[K]) -> Vec<Committed<K>> {
        self.under_way = false;
        let mut results = Vec::new();
        for (partition, standing) in &mut self.partitions {
            let Some(offset) = standing.under_way.take() else { continue };
            let landed = !failed.contains(partition);
            results.push(Committed { partition: *partition, offset, landed });
            if landed {
                standing.committed = standing.committed.max(Some(offset));
            } else if standing.wanted.is_none() {
                standing.wanted = Some(offset);
                self.waiting += 1;
            }
        }
        if failed.is_empty() {
            self.failures = 0;
        } else {
            let pause = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(LAST_RETRY);
            self.failures = self.failures.saturating_add(1);
            self.not_before = Some(now + pause);
        }
        results
    }

    /// What is committed of a partition.
    #[cfg(test)]
    fn committed(&self, partition: K) -> Option<Offset> {
        self.partitions.get(&partition).and_then(|standing| standing.committed)
    }

    /// Whether a partition has nothing left to commit.
    pub(crate) fn is_settled(&self, partition: K) -> bool {
        self.partitions.get(&partition).is_none_or(|standing| standing.wanted.is_none() && standing.under_way.is_none())
    }

    /// When to call [`Self::poll_commit`] next; `more` when there is something to mark by then. Changes with every
    /// other call.
    pub(crate) fn poll_timeout(&self, more: bool) -> Option<Instant> {
        if self.under_way || (self.waiting == 0 && !more) { None } else { self.not_before }
    }
}

/// The pauses after commits that failed: long enough not to press a coordinator that moves, short enough that the
/// last position of a quiet topic does not stay uncommitted.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GAP: Duration = Duration::from_millis(10);

    #[test]
    fn a_hop_that_is_not_acknowledged_holds_back_what_finished_after_it() {
        let mut tracker = Tracker::new(Offset(10));
        tracker.finish_to(Offset(12));
        tracker.hop_left(Offset(12));
        tracker.finish_to(Offset(13));
        tracker.hop_left(Offset(13));
        tracker.finish_to(Offset(20));
        assert_eq!(tracker.committable(), Offset(12));
        tracker.hop_acknowledged(Offset(13));
        assert_eq!((tracker.committable(), tracker.hops_open()), (Offset(12), 2));
        tracker.hop_acknowledged(Offset(12));
        assert_eq!((tracker.committable(), tracker.hops_open()), (Offset(20), 0));
    }

    #[test]
    fn a_hop_that_failed_is_never_committed_past_and_not_waited_for() {
        let mut tracker = Tracker::new(Offset(0));
        tracker.hop_left(Offset(0));
        tracker.finish_to(Offset(1));
        tracker.hop_left(Offset(1));
        tracker.finish_to(Offset(2));
        tracker.hop_failed(Offset(0));
        tracker.hop_acknowledged(Offset(1));
        assert_eq!((tracker.committable(), tracker.hops_under_way()), (Offset(0), 0));
    }

    #[test]
    fn one_commit_is_under_way_and_the_next_carries_what_finished_meanwhile() {
        let now = Instant::now();
        let mut committer = Committer::new(GAP);
        committer.open('a', Some(Offset(0)));
        committer.open('b', None);
        committer.mark('a', Offset(1));
        assert_eq!(committer.poll_commit(now), Some(vec![('a', Offset(1))]));
        committer.mark('a', Offset(2));
        committer.mark('b', Offset(5));
        committer.mark('a', Offset(3));
        assert_eq!(committer.poll_commit(now + GAP), None, "one is under way");
        let landed = committer.handle_commit(now, &[]);
        assert_eq!(landed, [Committed { partition: 'a', offset: Offset(1), landed: true }]);
        assert_eq!(committer.poll_commit(now), None, "too soon after the last");
        assert_eq!(committer.poll_timeout(false), Some(now + GAP));
        assert_eq!(committer.poll_commit(now + GAP), Some(vec![('a', Offset(3)), ('b', Offset(5))]));
    }

    #[test]
    fn a_failed_commit_is_made_again_later_with_what_finished_since() {
        let now = Instant::now();
        let mut committer = Committer::new(GAP);
        committer.open('a', Some(Offset(0)));
        committer.open('b', Some(Offset(0)));
        committer.mark('a', Offset(1));
        committer.mark('b', Offset(1));
        committer.poll_commit(now).unwrap();
        let results = committer.handle_commit(now, &['a']);
        assert_eq!(results.iter().map(|r| (r.partition, r.landed)).collect::<Vec<_>>(), [('a', false), ('b', true)]);
        assert!(!committer.is_settled('a') && committer.is_settled('b'));
        assert_eq!(committer.poll_timeout(false), Some(now + FIRST_RETRY), "the last one is not left uncommitted");
        committer.mark('a', Offset(2));
        assert_eq!(committer.poll_commit(now + GAP), None, "a failing coordinator is not pressed");
        assert_eq!(committer.poll_commit(now + FIRST_RETRY), Some(vec![('a', Offset(2))]));
        committer.handle_commit(now + FIRST_RETRY, &['a']);
        assert_eq!(committer.poll_timeout(false), Some(now + FIRST_RETRY * 3));
        assert_eq!(committer.committed('a'), Some(Offset(0)));
    }

    #[test]
    fn a_partition_that_goes_takes_its_wishes_along() {
        let now = Instant::now();
        let mut committer = Committer::new(GAP);
        committer.open('a', None);
        committer.mark('a', Offset(1));
        committer.close('a');
        assert_eq!((committer.poll_commit(now), committer.poll_timeout(false)), (None, None));
        committer.mark('a', Offset(2));
        assert_eq!(committer.poll_commit(now), None);
        committer.open('a', Some(Offset(1)));
        committer.mark('a', Offset(1));
        assert_eq!(committer.poll_commit(now), None, "committed already");
    }

    proptest! {
        /// Deliveries in order, hops acknowledged in any order, commits that land or fail at any time.
        #[test]
        fn nothing_unfinished_is_ever_committed_and_in_the_end_everything_is(
            steps in prop::collection::vec((0_u8..6, 0_usize..8), 1..200),
        ) {
            let mut now = Instant::now();
            let mut tracker = Tracker::new(Offset(0));
            let mut committer = Committer::new(GAP);
            committer.open(0, Some(Offset(0)));
            let mut next = 0_i64;
            let mut unacknowledged: Vec<Offset> = Vec::new();
            let mut carried = None;
            for (step, pick) in steps {
                now += Duration::from_millis(pick as u64 * 20);
                match step {
                    0 | 1 => {
                        next += 1;
                        tracker.finish_to(Offset(next));
                    }
                    2 => {
                        unacknowledged.push(Offset(next));
                        tracker.hop_left(Offset(next));
                        next += 1;
                        tracker.finish_to(Offset(next));
                    }
                    3 if !unacknowledged.is_empty() => {
                        let offset = unacknowledged.remove(pick % unacknowledged.len());
                        tracker.hop_acknowledged(offset);
                    }
                    4 if carried.is_some() => {
                        let failed: &[i32] = if pick % 2 == 0 { &[] } else { &[0] };
                        committer.handle_commit(now, failed);
                        carried = None;
                    }
                    _ => {}
                }
                committer.mark(0, tracker.committable());
                if let Some(positions) = committer.poll_commit(now) {
                    prop_assert!(carried.is_none(), "two commits under way");
                    for (_, offset) in &positions {
                        prop_assert!(*offset <= Offset(next), "past what was delivered");
                        prop_assert!(unacknowledged.iter().all(|hop| offset <= hop), "past an open hop");
                    }
                    carried = Some(positions);
                }
                prop_assert_eq!(tracker.hops_open() == 0, unacknowledged.is_empty());
            }
            for hop in unacknowledged {
                tracker.hop_acknowledged(hop);
            }
            if carried.is_some() {
                committer.handle_commit(now, &[]);
            }
            committer.mark(0, tracker.committable());
            if committer.poll_commit(now + LAST_RETRY).is_some() {
                committer.handle_commit(now, &[]);
            }
            prop_assert_eq!(committer.committed(0), Some(Offset(next)));
            prop_assert!(committer.is_settled(0));
        }
    }
}
