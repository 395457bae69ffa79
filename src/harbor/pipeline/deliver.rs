//! One delivery: from a record's bytes through the handler to what becomes of it.

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use crate::adapter::{BoxFuture, PartitionBatch, RecordSetCursor};
use crate::harbor::circuit::Circuit;
use crate::harbor::context::Context;
use crate::harbor::failure::Failure;
use crate::harbor::handler::Handler;
use crate::harbor::headers::RetryBlock;
use crate::harbor::idempotency::{Execution, Guarded, IdempotencyKey};
use crate::harbor::pipeline::note::Halt;
use crate::harbor::pipeline::setup::Served;
use crate::harbor::pipeline::worker::{Delivery, Ended, Subscriber, Worker};
use crate::harbor::serializer::{Deserializer, read};
use crate::observe::DeliverySpan;

/// A handler, and what its payload is read by.
pub(crate) struct Subscription<T, D, H, Args> {
    handler: H,
    deserializer: Arc<D>,
    key: Option<KeyOf<T>>,
    shape: PhantomData<fn(T, Args)>,
}

/// Says which work a payload is.
pub(crate) type KeyOf<T> = Box<dyn Fn(&T, &Context) -> IdempotencyKey + Send + Sync>;

impl<T, D, H, Args> Subscription<T, D, H, Args> {
    pub(crate) fn new(handler: H, deserializer: Arc<D>) -> Self {
        Self { handler, deserializer, key: None, shape: PhantomData }
    }

    /// With keys of its own for its work.
    pub(crate) fn keyed(self, key: KeyOf<T>) -> Self {
        Self { key: Some(key), ..self }
    }
}

