//! One run of an undo: who reads, what comes next for them, and the steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout;

use crate::adapter::{
    AdapterError, AdapterErrorKind, Assigned, CommittedOffset, Event, EventSource, GroupPositions, JoinOptions,
    Membership, MembershipHandle, PartitionBatch, PartitionWatermarks, Publisher, PublisherOptions, ReadingGroup,
    ResumeFrom, Start, TopicSubscription,
};
use crate::harbor::core::Core;
use crate::harbor::correlation::uuid_v4;
use crate::harbor::error::HarborError;
use crate::harbor::instant;
use crate::harbor::memo::Memo;
use crate::harbor::producer::publish;
use crate::harbor::redrive::leaving::LeaveOnDrop;
use crate::harbor::redrive::undo::{UndoError, UndoLeft, UndoObstacle, UndoPlan, UndoReport, not_passed};
use crate::observe::ProduceKind;
use crate::record::{Offset, Record, RecordView, Topic, TopicPartition};

/// An undo under way.
pub(super) struct Taking {
    core: Arc<Core>,
    positions: Arc<dyn GroupPositions>,
    publisher: Arc<dyn Publisher>,
    plan: UndoPlan,
    report: UndoReport,
    /// What is to be read, and not read to its end yet.
    parts: BTreeMap<TopicPartition, Part>,
}

/// A partition that letters may have been brought to.
struct Part {
    /// Where reading begins: the place of the group that is last.
    from: Offset,
    end: Offset,
    /// Where each group stands.
    readers: Vec<CommittedBy>,
    /// Why nothing more is taken back here; what is left is counted.
    obstacle: Option<UndoObstacle>,
    /// Letters of the redrive that are left.
    left: u64,
}

/// Where a group stands on one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CommittedBy {
    group: String,
    /// `None` where it has committed on other partitions of the topic only.
    committed: Option<(Offset, Option<String>)>,
}

impl Taking {
    pub(super) fn new(
        core: Arc<Core>,
        positions: Arc<dyn GroupPositions>,
        plan: UndoPlan,
    ) -> Result<Self, HarborError> {
        let retry = PublisherOptions::with_retry(core.produce_retry.clone());
        let publisher = core.adapter.publisher(retry)?;
        let report = UndoReport::of(&plan);
        Ok(Self { core, positions, publisher, plan, report, parts: BTreeMap::new() })
    }

    pub(super) async fn through(mut self) -> Result<UndoReport, UndoError> {
        match self.take_back().await {
            Ok(()) => Ok(self.report),
            Err(source) => Err(UndoError { report: self.report, source }),
        }
    }

