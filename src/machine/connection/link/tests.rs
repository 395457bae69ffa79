use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsResponse, HeartbeatRequest, ProduceRequest};
use kafka_protocol::protocol::Encodable;

use super::*;
use crate::protocol::error_code::ErrorCode;

const HEARTBEAT: ApiKey = ApiKey(12);

/// A link, its peer's bytes, and a clock that is moved by hand.
struct Rig {
    link: Link<u32>,
    now: Instant,
    wire: VecDeque<Bytes>,
}

#[derive(Debug, PartialEq)]
struct Sent {
    api: i16,
    version: i16,
    correlation_id: i32,
}

impl Rig {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = Limits {
            in_flight: 5,
            queued: 8,
            request_bytes: 1 << 20,
            response_bytes: 1 << 20,
            idle: Duration::from_secs(60),
            setup: Duration::from_secs(10),
            throttle: Duration::from_secs(60),
            reconnect: ExponentialFullJitter { first: Duration::from_millis(50), max: Duration::from_secs(1) },
        };
        change(&mut limits);
        let now = Instant::now();
        Self { link: Link::new(ClientId::new("t").unwrap(), limits, None, now), now, wire: VecDeque::new() }
    }

    /// A link that is ready.
    fn ready() -> Self {
        let mut rig = Self::new();
        rig.call(0, 5);
        rig.connect();
        assert_eq!(rig.transmit(), [Sent { api: 18, version: 4, correlation_id: 0 }]);
        rig.answer_versions();
        let sent = rig.transmit();
        rig.answer(sent[0].correlation_id);
        assert_eq!(rig.done(), [(0, "ok".to_owned())]);
        rig
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn call(&mut self, waiter: u32, seconds: u64) {
        self.submit(waiter, seconds, |versions| {
            Ok(EncodedRequest::new(&HeartbeatRequest::default(), versions.choose(HEARTBEAT)?)?)
        });
    }

    fn submit(
        &mut self,
        waiter: u32,
        seconds: u64,
        encode: impl FnOnce(&NegotiatedVersions) -> Result<EncodedRequest, RequestError> + Send + 'static,
    ) {
        let deadline = self.now + Duration::from_secs(seconds);
        let request = Request { api: HEARTBEAT, encode: Box::new(encode), deadline, waiter };
        self.link.handle_request(self.now, request);
    }

    fn step(&mut self) -> Step {
        self.link.poll_step(self.now)
    }

    fn connect(&mut self) {
        assert!(matches!(self.step(), Step::Connect { .. }));
        self.link.handle_connected(self.now);
    }

    /// What goes out now, all of it.
    fn transmit(&mut self) -> Vec<Sent> {
        let sent = self.hand_out();
        let bytes = self.wire.drain(..).map(|segment| segment.len()).sum();
        self.link.handle_transmitted(self.now, bytes);
        sent
    }

    /// What is handed out now, with none of it leaving.
    fn hand_out(&mut self) -> Vec<Sent> {
        let before = self.wire.len();
        self.link.poll_transmit(self.now, &mut self.wire);
        let frames = frames(self.wire.iter().skip(before));
        frames
            .iter()
            .map(|frame| Sent {
                api: i16::from_be_bytes([frame[0], frame[1]]),
                version: i16::from_be_bytes([frame[2], frame[3]]),
                correlation_id: i32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]),
            })
            .collect()
    }

    fn answer_versions(&mut self) {
        let version = self.link.probe.version();
        let response = versions_response(0, &[(12, 0, 4), (18, 0, 4), (0, 0, 12)]);
        let id = self.link.in_flight[0].correlation_id;
        self.link.handle_frame(self.now, versions_frame(id, version, &response), 0.5).unwrap();
    }

    /// An answer to a heartbeat v4, with a tagged field in its header.
    fn answer(&mut self, correlation_id: i32) {
        let frame = heartbeat_frame(correlation_id);
        self.link.handle_frame(self.now, frame, 0.5).unwrap();
    }

    fn done(&mut self) -> Vec<(u32, String)> {
        std::iter::from_fn(|| self.link.poll_done())
            .map(|done| {
                let result = match done.result {
                    Ok(_) => "ok".to_owned(),
                    Err(RequestError::NotSent { cause, .. }) => format!("not sent: {}", kind(&cause)),
                    Err(RequestError::Unanswered { cause, .. }) => format!("unanswered: {}", kind(&cause)),
                    Err(other) => other.to_string(),
                };
                (done.waiter, result)
            })
            .collect()
    }
}

