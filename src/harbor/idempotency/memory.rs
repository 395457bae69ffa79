//! A store in this process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::adapter::BoxFuture;
use crate::harbor::idempotency::store::{
    Acquired, IdempotencyRecord, IdempotencyStatus, IdempotencyStore, Lease, StoreError,
};
use crate::record::Timestamp;

/// Remembers keys in memory: for tests, and for one process that is to do nothing twice as long as it runs. It forgets with the process.
///
/// It has room for so many keys, a million by default. One that is full lets expired ones go, and takes no other until some have
/// expired: it is not available, and what that means is the engine's to decide.
#[derive(Debug)]
pub struct MemoryIdempotencyStore {
    kept: Mutex<Kept>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Kept {
    records: HashMap<String, IdempotencyRecord>,
    by_expiry: BTreeSet<(Timestamp, String)>,
}

impl MemoryIdempotencyStore {
    /// Room for a million keys.
    pub fn new() -> Self {
        Self::with_capacity(1_000_000)
    }

    /// Room for this many keys.
    pub fn with_capacity(keys: usize) -> Self {
        Self { kept: Mutex::default(), capacity: keys }
    }

    /// How many keys it holds, expired ones that were not let go yet among them.
    pub fn len(&self) -> usize {
        self.kept().records.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, key: &str, lease: Lease) -> Result<Acquired, StoreError> {
        let mut kept = self.kept();
        let found = kept.records.get(key);
        if let Some(live) = found.filter(|record| record.expires_at > lease.now) {
            return Ok(Acquired::Kept(live.clone()));
        }
        let was_expired = found.is_some_and(|record| record.status == IdempotencyStatus::InProgress);
        kept.remove(key);
        kept.expire(lease.now);
        if kept.records.len() >= self.capacity {
            return Err(StoreError::Unavailable(format!("all {} places are taken", self.capacity).into()));
        }
        kept.insert(key, IdempotencyRecord::in_progress(lease));
        Ok(Acquired::Taken { was_expired })
    }

    fn turn(&self, key: &str, token: &str, status: IdempotencyStatus, now: Timestamp, expires_at: Timestamp) -> bool {
        let mut kept = self.kept();
        let ours = |record: &&IdempotencyRecord| record.is_held_by(token) && record.expires_at > now;
        let Some(record) = kept.records.get(key).filter(ours).cloned() else { return false };
        kept.remove(key);
        kept.insert(key, IdempotencyRecord { status, expires_at, ..record });
        true
    }

    fn free(&self, key: &str, token: &str) {
        let mut kept = self.kept();
        if kept.records.get(key).is_some_and(|record| record.is_held_by(token)) {
            kept.remove(key);
        }
    }
}

impl IdempotencyStore for MemoryIdempotencyStore {
    fn acquire<'a>(&'a self, key: &'a str, lease: Lease) -> BoxFuture<'a, Result<Acquired, StoreError>> {
        Box::pin(async move { self.take(key, lease) })
    }

    fn complete<'a>(
        &'a self,
        key: &'a str,
        token: &'a str,
        status: IdempotencyStatus,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move { Ok(self.turn(key, token, status, now, expires_at)) })
    }

    fn release<'a>(&'a self, key: &'a str, token: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.free(key, token);
            Ok(())
        })
    }
}

impl Default for MemoryIdempotencyStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Kept {
    fn insert(&mut self, key: &str, record: IdempotencyRecord) {
        self.by_expiry.insert((record.expires_at, key.to_owned()));
        self.records.insert(key.to_owned(), record);
    }

    fn remove(&mut self, key: &str) {
        if let Some(record) = self.records.remove(key) {
            self.by_expiry.remove(&(record.expires_at, key.to_owned()));
        }
    }

    fn expire(&mut self, now: Timestamp) {
        while let Some((_, key)) = self.by_expiry.first().filter(|(expires_at, _)| *expires_at <= now).cloned() {
            self.remove(&key);
        }
    }
}

impl IdempotencyRecord {
    fn is_held_by(&self, token: &str) -> bool {
        self.token == token && self.status == IdempotencyStatus::InProgress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(token: &str, now: i64) -> Lease {
        let expires_at = Timestamp(now + 10);
        Lease { token: token.to_owned(), fingerprint: None, now: Timestamp(now), expires_at }
    }

    #[test]
    fn a_key_is_one_s_until_its_lease_runs_out() {
        let store = MemoryIdempotencyStore::new();
        assert_eq!(store.take("k", lease("a", 0)).unwrap(), Acquired::Taken { was_expired: false });
        assert!(matches!(store.take("k", lease("b", 9)).unwrap(), Acquired::Kept(kept) if kept.token == "a"));
        assert_eq!(store.take("k", lease("b", 10)).unwrap(), Acquired::Taken { was_expired: true });
        let completed = IdempotencyStatus::Completed;
        assert!(!store.turn("k", "a", completed.clone(), Timestamp(11), Timestamp(99)), "it is b's");
        store.free("k", "a");
        assert!(!store.turn("k", "b", completed.clone(), Timestamp(20), Timestamp(99)), "its lease ran out");
        assert!(store.turn("k", "b", completed.clone(), Timestamp(19), Timestamp(99)));
        store.free("k", "b");
        assert!(matches!(store.take("k", lease("c", 98)).unwrap(), Acquired::Kept(kept) if kept.status == completed));
        assert_eq!(store.take("k", lease("c", 99)).unwrap(), Acquired::Taken { was_expired: false }, "forgotten");
    }

    #[test]
    fn one_that_is_full_takes_no_more_until_something_expires() {
        let store = MemoryIdempotencyStore::with_capacity(2);
        store.take("a", lease("1", 0)).unwrap();
        store.take("b", lease("2", 5)).unwrap();
        assert!(matches!(store.take("c", lease("3", 9)), Err(StoreError::Unavailable(_))));
        store.take("c", lease("3", 10)).unwrap();
        assert_eq!(store.len(), 2);
        store.free("c", "3");
        store.free("b", "2");
        assert!(store.is_empty() && store.kept().by_expiry.is_empty());
    }
}
