//! Topics by what their names look like.

use std::fmt;
use std::sync::Arc;

use super::OffsetReset;

/// Which topics are read beside those that are named. By itself none.
#[derive(Debug, Clone, Default)]
pub(super) struct Patterns {
    wanted: Vec<(Pattern, OffsetReset)>,
    excluded: Vec<Pattern>,
    /// What is wrong, by option.
    mistakes: Vec<(&'static str, String)>,
}

/// A test of names. Whole names: a part that matches is not enough.
#[derive(Clone)]
struct Pattern {
    text: String,
    matches: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl Patterns {
    /// Whether no topic is found by its name.
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Where to begin with this topic, if it is read.
    pub(super) fn reset_of(&self, topic: &str) -> Option<OffsetReset> {
        let (_, reset) = self.wanted.iter().find(|(pattern, _)| (pattern.matches)(topic))?;
        (!self.excluded.iter().any(|pattern| (pattern.matches)(topic))).then_some(*reset)
    }

    /// What cannot be used: the option, and why.
    pub(super) fn mistakes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let idle =
            (self.wanted.is_empty() && !self.excluded.is_empty()).then_some((EXCLUDE, "there is no topic_pattern"));
        self.mistakes.iter().map(|(option, why)| (*option, why.as_str())).chain(idle)
    }
}

#[cfg(feature = "regex")]
impl Patterns {
    /// Reads topics with such names.
    pub(super) fn want(&mut self, pattern: String, reset: OffsetReset) {
        match Pattern::new(pattern) {
            Ok(pattern) => self.wanted.push((pattern, reset)),
            Err(why) => self.mistakes.push((WANT, why)),
        }
    }

    /// Reads no topics with such names.
    pub(super) fn exclude(&mut self, pattern: String) {
        match Pattern::new(pattern) {
            Ok(pattern) => self.excluded.push(pattern),
            Err(why) => self.mistakes.push((EXCLUDE, why)),
        }
    }
}

#[cfg(feature = "regex")]
impl Pattern {
    fn new(text: String) -> Result<Self, String> {
        let regex = regex_lite::Regex::new(&format!("^(?:{text})$"));
        let regex = regex.map_err(|error| format!("{text:?} is no regular expression: {error}"))?;
        Ok(Self { text, matches: Arc::new(move |name| regex.is_match(name)) })
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.text)
    }
}

#[cfg(feature = "regex")]
const WANT: &str = "topic_pattern";
const EXCLUDE: &str = "exclude_pattern";

#[cfg(all(test, feature = "regex"))]
mod tests {
    use super::*;

    fn patterns(wanted: &[&str], excluded: &[&str]) -> Patterns {
        let mut patterns = Patterns::default();
        for pattern in wanted {
            patterns.want((*pattern).to_owned(), OffsetReset::Earliest);
        }
        for pattern in excluded {
            patterns.exclude((*pattern).to_owned());
        }
        patterns
    }

    #[test]
    fn whole_names_match_and_what_is_excluded_is_not_read() {
        let patterns = patterns(&["orders-.*", "a|b"], &[r".*-retry-\d+", ".*-dlq"]);
        let read = |name| patterns.reset_of(name).is_some();
        assert!(["orders-eu", "orders-", "a", "b"].into_iter().all(read));
        assert!(!["orders", "my-orders-eu", "ab", "orders-eu-retry-1", "orders-eu-dlq", ""].into_iter().any(read));
        assert!(read("orders-eu-retry-"), "a part that matches excludes nothing");
    }

    #[test]
    fn of_two_patterns_that_match_the_first_says_where_to_begin() {
        let mut patterns = patterns(&["orders-.*"], &[]);
        patterns.want(".*".to_owned(), OffsetReset::Latest);
        assert_eq!(patterns.reset_of("orders-eu"), Some(OffsetReset::Earliest));
        assert_eq!(patterns.reset_of("bills"), Some(OffsetReset::Latest));
    }

    #[test]
    fn mistakes_are_kept_for_all_of_them_to_be_told() {
        let patterns = patterns(&["(", "ok"], &["["]);
        assert_eq!(patterns.mistakes().map(|(option, _)| option).collect::<Vec<_>>(), [WANT, EXCLUDE]);
        assert_eq!(self::patterns(&[], &["x"]).mistakes().next(), Some((EXCLUDE, "there is no topic_pattern")));
    }
}
