use std::time::{Duration, Instant};

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
    /// Until when they are kept for the next large frame.
    kept_until: Option<Instant>,
    small_in_a_row: u32,
}

#[derive(Debug)]
struct Large {
    length: usize,
    bytes: BytesMut,
}

impl FrameReader {
    /// A reader that refuses frames larger than `limit`.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            shared: BytesMut::new(),
            large: None,
            largest: 0,
            lent: Vec::new(),
            kept_until: None,
            small_in_a_row: 0,
        }
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
    pub(crate) fn next_frame(&mut self, now: Instant) -> Result<Option<Bytes>, FrameError> {
        if let Some(large) = &self.large {
            if large.bytes.len() < large.length {
                return Ok(None);
            }
            let frame = self.large.take().map(|large| large.bytes.freeze()).unwrap_or_default();
            self.largest = self.largest.max(frame.len());
            self.lend(now, &frame);
            return Ok(Some(frame));
        }
        let Some(length) = message_length(&self.shared, self.limit)? else { return Ok(None) };
        if self.shared.len() - PREFIX_BYTES >= length {
            self.shared.advance(PREFIX_BYTES);
            self.largest = self.largest.max(length);
            self.small_in_a_row += 1;
            if self.small_in_a_row >= QUIET_FRAMES {
                self.forget();
            }
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

    /// When to call [`Self::handle_timeout`], unless a frame comes before.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.kept_until
    }

    /// Gives back what no large frame came for, as when all that is read was paused.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.kept_until.is_some_and(|until| now >= until) {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.lent.clear();
        self.kept_until = None;
    }

    fn lend(&mut self, now: Instant, frame: &Bytes) {
        self.small_in_a_row = 0;
        if frame.len() > REUSED_BYTES {
            return;
        }
        self.kept_until = Some(now + KEPT);
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

/// So many small frames in a row, as the empty answers of a consumer that has caught up, and no buffer is kept.
const QUIET_FRAMES: u32 = 16;

/// No larger buffer is kept: room for an answer of 50 MiB, `fetch.max.bytes`, and for the batch that may exceed it.
const REUSED_BYTES: usize = 64 << 20;

/// So long a buffer waits for the next large frame.
const KEPT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 64 << 20;

    /// Gives the bytes as reads of at most `step` would bring them.
    fn feed(reader: &mut FrameReader, mut bytes: &[u8], step: usize) -> Result<Vec<Bytes>, FrameError> {
        let mut frames = Vec::new();
        let now = Instant::now();
        while !bytes.is_empty() {
            let (buffer, limit) = reader.buffer();
            let room = buffer.capacity() - buffer.len();
            assert!(room > 0, "a read without room reads nothing");
            let read = bytes.len().min(limit).min(step).min(room);
            buffer.extend_from_slice(&bytes[..read]);
            bytes = &bytes[read..];
            while let Some(frame) = reader.next_frame(now)? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
        bodies.iter().flat_map(|body| [&(body.len() as i32).to_be_bytes()[..], body].concat()).collect()
    }

    #[test]
    fn frames_of_all_sizes_come_whole_however_they_are_cut() {
        let sizes = [0, 1, 100, 8 << 10, 16 << 10, (16 << 10) + 1, 3 << 20, 5, 5 << 20, 7];
        let bodies: Vec<_> = sizes.iter().map(|size| (0..*size).map(|at| (at * 7) as u8).collect::<Vec<_>>()).collect();
        let bytes = framed(&bodies);
        for step in [1 << 30, 70_001, 4_099] {
            let frames = feed(&mut FrameReader::new(LIMIT), &bytes, step).unwrap();
            assert_eq!(frames.len(), bodies.len());
            assert!(frames.iter().zip(&bodies).all(|(frame, body)| frame == body), "reads of {step}");
        }
    }

    #[test]
    fn frames_come_whole_byte_by_byte() {
        let bodies = vec![vec![1; 3], vec![], vec![2; 20_000]];
        assert_eq!(feed(&mut FrameReader::new(LIMIT), &framed(&bodies), 1).unwrap(), bodies);
    }

    /// Nothing from a peer sizes an allocation: a length costs its author as many bytes as it costs us.
    #[test]
    fn a_length_that_lies_allocates_little() {
        let mut reader = FrameReader::new(LIMIT);
        feed(&mut reader, &(LIMIT as i32).to_be_bytes(), 4).unwrap();
        assert!(reader.buffer().0.capacity() <= TRUSTED_BYTES);
        feed(&mut reader, &vec![0; 2 << 20], 1 << 20).unwrap();
        assert!(reader.buffer().0.capacity() <= 4 << 20);
    }

    #[test]
    fn a_frame_beyond_the_limit_is_refused() {
        let mut reader = FrameReader::new(1 << 20);
        assert!(feed(&mut reader, &((1 << 20) + 1_i32).to_be_bytes(), 4).is_err());
        assert!(feed(&mut FrameReader::new(LIMIT), &[0xff; 4], 4).is_err());
    }

    /// A fresh buffer of a megabyte costs 256 page faults.
    #[test]
    fn the_buffer_of_a_frame_that_is_no_longer_read_serves_again() {
        let mut reader = FrameReader::new(LIMIT);
        let body = framed(&[vec![9; 600_000]]);
        let first = feed(&mut reader, &body, 1 << 20).unwrap().remove(0);
        let place = first.as_ptr();
        let second = feed(&mut reader, &body, 1 << 20).unwrap().remove(0);
        assert_ne!(second.as_ptr(), place, "the first is still read");
        feed(&mut reader, &framed(&[vec![], vec![1]]), 1 << 20).unwrap();
        drop(first);
        let third = feed(&mut reader, &body, 1 << 20).unwrap().remove(0);
        assert_eq!(third.as_ptr(), place);
        assert_eq!(second, vec![9; 600_000]);
        feed(&mut reader, &framed(&vec![vec![1]; QUIET_FRAMES as usize]), 1 << 20).unwrap();
        assert!(reader.lent.is_empty(), "a stream that became quiet keeps nothing");
    }

    /// Two buffers of 50 MiB are too much to keep for a reader that was paused.
    #[test]
    fn buffers_are_given_back_where_no_large_frame_comes_for_a_while() {
        let mut reader = FrameReader::new(LIMIT);
        drop(feed(&mut reader, &framed(&[vec![9; 600_000]]), 1 << 20).unwrap());
        let until = reader.poll_timeout().expect("a buffer is kept");
        reader.handle_timeout(until - Duration::from_millis(1));
        assert_eq!((reader.lent.len(), reader.poll_timeout()), (1, Some(until)));
        reader.handle_timeout(until);
        assert_eq!((reader.lent.len(), reader.poll_timeout()), (0, None));
    }
}
