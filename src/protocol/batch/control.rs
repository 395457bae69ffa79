//! Control batches: what a coordinator or a controller writes between the data.

use bytes::Bytes;

use super::{BatchError, BatchView, Flaw};

/// What a control batch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ControlKind {
    /// The producer's transaction was aborted: its records since the last marker are void.
    Abort,
    /// The producer's transaction was committed.
    Commit,
    /// Of no meaning to a consumer: leader change (2), snapshot header (3) and footer (4), KRaft version (5) and
    /// voters (6), and what newer brokers write.
    Other(i16),
}

impl BatchView {
    /// What this control batch says; `None` for data, and for a control batch that compaction has emptied.
    ///
    /// # Errors
    /// [`BatchError::MalformedRecord`] when the record or its key is malformed.
    pub fn control_kind(&self) -> Result<Option<ControlKind>, BatchError> {
        if !self.is_control() {
            return Ok(None);
        }
        let Some(record) = self.records().next().transpose()? else { return Ok(None) };
        // Key: version i16, which only grows by fields at the end, and type i16.
        let Some([_, _, high, low]) = record.key.and_then(|key| key.first_chunk()) else {
            let base_offset = self.header().base_offset.0;
            return Err(BatchError::MalformedRecord { base_offset, index: 0, flaw: Flaw::ControlKey });
        };
        Ok(Some(match i16::from_be_bytes([*high, *low]) {
            0 => ControlKind::Abort,
            1 => ControlKind::Commit,
            other => ControlKind::Other(other),
        }))
    }
}

impl ControlKind {
    /// The key of a control record of this kind.
    pub fn key(self) -> Bytes {
        let kind = match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::Other(kind) => kind,
        };
        let [high, low] = kind.to_be_bytes();
        Bytes::copy_from_slice(&[0, 0, high, low])
    }

    /// The value of a transaction marker that this epoch of the coordinator writes.
    pub fn marker_value(coordinator_epoch: i32) -> Bytes {
        let [a, b, c, d] = coordinator_epoch.to_be_bytes();
        Bytes::copy_from_slice(&[0, 0, a, b, c, d])
    }
}
