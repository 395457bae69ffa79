//! Client and dev broker in one process, on one seed, in virtual time.
//!
//! A run is a storm and then calm. In the storm producers write and members of a group read, come and go, while nodes, leaders, connections
//! and answers are lost. In the calm everything has to drain. What all of them saw is a [`history::History`], and [`checker::check`] says
//! what in it cannot be.
//!
//! | variable | what | default |
//! | --- | --- | --- |
//! | `SIM_SEED` | this seed alone, with its history printed | |
//! | `SIM_FROM`, `SIM_SEEDS` | the first seed, and how many | 0, and what takes about 20 s |

#![cfg(all(feature = "kafka", feature = "testing"))]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod checker;
mod history;
mod member;
mod misfortune;
mod producer;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use checker::check;
use history::{History, What};

/// As many as take about 20 s on two cores, unoptimised.
const SEEDS: u64 = 100;

#[test]
fn whatever_happens_nothing_is_lost_and_everything_drains() {
    if let Some(seed) = variable("SIM_SEED") {
        let history = world::run(seed);
        println!("{history}");
        assert_eq!(check(&history), [], "{}", again(seed));
        return;
    }
    let from = variable("SIM_FROM").unwrap_or(0);
    let seeds = variable("SIM_SEEDS").unwrap_or(SEEDS);
    let (next, failures) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= seeds {
                        return;
                    }
                    if let Some(failure) = failure_of(from + at) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {seeds} seeds failed\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_seed_gives_the_same_history_again() {
    for seed in 0..10 {
        let (once, again) = (world::run(seed), world::run(seed));
        let differs = once.events.iter().zip(&again.events).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(once, again, "seed {seed}");
    }
    assert_ne!(world::run(1), world::run(2), "a seed decides something");
}

/// A simulation in which nothing happens finds nothing.
#[test]
fn a_run_is_eventful() {
    let histories: Vec<History> = (0..8).map(world::run).collect();
    let count = |wanted: fn(&What) -> bool| {
        histories.iter().flat_map(|history| &history.events).filter(|event| wanted(&event.what)).count()
    };
    assert!(count(|what| matches!(what, What::Acknowledged { .. })) > 8 * 300);
    assert!(count(|what| matches!(what, What::Handed { .. })) > 8 * 50);
    assert!(count(|what| matches!(what, What::Committed { .. })) > 8 * 20);
    assert!(count(|what| matches!(what, What::NotCommitted { .. })) > 0);
    assert!(count(|what| matches!(what, What::Gone { .. })) > 8 * 5);
    assert!(count(|what| matches!(what, What::Misfortune(_))) > 8 * 20);
}

fn failure_of(seed: u64) -> Option<String> {
    let found = catch_unwind(AssertUnwindSafe(|| check(&world::run(seed))));
    match found {
        Ok(violations) if violations.is_empty() => None,
        Ok(violations) => {
            let first: Vec<_> = violations.iter().take(5).map(|violation| format!("  {violation:?}\n")).collect();
            Some(format!("{}\n{}", again(seed), first.concat()))
        }
        Err(_) => Some(format!("{}\n  it panicked, see above", again(seed))),
    }
}

/// The command that does it again.
fn again(seed: u64) -> String {
    format!("SIM_SEED={seed} cargo test --features testing --test simulation whatever -- --nocapture")
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}
