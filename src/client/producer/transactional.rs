//! What a producer does not know of transactions, and asks for.
//!
//! Behind a trait object, so that who sends without transactions does not carry them.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::Producer;
use super::driver::Driver;
use super::shared::Shared;
use super::ticket::Ticket;
use crate::machine::produce::{Produce, ProduceError};

/// The transactions of a producer, as its driver sees them.
pub(in crate::client) trait Transactional: fmt::Debug + Send + Sync {
    /// What each Produce request says of them.
    fn head(&self) -> TransactionHead;

    /// Takes note of what is ordered. Before the driver looks for what was appended: all that came before an order is then seen
    /// before it.
    fn collect(&self);

    /// Carries out what was collected.
    fn apply(&self, now: Instant, produce: &mut Produce<Ticket>);

    /// A record was not written.
    fn failed(&self, error: &Arc<ProduceError>);

    /// Looks for what the transaction has to know, after everything else.
    fn observe(&self, produce: &mut Produce<Ticket>);
}

/// What a Produce request says of transactions.
#[derive(Debug, Clone)]
pub(in crate::client) struct TransactionHead {
    /// The transactional id.
    pub(in crate::client) id: Arc<str>,
    /// Whether the request adds its partitions to the transaction (KIP-890).
    pub(in crate::client) implicit: bool,
}

/// Wakes a producer's driver, and keeps nothing of it.
pub(in crate::client) struct Waker(Weak<Shared>);

impl Waker {
    pub(in crate::client) fn wake(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.wake.notify_one();
        }
    }
}

impl Producer {
    /// Starts the driver before the first record.
    pub(in crate::client) fn drive(&self) -> Waker {
        let shared = self.shared();
        if !std::mem::replace(&mut shared.inbox().driven, true) {
            drop(tokio::spawn(Driver::new(shared.clone()).run()));
        }
        Waker(Arc::downgrade(shared))
    }
}
