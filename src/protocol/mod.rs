//! Bytes to messages and back. No state: what is known of a connection or a group lives in [`crate::machine`].

pub mod batch;
pub mod compression;
pub mod error_code;
pub mod murmur2;
