//! What a group remembers of a partition beside its position: the note of each commit.
//!
//! ```text
//!   kafka-harbor/1 partitions=6 unnamed-from=1042
//! ```
//!
//! A first word that names the version, then fields in any order; those that are not known are passed over. Whatever else
//! is beside a commit, of a member of another kind or by an operator's hand, is no memo: it says nothing, and the next
//! commit of ours replaces it.

use std::fmt;

use crate::record::Offset;

/// What is kept beside a commit. At most 80 bytes as text, of the 4 KiB that a broker keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Memo {
    /// How many partitions the topic had when the group began to read it. One with a higher number came later, so that
    /// all of it was written after that.
    pub(crate) partitions: Option<i32>,
    /// Of a ladder's partition: records before it that name no group are another's. Absent once it is passed.
    pub(crate) unnamed_from: Option<Offset>,
}

impl Memo {
    /// What a note says; nothing where it is absent, too long, or not one of these.
    pub(crate) fn read(note: Option<&str>) -> Self {
        let mut memo = Self::default();
        let Some(note) = note.filter(|note| note.len() <= LONGEST) else { return memo };
        let mut words = note.split(' ');
        if words.next() != Some(VERSION) {
            return memo;
        }
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            match name {
                PARTITIONS => memo.partitions = value.parse().ok().filter(|partitions| *partitions >= 0),
                UNNAMED_FROM => memo.unnamed_from = value.parse().ok().filter(|from| *from >= 0).map(Offset),
                _ => {}
            }
        }
        memo
    }

    /// Whether all that a note says stays true when the group is moved to another place: it speaks of the group, not of records.
    pub(crate) fn can_move(note: Option<&str>) -> bool {
        let Some(note) = note.filter(|note| !note.is_empty()) else { return true };
        let mut words = note.split(' ');
        let names = [PARTITIONS, UNNAMED_FROM];
        words.next() == Some(VERSION)
            && words.all(|word| word.split_once('=').is_some_and(|(name, _)| names.contains(&name)))
    }

    /// The note to commit; none where there is nothing to remember.
    pub(crate) fn note(self) -> Option<String> {
        (self != Self::default()).then(|| self.to_string())
    }
}

impl fmt::Display for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSION)?;
        if let Some(partitions) = self.partitions {
            write!(f, " {PARTITIONS}={partitions}")?;
        }
        if let Some(Offset(from)) = self.unnamed_from {
            write!(f, " {UNNAMED_FROM}={from}")?;
        }
        Ok(())
    }
}

const VERSION: &str = "kafka-harbor/1";
const PARTITIONS: &str = "partitions";
const UNNAMED_FROM: &str = "unnamed-from";
/// Longer notes are not looked at: fields may be added, and none of them is long.
const LONGEST: usize = 512;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_note_that_may_speak_of_records_is_not_moved() {
        for (note, can) in [
            (None, true),
            (Some(""), true),
            (Some("kafka-harbor/1 partitions=6 unnamed-from=3"), true),
            (Some("kafka-harbor/1 partitions=6 done=4-7"), false),
            (Some("kafka-harbor-redrive/1 done=4-7"), false),
            (Some("kafka-harbor/2 partitions=6"), false),
        ] {
            assert_eq!(Memo::can_move(note), can, "{note:?}");
        }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let largest = Memo { partitions: Some(i32::MAX), unnamed_from: Some(Offset(i64::MAX)) };
        assert!(largest.to_string().len() <= 80);
        let empty = Memo::default();
        let memos = [
            (largest, Some("kafka-harbor/1 partitions=2147483647 unnamed-from=9223372036854775807")),
            (Memo { partitions: Some(0), ..empty }, Some("kafka-harbor/1 partitions=0")),
            (Memo { unnamed_from: Some(Offset(3)), ..empty }, Some("kafka-harbor/1 unnamed-from=3")),
            (empty, None),
        ];
        for (memo, note) in memos {
            assert_eq!(memo.note().as_deref(), note);
            assert_eq!(Memo::read(note), memo);
        }
    }

    #[test]
    fn what_another_wrote_says_nothing() {
        let long = format!("kafka-harbor/1 partitions=1{}", " ".repeat(LONGEST));
        let foreign = [
            "",
            "kafka-harbor/2 partitions=1",
            "kafka-harbor/1partitions=1",
            "kafka-harbor/1 partitions=-1",
            "kafka-harbor/1 partitions=",
            "kafka-harbor/1 partitions=1.5",
            "kafka-harbor/1 unnamed-from=-2",
            "partitions=1",
            "{\"partitions\":1}",
            &long,
        ];
        for note in foreign {
            assert_eq!(Memo::read(Some(note)), Memo::default(), "{note:?}");
        }
        let newer = "kafka-harbor/1 since=2026-11-30 unnamed-from=7 x = partitions=4";
        assert_eq!(Memo::read(Some(newer)), Memo { partitions: Some(4), unnamed_from: Some(Offset(7)) });
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(note in ".{0,64}", tail in "( [a-z-]{1,12}=[0-9-]{0,22}){0,4}") {
            Memo::read(Some(&note));
            Memo::read(Some(&format!("{VERSION}{tail}")));
        }
    }
}