fn kind(error: &ConnectionError) -> &'static str {
    match error {
        ConnectionError::Connect { .. } => "connect",
        ConnectionError::SetupTimeout { .. } => "setup",
        ConnectionError::Lost { .. } => "lost",
        ConnectionError::TimedOut { .. } => "late",
        ConnectionError::Protocol(_) => "protocol",
        ConnectionError::HandshakeRefused { .. } => "refused",
        ConnectionError::QueueFull { .. } => "full",
        ConnectionError::RequestTooLarge { .. } => "large",
        ConnectionError::UnknownBroker { .. } => "unknown",
        ConnectionError::Tls { .. } => "tls",
        ConnectionError::Login(_) => "login",
        ConnectionError::Closed => "closed",
    }
}

fn frames<'a>(segments: impl Iterator<Item = &'a Bytes>) -> Vec<Vec<u8>> {
    let all: Vec<u8> = segments.flat_map(|segment| segment.iter().copied()).collect();
    let mut rest = &all[..];
    let mut frames = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (frame, tail) = tail.split_at(i32::from_be_bytes(*length) as usize);
        frames.push(frame.to_vec());
        rest = tail;
    }
    frames
}

fn versions_response(code: i16, ranges: &[(i16, i16, i16)]) -> ApiVersionsResponse {
    let api = |&(key, min, max): &(i16, i16, i16)| {
        ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max)
    };
    ApiVersionsResponse::default().with_error_code(code).with_api_keys(ranges.iter().map(api).collect())
}

fn versions_frame(correlation_id: i32, version: i16, response: &ApiVersionsResponse) -> Bytes {
    let mut frame = BytesMut::from(&correlation_id.to_be_bytes()[..]);
    response.encode(&mut frame, version).unwrap();
    frame.freeze()
}

fn heartbeat_frame(correlation_id: i32) -> Bytes {
    let mut frame = correlation_id.to_be_bytes().to_vec();
    // One tagged field of two bytes in the header; then throttle time, error code, no tagged fields.
    frame.extend([1, 7, 2, 0xaa, 0xbb, 0, 0, 0, 0, 0, 0, 0]);
    frame.into()
}

fn broken() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

fn pairs(expected: &[(u32, &str)]) -> Vec<(u32, String)> {
    expected.iter().map(|(waiter, result)| (*waiter, (*result).to_owned())).collect()
}

#[test]
fn requests_wait_for_the_handshake_and_go_out_in_order() {
    let mut rig = Rig::new();
    assert_eq!(rig.step(), Step::Rest { timeout: None });
    (1..=3).for_each(|waiter| rig.call(waiter, 5));
    rig.connect();
    assert_eq!(rig.transmit(), [Sent { api: 18, version: 4, correlation_id: 0 }]);
    assert_eq!(rig.transmit(), [], "nothing before the versions are known");
    rig.answer_versions();
    let sent: Vec<_> = rig.transmit().iter().map(|sent| (sent.api, sent.correlation_id)).collect();
    assert_eq!(sent, [(12, 1), (12, 2), (12, 3)]);
    (1..=3).for_each(|id| rig.answer(id));
    assert_eq!(rig.done(), pairs(&[(1, "ok"), (2, "ok"), (3, "ok")]));
}

/// kafkajs#1310: the correlation id passed 2^31 and no answer was matched any more.
#[test]
fn correlation_ids_wrap() {
    let mut rig = Rig::ready();
    rig.link.next_correlation_id = i32::MAX - 1;
    (1..=4).for_each(|waiter| rig.call(waiter, 5));
    let ids: Vec<_> = rig.transmit().iter().map(|sent| sent.correlation_id).collect();
    assert_eq!(ids, [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1]);
    ids.into_iter().for_each(|id| rig.answer(id));
    assert_eq!(rig.done().len(), 4);
}

