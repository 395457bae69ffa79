//! Which leader wrote what was read of a partition, so that a position can be checked for truncation (KIP-320).

use std::collections::VecDeque;

use crate::record::{LeaderEpoch, Offset};

/// Leader epochs of what was handed over of one partition.
///
/// Of a position that was not read up to nothing is known: with the last epoch that is, the broker would take all records
/// of later ones for truncated.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    /// Each with an offset that it has, in order of both.
    known: VecDeque<(Offset, LeaderEpoch)>,
    /// Behind the last record that is known of.
    end: Offset,
}

impl Epochs {
    /// Reading begins or goes on at this offset, and before it is this epoch.
    pub(super) fn start(&mut self, offset: Offset, epoch: Option<LeaderEpoch>) {
        if offset > self.end {
            // What lies between was passed over.
            self.known.clear();
        }
        self.remember(Offset(offset.0.saturating_sub(1)), epoch);
        self.cover(offset);
    }

    /// The record at this offset has this epoch.
    pub(super) fn remember(&mut self, offset: Offset, epoch: Option<LeaderEpoch>) {
        let Some(epoch) = epoch else { return };
        // Mostly the last: what is read again after a seek is known.
        let at = self.known.iter().rposition(|(from, _)| *from <= offset).map_or(0, |at| at + 1);
        if at.checked_sub(1).is_some_and(|before| self.known[before].1 == epoch) {
            return;
        }
        match self.known.get_mut(at) {
            Some((from, known)) if *known == epoch => *from = offset,
            _ => self.known.insert(at, (offset, epoch)),
        }
        if self.known.len() > MAX_EPOCHS {
            self.known.pop_front();
        }
    }

    /// What is before this offset is known of.
    pub(super) fn cover(&mut self, end: Offset) {
        self.end = self.end.max(end);
    }

    /// What was behind this offset is no part of the log any more.
    pub(super) fn cut(&mut self, end: Offset) {
        self.known.retain(|(from, _)| *from < end);
        self.end = self.end.min(end);
    }

    /// The epoch of the record before this offset.
    pub(super) fn before(&self, offset: Offset) -> Option<LeaderEpoch> {
        if offset > self.end {
            return None;
        }
        self.known.iter().rev().find(|(from, _)| *from < offset).map(|(_, epoch)| *epoch)
    }
}

/// Leader changes that are remembered of a partition: a commit reaches back to what is still being handled.
const MAX_EPOCHS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(epochs: &mut Epochs, batches: &[(i64, i32)], end: i64) {
        for (offset, epoch) in batches {
            epochs.remember(Offset(*offset), Some(LeaderEpoch(*epoch)));
        }
        epochs.cover(Offset(end));
    }

    fn before(epochs: &Epochs, offset: i64) -> Option<i32> {
        epochs.before(Offset(offset)).map(|epoch| epoch.0)
    }

    #[test]
    fn each_position_has_the_epoch_of_the_record_before_it() {
        let mut epochs = Epochs::default();
        epochs.start(Offset(10), Some(LeaderEpoch(3)));
        read(&mut epochs, &[(10, 3), (20, 5), (30, 5)], 40);
        assert_eq!(
            [9, 10, 20, 21, 40].map(|offset| before(&epochs, offset)),
            [None, Some(3), Some(3), Some(5), Some(5)]
        );
    }

    /// With the epoch of what was read last, a commit of a position that was jumped to looked truncated at the next assignment.
    #[test]
    fn of_a_position_that_was_not_read_up_to_no_epoch_is_known() {
        let mut epochs = Epochs::default();
        read(&mut epochs, &[(0, 1)], 10);
        assert_eq!([10, 11].map(|offset| before(&epochs, offset)), [Some(1), None]);
        epochs.start(Offset(50), None);
        read(&mut epochs, &[(50, 3)], 60);
        assert_eq!([40, 50, 60].map(|offset| before(&epochs, offset)), [None, None, Some(3)]);
    }

    /// What is read again after a seek back was taken for the newest.
    #[test]
    fn reading_again_changes_nothing() {
        let mut epochs = Epochs::default();
        read(&mut epochs, &[(0, 1), (10, 2)], 20);
        read(&mut epochs, &[(0, 1), (5, 1)], 10);
        assert_eq!([10, 15, 20].map(|offset| before(&epochs, offset)), [Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn what_was_truncated_is_forgotten() {
        let mut epochs = Epochs::default();
        read(&mut epochs, &[(0, 1), (10, 2)], 20);
        epochs.cut(Offset(7));
        assert_eq!([7, 8, 20].map(|offset| before(&epochs, offset)), [Some(1), None, None]);
        read(&mut epochs, &[(7, 4)], 9);
        assert_eq!([7, 9].map(|offset| before(&epochs, offset)), [Some(1), Some(4)]);
    }

    #[test]
    fn a_bounded_number_of_leader_changes_is_remembered() {
        let mut epochs = Epochs::default();
        for epoch in 0..100 {
            read(&mut epochs, &[(i64::from(epoch), epoch)], i64::from(epoch) + 1);
        }
        assert_eq!((epochs.known.len(), before(&epochs, 100), before(&epochs, 50)), (MAX_EPOCHS, Some(99), None));
    }
}
