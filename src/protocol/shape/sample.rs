//! Sound messages by the table, for tests: what the walk accepts, another decoder must read to the end.

use bytes::BufMut;

use super::{Field, Kind, Message, Struct, find, requests, responses};
use crate::protocol::api::ApiKey;

/// The body of a response of this version, with random content.
pub(crate) fn response(api: ApiKey, version: i16, source: &mut dyn Source) -> Vec<u8> {
    body(responses::RESPONSES, api, version, source)
}

/// The body of a request of this version, with random content.
pub(crate) fn request(api: ApiKey, version: i16, source: &mut dyn Source) -> Vec<u8> {
    body(requests::REQUESTS, api, version, source)
}

/// Where a message's content comes from.
pub(crate) trait Source {
    /// A number below `bound`.
    fn below(&mut self, bound: u32) -> u32;

    /// The most unknown tagged fields in each section.
    fn most_tags(&self) -> u32 {
        0
    }

    /// What a field of this name holds, without its length; anything where it does not say, or where the field has no place for it.
    fn content(&mut self, _field: &'static str) -> Option<Vec<u8>> {
        None
    }
}

/// A seeded source of numbers (SplitMix64), and how wild they make the message.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
    pub(crate) most_tags: u32,
}

impl Random {
    #[cfg(test)]
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, most_tags: 0 }
    }

    pub(crate) fn with_unknown_tags(seed: u64) -> Self {
        Self { state: seed, most_tags: 3 }
    }

    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed >> 32) * u64::from(bound)) >> 32) as u32
    }
}

impl Source for Random {
    fn below(&mut self, bound: u32) -> u32 {
        Random::below(self, bound)
    }

    fn most_tags(&self) -> u32 {
        self.most_tags
    }
}

fn body(table: &'static [Message], api: ApiKey, version: i16, random: &mut dyn Source) -> Vec<u8> {
    let message = find(table, api, version).expect("tests ask for what the table has");
    let mut writer = Writer { out: Vec::new(), version, flexible: version >= message.flexible, random };
    writer.structure(message.body);
    writer.out
}

struct Writer<'a> {
    out: Vec<u8>,
    version: i16,
    flexible: bool,
    random: &'a mut dyn Source,
}

impl Writer<'_> {
    fn structure(&mut self, structure: &'static Struct) {
        let version = self.version;
        for field in structure.fields.iter().filter(|field| field.tag < 0 && field.is_in(version)) {
            self.value(field.name, &field.kind, field.is_nullable(version));
        }
        if self.flexible {
            self.tags(structure);
        }
    }

    fn value(&mut self, name: &'static str, kind: &'static Kind, nullable: bool) {
        let null = nullable && self.random.below(3) == 0;
        let content = match kind {
            Kind::Fixed(_) | Kind::Text | Kind::Bytes if !null => self.random.content(name),
            _ => None,
        };
        match (kind, content) {
            (Kind::Fixed(bytes), Some(content)) if content.len() == *bytes => return self.out.extend(content),
            (Kind::Text, Some(content)) => {
                self.text_length(Some(content.len()));
                return self.out.extend(content);
            }
            (Kind::Bytes, Some(content)) => {
                self.length(Some(content.len()));
                return self.out.extend(content);
            }
            _ => {}
        }
        match kind {
            // One byte is most often a boolean, which is written back as 0 or 1.
            Kind::Fixed(1) => self.out.push(self.random.below(2) as u8),
            Kind::Fixed(bytes) => (0..*bytes).for_each(|_| self.out.push(self.random.below(256) as u8)),
            Kind::Text if null => self.text_length(None),
            Kind::Text => {
                let length = self.random.below(12) as usize;
                self.text_length(Some(length));
                (0..length).for_each(|_| self.out.push(b'a' + self.random.below(26) as u8));
            }
            Kind::Bytes | Kind::Array(_) if null => self.length(None),
            Kind::Bytes => {
                let length = self.random.below(200) as usize;
                self.length(Some(length));
                (0..length).for_each(|_| self.out.push(self.random.below(256) as u8));
            }
            Kind::Nested(_) if null => self.out.put_i8(-1),
            Kind::Nested(structure) => {
                if nullable {
                    self.out.put_i8(1);
                }
                self.structure(structure);
            }
            Kind::Array(element) => {
                let count = self.random.below(4) as usize;
                self.length(Some(count));
                (0..count).for_each(|_| self.value(name, element, false));
            }
        }
    }

    fn tags(&mut self, structure: &'static Struct) {
        let mut tags: Vec<(u32, Option<&Field>)> = Vec::new();
        let version = self.version;
        for field in structure.fields.iter().filter(|field| field.is_in(version)) {
            if let Ok(tag) = u32::try_from(field.tag)
                && self.random.below(2) == 0
            {
                tags.push((tag, Some(field)));
            }
        }
        let most_tags = self.random.most_tags();
        for _ in 0..self.random.below(most_tags + 1) {
            // Far from any number that the schemas use.
            tags.push((1000 + self.random.below(1 << 20), None));
        }
        tags.sort_by_key(|(tag, _)| *tag);
        tags.dedup_by_key(|(tag, _)| *tag);
        self.varint(tags.len() as u32);
        for (tag, field) in tags {
            self.varint(tag);
            let rest = std::mem::take(&mut self.out);
            match field {
                Some(field) => self.value(field.name, &field.kind, field.is_nullable(self.version)),
                None => (0..self.random.below(300)).for_each(|_| self.out.push(self.random.below(256) as u8)),
            }
            let value = std::mem::replace(&mut self.out, rest);
            self.varint(value.len() as u32);
            self.out.extend_from_slice(&value);
        }
    }

    fn text_length(&mut self, length: Option<usize>) {
        match length {
            _ if self.flexible => self.length(length),
            Some(length) => self.out.put_i16(length as i16),
            None => self.out.put_i16(-1),
        }
    }

    fn length(&mut self, length: Option<usize>) {
        match length {
            _ if self.flexible => self.varint(length.map_or(0, |length| length as u32 + 1)),
            Some(length) => self.out.put_i32(length as i32),
            None => self.out.put_i32(-1),
        }
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}
