use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{BrokerAddress, ClusterView, LeaderHint};
use crate::protocol::error_code::ErrorCode;
use crate::record::{NodeId, Topic, TopicPartition};

/// Keeps the view of the cluster fresh.
#[derive(Debug)]
pub(crate) struct Metadata {
    pace: Pace,
    view: Arc<ClusterView>,
    /// Topics that are asked for, with the time when they were last used.
    tracked: HashMap<Topic, Instant>,
    /// When to ask next; `None` before the first demand.
    due: Option<Instant>,
    /// What is being asked now.
    asking: Option<HashSet<Topic>>,
    /// Requests that were begun, and that ended either way.
    begun: u64,
    ended: u64,
    /// When the last one ended.
    last_end: Option<Instant>,
    failures: u32,
    /// Requests in a row that came out of age's turn.
    hurried: u32,
}

/// How often to ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The age at which a view is fetched anew.
    pub(crate) max_age: Duration,
    /// After how long a topic that nobody uses any more is forgotten.
    pub(crate) max_idle: Duration,
    /// The least wait between two requests that nobody demanded; doubles up to `backoff_max`.
    pub(crate) backoff: Duration,
    pub(crate) backoff_max: Duration,
}

impl Pace {
    /// The wait after so many tries in a row: doubles from `backoff` to `backoff_max`, give or take a fifth, as Java's
    /// `ExponentialBackoff`.
    pub(crate) fn delay(&self, tries: u32, random: f64) -> Duration {
        let factor = 2_u32.saturating_pow(tries.saturating_sub(1).min(20));
        self.backoff.saturating_mul(factor).min(self.backoff_max).mul_f64(0.8 + 0.4 * random)
    }
}

/// Names a request: a demand is met by the first one that begins after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Round(u64);

/// What an answer brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A topic was deleted and created anew: its offsets begin again.
    Recreated { topic: Topic, old: Uuid, new: Uuid },
}

