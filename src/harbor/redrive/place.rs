//! How far a group is on a partition, where runs over ranges have left letters behind that are not done.

use crate::record::Offset;

/// What is done of a partition: everything before `next`, and the ranges above it, which the commit's note keeps.
///
/// ```text
///    done          left      done       left      done
///   ───────────┤next├────┤[100, 200)├────────┤[300, 310)├─────►      note: kafka-harbor-redrive/1 done=100-200,300-310
/// ```
///
/// A member that knows no such notes, as one of the Node package, goes on at `next` and brings the ranges back again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    next: Offset,
    /// Half-open, in order, apart from one another and from `next`.
    above: Vec<(Offset, Offset)>,
}

impl Place {
    /// Where a group stands that goes on at `position`, with the note that it had committed.
    pub(super) fn new(position: Offset, note: Option<&str>) -> Self {
        let mut place = Self { next: position, above: Vec::new() };
        for (from, to) in note.and_then(read_note).unwrap_or_default() {
            place.done(from, to);
        }
        place
    }

    /// The next offset to read.
    pub(super) fn next(&self) -> Offset {
        self.next
    }

    /// Whether the letter at this offset was done before.
    pub(super) fn has(&self, offset: Offset) -> bool {
        offset < self.next || self.above.iter().any(|(from, to)| (*from..*to).contains(&offset))
    }

    /// Whether a note could say that what begins here is done, too, and [`MOST_AT_ONCE`] others that are not in it yet.
    pub(super) fn takes(&self, from: Offset) -> bool {
        from <= self.next
            || self.above.len() < MOST_ABOVE
            || self.above.iter().any(|(at, to)| (*at..=*to).contains(&from))
    }

    /// Takes note that everything from `from` up to, and without, `to` is done.
    pub(super) fn done(&mut self, from: Offset, to: Offset) {
        if to <= from {
            return;
        }
        let (mut from, mut to) = (from, to);
        self.above.retain(|&(other_from, other_to)| {
            let apart = other_to < from || other_from > to;
            if !apart {
                from = from.min(other_from);
                to = to.max(other_to);
            }
            apart
        });
        let at = self.above.partition_point(|(other, _)| *other < from);
        self.above.insert(at, (from, to));
        while let Some(&(from, to)) = self.above.first()
            && from <= self.next
        {
            self.next = self.next.max(to);
            self.above.remove(0);
        }
    }

    /// The note to commit beside [`next`](Self::next).
    pub(super) fn note(&self) -> Option<String> {
        if self.above.is_empty() {
            return None;
        }
        let ranges: Vec<_> = self.above.iter().map(|(from, to)| format!("{from}-{to}")).collect();
        Some(format!("{NOTE}{}", ranges.join(",")))
    }
}

/// The ranges of a note; of one that is not wholly as we write it, none.
fn read_note(note: &str) -> Option<Vec<(Offset, Offset)>> {
    let mut ranges = Vec::new();
    for range in note.strip_prefix(NOTE)?.split(',').take(MOST_ABOVE + MOST_AT_ONCE) {
        let (from, to) = range.split_once('-')?;
        ranges.push((Offset(from.parse().ok()?), Offset(to.parse().ok()?)));
    }
    Some(ranges)
}

const NOTE: &str = "kafka-harbor-redrive/1 done=";

/// Ranges that a note has room for. With two numbers of 19 digits each, these and those that may still be added take 2,880 of
/// the 4,096 bytes that a broker allows.
const MOST_ABOVE: usize = 64;

/// Ranges that are added before it is asked again whether there is room.
pub(super) const MOST_AT_ONCE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn done(place: &mut Place, from: i64, to: i64) {
        place.done(Offset(from), Offset(to));
    }

    #[test]
    fn ranges_join_and_are_passed_when_what_lies_before_them_is_done() {
        let mut place = Place::new(Offset(10), None);
        done(&mut place, 20, 30);
        done(&mut place, 40, 50);
        assert_eq!(
            (place.next(), place.note().as_deref()),
            (Offset(10), Some("kafka-harbor-redrive/1 done=20-30,40-50"))
        );
        assert!(place.has(Offset(9)) && place.has(Offset(29)) && !place.has(Offset(30)) && !place.has(Offset(10)));
        done(&mut place, 30, 40);
        assert_eq!(place.note().as_deref(), Some("kafka-harbor-redrive/1 done=20-50"));
        done(&mut place, 10, 20);
        assert_eq!((place.next(), place.note()), (Offset(50), None));
        done(&mut place, 0, 60);
        assert_eq!(place.next(), Offset(60));
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_one_of_others_says_nothing() {
        let mut place = Place::new(Offset(0), None);
        for at in 0..MOST_ABOVE as i64 {
            assert!(place.takes(Offset(10 * at + 5)));
            done(&mut place, 10 * at + 5, 10 * at + 7);
        }
        assert!(!place.takes(Offset(1_000)) && place.takes(Offset(7)) && place.takes(Offset(0)));
        assert_eq!(Place::new(Offset(0), place.note().as_deref()), place);
        // What lies below the position by now is done in any case.
        assert_eq!(Place::new(Offset(1_000), place.note().as_deref()), Place::new(Offset(1_000), None));
        for note in
            ["", "kafka-harbor/1 partitions=6", "kafka-harbor-redrive/1 done=", "kafka-harbor-redrive/1 done=5-x"]
        {
            assert_eq!(Place::new(Offset(3), Some(note)), Place::new(Offset(3), None), "{note}");
        }
        let wide = (0..MOST_ABOVE + MOST_AT_ONCE)
            .map(|_| "9223372036854775806-9223372036854775807")
            .collect::<Vec<_>>()
            .join(",");
        assert!(NOTE.len() + wide.len() < 4_096);
    }
}
