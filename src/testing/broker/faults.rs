//! Failures to order: rules that requests are held against.
//!
//! A [`Rule`] says which requests it is for and what happens to them. Rules are tried in the order they were given; the first
//! that fits is used, and used up once it has been as often as it says.

use std::time::Duration;

use super::call::Call;
use crate::protocol::api::ApiKey;
use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// It is answered with this code and not acted on. Under a rule with a topic only that topic's partitions fail.
    Fail(ErrorCode),
    /// It is acted on, and answered with this code once it would have been answered: a leader that steps down while it waits for
    /// its followers says so of a batch that it has appended. All that it names is refused, under a rule with a topic too. What is
    /// answered by nothing at all stays so.
    FailAfter(ErrorCode),
    /// It is not acted on and never answered. The connection stays open, and answers nothing any more.
    Silence,
    /// It is acted on after this time.
    Delay(Duration),
    /// It is acted on at once and answered after this time.
    DelayAnswer(Duration),
    /// It is acted on and never answered. The connection stays open, and answers nothing any more.
    DropAnswer,
    /// It is not acted on; its connection closes.
    Close,
    /// It is acted on; its connection closes instead of the answer.
    CloseAfter,
    /// It is acted on; so many bytes of the answer's frame leave, then its connection closes.
    Cut(usize),
    /// It is answered at once and says that the client is throttled for so long; the connection reads nothing meanwhile
    /// (KIP-219).
    Throttle(Duration),
}

/// Which requests suffer what, and how often.
///
/// ```
/// use kafka_harbor::testing::broker::{Effect, Rule};
/// use kafka_harbor::protocol::api::ApiKey;
/// use kafka_harbor::protocol::error_code::ErrorCode;
///
/// // The third and the fourth Produce for this partition find a node that does not lead it.
/// let rule = Rule::new(ApiKey(0), Effect::Fail(ErrorCode::NOT_LEADER_OR_FOLLOWER))
///     .topic("orders")
///     .partition(3)
///     .skip(2)
///     .times(2);
/// # let _ = rule;
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Rule {
    api: Option<ApiKey>,
    node: Option<i32>,
    topic: Option<Topic>,
    partition: Option<i32>,
    client_id: Option<String>,
    skip: u64,
    times: u64,
    effect: Effect,
}

impl Rule {
    /// The next request of this API suffers this.
    pub fn new(api: ApiKey, effect: Effect) -> Self {
        Self { api: Some(api), ..Self::any(effect) }
    }

    /// The next request of any API suffers this.
    pub fn any(effect: Effect) -> Self {
        Self { api: None, node: None, topic: None, partition: None, client_id: None, skip: 0, times: 1, effect }
    }

    /// Only requests to this node.
    pub fn node(mut self, node: i32) -> Self {
        self.node = Some(node);
        self
    }

    /// Only requests that name this topic.
    pub fn topic(mut self, topic: impl Into<Topic>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Only requests that name this partition (of the rule's topic, or of any).
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Only requests of a client with this id.
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = Some(id.into());
        self
    }

    /// So many that fit pass before the first that suffers. Default 0.
    pub fn skip(mut self, requests: u64) -> Self {
        self.skip = requests;
        self
    }

    /// So many suffer. Default 1.
    pub fn times(mut self, requests: u64) -> Self {
        self.times = requests;
        self
    }

    /// All suffer, until the rule is [withdrawn](super::Cluster::withdraw).
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }

    fn fits_call(&self, call: &Call) -> bool {
        self.api.is_none_or(|api| api == call.api)
            && self.node.is_none_or(|node| node == call.node)
            && self.client_id.as_ref().is_none_or(|id| call.client_id.as_ref() == Some(id))
    }

    fn names_partitions(&self) -> bool {
        self.topic.is_some() || self.partition.is_some()
    }

    fn fits_partition(&self, topic: &str, partition: i32) -> bool {
        self.topic.as_ref().is_none_or(|own| **own == *topic)
            && (partition < 0 || self.partition.is_none_or(|own| own == partition))
    }
}

/// A rule that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(u64);

impl RuleId {
    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The rule of this number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// The rules in force.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Standing>,
    next: u64,
}

#[derive(Debug)]
struct Standing {
    id: RuleId,
    rule: Rule,
    hits: u64,
}

impl Faults {
    /// A rule to hold requests against.
    pub(super) fn add(&mut self, rule: Rule) -> RuleId {
        self.next += 1;
        let id = RuleId(self.next);
        self.rules.push(Standing { id, rule, hits: 0 });
        if self.rules.len() > MAX_RULES {
            self.rules.remove(0);
        }
        id
    }

    /// Takes a rule back; answers how many requests suffered from it, `None` for one that is used up or unknown.
    pub(super) fn withdraw(&mut self, id: RuleId) -> Option<u64> {
        let at = self.rules.iter().position(|standing| standing.id == id)?;
        Some(self.rules.remove(at).hits)
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Rules that are not used up.
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// What the request suffers. `names` tells its topics and partitions; it is asked only if a rule wants to know.
    pub(super) fn take(&mut self, call: &Call, names: impl FnOnce() -> Vec<(Topic, i32)>) -> Option<Suffered> {
        if self.rules.is_empty() {
            return None;
        }
        let mut names = Some(names);
        let mut named: Vec<(Topic, i32)> = Vec::new();
        let at = self.rules.iter_mut().position(|standing| {
            let rule = &mut standing.rule;
            if !rule.fits_call(call) {
                return false;
            }
            if rule.names_partitions() {
                if let Some(names) = names.take() {
                    named = names();
                }
                if !named.iter().any(|(topic, partition)| rule.fits_partition(topic, *partition)) {
                    return false;
                }
            }
            let passes = rule.skip > 0;
            rule.skip = rule.skip.saturating_sub(1);
            !passes
        })?;
        let standing = &mut self.rules[at];
        standing.hits += 1;
        let suffered = Suffered::new(&standing.rule);
        if standing.hits >= standing.rule.times {
            self.rules.remove(at);
        }
        Some(suffered)
    }
}

/// What became of a request by a rule.
#[derive(Debug)]
pub(super) struct Suffered {
    pub(super) effect: Effect,
    /// For [`Effect::Fail`] of some partitions alone.
    pub(super) failing: Option<PartitionFailure>,
}

impl Suffered {
    fn new(rule: &Rule) -> Self {
        let failing = match rule.effect {
            Effect::Fail(code) if rule.names_partitions() => {
                Some(PartitionFailure { topic: rule.topic.clone(), partition: rule.partition, code })
            }
            _ => None,
        };
        Self { effect: rule.effect.clone(), failing }
    }
}

/// Partitions of a request that fail while the others do not.
#[derive(Debug, Clone)]
pub(super) struct PartitionFailure {
    topic: Option<Topic>,
    partition: Option<i32>,
    code: ErrorCode,
}

impl PartitionFailure {
    pub(super) fn of(&self, topic: &str, partition: i32) -> Option<ErrorCode> {
        let fits = self.topic.as_ref().is_none_or(|own| **own == *topic)
            && self.partition.is_none_or(|own| own == partition || partition < 0);
        fits.then_some(self.code)
    }
}

/// A bound on memory; the oldest rule goes first.
const MAX_RULES: usize = 10_000;
