//! The shape of messages: walks a body along a table of its fields and checks every length and count against the bytes
//! that remain, before anything is decoded.
//!
//! ```text
//!   bytes ──▶ walk along the table ──▶ sound? ──▶ kafka-protocol decodes
//!                    │
//!                    └── position, field and fault of the first thing that cannot be
//! ```
//!
//! The decoder of `kafka-protocol` reserves arrays by the counts it reads: nine bytes of a Metadata answer ask it for
//! 412 GB and abort the process. What this walk lets pass has as many elements as it says, holds no null where the
//! decoder has no place for one, only valid UTF-8, and tagged fields of exactly their stated size.
//!
//! It also bounds what a sound message grows to: an element of a few bytes becomes a struct of a hundred and more. The
//! walk adds up what the decoder will reserve, and refuses a body that would take more than [`memory_limit`] allows.

#[cfg(any(test, fuzzing, feature = "testing"))]
mod requests;
mod responses;
#[cfg(any(test, fuzzing))]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::fmt;

use super::api::ApiKey;

/// Walks the body of a response; returns where its last field ends.
///
/// # Errors
///
/// At the first thing that cannot be, or when the table has no such message. Bytes after the last field are no error here.
pub(crate) fn check_response(api: ApiKey, version: i16, body: &[u8]) -> Result<usize, ShapeError> {
    Ok(walk(responses::RESPONSES, api, version, body)?.at)
}

/// Walks the body of a request; returns where its last field ends.
///
/// # Errors
///
/// As [`check_response`].
#[cfg(any(test, fuzzing, feature = "testing"))]
#[allow(dead_code, reason = "for what plays the broker's part")]
pub(crate) fn check_request(api: ApiKey, version: i16, body: &[u8]) -> Result<usize, ShapeError> {
    Ok(walk(requests::REQUESTS, api, version, body)?.at)
}

/// The throttle time that a response tells, where its shape is sound up to there.
pub(crate) fn throttle_time_ms(api: ApiKey, version: i16, body: &[u8]) -> Option<i32> {
    let message = find(responses::RESPONSES, api, version)?;
    let mut walk = Walk::new(body, version, version >= message.flexible);
    for field in message.body.fields.iter().filter(|field| field.tag < 0 && field.is_in(version)) {
        if field.name == "ThrottleTimeMs" {
            return walk.chunk().ok().map(i32::from_be_bytes);
        }
        walk.value(&field.kind, field.is_nullable(version)).ok()?;
    }
    None
}

/// The length of the tag section that `bytes` start with: what a header of a flexible version ends with.
pub(crate) fn tags_length(bytes: &[u8]) -> Result<usize, ShapeError> {
    let mut walk = Walk::new(bytes, 0, true);
    walk.tags(&Struct { memory: 0, fields: &[] })?;
    Ok(walk.at)
}

/// The most that decoding a body of this length may reserve, in bytes.
///
/// Real answers grow three to twelve times (names of topics and of partitions' replicas are short); a hostile one could
/// grow two hundred times. Small bodies may grow by [`MAX_EXPANSION`], large ones less.
fn memory_limit(body_bytes: usize) -> usize {
    let small = body_bytes.saturating_mul(MAX_EXPANSION).saturating_add(SMALL_BODY_MEMORY);
    small.min(LARGE_BODY_MEMORY).max(body_bytes.saturating_mul(LARGE_BODY_EXPANSION))
}

fn walk<'a>(table: &[Message], api: ApiKey, version: i16, body: &'a [u8]) -> Result<Walk<'a>, ShapeError> {
    let message = find(table, api, version).ok_or_else(|| ShapeError::new(0, Fault::NotInTable))?;
    let mut walk = Walk::new(body, version, version >= message.flexible);
    walk.structure(message.body)?;
    Ok(walk)
}

fn find(table: &[Message], api: ApiKey, version: i16) -> Option<&Message> {
    let at = table.binary_search_by_key(&api.0, |message| message.api).ok()?;
    (table[at].min..=table[at].max).contains(&version).then_some(&table[at])
}