#[test]
fn an_answer_out_of_turn_ends_the_transport() {
    let mut rig = Rig::ready();
    rig.call(1, 5);
    rig.call(2, 5);
    let first = rig.transmit()[0].correlation_id;
    let error = rig.link.handle_frame(rig.now, heartbeat_frame(first + 1), 0.5).unwrap_err();
    let violation = ProtocolViolation::CorrelationId { expected: first, actual: first + 1 };
    assert_eq!(*error, ConnectionError::Protocol(violation));
    assert_eq!(rig.done(), pairs(&[(1, "unanswered: protocol"), (2, "unanswered: protocol")]));
    assert_eq!(rig.step(), Step::Rest { timeout: None }, "nothing waits, so nothing is connected");
}

#[test]
fn an_answer_to_nothing_and_one_without_an_id_end_the_transport() {
    let mut rig = Rig::ready();
    let error = rig.link.handle_frame(rig.now, heartbeat_frame(9), 0.5).unwrap_err();
    assert_eq!(*error, ConnectionError::Protocol(ProtocolViolation::Unsolicited { actual: 9 }));

    let mut rig = Rig::ready();
    rig.call(1, 5);
    rig.transmit();
    let error = rig.link.handle_frame(rig.now, Bytes::from_static(b"\0\0\0"), 0.5).unwrap_err();
    assert_eq!(*error, ConnectionError::Protocol(ProtocolViolation::TooShort { bytes: 3 }));
}

#[test]
fn a_header_that_lies_ends_the_transport() {
    let mut rig = Rig::ready();
    rig.call(1, 5);
    rig.call(2, 5);
    let id = rig.transmit()[0].correlation_id;
    let frame = [&id.to_be_bytes()[..], b"\xff\xff\xff\xff\x0f"].concat();
    assert!(rig.link.handle_frame(rig.now, frame.into(), 0.5).is_err());
    let done = rig.done();
    assert!(done[0].1.starts_with("answer cannot be read"), "{done:?}");
    assert_eq!(done[1].1, "unanswered: protocol");
}

/// krafka 0.25.0, rskafka#287: one request that was never answered held up all later ones for ever.
#[test]
fn a_late_answer_ends_the_transport_and_tells_apart_what_left() {
    let mut rig = Rig::ready();
    rig.call(1, 5);
    rig.transmit();
    rig.call(2, 60);
    rig.hand_out();
    for waiter in 3..=8 {
        rig.call(waiter, 60);
    }
    rig.hand_out();
    // Two bytes of the second request left, none of the third.
    rig.link.handle_transmitted(rig.now, 2);
    assert_eq!(rig.step(), Step::Serve { timeout: Some(rig.now + Duration::from_secs(5)) });
    rig.pass(5);
    let fault = rig.link.handle_timeout(rig.now, 0.5).unwrap();
    assert_eq!(*fault, ConnectionError::TimedOut { api: HEARTBEAT });
    let mut expected = vec![(1, "unanswered: late"), (2, "unanswered: late")];
    expected.extend((3..=8).map(|waiter| (waiter, "not sent: late")));
    assert_eq!(rig.done(), pairs(&expected));
}

/// A heartbeat's answer that asks for silence.
fn throttling(correlation_id: i32, millis: i32) -> Bytes {
    let mut frame = correlation_id.to_be_bytes().to_vec();
    frame.push(0);
    frame.extend(millis.to_be_bytes());
    frame.extend([0, 0, 0]);
    frame.into()
}

/// Dekaf#2263, kafkajs#1532: the queue slept on, or the broker was asked all the same. One millisecond, and five seconds.
#[test]
fn a_broker_that_throttles_is_asked_nothing_until_the_silence_is_over() {
    for millis in [1, 5_000] {
        let mut rig = Rig::ready();
        rig.call(1, 30);
        let id = rig.transmit()[0].correlation_id;
        rig.link.handle_frame(rig.now, throttling(id, millis), 0.5).unwrap();
        let silence = Duration::from_millis(millis as u64);
        assert_eq!(rig.link.poll_throttled(), Some(Throttled { api: HEARTBEAT, silence }));
        assert_eq!(rig.link.poll_throttled(), None);
        let until = rig.now + silence;
        rig.call(2, 30);
        assert_eq!((rig.transmit(), rig.step()), (vec![], Step::Serve { timeout: Some(until) }));
        rig.now = until - Duration::from_nanos(1);
        rig.link.handle_timeout(rig.now, 0.5);
        assert_eq!((rig.transmit(), rig.step()), (vec![], Step::Serve { timeout: Some(until) }));
        rig.now = until;
        rig.link.handle_timeout(rig.now, 0.5);
        assert_eq!(rig.transmit().len(), 1);
    }
}

