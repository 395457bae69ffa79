//! One member of a share group: heartbeats carry everything (KIP-932).
//!
//! ```text
//!               ┌── not known, fenced, silent for a session: nothing is assigned any more ──┐
//!               ▼                                                                           │
//!            Joining ──────────────────── epoch given ──────────────────────────────────▶ Stable
//!
//!            any ──leave──▶ Leaving ──answered or not──▶ Ended      any ──refused for good──▶ Ended
//! ```
//!
//! Partitions are shared, so nothing is given back before another gets it: an assignment only says where to fetch. What was
//! acquired before it changed can still be acknowledged.
//!
//! Assignments name topics by id. One whose name metadata does not have yet is kept and asked for until it does: the coordinator
//! does not say it twice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kafka_protocol::messages::{GroupId, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::machine::group::{Failure, GROUP_BACKOFF, Jitter};
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic, TopicPartition};
use crate::retry::{Backoff, ExponentialFullJitter};

/// Settings of a [`ShareMember`].
#[derive(Debug, Clone)]
pub(crate) struct MemberConfig {
    pub(crate) group: String,
    pub(crate) topics: BTreeSet<Topic>,
    /// Where this member runs (`client.rack`).
    pub(crate) rack: Option<String>,
    /// After how long without an answer nothing is taken for assigned any more.
    pub(crate) session_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) backoff: ExponentialFullJitter,
}

impl MemberConfig {
    pub(crate) fn new(group: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            topics: BTreeSet::new(),
            rack: None,
            session_timeout: Duration::from_secs(45),
            request_timeout: Duration::from_secs(30),
            backoff: GROUP_BACKOFF,
        }
    }
}

/// A member of a share group.
#[derive(Debug)]
pub(crate) struct ShareMember {
    config: MemberConfig,
    /// Ours for life, whatever the coordinator forgets: sessions with brokers go by it.
    id: StrBytes,
    /// Zero while this is no member.
    epoch: i32,
    state: State,
    coordinator: Coordinator,
    in_flight: Option<u64>,
    /// When the next request is due.
    due: Instant,
    /// When the coordinator was last heard of.
    heard: Instant,
    interval: Duration,
    /// Whether the next heartbeat says everything.
    full: bool,
    /// Whether the coordinator may know this member.
    announced: bool,
    target: BTreeSet<(Uuid, i32)>,
    /// What was told last.
    told: BTreeMap<TopicPartition, Uuid>,
    names: BTreeMap<Uuid, Topic>,
    lookup: Option<Lookup>,
    failures: u32,
    last_request: u64,
    jitter: Jitter,
    events: VecDeque<MemberEvent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Joining,
    Stable,
    Leaving,
    Ended,
}

#[derive(Debug)]
enum Coordinator {
    Unknown { not_before: Instant, asked: Option<u64> },
    Known(NodeId),
}

/// Topics of an assignment whose names are not known yet.
#[derive(Debug)]
struct Lookup {
    again_at: Instant,
    tries: u32,
}

/// A request to be sent.
#[derive(Debug)]
pub(crate) struct MemberTransmit {
    pub(crate) id: u64,
    pub(crate) request: MemberRequest,
    pub(crate) timeout: Duration,
}

/// What to ask, and whom.
#[derive(Debug)]
pub(crate) enum MemberRequest {
    FindCoordinator,
    Heartbeat(NodeId, ShareGroupHeartbeatRequest),
}

/// What a member tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MemberEvent {
    /// The coordinator took this member in.
    Joined,
    /// This is assigned, by the ids of the topics; all of it, and nothing else.
    Assigned(BTreeMap<TopicPartition, Uuid>),
    /// Ask metadata for these, and call [`ShareMember::handle_names`].
    NeedTopics(Vec<Topic>),
    /// A request was not answered.
    Unreachable { what: String },
    /// The coordinator refused, and is asked again.
    Refused { code: ErrorCode, message: Option<String> },
    /// It is over: this one left, or the coordinator refused for good.
    Ended(MemberEnd),
}

