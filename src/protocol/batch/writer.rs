//! Writing records into the batch that will be sent.

use std::fmt;

use super::EncodedBatch;
use super::header::{self, BatchHeader, ProducerStamp};
use crate::protocol::compression::{self, Codec, Compression, CompressionError};
use crate::record::{Timestamp, varint};

/// A batch that records are appended to. Each is encoded once, behind room for the header.
///
/// ```
/// use kafka_harbor::protocol::batch::{BatchWriter, Closing};
/// use kafka_harbor::protocol::compression::Compression;
/// use kafka_harbor::record::Timestamp;
///
/// let mut writer = BatchWriter::new(Compression::NONE);
/// writer.append(Timestamp(1_700_000_000_000), Some(b"key"), Some(b"value"), [(&b"trace"[..], Some(&b"7f"[..]))])?;
/// writer.append(Timestamp(1_700_000_000_001), None, Some(b"no key"), [])?;
/// let batch = writer.close(Closing::default())?;
/// assert_eq!(batch.header().record_count, 2);
/// # Ok::<(), kafka_harbor::protocol::batch::WriteError>(())
/// ```
pub struct BatchWriter {
    /// The header's room, the records, and what is free behind them: writing into bytes that exist is what makes
    /// an append cheap.
    buffer: Vec<u8>,
    /// Where the free part begins.
    used: usize,
    compression: Compression,
    record_count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchWriter {
    /// An empty batch.
    pub fn new(compression: Compression) -> Self {
        Self::with_buffer(compression, Vec::new())
    }

    /// An empty batch with room for `bytes` encoded bytes, header included.
    pub fn with_capacity(compression: Compression, bytes: usize) -> Self {
        Self::with_buffer(compression, vec![0; bytes])
    }

    /// An empty batch in this buffer's memory; what it holds is overwritten. A buffer that was filled before is
    /// cheaper than a new one.
    pub fn with_buffer(compression: Compression, mut buffer: Vec<u8>) -> Self {
        if buffer.len() < header::LENGTH {
            buffer.resize(header::LENGTH, 0);
        }
        Self { buffer, used: header::LENGTH, compression, record_count: 0, base_timestamp: 0, max_timestamp: i64::MIN }
    }

    /// How many records it holds.
    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Whether it holds no records.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// The bytes of the batch if it were closed uncompressed now.
    pub fn encoded_bytes(&self) -> usize {
        self.used
    }

    /// Appends a record behind the others; answers its place, from 0. A refused record leaves the batch as it was.
    ///
    /// # Errors
    /// When the record's time is too far from the first's, or the batch would pass 2 GiB.
    #[inline]
    pub fn append<'h, H>(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: H,
    ) -> Result<u32, WriteError>
    where
        H: IntoIterator<Item = (&'h [u8], Option<&'h [u8]>), IntoIter: Clone>,
    {
        match self.append_within(MAX_BATCH_BYTES, timestamp, key, value, headers)? {
            Some(index) => Ok(index),
            None => Err(WriteError::TooLarge),
        }
    }