    async fn take_back(&mut self) -> Result<(), HarborError> {
        let (core, cancel) = (self.core.clone(), self.plan.cancel.clone());
        let joined = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            () = core.closing() => None,
            joined = self.look_and_join() => Some(joined?),
        };
        // A join that comes late leaves by itself.
        let Some(joined) = joined else {
            self.report.cancelled = true;
            return Ok(());
        };
        let Some(Membership { mut events, handle }) = joined else { return Ok(()) };
        let leaving = LeaveOnDrop(Some(handle.clone()));
        let read = self.read(&mut *events, &*handle).await;
        leaving.now().await;
        read
    }

    /// Finds out what is to be read, and joins a group that reads it; none, if there is nothing.
    async fn look_and_join(&mut self) -> Result<Option<Membership>, HarborError> {
        let topics: Vec<Topic> = self.plan.topics.iter().cloned().collect();
        let watermarks = self.core.adapter.watermarks(&topics).await?;
        self.leave_leaderless(&topics, &watermarks).await?;
        let groups = self.quiet_groups(&topics).await?;
        for found in watermarks {
            let partition = found.partition.clone();
            match part(&found, readers(&groups, &partition)) {
                Ok(part) if part.from < part.end => drop(self.parts.insert(partition, part)),
                Ok(_) => {}
                Err(why) if found.low < found.high => self.leave(partition, None, why),
                Err(_) => {}
            }
        }
        if self.parts.is_empty() {
            return Ok(None);
        }
        let subscriptions = topics.into_iter().map(|topic| TopicSubscription { topic, start: Start::Earliest });
        let group = format!("{}-undo-{}", self.plan.from, uuid_v4());
        Ok(Some(self.core.adapter.join(JoinOptions::new(group, subscriptions.collect())).await?))
    }

    async fn leave_leaderless(&mut self, topics: &[Topic], led: &[PartitionWatermarks]) -> Result<(), HarborError> {
        for described in self.core.adapter.describe_topics(topics).await?.into_iter().flatten() {
            for number in 0..described.partitions {
                let partition = TopicPartition::new(&described.topic, number);
                if led.iter().all(|found| found.partition != partition) {
                    self.leave(partition, None, UndoObstacle::NoLeader);
                }
            }
        }
        Ok(())
    }

    /// The groups that read the topics.
    async fn quiet_groups(&self, topics: &[Topic]) -> Result<Vec<ReadingGroup>, HarborError> {
        let groups = self.positions.groups_of(topics).await?;
        // Ours reads too, and commits nothing.
        let own = format!("{}-undo-", self.plan.from);
        let groups: Vec<_> = groups.into_iter().filter(|found| !found.group.starts_with(&own)).collect();
        match groups.iter().find(|found| found.members > 0) {
            None => Ok(groups),
            Some(found) => {
                let of_group = found.committed.first().map(|committed| committed.partition.topic.clone());
                let topic = of_group.or_else(|| topics.first().cloned()).unwrap_or_else(|| self.plan.from.clone());
                Err(HarborError::StillRead { group: found.group.clone(), topic, members: found.members })
            }
        }
    }

    fn leave(&mut self, partition: TopicPartition, letters: Option<u64>, why: UndoObstacle) {
        self.report.left.insert(partition, UndoLeft { letters, why });
    }

    async fn read(&mut self, events: &mut dyn EventSource, handle: &dyn MembershipHandle) -> Result<(), HarborError> {
        let (core, cancel) = (self.core.clone(), self.plan.cancel.clone());
        while !self.parts.is_empty() {
            if self.is_told_to_end() {
                self.report.cancelled = true;
                return Ok(());
            }
            let event = tokio::select! {
                biased;
                () = cancel.cancelled() => continue,
                () = core.closing() => continue,
                event = timeout(self.plan.idle_timeout, events.next()) => event,
            };
            match event.map_err(|_| self.unavailable("nothing could be read in time"))? {
                Some(Event::Assigned(assignments)) => {
                    for assignment in assignments {
                        self.begin(&assignment.assigned, handle);
                    }
                }
                Some(Event::Batch(batch)) => self.batch(&batch).await?,
                Some(Event::Fault(error)) => tracing::warn!(%error, "while a redrive is undone"),
                // The group is this run's alone: only a topic that is deleted takes partitions away.
                Some(Event::Revoked(gone, _) | Event::Lost(gone)) => {
                    gone.iter().for_each(|gone| drop(self.parts.remove(&gone.partition)));
                }
                Some(Event::Delivered(_)) => {}
                None => return Err(HarborError::Closed { what: "the membership" }),
            }
        }
        Ok(())
    }

    fn is_told_to_end(&self) -> bool {
        self.plan.cancel.is_cancelled() || self.core.check_open().is_err()
    }

    fn begin(&self, assigned: &Assigned, handle: &dyn MembershipHandle) {
        match self.parts.get(&assigned.partition) {
            Some(part) => handle.resume(assigned, ResumeFrom::Offset(part.from)),
            None => handle.pause(assigned),
        }
    }

    fn unavailable(&self, what: &str) -> HarborError {
        let what = format_args!("undoing a redrive of {}: {what}", self.plan.from);
        AdapterError::new(self.core.adapter.name(), AdapterErrorKind::Unavailable, what).into()
    }

    /// Takes back what is next, and counts what is left.
    async fn batch(&mut self, batch: &PartitionBatch) -> Result<(), HarborError> {
        let partition = &batch.assigned.partition;
        let Some(mut part) = self.parts.remove(partition) else { return Ok(()) };
        let mut letters: Vec<(Offset, Record)> = Vec::new();
        for record in batch.records.iter() {
            let record = record.map_err(|error| {
                let what = format_args!("{partition}: a record cannot be read");
                AdapterError::new(self.core.adapter.name(), AdapterErrorKind::Refused, what).with_source(error)
            })?;
            if record.offset < part.from || record.offset >= part.end {
                continue;
            }
            let ours = self.is_of_the_redrive(&record);
            if part.obstacle.is_none() {
                part.obstacle = part.obstacle_at(record.offset, ours);
            }
            if part.obstacle.is_some() {
                part.left += u64::from(ours);
                continue;
            }
            letters.push((record.offset, self.letter(partition, &record)));
            if letters.len() >= CHUNK {
                self.step(partition, &mut part, std::mem::take(&mut letters)).await?;
                if self.is_told_to_end() {
                    // The loop ends by it: the partition is not through.
                    self.parts.insert(partition.clone(), part);
                    return Ok(());
                }
            }
        }
        self.step(partition, &mut part, letters).await?;
        part.from = part.from.max(batch.records.next_offset());
        if part.from < part.end {
            self.parts.insert(partition.clone(), part);
        } else if let Some(why) = part.obstacle.filter(|_| part.left > 0) {
            self.leave(partition.clone(), Some(part.left), why);
        }
        Ok(())
    }

    fn is_of_the_redrive(&self, record: &RecordView<'_>) -> bool {
        let names = self.core.stamper.names();
        let value = |name: &str| record.headers.last(name.as_bytes()).flatten();
        let at = value(names.redriven_at()).and_then(|at| std::str::from_utf8(at).ok()).and_then(instant::parse);
        value(names.redriven_from()) == Some(self.plan.from.as_bytes())
            && at.is_some_and(|at| self.plan.times.has(at.0))
    }

    fn letter(&self, partition: &TopicPartition, record: &RecordView<'_>) -> Record {
        let error = format!("RedriveUndone: taken back from {partition}, offset {}", record.offset);
        let stamp = self.core.stamper.at(self.core.clock.now());
        Record {
            topic: self.plan.from.clone(),
            partition: None,
            key: record.key.map(Bytes::copy_from_slice),
            value: record.value.map(Bytes::copy_from_slice),
            headers: stamp.take_back(record.headers, &partition.topic, &error),
            timestamp: None,
        }
    }

    /// Copies letters back, then moves every group behind them.
    async fn step(
        &mut self,
        partition: &TopicPartition,
        part: &mut Part,
        letters: Vec<(Offset, Record)>,
    ) -> Result<(), HarborError> {
        let Some((last, _)) = letters.last() else { return Ok(()) };
        let (mut next, mut taken) = (last.next(), letters.len());
        if self.plan.dry_run {
            self.report.taken_back += taken as u64;
            return Ok(());
        }
        self.check_unchanged(partition, part).await?;
        let (offsets, records): (Vec<Offset>, Vec<Record>) = letters.into_iter().unzip();
        let observers = &self.core.observers;
        let mut failed = None;
        if let Err(error) = publish(&*self.publisher, records, ProduceKind::DeadLetter, observers).await {
            taken = error.outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
            next = offsets.get(taken).copied().unwrap_or(next);
            failed = Some(HarborError::from(error));
        }
        if taken > 0 {
            self.report.taken_back += taken as u64;
            self.pass(partition, part, next).await?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Refuses to go on where a group has read since it was looked at.
    async fn check_unchanged(&self, partition: &TopicPartition, part: &Part) -> Result<(), HarborError> {
        let groups = self.quiet_groups(std::slice::from_ref(&partition.topic)).await?;
        let now = readers(&groups, partition);
        let known = |reader: &&CommittedBy| part.readers.contains(reader);
        let changed =
            now.iter().find(|reader| !known(reader)).or(part.readers.iter().find(|known| !now.contains(known)));
        changed.map_or(Ok(()), |reader| {
            let (group, topic) = (reader.group.clone(), partition.topic.clone());
            Err(HarborError::StillRead { group, topic, members: 0 })
        })
    }

    /// Moves every group; the first that could not be moved is told when all were tried.
    async fn pass(&self, partition: &TopicPartition, part: &mut Part, next: Offset) -> Result<(), HarborError> {
        let mut failed = None;
        for reader in &mut part.readers {
            let note = reader.committed.take().and_then(|(_, note)| note);
            let place = CommittedOffset { partition: partition.clone(), offset: next, note: note.clone() };
            if let Err(error) = self.positions.set_committed(&reader.group, std::slice::from_ref(&place)).await {
                failed.get_or_insert_with(|| not_passed(&reader.group, partition, next, error));
            }
            reader.committed = Some((next, note));
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Part {
    /// Why nothing at this offset, or behind it, can be taken back.
    fn obstacle_at(&self, offset: Offset, ours: bool) -> Option<UndoObstacle> {
        let stands = |reader: &CommittedBy| reader.committed.as_ref().map(|(at, _)| *at);
        let read_by_others = self.readers.iter().any(|reader| stands(reader).is_some_and(|at| at > offset));
        if read_by_others {
            let behind = self.readers.iter().find(|reader| stands(reader).is_none_or(|at| at <= offset));
            let group = behind.map(|reader| reader.group.clone()).unwrap_or_default();
            return Some(UndoObstacle::Behind { group, offset });
        }
        (!ours).then_some(UndoObstacle::Others { offset })
    }
}

/// Where each group that reads a topic stands on a partition of it.
fn readers(groups: &[ReadingGroup], partition: &TopicPartition) -> Vec<CommittedBy> {
    let of_topic = groups
        .iter()
        .filter(|found| found.committed.iter().any(|committed| committed.partition.topic == partition.topic));
    let readers = of_topic.map(|found| {
        let here = found.committed.iter().find(|committed| committed.partition == *partition);
        CommittedBy {
            group: found.group.clone(),
            committed: here.map(|committed| (committed.offset, committed.note.clone())),
        }
    });
    readers.collect()
}

/// What is to be read of a partition, or why nothing of it can be taken back.
fn part(found: &PartitionWatermarks, readers: Vec<CommittedBy>) -> Result<Part, UndoObstacle> {
    let unclear = readers.iter().find(|reader| match &reader.committed {
        Some((offset, note)) => *offset < found.low || !Memo::can_move(note.as_deref()),
        None => false,
    });
    if let Some(reader) = unclear {
        return Err(UndoObstacle::Unclear { group: reader.group.clone() });
    }
    let stands = |reader: &CommittedBy| reader.committed.as_ref().map_or(found.low, |(at, _)| *at);
    let from = readers.iter().map(stands).min().ok_or(UndoObstacle::NoGroup)?;
    Ok(Part { from, end: found.high, readers, obstacle: None, left: 0 })
}

/// Letters that are copied and passed together. Before each such step the groups are looked at once more.
const CHUNK: usize = 500;
