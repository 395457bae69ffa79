//! When metrics are pushed to brokers, and what becomes of it (KIP-714).
//!
//! ```text
//!                     subscription            its time
//!   Unsubscribed ─────────────────► Waiting ─────────────► Pushing
//!     ▲  ▲   └── none, or failed: later ┘                     │ │
//!     │  └──── the subscription is another, or refused ───────┘ │ done, or failed: the next time
//!     │                                  Waiting ◄──────────────┘
//!     └── nothing is subscribed
//! ```

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::protocol::error_code::ErrorCode;

/// Decides what is asked and pushed, and when.
#[derive(Debug)]
pub(crate) struct Telemetry {
    instance_id: Uuid,
    subscription: Option<Subscription>,
    /// When something is due.
    due: Instant,
    /// The cluster takes none, and never will.
    over: bool,
}

/// What a broker wants to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) id: i32,
    pub(crate) interval: Duration,
    /// Codecs that it accepts, by their bits in a batch, the best first.
    pub(crate) codecs: Vec<i8>,
    /// The largest push in bytes, as it is sent.
    pub(crate) max_bytes: usize,
    /// Whether sums count from the push before.
    pub(crate) delta: bool,
    /// Prefixes of the metrics that are wanted; an empty text is all.
    pub(crate) metrics: Vec<String>,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing before then.
    Wait(Instant),
    /// Ask what is wanted.
    Subscribe,
    /// Push what is wanted.
    Push(Subscription),
    /// Nothing ever.
    Over,
}

impl Subscription {
    /// Whether it wants this metric.
    pub(crate) fn wants(&self, metric: &str) -> bool {
        self.metrics.iter().any(|prefix| metric.starts_with(prefix.as_str()))
    }
}

impl Telemetry {
    /// Asks at once what is wanted.
    pub(crate) fn new(now: Instant) -> Self {
        Self { instance_id: Uuid::nil(), subscription: None, due: now, over: false }
    }

    /// The id that a broker gave this client; nil before.
    pub(crate) fn instance_id(&self) -> Uuid {
        self.instance_id
    }

    /// What is due. Ask again after every other call, and when the time has come.
    pub(crate) fn poll_step(&self, now: Instant) -> Step {
        match &self.subscription {
            _ if self.over => Step::Over,
            _ if now < self.due => Step::Wait(self.due),
            Some(subscription) => Step::Push(subscription.clone()),
            None => Step::Subscribe,
        }
    }

    /// What is to be pushed at the end, whatever the time.
    pub(crate) fn last_push(&self) -> Option<&Subscription> {
        self.subscription.as_ref().filter(|_| !self.over)
    }

    /// A broker told what it wants. `jitter`, from 0 to 1, spreads the first pushes of many clients.
    pub(crate) fn handle_subscription(
        &mut self,
        now: Instant,
        instance_id: Uuid,
        subscription: Subscription,
        jitter: f64,
    ) {
        self.instance_id = instance_id;
        let interval = subscription.interval.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        let (wanted, jitter) = (!subscription.metrics.is_empty(), jitter.clamp(0.0, 1.0));
        // The first push from half to one and a half of the interval, as the KIP has it. Where nothing is wanted that is asked again,
        // not before the interval is over.
        self.due = now + interval.mul_f64(if wanted { 0.5 + jitter } else { 1.0 + jitter / 2.0 });
        self.subscription = wanted.then_some(Subscription { interval, ..subscription });
    }

    /// A broker would not tell what it wants, or none answered (`None`).
    pub(crate) fn handle_refused_subscription(&mut self, now: Instant, code: Option<ErrorCode>) {
        self.subscription = None;
        self.over |= code.is_some_and(is_final);
        self.due = now + RETRY;
    }

    /// The broker has no such API: it takes no metrics.
    pub(crate) fn handle_unsupported(&mut self) {
        self.over = true;
    }

    /// A push was answered, or not (`None`).
    pub(crate) fn handle_pushed(&mut self, now: Instant, code: Option<ErrorCode>) {
        let Some(subscription) = &self.subscription else { return };
        self.due = now + subscription.interval;
        match code {
            Some(ErrorCode::UNKNOWN_SUBSCRIPTION_ID | ErrorCode::UNSUPPORTED_COMPRESSION_TYPE) => {
                self.subscription = None;
                self.due = now;
            }
            Some(code) if is_final(code) => self.over = true,
            // Too large, too early, or not at all: by the next time there is something new to say.
            Some(_) | None => {}
        }
    }
}

