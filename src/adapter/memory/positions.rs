//! Positions of groups at the in-process broker.

use super::shared::{Verdict, lost_answer, refused};
use super::{Call, MemoryBroker, State, partitions_of};
use crate::adapter::{AdapterError, BoxFuture, CommittedOffset, GroupPositions, ReadingGroup};
use crate::memory::Committed;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;

impl GroupPositions for MemoryBroker {
    fn groups_of<'a>(&'a self, topics: &'a [Topic]) -> BoxFuture<'a, Result<Vec<ReadingGroup>, AdapterError>> {
        Box::pin(async move {
            let state = self.shared.lock();
            let partitions = partitions_of(topics, &state)?;
            let broker = &state.broker;
            let reading = broker.groups().filter_map(|group| {
                let committed = partitions.iter().filter_map(|partition| {
                    let found = broker.committed(group, partition)?;
                    let (offset, note) = (found.offset, found.metadata.clone());
                    Some(CommittedOffset { partition: partition.clone(), offset, note })
                });
                let committed: Vec<_> = committed.collect();
                let reads = topics.iter().any(|topic| broker.is_subscribed(group, topic));
                let members = broker.members(group).map_or(0, |members| members.len());
                let read = reads || !committed.is_empty();
                read.then(|| ReadingGroup { group: group.to_owned(), members, committed })
            });
            Ok(reading.collect())
        })
    }

    /// Failures are ordered for it as for a member's [`Settle`](crate::memory::Operation::Settle).
    fn set_committed<'a>(
        &'a self,
        group: &'a str,
        offsets: &'a [CommittedOffset],
    ) -> BoxFuture<'a, Result<(), AdapterError>> {
        Box::pin(async move {
            let positions = offsets.iter().map(|found| (found.partition.clone(), found.offset)).collect();
            let what = format!("moving group {group}");
            let set = |state: &mut State| {
                offsets.iter().try_for_each(|found| {
                    let (offset, metadata) = (found.offset, found.note.clone());
                    let committed = Committed { offset, leader_epoch: None, metadata };
                    state.broker.set_committed(group, &found.partition, committed)
                })
            };
            match self.shared.begin(Call::Settle { group: group.to_owned(), positions }).await {
                Verdict::Proceed => self.shared.with(set).map_err(|code: ErrorCode| refused(code, &what)),
                Verdict::Refuse { code, retryable, .. } => Err(refused(code, &what).with_retryable(retryable)),
                Verdict::LoseAnswer { .. } => {
                    self.shared.with(set).map_err(|code| refused(code, &what))?;
                    Err(lost_answer(&what))
                }
            }
        })
    }
}