impl<T, D, H, Args> Subscription<T, D, H, Args>
where
    T: Send + 'static,
    D: Deserializer<T>,
    H: Handler<T, Args>,
    Args: 'static,
{
    #[inline]
    async fn run(
        &self,
        served: Served<'_>,
        worker: &mut Worker,
        delivery: Delivery<'_>,
        block: Option<RetryBlock>,
    ) -> Result<(), Halt> {
        let started = worker.started();
        let ended = match self.attempt(served, worker, &delivery, block.as_ref()).await {
            Ended::Failed(failure) if worker.setup.blocking.is_some() => {
                self.attempt_again(served, worker, delivery, block.as_ref(), failure).await
            }
            ended => ended,
        };
        match ended {
            Ended::Done | Ended::Replayed => {
                worker.processed(&delivery, started, matches!(ended, Ended::Replayed));
                worker.settled(delivery.record.offset).await
            }
            Ended::Failed(failure) => worker.failed(served, delivery, block, failure, started).await,
            Ended::Held => {
                let Some(circuit) = served.circuit else { return Err(Halt::Closed) };
                let failure = worker.hold(circuit, delivery.record.offset)?;
                worker.failed(served, delivery, block, failure, started).await
            }
            Ended::Cut => Err(Halt::Closed),
        }
    }

    /// One try.
    #[inline]
    async fn attempt(
        &self,
        served: Served<'_>,
        worker: &mut Worker,
        delivery: &Delivery<'_>,
        block: Option<&RetryBlock>,
    ) -> Ended {
        let Worker { setup, lane, cancel, runner, .. } = worker;
        let pass = match served.circuit.map(Circuit::admit) {
            Some(None) => return Ended::Held,
            pass => pass.flatten(),
        };
        let record = &delivery.record;
        let attempt = setup.attempt(lane.route.level, block);
        let span = DeliverySpan {
            topic: &lane.assigned.partition.topic,
            partition: lane.assigned.partition.partition,
            offset: record.offset,
            group: &setup.group,
            attempt,
        };
        let original = block.map(|block| &block.original_topic);
        let span = span.open(|| setup.correlation_id(record), original);
        let replayed = AtomicBool::new(false);
        let ended = {
            let cancel = &*cancel;
            let context = || Context::new(&lane.source, delivery.batch, record, attempt, block.cloned(), cancel);
            let work = pin!(Some(async {
                // The original topic whatever topic the bytes came from: a registry keeps its schemas under that.
                let payload = read(&*self.deserializer, &served.plan.topic, record.value, &setup.classifiers).await?;
                match &setup.idempotency {
                    None => self.handler.call(payload, context).await,
                    Some(guarded) => self.call_once(guarded, payload, context(), &replayed).await,
                }
            }));
            match runner.run(&lane.gate, cancel, &span, work).await {
                Ended::Done if replayed.load(Ordering::Relaxed) => Ended::Replayed,
                ended => ended,
            }
        };
        worker.renew_signal();
        let Some(pass) = pass else { return ended };
        match ended {
            Ended::Failed(failure) => {
                let failure = failure.classified(&worker.setup.classifiers);
                pass.failed(&failure);
                Ended::Failed(failure)
            }
            Ended::Done => {
                pass.succeeded();
                ended
            }
            // What did not run tells nothing of what the circuit guards.
            Ended::Replayed | Ended::Held | Ended::Cut => ended,
        }
    }

    /// Calls the handler, unless the work of its key is done or under way.
    fn call_once<'a>(
        &'a self,
        guarded: &'a Guarded,
        payload: T,
        context: Context,
        replayed: &'a AtomicBool,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let key = match &self.key {
                Some(key) => key(&payload, &context),
                None => IdempotencyKey::of_place(&context),
            };
            // Called only when it is polled: what a function does before it returns its future is work, too.
            let work = Box::pin(async move { self.handler.call(payload, move || context).await });
            if guarded.0.execute(key, work).await? == Execution::Replayed {
                replayed.store(true, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Further tries of what failed, while there are any to make in place.
    fn attempt_again<'a>(
        &'a self,
        served: Served<'a>,
        worker: &'a mut Worker,
        delivery: Delivery<'a>,
        block: Option<&'a RetryBlock>,
        failure: Failure,
    ) -> BoxFuture<'a, Ended> {
        let first = Instant::now();
        Box::pin(async move {
            let (mut failed, mut failure) = (1, failure);
            loop {
                failure = failure.classified(&worker.setup.classifiers);
                let Some(wait) = worker.tries_again(&failure, failed, first.elapsed()) else {
                    return Ended::Failed(failure);
                };
                tracing::debug!(offset = delivery.record.offset.0, failed, ?wait, %failure, "tried again in place");
                if !worker.wait_in_place(wait).await {
                    return Ended::Cut;
                }
                match self.attempt(served, worker, &delivery, block).await {
                    Ended::Failed(next) => (failed, failure) = (failed + 1, next),
                    ended => return ended,
                }
            }
        })
    }
}

impl<T, D, H, Args> Subscriber for Subscription<T, D, H, Args>
where
    T: Send + 'static,
    D: Deserializer<T>,
    H: Handler<T, Args>,
    Args: 'static,
{
    fn handle_batch<'a>(
        &'a self,
        served: Served<'a>,
        worker: &'a mut Worker,
        batch: &'a PartitionBatch,
    ) -> BoxFuture<'a, Result<(), Halt>> {
        Box::pin(async move {
            let mut cursor = RecordSetCursor::default();
            let on_ladder = worker.is_on_ladder();
            loop {
                if worker.turn_is_over() {
                    worker.next_turn().await?;
                }
                let Some(delivery) = worker.read(batch, &mut cursor)? else { return Ok(()) };
                let mut block = None;
                if on_ladder {
                    let Some(headers) = worker.ladder_headers(&delivery.record) else { continue };
                    worker.wait_until_due(&delivery.record).await?;
                    block = headers.block;
                }
                self.run(served, worker, delivery, block).await?;
            }
        })
    }

    fn deliver<'a>(
        &'a self,
        served: Served<'a>,
        worker: &'a mut Worker,
        delivery: Delivery<'a>,
        block: Option<RetryBlock>,
    ) -> BoxFuture<'a, Result<(), Halt>> {
        Box::pin(self.run(served, worker, delivery, block))
    }
}
