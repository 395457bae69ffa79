//! Event lines on stdout.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

/// Prints an event with these fields, an object.
pub(crate) fn emit(event: &str, fields: Value) {
    let now = now();
    LAST.store(now, Ordering::Relaxed);
    let mut line = Map::new();
    line.insert("event".to_owned(), event.into());
    line.insert("at".to_owned(), now.into());
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    let mut text = Value::Object(line).to_string();
    text.push('\n');
    if std::io::stdout().lock().write_all(text.as_bytes()).is_err() {
        // Whoever started this is gone.
        std::process::exit(1);
    }
}

/// How long ago the last event was.
pub(crate) fn idle() -> Duration {
    Duration::from_millis(now().saturating_sub(LAST.load(Ordering::Relaxed)))
}

/// Null, text when the bytes are UTF-8, else `{"base64": ...}`.
pub(crate) fn show(bytes: Option<&[u8]>) -> Value {
    let Some(bytes) = bytes else { return Value::Null };
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => serde_json::json!({ "base64": base64(bytes) }),
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis().try_into().unwrap_or(u64::MAX))
}

static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648, section 10.
    #[test]
    fn base64_is_padded() {
        let table = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (bytes, text) in table {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(show(Some(&[0xff, 0xfe])), serde_json::json!({ "base64": "//4=" }));
        assert_eq!((show(None), show(Some(b""))), (Value::Null, "".into()));
    }
}
