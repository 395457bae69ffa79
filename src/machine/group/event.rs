//! What a member of a group tells.

use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};

/// What happened to a membership.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GroupEvent {
    /// As the leader: answer with [`Group::handle_topics`](super::Group::handle_topics).
    NeedTopics { topics: Vec<Topic> },
    /// A rebalance is complete, and these partitions came. May be none.
    Assigned { generation: i32, added: Vec<TopicPartition> },
    /// These are to go; answer with [`Group::released`](super::Group::released).
    Revoked { partitions: Vec<TopicPartition> },
    /// These went, after [`GroupEvent::Revoked`].
    Released { partitions: Vec<TopicPartition> },
    /// These are gone without having been asked for.
    Lost { partitions: Vec<TopicPartition>, cause: LossCause },
    /// Something went wrong; the membership goes on.
    Fault(GroupFault),
    /// This one is over before it began, in favour of a classic membership.
    UseClassic { why: &'static str },
    /// The membership is over.
    Ended { reason: EndReason },
}

/// Why partitions were lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LossCause {
    /// The coordinator does not know the member, or not its generation.
    Refused { api: &'static str, code: ErrorCode },
    /// The coordinator was not heard of for a session timeout.
    SessionExpired,
    /// A revocation was not answered in time, so that the coordinator takes the member for dead.
    RevocationTimedOut,
    /// The membership is over.
    Ended,
}

/// Why a member joins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejoinCause {
    /// The group is rebalancing.
    Rebalance,
    /// Partitions were given back, and wait for their next owner.
    Revoked,
    /// The leader saw topics appear or grow.
    TopicsChanged,
    /// Another subscription.
    Subscribed,
    /// What was owned is lost.
    Lost,
}

impl RejoinCause {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Rebalance => "the group is rebalancing",
            Self::Revoked => "revoked partitions were given back",
            Self::TopicsChanged => "the leader saw partitions appear",
            Self::Subscribed => "the topics that a pattern matches changed",
            Self::Lost => "the session expired",
        }
    }
}

/// Something that a membership survives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupFault {
    /// A request was not answered.
    Unreachable { what: String },
    /// The coordinator refused, and will be asked again.
    Refused { api: &'static str, code: ErrorCode },
    /// The group runs another assignor than the one that is preferred; this member joined with it.
    OtherAssignor { wanted: Vec<String>, used: String },
    /// The coordinator chose an assignor that was not offered.
    UnknownAssignor { name: String },
    /// The assignment cannot be read, and is taken as none.
    MalformedAssignment { what: String },
    /// A member's subscription cannot be read; it is assigned nothing.
    MalformedSubscription { member: String, what: String },
    /// Partitions were assigned of topics that this member did not ask for. They are left alone.
    ForeignPartitions { partitions: Vec<TopicPartition> },
    /// Topics that this member subscribed to do not exist.
    TopicsMissing { topics: Vec<Topic> },
    /// A revocation was not answered in time; the partitions were let go of.
    RevocationTimedOut { partitions: Vec<TopicPartition> },
}

/// Why a membership ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// It left.
    Left,
    /// Another member has its instance id (KIP-345).
    Fenced,
    /// The coordinator refused for good.
    Refused { api: &'static str, code: ErrorCode },
    /// The group runs none of the assignors that were offered.
    NoCommonAssignor { offered: Vec<String> },
    /// A request cannot be made at all.
    Failed { what: String },
}
