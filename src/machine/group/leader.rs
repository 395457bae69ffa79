//! What a leader knows of its group, and the assignment that it makes.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kafka_protocol::messages::JoinGroupResponse;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::protocol::StrBytes;

use super::GroupFault;
use crate::machine::assignor::{Assignor, GroupAssignment, MemberSubscription};
use crate::protocol::subscription::{Assignment, Subscription};
use crate::record::Topic;

/// The members of a generation, until the partition counts of their topics are known.
#[derive(Debug)]
pub(super) struct Plan {
    assignor: Arc<dyn Assignor>,
    members: Vec<MemberSubscription>,
}

impl Plan {
    /// The members that an answer to the leader names. One whose subscription cannot be read gets nothing.
    pub(super) fn new(assignor: Arc<dyn Assignor>, response: &JoinGroupResponse) -> (Self, Vec<GroupFault>) {
        let (mut faults, mut known) = (Vec::new(), BTreeSet::new());
        let members = response
            .members
            .iter()
            // One that is named twice counts once: of two assignments for it the coordinator keeps the last.
            .filter(|member| known.insert(member.member_id.as_str()))
            .map(|member| {
                let subscription = Subscription::decode(&member.metadata).unwrap_or_else(|error| {
                    let member = member.member_id.to_string();
                    faults.push(GroupFault::MalformedSubscription { member, what: error.to_string() });
                    Subscription::default()
                });
                MemberSubscription {
                    member_id: member.member_id.to_string(),
                    group_instance_id: member.group_instance_id.as_ref().map(ToString::to_string),
                    subscription,
                }
            })
            .collect();
        (Self { assignor, members }, faults)
    }

    /// The topics of all members, also those that the leader itself did not subscribe to.
    pub(super) fn topics(&self) -> BTreeSet<Topic> {
        self.members.iter().flat_map(|member| &member.subscription.topics).cloned().collect()
    }

    /// Each member's partitions, as SyncGroup carries them.
    pub(super) fn assign(&self, counts: &BTreeMap<Topic, i32>) -> Result<Vec<SyncGroupRequestAssignment>, String> {
        let assignor = &*self.assignor;
        let assigned = guarded(assignor, "assigning", || assignor.assign(&self.members, counts))?;
        self.check(&assigned)?;
        assigned
            .into_iter()
            .map(|(member_id, partitions)| {
                let member = self.members.iter().find(|member| member.member_id == member_id);
                let user_data = match member {
                    Some(member) => {
                        guarded(assignor, "its assignment data", || assignor.assignment_data(member, &partitions))?
                    }
                    None => None,
                };
                let assignment = Assignment { partitions, user_data };
                // Version 0, which every client reads; all versions look the same.
                let assignment = assignment.encode(0).map_err(|error| error.to_string())?;
                Ok(SyncGroupRequestAssignment::default()
                    .with_member_id(StrBytes::from_string(member_id))
                    .with_assignment(assignment))
            })
            .collect()
    }

    /// Two members that read one partition would commit against each other.
    fn check(&self, assigned: &GroupAssignment) -> Result<(), String> {
        let mut owners = BTreeSet::new();
        match assigned.values().flatten().find(|partition| !owners.insert(*partition)) {
            Some(twice) => Err(format!("assignor {} gave {twice} twice", self.assignor.name())),
            None => Ok(()),
        }
    }
}

/// Runs an assignor's code, which may be the caller's: a panic in it is an error.
pub(super) fn guarded<T>(assignor: &dyn Assignor, doing: &str, code: impl FnOnce() -> T) -> Result<T, String> {
    // What it left half done is its own; of the machine it sees shared references alone.
    catch_unwind(AssertUnwindSafe(code)).map_err(|_| format!("assignor {} panicked in {doing}", assignor.name()))
}
