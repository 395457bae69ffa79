//! How far a group is behind.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::adapter::{
    Adapter, AdapterError, AdapterErrorKind, CommittedOffset, PartitionWatermarks, Start, TopicSubscription,
};
use crate::harbor::Harbor;
use crate::harbor::consumer::{Consumer, ConsumerInner};
use crate::harbor::core::Core;
use crate::harbor::error::{ConfigError, HarborError};
use crate::harbor::lifecycle::ConsumerStatus;
use crate::harbor::pipeline::begun_with_by;
use crate::observe::{ErrorReported, ErrorScope};
use crate::record::{Offset, Topic, TopicPartition};

/// How far a group is behind on one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionLag {
    /// The group.
    pub group: String,
    /// The topic; retry topics are among them.
    pub topic: Topic,
    /// The partition.
    pub partition: i32,
    /// The oldest offset still kept.
    pub low: Offset,
    /// The end of what can be read: the offset that the next record will get, or where the first transaction begins that
    /// is still open.
    pub high: Offset,
    /// What the group has committed, if it ever did.
    pub committed: Option<Offset>,
    /// Offsets from where the group stands to that end. Markers and aborted records among them count until they are
    /// passed.
    pub lag: u64,
}

impl<S: Send + Sync + 'static> Harbor<S> {
    /// The lag of every running consumer. Those who ask at once share one round; no running consumer, no lag.
    ///
    /// A consumer whose lag cannot be had is left out and reported by an `error` event.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    ///
    /// # Errors
    /// When no consumer's lag could be had: the first one's reason.
    pub async fn lag(&self) -> Result<Vec<PartitionLag>, HarborError> {
        let consumers = self.core.consumers.consumers();
        let running: Vec<_> =
            consumers.into_iter().filter(|consumer| consumer.life.status() == ConsumerStatus::Running).collect();
        let core = self.core.clone();
        match self.core.lag.run(|| round(core, running)).await {
            Some(Ok(lags)) => Ok(lags),
            Some(Err(error)) => Err(Arc::try_unwrap(error).unwrap_or_else(|shared| told_again(&shared))),
            None => Err(HarborError::Closed { what: "the runtime" }),
        }
    }
}

impl Consumer {
    /// How far the group is behind on everything that this consumer reads, retry topics among them. Connects if need
    /// be; the consumer need not run.
    ///
    /// A group that has no position on a partition, or one that is out of range, stands where the consumer would begin to
    /// read. Topics that do not exist and partitions without a leader are left out.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    ///
    /// # Errors
    /// [`HarborError::Closed`] after a shutdown, [`HarborError::Config`] where the broker keeps no offsets, and what the
    /// broker says.
    pub async fn lag(&self) -> Result<Vec<PartitionLag>, HarborError> {
        self.inner().lag().await
    }
}

impl ConsumerInner {
    async fn lag(&self) -> Result<Vec<PartitionLag>, HarborError> {
        self.core.check_open()?;
        self.core.connect().await?;
        read(&*self.core.adapter, &self.setup.group, &self.setup.topology.subscriptions(self.originals_start)).await
    }
}

/// What a round came to. The error is shared by those who asked at once.
pub(crate) type Round = Result<Vec<PartitionLag>, Arc<HarborError>>;

