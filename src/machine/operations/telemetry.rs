//! Pushes of metrics, and brokers that want anything.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::Operated;
use crate::machine::telemetry::{Step, Subscription, Telemetry};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;

pub(super) struct Pusher {
    machine: Telemetry,
    now: Instant,
    /// Requests since time passed.
    at_once: u32,
}

impl Operated for Pusher {
    const OPERATIONS: u32 = 6;

    fn new(_: &mut Choices<'_>) -> Self {
        let now = Instant::now();
        Self { machine: Telemetry::new(now), now, at_once: 0 }
    }

    fn act(&mut self, choices: &mut Choices<'_>, operation: u32) {
        match self.machine.poll_step(self.now) {
            Step::Over => assert!(self.machine.last_push().is_none(), "over, and pushes"),
            Step::Wait(until) => {
                assert!(until > self.now, "a wake-up that is past would spin: {:?}", self.machine);
                assert!(until - self.now <= LONGEST, "asleep for good: {:?}", self.machine);
                (self.now, self.at_once) = (until, 0);
            }
            Step::Push(_) => self.answer(choices, operation, true),
            _ => self.answer(choices, operation, false),
        }
    }

    /// A push or a question is answered at once: nothing is left to be done.
    fn settle(&mut self, _: &mut Choices<'_>) {}

    /// It ends with its client, and has nothing that it owes.
    fn end(self, _: &mut Choices<'_>) {}
}

impl Pusher {
    fn answer(&mut self, choices: &mut Choices<'_>, operation: u32, pushed: bool) {
        self.at_once += 1;
        // Refused for the subscription, it asks for another one, and then it waits.
        assert!(self.at_once <= 3, "asks and asks, and no time passes");
        let code = Some(choices.code()).filter(|_| !choices.once_in(4));
        match operation {
            0 if choices.once_in(24) => self.machine.handle_unsupported(),
            _ if pushed => self.machine.handle_pushed(self.now, code),
            0 | 1 => self.machine.handle_refused_subscription(self.now, code),
            _ => {
                let (subscription, jitter) = (subscription(choices), choices.pick(&[0.0, 0.5, 1.0, -7.0, 9.0]));
                self.machine.handle_subscription(self.now, Uuid::from_u128(1), subscription, jitter);
            }
        }
    }
}

fn subscription(choices: &mut Choices<'_>) -> Subscription {
    let interval = Duration::from_millis(u64::from(choices.pick(&[0, 1, 100, 60_000, i32::MAX as u32])));
    let metrics = (0..choices.below(3)).map(|_| choices.pick(&["", "org.apache.kafka.", "x"]).to_owned());
    Subscription {
        id: 0,
        interval,
        metrics: metrics.collect(),
        codecs: choices.bytes(4).into_iter().map(|bits| bits as i8).collect(),
        max_bytes: choices.number().max(0) as usize,
        delta: choices.once_in(2),
    }
}

/// One and a half of the longest interval.
const LONGEST: Duration = Duration::from_secs(5_400);
