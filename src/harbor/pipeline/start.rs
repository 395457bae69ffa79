//! Where a partition begins that the group has no position on.
//!
//! ```text
//!   assigned without a commit ──► undecided ──survey──► decided: a lane begins there
//!                                   │  ▲ └─ failed: again after a wait
//!                                   ▼  └─ nothing of it is committed, and what comes is read again
//!                              gone: forgotten
//! ```
//!
//! Only the group's commits tell what the group did before, so nothing is decided until they could be read: to begin at
//! the end, commit that, and be wrong loses records for good.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::adapter::{Adapter, AdapterError, AdapterErrorKind, Assigned, Assignment, CommittedOffset};
use crate::harbor::memo::Memo;
use crate::record::{Offset, Topic, TopicPartition};
use crate::retry::{Backoff, ExponentialFullJitter};

/// Partitions whose beginning is to be decided, and what is known of the group's own.
#[derive(Debug, Default)]
pub(super) struct Starts {
    undecided: HashMap<TopicPartition, Undecided>,
    /// How many partitions a topic had when the group began to read it.
    begun_with: HashMap<Topic, i32>,
    /// Originals of which that is not known.
    wanted: BTreeSet<Topic>,
    /// Partitions without a commit when they came, with those that are undecided or just before.
    new: HashSet<TopicPartition>,
    not_before: Option<Instant>,
    failures: u32,
}

#[derive(Debug)]
struct Undecided {
    assignment: Assignment,
    on_ladder: bool,
    /// Records came and were not kept.
    passed_over: bool,
}

/// What a survey is to find out.
#[derive(Debug)]
pub(super) struct Question {
    undecided: Vec<(Assigned, Offset, bool)>,
    begun_with: HashMap<Topic, i32>,
    wanted: BTreeSet<Topic>,
    new: HashSet<TopicPartition>,
}

/// What a survey found out.
#[derive(Debug)]
pub(super) struct Findings {
    /// Partitions that are not among them are still undecided.
    begins: Vec<(Assigned, Offset, Option<Offset>)>,
    begun_with: HashMap<Topic, i32>,
    wanted: BTreeSet<Topic>,
}

/// A partition whose beginning is decided.
#[derive(Debug)]
pub(super) struct Begin {
    /// With the position that was decided on.
    pub(super) assignment: Assignment,
    /// Ladder records before it that name no group are another's.
    pub(super) unnamed_from: Option<Offset>,
    /// Whether reading stands elsewhere, or is paused.
    pub(super) moves: bool,
}

impl Starts {
    /// Partitions are coming, all at once.
    pub(super) fn handle_assignment(&mut self) {
        if self.undecided.is_empty() {
            self.new.clear();
        }
    }

    /// A partition came without a commit; it is undecided until a survey says where it begins.
    pub(super) fn decide(&mut self, assignment: &Assignment, on_ladder: bool) {
        let undecided = Undecided { assignment: assignment.clone(), on_ladder, passed_over: false };
        let partition = &assignment.assigned.partition;
        if !on_ladder {
            self.want(&partition.topic);
        }
        self.undecided.insert(partition.clone(), undecided);
    }

    /// A partition came without a commit, whatever is decided of it.
    pub(super) fn is_new(&mut self, partition: &TopicPartition) {
        self.new.insert(partition.clone());
    }

    /// It is to be found out how many partitions this original had when the group began to read it.
    pub(super) fn want(&mut self, topic: &Topic) {
        if !self.begun_with.contains_key(topic) {
            self.wanted.insert(topic.clone());
        }
    }

    /// The group had begun to read the topic when it had this many partitions: the earliest word counts.
    pub(super) fn learn(&mut self, topic: &Topic, partitions: i32) {
        learn(&mut self.begun_with, topic, partitions);
        self.wanted.remove(topic);
    }

    /// How many partitions the topic had when the group began to read it, where that is known.
    pub(super) fn begun_with(&self, topic: &Topic) -> Option<i32> {
        self.begun_with.get(topic).copied()
    }

