//! What must be true of retry and dead-letter topics before a consumer reads: they exist, and keep what waits.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::adapter::{Adapter, TopicDescription};
use crate::harbor::error::{ConfigError, HarborError, Problems};
use crate::harbor::topology::{Derived, Topology};
use crate::record::{NewTopic, Topic};

/// How topics that are missing are created.
///
/// What is not set here comes of the source: retry and dead-letter topics get its partition count and a record limit
/// a little above its own, so that whatever it took fits with the headers that a hop adds. Retry topics keep a record
/// for a week beyond its delay, dead letters for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TopicDefaults {
    /// Partitions. Default: the source's.
    pub partitions: Option<i32>,
    /// Replicas. Default: the broker's.
    pub replication_factor: Option<i16>,
}

impl TopicDefaults {
    /// Nothing set.
    pub const fn new() -> Self {
        Self { partitions: None, replication_factor: None }
    }

    /// The same with this many partitions, at least 1.
    #[must_use]
    pub const fn with_partitions(mut self, partitions: i32) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// The same with this many replicas, at least 1.
    #[must_use]
    pub const fn with_replication_factor(mut self, replicas: i16) -> Self {
        self.replication_factor = Some(replicas);
        self
    }

    /// Notes numbers that make no topic.
    pub(crate) fn check(&self, problems: &mut Problems) {
        if self.partitions.is_some_and(|partitions| partitions < 1) {
            problems.add("topic_defaults.partitions", "must be at least 1");
        }
        if self.replication_factor.is_some_and(|replicas| replicas < 1) {
            problems.add("topic_defaults.replication_factor", "must be at least 1");
        }
    }
}

/// What is done about an existing retry or dead-letter topic that can lose records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TopicChecks {
    /// The consumer does not start. What may be meant that way is warned of.
    #[default]
    Refuse,
    /// The consumer starts with a warning.
    Warn,
}

/// How topics are prepared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Preparation {
    /// Whether those that are missing are created.
    pub(crate) create: bool,
    /// How.
    pub(crate) defaults: TopicDefaults,
    /// What is done about those that can lose records.
    pub(crate) checks: TopicChecks,
}

/// Something about a topic that its owner should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) topic: Topic,
    pub(crate) what: String,
}

impl Preparation {
    /// Makes sure of every derived topic. Originals are neither created nor required. Nothing derived, nothing asked.
    ///
    /// # Errors
    /// [`HarborError::TopicMissing`] with the first that is missing and may not be created; [`HarborError::Config`] with
    /// every one that can lose records; otherwise what the broker said.
    pub(crate) async fn run(&self, adapter: &dyn Adapter, topology: &Topology) -> Result<Vec<Warning>, HarborError> {
        let derived = topology.derived();
        if derived.is_empty() {
            return Ok(Vec::new());
        }
        if !adapter.capabilities().topic_creation {
            return self.without_admin(adapter);
        }
        let known = describe(adapter, topology, &derived).await?;
        let missing: Vec<_> = derived.iter().filter(|derived| !known.contains_key(derived.topic)).collect();
        if let Some(first) = missing.first().filter(|_| !self.create) {
            return Err(HarborError::TopicMissing { topic: first.topic.clone() });
        }
        let mut findings = Findings::default();
        for derived in &derived {
            if let Some(description) = known.get(derived.topic) {
                let delay = derived.level.map(|level| topology.delay(level));
                findings.look_at(derived, delay, description, &known);
            }
        }
        let warnings = findings.judged(self.checks)?;
        if !missing.is_empty() {
            let new: Vec<_> = missing.into_iter().map(|derived| self.new_topic(derived, topology, &known)).collect();
            adapter.create_topics(&new).await?;
        }
        Ok(warnings)
    }

    /// A broker that cannot be asked for topics makes them as they are used; then there is nothing to prepare.
    fn without_admin(&self, adapter: &dyn Adapter) -> Result<Vec<Warning>, HarborError> {
        if self.create {
            let why = format_args!("the {} adapter cannot create topics", adapter.name());
            return Err(ConfigError::one("auto_create_topics", why).into());
        }
        Ok(Vec::new())
    }

    fn new_topic(&self, derived: &Derived<'_>, topology: &Topology, known: &Known) -> NewTopic {
        let sources = || derived.sources.iter().filter_map(|source| known.get(*source));
        let mut topic = NewTopic::new(derived.topic);
        topic.partitions = self.defaults.partitions.or_else(|| sources().map(|source| source.partitions).max());
        topic.replication_factor = self.defaults.replication_factor;
        let retention = match derived.level {
            Some(level) => (topology.delay(level) + KEPT_BEYOND_DELAY).as_millis().to_string(),
            None => FOR_EVER.to_string(),
        };
        topic = topic
            .with_config(CLEANUP_POLICY, "delete")
            .with_config(RETENTION_MS, retention)
            .with_config(RETENTION_BYTES, FOR_EVER.to_string());
        if let Some(limit) = sources().filter_map(|source| number(source, MAX_MESSAGE_BYTES)).max() {
            topic = topic.with_config(MAX_MESSAGE_BYTES, limit.saturating_add(HEADROOM).min(MAX_LIMIT).to_string());
        }
        topic
    }
}

