//! Connections and metadata against peers that act by a script, in virtual time.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, BrokerId, FindCoordinatorRequest, FindCoordinatorResponse, GroupId,
    HeartbeatRequest, HeartbeatResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::{Instant, sleep, timeout};

use super::scripted::{Act, Brokers, Exchange, every_version, metadata};
use super::*;
use crate::error::WriteOutcome;
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::protocol::request::EncodedRequest;
use crate::record::{NodeId, Topic, TopicPartition};

const VERSIONS: ApiKey = ApiKey(18);
const METADATA: ApiKey = ApiKey(3);
const COORDINATOR: ApiKey = ApiKey(10);
const HEARTBEAT: ApiKey = ApiKey(12);
const SECOND: Duration = Duration::from_secs(1);

/// One broker, `a:1`, that leads `t`; heartbeats are answered with their generation as error code.
fn usual(exchange: &Exchange) -> Act {
    match exchange.api {
        METADATA => metadata(exchange, &[(1, "a:1")], &[("t", 7, &[1])]),
        HEARTBEAT => {
            let generation = exchange.request::<HeartbeatRequest>().generation_id as i16;
            exchange.answer::<HeartbeatRequest>(&HeartbeatResponse::default().with_error_code(generation))
        }
        _ => Act::Usual,
    }
}

fn heartbeat(generation: i32) -> HeartbeatRequest {
    HeartbeatRequest::default().with_group_id(GroupId(StrBytes::from_static_str("g"))).with_generation_id(generation)
}

/// A heartbeat that is in the queue when this returns.
fn send(connection: &Connection, generation: i32) -> RawResponse {
    connection.send_late(HEARTBEAT, SECOND, move |versions| {
        Ok(EncodedRequest::new(&heartbeat(generation), versions.choose(HEARTBEAT)?)?)
    })
}

fn topics(names: &[&str]) -> Vec<Topic> {
    names.iter().map(|name| Topic::from(*name)).collect()
}

/// A cluster whose view is known, and a connection to its one broker.
async fn connected(brokers: &Brokers) -> (Client, Connection) {
    let client = brokers.client("a:1", |options| options);
    client.cluster().topics(&[], deadline_in(SECOND)).await.unwrap();
    let connection = client.cluster().connections().to(NodeId(1));
    (client, connection)
}

