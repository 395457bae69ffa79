//! How fast letters are brought back.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// At most so many letters in so long, evenly: each chunk is written when the ones before it have used up their time.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Option<Rate>,
    /// When the next chunk may be written.
    next: Mutex<Instant>,
}

/// Letters, and in how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) letters: u64,
    pub(super) per: Duration,
}

impl Pace {
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self { rate, next: Mutex::new(Instant::now()) }
    }

    /// The most letters to write together, of at most `most`: a fifth of a second's worth, so that it goes evenly.
    pub(super) fn chunk(&self, most: u64) -> u64 {
        let Some(rate) = self.rate else { return most };
        let worth = u128::from(rate.letters) * 200 / rate.per.as_millis().max(1);
        u64::try_from(worth).unwrap_or(u64::MAX).clamp(1, most)
    }

    /// Takes the time of so many letters, and tells when they may be written.
    pub(super) fn take(&self, letters: u64) -> Option<Instant> {
        let rate = self.rate.filter(|_| letters > 0)?;
        let nanos = rate.per.as_nanos() * u128::from(letters) / u128::from(rate.letters.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (*next).max(Instant::now());
        *next = at + takes;
        Some(at)
    }
}
