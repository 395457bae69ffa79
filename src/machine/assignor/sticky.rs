//! The `sticky` assignor.

use bytes::Bytes;

use super::deal::Deal;
use super::{Assignor, GroupAssignment, LastAssignment, MemberSubscription, PartitionCounts, by_member_id, in_order};
use crate::protocol::sticky::StickyUserData;

/// Evenly, with as few partitions changing hands as evenness allows, in one step for which everybody stops reading. Compatible
/// with Java's and librdkafka's `StickyAssignor`; for groups that run it already: [`CooperativeSticky`](super::CooperativeSticky)
/// does the same without stopping.
///
/// A member comes with empty hands and says in its user data what it had, and since which generation. Claims of a member that
/// missed a generation lose against newer ones; two claims of the same generation cancel each other, and user data that
/// cannot be read claims nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sticky;

impl Assignor for Sticky {
    fn name(&self) -> &str {
        "sticky"
    }

    fn user_data(&self, last: Option<LastAssignment<'_>>) -> Option<Bytes> {
        last.map(|last| StickyUserData::encode(last.partitions, last.generation))
    }

    fn assign(&self, members: &[MemberSubscription], partitions: &PartitionCounts) -> GroupAssignment {
        let members: Vec<_> = members.iter().map(as_owner).collect();
        let members = in_order(&members);
        by_member_id(&members, Deal::dealt_out(&members, partitions).whole())
    }
}

/// The member as one that owns what its user data says.
fn as_owner(member: &MemberSubscription) -> MemberSubscription {
    let data = member.subscription.user_data.as_ref().and_then(|data| StickyUserData::decode(data).ok());
    let data = data.unwrap_or_default();
    let mut member = member.clone();
    member.subscription.user_data = None;
    member.subscription.owned_partitions = Some(data.partitions);
    member.subscription.generation = data.generation;
    member
}
