//! The loop that speaks to one broker.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::ShareFetchResponse;
use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout_at};

use super::ShareError;
use super::state::Shared;
use crate::client::{Connection, now};
use crate::error::WriteOutcome;
use crate::machine::connection::RequestError;
use crate::machine::metadata::{BrokerAddress, LeaderHint};
use crate::machine::share::{Answer, Next, NoAnswer, PartAnswer, Plan, open};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::share::{ShareAcknowledged, ShareFetched};
use crate::record::{LeaderEpoch, NodeId, TopicPartition};

/// Says to a broker what the sessions want said, until they have done with it; returns which it was.
///
/// Every wait has an end: the loop looks again at the latest after [`LOOK_AGAIN`], whatever wake-up was lost.
pub(super) async fn run(shared: Arc<Shared>, node: NodeId, connection: Connection, changed: Arc<Notify>) -> NodeId {
    let mut failures = 0_u32;
    loop {
        let plan = match shared.poll_broker(node) {
            Next::Send(plan) => Arc::new(plan),
            Next::Gone => return node,
            Next::Wait(until) => {
                // A session that needs no end is closed by having been asked for.
                shared.changed.notify_one();
                let latest = now() + LOOK_AGAIN;
                let until = until.map_or(latest, |until| until.min(latest));
                let _ = timeout_at(until.into(), changed.notified()).await;
                continue;
            }
        };
        match ask(&shared, &connection, &plan).await {
            Ok(answer) => {
                failures = 0;
                shared.lock().sessions.handle_answer(now(), &plan, answer);
            }
            Err(error) => {
                failures += 1;
                shared.lock().sessions.handle_failure(now(), &plan, &no_answer(&plan, &error));
                if error.is_closed() {
                    shared.sessions_told();
                    // The client was closed; the membership's end ends this task.
                    sleep_until((now() + LOOK_AGAIN).into()).await;
                } else if failures.is_multiple_of(TELL_EVERY) {
                    let group = shared.group().to_owned();
                    shared.tell(ShareError::Unanswered { group, node, source: error });
                }
            }
        }
        shared.sessions_told();
    }
}

async fn ask(shared: &Shared, connection: &Connection, plan: &Arc<Plan>) -> Result<Answer, RequestError> {
    let timeout = shared.settings.member.request_timeout;
    let asked = plan.clone();
    if let Some(fetch) = &plan.fetch {
        let request = plan.fetch_request(fetch);
        let ShareFetched(response) = connection.call(request, timeout + fetch.max_wait).await?;
        return Ok(fetched(shared, plan, response, connection.muted_for()).await);
    }
    let answer = connection.call(asked.acknowledge_request(), timeout).await?;
    Ok(acknowledged(answer, connection.muted_for()))
}

/// Reads the answer, one partition after the other; other tasks get their turn in between.
async fn fetched(shared: &Shared, plan: &Plan, response: ShareFetchResponse, throttle: Duration) -> Answer {
    shared.cluster.learn_leaders(&leader_hints(shared, plan.node, &response));
    let read = shared.settings.sessions.read;
    let budget = shared.lock().sessions.budget().clone();
    let mut seen = BTreeSet::new();
    let mut partitions = Vec::new();
    for topic in response.responses {
        for mut data in topic.partitions {
            let id = (topic.topic_id, data.partition_index);
            if !seen.insert(id) {
                // A partition that is named twice counts once.
                continue;
            }
            let opened = (data.error_code == 0).then(|| open(&mut data, &read, &budget));
            partitions.push(PartAnswer {
                id,
                fetch: ErrorCode(data.error_code),
                acknowledge: ErrorCode(data.acknowledge_error_code),
                opened,
            });
            tokio::task::consume_budget().await;
        }
    }
    let lock_timeout = millis(response.acquisition_lock_timeout_ms);
    Answer { code: ErrorCode(response.error_code), lock_timeout, throttle, partitions }
}

fn acknowledged(answer: ShareAcknowledged, throttle: Duration) -> Answer {
    let ShareAcknowledged { body, lock_timeout_ms } = answer;
    let parts = body.responses.into_iter().flat_map(|topic| {
        topic.partitions.into_iter().map(move |data| PartAnswer {
            id: (topic.topic_id, data.partition_index),
            fetch: ErrorCode::NONE,
            acknowledge: ErrorCode(data.error_code),
            opened: None,
        })
    });
    Answer {
        code: ErrorCode(body.error_code),
        lock_timeout: millis(lock_timeout_ms),
        throttle,
        partitions: parts.collect(),
    }
}

fn no_answer(plan: &Plan, error: &RequestError) -> NoAnswer {
    match error {
        RequestError::Encode(_) if plan.renews() => NoAnswer::CannotRenew,
        error if error.write_outcome() == WriteOutcome::NotWritten => NoAnswer::NotSent,
        error => NoAnswer::Unknown { what: error.to_string() },
    }
}

/// What the answer says of leaders that moved (KIP-951). Of no broker that refuses and names itself.
fn leader_hints(shared: &Shared, asked: NodeId, response: &ShareFetchResponse) -> Vec<LeaderHint> {
    let mut hints = Vec::new();
    let view = shared.cluster.view();
    for topic in &response.responses {
        for data in &topic.partitions {
            let leader = NodeId(data.current_leader.leader_id);
            let moved = [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH];
            let refused = moved.contains(&ErrorCode(data.error_code));
            if !refused || leader.0 < 0 || data.current_leader.leader_epoch < 0 || leader == asked {
                continue;
            }
            let named = view.topics.iter().find(|(_, known)| known.id == topic.topic_id);
            let Some((name, _)) = named else { continue };
            let endpoint = response.node_endpoints.iter().find(|endpoint| endpoint.node_id.0 == leader.0);
            let address = endpoint.and_then(|at| Some(BrokerAddress::new(&*at.host, u16::try_from(at.port).ok()?)));
            hints.push(LeaderHint {
                partition: TopicPartition::new(name.clone(), data.partition_index),
                topic_id: topic.topic_id,
                leader,
                epoch: LeaderEpoch(data.current_leader.leader_epoch),
                address,
            });
        }
    }
    hints
}

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

/// A wait that nothing ends is a fault that nobody sees.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// One request that fails is daily business; this many in a row are told.
const TELL_EVERY: u32 = 3;
