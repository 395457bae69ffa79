//! One who reads in the group, comes and goes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use kafka_harbor::client::{
    Assigned, CommitPosition, Consumer, ConsumerEvent, GroupProtocol, IsolationLevel, OffsetReset, PartitionBatch,
};
use kafka_harbor::record::Offset;
use tokio::time::sleep;

use super::history::{Group, Stint, What};
use super::log::values;
use super::world::{Phase, SECOND, TOPIC, World};

/// Joins, reads, leaves, and joins again, until all is over.
pub(crate) async fn live(world: World, group: Group, index: usize, mut rng: Rng) {
    // Told apart over all members, and the same in each run.
    let stints = AtomicU64::new(index as u64 * 1_000_000);
    let mut times = 0;
    loop {
        world.pause(Duration::from_millis(rng.u64(0..5_000)), Phase::Calm).await;
        times += 1;
        let name = format!("{group:?}-{index}-{times}");
        let client = world.client(&mut rng, name.clone());
        let consumer = client.consumer(group.id()).topic(TOPIC, OffsetReset::Earliest).session_timeout(6 * SECOND);
        let consumer = match group {
            Group::Modern => consumer.group_protocol(GroupProtocol::Consumer),
            _ => consumer,
        };
        let consumer = match world.uncommitted == Some(group) {
            true => consumer.isolation_level(IsolationLevel::ReadUncommitted),
            false => consumer,
        };
        let consumer = match world.rack(&mut rng) {
            Some(rack) => consumer.rack(rack),
            None => consumer,
        };
        let consumer = consumer.heartbeat_interval(SECOND).revocation_timeout(10 * SECOND).commit_timeout(10 * SECOND);
        let consumer = consumer.fetch_max_partition_bytes(rng.usize(1_024..8_192)).build().unwrap();
        world.recorder.misfortune(format_args!("{name} joins"));
        let mut member = Member { world: &world, group, name, rng: rng.fork(), stints: &stints, held: BTreeMap::new() };
        member.serve(consumer).await;
        member.lose_all();
        // What a coordinator that is away cannot be told, it finds out.
        let _ = client.close(SECOND).await;
        if world.is(Phase::Over) {
            return;
        }
    }
}

struct Member<'a> {
    world: &'a World,
    group: Group,
    name: String,
    rng: Rng,
    stints: &'a AtomicU64,
    held: BTreeMap<i32, Held>,
}

/// A partition that this member has.
struct Held {
    stint: Stint,
    assigned: Assigned,
    /// What was handed over, since the last time that it went back.
    next: Offset,
    /// Everything before it was handed over to this member, or before it came.
    read: Offset,
    /// The furthest position that was to be committed.
    wanted: Offset,
    is_paused: bool,
    commits: Arc<Mutex<Commits>>,
}

#[derive(Default)]
struct Commits {
    acknowledged: Option<Offset>,
    under_way: usize,
}

