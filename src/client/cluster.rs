//! The cluster as one client knows it: metadata, coordinators, connections.
//!
//! ```text
//!   topics, invalidate ─► Metadata (machine) ─► task: asks one broker after another ─► view, to all who watch
//!   connections ─► Connections ─► Connection ─ fault ─► invalidate
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use kafka_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse};
use kafka_protocol::protocol::{Request, StrBytes};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, sleep_until, timeout_at};

use super::ClientError;
use super::config::ClientConfig;
use super::connection::{Connection, Connections, Route, WeakConnection, deadline_in, now};
use crate::error::Blame;
use crate::machine::connection::{ConnectionError, Throttled};
use crate::machine::metadata::{BrokerAddress, ClusterView, Event, LeaderHint, Metadata, Round};
use crate::observe;
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic, TopicPartition};

/// What one client knows of its cluster. Cheap to clone; with the last clone everything is closed, without waiting.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Owner>);

/// Why the view is old. Kept apart for the log alone: each asks for a fresh view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stale {
    /// A broker said that it does not lead this partition, or no leader is known.
    Leader(TopicPartition),
    /// An admin request changed the cluster, or met a broker that knows better.
    Admin(&'static str),
    /// A connection to the broker failed. Connections report it by themselves.
    Transport(NodeId),
}

/// What a coordinator coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(crate) enum CoordinatorKind {
    /// A consumer group, by its id.
    Group = 0,
    /// The transactions of a transactional id.
    Transaction = 1,
}

impl Cluster {
    /// Knows nothing, connects to nothing.
    pub(crate) fn new(config: ClientConfig) -> Self {
        let config = Arc::new(config);
        let inner = Arc::new_cyclic(|weak: &Weak<Inner>| Inner {
            metadata: Mutex::new(Metadata::new(config.metadata)),
            general: Connections::new(weak.clone(), config.clone()),
            config,
            view: watch::Sender::new(Arc::default()),
            rounds: watch::Sender::new(None),
            driven: AtomicBool::new(false),
            wake: Arc::new(Notify::new()),
            closed: watch::Sender::new(false),
            next_broker: AtomicUsize::new(fastrand::usize(..1 << 16)),
            coordinators: Mutex::default(),
            locked_out_told: Mutex::default(),
            opened: Mutex::default(),
        });
        Self(Arc::new(Owner(inner)))
    }

    /// What the client was built with.
    pub(crate) fn config(&self) -> &ClientConfig {
        &self.0.0.config
    }

    /// The last good view.
    pub(crate) fn view(&self) -> Arc<ClusterView> {
        self.0.0.view.borrow().clone()
    }

    /// The view, and every later one: each answer to a metadata request makes one, whether or not it changed anything.
    pub(crate) fn changed(&self) -> watch::Receiver<Arc<ClusterView>> {
        self.0.0.view.subscribe()
    }

    /// A view that has these topics, which are kept fresh from now on for as long as they are [in use](Self::keep).
    ///
    /// Without a request if it has them already. A topic that does not exist is no error: it is in the view, with
    /// the broker's code.
    pub(crate) async fn topics(&self, topics: &[Topic], deadline: Instant) -> Result<Arc<ClusterView>, ClientError> {
        let round = self.0.0.metadata().want(now(), topics);
        self.fetched(round, deadline).await
    }

    /// As [`topics`](Self::topics), from a request that begins after this call.
    pub(crate) async fn refreshed(&self, topics: &[Topic], deadline: Instant) -> Result<Arc<ClusterView>, ClientError> {
        let round = self.0.0.metadata().refresh(now(), topics);
        self.fetched(Some(round), deadline).await
    }

    /// Asks for a fresh view soon. Calls of the same moment are met by one request; a wait stands between requests.
    pub(crate) fn invalidate(&self, why: Stale) {
        self.0.0.invalidate(&why);
    }

