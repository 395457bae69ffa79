//! The headers of a record on a retry topic, as any peer may have written them. Whatever they are, the memory that
//! reading and rewriting them takes follows their length.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let taken = allocation_counter::measure(|| kafka_harbor::harbor::fuzzing::retry_headers(input));
    // A few copies in which a byte that is no UTF-8 becomes three, and what a hop adds.
    let most = 64 * input.len() as u64 + (64 << 10);
    assert!(taken.bytes_max <= most, "{} bytes at once for {} of input", taken.bytes_max, input.len());
});
