//! One partition's log: encoded batches, in offset order.

#[cfg(feature = "testing")]
mod replica;

use std::collections::VecDeque;

use crate::memory::epochs::EpochCache;
use crate::memory::producer_state::{BatchNumbers, Known, ProducerStates};
use crate::memory::topic::TopicConfig;
use crate::memory::transactions::Transactions;
use crate::protocol::batch::{ControlKind, EncodedBatch, ReadOptions};
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, Offset, Timestamp};

/// Batches in order, and where they begin and end. One replica: who has several keeps the high watermark.
#[derive(Debug, Default)]
pub(crate) struct PartitionLog {
    batches: VecDeque<StoredBatch>,
    start: i64,
    end: i64,
    bytes: usize,
    leader_epoch: i32,
    epochs: EpochCache,
    producers: ProducerStates,
    transactions: Transactions,
}

/// A batch in the log.
#[derive(Debug, Clone)]
pub(crate) struct StoredBatch {
    pub(crate) batch: EncodedBatch,
    /// When it was appended, counted over all partitions of the broker.
    pub(crate) order: u64,
}

/// Where a batch was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Appended {
    /// The offset of its first record.
    pub base_offset: Offset,
    /// The time its records got, where the topic keeps append times. For a duplicate the latest time of the batch that is
    /// there, whatever the topic keeps, as Kafka answers.
    pub log_append_time: Option<Timestamp>,
    /// Whether the log had it already: an idempotent producer's resend.
    pub duplicate: bool,
}

impl PartitionLog {
    /// The oldest offset still kept.
    pub(crate) fn start(&self) -> Offset {
        Offset(self.start)
    }

    /// The offset that the next record will get.
    pub(crate) fn end(&self) -> Offset {
        Offset(self.end)
    }

