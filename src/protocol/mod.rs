//! Bytes to messages and back. No state: what is known of a connection or a group lives in [`crate::machine`].
//!
//! ```text
//! out  request struct ──▶ request (head, body) ──▶ frame ──▶ socket
//! in   socket ──▶ frame ──▶ response: header ──▶ shape: every length checked ──▶ response struct ──▶ batch: records
//! ```

pub mod api;
pub mod batch;
#[cfg(any(test, fuzzing))]
pub(crate) mod choices;
pub mod compression;
pub mod error_code;
pub mod frame;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod murmur2;
pub(crate) mod otlp;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod shape;
pub(crate) mod share;
pub(crate) mod sticky;
pub mod subscription;
pub(crate) mod throttle;
pub mod versions;

pub use request::EncodeError;
pub use response::{DecodeError, ResponseTooShort};
pub use shape::{Fault, ShapeError};
