//! One partition of a run: its letters, batch by batch, chunk by chunk.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::sleep_until;

use crate::adapter::{
    AdapterError, AdapterErrorKind, Assigned, MembershipHandle, PartitionBatch, Position, SettleError,
};
use crate::harbor::cancel::CancelSignal;
use crate::harbor::error::{ConfigError, HarborError, code};
use crate::harbor::failure::{Failure, TextForm};
use crate::harbor::producer::publish;
use crate::harbor::redrive::DeadLetter;
use crate::harbor::redrive::place::{self, Place};
use crate::harbor::redrive::report::reason_of;
use crate::harbor::redrive::work::Work;
use crate::harbor::{instant, text};
use crate::observe::{CommitFailed, ErrorInfo, ErrorScope, MessageRedriven, ProduceKind};
use crate::protocol::batch::BatchError;
use crate::record::{Header, Offset, Record, RecordView, Topic};

/// A batch of a partition at work. Everything of it that the driver has to know comes back with [`Finished`].
pub(super) struct Lane {
    pub(super) work: Arc<Work>,
    pub(super) handle: Arc<dyn MembershipHandle>,
    pub(super) assigned: Assigned,
    /// What is done, and committed but for what the broker refused.
    pub(super) place: Place,
    /// Where the reading of the partition goes on.
    pub(super) read: Offset,
    /// Where the partition ends for this run, if it does.
    pub(super) end: Option<Offset>,
    /// Fires when the partition has to go, or the run to end.
    pub(super) stop: CancelSignal,
}

/// A lane after its batch.
pub(super) struct Finished {
    pub(super) assigned: Assigned,
    pub(super) place: Place,
    pub(super) read: Offset,
    /// What follows.
    pub(super) then: Result<Then, HarborError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The partition's next batch.
    GoOn,
    /// Nothing: the run has nothing more to do there.
    Through,
    /// Nothing: it was told to end, has brought back enough, or the partition is another's.
    Stop,
}

/// Letters that are brought back together, and what is committed after them.
#[derive(Default)]
struct Chunk {
    records: Vec<Record>,
    /// One a record.
    letters: Vec<Letter>,
    /// Letters that are passed, and why.
    passed: Vec<(Offset, Passed)>,
    /// What is done when all of them are.
    done: Vec<(Offset, Offset)>,
}

/// What is told of a letter once it is committed.
struct Letter {
    offset: Offset,
    correlation_id: Option<String>,
    reason: String,
}

/// Why a letter is passed.
#[derive(Clone, Copy)]
enum Passed {
    Skipped,
    Exhausted,
    WithoutTarget,
}

/// What becomes of a record of the topic.
enum Step {
    Redrive(Record, Letter),
    Pass(Passed),
    /// It was done before.
    Done,
    /// It is left as it is, uncommitted.
    Leave,
    /// This run has nothing to do with it, nor with what follows in its partition.
    NotOurs,
    /// The run was told to end before it was known, or has enough.
    Interrupted,
}

impl Lane {
    /// Brings back what is wanted of a batch.
    pub(super) async fn batch(mut self, batch: PartitionBatch) -> Finished {
        let then = self.through(&batch).await;
        Finished { assigned: self.assigned, place: self.place, read: self.read, then }
    }

