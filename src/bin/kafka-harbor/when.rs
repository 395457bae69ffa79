//! Instants from the command line, and for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kafka_harbor::harbor::{Period, instant};
use kafka_harbor::record::Timestamp;
use serde_json::{Value, json};

use crate::output::Output;

/// Milliseconds since 1970, an instant as [`instant::parse`] reads it, or how long ago: `2h`.
pub(crate) fn when(text: &str) -> Result<Timestamp, String> {
    if let Ok(millis) = text.parse::<i64>() {
        return if millis >= 0 { Ok(Timestamp(millis)) } else { Err("before 1970".to_owned()) };
    }
    if let Ok(ago) = text.parse::<Period>() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let then = now.saturating_sub(ago.as_duration());
        return Ok(Timestamp(i64::try_from(then.as_millis()).unwrap_or(i64::MAX)));
    }
    instant::parse(text).filter(|time| time.0 >= 0).ok_or_else(|| {
        "no instant from 1970 on: milliseconds since 1970, 2026-12-01T09:30:00Z, or how long ago, such as 2h".to_owned()
    })
}

/// As text in UTC for people, in milliseconds for programs.
pub(crate) fn shown(time: Option<Timestamp>, output: Output) -> Value {
    match time {
        None => Value::Null,
        Some(time) if output.is_json() => json!(time.0),
        Some(time) => json!(instant::write(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_in_three_ways_and_nonsense_is_refused() {
        let noon = Timestamp(1_796_117_400_500);
        assert_eq!(when("1796117400500"), Ok(noon));
        assert_eq!(when("2026-12-01T09:30:00.5Z"), Ok(noon));
        assert_eq!(shown(Some(noon), Output::new(false)), json!("2026-12-01T09:30:00.500Z"));
        assert!(when("2h").is_ok_and(|time| time.0 > 1_700_000_000_000));
        for wrong in ["", "-1", "now", "2026-02-29T00:00:00Z", "2026-12-01T09:30:00", "1969-12-31T00:00:00Z"] {
            assert!(when(wrong).is_err(), "{wrong}");
        }
    }
}
