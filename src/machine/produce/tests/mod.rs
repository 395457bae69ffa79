//! The producer against a broker that follows Kafka's own rules for idempotence, in virtual time.

mod behaviour;
mod broker;
mod schedules;
mod transactions;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use self::broker::Cluster;
use super::*;
use crate::record::{RecordRef, Timestamp};

/// The ids of a batch's records, by their index.
type Ids = Arc<Mutex<Vec<u64>>>;

/// What the producer said of a record: its offset, or why not.
type Outcome = Result<Option<i64>, Arc<ProduceError>>;

/// A producer, a cluster, and a network between them that can fail.
struct World {
    now: Instant,
    produce: Produce<Ids>,
    buffers: Vec<Arc<Mutex<PartitionBuffer<Ids>>>>,
    settings: ProduceSettings,
    cluster: Cluster,
    /// Requests and answers under way, by the time they arrive.
    wire: BTreeMap<(Instant, u64), Wire>,
    next_event: u64,
    connections: Vec<Connection>,
    open: BTreeMap<NodeId, usize>,
    random: Random,
    latency: Duration,
    /// Whether leaders are told when asked for.
    metadata: bool,
    topic_id: TopicId,
    next_record: u64,
    outcomes: BTreeMap<u64, Outcome>,
    reserved: usize,
    flushed: Vec<FlushId>,
    /// The sizes of all requests: batches of each.
    requests: Vec<Vec<PartitionIndex>>,
    /// Every batch's bytes in the order they were sent.
    sent: Vec<(PartitionIndex, Bytes)>,
    ids_given: i64,
    /// How many askings for an id are not answered.
    silent_ids: u32,
}

enum Wire {
    Request { connection: usize, request: ProduceRequest },
    Answer { connection: usize, id: RequestId, answers: Vec<(PartitionIndex, PartitionAnswer)> },
    ProducerId,
    Leader(PartitionIndex),
}

struct Connection {
    waiting: VecDeque<RequestId>,
    dead: bool,
    /// Whether what was sent before it died still arrives.
    haunted: bool,
}

impl World {
    fn new(partitions: i32, settings: ProduceSettings) -> Self {
        Self::seeded(partitions, settings, 1)
    }

    fn seeded(partitions: i32, settings: ProduceSettings, seed: u64) -> Self {
        let mut jitter = Random(seed);
        let spares = Arc::<Spares>::default();
        let mut produce = Produce::new(settings.clone(), spares.clone(), Box::new(move || jitter.unit()));
        let now = Instant::now();
        let mut buffers = Vec::new();
        for partition in 0..partitions {
            let buffer = PartitionBuffer::new(settings.batch_bytes, settings.compression, spares.clone());
            let buffer = Arc::new(Mutex::new(buffer));
            let index = produce.register(TopicPartition::new("t", partition), buffer.clone());
            produce.handle_leader(now, index, Some(Leader { node: NodeId(1) }), Some([1; 16]));
            buffers.push(buffer);
        }
        Self {
            now,
            produce,
            buffers,
            settings,
            cluster: Cluster::new(partitions as usize),
            wire: BTreeMap::new(),
            next_event: 0,
            connections: Vec::new(),
            open: BTreeMap::new(),
            random: Random(seed ^ 0x5eed),
            latency: Duration::from_millis(1),
            metadata: true,
            topic_id: [1; 16],
            next_record: 0,
            outcomes: BTreeMap::new(),
            reserved: 0,
            flushed: Vec::new(),
            requests: Vec::new(),
            sent: Vec::new(),
            ids_given: 0,
            silent_ids: 0,
        }
    }

    /// Sends one record; answers its id.
    fn send(&mut self, partition: usize) -> u64 {
        self.send_padded(partition, 0)
    }

