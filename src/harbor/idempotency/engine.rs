//! The engine: who may run, who waits, and what is told to whom comes later.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::adapter::BoxFuture;
use crate::clock::{Clock, SystemClock};
use crate::harbor::correlation::uuid_v4;
use crate::harbor::duration::IntoPeriod;
use crate::harbor::error::{ConfigError, Problems, code};
use crate::harbor::failure::Failure;
use crate::harbor::guard::GuardedClock;
use crate::harbor::idempotency::store::{
    Acquired, IdempotencyRecord, IdempotencyStatus, IdempotencyStore, Lease, StoreError,
};
use crate::harbor::idempotency::{Execution, Idempotency, IdempotencyKey};
use crate::record::Timestamp;

/// Runs work once for each key, over a store that all who may do it share.
///
/// ```text
///           acquire             work succeeds
///   absent ─────────► in progress ──────────► completed: replayed until `result_ttl` is over
///     ▲                │   │  │ work fails, kept (`persist_failures`)
///     │ released       │   │  └──────────────► failed: fails again until `result_ttl` is over
///     └────────────────┘   └── the lease runs out: whoever comes next takes it
///       work fails, or is given up
/// ```
///
/// It makes repeated deliveries rare, not impossible: a process that dies between its work and the word to the store leaves the key
/// in progress, and the work is done again when the lease has run out. Work whose lease ran out while it was at it has run, and fails with
/// `IDEMPOTENCY_FENCING`.
///
/// ```
/// use kafka_harbor::harbor::{IdempotencyEngine, MemoryIdempotencyStore, OnConflict};
///
/// let engine = IdempotencyEngine::new(MemoryIdempotencyStore::new())
///     .result_ttl("7d")
///     .on_conflict(OnConflict::Wait)
///     .wait_timeout("30s");
/// # let _ = engine;
/// ```
#[must_use = "it does nothing until a consumer is given it"]
pub struct IdempotencyEngine<S> {
    store: Arc<S>,
    clock: Arc<dyn Clock>,
    rules: Rules,
    problems: Problems,
}

#[derive(Debug, Clone)]
struct Rules {
    result_ttl: Duration,
    lock_ttl: Duration,
    on_conflict: OnConflict,
    wait_timeout: Duration,
    max_key_length: usize,
    persist_failures: bool,
    runs_unguarded: bool,
}

/// What becomes of work whose key somebody is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnConflict {
    /// It fails with `IDEMPOTENCY_IN_PROGRESS`, and takes the ladder.
    #[default]
    Reject,
    /// It waits for the other to end, at most for [`wait_timeout`](IdempotencyEngine::wait_timeout).
    Wait,
}

impl<S: IdempotencyStore> IdempotencyEngine<S> {
    /// An engine over this store.
    pub fn new(store: S) -> Self {
        Self::shared(Arc::new(store))
    }

    /// An engine over a store that others use, too.
    pub fn shared(store: Arc<S>) -> Self {
        let rules = Rules {
            result_ttl: Duration::from_secs(86_400),
            lock_ttl: Duration::from_secs(360),
            on_conflict: OnConflict::default(),
            wait_timeout: Duration::from_secs(10),
            max_key_length: 512,
            persist_failures: false,
            runs_unguarded: false,
        };
        Self { store, clock: Arc::new(SystemClock), rules, problems: Problems::default() }
    }

    /// For how long success is remembered, from its end. Default: 1 day.
    pub fn result_ttl(mut self, ttl: impl IntoPeriod) -> Self {
        self.rules.result_ttl = self.problems.period("idempotency.result_ttl", ttl);
        self
    }

    /// For how long a key is one's who says nothing: longer than the work takes. Default: 6 minutes, which is more than a delivery may
    /// take by default (`max_processing_time`).
    pub fn lock_ttl(mut self, ttl: impl IntoPeriod) -> Self {
        self.rules.lock_ttl = self.problems.period("idempotency.lock_ttl", ttl);
        self
    }

    /// What becomes of work whose key somebody is at. Default: it is refused.
    pub fn on_conflict(mut self, policy: OnConflict) -> Self {
        self.rules.on_conflict = policy;
        self
    }