#[tokio::test(start_paused = true)]
async fn the_bootstrap_list_is_tried_in_turn() {
    let brokers = Brokers::new();
    brokers.at("a:1", usual);
    let client = brokers.client("nobody:1,a:1", |options| options.client_id("me"));
    let view = client.cluster().topics(&topics(&["t", "missing"]), deadline_in(SECOND)).await.unwrap();
    assert_eq!(view.leader(&TopicPartition::new("t", 0)), Some(NodeId(1)));
    assert_eq!(view.topic("missing").unwrap().error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(brokers.log(), ["refused nobody:1", "connect a:1", "a:1 ApiVersions", "a:1 Metadata"]);
}

/// platformatic#318: everything hung with one bootstrap broker that accepted and stayed silent.
#[tokio::test(start_paused = true)]
async fn a_bootstrap_broker_that_hangs_does_not_use_up_the_callers_time() {
    let brokers = Brokers::new();
    brokers.at("silent:1", |_| Act::Silence);
    brokers.at("a:1", usual);
    let client = brokers.client("silent:1,a:1", |options| options);
    client.cluster().topics(&topics(&["t"]), deadline_in(10 * SECOND)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_broker_the_deadline_holds_and_the_reason_is_told() {
    let client = Brokers::new().client("nobody:1", |options| options);
    let start = Instant::now();
    let error = client.ping(3 * SECOND).await.unwrap_err();
    assert_eq!(start.elapsed(), 3 * SECOND);
    assert!(error.is_retriable());
    let text = error.to_string();
    assert!(text.contains("metadata: not in time; last: metadata: Metadata was not sent: cannot connect"), "{text}");
}

/// Heartbeats of the same thread waited until all of a large answer, which had come already, was read.
#[tokio::test(start_paused = true)]
async fn a_large_answer_is_read_in_turns() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match (exchange.api, usual(exchange)) {
        (HEARTBEAT, Act::Send(frame)) => {
            let mut frame = BytesMut::from(&frame[..]);
            frame.resize(7 << 20, 0);
            let length = frame.len() as i32 - 4;
            frame[..4].copy_from_slice(&length.to_be_bytes());
            Act::Send(frame.freeze())
        }
        (_, act) => act,
    });
    let (_client, connection) = connected(&brokers).await;
    let mut response = send(&connection, 1);
    let answer = tokio::spawn(poll_fn(move |cx| response.poll_answer(cx)));
    let mut turns = 0;
    while !answer.is_finished() {
        tokio::task::yield_now().await;
        turns += 1;
    }
    assert!(answer.await.unwrap().is_ok());
    assert!(turns > 20, "{turns} turns of another task while 7 MiB were read");
}

#[tokio::test(start_paused = true)]
async fn callers_share_one_request() {
    let brokers = Brokers::new();
    brokers.at("a:1", usual);
    let (client, _) = connected(&brokers).await;
    let before = brokers.count("a:1 Metadata");
    let wanted = topics(&["t"]);
    let all = (0..50).map(|_| client.cluster().topics(&wanted, deadline_in(SECOND)));
    let mut set = tokio::task::JoinSet::new();
    for _ in all {
        let (cluster, wanted) = (client.cluster().clone(), wanted.clone());
        set.spawn(async move { cluster.topics(&wanted, deadline_in(SECOND)).await.map(drop) });
    }
    while let Some(done) = set.join_next().await {
        done.unwrap().unwrap();
    }
    let asked = brokers.count("a:1 Metadata") - before;
    assert!(asked <= 2, "{asked} requests for one demand");
}

#[tokio::test(start_paused = true)]
async fn calls_are_pipelined_and_answered_in_order() {
    let brokers = Brokers::new();
    brokers.at("a:1", usual);
    let (_client, connection) = connected(&brokers).await;
    let raw: Vec<_> = (1..=100).map(|generation| send(&connection, generation)).collect();
    for (generation, response) in (1_i16..).zip(raw) {
        assert_eq!(response.await.unwrap()[4..6], generation.to_be_bytes());
    }
    assert_eq!(connection.call(heartbeat(7), SECOND).await.unwrap().error_code, 7);
}

/// rskafka#287, krafka 0.25.0: no deadline, and one unanswered request holds up all later ones.
#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_in_time_closes_the_connection() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        HEARTBEAT if exchange.connection == 2 => Act::Silence,
        _ => usual(exchange),
    });
    let (_client, connection) = connected(&brokers).await;
    let (first, second) =
        tokio::join!(connection.call(heartbeat(1), SECOND), connection.call(heartbeat(2), 60 * SECOND));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(error.write_outcome(), WriteOutcome::PossiblyWritten);
        assert!(error.to_string().ends_with("Heartbeat was not answered in time"), "{error}");
    }
    assert_eq!(connection.call(heartbeat(3), SECOND).await.unwrap().error_code, 3, "on another connection");
}

#[tokio::test(start_paused = true)]
async fn bytes_that_break_the_protocol_close_the_connection() {
    let answers: [(&[u8], &str); 3] = [
        (b"\xff\xff\xff\xff", "negative"),
        (b"\x7f\xff\xff\xff", "larger than the limit"),
        (b"\0\0\0\x06\0\0\x7f\xff\0\0", "correlation id"),
    ];
    for (bytes, reason) in answers {
        let brokers = Brokers::new();
        brokers.at("a:1", move |exchange| match exchange.api {
            HEARTBEAT => Act::Send(bytes::Bytes::from_static(bytes)),
            _ => usual(exchange),
        });
        let (_client, connection) = connected(&brokers).await;
        let error = connection.call(heartbeat(1), SECOND).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(error.blame(), crate::error::Blame::Peer);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_decoded_closes_the_connection() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        HEARTBEAT if exchange.request::<HeartbeatRequest>().generation_id == 1 => {
            exchange.answer_in::<FindCoordinatorRequest>(&FindCoordinatorResponse::default(), 4)
        }
        HEARTBEAT if exchange.connection == 2 => Act::Silence,
        _ => usual(exchange),
    });
    let (_client, connection) = connected(&brokers).await;
    let (first, second) = tokio::join!(connection.call(heartbeat(1), SECOND), connection.call(heartbeat(2), SECOND));
    assert!(matches!(first, Err(RequestError::Decode(_))), "{first:?}");
    assert!(second.unwrap_err().to_string().contains("malformed answer to Heartbeat"));
    connection.call(heartbeat(3), SECOND).await.unwrap();
}

