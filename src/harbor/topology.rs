//! Which topics a consumer reads and writes: originals, retry levels, dead letters; and who owns a record.
//!
//! ```text
//!   orders ──► orders-retry-1 ──► orders-retry-2 ──► orders-dlq
//!   level 0    level 1            level 2            never read by its consumer
//! ```
//!
//! A record's level is told by the topic that it is read from, never by its headers.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::{Start, TopicSubscription};
use crate::harbor::error::{ConfigError, Problems};
use crate::harbor::guard;
use crate::harbor::headers::RetryBlock;
use crate::record::{Timestamp, Topic};

/// How retry and dead-letter topics are called.
#[derive(Clone)]
pub(crate) struct TopicNaming {
    retry: Arc<NameOfLevel>,
    dead_letter: Arc<NameOfTopic>,
}

type NameOfLevel = dyn Fn(&str, u32) -> String + Send + Sync;
type NameOfTopic = dyn Fn(&str) -> String + Send + Sync;

impl TopicNaming {
    /// The same naming with this name for a topic's level, from 1.
    pub(crate) fn with_retry(mut self, name: impl Fn(&str, u32) -> String + Send + Sync + 'static) -> Self {
        self.retry = Arc::new(name);
        self
    }

    /// The same naming with this name for a topic's dead letters.
    pub(crate) fn with_dead_letter(mut self, name: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.dead_letter = Arc::new(name);
        self
    }

    /// The topic of this level, from 1.
    pub(crate) fn retry_topic(&self, topic: &str, level: u32) -> Topic {
        (self.retry)(topic, level).into()
    }

    /// The topic of the dead letters.
    pub(crate) fn dead_letter_topic(&self, topic: &str) -> Topic {
        (self.dead_letter)(topic).into()
    }
}

impl Default for TopicNaming {
    /// `<topic>-retry-<level>` and `<topic>-dlq`, as the Node package has them.
    fn default() -> Self {
        Self {
            retry: Arc::new(|topic, level| format!("{topic}-retry-{level}")),
            dead_letter: Arc::new(|topic| format!("{topic}-dlq")),
        }
    }
}

impl fmt::Debug for TopicNaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry = guard::call_or("the name of a retry topic", "?".into(), || self.retry_topic("*", 1));
        let dead_letter = guard::call_or("the name of a dead-letter topic", "?".into(), || self.dead_letter_topic("*"));
        write!(f, "{retry}, {dead_letter}")
    }
}

/// The topics of one subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Where its records are first.
    pub(crate) topic: Topic,
    /// The retry topic of each level; level 1 is the first.
    pub(crate) ladder: Vec<Topic>,
    /// Where records end that cannot be handled, if anywhere.
    pub(crate) dead_letter: Option<Topic>,
}

impl Plan {
    /// The plan of `topic` with this many levels.
    pub(crate) fn new(topic: Topic, levels: u32, dead_letters: bool, naming: &TopicNaming) -> Self {
        Self {
            ladder: (1..=levels).map(|level| naming.retry_topic(&topic, level)).collect(),
            dead_letter: dead_letters.then(|| naming.dead_letter_topic(&topic)),
            topic,
        }
    }

    /// The topic of this level, from 1.
    pub(crate) fn retry_topic(&self, level: u32) -> Option<&Topic> {
        self.ladder.get((level as usize).checked_sub(1)?)
    }

    /// Every topic that is read, with its level.
    pub(crate) fn read(&self) -> impl Iterator<Item = (u32, &Topic)> {
        std::iter::once(&self.topic).chain(&self.ladder).zip(0..).map(|(topic, level)| (level, topic))
    }

    /// Every topic that is derived from the original's name: levels, then dead letters.
    fn derived(&self) -> impl Iterator<Item = &Topic> {
        self.ladder.iter().chain(&self.dead_letter)
    }
}

/// What a consumer reads.
#[derive(Debug, Clone)]
pub(crate) struct Topology {
    plans: Vec<Plan>,
    delays: Vec<Duration>,
    routes: HashMap<Topic, Route>,
}

/// Where a topic that is read belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// 0 for an original topic.
    pub(crate) level: u32,
    /// The plans that read it, by index. More than one share a retry topic.
    pub(crate) owners: Vec<usize>,
}

/// Whose a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    /// The plan's with this index.
    Plan(usize),
    /// Nobody's, but all who might own it have this one topic for dead letters.
    DeadLetter(&'a Topic),
    /// Nobody's, and there is no one place to put it.
    Nobody,
}

