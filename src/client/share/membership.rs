//! The task that keeps a member of a share group alive: what its machine asks for, carried out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::ShareGroupHeartbeatResponse;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use uuid::Uuid;

use super::state::Shared;
use super::{ShareError, broker};
use crate::client::{ClientError, Connections, CoordinatorKind, deadline_in, now};
use crate::machine::connection::RequestError;
use crate::machine::fetch::Leader;
use crate::machine::group::Failure;
use crate::machine::metadata::ClusterView;
use crate::machine::share::{MemberEnd, MemberEvent, MemberRequest, MemberTransmit, ShareMember};
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic, TopicPartition};

/// Drives one member until it ends.
pub(super) struct Membership {
    shared: Arc<Shared>,
    member: ShareMember,
    heartbeats: Connections,
    sessions: Connections,
    /// Requests under way. They end with the task.
    answers: JoinSet<Answer>,
    /// Loops of the brokers. They end when nothing is to be said to the broker any more, or with the task.
    loops: JoinSet<NodeId>,
    look_for_topics: Instant,
    end: Option<MemberEnd>,
}

/// What came back.
enum Answer {
    Coordinator(u64, Result<NodeId, ClientError>),
    Heartbeat(u64, Result<ShareGroupHeartbeatResponse, RequestError>),
    /// Names of topics may be known now.
    Topics(Result<(), ClientError>),
    /// Topics that did not exist may do so now.
    Looked,
}

impl Membership {
    pub(super) fn new(shared: Arc<Shared>, member: ShareMember) -> Self {
        let cluster = &shared.cluster;
        Self {
            member,
            heartbeats: cluster.connections(),
            sessions: cluster.connections(),
            answers: JoinSet::new(),
            loops: JoinSet::new(),
            look_for_topics: now(),
            end: None,
            shared,
        }
    }

