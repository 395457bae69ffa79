use std::fmt;

use super::NAME;
use crate::adapter::{AdapterError, AdapterErrorKind};
use crate::client::{ClientError, ConsumerError};
use crate::record::Topic;

/// A failure of the client in the port's words.
pub(super) fn adapter_error(what: impl fmt::Display, error: ClientError) -> AdapterError {
    let kind = match &error {
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
        ConsumerError::TopicsMissing { topics, .. } => match topics.first() {
            Some(topic) => AdapterErrorKind::TopicMissing(topic.clone()),
            None => AdapterErrorKind::Refused,
        },
        ConsumerError::Ended { .. } => AdapterErrorKind::Closed,
        error if error.is_fatal() => AdapterErrorKind::Fenced,
        _ => AdapterErrorKind::Refused,
    };
    // What does not end the membership is tried again by the consumer itself.
    let retryable = !error.is_fatal();
    AdapterError::new(NAME, kind, &error).with_retryable(retryable).with_source(error)
}
