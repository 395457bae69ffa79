//! A batch on its way: from its first record to its verdict.

use std::ops::Range;
use std::time::Instant;

use super::flush::FlushId;
use crate::protocol::batch::{BatchWriter, Closing, EncodedBatch, ProducerStamp, ReadOptions, WriteError};
use crate::protocol::compression::Compression;
use crate::record::{RecordRef, Timestamp};

/// Records of one partition that travel together, and the ticket by which those who wait for them know them.
#[derive(Debug)]
pub(super) struct Batch<T> {
    body: Body,
    /// Whose records these are.
    pub(super) ticket: T,
    /// Which of the ticket's records, in order: all of them until a batch is split or culprits are taken out.
    spans: Vec<Range<u32>>,
    /// How many records the ticket has.
    of: u32,
    /// When its first record was appended.
    pub(super) opened: Instant,
    /// Bytes of buffer memory to be given back with the verdict.
    pub(super) reserved: usize,
    /// The first flush that waits for it.
    pub(super) flush: Option<FlushId>,
}

#[derive(Debug)]
enum Body {
    /// Records can be appended.
    Open(BatchWriter),
    /// Closed: these bytes are sent, again and again if need be.
    Encoded(EncodedBatch),
    /// Closing it failed.
    Gone,
}

impl<T: Clone> Batch<T> {
    /// An open batch without records.
    pub(super) fn open(writer: BatchWriter, ticket: T, opened: Instant) -> Self {
        Self { body: Body::Open(writer), ticket, spans: Vec::new(), of: 0, opened, reserved: 0, flush: None }
    }

    /// How many records it holds.
    pub(super) fn record_count(&self) -> u32 {
        match &self.body {
            Body::Open(writer) => writer.record_count(),
            Body::Encoded(batch) => batch.header().record_count,
            Body::Gone => 0,
        }
    }

    /// Its size: before compression while it is open.
    pub(super) fn bytes(&self) -> usize {
        match &self.body {
            Body::Open(writer) => writer.encoded_bytes(),
            Body::Encoded(batch) => batch.bytes().len(),
            Body::Gone => 0,
        }
    }

    /// Appends a record, unless it is not the first and the batch would pass `max_bytes`: then `None`.
    #[inline]
    pub(super) fn append(
        &mut self,
        max_bytes: usize,
        record: &RecordRef<'_>,
        timestamp: Timestamp,
    ) -> Result<Option<u32>, WriteError> {
        let Body::Open(writer) = &mut self.body else { return Ok(None) };
        let max_bytes = if writer.is_empty() { usize::MAX } else { max_bytes };
        writer.append_within(max_bytes, timestamp, record.key, record.value, record.headers)
    }

    /// Its bytes under this number: closed now, or renumbered. The ticket's spans are known from here on.
    pub(super) fn number(
        &mut self,
        producer: Option<ProducerStamp>,
        is_transactional: bool,
    ) -> Result<&EncodedBatch, WriteError> {
        let batch = match std::mem::replace(&mut self.body, Body::Gone) {
            Body::Open(writer) => {
                self.of = writer.record_count();
                self.spans = all_of(self.of);
                writer.close(Closing { producer, is_transactional, is_control: false })?
            }
            Body::Encoded(batch) => batch.with_producer(producer),
            Body::Gone => return Err(WriteError::Empty),
        };
        self.body = Body::Encoded(batch);
        match &self.body {
            Body::Encoded(batch) => Ok(batch),
            Body::Open(_) | Body::Gone => unreachable!("encoded one line above"),
        }
    }

    /// The bytes to send again, just as they were sent before.
    pub(super) fn encoded(&self) -> Option<&EncodedBatch> {
        match &self.body {
            Body::Encoded(batch) => Some(batch),
            Body::Open(_) | Body::Gone => None,
        }
    }

    /// Which of the ticket's records it holds, whatever its state, and how many the ticket has.
    pub(super) fn spans(&self) -> (Vec<Range<u32>>, u32) {
        match &self.body {
            Body::Open(writer) => (all_of(writer.record_count()), writer.record_count()),
            Body::Encoded(_) | Body::Gone => (self.spans.clone(), self.of),
        }
    }

    /// The buffer it was encoded in, for the next batch, when no one else holds it.
    pub(super) fn into_buffer(self) -> Option<Vec<u8>> {
        match self.body {
            Body::Encoded(batch) => batch.into_bytes().try_into_mut().ok().map(Vec::from),
            Body::Open(_) | Body::Gone => None,
        }
    }

    /// The same records in two batches, neither numbered. `None`, with the batch unharmed, when it cannot be split.
    #[expect(clippy::result_large_err, reason = "the batch comes back unharmed, and splits are rare")]
    pub(super) fn halve(self) -> Result<(Self, Self), Self> {
        let count = self.record_count();
        let middle = count.div_ceil(2);
        if count < 2 {
            return Err(self);
        }
        match self.select(|index| usize::from(index >= middle)) {
            Some([first, second]) => Ok((first, second)),
            None => Err(self),
        }
    }

    /// The same records in two batches without these ones, by index, and these ones on their own. `None` when
    /// the batch cannot be read back, which its writer rules out.
    pub(super) fn without(&self, culprits: &[u32]) -> Option<[Self; 2]> {
        self.select(|index| usize::from(culprits.contains(&index)))
    }

