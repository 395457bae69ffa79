//! One broker for one purpose: a handle that requests are called on, and the task that moves their bytes.
//!
//! ```text
//!   call ───┐                        ┌─ connect ─► Stream
//!   call ───┼─► Link (under a lock) ◄┤  write   ◄─ segments
//!   raw ────┘     answers ──► callers└─ read    ─► frames
//! ```
//!
//! The task exists while there is a transport, or one is wanted. The lock is never held across an await.

mod driver;
mod set;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::protocol::Request;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::config::ClientConfig;
use super::login::Login;
use super::meter::Meter;
use super::transport::Connector;
use crate::machine::connection::{
    self as machine, Answer, ConnectionError, Done, Encode, Limits, Link, ProtocolViolation, RequestError, Throttled,
};
use crate::machine::metadata::BrokerAddress;
use crate::protocol::api::ApiKey;
use crate::protocol::request::EncodedRequest;
use crate::protocol::response::decode_body;
use crate::protocol::versions::NegotiatedVersions;

pub(crate) use set::Connections;

/// A broker, for one purpose. Cheap to clone; all clones share one transport, made at the first request.
///
/// A transport that ends fails what was on it and is made again, after a wait that grows with failures in a row, at
/// the next request. With the last clone it is closed, once nothing is under way.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Owner>);

impl Connection {
    /// A connection that is not made yet.
    pub(crate) fn new(config: &ClientConfig, route: Arc<dyn Route>) -> Self {
        let inner = Inner {
            link: Link::new(config.wire_client_id.clone(), config.link.clone(), config.mechanism(), now()),
            driven: false,
            orphaned: false,
            changed: false,
            waker: None,
        };
        let (limits, connector, login) = (config.link.clone(), config.connector.clone(), config.login.clone());
        Self(Arc::new(Owner(Arc::new(Shared {
            inner: Mutex::new(inner),
            quiet: Notify::new(),
            limits,
            connector,
            login,
            route,
            meter: config.meter.clone(),
        }))))
    }

    /// Sends a request in the highest version that both sides know, and waits for its answer.
    ///
    /// Requests are written in the order of the first poll. Dropping the future does not take the request back.
    pub(crate) async fn call<R>(&self, request: R, timeout: Duration) -> Result<R::Response, RequestError>
    where
        R: Request + Send + 'static,
    {
        self.call_with(i16::MAX, timeout, move |_| request).await
    }

    /// As [`call`](Self::call), for a request whose form depends on the version, in no version above `max`.
    pub(crate) async fn call_with<R>(
        &self,
        max: i16,
        timeout: Duration,
        build: impl FnOnce(i16) -> R + Send + 'static,
    ) -> Result<R::Response, RequestError>
    where
        R: Request,
    {
        let api = ApiKey::of::<R>();
        let encode = move |versions: &NegotiatedVersions| {
            let version = versions.choose_up_to(api, max)?;
            Ok(EncodedRequest::new(&build(version), version)?)
        };
        let answer = self.submit(api, Box::new(encode), deadline_in(timeout)).answer().await?;
        decode_body::<R>(answer.body, answer.version).map_err(|error| {
            self.distrust(api);
            error.into()
        })
    }

    /// Sends a request whose body is made once the broker's versions are known. It is in the queue when this returns:
    /// requests are written in the order of the calls.
    pub(crate) fn send_late(
        &self,
        api: ApiKey,
        timeout: Duration,
        encode: impl FnOnce(&NegotiatedVersions) -> Result<EncodedRequest, RequestError> + Send + 'static,
    ) -> RawResponse {
        self.submit(api, Box::new(encode), deadline_in(timeout))
    }

    /// An answer that came here cannot be read: whatever else is on its way from that peer is not waited for.
    pub(crate) fn distrust(&self, api: ApiKey) {
        self.0.0.distrust(api);
    }

    /// How long the broker asked for silence here, from now on: nothing is written meanwhile (KIP-219).
    pub(crate) fn muted_for(&self) -> Duration {
        self.0.0.lock().link.muted_for(now())
    }

    /// A handle that does not keep the connection.
    pub(crate) fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.0.0))
    }

    /// Ends the connection for good: what is under way fails, later requests are refused.
    pub(crate) fn close(&self) {
        self.0.0.close();
    }

    fn submit(&self, api: ApiKey, encode: Encode, deadline: Instant) -> RawResponse {
        let (sender, receiver) = oneshot::channel();
        let request = machine::Request { api, encode, deadline, waiter: sender };
        self.0.0.submit(request);
        let meter = &self.0.0.meter;
        let metered = meter.is_wanted().then(|| (meter.clone(), now()));
        RawResponse { api, receiver, metered }
    }
}

/// A connection that others keep.
#[derive(Clone)]
pub(crate) struct WeakConnection(Weak<Shared>);