    /// These topics are in use. Those that are not for `metadata_max_idle` are forgotten, and asked for again by the next who
    /// needs them.
    pub(crate) fn keep<'a>(&self, topics: impl IntoIterator<Item = &'a Topic>) {
        let new = self.0.0.metadata().keep(now(), topics);
        if new {
            self.0.0.drive();
        }
    }

    /// Takes in what an answer said of leaders; returns the partitions whose leader is now known to be as it said.
    pub(crate) fn learn_leaders(&self, hints: &[LeaderHint]) -> Vec<TopicPartition> {
        if hints.is_empty() {
            return Vec::new();
        }
        let (learned, view) = {
            let mut metadata = self.0.0.metadata();
            (metadata.learn_leaders(hints), metadata.view().clone())
        };
        self.0.0.publish(view);
        learned
    }

    /// A set of connections of its own.
    pub(crate) fn connections(&self) -> Connections {
        Connections::new(Arc::downgrade(&self.0.0), self.0.0.config.clone())
    }

    /// The connections for metadata, coordinator lookups and admin requests.
    pub(crate) fn general(&self) -> &Connections {
        &self.0.0.general
    }

    /// The broker that coordinates this group or transactional id. Remembered until it is
    /// [forgotten](Self::forget_coordinator).
    pub(crate) async fn coordinator(
        &self,
        kind: CoordinatorKind,
        key: &str,
        deadline: Instant,
    ) -> Result<NodeId, ClientError> {
        if let Some(node) = self.0.0.coordinators().get(&(kind, key.to_owned())) {
            return Ok(*node);
        }
        let what = || format!("coordinator of {} {key}", kind.noun());
        let mut last = None;
        for failures in 1.. {
            match self.find_coordinator(kind, key, deadline).await {
                Ok(node) => return Ok(node),
                Err(error) if !error.is_retriable() && error.blame() != Blame::Peer => return Err(error),
                Err(error) => last = Some(error),
            }
            let wait = self.config().retry_delay(failures);
            if now() + wait >= deadline {
                break;
            }
            sleep(wait).await;
        }
        Err(ClientError::timed_out(what(), last))
    }

    /// The coordinator has moved, or does not answer.
    pub(crate) fn forget_coordinator(&self, kind: CoordinatorKind, key: &str) {
        self.0.0.coordinators().remove(&(kind, key.to_owned()));
    }

    /// Sends a request that any broker can answer, to one after another until one does.
    pub(crate) async fn call_any<R>(
        &self,
        what: &str,
        deadline: Instant,
        build: impl Fn(i16) -> R + Clone + Send + Sync + 'static,
    ) -> Result<R::Response, ClientError>
    where
        R: Request,
    {
        let mut last = None;
        for failures in 1.. {
            let view = self.topics(&[], deadline).await?;
            let nodes: Vec<_> = view.brokers.keys().copied().collect();
            let first = self.0.0.next_broker.load(Ordering::Relaxed);
            for at in 0..nodes.len() {
                let Some(left) = left_until(deadline) else { break };
                let node = nodes[(first.wrapping_add(at)) % nodes.len()];
                let timeout = left.min(self.config().request_timeout);
                match self.general().to(node).call_with(i16::MAX, timeout, build.clone()).await {
                    Ok(response) => return Ok(response),
                    // What one broker garbles, another may say.
                    Err(error) if !error.is_retriable() && error.blame() != Blame::Peer => {
                        return Err(ClientError::request(what, error));
                    }
                    Err(error) => {
                        self.0.0.next_broker.fetch_add(1, Ordering::Relaxed);
                        last = Some(ClientError::request(what, error));
                    }
                }
            }
            let wait = self.config().retry_delay(failures);
            if now() + wait >= deadline {
                break;
            }
            sleep(wait).await;
        }
        Err(ClientError::timed_out(what, last))
    }

    /// Whether [`close`](Self::close) was called.
    pub(crate) fn is_closed(&self) -> bool {
        *self.0.0.closed.borrow()
    }

    /// Returns once [`close`](Self::close) was called.
    pub(crate) async fn when_closed(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.0.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Returns when no connection has anything queued or under way.
    pub(crate) async fn quiet(&self) {
        let opened = self.0.0.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for connection in opened {
            connection.quiet().await;
        }
    }

    /// Ends every connection. What is under way fails; later calls are refused.
    pub(crate) fn close(&self) {
        self.0.0.close();
    }

    async fn fetched(&self, round: Option<Round>, deadline: Instant) -> Result<Arc<ClusterView>, ClientError> {
        let Some(round) = round else { return Ok(self.view()) };
        let inner = &self.0.0;
        let mut rounds = inner.rounds.subscribe();
        inner.drive();
        let mut closed = inner.closed.subscribe();
        let met = async {
            let mut failed = rounds.borrow_and_update().clone();
            loop {
                if failed.is_none() && inner.metadata().is_over(round) {
                    return Some(Ok(()));
                }
                rounds.changed().await.ok()?;
                failed = rounds.borrow_and_update().clone();
                // A failed round is followed by another; the deadline ends it, or that no other could do better.
                if let Some(error) = failed.as_ref().filter(|error| error.is_locked_out()) {
                    return Some(Err((**error).clone()));
                }
            }
        };
        tokio::select! {
            biased;
            Some(met) = met => met.map(|()| self.view()),
            _ = closed.wait_for(|closed| *closed) => Err(ClientError::Closed),
            () = sleep_until(deadline.into()) => {
                let last = inner.rounds.borrow().clone();
                Err(ClientError::timed_out("metadata", last.map(|error| (*error).clone())))
            }
            else => Err(ClientError::Closed),
        }
    }

    async fn find_coordinator(
        &self,
        kind: CoordinatorKind,
        key: &str,
        deadline: Instant,
    ) -> Result<NodeId, ClientError> {
        let what = format!("coordinator of {} {key}", kind.noun());
        let name = StrBytes::from_string(key.to_owned());
        let build = move |version| {
            let request = FindCoordinatorRequest::default().with_key_type(kind as i8);
            if version >= FIRST_WITH_MANY_KEYS {
                request.with_coordinator_keys(vec![name.clone()])
            } else {
                request.with_key(name.clone())
            }
        };
        let response = self.call_any(&what, deadline, build).await?;
        let found = Found::in_response(response, key).ok_or_else(|| ClientError::LeftOut { what: what.clone() })?;
        found.code.ok().map_err(|code| ClientError::refused(&what, code, found.message.as_deref()))?;
        let inner = &self.0.0;
        inner.learn_broker(found.node, found.address);
        let mut coordinators = inner.coordinators();
        if coordinators.len() >= COORDINATORS_KEPT {
            coordinators.clear();
        }
        coordinators.insert((kind, key.to_owned()), found.node);
        Ok(found.node)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("bootstrap", &self.config().bootstrap).finish_non_exhaustive()
    }
}

