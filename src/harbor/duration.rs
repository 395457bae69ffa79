//! Lengths of time as options take them: a [`Duration`], or text such as `30s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::harbor::text;

/// A length of time within the harbor's bounds: from nothing to [`Period::MAX`].
///
/// As text it is an amount and a unit: `250ms`, `1.5s`, `10m`, `2h`, `1d`. White space may stand around and between
/// the two; the result is rounded to whole milliseconds, half up. There is no sign, no exponent, no bare number and no
/// compound (`1m30s`). With serde it is read from such text or from a number of milliseconds, which is not rounded.
///
/// ```
/// use kafka_harbor::harbor::Period;
///
/// let period: Period = "1.5s".parse()?;
/// assert_eq!(period.as_duration().as_millis(), 1_500);
/// # Ok::<(), kafka_harbor::harbor::PeriodError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Period(Duration);

impl Period {
    /// The longest: 2,147,483,647 ms, a little under 24.9 days.
    pub const MAX: Self = Self(Duration::from_millis(MAX_MILLIS));

    /// A period of this many milliseconds, which need not be whole.
    ///
    /// # Errors
    /// When the number is negative, not finite, or above [`Period::MAX`].
    pub fn from_millis(millis: f64) -> Result<Self, PeriodError> {
        // `NaN` fails both comparisons' complements, so it is caught here too.
        if !(millis >= 0.0 && millis.is_finite()) {
            return Err(PeriodError::NotANumber(millis));
        }
        if millis > MAX_MILLIS as f64 {
            return Err(PeriodError::TooLong(format!("{millis} ms")));
        }
        let whole = Duration::from_millis(millis.trunc() as u64);
        Ok(Self(whole + Duration::from_nanos((millis.fract() * 1e6).round() as u64)))
    }

    /// The same as a [`Duration`].
    pub const fn as_duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(text: &str) -> Result<Self, PeriodError> {
        let refused = || PeriodError::Malformed(text.to_owned());
        let trimmed = text::trim(text);
        let amount_end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refused)?;
        let (amount, unit) = trimmed.split_at(amount_end);
        let unit = unit.trim_start_matches(text::is_white_space);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
        let (whole, fraction) = amount.split_once('.').unwrap_or((amount, "0"));
        if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
            return Err(refused());
        }
        let millis = (amount.parse::<f64>().map_err(|_| refused())? * factor).round();
        if millis > MAX_MILLIS as f64 {
            return Err(PeriodError::TooLong(trimmed.to_owned()));
        }
        Ok(Self(Duration::from_millis(millis as u64)))
    }
}

impl TryFrom<&str> for Period {
    type Error = PeriodError;
    fn try_from(text: &str) -> Result<Self, PeriodError> {
        text.parse()
    }
}

impl TryFrom<String> for Period {
    type Error = PeriodError;
    fn try_from(text: String) -> Result<Self, PeriodError> {
        text.parse()
    }
}

impl TryFrom<Duration> for Period {
    type Error = PeriodError;
    fn try_from(duration: Duration) -> Result<Self, PeriodError> {
        if duration > Self::MAX.0 { Err(PeriodError::TooLong(format!("{duration:?}"))) } else { Ok(Self(duration)) }
    }
}

impl From<Period> for Duration {
    fn from(period: Period) -> Self {
        period.0
    }
}

impl fmt::Display for Period {
    /// The shortest text with a whole amount, `90s` rather than `1.5m`; parts of a millisecond keep their decimals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match whole_millis(self.0) {
            Some(millis) => {
                let fits = |factor: f64| millis != 0 && millis.is_multiple_of(factor as u64);
                let (unit, factor) = UNITS.iter().rev().find(|(_, factor)| fits(*factor)).unwrap_or(&UNITS[0]);
                write!(f, "{}{unit}", millis / *factor as u64)
            }
            None => write!(f, "{}ms", self.0.as_secs_f64() * 1e3),
        }
    }
}

impl fmt::Debug for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Period {
    /// As text; as a number of milliseconds where it is not whole, which text would round.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match whole_millis(self.0) {
            Some(_) => serializer.collect_str(self),
            None => serializer.serialize_f64(self.0.as_secs_f64() * 1e3),
        }
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PeriodVisitor;

        impl Visitor<'_> for PeriodVisitor {
            type Value = Period;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of milliseconds, or text such as `30s`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Period, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, millis: f64) -> Result<Period, E> {
                Period::from_millis(millis).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, millis: u64) -> Result<Period, E> {
                Period::from_millis(millis as f64).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, millis: i64) -> Result<Period, E> {
                Period::from_millis(millis as f64).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(PeriodVisitor)
    }
}

/// What an option that is a length of time accepts: a [`Duration`], a [`Period`], or text.
///
/// A mistake is not reported where it is made: the builder gathers it and reports all of them by name.
pub trait IntoPeriod {
    /// The period that is meant.
    ///
    /// # Errors
    /// When it is none.
    fn into_period(self) -> Result<Period, PeriodError>;
}

impl IntoPeriod for Period {
    fn into_period(self) -> Result<Period, PeriodError> {
        Ok(self)
    }
}

impl IntoPeriod for Duration {
    fn into_period(self) -> Result<Period, PeriodError> {
        self.try_into()
    }
}

impl IntoPeriod for &str {
    fn into_period(self) -> Result<Period, PeriodError> {
        self.parse()
    }
}

