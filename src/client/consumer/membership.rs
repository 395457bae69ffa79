//! The task that keeps a membership alive: what the group's machine asks for, carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::{
    ConsumerGroupHeartbeatResponse, DescribeGroupsResponse, FetchRequest, HeartbeatResponse, JoinGroupResponse,
    LeaveGroupResponse, ListOffsetsResponse, OffsetCommitResponse, OffsetFetchResponse, SyncGroupResponse,
};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::member::Member;
use super::state::{Phase, Shared, leader, wake};
use super::topics::Topics;
use super::{ConsumerError, ConsumerEvent, OffsetReset, Release, fetch};
use crate::client::{
    Client, ClientError, Connection, Connections, CoordinatorKind, TopicDescription, deadline_in, now,
};
use crate::machine::connection::{ConnectionError, RequestError};
use crate::machine::group::{
    CommitTransmit, ConsumerGroup, EndReason, Failure, Group, GroupEvent, GroupFault, GroupRequest, RequestId, Transmit,
};
use crate::machine::metadata::ClusterView;
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::request::EncodedRequest;
use crate::protocol::versions::NegotiatedVersions;
use crate::record::{NodeId, Topic, TopicPartition};
use crate::retry::Backoff;

/// Drives one membership until it ends.
pub(super) struct Membership {
    shared: Arc<Shared>,
    group: Member,
    /// For what the broker may hold back: joins, syncs; and heartbeats, which are not sent meanwhile.
    waiting_lane: Connections,
    /// What the broker may be holding back on that lane: everything sent there meanwhile would wait behind it.
    held: Option<RequestId>,
    /// For what must not wait behind a join: commits, offsets, leaving.
    prompt_lane: Connections,
    fetch_lane: Connections,
    /// Requests under way. They end with the task.
    answers: JoinSet<Answer>,
    /// Fetch loops. They end with the task.
    loops: JoinSet<()>,
    revocation: Option<Revocation>,
    look_for_topics: Option<Instant>,
    topics: Topics,
    end: Option<EndReason>,
    /// Whether a broker did not let this client in when it was last asked, and that was told.
    locked_out: bool,
}

struct Revocation {
    partitions: BTreeSet<TopicPartition>,
    /// Absent once it was given.
    release: Option<oneshot::Receiver<()>>,
}

/// What came back.
enum Answer {
    Coordinator(RequestId, Result<NodeId, ClientError>),
    Join(RequestId, Result<JoinGroupResponse, RequestError>),
    Sync(RequestId, Result<SyncGroupResponse, RequestError>),
    Heartbeat(RequestId, Result<HeartbeatResponse, RequestError>),
    Leave(RequestId, Result<LeaveGroupResponse, RequestError>),
    Described(RequestId, Result<DescribeGroupsResponse, RequestError>),
    ConsumerHeartbeat(RequestId, Result<ConsumerGroupHeartbeatResponse, RequestError>),
    Commit(u64, Result<OffsetCommitResponse, RequestError>),
    Committed(u64, NodeId, Result<OffsetFetchResponse, RequestError>),
    Offsets(u64, Result<ListOffsetsResponse, RequestError>),
    /// The view that the leader of a group assigns from.
    Topics(Vec<Topic>, Result<Arc<ClusterView>, ClientError>),
    /// Topics are known; leaders may be.
    Looked,
    /// All topics that there are.
    Listed(Result<Vec<TopicDescription>, ClientError>),
}