/// One message of the table.
#[derive(Debug)]
struct Message {
    api: i16,
    min: i16,
    max: i16,
    /// The first flexible version (KIP-482): compact lengths and tag sections. [`NEWEST`] for none.
    flexible: i16,
    body: &'static Struct,
}

/// Fields in the order of the wire.
#[derive(Debug)]
struct Struct {
    /// What the decoded form takes, without what its arrays hold; never too little.
    memory: usize,
    fields: &'static [Field],
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    since: i16,
    until: i16,
    null_since: i16,
    null_until: i16,
    /// Its number, where it stands in the tag section; negative where it does not.
    tag: i32,
    kind: Kind,
}

impl Field {
    const fn new(name: &'static str, since: i16, until: i16, kind: Kind) -> Self {
        Self { name, since, until, null_since: 0, null_until: -1, tag: -1, kind }
    }

    const fn null(mut self, since: i16, until: i16) -> Self {
        self.null_since = since;
        self.null_until = until;
        self
    }

    const fn tag(mut self, tag: i32) -> Self {
        self.tag = tag;
        self
    }

    fn is_in(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }

    fn is_nullable(&self, version: i16) -> bool {
        self.null_since <= version && version <= self.null_until
    }
}

#[derive(Debug)]
enum Kind {
    /// So many bytes.
    Fixed(usize),
    /// A length, and UTF-8.
    Text,
    /// A length, and anything.
    Bytes,
    /// A struct in place.
    Nested(&'static Struct),
    /// A count, and so many elements.
    Array(&'static Kind),
}

/// A walk under way.
struct Walk<'a> {
    body: &'a [u8],
    at: usize,
    version: i16,
    flexible: bool,
    /// What the decoder will have reserved for what was walked.
    memory: usize,
    memory_limit: usize,
}

impl<'a> Walk<'a> {
    fn new(body: &'a [u8], version: i16, flexible: bool) -> Self {
        Self { body, at: 0, version, flexible, memory: 0, memory_limit: memory_limit(body.len()) }
    }

    // The recursion is as deep as the table nests, which no peer can change.
    fn structure(&mut self, structure: &'static Struct) -> Result<(), ShapeError> {
        for field in structure.fields {
            if field.tag < 0 && field.is_in(self.version) {
                self.value(&field.kind, field.is_nullable(self.version)).map_err(|error| error.within(field.name))?;
            }
        }
        if self.flexible { self.tags(structure) } else { Ok(()) }
    }

    fn value(&mut self, kind: &'static Kind, nullable: bool) -> Result<(), ShapeError> {
        match kind {
            Kind::Fixed(bytes) => self.skip(*bytes).map(drop),
            Kind::Text => {
                let start = self.at;
                let Some(length) = self.text_length(nullable)? else { return Ok(()) };
                let text = self.skip(length)?;
                std::str::from_utf8(text).map(drop).map_err(|_| ShapeError::new(start, Fault::NotUtf8))
            }
            Kind::Bytes => match self.length(nullable)? {
                Some(length) => self.skip(length).map(drop),
                None => Ok(()),
            },
            Kind::Nested(structure) if nullable => self.optional(structure),
            Kind::Nested(structure) => self.structure(structure),
            Kind::Array(element) => self.array(element, nullable),
        }
    }

    fn array(&mut self, element: &'static Kind, nullable: bool) -> Result<(), ShapeError> {
        let start = self.at;
        let Some(count) = self.length(nullable)? else { return Ok(()) };
        // No element is empty on the wire.
        if count > self.left() {
            return Err(ShapeError::new(start, Fault::TooFewBytes { wanted: count, left: self.left() }));
        }
        self.reserve(start, count, element.memory())?;
        if let Kind::Fixed(bytes) = element {
            return self.skip(count.saturating_mul(*bytes)).map(drop);
        }
        for index in 0..count {
            self.value(element, false).map_err(|error| error.at_index(index))?;
        }
        Ok(())
    }

