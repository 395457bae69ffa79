//! A producer, and brokers that answer anything, in any order, or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Operated;
use crate::error::WriteOutcome;
use crate::machine::produce::{
    Event, FlushId, Leader, PartitionAnswer, PartitionBuffer, PartitionIndex, Produce, ProduceSettings, ProducerId,
    RecordError, RequestId, Spares, Transmit, lock,
};
use crate::protocol::choices::Choices;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::shape::sample::Source;
use crate::record::{NodeId, RecordRef, Timestamp, TopicPartition};

/// The numbers of a batch's records, by their place in it.
type Ticket = Arc<Mutex<Vec<u64>>>;

pub(super) struct Producer {
    produce: Produce<Ticket>,
    settings: ProduceSettings,
    buffers: Vec<Arc<Mutex<PartitionBuffer<Ticket>>>>,
    now: Instant,
    /// Requests on their way.
    sent: Vec<(RequestId, NodeId, Vec<PartitionIndex>)>,
    /// Partitions whose leader it wants to know.
    wanted: BTreeSet<PartitionIndex>,
    id_asked: bool,
    next: u64,
    unsettled: BTreeSet<u64>,
    reserved: usize,
    flushes: BTreeSet<u64>,
    next_flush: u64,
    transaction: Option<u64>,
    ending: bool,
    closed: bool,
}

impl Operated for Producer {
    const OPERATIONS: u32 = 16;

    fn new(choices: &mut Choices<'_>) -> Self {
        let settings = ProduceSettings {
            batch_bytes: 400,
            max_request_bytes: 900,
            requests_in_flight: 2,
            delivery_timeout: Duration::from_secs(30),
            transactional: choices.once_in(3),
            ..ProduceSettings::default()
        };
        let spares = Arc::<Spares>::default();
        let mut produce = Produce::new(settings.clone(), spares.clone(), Box::new(|| 0.5));
        let buffers: Vec<_> = (0..PARTITIONS)
            .map(|partition| {
                let buffer = PartitionBuffer::new(settings.batch_bytes, settings.compression, spares.clone());
                let buffer = Arc::new(Mutex::new(buffer));
                produce.register(TopicPartition::new("t", partition as i32), buffer.clone());
                buffer
            })
            .collect();
        Self {
            produce,
            settings,
            buffers,
            now: Instant::now(),
            sent: Vec::new(),
            wanted: BTreeSet::new(),
            id_asked: false,
            next: 0,
            unsettled: BTreeSet::new(),
            reserved: 0,
            flushes: BTreeSet::new(),
            next_flush: 0,
            transaction: None,
            ending: false,
            closed: false,
        }
    }

    fn act(&mut self, choices: &mut Choices<'_>, operation: u32) {
        match operation {
            0..=3 => self.send(choices),
            4..=7 => self.answer(choices),
            8 => self.lose(choices),
            9 => self.give_id(choices),
            10 => self.lead(choices),
            11 => {
                let time = choices.pick(&[1, 5, 100, 2_000, 31_000]);
                self.now += Duration::from_millis(time);
            }
            12 => {
                if let Some(at) = self.produce.poll_timeout(self.now) {
                    self.now = at;
                }
            }
            13 => self.order(choices),
            _ if self.settings.transactional => self.transact(choices),
            _ => self.lead(choices),
        }
    }

    fn settle(&mut self, _: &mut Choices<'_>) {
        self.produce.handle_timeout(self.now);
        loop {
            let mut moved = false;
            while let Some(transmit) = self.produce.poll_transmit(self.now) {
                moved = true;
                self.transmit(transmit);
            }
            while let Some(event) = self.produce.poll_event() {
                moved = true;
                self.note(event);
            }
            while let Some(index) = self.produce.poll_enlist() {
                moved = true;
                self.produce.handle_enlisted(index);
            }
            if self.ending && self.produce.poll_quiet().is_some() {
                assert!(self.sent.is_empty(), "quiet, with requests on their way");
                (self.ending, self.transaction) = (false, None);
            }
            if !moved {
                break;
            }
        }
        assert!(!self.ending || !self.unsettled.is_empty() || !self.sent.is_empty(), "nothing is left, and not quiet");
        let next = self.produce.poll_timeout(self.now);
        assert!(next.is_none_or(|at| at > self.now), "a wake-up that is past would spin: {:?}", self.produce);
        let waits = !self.sent.is_empty() || self.id_asked || self.unsettled.is_empty();
        assert!(next.is_some() || waits, "nothing will ever happen: {:?}", self.produce);
    }

