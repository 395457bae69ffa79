//! What was asked of the broker.

use crate::memory::Operation;
use crate::record::{Offset, Topic, TopicPartition};

/// One call on an adapter, a publisher or a membership, as [`MemoryBroker::calls`](super::MemoryBroker::calls) lists
/// them. Calls that failed are among them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// `Adapter::connect`.
    Connect,
    /// `Adapter::close`.
    Close,
    /// One try of a publish.
    Publish {
        /// The topics that its records go to, in order.
        topics: Vec<Topic>,
        /// How many records.
        records: usize,
    },
    /// `Adapter::join`.
    Join {
        /// The group.
        group: String,
        /// What it wants to read.
        topics: Vec<Topic>,
    },
    /// `MembershipHandle::settle`.
    Settle {
        /// The group.
        group: String,
        /// The positions.
        positions: Vec<(TopicPartition, Offset)>,
    },
    /// `MembershipHandle::pause`.
    Pause {
        /// The group.
        group: String,
        /// Which partition.
        partition: TopicPartition,
    },
    /// `MembershipHandle::resume`.
    Resume {
        /// The group.
        group: String,
        /// Which partition.
        partition: TopicPartition,
        /// The new position; `None` to go on where it stood.
        from: Option<Offset>,
    },
    /// `MembershipHandle::leave`.
    Leave {
        /// The group.
        group: String,
    },
    /// `Adapter::create_topics`.
    CreateTopics {
        /// The topics.
        topics: Vec<Topic>,
    },
    /// `Adapter::describe_topics`.
    DescribeTopics {
        /// The topics.
        topics: Vec<Topic>,
    },
    /// `Adapter::watermarks`.
    Watermarks {
        /// The topics.
        topics: Vec<Topic>,
    },
    /// `Adapter::committed`.
    Committed {
        /// The group.
        group: String,
        /// The topics.
        topics: Vec<Topic>,
    },
}

impl Call {
    /// The kind by which a [`Fault`](crate::memory::Fault) finds it; `None` where none can be ordered.
    pub fn operation(&self) -> Option<Operation> {
        Some(match self {
            Self::Connect => Operation::Connect,
            Self::Close => Operation::Close,
            Self::Publish { .. } => Operation::Publish,
            Self::Join { .. } => Operation::Join,
            Self::Settle { .. } => Operation::Settle,
            Self::Leave { .. } => Operation::Leave,
            Self::CreateTopics { .. } => Operation::CreateTopics,
            Self::DescribeTopics { .. } => Operation::DescribeTopics,
            Self::Watermarks { .. } => Operation::Watermarks,
            Self::Committed { .. } => Operation::Committed,
            Self::Pause { .. } | Self::Resume { .. } => return None,
        })
    }

    /// The group, where it concerns one.
    pub(super) fn group(&self) -> Option<&str> {
        match self {
            Self::Join { group, .. }
            | Self::Settle { group, .. }
            | Self::Pause { group, .. }
            | Self::Resume { group, .. }
            | Self::Leave { group }
            | Self::Committed { group, .. } => Some(group),
            _ => None,
        }
    }

    /// The topics, where it concerns some.
    pub(super) fn topics(&self) -> Vec<Topic> {
        match self {
            Self::Publish { topics, .. }
            | Self::Join { topics, .. }
            | Self::CreateTopics { topics }
            | Self::DescribeTopics { topics }
            | Self::Watermarks { topics }
            | Self::Committed { topics, .. } => topics.clone(),
            Self::Settle { positions, .. } => positions.iter().map(|(p, _)| p.topic.clone()).collect(),
            Self::Pause { partition, .. } | Self::Resume { partition, .. } => vec![partition.topic.clone()],
            Self::Connect | Self::Close | Self::Leave { .. } => Vec::new(),
        }
    }
}
