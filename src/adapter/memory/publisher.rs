//! Publishing: batches are numbered, so that a resend after a lost answer is no duplicate.
//!
//! ```text
//! records ─► partition each ─► lanes of the partitions, locked in order ─► parcels: encoded batches
//!                                     one try: every lane's parcels in order, up to the first that fails
//! ```
//!
//! A lane numbers its parcels when they are first sent. A refused parcel gives its number back; one whose answer was
//! lost keeps it and is sent again under it. Only one publish holds a lane, so numbers never overtake each other.

use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use crate::adapter::memory::session::Session;
use crate::adapter::memory::shared::{Shared, State, Verdict};
use crate::adapter::memory::{Call, NAME};
use crate::adapter::{
    Acknowledged, AdapterError, AdapterErrorKind, BoxFuture, PublishError, Publisher, RecordFailure, RecordOutcome,
};
use crate::error::WriteOutcome;
use crate::protocol::batch::{BatchWriter, Closing, EncodedBatch, ProducerStamp};
use crate::protocol::compression::Compression;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::murmur2::partition_for_key;
use crate::record::{Offset, Record, Timestamp, Topic, TopicPartition};
use crate::retry::RetryPolicy;

#[derive(Debug)]
pub(super) struct MemoryPublisher(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    session: Arc<Session>,
    retry: RetryPolicy,
    routes: Mutex<Routes>,
}

#[derive(Debug, Default)]
struct Routes {
    lanes: HashMap<TopicPartition, Arc<tokio::sync::Mutex<Lane>>>,
    /// Where the next record without a key goes, topic by topic.
    turns: HashMap<Topic, i32>,
}

/// The numbers of one partition's batches.
#[derive(Debug, Default)]
struct Lane {
    /// The next batch's; `None` before the first, and when it is unknown which were used.
    next: Option<ProducerStamp>,
    /// Whether a parcel's answer was lost and it was not sent again since.
    unsure: bool,
}

/// A partition's share of a publish.
struct Consignment {
    partition: TopicPartition,
    lane: OwnedMutexGuard<Lane>,
    /// In order; the first is to be sent next.
    parcels: std::collections::VecDeque<Parcel>,
}

/// One batch, and which of the records it holds.
struct Parcel {
    records: Vec<usize>,
    batch: EncodedBatch,
    /// Its number, once it was sent and may have been written.
    sent_as: Option<ProducerStamp>,
    last_failure: Option<Arc<RecordFailure>>,
}

impl MemoryPublisher {
    pub(super) fn new(shared: Arc<Shared>, session: Arc<Session>, retry: RetryPolicy) -> Self {
        Self(Arc::new(Inner { shared, session, retry, routes: Mutex::default() }))
    }
}

impl Publisher for MemoryPublisher {
    fn publish(&self, records: Vec<Record>) -> BoxFuture<'_, Result<Vec<Acknowledged>, PublishError>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let count = records.len();
            let Some(under_way) = inner.session.begin_publish() else {
                let closed = RecordFailure::new(WriteOutcome::NotWritten, false, "memory: the adapter is closed");
                return Err(PublishError::all(count, closed, 0));
            };
            let done = detached(async move {
                let result = inner.publish(records).await;
                drop(under_way);
                result
            });
            done.await.unwrap_or_else(|| {
                let stopped = RecordFailure::new(WriteOutcome::PossiblyWritten, true, "memory: the runtime shut down");
                Err(PublishError::all(count, stopped, 1))
            })
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async move {
            if self.0.session.published().await {
                return Ok(());
            }
            Err(AdapterError::new(NAME, AdapterErrorKind::Closed, "flush: the adapter is closed"))
        })
    }
}

