use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::ApiKey as Key;

use super::{ConnectionError, ProtocolViolation, RequestError, TlsFault};
use crate::machine::sasl::{AnswerError, Authenticator, Exchange, LoginError, Mechanism, Outcome};
use crate::protocol::DecodeError;
use crate::protocol::api::ApiKey;
use crate::protocol::request::{ClientId, EncodedRequest};
use crate::protocol::response::correlation_id;
use crate::protocol::shape::tags_length;
use crate::protocol::throttle::throttle;
use crate::protocol::versions::{NegotiatedVersions, ProbeAnswer, VersionProbe};
use crate::retry::{Backoff, ExponentialFullJitter};

/// One broker, over one transport after another. `W` names a request to its owner.
#[derive(Debug)]
pub(crate) struct Link<W> {
    limits: Limits,
    client_id: ClientId,
    state: State,
    /// Failures in a row, for the wait before the next transport.
    failures: u32,
    /// Finds the version of ApiVersions that this broker answers; remembers it over transports.
    probe: VersionProbe,
    /// Where the broker is to be logged in to.
    login: Option<Authenticator>,
    next_correlation_id: i32,
    queue: VecDeque<(Request<W>, Deadline)>,
    in_flight: VecDeque<InFlight<W>>,
    done: VecDeque<Done<W>>,
    /// Bytes handed out and bytes that left, on this transport.
    transmitted: Progress,
    /// No deadline is earlier; may be too early after a request went.
    earliest_deadline: Option<Instant>,
    last_activity: Instant,
    /// Whether a request of a caller was answered on this transport.
    answered: bool,
    /// Until when the broker asked for silence (KIP-219). Kept over transports.
    muted_until: Option<Instant>,
    throttled: VecDeque<Throttled>,
}

/// A broker asked for silence on this link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Throttled {
    /// What it answered.
    pub(crate) api: ApiKey,
    /// How long nothing more is written, counted from the answer.
    pub(crate) silence: Duration,
}

/// Bounds of a link.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Requests written and not answered.
    pub(crate) in_flight: usize,
    /// Requests that wait to be written.
    pub(crate) queued: usize,
    /// Bytes of one request.
    pub(crate) request_bytes: usize,
    /// Bytes of one answer.
    pub(crate) response_bytes: usize,
    /// Quiet time after which the transport is closed.
    pub(crate) idle: Duration,
    /// Time to connect and agree on versions, over all addresses.
    pub(crate) setup: Duration,
    /// The longest silence that a broker may ask for.
    pub(crate) throttle: Duration,
    /// The wait before the next transport, by failures in a row.
    pub(crate) reconnect: ExponentialFullJitter,
}

/// A request to be sent.
pub(crate) struct Request<W> {
    pub(crate) api: ApiKey,
    pub(crate) encode: Encode,
    /// When the caller stops waiting. A silence that the broker asks for is added.
    pub(crate) deadline: Instant,
    /// Names it in [`Done`].
    pub(crate) waiter: W,
}

/// Makes the body, once the broker's versions are known.
pub(crate) type Encode = Box<dyn FnOnce(&NegotiatedVersions) -> Result<EncodedRequest, RequestError> + Send>;

impl<W: fmt::Debug> fmt::Debug for Request<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { api, deadline, waiter, encode: _ } = self;
        f.debug_struct("Request").field("api", api).field("deadline", deadline).field("waiter", waiter).finish()
    }
}

/// A request that is over, one way or the other.
#[derive(Debug)]
pub(crate) struct Done<W> {
    pub(crate) waiter: W,
    pub(crate) result: Result<Answer, RequestError>,
}

/// An answer's body, without its header.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) version: i16,
    pub(crate) body: Bytes,
}

/// What the driver is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make a transport, and call [`Link::handle_timeout`] then if it is not made yet.
    Connect { timeout: Instant },
    /// Read, write what [`Link::poll_transmit`] gives, and call [`Link::handle_timeout`] then.
    Serve { timeout: Option<Instant> },
    /// No transport is wanted. Call [`Link::handle_timeout`] then, if then is given.
    Rest { timeout: Option<Instant> },
}

