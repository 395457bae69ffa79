//! Record batch v2: what a Fetch answer brings and a Produce request carries.
//!
//! ```text
//! Bytes of an answer ──[batches]──► BatchView ──records──► RecordView     borrowed, no allocation a record
//!        └─────────────[encoded]──► EncodedBatch ─open──┘
//! records ──append──► BatchWriter ─close──► EncodedBatch ─into_bytes──► Bytes of a request
//! ```
//!
//! Reading is in place: a [`BatchView`] is a slice of the answer, or the inflated buffer of a compressed batch.
//! Records are decoded as they are iterated, so a malformed one shows as an error at its place, behind the whole
//! ones before it, and nothing is ever skipped. Writing encodes each record once, into the buffer that is sent.
//!
//! Nothing that a batch claims sizes an allocation.

mod control;
mod encoded;
mod error;
mod header;
mod reader;
mod view;
mod writer;

pub use control::ControlKind;
pub use encoded::{EncodedBatch, SplitError};
pub use error::{BatchError, Flaw};
pub use header::{BatchHeader, ProducerStamp, TimestampType};
pub use reader::{Batches, CutBatch, EncodedBatches, ReadOptions, batches, encoded};
pub use view::{BatchView, RecordCursor, Records};
pub use writer::{BatchWriter, Closing, WriteError};

#[cfg(test)]
mod tests;
