//! The task behind a producer: hands the machine what happened, sends what it says, sleeps.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep_until;

use super::shared::{Ending, Inbox, Shared};
use super::table::Slot;
use super::ticket::Ticket;
use super::wire::{Head, Layout, PRODUCE};
use crate::client::{ClientError, Connections, RawResponse, Stale, deadline_in, now};
use crate::machine::connection::{Answer, RequestError};
use crate::machine::metadata::ClusterView;
use crate::machine::produce::{
    Event, FlushId, Leader, PartitionBatch, PartitionIndex, Produce, ProduceErrorKind, ProduceRequest, ProducerId,
    RequestId, SharedError, Transmit, is_definitive,
};
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic, TopicPartition};

/// Drives one producer's machine.
pub(super) struct Driver {
    shared: Arc<Shared>,
    produce: Produce<Ticket>,
    slots: Vec<Slot>,
    view: watch::Receiver<Arc<ClusterView>>,
    /// Of the view that was last taken in.
    generation: u64,
    /// Topics that were written to since metadata was last told.
    used: HashSet<Topic>,
    /// When it is told next.
    keep_at: Instant,
    connections: Connections,
    /// Requests under way, by broker, in the order in which they are answered.
    sent: BTreeMap<NodeId, VecDeque<Sent>>,
    producer_id: Option<ProducerIdAnswer>,
    flushes: HashMap<FlushId, oneshot::Sender<()>>,
    /// The flush that the producer's end waits for.
    last_flush: Option<FlushId>,
    ended: Vec<oneshot::Sender<usize>>,
    /// Records that failed because the producer ended.
    cut_off: usize,
}

struct Sent {
    id: RequestId,
    layout: Layout,
    response: RawResponse,
}

type ProducerIdAnswer = Pin<Box<dyn Future<Output = Result<InitProducerIdResponse, ClientError>> + Send>>;

