//! Logins whose peer says anything, in the messages of each mechanism and in the requests that carry them.

#![no_main]

use kafka_harbor_fuzz::{ceiling, within};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    within(ceiling(64, bytes, 256 << 10), || kafka_harbor::machine::fuzzing::sasl(bytes));
});