    /// A struct behind a byte that says whether it is there.
    fn optional(&mut self, structure: &'static Struct) -> Result<(), ShapeError> {
        let start = self.at;
        match self.skip(1)? {
            [0xff] => Ok(()),
            [1] => self.structure(structure),
            other => Err(ShapeError::new(start, Fault::NotAPresence { byte: other[0] })),
        }
    }

    fn tags(&mut self, structure: &'static Struct) -> Result<(), ShapeError> {
        let mut tag_memory = FIRST_TAG_MEMORY;
        for _ in 0..self.varint()? {
            let start = self.at;
            let tag = self.varint()?;
            let size = self.varint()? as usize;
            let known = structure
                .fields
                .iter()
                .find(|field| u32::try_from(field.tag).is_ok_and(|known| known == tag) && field.is_in(self.version));
            let Some(field) = known else {
                self.skip(size).map_err(|error| error.within("tagged fields"))?;
                self.reserve(start, 1, tag_memory)?;
                tag_memory = NEXT_TAG_MEMORY;
                continue;
            };
            let value = self.at;
            self.value(&field.kind, field.is_nullable(self.version)).map_err(|error| error.within(field.name))?;
            // The decoder reads a tagged field that it knows by its kind and never looks at the size.
            let used = self.at - value;
            if used != size {
                return Err(ShapeError::new(value, Fault::TagSize { stated: size, used }).within(field.name));
            }
        }
        Ok(())
    }

    /// The length of a string: 16 bits, or compact.
    fn text_length(&mut self, nullable: bool) -> Result<Option<usize>, ShapeError> {
        if self.flexible {
            return self.length(nullable);
        }
        let start = self.at;
        let length = i16::from_be_bytes(self.chunk()?);
        checked_length(i32::from(length), nullable).map_err(|fault| ShapeError::new(start, fault))
    }

    /// The length of bytes or of an array: 32 bits, or compact (a varint of one more, 0 for null).
    fn length(&mut self, nullable: bool) -> Result<Option<usize>, ShapeError> {
        let start = self.at;
        if !self.flexible {
            let length = i32::from_be_bytes(self.chunk()?);
            return checked_length(length, nullable).map_err(|fault| ShapeError::new(start, fault));
        }
        match self.varint()? {
            0 if nullable => Ok(None),
            0 => Err(ShapeError::new(start, Fault::Null)),
            more => Ok(Some(more as usize - 1)),
        }
    }

    fn varint(&mut self) -> Result<u32, ShapeError> {
        let start = self.at;
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.chunk()?;
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ShapeError::new(start, Fault::VarintTooLong))
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], ShapeError> {
        match self.body[self.at..].first_chunk() {
            Some(chunk) => {
                self.at += N;
                Ok(*chunk)
            }
            None => Err(ShapeError::new(self.at, Fault::TooFewBytes { wanted: N, left: self.left() })),
        }
    }

    fn skip(&mut self, bytes: usize) -> Result<&'a [u8], ShapeError> {
        match self.body[self.at..].get(..bytes) {
            Some(skipped) => {
                self.at += bytes;
                Ok(skipped)
            }
            None => Err(ShapeError::new(self.at, Fault::TooFewBytes { wanted: bytes, left: self.left() })),
        }
    }

    fn left(&self) -> usize {
        self.body.len() - self.at
    }

    fn reserve(&mut self, position: usize, count: usize, each: usize) -> Result<(), ShapeError> {
        self.memory = self.memory.saturating_add(count.saturating_mul(each));
        if self.memory > self.memory_limit {
            let fault = Fault::Expands { memory_bytes: self.memory, limit: self.memory_limit };
            return Err(ShapeError::new(position, fault));
        }
        Ok(())
    }
}

impl Kind {
    /// What the decoder reserves for one element of this kind.
    fn memory(&self) -> usize {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Text | Self::Bytes => SLICE_MEMORY,
            Self::Nested(structure) => structure.memory,
            Self::Array(_) => VECTOR_MEMORY,
        }
    }
}

