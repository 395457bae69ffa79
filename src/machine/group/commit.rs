//! Positions to be committed: one request in flight, and the next carries all that came meanwhile.
//!
//! ```text
//!   commit ─▶ pending ──gate open──▶ in flight ──▶ done
//!               ▲  │                     │
//!               │  └─forgotten, too late─┼──▶ failed, naming the partition
//!               └──── try again ◀────────┘
//! ```
//!
//! Nothing here depends on fetching, and no failure of a commit stops it (librdkafka#2933).
//!
//! A request that was not answered may still be on its way, and be taken behind the ones that follow it on another connection: the
//! position goes back, or forward again after a seek, and nobody is told. So the last position that was committed since is
//! committed once more when nothing of that can come any more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::{GroupId, OffsetCommitRequest, OffsetCommitResponse};
use kafka_protocol::protocol::StrBytes;

use super::Jitter;
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NodeId, Offset, TopicPartition};
use crate::retry::{Backoff, ExponentialFullJitter};

/// In whose name, and of which generation, positions are committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommitTarget {
    pub(crate) node: NodeId,
    pub(crate) member_id: StrBytes,
    pub(crate) generation: i32,
    pub(crate) instance_id: Option<StrBytes>,
}

/// Whether positions can be committed now, and in whose name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommitGate {
    Open(CommitTarget),
    /// Not now: a rebalance is being completed, or the coordinator is being searched.
    Held,
    /// Not any more: this is no member, or owns nothing.
    Closed,
}

/// A position to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommitRequest {
    pub(crate) partition: TopicPartition,
    /// The next offset to read.
    pub(crate) offset: Offset,
    /// Of the last record before it, where it is known.
    pub(crate) leader_epoch: Option<LeaderEpoch>,
    pub(crate) note: Option<String>,
}

/// What became of one position of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) ticket: u64,
    pub(crate) partition: TopicPartition,
    pub(crate) offset: Offset,
    pub(crate) result: Result<(), CommitFailure>,
}

/// Why a position was not committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommitFailure {
    /// The partition is not ours any more.
    Lost,
    /// The coordinator refused for good.
    Refused(ErrorCode),
    /// There was no success in time. It may have been committed.
    TimedOut { last: Option<String> },
}

/// What the group has to know of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitReaction {
    /// The coordinator is elsewhere, or not to be reached.
    pub(crate) moved: bool,
    /// The group is rebalancing, or has given this member a new epoch that it was not told yet.
    pub(crate) rebalance: bool,
    /// The member or its generation was not known.
    pub(crate) fenced: Option<ErrorCode>,
    /// In whose name it was.
    pub(crate) target: Option<CommitTarget>,
}

/// A request to be sent.
#[derive(Debug)]
pub(crate) struct CommitTransmit {
    pub(crate) id: u64,
    pub(crate) node: NodeId,
    pub(crate) request: OffsetCommitRequest,
}

/// Positions of one membership on their way to the coordinator.
#[derive(Debug)]
pub(crate) struct Commits {
    group: String,
    timeout: Duration,
    /// How long a request that was not answered may still be on its way.
    lingering: Duration,
    backoff: ExponentialFullJitter,
    pending: BTreeMap<TopicPartition, Entry>,
    doubts: BTreeMap<TopicPartition, Doubt>,
    in_flight: Option<InFlight>,
    not_before: Option<Instant>,
    failures: u32,
    last_id: u64,
    last_problem: Option<String>,
    jitter: Jitter,
    outcomes: VecDeque<Committed>,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    deadline: Instant,
    /// The calls that wait for it, with the offset that each gave. None where it is committed once more.
    tickets: Vec<(u64, Offset)>,
}

/// What is committed of a partition.
#[derive(Debug, Clone)]
struct Place {
    offset: Offset,
    leader_epoch: Option<LeaderEpoch>,
    note: Option<String>,
}

/// A partition of which a request was not answered.
#[derive(Debug)]
struct Doubt {
    /// Nothing of it comes behind what is sent from then on.
    until: Instant,
    /// What was committed since.
    place: Option<Place>,
}

#[derive(Debug)]
struct InFlight {
    id: u64,
    target: CommitTarget,
    sent: Instant,
    entries: BTreeMap<TopicPartition, Entry>,
    /// Partitions that went while the request was on its way: its answer decides, but it is not repeated.
    forgotten: BTreeSet<TopicPartition>,
}

