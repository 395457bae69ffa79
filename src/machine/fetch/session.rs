//! What a broker remembers of what is read from it (KIP-227).
//!
//! ```text
//!          ┌─ answered with id 0 ─┐
//!          ▼                      │
//!   Whole (epoch 0) ──────────────┴─ answered with an id ──▶ Changes alone (epoch 1, 2, …) ─┐
//!     ▲         ▲                                               │    │       ▲              │
//!     │         └────────────── the broker forgot it ───────────┘    │       └── answered ──┘
//!     └── not answered, out of step, by names and by ids: ends the old one ──┘
//! ```
//!
//! At a membership's end each broker is told that its session is over (epoch -1). Otherwise it would keep it for two minutes at least, and
//! a broker has room for a thousand.
//!
//! A request to a broker that keeps a session says what is new since the last one: partitions that came, whose position or
//! limit is another, or that are not wanted any more. Its answer has partitions with news alone; of the others nothing is
//! known anew. The broker serves those first that it served longest ago.
//!
//! The broker is right about what it remembers only as long as every request reaches it in turn. So whatever leaves that in doubt
//! ends the session, and the next request says everything.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::messages::fetch_response::FetchableTopicResponse;
use uuid::Uuid;

use super::plan::PlannedFetch;
use crate::protocol::error_code::ErrorCode;
use crate::record::{Topic, TopicPartition};

/// A broker's session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// 0 where the broker keeps none.
    id: i32,
    /// What the next request is to say; 0 begins a new session.
    epoch: i32,
    /// Shared with the request in flight alone.
    known: Arc<Known>,
}

/// What is asked of a broker, and where it stands in the session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Whether a topic without an id is in it, so that all go by name.
    by_name: bool,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    places: HashMap<TopicPartition, usize>,
    topics: HashMap<Uuid, Topic>,
}

/// A partition that the broker knows of.
#[derive(Debug, Clone)]
struct Slot {
    fetch: PlannedFetch,
    /// The last request that wanted it.
    wanted_by: u64,
}

/// A partition that is not wanted any more.
#[derive(Debug)]
pub(super) struct Forgotten {
    pub(super) partition: TopicPartition,
    pub(super) topic_id: Uuid,
    /// Whether the partition of another topic with this name took its place.
    pub(super) replaced: bool,
}

impl Session {
    /// Begins a request. One that cannot go on with what the broker knows starts anew.
    pub(super) fn begin(&mut self, by_name: bool) -> &mut Known {
        if self.known.by_name != by_name {
            self.epoch = BEGIN;
        }
        let known = Arc::make_mut(&mut self.known);
        if self.epoch == BEGIN {
            *known = Known { by_name, ..Known::default() };
        }
        known
    }

    pub(super) fn known(&self) -> Arc<Known> {
        self.known.clone()
    }

    /// As which request of which session the next one goes.
    pub(super) fn step(&self) -> (i32, i32) {
        (self.id, self.epoch)
    }

    /// The answer to a request that went as `step`.
    pub(super) fn answered(&mut self, step: (i32, i32), id: i32, code: ErrorCode) {
        if code == ErrorCode::FETCH_SESSION_ID_NOT_FOUND {
            (self.id, self.epoch) = (NONE, BEGIN);
        } else if !code.is_ok() {
            self.epoch = BEGIN;
        } else if step.1 == BEGIN {
            (self.id, self.epoch) = if id > NONE { (id, FIRST) } else { (NONE, BEGIN) };
        } else if id == self.id {
            self.epoch = self.epoch.checked_add(1).unwrap_or(FIRST);
        } else {
            // Given up by the broker, or of somebody else.
            (self.id, self.epoch) = (NONE, BEGIN);
        }
    }

    /// Ends it for good. Its id, if the broker keeps one as far as is known.
    pub(super) fn end(&mut self) -> Option<i32> {
        let ended = std::mem::take(self);
        (ended.id > NONE && ended.epoch != BEGIN).then_some(ended.id)
    }

