//! A serde serializer around `serde_json`'s that refuses what JSON cannot say, and tells where it stood.
//!
//! One pass, and no allocation until something is refused: each frame adds its step to the path on the way out.

use std::cell::RefCell;
use std::fmt::{self, Display};

use serde::de::value::Error as Refused;
use serde::ser::{
    Error, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use crate::error::BoxError;

/// Passes everything on that is fit to be written.
pub(super) struct Strict<'t, S> {
    inner: S,
    trail: &'t Trail,
}

impl Strict<'_, ()> {
    /// The payload as JSON.
    pub(super) fn to_vec<T: Serialize + ?Sized>(payload: &T, large_integers: bool) -> Result<Vec<u8>, BoxError> {
        let trail = Trail { large_integers, steps: RefCell::default() };
        let mut json = Vec::with_capacity(128);
        let inner = &mut serde_json::Serializer::new(&mut json);
        payload.serialize(Strict { inner, trail: &trail }).map_err(|error| format!("{trail} {error}"))?;
        if json == b"null" {
            return Err("value is null, which would be taken for a tombstone".into());
        }
        Ok(json)
    }
}

/// The way from the payload to what was refused, innermost step first.
struct Trail {
    large_integers: bool,
    steps: RefCell<Vec<Step>>,
}

enum Step {
    Field(String),
    Index(usize),
}

impl Trail {
    fn checked<'v, T: ?Sized>(&self, value: &'v T) -> Checked<'_, 'v, T> {
        Checked { value, trail: self }
    }

    fn integer<E: Error>(&self, number: impl TryInto<i64> + Display + Copy) -> Result<(), E> {
        let safe = number.try_into().is_ok_and(|number: i64| number.unsigned_abs() <= MAX_INTEGER);
        if safe || self.large_integers {
            return Ok(());
        }
        Err(E::custom(format_args!("is {number}, beyond 2^53: JavaScript would read another number")))
    }

    fn at<T, E>(&self, step: impl FnOnce() -> Step, result: Result<T, E>) -> Result<T, E> {
        result.inspect_err(|_| self.steps.borrow_mut().push(step()))
    }
}

impl Display for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("value")?;
        self.steps.borrow().iter().rev().try_for_each(|step| match step {
            Step::Field(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
        })
    }
}

/// A part of the payload, to be written strictly too.
struct Checked<'t, 'v, T: ?Sized> {
    value: &'v T,
    trail: &'t Trail,
}

impl<T: Serialize + ?Sized> Serialize for Checked<'_, '_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Strict { inner: serializer, trail: self.trail })
    }
}

macro_rules! integers {
    ($($method:ident: $type:ty,)*) => {
        $(fn $method(self, number: $type) -> Result<S::Ok, S::Error> {
            self.trail.integer(number)?;
            self.inner.$method(number)
        })*
    };
}

macro_rules! floats {
    ($($method:ident: $type:ty,)*) => {
        $(fn $method(self, number: $type) -> Result<S::Ok, S::Error> {
            if !number.is_finite() {
                return Err(S::Error::custom(format_args!("is {number}, which JSON cannot say")));
            }
            self.inner.$method(number)
        })*
    };
}

macro_rules! passed_on {
    ($($method:ident($($argument:ident: $type:ty),*),)*) => {
        $(fn $method(self, $($argument: $type),*) -> Result<S::Ok, S::Error> {
            self.inner.$method($($argument),*)
        })*
    };
}

macro_rules! compounds {
    ($($method:ident($($argument:ident: $type:ty),*) -> $name:ident, $variant:expr;)*) => {
        $(fn $method(self, $($argument: $type),*) -> Result<Compound<'t, S::$name>, S::Error> {
            let inner = self.inner.$method($($argument),*)?;
            Ok(Compound { inner, trail: self.trail, index: 0, key: None, variant: $variant })
        })*
    };
}

impl<'t, S: Serializer> Serializer for Strict<'t, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Compound<'t, S::SerializeSeq>;
    type SerializeTuple = Compound<'t, S::SerializeTuple>;
    type SerializeTupleStruct = Compound<'t, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Compound<'t, S::SerializeTupleVariant>;
    type SerializeMap = Compound<'t, S::SerializeMap>;
    type SerializeStruct = Compound<'t, S::SerializeStruct>;
    type SerializeStructVariant = Compound<'t, S::SerializeStructVariant>;

    integers! { serialize_i64: i64, serialize_u64: u64, serialize_i128: i128, serialize_u128: u128, }

    floats! { serialize_f32: f32, serialize_f64: f64, }

    passed_on! {
        serialize_bool(value: bool),
        serialize_i8(value: i8),
        serialize_i16(value: i16),
        serialize_i32(value: i32),
        serialize_u8(value: u8),
        serialize_u16(value: u16),
        serialize_u32(value: u32),
        serialize_char(value: char),
        serialize_str(value: &str),
        serialize_none(),
        serialize_unit(),
        serialize_unit_struct(name: &'static str),
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str),
    }

    compounds! {
        serialize_seq(length: Option<usize>) -> SerializeSeq, None;
        serialize_tuple(length: usize) -> SerializeTuple, None;
        serialize_tuple_struct(name: &'static str, length: usize) -> SerializeTupleStruct, None;
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, length: usize)
            -> SerializeTupleVariant, Some(variant);
        serialize_map(length: Option<usize>) -> SerializeMap, None;
        serialize_struct(name: &'static str, length: usize) -> SerializeStruct, None;
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, length: usize)
            -> SerializeStructVariant, Some(variant);
    }

    fn serialize_bytes(self, _value: &[u8]) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("is bytes, which JSON would make an array of numbers: write them as text"))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&self.trail.checked(value))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_newtype_struct(name, &self.trail.checked(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let written = self.inner.serialize_newtype_variant(name, index, variant, &self.trail.checked(value));
        self.trail.at(|| Step::Field(variant.to_owned()), written)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// A sequence, map or struct that is being written.
pub(super) struct Compound<'t, C> {
    inner: C,
    trail: &'t Trail,
    /// Of the next element.
    index: usize,
    /// Of the next value of a map whose keys and values are written apart.
    key: Option<String>,
    /// The enum variant that it is the content of.
    variant: Option<&'static str>,
}

impl<C> Compound<'_, C> {
    /// The result of writing the element or field at `step`.
    fn at<E>(&self, step: impl FnOnce() -> Step, result: Result<(), E>) -> Result<(), E> {
        let result = self.trail.at(step, result);
        match self.variant {
            Some(variant) => self.trail.at(|| Step::Field(variant.to_owned()), result),
            None => result,
        }
    }
}

