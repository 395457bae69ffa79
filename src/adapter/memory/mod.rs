//! The port over a broker within the process: for tests, for demonstrations, for trying out.
//!
//! ```text
//!   MemoryAdapter ─┐                            ┌─ topics: logs of encoded batches
//!   MemoryAdapter ─┼─► MemoryBroker ─► state ───┼─ groups: members, positions
//!   a test ────────┘   one lock, woken waits    └─ failures to order, calls
//! ```
//!
//! Several adapters, and so several harbors, may share one [`MemoryBroker`]. What it does with records, groups and
//! revocations is Kafka's ([`crate::memory`]); it survives no restart of the process. Time is tokio's: under
//! `#[tokio::test(start_paused = true)]` waits take no time, and records' timestamps move along.

mod broker;
mod call;
mod membership;
mod positions;
mod publisher;
mod record;
mod seat;
mod session;
mod settings;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use crate::adapter::{
    Adapter, AdapterError, AdapterErrorKind, BoxFuture, Capabilities, CommittedOffset, JoinOptions, Membership,
    PartitionWatermarks, Publisher, PublisherOptions, TopicDescription,
};
use crate::memory::TopicConfig;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NewTopic, Topic, TopicPartition};

pub use broker::{MemoryBroker, NotDrained};
pub use call::Call;
pub use record::StoredRecord;
pub use settings::MemorySettings;

use membership::{MemoryEvents, MemoryHandle, subscription};
use publisher::MemoryPublisher;
use seat::{Seat, SeatKey};
use session::Session;
use shared::{Shared, State, Verdict, lost_answer, now, refused};

/// The port over a [`MemoryBroker`]. Dropping it ends nothing; [`close`](Adapter::close) does.
#[derive(Debug)]
pub struct MemoryAdapter {
    shared: Arc<Shared>,
    session: Arc<Session>,
}

impl MemoryAdapter {
    /// An adapter of its own on this broker.
    pub fn new(broker: &MemoryBroker) -> Self {
        let shared = broker.shared.clone();
        let id = {
            let mut state = shared.lock();
            state.next_session += 1;
            state.next_session
        };
        Self { shared, session: Arc::new(Session::new(id)) }
    }

    /// Makes a call: notes it, lets it suffer what was ordered, does it.
    async fn call<T>(
        &self,
        call: Call,
        what: &str,
        act: impl FnOnce(&mut State) -> Result<T, AdapterError>,
    ) -> Result<T, AdapterError> {
        self.check_open(what)?;
        match self.shared.begin(call).await {
            Verdict::Proceed => {
                // It may have been closed while the call was held up.
                self.check_open(what)?;
                self.shared.with(act)
            }
            Verdict::Refuse { code, retryable, .. } => Err(refused(code, what).with_retryable(retryable)),
            Verdict::LoseAnswer { .. } => {
                self.shared.with(act)?;
                Err(lost_answer(what))
            }
        }
    }

    fn check_open(&self, what: &str) -> Result<(), AdapterError> {
        if self.session.is_open() {
            return Ok(());
        }
        Err(AdapterError::new(NAME, AdapterErrorKind::Closed, format_args!("{what}: the adapter is closed")))
    }
}

