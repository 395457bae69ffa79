//! Reliable message handling for Rust services, over a Kafka client written in pure Rust.
//!
//! The modules stand in layers; each uses those above it in this list, never those below it.

pub mod error;
pub mod record;

pub mod clock;
pub mod retry;

pub mod observe;

pub mod protocol;

pub mod machine;

pub mod memory;

#[cfg(feature = "kafka")]
pub mod client;

#[cfg(feature = "harbor")]
pub mod adapter;

#[cfg(feature = "harbor")]
pub mod harbor;

#[cfg(feature = "testing")]
pub mod testing;

/// The examples of the README are tests.
#[cfg(all(doctest, feature = "kafka"))]
#[doc = include_str!("../README.md")]
pub struct Readme;
