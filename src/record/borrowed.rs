//! A record whose parts lie elsewhere, to be encoded from there.

use super::{Header, HeadersIter, HeadersView, Record, RecordView, Timestamp, with_place};

/// A record to be sent, borrowed: nothing is copied before it is encoded.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecordRef<'a> {
    /// The key. Null and empty differ.
    pub key: Option<&'a [u8]>,
    /// The value. Null is a tombstone; null and empty differ.
    pub value: Option<&'a [u8]>,
    /// Headers in order, repeats kept.
    pub headers: HeadersRef<'a>,
    /// The partition, where the caller chose one.
    pub partition: Option<i32>,
    /// Creation time; the time of sending when absent.
    pub timestamp: Option<Timestamp>,
}

impl<'a> RecordRef<'a> {
    /// A record with this value and nothing else.
    pub fn new(value: &'a [u8]) -> Self {
        Self { value: Some(value), ..Self::default() }
    }

    /// The same record with this key.
    #[must_use]
    pub fn with_key(mut self, key: &'a [u8]) -> Self {
        self.key = Some(key);
        self
    }

    /// The same record with these headers.
    #[must_use]
    pub fn with_headers(mut self, headers: impl Into<HeadersRef<'a>>) -> Self {
        self.headers = headers.into();
        self
    }

    with_place!();

    /// At most as many bytes as it takes in a batch.
    pub(crate) fn encoded_bytes_at_most(&self) -> usize {
        let headers = match self.headers {
            HeadersRef::Owned([]) | HeadersRef::Slices([]) => 0,
            HeadersRef::Encoded(view) => view.encoded_bytes(),
            headers => {
                headers.iter().map(|(name, value)| 2 * LENGTH_BYTES + name.len() + value.map_or(0, <[u8]>::len)).sum()
            }
        };
        RECORD_OVERHEAD + self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len) + headers
    }
}

impl<'a> From<&'a Record> for RecordRef<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: HeadersRef::Owned(&record.headers),
            partition: record.partition,
            timestamp: record.timestamp,
        }
    }
}

/// The same key, value and headers; time and partition are chosen anew.
impl<'a> From<RecordView<'a>> for RecordRef<'a> {
    fn from(record: RecordView<'a>) -> Self {
        Self { key: record.key, value: record.value, headers: HeadersRef::Encoded(record.headers), ..Self::default() }
    }
}

/// A borrowed record's headers, in whichever form they lie.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum HeadersRef<'a> {
    /// Owned headers.
    Owned(&'a [Header]),
    /// Names and values as slices.
    Slices(&'a [(&'a [u8], Option<&'a [u8]>)]),
    /// The headers of a record that was read.
    Encoded(HeadersView<'a>),
}

impl<'a> HeadersRef<'a> {
    /// Name and value of each, in order.
    pub fn iter(&self) -> HeadersRefIter<'a> {
        HeadersRefIter(match *self {
            Self::Owned(headers) => Form::Owned(headers.iter()),
            Self::Slices(headers) => Form::Slices(headers.iter()),
            Self::Encoded(headers) => Form::Encoded(headers.iter()),
        })
    }
}

impl Default for HeadersRef<'_> {
    fn default() -> Self {
        Self::Slices(&[])
    }
}

impl<'a> From<&'a [Header]> for HeadersRef<'a> {
    fn from(headers: &'a [Header]) -> Self {
        Self::Owned(headers)
    }
}

impl<'a> From<&'a [(&'a [u8], Option<&'a [u8]>)]> for HeadersRef<'a> {
    fn from(headers: &'a [(&'a [u8], Option<&'a [u8]>)]) -> Self {
        Self::Slices(headers)
    }
}

impl<'a> From<HeadersView<'a>> for HeadersRef<'a> {
    fn from(headers: HeadersView<'a>) -> Self {
        Self::Encoded(headers)
    }
}

impl<'a> IntoIterator for HeadersRef<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    type IntoIter = HeadersRefIter<'a>;

    fn into_iter(self) -> HeadersRefIter<'a> {
        self.iter()
    }
}

/// Iterator over [`HeadersRef`].
#[derive(Debug, Clone)]
pub struct HeadersRefIter<'a>(Form<'a>);

#[derive(Debug, Clone)]
enum Form<'a> {
    Owned(std::slice::Iter<'a, Header>),
    Slices(std::slice::Iter<'a, (&'a [u8], Option<&'a [u8]>)>),
    Encoded(HeadersIter<'a>),
}

impl<'a> Iterator for HeadersRefIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Form::Owned(headers) => headers.next().map(|header| (&header.name[..], header.value.as_deref())),
            Form::Slices(headers) => headers.next().copied(),
            Form::Encoded(headers) => headers.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Form::Owned(headers) => headers.size_hint(),
            Form::Slices(headers) => headers.size_hint(),
            Form::Encoded(headers) => headers.size_hint(),
        }
    }
}

/// A varint length or count takes five bytes at most.
const LENGTH_BYTES: usize = 5;

/// Length, attributes, two deltas (the time's takes ten), three lengths and counts.
const RECORD_OVERHEAD: usize = 5 * LENGTH_BYTES + 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_alike_in_every_form() {
        let owned = [Header::new("a", "1"), Header::null("b")];
        let slices = [(&b"a"[..], Some(&b"1"[..])), (&b"b"[..], None)];
        let encoded = [2, b'a', 2, b'1', 2, b'b', 1];
        let view = HeadersView::take(2, &mut &encoded[..]).unwrap();
        let forms = [HeadersRef::from(&owned[..]), HeadersRef::from(&slices[..]), HeadersRef::from(view)];
        for form in forms {
            assert_eq!(form.iter().collect::<Vec<_>>(), slices, "{form:?}");
            assert_eq!(form.iter().size_hint(), (2, Some(2)));
        }
    }
}
