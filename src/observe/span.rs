//! The `tracing` spans of a delivery and of a send.

use tracing::Span;

use crate::observe::ProduceKind;
use crate::record::{Offset, Topic};

/// The span that records are published in; `topic` is the first one's.
pub(crate) fn send_span(topic: &Topic, kind: ProduceKind, records: usize) -> Span {
    tracing::info_span!(
        "send",
        messaging.system = "kafka",
        messaging.operation.r#type = "send",
        messaging.destination.name = %topic,
        messaging.batch.message_count = records,
        kafka_harbor.kind = %kind,
    )
}

/// What the span of a delivery tells, by OpenTelemetry's names for messaging.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeliverySpan<'a> {
    /// The topic that the record was read from.
    pub(crate) topic: &'a Topic,
    /// Its partition.
    pub(crate) partition: i32,
    /// Its offset.
    pub(crate) offset: Offset,
    /// The consumer's group.
    pub(crate) group: &'a str,
    /// Which delivery of the record it is, from 1.
    pub(crate) attempt: u32,
}

impl DeliverySpan<'_> {
    /// The span that the handler runs in. Costs nothing where nobody wants it; only else are the correlation id and
    /// the original topic looked up.
    pub(crate) fn open<'c>(
        self,
        correlation_id: impl FnOnce() -> Option<&'c str>,
        original_topic: Option<&Topic>,
    ) -> Span {
        let span = tracing::info_span!(
            "process",
            messaging.system = "kafka",
            messaging.operation.r#type = "process",
            messaging.destination.name = %self.topic,
            messaging.destination.partition.id = self.partition,
            messaging.kafka.offset = self.offset.0,
            messaging.consumer.group.name = self.group,
            kafka_harbor.attempt = self.attempt,
            kafka_harbor.correlation_id = tracing::field::Empty,
            kafka_harbor.original_topic = tracing::field::Empty,
        );
        if !span.is_disabled() {
            if let Some(id) = correlation_id() {
                span.record("kafka_harbor.correlation_id", id);
            }
            if let Some(topic) = original_topic {
                span.record("kafka_harbor.original_topic", topic.as_str());
            }
        }
        span
    }
}
