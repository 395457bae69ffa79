//! What a consumer does when what is beneath it goes wrong in ways that the broker in memory does not know: a log that
//! goes back, an adapter that panics.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use kafka_harbor::adapter::memory::{MemoryAdapter, MemoryBroker};
use kafka_harbor::adapter::*;
use kafka_harbor::clock::TokioClock;
use kafka_harbor::harbor::{ConsumerStatus, Context, Failure, Harbor, HarborError, HarborStatus, Text};
use kafka_harbor::memory::{Effect, Fault, Operation};
use kafka_harbor::observe::StopReason;
use kafka_harbor::protocol::batch::{BatchWriter, Closing, ReadOptions, batches};
use kafka_harbor::protocol::compression::Compression;
use kafka_harbor::record::{Offset, Record, Timestamp, TopicPartition};
use support::pass_on::pass_on;
use support::{GROUP, Seen, Told, fails, settle, start, until, within};
use tokio::sync::mpsc;

/// An adapter whose one membership says what the test tells it to. What is no business of these tests goes to the
/// broker in memory.
#[derive(Debug, Clone)]
struct Scripted {
    memory: Arc<MemoryAdapter>,
    events: Arc<Mutex<Option<mpsc::UnboundedReceiver<Said>>>>,
    handle: Arc<Notes>,
    panics: Panics,
    connects: Arc<AtomicU32>,
}

/// Where the adapter panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Panics {
    Nowhere,
    Publishing,
    /// Three times: when it is called, at once and later when its future is polled.
    Connecting,
    Closing,
}

/// What the membership says next.
#[derive(Debug)]
enum Said {
    Event(Event),
    Panic,
}

#[derive(Debug, Default)]
struct Notes {
    settled: Mutex<Vec<i64>>,
    resumed: Mutex<Vec<ResumeFrom>>,
}

struct Events(mpsc::UnboundedReceiver<Said>);

impl EventSource for Events {
    fn poll_next(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Event>> {
        self.0.poll_recv(cx).map(|said| match said? {
            Said::Event(event) => Some(event),
            Said::Panic => panic!("an adapter with a fault of its own"),
        })
    }
}

impl MembershipHandle for Notes {
    fn settle(&self, positions: Vec<Position>) -> BoxFuture<'_, Result<(), SettleError>> {
        self.settled.lock().unwrap().extend(positions.iter().map(|position| position.offset.0));
        Box::pin(async { Ok(()) })
    }

    fn pause(&self, _assigned: &Assigned) {}

    fn resume(&self, _assigned: &Assigned, from: ResumeFrom) {
        self.resumed.lock().unwrap().push(from);
    }

    fn leave(&self, _timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async { Ok(()) })
    }
}

#[derive(Debug)]
struct Panicking;

impl Publisher for Panicking {
    fn publish(&self, _records: Vec<Record>) -> BoxFuture<'_, Result<Vec<Acknowledged>, PublishError>> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            panic!("a publisher with a fault of its own")
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), AdapterError>> {
        Box::pin(async { Ok(()) })
    }
}

impl Adapter for Scripted {
    pass_on!(memory: capabilities create_topics describe_topics watermarks committed);

    fn name(&self) -> &'static str {
        "scripted"
    }

    fn connect(&self) -> BoxFuture<'_, Result<(), AdapterError>> {
        let calls = self.connects.fetch_add(1, Ordering::Relaxed);
        if self.panics != Panics::Connecting || calls > 2 {
            return self.memory.connect();
        }
        assert!(calls > 0, "no way to connect");
        Box::pin(async move {
            if calls > 1 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            panic!("no way to connect")
        })
    }

    fn close(&self, timeout: Duration) -> BoxFuture<'_, Result<(), AdapterError>> {
        assert!(self.panics != Panics::Closing, "no way to close");
        self.memory.close(timeout)
    }

    fn publisher(&self, options: PublisherOptions) -> Result<Arc<dyn Publisher>, AdapterError> {
        if self.panics == Panics::Publishing { Ok(Arc::new(Panicking)) } else { self.memory.publisher(options) }
    }

    fn join(&self, _options: JoinOptions) -> BoxFuture<'_, Result<Membership, AdapterError>> {
        let events = self.events.lock().unwrap().take().expect("one membership");
        let handle = self.handle.clone();
        Box::pin(async move { Ok(Membership { events: Box::new(Events(events)), handle }) })
    }
}

/// The harbor over a scripted adapter, and what the test says for it.
struct Rig {
    harbor: Harbor<Text>,
    told: Told,
    say: mpsc::UnboundedSender<Said>,
    handle: Arc<Notes>,
}

