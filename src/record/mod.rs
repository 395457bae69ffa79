//! Records and the words that place them: topic, partition, offset, timestamp.
//!
//! Three shapes of a record exist. [`Record`] owns its parts and is what is sent; [`RecordRef`] is its borrowed form, for
//! sending without owning. [`RecordView`] borrows from the batch it came in and costs no allocation; its headers are
//! decoded as they are looked at.

mod borrowed;
mod builders;
mod headers;
mod new_topic;
pub(crate) mod varint;

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

pub use borrowed::{HeadersRef, HeadersRefIter, RecordRef};
pub(crate) use builders::{with_owned_parts, with_place};
pub use headers::{HeadersIter, HeadersView};
pub use new_topic::NewTopic;

/// The name of a topic. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(Arc<str>);

impl Topic {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Topic {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Topic {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Topic {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Topic {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for Topic {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<&Topic> for Topic {
    fn from(name: &Topic) -> Self {
        name.clone()
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<str> for Topic {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for Topic {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

/// One partition of one topic.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Topic,
    /// The partition's number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// The partition `partition` of `topic`.
    pub fn new(topic: impl Into<Topic>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Debug for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A record's place in its partition.
///
/// A name says whose offset it is: `fetch_offset`, `committed_offset` (the next one to read), `log_start_offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Offset(pub i64);

impl Offset {
    /// The place after this one: what is committed once the record here is done.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How often a partition's leader has changed, as the broker counts it (KIP-320).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaderEpoch(pub i32);

/// A broker's node id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub i32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Milliseconds since the Unix epoch, as brokers keep them. May be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The wall clock's time now.
    pub fn now() -> Self {
        let millis = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |elapsed| i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX));
        Self(millis)
    }
}

/// One header: a name, and a value that may be null. Neither needs to be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Header {
    /// The name, as bytes. May repeat within a record.
    pub name: Bytes,
    /// The value; null, empty and absent are three different things.
    pub value: Option<Bytes>,
}

impl Header {
    /// A header with a value.
    pub fn new(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { name: name.into(), value: Some(value.into()) }
    }

    /// A header whose value is null.
    pub fn null(name: impl Into<Bytes>) -> Self {
        Self { name: name.into(), value: None }
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.name, self.value)
    }
}

/// A record to be sent. Owns its parts; cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it goes.
    pub topic: Topic,
    /// The partition, where the caller chose one; else the key decides, or the client.
    pub partition: Option<i32>,
    /// The key. Null and empty differ.
    pub key: Option<Bytes>,
    /// The value. Null is a tombstone; null and empty differ.
    pub value: Option<Bytes>,
    /// Headers in order, repeats kept.
    pub headers: Vec<Header>,
    /// Creation time; the time of sending when absent.
    pub timestamp: Option<Timestamp>,
}

impl Record {
    /// A record without key and headers.
    pub fn new(topic: impl Into<Topic>, value: impl Into<Bytes>) -> Self {
        Self { value: Some(value.into()), ..Self::tombstone(topic) }
    }

    /// A record whose value is null: on a compacted topic it deletes its key.
    pub fn tombstone(topic: impl Into<Topic>) -> Self {
        Self { topic: topic.into(), partition: None, key: None, value: None, headers: Vec::new(), timestamp: None }
    }

    with_owned_parts!();
    with_place!();
}

/// A record as it was read, borrowed from its batch.
#[derive(Debug, Clone, Copy)]
pub struct RecordView<'a> {
    /// Its place in the partition.
    pub offset: Offset,
    /// Creation time, or the broker's append time where the topic keeps that.
    pub timestamp: Timestamp,
    /// The key, or null.
    pub key: Option<&'a [u8]>,
    /// The value, or null for a tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers in order, repeats kept.
    pub headers: HeadersView<'a>,
    /// How often the broker delivered it before; 0 where it keeps no count.
    pub delivery_count: u32,
}