/// KAFKA-16083: requests that the broker asked to hold back were counted as late, and their connection was closed.
#[test]
fn a_silence_is_no_part_of_a_requests_time() {
    let mut rig = Rig::ready();
    (1..=2).for_each(|waiter| rig.call(waiter, 3));
    let sent = rig.transmit();
    rig.call(3, 3);
    rig.hand_out();
    rig.link.handle_frame(rig.now, throttling(sent[0].correlation_id, 5_000), 0.5).unwrap();
    rig.pass(1);
    rig.call(4, 1);
    rig.pass(4);
    assert!(rig.link.handle_timeout(rig.now, 0.5).is_none());
    assert_eq!(rig.done(), pairs(&[(1, "ok")]));
    assert_eq!(rig.transmit().len(), 1, "the silence is over");
    rig.pass(1);
    assert_eq!(*rig.link.handle_timeout(rig.now, 0.5).unwrap(), ConnectionError::TimedOut { api: HEARTBEAT });
}

#[test]
fn silences_are_bounded_and_a_later_shorter_one_takes_nothing_off() {
    let mut rig = Rig::ready();
    (1..=3).for_each(|waiter| rig.call(waiter, 30));
    let ids: Vec<_> = rig.transmit().iter().map(|sent| sent.correlation_id).collect();
    rig.link.handle_frame(rig.now, throttling(ids[0], i32::MAX), 0.5).unwrap();
    assert_eq!(rig.link.muted_for(rig.now), Duration::from_secs(60));
    rig.pass(1);
    rig.link.handle_frame(rig.now, throttling(ids[1], 10), 0.5).unwrap();
    assert_eq!(rig.link.muted_for(rig.now), Duration::from_secs(59));
    // One answer after another that asks for more: a request waits for four of them, and no more.
    for _ in 0..8 {
        rig.pass(50);
        rig.link.obey(rig.now, HEARTBEAT, Duration::from_secs(60));
    }
    assert!(rig.link.handle_timeout(rig.now, 0.5).is_some());
}

#[test]
fn a_silence_outlives_the_transport_and_holds_up_no_handshake() {
    let mut rig = Rig::ready();
    rig.call(1, 30);
    let id = rig.transmit()[0].correlation_id;
    rig.link.handle_frame(rig.now, throttling(id, 5_000), 0.5).unwrap();
    rig.link.handle_lost(rig.now, broken(), 0.5);
    rig.call(2, 30);
    rig.connect();
    assert_eq!(rig.transmit()[0].api, 18);
    rig.answer_versions();
    assert_eq!(rig.transmit(), []);
    rig.pass(5);
    assert_eq!(rig.transmit().len(), 1);
}

#[test]
fn an_early_look_at_the_clock_changes_nothing() {
    let mut rig = Rig::ready();
    rig.call(1, 5);
    let id = rig.transmit()[0].correlation_id;
    rig.pass(4);
    assert!(rig.link.handle_timeout(rig.now, 0.5).is_none());
    rig.answer(id);
    assert_eq!(rig.done(), pairs(&[(1, "ok")]));
}

#[test]
fn what_waits_for_a_connection_expires_alone() {
    let mut rig = Rig::new();
    rig.call(1, 1);
    rig.call(2, 9);
    assert_eq!(rig.step(), Step::Connect { timeout: rig.now + Duration::from_secs(1) });
    rig.pass(1);
    assert!(rig.link.handle_timeout(rig.now, 0.5).is_none());
    assert_eq!(rig.done(), pairs(&[(1, "not sent: late")]));
    assert_eq!(rig.step(), Step::Connect { timeout: rig.now + Duration::from_secs(8) });
}