fn checked_length(length: i32, nullable: bool) -> Result<Option<usize>, Fault> {
    match usize::try_from(length) {
        Ok(length) => Ok(Some(length)),
        Err(_) if length < -1 => Err(Fault::NegativeLength { length }),
        Err(_) if nullable => Ok(None),
        Err(_) => Err(Fault::Null),
    }
}

/// Something in a message that cannot be: where, in which field, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeError {
    position: usize,
    /// From the inside out.
    path: Vec<PathStep>,
    fault: Fault,
}

impl ShapeError {
    fn new(position: usize, fault: Fault) -> Self {
        Self { position, path: Vec::new(), fault }
    }

    fn within(mut self, field: &'static str) -> Self {
        self.path.push(PathStep::Field(field));
        self
    }

    fn at_index(mut self, index: usize) -> Self {
        self.path.push(PathStep::Index(index));
        self
    }

    /// The byte at which it starts, from the start of the body.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The field by the names of Kafka's schema, such as `Topics[3].Partitions`; empty between fields.
    pub fn field(&self) -> String {
        let mut path = String::new();
        for step in self.path.iter().rev() {
            match step {
                PathStep::Index(index) => path.push_str(&format!("[{index}]")),
                PathStep::Field(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
            }
        }
        path
    }

    /// What is wrong there.
    pub fn fault(&self) -> Fault {
        self.fault
    }
}

impl std::error::Error for ShapeError {}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at byte {}", self.fault, self.position)?;
        if !self.path.is_empty() {
            write!(f, " in {}", self.field())?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathStep {
    Field(&'static str),
    Index(usize),
}

/// What can be wrong with a message's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A length or a count reaches beyond the end. An array's elements take a byte at least.
    #[error("{wanted} bytes are needed and {left} are left")]
    TooFewBytes {
        /// How many would be needed.
        wanted: usize,
        /// How many there are.
        left: usize,
    },
    /// A length below -1.
    #[error("the length is {length}")]
    NegativeLength {
        /// The length as it came.
        length: i32,
    },
    /// Null where the version has none.
    #[error("null is not allowed")]
    Null,
    /// A varint of more than 32 bits.
    #[error("the varint is too long")]
    VarintTooLong,
    /// A string that is not UTF-8.
    #[error("the string is not UTF-8")]
    NotUtf8,
    /// The byte before a struct that may be missing is neither 1 nor -1.
    #[error("{byte} says neither present nor null")]
    NotAPresence {
        /// The byte as it came.
        byte: u8,
    },
    /// A tagged field whose size is not that of its value.
    #[error("the tagged field says {stated} bytes and holds {used}")]
    TagSize {
        /// The size before it.
        stated: usize,
        /// What its value took.
        used: usize,
    },
    /// Sound, but decoding it would take too much memory for a message of its length.
    #[error("decoding would take more than {limit} bytes of memory ({memory_bytes} so far)")]
    Expands {
        /// What it takes up to here.
        memory_bytes: usize,
        /// The most for a message of this length.
        limit: usize,
    },
    /// An API, or a version of one, that this client does not speak.
    #[error("the client does not speak this version")]
    NotInTable,
}

/// How many times its length a body of up to 8 MiB may take when decoded. The least legible names (one letter) in the
/// most wasteful message (Metadata's request) come to 24.
const MAX_EXPANSION: usize = 32;
/// What any body may take: the first tagged field alone costs a tree node.
const SMALL_BODY_MEMORY: usize = 64 << 10;
/// Where the growth of larger bodies ends, 256 MiB ...
const LARGE_BODY_MEMORY: usize = 256 << 20;
/// ... or where this many times their length is more.
const LARGE_BODY_EXPANSION: usize = 4;
/// A shared slice.
const SLICE_MEMORY: usize = 32;
/// A vector without its elements.
const VECTOR_MEMORY: usize = 24;
/// A leaf of the map that unknown tagged fields are kept in: eleven keys, eleven slices, two links.
const FIRST_TAG_MEMORY: usize = 448;
/// Its further entries: leaves that were split are half full, and have parents.
const NEXT_TAG_MEMORY: usize = 96;
/// The end of a range that is open.
const NEWEST: i16 = i16::MAX;