impl CoordinatorKind {
    fn noun(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Transaction => "transactional id",
        }
    }
}

/// Closes the cluster with its last handle.
struct Owner(Arc<Inner>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What handles and tasks share. Connections and tasks hold it weakly, so that handles alone keep it.
pub(in crate::client) struct Inner {
    config: Arc<ClientConfig>,
    metadata: Mutex<Metadata>,
    view: watch::Sender<Arc<ClusterView>>,
    /// Told at the end of each round: its error, if it failed.
    rounds: watch::Sender<Option<Arc<ClientError>>>,
    /// Whether the metadata task runs.
    driven: AtomicBool,
    wake: Arc<Notify>,
    closed: watch::Sender<bool>,
    general: Connections,
    /// Moves on when a broker fails.
    next_broker: AtomicUsize,
    coordinators: Mutex<HashMap<(CoordinatorKind, String), NodeId>>,
    /// When observers were last told that a broker does not let this client in.
    locked_out_told: Mutex<BTreeMap<Option<NodeId>, Instant>>,
    /// Every connection that was handed out, to be closed.
    opened: Mutex<Vec<WeakConnection>>,
}

impl Inner {
    /// Takes note of a connection, to close it with the rest.
    fn register(&self, connection: &Connection) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|connection| !connection.is_gone());
        opened.push(connection.downgrade());
        drop(opened);
        // After the push: a close that comes between the two must not miss it.
        if *self.closed.borrow() {
            connection.close();
        }
    }

    fn metadata(&self) -> MutexGuard<'_, Metadata> {
        self.metadata.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn coordinators(&self) -> MutexGuard<'_, HashMap<(CoordinatorKind, String), NodeId>> {
        self.coordinators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn invalidate(self: &Arc<Self>, why: &Stale) {
        tracing::debug!(?why, "metadata is old");
        let topic = match why {
            Stale::Leader(partition) => Some(&partition.topic),
            Stale::Admin(_) | Stale::Transport(_) => None,
        };
        self.metadata().invalidate(now(), topic);
        self.drive();
    }

    fn throttled(&self, broker: Option<NodeId>, Throttled { api, silence }: Throttled) {
        self.config.meter.throttled(api, silence);
        let api = api.name().unwrap_or("unknown");
        self.config.observers.throttled(&observe::Throttled { broker, api, silence });
    }

    /// Tells observers of a broker that does not let this client in, once in a while.
    fn note_locked_out(&self, broker: Option<NodeId>, error: &ConnectionError) {
        if !error.is_locked_out() {
            return;
        }
        {
            let (now, mut told) = (now(), self.locked_out_told.lock().unwrap_or_else(PoisonError::into_inner));
            told.retain(|_, told| now < *told + LOCKED_OUT_TOLD_EVERY);
            if told.contains_key(&broker) {
                return;
            }
            told.insert(broker, now);
        }
        let text = match broker {
            Some(node) => format!("broker {node} does not let this client in: {error}"),
            None => format!("a broker does not let this client in: {error}"),
        };
        self.config.observers.error(&observe::ErrorReported {
            error: observe::ErrorInfo {
                error,
                name: "ConnectionError",
                code: "LOCKED_OUT",
                text: &text,
                retryable: false,
            },
            scope: observe::ErrorScope::Adapter,
            group: None,
            topic: None,
        });
    }

    fn learn_broker(&self, node: NodeId, address: BrokerAddress) {
        let view = {
            let mut metadata = self.metadata();
            metadata.learn_broker(node, address);
            metadata.view().clone()
        };
        self.publish(view);
    }

    /// Shows a view that no metadata request made.
    fn publish(&self, view: Arc<ClusterView>) {
        self.view.send_if_modified(|old| {
            let changed = !Arc::ptr_eq(old, &view);
            *old = view;
            changed
        });
    }

    /// Starts the metadata task, or lets it look again.
    fn drive(self: &Arc<Self>) {
        self.wake.notify_one();
        // Outside of a runtime there is nobody to wait for metadata either.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if !*self.closed.borrow() && !self.driven.swap(true, Ordering::AcqRel) {
            runtime.spawn(keep_fresh(Arc::downgrade(self), self.wake.clone()));
        }
    }

    fn close(&self) {
        self.closed.send_replace(true);
        self.wake.notify_one();
        let opened = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        opened.iter().for_each(WeakConnection::close);
    }

    async fn ask(self: &Arc<Self>, request: MetadataRequest) {
        match self.ask_anyone(request).await {
            Ok(response) => {
                let (events, view) = {
                    let mut metadata = self.metadata();
                    let events = metadata.handle_response(now(), response, fastrand::f64());
                    (events, metadata.view().clone())
                };
                for Event::Recreated { topic, old, new } in events {
                    tracing::warn!(%topic, %old, %new, "topic was deleted and created anew");
                }
                // The view first: who is told of the round's end reads it.
                self.view.send_replace(view);
                self.rounds.send_replace(None);
            }
            Err(error) => {
                tracing::warn!(%error, "no broker answered for metadata");
                self.metadata().handle_failure(now(), fastrand::f64());
                self.rounds.send_replace(Some(Arc::new(error)));
            }
        }
    }

    /// Asks the brokers that are known, then the bootstrap addresses, each once.
    async fn ask_anyone(self: &Arc<Self>, request: MetadataRequest) -> Result<MetadataResponse, ClientError> {
        let nodes: Vec<_> = self.view.borrow().brokers.keys().copied().collect();
        let first = self.next_broker.load(Ordering::Relaxed);
        let mut last = ClientError::Closed;
        // What keeps this client out is told rather than that another broker is away.
        let mut note = |error: ClientError| {
            if !last.is_locked_out() {
                last = error;
            }
        };
        for at in 0..nodes.len() {
            let connection = self.general.to(nodes[first.wrapping_add(at) % nodes.len()]);
            match self.ask_one(&connection, request.clone()).await {
                Ok(response) => return Ok(response),
                Err(error) => note(error),
            }
            self.next_broker.fetch_add(1, Ordering::Relaxed);
        }
        // The order given is kept: the first address is often the preferred one.
        for address in &self.config.bootstrap {
            let route = BootstrapRoute { cluster: Arc::downgrade(self), address: address.clone() };
            let connection = Connection::new(&self.config, Arc::new(route));
            match self.ask_one(&connection, request.clone()).await {
                Ok(response) => return Ok(response),
                Err(error) => note(error),
            }
        }
        Err(last)
    }

    async fn ask_one(
        &self,
        connection: &Connection,
        request: MetadataRequest,
    ) -> Result<MetadataResponse, ClientError> {
        let timeout = self.config.request_timeout.min(A_TRY);
        let mut closed = self.closed.subscribe();
        let answer = tokio::select! {
            biased;
            answer = connection.call(request, timeout) => answer,
            _ = closed.wait_for(|closed| *closed) => return Err(ClientError::Closed),
        };
        let response = answer.map_err(|error| ClientError::request("metadata", error))?;
        // Version 13 can say that this broker is no place to ask (KIP-1102).
        ErrorCode(response.error_code).ok().map_err(|code| ClientError::refused("metadata", code, None))?;
        Ok(response)
    }
}

