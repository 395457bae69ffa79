//! Two ways to inflate into memory that grows with what comes out, up to a ceiling.

#[cfg(any(feature = "gzip", feature = "lz4"))]
use std::io::Read;

use super::{Codec, CompressionError};

/// All that `reader` gives, at most `max_inflated_bytes`. `expected` is a hint and need not be true.
#[cfg(any(feature = "gzip", feature = "lz4"))]
pub(super) fn read_all(
    codec: Codec,
    mut reader: impl Read,
    expected: usize,
    max_inflated_bytes: usize,
) -> Result<Vec<u8>, CompressionError> {
    let mut out = vec![0; expected.min(max_inflated_bytes)];
    let mut filled = 0;
    loop {
        if filled == out.len() {
            // The hint may have been exact: look for the end before growing.
            let mut probe = [0; 512];
            let read = reader.read(&mut probe).map_err(|error| super::malformed(codec, error))?;
            if read == 0 {
                return Ok(fitted(out, filled));
            }
            if filled + read > max_inflated_bytes {
                return Err(CompressionError::TooLarge { codec, max_inflated_bytes });
            }
            let grown = (filled * 2).max(MIN_STEP).min(max_inflated_bytes);
            // Exactly: doubling capacity on top of the doubled length would pass the ceiling.
            out.reserve_exact(grown.max(filled + read) - filled);
            out.extend_from_slice(&probe[..read]);
            out.resize(grown.max(filled + read), 0);
            filled += read;
            continue;
        }
        match reader.read(&mut out[filled..]).map_err(|error| super::malformed(codec, error))? {
            0 => return Ok(fitted(out, filled)),
            read => filled += read,
        }
    }
}

/// Inflates into a buffer of a fixed size, and again into a larger one while `attempt` answers `None` for too small.
///
/// `expected` is a hint; a true one makes it one attempt, and inflating straight into the buffer saves a window and
/// a copy. What all failed attempts cost together is a third of the last one.
#[cfg(any(feature = "zstd", feature = "zstd-c"))]
pub(super) fn fill(
    codec: Codec,
    expected: usize,
    max_inflated_bytes: usize,
    mut attempt: impl FnMut(&mut [u8]) -> Result<Option<usize>, CompressionError>,
) -> Result<Vec<u8>, CompressionError> {
    let mut size = expected.min(max_inflated_bytes);
    loop {
        let mut out = vec![0; size];
        if let Some(filled) = attempt(&mut out)? {
            return Ok(fitted(out, filled));
        }
        if size == max_inflated_bytes {
            return Err(CompressionError::TooLarge { codec, max_inflated_bytes });
        }
        size = size.saturating_mul(4).max(MIN_STEP).min(max_inflated_bytes);
    }
}

/// The filled part, without much memory behind it: records stay for as long as they are handled.
fn fitted(mut out: Vec<u8>, filled: usize) -> Vec<u8> {
    out.truncate(filled);
    if out.capacity() - filled > filled / 4 {
        out.shrink_to_fit();
    }
    out
}

/// How much to make room for at first: what the input claims, if input of its length is likely to hold it.
#[cfg(any(feature = "gzip", feature = "zstd", feature = "zstd-c"))]
pub(super) fn first_guess(claimed: Option<u64>, input: &[u8]) -> usize {
    let likely = input.len().saturating_mul(LIKELY_RATIO).max(MIN_STEP);
    claimed.and_then(|claimed| usize::try_from(claimed).ok()).map_or(likely, |claimed| claimed.min(likely))
}

/// Text and JSON compress to a fifth up to a tenth.
#[cfg(any(feature = "gzip", feature = "zstd", feature = "zstd-c"))]
const LIKELY_RATIO: usize = 16;
const MIN_STEP: usize = 16 << 10;