    fn send_padded(&mut self, partition: usize, padding: usize) -> u64 {
        let id = self.next_record;
        let mut value = id.to_be_bytes().to_vec();
        value.resize(8 + padding, 0);
        let record = RecordRef::new(&value);
        let bytes = record.encoded_bytes_at_most();
        let mut buffer = lock(&self.buffers[partition]);
        let appended = buffer.append(&record, Timestamp(0), bytes, || self.now).unwrap();
        let mut ids = appended.ticket.lock().unwrap();
        assert_eq!(ids.len(), appended.index as usize);
        ids.push(id);
        let signal = appended.signal;
        drop(ids);
        drop(buffer);
        self.reserved += bytes;
        if signal.is_some() {
            self.produce.handle_signal(self.now, PartitionIndex(partition));
        }
        self.next_record += 1;
        id
    }

    /// Lets the producer act until it waits.
    fn settle(&mut self) {
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
            if !moved {
                return;
            }
        }
    }

    fn transmit(&mut self, transmit: Transmit) {
        let at = self.now + self.latency;
        match transmit {
            Transmit::InitProducerId => self.later(at, Wire::ProducerId),
            Transmit::Produce(request) => {
                assert!(!request.batches.is_empty());
                self.requests.push(request.batches.iter().map(|batch| batch.index).collect());
                self.sent.extend(request.batches.iter().map(|batch| (batch.index, batch.bytes.clone())));
                let connection = *self.open.entry(request.node).or_insert_with(|| {
                    self.connections.push(Connection { waiting: VecDeque::new(), dead: false, haunted: false });
                    self.connections.len() - 1
                });
                let waiting = &mut self.connections[connection].waiting;
                waiting.push_back(request.id);
                assert!(waiting.len() <= self.settings.requests_in_flight);
                self.later(at, Wire::Request { connection, request });
            }
        }
    }

    fn later(&mut self, at: Instant, what: Wire) {
        self.next_event += 1;
        self.wire.insert((at, self.next_event), what);
    }

    fn note(&mut self, event: Event<Ids>) {
        match event {
            Event::Settled { ticket, spans, reserved, result, .. } => {
                self.reserved -= reserved;
                let ids = ticket.lock().unwrap();
                for (place, index) in spans.into_iter().flatten().enumerate() {
                    let outcome = result.clone().map(|written| written.base_offset.map(|base| base + place as i64));
                    let before = self.outcomes.insert(ids[index as usize], outcome);
                    assert!(before.is_none(), "two verdicts on record {}", ids[index as usize]);
                }
            }
            Event::LeaderWanted(index) if self.metadata => self.later(self.now + self.latency, Wire::Leader(index)),
            Event::LeaderWanted(_) => {}
            Event::Flushed(id) => self.flushed.push(id),
        }
    }

    /// Goes on to the next thing that happens, until `until`. Answers whether something did.
    fn step(&mut self, until: Instant) -> bool {
        self.settle();
        let arrives = self.wire.first_key_value().map(|((at, _), _)| *at);
        let wakes = self.produce.poll_timeout(self.now);
        assert!(wakes.is_none_or(|at| at > self.now), "a wake-up that is past would spin");
        let Some(next) = [arrives, wakes].into_iter().flatten().min().filter(|at| *at <= until) else {
            self.now = until;
            self.settle();
            return false;
        };
        self.now = next;
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let arrived = entry.remove();
            self.arrive(arrived);
        }
        true
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    /// Runs until everything has its verdict.
    fn drain(&mut self) {
        let until = self.now + Duration::from_secs(600);
        self.settle();
        while !self.produce.is_idle() || !self.wire.is_empty() {
            assert!(self.step(until), "does not drain: {:?}", self.produce);
            self.settle();
        }
        assert_eq!(self.outcomes.len() as u64, self.next_record, "every record has a verdict");
        assert_eq!(self.reserved, 0, "all buffer memory is given back");
    }

    fn arrive(&mut self, what: Wire) {
        match what {
            Wire::Request { connection, request } => {
                let link = &self.connections[connection];
                if link.dead && !link.haunted {
                    return;
                }
                let answers = request.batches.iter().filter_map(|batch| {
                    let answer = self.cluster.produce(request.node, batch.index.0, &batch.bytes)?;
                    Some((batch.index, answer))
                });
                let answers = answers.collect();
                self.later(self.now + self.latency, Wire::Answer { connection, id: request.id, answers });
            }
            Wire::Answer { connection, id, answers } => {
                let link = &mut self.connections[connection];
                if link.dead {
                    return;
                }
                assert_eq!(link.waiting.pop_front(), Some(id), "answers come in order");
                self.produce.handle_answer(self.now, id, Duration::ZERO, answers);
            }
            Wire::ProducerId if self.silent_ids > 0 => {
                self.silent_ids -= 1;
                self.produce.handle_producer_id_unanswered(self.now);
            }
            Wire::ProducerId => {
                self.ids_given += 1;
                self.produce.handle_producer_id(self.now, Ok(ProducerId { id: self.ids_given, epoch: 0 }));
            }
            Wire::Leader(index) => {
                let node = self.cluster.leader(index.0);
                self.produce.handle_leader(self.now, index, Some(Leader { node }), Some(self.topic_id));
            }
        }
    }

    /// Cuts the connection to a broker. `haunted`: what was sent arrives all the same, later.
    fn cut(&mut self, node: NodeId, haunted: bool) {
        self.end_connection(node, haunted, false);
    }

    /// As [`cut`](Self::cut), and the broker does not let the next connection in.
    fn lock_out(&mut self, node: NodeId, haunted: bool) {
        self.end_connection(node, haunted, true);
    }

    fn end_connection(&mut self, node: NodeId, haunted: bool, locked_out: bool) {
        let Some(connection) = self.open.remove(&node) else { return };
        let link = &mut self.connections[connection];
        (link.dead, link.haunted) = (true, haunted);
        for id in std::mem::take(&mut link.waiting) {
            let outcome = WriteOutcome::PossiblyWritten;
            if locked_out {
                let error = SharedError::new(std::io::Error::other("login is refused"));
                self.produce.handle_locked_out(self.now, id, outcome, &error);
            } else {
                self.produce.handle_unanswered(self.now, id, outcome, None);
            }
        }
        if haunted {
            let delay = Duration::from_millis(self.random.below(2_000));
            let mine = |wire: &Wire| matches!(wire, Wire::Request { connection: c, .. } if *c == connection);
            let keys: Vec<_> = self.wire.iter().filter(|(_, wire)| mine(wire)).map(|(key, _)| *key).collect();
            for key in keys {
                if let Some(request) = self.wire.remove(&key) {
                    self.wire.insert((key.0 + delay, key.1), request);
                }
            }
        }
    }

    /// The ids in a partition's log.
    fn log(&self, partition: usize) -> Vec<u64> {
        self.cluster.log(partition).to_vec()
    }

    fn acknowledged(&self, id: u64) -> bool {
        matches!(self.outcomes.get(&id), Some(Ok(_)))
    }

    fn failure(&self, id: u64) -> &ProduceError {
        self.outcomes[&id].as_ref().expect_err("the record failed")
    }

    /// What holds after every run: acknowledged records are in the log once and where it was said, records that were certainly not
    /// written are not in it, and the log is in order.
    fn check(&self) {
        let mut seen = BTreeMap::new();
        for partition in 0..self.buffers.len() {
            let log = self.cluster.log(partition);
            for (offset, id) in log.iter().enumerate() {
                assert_eq!(seen.insert(*id, offset as i64), None, "record {id} is written twice");
            }
            assert!(log.is_sorted(), "out of order: {log:?}");
        }
        for (id, outcome) in &self.outcomes {
            match outcome {
                Ok(offset) => {
                    let at = seen.get(id).unwrap_or_else(|| panic!("record {id} was acknowledged and is lost"));
                    assert!(offset.is_none_or(|offset| offset == *at), "record {id} is at {at}, not {offset:?}");
                }
                Err(error) if error.outcome == WriteOutcome::NotWritten => {
                    assert!(!seen.contains_key(id), "record {id} is written and was said not to be: {error}");
                }
                Err(_) => {}
            }
        }
    }
}

/// SplitMix64.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
