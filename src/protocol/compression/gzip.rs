//! gzip (RFC 1952), one member or several behind each other.

use std::io::Write;

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::{Codec, CompressionError, growth, malformed};

pub(super) fn compress(level: Option<i32>, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let level =
        level.and_then(|level| u32::try_from(level).ok()).map_or_else(Default::default, flate2::Compression::new);
    let mut encoder = GzEncoder::new(out, level);
    encoder.write_all(input).and_then(|()| encoder.try_finish()).map_err(|error| malformed(Codec::Gzip, error))
}

pub(super) fn inflate(input: &[u8], max_inflated_bytes: usize) -> Result<Vec<u8>, CompressionError> {
    // The last four bytes are the last member's size modulo 2^32.
    let claimed = input.last_chunk().map(|size| u64::from(u32::from_le_bytes(*size)));
    let expected = growth::first_guess(claimed, input);
    growth::read_all(Codec::Gzip, MultiGzDecoder::new(input), expected, max_inflated_bytes)
}