    /// How long one waits for another, from its call. Default: 10 seconds. Then it fails with `IDEMPOTENCY_WAIT_TIMEOUT`.
    pub fn wait_timeout(mut self, timeout: impl IntoPeriod) -> Self {
        self.rules.wait_timeout = self.problems.period("idempotency.wait_timeout", timeout);
        self
    }

    /// The longest key in bytes. Default: 512. A longer one fails with `IDEMPOTENCY_KEY_INVALID`; keys are never cut.
    pub fn max_key_length(mut self, bytes: usize) -> Self {
        self.rules.max_key_length = bytes;
        self
    }

    /// Whether a failure that is not worth a retry is remembered as success is, and told again instead of a second run. Default: false, a
    /// failure frees the key.
    pub fn persist_failures(mut self, persist: bool) -> Self {
        self.rules.persist_failures = persist;
        self
    }

    /// Whether work runs unguarded, with a warning, while the store is away. Default: false, it fails with
    /// `IDEMPOTENCY_STORAGE_UNAVAILABLE`.
    pub fn run_unguarded_without_store(mut self, run: bool) -> Self {
        self.rules.runs_unguarded = run;
        self
    }

    /// What the time is. Default: the system's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(GuardedClock::new(Arc::new(clock)));
        self
    }

    async fn run_once(
        &self,
        key: IdempotencyKey,
        work: BoxFuture<'_, Result<(), Failure>>,
    ) -> Result<Execution, Failure> {
        self.check(&key.key)?;
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let lease = self.lease(&key);
            let token = lease.token.clone();
            let kept = match self.store.acquire(&key.key, lease).await {
                Ok(Acquired::Taken { was_expired }) => {
                    if was_expired {
                        tracing::warn!(key = key.key, "whoever was at this key before ended without a word");
                    }
                    return self.run_ours(&key, token, work).await;
                }
                Ok(Acquired::Kept(kept)) => kept,
                Err(StoreError::Unavailable(error)) if self.rules.runs_unguarded => {
                    tracing::warn!(key = key.key, error, "the idempotency store is away: it runs unguarded");
                    return work.await.map(|()| Execution::Ran);
                }
                Err(error) => return Err(away(error)),
            };
            if let Some(known) = Self::known(&key, kept) {
                return known;
            }
            self.may_wait(&key, began.elapsed())?;
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Runs work whose key is ours.
    async fn run_ours(
        &self,
        key: &IdempotencyKey,
        token: String,
        work: BoxFuture<'_, Result<(), Failure>>,
    ) -> Result<Execution, Failure> {
        let mut held = Held { store: self.store.clone(), key: key.key.clone(), token, is_settled: false };
        let ended = work.await;
        let status = match &ended {
            Ok(()) => IdempotencyStatus::Completed,
            Err(failure) if self.rules.persist_failures && !failure.is_retryable() && !failure.is_abort() => {
                IdempotencyStatus::Failed { name: failure.name().to_owned(), message: failure.to_string() }
            }
            Err(_) => {
                held.release().await;
                return ended.map(|()| Execution::Ran);
            }
        };
        held.is_settled = true;
        let now = self.clock.now();
        let expires_at = later(now, key.result_ttl.unwrap_or(self.rules.result_ttl));
        let told = self.store.complete(&held.key, &held.token, status, now, expires_at).await;
        match (ended, told) {
            (Ok(()), Ok(true)) => Ok(Execution::Ran),
            (Ok(()), Ok(false)) => Err(failure(
                code::IDEMPOTENCY_FENCING,
                format!("the lease of key \"{}\" ran out while its work was under way; it ran all the same", key.key),
            )),
            (Ok(()), Err(StoreError::Unavailable(error))) if self.rules.runs_unguarded => {
                tracing::warn!(key = key.key, error, "the idempotency store is away: success is not remembered");
                Ok(Execution::Ran)
            }
            (Ok(()), Err(error)) => Err(away(error)),
            // What failed has failed, remembered or not.
            (Err(failure), told) => {
                if let Err(error) = told {
                    tracing::warn!(key = key.key, %error, "a failure is not remembered");
                }
                Err(failure)
            }
        }
    }

    /// What is known of a key that is not ours; nothing while somebody is at it.
    fn known(key: &IdempotencyKey, kept: IdempotencyRecord) -> Option<Result<Execution, Failure>> {
        if kept.fingerprint != key.fingerprint {
            let what = format!("key \"{}\" was used for other work", key.key);
            return Some(Err(failure(code::IDEMPOTENCY_KEY_REUSE, what)));
        }
        match kept.status {
            IdempotencyStatus::InProgress => None,
            IdempotencyStatus::Completed => Some(Ok(Execution::Replayed)),
            IdempotencyStatus::Failed { name, message } => Some(Err(Failure::permanent(message).named(name))),
        }
    }

    fn may_wait(&self, key: &IdempotencyKey, waited: Duration) -> Result<(), Failure> {
        match self.rules.on_conflict {
            OnConflict::Reject => {
                let what = format!("somebody is at key \"{}\"", key.key);
                Err(failure(code::IDEMPOTENCY_IN_PROGRESS, what))
            }
            OnConflict::Wait if waited >= self.rules.wait_timeout => {
                let what = format!("somebody is still at key \"{}\" after {waited:?}", key.key);
                Err(failure(code::IDEMPOTENCY_WAIT_TIMEOUT, what))
            }
            OnConflict::Wait => Ok(()),
        }
    }

    fn lease(&self, key: &IdempotencyKey) -> Lease {
        let now = self.clock.now();
        let expires_at = later(now, self.rules.lock_ttl);
        Lease { token: uuid_v4(), fingerprint: key.fingerprint.clone(), now, expires_at }
    }

    fn check(&self, key: &str) -> Result<(), Failure> {
        let why = match key.len() {
            0 => "is empty".to_owned(),
            length if length > self.rules.max_key_length => {
                format!("has {length} bytes, and may have {}", self.rules.max_key_length)
            }
            _ => return Ok(()),
        };
        Err(failure(code::IDEMPOTENCY_KEY_INVALID, format!("an idempotency key {why}")))
    }
}

