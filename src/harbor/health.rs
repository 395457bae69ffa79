//! Whether a harbor is well.

use crate::harbor::Harbor;
use crate::harbor::core::HarborStatus;
use crate::harbor::lifecycle::ConsumerStatus;
use crate::observe::StopReason;

/// Whether a harbor is well, and what of it is not.
///
/// It is well unless it is closing or closed, or a consumer was stopped by a handler's abort or by a crash. Such a
/// consumer does not start again, so the harbor stays unwell: that is for whatever restarts the process to see. One that
/// never connected is well, and a consumer that was stopped on purpose does not count. A consumer that brokers do not let in
/// any more, because its credentials were withdrawn, is unwell for as long as that lasts.
///
/// A consumer that is over and of which no handle is left is forgotten, but for an abort or a crash: of each group the last
/// one by each of these reasons stays.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether all is well.
    pub healthy: bool,
    /// Where the harbor stands.
    pub status: HarborStatus,
    /// The adapter's name.
    pub adapter: &'static str,
    /// Its consumers, in the order they were built.
    pub consumers: Vec<ConsumerHealth>,
}

/// How a consumer is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerHealth {
    /// Its group.
    pub group: String,
    /// Where it stands.
    pub status: ConsumerStatus,
    /// Why it stops or has stopped, known as soon as it begins to.
    pub stopped_because: Option<StopReason>,
    /// Whether brokers do not let it in any more: its login or certificate are refused. It goes on trying, and is taken to be in
    /// again 15 s after the last refusal.
    pub locked_out: bool,
}

impl<S: Send + Sync + 'static> Harbor<S> {
    /// Whether it is well. Answers at once and asks nobody: for a probe.
    pub fn health(&self) -> Health {
        let consumers = self.core.consumers.known().into_iter().map(|consumer| ConsumerHealth {
            group: consumer.group().to_owned(),
            status: consumer.status(),
            stopped_because: consumer.because(),
            locked_out: consumer.is_locked_out(),
        });
        Health::new(self.core.status(), self.core.adapter.name(), consumers.collect())
    }
}

impl Health {
    fn new(status: HarborStatus, adapter: &'static str, consumers: Vec<ConsumerHealth>) -> Self {
        let open = !matches!(status, HarborStatus::Closing | HarborStatus::Closed);
        let failed = |consumer: &ConsumerHealth| {
            consumer.locked_out || matches!(consumer.stopped_because, Some(StopReason::Abort | StopReason::Crash))
        };
        Self { healthy: open && !consumers.iter().any(failed), status, adapter, consumers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_harbor_is_well_until_it_closes_or_a_consumer_fails() {
        let consumer =
            |status, stopped_because| ConsumerHealth { group: "g".into(), status, stopped_because, locked_out: false };
        let well = |status, consumers| Health::new(status, "memory", consumers).healthy;
        for status in [HarborStatus::Idle, HarborStatus::Connecting, HarborStatus::Connected] {
            assert!(well(status, vec![]));
        }
        for status in [HarborStatus::Closing, HarborStatus::Closed] {
            assert!(!well(status, vec![]));
        }
        let running = consumer(ConsumerStatus::Running, None);
        let stopped = consumer(ConsumerStatus::Stopped, Some(StopReason::Shutdown));
        assert!(well(HarborStatus::Connected, vec![running.clone(), stopped]));
        for reason in [StopReason::Abort, StopReason::Crash] {
            let stopping = consumer(ConsumerStatus::Stopping, Some(reason));
            assert!(!well(HarborStatus::Connected, vec![running.clone(), stopping]));
        }
        assert!(!well(HarborStatus::Connected, vec![ConsumerHealth { locked_out: true, ..running }]));
    }
}
