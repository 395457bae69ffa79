//! Options of a transactional producer.

use std::time::Duration;

use super::TransactionalProducer;
use super::driver::run;
use super::shared::Shared;
use crate::client::ProducerBuilder;
use crate::client::error::Problems;
use crate::machine::transaction::{TransactionError, TransactionErrorKind};

/// Options of a [`TransactionalProducer`], beside those of the [`ProducerBuilder`] that it was made from.
#[derive(Debug, Clone)]
#[must_use]
pub struct TransactionalBuilder {
    producer: ProducerBuilder,
    id: String,
    timeout: Duration,
}

impl TransactionalBuilder {
    pub(in crate::client) fn new(producer: ProducerBuilder, id: String) -> Self {
        Self { producer, id, timeout: Duration::from_secs(60) }
    }

    /// After how long without an end the coordinator aborts a transaction, and fences its producer. Default 60 s, from 1 s
    /// to a day; brokers have a limit of their own, by default 15 min. What takes this long holds up all who read
    /// committed records of its partitions. Java: `transaction.timeout.ms`.
    pub fn transaction_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The producer, once the coordinator has given it an epoch: older producers with this id are fenced then, and what they
    /// had open is aborted. Takes up to `max_block`.
    ///
    /// # Errors
    /// When options cannot be used (the source is a [`ConfigError`](crate::client::ConfigError)), the coordinator refuses, or nobody
    /// answers in time.
    ///
    /// # Cancel safety
    /// Dropping the future may leave older producers fenced.
    pub async fn init(self) -> Result<TransactionalProducer, TransactionError> {
        let failed = |kind| TransactionError::new(&self.id, kind);
        let mut problems = Problems::default();
        problems.require(!self.id.is_empty(), "transactional", "the id is empty");
        problems.require(self.id.len() <= 32_767, "transactional", "the id is longer than 32,767 bytes");
        problems.require_within("transaction_timeout", self.timeout, SECOND..=86_400 * SECOND);
        problems.require(!self.producer.is_dangerous(), "dangerous_acks_leader_only", "it excludes transactions");
        let shared = Shared::new(&self.producer, &self.id, self.timeout);
        let producer = match self.producer.clone().build_transactional(shared.clone()) {
            Ok(producer) => Some(producer),
            Err(error) => {
                problems.extend(error);
                None
            }
        };
        problems.finish().map_err(|error| failed(TransactionErrorKind::Config).because(error))?;
        let Some(producer) = producer else { return Err(failed(TransactionErrorKind::Config)) };
        shared.drives(producer.drive());
        drop(tokio::spawn(run(shared.clone())));
        let producer = TransactionalProducer { producer, shared };
        let ready = producer.shared.wait(|machine| match machine.is_ready() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        });
        ready.await.unwrap_or_else(|| Err(producer.shared.not_in_time("the coordinator's answer")))?;
        Ok(producer)
    }
}

const SECOND: Duration = Duration::from_secs(1);
