//! The in-process broker, as tests and programs hold it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::memory::seat::SeatKey;
use crate::adapter::memory::shared::{Shared, State, now};
use crate::adapter::memory::{Call, MemorySettings, StoredRecord};
use crate::memory::{Effect, Fault, MemberId, Operation, TopicConfig};
use crate::protocol::batch::ReadOptions;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Offset, Topic, TopicPartition};

/// A broker within the process: topics, groups, records, and failures to order. Cheap to clone; all clones are one
/// broker, which lives as long as one of them or an adapter does.
///
/// It keeps every record until a topic's `retention.ms` or `retention.bytes` says otherwise.
///
/// # Examples
/// ```
/// use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
/// use kafka_harbor::adapter::{Adapter, PublisherOptions};
/// use kafka_harbor::record::Record;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let broker = MemoryBroker::new();
/// broker.create_topic("orders", 3)?;
/// let adapter = MemoryAdapter::new(&broker);
///
/// let publisher = adapter.publisher(PublisherOptions::default())?;
/// publisher.publish(vec![Record::new("orders", "tea").with_key("customer-42")]).await?;
/// assert_eq!(broker.records("orders")[0].value.as_deref(), Some(&b"tea"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryBroker {
    pub(super) shared: Arc<Shared>,
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

/// Topics and records.
impl MemoryBroker {
    /// An empty broker with default settings.
    pub fn new() -> Self {
        Self::with_settings(MemorySettings::default())
    }

    /// An empty broker with these settings.
    pub fn with_settings(settings: MemorySettings) -> Self {
        Self { shared: Arc::new(Shared::new(settings)) }
    }

    /// Creates a topic with default settings.
    ///
    /// # Errors
    /// Kafka's code, as when it exists already.
    pub fn create_topic(&self, name: impl Into<Topic>, partitions: i32) -> Result<(), ErrorCode> {
        self.create_topic_with(name, partitions, [])
    }

    /// Creates a topic with these settings by Kafka's names, such as `retention.ms`.
    ///
    /// # Errors
    /// Kafka's code, as when it exists already, or a setting is none of Kafka's.
    pub fn create_topic_with(
        &self,
        name: impl Into<Topic>,
        partitions: i32,
        settings: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Result<(), ErrorCode> {
        let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = TopicConfig::from_settings(settings.collect::<BTreeMap<_, _>>())?;
        self.shared.with(|state| state.broker.create_topic(&name.into(), partitions, config, now()))
    }

    /// Gives a topic more partitions, `total` in all. Those who read it get them.
    ///
    /// # Errors
    /// Kafka's code, as when it has as many already.
    pub fn add_partitions(&self, name: &str, total: i32) -> Result<(), ErrorCode> {
        self.shared.with(|state| state.broker.add_partitions(&name.into(), total, now()))
    }

    /// Deletes a topic, its records and what was committed on it. Those who read it lose their partitions.
    ///
    /// # Errors
    /// Kafka's code, as when it does not exist.
    pub fn delete_topic(&self, name: &str) -> Result<(), ErrorCode> {
        self.shared.with(|state| state.broker.delete_topic(&name.into(), now()))
    }

    /// The names of all topics, in alphabetical order.
    pub fn topics(&self) -> Vec<Topic> {
        self.shared.lock().broker.topics().cloned().collect()
    }

    /// Every record of a topic, in the order they were appended. Empty if there is no such topic.
    pub fn records(&self, topic: &str) -> Vec<StoredRecord> {
        let topic = Topic::from(topic);
        let (batches, starts) = {
            let state = self.shared.lock();
            let partitions = 0..state.broker.partition_count(&topic).unwrap_or(0);
            let starts: Vec<_> = partitions
                .map(|partition| state.broker.watermarks(&TopicPartition::new(&topic, partition)))
                .map(|watermarks| watermarks.map_or(Offset(0), |(low, _)| low))
                .collect();
            (state.broker.batches(&topic), starts)
        };
        let mut records = Vec::new();
        for (partition, batch) in batches {
            let start = starts[partition.partition as usize];
            let view = batch.open(&ReadOptions::default()).expect(CHECKED);
            for record in view.records() {
                let record = record.expect(CHECKED);
                if record.offset >= start {
                    records.push(StoredRecord::shared(&partition, &view, &record));
                }
            }
        }
        records
    }

    /// Deletes the records of a partition before `offset` and tells where it begins now. Who reads there is set to
    /// where its subscription starts, and told by a fault.
    ///
    /// # Errors
    /// Kafka's code, as when there are not that many records.
    pub fn delete_records(&self, topic: &str, partition: i32, before: Offset) -> Result<Offset, ErrorCode> {
        let partition = TopicPartition::new(topic, partition);
        self.shared.with(|state| state.broker.delete_records(&partition, before))
    }
}

/// Groups.
impl MemoryBroker {
    /// What a group has committed on a partition: the next offset to read.
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<Offset> {
        let partition = TopicPartition::new(topic, partition);
        self.shared.lock().broker.committed(group, &partition).map(|committed| committed.offset)
    }