impl Commits {
    /// Nothing to commit yet. Each position is tried for `timeout`; a request that was not answered may be taken for `lingering` more.
    pub(crate) fn new(
        group: impl Into<String>,
        timeout: Duration,
        lingering: Duration,
        backoff: ExponentialFullJitter,
        seed: u64,
    ) -> Self {
        Self {
            group: group.into(),
            timeout,
            lingering,
            backoff,
            pending: BTreeMap::new(),
            doubts: BTreeMap::new(),
            in_flight: None,
            not_before: None,
            failures: 0,
            last_id: 0,
            last_problem: None,
            jitter: Jitter::new(seed),
            outcomes: VecDeque::new(),
        }
    }

    /// Adds a position. It replaces one of the same partition that has not left yet; both calls get its outcome.
    pub(crate) fn commit(&mut self, now: Instant, ticket: u64, request: CommitRequest) {
        let CommitRequest { partition, offset, leader_epoch, note } = request;
        let mut tickets = self.pending.remove(&partition).map(|older| older.tickets).unwrap_or_default();
        tickets.push((ticket, offset));
        let place = Place { offset, leader_epoch, note };
        self.pending.insert(partition, Entry { place, deadline: now + self.timeout, tickets });
    }

    /// Whether something of these partitions is not decided yet.
    pub(crate) fn is_busy_with(&self, partitions: &BTreeSet<TopicPartition>) -> bool {
        self.undecided().any(|partition| partitions.contains(partition))
    }

    /// Whether anything is not decided yet.
    pub(crate) fn is_idle(&self) -> bool {
        self.undecided().next().is_none()
    }

    /// Partitions that somebody waits for.
    fn undecided(&self) -> impl Iterator<Item = &TopicPartition> {
        let flying = self.in_flight.iter().flat_map(|request| &request.entries);
        let waited_for = |(_, entry): &(_, &Entry)| !entry.tickets.is_empty();
        self.pending.iter().chain(flying).filter(waited_for).map(|(partition, _)| partition)
    }

