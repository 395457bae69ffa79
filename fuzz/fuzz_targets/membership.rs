//! What members of a group say to each other through the coordinator, read and written again, and dealt out by each assignor.

#![no_main]

use kafka_harbor_fuzz::{ceiling, within};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    within(ceiling(128, bytes, 64 << 10), || kafka_harbor::protocol::fuzzing::membership(bytes));
    within(ceiling(1_024, bytes, 256 << 10), || kafka_harbor::machine::fuzzing::assignment(bytes));
});