    /// The members of a group, oldest first.
    pub fn members(&self, group: &str) -> Vec<MemberId> {
        self.shared.lock().broker.members(group).unwrap_or_default()
    }

    /// What a member has, partitions that it is asked to release included.
    pub fn assignment(&self, group: &str, member: MemberId) -> Vec<TopicPartition> {
        let owned = self.shared.lock().broker.owned_by(group, member);
        owned.into_iter().map(|owned| owned.partition).collect()
    }

    /// Which partitions members of the group have paused, in order.
    pub fn paused(&self, group: &str) -> Vec<TopicPartition> {
        let state = self.shared.lock();
        let mut paused: Vec<_> = state.seats_of(group).flat_map(|seat| seat.paused()).cloned().collect();
        paused.sort();
        paused
    }

    /// Asks whoever has the partition to release it. Afterwards it is assigned anew, to the same member if there is no
    /// other who has less.
    pub fn revoke(&self, group: &str, topic: &str, partition: i32) {
        let partitions = [TopicPartition::new(topic, partition)];
        self.shared.with(|state| state.broker.revoke(group, &partitions, now()));
    }

    /// Takes the partition from whoever has it, without asking, and assigns it anew.
    pub fn lose(&self, group: &str, topic: &str, partition: i32) {
        let partitions = [TopicPartition::new(topic, partition)];
        self.shared.with(|state| state.broker.lose(group, &partitions, now()));
    }

    /// Ends a member's session: it loses all it has, the others get that, then it joins anew. Does nothing if there
    /// is no such member.
    pub fn expire_session(&self, group: &str, member: MemberId) {
        self.shared.with(|state| {
            // A member that left meanwhile has nothing to lose.
            let _ = state.broker.expire_session(group, member, now());
        });
    }

    /// Waits until the group has settled every record of these topics and has none of their partitions paused: what
    /// waits for its time has run, what was to be passed on was.
    ///
    /// All topics are looked at in one instant, so a record on its way from one to another is in one of them. A topic
    /// that does not exist is not drained.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// When the group's last member leaves with records left, or had left already. A group that never had a member is
    /// waited for.
    pub async fn when_drained(&self, group: &str, topics: &[&str]) -> Result<(), NotDrained> {
        let topics: Vec<Topic> = topics.iter().map(|topic| Topic::from(*topic)).collect();
        let mut changes = self.shared.changes();
        loop {
            {
                let state = self.shared.lock();
                let Some(left) = state.first_undrained(group, &topics) else { return Ok(()) };
                if state.broker.members(group).is_some_and(|members| members.is_empty()) {
                    return Err(NotDrained { group: group.to_owned(), left });
                }
            }
            // The sender lives as long as the broker that `self` holds.
            let _ = changes.changed().await;
        }
    }
}

/// Failures to order, and what was called.
impl MemoryBroker {
    /// Orders a failure. Several of one kind happen in the order they were ordered.
    ///
    /// # Examples
    /// ```
    /// use kafka_harbor::adapter::memory::MemoryBroker;
    /// use kafka_harbor::memory::{Effect, Fault, Operation};
    ///
    /// let broker = MemoryBroker::new();
    /// broker.fault(Fault::new(Operation::Settle, Effect::LoseAnswer).for_group("billing").times(2));
    /// assert_eq!(broker.faults_pending(), 1);
    /// ```
    pub fn fault(&self, fault: Fault) {
        self.shared.with(|state| state.broker.faults.push(fault));
    }