    async fn through(&mut self, batch: &PartitionBatch) -> Result<Then, HarborError> {
        let most = self.work.pace.chunk(CHUNK);
        // What lies between where reading stood and where the batch begins is no more.
        let mut cursor = self.read.min(batch.records.begins_at());
        let mut chunk = Chunk::default();
        for record in batch.records.iter() {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    self.settle(chunk).await?;
                    return Err(self.unreadable(error));
                }
            };
            match self.step(&record, chunk.goes_on_at(cursor)).await {
                Ok(Step::Redrive(redriven, letter)) => {
                    chunk.records.push(redriven);
                    chunk.letters.push(letter);
                }
                Ok(Step::Pass(passed)) => chunk.passed.push((record.offset, passed)),
                Ok(Step::Done) => {}
                Ok(Step::Leave) => {
                    cursor = record.offset.next();
                    continue;
                }
                Ok(Step::NotOurs) => {
                    self.handle.pause(&self.assigned);
                    return Ok(if self.settle(chunk).await? { Then::Through } else { Then::Stop });
                }
                Ok(Step::Interrupted) => {
                    self.settle(chunk).await?;
                    return Ok(Then::Stop);
                }
                Err(error) => {
                    // What went before it is brought back all the same.
                    self.settle(chunk).await?;
                    return Err(error);
                }
            }
            chunk.mark_done(cursor, record.offset.next());
            cursor = record.offset.next();
            if chunk.is_full(most) && !self.settle(std::mem::take(&mut chunk)).await? {
                return Ok(Then::Stop);
            }
        }
        // Behind the last letter may lie what is no record.
        self.read = batch.records.next_offset();
        chunk.mark_done(cursor, self.read);
        if !self.settle(chunk).await? {
            return Ok(Then::Stop);
        }
        Ok(if self.end.is_some_and(|end| self.read >= end) { Then::Through } else { Then::GoOn })
    }

    /// The broker's log holds what is no record, or it was damaged on the way: nothing behind it can be taken.
    fn unreadable(&self, error: BatchError) -> HarborError {
        let what = format_args!("{}: a record cannot be read", self.assigned.partition);
        let name = self.work.core.adapter.name();
        AdapterError::new(name, AdapterErrorKind::Refused, what).with_source(error).into()
    }

    /// What becomes of one record, which follows on what is done already, or begins a range of its own.
    async fn step(&self, record: &RecordView<'_>, follows: bool) -> Result<Step, HarborError> {
        let plan = &self.work.plan;
        if self.end.is_some_and(|end| record.offset >= end) || (!plan.dry_run && self.is_own(record)) {
            return Ok(Step::NotOurs);
        }
        if self.place.has(record.offset) {
            return Ok(Step::Done);
        }
        if !plan.selection.has(record) {
            return Ok(Step::Leave);
        }
        if !follows && !self.place.takes(record.offset) {
            return Err(self.too_scattered(record.offset).into());
        }
        if self.is_told_to_end() || !self.work.takes_one() {
            return Ok(Step::Interrupted);
        }
        let step = self.wanted(record).await;
        if !matches!(step, Ok(Step::Redrive(..) | Step::Pass(_))) {
            self.work.give_back(1);
        }
        step
    }

    fn is_told_to_end(&self) -> bool {
        self.stop.is_cancelled() || self.work.plan.cancel.is_cancelled() || self.work.core.check_open().is_err()
    }

    /// Asks the filter, looks how often the letter was brought back, and where it goes.
    async fn wanted(&self, record: &RecordView<'_>) -> Result<Step, HarborError> {
        let Work { core, plan, .. } = &*self.work;
        let redrives = core.stamper.names().redrives_of(record.headers);
        if plan.filter.is_set() {
            let verdict = tokio::select! {
                biased;
                verdict = plan.filter.wants(self.letter(record, redrives)) => verdict,
                () = self.stop.cancelled() => return Ok(Step::Interrupted),
                () = plan.cancel.cancelled() => return Ok(Step::Interrupted),
                () = core.closing() => return Ok(Step::Interrupted),
            };
            match verdict {
                Ok(true) => {}
                Ok(false) => return Ok(Step::Pass(Passed::Skipped)),
                Err(failure) if failure.is_serialization() => {
                    self.report_failure(&failure);
                    return Ok(Step::Pass(Passed::Skipped));
                }
                Err(failure) => return Err(HarborError::Handler(failure)),
            }
        }
        if redrives >= plan.max_redrives {
            tracing::debug!(partition = %self.assigned.partition, offset = record.offset.0, redrives, "brought back too often");
            return Ok(Step::Pass(Passed::Exhausted));
        }
        let to = match self.target(record) {
            Err(_) if plan.dry_run => return Ok(Step::Pass(Passed::WithoutTarget)),
            to => to?,
        };
        Ok(self.redrive(record, to))
    }

    fn redrive(&self, record: &RecordView<'_>, to: Topic) -> Step {
        let core = &self.work.core;
        let names = core.stamper.names();
        let headers = core.stamper.at(core.clock.now()).redrive(record.headers, &self.work.plan.from);
        let last_error = record.headers.last(names.last_error().as_bytes()).flatten().map(String::from_utf8_lossy);
        let letter = Letter {
            offset: record.offset,
            correlation_id: text_of(names.correlation_id(), &headers),
            reason: reason_of(&last_error.unwrap_or_default()),
        };
        let record = Record {
            topic: to,
            partition: None,
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            headers,
            timestamp: None,
        };
        Step::Redrive(record, letter)
    }

    fn too_scattered(&self, offset: Offset) -> ConfigError {
        let why = format_args!(
            "leaves more letters of {} between those it brings back than a group can remember: stopped at offset {offset}; \
             take smaller ranges, or a group of its own",
            self.assigned.partition
        );
        ConfigError::one("times", why)
    }

    /// Whether this run brought the letter back and it failed again: without end, were it brought back again. A letter
    /// of another run is taken for our own only where that run's clock is ahead of ours; it waits for the next run then.
    fn is_own(&self, record: &RecordView<'_>) -> bool {
        let Work { core, plan, began, .. } = &*self.work;
        let names = core.stamper.names();
        let value = |name: &str| record.headers.last(name.as_bytes()).flatten();
        value(names.redriven_from()) == Some(plan.from.as_bytes())
            && value(names.redriven_at())
                .and_then(|at| std::str::from_utf8(at).ok())
                .and_then(instant::parse)
                .is_some_and(|at| (*began..=core.clock.now()).contains(&at))
    }

    fn letter(&self, record: &RecordView<'_>, redrives: u32) -> DeadLetter {
        let headers = record.headers.iter().map(|(name, value)| Header {
            name: Bytes::copy_from_slice(name),
            value: value.map(Bytes::copy_from_slice),
        });
        DeadLetter {
            partition: self.assigned.partition.clone(),
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            headers: headers.collect(),
            retry: self.work.core.stamper.names().read_ladder(record.headers).block,
            redrives,
        }
    }

    /// Where a letter goes: where the run says, else where it says it was first, be the rest of its block valid or not.
    fn target(&self, record: &RecordView<'_>) -> Result<Topic, HarborError> {
        let Work { core, plan, .. } = &*self.work;
        if let Some(to) = &plan.to {
            return Ok(to.clone());
        }
        let name = core.stamper.names().original_topic();
        let told = record.headers.last(name.as_bytes()).flatten().map(String::from_utf8_lossy);
        let refused = |why: &str| {
            let place = format_args!("the letter at {}, offset {} {why}", self.assigned.partition, record.offset);
            HarborError::from(ConfigError::one("to", place))
        };
        match told {
            Some(topic) if !text::is_blank(&topic) && topic != plan.from.as_str() => Ok(topic.as_ref().into()),
            Some(topic) if topic == plan.from.as_str() => {
                Err(refused("names the very topic that is redriven: its letters would never end"))
            }
            _ => Err(refused("does not say where it was first, so it needs a target")),
        }
    }

    /// Writes a chunk, commits it, and counts. Tells whether the partition is still ours.
    async fn settle(&mut self, chunk: Chunk) -> Result<bool, HarborError> {
        let work = self.work.clone();
        let counted = chunk.len();
        if !self.is_time(&chunk).await {
            work.give_back(counted);
            return Ok(false);
        }
        let Chunk { records, mut letters, passed, done } = chunk;
        let targets: Vec<Topic> = records.iter().map(|record| record.topic.clone()).collect();
        // What lies before it is done.
        let mut stuck = Offset(i64::MAX);
        let mut failed = None;
        if !records.is_empty() && !work.plan.dry_run {
            let observers = &work.core.observers;
            if let Err(error) = publish(&*work.publisher, records, ProduceKind::Redrive, observers).await {
                // Up to the first that was not acknowledged they are back, and are not to be brought back twice.
                let acknowledged = error.outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
                stuck = letters.get(acknowledged).map_or(stuck, |letter| letter.offset);
                letters.truncate(acknowledged);
                failed = Some(HarborError::from(error));
            }
        }
        let before = self.place.clone();
        done.into_iter().for_each(|(from, to)| self.place.done(from, to.min(stuck)));
        self.count(&letters, &targets, passed.iter().filter(|(offset, _)| *offset < stuck).map(|(_, passed)| *passed));
        let mut ours = true;
        if self.place != before && !work.plan.dry_run {
            match self.commit().await {
                Ok(()) => self.tell(&letters, &targets),
                Err(error) => ours = self.not_committed(letters.len(), &error),
            }
        }
        work.progress(false);
        match failed {
            Some(error) => {
                work.report_error(&error, ErrorScope::Producer);
                Err(error)
            }
            None => Ok(ours),
        }
    }

    /// Waits until the chunk may be written; `false` if the run is to end before.
    async fn is_time(&self, chunk: &Chunk) -> bool {
        if self.work.plan.dry_run {
            return true;
        }
        let Some(at) = self.work.pace.take(chunk.letters.len() as u64) else { return true };
        tokio::select! {
            biased;
            () = sleep_until(at) => true,
            () = self.stop.cancelled() => false,
            () = self.work.plan.cancel.cancelled() => false,
            () = self.work.core.closing() => false,
        }
    }

    fn count(&self, letters: &[Letter], targets: &[Topic], passed: impl Iterator<Item = Passed>) {
        let mut report = self.work.report();
        report.reprocessed += letters.len() as u64;
        for (letter, target) in letters.iter().zip(targets) {
            report.count_reason(letter.reason.clone());
            report.add_target(target);
        }
        // What was passed beyond a stuck letter is passed again by the next run.
        for passed in passed {
            match passed {
                Passed::Skipped => report.skipped += 1,
                Passed::Exhausted => report.exhausted += 1,
                Passed::WithoutTarget => report.without_target += 1,
            }
        }
    }

    async fn commit(&self) -> Result<(), SettleError> {
        let (assigned, offset) = (self.assigned.clone(), self.place.next());
        self.handle.settle(vec![Position { assigned, offset, note: self.place.note() }]).await
    }

    /// Tells of letters that are back and committed.
    fn tell(&self, letters: &[Letter], targets: &[Topic]) {
        for (letter, to) in letters.iter().zip(targets) {
            self.work.core.observers.message_redriven(&MessageRedriven {
                from: &self.work.plan.from,
                to,
                partition: self.assigned.partition.partition,
                offset: letter.offset,
                group: &self.work.group,
                correlation_id: letter.correlation_id.as_deref(),
            });
        }
    }

    /// The letters are back but not committed: the run goes on, and the next one may bring them back again.
    fn not_committed(&self, withheld: usize, error: &SettleError) -> bool {
        let failure = error.failures.iter().find(|failure| failure.position.assigned == self.assigned);
        let lost = failure.is_some_and(|failure| failure.lost);
        let text = TextForm::Bytes.bounded(error.to_string());
        self.work.core.observers.commit_failed(&CommitFailed {
            group: &self.work.group,
            partition: &self.assigned.partition,
            offset: self.place.next(),
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
        self.work.tell_error(failure.told(&text), ErrorScope::Consumer);
    }
}

impl Chunk {
    /// Letters that `max` counts.
    fn len(&self) -> u64 {
        (self.letters.len() + self.passed.len()) as u64
    }

    fn is_full(&self, most: u64) -> bool {
        self.len() >= most || self.done.len() >= place::MOST_AT_ONCE
    }

    /// Whether what is done next at this offset begins no range of its own.
    fn goes_on_at(&self, offset: Offset) -> bool {
        self.done.last().is_some_and(|(_, end)| *end == offset)
    }

    fn mark_done(&mut self, from: Offset, to: Offset) {
        match self.done.last_mut() {
            Some((_, end)) if *end == from => *end = to,
            _ => self.done.push((from, to)),
        }
    }
}

/// The last value under this name, if it is text.
fn text_of(name: &str, headers: &[Header]) -> Option<String> {
    let header = headers.iter().rev().find(|header| header.name == name)?;
    String::from_utf8(header.value.as_ref()?.to_vec()).ok()
}

/// Letters that are written and committed together. A crash between the two repeats no more than these in each partition
/// that is at work.
const CHUNK: u64 = 100;
