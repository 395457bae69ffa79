//! Reliable message handling for Rust services, over a Kafka client written in pure Rust.
//!
//! A service writes a handler; the harbor brings the records, retries what fails on a ladder of delay topics, sets aside
//! what cannot be handled, lets an operator put it back, and never loses a record on the way. Begin at [`harbor`].
//!
//! | wanted | look at |
//! | --- | --- |
//! | handle the records of a topic | [`harbor`], with [`adapter::kafka`] or [`adapter::memory`] |
//! | test a handler | [`adapter::memory`] |
//! | a Kafka client and nothing else | [`client`] |
//! | another broker under the harbor | [`adapter`], and the contract in [`testing`] |
//! | what happens, as it happens | [`observe`] |
//!
//! The modules stand in layers, in the order of `src/lib.rs`; each uses those above it, never those below it.

#![cfg_attr(
    not(feature = "kafka"),
    allow(dead_code, unreachable_pub, unused_imports, reason = "the machines are built without their drivers")
)]

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
