//! What the live tests share: real brokers, and other programs that speak in JSON lines.
//!
//! A broker is started once for a test binary and ends with it. Where none can be had the test says `SKIPPED` on stderr
//! and passes; with `CI=true` it fails instead.

mod account;
mod broker;
mod identity;
mod ledger;
mod mixed;
mod peer;
mod push;
mod topics;
mod watched;

pub use account::{Account, Balance, Interruption};
pub use broker::{Cluster, kafka, kafka_with, unique};
pub use identity::IdentityProvider;
pub use ledger::{Entry, Ledger, TempPath, What};
pub use mixed::{Mixed, partitions, stored};
pub use peer::{Peer, example, interop, tool};
pub use push::{Measure, Push, pushes};
pub use topics::{Desk, Stored};
pub use watched::Watched;

/// Says aloud that a test did not run, past the test runner's capture; with `CI=true` fails it.
pub fn skipped(why: &str) {
    use std::io::Write as _;
    assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run, and CI=true forbids to skip: {why}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}
