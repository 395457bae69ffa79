//! The dev broker on sockets, beside Kafka and under clients that are not ours.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod clients;
mod differential;
#[path = "../live_tool/dlq.rs"]
mod dlq;
mod orders;