impl Rig {
    fn new(panics: Panics) -> Self {
        let broker = MemoryBroker::new();
        broker.create_topic("orders", 1).unwrap();
        broker.create_topic("again", 1).unwrap();
        let (say, events) = mpsc::unbounded_channel();
        let handle = Arc::new(Notes::default());
        let adapter = Scripted {
            memory: Arc::new(MemoryAdapter::new(&broker)),
            events: Arc::new(Mutex::new(Some(events))),
            handle: handle.clone(),
            panics,
            connects: Arc::default(),
        };
        let told = Told::default();
        let harbor = Harbor::builder("orders-service", adapter)
            .serializer(Text)
            .clock(TokioClock)
            .observer(told.clone())
            .build()
            .unwrap();
        Self { harbor, told, say, handle }
    }

    fn assign(&self, committed: i64) {
        let (committed, position) = (Some(Offset(committed)), Offset(committed));
        self.event(Event::Assigned(vec![Assignment { assigned: assigned(), committed, position, note: None }]));
    }

    /// Records of the partition from this offset on.
    fn batch(&self, from: i64, values: &[&str]) {
        let mut writer = BatchWriter::new(Compression::NONE);
        for value in values {
            writer.append(Timestamp(0), None, Some(value.as_bytes()), []).unwrap();
        }
        let batch = writer.close(Closing::default()).unwrap().with_base_offset(Offset(from)).unwrap();
        let views = batches(batch.into_bytes(), &ReadOptions::default()).map(Result::unwrap).collect();
        let records = RecordSet::new(views, Offset(from));
        self.event(Event::Batch(PartitionBatch { assigned: assigned(), records, hold: None }));
    }

    fn event(&self, event: Event) {
        self.say.send(Said::Event(event)).unwrap();
    }

    fn settled(&self) -> Vec<i64> {
        self.handle.settled.lock().unwrap().clone()
    }
}

fn assigned() -> Assigned {
    Assigned { partition: TopicPartition::new("orders", 0), epoch: AssignmentEpoch(1) }
}

/// The lane knew its offsets by the old log: nothing of the new one was committed until it was longer than the old had
/// been, and what came while the service was down after that was passed over.
#[tokio::test(start_paused = true)]
async fn a_log_that_goes_back_is_committed_from_where_it_begins_again() {
    let rig = Rig::new(Panics::Nowhere);
    let seen = Seen::default();
    let consumer = start(rig.harbor.consumer(GROUP).auto_create_topics(true).subscribe("orders", {
        let seen = seen.clone();
        move |order: String| {
            seen.add(&*order);
            // One that is still at work when its log is gone.
            async move {
                if order == "stuck" {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Failure>(())
            }
        }
    }))
    .await;
    rig.assign(1_000);
    rig.batch(1_000, &["old", "old"]);
    until("the commit", || rig.settled() == [1_002]).await;
    rig.batch(0, &["new", "new", "new"]);
    settle().await;
    assert_eq!(rig.settled(), [1_002, 3]);

    // Truncated within what was not finished: read again from there, and only once.
    rig.batch(3, &["stuck", "lost", "lost"]);
    settle().await;
    rig.batch(5, &["late"]);
    settle().await;
    assert_eq!(*rig.handle.resumed.lock().unwrap(), [ResumeFrom::Here, ResumeFrom::Offset(Offset(3))]);
    rig.batch(3, &["kept", "kept"]);
    // The level's one place is free once the old record's handler was given up.
    until("the rest", || rig.settled().last() == Some(&5)).await;
    assert_eq!(seen.all(), ["old", "old", "new", "new", "new", "stuck", "kept", "kept"]);
    within("stopping", consumer.stop(Duration::from_secs(5))).await.unwrap();
}

/// A partition that is lost may be another member's already, which handles the same record.
#[tokio::test(start_paused = true)]
async fn what_is_lost_is_cut_off_at_once_and_nothing_of_it_is_settled() {
    let rig = Rig::new(Panics::Nowhere);
    let seen = Seen::default();
    let consumer = start(rig.harbor.consumer(GROUP).auto_create_topics(true).subscribe("orders", {
        let seen = seen.clone();
        move |_: String, context: Context| {
            let seen = seen.clone();
            async move {
                context.cancel().cancelled().await;
                seen.add("cancelled");
                Ok::<_, Failure>(())
            }
        }
    }))
    .await;
    rig.assign(0);
    rig.batch(0, &["tea"]);
    settle().await;
    rig.event(Event::Lost(vec![assigned()]));
    settle().await;
    assert_eq!(seen.all(), ["cancelled"]);
    within("stopping", consumer.stop(Duration::from_secs(5))).await.unwrap();
    assert_eq!(rig.settled(), [0; 0]);
}

/// The consumer's task was gone, its status said "running", and stopping it waited for ever.
#[tokio::test(start_paused = true)]
async fn an_adapter_that_panics_stops_the_consumer_loudly() {
    let rig = Rig::new(Panics::Nowhere);
    let consumer = start(
        rig.harbor.consumer(GROUP).auto_create_topics(true).subscribe("orders", async |_: String| Ok::<_, Failure>(())),
    )
    .await;
    rig.assign(0);
    settle().await;
    assert_eq!(consumer.status(), ConsumerStatus::Running);
    rig.say.send(Said::Panic).unwrap();
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Crash));
    assert!(!rig.harbor.health().healthy);
    assert_eq!(rig.told.of(&["error", "stopped"]), ["error consumer HANDLER", "stopped shipping crash"]);
    within("shutdown", rig.harbor.shutdown(Duration::from_secs(1))).await.unwrap();
}

