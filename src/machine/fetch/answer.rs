//! From a Fetch answer to each partition's records. Pure work on bytes, done outside of any lock.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};

use super::FetchPlan;
use super::budget::{Budget, Lease, Permit};
use super::isolation::{Aborted, IsolationLevel};
use super::plan::PlannedFetch;
use crate::protocol::batch::{self, BatchError, BatchView, CutBatch, EncodedBatch, ReadOptions};
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
    /// Takes in that what follows is covered, too. `next` holds no batches.
    pub(super) fn cover(&mut self, next: Chunk) {
        self.next_offset = next.next_offset;
        self.leader_epoch = next.leader_epoch;
        let known = self.epochs.last().map(|(_, epoch)| *epoch);
        self.epochs.extend(next.epochs.into_iter().skip_while(|(_, epoch)| Some(*epoch) == known));
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
}

impl AnswerReader {
    pub(crate) fn new(response: FetchResponse, options: ReadOptions, budget: Arc<Budget>) -> Self {
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        let answer_bytes = partitions.filter_map(|partition| partition.records.as_ref()).map(Bytes::len).sum();
        Self { options, budget, answer_bytes, permit: None, topics: response.responses.into_iter(), topic: None, at: 0 }
    }

    /// The next partition that was asked for, and what is said of it. Others are passed over.
    pub(crate) fn next(&mut self, plan: &FetchPlan) -> Option<(usize, PartitionOutcome)> {
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
                return Some((index, self.read(plan.isolation, asked, data)));
            }
        }
    }

    fn read(&mut self, isolation: IsolationLevel, asked: &PlannedFetch, data: PartitionData) -> PartitionOutcome {
        let code = ErrorCode(data.error_code);
        if !code.is_ok() {
            return PartitionOutcome::Refused(code);
        }
        let diverging = &data.diverging_epoch;
        // -1 for both is "cannot tell" and no reason to throw anything away (KAFKA-9840).
        if asked.last_fetched_epoch.is_some() && diverging.epoch >= 0 && diverging.end_offset >= 0 {
            let (end_offset, epoch) = (Offset(diverging.end_offset), LeaderEpoch(diverging.epoch));
            return PartitionOutcome::Diverged { end_offset, epoch };
        }
        let Some(records) = data.records.filter(|records| !records.is_empty()) else {
            if data.preferred_read_replica.0 >= 0 {
                return PartitionOutcome::Nearer(Some(NodeId(data.preferred_read_replica.0)));
            }
            if asked.last_fetched_epoch.is_some() && data.high_watermark > asked.offset.0 {
                return PartitionOutcome::Withheld;
            }
            return PartitionOutcome::Records { chunk: None, flaw: None, cut: None };
        };
        let aborted = match isolation {
            IsolationLevel::ReadCommitted => Aborted::new(data.aborted_transactions.unwrap_or_default()),
            IsolationLevel::ReadUncommitted => Aborted::default(),
        };
        let (chunk, flaw, cut) = self.open(asked.offset, records, aborted);
        PartitionOutcome::Records { chunk, flaw, cut }
    }

    fn open(
        &mut self,
        from: Offset,
        records: Bytes,
        mut aborted: Aborted,
    ) -> (Option<Chunk>, Option<BatchError>, Option<CutBatch>) {
        let copied = self.is_worth_copying(records.len());
        let records = if copied { Bytes::copy_from_slice(&records) } else { records };
        let record_bytes = records.len();

        let mut opened = Opened { next_offset: from, ..Opened::default() };
        let mut flaw = None;
        let mut encoded = batch::encoded(records);
        for batch in encoded.by_ref() {
            if let Err(error) = batch.and_then(|batch| opened.take(&batch, &mut aborted, &self.options)) {
                flaw = Some(error);
                break;
            }
        }
        let cut = encoded.cut();
        let Opened { next_offset, batches, leader_epoch, epochs, in_place, inflated } = opened;
        if next_offset <= from {
            return (None, flaw, cut);
        }
        let own = inflated + if copied && in_place { record_bytes } else { 0 };
        let answer = (in_place && !copied).then(|| self.answer_permit());
        let bytes = inflated + if in_place { record_bytes } else { 0 };
        let lease = Lease::new(answer, self.budget.take(own), bytes);
        (Some(Chunk { batches, from, next_offset, leader_epoch, epochs, lease }), flaw, cut)
    }

    /// A slice keeps its whole answer in memory. A small one that may be held for long is cheaper copied.
    fn is_worth_copying(&self, bytes: usize) -> bool {
        self.answer_bytes > PINNED_BYTES && bytes < self.answer_bytes / PINNED_RATIO
    }

    fn answer_permit(&mut self) -> Arc<Permit> {
        self.permit.get_or_insert_with(|| Arc::new(self.budget.take(self.answer_bytes))).clone()
    }
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