impl Membership {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let cluster = &shared.cluster;
        let topics = Topics::new(&shared.settings);
        Self {
            group: Member::new(&shared.settings, topics.all()),
            waiting_lane: cluster.connections(),
            held: None,
            prompt_lane: cluster.connections(),
            fetch_lane: cluster.connections(),
            answers: JoinSet::new(),
            loops: JoinSet::new(),
            revocation: None,
            look_for_topics: Some(now()),
            topics,
            end: None,
            locked_out: false,
            shared,
        }
    }

    pub(super) async fn run(mut self) {
        let _ends = EndsInAnyCase(self.shared.clone());
        let mut views = self.shared.cluster.changed();
        if !self.shared.settings.patterns.is_empty() {
            self.list_topics_first().await;
        }
        while self.end.is_none() {
            self.turn();
            if self.end.is_some() {
                break;
            }
            let at = self.next_timeout();
            tokio::select! {
                // So that the same events come in the same order; the timer gets its turn, as each of the others ends.
                biased;
                Some(answer) = self.answers.join_next(), if !self.answers.is_empty() => match answer {
                    Ok(answer) => self.handle(answer),
                    Err(error) => self.died(&error),
                },
                // They do not end by themselves.
                Some(Err(error)) = self.loops.join_next(), if !self.loops.is_empty() => self.died(&error),
                () = self.shared.changed.notified() => {}
                () = released(&mut self.revocation) => {}
                Ok(()) = views.changed() => {
                    let view = views.borrow_and_update().clone();
                    self.view_changed(&view);
                }
                () = sleep_until(at.into()) => self.timed_out(),
            }
        }
        self.answers.abort_all();
        // Awaited, so that none of them begins a session behind the end of its last one.
        self.loops.shutdown().await;
        self.end_sessions();
        let group = self.shared.group();
        let error = match self.end.take().unwrap_or(EndReason::Left) {
            EndReason::Failed { what } if what == NOT_LEFT => {
                Some(ConsumerError::NotInTime { group: group.to_owned(), what: "left", after: Duration::ZERO })
            }
            reason => ConsumerError::of_end(group, reason),
        };
        self.shared.end(error);
    }

    /// Tells brokers that nothing is read any more. Nobody waits for their answers, which come behind those of long polls: a connection is kept
    /// until what is under way on it is answered, or the client is closed.
    fn end_sessions(&self) {
        let settings = &self.shared.settings;
        let timeout = settings.fetch.max_wait + settings.group.request_timeout;
        for (node, request) in self.shared.lock().fetcher.end() {
            let encode = move |versions: &NegotiatedVersions| {
                Ok(EncodedRequest::new(&request, versions.choose(ApiKey::of::<FetchRequest>())?)?)
            };
            drop(self.fetch_lane.to(node).send_late(ApiKey::of::<FetchRequest>(), timeout, encode));
        }
    }

    /// A task of the membership panicked. What waits for it, a join or a broker's partitions, would wait for ever, so
    /// the membership ends, and says so.
    fn died(&mut self, error: &tokio::task::JoinError) {
        self.end = Some(EndReason::Failed { what: format!("a task of the membership ended early: {error}") });
    }

    /// Does everything that can be done without waiting.
    fn turn(&mut self) {
        let now = now();
        self.leave_if_asked(now);
        loop {
            self.release();
            self.events();
            self.positions(now);
            let Some(transmit) = self.group.poll_transmit(now) else { break };
            self.send(transmit);
        }
        self.commit(now);
        let waker = self.shared.lock().arrive(now);
        if waker.is_some() {
            wake(waker);
        }
        self.read_from_leaders();
    }

    fn leave_if_asked(&mut self, now: Instant) {
        let Some(by) = self.shared.lock().leave_by else { return };
        let busy = !self.shared.lock().commits.is_idle();
        if now >= by {
            if !self.group.is_ended() {
                self.end = Some(EndReason::Failed { what: NOT_LEFT.to_owned() });
            }
        } else if !busy || by.saturating_duration_since(now) <= LEAVE_RESERVE {
            self.revocation = None;
            self.group.leave();
        }
    }

    /// Lets go of what was released, once its commits are decided.
    fn release(&mut self) {
        let Some(Revocation { partitions, release: None }) = &self.revocation else { return };
        if !self.shared.lock().commits.is_busy_with(partitions) {
            self.revocation = None;
            self.group.released(now());
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.group.poll_event() {
            match event {
                GroupEvent::NeedTopics { topics } => self.ask_for_topics(topics, Duration::ZERO),
                GroupEvent::UseClassic { why } => {
                    tracing::info!(group = self.shared.group(), why, "joining by the classic group protocol");
                    self.group = Member::classic(&self.shared.settings, self.topics.all());
                }
                GroupEvent::Assigned { added, .. } => self.assigned(added),
                GroupEvent::Revoked { partitions } => self.revoked(&partitions),
                GroupEvent::Released { partitions } => {
                    self.revocation = None;
                    self.shared.lock().let_go(&partitions);
                }
                GroupEvent::Lost { partitions, cause } => {
                    tracing::debug!(group = self.shared.group(), ?partitions, ?cause, "partitions lost");
                    self.revocation = None;
                    let waker = {
                        let mut state = self.shared.lock();
                        let known = state.stop_reading(&partitions);
                        state.let_go(&partitions);
                        if known.is_empty() { None } else { state.tell(ConsumerEvent::Lost(known)) }
                    };
                    wake(waker);
                }
                // Told as what it is.
                GroupEvent::Fault(GroupFault::Unreachable { .. }) if self.locked_out => {}
                GroupEvent::Fault(fault) => {
                    let limit = self.shared.settings.group.revocation_timeout;
                    let error = ConsumerError::of_group(self.shared.group(), limit, fault);
                    self.shared.tell(ConsumerEvent::Fault(error));
                }
                GroupEvent::Ended { reason } => self.end = Some(reason),
            }
        }
    }

    fn assigned(&mut self, added: Vec<TopicPartition>) {
        self.see_topics(&self.shared.cluster.view());
        if self.shared.is_joining() {
            self.shared.set_phase(Phase::Joined);
        }
        let waker = {
            let mut state = self.shared.lock();
            if added.is_empty() && state.held.is_empty() {
                state.arrive_empty()
            } else {
                for partition in added {
                    let epoch = state.hold(partition.clone());
                    let policy = self.reset_policy(&partition);
                    state.positions.assign(partition, epoch, policy);
                }
                None
            }
        };
        wake(waker);
    }

    /// Where to begin without a committed position. A partition that was not there when this membership first saw its topic
    /// was written since, and no part of that is what `Latest` means to pass over (KAFKA-12478).
    fn reset_policy(&self, partition: &TopicPartition) -> OffsetReset {
        if self.topics.came_later(&partition.topic, partition.partition) {
            return OffsetReset::Earliest;
        }
        self.shared.reset_policy(&partition.topic)
    }

    /// Takes note of topics that are seen for the first time, those that do not exist yet among them.
    fn see_topics(&mut self, view: &ClusterView) {
        self.topics.see(|topic| count(view, topic).or_else(|| is_missing(view, topic).then_some(0)));
    }

    fn revoked(&mut self, partitions: &[TopicPartition]) {
        let (release, receiver) = Release::new();
        let waker = {
            let mut state = self.shared.lock();
            let known = state.stop_reading(partitions);
            // Where none was told of, the release is dropped here, which gives it.
            if known.is_empty() { None } else { state.tell(ConsumerEvent::Revoked(known, release)) }
        };
        wake(waker);
        self.revocation =
            Some(Revocation { partitions: partitions.iter().cloned().collect(), release: Some(receiver) });
    }

    fn ask_for_topics(&mut self, topics: Vec<Topic>, wait: Duration) {
        let cluster = self.shared.cluster.clone();
        let limit = self.shared.settings.group.request_timeout;
        self.answers.spawn(async move {
            if !wait.is_zero() {
                sleep(wait).await;
            }
            let view = cluster.refreshed(&topics, deadline_in(limit)).await;
            Answer::Topics(topics, view)
        });
    }

    fn send(&mut self, Transmit { id, request, timeout }: Transmit) {
        let cluster = self.shared.cluster.clone();
        match request {
            GroupRequest::FindCoordinator => {
                let group = self.shared.group().to_owned();
                // The last one moved or did not answer, or this one would not be looked for.
                cluster.forget_coordinator(CoordinatorKind::Group, &group);
                self.answers.spawn(async move {
                    let found = cluster.coordinator(CoordinatorKind::Group, &group, deadline_in(timeout)).await;
                    Answer::Coordinator(id, found)
                });
            }
            GroupRequest::Join(node, request) => {
                let connection = self.waiting_lane(node, Some(id));
                self.answers.spawn(async move { Answer::Join(id, connection.call(request, timeout).await) });
            }
            GroupRequest::Sync(node, request) => {
                let connection = self.waiting_lane(node, Some(id));
                self.answers.spawn(async move { Answer::Sync(id, connection.call(request, timeout).await) });
            }
            GroupRequest::Heartbeat(node, request) => {
                let connection = self.waiting_lane(node, None);
                self.answers.spawn(async move { Answer::Heartbeat(id, connection.call(request, timeout).await) });
            }
            GroupRequest::Leave(node, request) => {
                let connection = self.prompt_lane.to(node);
                self.answers.spawn(async move { Answer::Leave(id, connection.call(request, timeout).await) });
            }
            GroupRequest::Describe(node, request) => {
                let connection = self.prompt_lane.to(node);
                self.answers.spawn(async move { Answer::Described(id, connection.call(request, timeout).await) });
            }
            // One lane for all of them, leaving too: a join must not overtake, nor be overtaken.
            GroupRequest::ConsumerHeartbeat(node, request) => {
                let connection = self.waiting_lane(node, None);
                self.answers
                    .spawn(async move { Answer::ConsumerHeartbeat(id, connection.call(request, timeout).await) });
            }
        }
    }

    /// The connection for what the broker may hold back, and for heartbeats. A new one where an answer is still to come
    /// that nobody waits for any more.
    fn waiting_lane(&mut self, node: NodeId, held: Option<RequestId>) -> Connection {
        if self.held.take().is_some() {
            self.waiting_lane = self.shared.cluster.connections();
        }
        self.held = held;
        self.waiting_lane.to(node)
    }

    fn commit(&mut self, now: Instant) {
        let gate = self.group.commit_gate();
        let transmit = {
            let mut state = self.shared.lock();
            state.note_member(self.shared.group(), &gate);
            let transmit = state.commits.poll_transmit(now, &gate);
            state.conclude();
            transmit
        };
        let Some(CommitTransmit { id, node, request }) = transmit else { return };
        let connection = self.prompt_lane.to(node);
        let timeout = self.shared.settings.group.request_timeout;
        self.answers.spawn(async move { Answer::Commit(id, connection.call(request, timeout).await) });
    }

    fn positions(&mut self, now: Instant) {
        let timeout = self.shared.settings.group.request_timeout;
        let view = self.shared.cluster.view();
        let mut state = self.shared.lock();
        if let Some(node) = self.group.coordinator()
            && let Some((id, request)) = state.positions.poll_committed(now, self.group.identity())
        {
            let connection = self.prompt_lane.to(node);
            self.answers.spawn(async move { Answer::Committed(id, node, connection.call(request, timeout).await) });
        }
        while let Some(asked) = state.positions.poll_reset(now, |partition| leader(&view, partition)) {
            let connection = self.shared.cluster.general().to(asked.node);
            self.answers.spawn(async move { Answer::Offsets(asked.id, connection.call(asked.request, timeout).await) });
        }
        let stale: Vec<_> = std::iter::from_fn(|| state.positions.poll_stale()).collect();
        let faults: Vec<_> = std::iter::from_fn(|| state.positions.poll_fault()).collect();
        drop(state);
        for partition in stale {
            self.shared.cluster.invalidate(crate::client::Stale::Leader(partition));
        }
        for fault in faults {
            self.shared.tell(ConsumerEvent::Fault(ConsumerError::Position { what: fault.what, code: fault.code }));
        }
    }

    fn handle(&mut self, answer: Answer) {
        let now = now();
        if let Answer::Join(id, _) | Answer::Sync(id, _) = &answer {
            self.held.take_if(|held| held == id);
        }
        match answer {
            Answer::Coordinator(id, found) => {
                let found = found.map_err(|error| {
                    let fatal = !error.is_retriable();
                    self.failed(&error, error.is_locked_out(), fatal, true)
                });
                self.group.handle_coordinator(now, id, found);
            }
            Answer::Join(id, Ok(response)) => self.classic(|group| group.handle_join(now, id, response)),
            Answer::Sync(id, Ok(response)) => self.classic(|group| group.handle_sync(now, id, response)),
            Answer::Heartbeat(id, Ok(response)) => self.classic(|group| group.handle_heartbeat(now, id, &response)),
            Answer::Leave(id, Ok(response)) => self.classic(|group| group.handle_leave(id, &response)),
            Answer::Described(id, Ok(response)) => {
                self.consumer(|group, _| group.handle_description(now, id, &response));
            }
            Answer::ConsumerHeartbeat(id, Ok(response)) => {
                self.consumer(|group, view| group.handle_heartbeat(now, id, &response, |topic| name(view, topic)));
            }
            Answer::Join(id, Err(error))
            | Answer::Sync(id, Err(error))
            | Answer::Heartbeat(id, Err(error))
            | Answer::Leave(id, Err(error))
            | Answer::Described(id, Err(error))
            | Answer::ConsumerHeartbeat(id, Err(error)) => {
                // An answer that cannot be read may be readable from the next coordinator; what cannot be sent never will.
                let unsendable = matches!(error, RequestError::Unsupported { .. } | RequestError::Encode { .. });
                let fatal = error.is_closed() || error.is_locked_out() || unsendable;
                let failure = self.failed(&error, error.is_locked_out(), fatal, is_silent(&error));
                self.group.handle_failure(now, id, failure);
            }
            Answer::Commit(id, result) => self.committed(now, id, result),
            Answer::Committed(id, node, Ok(response)) => {
                if self.shared.lock().positions.handle_committed(now, id, &response) {
                    self.group.coordinator_moved(now, node);
                }
            }
            Answer::Committed(id, node, Err(_)) => {
                self.shared.lock().positions.handle_failure(now, id);
                self.group.coordinator_moved(now, node);
            }
            Answer::Offsets(id, Ok(response)) => self.shared.lock().positions.handle_reset(now, id, &response),
            Answer::Offsets(id, Err(_)) => self.shared.lock().positions.handle_failure(now, id),
            Answer::Topics(topics, Ok(view)) => {
                self.classic(|group| group.handle_topics(counts(&view, &topics)));
                self.consumer(|group, view| group.handle_names(now, |topic| name(view, topic)));
            }
            Answer::Topics(topics, Err(error)) => {
                let what = format!("partitions of {topics:?}: {error}");
                let group = self.shared.group().to_owned();
                self.shared.tell(ConsumerEvent::Fault(ConsumerError::Unreachable { group, what }));
                // The other kind of member asks again by itself. What fails at once is not asked for in a loop.
                if self.group.as_classic().is_some() {
                    self.ask_for_topics(topics, ASK_AGAIN);
                }
            }
            Answer::Listed(Ok(listing)) => self.take_listing(&listing),
            Answer::Listed(Err(error)) => {
                self.listing_failed(&error);
                self.topics.look_at = Some(now + LOOK_FOR_TOPICS);
            }
            Answer::Looked => {
                let view = self.shared.cluster.view();
                self.view_changed(&view);
                self.tell_of_missing(&view);
            }
        }
    }

    /// A failure as the group is told it. A client that was let in before is asked to be again, as its credentials may be
    /// good again later; one that never was ends.
    fn failed<E>(&mut self, error: &E, locked_out: bool, fatal: bool, silent: bool) -> Failure
    where
        E: std::error::Error + Clone + Send + Sync + 'static,
    {
        self.locked_out = locked_out && !self.shared.is_joining();
        if self.locked_out {
            self.shared.tell_locked_out(error.clone());
        }
        Failure { fatal: fatal && !self.locked_out, silent, what: error.to_string() }
    }

    fn classic(&mut self, then: impl FnOnce(&mut Group)) {
        if let Some(group) = self.group.as_classic() {
            then(group);
        }
    }

    fn consumer(&mut self, then: impl FnOnce(&mut ConsumerGroup, &ClusterView)) {
        let view = self.shared.cluster.view();
        if let Some(group) = self.group.as_consumer() {
            then(group, &view);
        }
    }

    /// A classic leader tells it when it assigns; a coordinator that assigns says nothing of it.
    fn tell_of_missing(&mut self, view: &ClusterView) {
        let Some(group) = self.group.as_consumer() else { return };
        let topics: Vec<_> = group.topics().iter().filter(|topic| is_missing(view, topic)).cloned().collect();
        if !topics.is_empty() {
            let group = self.shared.group().to_owned();
            self.shared.tell(ConsumerEvent::Fault(ConsumerError::TopicsMissing { group, topics }));
        }
    }

    fn committed(&mut self, now: Instant, id: u64, result: Result<OffsetCommitResponse, RequestError>) {
        let reaction = {
            let mut state = self.shared.lock();
            let reaction = match result {
                Ok(response) => state.commits.handle_response(now, id, &response),
                Err(error) => state.commits.handle_failure(now, id, !error.is_retriable(), error.to_string()),
            };
            state.conclude();
            reaction
        };
        self.group.handle_commit_reaction(now, &reaction);
    }

    fn view_changed(&mut self, view: &ClusterView) {
        self.see_topics(view);
        self.classic(|group| group.handle_counts(now(), |topic| count(view, topic)));
        self.consumer(|group, view| group.handle_names(now(), |topic| name(view, topic)));
        self.shared.lock().update_leaders(view);
        self.shared.fetcher_told();
        self.shared.wakes().all();
    }

    /// Starts a loop for each broker that leads something and has none.
    fn read_from_leaders(&mut self) {
        let view = self.shared.cluster.view();
        let nodes: Vec<_> = {
            let mut state = self.shared.lock();
            state.update_leaders(&view);
            state.fetcher.nodes().collect()
        };
        for node in nodes {
            let (changed, new) = self.shared.wakes().of(node);
            if new {
                let connection = self.fetch_lane.to(node);
                self.loops.spawn(fetch::run(self.shared.clone(), node, connection, changed));
            } else {
                changed.notify_one();
            }
        }
    }

    fn timed_out(&mut self) {
        let now = now();
        self.group.handle_timeout(now);
        {
            let mut state = self.shared.lock();
            state.commits.handle_timeout(now);
            state.positions.handle_timeout(now);
            state.conclude();
        }
        if self.topics.look_at.take_if(|at| now >= *at).is_some() {
            let shared = self.shared.clone();
            self.answers.spawn(async move { Answer::Listed(list_topics(shared).await) });
        }
        if self.look_for_topics.is_some_and(|at| now >= at) {
            self.look_for_topics = Some(now + LOOK_FOR_TOPICS);
            self.keep_topics();
            self.look_for_missing_topics();
        }
    }

    /// What is subscribed to, and what is held, is in use however quiet it is.
    fn keep_topics(&self) {
        let mut topics = self.group.watched_topics();
        topics.extend(self.shared.lock().held.keys().map(|partition| partition.topic.clone()));
        let view = self.shared.cluster.view();
        // Those that do not exist are looked for at this pace anyway; kept, a wrong name would stay for ever.
        self.shared.cluster.keep(topics.iter().filter(|topic| count(&view, topic).is_some()));
    }

    /// Topics that do not exist are not kept fresh by the cluster: a wrong name must not be asked for for ever.
    fn look_for_missing_topics(&mut self) {
        let view = self.shared.cluster.view();
        let missing: Vec<_> =
            self.group.watched_topics().into_iter().filter(|topic| count(&view, topic).is_none()).collect();
        if missing.is_empty() {
            return;
        }
        let cluster = self.shared.cluster.clone();
        let deadline = deadline_in(self.shared.settings.group.request_timeout);
        self.answers.spawn(async move {
            // Those that it could not be learned of are looked for again.
            let _ = cluster.refreshed(&missing, deadline).await;
            Answer::Looked
        });
    }

    /// Patterns are resolved before the group is joined: with a part of the topics it would be joined twice.
    async fn list_topics_first(&mut self) {
        let shared = self.shared.clone();
        let leave = async {
            while shared.lock().leave_by.is_none() {
                shared.changed.notified().await;
            }
        };
        tokio::pin!(leave);
        for failures in 1_u32.. {
            let listed = tokio::select! {
                biased;
                () = &mut leave => break,
                listed = list_topics(self.shared.clone()) => listed,
            };
            let error = match listed {
                Ok(listing) => return self.take_listing(&listing),
                Err(error) => error,
            };
            if !error.is_retriable() {
                self.end = Some(EndReason::Failed { what: error.to_string() });
                return;
            }
            self.listing_failed(&error);
            let again = now() + self.shared.settings.group.backoff.delay(failures, 1.0);
            tokio::select! {
                biased;
                () = &mut leave => break,
                () = sleep_until(again.into()) => {}
            }
        }
        self.end = Some(EndReason::Left);
    }

    fn take_listing(&mut self, listing: &[TopicDescription]) {
        let (now, max_age) = (now(), self.shared.cluster.config().metadata.max_age);
        if self.topics.take_listing(now, &self.shared.settings, listing, max_age) {
            self.group.subscribe(now, self.topics.all());
        }
    }

    fn listing_failed(&self, error: &ClientError) {
        let (group, what) = (self.shared.group().to_owned(), format!("the list of topics: {error}"));
        self.shared.tell(ConsumerEvent::Fault(ConsumerError::Unreachable { group, what }));
    }

    fn next_timeout(&self) -> Instant {
        let state = self.shared.lock();
        let leave = state.leave_by.map(|by| {
            let reserve = by.checked_sub(LEAVE_RESERVE).unwrap_or(by);
            if reserve > now() { reserve } else { by }
        });
        let times = [
            self.group.poll_timeout(),
            state.commits.poll_timeout(),
            state.positions.poll_timeout(),
            state.arrive_timeout(),
            self.look_for_topics,
            self.topics.look_at,
            leave,
        ];
        times.into_iter().flatten().min().unwrap_or_else(|| now() + LOOK_FOR_TOPICS)
    }
}