    /// Whether a request arrived is not known.
    pub(super) fn in_doubt(&mut self) {
        self.epoch = BEGIN;
    }
}

impl Known {
    /// The request wants this. Its place, and whether the broker has to be told. `hint` is where it was before.
    pub(super) fn want(
        &mut self,
        request: u64,
        hint: Option<usize>,
        fetch: PlannedFetch,
        forgotten: &mut Vec<Forgotten>,
    ) -> (usize, bool) {
        let known = hint.filter(|at| self.get(*at).is_some_and(|slot| slot.partition == fetch.partition));
        let Some(at) = known.or_else(|| self.places.get(&fetch.partition).copied()) else {
            return (self.add(request, fetch), true);
        };
        let slot = self.slots[at].as_mut().expect("a place in use has its slot");
        slot.wanted_by = request;
        let old = std::mem::replace(&mut slot.fetch, fetch);
        if old.topic_id != slot.fetch.topic_id {
            self.topics.insert(slot.fetch.topic_id, old.partition.topic.clone());
            forgotten.push(Forgotten { partition: old.partition, topic_id: old.topic_id, replaced: true });
            return (at, true);
        }
        let changed = !slot.fetch.says_the_same_as(&old);
        (at, changed)
    }

    /// Ends a request: what it did not want is forgotten.
    pub(super) fn finish(&mut self, request: u64, forgotten: &mut Vec<Forgotten>) {
        for (at, place) in self.slots.iter_mut().enumerate() {
            if let Some(slot) = place.take_if(|slot| slot.wanted_by != request) {
                self.places.remove(&slot.fetch.partition);
                self.free.push(at);
                let PlannedFetch { partition, topic_id, .. } = slot.fetch;
                forgotten.push(Forgotten { partition, topic_id, replaced: false });
            }
        }
        if self.topics.len() > self.places.len() + SPARE_TOPICS {
            let known = self.slots.iter().flatten();
            self.topics = known.map(|slot| (slot.fetch.topic_id, slot.fetch.partition.topic.clone())).collect();
        }
    }

    /// What is asked at this place.
    pub(crate) fn get(&self, at: usize) -> Option<&PlannedFetch> {
        self.slots.get(at)?.as_ref().map(|slot| &slot.fetch)
    }

    /// How many places there are.
    pub(super) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Everything that the broker knows of.
    pub(crate) fn fetches(&self) -> impl Iterator<Item = &PlannedFetch> {
        self.slots.iter().flatten().map(|slot| &slot.fetch)
    }

    pub(super) fn is_by_name(&self) -> bool {
        self.by_name
    }

    /// The place of a partition that an answer names. Answers to whole requests come in the order of the question, so `hint` is
    /// looked at first.
    pub(crate) fn find(&self, hint: usize, topic: &FetchableTopicResponse, partition: i32) -> Option<usize> {
        let is_it = |at: &usize| {
            self.get(*at).is_some_and(|asked| {
                asked.partition.partition == partition
                    && if topic.topic_id.is_nil() {
                        asked.partition.topic.as_str() == topic.topic.as_str()
                    } else {
                        asked.topic_id == topic.topic_id
                    }
            })
        };
        if is_it(&hint) {
            return Some(hint);
        }
        let name = match topic.topic_id.is_nil() {
            true => Topic::from(topic.topic.as_str()),
            false => self.topics.get(&topic.topic_id)?.clone(),
        };
        self.places.get(&TopicPartition::new(name, partition)).copied().filter(is_it)
    }

    fn add(&mut self, request: u64, fetch: PlannedFetch) -> usize {
        let at = self.free.pop().unwrap_or(self.slots.len());
        self.places.insert(fetch.partition.clone(), at);
        self.topics.entry(fetch.topic_id).or_insert_with(|| fetch.partition.topic.clone());
        let slot = Some(Slot { fetch, wanted_by: request });
        match self.slots.get_mut(at) {
            Some(place) => *place = slot,
            None => self.slots.push(slot),
        }
        at
    }
}

