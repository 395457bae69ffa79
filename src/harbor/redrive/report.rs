//! What a redrive did, and how it fails.

use crate::harbor::error::HarborError;
use crate::record::{Timestamp, Topic};

/// What a redrive did, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedriveReport {
    /// The dead-letter topic.
    pub from: Topic,
    /// Letters that were brought back, or, by a [dry run](super::Redrive::dry_run), would be.
    pub reprocessed: u64,
    /// Letters that the filter did not want, or that it could not read.
    pub skipped: u64,
    /// Letters that were brought back [too often](super::Redrive::max_redrives). They stay among the dead letters, and the run
    /// passed them.
    pub exhausted: u64,
    /// Letters that do not say where they were first, or came from the topic itself. Only a dry run counts them: a run ends at
    /// the first.
    pub without_target: u64,
    /// Why the letters that were brought back had failed, the most frequent reason first.
    pub reasons: Vec<RedriveReason>,
    /// Letters whose reasons are not among [`reasons`](Self::reasons), which holds 50.
    pub other_reasons: u64,
    /// Where letters were brought to, by name; of more than 50 topics the first 50 that were met.
    pub targets: Vec<Topic>,
    /// When it began. What it wrote says in its `redriven-at` header a time from here to [`ended`](Self::ended).
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// Whether it only looked.
    pub dry_run: bool,
    /// Whether it was [told to end](super::Redrive::cancel), or its harbor shut down, before it was through.
    pub cancelled: bool,
}

/// Why letters had failed, as their `last-error` headers tell.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedriveReason {
    /// The error's name (`ValidationError`), where the text begins with one; else how the text begins, with `#` for its
    /// numbers; empty where there is no text.
    pub reason: String,
    /// How many letters.
    pub letters: u64,
}

impl RedriveReport {
    pub(super) fn of(from: &Topic, began: Timestamp) -> Self {
        Self {
            from: from.clone(),
            reprocessed: 0,
            skipped: 0,
            exhausted: 0,
            without_target: 0,
            reasons: Vec::new(),
            other_reasons: 0,
            targets: Vec::new(),
            began,
            ended: began,
            dry_run: false,
            cancelled: false,
        }
    }

    /// One more letter that had failed for this.
    pub(super) fn count_reason(&mut self, reason: String) {
        if let Some(known) = self.reasons.iter_mut().find(|known| known.reason == reason) {
            known.letters += 1;
        } else if self.reasons.len() < MOST_REASONS {
            self.reasons.push(RedriveReason { reason, letters: 1 });
        } else {
            self.other_reasons += 1;
        }
    }

    /// A letter was brought there.
    pub(super) fn add_target(&mut self, topic: &Topic) {
        if self.targets.len() < MOST_TARGETS && !self.targets.contains(topic) {
            self.targets.push(topic.clone());
        }
    }

    /// The report of a run that is over.
    pub(super) fn at_the_end(mut self, ended: Timestamp) -> Self {
        self.ended = ended;
        self.targets.sort();
        self.reasons.sort_by(|a, b| b.letters.cmp(&a.letters).then_with(|| a.reason.cmp(&b.reason)));
        self
    }
}

/// What letters are counted by: the name of the error, or how its text begins.
pub(super) fn reason_of(last_error: &str) -> String {
    let text = last_error.trim();
    let named = text.split_once(':').map(|(name, _)| name).filter(|name| is_name(name));
    named.map_or_else(|| beginning(text), str::to_owned)
}

/// Whether it looks like an error's name: `ValidationError`, `io::Error` up to its colons, `java.lang.Exception`.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && text.len() <= LONGEST_REASON && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._$-".contains(&byte))
}

/// How a text begins, with one sign for each number, so that texts that differ in an id are one reason.
fn beginning(text: &str) -> String {
    let mut reason = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if reason.len() >= LONGEST_REASON || matches!(c, '\n' | '\r') {
            break;
        }
        if c.is_ascii_digit() {
            while chars.next_if(char::is_ascii_digit).is_some() {}
            reason.push('#');
        } else {
            reason.push(c);
        }
    }
    reason
}

/// A redrive failed.
#[derive(Debug, thiserror::Error)]
#[error("{} brought back, {} skipped, then: {source}", self.report.reprocessed, self.report.skipped)]
#[non_exhaustive]
pub struct RedriveError {
    /// What was done before.
    pub report: RedriveReport,
    /// Why it ended.
    pub source: HarborError,
}

impl From<RedriveError> for HarborError {
    fn from(error: RedriveError) -> Self {
        error.source
    }
}

/// Reasons that are counted apart.
const MOST_REASONS: usize = 50;

/// Topics that are told: letters may name any number of them.
const MOST_TARGETS: usize = 50;

/// A reason's length in bytes, but for the character at its end.
const LONGEST_REASON: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_the_errors_name_or_how_its_text_begins() {
        let table = [
            ("ValidationError: bad sku", "ValidationError"),
            ("java.lang.IllegalStateException: no", "java.lang.IllegalStateException"),
            ("order 4711 of 2026 not found: gone", "order # of # not found: gone"),
            ("connection refused\nat line 7", "connection refused"),
            ("  ", ""),
            (": no name", ": no name"),
        ];
        for (text, reason) in table {
            assert_eq!(reason_of(text), reason);
        }
        assert!(reason_of(&"é".repeat(1_000)).len() < LONGEST_REASON + 4);
        assert!(reason_of(&format!("{}: x", "N".repeat(1_000))).len() < LONGEST_REASON + 4);
    }

    #[test]
    fn reasons_are_bounded_and_the_most_frequent_comes_first() {
        let mut report = RedriveReport::of(&"orders-dlq".into(), Timestamp(0));
        for n in 0..60 {
            report.count_reason(format!("E{n}"));
        }
        report.count_reason("E7".to_owned());
        let report = report.at_the_end(Timestamp(1));
        assert_eq!((report.reasons.len(), report.other_reasons), (50, 10));
        assert_eq!(report.reasons[0], RedriveReason { reason: "E7".to_owned(), letters: 2 });
        assert_eq!(report.reasons[1].reason, "E0");
    }
}
