//! One round of a group as its member goes through it: let in, it assigns or waits for what is assigned, gives back what it has not
//! any more, and joins again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kafka_protocol::messages::{JoinGroupResponse, SyncGroupResponse};

use super::leader::{Plan, guarded};
use super::{
    EndReason, Group, GroupEvent, GroupFault, JOINS_AT_ONCE, Led, MIN_WAIT, RejoinCause, RequestId, Revocation, State,
    request,
};
use crate::machine::assignor::{LastAssignment, Rebalance};
use crate::protocol::error_code::ErrorCode;
use crate::protocol::subscription::Assignment;
use crate::record::{Topic, TopicPartition};
use crate::retry::Backoff;

impl Group {
    /// The answer to a JoinGroup.
    pub(crate) fn handle_join(&mut self, now: Instant, id: RequestId, response: JoinGroupResponse) {
        if !matches!(self.state, State::Joining { held } if held.request == id) {
            return;
        }
        self.heartbeat.heard = now;
        match ErrorCode(response.error_code) {
            ErrorCode::NONE => self.joined(now, response),
            // KIP-394: the broker wants a join only from members that can be found again.
            ErrorCode::MEMBER_ID_REQUIRED => {
                self.member_id = response.member_id;
                self.state = State::Unjoined { not_before: now };
            }
            ErrorCode::INCONSISTENT_GROUP_PROTOCOL => self.offer_refused(now),
            code => self.refused(now, "JoinGroup", code),
        }
    }

    /// What is known of the topics that [`GroupEvent::NeedTopics`] asked for; those that do not exist are left out.
    pub(crate) fn handle_topics(&mut self, counts: BTreeMap<Topic, i32>) {
        let State::Leading { plan } = &self.state else { return };
        let missing: Vec<_> = self.topics.iter().filter(|topic| !counts.contains_key(*topic)).cloned().collect();
        if !missing.is_empty() {
            self.events.push_back(GroupEvent::Fault(GroupFault::TopicsMissing { topics: missing }));
        }
        let assignments = match plan.assign(&counts) {
            Ok(assignments) => assignments,
            Err(what) => return self.end(EndReason::Failed { what }),
        };
        let sync = self.sync_request(assignments);
        self.led = Some(Led { topics: plan.topics(), counts });
        self.state = State::Syncing { held: None, sync: Box::new(sync) };
    }

    /// Partition counts as metadata has them now. Where they differ from those that the assignment was made from, its
    /// leader asks for another.
    pub(crate) fn handle_counts(&mut self, now: Instant, count_of: impl Fn(&str) -> Option<i32>) {
        let Some(led) = &self.led else { return };
        if !self.is_stable() {
            return;
        }
        // A topic that vanished from view is not a reason: metadata may be in between two states.
        let changed = |topic: &Topic| count_of(topic).is_some_and(|count| led.counts.get(topic) != Some(&count));
        if led.topics.iter().any(changed) {
            self.join_again(now, RejoinCause::TopicsChanged);
        }
    }

    /// The topics whose partition counts this member watches for the group: those of all members where it leads.
    pub(crate) fn watched_topics(&self) -> BTreeSet<Topic> {
        let led = self.led.iter().flat_map(|led| &led.topics);
        self.topics.iter().chain(led).cloned().collect()
    }

    /// The answer to a SyncGroup.
    pub(crate) fn handle_sync(&mut self, now: Instant, id: RequestId, response: SyncGroupResponse) {
        if !matches!(self.state, State::Syncing { held: Some(held), .. } if held.request == id) {
            return;
        }
        self.heartbeat.heard = now;
        match ErrorCode(response.error_code) {
            ErrorCode::NONE => self.assigned(now, &response),
            code => self.refused(now, "SyncGroup", code),
        }
    }

    fn joined(&mut self, now: Instant, response: JoinGroupResponse) {
        let name = response.protocol_name.as_deref().unwrap_or_default();
        let Some(protocol) = self.config.offers[self.offer].iter().find(|p| p.name() == name).cloned() else {
            self.events.push_back(GroupEvent::Fault(GroupFault::UnknownAssignor { name: name.to_owned() }));
            let not_before = now + self.wait();
            self.state = State::Unjoined { not_before };
            return;
        };
        if self.offer > 0 && self.protocol.as_ref().is_none_or(|known| known.name() != name) {
            let wanted = self.config.offers[0].iter().map(|p| p.name().to_owned()).collect();
            let used = name.to_owned();
            self.events.push_back(GroupEvent::Fault(GroupFault::OtherAssignor { wanted, used }));
        }
        self.refused_offers = 0;
        self.failures = 0;
        self.protocol = Some(protocol.clone());
        self.generation = response.generation_id;
        self.member_id = response.member_id.clone();
        self.led = None;
        self.heartbeat.due = now + self.config.heartbeat_interval;
        // KIP-814: a static leader that comes back is told to leave the assignment as it is.
        if response.leader != response.member_id || response.skip_assignment {
            let sync = self.sync_request(Vec::new());
            self.state = State::Syncing { held: None, sync: Box::new(sync) };
            return;
        }
        let (plan, faults) = Plan::new(protocol, &response);
        self.events.extend(faults.into_iter().map(GroupEvent::Fault));
        self.events.push_back(GroupEvent::NeedTopics { topics: plan.topics().into_iter().collect() });
        self.state = State::Leading { plan };
    }