impl Adapter for MemoryAdapter {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            settle_by_position: true,
            headers_as_bytes: true,
            offsets: true,
            topic_creation: true,
            ..Capabilities::NONE
        }
    }

    fn connect(&self) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(self.call(Call::Connect, "connecting", |_| Ok(())))
    }

    fn close(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async move {
            if !self.session.begin_close() {
                return Ok(());
            }
            let done = tokio::time::timeout(timeout, async {
                let verdict = self.shared.begin(Call::Close).await;
                self.session.published().await;
                verdict
            });
            let done = done.await;
            self.session.end();
            self.shared.with(|state| {
                let ours = state.seats.iter().filter(|(_, seat)| seat.session == self.session.id);
                let ours: Vec<SeatKey> = ours.map(|(key, _)| key.clone()).collect();
                ours.iter().for_each(|key| state.leave(key));
            });
            match done {
                Ok(Verdict::Proceed) => Ok(()),
                Ok(Verdict::Refuse { code, retryable, .. }) => Err(refused(code, "closing").with_retryable(retryable)),
                Ok(Verdict::LoseAnswer { .. }) | Err(_) => Err(lost_answer("closing")),
            }
        })
    }

    fn publisher(&self, options: PublisherOptions) -> Result<Arc<dyn Publisher>, AdapterError> {
        self.check_open("publisher")?;
        Ok(Arc::new(MemoryPublisher::new(self.shared.clone(), self.session.clone(), options.retry)))
    }

    fn join(&self, options: JoinOptions) -> BoxFuture<'_, Result<Membership, AdapterError>> {
        Box::pin(async move {
            let topics: Vec<Topic> = options.topics.iter().map(|topic| topic.topic.clone()).collect();
            let what = format!("joining group {}", options.group);
            let runtime = tokio::runtime::Handle::current();
            let call = Call::Join { group: options.group.clone(), topics };
            // A membership whose answer is lost is dropped here, and so left.
            self.call(call, &what, |state| {
                let seat = Seat::new(&options, self.session.id, runtime, &state.broker);
                let topics = subscription(&options.topics);
                let member = state.broker.join(&options.group, topics, options.revocation_timeout, now());
                let key = SeatKey { group: options.group.as_str().into(), member };
                state.seats.insert(key.clone(), seat);
                let events = MemoryEvents::new(self.shared.clone(), key.clone());
                let handle = MemoryHandle::new(self.shared.clone(), key);
                Ok(Membership { events: Box::new(events), handle: Arc::new(handle) })
            })
            .await
        })
    }

    fn create_topics<'a>(&'a self, topics: &'a [NewTopic]) -> BoxFuture<'a, Result<(), AdapterError>> {
        let names = topics.iter().map(|topic| topic.topic.clone()).collect();
        let defaults = self.shared.settings.default_partitions.max(1);
        Box::pin(self.call(Call::CreateTopics { topics: names }, "creating topics", move |state| {
            let mut failures = Vec::new();
            for new in topics {
                let partitions = new.partitions.unwrap_or(defaults);
                let created = TopicConfig::from_settings(new.configs.clone())
                    .and_then(|config| state.broker.create_topic(&new.topic, partitions, config, now()));
                match created {
                    Ok(()) | Err(ErrorCode::TOPIC_ALREADY_EXISTS) => {}
                    Err(code) => failures.push((&new.topic, code)),
                }
            }
            match failures.as_slice() {
                [] => Ok(()),
                [(_, code), ..] => {
                    let names: Vec<_> = failures.iter().map(|(topic, _)| topic.as_str()).collect();
                    Err(refused(*code, format_args!("creating topics {}", names.join(", "))))
                }
            }
        }))
    }

    fn describe_topics<'a>(
        &'a self,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<Option<TopicDescription>>, AdapterError>> {
        let call = Call::DescribeTopics { topics: topics.to_vec() };
        Box::pin(self.call(call, "describing topics", move |state| {
            let describe = |topic: &Topic| {
                let known = state.broker.topic(topic)?;
                let configs = known.config.settings();
                Some(TopicDescription { topic: topic.clone(), partitions: known.partitions, configs })
            };
            Ok(topics.iter().map(describe).collect())
        }))
    }

    fn watermarks<'a>(&'a self, topics: &'a [Topic]) -> BoxFuture<'a, Result<Vec<PartitionWatermarks>, AdapterError>> {
        let call = Call::Watermarks { topics: topics.to_vec() };
        Box::pin(self.call(call, "reading watermarks", move |state| {
            let mut watermarks = Vec::new();
            for partition in partitions_of(topics, state)? {
                if let Ok((low, high)) = state.broker.watermarks(&partition) {
                    watermarks.push(PartitionWatermarks { partition, low, high });
                }
            }
            Ok(watermarks)
        }))
    }

    fn committed<'a>(
        &'a self,
        group: &'a str,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<CommittedOffset>, AdapterError>> {
        let call = Call::Committed { group: group.to_owned(), topics: topics.to_vec() };
        Box::pin(self.call(call, "reading committed offsets", move |state| {
            let committed = |partition: TopicPartition| {
                let committed = state.broker.committed(group, &partition)?;
                let (offset, note) = (committed.offset, committed.metadata.clone());
                Some(CommittedOffset { partition, offset, note })
            };
            Ok(partitions_of(topics, state)?.into_iter().filter_map(committed).collect())
        }))
    }
}

/// Every partition of these topics.
fn partitions_of(topics: &[Topic], state: &State) -> Result<Vec<TopicPartition>, AdapterError> {
    let mut partitions = Vec::new();
    for topic in topics {
        let count = state.broker.partition_count(topic).ok_or_else(|| {
            let what = format_args!("topic {topic} does not exist");
            AdapterError::new(NAME, AdapterErrorKind::TopicMissing(topic.clone()), what).with_retryable(true)
        })?;
        partitions.extend((0..count).map(|partition| TopicPartition::new(topic, partition)));
    }
    Ok(partitions)
}

const NAME: &str = "memory";
