//! Redrive through the public face, on the broker in memory and in virtual time.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "redrive/parts.rs"]
mod parts;
mod support;
#[path = "redrive/undo.rs"]
mod undo;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use kafka_harbor::adapter::memory::{Call, MemoryAdapter, MemoryBroker, StoredRecord};
use kafka_harbor::adapter::{
    Adapter, AdapterError, BoxFuture, Event, EventSource, JoinOptions, Membership, PublisherOptions,
};
use kafka_harbor::clock::TokioClock;
use kafka_harbor::error::BoxError;
use kafka_harbor::harbor::{
    CancelSignal, DeadLetter, Deserializer, Failure, Harbor, HarborError, Json, RedriveReport, code,
};
use kafka_harbor::memory::{Effect, Fault, Operation};
use kafka_harbor::observe::{CommitFailed, ErrorReported, MessageRedriven, Observer, RedriveProgress};
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{Header, Offset, Record};
use support::pass_on::pass_on;
use support::start;
use tokio::time::Instant;

const DLQ: &str = "orders-dlq";
const GROUP: &str = "orders-dlq-redrive";
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<(u64, bool)>>>);

impl Told {
    fn add(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Told {
    fn message_redriven(&self, event: &MessageRedriven<'_>) {
        let id = event.correlation_id.unwrap_or("-");
        self.add(format!(
            "{}/{}/{} to {} by {} id {id}",
            event.from, event.partition, event.offset, event.to, event.group
        ));
    }

    fn redrive_progress(&self, event: &RedriveProgress<'_>) {
        self.1.lock().unwrap().push((event.reprocessed, event.done));
    }

    fn commit_failed(&self, event: &CommitFailed<'_>) {
        self.add(format!("not committed {} withheld {}", event.offset, event.withheld));
    }

    fn error(&self, event: &ErrorReported<'_>) {
        self.add(format!("error {} {}", event.scope, event.error.code));
    }
}

struct Scene {
    broker: MemoryBroker,
    harbor: Harbor<Json>,
    told: Told,
}

impl Scene {
    /// A dead-letter topic of this many partitions.
    fn new(partitions: i32) -> Self {
        let broker = MemoryBroker::new();
        broker.create_topic(DLQ, partitions).unwrap();
        broker.create_topic("orders", 1).unwrap();
        Self::on(broker.clone(), MemoryAdapter::new(&broker))
    }

    fn on(broker: MemoryBroker, adapter: impl Adapter) -> Self {
        let told = Told::default();
        let builder = Harbor::builder("redriver", adapter).clock(TokioClock).observer(told.clone());
        Self { broker, harbor: builder.build().unwrap(), told }
    }

    async fn put(&self, records: Vec<Record>) {
        let publisher = MemoryAdapter::new(&self.broker).publisher(PublisherOptions::default()).unwrap();
        publisher.publish(records).await.unwrap();
    }

    async fn letters(&self, values: &[&str]) {
        self.put(values.iter().map(|value| letter(value)).collect()).await;
    }

    fn back(&self) -> Vec<String> {
        self.broker.records("orders").iter().map(text).collect()
    }

    fn committed(&self) -> Option<i64> {
        self.broker.committed(GROUP, DLQ, 0).map(|offset| offset.0)
    }

    fn members(&self) -> usize {
        self.broker.members(GROUP).len()
    }
}

fn letter(value: &str) -> Record {
    Record::new(DLQ, value.to_owned())
        .with_key(value.to_owned())
        .with_header("x-tenant", "acme")
        .with_header("x-correlation-id", format!("id-{value}"))
        .with_header("x-retry-count", "2")
        .with_header("x-original-topic", "orders")
        .with_header("x-first-failure-at", "2026-11-30T13:27:02.495Z")
        .with_header("x-last-error", "ValidationError: bad sku")
        .with_header("x-dead-lettered-at", "2026-11-30T13:27:02.704Z")
        .with_header("x-retry-group", "shipping")
}

fn text(record: &StoredRecord) -> String {
    record.value.as_ref().map_or_else(|| "null".to_owned(), |value| String::from_utf8_lossy(value).into_owned())
}

fn counts(report: &RedriveReport) -> (u64, u64) {
    (report.reprocessed, report.skipped)
}

#[tokio::test(start_paused = true)]
async fn letters_go_back_as_if_they_had_never_failed() {
    let scene = Scene::new(1);
    scene.letters(&["a", "b"]).await;
    let report = scene.harbor.redrive(DLQ).run().await.unwrap();
    assert_eq!((counts(&report), report.cancelled, report.from.as_str()), ((2, 0), false, DLQ));
    assert_eq!(scene.back(), ["a", "b"]);

    let record = &scene.broker.records("orders")[0];
    assert_eq!(record.key.as_deref(), Some(&b"a"[..]));
    let names: Vec<_> =
        record.headers.iter().map(|header| String::from_utf8_lossy(&header.name).into_owned()).collect();
    let expected = [
        "x-tenant",
        "x-correlation-id",
        "x-redriven-from",
        "x-redriven-at",
        "x-produced-at",
        "x-producer",
        "x-redrive-count",
    ];
    assert_eq!(names, expected);
    assert_eq!(record.header("x-correlation-id"), Some(&b"id-a"[..]));
    assert_eq!(record.header("x-redriven-from"), Some(DLQ.as_bytes()));
    assert_eq!(record.header("x-redriven-at"), record.header("x-produced-at"));
    assert_eq!(record.header("x-producer"), Some(&b"redriver"[..]));

    assert_eq!(scene.committed(), Some(2));
    assert_eq!(scene.members(), 0, "the group is left");
    let told = [
        "orders-dlq/0/0 to orders by orders-dlq-redrive id id-a",
        "orders-dlq/0/1 to orders by orders-dlq-redrive id id-b",
    ];
    assert_eq!(scene.told.all(), told);
}

#[tokio::test(start_paused = true)]
async fn bytes_survive_whatever_they_are() {
    let scene = Scene::new(1);
    let mut hard = letter("x");
    hard.key = Some((&b"\xff\x00"[..]).into());
    hard.value = None;
    hard.headers.push(Header::new("repeated", "1"));
    hard.headers.push(Header::new("repeated", "2"));
    hard.headers.push(Header::null("null"));
    hard.headers.push(Header::new(&b"\xfe"[..], &b"\xff"[..]));
    hard.headers.retain(|header| header.name != "x-correlation-id");
    hard.headers.push(Header::null("x-correlation-id"));
    let empty = Record { value: Some("".into()), key: None, ..letter("") };
    scene.put(vec![hard, empty]).await;
    scene.harbor.redrive(DLQ).run().await.unwrap();

    let records = scene.broker.records("orders");
    assert_eq!((records[0].key.as_deref(), records[0].value.as_deref()), (Some(&b"\xff\x00"[..]), None));
    let foreign: Vec<_> = records[0].headers[1..5].to_vec();
    let expected = [
        Header::new("repeated", "1"),
        Header::new("repeated", "2"),
        Header::null("null"),
        Header::new(&b"\xfe"[..], &b"\xff"[..]),
    ];
    assert_eq!(foreign, expected);
    assert_eq!(records[0].header("x-correlation-id").unwrap().len(), 36, "minted where it was null");
    assert_eq!((records[1].key.as_deref(), records[1].value.as_deref()), (None, Some(&b""[..])));
}

#[tokio::test(start_paused = true)]
async fn options_that_make_no_sense_are_named_together() {
    let scene = Scene::new(1);
    let error = scene.harbor.redrive(DLQ).to(DLQ).group("").max(0).idle_timeout("soon").run().await.unwrap_err();
    let HarborError::Config(config) = &error.source else { panic!("{error}") };
    let options: Vec<_> = config.problems().iter().map(|problem| problem.option.as_str()).collect();
    assert_eq!(options, ["idle_timeout", "idle_timeout", "group", "to", "max"]);
    assert!(scene.broker.calls().iter().all(|call| !matches!(call, Call::Join { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_letter_without_a_target_ends_the_run_and_stays() {
    for (told, what) in [(None, "missing"), (Some(" \u{feff}"), "blank"), (Some(DLQ), "the topic itself")] {
        let scene = Scene::new(1);
        let mut lost = letter("b");
        lost.headers.retain(|header| header.name != "x-original-topic");
        lost.headers.extend(told.map(|told| Header::new("x-original-topic", told)));
        scene.put(vec![letter("a"), lost, letter("c")]).await;

        let error = scene.harbor.redrive(DLQ).run().await.unwrap_err();
        assert_eq!((error.source.code(), counts(&error.report)), (code::CONFIG_INVALID, (1, 0)), "{what}");
        assert_eq!((scene.back(), scene.committed()), (vec!["a".to_owned()], Some(1)), "{what}");
        assert_eq!(scene.members(), 0);

        // With a target, the next run goes on from there.
        let report = scene.harbor.redrive(DLQ).to("orders").run().await.unwrap();
        assert_eq!((counts(&report), scene.back()), ((2, 0), ["a", "b", "c"].map(str::to_owned).to_vec()), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_filter_does_not_want_needs_no_target() {
    let scene = Scene::new(1);
    let mut lost = letter("a");
    lost.headers.clear();
    scene.put(vec![lost, letter("b")]).await;
    let report = scene.harbor.redrive(DLQ).filter(|letter: &DeadLetter| letter.retry.is_some()).run().await.unwrap();
    assert_eq!((counts(&report), scene.back(), scene.committed()), ((1, 1), vec!["b".to_owned()], Some(2)));
}

#[tokio::test(start_paused = true)]
async fn max_counts_what_is_skipped_and_the_next_run_goes_on_there() {
    let scene = Scene::new(1);
    scene.letters(&["a", "b", "c", "d", "e"]).await;
    let odd = |letter: &DeadLetter| letter.offset.0 % 2 == 1;
    let report = scene.harbor.redrive(DLQ).filter(odd).max(3).run().await.unwrap();
    assert_eq!((counts(&report), scene.committed()), ((1, 2), Some(3)));
    let report = scene.harbor.redrive(DLQ).filter(odd).run().await.unwrap();
    assert_eq!((counts(&report), scene.committed()), ((1, 1), Some(5)));
    assert_eq!(scene.back(), ["b", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_when_nothing_came_for_the_idle_time() {
    let scene = Scene::new(1);
    scene.letters(&["a"]).await;
    let began = Instant::now();
    let late = async {
        for (wait, value) in [(4, "b"), (4, "c"), (6, "d")] {
            tokio::time::sleep(wait * SECOND).await;
            scene.letters(&[value]).await;
        }
    };
    let (report, ()) = tokio::join!(
        async {
            let report = scene.harbor.redrive(DLQ).run().await.unwrap();
            assert_eq!(began.elapsed().as_secs(), 13, "five seconds from the last letter");
            report
        },
        late
    );
    assert_eq!((counts(&report), scene.back()), ((3, 0), ["a", "b", "c"].map(str::to_owned).to_vec()));
}

/// Hands assignments over only after a while, as a group does whose rebalance takes its time.
#[derive(Debug)]
struct Slow {
    adapter: MemoryAdapter,
    by: Duration,
}

struct Late {
    events: Box<dyn EventSource>,
    at: std::pin::Pin<Box<tokio::time::Sleep>>,
}

impl EventSource for Late {
    fn poll_next(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<Event>> {
        if !self.at.is_elapsed() && self.at.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.events.poll_next(cx)
    }
}

impl Adapter for Slow {
    pass_on!(adapter: name capabilities connect close publisher create_topics describe_topics watermarks committed);

    fn join(&self, options: JoinOptions) -> BoxFuture<'_, Result<Membership, AdapterError>> {
        Box::pin(async move {
            let Membership { events, handle } = self.adapter.join(options).await?;
            let at = Box::pin(tokio::time::sleep(self.by));
            Ok(Membership { events: Box::new(Late { events, at }), handle })
        })
    }
}

fn slow(by: Duration) -> Scene {
    let broker = MemoryBroker::new();
    broker.create_topic(DLQ, 1).unwrap();
    Scene::on(broker.clone(), Slow { adapter: MemoryAdapter::new(&broker), by })
}

/// The Node package counts idleness from the join: on a full topic a slow assignment ended it with nothing done.
#[tokio::test(start_paused = true)]
async fn an_assignment_slower_than_the_idle_time_ends_nothing() {
    let scene = slow(30 * SECOND);
    scene.letters(&["a", "b"]).await;
    let report = scene.harbor.redrive(DLQ).idle_timeout("100ms").run().await.unwrap();
    assert_eq!(counts(&report), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn an_assignment_that_never_comes_is_an_error_and_not_an_end() {
    let scene = slow(3_600 * SECOND);
    scene.letters(&["a"]).await;
    let began = Instant::now();
    let error = scene.harbor.redrive(DLQ).assignment_timeout("1m").run().await.unwrap_err();
    assert_eq!((error.source.code(), error.source.is_retryable()), (code::ADAPTER, true));
    assert_eq!(began.elapsed(), 60 * SECOND);
    assert_eq!(scene.members(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_is_told_and_the_run_goes_on() {
    let scene = Scene::new(1);
    scene.letters(&["a"]).await;
    scene.broker.fail_commits(GROUP, 1, ErrorCode(15), true);
    let more = async {
        tokio::time::sleep(SECOND).await;
        scene.letters(&["b"]).await;
    };
    let (report, ()) = tokio::join!(scene.harbor.redrive(DLQ).run(), more);
    assert_eq!((counts(&report.unwrap()), scene.committed()), ((2, 0), Some(2)));
    let told = ["not committed 1 withheld 1", "orders-dlq/0/1 to orders by orders-dlq-redrive id id-b"];
    assert_eq!(scene.told.all(), told);
}

#[tokio::test(start_paused = true)]
async fn a_letter_that_cannot_be_written_ends_the_run_uncommitted() {
    let scene = Scene::new(1);
    scene.letters(&["a", "b"]).await;
    scene.broker.fail_next_produce("orders", ErrorCode(29), false);
    let error = scene.harbor.redrive(DLQ).run().await.unwrap_err();
    assert!(matches!(error.source, HarborError::NotPublished(_)), "{error}");
    assert_eq!((counts(&error.report), scene.back().len(), scene.members()), ((0, 0), 0, 0));
    assert!(scene.committed().is_none_or(|offset| offset == 0));

    scene.broker.fault(Fault::new(Operation::Publish, Effect::refuse(ErrorCode(6))).on_topic("orders").times(4));
    let report = scene.harbor.redrive(DLQ).run().await.unwrap();
    assert_eq!((counts(&report), scene.back()), ((2, 0), vec!["a".to_owned(), "b".to_owned()]), "five tries are made");
}

/// A letter that fails again arrives behind the others while the run is still at work.
#[tokio::test(start_paused = true)]
async fn a_run_ends_although_its_letters_keep_failing() {
    let scene = Scene::new(1);
    let handled = Arc::new(AtomicU32::new(0));
    let count = handled.clone();
    start(scene.harbor.consumer("shipping").serializer(kafka_harbor::harbor::Text).from_beginning(true).subscribe(
        "orders",
        move |_: String| {
            count.fetch_add(1, Ordering::Relaxed);
            async { Err::<(), _>(Failure::permanent("never")) }
        },
    ))
    .await;
    scene.letters(&["a", "b", "c"]).await;

    for run in 1..=2 {
        let report = scene.harbor.redrive(DLQ).run().await.unwrap();
        assert_eq!(counts(&report), (3, 0), "run {run}");
        assert_eq!(handled.load(Ordering::Relaxed), 3 * run);
        assert_eq!(scene.broker.records(DLQ).len(), 3 + 3 * run as usize);
        // Runs are told apart by the clock, which stands still here.
        tokio::time::sleep(SECOND).await;
    }
    scene.harbor.shutdown(SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_what_is_there_is_taken_without_waiting_for_more() {
    let scene = Scene::new(3);
    scene.letters(&["a", "b", "c", "d"]).await;
    let began = Instant::now();
    let during = |letter: &DeadLetter| letter.header("x-tenant") == Some("acme");
    let report = scene.harbor.redrive(DLQ).only_present(true).filter(during).run().await.unwrap();
    assert_eq!(counts(&report), (4, 0));
    assert!(began.elapsed() < SECOND, "took {:?}", began.elapsed());

    // Nothing left: done at once, too. What comes during a run is left to the next.
    let scene = Scene::new(1);
    scene.letters(&["a"]).await;
    let broker = scene.broker.clone();
    let report = scene
        .harbor
        .redrive(DLQ)
        .only_present(true)
        .filter_async(move |_| {
            let publisher = MemoryAdapter::new(&broker).publisher(PublisherOptions::default()).unwrap();
            async move { publisher.publish(vec![letter("late")]).await.map(|_| true) }
        })
        .run()
        .await
        .unwrap();
    assert_eq!((counts(&report), scene.committed()), ((1, 0), Some(1)));
    assert_eq!(scene.back(), ["a"]);
}

#[derive(serde::Deserialize)]
struct Order {
    price: u32,
}

#[tokio::test(start_paused = true)]
async fn payloads_can_be_asked_for_and_what_cannot_be_read_is_skipped() {
    let scene = Scene::new(1);
    let mut tombstone = letter("gone");
    tombstone.value = None;
    scene.put(vec![letter(r#"{"price":1}"#), letter("no json"), tombstone, letter(r#"{"price":3}"#)]).await;
    let dear = |order: Order, _| async move { order.price > 2 };
    let report = scene.harbor.redrive(DLQ).filter_payload(dear).run().await.unwrap();
    assert_eq!((counts(&report), scene.committed()), ((1, 3), Some(4)));
    assert_eq!(scene.back(), [r#"{"price":3}"#]);
    assert_eq!(scene.told.all()[..2], ["error consumer SERIALIZATION", "error consumer SERIALIZATION"]);

    let scene = Scene::new(1);
    scene.put(vec![Record { value: None, ..letter("gone") }, letter(r#"{"price":1}"#)]).await;
    let gone = |order: Option<Order>, _| async move { order.is_none() };
    let report = scene.harbor.redrive(DLQ).filter_payload(gone).run().await.unwrap();
    assert_eq!((counts(&report), scene.back()), ((1, 1), vec!["null".to_owned()]));
}

/// Reads nothing while its registry is down; remembers for which topic it was asked.
#[derive(Clone, Default)]
struct Registry {
    down: Arc<AtomicU32>,
    topics: Arc<Mutex<Vec<String>>>,
}

impl Deserializer<u32> for Registry {
    async fn deserialize(&self, topic: &str, _value: &[u8]) -> Result<u32, BoxError> {
        self.topics.lock().unwrap().push(topic.to_owned());
        match self.down.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Err(Failure::retryable("registry down").into()),
            Err(_) => Ok(7),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_serializer_that_may_recover_ends_the_run_and_the_next_one_reads() {
    let broker = MemoryBroker::new();
    broker.create_topic(DLQ, 1).unwrap();
    let registry = Registry::default();
    registry.down.store(1, Ordering::Relaxed);
    let harbor = Harbor::builder("redriver", MemoryAdapter::new(&broker)).serializer(registry.clone()).build().unwrap();
    let put = MemoryAdapter::new(&broker).publisher(PublisherOptions::default()).unwrap();
    let unmarked = Record { headers: vec![Header::new("x-original-topic", "orders")], ..letter("b") };
    put.publish(vec![letter("a"), unmarked]).await.unwrap();

    let all = |_: u32, _| async { Ok::<_, Failure>(true) };
    let error = harbor.redrive(DLQ).filter_payload(all).run().await.unwrap_err();
    assert_eq!((error.source.is_retryable(), counts(&error.report)), (true, (0, 0)));
    let report = harbor.redrive(DLQ).filter_payload(all).run().await.unwrap();
    assert_eq!(counts(&report), (2, 0));
    // Where there is no valid block the original topic is not known.
    assert_eq!(*registry.topics.lock().unwrap(), ["orders", "orders", DLQ]);
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_fails_or_panics_ends_the_run_and_its_letter_stays() {
    let scene = Scene::new(1);
    scene.letters(&["a", "b"]).await;
    let fails = |letter: &DeadLetter| if letter.offset == Offset(1) { Err("no idea") } else { Ok(true) };
    let error = scene.harbor.redrive(DLQ).filter(fails).run().await.unwrap_err();
    assert_eq!((error.source.code(), counts(&error.report), scene.committed()), (code::HANDLER, (1, 0), Some(1)));

    let panics = |_: &DeadLetter| -> bool { panic!("no idea") };
    let error = scene.harbor.redrive(DLQ).filter(panics).run().await.unwrap_err();
    assert_eq!((error.source.code(), counts(&error.report), scene.committed()), (code::PANIC, (0, 0), Some(1)));
    let panics = |_| async { if true { panic!("no idea") } else { true } };
    let error = scene.harbor.redrive(DLQ).filter_async(panics).run().await.unwrap_err();
    assert_eq!((error.source.code(), scene.members()), (code::PANIC, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_told_to_end_commits_what_it_did_and_leaves() {
    let scene = Scene::new(1);
    scene.letters(&["a", "b", "c"]).await;
    let cancel = CancelSignal::new();
    let signal = cancel.clone();
    // The second letter is the last that is looked at, and its verdict never comes.
    let run = scene.harbor.redrive(DLQ).cancel(cancel).filter_async(move |letter| {
        let signal = signal.clone();
        async move {
            if letter.offset == Offset(1) {
                signal.cancel();
                std::future::pending::<()>().await;
            }
            true
        }
    });
    let report = run.run().await.unwrap();
    assert_eq!((counts(&report), report.cancelled), ((1, 0), true));
    assert_eq!((scene.committed(), scene.members()), (Some(1), 0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_run_in_order() {
    let scene = Scene::new(1);
    scene.letters(&["a"]).await;
    let harbor = scene.harbor.clone();
    let run = tokio::spawn(async move { harbor.redrive(DLQ).idle_timeout("1h").run().await });
    while scene.committed() != Some(1) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    scene.harbor.shutdown(30 * SECOND).await.unwrap();
    let report = run.await.unwrap().unwrap();
    assert_eq!((counts(&report), report.cancelled, scene.members()), ((1, 0), true, 0));
    let left = |call: &Call| matches!(call, Call::Leave { .. });
    let calls = scene.broker.calls();
    let leave = calls.iter().position(left).expect("the group is left");
    let close = calls.iter().position(|call| *call == Call::Close).expect("the adapter is closed");
    assert!(leave < close, "the group is left while there is a connection");
    let error = scene.harbor.redrive(DLQ).run().await.unwrap_err();
    assert_eq!(error.source.code(), code::CLOSED);
}

/// The filter was waited for until the shutdown's time was up; then the adapter was closed under the run.
#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_run_whose_filter_waits() {
    let scene = Scene::new(1);
    scene.letters(&["a", "b", "c"]).await;
    let harbor = scene.harbor.clone();
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let run = harbor.redrive(DLQ).idle_timeout("1h").filter_async(move |letter| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            if letter.offset == Offset(1) {
                std::future::pending::<()>().await;
            }
            true
        }
    });
    let run = tokio::spawn(run.run());
    while asked.load(Ordering::Relaxed) < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let began = Instant::now();
    scene.harbor.shutdown(30 * SECOND).await.unwrap();
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    let report = run.await.unwrap().unwrap();
    assert_eq!((counts(&report), report.cancelled, scene.committed()), ((1, 0), true, Some(1)));
    assert_eq!((scene.back(), scene.members()), (vec!["a".to_owned()], 0));
}

/// A join waits as long as another member holds up the group; neither signal nor shutdown ended it.
#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_group_can_be_ended() {
    for by_shutdown in [false, true] {
        let scene = Scene::new(1);
        scene.broker.fault(Fault::new(Operation::Join, Effect::Hang));
        let cancel = CancelSignal::new();
        let run = tokio::spawn(scene.harbor.redrive(DLQ).cancel(cancel.clone()).run());
        tokio::time::sleep(SECOND).await;
        assert!(!run.is_finished());
        let began = Instant::now();
        if by_shutdown {
            scene.harbor.shutdown(30 * SECOND).await.unwrap();
        } else {
            cancel.cancel();
        }
        let report = tokio::time::timeout(60 * SECOND, run).await.expect("it ends").unwrap().unwrap();
        assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
        assert_eq!((counts(&report), report.cancelled), ((0, 0), true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_leaves_the_group() {
    let scene = Scene::new(1);
    let run = scene.harbor.redrive(DLQ).idle_timeout("1h").run();
    assert!(tokio::time::timeout(SECOND, run).await.is_err());
    tokio::time::sleep(SECOND).await;
    assert_eq!(scene.members(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_runs_share_the_work_and_lose_nothing() {
    let scene = Scene::new(4);
    let values: Vec<String> = (0..40).map(|n| format!("v{n}")).collect();
    scene.letters(&values.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let slowly = |_| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        true
    };
    let late = async {
        tokio::time::sleep(SECOND).await;
        scene.harbor.redrive(DLQ).filter_async(slowly).run().await.unwrap()
    };
    let (first, second) = tokio::join!(scene.harbor.redrive(DLQ).filter_async(slowly).run(), late);
    let mut back = scene.back();
    back.sort();
    back.dedup();
    assert_eq!(back.len(), 40);
    assert!(first.unwrap().reprocessed + second.reprocessed >= 40);
    for partition in 0..4 {
        let end = scene.broker.records(DLQ).iter().filter(|record| record.partition.partition == partition).count();
        let committed = scene.broker.committed(GROUP, DLQ, partition).map_or(0, |offset| offset.0);
        assert_eq!(committed, end as i64);
    }
}

#[tokio::test(start_paused = true)]
async fn long_topics_are_committed_in_bounded_steps() {
    let scene = Scene::new(1);
    let values: Vec<String> = (0..250).map(|n| n.to_string()).collect();
    scene.letters(&values.iter().map(String::as_str).collect::<Vec<_>>()).await;
    scene.broker.clear_calls();
    scene.harbor.redrive(DLQ).run().await.unwrap();
    let settled: Vec<_> = scene
        .broker
        .calls()
        .into_iter()
        .filter_map(|call| match call {
            Call::Settle { positions, .. } => Some(positions[0].1.0),
            _ => None,
        })
        .collect();
    assert_eq!(settled, [100, 200, 250]);
}