    pub(crate) fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.leader_epoch)
    }

    /// Counts a change of leader.
    pub(crate) fn bump_leader_epoch(&mut self) {
        self.begin_epoch(self.leader_epoch.saturating_add(1));
    }

    /// What is appended from now on belongs to this epoch.
    pub(crate) fn begin_epoch(&mut self, epoch: i32) {
        self.leader_epoch = epoch;
        self.epochs.begin(epoch, self.end);
    }

    /// Forgets its idempotent producers.
    pub(crate) fn forget_producers(&mut self) {
        self.producers.clear();
    }

    pub(crate) fn batches(&self) -> impl Iterator<Item = &StoredBatch> {
        self.batches.iter()
    }

    /// Appends a batch as a producer sends it, or finds that it is there already.
    pub(crate) fn append(
        &mut self,
        batch: EncodedBatch,
        config: &TopicConfig,
        now: Timestamp,
        order: u64,
    ) -> Result<Appended, ErrorCode> {
        validate(&batch, config)?;
        validate_times(&batch, config, now)?;
        let numbers = BatchNumbers::of(batch.header());
        let log_append_time = config.log_append_time.then_some(now);
        if let Some(numbers) = &numbers
            && let Some(Known { offset, timestamp }) = self.producers.check(numbers)?
        {
            return Ok(Appended { base_offset: Offset(offset), log_append_time: Some(timestamp), duplicate: true });
        }
        let outside = |numbers: &BatchNumbers| self.transactions.is_open(numbers.producer_id);
        if !batch.header().is_transactional && numbers.as_ref().is_some_and(outside) {
            return Err(ErrorCode::INVALID_TXN_STATE);
        }
        let mut batch = batch
            .with_base_offset(Offset(self.end))
            .map_err(|_| ErrorCode::INVALID_RECORD)?
            .with_leader_epoch(Some(self.leader_epoch()));
        if let Some(time) = log_append_time {
            batch = batch.with_log_append_time(time);
        }
        let base_offset = self.end;
        self.store(batch, order, now);
        Ok(Appended { base_offset: Offset(base_offset), log_append_time, duplicate: false })
    }

    fn store(&mut self, batch: EncodedBatch, order: u64, now: Timestamp) {
        let header = *batch.header();
        if let Some(epoch) = header.leader_epoch {
            self.epochs.begin(epoch.0, header.base_offset.0);
        }
        self.end = header.next_offset().0;
        self.bytes += batch.bytes().len();
        self.remember(&batch, now);
        self.batches.push_back(StoredBatch { batch, order });
    }

    /// What the producers' states and transactions learn from a batch.
    fn remember(&mut self, batch: &EncodedBatch, now: Timestamp) {
        let header = batch.header();
        let Some(producer) = header.producer else { return };
        if header.is_control {
            let kind = batch.open(&ReadOptions::default()).ok().and_then(|view| view.control_kind().ok().flatten());
            self.producers.marked(producer.id, producer.epoch, now);
            self.transactions.ended(producer.id, header.base_offset, kind == Some(ControlKind::Abort));
            return;
        }
        if let Some(numbers) = BatchNumbers::of(header) {
            let known = Known { offset: header.base_offset.0, timestamp: header.max_timestamp };
            self.producers.appended(numbers, known, now);
        }
        if header.is_transactional {
            self.transactions.continued(producer.id, header.base_offset);
        }
    }

    /// Whole batches from the one that holds `from` on: at least one if there is any, then as many as fit.
    pub(crate) fn read(
        &self,
        from: Offset,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<EncodedBatch>, ErrorCode> {
        if from.0 < self.start || from.0 > self.end {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        let (mut records, mut bytes) = (0, 0);
        let mut read = Vec::new();
        for stored in self.from(from) {
            records += stored.batch.header().record_count as usize;
            bytes += stored.batch.bytes().len();
            if !read.is_empty() && (records > max_records || bytes > max_bytes) {
                break;
            }
            read.push(stored.batch.clone());
        }
        Ok(read)
    }

    fn from(&self, offset: Offset) -> impl Iterator<Item = &StoredBatch> {
        let first = self.batches.partition_point(|stored| stored.batch.header().next_offset() <= offset);
        self.batches.range(first..)
    }

    /// Deletes what lies before `offset`: whole batches go, a part of one is only hidden (DeleteRecords).
    pub(crate) fn delete_before(&mut self, offset: Offset) -> Result<Offset, ErrorCode> {
        if offset.0 < 0 || offset.0 > self.end {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        self.start = self.start.max(offset.0);
        while let Some(first) = self.batches.front() {
            if first.batch.header().next_offset().0 > self.start {
                break;
            }
            self.drop_first();
        }
        Ok(self.start())
    }

    /// Drops the batches that the topic's settings let go.
    pub(crate) fn apply_retention(&mut self, config: &TopicConfig, now: Timestamp) {
        if !config.deleted {
            return;
        }
        while let Some(first) = self.batches.front() {
            let age = now.0.saturating_sub(first.batch.header().max_timestamp.0);
            let too_old = config.retention_ms >= 0 && age > config.retention_ms;
            let too_much = usize::try_from(config.retention_bytes).is_ok_and(|limit| self.bytes > limit);
            // Size alone never empties a log: what was just written stays (the active segment).
            let goes = too_old || (too_much && self.batches.len() > 1);
            if !goes {
                break;
            }
            self.start = self.start.max(first.batch.header().next_offset().0);
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(first) = self.batches.pop_front() {
            self.bytes -= first.batch.bytes().len();
            self.epochs.begin_at(self.start);
            self.transactions.forget_before(Offset(self.start));
        }
    }
}

/// What a broker checks before it appends (`LogValidator`).
fn validate(batch: &EncodedBatch, config: &TopicConfig) -> Result<(), ErrorCode> {
    if usize::try_from(config.max_message_bytes).is_ok_and(|limit| batch.bytes().len() > limit) {
        return Err(ErrorCode::MESSAGE_TOO_LARGE);
    }
    batch.check_crc().map_err(|_| ErrorCode::CORRUPT_MESSAGE)?;
    let header = batch.header();
    if header.record_count == 0 || i64::from(header.last_offset_delta) + 1 != i64::from(header.record_count) {
        return Err(ErrorCode::INVALID_RECORD);
    }
    if header.is_control {
        return Err(ErrorCode::INVALID_RECORD);
    }
    let view = batch.open(&ReadOptions::default()).map_err(|_| ErrorCode::CORRUPT_MESSAGE)?;
    for (index, record) in (0_i64..).zip(view.records()) {
        let record = record.map_err(|_| ErrorCode::CORRUPT_MESSAGE)?;
        let in_order = record.offset.0 == header.base_offset.0 + index;
        if !in_order || (config.compacted && record.key.is_none()) {
            return Err(ErrorCode::INVALID_RECORD);
        }
    }
    Ok(())
}

/// Whether the records' times are within what the topic lets producers say (KIP-937); those that the broker sets are.
fn validate_times(batch: &EncodedBatch, config: &TopicConfig, now: Timestamp) -> Result<(), ErrorCode> {
    let (before, after) = (config.timestamp_before_max_ms, config.timestamp_after_max_ms);
    let latest = now.0.saturating_add(after);
    if config.log_append_time || before == i64::MAX && batch.header().max_timestamp.0 <= latest {
        return Ok(());
    }
    let view = batch.open(&ReadOptions::default()).map_err(|_| ErrorCode::CORRUPT_MESSAGE)?;
    // A record without a time says -1.
    let within = |time: Timestamp| time.0 < 0 || (now.0.saturating_sub(before)..=latest).contains(&time.0);
    let mut times = view.records().filter_map(Result::ok).map(|record| record.timestamp);
    if times.all(within) { Ok(()) } else { Err(ErrorCode::INVALID_TIMESTAMP) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::{batch, numbered, values};

    const NOW: Timestamp = Timestamp(1_000_000);

    fn log_of(values: &[&str]) -> PartitionLog {
        let mut log = PartitionLog::default();
        for value in values {
            log.append(batch(&[value], 5), &TopicConfig::default(), NOW, 0).expect("appended");
        }
        log
    }

    #[test]
    fn batches_get_offsets_and_the_leader_epoch() {
        let mut log = PartitionLog::default();
        log.bump_leader_epoch();
        let config = TopicConfig::default();
        let first = log.append(batch(&["a", "b"], 5), &config, NOW, 0).expect("appended");
        let second = log.append(batch(&["c"], 5), &config, NOW, 1).expect("appended");
        assert_eq!((first.base_offset, second.base_offset, log.end()), (Offset(0), Offset(2), Offset(3)));

        let read = log.read(Offset(1), 100, 1 << 20).expect("in range");
        assert_eq!(read[0].header().leader_epoch, Some(LeaderEpoch(1)));
        assert_eq!(values(&read), ["a", "b", "c"], "whole batches, from the one that holds the offset");
        assert_eq!(values(&log.read(Offset(2), 100, 1 << 20).expect("in range")), ["c"]);
        assert!(log.read(Offset(3), 100, 1 << 20).expect("the end is in range").is_empty());
        assert_eq!(log.read(Offset(4), 100, 1 << 20).err(), Some(ErrorCode::OFFSET_OUT_OF_RANGE));
    }

    #[test]
    fn records_keep_their_time_or_get_the_brokers() {
        let mut log = PartitionLog::default();
        let config = TopicConfig { log_append_time: true, ..TopicConfig::default() };
        let appended = log.append(batch(&["a", "b"], 5), &config, NOW, 0).expect("appended");
        assert_eq!(appended.log_append_time, Some(NOW));
        log.append(batch(&["c"], 5), &TopicConfig::default(), NOW, 1).expect("appended");

        let mut times = Vec::new();
        for batch in log.read(Offset(0), 100, 1 << 20).expect("in range") {
            let view = batch.open(&ReadOptions::default()).expect("the checksum was written anew");
            times.extend(view.records().map(|record| record.expect("whole").timestamp));
        }
        assert_eq!(times, [NOW, NOW, Timestamp(5)]);
    }

    #[test]
    fn a_read_stops_at_its_bounds_but_gives_one_batch_at_least() {
        let log = log_of(&["a", "b", "c", "d"]);
        assert_eq!(values(&log.read(Offset(0), 2, 1 << 20).expect("in range")), ["a", "b"]);
        assert_eq!(values(&log.read(Offset(1), 100, 1).expect("in range")), ["b"]);
    }

    #[test]
    fn a_resend_is_answered_with_the_first_offset_and_not_appended() {
        let mut log = PartitionLog::default();
        let config = TopicConfig::default();
        for sequence in 0..5 {
            log.append(numbered(&["x"], 9, sequence), &config, NOW, 0).expect("appended");
        }
        let again = log.append(numbered(&["x"], 9, 2), &config, NOW, 0).expect("known");
        assert_eq!((again.base_offset, again.duplicate, log.end()), (Offset(2), true, Offset(5)));
        let gap = log.append(numbered(&["x"], 9, 6), &config, NOW, 0);
        assert_eq!(gap, Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
    }

    #[test]
    fn what_a_broker_refuses_is_refused_and_leaves_no_trace() {
        let mut log = PartitionLog::default();
        let small = TopicConfig { max_message_bytes: 100, ..TopicConfig::default() };
        let compacted = TopicConfig { compacted: true, ..TopicConfig::default() };
        assert_eq!(log.append(batch(&[&"x".repeat(60)], 5), &small, NOW, 0), Err(ErrorCode::MESSAGE_TOO_LARGE));
        assert_eq!(log.append(batch(&["no key"], 5), &compacted, NOW, 0), Err(ErrorCode::INVALID_RECORD));
        let mut broken = batch(&["abc"], 5).into_bytes().to_vec();
        *broken.last_mut().expect("not empty") ^= 1;
        let broken = crate::protocol::batch::encoded(broken.into()).next().expect("one").expect("whole");
        assert_eq!(log.append(broken, &TopicConfig::default(), NOW, 0), Err(ErrorCode::CORRUPT_MESSAGE));
        assert_eq!(log.end(), Offset(0));
    }

    #[test]
    fn deleting_moves_the_start_and_never_back() {
        let mut log = log_of(&["a", "b", "c"]);
        assert_eq!(log.delete_before(Offset(2)), Ok(Offset(2)));
        assert_eq!(log.delete_before(Offset(1)), Ok(Offset(2)));
        assert_eq!(log.read(Offset(1), 9, 99).err(), Some(ErrorCode::OFFSET_OUT_OF_RANGE));
        assert_eq!(log.delete_before(Offset(4)), Err(ErrorCode::OFFSET_OUT_OF_RANGE));
        assert_eq!(log.delete_before(Offset(3)), Ok(Offset(3)));
        assert_eq!((log.batches().count(), log.end()), (0, Offset(3)));
    }

    #[test]
    fn retention_drops_the_oldest_batches_first() {
        let mut log = PartitionLog::default();
        for time in [10, 20, 30] {
            log.append(batch(&["x"], time), &TopicConfig::default(), NOW, 0).expect("appended");
        }
        let by_age = TopicConfig { retention_ms: 15, ..TopicConfig::default() };
        log.apply_retention(&by_age, Timestamp(35));
        assert_eq!(log.start(), Offset(1));
        let by_size = TopicConfig { retention_bytes: 1, ..TopicConfig::default() };
        log.apply_retention(&by_size, Timestamp(35));
        assert_eq!((log.start(), log.end()), (Offset(2), Offset(3)), "the newest batch stays");
        let compacted = TopicConfig { retention_ms: 0, deleted: false, compacted: true, ..TopicConfig::default() };
        log.apply_retention(&compacted, Timestamp(i64::MAX));
        assert_eq!(log.start(), Offset(2));
    }
}
