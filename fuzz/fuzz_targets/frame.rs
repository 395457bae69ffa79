//! A stream of any bytes in pieces of any size: whole frames or an error, and no more memory than was sent.

#![no_main]

use kafka_harbor_fuzz::{ceiling, within};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    within(ceiling(4, bytes, 16 << 10), || kafka_harbor::protocol::fuzzing::frame(bytes));
});
