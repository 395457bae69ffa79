//! What a log needs as one of several replicas, and with transactions: epochs, truncation, markers.

use super::{PartitionLog, StoredBatch};
use crate::memory::producer_state::KnownProducer;
use crate::memory::transactions::{Aborted, Transactions};
use crate::protocol::batch::{BatchWriter, Closing, ControlKind, EncodedBatch, ProducerStamp, ReadOptions};
use crate::protocol::compression::Compression;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, Offset, Timestamp};

impl PartitionLog {
    /// The bytes of all batches.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The newest epoch not above `epoch`, and where it ends in this log: what a reader compares its own position with
    /// (KIP-320). `None` for an epoch above all that this log knows.
    pub(crate) fn end_of_epoch(&self, epoch: i32) -> Option<(i32, Offset)> {
        self.epochs.end_of(epoch, self.end).map(|(epoch, end)| (epoch, Offset(end)))
    }

    /// The epoch that wrote the last record, or begins behind it.
    pub(crate) fn latest_epoch(&self) -> Option<i32> {
        self.epochs.latest()
    }

    /// Whether a producer has written nothing here, or nothing since its last marker.
    pub(crate) fn has_no_batch_of(&self, producer_id: i64) -> bool {
        self.producers.has_no_batch(producer_id)
    }

    /// Appends what a coordinator decided of a producer's transaction.
    pub(crate) fn append_marker(
        &mut self,
        producer: ProducerStamp,
        kind: ControlKind,
        coordinator_epoch: i32,
        now: Timestamp,
        order: u64,
    ) -> Result<Offset, ErrorCode> {
        self.producers.check_marker(producer.id, producer.epoch)?;
        let mut writer = BatchWriter::new(Compression::NONE);
        let (key, value) = (kind.key(), ControlKind::marker_value(coordinator_epoch));
        writer.append(now, Some(&key), Some(&value), []).map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)?;
        let producer = Some(ProducerStamp { base_sequence: -1, ..producer });
        let marker = writer.close(Closing { producer, is_transactional: true, is_control: true });
        let at = Offset(self.end);
        let marker = marker.and_then(|marker| marker.with_base_offset(at)).map_err(|_| ErrorCode::INVALID_RECORD)?;
        self.store(marker.with_leader_epoch(Some(self.leader_epoch())), order, now);
        Ok(at)
    }

    /// Appends what the leader has appended, as a follower does.
    pub(crate) fn replicate(&mut self, stored: &StoredBatch, now: Timestamp) {
        let header = stored.batch.header();
        self.end = header.base_offset.0;
        if let Some(epoch) = header.leader_epoch {
            self.leader_epoch = self.leader_epoch.max(epoch.0);
        }
        self.store(stored.batch.clone(), stored.order, now);
    }

    /// The batch that holds this offset, and those behind it.
    pub(crate) fn batches_from(&self, offset: Offset) -> impl Iterator<Item = &StoredBatch> {
        let first = self.batches.partition_point(|stored| stored.batch.header().next_offset() <= offset);
        self.batches.range(first..)
    }

    /// Drops every batch that reaches beyond `offset`, as a follower does whose leader does not have them.
    pub(crate) fn truncate_to(&mut self, offset: Offset) {
        if offset.0 >= self.end {
            return;
        }
        while let Some(last) = self.batches.pop_back_if(|last| last.batch.header().next_offset() > offset) {
            self.bytes -= last.batch.bytes().len();
        }
        self.end = self.batches.back().map_or(self.start, |last| last.batch.header().next_offset().0.max(self.start));
        self.epochs.truncate(self.end);
        self.recall();
    }

    /// Begins anew at this offset, as a follower does that the leader's log has left behind.
    pub(crate) fn restart_at(&mut self, offset: Offset) {
        self.batches.clear();
        (self.bytes, self.start, self.end) = (0, offset.0, offset.0);
        self.epochs.truncate(0);
        self.recall();
    }

    /// The first offset of the oldest transaction that is open, or `end`: what may be read where only what is decided is. Not
    /// before the start, though that transaction's first records are deleted.
    pub(crate) fn last_stable(&self, end: Offset) -> Offset {
        self.transactions.last_stable(end).max(self.start()).min(end)
    }

    /// The producers that it remembers, by id.
    pub(crate) fn known_producers(&self) -> Vec<KnownProducer> {
        let mut known = self.producers.known();
        known.iter_mut().for_each(|known| known.open_since = self.transactions.open_since(known.producer_id));
        known
    }

    /// The aborted transactions that overlap these offsets.
    pub(crate) fn aborted_in(&self, from: Offset, to: Offset) -> Vec<Aborted> {
        self.transactions.aborted_in(from, to)
    }

    /// The first record that is not older than `time`, with its time; control records do not count.
    pub(crate) fn first_at(&self, time: Timestamp) -> Option<(Offset, Timestamp, Option<LeaderEpoch>)> {
        let batches = self.batches.iter().filter(|stored| stored.batch.header().max_timestamp >= time);
        batches.filter(|stored| !stored.batch.header().is_control).find_map(|stored| {
            let view = stored.batch.open(&ReadOptions::default()).ok()?;
            let mut records = view.records().filter_map(Result::ok);
            let found = records.find(|record| record.timestamp >= time && record.offset.0 >= self.start)?;
            Some((found.offset, found.timestamp, stored.batch.header().leader_epoch))
        })
    }

    /// The record with the latest time, the first of several.
    pub(crate) fn latest(&self) -> Option<(Offset, Timestamp, Option<LeaderEpoch>)> {
        let data = self.batches.iter().map(|stored| stored.batch.header()).filter(|header| !header.is_control);
        let latest = data.map(|header| header.max_timestamp).max()?;
        self.first_at(latest)
    }

    /// Rebuilds what is known of producers from the batches that are left.
    fn recall(&mut self) {
        self.producers.clear();
        self.transactions = Transactions::default();
        let batches: Vec<EncodedBatch> = self.batches.iter().map(|stored| stored.batch.clone()).collect();
        for batch in &batches {
            self.remember(batch, batch.header().max_timestamp);
        }
    }

    /// Whole batches from the one that holds `from` on that end at `limit` or before it, up to `max_bytes`; where the first
    /// is larger it comes alone, if `at_least_one` says so (KIP-74).
    pub(crate) fn read_below(
        &self,
        from: Offset,
        limit: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Vec<EncodedBatch> {
        let (mut bytes, mut read) = (0, Vec::new());
        for stored in self.from(from) {
            bytes += stored.batch.bytes().len();
            let fits = bytes <= max_bytes || (at_least_one && read.is_empty());
            if !fits || stored.batch.header().next_offset() > limit {
                break;
            }
            read.push(stored.batch.clone());
        }
        read
    }
}