#[test]
fn a_setup_that_takes_too_long_fails_what_waits() {
    let mut rig = Rig::new();
    rig.call(1, 60);
    rig.connect();
    rig.transmit();
    rig.pass(10);
    let fault = rig.link.handle_timeout(rig.now, 0.5).unwrap();
    assert_eq!(*fault, ConnectionError::SetupTimeout { after: Duration::from_secs(10) });
    assert_eq!(rig.done(), pairs(&[(1, "not sent: setup")]));
}

#[test]
fn the_wait_before_the_next_transport_grows_and_ends_with_a_success() {
    let mut rig = Rig::new();
    let mut waits = Vec::new();
    for waiter in 1..=7 {
        rig.call(waiter, 60);
        if let Step::Rest { timeout: Some(until) } = rig.step() {
            waits.push((until - rig.now).as_millis());
            rig.now = until;
        }
        assert!(matches!(rig.step(), Step::Connect { .. }));
        let source = Arc::new(io::ErrorKind::ConnectionRefused.into());
        rig.link.handle_connect_failed(rig.now, ConnectionError::Connect { address: String::new(), source }, 1.0);
        assert_eq!(rig.done(), pairs(&[(waiter, "not sent: connect")]));
    }
    assert_eq!(waits, [50, 100, 200, 400, 800, 1000]);
    rig.call(8, 60);
    rig.pass(1);
    rig.connect();
    rig.transmit();
    rig.answer_versions();
    assert_eq!(rig.link.failures, 0);
}

#[test]
fn a_request_during_the_wait_is_woken_for_its_end() {
    let mut rig = Rig::ready();
    rig.call(1, 5);
    rig.transmit();
    rig.link.handle_lost(rig.now, broken(), 1.0).unwrap();
    assert_eq!(rig.step(), Step::Rest { timeout: None });
    rig.call(2, 5);
    assert_eq!(rig.step(), Step::Rest { timeout: Some(rig.now + Duration::from_millis(50)) });
}

/// librdkafka#2845, sarama#760: brokers and load balancers reap what is quiet.
#[test]
fn the_end_of_a_quiet_transport_is_no_fault_and_costs_no_wait() {
    let mut rig = Rig::ready();
    assert!(rig.link.handle_lost(rig.now, broken(), 1.0).is_none());
    rig.call(1, 5);
    assert!(matches!(rig.step(), Step::Connect { .. }));
}

#[test]
fn quiet_is_ended_from_this_side_first() {
    let mut rig = Rig::ready();
    assert_eq!(rig.step(), Step::Serve { timeout: Some(rig.now + Duration::from_secs(60)) });
    rig.pass(59);
    assert!(rig.link.handle_timeout(rig.now, 0.5).is_none());
    assert!(matches!(rig.step(), Step::Serve { .. }));
    rig.pass(1);
    assert!(rig.link.handle_timeout(rig.now, 0.5).is_none());
    assert_eq!(rig.step(), Step::Rest { timeout: None });
}

/// franz-go 1.19.4: Azure Event Hubs resets on ApiVersions v4.
#[test]
fn a_reset_during_the_handshake_makes_the_next_one_older_at_once() {
    let mut rig = Rig::new();
    rig.call(1, 5);
    for version in [4, 3, 0] {
        rig.connect();
        assert_eq!(rig.transmit()[0].version, version);
        if version > 0 {
            assert!(rig.link.handle_lost(rig.now, broken(), 1.0).is_none());
            assert_eq!(rig.done(), []);
        }
    }
    rig.answer_versions();
    assert_eq!(rig.transmit()[0].api, 12);
}

#[test]
fn a_broker_that_resets_every_handshake_is_a_fault_and_begins_anew() {
    let mut rig = Rig::new();
    rig.call(1, 5);
    for _ in 0..2 {
        rig.connect();
        rig.transmit();
        assert!(rig.link.handle_lost(rig.now, broken(), 1.0).is_none());
    }
    rig.connect();
    rig.transmit();
    assert!(rig.link.handle_lost(rig.now, broken(), 1.0).is_some());
    assert_eq!(rig.done(), pairs(&[(1, "not sent: lost")]));
    rig.call(2, 5);
    rig.pass(1);
    rig.connect();
    assert_eq!(rig.transmit()[0].version, 4);
}