/// franz-go 1.19.4: Azure Event Hubs resets on ApiVersions v4.
#[tokio::test(start_paused = true)]
async fn a_broker_that_resets_on_the_newest_handshake_is_asked_in_an_older_one() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        VERSIONS if exchange.version > 3 => Act::Close,
        _ => usual(exchange),
    });
    let (_client, connection) = connected(&brokers).await;
    connection.call(heartbeat(1), SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_older_broker_says_which_handshake_it_has_and_is_called_by_name() {
    let named = Arc::new(AtomicUsize::new(0));
    let seen = named.clone();
    let brokers = Brokers::new();
    brokers.at("a:1", move |exchange| match exchange.api {
        VERSIONS if exchange.version > 3 => {
            let range = ApiVersion::default().with_api_key(18).with_max_version(3);
            let refusal = ApiVersionsResponse::default()
                .with_error_code(ErrorCode::UNSUPPORTED_VERSION.0)
                .with_api_keys(vec![range]);
            exchange.answer_in::<ApiVersionsRequest>(&refusal, 0)
        }
        VERSIONS => {
            let request = exchange.request::<ApiVersionsRequest>();
            assert_eq!(request.client_software_name.as_str(), "kafka-harbor");
            assert_eq!(exchange.client_id.as_deref(), Some("kafka-harbor"));
            seen.fetch_add(1, Ordering::Relaxed);
            exchange.answer::<ApiVersionsRequest>(&every_version())
        }
        _ => usual(exchange),
    });
    let (_client, connection) = connected(&brokers).await;
    connection.call(heartbeat(1), SECOND).await.unwrap();
    assert_eq!(named.load(Ordering::Relaxed), 2);
}

/// platformatic#377, rskafka#283: a dead leader gives a network error, and metadata was never refreshed.
#[tokio::test(start_paused = true)]
async fn a_failing_connection_makes_metadata_look_for_another_leader() {
    let brokers = Brokers::new();
    let both: [(i32, &str); 2] = [(1, "a:1"), (2, "b:1")];
    brokers.at("a:1", move |exchange| match exchange.api {
        METADATA => metadata(exchange, &both, &[("t", 7, &[1])]),
        HEARTBEAT => Act::Close,
        _ => usual(exchange),
    });
    let client = brokers.client("a:1", |options| options);
    client.cluster().topics(&topics(&["t"]), deadline_in(SECOND)).await.unwrap();
    let mut changed = client.cluster().changed();
    changed.mark_unchanged();
    brokers.at("b:1", move |exchange| match exchange.api {
        METADATA => metadata(exchange, &both, &[("t", 7, &[2])]),
        _ => usual(exchange),
    });
    brokers.remove("a:1");
    let connections = client.cluster().connections();
    connections.to(NodeId(1)).call(heartbeat(1), SECOND).await.unwrap_err();
    let leader = TopicPartition::new("t", 0);
    timeout(10 * SECOND, changed.wait_for(|view| view.leader(&leader) == Some(NodeId(2)))).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_moved_is_found_where_it_is_now() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &[(1, "old:1")], &[]),
        _ => usual(exchange),
    });
    let client = brokers.client("a:1", |options| options);
    client.cluster().topics(&[], deadline_in(SECOND)).await.unwrap();
    let connection = client.cluster().connections().to(NodeId(1));
    connection.call(heartbeat(1), SECOND).await.unwrap_err();
    brokers.at("new:1", usual);
    brokers.at("a:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &[(1, "new:1")], &[]),
        _ => usual(exchange),
    });
    client.cluster().refreshed(&[], deadline_in(10 * SECOND)).await.unwrap();
    sleep(2 * SECOND).await;
    assert_eq!(connection.call(heartbeat(2), SECOND).await.unwrap().error_code, 2);
}

