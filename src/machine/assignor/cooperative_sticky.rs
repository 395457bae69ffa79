//! The `cooperative-sticky` assignor.

use bytes::Bytes;

use super::deal::Deal;
use super::{
    Assignor, GroupAssignment, LastAssignment, MemberSubscription, PartitionCounts, Rebalance, by_member_id, in_order,
};

/// Evenly, with as few partitions changing hands as evenness allows, in two steps so that all others are read without a
/// pause (KIP-429). Compatible with Java's `CooperativeStickyAssignor`.
///
/// A partition that changes hands is in nobody's assignment at first: its owner sees that it is gone, lets go, and joins
/// again; then the new owner gets it. Claims of a member that missed a generation lose against newer ones; two claims of
/// the same generation cancel each other. A member that does not say what it owns owns nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct CooperativeSticky;

impl Assignor for CooperativeSticky {
    fn name(&self) -> &str {
        "cooperative-sticky"
    }

    fn rebalance(&self) -> Rebalance {
        Rebalance::Cooperative
    }

    /// The generation, as Java writes it for leaders that read version 1.
    fn user_data(&self, last: Option<LastAssignment<'_>>) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(&last.map_or(-1, |last| last.generation).to_be_bytes()))
    }

    fn assign(&self, members: &[MemberSubscription], partitions: &PartitionCounts) -> GroupAssignment {
        let members = in_order(members);
        by_member_id(&members, Deal::dealt_out(&members, partitions).without_held_by_others(&members))
    }
}
