use std::collections::HashMap;
use std::fmt::Display;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

use tokio::time::sleep;

use super::Outcomes;
use crate::client::{ClientError, Cluster, Stale, now};
use crate::error::WriteOutcome;

/// A future of one try. One is made a try, never a record.
pub(super) type Attempt<'a, K, T> = Pin<Box<dyn Future<Output = Result<Outcomes<K, T>, ClientError>> + Send + 'a>>;

/// Tries what is still open, again and again, until each has an outcome or the time is up.
pub(super) struct Settle<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) what: &'static str,
    pub(super) deadline: Instant,
}

/// What a try must know of the ones before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Try {
    /// Whether an earlier try may have been acted on though its answer did not come: what it made exists then, and
    /// what it deleted is gone.
    pub(super) repeated: bool,
}

impl Settle<'_> {
    pub(super) async fn run<'f, K, T>(
        &self,
        keys: impl IntoIterator<Item = K>,
        attempt: impl Fn(Vec<K>, Try) -> Attempt<'f, K, T>,
    ) -> Outcomes<K, T>
    where
        K: Clone + Eq + Hash + Display,
        T: Clone,
    {
        let keys: Vec<K> = keys.into_iter().collect();
        let mut settled: HashMap<K, Result<T, ClientError>> = HashMap::with_capacity(keys.len());
        if keys.is_empty() {
            return Vec::new();
        }
        let mut open = keys.clone();
        let mut repeated = false;
        for failures in 1.. {
            let outcomes = match attempt(open.clone(), Try { repeated }).await {
                Ok(outcomes) => outcomes,
                Err(error) => open.iter().map(|key| (key.clone(), Err(error.clone()))).collect(),
            };
            // What this answer leaves out is left out, whatever the one before said of it.
            open.iter().for_each(|key| drop(settled.remove(key)));
            settled.extend(outcomes);
            let failure = |key: &K| settled.get(key).and_then(|outcome| outcome.as_ref().err());
            repeated |= open.iter().filter_map(failure).any(|e| e.write_outcome() == WriteOutcome::PossiblyWritten);
            open.retain(|key| failure(key).is_some_and(ClientError::is_retriable));
            if open.iter().filter_map(failure).filter_map(ClientError::code).any(|code| code.invalidates_metadata()) {
                self.cluster.invalidate(Stale::Admin(self.what));
            }
            let wait = self.cluster.config().retry_delay(failures);
            if open.is_empty() || now() + wait >= self.deadline {
                break;
            }
            sleep(wait).await;
        }
        let outcome = |key: &K| match settled.get(key) {
            Some(Err(error)) if open.contains(key) => Err(self.timed_out(key, error)),
            Some(outcome) => outcome.clone(),
            None => Err(ClientError::LeftOut { what: format!("{} {key}", self.what) }),
        };
        keys.iter().map(|key| (key.clone(), outcome(key))).collect()
    }

    /// Tries until it succeeds, is refused for good, or the time is up. For calls that have one outcome.
    pub(super) async fn one<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut failures = 0;
        loop {
            let error = match attempt().await {
                Ok(done) => return Ok(done),
                Err(error) if !error.is_retriable() => return Err(error),
                Err(error) => error,
            };
            if error.code().is_some_and(|code| code.invalidates_metadata()) {
                self.cluster.invalidate(Stale::Admin(self.what));
            }
            failures += 1;
            let wait = self.cluster.config().retry_delay(failures);
            if now() + wait >= self.deadline {
                return Err(match error {
                    error @ ClientError::TimedOut { .. } => error,
                    error => ClientError::timed_out(self.what, Some(error)),
                });
            }
            sleep(wait).await;
        }
    }

    fn timed_out(&self, key: &impl Display, last: &ClientError) -> ClientError {
        match last {
            // It says so already.
            ClientError::TimedOut { .. } => last.clone(),
            last => ClientError::timed_out(format_args!("{} {key}", self.what), Some(last.clone())),
        }
    }
}

/// Waits for all, side by side.
pub(crate) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        let mut all = true;
        for (future, output) in &mut running {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => all = false,
                }
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}
