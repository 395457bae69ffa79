//! How long heartbeats take, from the call that sends one to the task that has its answer: while all partitions are paused, and
//! while they are fetched as fast as they come, up to 50 MiB an answer. The two take turns, so that both meet the same machine.
//! Then how much CPU time the runtime's one thread spends, while it fetches, between two turns of a task that always wants one:
//! what a heartbeat waits for in this process, whatever else the machine does.
use crate::client::connect;
use common::*;
use kafka_harbor::client::{Assigned, Client, Consumer, ConsumerEvent, IsolationLevel, OffsetReset, OffsetSpec};
use kafka_harbor::record::{Offset, TopicPartition};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const FETCH: usize = 50 << 20;
const IDLE: usize = 0;
const FETCHING: usize = 1;
/// Between the two; what was under way at a change belongs to neither.
const NEITHER: usize = 2;

pub async fn measure(a: &Args) {
    tracing::subscriber::set_global_default(Answers).unwrap();
    let client = connect(a);
    let ends = ends(&client, a).await;
    let mut consumer = client
        .consumer(a.group())
        .topic(a.topic(), OffsetReset::Earliest)
        .heartbeat_interval(Duration::from_millis(100))
        .fetch_max_bytes(FETCH)
        .fetch_max_partition_bytes(FETCH)
        .fetch_memory_bytes(4 * FETCH)
        .build()
        .unwrap();
    let mut all: Vec<Assigned> = Vec::new();
    while all.len() < ends.len() {
        match next(&mut consumer).await {
            ConsumerEvent::Assigned(came) => all.extend(came.into_iter().map(|one| one.assigned)),
            event => drop(event),
        }
    }
    let mut fetched = 0;
    let ph = Phase::new();
    for round in 0..2 * a.num("rounds", 3) {
        let phase = if round % 2 == 0 { IDLE } else { FETCHING };
        PHASE.store(NEITHER, Relaxed);
        for assigned in &all {
            if phase == IDLE { consumer.handle().pause(assigned) } else { consumer.handle().resume(assigned) }
        }
        serve(&mut consumer, &ends, Duration::from_secs(2)).await;
        PHASE.store(phase, Relaxed);
        fetched += serve(&mut consumer, &ends, Duration::from_secs(a.num("seconds", 20))).await;
    }
    PHASE.store(NEITHER, Relaxed);
    let (watching, watched) = tokio::sync::oneshot::channel();
    let end = Instant::now() + Duration::from_secs(5);
    tokio::spawn(async move { watching.send(turns(end).await) });
    serve(&mut consumer, &ends, Duration::from_secs(6)).await;
    let turns = percentiles(watched.await.unwrap());
    ph.done(fetched, 0, 0, &format!("{},\"turns\":{{{turns}}}", report()));
}

/// Takes what comes, for so long; a partition that is read goes on at its beginning.
async fn serve(consumer: &mut Consumer, ends: &BTreeMap<TopicPartition, Offset>, time: Duration) -> u64 {
    let end = Instant::now() + time;
    let mut records = 0;
    while let Ok(event) = timeout_at(end, next(consumer)).await {
        let ConsumerEvent::Batch(batch) = event else { continue };
        // They are not walked: 50 MiB of records hold the thread for milliseconds, and that would be this program's doing.
        records += (batch.next_offset.0 - batch.from.0) as u64;
        if batch.next_offset >= ends[&batch.assigned.partition] {
            consumer.handle().seek(&batch.assigned, Offset(0));
        }
    }
    records
}

/// The thread's CPU nanoseconds between two turns, of all turns until then.
async fn turns(end: Instant) -> Vec<u64> {
    let mut all = Vec::new();
    let mut last = thread_cpu_ns();
    while Instant::now() < end {
        tokio::task::yield_now().await;
        let now = thread_cpu_ns();
        all.push(now - last);
        last = now;
    }
    all
}

async fn next(consumer: &mut Consumer) -> ConsumerEvent {
    match consumer.next().await.expect("a membership") {
        ConsumerEvent::Fault(error) => panic!("{error}"),
        event => event,
    }
}

async fn ends(client: &Client, a: &Args) -> BTreeMap<TopicPartition, Offset> {
    let all = (0..a.num("partitions", 6) as i32).map(|partition| TopicPartition::new(a.topic(), partition));
    let asked: Vec<_> = all.map(|partition| (partition, OffsetSpec::Latest)).collect();
    let told = client.admin().list_offsets(&asked, IsolationLevel::ReadUncommitted).await;
    told.into_iter().map(|(partition, end)| (partition, end.unwrap().offset.unwrap())).collect()
}

/// In microseconds, and the bytes of the fetches' answers in MiB.
fn report() -> String {
    let mut all = TIMES.lock().unwrap();
    let mut line = String::new();
    for (name, phase) in [("idle", IDLE), ("fetching", FETCHING)] {
        let times = &mut all.heartbeats[phase];
        times.sort_unstable();
        let p = |q: f64| times[((times.len() as f64 * q) as usize).min(times.len() - 1)];
        line += &format!("\"{name}\":{{\"n\":{},\"p50\":{},\"p99\":{},\"max\":{}}},", times.len(), p(0.5), p(0.99), p(1.0));
    }
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let fetches = &mut all.fetches;
    fetches.sort_unstable();
    let (sum, n) = (fetches.iter().sum::<u64>(), fetches.len());
    line + &format!("\"fetches\":{n},\"fetch_mib_median\":{:.1},\"fetched_mib\":{:.0}", mib(fetches[n / 2]), mib(sum))
}

static PHASE: AtomicUsize = AtomicUsize::new(NEITHER);
static TIMES: Mutex<Times> = Mutex::new(Times { heartbeats: [Vec::new(), Vec::new()], fetches: Vec::new() });

struct Times {
    heartbeats: [Vec<u64>; 2],
    fetches: Vec<u64>,
}

/// Takes the client's trace of its requests' times, and nothing else.
struct Answers;

impl Subscriber for Answers {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "kafka_harbor::client::meter" || metadata.target() == "kafka_harbor::client::connection"
    }
    fn event(&self, event: &Event<'_>) {
        let mut answer = Answer::default();
        event.record(&mut answer);
        let phase = PHASE.load(Relaxed);
        if phase == NEITHER {
            return;
        }
        let mut times = TIMES.lock().unwrap();
        match answer.api.as_str() {
            "Heartbeat" => times.heartbeats[phase].push(answer.after_us),
            "Fetch" if phase == FETCHING => times.fetches.push(answer.bytes),
            _ => {}
        }
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Answer {
    api: String,
    after_us: u64,
    bytes: u64,
}

impl Visit for Answer {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "after_us" => self.after_us = value,
            "bytes" => self.bytes = value,
            _ => {}
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "api" {
            self.api = format!("{value:?}");
        }
    }
}