#[test]
fn an_older_broker_is_asked_again_on_the_same_transport() {
    let mut rig = Rig::new();
    rig.call(1, 5);
    rig.connect();
    rig.transmit();
    let refusal = versions_response(ErrorCode::UNSUPPORTED_VERSION.0, &[(18, 0, 2)]);
    rig.link.handle_frame(rig.now, versions_frame(0, 0, &refusal), 0.5).unwrap();
    assert_eq!(rig.transmit(), [Sent { api: 18, version: 2, correlation_id: 1 }]);
    rig.answer_versions();
    assert_eq!(rig.transmit()[0].api, 12);
}

#[test]
fn a_refused_handshake_tells_its_code() {
    let mut rig = Rig::new();
    rig.call(1, 5);
    rig.connect();
    rig.transmit();
    let refusal = versions_frame(0, 4, &versions_response(31, &[]));
    let error = rig.link.handle_frame(rig.now, refusal, 0.5).unwrap_err();
    assert!(error.to_string().contains("CLUSTER_AUTHORIZATION_FAILED"), "{error}");
}

#[test]
fn what_is_under_way_and_what_waits_is_bounded() {
    let mut rig = Rig::ready();
    for waiter in 1..=8 {
        rig.call(waiter, 5);
    }
    rig.call(9, 5);
    assert_eq!(rig.done(), pairs(&[(9, "not sent: full")]));
    let sent = rig.transmit();
    assert_eq!(sent.len(), 5);
    rig.answer(sent[0].correlation_id);
    assert_eq!(rig.transmit().len(), 1, "an answer makes room for one");
}

#[test]
fn a_request_that_the_broker_does_not_have_is_refused_here() {
    let mut rig = Rig::ready();
    rig.submit(1, 5, |versions| Err(versions.choose(ApiKey(3)).unwrap_err().into()));
    assert_eq!(rig.transmit(), []);
    let done = rig.done();
    assert!(done[0].1.contains("does not have Metadata"), "{done:?}");
}

#[test]
fn a_request_that_is_too_large_is_refused_here() {
    let mut rig = Rig::ready();
    rig.submit(1, 5, |_| {
        Ok(EncodedRequest::from_segments::<ProduceRequest>(12, vec![Bytes::from(vec![0; (1 << 20) + 1])])?)
    });
    assert_eq!(rig.transmit(), []);
    assert_eq!(rig.done(), pairs(&[(1, "not sent: large")]));
}

#[test]
fn a_closed_link_fails_what_it_has_and_refuses_the_rest() {
    let mut rig = Rig::ready();
    rig.call(1, 5);
    rig.transmit();
    rig.call(2, 5);
    rig.link.close();
    rig.call(3, 5);
    let expected = [(1, "unanswered: closed"), (2, "not sent: closed"), (3, "not sent: closed")];
    assert_eq!(rig.done(), pairs(&expected));
    assert_eq!(rig.step(), Step::Rest { timeout: None });
}

#[test]
fn a_link_whose_driver_died_can_be_driven_again() {
    let mut rig = Rig::ready();
    rig.call(1, 5);
    rig.transmit();
    rig.link.abandon();
    assert_eq!(rig.done(), pairs(&[(1, "unanswered: lost")]));
    rig.call(2, 5);
    assert!(matches!(rig.step(), Step::Connect { .. }));
}

/// What may happen to a link, in any order.
#[derive(Debug, Clone)]
enum Op {
    Call { seconds: u64 },
    Pass { millis: u64 },
    Step,
    Connected,
    ConnectFailed,
    HandOut,
    Left { bytes: usize },
    Versions,
    Answer,
    WrongAnswer,
    Lost,
    Timeout,
    Violation,
    Abandon,
}