impl Inner {
    async fn publish(&self, records: Vec<Record>) -> Result<Vec<Acknowledged>, PublishError> {
        let mut outcomes: Vec<Option<RecordOutcome>> = records.iter().map(|_| None).collect();
        let (by_partition, mut attempts) = self.route(&records, &mut outcomes).await;
        let mut consignments = self.consign(&records, by_partition, &mut outcomes).await;
        let mut tries = 0;
        while consignments.iter().any(|consignment| !consignment.parcels.is_empty()) {
            if tries > 0 && !self.pause_before_retry(tries).await {
                break;
            }
            tries += 1;
            tokio::select! {
                biased;
                () = self.send(&mut consignments, &mut outcomes) => {}
                () = self.session.closed() => break,
            }
            if tries >= self.retry.attempts {
                break;
            }
        }
        for consignment in consignments {
            consignment.give_up(&mut outcomes);
        }
        attempts = attempts.max(tries).max(1);
        finish(outcomes, attempts)
    }

    /// Finds each record's partition. A topic that does not exist may come into being between two tries.
    async fn route(
        &self,
        records: &[Record],
        outcomes: &mut [Option<RecordOutcome>],
    ) -> (BTreeMap<TopicPartition, Vec<usize>>, u32) {
        let mut routed: BTreeMap<TopicPartition, Vec<usize>> = BTreeMap::new();
        let mut left: Vec<usize> = (0..records.len()).collect();
        let mut attempt = 1;
        loop {
            let mut missing: Vec<(usize, ErrorCode)> = Vec::new();
            self.shared.with(|state| {
                for index in left.drain(..) {
                    match self.partition_of(&records[index], state) {
                        Ok(partition) => routed.entry(partition).or_default().push(index),
                        Err(code) => missing.push((index, code)),
                    }
                }
            });
            let hopeless = attempt >= self.retry.attempts || missing.iter().all(|(_, code)| !code.is_retriable());
            if missing.is_empty() || hopeless || !self.pause_before_retry(attempt).await {
                for (index, code) in missing {
                    let record = &records[index];
                    let what = match record.partition {
                        Some(partition) => format!("{}-{partition}", record.topic),
                        None => record.topic.to_string(),
                    };
                    outcomes[index] = Some(Err(Arc::new(refusal(code, code.is_retriable(), &what))));
                }
                return (routed, attempt);
            }
            left.extend(missing.into_iter().map(|(index, _)| index));
            attempt += 1;
        }
    }

    fn partition_of(&self, record: &Record, state: &mut State) -> Result<TopicPartition, ErrorCode> {
        let count = state.ensure_topic(&record.topic, &self.shared.settings)?;
        let partition = match (record.partition, &record.key) {
            (Some(partition), _) if (0..count).contains(&partition) => partition,
            (Some(_), _) => return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            (None, Some(key)) => partition_for_key(key, count),
            (None, None) => {
                let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
                let turn = routes.turns.entry(record.topic.clone()).or_default();
                let partition = *turn % count;
                *turn = (partition + 1) % count;
                partition
            }
        };
        Ok(TopicPartition::new(&record.topic, partition))
    }

    /// Takes the lanes, always in the partitions' order so that two publishes cannot wait for each other, and encodes.
    async fn consign(
        &self,
        records: &[Record],
        by_partition: BTreeMap<TopicPartition, Vec<usize>>,
        outcomes: &mut [Option<RecordOutcome>],
    ) -> Vec<Consignment> {
        let mut consignments = Vec::with_capacity(by_partition.len());
        for (partition, indexes) in by_partition {
            let lane = {
                let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
                routes.lanes.entry(partition.clone()).or_default().clone()
            };
            let mut lane = lane.lock_owned().await;
            if std::mem::take(&mut lane.unsure) {
                // The publish before ended without knowing whether its number was used.
                lane.next = None;
            }
            let parcels = self.encode(&partition, records, indexes, outcomes).into();
            consignments.push(Consignment { partition, lane, parcels });
        }
        consignments
    }

