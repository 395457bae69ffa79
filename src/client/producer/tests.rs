//! Sends against brokers that answer by a script.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use super::*;
use crate::client::scripted::{Act, Brokers, Exchange, metadata};
use crate::error::WriteOutcome;
use crate::protocol::api::ApiKey;

const METADATA: ApiKey = ApiKey(3);

type Calls<T> = Vec<std::pin::Pin<Box<dyn Future<Output = T> + Send>>>;

fn one_topic(exchange: &Exchange) -> Act {
    match exchange.api {
        METADATA => metadata(exchange, &[(1, "a:1")], &[("t", 7, &[1])]),
        _ => Act::Usual,
    }
}

/// KIP-951: the broker that refused said who leads, and metadata was asked all the same, by way of a wait.
#[tokio::test(start_paused = true)]
async fn a_leader_that_an_answer_tells_is_written_to_without_asking_for_metadata() {
    use kafka_protocol::messages::produce_response::{
        LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
    };
    use kafka_protocol::messages::{
        InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse, ProducerId,
    };
    use kafka_protocol::protocol::StrBytes;
    use uuid::Uuid;

    let answer = |exchange: &Exchange, partition: PartitionProduceResponse| {
        let topic =
            TopicProduceResponse::default().with_topic_id(Uuid::from_u128(7)).with_partition_responses(vec![partition]);
        let endpoint = NodeEndpoint::default().with_node_id(2.into()).with_host(StrBytes::from_static_str("b"));
        let response =
            ProduceResponse::default().with_responses(vec![topic]).with_node_endpoints(vec![endpoint.with_port(2)]);
        exchange.answer::<ProduceRequest>(&response)
    };
    let brokers = Brokers::new();
    brokers.at("a:1", move |exchange| match exchange.api.name().unwrap() {
        "InitProducerId" => {
            exchange.answer::<InitProducerIdRequest>(&InitProducerIdResponse::default().with_producer_id(ProducerId(1)))
        }
        "Produce" => {
            let leader = LeaderIdAndEpoch::default().with_leader_id(2.into()).with_leader_epoch(5);
            answer(exchange, PartitionProduceResponse::default().with_error_code(6).with_current_leader(leader))
        }
        _ => one_topic(exchange),
    });
    brokers.at("b:2", move |exchange| match exchange.api.name().unwrap() {
        "Produce" => answer(exchange, PartitionProduceResponse::default().with_base_offset(3)),
        _ => Act::Usual,
    });
    let client = brokers.client("a:1", |options| options);
    let producer = client.producer().build().unwrap();
    let written = producer.send(Record::new("t", "value")).await.unwrap();
    assert_eq!(written.offset.map(|offset| offset.0), Some(3));
    assert_eq!((brokers.count("a:1 Produce"), brokers.count("b:2 Produce")), (1, 1));
    assert_eq!(brokers.count("a:1 Metadata"), 1);
}

/// Fifty hops of one partition, handed over in order before the topic's partitions were known, were in the log in any.
#[tokio::test(start_paused = true)]
async fn sends_that_wait_for_a_topic_are_queued_in_order() {
    let brokers = Brokers::new();
    brokers.at("a:1", one_topic);
    let producer = brokers.client("a:1", |options| options).producer().linger(Duration::from_secs(30)).build().unwrap();
    let enqueue = |number: usize| Box::pin(producer.enqueue(Record::new("t", number.to_string())));
    let mut calls: Vec<_> = (0..50).map(enqueue).collect();
    let mut places = vec![None; calls.len()];
    let mut is_first = true;
    poll_fn(|cx| {
        // Each is polled first in its turn, and woken in any order.
        let forward = std::mem::take(&mut is_first);
        for at in 0..calls.len() {
            let at = if forward { at } else { calls.len() - 1 - at };
            if places[at].is_none()
                && let Poll::Ready(delivery) = calls[at].as_mut().poll(cx)
            {
                places[at] = Some(delivery.unwrap().index);
            }
        }
        if places.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    assert_eq!(places, (0..50).map(Some).collect::<Vec<_>>());
    assert!(!producer.shared().lines.is_standing(&"t".into()));
}

#[tokio::test(start_paused = true)]
async fn a_line_for_a_topic_that_does_not_come_ends_for_all_at_once() {
    let brokers = Brokers::new();
    brokers.at("a:1", one_topic);
    let client = brokers.client("a:1", |options| options);
    let producer = client.producer().max_block(Duration::from_secs(10)).build().unwrap();
    let began = now();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let producer = producer.clone();
        calls.spawn(async move { producer.enqueue(Record::new("missing", "x")).await.map(drop).unwrap_err() });
    }
    while let Some(error) = calls.join_next().await {
        let error = error.unwrap();
        assert!(matches!(error.kind, ProduceErrorKind::Blocked { .. }), "{error}");
        assert_eq!(error.outcome, WriteOutcome::NotWritten);
    }
    assert!(now() - began <= Duration::from_secs(10));
}

/// How long a close, and each of these, took to end.
async fn ended_by_close<T: Send + 'static>(producer: &Producer, calls: Calls<T>) -> (Duration, Vec<T>) {
    let calls: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(calls.iter().all(|call| !call.is_finished()), "they wait");
    let began = now();
    let closer = producer.clone();
    let closing = tokio::spawn(async move { closer.close(Duration::from_secs(30)).await });
    let mut errors = Vec::new();
    for call in calls {
        errors.push(call.await.unwrap());
    }
    let took = now() - began;
    let _ = closing.await.unwrap();
    (took, errors)
}

