//! The cluster behind streams: in process, and on sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::call::ConnectionId;
use super::cluster::{Cluster, Output};
use super::control;
use super::faults::{Rule, RuleId};
#[cfg(feature = "kafka")]
use super::network::Network;
use super::node::Listener;
use super::settings::Settings;
use crate::machine::metadata::BrokerAddress;
use crate::memory::TopicConfig;
use crate::protocol::frame;

/// A cluster of brokers for tests and demonstrations. Cheap to clone; it ends with the last clone, and so do its
/// connections.
///
/// # Examples
///
/// ```
/// use kafka_harbor::record::Record;
/// use kafka_harbor::testing::broker::DevBroker;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
/// # runtime.block_on(async {
/// let broker = DevBroker::builder().nodes(3).topic("orders", 6).start().await?;
/// let client = broker.client_config().build()?;
/// let producer = client.producer().build()?;
/// let written = producer.send(Record::new("orders", "first")).await?;
/// assert_eq!(written.offset.map(|offset| offset.0), Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct DevBroker {
    shared: Arc<Shared>,
    _running: Arc<Running>,
}

impl DevBroker {
    /// Options of a cluster.
    pub fn builder() -> DevBrokerBuilder {
        DevBrokerBuilder {
            settings: Settings::default(),
            topics: Vec::new(),
            listen: None,
            control: None,
            advertised_host: None,
            beyond_loopback: false,
        }
    }

    /// Where clients within the process find the nodes: `host:port` of each, comma-separated. The addresses mean something
    /// to [`client_config`](Self::client_config) and what is made from it alone.
    pub fn bootstrap(&self) -> String {
        self.shared.lock().addresses(Listener::InProcess)
    }

    /// Where clients on sockets find the nodes: `host:port` of each, comma-separated. Empty without
    /// [`listen`](DevBrokerBuilder::listen).
    pub fn tcp_bootstrap(&self) -> String {
        if self.shared.listens { self.shared.lock().addresses(Listener::Tcp) } else { String::new() }
    }

    /// Where orders are taken, if they are.
    pub fn control_address(&self) -> Option<SocketAddr> {
        self.shared.control
    }

    /// Options of a client of this cluster, over streams within the process.
    #[cfg(feature = "kafka")]
    pub fn client_config(&self) -> crate::client::ClientBuilder {
        crate::client::Client::builder([self.bootstrap()]).connector(self.connector(None))
    }

    /// Options of a client of this cluster that reaches it through this network alone.
    #[cfg(feature = "kafka")]
    pub fn client_config_over(&self, network: &Network) -> crate::client::ClientBuilder {
        crate::client::Client::builder([self.bootstrap()]).connector(self.connector(Some(network.clone())))
    }

    /// Options of the harbor's adapter to this cluster, over streams within the process.
    #[cfg(feature = "kafka")]
    pub fn adapter_config(&self) -> crate::adapter::kafka::KafkaAdapterBuilder {
        crate::adapter::kafka::KafkaAdapter::builder([self.bootstrap()]).connector(self.connector(None))
    }

    /// Opens a stream to a node, as a client within the process does.
    ///
    /// # Errors
    /// `ConnectionRefused` where the node does not run.
    pub fn connect(&self, node: i32) -> io::Result<tokio::io::DuplexStream> {
        self.shared.connect(node)
    }

    /// Acts on the cluster, or looks at it. Answers that follow from it leave when this returns.
    pub fn act<T>(&self, act: impl FnOnce(&mut Cluster, Instant) -> T) -> T {
        self.shared.drive(act)
    }

    /// A rule to hold requests against from now on.
    pub fn order(&self, rule: Rule) -> RuleId {
        self.act(|cluster, _| cluster.order(rule))
    }

    /// Takes a rule back; answers how many requests suffered from it, `None` for one that is used up or unknown.
    pub fn withdraw(&self, rule: RuleId) -> Option<u64> {
        self.act(|cluster, _| cluster.withdraw(rule))
    }