/// Of no session.
const NONE: i32 = 0;
/// Of the request that begins a session, and ends the one that it names.
const BEGIN: i32 = 0;
/// Of the request after that.
const FIRST: i32 = 1;
/// Ids of topics that have gone are kept until they are so many more than partitions.
const SPARE_TOPICS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Offset;

    fn fetch(partition: i32, offset: i64, id: u128) -> PlannedFetch {
        PlannedFetch {
            partition: TopicPartition::new("orders", partition),
            topic_id: Uuid::from_u128(id),
            offset: Offset(offset),
            leader_epoch: None,
            last_fetched_epoch: None,
            max_bytes: 1,
            version: 0,
        }
    }

    /// What is said and what is forgotten of these.
    fn say(session: &mut Session, request: u64, wanted: &[PlannedFetch]) -> (Vec<i32>, Vec<(i32, bool)>) {
        let (mut said, mut forgotten) = (Vec::new(), Vec::new());
        let known = session.begin(false);
        for wanted in wanted {
            let (_, changed) = known.want(request, None, wanted.clone(), &mut forgotten);
            said.extend(changed.then_some(wanted.partition.partition));
        }
        known.finish(request, &mut forgotten);
        (said, forgotten.into_iter().map(|gone| (gone.partition.partition, gone.replaced)).collect())
    }

    fn established(wanted: &[PlannedFetch]) -> Session {
        let mut session = Session::default();
        say(&mut session, 1, wanted);
        session.answered((0, 0), 7, ErrorCode::NONE);
        assert_eq!(session.step(), (7, 1));
        session
    }

    #[test]
    fn only_what_changed_is_said() {
        let mut session = established(&[fetch(0, 0, 1), fetch(1, 0, 1)]);
        assert_eq!(say(&mut session, 2, &[fetch(0, 0, 1), fetch(1, 0, 1)]), (vec![], vec![]));
        assert_eq!(say(&mut session, 3, &[fetch(0, 5, 1), fetch(1, 0, 1)]), (vec![0], vec![]));
        assert_eq!(say(&mut session, 4, &[fetch(1, 0, 1), fetch(2, 0, 1)]), (vec![2], vec![(0, false)]));
        assert_eq!(say(&mut session, 5, &[fetch(0, 5, 1), fetch(1, 0, 1)]), (vec![0], vec![(2, false)]));
    }

    #[test]
    fn a_topic_that_was_created_anew_is_another_one() {
        let mut session = established(&[fetch(0, 9, 1)]);
        assert_eq!(say(&mut session, 2, &[fetch(0, 9, 2)]), (vec![0], vec![(0, true)]));
        let named = |id| FetchableTopicResponse::default().with_topic_id(Uuid::from_u128(id));
        assert_eq!((session.known.find(0, &named(2), 0), session.known.find(0, &named(1), 0)), (Some(0), None));
    }

    #[test]
    fn a_topic_without_an_id_begins_a_session_by_names() {
        let mut session = established(&[fetch(0, 0, 1)]);
        session.begin(true);
        assert_eq!((session.step(), session.known.fetches().count()), ((7, 0), 0));
    }

    #[test]
    fn an_epoch_wraps_to_one() {
        let mut session = established(&[fetch(0, 0, 1)]);
        session.epoch = i32::MAX;
        session.answered(session.step(), 7, ErrorCode::NONE);
        assert_eq!(session.step(), (7, 1));
    }

    #[test]
    fn ids_of_topics_that_went_do_not_pile_up() {
        let mut session = established(&[fetch(0, 0, 1)]);
        for id in 2..200 {
            say(&mut session, id, &[fetch(0, 0, u128::from(id))]);
            assert!(session.known.topics.len() <= 1 + SPARE_TOPICS + 1);
        }
    }

    /// (session, epoch) that the broker named: a session of somebody else, or none any more.
    #[test]
    fn an_answer_of_another_session_begins_a_new_one() {
        for other in [0, 8, -1] {
            let mut session = established(&[fetch(0, 0, 1)]);
            session.answered(session.step(), other, ErrorCode::NONE);
            assert_eq!(session.step(), (0, 0));
        }
    }
}
