//! A membership, read step by step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::adapter::{
    Adapter, Assigned, Assignment, Event, JoinOptions, Membership, MembershipHandle, PartitionBatch, Position, Release,
    Start, TopicSubscription,
};
use crate::record::{Header, Offset, RecordView, Timestamp, TopicPartition};
use crate::testing::contract::Fixture;
use crate::testing::contract::fixture::within;

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) partition: i32,
    pub(super) offset: Offset,
    pub(super) timestamp: Timestamp,
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    pub(super) headers: Vec<Header>,
}

impl Got {
    /// The value as text.
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(self.value.as_deref().expect("a value")).expect("text")
    }
}

/// One member of a group, with what it was assigned.
pub(super) struct Reader<'a> {
    fixture: &'a dyn Fixture,
    membership: Membership,
    pub(super) assigned: BTreeMap<TopicPartition, Assignment>,
    got: Vec<Got>,
}

impl<'a> Reader<'a> {
    /// Joins; releases at once whatever is revoked.
    pub(super) async fn join(
        fixture: &'a dyn Fixture,
        adapter: &Arc<dyn Adapter>,
        group: &str,
        topic: &str,
        start: Start,
    ) -> Self {
        let options = JoinOptions::new(group, vec![TopicSubscription { topic: topic.into(), start }]);
        let membership = within(fixture, "joining", adapter.join(options)).await.expect("the group can be joined");
        Self { fixture, membership, assigned: BTreeMap::new(), got: Vec::new() }
    }

    /// Joins, reads from the oldest record on, and waits until it has all `partitions`.
    pub(super) async fn alone(
        fixture: &'a dyn Fixture,
        adapter: &Arc<dyn Adapter>,
        group: &str,
        topic: &str,
        partitions: usize,
    ) -> Self {
        let mut reader = Self::join(fixture, adapter, group, topic, Start::Earliest).await;
        reader.until_assigned(partitions).await;
        reader
    }

    pub(super) fn handle(&self) -> &dyn MembershipHandle {
        &*self.membership.handle
    }

    /// The assignment of a partition that it has.
    pub(super) fn has(&self, partition: i32) -> Assigned {
        let found = self.assigned.values().find(|assignment| assignment.assigned.partition.partition == partition);
        found.map(|assignment| assignment.assigned.clone()).expect("the partition is assigned")
    }

    /// Waits until it has this many partitions.
    pub(super) async fn until_assigned(&mut self, partitions: usize) {
        while self.assigned.len() != partitions {
            let what = format!("the assignment of {partitions} partitions ({} so far)", self.assigned.len());
            let event = within(self.fixture, &what, self.membership.events.next()).await;
            self.take(event.expect("the membership goes on"));
        }
    }

    /// The next `count` records.
    pub(super) async fn records(&mut self, count: usize) -> Vec<Got> {
        while self.got.len() < count {
            let what = format!("record {} of {count}", self.got.len() + 1);
            let event = within(self.fixture, &what, self.membership.events.next()).await;
            self.take(event.expect("the membership goes on"));
        }
        self.got.drain(..count).collect()
    }

    /// The next `count` records of partitions other than this one, whose records are dropped.
    pub(super) async fn records_beside(&mut self, partition: i32, count: usize) -> Vec<Got> {
        let mut beside = Vec::with_capacity(count);
        while beside.len() < count {
            beside.extend(self.records(1).await.into_iter().filter(|got| got.partition != partition));
        }
        beside
    }

    /// The next batch, with its share of the byte budget.
    pub(super) async fn batch(&mut self) -> PartitionBatch {
        loop {
            let event = within(self.fixture, "a batch", self.membership.events.next()).await;
            match event.expect("the membership goes on") {
                Event::Batch(batch) => return batch,
                other => self.take(other),
            }
        }
    }

    /// Waits for a revocation, and leaves it unanswered. Batches that come before it are let go.
    pub(super) async fn revoked(&mut self) -> (Vec<Assigned>, Release) {
        loop {
            let event = within(self.fixture, "a revocation", self.membership.events.next()).await;
            match event.expect("the membership goes on") {
                Event::Revoked(going, release) if !going.is_empty() => return (going, release),
                other => self.take(other),
            }
        }
    }

    /// What comes while nothing should.
    pub(super) async fn during_quiet(&mut self) -> Vec<Got> {
        self.for_a_while(self.fixture.quiet()).await;
        std::mem::take(&mut self.got)
    }

    /// Takes what comes within this time.
    pub(super) async fn for_a_while(&mut self, time: Duration) {
        let until = tokio::time::Instant::now() + time;
        while let Ok(event) = tokio::time::timeout_at(until, self.membership.events.next()).await {
            self.take(event.expect("the membership goes on"));
        }
    }

    /// Settles that everything before `offset` is done.
    pub(super) async fn settle(&self, partition: i32, offset: i64, note: Option<&str>) {
        let position =
            Position { assigned: self.has(partition), offset: Offset(offset), note: note.map(str::to_owned) };
        within(self.fixture, "settling", self.handle().settle(vec![position])).await.expect("settled");
    }

    /// Leaves the group.
    pub(super) async fn leave(self) {
        self.handle().leave(self.fixture.patience()).await.expect("left");
    }

    /// Waits for the end of the membership.
    pub(super) async fn until_ended(&mut self) {
        while within(self.fixture, "the end of the membership", self.membership.events.next()).await.is_some() {}
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Assigned(assignments) => {
                for assignment in assignments {
                    self.assigned.insert(assignment.assigned.partition.clone(), assignment);
                }
            }
            Event::Batch(batch) => self.got.extend(read(&batch)),
            Event::Revoked(going, release) => {
                self.forget(&going);
                release.send();
            }
            Event::Lost(gone) => self.forget(&gone),
            Event::Delivered(batch) => panic!("the adapter keeps positions, and delivers {batch:?}"),
            Event::Fault(error) => eprintln!("contract: fault: {error}"),
        }
    }

    fn forget(&mut self, gone: &[Assigned]) {
        for assigned in gone {
            self.assigned.remove(&assigned.partition);
        }
    }
}

/// The records of a batch.
pub(super) fn read(batch: &PartitionBatch) -> Vec<Got> {
    let own = |record: RecordView<'_>| Got {
        partition: batch.assigned.partition.partition,
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.map(Bytes::copy_from_slice),
        value: record.value.map(Bytes::copy_from_slice),
        headers: record
            .headers
            .iter()
            .map(|(name, value)| Header {
                name: Bytes::copy_from_slice(name),
                value: value.map(Bytes::copy_from_slice),
            })
            .collect(),
    };
    batch.records.iter().map(|record| own(record.expect("the record is whole"))).collect()
}
