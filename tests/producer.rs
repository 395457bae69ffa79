//! The harbor's producer through its public face, on the broker in memory.

#![cfg(feature = "harbor")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kafka_harbor::adapter::memory::{Call, MemoryAdapter, MemoryBroker};
use kafka_harbor::clock::TokioClock;
use kafka_harbor::error::BoxError;
use kafka_harbor::harbor::{Harbor, HarborError, Json, Message, Producer, Raw, Serializer, code};
use kafka_harbor::memory::{Effect, Fault, Operation};
use kafka_harbor::observe::{ErrorReported, MessageProduced, Observer, PossiblyWritten};
use kafka_harbor::protocol::error_code::ErrorCode;
use kafka_harbor::record::{Offset, Timestamp};
use kafka_harbor::retry::RetryPolicy;

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Told {
    fn message_produced(&self, event: &MessageProduced<'_>) {
        self.0.lock().unwrap().push(format!("{} {} to {}", event.kind, event.records, event.topic));
    }

    fn possibly_written(&self, event: &PossiblyWritten<'_>) {
        self.0.lock().unwrap().push(format!("perhaps {} {} to {}", event.kind, event.records, event.topic));
    }

    fn error(&self, event: &ErrorReported<'_>) {
        let topic = event.topic.map_or("-", |topic| topic.as_str());
        self.0.lock().unwrap().push(format!("error {} {} {topic}", event.scope, event.error.code));
    }
}

struct Scene {
    broker: MemoryBroker,
    harbor: Harbor<Json>,
    producer: Producer<Json>,
    told: Told,
}

fn scene() -> Scene {
    let (broker, told) = (MemoryBroker::new(), Told::default());
    let builder = Harbor::builder("shop", MemoryAdapter::new(&broker)).clock(TokioClock).observer(told.clone());
    let harbor = builder.build().unwrap();
    let producer = harbor.producer().build().unwrap();
    Scene { broker, harbor, producer, told }
}

