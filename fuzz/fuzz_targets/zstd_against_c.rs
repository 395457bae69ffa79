//! The zstd in pure Rust against the C library: both read the same out of any bytes, or both refuse; each reads what
//! the other writes.

#![no_main]

use kafka_harbor::protocol::compression::{Codec, Compression, compress, inflate};
use libfuzzer_sys::fuzz_target;

const CEILING: usize = 1 << 20;

/// What the format forbids (RFC 8878) and C lets pass; no encoder writes it.
const STRICTER: &[&str] = &[
    // 3.1.1.2.3: raw and RLE blocks, too, are at most as large as the window.
    "ExpandsPastBlockMaximum",
    // The same where even the largest window is exceeded.
    "Blocksize was bigger than the absolute maximum",
    // 4.2.2: a stream of literals ends exactly where its bits do. C's fast loop over four streams does not look.
    "BitstreamReadMismatch",
    // 4.2.2: nor does it look whether a stream's last byte is zero, where it has to hold the bit that ends the stream.
    "ExtraPadding",
];

fuzz_target!(|input: &[u8]| {
    let Some(([mode, level, at, bit], rest)) = input.split_first_chunk() else { return };
    match mode & 3 {
        0 => same(rest),
        1 => ours_to_c(i32::from(*level) - 8, rest),
        // A frame of the C library's, whole or with one bit changed.
        _ => {
            let level = i32::from(*level) % 20 - 8;
            let mut frame = by_c(level, mode & 4 != 0, rest);
            if mode & 1 != 0 {
                let at = usize::from(*at) * frame.len() / 256;
                frame[at] ^= 1 << (bit & 7);
                same(&frame);
            } else {
                assert_eq!(inflate(Codec::Zstd, &frame, CEILING).expect("a frame of the C library's"), rest);
            }
        }
    }
});

fn same(frame: &[u8]) {
    let ours = inflate(Codec::Zstd, frame, CEILING);
    let theirs = zstd::bulk::decompress(frame, CEILING);
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert!(ours == theirs, "different output"),
        (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) => panic!("read here, refused by C: {error}"),
        (Err(error), Ok(_)) => {
            let error = error.to_string();
            assert!(STRICTER.iter().any(|reason| error.contains(reason)), "read by C, refused here: {error}");
        }
    }
}

fn ours_to_c(level: i32, input: &[u8]) {
    let compression = Compression::new(Codec::Zstd);
    let compression = compression.with_level(level % 20).unwrap_or(compression);
    let mut frame = Vec::new();
    compress(compression, input, &mut frame).expect("every input can be compressed");
    assert_eq!(zstd::bulk::decompress(&frame, CEILING).expect("C reads it"), input);
}

/// In one go with a content size, or streamed without, as Java's producer does.
fn by_c(level: i32, streamed: bool, input: &[u8]) -> Vec<u8> {
    if streamed {
        zstd::stream::encode_all(input, level).expect("compresses")
    } else {
        zstd::bulk::compress(input, level).expect("compresses")
    }
}
