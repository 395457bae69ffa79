//! Pushes of metrics, and brokers that want anything.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::machine::telemetry::{Step, Subscription, Telemetry};
use crate::protocol::choices::Choices;
use crate::protocol::shape::sample::Source;

pub(super) fn run(choices: &mut Choices<'_>) {
    let mut now = Instant::now();
    let mut machine = Telemetry::new(now);
    let mut at_once = 0;
    while let Some(operation) = choices.operation(6) {
        match machine.poll_step(now) {
            Step::Over => {
                assert!(machine.last_push().is_none(), "over, and pushes");
                return;
            }
            Step::Wait(until) => {
                assert!(until > now, "a wake-up that is past would spin: {machine:?}");
                assert!(until - now <= LONGEST, "asleep for good: {machine:?}");
                (now, at_once) = (until, 0);
            }
            step => {
                at_once += 1;
                // Refused for the subscription, it asks for another one, and then it waits.
                assert!(at_once <= 3, "asks and asks, and no time passes");
                answer(choices, operation, now, &mut machine, matches!(step, Step::Push(_)));
            }
        }
    }
}

fn answer(choices: &mut Choices<'_>, operation: u32, now: Instant, machine: &mut Telemetry, pushed: bool) {
    let code = Some(choices.code()).filter(|_| !choices.once_in(4));
    match operation {
        0 if choices.once_in(24) => machine.handle_unsupported(),
        _ if pushed => machine.handle_pushed(now, code),
        0 | 1 => machine.handle_refused_subscription(now, code),
        _ => {
            let interval = Duration::from_millis(u64::from(choices.pick(&[0, 1, 100, 60_000, i32::MAX as u32])));
            let metrics = (0..choices.below(3)).map(|_| choices.pick(&["", "org.apache.kafka.", "x"]).to_owned());
            let subscription = Subscription {
                id: 0,
                interval,
                metrics: metrics.collect(),
                codecs: choices.bytes(4).into_iter().map(|bits| bits as i8).collect(),
                max_bytes: choices.number().max(0) as usize,
                delta: choices.once_in(2),
            };
            let jitter = choices.pick(&[0.0, 0.5, 1.0, -7.0, 9.0]);
            machine.handle_subscription(now, Uuid::from_u128(1), subscription, jitter);
        }
    }
}

/// One and a half of the longest interval.
const LONGEST: Duration = Duration::from_secs(5_400);
