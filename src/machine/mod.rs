//! State machines without sockets, clock or tasks.
//!
//! Inputs are `handle_*` calls, outputs `poll_*` calls; time is the argument `now`, randomness a number that is handed
//! in. The drivers in [`crate::client`] are the loops that remain.

pub mod assignor;
pub(crate) mod connection;
pub mod fetch;
#[cfg(fuzzing)]
pub mod fuzzing;
pub(crate) mod group;
pub(crate) mod metadata;
#[cfg(any(test, fuzzing))]
mod operations;
pub(crate) mod produce;
pub(crate) mod sasl;
pub(crate) mod share;
pub(crate) mod telemetry;
pub(crate) mod transaction;