/// influxdb_iox#3161, librdkafka#2841: a broker had a new address behind its name, and the old connection was taken for good
/// until the system gave it up.
#[tokio::test(start_paused = true)]
async fn a_broker_behind_another_address_of_its_name_is_found_when_the_old_one_falls_silent() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        HEARTBEAT => Act::Silence,
        _ => usual(exchange),
    });
    let (_client, connection) = connected(&brokers).await;
    let begun = Instant::now();
    connection.call(heartbeat(1), 3 * SECOND).await.unwrap_err();
    // The old connection would still be silent. Where the name leads is asked for each connection.
    brokers.at("a:1", usual);
    assert_eq!(connection.call(heartbeat(2), 3 * SECOND).await.unwrap().error_code, 2);
    assert!(begun.elapsed() < 5 * SECOND, "{:?}", begun.elapsed());
}

/// KIP-899: when no broker that was known is where it was, the addresses that the client was given lead to the others.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_moved_whole_is_found_by_its_bootstrap_addresses() {
    let brokers = Brokers::new();
    let leads_to = |address: &'static str| {
        move |exchange: &Exchange| match exchange.api {
            METADATA => metadata(exchange, &[(1, address)], &[("t", 7, &[1])]),
            _ => usual(exchange),
        }
    };
    brokers.at("seed:1", leads_to("old:1"));
    brokers.at("old:1", |exchange| match exchange.api {
        METADATA | HEARTBEAT => Act::Close,
        _ => usual(exchange),
    });
    let client = brokers.client("seed:1", |options| options);
    client.cluster().topics(&topics(&["t"]), deadline_in(SECOND)).await.unwrap();
    let connection = client.cluster().connections().to(NodeId(1));
    connection.call(heartbeat(1), SECOND).await.unwrap_err();
    brokers.remove("old:1");
    brokers.at("new:1", leads_to("new:1"));
    brokers.at("seed:1", leads_to("new:1"));
    sleep(5 * SECOND).await;
    assert_eq!(connection.call(heartbeat(2), SECOND).await.unwrap().error_code, 2);
}

/// KIP-1102: a broker that is no place to ask any more says so, and was asked again.
#[tokio::test(start_paused = true)]
async fn a_broker_that_asks_for_a_new_bootstrap_is_passed_over() {
    let brokers = Brokers::new();
    let asked = Arc::new(AtomicUsize::new(0));
    brokers.at("gone:1", {
        let asked = asked.clone();
        move |exchange| match exchange.api {
            METADATA => {
                asked.fetch_add(1, Ordering::Relaxed);
                let refusal = kafka_protocol::messages::MetadataResponse::default()
                    .with_error_code(ErrorCode::REBOOTSTRAP_REQUIRED.0);
                exchange.answer::<kafka_protocol::messages::MetadataRequest>(&refusal)
            }
            _ => usual(exchange),
        }
    });
    brokers.at("seed:1", |exchange| match exchange.api {
        METADATA => metadata(exchange, &[(1, "gone:1")], &[("t", 7, &[1])]),
        _ => usual(exchange),
    });
    let client = brokers.client("seed:1", |options| options);
    client.cluster().topics(&[], deadline_in(SECOND)).await.unwrap();
    let view = client.cluster().refreshed(&topics(&["t"]), deadline_in(SECOND)).await.unwrap();
    assert!(view.topic("t").is_some());
    assert_eq!((asked.load(Ordering::Relaxed), brokers.count("seed:1 Metadata")), (1, 2));
}

