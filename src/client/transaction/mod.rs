//! Transactions: records and offsets that become visible together, or not at all.
//!
//! ```text
//!   TransactionalProducer ──begin──► Transaction ──commit, abort──► TransactionalProducer
//!            │                          │ send                             (borrowed meanwhile)
//!            ▼                          ▼
//!   Transactions (machine) ◄──────► producer's driver, Produce (machine) ──► leaders
//!            ▲
//!            └── driver ──► transaction coordinator, group coordinators
//! ```
//!
//! That nothing is added behind an end is a matter of types: a transaction is consumed by it, and every call on it
//! borrows it.

mod config;
mod driver;
mod shared;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use self::shared::Shared;
use super::{BatchError, Delivery, GroupOffset, Producer, RecordMetadata, deadline_in};
use crate::error::WriteOutcome;
use crate::machine::produce::{ProduceError, ProduceErrorKind};
use crate::machine::transaction::{Ended, GroupMetadata, TransactionError, TransactionErrorKind, TransactionOffset};
use crate::record::{Record, RecordRef, Topic, TopicPartition};

pub use self::config::TransactionalBuilder;

/// Writes in transactions, under an id that one producer has at a time (KIP-98).
///
/// Made by [`ProducerBuilder::transactional`](super::ProducerBuilder::transactional). Whoever makes another with the same id
/// fences this one for good, and aborts what it had open; so a service that was restarted goes on where its predecessor
/// cannot interfere. One transaction is open at a time.
///
/// Dropped, it stops; a transaction that it left open is aborted by whoever takes the id over, at the latest after the
/// transaction timeout. Readers of committed records wait for that: better [`close`](Self::close) it.
///
/// # Examples
/// ```no_run
/// # use kafka_harbor::client::{Client, GroupMetadata, GroupOffset};
/// # use kafka_harbor::record::{Offset, Record, TopicPartition};
/// # async fn example(group: GroupMetadata) -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder(["localhost:9092"]).build()?;
/// let mut producer = client.producer().transactional("billing-1").init().await?;
///
/// let transaction = producer.begin().await?;
/// transaction.send(Record::new("invoices", "paid")).await?;
/// transaction.send_offsets(&group, [(TopicPartition::new("orders", 0), GroupOffset::new(Offset(42)))]).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
pub struct TransactionalProducer {
    producer: Producer,
    shared: Arc<Shared>,
}

impl TransactionalProducer {
    /// The id that it writes under.
    pub fn transactional_id(&self) -> String {
        self.shared.lock().id().to_owned()
    }

    /// Begins a transaction, once the one before is decided: committed, or aborted where it was dropped or has failed.
    ///
    /// # Errors
    /// When that takes longer than `max_block`, or the producer [is over](TransactionError::is_fatal).
    ///
    /// # Cancel safety
    /// Dropping the future begins nothing.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, TransactionError> {
        let begun = self.shared.wait(|machine| match machine.begin() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        });
        begun.await.unwrap_or_else(|| Err(self.shared.not_in_time("the transaction before")))?;
        Ok(Transaction { of: self, is_over: false })
    }

    /// How the last transaction ended, once that is decided: what to ask after a commit whose error
    /// [leaves it open](TransactionError::outcome). `None` before the first transaction.
    ///
    /// # Errors
    /// When it was not committed though that was asked, when its end cannot be known any more, or when it is not known
    /// within `max_block`.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn resolve(&mut self) -> Option<Result<Ended, TransactionError>> {
        let ended = self.shared.wait(|machine| machine.is_decided().then(|| machine.ended()));
        ended.await.unwrap_or_else(|| Some(Err(self.shared.undecided())))
    }

    /// Ends the producer, once the last transaction is decided.
    ///
    /// # Errors
    /// When it was not within `timeout`.
    ///
    /// # Cancel safety
    /// Dropping the future ends the producer at once.
    pub async fn close(self, timeout: Duration) -> Result<(), TransactionError> {
        let deadline = deadline_in(timeout);
        let at_rest = self.shared.wait(|machine| machine.is_at_rest().then_some(()));
        let decided = timeout_at(deadline.into(), at_rest).await.ok().flatten();
        let left = deadline.saturating_duration_since(super::now());
        // Nothing is left in it but what was never in a transaction.
        let _ = self.producer.close(left.max(Duration::from_millis(1))).await;
        decided.ok_or_else(|| self.shared.undecided())
    }
}

