//! Zstandard in pure Rust.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};

use structured_zstd::decoding::errors::FrameDecoderError;
use structured_zstd::decoding::{self, ContentChecksum, FrameContentSize, FrameDecoder};
use structured_zstd::encoding::{CompressionLevel, FrameCompressor};

use super::pool::Pool;
use super::{Codec, CompressionError, growth, malformed};

pub(super) fn compress(level: Option<i32>, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let level = level.map_or(CompressionLevel::Default, CompressionLevel::from_level);
    ENCODER.with_borrow_mut(|kept| {
        let encoder = kept.get_or_insert_with(|| Encoder { frames: FrameCompressor::new(level), frame: Vec::new() });
        if encoder.frames.compression_level() != level {
            encoder.frames.set_compression_level(level);
        }
        encoder.frames.compress_independent_frame_into(input, &mut encoder.frame);
        out.extend_from_slice(&encoder.frame);
        if encoder.frames.heap_size() + encoder.frame.capacity() > MAX_KEPT_BYTES {
            *kept = None;
        }
    });
    Ok(())
}

pub(super) fn inflate(input: &[u8], max_inflated_bytes: usize) -> Result<Vec<u8>, CompressionError> {
    let claimed = match decoding::find_decompressed_size(input) {
        Ok(FrameContentSize::Known(size)) => Some(size),
        _ => None,
    };
    let mut decoder = DECODERS.take().unwrap_or_else(|| {
        let mut decoder = FrameDecoder::new();
        decoder.set_content_checksum(ContentChecksum::Verify);
        decoder
    });
    // Into one buffer: the frame needs no window of its own, whatever size it claims for one.
    let expected = growth::first_guess(claimed, input);
    let inflated =
        growth::fill(Codec::Zstd, expected, max_inflated_bytes, |out| match contained(&mut decoder, input, out)? {
            Ok(filled) => Ok(Some(filled)),
            Err(FrameDecoderError::TargetTooSmall) => Ok(None),
            Err(error) => Err(malformed(Codec::Zstd, error)),
        });
    // One that failed is not trusted with the next batch.
    if inflated.is_ok() {
        DECODERS.give(decoder);
    }
    inflated
}

/// Decodes; a panic of the young decoder is an error of this batch, as bytes from a peer must never end a task. The decoder is not
/// used again then.
fn contained(
    decoder: &mut FrameDecoder,
    input: &[u8],
    out: &mut [u8],
) -> Result<Result<usize, FrameDecoderError>, CompressionError> {
    panic::catch_unwind(AssertUnwindSafe(|| decoder.decode_all(input, out)))
        .map_err(|_| malformed(Codec::Zstd, "the decoder panicked"))
}

/// A compressor, and the buffer that it writes a frame to.
struct Encoder {
    frames: FrameCompressor,
    frame: Vec<u8>,
}

thread_local! {
    /// The last encoder of this thread; it cannot be sent to another.
    static ENCODER: RefCell<Option<Encoder>> = const { RefCell::new(None) };
}

static DECODERS: Pool<FrameDecoder> = Pool::new();

/// Enough for the usual levels; an encoder of the highest takes hundreds of MiB.
const MAX_KEPT_BYTES: usize = 4 << 20;
