//! From a Fetch answer to each partition's records. Pure work on bytes, done outside of any lock.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};

use super::FetchPlan;
use super::budget::{Budget, Lease, Permit};
use super::isolation::{Aborted, IsolationLevel};
use super::plan::PlannedFetch;
use crate::protocol::batch::{self, BatchError, BatchView, CutBatch, EncodedBatch, EncodedBatches, ReadOptions};
use crate::protocol::compression::Codec;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NodeId, Offset};

/// Records of one partition from one answer.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Data alone. What else is covered (markers, what aborted transactions wrote) moves `next_offset`; all of it may be
    /// such.
    pub(crate) batches: Vec<BatchView>,
    /// Records before it were not asked for: an answer has whole batches, which may begin earlier.
    pub(crate) from: Offset,
    /// The offset after the last one that is covered.
    pub(crate) next_offset: Offset,
    /// Of the last batch that is covered.
    pub(crate) leader_epoch: Option<LeaderEpoch>,
    /// Where each leader epoch begins, of all that is covered.
    pub(crate) epochs: Vec<(Offset, LeaderEpoch)>,
    pub(crate) lease: Lease,
}

impl Chunk {
    /// Takes in what follows, if it can be handed over together with this and no more than `limit` bytes are; else gives it back.
    pub(super) fn join(&mut self, mut next: Chunk, limit: usize) -> Option<Chunk> {
        let follows = next.batches.first().is_none_or(|first| first.header().base_offset >= self.next_offset);
        // What holds no records takes no memory that would bound how many of its kind are kept.
        if !follows || (!next.batches.is_empty() && self.lease.bytes() + next.lease.bytes() > limit) {
            return Some(next);
        }
        self.batches.append(&mut next.batches);
        self.lease.join(next.lease);
        self.next_offset = next.next_offset;
        self.leader_epoch = next.leader_epoch;
        let known = self.epochs.last().map(|(_, epoch)| *epoch);
        self.epochs.extend(next.epochs.into_iter().skip_while(|(_, epoch)| Some(*epoch) == known));
        None
    }
}

/// What an answer says of one partition.
#[derive(Debug)]
pub(crate) enum PartitionOutcome {
    Records {
        /// Absent where nothing new came.
        chunk: Option<Chunk>,
        /// What follows the chunk cannot be read.
        flaw: Option<BatchError>,
        /// The answer ends within a batch.
        cut: Option<CutBatch>,
    },
    /// The log was truncated after this offset, as the leader epochs show (KIP-595).
    Diverged {
        end_offset: Offset,
        /// Of the records before it.
        epoch: LeaderEpoch,
    },
    /// There is more, and nothing came with the answer to whether the log was truncated.
    Withheld,
    Refused(ErrorCode),
    /// The leader prefers another replica for this reader (KIP-392); absent if its address is not known.
    Nearer(Option<NodeId>),
    /// Another broker leads the partition, and metadata has it already.
    Moved,
}

/// Walks an answer partition by partition, and reads each as it is asked for.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    options: ReadOptions,
    budget: Arc<Budget>,
    /// All partitions' records: what stays in memory as long as a slice of it is held.
    answer_bytes: usize,
    permit: Option<Arc<Permit>>,
    topics: std::vec::IntoIter<FetchableTopicResponse>,
    topic: Option<(FetchableTopicResponse, std::vec::IntoIter<PartitionData>)>,
    at: usize,
    /// A partition that is read in part.
    opening: Option<Opening>,
    /// What was read since others had their turn.
    turn_bytes: usize,
}

impl AnswerReader {
    pub(crate) fn new(response: FetchResponse, options: ReadOptions, budget: Arc<Budget>) -> Self {
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        let answer_bytes = partitions.filter_map(|partition| partition.records.as_ref()).map(Bytes::len).sum();
        let topics = response.responses.into_iter();
        Self { options, budget, answer_bytes, permit: None, topics, topic: None, at: 0, opening: None, turn_bytes: 0 }
    }

    /// The next partition that was asked for, and what is said of it. Others are passed over. Pending where much was read and
    /// something else should have its turn: a heartbeat does not wait for the checksums of 50 MiB.
    pub(crate) fn next(&mut self, plan: &FetchPlan) -> Option<Poll<(usize, PartitionOutcome)>> {
        if let Some(opening) = self.opening.take() {
            return Some(self.open(opening));
        }
        loop {
            let (index, data) = match &mut self.topic {
                Some((topic, partitions)) => match partitions.next() {
                    Some(data) => (plan.asked.find(self.at, topic, data.partition_index), data),
                    None => {
                        self.topic = None;
                        continue;
                    }
                },
                None => {
                    let mut topic = self.topics.next()?;
                    let partitions = std::mem::take(&mut topic.partitions).into_iter();
                    self.topic = Some((topic, partitions));
                    continue;
                }
            };
            if let Some((index, asked)) = index.and_then(|index| Some((index, plan.asked.get(index)?))) {
                self.at = index + 1;
                return Some(match self.begin(plan.isolation, index, asked, data) {
                    Begun::Open(opening) => self.open(opening),
                    Begun::Told(outcome) => Poll::Ready((index, outcome)),
                });
            }
        }
    }