#[derive(Debug)]
enum State {
    Idle,
    Waiting {
        until: Instant,
    },
    Connecting {
        deadline: Instant,
    },
    Handshaking {
        deadline: Instant,
    },
    Authenticating {
        deadline: Instant,
        versions: Arc<NegotiatedVersions>,
    },
    /// Nothing new is sent until what is under way is answered, because the login is to be renewed.
    Draining {
        versions: Arc<NegotiatedVersions>,
    },
    Ready {
        versions: Arc<NegotiatedVersions>,
    },
    Closed,
}

/// When a request is late. The broker is not to blame for a wait that it asked for (KAFKA-16083), so a silence moves it; by no
/// more than the grace, because every wait has an end.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    at: Instant,
    grace: Duration,
}

#[derive(Debug)]
struct InFlight<W> {
    correlation_id: i32,
    api: ApiKey,
    version: i16,
    deadline: Deadline,
    /// Where its bytes begin in what this transport carries.
    begins_at: u64,
    /// `None`: the handshake or the login, which the link asks for itself.
    waiter: Option<W>,
}

#[derive(Debug, Default)]
struct Progress {
    handed_out: u64,
    left: u64,
}

impl<W> Link<W> {
    /// A link without a transport, to a broker that is logged in to by this mechanism.
    pub(crate) fn new(client_id: ClientId, limits: Limits, login: Option<Mechanism>, now: Instant) -> Self {
        Self {
            limits,
            client_id,
            state: State::Idle,
            failures: 0,
            probe: VersionProbe::new(),
            login: login.map(Authenticator::new),
            next_correlation_id: 0,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            done: VecDeque::new(),
            transmitted: Progress::default(),
            earliest_deadline: None,
            last_activity: now,
            answered: false,
            muted_until: None,
            throttled: VecDeque::new(),
        }
    }

    /// Takes a request. Requests are written in the order they are given.
    pub(crate) fn handle_request(&mut self, now: Instant, request: Request<W>) {
        if matches!(self.state, State::Closed) {
            return self.refuse(request, ConnectionError::Closed);
        }
        if self.queue.len() >= self.limits.queued {
            let queued = self.queue.len();
            return self.refuse(request, ConnectionError::QueueFull { queued });
        }
        if self.queue.is_empty() && self.in_flight.is_empty() {
            self.last_activity = now;
        }
        let mut deadline = Deadline { at: request.deadline, grace: self.limits.throttle.saturating_mul(GRACE) };
        deadline.extend(self.muted_for(now));
        self.note_deadline(deadline.at);
        self.queue.push_back((request, deadline));
    }

