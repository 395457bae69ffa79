//! How much memory fetched records may take, and who holds it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A count of bytes that are held against a limit. Shared by all that was fetched for one membership.
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
    /// Whether somebody waits for bytes to be given back.
    wanted: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), wanted: AtomicBool::new(false), wake: OnceLock::new() })
    }

    /// Sets what is called, once for each [`want`](Self::want), when bytes were given back. Only the first call counts.
    pub(crate) fn on_return(&self, wake: impl Fn() + Send + Sync + 'static) {
        // A second hook would be a second owner of the budget, which there is not.
        let _ = self.wake.set(Box::new(wake));
    }

    /// What is held now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// What is left.
    pub(crate) fn available(&self) -> usize {
        self.limit.saturating_sub(self.used())
    }

    /// Asks to be woken by the next return.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Takes `bytes`, beyond the limit if need be: they are in memory already.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Permit {
        self.used.fetch_add(bytes, Ordering::AcqRel);
        Permit { budget: self.clone(), bytes }
    }

    fn wake(&self) {
        if self.wanted.load(Ordering::SeqCst)
            && self.wanted.swap(false, Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("limit", &self.limit).field("used", &self.used()).finish_non_exhaustive()
    }
}

/// Bytes of a [`Budget`], given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::AcqRel);
        self.budget.wake();
    }
}

/// What one partition's records hold: their share of the answer that they are slices of, what was inflated or copied
/// for them, and their bytes against the partition's own share.
///
/// An answer stays in memory until the last slice of it is dropped, so its bytes are held once, by all of them.
#[derive(Debug)]
pub(crate) struct Lease {
    // Dropped after `drop` has run, so that a woken fetcher finds the partition's share reduced.
    answer: Option<Arc<Permit>>,
    /// The answers of those that it was joined by.
    others: Vec<Arc<Permit>>,
    own: Permit,
    partition: Arc<AtomicUsize>,
    bytes: usize,
}

impl Lease {
    /// A lease for records of `bytes` in all, of which `answer` holds those in the answer, and `own` the rest.
    pub(crate) fn new(answer: Option<Arc<Permit>>, own: Permit, bytes: usize) -> Self {
        Self { answer, others: Vec::new(), own, partition: Arc::default(), bytes }
    }

    /// How many bytes of records it stands for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stands for what `next` stands for, too. Both are charged to one partition, or neither is.
    pub(super) fn join(&mut self, mut next: Lease) {
        self.others.extend(next.answer.take());
        self.others.append(&mut next.others);
        self.own.bytes += std::mem::take(&mut next.own.bytes);
        self.bytes += std::mem::take(&mut next.bytes);
    }

    /// Counts it against `partition` until it is dropped.
    pub(super) fn charge(&mut self, partition: &Arc<AtomicUsize>) {
        partition.fetch_add(self.bytes, Ordering::AcqRel);
        self.partition = partition.clone();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Of an uncharged lease the counter is its own, and nobody reads it again.
        self.partition.fetch_sub(self.bytes.min(self.partition.load(Ordering::Acquire)), Ordering::AcqRel);
        debug_assert!(
            self.answer.iter().chain(&self.others).all(|answer| Arc::ptr_eq(&answer.budget, &self.own.budget))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_held_until_the_last_of_its_slices_goes() {
        let budget = Budget::new(100);
        let answer = Arc::new(budget.take(60));
        let a = Lease::new(Some(answer.clone()), budget.take(0), 30);
        let b = Lease::new(Some(answer), budget.take(5), 35);
        assert_eq!((budget.used(), budget.available()), (65, 35));
        drop(a);
        assert_eq!(budget.used(), 65);
        drop(b);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn leases_that_were_joined_give_back_what_both_held() {
        let budget = Budget::new(100);
        let partition = Arc::new(AtomicUsize::new(0));
        let mut leases = [20, 30].map(|bytes| Lease::new(Some(Arc::new(budget.take(bytes))), budget.take(5), bytes));
        leases.iter_mut().for_each(|lease| lease.charge(&partition));
        let [mut first, second] = leases;
        first.join(second);
        assert_eq!((budget.used(), first.bytes(), partition.load(Ordering::Relaxed)), (60, 50, 50));
        drop(first);
        assert_eq!((budget.used(), partition.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_return_wakes_once_and_only_if_wanted() {
        let budget = Budget::new(10);
        let wakes = Arc::new(AtomicUsize::new(0));
        let counter = wakes.clone();
        budget.on_return(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        drop(budget.take(20));
        assert_eq!(wakes.load(Ordering::Relaxed), 0);
        let (one, two) = (budget.take(1), budget.take(1));
        budget.want();
        drop(one);
        drop(two);
        assert_eq!(wakes.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_partition_is_charged_for_as_long_as_the_lease_lives() {
        let budget = Budget::new(100);
        let partition = Arc::new(AtomicUsize::new(7));
        let mut lease = Lease::new(None, budget.take(50), 40);
        lease.charge(&partition);
        assert_eq!(partition.load(Ordering::Relaxed), 47);
        drop(lease);
        assert_eq!(partition.load(Ordering::Relaxed), 7);
        drop(Lease::new(None, budget.take(1), 40));
    }
}
