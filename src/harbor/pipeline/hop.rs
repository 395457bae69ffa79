//! What is done with a record whose delivery failed.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::adapter::BoxFuture;
use crate::harbor::error::HarborError;
use crate::harbor::failure::Failure;
use crate::harbor::guard;
use crate::harbor::headers::{Hop, LadderHeaders, RetryBlock};
use crate::harbor::pipeline::crossing::Crossing;
use crate::harbor::pipeline::note::{Halt, Moved, Settled, Stop};
use crate::harbor::pipeline::report;
use crate::harbor::pipeline::setup::Served;
use crate::harbor::pipeline::worker::{Delivery, Worker};
use crate::harbor::settle::{Disposition, Place, is_tried_in_place, settle};
use crate::observe::{FailureOutcome, ProduceKind, StopReason};
use crate::record::{Header, Record, Topic};

impl Worker {
    /// A delivery failed: it is written to its next topic, or the consumer stops.
    pub(super) fn failed<'a>(
        &'a mut self,
        served: Served<'a>,
        delivery: Delivery<'a>,
        block: Option<RetryBlock>,
        failure: Failure,
        started: Option<Instant>,
    ) -> BoxFuture<'a, Result<(), Halt>> {
        let plan = served.plan;
        let took = started.map_or(Duration::ZERO, |started| started.elapsed());
        Box::pin(async move {
            if self.lane.gate.is_cut() {
                return Err(Halt::Closed);
            }
            let setup = self.setup.clone();
            let failure = failure.classified(&setup.classifiers);
            let level = self.lane.route.level;
            let place = Place { level, delays: setup.topology.delays(), dead_letters: plan.dead_letter.is_some() };
            let disposition = settle(&failure, place, |failure| self.retry_wanted(failure));
            let target = match disposition {
                Disposition::Retry { level: next } => plan.retry_topic(next).map(|topic| (topic, Some(next))),
                Disposition::DeadLetter => plan.dead_letter.as_ref().map(|topic| (topic, None)),
                Disposition::Abort | Disposition::Crash => None,
            };
            let Some((to, next)) = target else {
                let aborted = disposition == Disposition::Abort;
                let (outcome, reason) = if aborted {
                    (FailureOutcome::Abort, StopReason::Abort)
                } else {
                    (FailureOutcome::Crash, StopReason::Crash)
                };
                setup.report_failed(&self.lane, &delivery.record, &failure, took, outcome);
                return Err(Halt::Stop(Box::new(Stop { reason, error: failure.into(), topic: None })));
            };
            let now = setup.clock.now();
            let hop = Hop {
                previous: block.as_ref(),
                original_topic: &plan.topic,
                error: &failure.last_error(setup.text_form),
                failed_at: now,
                group: &setup.group,
                dead_letter: next.is_none(),
            };
            let headers = setup.stamper.at(now).hop(delivery.record.headers, &hop);
            let moved = Moved {
                error: failure,
                took,
                correlation_id: setup.correlation_id(&delivery.record).map(Into::into),
                to: to.clone(),
                level: next,
                attempt: setup.attempt(level, block.as_ref()),
            };
            let dead_letter = next.and(plan.dead_letter.clone());
            self.hop(delivery, headers, moved, dead_letter).await
        })
    }

    /// A record of a shared retry topic that names none of its subscriptions is set aside where all of them set
    /// theirs aside, with what it tells of itself left as it is.
    pub(super) async fn set_aside(
        &mut self,
        delivery: Delivery<'_>,
        to: &Topic,
        headers: &LadderHeaders<'_>,
    ) -> Result<(), Halt> {
        let setup = self.setup.clone();
        let failure = report::no_owner(&self.lane, &delivery.record, headers);
        let text = failure.last_error(setup.text_form);
        let moved = Moved {
            error: failure,
            took: Duration::ZERO,
            correlation_id: setup.correlation_id(&delivery.record).map(Into::into),
            to: to.clone(),
            level: None,
            attempt: headers.block.as_ref().map_or(1, |block| block.count.saturating_add(1)),
        };
        let headers = setup.stamper.at(setup.clock.now()).unroutable(delivery.record.headers, &text);
        self.hop(delivery, headers, moved, None).await
    }

    /// Writes the record to another topic, or to the dead letters if that one does not take it. The partition goes on at
    /// once, unless too many hops are open.
    async fn hop(
        &mut self,
        delivery: Delivery<'_>,
        headers: Vec<Header>,
        moved: Moved,
        dead_letter: Option<Topic>,
    ) -> Result<(), Halt> {
        if !self.lane.hops_below(self.setup.limits.hops).await {
            return Err(Halt::Closed);
        }
        let offset = delivery.record.offset;
        let record = Record {
            topic: moved.to.clone(),
            partition: None,
            key: delivery.record.key.map(Bytes::copy_from_slice),
            value: delivery.record.value.map(Bytes::copy_from_slice),
            headers,
            timestamp: None,
        };
        let kind = if moved.level.is_some() { ProduceKind::Retry } else { ProduceKind::DeadLetter };
        let waiting = self.lane.hop_left(offset, Settled::Moved(Box::new(moved)));
        self.bound_outcomes(waiting);
        self.lane.finish(offset.next());
        let (setup, lane) = (self.setup.clone(), self.lane.clone());
        let mut hop = Box::pin(Crossing { setup, lane, offset, record, kind, dead_letter }.run());
        // Polled here once, so that the hops of a partition reach the publisher in their order.
        if poll_fn(|cx| Poll::Ready(hop.as_mut().poll(cx))).await.is_pending() {
            tokio::spawn(hop);
        }
        self.settled(offset).await
    }

    /// How long to wait before a delivery that failed this often is tried again where it is, if it is; `spent` is gone since it failed
    /// first.
    pub(super) fn tries_again(&self, failure: &Failure, failed: u32, spent: Duration) -> Option<Duration> {
        let wait = self.setup.blocking.as_ref()?.wait(failed, spent)?;
        is_tried_in_place(failure, |failure| self.retry_wanted(failure)).then_some(wait)
    }

    /// What the consumer's predicate says of a failure.
    fn retry_wanted(&self, failure: &Failure) -> bool {
        let Some(predicate) = &self.setup.retry_if else { return failure.is_retryable() };
        guard::call(|| predicate(failure)).unwrap_or_else(|panic| {
            // The delivery has failed either way; what the failure says of itself stands in for the predicate.
            let error = HarborError::Handler(Failure::panicked(&panic));
            self.setup.report_error(&error, Some(&self.lane.assigned.partition.topic));
            failure.is_retryable()
        })
    }
}