    /// How long nothing is written from now on because the broker asked for silence.
    pub(crate) fn muted_for(&self, now: Instant) -> Duration {
        self.muted_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// A silence that was asked for. Ask until there is none.
    pub(crate) fn poll_throttled(&mut self) -> Option<Throttled> {
        self.throttled.pop_front()
    }

    /// What to do next. Ask again after every input.
    pub(crate) fn poll_step(&mut self, now: Instant) -> Step {
        let wanted = !self.queue.is_empty();
        match self.state {
            State::Idle if wanted => self.connect(now),
            State::Waiting { until } if until <= now && wanted => self.connect(now),
            State::Waiting { until } if until <= now => {
                self.state = State::Idle;
                Step::Rest { timeout: None }
            }
            State::Waiting { until } if wanted => Step::Rest { timeout: Some(self.sooner(until)) },
            // The wait is kept by the state; nobody needs to be woken for it.
            State::Idle | State::Waiting { .. } | State::Closed => Step::Rest { timeout: None },
            State::Connecting { deadline } => Step::Connect { timeout: self.sooner(deadline) },
            State::Handshaking { deadline } | State::Authenticating { deadline, .. } => {
                Step::Serve { timeout: Some(self.sooner(deadline)) }
            }
            State::Ready { .. } if self.in_flight.is_empty() && !wanted => {
                Step::Serve { timeout: self.last_activity.checked_add(self.limits.idle) }
            }
            // Nothing else wakes a link that is to log in once the silence is over.
            State::Ready { .. } | State::Draining { .. } => {
                let waits = wanted || matches!(self.state, State::Draining { .. });
                let muted_until = self.muted_until.filter(|until| waits && *until > now);
                Step::Serve { timeout: self.earliest_deadline.into_iter().chain(muted_until).min() }
            }
        }
    }

    /// A transport is up. The handshake begins.
    pub(crate) fn handle_connected(&mut self, now: Instant) {
        let State::Connecting { deadline } = self.state else { return };
        self.transmitted = Progress::default();
        self.last_activity = now;
        self.answered = false;
        self.state = State::Handshaking { deadline };
        if let Some(login) = &mut self.login {
            login.reset();
        }
    }

    /// Whether credentials for a login are wanted. Says so once; give them to
    /// [`handle_credentials`](Self::handle_credentials).
    pub(crate) fn poll_login(&mut self) -> bool {
        let served =
            !matches!(self.state, State::Idle | State::Waiting { .. } | State::Connecting { .. } | State::Closed);
        served && self.login.as_mut().is_some_and(Authenticator::poll_wanted)
    }

    /// The credentials that were wanted, or why there are none.
    ///
    /// Returns the fault, if the transport ended by it.
    pub(crate) fn handle_credentials(
        &mut self,
        now: Instant,
        credentials: Result<Exchange, LoginError>,
        random: f64,
    ) -> Option<Arc<ConnectionError>> {
        let login = self.login.as_mut()?;
        match credentials {
            Ok(exchange) => {
                login.handle_credentials(exchange);
                None
            }
            // A session that goes on outlives a token endpoint that is away for a moment.
            Err(_) if login.handle_none(now) => None,
            Err(error) => Some(self.fail(now, ConnectionError::Login(error), random)),
        }
    }

    /// No transport could be made.
    pub(crate) fn handle_connect_failed(&mut self, now: Instant, error: ConnectionError, random: f64) {
        if let State::Connecting { .. } = self.state {
            self.fail(now, error, random);
        }
    }

    /// The transport ended: its end was read, or an operation on it failed.
    ///
    /// Returns the fault, if it was one. An end while nothing was under way is none: brokers and load balancers
    /// close what is quiet.
    pub(crate) fn handle_lost(&mut self, now: Instant, error: io::Error, random: f64) -> Option<Arc<ConnectionError>> {
        match self.state {
            State::Ready { .. } if self.in_flight.is_empty() && self.queue.is_empty() => {
                self.state = State::Idle;
                None
            }
            State::Handshaking { .. } if !is_tls(&error) && self.probe.step_down_after_reset() => {
                // The same requests, at once: the broker is there, it only dislikes the handshake.
                self.in_flight.clear();
                self.state = State::Idle;
                None
            }
            State::Handshaking { .. } => Some(self.fail(now, lost(hinted(error, WANTS_TLS)), random)),
            State::Authenticating { .. } => {
                let complaint = self.login.as_ref().and_then(Authenticator::complaint);
                Some(self.fail(now, complaint.map_or_else(|| lost(error), ConnectionError::Login), random))
            }
            // Not even a refusal is sent to who does not log in.
            State::Ready { .. } if !self.answered && self.login.is_none() => {
                Some(self.fail(now, lost(hinted(error, WANTS_LOGIN)), random))
            }
            State::Draining { .. } | State::Ready { .. } => Some(self.fail(now, lost(error), random)),
            _ => None,
        }
    }

    /// One frame came in whole, without its length.
    ///
    /// # Errors
    /// The transport must be closed; everything on it has failed.
    pub(crate) fn handle_frame(&mut self, now: Instant, frame: Bytes, random: f64) -> Result<(), Arc<ConnectionError>> {
        self.last_activity = now;
        self.accept(now, &frame, random).map_err(|error| self.fail(now, error, random))
    }

    /// The peer's bytes cannot be what they claim: the transport is not to be trusted any more.
    ///
    /// Returns the fault, if there was a transport.
    pub(crate) fn handle_violation(
        &mut self,
        now: Instant,
        violation: ProtocolViolation,
        random: f64,
    ) -> Option<Arc<ConnectionError>> {
        let violation = match self.state {
            State::Handshaking { .. } => violation.at_first_sight(),
            _ => violation,
        };
        self.is_served().then(|| self.fail(now, ConnectionError::Protocol(violation), random))
    }

    /// Appends the segments to write next, in order. Everything handed out must be written, or the transport closed.
    pub(crate) fn poll_transmit(&mut self, now: Instant, segments: &mut VecDeque<Bytes>) {
        self.renew_login(now);
        match &self.state {
            State::Handshaking { deadline } if self.in_flight.is_empty() => {
                let deadline = *deadline;
                self.transmit_handshake(deadline, segments);
            }
            State::Authenticating { deadline, versions } if self.in_flight.is_empty() => {
                let login = self.login.as_mut().and_then(|login| login.poll_request(now, versions));
                let deadline = Deadline { at: *deadline, grace: Duration::ZERO };
                if let Some(request) = login {
                    self.write(request, deadline, None, segments);
                }
            }
            State::Ready { .. } if !self.muted_for(now).is_zero() => {}
            State::Ready { versions } if !self.is_silent(now) => {
                let versions = versions.clone();
                while self.in_flight.len() < self.limits.in_flight {
                    let Some((next, deadline)) = self.queue.pop_front() else { break };
                    self.transmit(now, next, deadline, &versions, segments);
                }
            }
            _ => {}
        }
    }

    /// So many bytes of what was handed out left for the peer.
    pub(crate) fn handle_transmitted(&mut self, now: Instant, bytes: usize) {
        self.last_activity = now;
        self.transmitted.left += bytes as u64;
    }

    /// Time passed. Fails what is late; one late answer fails everything on the transport.
    ///
    /// Returns the fault, if the transport ended by one.
    pub(crate) fn handle_timeout(&mut self, now: Instant, random: f64) -> Option<Arc<ConnectionError>> {
        match self.state {
            State::Handshaking { deadline }
            | State::Connecting { deadline }
            | State::Authenticating { deadline, .. }
                if deadline <= now =>
            {
                let error = ConnectionError::SetupTimeout { after: self.limits.setup };
                return Some(self.fail(now, error, random));
            }
            State::Draining { .. } | State::Ready { .. } => {
                let late = self.in_flight.iter().find(|request| request.deadline.at <= now);
                if let Some(api) = late.map(|request| request.api) {
                    return Some(self.fail(now, ConnectionError::TimedOut { api }, random));
                }
                let idle_until = self.last_activity.checked_add(self.limits.idle);
                if self.in_flight.is_empty() && self.queue.is_empty() && idle_until.is_some_and(|until| until <= now) {
                    self.state = State::Idle;
                }
            }
            _ => {}
        }
        self.expire_queue(now);
        None
    }

    /// Ends the link for good.
    pub(crate) fn close(&mut self) {
        self.fail_all(Arc::new(ConnectionError::Closed));
        self.state = State::Closed;
    }

    /// Drops the transport as if it had never been; what hangs on it fails.
    pub(crate) fn abandon(&mut self) {
        if !matches!(self.state, State::Closed) {
            let source = io::Error::new(io::ErrorKind::Interrupted, "the runtime that drove the connection ended");
            self.fail_all(Arc::new(ConnectionError::Lost { source: Arc::new(source) }));
            self.state = State::Idle;
        }
    }

    /// A request that is over. Ask until there is none.
    pub(crate) fn poll_done(&mut self) -> Option<Done<W>> {
        self.done.pop_front()
    }

    /// Whether a request waits or is under way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.queue.is_empty() || self.in_flight.iter().any(|request| request.waiter.is_some())
    }

