//! What a partition remembers of idempotent producers: enough to know a batch that it already has.

use std::collections::{HashMap, VecDeque};

use crate::protocol::batch::BatchHeader;
use crate::protocol::error_code::ErrorCode;
use crate::record::Timestamp;

/// Who wrote a batch, and under which numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchNumbers {
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) first_sequence: i32,
    pub(super) last_sequence: i32,
}

impl BatchNumbers {
    /// The numbers of a batch with this header.
    pub(super) fn of(header: &BatchHeader) -> Option<Self> {
        let producer = header.producer?;
        Self::new(producer.id, producer.epoch, producer.base_sequence, header.last_offset_delta.saturating_add(1))
    }

    /// The numbers of a batch of `records` records; `None` for a producer that is not idempotent.
    pub(super) fn new(producer_id: i64, producer_epoch: i16, first_sequence: i32, records: i32) -> Option<Self> {
        if producer_id < 0 {
            return None;
        }
        // Sequences wrap from 2^31-1 to 0.
        let last = (i64::from(first_sequence) + i64::from(records) - 1) % (i64::from(i32::MAX) + 1);
        Some(Self { producer_id, producer_epoch, first_sequence, last_sequence: last as i32 })
    }
}

/// What a partition knows of a producer.
#[cfg(feature = "testing")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownProducer {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// -1 where it wrote nothing in this epoch.
    pub(crate) last_sequence: i32,
    /// Of its last record, or of the marker behind it.
    pub(crate) last_timestamp: Timestamp,
    /// Whether a coordinator has ended a transaction of it here.
    pub(crate) is_marked: bool,
    /// Where its open transaction begins.
    pub(crate) open_since: Option<crate::record::Offset>,
}

/// The producers that one partition knows.
#[derive(Debug, Default)]
pub(super) struct ProducerStates(HashMap<i64, ProducerState>);

#[derive(Debug)]
struct ProducerState {
    epoch: i16,
    /// The newest batches, oldest first.
    batches: VecDeque<(BatchNumbers, Known)>,
    last_append: Timestamp,
    last_timestamp: Timestamp,
    is_marked: bool,
}

/// A batch that is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// Of its first record.
    pub(super) offset: i64,
    /// The latest of its records.
    pub(super) timestamp: Timestamp,
}

impl ProducerStates {
    /// Whether a batch may be appended: `Ok(Some(known))` if it is there already.
    ///
    /// # Errors
    /// `INVALID_PRODUCER_EPOCH` for a fenced producer, `OUT_OF_ORDER_SEQUENCE_NUMBER` for a gap.
    pub(super) fn check(&self, batch: &BatchNumbers) -> Result<Option<Known>, ErrorCode> {
        let Some(state) = self.0.get(&batch.producer_id) else {
            // Kafka lets a producer it does not know begin anywhere: its state may have expired.
            return Ok(None);
        };
        if batch.producer_epoch < state.epoch {
            return Err(ErrorCode::INVALID_PRODUCER_EPOCH);
        }
        if batch.producer_epoch > state.epoch {
            return if batch.first_sequence == 0 { Ok(None) } else { Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER) };
        }
        if let Some((_, known)) = state.batches.iter().find(|(numbers, _)| numbers == batch) {
            return Ok(Some(*known));
        }
        // After a marker the epoch is known and no batch is: numbers begin at 0.
        let next = match state.batches.back() {
            Some((last, _)) => last.last_sequence.checked_add(1).unwrap_or(0),
            None => 0,
        };
        if batch.first_sequence == next { Ok(None) } else { Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER) }
    }

    /// Whether a coordinator may mark this producer's transaction in this epoch.
    ///
    /// # Errors
    /// `INVALID_PRODUCER_EPOCH` where a newer one is known.
    #[cfg(feature = "testing")]
    pub(super) fn check_marker(&self, producer_id: i64, epoch: i16) -> Result<(), ErrorCode> {
        let fenced = self.0.get(&producer_id).is_some_and(|state| epoch < state.epoch);
        if fenced { Err(ErrorCode::INVALID_PRODUCER_EPOCH) } else { Ok(()) }
    }

    /// Remembers a marker. One of a newer epoch (KIP-890) fences the older.
    pub(super) fn marked(&mut self, producer_id: i64, epoch: i16, now: Timestamp) {
        let state = self.enter(producer_id, epoch, now);
        (state.last_timestamp, state.is_marked) = (now, true);
    }

    /// Whether a producer has written nothing here, or nothing since its last marker.
    #[cfg(feature = "testing")]
    pub(super) fn has_no_batch(&self, producer_id: i64) -> bool {
        self.0.get(&producer_id).is_none_or(|state| state.batches.is_empty())
    }

    /// Remembers a batch that was appended.
    pub(super) fn appended(&mut self, batch: BatchNumbers, known: Known, now: Timestamp) {
        let state = self.enter(batch.producer_id, batch.producer_epoch, now);
        if state.batches.len() == BATCHES_KEPT {
            state.batches.pop_front();
        }
        state.last_timestamp = known.timestamp;
        state.batches.push_back((batch, known));
    }

    fn enter(&mut self, producer_id: i64, epoch: i16, now: Timestamp) -> &mut ProducerState {
        if self.0.len() >= MAX_PRODUCERS && !self.0.contains_key(&producer_id) {
            self.forget_oldest();
        }
        let unknown = || ProducerState {
            epoch,
            batches: VecDeque::new(),
            last_append: now,
            last_timestamp: now,
            is_marked: false,
        };
        let state = self.0.entry(producer_id).or_insert_with(unknown);
        if state.epoch != epoch {
            state.epoch = epoch;
            state.batches.clear();
        }
        state.last_append = now;
        state
    }

    /// Every producer that is known, by id. Of transactions it knows nothing.
    #[cfg(feature = "testing")]
    pub(super) fn known(&self) -> Vec<KnownProducer> {
        let known = self.0.iter().map(|(producer_id, state)| KnownProducer {
            producer_id: *producer_id,
            epoch: state.epoch,
            last_sequence: state.batches.back().map_or(-1, |(last, _)| last.last_sequence),
            last_timestamp: state.last_timestamp,
            is_marked: state.is_marked,
            open_since: None,
        });
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|known| known.producer_id);
        known
    }

    /// Forgets every producer, as a broker does whose producer state expired or was truncated away.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn forget_oldest(&mut self) {
        if let Some(id) = self.0.iter().min_by_key(|(_, state)| state.last_append).map(|(id, _)| *id) {
            self.0.remove(&id);
        }
    }
}

