//! What members of a classic group tell each other: the subscription with which each joins, the assignment that the leader
//! sends to each (protocol type `consumer`). The broker carries both unread.
//!
//! ```text
//! subscription  version | topics | user data | owned partitions (1) | generation (2) | rack (3)
//! assignment    version | topics with their partitions | user data
//! ```
//!
//! A version only adds fields at the end, and a reader takes what it knows: newer versions are read as the newest known.
//! Reading is lenient where clients in the field are careless: a message may end before any field after the topics
//! (platformatic's client writes version 1 without owned partitions), and an assignment may be empty.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::record::{Topic, TopicPartition};

/// With what a member joins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscription {
    /// The topics that it wants to read, as it wrote them: repeats are possible.
    pub topics: Vec<Topic>,
    /// The assignor's own.
    pub user_data: Option<Bytes>,
    /// What it holds and would keep (KIP-429, version 1). Absent where the member did not say.
    pub owned_partitions: Option<Vec<TopicPartition>>,
    /// The generation in which it came to hold them (KIP-792, version 2).
    pub generation: Option<i32>,
    /// Where it runs (KIP-881, version 3).
    pub rack: Option<String>,
}

impl Subscription {
    /// The newest version, Kafka 3.5's.
    pub const NEWEST_VERSION: i16 = 3;

    /// Writes what `version` has a place for.
    ///
    /// # Errors
    ///
    /// When a name is longer than 32,767 bytes, or anything longer than its count can say.
    pub fn encode(&self, version: i16) -> Result<Bytes, MembershipError> {
        let mut out = BytesMut::new();
        out.put_i16(version);
        put_count(&mut out, self.topics.len())?;
        for topic in &self.topics {
            put_text(&mut out, topic)?;
        }
        put_user_data(&mut out, self.user_data.as_ref())?;
        if version >= 1 {
            put_partitions(&mut out, self.owned_partitions.as_deref().unwrap_or_default())?;
        }
        if version >= 2 {
            out.put_i32(self.generation.unwrap_or(NO_GENERATION));
        }
        if version >= 3 {
            match &self.rack {
                Some(rack) => put_text(&mut out, rack)?,
                None => out.put_i16(-1),
            }
        }
        Ok(out.freeze())
    }

    /// Reads what a member joined with.
    ///
    /// # Errors
    ///
    /// When a length or a count cannot be, or a name is not UTF-8.
    pub fn decode(bytes: &Bytes) -> Result<Self, MembershipError> {
        let mut input = Input::new(bytes);
        let version = input.version()?;
        let mut subscription = Self::default();
        for _ in 0..input.count()? {
            subscription.topics.push(input.topic()?);
        }
        if !input.is_at_end() {
            subscription.user_data = input.user_data()?;
        }
        if version >= 1 && !input.is_at_end() {
            subscription.owned_partitions = Some(input.partitions()?);
        }
        if version >= 2 && !input.is_at_end() {
            subscription.generation = Some(input.i32()?).filter(|generation| *generation >= 0);
        }
        if version >= 3 && !input.is_at_end() {
            // librdkafka writes an empty rack where it has none.
            subscription.rack = input.nullable_text(str::to_owned)?.filter(|rack| !rack.is_empty());
        }
        Ok(subscription)
    }
}

/// What the leader gives to a member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assignment {
    /// The partitions that it is to read.
    pub partitions: Vec<TopicPartition>,
    /// The assignor's own.
    pub user_data: Option<Bytes>,
}

impl Assignment {
    /// The newest version. All versions look the same.
    pub const NEWEST_VERSION: i16 = 3;

    /// Writes the assignment.
    ///
    /// # Errors
    ///
    /// As [`Subscription::encode`].
    pub fn encode(&self, version: i16) -> Result<Bytes, MembershipError> {
        let mut out = BytesMut::new();
        out.put_i16(version);
        put_partitions(&mut out, &self.partitions)?;
        put_user_data(&mut out, self.user_data.as_ref())?;
        Ok(out.freeze())
    }

    /// Reads what the leader sent. Nothing at all is an assignment of nothing: so brokers answer a member that a leader
    /// left out.
    ///
    /// # Errors
    ///
    /// As [`Subscription::decode`].
    pub fn decode(bytes: &Bytes) -> Result<Self, MembershipError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut input = Input::new(bytes);
        input.version()?;
        let partitions = input.partitions()?;
        let user_data = if input.is_at_end() { None } else { input.user_data()? };
        Ok(Self { partitions, user_data })
    }
}

/// Membership data that cannot be read, or cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// A length or a count reaches beyond the end.
    #[error("membership data: {wanted} bytes are needed at byte {position} and {left} are left")]
    TooShort {
        /// Where, from the start.
        position: usize,
        /// How many bytes would be needed.
        wanted: usize,
        /// How many there are.
        left: usize,
    },
    /// A length, count or version below zero, or null where there is none.
    #[error("membership data: {value} at byte {position} cannot be")]
    Negative {
        /// Where, from the start.
        position: usize,
        /// The number as it came.
        value: i32,
    },
    /// A name that is not UTF-8.
    #[error("membership data: the name at byte {position} is not UTF-8")]
    NotUtf8 {
        /// Where, from the start.
        position: usize,
    },
    /// Something to be written is longer than the wire can say.
    #[error("membership data: {length} bytes or elements are more than can be written")]
    TooLong {
        /// Its length.
        length: usize,
    },
}

