//! One run of a redrive: the loop from the group's events to the end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use crate::adapter::{
    AdapterError, AdapterErrorKind, Assigned, Assignment, Event, EventSource, JoinOptions, Membership,
    MembershipHandle, PartitionBatch, Position, Publisher, SettleError, Start, TopicSubscription,
};
use crate::harbor::core::Core;
use crate::harbor::error::{ConfigError, HarborError, code};
use crate::harbor::failure::{Failure, TextForm};
use crate::harbor::producer::publish;
use crate::harbor::redrive::{DeadLetter, Plan, RedriveError, RedriveReport};
use crate::harbor::{instant, text};
use crate::observe::{CommitFailed, ErrorInfo, ErrorReported, ErrorScope, MessageRedriven, ProduceKind};
use crate::protocol::batch::BatchError;
use crate::record::{Header, Offset, Record, RecordView, Timestamp, Topic, TopicPartition};

/// A run under way.
pub(super) struct Run {
    core: Arc<Core>,
    publisher: Arc<dyn Publisher>,
    plan: Plan,
    report: RedriveReport,
    /// When it began.
    began: Timestamp,
    /// Where the partitions ended when it began, if only what was there is taken.
    ends: Option<HashMap<TopicPartition, Offset>>,
    assigned: HashSet<Assigned>,
    /// Partitions with nothing left for this run.
    through: HashSet<Assigned>,
    /// When it ends if nothing comes.
    deadline: Instant,
    was_assigned: bool,
    /// The last that the membership complained of.
    fault: Option<HarborError>,
}

/// Letters that are brought back together, and what is committed after them.
#[derive(Default)]
struct Chunk {
    records: Vec<Record>,
    /// One a record.
    letters: Vec<Letter>,
    skipped: Vec<Offset>,
    /// The next offset to read.
    next: Option<Offset>,
}

/// What is told of a letter once it is committed.
struct Letter {
    offset: Offset,
    correlation_id: Option<String>,
}

/// What became of a record of the topic.
enum Step {
    Redrive(Record, Letter),
    Skip,
    /// This run has nothing to do with it, nor with what follows in its partition.
    NotOurs,
    /// The run was told to end before it was known.
    Interrupted,
}

impl Run {
    pub(super) fn new(core: Arc<Core>, publisher: Arc<dyn Publisher>, plan: Plan) -> Self {
        Self {
            report: RedriveReport::of(&plan.from),
            began: core.clock.now(),
            ends: None,
            assigned: HashSet::new(),
            through: HashSet::new(),
            deadline: Instant::now() + plan.assignment_timeout,
            was_assigned: false,
            fault: None,
            core,
            publisher,
            plan,
        }
    }

    /// Runs, and leaves the group whatever happened.
    pub(super) async fn through(mut self) -> Result<RedriveReport, RedriveError> {
        match self.join_and_drive().await {
            Ok(()) => Ok(self.report),
            Err(source) => Err(RedriveError { report: self.report, source }),
        }
    }

