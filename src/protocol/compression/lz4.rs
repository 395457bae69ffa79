//! LZ4 frames. Java's reader takes independent blocks only, and that is what is written.

use std::io::Write;

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::{Codec, CompressionError, growth, malformed};

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
    // Blocks as Java writes them. Version 2 batches use the frame's own header checksum; Kafka's wrong one
    // (KAFKA-3160) was that of version 0 messages.
    let info = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    encoder.write_all(input).map_err(|error| malformed(Codec::Lz4, error))?;
    encoder.try_finish().map_err(|error| malformed(Codec::Lz4, error))
}

pub(super) fn inflate(input: &[u8], max_inflated_bytes: usize) -> Result<Vec<u8>, CompressionError> {
    // Text compresses to a half or a third.
    let expected = input.len().saturating_mul(4);
    growth::read_all(Codec::Lz4, FrameDecoder::new(input), expected, max_inflated_bytes)
}