/// librdkafka#5088: with all brokers gone for a while, one bootstrap followed another without a pause.
#[tokio::test(start_paused = true)]
async fn an_outage_of_all_brokers_is_waited_out_without_a_storm() {
    let brokers = Brokers::new();
    let down = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let closes = down.clone();
    brokers.at("a:1", move |exchange| if closes.load(Ordering::Relaxed) { Act::Close } else { usual(exchange) });
    let (client, connection) = connected(&brokers).await;
    down.store(true, Ordering::Relaxed);
    connection.call(heartbeat(1), SECOND).await.unwrap_err();
    brokers.remove("a:1");
    let begun = Instant::now();
    while begun.elapsed() < 60 * SECOND {
        connection.call(heartbeat(1), SECOND).await.unwrap_err();
        client.cluster().invalidate(Stale::Leader(TopicPartition::new("t", 0)));
        sleep(Duration::from_millis(10)).await;
    }
    let tries = brokers.count("refused a:1");
    assert!((60..=300).contains(&tries), "{tries} in a minute");
    brokers.at("a:1", usual);
    let back = Instant::now();
    while connection.call(heartbeat(1), SECOND).await.is_err() {}
    assert!(back.elapsed() < 3 * SECOND, "{:?}", back.elapsed());
}

/// librdkafka#2845: the first send after a quiet time failed on a connection that was reaped.
#[tokio::test(start_paused = true)]
async fn a_quiet_connection_is_closed_here_and_made_again() {
    let used = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = used.clone();
    let brokers = Brokers::new();
    brokers.at("a:1", move |exchange| {
        if exchange.api == HEARTBEAT {
            seen.lock().unwrap().push(exchange.connection);
        }
        usual(exchange)
    });
    let (_client, connection) = connected(&brokers).await;
    for (generation, quiet) in [(1, 0), (2, 209), (3, 211)] {
        sleep(quiet * SECOND).await;
        connection.call(heartbeat(generation), SECOND).await.unwrap();
    }
    let used = used.lock().unwrap();
    assert_eq!(used[0], used[1]);
    assert_ne!(used[1], used[2]);
}