impl Metadata {
    /// Knows nothing, asks nothing.
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            view: Arc::default(),
            tracked: HashMap::new(),
            due: None,
            asking: None,
            begun: 0,
            ended: 0,
            last_end: None,
            failures: 0,
            hurried: 0,
        }
    }

    /// The last good view.
    pub(crate) fn view(&self) -> &Arc<ClusterView> {
        &self.view
    }

    /// Tracks the topics. `None` if the view has all of them already, else the round that will have them.
    pub(crate) fn want(&mut self, now: Instant, topics: &[Topic]) -> Option<Round> {
        let mut new = false;
        for topic in topics {
            new |= self.tracked.insert(topic.clone(), now).is_none();
        }
        let known = |topic| self.view.topic(topic).is_some_and(|view| view.error.is_ok());
        if self.view.generation > 0 && topics.iter().all(|topic| known(topic)) {
            return None;
        }
        if new || self.view.generation == 0 {
            self.ask_by(self.after_failures(now));
        } else {
            self.ask_by(self.not_before(now));
        }
        Some(Round(self.begun + 1))
    }

    /// Tracks the topics and asks for them whatever is known.
    pub(crate) fn refresh(&mut self, now: Instant, topics: &[Topic]) -> Round {
        for topic in topics {
            self.tracked.insert(topic.clone(), now);
        }
        self.ask_by(self.after_failures(now));
        Round(self.begun + 1)
    }

    /// Something showed that the view is old, of this topic if one is named. Asks soon; later ones of the same moment are met by the
    /// same request.
    pub(crate) fn invalidate(&mut self, now: Instant, topic: Option<&Topic>) {
        if let Some(topic) = topic {
            self.tracked.insert(topic.clone(), now);
        }
        self.ask_by(self.not_before(now));
    }

    /// These are in use: they are not forgotten, and asked for if they were. Whether that is due before anything else.
    pub(crate) fn keep<'a>(&mut self, now: Instant, topics: impl IntoIterator<Item = &'a Topic>) -> bool {
        let mut new = false;
        for topic in topics {
            match self.tracked.get_mut(topic) {
                Some(used) => *used = now,
                None => new |= self.tracked.insert(topic.clone(), now).is_none(),
            }
        }
        if new {
            self.ask_by(self.not_before(now));
        }
        new
    }

    /// Takes in what an answer that refused said of the leaders (KIP-951), of topics that are tracked: a later epoch alone replaces what is
    /// known, and only a leader whose address is known or told too. Returns those whose leader is now as it said.
    pub(crate) fn learn_leaders(&mut self, hints: &[LeaderHint]) -> Vec<TopicPartition> {
        if !hints.iter().any(|hint| self.view.would_learn(hint)) {
            return hints.iter().filter(|hint| self.view.agrees(hint)).map(|hint| hint.partition.clone()).collect();
        }
        let view = Arc::make_mut(&mut self.view);
        hints.iter().filter(|hint| view.learn_leader(hint)).map(|hint| hint.partition.clone()).collect()
    }

    /// Takes the topics out of the view.
    pub(crate) fn forget(&mut self, topic: &Topic) {
        if self.tracked.remove(topic).is_some() {
            Arc::make_mut(&mut self.view).forget(topic);
        }
    }

    /// Another answer told where a broker is.
    pub(crate) fn learn_broker(&mut self, node: NodeId, address: BrokerAddress) {
        if self.view.brokers.get(&node).is_none_or(|broker| broker.address != address) {
            Arc::make_mut(&mut self.view).learn(node, address);
        }
    }

    /// The request to send now, if one is due. Its outcome is awaited before there is another.
    pub(crate) fn poll_request(&mut self, now: Instant) -> Option<MetadataRequest> {
        if self.asking.is_some() || self.due.is_none_or(|due| due > now) {
            return None;
        }
        self.drop_idle(now);
        let topics: HashSet<_> = self.tracked.keys().cloned().collect();
        let request = MetadataRequest::default()
            .with_topics(Some(topics.iter().map(request_topic).collect()))
            .with_allow_auto_topic_creation(false);
        self.asking = Some(topics);
        self.due = None;
        self.begun += 1;
        Some(request)
    }

    /// When [`poll_request`](Self::poll_request) will have something, if nothing else happens.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.asking.is_some() { None } else { self.due }
    }

    /// The request was answered.
    pub(crate) fn handle_response(&mut self, now: Instant, response: MetadataResponse, random: f64) -> Vec<Event> {
        let asked = self.end(now);
        self.failures = 0;
        let recreated = Arc::make_mut(&mut self.view).merge(&asked, response);
        self.drop_missing(now);
        // Without a broker nothing can be asked of anybody.
        let unsettled = self.view.brokers.is_empty() || self.tracked.keys().any(|topic| !self.is_settled(topic));
        let wait = if unsettled {
            // A leader is being elected, a topic or a broker has just begun: look again, ever more slowly.
            self.hurried = self.hurried.saturating_add(1);
            let pace = Pace { backoff_max: self.pace.backoff_max * UNSETTLED_SLOWER, ..self.pace };
            pace.delay(self.hurried, random)
        } else {
            self.hurried = 0;
            self.pace.max_age
        };
        self.ask_by(now + wait);
        recreated.into_iter().map(|(topic, old, new)| Event::Recreated { topic, old, new }).collect()
    }

    /// No broker answered the request. The view stays; the next request waits.
    pub(crate) fn handle_failure(&mut self, now: Instant, random: f64) {
        self.end(now);
        self.failures = self.failures.saturating_add(1);
        let wait = self.pace.delay(self.failures, random);
        // Whatever was due sooner would fail as well.
        self.due = Some(now + wait);
    }

    /// Nobody will tell the outcome of the request that was sent: it is due again.
    pub(crate) fn abandon(&mut self, now: Instant) {
        if self.asking.take().is_some() {
            self.begun -= 1;
            self.due = Some(now);
        }
    }

    /// Whether the round is over.
    pub(crate) fn is_over(&self, round: Round) -> bool {
        self.ended >= round.0
    }

    fn end(&mut self, now: Instant) -> HashSet<Topic> {
        self.last_end = Some(now);
        self.ended = self.begun;
        self.asking.take().unwrap_or_default()
    }

    fn ask_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// The earliest time for what nobody waits for in particular.
    fn not_before(&self, now: Instant) -> Instant {
        let at = self.last_end.map_or(now, |end| (end + self.pace.backoff).max(now));
        at.max(self.after_failures(now))
    }

    /// Now, unless the last request failed and its wait is not over.
    fn after_failures(&self, now: Instant) -> Instant {
        match self.due {
            Some(due) if self.failures > 0 => due.max(now),
            _ => now,
        }
    }

    fn is_settled(&self, topic: &Topic) -> bool {
        let missing = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        // A topic that does not exist is asked for again by those who want it.
        self.view.topic(topic).is_some_and(|view| view.is_settled() || view.error == missing)
    }

    /// Forgets what was not used for long: a client that once asked for many topics must not ask for all of them for ever.
    fn drop_idle(&mut self, now: Instant) {
        let idle = |used: Instant| now.saturating_duration_since(used) >= self.pace.max_idle;
        let gone: Vec<_> =
            self.tracked.iter().filter(|(_, used)| idle(**used)).map(|(topic, _)| topic.clone()).collect();
        gone.iter().for_each(|topic| self.forget(topic));
    }

    /// Forgets what does not exist and was not asked for lately, so that wrong names do not pile up.
    fn drop_missing(&mut self, now: Instant) {
        let missing = |topic: &Topic| {
            let view = self.view.topic(topic);
            view.is_some_and(|view| view.error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION && view.partitions.is_empty())
        };
        let old = |asked: Instant| now.saturating_duration_since(asked) >= self.pace.max_age;
        let gone = self.tracked.iter().filter(|(topic, asked)| old(**asked) && missing(topic));
        for topic in gone.map(|(topic, _)| topic.clone()).collect::<Vec<_>>() {
            self.forget(&topic);
        }
    }
}

fn request_topic(topic: &Topic) -> MetadataRequestTopic {
    let name = StrBytes::from_string(topic.as_str().to_owned());
    MetadataRequestTopic::default().with_name(Some(TopicName(name)))
}

/// A partition without a leader may stay so for long.
const UNSETTLED_SLOWER: u32 = 5;

#[cfg(test)]
mod tests;