/// A reader that knows where it is.
pub(super) struct Input {
    bytes: Bytes,
    length: usize,
}

impl Input {
    pub(super) fn new(bytes: &Bytes) -> Self {
        Self { bytes: bytes.clone(), length: bytes.len() }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    fn position(&self) -> usize {
        self.length - self.bytes.len()
    }

    fn need(&self, wanted: usize) -> Result<(), MembershipError> {
        let left = self.bytes.len();
        if left < wanted {
            return Err(MembershipError::TooShort { position: self.position(), wanted, left });
        }
        Ok(())
    }

    fn i16(&mut self) -> Result<i16, MembershipError> {
        self.need(2)?;
        Ok(self.bytes.get_i16())
    }

    pub(super) fn i32(&mut self) -> Result<i32, MembershipError> {
        self.need(4)?;
        Ok(self.bytes.get_i32())
    }

    fn version(&mut self) -> Result<i16, MembershipError> {
        let version = self.i16()?;
        if version < 0 {
            return Err(MembershipError::Negative { position: 0, value: version.into() });
        }
        Ok(version)
    }

    /// A count of elements that take two bytes each at least, checked before anything is read or reserved for them.
    fn count(&mut self) -> Result<usize, MembershipError> {
        let position = self.position();
        let value = self.i32()?;
        let count = usize::try_from(value).map_err(|_| MembershipError::Negative { position, value })?;
        self.need(count.saturating_mul(2))?;
        Ok(count)
    }

    fn nullable_text<T>(&mut self, make: impl FnOnce(&str) -> T) -> Result<Option<T>, MembershipError> {
        let position = self.position();
        let value = self.i16()?;
        if value == -1 {
            return Ok(None);
        }
        let length = usize::try_from(value).map_err(|_| MembershipError::Negative { position, value: value.into() })?;
        self.need(length)?;
        let text = self.bytes.split_to(length);
        match std::str::from_utf8(&text) {
            Ok(text) => Ok(Some(make(text))),
            Err(_) => Err(MembershipError::NotUtf8 { position }),
        }
    }

    fn topic(&mut self) -> Result<Topic, MembershipError> {
        let position = self.position();
        self.nullable_text(|name| Topic::from(name))?.ok_or(MembershipError::Negative { position, value: -1 })
    }

    fn user_data(&mut self) -> Result<Option<Bytes>, MembershipError> {
        let position = self.position();
        let value = self.i32()?;
        if value == -1 {
            return Ok(None);
        }
        let length = usize::try_from(value).map_err(|_| MembershipError::Negative { position, value })?;
        self.need(length)?;
        Ok(Some(self.bytes.split_to(length)))
    }

    pub(super) fn partitions(&mut self) -> Result<Vec<TopicPartition>, MembershipError> {
        let mut partitions = Vec::new();
        for _ in 0..self.count()? {
            let topic = self.topic()?;
            for _ in 0..self.count()? {
                partitions.push(TopicPartition::new(topic.clone(), self.i32()?));
            }
        }
        Ok(partitions)
    }
}

fn put_count(out: &mut BytesMut, count: usize) -> Result<(), MembershipError> {
    out.put_i32(i32::try_from(count).map_err(|_| MembershipError::TooLong { length: count })?);
    Ok(())
}

fn put_text(out: &mut BytesMut, text: &str) -> Result<(), MembershipError> {
    out.put_i16(i16::try_from(text.len()).map_err(|_| MembershipError::TooLong { length: text.len() })?);
    out.put_slice(text.as_bytes());
    Ok(())
}

fn put_user_data(out: &mut BytesMut, user_data: Option<&Bytes>) -> Result<(), MembershipError> {
    match user_data {
        Some(bytes) => {
            put_count(out, bytes.len())?;
            out.put_slice(bytes);
        }
        None => out.put_i32(-1),
    }
    Ok(())
}

/// Each topic once, by name, with its partitions in order.
pub(super) fn put_partitions(out: &mut BytesMut, partitions: &[TopicPartition]) -> Result<(), MembershipError> {
    let mut sorted: Vec<&TopicPartition> = partitions.iter().collect();
    sorted.sort_unstable();
    let topics = || sorted.chunk_by(|a, b| a.topic == b.topic);
    put_count(out, topics().count())?;
    for topic in topics() {
        put_text(out, &topic[0].topic)?;
        put_count(out, topic.len())?;
        for partition in topic {
            out.put_i32(partition.partition);
        }
    }
    Ok(())
}

const NO_GENERATION: i32 = -1;

#[cfg(test)]
mod tests;
