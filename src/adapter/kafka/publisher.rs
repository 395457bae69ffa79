//! Publishing by a producer of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::NAME;
use super::settings::KafkaSettings;
use crate::adapter::{
    Acknowledged, AdapterError, AdapterErrorKind, BoxFuture, PublishError, Publisher, RecordFailure, RecordOutcome,
};
use crate::client::{Client, Delivery, ProduceError, ProduceErrorKind, Producer, Unfinished, join_all};
use crate::protocol::error_code::ErrorCode;
use crate::record::{Record, Topic, TopicPartition};
use crate::retry::RetryPolicy;

/// One producer.
///
/// The tries of the policy are the producer's: it sends the same batch again, with its producer id and sequence, until the
/// time of all tries together is used up. Sending again from here would number the records anew.
pub(super) struct KafkaPublisher {
    producer: Producer,
    attempts: u32,
}

impl KafkaPublisher {
    pub(super) fn new(client: &Client, settings: &KafkaSettings, retry: &RetryPolicy) -> Result<Self, AdapterError> {
        let attempts = retry.attempts.max(1);
        // The ceilings of the first wait and of the last; the producer doubles in between.
        let first = retry.wait(1, 1.0).clamp(SHORTEST_WAIT, LONGEST_WAIT);
        let last = retry.wait(attempts, 1.0).clamp(first, LONGEST_WAIT);
        let builder = settings.producer(client, attempts).retry_backoff(first, last);
        let producer = builder.build().map_err(|error| {
            AdapterError::new(NAME, AdapterErrorKind::Unsupported, format_args!("publisher: {error}"))
                .with_source(error)
        })?;
        Ok(Self { producer, attempts })
    }

    pub(super) async fn close(&self, timeout: Duration) -> Result<(), Unfinished> {
        self.producer.close(timeout).await
    }

    /// Queues the records of one topic in order, then waits for all. `indices` are their places in the whole.
    async fn publish_topic(&self, records: Vec<(usize, Record)>) -> Vec<(usize, RecordOutcome)> {
        let mut outcomes = Vec::with_capacity(records.len());
        let mut under_way = Vec::with_capacity(records.len());
        let mut records = records.into_iter();
        while let Some((index, record)) = records.next() {
            let topic = record.topic.clone();
            match self.producer.enqueue(record).await {
                Ok(delivery) => under_way.push((index, topic, delivery)),
                Err(error) => {
                    let (hopeless, failure) = (stops_the_rest(&error), failure(&error));
                    outcomes.push((index, Err(failure.clone())));
                    if hopeless {
                        // Each of the others would wait as long for the same end.
                        outcomes.extend(records.by_ref().map(|(index, _)| (index, Err(failure.clone()))));
                    }
                }
            }
        }
        let mut last: Option<(Arc<ProduceError>, Arc<RecordFailure>)> = None;
        for (index, topic, delivery) in under_way {
            outcomes.push((index, acknowledged(topic, delivery, &mut last).await));
        }
        outcomes
    }
}

impl Publisher for KafkaPublisher {
    fn publish(&self, records: Vec<Record>) -> BoxFuture<'_, Result<Vec<Acknowledged>, PublishError>> {
        Box::pin(async move {
            let count = records.len();
            let topics = by_topic(records).into_iter().map(|records| self.publish_topic(records));
            let settled = join_all(topics).await.into_iter().flatten();
            let mut outcomes: Vec<Option<RecordOutcome>> = vec![None; count];
            settled.for_each(|(index, outcome)| outcomes[index] = Some(outcome));
            let outcomes: Vec<_> = outcomes.into_iter().flatten().collect();
            if outcomes.iter().all(Result::is_ok) {
                return Ok(outcomes.into_iter().flatten().collect());
            }
            let exhausted = outcomes.iter().any(|outcome| outcome.as_ref().is_err_and(|failure| failure.retryable));
            Err(PublishError::new(outcomes, if exhausted { self.attempts } else { 1 }))
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async move {
            if self.producer.flushed().await {
                return Ok(());
            }
            Err(AdapterError::new(NAME, AdapterErrorKind::Closed, "flush: the adapter is closed"))
        })
    }
}

impl fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaPublisher").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

/// The records of each topic, with their places.
fn by_topic(records: Vec<Record>) -> Vec<Vec<(usize, Record)>> {
    let mut topics: Vec<Vec<(usize, Record)>> = Vec::new();
    for (index, record) in records.into_iter().enumerate() {
        // A publish is about few topics, most often one.
        match topics.iter_mut().find(|topic| topic[0].1.topic == record.topic) {
            Some(topic) => topic.push((index, record)),
            None => topics.push(vec![(index, record)]),
        }
    }
    topics
}

async fn acknowledged(
    topic: Topic,
    delivery: Delivery,
    last: &mut Option<(Arc<ProduceError>, Arc<RecordFailure>)>,
) -> RecordOutcome {
    match delivery.await {
        Ok(written) => {
            Ok(Acknowledged { partition: TopicPartition::new(topic, written.partition), offset: written.offset })
        }
        // Records of a batch that failed share its error.
        Err(error) => match last {
            Some((shared, failure)) if Arc::ptr_eq(shared, &error) => Err(failure.clone()),
            _ => {
                let failure = failure(&error);
                *last = Some((error, failure.clone()));
                Err(failure)
            }
        },
    }
}

fn failure(error: &Arc<ProduceError>) -> Arc<RecordFailure> {
    let failure = RecordFailure::new(error.outcome, error.is_retriable(), format_args!("{NAME}: {error}"));
    let failure = match error.code() {
        Some(code) => failure.with_code(code.0),
        None => failure,
    };
    let failure = if is_too_large(error) { failure.with_too_large() } else { failure };
    Arc::new(failure.with_source(error.clone()))
}

/// Whether the record was refused for its size, by the broker or before it was sent.
fn is_too_large(error: &ProduceError) -> bool {
    let codes = [ErrorCode::MESSAGE_TOO_LARGE, ErrorCode::RECORD_LIST_TOO_LARGE];
    match error.kind {
        ProduceErrorKind::TooLarge { .. } => true,
        ProduceErrorKind::Refused { code, .. } => codes.contains(&code),
        _ => false,
    }
}

/// Whether the failure is about the topic or the producer, not about the record.
fn stops_the_rest(error: &ProduceError) -> bool {
    matches!(error.kind, ProduceErrorKind::Blocked { .. } | ProduceErrorKind::Lookup | ProduceErrorKind::Closed)
}

/// Bounds of the producer's own.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::WriteOutcome;

    #[test]
    fn what_is_refused_for_its_size_is_told_as_that() {
        let refused = |code| ProduceErrorKind::Refused { code, message: None };
        let table = [
            (ProduceErrorKind::TooLarge { bytes: 2, limit: 1 }, true),
            (refused(ErrorCode::MESSAGE_TOO_LARGE), true),
            (refused(ErrorCode::RECORD_LIST_TOO_LARGE), true),
            (refused(ErrorCode::INVALID_RECORD), false),
            (ProduceErrorKind::Closed, false),
        ];
        for (kind, too_large) in table {
            let outcome = WriteOutcome::NotWritten;
            let error = ProduceError { topic: "orders".into(), partition: Some(0), outcome, kind, source: None };
            assert_eq!(failure(&Arc::new(error)).too_large, too_large);
        }
    }
}