    fn connect(&mut self, now: Instant) -> Step {
        let deadline = now + self.limits.setup;
        self.state = State::Connecting { deadline };
        Step::Connect { timeout: self.sooner(deadline) }
    }

    fn transmit_handshake(&mut self, deadline: Instant, segments: &mut VecDeque<Bytes>) {
        let request = EncodedRequest::new(&self.probe.request(), self.probe.version())
            .expect("two short strings fit in every version that has them");
        let deadline = Deadline { at: deadline, grace: Duration::ZERO };
        self.write(request, deadline, None, segments);
    }

    fn transmit(
        &mut self,
        now: Instant,
        request: Request<W>,
        deadline: Deadline,
        versions: &NegotiatedVersions,
        segments: &mut VecDeque<Bytes>,
    ) {
        let Request { api, encode, waiter, .. } = request;
        let prepared = match deadline.at <= now {
            true => Err(RequestError::NotSent { api, cause: Arc::new(ConnectionError::TimedOut { api }) }),
            false => encode(versions).and_then(|request| self.check_size(request)),
        };
        match prepared {
            Ok(request) => self.write(request, deadline, Some(waiter), segments),
            Err(error) => self.done.push_back(Done { waiter, result: Err(error) }),
        }
    }

    fn check_size(&self, request: EncodedRequest) -> Result<EncodedRequest, RequestError> {
        let bytes = request.body_bytes();
        if bytes > self.limits.request_bytes {
            let cause = Arc::new(ConnectionError::RequestTooLarge { bytes });
            return Err(RequestError::NotSent { api: request.api(), cause });
        }
        Ok(request)
    }