    pub(super) async fn run(mut self) {
        let _ends = EndsInAnyCase(self.shared.clone());
        let mut views = self.shared.cluster.changed();
        let mut in_time = true;
        while self.end.is_none() {
            in_time = self.leave_if_asked();
            if !in_time {
                break;
            }
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
                Some(ended) = self.loops.join_next(), if !self.loops.is_empty() => match ended {
                    Ok(node) => self.sessions.forget(node),
                    Err(error) => self.died(&error),
                },
                () = self.shared.changed.notified() => {}
                Ok(()) = views.changed() => {
                    let view = views.borrow_and_update().clone();
                    self.view_changed(&view);
                }
                () = sleep_until(at.into()) => self.timed_out(),
            }
        }
        self.answers.abort_all();
        self.loops.abort_all();
        let group = self.shared.group().to_owned();
        let error = if in_time {
            ShareError::of_end(&group, self.end.take().unwrap_or(MemberEnd::Left))
        } else {
            Some(ShareError::NotInTime { group, what: "left", after: Duration::ZERO })
        };
        self.shared.end(error);
    }

    /// A task of the membership panicked. What waits for it would wait for ever, so the membership ends, and says so.
    fn died(&mut self, error: &tokio::task::JoinError) {
        self.end = Some(MemberEnd::Failed { what: format!("a task of the membership ended early: {error}") });
    }

    /// Does everything that can be done without waiting.
    fn turn(&mut self) {
        let now = now();
        loop {
            self.events();
            let Some(transmit) = self.member.poll_transmit(now) else { break };
            self.send(transmit);
        }
        self.speak_to_brokers();
    }

    /// Closes the sessions first, so that everything is acknowledged or released, then leaves. `false` where the time is over.
    fn leave_if_asked(&mut self) -> bool {
        let Some(by) = self.shared.lock().leave_by else { return true };
        let now = now();
        if now >= by {
            return false;
        }
        let (first, closed) = {
            let mut state = self.shared.lock();
            (state.sessions.close(), state.sessions.is_closed())
        };
        // Once: a loop that is woken and has nothing to say wakes this task, and so on.
        if first {
            self.shared.wake_all();
        }
        if closed || by.saturating_duration_since(now) <= LEAVE_RESERVE {
            self.member.leave();
        }
        true
    }

    fn events(&mut self) {
        while let Some(event) = self.member.poll_event() {
            let group = self.shared.group().to_owned();
            match event {
                MemberEvent::Joined => self.shared.joined(),
                MemberEvent::Assigned(assigned) => {
                    tracing::debug!(group, partitions = assigned.len(), "share group assignment");
                    let view = self.shared.cluster.view();
                    {
                        let mut state = self.shared.lock();
                        state.sessions.assign(&assigned);
                        state.sessions.update_leaders(|partition| leader(&view, partition));
                    }
                    self.shared.wake_all();
                }
                MemberEvent::NeedTopics(topics) => {
                    let cluster = self.shared.cluster.clone();
                    let deadline = deadline_in(self.shared.settings.member.request_timeout);
                    self.answers
                        .spawn(async move { Answer::Topics(cluster.refreshed(&topics, deadline).await.map(drop)) });
                }
                MemberEvent::Unreachable { what } => self.shared.tell(ShareError::Unreachable { group, what }),
                MemberEvent::Refused { code, message } => {
                    self.shared.tell(ShareError::Refused { group, code, message });
                }
                MemberEvent::Ended(end) => self.end = Some(end),
            }
        }
    }

    fn send(&mut self, MemberTransmit { id, request, timeout }: MemberTransmit) {
        let cluster = self.shared.cluster.clone();
        match request {
            MemberRequest::FindCoordinator => {
                let group = self.shared.group().to_owned();
                // The last one moved or did not answer, or this one would not be looked for.
                cluster.forget_coordinator(CoordinatorKind::Group, &group);
                self.answers.spawn(async move {
                    let found = cluster.coordinator(CoordinatorKind::Group, &group, deadline_in(timeout)).await;
                    Answer::Coordinator(id, found)
                });
            }
            MemberRequest::Heartbeat(node, request) => {
                let connection = self.heartbeats.to(node);
                self.answers.spawn(async move { Answer::Heartbeat(id, connection.call(request, timeout).await) });
            }
        }
    }

    fn handle(&mut self, answer: Answer) {
        let (now, view) = (now(), self.shared.cluster.view());
        match answer {
            Answer::Coordinator(id, found) => {
                let failed = |error: ClientError| Failure {
                    fatal: !error.is_retriable(),
                    silent: true,
                    what: error.to_string(),
                };
                self.member.handle_coordinator(now, id, found.map_err(failed));
            }
            Answer::Heartbeat(id, Ok(response)) => {
                self.member.handle_heartbeat(now, id, &response, |topic| name(&view, topic));
            }
            Answer::Heartbeat(id, Err(error)) => {
                // An answer that cannot be read may be readable from the next coordinator; what cannot be sent never will.
                let unsendable = matches!(error, RequestError::Unsupported { .. } | RequestError::Encode { .. });
                let fatal = error.is_closed() || error.is_locked_out() || unsendable;
                self.member.handle_failure(now, id, Failure { fatal, silent: true, what: error.to_string() });
            }
            Answer::Topics(Ok(())) => self.member.handle_names(now, |topic| name(&view, topic)),
            Answer::Topics(Err(error)) => {
                // The member asks again by itself.
                let group = self.shared.group().to_owned();
                self.shared.tell(ShareError::Unreachable { group, what: format!("names of topics: {error}") });
            }
            Answer::Looked => {
                let missing = |topic: &&Topic| {
                    view.topic(topic).is_some_and(|topic| topic.error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
                };
                let topics: Vec<_> = self.member.topics().iter().filter(missing).cloned().collect();
                if !topics.is_empty() {
                    let group = self.shared.group().to_owned();
                    self.shared.tell(ShareError::TopicsMissing { group, topics });
                }
            }
        }
    }

    fn view_changed(&mut self, view: &ClusterView) {
        self.member.handle_names(now(), |topic| name(view, topic));
        self.shared.lock().sessions.update_leaders(|partition| leader(view, partition));
        self.shared.wake_all();
    }

    /// Starts a loop for each broker that something is to be said to and that has none.
    fn speak_to_brokers(&mut self) {
        let nodes = self.shared.lock().sessions.nodes();
        for node in nodes {
            let (changed, new) = self.shared.wake_of(node);
            if new {
                let connection = self.sessions.to(node);
                self.loops.spawn(broker::run(self.shared.clone(), node, connection, changed));
            }
        }
    }

    fn timed_out(&mut self) {
        let now = now();
        self.member.handle_timeout(now);
        if now >= self.look_for_topics {
            self.look_for_topics = now + LOOK_FOR_TOPICS;
            self.look_for_topics();
        }
    }

    /// What is subscribed to is in use however quiet it is. Those that do not exist are looked for at this pace.
    fn look_for_topics(&mut self) {
        let view = self.shared.cluster.view();
        let is_there = |topic: &Topic| view.topic(topic).is_some_and(|topic| !topic.partitions.is_empty());
        let (there, missing): (Vec<_>, Vec<_>) =
            self.member.topics().iter().cloned().partition(|topic| is_there(topic));
        self.shared.cluster.keep(&there);
        if missing.is_empty() {
            return;
        }
        let cluster = self.shared.cluster.clone();
        let deadline = deadline_in(self.shared.settings.member.request_timeout);
        self.answers.spawn(async move {
            // Those that it could not be learned of are looked for again.
            let _ = cluster.refreshed(&missing, deadline).await;
            Answer::Looked
        });
    }

    fn next_timeout(&self) -> Instant {
        let leave = self.shared.lock().leave_by.map(|by| {
            let reserve = by.checked_sub(LEAVE_RESERVE).unwrap_or(by);
            if reserve > now() { reserve } else { by }
        });
        let times = [self.member.poll_timeout(), Some(self.look_for_topics), leave];
        times.into_iter().flatten().min().unwrap_or(self.look_for_topics)
    }
}

/// A membership's task that ends early, by a panic or with its runtime, must not leave callers waiting.
struct EndsInAnyCase(Arc<Shared>);

impl Drop for EndsInAnyCase {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            let what = "the membership's task ended early".to_owned();
            self.0.end(Some(ShareError::Failed { group: self.0.group().to_owned(), what }));
        }
    }
}

/// The name of the topic that has this id now.
fn name(view: &ClusterView, id: Uuid) -> Option<Topic> {
    view.topics.iter().find(|(_, topic)| topic.id == id).map(|(name, _)| name.clone())
}

/// A partition's leader in this view.
fn leader(view: &ClusterView, partition: &TopicPartition) -> Option<Leader> {
    let topic = view.topic(&partition.topic)?;
    let known = topic.partitions.get(usize::try_from(partition.partition).ok()?)?;
    Some(Leader { node: known.leader?, epoch: known.leader_epoch, topic_id: topic.id })
}

/// How often topics that do not exist are looked for.
const LOOK_FOR_TOPICS: Duration = Duration::from_secs(10);
/// What is kept of a leave's time for the coordinator, when sessions are still being closed.
const LEAVE_RESERVE: Duration = Duration::from_secs(1);
