//! What members say to the `sticky` assignor, of any client: what they had.
//!
//! ```text
//! user data  topics with their partitions | generation (from the second form on)
//! ```
//!
//! The two forms bear no number; the first just ends earlier (`StickyAssignor` of the Java client).

use bytes::{BufMut, Bytes, BytesMut};

use super::subscription::{Input, MembershipError, put_partitions};
use crate::record::TopicPartition;

/// What a member had.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StickyUserData {
    pub(crate) partitions: Vec<TopicPartition>,
    /// In which it had them.
    pub(crate) generation: Option<i32>,
}

impl StickyUserData {
    /// The second form. Of more than can be written nothing is said, as of a new member.
    pub(crate) fn encode(partitions: &[TopicPartition], generation: i32) -> Bytes {
        let mut out = BytesMut::new();
        if put_partitions(&mut out, partitions).is_err() {
            out.clear();
            out.put_i32(0);
        }
        out.put_i32(generation);
        out.freeze()
    }

    /// Reads either form. None at all is of a new member.
    ///
    /// # Errors
    /// When a length or a count cannot be, or a name is not UTF-8.
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, MembershipError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut input = Input::new(bytes);
        let partitions = input.partitions()?;
        let generation =
            if input.is_at_end() { None } else { Some(input.i32()?).filter(|generation| *generation >= 0) };
        Ok(Self { partitions, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `StickyAssignor.serializeTopicPartitionAssignment`.
    const JAVAS: &[u8] = b"\0\0\0\x02\0\x01a\0\0\0\x02\0\0\0\0\0\0\0\x02\0\x01b\0\0\0\x01\0\0\0\x01\0\0\0\x07";

    #[test]
    fn javas_user_data_is_written_and_read() {
        let partitions = ["a", "a", "b"].into_iter().zip([0, 2, 1]);
        let partitions: Vec<_> = partitions.map(|(topic, partition)| TopicPartition::new(topic, partition)).collect();
        assert_eq!(StickyUserData::encode(&partitions, 7), JAVAS);
        let read = StickyUserData::decode(&Bytes::from_static(JAVAS)).unwrap();
        assert_eq!(read, StickyUserData { partitions: partitions.clone(), generation: Some(7) });
        let first_form = StickyUserData::decode(&Bytes::from_static(&JAVAS[..JAVAS.len() - 4])).unwrap();
        assert_eq!(first_form, StickyUserData { partitions, generation: None });
    }

    #[test]
    fn what_is_cut_or_lies_is_an_error() {
        for end in 1..JAVAS.len() {
            let cut = Bytes::from_static(&JAVAS[..end]);
            assert!(StickyUserData::decode(&cut).is_err() || end == JAVAS.len() - 4, "{end}");
        }
        assert!(StickyUserData::decode(&Bytes::from_static(b"\x7f\xff\xff\xff")).is_err());
        assert_eq!(StickyUserData::decode(&Bytes::new()).unwrap(), StickyUserData::default());
    }
}