/// A membership's task that ends early, by a panic or with its runtime, must not leave callers waiting.
struct EndsInAnyCase(Arc<Shared>);

impl Drop for EndsInAnyCase {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            let what = "the membership's task ended early".to_owned();
            self.0.end(ConsumerError::of_end(self.0.group(), EndReason::Failed { what }));
        }
    }
}

/// Resolves when the revocation's release is given; never where none is waited for.
async fn released(revocation: &mut Option<Revocation>) {
    match revocation {
        Some(Revocation { release: release @ Some(_), .. }) => {
            if let Some(receiver) = release {
                // Dropped is given.
                let _ = receiver.await;
            }
            *release = None;
        }
        _ => std::future::pending().await,
    }
}

async fn list_topics(shared: Arc<Shared>) -> Result<Vec<TopicDescription>, ClientError> {
    let timeout = shared.settings.group.request_timeout;
    Client::over(shared.cluster.clone()).admin().with_timeout(timeout).list_topics().await
}

fn count(view: &ClusterView, topic: &str) -> Option<i32> {
    let topic = view.topic(topic)?;
    // An error does not take away what was there before.
    (topic.error.is_ok() || !topic.partitions.is_empty())
        .then(|| i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX))
}

/// Whether a broker has said that there is no such topic.
fn is_missing(view: &ClusterView, topic: &str) -> bool {
    view.topic(topic).is_some_and(|topic| topic.error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}

/// The name of the topic that has this id now.
fn name(view: &ClusterView, id: uuid::Uuid) -> Option<Topic> {
    view.topics.iter().find(|(_, topic)| topic.id == id).map(|(name, _)| name.clone())
}

fn counts(view: &ClusterView, topics: &[Topic]) -> BTreeMap<Topic, i32> {
    topics.iter().filter_map(|topic| Some((topic.clone(), count(view, topic)?))).collect()
}

/// Whether the broker gave no sign of life since the request was sent.
fn is_silent(error: &RequestError) -> bool {
    match error {
        RequestError::Unanswered { cause, .. } => match &**cause {
            // Closed by the peer. What the system gave up on by itself is silence, too.
            ConnectionError::Lost { source } => {
                use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
                matches!(source.kind(), TimedOut | HostUnreachable | NetworkUnreachable)
            }
            ConnectionError::Protocol(_) => false,
            _ => true,
        },
        RequestError::Decode(_) => false,
        _ => true,
    }
}

/// How often topics that do not exist are looked for.
const LOOK_FOR_TOPICS: Duration = Duration::from_secs(10);
/// A leader that cannot learn of its topics' partitions asks again after this.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// What is kept of a leave's time for the LeaveGroup itself, when commits still wait.
const LEAVE_RESERVE: Duration = Duration::from_secs(1);
const NOT_LEFT: &str = "not left in time";
