//! Frames: how messages are told apart on a connection.
//!
//! ```text
//! | length: i32 | message: length bytes |
//! ```

use bytes::{Buf, Bytes, BytesMut};

/// The length of a frame's prefix.
pub const PREFIX_BYTES: usize = 4;

/// The largest frame that is taken from a peer unless configured: 100 MiB, as a broker's `socket.request.max.bytes`.
pub const DEFAULT_MAX_FRAME_BYTES: usize = 100 << 20;

/// A frame whose length cannot be. The connection has lost its place in the stream and must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The length has its sign bit set.
    #[error("frame of {length} bytes: the length is negative")]
    Negative {
        /// The length as it came.
        length: i32,
    },
    /// The length is beyond the bound.
    #[error("frame of {length} bytes is larger than the limit of {max_frame_bytes}")]
    TooLarge {
        /// The length as it came.
        length: usize,
        /// The bound it broke.
        max_frame_bytes: usize,
    },
}

/// The length of the message whose prefix `buffer` starts with; `None` while the prefix is not whole.
///
/// # Errors
///
/// When the length is negative or above `max_frame_bytes`. Nothing is allocated before this check.
pub fn message_length(buffer: &[u8], max_frame_bytes: usize) -> Result<Option<usize>, FrameError> {
    let Some(prefix) = buffer.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let length = i32::from_be_bytes(*prefix);
    let Ok(bytes) = usize::try_from(length) else { return Err(FrameError::Negative { length }) };
    if bytes > max_frame_bytes {
        return Err(FrameError::TooLarge { length: bytes, max_frame_bytes });
    }
    Ok(Some(bytes))
}

/// Takes the first message off `buffer`, without its prefix and without a copy; `None` while it is not whole.
///
/// # Errors
///
/// As [`message_length`]; the buffer is left as it was.
pub fn take_message(buffer: &mut BytesMut, max_frame_bytes: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(length) = message_length(buffer, max_frame_bytes)? else { return Ok(None) };
    if buffer.len() - PREFIX_BYTES < length {
        return Ok(None);
    }
    buffer.advance(PREFIX_BYTES);
    Ok(Some(buffer.split_to(length).freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_and_in_order() {
        let mut buffer = BytesMut::from(&b"\0\0\0\x03abc\0\0\0\0\0\0\0\x02d"[..]);
        assert_eq!(take_message(&mut buffer, 10), Ok(Some(Bytes::from_static(b"abc"))));
        assert_eq!(take_message(&mut buffer, 10), Ok(Some(Bytes::new())));
        assert_eq!(take_message(&mut buffer, 10), Ok(None));
        buffer.extend_from_slice(b"e");
        assert_eq!(take_message(&mut buffer, 10), Ok(Some(Bytes::from_static(b"de"))));
        assert_eq!(take_message(&mut buffer, 10), Ok(None));
    }

    #[test]
    fn a_length_that_lies_is_refused_before_its_bytes_arrive() {
        let limit = DEFAULT_MAX_FRAME_BYTES;
        assert_eq!(message_length(b"\xff\xff\xff\xff", limit), Err(FrameError::Negative { length: -1 }));
        assert_eq!(
            message_length(b"\x7f\xff\xff\xff", limit),
            Err(FrameError::TooLarge { length: i32::MAX as usize, max_frame_bytes: limit })
        );
        assert_eq!(message_length(b"\x06\x40\x00\x00", limit), Ok(Some(limit)));
        assert_eq!(message_length(b"\x06\x40\x00", limit), Ok(None));
    }
}
