//! What clients push of their metrics (KIP-714), as Kafka's `ClientMetricsManager` takes it.
//!
//! Subscriptions are the settings of that kind. Their `match` knows `client_id` alone, as a text or as one with `.*` at its end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use uuid::Uuid;

use super::configs::Given;
use super::core::Core;
use crate::protocol::compression::{Codec, inflate};
use crate::protocol::error_code::ErrorCode;

/// Clients that were given an id, and what they pushed last.
#[derive(Debug, Default)]
pub(super) struct Telemetry {
    clients: BTreeMap<Uuid, ClientState>,
    pushed: VecDeque<PushedMetrics>,
}

#[derive(Debug)]
struct ClientState {
    subscription: i32,
    asked_at: Instant,
    pushed_at: Option<Instant>,
    terminated: bool,
}

/// Metrics that a client pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushedMetrics {
    /// The client, by the id that it was given.
    pub client_instance_id: Uuid,
    /// Whether it said that it ends.
    pub terminating: bool,
    /// A `MetricsData` of OpenTelemetry, inflated.
    pub metrics: Bytes,
}

/// What a client is to push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) instance_id: Uuid,
    pub(super) subscription: i32,
    pub(super) interval: Duration,
    /// Prefixes; one empty text for all.
    pub(super) metrics: Vec<String>,
}

/// A push, as a request has it.
#[derive(Debug)]
pub(super) struct Push {
    pub(super) instance_id: Uuid,
    pub(super) subscription: i32,
    pub(super) terminating: bool,
    pub(super) codec: i8,
    pub(super) metrics: Bytes,
}

impl Telemetry {
    /// What was pushed, the oldest first; as many as are kept.
    pub(super) fn pushed(&self) -> impl Iterator<Item = &PushedMetrics> {
        self.pushed.iter()
    }
}

impl Core {
    /// Tells a client what to push; gives it an id where it has none.
    pub(super) fn subscribe(&mut self, instance_id: Uuid, client_id: &str, now: Instant) -> Result<Wanted, ErrorCode> {
        let instance_id = if instance_id.is_nil() { self.random.uuid() } else { instance_id };
        let (subscription, interval, metrics) = self.wanted_of(client_id);
        if let Some(known) = self.telemetry.clients.get(&instance_id) {
            let early = now < known.asked_at + interval && known.subscription == subscription;
            if early && known.pushed_at.is_none_or(|at| at <= known.asked_at) {
                return Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED);
            }
        } else if self.telemetry.clients.len() >= MAX_CLIENTS {
            return Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED);
        }
        let state = ClientState { subscription, asked_at: now, pushed_at: None, terminated: false };
        self.telemetry.clients.insert(instance_id, state);
        Ok(Wanted { instance_id, subscription, interval, metrics })
    }

    /// Takes a push.
    pub(super) fn push_telemetry(&mut self, push: Push, client_id: &str, now: Instant) -> Result<(), ErrorCode> {
        if push.instance_id.is_nil() {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        let (subscription, interval, _) = self.wanted_of(client_id);
        let unknown = || ClientState { subscription, asked_at: now, pushed_at: None, terminated: false };
        if self.telemetry.clients.len() >= MAX_CLIENTS && !self.telemetry.clients.contains_key(&push.instance_id) {
            return Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED);
        }
        let client = self.telemetry.clients.entry(push.instance_id).or_insert_with(unknown);
        if client.terminated {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if push.subscription != subscription {
            return Err(ErrorCode::UNKNOWN_SUBSCRIPTION_ID);
        }
        let early = client.pushed_at.is_some_and(|at| now < at + interval);
        if early && !push.terminating {
            return Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED);
        }
        (client.pushed_at, client.terminated) = (Some(now), push.terminating);
        let codec = u8::try_from(push.codec).ok().and_then(Codec::from_bits);
        let codec = codec.ok_or(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE)?;
        if push.metrics.len() > MAX_BYTES {
            return Err(ErrorCode::TELEMETRY_TOO_LARGE);
        }
        let metrics = inflate(codec, &push.metrics, MAX_INFLATED_BYTES).map_err(|_| ErrorCode::INVALID_RECORD)?;
        if self.telemetry.pushed.len() >= PUSHES_KEPT {
            self.telemetry.pushed.pop_front();
        }
        self.telemetry.pushed.push_back(PushedMetrics {
            client_instance_id: push.instance_id,
            terminating: push.terminating,
            metrics: metrics.into(),
        });
        Ok(())
    }

    /// Number, interval and metrics of all subscriptions that a client fits, taken together.
    fn wanted_of(&self, client_id: &str) -> (i32, Duration, Vec<String>) {
        let mut interval = DEFAULT_INTERVAL;
        let mut metrics = BTreeSet::new();
        for given in self.configs.client_metrics.values().filter(|given| fits(given, client_id)) {
            let asked = given.get("interval.ms").and_then(|text| text.trim().parse().ok()).map(Duration::from_millis);
            interval = interval.min(asked.unwrap_or(DEFAULT_INTERVAL));
            let names = given.get("metrics").map_or("", String::as_str).split(',').map(str::trim);
            metrics.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
        }
        if metrics.contains("*") {
            metrics = BTreeSet::from([String::new()]);
        }
        if metrics.is_empty() {
            return (0, interval, Vec::new());
        }
        // Another one for other metrics or another time; never 0, which is none.
        let text = format!("{interval:?}{metrics:?}");
        let number = text.bytes().fold(7_i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
        (number.max(1), interval, metrics.into_iter().collect())
    }
}

fn fits(given: &Given, client_id: &str) -> bool {
    let patterns = given.get("match").map_or("", String::as_str).split(',').map(str::trim);
    patterns.filter(|pattern| !pattern.is_empty()).all(|pattern| match pattern.split_once('=') {
        Some(("client_id", wanted)) => match wanted.strip_suffix(".*") {
            Some(prefix) => client_id.starts_with(prefix),
            None => client_id == wanted,
        },
        _ => false,
    })
}

/// `ClientMetricsConfigs.INTERVAL_MS_DEFAULT`.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(300);
/// `telemetry.max.bytes`.
pub(super) const MAX_BYTES: usize = 1 << 20;
const MAX_INFLATED_BYTES: usize = 16 << 20;

/// Bounds on memory.
const MAX_CLIENTS: usize = 10_000;
const PUSHES_KEPT: usize = 100;
