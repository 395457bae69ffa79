//! Reading: a membership in a group, its events, and what is said back.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::adapter::{AdapterError, BoxFuture, DeliveredBatch, SettleRecordsError};
use crate::protocol::batch::{BatchError, BatchView, RecordCursor};
use crate::record::{Offset, RecordView, Topic, TopicPartition};

/// What to join, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JoinOptions {
    /// The group's id.
    pub group: String,
    /// What to read. One membership reads all of them.
    pub topics: Vec<TopicSubscription>,
    /// The longest that a revocation may wait for its [`Release`].
    pub revocation_timeout: Duration,
    /// Offer what a Node `kafka-harbor` member of the same group can join with.
    pub interop_node: bool,
    /// The member's name where it is a static one, whose place is kept while it restarts. Adapters without such members
    /// pass it over.
    pub instance_id: Option<String>,
}

impl JoinOptions {
    /// A membership of `group` in these topics; revocations wait at most five minutes.
    pub fn new(group: impl Into<String>, topics: Vec<TopicSubscription>) -> Self {
        Self {
            group: group.into(),
            topics,
            revocation_timeout: Duration::from_secs(300),
            interop_node: false,
            instance_id: None,
        }
    }
}

/// One topic of a membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSubscription {
    /// Its name.
    pub topic: Topic,
    /// Where to begin on a partition that the group has no position on.
    pub start: Start,
}

/// Where to begin without a committed position, or when it is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// At the oldest record.
    Earliest,
    /// After the newest record. But a partition that did not exist when the member joined begins at its oldest record: all
    /// of it was written since.
    #[default]
    Latest,
}

/// A place in a group: events come in by one end, what is said back goes out by the other.
pub struct Membership {
    /// What the broker says.
    pub events: Box<dyn EventSource>,
    /// What is said back. May be shared among tasks.
    pub handle: Arc<dyn MembershipHandle>,
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").finish_non_exhaustive()
    }
}

/// The events of a membership, in order.
pub trait EventSource: Send {
    /// The next event; `None` after the membership has ended.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>>;
}

impl dyn EventSource + '_ {
    /// The next event; `None` after the membership has ended.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

/// Counts assignments: a partition that goes and comes back has a new epoch, and what names the old one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AssignmentEpoch(pub u64);

/// A partition as it was assigned to this membership.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Assigned {
    /// Which partition.
    pub partition: TopicPartition,
    /// By which assignment.
    pub epoch: AssignmentEpoch,
}

impl fmt::Debug for Assigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.partition, self.epoch.0)
    }
}

/// A partition that came, and where its reading begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The partition and its epoch.
    pub assigned: Assigned,
    /// What the group had committed; `None` if it never had.
    pub committed: Option<Offset>,
    /// Where reading begins: the committed offset, or what [`Start`] came to.
    pub position: Offset,
    /// The note that was settled with the committed offset, if any.
    pub note: Option<String>,
}

/// What a membership tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Partitions came, and are positioned. Batches of them follow.
    Assigned(Vec<Assignment>),
    /// Records of one partition.
    Batch(PartitionBatch),
    /// Records that are settled one by one, where the adapter declares
    /// [`settle_by_record`](super::Capabilities::settle_by_record). Their partition is not assigned.
    Delivered(DeliveredBatch),
    /// Partitions are to go. The adapter waits for the [`Release`], at most
    /// [`JoinOptions::revocation_timeout`]; until then they can still be settled.
    Revoked(Vec<Assigned>, Release),
    /// Partitions are gone: another member may have them already, nothing can be settled any more.
    Lost(Vec<Assigned>),
    /// Something went wrong. The membership goes on unless the error says [`Fenced`](super::AdapterErrorKind::Fenced)
    /// or [`Closed`](super::AdapterErrorKind::Closed), after which it ends.
    Fault(AdapterError),
}