    #[cfg(feature = "kafka")]
    fn connector(&self, network: Option<Network>) -> Arc<dyn crate::client::transport::Connector> {
        Arc::new(InProcess { shared: Arc::clone(&self.shared), network })
    }
}

impl fmt::Debug for DevBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevBroker").field("bootstrap", &self.bootstrap()).finish_non_exhaustive()
    }
}

/// Options of a [`DevBroker`].
#[derive(Debug, Clone)]
#[must_use]
pub struct DevBrokerBuilder {
    settings: Settings,
    topics: Vec<(String, i32)>,
    listen: Option<SocketAddr>,
    control: Option<SocketAddr>,
    advertised_host: Option<String>,
    beyond_loopback: bool,
}

impl DevBrokerBuilder {
    /// How many nodes there are, with ids from 1. Default 1, at most 100.
    pub fn nodes(mut self, nodes: i32) -> Self {
        self.settings.nodes = nodes;
        self
    }

    /// What every random choice comes from. Default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// A topic that is there from the start, with as many replicas as there are nodes, up to three.
    pub fn topic(mut self, name: impl Into<String>, partitions: i32) -> Self {
        self.topics.push((name.into(), partitions));
        self
    }

    /// Changes the other settings.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Listens on sockets too: the first node on this address, each further one on the next port. With port 0 each gets
    /// one that is free.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Takes orders on this address, as [`control`](super::control) tells; port 0 takes one that is free.
    pub fn control(mut self, address: SocketAddr) -> Self {
        self.control = Some(address);
        self
    }

    /// The host that clients on sockets are sent to. Default: the address that is listened on.
    pub fn advertised_host(mut self, host: impl Into<String>) -> Self {
        self.advertised_host = Some(host.into());
        self
    }

    /// Lets [`listen`](Self::listen) and [`control`](Self::control) take an address that others than this machine reach. Whoever reaches it can read, write
    /// and delete everything, and order faults.
    pub fn dangerously_beyond_loopback(mut self) -> Self {
        self.beyond_loopback = true;
        self
    }

    /// Starts the nodes, on the runtime that this is called in.
    ///
    /// # Errors
    /// When an address cannot be listened on, is not this machine's own, or a topic cannot be created.
    ///
    /// # Cancel safety
    /// Dropping the future starts nothing.
    pub async fn start(self) -> Result<DevBroker, StartError> {
        let now = now();
        let mut cluster = Cluster::new(self.settings, now);
        let replicas = cluster.nodes().len().min(3) as i16;
        for (name, partitions) in self.topics {
            let created = cluster.create_topic(name.as_str(), partitions, replicas, TopicConfig::default(), now);
            created.map_err(|code| StartError::Topic { name, code })?;
        }
        let outside = |address: &&SocketAddr| !address.ip().is_loopback() && !self.beyond_loopback;
        if let Some(address) = [&self.listen, &self.control].into_iter().flatten().find(outside) {
            return Err(StartError::BeyondLoopback { address: *address });
        }
        let listeners = match self.listen {
            Some(address) => listen(&mut cluster, address, self.advertised_host.as_deref()).await?,
            None => Vec::new(),
        };
        let control = match self.control {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                cluster,
                streams: BTreeMap::new(),
                gated: BTreeSet::new(),
                asleep_until: None,
                stopped: false,
            }),
            wake: Notify::new(),
            running: watch::Sender::default(),
            listens: !listeners.is_empty(),
            control: control.as_ref().map(|(address, _)| *address),
        });
        shared.tell_who_runs(&shared.lock());
        let mut tasks = vec![tokio::spawn(tick(Arc::clone(&shared))).abort_handle()];
        for (node, listener) in listeners {
            tasks.push(tokio::spawn(accept(Arc::clone(&shared), node, listener)).abort_handle());
        }
        if let Some((_, listener)) = control {
            tasks.push(tokio::spawn(take_orders(Arc::clone(&shared), listener)).abort_handle());
        }
        let running = Running { shared: Arc::clone(&shared), tasks };
        Ok(DevBroker { shared, _running: Arc::new(running) })
    }
}

