//! Regular expressions that requests hold: Kafka reads them by RE2, and so does this, but for classes of Unicode.

use regex_lite::{Regex, RegexBuilder};

/// An expression for whole names.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    text: String,
    whole: Regex,
}

impl Expression {
    /// Reads it.
    ///
    /// # Errors
    /// When it is none, or one that would take too much memory.
    pub(super) fn new(text: &str) -> Result<Self, regex_lite::Error> {
        // Alone first: `a)(?:b` is one only within the parentheses.
        Regex::new(text)?;
        let whole = format!("^(?:{text})$");
        let whole = RegexBuilder::new(&whole).size_limit(MAX_BYTES).build()?;
        Ok(Self { text: text.to_owned(), whole })
    }

    /// Whether it describes all of the name.
    pub(super) fn fits(&self, name: &str) -> bool {
        self.whole.is_match(name)
    }

    /// As it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A bound on memory.
const MAX_BYTES: usize = 1 << 20;

#[test]
fn an_expression_is_for_whole_names() {
    let fits = |text: &str, name: &str| Expression::new(text).map(|it| it.fits(name)).ok();
    assert_eq!(fits("or.*", "orders"), Some(true));
    assert_eq!(fits("or", "orders"), Some(false));
    assert_eq!(fits("a|orders", "orders"), Some(true), "the whole name for each side");
    assert_eq!(fits("a)(?:b", "ab"), None);
    assert_eq!(fits("(", ""), None);
}
