use std::collections::HashMap;

use super::{Admin, Outcomes};
use crate::client::{ClientError, GroupOffset, ListedOffset, OffsetSpec};
use crate::machine::fetch::IsolationLevel;
use crate::record::{Offset, Timestamp, TopicPartition};

/// Where a group is to go on reading a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResetTo {
    /// The oldest record that is kept.
    Earliest,
    /// The end: behind the last record that is committed.
    Latest,
    /// The first record with this time or a later one; the end where there is none.
    At(Timestamp),
    /// This offset.
    Offset(Offset),
    /// So many records on from where the group is, or back.
    By(i64),
}

/// Where a group is on a partition, and where it would be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedReset {
    /// What it has committed, if it has.
    pub before: Option<GroupOffset>,
    /// What it would have committed, for [`Admin::set_group_offsets`]. Within what the partition holds, whatever was asked for.
    pub after: GroupOffset,
}

type Listed = Result<Offset, ClientError>;

impl Admin {
    /// Where a group would be on partitions if it were reset, and where it is. Changes nothing: that is
    /// [`set_group_offsets`](Self::set_group_offsets), once the group has no members.
    ///
    /// # Errors
    /// When the group's coordinator cannot be asked, or refuses; else for each partition apart, [`ClientError::Misuse`] for
    /// [`ResetTo::By`] where nothing is committed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn plan_group_reset(
        &self,
        group: &str,
        to: &[(TopicPartition, ResetTo)],
    ) -> Result<Outcomes<TopicPartition, PlannedReset>, ClientError> {
        let partitions: Vec<TopicPartition> = to.iter().map(|(partition, _)| partition.clone()).collect();
        let committed = self.group_offsets(group, Some(&partitions)).await?;
        let committed: HashMap<TopicPartition, GroupOffset> = committed.into_iter().collect();
        let all = |spec| partitions.iter().map(|partition| (partition.clone(), spec)).collect::<Vec<_>>();
        let starts = self.starts_or_ends(&all(OffsetSpec::Earliest)).await;
        let ends = self.starts_or_ends(&all(OffsetSpec::Latest)).await;
        let at = |(partition, to): &(TopicPartition, ResetTo)| match to {
            ResetTo::At(time) => Some((partition.clone(), OffsetSpec::At(*time))),
            _ => None,
        };
        let times: Vec<_> = to.iter().filter_map(at).collect();
        let times = self.list_offsets(&times, IsolationLevel::ReadCommitted).await;
        let times: HashMap<TopicPartition, Result<ListedOffset, ClientError>> = times.into_iter().collect();

        let plan = |partition: &TopicPartition, to: ResetTo| {
            let left_out = || ClientError::LeftOut { what: format!("list offsets of {partition}") };
            let place =
                |of: &HashMap<TopicPartition, Listed>| of.get(partition).cloned().unwrap_or_else(|| Err(left_out()));
            let (start, end) = (place(&starts)?, place(&ends)?);
            let before = committed.get(partition).cloned();
            let wanted = match to {
                ResetTo::Earliest => start,
                ResetTo::Latest => end,
                ResetTo::At(_) => {
                    times.get(partition).cloned().unwrap_or_else(|| Err(left_out()))?.offset.unwrap_or(end)
                }
                ResetTo::Offset(offset) => offset,
                ResetTo::By(records) => {
                    let nothing = || format!("group {group} has committed nothing on {partition} to go on from");
                    let before = before.as_ref().ok_or_else(|| ClientError::Misuse { what: nothing() })?;
                    Offset(before.offset.0.saturating_add(records))
                }
            };
            let after = GroupOffset::new(wanted.min(end).max(start));
            Ok(PlannedReset { before, after })
        };
        Ok(to.iter().map(|(partition, to)| (partition.clone(), plan(partition, *to))).collect())
    }

    async fn starts_or_ends(&self, asked: &[(TopicPartition, OffsetSpec)]) -> HashMap<TopicPartition, Listed> {
        let listed = self.list_offsets(asked, IsolationLevel::ReadCommitted).await;
        let offset = |(partition, listed): (TopicPartition, Result<ListedOffset, ClientError>)| {
            let left_out = || ClientError::LeftOut { what: format!("list offsets of {partition}") };
            let offset = listed.and_then(|listed| listed.offset.ok_or_else(left_out));
            (partition, offset)
        };
        listed.into_iter().map(offset).collect()
    }
}