    /// These partitions are not ours any more.
    pub(crate) fn forget<'a>(&mut self, partitions: impl IntoIterator<Item = &'a TopicPartition>) {
        for partition in partitions {
            self.doubts.remove(partition);
            if let Some(entry) = self.pending.remove(partition) {
                self.conclude(partition.clone(), entry, &Err(CommitFailure::Lost));
            }
            if let Some(request) = &mut self.in_flight
                && request.entries.contains_key(partition)
            {
                request.forgotten.insert(partition.clone());
            }
        }
    }

    /// The next request to send, where one may be sent now.
    pub(crate) fn poll_transmit(&mut self, now: Instant, gate: &CommitGate) -> Option<CommitTransmit> {
        if self.in_flight.is_some() {
            return None;
        }
        self.reaffirm(now);
        if self.pending.is_empty() {
            return None;
        }
        let target = match gate {
            CommitGate::Open(target) => target.clone(),
            CommitGate::Held => return None,
            CommitGate::Closed => {
                self.doubts.clear();
                for (partition, entry) in std::mem::take(&mut self.pending) {
                    self.conclude(partition, entry, &Err(CommitFailure::Lost));
                }
                return None;
            }
        };
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return None;
        }
        self.last_id += 1;
        let entries = std::mem::take(&mut self.pending);
        let request = self.request(&target, &entries);
        let node = target.node;
        self.in_flight = Some(InFlight { id: self.last_id, target, sent: now, entries, forgotten: BTreeSet::new() });
        Some(CommitTransmit { id: self.last_id, node, request })
    }

    /// What became of a position. Ask again until there is none.
    pub(crate) fn poll_outcome(&mut self) -> Option<Committed> {
        self.outcomes.pop_front()
    }

    /// When to call [`Self::handle_timeout`] and then [`Self::poll_transmit`].
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let expiry = self.pending.values().map(|entry| entry.deadline).min();
        if self.in_flight.is_some() {
            return expiry;
        }
        let retry = self.not_before.filter(|_| !self.pending.is_empty());
        let doubts = self.doubts.iter().filter(|(partition, _)| !self.pending.contains_key(*partition));
        let again = doubts.map(|(_, doubt)| doubt.until.max(self.not_before.unwrap_or(doubt.until))).min();
        [expiry, retry, again].into_iter().flatten().min()
    }

    /// Gives up what was tried for long enough.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.not_before.is_some_and(|not_before| now >= not_before) {
            self.not_before = None;
        }
        let late: Vec<_> = self.pending.iter().filter(|(_, e)| now >= e.deadline).map(|(p, _)| p.clone()).collect();
        for partition in late {
            if let Some(entry) = self.pending.remove(&partition) {
                let last = self.last_problem.clone();
                self.conclude(partition, entry, &Err(CommitFailure::TimedOut { last }));
            }
        }
    }

    /// The coordinator answered. Partitions that it left out are tried again.
    pub(crate) fn handle_response(&mut self, now: Instant, id: u64, response: &OffsetCommitResponse) -> CommitReaction {
        let Some(mut request) = self.take(id) else { return CommitReaction::default() };
        let mut reaction = CommitReaction { target: Some(request.target.clone()), ..CommitReaction::default() };
        let mut again = false;
        for (topic, answer) in response.topics.iter().flat_map(|t| t.partitions.iter().map(move |p| (&t.name, p))) {
            let partition = TopicPartition::new(topic.as_str(), answer.partition_index);
            let Some(entry) = request.entries.remove(&partition) else { continue };
            let code = ErrorCode(answer.error_code);
            match verdict(code) {
                Verdict::Done => {
                    self.settle_doubt(&partition, &entry, request.sent);
                    self.conclude(partition, entry, &Ok(()));
                }
                Verdict::Refused => self.conclude(partition, entry, &Err(CommitFailure::Refused(code))),
                Verdict::Again => {
                    reaction.moved |= matches!(code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE);
                    reaction.rebalance |=
                        matches!(code, ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::STALE_MEMBER_EPOCH);
                    if matches!(
                        code,
                        ErrorCode::UNKNOWN_MEMBER_ID
                            | ErrorCode::ILLEGAL_GENERATION
                            | ErrorCode::FENCED_INSTANCE_ID
                            | ErrorCode::FENCED_MEMBER_EPOCH
                    ) {
                        reaction.fenced = Some(code);
                    }
                    self.last_problem = Some(code.to_string());
                    again = true;
                    self.requeue(partition, entry, &request.forgotten);
                }
            }
        }
        again |= !request.entries.is_empty();
        for (partition, entry) in request.entries {
            self.requeue(partition, entry, &request.forgotten);
        }
        self.pace(now, again);
        reaction
    }

    /// The request was not answered. Committing again is harmless, so it is tried again unless `fatal`.
    pub(crate) fn handle_failure(&mut self, now: Instant, id: u64, fatal: bool, what: String) -> CommitReaction {
        let Some(request) = self.take(id) else { return CommitReaction::default() };
        let last = Some(what);
        for (partition, entry) in request.entries {
            if !request.forgotten.contains(&partition) {
                let until = now + self.lingering;
                self.doubts.entry(partition.clone()).or_insert(Doubt { until, place: None }).until = until;
            }
            if fatal {
                self.conclude(partition, entry, &Err(CommitFailure::TimedOut { last: last.clone() }));
            } else {
                self.requeue(partition, entry, &request.forgotten);
            }
        }
        self.last_problem = last;
        self.pace(now, true);
        CommitReaction { moved: !fatal, target: Some(request.target), ..CommitReaction::default() }
    }

    /// The membership is over: nothing more will be committed.
    pub(crate) fn close(&mut self) {
        self.doubts.clear();
        let flying = self.in_flight.take().map(|request| request.entries).unwrap_or_default();
        for (partition, entry) in std::mem::take(&mut self.pending).into_iter().chain(flying) {
            self.conclude(partition, entry, &Err(CommitFailure::Lost));
        }
    }

    /// Commits once more what a request that was not answered may have undone.
    fn reaffirm(&mut self, now: Instant) {
        let (pending, deadline) = (&mut self.pending, now + self.timeout);
        self.doubts.retain(|partition, doubt| {
            if now < doubt.until || pending.contains_key(partition) {
                return true;
            }
            let Some(place) = doubt.place.clone() else { return false };
            pending.insert(partition.clone(), Entry { place, deadline, tickets: Vec::new() });
            true
        });
    }

    /// A position was committed by a request that left at `sent`.
    fn settle_doubt(&mut self, partition: &TopicPartition, entry: &Entry, sent: Instant) {
        match self.doubts.get_mut(partition) {
            Some(doubt) if sent < doubt.until => doubt.place = Some(entry.place.clone()),
            Some(_) => drop(self.doubts.remove(partition)),
            None => {}
        }
    }

    fn take(&mut self, id: u64) -> Option<InFlight> {
        self.in_flight.take_if(|request| request.id == id)
    }

    fn pace(&mut self, now: Instant, again: bool) {
        if again {
            self.failures = self.failures.saturating_add(1);
            let wait = self.backoff.delay(self.failures, self.jitter.next()).max(MIN_WAIT);
            self.not_before = Some(now + wait);
        } else {
            self.failures = 0;
            self.not_before = None;
            self.last_problem = None;
        }
    }

    fn requeue(&mut self, partition: TopicPartition, mut entry: Entry, forgotten: &BTreeSet<TopicPartition>) {
        if forgotten.contains(&partition) {
            return self.conclude(partition, entry, &Err(CommitFailure::Lost));
        }
        match self.pending.get_mut(&partition) {
            Some(newer) => {
                entry.tickets.append(&mut newer.tickets);
                newer.tickets = entry.tickets;
            }
            None => {
                self.pending.insert(partition, entry);
            }
        }
    }

    fn conclude(&mut self, partition: TopicPartition, entry: Entry, result: &Result<(), CommitFailure>) {
        self.outcomes.extend(entry.tickets.into_iter().map(|(ticket, offset)| Committed {
            ticket,
            partition: partition.clone(),
            offset,
            result: result.clone(),
        }));
    }

    fn request(&self, target: &CommitTarget, entries: &BTreeMap<TopicPartition, Entry>) -> OffsetCommitRequest {
        let mut topics: Vec<OffsetCommitRequestTopic> = Vec::new();
        for (partition, entry) in entries {
            let position = OffsetCommitRequestPartition::default()
                .with_partition_index(partition.partition)
                .with_committed_offset(entry.place.offset.0)
                .with_committed_leader_epoch(entry.place.leader_epoch.map_or(-1, |epoch| epoch.0))
                .with_committed_metadata(entry.place.note.clone().map(StrBytes::from_string));
            match topics.last_mut().filter(|topic| topic.name.as_str() == partition.topic.as_str()) {
                Some(topic) => topic.partitions.push(position),
                None => {
                    let name = StrBytes::from_string(partition.topic.as_str().to_owned()).into();
                    topics.push(OffsetCommitRequestTopic::default().with_name(name).with_partitions(vec![position]));
                }
            }
        }
        OffsetCommitRequest::default()
            .with_group_id(GroupId(StrBytes::from_string(self.group.clone())))
            .with_generation_id_or_member_epoch(target.generation)
            .with_member_id(target.member_id.clone())
            .with_group_instance_id(target.instance_id.clone())
            .with_topics(topics)
    }
}

