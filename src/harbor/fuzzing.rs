//! What the fuzz targets call: headers that a peer wrote into what reads, copies and rewrites them. Built only for fuzzing.

use bytes::Bytes;

use crate::harbor::correlation::CorrelationIds;
use crate::harbor::headers::{HeaderNames, Hop, RetryBlock, Stamper};
use crate::harbor::{instant, text};
use crate::record::{Header, HeadersView, Timestamp, Topic, varint};

/// The headers of a record on a ladder, in one of three forms that the first byte chooses: any bytes in the encoding
/// of a batch; names of ours and others with any values; a block as the Node package writes and takes it, among these.
pub fn retry_headers(bytes: &[u8]) {
    let Some((&mode, rest)) = bytes.split_first() else { return };
    let names = if mode & 0x80 == 0 { HeaderNames::default() } else { HeaderNames::with_prefix("") };
    match mode % 3 {
        0 => {
            let Some((&count, mut encoded)) = rest.split_first() else { return };
            if let Some(view) = HeadersView::take(usize::from(count), &mut encoded) {
                walk(&names, view);
            }
        }
        1 => walk(&names, Encoded::new(&any_headers(&names, &mut Choices(rest))).view()),
        _ => node_block(&names, &mut Choices(rest)),
    }
}

/// What a record with these headers goes through: read, a hop, the dead letters, a redrive.
fn walk(names: &HeaderNames, source: HeadersView<'_>) {
    let read = names.read_ladder(source);
    if let Some(block) = &read.block {
        assert!((1..=MAX_COUNT).contains(&block.count) && !text::is_blank(&block.original_topic));
        assert!(block.last_error.len() <= 3 * source.encoded_bytes());
        assert_eq!(instant::parse(&instant::write(block.first_failure_at)), Some(block.first_failure_at));
    }
    assert_eq!(read.group, source.last(names.retry_group().as_bytes()).flatten());

    let given = foreign(names, source);
    let stamper = Stamper::new(names.clone(), "service", CorrelationIds::default());
    let stamp = stamper.at(Timestamp(0));
    for dead_letter in [false, true] {
        let previous = read.block.as_ref();
        let hop =
            Hop { previous, original_topic: "o", error: "E: e", failed_at: Timestamp(1), group: "g", dead_letter };
        let written = Encoded::new(&stamp.hop(source, &hop));
        let next = names.read_ladder(written.view());
        let expected = RetryBlock {
            count: previous.map_or(1, |block| (block.count + 1).min(MAX_COUNT)),
            original_topic: previous.map_or("o".into(), |block| block.original_topic.clone()),
            first_failure_at: previous.map_or(Timestamp(1), |block| block.first_failure_at),
            last_error: "E: e".into(),
        };
        assert_eq!(next.block, Some(expected), "a hop's block is not read as it was written");
        assert_eq!(next.group, Some(&b"g"[..]));
        assert!(foreign(names, written.view()) == given, "a hop lost or changed a foreign header");
        let id = names.correlation_of(source).filter(|id| !text::is_blank(&String::from_utf8_lossy(id)));
        assert!(id.is_none_or(|id| names.correlation_of(written.view()) == Some(id)));
        let is_dead = |headers: HeadersView<'_>| headers.last(names.dead_lettered_at().as_bytes()).is_some();
        assert_eq!(is_dead(written.view()), dead_letter || is_dead(source));

        let redriven = Encoded::new(&stamp.redrive(written.view(), &Topic::from("o-dlq")));
        let fresh = names.read_ladder(redriven.view());
        assert!(fresh.block.is_none() && fresh.group.is_none(), "a redrive left a trace of the ladder");
        let before = names.redrives_of(written.view());
        assert_eq!(names.redrives_of(redriven.view()), (before + 1).min(MAX_COUNT));
        assert!(foreign(names, redriven.view()) == given);
    }
    let lost = Encoded::new(&stamp.unroutable(source, "no owner"));
    assert!(foreign(names, lost.view()) == given);
}

