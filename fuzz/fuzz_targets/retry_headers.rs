//! The headers of a record on a retry topic, as any peer may have written them. Whatever they are, the memory that
//! reading and rewriting them takes follows their length.

#![no_main]

use kafka_harbor_fuzz::{ceiling, within};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // A few copies in which a byte that is no UTF-8 becomes three, and what a hop adds.
    within(ceiling(64, input, 64 << 10), || kafka_harbor::harbor::fuzzing::retry_headers(input));
});