macro_rules! elements {
    ($($trait:ident::$method:ident,)*) => {
        $(impl<C: $trait> $trait for Compound<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                let written = self.inner.$method(&self.trail.checked(value));
                let index = self.index;
                self.index += 1;
                self.at(|| Step::Index(index), written)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        })*
    };
}

macro_rules! fields {
    ($($trait:ident,)*) => {
        $(impl<C: $trait> $trait for Compound<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), C::Error> {
                let written = self.inner.serialize_field(key, &self.trail.checked(value));
                self.at(|| Step::Field(key.to_owned()), written)
            }

            fn skip_field(&mut self, key: &'static str) -> Result<(), C::Error> {
                self.inner.skip_field(key)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        })*
    };
}

elements! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

fields! { SerializeStruct, SerializeStructVariant, }

impl<C: SerializeMap> Compound<'_, C> {
    fn check_key<K: Serialize + ?Sized>(key: &K, text: Option<&mut String>) -> Result<(), C::Error> {
        key.serialize(Key(text)).map_err(C::Error::custom)
    }
}

impl<C: SerializeMap> SerializeMap for Compound<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        let mut text = String::new();
        Self::check_key(key, Some(&mut text))?;
        self.key = Some(text);
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        let written = self.inner.serialize_value(&self.trail.checked(value));
        let key = self.key.take();
        self.at(|| Step::Field(key.unwrap_or_default()), written)
    }

    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), C::Error> {
        Self::check_key(key, None)?;
        let written = self.inner.serialize_entry(key, &self.trail.checked(value));
        let name = || {
            let mut text = String::new();
            // It was a key a moment ago; if it is none now, the path lacks one name.
            let _ = key.serialize(Key(Some(&mut text)));
            Step::Field(text)
        };
        self.at(name, written)
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}

/// Takes what is text as a key and refuses the rest; writes it down where it is asked to.
struct Key<'a>(Option<&'a mut String>);

macro_rules! no_keys {
    ($($method:ident($($argument:ident: $type:ty),*) -> $returned:ty,)*) => {
        $(fn $method(self, $($argument: $type),*) -> Result<$returned, Refused> {
            $(let _ = $argument;)*
            Err(Refused::custom("is a map with keys that are no strings"))
        })*
    };
}

impl Serializer for Key<'_> {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = Impossible<(), Refused>;
    type SerializeTuple = Impossible<(), Refused>;
    type SerializeTupleStruct = Impossible<(), Refused>;
    type SerializeTupleVariant = Impossible<(), Refused>;
    type SerializeMap = Impossible<(), Refused>;
    type SerializeStruct = Impossible<(), Refused>;
    type SerializeStructVariant = Impossible<(), Refused>;

    fn serialize_str(self, value: &str) -> Result<(), Refused> {
        if let Some(text) = self.0 {
            text.push_str(value);
        }
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Refused> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Result<(), Refused> {
        self.serialize_str(variant)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Refused> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Result<(), Refused> {
        value.serialize(self)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<(), Refused> {
        match self.0 {
            Some(text) => fmt::write(text, format_args!("{value}")).map_err(Refused::custom),
            None => Ok(()),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<(), Refused> {
        self.serialize_unit()
    }

    no_keys! {
        serialize_bool(value: bool) -> (),
        serialize_i8(value: i8) -> (),
        serialize_i16(value: i16) -> (),
        serialize_i32(value: i32) -> (),
        serialize_i64(value: i64) -> (),
        serialize_i128(value: i128) -> (),
        serialize_u8(value: u8) -> (),
        serialize_u16(value: u16) -> (),
        serialize_u32(value: u32) -> (),
        serialize_u64(value: u64) -> (),
        serialize_u128(value: u128) -> (),
        serialize_f32(value: f32) -> (),
        serialize_f64(value: f64) -> (),
        serialize_bytes(value: &[u8]) -> (),
        serialize_none() -> (),
        serialize_unit() -> (),
        serialize_unit_struct(name: &'static str) -> (),
        serialize_seq(length: Option<usize>) -> Self::SerializeSeq,
        serialize_tuple(length: usize) -> Self::SerializeTuple,
        serialize_tuple_struct(name: &'static str, length: usize) -> Self::SerializeTupleStruct,
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, length: usize)
            -> Self::SerializeTupleVariant,
        serialize_map(length: Option<usize>) -> Self::SerializeMap,
        serialize_struct(name: &'static str, length: usize) -> Self::SerializeStruct,
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, length: usize)
            -> Self::SerializeStructVariant,
    }
}

/// The largest distance from nought up to which a double tells every integer apart.
const MAX_INTEGER: u64 = 1 << 53;
