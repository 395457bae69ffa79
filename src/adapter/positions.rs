//! Where other groups stand, and how they are moved: a port of its own, as only an operator's work needs it.

use std::fmt;

use crate::adapter::{AdapterError, BoxFuture, CommittedOffset};
use crate::record::Topic;

/// Positions of all groups. The Kafka client's `Admin` and the memory adapter's
/// [`MemoryBroker`](crate::adapter::memory::MemoryBroker) have them.
pub trait GroupPositions: fmt::Debug + Send + Sync + 'static {
    /// Every group that has committed on one of these topics, or has a member that reads one.
    ///
    /// # Errors
    /// When it is not known of all groups: a broker cannot be asked, or a group may not be looked at.
    fn groups_of<'a>(&'a self, topics: &'a [Topic]) -> BoxFuture<'a, Result<Vec<ReadingGroup>, AdapterError>>;

    /// Sets what a group has committed. The broker refuses if it has members.
    ///
    /// # Errors
    /// When any of them was refused, or no answer came; it may be set all the same then.
    fn set_committed<'a>(
        &'a self,
        group: &'a str,
        offsets: &'a [CommittedOffset],
    ) -> BoxFuture<'a, Result<(), AdapterError>>;
}

/// A group that reads some topics, or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadingGroup {
    /// Its id.
    pub group: String,
    /// How many members it has now.
    pub members: usize,
    /// What it has committed on the topics.
    pub committed: Vec<CommittedOffset>,
}
