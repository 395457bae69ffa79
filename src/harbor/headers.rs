//! The harbor's headers: their names, reading the retry block, and what each hop writes.
//!
//! ```text
//!            send              hop to a retry level           hop to the dead letters     redrive
//! stamp      correlation-id    kept if not blank              kept                        kept
//!            produced-at       rewritten                      rewritten                   rewritten
//!            producer          rewritten                      rewritten                   rewritten
//! block                        retry-count, original-topic,   the same                    removed
//!                              first-failure-at, last-error
//!                              retry-group                    the same                    removed
//!                                                             dead-lettered-at            removed
//!                                                                                         redriven-from, redriven-at,
//!                                                                                         redrive-count
//! others     as given          copied, bytes and order        copied                      copied
//! ```
//!
//! A record that is too large for its next topic with all of it goes without what only informs: produced-at, producer,
//! last-error, dead-lettered-at.
//!
//! A header that is there already is rewritten in its place, a new one goes to the end, as the Node package does. Where a
//! name repeats its last value counts. Other headers are copied as bytes: repeats, nulls and what is no UTF-8 survive.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::harbor::correlation::CorrelationIds;
use crate::harbor::{instant, text};
use crate::record::{Header, HeadersView, Timestamp, Topic};

/// The names of the headers that the harbor reads and writes: a prefix, by default `x-`, and a fixed ending.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct HeaderNames(Arc<Names>);

macro_rules! names {
    ($($(#[$doc:meta])* $field:ident = $ending:literal;)*) => {
        #[derive(PartialEq, Eq)]
        struct Names {
            prefix: String,
            $($field: Name,)*
        }

        impl HeaderNames {
            /// Names with this prefix, which may be empty.
            pub fn with_prefix(prefix: impl Into<String>) -> Self {
                let prefix = prefix.into();
                $(let $field = Name::new(format!("{prefix}{}", $ending));)*
                Self(Arc::new(Names { prefix, $($field,)* }))
            }

            $($(#[$doc])*
            pub fn $field(&self) -> &str {
                &self.0.$field.text
            })*
        }
    };
}

names! {
    /// Ties together what came of one send. Kept on every hop.
    correlation_id = "correlation-id";
    /// When the record was sent, or hopped.
    produced_at = "produced-at";
    /// The client id of the harbor that sent it, or moved it.
    producer = "producer";
    /// How many deliveries failed.
    retry_count = "retry-count";
    /// The topic where it was first.
    original_topic = "original-topic";
    /// When the first delivery failed.
    first_failure_at = "first-failure-at";
    /// Why the last delivery failed.
    last_error = "last-error";
    /// When it was set aside.
    dead_lettered_at = "dead-lettered-at";
    /// The dead-letter topic that it was brought back from.
    redriven_from = "redriven-from";
    /// When it was brought back.
    redriven_at = "redriven-at";
    /// How often it was brought back. Not known to the Node package, which copies it, on hops and redrives alike.
    redrive_count = "redrive-count";
    /// The group whose delivery failed. Not known to the Node package, which copies it.
    retry_group = "retry-group";
}

impl HeaderNames {
    /// What every name begins with.
    pub fn prefix(&self) -> &str {
        &self.0.prefix
    }
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self::with_prefix("x-")
    }
}

impl fmt::Debug for HeaderNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*", self.prefix())
    }
}

/// A name as text to compare and as bytes to write.
#[derive(PartialEq, Eq)]
struct Name {
    text: Box<str>,
    bytes: Bytes,
}

impl Name {
    fn new(text: String) -> Self {
        Self { bytes: Bytes::copy_from_slice(text.as_bytes()), text: text.into() }
    }
}

/// What a record on a retry or dead-letter topic tells of its failures.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryBlock {
    /// Deliveries that failed, from 1 to 999,999,999.
    pub count: u32,
    /// The topic where the record was first.
    pub original_topic: Topic,
    /// When the first delivery failed.
    pub first_failure_at: Timestamp,
    /// Why the last one failed; empty where that is not told.
    pub last_error: String,
}

/// The harbor's headers of a record read from a retry or dead-letter topic.
#[derive(Debug, Clone, Default)]
pub(crate) struct LadderHeaders<'a> {
    /// The block, unless any part of it is missing or makes no sense.
    pub(crate) block: Option<RetryBlock>,
    /// The group whose delivery failed, where the writer told it.
    pub(crate) group: Option<&'a [u8]>,
}