/// The answer to a revocation: dropped or [sent](Self::send), it lets the partitions go.
#[derive(Debug)]
pub struct Release(Option<oneshot::Sender<()>>);

impl Release {
    /// A release, and what resolves when it is given.
    pub fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some(sender)), receiver)
    }

    /// A release that answers by `sender`.
    #[cfg(feature = "kafka")]
    pub(crate) fn over(sender: Option<oneshot::Sender<()>>) -> Self {
        Self(sender)
    }

    /// Lets the partitions go.
    pub fn send(mut self) {
        if let Some(sender) = self.0.take() {
            // The adapter may have stopped waiting; then there is nobody left to tell.
            let _ = sender.send(());
        }
    }
}

/// Records of one partition, in offset order. The next batch of the partition continues where this one ends.
pub struct PartitionBatch {
    /// Whose records these are.
    pub assigned: Assigned,
    /// The records.
    pub records: RecordSet,
    /// Keeps the records' share of the adapter's byte budget; dropped with the batch.
    pub hold: Option<Box<dyn Send + Sync>>,
}

impl fmt::Debug for PartitionBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionBatch").field("assigned", &self.assigned).finish_non_exhaustive()
    }
}

/// Records that were read, still encoded. Iterating them allocates nothing.
#[derive(Debug, Clone)]
pub struct RecordSet {
    batches: Vec<BatchView>,
    /// Records before it are skipped: a fetch answers with whole batches, which may begin earlier.
    from: Offset,
    next: Offset,
}

impl RecordSet {
    /// The records of these batches at `from` and after it.
    pub fn new(batches: Vec<BatchView>, from: Offset) -> Self {
        let next = batches.last().map_or(from, |batch| batch.next_offset().max(from));
        Self { batches, from, next }
    }

    /// The same records, with everything up to `next` covered: what lies there is no data (transaction markers, records of
    /// aborted transactions).
    #[must_use]
    pub fn covering(self, next: Offset) -> Self {
        Self { next: self.next.max(next), ..self }
    }

    /// Every data record, in offset order. Control records are left out. Ends behind the first error: nothing at
    /// the malformed record's offset or after it may be settled.
    pub fn iter(&self) -> RecordSetIter<'_> {
        RecordSetIter { set: self, at: RecordSetCursor::default() }
    }

    /// The data record at `cursor`, which then stands behind it. `None` at the end.
    ///
    /// For a reader that cannot keep a borrow, such as one that waits between two records.
    ///
    /// # Errors
    /// When a record is malformed; the cursor stays before it. Nothing at its offset or after it may be settled.
    #[inline]
    pub fn read_at(&self, cursor: &mut RecordSetCursor) -> Option<Result<RecordView<'_>, BatchError>> {
        while let Some(batch) = self.batches.get(cursor.batch) {
            while !batch.is_control()
                && let Some(read) = batch.read_at(&mut cursor.record)
            {
                match read {
                    Ok(record) if record.offset < self.from => {}
                    read => return Some(read),
                }
            }
            *cursor = RecordSetCursor { batch: cursor.batch + 1, record: RecordCursor::default() };
        }
        None
    }

    /// The encoded batch that `cursor`'s last record came from, to [share](BatchView::share) its bytes.
    pub fn batch_at(&self, cursor: &RecordSetCursor) -> Option<&BatchView> {
        self.batches.get(cursor.batch)
    }

    /// The first offset covered, deleted records included: where reading stood.
    pub fn begins_at(&self) -> Offset {
        self.from
    }

    /// The offset after the last one covered, deleted records included: where reading goes on.
    pub fn next_offset(&self) -> Offset {
        self.next
    }

    /// The encoded batches.
    pub fn batches(&self) -> &[BatchView] {
        &self.batches
    }
}

/// A place between two records of one [`RecordSet`]. The default is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordSetCursor {
    batch: usize,
    record: RecordCursor,
}