impl IntoPeriod for String {
    fn into_period(self) -> Result<Period, PeriodError> {
        self.parse()
    }
}

impl IntoPeriod for &String {
    fn into_period(self) -> Result<Period, PeriodError> {
        self.parse()
    }
}

/// Why something is no [`Period`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PeriodError {
    /// The text is not an amount and a unit.
    #[error("`{0}` is no length of time: an amount and one of ms, s, m, h, d, such as `30s`")]
    Malformed(String),
    /// The number is negative or not finite.
    #[error("{0} is no number of milliseconds")]
    NotANumber(f64),
    /// It is longer than [`Period::MAX`].
    #[error("{0} is too long: at most {MAX_MILLIS} ms, a little under 24.9 days")]
    TooLong(String),
}

/// The milliseconds, if there are no parts of one.
fn whole_millis(duration: Duration) -> Option<u64> {
    // At most `MAX_MILLIS`, so the cast keeps everything.
    duration.subsec_nanos().is_multiple_of(1_000_000).then_some(duration.as_millis() as u64)
}

/// The longest delay of a JavaScript timer, which bounds the Node package that shares our ladders.
const MAX_MILLIS: u64 = 2_147_483_647;

const UNITS: [(&str, f64); 5] = [("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6), ("d", 8.64e7)];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(text: &str) -> Option<u128> {
        text.parse::<Period>().ok().map(|period| period.as_duration().as_millis())
    }

    #[test]
    fn text_is_an_amount_and_a_unit() {
        let table: [(&str, u128); 15] = [
            ("0ms", 0),
            ("250ms", 250),
            ("5s", 5_000),
            ("1.5s", 1_500),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0.5ms", 1),
            ("0.4ms", 0),
            ("0.49999999999999994ms", 0),
            ("007s", 7_000),
            ("  5 s  ", 5_000),
            ("5\u{a0}\u{3000}s\u{2028}", 5_000),
            ("\u{feff}5s\u{feff}", 5_000),
            ("24.8d", 2_142_720_000),
        ];
        for (text, expected) in table {
            assert_eq!(millis(text), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            " ",
            "5",
            "-5s",
            "+5s",
            ".5s",
            "5.s",
            "1e3ms",
            "1m30s",
            "5S",
            "5 sec",
            "5w",
            "s",
            "ms",
            "5..5s",
            "5.5.5s",
            "5,5s",
            "NaN",
            "Infinity",
            "٥s",
            "5\u{85}s",
            "\u{200b}5s",
            "\u{1f}5s",
            "5s5",
            "5 s s",
            "0x5s",
        ] {
            assert_eq!(millis(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_ceiling_is_a_javascript_timers() {
        assert_eq!(millis("2147483647ms"), Some(2_147_483_647));
        assert_eq!(millis("2147483647.4ms"), Some(2_147_483_647));
        for text in ["2147483648ms", "2147483647.5ms", "24.9d", &format!("{}d", "9".repeat(400))] {
            assert!(matches!(text.parse::<Period>(), Err(PeriodError::TooLong(_))), "{text}");
        }
        assert!(Period::try_from(Duration::from_millis(2_147_483_648)).is_err());
        assert_eq!(Period::try_from(Period::MAX.as_duration()), Ok(Period::MAX));
    }

    #[test]
    fn numbers_are_milliseconds_and_not_rounded() {
        assert_eq!(Period::from_millis(1.5).unwrap().as_duration(), Duration::from_micros(1_500));
        assert_eq!(serde_json::from_str::<Period>("1.5").unwrap().as_duration(), Duration::from_micros(1_500));
        assert_eq!(serde_json::from_str::<Period>("5000").unwrap(), "5s".parse().unwrap());
        for refused in [-1.0, -0.5, f64::NAN, f64::INFINITY, 2_147_483_648.0] {
            assert!(Period::from_millis(refused).is_err(), "{refused}");
        }
        for refused in ["-1", "null", "true", "[]", "\"5\"", "2147483648"] {
            assert!(serde_json::from_str::<Period>(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn options_take_durations_and_text() {
        fn taken(period: impl IntoPeriod) -> Option<Duration> {
            period.into_period().ok().map(Period::as_duration)
        }
        let five = Some(Duration::from_secs(5));
        assert_eq!([taken("5s"), taken(String::from("5s")), taken(Duration::from_secs(5))], [five; 3]);
        assert_eq!(taken("five"), None);
    }

    #[test]
    fn text_uses_the_largest_unit_that_keeps_the_amount_whole() {
        for text in ["0ms", "250ms", "90s", "10m", "25h", "2d"] {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn serde_gives_back_what_it_took(nanos in 0_u64..2_147_483_647_000_000) {
            let period = Period::try_from(Duration::from_nanos(nanos)).unwrap();
            let back: Period = serde_json::from_str(&serde_json::to_string(&period).unwrap()).unwrap();
            // A number of milliseconds is a double: near the ceiling it keeps a little less than the nanosecond.
            prop_assert!(back.as_duration().abs_diff(period.as_duration()) <= Duration::from_nanos(500));
            if nanos.is_multiple_of(1_000_000) {
                prop_assert_eq!(back, period);
            }
        }

        #[test]
        fn any_text_is_an_answer_and_no_panic(text in "\\PC{0,12}") {
            let _ = text.parse::<Period>();
        }
    }
}
