//! Instants from the command line, and for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kafka_harbor::harbor::Period;
use kafka_harbor::record::Timestamp;
use serde_json::{Value, json};

use crate::output::Output;

/// Milliseconds since 1970, `2026-12-01T09:30:00Z` with or without a fraction, or how long ago: `2h`.
pub(crate) fn when(text: &str) -> Result<Timestamp, String> {
    if let Ok(millis) = text.parse::<i64>() {
        return if millis >= 0 { Ok(Timestamp(millis)) } else { Err("before 1970".to_owned()) };
    }
    if let Ok(ago) = text.parse::<Period>() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let then = now.saturating_sub(ago.as_duration());
        return Ok(Timestamp(i64::try_from(then.as_millis()).unwrap_or(i64::MAX)));
    }
    instant(text).ok_or_else(|| {
        "no instant: milliseconds since 1970, 2026-12-01T09:30:00Z, or how long ago, such as 2h".to_owned()
    })
}

/// As text in UTC for people, in milliseconds for programs.
pub(crate) fn shown(time: Option<Timestamp>, output: Output) -> Value {
    match time {
        None => Value::Null,
        Some(time) if output.is_json() => json!(time.0),
        Some(time) => json!(text(time)),
    }
}

pub(crate) fn text(time: Timestamp) -> String {
    let (days, of_day) = (time.0.div_euclid(DAY), time.0.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let (hour, minute, second, milli) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

fn instant(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u32>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.splitn(3, ':').map(|part| part.parse::<u32>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit()) && !fraction.is_empty();
    let within = (1970..=9999).contains(&year) && hour < 24 && minute < 60 && second < 60 && digits;
    let days = days_of(i64::from(year), i64::from(month), i64::from(day));
    // A day that its month does not have is counted into the next.
    if !within || civil(days) != (i64::from(year), i64::from(month), i64::from(day)) {
        return None;
    }
    let millis: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let seconds = i64::from(hour) * 3_600 + i64::from(minute) * 60 + i64::from(second);
    Some(Timestamp(days * DAY + seconds * 1_000 + millis))
}

/// Days since 1970, in the Gregorian calendar counted from a year that begins in March.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// In milliseconds.
const DAY: i64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_as_they_are_written_and_nonsense_is_refused() {
        for millis in [0, 951_782_400_000, 1_709_164_800_000, 1_796_119_200_123, 253_402_300_799_999] {
            assert_eq!(when(&text(Timestamp(millis))), Ok(Timestamp(millis)), "{}", text(Timestamp(millis)));
            assert_eq!(when(&millis.to_string()), Ok(Timestamp(millis)));
        }
        assert_eq!(text(Timestamp(1_709_164_800_000)), "2024-02-29T00:00:00.000Z");
        assert_eq!(when("2026-12-01T09:30:00.5Z"), Ok(Timestamp(1_796_117_400_500)));
        assert!(when("2h").is_ok_and(|time| time.0 > 1_700_000_000_000));
        for wrong in [
            "",
            "-1",
            "now",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-12-01",
            "2026-12-01T24:00:00Z",
            "2026-12-01T09:30:00.Z",
            "2026-12-01T09:30:00",
            "1969-12-31T00:00:00Z",
            "2026-00-01T00:00:00Z",
        ] {
            assert!(when(wrong).is_err(), "{wrong}");
        }
    }
}
