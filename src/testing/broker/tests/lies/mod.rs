//! A broker that lies, each lie by itself, a few times or for ever.
//!
//! ```text
//!   client ──▶ liar ──▶ dev broker        liar: every request as it came, the answers of one API as the lie has them
//!          ◀──      ◀──
//! ```
//!
//! A lie that ends costs time and nothing else: all that was acknowledged is in the log, and all that is in the log is read, once and in
//! order. One that does not end is a typed error, or is passed over; the client neither panics nor waits without an end nor asks without
//! a pause. `fields` has the lies in what answers say to producers, readers and members of groups, `share`, `transactions`, `telemetry`
//! and `admin` those to the others, each with what is done meanwhile; `heartbeats` those of coordinators that assign, `frames` those in
//! what all answers have.

mod admin;
mod fields;
mod frames;
mod heartbeats;
mod liar;
mod share;
mod telemetry;
mod transactions;
mod work;

use std::time::Duration;

use self::liar::{Liar, Lie};
use self::work::{Groups, Ran, work};

/// How often a lie that ends is told.
const TWICE: usize = 2;

/// Tells each lie by itself to who writes, and reads in a group.
async fn tell(groups: Groups, lies: Vec<Lie>) {
    tell_while(async |liar: &Liar| check(liar, &work(liar, groups).await), lies).await;
}

/// Tells each lie by itself, twice and then always, while this is done; it says what came of it that must not.
async fn tell_while(work: impl AsyncFn(&Liar) -> Result<(), String>, lies: Vec<Lie>) {
    assert!(!lies.is_empty());
    for lie in lies {
        for (times, said) in [(TWICE, "twice"), (usize::MAX, "always")] {
            let liar = Liar::new(lie.clone(), times).await;
            let begun = tokio::time::Instant::now();
            let name = format!("{}, {said}", liar.lie().name);
            match tokio::time::timeout(LIMIT, work(&liar)).await {
                Err(_) => panic!("{name}: it hangs; {} frames", liar.frames()),
                Ok(Err(what)) => panic!("{name}: {what}"),
                Ok(Ok(())) => {}
            }
            assert!(liar.told() > 0, "{name}: it was never told, and the test shows nothing");
            let seconds = begun.elapsed().as_secs() + 10;
            assert!((liar.frames() as u64) < 100 * seconds, "{name}: {} frames in {seconds} s", liar.frames());
        }
    }
}

fn check(liar: &Liar, ran: &Ran) -> Result<(), String> {
    let log = liar.log();
    let sound = |holds: bool, what: String| if holds { Ok(()) } else { Err(format!("{what}; {:?}", ran.faults)) };
    let lost = ran.acknowledged.iter().find(|value| !log.contains(value));
    sound(lost.is_none(), format!("{lost:?} was acknowledged and is lost"))?;
    let mut once = log.clone();
    once.dedup();
    sound(once.starts_with(&ran.read), format!("read {:?} of {log:?}", ran.read))?;
    sound(once.len() == log.len() || liar.lie().repeats, format!("written twice: {log:?}"))?;
    if !liar.must_recover() {
        return Ok(());
    }
    sound(ran.unsent.is_empty(), format!("unsent {:?}, and the broker is sound again", ran.unsent))?;
    sound(ran.read.len() == once.len(), format!("of {once:?} only {:?} was read", ran.read))
}

/// Far above every deadline of what is done.
const LIMIT: Duration = Duration::from_secs(3_600);
