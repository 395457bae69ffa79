//! A member's place at the broker: what it reads, how far it is, what it is yet to be told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Instant;

use tokio::runtime;

use crate::adapter::memory::MemorySettings;
use crate::adapter::memory::shared::{Shared, now, refused};
use crate::adapter::{
    AdapterError, Assigned, Assignment, AssignmentEpoch, Event, JoinOptions, PartitionBatch, RecordSet, Release,
    ResumeFrom, Start, TopicSubscription,
};
use crate::memory::{Broker, MemberEvent, MemberId, Owned};
use crate::protocol::batch::ReadOptions;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Offset, Timestamp, Topic, TopicPartition};

/// Which member of which group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeatKey {
    pub(super) group: Arc<str>,
    pub(super) member: MemberId,
}

#[derive(Debug)]
pub(super) struct Seat {
    /// The adapter that joined.
    pub(super) session: u64,
    pub(super) ended: bool,
    pub(super) waker: Option<Waker>,
    /// Where to begin on each topic, and how many partitions it had when the member joined.
    starts: BTreeMap<Topic, (Start, i32)>,
    cursors: BTreeMap<TopicPartition, Cursor>,
    /// Whose batch is handed over next: each one that was served goes to the back.
    turns: VecDeque<TopicPartition>,
    events: VecDeque<Event>,
    /// Bytes handed over and not yet dropped.
    held_bytes: usize,
    /// Where revocations are waited for: they may begin outside of any runtime.
    runtime: runtime::Handle,
}

/// How far the reading of one partition is.
#[derive(Debug)]
struct Cursor {
    epoch: AssignmentEpoch,
    /// The next offset to hand over.
    position: Offset,
    /// The next offset that is not settled.
    settled: Offset,
    paused: bool,
    revoking: bool,
}

/// A partition's progress, as [`when_drained`](super::MemoryBroker::when_drained) asks for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    pub(super) settled: Offset,
    pub(super) paused: bool,
}

impl Seat {
    pub(super) fn new(options: &JoinOptions, session: u64, runtime: runtime::Handle, broker: &Broker) -> Self {
        let starts = options.topics.iter().map(|TopicSubscription { topic, start }| {
            (topic.clone(), (*start, broker.partition_count(topic).unwrap_or(0)))
        });
        Self {
            session,
            ended: false,
            waker: None,
            starts: starts.collect(),
            cursors: BTreeMap::new(),
            turns: VecDeque::new(),
            events: VecDeque::new(),
            held_bytes: 0,
            runtime,
        }
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
        self.cursors.clear();
        self.turns.clear();
        self.events.clear();
    }

    /// Takes in what the broker tells the member.
    pub(super) fn handle_event(&mut self, key: &SeatKey, event: MemberEvent, broker: &Broker, shared: &Arc<Shared>) {
        if self.ended {
            return;
        }
        match event {
            MemberEvent::Assigned(owned) => {
                let assignments = owned.into_iter().map(|owned| self.assign(key, owned, broker)).collect();
                self.events.push_back(Event::Assigned(assignments));
            }
            MemberEvent::Revoking(owned, deadline) => self.revoke(key, owned, deadline, shared),
            MemberEvent::Lost(owned) => {
                self.drop_cursors(&owned);
                self.events.push_back(Event::Lost(owned.into_iter().map(assigned).collect()));
            }
        }
    }

    fn assign(&mut self, key: &SeatKey, owned: Owned, broker: &Broker) -> Assignment {
        let committed = broker.committed(&key.group, &owned.partition);
        let range = broker.watermarks(&owned.partition).unwrap_or_default();
        let in_range = committed.map(|c| c.offset).filter(|offset| (range.0..=range.1).contains(offset));
        let position = match (in_range, self.starts.get(&owned.partition.topic)) {
            (Some(offset), _) => offset,
            // All of it was written since the member joined.
            (None, Some((_, count))) if committed.is_none() && owned.partition.partition >= *count => range.0,
            (None, _) => self.start_of(&owned.partition.topic, range),
        };
        let assignment = Assignment {
            committed: committed.map(|c| c.offset),
            note: committed.and_then(|c| c.metadata.clone()),
            position,
            assigned: assigned(owned),
        };
        let Assigned { partition, epoch } = assignment.assigned.clone();
        self.turns.push_back(partition.clone());
        let cursor = Cursor { epoch, position, settled: position, paused: false, revoking: false };
        self.cursors.insert(partition, cursor);
        assignment
    }

    fn start_of(&self, topic: &Topic, (low, high): (Offset, Offset)) -> Offset {
        match self.starts.get(topic).map(|(start, _)| *start).unwrap_or_default() {
            Start::Earliest => low,
            Start::Latest => high,
        }
    }

    /// Tells of a revocation and waits, in a task, until it is answered or late.
    fn revoke(&mut self, key: &SeatKey, owned: Vec<Owned>, deadline: Instant, shared: &Arc<Shared>) {
        for owned in &owned {
            if let Some(cursor) = self.cursors.get_mut(&owned.partition) {
                cursor.revoking = true;
            }
        }
        let (release, released) = Release::new();
        let going = owned.iter().cloned().map(assigned).collect();
        self.events.push_back(Event::Revoked(going, release));

        let (key, shared) = (key.clone(), shared.clone());
        self.runtime.spawn(async move {
            let late = tokio::time::sleep_until(deadline.into());
            tokio::select! {
                // Dropped unsent, the release is given too.
                _ = released => shared.with(|state| {
                    if let Some(seat) = state.seats.get_mut(&key) {
                        seat.drop_cursors(&owned);
                    }
                    state.broker.release(&key.group, key.member, &owned, now());
                }),
                () = late => shared.with(|state| state.broker.handle_timeout(now())),
            }
        });
    }

