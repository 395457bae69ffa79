//! Options of a share consumer.

use std::time::Duration;

use super::{Settings, ShareConsumer};
use crate::client::{Cluster, ConfigError, Problems};
use crate::machine::share::{AcquireMode, MemberConfig, SessionConfig};
use crate::record::Topic;

/// Options of a [`ShareConsumer`].
///
/// Where a group begins, how long its locks hold and how often it delivers a record are the group's settings, at the broker
/// (`share.auto.offset.reset`, `share.record.lock.duration.ms`, `share.delivery.count.limit`, `share.isolation.level`).
/// Mistakes are reported together by [`build`](Self::build).
#[derive(Debug, Clone)]
#[must_use]
pub struct ShareConsumerBuilder {
    cluster: Cluster,
    topics: Vec<Topic>,
    member: MemberConfig,
    sessions: SessionConfig,
}

impl ShareConsumerBuilder {
    pub(crate) fn new(cluster: Cluster, group: impl Into<String>) -> Self {
        let member = MemberConfig { request_timeout: cluster.config().request_timeout, ..MemberConfig::new(group) };
        Self { cluster, topics: Vec::new(), member, sessions: SessionConfig::default() }
    }

    /// A topic to read. At least one is needed.
    pub fn topic(mut self, topic: impl Into<Topic>) -> Self {
        self.topics.push(topic.into());
        self
    }

    /// Where this member runs, for the group's assignor. Default none. Java: `client.rack`.
    pub fn rack(mut self, rack: impl Into<String>) -> Self {
        self.member.rack = Some(rack.into());
        self
    }

    /// After how long without an answer of the coordinator this member reads nothing any more. Default 45 s, from 1 s to 30 min.
    /// When the coordinator takes it for dead is the broker's setting (`group.share.session.timeout.ms`).
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.member.session_timeout = timeout;
        self
    }

    /// The most records that one answer of a broker brings, to be locked at once. Default 500, from 1 to 1,000,000. Unless
    /// [`acquire_mode`](Self::acquire_mode) is strict, the last batch may pass it. Java: `max.poll.records`.
    pub fn max_records(mut self, records: usize) -> Self {
        self.sessions.max_records = i32::try_from(records).unwrap_or(i32::MAX);
        self
    }

    /// How that limit counts. Default [`AcquireMode::Batches`]. Java: `share.acquire.mode`.
    pub fn acquire_mode(mut self, mode: AcquireMode) -> Self {
        self.sessions.mode = mode;
        self
    }

    /// How long a broker may wait for records; while some of it are being handled, at most 100 ms, because what is acknowledged
    /// waits behind it. Default 500 ms, from 1 ms to a minute. Java: `fetch.max.wait.ms`.
    pub fn fetch_max_wait(mut self, wait: Duration) -> Self {
        self.sessions.max_wait = wait;
        self
    }

    /// How many bytes are worth an answer. Default 1, from 1 to 100 MiB. Java: `fetch.min.bytes`.
    pub fn fetch_min_bytes(mut self, bytes: usize) -> Self {
        self.sessions.min_bytes = i32::try_from(bytes).unwrap_or(0);
        self
    }

    /// The most that one answer of a broker holds, unless its first batch alone is larger. Default 50 MiB, from 1 KiB to 1 GiB.
    /// Java: `fetch.max.bytes`.
    pub fn fetch_max_bytes(mut self, bytes: usize) -> Self {
        self.sessions.max_bytes = bytes;
        self
    }

    /// The most that fetched records may take in memory, from the fetch until the batch is dropped. Default 64 MiB, from
    /// 1 MiB to 64 GiB. Passed only by answers to requests that were under way, and by what inflates to more.
    pub fn fetch_memory_bytes(mut self, bytes: usize) -> Self {
        self.sessions.budget_bytes = bytes;
        self
    }

    /// The most that one batch may inflate to; one that is larger is not read. Default 100 MiB, from 1 KiB to 2 GiB.
    pub fn max_inflated_bytes(mut self, bytes: usize) -> Self {
        self.sessions.read.max_inflated_bytes = bytes;
        self
    }

    /// Whether to check each batch's CRC-32C. Default true. Java: `check.crcs`.
    pub fn check_crc(mut self, check: bool) -> Self {
        self.sessions.read.check_crc = check;
        self
    }

    /// The consumer, which joins at once, in the background.
    ///
    /// # Errors
    /// Naming every option that cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn build(mut self) -> Result<ShareConsumer, ConfigError> {
        self.check()?;
        self.member.topics = self.topics.into_iter().collect();
        Ok(ShareConsumer::start(self.cluster, Settings { member: self.member, sessions: self.sessions }))
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let mut problems = Problems::default();
        let group = &self.member.group;
        problems.require(!group.is_empty(), "group", "it is empty");
        problems.require(group.len() <= 32_767, "group", "it is longer than 32,767 bytes");
        problems.require(!self.topics.is_empty(), "topic", "none is given");
        for topic in &self.topics {
            let is_name = !topic.is_empty() && topic.len() <= 249;
            problems.require(is_name, "topic", format_args!("{topic:?} is no topic name"));
        }
        let rack = self.member.rack.as_deref().unwrap_or("unset");
        problems.require((1..=32_767).contains(&rack.len()), "rack", "it is empty or longer than 32,767 bytes");
        problems.require_within("session_timeout", self.member.session_timeout, SECOND..=1_800 * SECOND);
        let sessions = &self.sessions;
        problems.require_within("max_records", sessions.max_records, 1..=1_000_000);
        problems.require_within("fetch_max_wait", sessions.max_wait, Duration::from_millis(1)..=60 * SECOND);
        problems.require_within("fetch_min_bytes", sessions.min_bytes, 1..=100 << 20);
        problems.require_within("fetch_max_bytes", sessions.max_bytes, KIB..=1 << 30);
        problems.require_within("fetch_memory_bytes", sessions.budget_bytes, 1 << 20..=64 << 30);
        problems.require_within("max_inflated_bytes", sessions.read.max_inflated_bytes, KIB..=2 << 30);
        problems.finish()
    }
}

const SECOND: Duration = Duration::from_secs(1);
const KIB: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use crate::client::Client;

    #[test]
    fn mistakes_are_reported_all_together_by_name() {
        let client = Client::builder(["localhost:9092"]).build().unwrap();
        let error = client.share_consumer("").rack("").max_records(0).fetch_memory_bytes(0).build().unwrap_err();
        let options: Vec<_> = error.problems.iter().map(|problem| problem.option).collect();
        assert_eq!(options, ["group", "topic", "rack", "max_records", "fetch_memory_bytes"]);
    }
}