/// Sends whose topic was not known waited out their time, a minute by default, for a producer that had been closed.
#[tokio::test(start_paused = true)]
async fn a_close_ends_sends_whose_topic_is_not_known() {
    let brokers = Brokers::new();
    brokers.at("a:1", one_topic);
    let producer = brokers.client("a:1", |options| options).producer().build().unwrap();
    let mut calls: Calls<Arc<ProduceError>> = Vec::new();
    for _ in 0..3 {
        // The first asks for the topic, the others stand in line behind it.
        let producer = producer.clone();
        calls.push(Box::pin(async move { producer.enqueue(Record::new("missing", "x")).await.map(drop).unwrap_err() }));
    }
    let batches = producer.clone();
    calls.push(Box::pin(async move {
        let error = batches.send_batch("missing", [RecordRef::new(b"x"), RecordRef::new(b"y")]).await.unwrap_err();
        assert_eq!(error.outcomes.len(), 2);
        error.outcomes.into_iter().find_map(Result::err).unwrap()
    }));
    let (took, errors) = ended_by_close(&producer, calls).await;
    assert!(took < Duration::from_millis(100), "{took:?}");
    for error in errors {
        assert_eq!((&error.kind, error.outcome), (&ProduceErrorKind::Closed, WriteOutcome::NotWritten), "{error}");
    }
    let late = producer.enqueue(Record::new("missing", "x")).await.map(drop).unwrap_err();
    assert_eq!(late.kind, ProduceErrorKind::Closed);
}

/// The same where brokers are silent: about a partition that is not known yet, and about what fills the memory.
#[tokio::test(start_paused = true)]
async fn a_close_ends_sends_that_wait_for_a_partition_or_for_memory() {
    let brokers = Brokers::new();
    let metadata_asked = AtomicUsize::new(0);
    brokers.at("a:1", move |exchange: &Exchange| match exchange.api {
        METADATA if metadata_asked.fetch_add(1, Ordering::Relaxed) == 0 => one_topic(exchange),
        ApiKey(18) => Act::Usual,
        _ => Act::Silence,
    });
    let options = brokers.client("a:1", |options| options).producer();
    let options = options.max_request_bytes(64 << 10).batch_bytes(64 << 10).buffer_bytes(64 << 10);
    let producer = options.build().unwrap();
    let full = producer.enqueue(Record::new("t", vec![0; 60 << 10])).await.unwrap();
    let mut calls: Calls<Arc<ProduceError>> = Vec::new();
    let one = producer.clone();
    calls.push(Box::pin(
        async move { one.enqueue(Record::new("t", "x").with_partition(9)).await.map(drop).unwrap_err() },
    ));
    let batch = producer.clone();
    calls.push(Box::pin(async move {
        let value = vec![0; 30 << 10];
        let error = batch.send_batch("t", [RecordRef::new(&value)]).await.unwrap_err();
        error.outcomes.into_iter().find_map(Result::err).unwrap()
    }));
    let (took, errors) = ended_by_close(&producer, calls).await;
    assert!(took < Duration::from_millis(100), "{took:?}");
    for error in errors {
        assert_eq!((&error.kind, error.outcome), (&ProduceErrorKind::Closed, WriteOutcome::NotWritten), "{error}");
    }
    assert!(full.await.is_err(), "it is given up at the end of the close's own time");
}

/// A client that was closed looked as if trying again could help.
#[tokio::test(start_paused = true)]
async fn a_closed_client_is_told_as_closed() {
    let brokers = Brokers::new();
    brokers.at("a:1", one_topic);
    let client = brokers.client("a:1", |options| options);
    let producer = client.producer().build().unwrap();
    let waiting = producer.clone();
    let waiting = tokio::spawn(async move { waiting.enqueue(Record::new("missing", "x")).await.map(drop) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.close(Duration::ZERO).await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind, ProduceErrorKind::Closed, "{error}");
    assert!(!error.is_retriable());
}
