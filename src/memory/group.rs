//! A consumer group: members, who owns which partition, and what was committed.
//!
//! ```text
//!            reconcile: no owner                 reconcile: another's, or nobody's
//!   unowned ────────────────────► owned ─────────────────────────────► revoking
//!      ▲                            │                                     │
//!      └────── lose, leave ─────────┘        release, deadline, lose,     │
//!      └──────────────────────────────────── leave ───────────────────────┘
//! ```
//!
//! The broker assigns, as in KIP-848: a partition goes to its next owner only once the last one has let go of it, was
//! waited for long enough, or is gone; all others stay where they are. Every assignment of a partition has a number
//! of its own (KIP-1251), so that what an earlier owner says of it is refused even if it came back to the same member.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use crate::memory::assign::assign;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, Offset, Topic, TopicPartition};

/// A member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member-{}", self.0)
    }
}

/// A partition as one member has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owned {
    /// Which partition.
    pub partition: TopicPartition,
    /// By which assignment.
    pub epoch: u64,
}

/// What a group tells a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberEvent {
    /// It has these partitions now.
    Assigned(Vec<Owned>),
    /// It is to release these before the deadline.
    Revoking(Vec<Owned>, Instant),
    /// It does not have these any more.
    Lost(Vec<Owned>),
}

/// What a group has committed on a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The next offset to read.
    pub offset: Offset,
    /// The leader's epoch of the last record read, where it was told (KIP-320).
    pub leader_epoch: Option<LeaderEpoch>,
    /// What was stored with it.
    pub metadata: Option<String>,
}

/// One partition of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// By which assignment.
    pub owned: Owned,
    /// What to commit.
    pub committed: Committed,
}

/// One group.
#[derive(Debug, Default)]
pub(super) struct Group {
    generation: i32,
    members: BTreeMap<MemberId, Member>,
    owners: BTreeMap<TopicPartition, Ownership>,
    committed: BTreeMap<TopicPartition, Committed>,
    had_members: bool,
}

#[derive(Debug)]
struct Member {
    topics: BTreeSet<Topic>,
    revocation_timeout: Duration,
    events: VecDeque<MemberEvent>,
}

#[derive(Debug)]
struct Ownership {
    member: MemberId,
    epoch: u64,
    /// Until when its release is awaited.
    revoking: Option<Instant>,
}

/// What a group needs to know to change: the topics as they are, the time, the counter of assignments.
pub(super) struct Surroundings<'a> {
    pub(super) partitions: &'a BTreeMap<Topic, i32>,
    pub(super) now: Instant,
    pub(super) next_epoch: &'a mut u64,
}

impl Group {
    pub(super) fn generation(&self) -> i32 {
        self.generation
    }

    pub(super) fn members(&self) -> impl Iterator<Item = MemberId> {
        self.members.keys().copied()
    }

    /// Whether it ever had a member.
    pub(super) fn had_members(&self) -> bool {
        self.had_members
    }

    /// What a member owns, what it is asked to release included.
    pub(super) fn owned_by(&self, member: MemberId) -> Vec<Owned> {
        let owned = self.owners.iter().filter(|(_, ownership)| ownership.member == member);
        owned.map(|(partition, o)| Owned { partition: partition.clone(), epoch: o.epoch }).collect()
    }

    pub(super) fn committed(&self, partition: &TopicPartition) -> Option<&Committed> {
        self.committed.get(partition)
    }