/// Why a membership ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemberEnd {
    Left,
    Refused { code: ErrorCode, message: Option<String> },
    Failed { what: String },
}

impl ShareMember {
    /// A member that will join at once by this id, which is its own. `seed` spreads its retries.
    pub(crate) fn new(now: Instant, config: MemberConfig, id: String, seed: u64) -> Self {
        Self {
            config,
            id: StrBytes::from_string(id),
            epoch: NO_EPOCH,
            state: State::Joining,
            coordinator: Coordinator::Unknown { not_before: now, asked: None },
            in_flight: None,
            due: now,
            heard: now,
            interval: LONGEST_INTERVAL,
            full: true,
            announced: false,
            target: BTreeSet::new(),
            told: BTreeMap::new(),
            names: BTreeMap::new(),
            lookup: None,
            failures: 0,
            last_request: 0,
            jitter: Jitter::new(seed),
            events: VecDeque::new(),
        }
    }

    pub(crate) fn id(&self) -> &StrBytes {
        &self.id
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    pub(crate) fn topics(&self) -> &BTreeSet<Topic> {
        &self.config.topics
    }

    /// The next request to send. Ask again until there is none.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<MemberTransmit> {
        if self.is_ended() {
            return None;
        }
        let node = match self.coordinator {
            Coordinator::Known(node) => node,
            Coordinator::Unknown { not_before, asked: None } if now >= not_before => {
                let id = self.next_request();
                self.coordinator = Coordinator::Unknown { not_before, asked: Some(id) };
                let timeout = self.config.request_timeout;
                return Some(MemberTransmit { id, request: MemberRequest::FindCoordinator, timeout });
            }
            Coordinator::Unknown { .. } => return None,
        };
        if self.in_flight.is_some() || now < self.due {
            return None;
        }
        let id = self.next_request();
        self.in_flight = Some(id);
        self.due = now + self.interval;
        // A coordinator that is silent is left while there is still time to find another one.
        let timeout = self.config.request_timeout.min(self.config.session_timeout / 3);
        Some(MemberTransmit { id, request: MemberRequest::Heartbeat(node, self.heartbeat()), timeout })
    }

