//! Options of the adapter.

use std::time::Duration;

use super::{Joined, KafkaAdapter};
use crate::adapter::{AdapterError, BoxFuture, JoinOptions, Start};
use crate::client::{
    Client, ClientBuilder, ConfigError, ConsumerBuilder, GroupProtocol, OffsetReset, Problems, ProducerBuilder,
    ShareConsumerBuilder,
};
use crate::observe::Observer;
use crate::protocol::compression::Compression;

/// Options of a [`KafkaAdapter`]: of its client, and of every producer and consumer that it makes.
///
/// Every option has a default that is meant to be kept. Mistakes are reported together by [`build`](Self::build).
#[derive(Debug, Clone)]
#[must_use]
pub struct KafkaAdapterBuilder {
    client: ClientBuilder,
    settings: KafkaSettings,
}

/// What calls, producers and consumers are made with. What is absent is left at the client's default.
#[derive(Debug, Clone)]
pub(super) struct KafkaSettings {
    pub(super) admin_timeout: Duration,
    delivery_timeout: Duration,
    linger: Duration,
    batch_bytes: Option<usize>,
    max_request_bytes: Option<usize>,
    buffer_bytes: Option<usize>,
    compression: Option<Compression>,
    group_protocol: Option<GroupProtocol>,
    rack: Option<String>,
    session_timeout: Option<Duration>,
    heartbeat_interval: Option<Duration>,
    fetch_max_wait: Option<Duration>,
    fetch_min_bytes: Option<usize>,
    fetch_max_bytes: Option<usize>,
    fetch_max_partition_bytes: Option<usize>,
    fetch_memory_bytes: Option<usize>,
    max_inflated_bytes: Option<usize>,
    /// How to join as a member of share groups, where that is asked for.
    pub(super) share: Option<JoinShare>,
}

/// Behind a pointer, so that a program without share groups does not carry them.
type JoinShare = for<'a> fn(&'a Client, &'a KafkaSettings, JoinOptions) -> BoxFuture<'a, Result<Joined, AdapterError>>;

impl KafkaAdapterBuilder {
    pub(super) fn new<A: Into<String>>(bootstrap: impl IntoIterator<Item = A>) -> Self {
        let settings = KafkaSettings {
            admin_timeout: Duration::from_secs(30),
            delivery_timeout: Duration::from_secs(30),
            linger: Duration::from_millis(5),
            batch_bytes: None,
            max_request_bytes: None,
            buffer_bytes: None,
            compression: None,
            group_protocol: None,
            rack: None,
            session_timeout: None,
            heartbeat_interval: None,
            fetch_max_wait: None,
            fetch_min_bytes: None,
            fetch_max_bytes: None,
            fetch_max_partition_bytes: None,
            fetch_memory_bytes: None,
            max_inflated_bytes: None,
            share: None,
        };
        Self { client: Client::builder(bootstrap), settings }
    }

    /// How streams to brokers are made.
    #[cfg(feature = "testing")]
    pub(crate) fn connector(mut self, connector: std::sync::Arc<dyn crate::client::transport::Connector>) -> Self {
        self.client = self.client.connector(connector);
        self
    }

