//! Pushes what this client measures of itself to brokers that want to know (KIP-714).
//!
//! ```text
//!   connections ─► Meter ─► task: subscription, a push at its time (machine::telemetry) ─► any broker
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kafka_protocol::messages::{GetTelemetrySubscriptionsRequest, PushTelemetryRequest};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;
use uuid::Uuid;

use super::meter::{Counts, Times};
use super::{Client, ClientError, Cluster, deadline_in, now};
use crate::machine::connection::RequestError;
use crate::machine::telemetry::{self as machine, Step, Subscription};
use crate::protocol::api::ApiKey;
use crate::protocol::compression::{Codec, compress};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::otlp::{Metric, Snapshot, Value};

/// Pushes a client's metrics to its brokers until it is closed or dropped. It keeps the client's connections.
///
/// Which metrics, and how often, brokers say by their [subscriptions](super::ConfigResource::ClientMetrics); where there is none, or no
/// plugin that takes metrics, nothing is pushed. What is pushed are counts and times of this client's requests, under the
/// names of Java's client: `org.apache.kafka.producer.request.latency.avg` and the like. Nothing of records is in it.
pub struct Telemetry {
    shared: Arc<Shared>,
    done: Option<oneshot::Receiver<Result<(), ClientError>>>,
}

impl Client {
    /// Begins to push this client's metrics to brokers that want them (KIP-714). Off unless this is called. Java:
    /// `enable.metrics.push`, there on by default.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn push_telemetry(&self) -> Telemetry {
        let cluster = self.cluster().clone();
        cluster.config().meter.turn_on();
        let shared =
            Arc::new(Shared { instance_id: Mutex::new(Uuid::nil()), end: Notify::new(), until: Mutex::new(None) });
        let (finished, done) = oneshot::channel();
        let task = Task { cluster, shared: shared.clone(), sums: BTreeMap::new(), since: wall_nanos() };
        tokio::spawn(async move {
            // Nobody may wait for it.
            let _ = finished.send(task.run().await);
        });
        Telemetry { shared, done: Some(done) }
    }
}

impl Telemetry {
    /// The id that brokers know this client by, once one gave it: what an operator finds its metrics under. Java:
    /// `clientInstanceId`.
    pub fn instance_id(&self) -> Option<Uuid> {
        let id = *self.shared.instance_id.lock().unwrap_or_else(PoisonError::into_inner);
        (!id.is_nil()).then_some(id)
    }

    /// Pushes once more, as the last time, and ends.
    ///
    /// # Errors
    /// When that fails, or is not done at `timeout`. Nothing is pushed any more all the same.
    ///
    /// # Cancel safety
    /// Dropping the future ends it without the last push.
    pub async fn close(mut self, timeout: Duration) -> Result<(), ClientError> {
        *self.shared.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline_in(timeout));
        self.shared.end.notify_one();
        let Some(done) = self.done.take() else { return Ok(()) };
        match tokio::time::timeout(timeout, done).await {
            Ok(Ok(ended)) => ended,
            // The runtime is shut down, and the task with it.
            Ok(Err(_)) => Err(ClientError::Closed),
            Err(_) => Err(ClientError::timed_out(PUSH, None)),
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.shared.end.notify_one();
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("instance_id", &self.instance_id()).finish_non_exhaustive()
    }
}

struct Shared {
    instance_id: Mutex<Uuid>,
    /// Told when it is to end.
    end: Notify,
    /// Until when the last push may take; none where it is dropped.
    until: Mutex<Option<Instant>>,
}

struct Task {
    cluster: Cluster,
    shared: Arc<Shared>,
    /// What sums were when they were last pushed.
    sums: BTreeMap<String, u64>,
    /// Since when they count, in nanoseconds since 1970.
    since: u64,
}

impl Task {
    async fn run(mut self) -> Result<(), ClientError> {
        let mut machine = machine::Telemetry::new(now());
        let (shared, cluster) = (self.shared.clone(), self.cluster.clone());
        loop {
            tokio::select! {
                biased;
                () = shared.end.notified() => break,
                () = cluster.when_closed() => return Err(ClientError::Closed),
                over = self.step(&mut machine) => if over { break },
            }
        }
        let until = *shared.until.lock().unwrap_or_else(PoisonError::into_inner);
        match (until, machine.last_push().cloned()) {
            (Some(until), Some(subscription)) => self.push(machine.instance_id(), &subscription, true, until).await,
            _ => Ok(()),
        }
    }

