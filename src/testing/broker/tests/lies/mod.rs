//! A broker that lies, each lie by itself, a few times or for ever.
//!
//! Between the client and the dev broker stands who changes the answers of one API. A lie that ends costs time and nothing else: all that was
//! acknowledged is in the log, and all that is in the log is read, once and in order. One that does not end is a typed
//! error, or is passed over; the client neither panics nor waits without an end nor asks without a pause.

mod fields;
mod frames;
mod liar;
mod work;

use std::time::Duration;

use self::liar::{Liar, Lie};
use self::work::{Groups, Ran, work};

/// How often a lie that ends is told.
const TWICE: usize = 2;

/// Tells each lie by itself, twice and then always.
async fn tell(groups: Groups, lies: Vec<Lie>) {
    assert!(!lies.is_empty());
    for lie in lies {
        for times in [TWICE, usize::MAX] {
            let liar = Liar::new(lie.clone(), times).await;
            let begun = tokio::time::Instant::now();
            let ran = tokio::time::timeout(LIMIT, work(&liar, groups)).await;
            let name = liar.lie().name.clone();
            let Ok(ran) = ran else { panic!("{name}, {times} times: it hangs; {} frames", liar.frames()) };
            assert!(liar.told() > 0, "{name} was never told: the test shows nothing");
            let seconds = begun.elapsed().as_secs() + 10;
            assert!((liar.frames() as u64) < 100 * seconds, "{name}: {} frames in {seconds} s", liar.frames());
            check(&name, times, &liar, &ran);
        }
    }
}

fn check(name: &str, times: usize, liar: &Liar, ran: &Ran) {
    let log = liar.log();
    for value in &ran.acknowledged {
        assert!(log.contains(value), "{name}, {times} times: {value} was acknowledged and is lost");
    }
    let mut once = log.clone();
    once.dedup();
    assert!(once.starts_with(&ran.read), "{name}, {times} times: read {:?} of {log:?}", ran.read);
    assert!(once.len() == log.len() || liar.lie().repeats, "{name}, {times} times: written twice: {log:?}");
    if times == TWICE && !liar.lie().is_fatal {
        assert!(
            ran.unsent.is_empty(),
            "{name}: unsent {:?}, and the broker is sound again: {:?}",
            ran.unsent,
            ran.faults
        );
        assert_eq!(ran.read.len(), once.len(), "{name}: not all was read: {:?}", ran.faults);
    }
}

/// Far above every deadline of what is done.
const LIMIT: Duration = Duration::from_secs(3_600);
