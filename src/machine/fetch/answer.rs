//! From a Fetch answer to each partition's records. Pure work on bytes, done outside of any lock.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};

use super::budget::{Budget, Lease, Permit};
use super::{FetchPlan, PlannedFetch};
use crate::protocol::batch::{self, BatchError, BatchView, CutBatch, ReadOptions};
use crate::protocol::compression::Codec;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, Offset};

/// Records of one partition from one answer.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) batches: Vec<BatchView>,
    /// Records before it were not asked for: an answer has whole batches, which may begin earlier.
    pub(crate) from: Offset,
    /// The offset after the last one that is covered.
    pub(crate) next_offset: Offset,
    /// Of the last batch.
    pub(crate) leader_epoch: Option<LeaderEpoch>,
    pub(crate) lease: Lease,
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
    },
    Refused(ErrorCode),
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
                    Some(data) => (plan.find(self.at, topic, data.partition_index), data),
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
            if let Some(index) = index {
                self.at = index + 1;
                return Some((index, self.read(&plan.partitions[index], data)));
            }
        }
    }

    fn read(&mut self, asked: &PlannedFetch, data: PartitionData) -> PartitionOutcome {
        let code = ErrorCode(data.error_code);
        if !code.is_ok() {
            return PartitionOutcome::Refused(code);
        }
        let diverging = &data.diverging_epoch;
        // -1 for both is "cannot tell" and no reason to throw anything away (KAFKA-9840).
        if asked.last_fetched_epoch.is_some() && diverging.epoch >= 0 && diverging.end_offset >= 0 {
            return PartitionOutcome::Diverged { end_offset: Offset(diverging.end_offset) };
        }
        let Some(records) = data.records.filter(|records| !records.is_empty()) else {
            return PartitionOutcome::Records { chunk: None, flaw: None, cut: None };
        };
        let (chunk, flaw, cut) = self.open(asked.offset, records);
        PartitionOutcome::Records { chunk, flaw, cut }
    }

    fn open(&mut self, from: Offset, records: Bytes) -> (Option<Chunk>, Option<BatchError>, Option<CutBatch>) {
        let copied = self.is_worth_copying(records.len());
        let records = if copied { Bytes::copy_from_slice(&records) } else { records };
        let record_bytes = records.len();

        let mut batches = Vec::new();
        let mut flaw = None;
        let mut next_offset = from;
        let (mut in_place, mut inflated) = (false, 0);
        let mut encoded = batch::encoded(records);
        for batch in encoded.by_ref() {
            let opened = batch.and_then(|batch| {
                // Wholly before what was asked for: an old answer's way to fill up, not worth inflating.
                if batch.header().next_offset() <= next_offset {
                    return Ok(None);
                }
                let codec = batch.header().codec;
                batch.open(&self.options).map(|view| Some((codec, view)))
            });
            match opened {
                Ok(None) => {}
                Ok(Some((codec, view))) => {
                    next_offset = view.next_offset();
                    match codec {
                        Codec::None => in_place = true,
                        _ => inflated += view.records_bytes(),
                    }
                    batches.push(view);
                }
                Err(error) => {
                    flaw = Some(error);
                    break;
                }
            }
        }
        let cut = encoded.cut();
        if batches.is_empty() {
            return (None, flaw, cut);
        }
        let own = inflated + if copied && in_place { record_bytes } else { 0 };
        let answer = (in_place && !copied).then(|| self.answer_permit());
        let bytes = inflated + if in_place { record_bytes } else { 0 };
        let leader_epoch = batches.last().and_then(BatchView::leader_epoch);
        let lease = Lease::new(answer, self.budget.take(own), bytes);
        (Some(Chunk { batches, from, next_offset, leader_epoch, lease }), flaw, cut)
    }

    /// A slice keeps its whole answer in memory. A small one that may be held for long is cheaper copied.
    fn is_worth_copying(&self, bytes: usize) -> bool {
        self.answer_bytes > PINNED_BYTES && bytes < self.answer_bytes / PINNED_RATIO
    }

    fn answer_permit(&mut self) -> Arc<Permit> {
        self.permit.get_or_insert_with(|| Arc::new(self.budget.take(self.answer_bytes))).clone()
    }
}

/// Answers up to this size are never copied from.
const PINNED_BYTES: usize = 1 << 20;
/// A slice is copied if it is less than this part of its answer.
const PINNED_RATIO: usize = 16;
