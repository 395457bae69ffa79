//! ShareFetch: records that are locked for a member of a share group, and what becomes of others (KIP-932).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::share_fetch_response::{
    AcquiredRecords, LeaderIdAndEpoch, NodeEndpoint, PartitionData, ShareFetchableTopicResponse,
};
use kafka_protocol::messages::{BrokerId, ShareFetchResponse};
use uuid::Uuid;

use super::Serve;
use crate::protocol::batch;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::share::{ShareFetch, ShareFetched};
use crate::record::Topic;
use crate::testing::broker::call::{Call, Step};
use crate::testing::broker::core::{Core, Refusal, millis, text};
use crate::testing::broker::partition::{ReadFrom, UpTo};
use crate::testing::broker::share_group::{Acknowledged, CLOSE, OPEN, PartitionId, Run};

impl Serve for ShareFetch {
    fn serve(self, core: &mut Core, call: &Call) -> Step<Self> {
        let (group, member) =
            (id(self.body.group_id.as_ref().map(|id| id.as_str())), id(self.body.member_id.as_deref()));
        let acknowledged = acknowledgements(&self);
        let partitions = match enter(core, call, &self, &group, &member, acknowledged.is_empty()) {
            Ok(partitions) => partitions,
            Err(code) => return Step::Answer(above(code)),
        };
        let mut outcomes = BTreeMap::new();
        for (partition, batches) in acknowledged {
            let done = core.share_acknowledge(call, (&group, &member), partition, &batches, self.is_renew);
            outcomes.insert(partition, done.err());
        }
        if self.body.share_session_epoch == CLOSE {
            core.share_close(&group, call.node, &member);
        }
        core.changed();
        let until =
            if partitions.is_empty() || self.is_renew { call.now } else { call.now + millis(self.body.max_wait_ms) };
        let poll = Poll {
            call: call.clone(),
            group,
            member,
            partitions: if self.is_renew { BTreeMap::new() } else { partitions },
            outcomes,
            max_records: usize::try_from(self.body.max_records).unwrap_or(0),
            max_bytes: usize::try_from(self.body.max_bytes).unwrap_or(0).min(core.settings.max_fetch_bytes),
            strict: self.acquire_mode == RECORD_LIMIT,
        };
        Step::wait(core, call.now, Some(until), move |core, now| poll.ask(core, now, now >= until))
    }

    fn refuse(self, _core: &mut Core, _call: &Call, code: ErrorCode) -> ShareFetched {
        above(code)
    }

    fn throttle(answer: &mut ShareFetched, ms: i32) {
        answer.0.throttle_time_ms = ms;
    }

    fn names(&self, core: &Core, call: &Call) -> Vec<(Topic, i32)> {
        let (group, member) =
            (id(self.body.group_id.as_ref().map(|id| id.as_str())), id(self.body.member_id.as_deref()));
        let named = self
            .body
            .topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id, partition.partition_index)));
        let known = core.share_session(&group, call.node, &member);
        let all: BTreeSet<PartitionId> = named.chain(known).collect();
        all.into_iter().filter_map(|(topic, at)| Some((core.topics.name_of(topic)?.clone(), at))).collect()
    }
}

/// A fetch that waits for records.
struct Poll {
    call: Call,
    group: String,
    member: String,
    /// Those of its session, and whether each is new in it.
    partitions: BTreeMap<PartitionId, bool>,
    /// What became of what it acknowledged.
    outcomes: BTreeMap<PartitionId, Option<Refusal>>,
    max_records: usize,
    max_bytes: usize,
    strict: bool,
}

impl Poll {
    fn ask(&self, core: &mut Core, now: Instant, over: bool) -> Option<ShareFetched> {
        let (mut records, mut bytes, mut told) = (0, 0, false);
        let mut parts: BTreeMap<PartitionId, PartitionData> = BTreeMap::new();
        for (at, outcome) in &self.outcomes {
            let part = match outcome {
                None => empty(at.1),
                Some(refusal) => {
                    let code = refusal.code.0;
                    empty(at.1).with_acknowledge_error_code(code).with_acknowledge_error_message(refusal.words())
                }
            };
            parts.insert(*at, part);
        }
        for at in self.partitions.keys() {
            let left = (self.max_records.saturating_sub(records), self.max_bytes.saturating_sub(bytes));
            let found = self.acquire(core, now, *at, left);
            let part = parts.entry(*at).or_insert_with(|| empty(at.1));
            match found {
                Ok((_, runs)) if runs.is_empty() => {}
                Ok((found, runs)) => {
                    told = true;
                    records += runs.iter().map(|(first, last, _)| (last - first + 1) as usize).sum::<usize>();
                    bytes += found.len();
                    part.records = Some(found);
                    part.acquired_records = runs.into_iter().map(acquired).collect();
                }
                Err(code) => {
                    told = true;
                    part.error_code = code.0;
                }
            }
        }
        if !told && !over {
            return None;
        }
        // One that is new in the session is told though there is nothing to tell.
        let is_new = |at: &PartitionId| self.partitions.get(at).copied().unwrap_or(false);
        let quiet = |part: &PartitionData| part.error_code == 0 && part.acquired_records.is_empty();
        parts.retain(|at, part| is_new(at) || self.outcomes.contains_key(at) || !quiet(part));
        Some(self.answer(core, parts))
    }

