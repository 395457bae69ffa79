//! Correlation ids: what a record carries from its first send to its last hop.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use crate::harbor::{guard, text};

/// Where a record's correlation id comes from if it has none: the application's callback, else a UUID v4.
#[derive(Clone, Default)]
pub(crate) struct CorrelationIds(Option<Callback>);

type Callback = Arc<dyn Fn() -> Option<String> + Send + Sync>;

impl CorrelationIds {
    /// Ids from `callback`; where it has none to give, or a blank one, a UUID v4.
    pub(crate) fn from_fn(callback: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(callback)))
    }

    /// The id of one record.
    pub(crate) fn mint(&self) -> Bytes {
        let given = self.0.as_ref().and_then(|callback| {
            // An id is no reason to lose a record: a callback that panics has none to give.
            guard::call_or("the correlation id callback", None, || callback())
        });
        given.filter(|id| !text::is_blank(id)).unwrap_or_else(uuid_v4).into()
    }
}

impl fmt::Debug for CorrelationIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "from a callback" } else { "UUID v4" })
    }
}

/// A random UUID (RFC 9562, version 4), lower case.
///
/// The operating system seeds the process once; after that an id is the keyed hash of a counter, which costs no
/// system call. That makes ids unique, not secrets.
pub(crate) fn uuid_v4() -> String {
    static KEYS: LazyLock<(RandomState, RandomState)> = LazyLock::new(|| (RandomState::new(), RandomState::new()));
    static COUNTER: AtomicU64 = AtomicU64::new(0);

    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let high = KEYS.0.hash_one(count) & !0xf000 | 0x4000;
    let low = KEYS.1.hash_one(count) & !(0b11 << 62) | 0b10 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_uuids_of_version_4_and_all_different() {
        let ids: HashSet<_> = (0..10_000).map(|_| uuid_v4()).collect();
        assert_eq!(ids.len(), 10_000);
        for id in ids {
            assert_eq!(id.len(), 36);
            for (at, c) in id.chars().enumerate() {
                match at {
                    8 | 13 | 18 | 23 => assert_eq!(c, '-'),
                    14 => assert_eq!(c, '4'),
                    19 => assert!(matches!(c, '8' | '9' | 'a' | 'b')),
                    _ => assert!(matches!(c, '0'..='9' | 'a'..='f')),
                }
            }
        }
    }

    #[test]
    fn a_callback_that_has_none_to_give_leaves_it_to_us() {
        for given in [None, Some(""), Some(" \u{feff}")] {
            let ids = CorrelationIds::from_fn(move || given.map(str::to_owned));
            assert_eq!(ids.mint().len(), 36);
        }
        assert_eq!(CorrelationIds::from_fn(|| panic!("no task")).mint().len(), 36);
        assert_eq!(CorrelationIds::from_fn(|| Some(" a ".into())).mint(), " a ");
    }
}