    /// Does what is due, or waits; tells whether it is over.
    async fn step(&mut self, machine: &mut machine::Telemetry) -> bool {
        let deadline = deadline_in(self.cluster.config().request_timeout);
        match machine.poll_step(now()) {
            Step::Over => return true,
            Step::Wait(until) => sleep_until(until.into()).await,
            Step::Subscribe => match self.subscribe(machine.instance_id(), deadline).await {
                Ok((id, subscription)) => {
                    *self.shared.instance_id.lock().unwrap_or_else(PoisonError::into_inner) = id;
                    tracing::debug!(%id, ?subscription, "telemetry is subscribed");
                    machine.handle_subscription(now(), id, subscription, fastrand::f64());
                }
                Err(ClientError::Request { source: RequestError::Unsupported(_), .. }) => machine.handle_unsupported(),
                Err(error) => {
                    tracing::debug!(%error, "telemetry is not subscribed");
                    machine.handle_refused_subscription(now(), error.code());
                }
            },
            Step::Push(subscription) => {
                let pushed = self.push(machine.instance_id(), &subscription, false, deadline).await;
                if let Err(error) = &pushed {
                    tracing::debug!(%error, "telemetry is not pushed");
                }
                let code = pushed.map_or_else(|error| error.code(), |()| Some(ErrorCode::NONE));
                machine.handle_pushed(now(), code);
            }
        }
        false
    }

    async fn subscribe(&self, instance_id: Uuid, deadline: Instant) -> Result<(Uuid, Subscription), ClientError> {
        const WHAT: &str = "get telemetry subscriptions";
        let build = move |_| GetTelemetrySubscriptionsRequest::default().with_client_instance_id(instance_id);
        let answer = self.cluster.call_any(WHAT, deadline, build).await?;
        ErrorCode(answer.error_code).ok().map_err(|code| ClientError::refused(WHAT, code, None))?;
        let subscription = Subscription {
            id: answer.subscription_id,
            interval: Duration::from_millis(u64::try_from(answer.push_interval_ms).unwrap_or(0)),
            codecs: answer.accepted_compression_types,
            max_bytes: usize::try_from(answer.telemetry_max_bytes).unwrap_or(0),
            delta: answer.delta_temporality,
            metrics: answer.requested_metrics.iter().map(ToString::to_string).collect(),
        };
        Ok((answer.client_instance_id, subscription))
    }

    /// Pushes what is wanted; what was not taken is told with the next push.
    async fn push(
        &mut self,
        instance_id: Uuid,
        subscription: &Subscription,
        terminating: bool,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let before = (self.sums.clone(), self.since);
        let payload = self.measure(instance_id, subscription);
        let pushed = self.try_push(instance_id, subscription, terminating, &payload, deadline).await;
        if pushed.is_err() {
            (self.sums, self.since) = before;
        }
        pushed
    }

    async fn try_push(
        &self,
        instance_id: Uuid,
        subscription: &Subscription,
        terminating: bool,
        payload: &[u8],
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let (codec, bytes) = packed(payload, &subscription.codecs);
        if bytes.len() > subscription.max_bytes {
            let why = "not sent: larger than the broker takes";
            return Err(ClientError::refused(PUSH, ErrorCode::TELEMETRY_TOO_LARGE, Some(why)));
        }
        let (id, bytes) = (subscription.id, Bytes::from(bytes));
        let build = move |_| {
            PushTelemetryRequest::default()
                .with_client_instance_id(instance_id)
                .with_subscription_id(id)
                .with_terminating(terminating)
                .with_compression_type(codec)
                .with_metrics(bytes.clone())
        };
        let answer = self.cluster.call_any(PUSH, deadline, build).await?;
        ErrorCode(answer.error_code).ok().map_err(|code| ClientError::refused(PUSH, code, None))
    }