#[tokio::test(start_paused = true)]
async fn metadata_is_fetched_again_by_age() {
    let brokers = Brokers::new();
    brokers.at("a:1", usual);
    let (_client, _connection) = connected(&brokers).await;
    sleep(3 * 300 * SECOND + SECOND).await;
    assert_eq!(brokers.count("a:1 Metadata"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_invalidations_costs_few_requests() {
    let brokers = Brokers::new();
    brokers.at("a:1", usual);
    let (client, _) = connected(&brokers).await;
    for _ in 0..1_000 {
        client.cluster().invalidate(Stale::Leader(TopicPartition::new("t", 0)));
        sleep(Duration::from_millis(1)).await;
    }
    let asked = brokers.count("a:1 Metadata");
    assert!((5..=12).contains(&asked), "{asked} requests in a second");
}

fn coordinator(exchange: &Exchange, code: ErrorCode, node: i32, host: &'static str) -> Act {
    let found = Coordinator::default()
        .with_key(StrBytes::from_static_str("g"))
        .with_error_code(code.0)
        .with_node_id(BrokerId(node))
        .with_host(StrBytes::from_static_str(host))
        .with_port(1);
    exchange.answer::<FindCoordinatorRequest>(&FindCoordinatorResponse::default().with_coordinators(vec![found]))
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_is_looked_for_until_there_is_one_and_then_remembered() {
    let brokers = Brokers::new();
    let tries = Arc::new(AtomicUsize::new(0));
    brokers.at("a:1", move |exchange| match exchange.api {
        COORDINATOR if tries.fetch_add(1, Ordering::Relaxed) < 3 => {
            coordinator(exchange, ErrorCode::COORDINATOR_NOT_AVAILABLE, -1, "")
        }
        COORDINATOR => coordinator(exchange, ErrorCode::NONE, 9, "c"),
        _ => usual(exchange),
    });
    brokers.at("c:1", usual);
    let (client, _) = connected(&brokers).await;
    let find = || client.cluster().coordinator(CoordinatorKind::Group, "g", deadline_in(10 * SECOND));
    assert_eq!(find().await.unwrap(), NodeId(9));
    assert_eq!(find().await.unwrap(), NodeId(9));
    assert_eq!(brokers.count("a:1 FindCoordinator"), 4);
    // Metadata does not know the broker; the answer told where it is.
    client.cluster().connections().to(NodeId(9)).call(heartbeat(1), SECOND).await.unwrap();
    client.cluster().forget_coordinator(CoordinatorKind::Group, "g");
    find().await.unwrap();
    assert_eq!(brokers.count("a:1 FindCoordinator"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_refused_coordinator_lookup_is_not_repeated() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| match exchange.api {
        COORDINATOR => coordinator(exchange, ErrorCode::GROUP_AUTHORIZATION_FAILED, -1, ""),
        _ => usual(exchange),
    });
    let (client, _) = connected(&brokers).await;
    let error = client.cluster().coordinator(CoordinatorKind::Group, "g", deadline_in(SECOND)).await.unwrap_err();
    assert_eq!(error.to_string(), "coordinator of group g: GROUP_AUTHORIZATION_FAILED (30)");
    assert_eq!(brokers.count("a:1 FindCoordinator"), 1);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_is_under_way_and_then_fails_it() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| if exchange.api == HEARTBEAT { Act::Silence } else { usual(exchange) });
    let (client, connection) = connected(&brokers).await;
    let under_way = tokio::spawn({
        let connection = connection.clone();
        async move { connection.call(heartbeat(1), 60 * SECOND).await }
    });
    sleep(SECOND).await;
    let start = Instant::now();
    assert!(matches!(client.close(3 * SECOND).await, Err(ClientError::TimedOut { .. })));
    assert_eq!(start.elapsed(), 3 * SECOND);
    assert!(under_way.await.unwrap().unwrap_err().is_closed());
    assert!(connection.call(heartbeat(2), SECOND).await.unwrap_err().is_closed());
    assert!(matches!(client.ping(SECOND).await, Err(ClientError::Closed)));
    client.close(SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_is_over_when_the_last_answer_came() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| if exchange.api == HEARTBEAT { Act::Silence } else { usual(exchange) });
    let (client, connection) = connected(&brokers).await;
    let under_way = tokio::spawn(async move { connection.call(heartbeat(1), 2 * SECOND).await });
    sleep(SECOND).await;
    let start = Instant::now();
    client.close(60 * SECOND).await.unwrap();
    assert_eq!(start.elapsed(), SECOND, "the request ran out of its own time");
    under_way.await.unwrap().unwrap_err();
}

/// rust-rdkafka#509: a drop that waited for the session's end.
#[tokio::test(start_paused = true)]
async fn the_last_handle_closes_everything_without_waiting() {
    let brokers = Brokers::new();
    brokers.at("a:1", |exchange| if exchange.api == HEARTBEAT { Act::Silence } else { usual(exchange) });
    let (client, connection) = connected(&brokers).await;
    let under_way = tokio::spawn(async move { connection.call(heartbeat(1), 60 * SECOND).await });
    sleep(SECOND).await;
    let start = Instant::now();
    drop(client);
    assert!(under_way.await.unwrap().unwrap_err().is_closed());
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_connection_nobody_holds_is_closed_once_nothing_is_under_way() {
    let brokers = Brokers::new();
    brokers.at("a:1", usual);
    let (client, connection) = connected(&brokers).await;
    connection.call(heartbeat(1), SECOND).await.unwrap();
    let alive = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let raw = send(&connection, 5);
    drop(connection);
    assert_eq!(raw.await.unwrap()[4..6], 5_i16.to_be_bytes());
    sleep(SECOND).await;
    // Its task, and the peer's.
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), alive - 2);
    drop(client);
}

/// Adds up what observers are told.
#[derive(Default)]
struct Throttles(std::sync::Mutex<Vec<(Option<i32>, String, Duration)>>);

impl crate::observe::Observer for Throttles {
    fn throttled(&self, event: &crate::observe::Throttled<'_>) {
        let told = (event.broker.map(|node| node.0), event.api.to_owned(), event.silence);
        self.0.lock().unwrap().push(told);
    }
}

/// KAFKA-16083, Dekaf#2263, kafkajs#1532: throttled requests were counted as late, or never left again. Versions before
/// KIP-219 tell of a wait that is over.
#[tokio::test(start_paused = true)]
async fn a_throttle_holds_up_the_next_request_and_no_other_connection() {
    for (millis, version, held) in [(1, 4, 1), (5_000, 4, 5_000), (5_000, 1, 0)] {
        let brokers = Brokers::new();
        brokers.at("a:1", move |exchange| match exchange.api {
            HEARTBEAT => {
                exchange.answer::<HeartbeatRequest>(&HeartbeatResponse::default().with_throttle_time_ms(millis))
            }
            _ => usual(exchange),
        });
        let told = Arc::new(Throttles::default());
        let client = brokers.client("a:1", |options| options.observer(told.clone()));
        client.cluster().topics(&[], deadline_in(SECOND)).await.unwrap();
        let connection = client.cluster().connections().to(NodeId(1));
        let beat = |connection: &Connection| {
            let connection = connection.clone();
            async move { connection.call_with(version, SECOND, |_| heartbeat(1)).await }
        };
        beat(&connection).await.unwrap();
        let begun = Instant::now();
        beat(&client.cluster().connections().to(NodeId(1))).await.unwrap();
        assert!(begun.elapsed() < Duration::from_millis(1), "another purpose's connection is not concerned");
        // Its timeout is shorter than the silence.
        beat(&connection).await.unwrap();
        let held = Duration::from_millis(held);
        assert!(begun.elapsed() >= held && begun.elapsed() <= held + Duration::from_millis(2), "{:?}", begun.elapsed());
        let told = told.0.lock().unwrap();
        let expected = if held.is_zero() { 0 } else { 3 };
        assert_eq!(*told, vec![(Some(1), "Heartbeat".to_owned(), held); expected]);
    }
}

#[test]
fn a_client_outlives_the_runtime_that_drove_it() {
    let brokers = Brokers::new();
    brokers.at("a:1", usual);
    let client = brokers.client("a:1", |options| options);
    let connections = client.cluster().connections();
    for generation in 1..=3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            client.cluster().refreshed(&[], deadline_in(10 * SECOND)).await.unwrap();
            let answer = connections.to(NodeId(1)).call(heartbeat(generation), SECOND).await.unwrap();
            assert_eq!(i32::from(answer.error_code), generation);
        });
    }
}

