//! Zstandard by the C library.

use ::zstd::bulk::{Compressor, Decompressor};
use ::zstd::zstd_safe;

use super::pool::Pool;
use super::{Codec, CompressionError, growth, malformed};

pub(super) fn compress(level: Option<i32>, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let fail = |error| malformed(Codec::Zstd, error);
    let level = level.unwrap_or(::zstd::DEFAULT_COMPRESSION_LEVEL);
    let mut encoder = match ENCODERS.take() {
        Some(mut encoder) => {
            encoder.set_compression_level(level).map_err(fail)?;
            encoder
        }
        None => Compressor::new(level).map_err(fail)?,
    };
    let start = out.len();
    out.resize(start + zstd_safe::compress_bound(input.len()), 0);
    let written = encoder.compress_to_buffer(input, &mut out[start..]).map_err(fail)?;
    out.truncate(start + written);
    ENCODERS.give(encoder);
    Ok(())
}

pub(super) fn inflate(input: &[u8], max_inflated_bytes: usize) -> Result<Vec<u8>, CompressionError> {
    let fail = |error| malformed(Codec::Zstd, error);
    let mut decoder = match DECODERS.take() {
        Some(decoder) => decoder,
        None => Decompressor::new().map_err(fail)?,
    };
    let expected = growth::first_guess(zstd_safe::get_frame_content_size(input).ok().flatten(), input);
    let inflated = growth::fill(Codec::Zstd, expected, max_inflated_bytes, |out| {
        match decoder.decompress_to_buffer(input, out) {
            Ok(filled) => Ok(Some(filled)),
            // The crate keeps the library's code to itself and gives out its text.
            Err(error) if error.to_string() == TOO_SMALL => Ok(None),
            Err(error) => Err(fail(error)),
        }
    });
    // One that failed is not trusted with the next batch.
    if inflated.is_ok() {
        DECODERS.give(decoder);
    }
    inflated
}

static ENCODERS: Pool<Compressor<'static>> = Pool::new();
static DECODERS: Pool<Decompressor<'static>> = Pool::new();

/// `ZSTD_getErrorName` of `ZSTD_error_dstSize_tooSmall`.
const TOO_SMALL: &str = "Destination buffer is too small";