impl HeaderNames {
    /// The correlation id as it stands there. It may be blank.
    pub(crate) fn correlation_of<'a>(&self, headers: HeadersView<'a>) -> Option<&'a [u8]> {
        headers.last(&self.0.correlation_id.bytes).flatten()
    }

    /// How often the record was brought back. Where a redrive of the Node package brought it back, which counts nothing, it
    /// was once at least.
    pub(crate) fn redrives_of(&self, headers: HeadersView<'_>) -> u32 {
        let value = |name: &Name| headers.last(&name.bytes).flatten();
        let told = value(&self.0.redrive_count).and_then(|count| read_count(&String::from_utf8_lossy(count)));
        told.unwrap_or_else(|| u32::from(value(&self.0.redriven_from).is_some()))
    }

    /// Reads what the ladder wrote, in one pass. On an original topic such headers mean nothing and are not read.
    pub(crate) fn read_ladder<'a>(&self, headers: HeadersView<'a>) -> LadderHeaders<'a> {
        let names = &*self.0;
        let (mut count, mut topic, mut failed_at, mut error, mut group) = (None, None, None, None, None);
        for (name, value) in headers {
            // All our names begin alike, so that most foreign ones are passed over at the first byte.
            if !name.starts_with(names.prefix.as_bytes()) {
                continue;
            }
            let slots = [
                (&names.retry_count, &mut count),
                (&names.original_topic, &mut topic),
                (&names.first_failure_at, &mut failed_at),
                (&names.last_error, &mut error),
                (&names.retry_group, &mut group),
            ];
            if let Some((_, slot)) = slots.into_iter().find(|(known, _)| known.bytes == name) {
                *slot = value;
            }
        }
        LadderHeaders { block: read_block(count, topic, failed_at, error), group }
    }
}

/// All of the block or nothing: a part that makes no sense casts doubt on the rest.
fn read_block(
    count: Option<&[u8]>,
    topic: Option<&[u8]>,
    failed_at: Option<&[u8]>,
    error: Option<&[u8]>,
) -> Option<RetryBlock> {
    let count = read_count(&String::from_utf8_lossy(count?))?;
    let topic = String::from_utf8_lossy(topic?);
    let first_failure_at = instant::parse(&String::from_utf8_lossy(failed_at?))?;
    (!text::is_blank(&topic)).then(|| RetryBlock {
        count,
        original_topic: topic.as_ref().into(),
        first_failure_at,
        last_error: error.map(|error| String::from_utf8_lossy(error).into_owned()).unwrap_or_default(),
    })
}

/// One to nine ASCII digits with white space around them, and not nought.
fn read_count(text: &str) -> Option<u32> {
    let digits = text::trim(text);
    let whole = (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|count| whole && *count >= 1)
}

/// Writes the harbor's headers. One a harbor; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Stamper {
    names: HeaderNames,
    client_id: Bytes,
    correlation: CorrelationIds,
}

impl Stamper {
    /// A stamper of the harbor with this client id.
    pub(crate) fn new(names: HeaderNames, client_id: &str, correlation: CorrelationIds) -> Self {
        Self { names, client_id: Bytes::copy_from_slice(client_id.as_bytes()), correlation }
    }

    /// The names that it writes.
    pub(crate) fn names(&self) -> &HeaderNames {
        &self.names
    }

    /// Takes away what only informs, for a record that is too large with it: why and when it was set aside, by whom and
    /// when it was moved. What says how often it failed, where it was first and whose it is stays, and all that is not
    /// the harbor's.
    pub(crate) fn strip(&self, headers: &mut Vec<Header>) {
        let names = &*self.names.0;
        let informing = [&names.last_error, &names.dead_lettered_at, &names.produced_at, &names.producer];
        headers.retain(|header| informing.iter().all(|name| name.bytes != header.name));
    }

    /// The stamp of one instant; one serves a whole batch.
    pub(crate) fn at(&self, now: Timestamp) -> Stamp<'_> {
        Stamp { by: self, now: instant::write(now).into() }
    }
}

/// The stamp of one instant.
#[derive(Debug)]
pub(crate) struct Stamp<'a> {
    by: &'a Stamper,
    now: Bytes,
}

/// What a hop tells of the failure that it comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop<'a> {
    /// The valid block that the record came with, if any.
    pub(crate) previous: Option<&'a RetryBlock>,
    /// The subscription's original topic, for a record that has no valid block.
    pub(crate) original_topic: &'a str,
    /// The text of the failure, bounded already.
    pub(crate) error: &'a str,
    /// When the delivery failed, for a record that has no valid block.
    pub(crate) failed_at: Timestamp,
    /// The group whose delivery failed.
    pub(crate) group: &'a str,
    /// Whether it goes to the dead letters.
    pub(crate) dead_letter: bool,
}

