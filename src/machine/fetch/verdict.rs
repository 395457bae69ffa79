//! What an answer means for each partition.

use std::time::{Duration, Instant};

use super::answer::PartitionOutcome;
use super::cursor::{CursorState, Replica};
use super::plan::PlannedFetch;
use super::{FetchEvent, Fetcher, ResetCause};
use crate::protocol::batch::BatchError;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NodeId, Offset, TopicPartition};
use crate::retry::{Backoff, ExponentialFullJitter};

impl Fetcher {
    /// Takes in what an answer says of one partition. Whether it brought anything.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        node: NodeId,
        asked: &PlannedFetch,
        outcome: PartitionOutcome,
    ) -> bool {
        let partition = &asked.partition;
        let Some(cursor) = self.cursors.get_mut(partition) else { return true };
        // While a new position is looked for, an answer to the old one may neither move nor end the wait for it.
        let resetting = cursor.state == CursorState::Resetting;
        if resetting || cursor.version != asked.version || cursor.fetch_offset != asked.offset {
            return true;
        }
        // The leader moved while the request was on its way: records are records, but whether the log still reaches there is
        // for the new leader to say (librdkafka#4433, #4261).
        let outdated =
            cursor.source() != Some(node) || cursor.leader.is_some_and(|leader| leader.epoch != asked.leader_epoch);
        if cursor.follows(node) && !matches!(outcome, PartitionOutcome::Records { .. } | PartitionOutcome::Withheld) {
            // It may lag behind: only the leader's word moves a position or resets it (KIP-392).
            cursor.leave_replica(now);
            if matches!(outcome, PartitionOutcome::Refused(code) if is_stale(code)) {
                self.events.push_back(FetchEvent::Stale { partition: partition.clone() });
            }
            self.events.push_back(FetchEvent::Redirected);
            return true;
        }
        match outcome {
            PartitionOutcome::Diverged { .. } | PartitionOutcome::Refused(_) | PartitionOutcome::Moved if outdated => {
                true
            }
            PartitionOutcome::Records { chunk, flaw, cut } => {
                cursor.validate = outdated;
                let came = chunk.is_some();
                if let Some(chunk) = chunk {
                    self.last_turn += 1;
                    cursor.accept(chunk, self.last_turn, self.config.max_partition_bytes);
                    self.enqueue(partition);
                } else if let Some(cut) = cut {
                    // Brokers before fetch version 3 cut a batch that is larger than was asked for.
                    let wanted = cut.claimed_bytes.unwrap_or(0).max(asked.max_bytes.saturating_mul(2));
                    cursor.max_bytes = Some(wanted.min(self.config.max_bytes));
                }
                if let Some(error) = flaw {
                    self.malformed(now, partition, error);
                }
                came
            }
            PartitionOutcome::Withheld => {
                // It cannot tell (KAFKA-9840), and would send nothing as long as it is asked.
                (cursor.validate, cursor.epoch_unknown) = (outdated, true);
                false
            }
            PartitionOutcome::Diverged { end_offset, epoch } => {
                self.truncated(partition, end_offset, epoch);
                true
            }
            PartitionOutcome::Refused(code) => {
                self.refused(now, asked, code);
                true
            }
            PartitionOutcome::Nearer(_) if outdated => true,
            PartitionOutcome::Nearer(Some(replica)) if replica != node => {
                cursor.replica = Some(Replica { node: replica, until: now + self.config.replica_max_age });
                self.events.push_back(FetchEvent::Redirected);
                true
            }
            PartitionOutcome::Nearer(_) => {
                // It would say so again, and send nothing.
                cursor.leave_replica(now);
                self.events.push_back(FetchEvent::Stale { partition: partition.clone() });
                true
            }
            PartitionOutcome::Moved => {
                // Until the leader is told; should it not be, the broker is asked again, and says so again.
                cursor.failures += 1;
                let wait = self.config.leader_backoff.delay(cursor.failures, 1.0);
                cursor.state = CursorState::Waiting { until: now + wait };
                true
            }
        }
    }

    fn truncated(&mut self, partition: &TopicPartition, end_offset: Offset, at: LeaderEpoch) {
        let Some(cursor) = self.cursors.get_mut(partition) else { return };
        let from = cursor.fetch_offset;
        let first = cursor.buffered.front().map_or(from, |chunk| chunk.from);
        cursor.validate = false;
        if end_offset >= from {
            // Nothing of what was read is missing there. Asked in the same way it would say so again, and send nothing.
            cursor.epoch_unknown = true;
            return;
        }
        let (to, at) = if first < end_offset { (first, cursor.handed_epoch) } else { (end_offset, Some(at)) };
        let epoch = cursor.epoch;
        self.move_to(partition, epoch, to, at);
        self.events.push_back(FetchEvent::Truncated { partition: partition.clone(), from, to });
    }

    fn malformed(&mut self, now: Instant, partition: &TopicPartition, error: BatchError) {
        let Some(cursor) = self.cursors.get_mut(partition) else { return };
        cursor.failures += 1;
        let wait = POISON_BACKOFF.delay(cursor.failures, 1.0);
        cursor.state = CursorState::Waiting { until: now + wait };
        self.events.push_back(FetchEvent::Malformed {
            partition: partition.clone(),
            offset: cursor.fetch_offset,
            error,
        });
    }

    fn refused(&mut self, now: Instant, asked: &PlannedFetch, code: ErrorCode) {
        let partition = &asked.partition;
        let Some(cursor) = self.cursors.get_mut(partition) else { return };
        if code == ErrorCode::OFFSET_OUT_OF_RANGE {
            if asked.last_fetched_epoch.is_some() {
                // The broker also says so when it does not know the epoch: ask for the offset alone.
                (cursor.validate, cursor.epoch_unknown) = (false, true);
                return;
            }
            cursor.state = CursorState::Resetting;
            cursor.resets = cursor.resets.saturating_add(1);
            if cursor.resets > 1 {
                // A broker that refuses where it sent the reader itself would be asked in a loop.
                cursor.not_before = Some(now + self.config.backoff.delay(cursor.resets - 1, 1.0));
            }
            let (epoch, from) = (cursor.epoch, cursor.fetch_offset);
            let cause = ResetCause::OutOfRange;
            self.events.push_back(FetchEvent::NeedsReset { partition: partition.clone(), epoch, from, cause });
            return;
        }
        cursor.failures += 1;
        let stale = is_stale(code);
        let backoff = if stale { self.config.leader_backoff } else { self.config.backoff };
        cursor.state = CursorState::Waiting { until: now + backoff.delay(cursor.failures, 1.0) };
        let tell = !stale || cursor.failures.is_multiple_of(TELL_STALE_EVERY);
        if stale {
            self.events.push_back(FetchEvent::Stale { partition: partition.clone() });
        }
        if tell {
            let offset = cursor.fetch_offset;
            self.events.push_back(FetchEvent::Refused { partition: partition.clone(), offset, code });
        }
    }
}

/// Whether another broker may say otherwise.
fn is_stale(code: ErrorCode) -> bool {
    code.invalidates_metadata() || STALE.contains(&code)
}

/// Refusals, beside those that the table says, that another broker may not give.
const STALE: [ErrorCode; 4] = [
    ErrorCode::UNKNOWN_TOPIC_ID,
    ErrorCode::INCONSISTENT_TOPIC_ID,
    ErrorCode::OFFSET_NOT_AVAILABLE,
    ErrorCode::UNKNOWN_LEADER_EPOCH,
];
/// A moved leader is daily business; one that is not found for this many tries, a dozen seconds, is told.
pub(super) const TELL_STALE_EVERY: u32 = 16;
/// Between two tries at records that cannot be read.
const POISON_BACKOFF: ExponentialFullJitter =
    ExponentialFullJitter { first: Duration::from_secs(1), max: Duration::from_secs(30) };