#[test]
fn outside_of_a_runtime_a_request_is_refused_and_not_a_panic() {
    let brokers = Brokers::new();
    brokers.at("a:1", usual);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = brokers.client("a:1", |options| options);
    let connection = client.cluster().connections().to(NodeId(1));
    let raw = send(&connection, 1);
    let error = runtime.block_on(raw).unwrap_err();
    assert_eq!(error.write_outcome(), WriteOutcome::NotWritten);
}

/// A stream of a broker in memory. Once armed it takes one write more and then is reset.
struct Breaking {
    stream: Box<dyn transport::Stream>,
    armed: Arc<AtomicUsize>,
}

impl tokio::io::AsyncRead for Breaking {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl tokio::io::AsyncWrite for Breaking {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        match self.armed.load(Ordering::Relaxed) {
            0 => {}
            1 => return std::task::Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into())),
            left => self.armed.store(left - 1, Ordering::Relaxed),
        }
        std::pin::Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[derive(Debug)]
struct BreakingConnector(Brokers, Arc<AtomicUsize>);

impl transport::Connector for BreakingConnector {
    fn connect<'a>(&'a self, address: &'a BrokerAddress) -> transport::Connecting<'a> {
        Box::pin(async move {
            let (stream, armed) = (self.0.connect(address).await?, self.1.clone());
            Ok(Box::new(Breaking { stream, armed }) as Box<dyn transport::Stream>)
        })
    }
}

/// What had left when a later write of the same round failed did not count: a request of which bytes were with the
/// broker was told as never sent.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_written_in_part_may_have_been_acted_on() {
    let brokers = Brokers::new();
    brokers.at("a:1", usual);
    let armed = Arc::new(AtomicUsize::new(0));
    let connector = BreakingConnector(brokers, armed.clone());
    let client = Client::builder(["a:1"]).connector(Arc::new(connector)).build().unwrap();
    client.cluster().topics(&["t".into()], deadline_in(SECOND)).await.unwrap();
    let connection = client.cluster().connections().to(NodeId(1));
    connection.call(heartbeat(1), SECOND).await.unwrap();
    armed.store(2, Ordering::Relaxed);
    let error = connection.call(heartbeat(2), SECOND).await.unwrap_err();
    assert_eq!(error.write_outcome(), WriteOutcome::PossiblyWritten, "{error}");
}
