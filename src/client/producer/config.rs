//! Options of a producer.

use std::sync::Arc;
use std::time::Duration;

use super::{Producer, Transactional};
use crate::client::error::{ConfigError, Problems};
use crate::client::partitioner::{KeyHash, Partitioner};
use crate::client::transaction::TransactionalBuilder;
use crate::client::{Client, Cluster};
use crate::machine::produce::{Acks, ProduceSettings};
use crate::protocol::compression::Compression;

/// What a producer was built with.
#[derive(Debug)]
pub(super) struct ProducerConfig {
    pub(super) produce: ProduceSettings,
    pub(super) buffer_bytes: usize,
    pub(super) max_block: Duration,
    pub(super) request_timeout: Duration,
    pub(super) partitioner: Arc<dyn Partitioner>,
    pub(super) transactional: Option<Arc<dyn Transactional>>,
}

/// Options of a [`Producer`].
///
/// Writes are idempotent and acknowledged by all in-sync replicas; only names with `dangerous` change that. Mistakes are
/// reported together by [`build`](Self::build).
#[derive(Debug, Clone)]
#[must_use]
pub struct ProducerBuilder {
    cluster: Cluster,
    produce: ProduceSettings,
    buffer_bytes: usize,
    max_block: Duration,
    partitioner: Arc<dyn Partitioner>,
}

impl ProducerBuilder {
    pub(crate) fn new(client: &Client) -> Self {
        Self {
            cluster: client.cluster().clone(),
            produce: ProduceSettings::default(),
            buffer_bytes: 32 * MIB,
            max_block: Duration::from_secs(60),
            partitioner: Arc::new(KeyHash),
        }
    }