    fn encode(
        &self,
        partition: &TopicPartition,
        records: &[Record],
        indexes: Vec<usize>,
        outcomes: &mut [Option<RecordOutcome>],
    ) -> Vec<Parcel> {
        let limit =
            self.shared.lock().broker.topic_config(&partition.topic).map_or(0, |config| config.max_message_bytes);
        let limit = usize::try_from(limit).unwrap_or(0).min(self.shared.settings.batch_bytes);
        let now = self.shared.wall_clock();
        let mut parcels = Vec::new();
        let mut open = Open::default();
        for index in indexes {
            let record = &records[index];
            if !open.append(limit, record, now, index) {
                parcels.extend(std::mem::take(&mut open).close());
                // A record that is too large by itself is the broker's to refuse.
                if !open.append(usize::MAX, record, now, index) {
                    let failure = refusal(ErrorCode::INVALID_RECORD, false, partition);
                    outcomes[index] = Some(Err(Arc::new(failure)));
                }
            }
        }
        parcels.extend(open.close());
        parcels
    }

    /// One try: each lane's parcels in order, up to the first that fails.
    async fn send(&self, consignments: &mut [Consignment], outcomes: &mut [Option<RecordOutcome>]) {
        let waiting = || consignments.iter().filter(|consignment| !consignment.parcels.is_empty());
        let mut topics: Vec<Topic> = waiting().map(|consignment| consignment.partition.topic.clone()).collect();
        topics.dedup();
        let records = waiting().flat_map(|c| &c.parcels).map(|parcel| parcel.records.len()).sum();
        let verdict = self.shared.begin(Call::Publish { topics, records }).await;
        let now = self.shared.wall_clock();
        self.shared.with(|state| {
            for consignment in consignments {
                consignment.send(state, &verdict, now, outcomes);
            }
        });
    }

    /// Waits before another try; `false` if there is to be none because the adapter closed.
    async fn pause_before_retry(&self, failures: u32) -> bool {
        let delay: Duration = self.retry.wait(failures, random());
        tokio::select! {
            biased;
            () = self.session.closed() => false,
            () = tokio::time::sleep(delay) => true,
        }
    }
}

impl Consignment {
    fn send(&mut self, state: &mut State, verdict: &Verdict, now: Timestamp, outcomes: &mut [Option<RecordOutcome>]) {
        let affected = |limit: &Option<Topic>| limit.as_ref().is_none_or(|topic| *topic == self.partition.topic);
        let lost = matches!(verdict, Verdict::LoseAnswer { topic } if affected(topic));
        let refused = match verdict {
            Verdict::Refuse { code, retryable, topic } if affected(topic) => Some((*code, *retryable)),
            _ => None,
        };
        while let Some(mut parcel) = self.parcels.pop_front() {
            let stamp = parcel.sent_as.unwrap_or_else(|| self.lane.next_stamp(state));
            let written = match refused {
                Some(refused) => Err(refused),
                None => {
                    let batch = parcel.batch.clone().with_producer(Some(stamp));
                    state.broker.append(&self.partition, batch, now).map_err(|code| (code, code.is_retriable()))
                }
            };
            match written {
                Ok(_) if lost => {
                    let what = format!("memory: {}: no answer came", self.partition);
                    let failure = RecordFailure::new(WriteOutcome::PossiblyWritten, true, what)
                        .with_code(ErrorCode::REQUEST_TIMED_OUT.0);
                    parcel.last_failure = Some(Arc::new(failure));
                    parcel.sent_as = Some(stamp);
                    self.lane.unsure = true;
                    self.parcels.push_front(parcel);
                    return;
                }
                Ok(appended) => {
                    self.lane.sent(stamp, parcel.records.len());
                    parcel.acknowledge(&self.partition, appended.base_offset, outcomes);
                }
                Err((code, retryable)) => {
                    let mut failure = refusal(code, retryable, &self.partition);
                    if parcel.sent_as.is_some() {
                        // An earlier try of it may have been written.
                        failure.outcome = WriteOutcome::PossiblyWritten;
                    }
                    parcel.last_failure = Some(Arc::new(failure));
                    if retryable {
                        self.parcels.push_front(parcel);
                        return;
                    }
                    parcel.fail(outcomes);
                }
            }
        }
    }

