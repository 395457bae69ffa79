//! Flushes: which batches each waits for, counted.

use std::collections::VecDeque;

/// Names one call of flush; later ones compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FlushId(pub(crate) u64);

/// The flushes under way, oldest first.
///
/// A flush waits for what was unsettled when it was called: for the batches that it was the first to mark, and for all
/// that earlier ones wait for. So a batch counts once, and a flush is done when it is the oldest and its count is zero.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    waiting: VecDeque<(FlushId, usize)>,
}

impl Flushes {
    /// Begins a flush that is the first to wait for `marked` batches.
    pub(super) fn begin(&mut self, id: FlushId, marked: usize) {
        self.waiting.push_back((id, marked));
    }

    /// A marked batch became `pieces` batches: none once it is settled.
    pub(super) fn became(&mut self, flush: Option<FlushId>, pieces: usize) {
        let Some(id) = flush else { return };
        if let Some((_, count)) = self.waiting.iter_mut().find(|(waiting, _)| *waiting == id) {
            *count = (*count + pieces).saturating_sub(1);
        }
    }

    /// The next flush that is done.
    pub(super) fn poll(&mut self) -> Option<FlushId> {
        let &(id, 0) = self.waiting.front()? else { return None };
        self.waiting.pop_front();
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_waits_for_its_own_batches_and_those_of_earlier_ones() {
        let mut flushes = Flushes::default();
        flushes.begin(FlushId(1), 2);
        flushes.begin(FlushId(2), 0);
        flushes.became(Some(FlushId(1)), 0);
        assert_eq!(flushes.poll(), None);
        flushes.became(Some(FlushId(1)), 2);
        flushes.became(None, 0);
        flushes.became(Some(FlushId(1)), 0);
        assert_eq!(flushes.poll(), None, "the half that is left");
        flushes.became(Some(FlushId(1)), 0);
        assert_eq!(flushes.poll(), Some(FlushId(1)));
        assert_eq!(flushes.poll(), Some(FlushId(2)));
        assert_eq!(flushes.poll(), None);
    }
}