enum Verdict {
    Done,
    Refused,
    Again,
}

fn verdict(code: ErrorCode) -> Verdict {
    match code {
        ErrorCode::NONE => Verdict::Done,
        // Of a generation that is over: the next one decides, unless the member finds that it is lost.
        ErrorCode::REBALANCE_IN_PROGRESS
        | ErrorCode::ILLEGAL_GENERATION
        | ErrorCode::UNKNOWN_MEMBER_ID
        | ErrorCode::FENCED_INSTANCE_ID
        | ErrorCode::FENCED_MEMBER_EPOCH
        | ErrorCode::STALE_MEMBER_EPOCH => Verdict::Again,
        code if code.is_retriable() => Verdict::Again,
        _ => Verdict::Refused,
    }
}

const MIN_WAIT: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};

    use super::*;
    use crate::machine::group::GROUP_BACKOFF;

    /// A code that was not expected was passed over, and its member went on as a zombie (kafkajs#1474, franz-go 1.21.3).
    #[test]
    fn no_error_code_is_taken_for_a_commit_that_was_made() {
        let codes = ErrorCode::known().filter(|code| !code.is_ok()).chain([ErrorCode(9_999)]);
        for code in codes {
            let now = Instant::now();
            let mut commits = Commits::new("g", Duration::from_secs(10), Duration::from_secs(30), GROUP_BACKOFF, 1);
            let partition = TopicPartition::new("t", 0);
            commits.commit(now, 1, CommitRequest { partition, offset: Offset(5), leader_epoch: None, note: None });
            let sent = commits.poll_transmit(now, &gate()).unwrap();
            let answer = OffsetCommitResponsePartition::default().with_error_code(code.0);
            let topic = OffsetCommitResponseTopic::default()
                .with_name(StrBytes::from_static_str("t").into())
                .with_partitions(vec![answer]);
            let reaction =
                commits.handle_response(now, sent.id, &OffsetCommitResponse::default().with_topics(vec![topic]));
            match commits.poll_outcome() {
                Some(outcome) => assert_eq!(outcome.result, Err(CommitFailure::Refused(code))),
                None => assert!(!commits.is_idle() && commits.poll_timeout().is_some(), "{code} is forgotten"),
            }
            let lost = [
                ErrorCode::UNKNOWN_MEMBER_ID,
                ErrorCode::ILLEGAL_GENERATION,
                ErrorCode::FENCED_INSTANCE_ID,
                ErrorCode::FENCED_MEMBER_EPOCH,
            ];
            assert_eq!(reaction.fenced.is_some(), lost.contains(&code), "{code}");
        }
    }

    /// A request that was given up came to the coordinator behind the next one, on a connection of its own: the committed position went
    /// back, and stayed there where nothing more was read.
    #[test]
    fn a_position_is_committed_once_more_when_a_request_without_an_answer_can_come_no_more() {
        let (mut now, partition) = (Instant::now(), TopicPartition::new("t", 0));
        let mut commits = Commits::new("g", Duration::from_secs(60), LINGERING, GROUP_BACKOFF, 1);
        let commit = |commits: &mut Commits, now, ticket, offset| {
            let (partition, offset) = (TopicPartition::new("t", 0), Offset(offset));
            commits.commit(now, ticket, CommitRequest { partition, offset, leader_epoch: None, note: None });
        };
        let sends = |commits: &mut Commits, now: Instant| {
            let sent = commits.poll_transmit(now, &gate())?;
            Some((sent.id, sent.request.topics[0].partitions[0].committed_offset))
        };
        commit(&mut commits, now, 1, 5);
        let (lost, _) = sends(&mut commits, now).expect("it leaves");
        commits.handle_failure(now, lost, false, "no answer".to_owned());
        let given_up = now;
        commit(&mut commits, now, 2, 9);
        now = commits.poll_timeout().expect("it is tried again");
        commits.handle_timeout(now);
        let (id, offset) = sends(&mut commits, now).expect("it leaves");
        assert_eq!(offset, 9);
        commits.handle_response(now, id, &made());
        assert!(std::iter::from_fn(|| commits.poll_outcome()).all(|outcome| outcome.result == Ok(())));
        assert!(commits.is_idle() && !commits.is_busy_with(&[partition.clone()].into()), "nobody waits");

        assert_eq!(commits.poll_timeout(), Some(given_up + LINGERING));
        assert_eq!(sends(&mut commits, now), None);
        now = given_up + LINGERING;
        let (id, offset) = sends(&mut commits, now).expect("once more");
        assert_eq!((offset, commits.is_idle()), (9, true), "which holds up nobody that leaves");
        commits.handle_failure(now, id, false, "no answer".to_owned());
        now = commits.poll_timeout().expect("it is not forgotten");
        let (id, offset) = sends(&mut commits, now).expect("and again");
        assert_eq!(offset, 9);
        commits.handle_response(now, id, &made());
        now += LINGERING;
        let (id, _) = sends(&mut commits, now).expect("until nothing can come behind it");
        commits.handle_response(now, id, &made());
        assert_eq!((sends(&mut commits, now), commits.poll_timeout(), commits.poll_outcome()), (None, None, None));
    }

    #[test]
    fn nothing_is_committed_once_more_of_a_partition_that_went() {
        let (now, partition) = (Instant::now(), TopicPartition::new("t", 0));
        let mut commits = Commits::new("g", Duration::from_secs(60), LINGERING, GROUP_BACKOFF, 1);
        let request = CommitRequest { partition: partition.clone(), offset: Offset(5), leader_epoch: None, note: None };
        commits.commit(now, 1, request);
        let sent = commits.poll_transmit(now, &gate()).unwrap();
        commits.handle_failure(now, sent.id, false, "no answer".to_owned());
        commits.forget([&partition]);
        assert_eq!(commits.poll_timeout(), None);
        assert!(commits.poll_transmit(now + LINGERING, &gate()).is_none());
    }

    fn gate() -> CommitGate {
        let member_id = StrBytes::from_static_str("m");
        CommitGate::Open(CommitTarget { node: NodeId(1), member_id, generation: 3, instance_id: None })
    }

    fn made() -> OffsetCommitResponse {
        let topic = OffsetCommitResponseTopic::default()
            .with_name(StrBytes::from_static_str("t").into())
            .with_partitions(vec![OffsetCommitResponsePartition::default()]);
        OffsetCommitResponse::default().with_topics(vec![topic])
    }

    const LINGERING: Duration = Duration::from_secs(30);
}
