//! A batch as it travels and lies in a log.

use std::fmt;

use bytes::{Bytes, BytesMut};

use super::header::{self, BatchHeader, ProducerStamp};
use super::{BatchError, BatchView, BatchWriter, Closing, ReadOptions, WriteError};
use crate::protocol::compression::{self, Codec, Compression};
use crate::record::{LeaderEpoch, Offset, Timestamp};

/// One whole batch, encoded. Cheap to clone.
///
/// The `with_` functions rewrite fields of the header in place where no one else holds the bytes, else in a copy.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedBatch {
    header: BatchHeader,
    bytes: Bytes,
}

impl EncodedBatch {
    /// A batch that was measured to be whole; its header is the front of its bytes.
    pub(super) fn new(header: BatchHeader, bytes: Bytes) -> Self {
        Self { header, bytes }
    }

    /// What the batch says of itself.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The batch's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The batch's bytes.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The batch opened for reading: checksum checked, records inflated.
    ///
    /// # Errors
    /// When the checksum is wrong, the records do not inflate within the ceiling, or their count lies.
    pub fn open(&self, options: &ReadOptions) -> Result<BatchView, BatchError> {
        if options.check_crc {
            self.check_crc()?;
        }
        let records = self.bytes.slice(header::LENGTH..);
        let records = match self.header.codec {
            // An emptied batch keeps its codec but has nothing to inflate.
            _ if records.is_empty() => records,
            Codec::None => records,
            codec => compression::inflate(codec, &records, options.max_inflated_bytes)
                .map(Bytes::from)
                .map_err(|source| BatchError::Compression { base_offset: self.header.base_offset.0, source })?,
        };
        BatchView::new(self.header, records)
    }

    /// Checks the CRC-32C.
    ///
    /// # Errors
    /// [`BatchError::Checksum`].
    pub fn check_crc(&self) -> Result<(), BatchError> {
        let actual = crc32c::crc32c(&self.bytes[header::ATTRIBUTES..]);
        if actual == self.header.crc {
            return Ok(());
        }
        Err(BatchError::Checksum { base_offset: self.header.base_offset.0, expected: self.header.crc, actual })
    }

    /// The same batch with its first record at this offset. Not part of the checksum.
    ///
    /// # Errors
    /// [`WriteError::Offset`] when the offset is negative or the batch would pass `i64::MAX`.
    pub fn with_base_offset(self, base_offset: Offset) -> Result<Self, WriteError> {
        let last = base_offset.0.checked_add(i64::from(self.header.last_offset_delta) + 1);
        if base_offset.0 < 0 || last.is_none() {
            return Err(WriteError::Offset);
        }
        Ok(self.rewrite(|bytes| header::put(bytes, header::BASE_OFFSET, base_offset.0.to_be_bytes())))
    }

    /// The same batch as appended in this epoch of the leader. Not part of the checksum.
    #[must_use]
    pub fn with_leader_epoch(self, epoch: Option<LeaderEpoch>) -> Self {
        let epoch = epoch.map_or(-1, |epoch| epoch.0);
        self.rewrite(|bytes| header::put(bytes, header::LEADER_EPOCH, epoch.to_be_bytes()))
    }

    /// The same batch written by `producer`, as after an epoch bump that renumbers it. Rewrites the checksum.
    #[must_use]
    pub fn with_producer(self, producer: Option<ProducerStamp>) -> Self {
        self.rewrite(|bytes| {
            header::put_producer(bytes, producer);
            header::put_crc(bytes);
        })
    }

    /// The same batch as appended at this time by a broker that keeps append times. Rewrites the checksum.
    #[must_use]
    pub fn with_log_append_time(self, time: Timestamp) -> Self {
        self.rewrite(|bytes| {
            // The attributes' lower byte.
            bytes[header::ATTRIBUTES + 1] |= header::LOG_APPEND_TIME_BIT as u8;
            header::put(bytes, header::MAX_TIMESTAMP, time.0.to_be_bytes());
            header::put_crc(bytes);
        })
    }

    /// The same records in two batches, the first with the larger half, the second with the sequence that follows.
    /// One record cannot be split: `None`.
    ///
    /// For a batch that the broker found too large.
    ///
    /// # Errors
    /// When the batch cannot be read or written. One that [`BatchWriter`] wrote can be, within `options`.
    pub fn split(&self, compression: Compression, options: &ReadOptions) -> Result<Option<(Self, Self)>, SplitError> {
        if self.header.record_count < 2 {
            return Ok(None);
        }
        let view = self.open(options)?;
        let in_first = self.header.record_count.div_ceil(2);
        let mut halves = [BatchWriter::new(compression), BatchWriter::new(compression)];
        for (index, record) in (0_u32..).zip(view.records()) {
            let record = record?;
            let half = &mut halves[usize::from(index >= in_first)];
            half.append(record.timestamp, record.key, record.value, record.headers)?;
        }
        let [first, second] = halves;
        let closing = Closing {
            producer: self.header.producer,
            is_transactional: self.header.is_transactional,
            is_control: self.header.is_control,
        };
        let behind = self.header.producer.map(|producer| producer.advanced_by(in_first));
        Ok(Some((first.close(closing)?, second.close(Closing { producer: behind, ..closing })?)))
    }

    /// The batch with its bytes changed by `change`.
    fn rewrite(self, change: impl FnOnce(&mut [u8])) -> Self {
        let mut bytes = self.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        change(&mut bytes);
        let header = bytes.first_chunk().expect("a batch is at least its header");
        let header = BatchHeader::parse(header).expect("only fields with nothing to contradict are changed");
        Self { header, bytes: bytes.freeze() }
    }
}

impl fmt::Debug for EncodedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedBatch").field("header", &self.header).field("bytes", &self.bytes.len()).finish()
    }
}

/// A batch that was to be split could not be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// It could not be read back.
    #[error("the batch to split cannot be read")]
    Read(#[from] BatchError),
    /// A half could not be written.
    #[error("a half of the split batch cannot be written")]
    Write(#[from] WriteError),
}