impl<S: IdempotencyStore> Idempotency for IdempotencyEngine<S> {
    fn execute<'a>(
        &'a self,
        key: IdempotencyKey,
        work: BoxFuture<'a, Result<(), Failure>>,
    ) -> BoxFuture<'a, Result<Execution, Failure>> {
        Box::pin(self.run_once(key, work))
    }

    fn check(&self) -> Result<(), ConfigError> {
        let mut problems = self.problems.clone();
        for (option, time) in [("result_ttl", self.rules.result_ttl), ("lock_ttl", self.rules.lock_ttl)] {
            if time.is_zero() {
                problems.add(format!("idempotency.{option}"), "must be longer than nothing");
            }
        }
        problems.finish()
    }
}

impl<S> fmt::Debug for IdempotencyEngine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyEngine").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// A key that is ours. One that is dropped before its end is released: the delivery was given up, and whoever has it next is not to wait
/// for the lease.
struct Held<S: IdempotencyStore> {
    store: Arc<S>,
    key: String,
    token: String,
    is_settled: bool,
}

impl<S: IdempotencyStore> Held<S> {
    async fn release(&mut self) {
        self.is_settled = true;
        if let Err(error) = self.store.release(&self.key, &self.token).await {
            tracing::warn!(key = self.key, %error, "not released: it is free again when its lease has run out");
        }
    }
}

impl<S: IdempotencyStore> Drop for Held<S> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let (store, key, token) = (self.store.clone(), std::mem::take(&mut self.key), std::mem::take(&mut self.token));
        // Without a runtime the process ends, and its lease with time.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                Held { store, key, token, is_settled: true }.release().await;
            });
        }
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
}

fn away(error: StoreError) -> Failure {
    let code = match error {
        StoreError::Unavailable(_) => code::IDEMPOTENCY_STORAGE_UNAVAILABLE,
        StoreError::Corrupt(_) => code::IDEMPOTENCY_STORAGE_CORRUPT,
    };
    failure(code, format!("the idempotency store: {error}"))
}

fn failure(code: &'static str, what: String) -> Failure {
    Failure::new(what).named("IdempotencyError").with_code(code)
}

/// The pauses of one who waits.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LAST_PAUSE: Duration = Duration::from_secs(1);