    /// A partition went.
    pub(super) fn forget(&mut self, assigned: &Assigned) {
        if self.is_undecided(assigned) {
            self.undecided.remove(&assigned.partition);
        }
    }

    /// All partitions went.
    pub(super) fn clear(&mut self) {
        self.undecided.clear();
        self.wanted.clear();
    }

    /// Whether this assignment waits for its beginning.
    pub(super) fn is_undecided(&self, assigned: &Assigned) -> bool {
        self.undecided.get(&assigned.partition).is_some_and(|undecided| undecided.assignment.assigned == *assigned)
    }

    /// Records of an undecided partition came, and are not kept: they are read again. True the first time.
    pub(super) fn pass_over(&mut self, assigned: &Assigned) -> bool {
        let Some(undecided) = self.undecided.get_mut(&assigned.partition) else { return false };
        !std::mem::replace(&mut undecided.passed_over, true)
    }

    /// What to survey, if a survey may begin now. Its end is to be told to [`Self::handle`].
    pub(super) fn poll_question(&mut self, now: Instant) -> Option<Question> {
        let nothing = self.undecided.is_empty() && self.wanted.is_empty();
        if nothing || self.not_before.is_some_and(|not_before| now < not_before) {
            return None;
        }
        let undecided = self.undecided.values();
        let undecided =
            undecided.map(|u| (u.assignment.assigned.clone(), u.assignment.position, u.on_ladder)).collect();
        Some(Question {
            undecided,
            begun_with: self.begun_with.clone(),
            wanted: self.wanted.clone(),
            new: self.new.clone(),
        })
    }

    /// When to call [`Self::poll_question`], while no survey is under way.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.undecided.is_empty() && self.wanted.is_empty() { None } else { self.not_before }
    }

    /// A survey ended. Returns what is decided now; the rest is surveyed again.
    pub(super) fn handle(&mut self, now: Instant, findings: Option<Findings>) -> Vec<Begin> {
        let Some(Findings { begins, begun_with, wanted }) = findings else {
            self.wait(now);
            return Vec::new();
        };
        for (topic, partitions) in &begun_with {
            self.learn(topic, *partitions);
        }
        self.wanted.retain(|topic| !wanted.contains(topic));
        let decided: Vec<_> = begins.into_iter().filter_map(|begin| self.begin(begin)).collect();
        if decided.is_empty() && !self.undecided.is_empty() {
            // No leader told where their logs begin or end.
            self.wait(now);
        } else {
            (self.failures, self.not_before) = (0, None);
        }
        decided
    }

    fn begin(&mut self, (assigned, position, unnamed_from): (Assigned, Offset, Option<Offset>)) -> Option<Begin> {
        // It may have gone, and come back by another assignment.
        if !self.is_undecided(&assigned) {
            return None;
        }
        let Undecided { mut assignment, passed_over, .. } = self.undecided.remove(&assigned.partition)?;
        let moves = passed_over || assignment.position != position;
        assignment.position = position;
        Some(Begin { assignment, unnamed_from, moves })
    }

    fn wait(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + BACKOFF.delay(self.failures, fastrand::f64()).max(SHORTEST_WAIT));
    }
}

