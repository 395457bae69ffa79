//! The task that handles one partition's records, one after another.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tracing::Span;

use crate::adapter::{BoxFuture, MembershipHandle, PartitionBatch, RecordSetCursor};
use crate::harbor::cancel::CancelSignal;
use crate::harbor::circuit::Circuit;
use crate::harbor::failure::Failure;
use crate::harbor::guard;
use crate::harbor::headers::{LadderHeaders, RetryBlock};
use crate::harbor::pipeline::gate::Gate;
use crate::harbor::pipeline::lane::Lane;
use crate::harbor::pipeline::level::Level;
use crate::harbor::pipeline::note::{Halt, Note, Settled};
use crate::harbor::pipeline::report;
use crate::harbor::pipeline::setup::{Served, Setup};
use crate::harbor::topology::{Owner, time_left};
use crate::protocol::batch::BatchView;
use crate::record::{Offset, RecordView};

/// Handles what is in a lane's inbox and ends when that is empty, when the gate closes, or at a record that has to
/// wait for long.
///
/// Between batch and handler nothing is allocated, spawned or measured: the handler's future lives in this task's, the
/// clock is read where a level has a delay or somebody listens, and a timer is set only when a handler waits.
pub(crate) struct Worker {
    pub(super) setup: Arc<Setup>,
    pub(super) handle: Arc<dyn MembershipHandle>,
    pub(super) lane: Arc<Lane>,
    /// The signal of the deliveries to come; renewed once it has fired.
    pub(super) cancel: CancelSignal,
    pub(super) runner: Runner,
    /// Whether anybody wants to know of each delivery.
    is_heard: bool,
    /// Whether too much waits to be told for the next delivery to begin.
    must_tell: bool,
    place: Option<OwnedSemaphorePermit>,
    /// Since when it holds what was read.
    began: Instant,
    /// Records left before others get their turn.
    turn: u32,
    /// The record here has waited for its time already.
    due: Option<Offset>,
}

/// A record on its way to a handler.
#[derive(Clone, Copy)]
pub(crate) struct Delivery<'a> {
    pub(crate) record: RecordView<'a>,
    pub(crate) batch: &'a BatchView,
}

impl Worker {
    /// Starts a worker of a lane that has just become working.
    pub(crate) fn start(setup: &Arc<Setup>, handle: &Arc<dyn MembershipHandle>, lane: Arc<Lane>) {
        let mut worker = Self {
            setup: setup.clone(),
            handle: handle.clone(),
            lane,
            cancel: CancelSignal::new(),
            runner: Runner::new(setup),
            is_heard: setup.is_heard(),
            must_tell: false,
            place: None,
            began: Instant::now(),
            turn: TURN_RECORDS,
            due: None,
        };
        worker.room().came_in();
        tokio::spawn(async move {
            let ending = Ending { setup: worker.setup.clone(), lane: worker.lane.clone(), is_told: false };
            let ended = worker.work().await;
            ending.with(ended, worker.due, &*worker.handle);
        });
    }

    /// Ends well once the lane has let it go.
    async fn work(&mut self) -> Result<(), Halt> {
        self.enter().await?;
        while let Some((batch, due)) = self.lane.take(&*self.handle) {
            self.due = due.or(self.due);
            self.handle_batch(&batch).await?;
            if self.room().is_crowded() && self.lane.has_more() {
                self.lane.finish(batch.records.next_offset());
                return Err(Halt::Aside);
            }
            // Behind the last record may be deleted ones, which nothing else would ever commit past.
            self.lane.finish(batch.records.next_offset());
        }
        Ok(())
    }

    async fn handle_batch(&mut self, batch: &PartitionBatch) -> Result<(), Halt> {
        let setup = self.setup.clone();
        match self.lane.route.owners[..] {
            [only] => {
                let (served, subscriber) = setup.owner(only);
                subscriber.handle_batch(served, self, batch).await
            }
            _ => self.handle_shared(&setup, batch).await,
        }
    }