    /// The next thing to tell. Ask again until there is none.
    pub(crate) fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    /// When to call [`Self::handle_timeout`], unless something else happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.is_ended() {
            return None;
        }
        let request = match self.coordinator {
            Coordinator::Unknown { not_before, asked: None } => Some(not_before),
            Coordinator::Known(_) if self.in_flight.is_none() => Some(self.due),
            _ => None,
        };
        let session = (self.state == State::Stable).then(|| self.session_end());
        let lookup = self.lookup.as_ref().map(|lookup| lookup.again_at);
        [request, session, lookup].into_iter().flatten().min()
    }

    /// Acts on what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.state == State::Stable && now >= self.session_end() {
            self.join_anew(now);
        }
        if self.lookup.as_ref().is_some_and(|lookup| now >= lookup.again_at) {
            self.look_up(now);
        }
    }

    /// The coordinator was found, or asking for it failed.
    pub(crate) fn handle_coordinator(&mut self, now: Instant, id: u64, found: Result<NodeId, Failure>) {
        let expected = matches!(self.coordinator, Coordinator::Unknown { asked: Some(asked), .. } if asked == id);
        // One that left before it had a coordinator is told nothing more.
        if !expected || self.is_ended() {
            return;
        }
        match found {
            Ok(node) => self.coordinator = Coordinator::Known(node),
            Err(failure) if failure.fatal => self.end(MemberEnd::Failed { what: failure.what }),
            Err(_) if self.state == State::Leaving => self.end(MemberEnd::Left),
            Err(failure) => {
                self.search(now);
                self.events.push_back(MemberEvent::Unreachable { what: failure.what });
            }
        }
    }

    /// A heartbeat was not answered: the coordinator may be gone.
    pub(crate) fn handle_failure(&mut self, now: Instant, id: u64, failure: Failure) {
        if self.in_flight.take_if(|asked| *asked == id).is_none() {
            return;
        }
        if self.state == State::Leaving {
            return self.end(MemberEnd::Left);
        }
        if failure.fatal {
            return self.end(MemberEnd::Failed { what: failure.what });
        }
        self.search(now);
        self.events.push_back(MemberEvent::Unreachable { what: failure.what });
    }

    /// The answer to a heartbeat, and the names of topics, by id, as metadata has them now.
    pub(crate) fn handle_heartbeat(
        &mut self,
        now: Instant,
        id: u64,
        response: &ShareGroupHeartbeatResponse,
        name_of: impl Fn(Uuid) -> Option<Topic>,
    ) {
        if self.in_flight.take_if(|asked| *asked == id).is_none() {
            return;
        }
        if self.state == State::Leaving {
            return self.end(MemberEnd::Left);
        }
        let message = response.error_message.as_ref().filter(|said| !said.is_empty()).map(ToString::to_string);
        match ErrorCode(response.error_code) {
            ErrorCode::NONE if response.member_epoch > NO_EPOCH => self.accepted(now, response, name_of),
            ErrorCode::NONE => self.refused(now, ErrorCode::UNKNOWN_SERVER_ERROR, message),
            code => self.refused(now, code, message),
        }
    }

    /// The names of topics, by id, as metadata has them now.
    pub(crate) fn handle_names(&mut self, now: Instant, name_of: impl Fn(Uuid) -> Option<Topic>) {
        if self.lookup.is_some() {
            self.name(name_of);
            self.tell(now);
        }
    }

    /// Leaves the group.
    pub(crate) fn leave(&mut self) {
        if matches!(self.state, State::Ended | State::Leaving) {
            return;
        }
        self.lookup = None;
        if !self.announced {
            return self.end(MemberEnd::Left);
        }
        // On the same connection as a heartbeat that is under way, and so after it.
        self.in_flight = None;
        self.due = self.heard;
        self.state = State::Leaving;
    }

    fn accepted(
        &mut self,
        now: Instant,
        response: &ShareGroupHeartbeatResponse,
        name_of: impl Fn(Uuid) -> Option<Topic>,
    ) {
        if self.state == State::Joining {
            self.state = State::Stable;
            self.events.push_back(MemberEvent::Joined);
        }
        self.heard = now;
        self.failures = 0;
        self.full = false;
        self.epoch = response.member_epoch;
        let interval = u64::try_from(response.heartbeat_interval_ms).unwrap_or_default();
        self.interval = Duration::from_millis(interval).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        self.due = now + self.interval;
        if let Some(assignment) = &response.assignment {
            let topics = assignment.topic_partitions.iter();
            self.target = topics
                .flat_map(|topic| topic.partitions.iter().map(|partition| (topic.topic_id, *partition)))
                .collect();
            self.target.retain(|(_, partition)| *partition >= 0);
            let wanted: BTreeSet<_> = self.target.iter().map(|(id, _)| *id).collect();
            self.names.retain(|id, _| wanted.contains(id));
            self.name(name_of);
            self.lookup = None;
        }
        self.tell(now);
    }

    /// Tells what is assigned, as far as it has names, where that has changed.
    fn tell(&mut self, now: Instant) {
        let named = self.target.iter().filter_map(|(id, partition)| {
            let topic = self.names.get(id)?;
            Some((TopicPartition::new(topic.clone(), *partition), *id))
        });
        let assigned: BTreeMap<_, _> = named.collect();
        if assigned != self.told {
            self.told = assigned.clone();
            self.events.push_back(MemberEvent::Assigned(assigned));
        }
        if self.unnamed().next().is_none() {
            self.lookup = None;
        } else if self.lookup.is_none() {
            self.look_up(now);
        }
    }

    fn name(&mut self, name_of: impl Fn(Uuid) -> Option<Topic>) {
        let missing: BTreeSet<_> = self.unnamed().collect();
        self.names.extend(missing.into_iter().filter_map(|id| Some((id, name_of(id)?))));
    }

    /// Topics of the assignment that have no name yet.
    fn unnamed(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.target.iter().map(|(id, _)| *id).filter(|id| !self.names.contains_key(id))
    }

    fn look_up(&mut self, now: Instant) {
        let tries = self.lookup.as_ref().map_or(0, |lookup| lookup.tries) + 1;
        let again_at = now + self.config.backoff.delay(tries, 1.0).max(MIN_WAIT);
        self.lookup = Some(Lookup { again_at, tries });
        self.events.push_back(MemberEvent::NeedTopics(self.config.topics.iter().cloned().collect()));
    }

    fn heartbeat(&mut self) -> ShareGroupHeartbeatRequest {
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(GroupId(StrBytes::from_string(self.config.group.clone())))
            .with_member_id(self.id.clone());
        if self.state == State::Leaving {
            return request.with_member_epoch(LEAVE);
        }
        self.announced = true;
        let request = request.with_member_epoch(self.epoch);
        if !self.full {
            return request;
        }
        let topics = self.config.topics.iter().map(|topic| TopicName(StrBytes::from_string(topic.as_str().to_owned())));
        request
            .with_rack_id(self.config.rack.clone().map(StrBytes::from_string))
            .with_subscribed_topic_names(Some(topics.collect()))
    }

    /// A coordinator's refusal.
    fn refused(&mut self, now: Instant, code: ErrorCode, message: Option<String>) {
        self.full = true;
        match code {
            ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::FENCED_MEMBER_EPOCH => self.join_anew(now),
            ErrorCode::GROUP_ID_NOT_FOUND if self.state == State::Stable => self.join_anew(now),
            ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => self.search(now),
            ErrorCode::GROUP_ID_NOT_FOUND
            | ErrorCode::GROUP_MAX_SIZE_REACHED
            | ErrorCode::GROUP_AUTHORIZATION_FAILED
            | ErrorCode::TOPIC_AUTHORIZATION_FAILED
            | ErrorCode::UNSUPPORTED_VERSION
            | ErrorCode::INVALID_GROUP_ID
            | ErrorCode::INVALID_REQUEST => self.end(MemberEnd::Refused { code, message }),
            code => {
                self.due = now + self.wait();
                if code != ErrorCode::COORDINATOR_LOAD_IN_PROGRESS {
                    self.events.push_back(MemberEvent::Refused { code, message });
                }
            }
        }
    }

    /// Joins with nothing.
    fn join_anew(&mut self, now: Instant) {
        self.epoch = NO_EPOCH;
        self.full = true;
        self.target.clear();
        self.tell(now);
        self.state = State::Joining;
        self.in_flight = None;
        // The first time at once; a coordinator that keeps saying so is asked more slowly.
        self.due = if self.failures == 0 { now } else { now + self.wait() };
        self.failures += 1;
    }

    fn end(&mut self, reason: MemberEnd) {
        self.state = State::Ended;
        self.in_flight = None;
        self.lookup = None;
        self.target.clear();
        self.events.push_back(MemberEvent::Ended(reason));
    }

    /// Looks for the coordinator, after a wait.
    fn search(&mut self, now: Instant) {
        // One that leaves has no time to wait.
        let not_before = if self.state == State::Leaving { now } else { now + self.wait() };
        self.coordinator = Coordinator::Unknown { not_before, asked: None };
        self.in_flight = None;
        self.full = true;
        self.due = not_before;
    }

    fn session_end(&self) -> Instant {
        self.heard + self.config.session_timeout.max(3 * self.interval)
    }

    fn wait(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.config.backoff.delay(self.failures, self.jitter.next()).max(MIN_WAIT)
    }

    fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }
}

const NO_EPOCH: i32 = 0;
const LEAVE: i32 = -1;
/// Never nothing: a broker that refuses at once would be asked in a loop.
const MIN_WAIT: Duration = Duration::from_millis(20);
/// Bounds of what a coordinator may ask for (`group.share.heartbeat.interval.ms`, 5 s by default).
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
