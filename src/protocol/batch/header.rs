//! The 61 bytes before a batch's records.
//!
//! ```text
//! at  0 base offset i64          at 27 base timestamp i64
//!     8 batch length i32            35 max timestamp i64
//!    12 partition leader epoch i32  43 producer id i64
//!    16 magic i8, always 2          51 producer epoch i16
//!    17 CRC-32C u32 of all below    53 base sequence i32
//!    21 attributes i16              57 record count i32
//!    23 last offset delta i32       61 records
//! ```

use super::{BatchError, Flaw};
use crate::protocol::compression::Codec;
use crate::record::{LeaderEpoch, Offset, Timestamp};

/// What a batch says of itself. Checked for what can be known without looking at the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchHeader {
    /// The offset that its records' deltas count from.
    pub base_offset: Offset,
    /// The leader's epoch when the batch was appended; `None` before that.
    pub leader_epoch: Option<LeaderEpoch>,
    /// CRC-32C of everything from the attributes on, as the batch claims.
    pub crc: u32,
    /// How the records are compressed.
    pub codec: Codec,
    /// What the timestamps mean.
    pub timestamp_type: TimestampType,
    /// Whether it belongs to a transaction.
    pub is_transactional: bool,
    /// Whether it holds a control record and no data.
    pub is_control: bool,
    /// The last offset it covers, counted from the base offset. Compaction removes records, never this.
    pub last_offset_delta: i32,
    /// The time that its records' deltas count from.
    pub base_timestamp: Timestamp,
    /// The latest of its records' times, or when the broker appended it under [`TimestampType::LogAppendTime`].
    pub max_timestamp: Timestamp,
    /// Who wrote it, if an idempotent producer did.
    pub producer: Option<ProducerStamp>,
    /// How many records it holds; none once compaction has emptied it.
    pub record_count: u32,
}

impl BatchHeader {
    /// The offset after the last one that the batch covers.
    pub fn next_offset(&self) -> Offset {
        // `parse` has checked that this fits.
        Offset(self.base_offset.0 + i64::from(self.last_offset_delta) + 1)
    }

    /// Reads the header of a whole batch, at least [`LENGTH`] bytes.
    pub(super) fn parse(bytes: &[u8; LENGTH]) -> Result<Self, BatchError> {
        let base_offset = i64::from_be_bytes(field(bytes, BASE_OFFSET));
        let flaw = |flaw| BatchError::Malformed { base_offset, flaw };
        let attributes = i16::from_be_bytes(field(bytes, ATTRIBUTES));
        let last_offset_delta = i32::from_be_bytes(field(bytes, LAST_OFFSET_DELTA));
        let record_count = i32::from_be_bytes(field(bytes, RECORD_COUNT));
        let leader_epoch = i32::from_be_bytes(field(bytes, LEADER_EPOCH));
        let producer_id = i64::from_be_bytes(field(bytes, PRODUCER_ID));

        let codec = attributes & CODEC_BITS;
        let codec = Codec::from_bits(codec as u8).ok_or(flaw(Flaw::UnknownCodec(codec as u8)))?;
        if base_offset < 0 || last_offset_delta < 0 {
            return Err(flaw(Flaw::Offset));
        }
        base_offset.checked_add(i64::from(last_offset_delta) + 1).ok_or(flaw(Flaw::Offset))?;
        // Deltas ascend from 0, so a batch cannot hold more records than it covers offsets.
        let record_count = u32::try_from(record_count).map_err(|_| flaw(Flaw::RecordCount))?;
        if i64::from(record_count) > i64::from(last_offset_delta) + 1 {
            return Err(flaw(Flaw::RecordCount));
        }
        Ok(Self {
            base_offset: Offset(base_offset),
            leader_epoch: (leader_epoch >= 0).then_some(LeaderEpoch(leader_epoch)),
            crc: u32::from_be_bytes(field(bytes, CRC)),
            codec,
            timestamp_type: if attributes & LOG_APPEND_TIME_BIT != 0 {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            is_transactional: attributes & TRANSACTIONAL_BIT != 0,
            is_control: attributes & CONTROL_BIT != 0,
            last_offset_delta,
            base_timestamp: Timestamp(i64::from_be_bytes(field(bytes, BASE_TIMESTAMP))),
            max_timestamp: Timestamp(i64::from_be_bytes(field(bytes, MAX_TIMESTAMP))),
            producer: (producer_id >= 0).then(|| ProducerStamp {
                id: producer_id,
                epoch: i16::from_be_bytes(field(bytes, PRODUCER_EPOCH)),
                base_sequence: i32::from_be_bytes(field(bytes, BASE_SEQUENCE)),
            }),
            record_count,
        })
    }
}

/// Who wrote a batch: what the broker tells duplicates and gaps by (KIP-98).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProducerStamp {
    /// The producer id, from InitProducerId.
    pub id: i64,
    /// The producer's epoch.
    pub epoch: i16,
    /// The sequence number of the batch's first record; -1 in control batches. Wraps from `i32::MAX` to 0.
    pub base_sequence: i32,
}