/// A block in the text forms that the Node package takes is read, each part for what it says, whatever stands around it.
fn node_block(names: &HeaderNames, choices: &mut Choices<'_>) {
    let count = 1 + choices.u32() % MAX_COUNT;
    let digits = usize::from(choices.byte() % 10).max(count.to_string().len());
    let count_text = format!("{}{count:0digits$}{}", choices.white_space(), choices.white_space());
    let failed_at = Timestamp((choices.u64() % (2 * MAX_DATE_MILLIS + 1)) as i64 - MAX_DATE_MILLIS as i64);
    let topic = format!("{}t{}", choices.white_space(), String::from_utf8_lossy(choices.field()));
    let error = (choices.byte() & 1 == 1).then(|| String::from_utf8_lossy(choices.field()).into_owned());

    let mut headers = any_headers(names, choices);
    headers.retain(|header| header.name != names.last_error());
    let header = |name: &str, value: String| Header::new(name.to_owned(), value);
    headers.push(header(names.retry_count(), count_text));
    headers.push(header(names.original_topic(), topic.clone()));
    headers.push(header(names.first_failure_at(), instant::write(failed_at)));
    headers.extend(error.clone().map(|error| header(names.last_error(), error)));
    let encoded = Encoded::new(&headers);
    let expected = RetryBlock {
        count,
        original_topic: topic.as_str().into(),
        first_failure_at: failed_at,
        last_error: error.unwrap_or_default(),
    };
    assert_eq!(names.read_ladder(encoded.view()).block, Some(expected));
    walk(names, encoded.view());
}

/// Headers under names of ours, names that begin as ours do, and others, with any bytes or null for values.
fn any_headers(names: &HeaderNames, choices: &mut Choices<'_>) -> Vec<Header> {
    let ours = all(names);
    let mut headers = Vec::new();
    while !choices.0.is_empty() && headers.len() < 64 {
        let choice = usize::from(choices.byte());
        let name = match ours.get(choice % 16) {
            Some(name) if choice < 0xf0 => Bytes::copy_from_slice(name.as_bytes()),
            _ => Bytes::copy_from_slice(choices.field()),
        };
        let value = (choices.byte() != 0xff).then(|| Bytes::copy_from_slice(choices.field()));
        headers.push(Header { name, value });
    }
    headers
}

/// The headers that are not ours, in order.
fn foreign<'a>(names: &HeaderNames, headers: HeadersView<'a>) -> Vec<(&'a [u8], Option<&'a [u8]>)> {
    let ours = all(names);
    headers.into_iter().filter(|(name, _)| ours.iter().all(|known| known.as_bytes() != *name)).collect()
}

fn all(names: &HeaderNames) -> [&str; 12] {
    [
        names.correlation_id(),
        names.produced_at(),
        names.producer(),
        names.retry_count(),
        names.original_topic(),
        names.first_failure_at(),
        names.last_error(),
        names.dead_lettered_at(),
        names.redriven_from(),
        names.redriven_at(),
        names.redrive_count(),
        names.retry_group(),
    ]
}

/// Headers in the encoding of a record batch.
struct Encoded {
    count: usize,
    bytes: Vec<u8>,
}

impl Encoded {
    fn new(headers: &[Header]) -> Self {
        let mut bytes = Vec::new();
        for header in headers {
            for field in [Some(&header.name), header.value.as_ref()] {
                let (mut prefix, mut used) = ([0; 10], 0);
                varint::put_i64(&mut prefix, &mut used, field.map_or(-1, |field| field.len() as i64));
                bytes.extend_from_slice(&prefix[..used]);
                bytes.extend_from_slice(field.map_or(&[], |field| &field[..]));
            }
        }
        Self { count: headers.len(), bytes }
    }

    fn view(&self) -> HeadersView<'_> {
        HeadersView::take(self.count, &mut &self.bytes[..]).expect("headers that were written")
    }
}

/// The fuzzer's bytes as choices; noughts when they are at an end.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes([0; 4].map(|_: u8| self.byte()))
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes([0; 8].map(|_: u8| self.byte()))
    }

    /// Up to 255 bytes, their number first.
    fn field(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (field, rest) = self.0.split_at(length);
        self.0 = rest;
        field
    }

    /// None, or one of JavaScript's.
    fn white_space(&mut self) -> &'static str {
        const SOME: [&str; 8] = ["", " ", "\t\r\n", "\u{a0}", "\u{feff}", "\u{2028}\u{2029}", "\u{3000}", "\u{1680}"];
        SOME[usize::from(self.byte() % 8)]
    }
}

/// The largest count that its nine digits hold.
const MAX_COUNT: u32 = 999_999_999;

/// How far JavaScript's dates reach from 1970, both ways.
const MAX_DATE_MILLIS: u64 = 8_640_000_000_000_000;