    /// The records of a retry topic that several subscriptions share: each says whose it is.
    async fn handle_shared(&mut self, setup: &Setup, batch: &PartitionBatch) -> Result<(), Halt> {
        let mut cursor = RecordSetCursor::default();
        loop {
            if self.turn_is_over() {
                self.next_turn().await?;
            }
            let Some(delivery) = self.read(batch, &mut cursor)? else { return Ok(()) };
            let Some(headers) = self.ladder_headers(&delivery.record) else { continue };
            // Before any wait: what nobody owns has nothing to wait for.
            match setup.topology.owner(&self.lane.route, headers.block.as_ref()) {
                Owner::Plan(index) => {
                    self.wait_until_due(&delivery.record).await?;
                    let (served, subscriber) = setup.owner(index);
                    subscriber.deliver(served, self, delivery, headers.block).await?;
                }
                Owner::DeadLetter(to) => self.set_aside(delivery, to, &headers).await?,
                Owner::Nobody => {
                    let failure = report::no_owner(&self.lane, &delivery.record, &headers);
                    return Err(report::crash(failure.into(), Some(&self.lane.assigned.partition.topic)));
                }
            }
        }
    }

    /// Whether [`Self::next_turn`] is to be awaited before the next record is read.
    #[inline]
    pub(super) fn turn_is_over(&self) -> bool {
        self.turn == 0 || self.must_tell || !self.lane.gate.is_open()
    }

    /// The next record of the batch.
    #[inline]
    pub(super) fn read<'a>(
        &mut self,
        batch: &'a PartitionBatch,
        cursor: &mut RecordSetCursor,
    ) -> Result<Option<Delivery<'a>>, Halt> {
        self.turn = self.turn.saturating_sub(1);
        match batch.records.read_at(cursor) {
            Some(Ok(record)) => Ok(batch.records.batch_at(cursor).map(|batch| Delivery { record, batch })),
            Some(Err(error)) => Err(report::unreadable(&self.lane, error)),
            None => Ok(None),
        }
    }

    /// What the ladder wrote on a record of a retry topic; `None` for a record that is another group's, which is
    /// passed over.
    pub(super) fn ladder_headers<'a>(&mut self, record: &RecordView<'a>) -> Option<LadderHeaders<'a>> {
        let headers = self.setup.stamper.names().read_ladder(record.headers);
        let ours = match headers.group {
            Some(group) => group == self.setup.group.as_bytes(),
            None => self.lane.counts_unnamed(record.offset),
        };
        if ours {
            return Some(headers);
        }
        if self.is_heard {
            let group = headers.group.and_then(|group| std::str::from_utf8(group).ok()).map(Into::into);
            let waiting = self.lane.record(record.offset, Settled::Skipped { group });
            self.bound_outcomes(waiting);
        }
        self.lane.finish(record.offset.next());
        None
    }

    fn room(&self) -> &Level {
        self.setup.room(self.lane.route.level)
    }

    /// Whether the records are those of a retry topic.
    pub(super) fn is_on_ladder(&self) -> bool {
        self.lane.route.level > 0
    }

    /// Waits until a record of a retry topic may run.
    pub(super) async fn wait_until_due(&mut self, record: &RecordView<'_>) -> Result<(), Halt> {
        let delay = self.setup.topology.delay(self.lane.route.level);
        if delay.is_zero() || self.due == Some(record.offset) {
            return Ok(());
        }
        let wait = time_left(delay, record.timestamp, self.setup.clock.now());
        if wait.is_zero() {
            return Ok(());
        }
        let setup = self.setup.clone();
        let held = if self.room().is_crowded() { None } else { setup.hold_for(wait) };
        let Some(_held) = held else {
            return Err(Halt::Parked(record.offset, wait));
        };
        // A place held while waiting would be taken from those that could run.
        self.place = None;
        tokio::select! {
            biased;
            () = self.lane.gate.closed() => Err(Halt::Closed),
            () = sleep(wait) => self.enter().await,
        }
    }

    /// The circuit does not let the record at hand through: it is held where it is, or has been for long enough, and has failed.
    pub(super) fn hold(&self, circuit: &Circuit, offset: Offset) -> Result<Failure, Halt> {
        let now = Instant::now();
        let longest = self.setup.limits.max_processing_time;
        let longest = circuit.hold().map_or(longest, |hold| hold.min(longest));
        let held = now - self.lane.held_since(offset, now);
        match longest.saturating_sub(held) {
            Duration::ZERO => Ok(Failure::hold_expired(circuit.topic(), held)),
            left => Err(Halt::Parked(offset, left.min(ASK_AGAIN))),
        }
    }

    /// Waits before a further try of the record at hand. False when the gate closed first: it stays uncommitted.
    pub(super) async fn wait_in_place(&self, wait: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.lane.gate.closed() => false,
            () = sleep(wait) => true,
        }
    }

    /// The turn is over, or the gate closed.
    pub(super) async fn next_turn(&mut self) -> Result<(), Halt> {
        if self.must_tell && !self.lane.outcomes_below(self.setup.limits.outcomes).await {
            return Err(Halt::Closed);
        }
        self.must_tell = false;
        if !self.lane.gate.is_open() {
            return Err(Halt::Closed);
        }
        self.turn = TURN_RECORDS;
        self.runner.turn_since = None;
        if self.room().is_crowded() && self.began.elapsed() >= LONGEST_STAY {
            return Err(Halt::Aside);
        }
        if self.room().is_contended() {
            self.place = None;
            self.enter().await?;
        }
        // A handler that never waits must not keep the runtime's thread to itself.
        tokio::task::yield_now().await;
        if self.lane.gate.is_open() { Ok(()) } else { Err(Halt::Closed) }
    }

    /// Takes a place at the level.
    async fn enter(&mut self) -> Result<(), Halt> {
        self.place = self.setup.room(self.lane.route.level).enter(&self.lane.gate).await;
        if self.place.is_some() { Ok(()) } else { Err(Halt::Closed) }
    }

    /// A delivery succeeded, or had before.
    #[inline]
    pub(super) fn processed(&mut self, delivery: &Delivery<'_>, started: Option<Instant>, replayed: bool) {
        let offset = delivery.record.offset;
        if let Some(started) = started {
            let correlation_id = self.setup.correlation_id(&delivery.record).map(Into::into);
            let took = started.elapsed();
            let waiting = self.lane.record(offset, Settled::Processed { took, correlation_id, replayed });
            self.bound_outcomes(waiting);
        }
        self.lane.finish(offset.next());
        self.turn_over_if_long();
    }

    /// This many outcomes wait to be told.
    pub(super) fn bound_outcomes(&mut self, waiting: usize) {
        self.must_tell = waiting >= self.setup.limits.outcomes;
    }

    /// Where each is committed before the next: waits until the commit that covers this one has ended.
    #[inline]
    pub(super) async fn settled(&mut self, offset: Offset) -> Result<(), Halt> {
        if !self.setup.commit_each || self.lane.settled(offset.next()).await { Ok(()) } else { Err(Halt::Closed) }
    }

    /// Ends the turn early where handlers wait for long and other partitions wait for them.
    #[inline]
    fn turn_over_if_long(&mut self) {
        if let Some(since) = self.runner.turn_since
            && (self.room().is_contended() || self.room().is_crowded())
            && since.elapsed() >= TURN_TIME
        {
            self.turn = 0;
        }
    }

    /// When a delivery begins, if anybody wants to know how long it takes.
    #[inline]
    pub(super) fn started(&self) -> Option<Instant> {
        self.is_heard.then(Instant::now)
    }

    /// Renews the cancel signal after it has fired.
    #[inline]
    pub(super) fn renew_signal(&mut self) {
        if self.cancel.is_cancelled() {
            self.cancel = CancelSignal::new();
        }
    }
}