impl ProducerStamp {
    /// The stamp of the batch that follows one of `records` records.
    #[must_use]
    pub fn advanced_by(self, records: u32) -> Self {
        // Sequences count modulo 2^31, as the broker's do.
        let next = (i64::from(self.base_sequence) + i64::from(records)) & i64::from(i32::MAX);
        Self { base_sequence: next as i32, ..self }
    }
}

/// What a batch's timestamps mean (topic setting `message.timestamp.type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// Each record has the time its producer gave it.
    CreateTime,
    /// All records have the time at which the broker appended the batch.
    LogAppendTime,
}

#[inline]
pub(super) fn field<const N: usize>(bytes: &[u8; LENGTH], at: usize) -> [u8; N] {
    bytes[at..].first_chunk().copied().expect("every field ends within the header")
}

/// Overwrites a field.
#[inline]
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// Overwrites the producer's three fields.
pub(super) fn put_producer(bytes: &mut [u8], producer: Option<ProducerStamp>) {
    let stamp = producer.unwrap_or(ProducerStamp { id: -1, epoch: -1, base_sequence: -1 });
    put(bytes, PRODUCER_ID, stamp.id.to_be_bytes());
    put(bytes, PRODUCER_EPOCH, stamp.epoch.to_be_bytes());
    put(bytes, BASE_SEQUENCE, stamp.base_sequence.to_be_bytes());
}

/// Overwrites the checksum by that of the batch's bytes.
pub(super) fn put_crc(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[ATTRIBUTES..]);
    put(bytes, CRC, crc.to_be_bytes());
}

/// Bytes before the records.
pub(super) const LENGTH: usize = 61;
pub(super) const BASE_OFFSET: usize = 0;
pub(super) const BATCH_LENGTH: usize = 8;
pub(super) const LEADER_EPOCH: usize = 12;
pub(super) const MAGIC: usize = 16;
pub(super) const CRC: usize = 17;
pub(super) const ATTRIBUTES: usize = 21;
pub(super) const LAST_OFFSET_DELTA: usize = 23;
pub(super) const BASE_TIMESTAMP: usize = 27;
pub(super) const MAX_TIMESTAMP: usize = 35;
pub(super) const PRODUCER_ID: usize = 43;
pub(super) const PRODUCER_EPOCH: usize = 51;
pub(super) const BASE_SEQUENCE: usize = 53;
pub(super) const RECORD_COUNT: usize = 57;
/// The batch length counts from behind itself.
pub(super) const LENGTH_COUNTS_FROM: usize = 12;

pub(super) const CODEC_BITS: i16 = 0b111;
pub(super) const LOG_APPEND_TIME_BIT: i16 = 1 << 3;
pub(super) const TRANSACTIONAL_BIT: i16 = 1 << 4;
pub(super) const CONTROL_BIT: i16 = 1 << 5;
