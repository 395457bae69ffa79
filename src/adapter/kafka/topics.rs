//! Topics and offsets of the port, by the client's [`Admin`].

use std::collections::{BTreeMap, HashMap};

use super::error::{adapter_error, topic_error};
use crate::adapter::{AdapterError, CommittedOffset, PartitionWatermarks, TopicDescription};
use crate::client::{Admin, ClientError, IsolationLevel, ListedOffset, OffsetSpec};
use crate::protocol::error_code::ErrorCode;
use crate::record::{NewTopic, Offset, Topic, TopicPartition};

pub(super) async fn create(admin: &Admin, topics: &[NewTopic]) -> Result<(), AdapterError> {
    let failures: Vec<_> = admin
        .create_topics(topics)
        .await
        .into_iter()
        .filter_map(|(topic, outcome)| Some((topic, outcome.err()?)))
        .collect();
    // The one that cannot succeed later decides what the caller does.
    let worst = failures.iter().find(|(_, error)| !error.is_retriable()).or(failures.first());
    let Some((_, error)) = worst else { return Ok(()) };
    let names: Vec<_> = failures.iter().map(|(topic, _)| topic.as_str()).collect();
    Err(adapter_error(format_args!("creating topics {}", names.join(", ")), error.clone()))
}

pub(super) async fn describe(admin: &Admin, topics: &[Topic]) -> Result<Vec<Option<TopicDescription>>, AdapterError> {
    let (described, configs) = tokio::join!(admin.describe_topics(topics), admin.describe_topic_configs(topics));
    let mut configs: HashMap<Topic, _> = configs.into_iter().collect();
    let mut descriptions = Vec::with_capacity(topics.len());
    for (topic, outcome) in described {
        let partitions = match outcome {
            Ok(description) => description.partitions.len(),
            Err(error) if error.is_missing() => {
                descriptions.push(None);
                continue;
            }
            Err(error) => return Err(adapter_error("describing topics", error)),
        };
        let configs = match configs.remove(&topic) {
            Some(Ok(entries)) => entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect(),
            // Not allowed to read them, or the topic went in between.
            Some(Err(ClientError::Refused { .. } | ClientError::Missing { .. })) | None => BTreeMap::new(),
            Some(Err(error)) => return Err(adapter_error("describing topics", error)),
        };
        let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
        descriptions.push(Some(TopicDescription { topic, partitions, configs }));
    }
    Ok(descriptions)
}

pub(super) async fn watermarks(admin: &Admin, topics: &[Topic]) -> Result<Vec<PartitionWatermarks>, AdapterError> {
    let what = "reading watermarks";
    let mut partitions = Vec::new();
    for (topic, outcome) in admin.describe_topics(topics).await {
        let description = outcome.map_err(|error| topic_error(what, &topic, error))?;
        let led = description.partitions.iter().filter(|partition| partition.leader.is_some());
        partitions.extend(led.map(|partition| TopicPartition::new(&topic, partition.partition)));
    }
    let ask = |spec| partitions.iter().map(|partition| (partition.clone(), spec)).collect::<Vec<_>>();
    let (earliest, latest) = (ask(OffsetSpec::Earliest), ask(OffsetSpec::Latest));
    let (low, high) = tokio::join!(admin.list_offsets(&earliest, COMMITTED), admin.list_offsets(&latest, COMMITTED));
    let mut watermarks = Vec::with_capacity(partitions.len());
    for ((partition, low), (_, high)) in low.into_iter().zip(high) {
        match (low, high) {
            (Ok(low), Ok(high)) => {
                watermarks.push(PartitionWatermarks { partition, low: offset_of(&low)?, high: offset_of(&high)? })
            }
            // It lost its leader in between.
            (Err(error), _) | (_, Err(error)) if error.code() == Some(ErrorCode::LEADER_NOT_AVAILABLE) => {}
            (Err(error), _) | (_, Err(error)) => return Err(topic_error(what, &partition.topic, error)),
        }
    }
    Ok(watermarks)
}

pub(super) async fn committed(
    admin: &Admin,
    group: &str,
    topics: &[Topic],
) -> Result<Vec<CommittedOffset>, AdapterError> {
    let what = "reading committed offsets";
    let mut partitions = Vec::new();
    for (topic, outcome) in admin.describe_topics(topics).await {
        let description = outcome.map_err(|error| topic_error(what, &topic, error))?;
        partitions.extend(description.partitions.iter().map(|p| TopicPartition::new(&topic, p.partition)));
    }
    let offsets = admin.group_offsets(group, Some(&partitions)).await.map_err(|error| adapter_error(what, error))?;
    let committed = offsets.into_iter().map(|(partition, found)| {
        let note = Some(found.note).filter(|note| !note.is_empty());
        CommittedOffset { partition, offset: found.offset, note }
    });
    Ok(committed.collect())
}

/// Both ends of a partition have an offset always; an answer without one is a fault of the broker.
fn offset_of(listed: &ListedOffset) -> Result<Offset, AdapterError> {
    let left_out = || ClientError::LeftOut { what: "reading watermarks".to_owned() };
    listed.offset.ok_or_else(|| adapter_error("an end of a partition", left_out()))
}

/// As memberships read: an end that lies behind an open transaction would be lag that nobody can work off.
const COMMITTED: IsolationLevel = IsolationLevel::ReadCommitted;
