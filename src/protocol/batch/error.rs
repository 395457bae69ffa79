//! What can be wrong with a batch.

use crate::protocol::compression::CompressionError;

/// A batch that cannot be read. The peer broke the protocol, but for
/// [`CompressionError::Disabled`] behind [`Compression`](Self::Compression).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A message set of the formats before Kafka 0.11.
    #[error("batch at offset {base_offset} has magic {magic}, only record batch v2 is read")]
    UnsupportedMagic {
        /// Where the batch begins.
        base_offset: i64,
        /// The format's number.
        magic: i8,
    },
    /// The batch's bytes are not those that were written.
    #[error("batch at offset {base_offset} claims CRC {expected:08x}, its bytes have {actual:08x}")]
    Checksum {
        /// Where the batch begins.
        base_offset: i64,
        /// What the batch claims.
        expected: u32,
        /// What its bytes have.
        actual: u32,
    },
    /// The batch contradicts itself.
    #[error("batch at offset {base_offset} is malformed: {flaw}")]
    Malformed {
        /// Where the batch begins.
        base_offset: i64,
        /// How it contradicts itself.
        flaw: Flaw,
    },
    /// One of the batch's records contradicts itself or the batch. Those before it are whole.
    #[error("record {index} of the batch at offset {base_offset} is malformed: {flaw}")]
    MalformedRecord {
        /// Where the batch begins.
        base_offset: i64,
        /// Which record, counted from 0.
        index: u32,
        /// How it contradicts itself.
        flaw: Flaw,
    },
    /// The records cannot be inflated.
    #[error("batch at offset {base_offset} cannot be inflated")]
    Compression {
        /// Where the batch begins.
        base_offset: i64,
        /// Why.
        #[source]
        source: CompressionError,
    },
}

/// How a batch or record contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The batch length is too small for a header.
    #[error("batch length {0}")]
    BatchLength(i32),
    /// An offset is negative, too large, outside the batch, or does not ascend.
    #[error("offset out of order or range")]
    Offset,
    /// The count of records does not fit the bytes or the offsets.
    #[error("record count")]
    RecordCount,
    /// The codec's number is none that exists.
    #[error("unknown codec {0}")]
    UnknownCodec(u8),
    /// Bytes are left behind the last record.
    #[error("bytes behind the last record")]
    TrailingBytes,
    /// The record's length does not fit the batch or its own fields.
    #[error("record length")]
    RecordLength,
    /// The record ends within a field, or a field is no number.
    #[error("cut or impossible field")]
    Field,
    /// The record's time does not fit 64 bits.
    #[error("timestamp out of range")]
    Timestamp,
    /// The headers are not whole, or a name is null.
    #[error("headers")]
    Headers,
    /// A control record whose key is too short for a type.
    #[error("control record key")]
    ControlKey,
}