    fn write(
        &mut self,
        request: EncodedRequest,
        deadline: Deadline,
        waiter: Option<W>,
        segments: &mut VecDeque<Bytes>,
    ) {
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = correlation_id.wrapping_add(1);
        let (api, version) = (request.api(), request.version());
        let mut head = BytesMut::new();
        request.put_head(&mut head, correlation_id, &self.client_id);
        let begins_at = self.transmitted.handed_out;
        self.transmitted.handed_out += (head.len() + request.body_bytes()) as u64;
        segments.push_back(head.freeze());
        segments.extend(request.into_segments().into_iter().filter(|segment| !segment.is_empty()));
        self.in_flight.push_back(InFlight { correlation_id, api, version, deadline, begins_at, waiter });
    }

    /// Begins to renew a login that is to be renewed, and goes on with it as far as it goes without an answer.
    fn renew_login(&mut self, now: Instant) {
        let muted = !self.muted_for(now).is_zero();
        let Some(login) = &mut self.login else { return };
        if let State::Ready { versions } = &self.state {
            // What is quiet needs no login: a broker looks at the session's end when a request comes.
            if !self.queue.is_empty() {
                login.renew(now);
            }
            if login.is_prepared() {
                self.state = State::Draining { versions: versions.clone() };
            }
        }
        if let State::Draining { versions } = &self.state
            && self.in_flight.is_empty()
            && !muted
        {
            self.state = State::Authenticating { deadline: now + self.limits.setup, versions: versions.clone() };
        }
    }

    fn is_silent(&self, now: Instant) -> bool {
        self.login.as_ref().is_some_and(|login| login.is_silent(now))
    }

    /// Whether a transport carries bytes.
    fn is_served(&self) -> bool {
        match self.state {
            State::Handshaking { .. } | State::Authenticating { .. } | State::Draining { .. } | State::Ready { .. } => {
                true
            }
            State::Idle | State::Waiting { .. } | State::Connecting { .. } | State::Closed => false,
        }
    }

    fn accept(&mut self, now: Instant, frame: &Bytes, random: f64) -> Result<(), ConnectionError> {
        let violation = ConnectionError::Protocol;
        let actual =
            correlation_id(frame).map_err(|short| violation(ProtocolViolation::TooShort { bytes: short.bytes }))?;
        let Some(request) = self.in_flight.front() else {
            return Err(violation(ProtocolViolation::Unsolicited { actual }));
        };
        let expected = request.correlation_id;
        if actual != expected {
            return Err(violation(ProtocolViolation::CorrelationId { expected, actual }));
        }
        let Some(request) = self.in_flight.pop_front() else { return Ok(()) };
        let Some(waiter) = request.waiter else {
            return match self.state {
                State::Authenticating { .. } => self.accept_login(now, request.api, request.version, frame, random),
                _ => self.accept_handshake(now, request.version, frame),
            };
        };
        let api = request.api;
        match response_body(api, request.version, frame) {
            Ok(body) => {
                self.answered = true;
                self.obey(now, api, throttle(api, request.version, &body));
                self.done.push_back(Done { waiter, result: Ok(Answer { version: request.version, body }) });
                Ok(())
            }
            Err(error) => {
                self.done.push_back(Done { waiter, result: Err(error.into()) });
                Err(violation(ProtocolViolation::Malformed { api }))
            }
        }
    }