/// Asks for the lag of each of these, all at once.
async fn round(core: Arc<Core>, consumers: Vec<Arc<ConsumerInner>>) -> Round {
    let asked: Vec<_> = consumers
        .into_iter()
        .map(|consumer| {
            let group = consumer.setup.group.clone();
            (group, tokio::spawn(async move { consumer.lag().await }))
        })
        .collect();
    let (mut lags, mut first, mut answered) = (Vec::new(), None, false);
    for (group, answer) in asked {
        match answer.await.unwrap_or(Err(HarborError::Closed { what: "the runtime" })) {
            Ok(lag) => {
                answered = true;
                lags.extend(lag);
            }
            Err(error) => {
                report(&core, &group, &error);
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(error) if !answered => Err(Arc::new(error)),
        _ => Ok(lags),
    }
}

fn report(core: &Core, group: &str, error: &HarborError) {
    let text = error.text();
    let told = error.told(&text);
    core.observers.error(&ErrorReported { error: told, scope: ErrorScope::Adapter, group: Some(group), topic: None });
}

/// The same error for another who asked.
fn told_again(error: &HarborError) -> HarborError {
    match error {
        HarborError::Config(error) => HarborError::Config(error.clone()),
        HarborError::Adapter(error) => HarborError::Adapter(error.clone()),
        HarborError::TopicMissing { topic } => HarborError::TopicMissing { topic: topic.clone() },
        HarborError::Closed { what } => HarborError::Closed { what },
        other => AdapterError::new("harbor", AdapterErrorKind::Refused, other).into(),
    }
}

/// Asks for the lag of a group on what it reads: both questions at once, one round.
///
/// # Errors
/// [`HarborError::Config`] where the broker keeps no offsets, and what the broker says.
async fn read(
    adapter: &dyn Adapter,
    group: &str,
    topics: &[TopicSubscription],
) -> Result<Vec<PartitionLag>, HarborError> {
    if !adapter.capabilities().offsets {
        let why = format_args!("the {} adapter keeps no offsets, so there is no lag", adapter.name());
        return Err(ConfigError::one("lag", why).into());
    }
    let mut names: Vec<Topic> = topics.iter().map(|topic| topic.topic.clone()).collect();
    let (watermarks, committed) = loop {
        let error = match tokio::try_join!(adapter.watermarks(&names), adapter.committed(group, &names)) {
            Ok(answers) => break answers,
            Err(error) => error,
        };
        // A retry topic that no start has created yet holds nothing.
        let before = names.len();
        if let AdapterErrorKind::TopicMissing(missing) = &error.kind {
            names.retain(|name| name != missing);
        }
        if names.len() == before {
            return Err(error.into());
        }
    };
    let starts: HashMap<&Topic, Start> = topics.iter().map(|topic| (&topic.topic, topic.start)).collect();
    let start = |topic: &Topic| starts.get(topic).copied().unwrap_or_default();
    Ok(compute(group, watermarks, committed, start)
        .map_err(|what| AdapterError::new(adapter.name(), AdapterErrorKind::Refused, what).with_retryable(false))?)
}

/// The lag of each partition that has a leader. A group without a position, or with one that is out of range, stands
/// where it would begin to read.
fn compute(
    group: &str,
    watermarks: Vec<PartitionWatermarks>,
    committed: Vec<CommittedOffset>,
    start: impl Fn(&Topic) -> Start,
) -> Result<Vec<PartitionLag>, String> {
    let begun_with: HashMap<Topic, i32> =
        begun_with_by(&committed).into_iter().map(|(topic, partitions)| (topic.clone(), partitions)).collect();
    // One that came after the group began is read from its first record.
    let start = |partition: &TopicPartition| match begun_with.get(&partition.topic) {
        Some(begun_with) if partition.partition >= *begun_with => Start::Earliest,
        _ => start(&partition.topic),
    };
    let committed: HashMap<TopicPartition, Offset> =
        committed.into_iter().map(|committed| (committed.partition, committed.offset)).collect();
    let lag = |PartitionWatermarks { partition, low, high }| {
        let committed = committed.get(&partition).copied();
        for (what, offset) in [("first", Some(low)), ("next", Some(high)), ("committed", committed)] {
            if let Some(offset) = offset.filter(|offset| offset.0 < 0) {
                return Err(format!("the {what} offset of {partition} is {offset}: no offset, so no lag"));
            }
        }
        let position =
            committed.filter(|offset| (low..=high).contains(offset)).unwrap_or_else(|| match start(&partition) {
                Start::Earliest => low,
                Start::Latest => high,
            });
        Ok(PartitionLag {
            group: group.to_owned(),
            topic: partition.topic,
            partition: partition.partition,
            low,
            high,
            committed,
            // All are not negative; a log that ends before it begins holds nothing.
            lag: high.0.saturating_sub(position.0).max(0).unsigned_abs(),
        })
    };
    watermarks.into_iter().map(lag).collect()
}

/// Has those who ask at once share one round.
#[derive(Debug)]
pub(crate) struct SingleFlight<T> {
    round: Mutex<Option<watch::Receiver<Option<T>>>>,
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        Self { round: Mutex::new(None) }
    }
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    /// What the round under way comes to, else that of a new one. `None` if the round was cut off by the end of its
    /// runtime, or panicked.
    ///
    /// # Cancel safety
    /// Dropping the future does not end the round for the others.
    pub(crate) async fn run<F>(&self, round: impl FnOnce() -> F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut result = {
            let mut current = self.round.lock().unwrap_or_else(PoisonError::into_inner);
            match current.as_ref().filter(|round| round.has_changed().is_ok() && round.borrow().is_none()) {
                Some(round) => round.clone(),
                None => {
                    let (tell, told) = watch::channel(None);
                    let round = round();
                    tokio::spawn(async move {
                        tell.send_replace(Some(round.await));
                    });
                    current.insert(told).clone()
                }
            }
        };
        let value = result.wait_for(Option::is_some).await.ok()?;
        value.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn partition(low: i64, high: i64, committed: Option<i64>, start: Start) -> Result<PartitionLag, String> {
        let partition = TopicPartition::new("orders", 3);
        let watermarks =
            vec![PartitionWatermarks { partition: partition.clone(), low: Offset(low), high: Offset(high) }];
        let committed = committed.map(|offset| CommittedOffset { partition, offset: Offset(offset), note: None });
        compute("g", watermarks, committed.into_iter().collect(), |_| start).map(|mut lags| lags.remove(0))
    }

    #[test]
    fn a_group_stands_at_its_commit_or_where_it_would_begin() {
        let table = [
            (10, 20, Some(15), Start::Latest, 5),
            (10, 20, Some(20), Start::Latest, 0),
            (10, 20, Some(10), Start::Latest, 10),
            (10, 20, None, Start::Latest, 0),
            (10, 20, None, Start::Earliest, 10),
            // Deleted below it, or the topic was made anew.
            (10, 20, Some(9), Start::Latest, 0),
            (10, 20, Some(9), Start::Earliest, 10),
            (10, 20, Some(21), Start::Earliest, 10),
            (0, 0, None, Start::Earliest, 0),
            (0, i64::MAX, Some(0), Start::Latest, i64::MAX as u64),
            (20, 10, None, Start::Earliest, 0),
        ];
        for (low, high, committed, start, lag) in table {
            let found = partition(low, high, committed, start).unwrap();
            assert_eq!(found.lag, lag, "{low} {high} {committed:?} {start:?}");
            assert_eq!((found.committed, found.partition), (committed.map(Offset), 3));
        }
    }

    #[test]
    fn sentinels_are_an_error_and_never_a_lag() {
        for (low, high, committed) in [(-1, 20, None), (0, -1001, None), (0, 20, Some(-1)), (0, 20, Some(-1001))] {
            assert!(partition(low, high, committed, Start::Latest).unwrap_err().contains("orders-3"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_at_once_share_a_round_and_later_ones_do_not() {
        let flight = SingleFlight::default();
        let rounds = Arc::new(AtomicU32::new(0));
        let ask = || {
            flight.run(|| {
                let rounds = rounds.clone();
                async move {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    rounds.fetch_add(1, Ordering::Relaxed) + 1
                }
            })
        };
        assert_eq!(tokio::join!(ask(), ask(), ask()), (Some(1), Some(1), Some(1)));
        assert_eq!(ask().await, Some(2));
        // One who gives up does not take the round from the other.
        let (gave_up, other) = tokio::join!(tokio::time::timeout(std::time::Duration::from_millis(1), ask()), ask());
        assert!(gave_up.is_err());
        assert_eq!(other, Some(3));
    }

    #[tokio::test]
    async fn a_round_that_panics_is_none_and_the_next_begins_anew() {
        let flight = SingleFlight::default();
        assert_eq!(flight.run(|| async { panic!("cut off") as u32 }).await, None);
        assert_eq!(flight.run(|| async { 7 }).await, Some(7));
    }
}