    /// The next try to publish to this topic is refused with this code: nothing is written.
    pub fn fail_next_produce(&self, topic: &str, code: ErrorCode, retryable: bool) {
        self.fault(Fault::new(Operation::Publish, Effect::Refuse { code, retryable }).on_topic(topic));
    }

    /// The next try to publish to this topic is written, but its answer is lost.
    pub fn lose_next_acknowledgement(&self, topic: &str) {
        self.fault(Fault::new(Operation::Publish, Effect::LoseAnswer).on_topic(topic));
    }

    /// The next try to publish to this topic takes this long.
    pub fn slow_next_produce(&self, topic: &str, by: Duration) {
        self.fault(Fault::new(Operation::Publish, Effect::Delay(by)).on_topic(topic));
    }

    /// The group's next `times` commits are refused with this code.
    pub fn fail_commits(&self, group: &str, times: u32, code: ErrorCode, retryable: bool) {
        self.fault(Fault::new(Operation::Settle, Effect::Refuse { code, retryable }).for_group(group).times(times));
    }

    /// How many ordered failures have not happened yet.
    pub fn faults_pending(&self) -> usize {
        self.shared.lock().broker.faults.pending()
    }

    /// Takes back all failures that have not happened yet.
    pub fn clear_faults(&self) {
        self.shared.with(|state| state.broker.faults.clear());
    }

    /// What was called, oldest first: the newest [`calls_kept`](MemorySettings::calls_kept).
    pub fn calls(&self) -> Vec<Call> {
        self.shared.lock().calls.iter().cloned().collect()
    }

    /// Forgets what was called.
    pub fn clear_calls(&self) {
        self.shared.lock().calls.clear();
    }
}

/// A group stopped before it had settled everything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("group {group} has no member left, and has not settled {left}")]
#[non_exhaustive]
pub struct NotDrained {
    /// The group.
    pub group: String,
    /// A partition with records left; its number is -1 where the topic does not exist.
    pub left: TopicPartition,
}

impl State {
    fn seats_of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a super::seat::Seat> {
        let of_group = move |key: &SeatKey| *key.group == *group;
        self.seats.iter().filter(move |(key, _)| of_group(key)).map(|(_, seat)| seat)
    }

    fn first_undrained(&self, group: &str, topics: &[Topic]) -> Option<TopicPartition> {
        for topic in topics {
            let Some(count) = self.broker.partition_count(topic) else {
                return Some(TopicPartition::new(topic, -1));
            };
            for partition in (0..count).map(|partition| TopicPartition::new(topic, partition)) {
                if !self.is_drained(group, &partition) {
                    return Some(partition);
                }
            }
        }
        None
    }

    fn is_drained(&self, group: &str, partition: &TopicPartition) -> bool {
        let Ok((low, high)) = self.broker.watermarks(partition) else { return false };
        match self.seats_of(group).find_map(|seat| seat.progress(partition)) {
            Some(progress) => !progress.paused && progress.settled >= high,
            None => self.broker.committed(group, partition).map_or(low, |committed| committed.offset) >= high,
        }
    }
}

const CHECKED: &str = "a batch in the log was checked when it was appended";