/// A connection to a broker by its node id, closed with the cluster.
pub(in crate::client) fn connection_to(cluster: &Weak<Inner>, config: &ClientConfig, node: NodeId) -> Connection {
    let connection = Connection::new(config, Arc::new(NodeRoute { cluster: cluster.clone(), node }));
    match cluster.upgrade() {
        Some(inner) => inner.register(&connection),
        None => connection.close(),
    }
    connection
}

/// The metadata task: asks when it is time, as long as the cluster lives.
async fn keep_fresh(cluster: Weak<Inner>, wake: Arc<Notify>) {
    let _ended = Ended(cluster.clone());
    loop {
        let Some(inner) = cluster.upgrade() else { return };
        if *inner.closed.borrow() {
            return;
        }
        let (request, timeout) = {
            let mut metadata = inner.metadata();
            (metadata.poll_request(now()), metadata.poll_timeout())
        };
        if let Some(request) = request {
            inner.ask(request).await;
            continue;
        }
        drop(inner);
        let timeout = timeout.unwrap_or_else(|| deadline_in(FOREVER));
        // Whether it was woken or it is time: look again.
        let _ = timeout_at(timeout.into(), wake.notified()).await;
    }
}

/// A task that ends early, with its runtime, must be started again by the next who needs it.
struct Ended(Weak<Inner>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.metadata().abandon(now());
            inner.driven.store(false, Ordering::Release);
        }
    }
}