/// Which names topics may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRules {
    /// Kafka's.
    Kafka,
    /// Anything but nothing; the broker will tell.
    Any,
}

impl NameRules {
    /// The rules of the broker behind the adapter of this name.
    pub(crate) fn of_adapter(name: &str) -> Self {
        if matches!(name, "kafka" | "memory") { Self::Kafka } else { Self::Any }
    }
}

impl Topology {
    /// The topics of these plans, whose level n waits `delays[n - 1]`.
    ///
    /// # Errors
    /// With every name that is none, or that stands for two things.
    pub(crate) fn new(plans: Vec<Plan>, delays: Vec<Duration>, rules: NameRules) -> Result<Self, ConfigError> {
        let mut problems = Problems::default();
        let mut topology = Self { plans: Vec::new(), delays, routes: HashMap::new() };
        for plan in plans {
            let option = format!("topics[{}]", plan.topic);
            within_plan(&plan, &option, rules, &mut problems);
            topology.against_others(&plan, &option, &mut problems);
            topology.add(plan);
        }
        if rules == NameRules::Kafka {
            topology.names_that_clash(&mut problems);
        }
        problems.finish().map(|()| topology)
    }

    /// The plans, in the order of subscription.
    pub(crate) fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Where records of this topic belong, if it is read.
    pub(crate) fn route(&self, topic: &str) -> Option<&Route> {
        self.routes.get(topic)
    }

    /// How many levels the longest ladder has.
    pub(crate) fn levels(&self) -> u32 {
        self.routes.values().map(|route| route.level).max().unwrap_or_default()
    }

    /// How long a record waits on each level; the first is level 1.
    pub(crate) fn delays(&self) -> &[Duration] {
        &self.delays
    }

    /// How long a record waits on this level; an original's not at all.
    pub(crate) fn delay(&self, level: u32) -> Duration {
        let index = (level as usize).checked_sub(1);
        index.and_then(|index| self.delays.get(index)).copied().unwrap_or_default()
    }

    /// Whose a record of this route is. On a topic of one owner its headers do not matter.
    pub(crate) fn owner(&self, route: &Route, block: Option<&RetryBlock>) -> Owner<'_> {
        if let [only] = route.owners[..] {
            return Owner::Plan(only);
        }
        let named =
            block.and_then(|block| route.owners.iter().find(|owner| self.plans[**owner].topic == block.original_topic));
        if let Some(owner) = named {
            return Owner::Plan(*owner);
        }
        let mut dead_letters = route.owners.iter().map(|owner| self.plans[*owner].dead_letter.as_ref());
        match dead_letters.next().flatten() {
            Some(first) if dead_letters.all(|other| other == Some(first)) => Owner::DeadLetter(first),
            _ => Owner::Nobody,
        }
    }

    /// What to join. Retry topics are read from their oldest record whatever the originals do: what waits there
    /// when the first member comes, or when a partition is added, is to be handled.
    pub(crate) fn subscriptions(&self, originals: Start) -> Vec<TopicSubscription> {
        let mut topics = BTreeMap::new();
        for (level, topic) in self.plans.iter().flat_map(Plan::read) {
            let start = if level == 0 { originals } else { Start::Earliest };
            topics.insert((level, topic.clone()), start);
        }
        topics.into_iter().map(|((_, topic), start)| TopicSubscription { topic, start }).collect()
    }

    /// Retry and dead-letter topics, each once, in the order of subscription, with the plans that derive it.
    pub(crate) fn derived(&self) -> Vec<Derived<'_>> {
        let mut derived: Vec<Derived<'_>> = Vec::new();
        for plan in &self.plans {
            for topic in plan.derived() {
                match derived.iter_mut().find(|known| known.topic == topic) {
                    Some(known) => known.sources.push(&plan.topic),
                    None => {
                        let level = self.route(topic).map(|route| route.level);
                        derived.push(Derived { topic, level, sources: vec![&plan.topic] });
                    }
                }
            }
        }
        derived
    }

    fn add(&mut self, plan: Plan) {
        let index = self.plans.len();
        for (level, topic) in plan.read() {
            let route = self.routes.entry(topic.clone()).or_insert_with(|| Route { level, owners: Vec::new() });
            route.owners.push(index);
        }
        self.plans.push(plan);
    }

    /// What stands between this plan and those before it.
    fn against_others(&self, plan: &Plan, option: &str, problems: &mut Problems) {
        for (level, topic) in plan.read() {
            match self.route(topic) {
                Some(_) if level == 0 => problems.add(option, format_args!("`{topic}` is read already")),
                Some(route) if route.level != level => {
                    let why = format_args!("its retry topic `{topic}` is read already, on level {}", route.level);
                    problems.add(option, why);
                }
                _ => {}
            }
            for other in self.plans.iter().filter(|other| other.dead_letter.as_ref() == Some(topic)) {
                let why = format_args!("`{topic}` would be read, and has the dead letters of `{}`", other.topic);
                problems.add(option, why);
            }
        }
        if let Some(topic) = plan.dead_letter.as_ref().filter(|topic| self.route(topic).is_some()) {
            problems.add(option, format_args!("its dead-letter topic `{topic}` is read by this consumer"));
        }
    }

    /// Kafka keeps metrics by names in which a dot and an underscore are the same, and refuses the second of two.
    fn names_that_clash(&self, problems: &mut Problems) {
        let mut seen: HashMap<String, &Topic> = HashMap::new();
        for topic in self.plans.iter().flat_map(|plan| std::iter::once(&plan.topic).chain(plan.derived())) {
            let other = *seen.entry(topic.replace('.', "_")).or_insert(topic);
            if other != topic {
                let why = format_args!("clashes with `{other}`: a broker takes `.` and `_` for the same");
                problems.add(format!("topics[{topic}]"), why);
            }
        }
    }
}

