//! What a transactional producer's handles, its driver and the producer's driver share.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::timeout_at;

use crate::client::producer::{Ticket, TransactionHead, Transactional, Waker};
use crate::client::{Cluster, Connections, CoordinatorKind, ProducerBuilder, deadline_in};
use crate::error::WriteOutcome;
use crate::machine::produce::{Produce, ProduceError};
use crate::machine::transaction::{Order, TransactionError, TransactionErrorKind, Transactions};
use crate::retry::ExponentialFullJitter;

pub(super) struct Shared {
    pub(super) cluster: Cluster,
    /// To coordinators: what others ask of the same brokers does not hold up a commit.
    pub(super) connections: Connections,
    pub(super) timeout: Duration,
    pub(super) request_timeout: Duration,
    max_block: Duration,
    head: TransactionHead,
    machine: Mutex<Transactions>,
    /// For the producer's driver; the second part is what it has seen and not carried out.
    orders: Mutex<(VecDeque<Order>, VecDeque<Order>)>,
    /// Whether the open transaction can only be aborted.
    failed: AtomicBool,
    is_implicit: AtomicBool,
    /// Wakes the driver of transactions.
    pub(super) wake: Notify,
    /// Wakes the producer's driver.
    producer: OnceLock<Waker>,
    changed: watch::Sender<()>,
    closed: AtomicBool,
}

impl Shared {
    pub(super) fn new(producer: &ProducerBuilder, id: &str, timeout: Duration) -> Arc<Self> {
        let cluster = producer.cluster().clone();
        let (first, max) = producer.backoff();
        let backoff = ExponentialFullJitter { first, max };
        Arc::new(Self {
            connections: cluster.connections(),
            timeout,
            request_timeout: cluster.config().request_timeout,
            max_block: producer.blocks_for(),
            head: TransactionHead { id: id.into(), implicit: false },
            machine: Mutex::new(Transactions::new(id.to_owned(), backoff, Box::new(fastrand::f64))),
            orders: Mutex::default(),
            failed: AtomicBool::new(false),
            is_implicit: AtomicBool::new(false),
            wake: Notify::new(),
            producer: OnceLock::new(),
            changed: watch::Sender::new(()),
            closed: AtomicBool::new(false),
            cluster,
        })
    }

    /// Whose driver carries out what is ordered.
    pub(super) fn drives(&self, producer: Waker) {
        // Each has one producer.
        let _ = self.producer.set(producer);
    }

    pub(super) fn max_block(&self) -> Duration {
        self.max_block
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Transactions> {
        // Steps of a machine alone run under the lock.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step of the machine, and what follows from it.
    pub(super) fn change<R>(&self, step: impl FnOnce(&mut Transactions) -> R) -> R {
        let result = {
            let mut machine = self.lock();
            let result = step(&mut machine);
            let mut orders = self.orders();
            while let Some(order) = machine.poll_order() {
                match order {
                    Order::Forget { group: None } => {
                        self.cluster.forget_coordinator(CoordinatorKind::Transaction, machine.id());
                    }
                    Order::Forget { group: Some(group) } => {
                        self.cluster.forget_coordinator(CoordinatorKind::Group, &group);
                    }
                    order => {
                        match &order {
                            Order::Begin { implicit, .. } => {
                                self.failed.store(false, Ordering::Release);
                                self.is_implicit.store(*implicit, Ordering::Release);
                            }
                            Order::Doom | Order::End { .. } => self.failed.store(true, Ordering::Release),
                            _ => {}
                        }
                        orders.0.push_back(order);
                    }
                }
            }
            result
        };
        self.wake.notify_one();
        if let Some(producer) = self.producer.get() {
            producer.wake();
        }
        self.changed.send_replace(());
        result
    }

    /// A step of the driver, which needs not be woken for it.
    pub(super) fn change_quietly<R>(&self, step: impl FnOnce(&mut Transactions) -> R) -> R {
        let before = self.lock().is_at_rest();
        let result = step(&mut self.lock());
        if before != self.lock().is_at_rest() {
            self.changed.send_replace(());
        }
        result
    }

    /// Waits until the machine has an answer, at most `max_block`.
    pub(super) async fn wait<R>(&self, mut look: impl FnMut(&mut Transactions) -> Option<R>) -> Option<R> {
        let deadline = deadline_in(self.max_block);
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let found = look(&mut self.lock());
            if found.is_some() {
                // What it did while it looked.
                self.change(|_| ());
                return found;
            }
            // A look may have changed something that has to be acted on, such as an epoch to ask for.
            self.wake.notify_one();
            timeout_at(deadline.into(), changed.changed()).await.ok()?.ok()?;
        }
    }

    pub(super) fn not_in_time(&self, what: &'static str) -> TransactionError {
        TransactionError::new(self.lock().id(), TransactionErrorKind::NotInTime { what, after: self.max_block })
    }

    /// The last transaction's end is not known in time. A commit that was asked for may be made yet.
    pub(super) fn undecided(&self) -> TransactionError {
        let error = self.not_in_time("the transaction's end");
        let outcome = if self.lock().may_commit() { WriteOutcome::PossiblyWritten } else { WriteOutcome::NotWritten };
        error.with_outcome(outcome)
    }

    pub(super) fn send_failed(&self, error: &Arc<ProduceError>) {
        self.change(|machine| machine.handle_send_failed(error));
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.cluster.is_closed()
    }

    fn orders(&self) -> MutexGuard<'_, (VecDeque<Order>, VecDeque<Order>)> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transactional for Shared {
    fn head(&self) -> TransactionHead {
        TransactionHead { implicit: self.is_implicit.load(Ordering::Acquire), ..self.head.clone() }
    }

    fn collect(&self) {
        let (new, seen) = &mut *self.orders();
        seen.append(new);
    }

    fn apply(&self, now: Instant, produce: &mut Produce<Ticket>) {
        let seen = std::mem::take(&mut self.orders().1);
        for order in seen {
            match order {
                Order::Begin { serial, producer, implicit } => produce.begin_transaction(serial, producer, implicit),
                Order::Enlisted(partitions) => {
                    partitions.into_iter().for_each(|index| produce.handle_enlisted(index));
                }
                Order::End { abort } => produce.end_transaction(now, abort),
                Order::Doom => produce.doom(now),
                Order::Forget { .. } => {}
            }
        }
    }

    fn failed(&self, error: &Arc<ProduceError>) {
        self.send_failed(error);
    }

    fn observe(&self, produce: &mut Produce<Ticket>) {
        let mut wanted = Vec::new();
        while let Some(index) = produce.poll_enlist() {
            wanted.extend(produce.name(index).cloned().map(|name| (index, name)));
        }
        if !wanted.is_empty() {
            self.change(|machine| machine.handle_wanted(wanted));
        }
        if let Some(sent) = produce.poll_quiet() {
            self.change(|machine| machine.handle_quiet(sent));
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}