/// Finds out where partitions begin.
///
/// An original's partition that the group did not begin with begins at its oldest record: all of it was written since.
/// Any other is left where the adapter put it. Of a ladder's, it is decided which records without a group count.
///
/// A group that is new took no part in what is on a ladder already: that was written for another, and counts only from
/// the end on. One that has read the originals before may have had members that name no group and commit nothing on a
/// ladder while a retry waits, as those of the Node package: there all of it counts.
///
/// # Errors
/// What the broker said. Nothing is decided then.
pub(super) async fn survey(
    group: Arc<str>,
    originals: Vec<Topic>,
    adapter: Arc<dyn Adapter>,
    question: Question,
) -> Result<Findings, AdapterError> {
    let Question { undecided, mut begun_with, wanted, new } = question;
    let committed = committed_where_there(&*adapter, &group, originals).await?;
    for (topic, partitions) in begun_with_by(&committed) {
        learn(&mut begun_with, topic, partitions);
    }
    let untold: Vec<_> = wanted.iter().filter(|topic| !begun_with.contains_key(*topic)).cloned().collect();
    if !untold.is_empty() && adapter.capabilities().topic_creation {
        // No commit tells: the group begins now, with these.
        for topic in adapter.describe_topics(&untold).await?.into_iter().flatten() {
            let assigned = undecided.iter().map(|(assigned, ..)| &assigned.partition);
            let numbers = assigned.filter(|partition| partition.topic == topic.topic).map(|p| p.partition);
            let partitions = numbers.map(|number| number.saturating_add(1)).fold(topic.partitions, i32::max);
            begun_with.insert(topic.topic, partitions);
        }
    }
    let read_before = committed.iter().any(|committed| !new.contains(&committed.partition));
    let is_younger = |partition: &TopicPartition| {
        begun_with.get(&partition.topic).is_some_and(|begun_with| partition.partition >= *begun_with)
    };
    let needs_marks =
        |partition: &TopicPartition, on_ladder| if on_ladder { !read_before } else { is_younger(partition) };
    let topics = undecided.iter().filter(|(assigned, _, on_ladder)| needs_marks(&assigned.partition, *on_ladder));
    let topics: BTreeSet<_> = topics.map(|(assigned, ..)| assigned.partition.topic.clone()).collect();
    let topics: Vec<_> = topics.into_iter().collect();
    let marks = if topics.is_empty() { Vec::new() } else { adapter.watermarks(&topics).await? };
    let marks: HashMap<_, _> = marks.into_iter().map(|mark| (mark.partition, (mark.low, mark.high))).collect();
    let begins = undecided.into_iter().filter_map(|(assigned, position, on_ladder)| {
        if !needs_marks(&assigned.partition, on_ladder) {
            return Some((assigned, position, None));
        }
        let (low, high) = *marks.get(&assigned.partition)?;
        Some(if on_ladder { (assigned, position, Some(high)) } else { (assigned, position.min(low), None) })
    });
    Ok(Findings { begins: begins.collect(), begun_with, wanted })
}

/// What the group has committed on those of the topics that exist.
async fn committed_where_there(
    adapter: &dyn Adapter,
    group: &str,
    mut topics: Vec<Topic>,
) -> Result<Vec<CommittedOffset>, AdapterError> {
    while !topics.is_empty() {
        let error = match adapter.committed(group, &topics).await {
            Ok(committed) => return Ok(committed),
            Err(error) => error,
        };
        let before = topics.len();
        if let AdapterErrorKind::TopicMissing(missing) = &error.kind {
            topics.retain(|topic| topic != missing);
        }
        if topics.len() == before {
            return Err(error);
        }
    }
    Ok(Vec::new())
}

/// With how many partitions of each topic the group began, by what stands beside its commits.
pub(crate) fn begun_with_by(committed: &[CommittedOffset]) -> HashMap<&Topic, i32> {
    let mut begun_with = HashMap::new();
    for CommittedOffset { partition, note, .. } in committed {
        if let Some(partitions) = Memo::read(note.as_deref()).partitions {
            begun_with
                .entry(&partition.topic)
                .and_modify(|known: &mut i32| *known = partitions.min(*known))
                .or_insert(partitions);
        }
    }
    begun_with
}

fn learn(begun_with: &mut HashMap<Topic, i32>, topic: &Topic, partitions: i32) {
    match begun_with.get_mut(topic) {
        Some(known) => *known = partitions.min(*known),
        None => {
            begun_with.insert(topic.clone(), partitions);
        }
    }
}

/// The waits between two surveys that found nothing out.
const BACKOFF: ExponentialFullJitter =
    ExponentialFullJitter { first: Duration::from_millis(200), max: Duration::from_secs(5) };
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