/// Handles the records of one subscription. Implemented for a handler with its payload, so that its future is
/// never boxed.
pub(crate) trait Subscriber: Send + Sync {
    /// Handles a batch of a topic that this subscription alone reads.
    fn handle_batch<'a>(
        &'a self,
        served: Served<'a>,
        worker: &'a mut Worker,
        batch: &'a PartitionBatch,
    ) -> BoxFuture<'a, Result<(), Halt>>;

    /// Handles one record of a topic that others read too.
    fn deliver<'a>(
        &'a self,
        served: Served<'a>,
        worker: &'a mut Worker,
        delivery: Delivery<'a>,
        block: Option<RetryBlock>,
    ) -> BoxFuture<'a, Result<(), Halt>>;
}

/// How a delivery ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Done,
    Failed(Failure),
    /// It was done before, and did not run.
    Replayed,
    /// It did not begin: its circuit lets nothing through.
    Held,
    /// Nothing that it did counts any more.
    Cut,
}

/// Polls handlers: catches their panics, and bounds their time. What they panic with as they are dropped changes nothing.
pub(crate) struct Runner {
    max_processing_time: Duration,
    cancel_grace: Duration,
    /// Set to the bound of a delivery that waited, and set anew only when it fires: a timer a delivery would cost more
    /// than most handlers.
    alarm: Option<Pin<Box<Sleep>>>,
    /// Since when deliveries of this turn have been waiting.
    turn_since: Option<Instant>,
}

impl Runner {
    fn new(setup: &Setup) -> Self {
        Self {
            max_processing_time: setup.limits.max_processing_time,
            cancel_grace: setup.limits.cancel_grace,
            alarm: None,
            turn_since: None,
        }
    }