    /// Locks what is available of a partition: whole batches, or up to the limit exactly.
    fn acquire(
        &self,
        core: &mut Core,
        now: Instant,
        at: PartitionId,
        (room, max_bytes): (usize, usize),
    ) -> Result<(Bytes, Vec<Run>), ErrorCode> {
        let limits = core.share_limits();
        let from_earliest = core.settings.share_from_earliest;
        let name = core.topics.name_of(at.0).cloned().ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
        if let Some(code) = self.call.failure_of(&name, at.1) {
            return Err(code);
        }
        let partition = core.topics.partition(&name, at.1)?;
        partition.check(self.call.node, -1, true)?;
        let log_start = partition.leader_log().map_or(0, |log| log.start().0);
        let first = if from_earliest { log_start } else { partition.high_watermark() };
        let group = core.groups.share(&self.group, false, 0)?;
        let begin = group.begin(at, partition.leader_epoch, log_start, first, limits.deliveries);
        let (mut offset, mut taken) = (begin, 0);
        let (mut records, mut runs) = (BytesMut::new(), Vec::new());
        while taken < room && (records.is_empty() || records.len() < max_bytes) && offset < begin + limits.max_locks {
            let one = ReadFrom {
                offset,
                last_fetched_epoch: None,
                up_to: UpTo::HighWatermark,
                max_bytes: 1,
                at_least_one: true,
            };
            let read = partition.read(self.call.node, one)?;
            let Some(Ok(batch)) = batch::encoded(read.records).next() else { break };
            let (header, whole) = (*batch.header(), if self.strict { room - taken } else { usize::MAX });
            let range = (header.base_offset.0.max(offset), header.next_offset().0 - 1);
            let got = group.acquire(at, &self.member, range, whole, (limits, now));
            taken += got.iter().map(|(first, last, _)| (last - first + 1) as usize).sum::<usize>();
            if !got.is_empty() {
                records.extend_from_slice(batch.bytes());
                runs.extend(got);
            }
            offset = header.next_offset().0;
        }
        Ok((records.freeze(), runs))
    }

    /// The answer, with the leaders of those that came to the wrong node (KIP-951).
    fn answer(&self, core: &Core, parts: BTreeMap<PartitionId, PartitionData>) -> ShareFetched {
        let mut topics: BTreeMap<Uuid, Vec<PartitionData>> = BTreeMap::new();
        let mut leaders = BTreeSet::new();
        for ((topic, index), mut part) in parts {
            let stale = [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH];
            let partition = core.topics.name_of(topic).and_then(|name| core.topics.partition(name, index).ok());
            if let Some(partition) = partition.filter(|_| stale.contains(&ErrorCode(part.error_code)))
                && let Some(leader) = partition.leader
            {
                part.current_leader =
                    LeaderIdAndEpoch::default().with_leader_id(leader).with_leader_epoch(partition.leader_epoch);
                leaders.insert(leader);
            }
            topics.entry(topic).or_default().push(part);
        }
        let endpoint = |leader: i32| {
            let (host, port) = core.endpoint(leader, self.call.listener);
            let rack = core.nodes.get(leader).and_then(|node| node.rack.as_deref()).map(text);
            NodeEndpoint::default().with_node_id(BrokerId(leader)).with_host(host).with_port(port).with_rack(rack)
        };
        let topics = topics
            .into_iter()
            .map(|(id, parts)| ShareFetchableTopicResponse::default().with_topic_id(id).with_partitions(parts));
        let lock = core.settings.share_record_lock.as_millis();
        ShareFetched(
            ShareFetchResponse::default()
                .with_acquisition_lock_timeout_ms(i32::try_from(lock).unwrap_or(i32::MAX))
                .with_responses(topics.collect())
                .with_node_endpoints(leaders.into_iter().map(endpoint).collect()),
        )
    }
}

fn enter(
    core: &mut Core,
    call: &Call,
    request: &ShareFetch,
    group: &str,
    member: &str,
    is_silent: bool,
) -> Result<BTreeMap<PartitionId, bool>, ErrorCode> {
    let epoch = request.body.share_session_epoch;
    // A session that begins has nothing to acknowledge.
    if group.is_empty() || member.is_empty() || (epoch == OPEN && !is_silent) {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    let added = request
        .body
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id, partition.partition_index)));
    let forgotten = request.body.forgotten_topics_data.iter();
    let forgotten = forgotten.flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id, *partition)));
    let forgotten = forgotten.collect();
    core.groups.share(group, false, 0)?.enter((call.node, member, call.connection), epoch, added, &forgotten)
}

fn acknowledgements(request: &ShareFetch) -> BTreeMap<PartitionId, Vec<Acknowledged>> {
    let mut all = BTreeMap::new();
    for topic in &request.body.topics {
        for partition in topic.partitions.iter().filter(|partition| !partition.acknowledgement_batches.is_empty()) {
            let batches = partition.acknowledgement_batches.iter().map(|batch| Acknowledged {
                first: batch.first_offset,
                last: batch.last_offset,
                types: batch.acknowledge_types.clone(),
            });
            all.insert((topic.topic_id, partition.partition_index), batches.collect());
        }
    }
    all
}

fn acquired((first, last, count): Run) -> AcquiredRecords {
    AcquiredRecords::default()
        .with_first_offset(first)
        .with_last_offset(last)
        .with_delivery_count(i16::try_from(count).unwrap_or(i16::MAX))
}

fn empty(partition: i32) -> PartitionData {
    PartitionData::default().with_partition_index(partition).with_records(Some(Bytes::new()))
}

fn above(code: ErrorCode) -> ShareFetched {
    ShareFetched(ShareFetchResponse::default().with_error_code(code.0).with_error_message(None))
}

/// A name; nothing for none.
pub(super) fn id(id: Option<&str>) -> String {
    id.unwrap_or_default().to_owned()
}

const RECORD_LIMIT: i8 = 1;