impl Stamp<'_> {
    /// Stamps a record that leaves: correlation id, produced-at, producer.
    pub(crate) fn send(&self, headers: &mut Vec<Header>) {
        let names = &*self.by.names.0;
        let given = headers.iter().rev().find(|header| header.name == names.correlation_id.bytes);
        let told = given
            .and_then(|header| header.value.as_ref())
            .is_some_and(|id| !text::is_blank(&String::from_utf8_lossy(id)));
        if !told {
            set(headers, &names.correlation_id, self.by.correlation.mint());
        }
        set(headers, &names.produced_at, self.now.clone());
        set(headers, &names.producer, self.by.client_id.clone());
    }

    /// The headers of a failed record on its next topic.
    pub(crate) fn hop(&self, source: HeadersView<'_>, hop: &Hop<'_>) -> Vec<Header> {
        let names = &*self.by.names.0;
        let mut headers = copied(source);
        // A tenth digit would make the block invalid, and its topic and first failure would be forgotten with it.
        let count = hop.previous.map_or(1, |block| block.count.saturating_add(1).min(MAX_COUNT));
        let original_topic = hop.previous.map_or(hop.original_topic, |block| &block.original_topic);
        let first_failure_at = hop.previous.map_or(hop.failed_at, |block| block.first_failure_at);
        set(&mut headers, &names.retry_count, count.to_string());
        set(&mut headers, &names.original_topic, original_topic.to_owned());
        set(&mut headers, &names.first_failure_at, instant::write(first_failure_at));
        set(&mut headers, &names.last_error, hop.error.to_owned());
        if hop.dead_letter {
            set(&mut headers, &names.dead_lettered_at, self.now.clone());
        }
        self.send(&mut headers);
        set(&mut headers, &names.retry_group, hop.group.to_owned());
        headers
    }

    /// The same headers on the dead-letter topic, for a record that was on its way to a level that does not take it.
    pub(crate) fn dead_lettered(&self, headers: &mut Vec<Header>) {
        set(headers, &self.by.names.0.dead_lettered_at, self.now.clone());
    }

    /// The headers of a record that no subscription owns, on the dead-letter topic that all candidates share: what
    /// it tells of itself stays as it is.
    pub(crate) fn unroutable(&self, source: HeadersView<'_>, error: &str) -> Vec<Header> {
        let names = &*self.by.names.0;
        let mut headers = copied(source);
        set(&mut headers, &names.last_error, error.to_owned());
        set(&mut headers, &names.dead_lettered_at, self.now.clone());
        self.send(&mut headers);
        headers
    }

    /// The headers of a dead letter that is brought back `from` its topic: as if it had never failed.
    pub(crate) fn redrive(&self, source: HeadersView<'_>, from: &Topic) -> Vec<Header> {
        let names = &*self.by.names.0;
        let tracking = [
            &names.retry_count,
            &names.original_topic,
            &names.first_failure_at,
            &names.last_error,
            &names.dead_lettered_at,
            &names.retry_group,
        ];
        let count = self.by.names.redrives_of(source).saturating_add(1).min(MAX_COUNT);
        let mut headers = copied(source);
        headers.retain(|header| tracking.iter().all(|name| name.bytes != header.name));
        set(&mut headers, &names.redriven_from, from.as_str().to_owned());
        set(&mut headers, &names.redriven_at, self.now.clone());
        self.send(&mut headers);
        set(&mut headers, &names.redrive_count, count.to_string());
        headers
    }
}

impl Stamp<'_> {
    /// The headers of a letter that is taken back from `topic`, where a redrive had brought it. What it told of its failures
    /// before is not known any more: `error` says what became of it, and its first failure is when it was brought back.
    pub(crate) fn take_back(&self, source: HeadersView<'_>, topic: &Topic, error: &str) -> Vec<Header> {
        let names = &*self.by.names.0;
        let count = self.by.names.redrives_of(source).saturating_sub(1);
        let redriven_at = source.last(&names.redriven_at.bytes).flatten();
        let at = redriven_at.and_then(|at| instant::parse(&String::from_utf8_lossy(at)));
        let mut headers = copied(source);
        let redrive = [&names.redriven_from, &names.redriven_at, &names.redrive_count];
        headers.retain(|header| redrive.iter().all(|name| name.bytes != header.name));
        set(&mut headers, &names.retry_count, "1");
        set(&mut headers, &names.original_topic, topic.as_str().to_owned());
        set(&mut headers, &names.first_failure_at, at.map_or(self.now.clone(), |at| instant::write(at).into()));
        set(&mut headers, &names.last_error, error.to_owned());
        set(&mut headers, &names.dead_lettered_at, self.now.clone());
        self.send(&mut headers);
        if count > 0 {
            set(&mut headers, &names.redrive_count, count.to_string());
        }
        headers
    }
}

/// The headers with bytes of their own, and room for ours.
fn copied(headers: HeadersView<'_>) -> Vec<Header> {
    // A header is at least two bytes of a record that was read, so the count is no lie.
    let mut owned = Vec::with_capacity(headers.len() + MOST_ADDED);
    owned.extend(
        headers.iter().map(|(name, value)| Header {
            name: Bytes::copy_from_slice(name),
            value: value.map(Bytes::copy_from_slice),
        }),
    );
    owned
}

/// Gives the name this one value, in the place where it is first, else at the end.
fn set(headers: &mut Vec<Header>, name: &Name, value: impl Into<Bytes>) {
    let value = Some(value.into());
    let Some(first) = headers.iter().position(|header| header.name == name.bytes) else {
        headers.push(Header { name: name.bytes.clone(), value });
        return;
    };
    headers[first].value = value;
    // The last value counts, so an older one must not stay behind ours.
    let mut at = 0;
    headers.retain(|header| {
        at += 1;
        at <= first + 1 || header.name != name.bytes
    });
}

/// The most that a count's nine digits hold.
const MAX_COUNT: u32 = 999_999_999;

/// The most headers that a hop adds: the stamp, the block, its group, the dead letter's instant.
const MOST_ADDED: usize = 9;

#[cfg(test)]
mod tests;