impl Drop for TransactionalProducer {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for TransactionalProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionalProducer").field("transactions", &*self.shared.lock()).finish_non_exhaustive()
    }
}

/// An open transaction. What is sent in it becomes visible with [`commit`](Self::commit), to those who read committed
/// records.
///
/// It can only be aborted once a record of it was not written, or a call of it that waits was dropped before its end. Dropped
/// itself, it is aborted in the background.
#[must_use = "dropped, it is aborted"]
pub struct Transaction<'a> {
    of: &'a mut TransactionalProducer,
    is_over: bool,
}

impl Transaction<'_> {
    /// Sends a record and waits until it is written; it is visible after the commit.
    ///
    /// # Errors
    /// When it was not written: the transaction can only be aborted then.
    ///
    /// # Cancel safety
    /// Dropping the future before its end leaves a transaction that can only be aborted.
    pub async fn send(&self, record: Record) -> Result<RecordMetadata, Arc<ProduceError>> {
        let guard = self.guard();
        let sent = self.enqueue(record).await?.await;
        guard.disarm();
        sent
    }

    /// As [`Producer::enqueue`]. The commit waits for what was queued.
    ///
    /// # Errors
    /// When it could not be queued: the transaction can only be aborted then.
    ///
    /// # Cancel safety
    /// A call that has not returned has not queued the record.
    pub async fn enqueue(&self, record: Record) -> Result<Delivery, Arc<ProduceError>> {
        self.enqueue_ref(&record.topic, RecordRef::from(&record)).await
    }

    /// As [`enqueue`](Self::enqueue) for a borrowed record.
    ///
    /// # Errors
    /// When it could not be queued: the transaction can only be aborted then.
    ///
    /// # Cancel safety
    /// A call that has not returned has not queued the record.
    pub async fn enqueue_ref(&self, topic: &Topic, record: RecordRef<'_>) -> Result<Delivery, Arc<ProduceError>> {
        self.check(topic, record.partition)?;
        let queued = self.of.producer.enqueue_ref(topic, record).await;
        queued.inspect_err(|error| self.of.shared.send_failed(error))
    }

    /// As [`Producer::send_batch`]: every record is written when it returns, and visible after the commit.
    ///
    /// # Errors
    /// If any record was not written: the transaction can only be aborted then.
    ///
    /// # Cancel safety
    /// Dropping the future before its end leaves a transaction that can only be aborted.
    pub async fn send_batch<'r, I>(&self, topic: impl Into<Topic>, records: I) -> Result<(), BatchError>
    where
        I: IntoIterator<Item = RecordRef<'r>>,
    {
        let topic = topic.into();
        let guard = self.guard();
        if let Err(error) = self.check(&topic, None) {
            let outcomes = records.into_iter().map(|_| Err(error.clone())).collect();
            return Err(BatchError { outcomes });
        }
        let sent = self.of.producer.send_batch(topic, records).await;
        guard.disarm();
        sent.inspect_err(|error| {
            if let Some(first) = error.outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
                self.of.shared.send_failed(first);
            }
        })
    }

    /// Commits what a group has read, together with what is written. `group` is [`ConsumerHandle::group_metadata`], as it was when
    /// the records were handed over: the group takes offsets only from who is a member of that generation still (KIP-447). Asked
    /// for later, it may be that of a membership which has lost the partitions and joined again; nobody would refuse it.
    ///
    /// Each offset is the next one to read. With the transaction they are committed, or not at all.
    ///
    /// [`ConsumerHandle::group_metadata`]: super::ConsumerHandle::group_metadata
    ///
    /// # Errors
    /// When the group or the coordinator does not take them, or not within `max_block`: the transaction can only be aborted then.
    ///
    /// # Cancel safety
    /// Dropping the future before its end leaves a transaction that can only be aborted.
    pub async fn send_offsets(
        &self,
        group: &GroupMetadata,
        offsets: impl IntoIterator<Item = (TopicPartition, GroupOffset)>,
    ) -> Result<(), TransactionError> {
        let offsets: Vec<_> = offsets
            .into_iter()
            .map(|(partition, GroupOffset { offset, leader_epoch, note })| TransactionOffset {
                partition,
                offset,
                leader_epoch,
                note,
            })
            .collect();
        if offsets.is_empty() {
            return self.failure().map_or(Ok(()), Err);
        }
        let shared = &self.of.shared;
        let guard = self.guard();
        let ticket = shared.change(|machine| machine.add_offsets(group.clone(), offsets))?;
        let taken = shared.wait(|machine| match machine.failure() {
            Some(failure) => Some(Err(failure)),
            None => (!machine.has_offsets(ticket)).then_some(Ok(())),
        });
        let taken = taken.await;
        guard.disarm();
        taken.unwrap_or_else(|| {
            let error = shared.not_in_time("the group's answer");
            shared.change(|machine| machine.fail(error.kind.clone()));
            Err(error)
        })
    }

    /// Why it can only be aborted, if it can.
    pub fn failure(&self) -> Option<TransactionError> {
        self.of.shared.lock().failure()
    }

    /// Waits until everything that was sent is written, and commits. One that has failed is aborted instead.
    ///
    /// # Errors
    /// When it was not committed; it is aborted then. Or, with [`TransactionError::outcome`] left open, when nobody answered for
    /// `max_block`: the commit is asked for again in the background until that is decided, the next transaction begins
    /// only then, and [`TransactionalProducer::resolve`] tells.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the commit going on; [`TransactionalProducer::resolve`] tells what became of it.
    pub async fn commit(mut self) -> Result<(), TransactionError> {
        match self.end(true).await? {
            Ended::Committed => Ok(()),
            Ended::Aborted => unreachable!("a commit that was refused is an error"),
        }
    }

    /// Throws away what was sent. What waits is not sent any more and fails as aborted.
    ///
    /// # Errors
    /// When the producer is over, or nobody answered for `max_block`; it is aborted all the same, by us in the background or
    /// by the coordinator after the transaction timeout.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the abort going on.
    pub async fn abort(mut self) -> Result<(), TransactionError> {
        match self.end(false).await {
            // That it had failed before is why it is aborted.
            Err(error) if error.is_fatal() || matches!(error.kind, TransactionErrorKind::NotInTime { .. }) => {
                Err(error)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn end(&mut self, commit: bool) -> Result<Ended, TransactionError> {
        self.is_over = true;
        let shared = &self.of.shared;
        let known = shared.change(|machine| {
            let known = machine.failure();
            machine.end(commit);
            known
        });
        let ended = shared.wait(|machine| machine.ended()).await;
        match (ended, known) {
            (Some(_), Some(failure)) if commit => Err(failure),
            (Some(ended), _) => ended,
            (None, _) => {
                let what = if commit { "the commit" } else { "the abort" };
                Err(shared.change(|machine| machine.give_up(what, shared.max_block())))
            }
        }
    }

    /// Refuses what can only be aborted, at no more than a look at a flag.
    fn check(&self, topic: &Topic, partition: Option<i32>) -> Result<(), Arc<ProduceError>> {
        if !self.of.shared.has_failed() {
            return Ok(());
        }
        let (outcome, kind) = (WriteOutcome::NotWritten, ProduceErrorKind::Aborted);
        Err(Arc::new(ProduceError { topic: topic.clone(), partition, outcome, kind, source: None }))
    }

    fn guard(&self) -> Guard<'_> {
        Guard(Some(&self.of.shared))
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.of.shared.change(|machine| machine.end(false));
        }
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("of", &self.of).finish()
    }
}

/// A call that is under way. Dropped with it, it fails the transaction: nobody knows what of the call is part of it.
struct Guard<'a>(Option<&'a Shared>);

impl Guard<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.change(|machine| machine.fail(TransactionErrorKind::Dropped));
        }
    }
}

#[cfg(test)]
mod tests;
