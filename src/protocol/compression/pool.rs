//! Codec contexts kept for the next batch: making one costs more than a small batch does.

use std::sync::{Mutex, PoisonError};

/// At most [`KEPT`] idle contexts, shared by all threads.
pub(super) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// A kept context, if one is idle.
    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Keeps a context, unless enough are idle.
    pub(super) fn give(&self, context: T) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(context);
        }
    }
}

/// An encoder's tables take up to about a MiB at the usual levels; few threads compress at once.
const KEPT: usize = 4;