    /// What was not acknowledged by now has failed.
    fn give_up(self, outcomes: &mut [Option<RecordOutcome>]) {
        let mut parcels = self.parcels.into_iter();
        let Some(first) = parcels.next() else { return };
        first.fail(outcomes);
        for mut behind in parcels {
            let what = format!("memory: {}: not sent behind a batch that failed", self.partition);
            behind.last_failure = Some(Arc::new(RecordFailure::new(WriteOutcome::NotWritten, true, what)));
            behind.fail(outcomes);
        }
    }
}

impl Lane {
    fn next_stamp(&mut self, state: &mut State) -> ProducerStamp {
        *self.next.get_or_insert_with(|| ProducerStamp {
            id: state.broker.new_producer_id(),
            epoch: 0,
            base_sequence: 0,
        })
    }

    fn sent(&mut self, stamp: ProducerStamp, records: usize) {
        self.unsure = false;
        self.next = Some(stamp.advanced_by(u32::try_from(records).unwrap_or(u32::MAX)));
    }
}

impl Parcel {
    fn acknowledge(self, partition: &TopicPartition, base: Offset, outcomes: &mut [Option<RecordOutcome>]) {
        for (index, offset) in self.records.into_iter().zip(base.0..) {
            let acknowledged = Acknowledged { partition: partition.clone(), offset: Some(Offset(offset)) };
            outcomes[index] = Some(Ok(acknowledged));
        }
    }

    fn fail(self, outcomes: &mut [Option<RecordOutcome>]) {
        let failure = self.last_failure.unwrap_or_else(|| {
            Arc::new(RecordFailure::new(WriteOutcome::NotWritten, false, "memory: closed before it was sent"))
        });
        for index in self.records {
            outcomes[index] = Some(Err(failure.clone()));
        }
    }
}

/// A batch being filled.
struct Open {
    writer: BatchWriter,
    records: Vec<usize>,
}

impl Default for Open {
    fn default() -> Self {
        Self { writer: BatchWriter::new(Compression::NONE), records: Vec::new() }
    }
}

impl Open {
    /// Appends a record unless the batch would pass `limit`, or cannot hold it at all.
    fn append(&mut self, limit: usize, record: &Record, now: Timestamp, index: usize) -> bool {
        let headers = record.headers.iter().map(|header| (&*header.name, header.value.as_deref()));
        let time = record.timestamp.unwrap_or(now);
        let appended = self.writer.append_within(limit, time, record.key.as_deref(), record.value.as_deref(), headers);
        let fits = matches!(appended, Ok(Some(_)));
        if fits {
            self.records.push(index);
        }
        fits
    }

    fn close(self) -> Option<Parcel> {
        // An empty batch is the only one that cannot be closed: there is no compression to fail.
        let batch = self.writer.close(Closing::default()).ok()?;
        Some(Parcel { records: self.records, batch, sent_as: None, last_failure: None })
    }
}

/// Runs to its end even if the caller is dropped: what was handed over is sent. Most are done at once and need no task.
async fn detached<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let mut future = Box::pin(future);
    match poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => tokio::spawn(future).await.ok(),
    }
}

fn finish(outcomes: Vec<Option<RecordOutcome>>, attempts: u32) -> Result<Vec<Acknowledged>, PublishError> {
    let outcomes: Vec<RecordOutcome> = outcomes
        .into_iter()
        .map(|outcome| outcome.expect("every record is acknowledged, refused, or given up"))
        .collect();
    if outcomes.iter().any(Result::is_err) {
        return Err(PublishError::new(outcomes, attempts));
    }
    Ok(outcomes.into_iter().flatten().collect())
}

fn refusal(code: ErrorCode, retryable: bool, to: &impl std::fmt::Display) -> RecordFailure {
    let what = format_args!("memory: {to}: {code}, {}", code.meaning());
    let failure = RecordFailure::new(WriteOutcome::NotWritten, retryable, what).with_code(code.0).with_source(code);
    if code == ErrorCode::MESSAGE_TOO_LARGE { failure.with_too_large() } else { failure }
}

/// Uniform in `[0, 1)`, from the keys that the standard library draws for its maps.
fn random() -> f64 {
    (RandomState::new().build_hasher().finish() >> 11) as f64 / (1_u64 << 53) as f64
}
