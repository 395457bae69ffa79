use std::fmt;

use super::NAME;
use crate::adapter::{AdapterError, AdapterErrorKind};
use crate::client::{ClientError, ConsumerError};
use crate::record::Topic;

/// A failure of the client in the port's words.
pub(super) fn adapter_error(what: impl fmt::Display, error: ClientError) -> AdapterError {
    let kind = match &error {
        // Waiting for the broker to be available helps nobody.
        error if error.is_locked_out() => AdapterErrorKind::LockedOut,
        ClientError::Request { .. } | ClientError::TimedOut { .. } => AdapterErrorKind::Unavailable,
        ClientError::Refused { .. } | ClientError::Missing { .. } | ClientError::LeftOut { .. } => {
            AdapterErrorKind::Refused
        }
        ClientError::Misuse { .. } => AdapterErrorKind::Unsupported,
        ClientError::Closed => AdapterErrorKind::Closed,
    };
    let retryable = error.is_retriable();
    AdapterError::new(NAME, kind, format_args!("{what}: {error}")).with_retryable(retryable).with_source(error)
}

/// As [`adapter_error`], for a call about this topic.
pub(super) fn topic_error(what: impl fmt::Display, topic: &Topic, error: ClientError) -> AdapterError {
    if error.is_missing() {
        // It may be about to be created.
        return missing(topic);
    }
    adapter_error(what, error)
}

/// The topic does not exist; it may do so soon.
pub(super) fn missing(topic: &Topic) -> AdapterError {
    let what = format_args!("topic {topic} does not exist");
    AdapterError::new(NAME, AdapterErrorKind::TopicMissing(topic.clone()), what).with_retryable(true)
}

/// A failure of a membership in the port's words.
pub(super) fn consumer_error(error: ConsumerError) -> AdapterError {
    let kind = match &error {
        ConsumerError::Unreachable { .. } | ConsumerError::FetchUnanswered { .. } | ConsumerError::NotInTime { .. } => {
            AdapterErrorKind::Unavailable
        }
        ConsumerError::LockedOut { .. } => AdapterErrorKind::LockedOut,
        ConsumerError::TopicsMissing { topics, .. } => match topics.first() {
            Some(topic) => AdapterErrorKind::TopicMissing(topic.clone()),
            None => AdapterErrorKind::Refused,
        },
        ConsumerError::OtherAssignor { wanted, used, .. } => {
            AdapterErrorKind::OtherAssignor { offered: wanted.clone(), chosen: used.clone() }
        }
        ConsumerError::ForeignPartitions { partitions, .. } => AdapterErrorKind::ForeignPartitions(partitions.clone()),
        ConsumerError::Ended { .. } => AdapterErrorKind::Closed,
        error if error.is_fatal() => AdapterErrorKind::Fenced,
        _ => AdapterErrorKind::Refused,
    };
    // What does not end the membership is tried again by the consumer itself.
    let retryable = !error.is_fatal();
    AdapterError::new(NAME, kind, &error).with_retryable(retryable).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TopicPartition;

    #[test]
    fn what_a_group_tells_of_itself_keeps_its_facts() {
        let group = || "g".to_owned();
        let offered = vec!["cooperative-sticky".to_owned()];
        let used = "range".to_owned();
        let other = ConsumerError::OtherAssignor { group: group(), wanted: offered.clone(), used: used.clone() };
        assert_eq!(consumer_error(other).kind, AdapterErrorKind::OtherAssignor { offered, chosen: used });
        let partitions = vec![TopicPartition::new("elsewhere", 1)];
        let foreign = ConsumerError::ForeignPartitions { group: group(), partitions: partitions.clone() };
        assert_eq!(consumer_error(foreign).kind, AdapterErrorKind::ForeignPartitions(partitions));
    }
}
