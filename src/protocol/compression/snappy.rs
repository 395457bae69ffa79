//! Snappy in the framing of Java's library (Xerial), and without any.
//!
//! ```text
//! 0x82 "SNAPPY" 0x00, version i32, compatible version i32, then chunks: length i32, raw snappy
//! ```

use super::{Codec, CompressionError, malformed};

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
    let mut encoder = snap::raw::Encoder::new();
    for chunk in input.chunks(CHUNK_BYTES) {
        let length_at = out.len();
        let start = length_at + 4;
        out.resize(start + snap::raw::max_compress_len(chunk.len()), 0);
        let written = encoder.compress(chunk, &mut out[start..]).map_err(|error| malformed(Codec::Snappy, error))?;
        // At most the bound for one chunk, so it fits.
        out[length_at..start].copy_from_slice(&(written as u32).to_be_bytes());
        out.truncate(start + written);
    }
    Ok(())
}

pub(super) fn inflate(input: &[u8], max_inflated_bytes: usize) -> Result<Vec<u8>, CompressionError> {
    let mut out = Vec::new();
    let Some(mut rest) = input.strip_prefix(&MAGIC) else {
        inflate_raw(input, &mut out, max_inflated_bytes)?;
        return Ok(out);
    };
    rest = rest.get(VERSIONS_BYTES..).ok_or_else(cut)?;
    while !rest.is_empty() {
        // Streams that were written behind each other: Java's reader takes the header where a chunk could begin.
        if let Some(next) = rest.strip_prefix(&MAGIC) {
            rest = next.get(VERSIONS_BYTES..).ok_or_else(cut)?;
            continue;
        }
        let (length, behind) = rest.split_first_chunk().ok_or_else(cut)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| cut())?;
        let (chunk, behind) = behind.split_at_checked(length).ok_or_else(cut)?;
        inflate_raw(chunk, &mut out, max_inflated_bytes)?;
        rest = behind;
    }
    Ok(out)
}

/// Appends what a raw snappy block inflates to.
fn inflate_raw(block: &[u8], out: &mut Vec<u8>, max_inflated_bytes: usize) -> Result<(), CompressionError> {
    let claimed = snap::raw::decompress_len(block).map_err(|error| malformed(Codec::Snappy, error))?;
    if claimed > max_inflated_bytes - out.len() {
        return Err(CompressionError::TooLarge { codec: Codec::Snappy, max_inflated_bytes });
    }
    if claimed > block.len().saturating_mul(MAX_RATIO) {
        return Err(malformed(Codec::Snappy, "claims more than its bytes can hold"));
    }
    let start = out.len();
    // Half as much again at the most, and never past the ceiling.
    if out.capacity() - start < claimed {
        out.reserve_exact((start / 2).max(claimed).min(max_inflated_bytes - start));
    }
    out.resize(start + claimed, 0);
    let written = snap::raw::Decoder::new()
        .decompress(block, &mut out[start..])
        .map_err(|error| malformed(Codec::Snappy, error))?;
    out.truncate(start + written);
    Ok(())
}

fn cut() -> CompressionError {
    malformed(Codec::Snappy, "cut within its framing")
}

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const VERSIONS_BYTES: usize = 8;
/// The default of Java's library.
const CHUNK_BYTES: usize = 32 << 10;
/// A copy of up to 64 bytes takes at least three; one of up to 11 takes two.
const MAX_RATIO: usize = 22;