    /// Distributes its records over two batches by index. Buffer memory and flush stay with the first.
    fn select(&self, half_of: impl Fn(u32) -> usize) -> Option<[Self; 2]> {
        let Body::Encoded(batch) = &self.body else { return None };
        // Its own writer has made it, and it is in memory already: no ceiling but the format's.
        let options = ReadOptions { max_inflated_bytes: i32::MAX as usize, ..ReadOptions::default() };
        let view = batch.open(&options).ok()?;
        let compression = Compression::from(batch.header().codec);
        let mut writers = [BatchWriter::new(compression), BatchWriter::new(compression)];
        let mut spans: [Vec<Range<u32>>; 2] = Default::default();
        let mut origins = self.spans.iter().flat_map(Clone::clone);
        for (index, record) in (0..).zip(view.records()) {
            let (record, origin) = (record.ok()?, origins.next()?);
            let half = half_of(index);
            writers[half].append(record.timestamp, record.key, record.value, record.headers).ok()?;
            match spans[half].last_mut() {
                Some(span) if span.end == origin => span.end += 1,
                _ => spans[half].push(origin..origin + 1),
            }
        }
        let closing = Closing { is_transactional: batch.header().is_transactional, ..Closing::default() };
        let mut reserved = self.reserved;
        let mut halves = writers.into_iter().zip(spans).map(|(writer, spans)| {
            let body = match writer.is_empty() {
                true => Body::Gone,
                false => writer.close(closing).map_or(Body::Gone, Body::Encoded),
            };
            Self {
                body,
                ticket: self.ticket.clone(),
                spans,
                of: self.of,
                opened: self.opened,
                reserved: std::mem::take(&mut reserved),
                flush: self.flush,
            }
        });
        Some([halves.next()?, halves.next()?])
    }
}

/// One span of this many records.
fn all_of(records: u32) -> Vec<Range<u32>> {
    std::iter::once(0..records).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::compression::Codec;
    use crate::record::Header;

    fn batch_of(count: u32, compression: Compression) -> Batch<&'static str> {
        let mut batch = Batch::open(BatchWriter::new(compression), "ticket", Instant::now());
        batch.reserved = 100;
        for i in 0..count {
            let key = i.to_be_bytes();
            let record = RecordRef::new(b"value").with_key(&key);
            batch.append(usize::MAX, &record, Timestamp(i64::from(i))).unwrap().unwrap();
        }
        batch.number(None, false).unwrap();
        batch
    }

    fn keys(batch: &Batch<&'static str>) -> Vec<u32> {
        let view = batch.encoded().unwrap().open(&ReadOptions::default()).unwrap();
        view.records().map(|r| u32::from_be_bytes(r.unwrap().key.unwrap().try_into().unwrap())).collect()
    }

    fn spans(batch: &Batch<&'static str>) -> Vec<(u32, u32)> {
        batch.spans.iter().map(|span| (span.start, span.end)).collect()
    }

    #[test]
    fn halves_hold_the_same_records_in_order_and_keep_whose_they_are() {
        for codec in [Codec::None, Codec::Lz4].into_iter().filter(|codec| codec.is_enabled()) {
            let (first, second) = batch_of(5, codec.into()).halve().unwrap();
            assert_eq!((keys(&first), spans(&first)), (vec![0, 1, 2], vec![(0, 3)]));
            assert_eq!((keys(&second), spans(&second)), (vec![3, 4], vec![(3, 5)]));
            assert_eq!(first.reserved + second.reserved, 100);
            let (third, fourth) = second.halve().unwrap();
            assert_eq!((spans(&third), spans(&fourth)), (vec![(3, 4)], vec![(4, 5)]));
            assert!(fourth.halve().is_err(), "one record cannot be split");
        }
    }

    #[test]
    fn culprits_are_taken_out_and_the_others_keep_their_places() {
        let [rest, culprits] = batch_of(6, Compression::NONE).without(&[1, 4]).unwrap();
        assert_eq!((keys(&rest), rest.spans.as_slice()), (vec![0, 2, 3, 5], &[0..1, 2..4, 5..6][..]));
        assert_eq!((keys(&culprits), culprits.spans.as_slice()), (vec![1, 4], &[1..2, 4..5][..]));
        let [rest, _] = rest.without(&[2]).unwrap();
        assert_eq!(rest.spans, [0..1, 2..3, 5..6]);
    }

    #[test]
    fn the_estimate_of_a_record_is_never_below_what_it_takes() {
        let big = vec![0; 3_000_000];
        let headers = [Header::new("a", "1"), Header::null(vec![7; 200])];
        for (key, value) in [(None, None), (Some(&b""[..]), Some(&b"x"[..])), (Some(&big[..]), Some(&big[..]))] {
            let record = RecordRef { key, value, headers: (&headers[..]).into(), ..RecordRef::default() };
            let mut batch = Batch::open(BatchWriter::new(Compression::NONE), (), Instant::now());
            batch.append(usize::MAX, &RecordRef::default(), Timestamp(0)).unwrap();
            let before = batch.bytes();
            batch.append(usize::MAX, &record, Timestamp(i64::MAX)).unwrap();
            assert!(batch.bytes() - before <= record.encoded_bytes_at_most());
        }
    }
}
