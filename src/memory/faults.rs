//! Failures to order: the next call of a kind fails, loses its answer, waits, or hangs.

use std::time::Duration;

use crate::protocol::error_code::ErrorCode;
use crate::record::Topic;

/// Kinds of call that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Reaching the broker.
    Connect,
    /// Letting go of it.
    Close,
    /// Writing a batch.
    Publish,
    /// Joining a group.
    Join,
    /// Settling positions.
    Settle,
    /// Leaving a group.
    Leave,
    /// Creating topics.
    CreateTopics,
    /// Describing topics.
    DescribeTopics,
    /// Reading first and next offsets.
    Watermarks,
    /// Reading what a group has committed.
    Committed,
}

/// What happens instead of a plain success.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Nothing is done, and the broker says so.
    Refuse {
        /// The code it gives.
        code: ErrorCode,
        /// Whether the adapter calls it retryable.
        retryable: bool,
    },
    /// It is done, but the answer is lost: the caller cannot know.
    LoseAnswer,
    /// It is done after this long.
    Delay(Duration),
    /// It is never done, and never answered.
    Hang,
}

impl Effect {
    /// A refusal with this code, retryable if Kafka's clients class it so.
    pub fn refuse(code: ErrorCode) -> Self {
        Self::Refuse { code, retryable: code.is_retriable() }
    }
}

/// A failure to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    operation: Operation,
    effect: Effect,
    topic: Option<Topic>,
    group: Option<String>,
    times: u32,
}

impl Fault {
    /// The next call of this kind has this effect.
    pub fn new(operation: Operation, effect: Effect) -> Self {
        Self { operation, effect, topic: None, group: None, times: 1 }
    }

    /// Only on this topic. Of a call on several, the part on this topic fails where the broker answers for each.
    #[must_use]
    pub fn on_topic(mut self, topic: impl Into<Topic>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Only for this group.
    #[must_use]
    pub fn for_group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// The next `times` calls, not just one.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    fn matches(&self, operation: Operation, group: Option<&str>, topics: &[Topic]) -> bool {
        self.operation == operation
            && self.group.as_deref().is_none_or(|wanted| group == Some(wanted))
            && self.topic.as_ref().is_none_or(|wanted| topics.contains(wanted))
    }
}

/// The failures that are still to come, in the order they were asked for.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Adds one behind the others.
    pub fn push(&mut self, fault: Fault) {
        if fault.times > 0 {
            self.0.push(fault);
        }
    }

    /// Takes what this call has to suffer, and the topic that it is limited to.
    pub fn take(
        &mut self,
        operation: Operation,
        group: Option<&str>,
        topics: &[Topic],
    ) -> Option<(Effect, Option<Topic>)> {
        let index = self.0.iter().position(|fault| fault.matches(operation, group, topics))?;
        let fault = &mut self.0[index];
        let hit = (fault.effect.clone(), fault.topic.clone());
        fault.times -= 1;
        if fault.times == 0 {
            self.0.remove(index);
        }
        Some(hit)
    }

    /// How many are still to come.
    pub fn pending(&self) -> usize {
        self.0.len()
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_waits_for_its_topic_and_group_and_is_used_up() {
        let mut faults = Faults::default();
        let refused = Effect::refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        faults.push(Fault::new(Operation::Publish, refused.clone()).on_topic("orders").times(2));
        faults.push(Fault::new(Operation::Settle, Effect::LoseAnswer).for_group("billing"));

        let orders = [Topic::from("orders")];
        assert_eq!(faults.take(Operation::Publish, None, &["other".into()]), None);
        assert_eq!(faults.take(Operation::Settle, Some("shipping"), &orders), None);
        for _ in 0..2 {
            assert_eq!(faults.take(Operation::Publish, None, &orders), Some((refused.clone(), Some("orders".into()))));
        }
        assert_eq!(faults.take(Operation::Publish, None, &orders), None);
        assert_eq!(faults.take(Operation::Settle, Some("billing"), &orders), Some((Effect::LoseAnswer, None)));
        assert_eq!(faults.pending(), 0);
    }

    #[test]
    fn a_refusal_is_retryable_as_kafka_classes_its_code() {
        assert_eq!(
            Effect::refuse(ErrorCode::TOPIC_AUTHORIZATION_FAILED),
            Effect::Refuse { code: ErrorCode::TOPIC_AUTHORIZATION_FAILED, retryable: false }
        );
        assert_eq!(
            Effect::refuse(ErrorCode::NOT_ENOUGH_REPLICAS),
            Effect::Refuse { code: ErrorCode::NOT_ENOUGH_REPLICAS, retryable: true }
        );
    }
}
