//! What a member's events say that it owns.

use std::collections::BTreeSet;

use crate::machine::group::GroupEvent;
use crate::record::TopicPartition;

/// What the application has by the events so far.
#[derive(Debug, Default)]
pub(super) struct Owned {
    pub(super) partitions: BTreeSet<TopicPartition>,
    /// To be given back, and not yet released.
    pub(super) revoking: Option<BTreeSet<TopicPartition>>,
    /// The topics of an assignment are wanted.
    pub(super) asked_for_topics: bool,
    pub(super) ended: bool,
}

impl Owned {
    pub(super) fn take(&mut self, event: GroupEvent) {
        assert!(!self.ended, "{event:?} after the end");
        match event {
            GroupEvent::NeedTopics { .. } => self.asked_for_topics = true,
            GroupEvent::Assigned { added, .. } => {
                for partition in added {
                    assert!(partition.partition >= 0, "{partition} cannot be");
                    assert!(self.partitions.insert(partition.clone()), "{partition} is assigned twice");
                }
            }
            GroupEvent::Revoked { partitions } => {
                assert!(self.revoking.is_none(), "two revocations at once");
                let partitions: BTreeSet<_> = partitions.into_iter().collect();
                assert!(!partitions.is_empty() && partitions.is_subset(&self.partitions), "revoked and not owned");
                self.revoking = Some(partitions);
            }
            GroupEvent::Released { partitions } => {
                let partitions: BTreeSet<_> = partitions.into_iter().collect();
                assert_eq!(self.revoking.take(), Some(partitions.clone()), "released and not revoked");
                self.partitions.retain(|partition| !partitions.contains(partition));
            }
            GroupEvent::Lost { partitions, .. } => {
                let partitions: BTreeSet<_> = partitions.into_iter().collect();
                assert_eq!(partitions, self.partitions, "lost is all that is owned");
                self.partitions.clear();
                self.revoking = None;
            }
            GroupEvent::Fault(_) => {}
            GroupEvent::UseClassic { .. } | GroupEvent::Ended { .. } => {
                assert!(self.partitions.is_empty(), "over, with partitions that nobody took");
                self.ended = true;
            }
        }
    }

    /// It leaves: what it owns is let go of without an event.
    pub(super) fn leave(&mut self) {
        self.partitions.clear();
        self.revoking = None;
    }
}