#[tokio::test(start_paused = true)]
async fn records_carry_the_harbors_headers_behind_the_callers() {
    let scene = scene();
    let message = Message::new("tea").with_key("k").with_header("x-tenant", "acme").with_timestamp(Timestamp(7));
    let written = scene.producer.send("orders", message).await.unwrap();
    assert_eq!(written.offset, Some(Offset(0)));

    let record = &scene.broker.records("orders")[0];
    assert_eq!((record.key.as_deref(), record.value.as_deref()), (Some(&b"k"[..]), Some(&b"\"tea\""[..])));
    assert_eq!(record.timestamp, Timestamp(7));
    let names: Vec<_> = record.headers.iter().map(|header| &header.name[..]).collect();
    assert_eq!(names, [&b"x-tenant"[..], b"x-correlation-id", b"x-produced-at", b"x-producer"]);
    assert_eq!(record.header("x-producer"), Some(&b"shop"[..]));
    assert_eq!(record.header("x-correlation-id").unwrap().len(), 36);
    assert_eq!(scene.told.all(), ["send 1 to orders"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_one_instant_and_its_order() {
    let scene = scene();
    scene.broker.create_topic("orders", 1).unwrap();
    let ids = ["a", "b", "c"].map(|id| Message::new(id).with_header("x-correlation-id", id));
    let written = scene.producer.send_batch("orders", ids).await.unwrap();
    assert_eq!(written.iter().map(|written| written.offset.unwrap().0).collect::<Vec<_>>(), [0, 1, 2]);
    let records = scene.broker.records("orders");
    let ids: Vec<_> = records.iter().map(|record| record.header("x-correlation-id").unwrap().to_vec()).collect();
    assert_eq!(ids, [b"a", b"b", b"c"], "given ids are kept");
    assert!(records.iter().all(|record| record.header("x-produced-at") == records[0].header("x-produced-at")));
    assert_eq!(scene.told.all(), ["send 3 to orders"]);
}

tokio::task_local! {
    static REQUEST: String;
}

#[tokio::test(start_paused = true)]
async fn correlation_ids_come_from_the_callers_task() {
    let broker = MemoryBroker::new();
    let harbor = Harbor::builder("shop", MemoryAdapter::new(&broker))
        .correlation_ids(|| REQUEST.try_with(Clone::clone).ok())
        .build()
        .unwrap();
    let producer = harbor.producer().build().unwrap();
    REQUEST.scope("request-7".into(), producer.send("orders", Message::new(1))).await.unwrap();
    producer.send("orders", Message::new(2)).await.unwrap();
    let records = broker.records("orders");
    assert_eq!(records[0].header("x-correlation-id"), Some(&b"request-7"[..]));
    assert_eq!(records[1].header("x-correlation-id").unwrap().len(), 36);
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_is_null_and_no_serializer_is_asked() {
    struct Refusing;
    impl Serializer<u32> for Refusing {
        async fn serialize(&self, _topic: &str, _payload: &u32) -> Result<Bytes, BoxError> {
            Err("not even asked".into())
        }
    }
    let scene = scene();
    let producer = scene.harbor.producer().serializer(Refusing).build().unwrap();
    producer.send("orders", Message::<u32>::tombstone("k")).await.unwrap();
    assert_eq!(scene.broker.records("orders")[0].value, None);

    let raw = scene.harbor.producer().serializer(Raw).build().unwrap();
    raw.send("orders", Message::new(Bytes::new())).await.unwrap();
    assert_eq!(scene.broker.records("orders")[1].value, Some(Bytes::new()));
}

#[tokio::test(start_paused = true)]
async fn one_payload_that_cannot_be_written_keeps_all_back() {
    let scene = scene();
    let error = scene.producer.send_batch("orders", [1.0, f64::NAN].map(Message::new)).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable()), (code::SERIALIZATION, false));
    assert!(error.to_string().contains("value is NaN"), "{error}");
    assert_eq!(scene.broker.calls(), [], "nothing was connected, nothing sent");
    assert_eq!(scene.told.all(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn nothing_to_send_does_nothing() {
    let scene = scene();
    assert_eq!(scene.producer.send_batch("orders", Vec::<Message<u32>>::new()).await.unwrap(), []);
    assert_eq!(scene.broker.calls(), []);
    let error = scene.producer.send("", Message::new(1)).await.unwrap_err();
    assert_eq!(error.code(), code::CONFIG_INVALID);
}

#[tokio::test(start_paused = true)]
async fn five_tries_are_made_and_then_it_is_told() {
    let scene = scene();
    scene.broker.create_topic("orders", 1).unwrap();
    scene.broker.fault(Fault::new(Operation::Publish, Effect::refuse(ErrorCode(6))).on_topic("orders").times(5));
    let error = scene.producer.send("orders", Message::new(1)).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable()), (code::RETRY_EXHAUSTED, true));
    let tries = scene.broker.calls().iter().filter(|call| matches!(call, Call::Publish { .. })).count();
    assert_eq!((tries, scene.broker.faults_pending()), (5, 0));
    assert_eq!(scene.told.all(), ["error producer RETRY_EXHAUSTED orders"]);
}

#[tokio::test(start_paused = true)]
async fn a_final_refusal_is_not_tried_again() {
    let scene = scene();
    scene.broker.create_topic("orders", 1).unwrap();
    scene.broker.fail_next_produce("orders", ErrorCode(29), false);
    let error = scene.producer.send("orders", Message::new(1)).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable(), error.is_possibly_written()), (code::ADAPTER, false, false));
    assert!(scene.broker.records("orders").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_told_apart() {
    let scene = scene();
    scene.broker.create_topic("orders", 1).unwrap();
    scene.broker.lose_next_acknowledgement("orders");
    let once = scene.harbor.producer().retry(RetryPolicy { attempts: 1, ..RetryPolicy::default() }).build().unwrap();
    let error = once.send("orders", Message::new(1)).await.unwrap_err();
    assert!(error.is_possibly_written(), "{error}");
    assert_eq!(scene.told.all()[0], "perhaps send 1 to orders");
    assert_eq!(scene.broker.records("orders").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_cannot_be_reached_is_no_producer_error() {
    let scene = scene();
    scene.broker.fault(Fault::new(Operation::Connect, Effect::refuse(ErrorCode(8))));
    let error = scene.producer.send("orders", Message::new(1)).await.unwrap_err();
    assert!(matches!(error, HarborError::Adapter(_)), "{error}");
    assert_eq!(scene.told.all(), ["error adapter ADAPTER -"]);
    scene.producer.send("orders", Message::new(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_closed_harbor_sends_nothing() {
    let scene = scene();
    scene.producer.send("orders", Message::new(1)).await.unwrap();
    scene.producer.flush().await.unwrap();
    scene.harbor.shutdown(Duration::from_secs(1)).await.unwrap();
    assert_eq!(scene.producer.send("orders", Message::new(1)).await.unwrap_err().code(), code::CLOSED);
    assert_eq!(scene.harbor.producer().build().unwrap_err().code(), code::CLOSED);
    let none = RetryPolicy { attempts: 0, ..RetryPolicy::default() };
    assert_eq!(scene.harbor.producer().retry(none).build().unwrap_err().code(), code::CONFIG_INVALID);
}