    /// Runs a delivery to its end, and drops it.
    #[inline]
    pub(super) async fn run<F>(
        &mut self,
        gate: &Gate,
        cancel: &CancelSignal,
        span: &Span,
        mut work: Pin<&mut Option<F>>,
    ) -> Ended
    where
        F: Future<Output = Result<(), Failure>> + Send,
    {
        let mut polled = work.as_mut().as_pin_mut().expect("work is there until it is let go below");
        let ended = match poll_fn(|cx| Poll::Ready(poll_guarded(polled.as_mut(), span, cx))).await {
            Poll::Ready(result) => result.into(),
            Poll::Pending => self.run_pending(gate, cancel, span, polled).await,
        };
        guard::let_go("a handler that was dropped", work);
        ended
    }

    /// The same for a delivery that has to wait for something.
    async fn run_pending(
        &mut self,
        gate: &Gate,
        cancel: &CancelSignal,
        span: &Span,
        mut work: Pin<&mut (dyn Future<Output = Result<(), Failure>> + Send + '_)>,
    ) -> Ended {
        let began = Instant::now();
        let bound = began + self.max_processing_time;
        self.turn_since.get_or_insert(began);
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(bound)));
        let was_cut = loop {
            tokio::select! {
                biased;
                result = poll_fn(|cx| poll_guarded(work.as_mut(), span, cx)) => return result.into(),
                () = gate.was_cut() => break true,
                () = alarm.as_mut() => {
                    if Instant::now() >= bound {
                        break false;
                    }
                    alarm.as_mut().reset(bound);
                }
            }
        };
        self.alarm = None;
        cancel.cancel();
        let ended = tokio::time::timeout(self.cancel_grace, poll_fn(|cx| poll_guarded(work.as_mut(), span, cx))).await;
        match (was_cut, ended) {
            (true, _) => Ended::Cut,
            (false, Ok(Ok(()))) => Ended::Done,
            (false, _) => Ended::Failed(Failure::timed_out(self.max_processing_time)),
        }
    }
}

impl From<Result<(), Failure>> for Ended {
    #[inline]
    fn from(result: Result<(), Failure>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(failure) => Self::Failed(failure),
        }
    }
}

/// Polls once; a panic is a failure.
#[inline]
fn poll_guarded<F>(work: Pin<&mut F>, span: &Span, cx: &mut TaskContext<'_>) -> Poll<Result<(), Failure>>
where
    F: Future<Output = Result<(), Failure>> + ?Sized,
{
    let _entered = span.enter();
    match guard::call(|| work.poll(cx)) {
        Ok(poll) => poll,
        Err(panic) => Poll::Ready(Err(Failure::panicked(&panic))),
    }
}

/// Tells the driver that the worker ended, even if it ends by a panic of its own.
struct Ending {
    setup: Arc<Setup>,
    lane: Arc<Lane>,
    is_told: bool,
}

impl Ending {
    fn with(mut self, ended: Result<(), Halt>, due: Option<Offset>, handle: &dyn MembershipHandle) {
        let lane = &self.lane;
        match ended {
            // The lane let it go, and may have another worker by now.
            Ok(()) => {}
            Err(Halt::Closed) => lane.stand_down(),
            Err(Halt::Parked(offset, wait)) => {
                lane.park();
                lane.tell(Note::Parked(lane.id, offset, wait));
            }
            Err(Halt::Aside) => {
                lane.step_aside(due, handle);
                lane.tell(Note::Aside(lane.id));
            }
            Err(Halt::Stop(stop)) => {
                lane.stand_down();
                lane.tell(Note::Stop(stop));
            }
        }
        self.is_told = true;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.is_told {
            self.lane.stand_down();
            self.lane.tell(Note::Stop(report::worker_died(&self.lane)));
        }
        self.setup.room(self.lane.route.level).went_out();
        self.lane.tell(Note::Ended);
    }
}

/// Records after which a worker lets others have its thread, and its place where one waits for it. A place changes
/// hands for about a microsecond, so that this costs a few nanoseconds a record.
const TURN_RECORDS: u32 = 256;
/// The same as a time, for handlers that wait.
const TURN_TIME: Duration = Duration::from_millis(50);
/// How long a worker stays at a batch while partitions stand aside. The rest of the batch is read anew, so not too short.
const LONGEST_STAY: Duration = Duration::from_secs(1);
/// How often a held record asks its circuit again. It may be closed by hand at any time.
const ASK_AGAIN: Duration = Duration::from_secs(1);