    /// What is wanted of what was counted, as it is pushed.
    fn measure(&mut self, instance_id: Uuid, subscription: &Subscription) -> Vec<u8> {
        let mut metrics = metrics(&self.cluster.config().meter.take());
        metrics.retain(|metric| subscription.wants(&metric.name));
        for metric in &mut metrics {
            let Value::Sum(total) = &mut metric.value else { continue };
            let before = self.sums.insert(metric.name.clone(), *total).unwrap_or(0);
            if subscription.delta {
                *total = total.saturating_sub(before);
            }
        }
        let (since, at) = (self.since, wall_nanos());
        if subscription.delta {
            self.since = at;
        }
        let instance = instance_id.to_string();
        let resource = [("client_instance_id", instance.as_str())];
        Snapshot { resource: &resource, since, at, delta: subscription.delta, metrics }.encode()
    }
}

/// All that is known, under the names of Java's client.
fn metrics(counts: &Counts) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let mut add = |name: String, value| metrics.push(Metric { name, attributes: Vec::new(), value });
    for role in ["producer", "consumer"] {
        let measured = MEASURED.iter().filter(|measured| measured.role == role);
        let measured: Vec<_> = measured.filter_map(|it| Some((it, counts.of(it.apis)?))).collect();
        // A client that never produced is no producer.
        if measured.is_empty() {
            continue;
        }
        add(format!("{PREFIX}.{role}.connection.creation.total"), Value::Sum(counts.connections));
        for (Measured { group, total, time, throttle, .. }, answers) in measured {
            let name = |rest: &str| format!("{PREFIX}.{role}.{group}{rest}");
            add(name(&format!("{total}.total")), Value::Sum(answers.total));
            add_times(&mut add, &name(time), &answers.times);
            if let Some(throttle) = throttle {
                add_times(&mut add, &name(throttle), &answers.throttled);
            }
        }
    }
    metrics
}

fn add_times(add: &mut impl FnMut(String, Value), name: &str, times: &Times) {
    for (end, value) in [("avg", times.mean_ms()), ("max", times.max_ms())] {
        if let Some(value) = value {
            add(format!("{name}.{end}"), Value::Gauge(value));
        }
    }
}

/// What is measured of APIs, and how Java names it.
struct Measured {
    apis: &'static [ApiKey],
    role: &'static str,
    group: &'static str,
    total: &'static str,
    time: &'static str,
    throttle: Option<&'static str>,
}

const MEASURED: &[Measured] = &[
    Measured {
        apis: &[ApiKey(0)],
        role: "producer",
        group: "",
        total: "request",
        time: "request.latency",
        throttle: Some("produce.throttle.time"),
    },
    Measured {
        apis: &[ApiKey(1)],
        role: "consumer",
        group: "fetch.manager.",
        total: "fetch",
        time: "fetch.latency",
        throttle: Some("fetch.throttle.time"),
    },
    Measured::of_coordinator(&[ApiKey(8)], "commit", "commit.latency"),
    Measured::of_coordinator(&[ApiKey(11)], "join", "join.time"),
    Measured::of_coordinator(&[ApiKey(12), ApiKey(68)], "heartbeat", "heartbeat.response.time"),
    Measured::of_coordinator(&[ApiKey(14)], "sync", "sync.time"),
];

impl Measured {
    const fn of_coordinator(apis: &'static [ApiKey], total: &'static str, time: &'static str) -> Self {
        Self { apis, role: "consumer", group: "coordinator.", total, time, throttle: None }
    }
}

/// The payload in the first codec that the broker accepts and that is compiled in, and that codec's number.
fn packed(payload: &[u8], accepted: &[i8]) -> (i8, Vec<u8>) {
    for number in accepted {
        let Some(codec) = u8::try_from(*number).ok().and_then(Codec::from_bits) else { continue };
        let mut bytes = Vec::new();
        if compress(codec.into(), payload, &mut bytes).is_ok() {
            return (*number, bytes);
        }
    }
    (0, payload.to_vec())
}

const PUSH: &str = "push telemetry";
const PREFIX: &str = "org.apache.kafka";

fn wall_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