/// Whether asking again is no use: what was sent is not what the broker knows.
fn is_final(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::INVALID_REQUEST | ErrorCode::INVALID_RECORD | ErrorCode::UNSUPPORTED_VERSION)
}

/// Bounds of what a broker may ask for (`ClientMetricsConfigs.MIN_INTERVAL_MS`, `MAX_INTERVAL_MS`).
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);

/// The wait after a refusal that may pass.
const RETRY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn subscription(metrics: &[&str]) -> Subscription {
        let metrics = metrics.iter().map(|name| (*name).to_owned()).collect();
        Subscription { id: 7, interval: MINUTE, codecs: Vec::new(), max_bytes: 1_000, delta: false, metrics }
    }

    fn subscribed(metrics: &[&str]) -> (Telemetry, Instant) {
        let now = Instant::now();
        let mut telemetry = Telemetry::new(now);
        assert_eq!(telemetry.poll_step(now), Step::Subscribe);
        telemetry.handle_subscription(now, Uuid::from_u128(1), subscription(metrics), 0.0);
        (telemetry, now)
    }

    #[test]
    fn the_first_push_is_spread_and_the_others_keep_the_interval() {
        let (mut telemetry, now) = subscribed(&[""]);
        assert_eq!(telemetry.poll_step(now), Step::Wait(now + MINUTE / 2));
        let now = now + MINUTE / 2;
        assert_eq!(telemetry.poll_step(now), Step::Push(subscription(&[""])));
        telemetry.handle_pushed(now, Some(ErrorCode::NONE));
        assert_eq!(telemetry.poll_step(now), Step::Wait(now + MINUTE));
        telemetry.handle_subscription(now, Uuid::from_u128(1), subscription(&[""]), 1.0);
        assert_eq!(telemetry.poll_step(now), Step::Wait(now + MINUTE * 3 / 2));
    }

    #[test]
    fn what_a_broker_asks_for_is_bounded() {
        for (asked, kept) in [(Duration::ZERO, SHORTEST_INTERVAL), (MINUTE * 600, LONGEST_INTERVAL)] {
            let (mut telemetry, now) = subscribed(&[""]);
            let asked = Subscription { interval: asked, ..subscription(&[""]) };
            telemetry.handle_subscription(now, Uuid::nil(), asked, 0.5);
            assert_eq!(telemetry.poll_step(now), Step::Wait(now + kept));
        }
    }

    #[test]
    fn where_nothing_is_wanted_nothing_is_pushed_and_it_is_asked_again() {
        let (telemetry, now) = subscribed(&[]);
        assert_eq!(telemetry.last_push(), None);
        assert_eq!(telemetry.poll_step(now + MINUTE), Step::Subscribe);
    }

    #[test]
    fn another_subscription_is_asked_for_at_once_and_a_refusal_that_passes_waits() {
        for code in [ErrorCode::UNKNOWN_SUBSCRIPTION_ID, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE] {
            let (mut telemetry, now) = subscribed(&[""]);
            telemetry.handle_pushed(now, Some(code));
            assert_eq!(telemetry.poll_step(now), Step::Subscribe, "{code}");
        }
        for code in [Some(ErrorCode::TELEMETRY_TOO_LARGE), Some(ErrorCode::THROTTLING_QUOTA_EXCEEDED), None] {
            let (mut telemetry, now) = subscribed(&[""]);
            telemetry.handle_pushed(now, code);
            assert_eq!(telemetry.poll_step(now), Step::Wait(now + MINUTE), "{code:?}");
            telemetry.handle_refused_subscription(now, code);
            assert_eq!(telemetry.poll_step(now), Step::Wait(now + RETRY));
        }
    }

    #[test]
    fn a_broker_that_does_not_understand_is_not_asked_for_ever() {
        let (mut telemetry, now) = subscribed(&[""]);
        telemetry.handle_pushed(now, Some(ErrorCode::INVALID_RECORD));
        assert_eq!((telemetry.poll_step(now), telemetry.last_push()), (Step::Over, None));
        let mut telemetry = Telemetry::new(now);
        telemetry.handle_unsupported();
        assert_eq!(telemetry.poll_step(now), Step::Over);
    }

    #[test]
    fn metrics_are_wanted_by_prefix() {
        let wanted = subscription(&["org.apache.kafka.producer.", "org.apache.kafka.consumer.fetch"]);
        for (name, expected) in
            [("producer.request.total", true), ("consumer.fetch.manager.x", true), ("consumer.join", false)]
        {
            assert_eq!(wanted.wants(&format!("org.apache.kafka.{name}")), expected, "{name}");
        }
        assert!(subscription(&[""]).wants("anything") && !subscription(&[]).wants("anything"));
    }
}
