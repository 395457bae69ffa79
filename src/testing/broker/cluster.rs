//! The cluster as a machine: frames in, answers out, time handed in.
//!
//! ```text
//!   handle(connection, frame) ──► queue ──► under way ──answer──► poll_output ──► the connection's stream
//!                                 │  ▲         │  ▲
//!                                 │  └─────────┘  └── poll(now): what waits is asked again
//!                                 one at a time, as a broker serves a connection
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::api::{self, Served};
use super::call::{Call, ConnectionId, Head, Hostile};
use super::core::Core;
use super::faults::{Effect, Rule, RuleId};
#[cfg(feature = "sasl")]
use super::logins::Door;
use super::node::Listener;
use super::settings::Settings;
use crate::machine::metadata::BrokerAddress;
#[cfg(feature = "sasl")]
use crate::protocol::error_code::ErrorCode;

/// Several brokers that act as one cluster, without sockets, tasks or a clock.
///
/// Whoever drives it opens connections, hands over what clients sent, and carries away what [`poll_output`](Self::poll_output)
/// gives; [`poll_timeout`](Self::poll_timeout) tells when [`poll`](Self::poll) is due. All that is random comes from
/// [`Settings::seed`]: the same calls give the same answers.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use kafka_harbor::testing::broker::{Cluster, Listener, Output, Settings};
///
/// let now = Instant::now();
/// let mut cluster = Cluster::new(Settings::default(), now);
/// let connection = cluster.connect(1, Listener::InProcess, now).expect("node 1 runs");
/// // ApiVersions in version 0, correlation id 7, no client id.
/// cluster.handle(connection, (&b"\0\x12\0\0\0\0\0\x07\xff\xff"[..]).into(), now);
/// let Some(Output::Send { frame, .. }) = cluster.poll_output() else { panic!("no answer") };
/// assert_eq!(frame[4..8], [0, 0, 0, 7]);
/// ```
#[derive(Debug)]
pub struct Cluster {
    pub(super) core: Core,
    connections: BTreeMap<ConnectionId, Connection>,
    outputs: VecDeque<Output>,
    next_connection: u64,
    /// The revision of the core that everything that waits was last asked at.
    asked_at: u64,
}

/// What is to be done to a connection's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Send these bytes: a whole frame with its length, or the first bytes of one that a fault cut.
    Send {
        /// On this connection.
        connection: ConnectionId,
        /// The bytes.
        frame: Bytes,
    },
    /// Close it. The cluster has forgotten it already.
    Close {
        /// This connection.
        connection: ConnectionId,
    },
}

#[derive(Debug)]
struct Connection {
    node: i32,
    listener: Listener,
    queue: VecDeque<Bytes>,
    state: State,
}

/// What a connection is at.
///
/// ```text
///   Idle ──frame──► (Held ──►) Waiting ──answer──► (Late ──►) sent ──► (Muted ──►) Idle
///                        └────────────── Stuck: nothing is answered any more
/// ```
enum State {
    Idle,
    /// A request that a fault holds back until this time.
    Held {
        until: Instant,
        request: Box<dyn api::Prepared>,
        call: Call,
    },
    /// A request whose answer waits for something.
    Waiting {
        until: Option<Instant>,
        poll: api::Pending,
        after: After,
    },
    /// An answer that a fault holds back until this time.
    Late {
        until: Instant,
        frame: Bytes,
    },
    /// Throttled.
    Muted {
        until: Instant,
    },
    /// A fault keeps it silent.
    Stuck,
}

/// What a fault does to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Send,
    Late(Duration),
    Drop,
    Close,
    Cut(usize),
    Throttle(Duration),
}

impl Cluster {
    /// A cluster that begins now, all nodes running.
    pub fn new(settings: Settings, now: Instant) -> Self {
        Self {
            core: Core::new(settings, now),
            connections: BTreeMap::new(),
            outputs: VecDeque::new(),
            next_connection: 0,
            asked_at: 0,
        }
    }

