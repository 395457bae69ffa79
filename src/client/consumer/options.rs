//! Options of a consumer.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::protocol::StrBytes;

use super::pattern::Patterns;
use super::{Consumer, Settings};
use crate::client::{Cluster, ConfigError, Problems};
use crate::machine::assignor::{Assignor, RoundRobin};
use crate::machine::fetch::{FetchConfig, IsolationLevel, OffsetReset};
use crate::machine::group::GroupConfig;
use crate::record::Topic;

/// How a group shares its partitions out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum GroupProtocol {
    /// The members do, by their assignors. Every broker has it, and every client can join.
    #[default]
    Classic,
    /// The coordinator does, without stopping anybody for it (KIP-848; Kafka 4.0). A group of classic members that can is
    /// converted as soon as this member joins; brokers can forbid it (`group.consumer.migration.policy`), and then the
    /// membership ends with [`GROUP_ID_NOT_FOUND`](crate::protocol::error_code::ErrorCode::GROUP_ID_NOT_FOUND).
    Consumer,
    /// [`Consumer`](Self::Consumer), unless the broker does not have it, or the group has classic members and nobody has
    /// converted it yet. Decided when the membership begins. Needs the right to describe the group, which reading includes.
    Auto,
}

/// Options of a [`Consumer`].
///
/// Every option has a default that is meant to be kept. Mistakes are reported together by [`build`](Self::build).
#[derive(Debug, Clone)]
#[must_use]
pub struct ConsumerBuilder {
    cluster: Cluster,
    topics: Vec<(Topic, OffsetReset)>,
    patterns: Patterns,
    assignors: Option<Vec<Arc<dyn Assignor>>>,
    protocol: GroupProtocol,
    group: GroupConfig,
    fetch: FetchConfig,
    commit_timeout: Duration,
    interop_node: bool,
}

impl ConsumerBuilder {
    pub(crate) fn new(cluster: Cluster, group: impl Into<String>) -> Self {
        Self {
            group: GroupConfig { request_timeout: cluster.config().request_timeout, ..GroupConfig::new(group) },
            cluster,
            topics: Vec::new(),
            patterns: Patterns::default(),
            assignors: None,
            protocol: GroupProtocol::default(),
            fetch: FetchConfig::default(),
            commit_timeout: Duration::from_secs(60),
            interop_node: false,
        }
    }

    /// A topic to read, and where to begin on a partition that the group has no position on, or whose position is out of
    /// range. At least one is needed. Java: `auto.offset.reset`, there for all topics at once. Partitions that are added later
    /// begin at their oldest record in either case; see [`OffsetReset::Latest`].
    pub fn topic(mut self, topic: impl Into<Topic>, reset: OffsetReset) -> Self {
        self.topics.push((topic.into(), reset));
        self
    }

    /// Reads every topic whose whole name matches this regular expression, those that come later too, and begins there as with
    /// [`topic`](Self::topic); of several patterns the first that matches says where. The syntax is that of the crate `regex-lite`:
    /// no look-around, no Unicode classes. Topics that Kafka uses for itself are left out; they can be named. Default none.
    /// Java: `subscribe(Pattern)`.
    ///
    /// The topics are listed before the group is joined and again when metadata is old
    /// ([`metadata_max_age`](crate::client::ClientBuilder::metadata_max_age)). A topic that came since is joined for and begins
    /// at its oldest record in any case; one that went, by two listings, is left. No topic at all is no error. With the
    /// coordinator's protocol it is this member that resolves the pattern, not the coordinator, whose syntax is another.
    #[cfg(feature = "regex")]
    pub fn topic_pattern(mut self, pattern: impl Into<String>, reset: OffsetReset) -> Self {
        self.patterns.want(pattern.into(), reset);
        self
    }

    /// Leaves out topics whose whole name matches this regular expression, of those that a
    /// [`topic_pattern`](Self::topic_pattern) finds. Default none.
    #[cfg(feature = "regex")]
    pub fn exclude_pattern(mut self, pattern: impl Into<String>) -> Self {
        self.patterns.exclude(pattern.into());
        self
    }

