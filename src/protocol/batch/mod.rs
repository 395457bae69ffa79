//! Record batch v2: reader and writer. (Skeleton of the reader's face; see the batch work.)

use crate::record::{Offset, RecordView};

/// One batch of records, decompressed and checked, read in place.
#[derive(Debug, Clone)]
pub struct BatchView {
    next_offset: Offset,
}

impl BatchView {
    /// Whether it holds control records (transaction markers) and no data.
    pub fn is_control(&self) -> bool {
        false
    }

    /// Its records in order.
    pub fn records(&self) -> impl Iterator<Item = RecordView<'_>> {
        std::iter::empty()
    }

    /// The offset after the last one that it covers: base offset plus last offset delta plus one.
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }
}