    /// Where clients that came in this way find a node.
    pub fn advertise(&mut self, node: i32, listener: Listener, address: BrokerAddress) {
        self.core.nodes.advertise(node, listener, address);
    }

    /// Where clients that came in this way find a node; `None` for one that does not exist.
    pub fn address(&self, node: i32, listener: Listener) -> Option<BrokerAddress> {
        self.core.nodes.get(node).map(|node| node.address(listener))
    }

    /// The ids of all nodes.
    pub fn nodes(&self) -> Vec<i32> {
        self.core.nodes.ids()
    }

    /// The ids of the nodes that run.
    pub(super) fn running(&self) -> impl Iterator<Item = i32> {
        self.core.nodes.up().map(|node| node.id)
    }

    /// A client connects to a node. `None` where nobody listens, or there are as many connections as there may be.
    pub fn connect(&mut self, node: i32, listener: Listener, _now: Instant) -> Option<ConnectionId> {
        if !self.core.nodes.is_up(node) || self.connections.len() >= self.core.settings.max_connections {
            return None;
        }
        self.next_connection += 1;
        let id = ConnectionId(self.next_connection);
        let connection = Connection { node, listener, queue: VecDeque::new(), state: State::Idle };
        self.connections.insert(id, connection);
        Some(id)
    }

    /// A client's end is closed. What it waited for is given up.
    pub fn disconnect(&mut self, connection: ConnectionId, _now: Instant) {
        self.forget(connection);
        self.core.share_disconnected(connection);
    }

    /// Whether it was open.
    fn forget(&mut self, connection: ConnectionId) -> bool {
        #[cfg(feature = "sasl")]
        self.core.logins.forget(connection);
        self.connections.remove(&connection).is_some()
    }

    /// A frame has come, its length taken off. Frames of a connection that is closed are passed over.
    pub fn handle(&mut self, connection: ConnectionId, frame: Bytes, now: Instant) {
        let limits = (self.core.settings.max_request_bytes, self.core.settings.max_queued_requests);
        let Some(open) = self.connections.get_mut(&connection) else { return };
        if frame.len() > limits.0 {
            return self.hostile(connection, &Hostile::TooLarge(frame.len()));
        }
        if open.queue.len() >= limits.1 {
            return self.hostile(connection, &Hostile::TooManyQueued);
        }
        open.queue.push_back(frame);
        self.advance(connection, now);
        self.settle(now);
    }

    /// Does what is due: timers, what waits, what was held back.
    pub fn poll(&mut self, now: Instant) {
        if self.core.poll_timeout().is_some_and(|at| at <= now) {
            self.core.handle_timeout(now);
        }
        let due = |open: &Connection| open.state.until().is_some_and(|at| at <= now);
        let due: Vec<ConnectionId> = self.connections.iter().filter(|(_, open)| due(open)).map(|(id, _)| *id).collect();
        for connection in due {
            self.advance(connection, now);
        }
        self.settle(now);
    }