/// What the driver waited for.
enum Happened {
    Answer(NodeId, Result<Answer, RequestError>),
    ProducerId(Result<InitProducerIdResponse, ClientError>),
    /// A new view, a message in the inbox, or the time.
    Something,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let random = Box::new(fastrand::f64);
        Self {
            produce: Produce::new(shared.config.produce.clone(), shared.spares.clone(), random),
            slots: Vec::new(),
            view: shared.cluster.changed(),
            generation: 0,
            used: HashSet::new(),
            keep_at: now(),
            connections: shared.cluster.connections(),
            sent: BTreeMap::new(),
            producer_id: None,
            flushes: HashMap::new(),
            last_flush: None,
            ended: Vec::new(),
            cut_off: 0,
            shared,
        }
    }

    /// Runs until the producer ends.
    pub(super) async fn run(mut self) {
        loop {
            let now = now();
            let transactional = self.shared.config.transactional.clone();
            if let Some(transactional) = &transactional {
                transactional.collect();
            }
            if self.take_messages(now) == Some(Ending::Now) || self.shared.cluster.is_closed() {
                return;
            }
            if self.view.has_changed().unwrap_or(false) {
                self.take_view(now);
            }
            self.produce.handle_pressure(self.shared.waiting.load(Ordering::Relaxed) > 0);
            self.produce.handle_timeout(now);
            if let Some(transactional) = &transactional {
                transactional.apply(now, &mut self.produce);
            }
            while let Some(transmit) = self.produce.poll_transmit(now) {
                self.transmit(transmit);
            }
            self.take_events();
            if let Some(transactional) = &transactional {
                transactional.observe(&mut self.produce);
            }
            if self.last_flush.is_some_and(|flush| !self.flushes.contains_key(&flush)) {
                return;
            }
            let timeout = self.produce.poll_timeout(now);
            match self.wait(timeout).await {
                Happened::Answer(node, answer) => self.take_answer(node, answer),
                Happened::ProducerId(answer) => self.take_producer_id(answer),
                Happened::Something => {}
            }
        }
    }

    async fn wait(&mut self, timeout: Option<Instant>) -> Happened {
        let Self { shared, sent, view, producer_id, .. } = self;
        let timer = async {
            match timeout {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let id = async {
            match producer_id {
                Some(answer) => answer.as_mut().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            (node, answer) = poll_fn(|cx| poll_answers(sent, cx)) => Happened::Answer(node, answer),
            answer = id => Happened::ProducerId(answer),
            () = shared.wake.notified() => Happened::Something,
            Ok(()) = view.changed() => {
                view.mark_changed();
                Happened::Something
            }
            () = timer => Happened::Something,
        }
    }

    /// Takes in what callers left. Answers how the producer is to end, if it is.
    fn take_messages(&mut self, now: Instant) -> Option<Ending> {
        let (new, signals, flushes, ending) = {
            let mut inbox = self.shared.inbox();
            let Inbox { new, signals, flushes, ended, ending, .. } = &mut *inbox;
            self.ended.append(ended);
            (std::mem::take(new), std::mem::take(signals), std::mem::take(flushes), *ending)
        };
        if !new.is_empty() {
            self.register(now, new);
        }
        for index in signals {
            self.produce.handle_signal(now, index);
        }
        for (id, done) in flushes {
            self.produce.handle_flush(id);
            self.flushes.insert(id, done);
        }
        if ending.is_some() && self.last_flush.is_none() {
            self.produce.refuse_more();
            self.shared.budget.close();
            // Larger than any that a caller can still ask for.
            let last = FlushId(u64::MAX);
            self.produce.handle_flush(last);
            self.flushes.insert(last, oneshot::channel().0);
            self.last_flush = Some(last);
        }
        ending
    }

    fn register(&mut self, now: Instant, new: Vec<(TopicPartition, Slot)>) {
        let view = self.shared.cluster.view();
        for (name, slot) in new {
            let index = self.produce.register(name, slot.buffer.clone());
            debug_assert_eq!(index, slot.index, "the inbox numbers partitions in the order in which it keeps them");
            self.slots.push(slot);
            self.tell_leader(now, index, &view);
        }
    }

    fn take_view(&mut self, now: Instant) {
        let view = self.view.borrow_and_update().clone();
        if std::mem::replace(&mut self.generation, view.generation) == view.generation {
            // Single leaders or addresses were learned elsewhere. Who waits for news of others has to ask on.
            for index in (0..self.slots.len()).map(PartitionIndex) {
                let known = self.produce.leader(index);
                let leader = self.produce.name(index).and_then(|name| view.leader(name));
                if leader.is_some() && leader != known {
                    self.tell_leader(now, index, &view);
                }
            }
            return;
        }
        for index in (0..self.slots.len()).map(PartitionIndex) {
            self.tell_leader(now, index, &view);
        }
        let tables: Vec<_> = {
            let tables = self.shared.tables.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            tables.values().cloned().collect()
        };
        for table in tables {
            let partitions = view.topic(&table.topic).map_or(0, |topic| topic.partitions.len());
            if partitions > table.slots.len() {
                // Refused only when the producer ends.
                let _ = self.shared.make_table(&table.topic, partitions);
            }
        }
    }

    fn tell_leader(&mut self, now: Instant, index: PartitionIndex, view: &ClusterView) {
        let Some(name) = self.produce.name(index) else { return };
        let Some(topic) = view.topic(&name.topic) else { return };
        let leader = view.leader(name).map(|node| Leader { node });
        let id = (!topic.id.is_nil()).then(|| topic.id.into_bytes());
        self.slots[index.0].set_leader(leader.is_some());
        self.produce.handle_leader(now, index, leader, id);
        if is_definitive(topic.error) {
            self.produce.handle_topic_refused(now, index, topic.error);
        }
    }

    fn transmit(&mut self, transmit: Transmit) {
        match transmit {
            Transmit::InitProducerId => {
                let cluster = self.shared.cluster.clone();
                self.producer_id = Some(Box::pin(async move {
                    let build = |_| {
                        InitProducerIdRequest::default()
                            .with_transactional_id(None)
                            .with_transaction_timeout_ms(i32::MAX)
                            .with_producer_id((-1).into())
                            .with_producer_epoch(-1)
                    };
                    cluster.call_any("producer id", deadline_in(A_TRY), build).await
                }));
            }
            Transmit::Produce(request) => self.send(request),
        }
    }

    fn send(&mut self, request: ProduceRequest) {
        let ProduceRequest { id, node, mut batches } = request;
        // A topic is named once, so its batches have to be next to each other.
        batches.sort_by(|a, b| a.topic.cmp(&b.topic));
        self.keep_topics(&batches);
        let layout = Layout::of(&batches);
        let timeout = self.shared.config.request_timeout;
        let head = Head {
            acks: self.shared.config.produce.acks,
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            transaction: self.shared.config.transactional.as_ref().map(|transactional| transactional.head()),
        };
        let encode = move |versions: &_| head.encode(batches, versions);
        let response = self.connections.to(node).send_late(PRODUCE, timeout, encode);
        self.sent.entry(node).or_default().push_back(Sent { id, layout, response });
    }

    /// Tells metadata now and then which topics are in use, and at once of one that it has forgotten.
    fn keep_topics(&mut self, batches: &[PartitionBatch]) {
        let now = now();
        let mut forgotten = false;
        {
            let view = self.view.borrow();
            for batch in batches {
                if !self.used.contains(&batch.topic) {
                    forgotten |= view.topic(&batch.topic).is_none();
                    self.used.insert(batch.topic.clone());
                }
            }
        }
        if forgotten || now >= self.keep_at {
            self.shared.cluster.keep(&self.used);
            self.used.clear();
            self.keep_at = now + self.shared.cluster.config().metadata.max_idle / 4;
        }
    }

    fn take_answer(&mut self, node: NodeId, answer: Result<Answer, RequestError>) {
        let Some(Sent { id, layout, .. }) = self.sent.get_mut(&node).and_then(VecDeque::pop_front) else { return };
        let now = now();
        match answer.and_then(|answer| layout.read(answer.version, answer.body)) {
            Ok(answer) => {
                // What the connection would hold back is better kept here, where it grows into fuller batches.
                let throttle = self.connections.to(node).muted_for();
                let moved = answer.leaders.iter().any(|hint| hint.leader != node);
                self.produce.handle_answer(now, id, throttle, answer.partitions);
                if moved {
                    // After the answer: a leader that is told ends the asking for it.
                    self.shared.cluster.learn_leaders(&answer.leaders);
                }
            }
            Err(error) => {
                let (outcome, locked_out) = (error.write_outcome(), error.is_locked_out());
                let error = SharedError::new(error);
                match locked_out {
                    true => self.produce.handle_locked_out(now, id, outcome, &error),
                    false => self.produce.handle_unanswered(now, id, outcome, Some(&error)),
                }
            }
        }
    }

    fn take_producer_id(&mut self, answer: Result<InitProducerIdResponse, ClientError>) {
        self.producer_id = None;
        let now = now();
        match answer {
            Ok(answer) => {
                let producer = ProducerId { id: answer.producer_id.0, epoch: answer.producer_epoch };
                let code = ErrorCode(answer.error_code);
                self.produce.handle_producer_id(now, code.ok().map(|()| producer));
            }
            Err(error) => {
                tracing::debug!(%error, "no producer id");
                match error.is_locked_out() {
                    true => self.produce.handle_producer_id_locked_out(now, &SharedError::new(error)),
                    false => self.produce.handle_producer_id_unanswered(now),
                }
            }
        }
    }

    fn take_events(&mut self) {
        let mut released = 0;
        while let Some(event) = self.produce.poll_event() {
            match event {
                Event::Settled { ticket, spans, of, reserved, result } => {
                    released += reserved;
                    if let Err(error) = &result {
                        if let Some(transactional) = &self.shared.config.transactional {
                            transactional.failed(error);
                        }
                        if error.kind == ProduceErrorKind::Closed {
                            self.cut_off += spans.iter().map(ExactSizeIterator::len).sum::<usize>();
                        } else {
                            tracing::warn!(%error, "records were not written");
                        }
                    }
                    ticket.settle(spans, of, result);
                }
                Event::LeaderWanted(index) => {
                    if let Some(name) = self.produce.name(index) {
                        self.shared.cluster.invalidate(Stale::Leader(name.clone()));
                    }
                }
                Event::Flushed(id) => {
                    if let Some(done) = self.flushes.remove(&id) {
                        // A caller that stopped waiting misses nothing.
                        let _ = done.send(());
                    }
                }
            }
        }
        if released > 0 {
            self.shared.budget.add_permits(released);
        }
    }
}

/// However the driver ends, also with its runtime: whatever is not settled fails, and nobody waits in vain.
impl Drop for Driver {
    fn drop(&mut self) {
        let now = Instant::now();
        {
            let mut inbox = self.shared.inbox();
            inbox.closed = true;
        }
        self.shared.ending.send_replace(true);
        // From here on nothing new is registered; what was just before is closed with the rest.
        self.take_messages(now);
        self.shared.budget.close();
        self.produce.close(now);
        self.take_events();
        for ended in self.ended.drain(..) {
            let _ = ended.send(self.cut_off);
        }
    }
}

/// The next answer of any broker. A broker answers in order, so only its oldest request is looked at.
fn poll_answers(
    sent: &mut BTreeMap<NodeId, VecDeque<Sent>>,
    cx: &mut Context<'_>,
) -> Poll<(NodeId, Result<Answer, RequestError>)> {
    for (node, requests) in sent {
        if let Some(Sent { response, .. }) = requests.front_mut()
            && let Poll::Ready(answer) = response.poll_answer(cx)
        {
            return Poll::Ready((*node, answer));
        }
    }
    Poll::Pending
}

/// How long brokers may take to give out a producer id before it is asked for again: one that hangs must not use up a
/// record's time.
const A_TRY: Duration = Duration::from_secs(5);