    fn accept_handshake(&mut self, now: Instant, version: i16, frame: &Bytes) -> Result<(), ConnectionError> {
        let malformed = |_| ConnectionError::Protocol(ProtocolViolation::Malformed { api: API_VERSIONS });
        match self.probe.handle_response(frame).map_err(malformed)? {
            ProbeAnswer::AskAgain => Ok(()),
            ProbeAnswer::Refused { code } => Err(ConnectionError::HandshakeRefused { code }),
            ProbeAnswer::Negotiated(versions) => {
                let versions = Arc::new(versions);
                self.state = match (&self.login, &self.state) {
                    (Some(login), State::Handshaking { deadline }) => {
                        login.check(&versions).map_err(ConnectionError::Login)?;
                        State::Authenticating { deadline: *deadline, versions }
                    }
                    _ => {
                        self.failures = 0;
                        State::Ready { versions }
                    }
                };
                self.obey(now, API_VERSIONS, throttle(API_VERSIONS, version, &frame[CORRELATION_ID_BYTES..]));
                Ok(())
            }
        }
    }

    /// Writes nothing for so long. What waits or is under way is late by that much later.
    fn obey(&mut self, now: Instant, api: ApiKey, silence: Duration) {
        let silence = silence.min(self.limits.throttle);
        let more = silence.saturating_sub(self.muted_for(now));
        if more.is_zero() {
            return;
        }
        self.muted_until = Some(now + silence);
        let under_way = self.in_flight.iter_mut().map(|request| &mut request.deadline);
        let waiting = self.queue.iter_mut().map(|(_, deadline)| deadline);
        self.earliest_deadline = under_way.chain(waiting).map(|deadline| deadline.extend(more)).min();
        if self.throttled.len() < self.limits.in_flight {
            self.throttled.push_back(Throttled { api, silence });
        }
    }

    fn accept_login(
        &mut self,
        now: Instant,
        api: ApiKey,
        version: i16,
        frame: &Bytes,
        random: f64,
    ) -> Result<(), ConnectionError> {
        let malformed = |_| ConnectionError::Protocol(ProtocolViolation::Malformed { api });
        let body = response_body(api, version, frame).map_err(malformed)?;
        let (State::Authenticating { versions, .. }, Some(login)) = (&self.state, &mut self.login) else {
            return Ok(());
        };
        match login.handle_answer(now, version, body, random) {
            Ok(Outcome::GoOn) => {}
            Ok(Outcome::LoggedIn) => {
                self.failures = 0;
                self.state = State::Ready { versions: versions.clone() };
            }
            Err(AnswerError::Login(error)) => return Err(ConnectionError::Login(error)),
            Err(AnswerError::Malformed(error)) => return Err(malformed(error)),
        }
        Ok(())
    }

    /// Everything on this transport, and everything behind it, fails; the next transport waits.
    fn fail(&mut self, now: Instant, error: ConnectionError, random: f64) -> Arc<ConnectionError> {
        if self.probe.version() == 0 {
            // Version 0 tells nothing of features. A broker that was only restarting must not be stuck with it.
            self.probe = VersionProbe::new();
        }
        let cause = Arc::new(error);
        if self.may_log_in_again(&cause) {
            // Only the login was under way; what waits was never sent, and nothing is wrong with it.
            self.in_flight.clear();
        } else {
            self.fail_all(cause.clone());
        }
        self.failures = self.failures.saturating_add(1);
        self.state = State::Waiting { until: now + self.limits.reconnect.delay(self.failures, random) };
        cause
    }