    /// Appends a record unless the batch, uncompressed and header included, would pass `max_bytes`: then `None`, and
    /// the batch is as it was.
    ///
    /// # Errors
    /// When the record's time is too far from the first's, or the batch would pass 2 GiB.
    #[inline]
    pub fn append_within<'h, H>(
        &mut self,
        max_bytes: usize,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: H,
    ) -> Result<Option<u32>, WriteError>
    where
        H: IntoIterator<Item = (&'h [u8], Option<&'h [u8]>), IntoIter: Clone>,
    {
        let base = if self.record_count == 0 { timestamp.0 } else { self.base_timestamp };
        let timestamp_delta = timestamp.0.checked_sub(base).ok_or(WriteError::Timestamp)?;
        let offset_delta = i64::from(self.record_count);

        let headers = headers.into_iter();
        let (header_count, header_bytes) = headers.clone().fold((0_i64, 0_usize), |(count, bytes), (name, value)| {
            (count + 1, bytes + field_len(Some(name)) + field_len(value))
        });
        let body = 1 // attributes
            + varint::len_i64(timestamp_delta)
            + varint::len_i64(offset_delta)
            + field_len(key)
            + field_len(value)
            + varint::len_i64(header_count)
            + header_bytes;
        let whole = varint::len_i64(body as i64) + body;
        let end = self.used + whole;
        if end > max_bytes {
            return Ok(None);
        }
        if end > MAX_BATCH_BYTES {
            return Err(WriteError::TooLarge);
        }
        if end > self.buffer.len() {
            self.grow(end);
        }

        let out = &mut self.buffer[self.used..end];
        let at = &mut 0;
        varint::put_i64(out, at, body as i64);
        out[*at] = 0; // attributes
        *at += 1;
        varint::put_i64(out, at, timestamp_delta);
        varint::put_i64(out, at, offset_delta);
        put_field(out, at, key);
        put_field(out, at, value);
        varint::put_i64(out, at, header_count);
        for (name, value) in headers {
            put_field(out, at, Some(name));
            put_field(out, at, value);
        }
        debug_assert_eq!(*at, whole);

        self.used = end;
        self.base_timestamp = base;
        self.max_timestamp = self.max_timestamp.max(timestamp.0);
        let index = self.record_count;
        self.record_count += 1;
        Ok(Some(index))
    }

    /// Closes the batch: compresses, and fills in lengths, counts, times and checksum.
    ///
    /// The batch begins at offset 0, as produced batches do, in no leader's epoch.
    ///
    /// # Errors
    /// [`WriteError::Empty`] without records, [`WriteError::Compression`] when the codec is not compiled in or fails.
    pub fn close(mut self, closing: Closing) -> Result<EncodedBatch, WriteError> {
        let last_offset_delta = self.record_count.checked_sub(1).ok_or(WriteError::Empty)? as i32;
        let codec = self.compression.codec();
        self.buffer.truncate(self.used);
        let mut bytes = match codec {
            Codec::None => self.buffer,
            _ => compress(self.compression, &self.buffer[header::LENGTH..])?,
        };
        let length = i32::try_from(bytes.len() - header::LENGTH_COUNTS_FROM).map_err(|_| WriteError::TooLarge)?;
        let mut attributes = i16::from(codec.bits());
        if closing.is_transactional {
            attributes |= header::TRANSACTIONAL_BIT;
        }
        if closing.is_control {
            attributes |= header::CONTROL_BIT;
        }
        header::put(&mut bytes, header::BASE_OFFSET, 0_i64.to_be_bytes());
        header::put(&mut bytes, header::BATCH_LENGTH, length.to_be_bytes());
        header::put(&mut bytes, header::LEADER_EPOCH, (-1_i32).to_be_bytes());
        header::put(&mut bytes, header::MAGIC, [2]);
        header::put(&mut bytes, header::ATTRIBUTES, attributes.to_be_bytes());
        header::put(&mut bytes, header::LAST_OFFSET_DELTA, last_offset_delta.to_be_bytes());
        header::put(&mut bytes, header::BASE_TIMESTAMP, self.base_timestamp.to_be_bytes());
        header::put(&mut bytes, header::MAX_TIMESTAMP, self.max_timestamp.to_be_bytes());
        header::put_producer(&mut bytes, closing.producer);
        header::put(&mut bytes, header::RECORD_COUNT, self.record_count.to_be_bytes());
        header::put_crc(&mut bytes);

        let header = bytes.first_chunk().expect("the header's room is the front of every batch");
        let header = BatchHeader::parse(header).expect("the writer fills in what the reader asks for");
        Ok(EncodedBatch::new(header, bytes.into()))
    }

    /// Makes room up to `end` at least.
    #[cold]
    fn grow(&mut self, end: usize) {
        let bytes = (self.buffer.len() * 2).max(end).max(MIN_BUFFER_BYTES);
        self.buffer.reserve_exact(bytes - self.buffer.len());
        self.buffer.resize(bytes, 0);
    }
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter")
            .field("compression", &self.compression)
            .field("record_count", &self.record_count)
            .field("encoded_bytes", &self.encoded_bytes())
            .finish()
    }
}

/// What is known of a batch when it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Closing {
    /// Who writes it; `None` for a producer that is not idempotent. [`EncodedBatch::with_producer`] sets it later.
    pub producer: Option<ProducerStamp>,
    /// Whether it belongs to a transaction.
    pub is_transactional: bool,
    /// Whether its record is a control record.
    pub is_control: bool,
}

/// A record or batch that cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The batch holds no records.
    #[error("a batch without records")]
    Empty,
    /// The batch would pass the 2 GiB that the format can express.
    #[error("a batch above 2 GiB")]
    TooLarge,
    /// The record's time and the batch's first are further apart than 64 bits can tell.
    #[error("timestamp too far from the batch's first")]
    Timestamp,
    /// The batch would not lie between offset 0 and the last possible one.
    #[error("offset out of range")]
    Offset,
    /// The records could not be compressed.
    #[error(transparent)]
    Compression(#[from] CompressionError),
}

/// Writes a length and what it counts at `*at`, -1 for null, and moves `*at` behind it.
#[inline(always)]
fn put_field(out: &mut [u8], at: &mut usize, field: Option<&[u8]>) {
    let Some(field) = field else { return varint::put_i64(out, at, -1) };
    varint::put_i64(out, at, field.len() as i64);
    copy(&mut out[*at..*at + field.len()], field);
    *at += field.len();
}

/// `copy_from_slice`, with keys and header names of usual lengths copied as two overlapping words: a call of
/// `memcpy` costs more than they do.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8]) {
    match from.len() {
        4..8 => copy_ends::<4>(to, from),
        8..17 => copy_ends::<8>(to, from),
        17..33 => copy_ends::<16>(to, from),
        _ => to.copy_from_slice(from),
    }
}

#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(front), Some(back)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        if let Some(to) = to.first_chunk_mut() {
            *to = *front;
        }
        if let Some(to) = to.last_chunk_mut() {
            *to = *back;
        }
    }
}

/// The bytes of a length and what it counts.
#[inline(always)]
fn field_len(field: Option<&[u8]>) -> usize {
    field.map_or(1, |field| varint::len_i64(field.len() as i64) + field.len())
}

fn compress(compression: Compression, records: &[u8]) -> Result<Vec<u8>, CompressionError> {
    let mut out = Vec::with_capacity(header::LENGTH + records.len() / 2);
    out.resize(header::LENGTH, 0);
    compression::compress(compression, records, &mut out)?;
    Ok(out)
}

/// A first record of usual size and some more.
const MIN_BUFFER_BYTES: usize = 1 << 10;
/// A batch's length field counts from behind itself and is signed.
const MAX_BATCH_BYTES: usize = i32::MAX as usize;
