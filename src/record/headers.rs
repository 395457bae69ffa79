//! A record's headers as they lie in its batch.

use std::fmt;
use std::iter::FusedIterator;

use bytes::Bytes;

use super::varint;

/// A record's headers, still encoded: `count` times name and value, each a zigzag varint length and bytes,
/// length -1 for a null value, as record batch v2 has them.
///
/// The reader that made it has walked it once, so iterating cannot fail.
#[derive(Clone, Copy, Default)]
pub struct HeadersView<'a> {
    count: usize,
    encoded: &'a [u8],
}

impl<'a> HeadersView<'a> {
    /// A view over `count` headers at the front of `input`, which then begins behind them.
    ///
    /// `None` when they are not whole, a name is null, or the count cannot be.
    #[inline]
    pub(crate) fn take(count: usize, input: &mut &'a [u8]) -> Option<Self> {
        let encoded = *input;
        for _ in 0..count {
            varint::take_bytes(input)??;
            varint::take_bytes(input)?;
        }
        let encoded = &encoded[..encoded.len() - input.len()];
        Some(Self { count, encoded })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes they take, encoded, without their count.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.encoded.len()
    }

    /// The headers as they are encoded, without their count.
    #[cfg(feature = "harbor")]
    pub(crate) fn encoded(&self) -> &'a [u8] {
        self.encoded
    }

    /// Name and value of each, in order.
    pub fn iter(&self) -> HeadersIter<'a> {
        HeadersIter { left: self.count, encoded: self.encoded }
    }

    /// The last value under this name: `None` when absent, `Some(None)` when null.
    pub fn last(&self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        self.iter().filter(|(n, _)| *n == name).last().map(|(_, value)| value)
    }
}

impl fmt::Debug for HeadersView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|(n, v)| (Bytes::copy_from_slice(n), v.map(Bytes::copy_from_slice))))
            .finish()
    }
}

impl<'a> IntoIterator for HeadersView<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    type IntoIter = HeadersIter<'a>;
    fn into_iter(self) -> HeadersIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &HeadersView<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    type IntoIter = HeadersIter<'a>;
    fn into_iter(self) -> HeadersIter<'a> {
        self.iter()
    }
}

/// Iterator over [`HeadersView`].
#[derive(Debug, Clone)]
pub struct HeadersIter<'a> {
    left: usize,
    encoded: &'a [u8],
}

impl<'a> Iterator for HeadersIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = varint::take_bytes(&mut self.encoded)??;
        let value = varint::take_bytes(&mut self.encoded)?;
        Some((name, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for HeadersIter<'_> {}

impl FusedIterator for HeadersIter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three headers: `a: 1`, `a` null, and an empty value under a name that is not UTF-8.
    const THREE: &[u8] = &[2, b'a', 2, b'1', 2, b'a', 1, 4, 0xff, 0xfe, 0];

    #[test]
    fn repeats_nulls_empties_and_foreign_names_survive_in_order() {
        let mut input = [THREE, b"rest"].concat();
        let mut input = &input.as_mut_slice()[..];
        let headers = HeadersView::take(3, &mut input).unwrap();
        assert_eq!(input, b"rest");
        assert_eq!(headers.len(), 3);
        let all: Vec<_> = headers.iter().collect();
        assert_eq!(all, [(&b"a"[..], Some(&b"1"[..])), (&b"a"[..], None), (&[0xff, 0xfe][..], Some(&b""[..]))]);
        assert_eq!(headers.last(b"a"), Some(None));
        assert_eq!(headers.last(b"b"), None);
        assert_eq!(headers.last(&[0xff, 0xfe]), Some(Some(&b""[..])));
    }

    #[test]
    fn a_null_name_a_cut_header_or_a_count_that_lies_is_refused() {
        for (count, bytes) in [(1, &[1, 1][..]), (1, &[2, b'a', 2]), (1, &[2]), (4, THREE), (usize::MAX, THREE)] {
            assert!(HeadersView::take(count, &mut &bytes[..]).is_none(), "{count} {bytes:?}");
        }
    }
}
