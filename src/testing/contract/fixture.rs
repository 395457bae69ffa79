//! The broker under test, as the checks see it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::adapter::Adapter;
use crate::record::NewTopic;

/// How the checks reach the broker under test.
pub trait Fixture: fmt::Debug + Send + Sync {
    /// A new adapter on the broker, not connected yet. All that a fixture gives reach the same broker.
    fn adapter(&self) -> Arc<dyn Adapter>;

    /// How long to wait for what must happen. Default 60 s.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// How long to watch that something does not happen. Default 2 s.
    fn quiet(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// Orders that the next publish to the topic is written and its answer lost. `false`, the default, if this
    /// cannot be ordered.
    fn lose_next_answer(&self, topic: &str) -> bool {
        let _ = topic;
        false
    }
}

/// A connected adapter.
pub(super) async fn connected(fixture: &dyn Fixture) -> Arc<dyn Adapter> {
    let adapter = fixture.adapter();
    within(fixture, "connecting", adapter.connect()).await.expect("the broker can be reached");
    adapter
}

/// A topic that nobody else has, of this many partitions.
pub(super) async fn new_topic(fixture: &dyn Fixture, adapter: &Arc<dyn Adapter>, partitions: i32) -> String {
    let name = unique("topic");
    let topic = NewTopic::new(name.as_str()).with_partitions(partitions);
    within(fixture, "creating a topic", adapter.create_topics(&[topic])).await.expect("the topic is created");
    name
}

/// A name that nobody else has, in other processes neither.
pub(super) fn unique(kind: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("contract-{kind}-{:x}-{since:x}-{count}", std::process::id())
}

/// What `future` comes to.
///
/// # Panics
/// When it takes longer than the fixture's patience.
pub(super) async fn within<T>(fixture: &dyn Fixture, what: &str, future: impl Future<Output = T>) -> T {
    let patience = fixture.patience();
    match tokio::time::timeout(patience, future).await {
        Ok(done) => done,
        Err(_) => panic!("{what} took longer than {patience:?}"),
    }
}

/// Says that a check was not made.
pub(super) fn skip(check: &str, why: &str) {
    eprintln!("contract: SKIPPED {check}: {why}");
}