/// To a broker by its node id, wherever the view says that it is.
struct NodeRoute {
    cluster: Weak<Inner>,
    node: NodeId,
}

impl Route for NodeRoute {
    fn address(&self) -> Result<BrokerAddress, ConnectionError> {
        let inner = self.cluster.upgrade().ok_or(ConnectionError::Closed)?;
        let view = inner.view.borrow();
        let broker = view.brokers.get(&self.node).ok_or(ConnectionError::UnknownBroker { node: self.node.0 })?;
        Ok(broker.address.clone())
    }

    fn failed(&self, error: &ConnectionError) {
        if let Some(inner) = self.cluster.upgrade() {
            tracing::debug!(node = %self.node, %error, "connection failed");
            inner.note_locked_out(Some(self.node), error);
            inner.invalidate(&Stale::Transport(self.node));
        }
    }

    fn throttled(&self, throttled: Throttled) {
        if let Some(inner) = self.cluster.upgrade() {
            inner.throttled(Some(self.node), throttled);
        }
    }
}

impl fmt::Debug for NodeRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broker {}", self.node)
    }
}

/// To an address that the caller gave.
struct BootstrapRoute {
    cluster: Weak<Inner>,
    address: BrokerAddress,
}

impl Route for BootstrapRoute {
    fn address(&self) -> Result<BrokerAddress, ConnectionError> {
        Ok(self.address.clone())
    }