    /// Who shares the partitions out. Default [`GroupProtocol::Classic`]. Java: `group.protocol`, which knows no `auto`.
    ///
    /// With the coordinator's protocol it is the coordinator that says how often to send a heartbeat and when a member is dead
    /// (`group.consumer.heartbeat.interval.ms`, `group.consumer.session.timeout.ms`);
    /// [`session_timeout`](Self::session_timeout) is then after how long without an answer this member itself takes its
    /// partitions for lost, and the assignors are not used.
    pub fn group_protocol(mut self, protocol: GroupProtocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// The coordinator's assignor to ask for, `uniform` or `range` unless it has more. Default: its first. Needs another
    /// [`group_protocol`](Self::group_protocol) than the classic one. Java: `group.remote.assignor`.
    pub fn server_assignor(mut self, name: impl Into<String>) -> Self {
        self.group.server_assignor = Some(StrBytes::from_string(name.into()));
        self
    }

    /// A name of this member that outlives its process, among those of the group (static membership, KIP-345): while it restarts
    /// within the session timeout its partitions wait for it, and nobody else is disturbed. Leaving does not give them
    /// away either. 1 to 249 letters, digits, `.`, `_` and `-`. Default none. Java: `group.instance.id`.
    ///
    /// Of two members with one name only one can be; the other ends with [`ConsumerError::Fenced`](super::ConsumerError::Fenced):
    /// the older one at once in a classic group, the newer one after two session timeouts in one of the coordinator's protocol,
    /// where it could be waiting for one that died. So a consumer that is replaced within a process is to be closed before.
    pub fn instance_id(mut self, name: impl Into<String>) -> Self {
        self.group.instance_id = Some(StrBytes::from_string(name.into()));
        self
    }

    /// After how long without a heartbeat the group takes this member for dead. Default 45 s, from 1 s to 30 min; brokers
    /// have bounds of their own, by default 6 s to 30 min. Java: `session.timeout.ms`.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.group.session_timeout = timeout;
        self
    }

