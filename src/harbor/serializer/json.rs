//! JSON that means on the other side what it meant here.

use std::future::{Future, ready};

use bytes::Bytes;
use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, Deserializer as SerdeDeserializer, Error as _, Visitor};
use serde::{Serialize, forward_to_deserialize_any};

use super::strict::Strict;
use super::{Deserializer, Serializer};
use crate::error::BoxError;

/// Strict JSON: what JSON cannot say is refused before a byte leaves, with its place in the payload.
///
/// Refused are numbers that are not finite (`serde_json` would write `null`), integers beyond 2^53 (a reader in
/// JavaScript would take another number), map keys that are no strings (they would become some), and bytes (they would
/// become an array of numbers), and a payload that is nothing but null, which would be taken for a tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Json {
    large_integers: bool,
}

impl Json {
    /// Strict JSON.
    pub const fn new() -> Self {
        Self { large_integers: false }
    }

    /// The same, but integers beyond 2^53 are written. Default: refused.
    ///
    /// JavaScript reads such a number as a near one without saying so; set it where no JavaScript reads.
    #[must_use]
    pub const fn with_large_integers(mut self, allowed: bool) -> Self {
        self.large_integers = allowed;
        self
    }
}

impl<T: Serialize + ?Sized> Serializer<T> for Json {
    fn serialize(&self, _topic: &str, payload: &T) -> impl Future<Output = Result<Bytes, BoxError>> + Send {
        ready(Strict::to_vec(payload, self.large_integers).map(Bytes::from))
    }
}

impl<T: DeserializeOwned + Send> Deserializer<T> for Json {
    fn deserialize(&self, _topic: &str, value: &[u8]) -> impl Future<Output = Result<T, BoxError>> + Send {
        ready(serde_json::from_slice(value).map_err(Into::into))
    }

    fn tombstone(&self) -> Option<T> {
        T::deserialize(Tombstone).ok()
    }
}

/// Offers nothing but `None`: a payload that is no `Option` takes offence.
struct Tombstone;

impl<'de> SerdeDeserializer<'de> for Tombstone {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, ValueError> {
        Err(ValueError::custom("a tombstone is no value"))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_none()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
