//! A connection, its driver, and a broker that answers anything or not at all.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey as Key, ApiVersionsResponse, HeartbeatRequest};
use kafka_protocol::protocol::Encodable;

use super::Operated;
use crate::machine::connection::{ConnectionError, Limits, Link, ProtocolViolation, Request, RequestError, Step};
use crate::machine::sasl::Mechanism;
use crate::protocol::api::ApiKey;
use crate::protocol::choices::Choices;
use crate::protocol::request::{ClientId, EncodedRequest};
use crate::protocol::shape::sample::{self, Source};
use crate::retry::ExponentialFullJitter;

pub(super) struct Connection {
    link: Link<u32>,
    limits: Limits,
    now: Instant,
    /// Requests without a verdict.
    waiting: BTreeSet<u32>,
    next: u32,
    transport: Transport,
    /// What the broker was asked on this transport: number, API, version.
    asked: VecDeque<(i32, i16, i16)>,
    /// Handed out bytes that have not left.
    unsent: usize,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Transport {
    None,
    Connecting,
    Served,
}

/// An answer's content: sound in what the connection itself reads, mostly.
struct Words<'w, 'a>(&'w mut Choices<'a>);

impl Operated for Connection {
    const OPERATIONS: u32 = 16;

    fn new(choices: &mut Choices<'_>) -> Self {
        let limits = Limits {
            in_flight: 3,
            queued: 4,
            request_bytes: 1 << 10,
            response_bytes: 1 << 12,
            idle: Duration::from_secs(30),
            setup: Duration::from_secs(10),
            throttle: Duration::from_secs(5),
            reconnect: ExponentialFullJitter { first: Duration::from_millis(50), max: Duration::from_secs(1) },
        };
        let now = Instant::now();
        let mechanism = if choices.once_in(2) { mechanism() } else { None };
        let link = Link::new(ClientId::new("c").expect("short"), limits.clone(), mechanism, now);
        Self {
            link,
            limits,
            now,
            waiting: BTreeSet::new(),
            next: 0,
            transport: Transport::None,
            asked: VecDeque::new(),
            unsent: 0,
            closed: false,
        }
    }

    fn act(&mut self, choices: &mut Choices<'_>, operation: u32) {
        match operation {
            0..=2 => self.call(choices),
            3 => self.connected(),
            4 => {
                let error = ConnectionError::UnknownBroker { node: 1 };
                let random = random(choices);
                self.link.handle_connect_failed(self.now, error, random);
            }
            5 => {
                let time = choices.pick(&[1, 40, 1_000, 5_000, 11_000, 31_000]);
                self.pass(choices, Duration::from_millis(time));
            }
            6 => self.lose(choices),
            7 => self.rare(choices),
            8 => {
                self.link.handle_transmitted(self.now, std::mem::take(&mut self.unsent));
            }
            9 => self.credentials(choices),
            _ => self.answer(choices),
        }
    }

    /// What the driver does until it waits.
    fn settle(&mut self, choices: &mut Choices<'_>) {
        for _ in 0..ROUNDS {
            self.transmit(choices);
            let step = self.link.poll_step(self.now);
            self.verdicts();
            let timeout = match step {
                Step::Serve { timeout } => {
                    assert_eq!(self.transport, Transport::Served, "a transport that nobody made: {:?}", self.link);
                    timeout
                }
                Step::Connect { timeout } => {
                    if self.transport != Transport::Connecting {
                        self.dropped();
                        self.transport = Transport::Connecting;
                    }
                    Some(timeout)
                }
                Step::Rest { timeout } => {
                    self.dropped();
                    assert!(timeout.is_some() || !self.link.is_busy(), "at rest, with work: {:?}", self.link);
                    timeout
                }
            };
            assert!(timeout.is_some() || !self.link.is_busy(), "nothing will ever happen: {:?}", self.link);
            if timeout.is_none_or(|at| at > self.now) {
                return;
            }
            let random = random(choices);
            self.link.handle_timeout(self.now, random);
        }
        panic!("it spins: {:?}", self.link);
    }

