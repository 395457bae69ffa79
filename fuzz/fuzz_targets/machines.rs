//! Any sequence of what a driver does, into one of the machines: requests, answers of any kind in any order, losses, time.

#![no_main]

use kafka_harbor_fuzz::{choices, within};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    within(CEILING, || kafka_harbor::machine::fuzzing::operations(&mut choices(input)));
});

/// Far above what a few partitions and requests take.
const CEILING: u64 = 4 << 20;