    /// Brokers answer as they should: everything gets its verdict.
    fn end(mut self, choices: &mut Choices<'_>) {
        if self.transaction.is_some() && !self.ending {
            self.ending = true;
            self.produce.end_transaction(self.now, false);
        }
        for _ in 0..2_000 {
            self.settle(choices);
            if self.unsettled.is_empty() && self.sent.is_empty() {
                assert_eq!(self.reserved, 0, "buffer memory is not given back");
                assert!(self.flushes.is_empty(), "all is settled, and a flush waits");
                return;
            }
            for index in std::mem::take(&mut self.wanted) {
                self.produce.handle_leader(self.now, index, Some(Leader { node: NodeId(1) }), Some([1; 16]));
            }
            if std::mem::take(&mut self.id_asked) {
                self.produce.handle_producer_id(self.now, Ok(ProducerId { id: 99, epoch: 0 }));
            }
            match self.sent.pop() {
                Some((id, _, batches)) => {
                    let answers: BTreeMap<_, _> = batches.into_iter().map(|index| (index, written())).collect();
                    self.produce.handle_answer(self.now, id, Duration::ZERO, answers);
                }
                None => {
                    if let Some(at) = self.produce.poll_timeout(self.now) {
                        self.now = at;
                    }
                }
            }
        }
        panic!("{} records without a verdict: {:?}", self.unsettled.len(), self.produce);
    }
}

impl Producer {
    fn send(&mut self, choices: &mut Choices<'_>) {
        if self.settings.transactional && (self.transaction.is_none() || self.ending) {
            return;
        }
        let partition = partition(choices);
        let value = vec![0; choices.pick(&[0, 40, 150, 500])];
        let record = RecordRef::new(&value);
        let bytes = record.encoded_bytes_at_most();
        let mut buffer = lock(&self.buffers[partition.0]);
        let Ok(appended) = buffer.append(&record, Timestamp(0), bytes, || self.now) else {
            assert!(self.closed, "refused while it is open");
            return;
        };
        self.next += 1;
        lock_ticket(appended.ticket).push(self.next);
        let signal = appended.signal;
        drop(buffer);
        self.reserved += bytes;
        self.unsettled.insert(self.next);
        if signal.is_some() {
            self.produce.handle_signal(self.now, partition);
        }
    }

    fn answer(&mut self, choices: &mut Choices<'_>) {
        let Some(at) = choices.index(self.sent.len()) else { return };
        let (id, _, batches) = self.sent.remove(at);
        let mut answers = Vec::new();
        for index in batches {
            for _ in 0..choices.pick(&[1, 1, 1, 1, 0, 2]) {
                answers.push((index, partition_answer(choices)));
            }
        }
        if choices.once_in(4) {
            let alien = choices.pick(&[PartitionIndex(0), PartitionIndex(usize::MAX)]);
            answers.insert(0, (alien, partition_answer(choices)));
        }
        let throttle = Duration::from_millis(choices.pick(&[0, 0, 0, 500, i32::MAX as u64]));
        self.produce.handle_answer(self.now, id, throttle.min(Duration::from_secs(60)), answers);
    }

    fn lose(&mut self, choices: &mut Choices<'_>) {
        let Some(at) = choices.index(self.sent.len()) else { return };
        let (id, _, _) = self.sent.remove(at);
        let outcome = choices.pick(&[WriteOutcome::PossiblyWritten, WriteOutcome::NotWritten]);
        self.produce.handle_unanswered(self.now, id, outcome, None);
    }

    fn give_id(&mut self, choices: &mut Choices<'_>) {
        if !std::mem::take(&mut self.id_asked) {
            return;
        }
        let code = choices.code();
        if choices.once_in(4) {
            self.produce.handle_producer_id_unanswered(self.now);
        } else if code.is_ok() {
            let id = choices.number();
            let epoch = choices.pick(&[0, 1, i16::MAX]);
            self.produce.handle_producer_id(self.now, Ok(ProducerId { id, epoch }));
        } else {
            self.produce.handle_producer_id(self.now, Err(code));
        }
    }

