//! The consumers of a harbor, and what is remembered of those that are over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::harbor::consumer::ConsumerInner;
use crate::harbor::lifecycle::{ConsumerStatus, Lifecycle};
use crate::observe::StopReason;

/// The consumers of a harbor, in the order they were built.
///
/// None is held by it: one that was started lives in its task, any other in its handles. Of one that is gone only an end by
/// abort or crash is remembered, once for each group and reason, so that a service that builds another consumer after
/// each crash does not grow.
#[derive(Default)]
pub(crate) struct Roster(Mutex<Vec<Entry>>);

/// One consumer.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    consumer: Weak<ConsumerInner>,
    group: Arc<str>,
    life: Arc<Lifecycle>,
}

impl Roster {
    pub(crate) fn add(&self, consumer: &Arc<ConsumerInner>) {
        let (group, life) = (consumer.setup.group.clone(), consumer.life.clone());
        self.entries().push(Entry { consumer: Arc::downgrade(consumer), group, life });
    }

    /// Those that are not gone.
    pub(crate) fn consumers(&self) -> Vec<Arc<ConsumerInner>> {
        self.entries().iter().filter_map(|entry| entry.consumer.upgrade()).collect()
    }

    /// Those that are not gone, and those whose end is remembered.
    pub(crate) fn known(&self) -> Vec<Entry> {
        self.entries().clone()
    }

    /// With what is not to be remembered left out.
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ends = Vec::new();
        let mut kept: Vec<_> = entries.drain(..).rev().filter(|entry| entry.is_known(&mut ends)).collect();
        kept.reverse();
        *entries = kept;
        entries
    }
}

impl Entry {
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    pub(crate) fn status(&self) -> ConsumerStatus {
        self.life.status()
    }

    pub(crate) fn because(&self) -> Option<StopReason> {
        self.life.because()
    }

    pub(crate) fn is_locked_out(&self) -> bool {
        self.life.is_locked_out()
    }

    /// Whether it is there, or the newest that came to such an end. `ends` are those of newer ones.
    fn is_known(&self, ends: &mut Vec<(Arc<str>, StopReason)>) -> bool {
        if self.consumer.strong_count() > 0 {
            return true;
        }
        match self.because() {
            Some(reason @ (StopReason::Abort | StopReason::Crash)) => {
                let end = (self.group.clone(), reason);
                let is_first = ends.len() < MOST_ENDS && !ends.contains(&end);
                ends.extend(is_first.then_some(end));
                is_first
            }
            _ => false,
        }
    }
}

/// Ends that are remembered; the oldest go first. As many groups do not end in one process unless their names are made up.
const MOST_ENDS: usize = 64;
