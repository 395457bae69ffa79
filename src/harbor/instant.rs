//! Instants as text, as they stand in headers: `YYYY-MM-DDTHH:mm:ss.sssZ`.
//!
//! Written always in that one form. Read in the forms of RFC 3339 and the date-only forms of ISO 8601 that JavaScript's
//! `Date` takes as UTC (`2026`, `2026-09`, `2026-09-05`). What else `Date` takes (`Sep 5 2026`, a local time without
//! an offset) means different instants on different machines and is refused.

use crate::record::Timestamp;

/// The instant as text. What lies outside JavaScript's range of dates is written as the nearest date within.
pub fn write(instant: Timestamp) -> String {
    let millis = instant.0.clamp(-MAX_DATE_MILLIS, MAX_DATE_MILLIS);
    let (days, of_day) = (millis.div_euclid(DAY), millis.rem_euclid(DAY));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second, milli) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60, of_day % 1_000);
    let year = match year {
        0..=9_999 => format!("{year:04}"),
        _ => format!("{}{:06}", if year < 0 { '-' } else { '+' }, year.abs()),
    };
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The instant that the text names. Parts of a millisecond are dropped.
pub fn parse(text: &str) -> Option<Timestamp> {
    let mut rest = Cursor(text.as_bytes());
    let year = rest.year()?;
    let mut month_day = (1, 1);
    let mut time = 0;
    if rest.take(b'-') {
        month_day.0 = rest.number(2)?;
        if rest.take(b'-') {
            month_day.1 = rest.number(2)?;
            if !rest.0.is_empty() {
                time = rest.time()?;
            }
        }
    }
    let (month, day) = month_day;
    if !rest.0.is_empty() || !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    let millis = days_from_civil(year, month, day) * DAY + time;
    (millis.abs() <= MAX_DATE_MILLIS).then_some(Timestamp(millis))
}

/// What of the text is still to be read.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    /// Exactly `digits` ASCII digits.
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        number.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
    }

    /// Four digits, or a sign and six; `-000000` is no year.
    fn year(&mut self) -> Option<i64> {
        if self.take(b'+') {
            self.number(6)
        } else if self.take(b'-') {
            self.number(6).filter(|year| *year != 0).map(|year| -year)
        } else {
            self.number(4)
        }
    }

    /// `T`, time and offset: milliseconds to add to the day's beginning in UTC.
    fn time(&mut self) -> Option<i64> {
        if !(self.take(b'T') || self.take(b't') || self.take(b' ')) {
            return None;
        }
        let hour = self.number(2)?;
        let minute = self.take(b':').then(|| self.number(2))??;
        let (mut second, mut milli) = (0, 0);
        if self.take(b':') {
            second = self.number(2)?;
            if self.take(b'.') {
                milli = self.fraction()?;
            }
        }
        let offset = self.offset()?;
        (hour <= 23 && minute <= 59 && second <= 59)
            .then_some(hour * 3_600_000 + minute * 60_000 + second * 1_000 + milli - offset)
    }

    /// One digit or more after the point, as milliseconds.
    fn fraction(&mut self) -> Option<i64> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (fraction, rest) = self.0.split_at(digits);
        self.0 = rest;
        let digit = |place: usize| fraction.get(place).map_or(0, |byte| i64::from(byte - b'0'));
        (digits > 0).then(|| digit(0) * 100 + digit(1) * 10 + digit(2))
    }

    /// `Z`, or hours and minutes east of UTC, as milliseconds.
    fn offset(&mut self) -> Option<i64> {
        if self.take(b'Z') || self.take(b'z') {
            return Some(0);
        }
        let sign = if self.take(b'+') {
            1
        } else if self.take(b'-') {
            -1
        } else {
            return None;
        };
        let hours = self.number(2)?;
        let minutes = self.take(b':').then(|| self.number(2))??;
        (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600_000 + minutes * 60_000))
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date of the proleptic Gregorian calendar. The year is counted from March, so that the
/// leap day is its last, within eras of 400 years (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * DAYS_OF_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - EPOCH_DAY
}