    /// How long a batch that is not full waits for more records. Default 5 ms, at most a minute. With 0 nothing waits by
    /// the clock, but what arrives while a request is under way to the same broker still goes together. Java: `linger.ms`.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.produce.linger = linger;
        self
    }

    /// The size, before compression, at which a batch is full. Default 128 KiB: a broker spends less on few large requests. From
    /// 1 KiB to 64 MiB, at most `max_request_bytes`. Smaller batches are made where a topic proves to take no larger ones. A
    /// record above it has a batch to itself. Java: `batch.size`.
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.produce.batch_bytes = bytes;
        self
    }

    /// The size above which a record is refused, and at which a request takes no further batch. Default 1 MiB, from 1 KiB to
    /// 1 GiB. Java: `max.request.size`.
    pub fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.produce.max_request_bytes = bytes;
        self
    }

    /// Memory for records that are not acknowledged yet, counted as they are encoded. When it is used up, sends wait. Default
    /// 32 MiB, from 64 KiB to 2 GiB, at least `max_request_bytes`. Java: `buffer.memory`.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// How long a send may wait for memory, and for its topic's partitions to become known. Default 60 s, from 0 to an
    /// hour. Java: `max.block.ms`.
    pub fn max_block(mut self, time: Duration) -> Self {
        self.max_block = time;
        self
    }

    /// From a batch's first record to its acknowledgement; what is not acknowledged by then fails, and the error says whether it
    /// may have been written. Default 120 s, at least `linger` plus the client's `request_timeout`, at most a day.
    /// Java: `delivery.timeout.ms`.
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.produce.delivery_timeout = timeout;
        self
    }

    /// The wait before a batch is sent again: `first`, doubled with each failure in a row up to `max`, give or take a
    /// fifth. Default 100 ms and 1 s; `first` at least 1 ms, `max` at most a minute. Java: `retry.backoff.ms`,
    /// `retry.backoff.max.ms`.
    pub fn retry_backoff(mut self, first: Duration, max: Duration) -> Self {
        (self.produce.retry_backoff, self.produce.retry_backoff_max) = (first, max);
        self
    }

    /// Requests on their way to one broker. Default 5, from 1 to 100. A partition never has more than five batches on
    /// their way, however many requests there are. Java: `max.in.flight.requests.per.connection`.
    pub fn max_in_flight_requests(mut self, requests: usize) -> Self {
        self.produce.requests_in_flight = requests;
        self
    }

    /// How batches are compressed. Default: not at all. Batches are compressed in the producer's own task.
    /// Java: `compression.type`.
    pub fn compression(mut self, compression: impl Into<Compression>) -> Self {
        self.produce.compression = compression.into();
        self
    }

    /// Who chooses a record's partition when the record does not say. Default [`KeyHash`]. Java: `partitioner.class`.
    pub fn partitioner(mut self, partitioner: impl Partitioner) -> Self {
        self.partitioner = Arc::new(partitioner);
        self
    }

    /// Takes the leader's acknowledgement for enough: what is acknowledged is lost if the leader fails before its followers have
    /// it. Nor are batches numbered then: a resend may write twice. One batch a partition is on its way at a time, so that order
    /// is kept. Java: `acks=1` with `enable.idempotence=false`.
    pub fn dangerous_acks_leader_only(mut self) -> Self {
        self.produce.acks = Acks::LeaderOnly;
        self
    }

    /// Makes every record part of a transaction, under this id: that of a job, the same over restarts, and of one producer at
    /// a time. Java: `transactional.id`.
    pub fn transactional(self, id: impl Into<String>) -> TransactionalBuilder {
        TransactionalBuilder::new(self, id.into())
    }

    /// The producer. Nothing is connected to before its first record.
    ///
    /// # Errors
    /// Naming every option that cannot be used.
    pub fn build(self) -> Result<Producer, ConfigError> {
        self.build_with(None)
    }

    pub(in crate::client) fn build_transactional(
        mut self,
        transactional: Arc<dyn Transactional>,
    ) -> Result<Producer, ConfigError> {
        self.produce.transactional = true;
        self.build_with(Some(transactional))
    }

    pub(in crate::client) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(in crate::client) fn backoff(&self) -> (Duration, Duration) {
        (self.produce.retry_backoff, self.produce.retry_backoff_max)
    }

    pub(in crate::client) fn blocks_for(&self) -> Duration {
        self.max_block
    }

    pub(in crate::client) fn is_dangerous(&self) -> bool {
        self.produce.acks != Acks::All
    }

    fn build_with(self, transactional: Option<Arc<dyn Transactional>>) -> Result<Producer, ConfigError> {
        let request_timeout = self.cluster.config().request_timeout;
        self.check(request_timeout)?;
        let config = ProducerConfig {
            produce: self.produce,
            buffer_bytes: self.buffer_bytes,
            max_block: self.max_block,
            request_timeout,
            partitioner: self.partitioner,
            transactional,
        };
        Ok(Producer::new(self.cluster, config))
    }

    fn check(&self, request_timeout: Duration) -> Result<(), ConfigError> {
        let (produce, mut problems) = (&self.produce, Problems::default());
        problems.require_within("linger", produce.linger, Duration::ZERO..=MINUTE);
        problems.require_within("batch_bytes", produce.batch_bytes, 1024..=64 * MIB);
        problems.require_within("max_request_bytes", produce.max_request_bytes, 1024..=1024 * MIB);
        problems.require(
            produce.batch_bytes <= produce.max_request_bytes,
            "batch_bytes",
            "it is above max_request_bytes",
        );
        problems.require_within("buffer_bytes", self.buffer_bytes, 64 * 1024..=2048 * MIB - 1);
        problems.require(
            self.buffer_bytes >= produce.max_request_bytes,
            "buffer_bytes",
            "it is below max_request_bytes, so that a record could never be sent",
        );
        problems.require_within("max_block", self.max_block, Duration::ZERO..=60 * MINUTE);
        problems.require(
            produce.delivery_timeout >= produce.linger + request_timeout,
            "delivery_timeout",
            "it is below linger plus the client's request_timeout, so that not even one try would fit in",
        );
        problems.require(produce.delivery_timeout <= 1440 * MINUTE, "delivery_timeout", "it is over a day");
        let (first, max) = (produce.retry_backoff, produce.retry_backoff_max);
        problems.require_within("retry_backoff", first, MILLISECOND..=max.max(MILLISECOND));
        problems.require(max <= MINUTE, "retry_backoff", "the longest wait is over a minute");
        problems.require_within("max_in_flight_requests", produce.requests_in_flight, 1..=100);
        let codec = produce.compression.codec();
        problems.require(codec.is_enabled(), "compression", format_args!("{codec} is not compiled in"));
        problems.finish()
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_can_be_used() {
        let client = Client::builder(["localhost:9092"]).build().unwrap();
        client.producer().build().unwrap();
    }

    #[test]
    fn mistakes_are_reported_all_together_by_name() {
        let client = Client::builder(["localhost:9092"]).build().unwrap();
        let error = client
            .producer()
            .linger(Duration::from_secs(61))
            .batch_bytes(2 * MIB)
            .buffer_bytes(100_000)
            .delivery_timeout(Duration::from_secs(10))
            .retry_backoff(Duration::from_secs(5), Duration::from_secs(1))
            .max_in_flight_requests(0)
            .build()
            .unwrap_err();
        let options: Vec<_> = error.problems.iter().map(|problem| problem.option).collect();
        let expected =
            ["linger", "batch_bytes", "buffer_bytes", "delivery_timeout", "retry_backoff", "max_in_flight_requests"];
        assert_eq!(options, expected);
    }
}