impl WeakConnection {
    /// Whether nobody keeps it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Returns when nothing is queued and nothing under way.
    pub(crate) async fn quiet(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.until_quiet().await;
        }
    }

    /// As [`Connection::close`].
    pub(crate) fn close(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.close();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.0.0.route).finish()
    }
}

/// Where a connection leads. Asked anew for each transport, because brokers move.
pub(crate) trait Route: fmt::Debug + Send + Sync + 'static {
    /// The address now.
    fn address(&self) -> Result<BrokerAddress, ConnectionError>;

    /// A transport could not be made, or ended by a fault.
    fn failed(&self, error: &ConnectionError);

    /// The broker asked for silence.
    fn throttled(&self, throttled: Throttled);
}

/// The body of an answer, after its header.
///
/// Dropping it does not take the request back.
#[derive(Debug)]
pub(crate) struct RawResponse {
    api: ApiKey,
    receiver: oneshot::Receiver<Result<Answer, RequestError>>,
    /// Who wants to know how long it takes, and since when it does.
    metered: Option<(Arc<Meter>, Instant)>,
}

impl RawResponse {
    async fn answer(mut self) -> Result<Answer, RequestError> {
        std::future::poll_fn(|cx| self.poll_answer(cx)).await
    }

    /// The answer's body, and the version it is in.
    pub(crate) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, RequestError>> {
        Pin::new(&mut self.receiver).poll(cx).map(|received| {
            // Every request is answered, also by the end of its connection; without a sender nobody can say more.
            let result = received.unwrap_or_else(|_| {
                Err(RequestError::Unanswered { api: self.api, cause: Arc::new(ConnectionError::Closed) })
            });
            if let (Ok(answer), Some((meter, since))) = (&result, self.metered.take()) {
                meter.answered(self.api, now().saturating_duration_since(since), answer.body.len());
            }
            result
        })
    }
}

impl Future for RawResponse {
    type Output = Result<Bytes, RequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_answer(cx).map_ok(|answer| answer.body)
    }
}

type Waiter = oneshot::Sender<Result<Answer, RequestError>>;

/// Lets the task know when the last handle goes.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        let waker = {
            let mut inner = self.0.lock();
            inner.orphaned = true;
            inner.notice()
        };
        wake(waker);
    }
}

struct Shared {
    inner: Mutex<Inner>,
    /// Told when a request is over and no other is left.
    quiet: Notify,
    limits: Limits,
    connector: Arc<dyn Connector>,
    login: Option<Login>,
    route: Arc<dyn Route>,
    meter: Arc<Meter>,
}

struct Inner {
    link: Link<Waiter>,
    /// Whether a task drives the link.
    driven: bool,
    /// Whether no handle is left.
    orphaned: bool,
    /// Whether something happened that the task has not seen.
    changed: bool,
    waker: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing under the lock runs foreign code that could panic half way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(self: &Arc<Self>, request: machine::Request<Waiter>) {
        let runtime = Handle::try_current();
        let (waker, start) = {
            let mut inner = self.lock();
            inner.link.handle_request(now(), request);
            let start = !inner.driven && inner.link.is_busy();
            inner.driven |= start;
            (inner.notice(), start)
        };
        wake(waker);
        match runtime {
            Ok(runtime) if start => drop(runtime.spawn(driver::drive(self.clone()))),
            // Outside of a runtime nobody can drive it.
            Err(_) if start => driver::give_up(self),
            _ => {}
        }
        self.settle();
    }

    fn distrust(&self, api: ApiKey) {
        let waker = {
            let mut inner = self.lock();
            inner.link.handle_violation(now(), ProtocolViolation::Malformed { api }, fastrand::f64());
            inner.notice()
        };
        wake(waker);
        self.settle();
    }

    fn close(&self) {
        let waker = {
            let mut inner = self.lock();
            inner.link.close();
            inner.notice()
        };
        wake(waker);
        self.settle();
    }

    async fn until_quiet(&self) {
        loop {
            let quiet = self.quiet.notified();
            if !self.lock().link.is_busy() {
                return;
            }
            quiet.await;
        }
    }

    /// Hands out what is over.
    fn settle(&self) {
        loop {
            let (done, busy) = {
                let mut inner = self.lock();
                (inner.link.poll_done(), inner.link.is_busy())
            };
            let Some(Done { waiter, result }) = done else { return };
            // A caller that stopped waiting misses nothing.
            let _ = waiter.send(result);
            if !busy {
                self.quiet.notify_waiters();
            }
        }
    }
}

impl Inner {
    fn notice(&mut self) -> Option<Waker> {
        self.changed = true;
        self.waker.take()
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The time that timers go by: under a paused runtime it is virtual.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The deadline of something that may take this long. A time beyond what can be told is thirty years.
pub(crate) fn deadline_in(timeout: Duration) -> Instant {
    let now = now();
    now.checked_add(timeout).unwrap_or_else(|| now + Duration::from_secs(60 * 60 * 24 * 365 * 30))
}
