//! The port over a Kafka cluster, by the [client](crate::client).
//!
//! ```text
//!   KafkaAdapter ─┬─ publisher ─► a producer of its own ─┐
//!                 ├─ join ──────► a consumer of its own ─┼─► Client ─► brokers
//!                 └─ topics, offsets ─► Admin ───────────┘
//! ```

mod error;
mod membership;
mod positions;
mod publisher;
mod settings;
mod share;
mod topics;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::adapter::{
    Adapter, AdapterError, AdapterErrorKind, BoxFuture, Capabilities, CommittedOffset, JoinOptions, Membership,
    PartitionWatermarks, Publisher, PublisherOptions, TopicDescription,
};
use crate::client::{Admin, Client};
use crate::record::{NewTopic, Topic};

pub use settings::KafkaAdapterBuilder;

use error::{adapter_error, consumer_error};
use membership::{KafkaEvents, KafkaHandle};
use publisher::KafkaPublisher;
use settings::KafkaSettings;

/// The port over a Kafka cluster.
///
/// Every publisher has a producer of its own, every membership a consumer of its own, so that none waits for another;
/// they share what is known of the cluster. Dropping the adapter does not wait for anything;
/// [`close`](Adapter::close) sends what waits.
///
/// What the rules of delivery own has no setting here: writes are acknowledged by all in-sync replicas and idempotent,
/// and nothing is committed but what is settled.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use kafka_harbor::adapter::Adapter;
/// use kafka_harbor::adapter::kafka::KafkaAdapter;
///
/// let kafka = KafkaAdapter::builder(["localhost:9092"]).client_id("orders").linger(Duration::from_millis(10)).build()?;
/// kafka.connect().await?;
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0599
/// use kafka_harbor::adapter::kafka::KafkaAdapter;
/// KafkaAdapter::builder(["localhost:9092"]).acks(1);
/// ```
///
/// ```compile_fail,E0599
/// use kafka_harbor::adapter::kafka::KafkaAdapter;
/// KafkaAdapter::builder(["localhost:9092"]).dangerous_acks_leader_only();
/// ```
///
/// ```compile_fail,E0599
/// use kafka_harbor::adapter::kafka::KafkaAdapter;
/// KafkaAdapter::builder(["localhost:9092"]).enable_idempotence(false);
/// ```
///
/// ```compile_fail,E0599
/// use kafka_harbor::adapter::kafka::KafkaAdapter;
/// KafkaAdapter::builder(["localhost:9092"]).enable_auto_commit(true);
/// ```
///
/// ```compile_fail,E0599
/// use kafka_harbor::adapter::kafka::KafkaAdapter;
/// KafkaAdapter::builder(["localhost:9092"]).enable_auto_offset_store(true);
/// ```
pub struct KafkaAdapter {
    client: Client,
    settings: KafkaSettings,
    closed: AtomicBool,
    /// What is to be finished when the adapter closes.
    publishers: Mutex<Vec<Weak<KafkaPublisher>>>,
    memberships: Mutex<Vec<Weak<dyn LeaveWithin>>>,
}

impl KafkaAdapter {
    /// Options of an adapter for the cluster that these brokers (`host:port`) belong to. One that answers is enough; they
    /// are tried in turn.
    pub fn builder<A: Into<String>>(bootstrap: impl IntoIterator<Item = A>) -> KafkaAdapterBuilder {
        KafkaAdapterBuilder::new(bootstrap)
    }

    fn over(client: Client, settings: KafkaSettings) -> Self {
        Self {
            client,
            settings,
            closed: AtomicBool::new(false),
            publishers: Mutex::default(),
            memberships: Mutex::default(),
        }
    }

    fn admin(&self) -> Admin {
        self.client.admin().with_timeout(self.settings.admin_timeout)
    }

    fn check_open(&self, what: &str) -> Result<(), AdapterError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(AdapterError::new(
                NAME,
                AdapterErrorKind::Closed,
                format_args!("{what}: the adapter is closed"),
            ));
        }
        Ok(())
    }
}