    /// As [`ClientBuilder::client_id`].
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client = self.client.client_id(id);
        self
    }

    /// As [`ClientBuilder::request_timeout`]; at most [`delivery_timeout`](Self::delivery_timeout).
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.client = self.client.request_timeout(timeout);
        self
    }

    /// As [`ClientBuilder::setup_timeout`].
    pub fn setup_timeout(mut self, timeout: Duration) -> Self {
        self.client = self.client.setup_timeout(timeout);
        self
    }

    /// As [`ClientBuilder::reconnect_backoff`].
    pub fn reconnect_backoff(mut self, first: Duration, max: Duration) -> Self {
        self.client = self.client.reconnect_backoff(first, max);
        self
    }

    /// As [`ClientBuilder::idle_timeout`].
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.client = self.client.idle_timeout(timeout);
        self
    }

    /// As [`ClientBuilder::metadata_max_age`].
    pub fn metadata_max_age(mut self, age: Duration) -> Self {
        self.client = self.client.metadata_max_age(age);
        self
    }

    /// As [`ClientBuilder::metadata_max_idle`].
    pub fn metadata_max_idle(mut self, idle: Duration) -> Self {
        self.client = self.client.metadata_max_idle(idle);
        self
    }

    /// As [`ClientBuilder::max_throttle`].
    pub fn max_throttle(mut self, silence: Duration) -> Self {
        self.client = self.client.max_throttle(silence);
        self
    }

    /// As [`ClientBuilder::observer`]: of what connections report. The harbor's own observers are given to the harbor.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.client = self.client.observer(observer);
        self
    }

    /// As [`ClientBuilder::max_response_bytes`].
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.client = self.client.max_response_bytes(bytes);
        self
    }

    /// As [`ClientBuilder::tls`].
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::client::Tls) -> Self {
        self.client = self.client.tls(tls);
        self
    }

    /// As [`ClientBuilder::login`].
    #[cfg(feature = "sasl")]
    pub fn login(mut self, login: crate::client::Login) -> Self {
        self.client = self.client.login(login);
        self
    }

    /// How long a call about topics or offsets may take, and reaching the cluster. Default 30 s, from 100 ms to an hour. Java:
    /// `default.api.timeout.ms`.
    pub fn admin_timeout(mut self, timeout: Duration) -> Self {
        self.settings.admin_timeout = timeout;
        self
    }

    /// How long one try of a publisher may take. Its tries are made one after the other on the same batch, so a record is
    /// given up after as many times this as the publisher's policy has attempts. Default 30 s, from
    /// [`request_timeout`](Self::request_timeout) to an hour. Java: `delivery.timeout.ms`, for all tries together.
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.settings.delivery_timeout = timeout;
        self
    }

    /// As [`ProducerBuilder::linger`].
    pub fn linger(mut self, linger: Duration) -> Self {
        self.settings.linger = linger;
        self
    }

    /// As [`ProducerBuilder::batch_bytes`].
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.settings.batch_bytes = Some(bytes);
        self
    }

    /// As [`ProducerBuilder::max_request_bytes`], but by default 1 MiB and 64 KiB: a record of the size that brokers take by
    /// default, with the headers of a hop.
    pub fn max_request_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_request_bytes = Some(bytes);
        self
    }

    /// As [`ProducerBuilder::buffer_bytes`], for each publisher.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.settings.buffer_bytes = Some(bytes);
        self
    }

    /// As [`ProducerBuilder::compression`].
    pub fn compression(mut self, compression: impl Into<Compression>) -> Self {
        self.settings.compression = Some(compression.into());
        self
    }

    /// As [`ConsumerBuilder::group_protocol`]: classic by default, so that members of every kind can join.
    pub fn group_protocol(mut self, protocol: GroupProtocol) -> Self {
        self.settings.group_protocol = Some(protocol);
        self
    }

    /// As [`ConsumerBuilder::rack`].
    pub fn rack(mut self, rack: impl Into<String>) -> Self {
        self.settings.rack = Some(rack.into());
        self
    }

    /// As [`ConsumerBuilder::session_timeout`].
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.settings.session_timeout = Some(timeout);
        self
    }

    /// As [`ConsumerBuilder::heartbeat_interval`].
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.settings.heartbeat_interval = Some(interval);
        self
    }

    /// As [`ConsumerBuilder::fetch_max_wait`].
    pub fn fetch_max_wait(mut self, wait: Duration) -> Self {
        self.settings.fetch_max_wait = Some(wait);
        self
    }

    /// As [`ConsumerBuilder::fetch_min_bytes`].
    pub fn fetch_min_bytes(mut self, bytes: usize) -> Self {
        self.settings.fetch_min_bytes = Some(bytes);
        self
    }

    /// As [`ConsumerBuilder::fetch_max_bytes`].
    pub fn fetch_max_bytes(mut self, bytes: usize) -> Self {
        self.settings.fetch_max_bytes = Some(bytes);
        self
    }

    /// As [`ConsumerBuilder::fetch_max_partition_bytes`].
    pub fn fetch_max_partition_bytes(mut self, bytes: usize) -> Self {
        self.settings.fetch_max_partition_bytes = Some(bytes);
        self
    }

    /// As [`ConsumerBuilder::fetch_memory_bytes`], for each membership.
    pub fn fetch_memory_bytes(mut self, bytes: usize) -> Self {
        self.settings.fetch_memory_bytes = Some(bytes);
        self
    }

    /// As [`ConsumerBuilder::max_inflated_bytes`].
    pub fn max_inflated_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_inflated_bytes = Some(bytes);
        self
    }

    /// Joins as a member of share groups (KIP-932): each record is [settled by itself](crate::adapter::MembershipHandle::settle_records),
    /// and no position is kept, so that a harbor's consumers, which commit positions, are refused. Where such a group begins is the
    /// group's setting (`share.auto.offset.reset`), whatever a subscription says. Default: consumer groups.
    pub fn share_groups(mut self) -> Self {
        self.settings.share = Some(super::share::join);
        self
    }

    /// The adapter. Nothing is connected to yet.
    ///
    /// # Errors
    /// Naming every option that cannot be used.
    pub fn build(self) -> Result<KafkaAdapter, ConfigError> {
        let mut problems = Problems::default();
        problems.require_within("admin_timeout", self.settings.admin_timeout, TENTH..=HOUR);
        let client = self.client.build().map_err(|error| problems.extend(error)).ok();
        // The options of producers and consumers are checked even if the client's are wrong.
        let checked = client.clone().map_or_else(|| Client::builder([ANY_ADDRESS]).build(), Ok)?;
        self.settings.check(&checked, &mut problems);
        problems.finish()?;
        Ok(KafkaAdapter::over(client.unwrap_or(checked), self.settings))
    }
}

