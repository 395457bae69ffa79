//! The loop that reads from one broker.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout_at};

use super::state::Shared;
use super::{ConsumerError, ConsumerEvent};
use crate::client::{Connection, now};
use crate::machine::connection::RequestError;
use crate::machine::fetch::{AnswerReader, FetchAnswer, FetchPlan, NextFetch, PartitionOutcome};
use crate::machine::metadata::{BrokerAddress, LeaderHint};
use crate::protocol::error_code::ErrorCode;
use crate::record::{LeaderEpoch, NodeId};
use kafka_protocol::messages::FetchResponse;

/// Asks a broker for what the fetcher wants of it, for as long as the membership lasts.
///
/// Every wait has an end: the loop looks again at the latest after [`LOOK_AGAIN`], whatever wake-up was lost.
pub(super) async fn run(shared: Arc<Shared>, node: NodeId, connection: Connection, changed: Arc<Notify>) {
    let mut failures = 0_u32;
    loop {
        let next = shared.lock().fetcher.poll_request(now(), node);
        let plan = match next {
            NextFetch::Send(plan) => Arc::new(plan),
            NextFetch::Wait(until) => {
                let latest = now() + LOOK_AGAIN;
                let until = until.map_or(latest, |until| until.min(latest));
                shared.fetcher_told();
                // Whether it was woken or it is time: look again.
                let _ = timeout_at(until.into(), changed.notified()).await;
                continue;
            }
        };
        match ask(&shared, &connection, &plan).await {
            Ok(response) => {
                failures = 0;
                let throttle = connection.muted_for();
                let answer = open(&shared, &plan, response, throttle).await;
                shared.lock().fetcher.handle_answer(now(), &plan, answer);
            }
            Err(error) => {
                failures += 1;
                shared.lock().fetcher.handle_failure(now(), &plan);
                if error.is_closed() {
                    // The client was closed; the membership's end ends this task.
                    sleep_until((now() + LOOK_AGAIN).into()).await;
                } else if error.is_locked_out() {
                    shared.tell_locked_out(error);
                } else if failures.is_multiple_of(TELL_EVERY) {
                    shared.tell(ConsumerEvent::Fault(ConsumerError::FetchUnanswered { node, source: error }));
                }
            }
        }
        shared.fetcher_told();
    }
}

async fn ask(shared: &Shared, connection: &Connection, plan: &Arc<FetchPlan>) -> Result<FetchResponse, RequestError> {
    let timeout = plan.max_wait + shared.settings.group.request_timeout;
    let asked = plan.clone();
    connection.call_with(plan.max_version(), timeout, move |version| asked.request(version)).await
}

/// Reads the answer, piece by piece; other tasks get their turn in between.
async fn open(shared: &Shared, plan: &FetchPlan, response: FetchResponse, throttle: Duration) -> FetchAnswer {
    let (code, session) = (ErrorCode(response.error_code), response.session_id);
    let moved = shared.cluster.learn_leaders(&leader_hints(plan, &response));
    let budget = shared.lock().fetcher.budget().clone();
    let mut reader = AnswerReader::new(response, shared.settings.fetch.read, budget);
    let mut outcomes = Vec::new();
    while let Some(read) = reader.next(plan) {
        let Poll::Ready((index, outcome)) = read else {
            tokio::task::yield_now().await;
            continue;
        };
        let outcome = match outcome {
            PartitionOutcome::Refused(_)
                if plan.asked.get(index).is_some_and(|asked| moved.contains(&asked.partition)) =>
            {
                PartitionOutcome::Moved
            }
            PartitionOutcome::Nearer(Some(node)) if !shared.cluster.view().brokers.contains_key(&node) => {
                PartitionOutcome::Nearer(None)
            }
            outcome => outcome,
        };
        outcomes.push((index, outcome));
        tokio::task::consume_budget().await;
    }
    FetchAnswer { throttle, code, session, outcomes }
}

/// What the answer says of leaders that moved (KIP-951). Of partitions that were asked for alone, and of no broker that refused and
/// names itself.
fn leader_hints(plan: &FetchPlan, response: &FetchResponse) -> Vec<LeaderHint> {
    let mut hints = Vec::new();
    for topic in &response.responses {
        for data in &topic.partitions {
            let leader = NodeId(data.current_leader.leader_id.0);
            let refused = MOVED.contains(&ErrorCode(data.error_code));
            if !refused || leader.0 < 0 || data.current_leader.leader_epoch < 0 || leader == plan.node {
                continue;
            }
            let asked = plan.asked.find(0, topic, data.partition_index).and_then(|at| plan.asked.get(at));
            let Some(asked) = asked else { continue };
            let endpoint = response.node_endpoints.iter().find(|endpoint| endpoint.node_id.0 == leader.0);
            let address = endpoint.and_then(|at| Some(BrokerAddress::new(&*at.host, u16::try_from(at.port).ok()?)));
            hints.push(LeaderHint {
                partition: asked.partition.clone(),
                topic_id: topic.topic_id,
                leader,
                epoch: LeaderEpoch(data.current_leader.leader_epoch),
                address,
            });
        }
    }
    hints
}

/// Refusals with which a broker tells who leads (KIP-951).
const MOVED: [ErrorCode; 2] = [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH];
/// A wait that nothing ends is a fault that nobody sees (platformatic#251).
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// One request that fails is daily business; this many in a row are told.
const TELL_EVERY: u32 = 3;