impl Adapter for KafkaAdapter {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        // A share group keeps the state of each record, and counts deliveries.
        let by_record = self.settings.share.is_some();
        Capabilities {
            settle_by_position: !by_record,
            settle_by_record: by_record,
            delivery_count: by_record,
            headers_as_bytes: true,
            offsets: true,
            topic_creation: true,
            ..Capabilities::NONE
        }
    }

    fn connect(&self) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async move {
            self.check_open("connecting")?;
            self.client.ping(self.settings.admin_timeout).await.map_err(|error| adapter_error("connecting", error))
        })
    }

    fn close(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async move {
            if self.closed.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
            let deadline = Instant::now() + timeout;
            let left = || deadline.saturating_duration_since(Instant::now());
            let mut unfinished = Vec::new();
            for membership in take(&self.memberships) {
                unfinished.extend(membership.leave_within(left()).await.err().map(|error| error.to_string()));
            }
            for publisher in take(&self.publishers) {
                unfinished.extend(publisher.close(left()).await.err().map(|error| error.to_string()));
            }
            unfinished.extend(self.client.close(left()).await.err().map(|error| error.to_string()));
            if unfinished.is_empty() {
                return Ok(());
            }
            let what = format_args!("closing: {}", unfinished.join("; "));
            Err(AdapterError::new(NAME, AdapterErrorKind::Unavailable, what))
        })
    }

    fn publisher(&self, options: PublisherOptions) -> Result<Arc<dyn Publisher>, AdapterError> {
        self.check_open("publisher")?;
        let publisher = Arc::new(KafkaPublisher::new(&self.client, &self.settings, &options.retry)?);
        keep(&self.publishers, &publisher);
        Ok(publisher)
    }

    fn join(&self, options: JoinOptions) -> BoxFuture<'_, Result<Membership, AdapterError>> {
        Box::pin(async move {
            self.check_open("joining")?;
            if let Some(join) = self.settings.share {
                let (membership, leaves) = join(&self.client, &self.settings, options).await?;
                keep(&self.memberships, &leaves);
                return Ok(membership);
            }
            let what = format!("joining group {}", options.group);
            let consumer = self.settings.consumer(&self.client, &options).build().map_err(|error| {
                AdapterError::new(NAME, AdapterErrorKind::Unsupported, format_args!("{what}: {error}"))
                    .with_source(error)
            })?;
            // A group lets a member in when every other has answered, and these may take as long to let go.
            let limit = options.revocation_timeout.saturating_add(self.settings.admin_timeout);
            consumer.joined(limit).await.map_err(consumer_error)?;
            let handle = Arc::new(KafkaHandle::new(consumer.handle().clone(), options.group));
            let leaves: Arc<dyn LeaveWithin> = handle.clone();
            keep(&self.memberships, &leaves);
            Ok(Membership { events: Box::new(KafkaEvents(consumer)), handle })
        })
    }

    fn create_topics<'a>(&'a self, topics: &'a [NewTopic]) -> BoxFuture<'a, Result<(), AdapterError>> {
        Box::pin(async move {
            self.check_open("creating topics")?;
            topics::create(&self.admin(), topics).await
        })
    }

    fn describe_topics<'a>(
        &'a self,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<Option<TopicDescription>>, AdapterError>> {
        Box::pin(async move {
            self.check_open("describing topics")?;
            topics::describe(&self.admin(), topics).await
        })
    }

    fn watermarks<'a>(&'a self, topics: &'a [Topic]) -> BoxFuture<'a, Result<Vec<PartitionWatermarks>, AdapterError>> {
        Box::pin(async move {
            self.check_open("reading watermarks")?;
            topics::watermarks(&self.admin(), topics).await
        })
    }

    fn committed<'a>(
        &'a self,
        group: &'a str,
        topics: &'a [Topic],
    ) -> BoxFuture<'a, Result<Vec<CommittedOffset>, AdapterError>> {
        Box::pin(async move {
            self.check_open("reading committed offsets")?;
            topics::committed(&self.admin(), group, topics).await
        })
    }
}

impl fmt::Debug for KafkaAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaAdapter").field("client", &self.client).finish_non_exhaustive()
    }
}

/// A membership that can be ended.
trait LeaveWithin: Send + Sync {
    /// Leaves the group, and says what was not done in time.
    fn leave_within(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>>;
}

/// A membership, and how to end it.
type Joined = (Membership, Arc<dyn LeaveWithin>);

/// Takes note of what is to be finished, and forgets what is gone.
fn keep<T: ?Sized>(kept: &Mutex<Vec<Weak<T>>>, new: &Arc<T>) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.retain(|old| old.strong_count() > 0);
    kept.push(Arc::downgrade(new));
}

fn take<T: ?Sized>(kept: &Mutex<Vec<Weak<T>>>) -> Vec<Arc<T>> {
    let kept = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
    kept.iter().filter_map(Weak::upgrade).collect()
}

const NAME: &str = "kafka";