/// A topic whose name comes of an original's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Derived<'a> {
    /// Its name.
    pub(crate) topic: &'a Topic,
    /// Its level; `None` for dead letters.
    pub(crate) level: Option<u32>,
    /// The originals whose records come to it.
    pub(crate) sources: Vec<&'a Topic>,
}

/// How long a record of a level with this delay has still to wait: what is left of the delay since it was written, and
/// never more than the delay, however far its writer's clock is ahead.
pub(crate) fn time_left(delay: Duration, written: Timestamp, now: Timestamp) -> Duration {
    // Brokers give -1 for a record without a timestamp, and old clients wrote 0.
    if written.0 <= 0 {
        return delay;
    }
    match u64::try_from(now.0.saturating_sub(written.0)) {
        Ok(elapsed) => delay.saturating_sub(Duration::from_millis(elapsed)),
        Err(_) => delay,
    }
}

/// What is wrong with a plan by itself.
fn within_plan(plan: &Plan, option: &str, rules: NameRules, problems: &mut Problems) {
    let mut before: Vec<&Topic> = Vec::new();
    for (level, topic) in plan.read() {
        if let Err(why) = check_name(topic, rules) {
            let what = if level == 0 { String::new() } else { format!("its retry topic `{topic}` ") };
            problems.add(option, format_args!("{what}{why}"));
        }
        if let Some(at) = before.iter().position(|other| *other == topic) {
            let other = if at == 0 { "the topic itself".to_owned() } else { format!("level {at}") };
            problems.add(option, format_args!("its retry topic of level {level}, `{topic}`, is also {other}"));
        }
        before.push(topic);
    }
    let Some(topic) = &plan.dead_letter else { return };
    if let Err(why) = check_name(topic, rules) {
        problems.add(option, format_args!("its dead-letter topic `{topic}` {why}"));
    }
    if let Some(level) = before.iter().position(|other| *other == topic) {
        let other =
            if level == 0 { "the topic itself".to_owned() } else { format!("its retry topic of level {level}") };
        problems.add(option, format_args!("its dead-letter topic `{topic}` is also {other}"));
    }
}

/// Whether a broker would take the name, and why not.
pub(crate) fn check_name(name: &str, rules: NameRules) -> Result<(), String> {
    if name.is_empty() {
        return Err("must not be empty".into());
    }
    if rules == NameRules::Any {
        return Ok(());
    }
    if name == "." || name == ".." {
        return Err("is no name for a topic".into());
    }
    if name.len() > MAX_NAME {
        return Err(format!("is too long: {} characters, at most {MAX_NAME}", name.chars().count()));
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        Some(c) => Err(format!("holds {c:?}: only ASCII letters, digits, `.`, `_` and `-` may stand in a name")),
        None => Ok(()),
    }
}

/// Kafka's longest topic name (`Topic.MAX_NAME_LENGTH`): a folder's name with the partition must fit a file system.
const MAX_NAME: usize = 249;

#[cfg(test)]
mod tests;
