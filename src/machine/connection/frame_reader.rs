use bytes::{Buf, Bytes, BytesMut};

use crate::protocol::frame::{FrameError, PREFIX_BYTES, message_length};

/// Cuts a stream of bytes into frames.
///
/// Small frames are slices of one shared buffer, several a read. A large one gets a buffer of its own, of exactly its
/// size, so that its bytes are moved once, by the read itself. An announced length is believed only as far as this peer
/// has earned it: the buffer grows as the bytes come.
#[derive(Debug)]
pub(crate) struct FrameReader {
    limit: usize,
    /// What was read and not cut yet.
    shared: BytesMut,
    large: Option<Large>,
    /// The largest frame that came whole.
    largest: usize,
    /// Buffers of large frames that were handed out; one whose readers have gone serves again.
    lent: Vec<Bytes>,
}

#[derive(Debug)]
struct Large {
    length: usize,
    bytes: BytesMut,
}

impl FrameReader {
    /// A reader that refuses frames larger than `limit`.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, shared: BytesMut::new(), large: None, largest: 0, lent: Vec::new() }
    }

    /// Where the next read goes, and how many bytes it may bring at most.
    pub(crate) fn buffer(&mut self) -> (&mut BytesMut, usize) {
        match &mut self.large {
            Some(large) => {
                let missing = large.length - large.bytes.len();
                if large.bytes.len() == large.bytes.capacity() {
                    // Twice what has come: a lie costs its author as many bytes as it costs us.
                    large.bytes.reserve(missing.min(large.bytes.len().max(TRUSTED_BYTES)));
                }
                (&mut large.bytes, missing)
            }
            None => {
                if self.shared.capacity() - self.shared.len() < SHARED_BYTES / 4 {
                    self.shared.reserve(SHARED_BYTES);
                }
                (&mut self.shared, usize::MAX)
            }
        }
    }

    /// The next whole frame, without its length.
    ///
    /// # Errors
    /// The place in the stream is lost; nothing after can be read.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        if let Some(large) = &self.large {
            if large.bytes.len() < large.length {
                return Ok(None);
            }
            let frame = self.large.take().map(|large| large.bytes.freeze()).unwrap_or_default();
            self.largest = self.largest.max(frame.len());
            self.lend(&frame);
            return Ok(Some(frame));
        }
        let Some(length) = message_length(&self.shared, self.limit)? else { return Ok(None) };
        if self.shared.len() - PREFIX_BYTES >= length {
            self.shared.advance(PREFIX_BYTES);
            self.largest = self.largest.max(length);
            return Ok(Some(self.shared.split_to(length).freeze()));
        }
        if length > SHARED_BYTES / 2 {
            self.shared.advance(PREFIX_BYTES);
            let mut bytes = self.large_buffer(length);
            bytes.extend_from_slice(&self.shared);
            self.shared.clear();
            self.large = Some(Large { length, bytes });
        }
        Ok(None)
    }

    /// Forgets what is kept for speed alone.
    pub(crate) fn shrink(&mut self) {
        self.lent.clear();
        if self.shared.is_empty() {
            self.shared = BytesMut::new();
        }
    }

    /// An empty buffer for a frame of this length, or for as much of it as is believed.
    fn large_buffer(&mut self, length: usize) -> BytesMut {
        let believed = length.min(TRUSTED_BYTES.max(self.largest.saturating_mul(2)));
        for at in 0..self.lent.len() {
            if !self.lent[at].is_unique() {
                continue;
            }
            if let Ok(mut buffer) = self.lent.swap_remove(at).try_into_mut() {
                buffer.clear();
                if buffer.capacity() >= believed {
                    return buffer;
                }
            }
            break;
        }
        BytesMut::with_capacity(believed)
    }

    fn lend(&mut self, frame: &Bytes) {
        if frame.len() > REUSED_BYTES {
            return;
        }
        if self.lent.len() >= LENT_BUFFERS {
            self.lent.remove(0);
        }
        self.lent.push(frame.clone());
    }
}

/// The shared buffer: most answers are far smaller, and several come in one read.
const SHARED_BYTES: usize = 16 << 10;

/// What an announced length may cost before a byte of it has come.
const TRUSTED_BYTES: usize = 1 << 20;

/// Buffers kept to serve again. A fresh one costs a page fault for every 4 KiB of it.
const LENT_BUFFERS: usize = 2;

/// No larger buffer is kept.
const REUSED_BYTES: usize = 4 << 20;