type Known = BTreeMap<Topic, TopicDescription>;

/// What there is of derived topics and their sources, in one question.
async fn describe(adapter: &dyn Adapter, topology: &Topology, derived: &[Derived<'_>]) -> Result<Known, HarborError> {
    let mut names: Vec<Topic> = derived.iter().map(|derived| derived.topic.clone()).collect();
    names.extend(topology.plans().iter().map(|plan| plan.topic.clone()));
    let described = adapter.describe_topics(&names).await?;
    Ok(described.into_iter().flatten().map(|description| (description.topic.clone(), description)).collect())
}

/// What is wrong with existing topics.
#[derive(Debug, Default)]
struct Findings {
    /// Records will be lost.
    grave: Vec<Warning>,
    /// Records may be lost, and it may be meant that way.
    slight: Vec<Warning>,
}

impl Findings {
    /// `delay` is that of a retry topic. Settings that could not be read are taken for good.
    fn look_at(&mut self, derived: &Derived<'_>, delay: Option<Duration>, found: &TopicDescription, known: &Known) {
        let topic = derived.topic;
        let mut grave = |what: String| self.grave.push(Warning { topic: topic.clone(), what });
        let mut slight = |what: String| self.slight.push(Warning { topic: topic.clone(), what });

        let policy = found.configs.get(CLEANUP_POLICY).map_or("", String::as_str);
        if policy.split(',').any(|policy| policy.trim() == "compact") {
            grave(format!("is compacted ({CLEANUP_POLICY}={policy}): of records with one key all but the last vanish"));
        }
        // Compaction alone deletes nothing by age.
        let deletes = policy.is_empty() || policy.split(',').any(|policy| policy.trim() == "delete");
        let retention = number(found, RETENTION_MS).filter(|millis| deletes && *millis >= 0);
        match (retention, delay) {
            (Some(millis), Some(delay)) if millis as u128 <= delay.as_millis() => {
                grave(format!(
                    "keeps records for {millis} ms ({RETENTION_MS}), no longer than they wait, {} ms",
                    delay.as_millis()
                ));
            }
            (Some(millis), None) => {
                slight(format!("has dead letters and keeps them for {millis} ms only ({RETENTION_MS})"));
            }
            _ => {}
        }
        if let Some(bytes) = number(found, RETENTION_BYTES).filter(|bytes| deletes && *bytes >= 0) {
            slight(format!("drops records beyond {bytes} bytes a partition ({RETENTION_BYTES}), handled or not"));
        }
        let of_sources = derived.sources.iter().filter_map(|source| number(known.get(*source)?, MAX_MESSAGE_BYTES));
        if let (Some(limit), Some(source)) = (number(found, MAX_MESSAGE_BYTES), of_sources.max())
            && limit < source
        {
            let fate = if delay.is_some() { "skips the level" } else { "stops the consumer" };
            slight(format!(
                "takes records of {limit} bytes ({MAX_MESSAGE_BYTES}), its source of {source}: a larger one {fate}"
            ));
        }
    }

    fn judged(self, checks: TopicChecks) -> Result<Vec<Warning>, ConfigError> {
        if checks == TopicChecks::Warn {
            return Ok([self.grave, self.slight].concat());
        }
        let mut problems = Problems::default();
        for grave in self.grave {
            problems.add(format!("topic `{}`", grave.topic), grave.what);
        }
        problems.finish().map(|()| self.slight)
    }
}

fn number(topic: &TopicDescription, config: &str) -> Option<i64> {
    topic.configs.get(config)?.parse().ok()
}

const CLEANUP_POLICY: &str = "cleanup.policy";
const RETENTION_MS: &str = "retention.ms";
const RETENTION_BYTES: &str = "retention.bytes";
const MAX_MESSAGE_BYTES: &str = "max.message.bytes";

/// Kafka's word for no limit.
const FOR_EVER: i64 = -1;

/// A consumer that is down for less than a week finds its retries again. It is also the broker's default retention.
const KEPT_BEYOND_DELAY: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Room for what a hop adds to a record of the source's limit: under 3 KiB by itself, more where names are long, and
/// the batch is compressed anew.
const HEADROOM: i64 = 64 * 1_024;

/// `max.message.bytes` is a 32-bit number.
const MAX_LIMIT: i64 = i32::MAX as i64;

#[cfg(test)]
mod tests;