fn op() -> impl proptest::strategy::Strategy<Value = Op> {
    use proptest::prelude::*;
    prop_oneof![
        4 => (0_u64..20).prop_map(|seconds| Op::Call { seconds }),
        2 => (0_u64..8_000).prop_map(|millis| Op::Pass { millis }),
        4 => Just(Op::Step),
        4 => Just(Op::Connected),
        1 => Just(Op::ConnectFailed),
        4 => Just(Op::HandOut),
        4 => (0_usize..200).prop_map(|bytes| Op::Left { bytes }),
        3 => Just(Op::Versions),
        4 => Just(Op::Answer),
        1 => Just(Op::WrongAnswer),
        1 => Just(Op::Lost),
        2 => Just(Op::Timeout),
        1 => Just(Op::Violation),
        1 => Just(Op::Abandon),
    ]
}

proptest::proptest! {
    /// Whatever happens, in whatever order: each request has one outcome, and none that left is told as not sent.
    #[test]
    fn every_request_is_over_once_and_what_left_is_never_told_as_not_sent(
        ops in proptest::collection::vec(op(), 0..120),
    ) {
        let mut rig = Rig::new();
        let mut submitted = 0;
        let mut outcomes = std::collections::HashMap::new();
        for op in ops {
            apply(&mut rig, op, &mut submitted);
            assert!(rig.link.in_flight.len() <= rig.link.limits.in_flight.max(1));
            assert!(rig.link.queue.len() <= rig.link.limits.queued);
            let left = rig.link.transmitted.left;
            let sent: Vec<_> = rig.link.in_flight.iter().filter(|r| r.begins_at < left).map(|r| r.waiter).collect();
            collect(&mut rig, &mut outcomes);
            rig.link.poll_step(rig.now);
            // What is under way now and has left in part must not be told as not sent later.
            for waiter in sent.into_iter().flatten() {
                outcomes.entry(waiter).or_insert_with(|| "left".to_owned());
            }
        }
        rig.link.close();
        collect(&mut rig, &mut outcomes);
        assert_eq!(outcomes.len(), submitted as usize);
        assert!(outcomes.values().all(|outcome| outcome != "left"), "a request without an outcome");
    }
}

fn apply(rig: &mut Rig, op: Op, submitted: &mut u32) {
    match op {
        Op::Call { seconds } => {
            rig.call(*submitted, seconds);
            *submitted += 1;
        }
        Op::Pass { millis } => rig.now += Duration::from_millis(millis),
        Op::Step => drop(rig.step()),
        Op::Connected => {
            rig.wire.clear();
            rig.link.handle_connected(rig.now);
        }
        Op::ConnectFailed => rig.link.handle_connect_failed(rig.now, ConnectionError::Closed, 0.5),
        Op::HandOut => drop(rig.hand_out()),
        Op::Left { bytes } => {
            let handed_out = rig.link.transmitted.handed_out - rig.link.transmitted.left;
            rig.link.handle_transmitted(rig.now, bytes.min(handed_out as usize));
        }
        Op::Versions if matches!(rig.link.state, State::Handshaking { .. }) && !rig.link.in_flight.is_empty() => {
            rig.answer_versions();
        }
        Op::Answer => {
            if let Some(first) = rig.link.in_flight.front().filter(|first| first.waiter.is_some()) {
                let frame = heartbeat_frame(first.correlation_id);
                let _ = rig.link.handle_frame(rig.now, frame, 0.5);
            }
        }
        Op::WrongAnswer => drop(rig.link.handle_frame(rig.now, heartbeat_frame(i32::MIN), 0.5)),
        Op::Lost => drop(rig.link.handle_lost(rig.now, broken(), 0.5)),
        Op::Timeout => drop(rig.link.handle_timeout(rig.now, 0.5)),
        Op::Violation => {
            rig.link.handle_violation(rig.now, ProtocolViolation::TooShort { bytes: 0 }, 0.5);
        }
        Op::Abandon => rig.link.abandon(),
        Op::Versions => {}
    }
}

fn collect(rig: &mut Rig, outcomes: &mut std::collections::HashMap<u32, String>) {
    for (waiter, outcome) in rig.done() {
        let before = outcomes.insert(waiter, outcome.clone());
        match before.as_deref() {
            None => {}
            Some("left") => assert!(!outcome.starts_with("not sent"), "{waiter} left, and is told as {outcome}"),
            Some(before) => panic!("{waiter} is over twice: {before}, {outcome}"),
        }
    }
}

#[cfg(feature = "sasl")]
mod login;