    fn drop_cursors(&mut self, gone: &[Owned]) {
        for owned in gone {
            if self.cursors.get(&owned.partition).is_some_and(|cursor| cursor.epoch.0 == owned.epoch) {
                self.cursors.remove(&owned.partition);
                self.turns.retain(|partition| *partition != owned.partition);
            }
        }
    }

    /// Whether [`next_event`](Self::next_event) would give something.
    pub(super) fn is_ready(&self, broker: &Broker, settings: &MemorySettings) -> bool {
        self.ended
            || !self.events.is_empty()
            || (self.has_room(settings)
                && self.cursors.iter().any(|(partition, cursor)| cursor.is_behind(partition, broker)))
    }

    /// What the member is told next: what happened to it first, then a batch of the partition whose turn it is.
    pub(super) fn next_event(
        &mut self,
        key: &SeatKey,
        broker: &mut Broker,
        shared: &Arc<Shared>,
        now: Timestamp,
    ) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if !self.has_room(&shared.settings) {
            return None;
        }
        for _ in 0..self.turns.len() {
            let partition = self.turns.pop_front()?;
            self.turns.push_back(partition.clone());
            if self.cursors.get(&partition).is_some_and(|cursor| cursor.is_behind(&partition, broker)) {
                return Some(self.read(key, partition, broker, shared, now));
            }
        }
        None
    }

    fn read(
        &mut self,
        key: &SeatKey,
        partition: TopicPartition,
        broker: &mut Broker,
        shared: &Arc<Shared>,
        now: Timestamp,
    ) -> Event {
        let MemorySettings { batch_records, batch_bytes, .. } = shared.settings;
        let (epoch, from) =
            self.cursors.get(&partition).map_or((AssignmentEpoch(0), Offset(0)), |c| (c.epoch, c.position));
        let encoded = match broker.read(&partition, from, batch_records, batch_bytes, now) {
            Ok(encoded) => encoded,
            Err(code) => return Event::Fault(self.reset(&partition, code, broker)),
        };
        let options = ReadOptions { check_crc: false, ..ReadOptions::default() };
        let views: Vec<_> = encoded.iter().map(|batch| batch.open(&options).expect(CHECKED)).collect();
        let bytes = views.iter().map(|view| view.records_bytes()).sum();
        let records = RecordSet::new(views, from);
        if let Some(cursor) = self.cursors.get_mut(&partition) {
            cursor.position = records.next_offset();
        }
        self.held_bytes += bytes;
        let hold = Hold { shared: Arc::downgrade(shared), key: key.clone(), bytes };
        Event::Batch(PartitionBatch { assigned: Assigned { partition, epoch }, records, hold: Some(Box::new(hold)) })
    }

    /// Goes on where the topic's start says, because what was to be read is gone.
    fn reset(&mut self, partition: &TopicPartition, code: ErrorCode, broker: &Broker) -> AdapterError {
        let range = broker.watermarks(partition).unwrap_or_default();
        let start = self.start_of(&partition.topic, range);
        let mut from = Offset(0);
        if let Some(cursor) = self.cursors.get_mut(partition) {
            from = std::mem::replace(&mut cursor.position, start);
        }
        refused(code, format_args!("{partition} has no offset {from}, reading goes on at {start}"))
    }

    fn has_room(&self, settings: &MemorySettings) -> bool {
        self.held_bytes < settings.buffer_bytes.max(1)
    }

    fn cursor_of(&mut self, assigned: &Assigned) -> Option<&mut Cursor> {
        self.cursors.get_mut(&assigned.partition).filter(|cursor| cursor.epoch == assigned.epoch)
    }

    pub(super) fn pause(&mut self, assigned: &Assigned) {
        if let Some(cursor) = self.cursor_of(assigned) {
            cursor.paused = true;
        }
    }

    pub(super) fn resume(&mut self, assigned: &Assigned, from: ResumeFrom) {
        if let Some(cursor) = self.cursor_of(assigned) {
            cursor.paused = false;
            if let ResumeFrom::Offset(offset) = from {
                cursor.position = offset;
                // What is read again is to be settled again.
                cursor.settled = cursor.settled.min(offset);
            }
        }
    }

    pub(super) fn settled(&mut self, assigned: &Assigned, offset: Offset) {
        if let Some(cursor) = self.cursor_of(assigned) {
            cursor.settled = offset;
        }
    }

    pub(super) fn progress(&self, partition: &TopicPartition) -> Option<Progress> {
        self.cursors.get(partition).map(|cursor| Progress { settled: cursor.settled, paused: cursor.paused })
    }

    pub(super) fn paused(&self) -> impl Iterator<Item = &TopicPartition> {
        self.cursors.iter().filter(|(_, cursor)| cursor.paused).map(|(partition, _)| partition)
    }
}

impl Cursor {
    fn is_behind(&self, partition: &TopicPartition, broker: &Broker) -> bool {
        let end = broker.watermarks(partition).map(|(_, end)| end);
        // A position beyond the end is out of range, and to be reset.
        !self.paused && !self.revoking && end.is_ok_and(|end| self.position != end)
    }
}

/// A batch's share of its membership's byte budget.
struct Hold {
    shared: Weak<Shared>,
    key: SeatKey,
    bytes: usize,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let waker = {
            let mut state = shared.lock();
            let Some(seat) = state.seats.get_mut(&self.key) else { return };
            seat.held_bytes = seat.held_bytes.saturating_sub(self.bytes);
            seat.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

pub(super) fn assigned(owned: Owned) -> Assigned {
    Assigned { partition: owned.partition, epoch: AssignmentEpoch(owned.epoch) }
}

const CHECKED: &str = "a batch in the log was opened when it was appended";
