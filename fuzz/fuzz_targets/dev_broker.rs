//! Clients that send the dev broker anything, from bytes to requests that are meant well, while nodes crash and faults are ordered.

#![no_main]

use kafka_harbor_fuzz::{choices, within};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    within(CEILING, || kafka_harbor::testing::broker::fuzzing::requests(&mut choices(input)));
});

/// Six topics of at most some thousand partitions each, and 64 KiB of records.
const CEILING: u64 = 256 << 20;
