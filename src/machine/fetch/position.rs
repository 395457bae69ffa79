//! Where to begin with a partition: what the group committed, else what the reset policy comes to at its leader.
//!
//! ```text
//!   assigned ─▶ Committed ──OffsetFetch──┬─ there is one ──────────────▶ positioned
//!                  ▲  └─ refused, unstable: again                           ▲
//!                  │                     └─ there is none ─▶ Reset ──ListOffsets, of the leader
//!   out of range, topic recreated ─────────────────────────▶ Reset
//! ```
//!
//! Absent and failed are different things: only a partition that the coordinator itself says has no committed offset
//! is reset (kafka-python#2428). Offsets that an open transaction may still change are waited for (KIP-447).

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::{
    BrokerId, GroupId, ListOffsetsRequest, ListOffsetsResponse, OffsetFetchRequest, OffsetFetchResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::{IsolationLevel, Leader};
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NodeId, Offset, TopicPartition};
use crate::retry::{Backoff, ExponentialFullJitter};

/// Where to begin without a committed position, or when it is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OffsetReset {
    /// At the oldest record.
    Earliest,
    /// After the newest record that may be read: those of a transaction that is still open come after it. But a partition without a committed position that did not exist when this membership first
    /// saw its topic begins at its oldest record, and so does a topic that did not exist then: all of it was written since,
    /// some of it before the membership could discover it. (Java and librdkafka skip that, KAFKA-12478.)
    ///
    /// A membership knows of its own time only. What is written to a partition that is added while no member runs is passed
    /// over, as is what a member that died uncommitted had begun with; for a group whose members come and go, keep the count
    /// of partitions beside the commits, as the harbor does, or begin at the oldest record.
    #[default]
    Latest,
}

/// What a group has committed on a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommittedPosition {
    pub(crate) offset: Offset,
    pub(crate) leader_epoch: Option<LeaderEpoch>,
    pub(crate) note: Option<String>,
}

/// A partition whose beginning is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Positioned {
    pub(crate) partition: TopicPartition,
    pub(crate) epoch: u64,
    /// Absent for one that never was, and for a reset of one that was read already.
    pub(crate) committed: Option<CommittedPosition>,
    pub(crate) offset: Offset,
    /// Of what is before the offset, where it is known (KIP-320).
    pub(crate) leader_epoch: Option<LeaderEpoch>,
    /// Whether it was being read before.
    pub(crate) again: bool,
}

/// A refusal that is not the daily kind. The partition is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PositionFault {
    /// Absent if it concerns the whole group.
    pub(crate) partition: Option<TopicPartition>,
    pub(crate) what: String,
    pub(crate) code: Option<ErrorCode>,
}

/// A ListOffsets request for one leader.
#[derive(Debug)]
pub(crate) struct ResetRequest {
    pub(crate) id: u64,
    pub(crate) node: NodeId,
    pub(crate) request: ListOffsetsRequest,
}

/// Partitions that wait for their beginning.
#[derive(Debug)]
pub(crate) struct Positions {
    group: String,
    isolation: IsolationLevel,
    backoff: ExponentialFullJitter,
    waiting: BTreeMap<TopicPartition, Waiting>,
    last_id: u64,
    done: VecDeque<Positioned>,
    faults: VecDeque<PositionFault>,
    stale: VecDeque<TopicPartition>,
}

#[derive(Debug)]
struct Waiting {
    epoch: u64,
    policy: OffsetReset,
    stage: Stage,
    again: bool,
    not_before: Option<Instant>,
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Committed { asked: Option<u64> },
    Reset { asked: Option<u64> },
}

impl Positions {
    pub(crate) fn new(group: impl Into<String>, isolation: IsolationLevel, backoff: ExponentialFullJitter) -> Self {
        Self {
            group: group.into(),
            isolation,
            backoff,
            waiting: BTreeMap::new(),
            last_id: 0,
            done: VecDeque::new(),
            faults: VecDeque::new(),
            stale: VecDeque::new(),
        }
    }

    /// A partition that was assigned.
    pub(crate) fn assign(&mut self, partition: TopicPartition, epoch: u64, policy: OffsetReset) {
        let stage = Stage::Committed { asked: None };
        self.waiting.insert(partition, Waiting { epoch, policy, stage, again: false, not_before: None, failures: 0 });
    }

