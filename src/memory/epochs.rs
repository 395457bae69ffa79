//! Where each leader's epoch begins in a log (`LeaderEpochFileCache`).

#![cfg_attr(not(feature = "testing"), allow(dead_code, reason = "for logs of several replicas"))]

/// Epochs and their first offsets, both ascending.
#[derive(Debug, Default)]
pub(super) struct EpochCache(Vec<(i32, i64)>);

impl EpochCache {
    /// An epoch begins at this offset. One that wrote nothing leaves no trace.
    pub(super) fn begin(&mut self, epoch: i32, offset: i64) {
        if self.latest().is_some_and(|latest| latest >= epoch) {
            return;
        }
        self.truncate(offset);
        self.0.push((epoch, offset));
    }

    /// The newest epoch.
    pub(super) fn latest(&self) -> Option<i32> {
        self.0.last().map(|(epoch, _)| *epoch)
    }

    /// The newest epoch not above `epoch`, and its end in a log that ends at `log_end`; `None` for one above all.
    pub(super) fn end_of(&self, epoch: i32, log_end: i64) -> Option<(i32, i64)> {
        let above = self.0.partition_point(|(known, _)| *known <= epoch);
        match (above.checked_sub(1).map(|floor| self.0[floor]), self.0.get(above)) {
            (Some((known, _)), None) if known == epoch => Some((known, log_end)),
            (_, None) => None,
            // Older than all that is known: nothing of it is here.
            (None, Some((_, end))) => Some((epoch, *end)),
            (Some((known, _)), Some((_, end))) => Some((known, *end)),
        }
    }

    /// The log ends at this offset now.
    pub(super) fn truncate(&mut self, end: i64) {
        while self.0.pop_if(|(_, begin)| *begin >= end).is_some() {}
    }

    /// The log begins at this offset now.
    pub(super) fn begin_at(&mut self, start: i64) {
        let gone = self.0.partition_point(|(_, begin)| *begin <= start);
        if gone > 1 {
            self.0.drain(..gone - 1);
        }
        if let Some((_, begin)) = self.0.first_mut() {
            *begin = (*begin).max(start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(i32, i64)]) -> EpochCache {
        let mut cache = EpochCache::default();
        for (epoch, offset) in entries {
            cache.begin(*epoch, *offset);
        }
        cache
    }

    /// The table of `LeaderEpochFileCache.endOffsetFor`.
    #[test]
    fn an_epoch_ends_where_the_next_known_one_begins() {
        let cache = cache(&[(2, 10), (4, 20), (7, 30)]);
        for (asked, told) in [
            (1, Some((1, 10))),
            (2, Some((2, 20))),
            (3, Some((2, 20))),
            (4, Some((4, 30))),
            (6, Some((4, 30))),
            (7, Some((7, 35))),
            (8, None),
        ] {
            assert_eq!(cache.end_of(asked, 35), told, "epoch {asked}");
        }
        assert_eq!(EpochCache::default().end_of(0, 0), None);
    }

    #[test]
    fn an_epoch_that_wrote_nothing_leaves_no_trace() {
        let mut cache = cache(&[(0, 0), (1, 5), (2, 5), (2, 9)]);
        assert_eq!(cache.end_of(1, 8), Some((0, 5)));
        cache.truncate(5);
        assert_eq!((cache.latest(), cache.end_of(0, 3)), (Some(0), Some((0, 3))));
    }

    #[test]
    fn deleting_records_forgets_the_epochs_before() {
        let mut cache = cache(&[(0, 0), (1, 5), (2, 9)]);
        cache.begin_at(7);
        assert_eq!(cache.0, [(1, 7), (2, 9)]);
        assert_eq!(cache.end_of(0, 12), Some((0, 7)));
    }
}