/// A dev broker that cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is reached from outside this machine, and that was not asked for.
    #[error("{address} is not a loopback address; a dev broker lets everyone read, write and delete everything")]
    BeyondLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A topic cannot be created.
    #[error("cannot create the topic {name}: {code}")]
    Topic {
        /// Its name.
        name: String,
        /// Why.
        code: crate::protocol::error_code::ErrorCode,
    },
}

/// What all tasks of a dev broker share.
struct Shared {
    state: Mutex<State>,
    /// The time of the next timer has changed.
    wake: Notify,
    /// The nodes that run, for those that listen for them.
    running: watch::Sender<BTreeSet<i32>>,
    listens: bool,
    control: Option<SocketAddr>,
}

struct State {
    cluster: Cluster,
    streams: BTreeMap<ConnectionId, mpsc::UnboundedSender<Down>>,
    /// Connections that are not read from, because what they sent waits.
    gated: BTreeSet<ConnectionId>,
    asleep_until: Option<Instant>,
    stopped: bool,
}

/// What a connection's task is told.
enum Down {
    Send(Bytes),
    Close,
    /// Read on.
    Read,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held is a fault of ours that its test reports; the state may still be looked at.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts on the cluster and carries away what follows.
    fn drive<T>(&self, act: impl FnOnce(&mut Cluster, Instant) -> T) -> T {
        let mut state = self.lock();
        let done = act(&mut state.cluster, now());
        state.carry_away();
        if self.listens {
            self.tell_who_runs(&state);
        }
        let next = state.cluster.poll_timeout();
        if next.is_some_and(|next| state.asleep_until.is_none_or(|until| next < until)) {
            self.wake.notify_one();
        }
        done
    }

    fn tell_who_runs(&self, state: &State) {
        self.running.send_if_modified(|known| {
            let running: BTreeSet<i32> = state.cluster.running().collect();
            let changed = *known != running;
            *known = running;
            changed
        });
    }

    fn connect(self: &Arc<Self>, node: i32) -> io::Result<tokio::io::DuplexStream> {
        let (here, there) = tokio::io::duplex(STREAM_BYTES);
        self.open(node, Listener::InProcess, there)?;
        Ok(here)
    }

    fn open<S>(self: &Arc<Self>, node: i32, listener: Listener, stream: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.lock();
        let connection = if state.stopped { None } else { state.cluster.connect(node, listener, now()) };
        let connection = connection.ok_or(io::ErrorKind::ConnectionRefused)?;
        state.streams.insert(connection, sender);
        drop(state);
        tokio::spawn(serve(Arc::clone(self), connection, stream, receiver));
        Ok(())
    }
}

impl State {
    fn carry_away(&mut self) {
        while let Some(output) = self.cluster.poll_output() {
            // A task that is gone has taken its connection with it.
            match output {
                Output::Send { connection, frame } => {
                    if let Some(stream) = self.streams.get(&connection) {
                        let _ = stream.send(Down::Send(frame));
                    }
                }
                Output::Close { connection } => {
                    if let Some(stream) = self.streams.remove(&connection) {
                        let _ = stream.send(Down::Close);
                    }
                }
            }
        }
        let (cluster, streams) = (&self.cluster, &self.streams);
        self.gated.retain(|connection| {
            let full = cluster.backlog(*connection) >= READ_AHEAD;
            if !full && let Some(stream) = streams.get(connection) {
                let _ = stream.send(Down::Read);
            }
            full
        });
    }

    fn addresses(&self, listener: Listener) -> String {
        let addresses = self.cluster.nodes().into_iter().filter_map(|node| self.cluster.address(node, listener));
        addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(",")
    }
}

/// Ends everything when it is dropped.
struct Running {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        let mut state = self.shared.lock();
        state.stopped = true;
        // Their tasks end with their senders.
        state.streams.clear();
    }
}