    /// A partition whose position is no use any more.
    pub(crate) fn reset(&mut self, partition: TopicPartition, epoch: u64, policy: OffsetReset) {
        let stage = Stage::Reset { asked: None };
        self.waiting.insert(partition, Waiting { epoch, policy, stage, again: true, not_before: None, failures: 0 });
    }

    /// These are not ours any more.
    pub(crate) fn forget<'a>(&mut self, partitions: impl IntoIterator<Item = &'a TopicPartition>) {
        for partition in partitions {
            self.waiting.remove(partition);
            self.done.retain(|done| done.partition != *partition);
        }
    }

    /// What to ask the coordinator for, if anything; in the name of this member and its epoch, where the group is of KIP-848.
    pub(crate) fn poll_committed(
        &mut self,
        now: Instant,
        member: Option<(StrBytes, i32)>,
    ) -> Option<(u64, OffsetFetchRequest)> {
        let id = self.last_id + 1;
        let mut topics: Vec<OffsetFetchRequestTopics> = Vec::new();
        for (partition, waiting) in &mut self.waiting {
            if waiting.stage != (Stage::Committed { asked: None }) || waiting.is_early(now) {
                continue;
            }
            waiting.stage = Stage::Committed { asked: Some(id) };
            match topics.last_mut().filter(|topic| topic.name.as_str() == partition.topic.as_str()) {
                Some(topic) => topic.partition_indexes.push(partition.partition),
                None => topics.push(
                    OffsetFetchRequestTopics::default()
                        .with_name(StrBytes::from_string(partition.topic.as_str().to_owned()).into())
                        .with_partition_indexes(vec![partition.partition]),
                ),
            }
        }
        if topics.is_empty() {
            return None;
        }
        self.last_id = id;
        let group = OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(StrBytes::from_string(self.group.clone())))
            .with_member_epoch(member.as_ref().map_or(-1, |(_, epoch)| *epoch))
            .with_member_id(member.map(|(id, _)| id))
            .with_topics(Some(topics));
        // With `topics` null for versions that name one group only, which are not spoken.
        let request = OffsetFetchRequest::default().with_topics(Some(Vec::new())).with_groups(vec![group]);
        Some((id, request.with_require_stable(true)))
    }

    /// The coordinator answered. `true` if it is elsewhere.
    pub(crate) fn handle_committed(&mut self, now: Instant, id: u64, response: &OffsetFetchResponse) -> bool {
        let group = response.groups.iter().find(|group| group.group_id.as_str() == self.group);
        let code = group.map_or(ErrorCode(response.error_code), |group| ErrorCode(group.error_code));
        if !code.is_ok() {
            // A member whose epoch has gone on asks again with the new one; one that is lost will hear so.
            let moved_on = matches!(code, ErrorCode::STALE_MEMBER_EPOCH | ErrorCode::UNKNOWN_MEMBER_ID);
            if !code.is_retriable() && !moved_on {
                let what = format!("committed offsets of group {}", self.group);
                self.faults.push_back(PositionFault { partition: None, what, code: Some(code) });
            }
            self.again(now, |stage| stage == Stage::Committed { asked: Some(id) });
            return matches!(code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        for (topic, answer) in
            group.iter().flat_map(|g| &g.topics).flat_map(|t| t.partitions.iter().map(move |p| (t, p)))
        {
            let partition = TopicPartition::new(topic.name.as_str(), answer.partition_index);
            let Some(waiting) = self.waiting.get_mut(&partition) else { continue };
            if waiting.stage != (Stage::Committed { asked: Some(id) }) {
                continue;
            }
            let code = ErrorCode(answer.error_code);
            if !code.is_ok() {
                if !code.is_retriable() {
                    let what = format!("committed offset of {partition}");
                    self.faults.push_back(PositionFault { partition: Some(partition), what, code: Some(code) });
                }
                waiting.stage = Stage::Committed { asked: None };
                waiting.delay(now, &self.backoff);
                continue;
            }
            if answer.committed_offset < 0 {
                waiting.stage = Stage::Reset { asked: None };
                continue;
            }
            let committed = CommittedPosition {
                offset: Offset(answer.committed_offset),
                leader_epoch: known_epoch(answer.committed_leader_epoch),
                note: answer.metadata.as_ref().filter(|note| !note.is_empty()).map(ToString::to_string),
            };
            let (offset, leader_epoch) = (committed.offset, committed.leader_epoch);
            self.finish(partition, offset, leader_epoch, Some(committed));
        }
        // What was left out of the answer.
        self.again(now, |stage| stage == Stage::Committed { asked: Some(id) });
        false
    }

    /// What to ask a leader for, if anything. Ask again until there is none.
    pub(crate) fn poll_reset(
        &mut self,
        now: Instant,
        leader_of: impl Fn(&TopicPartition) -> Option<Leader>,
    ) -> Option<ResetRequest> {
        let id = self.last_id + 1;
        let mut node = None;
        let mut topics: Vec<ListOffsetsTopic> = Vec::new();
        for (partition, waiting) in &mut self.waiting {
            if waiting.stage != (Stage::Reset { asked: None }) || waiting.is_early(now) {
                continue;
            }
            let Some(leader) = leader_of(partition) else {
                waiting.delay(now, &self.backoff);
                self.stale.push_back(partition.clone());
                continue;
            };
            if *node.get_or_insert(leader.node) != leader.node {
                continue;
            }
            waiting.stage = Stage::Reset { asked: Some(id) };
            let asked = ListOffsetsPartition::default()
                .with_partition_index(partition.partition)
                .with_current_leader_epoch(leader.epoch.map_or(-1, |epoch| epoch.0))
                .with_timestamp(match waiting.policy {
                    OffsetReset::Earliest => EARLIEST,
                    OffsetReset::Latest => LATEST,
                });
            match topics.last_mut().filter(|topic| topic.name.as_str() == partition.topic.as_str()) {
                Some(topic) => topic.partitions.push(asked),
                None => topics.push(
                    ListOffsetsTopic::default()
                        .with_name(StrBytes::from_string(partition.topic.as_str().to_owned()).into())
                        .with_partitions(vec![asked]),
                ),
            }
        }
        let node = node?;
        self.last_id = id;
        let request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_isolation_level(self.isolation.wire())
            .with_topics(topics);
        Some(ResetRequest { id, node, request })
    }

    /// A leader answered.
    pub(crate) fn handle_reset(&mut self, now: Instant, id: u64, response: &ListOffsetsResponse) {
        for (topic, answer) in response.topics.iter().flat_map(|t| t.partitions.iter().map(move |p| (t, p))) {
            let partition = TopicPartition::new(topic.name.as_str(), answer.partition_index);
            let Some(waiting) = self.waiting.get_mut(&partition) else { continue };
            if waiting.stage != (Stage::Reset { asked: Some(id) }) {
                continue;
            }
            let code = ErrorCode(answer.error_code);
            if code.is_ok() && answer.offset >= 0 {
                self.finish(partition, Offset(answer.offset), known_epoch(answer.leader_epoch), None);
                continue;
            }
            waiting.stage = Stage::Reset { asked: None };
            waiting.delay(now, &self.backoff);
            if code.is_retriable() {
                self.stale.push_back(partition);
            } else {
                let what = format!("offset to begin with of {partition}");
                let code = (!code.is_ok()).then_some(code);
                self.faults.push_back(PositionFault { partition: Some(partition), what, code });
            }
        }
        self.again(now, |stage| stage == Stage::Reset { asked: Some(id) });
    }

    /// A request was not answered.
    pub(crate) fn handle_failure(&mut self, now: Instant, id: u64) {
        let asked = Some(id);
        let of_it = |waiting: &Waiting| matches!(waiting.stage, Stage::Reset { asked: a } if a == asked);
        self.stale.extend(self.waiting.iter().find(|(_, waiting)| of_it(waiting)).map(|(p, _)| p.clone()));
        self.again(now, |stage| stage == Stage::Committed { asked } || stage == Stage::Reset { asked });
    }

    /// A partition whose beginning is known now. Ask again until there is none.
    pub(crate) fn poll_done(&mut self) -> Option<Positioned> {
        self.done.pop_front()
    }

    /// Whether any of these still waits for its beginning.
    pub(crate) fn is_waiting_for(&self, partition: &TopicPartition) -> bool {
        self.waiting.contains_key(partition)
    }

    /// The next thing that went wrong.
    pub(crate) fn poll_fault(&mut self) -> Option<PositionFault> {
        self.faults.pop_front()
    }

    /// A partition whose leader is not, or not any more, what metadata says.
    pub(crate) fn poll_stale(&mut self) -> Option<TopicPartition> {
        self.stale.pop_front()
    }

    /// When to call [`Self::handle_timeout`] and then to ask again for what to send.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.values().filter(|waiting| waiting.is_unasked()).filter_map(|waiting| waiting.not_before).min()
    }

    /// Waits that are over are over, though nothing can be asked yet: as long as no coordinator is known, say.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for waiting in self.waiting.values_mut() {
            waiting.not_before.take_if(|not_before| now >= *not_before);
        }
    }

    fn finish(
        &mut self,
        partition: TopicPartition,
        offset: Offset,
        leader_epoch: Option<LeaderEpoch>,
        committed: Option<CommittedPosition>,
    ) {
        if let Some(Waiting { epoch, again, .. }) = self.waiting.remove(&partition) {
            self.done.push_back(Positioned { partition, epoch, committed, offset, leader_epoch, again });
        }
    }

    /// Asks again, after a wait, for everything in such a stage.
    fn again(&mut self, now: Instant, of: impl Fn(Stage) -> bool) {
        for waiting in self.waiting.values_mut().filter(|waiting| of(waiting.stage)) {
            waiting.stage = match waiting.stage {
                Stage::Committed { .. } => Stage::Committed { asked: None },
                Stage::Reset { .. } => Stage::Reset { asked: None },
            };
            waiting.delay(now, &self.backoff);
        }
    }
}

