//! Any bytes, and sound messages with a few of theirs changed, as the answer of each API in each version that the client speaks.

#![no_main]

use kafka_harbor_fuzz::within;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (api, version, message) = kafka_harbor::protocol::fuzzing::message(bytes);
    // What decoding may take of a message this small, and the text of an error.
    let most = 32 * message.len() as u64 + (128 << 10);
    within(most, || kafka_harbor::protocol::fuzzing::response(api, version, message));
});