/// The hop was never answered: its partition committed nothing more, and nobody was told.
#[tokio::test(start_paused = true)]
async fn a_publisher_that_panics_stops_the_consumer_loudly() {
    let rig = Rig::new(Panics::Publishing);
    let consumer =
        start(rig.harbor.consumer(GROUP).auto_create_topics(true).subscribe("orders", async |_: String| fails())).await;
    rig.assign(0);
    rig.batch(0, &["tea"]);
    assert_eq!(within("stopping", consumer.stopped()).await, Some(StopReason::Crash));
    assert_eq!(rig.settled(), [0; 0]);
}

/// A shutdown waited the thirty seconds of the crash that came before it, whatever its own time was.
#[tokio::test(start_paused = true)]
async fn a_shutdown_has_its_own_time_also_after_a_crash() {
    let rig = Rig::new(Panics::Nowhere);
    let consumer = start(rig.harbor.consumer(GROUP).auto_create_topics(true).subscribe("orders", async |_: String| {
        std::future::pending::<()>().await;
        Ok::<_, Failure>(())
    }))
    .await;
    rig.assign(0);
    rig.batch(0, &["tea"]);
    settle().await;
    let fenced = AdapterError::new("scripted", AdapterErrorKind::Fenced, "another has the place");
    rig.event(Event::Fault(fenced));
    let Rig { harbor, say, .. } = rig;
    drop(say);
    until("the crash", || consumer.status() == ConsumerStatus::Stopping).await;
    let before = tokio::time::Instant::now();
    within("shutdown", harbor.shutdown(Duration::from_secs(2))).await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
}

/// While another member has all partitions, the group assigns none: the run ended at its idle time with nothing done, as
/// if nothing had been there.
#[tokio::test(start_paused = true)]
async fn a_redrive_that_is_assigned_nothing_yet_waits_for_its_part() {
    let rig = Rig::new(Panics::Nowhere);
    let run = tokio::spawn(rig.harbor.redrive("orders").to("again").idle_timeout("5s").run());
    rig.event(Event::Assigned(Vec::new()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!run.is_finished());
    rig.assign(0);
    rig.batch(0, &["tea"]);
    assert_eq!(within("the redrive", run).await.unwrap().unwrap().reprocessed, 1);
}

/// The attempt was gone and the harbor "connecting" for ever, with all who waited for it.
#[tokio::test(start_paused = true)]
async fn an_adapter_that_panics_as_it_connects_is_an_error_for_all_who_wait() {
    let rig = Rig::new(Panics::Connecting);
    for _ in 0..3 {
        let both = async { tokio::join!(rig.harbor.connect(), rig.harbor.connect()) };
        let (one, other) = within("connecting", both).await;
        for error in [one.unwrap_err(), other.unwrap_err()] {
            let HarborError::Adapter(error) = error else { panic!("{error:?}") };
            assert_eq!(error.kind, AdapterErrorKind::Panicked);
            assert_eq!(error.to_string(), "scripted: connecting panicked: no way to connect");
        }
        assert_eq!(rig.harbor.status(), HarborStatus::Idle);
    }
    assert_eq!(rig.told.all(), ["error adapter ADAPTER"; 3]);
    within("connecting", rig.harbor.connect()).await.unwrap();
    within("shutdown", rig.harbor.shutdown(Duration::from_secs(1))).await.unwrap();
}

/// The shutdown, and all who waited for it, never ended.
#[tokio::test(start_paused = true)]
async fn an_adapter_that_panics_as_it_closes_is_closed_all_the_same() {
    let rig = Rig::new(Panics::Closing);
    rig.harbor.connect().await.unwrap();
    let error = within("shutdown", rig.harbor.shutdown(Duration::from_secs(1))).await.unwrap_err();
    let HarborError::Adapter(error) = error else { panic!("{error:?}") };
    assert_eq!(error.kind, AdapterErrorKind::Panicked);
    assert_eq!(rig.harbor.status(), HarborStatus::Closed);
}

/// The harbor was "connecting" for ever, with nobody at it.
#[test]
fn an_attempt_that_ends_with_its_runtime_is_made_anew_on_another() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let broker = MemoryBroker::new();
    broker.fault(Fault::new(Operation::Connect, Effect::Hang));
    let harbor = Harbor::builder("orders-service", MemoryAdapter::new(&broker)).build().unwrap();
    let first = runtime();
    let gave_up = first.block_on(async { tokio::time::timeout(Duration::from_secs(1), harbor.connect()).await });
    assert!(gave_up.is_err());
    drop(first);
    assert_eq!(harbor.status(), HarborStatus::Idle);
    runtime().block_on(within("connecting", harbor.connect())).unwrap();
}