impl Member<'_> {
    /// Reads until it leaves, or is made to.
    async fn serve(&mut self, mut consumer: Consumer) {
        loop {
            let patience = Duration::from_millis(self.rng.u64(100..1_000));
            tokio::select! {
                biased;
                () = self.world.until(Phase::Over) => return self.leave(consumer).await,
                event = consumer.next() => match event {
                    Some(event) => self.take(&consumer, event).await,
                    None => return,
                },
                () = sleep(patience) => {}
            }
            if self.world.is(Phase::Calm) {
                self.settle(&consumer);
            } else if self.rng.u8(0..100) < 3 {
                return self.leave(consumer).await;
            } else {
                self.do_something(&consumer).await;
            }
        }
    }

    async fn take(&mut self, consumer: &Consumer, event: ConsumerEvent) {
        match event {
            ConsumerEvent::Assigned(assignments) => {
                for assignment in assignments {
                    let stint = Stint { group: self.group, number: self.stints.fetch_add(1, Ordering::Relaxed) };
                    let partition = assignment.assigned.partition.partition;
                    let committed = assignment.committed.map(|offset| offset.0);
                    let position = assignment.position;
                    self.world.recorder.note(What::Assigned { stint, partition, committed, position: position.0 });
                    let commits = Arc::new(Mutex::new(Commits { acknowledged: assignment.committed, under_way: 0 }));
                    let assigned = assignment.assigned;
                    let wanted = assignment.committed.unwrap_or(Offset(0));
                    let held =
                        Held { stint, assigned, next: position, read: position, wanted, is_paused: false, commits };
                    assert!(self.held.insert(partition, held).is_none(), "it was not here");
                }
            }
            ConsumerEvent::Batch(batch) => self.read(batch),
            ConsumerEvent::Revoked(gone, release) => {
                if self.rng.bool() || self.world.is(Phase::Calm) {
                    gone.iter().for_each(|assigned| self.commit(consumer, assigned.partition.partition));
                }
                gone.iter().for_each(|assigned| self.gone(assigned, false));
                if self.rng.u8(0..4) == 0 {
                    sleep(Duration::from_millis(self.rng.u64(0..3_000))).await;
                }
                release.send();
            }
            ConsumerEvent::Lost(gone) => gone.iter().for_each(|assigned| self.gone(assigned, true)),
            ConsumerEvent::Fault(error) => self.world.recorder.fault(&self.name, &error),
            _ => {}
        }
    }

    fn read(&mut self, batch: PartitionBatch) {
        let partition = batch.assigned.partition.partition;
        let held = self.held.get_mut(&partition).expect("batches are of what is assigned");
        assert_eq!(held.assigned, batch.assigned, "of this assignment");
        assert!(!held.is_paused, "a paused partition hands nothing over");
        held.next = batch.next_offset;
        held.read = held.read.max(held.next);
        let records = batch.batches.iter().flat_map(|view| values(view, batch.from)).collect();
        let (from, next) = (batch.from.0, batch.next_offset.0);
        self.world.recorder.note(What::Handed { stint: held.stint, partition, from, next, records });
    }

    async fn do_something(&mut self, consumer: &Consumer) {
        let partitions: Vec<i32> = self.held.keys().copied().collect();
        let Some(partition) = self.rng.choice(partitions) else { return };
        let is_hard = self.world.plan.is_hard;
        match self.rng.u8(0..20) {
            // One after the other, the first still on its way.
            6..8 if is_hard => {
                self.commit_in_part(consumer, partition);
                self.commit_in_part(consumer, partition);
                self.commit(consumer, partition);
            }
            0..8 => self.commit(consumer, partition),
            16 if is_hard => self.seek(consumer, partition),
            17 if is_hard => self.commit_in_part(consumer, partition),
            8..11 => self.pause(consumer, partition, true),
            11..15 => self.pause(consumer, partition, false),
            // A handler that holds everything up.
            15 => sleep(Duration::from_millis(self.rng.u64(0..8_000))).await,
            _ => {}
        }
    }

    /// Reads everything and commits it, until it is committed.
    fn settle(&mut self, consumer: &Consumer) {
        let partitions: Vec<i32> = self.held.keys().copied().collect();
        for partition in partitions {
            self.pause(consumer, partition, false);
            if self.held[&partition].commits.lock().unwrap().under_way == 0 {
                self.commit(consumer, partition);
            }
        }
    }

    fn pause(&mut self, consumer: &Consumer, partition: i32, pause: bool) {
        let held = self.held.get_mut(&partition).expect("chosen of what is held");
        held.is_paused = pause;
        match pause {
            true => consumer.handle().pause(&held.assigned),
            false => consumer.handle().resume(&held.assigned),
        }
    }

    /// Goes back to something that it was given before and has not committed, or to where it is.
    fn seek(&mut self, consumer: &Consumer, partition: i32) {
        let held = self.held.get_mut(&partition).expect("chosen of what is held");
        let offset = Offset(self.rng.i64(held.wanted.0.min(held.next.0)..=held.next.0));
        held.next = offset;
        consumer.handle().seek(&held.assigned, offset);
        self.world.recorder.note(What::Sought { stint: held.stint, partition, offset: offset.0 });
    }

    /// Commits what was handed over, if there is anything new.
    fn commit(&mut self, consumer: &Consumer, partition: i32) {
        let Some(read) = self.held.get(&partition).map(|held| held.read) else { return };
        self.commit_to(consumer, partition, read);
    }

    /// Commits up to somewhere within what was handed over: a batch of which some records are done.
    fn commit_in_part(&mut self, consumer: &Consumer, partition: i32) {
        let Some(held) = self.held.get(&partition) else { return };
        let offset = Offset(self.rng.i64(held.wanted.0.min(held.read.0)..=held.read.0));
        self.commit_to(consumer, partition, offset);
    }

    fn commit_to(&mut self, consumer: &Consumer, partition: i32, to: Offset) {
        let Some(Held { stint, assigned, wanted, commits, .. }) = self.held.get_mut(&partition) else { return };
        let (stint, offset, commits) = (*stint, to.0, Arc::clone(commits));
        // Never back: what was acknowledged would be forgotten, and by us.
        if to < *wanted || commits.lock().unwrap().acknowledged >= Some(to) {
            return;
        }
        *wanted = to;
        commits.lock().unwrap().under_way += 1;
        let position = CommitPosition::new(assigned.clone(), to);
        let (handle, recorder) = (consumer.handle().clone(), self.world.recorder.clone());
        recorder.note(What::Committing { stint, partition, offset });
        tokio::spawn(async move {
            let done = handle.commit(vec![position]).await;
            let mut commits = commits.lock().unwrap();
            commits.under_way -= 1;
            recorder.note(match done {
                Ok(()) => {
                    commits.acknowledged = commits.acknowledged.max(Some(Offset(offset)));
                    What::Committed { stint, partition, offset }
                }
                Err(_) => What::NotCommitted { stint, partition, offset },
            });
        });
    }

    async fn leave(&mut self, consumer: Consumer) {
        if self.rng.bool() {
            self.world.recorder.misfortune(format_args!("{} leaves", self.name));
            // A coordinator that is away cannot be told.
            let _ = consumer.close(Duration::from_millis(self.rng.u64(100..5_000))).await;
        } else {
            self.world.recorder.misfortune(format_args!("{} drops out", self.name));
        }
    }

    /// A partition went. One that was revoked may be lost as well, if the session ends before the release is through.
    fn gone(&mut self, assigned: &Assigned, lost: bool) {
        let partition = assigned.partition.partition;
        let Some(held) = self.held.remove(&partition) else { return };
        assert_eq!(held.assigned, *assigned, "of this assignment");
        self.world.recorder.note(What::Gone { stint: held.stint, partition, lost });
    }

    fn lose_all(&mut self) {
        for (partition, held) in std::mem::take(&mut self.held) {
            self.world.recorder.note(What::Gone { stint: held.stint, partition, lost: false });
        }
    }
}