/// Lets the cluster know when time has passed that it waits for.
async fn tick(shared: Arc<Shared>) {
    loop {
        let next = {
            let mut state = shared.lock();
            state.asleep_until = state.cluster.poll_timeout();
            state.asleep_until
        };
        let due = async {
            match next {
                Some(next) => tokio::time::sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = due => shared.drive(|cluster, now| cluster.poll(now)),
            () = shared.wake.notified() => {}
        }
    }
}

async fn listen(
    cluster: &mut Cluster,
    address: SocketAddr,
    advertised: Option<&str>,
) -> Result<Vec<(i32, TcpListener)>, StartError> {
    let mut listeners = Vec::new();
    for (index, node) in (0_u16..).zip(cluster.nodes()) {
        let port = if address.port() == 0 { 0 } else { address.port().saturating_add(index) };
        let address = SocketAddr::new(address.ip(), port);
        let (bound, listener) = bind(address).await?;
        let port = bound.port();
        let host = advertised.map_or_else(|| reachable(address.ip()), ToOwned::to_owned);
        cluster.advertise(node, Listener::Tcp, BrokerAddress::new(host, port));
        listeners.push((node, listener));
    }
    Ok(listeners)
}

async fn bind(address: SocketAddr) -> Result<(SocketAddr, TcpListener), StartError> {
    let bound = TcpListener::bind(address).await;
    let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
    bound.map_err(|source| StartError::Listen { address, source })
}

/// "Every address" is none that a client can connect to.
fn reachable(ip: IpAddr) -> String {
    match ip {
        ip if !ip.is_unspecified() => ip.to_string(),
        IpAddr::V4(_) => "127.0.0.1".to_owned(),
        IpAddr::V6(_) => "::1".to_owned(),
    }
}

/// Listens for a node while it runs. One that does not refuses connections, as a port does that nobody listens on.
async fn accept(shared: Arc<Shared>, node: i32, listener: TcpListener) {
    let mut running = shared.running.subscribe();
    let address = listener.local_addr();
    let mut bound = Some(listener);
    loop {
        let runs = running.borrow_and_update().contains(&node);
        let listener = match (bound.take(), &address) {
            _ if !runs => None,
            (None, Ok(address)) => TcpListener::bind(address).await.ok(),
            (listener, _) => listener,
        };
        let retries = runs && listener.is_none();
        let accepting = async {
            match &listener {
                Some(listener) => accept_all(&shared, node, listener).await,
                // Somebody else has the port for now.
                None if retries => tokio::time::sleep(BIND_PAUSE).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = running.changed() => if changed.is_err() { return },
            () = accepting => {}
        }
        bound = listener;
    }
}

async fn accept_all(shared: &Arc<Shared>, node: i32, listener: &TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // What is refused is closed at once; a socket that is bound cannot refuse.
                let _ = stream.set_nodelay(true).and_then(|()| shared.open(node, Listener::Tcp, stream));
            }
            // Out of file descriptors, or a client that went at once.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves those who give orders, so many at once.
async fn take_orders(shared: Arc<Shared>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_COMMANDERS));
    // Aborted with this task.
    let mut commanders = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while commanders.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                commanders.spawn(async move {
                    // One that hangs up in the middle of a line has nothing more to say.
                    let _ = obey(&shared, stream).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// One order a line, one answer a line, until the other end closes or a line is too long.
async fn obey(shared: &Shared, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut lines).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await?;
        if read == 0 || line.last() != Some(&b'\n') {
            return Ok(());
        }
        let mut answer = shared.drive(|cluster, now| control::carry_out(cluster, &line, now));
        answer.push('\n');
        write.write_all(answer.as_bytes()).await?;
    }
}

/// Carries one connection's bytes, until either end closes.
async fn serve<S>(shared: Arc<Shared>, connection: ConnectionId, mut stream: S, mut down: mpsc::UnboundedReceiver<Down>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut buffer = BytesMut::new();
    let mut reads = true;
    loop {
        let full = !reads && buffer.len() >= READ_AHEAD_BYTES;
        tokio::select! {
            biased;
            told = down.recv() => match told {
                Some(Down::Send(frame)) if stream.write_all(&frame).await.is_ok() => {}
                Some(Down::Read) => match hand_over(&shared, connection, &mut buffer) {
                    Ok(on) => reads = on,
                    Err(_) => break,
                },
                _ => break,
            },
            // Read on even where nothing is handed over, to see the other end close.
            read = read_some(&mut stream, &mut buffer), if !full => match read {
                Ok(1..) if reads => match hand_over(&shared, connection, &mut buffer) {
                    Ok(on) => reads = on,
                    Err(_) => break,
                },
                Ok(1..) => {}
                _ => break,
            },
        }
    }
    shared.drive(|cluster, now| cluster.disconnect(connection, now));
    shared.lock().streams.remove(&connection);
    let _ = stream.shutdown().await;
}

async fn read_some<S: AsyncRead + Unpin>(stream: &mut S, buffer: &mut BytesMut) -> io::Result<usize> {
    // A length that a client claims sizes nothing: the buffer grows as bytes come.
    buffer.reserve(READ_BYTES);
    stream.read_buf(&mut buffer.limit(READ_BYTES)).await
}

/// Hands whole frames to the cluster, as long as it serves them; `false` where it does not keep up.
fn hand_over(shared: &Shared, connection: ConnectionId, buffer: &mut BytesMut) -> Result<bool, frame::FrameError> {
    loop {
        let Some(length) = frame::message_length(buffer, frame::DEFAULT_MAX_FRAME_BYTES)? else { return Ok(true) };
        if buffer.len() - frame::PREFIX_BYTES < length {
            return Ok(true);
        }
        if shared.lock().is_full(connection) {
            return Ok(false);
        }
        buffer.advance(frame::PREFIX_BYTES);
        let message = buffer.split_to(length).freeze();
        shared.drive(|cluster, now| cluster.handle(connection, message, now));
    }
}

impl State {
    /// Whether a connection's requests wait already; it is told when they do not any more.
    fn is_full(&mut self, connection: ConnectionId) -> bool {
        let full = self.cluster.backlog(connection) >= READ_AHEAD;
        if full {
            self.gated.insert(connection);
        }
        full
    }
}

/// Streams to the nodes within the process.
#[cfg(feature = "kafka")]
struct InProcess {
    shared: Arc<Shared>,
    network: Option<Network>,
}

#[cfg(feature = "kafka")]
impl crate::client::transport::Connector for InProcess {
    fn connect<'a>(&'a self, address: &'a BrokerAddress) -> crate::client::transport::Connecting<'a> {
        Box::pin(async move {
            let node = {
                let state = self.shared.lock();
                let at = |node: &i32| state.cluster.address(*node, Listener::InProcess).as_ref() == Some(address);
                state.cluster.nodes().into_iter().find(at)
            };
            let node = node.ok_or(io::ErrorKind::NotFound)?;
            let stream = match &self.network {
                Some(network) => network.carry(node, || self.shared.connect(node)).await?,
                None => self.shared.connect(node)?,
            };
            Ok(Box::new(stream) as Box<dyn crate::client::transport::Stream>)
        })
    }
}

#[cfg(feature = "kafka")]
impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InProcess")
    }
}

/// Tokio's time, which tests may hold.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What a stream within the process holds for one that does not read.
const STREAM_BYTES: usize = 1 << 20;
/// Frames of a connection that may wait in the cluster; the rest waits in the stream.
const READ_AHEAD: usize = 16;
/// Bytes that are read though nothing is handed over.
const READ_AHEAD_BYTES: usize = 1 << 16;
const READ_BYTES: usize = 1 << 16;
/// Connections that may give orders at once; more wait.
const MAX_COMMANDERS: usize = 64;
const MAX_LINE_BYTES: u64 = 1 << 16;
/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// The pause after a port that a node could not have back.
const BIND_PAUSE: Duration = Duration::from_millis(50);