    /// What is to be read of a partition; where that is nothing, what else is said of it.
    fn begin(&self, isolation: IsolationLevel, index: usize, asked: &PlannedFetch, data: PartitionData) -> Begun {
        let code = ErrorCode(data.error_code);
        if !code.is_ok() {
            return Begun::Told(PartitionOutcome::Refused(code));
        }
        let diverging = &data.diverging_epoch;
        // -1 for both is "cannot tell" and no reason to throw anything away (KAFKA-9840).
        if asked.last_fetched_epoch.is_some() && diverging.epoch >= 0 && diverging.end_offset >= 0 {
            let (end_offset, epoch) = (Offset(diverging.end_offset), LeaderEpoch(diverging.epoch));
            return Begun::Told(PartitionOutcome::Diverged { end_offset, epoch });
        }
        let Some(records) = data.records.filter(|records| !records.is_empty()) else {
            if data.preferred_read_replica.0 >= 0 {
                return Begun::Told(PartitionOutcome::Nearer(Some(NodeId(data.preferred_read_replica.0))));
            }
            if asked.last_fetched_epoch.is_some() && data.high_watermark > asked.offset.0 {
                return Begun::Told(PartitionOutcome::Withheld);
            }
            return Begun::Told(PartitionOutcome::Records { chunk: None, flaw: None, cut: None });
        };
        let aborted = match isolation {
            IsolationLevel::ReadCommitted => Aborted::new(data.aborted_transactions.unwrap_or_default()),
            IsolationLevel::ReadUncommitted => Aborted::default(),
        };
        let copied = self.is_worth_copying(records.len());
        let records = if copied { Bytes::copy_from_slice(&records) } else { records };
        let opened = Opened { next_offset: asked.offset, ..Opened::default() };
        let (from, record_bytes) = (asked.offset, records.len());
        Begun::Open(Opening { index, from, copied, record_bytes, encoded: batch::encoded(records), aborted, opened })
    }

    /// Reads a partition's batches, to their end or to the turn's.
    fn open(&mut self, mut opening: Opening) -> Poll<(usize, PartitionOutcome)> {
        let mut flaw = None;
        while let Some(batch) = opening.encoded.next() {
            let before = opening.opened.inflated;
            let read = batch.and_then(|batch| {
                self.turn_bytes += batch.bytes().len();
                opening.opened.take(&batch, &mut opening.aborted, &self.options)
            });
            if let Err(error) = read {
                flaw = Some(error);
                break;
            }
            self.turn_bytes += opening.opened.inflated - before;
            if self.turn_bytes >= TURN_BYTES {
                self.turn_bytes = 0;
                self.opening = Some(opening);
                return Poll::Pending;
            }
        }
        let Opening { index, from, copied, record_bytes, encoded, opened, .. } = opening;
        let cut = encoded.cut();
        let Opened { next_offset, batches, leader_epoch, epochs, in_place, inflated } = opened;
        if next_offset <= from {
            return Poll::Ready((index, PartitionOutcome::Records { chunk: None, flaw, cut }));
        }
        let own = inflated + if copied && in_place { record_bytes } else { 0 };
        let answer = (in_place && !copied).then(|| self.answer_permit());
        let bytes = inflated + if in_place { record_bytes } else { 0 };
        let lease = Lease::new(answer, self.budget.take(own), bytes);
        let chunk = Chunk { batches, from, next_offset, leader_epoch, epochs, lease };
        Poll::Ready((index, PartitionOutcome::Records { chunk: Some(chunk), flaw, cut }))
    }

    /// A slice keeps its whole answer in memory. A small one that may be held for long is cheaper copied.
    fn is_worth_copying(&self, bytes: usize) -> bool {
        self.answer_bytes > PINNED_BYTES && bytes < self.answer_bytes / PINNED_RATIO
    }

    fn answer_permit(&mut self) -> Arc<Permit> {
        self.permit.get_or_insert_with(|| Arc::new(self.budget.take(self.answer_bytes))).clone()
    }
}

/// What comes of a partition's part of an answer.
#[derive(Debug)]
enum Begun {
    /// Records, which are to be read.
    Open(Opening),
    /// Something else.
    Told(PartitionOutcome),
}

/// A partition's records while they are read.
#[derive(Debug)]
struct Opening {
    index: usize,
    from: Offset,
    /// Whether the bytes are no longer the answer's.
    copied: bool,
    record_bytes: usize,
    encoded: EncodedBatches,
    aborted: Aborted,
    opened: Opened,
}

/// What was read of a partition's records so far.
#[derive(Debug, Default)]
struct Opened {
    next_offset: Offset,
    batches: Vec<BatchView>,
    leader_epoch: Option<LeaderEpoch>,
    epochs: Vec<(Offset, LeaderEpoch)>,
    /// Whether some are slices of the answer.
    in_place: bool,
    /// What the others take.
    inflated: usize,
}

impl Opened {
    fn take(&mut self, batch: &EncodedBatch, aborted: &mut Aborted, options: &ReadOptions) -> Result<(), BatchError> {
        let header = *batch.header();
        // Wholly before what was asked for: an old answer's way to fill up, not worth inflating.
        if header.next_offset() <= self.next_offset {
            return Ok(());
        }
        if aborted.admits(batch, options)? {
            let view = batch.open(options)?;
            match header.codec {
                Codec::None => self.in_place = true,
                _ => self.inflated += view.records_bytes(),
            }
            self.batches.push(view);
        } else if options.check_crc {
            // Its header still says where to go on.
            batch.check_crc()?;
        }
        self.next_offset = header.next_offset();
        self.leader_epoch = header.leader_epoch;
        if let Some(epoch) = header.leader_epoch
            && self.epochs.last().is_none_or(|(_, last)| *last != epoch)
        {
            self.epochs.push((header.base_offset, epoch));
        }
        Ok(())
    }
}

/// Answers up to this size are never copied from.
const PINNED_BYTES: usize = 1 << 20;
/// A slice is copied if it is less than this part of its answer.
const PINNED_RATIO: usize = 16;
/// So much is read in one turn, some 50 microseconds' work.
const TURN_BYTES: usize = 512 << 10;