    fn failed(&self, error: &ConnectionError) {
        tracing::debug!(address = %self.address, %error, "bootstrap connection failed");
        if let Some(inner) = self.cluster.upgrade() {
            inner.note_locked_out(None, error);
        }
    }

    fn throttled(&self, throttled: Throttled) {
        if let Some(inner) = self.cluster.upgrade() {
            inner.throttled(None, throttled);
        }
    }
}

impl fmt::Debug for BootstrapRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bootstrap address {}", self.address)
    }
}

/// What an answer says of one coordinator.
struct Found {
    code: ErrorCode,
    message: Option<String>,
    node: NodeId,
    address: BrokerAddress,
}

impl Found {
    fn in_response(response: FindCoordinatorResponse, key: &str) -> Option<Self> {
        let found = response.coordinators.into_iter().find(|coordinator| coordinator.key.as_str() == key);
        let (code, message, node, host, port) = match found {
            Some(found) => (found.error_code, found.error_message, found.node_id, found.host, found.port),
            // Before version 4 the answer is about the one key that was asked for.
            None if response.node_id.0 >= 0 && !response.host.is_empty() || response.error_code != 0 => {
                (response.error_code, response.error_message, response.node_id, response.host, response.port)
            }
            None => return None,
        };
        let port = u16::try_from(port).ok();
        if code == 0 && (node.0 < 0 || port.is_none()) {
            return None;
        }
        Some(Self {
            code: ErrorCode(code),
            message: message.map(|message| message.to_string()),
            node: NodeId(node.0),
            address: BrokerAddress::new(&*host, port.unwrap_or(0)),
        })
    }
}

/// What is left until then; `None` if nothing is.
pub(crate) fn left_until(deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(now());
    (!left.is_zero()).then_some(left)
}

/// The first FindCoordinator that asks for many at once (KIP-699).
const FIRST_WITH_MANY_KEYS: i16 = 4;

/// How long one broker may take to answer for metadata before the next is asked: a broker that hangs must not use up
/// the time of a caller who could be served by another.
const A_TRY: Duration = Duration::from_secs(5);

/// A client that is kept out tries often, on many connections; that often is it told of one broker.
const LOCKED_OUT_TOLD_EVERY: Duration = Duration::from_secs(10);

/// Coordinators that are remembered. A tool that walks every group of a large cluster passes it.
const COORDINATORS_KEPT: usize = 10_000;

const FOREVER: Duration = Duration::from_secs(3600);