/// Year, month and day: the inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAY;
    let (era, day_of_era) = (days.div_euclid(DAYS_OF_ERA), days.rem_euclid(DAYS_OF_ERA));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

const DAY: i64 = 86_400_000;
const DAYS_OF_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAY: i64 = 719_468;
/// JavaScript's dates end 100 million days on either side of the epoch (ECMA-262, "Time Values and Time Range").
const MAX_DATE_MILLIS: i64 = 8_640_000_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn instants_are_written_in_one_form() {
        // Right-hand sides by JavaScript's `toISOString`.
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (1_796_045_222_502, "2026-11-30T13:27:02.502Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "+010000-01-01T00:00:00.000Z"),
            (-62_167_219_200_000, "0000-01-01T00:00:00.000Z"),
            (-62_167_219_200_001, "-000001-12-31T23:59:59.999Z"),
            (i64::MAX, "+275760-09-13T00:00:00.000Z"),
            (i64::MIN, "-271821-04-20T00:00:00.000Z"),
        ];
        for (millis, text) in table {
            assert_eq!(write(Timestamp(millis)), text);
        }
    }

    #[test]
    fn rfc_3339_and_utc_dates_are_read() {
        let table = [
            ("2026-11-30T13:27:02.502Z", 1_796_045_222_502),
            ("2026-11-30t13:27:02.5029999z", 1_796_045_222_502),
            ("2026-11-30 13:27:02Z", 1_796_045_222_000),
            ("2026-11-30T13:27Z", 1_796_045_220_000),
            ("2026-11-30T14:57:02.502+01:30", 1_796_045_222_502),
            ("2026-11-30T13:27:02.5-00:00", 1_796_045_222_500),
            ("2020-01-01", 1_577_836_800_000),
            ("2020-01", 1_577_836_800_000),
            ("2020", 1_577_836_800_000),
            ("+010000-01-01T00:00:00.000Z", 253_402_300_800_000),
        ];
        for (text, millis) in table {
            assert_eq!(parse(text), Some(Timestamp(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_one_instant_is_refused() {
        for text in [
            "",
            " ",
            "yesterday",
            "1",
            "1796045222502",
            "Sep 5 2026",
            "2026-09-05 10:00",
            "2026-09-05T10:00:00",
            "2026-13-01",
            "2026-00-01",
            "2026-02-29",
            "2026-04-31",
            "2026-09-05T24:00:00Z",
            "2026-09-05T10:60:00Z",
            "2026-09-05T10:00:60Z",
            "2026-09-05T10:00:00.Z",
            "2026-09-05T10:00:00+1:00",
            "2026-09-05T10:00:00+24:00",
            " 2026-09-05",
            "2026-09-05 ",
            "2026-9-5",
            "-000000-01-01",
            "+275761-01-01",
            "２０２６",
            "2026-09-05T",
            "2026-09-05T10Z",
            "2026-",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(millis in -MAX_DATE_MILLIS..=MAX_DATE_MILLIS) {
            prop_assert_eq!(parse(&write(Timestamp(millis))), Some(Timestamp(millis)));
        }

        #[test]
        fn days_follow_each_other(day in -100_000_000_i64..100_000_000) {
            let (year, month, date) = civil_from_days(day);
            prop_assert_eq!(days_from_civil(year, month, date), day);
            let (next_year, next_month, next_date) = civil_from_days(day + 1);
            let follows = (next_year, next_month, next_date) == (year, month, date + 1)
                || date == days_in_month(year, month)
                    && (next_month, next_date) == (month % 12 + 1, 1)
                    && next_year == year + i64::from(month == 12);
            prop_assert!(follows);
        }

        #[test]
        fn any_text_is_an_answer_and_no_panic(text in "\\PC{0,32}") {
            let _ = parse(&text);
        }
    }
}
