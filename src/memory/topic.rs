//! A topic: its settings and its partitions' logs.

use std::collections::BTreeMap;

use crate::memory::log::PartitionLog;
use crate::protocol::error_code::ErrorCode;

/// One topic.
#[derive(Debug)]
pub(super) struct TopicState {
    pub(super) config: TopicConfig,
    pub(super) partitions: Vec<PartitionLog>,
    /// Told apart from a topic of the same name that was deleted.
    pub(super) id: u128,
}

impl TopicState {
    pub(super) fn partition(&self, partition: i32) -> Result<&PartitionLog, ErrorCode> {
        let index = usize::try_from(partition).map_err(|_| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        self.partitions.get(index).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    }

    pub(super) fn partition_mut(&mut self, partition: i32) -> Result<(&mut PartitionLog, &TopicConfig), ErrorCode> {
        let index = usize::try_from(partition).map_err(|_| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let log = self.partitions.get_mut(index).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        Ok((log, &self.config))
    }

    pub(super) fn partition_count(&self) -> i32 {
        // Partitions are made from an i32.
        self.partitions.len() as i32
    }
}

/// A topic's settings, those that this broker acts on read out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    /// `retention.ms`: records older than this go; -1 keeps them. This broker's default, not Kafka's.
    pub retention_ms: i64,
    /// `retention.bytes`, of one partition; -1 for no limit.
    pub retention_bytes: i64,
    /// `max.message.bytes`: the largest batch, as it is written.
    pub max_message_bytes: i32,
    /// `message.timestamp.type`: whether records get the broker's time.
    pub log_append_time: bool,
    /// `message.timestamp.after.max.ms`: how far ahead of the broker's clock a record's time may be.
    pub timestamp_after_max_ms: i64,
    /// `message.timestamp.before.max.ms`: how far behind the broker's clock a record's time may be.
    pub timestamp_before_max_ms: i64,
    /// `cleanup.policy` holds `compact`: records need a key. The cleaner itself never runs.
    pub compacted: bool,
    /// `cleanup.policy` holds `delete`: retention applies.
    pub deleted: bool,
    /// All settings as they were given.
    pub given: BTreeMap<String, String>,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            retention_ms: -1,
            retention_bytes: -1,
            // One record batch of 1 MiB and its header (`LogConfig.DEFAULT_MAX_MESSAGE_BYTES`).
            max_message_bytes: 1_048_588,
            log_append_time: false,
            // `LogConfig.DEFAULT_MESSAGE_TIMESTAMP_AFTER_MAX_MS` (KIP-1030).
            timestamp_after_max_ms: 3_600_000,
            timestamp_before_max_ms: i64::MAX,
            compacted: false,
            deleted: true,
            given: BTreeMap::new(),
        }
    }
}

impl TopicConfig {
    /// Settings by Kafka's names.
    ///
    /// # Errors
    /// `INVALID_CONFIG` for a name that Kafka does not have, or a value that it would refuse.
    pub fn from_settings(settings: BTreeMap<String, String>) -> Result<Self, ErrorCode> {
        let mut config = Self::default();
        for (name, value) in &settings {
            match name.as_str() {
                "retention.ms" => config.retention_ms = at_least(value, -1)?,
                "retention.bytes" => config.retention_bytes = at_least(value, -1)?,
                "max.message.bytes" => {
                    config.max_message_bytes =
                        i32::try_from(at_least(value, 0)?).map_err(|_| ErrorCode::INVALID_CONFIG)?;
                }
                "message.timestamp.type" => {
                    config.log_append_time = match value.as_str() {
                        "CreateTime" => false,
                        "LogAppendTime" => true,
                        _ => return Err(ErrorCode::INVALID_CONFIG),
                    };
                }
                "message.timestamp.after.max.ms" => config.timestamp_after_max_ms = at_least(value, 0)?,
                "message.timestamp.before.max.ms" => config.timestamp_before_max_ms = at_least(value, 0)?,
                "cleanup.policy" => (config.compacted, config.deleted) = cleanup_policy(value)?,
                other if KEPT_ONLY.contains(&other) => {}
                _ => return Err(ErrorCode::INVALID_CONFIG),
            }
        }
        config.given = settings;
        Ok(config)
    }

