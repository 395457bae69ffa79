//! From the bytes of an answer to its batches.

use std::iter::FusedIterator;

use bytes::Bytes;

use super::header::{self, BatchHeader};
use super::{BatchError, BatchView, EncodedBatch, Flaw};

/// The batches in a partition's records, checked and inflated one by one as they are asked for.
///
/// Ends at the end of the bytes, before a cut last batch, or behind the first error; the batches before either are
/// whole. Whoever keeps what this gives out holds up to [`ReadOptions::max_inflated_bytes`] for each compressed batch.
pub fn batches(records: Bytes, options: &ReadOptions) -> Batches {
    Batches { encoded: encoded(records), options: *options }
}

/// The batches in a partition's records, with nothing looked at but their headers.
///
/// For what is decided without records: skipping what lies before the fetch offset, keeping a log. Ends as
/// [`batches`] does. Checksums are not checked.
pub fn encoded(records: Bytes) -> EncodedBatches {
    EncodedBatches { rest: records, failed: false, cut: None }
}

/// How to read batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadOptions {
    /// The most that one batch may inflate to, in bytes. Default 100 MiB.
    pub max_inflated_bytes: usize,
    /// Whether to check each batch's CRC-32C. Default true (Java `check.crcs`).
    pub check_crc: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { max_inflated_bytes: 100 << 20, check_crc: true }
    }
}

/// A batch that the answer ends within: the broker cut it at the size that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutBatch {
    /// How many of its bytes came.
    pub present_bytes: usize,
    /// How many it has in all, as it claims; `None` when the claim itself was cut.
    pub claimed_bytes: Option<usize>,
}

/// Iterator of [`batches`].
#[derive(Debug)]
pub struct Batches {
    encoded: EncodedBatches,
    options: ReadOptions,
}

impl Batches {
    /// After the end: the cut batch that follows, if one does. An answer of nothing else makes no progress.
    pub fn cut(&self) -> Option<CutBatch> {
        self.encoded.cut
    }
}

impl Iterator for Batches {
    type Item = Result<BatchView, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let opened = self.encoded.next()?.and_then(|batch| batch.open(&self.options));
        self.encoded.failed |= opened.is_err();
        Some(opened)
    }
}

impl FusedIterator for Batches {}

/// Iterator of [`encoded`].
#[derive(Debug)]
pub struct EncodedBatches {
    rest: Bytes,
    failed: bool,
    cut: Option<CutBatch>,
}

impl EncodedBatches {
    /// After the end: the cut batch that follows, if one does.
    pub fn cut(&self) -> Option<CutBatch> {
        self.cut
    }

    /// The next batch's header and size in bytes; `None` when it is cut.
    fn measure(&mut self) -> Result<Option<(BatchHeader, usize)>, BatchError> {
        let present_bytes = self.rest.len();
        self.cut = Some(CutBatch { present_bytes, claimed_bytes: None });
        // All formats have offset, length and magic at the same places.
        let Some(front) = self.rest.first_chunk::<{ header::MAGIC + 1 }>() else { return Ok(None) };
        let [.., magic] = *front;
        let base_offset = i64::from_be_bytes(*front.first_chunk().expect("eight of seventeen bytes"));
        if magic != 2 {
            return Err(BatchError::UnsupportedMagic { base_offset, magic: magic as i8 });
        }
        let length = front[header::BATCH_LENGTH..].first_chunk().copied().map(i32::from_be_bytes);
        let length = length.expect("four bytes from the eighth of seventeen");
        let claimed_bytes = usize::try_from(length)
            .map(|length| length + header::LENGTH_COUNTS_FROM)
            .ok()
            .filter(|claimed| *claimed >= header::LENGTH)
            .ok_or(BatchError::Malformed { base_offset, flaw: Flaw::BatchLength(length) })?;
        if claimed_bytes > present_bytes {
            self.cut = Some(CutBatch { present_bytes, claimed_bytes: Some(claimed_bytes) });
            return Ok(None);
        }
        self.cut = None;
        let header = self.rest.first_chunk().expect("a batch is at least its header");
        Ok(Some((BatchHeader::parse(header)?, claimed_bytes)))
    }
}

impl Iterator for EncodedBatches {
    type Item = Result<EncodedBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        match self.measure() {
            Ok(Some((header, size))) => Some(Ok(EncodedBatch::new(header, self.rest.split_to(size)))),
            Ok(None) => None,
            Err(error) => {
                self.failed = true;
                self.cut = None;
                Some(Err(error))
            }
        }
    }
}

impl FusedIterator for EncodedBatches {}
