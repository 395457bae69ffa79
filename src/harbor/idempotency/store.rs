//! Where keys are remembered.

use crate::adapter::BoxFuture;
use crate::error::BoxError;
use crate::record::Timestamp;

/// Keeps one record a key. Every call is one atomic step, for all who share the store.
///
/// Times are the caller's. A record is there until its `expires_at`, and gone from then on.
pub trait IdempotencyStore: Send + Sync + 'static {
    /// Takes the key if it is free.
    fn acquire<'a>(&'a self, key: &'a str, lease: Lease) -> BoxFuture<'a, Result<Acquired, StoreError>>;

    /// Turns the record from in progress to this status until `expires_at`, if it is still the one that `token` took, in progress, and
    /// not expired at `now`. False if it is not.
    fn complete<'a>(
        &'a self,
        key: &'a str,
        token: &'a str,
        status: IdempotencyStatus,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Frees the key, if the record is still the one that `token` took, and in progress.
    fn release<'a>(&'a self, key: &'a str, token: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// What takes a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// Whose it is: no two are the same.
    pub token: String,
    /// What the work is about.
    pub fingerprint: Option<String>,
    /// The time of the call.
    pub now: Timestamp,
    /// When others may take the key, if nothing was heard until then.
    pub expires_at: Timestamp,
}

/// What became of taking a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// It is the caller's.
    Taken {
        /// Whether its lease had run out before: whoever had it ended without a word.
        was_expired: bool,
    },
    /// It is somebody's, or done.
    Kept(IdempotencyRecord),
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdempotencyRecord {
    /// Who took it.
    pub token: String,
    /// How it stands.
    pub status: IdempotencyStatus,
    /// What the work is about.
    pub fingerprint: Option<String>,
    /// Until when this holds.
    pub expires_at: Timestamp,
}

impl IdempotencyRecord {
    /// The record that a lease makes.
    pub fn in_progress(lease: Lease) -> Self {
        let Lease { token, fingerprint, expires_at, .. } = lease;
        Self { token, status: IdempotencyStatus::InProgress, fingerprint, expires_at }
    }
}

/// How work stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdempotencyStatus {
    /// Somebody is at it.
    InProgress,
    /// It succeeded.
    Completed,
    /// It failed, for good.
    Failed {
        /// The error's name.
        name: String,
        /// What it said.
        message: String,
    },
}

/// A store did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It could not be reached, or has no room.
    #[error("{0}")]
    Unavailable(BoxError),
    /// What it holds makes no sense.
    #[error("{0}")]
    Corrupt(BoxError),
}
