//! What a pipeline works by: fixed once it runs, shared by all its tasks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::adapter::Publisher;
use crate::clock::Clock;
use crate::harbor::blocking::BlockingRetries;
use crate::harbor::circuit::Circuit;
use crate::harbor::context::Source;
use crate::harbor::failure::{Classifiers, Failure, TextForm};
use crate::harbor::headers::{RetryBlock, Stamper};
use crate::harbor::idempotency::Guarded;
use crate::harbor::pipeline::level::Level;
use crate::harbor::pipeline::worker::Subscriber;
use crate::harbor::topology::{Plan, Topology};
use crate::observe::Observers;
use crate::record::TopicPartition;

/// Says of a failure whether it is worth a retry.
pub(crate) type RetryIf = Arc<dyn Fn(&Failure) -> bool + Send + Sync>;

/// What a pipeline works by.
pub(crate) struct Setup {
    pub(crate) group: Arc<str>,
    pub(crate) topology: Topology,
    /// The subscriptions' handlers, by the index of their plan.
    pub(crate) subscribers: Vec<Box<dyn Subscriber>>,
    /// Their circuits, by the same index.
    pub(crate) circuits: Vec<Option<Circuit>>,
    /// The room of each level; 0 is the originals'.
    pub(crate) rooms: Vec<Level>,
    pub(crate) retry_if: Option<RetryIf>,
    pub(crate) blocking: Option<BlockingRetries>,
    pub(crate) idempotency: Option<Guarded>,
    pub(crate) classifiers: Classifiers,
    pub(crate) text_form: TextForm,
    pub(crate) commit_each: bool,
    /// Whether originals without a position are read from their end.
    pub(crate) starts_at_the_end: bool,
    pub(crate) limits: Limits,
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) stamper: Stamper,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Observers,
    /// Workers that wait for a short time with their batch in hand.
    holding: AtomicUsize,
}

/// A subscription, as its deliveries need it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) circuit: Option<&'a Circuit>,
}

/// The bounds of a pipeline.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// The longest that one delivery may take, and a revocation wait.
    pub(crate) max_processing_time: Duration,
    /// How long a handler may go on after its cancel signal has fired.
    pub(crate) cancel_grace: Duration,
    /// Hops of one partition that are not acknowledged.
    pub(crate) hops: usize,
    /// Outcomes of one partition that wait for their commit to be told.
    pub(crate) outcomes: usize,
    /// The least time from one commit to the next.
    pub(crate) commit_gap: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_processing_time: Duration::from_secs(300),
            cancel_grace: Duration::from_secs(1),
            hops: 100,
            outcomes: 10_000,
            commit_gap: Duration::from_millis(10),
        }
    }
}

/// The shared parts that a harbor gives each of its pipelines.
pub(crate) struct Parts {
    pub(crate) publisher: Arc<dyn Publisher>,
    pub(crate) stamper: Stamper,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Observers,
}

impl Setup {
    pub(crate) fn new(
        group: Arc<str>,
        topology: Topology,
        subscribers: Vec<Box<dyn Subscriber>>,
        concurrency: usize,
        parts: Parts,
    ) -> Self {
        let Parts { publisher, stamper, clock, observers } = parts;
        Self {
            rooms: (0..=topology.levels()).map(|_| Level::new(concurrency)).collect(),
            group,
            topology,
            circuits: subscribers.iter().map(|_| None).collect(),
            subscribers,
            retry_if: None,
            blocking: None,
            idempotency: None,
            classifiers: Classifiers::default(),
            text_form: TextForm::default(),
            commit_each: false,
            starts_at_the_end: true,
            limits: Limits::default(),
            publisher,
            stamper,
            clock,
            observers,
            holding: AtomicUsize::new(0),
        }
    }

    /// What is served by the subscription with this index, and its handler.
    pub(crate) fn owner(&self, index: usize) -> (Served<'_>, &dyn Subscriber) {
        let served = Served { plan: &self.topology.plans()[index], circuit: self.circuits[index].as_ref() };
        (served, &*self.subscribers[index])
    }

    /// The room of a level.
    pub(crate) fn room(&self, level: u32) -> &Level {
        &self.rooms[level as usize]
    }

    /// Which attempt a delivery is: what its valid block says, else what its level does.
    pub(crate) fn attempt(&self, level: u32, block: Option<&RetryBlock>) -> u32 {
        block.map_or(level, |block| block.count).saturating_add(1)
    }

    /// What the contexts of a partition's records share.
    pub(crate) fn source(&self, partition: &TopicPartition) -> Arc<Source> {
        Arc::new(Source {
            group: self.group.clone(),
            partition: partition.clone(),
            names: self.stamper.names().clone(),
        })
    }

    /// Leave to wait with the batch in hand: only for a short time, and only a few at once, because what they hold is
    /// taken from the bytes that others could be read into. Dropped when the wait is over.
    pub(crate) fn hold_for(&self, wait: Duration) -> Option<Held<'_>> {
        if wait > LONGEST_HOLD {
            return None;
        }
        let held = Held(&self.holding);
        (self.holding.fetch_add(1, Ordering::Relaxed) < MOST_HOLDING).then_some(held)
    }

    /// Whether anybody wants to know of each delivery.
    pub(crate) fn is_heard(&self) -> bool {
        !self.observers.is_empty() || tracing::enabled!(target: "kafka_harbor::observe", tracing::Level::TRACE)
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("group", &self.group).field("topology", &self.topology).finish_non_exhaustive()
    }
}

/// See [`Setup::hold_for`].
#[derive(Debug)]
pub(crate) struct Held<'a>(&'a AtomicUsize);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Above a wait of this length a partition is paused and its batch let go: reading it again costs a round trip or
/// two, which a busy retry topic, whose records are due one soon after another, would otherwise pay for each.
const LONGEST_HOLD: Duration = Duration::from_secs(1);
/// Workers that may hold a batch while they wait.
const MOST_HOLDING: usize = 8;