/// Iterator of [`RecordSet::iter`].
#[derive(Debug, Clone)]
pub struct RecordSetIter<'a> {
    set: &'a RecordSet,
    at: RecordSetCursor,
}

impl<'a> Iterator for RecordSetIter<'a> {
    type Item = Result<RecordView<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let read = self.set.read_at(&mut self.at);
        if let Some(Err(_)) = read {
            // Nothing follows an error.
            self.at.batch = usize::MAX;
        }
        read
    }
}

impl std::iter::FusedIterator for RecordSetIter<'_> {}

/// A position to settle: everything before `offset` is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Which partition, by which assignment.
    pub assigned: Assigned,
    /// The next offset to read.
    pub offset: Offset,
    /// Comes back with the next assignment; at most 4 KiB.
    pub note: Option<String>,
}

/// Where a paused partition goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeFrom {
    /// Where it stood: what was buffered is handed over.
    Here,
    /// At this offset: what was buffered is dropped.
    Offset(Offset),
}

/// What becomes of one record, where the broker keeps each ([`Capabilities::settle_by_record`](super::Capabilities)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordSettlement {
    /// Done.
    Accept,
    /// Not done: deliver it again, after this long where the broker can wait.
    Release(Option<Duration>),
    /// Never deliver it again.
    Reject,
    /// Still at work: do not deliver it to another.
    Renew,
}

/// What is said to a membership.
///
/// Every call that names an assignment is refused if the partition went meanwhile, even if it came back.
pub trait MembershipHandle: fmt::Debug + Send + Sync + 'static {
    /// Settles positions, in one request where the broker has one. One call is under way at a time; a later one waits.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the positions back: they may still be settled.
    ///
    /// # Errors
    /// Naming each partition that was not settled. Those it does not name were.
    fn settle(&self, positions: Vec<Position>) -> BoxFuture<'_, Result<(), SettleError>>;

    /// Settles single records by the receipts of their [batch](DeliveredBatch::receipt), each once; one that was renewed, again.
    ///
    /// # Cancel safety
    /// Dropping the future does not take them back: they may still be settled.
    ///
    /// # Errors
    /// Naming each record that was not settled. Those it does not name were. All of them, unless the adapter declares
    /// [`Capabilities::settle_by_record`](super::Capabilities); and, as
    /// [`Unsupported`](super::AdapterErrorKind::Unsupported), those that are to be released for later where the broker cannot wait.
    fn settle_records(
        &self,
        receipts: Vec<(Bytes, RecordSettlement)>,
    ) -> BoxFuture<'_, Result<(), SettleRecordsError>> {
        let kind = super::AdapterErrorKind::Unsupported;
        let error = AdapterError::new("port", kind, "this membership keeps positions, not records");
        Box::pin(async move { Err(SettleRecordsError::of_all(receipts, error)) })
    }

    /// Stops handing over batches of the partition. One that is already on its way may still come.
    /// Ends with the assignment; pausing what is not assigned any more does nothing.
    fn pause(&self, assigned: &Assigned);

    /// Goes on with a paused partition. Does nothing if it is not assigned any more. With an offset it also
    /// repositions a partition that was not paused.
    fn resume(&self, assigned: &Assigned, from: ResumeFrom);

    /// Leaves the group within `timeout`. Nothing is settled. Idempotent.
    ///
    /// # Errors
    /// When the broker could not be told in time; it will notice by the session's end.
    fn leave(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>>;
}

/// Some positions were not settled.
#[derive(Debug, thiserror::Error)]
#[error("{} partition(s) not settled: {}", self.failures.len(), self.first())]
#[non_exhaustive]
pub struct SettleError {
    /// One a partition.
    pub failures: Vec<SettleFailure>,
}

impl SettleError {
    /// An error from at least one failure.
    pub fn new(failures: Vec<SettleFailure>) -> Self {
        Self { failures }
    }

