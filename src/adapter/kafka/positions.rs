//! Positions of groups, by the client's [`Admin`].

use super::error::{adapter_error, topic_error};
use crate::adapter::{AdapterError, AdapterErrorKind, BoxFuture, CommittedOffset, GroupPositions, ReadingGroup};
use crate::client::{Admin, ClientError, GroupKind, GroupOffset, ListedGroup};
use crate::record::{Topic, TopicPartition};

impl GroupPositions for Admin {
    fn groups_of<'a>(&'a self, topics: &'a [Topic]) -> BoxFuture<'a, Result<Vec<ReadingGroup>, AdapterError>> {
        Box::pin(groups_of(self, topics))
    }

    fn set_committed<'a>(
        &'a self,
        group: &'a str,
        offsets: &'a [CommittedOffset],
    ) -> BoxFuture<'a, Result<(), AdapterError>> {
        Box::pin(async move {
            let offset = |found: &CommittedOffset| GroupOffset {
                note: found.note.clone().unwrap_or_default(),
                ..GroupOffset::new(found.offset)
            };
            let set: Vec<_> = offsets.iter().map(|found| (found.partition.clone(), offset(found))).collect();
            for (partition, outcome) in self.set_group_offsets(group, &set).await {
                outcome.map_err(|error| adapter_error(format_args!("moving group {group} on {partition}"), error))?;
            }
            Ok(())
        })
    }
}

async fn groups_of(admin: &Admin, topics: &[Topic]) -> Result<Vec<ReadingGroup>, AdapterError> {
    let mut partitions = Vec::new();
    for (topic, outcome) in admin.describe_topics(topics).await {
        let described = outcome.map_err(|error| topic_error(LISTING, &topic, error))?;
        partitions.extend(described.partitions.iter().map(|found| TopicPartition::new(&topic, found.partition)));
    }
    let listing = admin.list_groups().await.map_err(|error| adapter_error(LISTING, error))?;
    if let Some((node, error)) = listing.unreachable.into_iter().next() {
        let what = format_args!("{LISTING}: broker {} did not tell its groups", node.0);
        return Err(AdapterError::new(super::NAME, AdapterErrorKind::Unavailable, what).with_source(error));
    }
    let mut reading = Vec::new();
    for listed in listing.groups {
        reading.extend(read_by(admin, topics, &partitions, listed).await?);
    }
    Ok(reading)
}

/// What a group has to do with the topics; nothing, for most.
async fn read_by(
    admin: &Admin,
    topics: &[Topic],
    partitions: &[TopicPartition],
    listed: ListedGroup,
) -> Result<Option<ReadingGroup>, AdapterError> {
    let group = listed.group;
    let failed = |error: ClientError| adapter_error(format_args!("{LISTING}: group {group}"), error);
    let mut committed = Vec::new();
    // Positions of a share group are the broker's own.
    if listed.kind != GroupKind::Share {
        let offsets = admin.group_offsets(&group, Some(partitions)).await.map_err(failed)?;
        committed.extend(offsets.into_iter().map(|(partition, found)| {
            let note = Some(found.note).filter(|note| !note.is_empty());
            CommittedOffset { partition, offset: found.offset, note }
        }));
    }
    let members = match listed.kind {
        // What its members are cannot be asked; that it has some is told.
        GroupKind::Other(_) => usize::from(listed.state != "Empty" && !committed.is_empty()),
        _ => match admin.describe_groups(std::slice::from_ref(&group)).await.pop() {
            Some((_, Ok(described))) => {
                let reads = described.members.iter().any(|member| {
                    let assigned = member.assigned.iter().any(|partition| topics.contains(&partition.topic));
                    assigned || member.topics.iter().any(|topic| topics.contains(topic))
                });
                if reads || !committed.is_empty() { described.members.len() } else { 0 }
            }
            // It went since it was listed, with its positions.
            Some((_, Err(error))) if error.is_missing() => return Ok(None),
            Some((_, Err(error))) => return Err(failed(error)),
            None => return Ok(None),
        },
    };
    let reads = members > 0 || !committed.is_empty();
    Ok(reads.then_some(ReadingGroup { group, members, committed }))
}

const LISTING: &str = "looking for groups";