    /// Nothing is answered any more, and no connection is made.
    fn end(mut self, choices: &mut Choices<'_>) {
        for _ in 0..200 {
            self.settle(choices);
            if self.waiting.is_empty() {
                return;
            }
            let next = match self.link.poll_step(self.now) {
                Step::Serve { timeout } | Step::Rest { timeout } => timeout,
                Step::Connect { timeout } => Some(timeout),
            };
            let next = next.expect("a request waits");
            self.pass(choices, next.saturating_duration_since(self.now));
        }
        panic!("requests without a verdict: {:?}", self.link);
    }
}

impl Connection {
    fn call(&mut self, choices: &mut Choices<'_>) {
        self.next += 1;
        self.waiting.insert(self.next);
        let kind = choices.below(8);
        let time = choices.pick(&[0, 1, 5_000, 60_000]);
        let request = Request {
            api: HEARTBEAT,
            encode: Box::new(move |versions| {
                let version = versions.choose(HEARTBEAT)?;
                let member = if kind == 7 { "m".repeat(2_000) } else { String::new() };
                let request = HeartbeatRequest::default().with_member_id(member.into());
                Ok(EncodedRequest::new(&request, version)?)
            }),
            deadline: self.now + Duration::from_millis(time),
            waiter: self.next,
        };
        self.link.handle_request(self.now, request);
    }

    fn connected(&mut self) {
        if self.transport == Transport::Connecting {
            self.transport = Transport::Served;
            self.link.handle_connected(self.now);
        }
    }

    fn pass(&mut self, choices: &mut Choices<'_>, time: Duration) {
        self.now += time;
        let random = random(choices);
        self.link.handle_timeout(self.now, random);
    }

    fn lose(&mut self, choices: &mut Choices<'_>) {
        if self.transport == Transport::Served {
            let kind = choices.pick(&[io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof]);
            let random = random(choices);
            self.link.handle_lost(self.now, kind.into(), random);
            self.dropped();
        }
    }

    fn rare(&mut self, choices: &mut Choices<'_>) {
        match choices.below(12) {
            0 => {
                self.link.abandon();
                self.dropped();
            }
            1 => {
                self.link.close();
                self.closed = true;
                self.dropped();
            }
            2 if self.transport == Transport::Served => {
                let random = random(choices);
                self.link.handle_violation(self.now, ProtocolViolation::TooShort { bytes: 1 }, random);
            }
            _ => {}
        }
    }

    #[cfg(feature = "sasl")]
    fn credentials(&mut self, choices: &mut Choices<'_>) {
        if self.transport == Transport::Served && self.link.poll_login() {
            use crate::machine::sasl::{Exchange, LoginError, Plain};
            let credentials = match choices.once_in(4) {
                false => Ok(Exchange::Plain(Plain::new("u", "p"))),
                true => Err(LoginError::NoCredentials {
                    mechanism: "PLAIN",
                    source: std::sync::Arc::new(io::Error::other("no token")),
                }),
            };
            let random = random(choices);
            self.link.handle_credentials(self.now, credentials, random);
        }
    }