impl Waiting {
    fn is_early(&self, now: Instant) -> bool {
        self.not_before.is_some_and(|not_before| now < not_before)
    }

    fn is_unasked(&self) -> bool {
        matches!(self.stage, Stage::Committed { asked: None } | Stage::Reset { asked: None })
    }

    fn delay(&mut self, now: Instant, backoff: &ExponentialFullJitter) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + backoff.delay(self.failures, 1.0));
    }
}

fn known_epoch(epoch: i32) -> Option<LeaderEpoch> {
    (epoch >= 0).then_some(LeaderEpoch(epoch))
}

/// ListOffsets' names for the two ends of a log.
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
    use kafka_protocol::messages::offset_fetch_response::{
        OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
    };
    use uuid::Uuid;

    use super::*;

    const BACKOFF: ExponentialFullJitter =
        ExponentialFullJitter { first: Duration::from_millis(100), max: Duration::from_secs(1) };

    fn tp(partition: i32) -> TopicPartition {
        TopicPartition::new("orders", partition)
    }

    fn positions(partitions: i32, policy: OffsetReset) -> Positions {
        let mut positions = Positions::new("g", IsolationLevel::default(), BACKOFF);
        for partition in 0..partitions {
            positions.assign(tp(partition), 1, policy);
        }
        positions
    }

    fn committed(code: ErrorCode, partitions: &[(i32, i64, ErrorCode)]) -> OffsetFetchResponse {
        let partitions = partitions
            .iter()
            .map(|(partition, offset, code)| {
                OffsetFetchResponsePartitions::default()
                    .with_partition_index(*partition)
                    .with_committed_offset(*offset)
                    .with_committed_leader_epoch(3)
                    .with_metadata(Some(StrBytes::from_static_str("note")))
                    .with_error_code(code.0)
            })
            .collect();
        let topic = OffsetFetchResponseTopics::default()
            .with_name(StrBytes::from_static_str("orders").into())
            .with_partitions(partitions);
        let group = OffsetFetchResponseGroup::default()
            .with_group_id(GroupId(StrBytes::from_static_str("g")))
            .with_error_code(code.0)
            .with_topics(vec![topic]);
        OffsetFetchResponse::default().with_groups(vec![group])
    }

    fn offsets(partitions: &[(i32, i64, ErrorCode)]) -> ListOffsetsResponse {
        let partitions = partitions
            .iter()
            .map(|(partition, offset, code)| {
                ListOffsetsPartitionResponse::default()
                    .with_partition_index(*partition)
                    .with_offset(*offset)
                    .with_leader_epoch(4)
                    .with_error_code(code.0)
            })
            .collect();
        let topic = ListOffsetsTopicResponse::default()
            .with_name(StrBytes::from_static_str("orders").into())
            .with_partitions(partitions);
        ListOffsetsResponse::default().with_topics(vec![topic])
    }

    fn leader(node: i32) -> Option<Leader> {
        Some(Leader { node: NodeId(node), epoch: Some(LeaderEpoch(5)), topic_id: Uuid::nil() })
    }

    #[test]
    fn a_committed_position_is_taken_with_its_epoch_and_note() {
        let now = Instant::now();
        let mut positions = positions(1, OffsetReset::Latest);
        let (id, request) = positions.poll_committed(now, None).unwrap();
        assert!(request.require_stable);
        positions.handle_committed(now, id, &committed(ErrorCode::NONE, &[(0, 42, ErrorCode::NONE)]));
        let done = positions.poll_done().unwrap();
        let committed = done.committed.unwrap();
        assert_eq!((done.offset, committed.offset), (Offset(42), Offset(42)));
        assert_eq!((committed.leader_epoch, committed.note.as_deref()), (Some(LeaderEpoch(3)), Some("note")));
        assert!(positions.poll_reset(now, |_| leader(1)).is_none());
    }

    #[test]
    fn only_what_the_group_never_committed_is_reset_and_by_its_leader() {
        let now = Instant::now();
        let mut positions = positions(3, OffsetReset::Earliest);
        let (id, _) = positions.poll_committed(now, None).unwrap();
        let answer = [(0, -1, ErrorCode::NONE), (1, 9, ErrorCode::NONE), (2, -1, ErrorCode::NONE)];
        positions.handle_committed(now, id, &committed(ErrorCode::NONE, &answer));
        assert_eq!(positions.poll_done().unwrap().partition, tp(1));
        let leaders = |partition: &TopicPartition| leader(partition.partition);
        let first = positions.poll_reset(now, leaders).unwrap();
        let second = positions.poll_reset(now, leaders).unwrap();
        assert!(positions.poll_reset(now, leaders).is_none());
        assert_eq!((first.node, second.node), (NodeId(0), NodeId(2)));
        let asked = &second.request.topics[0].partitions[0];
        assert_eq!((asked.timestamp, asked.current_leader_epoch), (EARLIEST, 5));
        assert_eq!(second.request.isolation_level, 1, "an end is one that can be read up to");
        positions.handle_reset(now, second.id, &offsets(&[(2, 7, ErrorCode::NONE)]));
        let done = positions.poll_done().unwrap();
        assert_eq!((done.partition, done.offset, done.committed), (tp(2), Offset(7), None));
        assert_eq!(done.leader_epoch, Some(LeaderEpoch(4)), "to be checked for truncation, as a committed one");
    }

    /// A failed OffsetFetch was read as "no commit yet" and the group began anew (kafka-python#2428, krafka 0.18).
    #[test]
    fn a_refusal_or_an_unstable_offset_is_asked_again_and_never_read_as_no_commit() {
        let refusals = [
            committed(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, &[(0, -1, ErrorCode::NONE)]),
            committed(ErrorCode::GROUP_AUTHORIZATION_FAILED, &[]),
            // platformatic#267: of a member whose epoch has gone on.
            committed(ErrorCode::STALE_MEMBER_EPOCH, &[(0, -1, ErrorCode::NONE)]),
            committed(ErrorCode::NOT_COORDINATOR, &[(0, -1, ErrorCode::NONE)]),
            committed(ErrorCode::NONE, &[(0, -1, ErrorCode::UNSTABLE_OFFSET_COMMIT)]),
            committed(ErrorCode::NONE, &[(0, -1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)]),
            committed(ErrorCode::NONE, &[]),
            OffsetFetchResponse::default(),
        ];
        for refusal in refusals {
            let mut now = Instant::now();
            let mut positions = positions(1, OffsetReset::Latest);
            let (id, _) = positions.poll_committed(now, None).unwrap();
            let moved = positions.handle_committed(now, id, &refusal);
            assert_eq!(moved, refusal.groups.first().is_some_and(|g| g.error_code == ErrorCode::NOT_COORDINATOR.0));
            assert!(positions.poll_reset(now, |_| leader(1)).is_none(), "{refusal:?}");
            assert!(positions.poll_committed(now, None).is_none(), "no loop");
            now = positions.poll_timeout().expect("asked again");
            let (id, _) = positions.poll_committed(now, None).unwrap();
            positions.handle_committed(now, id, &committed(ErrorCode::NONE, &[(0, 5, ErrorCode::NONE)]));
            assert_eq!(positions.poll_done().unwrap().offset, Offset(5));
        }
    }

    /// A code that was not expected fell through to "no commit yet", and the group went on at the end (platformatic#267: 113).
    #[test]
    fn no_error_code_is_read_as_no_commit_or_as_an_offset() {
        let codes = ErrorCode::known().filter(|code| !code.is_ok()).chain([ErrorCode(9_999)]);
        for code in codes {
            for refusal in [committed(code, &[(0, -1, ErrorCode::NONE)]), committed(ErrorCode::NONE, &[(0, -1, code)])]
            {
                let now = Instant::now();
                let mut positions = positions(1, OffsetReset::Latest);
                let (id, _) = positions.poll_committed(now, None).unwrap();
                positions.handle_committed(now, id, &refusal);
                assert!(
                    positions.poll_done().is_none() && positions.poll_reset(now, |_| leader(1)).is_none(),
                    "{code}"
                );
                let now = positions.poll_timeout().expect("asked again");
                assert!(positions.poll_reset(now, |_| leader(1)).is_none(), "{code}");
                assert!(positions.poll_committed(now, None).is_some(), "{code}");
            }
            let now = Instant::now();
            let mut positions = Positions::new("g", IsolationLevel::default(), BACKOFF);
            positions.reset(tp(0), 1, OffsetReset::Latest);
            let asked = positions.poll_reset(now, |_| leader(1)).unwrap();
            positions.handle_reset(now, asked.id, &offsets(&[(0, 7, code)]));
            assert!(positions.poll_done().is_none(), "{code}");
            let now = positions.poll_timeout().expect("asked again");
            assert!(positions.poll_reset(now, |_| leader(1)).is_some(), "{code}");
        }
    }

    /// Found by the simulation: with no coordinator known nothing is asked, and a wait that was over kept its task awake.
    #[test]
    fn a_wait_that_is_over_wakes_nobody_again_and_is_asked_for_when_it_can_be() {
        let now = Instant::now();
        let mut positions = positions(1, OffsetReset::Latest);
        let (id, _) = positions.poll_committed(now, None).unwrap();
        positions.handle_failure(now, id);
        let due = positions.poll_timeout().expect("asked again");
        positions.handle_timeout(due - Duration::from_millis(1));
        assert_eq!(positions.poll_timeout(), Some(due), "not before it is over");
        positions.handle_timeout(due);
        assert_eq!(positions.poll_timeout(), None);
        assert!(positions.poll_committed(due, None).is_some());
    }

    #[test]
    fn a_leader_that_moved_is_looked_up_before_it_is_asked_again() {
        let mut now = Instant::now();
        let mut positions = Positions::new("g", IsolationLevel::default(), BACKOFF);
        positions.reset(tp(0), 4, OffsetReset::Latest);
        assert!(positions.poll_reset(now, |_| None).is_none());
        assert_eq!(positions.poll_stale(), Some(tp(0)));
        now = positions.poll_timeout().unwrap();
        let asked = positions.poll_reset(now, |_| leader(1)).unwrap();
        positions.handle_reset(now, asked.id, &offsets(&[(0, -1, ErrorCode::NOT_LEADER_OR_FOLLOWER)]));
        assert_eq!(positions.poll_stale(), Some(tp(0)));
        now = positions.poll_timeout().unwrap();
        let asked = positions.poll_reset(now, |_| leader(2)).unwrap();
        positions.handle_failure(now, asked.id);
        now = positions.poll_timeout().unwrap();
        let asked = positions.poll_reset(now, |_| leader(2)).unwrap();
        assert_eq!(asked.request.topics[0].partitions[0].timestamp, LATEST);
        positions.handle_reset(now, asked.id, &offsets(&[(0, 11, ErrorCode::NONE)]));
        let done = positions.poll_done().unwrap();
        assert_eq!((done.offset, done.epoch, done.again), (Offset(11), 4, true));
    }

    #[test]
    fn a_late_answer_to_a_forgotten_partition_is_ignored() {
        let now = Instant::now();
        let mut positions = positions(1, OffsetReset::Latest);
        let (id, _) = positions.poll_committed(now, None).unwrap();
        positions.forget([&tp(0)]);
        positions.assign(tp(0), 2, OffsetReset::Latest);
        positions.handle_committed(now, id, &committed(ErrorCode::NONE, &[(0, 42, ErrorCode::NONE)]));
        assert!(positions.poll_done().is_none());
        let (id, _) = positions.poll_committed(now, None).unwrap();
        positions.handle_committed(now, id, &committed(ErrorCode::NONE, &[(0, 43, ErrorCode::NONE)]));
        let done = positions.poll_done().unwrap();
        assert_eq!((done.epoch, done.offset), (2, Offset(43)));
    }
}