    /// When [`poll`](Self::poll) is due. Ask again after every call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let runs = |node: i32| self.core.nodes.get(node).is_some_and(|node| !node.is_paused);
        let timed = self.connections.values().filter_map(|open| Some((open.state.until()?, open.node)));
        timed.filter(|(_, node)| runs(*node)).map(|(until, _)| until).chain(self.core.poll_timeout()).min()
    }

    /// What is to be done to a stream next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A rule to hold requests against from now on.
    pub fn order(&mut self, rule: Rule) -> RuleId {
        self.core.faults.add(rule)
    }

    /// Takes a rule back; answers how many requests suffered from it, `None` for one that is used up or unknown.
    pub fn withdraw(&mut self, rule: RuleId) -> Option<u64> {
        self.core.faults.withdraw(rule)
    }

    /// Takes every rule back.
    pub fn withdraw_all(&mut self) {
        self.core.faults.clear();
    }

    /// How many rules are not used up.
    pub fn rules_left(&self) -> usize {
        self.core.faults.len()
    }

    /// How many frames of a connection wait for their turn. Who reads from streams stops where this grows.
    pub fn backlog(&self, connection: ConnectionId) -> usize {
        self.connections.get(&connection).map_or(0, |open| open.queue.len())
    }

    /// The connections that are open, with the nodes that they are to.
    pub fn connections(&self) -> Vec<(ConnectionId, i32)> {
        self.connections.iter().map(|(id, open)| (*id, open.node)).collect()
    }

    /// Closes a connection from the broker's side.
    pub fn close(&mut self, connection: ConnectionId) {
        if self.forget(connection) {
            self.outputs.push_back(Output::Close { connection });
        }
    }

    /// Asks all that waits, as long as something changes by it.
    pub(super) fn settle(&mut self, now: Instant) {
        while self.asked_at != self.core.revision() {
            self.asked_at = self.core.revision();
            let waiting = |open: &Connection| matches!(open.state, State::Waiting { .. });
            let ids: Vec<_> = self.connections.iter().filter(|(_, open)| waiting(open)).map(|(id, _)| *id).collect();
            for connection in ids {
                self.advance(connection, now);
            }
        }
    }

    /// Takes a connection as far as it goes now.
    pub(super) fn advance(&mut self, connection: ConnectionId, now: Instant) {
        while let Some(open) = self.connections.get_mut(&connection) {
            if self.core.nodes.get(open.node).is_none_or(|node| node.is_paused) {
                return;
            }
            match std::mem::replace(&mut open.state, State::Idle) {
                State::Idle => {
                    let Some(frame) = open.queue.pop_front() else { return };
                    self.begin(connection, &frame, now);
                }
                State::Held { until, request, call } if until <= now => {
                    self.serve(request, Call { now, ..call }, After::Send);
                }
                State::Late { until, frame } if until <= now => self.send(connection, frame),
                State::Muted { until } if until <= now => {}
                State::Waiting { until, mut poll, after } => match poll(&mut self.core, now) {
                    Some(Ok(frame)) => self.answered(connection, frame, after, now),
                    Some(Err(hostile)) => return self.hostile(connection, &hostile),
                    None => {
                        // What has nothing to say at its time waits for a change.
                        let until = until.filter(|until| *until > now);
                        open.state = State::Waiting { until, poll, after };
                        return;
                    }
                },
                waits => {
                    open.state = waits;
                    return;
                }
            }
        }
    }

    /// A request's turn has come: does a fault meet it?
    fn begin(&mut self, connection: ConnectionId, frame: &Bytes, now: Instant) {
        let (mut call, request) = match self.prepare(connection, frame, now) {
            Ok(prepared) => prepared,
            Err(hostile) => return self.hostile(connection, &hostile),
        };
        #[cfg(feature = "sasl")]
        match self.core.lets_in(&call) {
            Door::Open => {}
            Door::Busy => {
                let refused = request.refuse(&mut self.core, &call, ErrorCode::ILLEGAL_SASL_STATE);
                self.served(connection, refused, After::Send, now);
                return self.close(connection);
            }
            Door::Shut => return self.hostile(connection, &Hostile::NotLoggedIn(call.api)),
        }
        let mut faults = std::mem::take(&mut self.core.faults);
        let suffered = faults.take(&call, || request.names(&self.core, &call));
        self.core.faults = faults;
        let Some(suffered) = suffered else { return self.serve(request, call, After::Send) };
        let Some(open) = self.connections.get_mut(&connection) else { return };
        match suffered.effect {
            Effect::Silence => open.state = State::Stuck,
            Effect::Close => self.close(connection),
            Effect::Delay(time) => open.state = State::Held { until: now + time, request, call },
            Effect::Fail(code) if suffered.failing.is_none() => {
                let refused = request.refuse(&mut self.core, &call, code);
                self.served(connection, refused, After::Send, now);
            }
            Effect::Fail(_) => {
                call.failing = suffered.failing;
                self.serve(request, call, After::Send);
            }
            Effect::FailAfter(code) => {
                let served = request.serve_and_refuse(&mut self.core, call, code);
                self.served(connection, served, After::Send, now);
            }
            Effect::DelayAnswer(time) => self.serve(request, call, After::Late(time)),
            Effect::DropAnswer => self.serve(request, call, After::Drop),
            Effect::CloseAfter => self.serve(request, call, After::Close),
            Effect::Cut(bytes) => self.serve(request, call, After::Cut(bytes)),
            Effect::Throttle(time) => {
                call.throttle = time;
                self.serve(request, call, After::Throttle(time));
            }
        }
    }

    fn serve(&mut self, request: Box<dyn api::Prepared>, call: Call, after: After) {
        let (connection, now) = (call.connection, call.now);
        let served = request.serve(&mut self.core, call);
        self.served(connection, served, after, now);
    }

    fn served(&mut self, connection: ConnectionId, served: Result<Served, Hostile>, after: After, now: Instant) {
        match served {
            Ok(Served::Frame(frame)) => self.answered(connection, frame, after, now),
            Ok(Served::Waits { until, poll }) => {
                if let Some(open) = self.connections.get_mut(&connection) {
                    open.state = State::Waiting { until, poll, after };
                }
            }
            Ok(Served::Nothing) => {}
            Ok(Served::Close) => self.close(connection),
            #[cfg(feature = "sasl")]
            Ok(Served::Last(frame)) => {
                self.answered(connection, frame, After::Send, now);
                self.close(connection);
            }
            Err(hostile) => self.hostile(connection, &hostile),
        }
    }

    fn answered(&mut self, connection: ConnectionId, frame: Bytes, after: After, now: Instant) {
        let Some(open) = self.connections.get_mut(&connection) else { return };
        match after {
            After::Send => self.send(connection, frame),
            After::Late(time) => open.state = State::Late { until: now + time, frame },
            After::Drop => open.state = State::Stuck,
            After::Close => self.close(connection),
            After::Cut(bytes) => {
                let cut = frame.slice(..bytes.min(frame.len()));
                self.send(connection, cut);
                self.close(connection);
            }
            After::Throttle(time) => {
                open.state = State::Muted { until: now + time };
                self.send(connection, frame);
            }
        }
    }

    fn send(&mut self, connection: ConnectionId, frame: Bytes) {
        self.outputs.push_back(Output::Send { connection, frame });
    }

    /// Closes the connection of a client that sent what no sound client sends.
    fn hostile(&mut self, connection: ConnectionId, what: &Hostile) {
        tracing::debug!(connection = connection.0, error = %what, "the dev broker closes a connection");
        self.close(connection);
    }

    fn prepare(
        &self,
        connection: ConnectionId,
        frame: &Bytes,
        now: Instant,
    ) -> Result<(Call, Box<dyn api::Prepared>), Hostile> {
        let open = self.connections.get(&connection).ok_or(Hostile::Short)?;
        let head = Head::read(frame)?;
        let mut call = Call {
            node: open.node,
            connection,
            listener: open.listener,
            api: head.api,
            version: head.version,
            correlation_id: head.correlation_id,
            client_id: None,
            now,
            throttle: Duration::ZERO,
            failing: None,
        };
        let request = api::prepare(&mut call, &head)?;
        Ok((call, request))
    }
}

impl State {
    fn until(&self) -> Option<Instant> {
        match self {
            Self::Idle | Self::Stuck => None,
            Self::Held { until, .. } | Self::Late { until, .. } | Self::Muted { until } => Some(*until),
            Self::Waiting { until, .. } => *until,
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Held { .. } => "Held",
            Self::Waiting { .. } => "Waiting",
            Self::Late { .. } => "Late",
            Self::Muted { .. } => "Muted",
            Self::Stuck => "Stuck",
        })
    }
}