    fn first(&self) -> String {
        self.failures
            .first()
            .map_or_else(String::new, |failure| format!("{:?}: {}", failure.position.assigned, failure.error))
    }
}

/// One position that was not settled.
#[derive(Debug)]
pub struct SettleFailure {
    /// The position.
    pub position: Position,
    /// Why.
    pub error: Arc<AdapterError>,
    /// Whether the partition is another member's now, so that trying again is no use.
    pub lost: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::batch::{BatchWriter, Closing, ControlKind, EncodedBatch, ReadOptions, batches};
    use crate::protocol::compression::Compression;
    use crate::record::Timestamp;

    fn batch(base: i64, values: &[&str], is_control: bool) -> EncodedBatch {
        let mut writer = BatchWriter::new(Compression::NONE);
        let key = is_control.then(|| ControlKind::Commit.key());
        for value in values {
            writer.append(Timestamp(0), key.as_deref(), Some(value.as_bytes()), []).unwrap();
        }
        writer.close(Closing { is_control, ..Closing::default() }).unwrap().with_base_offset(Offset(base)).unwrap()
    }

    fn set(batches_in: &[EncodedBatch], from: i64) -> RecordSet {
        let bytes = batches_in.iter().flat_map(|batch| batch.bytes().to_vec()).collect::<Vec<_>>();
        RecordSet::new(batches(bytes.into(), &ReadOptions::default()).map(Result::unwrap).collect(), Offset(from))
    }

    #[test]
    fn records_before_the_position_and_control_records_are_left_out() {
        let set =
            set(&[batch(10, &["a", "b", "c"], false), batch(13, &["marker"], true), batch(14, &["d"], false)], 11);
        let read: Vec<_> =
            set.iter().map(|record| record.unwrap()).map(|record| (record.offset.0, record.value)).collect();
        assert_eq!(read, [(11, Some(&b"b"[..])), (12, Some(b"c")), (14, Some(b"d"))]);
        assert_eq!(set.next_offset(), Offset(15));
        assert_eq!(set.iter().fold(0, |count, _| count + 1), 3);
    }

    #[test]
    fn a_marker_at_the_end_advances_the_position() {
        let set = set(&[batch(10, &["a"], false), batch(11, &["marker"], true)], 10);
        assert_eq!(set.iter().count(), 1);
        assert_eq!(set.next_offset(), Offset(12));
    }

    #[test]
    fn what_is_no_data_is_covered_with_or_without_records_before_it() {
        assert_eq!(set(&[batch(10, &["a"], false)], 10).covering(Offset(14)).next_offset(), Offset(14));
        let nothing = set(&[], 10).covering(Offset(12));
        assert_eq!((nothing.begins_at(), nothing.next_offset(), nothing.iter().count()), (Offset(10), Offset(12), 0));
    }

    #[test]
    fn a_cursor_goes_on_where_it_stood() {
        let set = set(&[batch(0, &["a", "b"], false), batch(2, &["c"], false)], 0);
        let mut cursor = RecordSetCursor::default();
        let mut read = Vec::new();
        while let Some(record) = set.clone().read_at(&mut cursor) {
            let record = record.unwrap();
            let batch = set.batch_at(&cursor).unwrap();
            read.push(batch.share(record.value.unwrap()));
        }
        assert_eq!(read, ["a", "b", "c"]);
        assert!(set.read_at(&mut cursor).is_none());
    }

    #[test]
    fn a_malformed_record_ends_the_iteration_behind_the_whole_ones() {
        let mut bytes = batch(0, &["a", "b"], false).into_bytes().to_vec();
        // The last record's header count: one that is not there.
        *bytes.last_mut().unwrap() = 2;
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let views = batches(bytes.into(), &ReadOptions::default()).map(Result::unwrap).collect();
        let set = RecordSet::new(views, Offset(0));
        assert_eq!(set.iter().map(|record| record.is_ok()).collect::<Vec<_>>(), [true, false]);
    }
}
