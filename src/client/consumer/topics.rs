//! The topics that a membership reads: those that were named, and those that patterns find.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::Settings;
use crate::client::TopicDescription;
use crate::record::Topic;

/// What is read now, and when to look for more.
#[derive(Debug)]
pub(super) struct Topics {
    named: BTreeSet<Topic>,
    /// By patterns, as the last listings had them.
    found: BTreeSet<Topic>,
    /// How many partitions each topic had when this membership first saw it; none where it came later.
    first_seen: BTreeMap<Topic, i32>,
    listed_once: bool,
    /// Found ones that the last listing did not have. A broker that has just started may not know all yet.
    doubtful: BTreeSet<Topic>,
    /// When to list them again; never where there are no patterns, or while it is being done.
    pub(super) look_at: Option<Instant>,
}

impl Topics {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            named: settings.topics.iter().map(|(topic, _)| topic.clone()).collect(),
            found: BTreeSet::new(),
            first_seen: BTreeMap::new(),
            listed_once: false,
            doubtful: BTreeSet::new(),
            look_at: None,
        }
    }

    /// All that are read.
    pub(super) fn all(&self) -> BTreeSet<Topic> {
        self.named.union(&self.found).cloned().collect()
    }

    /// Takes in all topics that there are; `true` if what is read is now another.
    pub(super) fn take_listing(
        &mut self,
        now: Instant,
        settings: &Settings,
        listing: &[TopicDescription],
        max_age: Duration,
    ) -> bool {
        let is_read = |topic: &&TopicDescription| !topic.internal && settings.patterns.reset_of(&topic.topic).is_some();
        let listed: BTreeMap<_, _> =
            listing.iter().filter(is_read).map(|topic| (topic.topic.clone(), topic.partitions.len())).collect();
        let before = self.found.clone();
        let missing: BTreeSet<_> = before.iter().filter(|topic| !listed.contains_key(*topic)).cloned().collect();
        for gone in missing.intersection(&self.doubtful) {
            self.found.remove(gone);
            if !self.named.contains(gone) {
                // Should it come again, it is a new one.
                self.first_seen.remove(gone);
            }
        }
        self.doubtful = missing.intersection(&self.found).cloned().collect();
        for (topic, partitions) in listed {
            let count = if self.listed_once { 0 } else { i32::try_from(partitions).unwrap_or(i32::MAX) };
            if self.found.insert(topic.clone()) {
                self.first_seen.entry(topic).or_insert(count);
            }
        }
        self.listed_once = true;
        self.look_at = Some(now + if self.doubtful.is_empty() { max_age } else { LOOK_TWICE_WITHIN.min(max_age) });
        self.found != before
    }

    /// Takes note of named topics that are seen for the first time; `count` knows their partitions, 0 for one that does not exist.
    pub(super) fn see(&mut self, count: impl Fn(&Topic) -> Option<i32>) {
        for topic in &self.named {
            if !self.first_seen.contains_key(topic)
                && let Some(count) = count(topic)
            {
                self.first_seen.insert(topic.clone(), count);
            }
        }
    }

    /// Whether the partition came after this membership first saw its topic.
    pub(super) fn came_later(&self, topic: &Topic, partition: i32) -> bool {
        self.first_seen.get(topic).is_some_and(|count| partition >= *count)
    }
}

/// A topic that a listing lacks is looked for again after this time, before it is left.
const LOOK_TWICE_WITHIN: Duration = Duration::from_secs(1);