    /// The settings in force, by Kafka's names: those acted on, and whatever else was given.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let policy = match (self.compacted, self.deleted) {
            (true, true) => "compact,delete",
            (true, false) => "compact",
            (false, _) => "delete",
        };
        let time = if self.log_append_time { "LogAppendTime" } else { "CreateTime" };
        let mut settings = BTreeMap::from([
            ("retention.ms".to_owned(), self.retention_ms.to_string()),
            ("retention.bytes".to_owned(), self.retention_bytes.to_string()),
            ("max.message.bytes".to_owned(), self.max_message_bytes.to_string()),
            ("message.timestamp.type".to_owned(), time.to_owned()),
            ("message.timestamp.after.max.ms".to_owned(), self.timestamp_after_max_ms.to_string()),
            ("message.timestamp.before.max.ms".to_owned(), self.timestamp_before_max_ms.to_string()),
            ("cleanup.policy".to_owned(), policy.to_owned()),
        ]);
        for (name, value) in &self.given {
            settings.entry(name.clone()).or_insert_with(|| value.clone());
        }
        settings
    }
}

/// Whether Kafka accepts this as a topic's name (`org.apache.kafka.common.internals.Topic.validate`).
pub(crate) fn is_valid_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= 249 && name != "." && name != ".." && name.chars().all(legal)
}

fn at_least(value: &str, least: i64) -> Result<i64, ErrorCode> {
    value.trim().parse().ok().filter(|number| *number >= least).ok_or(ErrorCode::INVALID_CONFIG)
}

fn cleanup_policy(value: &str) -> Result<(bool, bool), ErrorCode> {
    let (mut compacted, mut deleted) = (false, false);
    for policy in value.split(',') {
        match policy.trim() {
            "compact" => compacted = true,
            "delete" => deleted = true,
            _ => return Err(ErrorCode::INVALID_CONFIG),
        }
    }
    Ok((compacted, deleted))
}

/// Kafka's other topic settings: accepted and shown, without effect here.
const KEPT_ONLY: &[&str] = &[
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, value: &str) -> Result<TopicConfig, ErrorCode> {
        TopicConfig::from_settings(BTreeMap::from([(name.to_owned(), value.to_owned())]))
    }

    #[test]
    fn settings_come_back_as_they_were_given() {
        let given = [
            ("retention.ms", "60000"),
            ("retention.bytes", "5000"),
            ("max.message.bytes", "2000000"),
            ("message.timestamp.type", "LogAppendTime"),
            ("cleanup.policy", "compact"),
            ("segment.ms", "1000"),
        ];
        for (name, value) in given {
            assert_eq!(config(name, value).expect("valid").settings()[name], value);
        }
        assert_eq!(
            config("cleanup.policy", "delete, compact").expect("valid").settings()["cleanup.policy"],
            "compact,delete"
        );
    }

    #[test]
    fn what_kafka_refuses_is_refused() {
        let bad = [
            ("retention.ms", "-2"),
            ("retention.ms", "a week"),
            ("max.message.bytes", "-1"),
            ("max.message.bytes", "3000000000"),
            ("message.timestamp.type", "createtime"),
            ("cleanup.policy", "keep"),
            ("retention", "1"),
        ];
        for (name, value) in bad {
            assert_eq!(config(name, value), Err(ErrorCode::INVALID_CONFIG), "{name}={value}");
        }
        for name in ["", ".", "..", "a b", "a/b", "caf\u{e9}", &"x".repeat(250)] {
            assert!(!is_valid_name(name), "{name:?}");
        }
        assert!(is_valid_name("orders.retry_1-x"));
    }
}
