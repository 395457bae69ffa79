//! Any bytes into each codec, and through it and back.

#![no_main]

use kafka_harbor::protocol::compression::{Codec, Compression, compress, inflate};
use kafka_harbor_fuzz::{ceiling, within};
use libfuzzer_sys::fuzz_target;

const CEILING: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    // What comes out, and the windows and tables of a codec.
    within(ceiling(64, input, 24 << 20), || run(input));
});

fn run(input: &[u8]) {
    let Some((&mode, rest)) = input.split_first() else { return };
    let codec = Codec::ALL[usize::from(mode & 3) + 1];
    if mode & 4 == 0 {
        if let Ok(out) = inflate(codec, rest, CEILING) {
            assert!(out.len() <= CEILING);
        }
        return;
    }
    let compression = Compression::new(codec);
    let compression = compression.with_level(i32::from(mode >> 3)).unwrap_or(compression);
    let mut packed = Vec::new();
    compress(compression, rest, &mut packed).expect("every input can be compressed");
    assert_eq!(inflate(codec, &packed, CEILING).expect("what was compressed"), rest);
}
