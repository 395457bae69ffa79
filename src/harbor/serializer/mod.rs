//! Payloads to bytes and back.
//!
//! A serializer never sees a null value. A tombstone is sent as one without asking it; one that is read becomes `None`
//! where the payload is an `Option`, and does not fit any other payload: such a record goes to the dead letters.

mod json;
mod strict;

use std::future::{Future, ready};

use bytes::Bytes;

use crate::error::BoxError;
use crate::harbor::error::SerializationError;
use crate::harbor::failure::{Classifiers, Failure, IntoFailure};
use crate::harbor::guard;

pub use json::Json;

/// Turns payloads into bytes.
///
/// An implementation may be written as `async fn`. One that needs no waiting costs nothing for it: the future is known
/// to the compiler and is ready at once.
pub trait Serializer<T: ?Sized>: Send + Sync + 'static {
    /// The bytes of a payload for this topic.
    ///
    /// # Errors
    /// When the payload cannot be written; nothing is sent then. One that panics has failed.
    fn serialize(&self, topic: &str, payload: &T) -> impl Future<Output = Result<Bytes, BoxError>> + Send;
}

/// Turns bytes into payloads. May be written as `async fn`, as [`Serializer`].
///
/// ```
/// use kafka_harbor::error::BoxError;
/// use kafka_harbor::harbor::{Deserializer, Failure};
///
/// /// Decimal numbers.
/// struct Decimal;
///
/// impl Deserializer<u64> for Decimal {
///     async fn deserialize(&self, _topic: &str, value: &[u8]) -> Result<u64, BoxError> {
///         Ok(std::str::from_utf8(value)?.parse()?)
///     }
/// }
/// ```
pub trait Deserializer<T>: Send + Sync + 'static {
    /// The payload of a value. `topic` is the original one, also for a record that comes from a retry topic.
    ///
    /// # Errors
    /// When the bytes are no payload: the record goes to the dead letters. An error that says it is retryable, such as
    /// [`Failure::retryable`] of a registry that cannot be reached, walks the ladder instead.
    fn deserialize(&self, topic: &str, value: &[u8]) -> impl Future<Output = Result<T, BoxError>> + Send;

    /// What a tombstone is as a payload; `None` if it is none.
    fn tombstone(&self) -> Option<T> {
        None
    }
}

/// Bytes as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Raw;

impl Serializer<Bytes> for Raw {
    fn serialize(&self, _topic: &str, payload: &Bytes) -> impl Future<Output = Result<Bytes, BoxError>> + Send {
        ready(Ok(payload.clone()))
    }
}

impl Serializer<Vec<u8>> for Raw {
    fn serialize(&self, _topic: &str, payload: &Vec<u8>) -> impl Future<Output = Result<Bytes, BoxError>> + Send {
        ready(Ok(Bytes::copy_from_slice(payload)))
    }
}

impl Serializer<[u8]> for Raw {
    fn serialize(&self, _topic: &str, payload: &[u8]) -> impl Future<Output = Result<Bytes, BoxError>> + Send {
        ready(Ok(Bytes::copy_from_slice(payload)))
    }
}

impl Deserializer<Bytes> for Raw {
    fn deserialize(&self, _topic: &str, value: &[u8]) -> impl Future<Output = Result<Bytes, BoxError>> + Send {
        ready(Ok(Bytes::copy_from_slice(value)))
    }
}

impl Deserializer<Vec<u8>> for Raw {
    fn deserialize(&self, _topic: &str, value: &[u8]) -> impl Future<Output = Result<Vec<u8>, BoxError>> + Send {
        ready(Ok(value.to_vec()))
    }
}

impl Deserializer<Option<Bytes>> for Raw {
    fn deserialize(&self, _topic: &str, value: &[u8]) -> impl Future<Output = Result<Option<Bytes>, BoxError>> + Send {
        ready(Ok(Some(Bytes::copy_from_slice(value))))
    }

    fn tombstone(&self) -> Option<Option<Bytes>> {
        Some(None)
    }
}

impl Deserializer<Option<Vec<u8>>> for Raw {
    fn deserialize(
        &self,
        _topic: &str,
        value: &[u8],
    ) -> impl Future<Output = Result<Option<Vec<u8>>, BoxError>> + Send {
        ready(Ok(Some(value.to_vec())))
    }

    fn tombstone(&self) -> Option<Option<Vec<u8>>> {
        Some(None)
    }
}

/// UTF-8 text. Bytes that are none are refused, not replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Text;

impl Serializer<String> for Text {
    fn serialize(&self, _topic: &str, payload: &String) -> impl Future<Output = Result<Bytes, BoxError>> + Send {
        ready(Ok(Bytes::copy_from_slice(payload.as_bytes())))
    }
}

impl Serializer<str> for Text {
    fn serialize(&self, _topic: &str, payload: &str) -> impl Future<Output = Result<Bytes, BoxError>> + Send {
        ready(Ok(Bytes::copy_from_slice(payload.as_bytes())))
    }
}

impl Deserializer<String> for Text {
    fn deserialize(&self, _topic: &str, value: &[u8]) -> impl Future<Output = Result<String, BoxError>> + Send {
        ready(text(value))
    }
}

impl Deserializer<Option<String>> for Text {
    fn deserialize(&self, _topic: &str, value: &[u8]) -> impl Future<Output = Result<Option<String>, BoxError>> + Send {
        ready(text(value).map(Some))
    }

    fn tombstone(&self) -> Option<Option<String>> {
        Some(None)
    }
}

fn text(value: &[u8]) -> Result<String, BoxError> {
    std::str::from_utf8(value).map(str::to_owned).map_err(Into::into)
}

/// Any serializer, for payloads that may be tombstones: `Nullable(S)` reads `Option<T>` where `S` reads `T`.
///
/// [`Json`], [`Raw`] and [`Text`] do so by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Nullable<S>(pub S);

impl<T, S: Deserializer<T>> Deserializer<Option<T>> for Nullable<S> {
    async fn deserialize(&self, topic: &str, value: &[u8]) -> Result<Option<T>, BoxError> {
        self.0.deserialize(topic, value).await.map(Some)
    }

    fn tombstone(&self) -> Option<Option<T>> {
        Some(None)
    }
}

/// The payload of a record's value, or why there is none: a serialization failure, unless the deserializer's error
/// already is one or says in so many words that trying again may help.
pub(crate) async fn read<T, D: Deserializer<T>>(
    deserializer: &D,
    topic: &str,
    value: Option<&[u8]>,
    classifiers: &Classifiers,
) -> Result<T, Failure> {
    let Some(value) = value else {
        let nothing = || SerializationError::deserializing(topic, "a tombstone is no such payload").into_failure();
        return deserializer.tombstone().ok_or_else(nothing);
    };
    deserializer.deserialize(topic, value).await.map_err(|error| {
        let failure = error.into_failure().classified(classifiers);
        if failure.is_serialization() || failure.says_retryable() == Some(true) {
            return failure;
        }
        SerializationError::deserializing(topic, failure).into_failure()
    })
}

/// The bytes of a payload.
pub(crate) async fn write<T: ?Sized, S: Serializer<T>>(
    serializer: &S,
    topic: &str,
    payload: &T,
) -> Result<Bytes, SerializationError> {
    match guard::run(|| serializer.serialize(topic, payload)).await {
        Ok(written) => written.map_err(|error| SerializationError::serializing(topic, error)),
        Err(panic) => Err(SerializationError::serializing(topic, panic.to_string())),
    }
}

#[cfg(test)]
mod tests;