/// As many as an idempotent producer may have in flight (`ProducerStateEntry.NUM_BATCHES_TO_RETAIN`).
const BATCHES_KEPT: usize = 5;

/// A bound on memory; Kafka expires producers by time (`producer.id.expiration.ms`) and has none.
const MAX_PRODUCERS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64) -> Known {
        Known { offset, timestamp: Timestamp(offset) }
    }

    fn batch(epoch: i16, sequence: i32, records: i32) -> BatchNumbers {
        BatchNumbers::new(7, epoch, sequence, records).expect("an idempotent producer")
    }

    #[test]
    fn the_last_five_batches_are_known_again_and_a_sixth_is_out_of_order() {
        let mut states = ProducerStates::default();
        for i in 0..6 {
            let next = batch(0, i * 10, 10);
            assert_eq!(states.check(&next), Ok(None));
            states.appended(next, at(i64::from(i) * 10), Timestamp(0));
        }
        for i in 1..6 {
            assert_eq!(states.check(&batch(0, i * 10, 10)), Ok(Some(at(i64::from(i) * 10))));
        }
        assert_eq!(states.check(&batch(0, 0, 10)), Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        assert_eq!(states.check(&batch(0, 70, 1)), Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        assert_eq!(
            states.check(&batch(0, 50, 9)),
            Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER),
            "other records under known numbers are no duplicate"
        );
    }

    #[test]
    fn a_new_epoch_begins_at_zero_and_fences_the_old_one() {
        let mut states = ProducerStates::default();
        states.appended(batch(3, 0, 5), at(0), Timestamp(0));
        assert_eq!(states.check(&batch(4, 5, 1)), Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        assert_eq!(states.check(&batch(4, 0, 1)), Ok(None));
        states.appended(batch(4, 0, 1), at(5), Timestamp(0));
        assert_eq!(states.check(&batch(3, 5, 1)), Err(ErrorCode::INVALID_PRODUCER_EPOCH));
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let mut states = ProducerStates::default();
        let last = batch(0, i32::MAX - 1, 2);
        assert_eq!(last.last_sequence, i32::MAX);
        states.appended(last, at(0), Timestamp(0));
        assert_eq!(states.check(&batch(0, 0, 1)), Ok(None));
        assert_eq!(batch(0, i32::MAX, 3).last_sequence, 1);
    }

    #[test]
    fn producers_are_bounded() {
        let mut states = ProducerStates::default();
        for id in 0..=MAX_PRODUCERS as i64 {
            let numbers = BatchNumbers::new(id, 0, 0, 1).expect("idempotent");
            states.appended(numbers, at(id), Timestamp(id));
        }
        assert_eq!(states.0.len(), MAX_PRODUCERS);
        assert!(!states.0.contains_key(&0), "the one silent for longest goes");
    }
}