    async fn join_and_drive(&mut self) -> Result<(), HarborError> {
        let (cancel, core) = (self.plan.cancel.clone(), self.core.clone());
        let joined = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            () = core.closing() => None,
            joined = self.join() => Some(joined?),
        };
        // A join that comes late leaves by itself.
        let Some(Membership { mut events, handle }) = joined else { return self.cancelled() };
        let leaving = LeaveOnDrop(Some(handle.clone()));
        let result = self.drive(&mut *events, &*handle).await;
        leaving.now().await;
        result
    }

    async fn join(&mut self) -> Result<Membership, HarborError> {
        let adapter = &self.core.adapter;
        if self.plan.only_present {
            let watermarks = adapter.watermarks(std::slice::from_ref(&self.plan.from)).await?;
            self.ends = Some(watermarks.into_iter().map(|found| (found.partition, found.high)).collect());
        }
        let subscription = TopicSubscription { topic: self.plan.from.clone(), start: Start::Earliest };
        Ok(adapter.join(JoinOptions::new(self.plan.group.clone(), vec![subscription])).await?)
    }

    async fn drive(&mut self, events: &mut dyn EventSource, handle: &dyn MembershipHandle) -> Result<(), HarborError> {
        let cancel = self.plan.cancel.clone();
        let core = self.core.clone();
        loop {
            if self.is_through() {
                return Ok(());
            }
            let event = tokio::select! {
                biased;
                () = cancel.cancelled() => return self.cancelled(),
                () = core.closing() => return self.cancelled(),
                event = events.next() => event,
                () = sleep_until(self.deadline) => return self.nothing_came(),
            };
            match event {
                // While others have all partitions, nothing is assigned; that is not the assignment that is waited for.
                Some(Event::Assigned(assignments)) if assignments.is_empty() => {}
                Some(Event::Assigned(assignments)) => {
                    self.assigned(assignments);
                    self.active();
                }
                Some(Event::Batch(batch)) => {
                    self.batch(&batch, handle).await?;
                    self.active();
                }
                // Nothing is at work between two events, so there is nothing to wait for.
                Some(Event::Revoked(gone, release)) => {
                    self.forget(&gone);
                    release.send();
                }
                Some(Event::Lost(gone)) => self.forget(&gone),
                // Of an adapter that declares to keep positions. Nobody settles these, so they are delivered again.
                Some(Event::Delivered(batch)) => tracing::error!(?batch, "the adapter delivers records one by one"),
                Some(Event::Fault(error)) => self.faulted(error),
                None => return Err(self.fault.take().unwrap_or(HarborError::Closed { what: "the membership" })),
            }
        }
    }

    /// Whether there is nothing left to wait for.
    fn is_through(&self) -> bool {
        let counted = self.report.reprocessed + self.report.skipped;
        self.plan.max.is_some_and(|max| counted >= max)
            || (!self.assigned.is_empty() && self.assigned.iter().all(|assigned| self.through.contains(assigned)))
    }

    fn assigned(&mut self, assignments: Vec<Assignment>) {
        self.was_assigned = true;
        for Assignment { assigned, position, .. } in assignments {
            if self.end_of(&assigned).is_some_and(|end| position >= end) {
                self.through.insert(assigned.clone());
            }
            self.assigned.insert(assigned);
        }
    }

    fn active(&mut self) {
        self.deadline = Instant::now() + self.plan.idle_timeout;
    }

    fn forget(&mut self, gone: &[Assigned]) {
        for assigned in gone {
            self.assigned.remove(assigned);
            self.through.remove(assigned);
        }
    }

    fn cancelled(&mut self) -> Result<(), HarborError> {
        self.report.cancelled = true;
        Ok(())
    }

    fn nothing_came(&mut self) -> Result<(), HarborError> {
        if self.was_assigned {
            return Ok(());
        }
        let waited = self.plan.assignment_timeout;
        let what = format_args!(
            "group {} was given no partition of {} within {waited:?}; another redrive may have them all",
            self.plan.group, self.plan.from
        );
        Err(AdapterError::new(self.core.adapter.name(), AdapterErrorKind::Unavailable, what).into())
    }

    fn faulted(&mut self, error: AdapterError) {
        let error = HarborError::from(error);
        self.report_error(&error, ErrorScope::Adapter);
        self.fault = Some(error);
    }

    /// Brings back what is wanted of a batch, chunk by chunk.
    async fn batch(&mut self, batch: &PartitionBatch, handle: &dyn MembershipHandle) -> Result<(), HarborError> {
        let assigned = &batch.assigned;
        if self.through.contains(assigned) {
            return Ok(());
        }
        let mut chunk = Chunk::default();
        let mut whole = true;
        for record in batch.records.iter() {
            if self.is_enough(&chunk) {
                whole = false;
                break;
            }
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    self.settle(assigned, chunk, handle).await?;
                    return Err(self.unreadable(assigned, error));
                }
            };
            match self.step(assigned, &record).await {
                Ok(Step::Redrive(redriven, letter)) => {
                    chunk.records.push(redriven);
                    chunk.letters.push(letter);
                }
                Ok(Step::Skip) => chunk.skipped.push(record.offset),
                Ok(Step::NotOurs) => {
                    self.through.insert(assigned.clone());
                    handle.pause(assigned);
                    whole = false;
                    break;
                }
                Ok(Step::Interrupted) => {
                    whole = false;
                    break;
                }
                Err(error) => {
                    // What went before it is brought back all the same.
                    self.settle(assigned, chunk, handle).await?;
                    return Err(error);
                }
            }
            chunk.next = Some(record.offset.next());
            if chunk.len() >= CHUNK && !self.settle(assigned, std::mem::take(&mut chunk), handle).await? {
                return Ok(());
            }
        }
        if whole {
            // Behind the last letter may lie what is no record.
            chunk.next = Some(batch.records.next_offset());
            if self.end_of(assigned).is_some_and(|end| batch.records.next_offset() >= end) {
                self.through.insert(assigned.clone());
            }
        }
        self.settle(assigned, chunk, handle).await?;
        Ok(())
    }

    /// The broker's log holds what is no record, or it was damaged on the way: nothing behind it can be taken.
    fn unreadable(&self, assigned: &Assigned, error: BatchError) -> HarborError {
        let what = format_args!("{}: a record cannot be read", assigned.partition);
        let error = AdapterError::new(self.core.adapter.name(), AdapterErrorKind::Refused, what).with_source(error);
        error.into()
    }

    /// Whether the run ends with what this chunk holds.
    fn is_enough(&self, chunk: &Chunk) -> bool {
        let counted = self.report.reprocessed + self.report.skipped + chunk.len();
        self.plan.max.is_some_and(|max| counted >= max)
            || self.plan.cancel.is_cancelled()
            || self.core.check_open().is_err()
    }

    /// Where the partition ended when the run began, if that is where it stops.
    fn end_of(&self, assigned: &Assigned) -> Option<Offset> {
        // A partition that was not there, or had no leader, is left alone.
        self.ends.as_ref().map(|ends| ends.get(&assigned.partition).copied().unwrap_or_default())
    }

    /// What becomes of one record.
    async fn step(&mut self, assigned: &Assigned, record: &RecordView<'_>) -> Result<Step, HarborError> {
        if self.end_of(assigned).is_some_and(|end| record.offset >= end) || self.is_own(record) {
            return Ok(Step::NotOurs);
        }
        if self.plan.filter.is_set() {
            let verdict = tokio::select! {
                biased;
                verdict = self.plan.filter.wants(self.letter(assigned, record)) => verdict,
                () = self.plan.cancel.cancelled() => return Ok(Step::Interrupted),
                () = self.core.closing() => return Ok(Step::Interrupted),
            };
            match verdict {
                Ok(true) => {}
                Ok(false) => return Ok(Step::Skip),
                Err(failure) if failure.is_serialization() => {
                    self.report_failure(&failure);
                    return Ok(Step::Skip);
                }
                Err(failure) => return Err(HarborError::Handler(failure)),
            }
        }
        let to = self.target(assigned, record)?;
        let stamper = &self.core.stamper;
        let headers = stamper.at(self.core.clock.now()).redrive(record.headers, &self.plan.from);
        let correlation_id = text_of(stamper.names().correlation_id(), &headers);
        let letter = Letter { offset: record.offset, correlation_id };
        let record = Record {
            topic: to,
            partition: None,
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            headers,
            timestamp: None,
        };
        Ok(Step::Redrive(record, letter))
    }

    /// Whether this run brought the letter back and it failed again: without end, were it brought back again. A letter
    /// of another run is taken for our own only where that run's clock is ahead of ours; it waits for the next run then.
    fn is_own(&self, record: &RecordView<'_>) -> bool {
        let names = self.core.stamper.names();
        let value = |name: &str| record.headers.last(name.as_bytes()).flatten();
        value(names.redriven_from()) == Some(self.plan.from.as_bytes())
            && value(names.redriven_at())
                .and_then(|at| std::str::from_utf8(at).ok())
                .and_then(instant::parse)
                .is_some_and(|at| (self.began..=self.core.clock.now()).contains(&at))
    }

    fn letter(&self, assigned: &Assigned, record: &RecordView<'_>) -> DeadLetter {
        let headers = record.headers.iter().map(|(name, value)| Header {
            name: Bytes::copy_from_slice(name),
            value: value.map(Bytes::copy_from_slice),
        });
        DeadLetter {
            partition: assigned.partition.clone(),
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            headers: headers.collect(),
            retry: self.core.stamper.names().read_ladder(record.headers).block,
        }
    }

    /// Where a letter goes: where the run says, else where it says it was first, be the rest of its block valid or not.
    fn target(&self, assigned: &Assigned, record: &RecordView<'_>) -> Result<Topic, HarborError> {
        if let Some(to) = &self.plan.to {
            return Ok(to.clone());
        }
        let name = self.core.stamper.names().original_topic();
        let told = record.headers.last(name.as_bytes()).flatten().map(String::from_utf8_lossy);
        let refused = |why: &str| {
            let place = format_args!("the letter at {}, offset {} {why}", assigned.partition, record.offset);
            HarborError::from(ConfigError::one("to", place))
        };
        match told {
            Some(topic) if !text::is_blank(&topic) && topic != self.plan.from.as_str() => Ok(topic.as_ref().into()),
            Some(topic) if topic == self.plan.from.as_str() => {
                Err(refused("names the very topic that is redriven: its letters would never end"))
            }
            _ => Err(refused("does not say where it was first, so it needs a target")),
        }
    }

    /// Writes a chunk, commits it, and counts. Tells whether the partition is still ours.
    async fn settle(
        &mut self,
        assigned: &Assigned,
        chunk: Chunk,
        handle: &dyn MembershipHandle,
    ) -> Result<bool, HarborError> {
        let Some(mut next) = chunk.next else { return Ok(true) };
        let Chunk { records, mut letters, skipped, .. } = chunk;
        let targets: Vec<Topic> = records.iter().map(|record| record.topic.clone()).collect();
        let mut failed = None;
        if !records.is_empty() {
            let observers = &self.core.observers;
            if let Err(error) = publish(&*self.publisher, records, ProduceKind::Redrive, observers).await {
                // Up to the first that was not acknowledged they are back, and are not to be brought back twice.
                let acknowledged = error.outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
                if let Some(stuck) = letters.get(acknowledged) {
                    next = stuck.offset;
                }
                letters.truncate(acknowledged);
                failed = Some(HarborError::from(error));
            }
        }
        self.report.reprocessed += letters.len() as u64;
        // What was skipped beyond a stuck letter is skipped again by the next run.
        self.report.skipped += skipped.iter().filter(|offset| **offset < next).count() as u64;
        let position = Position { assigned: assigned.clone(), offset: next, note: None };
        let committed = handle.settle(vec![position]).await;
        let ours = match committed {
            Ok(()) => {
                self.tell(assigned, &letters, &targets);
                true
            }
            Err(error) => self.not_committed(assigned, next, letters.len(), &error),
        };
        match failed {
            Some(error) => {
                self.report_error(&error, ErrorScope::Producer);
                Err(error)
            }
            None => Ok(ours),
        }
    }

    /// Tells of letters that are back and committed.
    fn tell(&self, assigned: &Assigned, letters: &[Letter], targets: &[Topic]) {
        for (letter, to) in letters.iter().zip(targets) {
            self.core.observers.message_redriven(&MessageRedriven {
                from: &self.plan.from,
                to,
                partition: assigned.partition.partition,
                offset: letter.offset,
                group: &self.plan.group,
                correlation_id: letter.correlation_id.as_deref(),
            });
        }
    }

    /// The letters are back but not committed: the run goes on, and the next one may bring them back again.
    fn not_committed(&self, assigned: &Assigned, next: Offset, withheld: usize, error: &SettleError) -> bool {
        let failure = error.failures.iter().find(|failure| &failure.position.assigned == assigned);
        let lost = failure.is_some_and(|failure| failure.lost);
        let text = TextForm::Bytes.bounded(error.to_string());
        self.core.observers.commit_failed(&CommitFailed {
            group: &self.plan.group,
            partition: &assigned.partition,
            offset: next,
            withheld,
            lost,
            error: ErrorInfo {
                error,
                name: "AdapterError",
                code: code::ADAPTER,
                text: &text,
                retryable: failure.is_none_or(|failure| failure.error.retryable),
            },
        });
        !lost
    }

    fn report_failure(&self, failure: &Failure) {
        let text = failure.last_error(TextForm::Bytes);
        self.report(failure.told(&text), ErrorScope::Consumer);
    }

    fn report_error(&self, error: &HarborError, scope: ErrorScope) {
        let text = error.text();
        self.report(error.told(&text), scope);
    }

    fn report(&self, error: ErrorInfo<'_>, scope: ErrorScope) {
        self.core.observers.error(&ErrorReported {
            error,
            scope,
            group: Some(&self.plan.group),
            topic: Some(&self.plan.from),
        });
    }
}

impl Chunk {
    /// Letters, skipped ones among them.
    fn len(&self) -> u64 {
        (self.letters.len() + self.skipped.len()) as u64
    }
}

/// Leaves the group when the run is dropped half way.
struct LeaveOnDrop(Option<Arc<dyn MembershipHandle>>);

impl LeaveOnDrop {
    async fn now(mut self) {
        if let Some(handle) = self.0.take()
            && let Err(error) = handle.leave(LEAVE_TIMEOUT).await
        {
            tracing::warn!(%error, "the redrive's group was not left in order");
        }
    }
}

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { handle.leave(LEAVE_TIMEOUT).await });
        }
    }
}

/// The last value under this name, if it is text.
fn text_of(name: &str, headers: &[Header]) -> Option<String> {
    let header = headers.iter().rev().find(|header| header.name == name)?;
    String::from_utf8(header.value.as_ref()?.to_vec()).ok()
}

/// Letters that are written and committed together. A crash between the two repeats no more than these.
const CHUNK: u64 = 100;

/// The broker drops a member that does not leave; there is no use in waiting long.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
