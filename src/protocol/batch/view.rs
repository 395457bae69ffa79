//! A batch opened for reading, and its records.

use std::fmt;
use std::iter::FusedIterator;

use bytes::Bytes;

use super::header::BatchHeader;
use super::{BatchError, Flaw, TimestampType};
use crate::record::{HeadersView, LeaderEpoch, Offset, RecordView, Timestamp, varint};

/// One batch of records, decompressed and checked, read in place. Cheap to clone.
///
/// An uncompressed batch is a slice of the answer it came in and keeps all of it in memory, as does whatever is
/// taken from it by [`share`](Self::share).
#[derive(Clone)]
pub struct BatchView {
    header: BatchHeader,
    records: Bytes,
}

impl BatchView {
    /// A view over inflated records.
    pub(super) fn new(header: BatchHeader, records: Bytes) -> Result<Self, BatchError> {
        // Each record takes at least its length and six bytes: a count above that lies.
        if header.record_count as usize > records.len() / MIN_RECORD_BYTES {
            return Err(BatchError::Malformed { base_offset: header.base_offset.0, flaw: Flaw::RecordCount });
        }
        Ok(Self { header, records })
    }

    /// What the batch says of itself.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Whether it holds control records (transaction markers) and no data.
    pub fn is_control(&self) -> bool {
        self.header.is_control
    }

    /// How many records it holds; none once compaction has emptied it.
    pub fn len(&self) -> usize {
        self.header.record_count as usize
    }

    /// Whether it holds no records. It covers offsets all the same.
    pub fn is_empty(&self) -> bool {
        self.header.record_count == 0
    }

    /// The offset after the last one that it covers: base offset plus last offset delta plus one.
    pub fn next_offset(&self) -> Offset {
        self.header.next_offset()
    }

    /// The leader's epoch when the batch was appended, to be committed with its offsets (KIP-320).
    pub fn leader_epoch(&self) -> Option<LeaderEpoch> {
        self.header.leader_epoch
    }

    /// How many bytes its records take, inflated.
    pub fn records_bytes(&self) -> usize {
        self.records.len()
    }

    /// Its records in order. Ends behind the first error.
    pub fn records(&self) -> Records<'_> {
        Records { view: self, at: RecordCursor::default() }
    }

    /// The record at `cursor`, which then stands behind it. `None` at the end of the batch.
    ///
    /// For a reader that cannot keep a borrow, such as one that waits between two records. After an error the cursor
    /// stands before the malformed record.
    ///
    /// # Errors
    /// [`BatchError::MalformedRecord`], naming the record. Those before it are whole; its offset and those after
    /// it are not to be committed.
    #[inline]
    pub fn read_at(&self, cursor: &mut RecordCursor) -> Option<Result<RecordView<'_>, BatchError>> {
        if cursor.index >= self.header.record_count {
            return self.check_end(cursor);
        }
        Some(self.decode(cursor).map_err(|flaw| self.malformed(cursor.index, flaw)))
    }

    /// `part` of one of this batch's records as bytes that outlive the borrow, without a copy. They keep the whole
    /// batch in memory, so copy what is kept for long. Bytes from elsewhere are copied.
    pub fn share(&self, part: &[u8]) -> Bytes {
        let all = self.records.as_ptr_range();
        let range = part.as_ptr_range();
        if all.start <= range.start && range.end <= all.end {
            self.records.slice_ref(part)
        } else {
            Bytes::copy_from_slice(part)
        }
    }

    #[inline(always)]
    fn decode(&self, cursor: &mut RecordCursor) -> Result<RecordView<'_>, Flaw> {
        let mut rest = self.records.get(cursor.position..).ok_or(Flaw::RecordLength)?;
        let length = varint::take_i32(&mut rest).and_then(|length| usize::try_from(length).ok());
        let (mut body, rest) = length.and_then(|length| rest.split_at_checked(length)).ok_or(Flaw::RecordLength)?;

        // The record's attributes; no bit of them is used.
        body = body.get(1..).ok_or(Flaw::Field)?;
        let timestamp_delta = varint::take_i64(&mut body).ok_or(Flaw::Field)?;
        let offset_delta = varint::take_i32(&mut body).ok_or(Flaw::Field)?;
        let key = varint::take_bytes(&mut body).ok_or(Flaw::Field)?;
        let value = varint::take_bytes(&mut body).ok_or(Flaw::Field)?;
        let header_count = varint::take_i32(&mut body).ok_or(Flaw::Field)?;
        let headers = match header_count {
            0 => HeadersView::default(),
            count => usize::try_from(count)
                .ok()
                .and_then(|count| HeadersView::take(count, &mut body))
                .ok_or(Flaw::Headers)?,
        };
        if !body.is_empty() {
            return Err(Flaw::RecordLength);
        }
        // Ascending from the batch's base to its last offset: else a commit would go back, or past the batch.
        if offset_delta < cursor.min_offset_delta || offset_delta > self.header.last_offset_delta {
            return Err(Flaw::Offset);
        }
        let timestamp = match self.header.timestamp_type {
            TimestampType::CreateTime => {
                self.header.base_timestamp.0.checked_add(timestamp_delta).ok_or(Flaw::Timestamp)?
            }
            TimestampType::LogAppendTime => self.header.max_timestamp.0,
        };
        *cursor = RecordCursor {
            position: self.records.len() - rest.len(),
            index: cursor.index + 1,
            // At most the last offset delta, which a cursor behind the last record may pass by one.
            min_offset_delta: offset_delta.saturating_add(1),
        };
        Ok(RecordView {
            // Cannot overflow: the delta is at most the last one, which the header's check has added.
            offset: Offset(self.header.base_offset.0 + i64::from(offset_delta)),
            timestamp: Timestamp(timestamp),
            key,
            value,
            headers,
            delivery_count: 0,
        })
    }

    /// At the end by the count: that no bytes are left.
    fn check_end(&self, cursor: &RecordCursor) -> Option<Result<RecordView<'_>, BatchError>> {
        (cursor.position < self.records.len()).then(|| Err(self.malformed(cursor.index, Flaw::TrailingBytes)))
    }

    #[cold]
    fn malformed(&self, index: u32, flaw: Flaw) -> BatchError {
        BatchError::MalformedRecord { base_offset: self.header.base_offset.0, index, flaw }
    }
}

impl fmt::Debug for BatchView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchView").field("header", &self.header).field("records_bytes", &self.records.len()).finish()
    }
}

/// A place between two records of one [`BatchView`]. The default is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordCursor {
    position: usize,
    index: u32,
    /// The least offset delta that the next record may have.
    min_offset_delta: i32,
}

/// Iterator of [`BatchView::records`].
#[derive(Debug, Clone)]
pub struct Records<'a> {
    view: &'a BatchView,
    at: RecordCursor,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let read = self.view.read_at(&mut self.at);
        if let Some(Err(_)) = read {
            // Nothing follows an error.
            self.at = RecordCursor { position: self.view.records.len(), index: u32::MAX, min_offset_delta: 0 };
        }
        read
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // One more than is left, for an error at the end.
        (0, Some((self.view.header.record_count.saturating_sub(self.at.index)) as usize + 1))
    }
}

impl FusedIterator for Records<'_> {}

/// Length, attributes, two deltas, two lengths of null, no headers.
const MIN_RECORD_BYTES: usize = 7;