    fn lead(&mut self, choices: &mut Choices<'_>) {
        let partition = match choices.once_in(4) {
            true => partition(choices),
            false => self.wanted.first().copied().unwrap_or(PartitionIndex(0)),
        };
        self.wanted.remove(&partition);
        let node = choices.pick(&[Some(1), Some(1), Some(2), None]);
        let topic_id = choices.pick(&[None, Some([1; 16]), Some([2; 16])]);
        let leader = node.map(|node| Leader { node: NodeId(node) });
        self.produce.handle_leader(self.now, partition, leader, topic_id);
    }

    fn order(&mut self, choices: &mut Choices<'_>) {
        match choices.below(8) {
            0..=2 => {
                self.next_flush += 1;
                self.flushes.insert(self.next_flush);
                self.produce.handle_flush(FlushId(self.next_flush));
            }
            3 => {
                let partition = partition(choices);
                self.produce.handle_topic_refused(self.now, partition, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
            }
            4 | 5 => {
                let waiting = choices.once_in(2);
                self.produce.handle_pressure(waiting);
            }
            6 if choices.once_in(8) => {
                self.produce.refuse_more();
                self.closed = true;
            }
            7 if choices.once_in(8) => {
                self.produce.close(self.now);
                self.closed = true;
            }
            _ => {}
        }
    }

    fn transact(&mut self, choices: &mut Choices<'_>) {
        match self.transaction {
            None => {
                let serial = self.next + self.next_flush + 1;
                self.next_flush += 1;
                self.transaction = Some(serial);
                let implicit = choices.once_in(2);
                self.produce.begin_transaction(serial, ProducerId { id: 7, epoch: 0 }, implicit);
            }
            Some(_) if choices.once_in(4) && !self.ending => {
                self.ending = true;
                let abort = choices.once_in(2);
                self.produce.end_transaction(self.now, abort);
            }
            Some(_) if choices.once_in(8) => self.produce.doom(self.now),
            Some(_) => {}
        }
    }

    fn transmit(&mut self, transmit: Transmit) {
        let Transmit::Produce(request) = transmit else {
            assert!(!self.id_asked && !self.settings.transactional, "an id is asked for twice");
            self.id_asked = true;
            return;
        };
        let indexes: Vec<_> = request.batches.iter().map(|batch| batch.index).collect();
        let distinct: BTreeSet<_> = indexes.iter().collect();
        assert!(!indexes.is_empty() && distinct.len() == indexes.len(), "two batches of a partition in a request");
        let under_way = self.sent.iter().filter(|(_, node, _)| *node == request.node).count();
        assert!(under_way < self.settings.requests_in_flight, "more requests than may be");
        self.sent.push((request.id, request.node, indexes));
    }

    fn note(&mut self, event: Event<Ticket>) {
        match event {
            Event::Settled { ticket, spans, of, reserved, result } => {
                self.reserved = self.reserved.checked_sub(reserved).expect("more is given back than was taken");
                assert!(result.is_ok() || result.is_err_and(|error| !error.to_string().is_empty()));
                let ids = lock_ticket(&ticket);
                for place in spans.into_iter().flatten() {
                    assert!(place < of, "a record that the batch does not have");
                    assert!(self.unsettled.remove(&ids[place as usize]), "two verdicts on a record");
                }
            }
            Event::LeaderWanted(index) => {
                self.wanted.insert(index);
            }
            Event::Flushed(id) => assert!(self.flushes.remove(&id.0), "flushed twice"),
        }
    }
}

fn partition(choices: &mut Choices<'_>) -> PartitionIndex {
    PartitionIndex(choices.below(PARTITIONS) as usize)
}

fn partition_answer(choices: &mut Choices<'_>) -> PartitionAnswer {
    let record_errors = (0..choices.below(3)).map(|_| {
        let batch_index = choices.number() as i32;
        RecordError { batch_index, message: None }
    });
    PartitionAnswer {
        record_errors: record_errors.collect(),
        code: choices.code(),
        base_offset: choices.number(),
        log_append_time: choices.number(),
        log_start_offset: choices.number(),
        message: None,
    }
}

fn written() -> PartitionAnswer {
    PartitionAnswer {
        code: ErrorCode::NONE,
        base_offset: 0,
        log_append_time: -1,
        log_start_offset: 0,
        record_errors: Vec::new(),
        message: None,
    }
}

fn lock_ticket(ticket: &Ticket) -> std::sync::MutexGuard<'_, Vec<u64>> {
    ticket.lock().expect("nobody panics with it")
}

const PARTITIONS: u32 = 3;
