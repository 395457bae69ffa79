//! Brokers that check and remember what Kafka's do (`ProducerStateManager`, `ProducerAppendInfo`, `UnifiedLog`).

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use super::super::{PartitionAnswer, RecordError};
use crate::protocol::batch::{ReadOptions, batches};
use crate::protocol::error_code::ErrorCode;
use crate::record::NodeId;

/// Partitions with leaders; followers are always caught up.
pub(super) struct Cluster {
    partitions: Vec<PartitionLog>,
}

#[derive(Default)]
pub(super) struct PartitionLog {
    leader: i32,
    log: Vec<u64>,
    producers: HashMap<i64, Remembered>,
    /// What the next batches meet, in turn.
    pub(super) faults: VecDeque<Fault>,
    /// The topic's `max.message.bytes`.
    pub(super) max_batch_bytes: Option<usize>,
    /// Records that the topic refuses.
    pub(super) poison: Vec<u64>,
    /// Whether a number from nowhere is refused when the producer is not known, as brokers did before 2.5.
    pub(super) strict: bool,
    pub(super) log_start_offset: i64,
}

/// What a broker remembers of a producer.
#[derive(Clone)]
struct Remembered {
    epoch: i16,
    /// First and last sequence, and first offset, of the last five batches.
    last: VecDeque<(i32, i32, i64)>,
}

/// What a batch meets instead of a plain append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// None after all.
    Pass,
    /// Refused with this code before anything is written.
    Before(ErrorCode),
    /// Written, and answered with this code.
    After(ErrorCode),
    /// Written, and left out of the answer.
    Unmentioned,
}

impl Cluster {
    pub(super) fn new(partitions: usize) -> Self {
        Self { partitions: (0..partitions).map(|_| PartitionLog { leader: 1, ..PartitionLog::default() }).collect() }
    }

    pub(super) fn partition(&mut self, partition: usize) -> &mut PartitionLog {
        &mut self.partitions[partition]
    }

    pub(super) fn log(&self, partition: usize) -> &[u64] {
        &self.partitions[partition].log
    }

    pub(super) fn leader(&self, partition: usize) -> NodeId {
        NodeId(self.partitions[partition].leader)
    }

    pub(super) fn move_leader(&mut self, partition: usize, node: i32) {
        self.partitions[partition].leader = node;
    }

    /// Appends a batch as the partition's leader would. `None`: the answer does not mention it.
    pub(super) fn produce(&mut self, node: NodeId, partition: usize, bytes: &Bytes) -> Option<PartitionAnswer> {
        let partition = &mut self.partitions[partition];
        if partition.leader != node.0 {
            return Some(refusal(ErrorCode::NOT_LEADER_OR_FOLLOWER));
        }
        match partition.faults.pop_front().unwrap_or(Fault::Pass) {
            Fault::Pass => Some(partition.append(bytes)),
            Fault::Before(code) => Some(refusal(code)),
            Fault::After(code) => {
                let answer = partition.append(bytes);
                Some(if answer.code.is_ok() { PartitionAnswer { code, ..answer } } else { answer })
            }
            Fault::Unmentioned => {
                partition.append(bytes);
                None
            }
        }
    }
}

impl PartitionLog {
    /// Forgets every producer.
    pub(super) fn forget_producers(&mut self) {
        self.producers.clear();
    }

    /// Loses the last `records`, and what is remembered of them, as an unclean election does.
    pub(super) fn truncate(&mut self, records: usize) {
        self.log.truncate(self.log.len() - records);
        let end = self.log.len() as i64;
        for remembered in self.producers.values_mut() {
            remembered.last.retain(|(first, last, offset)| offset + i64::from(last - first) < end);
        }
    }

    fn append(&mut self, bytes: &Bytes) -> PartitionAnswer {
        if self.max_batch_bytes.is_some_and(|max| bytes.len() > max) {
            return refusal(ErrorCode::MESSAGE_TOO_LARGE);
        }
        let batch = batches(bytes.clone(), &ReadOptions::default()).next().unwrap().expect("a batch that reads back");
        let ids: Vec<u64> = batch
            .records()
            .map(|record| u64::from_be_bytes(record.unwrap().value.unwrap()[..8].try_into().unwrap()))
            .collect();
        let blamed: Vec<RecordError> = (0..)
            .zip(&ids)
            .filter(|(_, id)| self.poison.contains(id))
            .map(|(batch_index, _)| RecordError { batch_index, message: Some("poison".into()) })
            .collect();
        if !blamed.is_empty() {
            return PartitionAnswer { record_errors: blamed, ..refusal(ErrorCode::INVALID_RECORD) };
        }
        let offset = self.log.len() as i64;
        if let Some(stamp) = batch.header().producer {
            let (first, last) = (stamp.base_sequence, stamp.advanced_by(ids.len() as u32 - 1).base_sequence);
            match self.producers.get_mut(&stamp.id) {
                Some(known) if stamp.epoch < known.epoch => return refusal(ErrorCode::INVALID_PRODUCER_EPOCH),
                Some(known) => {
                    let duplicate = known.last.iter().find(|(f, l, _)| (*f, *l) == (first, last));
                    if let (Some((_, _, offset)), true) = (duplicate, stamp.epoch == known.epoch) {
                        return success(*offset);
                    }
                    let expected = match (stamp.epoch == known.epoch, known.last.back()) {
                        (true, Some((_, last, _))) => Some(if *last == i32::MAX { 0 } else { last + 1 }),
                        (true, None) => None,
                        (false, _) => Some(0),
                    };
                    if expected.is_some_and(|expected| expected != first) {
                        return refusal(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
                    }
                    if stamp.epoch > known.epoch {
                        *known = Remembered { epoch: stamp.epoch, last: VecDeque::new() };
                    }
                }
                None if self.strict && first != 0 => {
                    return PartitionAnswer {
                        log_start_offset: self.log_start_offset,
                        ..refusal(ErrorCode::UNKNOWN_PRODUCER_ID)
                    };
                }
                // A broker that does not know a producer takes any number as its first.
                None => {}
            }
            let known = self
                .producers
                .entry(stamp.id)
                .or_insert_with(|| Remembered { epoch: stamp.epoch, last: VecDeque::new() });
            known.last.push_back((first, last, offset));
            if known.last.len() > 5 {
                known.last.pop_front();
            }
        }
        self.log.extend(ids);
        success(offset)
    }
}

fn success(base_offset: i64) -> PartitionAnswer {
    PartitionAnswer { base_offset, ..refusal(ErrorCode::NONE) }
}

fn refusal(code: ErrorCode) -> PartitionAnswer {
    PartitionAnswer {
        code,
        base_offset: -1,
        log_append_time: -1,
        log_start_offset: -1,
        record_errors: Vec::new(),
        message: None,
    }
}