    pub(super) fn set_committed(&mut self, partition: &TopicPartition, committed: Committed) -> Result<(), ErrorCode> {
        if !self.members.is_empty() {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.committed.insert(partition.clone(), committed);
        Ok(())
    }

    pub(super) fn is_subscribed(&self, topic: &Topic) -> bool {
        self.members.values().any(|member| member.topics.contains(topic))
    }

    pub(super) fn take_events(&mut self, member: MemberId) -> VecDeque<MemberEvent> {
        self.members.get_mut(&member).map(|member| std::mem::take(&mut member.events)).unwrap_or_default()
    }

    pub(super) fn join(
        &mut self,
        id: MemberId,
        topics: BTreeSet<Topic>,
        revocation_timeout: Duration,
        around: &mut Surroundings<'_>,
    ) {
        self.members.insert(id, Member { topics, revocation_timeout, events: VecDeque::new() });
        self.had_members = true;
        self.generation += 1;
        self.reconcile(around);
    }

    pub(super) fn leave(&mut self, id: MemberId, around: &mut Surroundings<'_>) -> Result<(), ErrorCode> {
        self.members.remove(&id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        self.owners.retain(|_, ownership| ownership.member != id);
        self.generation += 1;
        self.reconcile(around);
        Ok(())
    }

    /// The member's answer to a revocation. What it does not own by these assignments any more is passed over.
    pub(super) fn release(&mut self, id: MemberId, released: &[Owned], around: &mut Surroundings<'_>) {
        for owned in released {
            if self.owns(id, owned) {
                self.owners.remove(&owned.partition);
            }
        }
        self.reconcile(around);
    }

    /// Asks the owners of these partitions to release them. They are assigned anew afterwards, maybe to the same member.
    pub(super) fn revoke(&mut self, partitions: &[TopicPartition], now: Instant) {
        let mut revoked: BTreeMap<MemberId, Vec<TopicPartition>> = BTreeMap::new();
        for partition in partitions {
            if let Some(ownership) = self.owners.get(partition).filter(|ownership| ownership.revoking.is_none()) {
                revoked.entry(ownership.member).or_default().push(partition.clone());
            }
        }
        for (member, partitions) in revoked {
            self.begin_revocation(member, partitions, now);
        }
    }

    /// Takes these partitions from their owners at once.
    pub(super) fn lose(&mut self, partitions: &[TopicPartition], around: &mut Surroundings<'_>) {
        self.take_away(|partition, _| partitions.contains(partition));
        self.reconcile(around);
    }

    /// The member's session ends: others get what it had, then it joins anew.
    pub(super) fn expire_session(&mut self, id: MemberId, around: &mut Surroundings<'_>) -> Result<(), ErrorCode> {
        if !self.members.contains_key(&id) {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.take_away(|_, ownership| ownership.member == id);
        if let Some(member) = self.members.remove(&id) {
            self.reconcile(around);
            self.members.insert(id, member);
        }
        self.generation += 1;
        self.reconcile(around);
        Ok(())
    }

    /// Takes away what was not released in time.
    pub(super) fn handle_timeout(&mut self, around: &mut Surroundings<'_>) {
        let now = around.now;
        self.take_away(|_, ownership| ownership.revoking.is_some_and(|deadline| deadline <= now));
        self.reconcile(around);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.owners.values().filter_map(|ownership| ownership.revoking).min()
    }

    /// Stores a commit, partition by partition. Who is asked to release a partition may still commit on it.
    pub(super) fn commit(&mut self, id: MemberId, commits: Vec<Commit>) -> Vec<Result<(), ErrorCode>> {
        let known = self.members.contains_key(&id);
        let mut outcomes = Vec::with_capacity(commits.len());
        for Commit { owned, committed } in commits {
            outcomes.push(if !known {
                Err(ErrorCode::UNKNOWN_MEMBER_ID)
            } else if !self.owns(id, &owned) {
                Err(ErrorCode::STALE_MEMBER_EPOCH)
            } else if committed.metadata.as_ref().is_some_and(|note| note.len() > MAX_METADATA_BYTES) {
                Err(ErrorCode::OFFSET_METADATA_TOO_LARGE)
            } else {
                self.committed.insert(owned.partition, committed);
                Ok(())
            });
        }
        outcomes
    }

    /// Drops what is known of a topic that was deleted.
    pub(super) fn forget_topic(&mut self, topic: &Topic) {
        self.take_away(|partition, _| partition.topic == *topic);
        self.committed.retain(|partition, _| partition.topic != *topic);
    }

    /// Brings the owners closer to the assignor's plan: asks for what is another's now, gives what is free.
    pub(super) fn reconcile(&mut self, around: &mut Surroundings<'_>) {
        let subscriptions = self.members.iter().map(|(id, member)| (*id, member.topics.clone())).collect();
        let kept = self.owners.iter().filter(|(_, ownership)| ownership.revoking.is_none());
        let kept = kept.map(|(partition, ownership)| (partition.clone(), ownership.member)).collect();
        let plan = assign(&subscriptions, around.partitions, &kept);

        let mut to_go: BTreeMap<MemberId, Vec<TopicPartition>> = BTreeMap::new();
        for (partition, member) in &kept {
            if plan.get(partition) != Some(member) {
                to_go.entry(*member).or_default().push(partition.clone());
            }
        }
        for (member, partitions) in to_go {
            self.begin_revocation(member, partitions, around.now);
        }

        let mut given: BTreeMap<MemberId, Vec<Owned>> = BTreeMap::new();
        for (partition, member) in plan {
            if self.owners.contains_key(&partition) {
                continue;
            }
            *around.next_epoch += 1;
            let epoch = *around.next_epoch;
            self.owners.insert(partition.clone(), Ownership { member, epoch, revoking: None });
            given.entry(member).or_default().push(Owned { partition, epoch });
        }
        for (member, owned) in given {
            self.tell(member, MemberEvent::Assigned(owned));
        }
    }

    fn owns(&self, id: MemberId, owned: &Owned) -> bool {
        self.owners
            .get(&owned.partition)
            .is_some_and(|ownership| ownership.member == id && ownership.epoch == owned.epoch)
    }

    fn begin_revocation(&mut self, id: MemberId, partitions: Vec<TopicPartition>, now: Instant) {
        let Some(member) = self.members.get(&id) else { return };
        let deadline = now + member.revocation_timeout;
        let mut revoked = Vec::with_capacity(partitions.len());
        for partition in partitions {
            if let Some(ownership) = self.owners.get_mut(&partition) {
                ownership.revoking = Some(deadline);
                revoked.push(Owned { partition, epoch: ownership.epoch });
            }
        }
        self.tell(id, MemberEvent::Revoking(revoked, deadline));
    }

    fn take_away(&mut self, which: impl Fn(&TopicPartition, &Ownership) -> bool) {
        let mut lost: BTreeMap<MemberId, Vec<Owned>> = BTreeMap::new();
        self.owners.retain(|partition, ownership| {
            let goes = which(partition, ownership);
            if goes {
                let owned = Owned { partition: partition.clone(), epoch: ownership.epoch };
                lost.entry(ownership.member).or_default().push(owned);
            }
            !goes
        });
        for (member, owned) in lost {
            self.tell(member, MemberEvent::Lost(owned));
        }
    }

    fn tell(&mut self, id: MemberId, event: MemberEvent) {
        if let Some(member) = self.members.get_mut(&id) {
            member.events.push_back(event);
        }
    }
}

/// Kafka's default (`offset.metadata.max.bytes`).
const MAX_METADATA_BYTES: usize = 4096;