    #[cfg(not(feature = "sasl"))]
    fn credentials(&mut self, _: &mut Choices<'_>) {}

    fn dropped(&mut self) {
        self.transport = Transport::None;
        self.asked.clear();
        self.unsent = 0;
    }

    fn answer(&mut self, choices: &mut Choices<'_>) {
        if self.transport != Transport::Served {
            return;
        }
        let wrong = choices.once_in(24);
        let Some((id, api, version)) = self.asked.pop_front() else {
            if wrong {
                self.hear(choices, vec![0, 0, 0, 1].into());
            }
            return;
        };
        let mut frame = BytesMut::new();
        frame.put_i32(if wrong { choices.number() as i32 } else { id });
        if Key::try_from(api).is_ok_and(|key| key.response_header_version(version) > 0) {
            frame.put_u8(0);
        }
        if api == 18 && !choices.once_in(8) {
            versions(choices).encode(&mut frame, version).expect("it is sound");
        } else {
            frame.extend_from_slice(&sample::response(ApiKey(api), version, &mut Words(choices)));
        }
        if choices.once_in(16)
            && let Some(at) = choices.index(frame.len())
        {
            frame[at] ^= 1 << choices.below(8);
        }
        if choices.once_in(24) {
            let length = choices.below(frame.len() as u32) as usize;
            frame.truncate(length);
        }
        self.hear(choices, frame.freeze());
    }

    fn hear(&mut self, choices: &mut Choices<'_>, frame: Bytes) {
        let random = random(choices);
        let _ = self.link.handle_frame(self.now, frame, random);
        while let Some(throttled) = self.link.poll_throttled() {
            assert!(throttled.silence <= self.limits.throttle, "a silence without a bound");
        }
    }

    fn transmit(&mut self, choices: &mut Choices<'_>) {
        if self.transport != Transport::Served {
            return;
        }
        let mut segments = VecDeque::new();
        self.link.poll_transmit(self.now, &mut segments);
        let bytes: Vec<u8> = segments.iter().flatten().copied().collect();
        let mut rest = &bytes[..];
        while let Some((length, tail)) = rest.split_first_chunk::<4>() {
            let (frame, tail) = tail.split_at(i32::from_be_bytes(*length) as usize);
            let int = |at| i16::from_be_bytes([frame[at], frame[at + 1]]);
            let id = i32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]);
            self.asked.push_back((id, int(0), int(2)));
            rest = tail;
        }
        assert!(self.asked.len() <= self.limits.in_flight, "more under way than may be");
        self.unsent += bytes.len();
        if !choices.once_in(4) {
            self.link.handle_transmitted(self.now, std::mem::take(&mut self.unsent));
        }
    }

    fn verdicts(&mut self) {
        while let Some(done) = self.link.poll_done() {
            assert!(self.waiting.remove(&done.waiter), "two verdicts on one request");
            if let Err(RequestError::Unanswered { .. }) = done.result {
                assert!(self.transport == Transport::Served || self.asked.is_empty(), "in doubt, and never sent");
            }
        }
        let bound = self.limits.in_flight + self.limits.queued;
        assert!(self.waiting.len() <= bound, "{} requests are kept", self.waiting.len());
        assert!(!self.closed || self.waiting.is_empty(), "closed, with requests that wait");
    }
}

fn random(choices: &mut Choices<'_>) -> f64 {
    f64::from(choices.below(4)) / 4.0
}

fn versions(choices: &mut Choices<'_>) -> ApiVersionsResponse {
    let wild = choices.once_in(4);
    let apis = [(12, 4), (17, 1), (36, 2), (18, 4)].map(|(key, max)| {
        let range = if wild { (choices.number() as i16, choices.number() as i16) } else { (0, max) };
        ApiVersion::default().with_api_key(key).with_min_version(range.0).with_max_version(range.1)
    });
    let code = choices.pick(&[0, 0, 0, 35]);
    ApiVersionsResponse::default().with_error_code(code).with_api_keys(apis.to_vec())
}

impl Source for Words<'_, '_> {
    fn below(&mut self, bound: u32) -> u32 {
        Source::below(self.0, bound)
    }

    fn content(&mut self, field: &'static str) -> Option<Vec<u8>> {
        match field {
            "ErrorCode" => Some(self.0.pick(&[0_i16, 0, 0, 0, 34, 58, -1, 999]).to_be_bytes().to_vec()),
            "ThrottleTimeMs" => Some(self.0.pick(&[0, 0, 0, 100, -1, i32::MAX]).to_be_bytes().to_vec()),
            "SessionLifetimeMs" => Some(self.0.pick(&[0, 1, 20_000, -1, i64::MAX]).to_be_bytes().to_vec()),
            "Mechanisms" => Some(b"PLAIN".to_vec()),
            _ => None,
        }
    }
}

#[cfg(feature = "sasl")]
fn mechanism() -> Option<Mechanism> {
    Some(Mechanism::Plain)
}

#[cfg(not(feature = "sasl"))]
fn mechanism() -> Option<Mechanism> {
    None
}

const HEARTBEAT: ApiKey = ApiKey(12);
/// A driver that looks so often while no time passes spins.
const ROUNDS: usize = 20;
