//! What a partition knows of transactions: which are open in it and which were aborted.

#![cfg_attr(not(feature = "testing"), allow(dead_code, reason = "for logs of several replicas"))]

use std::collections::BTreeMap;

use crate::record::Offset;

/// The transactions of one partition's log.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// The first offset of each producer's open transaction.
    open: BTreeMap<i64, Offset>,
    /// In the order of their markers.
    aborted: Vec<Aborted>,
}

/// A transaction that was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aborted {
    pub(crate) producer_id: i64,
    pub(crate) first: Offset,
    /// Its marker.
    pub(crate) last: Offset,
}

impl Transactions {
    /// A batch of this producer's transaction was appended.
    pub(super) fn continued(&mut self, producer_id: i64, at: Offset) {
        self.open.entry(producer_id).or_insert(at);
    }

    /// A marker was appended.
    pub(super) fn ended(&mut self, producer_id: i64, at: Offset, aborted: bool) {
        if let Some(first) = self.open.remove(&producer_id)
            && aborted
        {
            self.aborted.push(Aborted { producer_id, first, last: at });
        }
    }

    /// Whether this producer's transaction has records here that are undecided.
    pub(super) fn is_open(&self, producer_id: i64) -> bool {
        self.open.contains_key(&producer_id)
    }

    /// The first offset that is undecided, at most `end`.
    pub(super) fn last_stable(&self, end: Offset) -> Offset {
        self.open.values().min().map_or(end, |first| end.min(*first))
    }

    /// Where this producer's open transaction begins.
    pub(super) fn open_since(&self, producer_id: i64) -> Option<Offset> {
        self.open.get(&producer_id).copied()
    }

    pub(super) fn aborted_in(&self, from: Offset, to: Offset) -> Vec<Aborted> {
        self.aborted.iter().filter(|aborted| aborted.last >= from && aborted.first < to).copied().collect()
    }

    /// The log begins at this offset now.
    pub(super) fn forget_before(&mut self, start: Offset) {
        self.aborted.retain(|aborted| aborted.last >= start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_undecided_begins_at_the_oldest_open_transaction() {
        let mut transactions = Transactions::default();
        for (producer, at) in [(7, 10), (8, 12), (7, 14)] {
            transactions.continued(producer, Offset(at));
        }
        assert_eq!(transactions.last_stable(Offset(20)), Offset(10));
        transactions.ended(7, Offset(15), true);
        assert_eq!(transactions.last_stable(Offset(20)), Offset(12));
        transactions.ended(8, Offset(16), false);
        assert_eq!(transactions.last_stable(Offset(20)), Offset(20));
        let aborted = [Aborted { producer_id: 7, first: Offset(10), last: Offset(15) }];
        assert_eq!(transactions.aborted_in(Offset(15), Offset(20)), aborted);
        assert_eq!(transactions.aborted_in(Offset(0), Offset(10)), [], "its first offset is behind the range");
        assert_eq!(transactions.aborted_in(Offset(16), Offset(20)), []);
    }

    #[test]
    fn a_marker_without_a_transaction_aborts_nothing() {
        let mut transactions = Transactions::default();
        transactions.ended(7, Offset(3), true);
        assert_eq!(transactions.aborted_in(Offset(0), Offset(9)), []);
    }
}