impl KafkaSettings {
    /// A producer whose time is that of so many tries.
    pub(super) fn producer(&self, client: &Client, attempts: u32) -> ProducerBuilder {
        let delivery_timeout = self.delivery_timeout.saturating_mul(attempts).saturating_add(self.linger);
        let mut builder = client
            .producer()
            .linger(self.linger)
            .delivery_timeout(delivery_timeout.min(LONGEST_DELIVERY))
            .max_block(self.delivery_timeout);
        builder = set(builder, self.batch_bytes, ProducerBuilder::batch_bytes);
        let max_request_bytes = self.max_request_bytes.unwrap_or_else(|| {
            HOP_BYTES.min(self.buffer_bytes.unwrap_or(HOP_BYTES)).max(self.batch_bytes.unwrap_or_default())
        });
        builder = builder.max_request_bytes(max_request_bytes);
        builder = set(builder, self.buffer_bytes, ProducerBuilder::buffer_bytes);
        set(builder, self.compression, ProducerBuilder::compression)
    }

    /// A consumer for this membership.
    pub(super) fn consumer(&self, client: &Client, options: &JoinOptions) -> ConsumerBuilder {
        let mut builder = client
            .consumer(&options.group)
            .revocation_timeout(options.revocation_timeout)
            .interop_node(options.interop_node);
        for subscription in &options.topics {
            let reset = match subscription.start {
                Start::Earliest => OffsetReset::Earliest,
                Start::Latest => OffsetReset::Latest,
            };
            builder = builder.topic(&subscription.topic, reset);
        }
        builder = set(builder, options.instance_id.clone(), ConsumerBuilder::instance_id);
        builder = set(builder, self.group_protocol, ConsumerBuilder::group_protocol);
        builder = set(builder, self.rack.clone(), ConsumerBuilder::rack);
        builder = set(builder, self.session_timeout, ConsumerBuilder::session_timeout);
        builder = set(builder, self.heartbeat_interval, ConsumerBuilder::heartbeat_interval);
        builder = set(builder, self.fetch_max_wait, ConsumerBuilder::fetch_max_wait);
        builder = set(builder, self.fetch_min_bytes, ConsumerBuilder::fetch_min_bytes);
        builder = set(builder, self.fetch_max_bytes, ConsumerBuilder::fetch_max_bytes);
        builder = set(builder, self.fetch_max_partition_bytes, ConsumerBuilder::fetch_max_partition_bytes);
        builder = set(builder, self.fetch_memory_bytes, ConsumerBuilder::fetch_memory_bytes);
        set(builder, self.max_inflated_bytes, ConsumerBuilder::max_inflated_bytes)
    }

