//! The producer id that the broker gives out, by which it tells this producer's batches.

use std::time::Instant;

/// What is known of the producer's id.
///
/// ```text
///  Unknown ──asked──► Asked ──answered──► Known ──distrusted──► Unknown
///     ▲                 │
///     └───(at `from`)───┘ no answer
/// ```
///
/// Epochs are not kept here. A broker keeps no epoch for a producer without transactional id: it only compares, a partition at
/// a time, with the one that it saw there last. So each partition counts its own up (what KIP-360 does for the whole
/// producer), and trouble in one leaves the others alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// To be asked for, not before `from`.
    Unknown {
        /// When to ask again after a failure.
        from: Option<Instant>,
        /// Failures in a row.
        failures: u32,
    },
    /// InitProducerId is under way.
    Asked {
        /// Failures in a row before it.
        failures: u32,
    },
    /// Given out by the broker, with its first epoch.
    Known(ProducerId),
}

/// The transaction that is under way, of a transactional producer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope {
    /// Counts transactions.
    pub(super) serial: u64,
    /// Whether a Produce request itself adds its partitions to the transaction (KIP-890); else they are enlisted before.
    pub(super) implicit: bool,
    /// A record of it failed, or it is aborted: nothing more leaves, and what comes back is not sent again.
    pub(super) doomed: bool,
    /// Nothing is added to it any more.
    pub(super) ending: bool,
    /// Something of it was sent.
    pub(super) sent: bool,
}

/// A producer id and the epoch that a partition's numbers begin in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProducerId {
    /// The id.
    pub(crate) id: i64,
    /// The epoch.
    pub(crate) epoch: i16,
}

impl Identity {
    /// Not asked for yet.
    pub(super) const NEW: Self = Self::Unknown { from: None, failures: 0 };

    /// The id, once it is known.
    pub(super) fn known(self) -> Option<ProducerId> {
        match self {
            Self::Known(producer) => Some(producer),
            Self::Unknown { .. } | Self::Asked { .. } => None,
        }
    }
}