    fn may_log_in_again(&mut self, cause: &ConnectionError) -> bool {
        let refused = matches!(cause, ConnectionError::Login(LoginError::Refused { .. }));
        refused && self.login.as_mut().is_some_and(Authenticator::handle_refused)
    }

    fn fail_all(&mut self, cause: Arc<ConnectionError>) {
        let left = self.transmitted.left;
        for request in std::mem::take(&mut self.in_flight) {
            let Some(waiter) = request.waiter else { continue };
            let (api, cause) = (request.api, cause.clone());
            let result = Err(if request.begins_at < left {
                RequestError::Unanswered { api, cause }
            } else {
                RequestError::NotSent { api, cause }
            });
            self.done.push_back(Done { waiter, result });
        }
        for (Request { api, waiter, .. }, _) in std::mem::take(&mut self.queue) {
            let result = Err(RequestError::NotSent { api, cause: cause.clone() });
            self.done.push_back(Done { waiter, result });
        }
        self.earliest_deadline = None;
    }

    fn refuse(&mut self, request: Request<W>, error: ConnectionError) {
        let result = Err(RequestError::NotSent { api: request.api, cause: Arc::new(error) });
        self.done.push_back(Done { waiter: request.waiter, result });
    }

    fn expire_queue(&mut self, now: Instant) {
        if self.earliest_deadline.is_none_or(|earliest| earliest > now) {
            return;
        }
        for (request, deadline) in std::mem::take(&mut self.queue) {
            if deadline.at > now {
                self.queue.push_back((request, deadline));
            } else {
                let api = request.api;
                self.refuse(request, ConnectionError::TimedOut { api });
            }
        }
        let deadlines = self.queue.iter().map(|(_, deadline)| deadline.at);
        self.earliest_deadline = deadlines.chain(self.in_flight.iter().map(|request| request.deadline.at)).min();
    }

    fn note_deadline(&mut self, deadline: Instant) {
        self.earliest_deadline = Some(self.sooner(deadline));
    }

    fn sooner(&self, than: Instant) -> Instant {
        self.earliest_deadline.map_or(than, |earliest| earliest.min(than))
    }
}

impl Deadline {
    fn extend(&mut self, by: Duration) -> Instant {
        let by = by.min(self.grace);
        self.grace -= by;
        self.at += by;
        self.at
    }
}

/// The transport's end, by the kind of its fault.
fn lost(error: io::Error) -> ConnectionError {
    match TlsFault::of(&error) {
        Some(fault) => fault.clone().into(),
        None => ConnectionError::Lost { source: Arc::new(error) },
    }
}

/// An end before anything was answered has a cause that can be guessed.
fn hinted(error: io::Error, hint: &str) -> io::Error {
    if is_tls(&error) || error.kind() != io::ErrorKind::UnexpectedEof {
        return error;
    }
    io::Error::new(error.kind(), format!("{error} before it answered anything; {hint}"))
}

fn is_tls(error: &io::Error) -> bool {
    TlsFault::of(error).is_some()
}

/// What follows an answer's header: version 1 of it ends in tagged fields (KIP-482).
fn response_body(api: ApiKey, version: i16, frame: &Bytes) -> Result<Bytes, DecodeError> {
    let body = frame.slice(CORRELATION_ID_BYTES..);
    let header_version = Key::try_from(api.0).map_or(0, |key| key.response_header_version(version));
    if header_version == 0 {
        return Ok(body);
    }
    let tags = tags_length(&body).map_err(|source| DecodeError::Malformed { api, version, source })?;
    Ok(body.slice(tags..))
}

const CORRELATION_ID_BYTES: usize = 4;

/// How many of the longest silences in a row a request may sit out.
const GRACE: u32 = 4;

const WANTS_TLS: &str = "a listener that wants TLS does that to plain text";
const WANTS_LOGIN: &str = "a listener that wants a login does that to who makes none";

const API_VERSIONS: ApiKey = ApiKey(18);

#[cfg(test)]
mod tests;