    /// A share consumer for this membership.
    pub(super) fn share_consumer(&self, client: &Client, options: &JoinOptions) -> ShareConsumerBuilder {
        let mut builder = client.share_consumer(&options.group);
        for subscription in &options.topics {
            builder = builder.topic(&subscription.topic);
        }
        builder = set(builder, self.session_timeout, ShareConsumerBuilder::session_timeout);
        builder = set(builder, self.fetch_max_wait, ShareConsumerBuilder::fetch_max_wait);
        builder = set(builder, self.fetch_min_bytes, ShareConsumerBuilder::fetch_min_bytes);
        builder = set(builder, self.fetch_max_bytes, ShareConsumerBuilder::fetch_max_bytes);
        builder = set(builder, self.fetch_memory_bytes, ShareConsumerBuilder::fetch_memory_bytes);
        set(builder, self.max_inflated_bytes, ShareConsumerBuilder::max_inflated_bytes)
    }

    fn check(&self, client: &Client, problems: &mut Problems) {
        problems.require(self.delivery_timeout <= HOUR, "delivery_timeout", "it is over an hour");
        if let Err(error) = self.producer(client, 1).build() {
            problems.extend(error);
        }
        let options = JoinOptions::new("any", vec![any_topic()]);
        if let Err(error) = self.consumer(client, &options).check() {
            problems.extend(error);
        }
    }
}

fn set<B, T>(builder: B, value: Option<T>, setter: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => setter(builder, value),
        None => builder,
    }
}

fn any_topic() -> crate::adapter::TopicSubscription {
    crate::adapter::TopicSubscription { topic: "any".into(), start: Start::default() }
}

/// What brokers take by default, and the headers of a hop.
const HOP_BYTES: usize = (1 << 20) + (64 << 10);
const TENTH: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3600);

/// The longest that a producer takes, whatever the number of attempts.
const LONGEST_DELIVERY: Duration = Duration::from_secs(24 * 3600);

/// Stands in for addresses that are wrong, so that the other options are checked too. Nothing connects to it.
const ANY_ADDRESS: &str = "localhost:9092";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_of_all_kinds_are_reported_together_by_name() {
        let error = KafkaAdapter::builder(["nowhere"])
            .admin_timeout(Duration::ZERO)
            .linger(Duration::from_secs(61))
            .delivery_timeout(Duration::from_secs(1))
            .heartbeat_interval(Duration::from_secs(600))
            .fetch_memory_bytes(1)
            .build()
            .unwrap_err();
        let options: Vec<_> = error.problems.iter().map(|problem| problem.option).collect();
        let expected =
            ["admin_timeout", "bootstrap", "linger", "delivery_timeout", "heartbeat_interval", "fetch_memory_bytes"];
        assert_eq!(options, expected);
    }

    #[test]
    fn small_buffers_and_large_batches_go_with_the_default_size_of_a_request() {
        for bytes in [1 << 20, 8 << 20] {
            let adapter = KafkaAdapter::builder(["localhost:9092"]).buffer_bytes(bytes).build().unwrap();
            adapter.settings.producer(&adapter.client, 1).build().unwrap();
        }
        KafkaAdapter::builder(["localhost:9092"]).batch_bytes(8 << 20).build().unwrap();
    }

    #[test]
    fn the_defaults_can_be_used_for_one_try_and_for_many() {
        let adapter = KafkaAdapter::builder(["localhost:9092"]).build().unwrap();
        for attempts in [1, 5, u32::MAX] {
            adapter.settings.producer(&adapter.client, attempts).build().unwrap();
        }
    }
}