    fn assigned(&mut self, now: Instant, response: &SyncGroupResponse) {
        self.failures = 0;
        (self.joins, self.next_join) = (0, None);
        self.state = State::Stable;
        self.heartbeat.due = now + self.config.heartbeat_interval;
        let assigned = request::decode_assignment(&response.assignment).unwrap_or_else(|what| {
            self.events.push_back(GroupEvent::Fault(GroupFault::MalformedAssignment { what }));
            Assignment::default()
        });
        let Assignment { partitions: assigned, user_data } = assigned;
        self.last = Some((self.generation, assigned.clone()));
        if let Some(protocol) = self.protocol.clone() {
            let last = self.last_assignment().expect("it was just set");
            if let Err(what) =
                guarded(&*protocol, "hearing its assignment", || protocol.assigned(last, user_data.as_ref()))
            {
                return self.end(EndReason::Failed { what });
            }
        }
        let (assigned, foreign): (BTreeSet<_>, BTreeSet<_>) =
            assigned.into_iter().partition(|partition| self.topics.contains(&partition.topic));
        // A subscription that was given up while the group assigned is no fault of the leader's.
        if !foreign.is_empty() && self.told_topics {
            let partitions = foreign.into_iter().collect();
            self.events.push_back(GroupEvent::Fault(GroupFault::ForeignPartitions { partitions }));
        }
        let revoked: BTreeSet<_> = self.owned.difference(&assigned).cloned().collect();
        let added: Vec<_> = assigned.difference(&self.owned).cloned().collect();
        self.owned.extend(added.iter().cloned());
        self.events.push_back(GroupEvent::Assigned { generation: self.generation, added });
        if !revoked.is_empty() {
            // KIP-429: what is revoked goes to its next owner only by another rebalance.
            self.rejoin = Some(RejoinCause::Revoked);
            self.revoke(now, revoked);
        }
        if !self.told_topics {
            self.join_again(now, RejoinCause::Subscribed);
        }
    }

    pub(super) fn last_assignment(&self) -> Option<LastAssignment<'_>> {
        let (generation, partitions) = self.last.as_ref()?;
        Some(LastAssignment { generation: *generation, partitions })
    }

    pub(super) fn join_again(&mut self, now: Instant, cause: RejoinCause) {
        match self.state {
            State::Stable => {
                self.rejoin.get_or_insert(cause);
                self.advance(now);
            }
            State::Leading { .. } => self.state = State::Unjoined { not_before: now },
            _ => {}
        }
    }

    /// A coordinator that lets a member join and then knows nothing of it would be asked in a loop.
    pub(super) fn pace_joins(&mut self, now: Instant) {
        self.joins = self.joins.saturating_add(1);
        let many = self.joins.saturating_sub(JOINS_AT_ONCE);
        if many > 0 {
            self.next_join = Some(now + self.config.backoff.delay(many, self.jitter.next()).max(MIN_WAIT));
        }
    }

    /// From stable on to the next join, once nothing stands in the way.
    fn advance(&mut self, now: Instant) {
        if !self.is_stable() || self.revocation.is_some() || self.rejoin.is_none() {
            return;
        }
        if self.must_give_back_first() {
            return self.revoke(now, self.owned.clone());
        }
        self.state = State::Unjoined { not_before: now };
    }

    /// Eager assignors deal all partitions anew, so a member comes with empty hands.
    pub(super) fn must_give_back_first(&self) -> bool {
        let mut bound = self.protocol.iter().chain(&self.config.offers[self.offer]);
        !self.owned.is_empty() && bound.any(|assignor| assignor.rebalance() == Rebalance::Eager)
    }

    /// The partitions under revocation are let go of.
    pub(crate) fn released(&mut self, now: Instant) {
        let Some(revocation) = self.revocation.take() else { return };
        self.owned.retain(|partition| !revocation.partitions.contains(partition));
        self.events.push_back(GroupEvent::Released { partitions: revocation.partitions.into_iter().collect() });
        self.advance(now);
    }

    pub(super) fn revoke(&mut self, now: Instant, partitions: BTreeSet<TopicPartition>) {
        let told = partitions.iter().cloned().collect();
        let deadline = now + self.config.revocation_timeout;
        self.revocation = Some(Revocation { partitions, deadline });
        self.events.push_back(GroupEvent::Revoked { partitions: told });
    }

    /// The group refused the assignors that were offered: it runs others.
    fn offer_refused(&mut self, now: Instant) {
        self.refused_offers += 1;
        if self.refused_offers >= self.config.offers.len() {
            let offered = self.config.offers.iter().flatten().map(|p| p.name().to_owned()).collect();
            return self.end(EndReason::NoCommonAssignor { offered });
        }
        self.offer = (self.offer + 1) % self.config.offers.len();
        self.state = State::Unjoined { not_before: now };
    }
}