    /// Between two heartbeats. Default 3 s, at most a third of the session timeout. Java: `heartbeat.interval.ms`.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.group.heartbeat_interval = interval;
        self
    }

    /// The longest that a revocation waits for its [`Release`](super::Release), and the group for this member in a rebalance.
    /// Default 5 min, from 1 s to a day. Java: `max.poll.interval.ms`, which also bounds the handling of records; here
    /// heartbeats do not depend on it.
    pub fn revocation_timeout(mut self, timeout: Duration) -> Self {
        self.group.revocation_timeout = timeout;
        self
    }

    /// The assignors to offer, the preferred one first; all cooperative or all eager. Default: `cooperative-sticky`, and to a
    /// group that refuses it `range`, `roundrobin` and `sticky`. Those of the caller's own are [`Assignor`]s too. Java: `partition.assignment.strategy`.
    pub fn assignors(mut self, assignors: Vec<Arc<dyn Assignor>>) -> Self {
        self.assignors = Some(assignors);
        self
    }

    /// Offers `roundrobin` alone, in the form that members on Node (`kafka-harbor` over `@platformatic/kafka` or Confluent's
    /// client) read, so that they can join later. Default false. Excludes [`assignors`](Self::assignors).
    pub fn interop_node(mut self, interop: bool) -> Self {
        self.interop_node = interop;
        self
    }

    /// How long a position is tried to be committed. Default 60 s, from 100 ms to an hour. Java: `default.api.timeout.ms`.
    pub fn commit_timeout(mut self, timeout: Duration) -> Self {
        self.commit_timeout = timeout;
        self
    }

    /// What is read of transactions. Default [`IsolationLevel::ReadCommitted`]: a record of an aborted transaction is one
    /// that its producer took back. Java: `isolation.level`, there `read_uncommitted` by default.
    pub fn isolation_level(mut self, isolation: IsolationLevel) -> Self {
        self.fetch.isolation = isolation;
        self
    }

    /// How long a broker may wait for [`fetch_min_bytes`](Self::fetch_min_bytes). Default 500 ms, from 1 ms to a minute. Java:
    /// `fetch.max.wait.ms`.
    pub fn fetch_max_wait(mut self, wait: Duration) -> Self {
        self.fetch.max_wait = wait;
        self
    }

    /// How many bytes are worth an answer. Default 1, from 1 to 100 MiB. Java: `fetch.min.bytes`.
    pub fn fetch_min_bytes(mut self, bytes: usize) -> Self {
        self.fetch.min_bytes = i32::try_from(bytes).unwrap_or(0);
        self
    }

    /// The most that one answer of a broker holds, unless its first batch alone is larger. Default 50 MiB, from 1 KiB to 1 GiB.
    /// Java: `fetch.max.bytes`.
    pub fn fetch_max_bytes(mut self, bytes: usize) -> Self {
        self.fetch.max_bytes = bytes;
        self
    }

    /// The most that one answer holds of a partition, unless its first batch alone is larger. Default 1 MiB, from 1 KiB to
    /// 1 GiB. Java: `max.partition.fetch.bytes`.
    pub fn fetch_max_partition_bytes(mut self, bytes: usize) -> Self {
        self.fetch.max_partition_bytes = bytes;
        self
    }

    /// The most that fetched records may take in memory, from the fetch until the batch is dropped. Default 64 MiB, from
    /// 1 MiB to 64 GiB. Passed only by single batches that are larger than what was asked for, or inflate to more. Beside it each
    /// connection keeps two buffers of answers that were read, for 5 s, to read the next ones into.
    pub fn fetch_memory_bytes(mut self, bytes: usize) -> Self {
        self.fetch.budget_bytes = bytes;
        self
    }

    /// The most that one batch may inflate to; one that is larger is not read. Default 100 MiB, from 1 KiB to 2 GiB.
    pub fn max_inflated_bytes(mut self, bytes: usize) -> Self {
        self.fetch.read.max_inflated_bytes = bytes;
        self
    }

    /// Whether to check each batch's CRC-32C. Default true. Java: `check.crcs`.
    pub fn check_crc(mut self, check: bool) -> Self {
        self.fetch.read.check_crc = check;
        self
    }

    /// Where this consumer runs. Brokers that are set so (`replica.selector.class`) then have it read from a replica in that rack
    /// where there is one, instead of from the leader (KIP-392). For each partition that is asked of the leader anew when the
    /// client's metadata is old ([`metadata_max_age`](crate::client::ClientBuilder::metadata_max_age)), and the leader itself is
    /// read for half a minute after the other replica failed or refused. What a position is worth is for the leader alone to say.
    /// Assignors hear of the rack too (KIP-881). 1 to 249 bytes. Default none. Java: `client.rack`.
    pub fn rack(mut self, rack: impl Into<String>) -> Self {
        self.group.rack = Some(StrBytes::from_string(rack.into()));
        self
    }

    /// The consumer, which joins at once, in the background.
    ///
    /// # Errors
    /// Naming every option that cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn build(mut self) -> Result<Consumer, ConfigError> {
        self.check()?;
        if self.interop_node {
            self.group.plain_subscription = true;
            self.group.offers = vec![vec![Arc::new(RoundRobin)]];
        } else if let Some(assignors) = self.assignors {
            self.group.offers = vec![assignors];
        }
        self.fetch.rack = self.group.rack.clone();
        self.fetch.replica_max_age = self.cluster.config().metadata.max_age;
        let settings = Settings {
            topics: self.topics,
            patterns: self.patterns,
            group: self.group,
            protocol: self.protocol,
            fetch: self.fetch,
            commit_timeout: self.commit_timeout,
        };
        Ok(Consumer::start(self.cluster, settings))
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let mut problems = Problems::default();
        let group = &self.group;
        problems.require(!group.group.is_empty(), "group", "it is empty");
        problems.require(group.group.len() <= 32_767, "group", "it is longer than 32,767 bytes");
        let mistakes: Vec<_> = self.patterns.mistakes().collect();
        let any = !self.topics.is_empty() || !self.patterns.is_empty() || !mistakes.is_empty();
        problems.require(any, "topic", "none is given");
        for (option, why) in mistakes {
            problems.require(false, option, why);
        }
        for (at, (topic, reset)) in self.topics.iter().enumerate() {
            problems.require(
                !topic.is_empty() && topic.len() <= 249,
                "topic",
                format_args!("{topic:?} is no topic name"),
            );
            let contradicts =
                self.topics[..at].iter().any(|(other, other_reset)| other == topic && other_reset != reset);
            problems.require(!contradicts, "topic", format_args!("{topic} is given two reset policies"));
        }
        problems.require_within("session_timeout", group.session_timeout, SECOND..=30 * MINUTE);
        let longest = (group.session_timeout / 3).max(TENTH);
        problems.require_within("heartbeat_interval", group.heartbeat_interval, TENTH..=longest);
        problems.require_within("revocation_timeout", group.revocation_timeout, SECOND..=24 * 60 * MINUTE);
        problems.require_within("commit_timeout", self.commit_timeout, TENTH..=60 * MINUTE);
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name = group.instance_id.as_deref().unwrap_or("unset");
        let is_name = (1..=249).contains(&name.len()) && name.chars().all(legal) && !matches!(name, "." | "..");
        problems.require(is_name, "instance_id", "it is no name of 1 to 249 letters, digits, '.', '_' and '-'");
        let rack = group.rack.as_deref().unwrap_or("unset");
        problems.require((1..=249).contains(&rack.len()), "rack", "it is not of 1 to 249 bytes");
        let classic = self.protocol == GroupProtocol::Classic;
        let consumer = self.protocol == GroupProtocol::Consumer;
        problems.require(
            !classic || group.server_assignor.is_none(),
            "server_assignor",
            "the group protocol is classic",
        );
        problems.require(!consumer || !self.interop_node, "interop_node", "it needs the classic group protocol");
        if let Some(assignors) = &self.assignors {
            problems.require(!assignors.is_empty(), "assignors", "none is given");
            problems.require(!self.interop_node, "assignors", "interop_node chooses the assignor");
            let mixed = assignors.windows(2).any(|pair| pair[0].rebalance() != pair[1].rebalance());
            problems.require(!mixed, "assignors", "cooperative and eager ones are mixed");
        }
        let fetch = &self.fetch;
        problems.require_within("fetch_max_wait", fetch.max_wait, Duration::from_millis(1)..=MINUTE);
        problems.require_within("fetch_min_bytes", fetch.min_bytes, 1..=100 << 20);
        problems.require_within("fetch_max_bytes", fetch.max_bytes, KIB..=1 << 30);
        problems.require_within("fetch_max_partition_bytes", fetch.max_partition_bytes, KIB..=1 << 30);
        problems.require_within("fetch_memory_bytes", fetch.budget_bytes, 1 << 20..=64 << 30);
        problems.require_within("max_inflated_bytes", fetch.read.max_inflated_bytes, KIB..=2 << 30);
        problems.finish()
    }
}

const TENTH: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const KIB: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::machine::assignor::CooperativeSticky;

    #[test]
    fn mistakes_are_reported_all_together_by_name() {
        let client = Client::builder(["localhost:9092"]).build().unwrap();
        let error = client
            .consumer("")
            .topic("orders", OffsetReset::Earliest)
            .topic("orders", OffsetReset::Latest)
            .session_timeout(Duration::from_secs(6))
            .heartbeat_interval(Duration::from_secs(3))
            .assignors(vec![Arc::new(CooperativeSticky), Arc::new(RoundRobin)])
            .interop_node(true)
            .instance_id("a b")
            .rack("")
            .server_assignor("uniform")
            .fetch_min_bytes(usize::MAX)
            .fetch_memory_bytes(0)
            .build()
            .unwrap_err();
        let options: Vec<_> = error.problems.iter().map(|problem| problem.option).collect();
        let expected = [
            "group",
            "topic",
            "heartbeat_interval",
            "instance_id",
            "rack",
            "server_assignor",
            "assignors",
            "assignors",
            "fetch_min_bytes",
            "fetch_memory_bytes",
        ];
        assert_eq!(options, expected);
    }
}
